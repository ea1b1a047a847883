"""What is kept of each experiment, and the pages of tools/bench report: one for each with its goals, plots, tables, raw rows,
machine, commit and the peers' versions."""
import html, importlib.metadata, json, os, platform, shutil, subprocess, time

from experiments.common import OUT, ROOT, drawn, goal_row, outcome, reached, shown, written

PAGES = os.path.join(OUT if "TRIREME_BENCH" in os.environ else ROOT, "report")
FIGURES = os.path.join(OUT if "TRIREME_BENCH" in os.environ else os.path.join(ROOT, "docs"), "figures.md")
PYTHON = ("scikit-learn", "xgboost", "lightgbm", "pandas", "tomotopy", "numpy", "scipy")
DEBIAN = ("liblinear-tools", "libblis4", "libopenmpi3", "gcc")


# ---- records ----

def git(*words):
    """What it says, or None where it is not installed or says that something is wrong."""
    if not shutil.which("git"):
        return None
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, {platform.system()} {platform.release()}"


def versions():
    """Of peers and libraries that are installed here."""
    found = {}
    for name in PYTHON:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    if shutil.which("dpkg-query"):
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *DEBIAN], capture_output=True, text=True).stdout
        found |= dict(line.split(maxsplit=1) for line in listed.splitlines() if " " in line.strip())
    return found


def keep(name, quick, begun, text, failure):
    """Writes runs/bench/<name>.json. begun: when, in seconds, and the load of the machine then."""
    os.makedirs(OUT, exist_ok=True)
    record = {"experiment": name, "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begun[0])), "commit": git("rev-parse", "HEAD"),
              "machine": machine(), "load": begun[1], "seconds": round(time.time() - begun[0], 1), "quick": quick, "versions": versions(),
              "goals": list(reached), "csv": sorted(set(written)), "plots": list(dict.fromkeys(drawn)), "text": text, "failure": failure}
    with open(os.path.join(OUT, name + ".json"), "w") as f:
        json.dump(record, f, indent=1)


def kept(name):
    try:
        with open(os.path.join(OUT, name + ".json")) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def is_current(record, quick, paths):
    """Whether it ran through, and nothing that it measures has changed since."""
    return (record is not None and not record["failure"] and record["commit"] is not None and (quick or not record["quick"])
            and git("diff", "--quiet", record["commit"], "--", *paths) is not None)


# ---- pages ----

STYLE = """body{font:15px/1.45 sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}
pre{background:#f6f6f6;padding:1em;overflow-x:auto;font-size:13px}.met{color:#176b2c}.missed{color:#b00020;font-weight:bold}
.none{color:#777}img{max-width:100%}"""
CLASS = {"met": "met", "NOT MET": "missed", "not measured": "none"}


def page(file, title, body):
    with open(os.path.join(PAGES, file), "w") as f:
        f.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
                f"<h1>{html.escape(title)}</h1>{body}</html>\n")


def rows_as_html(head, rows):
    """Cells are HTML."""
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{c}</{tag}>" for c in cells) + "</tr>"
    return "<table>" + line(head, "th") + "".join(line(r, "td") for r in rows) + "</table>"


def goal_cells(name, value, where):
    row, came = goal_row(name), outcome(name, value)
    return [f"<span class='{CLASS[came]}'>{came}</span>", *map(html.escape, (name, shown(value), row["wanted"], row["what"], where))]


def experiment_page(record, about):
    name = record["experiment"]
    body = "<p><a href=index.html>all experiments</a></p>"
    facts = {"run": record["date"] + (", --quick: few runs on little data, to see that it works" if record["quick"] else ""),
             "took": f"{record['seconds']} s", "commit": record["commit"] or "not known", "machine": record["machine"],
             "load at the start": record["load"], "versions": ", ".join(f"{k} {v}" for k, v in record["versions"].items())}
    body += rows_as_html(["", ""], [[html.escape(k), html.escape(str(v))] for k, v in facts.items()])
    if record["failure"]:
        body += f"<h2>Failed</h2><pre class=missed>{html.escape(record['failure'])}</pre>"
    if record["goals"]:
        body += "<h2>Goals</h2>" + rows_as_html(["", "goal", "measured", "wanted", "", "where"], [goal_cells(*g) for g in record["goals"]])
    for plot in record["plots"]:
        if os.path.exists(os.path.join(OUT, plot + ".svg")):
            shutil.copy(os.path.join(OUT, plot + ".svg"), PAGES)
            body += f"<p><img src='{plot}.svg' alt='{plot}'></p>"
    body += f"<h2>What it said</h2><pre>{html.escape(record['text'])}</pre><h2>Raw rows</h2><ul>"
    for file in [c + ".csv" for c in record["csv"]] + [p + "-curves.csv" for p in record["plots"]]:
        if os.path.exists(os.path.join(OUT, file)):
            shutil.copy(os.path.join(OUT, file), PAGES)
            body += f"<li><a href='{file}'>{file}</a></li>"
    page(name + ".html", f"{name}: {about}", body + "</ul>")


def draw(names, experiments):
    """Writes the pages of these experiments; how many goals were missed, and how many experiments failed."""
    os.makedirs(PAGES, exist_ok=True)
    lines, missed, failed = [], [], 0
    for name in names:
        record, about = kept(name), experiments[name][1]
        if not record:
            lines.append([html.escape(name), html.escape(about), "never run", "", "", ""])
            continue
        experiment_page(record, about)
        came = [outcome(goal, value) for goal, value, _ in record["goals"]]
        missed += [[f"<a href={name}.html>{name}</a>", *goal_cells(*g)[1:]] for g, how in zip(record["goals"], came) if how == "NOT MET"]
        failed += bool(record["failure"])
        said = ", ".join(f"<span class={CLASS[o]}>{came.count(o)} {o}</span>" for o in CLASS if o in came)
        lines.append([f"<a href={name}.html>{name}</a>", html.escape(about), record["date"] + (" quick" if record["quick"] else ""),
                      (record["commit"] or "")[:9], html.escape(str(record["load"])), "<span class=missed>failed</span>" if record["failure"] else said])
    body = f"<p>{html.escape(machine())}</p>" + rows_as_html(["experiment", "measurement", "run", "commit", "load", "goals"], lines)
    if missed:
        body += "<h2>Missed</h2>" + rows_as_html(["experiment", "goal", "measured", "wanted", "", "where"], missed)
    page("index.html", "Experiments", body)
    return len(missed), failed


# ---- figures for people who read docs ----

FIGURES_HEAD = """# Figures

What `tools/bench` measured last of each goal, written by `tools/bench report --docs`; [performance.md](performance.md) says more. Quick runs
are of little data, on which peers look worse or better than they are.

| experiment | measured | goal | | where | run | commit | machine |
|---|---|---|---|---|---|---|---|
"""


def figures(names, experiments):
    """Writes docs/figures.md: a row for each goal. Experiments without a record here keep the rows that they have there."""
    kept_rows = {}
    if os.path.exists(FIGURES):
        with open(FIGURES) as f:
            for line in f:
                kept_rows.setdefault(line.split("|")[1].strip() if line.startswith("|") else "", []).append(line)
    with open(FIGURES, "w") as f:
        f.write(FIGURES_HEAD)
        for name in experiments:
            record = kept(name) if name in names else None
            if not record or record["failure"]:
                f.writelines(kept_rows.get(name, []))
                continue
            for goal, value, where in record["goals"]:
                row, date = goal_row(goal), record["date"].split()[0] + (" quick" if record["quick"] else "")
                cells = [name, shown(value), f"{row['wanted']} {row['what']}", outcome(goal, value), f"{goal}: {where}" if where else goal,
                         date, (record["commit"] or "")[:9], record["machine"].rsplit(",", 1)[0]]
                f.write("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |\n")

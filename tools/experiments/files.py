"""Files: tables in many dialects are read as they were meant, or refused. With TRIREME_POLLOCK, the folder of the public benchmark
HPI-Information-Systems/Pollock, its polluted files and its survey; otherwise files of our own: dialects times contents."""
import collections, csv, glob, json, os, random, re, subprocess
from concurrent.futures import ThreadPoolExecutor
from experiments.common import ENV, OUT, TRIREME, goal, program, run, table, write_csv


# ---- files of our own ----

def contents(chance):
    """Names and rows: numbers; text with every delimiter and quotes in it; text with line ends."""
    words = ["Berlin", "Rom, Lazio", "a; b", "tab\there", "pipe|line", 'a "quoted" word', "it's", "x", "7 Zwerge"]
    yield "numbers", ["a", "b", "y"], [[f"{chance.uniform(-99, 99):.3f}", f"{chance.uniform(0, 9):.2f}", str(i % 2)] for i in range(60)]
    yield "words", ["place", "n", "y"], [[chance.choice(words), f"{chance.uniform(0, 9):.2f}", str(i % 2)] for i in range(60)]
    yield "lines", ["text", "n"], [[chance.choice(["one", "two\nlines", "a,b\nc"]), f"{chance.uniform(0, 9):.2f}"] for i in range(60)]


def written(names, rows, d):
    """The text of a table in a dialect."""
    def cell(text, is_number):
        if is_number and d["decimal"] == ",":
            text = text.replace(".", ",")
        if not any(c in text for c in (d["delimiter"], d["quote"], "\n", *(" \t" if d["delimiter"] == " " else ""))):
            return text
        inside = text.replace(d["escape"], d["escape"] * 2) if d["escape"] == "\\" else text
        return d["quote"] + inside.replace(d["quote"], d["escape"] + d["quote"]) + d["quote"]
    lines = ["made by a program", ""] * (d["preamble"] // 2) + (["# a comment"] if d["comment"] else [])
    lines += [d["delimiter"].join(cell(name, False) for name in names)]
    lines += [d["delimiter"].join("m/s" if k else "s" for k in range(len(names)))] if d["units"] else []
    lines += [d["delimiter"].join(cell(text, text.replace(".", "").lstrip("-").isdigit()) for text in row) for row in rows]
    return d["end"].join([*lines, ""]).replace("\n" if d["end"] == "\r" else "\0", "\r" if d["end"] == "\r" else "\0")


CHOICES = {"delimiter": ",;\t| ", "quote": "\"'", "escape": ["", "\\"], "end": ["\n", "\r\n", "\r"], "decimal": ".,", "preamble": [0, 2],
           "comment": [False, True], "units": [False, True], "encoding": ["utf-8", "utf-8-sig", "utf-16", "cp1252"]}


def own_files(quick):
    """Writes the files; yields path and the rows that are expected. A dialect differs from the usual one in up to three ways."""
    chance, folder, usual = random.Random(5), os.path.join(OUT, "files"), {key: values[0] for key, values in CHOICES.items()}
    os.makedirs(folder, exist_ok=True)
    for i in range(60 if quick else 300):
        d = usual | {key: chance.choice(CHOICES[key]) for key in chance.sample(sorted(CHOICES), chance.randrange(1, 4))}
        d["escape"] = d["escape"] or d["quote"]
        name, names, rows = list(contents(chance))[i % 3]
        if name != "numbers":
            d["units"] = False
        if name == "lines" and d["end"] == "\r":
            d["end"] = "\n"
        path = os.path.join(folder, f"{i}-{name}.csv")
        with open(path, "w", newline="", encoding=d["encoding"]) as f:
            f.write(written(names, rows, d))
        yield path, [names, *rows]


# ---- reading ----

def converted(path, *settings):
    """The rows as trireme reads them, or None, and the messages."""
    out = os.path.join(OUT, "files", f"{os.path.basename(path)}-{len(settings)}.csv")
    done = subprocess.run([TRIREME, "convert", path, out, "data.label=none", "data.format=csv", *settings], capture_output=True,
                          text=True, errors="replace", env=ENV)
    if done.returncode:
        return None, done.stderr
    with open(out, newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    os.remove(out)
    return rows, done.stderr


def clean(rows):
    return [[" ".join(cell.split()) for cell in row] for row in rows if any(cell.strip() for cell in row)]


def f1(found, wanted):
    """Of the cells, as multisets. A file without cells is read rightly if it is refused."""
    a, b = (collections.Counter(cell for row in clean(rows) for cell in row) for rows in (found or [], wanted))
    both = sum((a & b).values())
    return 2 * both / (sum(a.values()) + sum(b.values())) if b else 1.0


def read_all(title, files):
    """Prints how many files are read rightly, refused, and read differently; and the cells that are right without bad lines."""
    rows, kinds = [], collections.defaultdict(collections.Counter)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read = pool.map(lambda f: (converted(f[0]), converted(f[0], "data.on_error=skip")), files)
        for (path, wanted), ((found, said), (skipped, _)) in zip(files, read):
            # without names in the file, convert writes the numbers of the columns
            unnamed = found and found[0] == [str(i + 1) for i in range(len(found[0]))]
            kind = "refused" if found is None else "right" if clean(found[unnamed:]) == clean(wanted) else "different"
            kinds[re.match(r"row_[a-z_]*(?=_row|\d|_\d)|", os.path.basename(path)).group(0) or "one of a kind"][kind] += 1
            rows.append([os.path.basename(path), kind, f1(skipped, wanted), said.strip().splitlines()[-1] if said.strip() else ""])
    table(title, ["files", "right", "refused", "different"],
          [[of, *(count[kind] for kind in ("right", "refused", "different"))] for of, count in kinds.items()])
    for row in rows:
        if row[1] == "different" or row[2] < 0.99:
            print(f"  {row[0]}: {row[1]}, F1 with data.on_error=skip {row[2]:.3f}: {row[3]}")
    write_csv("files", ["file", "outcome", "f1", "said"], rows)
    goal("files different", float(sum(row[1] == "different" for row in rows)), f"{len(rows)} files")
    goal("files skip", sum(row[2] >= 0.99 for row in rows) / len(rows), "share of the files")


def pollock_files(folder, quick):
    paths = sorted(glob.glob(os.path.join(folder, "polluted_files", "csv", "*.csv")))
    for path in paths[::20] + [p for p in paths if "/file_" in p] if quick else paths:
        with open(path.replace("/csv/", "/clean/"), newline="", encoding="utf-8-sig") as f:
            yield path, list(csv.reader(f))


def survey(folder):
    """Compares the dialects with the annotations of real files. A quote that does not occur, and a doubled quote, are as good as none."""
    wrong, n, above = [], 0, 0
    paths = sorted(p for p in glob.glob(os.path.join(folder, "survey_sample", "csv", "*")) if os.path.getsize(p))
    for line in run(program("bench_sniff"), *paths).splitlines():
        path, *found = line.split("\t")
        with open(path.replace("/csv/", "/parameters/") + "_parameters.json") as f:
            noted = json.load(f)
        delimiter, quote, escape = (chr(int(c, 16)).strip("\0") for c in found[:3]) if len(found) > 2 else ("?", "?", "?")
        text = open(path, "rb").read()
        n += 1
        same = delimiter == noted["delimiter"] and escape == noted["escapechar"].strip('"')
        if not same or (quote != noted["quotechar"] and (quote not in '"' or b'"' in text)):
            wrong.append([os.path.basename(path), delimiter + quote + escape, noted["delimiter"] + noted["quotechar"] + noted["escapechar"]])
        above += found[3:5] == [noted["preamble_lines"], noted["header_lines"]]
    table("dialects of the survey that differ from the annotation", ["file", "found", "annotated"], wrong)
    goal("files survey", 1 - len(wrong) / n, f"{n} files; lines above the data as annotated in {above}")


def files(quick):
    folder = os.environ.get("TRIREME_POLLOCK")
    os.makedirs(os.path.join(OUT, "files"), exist_ok=True)
    if folder:
        survey(folder)
    read_all("the polluted files" if folder else "dialects times contents",
             list(pollock_files(folder, quick) if folder else own_files(quick)))

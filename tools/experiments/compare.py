"""Two commits beside each other (tools/bench compare): each is built in a folder of its own outside the tree, experiments or a
job run with one and the other in turn, and what differs between them is shown as medians."""
import csv, json, os, resource, shutil, statistics, subprocess, sys, tempfile, time

from experiments import report
from experiments.common import BUILD, ENV, ROOT, table


# ---- builds ----

def build_of(commit):
    """The folder in which it is built; «.» is the build of this tree."""
    if commit == ".":
        return BUILD
    full = report.git("rev-parse", "--verify", "-q", commit + "^{commit}")
    if not full:
        sys.exit(f"bench: {commit} is no commit")
    folder = os.path.join(tempfile.gettempdir(), f"trireme-compare-{os.getuid()}", full)
    build = os.path.join(folder, "build")
    if os.path.exists(os.path.join(build, "is-complete")):
        return build
    print(f"building {commit} in {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with subprocess.Popen(["git", "-C", ROOT, "archive", full], stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", folder], stdin=archive.stdout, check=True)
    words = [["meson", "setup", build, folder], ["ninja", "-C", build]]
    for command in words:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench: {' '.join(command)}\n{(done.stdout + done.stderr)[-3000:]}")
    open(os.path.join(build, "is-complete"), "w").close()
    return build


# ---- runs: each returns figures, {name: number} ----

def measured(words, more):
    """Seconds by the clock and of processors that a command and all it starts took, and its exit code and last words."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run([str(w) for w in words], env=ENV | more, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 76):
        sys.exit(f"bench: {' '.join(map(str, words))} ended with {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return {"seconds": time.time() - begin, "processor seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def train(build, out, job, ranks):
    """What summary.json says of a training run."""
    start = ["mpirun", "-q", "-n", str(ranks), "--oversubscribe"] if ranks > 1 else []
    folder = os.path.join(out, "run")
    figures = measured([*start, os.path.join(build, "trireme"), "train", *job, f"output={folder}", "report.progress=no"], {})
    with open(os.path.join(folder, "summary.json")) as f:
        summary = json.load(f)
    return figures | {key: value for key, value in summary.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}


def experiment(build, out, name, quick):
    """All numbers of the rows that it writes. A cell is named by file, row and column."""
    words = [sys.executable, os.path.join(ROOT, "tools", "bench"), name, *(["--quick"] if quick else [])]
    figures = measured(words, {"TRIREME_BUILD": build, "TRIREME_BENCH": out})
    with open(os.path.join(out, name + ".json")) as f:
        files = json.load(f)["csv"]
    for file in files:
        with open(os.path.join(out, file + ".csv")) as f:
            rows = list(csv.reader(f))
        for i, row in enumerate(rows[1:]):
            figures |= {(file, i, column): cell for column, cell in zip(rows[0], row)}
    return figures


# ---- side by side ----

def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def side_by_side(runs):
    """runs: {commit: [figures]}. Rows of a name, a median of each commit, and their ratio. What is the same in all runs names
    the rows of a file."""
    (a, of_a), (b, of_b) = runs.items()
    every, rows = of_a + of_b, []
    keys = [key for key in of_a[0] if all(key in run for run in every)]
    fixed = {key for key in keys if isinstance(key, tuple) and len({run[key] for run in every}) == 1}
    for key in keys:
        if key in fixed or any(number(run[key]) is None for run in every):
            continue
        one, other = (statistics.median(number(run[key]) for run in of) for of in (of_a, of_b))
        label = key
        if isinstance(key, tuple):
            of_row = [of_a[0][k] for k in keys if k in fixed and k[:2] == key[:2]]
            label = f"{key[0]}: {' '.join(of_row) or key[1]}: {key[2]}"
        rows.append([label, one, other, other / one if one else None])
    return rows


def compare(a, b, words, ranks, times, quick, experiments):
    """words: names of experiments, or a job file with keys. A B A B ..., `times` times."""
    builds = {a: build_of(a), b: build_of(b)}
    if builds[a] == builds[b]:
        sys.exit("bench: these are the same commit")
    jobs = not all(word in experiments for word in words)
    for words_of in [words] if jobs else [[w] for w in words]:
        runs = {a: [], b: []}
        for _ in range(times):
            for commit, build in builds.items():
                with tempfile.TemporaryDirectory() as out:
                    one = train(build, out, words_of, ranks) if jobs else experiment(build, out, words_of[0], quick)
                runs[commit].append(one)
        name = " ".join(words_of) + (f" on {ranks} rank{'s' if ranks > 1 else ''}" if jobs else "")
        table(f"{name}: medians of {times}, run in turn; load {os.getloadavg()[0]:.1f}", ["", a, b, f"{b} / {a}"], side_by_side(runs))

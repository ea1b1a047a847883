"""What experiments share: running programs, reading what a run left behind, tables, CSV files and plots."""
import csv, glob, gzip, json, math, os, shutil, statistics, subprocess, sys
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TRIREME_BUILD", os.path.join(ROOT, "build"))
OUT = os.environ.get("TRIREME_BENCH", os.path.join(ROOT, "runs", "bench"))
TRIREME = os.path.join(BUILD, "trireme")
ENV = dict(os.environ)
if os.geteuid() == 0:
    ENV |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
NEVER = math.inf  # the time to a target that was not reached


# ---- programs ----

def run(*words, check=True):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=ENV, cwd=ROOT)
    if check and done.returncode:
        sys.exit(f"bench: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def mpirun(ranks, *words, host=None, **options):
    """Inside tools/hosts, `host` says how many ranks go where: h1:2,h2:8."""
    where = ["--host", host] if host else []
    return run("mpirun", "-q", "-n", ranks, *where, "--oversubscribe", *words, **options)


def program(name):
    return os.path.join(BUILD, "tests", "bench", name)


elsewhere = []  # experiments that store their results themselves


def on_two_hosts(name, quick, slots=4):
    """Whether this is already a host of tools/hosts; otherwise the experiment is started again on one."""
    if "TRIREME_HOSTS" in os.environ:
        return True
    sys.stdout.flush()
    words = [os.path.join(ROOT, "tools", "hosts"), "--rate", "1gbit", "--slots", str(slots),
             sys.executable, os.path.join(ROOT, "tools", "bench"), name, *(["--quick"] if quick else [])]
    elsewhere.append(name)
    code = subprocess.run(words, env=ENV | {"TRIREME_BUILD": BUILD, "TRIREME_BENCH": OUT}).returncode
    if code not in (0, 77):
        sys.exit(code)
    return False


# ---- jobs ----

@dataclass
class Run:
    """What a training run left behind: a row of numbers for every evaluation, as in metrics.csv, with `seconds` that
    leave out evaluating; the outcome; and how it was laid out."""
    curve: list
    summary: dict
    explained: str
    messages: int = 0  # of all ranks, with `counts`: between any two, those of collectives as well
    bytes: int = 0
    collective: int = 0  # messages of collectives among them
    first: int = 0  # messages of rank 0, which schedules, among them

    def first_below(self, target):
        """The first evaluation with an objective at the target or below, or None. Under SSP and ASP that is an
        estimate: a run that was stopped there and turns out to be more than 5 % above has not arrived."""
        if not self.summary.get("objective", NEVER) <= 1.05 * target:
            return None
        return next((row for row in self.curve if row["objective"] <= target), None)

    def seconds_to(self, target):
        row = self.first_below(target)
        return row["seconds"] if row else NEVER

    def updates_to(self, target):
        row = self.first_below(target)
        return int(row["updates"]) if row else None

    def settled(self):
        """Mean and variance of the last five objectives, as DynSGD measures convergence (section 7.1)."""
        last = [row["objective"] for row in self.curve][-5:]
        if len(last) < 2 or not all(map(math.isfinite, last)):
            return NEVER, NEVER
        return statistics.mean(last), statistics.variance(last)


# Open MPI counts messages on request; it prints the counts only if it does not monitor windows, too.
COUNTED = os.path.join(OUT, "counted")
COUNTS = ["--mca", "pml", "ob1,monitoring", "--mca", "osc", "^ucx,monitoring", "--mca", "pml_monitoring_enable", "2",
          "--mca", "pml_monitoring_enable_output", "3", "--mca", "pml_monitoring_filename", COUNTED]


def counted():
    """Messages and bytes that all ranks of the last run have sent; messages of its collectives, and of rank 0, among them."""
    messages = sent = collective = first = 0
    for file in glob.glob(glob.escape(COUNTED) + ".*.prof"):
        with open(file) as f:
            words = [line.split("\t") for line in f if line[0] in "EI" and "msgs" in line]
        sent += sum(int(w[3].split()[0]) for w in words)
        each = [int(w[4].split()[0]) for w in words]
        messages += sum(each)
        collective += sum(n for n, w in zip(each, words) if w[0] == "I")
        first += sum(each) if file.endswith(".0.prof") else 0
        os.remove(file)
    return messages, sent, collective, first


def train(ranks, job, host=None, explain=False, counts=False, before=()):
    """Trains a job, a dictionary of keys and values as trireme takes them on the command line; before: words that its own are given
    to, tools/hosts and its options. A run that diverges ends with a curve that says so; any other failure ends the experiment."""
    os.makedirs(OUT, exist_ok=True)
    folder = os.path.join(OUT, "run")
    shutil.rmtree(folder, ignore_errors=True)
    file = os.path.join(OUT, "run.yaml")
    with open(file, "w") as f:
        f.write("name: bench\n")
    words = [TRIREME, "train", file, f"output={folder}", "report.progress=no"]
    words += [f"{key}={value}" for key, value in job.items()] + (["--explain"] if explain else [])
    start = ["mpirun", "-q", "-n", str(ranks), *(["--host", host] if host else []), "--oversubscribe", *(COUNTS if counts else [])]
    words = [*before, *(words if ranks == 1 else start + words)]
    done = subprocess.run(words, capture_output=True, text=True, env=ENV, cwd=ROOT)
    if done.returncode not in (0, 76):
        sys.exit(f"bench: {' '.join(words)}\n{done.stdout}{done.stderr}")
    curve, summary = [], {}
    with open(os.path.join(folder, "metrics.csv")) as f:
        for row in csv.DictReader(f):
            numbers = {key: float(value) if value else math.nan for key, value in row.items()}
            curve.append(numbers | {"seconds": numbers["training_time"]})
    if done.returncode == 0:
        with open(os.path.join(folder, "summary.json")) as f:
            summary = json.load(f)
    shutil.rmtree(folder, ignore_errors=True)
    return Run(curve, summary, done.stdout + done.stderr, *(counted() if counts else ()))


def optimum(data, l2, model="logistic"):
    """The least objective, proven within 1e-4 of itself; looked for once, and kept in runs/bench/optima.json."""
    file = os.path.join(OUT, "optima.json")
    known = json.load(open(file)) if os.path.exists(file) else {}
    key = f"{os.path.basename(data)} of {os.path.getsize(data)} bytes, {model}, l2 {l2}"
    if key not in known:
        run = train(2, {"data.train": data, "data.scale": "none", "model.type": model, "model.l2": l2, "model.bias": "no", "model.dtype": "f64",
                        "solve.target_gap": 1e-4, "solve.epochs": 3000, "report.every": 3})
        known[key] = run.summary["objective"]
        with open(file, "w") as f:
            json.dump(known, f, indent=1)
    return known[key]


def has_key(name):
    """Whether jobs have this key."""
    return subprocess.run([TRIREME, "help", name], capture_output=True).returncode == 0


# ---- data ----

def generated(name, rows, features, nonzeros):
    """A made-up set in datasets/, made once."""
    return generated_as("ctr", name, rows=rows, features=features, nonzeros=nonzeros)


def generated_as(kind, name, **sizes):
    """Made-up data of another kind in datasets/, made once."""
    path = os.path.join(ROOT, "datasets", name)
    if not os.path.exists(path):
        run(TRIREME, "generate", kind, "-o", path, *(f"{key}={value}" for key, value in sizes.items()))
    return path


def ctr_data(quick):
    """The sparse set of jobs/ctr.yaml."""
    return generated("ctr-50000.svm" if quick else "ctr.svm", 50_000 if quick else 500_000, 1_000_000, 50)


def ctr_small():
    """The sparse set of jobs/ctr-small.yaml."""
    return generated("ctr-small.svm", 40_000, 100_000, 30)


def public_data(name):
    """A public set as plain text, which all ranks read in parallel, or None if it is absent."""
    folders = [os.environ.get("TRIREME_DATA", ""), os.path.join(ROOT, "datasets")]
    source = next((p for p in (os.path.join(f, name) for f in folders if f) if os.path.exists(p)), None)
    if not source:
        print(f"bench: {name} is not there (datasets/README.md says where to get it): left out")
        return None
    path = os.path.join(OUT, os.path.basename(name).removesuffix(".gz") + ".txt")
    if not os.path.exists(path):
        os.makedirs(OUT, exist_ok=True)
        with gzip.open(source) as packed, open(path + ".part", "wb") as plain:
            shutil.copyfileobj(packed, plain)
        os.rename(path + ".part", path)
    return path


def count_rows(path):
    with open(path, "rb") as f:
        return sum(1 for _ in f)


# ---- tables and files of results ----

def shown(cell):
    if cell is None:
        return "-"
    if cell == NEVER:
        return "never"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def table(title, head, rows):
    text = [[shown(c) for c in row] for row in [head, *rows]]
    width = [max(len(row[i]) for row in text) for i in range(len(head))]
    print(f"\n{title}")
    for row in text:
        print("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width))))
    sys.stdout.flush()


GOALS = {row["goal"]: row for row in csv.DictReader(open(os.path.join(ROOT, "tools", "goals.csv")))}
HOLDS = {"<=": float.__le__, "<": float.__lt__, ">=": float.__ge__, ">": float.__gt__, "yes": lambda value, _: value == 1}
reached = []  # [goal, value, where] of the experiment that runs


def goal_row(name):
    return GOALS.get(name, {"goal": name, "wanted": "yes", "what": "(not in tools/goals.csv)"})


def outcome(name, value):
    """met, NOT MET or not measured, by what tools/goals.csv says now."""
    way, limit = (goal_row(name)["wanted"].split() + ["1"])[:2]
    return "not measured" if value is None else "met" if HOLDS[way](float(value), float(limit)) else "NOT MET"


def goal(name, value, where=""):
    """A goal of tools/goals.csv and its measurement; None: not measured. where: the case and further facts."""
    row = goal_row(name)
    reached.append([name, value, where])
    measured = "" if value is None else f" {shown(value)} ({row['wanted']})"
    print(f"  {outcome(name, value):12}  {name}:{measured} {row['what']}{f' [{where}]' if where else ''}")
    sys.stdout.flush()


def write_csv(name, head, rows):
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, name + ".csv"), "w", newline="") as f:
        csv.writer(f).writerows([head, *rows])
    if not name.endswith("-curves"):
        written.append(name)


written, drawn = [], []  # what the experiment that runs has left in runs/bench: <name>.csv, <name>-curves.csv


def gnuplot(script):
    if shutil.which("gnuplot"):
        subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.DEVNULL, check=False)


def quoted(text):
    return "'" + str(text).replace("'", "''") + "'"


def plot(name, panels, style="linespoints", logx=False, logy=False):
    """Curves side by side as runs/bench/<name>.svg, drawn from <name>-curves.csv. A panel is (title, x label, y label,
    {curve: [(x, y), ...]}); values that are not finite are omitted."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    file = os.path.join(OUT, name + "-curves.csv")
    script = [f"set terminal svg size {480 * columns},{360 * rows} background 'white'", f"set output '{OUT}/{name}.svg'",
              "set datafile separator ','", f"set multiplot layout {rows},{columns}", "set key top right",
              "set logscale x" if logx else "", "set logscale y" if logy else ""]
    raw = []
    for title, x, y, curves in panels:
        points = {who: [p for p in curve if all(map(math.isfinite, p))] for who, curve in curves.items()}
        points = {str(who): curve for who, curve in points.items() if curve}
        if not points:
            continue
        lines = []
        for who, curve in points.items():  # the first line of the file is its head
            lines.append(f"'{file}' every ::{len(raw) + 1}::{len(raw) + len(curve)} using 5:6 with {style} title {quoted(who)}")
            raw += [[title, x, y, who, *p] for p in curve]
        script += [f"set title {quoted(title)}", f"set xlabel {quoted(x)}", f"set ylabel {quoted(y)}", "plot " + ", ".join(lines)]
    write_csv(name + "-curves", ["panel", "x", "y", "curve", "x_value", "y_value"], raw)
    drawn.append(name)
    gnuplot("\n".join(script) + "\n")


def interleaved(times, cases):
    """Runs each case `times` times in turn (A B A B ...), because the machine is noisy; {name: [results]}."""
    results = {name: [] for name in cases}
    for _ in range(times):
        for name, case in cases.items():
            results[name].append(case())
    return results

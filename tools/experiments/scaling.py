"""What ranks send and hold as they grow (growth), and what clusters would take by that (model). Every rank is taken for a node, so
that all they tell each other is sent and counted: by Open MPI, messages and their bytes, those of collectives as well; by the
tables, what is pulled and pushed. A few cores are enough for this."""
import itertools, json, math, os, statistics, subprocess, time

from experiments.common import ENV, OUT, ROOT, TRIREME, generated_as, goal, interleaved, mpirun, plot, program, run, \
    shown, table, train, write_csv
from experiments.speedup import BANDWIDTH, LATENCY

SHORT, LONG, FEW = 4, 24, 8  # passes: what both have, starting and ending, is no part of a pass; few are enough for many ranks
TIMED = 124  # of which some take a tenth of a millisecond
COUNTS = ("messages", "of collectives", "of rank 0", "kB in messages", "kB of tables", "MB held")
DIRECT = 8  # ranks that merge by sending to each other: counts with more ranks apply to clusters
TERMS = {"1/P": lambda p: 1 / p, "1": lambda p: 1, "log P": lambda p: math.log2(p), "P": lambda p: p,
         f"log(P/{DIRECT})": lambda p: max(0, math.log2(p / DIRECT))}
FEW_RANKS, SENT, BYTES = ("1/P", "1", "log P", "P"), ("1", f"log(P/{DIRECT})", "P"), ("1", "1/P", f"log(P/{DIRECT})")
MANY_RANKS = dict(zip(COUNTS, (SENT, SENT, SENT, BYTES, BYTES, ("1", "P"))))
CLUSTER = (64, 512, 4096)
MESSAGE = 1e-6  # seconds of a processor that a message takes
NEAR = 0.1  # a formula that misses nothing by more needs no more terms
DELAYS = (4, 16)  # milliseconds
TIMES = 3
SIZE = 1000  # factor from the jobs below to the size of a cluster's jobs: rows grow, the model does not


def jobs():
    rows = generated_as("ctr", "growth.svm", rows=20_000, features=20_000, nonzeros=20)
    points = generated_as("dense", "growth.dense", rows=20_000, columns=32, clusters=32)
    ratings = generated_as("ratings", "growth.ratings", users=4_000, items=2_000, ratings=200_000)
    words = generated_as("docword", "growth.docword", documents=2_000, words=2_000, tokens=200_000, topics=20)
    events = generated_as("events", "growth.csv", rows=20_000)
    linear = {"data.train": rows, "model.type": "logistic", "solve.target_gap": 0}
    return {"linear dual": linear | {"solve.method": "dual"},
            "linear newton": linear | {"solve.method": "newton", "solve.target_gap": 1e-15},
            "linear sgd": linear | {"solve.method": "sgd", "solve.rate": 1, "solve.batch": 2_000, "sync.push": "4 per epoch"},
            "K-means": {"data.train": points, "model.type": "kmeans", "model.clusters": 32},
            "LDA": {"data.train": words, "model.type": "lda", "model.topics": 32},
            "MF sgd": {"data.train": ratings, "model.type": "mf", "model.rank": 16, "solve.method": "sgd"},
            "MF als": {"data.train": ratings, "model.type": "mf", "model.rank": 16, "solve.method": "als"},
            "trees": {"data.train": events, "data.label": "first", "model.type": "trees", "model.leaves": 15}}


# ---- counting ----

def of_a_pass(job, ranks):
    """Of a rank and pass: COUNTS."""
    made = []
    for passes in (SHORT, FEW if ranks > 16 else LONG):
        done = train(ranks, job | {"solve.epochs": passes, "report.every": 1000, "ranks.node_size": 1}, counts=ranks > 1)
        last = done.curve[-1]
        made.append([last["epoch"], done.messages / ranks, done.collective / ranks, done.first, done.bytes / ranks / 1e3,
                     (last["bytes_pulled"] + last["bytes_pushed"]) / ranks / 1e3])
    passes = max(1, made[1][0] - made[0][0])
    return [max(0, b - a) / passes for a, b in zip(*made)][1:] + [last["peak_rss_bytes"] / 1e6]


def solve(rows, wanted):
    """Least squares by the normal equations, or None."""
    n = len(rows[0])
    m = [[sum(r[i] * r[j] for r in rows) for j in range(n)] + [sum(r[i] * y for r, y in zip(rows, wanted))] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(m[k][i]))
        m[i], m[pivot] = m[pivot], m[i]
        if abs(m[i][i]) < 1e-12:
            return None
        for k in range(n):
            if k != i:
                factor = m[k][i] / m[i][i]
                m[k] = [a - factor * b for a, b in zip(m[k], m[i])]
    return [m[i][n] / m[i][i] for i in range(n)]


def fit(points, what):
    """The few terms, none below zero, that explain {ranks: value} of a count best, from 16 ranks on where enough of those were
    counted; their maximum relative error."""
    points, terms = {p: v for p, v in points.items() if v > 0}, FEW_RANKS
    many = {p: v for p, v in points.items() if p > DIRECT}
    if len(many) > 2:
        points, terms = many, MANY_RANKS[what]
    best, error = {}, 0 if not points else math.inf
    for n in range(1, min(len(terms), max(1, len(points) - 1)) + 1 if points else 0):
        for names in itertools.combinations(terms, n):
            factors = solve([[TERMS[t](p) / v for t in names] for p, v in points.items()], [1] * len(points))
            if not factors or min(factors) < 0:
                continue
            formula = dict(zip(names, factors))
            missed = max(abs(value(formula, p) / v - 1) for p, v in points.items())
            if missed < 0.7 * error:  # a term more has to be worth it
                best, error = formula, missed
        if error < NEAR:
            break
    return best, error


def value(formula, ranks):
    return sum(factor * TERMS[term](ranks) for term, factor in formula.items())


def written_out(formula):
    return " + ".join(shown(factor) + ("" if term == "1" else f" {term}") for term, factor in formula.items()) or "0"


def once(name, key, measure):
    """What measure() returns, as JSON has it. What this very program was measured to do before is not measured again."""
    file, program = os.path.join(OUT, name + ".json"), str(os.stat(TRIREME).st_mtime_ns)
    known = json.load(open(file)) if os.path.exists(file) else {}
    known = {program: known.get(program, {})}
    if key not in known[program]:
        known[program][key] = measure()
        with open(file, "w") as f:
            json.dump(known, f)
    return known[program][key]


def count(quick):
    """{job: {count: {ranks: value}}}."""
    found = {}
    for name, job in jobs().items():
        counts = found[name] = {what: {} for what in COUNTS}
        for ranks in (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16, 32, 64):
            counted = once("growth-counts", f"{name}, {ranks} ranks", lambda: of_a_pass(job, ranks))
            for what, number in zip(COUNTS, counted):
                counts[what][ranks] = number
            print("   ", name, ranks, *map(shown, counted), flush=True)
    return found


def formulas(found):
    """{job: {count: (formula, error)}}: of several ranks, since one sends nothing."""
    return {name: {what: fit({p: v for p, v in of.items() if p > 1}, what) for what, of in counts.items()} for name, counts in found.items()}


def growth(quick):
    found = count(quick)
    fitted = formulas(found)
    rows = [[name, what, *of.values(), written_out(fitted[name][what][0]), fitted[name][what][1]]
            for name, counts in found.items() for what, of in counts.items()]
    ranks = list(next(iter(found.values()))[COUNTS[0]])
    head = ["job", "of a rank and pass", *(f"{p} ranks" for p in ranks), "formula", "misses"]
    table("growth: bytes that a rank sends in a pass and holds; P is the number of ranks", head, rows)
    write_csv("growth", head, rows)
    plot("growth", [(what, "ranks", what, {name: sorted(counts[what].items()) for name, counts in found.items()}) for what in COUNTS],
         logx=True, logy=True)
    print("\ngoals")
    for name, of in fitted.items():
        formula = of["messages"][0]
        share = formula.get("P", 0) * CLUSTER[-1] / value(formula, CLUSTER[-1]) if formula else 0
        goal("growth messages", grows(formula), f"{name}, {shown(share)} of it by a term that grows with ranks")
        goal("growth formula", max(of["messages"][1], of["MB held"][1]), name)
        most = ranks[-1]
        goal("growth rank 0", found[name]["of rank 0"][most] / max(1, found[name]["messages"][most]), f"{name}, {most} ranks")
    goal("growth start", *start(quick))
    goal("growth idle", idle(), "the busiest of 2")


def grows(formula):
    return value(formula, CLUSTER[-1]) / value(formula, CLUSTER[0]) if formula else 0


def start(quick):
    """How much longer than a program that only starts and ends MPI a job of a row for each rank takes from its command to its end,
    and of how many ranks. (Not together with hostname: if 64 processes end at the same time, mpirun of Open MPI 4 sometimes hangs.)"""
    ranks, file = 8 if quick else CLUSTER[0], os.path.join(OUT, "one.svm")
    with open(file, "w") as f:
        f.write("1 1:1\n-1 1:2\n" * ranks)
    words = [TRIREME, "train", f"data.train={file}", "model.type=logistic", "solve.method=sgd", "solve.rate=1", "solve.epochs=1",
             f"output={os.path.join(OUT, 'one')}", "--fresh"]
    commands = {"MPI": [program("bench_empty")], "job": words}
    took = interleaved(TIMES, {name: lambda words=words: seconds_of(mpirun, ranks, *words) for name, words in commands.items()})
    seconds = {name: statistics.median(of) for name, of in took.items()}
    return seconds["job"] / seconds["MPI"], f"{ranks} ranks, " + ", ".join(f"{name} {shown(s)} s" for name, s in seconds.items())


def seconds_of(run, *words):
    begin = time.time()
    run(*words)
    return time.time() - begin


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def idle():
    """The share of a core that servers take which nobody asks for anything: a clock takes the worker three seconds."""
    rows = generated_as("ctr", "growth.svm", rows=20_000, features=20_000, nonzeros=20)
    job = ["data.train=" + rows, "model.type=logistic", "solve.method=sgd", "solve.rate=1", "solve.epochs=1000", "experiment.clock=3",
           "ranks.layout=dedicated", "ranks.servers=2", f"output={os.path.join(OUT, 'idle')}", "--fresh"]
    done = subprocess.Popen(["mpirun", "-q", "-n", "4", "--oversubscribe", TRIREME, "train", *job], env=ENV, cwd=ROOT,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(15)
    ranks = subprocess.run(["pgrep", "-P", str(done.pid)], capture_output=True, text=True).stdout.split()  # in their order: c s s w
    before = [processor_seconds(pid) for pid in ranks]
    time.sleep(10)
    ended = done.poll() is not None or len(ranks) < 4
    share = [] if ended else [(processor_seconds(pid) - b) / 10 for pid, b in zip(ranks, before)]
    done.terminate()
    done.wait()
    return None if ended else max(share[1:3])


# ---- steps ----

def over_links(job, hosts, *words, passes=(SHORT, LONG)):
    """Seconds of a pass with one worker on each of `hosts` hosts, with tools/hosts' options `words`, and the share of the
    communication that overlaps with computation."""
    before = [os.path.join(ROOT, "tools", "hosts"), "--hosts", str(hosts), "--slots", "1", *map(str, words)]
    short, long = (train(hosts, job | {"solve.epochs": n, "report.every": 1000}, before=before) for n in passes)
    first, last = short.curve[-1], long.curve[-1]
    passes = max(1, last["epoch"] - first["epoch"])
    return (last["training_time"] - first["training_time"]) / passes, long.summary.get("hidden") or 0


def steps():
    """{job: {hosts: how often in a pass somebody has to wait for a message to arrive}}: by how much longer a pass takes where each
    arrives later. So these waits are what no computing hides."""
    found = {}
    for name, job in jobs().items():
        found[name] = {hosts: once("model-steps", f"{name}, {hosts} hosts", lambda: waits(job, hosts)) for hosts in (2, 4)}
        print("   ", name, "steps", found[name], flush=True)
    return found


def waits(job, hosts):
    short, long = (statistics.median(over_links(job, hosts, "--delay", d)[0] for _ in range(TIMES)) for d in DELAYS)
    return max(0, long - short) / (DELAYS[1] - DELAYS[0]) * 1e3


# ---- clusters ----

def computing(job, ranks=1, passes=(SHORT, LONG)):
    """Seconds of computation in a pass for each of `ranks` ranks of this host, each a node of its own."""
    apart = {"ranks.node_size": 1, "report.every": 1000}
    first, last = (train(ranks, job | apart | {"solve.epochs": n}).curve[-1] for n in passes)
    return (last["compute_seconds"] - first["compute_seconds"]) / max(1, last["epoch"] - first["epoch"]) / ranks


def values(fitted, ranks):
    return {what: value(formula, ranks) for what, (formula, _) in fitted.items()}


def parts(of, computing, hidden, latency=LATENCY, bandwidth=BANDWIDTH):
    """Seconds of a pass by cause: computing, steps, and what of messages and bytes (of: how many) no computation hides. hidden: the
    share that is, where there is enough to compute. Bytes of tables are those of both ways, which do not meet."""
    way = {"messages": of["messages"] * MESSAGE, "bytes": max(of["kB in messages"], of["kB of tables"] / 2) * 1e3 / bandwidth}
    total = sum(way.values())
    seen = max((1 - hidden) * total, total - computing) / total if total > 0 else 0
    return {"computing": computing, "steps": of["steps"] * latency} | {cause: seconds * seen for cause, seconds in way.items()}


def check(found):
    """Rows of predicted and measured times on two hosts; by job, the largest error; by job, the share that overlaps. The time of a
    message is measured with bare MPI in the same minute, computation on one host; the rest is counted on two hosts."""
    rows, wrong, shares = [], {}, {}
    for rate, bandwidth in (("1gbit", 125e6), ("10gbit", 1.25e9)):
        for delay in (0, 1):
            words = ["--rate", rate, *(["--delay", delay] if delay else [])]
            for name, job in jobs().items():
                figures = run(os.path.join(ROOT, "tools", "hosts"), *words, "--slots", "1", "mpirun", "-q", "-n", 2, program("bench_table"),
                              64, 1, 500).split()
                latency = float(figures[7]) / 1e3 / 2  # there and back
                passes = SHORT, TIMED
                runs = [(*over_links(job, 2, *words, passes=passes), computing(job, 2, passes)) for _ in range(TIMES)]
                took, hidden, computed = (statistics.median(r[i] for r in runs) for i in range(3))
                predicted = sum(parts({what: counted[2] for what, counted in found[name].items()}, computed, hidden, latency, bandwidth).values())
                wrong[name] = max(wrong.get(name, 0), abs(predicted / took - 1))
                shares[name] = max(shares.get(name, 0), hidden)
                rows.append([name, rate, delay, 1e6 * latency, 1e3 * computed, hidden, 1e3 * predicted, 1e3 * took, predicted / took])
                print("   ", *map(shown, rows[-1]), flush=True)
    return rows, wrong, shares


def stops(fitted, one, hidden):
    """The number of ranks, a power of two, from which more than half of a pass is communication; and its largest part."""
    for power in range(1, 21):
        of = parts(values(fitted, 2 ** power), one / 2 ** power, hidden)
        if of["computing"] < sum(of.values()) / 2:
            return 2 ** power, max(("steps", "messages", "bytes"), key=of.get)
    return None, "-"


def predict(fitted, shares):
    rows = []
    for name, job in jobs().items():
        one = SIZE * statistics.median(computing(job) for _ in range(TIMES))
        of = [sum(parts(values(fitted[name], p), one / p, shares[name]).values()) for p in CLUSTER]
        rows.append([name, one, shares[name], *(1e3 * s for s in of), *(one / s for s in of), *stops(fitted[name], one, shares[name])])
    head = ["job", "one rank, s", "hidden", *(f"{p}, ms" for p in CLUSTER), *(f"speed-up {p}" for p in CLUSTER), "half lost at", "to"]
    table(f"model: a pass over {SIZE} times the rows, model as it is, on nodes of one rank with 100 Gbit/s and {1e6 * LATENCY:g} µs; "
          "ranks at which half of it is no computing any more; what rotates, in one group of all (ranks.group_size)", head, rows)
    write_csv("model", head, rows)


def model(quick):
    if run(os.path.join(ROOT, "tools", "hosts"), "echo", "yes", check=False).strip() != "yes":
        print("\ngoals")
        goal("model link", None, "network namespaces cannot be made here")
        return
    found, stepped = count(quick), steps()
    found = {name: counts | {"steps": stepped[name]} for name, counts in found.items()}
    fitted = formulas(found)
    checked, wrong, shares = check(found)
    predict(fitted, shares)
    head = ["job", "link", "ms later", "µs a message", "computing", "hidden", "predicted", "took", "ratio"]
    table("milliseconds of a pass of two workers on two hosts", head, checked)
    write_csv("model-link", head, checked)
    rows = [[name, *of.values(), written_out(fitted[name]["steps"][0]), fitted[name]["steps"][1]] for name, of in stepped.items()]
    head = ["job", *(f"{p} hosts" for p in next(iter(stepped.values()))), "formula", "misses"]
    table("steps of a pass: messages that must arrive one after the other", head, rows)
    write_csv("model-steps", head, rows)
    print("\ngoals")
    for name, worst in wrong.items():
        goal("model link", worst, f"{name}, the worst of all links")

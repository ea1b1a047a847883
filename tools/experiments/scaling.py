"""What ranks send and hold as they grow (growth), and what clusters would take by that (model). Every rank is taken for a node, so
that all they tell each other is sent and counted: by Open MPI, messages and their bytes, those of collectives as well; by the
tables, what is pulled and pushed. Few cores show this as well as many."""
import itertools, math, os

from experiments.common import ROOT, generated_as, goal, plot, program, run, shown, table, train, write_csv
from experiments.speedup import BANDWIDTH, LATENCY

SHORT, LONG = 4, 24  # passes: what both have, starting and ending, is no part of a pass
COUNTS = ("messages", "kB in messages", "kB of tables", "MB held")
TERMS = {"1/P": lambda p: 1 / p, "1": lambda p: 1, "log P": lambda p: math.log2(p), "P": lambda p: p}
CLUSTER = (64, 512, 4096)
SIZE = 1000  # a pass of the jobs below, so many times larger, is what clusters are asked for: rows grow, the model does not


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

def of_a_pass(job, ranks, **more):
    """Of a rank and pass: COUNTS, and seconds of computing of all ranks together."""
    made = []
    for passes in (SHORT, LONG):
        done = train(ranks, job | {"solve.epochs": passes, "report.every": 1000, "ranks.node_size": 1} | more, counts=ranks > 1)
        last = done.curve[-1]
        made.append([last["epoch"], done.messages, done.bytes, last["bytes_pulled"] + last["bytes_pushed"], last["compute_seconds"],
                     last["peak_rss_bytes"]])
    short, last = made
    passes = max(1, last[0] - short[0])
    share = [max(0, b - a) / (ranks * passes) for a, b in zip(short, last)]
    return [share[1], share[2] / 1e3, share[3] / 1e3, last[5] / 1e6], share[4] * ranks


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


def fit(points):
    """The few terms, none below zero, that explain {ranks: value} best; what they miss at most, as a share of the value."""
    points = {p: v for p, v in points.items() if v > 0}
    best, error = {}, 0 if not points else math.inf
    for n in range(1, min(len(TERMS), max(1, len(points) - 1)) + 1 if points else 0):
        for names in itertools.combinations(TERMS, n):
            factors = solve([[TERMS[t](p) / v for t in names] for p, v in points.items()], [1] * len(points))
            if not factors or min(factors) < 0:
                continue
            formula = dict(zip(names, factors))
            missed = max(abs(value(formula, p) / v - 1) for p, v in points.items())
            if missed < 0.8 * error:  # a term more has to be worth it
                best, error = formula, missed
    return best, error


def value(formula, ranks):
    return sum(factor * TERMS[term](ranks) for term, factor in formula.items())


def written_out(formula):
    return " + ".join(shown(factor) + ("" if term == "1" else f" {term}") for term, factor in formula.items()) or "0"


def count(quick):
    """{job: ({count: {ranks: value}}, seconds of computing of a pass on one rank)}"""
    found = {}
    for name, job in jobs().items():
        counts, one = {what: {} for what in COUNTS}, None
        for ranks in (1, 2, 4, 8) if quick else (1, 2, 4, 8, 16, 32, 64):
            each, computing = of_a_pass(job, ranks)
            one = computing if one is None else one
            for what, number in zip(COUNTS, each):
                counts[what][ranks] = number
            print("   ", name, ranks, *map(shown, each), flush=True)
        found[name] = counts, one
    return found


def formulas(found):
    """{job: {count: (formula, error)}}: of several ranks, since one sends nothing."""
    return {name: {what: fit({p: v for p, v in of.items() if p > 1}) for what, of in counts.items()} for name, (counts, _) in found.items()}


def growth(quick):
    found = count(quick)
    fitted = formulas(found)
    rows = [[name, what, *of.values(), written_out(fitted[name][what][0]), fitted[name][what][1]]
            for name, (counts, _) in found.items() for what, of in counts.items()]
    ranks = list(next(iter(found.values()))[0][COUNTS[0]])
    head = ["job", "of a rank and pass", *(f"{p} ranks" for p in ranks), "formula", "misses"]
    table("growth: what a rank sends in a pass and holds; P is the number of ranks", head, rows)
    write_csv("growth", head, rows)
    plot("growth", [(what, "ranks", what, {name: sorted(counts[what].items()) for name, (counts, _) in found.items()}) for what in COUNTS],
         logx=True, logy=True)
    print("\ngoals")
    for name, of in fitted.items():
        formula = of["messages"][0]
        share = formula.get("P", 0) * CLUSTER[-1] / value(formula, CLUSTER[-1]) if formula else 0
        steps = value(formula, CLUSTER[-1]) / value(formula, CLUSTER[0]) if formula else 0
        goal("growth messages", steps, f"{name}, {shown(share)} of it by a term that grows with ranks")


# ---- clusters ----

def parts(fitted, one, ranks, size=1.0, latency=LATENCY, bandwidth=BANDWIDTH):
    """Seconds of a pass by cause. size: of the rows, so many times those that were counted; the model stays."""
    of = {what: value(formula, ranks) for what, (formula, _) in fitted.items()}
    return {"computing": size * one / ranks, "messages": of["messages"] * latency,
            "bytes": (of["kB in messages"] + of["kB of tables"]) * 1e3 / bandwidth}


def over_link(job, before):
    """Seconds of a pass of two workers on two hosts, and what of it they computed."""
    short, last = (train(2, job | {"solve.epochs": passes, "report.every": 1000}, before=before).curve[-1] for passes in (SHORT, LONG))
    passes = max(1, last["epoch"] - short["epoch"])
    return (last["seconds"] - short["seconds"]) / passes, (last["compute_seconds"] - short["compute_seconds"]) / passes / 2


def check(fitted):
    """Rows of what was predicted of two hosts and what they took, and the worst error. What a message takes there, bare MPI says."""
    rows, wrong = [], 0.0
    for rate, bandwidth in (("1gbit", 125e6), ("10gbit", 1.25e9)):
        before = [os.path.join(ROOT, "tools", "hosts"), "--rate", rate, "--slots", "1"]
        figures = run(*before, "mpirun", "-q", "-n", 2, program("bench_table"), 64, 1, 500).split()
        latency = float(figures[7]) / 1e3 / 2  # there and back
        for name, job in jobs().items():
            took, computed = over_link(job, before)
            of = parts(fitted[name], 0, 2, latency=latency, bandwidth=bandwidth)
            predicted = computed + of["messages"] + of["bytes"]
            wrong = max(wrong, abs(predicted / took - 1))
            rows.append([name, rate, 1e6 * latency, 1e3 * computed, 1e3 * of["messages"], 1e3 * of["bytes"], 1e3 * predicted,
                         1e3 * took, predicted / took])
    return rows, wrong


def stops(fitted, one, size):
    """The ranks, a power of two, from which on more than half of a pass is no computing; and what it is then."""
    for power in range(1, 21):
        of = parts(fitted, one, 2 ** power, size)
        if of["computing"] < sum(of.values()) / 2:
            return 2 ** power, max(("messages", "bytes"), key=of.get)
    return None, "-"


def model(quick):
    found = count(quick)
    fitted, rows = formulas(found), []
    for name, (_, one) in found.items():
        of = [sum(parts(fitted[name], one, p, SIZE).values()) for p in CLUSTER]
        rows.append([name, SIZE * one, *(1e3 * s for s in of), *(SIZE * one / s for s in of), *stops(fitted[name], one, SIZE)])
    head = ["job", "one rank, s", *(f"{p}, ms" for p in CLUSTER), *(f"speed-up {p}" for p in CLUSTER), "half lost at", "to"]
    table(f"model: a pass over {SIZE} times the rows, model as it is, on nodes of one rank with 100 Gbit/s and {1e6 * LATENCY:g} µs; "
          "ranks at which half of it is no computing any more", head, rows)
    write_csv("model", head, rows)
    print("\ngoals")
    if run(os.path.join(ROOT, "tools", "hosts"), "echo", "yes", check=False).strip() != "yes":
        goal("model link", None, "network namespaces cannot be made here")
        return
    checked, wrong = check(fitted)
    head = ["job", "link", "µs a message", "computing", "messages", "bytes", "predicted", "took", "ratio"]
    table("milliseconds of a pass of two workers on two hosts", head, checked)
    write_csv("model-link", head, checked)
    goal("model link", wrong, "the worst of all jobs and links")

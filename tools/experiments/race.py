"""Several ways to train on the way to the same objective (E1 and E4)."""
import statistics

from experiments import lda
from experiments.common import (NEVER, count_rows, ctr_small, interleaved, optimum, plot, shown, table, train,
                                write_csv)

WORKERS, L2 = 8, 1e-4
RATES = [2.0 ** k for k in range(0, 8)]


def epochs_to(run, goal):
    row = run.first_below(goal)
    return row["epoch"] if row else NEVER


def race(name, jobs, rates, quick):
    """Trains the jobs {way: keys}, each at the best of the rates, in turn. Prints a table of the ways; the curves go to
    a CSV file and a plot."""
    goal = (1.05 if quick else 1.01) * optimum(ctr_small(), L2)
    shared = {"data.train": ctr_small(), "model.l2": L2, "solve.method": "sgd", "model.bias": "no", "solve.epochs": 10 if quick else 60,
              "solve.target": goal, "ranks.layout": "colocated", "sync.mode": "bsp", "sync.weight": "con"}

    def start(way, rate):
        return train(WORKERS, shared | jobs[way] | {"solve.rate": rate})

    rates = rates[len(rates) // 2:][:1] if quick else rates
    tried = {way: {rate: start(way, rate) for rate in rates} for way in jobs}
    best = {way: min(rates, key=lambda rate: (of[rate].seconds_to(goal), of[rate].settled()[0]))
            for way, of in tried.items()}
    if not quick:
        table(f"epochs to {goal:.5f} by rate", ["", *map(shown, rates)],
              [[way, *(epochs_to(run, goal) for run in of.values())] for way, of in tried.items()])
    runs = interleaved(1 if quick else 3, {way: lambda way=way: start(way, best[way]) for way in jobs})

    rows = []
    for way, of in runs.items():
        last, at_edge = of[0].curve[-1], not quick and best[way] in (rates[0], rates[-1])
        rows.append([way, shown(best[way]) + ("!" if at_edge else ""), epochs_to(of[0], goal),
                     statistics.median(run.seconds_to(goal) for run in of),
                     statistics.median(run.curve[-1]["seconds"] / run.curve[-1]["epoch"] for run in of),
                     last["clock"] / last["epoch"], last["bytes_pushed"] / last["epoch"] / 1e6])
    table(f"sparse logistic regression to {goal:.5f}, {WORKERS} workers (! = the edge of the rates)",
          ["", "rate", "epochs", "seconds", "seconds an epoch", "clocks an epoch", "MB pushed an epoch"], rows)
    write_csv(name, ["way", "run", "epoch", "seconds", "objective"],
              [[way, i, r["epoch"], r["seconds"], r["objective"]]
               for way, of in runs.items() for i, run in enumerate(of) for r in run.curve])
    plot(name, [(f"{WORKERS} workers", x, "objective", {way: [(r[key], r["objective"]) for r in of[0].curve]
                                                        for way, of in runs.items()})
                for x, key in (("epochs", "epoch"), ("seconds", "seconds"))])


# ---- E1: the same eight workers as groups of one, as one group whose members hold features instead of rows, and in
# between. A group pushes once an epoch, and its pushes are averaged with the others'; inside a group every mini-batch
# is exact. So more groups mean less synchronisation in an epoch, and more epochs. ----

SHAPES = {"data parallel, 8 groups of 1": 8, "hybrid, 4 groups of 2": 4, "hybrid, 2 groups of 4": 2,
          "model parallel, 1 group of 8": 1}
BATCH = 100  # rows, of a group


def e1(quick):
    jobs = {shape: {"solve.batch": BATCH * groups, "ranks.groups": groups,
                    "ranks.group_size": WORKERS // groups, "data.partition": "vertical", "sync.push": "1 per epoch",
                    "sync.global_rate": 1 / groups}
            for shape, groups in SHAPES.items()}
    race("E1", jobs, RATES, quick)
    print("  paper (kdd2010, 10 workers): model parallel needs fewest epochs, hybrid least time")
    lda.e1(quick)


# ---- E4: how often to push ----

ITERATIONS = 100  # mini-batches of an epoch


def e4(quick):
    batch = count_rows(ctr_small()) // ITERATIONS
    jobs = {often: {"solve.batch": batch, "sync.push": often}
            for often in ("1 per epoch", "10 per epoch", "auto", "every 1")}
    race("E4", jobs, RATES, quick)
    print("  paper (LDA): auto needs as few epochs as 10 per epoch, both fewer than 1 per epoch; auto needs least time")

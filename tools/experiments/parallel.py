"""E1: data, model and hybrid parallel (Angel, Fig. 10): the same eight workers as eight groups of one, as one group
whose members hold features instead of rows, and in between.

A group pushes once an epoch and its pushes are averaged with the others'; inside a group every mini-batch is exact. So
more groups mean less synchronisation in an epoch and more epochs. A group's mini-batch has as many rows in all of
them, and every one gets the best of the same rates."""
import statistics

from experiments.common import NEVER, count_rows, ctr_small, interleaved, optimum, plot, shown, table, train, write_csv

WORKERS, ROWS = 8, 100  # of a group's mini-batch
L2 = 1e-4
SHAPES = {"data parallel, 8 groups of 1": 8, "hybrid, 4 groups of 2": 4, "hybrid, 2 groups of 4": 2,
          "model parallel, 1 group of 8": 1}


def shape_job(path, groups, epochs):
    return {"data.train": path, "model.l2": L2, "solve.method": "sgd", "solve.epochs": epochs,
            "solve.batch": min(ROWS * groups, count_rows(path)), "ranks.layout": "colocated", "ranks.groups": groups,
            "ranks.group_size": WORKERS // groups, "data.partition": "vertical", "sync.push": "1 per epoch",
            "sync.mode": "bsp", "sync.weight": "con"}


def e1(quick):
    path, epochs = ctr_small(), 10 if quick else 60
    goal = (1.05 if quick else 1.01) * optimum(path, L2)
    rates = [2 ** k for k in ((2,) if quick else range(-1, 6))]
    best, tried = {}, []
    for shape, groups in SHAPES.items():
        job = shape_job(path, groups, epochs) | {"solve.target": goal}
        runs = {rate: train(WORKERS, job | {"solve.rate": rate * groups}) for rate in rates}
        best[shape] = min(rates, key=lambda rate: (epochs_to(runs[rate], goal), runs[rate].settled()[0]))
        tried.append([shape, *(epochs_to(runs[rate], goal) for rate in rates)])
    if len(rates) > 1:
        table("epochs to the goal by the rate of a group's mini-batch", ["", *map(shown, rates)], tried)

    cases = {shape: lambda groups=groups, shape=shape: train(WORKERS, shape_job(path, groups, epochs) | {
        "solve.target": goal, "solve.rate": best[shape] * groups}) for shape, groups in SHAPES.items()}
    runs = interleaved(1 if quick else 3, cases)
    rows = []
    for shape, of in runs.items():
        seconds = statistics.median(run.seconds_to(goal) for run in of)
        needed = epochs_to(of[0], goal)
        edge = "!" if best[shape] in (rates[0], rates[-1]) and len(rates) > 1 else ""
        rows.append([shape, shown(best[shape]) + edge, needed, seconds,
                     statistics.median(run.curve[-1]["time"] / run.curve[-1]["epoch"] for run in of)])
    table(f"sparse logistic regression to {goal:.5f}, {WORKERS} workers (paper, kdd2010: model parallel needs fewest "
          "epochs, hybrid least time)", ["", "rate", "epochs", "seconds", "seconds an epoch"], rows)
    write_csv("E1", ["shape", "run", "epoch", "time", "objective"],
              [[shape, i, r["epoch"], r["time"], r["objective"]]
               for shape, of in runs.items() for i, run in enumerate(of) for r in run.curve])
    plot("E1", [(f"{WORKERS} workers", x, "objective", {shape: [(r[key], r["objective"]) for r in of[0].curve]
                                                       for shape, of in runs.items()})
                for x, key in (("epochs", "epoch"), ("seconds", "time"))])


def epochs_to(run, goal):
    row = run.first_below(goal)
    return row["epoch"] if row else NEVER

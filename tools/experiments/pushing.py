"""E4: how often to push (Angel, Fig. 13): once an epoch, ten times, when enough has gathered, every mini-batch."""
import statistics

from experiments.common import NEVER, ctr_small, interleaved, optimum, plot, shown, table, train, write_csv

WORKERS, L2, ITERATIONS = 8, 1e-4, 100  # mini-batches of an epoch
OFTEN = ["1 per epoch", "10 per epoch", "auto", "every 1"]


def push_job(path, often, epochs, goal):
    return {"data.train": path, "model.l2": L2, "solve.method": "sgd", "solve.batch": 40_000 // ITERATIONS,
            "solve.epochs": epochs, "solve.target": goal, "ranks.layout": "colocated", "sync.push": often,
            "sync.weight": "con", "sync.mode": "bsp"}


def e4(quick):
    path, epochs = ctr_small(), 10 if quick else 60
    goal = (1.05 if quick else 1.01) * optimum(path, L2)
    rates = [2 ** k for k in ((5,) if quick else range(2, 9))]
    best = {}
    for often in OFTEN:
        runs = {rate: train(WORKERS, push_job(path, often, epochs, goal) | {"solve.rate": rate}) for rate in rates}
        best[often] = min(rates, key=lambda rate: (runs[rate].seconds_to(goal), runs[rate].settled()[0]))
    cases = {often: lambda often=often: train(WORKERS, push_job(path, often, epochs, goal) | {
        "solve.rate": best[often]}) for often in OFTEN}
    runs = interleaved(1 if quick else 3, cases)
    rows = []
    for often, of in runs.items():
        row = of[0].first_below(goal)
        last = of[0].curve[-1]
        edge = "!" if best[often] in (rates[0], rates[-1]) and len(rates) > 1 else ""
        rows.append([often, shown(best[often]) + edge, row["epoch"] if row else NEVER,
                     statistics.median(run.seconds_to(goal) for run in of), last["clock"] / last["epoch"],
                     last["bytes_pushed"] / last["epoch"] / 1e6])
    table(f"sparse logistic regression to {goal:.5f}, {WORKERS} workers, {ITERATIONS} mini-batches an epoch, best of "
          "the same rates (paper, LDA: auto needs as few epochs as 10 per epoch, and least time)",
          ["push", "rate", "epochs", "seconds", "pushes an epoch", "MB pushed an epoch"], rows)
    write_csv("E4", ["push", "run", "epoch", "time", "objective"],
              [[often, i, r["epoch"], r["time"], r["objective"]]
               for often, of in runs.items() for i, run in enumerate(of) for r in run.curve])
    plot("E4", [("pushes", x, "objective", {often: [(r[key], r["objective"]) for r in of[0].curve]
                                            for often, of in runs.items()})
                for x, key in (("epochs", "epoch"), ("seconds", "time"))])

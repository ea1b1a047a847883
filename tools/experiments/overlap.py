"""How much of pulling, pushing and merging passes while workers compute, over a link of 1 Gbit/s between two hosts."""
from experiments.common import generated_as, goal, interleaved, on_two_hosts, table, train, write_csv

WORKERS = 2
MODES = {"bsp": {"sync.mode": "bsp"}, "ssp": {"sync.mode": "ssp", "sync.staleness": 2}}


def jobs(quick):
    """As many rows for each parameter as data of such a kind have, or fewer, for every size: the computation for a byte
    follows from that. (Avazu's clicks have 600 non-zeros a feature, here 250; Netflix 5,600 ratings an item, MovieLens 20M 740,
    here 1,000; the New York Times of UCI 1,000 tokens a word, here 500.) Clusters of points overlap: of
    others the start finds each, and nothing is left to compute."""
    part = 4 if quick else 1
    clicks = generated_as("ctr", f"overlap-{part}.svm", rows=500_000 // part, features=100_000 // part, nonzeros=50)
    ratings = generated_as("ratings", f"overlap-by-{part}.ratings", users=50_000 // part, items=5_000 // part,
                           ratings=5_000_000 // part)
    words = generated_as("docword", f"overlap-by-{part}.docword", documents=20_000 // part, words=10_000 // part,
                         tokens=5_000_000 // part, topics=20)
    points = generated_as("dense", f"overlap-of-{part}.dense", rows=200_000 // part, columns=200, clusters=100, spread=0.5)
    return {"linear sgd": {"data.train": clicks, "model.type": "logistic", "solve.method": "sgd", "solve.rate": 1,
                           "solve.batch": 5_000 // part, "sync.push": "6 per epoch", "solve.epochs": 6},
            "K-means": {"data.train": points, "model.type": "kmeans", "model.clusters": 100, "solve.epochs": 10},
            "LDA": {"data.train": words, "model.type": "lda", "model.topics": 100, "solve.epochs": 10},
            "MF": {"data.train": ratings, "model.type": "mf", "model.rank": 32, "solve.epochs": 8}}


def measured(job):
    """Of a clock and worker: milliseconds of computing, and of all else from the first evaluation to the last; the share
    that summary.json says is hidden; MB; clocks; the objective."""
    run = train(WORKERS, job | {"ranks.layout": "colocated", "report.every": job["solve.epochs"] // 2}, host="h1:1,h2:1")
    first, last = run.curve[0], run.curve[-1]
    clocks = max(1, last["clock"] - first["clock"])
    computed = (last["compute_seconds"] - first["compute_seconds"]) / WORKERS / clocks
    moved = sum(last[key] - first[key] for key in ("bytes_pulled", "bytes_pushed")) / clocks
    other = (last["seconds"] - first["seconds"]) / clocks - computed
    return [1e3 * computed, 1e3 * other, run.summary["hidden"] or 0, moved / 1e6, last["clock"], last["objective"]]


def overlap(quick):
    if not on_two_hosts("overlap", quick):
        return
    rows, hidden = [], {}
    for name, job in jobs(quick).items():
        runs = interleaved(1 if quick else 3, {mode: lambda change=change: measured(job | change)
                                               for mode, change in MODES.items()})
        for mode, of in runs.items():
            best = min(of, key=lambda run: run[1])  # noise only adds
            hidden[name] = max(hidden.get(name, 0), best[2])
            rows.append([name, mode, *best])
    table(f"{WORKERS} workers on two hosts, 1 Gbit/s; milliseconds of a clock. hidden: of the time in which something was on "
          "its way, the share in which its worker computed (summary.json)",
          ["model", "mode", "computing", "other", "hidden", "MB", "clocks", "objective"], rows)
    write_csv("overlap", ["model", "mode", "compute_ms", "besides_ms", "hidden", "mb", "clocks", "objective"], rows)
    print("\ngoals")
    for name, share in hidden.items():
        goal("overlap hidden", share, f"{name}, the better mode")

"""Pulling rows one after the other, in batches, and ahead of the computation, over a link of 1 Gbit/s (E2)."""
import statistics

from experiments.common import (NEVER, generated_as, goal, interleaved, mpirun, on_two_hosts, plot, program, table, train,
                                write_csv)

ROWS = 17_770  # the movies of the data set that the paper measures with
RATINGS = 8  # of each, by one worker's users
NAIVE = {"table.ahead": 0, "table.row_bytes": 1}  # Angel, algorithm 1: a request for each row
WAYS = {"naive": NAIVE, "in batches": {"table.ahead": 0}, "pipelined": {}}
GOAL_RANK = 200


def words(change):
    return [f"{key}={value}" for key, value in change.items()]


# ---- rows alone ----

def pull(rank, ratings, clocks, change):
    """Milliseconds of a clock, of computing in it, and of pulling besides; kilobytes and messages."""
    figures = mpirun(3, program("bench_rows"), ROWS, rank, ratings, clocks, "ranks.layout=dedicated", "ranks.servers=1",
                     "ranks.groups=1", *words(change), host="h1:2,h2:1")  # scheduler and server on h1, worker on h2
    return [float(f) for f in figures.split()]


def least(runs, figure):
    """Of some runs: the machine is noisy, and noise only adds."""
    return min(run[figure] for run in runs)


def rows_alone(quick, ranks):
    clocks, times = (5, 1) if quick else (9, 3)
    lines, curves, hidden = [], {name: [] for name in WAYS}, {}
    for rank in ranks:
        cases = {name: lambda change=change: pull(rank, RATINGS, clocks, change) for name, change in WAYS.items()}
        runs = interleaved(times, cases | {"nothing computed": lambda: pull(rank, 0, clocks, {})})
        alone = least(runs["nothing computed"], 2)
        pulled = {name: least(runs[name], 2) for name in WAYS}
        clock = {name: least(runs[name], 0) for name in WAYS}
        hidden[rank] = 1 - pulled["pipelined"] / alone
        for name in WAYS:
            curves[name].append((rank, clock[name] / 1e3))
        lines.append([rank, 4 * ROWS * rank / 1e6, least(runs["pipelined"], 1), alone, *pulled.values(), *clock.values(),
                      clock["naive"] / clock["pipelined"], clock["in batches"] / clock["pipelined"], hidden[rank]])
    table(f"{ROWS} rows of a remote server, each computed on for {RATINGS} ratings as in ALS, 1 Gbit/s; milliseconds of "
          "a clock (paper, Fig. 12a: the gain grows with the rank; its figures stand in a plot only)",
          ["rank", "MB", "computing", "pulling alone", *(f"{name}: pull" for name in WAYS),
           *(f"{name}: all" for name in WAYS), "faster", "than batches", "hidden"], lines)
    write_csv("E2", ["rank", "mb", "compute_ms", "alone_ms", "naive_pull_ms", "batches_pull_ms", "pipelined_pull_ms",
                     "naive_ms", "batches_ms", "pipelined_ms", "faster", "faster_than_batches", "hidden"], lines)
    return curves, hidden, {line[0]: line[-3] for line in lines}


# ---- in training ----

def trained(path, rank, epochs, change):
    """Seconds of a sweep, and a worker's seconds of pulling in it: the first sweep is left out."""
    job = {"data.train": path, "data.format": "ratings", "model.type": "mf", "solve.method": "als", "model.rank": rank,
           "solve.epochs": epochs, "report.every": 1, "ranks.layout": "colocated"}
    curve = train(4, job | change, host="h1:2,h2:2").curve
    first, last = curve[0], curve[-1]
    sweeps = max(1, last["epoch"] - first["epoch"])
    return (last["seconds"] - first["seconds"]) / sweeps, (last["pull_seconds"] - first["pull_seconds"]) / sweeps / 4


def in_training(quick, ranks):
    path = generated_as("ratings", "e2.ratings", users=20_000, items=5_000, ratings=500_000 if quick else 2_000_000)
    ways = {name: change for name, change in WAYS.items() if name != "in batches"}
    lines = []
    for rank in ranks:
        runs = interleaved(1 if quick else 3, {name: lambda change=change: trained(path, rank, 3, change)
                                               for name, change in ways.items()})
        seconds = {name: min(run[0] for run in of) for name, of in runs.items()}
        pulled = {name: statistics.median(run[1] for run in of) for name, of in runs.items()}
        lines.append([rank, *seconds.values(), *pulled.values(), seconds["naive"] / seconds["pipelined"],
                      1 - pulled["pipelined"] / pulled["naive"] if pulled["naive"] else NEVER])
    table("alternating least squares, 4 workers on two hosts, 1 Gbit/s: seconds of a sweep",
          ["rank", *(f"{name}: all" for name in ways), *(f"{name}: pull" for name in ways), "faster", "less pulling"],
          lines)
    write_csv("E2-als", ["rank", "naive_s", "pipelined_s", "naive_pull_s", "pipelined_pull_s", "faster", "less_pulling"],
              lines)


def e2(quick):
    if not on_two_hosts("E2", quick):
        return
    ranks = (10, 50, GOAL_RANK) if quick else (10, 20, 50, 100, GOAL_RANK, 400)
    curves, hidden, gain = rows_alone(quick, ranks)
    in_training(quick, (10, 50) if quick else (10, 50, 100, GOAL_RANK))
    plot("E2", [(f"{ROWS} rows of a remote server, 1 Gbit/s", "rank", "seconds", curves)])
    print("\ngoals")
    goal(f"at least 80 % of pull time hidden at rank {GOAL_RANK} ({100 * hidden[GOAL_RANK]:.0f} %)",
         hidden[GOAL_RANK] >= 0.8)
    goal(f"pipelined is faster than naive at every rank (least {min(gain.values()):.1f})", min(gain.values()) > 1)

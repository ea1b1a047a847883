"""Pulling rows one after the other, in batches, and ahead of the computation, over a link of 1 Gbit/s (E2)."""
import statistics

from experiments.common import (NEVER, generated_as, goal, interleaved, mpirun, on_two_hosts, plot, program, table, train,
                                write_csv)

ROWS = 17_770  # the movies of the data set that the paper measures with
RATINGS = 8  # of each, by one worker's users
NAIVE = {"table.ahead": 0, "table.row_bytes": 1}  # Angel, algorithm 1: a request for each row
WAYS = {"naive": NAIVE, "in batches": {"table.ahead": 0}, "pipelined": {}}
GOAL_RANK = 200
CLOCK, PULL, ALONE = 4, 6, 7  # the least of each in a run: the machine is noisy, and noise only adds


def words(change):
    return [f"{key}={value}" for key, value in change.items()]


# ---- rows alone ----

def pull(rank, ratings, clocks, change):
    """What bench_rows prints: milliseconds of a clock, of computing in it, of pulling besides and of computing alone,
    medians, then the least; kilobytes and messages."""
    figures = mpirun(3, program("bench_rows"), ROWS, rank, ratings, clocks, "ranks.layout=dedicated", "ranks.servers=1",
                     "ranks.groups=1", *words(change), host="h1:2,h2:1")  # scheduler and server on h1, worker on h2
    return [float(f) for f in figures.split()]


def least(runs, figure):
    return min(run[figure] for run in runs)


def rows_alone(quick, ranks):
    """A share of hidden time is 1 - visible / pulling with nothing computed. Visible is all that a clock takes longer
    than computing on the same rows in own memory: waiting, the processor time of receiving, and what serving ranks and
    the kernel take from the worker's core. Of that, `pull` is what passes outside the function that computes."""
    clocks, times = (7, 1) if quick else (9, 3)
    lines, curves, hidden = [], {name: [] for name in WAYS}, {}
    for rank in ranks:
        cases = {name: lambda change=change: pull(rank, RATINGS, clocks, change) for name, change in WAYS.items()}
        runs = interleaved(times, cases | {"nothing computed": lambda: pull(rank, 0, clocks, {})})
        alone, computing = least(runs["nothing computed"], PULL), least(runs["pipelined"], ALONE)
        pulled = {name: least(runs[name], PULL) for name in WAYS}
        clock = {name: least(runs[name], CLOCK) for name in WAYS}
        visible = clock["pipelined"] - computing
        hidden[rank] = 1 - visible / alone, 1 - pulled["pipelined"] / alone
        for name in WAYS:
            curves[name].append((rank, clock[name] / 1e3))
        lines.append([rank, 4 * ROWS * rank / 1e6, computing, alone, *pulled.values(), *clock.values(), visible,
                      clock["naive"] / clock["pipelined"], clock["in batches"] / clock["pipelined"], *hidden[rank]])
    table(f"{ROWS} rows of a remote server, each computed on for {RATINGS} ratings as in ALS, 1 Gbit/s; milliseconds of "
          "a clock (paper, Fig. 12a: the gain grows with the rank; its figures stand in a plot only). visible = "
          "pipelined: all - computing (without pulling); hidden = 1 - visible / pulling alone; of pull: 1 - pipelined: "
          "pull / pulling alone, which leaves out what pulling slows computing down. All ranks share the machine's cores",
          ["rank", "MB", "computing", "pulling alone", *(f"{name}: pull" for name in WAYS),
           *(f"{name}: all" for name in WAYS), "visible", "faster", "than batches", "hidden", "of pull"], lines)
    write_csv("E2", ["rank", "mb", "compute_ms", "alone_ms", "naive_pull_ms", "batches_pull_ms", "pipelined_pull_ms",
                     "naive_ms", "batches_ms", "pipelined_ms", "visible_ms", "faster", "faster_than_batches", "hidden",
                     "hidden_of_pull"], lines)
    return curves, hidden, {line[0]: line[-4] for line in lines}


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
    whole, of_pull = hidden[GOAL_RANK]
    goal("E2 hidden", whole, f"rank {GOAL_RANK}; {of_pull:.2f} without what pulling slows computing down")
    goal("E2 gain", min(gain.values()))

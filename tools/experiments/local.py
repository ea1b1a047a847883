"""A local model on the node whose workers train, against going through the servers in every iteration (E12)."""
import statistics

from experiments.common import NEVER, goal, interleaved, mpirun, on_two_hosts, plot, program, table, write_csv

ROWS, NONZEROS = 100, 50  # of each worker: an iteration goes through them once
WAYS = {"through servers": ["servers"], "on demand": ["local", "local.model=demand"],
        "integral": ["local", "local.model=integral"]}
RACES = ("chunk", "atomic", "none")
TAKE, FIRST, ITERATION, GIVE, KILOBYTES, LOSS = range(6)
SHOWN = (1, 10, 100, 1000)


def descend(ranks, workers, keys, iterations, way, *settings, host=None):
    """What bench_replica prints."""
    mode, *change = way
    figures = mpirun(ranks, program("bench_replica"), mode, keys, ROWS, NONZEROS, iterations,
                     f"ranks.group_size={workers}", *change, *settings, host=host)
    return [float(f) for f in figures.split()]


def medians(runs):
    return [statistics.median(run[f] for run in runs) for f in range(LOSS + 1)]


def after(figures, iterations):
    """Milliseconds until the updates of `iterations` iterations are in the table."""
    return figures[TAKE] + figures[FIRST] + (iterations - 1) * figures[ITERATION] + figures[GIVE]


def three_ways(quick):
    keys, iterations = (4_000_000, 60) if quick else (10_000_000, 300)
    runs = interleaved(3 if quick else 7, {name: lambda way=way: descend(4, 2, keys, iterations, way, host="h1:2,h2:2")
                                           for name, way in WAYS.items()})
    found = {name: medians(of) for name, of in runs.items()}
    moved = {name: f[KILOBYTES] / 1e3 for name, f in found.items()}
    lines = [[name, f[TAKE], f[FIRST], f[ITERATION], f[GIVE], *(after(f, i) for i in SHOWN), moved[name],
              0 if name != "through servers" else 1e3 * moved[name] / iterations, f[LOSS]] for name, f in found.items()]
    # what must pass the link before the first iteration: the half of the values that lies on the other host
    limit = 4 * keys / 2 / 125e6 * 1e3
    table(f"logistic regression by gradient descent, 2 workers of one host, {ROWS} rows of {NONZEROS} each; {keys} f32 on "
          f"both hosts, 1 Gbit/s; milliseconds, medians (paper, Fig. 10: a plot only). Limit of taking all: {limit:.0f} ms",
          ["", "take", "first", "iteration", "give", *(f"after {i}" for i in SHOWN), "MB moved",
           "kB an iteration", "loss"], lines)
    write_csv("E12", ["way", "take_ms", "first_ms", "iteration_ms", "give_ms", *(f"after_{i}_ms" for i in SHOWN),
                      "moved_mb", "iteration_kb", "loss"], lines)
    plot("E12", [("2 workers on one of two hosts, 1 Gbit/s", "iterations", "seconds",
                  {name: [(i, after(f, i) / 1e3) for i in range(0, 301, 20) if i] for name, f in found.items()})])
    return found


def races(quick):
    """One host, where no more than the changing itself takes time."""
    keys, iterations = 1_000_000, 100 if quick else 1000
    cases = {(race, workers): lambda race=race, workers=workers: descend(
        workers, workers, keys, iterations, WAYS["integral"], f"sync.race={race}", host=f"h1:{workers}")
             for race in RACES for workers in (1, 2)}
    runs = interleaved(3 if quick else 7, cases)
    found = {case: medians(of) for case, of in runs.items()}
    lines = [[race, *(1e3 * found[race, w][ITERATION] for w in (1, 2)),
              *(1e6 * found[race, w][ITERATION] / ROWS / NONZEROS for w in (1, 2)), found[race, 2][LOSS]]
             for race in RACES]
    table("how workers of a node change one model; medians", ["sync.race", "1 worker: µs an iteration", "2 workers",
                                                              "1 worker: ns a non-zero", "2 workers", "loss"], lines)
    write_csv("E12-race", ["race", "us_1", "us_2", "ns_1", "ns_2", "loss"], lines)


def e12(quick):
    if not on_two_hosts("E12", quick):
        return
    found = three_ways(quick)
    races(quick)
    servers = found["through servers"]
    print("\ngoals")
    for name in ("on demand", "integral"):
        faster = servers[ITERATION] / found[name][ITERATION]
        goal("E12 faster", faster, name)
    pays = next((i for i in range(1, 10_001) if after(found["integral"], i) < after(servers, i)), None)
    goal("E12 pays", pays or NEVER)

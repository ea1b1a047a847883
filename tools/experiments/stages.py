"""Degrees that are found and degrees that suit the work (FlexPS, sections 7.1 and 7.2), and variance reduction. On few cores
16 workers are shown by sleeping: bench_degree runs real stages, tables and searches, but computation and
communication between nodes are sleeps whose length a formula gives."""
import math, statistics

from experiments.common import (generated, goal, interleaved, mpirun, plot, program, public_data, table, train,
                                write_csv)

WORKERS = 16


# ---- running ----

def simulate(turns, costs, stages, group_size=WORKERS):
    """costs: near, far, each; stages: (name, clocks, work, place, degree). What each stage took, and all of it."""
    words = [",".join(map(str, stage)) for stage in stages]
    text = mpirun(WORKERS, program("bench_degree"), turns, *costs, *words, f"ranks.group_size={group_size}")
    found = {}
    for line in text.splitlines():
        name, *figures = line.split(maxsplit=5)
        if name == "wall":
            found[name] = float(figures[0])
        else:
            found[name] = {"seconds": float(figures[0]), "workers": float(figures[1]), "clocks": int(figures[2]),
                           "clock": float(figures[3]), "degree": figures[4] if len(figures) > 4 else ""}
    return found


def worker_time(found):
    return sum(stage["workers"] for name, stage in found.items() if name != "wall")


def train_stages(ranks, job):
    """Seconds of all stages, worker seconds, and the degrees tried; without evaluation."""
    stages = {s["name"]: s for s in train(ranks, job).summary["stages"] if s["name"] != "evaluate"}
    return {"wall": sum(s["seconds"] for s in stages.values()), "workers": sum(s["worker_seconds"] for s in stages.values()),
            "search": {name: s["search"] for name, s in stages.items()}}


def medians(runs, *names):
    return [statistics.median(r[name] for r in runs) for name in names]


# ---- E9 ----

def sweep(costs, work, degrees, clocks):
    """Median seconds of a clock by degree."""
    found = simulate(1, costs, [(f"d{p}", clocks, work, "one", p) for p in degrees])
    return {p: found[f"d{p}"]["clock"] for p in degrees}


def degree_case(quick, work, each):
    """Clocks that take work / p + each p milliseconds on p workers: all fixed degrees, then the best of them and auto in
    turns."""
    clocks, costs = 200 if quick else 500, (each, 0, 0)
    fixed = sweep(costs, work, range(1, WORKERS + 1), 8)
    near = [p for p, t in fixed.items() if t <= 1.15 * min(fixed.values())]
    again = [sweep(costs, work, near, 20) for _ in range(1 if quick else 3)]  # few clocks cannot tell neighbours apart
    fixed |= {p: min(found[p] for found in again) for p in near}
    fixed = {p: t * clocks for p, t in fixed.items()}
    best = min(near, key=fixed.get)
    run = lambda degree: simulate(1, costs, [("s", clocks, work, "one", degree)])
    results = interleaved(1 if quick else 5, {"best": lambda: run(best), "auto": lambda: run("auto")})
    time = {who: statistics.median(r["wall"] for r in runs) for who, runs in results.items()}
    used = {who: statistics.median(worker_time(r) for r in runs) for who, runs in results.items()}
    # of clocks alone, as the sweep has them
    time["random"] = time["best"] * statistics.mean(fixed.values()) / fixed[best]
    used["random"] = used["best"] * statistics.mean(p * t for p, t in fixed.items()) / (best * fixed[best])
    table(f"{clocks} clocks of {work}/p + {each} p ms (slept) on p of {WORKERS} workers", ["degree", "seconds", "worker s"],
          [[f"best fixed: {best}", time["best"], used["best"]], ["auto", time["auto"], used["auto"]],
           ["random (mean of all)", time["random"], used["random"]]])
    print("  " + results["auto"][-1]["s"]["degree"])
    return {"case": f"{work}/p + {each} p", "best": best, "time": time, "used": used,
            "fixed": fixed, "degree": results["auto"][-1]["s"]["degree"]}


def here(quick):
    """SVM by mini-batches of a tenth of the rows, on this machine's cores."""
    rows = 100_000 if quick else 300_000
    job = {"data.train": generated(f"ctr-{rows}-2000.svm", rows, 2_000, 40), "model.type": "svm", "solve.method": "growing",
           "solve.phases": 1, "solve.batch": rows // 10, "solve.epochs": 60, "report.every": 60}
    run = lambda degree: train_stages(4, job | {"stages.phase-1.parallelism": degree})
    results = interleaved(2 if quick else 5, {d: (lambda d=d: run(d)) for d in (1, 2, 3, 4, "auto")})
    found = {d: medians(runs, "wall", "workers") for d, runs in results.items()}
    degree = results["auto"][-1]["search"]["phase-1"]
    table("SVM, 600 mini-batches of a tenth of the rows, 4 ranks on this machine", ["degree", "seconds", "worker s"],
          [[str(d), *figures] for d, figures in found.items()])
    print("  " + degree)
    best = min((1, 2, 3, 4), key=lambda d: found[d][0])
    random = [statistics.mean(found[d][i] for d in (1, 2, 3, 4)) for i in (0, 1)]
    return {"case": "this machine", "best": best, "degree": degree, "fixed": {d: found[d][0] for d in (1, 2, 3, 4)},
            "time": {"best": found[best][0], "auto": found["auto"][0], "random": random[0]},
            "used": {"best": found[best][1], "auto": found["auto"][1], "random": random[1]}}


def e9(quick):
    cases = [here(quick)] + [degree_case(quick, work, each) for work, each in ([(64, 1)] if quick else [(16, 1), (64, 1), (200, 1)])]
    write_csv("E9", ["case", "degree", "seconds", "worker_seconds"],
              [[c["case"], who if who != "best" else f"best {c['best']}", c["time"][who], c["used"][who]]
               for c in cases for who in ("best", "auto", "random")])
    plot("E9", [(c["case"], "degree", "seconds", {"fixed": list(c["fixed"].items()),
                 "auto": [(d, c["time"]["auto"]) for d in (min(c["fixed"]), max(c["fixed"]))]}) for c in cases])
    print("\ngoals (FlexPS: auto 11 to 12 % longer than the best fixed degree, worker time 10 % more; random 45 % slower)")
    for c in cases:
        time, used = c["time"]["auto"] / c["time"]["best"], c["used"]["auto"] / c["used"]["best"]
        goal("E9 time", time, f"{c['case']}: best {c['best']}, random {c['time']['random'] / c['time']['best']:.2f}")
        goal("E9 worker time", used, f"{c['case']}: random {c['used']['random'] / c['used']['best']:.2f}")


# ---- E10 ----

NODE = 4  # workers of one, simulated
# a clock costs near · p in a node, far + each · p across nodes, as if 75, 300 and 1200 kB moved each way at 1 Gbit/s
NETWORKS = {"fast": (0.2, 1.2, 0.2), "middle": (0.2, 4.8, 0.2), "slow": (0.2, 19.2, 0.2)}
PLACES = [("one", p) for p in range(1, NODE + 1)] + [("all", p) for p in range(NODE, WORKERS + 1, NODE)]
WHOLE = 3200  # milliseconds of computing of one pass over the data


def tasks(quick):
    """Turns, and stages as (name, clocks, work): an epoch of SVRG is the full gradient, and two passes of batches of n/100;
    growing batches are n/1000, n/100 and n/10 (here ten times that, and a tenth of the clocks)."""
    part = 5 if quick else 1
    return {"SVRG": (2 if quick else 10, [("full", 1, WHOLE), ("inner", 200, WHOLE / 100)]),
            "growing batches": (1, [("phase-1", 1000 // part, WHOLE / 100), ("phase-2", 100 // part, WHOLE / 10),
                                    ("phase-3", 10 // part, WHOLE)])}


def per_clock(costs, stages):
    """Median seconds of a clock of each stage at each place and degree, from a few clocks."""
    names = {f"{s[0]}/{place}/{p}": (s, place, p) for s in stages for place, p in PLACES}
    found = {}
    for stage in stages:
        rows = [(key, max(3, min(16, int(600 / stage[2]))), stage[2], place, p)
                for key, (s, place, p) in names.items() if s is stage and stage[2] / p < 1700]
        took = simulate(1, costs, rows, NODE)
        found[stage[0]] = {names[key][1:]: t["clock"] for key, t in took.items() if key != "wall"}
    return found


def by_formula(costs, stages):
    """The same, as it is meant to be."""
    near, far, each = costs
    return {s[0]: {(place, p): (s[2] / p + (near * p if place == "one" else far + each * p)) / 1000 for place, p in PLACES}
            for s in stages}


def formula_row(name, network, turns, stages):
    """What other networks would make of it: computed, not run."""
    clock = by_formula(NETWORKS[network], stages)
    same = fixed_best(turns, stages, clock)
    own = [min(clock[s[0]], key=clock[s[0]].get) for s in stages]
    total = lambda ats, worth: sum(turns * s[1] * clock[s[0]][at] * worth(at) for s, at in zip(stages, ats))
    time = [total(ats, lambda at: 1) for ats in (own, [same] * len(stages))]
    used = [total(ats, lambda at: at[1]) for ats in (own, [same] * len(stages))]
    return [f"{name}, {network}", str(same[1]), ", ".join(str(p) for _, p in own), time[0] / time[1], used[0] / used[1]]


def fixed_best(turns, stages, clock):
    """The one place and degree for all stages in which the task ends first."""
    possible = [at for at in PLACES if all(at in clock[s[0]] for s in stages)]
    return min(possible, key=lambda at: sum(turns * s[1] * clock[s[0]][at] for s in stages))


def flexible(quick, name, turns, stages):
    network = "middle"
    costs = NETWORKS[network]
    clock = per_clock(costs, stages)
    same = fixed_best(turns, stages, clock)
    own = {s[0]: min(clock[s[0]], key=clock[s[0]].get) for s in stages}
    ways = {"fixed": {s[0]: same for s in stages}, "own": own,
            "auto": {s: (place, "auto") for s, (place, _) in own.items()}}
    run = lambda way: simulate(turns, costs, [(*s, *way[s[0]]) for s in stages], NODE)
    results = interleaved(1 if quick else 3, {who: (lambda way=way: run(way)) for who, way in ways.items()})
    rows = []
    for who, runs in results.items():
        degrees = ", ".join(f"{s} {d if place == 'all' else f'{d} of a node'}" for s, (place, d) in ways[who].items())
        rows.append([who, statistics.median(r["wall"] for r in runs), statistics.median(map(worker_time, runs)), degrees])
    table(f"{name}, {network} network: {WORKERS} workers on 4 nodes, simulated: a clock takes work / p + {costs[0]} p ms in a "
          f"node, work / p + {costs[1]} + {costs[2]} p across nodes", ["degrees", "seconds", "worker s", ""], rows)
    for stage in stages:
        print(f"  {stage[0]}: {results['auto'][-1][stage[0]]['degree']}")
    return {row[0]: row[1:3] for row in rows}, rows


def svrg_here(quick):
    """SVRG as the engine runs it: the inner stage on a model that the workers of the node share."""
    rows = 100_000 if quick else 300_000
    job = {"data.train": generated(f"ctr-{rows}-2000.svm", rows, 2_000, 40), "model.type": "logistic", "model.dtype": "f64",
           "solve.method": "svrg", "solve.epochs": 9 if quick else 30, "report.every": 1}
    ways = {"both 1": (1, 1), "both 2": (2, 2), "both 4": (4, 4), "2 and 1": (2, 1), "auto": ("auto", "auto")}
    run = lambda way: train_stages(4, job | {"stages.full.parallelism": way[0], "stages.inner.parallelism": way[1]})
    results = interleaved(1 if quick else 3, {who: (lambda way=way: run(way)) for who, way in ways.items()})
    rows = [[who, *medians(runs, "wall", "workers")] for who, runs in results.items()]
    table("SVRG, 4 ranks on this machine, nothing simulated", ["degrees of full and inner", "seconds", "worker s"], rows)
    return rows


def e10(quick):
    rows = [["SVRG", "this machine", *row] for row in svrg_here(quick)]
    goals, computed = [], []
    for name, (turns, stages) in tasks(quick).items():
        found, shown = flexible(quick, name, turns, stages)
        rows += [[name, "middle", *row[:3]] for row in shown]
        goals.append((name, found))
        computed += [formula_row(name, network, turns, stages) for network in NETWORKS]
    table("by the formula alone, on a fast, a middle and a slow network: where one node is best for all, or all nodes are for "
          "every stage, there is less to gain", ["", "best fixed", "own", "time", "worker time"], computed)
    write_csv("E10", ["task", "network", "degrees", "seconds", "worker_seconds"], rows)
    print("\ngoals (FlexPS: a quarter of the worker time, 34 to 57 % less time); computing and networks are simulated by sleeping")
    for name, found in goals:
        for who in ("own", "auto"):
            time, used = (found[who][i] / found["fixed"][i] for i in (0, 1))
            goal("E10 worker time", used, f"{name}, {who} degrees")
            goal("E10 time", time, f"{name}, {who} degrees")


# ---- variance reduction ----

def suboptimality(run, least):
    return [(row["epoch"], math.log10(max(row["objective"] - least, 1e-17))) for row in run.curve]


def straight(curve):
    """Slope of log10 F - F* against passes down to 1e-11, and the share of its variance that a line explains."""
    points = [(x, y) for x, y in curve if y > -11]
    if len(points) < 3:
        return math.nan, math.nan
    line = statistics.linear_regression(*zip(*points))
    return line.slope, statistics.correlation(*zip(*points)) ** 2


def vr(quick):
    data = public_data("a9a/a9a.gz")
    if not data:
        return
    job = {"data.train": data, "model.type": "logistic", "model.l2": "1/n", "model.dtype": "f64"}
    least = min(train(1, job | {"solve.method": "katyusha", "solve.epochs": e}).summary["objective"] for e in (450, 600))
    epochs = 15 if quick else 40
    curves = {}
    for rate, decay in ((0.3, 0), (1, 0.02), (1, 0.2)):
        run = train(1, job | {"solve.method": "sgd", "solve.rate": rate, "solve.decay": decay, "solve.epochs": 3 * epochs})
        curves[f"sgd {rate}, decay {decay}"] = suboptimality(run, least)
    for method in ("svrg", "svrg++", "katyusha"):
        curves[method] = suboptimality(train(1, job | {"solve.method": method, "solve.epochs": 3 * epochs}), least)
    sgd = min((c for c in curves if c.startswith("sgd")), key=lambda c: curves[c][-1][1])
    curves = {who: curve for who, curve in curves.items() if who == sgd or not who.startswith("sgd")}
    marks = (6, 15, 30, 45, 60, 90, 120)
    at = lambda curve, x: next((y for a, y in reversed(curve) if a <= x + 1.5), None) if curve[-1][0] >= x - 1.5 else None
    table(f"log10(F - F*) on a9a, f64, F* = {least:.13f}, by passes over the data", ["", *map(str, marks), "slope", "R2"],
          [[who, *(at(c, x) for x in marks), *straight(c)] for who, c in curves.items()])
    write_csv("vr", ["method", "passes", "log10_suboptimality"], [[who, *p] for who, c in curves.items() for p in c])
    plot("vr", [("a9a, logistic, lambda = 1/n", "passes over the data", "log10(F - F*)", curves)])
    print("\ngoals")
    lowest = {who: min(y for _, y in c) for who, c in curves.items()}
    goal("vr svrg", lowest["svrg"])
    for who in ("svrg", "katyusha"):
        slope, fit = straight(curves[who])
        goal("vr line", fit if slope < 0 else 0.0, f"{who}, a tenth every {-1 / slope:.1f} passes")
    goal("vr descent", lowest[sgd], sgd)

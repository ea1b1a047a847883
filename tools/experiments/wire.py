"""Over a link of 1 Gbit/s between two hosts (tools/hosts): what the engine sends, counted by the network itself."""
import re, statistics

from experiments.common import (ctr_data, goal, has_key, interleaved, mpirun, on_two_hosts, optimum, plot, program,
                                table, train, write_csv)

WORKERS = 8
LINK = 125e6  # bytes a second, either way


def wire_bytes():
    """What this host has received and sent so far, headers of the network and all."""
    with open("/proc/self/net/dev") as f:
        words = next(line for line in f if "eth0:" in line).split(":")[1].split()
    return int(words[0]), int(words[8])


def over_wire(work):
    """The result of some work, and the bytes this host received and sent meanwhile."""
    received, sent = wire_bytes()
    result = work()
    now_received, now_sent = wire_bytes()
    return result, now_received - received, now_sent - sent


# ---- wire ----

TURNS = 10  # naive: updates an epoch
NAIVE = {"table.share_pulls": "no", "table.encoding": "dense", "table.precision": "full", "table.filter": "none",
         "table.push": "message", "ranks.groups": WORKERS, "ranks.group_size": 1, "solve.batch": None}
BUFFER = {"solve.batch": 0}  # rows per turn: chosen by the engine, so that an update is worth sending
MEASURES = {"encoding": {"table.encoding": "auto"}, "f16": {"table.precision": "f16"},
            "8-bit updates": {"table.precision": "f8"},
            "encoding and filter": {"table.encoding": "auto", "table.filter": "threshold", "table.filter_limit": 5e-3},
            "node pull": {"table.share_pulls": "yes"},
            "group merge": {"ranks.groups": 2, "ranks.group_size": 4}}
SAME = "update buffer"
CASES = {"naive": {}, SAME: BUFFER, **{f"{name} too": BUFFER | measure for name, measure in MEASURES.items()},
         "all together": BUFFER | {k: v for measure in MEASURES.values() for k, v in measure.items()},
         "as the engine chooses": {key: None for key in NAIVE}}


def case_job(path, target, change, rows):
    job = {"data.train": path, "model.l2": "1/n", "solve.epochs": 60, "solve.target": target,
           "ranks.layout": "colocated", **NAIVE, "solve.batch": rows // TURNS, **change}
    return {key: value for key, value in job.items() if value is not None}


def trained(run):
    """The last evaluation of training: what follows, a stage for the bias, counts clocks of its own."""
    return max(run.curve, key=lambda row: row["clock"])


def wire(quick):
    if not on_two_hosts("wire", quick):
        return
    path, rows_of_data = ctr_data(quick), 50_000 if quick else 500_000
    target = 1.001 * optimum(path, "1/n")
    cases = {name: lambda change=change: over_wire(lambda: train(WORKERS, case_job(path, target, change, rows_of_data)))
             for name, change in CASES.items()}
    runs = interleaved(1 if quick else 3, cases)
    # what starting and one clock take, so that the clocks after it can be told apart
    begun = {name: over_wire(lambda change=change: train(WORKERS, case_job(path, target, change, rows_of_data) | {"solve.epochs": 1}))
             for name, change in CASES.items()}
    rows, figures = [], {}
    for name, of in runs.items():
        seconds = statistics.median(run.seconds_to(target) for run, _, _ in of)
        moved = statistics.median(received + sent for _, received, sent in of)
        last = trained(of[0][0])
        figures[name] = seconds, moved, last["clock"]
        one, received, sent = begun[name]
        later = (moved - received - sent) / max(1, last["clock"] - trained(one)["clock"])
        rows.append([name, last["epoch"], last["clock"], later / 1e6, moved / 1e6, figures["naive"][1] / moved, seconds,
                     figures["naive"][0] / seconds])
    table(f"logistic regression on {path.rsplit('/', 1)[-1]} to {target:.6f} (1.001 x the best objective), {WORKERS} "
          "workers on two hosts, 1 Gbit/s; bytes both ways as the network counts, starting included",
          ["", "epochs", "clocks", "MB a clock", "MB in all", "fewer", "seconds", "faster"], rows)
    write_csv("wire", ["case", "run", "seconds", "received", "sent"],
              [[name, i, run.seconds_to(target), received, sent]
               for name, of in runs.items() for i, (run, received, sent) in enumerate(of)])
    plot("wire", [("8 workers, two hosts, 1 Gbit/s", "seconds", "objective",
                   {name: [(r["seconds"], r["objective"]) for r in of[0][0].curve] for name, of in runs.items()})])
    shares = remote_pulls(quick)
    (_, buffered, updates), (_, least, fewer) = figures[SAME], figures["all together"]
    seconds, moved, _ = (a / b for a, b in zip(figures["naive"], figures["all together"]))
    same = (buffered / updates) / (least / fewer)
    print("\ngoals")
    goal("wire bytes", same, f"{moved:.1f} with all updates")
    goal("wire time", 1 / seconds)
    for view, route in (("all", "get"), ("all", "request"), ("scattered", "request"), ("scattered", "auto")):
        goal("wire pull", shares[view, route], f"{view} keys by {route}")


def remote_pulls(quick):
    """How pulls and pushes of f32 keys of the other host compare with the values as one message of bare MPI."""
    repeats, kept, shares = 5 if quick else 11, 1_000_000, {}
    rows = []
    for keys, fraction, view in ((kept, 1, "all"), (3 * kept, 1 / 3, "scattered")):
        for route in ("auto", "get", "request"):  # scheduler and server on h1, worker on h2
            for push in ("message", "accumulate") if route == "auto" else ("message",):
                figures = mpirun(3, program("bench_table"), keys, fraction, repeats, "ranks.layout=dedicated",
                                 "ranks.servers=1", "ranks.groups=1", f"table.route={route}", f"table.push={push}",
                                 host="h1:2,h2:1").split()
                pull, pushed, viewed, bare = (float(figures[i]) for i in (0, 1, 6, 7))
                shares[view, route] = bare / pull
                rows.append([view, route, push, int(viewed), bare, pull, bare / pull, pushed, bare / pushed])
    table("f32 keys of a remote server, beside bare MPI that sends their values as one message in the same run "
          f"(the link: {LINK / 1e6:.0f} MB/s)",
          ["keys", "route", "push by", "n", "bare ms", "pull ms", "of bare", "push ms", "of bare"], rows)
    write_csv("wire-pull", ["keys", "route", "push", "n", "bare_ms", "pull_ms", "pull_share", "push_ms", "push_share"], rows)
    return shares


# ---- E3 ----

def pulled(job, clocks):
    """Of a clock: bytes over the wire to the workers' host (by the difference of a long and a short run, so that
    starting and loading do not count), bytes as the engine counts, seconds of pulling; and the long run."""
    host = f"h1:2,h2:{WORKERS}"  # scheduler and server on h1, workers on h2
    one, _, before = over_wire(lambda: train(WORKERS + 2, job | {"solve.epochs": 1}, host))
    run, _, after = over_wire(lambda: train(WORKERS + 2, job | {"solve.epochs": 1 + clocks}, host, explain=True))
    first, last = one.curve[-1], run.curve[-1]
    return ((after - before) / clocks, (last["bytes_pulled"] - first["bytes_pulled"]) / clocks,
            (last["pull_seconds"] - first["pull_seconds"]) / clocks / WORKERS, run)


def e3(quick):
    if not on_two_hosts("E3", quick, slots=WORKERS):
        return
    path, clocks = ctr_data(True), 3 if quick else 20
    job = {"data.train": path, "model.l2": "1/n", "solve.method": "sgd", "solve.rate": 30, "solve.batch": 5000,
           "sync.push": "1 per epoch", "sync.weight": "con", "ranks.layout": "dedicated", "ranks.servers": 1,
           "table.share_pulls": "no", "table.encoding": "dense", "report.every": 1000}
    rows, wires = [], {}
    ways = {"pruned": {}, "full": {"table.prune": "no"}}
    if not has_key("table.prune"):
        print("bench: full pulling needs the key table.prune: left out")
        del ways["full"]
    for name, change in ways.items():
        wire_moved, counted, seconds, run = pulled(job | change, clocks)
        keys = WORKERS * int(re.search(r"w, group: .* keys \(min / median / max\) \d+ / (\d+) /", run.explained)[1])
        wires[name] = wire_moved, keys
        rows.append([name, keys, 4 * keys / 1e6, counted / 1e6, wire_moved / 1e6, wire_moved / (4 * keys) - 1,
                     1e3 * seconds, run.curve[-1]["seconds"]])
    table(f"pulls of {WORKERS} workers from a server behind 1 Gbit/s, a clock (paper: 59.2 s -> 28.5 s an iteration; "
          "20 epochs 3227 s -> 1844 s)", ["", "keys", "MB of values", "MB counted", "MB over the wire", "headers",
                                         "ms a pull", f"s for {clocks + 1} clocks"], rows)
    write_csv("E3", ["pulling", "keys", "values_mb", "counted_mb", "wire_mb", "headers", "pull_ms", "seconds"], rows)
    print("\ngoals")
    moved, keys = wires["pruned"]
    goal("E3 bytes", moved / (4 * keys))
    if "full" not in wires:
        return
    goal("E3 time", abs(rows[1][6] / rows[0][6] / (wires["full"][1] / keys) - 1),
         f"{rows[1][6] / rows[0][6]:.2f} x the time for {wires['full'][1] / keys:.2f} x the keys")

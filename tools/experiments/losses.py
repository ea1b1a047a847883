"""What failures and checkpoints cost: from a death to the next iteration (E7), and what training pays for checkpoints (E17)."""
import os, re, resource, shutil, signal, statistics, subprocess, time

from experiments.common import ENV, OUT, ctr_data, goal, has_key, interleaved, mpirun, program, table, train, write_csv
from experiments.supervised import Supervised


def middle(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


# ---- E7 ----

def events(log):
    """(seconds, start, event, the rest) of the log that trireme run --log wrote."""
    with open(log) as f:
        return [(float(t), int(n), what, rest.strip()) for t, n, what, *rest in
                (line.split(None, 3) for line in f) for rest in [rest[0] if rest else ""]]


def first(found, after, what, clock=None):
    """When that came first; clock: the one that it is at least of."""
    for t, n, event, rest in found:
        number = int(re.sub(r"\D", "", rest) or 0)
        if n == 1 and event == what and t >= after and (clock is None or number >= clock):
            return t
    return None


PHASES = ["noticed", "ended", "started", "data back", "parameters back", "first iteration"]


def clock_of(output):
    """The last one evaluated."""
    try:
        with open(os.path.join(output, "metrics.csv")) as f:
            return int(f.read().splitlines()[-1].split(",")[2])
    except (OSError, ValueError, IndexError):
        return 0


def one_death(data, rank, clock, settings):
    """Kills a rank once that clock has begun: seconds from then to the end of each phase."""
    words = [f"{k}={v}" for k, v in {"data.train": data, "model.type": "logistic", "solve.method": "dual", "solve.epochs": 40,
                                     "solve.target_gap": 0, "checkpoint.every": "1 clocks"}.items()]
    one = Supervised(os.path.join(OUT, "e7"), 4, [*words, *settings], options=["--heartbeat", "1s", "--limit", "10s"])
    while not one.is_over() and not (os.path.exists(one.log) and "training stage 1" in one.said("log") and clock_of(one.output) >= clock - 1
                                     and one.processes().get(rank)):
        time.sleep(0.005)
    killed = time.time()
    struck = one.strike(rank, signal.SIGKILL)
    while not one.is_over():
        time.sleep(0.02)
        training = [t for t, n, what, rest in events(one.log) if n == 1 and what == "training" and rest == "stage 1"]
        if struck and training and first(events(one.log), training[0], "clock"):
            time.sleep(0.5)
            one.process.send_signal(signal.SIGTERM)  # the rest is of no interest
            break
    found = events(one.log)
    one.end()
    noticed, ended = (next((t for t, n, what, _ in found if n == 0 and what == w), None) for w in ("noticed", "ended"))
    started, last = first(found, 0, "started"), [t for t, n, what, rest in found if n == 1 and what == "training" and rest == "stage 1"]
    back = first(found, 0, "checkpoint")
    clocks = [(t, int(re.sub(r"\D", "", rest) or 0)) for t, n, what, rest in found
              if n == 1 and what in ("clock", "checkpoint") and last and t >= last[-1]]
    if back and clocks and back > clocks[0][0]:
        back = None  # there was no checkpoint to resume from: it is a new run
    before = clocks[0][1] if back and clocks else 0  # ranks tell their clock now and then, and each checkpoint
    iteration = next((t for t, clock in clocks if clock > before), None)
    loaded = last[0] if last else None
    times = [noticed, ended, started, loaded, back, iteration]
    return [t - killed if t else None for t in times] + [iteration - ended if iteration and ended else None]


def e7(quick):
    data, rows, worst = ctr_data(quick), [], {}
    layouts = {"colocated": ([], {"scheduler, server, worker": 0, "server, worker": 2}),
               "dedicated": (["ranks.layout=dedicated", "ranks.servers=1"], {"scheduler": 0, "server": 1, "worker": 3})}
    caches = {"": []}
    if has_key("data.cache"):
        caches = {", read again": ["data.cache=no"], ", data kept in memory": ["data.cache=memory"]}
    for cache, extra in caches.items():
        for layout, (settings, roles) in layouts.items():
            for role, rank in roles.items():
                for clock in (1, 11):
                    times = [one_death(data, rank, clock, settings + extra) for _ in range(1 if quick else 3)]
                    medians = [middle(column) for column in zip(*times)]
                    rows.append([f"{layout}{cache}: {role}, iteration {clock}", *medians])
                    worst[cache] = max(worst.get(cache, 0), medians[-1] or 99)
    head = ["who is killed", *PHASES, "from mpirun's end to it"]
    table("E7: seconds from SIGKILL to the end of each phase, 4 ranks, medians (Angel, a server: +6 s)", head, rows)
    write_csv("E7", head, rows)
    print("\ngoals")
    for cache, most in worst.items():
        goal("E7 restart", most, cache.strip(", "))


# ---- E17 ----

def computed():
    """Seconds that programs which have ended have computed, all together."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trained(ranks, job):
    before = computed()
    run = train(ranks, job)
    return [run.summary["train_seconds"], run.summary["checkpoints"], run.summary["checkpoint_seconds"], computed() - before]


def cost(name, job, seconds, times):
    """The cost of checkpoints for a job: none, at an interval, and as often as possible."""
    ways = {"no": "no", f"{seconds} s": f"{seconds}s", "1 clock": "1 clocks"}
    found = interleaved(times, {way: (lambda every=every: trained(2, job | {"checkpoint.every": every}))
                                for way, every in ways.items()})
    rows, plain = [], [middle(column) for column in zip(*found["no"])]
    for way, runs in found.items():
        took, taken, waited, used = (middle(column) for column in zip(*runs))
        against = middle([a[0] / b[0] - 1 for a, b in zip(runs, found["no"])])
        each, work = ((took - plain[0]) / taken, (used - plain[3]) / taken) if taken else (None, None)
        rows.append([f"{name}, every {way}", took, 100 * against, taken, waited, each, work, each and 100 * each / 30,
                     each and 100 * each / 300])
    return rows


def copied(source, target, *how):
    begin = time.time()
    subprocess.run(["dd", f"if={source}", f"of={target}", "bs=4M", "status=none", *how], check=True)
    seconds = time.time() - begin
    os.remove(target)
    return seconds


def taken_on(ranks, megabytes, times, folder):
    """Medians of milliseconds: copying, whole."""
    shutil.rmtree(folder, ignore_errors=True)
    lines = mpirun(ranks, program("bench_checkpoint"), megabytes, times, folder).splitlines()
    shutil.rmtree(folder, ignore_errors=True)
    return [middle(column) for column in zip(*(map(float, line.split()) for line in lines))]


def speeds(megabytes, times):
    """MB/s of a checkpoint on 4 ranks and of dd, in turn: median and best."""
    source, target, folder = (os.path.join(OUT, name) for name in ("dd-from", "dd-to", "dd-checkpoints"))
    with open(source, "wb") as f:
        for _ in range(megabytes):
            f.write(os.urandom(1_000_000))
    ways = {"checkpoint, 4 ranks": lambda: taken_on(4, megabytes, 2, folder)[1] / 1e3,
            "dd conv=fsync": lambda: copied(source, target, "conv=fsync"),
            "dd oflag=direct": lambda: copied(source, target, "oflag=direct", "conv=fsync")}
    found = {way: [megabytes / s for s in runs] for way, runs in interleaved(times, ways).items()}
    os.remove(source)
    return {way: (middle(values), max(values)) for way, values in found.items()}


def e17(quick):
    times = 2 if quick else 5
    ctr = {"data.train": ctr_data(quick), "model.type": "logistic", "solve.method": "dual", "solve.target_gap": 0,
           "solve.epochs": 20 if quick else 120, "report.every": 10}
    big = {"data.train": ctr_data(quick), "model.type": "logistic", "solve.method": "sgd", "solve.optimizer": "adam",
           "solve.rate": 0.03, "solve.batch": 2000, "sync.push": "5 per epoch", "data.features": 4_000_000 if quick else 16_000_000,
           "solve.epochs": 2 if quick else 10, "report.every": 10}
    rows = cost("ctr (4 MB)", ctr, 2 if quick else 10, times)
    rows += cost(f"sgd with adam ({48 if quick else 192} MB)", big, 2 if quick else 10, times)
    head = ["job, checkpoints", "training s", "more by %", "checkpoints", "waited s", "s a checkpoint", "CPU s each", "% if every 30 s",
            "% if every 5 min"]
    table("E17: what checkpoints cost, 2 ranks, medians of runs in turn", head, rows)
    write_csv("E17", head, rows)

    megabytes = 48 if quick else 192
    speed = speeds(megabytes, times)
    fastest = [max(speed["dd conv=fsync"][i], speed["dd oflag=direct"][i]) for i in (0, 1)]
    table(f"{megabytes} MB brought to the disk: MB/s", ["how", "median", "best", "of the faster dd", "best of its best"],
          [[way, *both, both[0] / fastest[0], both[1] / fastest[1]] for way, both in speed.items()])
    share = speed["checkpoint, 4 ranks"][0] / fastest[0]

    found = interleaved(2 if quick else 3, {n: (lambda n=n: taken_on(n, megabytes, 3, os.path.join(OUT, "ranks")))
                                            for n in (4, 16, 64)})
    shown = [[n, *(middle(column) for column in zip(*runs))] for n, runs in found.items()]
    small = {n: taken_on(n, 1, 3, os.path.join(OUT, "ranks")) for n in found}
    shown = [[*row, small[row[0]][1]] for row in shown]
    table(f"a checkpoint of {megabytes} MB by ranks", ["ranks", "training waits ms", "until it is whole ms", "of 1 MB ms"], shown)
    write_csv("E17-ranks", ["ranks", "copy_ms", "whole_ms", "whole_1mb_ms"], shown)
    print("\ngoals")
    for row in rows:
        if row[7] is not None:
            goal("E17 cost", row[7], row[0])
    goal("E17 speed", share)
    print(f"  64 ranks take {shown[-1][2] / shown[0][2]:.2f} times as long as 4, with the same bytes")

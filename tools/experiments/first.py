"""Speed and memory of the first rooms: routes, reader, sparse logistic regression, with the limit or the peer beside
them. The peer is LIBLINEAR (liblinear-train from the package liblinear-tools); without it its column stays empty."""
import csv, json, math, os, shutil, statistics, subprocess, sys, time

from experiments.common import ENV, OUT, ROOT, TRIREME, ctr_data, mpirun, plot, program, run, table, write_csv


# ---- routes ----

def routes(quick):
    """Pulls and pushes by every route beside plain loops over private memory."""
    head = ["keys", "view", "route", "push", "pull ms", "of copy", "of gather", "push ms", "of scatter"]
    shown, raw = [], []
    bench = program("bench_table")
    cases = [("load", "merge"), ("load", "accumulate"), ("load", "message"), ("get", "merge"), ("request", "merge")]
    for keys in (262_144, 1_000_000 if quick else 10_000_000):
        for fraction, view in ((1, "dense"), (0.3, "scattered")):
            for route, push in cases:
                figures = mpirun(2, bench, keys, fraction, 11, f"table.route={route}", f"table.push={push}")
                pull, pushed, _, copy, gather, scatter, *_ = map(float, figures.split())
                shown.append([keys, view, route, push, pull, f"{copy / pull:.2f}x", f"{pull / gather:.2f}",
                              pushed, f"{pushed / scatter:.2f}"])
                raw.append([keys, view, route, push, pull, pushed, copy, gather, scatter])
    table("pull and push of f32 keys, 2 colocated ranks (of copy: memcpy's time / ours; of gather, of scatter: "
          "ours / a plain loop's)", head, shown)
    write_csv("first-routes", ["keys", "view", "route", "push", "pull_ms", "push_ms", "copy_ms", "gather_ms",
                               "scatter_ms"], raw)

    keys = 1_000_000 if quick else 10_000_000
    words = [bench, keys, 1, 11, "ranks.layout=dedicated", "ranks.servers=1", "ranks.groups=1"]
    rows = []
    for push in ("merge", "accumulate", "message"):
        pull, pushed, *_ = map(float, mpirun(3, *words, f"table.push={push}").split())
        rows.append([push, pull, pushed])
    table(f"{keys} f32 keys, one server and one worker (ps-lite at 10M, measured elsewhere: pull 208, push 144)",
          ["push by", "pull ms", "push ms"], rows)


# ---- the reader ----

def reader(quick):
    path = ctr_data(quick)
    size = os.path.getsize(path) / 1e6
    bench = program("bench_load")
    ours, theirs = [], []
    for _ in range(3):
        ours.append(size / float(run(bench, "libsvm", path, 1).split()[1]))
        if shutil.which("liblinear-train"):
            begin = time.time()
            process = subprocess.Popen(["liblinear-train", "-s", "0", path, "/dev/null"], stdout=subprocess.PIPE)
            process.stdout.read(1)  # its first word comes when it has read, and looked at the data once
            theirs.append(size / (time.time() - begin))
            process.kill()
            process.wait()
    row = [statistics.median(ours), statistics.median(theirs) if theirs else float("nan")]
    table(f"reading {size:.0f} MB of LIBSVM text, one core", ["ours MB/s", "LIBLINEAR MB/s", "ratio"],
          [[*row, row[0] / row[1]]])
    write_csv("first-reader", ["ours_mb_s", "liblinear_mb_s"], [[a, b] for a, b in zip(ours, theirs or [""] * 3)])


# ---- sparse logistic regression against LIBLINEAR ----

def objective_of_text_model(model, path, rows):
    """F of a model in LIBLINEAR's format, by our evaluate and the norm of its weights."""
    loss = json.loads(run(TRIREME, "evaluate", model, path, "--json"))["log_loss"]
    with open(model) as f:
        lines = f.read().split("\nw\n")[1].split()
    return loss + sum(float(x) ** 2 for x in lines) / (2 * rows)


def time_to(goal, ranks, path):
    """Seconds from the start of the command until metrics.csv has an objective at or below the goal, and until the
    command has ended, with its model written."""
    folder = os.path.join(OUT, "ctr-run")
    shutil.rmtree(folder, ignore_errors=True)
    words = [TRIREME, "train", os.path.join(ROOT, "jobs", "ctr.yaml"), f"data.train={path}", "output=" + folder,
             "report.progress=no"]
    words = words if ranks == 1 else ["mpirun", "-n", str(ranks), *words]
    begin, seen, curve, reached, ended = time.time(), 0, [], float("nan"), None
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV, cwd=ROOT)
    while ended is None or process.poll() is None:
        ended = time.time() if process.poll() is not None else None
        try:
            with open(os.path.join(folder, "metrics.csv")) as f:
                rows = [row for row in csv.DictReader(f) if row["objective"]]
        except FileNotFoundError:
            rows = []
        for row in rows[seen:]:
            curve.append((time.time() - begin, float(row["objective"])))
            if curve[-1][1] <= goal and math.isnan(reached):
                reached = curve[-1][0]
        seen = len(rows)
        time.sleep(0.002)
    if process.wait():
        sys.exit(f"bench: {' '.join(words)} failed")
    return reached, ended - begin, curve


def train_peer(solver, epsilon, path):
    model = os.path.join(OUT, "liblinear.model")
    begin = time.time()
    run("liblinear-train", "-q", "-s", solver, "-c", 1, "-e", epsilon, path, model)
    return time.time() - begin, model


def against_liblinear(quick):
    path, rows = ctr_data(quick), 50_000 if quick else 500_000
    os.makedirs(OUT, exist_ok=True)
    long_run = os.path.join(OUT, "ctr-best")
    mpirun(2, TRIREME, "train", os.path.join(ROOT, "jobs", "ctr.yaml"), f"data.train={path}", "solve.target_gap=1e-6",
           "solve.epochs=200", "model.dtype=f64", f"output={long_run}", "report.progress=no")
    with open(os.path.join(long_run, "summary.json")) as f:
        best = json.load(f)["objective"]
    shutil.rmtree(long_run, ignore_errors=True)
    goal = 1.001 * best

    peers = {}
    if shutil.which("liblinear-train"):
        for solver in (0, 7):  # the loosest tolerance that reaches the goal: the fairest to the peer
            for epsilon in (1, 0.3, 0.1, 0.03, 0.01, 0.001):
                _, model = train_peer(solver, epsilon, path)
                if objective_of_text_model(model, path, rows) <= goal:
                    peers[solver] = epsilon
                    break
    ours = ["1 rank", "2 ranks"]
    times = {name: [] for name in ours + [n + ", to the end" for n in ours]}
    times |= {f"LIBLINEAR -s {s} -e {e}": [] for s, e in peers.items()}
    curves = {}
    for _ in range(3):
        for ranks, name in enumerate(ours, 1):
            reached, ended, curves[name] = time_to(goal, ranks, path)
            times[name].append(reached)
            times[name + ", to the end"].append(ended)
        for solver, epsilon in peers.items():
            times[f"LIBLINEAR -s {solver} -e {epsilon}"].append(train_peer(solver, epsilon, path)[0])
    median = {name: statistics.median(t) for name, t in times.items()}
    peer = min((t for name, t in median.items() if name.startswith("LIBLINEAR")), default=float("nan"))
    table(f"logistic regression to 1.001 x the best objective ({goal:.6f}), start and loading included",
          ["who", "seconds", "of LIBLINEAR's best"], [[n, t, t / peer] for n, t in median.items()])
    write_csv("first-ctr", list(times), list(zip(*times.values())))
    plot("first-ctr", [("logistic regression on made-up clicks", "seconds since the start", "objective",
                        curves | {"goal": [(0, goal), (max(median.values()), goal)]})])

    summary = os.path.join(OUT, "ctr-memory")
    rows = []
    for ranks in (1, 2):
        mpirun(ranks, TRIREME, "train", os.path.join(ROOT, "jobs", "ctr.yaml"), f"data.train={path}",
               f"output={summary}", "report.progress=no")
        with open(os.path.join(summary, "summary.json")) as f:
            s = json.load(f)
        shutil.rmtree(summary)
        limit = 8 * s["nonzeros"] / ranks + 8 * s["rows"] / ranks
        rows.append([ranks, s["peak_rss_bytes"] / 1e6, limit / 1e6, s["load_seconds"], s["train_seconds"],
                     s["total_seconds"]])
    table("memory of a rank and seconds", ["ranks", "peak RSS MB", "data at 8 B a non-zero", "load", "train", "total"],
          rows)


def first(quick):
    routes(quick)
    reader(quick)
    against_liblinear(quick)

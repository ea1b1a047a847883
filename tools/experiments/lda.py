"""Topics beside other samplers (lda), and data, model and hybrid parallel (E1 for LDA).

A peer is a program in the folder TRIREME_PEERS, or on the PATH, named lda-warplda, lda-tomotopy or lda-mallet: a few
lines around an installed one. It is called with
    DOCWORD TOPICS SECONDS THREADS ALPHA BETA
(a bag of words in UCI's format; fixed priors of each topic and of each word), trains from a random start for
about SECONDS, and prints lines of
    sweep, seconds, CPU seconds of a thread, joint log p(w, z) per token
where both times exclude reading and evaluation. Absent peers are skipped."""
import bisect, os, shutil, statistics, subprocess, sys

from experiments.common import ENV, NEVER, OUT, generated_as, goal, plot, public_data, table, train, write_csv

PEERS = ("warplda", "tomotopy", "mallet")
ALPHA, BETA = 0.1, 0.01
RANKS = 2  # ours, and the peers' threads
BUDGET = 20  # seconds of training that a peer has


# ---- data: every word occurs, as peers drop those that do not, and log p depends on how many there are ----

def compact(source, path):
    """The bag of words with its words renumbered: those that occur, in their order."""
    with open(source) as f:
        documents, _, pairs = (f.readline() for _ in range(3))
        rows = [line.split() for line in f]
    number = {word: i for i, word in enumerate(sorted({row[1] for row in rows}, key=int), 1)}
    with open(path + ".part", "w") as f:
        f.write(f"{documents}{len(number)}\n{pairs}")
        f.writelines(f"{d} {number[w]} {c}\n" for d, w, c in rows)
    os.rename(path + ".part", path)


def made(path, make):
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        make()
    return path


def news():
    source = public_data("20news/docword.20news.train.txt.gz")
    path = os.path.join(OUT, "news-compact.txt")
    return source and made(path, lambda: compact(source, path))


def generated(documents, words, tokens):
    whole = generated_as("docword", f"words-{tokens}.docword", documents=documents, words=words, tokens=tokens)
    path = os.path.join(OUT, f"docword-{tokens}-compact.txt")
    return made(path, lambda: compact(whole, path))


def count_tokens(path):
    with open(path) as f:
        return sum(int(line.split()[2]) for i, line in enumerate(f) if i >= 3)


# ---- curves: [(sweep, seconds, log p per token)] ----

def find_peer(name):
    folder = os.environ.get("TRIREME_PEERS")
    own = os.path.join(folder, "lda-" + name) if folder else None
    return own if own and os.access(own, os.X_OK) else shutil.which("lda-" + name)


def peer_curve(peer, data, topics, seconds):
    """What the peer printed until its time was up; [] if it failed, which is said."""
    words = [str(w) for w in (peer, data, topics, seconds, RANKS, ALPHA, BETA)]
    done = subprocess.run(words, capture_output=True, text=True, env=ENV)
    curve = [line.split() for line in done.stdout.splitlines()]
    if done.returncode or not curve:
        print(f"bench: {' '.join(words)} failed: {done.stderr.strip()[-200:]}")
        return []
    return [(int(sweep), float(wall), float(value)) for sweep, wall, _, value in curve]


def our_job(data, topics, sweeps):
    return {"data.train": data, "data.format": "docword", "model.type": "lda", "model.topics": topics,
            "model.alpha": ALPHA, "model.beta": BETA, "model.optimize": "no", "solve.epochs": sweeps}


def our_curve(data, topics, seconds, target=None):
    """Trains until the target, or for about `seconds`: a run of three sweeps gives the number of sweeps."""
    probe = train(RANKS, our_job(data, topics, 3)).curve[-1]
    sweeps = max(3, int(seconds / (probe["seconds"] / probe["epoch"])))
    stop = {"solve.target": -target} if target else {}
    curve = train(RANKS, our_job(data, topics, sweeps) | stop).curve
    return [(int(row["epoch"]), row["seconds"], row["objective"]) for row in curve]


def seconds_to(curve, target):
    """When the curve rises to the target for the last time, between two of its points on the straight line. Ours begins
    high, as each document begins with one topic, falls, and rises again: crossings on the way down do not
    count."""
    found = NEVER
    for before, after in zip(curve, curve[1:]):
        if before[2] < target <= after[2]:
            found = before[1] + (target - before[2]) / (after[2] - before[2]) * (after[1] - before[1])
    return found


def row_at(curve, target):
    """The first row from which all later rows are at the target; crossings on the way down do not count."""
    below = [i for i, row in enumerate(curve) if row["objective"] < target]
    return curve[below[-1] + 1 if below else 0]


def value_at(curve, seconds):
    """The likelihood at this time, on the straight line; the last one where the curve ends before."""
    at = bisect.bisect([point[1] for point in curve], seconds)
    if at == 0 or at == len(curve):
        return curve[min(at, len(curve) - 1)][2]
    (_, t, a), (_, u, b) = curve[at - 1], curve[at]
    return a + (seconds - t) / (u - t) * (b - a)


def rate(curve, tokens):
    """Millions of tokens a second and core."""
    return tokens * curve[-1][0] / curve[-1][1] / RANKS / 1e6


# ---- one collection and number of topics ----

def race(data, topics, tokens, budget, times):
    """Peers first, which sets the target; then the best of them and ours in turn. {who: [curves]}, target or None."""
    peers = {name: peer for name in PEERS if (peer := find_peer(name))}
    curves = {name: [curve] for name, peer in peers.items() if (curve := peer_curve(peer, data, topics, budget))}
    best = max(curves, key=lambda name: value_at(curves[name][0], budget), default=None)
    target = value_at(curves[best][0], budget) if best else None
    curves["ours"] = []
    for i in range(times):
        if best and i > 0:
            curves[best].append(peer_curve(peers[best], data, topics, budget) or curves[best][0])
        curves["ours"].append(our_curve(data, topics, 2 * budget, target))
    return curves, best, target


def rows_of(topics, tokens, curves, best, target):
    # a peer that is not there again in its time counts as if it had been at the end of it
    pairs = [(seconds_to(a, target), min(seconds_to(b, target), b[-1][1]))
             for a, b in zip(curves["ours"], curves[best])] if best else []
    ratio = statistics.median(a / b for a, b in pairs) if pairs else None
    rows = []
    for who, runs in curves.items():
        reached = statistics.median(seconds_to(curve, target) for curve in runs) if best else None
        rows.append([topics, who, statistics.median(rate(curve, tokens) for curve in runs), runs[0][-1][0],
                     runs[0][-1][1], f"{runs[0][-1][2]:.4f}", reached, ratio if who == "ours" else None])
    return rows, ratio


def lda(quick):
    for name in PEERS:
        if not find_peer(name):
            print(f"bench: lda-{name} is absent: put it on the PATH or in $TRIREME_PEERS")
    sets = {"20 newsgroups": news()}
    sets |= {"generated": generated(2_000, 5_000, 200_000)} if quick else {
        "generated, 5M tokens": generated(50_000, 20_000, 5_000_000)}
    raw, panels = [], []
    for name, data in sets.items():
        if not data:
            continue
        tokens, shown, ratios = count_tokens(data), [], {}
        for topics in (100,) if quick else (100, 1000, 8000):
            curves, best, target = race(data, topics, tokens, 2 if quick else BUDGET, 1 if quick else 3)
            rows, ratios[topics] = rows_of(topics, tokens, curves, best, target)
            shown += rows
            raw += [[name, topics, who, i, *point] for who, runs in curves.items() for i, curve in enumerate(runs)
                    for point in curve]
            panels.append((f"{name}, {topics} topics", "seconds", "log p per token",
                           {who: [point[1:] for point in runs[0]] for who, runs in curves.items()}))
        table(f"{name}: {tokens} tokens, {RANKS} ranks, peers with {RANKS} threads; target: the best of the peers",
              ["topics", "who", "M tokens/s a core", "sweeps", "seconds", "log p at the end", "seconds to target",
               "of the best peer's"], shown)
        for topics, ratio in ratios.items():
            goal("lda time", ratio, f"{name}, {topics} topics")
    write_csv("lda", ["data", "topics", "who", "run", "sweep", "seconds", "log_p"], raw)
    plot("lda", panels)


# ---- E1: eight workers as groups of one (each with all words), as one group whose members pass words round, and in
# between ----

WORKERS = 8
SHAPES = {"data parallel, 8 groups of 1": 8, "hybrid, 4 groups of 2": 4, "hybrid, 2 groups of 4": 2,
          "model parallel, 1 group of 8": 1}


def e1(quick):
    """Log p by sweeps and seconds for each shape, and what each moved."""
    small = generated(2_000, 5_000, 200_000)
    data, topics, sweeps = (small, 20, 5) if quick else (news() or small, 100, 60)
    runs = {shape: train(WORKERS, our_job(data, topics, sweeps) | {
        "ranks.layout": "colocated", "ranks.groups": groups, "ranks.group_size": WORKERS // groups,
        "sync.mode": "bsp"}) for shape, groups in SHAPES.items()}
    worst = min(of.curve[-1]["objective"] for of in runs.values())
    rows = []
    for shape, of in runs.items():
        row = row_at(of.curve, worst)
        last = of.curve[-1]
        rows.append([shape, int(row["epoch"]), row["seconds"], f"{last['objective']:.4f}", last["seconds"],
                     last["bytes_pushed"] / last["epoch"] / 1e6])
    table(f"{topics} topics, {WORKERS} workers, {sweeps} sweeps: to log p {worst:.4f}, which all have reached",
          ["", "sweeps to it", "seconds to it", "log p at the end", "seconds", "MB pushed a sweep"], rows)
    write_csv("E1-lda", ["way", "sweep", "seconds", "log_p"],
              [[shape, r["epoch"], r["seconds"], r["objective"]] for shape, of in runs.items() for r in of.curve])
    plot("E1-lda", [(f"{WORKERS} workers", x, "log p per token",
                     {shape: [(r[key], r["objective"]) for r in of.curve] for shape, of in runs.items()})
                    for x, key in (("sweeps", "epoch"), ("seconds", "seconds"))])
    print("  paper (LDA, 10 workers): model parallel needs fewest sweeps, hybrid least time")

"""Matrix factorization beside LIBMF (mf).

The peer is a program mf-libmf in the folder TRIREME_PEERS, or on the PATH: a few lines around LIBMF's mf-train. It is
called with
    TRAIN TEST RANK LAMBDA RATE SWEEPS THREADS
and prints lines of
    sweep, seconds, CPU seconds of a thread, RMSE on TEST
where both times leave out reading and evaluating, and preparing too (shuffling ratings, dividing them into a grid), which
may stand in a line of its own before, as sweep 0. Ours has preparing in its time: first biases, cutting ratings into
tiles. Without the peer, ours runs alone, to a fixed number of epochs."""
import functools, os, shutil, statistics, subprocess

from experiments.common import BUILD, ENV, NEVER, OUT, ROOT, TRIREME, goal, program, public_data, run, table, train, write_csv

EPOCHS = (2, 3, 4, 5, 6, 8, 10, 12, 16)  # ours needs its number in advance: rates fall towards 0 at the last
L2 = (0.02, 0.04)
SWEEPS = 12  # of the peer, at most
# lambda and rate of the peer: the best of 0.02 to 0.1 and 0.05 to 0.2, by set and rank; others try the last
PEER_WAYS = {("MovieLens", 32): ((0.1, 0.1),), ("MovieLens", 128): ((0.1, 0.1),), ("generated", 32): ((0.03, 0.1), (0.04, 0.1)),
             ("generated", 128): ((0.04, 0.1),)}


# ---- data ----

def generated(users, items, ratings):
    path = os.path.join(ROOT, "datasets", f"ratings-{ratings}")
    if not os.path.exists(path + ".train"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        run(TRIREME, "generate", "ratings", "-o", path + ".train", "-t", path + ".test", f"users={users}",
            f"items={items}", f"ratings={ratings}")
    return path + ".train", path + ".test"


def three_columns(name):
    """A public set as the peer reads it: user, item and rating."""
    source = public_data(name)
    if not source:
        return None
    path = source.removesuffix(".txt") + ".ratings"
    with open(source) as f, open(path, "w") as out:
        out.writelines(" ".join(line.split()[:3]) + "\n" for line in f)
    return path


@functools.cache
def count(path):
    """Ratings, users, items."""
    ratings, users, items = 0, set(), set()
    with open(path) as f:
        for line in f:
            user, item, _ = line.split(None, 2)
            ratings += 1
            users.add(user)
            items.add(item)
    return ratings, len(users), len(items)


# ---- the peer ----

def find_peer():
    folder = os.environ.get("TRIREME_PEERS")
    own = os.path.join(folder, "mf-libmf") if folder else None
    return own if own and os.access(own, os.X_OK) else shutil.which("mf-libmf")


def peer_curve(peer, data, rank, way, sweeps, threads):
    """Seconds of preparing, and [(seconds, CPU seconds of a thread, test RMSE)] by sweep."""
    words = [str(w) for w in (peer, *data, rank, *way, sweeps, threads)]
    done = subprocess.run(words, capture_output=True, text=True, env=ENV)
    lines = [tuple(map(float, line.split()[:4])) for line in done.stdout.splitlines() if line.strip()]
    curve = [line[1:] for line in lines if line[0] > 0]
    if done.returncode or not curve:
        print(f"bench: {' '.join(words)} failed: {done.stderr.strip()[-200:]}")
    return sum(line[1] for line in lines if line[0] == 0), curve


def best_way(name, peer, data, rank):
    """The lambda and rate with the lowest RMSE, that RMSE, and the sweep at which it is there."""
    found = []
    for way in PEER_WAYS[name, rank]:
        _, curve = peer_curve(peer, data, rank, way, SWEEPS, 2)
        if curve:
            lowest = min(point[2] for point in curve)
            # the last thousandth takes too long: the target is the value before it
            found.append((lowest, way, next(i for i, point in enumerate(curve) if point[2] <= 1.001 * lowest) + 1))
    return min(found, default=None)


def peer_seconds(peer, data, rank, way, sweeps, threads, target):
    """Seconds to the target, and of preparing before."""
    prepared, curve = peer_curve(peer, data, rank, way, sweeps + 3, threads)
    return next((point[0] for point in curve if point[2] <= target), NEVER), prepared


# ---- ours ----

def our_job(data, rank, epochs, l2):
    return {"data.train": data[0], "data.test": data[1], "data.format": "ratings", "model.type": "mf", "model.rank": rank,
            "model.bias": "yes", "model.l2": l2, "solve.epochs": epochs, "report.every": epochs}


def fewest_epochs(data, rank, target):
    """Epochs and lambda with which ours is at the target, and the RMSE."""
    for epochs in EPOCHS:
        for l2 in L2:
            rmse = train(2, our_job(data, rank, epochs, l2)).curve[-1]["test_metric"]
            if rmse <= target:
                return epochs, l2, rmse
    return EPOCHS[-1], L2[-1], rmse


def our_seconds(data, rank, epochs, l2, ranks):
    return train(ranks, our_job(data, rank, epochs, l2)).curve[-1]["training_time"]


# ---- one set and rank ----

def race(name, data, rank, peer, quick, raw):
    ratings, users, items = count(data[0])
    found = best_way(name, peer, data, rank) if peer else None
    if found:
        lowest, way, sweeps = found
        target = 1.001 * lowest
        epochs, l2, rmse = fewest_epochs(data, rank, target)
    else:
        (epochs, l2, target) = (4, 0.04, NEVER)
        rmse = train(2, our_job(data, rank, epochs, l2)).curve[-1]["test_metric"]
    rows = []
    for workers in (1, 2):
        ours, theirs, prepared = [], [], []
        for _ in range(1 if quick else 9 if ratings < 1e6 else 3 if workers == 2 else 1):
            ours.append(our_seconds(data, rank, epochs, l2, workers))
            if found:
                seconds, before = peer_seconds(peer, data, rank, way, sweeps, workers, target)
                theirs.append(seconds)
                prepared.append(before)
        raw += [[name, rank, workers, epochs, l2, rmse, *times] for times in zip(ours, theirs or [""] * len(ours),
                                                                                prepared or [""] * len(ours))]
        mine = statistics.median(ours)
        row = [name, rank, workers, rmse, epochs, mine, ratings * epochs / mine / workers / 1e6]
        if found:
            ratio = statistics.median(a / (b + c) for a, b, c in zip(ours, theirs, prepared))
            row += [target, sweeps, statistics.median(theirs), statistics.median(prepared), ratio,
                    statistics.median(a / b for a, b in zip(ours, theirs))]
        rows.append(row + [""] * (13 - len(row)))
        if workers == 2:
            goal("mf time", ratio if found else None, f"{name}, rank {rank}, to RMSE {target:.4f}")
    return rows, [name, rank, *bytes_of(ratings, users, items, rank)]


def bytes_of(ratings, users, items, rank):
    """Bytes of a rating in memory, moved from memory, and moved from the cache, as model/mf/cut.h lays ratings out: a
    visit has at most the number of ratings that a user has in a tile."""
    pad = -(-rank // 16) * 16
    tiles = max(1, -(-items // max(2048, min(65536, 655360 // (4 * pad)))))
    visits = min(ratings, users * tiles) / ratings
    turns = min(8, max(1, ratings // 16384 // 4))  # rotations an epoch of two workers: so often items' rows come
    return 6 + 8 * visits, 6 + 8 * visits + 8 * pad * (visits + turns * items / ratings), 8 * pad


# ---- alternating least squares ----

def sweeps(data, quick):
    """Time of a sweep over all ratings with tables, and without them beside BLIS's matrix product."""
    rows = []
    ratings, users, items = count(data[0])
    for rank in (64,) if quick else (64, 200):
        job = our_job(data, rank, 2, 0.05) | {"solve.method": "als", "report.every": 1}
        curve = train(2, job).curve
        seconds = (curve[-1]["training_time"] - curve[0]["training_time"]) / (curve[-1]["epoch"] - curve[0]["epoch"])
        lines = run(program("bench_als"), rank, users, items, ratings, 1).splitlines()
        shares = [line.split()[3] for line in lines if line.startswith(("users", "items"))]
        rows.append([rank, seconds, curve[-1]["test_metric"], *shares[:2]])
    table("alternating least squares, 2 ranks: a sweep (share of BLIS's sgemm peak: one process, without tables)",
          ["rank", "seconds", "test RMSE", "users: of peak", "items: of peak"], rows)
    write_csv("mf-als", ["rank", "seconds", "test_rmse", "users_of_peak", "items_of_peak"], rows)


def mf(quick):
    peer = find_peer()
    if not peer:
        print("bench: mf-libmf is absent: put it on the PATH or in TRIREME_PEERS; ours runs alone")
    sizes = (10_000, 5_000, 1_000_000) if quick else (100_000, 20_000, 10_000_000)
    made = generated(*sizes)
    sets = [("generated", made)]
    films = [three_columns(f"ml-100k/u1.{part}.gz") for part in ("base", "test")]
    if all(films):
        sets.insert(0, ("MovieLens", films))
    rows, moved, raw = [], [], []
    for name, data in sets:
        for rank in (32,) if quick else (32, 128):
            shown, bytes_moved = race(name, data, rank, peer, quick, raw)
            rows += shown
            moved.append(bytes_moved)
    table("time to the peer's held-out RMSE, reading and evaluating left out",
          ["data", "rank", "ranks", "RMSE", "epochs", "seconds", "M ratings/s a core", "LIBMF's RMSE", "sweeps", "seconds",
           "preparing", "ratio", "less its preparing"], rows)
    table("bytes of a rating", ["data", "rank", "kept", "moved from memory", "moved from the L2 cache"], moved)
    write_csv("mf", ["data", "rank", "ranks", "epochs", "l2", "rmse", "seconds", "libmf_seconds", "libmf_preparing"], raw)
    sweeps(made, quick)

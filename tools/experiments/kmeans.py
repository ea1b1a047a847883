"""K-means beside scikit-learn's (package python3-sklearn), on rows that `trireme generate dense` makes, and beside the
machine's limit: the rate of BLIS's matrix product, of which Lloyd's distances are one."""
import math, os, shutil, statistics, subprocess, sys, time

from experiments.common import OUT, ROOT, TRIREME, goal, interleaved, plot, program, run, table, train, write_csv

PEER = """
import os, sys, time
path, k, epochs, algorithm = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
import numpy as np
from sklearn.cluster import KMeans
x = np.load(path)
means = KMeans(k, init=x[:k].copy(), n_init=1, max_iter=epochs, tol=0, algorithm=algorithm)
begin = time.time()
means.fit(x)
print(time.time() - begin, means.inertia_, means.n_iter_)
"""


def python():
    """An interpreter that has scikit-learn, or None."""
    for name in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([name, "-c", "import sklearn, numpy"], capture_output=True).returncode == 0:
            return name
    return None


def dense_data(rows, columns, noise):
    """Rows of `columns` numbers around 256 centres, as text for us and as an array for the peer."""
    path = os.path.join(ROOT, "datasets", f"dense-{rows}-{columns}-{noise}.csv")
    if not os.path.exists(path):
        run(TRIREME, "generate", "dense", "-o", path, f"rows={rows}", f"columns={columns}", f"noise={noise}")
    return path


def as_array(interpreter, path):
    array = os.path.join(OUT, os.path.basename(path) + ".npy")
    if not os.path.exists(array):
        os.makedirs(OUT, exist_ok=True)
        code = "import numpy, sys; numpy.save(sys.argv[2], numpy.loadtxt(sys.argv[1], delimiter=',', dtype=numpy.float32))"
        subprocess.run([interpreter, "-c", code, path, array], check=True)
    return array


def fit_peer(interpreter, array, k, epochs, algorithm, threads):
    env = dict(os.environ) | {name: str(threads) for name in
                              ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run([interpreter, "-c", PEER, array, str(k), str(epochs), algorithm], env=env,
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench: scikit-learn: {done.stderr}")
    seconds, inertia, _ = map(float, done.stdout.split())
    return seconds, inertia


def fit_ours(ranks, path, k, epochs, bounds):
    job = {"model.type": "kmeans", "model.clusters": k, "data.train": path, "data.format": "csv", "solve.start": "first",
           "solve.epochs": epochs, "solve.tolerance": 0, "solve.bounds": bounds, "report.every": epochs}
    done = train(ranks, job).summary
    return done["train_seconds"], done["objective"]


def speed(quick, rows, columns, noise, k, epochs):
    interpreter = python()
    path = dense_data(rows, columns, noise)
    cases = {}
    for ranks in (1, 2):
        cases[f"{ranks} rank{'s' * (ranks > 1)}"] = lambda r=ranks: fit_ours(r, path, k, epochs, "auto")
        cases[f"{ranks} rank{'s' * (ranks > 1)}, no bounds"] = lambda r=ranks: fit_ours(r, path, k, epochs, "no")
    for algorithm in ("lloyd", "elkan") if interpreter else ():
        array = as_array(interpreter, path)
        for threads in (1, 2):
            cases[f"scikit-learn {algorithm}, {threads} thread{'s' * (threads > 1)}"] = (
                lambda a=algorithm, t=threads: fit_peer(interpreter, array, k, epochs, a, t))
    results = interleaved(1 if quick else 3, cases)
    peak = statistics.median(float(run(program("bench_kmeans"), "peak").split()[0]) for _ in range(3))
    kernel = statistics.median(float(run(program("bench_kmeans"), "assign", columns, k).split()[0]) for _ in range(3))
    seconds = {name: statistics.median(t for t, _ in runs) for name, runs in results.items()}
    inertia = {name: runs[-1][1] for name, runs in results.items()}
    peers = {t: min((s for name, s in seconds.items() if name.startswith("scikit") and f", {t} thread" in name),
                    default=math.nan) for t in (1, 2)}
    shown = []
    for name, s in seconds.items():
        threads = 2 if "2" in name else 1
        shown.append([name, s, s / peers[threads], inertia[name]])
    table(f"K-means: {rows} rows of {columns} numbers, noise {noise}, k = {k}, {epochs} iterations from the first rows "
          f"(without loading)", ["who", "seconds", "of scikit-learn's best", "inertia"], shown)
    print(f"  distances: {kernel:.0f} GFLOP/s a core, of BLIS's {peak:.0f}: {kernel / peak:.2f}")
    write_csv(f"kmeans-{columns}-{noise}-{k}", list(results), list(zip(*[[t for t, _ in r] for r in results.values()])))
    if interpreter:
        ours, theirs = inertia["2 ranks"], inertia["scikit-learn lloyd, 2 threads"]
        best = [n for n in seconds if n.startswith("scikit") and n.endswith("2 threads")]
        ratio = seconds["2 ranks"] / min(seconds[n] for n in best)
        goal("kmeans time", None if quick else ratio, f"{columns} columns, {k} centres")
        goal("kmeans inertia", abs(ours / theirs - 1), f"{columns} columns, {k} centres")


def kmeans(quick):
    rows = 20_000 if quick else 1_000_000
    for k in (64,) if quick else (256, 100):
        for noise in (1,) if quick else (1, 4):
            speed(quick, rows, 64, noise, k, 20)

"""Gradient boosted trees beside XGBoost, LightGBM and scikit-learn, where they are installed (packages python3-xgboost,
python3-sklearn) or in the folder TRIREME_PEERS: the same number of trees and leaves on the same data. Then the bytes that ranks
send, and the minimum."""
import math, os, shutil, statistics, subprocess, sys, time

from experiments.common import ENV, OUT, TRIREME, generated_as, goal, interleaved, public_data, run, table, train, write_csv

TREES, LEAVES = 100, 31
PEERS = {"PYTHONPATH": os.pathsep.join(filter(None, map(ENV.get, ("TRIREME_PEERS", "PYTHONPATH"))))}
PEER = """
import os, sys, time
who, train, test, kind, trees, leaves, threads = sys.argv[1:8]
trees, leaves, threads = int(trees), int(leaves), int(threads)
import numpy as np
def read(path):
    if path.endswith('.csv'):
        rows = np.loadtxt(path, delimiter=',', dtype=np.float32)
        return rows[:, :-1], rows[:, -1]
    from sklearn.datasets import load_svmlight_file
    return load_svmlight_file(path, n_features=read.columns, dtype=np.float32)
read.columns = None
x, y = read(train)
read.columns = x.shape[1]
tx, ty = read(test)
names = np.unique(y)
if kind != 'rmse': y, ty = np.searchsorted(names, y), np.searchsorted(names, ty)
if who == 'xgboost':
    import xgboost
    job = dict(tree_method='hist', grow_policy='lossguide', max_leaves=leaves, max_depth=0, eta=0.1, max_bin=255, nthread=threads,
               objective={'auc': 'binary:logistic', 'rmse': 'reg:squarederror'}.get(kind, 'multi:softprob'))
    if kind == 'accuracy': job['num_class'] = len(names)
    data, other = xgboost.DMatrix(x, y, nthread=threads), xgboost.DMatrix(tx, nthread=threads)
    begin = time.time()
    model = xgboost.train(job, data, trees)
    middle = time.time()
    p = model.predict(other)
elif who == 'lightgbm':
    import lightgbm
    job = dict(num_leaves=leaves, learning_rate=0.1, max_bin=255, num_threads=threads, verbose=-1, lambda_l2=1,
               objective={'auc': 'binary', 'rmse': 'regression'}.get(kind, 'multiclass'))
    if kind == 'accuracy': job['num_class'] = len(names)
    data = lightgbm.Dataset(x, y, params=job).construct()
    begin = time.time()
    model = lightgbm.train(job, data, trees)
    middle = time.time()
    p = model.predict(tx)
else:
    from sklearn.ensemble import HistGradientBoostingClassifier as C, HistGradientBoostingRegressor as R
    if not isinstance(x, np.ndarray): x, tx = x.toarray(), tx.toarray()
    begin = time.time()
    model = (R if kind == 'rmse' else C)(max_iter=trees, max_leaf_nodes=leaves, learning_rate=0.1, l2_regularization=1, early_stopping=False).fit(x, y)
    middle = time.time()
    p = model.predict(tx) if kind == 'rmse' else model.predict_proba(tx)
    if kind == 'auc': p = p[:, 1]
end = time.time()
if kind == 'auc':
    from sklearn.metrics import roc_auc_score
    metric = roc_auc_score(ty, p)
elif kind == 'rmse': metric = float(np.sqrt(np.mean((p - ty) ** 2)))
else: metric = float(np.mean(p.argmax(1) == ty))
print(middle - begin, metric, end - middle)
"""


def peers():
    """Who is there, and the interpreter that has it."""
    found = {}
    for module, who in (("xgboost", "xgboost"), ("lightgbm", "lightgbm"), ("sklearn.ensemble", "scikit-learn")):
        for python in (sys.executable, "/usr/bin/python3"):
            if who not in found and subprocess.run([python, "-c", f"import {module}"], capture_output=True, env=ENV | PEERS).returncode == 0:
                found[who] = python
    return found


def fit_peer(who, python, data, kind, threads):
    env = ENV | PEERS | {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    words = [python, "-c", PEER, who, *data, kind, str(TREES), str(LEAVES), str(threads)]
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench: {who}: {done.stderr}")
    return tuple(map(float, done.stdout.split()))


def job_of(data, more=()):
    return {"model.type": "trees", "data.train": data[0], "data.test": data[1], "model.leaves": LEAVES, "solve.epochs": TREES,
            "report.every": TREES} | dict(more)


def fit_ours(ranks, data, kind):
    done = train(ranks, job_of(data)).summary
    return done["train_seconds"], done[f"test_{kind}"], math.nan


def held_out(name):
    """Every fifth row of a public set for test: two files of plain text, or None."""
    path = public_data(name)
    if not path:
        return None
    parts = [path.removesuffix(".txt") + part for part in (".train.svm", ".test.svm")]
    if not all(map(os.path.exists, parts)):
        with open(path) as rows, open(parts[0], "w") as a, open(parts[1], "w") as b:
            for i, row in enumerate(rows):
                (b if i % 5 == 4 else a).write(row)
    return parts


def sets(quick):
    rows = 50_000 if quick else 500_000
    yield (f"events {rows} x 28", "auc", [generated_as("events", f"events-{rows}.csv", rows=rows),
                                         generated_as("events", f"events-{rows}.test.csv", rows=rows // 5, first_row=rows)])
    if quick:
        return
    pairs = (("a9a", "auc", "a9a/a9a.gz", "a9a/a9a.t.gz"), ("hflights", "rmse", "hflights/hflights.train.libsvm.gz", "hflights/hflights.test.libsvm.gz"),
             ("kddcup99", "accuracy", "kddcup99/kdd99.train.libsvm.gz", "kddcup99/kdd99.test.libsvm.gz"),
             ("20news-binary", "auc", "20news-binary/news20b.train.libsvm.gz", "20news-binary/news20b.test.libsvm.gz"))
    for name, kind, a, b in pairs:
        data = [public_data(a), public_data(b)]
        if all(data):
            yield name, kind, data
    for name, kind, file in (("letter, 26 classes", "accuracy", "letter/letter.libsvm.gz"), ("covtype20k", "accuracy", "covtype20k/covtype20k.libsvm.gz")):
        data = held_out(file)
        if data:
            yield name, kind, data


def speed(quick):
    found = peers()
    if not found:
        print("bench: XGBoost, LightGBM and scikit-learn are not installed: skipped")
    for name, kind, data in sets(quick):
        cases = {}
        for n in (1, 2):
            cases[f"trireme, {n}"] = lambda n=n: fit_ours(n, data, kind)
            for who, python in found.items():
                cases[f"{who}, {n}"] = lambda n=n, w=who, p=python: fit_peer(w, p, data, kind, n)
        results = interleaved(1 if quick else 3, cases)
        seconds = {who: statistics.median(r[0] for r in runs) for who, runs in results.items()}
        metric = {who: runs[-1][1] for who, runs in results.items()}
        best = {n: min((s for who, s in seconds.items() if who.endswith(str(n)) and not who.startswith("trireme")), default=math.nan) for n in (1, 2)}
        table(f"{name}: {TREES} rounds of {LEAVES} leaves, without loading", ["who, ranks or threads", "seconds", "of the fastest other", kind],
              [[who, s, s / best[int(who[-1])], f"{metric[who]:.5f}"] for who, s in seconds.items()])
        write_csv(f"gbdt-{name.split()[0].strip(',')}", list(results), list(zip(*[[r[0] for r in runs] for runs in results.values()])))
        theirs = [v for who, v in metric.items() if not who.startswith("trireme")]
        if not theirs:
            continue
        for n in (1, 2):
            ratio = seconds[f"trireme, {n}"] / best[n]
            goal("gbdt time events" if name.startswith("events") else "gbdt time", None if quick else ratio, f"{name}, on {n}")
        ours = metric["trireme, 1"]
        if kind == "rmse":
            goal("gbdt rmse", ours / min(theirs), name)
        else:
            goal("gbdt auc", max(theirs) - ours, f"{name}, {kind}")
        ratio = seconds["trireme, 2"] / seconds["trireme, 1"]
        goal("gbdt ranks", None if quick else ratio, name)


def traffic(quick):
    """Sums of 8 bytes for each bin go to the owners of columns: of the root, and of the smaller child of each split but the last. Each rank
    is a node here: on one node nothing travels."""
    rows, columns, trees = 5_000, 28, 5
    data = generated_as("events", f"events-{rows}.csv", rows=rows)
    shown = []
    for ranks in (2, 4, 8, 16) if quick else (2, 4, 8, 16, 64):
        bytes_of = {}
        for epochs in (trees, 2 * trees):
            done = train(ranks, {"model.type": "trees", "data.train": data, "model.leaves": LEAVES, "solve.epochs": epochs,
                                 "report.every": 1000, "model.min_rows": 1, "model.min_weight": 0, "ranks.node_size": 1}, counts=True)
            bytes_of[epochs] = done.bytes
        histograms = trees * (LEAVES - 1)
        each = (bytes_of[2 * trees] - bytes_of[trees]) / ranks / histograms
        must = 8 * 255 * columns * (ranks - 1) / ranks
        shown.append([ranks, each, must, each / must])
    table("bytes that a rank sends for a histogram of 28 columns", ["ranks", "counted", "8 x 255 x 28 x (ranks - 1) / ranks", "of it"], shown)
    goal("gbdt bytes", max(abs(row[3] - 1) for row in shown))
    write_csv("gbdt-bytes", ["ranks", "counted", "formula", "ratio"], shown)


def predicting(quick):
    rows = 50_000 if quick else 500_000
    data = generated_as("events", f"events-{rows}.csv", rows=rows)
    folder = os.path.join(OUT, "forest")
    shutil.rmtree(folder, ignore_errors=True)
    run(TRIREME, "train", f"data.train={data}", "model.type=trees", f"output={folder}", "report.progress=no")
    begin = time.time()
    run(TRIREME, "predict", folder, data, "--probability", "-o", os.path.join(OUT, "p"))
    print(f"\npredict {rows} rows by {TREES} trees, reading CSV and writing text: {time.time() - begin:.2f} s")


def gbdt(quick):
    speed(quick)
    traffic(quick)
    predicting(quick)

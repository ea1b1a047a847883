"""Linear models: passes to 1.001 times the optimum by losses and ranks, and time on one rank and on two beside LIBLINEAR's
best solver; |w|₁ beside LIBLINEAR's and scikit-learn's; more than two classes beside scikit-learn's. The peers are
liblinear-train and a Python with scikit-learn, which also says what LIBLINEAR's models are worth. Settings of peers that need
more than HOPELESS times our time are left out, as are 64 ranks and medians on large sets: all of it is to take a quarter of an
hour on a quiet machine."""
import math, os, shutil, statistics, time

from experiments.common import (NEVER, OUT, ctr_data, generated_as, goal, interleaved, optimum, public_data, run, table, train,
                                write_csv)

try:
    import numpy
    from sklearn.datasets import load_svmlight_file
except ImportError:
    numpy = None
GOAL = 1.001
HOPELESS = 10
LARGE = 3e7  # bytes
# LIBLINEAR's solvers of the same loss, and what its C is where ours is one
SOLVERS = {"logistic": ((0, 7), 1), "svm": ((3,), 1), "l2svm": ((1, 2), 1), "linear": ((11, 12), 0.5)}
STOPS = (0.1, 0.03, 0.01, 0.003, 0.001, 1e-4)
PLAIN = {"model.bias": "no", "data.scale": "none"}  # as the peers have it


# ---- data ----

def rows_of(path):
    """Label and cells of each line of LIBSVM text, or of a table of numbers with the label in the last column."""
    with open(path) as f:
        for line in f:
            words = line.split()
            if ":" in line or len(words) == 1:
                yield float(words[0]), [(int(i), float(x)) for i, x in (w.split(":") for w in words[1:])]
            else:
                yield float(words[-1]), [(i, float(x)) for i, x in enumerate(words[:-1], 1)]


def scaled(name, source, label):
    """A public set with columns divided by their largest size, as svm-scale does, and labels by a function."""
    path, plain = os.path.join(OUT, name + ".svm"), public_data(source)
    if plain and not os.path.exists(path):
        largest = {}
        for _, cells in rows_of(plain):
            for i, x in cells:
                largest[i] = max(largest.get(i, 0), abs(x))
        with open(path + ".part", "w") as f:
            for y, cells in rows_of(plain):
                f.write(f"{label(y):g} " + " ".join(f"{i}:{x / largest[i]:.6g}" for i, x in cells if x) + "\n")
        os.rename(path + ".part", path)
    return plain and path


def news():
    """The 20 classes of 20news: counts of words as 1 + log, divided by a row's length."""
    path, words = os.path.join(OUT, "20news.svm"), public_data("20news/docword.20news.train.txt.gz")
    if words and not os.path.exists(path):
        with open(os.path.join(os.environ["TRIREME_DATA"], "20news", "labels.train.txt")) as f:
            labels = f.read().split()
        rows = [[] for _ in labels]
        with open(words) as f:
            for line in list(f)[3:]:
                document, word, count = map(int, line.split())
                rows[document - 1].append((word, 1 + math.log(count)))
        with open(path + ".part", "w") as f:
            for y, cells in zip(labels, rows):
                length = math.sqrt(sum(x * x for _, x in cells)) or 1
                f.write(f"{y} " + " ".join(f"{i}:{x / length:.6g}" for i, x in sorted(cells)) + "\n")
        os.rename(path + ".part", path)
    return words and path


def sign(chosen):
    return lambda y: 1 if chosen(y) else -1


def wide_data():
    return generated_as("ctr", "sparse-200000.svm", rows=200_000, features=1_000_000, nonzeros=56, power=0.5, values="real")


def data_sets(quick):
    """Path and losses by name."""
    sets = {"a9a": (public_data("a9a/a9a.gz"), SOLVERS),
            "cal-housing": (scaled("cal-housing", "cal-housing/cal_housing.libsvm.gz", lambda y: y / 1e5), ("linear",))}
    if not quick:
        sets["w8a"] = public_data("w8a/w8a.gz"), SOLVERS
        sets["20news-binary"] = public_data("20news-binary/news20b.train.libsvm.gz"), SOLVERS
        sets["skin"] = scaled("skin", "skin/Skin_NonSkin.txt.gz", sign(lambda y: y == 1)), SOLVERS
        sets["covtype"] = scaled("covtype", "covtype20k/covtype20k.libsvm.gz", sign(lambda y: y == 2)), SOLVERS
        sets["mnist, even"] = scaled("mnist-even", "mnist/mnist.gz", sign(lambda y: y % 2 == 0)), SOLVERS
        sets["200k x 1M"] = wide_data(), SOLVERS
        sets["clicks"] = ctr_data(False), SOLVERS
    return {name: found for name, found in sets.items() if found[0]}


# ---- |w|² ----

def trained(data, loss, ranks, least, **more):
    return train(ranks, {"data.train": data, "model.type": loss, "solve.epochs": 1000, "solve.target": GOAL * least} | PLAIN | more)


def passes(one):
    return int(one.curve[-1]["epoch"]) if one.curve[-1].get("objective", NEVER) < NEVER and one.summary.get("reached_target") else None


def measured(times, start):
    """Medians of seconds of training, and of the whole, on one rank and on two."""
    def timed(ranks):
        begin = time.time()
        one = start(ranks)
        return one.summary["train_seconds"] if one.summary else NEVER, time.time() - begin
    found = interleaved(times, {ranks: (lambda ranks=ranks: timed(ranks)) for ranks in (1, 2)})
    return ([statistics.median(column) for column in zip(*found[ranks])] for ranks in (1, 2))


class Liblinear:
    """LIBLINEAR on one set."""

    def __init__(self, path):
        self.path, self.model = path, os.path.join(OUT, "liblinear.model")
        self.rows, self.labels = load_svmlight_file(path)
        self.loading = min(self.seconds(0, 1, 1e10) for _ in range(3))

    def seconds(self, solver, cost, stop, most=600):
        """NEVER if it is more."""
        regression = ["-p", 0] if solver > 10 else []
        if os.path.exists(self.model):
            os.remove(self.model)
        begin = time.time()
        run("timeout", most, "liblinear-train", "-q", "-s", solver, "-c", cost, "-e", stop, *regression, self.path, self.model,
            check=False)
        whole = time.time() - begin
        return whole if whole < most else NEVER

    def objective(self, loss, l1):
        """With |w|²/2n, or with l1 |w|₁."""
        with open(self.model) as f:
            head, weights = f.read().split("\nw\n")
        w = numpy.array([float(x) for x in weights.split()])
        margin, y = self.rows @ w[:self.rows.shape[1]], self.labels
        if loss == "linear":
            each = (margin - y) ** 2 / 2
        else:
            positive = float(next(line for line in head.split("\n") if line.startswith("label")).split()[1])
            z = numpy.where(y == positive, margin, -margin)
            each = {"logistic": numpy.logaddexp(0, -z), "svm": numpy.maximum(0, 1 - z), "l2svm": numpy.maximum(0, 1 - z) ** 2}[loss]
        return each.mean() + (l1 * numpy.abs(w).sum() if l1 else w @ w / (2 * len(y)))

    def best(self, loss, least, solvers, cost, ours, l1=0):
        """Seconds of training and of all, of the solver that comes to the goal first, each with its loosest tolerance that does;
        more than HOPELESS times ours, or what another solver needs, is not waited for."""
        most = self.loading + HOPELESS * max(ours, 0.1)
        for solver in solvers:
            for stop in STOPS:
                whole = self.seconds(solver, cost, stop, most)
                if whole == NEVER or self.objective(loss, l1) <= GOAL * least:
                    most = min(most, whole)
                    break
        found = most < self.loading + HOPELESS * max(ours, 0.1)
        return (max(0.0, most - self.loading), most) if found else (NEVER, NEVER)


def ridge(quick):
    counts, times = [], []
    ranks_of = (1, 2, 8) if quick else (1, 2, 4, 8, 16, 64)
    for name, (path, losses) in data_sets(quick).items():
        peer = Liblinear(path) if shutil.which("liblinear-train") and numpy else None
        for loss in losses:
            least = optimum(path, "auto", loss)
            large = os.path.getsize(path) > LARGE
            by_ranks = ["-" if large and ranks > 16 else passes(trained(path, loss, ranks, least)) for ranks in ranks_of]
            one, two = measured(1 if quick or large else 3, lambda ranks: trained(path, loss, ranks, least))
            theirs = peer.best(loss, least, *SOLVERS[loss], one[0]) if peer else (None, None)
            counts.append([name, loss, *by_ranks])
            times.append([name, loss, one[0], two[0], two[0] / one[0], theirs[0], one[1], two[1], theirs[1]])
            print("   ", *counts[-1], "|", *(f"{x:.3g}" if x is not None else "-" for x in times[-1][2:]), flush=True)
    head = ["set", "loss", *(f"{n} rank{'s' * (n > 1)}" for n in ranks_of)]
    table(f"passes to {GOAL} times the optimum", head, counts)
    write_csv("linear-passes", head, counts)
    head = ["set", "loss", "1 rank", "2 ranks", "of 1", "LIBLINEAR", "1 rank, all", "2 ranks, all", "LIBLINEAR, all"]
    table(f"seconds to {GOAL} times the optimum: of training, and with loading and writing", head, times)
    write_csv("linear-times", head, times)
    worst = max(max(c or NEVER for c in row[2:] if c != "-") / (row[2] or NEVER) for row in counts)
    slowest = max((row[4] for row in times if row[2] > 0.2), default=None)
    goal("linear passes", worst)
    goal("linear ranks", slowest)
    beside = {name: [row for row in times if row[8] and (row[0] in ("200k x 1M", "clicks")) == (name == "wide")] for name in ("wide", "others")}
    share = max((row[6] / row[8] for row in beside["wide"]), default=None)
    goal("linear wide", share)
    slower = [f"{row[0]} {row[1]}" for row in beside["others"] if row[6] > row[8] + 0.06]
    goal("linear slower", len(slower) if beside["others"] else None, ", ".join(slower))


# ---- |w|₁ ----

def sparse_penalty(path, loss):
    """A penalty that leaves 1 to 5 % of the weights or so, and the least objective of it."""
    l1 = 0.01
    while True:
        one = train(1, {"data.train": path, "model.type": loss, "model.l1": l1, "solve.target_gap": 1e-2} | PLAIN)
        if one.summary["nonzero_weights"] >= 0.01 * one.summary["features"] or l1 < 1e-7:
            break
        l1 /= 2
    best = train(1, {"data.train": path, "model.type": loss, "model.l1": l1, "solve.target_gap": 1e-5, "model.dtype": "f64"} | PLAIN)
    return l1, best.summary["objective"], best.summary["nonzero_weights"]


def lasso_peer(path, l1, least):
    """Seconds of scikit-learn's Lasso, with its loosest tolerance that comes to the goal; as with ours, laying out the rows by
    columns is among them."""
    from sklearn.linear_model import Lasso
    rows, y = load_svmlight_file(path)
    for tolerance in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
        begin = time.time()
        w = Lasso(alpha=l1, fit_intercept=False, tol=tolerance, max_iter=10000).fit(rows, y).coef_
        seconds = time.time() - begin
        if ((rows @ w - y) ** 2).mean() / 2 + l1 * abs(w).sum() <= GOAL * least:
            return seconds
    return NEVER


def lasso(quick):
    rows, ranks_of = [], (1, 2, 8) if quick else (1, 2, 4, 8, 16)
    sets = {"a9a": public_data("a9a/a9a.gz")} if quick else {"200k x 1M": wide_data(), "clicks": ctr_data(False)}
    for name, path in sets.items():
        for loss, solvers in {"logistic": (6,), "l2svm": (5,), "linear": ()}.items() if path else ():
            l1, least, nonzeros = sparse_penalty(path, loss)
            job = {"data.train": path, "model.type": loss, "model.l1": l1, "solve.target": GOAL * least} | PLAIN
            counts = [train(ranks, job).summary["passes"] for ranks in ranks_of]
            one, two = measured(1 if quick else 3, lambda ranks: train(ranks, job))
            if numpy and (shutil.which("liblinear-train") or not solvers):
                theirs = Liblinear(path).best(loss, least, solvers, 1 / (l1 * count_of(path)), one[0], l1)[0] if solvers else \
                    lasso_peer(path, l1, least)
            else:
                theirs = None
            rows.append([name, loss, l1, nonzeros, *counts, one[0], two[0], theirs])
            print("   ", *rows[-1], flush=True)
    head = ["set", "loss", "l1", "non-zeros", *(f"passes of {n}" for n in ranks_of), "1 rank s", "2 ranks s", "peer s"]
    table(f"|w|₁ to {GOAL} times the optimum, training alone (peers: LIBLINEAR -s 6, -s 5; scikit-learn's Lasso)", head, rows)
    write_csv("linear-l1", head, rows)
    worst = max((row[-3] / row[-1] if row[-1] else NEVER for row in rows if row[-1] is not None), default=None)
    goal("linear l1", worst)


def count_of(path):
    with open(path, "rb") as f:
        return sum(1 for _ in f)


# ---- more than two classes ----

def classes_peer(path, least, most):
    """Seconds of scikit-learn's softmax by its faster solver, with as few iterations of 10, 20, 40, ... as come to the goal; where
    they would be more than most, what the last ones took that did not."""
    import warnings
    from sklearn.linear_model import LogisticRegression
    warnings.filterwarnings("ignore")
    rows, y = load_svmlight_file(path)
    label, best, longest = numpy.unique(y, return_inverse=True)[1], NEVER, 0
    for solver in ("lbfgs", "saga"):
        iterations, seconds = 10, 0
        while seconds < min(best, most) and iterations <= 640:
            begin = time.time()
            w = LogisticRegression(fit_intercept=False, solver=solver, multi_class="multinomial", tol=1e-9,
                                   max_iter=iterations).fit(rows, y).coef_
            seconds, margin = time.time() - begin, rows @ w.T
            top = margin.max(axis=1)
            loss = (numpy.log(numpy.exp(margin - top[:, None]).sum(axis=1)) + top - margin[numpy.arange(len(y)), label]).mean()
            if loss + (w ** 2).sum() / (2 * len(y)) <= GOAL * least:
                best = min(best, seconds)
                break
            longest = max(longest, seconds)
            iterations *= 2
    return best if best < NEVER else longest


def softmax(quick):
    rows, ranks_of = [], (1, 2) if quick else (1, 2, 4, 8, 16)
    sets = {"usps": scaled("usps", "usps/usps.train.libsvm.gz", lambda y: y)} if quick else \
        {"mnist": scaled("mnist", "mnist/mnist.gz", lambda y: y), "20news": news()}
    for name, path in sets.items():
        if not path:
            continue
        least = optimum(path, "auto", "logistic")
        counts = [passes(trained(path, "logistic", ranks, least)) for ranks in ranks_of]
        one, two = measured(1 if quick else 3, lambda ranks: trained(path, "logistic", ranks, least))
        rows.append([name, *counts, one[0], two[0], classes_peer(path, least, HOPELESS * one[0]) if numpy else None])
        print("   ", *rows[-1], flush=True)
    head = ["set", *(f"passes of {n}" for n in ranks_of), "1 rank s", "2 ranks s", "scikit-learn s"]
    table(f"softmax of all classes to {GOAL} times the optimum, training alone", head, rows)
    write_csv("linear-classes", head, rows)
    worst = max((row[-3] / row[-1] for row in rows if row[-1]), default=None)
    goal("linear classes", worst)


def linear(quick):
    for part in (ridge, lasso, softmax):
        part(quick)

#!/usr/bin/python3
"""What other programs reach with their defaults on the sets of $TRIREME_DATA: the references of tests/cli/test_defaults.sh, and
of tools/bench defaults. A line per set and metric: set, learner, metric, value, seconds.

    tools/experiments/references.py LEARNER [SET...]

LEARNER is linear (scikit-learn's LogisticRegression or Ridge, behind StandardScaler where columns differ in size), boosting
(scikit-learn's HistGradientBoosting) or xgboost (on the PYTHONPATH). Without a test part every fifth row is for test. Words are
numbered in alphabetical order, because none of them accepts words."""
import gzip, os, sys, time, warnings

import numpy
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file, load_svmlight_files
from sklearn.metrics import roc_auc_score

warnings.filterwarnings("ignore")
DATA = os.environ["TRIREME_DATA"]
MOST_CELLS = 1e8  # boosting needs rows without gaps: larger sets are left out


def lines(name):
    path = os.path.join(DATA, name)
    return gzip.open(path, "rt") if name.endswith(".gz") else open(path)


def divided(rows, labels):
    test = numpy.arange(len(labels)) % 5 == 4
    return rows[~test], labels[~test], rows[test], labels[test]


def svm(train, test=None):
    if test:
        return load_svmlight_files([os.path.join(DATA, train), os.path.join(DATA, test)], zero_based="auto")
    return divided(*load_svmlight_file(os.path.join(DATA, train), zero_based="auto"))


def csv(train, label, between, header, test=None):
    parts = []
    for name in filter(None, (train, test)):
        cells = numpy.loadtxt(lines(name), delimiter=between, skiprows=header)
        parts += [numpy.delete(cells, label, 1), cells[:, label]]
    return parts if test else divided(*parts)


def flights():
    """Arrival delays from all other columns, as tests/cli/test_defaults.sh divides them: rows without a label go after the division."""
    with lines("hflights/hflights.csv.gz") as f:
        label = next(f).strip().split(",").index("ArrDelay")
        columns = list(zip(*(row.rstrip("\n").split(",") for row in f)))
    numbers = []
    for cells in columns:
        try:
            numbers.append(numpy.array([float(c) if c else numpy.nan for c in cells]))
        except ValueError:
            names, codes = numpy.unique(cells, return_inverse=True)
            numbers.append(numpy.where(names[codes] == "", numpy.nan, codes))
    cells = numpy.column_stack(numbers)
    rows, labels, test_rows, test_labels = divided(numpy.delete(cells, label, 1), cells[:, label])
    known, test_known = ~numpy.isnan(labels), ~numpy.isnan(test_labels)
    return rows[known], labels[known], test_rows[test_known], test_labels[test_known]


def bags(part):
    with lines(f"20news/docword.20news.{part}.txt.gz") as f:
        documents, words, _ = (int(next(f)) for _ in range(3))
        document, word, count = numpy.loadtxt(f, dtype=numpy.int64).T
    with lines(f"20news/labels.{part}.txt") as f:
        return csr_matrix((count.astype(float), (document - 1, word - 1)), (documents, words)), numpy.loadtxt(f)


SETS = {  # name: the data, and whether columns are scaled
    "a9a": (lambda: svm("a9a/a9a.gz", "a9a/a9a.t.gz"), False),
    "agaricus": (lambda: svm("agaricus/agaricus.txt.train", "agaricus/agaricus.txt.test"), False),
    "rcv1": (lambda: svm("rcv1-small/rcv1-small.train.libsvm.gz", "rcv1-small/rcv1-small.test.libsvm"), False),
    "w8a": (lambda: svm("w8a/w8a.gz"), False),
    "amazon": (lambda: svm("amazon-access/amazon.train.libsvm.gz", "amazon-access/amazon.test.libsvm.gz"), False),
    "higgs": (lambda: csv("higgs-10k/higgs.train.gz", 0, None, 0, "higgs-10k/higgs.test"), True),
    "skin": (lambda: csv("skin/Skin_NonSkin.txt.gz", -1, "\t", 0), True),
    "covtype": (lambda: csv("covtype20k/covtype.20k.data.gz", -1, ",", 0), True),
    "letter": (lambda: svm("letter/letter.libsvm.gz"), True),
    "usps": (lambda: svm("usps/usps.train.libsvm.gz", "usps/usps.test.libsvm.gz"), False),
    "cal": (lambda: csv("cal-housing/cal_housing.data.gz", -1, ",", 1), True),
    "casp": (lambda: csv("casp/CASP.csv.gz", 0, ",", 1), True),
    "housing": (lambda: svm("housing/housing_scale"), False),
    "abalone": (lambda: svm("abalone/abalone_scale"), False),
    "hflights": (lambda: svm("hflights/hflights.train.libsvm.gz", "hflights/hflights.test.libsvm.gz"), False),
    "flights": (flights, False),
    "news": (lambda: svm("20news-binary/news20b.train.libsvm.gz", "20news-binary/news20b.test.libsvm.gz"), False),
    "news-20": (lambda: bags("train") + bags("test"), False),
    "frappe": (lambda: svm("frappe/frappe.validation.libfm.gz", "frappe/frappe.test.libfm.gz"), False),
    "kdd": (lambda: svm("kddcup99/kdd99.train.libsvm.gz", "kddcup99/kdd99.test.libsvm.gz"), False),
    "mnist": (lambda: [x / 255 if i % 2 == 0 else x for i, x in enumerate(svm("mnist/mnist.gz", "mnist/mnist.t.gz"))], False),
}
NUMBERS = {"cal", "casp", "housing", "abalone", "hflights", "flights"}  # which are learnt as numbers


def linear(numbers, scaled):
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    return make_pipeline(*([StandardScaler()] if scaled else []), Ridge() if numbers else LogisticRegression(max_iter=1000))


def boosting(numbers, scaled):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    return HistGradientBoostingRegressor() if numbers else HistGradientBoostingClassifier()


def xgboost(numbers, scaled):
    from xgboost import XGBClassifier, XGBRegressor
    return XGBRegressor() if numbers else XGBClassifier()


LEARNERS = {"linear": linear, "boosting": boosting, "xgboost": xgboost}


def measures(name, learner):
    """[(metric, value)] on the test rows, and the seconds that fitting took; nothing if the set is too large for the learner."""
    load, scaled = SETS[name]
    rows, labels, test_rows, test_labels = load()
    dense = learner == "boosting" or (learner == "linear" and scaled)
    if learner == "boosting" and rows.shape[0] * rows.shape[1] > MOST_CELLS or name == "flights" and learner == "linear":
        return [], 0
    if dense and hasattr(rows, "toarray"):
        rows, test_rows = rows.toarray(), test_rows.toarray()
    numbers = name in NUMBERS
    if not numbers:
        names, labels = numpy.unique(labels, return_inverse=True)
        found, place = names.searchsorted(test_labels), len(names) - 1
        test_labels = numpy.where(names[found.clip(0, place)] == test_labels, found, -1)  # an unknown label is wrong
    begin = time.time()
    model = LEARNERS[learner](numbers, scaled).fit(rows, labels)
    seconds = time.time() - begin
    if numbers:
        return [("rmse", numpy.sqrt(numpy.mean((model.predict(test_rows) - test_labels) ** 2)))], seconds
    found = [("accuracy", numpy.mean(model.predict(test_rows) == test_labels))]
    if len(names) == 2:
        found.append(("auc", roc_auc_score(test_labels, model.predict_proba(test_rows)[:, 1])))
    return found, seconds


for name in sys.argv[2:] or SETS:
    found, seconds = measures(name, sys.argv[1])
    for metric, value in found:
        print(name, sys.argv[1], metric, f"{value:.6g}", f"{seconds:.1f}", flush=True)

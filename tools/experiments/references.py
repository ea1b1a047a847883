#!/usr/bin/python3
"""What scikit-learn reaches with its defaults on the sets of $TRIREME_DATA: the references of tests/cli/test_defaults.sh.
LogisticRegression or Ridge, behind StandardScaler where columns differ in size. Without a test part every fifth row is for
test. usage: tools/experiments/references.py [SET...]"""
import gzip, os, sys, warnings

import numpy
from scipy.sparse import csr_matrix
from sklearn.datasets import load_svmlight_file, load_svmlight_files
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

warnings.filterwarnings("ignore")
DATA = os.environ["TRIREME_DATA"]


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
    "news": (lambda: svm("20news-binary/news20b.train.libsvm.gz", "20news-binary/news20b.test.libsvm.gz"), False),
    "news-20": (lambda: bags("train") + bags("test"), False),
    "frappe": (lambda: svm("frappe/frappe.validation.libfm.gz", "frappe/frappe.test.libfm.gz"), False),
    "kdd": (lambda: svm("kddcup99/kdd99.train.libsvm.gz", "kddcup99/kdd99.test.libsvm.gz"), False),
    "mnist": (lambda: [x / 255 if i % 2 == 0 else x for i, x in enumerate(svm("mnist/mnist.gz", "mnist/mnist.t.gz"))], False),
}
NUMBERS = {"cal", "casp", "housing", "abalone", "hflights"}  # which are learnt as numbers

for name in sys.argv[1:] or SETS:
    load, scaled = SETS[name]
    rows, labels, test_rows, test_labels = load()
    if scaled and hasattr(rows, "toarray"):
        rows, test_rows = rows.toarray(), test_rows.toarray()
    learner = Ridge() if name in NUMBERS else LogisticRegression(max_iter=1000)
    model = make_pipeline(*([StandardScaler()] if scaled else []), learner).fit(rows, labels)
    if name in NUMBERS:
        print(name, "rmse", f"{mean_squared_error(test_labels, model.predict(test_rows), squared=False):.6g}", flush=True)
    else:
        print(name, "accuracy", f"{model.score(test_rows, test_labels):.5f}", flush=True)

"""Tables: how fast they are read, beside pandas' reader, pandas and scikit-learn's OneHotEncoder (packages python3-pandas and
python3-sklearn), HDF5's own reading; and the distributed counter beside sort | uniq -c | join (E6; Angel, section 6)."""
import os, random, shutil, statistics, subprocess, time
from experiments.common import ENV, OUT, TRIREME, goal, interleaved, program, public_data, run, table, train, write_csv

PEERS = """
import sys, time, resource
def used():
    of = resource.getrusage(resource.RUSAGE_SELF)
    return of.ru_utime + of.ru_stime
import pandas
what, file, words, header = sys.argv[1], sys.argv[2], sys.argv[3].split(','), 0 if sys.argv[4] == 'yes' else None
if what == 'encode':
    from sklearn.preprocessing import OneHotEncoder
begun, before = time.time(), used()
if what == 'numbers':
    pandas.read_csv(file, dtype='float32', engine='c', header=header)
else:
    table = pandas.read_csv(file, header=header, dtype={(w if header == 0 else int(w) - 1): str for w in words}, engine='c')
    table = table[[w if header == 0 else int(w) - 1 for w in words]].fillna('')
    if what == 'encode':
        OneHotEncoder(dtype='float32').fit_transform(table)
    else:
        for name in table:
            table[name].value_counts()
print(time.time() - begun, used() - before)
"""


def has_peers():
    return subprocess.run(["/usr/bin/python3", "-c", "import pandas, sklearn"], capture_output=True).returncode == 0


def peer(what, file, words=("",), header=True):
    """Seconds, and those of the processor."""
    if not has_peers():
        return None, None
    return tuple(map(float, run("/usr/bin/python3", "-c", PEERS, what, file, ",".join(words), "yes" if header else "no").split()))


def made(name, rows, line, head):
    path = os.path.join(OUT, f"{name}-{rows}.csv")
    if not os.path.exists(path):
        os.makedirs(OUT, exist_ok=True)
        chance = random.Random(7)
        with open(path + ".part", "w") as f:
            f.write(head + "\n")
            f.writelines(line(chance) for _ in range(rows))
        os.rename(path + ".part", path)
    return path


def numbers(rows):
    head = ",".join([f"x{i}" for i in range(20)] + ["label"])
    return made("numbers", rows, lambda c: ",".join([f"{c.gauss(0, 1):.6g}" for _ in range(20)] + [str(c.randrange(2))]) + "\n", head)


def words(rows):
    def line(c):
        return f"u{c.randrange(100_000)},item-{c.randrange(100_000)},{c.randrange(100_000):x},{c.random():.4f},{c.randrange(2)}\n"
    return made("categories", rows, line, "user,item,tag,x,label")


def load(form, file, times):
    """Median seconds and processor seconds of reading by one reader."""
    lines = run(program("bench_load"), form, file, times).split("\n")
    values = [list(map(float, line.split())) for line in lines if line]
    return tuple(statistics.median(v[i] for v in values) for i in (1, 2))


def megabytes(file):
    return os.path.getsize(file) / 1e6


def loading(file, job):
    """Seconds of one rank to rows of keys, dictionaries and all."""
    return train(1, {"data.train": file, "model.type": "kmeans", "model.clusters": 2, "solve.method": "minibatch", "solve.start": "first",
                     "solve.epochs": 1} | job).summary["load_seconds"]


# ---- the same by the shell ----

JOIN = r"""set -e
export LC_ALL=C
cd "$1"
tail -n +"$2" "$3" | tr -d '\r' >rows
for column in $4; do
    cut -d, -f"$column" rows | sort | uniq -c | sort -k1,1nr -k2 | awk '{ print $2 "\t" NR - 1 }' | sort >numbers
    [ "$5" = count ] || cut -d, -f"$column" rows | awk '{ print $0 "\t" NR }' | sort -k1,1 | join -t "$(printf '\t')" - numbers |
        sort -t "$(printf '\t')" -k2,2n | cut -f3 >keys."$column"
done"""


def by_shell(file, columns, header, what):
    folder = os.path.join(OUT, "join")
    os.makedirs(folder, exist_ok=True)
    begun = time.time()
    run("sh", "-c", JOIN, "sh", folder, 2 if header else 1, file, " ".join(map(str, columns)), what)
    seconds = time.time() - begun
    shutil.rmtree(folder)
    return seconds


def by_count(file, job):
    begun = time.time()
    run(TRIREME, "count", file, *(f"{key}={value}" for key, value in job.items() if key in ("data.columns", "data.label")))
    return time.time() - begun


def tables(quick):
    """Name, file, job, names of categories, their places, whether there is a header."""
    sets = [("hflights", public_data("hflights/hflights.csv.gz"), {"data.label": "ArrDelay"}, ["UniqueCarrier", "TailNum", "Origin", "Dest"], [7, 9, 14, 15], True),
            ("amazon", public_data("amazon-access/train.csv.gz"), {"data.columns": "*: category,ACTION:label"},
             ["RESOURCE", "MGR_ID", "ROLE_ROLLUP_1", "ROLE_ROLLUP_2", "ROLE_DEPTNAME", "ROLE_TITLE", "ROLE_FAMILY_DESC", "ROLE_FAMILY", "ROLE_CODE"],
             list(range(2, 11)), True),
            ("kddcup99", public_data("kddcup99/kddcup.data_10_percent.gz"), {"data.label": "last"},
             ["2", "3", "4"], [2, 3, 4], False)]
    rows = 200_000 if quick else 2_000_000
    sets.append((f"made up, {rows} rows", words(rows), {"data.columns": "user:category,item:category,tag:category", "data.label": "label"},
                 ["user", "item", "tag"], [1, 2, 3], True))
    return [s for s in sets if s[1]]


def distinct(quick):
    """A column in which nearly all values are different: the bytes that ranks send, and their memory."""
    values = 300_000 if quick else 10_000_000
    file = made("distinct", values, lambda c: f"{c.getrandbits(48):012x},{c.randrange(2)}\n", "word,label")
    rows = []
    for ranks in (1, 2, 4):
        ran = train(ranks, {"data.train": file, "data.columns": "word: category", "data.label": "label", "model.type": "kmeans", "model.clusters": 2,
                            "solve.method": "minibatch", "solve.start": "first", "solve.epochs": 1}, counts=ranks > 1)
        peak = ran.summary["peak_rss_bytes"]
        rows.append([ranks, ran.summary["load_seconds"], ran.messages, ran.bytes / 1e6, peak / 1e6, peak * ranks / values])
    head = ["ranks", "load s", "messages", "MB sent", "peak MB a rank", "bytes a value"]
    table(f"E6: {values} values that are all different, on oversubscribed ranks", head, rows)
    write_csv("E6-distinct", head, rows)


def quotient(runs, a, b):
    """The median of pairs."""
    pairs = [x / y for x, y in zip(runs[a], runs[b]) if x and y]
    return statistics.median(pairs) if pairs else None


def e6(quick):
    rows = []
    for name, file, job, names, places, header in tables(quick):
        runs = interleaved(1 if quick else 3, {
            "ours": lambda f=file, j=job: loading(f, j), "encode": lambda f=file, n=names, h=header: peer("encode", f, n, h)[0],
            "join": lambda f=file, p=places, h=header: by_shell(f, p, h, "join"), "count": lambda f=file, j=job: by_count(f, j),
            "uniq": lambda f=file, p=places, h=header: by_shell(f, p, h, "count"),
            "values": lambda f=file, n=names, h=header: peer("count", f, n, h)[0]})
        middle = {who: statistics.median(r) if r[0] else None for who, r in runs.items()}
        rows.append([name, megabytes(file), middle["ours"], quotient(runs, "ours", "encode"), quotient(runs, "ours", "join"),
                     middle["count"], quotient(runs, "count", "uniq"), quotient(runs, "count", "values")])
    head = ["table", "MB", "load s", "of encoder", "of join", "count s", "of sort | uniq", "of value_counts"]
    table("E6: to rows of keys, on one rank, beside pandas and OneHotEncoder, and sort | uniq -c | join; trireme count beside "
          "sort | uniq -c and pandas' value_counts", head, rows)
    write_csv("E6", head, rows)
    distinct(quick)
    print("\ngoals")
    for row in rows:
        goal("E6 encoder", row[3], row[0])
        goal("E6 join", row[4], row[0])


def data(quick):
    times = 3 if quick else 7
    file = numbers(100_000 if quick else 1_000_000)
    runs = interleaved(times, {"ours": lambda: load("csv", file, 1), "pandas": lambda: peer("numbers", file)})
    ours = statistics.median(r[1] for r in runs["ours"])
    shares = [a[1] / b[1] for a, b in zip(runs["ours"], runs["pandas"]) if b[1]]
    speed, share = megabytes(file) / ours, statistics.median(shares) if shares else None
    rows = [["csv of numbers", megabytes(file), ours, speed, share]]
    dense, sparse = file + ".h5", os.path.join(OUT, f"data-{times}.svm.h5")
    text = sparse.removesuffix(".h5")
    run(TRIREME, "generate", "ctr", "-o", text, f"rows={100_000 if quick else 500_000}", "features=100k", "nonzeros=40", "values=real")
    run(TRIREME, "convert", file, dense, "data.label=last")
    run(TRIREME, "convert", text, sparse)
    again = {}
    for name, path, source, job in (("hdf5, dense", dense, file, {"data.label": "last"}), ("hdf5, lists", sparse, text, {})):
        runs = interleaved(times, {"ours": lambda p=path: load("hdf5", p, 1)[1], "raw": lambda p=path: load("raw", p, 1)[1]})
        seconds = statistics.median(runs["ours"])
        rows.append([name, megabytes(path), seconds, megabytes(path) / seconds, quotient(runs, "raw", "ours")])
        both = interleaved(1 if quick else 3, {"text": lambda s=source, j=job: loading(s, j), "hdf5": lambda p=path: loading(p, {})})
        again[name] = quotient(both, "hdf5", "text")
    head = ["what", "MB", "processor s", "MB/s a core", "peer"]
    table("one reader; peer: processor seconds as a share of pandas' reader's, or speed as one of HDF5's own reading into memory", head, rows)
    write_csv("data", head, rows)
    print("\ngoals")
    goal("data csv speed", speed)
    goal("data csv pandas", share)
    for name, _, _, _, of in rows[1:]:
        goal("data hdf5 raw", of, name)
        goal("data hdf5 text", again[name], name)
    for path in (text, dense, sparse):
        os.remove(path)

#!/usr/bin/env python3
"""Lists and compares the arrays that trained models consist of. test_golden.sh calls it.

  golden.py list FOLDER [--bits]   Prints one line per array below FOLDER/JOB/RANKS: all datasets and attributes of
                                   model.h5, the predictions, and the columns of metrics.csv that are not times.
  golden.py compare OLD NEW [AGAIN]  Compares two such lists, prints the arrays that differ, and exits 1 if any does.
                                   Arrays that differ between OLD and AGAIN are not compared, but named.

A line is: job, ranks, array, type, shape, content. The content of integers and text is a checksum. That of floating
point numbers is the sum, the norm and three projections on vectors of pseudo-random signs, which are compared with a
tolerance relative to the norm. With --bits it is a checksum for all types. Scalars are listed as they are.
"""
import csv, hashlib, math, os, re, subprocess, sys

TOLERANCE = 1e-5  # relative to the norm: the rounding errors of single precision, and less than the fourth digit
TIMES = re.compile(r"time|seconds|rss")  # columns of metrics.csv
NOT_COMPARED = {"job", "trireme", "meaning"}  # the text of the job file, the version of the program, explanations


def read_h5(path):
    """Yields name, type, shape and values (text) of all datasets and attributes."""
    dump = subprocess.run(["h5dump", "-y", "-w", "0", "-m", "%.17g", path], capture_output=True, text=True, check=True)
    names, kind, shape, values = {}, None, None, None
    for line in dump.stdout.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if values is not None:  # inside DATA { }
            if text != "}":
                values += text[:-1].split('", ') if text.startswith('"') else text.replace(",", " ").split()
                continue
            yield "/".join(names[i] for i in sorted(names) if names[i] != "/"), kind, shape, values
            values = None
        elif found := re.match(r'(GROUP|DATASET|ATTRIBUTE) "(.*)" \{', text):
            names = {i: name for i, name in names.items() if i < indent}
            names[indent] = found[2]
        elif text.startswith("DATATYPE"):
            kind = text.split()[1].removeprefix("H5T_")
        elif text.startswith("DATASPACE"):
            found = re.search(r"\( ([0-9, ]+) \)", text)
            shape = found[1].replace(", ", "x") if found else "scalar"
        elif text == "DATA {":
            values = []


def type_of(values):
    """The type of numbers in text files."""
    if all(re.fullmatch(r"-?[0-9]+", value) for value in values):
        return "integer"
    try:
        return "number" if [float(value) for value in values] else "text"
    except ValueError:
        return "text"


def read_run(folder):
    """Yields the arrays of one run."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(folder for folder in folders if folder != "checkpoints")
        at = os.path.relpath(place, folder) + "/" if place != folder else ""
        if "model.h5" in files:
            for name, kind, shape, values in read_h5(os.path.join(place, "model.h5")):
                if name.split("/")[-1] not in NOT_COMPARED:
                    yield at + name, kind, shape, values
        if "predictions" in files:
            with open(os.path.join(place, "predictions")) as lines:
                values = re.split(r"[\s:]+", lines.read().strip())
            yield at + "predictions", type_of(values), str(len(values)), values
        if "metrics.csv" in files:
            with open(os.path.join(place, "metrics.csv")) as lines:
                rows = list(csv.DictReader(lines))
            for column in rows[0] if rows else []:
                if not TIMES.search(column):
                    values = [row[column] or "none" for row in rows]
                    yield at + "metrics/" + column, type_of(values), str(len(values)), values


def is_real(kind):
    return kind.startswith("IEEE") or kind == "number"


def content(kind, values, bits):
    if len(values) == 1:
        return values[0].replace(" ", "_")
    if bits or not is_real(kind):
        return "#" + hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]
    numbers = [float(value) for value in values]
    finite = [number if math.isfinite(number) else 0.0 for number in numbers]
    signs = hashlib.shake_128(b"golden").digest(len(numbers))
    reals = [math.fsum(finite), math.sqrt(math.fsum(number * number for number in finite))]
    for k in range(3):
        reals.append(math.fsum(number if sign >> k & 1 else -number for number, sign in zip(finite, signs)))
    reals.append(sum(not math.isfinite(number) for number in numbers))
    return " ".join("%.9g" % number for number in reals)


def difference(old, new):
    """What differs between two contents, or None."""
    (kind, shape, *was), (kind_now, shape_now, *now) = old, new
    if (kind, shape) != (kind_now, shape_now):
        return "%s %s is now %s %s" % (kind, shape, kind_now, shape_now)
    if was == now:
        return None
    if was[0].startswith("#"):
        return "%s %s: other values" % (kind, shape)
    if not is_real(kind):
        return "%s is now %s" % (was[0], now[0])
    was, now = [float(x) for x in was], [float(x) for x in now]
    if was[5:] != now[5:]:
        return "%d values are now not finite, %d before" % (now[5], was[5])
    norm = abs(was[1] if len(was) > 1 else was[0]) or 1.0
    change = [abs(a - b) / norm for a, b in zip(was, now)]
    if len(was) > 1:  # a sum collects the rounding errors of all values
        change[0] /= math.sqrt(math.prod(int(x) for x in shape.split("x")))
    worst = max(change)
    if worst <= TOLERANCE:
        return None
    return "%s %s: differs by %.1e of its norm %.6g (tolerance %.0e)" % (kind, shape, worst, norm, TOLERANCE)


def read_list(path):
    with open(path) as lines:
        words = [line.split() for line in lines if not line.startswith("#")]
    return {tuple(line[:3]): line[3:] for line in words}


def main(action, *words):
    if action == "list":
        folder, bits = words[0], "--bits" in words
        for job in sorted(os.listdir(folder)):
            for ranks in sorted(os.listdir(os.path.join(folder, job)), key=int):
                for name, kind, shape, values in read_run(os.path.join(folder, job, ranks)):
                    print(job, ranks, name.replace(" ", "_"), kind, shape, content(kind, values, bits))
        return 0
    old, new = read_list(words[0]), read_list(words[1])
    again = read_list(words[2]) if len(words) > 2 else old
    ran = {key[:2] for key in new}
    failed = 0
    for key in sorted(set(old) | set(new)):
        if key[:2] not in ran:
            continue  # its data are absent, or training failed
        if old.get(key) != again.get(key):
            print("not compared: job %s, %s ranks: %s varies from run to run" % key)
            continue
        if key not in new or key not in old:
            what = "is missing" if key in old else "is new"
        else:
            what = difference(old[key], new[key])
        if what:
            print("FAILED: job %s, %s ranks: %s: %s" % (*key, what))
            failed += 1
    return failed > 0


sys.exit(main(*sys.argv[1:]))

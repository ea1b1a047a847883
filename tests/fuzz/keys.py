#!/usr/bin/env python3
"""Trains on a few made-up rows with keys of the job file at the ends of their ranges, just beyond them, of a wrong type, and two
or three keys at random, as `trireme help job` names them:

    tests/fuzz/keys.py TRIREME [--seed N] [--jobs N | --seconds N] [--keep FOLDER]

Each job must train, or end with one line that is an error and an exit code that says what it is about; a value that its key cannot
have is refused as such. No signal, no bug of ours (70), no banner of mpirun, no message of a sanitizer, and the end within LIMIT
seconds, for no job is to take more than a second or two. What is not so is printed, with the command that repeats it, and makes the
exit code 1; --keep also writes it there. Job N is the same every time: by its number it has the key, and by chance the rest."""
import argparse, glob, json, math, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, time

LIMIT = 60
MEMORY = 6 << 30  # bytes that a rank may have, so that a mistake does not take all
HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1]
WRONG_NUMBERS = ["x", "", "nan", "inf", "0x10", "1e400", "1,2", "1 2", "--1"]
LONG = "x" * 5000

# What words that are no numbers may be, good or not.
TEXTS = {
    "data.train": ["nothing", ".", "/dev/null", "*.nothing", "rows.svm,rows.svm", "table.csv", "ratings", "job.yaml"],
    "data.test": ["10%", "0%", "100%", "99.999%", "-1%", "fold 1/2", "fold 3/2", "fold 0/0", "nothing", "rows.svm", "table.csv"],
    "data.offset": ["weights", "a", "c", "1", "99", "nothing", "rows.svm"],
    "data.weight": ["weights", "a", "c", "1", "99", "nothing", "rows.svm"],
    "data.vocabulary": ["weights", "nothing", "/dev/null"],
    "data.label": ["label", "a", "c", "1", "99", "0", "-1", "none", "first", "last", "auto"],
    "data.positive": ["1", "0", "x", "nan"],
    "data.columns": ["{a: category}", "{a: number, c: ignore}", "{zz: number}", "{a: nonsense}", "{'*': category}", "{'*': ignore}",
                     "{label: id}", "{a: weight}", "{c: weight}"],
    "data.cross": ["[c*d]", "[a*c]", "[c]", "[c*c]", "[zz*c]", "[c*d,a*c]", "[a*b*c*d*label]"],
    "data.missing": ["[x]", "[1]", "[]", "x,y"],
    "model.class_weights": ["balanced", "0:1 1:5", "1:0", "1:-1", "1:1e300", "1:nan", "7:2", "1", ":"],
    "model.monotone": ["{a: up}", "{a: down, b: up}", "{c: up}", "{zz: up}", "{a: x}"],
    "model.init": ["nothing", "rows.svm", ".", "/dev/null", "task one"],
    "model.plugin": ["nothing.so", "rows.svm", "."],
    "output": ["elsewhere", "a/b/c", "rows.svm", "rows.svm/x", "/dev/null", "/proc/nothing", "."],
    "checkpoint.to": ["kept", "rows.svm", "/dev/null/x", "/proc/nothing"],
    "data.scratch": ["scratch", "rows.svm", "/dev/null/x", "/proc/nothing"],
    "experiment.clock": ["0", "1e-9", "0.01", "0.3"],  # others take as long as they say
    "experiment.level": ["1", "1.5", "3"],
    "tasks.NAME.after": ["[two]", "[one]", "[nothing]"],
}
TYPES = {"linear": ["logistic", "svm", "l2svm", "linear", "huber", "quantile", "poisson", "logcosh"]}
CLASSES = ["linear", "kmeans", "mf", "lda", "trees"]
OPTIMIZERS = ["momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "ftrl"]
SMALL = {"kmeans": ["model.clusters=3"], "mf": ["model.rank=3"], "lda": ["model.topics=3"], "trees": ["model.leaves=4", "model.min_rows=2"]}
ROWS = ["rows.svm", "table.csv", "rows.h5", "table.h5"]
DATA = {"linear": ROWS, "kmeans": ["rows.svm", "numbers.csv", "rows.h5"], "trees": ROWS, "mf": ["ratings"], "lda": ["docword"]}


# ---- keys ----

def keys(trireme):
    """(class or None, key, kind, words before the first colon of what it means), and the methods of the classes."""
    said = subprocess.run([trireme, "help", "job", "all"], capture_output=True, text=True, check=True).stdout
    found, section = [], None
    for line in said.splitlines():
        heading = re.fullmatch(r" ([a-z]+):", line)
        if heading or re.match(r"[a-z]+: ", line):
            section = heading[1] if heading else None
        key = re.match(r"  ([a-z][A-Za-z0-9_.]*)(?:$|\s\s+)(.*)", line)
        if not key:
            continue
        fields = re.split(r"\s\s+", key[2])
        means = fields[-1] if len(fields) > 1 else ""
        found.append((section, key[1], fields[0], means.split(":")[0].split() if ":" in means else []))
    methods = {}
    for name in CLASSES:
        about = subprocess.run([trireme, "help", "job", name], capture_output=True, text=True, check=True).stdout
        methods[name] = re.findall(r"^    (\S+)  ", about.split("solve.method")[1].split("\n\n")[0], re.M)
    return found, methods


def integers(kind):
    least, most = 0, 2**64 - 1
    if match := re.match(r"integer from (\d+) to (\d+)", kind):
        least, most = int(match[1]), int(match[2])
    elif match := re.match(r"integer < 2\^(\d+)", kind):
        most = 2**int(match[1]) - 1
    elif match := re.match(r"integer >= (\d+)", kind):
        least = int(match[1])
    good = {least, least + 1, 2, 3, 7, 1000, most} | {n for n in HUGE if least <= n <= most}
    bad = [least - 1, most + 1, *WRONG_NUMBERS, "1.5", "-7"]
    return [str(n) for n in sorted(good) if least <= n <= most], [str(n) for n in bad]


def numbers(kind):
    least, most, above = -math.inf, math.inf, False
    if match := re.match(r"number (from|above) (\S+) to ([^|]+)", kind):
        least, most, above = float(match[2]), float(match[3]), match[1] == "above"
    elif match := re.match(r"number (>=|>) ([^|]+)", kind):
        least, above = float(match[2]), match[1] == ">"
    tried = [least, most, 0.0, 1e-300, 1e-9, 0.5, 1.0, 3.7, 1e9, 1e38, 1e300, 1.7e308, -1e-9, -1e300, most + 1e-9, least - 1e-9]
    tried = [x for x in tried if math.isfinite(x)]
    fine = [x for x in tried if least <= x <= most and not (above and x == least)]
    return [repr(x) for x in fine], [repr(x) for x in tried if x not in fine] + WRONG_NUMBERS


def values(key, kind):
    """Those that the key can have, as far as one sees, and those it cannot."""
    if key in TEXTS:
        return TEXTS[key] + ([] if key.startswith("experiment.") else ["", LONG]), []
    words = [word for word in kind.replace("|||", "||\0").split("|")] if "|" in kind and " " not in kind.split("|")[0] else kind.split("|")[1:]
    words = [word.replace("\0", "|") for word in words if word and word != "time" and "N" not in word]
    if kind.startswith("integer"):
        good, bad = integers(kind)
    elif kind.startswith("number"):
        good, bad = numbers(kind)
    elif kind.startswith("bytes"):
        good, bad = ["0", "1", "1K", "1M", "1T", "8388607T", str(2**63)], ["-1", "x", "1X", "1.0001K", "nan"]
    elif "every N" in kind:
        good, bad = ["every 1", "every 7", f"every {2**63 - 1}", "1 per epoch", "3 per epoch", f"{2**63 - 1} per epoch"], ["every 0", "0 per epoch", "x", "every", "1"]
    elif "time" in kind or "clocks" in kind:
        good, bad = ["1ms", "3s", "1000h"], ["x", "-1s", "nan s", "0 clocks"]
        good += ["1 clocks", f"{2**63} clocks"] if "clocks" in kind else []
    elif "|" in kind:
        good, bad = [], ["x", LONG, "0.5"]
    else:
        good, bad = ["x", "", LONG, "a: b", "[", "{", "ä", "\x7f"], []
    return good + words, [text for text in bad if text not in words]


# ---- jobs ----

class Jobs:
    def __init__(self, trireme):
        self.keys, self.methods = keys(trireme)
        self.good, self.bad = [], []
        for entry in self.keys:
            good, bad = values(entry[1], entry[2])
            self.good += [(entry, value) for value in good if entry[1] != "model.type"]
            self.bad += [(entry, value) for value in bad if entry[1] != "model.type"]
        random.Random(1).shuffle(self.good)
        random.Random(1).shuffle(self.bad)

    def setting(self, luck, entry, value, own):
        """«key=value», and what else it takes to have a use for the key."""
        kind, key, _, means = entry
        more = []
        if kind and set(means) <= set(self.methods[kind]) and means:
            more = [f"solve.method={luck.choice(means)}"]
        elif kind == "linear" and {word.strip(",") for word in means} <= set(OPTIMIZERS) and means:
            more = ["solve.method=sgd", f"solve.optimizer={luck.choice(means).strip(',')}"]
        elif key.startswith("stages."):
            more = ["solve.method=svrg"]
        elif key.startswith("local."):
            more = ["solve.method=svrg"]
        key = key.replace("stages.NAME", f"stages.{luck.choice(['full', 'inner', 'average'])}").replace("tasks.NAME", "tasks.one")
        if own and not key.startswith(("tasks.", "stages.")):
            key = f"tasks.one.{key}"
        return [f"{key}={value}"], more

    def draw(self, number):
        """Words behind train, how many ranks, and whether it must be refused."""
        luck = random.Random(number)
        good = number % 6 != 5
        first, value = (self.good if good else self.bad)[number % len(self.good if good else self.bad)]
        name = first[0] or ("linear" if first[1].startswith(("stages.", "local.")) else luck.choice(CLASSES))
        tasks = first[1].startswith("tasks.") or luck.random() < 0.08
        own, base = self.setting(luck, first, value, tasks and luck.random() < 0.5)
        if not base and luck.random() < 0.6:
            base = [f"solve.method={luck.choice(self.methods[name])}"]
        for _ in range(luck.choice([0, 0, 1, 1, 2])):
            entry, value = luck.choice([one for one in self.good if one[0][0] in (None, name) and (tasks or "tasks." not in one[0][1])])
            if not any(word.startswith(entry[1] + "=") for word in own):
                own += self.setting(luck, entry, value, False)[0]
        data = luck.choice(DATA[name])
        words = ["tasks.yaml"] if tasks else []
        words += [f"data.train={data}", f"model.type={luck.choice(TYPES.get(name, [name]))}", "output=out", "solve.epochs=3", *SMALL.get(name, [])]
        words += ["data.label=label"] if data.startswith("table.") else []
        # what is said twice is an error, and the last word is the drawn one's
        said = {word.split("=")[0] for word in own}
        words = [word for word in words + base if word.split("=")[0] not in said]
        return [*words, *own, "--max-time", "2s"], luck.choice([1, 1, 1, 2, 3, 4]), not good


def write_data(folder, trireme):
    luck = random.Random(7)

    def write(name, lines):
        with open(os.path.join(folder, name), "w") as file:
            file.write("\n".join(lines) + "\n")
    rows = [(luck.random(), luck.gauss(0, 3), luck.choice("pqr"), luck.choice(["u", "v", ""])) for _ in range(60)]
    labels = [int(a + 0.2 * luck.random() > 0.6) for a, *_ in rows]
    write("rows.svm", [f"{y} 1:{a:.3f} {2 + i % 9}:{b:.3f} 12:1" for i, (y, (a, b, *_)) in enumerate(zip(labels, rows))])
    write("table.csv", ["a,b,c,d,label"] + [f"{a:.3f},{b:.3f},{c},{d},{y}" for y, (a, b, c, d) in zip(labels, rows)])
    write("numbers.csv", [f"{a:.3f},{b:.3f},{y}" for y, (a, b, *_) in zip(labels, rows)])
    write("weights", [str(1 + i % 3) for i in range(60)])
    write("ratings", [f"{1 + i % 12} {1 + i * 7 % 10} {1 + i % 5}" for i in range(100)])
    write("docword", ["15", "20", "60"] + [f"{1 + i // 4} {w} {1 + i % 3}" for i in range(60) for w in [1 + (i * 7) % 20]])
    write("job.yaml", ["{}"])
    write("tasks.yaml", ["tasks:", "  one: {}", "  two: {after: [one]}"])
    for text, table in (("rows.svm", "rows.h5"), ("table.csv", "table.h5")):
        subprocess.run([trireme, "convert", text, table], cwd=folder, check=True, stdout=subprocess.DEVNULL)


# ---- running them ----

TROUBLE = re.compile(r"Sanitizer|runtime error|MPI_ABORT|MPI_ERR|\*\*\* |Signal:|^-{20,}|Assertion|backtrace|stack smashing|corrupted", re.M)
# what mpirun of Open MPI 5 says after any exit code but 0, and has no option for leaving out
NOTICE = re.compile(r"^-{20,}\nprterun detected that one or more processes exited with non-zero status,\n(?s:.*?)Exit code:.*\n-{20,}\n", re.M)


def limit_memory():
    os.setsid()
    if "ASAN_OPTIONS" not in os.environ:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, folder, limit):
    """The exit code, None after that many seconds, and all that was said."""
    env = os.environ | {"TMPDIR": os.path.join(folder, "tmp"), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if "ASAN_OPTIONS" in env:
        env["ASAN_OPTIONS"] += f":allocator_may_return_null=1:max_allocation_size_mb={MEMORY >> 20}"
    with open(os.path.join(folder, "said"), "w+", errors="replace") as said:
        process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, preexec_fn=limit_memory)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        said.seek(0)
        return code, NOTICE.sub("", said.read(1 << 20))


def wrong(code, said, folder, bad, words):
    """What is not as it should be, or None."""
    errors = re.findall(r"^trireme: error: .*", said, re.M)
    if code is None:
        return f"no end within {LIMIT} s"
    if trouble := TROUBLE.search(said):
        return f"says «{said[trouble.start():].splitlines()[0][:120]}»"
    if code != 0 and not 64 <= code <= 78 or code in (69, 70):
        return f"exit code {code}"
    if code not in (0, 75) and len(errors) != 1 or code == 0 and errors:
        return f"exit code {code} with {len(errors)} lines of error"
    plugin = any(word.startswith("model.plugin=") for word in words)
    if bad and code not in ((64, 66, 77, 78) if plugin else (64, 78)):
        return f"exit code {code} for a value that cannot be"
    if code == 0 and "output=out" in words and "tasks.yaml" not in words:
        try:
            with open(os.path.join(folder, "out", "summary.json")) as file:
                objective = json.load(file).get("objective")
        except (OSError, ValueError) as error:
            return f"trained, but {error}"
        if not os.path.exists(os.path.join(folder, "out", "model.h5")):
            return "trained, but there is no model.h5"
        if not isinstance(objective, (int, float)) or not math.isfinite(objective):
            return f"trained, but the objective is {objective}"
    return None


def try_job(options, jobs, number, codes):
    words, ranks, bad = jobs.draw(number)
    launch = ["mpirun", *options.quiet, "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
    what = None
    for limit in (LIMIT, 3 * LIMIT):  # a busy machine may be slow once
        with tempfile.TemporaryDirectory(prefix="trireme-keys-") as parent:
            folder = shutil.copytree(options.data, os.path.join(parent, "job"))
            os.mkdir(os.path.join(folder, "tmp"))
            code, said = run([*launch, options.trireme, "train", *words], folder, limit)
            what = wrong(code, said, folder, bad, words)
        if code is not None:
            break
    codes[code] = codes.get(code, 0) + 1
    if not what:
        return True
    shown = " ".join(word if len(word) < 200 else word[:60] + "…" for word in words)
    text = f"keys: job {number}, {ranks} ranks: {what}: train {shown}\n    {os.path.relpath(__file__)} {options.given} --seed {number} --jobs 1\n"
    print(text, end="", flush=True)
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
        with open(os.path.join(options.keep, f"job-{number}"), "w") as file:
            file.write(text + said)
    elif options.jobs == 1:
        print(said)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--keep")
    options = parser.parse_args()
    options.given, options.trireme = options.trireme, os.path.abspath(options.trireme)
    options.quiet = ["-q"] if subprocess.run(["mpirun", "-q", "--version"], capture_output=True).returncode == 0 else []
    jobs, begun, done, found, codes = Jobs(options.trireme), time.monotonic(), 0, 0, {}
    end = math.inf if options.jobs is None and options.seconds is None else options.jobs or math.inf
    with tempfile.TemporaryDirectory(prefix="trireme-keys-") as options.data:
        write_data(options.data, options.trireme)
        while done < end and time.monotonic() - begun < (options.seconds or math.inf):
            found += not try_job(options, jobs, options.seed + done, codes)
            done += 1
    print(f"{len(jobs.good) + len(jobs.bad)} settings; exit codes:", ", ".join(f"{code}: {n}" for code, n in sorted(codes.items(), key=str)))
    print(f"stat::number_of_executed_units: {done}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

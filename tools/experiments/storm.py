"""Losing nothing (storm): jobs of a second or two under `trireme run`, half of them of JOBS, half drawn from all models,
layouts, consistencies and storages, on one host or on two of tools/hosts. Each is struck as experiments/blows.py has it until
it is done; who lost the supervisor, or whose disk failed, gives the command again. Each has to end with 0 and with what the
undisturbed job has learnt: under BSP with the same bits and the same metrics. It may not hang, and nothing of it may be
left: no process, nothing in shared memory, no temporary file. A job that cannot be is refused by one line. And jobs whose
disk is full from beginning to end.

TRIREME_SEED=N tools/bench storm 1 repeats the job of that seed; TRIREME_BLOWS=full,lossy draws from these kinds of blows alone;
with TRIREME_STORM_KEEP a job that hangs is left to a debugger."""
import concurrent.futures, glob, os, random, re, shutil, statistics, subprocess, sys, threading, time
from dataclasses import dataclass, field

from experiments.blows import POINTS, draw, faults
from experiments.common import OUT, TRIREME, goal, run, table, write_csv
from experiments.supervised import DISK, JUMP, Supervised, two_hosts

TIME = 180  # seconds without output after which a job counts as hanging; ten times that in total


# ---- jobs ----

@dataclass
class Job:
    """What is learnt, in which layout; roles by rank."""
    roles: str  # of c scheduler, s server, l leader, m another member of a group
    settings: dict
    data: str
    exact: bool = True  # BSP: the same bits
    clock: float = 0.05
    hosts: bool = False  # two
    reference: object = field(default=None, repr=False)

    def words(self, data):
        settings = {"experiment.clock": self.clock} if self.clock else {}
        if self.exact and self.data in ("rows", "classes") and self.settings.get("model.type") != "trees":
            settings["sync.mode"] = "bsp"  # linear models are as likely to share one among the ranks of a node
        settings |= {"data.train": data[self.data]} | self.settings
        return [f"{key}={value}" for key, value in settings.items()]


def dedicated(servers, size):
    return {"ranks.layout": "dedicated", "ranks.servers": servers, "ranks.group_size": size}


LINEAR = {"model.type": "logistic", "model.l2": 1e-3, "sync.push": "2 per epoch"}
DUAL = LINEAR | {"solve.method": "dual", "solve.target_gap": 0, "solve.epochs": 20}
SETTLED = {"solve.target_gap": 5e-4, "solve.epochs": 300}
SGD = LINEAR | {"solve.method": "sgd", "solve.epochs": 20, "solve.batch": 100}
SVRG = {"model.type": "logistic", "model.l2": 1e-3, "model.dtype": "f64", "solve.method": "svrg", "solve.epochs": 36,
        "stages.inner.parallelism": 1}
KMEANS = {"model.type": "kmeans", "model.clusters": 12, "solve.tolerance": 0, "solve.epochs": 30}
MF = {"model.type": "mf", "model.rank": 8, "solve.epochs": 6}
LDA = {"model.type": "lda", "model.topics": 20, "solve.epochs": 25, "model.optimize": "yes", "solve.optimize_every": 5}
JOBS = {
    "dual": Job("clll", DUAL, "rows"),
    "dual, dedicated": Job("csslll", DUAL | dedicated(2, 1), "rows"),
    "sgd with adam, groups": Job("csslmlm", SGD | dedicated(2, 2) | {"solve.optimizer": "adam", "solve.rate": 0.01}, "rows"),
    "sgd, hash storage": Job("cll", SGD | {"table.storage": "hash", "solve.optimizer": "adagrad"}, "rows"),
    "sgd, vertical": Job("cslmlm", SGD | dedicated(1, 2) | {"data.partition": "vertical"}, "rows"),
    "sgd, momentum at workers": Job("cll", SGD | {"solve.optimizer": "momentum", "solve.optimizer_at": "worker"}, "rows"),
    "lloyd": Job("cslll", KMEANS | dedicated(1, 1), "points"),
    "minibatch": Job("cll", {"model.type": "kmeans", "model.clusters": 12, "solve.method": "minibatch", "solve.batch": 500, "solve.epochs": 8}, "points"),
    "mf": Job("cslmlm", MF | dedicated(1, 2) | {"solve.method": "sgd"}, "ratings"),
    "als": Job("clll", MF | {"solve.method": "als", "solve.epochs": 12}, "ratings"),
    "lda": Job("cmm", LDA | {"ranks.groups": 1}, "bags"),
    "lda, dedicated": Job("cssll", LDA | dedicated(2, 1), "bags"),
    "svrg": Job("clll", SVRG, "rows"),
    "dual, hosts": Job("clll", DUAL, "rows", hosts=True),
    "mf, hosts": Job("cslmlm", MF | dedicated(1, 2) | {"solve.method": "sgd"}, "ratings", hosts=True),
    "growing": Job("clll", LINEAR | {"solve.method": "growing", "solve.rate": 0.5}, "rows", exact=False, clock=0.002),
    "dual, ssp": Job("csslll", DUAL | SETTLED | dedicated(2, 1) | {"sync.mode": "ssp"}, "rows", exact=False),
    "sgd dyn, asp": Job("clll", SGD | {"sync.mode": "asp", "sync.weight": "dyn", "solve.rate": 0.1}, "rows", exact=False),
}
NAMES = {"c": "scheduler", "s": "server", "l": "leader", "m": "member", "r": "rank"}
COUNTS = {"kmeans": "sizes", "lda": "topic_tokens"}  # arrays of model.h5 that add up to what the data have
REFUSED = (64, 65, 76, 78)  # exit codes of a job that cannot be, or diverges


def drawn(luck):
    """A job of any model, layout, consistency and storage. It may be one that is refused."""
    def some(share, **choices):
        return {key.replace("__", "."): luck.choice(values) for key, values in choices.items() if luck.random() < share}
    data, settings = luck.choice([
        ("rows", {"model.type": luck.choice(["logistic", "svm", "l2svm", "linear"]), "solve.epochs": 12, "solve.method":
                  luck.choice(["auto", "dual", "newton", "descent", "sgd", "svrg", "katyusha", "growing"])}),
        ("classes", {"solve.epochs": 8, "solve.method": luck.choice(["auto", "dual", "newton", "sgd"])}),
        ("points", {"model.type": "kmeans", "model.clusters": 9, "solve.epochs": 15,
                    "solve.method": luck.choice(["lloyd", "minibatch"])}),
        ("ratings", {"model.type": "mf", "model.rank": 4, "solve.epochs": 5, "solve.method": luck.choice(["sgd", "als"])}),
        ("bags", {"model.type": "lda", "model.topics": 10, "solve.epochs": 10}),
        ("classes", {"model.type": "trees", "solve.epochs": 8, "model.leaves": 8}),
    ])
    settings |= some(0.4, ranks__layout=["colocated", "dedicated"], ranks__group_size=[1, 2, 3], ranks__node_size=[1, 2])
    if settings.get("model.type") != "trees":
        settings |= some(0.5, sync__mode=["ssp", "asp", "auto"])
    settings |= some(0.1, sync__weight=["con", "dyn", "auto"], table__storage=["hash"], table__route=["load", "get", "request"],
                     table__push=["merge", "accumulate", "message"], table__precision=["f16", "bf16", "f8"],
                     data__storage=["disk", "memory_disk"], data__partition=["vertical", "replicated"],
                     data__test=["20%"], data__order=["file"], seed=[7])
    settings |= some(0.7, experiment__clock=[0.002, 0.02])
    if settings.get("solve.method") == "sgd":
        settings["solve.rate"] = 0.1  # to look for one takes longer than such a job
    if settings.get("sync.mode") and settings.get("solve.method") == "dual" and data == "rows":
        settings |= SETTLED
    if settings.get("sync.mode") and settings.get("solve.method") == "als":
        settings["solve.epochs"] = 40  # eight undisturbed runs of 5 epochs end at 0.76 to 1.85, of 40 at 0.730 to 0.735
    if "data.storage" in settings:
        settings |= {"data.scratch": ".", "data.memory": "1MB"}
    exact = ("sync.mode" not in settings and settings.get("solve.method") != "growing"
             and settings.get("table.push") != "accumulate")  # see docs/recovery.md
    ranks = luck.randint(1, 9)
    return Job("r" * ranks, settings, data, exact, clock=None, hosts=ranks > 1 and luck.random() < 0.2)


def make_data(folder):
    """Small sets of each kind, by name."""
    os.makedirs(folder, exist_ok=True)
    sets = {"rows": ("ctr", "rows=4k features=2k nonzeros=10"), "points": ("dense", "rows=4k columns=6 clusters=9"),
            "ratings": ("ratings", "users=400 items=150 ratings=9k"),
            "bags": ("docword", "documents=200 words=300 tokens=9k"),
            "classes": ("dense", "rows=3k columns=6 clusters=4 spread=1 label=last format=csv")}
    for name, (kind, sizes) in sets.items():
        run(TRIREME, "generate", kind, "-o", os.path.join(folder, name), *sizes.split())
    return {name: os.path.join(folder, name) for name in sets}


def same_model(one, two):
    text = [os.path.join(x.output, "model.txt") for x in (one, two)]
    if all(map(os.path.exists, text)):
        return open(text[0]).read() == open(text[1]).read()
    if not shutil.which("h5diff"):
        return True
    models = [os.path.join(x.output, "model.h5") for x in (one, two)]
    return subprocess.run(["h5diff", "--exclude-path", "/job", *models], capture_output=True).returncode == 0


def counted(one, name):
    """The sum of an array of whole numbers of its model; None where h5dump is not there."""
    if not shutil.which("h5dump"):
        return None
    dump = subprocess.run(["h5dump", "-y", "-w", "0", "-d", name, os.path.join(one.output, "model.h5")], capture_output=True, text=True)
    return sum(map(int, re.findall(r"\d+", dump.stdout.partition("DATA {")[2])))


def how_near(job):
    """The allowed distance between the objectives with and without faults. A job with a proven gap ends nearly exactly at the
    same objective; other methods stop after some epochs, on their way, and clusters settle in one of many local optima: twelve
    undisturbed runs of one job under ssp or asp lie up to 5.6 % apart, and eight passes over classes end at 0.24 to 0.31."""
    if 0 < float(job.settings.get("solve.target_gap", 0)) < 1e-3:
        return 1e-3
    return 0.3 if job.data == "classes" else 0.2 if job.settings.get("model.type") == "kmeans" else 0.05


def what_is_wrong(job, one, blows):
    """Complaints about a job that is over."""
    found = one.left()
    if any(b.kind in ("SIGKILL", "SIGSEGV") and b.target == "supervisor" for b in blows):
        # its mpirun is told to end then, and leaves its folder where it begins just now and knows no signals yet
        found = [x for x in found if f"{os.sep}ompi." not in x]
    if any(b.target in ("daemon", "host") for b in blows):
        found = [x for x in found if not x.startswith("/dev/shm/")]  # of a host that is lost nobody cleans up
    alike = len({b.target for b in blows}) == 1 or one.said().count(" while starting") >= 3
    if len(blows) >= 3 and alike and "the same failure 3 times in a row" in one.said():
        return found  # and so they were
    if one.process.returncode != 0:
        return found + [f"exit {one.process.returncode}"]
    mine, theirs = one.summary().get("objective"), job.reference.summary().get("objective")
    if mine is None or theirs is None:
        found.append(f"objective {mine}, undisturbed {theirs}: a summary without one")
    elif job.exact and mine != theirs:
        found.append(f"objective {mine}, undisturbed {theirs}")
    elif not job.exact and abs(mine - theirs) > how_near(job) * abs(theirs):
        found.append(f"objective {mine}, undisturbed {theirs}")
    name = COUNTS.get(job.settings.get("model.type"))  # also without steps in common each row, each token counts once
    if name and counted(one, name) != counted(job.reference, name):
        found.append(f"{name} add up to {counted(one, name)}, undisturbed {counted(job.reference, name)}")
    if job.exact and not same_model(one, job.reference):
        found.append("another model")
    if job.exact and one.numbers() != job.reference.numbers():
        found.append("other metrics")
    return found


# ---- the storm ----

def alone_again(one):
    """After its supervisor has ended: whether all others end by themselves, within a minute."""
    begin = time.time()
    while one.processes():
        if time.time() - begin > 60:
            return False
        time.sleep(0.05)
    return True


def through(one, blows, seconds=0):
    """Strikes a job that takes so long undisturbed until it is over, and gives the command again where a blow may have ended
    it; complaints."""
    waiting, last, ends = [b for b in blows if b.kind not in POINTS], one.began, list(blows)
    patience, heard, since = TIME + 5 * seconds, 0, one.began
    while True:
        if waiting and time.time() - last > waiting[0].when and waiting[0].land(one):
            waiting.pop(0)
            last = time.time()
        if one.is_over():
            code = one.process.returncode
            cause = next((b for b in ends if b.may_end(code)), None)
            if code == 0 or not cause:
                return []
            if not alone_again(one):
                return [f"{sum(map(len, one.processes().values()))} processes a minute after the supervisor"]
            ends.remove(cause)
            one.seconds = None
            one.start()
        if one.heard() > heard:
            heard, since = one.heard(), time.time()
        if time.time() > min(since + patience, one.began + 10 * patience):
            return [hanging(one, time.time() - one.began)]
        time.sleep(0.005)


def hanging(one, seconds):
    """What there is of a job that takes too long; ends it, unless TRIREME_STORM_KEEP is there: for a debugger."""
    there = one.processes()
    while os.environ.get("TRIREME_STORM_KEEP") and one.process.poll() is None:
        print(f"  hangs: {one.folder}, {there}", flush=True)
        time.sleep(30)
    one.end()
    one.is_over()
    return f"hangs: {sum(map(len, there.values()))} processes after {seconds:.0f} s"


def storm(job, data, folder, luck):
    """One job and its blows, until it is over: the blows, the job, and complaints."""
    blows = draw(luck, job, job.reference.seconds)
    extra = [f"checkpoint.every={luck.choice(['1 clocks', '3 clocks', '3 clocks', '150ms', '30s'])}"]
    if luck.random() < 0.5:
        extra.append(f"checkpoint.memory={luck.choice(['1 clocks', '50ms'])}")
    one = Supervised(folder, len(job.roles), job.words(data) + extra, faults(blows), hosts=job.hosts,
                     disk=DISK if any(b.target == "disk" for b in blows) else None, clock=any(b.kind == "clock" for b in blows))
    return blows, one, through(one, blows, job.reference.seconds) or what_is_wrong(job, one, blows)


def clocks_lost(said):
    """What the supervisor says, for each restart."""
    lines = [line for line in said.splitlines() if "starting again" in line]
    lost = [re.search(r"(\d+) clocks? (?:since|is lost|are lost)", line) for line in lines]
    return [int(m.group(1)) if m else 0 for m in lost]


def undisturbed(job, data, folder):
    """The job as it ends if nothing happens, and complaints; no reference where it is refused."""
    one = Supervised(folder, len(job.roles), job.words(data) + ["checkpoint.every=no"], hosts=job.hosts)
    wrong = through(one, [])
    code, errors = one.process.returncode, [line for line in one.said().splitlines() if "error: " in line]
    if code == 0 and not wrong:
        job.reference = one
        wrong = one.left()
    elif code not in REFUSED:
        wrong = wrong or [f"exit {code}: {(errors or ['without a word'])[0]}"]
    elif len(errors) != 1:
        wrong = [f"exit {code} with {len(errors)} errors"]
    return wrong


@dataclass
class Story:
    """What became of a job."""
    name: str
    job: Job
    blows: list
    seconds: float  # lost
    lost: list  # clocks, by restart
    wrong: list  # complaints

    def kind(self):
        if not self.blows:
            return "nothing"
        target = {b.target for b in self.blows}
        target = "several in turn" if len(target) > 1 else next(iter(target))
        return f"{self.blows[0].kind}, {NAMES[self.job.roles[target]] if isinstance(target, int) else target}"


def show(stories):
    rows = []
    for kind in sorted({s.kind() for s in stories}):
        these = [s for s in stories if s.kind() == kind]
        struck = [s for s in these if s.lost and not s.wrong]
        clocks = [c for s in these for c in s.lost]
        rows.append([kind, len(these), len(clocks), statistics.median(s.seconds / len(s.lost) for s in struck) if struck else None,
                     statistics.median(clocks) if clocks else None, max(clocks, default=None), sum(bool(s.wrong) for s in these)])
    head = ["what, to target", "jobs", "restarts", "seconds lost by each", "clocks lost, median", "most", "failed"]
    table("a process is killed or stopped, or a rank dies at a point", head, rows)
    write_csv("storm", head, rows)
    rows = []
    for name in sorted({s.name for s in stories}):
        these = [s for s in stories if s.name == name]
        rows.append([name, len(these), sum(s.job.reference is None for s in these), sum(len(s.lost) for s in these),
                     sum(bool(s.wrong) for s in these)])
    table("by model", ["job", "jobs", "refused", "restarts", "failed"], rows)


def storms(data, folder, n, seed):
    """n jobs, one per core at a time; each is determined by its seed."""
    hosts = two_hosts()
    pool, turn = concurrent.futures.ThreadPoolExecutor(os.cpu_count()), {name: threading.Lock() for name in JOBS}

    def tell(number):
        luck, path = random.Random(number), os.path.join(folder, f"storm-{number}")
        name = luck.choice(list(JOBS)) if luck.random() < 0.5 else None
        job, blows, lost, seconds, wrong = JOBS.get(name) or drawn(luck), [], [], 0, []
        job.hosts = job.hosts and hosts
        if not name:
            name = f"any {job.settings.get('model.type', 'classes')}"
            wrong = undisturbed(job, data, f"{path}-still")
        else:
            with turn[name]: # one reference for all jobs of that name
                wrong = [] if job.reference else undisturbed(job, data, os.path.join(folder, f"still-{name}".replace(", ", "-")))
        if job.reference and not wrong:
            blows, one, wrong = storm(job, data, path, luck)
            lost, seconds = clocks_lost(one.said()), one.seconds - job.reference.seconds
        if wrong:
            print(f"  {name}, seed {number}: {'; '.join(wrong)}; {blows}; see {path}*", flush=True)
        else:
            shutil.rmtree(path, ignore_errors=True)
            shutil.rmtree(f"{path}-still", ignore_errors=True)
        return Story(name, job, blows, seconds, lost, wrong)
    return list(pool.map(tell, range(seed, seed + n)))


# ---- the disk is full ----

def full_disk(data, folder):
    """Writes that fail now and then, and a file system with room for two checkpoints where three are kept."""
    job, rows, wrong = JOBS["dual"], [], 0
    if not job.reference and undisturbed(job, data, os.path.join(folder, "still-dual")):
        sys.exit(f"bench: see {folder}/still-dual")
    cases = {"one write in fifty fails": ("checkpoint.write=enospc:0.02:3", None)}
    if Supervised.private:
        cases["a disk of 250 kB"] = ("", "250k")
    for what, (fault, disk) in cases.items():
        words = job.words(data) + ["checkpoint.every=4 clocks"] + (["output=run", "checkpoint.to=disk"] if disk else [])
        one = Supervised(os.path.join(folder, "full"), len(job.roles), words, fault, disk=disk)
        one.process.wait(TIME)
        code, said = one.process.returncode, one.said() + one.said("out")
        warnings = said.count("is not written")
        kept = glob.glob(os.path.join(one.folder if disk else one.output + "/checkpoints", "0*", "manifest.h5"))
        same = same_model(one, job.reference) and one.numbers() == job.reference.numbers()
        wrong += not (code in ((74,) if disk else (0, 74)) and warnings > 0 and same and (kept or not disk))
        rows.append([what, code, one.summary().get("checkpoints"), one.summary().get("checkpoints_failed"), warnings, len(kept),
                     "the same" if same else "another"])
    table("the disk is full", ["what", "exit code", "checkpoints", "failed", "warnings", "left there", "model"], rows)
    return wrong


def storms_of(quick):
    n = int(os.environ.get("TRIREME_STORMS", 20 if quick else 200))
    seed = int(os.environ.get("TRIREME_SEED", 1))
    folder = os.path.join(OUT, f"storm-{os.getpid()}")
    data = make_data(os.path.join(folder, "data"))
    stories = storms(data, folder, n, seed)
    if not os.path.exists(JUMP):
        print("bench: clocks are not set: the tests are not built")
    if not Supervised.private:
        print("bench: /dev/shm cannot be made private here: leftovers there are not checked")
    show(stories)
    unwritten = full_disk(data, folder)
    wrong = sum(bool(s.wrong) for s in stories)
    print("\ngoals")
    goal("storm wrong", wrong, f"{n} jobs, seeds {seed} to {seed + n - 1}, started again {sum(len(s.lost) for s in stories)} times")
    goal("storm full disk", unwritten)
    if not wrong and not unwritten:
        shutil.rmtree(folder, ignore_errors=True)

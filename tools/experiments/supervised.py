"""Jobs under `trireme run`, each in a folder of its own, with processes, links, disks and a clock that can be struck."""
import csv, glob, itertools, json, os, shutil, signal, struct, subprocess, time

from experiments.common import BUILD, ENV, ROOT, TRIREME

LIMIT = 2  # seconds without a sign of life, after which a rank counts as dead
HOSTS = os.path.join(ROOT, "tools", "hosts")
HEARD = f"--heartbeat 200ms --limit {LIMIT}s --max-restarts 20".split()
JUMP = os.path.join(BUILD, "tests", "jump_clock.so")
DISK = "64m"  # of a job with a file system of its own


def role_of(path, rank):
    """Of the process that /proc has there, whose environment says this rank or none."""
    if rank is not None:
        return rank
    try:
        with open(path.replace("environ", "cmdline"), "rb") as f:
            words = f.read().split(b"\0")
    except OSError:
        return None
    program = os.path.basename(words[0])
    return "mpirun" if program in (b"mpirun", b"orterun", b"prterun") else "daemon" if program in (b"orted", b"prted") else \
        "supervisor" if program == b"trireme" and words[1] == b"run" else None


def network(pid):
    """What tells the hosts of tools/hosts apart."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def alone():
    """Words that start a command with mounts of its own; none where this cannot be had."""
    words = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    can = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode == 0
    return words if can else []


def two_hosts():
    """Whether tools/hosts can make them."""
    return subprocess.run([HOSTS, "true"], capture_output=True).returncode == 0


class Supervised:
    """A job under trireme run, in a folder of its own. Its processes are known by a variable of the environment."""
    number = itertools.count()
    private = None

    def __init__(self, folder, ranks, words, fault="", options=(), disk=None, hosts=False, clock=False):
        """hosts: half of the ranks are on another one; disk: a folder of it that is a file system of that size, and where its
        output is; copied into the job's at last; clock: it can be set for each process."""
        if Supervised.private is None:
            Supervised.private = alone()
        self.folder, self.output, self.disk = folder, os.path.join(folder, "run"), disk
        self.temporary, self.log = os.path.join(folder, "tmp"), os.path.join(folder, "log")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self.temporary)
        with open(os.path.join(folder, "job.yaml"), "w") as f:
            f.write("name: storm\n")
        name, value = "TRIREME_BENCH", f"{os.getpid()}.{next(self.number)}"
        self.mark = f"{name}={value}".encode()
        self.env = ENV | {name: value, "TMPDIR": self.temporary} | ({"TRIREME_FAULT": fault} if fault else {})
        if clock:
            self.set_clock({})
            self.env |= {"LD_PRELOAD": JUMP, "TR_CLOCK": os.path.join(folder, "clock")}
        self.command = self.whole_command(ranks, words, options, hosts)
        self.began, self.seconds, self.passing = time.time(), None, None
        self.start()

    def whole_command(self, ranks, words, options, hosts):
        """trireme run, in surroundings that are private to the job as far as these can be had."""
        output = "disk/run" if self.disk else "run"
        command = [TRIREME, "run", "job.yaml", "-n", str(ranks), *(options or HEARD), "--log", "log", f"output={output}", *words]
        script = 'mount -t tmpfs tmpfs /dev/shm || exit 99; "$@"; code=$?; ls -A /dev/shm >shared; exit $code'
        if self.disk:
            os.makedirs(os.path.join(self.folder, "disk"))
            script = f"mount -t tmpfs -o size={self.disk} tmpfs disk || exit 99; [ ! -d run ] || mv run disk; " + \
                script.replace("exit $code", "cp -a disk/. .; exit $code")
        if hosts:
            return [HOSTS, "--slots", str((ranks + 1) // 2), "sh", "-c", script, "sh", *command]
        return [*Supervised.private, "sh", "-c", script, "sh", *command] if Supervised.private else command

    def start(self):
        """The command, for the first time or again."""
        with open(os.path.join(self.folder, "out"), "a") as out, open(os.path.join(self.folder, "err"), "a") as err:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=self.env,
                                            cwd=self.folder, start_new_session=True)

    def processes(self):
        """Process numbers by rank of MPI_COMM_WORLD, "mpirun", "daemon" (of another host), "supervisor", and None: who started
        that."""
        found = {}
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if self.mark in words:
                rank = next((int(w[21:]) for w in words if w.startswith(b"OMPI_COMM_WORLD_RANK=")), None)
                found.setdefault(role_of(path, rank), []).append(int(path.split("/")[2]))
        return found

    # ---- faults ----

    def strike(self, target, number):
        """Sends a signal to a rank, all of them ("all"), mpirun, the daemon of the second host or all that runs there
        ("host"), the supervisor or all there is ("everything"); whether there is one."""
        there = self.processes()
        pids = there.get(target, [])
        if target == "all":
            pids = [p for role in there if isinstance(role, int) for p in there[role]]
        elif target == "everything":
            pids = [p for role in there if role is not None for p in there[role]]
        elif target == "host":
            host = {network(p) for p in there.get("daemon", [])}
            pids = [p for role in there for p in there[role] if network(p) in host]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        return bool(pids)

    def for_a_while(self, begin, end, seconds):
        """Two commands of the shell among the mounts of the job and in its folder, one now and one then; whether the first was
        possible."""
        there = next(iter(self.processes().get(0, [])), None)
        if not there:
            return False
        # one process does both, since the ranks may have others' numbers by then
        script = f"cd '{self.folder}' && {begin} && {{ echo; sleep {seconds}; {end}; }}"
        self.passing = subprocess.Popen(["nsenter", "--target", str(there), "--mount", "sh", "-c", script],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return bool(self.passing.stdout.readline())

    def set_clock(self, jumps):
        """By this number of seconds for each rank; -1: for all other processes."""
        with open(os.path.join(self.folder, "clock"), "r+b" if jumps else "wb") as f:
            for rank, jump in (jumps or dict.fromkeys(range(-1, 64), 0)).items():
                f.seek(8 * (rank + 1))
                f.write(struct.pack("=q", jump))
        return True

    # ---- how it ends ----

    def is_over(self):
        if self.seconds is None and self.process.poll() is not None:
            self.seconds = time.time() - self.began
        return self.seconds is not None

    def end(self):
        """Whatever is left of it: by SIGKILL."""
        for pid in itertools.chain(*self.processes().values()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def said(self, name="err"):
        try:
            with open(os.path.join(self.folder, name), errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def heard(self):
        """How many bytes it has said."""
        paths = [os.path.join(self.folder, name) for name in ("out", "err", "log")]
        return sum(os.path.getsize(path) for path in paths if os.path.exists(path))

    def summary(self):
        try:
            with open(os.path.join(self.output, "summary.json")) as f:
                return json.load(f)
        except (OSError, ValueError):
            return {}

    def numbers(self):
        """What metrics.csv says of the training, not of its speed."""
        columns = ["epoch", "clock", "objective", "gap", "test_metric", "updates"]
        try:
            with open(os.path.join(self.output, "metrics.csv")) as f:
                return [[row[c] for c in columns] for row in csv.DictReader(f)]
        except OSError:
            return []

    def left(self):
        """What is there and ought not to be, in words; once it is over."""
        found = [f"process {pid}" for pids in self.processes().values() for pid in pids]
        found += [f"/dev/shm/{name}" for name in self.said("shared").split()]
        # an mpirun that is killed leaves empty folders; to remove them would be in the way of another that starts
        found += [os.path.join(path, name) for path, _, files in os.walk(self.temporary) for name in files]
        found += [os.path.join(path, name) for path, _, files in os.walk(self.output) for name in files if name.endswith(".part")]
        kept = os.path.join(self.output, "checkpoints")
        whole = [n for n in sorted(os.listdir(kept)) if os.path.exists(os.path.join(kept, n, "manifest.h5"))] \
            if os.path.isdir(kept) else []
        for name in os.listdir(kept) if whole else []:
            if name.isdigit() and name < whole[-1] and name not in whole:
                found.append(f"checkpoint {name} without a manifest")
        if len(whole) > 3:
            found.append(f"{len(whole)} checkpoints")
        return found

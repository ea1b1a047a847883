"""What can happen to a job: its processes are killed or stopped, its links, its disk and its memory fail for a while, its
clocks are set. Which of these, when and to target is drawn at random, from a seed that repeats it."""
import os, random, signal, threading
from dataclasses import dataclass

from experiments.supervised import DISK, JUMP, LIMIT, Supervised


@dataclass
class Blow:
    """What happens to a job."""
    kind: str  # a signal, "pause", "clock", the name of a point, or one of WHILE
    target: object  # a rank, "all" of them, "mpirun", "daemon", "host", "supervisor", "everything"; the link, disk or memory
    when: float  # seconds since the one before it, or the beginning; or at which visit of the point
    seconds: float = 0  # that it lasts, or the clock jumps

    def land(self, one):
        """Whether there was somebody to strike."""
        if self.kind in WHILE:
            return one.for_a_while(*WHILE[self.kind][1:], self.seconds)
        if self.kind == "clock":
            ranks = {"everything": range(-1, 64), "supervisor": [-1]}.get(self.target) or [self.target]
            return one.set_clock(dict.fromkeys(ranks, int(self.seconds)))
        if self.kind == "pause":
            threading.Timer(self.seconds, one.strike, (self.target, signal.SIGCONT)).start()
        return one.strike(self.target, signal.SIGSTOP if self.kind == "pause" else getattr(signal, self.kind))

    def may_end(self, code):
        """Whether it may be the reason for this exit code of a job that the next command resumes."""
        codes = {"disk": (73, 74), "memory": (71,), "daemon": (69,), "host": (69,)} # of these before there is a rank
        return self.target == "supervisor" or code in codes.get(self.target, ())


DROP = "bpf da bytecode '4,32 0 0 4294963256,53 0 1 128849018,6 0 0 0,6 0 0 2'"  # 3 % of 2^32, by SKF_AD_RANDOM
SHRINK = "mount -o remount,size=$(($(df --output=used -k {0} | tail -n 1) + 4))k {0}"  # 0 would be: no limit
WHILE = {  # what fails for a while: target, and the commands by which it fails and recovers
    "cut": ("link", "ip -n switch link set port2 down", "ip -n switch link set port2 up"),
    "slow": ("link", "tc -n h2 qdisc add dev eth0 root tbf rate 800kbit burst 16kb latency 20ms", "tc -n h2 qdisc del dev eth0 root"),
    "delayed": ("link", "tc -n h2 qdisc add dev eth0 root tbf rate 4mbit burst 16kb latency 1s", "tc -n h2 qdisc del dev eth0 root"),
    "lossy": ("link", "tc -n h2 qdisc add dev eth0 clsact && for way in ingress egress; do tc -n h2 filter add dev eth0 $way "
              f"{DROP}; done", "tc -n h2 qdisc del dev eth0 clsact"),
    "full": ("disk", SHRINK.format("disk"), f"mount -o remount,size={DISK} disk"),
    "read-only": ("disk", "mount --bind disk disk && mount -o remount,ro,bind disk", "umount -l disk"),
    "shm full": ("memory", SHRINK.format("/dev/shm"), "mount -o remount,size=1g /dev/shm"),
}
POINTS = {"checkpoint.write": 40, "checkpoint.shard": 6, "checkpoint.manifest": 5, "pull": 40, "merge": 40, "stage": 2,
          "stage.end": 2, "load": 1}
JUMPS = [-86400, -5, 5, 3600, 40_000_000]


def faults(blows):
    """Those at points, as TRIREME_FAULT takes them."""
    points = [b for b in blows if b.kind in POINTS]
    return ",".join(f"{b.kind}=kill@{b.target}:#{b.when}:0:{i}" for i, b in enumerate(points))


def kinds_for(job):
    """What can happen to it here, by how often; of these only what TRIREME_BLOWS names, if that can."""
    kinds = {"SIGKILL": 10, "SIGSTOP": 4, "SIGSEGV": 2, "SIGTERM": 2, "pause": 3} | dict.fromkeys(POINTS, 1)
    if os.path.exists(JUMP):
        kinds["clock"] = 3
    if Supervised.private:
        kinds |= {kind: 2 for kind in WHILE if WHILE[kind][0] != "link"}
    if job.hosts:
        kinds |= {kind: 5 for kind in WHILE if WHILE[kind][0] == "link"}
    some = os.environ.get("TRIREME_BLOWS", "")
    return {kind: n for kind, n in kinds.items() if kind in some.split(",")} or kinds


def somebody(luck, job, kind):
    """Whom it happens to."""
    rank, more = luck.randrange(len(job.roles)), ["daemon", "host"] if job.hosts else []
    if kind in WHILE:
        return WHILE[kind][0]
    if kind == "SIGTERM":
        return "supervisor"
    if kind == "checkpoint.manifest":
        return 0
    if kind == "pull":
        return luck.choice([r for r in range(len(job.roles)) if job.roles[r] in "lmr"] or [0])
    if kind == "pause" and luck.random() < 0.5:
        return luck.choice(["all", "mpirun", "supervisor", "everything", *more])
    if kind == "clock" and luck.random() < 0.5:
        return luck.choice(["everything", "supervisor"])
    if kind in ("SIGKILL", "SIGSEGV") and luck.random() < 0.3:
        return luck.choice(["all", "mpirun", "supervisor", *more])
    if kind == "SIGSTOP" and luck.random() < 0.3:
        return luck.choice(["all", "mpirun", *more])
    return rank


def draw(luck, job, seconds):
    """One blow or several in a row, all of one kind, for a job that takes so long."""
    kinds = kinds_for(job)
    kind = luck.choices(list(kinds), list(kinds.values()))[0]
    blows = []
    while not blows or (len(blows) < 3 and luck.random() < 0.4):
        target = somebody(luck, job, kind)
        if kind in POINTS:
            blows.append(Blow(kind, target, luck.randint(1, POINTS[kind])))
            continue
        lasts = luck.choice([0.3, 1, 5]) if kind in WHILE or kind == "pause" else luck.choice(JUMPS) if kind == "clock" else 0
        away = LIMIT if kind == "SIGSTOP" else lasts if kind == "pause" or kind in WHILE else 0
        when = luck.uniform(away + 0.5, away + seconds) if blows else luck.uniform(0.05, 0.95 * seconds)
        blows.append(Blow(kind, target, when, lasts))
    return blows

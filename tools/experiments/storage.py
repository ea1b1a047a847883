"""Where rows are (E5): ten epochs of logistic regression with all rows in memory, half of them, and next to none, which are read from
the disk once where the system's cache has room for them, and else as often as they are used; and the same under a limit of memory
that the rows alone exceed."""
import os, shutil, statistics, subprocess
from experiments.common import ENV, OUT, TRIREME, goal, run as program, table, train, write_csv

SCRATCH = os.path.join(OUT, "scratch")
GROUP = "/sys/fs/cgroup/memory/trireme-e5"
FOLDER = os.path.join(OUT, "run")


def made_up(rows):
    file = os.path.join(OUT, f"storage-{rows}.svm")
    if not os.path.exists(file):
        os.makedirs(OUT, exist_ok=True)
        program(TRIREME, "generate", "ctr", "-o", file, f"rows={rows}", "features=100k", "nonzeros=40", "values=real")
    return file


def forget(folder):
    """What the system holds of the files goes, so that the disk is read."""
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(path, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def job(data, method, level, memory):
    wanted = {"data.train": data, "data.scale": "none", "data.partition": "horizontal", "model.type": "logistic", "model.l2": 1e-4,
              "solve.method": method, "solve.epochs": 10, "report.every": 10}
    if method != "sgd":
        wanted["solve.target_gap"] = 0
    else:
        wanted["solve.rate"] = 1
    if level != "memory":
        wanted |= {"data.storage": level, "data.scratch": SCRATCH, "data.memory": memory}
    return wanted


def peaks(data, limit):
    """Each level under a limit for all processes: whether it comes to its end, and the most memory that it had. A kernel may let
    processes crawl that read their own pages again and again: they have some minutes."""
    rows = []
    try:
        os.makedirs(GROUP, exist_ok=True)
        with open(f"{GROUP}/memory.limit_in_bytes", "w") as f:
            f.write(str(limit))
    except OSError:
        print("    no cgroup can be created here: the levels under a limit are skipped")
        return rows
    for level in ("memory", "memory_disk", "disk"):
        words = [f"{key}={value}" for key, value in job(data, "dual", level, limit // 4).items()]
        with open(f"{GROUP}/memory.max_usage_in_bytes", "w") as f:
            f.write("0")
        line = f"echo $$ >{GROUP}/cgroup.procs && exec timeout 300 mpirun -q -n 2 --oversubscribe \"$@\""
        done = subprocess.run(["sh", "-c", line, "sh", TRIREME, "train", os.path.join(OUT, "run.yaml"), f"output={FOLDER}", "report.progress=no", *words],
                              capture_output=True, text=True, env=ENV | {"TRIREME_MEMORY": "/nowhere"}, check=False)
        with open(f"{GROUP}/memory.max_usage_in_bytes") as f:
            rows.append([level, limit / 1e6, "ends" if done.returncode == 0 else "no end" if done.returncode == 124 else f"exit {done.returncode}", int(f.read()) / 1e6])
        shutil.rmtree(FOLDER, ignore_errors=True)
    os.rmdir(GROUP)
    return rows


def e5(quick):
    data = made_up("200k" if quick else "500k")
    shutil.rmtree(SCRATCH, ignore_errors=True)
    os.makedirs(SCRATCH)
    first = train(2, job(data, "dual", "disk", 0)).summary
    bytes_of = int(first["data_disk_bytes"])
    second = train(2, job(data, "dual", "disk", 0)).summary
    rows, ratio = [], {}
    for method in ("newton", "dual", "sgd"):
        runs = {level: [] for level in ("memory", "memory_disk", "disk")}
        for _ in range(1 if quick else 3):
            for level in runs:  # in turns: the machine may have other work
                forget(SCRATCH)
                runs[level].append(train(2, job(data, method, level, bytes_of // 2)).summary)
        for level, of in runs.items():
            def middle(name, of=of):
                return statistics.median(s.get(name, 0) for s in of)
            read, waited = middle("data_read_seconds"), middle("data_waited_seconds")
            ratio[method, level] = statistics.median(a["train_seconds"] / b["train_seconds"] for a, b in zip(of, runs["memory"]))
            rows.append([method, level, middle("train_seconds"), ratio[method, level], middle("data_read_bytes") / 1e6,
                         middle("data_dropped_bytes") / 1e6,
                         max(0, 1 - waited / read) if read else None, middle("data_memory_bytes") / 1e6,
                         middle("peak_rss_bytes") / 1e6, of[0]["objective"]])
    head = ["method", "storage", "train s", "times memory", "MB read", "MB forgotten", "hidden", "MB in memory", "peak MB a rank", "objective"]
    table(f"E5: 10 epochs, 2 ranks, {bytes_of / 1e6:.0f} MB of rows; memory_disk has room for half of them", head, rows)
    write_csv("E5", head, rows)
    limited = peaks(data, bytes_of * 3 // 4 + 2 * 24_000_000)  # the programs and their libraries
    if limited:
        more = ["storage", "limit MB", "outcome", "most MB"]
        table("E5: the same under a limit for all processes", more, limited)
        write_csv("E5-limit", more, limited)
    print("\ngoals")
    for method in ("newton", "dual", "sgd"):
        goal("E5 memory_disk", ratio[method, "memory_disk"], method)
        goal("E5 disk", ratio[method, "disk"], method)
    again = second["load_seconds"] / first["load_seconds"]
    goal("E5 second start", again)
    for level, _, outcome, most in limited:
        goal("E5 limit", outcome == "ends" or level == "memory", f"{level} under {limited[0][1]:.0f} MB: {outcome}, {most:.0f} MB at most")
    shutil.rmtree(SCRATCH, ignore_errors=True)

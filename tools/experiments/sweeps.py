"""Many tasks of one job: a sweep beside the same trainings one after the other, and what the scheduler costs."""
import os, re, resource, shutil, subprocess, sys, time

from experiments.common import ENV, OUT, ROOT, TRIREME, ctr_data, goal, program, run, table, write_csv


def trireme(*words, ranks=4):
    """All that it says."""
    words = ["mpirun", "-q", "-n", str(ranks), "--oversubscribe", TRIREME, *map(str, words)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENV, cwd=ROOT)
    return done.stdout if done.returncode == 0 else sys.exit(f"bench: {' '.join(words)}\n{done.stdout}")


def timed(job):
    """What it printed, seconds of the wall and of processors."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    text = job()
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return text, wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def sweep(quick):
    """Settings x folds on one file with four ranks, as one job and as commands one after the other."""
    folder, settings, folds = os.path.join(OUT, "sweep"), 2 if quick else 12, 3
    data = ctr_data(quick)
    rates = [f"{10 ** (-5 - 3 * i / max(1, settings - 1)):.3g}" for i in range(settings)]
    common = [f"data.train={data}", "model.type=logistic", "solve.method=dual"]

    def as_one():
        return trireme("sweep", *common, f"model.l2={','.join(rates)}", f"output={folder}", "--folds", folds)

    def one_by_one():
        return "".join(trireme("train", *common, f"model.l2={rate}", f"data.test=fold {fold + 1}/{folds}",
                               f"output={folder}", "--fresh") for rate in rates for fold in range(folds))

    rows = []
    for name, job in (("one sweep", as_one), ("one by one", one_by_one)):
        shutil.rmtree(folder, ignore_errors=True)
        text, wall, processors = timed(job)
        rows.append([name, wall, processors, len(re.findall("training data.* read (?:in|once)", text))])
        shutil.rmtree(folder, ignore_errors=True)
    table(f"{settings} settings x {folds} folds of {os.path.getsize(data) / 1e6:.0f} MB, four ranks; the sweep trains the best one "
          "on all rows besides", ["", "seconds", "of processors", "readings"], rows)
    write_csv("sweep", ["what", "seconds", "processor_seconds", "readings"], rows)
    ratio = rows[0][1] / rows[1][1]
    print("\ngoals")
    goal("sweep time", ratio)


def schedule(quick):
    """Decisions of the scheduler in simulation: up to 4096 workers and 1000 tasks."""
    sizes = [(64, 100), (512, 300)] + ([] if quick else [(4096, 1000)])
    rows = [[workers, tasks, *map(float, run(program("bench_schedule"), workers, tasks).split())]
            for workers, tasks in sizes]
    table("the scheduler, simulated: tasks of all sizes, one ends when another begins", ["workers", "tasks", "decisions",
          "microseconds each", "busy workers"], rows)
    write_csv("schedule", ["workers", "tasks", "decisions", "microseconds", "busy"], rows)
    print("\ngoals")
    goal("schedule busy", min(row[4] for row in rows))


def idle(quick):
    """Three tasks whose stages want all cores, then one, then all of them: with one rank per core for all tasks together, so that
    the tasks run one after the other, and for each task. A rank without work sleeps, so its core is free for others."""
    cores, folder, data = len(os.sched_getaffinity(0)), os.path.join(OUT, "idle"), ctr_data(quick)
    tasks = [f"tasks.t{i}.{setting}" for i in range(3) for setting in (f"ranks={cores}", f"seed={i + 1}")]
    words = [f"data.train={data}", "model.type=logistic", "solve.method=svrg", f"solve.epochs={9 if quick else 36}",
             f"stages.full.parallelism={cores}", "stages.inner.parallelism=1", *tasks, f"output={folder}"]
    rows = []
    for name, ranks in (("one after the other", cores), ("at the same time", 3 * cores)):
        shutil.rmtree(folder, ignore_errors=True)
        _, wall, processors = timed(lambda: trireme("train", *words, ranks=ranks))
        last = run(sys.executable, os.path.join(ROOT, "tools", "gantt"), folder, 80, cores).splitlines()[-1]
        rows.append([name, ranks, wall, processors, float(re.search(r"idle for ([0-9.]+)%", last)[1]) / 100])
        shutil.rmtree(folder, ignore_errors=True)
    table(f"three tasks with stages of {cores}, 1, {cores}, ... workers on {cores} cores", ["", "ranks", "seconds", "of processors", "cores idle"], rows)
    write_csv("idle", ["what", "ranks", "seconds", "processor_seconds", "idle"], rows)
    print("\ngoals")
    goal("idle cores", rows[1][4])

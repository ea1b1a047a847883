"""The scheduler on a simulated cluster (no ranks, no clocks: its decisions alone): tasks that run one stage after the other,
of mixed degrees, and want more workers than there are. A stage is starved after 60 seconds; with and without keeping
workers for those."""
import statistics

from experiments.common import goal, interleaved, program, run, table, write_csv

def simulate(nodes, workers, tasks, stages, kept_for, pause):
    figures = run(program("bench_schedule"), nodes, workers, tasks, stages, kept_for, pause).split()
    return dict(zip(("stages", "us", "busy", "kept", "mean", "longest", "fat", "seconds"), map(float, figures)))


def cluster(quick, nodes, workers, tasks, stages, pause):
    """One row for every number of starved stages that workers are kept for at a time; 1 is the default."""
    cases = {k: lambda k=k: simulate(nodes, workers, tasks, stages, k, pause) for k in (0, 1, 4)}
    results = interleaved(1 if quick else 5, cases)
    rows, found = [], {}
    for kept_for, runs in results.items():
        found[kept_for] = one = runs[0] | {"us": statistics.median(r["us"] for r in runs)}
        rows.append([f"kept for {kept_for}" if kept_for else "none kept", int(one["stages"]), one["us"], 100 * one["busy"],
                     100 * one["kept"], one["mean"], one["longest"], one["fat"], one["seconds"]])
    table(f"{nodes * workers} workers on {nodes} nodes, {tasks} tasks of {stages} stages: 13 of 20 of one node, 4 of some, 2 "
          "of every node of the data, 1 fat if the data lies on all (half of the workers or more); 0.5 to 4.5 s a stage",
          ["workers for starved stages", "stages", "us of scheduling a stage", "% busy", "% kept idle", "mean wait s",
           "longest s", "longest of fat s", "all done s"], rows)
    write_csv(f"scheduler-{nodes * workers}", ["kept_for", "run", *results[0][0]],
              [[k, i, *r.values()] for k, runs in results.items() for i, r in enumerate(runs)])
    return found


def scheduler(quick):
    large = cluster(quick, 64, 64, 1000, 10 if quick else 50, 60)
    small = cluster(quick, 8, 8, 100, 50 if quick else 500, 10)
    print("\ngoals")
    for found, workers in ((large, 4096), (small, 64)):
        kept, none = found[1], found[0]
        goal(f"{workers} workers: {kept['us']:.1f} us of scheduling a stage, wanted 100 or less", kept["us"] <= 100)
        goal(f"{workers} workers: no starvation: the longest wait is {kept['longest']:.0f} s (mean {kept['mean']:.1f} s; none "
             f"kept: {none['longest']:.0f} s), wanted a fifth of that without or less",
             None if quick else 5 * kept["longest"] <= none["longest"])
        goal(f"{workers} workers: all is done in {kept['seconds'] / none['seconds']:.2f} of the time that it takes if none are "
             "kept, wanted 1.05 or less", None if quick else kept["seconds"] <= 1.05 * none["seconds"])

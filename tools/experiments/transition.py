"""From one stage to the next (E11): 8 ranks on one node, and on four hosts of two. Two stages take turns, one on more and
more workers, one on a single one; a transition is the time from the last clock of the one to the first of the other:
updates have arrived, all have agreed, the next are told, clocks begin at 0."""
import os, subprocess

from experiments.common import ENV, ROOT, goal, mpirun, program, table, write_csv


def on_one_node(runs):
    return mpirun(8, program("bench_stages"), runs, "ranks.group_size=8")


def on_four_hosts(runs):
    words = [os.path.join(ROOT, "tools", "hosts"), "--hosts", "4", "--slots", "2", "--rate", "1gbit", "mpirun", "-q", "-n",
             "8", program("bench_stages"), str(runs)]
    done = subprocess.run(words, env=ENV, capture_output=True, text=True)
    return None if done.returncode == 77 else done.stdout


def rows_of(text):
    return [[int(line.split()[0]), *map(float, line.split()[1:])] for line in text.splitlines()]


def show(where, text, limit):
    rows = rows_of(text)
    table(f"8 ranks on {where}: milliseconds from stage to stage, medians", ["workers of the wide stage", "to it",
                                                                             "to the stage on one"], rows)
    worst = max(max(row[1:]) for row in rows)
    return [where, rows], (limit, worst, where)


def e11(quick):
    found, goals = [], []
    for where, text, limit in (("one node", on_one_node(100 if quick else 1000), "E11 node"),
                               ("four hosts, 1 Gbit/s", on_four_hosts(30 if quick else 300), "E11 hosts")):
        if text is None:
            print(f"\n{where}: network namespaces cannot be made here")
            continue
        one, wanted = show(where, text, limit)
        found.append(one)
        goals.append(wanted)
    write_csv("E11", ["where", "workers", "to_wide_ms", "to_narrow_ms"],
              [[where, *row] for where, rows in found for row in rows])
    print("\ngoals")
    for wanted in goals:
        goal(*wanted)

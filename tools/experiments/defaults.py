"""The table of defaults: train with nothing but data on all public datasets that have labels, beside scikit-learn's defaults."""
import os, subprocess, sys

from experiments.common import ENV, ROOT, TRIREME, goal, table, write_csv

RANKS = ("1", "2", "8")


def defaults(quick):
    """The sets, and what counts as good enough, are those of the test."""
    script = os.path.join(ROOT, "tests", "cli", "test_defaults.sh")
    words = ["sh", script, TRIREME] + ([] if quick else ["all"])
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=ENV)
    sets, said = {}, []
    for line in done.stdout.splitlines():
        words = line.split()
        if line.startswith(("FAILED", "skipped")):
            said.append(line)
        elif len(words) == 5:
            name, metric, reference, ranks, found = words
            sets.setdefault((name, metric, reference), {})[ranks] = f"{float(found):.6g}"
    if not sets:
        sys.exit("bench: defaults needs the public datasets: TRIREME_DATA")
    head = ["set", "metric", "scikit-learn", *(f"{n} rank{'s' * (n > '1')}" for n in RANKS)]
    rows = [[*which, *(found.get(n) for n in RANKS)] for which, found in sets.items()]
    table("defaults beside scikit-learn's, on test data", head, rows)
    write_csv("defaults", head, rows)
    print("\n" + "\n".join(said) if said else "")
    bad = [line for line in said if line.startswith("FAILED")]
    goal("defaults worse", len(bad), f"of {3 * len(sets)} cases")

"""The table of defaults: train with nothing but data on all public datasets that have labels, beside scikit-learn's defaults; trees
also beside XGBoost's, if the module xgboost is installed or TRIREME_PEERS is a folder that has it."""
import os, subprocess, sys

from experiments.common import ENV, ROOT, TRIREME, goal, table, write_csv
from experiments.gbdt import PEERS, peers

RANKS = ("1", "2", "8")


def xgboosts(names):
    """{set: {metric: value}} of the sets of trees."""
    python = peers().get("xgboost")
    if not python:
        print("bench: XGBoost is absent: its column is left out; install it, or name its folder with TRIREME_PEERS")
        return {}
    script = os.path.join(ROOT, "tools", "experiments", "references.py")
    done = subprocess.run([python, script, "xgboost", *names], stdout=subprocess.PIPE, text=True, env=ENV | PEERS)
    found = {}
    for line in done.stdout.splitlines():
        name, _, metric, value, _ = line.split()
        found.setdefault(name, {})[metric] = value
    return found


def defaults(quick):
    """The sets, and what counts as good enough, are those of the test. Sets of trees are named SET-trees."""
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
    xgboost = xgboosts(sorted({name.removesuffix("-trees") for name, _, _ in sets if name.endswith("-trees")}))
    head = ["set", "metric", "scikit-learn", *(["XGBoost"] if xgboost else []), *(f"{n} rank{'s' * (n > '1')}" for n in RANKS)]
    rows = []
    for (name, metric, reference), found in sets.items():
        other = xgboost.get(name.removesuffix("-trees"), {}).get(metric) if name.endswith("-trees") else None
        rows.append([name, metric, reference, *([other] if xgboost else []), *(found.get(n) for n in RANKS)])
    table("defaults beside those of others, on test data", head, rows)
    write_csv("defaults", head, rows)
    print("\n" + "\n".join(said) if said else "")
    bad = [line for line in said if line.startswith("FAILED")]
    goal("defaults worse", len(bad), f"of {3 * len(sets)} cases")

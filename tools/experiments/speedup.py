"""Speed-up over ranks (E8): counts to 1.001 times the optimum for linear models. Each rank is a node, so that all their
exchange is sent. Two cores show no time of more than two ranks: it is computed from the counts and
the computation of one rank, for a network of 100 Gbit/s."""
from experiments.common import NEVER, ctr_small, goal, optimum, public_data, shown, table, train, write_csv

GOAL = 1.001
METHODS = {"auto": ("logistic", "svm", "l2svm", "linear"), "dual": ("logistic", "svm", "l2svm", "linear"),
           "newton": ("logistic", "l2svm", "linear"), "sgd": ("logistic", "svm", "l2svm", "linear")}
MOST = {"auto": 200, "dual": 200, "newton": 200, "sgd": 10}  # passes
LATENCY, BANDWIDTH = 2e-6, 12.5e9  # seconds of a message, bytes a second: 100 Gbit/s


def run(data, loss, method, ranks, **more):
    return train(ranks, {"data.train": data, "model.type": loss, "model.bias": "no", "data.scale": "none", "solve.method": method,
                         "ranks.node_size": 1} | more, counts=ranks > 1)


def measure(data, loss, method, ranks, least, begun, most):
    """Passes (None: more than most), rounds, and of a rank and pass: messages, bytes of them, bytes pulled and pushed; seconds of
    computing of all ranks and passes. begun: a run that ended with its first evaluation, after reading data and the like."""
    one = run(data, loss, method, ranks, **{"solve.epochs": most, "solve.target": GOAL * least})
    last = one.curve[-1]
    share = ranks * max(1, last["epoch"] - begun.curve[-1]["epoch"])
    tables = (last["bytes_pulled"] + last["bytes_pushed"]) / (ranks * last["epoch"])
    return [last["epoch"] if last["objective"] <= GOAL * least else None, last["clock"], max(0, one.messages - begun.messages) / share,
            max(0, one.bytes - begun.bytes) / share, tables, last["compute_seconds"]]


def seconds(passes, ranks, messages, sent, tables, computing):
    """What a cluster would need: computing of a pass on one rank is known. Where rows are asked for and answered by messages,
    their bytes count twice."""
    return passes * (computing / ranks + (messages * LATENCY + (sent + tables) / BANDWIDTH) * (ranks > 1))


def by_ranks(name, data, loss, method, ranks_of):
    least, rows, one, first = optimum(data, "auto", loss), [], None, None
    for ranks in ranks_of:
        most = MOST[method]
        if ranks > 16:  # many processes a core are slow: sgd has thousands of rounds, others are done for at twice the passes
            most = 1 if method == "sgd" else min(most, 2 * (rows[0][4] or most) + 1)
        begun = run(data, loss, method, ranks, **{"solve.epochs": 1 if method == "sgd" else MOST[method], "solve.target": 1e9})
        passes, rounds, messages, sent, tables, computing = measure(data, loss, method, ranks, least, begun, most)
        one = one or computing / (passes or MOST[method])
        needed = seconds(passes or NEVER, ranks, messages, sent, tables, one)
        first = first or needed
        rows.append([name, loss, method, ranks, passes and int(passes), int(rounds), messages, sent / 1e3, tables / 1e3,
                     computing if ranks <= 2 else None, first / needed if passes else None])
        print("   ", *map(shown, rows[-1]), flush=True)
    return rows


def e8(quick):
    ranks_of = (1, 2, 8) if quick else (1, 2, 4, 8, 16, 64)
    sets = {"a9a": public_data("a9a/a9a.gz")} | ({} if quick else {"ctr-small": ctr_small()})
    rows = []
    for name, data in sets.items():
        if not data:
            continue
        for method, losses in METHODS.items():
            for loss in losses:
                rows += by_ranks(name, data, loss, method, ranks_of)
    head = ["set", "loss", "method", "ranks", "passes", "rounds", "messages", "kB in messages", "kB of tables", "compute s", "speed-up"]
    table(f"E8: to {GOAL} times the optimum; messages and bytes of a rank and pass; speed-up as counts and 100 Gbit/s have it",
          head, rows)
    write_csv("E8", head, rows)
    print("\ngoals")
    for method in ("auto", "dual"):
        own = [row for row in rows if row[2] == method]
        ones = {(row[0], row[1]): row[4] for row in own if row[3] == 1}
        worst = max(((row[4] or NEVER) / ones[row[0], row[1]] for row in own if ones[row[0], row[1]]), default=None)
        goal("E8 passes", worst, method)

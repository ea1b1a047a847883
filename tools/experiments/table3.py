"""E13: which way to agree reaches a target first where workers differ in speed (DynSGD, Table 3)."""
import statistics

from experiments.common import NEVER, goal, plot, shown, table, write_csv
from experiments.stragglers import CLOCKS, L2, RATES, SEEDS, WAYS, WORKERS, Tuning, a9a, newsgroups, rate, straggler_job

# Seconds and updates in the paper's Table 3, in its own columns: Petuum's for BSP, ASP and SSP.
PAPER_WAYS = ["BSP", "ASP", "SSP 3", "Con 3", "Dyn 3", "SSP 10", "Con 10", "Dyn 10"]
PAPER = {
    ("logistic", "URL", 1): ([134, 117, 87, 85, 82, 78, 78, 73], [810, 955, 847, 862, 833, 949, 948, 887]),
    ("logistic", "URL", 2): ([267, 625, 250, 196, 147, 549, 116, 93], [810, 3858, 1243, 1062, 851, 3756, 1144, 891]),
    ("logistic", "CTR", 1): ([462, 748, 570, 456, 342, 646, 532, 456], [180, 317, 278, 229, 164, 492, 406, 353]),
    ("logistic", "CTR", 2): ([966, 4964, 2233, 1414, 546, 4501, 798, 714], [180, 1964, 606, 404, 204, 2035, 517, 453]),
    ("svm", "URL", 1): ([84, 88, 60, 55, 51, 62, 52, 44], [570, 826, 752, 687, 628, 969, 824, 692]),
    ("svm", "URL", 2): ([178, 476, 188, 133, 102, 454, 84, 60], [570, 3318, 1128, 822, 639, 3518, 986, 758]),
    ("svm", "CTR", 1): ([544, 480, 528, 539, 360, 544, 479, 416], [240, 366, 322, 318, 229, 467, 447, 387]),
    ("svm", "CTR", 2): ([1104, 6120, 3690, 1907, 873, 6534, 1036, 555], [240, 2757, 890, 511, 253, 2912, 773, 434]),
}
TITLE = {"logistic": "logistic regression", "svm": "support vector machine"}

# Where the walk over the grid begins; in --quick also where it ends.
START = {"a9a": dict.fromkeys(WAYS, 14) | {"ASP": 4, "SSP 3": 4, "SSP 10": 4},
         "20 newsgroups": dict.fromkeys(WAYS, 24) | {"ASP": 18, "SSP 3": 16, "SSP 10": 16, "Auto": 18}}


class Cell:
    """One way in one row of the table: its best rate, and the figures there."""

    def __init__(self, data, model, level, way, target, start, limit, quick):
        ranks, job = straggler_job(data, way, model, level)
        if quick:
            limit = 60
        self.tuning = Tuning(ranks, job, target, start, limit, fixed=quick)
        self.clock, self.target, self.runs = data.clock, target, [self.tuning.run()]

    def repeat(self, seed):
        self.runs.append(self.tuning.train_best(seed))

    def seconds(self):
        return statistics.median(run.seconds_to(self.target) for run in self.runs)

    def units(self):
        return self.seconds() / self.clock

    def spread(self):
        units = [run.seconds_to(self.target) / self.clock for run in self.runs]
        if len(units) == 1:
            return ""
        return f"{min(units):.0f}-{'never' if max(units) == NEVER else round(max(units))}"

    def updates(self):
        count = statistics.median(run.updates_to(self.target) or NEVER for run in self.runs)
        return None if count == NEVER else round(count)

    def each(self):
        return 1e3 * self.seconds() / self.updates() if self.updates() else None

    def objective(self):
        return f"{statistics.median(run.summary.get('objective', NEVER) for run in self.runs):.4f}"

    def level(self):
        return self.runs[-1].summary.get("level_reached")

    def rate(self):
        if self.seconds() == NEVER:
            return "-"
        return shown(rate(self.tuning.best)) + ("!" if self.tuning.at_edge() else "")


def fill_row(data, model, level, target, begin, quick):
    """All ways of one row, then again in turn, with other slow workers. Who takes ten times the time of the best is
    given up, and who takes three times as long is not measured again."""
    row = {}
    for way in WAYS:
        best = min((cell.units() for cell in row.values()), default=NEVER)
        limit = min(CLOCKS, max(40, round(10 * best))) if best != NEVER else CLOCKS
        row[way] = Cell(data, model, level, way, target, begin[way], limit, quick)
    near = [cell for cell in row.values() if cell.seconds() <= 3 * min(c.seconds() for c in row.values()) < NEVER]
    for seed in SEEDS[1:1 if quick else 3 if level == 1 else None]:
        for cell in near:
            cell.repeat(seed)
    return row


def show_row(data, model, level, row):
    print(f"\n{data.name}, {TITLE[model]} to {next(iter(row.values())).target:.6g}, HL = {level}")
    head = ["", *WAYS]
    rows = [["seconds", *(c.seconds() for c in row.values())],
            ["fast worker's clocks", *(c.units() for c in row.values())],
            ["  least-most", *(c.spread() for c in row.values())],
            ["updates", *(c.updates() for c in row.values())],
            ["ms an update", *(c.each() for c in row.values())],
            ["objective then", *(c.objective() for c in row.values())],
            ["HL reached", *(c.level() for c in row.values())],
            ["rate of a worker", *(c.rate() for c in row.values())]]
    for (of, where, hl), (seconds, updates) in PAPER.items():
        if (of, hl) == (model, level):
            given = {way: f"{s}" for way, s in zip(PAPER_WAYS, seconds)}
            rows.append([f"paper, {where}: seconds", *(given.get(way, "") for way in WAYS)])
            given = {way: f"{u}" for way, u in zip(PAPER_WAYS, updates)}
            rows.append(["  updates", *(given.get(way, "") for way in WAYS)])
    table(f"to the target at the best of the rates 0.01, 0.014, 0.02, ... {rate(RATES - 1):.4g} (! = the edge of the grid)",
          head, rows)


def show_goals(rows):
    """What a simulation of time with real gradients promises on a9a, and what `auto` has to hold everywhere."""
    print("\ngoals")
    homogeneous, slowed = rows.get(("a9a", "logistic", 1)), rows.get(("a9a", "logistic", 2))
    if slowed:
        seconds = {way: cell.seconds() for way, cell in slowed.items()}
        dyn, ssp = slowed["Dyn 10"], slowed["SSP 10"]
        goal("E13 fastest", dyn.seconds() == min(s for way, s in seconds.items() if way != "Auto") != NEVER)
        goal("E13 of BSP", dyn.seconds() / seconds["BSP"])
        same = homogeneous and dyn.seconds() / homogeneous["Dyn 10"].seconds()
        goal("E13 slowed", same or None)
        fewer = ssp.updates() / dyn.updates() if ssp.updates() and dyn.updates() else None
        goal("E13 updates", fewer or (NEVER if dyn.updates() else 0.0),
             "" if fewer else f"who is not there after {WORKERS * CLOCKS} never will be")
    for (data, model, level), row in rows.items():
        best = min(cell.seconds() for way, cell in row.items() if way != "Auto")
        ratio = row["Auto"].seconds() / best
        goal("E13 auto", ratio, f"{data}, {TITLE[model]}, HL {level}")


def keep(rows):
    head = ["data", "model", "level", "way", "rate", "run", "seconds", "clocks", "updates"]
    write_csv("E13", head, [
        [data, model, level, way, rate(cell.tuning.best), i, run.seconds_to(cell.target),
         run.seconds_to(cell.target) / cell.clock, run.updates_to(cell.target)]
        for (data, model, level), row in rows.items() for way, cell in row.items()
        for i, run in enumerate(cell.runs)])
    write_csv("E13-rates", ["data", "model", "level", "way", "rate", "seconds", "objective"], [
        [data, model, level, way, rate(grid), run.seconds_to(cell.target), run.settled()[0]]
        for (data, model, level), row in rows.items() for way, cell in row.items()
        for grid, run in sorted(cell.tuning.tried.items())])
    panels = []
    for (data, model, level), row in rows.items():
        curves = {way: [(r["seconds"] / cell.clock, r["objective"]) for r in cell.runs[0].curve if r["objective"] < 0.7]
                  for way, cell in row.items()}
        panels.append((f"{data}, {TITLE[model]}, HL {level}", "clocks of a fast worker", "objective", curves))
    plot("E13", panels, style="lines")


def show_rates(rows):
    """The grid: clocks to the target at each rate that was tried."""
    for (data, model, level), row in rows.items():
        grids = sorted({grid for cell in row.values() for grid in cell.tuning.tried})
        table(f"clocks to the target by rate: {data}, {TITLE[model]}, HL {level}",
              ["", *(shown(rate(g)) for g in grids)],
              [[way, *(cell.tuning.clocks_at(g) for g in grids)] for way, cell in row.items()])


def e13(quick):
    rows = {}
    print(f"{WORKERS} workers, lambda {L2}; with HL 2 a fifth of them take twice as long; at most {CLOCKS} clocks each")
    for data in filter(None, [a9a()] if quick else [a9a(), newsgroups()]):
        for model in ["logistic"] if quick else ["logistic", "svm"]:
            target, begin = data.target_of(model), dict(START[data.name])
            for level in [2] if quick else [1, 2]:
                row = rows[data.name, model, level] = fill_row(data, model, level, target, begin, quick)
                begin = {way: cell.tuning.best for way, cell in row.items()}
                show_row(data, model, level, row)
    show_rates(rows)
    show_goals(rows)
    keep(rows)

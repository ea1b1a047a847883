#!/bin/sh
# The printed gap is a bound of the true one for all losses, targets, columns, weights, biases, penalties and methods
# of gap_cells.c, by a solver that shares no code with the program; the unit of the targets has no effect.
# PARTS="0 1 2 3 4" in the environment tries all cells, RANKS=2 tries those of PARTS on two ranks.
set -- "${1:-build/trireme}"
source=$(realpath "$(dirname "$0")")
. "$(dirname "$0")/lib.sh"
[ ! -w /dev/shm ] || { at_end='rm -rf "/dev/shm/${here##*/}"' && mkdir "/dev/shm/${here##*/}" && cd "/dev/shm/${here##*/}"; }
${CC:-cc} -O2 -o cells "$source/gap_cells.c" -lm || exit 2
patience=$((4 * patience)) # hundreds of trainings in one run

# Hundreds of cells are the tasks of one run. A task that ends with an error is judged by the check, which keeps the results of
# the solver for runs on other ranks.
# cells RANKS EVERY PART: every EVERY-th cell, from PART on
cells() {
    rm -rf out runs job.yaml
    ./cells make "$2" "$3" || exit 2
    on "$1" "$trireme" train job.yaml >said 2>&1
    ./cells check "$2" "$3" >result || { bad=1; grep -v 'cells:' result | head -40; tail -2 said; }
    grep 'cells:' result | sed "s/^/on $1 ranks: /; s/on 1 ranks/on 1 rank/"
}
# Cells that differ in one property only have numbers that differ by small even numbers, so three of five parts have each pair of
# properties. Other ranks try fewer cells, because their processes share the processors: every 17th and every 91st.
for part in ${PARTS:-0 2 4}; do cells "${RANKS:-1}" 5 $part; done
cells 2 17 5
cells 8 91 7

# ---- y × 1000 multiplies predictions, y + 1000 shifts them, by the defaults ----

awk 'BEGIN { srand(4); for (i = 0; i < 300; i++) { a = rand() - 0.5; b = rand(); e = rand() - 0.5; if (rand() < 0.1) e *= 20
    y = 3 * a - b + e; printf "%.9g,%.9g,%.9g\n", y, a, b >"plain.csv"; printf "%.9g,%.9g,%.9g\n", 1000 * y, a, b >"large.csv"
    printf "%.9g,%.9g,%.9g\n", y / 1000, a, b >"small.csv"; printf "%.9g,%.9g,%.9g\n", y + 1000, a, b >"shifted.csv" } }'
for loss in linear huber quantile logcosh; do
    for kind in plain large small shifted; do
        run $loss-$kind 1 data.train=$kind.csv data.label=1 model.type=$loss model.dtype=f64 solve.target_gap=1e-10 report.progress=no
        "$trireme" predict $loss-$kind $kind.csv >$loss-$kind.predicted || fail "$loss, $kind: predict"
    done
    paste $loss-plain.predicted $loss-large.predicted $loss-small.predicted $loss-shifted.predicted | awk '
        function far(a, b) { return a - b > 1e-3 || b - a > 1e-3 }
        far($1, $2 / 1000) || far($1, $3 * 1000) || far($1, $4 - 1000) { n++ } END { print n + 0, NR }' >far
    [ "$(cat far)" = "0 300" ] || fail "$loss: predictions depend on the unit of the targets: $(cat far)"
done
[ "$(of huber-plain gap)" ] && holds "huber: gap" "$(of huber-plain gap) <= 1e-10"

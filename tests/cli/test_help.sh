#!/bin/sh
# trireme help: every topic that it lists exists, and a misspelt one is understood. Usage: test_help.sh TRIREME
. "$(dirname "$0")/lib.sh"

expect 0 "Commands:" help
expect 0 "Commands:"
expect 0 "Commands:" --help
for topic in $("$trireme" help | sed -n 's/^  \([a-z]*\)  *[a-z].*/\1/p' | grep -v '^trireme$\|^mpirun$'); do
    expect 0 "" help "$topic"
done
expect 0 "trireme train [JOB.yaml]" help train
expect 0 "sigma, optimizer" help job
expect 0 "solve.rate" help job all
expect 0 "solve.rate" help job solve
expect 0 "solve.rate" help job solve.rate
expect 0 "solve.rate" help solve.rate
expect 0 "stages.NAME.parallelism" help job stages
expect 0 "tasks.NAME.after" help job tasks
expect 0 "stages.NAME.clocks" help job stages.full.clocks
expect 0 "tasks.NAME.run" help tasks.NAME.run
expect 64 "did you mean tasks.one.after?" help job tasks.one.afer
expect 0 "trireme train [JOB.yaml]" train --help
expect 0 "first_row" generate --help
expect 64 "did you mean train?" help tran
expect 64 "no help on zzz" help zzz
expect 64 "did you mean solve" help job solv
expect 64 "too many words" help train now
expect 64 "did you mean train?" trian
expect 64 "unknown command zzz" zzz
expect 0 "MPI:      Open MPI" --version
expect 0 "HDF5:     1." --version

# as wide as the terminal, where one key has a line and its meaning another if it is narrow; through a pager
for columns in 60 80 110; do
    COLUMNS=$columns "$trireme" help job all >all
    wide=$(awk -v n=$columns '/^  [a-z]/ { next } { gsub(/[\200-\277]/, "") } length($0) > n' all | head -3)
    [ -z "$wide" ] || fail "help job all: wider than $columns: $wide"
    [ "$(grep -c '^  [a-z]*\.[a-z_.A-Z]* ' all)" -gt 100 ] || fail "help job all: lacks keys"
done
COLUMNS=80 PAGER='sed s/^/paged:/' script -qc "$trireme help job sync" typescript >/dev/null </dev/null
grep -q '^paged:sync: how far' typescript || fail "no pager: $(head -3 typescript)"
exit $bad

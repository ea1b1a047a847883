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
expect 0 "solve.rate" help job
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
exit $bad

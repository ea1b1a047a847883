#!/bin/sh
# A rank that waits for others names them, and a job all of whose ranks wait is started again, also while it opens.
. "$(dirname "$0")/lib.sh"

# ---- what waits for other ranks inside of MPI is called in one file; a flush of a window ends when its target is in MPI ----

src=$(dirname "$jobs")/src
grep -rnoE 'MPI_[A-Z][A-Za-z_]*\(' "$src" | grep -v '/ranks/blocking\.c:' |
    grep -vE ':MPI_(I[a-z]+|Test[a-z]*|Comm_(free|rank|size|idup|group|compare)|Type_[a-z_]+|Get_[a-z_]+|R?(get|put|accumulate)|Rget|Put|Accumulate|Raccumulate|Cancel|Reduce_local|Request_free|Win_(sync|flush|flush_all|flush_local|shared_query)|Initialized)\($' |
    grep -vE '/ranks/ranks\.c:.*:MPI_(Init|Finalize)\($' >found
[ ! -s found ] || fail "a blocking call outside of src/ranks/blocking.c: $(cat found)"

# ---- one rank does not come, while a job opens ----

"$trireme" generate ctr -o train.svm rows=2k features=1k nonzeros=10 >/dev/null || fail "generate"
cat >job.yaml <<'END'
data: {train: train.svm}
model: {type: logistic}
solve: {method: dual, epochs: 2, target_gap: 0}
ranks: {patience: 1}
END
if TRIREME_FAULT=load=exit=9:1 "$trireme" train job.yaml output=probe >/dev/null 2>&1; then
    skip "built without faults"
    exit
fi

# supervised NAME STARTS SETTING…: ends well after so many starts; what is said is in err
supervised() {
    name=$1 starts=$2; shift 2
    rm -f log
    timeout -s KILL $patience "$trireme" run job.yaml -n 3 --heartbeat 100ms --limit 5s --log log report.progress=no \
        output="$name" "$@" >out 2>err
    got=$?
    [ $got -eq 0 ] || fail "$name: exit $got: $(cat err)"
    [ "$(grep -c ' started ' log)" -eq "$starts" ] || fail "$name: not $starts starts: $(cat err)"
}
# lost VISIT SETTING…: the second rank is lost on its way to this meeting
lost() {
    visit=$1; shift
    TRIREME_FAULT=meet=hang@1:#$visit:0:0 supervised "lost-$visit" 2 "$@"
    grep -q 'rank [02] has been waiting [0-9]* s for \(all\|the\) ranks' err || fail "$name: nobody says whom he waits for: $(cat err)"
    grep -q 'all ranks have been waiting for one another for' err || fail "$name: $(cat err)"
}
lost 3                   # nodes
lost 6                   # a merge
lost 8 ranks.node_size=1 # windows
# inside of MPI: one rank alone is told that there is no memory for a window, the others wait for it there
TRIREME_FAULT=window=enospc@1:#1:0:0 supervised inside 2
grep -q 'all ranks have been waiting for one another for' err || fail "$name: $(cat err)"
TRIREME_FAULT=meet=stop@1:#6:0:0 supervised stopped 2
grep -q 'rank 1 (pid .* is stopped: no sign of life' err || fail "stopped: $(cat err)"
grep -q 'rank [02] has been waiting [0-9]* s for \(all\|the\) ranks' err || fail "stopped: nobody says whom he waits for: $(cat err)"

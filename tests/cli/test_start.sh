#!/bin/sh
# The calls of MPI before and after the training of a small job: collectives are slow if ranks outnumber cores.
. "$(dirname "$0")/lib.sh"
if [ "$sanitized" ]; then # which wants to be the first library itself
    skip "calls of MPI are not counted under AddressSanitizer"
    exit
fi
check generate "$trireme" generate ctr -o train.svm rows=100 features=50 nonzeros=5

# counted RANKS SETTING…: trains, and leaves lines "CALL N" of each rank in calls.RANK
counted() {
    ranks=$1; shift
    rm -f calls.*
    TR_CALLS=$here/calls timeout $patience mpirun $quiet --oversubscribe -n "$ranks" -x TR_CALLS \
        -x LD_PRELOAD="$(dirname "$trireme")/tests/count_calls.so" "$trireme" train data.train=train.svm model.type=logistic \
        solve.method=sgd solve.rate=1 solve.epochs=1 report.progress=no output=run --fresh "$@" >said 2>&1 ||
        fail "$ranks ranks, $*: $(cat said)"
}
# most CALL: of any rank
most() { cat calls.* | awk -v call="$1" '$1 == call && $2 > n { n = $2 } END { print n + 0 }'; }
# least CALL: of any rank
least() { cat calls.* | awk -v call="$1" '$1 == call && (n == "" || $2 < n) { n = $2 } END { print n + 0 }'; }

# All ranks in order, and a rank alone, have communicators already; small memory is slots of one window.
counted 5
[ "$(most communicators)" -le 3 ] || fail "$(most communicators) communicators, expected two of all ranks and one of the host"
[ "$(most windows)" -le 1 ] || fail "$(most windows) windows, expected one for all that is small"
[ "$(most collectives)" -le 125 ] || fail "$(most collectives) collectives, expected up to 125"

# Where ranks outnumber cores they look seldom whether all are there, and with cores of their own at once.
cores=$(getconf _NPROCESSORS_ONLN)
if [ "$cores" -le 8 ]; then
    counted $((cores + 1))
    for call in late_in_init late_in_finalize; do
        [ "$(least $call)" -ge $((100000 * (cores + 1))) ] || fail "$((cores + 1)) ranks on $cores cores: $call is $(least $call) ns"
    done
fi
if [ "$cores" -ge 2 ]; then
    counted 2
    [ "$(most late_in_init)" -le 1000 ] || fail "2 ranks on $cores cores: late_in_init is $(most late_in_init) ns"
fi

# Tasks of srun that do not find each other do not train side by side.
refuses "srun without PMIx" 64 'expected srun --mpi=pmix' \
    env SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=1 "$trireme" train data.train=train.svm output=apart

# One process alone, which shares memory with nobody, leaves none behind either.
private="unshare --mount"; [ "$(id -u)" -eq 0 ] || private="$private --map-root-user"
if $private mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
    # shellcheck disable=SC2016 # the words are of the inner shell
    $private sh -c 'mount -t tmpfs tmpfs /dev/shm && "$@" && ls -A /dev/shm >left' sh \
        "$trireme" train data.train=train.svm model.type=logistic output=alone >said 2>&1 || fail "alone: $(cat said)"
    [ ! -s left ] || fail "one process alone left $(cat left)"
else
    skip "no /dev/shm of one's own"
fi

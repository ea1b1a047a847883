#!/bin/sh
# Checkpoints in memory: a run whose rank is killed resumes from them, and nothing is left in memory at its end.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { srand(7); for (i = 0; i < 1000; i++) { m = 0; row = "";
    for (j = 1; j <= 12; j++) { x = int(rand() * 1000) / 1000 - 0.4; m += x * (j - 6); row = row " " j ":" x }
    print (m + 4 * (rand() - 0.5) > 0.5 ? 1 : -1) row } }' >train
cat >job.yaml <<'EOF'
data: {train: train}
model: {l2: 0.01}
solve: {method: sgd, rate: 4, epochs: 8, batch: 50}
checkpoint: {every: no, memory: 2 clocks}
EOF
mkdir memory && export TRIREME_MEMORY="$here/memory"

empty() { [ -z "$(ls -A memory)" ] || fail "$1: left in memory: $(ls memory)"; }

# begin NAME: the second rank is killed while it writes its third shard, when two are whole
begin() {
    export TRIREME_FAULT=checkpoint.shard@1:#3
    starts killed 2 job.yaml output="$1" experiment.clock=0.01
    unset TRIREME_FAULT
    [ -n "$(ls -A memory)" ] || fail "$1: nothing in memory"
    [ ! -e "$1/checkpoints/00000001" ] || fail "$1: a checkpoint on the disk"
}

starts 0 2 job.yaml output=straight checkpoint.memory=no
empty straight
if ! TRIREME_FAULT=load:1 "$trireme" train job.yaml output=try >out 2>&1; then
    begin killed
    starts 0 2 job.yaml output=killed
    grep -q '^continues: .*checkpoint 2 ' out || fail "killed: it does not go on from the second: $(cat out)"
    cmp -s killed/model.txt straight/model.txt || fail "killed: another model than that of a run that was not"
    empty killed

    # nobody goes on with it: a run in the same folder begins anew, or the folder is gone
    begin over
    starts 0 2 job.yaml output=over --fresh
    empty over
    begin gone
    rm -rf gone
    starts 0 2 job.yaml output=other checkpoint.memory=no
    empty gone
    # … but not where another container's files cannot be seen
    begin container
    sed -i 's/^files .*/files 0:0:0/' memory/trireme-*/owner
    rm -rf container
    starts 0 2 job.yaml output=other checkpoint.memory=no
    [ -n "$(ls -A memory)" ] || fail "container: removed by a job that does not see its files"
    rm -rf memory/trireme-*

    # nobody starts it again
    TRIREME_FAULT=checkpoint.shard@1:#3 timeout -s KILL $patience "$trireme" run job.yaml -n 2 --max-restarts 1 output=lost \
        experiment.clock=0.01 >out 2>&1 && fail "given up: exit 0"
    grep -q '^continues: .* in memory' out || fail "given up: it never went on: $(cat out)"
    empty "given up"
else
    skip "what is killed: built without faults"
fi

# ---- stopped: the disk has it ----
starts 75 2 job.yaml output=stopped --max-time=1ms
empty stopped

# ---- no room: it is said once, and training goes on ----
export TRIREME_MEMORY="$here/nowhere:$here/memory"
starts 0 2 job.yaml output=full experiment.clock=0.01 solve.epochs=3
[ "$(grep -c 'they are in .*/memory instead' out)" -eq 1 ] || fail "little room: not said once: $(cat out)"
empty "little room"
export TRIREME_MEMORY="$here/nowhere"
starts 0 2 job.yaml output=full experiment.clock=0.01 solve.epochs=3
[ "$(grep -c 'is not in memory: ' out)" -eq 1 ] || fail "no room: not said once: $(cat out)"
# … as on a file system that is too small
export TRIREME_MEMORY="$here/memory"
small() { unshare --mount sh -c 'mount -t tmpfs -o size=8k tmpfs "$TRIREME_MEMORY" && "$@"' sh "$@"; }
if small true 2>/dev/null; then
    small timeout -s KILL $patience $mpirun -n 2 "$trireme" train job.yaml output=small experiment.clock=0.01 solve.epochs=3 \
        >out 2>&1 || fail "a small file system: exit $?: $(tail -3 out)"
    [ "$(grep -c 'is not in memory: ' out)" -eq 1 ] || fail "a small file system: not said once: $(cat out)"
else
    skip "no file system of one's own"
fi

# ---- after 100,000 clocks and thousands of checkpoints a rank has as much memory as after a fifth of them ----
# … but under AddressSanitizer, which keeps what is freed for a while
export TRIREME_MEMORY="$here/memory"
for mode in bsp ssp; do
    starts 0 2 job.yaml output=$mode sync.mode=$mode solve.rate=0.01 solve.epochs=5000 report.every=1000 "checkpoint.every=500 clocks" "checkpoint.memory=20 clocks"
    [ "$sanitized" ] || awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { first = $at["peak_rss_bytes"] }
        { last = $at["peak_rss_bytes"] } END { exit !($at["clock"] >= 100000 && last < 1.02 * first) }' $mode/metrics.csv ||
        fail "memory grows: $(cat $mode/metrics.csv)"
done

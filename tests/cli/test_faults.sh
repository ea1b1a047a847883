#!/bin/sh
# Failures at chosen points of a run, full disks and damaged checkpoints: what is learnt is what the undisturbed run learns,
# and what cannot be is said in a line. tools/bench storm does the same at random, for longer.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o train.svm rows=2k features=1k nonzeros=10 >/dev/null || fail "generate"
cat >job.yaml <<'END'
data: {train: train.svm}
model: {type: logistic, l2: 0.001}
solve: {method: sgd, batch: 50, rate: 0.01, epochs: 20, optimizer: adam}
sync: {push: 1 per epoch}
experiment: {clock: 0.03} # so that checkpoints keep up
checkpoint: {every: 3 clocks}
END
TRIREME_FAULT=load=delay=0:1 "$trireme" train job.yaml output=probe >/dev/null 2>&1 || fail "probe"
TRIREME_FAULT=load=exit=9:1 "$trireme" train job.yaml output=probe >/dev/null 2>&1
[ $? -eq 9 ] || { skip "built without faults"; exit 77; }

# trains EXIT NAME RANKS SETTING…: what is said is in err
trains() {
    code=$1 name=$2 ranks=$3; shift 3
    on "$ranks" "$trireme" train job.yaml output="$name" "$@" >err 2>&1
    got=$?
    no_notices err
    [ $got -eq "$code" ] || fail "$name: exit $got, expected $code: $(tail -3 err)"
}
says() { [ "$(grep -c -- "$2" err)" -eq "$1" ] || fail "$name: expected $1 lines with «$2»: $(cat err)"; }
# same NAME REFERENCE: the same model and metrics
same() {
    cmp -s "$1/model.txt" "$2/model.txt" || fail "$1: another model"
    cut -d, -f2-6,16 "$1/metrics.csv" >left; cut -d, -f2-6,16 "$2/metrics.csv" >right
    cmp -s left right || fail "$1: other metrics: $(diff left right | head -4)"
    is "$1: objective" "$(of "$1" objective)" "$(of "$2" objective)"
}
# warned LEAST TEXT: at least so many lines
warned() { [ "$(grep -c -- "$2" err)" -ge "$1" ] || fail "$name: fewer than $1 lines with «$2»: $(cat err)"; }
whole() { ls "$1" | while read -r n; do [ ! -e "$1/$n/manifest.h5" ] || echo "$n"; done | tr '\n' ' '; }

# ---- the wall clock is set while it works: nobody counts time by it ----

# jumps RANK SECONDS: of that rank (-1: of processes that are none) as of now
jumps() { python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("=q", int(sys.argv[1])))' "$2" | dd of=clock bs=8 seek=$(($1 + 1)) conv=notrunc 2>/dev/null; }
clocks="$(dirname "$trireme")/tests/jump_clock.so"
if [ -e "$clocks" ]; then
    name=jumps
    head -c 64 /dev/zero >clock
    export TR_CLOCK="$here/clock"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" # the clock comes first
    jumps -1 -40000000
    [ "$(LD_PRELOAD=$clocks date +%s)" -lt $(($(date +%s) - 39999000)) ] || fail "jumps: it does not"
    trains 0 steady 2
    TRIREME_FAULT=clock=stop@0:#5 LD_PRELOAD=$clocks timeout -s KILL $patience "$trireme" run job.yaml -n 2 --heartbeat 100ms \
        --limit ${patience}s output=jumps checkpoint.memory="2 clocks" >out 2>err &
    supervisor=$!
    # whoever writes status.json stands still until all clocks are set
    stopped() { rank=$(sed -n 's/^  "pid": \([0-9]*\).*/\1/p' jumps/status.json) && grep -q ') T ' "/proc/$rank/stat"; }
    wait_for "the first rank to be stopped" stopped
    jumps -1 86400; jumps 0 -3600; jumps 1 40000000
    kill -CONT "$rank"
    wait $supervisor
    is "jumps: exit" $? 0
    says 0 "starting again"
    same jumps steady
    awk -F, -v most=$patience 'NR > 1 && !($1 >= last && $1 < most) { exit 1 } NR > 1 { last = $1 }' <jumps/metrics.csv ||
        fail "jumps: its times: $(cut -d, -f1 jumps/metrics.csv)"
    unset TR_CLOCK
else
    skip "no clock of one's own"
fi

# ---- a scheduler, a server, two groups of two: who dies where ----

layout="ranks.layout=dedicated ranks.servers=1 ranks.group_size=2"
trains 0 still 6 $layout
# struck NAME RESTARTS RULES SETTING…: under the supervisor
struck() {
    name=$1 restarts=$2 rules=$3; shift 3
    TRIREME_FAULT=$rules timeout -s KILL $patience "$trireme" run job.yaml -n 6 --heartbeat 100ms --limit 3s report.progress=no \
        output="$name" $layout "$@" >out 2>err
    is "$name: exit" $? 0
    is "$name: restarts" "$(grep -c 'starting again' err)" "$restarts"
    same "$name" still
    for folder in "$name"/checkpoints/0*; do [ -e "$folder/manifest.h5" ] || fail "$name: $folder is left"; done
}
struck write 2 checkpoint.write@1:#9:0:0,checkpoint.write@0:#11:0:1 # the server, then the scheduler
struck shard 1 checkpoint.shard@3:#2:0:0
says 1 "rank 3 (pid .*SIGKILL"
struck manifest 1 checkpoint.manifest@0:#2:0:0
says 1 "since the checkpoint of clock"
struck stopped 1 checkpoint.write=stop@1:#9:0:0
says 1 "rank 1 (pid .* is stopped"
struck leaders 2 pull@2:#8:0:0,pull@4:#5:0:1
# in the turn of one, while others wait for theirs
struck turns 2 turn@3:#9:0:0,turn=stop@5:#6:0:1 stages.gradient.parallelism=1
says 1 "rank 3 (pid .*SIGKILL"
says 1 "rank 5 (pid .* is stopped"

# ---- the clock of one rank fails, between what it and the others of its group do together ----

"$trireme" generate ratings -o r users=400 items=200 ratings=10k >/dev/null && "$trireme" generate docword -o w documents=300 words=400 tokens=20k topics=5 >/dev/null &&
    "$trireme" generate dense -o d rows=2k columns=10 clusters=8 >/dev/null || fail "generate"
# one_fails NAME RANKS RANK SETTING…: whichever mode it is
one_fails() {
    name=$1 ranks=$2 rank=$3; shift 3
    for mode in bsp ssp; do
        TRIREME_FAULT="compute=eio@$rank:#3" refuses "$name: rank $rank, $mode" 71 "clock 2 fails" on "$ranks" \
            "$trireme" train sync.mode=$mode report.progress=no output=fails --fresh "$@"
    done
}
lda="data.train=w model.type=lda model.topics=8 model.optimize=yes solve.optimize_every=1"
for rank in 0 1; do
    one_fails factors 4 $rank data.train=r data.format=ratings model.type=mf model.rank=8 solve.method=sgd ranks.groups=2 ranks.group_size=2
    TRIREME_FAULT="compute=eio@$rank:#4" refuses "topics: rank $rank" 71 "clock 2 fails" on 2 \
        "$trireme" train sync.mode=asp report.progress=no output=fails --fresh $lda
done
TRIREME_FAULT="compute=eio@1:#1" refuses "rows that are counted" 71 "clock 0 fails" on 4 \
    "$trireme" train data.train=train.svm model.type=logistic solve.method=sgd solve.rate=0.1 ranks.groups=2 ranks.group_size=2 report.progress=no output=fails --fresh
for fault in 2:#2 3:#3 2:#4 3:#3; do # whether others evaluate before they have heard of it is a matter of luck: several times
    TRIREME_FAULT="compute=eio@$fault" refuses "points: $fault" 71 "fails, as TRIREME_FAULT" on 4 "$trireme" train sync.mode=bsp report.progress=no \
        output=fails --fresh data.train=d model.type=kmeans model.clusters=8 ranks.node_size=2
done
# all wait in a sum for the rank whose clock has failed: after half of ranks.patience it says so and ends by itself
for method in newton dual; do
    TRIREME_FAULT="compute=eio@2:#1" refuses "$method: who is waited for in a sum" 71 "clock 0 fails" on 4 \
        "$trireme" train data.train=train.svm model.type=logistic solve.method=$method ranks.patience=12 report.progress=no output=fails --fresh
done
# … or that could not make its stage ready
for job in "data.train=r data.format=ratings model.type=mf model.rank=8 solve.method=sgd" "data.train=w model.type=lda model.topics=8"; do
    TRIREME_FAULT="prepare=eio@1:#1" refuses "not ready: $job" 71 "is not made ready" on 4 \
        "$trireme" train $job ranks.patience=12 report.progress=no output=fails --fresh
done

# ---- one worker has ended its clocks when the checkpoint is taken that another goes on from ----

name=apart
"$trireme" generate dense -o k rows=3k columns=6 clusters=4 spread=1 label=last format=csv >/dev/null || fail "generate"
cat >apart.yaml <<'END'
data: {train: k}
solve: {method: dual, epochs: 8, target_gap: 0}
sync: {mode: asp}
ranks: {layout: dedicated, servers: 1, patience: 5}
checkpoint: {every: 3 clocks}
END
TRIREME_FAULT="clock=kill@3:#6:0:0,clock=delay=60@3:1" timeout -s KILL $patience "$trireme" run apart.yaml -n 4 --heartbeat 100ms >err 2>&1
is "apart: exit" $? 0
says 1 "starting again" # from a checkpoint, if one could be written before

# ---- all is learnt, but not yet written: what was over goes on no further ----

cat >over.yaml <<'END'
data: {train: train.svm}
model: {type: logistic}
sync: {mode: bsp}
experiment: {clock: 0.05}
checkpoint: {every: 1 clocks}
END
for ends in "solve.method=newton solve.epochs=9" solve.method=dual "solve.method=sgd solve.batch=1000 solve.optimizer=adam solve.rate=0.1 solve.epochs=40 data.test=train.svm solve.patience=2"; do
    rm -rf over once
    on 2 "$trireme" train over.yaml output=once $ends >err 2>&1 || fail "$ends: $(cat err)"
    TRIREME_FAULT=stage.end=kill@1:#1:0:0 timeout -s KILL $patience "$trireme" run over.yaml -n 2 output=over $ends >err 2>&1
    is "$ends: restarts" "$(grep -c 'starting again' err)" 1
    same over once
done

# ---- writing fails ----

trains 75 full 6 $layout --max-time=1ms
is "a first checkpoint" "$(whole full/checkpoints)" "00000001 "
export TRIREME_FAULT
TRIREME_FAULT=checkpoint.write=enospc@1:1 trains 74 full 6 $layout
says 1 "^continues: .*from checkpoint 1 "
warned 2 "^warning: .*is not written: .*shard-0001.h5: .*No space left on device"
says 1 "^trireme: error: the last checkpoint could not be written: .*No space left"
is "a full disk: checkpoints" "$(whole full/checkpoints)" "00000001 "
same full still
TRIREME_FAULT=checkpoint.write=enospc@1:1 timeout -s KILL $patience "$trireme" run job.yaml -n 6 output=supervised $layout >err 2>&1
got=$? name=supervised
is "supervised: exit" $got 74
says 0 "starting again"
same supervised still
TRIREME_FAULT=checkpoint.write=eio@0:#9 trains 0 once 6 $layout # those that follow are well
says 1 "^warning: .*is not written: .*Input/output error"
is "once: failed" "$(of once checkpoints_failed)" 1
same once still
TRIREME_FAULT=checkpoint.write=short:0.5:3 trains 75 short 6 $layout --max-time=1ms
unset TRIREME_FAULT
trains 0 short 6 $layout
says 1 "^continues: .*from checkpoint 1 "
same short still

# A disk that is full indeed: a file system of 200 kB, for checkpoints of three times as much that are kept three at a time.
private="unshare --mount"; [ "$(id -u)" -eq 0 ] || private="$private --map-root-user"
mkdir small
if $private mount -t tmpfs -o size=200k tmpfs small 2>/dev/null; then
    cat >in_small.sh <<END
mount -t tmpfs -o size=200k tmpfs small || exit 99
$mpirun -n 6 $trireme train job.yaml $layout output=small-run checkpoint.to=small/kept
code=\$?
ls small/kept >small-left
exit \$code
END
    name=small-run
    timeout -s KILL $patience $private sh in_small.sh >err 2>&1
    is "a small disk: exit" $? 74
    warned 1 "^warning: .*is not written: .*No space left on device"
    [ "$(grep -c '^0' small-left)" -ge 1 ] || fail "a small disk: no checkpoint is left: $(cat small-left)"
    same small-run still
else
    skip "no file system of one's own"
fi

# A disk that is full or read-only for a while: it goes on, and all that was to be written is there in the end.
# for_a_while NAME FAIL MEND TEXT: the file system of the output fails between two clocks, at each of which rank 0 is stopped
for_a_while() {
    name=$1
    cat >on_disk.sh <<END
mount -t tmpfs -o size=64m tmpfs disk || exit 99
TRIREME_FAULT=clock=stop@0:#4,clock=stop@0:#16 $mpirun -n 2 $trireme train job.yaml output=disk/run checkpoint.every="1 clocks" &
stopped() {
    until grep -q ') T ' "/proc/\$rank/stat" 2>/dev/null; do
        kill -0 \$! || return
        rank=\$(sed -n 's/^  "pid": \([0-9]*\).*/\1/p' disk/run/status.json 2>/dev/null)
        sleep 0.05
    done
}
settled() { # the other rank has written and removed its shards
    until [ "\$last" = "\$(df --output=used disk)" ]; do last=\$(df --output=used disk); sleep 0.5; done
}
stopped; $2; kill -CONT \$rank
stopped; $3; kill -CONT \$rank
wait \$!
code=\$?
cp -r disk/run $name
exit \$code
END
    timeout -s KILL $patience $private sh on_disk.sh >err 2>&1
    is "$name: exit" $? 0
    warned 1 "^warning: .*is not written: .*$4"
    same "$name" reference
    is "$name: checkpoints" "$(ls "$name"/checkpoints | grep -c '^0')" 3
}
trains 0 reference 2
mkdir disk
if $private mount -t tmpfs tmpfs disk 2>/dev/null; then
    for_a_while full-disk 'settled; mount -o remount,size=$(($(df --output=used -k disk | tail -n 1) + 4))k disk' "mount -o remount,size=64m disk" \
        "No space left on device"
    for_a_while read-only "mount --bind disk disk && mount -o remount,ro,bind disk" "umount -l disk" "Read-only file system"
    name=unwritable
    $private sh -c 'mount -t tmpfs -o ro tmpfs disk && exec "$@"' sh $mpirun -n 2 "$trireme" train job.yaml output=disk/run >err 2>&1
    is "a disk that is read-only: exit" $? 73
    says 1 "^trireme: error: .*Read-only file system"
fi

# Shared memory that has no room for MPI's windows: said by a rank, instead of a wait inside of MPI for ever.
name=no-memory
if $private sh -c 'mount -t tmpfs -o size=4k tmpfs /dev/shm' 2>/dev/null; then
    for try in 1 2 3; do # mpirun itself now and then dies of a signal there, before there are ranks
        $private sh -c 'mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$@"' sh \
            timeout -s KILL $patience $mpirun -n 2 "$trireme" train job.yaml output=no-memory >err 2>&1
        got=$?
        [ $got -eq 139 ] || break
    done
    is "no shared memory: exit" $got 71
    says 1 "^trireme: error: this needs .* MB of shared memory on this node, but /dev/shm has 0.00 MB free"
    # the same under the supervisor: no other start would have more
    $private sh -c 'mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$@"' sh \
        timeout -s KILL $patience "$trireme" run job.yaml -n 2 output=no-memory >err 2>&1
    is "no shared memory under a supervisor: exit" $? 71
    says 1 "^trireme: error: this needs .* MB of shared memory on this node, but /dev/shm has 0.00 MB free"
    ! sed '1,/this needs/d' err | grep -q "starting again" || fail "$name: started again: $(cat err)"
fi

# ---- what is found is damaged ----

TRIREME_FAULT=checkpoint.manifest=kill@0:#3 on 2 "$trireme" train job.yaml output=torn >/dev/null 2>&1 &&
    fail "torn: was not killed"
set -- $(whole torn/checkpoints)
[ $# -ge 2 ] || fail "torn: two checkpoints are needed: $*"
while [ $# -gt 2 ]; do shift; done
before=${1#"${1%%[!0]*}"} last=${2#"${2%%[!0]*}"} newest=$2
# damaged NAME TEXT COMMAND…: done to a copy, in the folder of the newest checkpoint; the one before it is taken
damaged() {
    name=$1 text=$2; shift 2
    cp -r torn "$name"
    (cd "$name/checkpoints/$newest" && "$@") || fail "$name: cannot be damaged"
    trains 0 "$name" 2
    says 1 "^warning: *checkpoint $last is left out: .*$text"
    says 1 "^continues: .*from checkpoint $before "
    same "$name" reference
}
over() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; } # FILE OFFSET BYTES
cut_off() { truncate -s -"$2" "$1"; }
last_byte() { over "$1" $(($(wc -c <"$1") - 1)) "\\$(printf %o $((255 - $(tail -c 1 "$1" | od -An -tu1))))"; }
cp -r torn undamaged
trains 0 undamaged 2
says 1 "^continues: .*from checkpoint $last "
same undamaged reference
damaged shard-cut "shard-0001.h5: " cut_off shard-0001.h5 100
damaged shard-missing "shard-0000.h5: " rm shard-0000.h5
damaged shard-flipped "shard-0001.h5: " last_byte shard-0001.h5
damaged manifest-cut "manifest.h5: " cut_off manifest.h5 1
damaged later "manifest.h5: .*version 9" over manifest.h5 24 '\011'

# Of another job: refused, and left alone.
cp -r torn other
trains 78 other 2 model.l2=0.1
says 1 "^trireme: error: model.l2 was 0.001, is 0.1"
[ -e "other/checkpoints/$newest/manifest.h5" ] || fail "other: its checkpoint is gone"

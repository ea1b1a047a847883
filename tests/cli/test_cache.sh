#!/bin/sh
# Rows that stay in the node's memory for the next start of a job (data.cache) are found after a failure, never
# otherwise, and are removed when the job has ended in any way.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o train.svm rows=4k features=2k nonzeros=10 >/dev/null 2>&1 || fail "generate"
cat >job.yaml <<'END'
data: {train: train.svm, test: train.svm}
model: {l2: 0.01}
solve: {method: dual, epochs: 8, target_gap: 0}
sync: {mode: bsp}
checkpoint: {every: no}
END
base=/dev/shm
[ -w $base ] || { skip "no $base"; exit; }
base=$(mktemp -d $base/trireme-test-XXXXXX)
at_end='rm -rf "$base"'
export TRIREME_MEMORY="$base"

folders() { ls "$base" | grep -c '^trireme-data-'; }
files() { ls "$base"/trireme-data-*/data 2>/dev/null | wc -l; }
read_anew() { [ "$(grep -c 'read in' out)" -eq 2 ] && silent out 'found in memory' "$1" || fail "$1: not read: $(cat out)"; }
found() { [ "$(grep -c 'found in memory in' out)" -eq 2 ] && silent out 'read in' "$1" || fail "$1: not found: $(cat out)"; }

# leave FOLDER WORD…: a run of one rank that is killed while it trains, and leaves its data
leave() {
    folder=$1; shift
    rm -rf "$folder"
    "$trireme" train job.yaml output="$folder" data.cache=memory experiment.clock=0.2 "$@" >left.out 2>&1 &
    pid=$!
    wait_for "$folder trains" grep -q '^.*,1,' "$folder/metrics.csv"
    kill -KILL $pid
    wait $pid 2>/dev/null
}

# ---- it is not on by itself, and nothing is left of it ----
starts 0 2 job.yaml output=plain
read_anew "without a supervisor"
is "without a supervisor" "$(folders)" 0
starts 0 2 job.yaml output=kept data.cache=memory
read_anew "the first start"
is "a job that is done" "$(folders)" 0
cmp -s plain/model.txt kept/model.txt || fail "another model from rows that are kept"

# ---- found after a failure, and the same model comes of it ----
leave one
is "killed" "$(folders) $(files)" "1 4"
starts 0 1 job.yaml output=one data.cache=memory
found "after a failure"
is "after a failure" "$(folders)" 0
starts 0 1 job.yaml output=alone
cmp -s alone/model.txt one/model.txt || fail "another model from rows that were found"

# another job that starts looks whose job.yaml folder that is, and may be held up while it does
leave held
flock "$base"/trireme-data-*/owner sleep 0.7 &
starts 0 1 job.yaml output=held data.cache=memory
wait
found "while another job looks"

# ---- ends of other kinds ----
starts 75 2 job.yaml output=stopped data.cache=memory --max-time=1ms
is "stopped" "$(folders)" 0
starts 76 1 job.yaml output=failed data.cache=memory solve.method=sgd model.type=linear solve.rate=1e30
is "failed" "$(folders)" 0

# ---- the data, the layout or the settings are others ----
leave two
cp -p train.svm copy && sed -i '1s/^[-+0-9]*/-1/;2s/^[-+0-9]*/1/' copy && cat copy >train.svm
starts 0 1 job.yaml output=two data.cache=memory
read_anew "other data"
says out "^note: .*belong to other files or ranks" "other data"
starts 0 1 job.yaml output=changed
cmp -s changed/model.txt two/model.txt || fail "other data: another model"
leave two
starts 0 2 job.yaml output=two data.cache=memory
read_anew "another layout"
leave two
starts 0 1 job.yaml output=two data.cache=memory data.order=file
read_anew "another order"
leave two
starts 0 1 job.yaml output=two data.cache=no
read_anew "not wanted any more"
is "not wanted any more" "$(folders)" 0

# ---- torn, and not even that ----
leave three
for file in "$base"/trireme-data-*/data/training-0.rows; do truncate -s -4096 "$file"; done
starts 0 1 job.yaml output=three data.cache=memory
grep -q '^training data: .* read in' out || fail "torn: $(cat out)"
leave three
rm "$base"/trireme-data-*/owner
starts 0 1 job.yaml output=three data.cache=memory
is "without an owner" "$(folders)" 0

# ---- two jobs on the same data, one of which ends ----
"$trireme" train job.yaml output=first data.cache=memory experiment.clock=0.2 solve.epochs=1000000 >first.out 2>&1 &
pid=$!
wait_for "the first of two" grep -q '^.*,1,' first/metrics.csv
starts 0 1 job.yaml output=second data.cache=memory
read_anew "the second of two"
is "one of two is done" "$(folders) $(files)" "1 4"
refuses "two at once in one folder" 73 "another run is writing there now" \
    "$trireme" train job.yaml output=first report.progress=no data.cache=memory
is "two at once in one folder" "$(folders) $(files)" "1 4"

# ---- what runs leave that nobody starts again: gone job.yaml with the next start of any, if they are over ----
kill -KILL $pid
wait $pid 2>/dev/null
starts 0 1 job.yaml output=second data.cache=memory
is "a run that may be started again" "$(folders)" 1
touch -d '2 hours ago' first/status.json
starts 0 1 job.yaml output=second
is "a run that nobody has heard of" "$(folders)" 0
leave four
sed -i 's/"state": "[a-z]*"/"state": "failed"/' four/status.json
starts 0 1 job.yaml output=second
is "a run that has failed" "$(folders)" 0
leave five
rm -r five
starts 0 1 job.yaml output=second
is "a run whose folder is gone" "$(folders)" 0
mkdir -m 700 "$base/trireme-data-$(id -u)-0123456789abcdef" "$base/trireme-data-$(id -u)-0123456789abcdef-aside"
starts 0 1 job.yaml output=second
is "an empty folder, and one of somebody else" "$(ls "$base")" "trireme-data-$(id -u)-0123456789abcdef-aside"
rmdir "$base"/*

# ---- something else is in its place ----
name=$(leave six; basename "$base"/trireme-data-*)
rm -r "$base/$name"
mkdir target && ln -s "$here/target" "$base/$name"
starts 0 1 job.yaml output=six data.cache=memory
says out "^note: .*not kept for another start: .*is not a folder of this user alone" "a link"
is "a link" "$(ls target; readlink "$base/$name")" "$here/target"
rm "$base/$name"

# ---- no room ----
# A file system of its own, where that can be had.
small() { unshare --mount sh -c 'mount -t tmpfs -o size=512k tmpfs "$TRIREME_MEMORY" && "$@"' sh "$@"; }
if small true 2>/dev/null; then
    small "$trireme" train job.yaml output=full data.cache=memory >out 2>&1 || fail "no room: exit $?: $(tail -3 out)"
    read_anew "no room"
    says out "^note: .*not kept for another start: memory has not twice the room" "no room"
    is "no room: notes" "$(grep -c '^note: .*not kept' out)" 1
else
    skip "no file system of one's own"
fi

# A file of rows that a group was to share, of a process that was killed before the file had lost its name; and of one that lives.
gone=$(sh -c 'echo $$') left="$base/trireme-rows-$(id -u)-$(hostname)-$(stat -L -c %i /proc/self/ns/pid)"
: >"$left-$gone"
: >"$left-$$"
starts 0 1 job.yaml output=passing
[ ! -e "$left-$gone" ] || fail "what a killed process has left stays"
[ -e "$left-$$" ] || fail "what another process is about to share goes"
if unshare --pid --fork true 2>/dev/null; then
    unshare --pid --fork "$trireme" train job.yaml output=passing >out 2>&1 || fail "processes of its own: $(tail -3 out)"
    [ -e "$left-$$" ] || fail "what a process of another container is about to share goes"
fi
rm -f "$left-$gone" "$left-$$"

# A container that shares the memory, but has other files where the run has its folder, cannot tell that it is over.
if unshare --mount sh -c 'mount -t tmpfs tmpfs .tmp' 2>/dev/null; then
    leave seven
    unshare --mount sh -c 'mount -t tmpfs tmpfs seven && "$@"' sh "$trireme" train job.yaml output=second >out 2>&1 ||
        fail "other files: $(tail -3 out)"
    is "a run of a container with other files" "$(folders)" 1
    starts 0 1 job.yaml output=seven data.cache=memory
    found "after a job in a container with other files"
else
    skip "no files of one's own"
fi

# ---- failures on purpose ----
if TRIREME_FAULT=load=exit=7:1 "$trireme" train job.yaml output=faults >out 2>&1; then
    skip "built without faults"
else
    starts 0 2 job.yaml output=without
    export TRIREME_FAULT="cache.room=enospc@1:#3"
    starts 0 2 job.yaml output=fault data.cache=memory
    read_anew "no room in the middle"
    says out "^note: .*not kept for another start" "no room in the middle"
    is "no room in the middle" "$(folders)" 0
    cmp -s fault/model.txt without/model.txt || fail "no room in the middle: another model"

    for visit in 1 4; do
        export TRIREME_FAULT="cache.sum=kill@1:#$visit"
        starts killed 2 job.yaml output=writing data.cache=memory
        is "killed while it is written" "$(folders)" 1
        unset TRIREME_FAULT
        starts 0 2 job.yaml output=writing data.cache=memory
        grep -q '^test data: .* read in' out || fail "killed while it is written: $(cat out)"
        is "killed while it is written: the end" "$(folders)" 0
    done

    # ---- under a supervisor ----
    # supervised EXIT WORD…
    supervised() {
        code=$1; shift
        timeout $patience "$trireme" run job.yaml -n 2 output=supervised "$@" >out 2>&1; got=$?
        [ $got -eq "$code" ] || fail "trireme run: exit $got, expected $code: $(cat out)"
        is "trireme run: the end" "$(folders)" 0
    }
    export TRIREME_FAULT="stage=kill@1:#1:0:0"
    supervised 0
    is "found at the second start" "$(grep -c 'found in memory' out)" 2
    is "read at the first start" "$(grep -c 'read in' out)" 2
    export TRIREME_FAULT="stage=kill@1:1"
    supervised 137 --fresh --max-restarts 1
fi

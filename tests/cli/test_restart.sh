#!/bin/sh
# Runs that are stopped by a time limit or a signal, or killed, and resume: with the same layout bit by bit as if they
# had not stopped.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { srand(7); for (i = 0; i < 1200; i++) { m = 0; row = "";
    for (j = 1; j <= 12; j++) { x = int(rand() * 1000) / 1000 - 0.4; m += x * (j - 6); row = row " " j ":" x }
    file = i < 1000 ? "train" : "test"; print (m + 4 * (rand() - 0.5) > 0.5 ? 1 : -1) row > file } }'
cat >job.yaml <<'EOF'
data: {train: train, test: test}
model: {l2: 0.01}
solve: {method: dual, epochs: 12, target_gap: 0}
sync: {mode: bsp}
EOF

status() { sed -n "s/^  \"$2\": \(.*\),\$/\1/p" "$1/status.json"; }
# numbers FOLDER: of metrics.csv, without times, and without what going on has to read again
numbers() { cut -d, -f2-6,16 "$1/metrics.csv"; }
# same WHAT FOLDER REFERENCE: the same model and metrics
same() {
    cmp -s "$2/model.txt" "$3/model.txt" || fail "$1: another model.txt"
    ! command -v h5diff >/dev/null || h5diff --exclude-path /job "$2/model.h5" "$3/model.h5" >left 2>&1 || fail "$1: another model.h5: $(head -3 left)"
    numbers "$2" >left; numbers "$3" >right
    cmp -s left right || fail "$1: other metrics: $(diff left right | head -5)"
    is "$1: updates" "$(of "$2" updates)" "$(of "$3" updates)"
    is "$1: objective" "$(of "$2" objective)" "$(of "$3" objective)"
    is "$1: accuracy" "$(of "$2" test_accuracy)" "$(of "$3" test_accuracy)"
}

# ---- a time limit that is over at once: a clock or more each time ----
# parts NAME RANKS SETTING…
parts() {
    name=$1 folder=parts.$1 of=$2; shift 2
    run "whole.$name" "$of" job.yaml "$@" || return
    starts 75 "$of" job.yaml "$@" output="$folder" --max-time=1ms
    says out "^stopped: .* checkpoint 1 written; the same command continues" "$name: first part"
    silent error "$name: first part"
    is "$name: state" "$(state "$folder")" stopped
    is "$name: status" "$(status "$folder" status)" 75
    [ ! -e "$folder/model.h5" ] || fail "$name: a model of a run that stopped"
    starts 75 "$of" job.yaml "$@" output="$folder" --max-time 1ms
    says out "^continues: .*from checkpoint 1 at epoch .* (clock .*), written .* ago" "$name: second part"
    starts 0 "$of" job.yaml "$@" output="$folder"
    says out "^continues: .*from checkpoint 2 " "$name: last part"
    same "$name: three parts" "$folder" "whole.$name"
    is "$name: state" "$(state "$folder")" done
    is "$name: continued" "$(status "$folder" continued)" 2
    is "$name: restarts" "$(of "$folder" restarts)" 2
    holds "$name: checkpoints" "$(of "$folder" checkpoints) >= 2"
    [ ! -e "$folder.1" ] || fail "$name: something was kept aside"
}
parts dual 2 solve.method=dual
parts sgd 1 solve.method=sgd "sync.push=every 4"
parts newton 2 solve.method=newton model.bias=yes solve.epochs=100 solve.target_gap=1e-12
parts hinge 2 model.type=svm solve.method=newton solve.epochs=100 solve.target_gap=1e-6

# ---- what ended is kept aside; the job may change where it may ----
starts 75 2 job.yaml output=parts.dual --max-time=1ms
silent out "^continues:" "a finished run"
[ -e parts.dual.1/model.h5 ] || fail "a finished run is not kept aside"
starts 78 2 job.yaml output=parts.dual model.l2=0.1
says out "^trireme: error: model.l2 was 0.01, is 0.1 (command line); --fresh starts over" "a changed job"
is "a changed job: lines of error" "$(grep -c 'error:' out)" 1
is "a changed job: state" "$(state parts.dual)" stopped
starts 0 2 job.yaml output=parts.dual solve.epochs=14
says out "^note: *the job has changed: .*solve.epochs 12 -> 14" "more epochs"
says out "^continues: " "more epochs"
is "more epochs: epochs" "$(of parts.dual epochs)" 14

starts 75 2 job.yaml output=fresh --max-time=1ms
starts 0 2 job.yaml output=fresh model.l2=0.1 --fresh
silent out "^continues:" "--fresh"
[ -e fresh.1/checkpoints ] || fail "--fresh: what was there is not kept aside"
is "--fresh: restarts" "$(of fresh restarts)" 0

# ---- another layout, and metrics that are gone ----
starts 75 2 job.yaml output=other solve.epochs=60 solve.target_gap=1e-6 --max-time=1ms
rm other/metrics.csv
starts 0 3 job.yaml output=other solve.epochs=60 solve.target_gap=1e-6
says out "^continues: " "three ranks go on"
says out "^note: *metrics.csv has lost lines" "three ranks go on"
run straight 2 job.yaml solve.epochs=60 solve.target_gap=1e-6
near "$(of other objective)" "$(of straight objective)" 2e-6 ||
    fail "another layout: objective $(of other objective), straight $(of straight objective)"
head -1 other/metrics.csv | grep -q '^time,epoch,' || fail "another layout: metrics.csv begins otherwise"

# Between one worker, workers that share one w and workers that have copies: what one of these layouts keeps is enough for all.
# changes NAME RANKS LAYOUT: goes on in that layout with what another one has left there
changes() {
    starts 75 "$2" job.yaml $many model.type=$type output=layouts $3 --max-time=1ms
    [ "$1" = first ] || says out "^continues: " "$type: in layout $1"
}
many="solve.epochs=300 solve.target_gap=1e-6"
copies=ranks.group_size=1
for type in logistic svm; do
    rm -rf layouts*
    # shellcheck disable=SC2086
    {
        run straight 2 job.yaml $many model.type=$type
        changes first 1 ""
        changes copies 2 $copies
        changes shared 2 ""
        changes "copies again" 3 $copies
        starts 0 1 job.yaml $many model.type=$type output=layouts
    }
    says out "^continues: " "$type: by one"
    near "$(of layouts objective)" "$(of straight objective)" 2e-6 ||
        fail "$type in other layouts: objective $(of layouts objective), straight $(of straight objective)"
    holds "$type in other layouts: a gap of $(of layouts gap)" "$(of layouts gap) < 2e-6"
done

# ---- signals, and a run that is killed ----
run alone 1 job.yaml
# in the background, where a shell has SIGINT ignored, and then a program has its reasons not to hear it
for signal in USR1 TERM INT; do
    env --default-signal=INT "$trireme" train job.yaml output=asked.$signal experiment.clock=1 >asked.out 2>&1 &
    pid=$!
    wait_for "$signal: training" grep -q '^.*,3,' asked.$signal/metrics.csv
    kill -$signal $pid
    wait $pid
    is "$signal: exit" $? 75
    is "$signal: state" "$(state asked.$signal)" stopped
    starts 0 1 job.yaml output=asked.$signal
    same "$signal" asked.$signal alone
done
# one that only has a checkpoint written
"$trireme" train job.yaml output=kept experiment.clock=1 checkpoint.every=no >kept.out 2>&1 &
pid=$!
wait_for "USR2: training" grep -q '^.*,2,' kept/metrics.csv
kill -USR2 $pid
wait_for "USR2: a checkpoint" test -e kept/checkpoints/00000001/manifest.h5
wait_for "USR2: going on" grep -q '^.*,4,' kept/metrics.csv
kill -USR1 $pid
wait $pid
is "USR2: exit" $? 75
starts 0 1 job.yaml output=kept
says out "^continues: .*from checkpoint 2 " "USR2"
same "USR2" kept alone

"$trireme" train job.yaml output=killed experiment.clock=1 checkpoint.every="1 clock" >killed.out 2>&1 &
pid=$!
wait_for "KILL: a checkpoint" test -e killed/checkpoints/00000002/manifest.h5
refuses "a folder whose run is alive" 73 "another run is writing there now" \
    "$trireme" train job.yaml output=killed report.progress=no
kill -KILL $pid
wait $pid 2>/dev/null
starts 0 1 job.yaml output=killed
says out "^continues: " "KILL"
same "KILL" killed alone

# ---- checkpoints in a folder of their own: what a fresh run leaves aside is not taken up later ----
starts 75 1 job.yaml output=apart checkpoint.to=aside --max-time=1ms
starts 0 1 job.yaml output=apart checkpoint.to=aside --fresh
silent out "^continues: " "--fresh, checkpoints aside"
rm -r apart
starts 0 1 job.yaml output=apart checkpoint.to=aside
silent out "^continues: " "after --fresh, checkpoints aside"

"$trireme" train job.yaml output=first checkpoint.to=both experiment.clock=1 checkpoint.every="1 clock" >first.out 2>&1 &
pid=$!
wait_for "two runs: a checkpoint" test -e both/00000001/manifest.h5
refuses "checkpoints of a run that is alive" 73 "checkpoint.to both: another run is writing there now (process $pid on host" \
    "$trireme" train job.yaml output=second checkpoint.to=both report.progress=no
kill -TERM $pid
wait $pid 2>/dev/null
[ ! -e both/.lock ] || fail "checkpoint.to: its lock is left"

# ---- several tasks ----
cat >tasks.yaml <<'EOF'
data: {train: train, test: test}
solve: {method: dual, epochs: 6, target_gap: 0}
sync: {mode: bsp}
tasks:
  one: {ranks: 1}
  two: {after: one, model.l2: 0.1}
  mean: {run: average, after: [one, two]}
EOF
run straight.tasks 2 tasks.yaml
starts 75 2 tasks.yaml output=tasks --max-time=1ms
says out "^stopped: .*0 of 3 tasks done; the same command continues" "tasks"
is "tasks: state" "$(state tasks)" stopped
grep -q '"name": "one", "state": "stopped"' tasks/status.json || fail "tasks: the first is not stopped"
starts 75 2 tasks.yaml output=tasks tasks.two.checkpoint.max_time=1ms
says out "^stopped: .*1 of 3 tasks done" "tasks, the second"
starts 0 2 tasks.yaml output=tasks
says out "^continues: *1 of 3 tasks are done" "tasks, the last time"
says out "^one .* done before" "tasks, the last time"
silent out "^one: epoch" "tasks, the last time"
for task in one two; do same "task $task" tasks/$task straight.tasks/$task; done
is "tasks: the mean" "$(of tasks/mean test_auc)" "$(of straight.tasks/mean test_auc)"
starts 75 2 tasks.yaml output=tasks2 tasks.two.checkpoint.max_time=1ms
starts 78 2 tasks.yaml output=tasks2 tasks.one.seed=7
says out "error: tasks.one.seed was 1, is 7 (command line); --fresh starts over" "a task that has changed"

#!/bin/bash
# Jobs under Slurm, with the scripts of slurm/ on a cluster of three nodes on this machine: stopped by a time limit and by
# a signal, by srun and by mpirun, they go on and come to the same; cancelled or with a rank killed they leave what can be
# continued; and an array of them. Usage: test_slurm.sh TRIREME; skipped where Slurm cannot be started
. "$(dirname "$0")/lib.sh"
scripts=$(realpath "$jobs/../slurm")

# ---- the scripts alone, with commands that answer in place of Slurm's ----
mkdir mock
printf '%s\n' '#!/bin/sh' 'echo N/A' >mock/squeue
printf '%s\n' '#!/bin/sh' "[ \"\$1\" != show ] || echo 'JobId=7 Command=$scripts/sweep.sbatch WorkDir=/'" >mock/scontrol
printf '%s\n' '#!/bin/bash' '[ "$1" != --mpi=list ] || { echo pmix; exit; }' 'while [[ $1 == --* ]]; do shift; done; exec "$@"' >mock/srun
printf '%s\n' '#!/bin/sh' 'echo "$*" >said; exit 75' >mock/stops # a program that stops at once
chmod +x mock/*
# mocked NAME=VALUE… SCRIPT WORD…
mocked() { env PATH="$PWD/mock:$PATH" SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=n1 TRIREME_LAUNCH=srun "$@" >mock.out 2>&1; }

mocked TRIREME=mock/stops "$scripts/train.sbatch" job.yaml --fresh output=a
[ "$(cat said)" = 'train job.yaml --fresh output=a' ] || fail "--fresh: the first part runs $(cat said)"
mocked TRIREME=mock/stops SLURM_RESTART_COUNT=1 "$scripts/train.sbatch" job.yaml --fresh output=a
[ "$(cat said)" = 'train job.yaml output=a' ] || fail "--fresh: the second part runs $(cat said)"

printf '%s\n' solve.epochs=3 "solve.epochs=4 checkpoint.to=4" >lines.txt
mocked TRIREME=mock/stops SLURM_ARRAY_TASK_ID=1 "$scripts/sweep.sbatch" job.yaml lines.txt
awk '$1 == 1 { print $3 }' runs/lines/summary.txt | grep -qx 75 || fail "an element that goes on: $(cat runs/lines/summary.txt)"

# Elements have their own checkpoints, though the job names one folder.
"$trireme" generate ctr -o ctr.svm rows=500 features=200 nonzeros=8 2>/dev/null
cat >shared.yaml <<'END'
data: {train: ctr.svm}
model: {type: logistic}
solve: {method: dual, target_gap: 0}
checkpoint: {every: 1 clocks, to: shared}
END
for element in 1 2; do
    mocked TRIREME="$trireme" SLURM_ARRAY_TASK_ID=$element "$scripts/sweep.sbatch" shared.yaml lines.txt || fail "element $element: $(cat mock.out)"
done
[ -d runs/lines/1/checkpoints ] && [ -d 4 ] && [ ! -e shared ] || fail "elements share their checkpoints: $(ls -d shared 4 runs/lines/*/*)"

# Two signals at once: it waits for the program all the same.
for turn in $(seq 16); do
    : >mock.out # what an earlier one said is not this one's
    mocked TRIREME="$trireme" "$scripts/train.sbatch" shared.yaml checkpoint.to=twice$turn.to output=twice$turn experiment.clock=0.1 solve.epochs=1000 &
    script=$!
    wait_for "training to begin" grep -q '^epoch' mock.out || break
    script=$(pgrep -P $script) # of the shell in the background; env has become the script
    kill -USR1 $script; kill -USR1 $script
    wait
    grep -q '^train.sbatch: stopped with a checkpoint' mock.out || { fail "two signals at once: $(cat mock.out)"; break; }
done
rm -rf mock runs 4 twice* said

box=$(realpath "$jobs/../tools/slurm-in-a-box")
"$box" start --at "$here/slurm" --cpus 8 --first 6 2>err
case $? in
0) ;;
69 | 77) skip "$(cat err)"; exit 77 ;;
*) fail "the cluster does not start: $(cat err)"; exit 1 ;;
esac
at_end='"$box" stop --at "$here/slurm"'
export SLURM_CONF="$here/slurm/slurm.conf" TRIREME="$trireme"
unset TRIREME_LAUNCH

# submit OPTION… SCRIPT WORD…: the job's id. Each has its own folder for mpirun.
submit() { TMPDIR=$(mktemp -d) sbatch --parsable --ntasks=2 --output=%x.out "$@"; }
says() { scontrol show job -o "$1" | sed -n "s/.* $2=\([^ ]*\).*/\1/p"; } # ID NAME
# is ID STATE EXIT NAME: how Slurm saw it end; shows what the job has said if otherwise
is() {
    got="$(says "$1" JobState) $(says "$1" ExitCode)"
    [ "$got" = "$2 $3" ] || fail "$4: ends as «$got», not «$2 $3»: $(tail -20 "$4.out")"
}
trains() { [ "$(state "$1")" = training ] && [ "$(wc -l <"$1/metrics.csv")" -gt 2 ]; }
gone() { [ -z "$(squeue -h)" ]; }
ended() { [ -z "$(squeue -h -j "${!1}" 2>/dev/null)" ]; } # JOB
# during JOB WHAT COMMAND…: waits until the command succeeds, which must be before the end of the job
during() {
    job=$1 awaited=$2; shift 2
    succeeds_or_ended() { "$@" || ended "$job"; }
    wait_for "$awaited" succeeds_or_ended "$@" && "$@" && return
    fail "$job: no $awaited: $(tail -20 "$job.out")"
    return 1
}
# the second rank of the training into that folder: its pid
second_rank() {
    grep -lsz "^output=$1\$" /proc/[0-9]*/cmdline | while read -r line; do
        process=${line%/cmdline}
        [ "$(realpath -q "$process/exe")" = "$trireme" ] || continue # not a launcher
        [ "$(realpath -q "$process/cwd")" = "$here" ] || continue    # not of this test
        ! grep -qszxE '(PMIX_RANK|OMPI_COMM_WORLD_RANK)=1' "$process/environ" || echo "${process#/proc/}"
    done
}

# A job that takes nine seconds on any machine.
dense_rows 3000 3 >dense
cat >job.yaml <<'END'
data: {train: [dense]}
model: {type: logistic, l2: 1/n}
solve: {method: dual, epochs: 30, target_gap: 0}
sync: {mode: bsp, push: 1 per epoch}
experiment: {clock: 0.3}
checkpoint: {every: 4 clocks}
report: {every: 1}
END
printf '%s\n' '# settings' "solve.epochs=3 sync.push='1 per epoch'" '' model.l2=0.1 solve.epoch=4 >list.txt

# A program with a main of its own: ridge regression of the course, which takes as long.
course=$(realpath "$jobs/../docs/course")
build=$(dirname "$trireme")
cc -O1 ${sanitized:+-fsanitize=address} "$course/5-group.c" -o ridge -I"$course/../../include" -L"$build" -ltrireme -lm -Wl,-rpath,"$build" || fail "5-group.c does not build"
sed '/^model:\|^solve:\|^sync:/d' job.yaml >own.yaml
cat >>own.yaml <<'END'
solve: {epochs: 30}
END
sed -i 's/^data: .*/data: {train: [dense], partition: replicated}\nranks: {group_size: 2}/' own.yaml

# ---- all at once: they have the cores to themselves while others wait ----
train=$scripts/train.sbatch
limit=$(submit --job-name=limit "$train" job.yaml output=limit)
signal=$(TRIREME_LAUNCH=mpirun submit --job-name=signal -N 2 --time=5 "$train" job.yaml output=signal)
cancel=$(submit --job-name=cancel -N 2 --time=5 "$train" job.yaml output=cancel)
killed=$(submit --job-name=killed --time=5 "$train" job.yaml output=killed)
killed_mpirun=$(TRIREME_LAUNCH=mpirun submit --job-name=killed_mpirun --time=5 "$train" job.yaml output=killed_mpirun)
supervised=$(TRIREME_LAUNCH=run submit --job-name=supervised --time=5 "$train" job.yaml output=supervised)
own=$(TRIREME_PROGRAM=./ridge submit --job-name=own --time=5 "$train" own.yaml output=own)
own_run=$(TRIREME_PROGRAM=./ridge TRIREME_LAUNCH=run submit --job-name=own_run --time=5 "$train" own.yaml output=own_run experiment.clock=0)
wrong=$(submit --job-name=wrong --time=5 "$train" job.yaml solve.epoch=3 output=wrong)
folds=$(submit --job-name=folds --time=5 "$train" sweep job.yaml model.l2=1e-3,1 solve.epochs=3 experiment.clock=0 output=folds)
sweep=$(submit --job-name=sweep --array=1-3 --ntasks=1 --time=5 "$scripts/sweep.sbatch" job.yaml list.txt)
[ "$limit" ] && [ "$sweep" ] || fail "sbatch does not take jobs"
# Each is dealt with as soon as it trains, however long others take to begin.
act() { (job=$1; shift; bad=0; during "$job" training trains "$job" && "$@"; exit $bad) & acts="$acts $!"; }
kill_second() {
    during "$1" "a checkpoint" test -e "$1/checkpoints/00000001/manifest.h5" || return
    rank=$(second_rank "$1")
    kill -9 "$rank" || fail "$1: which is its second rank? «$rank»"
}
kill_and_stop() {
    kill_second supervised
    during supervised "the second part" grep -q '^continues:' supervised.out &&
        during supervised "training again" trains supervised &&
        scancel --batch --signal=USR1 "$supervised"
}
acts=
act signal scancel --batch --signal=USR1 "$signal"
act own scancel --batch --signal=USR1 "$own"
act cancel scancel "$cancel"
act killed kill_second killed
act killed_mpirun kill_second killed_mpirun
act supervised kill_and_stop
for act in $acts; do wait "$act" || bad=1; done
run undisturbed 2 job.yaml experiment.clock=0
wait_for "the end of all jobs" gone

# ---- time limit, and signal: put back once, done, and the same model ----
is "$limit" COMPLETED 0:0 limit
is "$signal" COMPLETED 0:0 signal
is "$supervised" COMPLETED 0:0 supervised
for name in limit signal supervised; do
    [ "$(says "${!name}" Restarts)" -ge 1 ] || fail "$name: was not put back"
    grep -q '^train.sbatch: stopped with a checkpoint' $name.out || fail "$name: does not say that it stopped: $(cat $name.out)"
    grep -q '^continues:' $name.out || fail "$name: does not go on: $(cat $name.out)"
    [ "$(state $name)" = done ] || fail "$name: is $(state $name)"
    [ "$(wc -l <$name/metrics.csv)" -eq "$(wc -l <undisturbed/metrics.csv)" ] ||
        fail "$name: metrics.csv has $(wc -l <$name/metrics.csv) lines, not $(wc -l <undisturbed/metrics.csv) as undisturbed"
done
grep -q 'rank 1 (pid .* was killed by SIGKILL' supervised.out || fail "supervised: nobody was lost: $(cat supervised.out)"
cmp -s limit/model.txt undisturbed/model.txt || fail "limit: not the model of an undisturbed run"
near "$(of signal objective)" "$(of undisturbed objective)" 1e-4 || fail "signal: objective $(of signal objective)"

# ---- a program of one's own: put back and gone on with, and under the supervisor: the same outcome ----
is "$own" COMPLETED 0:0 own
is "$own_run" COMPLETED 0:0 own_run
[ "$(says "$own" Restarts)" -ge 1 ] || fail "own: was not put back: $(cat own.out)"
grep -q '^continues:' own.out || fail "own: does not go on: $(cat own.out)"
[ "$(of own objective)" ] && [ "$(of own objective)" = "$(of own_run objective)" ] ||
    fail "own: objective $(of own objective), under the supervisor $(of own_run objective)"

# ---- cancelled, killed: not put back, and what they leave can be continued ----
is "$cancel" CANCELLED "$(says "$cancel" ExitCode)" cancel
is "$killed" FAILED 137:0 killed
is "$killed_mpirun" FAILED 137:0 killed_mpirun
for name in cancel killed killed_mpirun; do
    [ "$(says "${!name}" Restarts)" -eq 0 ] || fail "$name: was put back"
    run $name 2 job.yaml experiment.clock=0
    near "$(of $name objective)" "$(of undisturbed objective)" 1e-4 || fail "$name: objective $(of $name objective)"
done
grep -q '^continues:' killed.out || fail "killed: begins anew: $(cat killed.out)"

# ---- what would be wrong again is not put back ----
is "$wrong" FAILED 78:0 wrong
grep -q 'did you mean solve.epochs' wrong.out || fail "wrong: does not say why: $(cat wrong.out)"

# ---- a sweep in one job ----
is "$folds" COMPLETED 0:0 folds
grep -q '^s1 .*model.l2=1e-3  <- best' folds.out && [ -e folds/best/model.h5 ] || fail "folds: $(cat folds.out)"

# ---- the array ----
[ "$(wc -l <runs/list/summary.txt)" -eq 4 ] || fail "sweep: summary: $(cat runs/list/summary.txt)"
for line in '1 done 0 3 solve.epochs=3' '2 done 0 30 model.l2=0.1' '3 - 78 - solve.epoch=4'; do
    awk '{ print $1, $2, $3, $7, $9 }' runs/list/summary.txt | grep -qx -- "$line" ||
        fail "sweep: no line «$line»: $(cat runs/list/summary.txt sweep.out)"
done
! grep -q 'invalid date' sweep.out || fail "sweep: not the end of one element: $(grep date sweep.out)"

# ---- nothing is left of the cluster ----
"$box" status --at "$here/slurm" >/dev/null || fail "status does not know that the cluster is up"
"$box" start --at "$here/slurm" || fail "start where it is up already: exit $?"
"$box" stop --at "$here/slurm" || fail "stop: exit $?"
[ ! -e "$here/slurm" ] || fail "stop leaves files: $(ls "$here/slurm")"
left=$(grep -lszxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ | grep -v "/proc/$$/")
for process in $left; do
    case $(cat "${process%/environ}/comm" 2>/dev/null) in slurmctld | slurmd | slurmstepd | slurmscriptd | munged | trireme) fail "stop leaves a process: $process" ;; esac
done
"$box" stop --at "$here/slurm" || fail "stop where nothing is up: exit $?"

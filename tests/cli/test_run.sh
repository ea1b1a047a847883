#!/bin/sh
# trireme run: ranks, mpirun or the supervisor die or are stopped; the end and the messages of the job.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o train.svm rows=2k features=1k nonzeros=10 >/dev/null || fail "generate"
cat >job.yaml <<'END'
data: {train: train.svm}
model: {type: logistic}
solve: {method: dual, target_gap: 0, epochs: 40}
sync: {mode: bsp}
checkpoint: {every: 5 clocks}
END
options="-n 3 --heartbeat 100ms --limit 5s report.progress=no"

# started: how often, by the log
started() { grep -c ' started ' log; }

# supervised EXIT STARTS NAME WORD…: trireme run with these words ends with this code after so many starts; output in NAME
supervised() {
    code=$1 starts=$2 name=$3; shift 3
    rm -f log
    timeout $patience "$trireme" run job.yaml $options --log log output="$name" "$@" >out 2>err; got=$?
    [ $got -eq "$code" ] || fail "$name: exit $got, expected $code: $(cat err)"
    [ "$(started)" -eq "$starts" ] || fail "$name: $(started) starts, expected $starts: $(cat err)"
    if grep -E '^-{40}|^\[[^]]*:[0-9]+\]|mpirun (noticed|detected)|Primary job' err; then fail "$name: mpirun's words come through"; fi
}

# Whether a checkpoint was whole before the first death: disks may take their time.
kept() { grep -q ' 0 checkpoint ' log; }

# says WORDS: … in one line of err
says() { [ "$(grep -cF -- "$1" err)" -eq 1 ] || fail "$name: not one line has «$1»: $(cat err)"; }

# in_background NAME WORD…: starts it as a job script does, which ignores USR1 until it is heard, with no end in sight, and
# waits until it trains
in_background() {
    name=$1; shift
    rm -f log
    sh -c 'trap "" USR1; exec "$@"' sh "$trireme" run job.yaml $options --log log output="$name" solve.epochs=1000000 "$@" \
        >out 2>err &
    supervisor=$!
    wait_for "its first clocks" grep -q ' clock ' log
    mpirun=$(sed -n 's/.* started mpirun //p' log)
    ranks=$(cat "/proc/$mpirun/task/$mpirun/children")
}

gone() { for pid; do case $(cat "/proc/$pid/stat" 2>/dev/null) in "" | *") Z "*) ;; *) return 1 ;; esac done; }
ended() { wait "$supervisor"; got=$?; [ $got -eq "$1" ] || fail "$name: exit $got, expected $1: $(cat err)"; }

# ---- what is wrong with the command ----

refuses "no job" 64 "expected JOB.yaml" "$trireme" run -n 2
refuses "no such job" 66 nosuch.yaml "$trireme" run nosuch.yaml
refuses "no such key" 78 solve.epoch "$trireme" run job.yaml solve.epoch=3
refuses "no number" 64 "a number from 1" "$trireme" run job.yaml -n none
refuses "no time" 64 "a time such as" "$trireme" run job.yaml --limit soon
refuses "limits" 64 "at least twice" "$trireme" run job.yaml --limit 1s --heartbeat 1s
refuses "mpirun's options" 64 "behind --" "$trireme" run job.yaml --bind-to none
refuses "a setting behind --" 64 "unexpected solve.epochs=3 behind --" "$trireme" run job.yaml -- --oversubscribe solve.epochs=3
refuses "a word behind a value" 64 "unexpected more behind --" "$trireme" run job.yaml -- --mca pml ob1 --bind-to core more
refuses "no option of mpirun's" 64 "unexpected localhost behind --" "$trireme" run job.yaml -n 2 -- localhost
refuses "no mpirun" 66 "mpirun cannot be started" env PATH=/nowhere "$trireme" run job.yaml -n 2

# a host that ssh does not reach: its own line, and ours instead of Open MPI's pages
cat >ssh <<'END'
#!/bin/sh
echo "ssh: connect to host $1 port 22: No route to host" >&2
exit 255
END
chmod +x ssh
OMPI_MCA_plm_rsh_agent="$here/ssh" PRTE_MCA_plm_ssh_agent="$here/ssh" timeout $patience "$trireme" run job.yaml -n 2 output=unreached \
    -- --host faraway:2 >out 2>err
got=$? name=unreached
[ $got -eq 69 ] || fail "unreached: exit $got: $(cat err)"
says "could not start its daemon on a host"
[ "$(grep -v '^ssh: ' err | wc -l)" -eq 1 ] || fail "unreached: not one line of ours: $(cat err)"

# an mpirun that loses its session folder, because another one ends at the same time
mkdir raced
cat >raced/mpirun <<'END'
#!/bin/sh
! mkdir "$RACED/lost" 2>/dev/null || { echo "[n1:7] [[1,0],0] ORTE_ERROR_LOG: Error in file ../orte/util/session_dir.c at line 107" >&2; exit 1; }
exec "$MPIRUN" "$@"
END
chmod +x raced/mpirun
RACED="$here/raced" MPIRUN="$(command -v mpirun)" PATH="$here/raced:$PATH" timeout $patience "$trireme" run job.yaml -n 2 output=raced.run >out 2>err
got=$? name=raced
[ $got -eq 0 ] || fail "raced: exit $got: $(cat err)"
says "left with exit code 1 while starting; "
says "starting again (1 of 5)"

# ---- what ends by itself ----

supervised 0 1 plain
[ -s err ] && fail "plain: says $(cat err)"
supervised 0 1 steps solve.method=svrg solve.epochs=120
supervised 66 1 missing data.train=nosuch.svm
[ "$(grep -c . err)" -eq 1 ] && says "nosuch.svm"

# ---- what dies ----

export TRIREME_FAULT
TRIREME_FAULT=stage@2:#1:0:0 supervised 0 2 killed
says "was killed by SIGKILL"
says "rank 2 (pid "
says "starting again (1 of 5)"
[ "$(of killed objective)" = "$(of plain objective)" ] || fail "killed: another objective"
TRIREME_FAULT=merge@1:#25:0:0,merge@0:#12:0:1 supervised 0 3 twice experiment.clock=0.05
says "rank 1 (pid "
says "rank 0 (pid "
! kept || awk '$2 == 1 && $3 == "training" { seen = "" } $2 == 1 && $3 ~ /^(checkpoint|clock)$/ { seen = seen $3 " " }
    END { exit seen !~ /^checkpoint clock / }' log || fail "twice: does not log where it goes on: $(cat log)"
[ "$(of twice objective)" = "$(of plain objective)" ] || fail "twice: another objective"
# what befell it, and what ranks did last, for those who watch
if kept; then
    for line in ',1,failure,"\{0,1\}rank 1 (pid .* was killed by SIGKILL' ',0,failure,"\{0,1\}rank 0 (pid' ',,restart,checkpoint '; do
        grep -q "$line" twice/events.csv || fail "twice: events.csv lacks $line: $(cat twice/events.csv)"
    done
    grep -q '^  "does": "[-cepuws?]\{3\}",$' twice/ranks.json || fail "twice: ranks.json: $(cat twice/ranks.json)"
fi
# in a task, whose clocks are those of all its stages
TRIREME_FAULT=clock@1:#15:0:0 supervised 0 2 task solve.method=svrg solve.epochs=120 checkpoint.every="1 clocks" experiment.clock=0.02
! kept || says "since the checkpoint of clock"
[ "$(of task objective)" = "$(of steps objective)" ] || fail "task: another objective"
TRIREME_FAULT=load=stop@1:#1:0:0 supervised 0 2 stopped --limit 2s
says "is stopped: no sign of life"
TRIREME_FAULT=clock=hang@1:#7:0:0 supervised 0 2 waiting ranks.patience=1
says "all ranks have been waiting for one another for"
[ "$(of waiting objective)" = "$(of plain objective)" ] || fail "waiting: another objective"
# … in MPI_Init as well
TRIREME_FAULT=enter=hang@1:1:0:0 supervised 0 2 entering --limit 2s
says "while starting"
says "all ranks have been waiting for one another for"
# … and in MPI_Finalize, when all is done
TRIREME_FAULT=leave=hang@1:1 supervised 0 1 leaving ranks.patience=1
says "all ranks have been waiting for one another for"
says ", after the run was complete"
[ "$(of leaving objective)" = "$(of plain objective)" ] || fail "leaving: another objective"
# … where one may die, too, whatever code mpirun tells of it
for how in exit=9 kill; do
    TRIREME_FAULT=leave=$how@1:1 supervised 0 1 dying
    says ", after the run was complete"
    rm -rf dying
done
# … or be stopped, with its last word said
TRIREME_FAULT=left=stop@1:1 supervised 0 1 standing --limit 2s
says "is stopped: no sign of life"
says ", after the run was complete"
# … which they do not while one of them computes, or its thread writes
TRIREME_FAULT=clock=delay=6000@1:#7 supervised 0 1 patient ranks.patience=1
TRIREME_FAULT=checkpoint.shard=delay=6000:#1 supervised 0 1 writing ranks.patience=1 checkpoint.every="40 clocks"
TRIREME_FAULT=stage=exit=70@1:#1 supervised 70 3 alike
[ "$(grep -c "^trireme: rank 1 (pid .* left with exit code 70" err)" -eq 3 ] || fail "alike: $(cat err)"
grep -q "gave up: the same failure 3 times" err || fail "alike: $(cat err)"
TRIREME_FAULT=stage=segv@0:#1 supervised 139 1 once --max-restarts 0 2>/dev/null
grep -q "was killed by SIGSEGV" err || fail "once: $(cat err)"
# ---- one rank does not come while the job opens: the others say for whom they wait ----

opens="solve.epochs=2 ranks.patience=1"
waits_for() { # it is said, and that the job starts again because of it
    grep -q 'rank [02] has been waiting [0-9]* s for \(all\|the\) ranks' err || fail "$name: no rank says for whom it waits: $(cat err)"
    grep -q "$1" err || fail "$name: $(cat err)"
}
hangs='all ranks have been waiting for one another for'
for visit in 3 6 8; do # nodes, a merge, windows
    nodes=
    [ $visit -ne 8 ] || nodes=ranks.node_size=1
    TRIREME_FAULT=meet=hang@1:#$visit:0:0 supervised 0 2 lost-$visit $opens $nodes
    waits_for "$hangs"
done
# inside of MPI: one rank alone is told that there is no memory for a window, the others wait for it there
TRIREME_FAULT=window=enospc@1:#1:0:0 supervised 0 2 inside $opens
grep -q "$hangs" err || fail "$name: $(cat err)"
TRIREME_FAULT=meet=stop@1:#6:0:0 supervised 0 2 halted $opens
waits_for 'rank 1 (pid .* is stopped: no sign of life'
unset TRIREME_FAULT

# ---- who dies beside them ----

in_background without
wait_for "a checkpoint" kept
kill -KILL "$supervisor"
wait_for "the ranks to end without a supervisor" gone $mpirun $ranks
wait "$supervisor" 2>/dev/null
supervised 0 1 without solve.epochs=50
grep -q ',,restart,checkpoint ' without/events.csv || fail "without: the same command does not go on: $(cat without/events.csv)"

in_background launcher
segments=$(cat /proc/${ranks%% *}/maps | grep -o '/dev/shm/vader_segment.*' | sort -u)
kill -KILL "$mpirun"
wait_for "another start" grep -q ' 1 clock ' log
gone $ranks || fail "launcher: ranks are left"
for segment in $segments; do [ ! -e "$segment" ] || fail "launcher: $segment is left"; done
[ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 2 -name "pid.$mpirun" 2>/dev/null)" ] || fail "launcher: a session folder is left"
grep -q "^trireme: mpirun (pid $mpirun.*SIGKILL" err || fail "launcher: $(cat err)"
# mpirun does not know of the memory of a window that a rank was making when it died
mpirun=$(sed -n 's/.* 1 started mpirun //p' log)
ranks=$(cat "/proc/$mpirun/task/$mpirun/children")
job=$(grep -o '/dev/shm/[a-z]*_segment.*' /proc/${ranks%% *}/maps | head -n 1 | sed 's/\.[0-9]*$//; s/.*\.//')
window=/dev/shm/osc_sm.$(hostname).$job.0.77
: >"$window"
kill -KILL ${ranks%% *}
wait_for "a third start" grep -q ' 2 clock ' log
[ -n "$job" ] && [ ! -e "$window" ] || fail "launcher: $window is left"
rm -f "$window"
# ---- wishes: … and the same again
kill -USR1 "$supervisor"
ended 75
supervised 0 1 launcher solve.epochs=50

# ---- a terminal is seen through it ----

if command -v script >/dev/null; then
    script -qec "$trireme run job.yaml -n 2 output=seen" typescript >/dev/null 2>&1 </dev/null
    grep -q '^ *epoch  *time ' typescript || fail "seen: no table on a terminal: $(head -5 typescript)"
fi

# ---- a rank that stands still before it can say hello: the others wait for it in MPI_Init; or there are no others; or it
# is mpirun that stands still ----
mkdir bin
cat >bin/mpirun <<'END'
#!/bin/bash
words=()
for word in "$@"; do
    case $word in */trireme) word=$STILL/wrapped ;; esac
    words+=("$word")
done
[ "$WHO" != mpirun ] || ! mkdir "$STILL/stood" 2>/dev/null || kill -STOP $$
exec "$MPIRUN" "${words[@]}"
END
cat >wrapped <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" != "$WHO" ] || ! mkdir "$STILL/stood" 2>/dev/null || kill -STOP $$
exec "$TRIREME" "$@"
END
chmod +x bin/mpirun wrapped
export STILL="$here" TRIREME="$trireme" MPIRUN="$(command -v mpirun)"
before=$PATH
PATH=$here/bin:$PATH
WHO=1 supervised 0 2 still --limit 2s
grep -q "^trireme: rank 1 hangs: no sign of life for [6-9][0-9]* s" err || fail "still: $(cat err)"
rmdir stood
WHO=0 supervised 0 2 alone -n 1 --limit 2s
grep -q 'trireme: a rank (pid [0-9]*) is stopped: no sign of life for [0-9]* s' err || fail "alone: $(cat err)"
rmdir stood
WHO=mpirun supervised 0 2 launched --limit 2s
grep -q 'trireme: mpirun (pid [0-9]* on .*) is stopped: no sign of life for [1-9][0-9]* s' err || fail "launched: $(cat err)"
PATH=$before
in_background held
kill -STOP "$mpirun"
wait_for "another start" grep -q ' 1 clock ' log
gone $ranks || fail "held: ranks are left"
grep -q "^trireme: mpirun (pid $mpirun on .*) is stopped: no sign of life for" err || fail "held: $(cat err)"
kill -TERM "$supervisor"
ended 75

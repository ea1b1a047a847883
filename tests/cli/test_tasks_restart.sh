#!/bin/sh
# Methods of several stages, stopped and started again, end as in one run, bit by bit if the layout is the same.
. "$(dirname "$0")/lib.sh"

# part FOLDER RANKS LINES SETTING…: trains, and asks for a stop when there are so many evaluations (0: not)
part() {
    into=$1 ranks=$2 lines=$3; shift 3
    launch="$mpirun -n $ranks"
    [ "$ranks" -gt 1 ] || launch=
    $launch "$trireme" train $job "$@" output="$into" >"$into.out" 2>&1 &
    process=$!
    while [ "$lines" -gt 0 ] && kill -0 $process 2>/dev/null; do
        [ "$(cat "$into/metrics.csv" 2>/dev/null | wc -l)" -le "$lines" ] || { kill -USR1 $process; break; }
        sleep 0.01
    done
    wait $process
}

# in_parts FOLDER STOP RANKS SETTING…: once in one go, once with a stop after so many evaluations (and for a moment more);
# both end alike
in_parts() {
    name=$1 stop=$2 ranks=$3; shift 3
    run "$name-whole" "$ranks" $job "$@"
    part "$name" "$ranks" "$stop" "$@"
    got=$?
    [ $got -eq 75 ] || { fail "$name: stopped: exit $got: $(tail -3 "$name.out")"; return; }
    [ ! -e "$name/model.txt" ] || fail "$name: a model is there after a stop"
    grep -lq steps_seen "$name"/checkpoints/*/shard-*.h5 && within="$within $name"
    part "$name" "$ranks" 0 "$@" || { fail "$name: goes on: $(tail -3 "$name.out")"; return; }
    grep '^continues: ' "$name.out" | grep -v '(clock 0)' >said || fail "$name: begins anew: $(cat "$name.out")"
    cmp -s "$name-whole/model.txt" "$name/model.txt" || fail "$name: another model than in one go"
    for of in "$name-whole" "$name"; do cut -d, -f 2-4,16 "$of/metrics.csv" >"$of.rows"; done
    cmp -s "$name-whole.rows" "$name.rows" || fail "$name: other evaluations than in one go: $(diff "$name-whole.rows" "$name.rows")"
}

dense_rows 1500 5 >rows
cat >job.yaml <<END
data: {train: rows}
model: {l2: 1e-3, dtype: f64}
solve: {method: svrg, epochs: 12001}
stages: {inner: {parallelism: 1, clocks: 50}}
END
sed '/^stages/d; s/svrg.*/growing, epochs: 1500, phases: 3}/' job.yaml >growing.yaml
within= job=job.yaml

# after the first evaluation, these two are in the middle of an inner stage for long
in_parts svrg++ 1 1 solve.method=svrg++ solve.inner=12000
in_parts katyusha 1 1 solve.method=katyusha solve.inner=12000 model.l2=1e-8
[ "$within" = " svrg++ katyusha" ] || fail "in the middle of an inner stage only these were stopped:$within"
in_parts svrg 2 2 solve.inner=200 solve.epochs=603
in_parts nodes 2 4 solve.method=katyusha model.dtype=f32 ranks.node_size=2 solve.inner=200 solve.epochs=603
job=growing.yaml
in_parts growing 3 2 stages.phase-1.parallelism=1 stages.phase-2.parallelism=all stages.phase-3.parallelism=1 \
    report.every=20

# moves STOP RANKS SETTING…: goes on with so many, and is stopped again after so many more evaluations (0: not)
moves() {
    before=$(cat moved/metrics.csv 2>/dev/null | wc -l) stop=$1 ranks=$2; shift 2
    part moved "$ranks" $((stop > 0 ? before + stop - (before > 0) : 0)) solve.method=katyusha solve.inner=400 solve.epochs=1604 "$@"
    got=$?
    [ $got -eq $((stop > 0 ? 75 : 0)) ] || fail "moved to $ranks ranks $*: exit $got: $(tail -3 moved.out)"
}
job=job.yaml
moves 2 2
moves 1 4 ranks.node_size=2
moves 1 6 ranks.node_size=2
moves 0 3
sed "s/, phases: 3//" growing.yaml >dual.yaml
run optimum 1 dual.yaml solve.method=dual solve.target_gap=1e-9
near "$(of moved objective)" "$(of optimum objective)" 2e-6 ||
    fail "moved: objective $(of moved objective), the least is $(of optimum objective)"

#!/bin/sh
# Slowed workers and targets: messages, summary.json and metrics.csv.
. "$(dirname "$0")/lib.sh"


dense_rows 2000 3 >rows
printf 'data: {train: rows}\nmodel: {l2: 1e-4}\nsolve: {method: sgd, rate: 0.5, epochs: 30}\n' >job.yaml
slow() { # FOLDER SETTING…: four workers, of which one is slow
    into=$1
    shift
    run "$into" 4 job.yaml experiment.slow=0.3 experiment.level=3 experiment.clock=0.004 sync.push="1 per epoch" \
        solve.batch=200 "$@"
}

# ---- levels ----
for mode in bsp ssp asp; do
    slow $mode sync.mode=$mode || continue
    says $mode.out '^heterogeneity: asked 3, reached [0-9.]*: 1 of 4 workers slowed'
    [ "$(of $mode slowed_workers)" = 1 ] || fail "$mode: slowed_workers $(of $mode slowed_workers)"
    # where processors are shared with others fast workers are held up as well, and it is less
    holds "$mode: level" "$(of $mode level_reached) > 1.3 && $(of $mode level_reached) < 5"
    [ "$(of $mode updates)" = 120 ] || fail "$mode: $(of $mode updates) updates of 4 workers in 30 clocks"
    silent $mode.out target
    [ "$(of $mode reached_target) $(of $mode target_time) $(of $mode target_updates)" = "null null null" ] ||
        fail "$mode: reached_target $(of $mode reached_target)"
done
# in the middle of an asynchronous run the slow worker is behind, and is counted so
awk -F, '$3 == 24 && $16 < 4 * 24 { found = 1 } END { exit !found }' asp/metrics.csv ||
    fail "asp: updates $(cut -d, -f3,16 asp/metrics.csv | tr '\n' ' ')"
awk -F, 'NR > 1 && !($17 <= $1 && $17 > 0) { exit 1 }' asp/metrics.csv || fail "asp: time $(cut -d, -f1,17 asp/metrics.csv)"
# which one is slow, and how slow, is no part of the result
run even 4 job.yaml sync.push="1 per epoch" solve.batch=200 && cmp -s even/model.txt bsp/model.txt || fail "bsp: naps change the model"
silent even.out heterogeneity
[ "$(of even slowed_workers) $(of even level_reached)" = "null null" ] || fail "even: $(of even slowed_workers) slowed"

# ---- targets ----
half=$(awk -F, '$3 == 10 { printf "%.10f", $4 * 1.00001 }' bsp/metrics.csv) # what BSP reaches after 10 clocks
slow target solve.target="$half"
says target.out "^target:  *[0-9.]* reached after .* s (.* s without evaluating), 40 updates, epoch 10.00"
[ "$(of target reached_target) $(of target target_updates) $(of target epochs)" = "true 40 10" ] ||
    fail "target: reached_target $(of target reached_target) at $(of target target_updates) updates, $(of target epochs) epochs"
holds target "$(of target target_training_time) <= $(of target target_time) && $(of target target_time) > 0"
slow far solve.target=0.0001 solve.epochs=3
says far.out "^note: .*solve.target 0.0001 is not reached"
[ "$(of far reached_target) $(of far target_time)" = "false null" ] || fail "far: reached_target $(of far reached_target)"
slow early solve.target="$half" sync.mode=asp
[ "$(of early reached_target)" = true ] || fail "early: not reached"
holds early "$(of early target_updates) <= $(of early updates) && $(of early updates) < 120"

# Two workers whose rows contradict each other: each evaluates its own part when it has just learnt that, so estimates are
# far below what the model is worth. What is said to be reached, the model that is saved has reached.
awk 'BEGIN { srand(5); for (i = 0; i < 400; i++) { y = rand() < 0.5 ? 1 : -1
    if (rand() < 0.35) print (i < 200 ? 1 : -1), "2:1"; else print y, "1:" y } }' >torn.svm
cat >torn.yaml <<'END'
data: {train: torn.svm, order: file, scale: none}
model: {type: logistic, l2: 0, bias: no}
solve: {method: sgd, epochs: 40, rate: 8, decay: 0.1, batch: 40, target: 0.3}
sync: {push: 1 per epoch}
experiment: {slow: 0.5, level: 2, clock: 0.004}
END
for mode in ssp asp; do
    run torn 2 torn.yaml sync.mode=$mode || continue
    "$trireme" evaluate torn torn.svm --json >said 2>/dev/null
    worth=$(number log_loss <said)
    near "$(of torn objective)" "$worth" 1e-6 || fail "torn, $mode: objective $(of torn objective), but the model has $worth"
    [ "$(of torn reached_target)" != true ] || holds "torn, $mode: reached" "$worth <= 0.3"
done
# … and under BSP, where what workers read is rounded
printf 'data: {train: rows}\nmodel: {l2: 0}\nsolve: {method: sgd, epochs: 20}\n' >even.yaml
run rounded 2 even.yaml table.precision=bf16 table.route=request solve.target=0.6 || :
"$trireme" evaluate rounded rows --json >said 2>/dev/null
near "$(of rounded objective)" "$(number log_loss <said)" 1e-6 ||
    fail "rounded: objective $(of rounded objective), but the model has $(number log_loss <said)"

# ---- the job that shows it ----
if [ -r "$data/a9a/a9a.gz" ]; then
    run shown 9 "$jobs/straggler.yaml" data.folders="$data" solve.epochs=10 solve.target=none
    [ "$(of shown layout)" = "dedicated: 9 ranks on 1 node: 1 server, 8 groups of 1" ] || fail "shown: $(of shown layout)"
    [ "$(of shown slowed_workers) $(of shown updates)" = "2 80" ] || fail "shown: $(of shown slowed_workers) slowed"
    holds "shown: level" "$(of shown level_reached) > 1.2 && $(of shown level_reached) < 4"
else
    echo "skipped: jobs/straggler.yaml: no \$TRIREME_DATA/a9a"
fi

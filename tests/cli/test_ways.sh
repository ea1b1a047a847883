#!/bin/sh
# Consistency settings of a job: optimizers, weights of updates, encodings of messages.
. "$(dirname "$0")/lib.sh"

below() { awk -v a="$(of "$1" "$2")" -v b="$3" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }' || fail "$1: $2 is $(of "$1" "$2"), not <= $3"; }
above() { awk -v a="$(of "$1" "$2")" -v b="$3" 'BEGIN { exit !(a != "" && a + 0 >= b + 0) }' || fail "$1: $2 is $(of "$1" "$2"), not >= $3"; }

# 2000 rows of 60 features, of which each row has 12; the first ten features decide.
awk 'BEGIN { srand(5); for (i = 0; i < 2000; i++) { row = ""; m = 0
    for (j = 1; j <= 60; j++) if (rand() < 0.2) { row = row " " j ":1"; if (j <= 10) m += (j % 2 ? 2 : -2) }
    print (rand() < 1 / (1 + exp(-m)) ? "+1" : "-1") row } }' >rows
awk '$1 < 0 || ++n % 4 == 0' rows >odd # of which a fifth is positive
cat >job.yaml <<END
data: {train: rows}
model: {l2: 1e-3, bias: no}
solve: {method: sgd, batch: 200, epochs: 30}
report: {progress: no, every: 10}
END
"$trireme" train job.yaml output=best solve.method=dual solve.batch=0 solve.target_gap=1e-5 solve.epochs=500 >best.out 2>&1 || fail "best: $(cat best.out)"
goal=$(awk -v f="$(of best objective)" 'BEGIN { print 1.03 * f }')

# ---- optimizers: every one gets there, at the servers and at the workers ----
optimizers="momentum:0.1 nesterov:0.1 adagrad:0.2 adadelta:4 rmsprop:0.02 adam:0.02 ftrl:0.2"
run_all 2 job.yaml <<END
$(for at in server worker; do for o in $optimizers; do
    echo "$at-${o%:*} solve.optimizer=${o%:*} solve.rate=${o#*:} solve.optimizer_at=$at"
done; done)
l1 solve.optimizer=ftrl solve.rate=0.2 model.l1=2e-2
kkt solve.optimizer=ftrl solve.rate=0.2 model.l1=2e-2 table.filter=kkt
$(for at in server worker; do echo "free-$at data.train=odd model.bias=yes solve.optimizer=ftrl solve.rate=0.2 model.l1=10 solve.optimizer_at=$at"; done)
free-kkt data.train=odd model.bias=yes solve.optimizer=ftrl solve.rate=0.2 model.l1=10 table.filter=kkt
END
for at in server worker; do for o in $optimizers; do below "$at-${o%:*}" objective "$goal"; done; done
# the servers step once a clock with the sum of the gradients: however many workers share a mini-batch, but for which rows
# are in it the model is one
run adam1 1 job.yaml solve.optimizer=adam solve.rate=0.02 model.dtype=f64
run_all 3 job.yaml <<END
adam3 solve.optimizer=adam solve.rate=0.02 model.dtype=f64
sum solve.rate=0.5
con solve.rate=0.5 sync.weight=con
dyn solve.rate=0.5 sync.weight=dyn
half solve.rate=0.5 sync.weight=con sync.global_rate=0.1
$(for weight in con dyn auto; do
    [ $weight = auto ] || echo "$weight-ssp solve.rate=0.5 sync.weight=$weight sync.mode=ssp sync.staleness=2"
    [ $weight = auto ] || echo "$weight-stale solve.rate=0.5 sync.weight=$weight sync.mode=ssp sync.staleness=2 sync.pull=stale"
    echo "$weight-asp solve.rate=0.5 sync.weight=$weight sync.mode=asp"
done)
needed solve.epochs=5 data.features=600
whole solve.epochs=5 data.features=600 table.prune=no
plain solve.epochs=5 table.push=message table.encoding=dense
$(for encoding in auto sparse bitmap; do echo "$encoding solve.epochs=5 table.push=message table.encoding=$encoding"; done)
full solve.rate=0.5 table.push=message
$(for precision in f16 bf16 f8; do echo "$precision solve.rate=0.5 table.precision=$precision"; done)
$(for f in threshold:1e-3 significant:0.05 skip:0; do
    echo "filter-${f%:*} solve.rate=0.5 table.filter=${f%:*} table.filter_limit=${f#*:}"
done)
held solve.rate=0.5 model.l2=0 solve.target=0.6 table.filter=threshold table.filter_limit=0.05
END
awk -v a="$(of adam1 objective)" -v b="$(of adam3 objective)" 'BEGIN { exit !((a - b) ^ 2 < 1e-6) }' || fail "adam on 1 and 3 ranks: $(of adam1 objective), $(of adam3 objective)"

# ---- l1: weights that decide nothing are exactly 0, and the filter that knows that sends less ----
zeros() { sed '1,/^w$/d' "$1/model.txt" | awk '$1 == 0' | wc -l; }
[ "$(zeros l1)" -ge 20 ] || fail "model.l1 leaves $(zeros l1) weights of zero"
[ "$(zeros server-ftrl)" -eq 0 ] || fail "without model.l1 weights are zero"
above kkt filter_dropped 1000
below kkt bytes_pushed "$(of l1 bytes_pushed)"
below kkt objective "$(awk -v f="$(of l1 objective)" 'BEGIN { print 1.01 * f }')"
# the bias has no l1: without weights it is the logarithm of the odds
for way in free-server free-worker free-kkt; do
    is "$way: weights" "$(sed '1,/^w$/d' $way/model.txt | sed '$d' | sort -u)" 0
    near "$(tail -1 $way/model.txt)" "$(awk '{ n += $1 > 0 } END { print log(n / (NR - n)) }' odd)" 0.01 || fail "$way: bias $(tail -1 $way/model.txt)"
done

# ---- weights ----
for way in con dyn; do # under BSP, with one mini-batch a clock, the mean of local steps is the step of all
    awk -v a="$(of sum objective)" -v b="$(of $way objective)" 'BEGIN { exit !((a - b) ^ 2 < 1e-10) }' ||
        fail "sum $(of sum objective), $way $(of $way objective)"
done
above half objective "$(of con objective)"
for name in con-ssp con-stale con-asp dyn-ssp dyn-stale dyn-asp auto-asp; do
    below $name objective "$(awk -v f="$goal" 'BEGIN { print 1.01 * f }')" # the late worker matters, too
done
run stable 4 job.yaml solve.rate=0.5 sync.weight=dyn sync.stable=yes sync.mode=ssp
below stable objective "$goal"
above stable version_bytes 100

# ---- length of a clock ----
run batch 2 job.yaml "sync.push=every 1" solve.epochs=4
run five 2 job.yaml "sync.push=5 per epoch" solve.epochs=4
[ "$(tail -1 batch/metrics.csv | cut -d, -f3) $(tail -1 five/metrics.csv | cut -d, -f3)" = "40 20" ] ||
    fail "clocks of 4 epochs: $(tail -1 batch/metrics.csv | cut -d, -f3), $(tail -1 five/metrics.csv | cut -d, -f3)"
run enough 2 job.yaml sync.push=auto solve.epochs=4
[ "$(tail -1 enough/metrics.csv | cut -d, -f3)" -le 40 ] || fail "sync.push=auto: more clocks than mini-batches"

# ---- only the parameters that the rows need are read, or all of them ----
[ "$(of needed objective)" = "$(of whole objective)" ] || fail "pruned $(of needed objective), whole $(of whole objective)"
above whole bytes_pulled "$(awk -v b="$(of needed bytes_pulled)" 'BEGIN { print 9 * b }')"

# ---- what travels: the same model whatever the way of writing, smaller messages where they can be ----
for encoding in auto sparse bitmap; do same_model plain $encoding; done
below auto bytes_pushed "$(of plain bytes_pushed)"
for precision in f16 bf16 f8; do
    below $precision objective "$goal"
    below $precision bytes_pushed "$(awk -v b="$(of full bytes_pushed)" 'BEGIN { print 0.9 * b }')"
done
for filter in threshold significant skip; do
    below filter-$filter objective "$goal"
    above filter-$filter filter_held 100
done
# a run that stops at its target says what the model is worth with all that was held back
"$trireme" evaluate held rows --json >said 2>/dev/null
awk -v a="$(of held objective)" -v b="$(number log_loss <said)" 'BEGIN { exit !(a != "" && (a - b) ^ 2 < 1e-12) }' ||
    fail "held: objective $(of held objective), log loss $(number log_loss <said)"

# ---- what cannot be ----
refused 78 "job.yaml\|command line.*sync.weight is for solve.method sgd" solve.method=dual sync.weight=dyn
refused 78 "set solve.optimizer_at to worker" solve.optimizer=adam sync.weight=con
refused 78 "sync.stable needs sync.weight dyn" sync.stable=yes
refused 78 "model.l1 needs solve.method descent, or sgd with solve.optimizer ftrl" model.l1=0.1
refused 78 "table.filter kkt is for model.l1" table.filter=kkt
refused 78 "did you mean\|expected none, threshold" table.filter=treshold
refused 78 "expected an integer >= 0" sync.staleness=-1
refused 78 "expected a number > 0" solve.rate=0
refused 78 "expected a number > 0" solve.rate=nan
refused 78 "expected sum, con, dyn or auto" sync.weight=din
refused 78 "expected auto, «every N»" "sync.push=every"
refused 78 "expected a number >= 1" experiment.level=0.5

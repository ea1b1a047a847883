#!/bin/sh
# Coordinate descent for model.l1: known solutions, the optimality conditions of the weights in model.txt, the same
# result on any number of ranks; the path of penalties, and the choice from it by test data or by solve.folds.
. "$(dirname "$0")/lib.sh"

$trireme generate ctr -o clicks.svm rows=3000 features=900 nonzeros=12 power=0.6 seed=3 >/dev/null || fail "generate ctr"
$trireme generate ctr -o test.svm rows=1000 first_row=3000 features=900 nonzeros=12 power=0.6 seed=3 >/dev/null || fail "generate ctr"
cat >job.yaml <<'E2'
data: {train: clicks.svm, scale: none}
model: {type: logistic, l1: 0.001, bias: yes, dtype: f64}
solve: {method: descent, target_gap: 1e-6}
E2

# A column a row: each weight is its label, n l1 closer to 0, and the objective follows.
awk 'BEGIN { for (i = 1; i <= 8; i++) print (i % 2 ? i : -i), i ":1" }' >known.svm
run known 1 job.yaml data.train=known.svm model.type=linear model.l1=0.375 model.bias=no
near "$(of known objective)" "$(awk 'BEGIN { for (i = 1; i <= 8; i++) { w = i > 3 ? i - 3 : 0; f += (i - w) ^ 2 / 2 + 3 * w }; print f / 8 }')" 1e-9 ||
    fail "known: objective $(of known objective)"
[ "$(of known nonzero_weights)" = 5 ] || fail "known: $(of known nonzero_weights) weights are not 0"

# kkt FOLDER TYPE L1 L2: the weights of model.txt against the conditions of a minimum
kkt() {
    awk -v type="$2" -v l1="$3" -v l2="$4" 'FNR == NR { if (on) w[++n] = $1; on = on || $1 == "w"; if ($1 == "nr_feature") d = $2; next }
        { rows++; y = type == "linear" ? $1 : $1 > 0 ? 1 : -1; m = w[d + 1]
          for (k = 2; k <= NF; k++) { split($k, e, ":"); m += w[e[1]] * e[2] }
          s = type == "linear" ? m - y : type == "logistic" ? -y / (1 + exp(y * m)) : y * m < 1 ? -2 * y * (1 - y * m) : 0
          for (k = 2; k <= NF; k++) { split($k, e, ":"); g[e[1]] += s * e[2] }; b += s }
        END { worst = b < 0 ? -b / rows : b / rows
          for (j = 1; j <= d; j++) { v = g[j] / rows + l2 * w[j]; v = w[j] > 0 ? v + l1 : w[j] < 0 ? v - l1 : v > l1 ? v - l1 : v < -l1 ? v + l1 : 0
            if (v < 0) v = -v; if (v > worst) worst = v }
          exit !(d > 100 && worst < 0.01 * l1) }' "$1/model.txt" clicks.svm || fail "$1: not at a minimum"
}
# trial TYPE L1 L2: on some numbers of ranks
trial() {
    for ranks in 1 2 5; do
        run "$1-$ranks" $ranks job.yaml model.type="$1" model.l1="$2" model.l2="$3" || continue
        kkt "$1-$ranks" "$1" "$2" "$3"
        holds "$1-$ranks: gap" "$(of "$1-$ranks" gap) <= 1e-6"
        near "$(of "$1-$ranks" objective)" "$(of "$1-1" objective)" 1e-6 || fail "$1-$ranks: objective"
        holds "$1-$ranks: passes" "$(of "$1-$ranks" passes) < 1.5 * $(of "$1-1" passes)"
    done
    grep -q '^non-zeros: ' "$1-1.out" || fail "$1: non-zeros are not told"
}
trial logistic 0.001 0
trial l2svm 0.002 0.001
trial linear 0.002 0
check "inspect" "$trireme" inspect logistic-1
grep -q "$(of logistic-1 nonzero_weights) not zero" out || fail "inspect: $(grep -i zero out)"
run again 2 job.yaml
h5diff --exclude-path /job again/model.h5 logistic-2/model.h5 >/dev/null || fail "not the same model again"
run dedicated 4 job.yaml ranks.layout=dedicated ranks.servers=1
near "$(of dedicated objective)" "$(of logistic-1 objective)" 1e-6 || fail "dedicated: objective"
# what model.l1 is by itself, and the rows of a group which its members divide
run auto 3 job.yaml solve.method=auto
near "$(of auto objective)" "$(of logistic-1 objective)" 1e-6 || fail "auto: objective"
kkt auto logistic 0.001 0
# so large that no weight is left, and fewer rows than ranks
run none 2 job.yaml model.l1=10
[ "$(of none nonzero_weights)" = 0 ] || fail "l1 10: $(of none nonzero_weights) weights"
run few 5 job.yaml data.train=known.svm model.type=linear model.l1=0.375 model.bias=no ranks.groups=5
near "$(of few objective)" "$(of known objective)" 1e-9 || fail "few: objective $(of few objective)"

# The path: from no weight on; the objective falls with the penalty; the best by the test data is what is written.
for ranks in 1 3; do
    run path-$ranks $ranks job.yaml model.l1=path solve.path=12 solve.target_gap=1e-4 data.test=test.svm || continue
    awk -F, 'NR == 1 { exit !($0 == "l1,nonzeros,objective,gap,accuracy") } ' path-$ranks/path.csv || fail "path: head"
    awk -F, 'NR == 2 && $2 > 0 { bad = 1 } NR > 1 { bad = bad || $4 > 1e-4; if (NR > 2 && ($1 >= l1 || $3 > f + 1e-4)) bad = 1; l1 = $1; f = $3; if ($5 > best) { best = $5; n = $2 } }
        END { print best, n; exit bad || NR != 13 }' path-$ranks/path.csv >best || fail "path-$ranks: $(cat path-$ranks/path.csv)"
    read -r best nonzeros <best
    near "$best" "$(of path-$ranks test_accuracy)" 1e-9 || fail "path-$ranks: $best is the best, the model has $(of path-$ranks test_accuracy)"
    [ "$nonzeros" = "$(of path-$ranks nonzero_weights)" ] || fail "path-$ranks: $nonzeros weights, the model has $(of path-$ranks nonzero_weights)"
    check "evaluate" "$trireme" evaluate path-$ranks test.svm --json
    near "$best" "$(number accuracy <out)" 1e-9 || fail "path-$ranks: evaluate finds $(number accuracy <out)"
done

refused 78 "solve.method descent does not minimise the loss of model.type svm" model.type=svm
refused 78 "model.l1" model.l1=0
refused 78 "expected bsp" sync.mode=ssp
refused 78 "model.l1 path" model.l1=path solve.method=sgd solve.target_gap=0
refused 78 "solve.target_gap" model.l1=path solve.target_gap=0
refused 78 "solve.target is not for model.l1 path" model.l1=path solve.target=0.1

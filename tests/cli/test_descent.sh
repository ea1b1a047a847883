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
for ranks in 1 2 5; do
    run_all $ranks job.yaml <<END
logistic-$ranks
l2svm-$ranks model.type=l2svm model.l1=0.002 model.l2=0.001
linear-$ranks model.type=linear model.l1=0.002
END
    for trial in "logistic 0.001 0" "l2svm 0.002 0.001" "linear 0.002 0"; do
        type=${trial%% *}
        # shellcheck disable=SC2086
        kkt $type-$ranks $trial
        holds "$type-$ranks: gap" "$(of $type-$ranks gap) <= 1e-6"
        near "$(of $type-$ranks objective)" "$(of $type-1 objective)" 1e-6 || fail "$type-$ranks: objective"
        holds "$type-$ranks: passes" "$(of $type-$ranks passes) < 1.5 * $(of $type-1 passes)"
        says $type-1.out '^non-zeros: '
    done
done
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
    run path-$ranks $ranks job.yaml model.l1=path solve.path=12 solve.target_gap=1e-4 data.test=test.svm report.metric=accuracy || continue
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

# ---- solve.folds: rows that are held out choose the penalty of model.l1: path ----

# One weight, and each row a fold of its own: what is learnt of the others is their mean, l1 closer to 0.
printf '%s 1:1\n' 3 5 4 6 1 5 >ones.svm
printf 'data: {train: ones.svm, scale: none}\nmodel: {type: linear, bias: no, l1: path, dtype: f64}\nsolve: {target_gap: 1e-6, path: 5, folds: 6}\n' >ones.yaml
awk '{ y[NR] = $1; sum += $1 } END { n = NR
    for (k = 0; k < 5; k++) { l1 = sum / n * 1e-3 ^ (k / 4); mean = squares = 0
        for (i = 1; i <= n; i++) { w = (sum - y[i]) / (n - 1) - l1; w = w > 0 ? w : 0; loss[i] = (y[i] - w) ^ 2 / 2; mean += loss[i] / n }
        for (i = 1; i <= n; i++) squares += (loss[i] - mean) ^ 2
        printf "%.4f %.4f %.4f\n", l1, mean, sqrt(squares / (n - 1) / n) } }' ones.svm >expected
for ranks in 1 2 5; do
    run ones-$ranks $ranks ones.yaml || continue
    awk -F, 'NR > 1 { printf "%.4f %.4f %.4f\n", $1, $(NF - 1), $NF }' ones-$ranks/path.csv | cmp -s expected - ||
        fail "$ranks ranks: path.csv: $(cat ones-$ranks/path.csv), expected: $(cat expected)"
done
read -r l1 loss error <<END
$(awk '{ l1[NR] = $1; m[NR] = $2; e[NR] = $3; if (!b || $2 < m[b]) b = NR } END { for (k = 1; m[k] > m[b] + e[b]; k++); print l1[k], m[k], e[k] }' expected)
END
near "$(of ones-1 chosen_l1)" "$l1" 2e-4 && near "$(of ones-1 chosen_loss)" "$loss" 2e-4 && near "$(of ones-1 chosen_error)" "$error" 2e-4 ||
    fail "chosen: $(of ones-1 chosen_l1) $(of ones-1 chosen_loss) $(of ones-1 chosen_error), expected $l1 $loss $error"
run alone 1 ones.yaml solve.folds=0 model.l1="$(of ones-1 chosen_l1)"
near "$(of alone objective)" "$(of ones-1 objective)" 1e-4 || fail "the model is not that of the chosen penalty on all rows"

# The same choice on any number of ranks; rows with weights; a table of what was found.
"$trireme" generate ctr -o rows.svm rows=600 features=60 nonzeros=6 noise=0.1 2>/dev/null
awk '{ print NR % 3 }' rows.svm >weights
printf 'data: {train: rows.svm, weight: weights}\nmodel: {type: logistic, l1: path, dtype: f64}\nsolve: {method: auto, target_gap: 1e-4, path: 10, folds: 3}\n' >job.yaml
for ranks in 1 3 5; do
    run folds-$ranks $ranks job.yaml || continue
    for figure in chosen_l1 chosen_loss chosen_error least_l1 least_loss objective; do
        holds "$ranks ranks: $figure" "($(of folds-$ranks $figure) / $(of folds-1 $figure) - 1) ^ 2 < 1e-5"
    done
done
run dedicated 4 job.yaml ranks.layout=dedicated ranks.servers=1
near "$(of dedicated chosen_l1)" "$(of folds-1 chosen_l1)" 1e-6 || fail "dedicated: chosen $(of dedicated chosen_l1)"
holds "one standard error" "$(of folds-1 chosen_l1) >= $(of folds-1 least_l1) && $(of folds-1 least_loss) < log(2)"
grep -q '^folds:  *3; model.l1' folds-1.out && grep -q 'the least' folds-1.out && grep -q ' chosen$' folds-1.out || fail "no table: $(cat folds-1.out)"
[ "$(wc -l <folds-1/path.csv)" -eq 11 ] || fail "path.csv: $(wc -l <folds-1/path.csv) lines"
run other 1 job.yaml seed=2
[ "$(of other least_loss)" != "$(of folds-1 least_loss)" ] || fail "another seed holds out the same rows"

refused 78 "solve.folds chooses among penalties: expected model.l1 path" model.l1=0.01
refused 78 "solve.folds is 1, which leaves no row to learn from" solve.folds=1
refused 78 "solve.target would end solve.folds" solve.target=0.1
printf "data: {train: ones.svm}\nmodel: {type: linear, l1: path}\n" >job.yaml
refused 65 "solve.folds: fold . of 7 has all rows that count, or none" solve.folds=7

#!/bin/sh
# solve.folds: rows that are held out choose the penalty of model.l1: path.
. "$(dirname "$0")/lib.sh"

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

#!/bin/sh
# Columns of very different sizes: training scales them and writes the model for the numbers of the files, so evaluate
# finds the figures that training printed.
. "$(dirname "$0")/lib.sh"

# Sizes 1e-3, 1e6 and 1 with an offset of 2000, and a constant; labels follow from all of them.
awk 'BEGIN { srand(1); for (i = 0; i < 2400; i++) { a = rand() / 1000; b = rand() * 1e6; c = 2000 + rand(); m = 4000 * a - b / 2e5 + 3 * (c - 2000)
    f = i % 6 ? "train" : "test"; y = 1.5 + m + 0.2 * (rand() - 0.5); k = m + rand() - 0.5 > 1 ? "1" : "0"
    printf "%.9f,%.3f,%.6f,7,%s\n", a, b, c, k >f ".csv"; printf "%.9f,%.3f,%.6f,7,%d\n", a, b, c, int((m + 9) / 2) >f "-classes.csv"; printf "%.9f,%.3f,%.6f,7,%.5f\n", a, b, c, y >f "-real.csv"
    printf "%s 1:%.9f 2:%.3f 3:%.6f 4:7\n", k, a, b, c >f ".svm"
    if (i % 2) printf "%s 2:%.3f %d:1\n", k, b, 10 + int(6 * (m + 3)) >f ".sparse"
    else printf "%s %d:1 90:1\n", k, 10 + int(6 * (m + 3)) >f ".sparse" } }'
cat >job.yaml <<'E2'
data: {label: last}
model: {bias: yes, bias_l2: yes}
solve: {epochs: 30}
E2

# trials RANKS JOB: of lines NAME FILES METRIC WORST SETTING…: the metric of the test data in summary.json is at least (rmse: at most)
# the WORST and the one that evaluate finds
trials() {
    cat >trials
    run_all "$1" "$2" <<END
$(while read -r name files _ _ more; do
    case $files in *csv) format=csv ;; *) format=libsvm ;; esac
    echo "$name data.train=train$files data.test=test$files data.format=$format $more"
done <trials)
END
    while read -r name files metric worst _; do
        says "$name.out" '^scaled: '
        check "$name: evaluate" "$trireme" evaluate "$name" test"$files" --json
        near "$(number "$metric" <out)" "$(of "$name" "test_$metric")" 2e-3 ||
            fail "$name: evaluate finds $(number "$metric" <out), training said $(of "$name" "test_$metric")"
        case $metric in
        rmse) holds "$name" "$(of "$name" test_rmse) <= $worst" ;;
        *) holds "$name" "$(of "$name" "test_$metric") >= $worst" ;;
        esac
    done <trials
}
for ranks in 1 2 5; do
    trials $ranks job.yaml <<END
logistic-$ranks .csv accuracy 0.89 solve.method=dual
svm-$ranks .svm accuracy 0.89 model.type=svm solve.method=dual
real-$ranks -real.csv rmse 0.1 model.type=linear solve.method=dual
sparse-$ranks .sparse accuracy 0.84 solve.method=dual
END
done
near "$(of sparse-1 objective)" "$(of sparse-5 objective)" 1e-3 || fail "objectives differ"
trials 2 job.yaml <<END
$(for way in standard maxabs minmax; do echo "$way .csv accuracy 0.85 data.scale=$way model.dtype=f64 solve.method=dual"; done)
unbiased .csv accuracy 0.7 model.bias=no model.bias_l2=no solve.method=dual
$(for method in sgd svrg growing; do echo "$method .csv accuracy 0.87 solve.method=$method"; done)
classes -classes.csv accuracy 0.8 solve.method=sgd solve.epochs=60
vertical .sparse accuracy 0.84 solve.method=sgd data.partition=vertical ranks.group_size=2
END
# neither rounding nor filters of updates change the factors that turn the weights back
sed '$aranks: {node_size: 1}' job.yaml >nodes.yaml
trials 3 nodes.yaml <<END
rounded .csv accuracy 0.85 table.precision=bf16 table.filter=skip table.filter_skip=0.5 solve.method=dual
END

# What is said to be the objective is that of the model in the file: with λ = 1/n on the weights of the scaled columns, each of
# which was divided by the root mean square of its non-zeros, or of the columns as they are. So the two are different problems.
awk '{ $1 += NR % 2; print }' train.sparse >kinds.sparse
# recomputed FOLDER FILE SCALED: logistic loss, of two labels or a softmax of more, and the penalty
recomputed() {
    awk -v scaled="$3" 'NR == FNR {
            if ($1 == "label") for (k = 2; k <= NF; k++) class[$k] = k - 2
            if (rows && $1 != "softmax") { for (k = 1; k <= NF; k++) w[rows, k - 1] = $k; rows++; width = NF > width ? NF : width }
            if ($1 == "w") rows = 1
            next }
        { n++; top = 0
          for (k = 0; k < width; k++) m[k] = w[rows - 1, k]
          for (i = 2; i <= NF; i++) { split($i, c, ":"); square[c[1]] += c[2] ^ 2; cells[c[1]]++
              for (k = 0; k < width; k++) m[k] += c[2] * w[c[1], k] }
          if (width == 1) { sum += log(1 + exp(class[$1] ? m[0] : -m[0])); next }
          for (k = 0; k < width; k++) if (m[k] > top) top = m[k]
          all = 0
          for (k = 0; k < width; k++) all += exp(m[k] - top)
          sum += top + log(all) - m[class[$1]] }
        END { for (j = 1; j < rows - 1; j++) for (k = 0; k < width; k++)
                  size += w[j, k] ^ 2 * (scaled && cells[j] ? square[j] / cells[j] : 1)
              printf "%.12g\n", sum / n + size / 2 / n }' "$1/model.txt" "$2"
}
for file in train.sparse kinds.sparse; do
    for way in auto none; do
        run said 2 job.yaml data.train=$file data.scale=$way model.bias_l2=no solve.epochs=200
        again=$(recomputed said $file "$(grep '^scaled: ' said.out)")
        holds "$file, $way: of model.txt $again" "($(of said objective) / $again - 1) ^ 2 < 1e-10"
    done
done

# Dense columns of one size that are far from 0 are centred, where the bias is free: the same problem, and an easier one.
awk 'BEGIN { srand(2); for (i = 0; i < 1500; i++) { m = 0; line = ""
    for (j = 1; j <= 6; j++) { x = 3 + rand(); m += (j % 2 ? 4 : -4) * x; line = line sprintf(" %d:%.5f", j, x) }
    print (m + rand() - 0.5 > 0 ? 1 : 0) line } }' >offset.svm
for way in auto none; do
    run best-$way 2 job.yaml data.train=offset.svm data.scale=$way model.bias_l2=no solve.method=newton solve.target_gap=1e-6
done
grep -q '^centred: ' best-auto.out || fail "offset columns are not centred"
again=$(recomputed best-auto offset.svm "")
holds "centred: of model.txt $again" "($(of best-auto objective) / $again - 1) ^ 2 < 1e-10"
holds "centred: the same problem" "($(of best-auto objective) / $(of best-none objective) - 1) ^ 2 < 1e-10"
for optimizer in sgd adagrad adam; do
    run centred 1 job.yaml data.train=offset.svm model.bias_l2=no solve.method=sgd solve.epochs=10 solve.optimizer=$optimizer
    holds "$optimizer in ten epochs" "$(of centred objective) < 1.02 * $(of best-auto objective)"
done
run shrunk 1 job.yaml data.train=offset.svm solve.method=newton
grep -q '^centred: ' shrunk.out && fail "centred beside a bias that is regularised"

# What is of one size, or what the job says not to, stays.
run raw 1 job.yaml data.train=train.sparse data.scale=none solve.method=newton
grep -q '^scaled: ' raw.out && fail "scaled against data.scale: none"
awk '{ print $5, "1:1", "2:1" }' FS=, train.csv >one.svm
run ones 1 job.yaml data.train=one.svm solve.method=dual
grep -q '^scaled: ' ones.out && fail "ones are scaled"
echo 'model: {type: kmeans, clusters: 2}' >kmeans.yaml
refuses "K-means" 78 "data.scale is of no use" "$trireme" train kmeans.yaml data.train=train.csv data.scale=standard output=no

# A run goes on with the scale that it began with, on more ranks too.
run going 2 job.yaml data.train=train.csv data.format=csv solve.method=dual checkpoint.every="1 clocks" solve.epochs=5
run going 3 job.yaml data.train=train.csv data.format=csv solve.method=dual checkpoint.every="1 clocks" solve.epochs=30
near "$(of going objective)" "$(of logistic-1 objective)" 1e-3 || fail "went on to $(of going objective), not $(of logistic-1 objective)"

#!/bin/sh
# Regression with other losses than squares: robust ones, quantiles, counts.
. "$(dirname "$0")/lib.sh"

# y = 2 x1 - x2 + 1 with errors, a tenth of them large and upwards; and counts of mean exp(x1 / 2 - x2 / 4 + 1/2)
awk 'BEGIN {
    srand(7)
    for (i = 0; i < 3000; i++) {
        x = 2 * rand() - 1; y = 2 * rand() - 1; e = rand() - 0.5; if (rand() < 0.1) e += 30 * rand()
        printf "%.5g 1:%.5g 2:%.5g\n", 2 * x - y + 1 + e, x, y >"plain.svm"
        mean = exp(x / 2 - y / 4 + 0.5); n = 0; u = rand()
        while (u > exp(-mean)) { n++; u *= rand() }
        printf "%d 1:%.5g 2:%.5g\n", n, x, y >"counts.svm"
    }
}'
printf 'data: {train: plain.svm, test: plain.svm}\nmodel: {bias: yes}\nsolve: {method: dual, epochs: 300, target_gap: 0}\nsync: {mode: bsp}\n' >job.yaml

# weight FOLDER I: weight I of its model.txt, the bias behind the others
weight() { sed '1,/^w$/d' "$1/model.txt" | sed -n "$2p"; }

run squares 1 job.yaml model.type=linear
for ranks in 1 2; do
    run huber 2 job.yaml model.type=huber model.delta=0.5
    run median $ranks job.yaml model.type=quantile
    run upper $ranks job.yaml model.type=quantile model.quantile=0.8
    for folder in huber median; do
        holds "$folder" "($(weight $folder 1) - 2) ^ 2 < 0.01 && ($(weight $folder 2) + 1) ^ 2 < 0.01"
        holds "$folder" "($(weight $folder 3) - 1) ^ 2 < 0.05 && $(weight squares 3) > 2"
    done
    "$trireme" predict upper plain.svm | paste -d' ' - plain.svm | awk '$2 < $1 { n++ } END { exit !(n > 2370 && n < 2430) }' ||
        fail "upper: not four fifths of the rows are below what is predicted"
done
# every method that minimises logcosh comes to the same minimum, which the large errors hardly move
for method in newton auto sgd svrg svrg++ katyusha growing; do
    run cosh-$method 1 job.yaml model.type=logcosh model.delta=1 solve.method=$method
    near "$(of cosh-$method objective)" "$(of cosh-newton objective)" 1e-3 ||
        fail "logcosh by $method: objective $(of cosh-$method objective), by newton $(of cosh-newton objective)"
done
holds cosh-newton "($(weight cosh-newton 1) - 2) ^ 2 < 0.01 && ($(weight cosh-newton 2) + 1) ^ 2 < 0.01"
run cosh 2 job.yaml model.type=logcosh model.delta=1 solve.method=newton model.init=cosh-newton
[ "$(tail -1 cosh/model.txt)" = "logcosh 1" ] || fail "model.txt of logcosh ends with «$(tail -1 cosh/model.txt)»"
run cosh-text 1 job.yaml model.type=logcosh model.delta=1 solve.method=newton model.init=cosh/model.txt
near "$(of cosh-text objective)" "$(of cosh-newton objective)" 1e-6 || fail "model.init from model.txt: another minimum"
awk '{ split($2, a, ":"); split($3, b, ":"); print $1, a[2], b[2] }' plain.svm >plain.numbers
w=$(sed '1,/^w$/d' cosh/model.txt | head -3 | tr '\n' ' ')
awk -v w="$w" 'BEGIN { split(w, c) } { z = c[1] * $2 + c[2] * $3 + c[3] - $1; s += log((exp(z) + exp(-z)) / 2) } END { printf "%.9f\n", s / NR }' plain.numbers >mean
near "$(cat mean)" "$("$trireme" evaluate --json cosh plain.svm | number logcosh)" 1e-6 || fail "logcosh: evaluate differs from $(cat mean)"

# the bias starts at the best constant: targets far from 0 need no more epochs
awk '{ $1 += 1000; print }' plain.svm >far.svm
run_all 1 job.yaml <<'END'
cosh-far data.train=far.svm data.test=far.svm model.type=logcosh model.delta=1 solve.method=growing
median-far data.train=far.svm data.test=far.svm model.type=quantile solve.method=sgd
median-near model.type=quantile solve.method=sgd solve.target_gap=1e-3
END
says median-near.out "note: .*solve.target_gap 0.001 has no effect, .*: solve.method newton proves one"
for pair in cosh-far:cosh-growing median-far:median-near; do
    near "$(of ${pair%:*} objective)" "$(of ${pair#*:} objective)" 5e-3 || fail "$pair: objectives $(of ${pair%:*} objective) and $(of ${pair#*:} objective)"
done

run counts 2 job.yaml data.train=counts.svm data.test=counts.svm model.type=poisson solve.method=sgd
holds counts "($(weight counts 1) - 0.5) ^ 2 < 0.02 && ($(weight counts 2) + 0.25) ^ 2 < 0.02"

# ---- what evaluate says is what training said, of both files ----

for pair in huber:rmse:plain cosh:rmse:plain median:pinball:plain upper:pinball:plain counts:poisson_deviance:counts; do
    folder=${pair%%:*} file=${pair##*:} figure=${pair%:*} figure=${figure#*:}
    "$trireme" evaluate --json $folder $file.svm >h5.json && "$trireme" evaluate --json $folder/model.txt $file.svm >txt.json
    cmp -s h5.json txt.json || fail "$folder: model.h5 and model.txt differ: $(cat h5.json txt.json)"
    near "$(of $folder test_$figure)" "$(number $figure <h5.json)" 1e-5 ||
        fail "$folder: $figure $(of $folder test_$figure), evaluated $(cat h5.json)"
done
"$trireme" predict counts counts.svm | paste -d' ' - counts.svm | awk '{ d = $1 - $2; s += d < 0 ? -d : d } END { printf "%.6f\n", s / NR }' >mae
"$trireme" evaluate --json counts counts.svm | number mae >said
near "$(cat mae)" "$(cat said)" 1e-5 || fail "counts: mae $(cat said), of what is predicted $(cat mae)"
"$trireme" inspect upper | grep -q '^quantile  *0.8$' || fail "inspect does not say the quantile"

# ---- trees: the units of the labels and of the columns have no effect, and a model that is worse than a constant is reported ----

# powers of two, so that numbers are multiplied exactly
awk 'BEGIN { srand(4); for (i = 0; i < 600; i++) { a = int(1000 * rand()); b = int(1000 * rand()); e = rand() - 0.5; if (rand() < 0.1) e *= 20
    y = int(64 * (3 * (a > 400) - b / 1000 + e)) / 64; coin = (rand() < 0.3)
    printf "%.9g,%d,%d\n", 4096 * y, a, b >"large.csv"; printf "%.9g,%d,%d\n", y / 4096, a, b >"small.csv"
    printf "%.9g,%d,%.9g\n", y, 1048576 * a, b / 1024 >"columns.csv"; printf "%.9g,%d,%d\n", y, a, b >"unit.csv"
    print coin "," a "," b >"noise.csv" } }'
printf 'data: {label: 1}\nmodel: {type: trees}\nreport: {progress: no}\n' >trees.yaml
for objective in squared absolute huber quantile; do
    for kind in unit large small columns; do echo $objective-$kind data.train=$kind.csv model.objective=$objective; done
done | run_all 1 trees.yaml
for objective in squared absolute huber quantile; do
    for kind in unit large small columns; do "$trireme" predict $objective-$kind $kind.csv >$kind.predicted; done
    paste unit.predicted large.predicted small.predicted columns.predicted | awk '
        function far(a, b) { return a - b > 1e-6 || b - a > 1e-6 } { sum += $1 * $1 }
        far($1, $2 / 4096) || far($1, $3 * 4096) || $1 != $4 { n++ } END { print n + 0, NR, (sum > 100) }' >far
    is "trees, $objective: predictions that depend on a unit" "$(cat far)" "0 600 1"
done
cut -d, -f1 unit.csv | sort -g | awk '{ y[NR] = $1 } END { for (i = 1; i <= NR; i++) { d = y[i] - y[NR / 2]; print d < 0 ? -d : d } }' | sort -g | sed -n 300p >mad
says huber-large/log "scale: .* $(awk '{ printf "%.6g", 4096 * $1 }' mad), the median absolute deviation of the labels, which is model.delta"
w=$("$trireme" predict huber-unit unit.csv | paste -d, - unit.csv | awk -F, -v s="$(cat mad)" '{ d = $1 - $2; if (d < 0) d = -d
    sum += d < s ? d * d / 2 : s * (d - s / 2) } END { printf "%.9f\n", sum / NR }')
near "$("$trireme" evaluate --json huber-unit unit.csv | number huber)" "$w" 1e-6 || fail "trees: the huber loss with the stored delta is not $w"
run noise 2 trees.yaml data.train=noise.csv data.test=30% solve.epochs=200
says noise.out "warning: .*the log_loss of data.test is .* worse than 0.[56].* of the best constant"
silent squared-unit.out "worse than"
expect 78 "model.delta is for model.objective huber" train trees.yaml data.train=unit.csv model.objective=squared model.delta=2 output=no
run again 1 squared-unit/job.yaml # the values of all keys, also of those that the loss does not use

# ---- what cannot be ----

refused 78 "model.quantile is for model.type quantile" model.type=linear model.quantile=0.3
refused 78 "model.delta is for model.type huber and logcosh" model.type=linear model.delta=2
refused 78 "solve.method dual does not minimise the loss of model.type poisson" model.type=poisson
refused 78 "model.type poisson needs sync.mode bsp" model.type=poisson solve.method=auto sync.mode=ssp
refused 78 "solve.method dual does not minimise the loss of model.type logcosh: use auto, sgd, svrg, svrg++, katyusha, growing, newton$" model.type=logcosh
refused 78 "solve.method descent does not minimise the loss of model.type logcosh" model.type=logcosh solve.method=descent model.l1=0.1
refused 78 "solve.method svrg does not minimise" model.type=quantile solve.method=svrg
refused 65 "label -.*, expected 0 or more for model.type poisson" model.type=poisson solve.method=sgd

# ---- log link: without a penalty the predictions of two groups are their means, and the deviance is that of the means ----

awk 'BEGIN { srand(5); print "y,g,w"; for (i = 0; i < 400; i++) { g = i % 2; u = rand(); y = (g ? 30 : 400) * (0.2 + u * u)
    printf "%.4f,%d,%d\n", y, g, 1 + i % 3 }}' >amounts.csv
awk -F, -v OFS=, 'NR > 1 && NR % 3 == 0 { $1 = 0 } { print }' amounts.csv >zeros.csv
# means_and_deviance FILE POWER: of both groups, weighted
means_and_deviance() {
    awk -F, -v p="$2" 'NR > 1 { n[$2] += $3; sum[$2] += $3 * $1; y[NR] = $1; g[NR] = $2; w[NR] = $3 } END {
        for (i = 2; i <= NR; i++) { m = sum[g[i]] / n[g[i]]; all += w[i]
            if (p == 1) d = (y[i] > 0 ? y[i] * log(y[i] / m) : 0) - y[i] + m
            else if (p == 2) d = y[i] / m - log(y[i] / m) - 1
            else d = (y[i] > 0 ? y[i] ^ (2 - p) / ((1 - p) * (2 - p)) : 0) - y[i] * m ^ (1 - p) / (1 - p) + m ^ (2 - p) / (2 - p)
            total += 2 * w[i] * d }
        printf "%.9g %.9g %.9g\n", sum[0] / n[0], sum[1] / n[1], total / all }' "$1"
}
printf 'data: {label: y, columns: {w: weight}}\nreport: {progress: no}\n' >amounts.yaml
printf 'y,g,w\n1,0,1\n1,1,1\n' >groups.csv
while read -r loss file power more; do
    means_and_deviance $file $power >expected && read -r zero one deviance <expected
    for ranks in 1 3; do
        run linear-$loss $ranks amounts.yaml data.train=$file data.test=$file model.type=$loss model.l2=1e-12 solve.target_gap=1e-9 solve.epochs=100 $more
        run trees-$loss $ranks amounts.yaml data.train=$file data.test=$file model.type=trees model.objective=$loss solve.epochs=300 model.min_rows=1 solve.rate=0.2 $more
        for model in linear trees; do
            "$trireme" predict $model-$loss groups.csv | tr '\n' ' ' >said && read -r first second <said
            near "$first" "$zero" "$(awk "BEGIN { print 2e-3 * $zero }")" && near "$second" "$one" "$(awk "BEGIN { print 2e-3 * $one }")" ||
                fail "$model $loss, $ranks ranks: predicts $first and $second, the means are $zero and $one"
            near "$(of $model-$loss test_$loss\_deviance)" "$deviance" "$(awk "BEGIN { print 1e-3 * $deviance }")" ||
                fail "$model $loss, $ranks ranks: deviance $(of $model-$loss test_$loss\_deviance), of the means $deviance"
        done
    done
    "$trireme" evaluate linear-$loss $file 2>/dev/null | awk -v name=$loss\_deviance '$1 == name { print $2 }' >said
    near "$(cat said)" "$deviance" "$(awk "BEGIN { print 1e-3 * $deviance }")" || fail "evaluate $loss: deviance $(cat said), expected $deviance"
done <<'LOSSES'
poisson zeros.csv 1
gamma amounts.csv 2
tweedie zeros.csv 1.3 model.power=1.3
LOSSES
grep -q '^objective=tweedie tweedie_variance_power:1.3$' trees-tweedie/model.txt && grep -q '"tweedie_variance_power": *"1.3"' trees-tweedie/model.json ||
    fail "the power is not in the exported trees: $(grep ^objective trees-tweedie/model.txt; grep -o '.tweedie_var.\{20\}' trees-tweedie/model.json)"
expect 65 "label 0, expected more than 0 for model.type gamma" train amounts.yaml data.train=zeros.csv model.type=gamma output=no
expect 65 "label 0, expected more than 0 for model.objective gamma" train amounts.yaml data.train=zeros.csv model.type=trees model.objective=gamma output=no
expect 78 "model.power" train amounts.yaml data.train=zeros.csv model.type=tweedie model.power=2 output=no
expect 78 "model.power is for model.type tweedie" train amounts.yaml data.train=zeros.csv model.type=poisson model.power=1.2 output=no
expect 78 "model.power is for model.objective tweedie" train amounts.yaml data.train=zeros.csv model.type=trees model.objective=poisson model.power=1.2 output=no

#!/bin/bash
# report.metric: each metric is that of the predictions, weighted, on any number of ranks, for linear models and trees, and `evaluate`
# prints the same; the first one decides for solve.patience, for sweeps and along the path of l1; metrics that a model does not have.
. "$(dirname "$0")/lib.sh"

# rows SEED KIND: 600 rows label,weight,a,b; label: two (words), three (numbers), number, count (0 or more), amount (above 0)
rows() {
    awk -v seed="$1" -v kind="$2" 'BEGIN { srand(seed); print "label,w,a,b"; for (i = 0; i < 600; i++) {
        a = int(rand() * 1000) / 500 - 1; b = int(rand() * 1000) / 500 - 1; m = 2 * a - b + 1.5 * (rand() - 0.5)
        label = kind == "count" || kind == "amount" ? int(exp(m) * (1 + rand())) + (kind == "amount") / 4 : kind == "two" ? (m > 0.3 ? "yes" : "no") : kind == "three" ? (m < -0.7 ? 7 : m < 0.7 ? 8 : 9) : 1000 + int(m * 100) / 10
        print label "," 1 + int(rand() * 3) "," a "," b } }'
}
for kind in two three number count amount; do
    rows 1 $kind >$kind.csv
    rows 2 $kind >$kind.test.csv
done

# judged KIND PREDICTIONS [SHAPE]: NAME VALUE lines, computed from labels, weights and predictions. two: probabilities of yes;
# three: of 7, 8 and 9; margins of them (hinge); number: the number.
judged() {
    tail -n +2 "$1.test.csv" | tr , ' ' | paste -d ' ' - "$2" | awk -v kind="$1" -v hinge="${4-}" -v shape="${3-0}" '
        function abs(x) { return x < 0 ? -x : x }
        { w = $2; n += w }
        kind == "two" { y = $1 == "yes"; p = $5; right += w * ((p > 0.5) == y); brier += w * (p - y) ^ 2
            loss += -w * log(y ? p : 1 - p); both += w * (p > 0.5 && y); of += w * ((p > 0.5) + y)
            all[y] += w; ps[NR] = p; yes[NR] = y; ws[NR] = w }
        kind == "three" { as = $5 >= $6 && $5 >= $7 ? 0 : $6 >= $7 ? 1 : 2; right += w * ($1 - 7 == as)
            for (k = 0; k < 3; k++) { y = $1 - 7 == k; p = $(5 + k); brier += w * (p - y) ^ 2
                if (hinge) { s = 1 - (y ? p : -p); loss += w * (s > 0 ? s : 0) } else if (y) loss += -w * log(p) } }
        kind == "number" { e = $5 - $1; squares += w * e * e; absolutes += w * abs(e); parts += w * abs(e / $1)
            pinball += w * (e < 0 ? -shape * e : (1 - shape) * e); huber += w * (abs(e) <= shape ? e * e / 2 : shape * (abs(e) - shape / 2)); sum += w * $1; ys[NR] = $1; ws[NR] = w }
        kind == "count" { deviance += w * (($1 > 0 ? $1 * log($1 / $5) : 0) - $1 + $5); squares += w * ($5 - $1) ^ 2 }
        END {
            if (kind == "two" || kind == "three") { print "accuracy", right / n; print hinge ? "hinge_loss" : "log_loss", loss / n
                if (!hinge) print "brier", brier / n }
            if (kind == "two") { print "f1", 2 * both / of
                for (i in ps) { above = good = 0
                    for (j in ps) { if (ps[j] >= ps[i]) above += ws[j] * !yes[j]; if (ps[j] >= ps[i]) good += ws[j] * yes[j]
                        if (yes[i] > yes[j]) pairs += ws[i] * ws[j] * (ps[i] > ps[j] ? 1 : ps[i] == ps[j] ? 0.5 : 0) }
                    if (yes[i]) precision += ws[i] * good / (good + above) }
                print "auc", pairs / all[0] / all[1]; print "pr_auc", precision / all[1] }
            if (kind == "number") { for (i in ys) spread += ws[i] * (ys[i] - sum / n) ^ 2
                print "rmse", sqrt(squares / n); print "mae", absolutes / n; print "mape", parts / n
                print "r2", 1 - squares / spread; print "pinball", pinball / n; print "huber", huber / n }
            if (kind == "count") { print "poisson_deviance", 2 * deviance / n; print "rmse", sqrt(squares / n) } }'
}
# right NAME KIND PREDICTIONS [SHAPE [hinge]]: the metrics in NAME/summary.json
right() {
    judged "$2" "$3" "${4-}" "${5-}" >expected
    shown=0
    while read -r metric value; do
        got=$(of "$1" "test_$metric")
        case $got in "" | null) continue ;; esac
        shown=$((shown + 1))
        near "$got" "$value" 2e-5 || fail "$1: $metric is $got, by the predictions $value"
    done <expected
    [ $shown -ge 2 ] || fail "$1: summary.json has $shown of the metrics: $(grep test_ "$1/summary.json")"
}

cat >job.yaml <<'YAML'
data: {columns: {w: weight}, label: label}
report: {progress: no}
YAML
for ranks in 1 2; do
    for type in logistic trees; do
        run two$type 1 job.yaml data.train=two.csv data.test=two.test.csv model.type=$type report.metric=log_loss,accuracy,brier,f1 solve.epochs=20
        "$trireme" predict two$type two.test.csv --probability >p || fail "predict: $type"
        awk 'END { exit NF != 1 }' p || { awk '{ print $NF }' p >q; mv q p; }
        right two$type two p
        run three$type $ranks job.yaml data.train=three.csv data.test=three.test.csv model.type=$type report.metric='[brier, accuracy, log_loss]' solve.epochs=20
        "$trireme" predict three$type three.test.csv --probability >p || fail "predict: $type"
        right three$type three p
    done
    run number $ranks job.yaml data.train=number.csv data.test=number.test.csv model.type=linear report.metric=r2,rmse,mae,mape
    "$trireme" predict number number.test.csv >p && right number number p
    run quantile $ranks job.yaml data.train=number.csv data.test=number.test.csv model.type=quantile model.quantile=0.8
    "$trireme" predict quantile number.test.csv >p && right quantile number p 0.8
    run treequantile $ranks job.yaml data.train=number.csv data.test=number.test.csv model.type=trees model.objective=quantile model.quantile=0.8
    "$trireme" predict treequantile number.test.csv >p && right treequantile number p 0.8
done
# the areas, of scores with many ties
for ranks in 1 3; do
    run area$ranks $ranks job.yaml data.train=two.csv data.test=two.test.csv model.type=trees model.leaves=3 solve.epochs=5 report.metric=pr_auc,auc,brier,f1
    "$trireme" predict area$ranks two.test.csv --probability | awk '{ print $NF }' >p && right area$ranks two p
    is "the areas on $ranks ranks: values in summary.json" "$(grep -c '"test_.*: 0' area$ranks/summary.json)" 4
    run line$ranks $ranks job.yaml data.train=two.csv data.test=two.test.csv model.type=logistic solve.method=sgd solve.epochs=3 report.metric=auc,pr_auc
    "$trireme" predict line$ranks two.test.csv --probability >p && right line$ranks two p
    near "$(tail -1 line$ranks/metrics.csv | cut -d, -f6)" "$(of line$ranks test_auc)" 1e-12 || fail "line$ranks: $(tail -1 line$ranks/metrics.csv)"
done
is "the areas of 1 and 3 ranks" "$(of area1 test_auc)" "$(of area3 test_auc)"
near "$(of area1 test_pr_auc)" "$(of area3 test_pr_auc)" 1e-12 || fail "pr_auc on 1 and 3 ranks: $(of area1 test_pr_auc), $(of area3 test_pr_auc)"

# metrics of other losses, with the shape of the model
run other 1 job.yaml data.train=count.csv data.test=count.test.csv model.type=tweedie solve.method=newton report.metric=poisson_deviance,rmse
"$trireme" predict other count.test.csv >p && right other count p
run other 1 job.yaml data.train=number.csv data.test=number.test.csv model.type=logcosh model.delta=3 report.metric=huber,mae
"$trireme" predict other number.test.csv >p && right other number p 3

# evaluate prints the same: KIND NAME SETTINGS
while read -r kind name settings; do
    for ranks in 1 3; do
        echo "$name-$ranks data.train=$kind.csv data.test=$kind.test.csv $settings" >>models$ranks
    done
done <<'MODELS'
two logistic model.type=logistic
two hinge model.type=svm
three softmax model.type=logistic
three rest model.type=logistic model.classes=one-against-rest
three hinges model.type=l2svm
number linear model.type=linear
number huber model.type=huber
number quantile model.type=quantile model.quantile=0.7
count poisson model.type=poisson solve.method=newton
amount gamma model.type=gamma solve.method=newton
count tweedie model.type=tweedie solve.method=newton
two treelogistic model.type=trees solve.epochs=5
two treesoftmax model.type=trees model.objective=softmax solve.epochs=5
three treethree model.type=trees solve.epochs=5
number treesquared model.type=trees solve.epochs=5
number treehuber model.type=trees model.objective=huber model.delta=2 solve.epochs=5
count treetweedie model.type=trees model.objective=tweedie model.power=1.3 solve.epochs=5
MODELS
for ranks in 1 3; do
    run_all $ranks job.yaml <models$ranks
    while read -r name train test settings; do
        "$trireme" evaluate $name "${test#*=}" --json | python3 -m json.tool >evaluated || fail "$name: evaluate: $(cat evaluated)"
        n=0
        for member in $(sed -n 's/^  "test_\(.*\)": [-0-9.e+]*,$/\1/p' $name/summary.json); do
            value=$(of $name test_$member) n=$((n + 1))
            near "$(number $member <evaluated)" "$value" "$(awk "BEGIN { print 1e-6 * (1 + $value) }")" || fail "$name: $member is $value, evaluate: $(cat evaluated)"
        done
        [ $n -ge 1 ] || fail "$name: summary.json has no metrics"
    done <models$ranks
done

is "the default for a quantile" "$(of treequantile metric)" pinball
is "the default for classes" "$(of twologistic metric)" log_loss
run multi 1 job.yaml data.train=three.csv data.test=three.test.csv model.type=svm && grep -q hinge_loss multi/summary.json || fail "svm: no hinge_loss"

# ---- the first one decides ----

# best FOLDER ORDER: the first in this order of the metric of all evaluations
best() { tail -n +2 "$1/metrics.csv" | cut -d, -f6 | sort $2 | head -1; }
for metric in log_loss accuracy auc; do
    order=-g; [ $metric = log_loss ] || order=-gr
    run patient 1 job.yaml data.train=two.csv data.test=two.test.csv model.type=trees solve.epochs=200 solve.rate=0.3 solve.patience=20 report.metric=$metric
    near "$(of patient test_$metric)" "$(best patient $order)" 1e-12 || fail "patience: keeps $metric $(of patient test_$metric), not $(best patient $order)"
    "$trireme" sweep job.yaml data.train=two.csv data.test=two.test.csv model.type=trees solve.rate=0.02,0.1,0.5 report.metric=$metric report.progress=yes output=swept >said 2>&1 ||
        fail "sweep: $(cat said)"
    expected=$(for i in 1 2 3; do
        for fold in 1 2 3; do of "swept/s$i-$fold" test_$metric; done | awk -v i=$i '{ sum += $1 } END { print sum / NR, "s" i }'
    done | sort $order | head -1 | cut -d' ' -f2)
    grep -q "^$expected .*<- best" said || fail "sweep by $metric: not $expected: $(grep best said)"
    rm -rf patient swept
done
# candidates with different losses are compared by rmse; topics by perplexity
"$trireme" sweep job.yaml data.train=number.csv model.type=linear,quantile report.progress=yes output=swept >said 2>&1 || fail "sweep: $(cat said)"
says said '^task  *rmse '
"$trireme" generate docword -o bag documents=200 words=50 tokens=4k topics=2 2>/dev/null
"$trireme" sweep data.train=bag model.type=lda model.topics=2,30 solve.epochs=5 report.progress=yes output=topics >said 2>&1 || fail "sweep: $(cat said)"
says said '^task  *perplexity '
expected=$(for i in 1 2; do cat topics/s$i-?/summary.json | sed -n 's/.*"test_perplexity": \(.*\),/\1/p' | awk -v i=$i '{ sum += $1 } END { print sum, "s" i }'; done | sort -g | head -1 | cut -d' ' -f2)
grep -q "^$expected .*<- best" said || fail "sweep by perplexity: not $expected: $(grep best said)"
run path 1 job.yaml data.train=two.csv data.test=two.test.csv model.l1=path
head -1 path/path.csv | grep -q ',log_loss$' || fail "path.csv: $(head -1 path/path.csv)"
least=$(tail -n +2 path/path.csv | cut -d, -f5 | sort -g | head -1)
near "$(of path test_log_loss)" "$least" 1e-6 || fail "path: chooses log_loss $(of path test_log_loss), not $least"

# evaluate writes JSON for the other classes of models, too
awk 'BEGIN { srand(2); for (i = 0; i < 200; i++) print int(rand() * 20), int(rand() * 15), 1 + int(rand() * 5) }' >ratings
cut -d, -f3,4 number.csv >points.csv
run factors 1 data.train=ratings data.format=ratings model.type=mf model.rank=2 solve.epochs=2
run points 1 data.train=points.csv model.type=kmeans model.clusters=3
for pair in topics/best:bag:perplexity factors:ratings:rmse points:points.csv:inertia; do
    model=${pair%%:*} metric=${pair##*:} file=${pair%:*}
    "$trireme" evaluate $model "${file#*:}" --json | python3 -m json.tool >evaluated || fail "evaluate --json: $model"
    says evaluated "^ *\"$metric\": [0-9]"
done

# ---- metrics that a model does not have ----

cat >>job.yaml <<'YAML'
model: {type: logistic}
YAML
sed -i 's/^data: {/data: {train: three.csv, test: three.test.csv, /' job.yaml
refused 78 'report.metric: this model has no f1, expected of accuracy, log_loss, brier$' report.metric=f1
refused 78 'no auc, expected of accuracy, log_loss, brier$' report.metric=auc
refused 78 'no poisson_deviance, expected of' report.metric=poisson_deviance
refused 78 'ndcg@5 is of rows that are ranked' report.metric=ndcg@5
refused 78 'no model has acuracy' model.type=auto report.metric=acuracy
refused 78 'no brier, expected of accuracy, auc, pr_auc, hinge_loss, f1$' model.type=svm report.metric=brier data.train=none
refused 78 'no gamma_deviance, expected of poisson_deviance, rmse, mae, mape, r2$' model.type=poisson report.metric=gamma_deviance data.train=none
refused 78 'auc needs the same parameters.*sync.mode bsp' report.metric=auc data.train=two.csv data.test=two.test.csv sync.mode=asp solve.method=sgd
refused 78 'no accuracy, expected of rmse, mae, mape, r2' model.type=linear report.metric=accuracy data.train=number.csv data.test=number.test.csv
refused 78 'report.metric: 5 metrics, expected at most 4' report.metric=accuracy,accuracy,accuracy,accuracy,accuracy
sed -i 's/test: three.test.csv, //' job.yaml
refused 78 'report.metric needs data.test' report.metric=accuracy

#!/bin/sh
# data.weight: a row counts as if it were there several times, for every method and number of workers.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o rows.svm rows=600 features=40 nonzeros=6 noise=0.1 2>/dev/null
awk '{ print NR * 7 % 4 }' rows.svm >weights
paste -d' ' weights rows.svm | awk '{ n = $1; sub(/^[^ ]* /, ""); while (n-- > 0) print }' >repeated.svm
gzip -c weights >weights.gz
printf 'data: {train: rows.svm, features: 40, scale: none}\nmodel: {type: logistic, dtype: f64}\nsolve: {target_gap: 1e-6}\n' >job.yaml

# with weights and with repeated rows the same objective: lines NAME RANKS SETTING…
svm="solve.method=dual model.type=svm model.l2=0.01"
cat >cases <<END
$(for ranks in 1 2 8; do printf '%s\n' "auto-$ranks $ranks" "svm-$ranks $ranks $svm"; done)
classes 2 solve.method=dual model.class_weights=-1:2 model.l2=0.01
huber 4 solve.method=dual data.partition=horizontal model.type=huber model.l2=0.01
linear 2 solve.method=newton model.type=linear
sparse 3 model.l1=0.01
END
sed 's/ [0-9]*/ data.train=repeated.svm/; s/^/repeated-/' cases >lines
run_all 1 job.yaml <lines
for ranks in 1 2 3 4 8; do
    sed -n "s/^\([a-z0-9-]*\) $ranks\( \|\$\)/\1 data.weight=weights /p" cases >lines
    run_all $ranks job.yaml <lines
done
while read -r name ranks settings; do
    near "$(of $name objective)" "$(of repeated-$name objective)" 2e-6 ||
        fail "$ranks ranks, $settings: objective $(of $name objective), $(of repeated-$name objective) of repeated rows"
done <cases
run plain 1 job.yaml data.weight=weights
run packed 2 job.yaml data.weight=weights.gz data.order=file
near "$(of plain objective)" "$(of packed objective)" 2e-6 || fail "packed weights, rows in the order of the file: another model"
run best 1 job.yaml data.weight=weights model.l2=0.01
for partition in vertical horizontal; do
    run sgd 2 job.yaml data.weight=weights solve.method=sgd solve.epochs=200 sync.mode=bsp solve.target_gap=0 model.l2=0.01 data.partition=$partition
    holds "sgd, $partition" "$(of sgd objective) < 1.01 * $(of best objective)"
done

# ---- what follows from weights: scales, means of missing numbers, lambda, balanced classes, bins ----
# rows of weight 0 are far away; copies.csv has each row as often as it weighs
awk 'BEGIN {
    srand(11)
    print "a,b,y,w" >"table.csv"; print "a,b,y" >"copies.csv"
    for (i = 0; i < 400; i++) {
        w = i * 7 % 5
        a = sprintf("%.3f", w ? 100 + 30 * rand() : 9000 + i)
        b = w ? sprintf("%.4f", rand()) : -i
        y = w ? a / 30 + 3 * b + rand() > 5.5 : 1
        y += w && b > 0.8
        if (i % 6 == 0) b = ""
        print a "," b "," y "," w >"table.csv"
        for (k = 0; k < w; k++) print a "," b "," y >"copies.csv"
        if (w) { sum += w; if (b != "") { n += w; s += w * b } }
    }
    printf "%.9g\n", s / n >"mean"
    print sum >"sum"
}'
# both ways the same objective, 1/n and means: lines NAME SETTING…
cat >derived <<'END'
scaled model.type=linear data.scale=standard
balanced model.type=logistic model.class_weights=balanced
minmax model.type=l2svm data.scale=minmax
END
sed 's/ / data.train=copies.csv data.label=y solve.target_gap=1e-7 solve.epochs=300 /; s/^/copies-/' derived >lines
run_all 1 /dev/null <lines
sed 's/ / data.train=table.csv data.label=y data.weight=w solve.target_gap=1e-7 solve.epochs=300 /' derived >lines
for ranks in 1 3; do
    run_all $ranks /dev/null <lines
    while read -r name _; do
        near "$(of $name objective)" "$(of copies-$name objective)" 1e-5 ||
            fail "$name, $ranks ranks: objective $(of $name objective), $(of copies-$name objective) of copies"
        "$trireme" inspect $name/model.h5 | awk '$1 == "l2" { print $2 }' >said
        near "$(cat said)" "$(awk '{ print 1 / $1 }' sum)" 1e-8 || fail "$name: 1/n is $(cat said) for the sum $(cat sum)"
        h5dump -d table_means $name/model.h5 | awk '/\(0\)/ { gsub(",", ""); print $3 }' >said
        near "$(cat said)" "$(cat mean)" 1e-3 || fail "$name: the mean of b is $(cat said), not $(cat mean)"
    done <derived
done

# a class that weighs 3 is one whose rows do
awk -F, 'NR == 1 { print $0 ",v"; next } $4 > 0 && $2 != "" { print $0 "," ($3 == 2 ? 3 : 1) }' table.csv >classes.csv
run by_class 1 data.train=classes.csv data.label=y model.type=logistic model.class_weights="2:3" data.columns=a:ignore,w:ignore,v:ignore solve.target_gap=1e-7 solve.epochs=300 data.scale=none
run by_row 1 data.train=classes.csv data.label=y model.type=logistic data.weight=v data.columns=a:ignore,w:ignore solve.target_gap=1e-7 solve.epochs=300 data.scale=none
near "$(of by_class objective)" "$(of by_row objective)" 1e-5 || fail "class weights: $(of by_class objective), weights $(of by_row objective)"

# trees: the same cuts on any number of ranks, as those of copies, whose gradients are rounded otherwise
shape() { grep -E '^(num_leaves|split_feature|threshold|decision_type)=' "$1/model.txt"; }
trees="model.type=trees data.label=y solve.epochs=1 model.leaves=8 model.min_rows=10 solve.gradient_bits=10"
run copies 1 data.train=copies.csv $trees
awk -F, -v OFS=, 'NR > 1 { $4 /= 100 } { print }' table.csv >hundredths.csv
for ranks in 1 3; do
    run heavy $ranks data.train=table.csv data.weight=w $trees
    shape heavy >a.dump; shape copies >b.dump
    cmp -s a.dump b.dump || fail "trees on $ranks ranks: other ones than those of copies"
    is "trees on $ranks ranks: the rate" "$(of heavy rate)" "$(of copies rate)" && holds "more than the least rate" "$(of heavy rate) > 0.1"
done
run heavy 1 data.train=hundredths.csv data.weight=w $trees
grep -q '^num_leaves=[2-8]' heavy/model.txt || fail "small weights make no trees"

# ---- metrics: evaluate, and the test line of training ----

# figure FOLDER NAME: of `evaluate` on test.csv
figure() { "$trireme" evaluate "$1" test.csv 2>/dev/null | awk -v name="$2" '$1 == name { print $2; exit }'; }
# judged FOLDER FLAG: weighted figures from predictions; the area under the ROC curve over all pairs
judged() {
    { echo; "$trireme" predict $2 "$1" test.csv 2>/dev/null; } | paste -d, - test.csv | awk -F, -v kind="$3" '
        NR == 1 { next }
        { n++; p[n] = $1; y[n] = $(NF - 1); w[n] = $NF; all += $NF }
        END {
            for (i = 1; i <= n; i++) {
                if (kind == "accuracy") sum += w[i] * (p[i] == y[i])
                if (kind == "log_loss") sum -= w[i] * log(y[i] > 0 ? p[i] : 1 - p[i])
                if (kind == "rmse") sum += w[i] * (p[i] - y[i]) ^ 2
                for (j = 1; j <= n && kind == "auc" && y[i] > 0; j++)
                    if (!(y[j] > 0)) { pairs += w[i] * w[j]; sum += w[i] * w[j] * (p[i] > p[j] ? 1 : (p[i] == p[j]) / 2) }
            }
            sum /= kind == "auc" ? pairs : all
            printf "%.9g\n", kind == "rmse" ? sqrt(sum) : sum
        }'
}
# same_figure FOLDER NAME FLAG
same_figure() {
    near "$(figure $1 $2)" "$(judged $1 "$3" $2)" 1e-5 || fail "$1: $2 is $(figure $1 $2), from predictions $(judged $1 "$3" $2)"
}
awk 'BEGIN { srand(5); print "a,b,y,w"; for (i = 0; i < 300; i++) { a = rand(); b = rand(); printf "%.4f,%.4f,%d,%.2f\n", a, b, (a + b / 3 + rand() / 2 > 1), i % 5 ? 0.25 : 7 * (a < 0.6) } }' >test.csv
test_line() { awk -F, 'NR > 1 && $6 != "" { last = $6 } END { print last }' "$1/metrics.csv"; }
for ranks in 1 3; do
    run one $ranks data.train=test.csv data.test=test.csv data.label=y data.weight=w model.type=logistic solve.target_gap=1e-6 report.metric=accuracy
    near "$(test_line one)" "$(judged one "" accuracy)" 1e-6 || fail "$ranks ranks: the test line has $(test_line one), predictions $(judged one "" accuracy)"
    near "$(of one test_auc)" "$(judged one --margin auc)" 1e-5 || fail "$ranks ranks: test_auc $(of one test_auc), of all pairs $(judged one --margin auc)"
done
same_figure one accuracy ""
same_figure one log_loss --probability
same_figure one auc --margin
run one 2 data.train=test.csv data.test=test.csv data.label=y data.weight=w model.type=linear solve.target_gap=1e-6
near "$(test_line one)" "$(judged one "" rmse)" 1e-5 || fail "linear: the test line has $(test_line one), predictions $(judged one "" rmse)"
same_figure one rmse ""
run one 2 data.train=test.csv data.test=test.csv data.label=y data.weight=w model.type=trees solve.epochs=3 model.leaves=4 model.min_rows=10 report.metric=accuracy
near "$(test_line one)" "$(judged one "" accuracy)" 1e-6 || fail "trees: the test line has $(test_line one), predictions $(judged one "" accuracy)"
same_figure one accuracy ""
"$trireme" evaluate one test.csv 2>/dev/null | awk '$1 == "weight" { print $2 }' >said
near "$(cat said)" "$(awk -F, 'NR > 1 { sum += $4 } END { print sum }' test.csv)" 1e-3 || fail "evaluate does not say the sum of the weights: $(cat said)"

# ---- what cannot be ----

head -n 599 weights >few
{ cat weights; echo 1; } >many
sed '17s/.*/-1/' weights >negative
sed '17s/.*/nan/' weights >nan
sed '17s/.*//' weights >empty
sed '17s/.*/1 2/' weights >two
sed 's/.*/0/' weights >zeros
refused 65 "few:599: the weights end here, after 599, but data.train has 600 rows" data.weight=few
refused 65 "many:601: one weight too many: data.train has 600 rows" data.weight=many
refused 65 "negative:17: «-1» is no weight of a row, expected one number, 0 or more" data.weight=negative
refused 65 "nan:17: «nan» is no weight" data.weight=nan
refused 65 "empty:17: «» is no weight" data.weight=empty
refused 65 "two:17: «1» is no weight of a row, expected one number" data.weight=two
refused 66 "none" data.weight=none
refused 78 "data.weight leaves no row a weight above 0" data.weight=zeros
refused 78 "data.weight has a number for each row, but data.test takes some rows away" data.weight=weights data.test=10%
refused 78 "is not for this solve.method" data.weight=weights solve.method=svrg
expect 78 "data.weight" train data.train=rows.svm data.weight=weights model.type=kmeans output=no

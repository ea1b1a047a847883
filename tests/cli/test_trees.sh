#!/bin/sh
# Gradient boosted trees: from a job to predictions, the same model on any number of ranks and after any stop.
scripts=$(realpath "$(dirname "$0")")
. "$(dirname "$0")/lib.sh"

# rows N SEED: five numbers, of which the first four matter, by products and steps; then a yes or no, and a number
rows() {
    awk -v n="$1" -v seed="$2" 'function u() { return rand() * 2 - 1 }
        BEGIN { srand(seed); for (i = 0; i < n; i++) { a = u(); b = u(); c = u(); d = u(); e = u()
            y = 2 * a * b + (c > 0.3 ? 1 : 0) * d + 0.1 * u()
            printf "%.4f,%.4f,%.4f,%.4f,%.4f,%d,%.4f\n", a, b, c, d, e, (y > 0.1), y } }'
}
rows 4000 1 >all.csv
rows 1000 2 >test.all.csv
for part in all test.all; do
    cut -d, -f1-6 $part.csv >$part.class.csv
    cut -d, -f1-5,7 $part.csv >$part.number.csv
    awk -F, '{ printf "%d", $6; for (i = 1; i < 6; i++) if ($i != 0) printf " %d:%s", i, $i; print "" }' $part.csv >$part.svm
done
# sparse: each row has 3 of 40 columns; two columns decide
sparse() { awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed); for (i = 0; i < n; i++) { for (j = 1; j <= 40; j++) x[j] = rand() < 0.08
    printf "%d", (x[3] != x[17]); for (j = 1; j <= 40; j++) if (x[j]) printf " %d:%d", j, 1; print "" } }'; }
sparse 3000 1 >sparse.svm
sparse 800 2 >sparse.test.svm

# few whole numbers are classes, whatever the test data have
awk 'BEGIN { for (i = 0; i < 400; i++) print i % 20 + i / 1000 "," i % 20 }' >ages.csv
awk 'BEGIN { for (i = 0; i < 40; i++) print i "," i }' >older.csv
set -- train data.train=ages.csv model.type=trees solve.epochs=2 output=ages
"$trireme" "$@" 2>&1 | grep "^model.objective: softmax: labels are 20 integers (0 ... 19); model.objective=squared takes them as numbers" >/dev/null || fail "ages are no classes"
"$trireme" "$@" data.test=older.csv 2>&1 | grep -q "no training row has: 20, wrong in any case" || fail "older ages are not counted"
check "older ages" "$trireme" "$@" data.test=older.csv model.objective=squared

# a table: 40 cities, of which half are good, two seasons, a number that is missing where it matters
table() { awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed); if (seed == 1) print "city,season,size,sold"; else print "size,city,sold,season"
    for (i = 0; i < n; i++) { c = int(40 * rand() ^ 2); s = rand() < 0.5 ? "wet" : "dry"; x = rand() < 0.2 ? "" : sprintf("%.3f", rand())
        y = (c * 7 % 11 < 5) + (s == "wet") * (c % 3 == 0) + (x == "" ? 1 : x > 0.6) + 0.1 * rand()
        if (seed == 1) printf "c%d,%s,%s,%.3f\n", c, s, x, y; else printf "%s,c%d,%.3f,%s\n", x, c, y, s } }'; }
table 4000 1 >table.csv
table 1000 2 >table.test.csv

cat >job.yaml <<END
data: {train: all.class.csv}
model: {type: trees, leaves: 15}
solve: {epochs: 40, rate: 0.1}
report: {progress: no}
END

columns="ranks.groups=1 solve.parallel=feature" # one group, whose members divide the columns; or two
two_groups="ranks.groups=2 solve.parallel=feature"

# ---- any number of ranks, which divide rows, columns or both; histograms are added up in memory that ranks share, or travel from node to node ----
test=data.test=test.all.class.csv
run class2 2 job.yaml $test ranks.node_size=1
for ranks in 1 2 5; do
    case $ranks in 1) how= ;; 2) how=$columns ;; *) how="solve.parallel=voting solve.votes=40" ;; esac # all: as without votes
    run_all $ranks job.yaml <<END
$([ $ranks -eq 2 ] || echo "class$ranks $test")
number$ranks $how data.train=all.number.csv data.test=test.all.number.csv solve.row_share=0.7 solve.column_share=0.8
sparse$ranks $how data.train=sparse.svm data.test=sparse.test.svm solve.epochs=10 model.min_rows=5
END
    for what in class number sparse; do same_trees ${what}1 $what$ranks; done
done
# all other models of three ranks, which divide columns, and of one
awk 'BEGIN { srand(3); print "house,x,y"; for (i = 0; i < 6000; i++) { c = i % 600; x = rand(); printf "h%d,%.3f,%.3f\n", c, x, (c * 7 % 11 < 5) + (x > 0.5) + 0.1 * rand() } }' >wide.csv
awk -F, -v OFS=, '{ $6 = ($1 > 0) + 2 * ($2 > 0.2) + 5; print }' all.class.csv >four.csv
awk -F, -v OFS=, '{ $6 = $6 + (NR % 20 == 0) * NR; print }' all.number.csv >far.csv # some rows are far off
awk -F, 'NR % 3 { print 1; next } { print($1 > 0 ? 2.5 : 0) }' all.class.csv >weights
paste -d, all.class.csv weights | awk -F, -v OFS=, '{ print $1, $2, $3, $4, $5, $7, $6 }' >weighed.csv
for ranks in 1 3; do
    how=$columns weight="data.train=weighed.csv data.weight=6"
    [ $ranks -eq 3 ] || how= weight="$test data.weight=weights"
    run_all $ranks job.yaml <<END
table$ranks $how data.train=table.csv data.test=table.test.csv model.category_rows=20
wide$ranks $how data.train=wide.csv data.test=20% model.category_values=32 model.category_rows=5 model.category_smoothing=1 solve.epochs=30
four$ranks $how data.train=four.csv data.test=10% solve.epochs=10
$(for objective in absolute huber "quantile model.quantile=0.6"; do
    echo "${objective%% *}$ranks $how data.train=far.csv data.test=test.all.number.csv model.objective=$objective"
done)
goss$ranks $how $test solve.top_share=0.2 solve.row_share=0.2 solve.decay=0.01
weight$ranks $how $weight solve.epochs=10
END
    for what in four absolute huber quantile goss weight; do same_trees ${what}1 $what$ranks; done
done
[ "$(of class5 histogram_bytes)" = 0 ] || fail "one node: $(of class5 histogram_bytes) bytes travel"
holds "two nodes: 8 x bins x (ranks - 1) / ranks" "$(of class2 histogram_bytes) == 4 * 5 * 255"
holds "leaves are looked into together" "$(of class2 histogram_merges) < 40 * 10 && $(of class2 histograms) < 40 * 18 && $(of class5 histogram_merges) == 40 * 14"
run votes 3 job.yaml data.train=sparse.svm data.test=sparse.test.svm solve.epochs=10 model.min_rows=5 solve.parallel=voting solve.votes=2 ranks.node_size=1
holds "with two votes each, four columns of two bins travel" "$(of votes test_accuracy) > 0.99 && $(of votes histogram_bytes) <= 8 * 4 * 2 * 2 / 3 + 1"
holds "classes" "$(of class1 test_accuracy) > 0.95 && $(of class1 test_auc) > 0.99"
holds "numbers" "$(of number1 test_rmse) < 0.3"
holds "sparse rows" "$(of sparse1 test_accuracy) > 0.99"
run svm 1 job.yaml data.train=all.svm data.test=test.all.svm
same_trees class1 svm
run both 4 job.yaml solve.epochs=3 $two_groups ranks.node_size=1
run three_rounds 1 job.yaml solve.epochs=3
same_trees three_rounds both
# between two groups half the bins of half the columns; a bit for each row of the leaves that are divided, of which the root has all
holds "bytes of both" "$(of both histogram_bytes) >= 8 * 2 * 255 / 2 && $(of both histogram_bytes) <= 8 * 3 * 255 / 2"
holds "bytes of splits" "$(of both side_bytes) > 3 * 4000 / 2 / 8 && $(of both side_bytes) < 3 * 14 * 4000 / 2 / 8"
[ "$(of number2 histogram_bytes)" = 0 ] || fail "histograms travel within a group"
"$trireme" inspect class1 --tree 0 --graphviz >said || fail "inspect --graphviz"
[ "$(head -1 said)" = "digraph tree {" ] || fail "inspect of a folder shows more than the tree: $(head -3 said)"
[ "$(grep -c -- '->' said)" -eq 28 ] && [ "$(grep -c ellipse said)" -eq 15 ] && tail -1 said | grep -qx '}' || fail "inspect --graphviz: $(cat said)"
"$trireme" inspect class1/model.h5 --importance >said || fail "inspect --importance"
awk 'NR > 1 { share += $2; splits += $4 } END { exit !(share > 0.9999 && share < 1.0001 && splits == 40 * 14) }' said || fail "inspect --importance: $(cat said)"
refuses "two outputs" 64 "unexpected" "$trireme" predict class1 test.all.class.csv --leaves --margin
refuses "no tree" 64 "requires --tree" "$trireme" inspect class1/model.h5 --graphviz
# what features contribute sums to the margin, and so do the leaves that model.txt tells the values of
contributes() { # FOLDER FILE OUTPUTS
    head -50 "$2" >rows
    "$trireme" predict "$1" rows --margin >m && "$trireme" predict "$1" rows --contributions >c && "$trireme" predict "$1" rows --leaves >l || fail "predict $1"
    paste -d' ' m c | awk -v k="$3" '{ n = (NF - k) / k; for (o = 0; o < k; o++) { s = 0; for (i = 1; i <= n; i++) s += $(k + o * n + i); d = s - $(o + 1); if (d > 1e-5 || d < -1e-5) exit 1 } } END { exit NR != 50 }' ||
        fail "$1: contributions and margins differ: $(paste m c | head -2)"
    sed -n 's/^leaf_value=//p' "$1/model.txt" >values
    paste -d' ' m l | awk -v k="$3" 'FNR == NR { for (i = 1; i <= NF; i++) v[NR, i - 1] = $i; next }
        { for (o = 0; o < k; o++) { s = 0; for (t = o; t < NF - k; t += k) s += v[t + 1, $(k + t + 1)]; d = s - $(o + 1); if (d > 1e-5 || d < -1e-5) exit 1 } }' values - || fail "$1: leaves and margins differ"
}
contributes class1 test.all.class.csv 1
contributes sparse1 sparse.test.svm 1

# model.txt is what LightGBM loads, model.json what XGBoost does: read as these do, and by themselves where they are installed,
# both have the same margins. XGBoost adds up in floats of 32 bits.
lightgbm='function left(x, k, at,    type, set, word) { type = of["decision_type", k, at]
        if (type % 2 == 0) return x == "nan" ? int(type / 2) % 2 : x + 0 <= of["threshold", k, at] + 0
        set = of["threshold", k, at]; word = of["cat_boundaries", k, set] + int(x / 32)
        return x != "nan" && word < of["cat_boundaries", k, set + 1] && int(of["cat_threshold", k, word] / 2 ^ (x % 32)) % 2 }
    BEGIN { FS = "=" }
    FNR == NR { if ($1 == "Tree") t = $2; else if ($1 ~ /^(split_feature|threshold|left_child|right_child|leaf_value|decision_type|cat_boundaries|cat_threshold)$/) { n = split($2, x, " ")
        for (i = 1; i <= n; i++) of[$1, t, i - 1] = x[i] } else if ($1 == "num_tree_per_iteration") outputs = $2; next }
    /:/ { n = split($0, field, " "); split("", x); for (i = 2; i <= n; i++) { split(field[i], pair, ":"); x[pair[1] + 1] = pair[2] } }
    !/:/ { split($0, x, ",") }
    { for (k = 0; k < outputs; k++) sum[k] = 0
      for (k = 0; k <= t; k++) { at = (("threshold", k, 0) in of) ? 0 : -1
        while (at >= 0) at = of[left(x[of["split_feature", k, at] + 1], k, at) ? "left_child" : "right_child", k, at]
        sum[k % outputs] += of["leaf_value", k, -1 - at] }
      for (k = 0; k < outputs; k++) printf "%.9g%s", sum[k], k + 1 < outputs ? " " : "\n" }'
apart() { # WHO DISTANCE: of the files ours and theirs, where numbers are above 1 in parts of these
    paste -d' ' ours theirs | awk -v most="$2" '{ for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2); if (d < 0) d = -d; s = $i < 0 ? -$i : $i; if (d > most * (s > 1 ? s : 1)) exit 1 } if (NF % 2 || NF == 0) exit 1 } END { exit NR != 200 }' ||
        fail "$1 has other margins: $(paste ours theirs | head -2)"
}
same_margins() { # FOLDER FILE [THE-SAME-BY-NAMES]
    head -200 "$2" >rows && "$trireme" predict "$1" "${3-rows}" --margin >ours && awk "$lightgbm" "$1/model.txt" rows >theirs
    apart "$1/model.txt" 1e-6
    if command -v python3 >/dev/null; then
        python3 "$scripts/xgboost_margins.py" "$1/model.json" rows >theirs
        apart "$1/model.json" 1e-6
    else skip "$1/model.json: no python3"; fi
    if command -v lightgbm >/dev/null; then
        lightgbm task=predict data=rows header=false "input_model=$1/model.txt" output_result=theirs predict_raw_score=true verbosity=-1 >lightgbm.out 2>&1 || fail "lightgbm: $(tail -2 lightgbm.out)"
        apart "LightGBM with $1/model.txt" 1e-6
    fi
    python3 -c 'import xgboost' 2>/dev/null || return 0
    python3 - "$1/model.json" >theirs <<'END' && apart "XGBoost with $1/model.json" 2e-6
import sys, numpy, xgboost
m = xgboost.Booster(); m.load_model(sys.argv[1])
if ":" in open("rows").read(): rows = xgboost.DMatrix("rows?format=libsvm")
else: rows = xgboost.DMatrix(numpy.genfromtxt("rows", delimiter=",", dtype=numpy.float32)[:, :m.num_features()], feature_types=m.feature_types, enable_categorical=True)
for margins in m.predict(rows, output_margin=True).reshape(200, -1): print(*("%.9g" % x for x in margins))
END
}
# ---- columns as they are: categories, and numbers that are missing ----
SETS="column_values category_begin category" same_trees table1 table3
holds "categories" "$(of table1 test_rmse) < 0.1"
"$trireme" evaluate table3 table.test.csv >said || fail "evaluate of a table"
near "$(awk '$1 == "rmse" { print $2 }' said)" "$(of table1 test_rmse)" 1e-5 || fail "evaluate of a table: $(cat said)"
"$trireme" inspect table1/model.h5 --tree 0 >said || fail "inspect --tree of a table"
grep -q 'feature city in {c[0-9]*, c' said && grep -q 'season in {' said || fail "inspect --tree shows no categories: $(cat said)"
printf 'city,season,size\nc3,wet,0.5\nnowhere,wet,0.5\n,wet,0.5\n' >new.csv
"$trireme" predict table1 new.csv >said 2>&1 || fail "predict of new cities: $(cat said)"
[ "$(sed -n 3p said)" = "$(sed -n 4p said)" ] && grep -q '2 values of categories are not among' said || fail "predict of new cities: $(cat said)"
# 0, 1, …: the most frequent value first
awk -F, 'FNR == 1 { file++; next } file == 1 { n["c", $1]++; n["s", $2]++; next } file == 2 && FNR < 202 {
    for (w = 1; w < 3; w++) { v = w == 1 ? $2 : $4; rank = 0; of = w == 1 ? "c" : "s"
        for (k in n) { split(k, x, SUBSEP); if (x[1] == of && (n[k] > n[of, v] || (n[k] == n[of, v] && x[2] < v))) rank++ }
        printf "%d,", rank }
    print $1 == "" ? "nan" : $1 }' table.csv table.test.csv >codes.csv
head -201 table.test.csv >named.csv
same_margins table1 codes.csv named.csv
# more values than a byte can say: each of 600 has its own bin
SETS="column_values category_begin category" same_trees wide1 wide3
holds "600 values" "$(of wide1 test_rmse) < 0.2"
# 256 values: new ones of the test data have no bin among them
awk 'BEGIN { print "v,y"; for (i = 0; i < 4096; i++) { v = i < 256 || i % 8 ? i % 256 : 0; print "n" v "," (v ? v % 2 : 9) } }' >full.csv
awk 'BEGIN { print "v,y"; for (i = 0; i < 300; i++) print (i % 3 ? "n" i % 256 : "new") "," i % 2 }' >full.test.csv
run full 2 job.yaml data.train=full.csv data.test=full.test.csv data.label=y model.objective=squared model.min_rows=1
near "$("$trireme" evaluate full full.test.csv 2>/dev/null | awk '$1 == "rmse" { print $2 }')" "$(of full test_rmse)" 1e-5 || fail "256 values: not the error that evaluate finds: $(of full test_rmse)"
# labels that are far from 0, exact in single precision
awk 'BEGIN { srand(3); for (i = 0; i < 2000; i++) { a = rand(); b = rand(); y = int(8 * (4 * a + b + rand())) / 8
    printf "%.3f,%f,%f\n", y, a, b >"near.csv"; printf "%.3f,%f,%f\n", 1000000 + y, a, b >"far.csv" } }'
for objective in squared absolute huber quantile; do
    for place in near far; do
        run $place 2 job.yaml data.train=$place.csv data.test=$place.csv data.label=1 model.objective=$objective solve.epochs=30 report.metric=rmse,mae
        "$trireme" predict $place $place.csv >$place.predicted
    done
    near "$(of near test_rmse)" "$(of far test_rmse)" 0.003 || fail "$objective: rmse $(of near test_rmse), with 1e6 added $(of far test_rmse)"
    paste near.predicted far.predicted | awk '{ d = $2 - $1 - 1e6; sum += d * d } END { exit !(sqrt(sum / NR) < 0.1) }' || fail "$objective: predictions are not shifted by 1e6"
done
# columns in which fewer than model.min_rows rows differ from most are left out: here the second
awk -v OFS=, '{ print NR % 7, (NR <= 12), NR % 2 }' table.csv >differ.csv
run differ12 2 job.yaml data.train=differ.csv solve.epochs=1 ranks.node_size=1 model.min_rows=12
run differ13 2 job.yaml data.train=differ.csv solve.epochs=1 ranks.node_size=1 model.min_rows=13
holds "a column of two bins less" "$(of differ12 histogram_bytes) == 8 * 9 / 2 && $(of differ13 histogram_bytes) == 8 * 8 / 2"

# ---- what a model is asked ----
"$trireme" evaluate class1 test.all.class.csv >said || fail "evaluate"
near "$(awk '$1 == "accuracy" { print $2 }' said)" "$(of class1 test_accuracy)" 1e-5 || fail "evaluate: $(cat said)"
near "$(awk '$1 == "auc" { print $2 }' said)" "$(of class1 test_auc)" 1e-5 || fail "evaluate: $(cat said)"
"$trireme" evaluate number1 test.all.number.csv >said || fail "evaluate"
near "$(awk '$1 == "rmse" { print $2 }' said)" "$(of number1 test_rmse)" 1e-5 || fail "evaluate: $(cat said)"
"$trireme" predict class1 test.all.class.csv -o labels || fail "predict"
"$trireme" predict class1 test.all.class.csv --probability >p || fail "predict --probability"
"$trireme" predict class1 test.all.class.csv --margin >m || fail "predict --margin"
paste labels p m | awk '{ d = $2 - 1 / (1 + exp(-$3)); if (d > 1e-6 || d < -1e-6 || ($2 > 0.5) != $1) exit 1 }' || fail "labels, probabilities and margins differ"
"$trireme" predict svm test.all.svm --margin | cmp -s - m || fail "predict of LIBSVM rows differs"
cut -d, -f1-5 test.all.class.csv >unlabelled.csv
"$trireme" predict class1 unlabelled.csv | cmp -s - labels || fail "rows without a label get others"
"$trireme" predict sparse1 sparse.test.svm | paste - sparse.test.svm | awk '{ right += $1 == $2 } END { exit !(right > 792) }' || fail "predict of sparse rows"
"$trireme" inspect class1/model.h5 >said || fail "inspect"
awk '$1 == "feature" { on = 1; next } on { print $1 }' said | head -4 | sort | tr '\n' ' ' | grep -q '^1 2 3 4 $' || fail "inspect: the features that matter: $(cat said)"
"$trireme" inspect class1/model.h5 --tree 0 >said || fail "inspect --tree"
[ "$(grep -c leaf said)" -eq 15 ] && [ "$(grep -c '<=' said)" -eq 14 ] || fail "inspect --tree: $(cat said)"

same_margins class1 test.all.class.csv
same_margins number1 test.all.number.csv
same_margins sparse1 sparse.test.svm
# most rows have a number: what they do not name goes where few rows do
awk 'BEGIN { srand(5); for (i = 0; i < 1000; i++) { y = 0; row = ""; for (j = 1; j < 5; j++) if (rand() < 0.8) { row = row " " j ":1"; y += j < 3 }; print y % 2 row } }' >most.svm
run most 1 job.yaml data.train=most.svm solve.epochs=5
same_margins most most.svm
awk -F, -v OFS=, '{ if (NR % 5 == 0) $1 = "nan"; if (NR % 7 == 0) $3 = "nan"; print }' all.class.csv >holes.csv
run holes 2 job.yaml data.train=holes.csv
same_margins holes holes.csv
# numbers on a threshold, which as floats are on its left, and as reals of 64 bits perhaps above it
hundredths() { awk -v OFS=, -v odd="$1" 'BEGIN { for (i = 0; i < 4000; i++) { k = i % 50; print (2 * k + odd) / 100, i % 7, k % 2 } }'; }
hundredths 0 >even.csv
hundredths 1 >odd.csv
run between 1 job.yaml data.train=even.csv data.test=10% solve.epochs=5
same_margins between odd.csv
grep -q '^label_index=2$' between/model.txt || fail "model.txt: label_index: $(head -7 between/model.txt)"

# ---- objectives ----
holds "four classes" "$(of four1 test_accuracy) > 0.99"
"$trireme" predict four1 four.csv --probability | awk '{ s = $1 + $2 + $3 + $4; if (NF != 4 || s < 0.999 || s > 1.001) exit 1 }' || fail "probabilities of four classes"
same_margins four1 four.csv
contributes four1 four.csv 4
awk -F, -v OFS=, '{ $6 = int(exp(1 + $1)); print }' all.class.csv >counts.csv
run counts 2 job.yaml data.train=counts.csv data.test=10% model.objective=poisson
same_margins counts counts.csv
run counts_squared 1 job.yaml data.train=counts.csv data.test=10% model.objective=squared
holds "counts" "$(of counts test_rmse) < 1.1 * $(of counts_squared test_rmse)"
# leaves are medians or quantiles of all ranks' rows
for name in absolute huber quantile; do holds "$name" "$(of ${name}1 test_rmse) < 0.5"; done
run below 1 job.yaml data.train=all.number.csv model.objective=quantile model.quantile=0.9
"$trireme" predict below all.number.csv | paste -d, - all.number.csv | awk -F, '{ n += $7 < $1 } END { exit !(n > 3500 && n < 3700) }' || fail "not nine of ten rows lie below the quantile 0.9"
holds "rows with large gradients" "$(of goss1 test_accuracy) > 0.94"

# ---- solve.rate auto: 0.1 times the root of the rows per epoch, divided by 40 for numbers and by 160 for classes ----
printf 'model: {type: trees, leaves: 4}\nreport: {progress: no}\n' >rates.yaml
while read -r expected file epochs; do
    run rate 2 rates.yaml data.train=$file solve.epochs=$epochs
    near "$(of rate rate)" $expected 1e-9 || fail "rate of $file, $epochs epochs: $(of rate rate), expected $expected"
done <<END
0.2 all.number.csv 25
0.1 all.number.csv 200
0.2 all.class.csv 6
0.1 all.class.csv 40
0.3 all.number.csv 2
END
run rate_given 1 rates.yaml data.train=all.number.csv solve.epochs=2 solve.rate=0.3
same_trees rate rate_given

# ---- constraints, and more trees for a model ----
for ranks in 1 3; do run monotone$ranks $ranks job.yaml data.train=all.number.csv data.test=test.all.number.csv "model.monotone={4: up, 1: down}" ranks.node_size=$((ranks == 3)); done
same_trees monotone1 monotone3
awk 'BEGIN { for (i = 0; i < 20; i++) for (x = -1; x < 1; x += 0.05) printf "%s,%s,%s,%s,0\n", i / 10 - 1, i % 3 - 1, i % 5 / 3 - 0.5, x }' >rising.csv
"$trireme" predict monotone1 rising.csv | awk 'NR % 40 != 1 && $1 < before - 1e-6 { exit 1 } { before = $1 }' || fail "predictions do not rise with column 4"
"$trireme" predict number1 rising.csv | awk 'NR % 40 != 1 && $1 < before - 1e-6 { exit 1 } { before = $1 }' && fail "they do rise without a constraint"
run first20 2 job.yaml $test solve.epochs=20
run more 3 job.yaml $test solve.epochs=20 model.init=first20
same_trees class1 more
run first4 2 job.yaml data.train=sparse.svm data.test=sparse.test.svm solve.epochs=4 model.min_rows=5
run sparse_more 3 job.yaml data.train=sparse.svm data.test=sparse.test.svm solve.epochs=6 model.min_rows=5 model.init=first4
same_trees sparse1 sparse_more

# of categories: the same table; one with more cities, which come in another order of their numbers; names of labels
category="model.category_rows=20 model.init=first_table"
run first_table 2 job.yaml data.train=table.csv data.test=table.test.csv model.category_rows=20 solve.epochs=20
run more_table 3 job.yaml ranks.node_size=1 data.train=table.csv data.test=table.test.csv $category solve.epochs=20
SETS="column_values category_begin category" same_trees table1 more_table
awk -F, -v OFS=, 'NR == 1 { print; next } { print; if ($1 ~ /^c3?[5-9]$/ || NR % 3 == 0) print "new" NR % 7, $2, $3, $4; if ($1 == "c39") for (i = 0; i < 50; i++) print }' table.csv >wider.csv
run wider 2 job.yaml data.train=wider.csv $category solve.epochs=1 solve.rate=1e-9
h5dump -d dictionary_text wider/model.h5 >a.dump && h5dump -d dictionary_text table1/model.h5 >b.dump && cmp -s a.dump b.dump && fail "wider: no other dictionary"
for folder in first_table wider; do "$trireme" predict $folder named.csv >$folder.said || fail "predict $folder"; done
paste first_table.said wider.said | awk '{ d = $1 - $2; if (d > 1e-5 || d < -1e-5) exit 1 } END { exit NR != 200 }' || fail "wider: its first trees are others: $(paste first_table.said wider.said | head -2)"
sed 's/^c\([0-9]\)/d\1/' table.csv >elsewhere.csv
refused 65 'first_table: it tells city=c[0-9]* from other values, and the training data have no such value' data.train=elsewhere.csv $category
sed 's/^c\([0-9]\)/\1/' table.csv >numbered.csv
refused 65 'first_table: .*expected city (category), in the data there is city (number)' data.train=numbered.csv $category
sed 's/^city/town/' table.csv >town.csv
refused 65 'first_table: .*expected city (category), in the data there is town (category)' data.train=town.csv $category
awk -F, -v OFS=, '{ print $1, $2, ($3 > 0 ? "gain" : "loss") }' all.csv >words.csv
run words 1 job.yaml data.train=words.csv data.label=last solve.epochs=10
run words4 2 job.yaml data.train=words.csv data.label=last solve.epochs=4
run words6 2 job.yaml data.train=words.csv data.label=last solve.epochs=6 model.init=words4
same_trees words words6
sed 's/loss/lost/' words.csv >other.csv
refused 65 'words4: the names of its labels are not those of the data' data.train=other.csv data.label=last model.init=words4

# ---- weights ----
run unweighted 1 job.yaml solve.epochs=10
cmp -s weight1/model.txt unweighted/model.txt && fail "weights change nothing"
# classes of one or two rows among 20,000: without l2 their leaves get values of any size, and the objective rises to 19
awk 'BEGIN { srand(5); for (i = 0; i < 20000; i++) { a = rand(); b = rand()
    print (i % 4000 == 7 ? "rare" i % 3 : a > 0.5 ? "up" : b > 0.9 ? "side" : "down") "," a "," b } }' >few.csv
run few 1 data.train=few.csv data.label=1 model.type=trees solve.epochs=12 report.progress=no
holds "classes of few rows" "$(of few objective) < 0.05"
awk -F, '$6 { if (NR % 5) next } { print }' all.class.csv >rare.csv
run rare 1 job.yaml data.train=rare.csv $test
run balanced 2 job.yaml data.train=rare.csv $test model.class_weights=balanced
holds "class weights" "$(of balanced test_accuracy) > $(of rare test_accuracy)"
awk '{ print 0 }' weights >none
refused 78 'leaves no row a weight above 0' data.weight=none

awk -F, -v OFS=, '{ $6 = 1; print }' all.class.csv >one.csv
run one 2 job.yaml data.train=one.csv
"$trireme" predict one one.csv | sort -u | grep -qx 1 || fail "one kind of label"
head -10 all.class.csv >few.csv
run few 6 job.yaml data.train=few.csv model.min_rows=1 solve.epochs=5
run few1 1 job.yaml data.train=few.csv model.min_rows=1 solve.epochs=5
same_trees few1 few

# columns that tell nothing: all missing, one value
awk 'BEGIN { for (i = 0; i < 10; i++) print ",7,x," i % 2 }' >nothing.csv
run nothing 2 job.yaml data.train=nothing.csv data.label=last model.min_rows=1 solve.epochs=3
[ "$("$trireme" predict nothing nothing.csv --probability | sort -u)" = 0.5 ] || fail "columns that tell nothing"

# ---- stopped, killed, gone on with ----
run half 2 job.yaml $test solve.epochs=20 checkpoint.every="1 clock"
run half 3 job.yaml $columns $test checkpoint.every="1 clock"
same_trees class1 half
"$trireme" train job.yaml $test output=killed experiment.clock=0.1 checkpoint.every="1 clock" >killed.out 2>&1 &
pid=$!
i=0
while [ ! -e killed/checkpoints/00000005/manifest.h5 ] && [ $((i += 1)) -lt 600 ]; do sleep 0.1; done
kill -KILL $pid
wait $pid 2>/dev/null
run killed 2 job.yaml $test
[ "$(number continued <killed/status.json)" -eq 1 ] || fail "it did not go on: $(cat killed/status.json)"
same_trees class1 killed
run patient 2 job.yaml $test solve.epochs=300 report.every=5 solve.patience=3 solve.rate=0.5
holds "patience" "$(of patient test_accuracy) > 0.94"

# ---- refused ----
refuses "servers" 78 "trees have no parameters for servers" on 3 "$trireme" train job.yaml output=no ranks.layout=dedicated
for key in table.filter=skip sync.mode=asp data.partition=replicated data.scale=standard; do refused 78 'of no use' $key; done
refused 65 'expected two labels' data.train=four.csv model.objective=logistic
refused 78 'no such column' data.train=all.number.csv "model.monotone=9: up"
refused 78 'not supported for model.objective absolute' data.train=all.number.csv model.objective=absolute "model.monotone=1: up"
refused 65 'its model.objective is different' data.train=all.number.csv model.init=class1
refused 78 'groups have one' solve.parallel=feature
refused 78 'requires classes' data.train=all.number.csv model.class_weights=balanced
refused 78 'for solve.parallel voting' solve.votes=3
refused 78 'for model.objective quantile' model.quantile=0.3
refused 78 'used only if solve.row_share' solve.top_share=0.3
refused 65 'expected 0 or more for model.objective poisson' data.train=all.number.csv model.objective=poisson

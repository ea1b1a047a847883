#!/bin/sh
# K-means: from a job to labels, distances and evaluation.
. "$(dirname "$0")/lib.sh"

# agree A B PART WHAT: two numbers that differ by that part of them at most
agree() { awk -v a="$1" -v b="$2" -v part="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b != "" && d <= part * b) }' || fail "$4: $1 is not $2"; }
centres() { h5dump -d centres "$1/model.h5" | tail -n +2; }
same_centres() { centres "$1" >a.dump; centres "$2" >b.dump; [ -s a.dump ] && cmp -s a.dump b.dump || fail "$1 and $2 do not have the same centres"; }

# ---- dense rows ----
"$trireme" generate dense -o rows.csv rows=2000 columns=6 clusters=8 spread=2 label=last 2>/dev/null || fail "generate"
"$trireme" generate dense -o rows.svm rows=2000 columns=6 clusters=8 spread=2 format=libsvm 2>/dev/null || fail "generate"
cat >job.yaml <<END
data: {train: rows.csv, format: csv, label: last}
model: {type: kmeans, clusters: 8}
solve: {epochs: 30, tolerance: 0}
report: {progress: no}
END
run one 1 job.yaml
run three 3 job.yaml
same_centres one three
TRIREME_CPU=plain run plain 2 job.yaml solve.start=first
TRIREME_CPU=avx2 run avx2 2 job.yaml solve.start=first solve.bounds=no
run best 1 job.yaml solve.start=first
same_centres plain best
same_centres avx2 best
run digits 1 job.yaml data.train=rows.svm data.format=libsvm data.label=none
agree "$(of digits objective)" "$(of one objective)" 1e-9 "inertia of the same rows as LIBSVM text"
agree "$("$trireme" evaluate one rows.csv --json | number inertia)" "$(of one objective)" 1e-6 "inertia by evaluate"
"$trireme" evaluate one rows.csv >said || fail "evaluate"
for line in rows inertia mean_distance labels purity ari nmi; do grep -q "^$line  *[0-9]" said || fail "evaluate lacks $line: $(cat said)"; done

# ---- labels ----
"$trireme" predict one rows.csv -o labels || fail "predict"
[ "$(wc -l <labels)" -eq 2000 ] || fail "predict: $(wc -l <labels) lines"
sort -n labels | uniq -c | awk '{ print $1 }' >counts
h5dump -y -o sizes -d sizes one/model.h5 >/dev/null
tr -d ' \n' <sizes | tr ',' '\n' | awk '{ print }' | cmp -s - counts || fail "sizes are not those of predict: $(cat sizes counts)"
"$trireme" predict one rows.csv --distance >both || fail "predict --distance"
awk '{ print $1 }' both | cmp -s - labels || fail "--distance changes labels"
agree "$(awk '{ sum += $2 * $2 } END { printf "%.12g", sum }' both)" "$(of one objective)" 1e-6 "squares of distances"
cut -d, -f1-6 rows.csv >unlabelled.csv
"$trireme" predict one unlabelled.csv | cmp -s - labels || fail "rows without the label have others"
"$trireme" predict one rows.svm --format libsvm | cmp -s - labels || fail "rows as LIBSVM text have others"

# ---- what is in a model ----
"$trireme" inspect one/model.h5 --top 2 >said || fail "inspect"
grep -q '^clusters  *8$' said || fail "inspect: $(head -5 said)"
grep -q '^sizes .*min / median / max' said || fail "inspect lacks sizes"
grep -qE '^ +7 +[0-9]+ +[0-9.]+  [0-9]:-?[0-9.]+  [0-9]:' said || fail "inspect lacks the columns of centre 7: $(tail -5 said)"
h5dump -H one/model.h5 | tr -d '\n' | grep -q 'DATASET "centres" {[^}]*H5T_IEEE_F32LE[^}]*( 8, 6 )' || fail "h5dump: $(h5dump -H one/model.h5)"
h5dump -a format one/model.h5 | grep -q 'trireme-kmeans' || fail "h5dump: the format"

# ---- sparse rows, of more columns than are taken as dense ----
awk 'BEGIN { srand(3); for (i = 0; i < 600; i++) { g = i % 3; row = g; c = g * 2000
    for (j = 0; j < 12; j++) { c += 1 + int(rand() * 4); row = row " " c ":" (1 + int(rand() * 3)) } print row " 7000:1" } }' >sparse.svm
sparse="data.train=sparse.svm data.format=libsvm data.label=none model.clusters=3 solve.start=first"
run sparse1 1 job.yaml $sparse
run sparse4 4 job.yaml $sparse
run shares 4 job.yaml $sparse ranks.groups=2 data.partition=replicated
same_centres sparse1 sparse4
same_centres sparse1 shares
agree "$("$trireme" evaluate sparse1 sparse.svm | awk '/inertia/ { print $2 }')" "$(of sparse1 objective)" 1e-6 "inertia of sparse rows"
agree "$("$trireme" evaluate sparse1 sparse.svm | awk '/purity/ { print $2 }')" 1 1e-9 "purity of rows that have no column in common"
# ranks that only serve have no columns, and are told centres that have some far beyond what they have memory for
awk 'BEGIN { for (i = 1; i <= 6; i++) print 0, i ":" i, 2000000 ":" i }' >far.svm
for start in kmeans++ 'kmeans||'; do
    far="data.train=far.svm data.format=libsvm data.label=none model.clusters=2 solve.start=$start"
    run "far1-$start" 1 job.yaml $far
    run "far4-$start" 4 job.yaml $far ranks.layout=dedicated ranks.servers=1
    agree "$(of "far4-$start" objective)" "$(of "far1-$start" objective)" 1e-9 "inertia with ranks that only serve, $start"
done
echo "1 5:1 9000:2" >new.svm
"$trireme" predict sparse1 new.svm 2>note | grep -q '^[012]$' || fail "a row with an unknown column"
grep -q '^trireme: note: 1 values belong to columns' note || fail "no note of an unknown column: $(cat note)"

# ---- mini-batches ----
sed "s/, tolerance: 0//" job.yaml >batches.yaml
run batches 3 batches.yaml solve.method=minibatch solve.batch=200 solve.epochs=5 report.every=1
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "objective") at = i } NR == 2 { first = $at } { last = $at } END { exit !(last < first) }' \
    batches/metrics.csv || fail "mini-batches do not lower the inertia: $(cat batches/metrics.csv)"

# groups that are not in step read ahead for the next clock: a checkpoint does not wait for that
run ahead 4 batches.yaml solve.method=minibatch sync.mode=ssp ranks.group_size=2 ranks.node_size=2 solve.epochs=4 report.every=1 "checkpoint.every=2 clocks"

# rounded on their way, rows are counted all the same: what rounding has taken comes when the stage ends
for mode in bsp ssp; do
    run $mode 3 batches.yaml solve.method=minibatch solve.batch=200 solve.epochs=5 sync.mode=$mode table.precision=f8
    h5dump -y -o sizes -d sizes $mode/model.h5 >/dev/null
    holds "sizes of $mode" "$(tr -d ' \n' <sizes | tr ',' '+') == 5 * 2000"
done

# ---- what cannot be ----
refused 78 'model.clusters is 3000, but there are 2000 rows' model.clusters=3000
refused 78 'model.clusters is «0»' model.clusters=0
refused 78 'data.partition vertical' data.partition=vertical
refused 78 'solve.method' solve.method=sgd
refused 78 'sync.weight' sync.weight=con
refused 78 'unknown stage full' stages.full.clocks=2
printf '1,2\n1,2\n5,6\n1,2\n' >few.csv
few="data.train=few.csv data.label=none model.clusters=3"
for start in first random kmeans++ 'kmeans||'; do refused 78 'only 2 distinct rows' $few solve.start="$start"; done
printf '1,2\n3,4\n5\n' >short.csv
refused 65 'short.csv:3: 1 column, expected 2' data.train=short.csv data.label=none model.clusters=2
printf '1,2\n3,inf\n' >inf.csv
refused 65 'inf.csv:2: ' data.train=inf.csv data.label=none model.clusters=2
"$trireme" predict one short.csv >said 2>&1
[ $? -eq 65 ] && grep -q 'expected 6 as the training data have besides the label' said || fail "predict: $(cat said)"
"$trireme" predict one rows.csv --margin >said 2>&1
[ $? -eq 64 ] && grep -q 'is not for clusters' said || fail "predict --margin: $(cat said)"

# ---- handwritten digits ----
if [ -n "${TRIREME_DATA:-}" ] && [ -e "$TRIREME_DATA/usps/usps.train.libsvm.gz" ]; then
    run usps 2 job.yaml data.train="$TRIREME_DATA/usps/usps.train.libsvm.gz" data.format=libsvm data.label=none model.clusters=40
    "$trireme" evaluate usps "$TRIREME_DATA/usps/usps.test.libsvm.gz" >said || fail "usps: $(cat said)"
    awk '/purity/ { exit !($2 > 0.75) }' said || fail "usps: $(cat said)"
fi

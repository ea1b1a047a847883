#!/bin/sh
# Boosted trees on tables with little or no information: a right model or one line. A job whose ranks are killed ends
# with the same model.
. "$(dirname "$0")/lib.sh"

# everywhere FOLDER FILE VALUE OPTION…: this is predicted for each row
everywhere() {
    folder=$1 file=$2 value=$3; shift 3
    "$trireme" predict "$folder" "$file" "$@" | sort -u >said
    near "$(cat said)" "$value" 1e-6 || fail "$folder predicts «$(cat said)», expected $value everywhere"
}
# learnt FOLDER FILE: the last column is predicted without an error
learnt() { "$trireme" predict "$1" "$2" | paste -d, - "$2" | awk -F, '$1 != $NF { exit 1 } END { exit NR < 10 }' || fail "$1 predicts other labels than those it has learnt"; }

awk 'BEGIN { for (i = 0; i < 10; i++) print i "," i % 3 "," (i > 5) }' >ten.csv
cat >job.yaml <<END
data: {train: ten.csv, label: last}
model: {type: trees, min_rows: 1, l2: 0.1}
solve: {epochs: 10}
report: {progress: no}
END
of_ten() { awk -F, -v OFS=, "$1" ten.csv; } # PROGRAM: ten rows made of those

# ---- columns that tell nothing, beside one that tells all, and alone ----
run plain 1 job.yaml
learnt plain ten.csv
of_ten '{ print "", 7, $1, "x", $3 }' >beside.csv
run beside 2 job.yaml data.train=beside.csv
learnt beside beside.csv
"$trireme" inspect beside/model.h5 --importance >said || fail "inspect"
[ "$(awk 'NR > 1 { print $1 }' said)" = 3 ] || fail "trees split by columns of one value: $(cat said)"
of_ten '{ print 7, 0, $3 }' >constant.csv
of_ten '{ print "", "NA", $3 }' >missing.csv
of_ten '{ print "x", "y", $3 }' >words.csv
for kind in constant missing words; do
    run $kind 2 job.yaml data.train=$kind.csv
    everywhere $kind $kind.csv 0.4 --probability
done
of_ten '{ $3 = 1; print }' >alike.csv
run alike 2 job.yaml data.train=alike.csv
grep -q 'all labels of data.train are 1: there is nothing to learn' alike/log || fail "alike: $(cat alike/log)"
everywhere alike alike.csv 1
of_ten '{ $3 = 4.5; print }' >level.csv
run level 2 job.yaml data.train=level.csv model.objective=squared
everywhere level level.csv 4.5

# ---- more of something than there are rows ----
run leaves 1 job.yaml model.leaves=65536
[ "$("$trireme" predict leaves ten.csv --leaves | awk '$1 > 9 { exit 1 } END { print NR }')" = 10 ] || fail "a tree of ten rows has more leaves"
run ranks 16 job.yaml
same_trees plain ranks
run one 1 job.yaml model.min_rows=11
everywhere one ten.csv 0.4 --probability

# ---- numbers that lie far apart, and a million different ones ----
awk 'BEGIN { for (i = 0; i < 10; i++) printf "%.0f,%d\n", 10 ^ (4 * i), (i > 5) }' >far.csv
run far 2 job.yaml data.train=far.csv
learnt far far.csv
awk 'BEGIN { for (i = 0; i < 1000000; i++) { x = i * 7919 % 1000003; print x "," (x > 300000) } }' >million.csv
run million 2 job.yaml data.train=million.csv solve.epochs=2 solve.rate=1
"$trireme" evaluate million million.csv >said || fail "evaluate million"
awk '$1 == "accuracy" { right = $2 } END { exit !(right > 0.99) }' said || fail "a million different numbers: $(cat said)"

# ---- a category that tells nothing, of many values: the fewer of them a split may choose, the less of it is learnt ----
awk 'BEGIN { srand(4); print "word,x,y"; for (i = 0; i < 8000; i++) { x = rand(); printf "w%d,%.3f,%.3f\n", 300 * rand() ^ 2, x, (x > 0.5) + 4 * rand() } }' >noise.csv
run noise 1 job.yaml data.train=noise.csv data.test=25% data.label=y model.min_rows=20 solve.epochs=60
run chosen 1 job.yaml data.train=noise.csv data.test=25% data.label=y model.min_rows=20 solve.epochs=60 model.category_values=32 model.category_smoothing=10
holds "few values of a category" "$(of noise test_rmse) < $(of chosen test_rmse)"

# ---- weights ----
of_ten '{ print 0 }' >zeros
of_ten '{ print 1 - 2 * (NR == 4) }' >negative
of_ten '{ print $3 }' >some
refused 78 'leaves no row a weight above 0' data.weight=zeros
refused 65 'negative:4: «-1» is no weight' data.weight=negative
run weighed 2 job.yaml data.weight=some
everywhere weighed ten.csv 1

# ---- killed twice ----
awk 'BEGIN { srand(1); for (i = 0; i < 3000; i++) { a = rand(); b = rand(); c = rand(); printf "%.4f,%.4f,%.4f,%d\n", a, b, c, (a > b) != (c > 0.6) } }' >rows.csv
killed="data.train=rows.csv solve.epochs=30 model.min_rows=20 report.every=5"
run never 1 job.yaml $killed checkpoint.every=no
TRIREME_FAULT=clock@1:#12:0:0,clock@2:#20:0:1 timeout -s KILL $patience "$trireme" run job.yaml -n 4 --heartbeat 100ms --limit 10s --log log \
    output=twice $killed checkpoint.every="1 clock" experiment.clock=0.05 >out 2>err || fail "killed twice: $(cat err)"
[ "$(grep -c ' started ' log)" -eq 3 ] && [ "$(grep -c 'was killed by SIGKILL' err)" -eq 2 ] || fail "killed twice: $(cat err)"
same_trees never twice

# ---- memory: of numbers no more than there are and what is known of a row; on a disk, the same model without them; the job says so beforehand ----
if [ -z "$sanitized" ]; then
    "$trireme" generate events -o large.csv rows=500k >/dev/null 2>&1 && head -200000 large.csv >small.csv || fail "generate events"
    unset MALLOC_PERTURB_ # it touches all that is allocated
    once="data.cache=no solve.epochs=1 checkpoint.every=no"
    for size in small large; do run $size 1 job.yaml data.train=$size.csv $once; done
    run disk 1 job.yaml data.train=large.csv $once data.storage=disk data.scratch=.
    same_trees large disk
    more="($(of large peak_rss_bytes) - $(of small peak_rss_bytes))"
    said() { sed -n 's/^memory:  *about \([0-9.]*\) MB a rank.*/\1/p' $1/log; }
    holds "bytes of a row" "$more / 300000 < 28 * 4 + 20"
    holds "bytes of a row on a disk" "($(of large peak_rss_bytes) - $(of disk peak_rss_bytes)) / 500000 > 60"
    holds "what is said of memory" "($(said large) - $(said small)) * 1e6 / $more > 0.8 && ($(said large) - $(said small)) * 1e6 / $more < 1.2"
fi

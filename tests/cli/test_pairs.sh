#!/bin/sh
# Each format of data with each type of model works, or is refused by name before data are read; data files without a
# job.
. "$(dirname "$0")/lib.sh"

for i in 1 2 3 4 5 6 7 8; do
    printf '%d 1:%d 3:0.%d\n' $((i % 2)) $i $i >>libsvm
    printf '0.%d,%d,7,%d\n' $i $i $((i % 2)) >>csv
    printf '%d %d %d\n' $i $((i % 3 + 1)) $((i % 5 + 1)) >>ratings
done
printf '8\n3\n8\n' >docword
for i in 1 2 3 4 5 6 7 8; do printf '%d %d %d\n' $i $((i % 3 + 1)) $((i % 2 + 1)) >>docword; done
check "convert" "$trireme" convert csv hdf5

# pair FORMAT TYPE WORKS SETTING…: what works does on two ranks, too; jobs are refused before there are ranks that matter
pair() {
    format=$1 type=$2 works=$3; shift 3
    for ranks in 1 2; do
        [ "$works$ranks" != refused2 ] || continue
        name=$format-$type-$ranks
        on $ranks "$trireme" train data.train=$format data.format=$format model.type=$type output="$name" solve.epochs=200 "$@" >out 2>err
        got=$?
        if [ "$works" = works ]; then
            [ $got -eq 0 ] && [ -f "$name/model.h5" ] || fail "$name: exit $got: $(grep error err)"
            continue
        fi
        [ $got -eq 78 ] || fail "$name: exit $got, expected 78: $(grep error err)"
        grep '^trireme: error: ' err | grep -q "data.format.*$format" || fail "$name: «$(cat err)» does not name data.format"
        grep -q 'training data' err && fail "$name: data were read before it was refused"
        [ ! -f "$name/status.json" ] || grep -q '"state": "failed"' "$name/status.json" ||
            fail "$name: $(grep state "$name/status.json")"
    done
}
for type in auto logistic svm l2svm; do
    pair libsvm $type works; pair csv $type works; pair ratings $type refused; pair docword $type refused; pair hdf5 $type works
done
for type in linear huber quantile logcosh; do
    pair libsvm $type works; pair csv $type works; pair ratings $type refused; pair docword $type refused; pair hdf5 $type works
done
pair libsvm poisson works solve.method=sgd; pair csv poisson works solve.method=sgd
pair ratings poisson refused solve.method=sgd; pair docword poisson refused solve.method=sgd; pair hdf5 poisson works solve.method=sgd
pair libsvm trees works; pair csv trees works; pair ratings trees refused; pair docword trees refused; pair hdf5 trees works
pair libsvm kmeans works model.clusters=2; pair csv kmeans works model.clusters=2
pair ratings kmeans refused model.clusters=2; pair docword kmeans refused model.clusters=2; pair hdf5 kmeans works model.clusters=2
pair ratings mf works model.rank=2; pair libsvm mf refused model.rank=2; pair csv mf refused model.rank=2; pair docword mf refused model.rank=2; pair hdf5 mf refused model.rank=2
pair docword lda works model.topics=2; pair libsvm lda refused model.topics=2; pair csv lda refused model.topics=2; pair ratings lda refused model.topics=2; pair hdf5 lda refused model.topics=2

# ---- what files look like: no job file, no format, no column of labels, no type of model ----
awk 'BEGIN { srand(2); print "a\tb\tclass" >"header.tsv"; print "\"y\";\"a\";\"b\"" >"named.csv"
    for (i = 0; i < 400; i++) { a = rand(); b = rand(); k = a > b ? 3 : 7; v = 2 * a - b + 5
        print a "\t" b "\t" k >"header.tsv"; print v ";" a ";" b >"named.csv"; print k, a, b >"first.txt"; print a "," b "," v >"last.csv"
        print k " 0:" a " 1:" b >"zero.svm" } }'
first() { # FILE WORDS METRIC LEAST SETTING…
    file=$1 words=$2 metric=$3 least=$4 folder=runs/${1%%.*}; shift 4
    rm -rf runs
    "$trireme" train data.train="$file" data.test=20% "$@" >out 2>&1 || fail "$file: exit $?: $(grep error out)"
    grep -q "$words" out || fail "$file: does not say «$words»: $(cat out)"
    case $metric in rmse) holds "$file" "$(of "$folder" test_rmse) <= $least" ;; *) holds "$file" "$(of "$folder" test_accuracy) >= $least" ;; esac
    check "$file: evaluate" "$trireme" evaluate "$folder" "$file" --json
    near "$(number "$metric" <out)" "$(of "$folder" "test_$metric")" 0.1 || fail "$file: evaluate $(number "$metric" <out)"
}
first header.tsv "label class" accuracy 0.9
first named.csv "label y" rmse 0.2
first first.txt "label column 1" accuracy 0.9
first last.csv "linear, since labels are" rmse 0.2
first zero.svm "training data" accuracy 0.9
expect 78 "data.train is missing" train solve.epochs=3
expect 66 "job.yaml: cannot read the job file" train job.yaml
check "run without a job file" "$trireme" run data.train=last.csv -n 2 output=supervised -- --oversubscribe

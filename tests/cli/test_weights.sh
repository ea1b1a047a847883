#!/bin/sh
# data.weight: rows count as if they were there several times, by every method on any number of workers.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o rows.svm rows=600 features=40 nonzeros=6 noise=0.1 2>/dev/null
awk '{ print NR * 7 % 4 }' rows.svm >weights
paste -d' ' weights rows.svm | awk '{ n = $1; sub(/^[^ ]* /, ""); while (n-- > 0) print }' >repeated.svm
gzip -c weights >weights.gz
printf 'data: {train: rows.svm, features: 40, scale: none}\nmodel: {type: logistic, dtype: f64}\nsolve: {target_gap: 1e-6}\n' >job.yaml

# same RANKS SETTING…: with weights and with repeated rows the same objective
same() {
    ranks=$1; shift
    run repeated 1 job.yaml data.train=repeated.svm "$@"
    run weighed $ranks job.yaml data.weight=weights "$@"
    near "$(of weighed objective)" "$(of repeated objective)" 2e-6 ||
        fail "$ranks ranks, $*: objective $(of weighed objective), $(of repeated objective) of repeated rows"
}
for ranks in 1 2 8; do
    same $ranks
    same $ranks solve.method=dual model.type=svm model.l2=0.01
done
same 2 solve.method=dual model.class_weights="-1:2" model.l2=0.01
same 4 solve.method=dual data.partition=horizontal model.type=huber
same 2 solve.method=newton model.type=linear
same 3 model.l1=0.01
run plain 1 job.yaml data.weight=weights
run packed 2 job.yaml data.weight=weights.gz data.order=file
near "$(of plain objective)" "$(of packed objective)" 2e-6 || fail "packed weights, rows in the order of the file: another model"
run best 1 job.yaml data.weight=weights model.l2=0.01
for partition in vertical horizontal; do
    run sgd 2 job.yaml data.weight=weights solve.method=sgd solve.epochs=200 sync.mode=bsp solve.target_gap=0 model.l2=0.01 data.partition=$partition
    holds "sgd, $partition" "$(of sgd objective) < 1.01 * $(of best objective)"
done

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
exit $bad

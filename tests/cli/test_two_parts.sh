#!/bin/sh
# A run that goes on from a checkpoint ends as one that was never stopped, whatever it learns: with the same ranks to the
# last bit, with others about as well.
. "$(dirname "$0")/lib.sh"

$trireme generate ctr -o rows.svm rows=1500 features=200 seed=3 >/dev/null || fail "generate ctr"
$trireme generate dense -o points.csv rows=1500 columns=6 clusters=9 seed=4 >/dev/null || fail "generate dense"
$trireme generate ratings -o ratings.tsv users=300 items=120 ratings=6000 seed=5 >/dev/null || fail "generate ratings"
$trireme generate docword -o bags.txt documents=150 words=300 tokens=6000 seed=6 >/dev/null || fail "generate docword"

cat >linear.yaml <<END
data: {train: [rows.svm]}
model: {type: logistic, l2: 0.001}
solve: {batch: 100, epochs: 9}
report: {every: 3}
END
cat >kmeans.yaml <<END
data: {train: [points.csv]}
model: {type: kmeans, clusters: 12}
solve: {method: lloyd, epochs: 14}
END
cat >mf.yaml <<END
data: {train: [ratings.tsv]}
model: {type: mf, rank: 8}
solve: {method: sgd, epochs: 9}
report: {every: 3}
END
cat >lda.yaml <<END
data: {train: [bags.txt]}
model: {type: lda, topics: 20}
solve: {method: gibbs, epochs: 12, optimize_every: 3}
END

# A run as it stood at its first checkpoint: what it wrote after that is gone.
cut() {
    rm -rf "$2" && mkdir "$2" && cp -r "$1/checkpoints" "$2" || fail "$1: no checkpoints"
    rm -f "$2/checkpoints/ended"
    find "$2/checkpoints" -mindepth 1 -maxdepth 1 ! -name 00000001 -exec rm -r {} +
    [ -f "$2/checkpoints/00000001/manifest.h5" ] || fail "$1: no checkpoint"
}

# parts NAME RANKS CLOCKS OTHER DISTANCE JOB SETTING…: in one part and in two, and in two of which the second has other
# ranks («RANKS SETTING…»), whose objective is to be worse by less than
# that; OTHER no: not
parts() {
    name=$1 ranks=$2 clocks=$3 other=$4 distance=$5; shift 5
    run "$name" "$ranks" "$@" checkpoint.every="$clocks clocks" checkpoint.keep=1000 || return
    cut "$name" "$name-two"
    run "$name-two" "$ranks" "$@" checkpoint.every=no || return
    grep -q '^continues:' "$name-two.out" || fail "$name: began anew"
    h5diff --exclude-path /job "$name/model.h5" "$name-two/model.h5" >differences 2>&1 ||
        fail "$name: other models: $(head -3 differences)"
    [ "$(of "$name" objective)" = "$(of "$name-two" objective)" ] ||
        fail "$name: $(of "$name" objective), in two parts $(of "$name-two" objective)"
    [ "$other" != no ] || return
    cut "$name" "$name-other"
    others=${other%% *} ways=${other#"$others"}
    run "$name-other" "$others" "$@" checkpoint.every=no $ways || return
    grep -q '^continues:' "$name-other.out" || fail "$name: began anew with $other"
    awk -v one="$(of "$name" objective)" -v two="$(of "$name-other" objective)" -v far="$distance" \
        'BEGIN { worse = one < 0 ? one - two : two - one; exit !(two != "" && worse < far) }' ||
        fail "$name: $(of "$name" objective), going on with $other ranks $(of "$name-other" objective)"
}

parts dual 2 4 3 1e-4 linear.yaml solve.method=dual
parts dual-file 3 4 2 1e-4 linear.yaml solve.method=dual data.order=file
parts sgd 2 4 3 1e-3 linear.yaml solve.method=sgd solve.rate=0.5
parts sgd-adam 2 4 3 5e-3 linear.yaml solve.method=sgd solve.optimizer=adam solve.rate=0.01 solve.optimizer_at=worker
parts sgd-adagrad 2 4 no 0 linear.yaml solve.method=sgd solve.optimizer=adagrad solve.rate=0.1
parts sgd-vertical 4 4 "3 ranks.groups=1 ranks.group_size=3" 1e-3 linear.yaml solve.method=sgd data.partition=vertical ranks.group_size=2
parts lloyd 2 3 3 1 kmeans.yaml
parts lloyd-tolerance 2 3 no 0 kmeans.yaml solve.tolerance=1e-3
parts lloyd-replicated 4 3 no 0 kmeans.yaml data.partition=replicated ranks.group_size=2
parts lloyd-sparse 2 3 3 1 kmeans.yaml data.train=rows.svm
parts minibatch 2 4 3 1e9 kmeans.yaml solve.method=minibatch solve.batch=200 report.every=4
parts mf 2 3 "4 ranks.groups=2 ranks.group_size=2" 5e-2 mf.yaml ranks.groups=1
parts mf-adagrad 2 3 3 5e-2 mf.yaml ranks.groups=1 solve.optimizer=adagrad model.bias=yes model.l2_weighted=no
parts mf-groups 4 20 "2 ranks.groups=1" 5e-2 mf.yaml ranks.groups=2 ranks.group_size=2 solve.optimizer=adagrad model.bias=yes
parts als 2 3 3 1e-2 mf.yaml solve.method=als
parts als-implicit 2 3 3 1e-2 mf.yaml solve.method=als model.implicit=yes
parts als-nonnegative 2 3 no 0 mf.yaml solve.method=als model.nonnegative=yes
parts lda 2 5 "4 ranks.groups=2 ranks.group_size=2" 0.3 lda.yaml ranks.groups=1 model.optimize=yes
parts lda-lists 2 5 3 0.5 lda.yaml ranks.groups=1 model.topics=300
parts lda-groups 4 5 "2 ranks.groups=1" 0.3 lda.yaml ranks.groups=2 ranks.group_size=2 model.optimize=yes

exit $bad

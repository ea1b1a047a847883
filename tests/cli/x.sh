#!/bin/sh
# A run that goes on from a checkpoint ends as one that was never stopped, whatever it learns: with the same ranks to the
# last bit, with others about as well.
. "$(dirname "$0")/lib.sh"

$trireme generate ctr -o rows.svm rows=1500 features=200 seed=3 >/dev/null || fail "generate ctr"
$trireme generate dense -o points.csv rows=1500 columns=6 clusters=9 seed=4 >/dev/null || fail "generate dense"
$trireme generate ratings -o ratings.tsv users=300 items=120 ratings=6000 seed=5 >/dev/null || fail "generate ratings"
$trireme generate docword -o bags.txt documents=150 words=300 tokens=6000 seed=6 >/dev/null || fail "generate docword"

cat >descent.yaml <<END
data: {train: [rows.svm]}
model: {type: logistic, bias: yes, dtype: f64}
solve: {method: descent}
END
cat >linear.yaml <<END
data: {train: [rows.svm]}
model: {type: logistic, l2: 0.001}
solve: {batch: 100, epochs: 9}
sync: {mode: bsp}
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
solve: {method: sgd, epochs: 15}
report: {every: 3}
END
cat >lda.yaml <<END
data: {train: [bags.txt]}
model: {type: lda, topics: 20}
solve: {method: gibbs, epochs: 40, optimize_every: 6}
END

# cut FROM TO CHECKPOINT: a run as it stood at that checkpoint: what it wrote after that is gone.
cut() {
    rm -rf "$2" && mkdir -p "$2/checkpoints" && cp -r "$1/checkpoints/$3" "$2/checkpoints" ||
        fail "$1: no checkpoint $3"
}

# same ONE TWO: models, and what they reached
same() {
    grep -q '^continues:' "$2.out" || fail "$2: began anew"
    h5diff --exclude-path /job "$1/model.h5" "$2/model.h5" >differences 2>&1 ||
        fail "$2: other models: $(head -3 differences)"
    [ "$(of "$1" objective)" = "$(of "$2" objective)" ] ||
        fail "$1: $(of "$1" objective), in two parts $(of "$2" objective)"
}

# parts NAME RANKS CLOCKS OTHER DISTANCE JOB SETTING…: in one part and in two, and in two of which the second has other
# ranks («RANKS SETTING…»), whose objective is to be worse by less than
# that; OTHER no: not
parts() {
    name=$1 ranks=$2 clocks=$3 other=$4 distance=$5; shift 5
    run "$name" "$ranks" "$@" checkpoint.every="$clocks clocks" checkpoint.keep=1000 || return
    cut "$name" "$name-two" 00000001
    run "$name-two" "$ranks" "$@" checkpoint.every=no && same "$name" "$name-two"
    [ "$other" != no ] || return
    cut "$name" "$name-other" 00000001
    others=${other%% *} ways=${other#"$others"}
    run "$name-other" "$others" "$@" checkpoint.every=no $ways || return
    grep -q '^continues:' "$name-other.out" || fail "$name: began anew with $other"
    awk -v one="$(of "$name" objective)" -v two="$(of "$name-other" objective)" -v far="$distance" \
        'BEGIN { worse = one < 0 ? one - two : two - one; exit !(two != "" && worse < far) }' ||
        fail "$name: $(of "$name" objective), going on with $other ranks $(of "$name-other" objective)"
}

# ends NAME RANKS JOB SETTING…: of the same, the second part has nothing left but to judge and to save
ends() {
    name=$1 ranks=$2; shift 2
    cut "$name" "$name-end" "$(ls "$name/checkpoints" | grep '^0' | tail -1)"
    run "$name-end" "$ranks" "$@" checkpoint.every=no && same "$name" "$name-end"
}

parts descent 2 3 "3 ranks.layout=dedicated ranks.servers=1" 1e-4 descent.yaml model.l1=0.002 solve.epochs=6 solve.target_gap=1e-12
# a checkpoint of a clock before which priors are fitted


exit $bad

#!/bin/sh
# A run that resumes from a checkpoint ends as one that was not stopped, for all models: on the same ranks to the last
# bit, on others about as well.
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

# grows FOLDER: what workers have counted, over all stages
grows() {
    awk -F, 'NR > 1 { for (i = 7; i <= 16; i++) { if (i != 15 && $i < last[i]) exit 1; last[i] = $i } }' "$1/metrics.csv" ||
        fail "$1: what was counted falls: $(command cut -d, -f2,7-16 "$1/metrics.csv")"
}

# same ONE TWO: models, what they reached, and in how many updates
same() {
    grep -q '^continues:' "$2.out" || fail "$2: began anew"
    h5diff --exclude-path /job "$1/model.h5" "$2/model.h5" >differences 2>&1 ||
        fail "$2: other models: $(head -3 differences)"
    [ "$(of "$1" objective)" = "$(of "$2" objective)" ] ||
        fail "$1: $(of "$1" objective), in two parts $(of "$2" objective)"
    [ "$(of "$1" updates)" = "$(of "$2" updates)" ] || fail "$1: $(of "$1" updates) updates, in two parts $(of "$2" updates)"
    grows "$1" && grows "$2"
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

# a variant of a method that ran on several ranks saves its state in the same way: one process
parts dual 2 4 3 1e-4 linear.yaml solve.method=dual
parts descent 2 3 "3 ranks.layout=dedicated ranks.servers=1" 1e-4 descent.yaml model.l1=0.002 solve.epochs=6 solve.target_gap=1e-12
parts path 1 5 no 0 descent.yaml model.l1=path solve.path=9
parts folds 2 6 3 1e-4 descent.yaml model.l1=path model.l2=0.01 solve.path=4 solve.folds=3
parts descent-auto 3 2 2 1e-4 descent.yaml model.l1=0.002 solve.method=auto solve.epochs=6 solve.target_gap=1e-12
parts dual-file 3 4 no 0 linear.yaml solve.method=dual data.order=file
parts sgd 2 4 no 0 linear.yaml solve.method=sgd solve.rate=0.5
parts sgd-adam 2 4 3 5e-3 linear.yaml solve.method=sgd solve.optimizer=adam solve.rate=0.01 solve.optimizer_at=worker
parts sgd-adagrad 1 4 no 0 linear.yaml solve.method=sgd solve.optimizer=adagrad solve.rate=0.1
parts sgd-vertical 4 4 "3 ranks.groups=1 ranks.group_size=3" 1e-3 linear.yaml solve.method=sgd solve.rate=0.5 data.partition=vertical ranks.group_size=2
parts lloyd 2 3 3 1 kmeans.yaml
parts lloyd-tolerance 1 3 no 0 kmeans.yaml solve.tolerance=1e-3
parts lloyd-replicated 4 3 no 0 kmeans.yaml data.partition=replicated ranks.group_size=2
parts lloyd-sparse 1 3 no 0 kmeans.yaml data.train=rows.svm
parts minibatch 2 4 3 1e9 kmeans.yaml solve.method=minibatch solve.batch=200 report.every=4
parts mf 2 3 "4 ranks.groups=2 ranks.group_size=2" 5e-2 mf.yaml ranks.groups=1
parts mf-adagrad 1 3 no 0 mf.yaml ranks.groups=1 solve.optimizer=adagrad model.bias=yes model.l2_weighted=no
parts mf-groups 4 20 "2 ranks.groups=1" 5e-2 mf.yaml ranks.groups=2 ranks.group_size=2 solve.optimizer=adagrad model.bias=yes
parts als 2 3 3 1e-2 mf.yaml solve.method=als
parts als-implicit 1 3 no 0 mf.yaml solve.method=als model.implicit=yes
parts als-nonnegative 1 3 no 0 mf.yaml solve.method=als model.nonnegative=yes
parts lda 2 5 "4 ranks.groups=2 ranks.group_size=2" 0.3 lda.yaml ranks.groups=1 model.optimize=yes
parts lda-lists 2 5 3 0.5 lda.yaml ranks.groups=1 model.topics=300
parts lda-groups 4 5 no 0 lda.yaml ranks.groups=2 ranks.group_size=2 model.optimize=yes
# a checkpoint of a clock before which priors are fitted
parts lda-servers 5 12 no 0 lda.yaml ranks.layout=dedicated ranks.servers=2 ranks.group_size=1 model.optimize=yes \
    solve.epochs=16 experiment.clock=0.05

ends dual 2 linear.yaml solve.method=dual
ends lloyd 2 kmeans.yaml
ends mf 2 mf.yaml ranks.groups=1
ends als 2 mf.yaml solve.method=als
ends lda 2 lda.yaml ranks.groups=1 model.optimize=yes

#!/bin/sh
# A model class in a shared object: from a job to predictions, checkpoints and trireme run; errors.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"

# build NAME FLAG…: lib NAME.so
build() {
    name=$1; shift
    ${CC:-cc} -std=c17 -O2 -Wall -Wextra -shared -fPIC -I"$tests/../../include" "$@" "$tests/plugin_softmax.c" -o "$name" -lm ||
        fail "$name does not compile"
}
build libsoftmax.so
mkdir jobs data
awk 'BEGIN { srand(5); for (i = 0; i < 900; i++) { k = i % 3; row = k
    for (j = 1; j <= 6; j++) row = row " " j ":" (rand() + (j % 3 == k ? 0.7 : 0)); print row } }' >data/rows.svm
cat >jobs/own.yaml <<END
model: {plugin: ../libsoftmax.so, type: softmax, classes: 3}
solve: {epochs: 60, rate: 3}
data: {train: data/rows.svm}
report: {progress: no, every: 20}
END

# ---- training, on any number of ranks ----
run one 1 jobs/own.yaml
run three 3 jobs/own.yaml
near "$(of one objective)" "$(of three objective)" 1e-9 || fail "the loss depends on ranks: $(of one objective) $(of three objective)"
[ "$(of one rows)" = 900 ] || fail "summary: $(of one rows) rows"
grep -q "plugin: /.*libsoftmax.so" one/job.yaml || fail "job.yaml: $(grep plugin one/job.yaml)"
run again 1 one/job.yaml
near "$(of one objective)" "$(of again objective)" 1e-12 || fail "job.yaml trains another model"
timeout $patience "$trireme" run -n 2 jobs/own.yaml output=watched >said 2>&1 || fail "trireme run: $(cat said)"
[ -e watched/model.h5 ] || fail "trireme run leaves no model"

# ---- stopped, and gone on with ----
timeout $patience "$trireme" train jobs/own.yaml output=parts checkpoint.every="20 clocks" solve.epochs=40 >said 2>&1 || fail "$(cat said)"
[ -e parts/model.h5 ] || fail "no model"

# ---- predictions ----
plugin="--plugin libsoftmax.so"
"$trireme" predict one data/rows.svm $plugin >labels || fail "predict"
[ "$(wc -l <labels)" -eq 900 ] && grep -qE '^[012] 0\.[0-9]+$' labels || fail "predict: $(head -2 labels)"
"$trireme" evaluate one data/rows.svm $plugin >said || fail "evaluate"
awk '/^accuracy/ { exit !($2 > 0.7) }' said || fail "evaluate: $(cat said)"
"$trireme" evaluate one data/rows.svm --json $plugin | grep -q '"model": "softmax", "rows": 900, "accuracy": 0' || fail "evaluate --json"
"$trireme" inspect one/model.h5 $plugin >said 2>err || fail "inspect"
[ ! -s err ] || fail "inspect says $(cat err)"
grep -q '^weights  *7 × 3 f64: a row is a feature' said && grep -q '^classes  *3$' said || fail "inspect: $(cat said)"

# ---- elsewhere, and another version ----
mkdir away && mv libsoftmax.so away/
for command in predict evaluate inspect; do
    rows=data/rows.svm; [ $command != inspect ] || rows=
    refuses "$command without a plugin" 64 "one/model.h5: the model needs its plugin, libsoftmax.so: add --plugin FILE" "$trireme" $command one/model.h5 $rows
done
"$trireme" predict one data/rows.svm --plugin away/libsoftmax.so | cmp -s - labels || fail "--plugin"
build other.so -DANOTHER_BUILD
"$trireme" predict one data/rows.svm --plugin other.so 2>err | cmp -s - labels || fail "--plugin other.so"
grep -qx "warning:       one/model.h5: another version of the plugin other.so trained this model" err || fail "no warning: $(cat err)"
"$trireme" train data.train=data/rows.svm model.type=softmax model.classes=3 output=named --plugin=away/libsoftmax.so >said 2>&1 || fail "train --plugin: $(cat said)"
timeout $patience "$trireme" run -n 2 data.train=data/rows.svm model.type=softmax model.classes=3 output=ran --plugin away/libsoftmax.so >said 2>&1 || fail "run --plugin: $(cat said)"
"$trireme" sweep data.train=data/rows.svm solve.rate=1,3 solve.epochs=5 model.type=softmax model.classes=3 output=swept --folds 2 --plugin away/libsoftmax.so >said 2>&1 || fail "sweep --plugin: $(cat said)"
refuses "no file behind --plugin" 64 "--plugin: expected FILE" "$trireme" train data.train=data/rows.svm --plugin

# ---- what is refused ----
build abi.so -DOTHER_ABI
build none.so -DNO_SYMBOL
build twice.so -DTWICE
build kind.so -DNO_KIND
build field.so -DFIELD_TWICE
build one.so -DFAIL_ON_ONE
job="jobs/own.yaml output=no"
refuses "a plugin that is missing" 66 "jobs/own.yaml:1: model.plugin " "$trireme" train $job
abi=$(sed -n 's/^enum { TR_MODEL_ABI = \([0-9]*\) };/\1/p' "$tests/../../include/trireme/model.h")
refuses "another version" 66 "abi.so: it is for version $((abi + 1)) of trireme/model.h, this is version $abi" "$trireme" train $job model.plugin=abi.so
refuses "no symbol" 66 "none.so: it has no tr_plugin" "$trireme" train $job model.plugin=none.so
refuses "an option twice" 78 "twice.so: option model.classes is listed twice" "$trireme" train $job model.plugin=twice.so
refuses "an option without a kind" 78 "kind.so: option model.more has no kind" "$trireme" train $job model.plugin=kind.so
refuses "a field twice" 78 "model.plugin: field loss is listed twice" "$trireme" train $job model.plugin=field.so
refuses "one rank" 78 "one rank does not like it" on 3 "$trireme" train $job model.plugin=one.so
refuses "another key" 78 "command line: model.clusters is for kmeans, and model.type is softmax" "$trireme" train $job model.plugin=away/libsoftmax.so model.clusters=3

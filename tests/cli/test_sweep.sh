#!/bin/sh
# Sweeps: each combination of settings on each fold, then the best one on all rows; they resume when killed, and
# settings may fail.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o rows.svm rows=3000 features=400 nonzeros=10 >out 2>&1 || fail "generate: $(cat out)"
# sweep RANKS WORD…: what it says is in said
sweep() {
    ranks=$1; shift
    on "$ranks" "$trireme" sweep "$@" >said 2>&1
}
table() { grep '^s[0-9]* .*=' said | sed 's/  *[0-9.:]* \(s\|min\) / /'; } # without times
best() { sed -n 's/.*  \(.*\)  <- best$/\1/p' said; }

# ---- a grid: two settings, three folds that are all the rows ----
words="data.train=rows.svm model.l2=1e-4..1e-2:log3 model.type=logistic,l2svm sync.mode=bsp"
# shellcheck disable=SC2086 # words on purpose, here and below
{
    sweep 1 $words output=one || fail "on one rank: $(cat said)"
    [ "$(table | wc -l)" -eq 6 ] && [ "$(table | grep -c '<- best')" -eq 1 ] || fail "table: $(cat said)"
    table | grep -q 'model.l2=0.001 model.type=l2svm' || fail "the middle of a range: $(table)"
    table >alone
    [ "$(grep -c '^rows: *3000 of training data, read once for 24 tasks' said)" -eq 1 ] && ! grep 'data: .* read in' said ||
        fail "three folds of six settings are read more than once: $(grep 'read' said)"
    grep -q '^s6-3: training data: 19.* rows of task s1-1' said || fail "who shares rows with whom is not said: $(grep s6-3: said)"
    settings=$(best)
    sweep 3 $words output=three || fail "on three ranks: $(cat said)"
    [ "$(best)" = "$settings" ] || fail "the best of one rank is $settings, of three $(best)"
}
rows() { sed -n "s/^$1: $2 data: *\([0-9]*\) .*/\1/p" said; }
for part in training test; do
    sum=0
    for fold in 1 2 3; do sum=$((sum + $(rows "s1-$fold" $part))); done
    case $part in training) expected=6000 ;; *) expected=3000 ;; esac
    [ $sum -eq $expected ] || fail "folds: $sum rows of $part data, expected $expected"
done
# shellcheck disable=SC2086
run straight 3 data.train=rows.svm sync.mode=bsp $settings
cmp -s straight/model.txt three/best/model.txt || fail "the best model is not that of a job with its settings"
"$trireme" predict straight rows.svm >predicted
"$trireme" predict three rows.svm | cmp -s - predicted || fail "predict from the folder of a sweep"

# ---- killed in the middle, it goes on, and comes to the same ----
# shellcheck disable=SC2086
{
    "$trireme" sweep $words output=killed >said 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        [ -e killed/s3-1/model.h5 ] && break
        sleep 0.1
    done
    kill -9 $pid
    wait $pid 2>/dev/null
    sweep 1 $words output=killed || fail "goes on: $(cat said)"
}
grep -q '^continues: .* tasks are done' said || fail "begins anew: $(cat said)"
table | cmp -s - alone || fail "killed: another table: $(table)"
cmp -s killed/best/model.txt one/best/model.txt || fail "killed: another model"

# so it does when one of four ranks is killed, in the first round of tasks and once more behind it
# shellcheck disable=SC2086
if TRIREME_FAULT=load=exit=9:1 "$trireme" train data.train=rows.svm output=no >/dev/null 2>&1; then
    skip "a rank that is killed: built without faults"
else
    sweep 4 $words output=four || fail "on four ranks: $(cat said)"
    table >whole
    for visit in 1 3; do
        export TRIREME_FAULT="stage.end=kill:#$visit" # whoever is the first to end so many tasks
        sweep 4 $words output=struck && fail "struck at $visit: it ended well"
        unset TRIREME_FAULT
        [ ! -e struck/best/model.h5 ] || fail "struck at $visit: there is a best one"
    done
    sweep 4 $words output=struck || fail "struck: does not go on: $(cat said)"
    grep -qE '^continues: +[1-9][0-9]* of 24 tasks are done' said || fail "struck: begins anew: $(grep continues said)"
    table | cmp -s - whole || fail "struck: another table: $(table)"
    cmp -s struck/best/model.txt four/best/model.txt || fail "struck: another model"
    run plain 4 data.train=rows.svm sync.mode=bsp $(best)
    cmp -s plain/model.txt struck/best/model.txt || fail "struck: the model is not that of a job with its settings"
fi

# ---- by halving: five settings, three of them for twice as many epochs, two for four times as many; killed, it goes on ----
words="data.train=rows.svm solve.method=sgd solve.rate=1e30,0.1,0.5,0.3,0.2 --folds 4 --halving 1"
# shellcheck disable=SC2086
sweep 2 $words output=halved || fail "halving: $(cat said)"
trained=
for i in 1 2 3 4 5; do
    for round in 1 2 3; do [ ! -e halved/s$i-$round/model.h5 ] || trained="$trained s$i-$round:$(of halved/s$i-$round epochs)"; done
done
[ "$(echo "$trained" | tr ' ' '\n' | sed 's/s[2-5]-//' | sort | uniq -c | tr -s ' \n' ' ')" = " 1 4 1:1 3 2:2 2 3:4 " ] ||
    fail "halving trains $trained, expected four for an epoch, three for two, two for four"
settings=$(best)
[ "$(table | grep -c 'given up')" -eq 3 ] || fail "halving: $(cat said)"
rm -r halved/s?-3 halved/best && sed -i 's/"state": "done"/"state": "training"/' halved/status.json
# shellcheck disable=SC2086
sweep 2 $words output=halved || fail "halving, once more: $(cat said)"
[ "$(grep -c '^s[2-5]-[0-9]: output' said)" -eq 2 ] && [ "$(best)" = "$settings" ] && [ -e halved/best/model.h5 ] ||
    fail "halving goes on: $(cat said)"
sweep 1 data.train=rows.svm solve.method=sgd solve.rate=1e30,1e31,1e32 --halving 1 output=none
[ $? -eq 76 ] || fail "halving of what fails: $(cat said)"

# ---- what fails does not keep the others from it; if all do, that is an error ----
sweep 1 data.train=rows.svm solve.method=sgd solve.rate=1e30,0.5 solve.epochs=3 --folds 2 output=fails || fail "one rate of two: $(cat said)"
table | grep -q '^s1 .*failed.*solve.rate=1e30' && [ "$(best)" = solve.rate=0.5 ] || fail "one rate of two: $(cat said)"
sweep 1 data.train=rows.svm solve.method=sgd solve.rate=1e30,1e31 --folds 2 output=all
[ $? -eq 76 ] || fail "both rates: $(cat said)"

# ---- by data.test, and in a job file ----
sweep 1 data.train=rows.svm data.test=rows.svm model.l2=1,1e-3 --folds 0 output=tested || fail "by data.test: $(cat said)"
[ "$(best)" = model.l2=1e-3 ] || fail "by data.test: $(cat said)"
cat >job.yaml <<'END'
data: {train: rows.svm, test: 20%}
tasks:
  weak: {model.l2: 1}
  strong: {model.l2: 0.001}
  this: {run: best, after: weak, model.l2: 1}
  that: {run: best, after: strong, model.l2: 0.001, data.test: fold 1/4}
END
"$trireme" train job.yaml output=file >said 2>&1 || fail "a job file: $(cat said)"
grep -q '^that .*<- best' said && grep -q '"l2": 0.001' file/best/summary.json || fail "a job file: $(cat said)"

# ---- bad input ----
refuses "best after nothing" 78 "best needs run: train and exactly one task" "$trireme" train data.train=rows.svm tasks.a.best=2 output=no
refuses "no values" 64 'no setting has several values' "$trireme" sweep data.train=rows.svm model.l2=1
refuses "one fold" 64 'one fold' "$trireme" sweep data.train=rows.svm model.l2=1,2 --folds 1
refuses "a range" 64 'FROM..TO:logN' "$trireme" sweep data.train=rows.svm model.l2=0..1:log5
refuses "a range, said by one of three ranks" 64 'FROM..TO:logN' on 3 "$trireme" sweep data.train=rows.svm model.l2=0..1:log5
for command in sweep train; do
    said=$(on 3 "$trireme" $command --help | grep -c "trireme $command .*JOB.yaml")
    [ "$said" -eq "$("$trireme" $command --help | grep -c "trireme $command .*JOB.yaml")" ] || fail "$command --help of three ranks says it $said times"
done
refuses "an empty value" 64 'a value is missing' "$trireme" sweep data.train=rows.svm model.l2=1,,2
refuses "too many" 64 'more than 1024 tasks' "$trireme" sweep data.train=rows.svm model.l2=1..2:lin999
printf '# a line is a combination\nmodel.l2=1 model.type=logistic\n\n  model.l2=1e-3\tmodel.type=l2svm\n' >list
sweep 1 data.train=rows.svm --list list --folds 2 output=listed || fail "a list: $(cat said)"
[ "$(table | wc -l)" -eq 2 ] && [ "$(best)" = "model.l2=1e-3 model.type=l2svm" ] || fail "a list: $(table)"
refuses "no list" 66 'nowhere: No such file' "$trireme" sweep data.train=rows.svm --list nowhere
echo 'model.l2 1' >wrong
refuses "a list" 64 'wrong:1: «model.l2»: expected KEY=VALUE' "$trireme" sweep data.train=rows.svm --list wrong
head -n 4 rows.svm >few
sweep 1 data.train=few model.l2=1,2 --folds 5 output=folds
[ $? -eq 66 ] && grep -q 'fold [1-5]/5 leaves no record to test with' said || fail "more folds than rows: $(cat said)"
refuses "unknown" 78 'solve.epoch' "$trireme" sweep data.train=rows.svm solve.epoch=1,2
refuses "no test data" 78 'no data.test to be compared by' "$trireme" sweep data.train=rows.svm model.l2=1,2 --folds 0
refuses "a fold" 78 'fold 2/5' "$trireme" train data.train=rows.svm data.test="fold 3/2"

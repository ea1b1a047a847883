#!/bin/sh
# Jobs of several tasks, in order and at once, on any number of ranks; failures, errors, output; the mean of several
# models.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { srand(5); for (i = 0; i < 2500; i++) { m = 0; row = "";
    for (j = 1; j <= 8; j++) { x = int(rand() * 1000) / 1000 - 0.3; m += x * (j - 4); row = row " " j ":" x }
    file = i < 2000 ? "train" : "test"
    print (m + 3 * (rand() - 0.5) > 1 ? 1 : -1) row > file; print m + rand() row > file ".real" } }'

# task FOLDER TASK MEMBER: of a task in summary.json
task() { sed -n "s/^    {\"name\": \"$2\".*\"$3\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$1/summary.json"; }
# begun TASK: the line of $into.out in which it begins
begun() { grep -n "^$1: layout:" "$into.out" | cut -d: -f1; }
ended() { grep -n "^$1: output:" "$into.out" | cut -d: -f1; }
follows() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 > b + 0) }' || fail "$3"; }

# ---- the mean of two models: figures as predictions have them ----

# figures LOGISTIC LABELLED PREDICTIONS…: accuracy, area, log loss of the mean of the predictions
figures() {
    logistic=$1 labelled=$2
    shift 2
    paste -d ' ' "$@" >columns
    cut -d ' ' -f 1 "$labelled" | paste -d ' ' - columns | awk -v logistic="$logistic" '
        { y = $1 > 0; s = 0; for (i = 2; i <= NF; i++) s += $i / (NF - 1)
          right += (s > (logistic ? 0.5 : 0)) == y; loss -= logistic ? log(y ? s : 1 - s) : 0
          score[NR] = s; label[NR] = y }
        END { for (i = 1; i <= NR; i++) for (j = 1; j <= NR; j++) if (label[i] && !label[j]) {
                  pairs++; area += score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0 }
              print right / NR, area / pairs, loss / NR }'
}
# agrees FOLDER ACCURACY AREA LOSS
agrees() {
    near "$(of "$1" test_accuracy)" "$2" 1e-6 || fail "$1: accuracy $(of "$1" test_accuracy), awk finds $2"
    near "$(of "$1" test_auc)" "$3" 1e-6 || fail "$1: area $(of "$1" test_auc), awk finds $3"
    [ "$4" = 0 ] || near "$(of "$1" test_log_loss)" "$4" 1e-5 || fail "$1: log loss $(of "$1" test_log_loss), awk finds $4"
}

cat >job.yaml <<'END'
data: {train: train, test: test}
solve: {method: dual, epochs: 4, target_gap: 0}
tasks:
  one: {ranks: 2, sync.mode: bsp}
  two: {ranks: 2, solve.method: sgd, solve.epochs: 2, seed: 3}
  mean: {run: average, after: [one, two]}
END
for ranks in 1 2 4; do
    into=mean$ranks
    run $into $ranks job.yaml || continue
    for task in one two; do "$trireme" predict $into/$task test --probability >$task.$ranks; done
    # shellcheck disable=SC2046 # three words
    agrees $into/mean $(figures 1 test one.$ranks two.$ranks)
    is "$into: all ended" "$(task $into one state) $(task $into two state) $(task $into mean state)" "done done done"
    is "$into: ranks of the mean" "$(task $into mean ranks)" $ranks
    follows "$(begun mean)" "$(ended one)" "$into: the mean begins before one has ended"
    follows "$(begun mean)" "$(ended two)" "$into: the mean begins before two has ended"
    is "$into: files" "$(ls $into | tr '\n' ' ')" "job.yaml mean one status.json summary.json two "
    is "$into/one: files" "$(ls $into/one | grep -vxe ranks.json -e log | tr '\n' ' ')" \
        "job.yaml metrics.csv model.h5 model.txt status.json summary.json "
    grep -q '"state": "done"' $into/status.json && grep -q '"status": 0' $into/status.json || fail "$into: status.json"
    is "$into/two: epochs" "$(of $into/two epochs)" 2
    is "$into/one: epochs" "$(of $into/one epochs)" 4
    grep -q "^mean *$ranks .* done" $into.out || fail "$into: no table of tasks"
    holds "$into: each model of the mean" "$(grep -c '"task": ' $into/mean/summary.json) == 2"
done
is "mean1: ranks of one" "$(task mean1 one ranks)" 1
grep -q "note: *task one could have 2 ranks, the job has 1" mean1.out || fail "fewer ranks than wished for: not said"

# a task is what a job of its own on as many ranks is
printf 'data: {train: train, test: test}\nsolve: {method: dual, epochs: 4, target_gap: 0}\nsync: {mode: bsp}\n' >plain.yaml
run plain 2 plain.yaml && { cmp -s plain/model.txt mean4/one/model.txt || fail "task one differs from the same job alone"; }

# margins, since one loss has no probabilities; with members that hold other features; and a model that knows fewer
cut -d ' ' -f 1-6 train >few
for setting in "ranks.groups=2 ranks.group_size=1" "ranks.group_size=2 data.partition=vertical"; do
    into=margins
    rm -rf $into
    # shellcheck disable=SC2086 # words
    run $into 2 job.yaml tasks.two.model.type=l2svm tasks.one.solve.method=sgd tasks.one.data.train=few $setting || continue
    for task in one two; do "$trireme" predict $into/$task test --margin 2>/dev/null >$task.margin; done
    # shellcheck disable=SC2046
    agrees $into/mean $(figures 0 test one.margin two.margin)
    is "$into: no log loss" "$(of $into/mean test_log_loss)" ""
done
into=real
run $into 2 job.yaml model.type=linear data.train=train.real data.test=test.real && {
    for task in one two; do "$trireme" predict $into/$task test.real >$task.real; done
    expected=$(cut -d ' ' -f 1 test.real | paste -d ' ' - one.real two.real |
        awk '{ e = ($2 + $3) / 2 - $1; s += e * e } END { print sqrt(s / NR) }')
    near "$(of real/mean test_rmse)" "$expected" 1e-5 || fail "real: rmse $(of real/mean test_rmse), awk finds $expected"
}

# ---- order: what is worth most first; a chain ----
cat >order.yaml <<'END'
data: {train: train}
solve: {method: dual, epochs: 1, target_gap: 0}
tasks:
  low: {priority: -1}
  high: {priority: 5}
  last: {after: middle, priority: 9}
  middle: {after: [low, high]}
END
into=order
run $into 2 order.yaml && {
    follows "$(begun low)" "$(ended high)" "low begins before high"
    follows "$(begun middle)" "$(ended low)" "middle begins before low has ended"
    follows "$(begun last)" "$(ended middle)" "last begins before middle has ended"
}

# ---- tasks that begin with the model of another: topics become centres, centres stay ----
awk 'BEGIN { srand(3); for (d = 1; d <= 120; d++) { k = d % 4; for (i = 0; i < 30; i++) c[d, 10 * k + 1 + int(rand() * 10)]++
    row = k; for (w = 1; w <= 40; w++) if (c[d, w]) { row = row " " w ":" c[d, w]; n++; bag = bag d " " w " " c[d, w] "\n" } print row >"bag.svm" }
    printf "120\n40\n%d\n%s", n, bag >"bag" }'
cat >pipeline.yaml <<'END'
data: {train: bag.svm}
tasks:
  clusters: {model.type: kmeans, model.clusters: 4, model.init: task topics}
  again: {model.type: kmeans, model.clusters: 4, model.init: task clusters, data.features: 41}
  topics: {model.type: lda, model.topics: 4, data.train: bag, solve.epochs: 50}
  weights: {solve.method: newton, model.init: task first, solve.target_gap: 0.1}
  first: {solve.method: newton, solve.target_gap: 1e-6}
END
for ranks in 1 3; do
    into=pipeline$ranks
    run $into $ranks pipeline.yaml || continue
    follows "$(begun clusters)" "$(ended topics)" "$into: clusters begins before topics has ended"
    follows "$(begun again)" "$(ended clusters)" "$into: again begins before clusters has ended"
    cut -d ' ' -f 1 bag.svm >of
    "$trireme" predict $into/clusters bag.svm | paste -d ' ' of - | sort -u >pairs
    "$trireme" predict $into/topics bag | sed 's/:.*//' | paste -d ' ' of - | sort | uniq -c | sort -rn | head -4 | awk '{ print $2, $3 }' | sort |
        cmp -s - pairs || fail "$into: documents of a topic are not those of the centre of its number: $(cat pairs)"
    is "$into: inertia of a model that begins where another ended" "$(sed -n 2p $into/again/metrics.csv | cut -d, -f 4)" \
        "$(tail -n 1 $into/clusters/metrics.csv | cut -d, -f 4)"
    holds "$into: epochs of weights that are found already" "$(of $into/weights epochs) < $(of $into/first epochs) / 4"
    grep -q "^weights: begins with: .* $into/first$" $into.out || fail "$into: weights: what it begins with is not said"
done
starts() { words=$1 code=$2; shift 2; rm -rf starts; refuses "$*" $code "$words" "$trireme" train pipeline.yaml output=starts "$@"; }
starts 'tasks wait for each other: clusters -> topics -> again -> clusters' 78 tasks.topics.after=again
starts 'task clusters starts with the model of topic, which is no task' 78 tasks.clusters.model.init='task topic'
starts 'task clusters is to run after itself' 78 tasks.clusters.model.init='task clusters'
starts 'solve.start has no effect, because model.init has the initial centres' 78 tasks.again.solve.start=random
# ends WORDS SETTING: the job fails in task again, and says it once
ends() {
    rm -rf ends
    "$trireme" train pipeline.yaml output=ends "$2" >said 2>&1
    is "$2: exit code" $? 65
    is "$2: said" "$(grep '^trireme: error: task again: .*' said | grep -c "$1")" 1
}
ends 'has 4 centres: expected model.clusters, 3' tasks.again.model.clusters=3
ends 'which has no centres' tasks.again.model.init='task first'

# ---- a task that fails ----
cat >fails.yaml <<'END'
data: {train: train, test: test}
solve: {method: dual, epochs: 2, target_gap: 0}
tasks:
  good: {ranks: 1}
  bad: {ranks: 1, data.train: missing}
  next: {ranks: 1, after: bad}
  mean: {run: average, after: [good, next]}
  other: {ranks: 1, after: good}
END
for ranks in 1 3; do
    on $ranks "$trireme" train fails.yaml output=fails$ranks >said 2>&1
    is "fails: exit code" $? 66
    is "fails: errors" "$(grep '^trireme: error' said)" "trireme: error: task bad: missing: no such file"
    grep -q '^trireme: task next is not run: it comes after bad, which failed$' said || fail "next is not named"
    grep -q '^trireme: task mean is not run: it comes after next, which was not run$' said || fail "mean is not named"
    is "fails: states" "$(for t in good bad next mean other; do task fails$ranks $t state; done | tr '\n' ' ')" \
        "done failed not run not run done "
    grep -q '"error": "task bad: missing: no such file"' fails$ranks/status.json || fail "fails: no error in status.json"
    grep -q '"status": 66' fails$ranks/bad/status.json || fail "fails: the status of the task itself"
    [ ! -e fails$ranks/next ] || fail "a task that is not run has a folder"
done

# ---- what is refused before anything runs ----
refused 78 'tasks wait for each other: one -> mean -> one' tasks.one.after=mean
refuse() { words=$1; shift; expect 78 "$words" train job.yaml output=no "$@"; }
refuse 'write the same output' tasks.two.output=no/one
refuse 'ranks.node_size of task one: it is the same for the whole job' tasks.one.ranks.node_size=1
refuse 'task mean: predictions of clusters' tasks.one.model.type=kmeans tasks.one.solve.method=lloyd
refuse 'task mean: classifiers and regression have no mean' tasks.two.model.type=linear
refuse 'task two is an average, and leaves no model' tasks.two.run=average tasks.two.after=one
sed 's/, test: test//' job.yaml >untested.yaml
timeout $patience "$trireme" train untested.yaml output=no >said 2>&1
is "no test data: exit code" $? 78
is "no test data" "$(cat said)" \
    "trireme: error: untested.yaml:6: task mean evaluates on data.test, which names no files"
[ ! -e no ] || fail "a job that was refused has made its folder"

# ---- stopped from outside: the folders of the job and of its tasks say so ----
# the ranks are told by themselves, as a batch system tells them: mpirun kills them so soon that it is a race
on 2 "$trireme" train job.yaml output=ended tasks.one.ranks=1 tasks.two.ranks=1 \
    solve.epochs=10000000 tasks.two.solve.epochs=10000000 tasks.two.solve.rate=0.1 >said 2>&1 &
launcher=$!
tries=0
until grep -qs training ended/one/status.json && grep -qs training ended/two/status.json; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || break
    sleep 0.1
done
# shellcheck disable=SC2046 # two numbers
kill -TERM $(number pid <ended/one/status.json) $(number pid <ended/two/status.json)
wait $launcher
for folder in ended ended/one ended/two; do
    grep -q '"state": "stopped"' $folder/status.json && grep -q '"status": 75' $folder/status.json ||
        fail "$folder/status.json after SIGTERM: $(cat $folder/status.json)"
done

# ---- the job of the folder jobs ----
if [ -r "$data/a9a/a9a.gz" ]; then
    mkdir datasets && ln -s "$data/a9a" datasets/a9a
    for ranks in 1 3 6; do
        into=ensemble$ranks
        run $into $ranks "$jobs/ensemble.yaml" tasks.plain.report.every=50 || continue
        holds "$into: accuracy" "$(of $into/mean test_accuracy) > 0.848"
        [ "$(grep -c '^rows: *32561 of training data and 16281 of test data, read once for 3 tasks' $into.out)" -eq 1 ] &&
            ! grep 'data: .* read in' $into.out || fail "$into: rows are read more than once: $(grep -e rows: -e data: $into.out)"
        holds "$into: area" "$(of $into/mean test_auc) > 0.901"
        is "$into: ranks of plain" "$(task $into plain ranks)" $((ranks < 4 ? ranks : 4))
    done
    for task in plain sparse; do "$trireme" predict ensemble6/$task datasets/a9a/a9a.t.gz --probability >$task.a9a; done
    gzip -dc datasets/a9a/a9a.t.gz | cut -d ' ' -f 1 | paste -d ' ' - plain.a9a sparse.a9a |
        awk '{ r += (($2 + $3) / 2 > 0.5) == ($1 > 0) } END { printf "%.9f\n", r / NR }' >expected
    near "$(of ensemble6/mean test_accuracy)" "$(cat expected)" 1e-6 || fail "ensemble6: accuracy, awk finds $(cat expected)"
else
    skip "jobs/ensemble.yaml: no \$TRIREME_DATA/a9a"
fi

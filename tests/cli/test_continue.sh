#!/bin/sh
# Parts of the data that are held out; training that ends when the metric no longer improves; more epochs for a
# complete run.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o rows.svm rows=2000 features=300 >out 2>&1 || fail "generate: $(cat out)"
"$trireme" generate ratings -o rated.tsv users=100 items=50 ratings=1200 >out 2>&1 || fail "generate: $(cat out)"
"$trireme" generate dense -o dense.csv rows=1000 columns=4 clusters=3 >out 2>&1 || fail "generate: $(cat out)"

# data.test: 10%
echo 'data: {test: 10%}' >job.yaml
echo 'seed: 1' >all.yaml
records() { sed -n "s/^$2 data: *\([0-9]*\) .* \([0-9]*\) \(ratings\|non-zeros\|numbers\),.*/\1 \2/p" "$1.out"; }
for kind in "rows.svm solve.method=sgd" "rated.tsv model.type=mf" "dense.csv model.type=kmeans model.clusters=3"; do
    set -- $kind; file=$1; shift
    for ranks in 1 3; do
        run part $ranks job.yaml data.train=$file solve.epochs=2 "$@"
        parts="$(records part training) $(records part test)"
        [ $ranks -gt 1 ] || alone=$parts
        [ "$parts" = "$alone" ] || fail "$file: by $ranks ranks «$parts», by one «$alone»"
    done
    run whole 1 all.yaml data.train=$file solve.epochs=2 "$@"
    holds "$file is divided: $alone of $(records whole training)" \
        "$(echo "$alone $(records whole training)" | awk '{ print ($2 + $4 == $6 && $4 > 0.07 * $6 && $4 < 0.13 * $6) }')"
done
refuses "no share" 78 'above 0% and below 100%' "$trireme" train job.yaml data.train=rows.svm data.test=100%
refused 66 'leaves no record to test with' data.train=rows.svm data.test=0.0001%

# solve.patience: the best evaluation is what the model is, and the last but so many
# column FOLDER N: of metrics.csv
column() { sed 1d "$1/metrics.csv" | cut -d, -f"$2"; }
# is_best FOLDER PATIENCE SORT: the metric that is best by sort is the last one, and was so many evaluations before that
is_best() {
    metric=$(column "$1" 6 | sort "$3" | head -1) rows=$(column "$1" 6 | wc -l)
    [ "$metric" = "$(column "$1" 6 | tail -1)" ] || fail "$1: the last metric is not the best, $metric: $(column "$1" 6)"
    [ "$(of "$1" best_epoch)" = "$(column "$1" 2 | tail -1)" ] || fail "$1: best_epoch is $(of "$1" best_epoch)"
    first=$(column "$1" 6 | grep -n "^$metric\$" | head -1 | cut -d: -f1)
    [ "$rows" -eq $((first + $2 + 1)) ] || fail "$1: stopped at $rows, the best is $first: $(column "$1" 6)"
}
"$trireme" generate ctr -o noisy.svm rows=600 features=300 nonzeros=10 >out 2>&1 || fail "generate: $(cat out)"
steps="model.bias=no data.train=noisy.svm data.test=30% solve.method=sgd solve.rate=20 solve.epochs=60 solve.patience=5 report.metric=accuracy"
run_all 3 job.yaml <<END
every $steps report.every=1
hash $steps table.storage=hash
adagrad $steps solve.optimizer=adagrad solve.rate=2
patient $steps sync.mode=ssp
END
steps="job.yaml $steps"
# shellcheck disable=SC2086
{
    run worker 3 $steps ranks.servers=1 solve.optimizer=momentum solve.optimizer_at=worker solve.rate=2
    run alone 1 $steps
}
for name in every hash adagrad worker alone; do is_best $name 5 -gr; done
holds "under SSP it is no other: $(column patient 6)" "($(column patient 6 | tail -1) - $(of patient test_accuracy))^2 < 1e-20"
run rated 2 job.yaml data.train=rated.tsv model.type=mf model.l2=0 model.rank=20 solve.epochs=100 solve.patience=2 &&
    is_best rated 2 -g
refuses "no test data" 78 'solve.patience needs data.test' "$trireme" train all.yaml data.train=rows.svm solve.patience=2
refused 78 'solve.patience is of no use' data.train=rows.svm solve.method=svrg solve.patience=2
refused 78 'solve.patience is of no use' data.train=rows.svm solve.method=newton solve.patience=2
run patient 2 job.yaml data.train=noisy.svm data.test=30% solve.patience=2 # auto: by a method that can go back

# … which is not refused for its objective, as one that is stopped in full flight
awk 'BEGIN {
    srand(1)
    for (i = 0; i < 600; i++) {
        printf "%d", class = int(3 * rand())
        for (j = 0; j < 30; j++) printf " %d:%.4f", j + 1, (j % 3 == class) + 7 * (rand() + rand() - 1)
        print ""
    }
}' >three.svm
run flying 1 job.yaml data.train=three.svm data.test=30% solve.method=dual model.l2=1e-6 solve.patience=2
grep -q '^warning: .*a larger solve.patience may help' flying.out || fail "a poor objective is not told: $(cat flying.out)"
mkdir here && cp rows.svm here && printf '{\n  "state": "done"\n}\n' >here/status.json # as an earlier run's
refused 78 'in the folder of this run' data.train=here/rows.svm output=here
refused 78 'in the folder of this run' data.train=rows.svm "data.test=here/*.svm" output=here/
[ -f here/rows.svm ] && [ ! -e here.1 ] || fail "data in the folder of the run have been moved away"

# … killed behind the best, it goes on with it
# shellcheck disable=SC2086
{
    run whole 2 $steps
    for clock in 60 90; do
        TRIREME_FAULT=clock@1:#$clock,clock=delay=5:1 on 2 "$trireme" train $steps output=parts \
            "checkpoint.every=3 clocks" >parts.out 2>&1 && fail "killed at clock $clock, it ends well"
    done
    run parts 2 $steps "checkpoint.every=3 clocks"
}
grep -q '^continues: ' parts.out || fail "it does not go on: $(cat parts.out)"
cmp -s whole/model.txt parts/model.txt || fail "killed, it comes to another model"
cut -d, -f2-6 whole/metrics.csv >left; cut -d, -f2-6 parts/metrics.csv >right
cmp -s left right || fail "killed, it comes to other metrics: $(diff left right | head -3)"

# ---- more epochs of a run that is complete ----
longer="all.yaml data.train=rows.svm solve.method=sgd solve.batch=50 solve.rate=0.5"
# shellcheck disable=SC2086
{
    run more 2 $longer solve.epochs=4 "checkpoint.every=10 clocks"
    run more 2 $longer solve.epochs=9 "checkpoint.every=10 clocks"
    grep -q '^continues: ' more.out || fail "with more epochs it does not go on: $(cat more.out)"
    run once 2 $longer solve.epochs=9
    run again 3 $longer solve.epochs=4
    run again 3 $longer solve.epochs=4 && [ -e again.1/model.h5 ] || fail "the same job once more does not keep the first"
    run more 2 $longer solve.epochs=9 "checkpoint.every=10 clocks"
}
cmp -s once/model.txt more.1/model.txt || fail "in two parts it comes to another model"
cut -d, -f2-6 once/metrics.csv >left; cut -d, -f2-6 more.1/metrics.csv >right
cmp -s left right || fail "in two parts it comes to other metrics: $(diff left right | head -3)"
! grep -q '^continues: ' more.out || fail "with as many epochs it goes on"
# … evaluated more or less often than before
# shellcheck disable=SC2086
for every in "1 3" "3 1"; do
    set -- $every
    TRIREME_FAULT=clock@1:#180,clock=delay=5:1 on 2 "$trireme" train $longer solve.epochs=10 \
        report.every=$1 "checkpoint.every=3 clocks" output=often --fresh >often.out 2>&1 && fail "killed, it ends well"
    run often 2 $longer solve.epochs=10 report.every=$2 "checkpoint.every=3 clocks"
    from=$(sed -n 's/^continues: .* at epoch \([0-9.]*\) .*/\1/p' often.out)
    [ "$from" ] || fail "it does not go on: $(cat often.out)"
    seq 10 | awk -v from="$from" -v before="$1" -v then="$2" '$1 == 10 || ($1 <= from && $1 % before == 0) || ($1 > from && $1 % then == 0)' >left
    column often 2 >right
    cmp -s left right || fail "report.every $1, from epoch $from on $2: evaluated at $(tr '\n' ' ' <right)"
done
# … and not with other data
# shellcheck disable=SC2086
cp rows.svm moved.svm
run moved 2 $longer data.train=moved.svm solve.epochs=4 "checkpoint.every=10 clocks"
tac rows.svm >moved.svm
refuses "other data" 65 "the files have changed since checkpoint" on 2 "$trireme" train $longer data.train=moved.svm \
    solve.epochs=9 output=moved "checkpoint.every=10 clocks" report.progress=no
cp rows.svm moved.svm
run moved 2 $longer data.train=moved.svm solve.epochs=9 "checkpoint.every=10 clocks"
cmp -s once/model.txt moved/model.txt || fail "written anew, the same data come to another model"

# ---- solve.rate auto: whatever the optimizer and the size of the numbers, sgd comes near to the optimum in ten epochs ----
awk 'BEGIN { srand(3); for (i = 0; i < 3000; i++) { m = 0; row = "";
    for (j = 1; j <= 10; j++) { x = int(rand() * 1000) / 1000 - 0.4; m += x * (j - 5); row = row " " j ":" x * 300 }
    print (m + 2 * (rand() - 0.5) > 0.3 ? 1 : -1) row } }' >large.svm
awk 'BEGIN { srand(4) } { n = split($0, f, /[ :]/); y = 7000 + 5e4 * rand(); for (i = 2; i < n; i += 2) y += f[i] * f[i + 1]; sub(/^[^ ]*/, y); print }' large.svm >far.svm
lines() { # OPTIMIZER…: of both types
    for type in logistic linear; do
        [ $type = logistic ] && words="data.train=large.svm data.scale=none" || words="data.train=far.svm data.scale=standard"
        words="model.type=$type model.bias=yes $words"
        for optimizer; do
            case $optimizer in
            optimum) echo "optimum-$type $words solve.method=newton solve.epochs=50" ;;
            *) echo "$optimizer-$type $words solve.method=sgd solve.epochs=10 solve.optimizer=$optimizer" ;;
            esac
        done
    done
}
run_all 1 all.yaml <<END
$(lines optimum momentum adagrad adadelta rmsprop ftrl)
END
run_all 2 all.yaml <<END
$(lines sgd nesterov adam)
END
for type in logistic linear; do
    for optimizer in sgd momentum nesterov adagrad adadelta rmsprop adam ftrl; do
        says $optimizer-$type.out '^rate: '
        holds "$type by $optimizer: $(of $optimizer-$type objective), the optimum is $(of optimum-$type objective)" \
            "$(of $optimizer-$type objective) < 1.1 * $(of optimum-$type objective)"
    done
done

# … which a run keeps that goes on, on other ranks too
# shellcheck disable=SC2086
for way in solve.optimizer=sgd solve.optimizer=adam "solve.optimizer=adam solve.optimizer_at=worker"; do
    words="all.yaml data.train=large.svm data.scale=none solve.method=sgd $way"
    run rated 1 $words solve.epochs=2 "checkpoint.every=50 clocks"
    found=$(of rated rate)
    run rated 3 $words solve.epochs=4 "checkpoint.every=50 clocks"
    grep -q '^continues: ' rated.out || fail "$way: it does not go on: $(cat rated.out)"
    ! grep -q '^rate: ' rated.out && [ "$(of rated rate)" = "$found" ] || fail "$way: going on, rate $(of rated rate), it was $found"
    rm -rf rated
done

# ---- model.init: the weights of another model, for the numbers of the files ----
begins="all.yaml model.l2=1e-6 data.train=large.svm model.bias=yes data.scale=standard"
still="solve.method=sgd solve.epochs=1 solve.rate=1e-9"
sed '1s/$/ 11:3/' large.svm >wide.svm
sed 's/^1 /2 /' large.svm >other.svm
# shellcheck disable=SC2086
{
    run base 1 $begins solve.method=newton solve.epochs=50
    for words in "1 model.init=base" "3 model.init=base/model.txt" "3 model.init=base/model.h5 data.scale=none"; do
        run from ${words%% *} $begins $still ${words#* }
        holds "$words: $(of from objective), it was $(of base objective)" \
            "($(of from objective) - $(of base objective))^2 < 0.03^2 * $(of base objective)^2"
    done
    run from 2 $begins data.train=wide.svm $still model.init=base # a feature that the model has not
    run from 2 $begins model.init=base && [ "$(of from newton_from_epoch)" = 0 ] || fail "auto does not begin with Newton's method"
    run from 2 $begins solve.method=newton solve.epochs=50 model.init=base
    holds "from the optimum Newton's method needs few passes, $(of from epochs) of $(of base epochs)" \
        "$(of from epochs) <= 0.6 * $(of base epochs)"
    # weights come back to their columns, also of data that begin at 0
    awk 'BEGIN { srand(1); print "a,b,y" >"in.csv"
        for (i = 0; i < 300; i++) { a = rand() - 0.5; b = rand() - 0.5; y = 3 * a - 2 * b + rand() > 0.6
            print a "," b "," y >"in.csv"; print y, "0:" a, "1:" b >"zero.svm" } }'
    for table in "in.csv data.label=y" zero.svm; do
        for model in model.h5 model.txt; do
            rm -rf base2 from2
            run base2 1 data.train=$table model.type=logistic
            run from2 1 data.train=$table model.type=logistic model.init=base2/$model $still
            near "$(of from2 objective)" "$(of base2 objective)" 1e-6 ||
                fail "$table: from $model it begins at $(of from2 objective), not $(of base2 objective)"
        done
    done
    "$trireme" predict base2/model.h5 zero.svm --margin >expected
    "$trireme" predict base2/model.txt zero.svm --margin | cmp -s - expected || fail "model.txt predicts otherwise than model.h5"
    refuses_init() { timeout $patience "$trireme" train $begins $still output=none "$@" >out 2>&1; got=$?; }
    refuses_init model.init=base data.train=other.svm; [ $got -eq 65 ] && grep -q 'labels are not those' out || fail "other labels: $got $(cat out)"
    refuses_init model.init=none/model.h5; [ $got -eq 78 ] && grep -q 'folder of this run' out || fail "its own folder: $got $(cat out)"
    refuses_init model.init=none/model.h5 output=none/; [ $got -eq 78 ] && grep -q 'folder of this run' out || fail "its own folder, with a slash: $got $(cat out)"
    refuses_init model.init=nothing; [ $got -eq 66 ] || fail "no such model: $got $(cat out)"
    for ranks in 1 3; do
        run sparse $ranks $begins model.l1=0.01
        run from $ranks $begins model.l1=0.01 model.init=sparse solve.method=descent
        holds "descent from the optimum: $(of from passes) of $(of sparse passes) passes" "$(of from passes) <= 1 && $(of from gap) <= 1e-3"
        near "$(of from objective)" "$(of sparse objective)" 1e-4 || fail "descent from the optimum is at $(of from objective), not $(of sparse objective)"
        rm -rf sparse
    done
    refuses "model.init with a path" 78 "model.l1 path begins with the largest penalty" "$trireme" train $begins output=none report.progress=no model.init=base model.l1=path data.test=10%
    refuses "model.init with dual" 78 "of no use to dual" "$trireme" train $begins output=none report.progress=no model.init=base solve.method=dual
    run wider 1 $begins data.train=wide.svm solve.method=newton solve.epochs=50
    refuses_init model.init=wider; [ $got -eq 65 ] && grep -q 'expected data.features' out || fail "more features: $got $(cat out)"
}

# ---- data.order: rows that are sorted by their labels come to the same ----
sort -s -k1,1 large.svm >sorted.svm
for ranks in 1 3; do
    run_all $ranks all.yaml <<END
$(for method in dual sgd; do for file in large sorted; do
    echo "$file-$method data.train=$file.svm data.scale=standard solve.method=$method solve.epochs=15"
done; done)
END
    for method in dual sgd; do
        holds "$method on $ranks ranks: $(of large-$method objective), sorted $(of sorted-$method objective)" \
            "$(of sorted-$method objective) < 1.01 * $(of large-$method objective)"
    done
done

#!/bin/sh
# Matrix factorization: training, the model file, predict, evaluate, inspect, errors.
. "$(dirname "$0")/lib.sh"

# fails CODE PATTERN COMMAND…: one line that says why
fails() {
    code=$1 pattern=$2
    shift 2
    timeout $patience "$@" >out 2>&1
    got=$?
    [ $got = "$code" ] || fail "$*: exit $got, expected $code: $(cat out)"
    grep -q "$pattern" out || fail "$*: $(cat out)"
    [ "$(grep -c 'error:' out)" = 1 ] || fail "$*: $(grep -c 'error:' out) lines of error"
}

# Readers and books by name; a taste of two sides, and some noise.
awk 'BEGIN { srand(1); for (u = 0; u < 60; u++) for (i = 0; i < 40; i++) if (rand() < 0.5)
    printf "reader%02d;book-%d;%.2f\n", u, i, 3 + ((u % 2 == i % 2) ? 1 : -1) + 0.3 * (i % 3) + 0.2 * (rand() - 0.5) }' >all
awk 'NR % 10 != 0' all >train && awk 'NR % 10 == 0' all >test && printf 'stranger;book-1;4\nreader01;pamphlet;3\n' >>test
printf 'data: {train: train, test: test}\nmodel: {type: mf, rank: 4, bias: yes, l2: 0.01}\nsolve: {epochs: 30, rate: 0.2}\n' >job.yaml
run one 1 job.yaml
run three 3 job.yaml
run again 3 job.yaml
grep -q '^epoch 30.00 .* train rmse [0-9.]*  test rmse [0-9.]*  ratings/s ' one.out || fail "progress: $(cat one.out)"
for folder in one three; do
    holds "$folder: rmse" "$(of $folder test_rmse) < 0.3"
    json=$("$trireme" evaluate $folder/model.h5 test --json 2>/dev/null) || fail "$folder: evaluate: exit $?"
    rmse=$(echo "$json" | number rmse)
    holds "$folder: evaluate beside summary" "($rmse - $(of $folder test_rmse)) ^ 2 < 1e-10"
    echo "$json" | grep -q '"of_unknown_users": 1, "of_unknown_items": 1' || fail "$folder: $json"
done
"$trireme" evaluate three test 2>notes | grep -q '^rmse ' || fail "evaluate"
grep -q 'of .* ratings 1 have users and 1 have items that the model does not know' notes || fail "cold: $(cat notes)"

# ---- defaults: the unit of the ratings has no influence, biases are fitted, a better earlier evaluation is told ----
awk -F';' '{ printf "%s\t%s\t%.9f\n", $1, $2, $3 / 1000 }' train >small.tsv && awk -F';' '{ printf "%s\t%s\t%.9f\n", $1, $2, $3 / 1000 }' test >small.test
tr ";" "\t" <train >plain.tsv && tr ';' '\t' <test >plain.test
for method in sgd als; do
    run plain 2 data.train=plain.tsv data.test=plain.test model.type=mf solve.method=$method sync.mode=bsp
    run small 2 data.train=small.tsv data.test=small.test model.type=mf solve.method=$method sync.mode=bsp
    "$trireme" predict plain plain.tsv >plain.predicted 2>/dev/null
    "$trireme" predict small small.tsv 2>/dev/null | paste plain.predicted - | awk '{ d = $1 - 1000 * $2; sum += d * d } END { print sqrt(sum / NR) }' >far
    holds "$method: predictions of ratings / 1000 differ by $(cat far)" "$(cat far) < 1e-3"
    "$trireme" inspect plain | grep -q 'and biases' || fail "$method: no biases by default"
done
run loose 1 data.train=plain.tsv data.test=plain.test model.type=mf model.l2=1e-6 solve.epochs=300 solve.decay=0.01
says loose.out '^note: *test rmse was [0-9.]* at epoch [0-9.]*, better than at the end: solve.patience keeps the best model'

# ---- the default rate: more epochs fit better; with solve.decay the first of them are the same, however many follow ----
"$trireme" generate ratings -o more users=300 items=250 ratings=18000 >/dev/null 2>&1 || fail "generate: exit $?"
last=9
for epochs in 5 20 40; do
    run epochs$epochs 1 data.train=more model.type=mf solve.epochs=$epochs
    now=$(of epochs$epochs objective)
    holds "training rmse after $epochs epochs" "$now < $last - 0.02"
    last=$now
    run decay$epochs 1 data.train=more model.type=mf solve.epochs=$epochs solve.decay=1 report.every=5
    grep '^epoch 5.00 ' decay$epochs.out | sed 's/.* train rmse \([0-9.]*\).*/\1/' >fifth.$epochs
    cmp -s fifth.5 fifth.$epochs || fail "solve.decay: the fifth of $epochs epochs: $(cat fifth.$epochs), of 5: $(cat fifth.5)"
done

# ---- the file ----
if command -v h5dump >/dev/null; then
    for name in users items user_bias item_bias user_ids item_ids; do
        h5dump -d /$name three/model.h5 >dump 2>&1 || fail "h5dump: $name: $(tail -1 dump)"
    done
    h5dump -d /user_ids three/model.h5 | grep -q 'reader00' || fail "ids: $(h5dump -d /user_ids three/model.h5 | head -12)"
    h5dump -d /users three/model.h5 >users.1
    h5dump -d /users again/model.h5 | sed s/again/three/ | cmp -s - users.1 || fail "the same job twice, and users differ"
fi

# ---- predict and inspect ----
"$trireme" predict three/model.h5 test >predicted 2>/dev/null || fail "predict: exit $?"
[ "$(wc -l <predicted)" = "$(wc -l <test)" ] || fail "predict: $(wc -l <predicted) lines for $(wc -l <test)"
for id in user:1 item:2 pair:1,2; do
    cut -d';' -f${id#*:} test | tr ';' ' ' | paste - predicted >with
    "$trireme" predict three/model.h5 test --id ${id%:*} 2>/dev/null | cmp -s - with || fail "predict --id ${id%:*}"
done
refuses "another identifier" 64 "--id line: expected user, item or pair" "$trireme" predict three/model.h5 test --id line
paste -d ';' test predicted | awk -F';' '{ s += ($3 - $4) ^ 2 } END { printf "%.10f\n", sqrt(s / NR) }' >rmse
holds "predict beside evaluate" "($(cat rmse) - $rmse) ^ 2 < 1e-8"
cut -d';' -f1,2 test | "$trireme" predict three/model.h5 /dev/stdin >pairs 2>/dev/null
[ -s pairs ] && { cmp -s pairs predicted || fail "predict: a third column matters"; }
"$trireme" predict three/model.h5 --user reader02 --top 5 >top || fail "predict --top: exit $?"
[ "$(wc -l <top)" = 5 ] || fail "top: $(cat top)"
awk '$1 != "reader02" { exit 1 } { split($2, b, "-"); if (b[2] % 2) exit 1 } NR > 1 && $3 > last { exit 1 } { last = $3 }' top ||
    fail "top: $(cat top)"
"$trireme" predict three/model.h5 test --top 2 >tops 2>/dev/null || fail "predict --top DATA: exit $?"
[ "$(wc -l <tops)" = $((2 * $(cut -d';' -f1 test | sort -u | wc -l))) ] || fail "tops: $(wc -l <tops) lines"
for way in "test" "--user nobody"; do
    "$trireme" predict three/model.h5 $way --top 2 2>notes >/dev/null || fail "$way: exit $?"
    grep -q 'does not know 1 of the users' notes || fail "$way: no note: $(cat notes)"
done
"$trireme" predict three/model.h5 --user reader02 --top 2 2>notes >/dev/null && [ ! -s notes ] || fail "a known user: $(cat notes)"
"$trireme" inspect three/model.h5 >shown || fail "inspect: exit $?"
grep -q '^users  *60, ' shown && grep -q '^items  *40, ' shown && grep -q '^rank  *4, and biases' shown || fail "inspect: $(cat shown)"
"$trireme" inspect three/model.h5 --user reader02 --top 3 | tail -1 | grep -q 'book-' || fail "inspect --user"
fails 64 'knows no user nobody' "$trireme" inspect three/model.h5 --user nobody
fails 64 '\-\-user needs --top' "$trireme" predict three/model.h5 --user reader02
fails 64 'margin' "$trireme" predict three/model.h5 test --margin

# ---- bad input ----
set -- "$trireme" train job.yaml output=bad
fails 78 'model.rank' "$@" model.rank=0
fails 78 'needs solve.method als' "$@" model.implicit=yes
fails 78 'solve.method dual is for linear' "$@" solve.method=dual
fails 78 'expected sgd or adagrad' "$@" solve.optimizer=adam
fails 78 'of mf is sum or con' "$@" sync.weight=dyn
fails 78 'of mf is horizontal' "$@" data.partition=vertical
fails 76 'lower solve.rate' "$@" solve.optimizer=sgd solve.rate=1e6
: >empty
fails 66 'empty' "$@" data.test=empty
printf 'a b inf\n' >wrong
fails 65 'wrong:1:' "$@" data.train=wrong
printf 'a;b;1\n' >lone # one user, one item
run single 2 job.yaml data.train=lone data.test=lone && "$trireme" evaluate single lone >/dev/null || fail "single"

# ---- als: the training error of what fits nearly exactly, for rows with few ratings, many, and more than are looked up at
# a time ----
awk 'BEGIN { for (u = 0; u < 10; u++) for (i = 0; i < 10; i++) print u, i, 5 }' >five10
awk 'BEGIN { for (u = 0; u < 1100; u++) for (i = 0; i < 3; i++) print u, i, 5 }' >five1100
awk 'BEGIN { srand(1); for (i = 0; i < 90; i++) for (k = 0; k < 2; k++) p[i, k] = 2 * rand()
    for (u = 0; u < 90; u++) for (i = 0; i < 60; i++) if (rand() < 0.5)
        printf "%d %d %.4f\n", u, i, 1000 + p[u, 0] * p[i, 0] + p[u, 1] * p[i, 1] + 0.2 * rand() }' >offset
for way in "five10 model.rank=1" "five1100 model.rank=1" "offset model.rank=4" "offset model.rank=40" "offset model.bias=yes" \
    "offset model.nonnegative=yes model.rank=4" "five10 model.implicit=yes model.rank=1"; do
    set -- $way
    data_train=$1
    shift
    run fits 1 data.train=$data_train model.type=mf solve.method=als model.l2=1e-5 "$@" || continue
    case $way in *implicit*) continue ;; esac
    holds "$way: evaluate beside summary" "($(of fits objective) - $("$trireme" evaluate fits $data_train --json 2>/dev/null |
        number rmse)) ^ 2 < (1e-5 + 1e-3 * $(of fits objective)) ^ 2"
done

# ---- implicit feedback: training and evaluate measure the same error, that of predictions against 1 ----
awk 'BEGIN { for (u = 1; u <= 20; u++) for (i = 1; i <= 15; i++) if (u % 3 == i % 3) print u, i, 1 + (u * i) % 200 }' >plays.txt
if run plays 1 data.train=plays.txt data.test=plays.txt model.type=mf model.implicit=yes solve.method=als model.rank=2 solve.epochs=2; then
    wanted=$("$trireme" predict plays plays.txt | awk '{ e += ($1 - 1) ^ 2 } END { printf "%.9f", sqrt(e / NR) }')
    evaluated=$("$trireme" evaluate plays plays.txt --json | number rmse)
    near "$evaluated" "$wanted" 1e-6 || fail "implicit: evaluate says $evaluated, predictions are $wanted from 1"
    near "$(of plays test_rmse)" "$wanted" 1e-6 || fail "implicit: training says $(of plays test_rmse), predictions are $wanted from 1"
fi

# ---- columns: by the names of the header, or by data.columns; the model is the same in any order ----
awk 'BEGIN { for (m = 101; m <= 112; m++) for (u = 1; u <= 9; u++) if ((m * u) % 4)
    printf "%d,%d,%d,2024-%02d-%02d\n", u, m, (m * u) % 5 + 1, m - 100, u }' >by.place
{ echo ' Movie_ID;rating;note;"user id";date'; awk -F, '{ printf "\"%d\";%d;x;%d;%s\n", $2, $3, $1, $4 }' by.place; } >by.name
{ echo 'm::u::TS::r'; awk -F, '{ printf "%d::%d::%s::%d\n", $2, $1, $4, $3 }' by.place; } >by.type
sed 1d by.type >by.number
columns() { run $1 1 model.type=mf model.rank=2 solve.epochs=3 solve.method=als data.train=by.$1 "$2" data.test=25% && "$trireme" predict $1 by.$1 >$1.ratings; }
columns place data.header=auto
columns name data.header=auto
says name.out '^note: .* are ignored: note$'
columns type 'data.columns={m: item, u: user, TS: ignore}'
columns number 'data.columns={1: item, 2: user, 3: time, 4: rating}'
for way in name type number; do
    cmp -s place.ratings $way.ratings || fail "columns by $way: other predictions"
    [ "$("$trireme" evaluate place by.place)" = "$("$trireme" evaluate $way by.$way)" ] || fail "columns by $way: evaluate differs"
done
cut -d';' -f1,4 by.name | "$trireme" predict place - >pairs || fail "predict: a header of users and items"
cmp -s pairs place.ratings || fail "predict: other ratings of the pairs alone"
mf="train model.type=mf output=refused"
printf 'who,movieId,rating\n1,2,3\n' >unnamed
expect 65 "unnamed:1: no column of the header is called user: its columns are who, movieId, rating: expected data.columns='{NAME: user}'" $mf data.train=unnamed
expect 65 "unnamed:1: no column of the header is called user: its columns are who" predict place unnamed
expect 78 "unnamed has no column whom" $mf data.train=unnamed "data.columns={whom: user}"
expect 78 "«who: person»: expected «name: type» with one of user, item, rating, time and ignore" $mf data.train=unnamed "data.columns={who: person}"
printf 'user,item,user,rating\n1,2,3,4\n' >twice
expect 65 "twice: two columns are called user" $mf data.train=twice

# ---- repeated pairs: all ratings of a pair are on one side. Each user has one item, so the model does not know the held-out users ----
awk 'BEGIN { for (u = 1; u <= 200; u++) print u, u % 7, 1 + u % 5 }' >once
{ cat once; sort -k2 once; sort -r once; } >thrice
for count in 1 3; do
    { printf 'data: {train: thrice}\nmodel: {type: mf, rank: 1}\nsolve: {epochs: 1}\nsync: {mode: bsp}\ntasks:\n  share: {data.test: 20%%}\n'
        for fold in 1 2 3 4; do echo "  fold$fold: {data.test: fold $fold/4}"; done; } >repeated.yaml
    run repeated$count $count repeated.yaml
    all=0
    for way in fold1 fold2 fold3 fold4 share; do
        learnt=$(sed -n "s/^$way: training data: .* \([0-9]*\) ratings.*/\1/p" repeated$count.out)
        held=$(sed -n "s/^$way: test data: .* \([0-9]*\) ratings.*/\1/p" repeated$count.out)
        is "$way on $count ranks: pairs learnt or held out" "$((learnt + held))" 200
        is "$way on $count ranks: unknown users" "$("$trireme" evaluate repeated$count/$way once --json 2>/dev/null | number of_unknown_users)" "$held"
        [ $way = share ] || all=$((all + held))
        echo "$way $held" >>held.$count
    done
    is "held out in some fold" $all 200
done
cmp -s held.1 held.3 || fail "the held-out pairs depend on the ranks"

# ---- data.time: the last quarter by date ----
last=$(cut -d, -f4 by.place | sort | awk '{ d[NR] = $1 } END { n = int(NR / 4 + 0.5); at = d[NR - n + 1]; for (i in d) held += d[i] >= at; print held " of " NR " rows, from " at }')
for place in "by.place data.time=4" "by.name data.time=date" "by.number data.time=time typed"; do
    set -- $place
    file=$1; shift
    [ $# = 1 ] || set -- $1 'data.columns={1: item, 2: user, 3: time, 4: rating}'
    run time 3 model.type=mf model.rank=2 data.train=$file "$@" data.test=25%
    says time.out "^held out: *$last on;"
done
expect 78 "data.time: by.name has no column when besides user, item and rating" $mf data.train=by.name data.time=when data.test=10%
printf '1 2 3 4\n1 3 3 soon\n' >soon
expect 65 "soon:2: 'soon': is no time" $mf data.train=soon data.time=4 data.test=50%

# ---- MovieLens 100K ----
if [ -r "$data/ml-100k/u1.base.gz" ]; then
    for method in sgd als; do
        run movielens-$method 4 "$jobs/movielens.yaml" data.folders="$data" solve.method=$method || continue
        holds "$method on MovieLens" "$(of movielens-$method test_rmse) <= 0.945"
    done
fi

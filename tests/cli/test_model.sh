#!/bin/sh
# Training, saving, predict, evaluate and inspect of linear models: runs on several ranks save models that agree, and
# LIBLINEAR finds the same accuracy in model.txt.
. "$(dirname "$0")/lib.sh"
a9a=$data/a9a

awk 'BEGIN { srand(5); for (i = 0; i < 3000; i++) { a = rand() - 0.5; b = rand() - 0.5; c = int(rand() * 40) + 3;
    printf "%d 1:%.4f 2:%.4f %d:1\n", ((a + 0.3 * b + 0.4 * (rand() - 0.5) > 0) ? 2 : 1), a, b, c } }' >two
awk 'BEGIN { srand(6); for (i = 0; i < 2000; i++) { a = rand(); b = rand();
    printf "%.4f 0:%.4f 1:%.4f\n", 3 * a - b + 0.1 * rand(), a, b } }' >real
head -500 two >test; cut -d' ' -f2- test >nolabel; gzip -k test

job() { # NAME TYPE DATA TEST
    printf 'name: %s\nsync: {mode: bsp}\nmodel: {type: %s}\nsolve: {epochs: 30}\ndata: {train: [%s], test: [%s]}\n' "$1" "$2" "$3" "$4" >"$1.yaml"
}

# ---- saving on every layout; evaluate says what training said ----
trial() { # NAME RANKS SETTINGS…
    name=$1 ranks=$2; shift 2
    job "$name" logistic two test
    check "$name: train" timeout $patience mpirun -n "$ranks" --oversubscribe "$trireme" train "$name.yaml" "$@"
    check "$name: evaluate" "$trireme" evaluate "runs/$name" test --json
    cp out "$name.json"
    near "$(number accuracy <"$name.json")" "$(of "runs/$name" test_metric)" 0.003 ||
        near "$(number accuracy <"$name.json")" "$(of "runs/$name" test_accuracy)" 0.003 ||
        fail "$name: accuracy $(number accuracy <"$name.json"), not as in summary.json"
    near "$(number auc <"$name.json")" "$(of "runs/$name" test_auc)" 1e-6 ||
        fail "$name: auc $(number auc <"$name.json"), training said $(of "runs/$name" test_auc)"
    "$trireme" predict "runs/$name/model.h5" test --margin >h5.margin
    "$trireme" predict "runs/$name/model.txt" test --margin >txt.margin
    cmp -s h5.margin txt.margin || fail "$name: model.txt is not model.h5"
    ls "runs/$name" | grep -q part && fail "$name: a part is left"
}
trial one 1
trial two_ranks 2
trial four 4
trial dedicated 4 ranks.servers=2
mv h5.margin dedicated.margin
trial hashed 4 ranks.servers=2 table.partition=hash table.route=request
cmp -s h5.margin dedicated.margin || fail "the model depends on where its keys lie"
trial ring 4 ranks.servers=2 table.partition=ring table.virtual_nodes=3
cmp -s h5.margin dedicated.margin || fail "the model depends on how a ring spreads its keys"
trial wide 2 data.features=2500000 model.bias=no
mv h5.margin wide.margin
trial wide_hashed 2 data.features=2500000 model.bias=no table.partition=hash table.route=get
cmp -s h5.margin wide.margin || fail "a model of several pieces depends on where its keys lie"
trial vertical 4 ranks.group_size=2 data.partition=vertical solve.method=sgd
trial bias 2 model.bias=yes model.bias_l2=yes
trial double 2 model.dtype=f64

# ---- csv: the last column is the label ----
awk 'BEGIN { srand(3); print "a,b,c,y"; for (i = 0; i < 500; i++) { a = rand(); b = rand(); c = rand() < 0.5 ? 0 : rand()
    print a "," b "," c "," (a - b + c > 0.2 ? 1 : 0) } }' >dense.csv
printf 'data: {train: dense.csv, format: csv, label: last}\nmodel: {type: logistic}\nsolve: {epochs: 20}\n' >csv.yaml
for method in dual sgd svrg growing; do
    check "csv by $method" "$trireme" train csv.yaml output=csv-$method report.progress=no solve.method=$method
    check "csv evaluated" "$trireme" evaluate csv-$method dense.csv
    awk '/^accuracy/ { exit !($2 > 0.9) }' out || fail "csv by $method: $(cat out)"
done
refuses "csv without a label" 78 "data.train has no labels" "$trireme" train csv.yaml output=no report.progress=no data.label=none

# ---- predict ----
check "predict" "$trireme" predict runs/one test.gz -o labels
[ "$(sort -u labels | tr '\n' ' ')" = "1 2 " ] || fail "predict: labels $(sort -u labels | head -3)"
[ "$(wc -l <labels)" -eq 500 ] || fail "predict: $(wc -l <labels) rows"
"$trireme" predict runs/one nolabel >nolabel.out 2>/dev/null && cmp -s labels nolabel.out || fail "predict: without labels"
"$trireme" predict runs/one test --probability | awk '$1 < 0 || $1 > 1 { exit 1 }' || fail "predict: probability"
right=$(paste -d' ' labels test | awk '$1 == $2 { n++ } END { print n / NR }')
near "$right" "$(number accuracy <one.json)" 1e-9 || fail "predict: $right right, evaluate says $(number accuracy <one.json)"
echo '2 1:1 999:5 1000:1' >far
check "predict: unknown features" "$trireme" predict runs/one far
grep -q '2 values belong to features' err || fail "predict: no note on unknown features"

# ---- regression, indices from 0 ----
job reg linear real real
check "regression" timeout $patience "$trireme" train reg.yaml solve.epochs=50
check "regression: evaluate" "$trireme" evaluate runs/reg real --json
near "$(number r2 <out)" 1 0.1 || fail "regression: $(cat out)"
check "regression: lines" "$trireme" evaluate runs/reg real
grep -q '^rmse ' out || fail "regression: $(cat out)"
check "inspect regression" "$trireme" inspect runs/reg/model.h5
grep -q 'first has index 0' out || fail "inspect regression"

# ---- inspect ----
check "inspect model" "$trireme" inspect runs/one/model.h5 --top 3
grep -q 'largest positive' out && grep -q '^model  *logistic' out && grep -q 'epochs: 30' out || fail "inspect model"
check "inspect text" "$trireme" inspect runs/one/model.txt
check "inspect data" "$trireme" inspect test.gz
grep -q '^rows  *500' out && grep -q '^index base *1' out || fail "inspect data: $(cat out)"
check "inspect run" "$trireme" inspect runs/one
grep -q 'status.json' out || fail "inspect run"

# on N servers: all keys are somewhere, and a ring moves few of them where the others move many
servers() { # N SETTINGS…: leaves what inspect says in out
    check "inspect on servers" "$trireme" inspect runs/wide --servers "$@"
    awk -v n="$1" '/^ +[0-9]+ / { servers++; keys += $2; bytes += $3 } /^keys / { all = $2 }
        END { exit !(servers == n && keys == all && keys == 2500000 && bytes == 4 * keys) }' out ||
        fail "inspect on $*: $(cat out)"
}
moved() { sed -n 's/^one more *\([0-9.]*\) %.*/\1/p' out; }
for partition in range hash range-hash; do
    servers 8 --partition $partition
    grep -q "^partition *$partition," out || fail "inspect on servers: $(grep ^partition out), not $partition"
    awk -v m="$(moved)" 'BEGIN { exit !(m > 40) }' || fail "inspect: $partition moves $(moved) %"
done
servers 8 --partition ring
near "$(moved)" 11.1 4 || fail "inspect: a ring moves $(moved) %, about 11 are due"
servers 1 table.partition=ring table.block=1000 table.virtual_nodes=7
near "$(moved)" 50 30 && grep -q '2500 blocks of 1000, 7 points' out || fail "inspect with settings: $(cat out)"
"$trireme" inspect runs/hashed --servers 2 | grep -q '^partition *hash' || fail "inspect: the model's own partition"
"$trireme" inspect runs/bias/model.h5 --servers 2 | grep -q '^keys.* with the bias' || fail "inspect: the bias is a key"
check "inspect text on servers" "$trireme" inspect runs/one/model.txt --servers 2
grep -q '^partition *range-hash' out || fail "inspect: the usual partition"

# ---- bad usage and bad input ----
refuses "predict alone" 64 "predict: expected MODEL DATA" "$trireme" predict
refuses "predict option" 64 "unknown option --colour" "$trireme" predict runs/one test --colour
refuses "predict both" 64 "unexpected --margin" "$trireme" predict runs/one test --probability --margin
refuses "evaluate alone" 64 "evaluate: expected MODEL DATA" "$trireme" evaluate runs/one
refuses "inspect alone" 64 "inspect: expected one FILE" "$trireme" inspect
refuses "inspect top" 64 "--top is «many»: expected a number from" "$trireme" inspect runs/one --top many
refuses "inspect servers" 64 "--servers is «0»: expected a number from 1 to 65536" "$trireme" inspect runs/one --servers 0
refuses "inspect partition" 64 "--partition: expected" "$trireme" inspect runs/one --servers 2 --partition
refuses "inspect misspelt" 78 "expected range, hash" "$trireme" inspect runs/one --servers 2 --partition rnig
refuses "inspect setting" 64 "with --servers only" "$trireme" inspect runs/one table.block=3
refuses "inspect data on servers" 64 "--servers is for models" "$trireme" inspect test --servers 2
refuses "no model" 66 "No such file" "$trireme" predict nothing test
refuses "no data" 66 "no such file" "$trireme" predict runs/one nothing
refuses "data as model" 65 "not a model" "$trireme" predict test test
refuses "no output" 73 "cannot be created" "$trireme" predict runs/one test -o no/folder/out
refuses "full disk" 74 "No space left" "$trireme" predict runs/one test -o /dev/full
# What a link leads to is replaced, and a device stays one; nobody writes over what he reads.
mkdir elsewhere; ln -s elsewhere/out link; ln -s elsewhere/out.svg link.svg
for command in "predict runs/one test -o" "convert test" "generate ctr rows=50 features=9 nonzeros=3 -o" "plot runs/one -o"; do
    case $command in
    plot*) command -v gnuplot >/dev/null || continue; name=link.svg device=null.svg ;;
    *) name=link device=null ;;
    esac
    : >"elsewhere/out${name#link}"
    check "$command $name" "$trireme" $command $name
    [ -L $name ] && [ -s "elsewhere/out${name#link}" ] && [ ! -e $name.part ] || fail "$command: not what the link leads to"
    mknod $device c 1 3 2>/dev/null && : 2>/dev/null >$device || { rm -f $device; continue; }
    check "$command $device" "$trireme" $command $device
    [ -c $device ] || fail "$command: the device is a file now"
    rm -f $device
done
ln -s test same
refuses "model as output" 64 "cannot be the output as well" "$trireme" predict runs/one test -o runs/one/model.h5
refuses "data as output" 64 "cannot be the output as well" "$trireme" predict runs/one 'tes[t]' -o test
refuses "data as output, by a link" 64 "cannot be the output as well" "$trireme" predict runs/one test -o same
refuses "converted into itself" 64 "cannot be the output as well" "$trireme" convert real test test
head -500 two | cmp -s - test && "$trireme" inspect runs/one >/dev/null || fail "an input was written over"
refuses "probability" 64 "expects a logistic model" "$trireme" predict runs/reg real --probability
printf '8 1:1\n7 1:1\n' >strange
refuses "unknown labels" 65 "none of the rows has a label that training has" "$trireme" evaluate runs/one strange
printf '1 1:1\n1 2:1 1:1\n' >descends
refuses "bad record" 65 "descends:2: '1:1': the index is smaller" "$trireme" evaluate runs/one descends
printf '1 0:1\n' >zero
refuses "index base" 65 "the index is 0" "$trireme" predict runs/one zero
refuses "evaluate without labels" 65 "expected a label" "$trireme" evaluate runs/one nolabel
head -c 1000 runs/one/model.h5 >cut.h5
refuses "cut model" 65 "cut.h5: cut off or damaged" "$trireme" inspect cut.h5

# ---- LIBLINEAR reads model.txt and finds the same ----
if ! command -v liblinear-predict >/dev/null; then skip "liblinear-predict is not installed"
elif [ ! -r "$a9a/a9a.gz" ]; then skip "a9a is not in $a9a"
else
    gzip -dc "$a9a/a9a.t.gz" >a9a.t
    for type in logistic svm l2svm; do
        job a9a_$type $type "$a9a/a9a.gz" "$a9a/a9a.t.gz"
        check "a9a $type: train" timeout $patience mpirun -n 2 --oversubscribe "$trireme" train a9a_$type.yaml
        theirs=$(liblinear-predict a9a.t runs/a9a_$type/model.txt /dev/null | sed -n 's/.*(\([0-9]*\)\/.*/\1/p')
        ours=$("$trireme" evaluate runs/a9a_$type a9a.t --json | number right)
        [ -n "$ours" ] && [ "$ours" = "$theirs" ] || fail "a9a $type: LIBLINEAR has $theirs right, trireme $ours"
    done
    gzip -dc "$a9a/a9a.gz" >a9a
    liblinear-train -q -s 0 a9a theirs.model
    theirs=$(liblinear-predict a9a.t theirs.model /dev/null | sed -n 's/.*(\([0-9]*\)\/.*/\1/p')
    ours=$("$trireme" evaluate theirs.model a9a.t --json | number right)
    [ -n "$ours" ] && [ "$ours" = "$theirs" ] || fail "a model of LIBLINEAR: it has $theirs right, trireme $ours"
fi

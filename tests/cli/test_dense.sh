#!/bin/sh
# Linear models of dense rows equal those of the same rows stored as sparse ones, for each method and number of ranks;
# the rule that decides which rows are dense.
. "$(dirname "$0")/lib.sh"

# Rows of 40 columns, two thirds of them not 0, which makes them dense; among 4000 columns the same rows are sparse.
awk 'BEGIN { srand(3); for (i = 0; i < 500; i++) { row = ""; m = 0
    for (j = 1; j <= 40; j++) { if (rand() < 0.33) continue
        x = int(rand() * 64 + 1) / 32; row = row " " j ":" x; m += (j % 7 - 3) * x }
    y = m / 4 + rand() - 0.5; print y row >"real"; print (y > 1 ? 2 : y > -1 ? 1 : 0) row >"three"; print (y > 0) row >"two" } }'
printf 'data: {scale: none}\nsync: {mode: bsp}\nreport: {progress: no}\n' >job.yaml

# forms NAME DATA SETTING…: both forms come to the same
forms() {
    name=$1 rows=$2; shift 2
    for ranks in 1 2; do
        for columns in 40 4000; do
            into=$name-$columns-$ranks
            case $columns in 40) dense=${expected:-true} ;; *) dense=false ;; esac
            run $into $ranks job.yaml data.train=$rows data.test=$rows data.features=$columns "$@" || continue
            [ "$(of $into dense)" = $dense ] || fail "$into: dense is $(of $into dense), expected $dense"
        done
        a=$(of $name-40-$ranks objective) b=$(of $name-4000-$ranks objective)
        holds "$name on $ranks ranks: $a and $b" "($a - $b) ^ 2 <= (${close:-1e-4} * ($a + $b)) ^ 2 && $a > 0"
    done
}
few="solve.target_gap=0 solve.epochs=8 solve.batch=50"
forms dual two model.type=logistic solve.method=dual $few
forms hinge two model.type=svm solve.method=dual $few
forms exact two model.type=l2svm solve.method=dual model.dtype=f64 $few
forms classes three model.type=logistic solve.method=dual $few
forms rest three model.type=l2svm solve.method=dual $few
forms newton two model.type=logistic solve.method=newton
forms softmax three model.type=logistic solve.method=newton
forms squares real model.type=linear solve.method=newton
forms sgd two model.type=logistic solve.method=sgd solve.rate=0.1 model.l2=0 solve.epochs=8 solve.batch=50
forms adam three model.type=logistic solve.method=sgd solve.optimizer=adam solve.rate=0.01 model.l2=0 solve.epochs=8 solve.batch=50
forms worker two model.type=logistic solve.method=sgd solve.optimizer=momentum solve.optimizer_at=worker solve.rate=0.01 model.l2=0 solve.epochs=8 solve.batch=50
# these step on single non-zeros
expected=false
forms svrg two model.type=logistic solve.method=svrg solve.rate=0.02 solve.epochs=12
close=1e-2 # two workers change the same weights at once, and may be apart for as long as the machine likes
forms growing two model.type=logistic solve.method=growing solve.rate=0.02
close=1e-4
forms descent two model.type=logistic model.l1=0.01

# Rows with a quarter of the cells are dense where their columns are scaled, which dense ones are about their means, as the
# rows of csv are; not where columns are alike, cannot be centred, or cells are few.
awk 'BEGIN { srand(4); for (i = 0; i < 600; i++) { row = csv = same = ""; m = 0
    for (j = 1; j <= 20; j++) { x = 0; if (rand() < (j < 3 ? 1 : 0.2)) x = int(rand() * 64 + 1) * (j < 3 ? 100 : 1) + (j < 3 ? 20000 : 0)
        if (x) row = row " " j ":" x; if (x) same = same " " j ":" (1 + j / 20); csv = csv "," x; m += (j < 3 ? (x - 23000) / 2000 : x / 32) * (j % 3 - 1) }
    y = m + rand() - 0.5 > 0; print y row >"quarter.svm"; print y same >"alike.svm"; print y csv >"quarter.csv" } }'
printf 'model: {type: logistic}\nreport: {progress: no}\n' >rule.yaml

# rule NAME DENSE WORDS FILE SETTING…
rule() {
    name=$1 dense=$2 words=$3 file=$4; shift 4
    for ranks in 1 3; do
        run $name-$ranks $ranks rule.yaml data.train=$file report.progress=yes "$@" || continue
        [ "$(of $name-$ranks dense)" = $dense ] || fail "$name: dense is $(of $name-$ranks dense)"
        grep -q "$words" $name-$ranks.out || fail "$name on $ranks ranks: does not say «$words»: $(cat $name-$ranks.out)"
    done
}
rule quarter true "centred and divided" quarter.svm
rule csv true "centred and divided" quarter.csv data.label=first
near "$(of quarter-1 objective)" "$(of csv-1 objective)" 1e-4 || fail "quarter: $(of quarter-1 objective), as csv $(of csv-1 objective)"
rule alike false "600 rows" alike.svm
rule unbiased false "divided by their root" quarter.svm model.bias=no
rule unscaled false "600 rows" quarter.svm data.scale=none solve.method=newton
rule few false "divided by their root" quarter.svm data.features=40
rule wished true "centred and divided" alike.svm data.scale=standard

# fewer rows than ranks
printf '1,2,0\n3,4,1\n5,5,0\n' >small.csv
run small 5 job.yaml data.train=small.csv data.label=last model.type=logistic
[ "$(of small dense)" = true ] || fail "small.csv: dense is $(of small dense)"

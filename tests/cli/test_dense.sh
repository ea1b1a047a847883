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

# NAME DENSE DATA SETTING…: whether 40 columns are dense for the method, which gives the same objective for both forms
cat >forms <<'END'
dual true two model.type=logistic solve.method=dual FEW
hinge true two model.type=svm solve.method=dual FEW
exact true two model.type=l2svm solve.method=dual model.dtype=f64 FEW
classes true three model.type=logistic solve.method=dual FEW
rest true three model.type=l2svm solve.method=dual FEW
newton true two model.type=logistic solve.method=newton
softmax true three model.type=logistic solve.method=newton
squares true real model.type=linear solve.method=newton
sgd true two model.type=logistic solve.method=sgd solve.rate=0.1 model.l2=0 solve.epochs=8 solve.batch=50
adam true three model.type=logistic solve.method=sgd solve.optimizer=adam solve.rate=0.01 model.l2=0 solve.epochs=8 solve.batch=50
worker true two model.type=logistic solve.method=sgd solve.optimizer=momentum solve.optimizer_at=worker solve.rate=0.01 model.l2=0 solve.epochs=8 solve.batch=50
svrg false two model.type=logistic solve.method=svrg solve.rate=0.02 solve.epochs=12
growing false two model.type=logistic solve.method=growing solve.rate=0.02
descent false two model.type=logistic model.l1=0.01
END
sed -i 's/FEW/solve.target_gap=0 solve.epochs=8 solve.batch=50/' forms
for ranks in 1 2; do
    run_all $ranks job.yaml <<END
$(while read -r name _ rows settings; do for columns in 40 4000; do
    echo "$name-$columns data.train=$rows data.test=$rows data.features=$columns $settings"
done; done <forms)
END
    while read -r name dense _; do
        is "$name: dense" "$(of $name-40 dense) $(of $name-4000 dense)" "$dense false"
        far=1e-4
        [ $name != growing ] || far=1e-2 # two workers change the same weights at once, and may differ for some time
        a=$(of $name-40 objective) b=$(of $name-4000 objective)
        holds "$name on $ranks ranks: $a and $b" "($a - $b) ^ 2 <= ($far * ($a + $b)) ^ 2 && $a > 0"
    done <forms
done

# Rows with a quarter of the cells are dense where their columns are scaled, which dense ones are about their means, as the
# rows of csv are; not where columns are alike, cannot be centred, or cells are few.
awk 'BEGIN { srand(4); for (i = 0; i < 600; i++) { row = csv = same = ""; m = 0
    for (j = 1; j <= 20; j++) { x = 0; if (rand() < (j < 3 ? 1 : 0.2)) x = int(rand() * 64 + 1) * (j < 3 ? 100 : 1) + (j < 3 ? 20000 : 0)
        if (x) row = row " " j ":" x; if (x) same = same " " j ":" (1 + j / 20); csv = csv "," x; m += (j < 3 ? (x - 23000) / 2000 : x / 32) * (j % 3 - 1) }
    y = m + rand() - 0.5 > 0; print y row >"quarter.svm"; print y same >"alike.svm"; print y csv >"quarter.csv" } }'
echo 'model: {type: logistic}' >rule.yaml

for ranks in 1 3; do
    run_all $ranks rule.yaml <<END
quarter data.train=quarter.svm
csv data.train=quarter.csv data.label=first
alike data.train=alike.svm
unbiased data.train=quarter.svm model.bias=no
unscaled data.train=quarter.svm data.scale=none solve.method=newton
few data.train=quarter.svm data.features=40
wished data.train=alike.svm data.scale=standard
END
    for rule in quarter:true:"centred and divided" csv:true:"centred and divided" alike:false:"600 rows" wished:true:"centred and divided" \
        unbiased:false:"divided by their root" unscaled:false:"600 rows" few:false:"divided by their root"; do
        name=${rule%%:*} words=${rule##*:}
        is "$name: dense" "$(of $name dense):$words" "${rule#*:}"
        says $name.out "$words" "$name on $ranks ranks"
    done
    near "$(of quarter objective)" "$(of csv objective)" 1e-4 || fail "quarter: $(of quarter objective), as csv $(of csv objective)"
done

# fewer rows than ranks
printf '1,2,0\n3,4,1\n5,5,0\n' >small.csv
run small 5 job.yaml data.train=small.csv data.label=last model.type=logistic
[ "$(of small dense)" = true ] || fail "small.csv: dense is $(of small dense)"

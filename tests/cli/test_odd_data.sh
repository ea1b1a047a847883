#!/bin/sh
# Unusual data with defaults and with each method: a right result or one clear line.
. "$(dirname "$0")/lib.sh"
for i in 1 2 3 4 5 6 7 8 9 10; do
    k=$((i % 2)) h=$((i / 6))
    echo "7 1:0.$i 2:1" >>one.svm
    echo "$k 1:0 2:0" >>zero.svm
    echo "$k" >>none.svm
    echo "5,$h.$i,$h.$i,$k$h" >>twins.csv
    echo "3.5,$i,$((2 * i + 1)).25" >>line.csv
    echo "$h 1:$i" >>apart.svm
done
awk -F, '{ print ($4 % 10) "," $1 "," $2 "," $3 }' twins.csv >twins && mv twins twins.csv
printf '1 1:1\nnan 1:2\n' >nan.svm
printf '1,1\ninf,2\n0,1\n' >inf.csv

for ranks in 1 2; do
    methods="solve.method=dual solve.method=newton solve.method=sgd solve.method=svrg"
    [ $ranks -eq 2 ] || methods=
    for method in solve.method=auto $methods; do
        # shellcheck disable=SC2086
        {
            name=$ranks-${method#*=}
            run one-"$name" $ranks data.train=one.svm $method && grep -q 'all labels of data.train are 7' one-"$name".out ||
                fail "one-$name: it is not said that there is one class"
            check "one-$name: predict" "$trireme" predict one-"$name" one.svm
            [ "$(sort -u out)" = 7 ] || fail "one-$name: predicts $(sort -u out | tr '\n' ' ')"
            run zero-"$name" $ranks data.train=zero.svm $method && near "$(of zero-"$name" objective)" 0.693147 1e-4 || fail "zero-$name: $(of zero-"$name" objective)"
            run none-"$name" $ranks data.train=none.svm data.format=libsvm $method && near "$(of none-"$name" objective)" 0.693147 1e-4 || fail "none-$name"
            # of two equal columns both are used alike
            run twins-"$name" $ranks data.train=twins.csv data.label=first $method solve.epochs=60
            sed -n '/^w$/,$p' twins-"$name"/model.txt | awk 'NR == 3 { a = $1 } NR == 4 { exit !(a > 0 && ($1 - a) ^ 2 < 0.05 * a * a) }' ||
                fail "twins-$name: $(sed -n '/^w$/,$p' twins-"$name"/model.txt | tr '\n' ' ')"
        }
    done
    run line-$ranks $ranks data.train=line.csv model.type=linear solve.method=newton solve.epochs=100 model.l2=0
    near "$(sed -n '/^w$/,$p' line-$ranks/model.txt | sed -n 3p)" 2 1e-3 || fail "line-$ranks: $(cat line-$ranks/model.txt)"
    for method in newton dual sgd svrg; do
        run apart-$ranks-$method $ranks data.train=apart.svm solve.method=$method model.l2=0
        holds apart-$ranks-$method "$(of apart-$ranks-$method objective) < 0.6932"
    done
done
# where nothing is lost any more, training ends
for ranks in 1 2; do
    run one-svm $ranks data.train=one.svm model.type=svm
    holds "one class, svm" "$(of one-svm epochs) < 500 && $(of one-svm objective) < 1e-6"
    rm -rf one-svm
done
expect 65 "nan.svm:2: 'nan': the label is not finite" train data.train=nan.svm output=no
expect 65 "inf.csv:2: column 1: 'inf' is not finite" train data.train=inf.csv output=no
run many 24 data.train=apart.svm solve.method=newton solve.epochs=6
# the bias is learnt in as few passes where most ranks find no rows left
run few 12 data.train=apart.svm solve.method=dual && holds few "$(of few epochs) < 160 && $(of few gap) <= 1e-3"

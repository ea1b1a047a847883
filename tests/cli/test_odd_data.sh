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
    methods="auto dual newton sgd svrg"
    [ $ranks -eq 1 ] || methods=auto
    run_all $ranks /dev/null <<END
$(for method in $methods; do
    echo "one-$method data.train=one.svm solve.method=$method"
    echo "zero-$method data.train=zero.svm solve.method=$method"
    echo "none-$method data.train=none.svm data.format=libsvm solve.method=$method"
    echo "twins-$method data.train=twins.csv data.label=first solve.method=$method solve.epochs=60"
done)
line data.train=line.csv model.type=linear solve.method=newton solve.epochs=100 model.l2=0
$(for method in newton dual sgd svrg; do echo "apart-$method data.train=apart.svm solve.method=$method model.l2=0"; done)
one-svm data.train=one.svm model.type=svm
END
    for method in $methods; do
        says one-$method.out 'all labels of data.train are 7'
        check "one-$method: predict" "$trireme" predict one-$method one.svm
        is "one-$method: predictions" "$(sort -u out)" 7
        for kind in zero none; do
            near "$(of $kind-$method objective)" 0.693147 1e-4 || fail "$kind-$method: $(of $kind-$method objective)"
        done
        # of two equal columns both are used alike
        sed -n '/^w$/,$p' twins-$method/model.txt | awk 'NR == 3 { a = $1 } NR == 4 { exit !(a > 0 && ($1 - a) ^ 2 < 0.05 * a * a) }' ||
            fail "twins-$method: $(sed -n '/^w$/,$p' twins-$method/model.txt | tr '\n' ' ')"
    done
    near "$(sed -n '/^w$/,$p' line/model.txt | sed -n 3p)" 2 1e-3 || fail "line on $ranks ranks: $(cat line/model.txt)"
    for method in newton dual sgd svrg; do holds apart-$method "$(of apart-$method objective) < 0.6932"; done
    # where the loss is 0, training ends
    holds "one class, svm" "$(of one-svm epochs) < 500 && $(of one-svm objective) < 1e-6"
done
expect 65 "nan.svm:2: 'nan': the label is not finite" train data.train=nan.svm output=no
expect 65 "inf.csv:2: column 1: 'inf' is not finite" train data.train=inf.csv output=no
# more ranks than rows; the bias is learnt in as few passes where most ranks have no rows
run_all 12 /dev/null <<END
many data.train=apart.svm solve.method=newton solve.epochs=6
few data.train=apart.svm solve.method=dual
END
holds few "$(of few epochs) < 160 && $(of few gap) <= 1e-3"

#!/bin/sh
# Dual coordinate descent takes about as many passes on many ranks as on one, to a gap of 1e-3 on a9a, for each of its
# losses: with ranks that change one model at the same time, and with runs that repeat bit by bit.
. "$(dirname "$0")/lib.sh"
[ -r "$data/a9a/a9a.gz" ] || { skip "no a9a in $data"; exit 77; }
printf 'data: {train: [%s]}\nmodel: {type: logistic}\nsolve: {method: dual, epochs: 400, target_gap: 1e-3}\n' \
    "$data/a9a/a9a.gz" >job.yaml

# few RUN PASSES: it came to the gap in at most twice that
few() { holds "$1: at most twice $2 passes" "$(of "$1" gap) <= 1e-3 && $(of "$1" epochs) <= 2 * $2"; }

for loss in logistic svm l2svm linear; do
    run $loss.1 1 job.yaml model.type=$loss || continue
    modes="auto bsp"
    case $loss in l2svm) modes=auto ;; linear) modes=bsp ;; esac
    for mode in $modes; do
        run $loss.$mode 8 job.yaml model.type=$loss sync.mode=$mode && few $loss.$mode "$(of $loss.1 epochs)"
    done
done
for name in auto bsp; do
    mode=bsp; [ $name = auto ] && mode=auto
    run $name 16 job.yaml sync.mode=$mode && few $name "$(of logistic.1 epochs)"
done
cmp -s bsp/model.txt auto/model.txt || fail "auto: so few columns are not stepped on by one, or bsp does not repeat"
# rows that rest leave their steps to others: 129 passes without
holds "svm: few passes" "$(of svm.1 epochs) < 60"
run nodes 4 job.yaml ranks.node_size=2 model.bias=yes && holds "two nodes" "$(of nodes gap) <= 1e-3"

for ranks in 2 8; do # that share nothing but what they merge, as nodes do
    run groups.$ranks $ranks job.yaml model.type=svm solve.method=auto ranks.group_size=1 && few groups.$ranks "$(of svm.1 epochs)"
done

# wide and sparse rows on nodes that merge often enough: 3 passes on one rank, 4 on two; 15 by one merge in a pass
wide="data.train=$data/rcv1-small/rcv1-small.train.libsvm.gz solve.method=auto ranks.node_size=1"
if [ -r "$data/rcv1-small/rcv1-small.train.libsvm.gz" ]; then
    run wide 2 job.yaml $wide && few wide 3
    run seldom 2 job.yaml $wide "sync.push=1 per epoch" && run often 2 job.yaml $wide "sync.push=32 per epoch" &&
        holds "sync.push has an effect" "$(of often gap) < 0.5 * $(of wide gap) && $(of often epochs) < $(of seldom epochs)"
fi

# several classes, which share one softmax or have a hinge each: as many passes on ranks that share memory and on nodes. By a
# preconditioner that is the mean of the classes' they took 285 and 1008 on one rank, and that of letter's hinges proved nothing
for set in covtype20k/covtype20k:logistic:60 letter/letter:svm:90; do
    name=${set%%/*} file=$data/${set%%:*}.libsvm.gz type=${set#*:} most=${set##*:}
    type=${type%:*}
    [ -r "$file" ] || continue
    set -- job.yaml data.train="$file" model.type="$type" solve.method=auto solve.epochs=1000
    run $name.1 1 "$@" || continue
    holds "$name: few passes" "$(of $name.1 epochs) <= $most"
    run $name.2 2 "$@" && few $name.2 "$(of $name.1 epochs)"
    run $name.8 8 "$@" && few $name.8 "$(of $name.1 epochs)"
    run $name.nodes 2 "$@" ranks.node_size=1 && few $name.nodes "$(of $name.1 epochs)"
done
# many columns for that: each class's block of the Hessian, divided among the ranks; 142 and 112 by the mean of them
if [ -r "$data/usps/usps.train.libsvm.gz" ]; then
    for ranks in 1 8; do
        run usps.$ranks $ranks job.yaml data.train="$data/usps/usps.train.libsvm.gz" solve.method=auto && few usps.$ranks 35
    done
fi

# support vectors that are stopped early: better than a constant, whose objective is 0.4816, and soon as good as they get
for ranks in 1 2; do
    run early.$ranks $ranks job.yaml model.type=svm solve.epochs=8 && holds early.$ranks "$(of early.$ranks objective) < 0.42"
    run near.$ranks $ranks job.yaml model.type=svm solve.target_gap=0 solve.target=0.35147 &&
        holds near.$ranks "$(of near.$ranks objective) <= 0.35147 && $(of near.$ranks epochs) < 70"
done
# little regularisation: dual variables of logistic loss are near their ends
run little 1 job.yaml model.l2=3e-6 && holds little "$(of little gap) <= 1e-3"
# sparse rows have little in common, and a bias that is not regularised does not make it more: 13 passes if steps take it for a
# feature that is 1 in all rows, whose length is 1
"$trireme" generate ctr -o sparse.svm rows=4k features=20k nonzeros=30 2>/dev/null
for loss in svm l2svm; do
    run clicks.$loss 1 job.yaml data.train=sparse.svm model.type=$loss && holds clicks.$loss "$(of clicks.$loss epochs) <= 9"
done

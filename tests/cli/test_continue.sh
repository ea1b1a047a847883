#!/bin/sh
# Parts of the data that are held out. usage: test_continue.sh TRIREME
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

exit $bad

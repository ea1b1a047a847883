#!/bin/sh
# solve.epochs is the maximum number of passes over the rows for every method; metrics.csv counts in this unit, and
# both agree with the number of runs of the stages.
. "$(dirname "$0")/lib.sh"

rows=2000
"$trireme" generate ctr -o ctr rows=$rows features=300 nonzeros=8 2>generated || fail "ctr: $(cat generated)"
"$trireme" generate dense -o dense.csv rows=600 columns=5 clusters=6 2>generated || fail "dense: $(cat generated)"
"$trireme" generate ratings -o ratings users=60 items=40 ratings=600 2>generated || fail "ratings: $(cat generated)"
"$trireme" generate docword -o words documents=60 words=80 tokens=3000 topics=4 2>generated || fail "docword: $(cat generated)"
printf 'data: {train: ctr}\nmodel: {type: logistic, l2: 1e-3, dtype: f64}\nreport: {progress: no}\n' >job.yaml
printf 'data: {train: ctr}\nmodel: {type: trees}\n' >trees.yaml
printf 'data: {train: dense.csv}\nmodel: {type: kmeans, clusters: 5}\n' >kmeans.yaml
printf 'data: {train: ratings}\nmodel: {type: mf, rank: 4}\n' >mf.yaml
printf 'data: {train: words}\nmodel: {type: lda, topics: 4}\n' >lda.yaml

# ran FOLDER STAGE: how often it has run
ran() { sed -n "s/.*\"name\": \"$2\", \"runs\": \([0-9]*\),.*/\1/p" "$1/summary.json"; }
# clocks FOLDER STAGE
clocks() { sed -n "s/.*\"name\": \"$2\", \"runs\": .* \"clocks\": \([0-9]*\),.*/\1/p" "$1/summary.json"; }
# within FOLDER MOST LEAST COUNTED: MOST is a bound of its epochs and of the passes that were counted, LEAST one from below; the
# column of metrics.csv never decreases, and ends with what summary.json says
within() {
    column=$(awk -F, 'NR > 1 { if ($2 < last) exit 1; last = $2 } END { print last }' "$1/metrics.csv") ||
        fail "$1: the epochs of metrics.csv decrease"
    holds "$1: metrics.csv ends at epoch $column" "$column == $(of "$1" epochs)"
    holds "$1: $column epochs of at most $2" "$column <= $2 && $column >= $3"
    holds "$1: $column epochs, but $4 passes counted" "($4) <= $2 && ($column - ($4)) ^ 2 < 1e-9"
}

all="1 7 45"
# each EPOCHS NAME SETTING…: a line NAME-EPOCHS for each of these numbers
each() {
    numbers=$1 name=$2; shift 2
    for e in $numbers; do echo "$name-$e solve.epochs=$e $*"; done
}
run_all 2 job.yaml <<END
$(for method in auto newton; do each "7 45" $method solve.method=$method solve.target_gap=1e-12; done)
$(each "7 45" descent solve.method=descent model.l1=1e-3 model.l2=0 solve.target_gap=1e-9)
$(for method in svrg svrg++ katyusha; do each "7 45" $(echo $method | tr + -) solve.method=$method; done)
$(each "$all" growing solve.method=growing solve.batch=20)
few solve.epochs=1
rounds solve.method=dual solve.target_gap=0 solve.epochs=7
END
run_all 1 job.yaml <<END
$(each "$all" dual solve.method=dual solve.target_gap=0)
$(each "$all" sgd solve.method=sgd solve.rate=0.1 solve.batch=20)
END
run_all 2 kmeans.yaml <<END
$(each "$all" kmeans)
END
run_all 1 mf.yaml <<END
$(each "$all" mf)
$(each "$all" als solve.method=als)
END
run_all 1 lda.yaml <<END
$(each "$all" lda)
END
run_all 1 trees.yaml <<END
$(each "$all" trees)
END
for epochs in 7 45; do
    # the last gradient proves the gap; the first step makes a factor, another pass, and so may later ones
    for method in auto newton; do
        passes=$(of $method-$epochs epochs) runs=$(ran $method-$epochs gradient)
        within $method-$epochs $epochs 3 "$passes"
        holds "$method: $runs gradients and products, $passes passes" "$runs - 1 < $passes && $passes <= $epochs"
    done
    holds "descent: epochs" "$(of descent-$epochs epochs) <= $epochs && $(of descent-$epochs epochs) > 0"
    for method in svrg svrg-- katyusha; do
        full=$(ran $method-$epochs full)
        holds "$method: $full full gradients of $epochs passes" "$full - 1 < $epochs"
        inner=$(sed -n '2,$p' $method-$epochs/metrics.csv | wc -l)
        within $method-$epochs $epochs "$epochs - 1.1" "$(of $method-$epochs epochs)"
        is "$method: evaluations of full gradients" "$inner" "$full"
        # inner steps on twice as many rows as there are, but for the last epoch, which is as long as the rest of the passes
        [ $method = svrg-- ] || holds "$method: $full gradients" "$full - 1 == int(($epochs + 1.9) / 3)"
    done
done
for epochs in $all; do
    within growing-$epochs $epochs "$epochs - 1" \
        "$(clocks growing-$epochs phase-1) / 100 + $(clocks growing-$epochs phase-2) / 10 + 0$(clocks growing-$epochs phase-3)" # of 100, 10, 1 batches
    within dual-$epochs $epochs $epochs "$(ran dual-$epochs gradient)"
    within sgd-$epochs $epochs $epochs "$(ran sgd-$epochs gradient) / ($rows / 20)"
    within kmeans-$epochs $epochs 1 "$(ran kmeans-$epochs assign) - 1"
    within mf-$epochs $epochs $epochs "$(ran mf-$epochs rotate)"
    within als-$epochs $epochs $epochs "($(ran als-$epochs users) + $(ran als-$epochs items)) / 2"
    within lda-$epochs $epochs $epochs "$(ran lda-$epochs sample)"
    within trees-$epochs $epochs $epochs "$(of trees-$epochs epochs)"
done

# of few passes auto chooses the method that can use them
holds "auto: one pass" "$(of few epochs) == 1 && $(of few objective) < 0.69"
refused 78 'solve.epochs is 1, but a step of Newton.s method takes [23] passes' solve.epochs=1 solve.method=newton
refused 78 'solve.epochs is 2, but a step of descent takes' solve.epochs=2 solve.method=descent model.l1=1e-3
for method in svrg svrg++ katyusha; do
    refused 78 'solve.epochs is 1, but variance reduction takes' solve.epochs=1 solve.method=$method
done
# a pass in several rounds is one clock
is "rounds: clocks" "$(clocks rounds gradient)" 7

#!/bin/sh
# Newton's method on any number of ranks, solve.method auto, and models that are worse than the best constant.
. "$(dirname "$0")/lib.sh"

# few: columns of very different sizes, none with a mean of 0. wide: sparse, many columns, some of them large.
awk 'BEGIN { srand(5); for (i = 0; i < 800; i++) { m = 0; row = ""; size = 0.001
    for (j = 1; j <= 6; j++) { x = rand() + 1; m += (j - 3.5) * x; row = row " " j ":" x * size; size *= 10 }
    print (m + 2 * (rand() - 0.5) > 0 ? 1 : -1) row > "few"
    print 100 + m + rand() row > "real"
    m = 0; row = ""; k = 0
    for (j = 1; j <= 12; j++) { k += 1 + int(rand() * 150); x = rand() + 0.5; m += (k % 7 - 3) * x; row = row " " k ":" (k % 5 ? x : 300 * x) }
    print (m + rand() - 0.5 > 0 ? 1 : -1) row > "wide" } }'
printf 'data: {train: few}\nmodel: {type: logistic, dtype: f64}\nreport: {progress: no}\n' >job.yaml

# same NAME FOLDER: as many passes, give or take one, and the same objective as FOLDER-1
same() {
    holds "$2 on $1 ranks: $(of "$2-$1" epochs) passes, on one $(of "$2-1" epochs)" \
        "($(of "$2-$1" epochs) - $(of "$2-1" epochs)) ^ 2 <= 1"
    near "$(of "$2-$1" objective)" "$(of "$2-1" objective)" 1e-9 || fail "$2 on $1 ranks: objective $(of "$2-$1" objective)"
    holds "$2 on $1 ranks: gap" "$(of "$2-$1" gap) <= 1e-3"
}
for ranks in 1 2 8; do
    run_all $ranks job.yaml <<END
few-none-$ranks data.scale=none
few-standard-$ranks data.scale=standard
hinge-$ranks model.type=svm solve.method=newton
squares-$ranks data.train=real model.type=linear data.scale=none
wide-$ranks data.train=wide solve.method=newton data.scale=none solve.target_gap=1e-7
END
    for scale in none standard; do
        same $ranks few-$scale
        is "auto is newton for few columns" "$(of few-$scale-$ranks newton_from_epoch)" 0
    done
    same $ranks hinge
    holds "squares: one step" "$(of squares-$ranks updates) == 1 && $(of squares-$ranks objective) < 0.5"
    near "$(of wide-$ranks objective)" "$(of wide-1 objective)" 1e-7 || fail "wide on $ranks ranks: $(of wide-$ranks objective)"
done
holds "few: better than nothing" "$(of few-none-1 objective) < 0.6"
run again 2 job.yaml data.train=wide solve.method=newton data.scale=none solve.target_gap=1e-7
same_model again wide-2
run apart 3 job.yaml solve.method=newton ranks.layout=dedicated ranks.servers=1 checkpoint.every="1 clocks" # on ranks that do not work, too

# ---- a gradient that lies in few columns, which most rows have: 139 and more than 400 passes where that is not looked at ----
"$trireme" generate ctr -o clicks rows=20k features=20k nonzeros=20 2>generated || fail "generate: $(cat generated)"
for loss in logistic:70 l2svm:130 svm:200; do
    run "clicks-${loss%:*}" 1 data.train=clicks model.type="${loss%:*}" solve.method=newton solve.epochs=400 report.progress=no
    holds "clicks, ${loss%:*}: $(of "clicks-${loss%:*}" epochs) passes" \
        "$(of "clicks-${loss%:*}" epochs) <= ${loss#*:} && $(of "clicks-${loss%:*}" gap) <= 1e-3"
done

# ---- what begins with dual coordinate descent ----
run changes 2 job.yaml data.train=wide data.scale=none report.progress=yes
holds "changed to newton" "$(of changes newton_from_epoch) >= 6 && $(of changes gap) <= 1e-3"
holds "epochs are those of both" "$(of changes epochs) > $(of changes newton_from_epoch)"
cut -d, -f2 changes/metrics.csv | sed 1d | sort -nc || fail "epochs fall: $(cut -d, -f2 changes/metrics.csv)"
grep -q '^method: .*newton from epoch' changes.out || fail "that newton takes over is not said: $(cat changes.out)"
# shellcheck disable=SC2086
on 2 "$trireme" train job.yaml data.train=wide data.scale=none sync.mode=ssp solve.epochs=30 \
    output=kept report.progress=yes >kept.out 2>&1 # too few passes to learn anything
[ "$(grep -c '^hint: .*newton would take over' kept.out)" = 1 ] || fail "that the mode keeps newton away: $(cat kept.out)"
run stays 2 job.yaml data.train=wide
[ -z "$(of stays newton_from_epoch)" ] || fail "scaled columns need no newton"
run hinge 2 job.yaml model.type=svm
holds "svm" "$(of hinge gap) <= 1e-3"

# ---- without a penalty, and worse than nothing ----
run free 2 job.yaml model.l2=0 report.progress=yes
grep -q "^note: .*without model.l2 the gap is estimated" free.out || fail "that nothing is proven is not said"
holds "free: lower than with a penalty" "$(of free objective) < $(of few-standard-1 objective)"
refused 76 "worse than .* of the best constant" data.train=real model.type=linear solve.method=sgd solve.rate=1e-9 solve.epochs=1 data.scale=none model.bias_l2=yes
[ ! -e out/model.h5 ] || fail "a model that is worse than a constant"
# without a penalty every method and loss trains, and says that the gap is estimated
sed 's/progress: no/progress: yes/' job.yaml >shown.yaml
run_all 2 shown.yaml <<END
$(for loss in svm l2svm logistic; do for method in newton auto dual; do
    echo "free-$loss-$method model.l2=0 model.type=$loss solve.method=$method"
done; done)
END
for loss in svm l2svm logistic; do
    for method in newton auto dual; do
        says "free-$loss-$method.out" "~"
        case $(of "free-$loss-$method" gap) in '' | null) ;; *) fail "$loss by $method: a proven gap" ;; esac
        near "$(of "free-$loss-$method" objective)" "$(of "free-$loss-newton" objective)" 1e-3 || fail "$loss by $method: another minimum"
    done
done
refused 78 "with newton all workers step together" solve.method=newton sync.mode=ssp

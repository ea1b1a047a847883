#!/bin/sh
# tools/bench: the report of an experiment, which is run once for what has not changed, whose goals are looked up in the table
# each time, and whose failure shows; two builds beside each other.
. "$(dirname "$0")/lib.sh"
root=$(dirname "$jobs") build=$(dirname "$trireme")
command -v python3 >/dev/null && [ -x "$build/tests/bench/bench_schedule" ] || { skip "no python3, or no programs of the bench"; exit 77; }
export TRIREME_BUILD="$build" TRIREME_BENCH="$here/bench"
bench="python3 $root/tools/bench"
reports() { $bench report schedule --quick "$@" >out 2>&1; }

# ---- report ----
# measured VALUE: as if that had been
measured() { sed -i '/"schedule busy"/{n;s/[0-9.][0-9.]*/'$1'/}' bench/schedule.json; }

reports
[ -s bench/report/schedule.csv ] || fail "a report has raw rows"
for words in 'schedule busy' ' cores' 'schedule.csv' "$(git -C "$root" rev-parse HEAD 2>/dev/null)"; do
    grep -qF -- "$words" bench/report/schedule.html || fail "the page of an experiment has «$words»"
done
if git -C "$root" diff --quiet HEAD 2>/dev/null; then # in a tree that is changed all runs again
    reports
    grep -q '^====' out && fail "what ran with this code runs again"
    sed -i 's/"commit": "[^"]*"/"commit": "0123456789012345678901234567890123456789"/' bench/schedule.json
    reports
    grep -q '^====' out || fail "what ran with other code does not run again"
fi
measured 0.975
reports --no-run || fail "a report whose goals are met: exit $?: $(tail -1 out)"
grep -q 'class=.met.*0.975' bench/report/schedule.html || fail "the page says which goals are met"
measured 0.125
reports --no-run && fail "a report with a missed goal exits with 0"
grep -q '1 goals missed, 0 experiments failed' out || fail "a missed goal: $(tail -1 out)"
grep -qF '0.125' bench/report/index.html || fail "the first page has the goal that is missed"
printf '| E7 | 1.5 | of an earlier day |\n' >bench/figures.md
reports --no-run --docs
grep -q '^| schedule | 0.125 | .* NOT MET ' bench/figures.md || fail "docs: $(cat bench/figures.md)"
grep -qx '| E7 | 1.5 | of an earlier day |' bench/figures.md || fail "docs lose what ran elsewhere"
mkdir broken && TRIREME_BUILD=$here/broken && touch broken/trireme
$bench schedule --quick >out 2>&1 && fail "an experiment without its program succeeds"
reports --no-run && fail "a report with an experiment that failed exits with 0"
grep -q '1 experiments failed' out || fail "an experiment that failed: $(tail -1 out)"
export TRIREME_BUILD="$build"

# ---- compare ----
refuses "a commit that is none" 1 "no-such is no commit" $bench compare . no-such "$jobs/ctr-small.yaml"
refuses "a commit with itself" 1 "the same commit" $bench compare . . schedule
refuses "no such experiment" 1 "no experiment or job such" $bench compare . . such
refuses "no second commit" 1 "two commits" $bench compare .
if commit=$(git -C "$root" rev-parse --verify -q HEAD); then # as if it were built already
    kept=$TMPDIR/trireme-compare-$(id -u)/$commit/build
    mkdir -p "$kept" && ln -s "$trireme" "$kept/trireme" && touch "$kept/is-complete"
    "$trireme" generate ctr -o few.svm rows=200 features=50 nonzeros=5 2>/dev/null
    printf 'name: few\nsolve:\n  epochs: 2\n' >few.yaml
    check "two builds" $bench compare . HEAD "$here/few.yaml" "data.train=$here/few.svm" --times 2
    for words in 'medians of 2' 'HEAD / .' 'objective' 'processor seconds'; do
        grep -qF -- "$words" out || fail "compare says «$words»"
    done
    awk '$1 == "objective" && $4 != 1 { exit 1 }' out || fail "the same build has another objective"
fi

# ---- what there is ----
check "help" $bench --help
for name in E8 growth model wire report compare; do
    grep -qE "(^|bench) *$name " out || fail "--help lists $name"
done
refuses "an experiment that is none" 1 "no experiment such" $bench such
refuses "an option that is none" 1 "no option --such" $bench E8 --such

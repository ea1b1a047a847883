#!/bin/sh
# A run whose objective is not finite or only grows is stopped: one line says when, where and what to try; no model is
# written, and an earlier one stays.
. "$(dirname "$0")/lib.sh"

# diverges NAME WORDS RANKS SETTING…: the run ends with 76 and one line that has the words, and leaves no result
diverges() {
    name=$1 words=$2 ranks=$3
    shift 3
    rm -rf out
    on "$ranks" "$trireme" train job.yaml output=out "$@" >said 2>&1
    got=$?
    [ $got -eq 76 ] || fail "$name: exit $got: $(cat said)"
    [ "$(grep -c '^trireme: error: ' said)" -eq 1 ] || fail "$name: not one line of error: $(cat said)"
    grep '^trireme: error: ' said | grep -qE -- "$words" || fail "$name: «$(grep error said)» lacks «$words»"
    grep -q '"state": "failed"' out/status.json && grep -q '"status": 76' out/status.json ||
        fail "$name: status.json says $(cat out/status.json)"
    grep '"error": ' out/status.json | grep -qE -- "$words" || fail "$name: status.json: $(grep error out/status.json)"
    [ "$(ls -A out | grep -vxe ranks.json -e log | tr '\n' ' ')" = "job.yaml metrics.csv status.json " ] || fail "$name: leaves $(ls -A out | tr '\n' ' ')"
    ! grep -qi nan out/metrics.csv said || fail "$name: $(grep -i nan out/metrics.csv said)"
}

# Least squares. In the other file the second half of the rows has nothing but an enormous 9th feature: of two workers
# one alone sees it, and leaves the numbers at once.
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { row = ""; y = 0
    for (j = 1; j <= 8; j++) { x = int(rand() * 1000) / 1000; y += j * x; row = row " " j ":" x }
    print y row > "plain"; print y (i < 200 ? row : " 9:1e25") > "lopsided" } }'
printf 'data: {train: plain, scale: none}\nmodel: {type: linear, l2: 0}\nsolve: {method: sgd, epochs: 200}\nreport: {progress: no}\n' >job.yaml

# advice: only what can help with these settings
try="lower solve.rate"
weights=", or set sync.weight to con or dyn"
diverges grows "epoch [0-9.]*: the objective is [0-9.e+]*, at the beginning it was [0-9.e+]*: $try(\",)?\$" 1 solve.rate=1.5 solve.batch=400
diverges grows2 "epoch [0-9.]*: the objective is [0-9.e+]*, at the beginning .*: $try$weights(\",)?\$" 3 solve.rate=1.5 solve.batch=400
for mode in bsp ssp asp; do
    case $mode in bsp) stale= ;; ssp) stale=", or lower sync.staleness" ;; asp) stale=", or set sync.mode to ssp" ;; esac
    diverges "leaps, $mode" "epoch [0-9.]*: the objective is not finite any more: $try$stale$weights \\(worker 0 is the first whose part is not" 3 \
        solve.rate=1e9 sync.mode=$mode
done
diverges lopsided "the objective is not finite any more: .*\\(worker 1 is the first whose part is not finite\\)" 2 \
    data.train=lopsided data.scale=none solve.rate=0.1 solve.batch=400
tail -1 out/metrics.csv | grep -q "^[^,]*,[0-9.]*,[0-9]*,,," || fail "metrics.csv: $(cat out/metrics.csv)"

# an earlier run with a good model stays as it was
rm -rf keep keep.1
timeout $patience "$trireme" train job.yaml output=keep solve.rate=0.01 solve.epochs=2 >said 2>&1 || fail "keep: $(cat said)"
cp keep/model.txt good.txt
timeout $patience "$trireme" train job.yaml output=keep solve.rate=1e9 >said 2>&1
[ $? -eq 76 ] || fail "keep: $(cat said)"
cmp -s good.txt keep/model.txt || fail "keep: the earlier model is gone"
grep -q '"status": 76' keep.1/status.json || fail "keep: keep.1 is not the run that failed"
# … also if this one only grows, and has checkpoints before that is seen
timeout 60 "$trireme" train job.yaml output=keep solve.rate=1.5 solve.batch=400 checkpoint.every="1 clocks" >said 2>&1
[ $? -eq 76 ] || fail "keep, grows: $(cat said)"
cmp -s good.txt keep/model.txt || fail "keep, grows: the earlier model is gone"
grep -q '"status": 76' keep.2/status.json && [ -e keep.2/metrics.csv ] && [ -e keep.2/checkpoints ] ||
    fail "keep, grows: keep.2 is not the run that failed: $(ls keep.2)"

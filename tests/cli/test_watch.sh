#!/bin/sh
# trireme watch: the pages it serves of folders of runs, complete and torn, and to whom; with a Chromium, the page
# itself.
tests=$(realpath "$(dirname "$0")")
. "$tests/lib.sh"
"$trireme" watch no-such-folder >out 2>&1
case $? in
64) grep -q 'built without libmicrohttpd' out && { skip "built without libmicrohttpd"; exit 77; } ;;
esac
command -v curl >/dev/null || { skip "no curl here"; exit 77; }

# ---- made-up runs ----

header=time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,compute_seconds,wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time
# a_run FOLDER STATE
a_run() {
    mkdir -p "$1"
    printf '{\n  "state": "%s",\n  "name": "x",\n  "epoch": 2,\n  "clock": 2,\n  "objective": 0.5,\n  "gap": 1e-3,\n  "seconds": 2,\n  "error": null,\n  "pid": 1,\n  "host": "far",\n  "started": "2026-01-01T00:00:00Z",\n  "continued": 0,\n  "updated": "2026-01-01T00:00:02Z"\n}\n' "$2" >"$1/status.json"
}
some_metrics() {
    echo $header
    echo '1,1,1,0.6,0.2,0.7,100,100,1,1,0.5,0.1,0.1,0.1,1000,1,1'
    echo '2,2,2,0.5,1e-3,0.8,200,200,2,2,1,0.2,0.2,0.2,1000,2,2'
}
a_run runs/good done
some_metrics >runs/good/metrics.csv
printf 'name: good\ndata:\n  train: [a.svm]   # command line\n  order: dealt     # default\n' >runs/good/job.yaml
printf 'one line\n%.0s' $(seq 200) >runs/good/log
printf '{\n  "stages": [\n    {"name": "snapshot", "fewest_workers": 8, "most_workers": 8, "clocks": 4, "begin_seconds": 0, "end_seconds": 6, "seconds": 1},\n    {"name": "steps", "fewest_workers": 1, "most_workers": 1, "clocks": 9, "begin_seconds": 2, "end_seconds": 8, "seconds": 5}\n  ]\n}\n' >runs/good/summary.json
a_run 'runs/<script>alert(1)<' done
a_run runs/torn training
printf '{"state": "trai' >runs/torn/status.json
{ some_metrics; printf '3,3,oops\n3,3,3,0.4'; } >runs/torn/metrics.csv
a_run runs/job/task-1 done
mkdir -p runs/no-run/deeper runs/job/checkpoints/1
echo "not for others" >secret
ln -s "$here" runs/way-out
mkdir runs/linked
ln -s "$here/secret" runs/linked/metrics.csv
a_run runs/piped done
mkfifo runs/piped/metrics.csv

# ---- the server ----

# watch WORD…: starts it, as $server at $url
watch() {
    "$trireme" watch "$@" >served 2>served.err &
    server=$!
    wait_for "trireme watch $*: its address" grep -q '^open: ' served
    url=$(sed -n 's/^open: *//p' served)
}
# asks WHAT CODE WORDS PATH OPTION…: of curl
asks() {
    what=$1 code=$2 words=$3 path=$4; shift 4
    got=$(curl -s -m 10 --path-as-is -o body -w '%{http_code}' "$@" "$url$path")
    [ "$got" = "$code" ] || fail "$what: $got, expected $code: $(head -c 200 body)"
    grep -qF -- "$words" body || fail "$what: «$(head -c 300 body)» lacks «$words»"
}
lacks() { ! grep -qF -- "$2" body || fail "$1: there is «$2»"; }

watch runs
case $url in
http://127.0.0.1:*/) url=${url%/} ;;
*) fail "the page is at «$url»" ;;
esac
port=${url##*:}
grep -q "ssh -N -L $port:127.0.0.1:$port " served || fail "no line for ssh: $(cat served)"

asks "the page" 200 '<main id="page"' /
asks "its style" 200 '--paper' /watch.css
asks "its program" 200 'EventSource' /watch.js
asks "all runs" 200 '"id": "0/good"' /runs
grep -qF '"id": "0/<script>alert(1)<"' body || fail "a run named <script> is not there"
grep -qF '{\"state\": \"trai"' body || fail "a torn status is not there as it is"
grep -qF '"id": "0/job/task-1"' body || fail "the run of a task is not there"
lacks "all runs" no-run
lacks "all runs" way-out
lacks "all runs" checkpoints
lacks "a file behind a link makes no run" 0/linked
python3 -c 'import json; assert len(json.load(open("body"))["runs"]) == 5' || fail "the list is not JSON of 5 runs"

asks "metrics" 200 '2,2,2,0.5' /run/0/good/metrics.csv
asks "what is new of them" 200 ',1e-3,0.8' '/run/0/good/metrics.csv?from=-60'
lacks "what is new of them" time,epoch
asks "torn metrics" 200 '3,3,oops' /run/0/torn/metrics.csv
asks "an odd name" 200 '"done"' '/run/0/%3Cscript%3Ealert(1)%3C/status.json'
asks "the job" 200 'command line' /run/0/good/job.yaml

# ---- what is not served ----

asks "no such page" 404 'no such page' /nothing
asks "no such run" 404 'no such run' /run/0/nothing/metrics.csv
asks "no such file" 404 'no such page' /run/0/good/model.h5
asks "a file that is not there" 404 'no such file' /run/0/torn/summary.json
for path in /run/0/../../secret /run/0/good/../../../secret /run/0/%2e%2e/secret /run/0/good/..%2f..%2fsecret /../secret \
    /run/../metrics.csv /run/0/linked/metrics.csv /run/0/way-out/metrics.csv /run//metrics.csv /run/1/metrics.csv; do
    asks "$path" 404 no "$path"
    lacks "$path" "not for others"
done
asks "a pipe for a file" 404 'no such file' /run/0/piped/metrics.csv
asks "another site's name" 403 'by an address or as localhost' /runs -H 'Host: evil.example'
# libmicrohttpd 1 refuses that by itself, as malformed
got=$(curl -s -m 10 -o body -w '%{http_code}' -H 'Host:' "$url/runs")
case $got in 400 | 403) ;; *) fail "no name: $got, expected 400 or 403: $(head -c 200 body)" ;; esac
asks "an address" 200 '"runs"' /runs -H 'Host: 127.0.0.1:1'
asks "the other end of a tunnel" 200 '"runs"' /runs -H 'Host: localhost:9000'
asks "writing" 405 'read only' /runs -X POST -d x
asks "deleting" 405 'read only' /run/0/good/status.json -X DELETE
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    got=$(setpriv --reuid 65534 --clear-groups curl -s -m 10 -w '%{http_code}' "$url/runs")
    [ "${got##*
}" = 403 ] || fail "another user of the machine may read: $got"
fi
curl -s -I "$url/" | grep -q "Content-Security-Policy: default-src 'none'" || fail "the page may load from elsewhere"

# ---- what changes ----

: >events
curl -s -N -m $patience "$url/events?since=$(curl -s "$url/runs" | sed 's/{"look": \([0-9]*\),.*/\1/;q')" >events &
listener=$!
wait_for "the first event" grep -q 'all is well' events
a_run runs/later training
mv runs/torn runs/gone
wait_for "a run that is new" grep -q '^data: {"id": "0/gone", "path"' events
wait_for "a run that is gone" grep -q '^data: {"id": "0/torn"}' events
kill $listener 2>/dev/null
wait $listener 2>/dev/null
grep -q '^data: {"id": "0/later", "path"' events || fail "a new run is not told: $(cat events)"
grep -q '^data: {"id": "0/torn"}$' events || fail "it is not told that a run is gone: $(cat events)"

# ---- the page ----

if python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import browser; sys.exit(not browser.program())' "$tests"; then
    "$trireme" generate ctr -o train.svm rows=2k features=500 nonzeros=10 >/dev/null
    cat >real.yaml <<'END'
data: {train: train.svm}
model: {type: logistic, l2: 1e-3}
solve: {method: sgd, batch: 200, rate: 0.1, epochs: 100000}
sync: {mode: ssp, staleness: 3}
ranks: {layout: dedicated, servers: 1, group_size: 1}
experiment: {slow: 0.4, level: 3, clock: 0.05}
checkpoint: {every: 10 clocks}
END
    "$trireme" run real.yaml -n 6 output=runs/real -- --oversubscribe >real.out 2>&1 &
    real=$!
    "$trireme" watch runs --host 0.0.0.0 >with-token 2>served.err &
    other=$!
    wait_for "a server that requires the token" grep -q '^to end: ' with-token
    timeout $patience python3 -B "$tests/watch_in_browser.py" "$url" runs \
        "$(sed -n 's,^open: *http://[^:]*,http://127.0.0.1,p' with-token)" >page 2>&1 || fail "the browser: exit $?"
    kill $other; wait $other
    kill -TERM $real; wait $real
    [ $? -eq 75 ] || fail "the real run: $(cat real.out)"
    [ "$(ls -s pictures/*.png 2>/dev/null | awk '$1 >= 8' | wc -l)" -eq 4 ] || fail "pictures: $(ls -s pictures)"
    [ ! -s page ] || { cat page; bad=1; }
else
    skip "the page: no Chromium here"
fi

# ---- many runs ----

python3 - <<'END'
import os, shutil
for i in range(500):
    shutil.copytree("runs/good", f"runs/many/{i}")
END
all_there() { asks "500 runs" 200 '"runs"' /runs; [ "$(grep -c '"id": "0/many/' body)" -eq 500 ]; }
wait_for "500 runs" all_there

# ---- ports, words, the end ----

refuses "a port in use" 71 "port $port at 127.0.0.1: Address already in use" "$trireme" watch runs --port "$port"
refuses "no folder" 66 "no-such-folder: No such file" "$trireme" watch no-such-folder
refuses "a file" 64 "expected a folder" "$trireme" watch secret
refuses "no port" 64 "--port is «99999»: expected a number from 1 to 65535" "$trireme" watch --port 99999
refuses "a flag" 64 "unknown option --prot: did you mean --port?" "$trireme" watch --prot 1
curl -s -N -m $patience "$url/events" >/dev/null &
sleep 0.1
kill $server
wait $server || fail "ends with $? at SIGTERM: $(cat served.err)"
wait
[ ! -s served.err ] || fail "it also says: $(cat served.err)"

#!/bin/sh
# trireme train from end to end: all layouts, consistencies, routes and solvers find the known optimum and write the
# documented files. PARTS in the environment selects among: layouts consistency solvers fullbatch bias regression files
# outputs bytes routes patience.
. "$(dirname "$0")/lib.sh"
optimum=0.32337958 # of logistic regression on a9a, lambda = 1/n, no bias; LIBLINEAR finds 10529.5625 / 32561

has() { command -v "$1" >/dev/null; }
part() { case " ${PARTS:-$1} " in *" $1 "*) ;; *) return 1 ;; esac; }

# reaches FOLDER OPTIMUM TOLERANCE: the objective is that close to the optimum, and not below it
reaches() { holds "$1" "$(of "$1" objective) <= $2 * (1 + $3) && $(of "$1" objective) >= $2 * (1 - 1e-6)"; }
# bounded FOLDER OPTIMUM: by the gap
bounded() { holds "$1: the gap is a bound" "$(of "$1" objective) <= (1 + $(of "$1" gap)) * $2 * (1 + 1e-6)"; }

# ---- data ----
a9a=
if [ -r "$data/a9a/a9a.gz" ]; then
    a9a=yes
    mkdir datasets && ln -s "$data/a9a" datasets/a9a # jobs/a9a.yaml looks there
else
    skip "what needs a9a: no \$TRIREME_DATA/a9a"
fi
# every row has all of the 8 features, so that every worker needs all keys
awk 'BEGIN { srand(3); for (i = 0; i < 3000; i++) { m = 0; row = "";
    for (j = 1; j <= 8; j++) { x = int(rand() * 1000) / 1000 - 0.3; m += x * (j - 4); row = row " " j ":" (x == 0 ? 1e-3 : x) }
    print (m + 2 * (rand() - 0.5) > 1 ? 1 : -1) row > "dense"
    print (m + (rand() - 0.5) + 3) row > "real" } }'
sed 's/$/ 9:1/' dense >dense1
printf 'data: {train: [dense]}\nmodel: {bias: no}\nsolve: {method: dual, target_gap: 0}\nreport: {progress: no}\nsync: {mode: bsp}\nranks: {group_size: 1}\n' >dense.yaml
printf 'data: {train: [real]}\nmodel: {type: linear, bias: no}\nsolve: {method: dual, target_gap: 0}\n' >real.yaml
sed 's/^model:/&\n  bias: no/' "$jobs/a9a.yaml" >unbiased.yaml

# ---- layouts ----
if part layouts && [ "$a9a" ]; then
    job=unbiased.yaml
    for ranks in 1 2 4; do run r$ranks $ranks "$job" report.every=10; done
    run r7 7 "$job" report.every=10 ranks.servers=2 ranks.groups=2 ranks.group_size=2
    run r12 12 "$job" solve.target_gap=1e-3
    run f64 2 "$job" report.every=10 model.dtype=f64 solve.target_gap=1e-6 solve.epochs=200
    for folder in r1 r2 r4 r7 r12 f64; do
        reaches $folder $optimum 1e-3
        bounded $folder $optimum
        holds "$folder: accuracy" "$(of $folder test_accuracy) >= 0.848"
    done
    reaches f64 $optimum 1.1e-6
    case $(of r7 layout) in
    "dedicated: 7 ranks on 1 node: 2 servers, 2 groups of 2") ;;
    *) fail "r7: layout $(of r7 layout)" ;;
    esac
fi

# ---- consistency: all of them come to the optimum, and in lockstep to the same bits ----
if part consistency && [ "$a9a" ]; then
    dual="report.every=20 solve.method=dual solve.epochs=300"
    # old values need damping and small steps; workers may be far from each other: the last one settles it
    run_all 4 unbiased.yaml <<END
bsp $dual sync.mode=bsp
again $dual sync.mode=bsp
ssp0 $dual sync.mode=ssp sync.staleness=0
ssp2 $dual sync.mode=ssp sync.staleness=2 solve.batch=1000 solve.epochs=200
asp $dual sync.mode=asp solve.batch=1000 solve.epochs=600
steps report.every=20 sync.mode=asp solve.method=sgd solve.epochs=10
END
    for folder in bsp ssp2 asp; do reaches $folder $optimum 1e-3; done
    reaches steps $optimum 2e-2
    same_model bsp again
    same_model bsp ssp0
    if has h5dump; then
        for folder in bsp again ssp0; do h5dump -d /weights $folder/model.h5 | sed 1d >$folder.weights; done
        [ "$(wc -l <bsp.weights)" -gt 10 ] || fail "bsp: no weights in model.h5"
        cmp -s bsp.weights again.weights || fail "bsp: another model.h5 at the second time"
        cmp -s bsp.weights ssp0.weights || fail "ssp with staleness 0: another model.h5 than bsp"
    else
        skip "weights of model.h5: h5dump is not installed"
    fi
fi

# ---- other losses and solvers ----
if part solvers && [ "$a9a" ]; then
    job=unbiased.yaml
    if has liblinear-train; then
        gzip -dc "$data/a9a/a9a.gz" >a9a.svm
        for pair in svm:3 l2svm:1; do
            type=${pair%:*}
            value=$(liblinear-train -s "${pair#*:}" -e 1e-3 a9a.svm /dev/null | sed -n 's/^Objective value = -*//p')
            theirs=$(awk -v v="$value" 'BEGIN { printf "%.9g", v / 32561 }')
            run $type 2 "$job" model.type=$type solve.epochs=300 solve.target_gap=5e-4 report.every=10
            # theirs is of the dual, thus below the optimum
            holds "$type" "$(of $type objective) <= $theirs * (1 + 1e-3) && $(of $type objective) >= $theirs * (1 - 1e-6)"
        done
    else
        skip "svm and l2svm: liblinear-train is not installed"
    fi
    run sgd 4 "$job" solve.method=sgd solve.rate=0.5 solve.batch=256 solve.epochs=20 report.every=20
    run decay 1 "$job" solve.method=sgd solve.rate=0.5 solve.decay=0.01 solve.batch=256 solve.epochs=20 report.every=20
    reaches sgd $optimum 1e-2
    reaches decay $optimum 1e-2
    [ "$(of sgd gap)" = null ] || fail "sgd: a gap, $(of sgd gap)"
    # two vertical groups of two: members hold features, and none of them all rows' pairs
    run vertical 4 "$job" solve.method=sgd solve.rate=0.5 solve.decay=0.01 solve.batch=256 solve.epochs=40 report.every=40 \
        ranks.group_size=2 data.partition=vertical
    reaches vertical $optimum 1e-2
fi

# ---- the same steps on any number of ranks ----
if part fullbatch; then
    full="solve.method=sgd solve.batch=3000 solve.rate=2 solve.epochs=8"
    run_all 1 dense.yaml <<END
full $full
full-bias $full model.bias=yes
END
    run_all 4 dense.yaml <<END
full4 $full
full-horizontal $full ranks.group_size=2
full-vertical $full ranks.group_size=2 data.partition=vertical
full-bias4 $full model.bias=yes ranks.group_size=2 data.partition=vertical
END
    for pair in full:full4 full:full-horizontal full:full-vertical full-bias:full-bias4; do
        cut -d, -f4 "${pair%:*}/metrics.csv" >one
        cut -d, -f4 "${pair#*:}/metrics.csv" | paste -d' ' one - | awk 'NR > 1 { n++; d = $1 - $2; if (d < 0) d = -d
            if (!($1 > 0) || d > 1e-5 * $1) { print "epoch", n ":", $0; exit 1 } } END { exit n != 8 }' >said ||
            fail "full batches: $pair differ: $(cat said)"
    done
    # a regularised bias is the weight of a feature that is always 1
    run bias 4 dense.yaml model.bias=yes model.bias_l2=yes solve.epochs=300 solve.target_gap=1e-6 report.every=10
    run feature 1 dense.yaml data.train=dense1 solve.epochs=300 solve.target_gap=1e-6 report.every=10
    holds "a regularised bias" "$(of bias objective) / $(of feature objective) < 1 + 2e-6 && $(of feature objective) / $(of bias objective) < 1 + 2e-6"
    tail -1 bias/model.txt >bias.w
    tail -1 feature/model.txt >feature.w
    holds "a regularised bias" "($(cat bias.w) - $(cat feature.w))^2 < 1e-4"
fi

# ---- a bias that is not regularised: the dual's is that of gradient descent ----
if part bias; then
    run free_dual 2 dense.yaml model.bias=yes solve.epochs=300 solve.target_gap=1e-4
    run free_full 2 dense.yaml model.bias=yes ranks.group_size=2 solve.method=katyusha solve.epochs=120 report.every=120
    holds "a free bias" "$(of free_dual objective) / $(of free_full objective) < 1.0002 && $(of free_full objective) / $(of free_dual objective) < 1.002"
fi

# ---- least squares, against the normal equations ----
# exact FILE BIAS: the least objective; BIAS = 1: with a bias that is not regularised
exact() {
    python3 - "$1" "$2" <<'END'
import sys
rows = [line.split() for line in open(sys.argv[1])]
bias = int(sys.argv[2])
y = [float(r[0]) for r in rows]
x = [{int(i) - 1: float(v) for i, v in (p.split(':') for p in r[1:])} for r in rows]
n, k = len(rows), 1 + max(max(r) for r in x if r)
if bias:
    for r in x: r[k] = 1.0
m = k + bias
a = [[0.0] * (m + 1) for _ in range(m)]
for r, t in zip(x, y):
    for i, v in r.items():
        a[i][m] += v * t / n
        for j, u in r.items(): a[i][j] += v * u / n
for i in range(k): a[i][i] += 1 / n
for c in range(m):
    p = max(range(c, m), key=lambda i: abs(a[i][c]))
    a[c], a[p] = a[p], a[c]
    for i in range(m):
        if i != c:
            f = a[i][c] / a[c][c]
            for j in range(c, m + 1): a[i][j] -= f * a[c][j]
w = [a[i][m] / a[i][i] for i in range(m)]
loss = sum((sum(w[i] * v for i, v in r.items()) - t) ** 2 for r, t in zip(x, y)) / (2 * n)
print("%.12g" % (loss + sum(v * v for v in w[:k]) / (2 * n)))
END
}
if part regression; then
    if has python3; then
        best=$(exact real 0) biased=$(exact real 1)
        run real_dual 2 real.yaml solve.epochs=200 solve.target_gap=1e-6 report.every=10
        run real_bias 4 real.yaml model.bias=yes solve.method=sgd solve.rate=0.2 solve.batch=300 solve.epochs=60 report.every=60
        reaches real_dual "$best" 1e-4
        bounded real_dual "$best"
        reaches real_bias "$biased" 1e-2
        run real_dual_bias 1 real.yaml model.bias=yes model.dtype=f64 solve.epochs=200 solve.target_gap=1e-5 report.every=10
        reaches real_dual_bias "$biased" 2e-5
        holds "a gap of a free bias" "$(of real_dual_bias gap) <= 1e-5"
        if [ -r "$data/abalone/abalone_scale" ]; then
            best=$(exact "$data/abalone/abalone_scale" 0)
            abalone="real.yaml data.train=$data/abalone/abalone_scale data.test=$data/abalone/abalone_scale"
            # shellcheck disable=SC2086
            {
                run abalone 3 $abalone model.dtype=f64 solve.epochs=400 solve.target_gap=1e-5 report.every=10
                # many steps, each of them too small to be seen beside weights of single precision
                run abalone_sgd 1 $abalone solve.method=sgd solve.rate=0.5 solve.batch=4177 solve.epochs=15000 report.every=5000
            }
            reaches abalone "$best" 1e-3
            bounded abalone "$best"
            reaches abalone_sgd "$best" 5e-4
            # the objective is half the mean square, and the regularisation, which is less
            f=$(of abalone objective) half="$(of abalone test_rmse) ^ 2 / 2"
            holds "abalone: rmse" "$half < $f && $half > 0.9 * $f"
        else
            skip "abalone: not in \$TRIREME_DATA"
        fi
    else
        skip "least squares: python3 is not installed"
    fi
fi

# ---- files: several, globs, plain and gzip mixed, indices from 0, labels 0 and 1 ----
if part files; then
    mkdir cut
    split -l 700 dense cut/part-
    gzip cut/part-ab cut/part-ad
    run whole 1 dense.yaml solve.epochs=2
    run glob 3 dense.yaml data.train='cut/part-*' solve.epochs=2
    run listed 2 dense.yaml data.train=cut/part-aa,cut/part-ab.gz,'cut/part-a[c-e]*' solve.epochs=2
    run folders 1 dense.yaml data.train='part-*' data.folders=nowhere,cut solve.epochs=2
    (export TRIREME_DATA=nowhere:$PWD/cut && run variable 1 dense.yaml data.train='part-*' solve.epochs=2) || bad=1
    for folder in glob listed folders variable; do
        for key in rows features nonzeros; do
            [ "$(of $folder $key)" = "$(of whole $key)" ] || fail "$folder: $(of $folder $key) $key, all have $(of whole $key)"
        done
    done
    same_model whole folders
    if [ -r "$data/frappe/frappe.validation.libfm.gz" ]; then
        run frappe 2 dense.yaml data.train="$data/frappe/frappe.validation.libfm.gz" solve.epochs=3
        [ "$(of frappe features) $(of frappe rows) $(of frappe nonzeros)" = "5382 57722 577220" ] ||
            fail "frappe: $(of frappe features) features, $(of frappe rows) rows, $(of frappe nonzeros) non-zeros"
        "$trireme" inspect frappe/model.h5 2>&1 | grep -q 'first has index 0' || fail "frappe: indices from 0 not seen"
    else
        skip "frappe: not in \$TRIREME_DATA"
    fi
    if [ -r "$data/agaricus/agaricus.txt.train" ]; then
        run agaricus 2 dense.yaml data.train="$data/agaricus/agaricus.txt.train" data.test="$data/agaricus/agaricus.txt.test"
        holds "agaricus" "$(of agaricus test_accuracy) >= 0.999 && $(of agaricus test_auc) > 0.9999 && $(of agaricus test_auc) <= 1"
        grep -qx 'label 1 0' agaricus/model.txt || fail "agaricus: labels $(grep label agaricus/model.txt)"
    else
        skip "agaricus: not in \$TRIREME_DATA"
    fi
fi

# ---- what a run leaves behind ----
if part outputs; then
    run run 2 dense.yaml name=first data.test=dense solve.epochs=4
    for key in objective gap test_accuracy test_auc load_seconds train_seconds total_seconds bytes_pulled bytes_pushed \
        peak_rss_bytes epochs rows features nonzeros ranks; do
        holds "summary.json: $key" "$(of run $key) > 0"
    done
    [ "$(of run test_rmse)" = null ] || fail "summary.json: a test_rmse of a classifier"
    [ "$(of run epochs) $(of run rows) $(of run features) $(of run nonzeros)" = "4 3000 8 24000" ] ||
        fail "summary.json: epochs, rows, features or nonzeros"
    for key in layout version job; do
        grep -q "^  \"$key\": [\"{]" run/summary.json || fail "summary.json: no $key"
    done
    if has python3; then
        for file in summary status; do
            python3 -c 'import json, sys; json.load(open(sys.argv[1]))' run/$file.json || fail "$file.json is not JSON"
        done
    fi
    [ "$(head -1 run/metrics.csv)" = "time,epoch,clock,objective,gap,test_metric,bytes_pulled,bytes_pushed,pulls,pushes,\
compute_seconds,wait_seconds,pull_seconds,push_seconds,peak_rss_bytes,updates,training_time" ] || fail "metrics.csv: $(head -1 run/metrics.csv)"
    [ "$(cut -d, -f2 run/metrics.csv | tr '\n' ' ')" = "epoch 1 2 3 4 4 " ] || fail "metrics.csv: other epochs than 1 to 4, and the proof"
    awk -F, '{ if (NF != 17) exit 1 }' run/metrics.csv || fail "metrics.csv: not 17 columns"
    grep -q '"state": "done"' run/status.json && grep -q '"status": 0' run/status.json || fail "status.json: $(cat run/status.json)"
    grep -q '^layout: ' run/log && grep -q '^epoch ' run/log && grep -q '^output: ' run/log || fail "log: $(cat run/log)"
    [ "$(ls run | grep -vxe ranks.json -e log | tr '\n' ' ')" = "job.yaml metrics.csv model.h5 model.txt status.json summary.json " ] ||
        fail "files: $(ls run | tr '\n' ' ')"

    # nothing is overwritten
    cp run/model.txt first.txt
    run run 2 dense.yaml name=second solve.epochs=1
    run run 2 dense.yaml name=third solve.epochs=1 report.progress=auto
    cmp -s first.txt run.1/model.txt || fail "the first run is not in run.1"
    grep -q '"name": "second"' run.2/status.json || fail "the second run is not in run.2"
    grep -q '"name": "third"' run/status.json || fail "the third run is not in run"
    grep -q 'the earlier run in run is now run.2' run.out || fail "not said where the earlier run is: $(cat run.out)"

    # … nor is a folder of the user's own, although a file in it has the name of one of a run
    mkdir own && cp dense.yaml own/job.yaml && echo found >own/notes.txt
    refuses "a user's folder" 73 'none of an earlier run' on 1 "$trireme" train own/job.yaml output=own
    cmp -s dense.yaml own/job.yaml && [ ! -e own.1 ] || fail "the user's folder was changed"
    # … nor a link, which stays one
    mkdir -p far/away && ln -s far/away link
    run link 1 dense.yaml
    run link 1 dense.yaml name=again
    [ -L link ] && grep -q '"name": "again"' far/away/status.json && [ -e far/away.1/model.txt ] ||
        fail "the link or the earlier run behind it is lost: $(ls -l link far)"

    # … nor put aside by what comes to nothing
    refuses "no data" 66 'nothing: no such file' on 2 "$trireme" train dense.yaml output=run data.train=nothing
    grep -q '"name": "third"' run/status.json && [ -e run/model.h5 ] && [ ! -e run.3 ] || fail "a run without data puts a model aside"

    # the job as resolved, from its file alone
    printf 'data: {train: [dense]}\nmodel: {l2: 0.01}\nsync: {mode: bsp}\nseed: 7\n' >resolve.yaml
    run resolved 2 resolve.yaml solve.epochs=5 table.partition=hash
    cp resolved/job.yaml copy.yaml
    run copied 2 copy.yaml
    same_model resolved copied
    grep -q 'partition: hash' copied/job.yaml || fail "job.yaml lost an override"
fi

# ---- bytes: with n workers that all have the 8 keys, each clock pulls and pushes n * 8 numbers; the proof pulls them once more ----
# moved FOLDER PULLED PUSHED
moved() {
    [ "$(of "$1" bytes_pulled) $(of "$1" bytes_pushed)" = "$2 $3" ] ||
        fail "$1: $(of "$1" bytes_pulled) bytes pulled, $(of "$1" bytes_pushed) pushed, expected $2 and $3"
}
if part bytes; then
    run bytes4 4 dense.yaml solve.epochs=5 # one clock an epoch, as it computes little
    moved bytes4 $((4 * 8 * 4 * 6)) $((4 * 8 * 4 * 5))
    run bytes3 3 dense.yaml solve.epochs=5 solve.batch=1000 model.dtype=f64 # three clocks an epoch
    moved bytes3 $((3 * 8 * 8 * 16)) $((3 * 8 * 8 * 15))
    [ "$(cut -d, -f7,8 bytes3/metrics.csv | sed -n 2p)" = "$((3 * 8 * 8 * 3)),$((3 * 8 * 8 * 3))" ] ||
        fail "metrics.csv: bytes $(cut -d, -f7,8 bytes3/metrics.csv | sed -n 2p) after an epoch"
    run bytes_group 4 dense.yaml solve.epochs=5 solve.batch=1000 ranks.group_size=2 data.partition=horizontal # leaders pull, slaves send to them
    moved bytes_group $((2 * 8 * 4 * 15 + 4 * 8 * 4)) $((4 * 8 * 4 * 15))
    # each of 3 servers has keys for all 3 workers; a message is a header of 48 bytes, 8 that say how its values are
    # written, and they; a pull has a header of 48 bytes, its answer one of 16 and the same; zeros are not sent
    if [ -n "$(of bytes4 bytes_pulled)" ]; then
        run bytes_message 3 dense.yaml solve.epochs=5 table.partition=range table.push=message table.route=request
        moved bytes_message $((3 * 6 * (8 * 4 + 3 * (48 + 16 + 8)) - 3 * 8 * 4)) $((3 * 5 * (8 * 4 + 3 * (48 + 8))))
    fi
fi

# ---- every route and way to push: the same objective ----
if part routes; then
    common="solve.epochs=3 solve.batch=1000 report.every=3 table.partition=range"
    # lines FAR: names and settings of all routes and ways to push
    lines() {
        for push in merge accumulate message; do
            [ "$1" ] || echo "load-$push $common table.route=load table.push=$push"
            for route in get request; do
                # the others, one by one, have it all
                [ "$1$route-$push" = get-message ] || [ "$1$route-$push" = request-merge ] ||
                    echo "$1$route-$push $common table.route=$route table.push=$push"
            done
        done
    }
    run_all 3 dense.yaml <<END
auto $common
$(lines "")
hash $common table.storage=hash
END
    { sed '/^ranks:/d' dense.yaml; echo 'ranks: {group_size: 1, node_size: 1}'; } >far.yaml
    run_all 3 far.yaml <<END
$(lines far-)
merge-direct $common table.merge=direct
merge-rounds $common table.merge=rounds
far-hash $common table.storage=hash
END
    for folder in *-merge *-accumulate *-message merge-direct merge-rounds; do
        holds "$folder" "($(of "$folder" objective) - $(of auto objective))^2 < 1e-12 * $(of auto objective)^2"
    done
    same_model hash request-message # a hash map adds the same in the same order
    same_model far-hash request-message
    for merge in direct rounds; do
        # shellcheck disable=SC2086
        run merge-group-$merge 5 dense.yaml $common table.merge=$merge ranks.node_size=2 ranks.servers=2 ranks.groups=1 ranks.group_size=2 data.partition=horizontal
    done
    holds "merge-group" "($(of merge-group-direct objective) - $(of merge-group-rounds objective))^2 < 1e-12 * $(of merge-group-rounds objective)^2"

    # shellcheck disable=SC2086
    "$trireme" train dense.yaml $common table.storage=hash table.route=get output=unfit >unfit.out 2>&1
    [ $? -eq 78 ] && grep -q "table.route: hash storage" unfit.out || fail "table.storage=hash with table.route=get: $(cat unfit.out)"
fi

# A rank that stands still is named by those who wait for it, and once it goes on the job does.
if part patience; then
    $mpirun -n 2 "$trireme" train dense.yaml solve.epochs=1000000 solve.target_gap=0 ranks.patience=0.5 \
        output=patient >patient.out 2>&1 &
    launcher=$!
    until grep -q "^[0-9]" patient/metrics.csv 2>/dev/null || ! kill -0 $launcher; do sleep 0.1; done
    one=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' patient/status.json) # of rank 0
    kill -STOP "$one"
    sleep 3
    kill -CONT "$one"
    kill -TERM $launcher
    wait $launcher
    grep -q "trireme: rank 1 has been waiting [1-9][0-9]* s for " patient.out || fail "patience: nobody said what he waits for"
fi

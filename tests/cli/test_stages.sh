#!/bin/sh
# Stages: variance reduction and growing batches on any number of ranks, degrees of the stages of all models, the table
# at the end, errors.
. "$(dirname "$0")/lib.sh"

# ran FOLDER STAGE WORKERS CLOCKS: the row of the stage in the table
ran() {
    sed -n "s/^$2  *[0-9]*  */ /p" "$1.out" | grep -qE "^ $3 +$4 +[0-9.]+ +[0-9.]+ " ||
        fail "$1: $2 is not said to have had $3 workers for $4 clocks: $(grep -A9 '^stage ' "$1.out")"
}
# at_once FOLDER STAGE MOST: by the timeline no more ranks than that have been in the stage at a time
at_once() {
    grep -o "\"stage\": \"$2\", \"begin\": [0-9.]*, \"end\": [0-9.]*" "$1/summary.json" |
        awk '{ sub(",", "", $4); print $4, 1; print $6, -1 }' | sort -k1,1n -k2,2n |
        awk -v most="$3" '{ n += $2; if (n > top) top = n } END { exit !(NR > 0 && top <= most) }' ||
        fail "$1: more than $3 at a time in stage $2, or none"
}
# best FOLDER: the objective is the least there is
best() { near "$(of "$1" objective)" "$optimum" "$(awk "BEGIN { print 1e-6 * $optimum }")" ||
    fail "$1: objective $(of "$1" objective), the least is $optimum"; }

dense_rows 1500 5 >rows
printf 'data: {train: rows}\nmodel: {l2: 1e-3, dtype: f64}\nsolve: {epochs: 36, method: svrg}\n' >job.yaml
run dual 1 job.yaml solve.method=dual solve.epochs=500 solve.target_gap=1e-9
optimum=$(of dual objective)

# ---- variance reduction, wherever it runs ----
sed '$aranks: {node_size: 2}' job.yaml >nodes.yaml
run_all 1 job.yaml <<END
svrg-1 stages.inner.parallelism=all
$(for method in svrg svrg++ katyusha; do
    name=$(echo $method | tr + -) local="solve.method=$method solve.epochs=9 local.chunk=1"
    echo "integral-$name $local"
    echo "demand-$name $local local.model=demand"
    echo "small-$name $local local.model=demand local.memory=100 local.replace=fifo"
done)
END
run_all 2 job.yaml <<END
svrg
plusplus solve.method=svrg++
katyusha solve.method=katyusha
again
grown solve.method=growing solve.epochs=3
even solve.method=sgd solve.epochs=3 solve.rate=0.1
END
run_all 3 job.yaml <<END
$(for race in chunk atomic none; do
    echo "raced-$race stages.inner.parallelism=all local.model=demand local.memory=140 local.chunk=1 sync.race=$race solve.epochs=6"
done)
once stages.inner.parallelism=1
twice stages.inner.parallelism=1
END
run_all 4 job.yaml <<END
searched stages.full.parallelism=auto stages.inner.parallelism=auto
legs solve.method=growing solve.epochs=9 report.every=2 stages.phase-3.clocks=7
$(for method in svrg growing; do echo "tested-$method solve.method=$method data.test=rows model.l2=0.1"; done)
END
run_all 4 nodes.yaml <<END
nodes-svrg
nodes-odd stages.full.parallelism=3
moves-integral solve.method=katyusha local.model=integral
moves-demand solve.method=katyusha local.model=demand
END
run svrg-5 5 job.yaml stages.inner.parallelism=all
for name in svrg plusplus katyusha svrg-1 svrg-5 searched nodes-svrg nodes-odd moves-integral moves-demand; do best $name; done
# the stages take turns: each begins before the other has ended, the first at 0
sed -n 's/.*"name": "\([a-z]*\)".*"begin_seconds": \([^,]*\), "end_seconds": \([^,]*\), "seconds": \([^,]*\),.*/\1 \2 \3 \4/p' svrg-5/summary.json >stages
awk '{ begin[$1] = $2; end[$1] = $3; if ($3 - $2 < $4 - 1e-6) exit 1 }
    END { exit !(begin["full"] == 0 && begin["inner"] > 0 && begin["inner"] < end["full"]) }' stages ||
    fail "stages in time: $(cat stages)"
ran svrg full 2 13
ran svrg inner 1 12
ran svrg-5 inner 5 12
ran nodes-svrg full 4 13
ran nodes-odd full 3 13
at_once nodes-odd full 3
says searched.out '^  *auto: '

# ---- the replica that inner stages step on: the same bits, whatever the node holds of it at once ----
for method in svrg svrg-- katyusha; do
    for way in demand small; do same_model integral-$method $way-$method; done
    holds "$method: evicted" "$(of demand-$method local_chunks_evicted) == 0 && $(of small-$method local_chunks_evicted) > 100"
    holds "$method: written" "$(of small-$method local_bytes_written) > 0 && $(of integral-$method local_chunks_fetched) > 0"
done
for race in chunk atomic none; do holds "$race on demand" "$(of raced-$race objective) < $optimum * 1.1"; done
holds "directly from node to node" "$(of moves-integral local_bytes_moved) > 0 && $(of moves-demand local_bytes_moved) == 0"
refuses "too little memory" 78 "local.memory is 100 bytes, but the whole of table w takes" "$trireme" train job.yaml output=no \
    report.progress=no local.memory=100

refuses "less than a chunk" 78 "local.memory is 8 bytes, but one chunk of table w takes 28: raise it" "$trireme" train job.yaml output=no \
    report.progress=no local.model=demand local.memory=8 local.chunk=3

# with one worker at a time that changes the model, and the same order of sums, runs are the same
same_model svrg again
same_model once twice

# ---- growing batches ----
holds "growing after as many passes" "$(of grown objective) < $(of even objective)"
[ "$(of grown epochs)" = 3 ] || fail "growing: $(of grown epochs) passes"
ran grown evaluate 2 3
# grow MODEL RANKS [SETTING]: in two phases, and as on one rank
grow() {
    into="$1-$2${3:+-nodes}"
    run "$into" "$2" job.yaml solve.method=growing model.type=$1 solve.epochs=4 solve.phases=2 solve.batch=50 solve.growth=3 \
        stages.phase-1.parallelism=1 stages.phase-2.parallelism=all ${3:-} || return
    holds "$into: as on one rank" "($(of "$into" objective) / $(of $1-1 objective) - 1)^2 < 0.05^2"
}
for model in linear svm; do grow $model 1 && grow $model 5; done
grow svm 8 && ran svm-8 phase-1 1 60 && ran svm-8 phase-2 8 20
grow svm 4 ranks.node_size=2 && ran svm-4-nodes phase-1 1 60 && at_once svm-4-nodes phase-1 1 && ran svm-4-nodes phase-2 4 20
says grown.out '^  *auto: '
# evaluated every other pass, and a last phase of so many mini-batches
holds legs "$(of legs objective) < $(of grown objective) * 1.05"
[ "$(wc -l <legs/metrics.csv)" -eq 6 ] || fail "legs: $(cat legs/metrics.csv)"
run goal 2 job.yaml solve.method=growing solve.epochs=15 solve.target="$(of grown objective)" report.every=1
holds goal "$(of goal epochs) < 15"

# servers of a stage, and what it leaves open
run served 4 job.yaml solve.method=growing solve.epochs=3 stages.phase-2.servers=1 stages.phase-3.servers=3 stages.phase-3.clocks=12
holds "served: the objective" "$(of served objective) < $(of grown objective) * 1.05"
says served.out '^  *auto: '
refuses "servers that are not there" 78 "stages.phase-2.servers is 2, but there are 1 servers" "$trireme" train job.yaml output=no \
    report.progress=no solve.method=growing stages.phase-2.servers=2

# ---- test data ----
for method in svrg growing; do
    "$trireme" evaluate tested-$method rows >evaluated 2>&1 || fail "tested-$method: not evaluated: $(cat evaluated)"
    grep -q "$(of tested-$method test_auc | cut -c1-6)" evaluated || fail "tested-$method: area $(of tested-$method test_auc): $(cat evaluated)"
done

# ---- stages of all models: so many workers at a time, and the same model ----
clusters="$jobs/kmeans.yaml data.folders=$jobs/../datasets solve.epochs=4"
"$trireme" generate ratings -o ratings users=60 items=40 ratings=600 >/dev/null 2>&1 || fail "no ratings"
"$trireme" generate docword -o bag documents=40 words=60 tokens=2k >/dev/null 2>&1 || fail "no documents"
printf 'model: {type: mf, rank: 4}\nsolve: {epochs: 2}\ndata: {train: ratings, test: ratings}\n' >mf.yaml
printf 'model: {type: lda, topics: 4}\nsolve: {epochs: 11, optimize_every: 5}\nreport: {every: 10}\ndata: {train: bag}\n' >lda.yaml
# in_turns NAME DEGREE JOB STAGES SETTING…: on four ranks, without a word of stages, and with so many workers at a time
in_turns() {
    name=$1 degree=$2 file=$3 stages=$4; shift 4
    run_all 4 $file <<END
$name $*
$name-$degree $* $(for stage in $stages; do echo "stages.$stage.parallelism=$degree"; done | tr '\n' ' ')
END
    is "$name-$degree: objective" "$(of "$name-$degree" objective)" "$(of "$name" objective)"
    for stage in $stages; do
        at_once "$name-$degree" "$stage" $degree
        grep -qE "^$stage +[0-9]+ +$degree " "$name-$degree.out" || fail "$name-$degree: $stage is not in the table"
    done
}
sed '$aranks: {node_size: 3}' "$jobs/kmeans.yaml" | sed "s|^data:|&\\n  folders: [$jobs/../datasets]|" >clusters.yaml
in_turns clusters 1 clusters.yaml "start assign update evaluate" solve.epochs=4
# start is over when assign begins, and the other three follow each other until the end
sed -n 's/.*"name": "\([a-z]*\)".*"begin_seconds": \([^,]*\), "end_seconds": \([^,]*\), .*/\1 \2 \3/p' clusters-1/summary.json |
    awk '{ begin[$1] = $2; end[$1] = $3 } END { exit !(begin["start"] == 0 && end["start"] > 0 && end["start"] <= begin["assign"] && begin["assign"] < begin["update"] &&
        end["assign"] > begin["update"] && end["evaluate"] > end["update"]) }' ||
    fail "clusters-1: begins and ends of stages: $(grep begin_seconds clusters-1/summary.json)"
in_turns als 3 mf.yaml "users items evaluate" solve.method=als
in_turns rotated 1 mf.yaml "rotate evaluate"
in_turns topics 3 lda.yaml "sample priors evaluate"
in_turns newton 1 job.yaml gradient solve.method=newton
in_turns descent 1 job.yaml gradient solve.method=descent model.l1=1e-3 model.l2=0
# the ranks of a host share one time: an hour more in the clock of rank 1 alone is in no span
{ head -c 16 /dev/zero; printf '\020\016\0\0\0\0\0\0'; } >clock
TR_CLOCK="$here/clock" LD_PRELOAD="$(dirname "$trireme")/tests/jump_clock.so" run hour 2 job.yaml solve.method=newton
holds "an hour in one clock" "$(grep -o '"begin": [0-9.]*' hour/summary.json | sort -k2,2n | sed -n 's/.* //;1p;$p' | tr '\n' ' ' |
    awk '{ print $2 - $1 < 1000 }') == 1"
in_turns shared 2 job.yaml "gradient evaluate" solve.method=dual sync.mode=bsp
in_turns steps 1 job.yaml "gradient evaluate" solve.method=sgd solve.rate=0.1 solve.epochs=1 solve.batch=500
if command -v python3 >/dev/null; then
    [ "$("$jobs/../tools/gantt" clusters-1 60 | grep -c '^[0-3] ')" -eq 4 ] || fail "gantt: $("$jobs/../tools/gantt" clusters-1 60)"
    "$jobs/../tools/gantt" clusters-1 | grep -q 'A start, B assign' || fail "gantt: no stages"
    mkdir drawn # one works for four seconds, the other for the first and the last of them
    printf '{"timeline": [{"rank": 0, "stage": "a", "begin": 0, "end": 4}, {"rank": 1, "stage": "a", "begin": 0, "end": 1}, {"rank": 1, "stage": "b", "begin": 3, "end": 4}]}' >drawn/summary.json
    "$jobs/../tools/gantt" drawn 8 2 | tail -n 1 | grep -q '^1.50 ranks at work in the mean; 2 cores idle for 25.0% of the time$' || fail "gantt: $("$jobs/../tools/gantt" drawn 8 2)"
fi
run found 4 $clusters stages.assign.parallelism=auto && says found.out '^  *auto: '
[ "$(of found objective)" = "$(of clusters objective)" ] || fail "found: another objective"
# a worker that fails in its turn takes nobody along for ever
on 3 "$trireme" train job.yaml output=no solve.method=sgd solve.rate=1e30 stages.gradient.parallelism=1 >said 2>&1
[ $? -eq 76 ] || fail "diverging in turns: $(tail -2 said)"

# ---- degrees that cannot be ----
# never RANKS WORDS JOB SETTING…
never() { ranks=$1 words=$2; shift 2; refuses "$*" 78 "$words" on $ranks "$trireme" train "$@" report.progress=no output=no; }
never 2 "stages.full.parallelism is 6, but there are 2 workers" job.yaml stages.full.parallelism=6
never 2 "stages.phase-2.parallelism is 9, but there are 2 workers" job.yaml solve.method=growing stages.phase-2.parallelism=9
never 2 "stages.assign.parallelism is 3, but there are 2 workers" $clusters stages.assign.parallelism=3
never 4 "stages.inner.parallelism is 3, but there are 2 workers on a node" job.yaml ranks.node_size=2 stages.inner.parallelism=3
for size in 1 4; do
    never 4 "needs the workers of a node in one group, which has no others" job.yaml ranks.node_size=2 ranks.group_size=$size
done
never 2 "not for data.partition vertical" job.yaml solve.method=sgd data.partition=vertical stages.gradient.parallelism=1
expect 78 "workers take turns in stage gradient: expected sync.mode bsp" train job.yaml solve.method=sgd sync.mode=asp stages.gradient.parallelism=1
expect 78 "clocks are of no use" train job.yaml stages.full.clocks=2
expect 78 "local.replace is of no use" train job.yaml local.replace=fifo
expect 78 "local.memory is of no use" train job.yaml solve.method=growing local.memory=1M
expect 78 "stages.assign.clocks is of no use to solve.method lloyd" train $clusters stages.assign.clocks=3
expect 78 "stages.assign.servers is of no use to solve.method lloyd: its stages have parallelism alone" train $clusters stages.assign.servers=1
expect 78 "unknown key stages.assign.priority: did you mean tasks.NAME.priority?" train $clusters stages.assign.priority=1
expect 78 "unknown key stages.assign.consistency: did you mean sync.mode?" train $clusters stages.assign.consistency=ssp
expect 78 "unknown key tasks.a.stages.assign.priority: did you mean tasks.a.priority?" train $clusters tasks.a.stages.assign.priority=1
expect 78 "unknown key stages.assign.rate" train $clusters stages.assign.rate=1
expect 78 "unknown stage asign: did you mean assign?" train $clusters stages.asign.parallelism=1

# ---- what is refused ----
expect 78 'does not minimise the loss of model.type svm' train job.yaml output=no model.type=svm
expect 78 'table.precision: full' train job.yaml output=no table.precision=f16
expect 78 'expected sync.mode bsp' train job.yaml output=no sync.mode=ssp
expect 78 'expected sync.mode bsp' train job.yaml output=no solve.method=growing sync.mode=asp
expect 78 'expected data.partition replicated' train job.yaml output=no solve.method=growing data.partition=horizontal
expect 78 'sync.weight and solve.optimizer are for' train job.yaml output=no solve.method=growing solve.optimizer=adam
expect 78 'solve.phases is 65' train job.yaml output=no solve.method=growing solve.phases=65
cp job.yaml good.yaml
printf 'stages:\n  fill: {parallelism: 2}\n' >>job.yaml
expect 78 'job.yaml:5: unknown stage fill: did you mean full?' train job.yaml output=no
expect 78 'job.yaml:5: unknown stage fill' train job.yaml output=no solve.method=growing
expect 78 'job.yaml:5: unknown stage fill: the method has gradient, evaluate' train job.yaml output=no solve.method=sgd
mv good.yaml job.yaml

# ---- the job that shows it ----
if [ -r "$data/a9a/a9a.gz" ]; then
    run shown 4 "$jobs/svrg.yaml" model.bias=no data.folders="$data" stages.full.parallelism=4
    near "$(of shown objective)" 0.323379562 3e-7 || fail "shown: $(of shown objective)"
    ran shown full 4 21
else
    skip "jobs/svrg.yaml: no \$TRIREME_DATA/a9a"
fi

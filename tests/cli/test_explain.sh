#!/bin/sh
# The output of train: --explain, on a terminal, without progress; and the memory that a job announces.
. "$(dirname "$0")/lib.sh"
unset OMPI_MCA_osc OMPI_MCA_pml

check generate "$trireme" generate ctr -o train.svm rows=2000 features=500 nonzeros=10
printf 'data: {train: train.svm}\nsolve: {method: dual, epochs: 2}\n' >job.yaml

# run RANKS WORD...: trains, and keeps what is said in the file said
run() {
    ranks=$1
    shift
    on "$ranks" "$trireme" train job.yaml "$@" >said 2>&1
    got=$?
    [ "$got" = 0 ] || fail "$ranks ranks, train $*: exit $got: $(cat said)"
}

# says PATTERN, says_not PATTERN: about the last run
says() { grep -q -- "$1" said || fail "train $words: lacks «$1»: $(cat said)"; }
says_not() { ! grep -q -- "$1" said || fail "train $words: says «$1»: $(cat said)"; }

# explains RANKS PATTERN WORD...: with these settings, a line of --explain matches
explains() {
    ranks=$1 pattern=$2
    shift 2
    words="$*"
    run "$ranks" --explain report.progress=no "$@"
    says "^explain: .*$pattern"
}

# routes and ways, forced and chosen; ranks.node_size makes two nodes of this machine
explains 2 'view of table w, .*route 2 load; way merge; no keys registered; 2 workers' table.route=load
explains 2 'route 2 get' table.route=get
says 'table w: .*an RMA window'
explains 2 'route 2 request; .*all keys registered' table.route=request
explains 4 'route 2 load, 2 request' ranks.node_size=2 table.route=auto table.partition=hash
explains 2 'way 2 message' table.push=message
says 'table w: updates not merged'
explains 2 'way 2 add' table.push=accumulate
explains 2 'way 2 add' sync.mode=ssp

# merging
explains 2 'table w: updates merged near' table.merge=auto
explains 2 'table w: updates merged direct' table.merge=direct
explains 3 'table w: updates merged in rounds of degree 2' table.merge=rounds
explains 5 'table w: updates merged in rounds of degree 2' table.merge=rounds ranks.layout=dedicated

check ratings "$trireme" generate ratings -o ratings users=300 items=200 ratings=6k
# ranks on processors that differ use what all of them have, and come to the same factors
als="train data.train=ratings data.format=ratings model.type=mf solve.method=als model.rank=16 solve.epochs=2 ranks.node_size=1 --explain"
words=mixed
# (one command for both: mpirun of Open MPI 5.0.7 on Debian 13 crashes where there are two)
# shellcheck disable=SC2016,SC2086
timeout $patience mpirun $quiet --oversubscribe -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export TRIREME_CPU=plain; exec "$@"' \
    sh "$trireme" $als output=cpu-mixed >said 2>&1 || fail "mixed: $(cat said)"
says 'explain: kernels of plain, as all ranks can use them'
# shellcheck disable=SC2086
TRIREME_CPU=plain on 2 "$trireme" $als output=cpu-plain >said 2>&1 || fail "plain: $(cat said)"
for cpu in cpu-mixed cpu-plain; do h5dump -d items $cpu/model.h5 | tail -n +2 >$cpu.items; done
[ -s cpu-plain.items ] && cmp -s cpu-mixed.items cpu-plain.items || fail "ranks on processors that differ have other factors"

# several groups pull and push blocks of items: these lie on a few of the servers, not a row on each
words="blocks of items"
on 8 "$trireme" train data.train=ratings data.format=ratings model.type=mf ranks.node_size=1 \
    ranks.group_size=2 ranks.groups=4 solve.epochs=1 output=blocks --explain >said 2>&1 || fail "blocks: $(cat said)"
says 'view of table items, update: .* [34] without keys'

# als: rows that are read after each update come behind it, unless the job says how they are to be read
als_rows() { explains 4 "table $1: updates merged direct, in 1 chunks a clock$2; an RMA window" data.train=ratings data.format=ratings model.type=mf \
    solve.method=als model.rank=8 solve.epochs=2 ranks.node_size="$3" table.route="$4"; }
mv job.yaml dual.yaml
echo 'name: als' >job.yaml
for table in users items; do
    als_rows $table '; rows come behind that direct' 1 auto
    als_rows $table '; rows come behind that direct' 2 auto
    als_rows $table '' 1 request
done
mv dual.yaml job.yaml

# every class of models reads and pushes one-sided where the job says so, as MPI's calls show (the clock has
# calls of its own, without requests); rows of factors, too, which als
# asks for in many small parts
check words "$trireme" generate docword -o words documents=60 words=200 tokens=6k topics=5
check dense "$trireme" generate dense -o dense rows=400 columns=6 clusters=4
# one_sided GETS SETTING…: on two nodes of two ranks there are at least so many gets, and accumulates
one_sided() {
    least=$1
    shift
    rm -f calls.*
    TR_CALLS=$here/calls timeout $patience mpirun $quiet --oversubscribe -n 4 -x TR_CALLS -x LD_PRELOAD="$(dirname "$trireme")/tests/count_calls.so" \
        "$trireme" train none.yaml ranks.node_size=2 table.route=get table.push=accumulate report.progress=no "$@" >said 2>&1 ||
        fail "one-sided: $*: $(cat said)"
    gets=$(cat calls.* | awk '$1 == "MPI_Rget" { n += $2 } END { print n + 0 }') adds=$(cat calls.* | awk '$1 == "MPI_Raccumulate" { n += $2 } END { print n + 0 }')
    [ "$gets" -ge "$least" ] && [ "$adds" -gt 0 ] || fail "one-sided: $*: $gets gets, $adds accumulates"
}
echo 'name: one-sided' >none.yaml
if [ -z "$sanitized" ]; then # which wants to be the first library itself
    one_sided 1 data.train=train.svm model.type=logistic solve.method=sgd solve.rate=1 solve.epochs=2
    one_sided 1 data.train=dense model.type=kmeans model.clusters=4 solve.epochs=2
    one_sided 1 data.train=ratings model.type=mf model.rank=8 solve.epochs=2 ranks.groups=2
    # all workers read once more of all servers, and twice the bias alone, to settle it behind dual coordinate descent
    dual="data.train=train.svm model.type=logistic solve.method=dual solve.epochs=2 solve.target_gap=0 table.share_pulls=no"
    one_sided 1 $dual model.bias_l2=yes
    plain=$gets
    one_sided 1 $dual model.bias_l2=no
    [ $((gets - plain)) -le 24 ] || fail "the bias: $gets gets, without $plain"
    one_sided 150 data.train=ratings model.type=mf model.rank=8 solve.method=als solve.epochs=2 table.row_bytes=1024
    one_sided 1 data.train=words model.type=lda model.topics=4 solve.epochs=2 ranks.groups=2
fi

# parameters that rotate do so over all nodes; topics within each, if all have several ranks
words="rotating over nodes"
mv job.yaml dual.yaml
echo "solve: {epochs: 2}" >job.yaml
run 4 ranks.node_size=2 data.train=ratings model.type=mf
says '^layout: .*colocated: 4 ranks on 2 nodes: 4 servers, 1 group of 4$'
run 4 ranks.node_size=2 data.train=words model.type=lda --explain
says '^layout: .*colocated: 4 ranks on 2 nodes: 4 servers, 2 groups of 2$'
says '^explain: ranks 2-3 on node 1 (.*): servers, workers of group 1$'
run 4 ranks.node_size=1 data.train=words model.type=lda
says '^layout: .*colocated: 4 ranks on 4 nodes: 4 servers, 1 group of 4$'
# … and, between nodes, go round as often in an epoch as an item has 150 ratings and more in each visit: here 157, or 144
for items in 430 470; do
    check "$items items" "$trireme" generate ratings -o many users=5000 items=$items ratings=270k
    run 2 ranks.node_size=1 data.train=many model.type=mf model.rank=4 output=rotate-$items
done
[ "$(of rotate-430 rotations_per_clock) $(of rotate-470 rotations_per_clock)" = "2 1" ] ||
    fail "rotations of an epoch: $(of rotate-430 rotations_per_clock), $(of rotate-470 rotations_per_clock), expected 2, 1"
mv dual.yaml job.yaml

# the rest: settings, layout, tables, and all of it before the first epoch
words=--explain
run 5 --explain ranks.servers=2
says '^explain: MPI setting OMPI_MCA_osc=^ucx made by trireme'
says '^explain: rank 0 on node 0 (.*): scheduler$'
says '^explain: ranks 1-2 on node 0 (.*): servers$'
says '^explain: ranks 3-4 on node 0 (.*): workers of groups 0-1$'
says '^explain: table w: [0-9]* keys of 1 f32, [0-9]* to [0-9]* bytes a server$'
says '^explain: table w: partition range-hash, [0-9]* blocks of size [0-9]* (keys) over 2 servers'
sed '/^epoch/,$d' said | grep -q '^explain: view of table w' || fail "views are explained too late: $(cat said)"
OMPI_MCA_osc='^ucx,pt2pt' run 2 --explain
says_not 'OMPI_MCA_osc='
run 1 --explain
says 'rank 0 on node 0 (.*): scheduler, server, worker of group 0$'

# without it nothing is explained; plain lines can be grepped
words="without --explain"
run 2
says_not explain
says '^layout: .*colocated: 2 ranks on 1 node'
says '^training data: 2000 rows, 500 features, '
says '^epoch 1.00 .* objective [0-9.]* .*gap [~0-9-]'
says '^output: .*runs/job'
words=report.progress=no
run 2 report.progress=no
[ ! -s said ] || fail "report.progress=no says $(cat said)"
timeout $patience mpirun $quiet -n 2 "$trireme" train job.yaml report.progress=no data.train=nowhere.svm >said 2>&1
no_notices said
[ "$(grep -c '' said)" = 1 ] || fail "an error with report.progress=no: $(cat said)"
says '^trireme: error: '

# a terminal at the other end of mpirun gets the table, without carriage returns but the terminal's own
if command -v script >/dev/null; then
    words="at a terminal"
    launch="timeout $patience mpirun $quiet --oversubscribe -n 2 '$trireme' train job.yaml"
    script -qc "$launch" said >/dev/null 2>&1 </dev/null
    says '^ *epoch  *time  *objective'
    says_not '^epoch 1.00'
    sed 's/\r$//' said | tr -d '\n' | grep -q "$(printf '\r')" && fail "carriage returns: $(cat -A said)"
    script -qc "$launch 2>plain" /dev/null >/dev/null 2>&1 </dev/null
    mv plain said
    says '^epoch 1.00'
fi
# ---- what a job says it will take of memory, it takes ----
unset MALLOC_PERTURB_ # with which memory that nobody has written to is taken, too
# takes RANKS NAME WORD…: the fullest rank as much as is said; all together no less than that
takes() {
    ranks=$1 name="$2, $1 ranks"; shift 2
    run $ranks solve.epochs=${epochs:-1} output=took "$@"
    asked=$(sed -n 's/^memory: *about \([0-9.]*\) MB a rank.*/\1/p' said) peak=$(of took peak_rss_bytes)
    node=$(sed -n 's/^memory: .* a rank, \([0-9.]*\) MB a node.*/\1/p' said)
    [ "$sanitized" ] || holds "$name: said $asked MB, took $peak bytes" "$asked * 1e6 > 0.8 * $peak && $asked * 1e6 < 1.25 * $peak"
    holds "$name: said $asked MB a rank, $node MB a node" "$node >= $asked && $node <= $ranks * $asked"
}
check wide "$trireme" generate ctr -o wide.svm rows=20k features=1M nonzeros=30
check long "$trireme" generate ctr -o long.svm rows=60k features=1M nonzeros=50
check sparse "$trireme" generate ctr -o sparse.svm rows=20k features=100k nonzeros=50
check rates "$trireme" generate ratings -o rates users=100k items=20k ratings=2M
check words "$trireme" generate docword -o words documents=20k words=20k
check "many words" "$trireme" generate docword -o many documents=2k words=2M
check events "$trireme" generate events -o events.csv rows=200k
check dense "$trireme" generate dense -o dense.csv rows=200k columns=50
for ranks in 1 2; do
    for method in newton svrg katyusha dual sgd; do
        case $method in dual | sgd) epochs=1 ;; *) epochs=3 ;; esac
        takes $ranks $method data.train=wide.svm data.features=1000000 solve.method=$method
    done
    epochs=1; takes $ranks growing data.train=long.svm data.features=1000000 solve.method=growing
    epochs=3; takes $ranks descent data.train=long.svm solve.method=descent model.l1=0.001
    epochs=1
done
takes 4 growing data.train=wide.svm data.features=1000000 solve.method=growing
echo "name: others" >job.yaml
for ranks in 1 2; do
    takes $ranks "mf sgd" data.train=rates data.format=ratings model.type=mf model.rank=48 solve.method=sgd
    takes $ranks "mf als" data.train=rates data.format=ratings model.type=mf model.rank=48 solve.method=als
    takes $ranks lda data.train=words data.format=docword model.type=lda model.topics=200
    takes $ranks trees data.train=events.csv model.type=trees
    takes $ranks "sparse trees" data.train=sparse.svm data.format=libsvm model.type=trees
    takes $ranks kmeans data.train=dense.csv model.type=kmeans model.clusters=20
    takes $ranks "sparse kmeans" data.train=sparse.svm data.format=libsvm model.type=kmeans model.clusters=10
done
# … of several groups each has all topics, and every rank lists on which servers words lie
lda="data.train=words data.format=docword model.type=lda model.topics=200 ranks.groups=2"
takes 4 "lda of two groups" $lda
takes 4 "lda of two nodes" $lda ranks.node_size=2
takes 2 "lda of many words" $lda data.train=many
listed=$asked
takes 2 "lda of many words, not listed" $lda data.train=many table.partition=range
holds "a list of words" "$listed - $asked > 20 && $listed - $asked < 28"

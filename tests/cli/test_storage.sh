#!/bin/sh
# Rows on a disk (data.storage): the same models as with rows in memory; the next start finds the rows if they are
# complete.
. "$(dirname "$0")/lib.sh"

"$trireme" generate ctr -o train.svm rows=20k features=4k nonzeros=10 >/dev/null 2>&1 || fail "generate"
"$trireme" generate ctr -o test.svm rows=4k features=4k nonzeros=10 seed=2 >/dev/null 2>&1 || fail "generate"
cat >job.yaml <<'END2'
data: {train: train.svm, test: test.svm, order: dealt}
model: {type: logistic, l2: 0.001}
solve: {method: newton, epochs: 6, target_gap: 0}
sync: {mode: bsp}
checkpoint: {every: no}
END2
sed 's/, target_gap: 0//' job.yaml >sgd.yaml
mkdir scratch
disk="data.storage=disk data.scratch=scratch data.memory=512K"

# same A B: the two runs have come to the same, bit for bit
same() {
    is "$1 and $2: objective" "$(of "$1" objective)" "$(of "$2" objective)"
    is "$1 and $2: accuracy" "$(of "$1" test_accuracy)" "$(of "$2" test_accuracy)"
}

# ---- the same model, with few rows in memory ----
for ranks in 1 2; do
    for method in newton dual sgd; do
        job="job.yaml solve.method=$method data.partition=horizontal"
        [ $method = sgd ] && job="sgd.yaml solve.method=sgd solve.rate=0.5"
        memory=m-$method-$ranks on_disk=d-$method-$ranks
        run $memory $ranks $job
        run $on_disk $ranks $job $disk
        says $on_disk.out "written to disk"
        holds "$on_disk: some rows in memory" "$(of $on_disk data_memory_bytes) < 0.8 * $(of $on_disk data_disk_bytes)"
        holds "$on_disk: read again each epoch" "$(of $on_disk data_read_bytes) > 2 * $(of $on_disk data_disk_bytes)"
        holds "$on_disk: no more often" "$(of $on_disk data_read_bytes) < 20 * $(of $on_disk data_disk_bytes)"
        near "$(of $memory objective)" "$(of $on_disk objective)" 0.01 || fail "$on_disk: $(of $on_disk objective)"
        is "$on_disk: the system's cache keeps it" "$(of $on_disk data_dropped_bytes)" 0
        mv $on_disk first
        run $on_disk $ranks $job $disk # finds what the first has written
        says $on_disk.out "training data.*found on disk"
        same first $on_disk
        rm -rf first
    done
    same m-newton-$ranks d-newton-$ranks
done

# ---- tables, as text and as HDF5, and K-means ----
awk 'BEGIN { srand(4); for (i = 0; i < 8000; i++) {
    a = rand(); b = rand(); printf "%.4f,%.4f,%.4f,%d\n", a, b, rand(), (a + b + rand() / 4 > 1) } }' >table.csv
"$trireme" convert table.csv table.h5 >/dev/null 2>&1 && "$trireme" convert train.svm train.h5 >/dev/null 2>&1 || fail "convert"
for pair in table.csv:newton table.csv:dual table.csv:sgd table.h5:newton train.h5:newton; do
    source=${pair%:*} method=${pair#*:}
    job="data.train=$source data.order=file data.scale=none model.type=logistic model.l2=0.001 solve.method=$method solve.epochs=3"
    run m-$pair 1 $job
    run d-$pair 1 $job $disk
    near "$(of m-$pair objective)" "$(of d-$pair objective)" 0.01 || fail "$pair: $(of m-$pair objective) in memory, $(of d-$pair objective) on disk"
    [ $method != newton ] || is "$pair: objective" "$(of d-$pair objective)" "$(of m-$pair objective)"
done
for pair in table.csv:lloyd train.svm:minibatch; do
    job="data.train=${pair%:*} data.order=file model.type=kmeans model.clusters=3 solve.method=${pair#*:} solve.epochs=3"
    run m-$pair 2 $job
    run d-$pair 2 $job $disk
    for folder in m d; do
        "$trireme" inspect $folder-$pair/model.h5 --top 5 | sed -n '/centre  /,/^$/p' >$folder.centres
    done
    cmp m.centres d.centres && [ -s d.centres ] || fail "$pair: other centres on disk"
done

# ---- the system's cache has no room: each pass reads the disk ----
export TRIREME_FAULT=data.room=enospc:1
run crowded 1 job.yaml $disk
unset TRIREME_FAULT
holds "crowded: forgotten" "$(of crowded data_dropped_bytes) > $(of crowded data_disk_bytes)"
same crowded d-newton-1

# ---- as much as there is room for ----
run some 1 job.yaml data.storage=memory_disk data.scratch=scratch data.memory=1300K
holds "some: in memory" "$(of some data_memory_bytes) < 1300 * 1024 + $(of d-newton-1 data_memory_bytes)"
holds "some: stays there" "$(of some data_read_bytes) < 0.8 * $(of d-newton-1 data_read_bytes)"
same some d-newton-1
run all 1 job.yaml data.storage=memory_disk data.scratch=scratch data.memory=1G
holds "all: read once" "$(of all data_read_bytes) <= 2 * $(of all data_disk_bytes)"

# ---- killed while text becomes rows, or while these are summed: read again ----
for point in data.spill cache.sum; do
    killed=killed-$point
    TRIREME_FAULT="$point:#1" timeout $patience "$trireme" train job.yaml output=$killed $disk >killed.out 2>&1
    is "$point: exit" $? 137
    run $killed 1 job.yaml $disk
    says $killed.out "training data.*written to disk"
    same $killed d-newton-1
done

# ---- killed in an epoch: goes on with the rows that are there, and comes to the same ----
sed "s/every: no/every: 1 clocks/" job.yaml >slow.yaml
slow="slow.yaml solve.method=dual $disk"
run whole 2 $slow
TRIREME_FAULT="clock@1:#4" on 2 "$trireme" train $slow output=again >again.out 2>&1 && fail "again: not killed"
run again 2 $slow
says again.out "found on disk"
same whole again

# ---- damaged: said by name, and read again by the next start ----
run bad 1 job.yaml $disk
file=$(grep -l "$here/bad\$" scratch/*/owner | head -1)
file=${file%/owner}/data/training-0.rows
printf 'XXXXXXXX' | dd of="$file" bs=1 seek=200000 conv=notrunc 2>/dev/null
refuses "damaged" 65 "damaged" "$trireme" train job.yaml output=bad $disk report.progress=no
run bad 1 job.yaml $disk
says bad.out "training data.*written to disk"
same bad d-newton-1

# ---- what does not fit is known before: refused with what to set, or on the disk where there is one ----
head -100 train.svm >huge.svm && truncate -s 10T huge.svm
refuses "huge" 78 "set data.storage: disk and data.scratch" \
    "$trireme" train job.yaml data.train=huge.svm output=huge report.progress=no
refuses "huge for descent" 78 ": use more nodes" \
    "$trireme" train data.train=huge.svm solve.method=descent model.l1=0.1 output=huge report.progress=no
TRIREME_FAULT=load:#1 on 2 "$trireme" train job.yaml data.train=huge.svm \
    solve.method=dual data.scratch=scratch output=huge >huge.out 2>&1 # though dual has its rows on all ranks of a host otherwise
says huge.out "memory_disk, in scratch"
run auto 2 job.yaml data.storage=auto data.scratch=scratch
is "auto: on disk" "$(of auto data_disk_bytes)" ""
same auto m-newton-2

# ---- no room, no folder, no use ----
refuses "full" 74 "MB there for its training data" env TRIREME_FAULT=cache.room=enospc:#3 \
    "$trireme" train job.yaml output=full $disk report.progress=no
refuses "no folder" 73 "data.scratch: nowhere: there is no such folder" \
    "$trireme" train job.yaml output=no data.storage=disk data.scratch=nowhere report.progress=no
refuses "read-only" 73 "data.scratch: /proc/" \
    "$trireme" train job.yaml output=no data.storage=disk data.scratch=/proc report.progress=no
refuses "no scratch" 78 "needs data.scratch" "$trireme" train job.yaml output=no data.storage=disk report.progress=no
refuses "descent" 78 "needs memory" "$trireme" train job.yaml solve.method=descent model.l1=0.1 output=no $disk report.progress=no

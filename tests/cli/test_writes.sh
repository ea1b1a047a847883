#!/bin/sh
# A disk that is full or broken from its n-th write on, or a kill there: a file under its final name is the earlier or
# the new one, complete; the earlier model stays; there is one error line and an exit code.
. "$(dirname "$0")/lib.sh"
tests=$(dirname "$trireme")/tests
[ -z "$sanitized" ] || { skip "a sanitizer wants to be the first library itself"; exit 77; }
[ -e "$tests/fail_write.so" ] || { skip "no x86-64"; exit 77; }

"$trireme" generate ctr -o train.svm rows=500 features=200 nonzeros=8 >/dev/null || fail "generate"
"$trireme" generate dense -o dense.csv rows=400 columns=6 >/dev/null || fail "generate dense"
cat >linear.yaml <<'END'
data: {train: ../train.svm, test: ../train.svm}
model: {type: logistic}
solve: {method: dual, target_gap: 0, epochs: 4}
END
cat >trees.yaml <<'END'
data: {train: ../dense.csv}
model: {type: trees}
solve: {epochs: 3}
END
cat >path.yaml <<'END'
data: {train: ../train.svm}
model: {type: logistic, l1: path}
solve: {epochs: 4}
END
mkdir box

# broken HOW N COMMAND…: in the folder box, where the n-th step of writing fails; what it says is in err
broken() {
    how=$1 n=$2; shift 2
    (cd box && TR_FAIL=$how TR_FAIL_AT=$n TR_FAIL_UNDER=$here/box TR_FAIL_COUNT=$here/count LD_PRELOAD=$tests/fail_write.so \
        exec "$@") >out 2>err
    got=$?
}
is_one_of() { [ ! -e "$1" ] || cmp -s "$1" "$2" || cmp -s "$1" "$3"; }

# tells WHAT FILE NEW: the exit code and the only error that is said fit what is there
tells() {
    if [ "$how" = kill ]; then
        [ $got -eq 137 ] || fail "$1: exit $got: $(cat err)"
        return
    fi
    [ -z "$(find box -name '*.part' -o -name '*.tmp')" ] || fail "$1: left behind: $(find box -name '*.part' -o -name '*.tmp')"
    case $got in
    0)
        cmp -s "$2" "$3" || fail "$1: exit 0, but not the new $2"
        ! grep -q 'trireme: error' err || fail "$1: exit 0, but $(cat err)"
        ;;
    73 | 74)
        [ "$(grep -c '^trireme: error: .*\(No space left\|Input/output error\)' err)" -eq 1 ] || fail "$1: exit $got, but $(cat err)"
        ;;
    *) fail "$1: exit $got: $(cat err)" ;;
    esac
}

# steps COMMAND…: how many steps of writing it takes, in count
steps() {
    broken none 0 "$@"
    [ $got -ne 77 ] || { skip "the kernel hands over no system calls"; exit 77; }
    [ $got -eq 0 ] && [ "$(cat count)" -gt 0 ] || fail "$*: exit $got, $(cat count) steps: $(cat err)"
}

# ---- a second run in the folder of an earlier one ----

# trained JOB EVERY LAST EPOCHS: every EVERY-th of its LAST steps of writing fails in each way, in a run with fewer epochs
trained() {
    job=$1 every=$2 last=$3 epochs=$4 what=train
    (cd box && "$trireme" train "../$job.yaml" output=run) >out 2>err || fail "$job: $(cat err)"
    mv box/run early
    command="$trireme train ../$job.yaml output=run solve.epochs=$epochs"
    cp -r early box/run
    steps $command
    mv box/run late && rm -rf box/*
    cp -r early box/run
    total=$(cat count)
    for how in enospc eio kill; do
        n=$((total > last ? total - last : 1))
        while [ $n -le "$total" ]; do
            rm -rf box/* && cp -r early box/run
            broken $how $n $command
            what="$job, $how at $n of $total"
            tells "$what" box/run/model.h5 late/model.h5
            for name in model.h5 model.txt model.json path.csv; do
                is_one_of box/run/$name early/$name late/$name || fail "$what: $name is neither the earlier nor the new one"
            done
            cmp -s box/run/model.h5 early/model.h5 || cmp -s box/run.1/model.h5 early/model.h5 || fail "$what: the earlier model is gone"
            for file in box/run*/metrics.csv; do
                awk -F, 'NF != 17 { exit 1 }' "$file" && [ -z "$(tail -c 1 "$file")" ] || fail "$what: $file: $(tail -n 1 "$file")"
            done
            for file in box/run*/status.json box/run*/summary.json box/run*/ranks.json; do
                [ ! -e "$file" ] || [ "$(tail -n 1 "$file")" = "}" ] || fail "$what: $file is not whole"
            done
            n=$((n + every))
        done
    done
    # whatever there is, the next run is well
    "$trireme" train ../$job.yaml output=run >/dev/null 2>&1
    rm -rf box/* early late
}
trained linear 3 100 2
trained trees 4 100 2
trained path 1 28 3 # a step of descent takes up to 3 passes

# ---- files that are written over: predictions, and tables as HDF5 ----

"$trireme" train linear.yaml data.train=train.svm data.test=train.svm output=run >/dev/null 2>&1 || fail "a model"
# replaced FILE COMMAND…: which writes it
replaced() {
    file=$1; shift
    steps "$@"
    mv "box/$file" new
    echo earlier >early
    total=$(cat count)
    for how in enospc eio kill; do
        n=1
        while [ $n -le "$total" ]; do
            rm -rf box/* && cp early "box/$file"
            broken $how $n "$@"
            what="$file, $how at $n of $total"
            tells "$what" "box/$file" new
            [ -e "box/$file" ] && is_one_of "box/$file" early new || fail "$what: neither the earlier nor the new one"
            n=$((n + (total + 9) / 10))
        done
    done
    rm -rf box/* new early
}
replaced predictions "$trireme" predict ../run/model.h5 ../train.svm -o predictions
replaced table.h5 "$trireme" convert ../dense.csv table.h5
replaced made.svm "$trireme" generate ctr -o made.svm rows=5k features=1k nonzeros=10

#!/bin/sh
# Files that several tasks read are read once a node, for all formats, teams and held-out rows; a task learns the same
# as a job of its own on as many ranks.
. "$(dirname "$0")/lib.sh"

# Words, numbers that are missing, a word far down in a column of numbers, labels that are names, rows that count more than others.
awk 'BEGIN { srand(7); split("oslo,rome,bonn,\"new, york\",nice", city, ","); city[4] = "\"new, york\""; city[5] = "nice"
    print "city,a,b,late,w,kind"
    for (i = 1; i <= 2400; i++) { c = 1 + int(rand() * 5); a = int(rand() * 1000) / 1000; b = rand() < 0.1 ? "" : int(rand() * 100)
        z = a - 0.5 + (c - 3) / 4 + rand() - 0.5
        print city[c] "," a "," b "," (i == 2001 ? "many" : int(rand() * 4)) "," 1 + i % 3 "," (z > 0 ? "buys" : rand() < 0.01 ? "" : "leaves") } }' >table.csv
gzip -k table.csv
"$trireme" generate ctr -o sparse.svm rows=2400 features=300 nonzeros=9 >out 2>&1 || fail "generate: $(cat out)"
"$trireme" generate dense -o dense.csv rows=2000 columns=12 clusters=2 spread=2 label=last >out 2>&1 || fail "generate: $(cat out)"

# read_once WHAT SETTING…: two tasks on teams of one and three ranks, and a third of which some rows are held out
cat >job.yaml <<'END'
tasks:
  one: {ranks: 1}
  two: {ranks: 3, seed: 2}
  fold: {ranks: 2, data.test: fold 2/3}
END
turn=0
read_once() {
    what=$1; shift
    rm -rf shared
    run shared 4 job.yaml "$@" || return
    said=$(grep -c '^rows: .* read once for 3 tasks' shared.out)
    [ "$said" -eq 1 ] || fail "$what: read once is said $said times: $(grep -e ^rows: -e note: shared.out)"
    [ "$(of shared readings)" = 1 ] || fail "$what: $(of shared readings) readings: $(grep 'read in' shared.out)"
    [ "$(grep -c '^[a-z]*: training data: .* rows of task one$' shared.out)" -eq 2 ] || fail "$what: whose rows they are: $(grep 'g data' shared.out)"
    turn=$((1 - turn)) # the same job alone, on one rank and in turns on two or three
    [ $turn -eq 0 ] && other=two:3:seed=2 || other=fold:2:data.test="fold 2/3"
    for task in one:1:seed=1 "$other"; do
        name=${task%%:*} ranks=${task#*:} setting=${task#*:*:}
        rm -rf alone
        run alone "${ranks%%:*}" "$@" "$setting" || continue
        [ ! -e alone/model.txt ] || cmp -s alone/model.txt shared/"$name"/model.txt ||
            fail "$what: task $name learns another model than the same job alone"
        for figure in objective test_accuracy test_rmse test_perplexity; do
            [ "$(of alone $figure)" = "$(of shared/"$name" $figure)" ] ||
                fail "$what: task $name: $figure $(of shared/"$name" $figure), alone $(of alone $figure)"
        done
    done
}
linear="sync.mode=bsp solve.method=newton solve.target_gap=1e-3"
# shellcheck disable=SC2086 # words
{
    read_once "libsvm" $linear data.train=sparse.svm
    for file in table.csv table.csv.gz; do read_once $file $linear data.train=$file data.label=kind data.columns='w: weight'; done
    grep -q '^one: note: *column late is a category, as .*:2002 has' shared.out || fail "a word in a column of numbers is not said: $(grep late shared.out)"
    read_once "hashed words" $linear data.train=table.csv data.label=kind data.hash=64 data.columns='w: ignore'
    read_once "one name and the others" $linear data.train=table.csv data.label=kind data.positive=buys data.cross='city*late'
    read_once "trees" data.train=table.csv data.label=kind model.type=trees solve.epochs=3
    for file in table.csv sparse.svm dense.csv; do
        check "convert $file" "$trireme" convert $file "${file%.*}.h5" $([ $file = sparse.svm ] || echo data.label=auto)
    done
    read_once "converted words" $linear data.train=table.h5 data.label=kind
    read_once "converted lists" $linear data.train=sparse.h5
    read_once "converted numbers" $linear data.train=dense.h5
}

# Workers of several teams who have made the same rows have them in memory once: of two tasks at a time one finds what the other has,
# which stays while a third one is to come; of two seeds that hold out other rows none does. No file is left.
cat >pool.yaml <<'END'
data: {train: dense.csv, label: last}
tasks:
  one: {ranks: 1}
  two: {ranks: 1, model.l2: 1e-2}
  last: {after: [one, two], ranks: 1}
END
run pool 2 pool.yaml solve.method=newton sync.mode=bsp
[ "$(grep -c '^[ot][a-z]*: training data: .* where another .*has them$' pool.out)" -eq 1 ] || fail "the same rows twice in memory: $(grep 'g data' pool.out)"
run other 2 pool.yaml solve.method=newton sync.mode=bsp data.test=20% tasks.two.seed=7
grep -q 'where another' other.out && fail "other rows are taken for the same: $(grep 'g data' other.out)"
[ "$("$trireme" inspect pool/two 2>&1)" != "$("$trireme" inspect pool/one 2>&1)" ] || fail "one and two learn the same"
for base in ${TRIREME_MEMORY:-/dev/shm}; do
    grep -ls "^$here/" "$base"/trireme-data-*/owner && fail "rows are left in $base"
done

# Ratings, of users that are numbers or have one name far down, in a file that several unpack in turns; bags of words.
"$trireme" generate ratings -o ratings users=100 items=90 ratings=2000 >out 2>&1 || fail "generate: $(cat out)"
sed '1900s/^[0-9]*/somebody/' ratings >named
{ cat ratings; sed 's/[0-9.]*$/3/' ratings; } >twice # of a pair that is there twice the last counts
gzip -k twice
"$trireme" generate docword -o bag documents=80 words=60 tokens=4k >out 2>&1 || fail "generate: $(cat out)"
factors="sync.mode=bsp model.type=mf model.rank=4 solve.method=als solve.epochs=2"
# shellcheck disable=SC2086
for file in ratings named twice twice.gz; do read_once $file $factors data.train=$file; done
read_once "bags" sync.mode=bsp model.type=lda model.topics=4 solve.epochs=4 data.train=bag

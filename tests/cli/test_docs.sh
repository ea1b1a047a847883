#!/bin/sh
# Command lines of README.md and docs work as they stand there, on small data of the names that they use: those that are set in
# by four and begin with trireme, build/trireme or mpirun. Left out are those with … or words in capitals, which say how a command
# is used, and what others test: hosts and Slurm (tests/hosts, test_slurm.sh), the installed (test_install.sh).
. "$(dirname "$0")/lib.sh"
root=$(dirname "$jobs")
mkdir -p build clicks datasets docs/course runs
ln -s "$trireme" build/trireme
ln -s "$(dirname "$trireme")/docs" build/docs
ln -s "$jobs" jobs
cp "$root/docs/course/fm.yaml" docs/course
PATH=$here/build:$PATH
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
[ -d "$data" ] || unset TRIREME_DATA

# ---- data of the names that are used ----
for file in datasets/ctr.svm datasets/ctr-small.svm datasets/ctr-small.test.svm clicks/day-1.svm.gz clicks/today.svm; do
    trireme generate ctr -o $file rows=1000 features=500 nonzeros=5 2>/dev/null
done
awk 'BEGIN { print "km,city,tip"; for (i = 0; i < 300; i++) print i % 17 "," (i % 2 ? "Rome" : "Bern") "," i % 17 / 2 + i % 3 }' >rides.csv
cp rides.csv new.csv
awk 'BEGIN { print "age,log_time,claims"; for (i = 0; i < 300; i++) print (20 + i % 50) "," (i % 7 - 6) / 5 "," (i * 7 % 11 < 4) }' >policies.csv
trireme generate ratings -o ratings.txt users=100 items=50 ratings=1k rank=2 2>/dev/null
awk 'BEGIN { print "movieId,userId,rating,timestamp" } { print $2 "," $1 "," $3 "," NR }' ratings.txt >ratings.csv
awk '{ printf "%s,%s,%s,2005-09-%02d\n", $2, $1, $3, 1 + NR % 28 }' ratings.txt >netflix.csv
trireme generate docword -o docs.txt documents=50 words=100 tokens=2k topics=3 2>/dev/null
seq 0 9 | awk '{ print $1, 9 - $1 }' >pairs.txt
check "factors" trireme train data.train=ratings.txt model.type=mf model.rank=2 solve.epochs=2 output=runs/movielens
check "topics" trireme train data.train=docs.txt model.type=lda model.topics=3 solve.epochs=2 output=runs/news-topics

# ---- the lines, in their order ----
grep -hE '^    (build/trireme|trireme|mpirun) ' "$root/README.md" "$root"/docs/*.md | grep -vE '…|cells\.h5ad|[^A-Za-z_=][A-Z]{3,}|hostfile|/usr/share|logistic|trireme: ' |
    sed 's/^    //; s/   .*//; s/  [a-z].*//' | awk '!seen[$0]++' >commands
[ "$(wc -l <commands)" -gt 15 ] || fail "hardly any commands: $(cat commands)"
while read -r line; do
    case $line in
    *straggler* | *ensemble*) [ -d "$data" ] || { skip "$line: no public datasets"; continue; } ;;
    esac
    few=
    case $line in *train*) few="solve.epochs=3" ;; esac # a step of newton takes 3
    timeout -s KILL $patience sh -c "$line $few" >out 2>&1 </dev/null
    code=$?
    [ $code -eq 0 ] || { [ $code -eq 75 ] && [ "${line#*--max-time}" != "$line" ]; } || fail "$line: exit $code: $(tail -3 out)"
done <commands

# the job file that README.md explains
sed -n '/^```yaml$/,/^```$/p' "$root/README.md" | sed '/^```/d' >job.yaml
check "the job file of README.md" mpirun -n 4 trireme train job.yaml solve.epochs=2

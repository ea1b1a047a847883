#!/bin/sh
# The command in the first line of each job file works in a fresh clone; here with few epochs.
. "$(dirname "$0")/lib.sh"
root=$(dirname "$jobs")
unset BUILD # tools/data takes build, as it says
mkdir tools build datasets
cp "$root/tools/data" tools
cp -r "$root/datasets/clusters" datasets
ln -s "$jobs" jobs
ln -s "$trireme" build/trireme
$trireme generate ctr -o datasets/ctr.svm rows=2k features=1k >made # 350 MB otherwise
$trireme generate claims -o datasets/claims.csv rows=5k >made
for part in train test; do $trireme generate events -o datasets/events.$part.csv rows=5k >made; done
[ -d "$data" ] || unset TRIREME_DATA

for job in jobs/*.yaml; do
    line=$(sed -n '1s/^# //p' "$job")
    case $line in
    *"build/trireme train $job") ;;
    *) fail "$job: its first line does not say how to run it: $line"; continue ;;
    esac
    case $line in
    "tools/data ctr"* | "tools/data claims"*) ;;
    "tools/data "*) [ -d "$data" ] || { skip "$job: no public datasets"; continue; } ;;
    esac
    [ "$job" != jobs/straggler.yaml ] || line="$line solve.target=0.6" # else it is not done after three passes
    [ "$job" != jobs/lasso.yaml ] || line="$line solve.path=3 model.l2=0.01" # a path that ends where little regularises takes long
    timeout -s KILL $patience sh -c "$line solve.epochs=3" >said 2>&1 || fail "$line: exit $?: $(tail -3 said)"
    name=$(basename "$job" .yaml)
    [ -s "runs/$name/summary.json" ] || fail "$line: no runs/$name/summary.json"
done

# what is not there and cannot be made is said in one line
refuses "unknown data" 64 "no data of the name a8a" tools/data a8a

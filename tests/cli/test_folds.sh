#!/bin/sh
# Hold-outs and folds that keep the rows of a group on one side (data.group, qid), train on the past (data.time), or keep the share
# of rare labels.
. "$(dirname "$0")/lib.sh"

# who and t are user and seconds as categories: a model has a weight for each value among its training rows. The times are
# seconds, days, and the same seconds as dates with time zones; python computes the rows before the held-out ones
cat >job.yaml <<'END'
data:
  train: rows.csv
  label: label
  columns: {who: category, t: ignore, user: id, seconds: ignore, day: ignore, when: ignore}
model: {l2: 0.01}
solve: {epochs: 1}
END
python3 - <<'END'
import datetime, random
random.seed(3)
table, svm, time = [], [], []
for i in range(600):
    user, s, x = random.randrange(50), random.randrange(40) * 43200 - 86400, random.random()
    utc = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=s)
    zone = random.choice([0, 2, -5])
    when = (utc + datetime.timedelta(hours=zone)).isoformat() + ("Z" if zone == 0 else "%+03d:00" % zone)
    name = ["%d", "%d.0", "0%d"][i % 3] % user  # one number, so one group
    label = "yes" if x + random.random() > 1 else "no"
    table.append(f"{name},u{user},{s},t{s},{utc.date()},{when},{x:.3f},{label}")
    svm.append(f"{int(label == 'yes')} qid:{user} {user + 1}:1")
    time.append(s)
open("rows.csv", "w").write("user,who,seconds,t,day,when,x,label\n" + "\n".join(table) + "\n")
open("rows.svm", "w").write("# ranking\n" + "\n".join(svm) + "\n")
def before(times, first, behind):
    """the rows before the held-out ones, and the held-out rows"""
    times = sorted(times)
    start = times[first]
    end = times[behind] if behind < len(times) else float("inf")
    return f"{sum(t < start for t in times)} {sum(start <= t < end for t in times)}"
for name, times in (("seconds", time), ("day", [t // 86400 for t in time])):
    parts = [before(times, 540, 600)] + [before(times, 150 * k, 150 * k + 150) for k in (1, 2, 3)]
    open("expected." + name, "w").write("\n".join(parts) + "\n")
END

# values FOLDER: the values of the category among the training rows
values() { "$trireme" inspect "$1" --top 100 | sed -n 's/^ *\(who\|t\)=\([^ ]*\) .*/\2/p' | sort -u; }
# sides FOLDER MESSAGES: numbers of rows to train on and to test with
sides() { sed -n "s/^\($1: \)\{0,1\}\(training\|test\) data: *\([0-9]*\) .*/\3/p" "$2" | head -2 | tr '\n' ' ' | sed 's/ $//'; }
# together FOLDER MESSAGES: all rows of the groups in the model are training data, and no others
together() {
    values "$1" >"${1##*/}.groups"
    rows=$(awk -F, 'NR == FNR { of[$1] = 1; next } $2 in of { n++ } END { print n " " 600 - n }' "${1##*/}.groups" rows.csv)
    is "$1: rows of its groups" "$(sides "${1##*/}" "$2")" "$rows"
}

# ---- groups: the same ones for any number of ranks, partition and storage ----
run one 1 job.yaml data.group=user data.test=10%
run two 2 job.yaml data.group=user data.test=10% data.partition=replicated
run five 5 job.yaml data.group=user data.test=10%
run disk 2 job.yaml data.group=user data.test=10% data.storage=disk data.scratch=. data.scale=none
run other 1 job.yaml data.group=user data.test=10% seed=2
for folder in one two five disk other; do
    together $folder $folder.out
    [ $folder = other ] || cmp -s one.groups $folder.groups || fail "$folder: other groups are held out"
done
is "a tenth of 50 groups" "$(wc -l <one.groups)" 45
says one.out "^held out: *5 of 50 groups, $(sides one one.out | cut -d ' ' -f 2) of 600 rows$"
cmp -s one.groups other.groups && fail "another seed: the same groups are held out"
"$trireme" inspect one --top 100 | grep -q '^ *user' && fail "the group is a feature"

# each group is in one fold; the tasks of a sweep share the rows of a node, other jobs read files
sweep() { on 2 "$trireme" sweep job.yaml model.l2=0.01,0.1 "$@" >said 2>&1 || fail "sweep $*: $(cat said)"; }
sweep data.group=user output=folds
for fold in 1 2 3; do together folds/s1-$fold said; done
is "groups in two of three folds" "$(cat s1-?.groups | sort | uniq -c | awk '$1 == 2' | wc -l)" 50
run two 2 job.yaml data.group=user 'data.test=fold 2/3'
values two | cmp -s - s1-2.groups || fail "fold 2: a sweep holds out other groups than a job"

# LIBSVM: qid is the group
run query 2 data.train=rows.svm data.test=20% solve.epochs=20
is "queries to test with" "$(sed -n 's/^held out: *\([0-9]* of [0-9]*\) groups.*/\1/p' query.out)" "10 of 50"
groups=$("$trireme" inspect query --top 100 | sed -n 's/^ *\([0-9]*\)  [+-].*/\1/p' | sort -u)
is "rows of queries" "$(sides query query.out)" \
    "$(echo "$groups" | awk 'NR == FNR { of["qid:" $1 - 1] = 1; next } $2 in of { n++ } END { print n " " 600 - n }' - rows.svm)"

# ---- times: numbers, days, and times of day in several zones ----
for column in seconds day when; do
    case $column in when) expected=expected.seconds ;; *) expected=expected.$column ;; esac
    run $column 2 job.yaml data.time=$column data.test=10%
    is "$column: rows" "$(sides $column $column.out)" "$(head -1 $expected)"
done
says day.out '^held out: .* rows, from 1970-01-1[0-9] on; '
run latest 3 job.yaml data.time=when data.test=10% data.columns='{who: ignore, t: category, user: ignore, seconds: ignore, day: ignore}'
values latest | sed 's/^t//' | sort -n | tail -1 >last
holds "trains on the past" "$(cat last) < $(cut -d , -f 3 rows.csv | sort -n | tail -60 | head -1)"
sweep data.time=day output=past
for fold in 1 2 3; do
    is "fold $fold by time" "$(sides s1-$fold said)" "$(sed -n "$((fold + 1))p" expected.day)"
done

# ---- rare labels: each has its share in each fold, in text and HDF5, in a sweep and alone ----
awk 'BEGIN { print "who,label"; for (i = 0; i < 157; i++) print "r" i "," (i % 16 == 3 ? "1.0" : i % 5 == 1 ? "b" : i % 17 == 0 ? "c" : "a") }' >rare.csv
awk -F, 'FNR > 1 { print index("abc1", substr($2, 1, 1)), FNR ":1" }' rare.csv >rare.svm
printf 'data: {label: label, columns: {who: category}}\nmodel: {type: logistic, l2: 0.1}\nsolve: {epochs: 9}\n' >rare.yaml
"$trireme" convert rare.csv rare.h5 data.label=label data.columns=who:category >out 2>&1 || fail "convert: $(cat out)"
for file in rare.csv rare.h5; do
    on 3 "$trireme" sweep rare.yaml data.train=$file model.l2=0.1,0.2 output=$file.folds --folds 5 >said 2>&1 || fail "$file: $(cat said)"
    for fold in 1 2 3 4 5; do
        values $file.folds/s1-$fold >$file.$fold
        awk -F, -v file="$file.$fold" 'BEGIN { while ((getline who < file) > 0) of[who] = 1 }
            FNR > 1 { n[$2]++; held[$2] += !($1 in of) }
            END { for (k in n) if (held[k] < int(n[k] / 5) || held[k] > int(n[k] / 5) + 1) { print k, held[k], n[k]; exit 1 } }' rare.csv ||
            fail "$file: fold $fold has another share of a label"
    done
    [ "$(cat $file.[1-5] | sort | uniq -c | awk '$1 == 4' | wc -l)" -eq 157 ] || fail "$file: a row is not in one fold"
done
says said '^s1-1: held out: *3[12] of 157 rows, the same share of each of 4 labels$'
cmp -s rare.csv.2 rare.h5.2 || fail "rare.h5: other rows are held out"
run alone 1 rare.yaml data.train=rare.csv 'data.test=fold 2/5'
values alone | cmp -s - rare.csv.2 || fail "rare.csv: a job holds out other rows than a sweep"
run number 1 data.train=rare.svm data.test=10% model.type=linear
run class 2 data.train=rare.svm data.test=10% model.type=logistic model.l2=0.1
silent number.out '^held out' "a regression"
says class.out '^held out: *16 of 157 rows, the same share of each of 4 labels$'

# ---- refusals ----
refused 78 "data.group: column label has the labels" data.group=label data.test=10%
refused 78 "data.group: rows.csv has no column nobody" data.group=nobody data.test=10%
refused 78 "data.group: data.columns makes column who a feature, expected id" data.group=who data.test=10%
refused 78 "data.group is of no use: no rows are held out" data.group=user
refused 78 "data.time is of no use: no rows are held out" data.time=day data.test=rows.csv
refused 78 "data.time and data.group are both set" data.time=day data.group=user data.test=10%
refused 78 "data.test: fold 1/51 needs 51 groups, but data.train has 50" data.group=user 'data.test=fold 1/51'
expect 78 "data.group is for csv, and the data are libsvm" train data.train=rows.svm data.group=1 data.test=10%
refused 65 "rows.csv:2: column who: 'u[0-9]*' is no time, expected numbers, or dates as 2024-01-31" data.time=who data.columns=user:id data.test=10%
sed '5s/,1970-[^,]*,/,,/' rows.csv >odd.csv
expect 65 "odd.csv:5: column day: '' is missing, expected a time" train job.yaml data.train=odd.csv data.time=day data.test=10%
sed '5s/,1970-[^,]*,/,17,/' rows.csv >odd.csv
expect 65 "column day of data.time has numbers and dates, expected one kind" train job.yaml data.train=odd.csv data.time=day data.test=10%
sed 's/,19[67][0-9]-[^,]*,/,1,/' rows.csv >odd.csv
refused 65 "data.test: 10% leaves no row to learn from: too many rows have one time" data.train=odd.csv data.time=day data.test=10%
"$trireme" convert rows.csv rows.h5 data.label=label >out 2>&1 || fail "convert: $(cat out)"
expect 78 "data.group is for text, and rows.h5 is an HDF5 file" train data.train=rows.h5 data.group=user data.test=10%
refused 78 "solve.folds divides rows" data.group=user data.test=10% model.type=logistic model.l1=path model.l2=0 solve.folds=3

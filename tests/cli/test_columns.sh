#!/bin/sh
# Tables of named and typed columns: categories, missing values, labels that are names. The model stores them, so
# predict reads raw files with the columns in any order.
. "$(dirname "$0")/lib.sh"

learn() { run "$@" sync.mode=bsp; }

# ---- a table: a category of three values, one of many, numbers, an identifier, a label ----
awk 'BEGIN {
    srand(7)
    split("Berlin Paris Rome", city, " ")
    print "id,city,age,\"road, no\",note,price" >"train.csv"
    print "\"road, no\";age;city" >"other.csv"
    printf "age\troad, no\tcity\r\n" >"tabs.tsv"
    print "age,city" >"lacks.csv"
    print "age,\"road, no\",city,price" >"half.csv"
    for (i = 0; i < 3000; i++) {
        c = rand() < 0.5 ? 1 : rand() < 0.7 ? 2 : 3
        age = int(20 + 60 * rand()); road = int(40 * rand() * rand())
        name = "\"r" road ", \"\"x\"\"\""
        price = sprintf("%.3f", 10 * c + 0.1 * age + (road % 3) + rand() / 10)
        print i "," city[c] "," age "," name ",word " i % 17 "," price >"train.csv"
        print name ";" age ";\"" city[c] "\"" >"other.csv"
        printf "%d\t%s\t %s \r\n", age, name, city[c] >"tabs.tsv"
        print age "," city[c] >"lacks.csv"
        if (i < 500) print age "," name "," city[c] "," price >"half.csv"
        print city[c] >"city"
        print road >"road"
        print age, price >"numbers"
    }
}'
types="data.columns=id:id,note:ignore"
learn one 1 data.train=train.csv data.label=price model.type=linear "$types"
says one.out "1 number, 2 categories (city 3, road, no 39), 2 ignored; label price"
for ranks in 2 4; do
    learn many $ranks data.train=train.csv data.label=price model.type=linear "$types"
    says many.out "categories (city 3, road, no 39)"
    "$trireme" inspect one/model.h5 --top 50 | grep '=' | sed 's/ .*//' >a
    "$trireme" inspect many/model.h5 --top 50 | grep '=' | sed 's/ .*//' >b
    h5dump -d dictionary_text one/model.h5 2>/dev/null | tail -n +2 >c
    h5dump -d dictionary_text many/model.h5 2>/dev/null | tail -n +2 >d
    cmp -s c d || fail "another dictionary on $ranks ranks"
done
learn braces 1 data.train=train.csv data.label=price model.type=linear 'data.columns={id: id, "not*": ignore}'
says braces.out "1 number, 2 categories (city 3, road, no 39), 2 ignored; label price"
learn served 3 data.train=train.csv data.label=price model.type=linear "$types" ranks.layout=dedicated ranks.servers=1
"$trireme" evaluate one train.csv | awk '$1 == "rmse" && $2 > 0.1 { exit 1 }' || fail "cities and roads are not learnt"
"$trireme" inspect one/model.h5 --top 50 >shown
grep -q ' city=Paris ' shown && grep -q ' age ' shown && grep -qF 'road, no=r7, "x" ' shown || fail "inspect: $(cat shown)"

# the same rows by the dictionary that sort and uniq make: one-hot rows as LIBSVM text train to the same objective
sort city | uniq -c | sort -k1,1nr -k2 | awk '{ print $2, NR }' >cities
sed 's/.*/r&, "x"/' road | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2 | sed 's/.*r\([0-9]*\),.*/\1/' | awk '{ print $1, NR + 4 }' >roads
paste -d' ' city road numbers | awk 'FILENAME == "cities" { c[$1] = $2; next } FILENAME == "roads" { r[$1] = $2; next }
    { print $4, c[$1] ":1", "4:" $3, r[$2] ":1" }' cities roads - >train.svm
learn csv 1 data.train=train.csv data.label=price model.type=linear "$types" data.scale=none solve.method=newton
learn svm 1 data.train=train.svm model.type=linear data.scale=none solve.method=newton
[ "$(grep -o '"objective": [0-9.]\{9\}' csv/summary.json)" = "$(grep -o '"objective": [0-9.]\{9\}' svm/summary.json)" ] ||
    fail "one-hot rows: $(grep objective csv/summary.json svm/summary.json)"

# ---- other orders and names of columns ----
"$trireme" predict one train.csv >usual || fail "predict"
for file in other.csv tabs.tsv; do
    "$trireme" predict one $file | cmp -s - usual || fail "$file: another order of columns is predicted otherwise"
done
printf 'age,city,zip,"road, no"\n1,Rome,2,r\n' >more.csv
printf 'age,city,city\n1,Rome,2\n' >twice.csv
refuses "lacks.csv: there is no column road, no" 65 "lacks.csv: there is no column road, no" "$trireme" predict one lacks.csv
refuses "more.csv: unknown column zip" 65 "more.csv: unknown column zip" "$trireme" predict one more.csv --strict
refuses "twice.csv: two columns are called city" 65 "twice.csv: two columns are called city" "$trireme" predict one twice.csv
printf 'city,"road, no",age\nOslo,r7,old\n' >word.csv
refuses "word.csv:2: column age: 'old' is not a n" 65 "word.csv:2: column age: 'old' is not a number" "$trireme" predict one word.csv
printf 'city,"road, no",age\nOslo,r7,3\n' >new.csv
"$trireme" predict one new.csv 2>err >/dev/null && grep -q "2 values of categories are not among" err || fail "new values: $(cat err)"

# in test data too, and in one of two files of training data
learn tested 2 data.train=train.csv,half.csv data.test=half.csv data.label=price model.type=linear "$types"
says tested.out "training data: 3500 rows"

# ---- missing values ----
awk 'BEGIN { print "a,b,c,y"; for (i = 0; i < 400; i++) {
    a = i % 20; b = (i * 7) % 13
    printf "%s,%s,%s,%d\n", i % 10 == 3 ? (i % 20 == 3 ? "NA" : "") : a, b, i % 4 ? "u" : i % 8 ? "?" : "none",
        i % 50 == 7 ? "" : (i % 10 == 3 ? 30 : a) + b }
}' | sed '9s/,[^,]*$/,/' >holes.csv
learn holes 2 data.train=holes.csv data.label=y data.missing=none model.type=linear
says holes.out "2 numbers, 1 category (c 2), missing values in 1; label y"
says holes.out "1 rows without a label left out"
"$trireme" inspect holes/model.h5 >shown
grep -q ' a=missing ' shown && grep -q ' c=missing ' shown || fail "keys of missing values: $(cat shown)"
[ "$("$trireme" predict holes holes.csv | wc -l)" -eq 400 ] || fail "rows without labels are not predicted"
"$trireme" evaluate holes holes.csv >said 2>err && grep -q "rows      399" said && grep -q "1 rows without a label" err ||
    fail "evaluate: $(cat said err)"
"$trireme" predict holes holes.csv >usual
printf 'b,a,c\n1,,u\n' >hole.csv
"$trireme" predict holes hole.csv >said || fail "a missing number is not predicted"
printf 'a,y\n,1\n,2\n,3\n' >empty.csv
learn empty 2 data.train=empty.csv model.type=linear
# a field that is missing has a byte, and there may be hardly anything else
awk 'BEGIN { print "a,b,c,d,e,f,g,h,y"; for (i = 0; i < 3000; i++) print (i % 97 ? "" : i) ",,,,,,,," i % 2 }' >bare.csv
learn bare 1 data.train=bare.csv data.label=y model.type=logistic
says bare.out "8 numbers, missing values in 8; label y"

# ---- a number that is missing only in the rows to predict is the mean of the training rows ----
awk 'BEGIN { srand(3); print "x,w,z,city,y"
    for (i = 0; i < 240; i++) { x = 1000 + rand(); z = rand(); w = i % 3; printf "%.4f,%d,%.4f,%s,%.4f\n", x, w, z, i % 2 ? "Rome" : "Oslo", 3 * (x - 1000) + z } }' >full.csv
printf 'x,z,city\n,0.5,Rome\n' >lack.csv
awk -F, 'NR > 1 { n++; s += $1; m += $2; t += $1 * $2 } END { printf "x,z,city\n%.4f,0.5,Rome\n%.4f,0.5,Rome\n", s / n, t / m }' full.csv >means.csv
"$trireme" convert full.csv full.h5 >/dev/null || fail "convert full.csv"
mkdir -p scratch
for how in "1 full.csv" "1 full.h5 data.scale=none" "1 full.csv data.scale=minmax" "2 full.csv data.partition=horizontal data.storage=disk data.scratch=scratch" \
    "8 full.h5" "1 full.csv data.weight=w" "2 full.csv data.weight=w data.partition=horizontal data.storage=disk data.scratch=scratch"; do
    ranks=${how%% *} how=${how#* } line=1
    case $how in *weight*) line=2 ;; *) how="$how data.columns=w:ignore" ;; esac
    # shellcheck disable=SC2086 # words on purpose
    learn lack $ranks data.train=$how data.label=y model.type=linear solve.method=newton model.l2=1e-6
    { "$trireme" predict lack lack.csv; "$trireme" predict lack means.csv | sed -n ${line}p; } >said 2>err
    near "$(sed -n 1p said)" "$(sed -n 2p said)" 0.005 || fail "a number that is missing only in prediction, $how on $ranks ranks: $(cat said err)"
done
awk 'BEGIN { print "a,b"; for (i = 0; i < 40; i++) print (i % 2 ? 1010 : 990) + i % 3 "," (i % 2 ? 10 : 0) }' >pair.csv
printf 'a,b\n,10\n1000.975,10\n' >hole.csv
learn pair 2 data.train=pair.csv model.type=kmeans model.clusters=2 solve.start=first
[ "$("$trireme" predict pair hole.csv | uniq | wc -l)" -eq 1 ] || fail "kmeans: a missing number is not the mean: $("$trireme" predict pair hole.csv)"
# trees need no mean: a missing number has a direction of its own
run grown 1 data.train=full.csv data.label=y data.columns=w:ignore model.type=trees model.min_rows=5
"$trireme" predict grown lack.csv >said 2>err && [ ! -s err ] && holds "trees" "$(cat said) > -0.5 && $(cat said) < 5" || fail "trees: $(cat said err)"

# ---- predictions with the identifiers of their rows, whatever the column is, on any number of ranks ----
printf 'key,x,word,y\n' >known.csv
awk 'BEGIN { for (i = 0; i < 300; i++) print (i % 3 ? "k " i : "\"k,\"\"" i "\"") "," i % 7 ",w" i % 2 "," i % 7 + i % 2 }' >>known.csv
learn known 1 data.train=known.csv data.columns="key: id" model.type=linear
awk 'BEGIN { for (i = 0; i < 300; i++) print (i % 3 ? "k " i : "k,\"" i) }' >keys
"$trireme" predict known known.csv >predicted
for ranks in 1 2; do
    check "predict --id" on $ranks "$trireme" predict known known.csv --id key
    paste keys predicted | cmp -s - out || fail "predict --id on $ranks ranks: $(paste keys predicted | diff - out | head -3)"
done
check "a column of words" "$trireme" predict known known.csv --id word
cut -f1 out | sort | uniq -c | tr -s ' \n' ' ' | grep -q ' 150 w0 150 w1' || fail "predict --id word: $(head -3 out)"
cut -d, -f2- known.csv >keyless.csv
refuses "no such column" 64 "no column key" "$trireme" predict known keyless.csv --id key
printf '1 1:1\n-1 2:1\n' >plain.svm
learn plain 1 data.train=plain.svm
refuses "no columns" 64 "expected --id line" "$trireme" predict plain plain.svm --id key

# ---- labels that are names ----
awk 'BEGIN { srand(3); split("setosa virginica versicolor", name, " "); print "length,width,kind"
    for (i = 0; i < 300; i++) { k = 1 + i % 3; printf "%.2f,%.2f,%s\n", k + rand() / 2, 3 * (k == 2) + rand(), name[k] } }' >iris.csv
learn names 2 data.train=iris.csv data.test=20%
says names.out "label kind of 3 names"
says names.out "classes:       3, one softmax"
tail -n +2 iris.csv | cut -d, -f3 >kinds
[ "$("$trireme" predict names iris.csv | paste - kinds | awk '$1 == $2' | wc -l)" -gt 290 ] || fail "names are not predicted"
"$trireme" evaluate names iris.csv | grep -q '^recall_virginica' || fail "evaluate does not name classes"
learn rest 1 data.train=iris.csv data.positive=setosa
says rest.out "of 2 names"
"$trireme" predict rest iris.csv | sort -u | tr '\n' ' ' | grep -qx 'not setosa setosa ' || fail "one class against the rest"
refuses "no row has the label rose" 65 "no row has the label rose" "$trireme" train data.train=iris.csv data.positive=rose output=no report.progress=no
sed 's/virginica/tulip/' iris.csv >tulip.csv
tulips=$(grep -c tulip tulip.csv)
"$trireme" evaluate names tulip.csv >said && says said "^unknown_labels *$tulips "
learn tulips 2 data.train=iris.csv data.test=tulip.csv
says tulips.out "^note: *rows of data.test whose label no training row has: $tulips, wrong in any case"

# ---- numbers that single precision does not tell apart ----
awk 'BEGIN { print "t,x,y"; for (i = 0; i < 200; i++) printf "%.0f,%.0f,%.0f\n", 1700000000 + i, 1000000 + i % 7, 20000000000 + i % 2 }' >fine.csv
"$trireme" train data.train=fine.csv data.label=y output=fine >said 2>&1
for column in t y; do
    grep -q "^note: *column $column: its numbers differ behind the 24 bits" said || fail "column $column is not noted: $(cat said)"
done
! grep -q "column x" said || fail "column x is noted: $(cat said)"

# ---- a column of weights does what a file of them does, however rows lie ----
awk 'BEGIN { srand(1); print "a,w,b,y" >"weighed.csv"; print "a,b,y" >"plain.csv"
    for (i = 0; i < 1000; i++) { a = rand(); b = rand(); w = int(3 * rand()); y = 3 * a - b + (w == 2 ? 5 : 0) + rand()
        print a "," w "," b "," y >"weighed.csv"; print a "," b "," y >"plain.csv"; print w >"weights" } }'
mkdir -p scratch
for how in "ranks.layout=colocated" "data.partition=replicated ranks.groups=1" "data.storage=disk data.scratch=scratch" "data.storage=disk data.scratch=scratch"; do
    ranks=2
    [ "$how" = ranks.layout=colocated ] && ranks=1
    set -- data.label=y model.type=linear solve.method=newton data.scale=none
    # shellcheck disable=SC2086 # words on purpose
    { learn by-file $ranks data.train=plain.csv data.weight=weights "$@" $how
      learn by-column $ranks data.train=weighed.csv data.weight=w "$@" $how
      [ $ranks = 2 ] || learn by-type 1 data.train=weighed.csv data.columns=w:weight data.test=plain.csv "$@"; }
    says by-column.out "; weight w"
    cmp -s by-file/model.txt by-column/model.txt || fail "weights by a column, $how: another model"
done

"$trireme" predict by-column plain.csv >a && "$trireme" predict by-column weighed.csv | cmp -s - a || fail "predict needs the weights"
sed '5s/,[0-2],/,-1,/' weighed.csv >below.csv
refuses "below.csv:5: column w: '-1' is no weigh" 65 "below.csv:5: column w: '-1' is no weight of a row" "$trireme" train data.train=below.csv data.weight=w model.type=linear output=no report.progress=no
refuses "weights are of no use" 78 "weights of rows are of no use to model.type kmeans" "$trireme" train data.train=weighed.csv data.columns=w:weight model.type=kmeans output=no

# ---- rare and many values; patterns ----
learn rare 2 data.train=train.csv data.label=price model.type=linear "$types" data.most_values=2 data.min_count=30
says rare.out "categories (city 2+, road, no 2+)"
"$trireme" inspect rare/model.h5 | grep -q ' city=other ' || fail "no key of other values"
learn all 1 data.train=train.csv data.label=price model.type=linear "data.columns=*: category,id: id,note: ignore" data.most_values=1000
says all.out "3 categories (city 3, age 60, road, no 39), 2 ignored; label price"
printf 'data: {train: train.csv, label: price, columns: {id: id, note: ignore, "*": category}}\nmodel: {type: linear}\noutput: file\n' >job.yaml
learn file 1 job.yaml
says file.out "3 categories"
"$trireme" train file/job.yaml output=again >again.said 2>&1 || fail "the resolved job is no job: $(cat again.said)"

# ---- crossed categories: the same as a column of pairs; hashed ones, which need no dictionary ----
awk 'BEGIN { srand(2); split("Rome,R*m,Oslo,", city, ","); split("phone,pc,\\", device, ",")
    print "city,device,n,y" >"parts.csv"; print "n,device,city" >"parts-other.csv"; print "city,device,n,y,pair" >"pairs.csv"
    for (i = 0; i < 600; i++) {
        c = 1 + int(4 * rand()); d = 1 + int(3 * rand()); n = int(9 * rand())
        y = (c == d) + 0.1 * n + rand() / 20
        pair = city[c] "*" device[d]; if (c == 2) pair = "R\\*m*" device[d]; if (d == 3) pair = pair "\\"
        print "\"" city[c] "\"," device[d] "," n "," y >"parts.csv"
        print n "," device[d] "," city[c] >"parts-other.csv"
        print city[c] "," device[d] "," n "," y "," pair >"pairs.csv"
    }
}'
set -- data.label=y model.type=linear solve.method=newton data.scale=none
learn pairs 1 data.train=pairs.csv "$@"
learn cross 2 data.train=parts.csv "data.cross=city*device" "$@"
says cross.out "3 categories (city 4, device 3, city\*device 12)"
sed 's/city\*device=/pair=/' cross/model.txt | sed 1,8d >a
sed 1,8d pairs/model.txt | cmp -s - a || fail "another model by crossed columns than by pairs"
learn hashed 2 data.train=parts.csv "data.cross=city*device,city*n" data.hash=2^16 "$@" solve.method=dual solve.target_gap=1e-6
says hashed.out "hashed to 65536 keys"
learn named 1 data.train=parts.csv "data.cross=city*device,city*n" "$@" solve.target_gap=1e-6
near "$(of hashed objective)" "$(of named objective)" 1e-8 || fail "hashed: $(of hashed objective) $(of named objective)"
for model in cross hashed; do
    "$trireme" predict $model parts.csv >a || fail "$model: predict"
    "$trireme" predict $model parts-other.csv | cmp -s - a || fail "$model: another order of columns is predicted otherwise"
done
"$trireme" inspect cross/model.h5 --top 50 >shown; grep -qF 'city*device=Rome*phone ' shown || fail "inspect: $(cat shown)"
"$trireme" inspect hashed/model.h5 | grep -q ' hash=[0-9]' || fail "inspect of hashed keys"
learn few 2 data.train=parts.csv data.hash=2 "$@"
"$trireme" count parts.csv "data.cross=city*device" | grep -qF 'city*device          category  12 different' || fail "count of crossed columns"
refuses "no column town" 78 "parts.csv has no column town" "$trireme" train data.train=parts.csv "data.cross=town*n" output=no report.progress=no
refuses "labels cannot be crossed" 78 "labels, weights and offsets cannot be crossed" "$trireme" train data.train=parts.csv data.label=y "data.cross=y*n" output=no report.progress=no
refuses "data.hash of numbers" 78 "data.hash is for categories" "$trireme" train data.train=plain.csv data.hash=2^10 output=no report.progress=no
refuses "data.hash with data.most_values" 78 "of no use" "$trireme" train data.train=parts.csv data.hash=2^10 data.most_values=3 output=no report.progress=no
awk 'BEGIN { if (4e9 * 24 < '"$(awk '/MemTotal/ { print $2 }' /proc/meminfo)"' * 1024) exit 1 }' &&
    refuses "a data.hash that no memory holds" 78 "set a smaller data.hash" "$trireme" train data.train=parts.csv data.hash=4e9 output=no report.progress=no
refuses "data.hash of libsvm" 78 "data.hash is for csv" "$trireme" train data.train=train.svm data.hash=2^10 output=no report.progress=no
printf 'n,city\n1,Rome\n' >part.csv
refuses "part.csv lacks device" 65 "there is no column device" "$trireme" predict cross part.csv

# ---- other models ----
learn kmeans 2 data.train=train.csv model.type=kmeans model.clusters=3 data.columns=id:id,note:ignore,price:ignore
"$trireme" predict kmeans other.csv | sort -u | wc -l | grep -qx 3 || fail "clusters of categories"
"$trireme" inspect kmeans/model.h5 --top 3 | grep -q 'city=' || fail "inspect of clusters has no names"

# ---- models put together: only where the same column is the same key in all ----
awk 'BEGIN { srand(5); print "a,b,y" >"ab.csv"; print "b,a,y" >"ba.csv"; print "a,b,city,y" >"city.csv"
    for (i = 0; i < 300; i++) { a = rand(); b = rand(); y = (a > b ? 1 : -1)
        print a "," b "," y >"ab.csv"; print b "," a "," y >"ba.csv"; print a "," b ",Rome," y >"city.csv" } }'
# average FILE FILE FILE: tests the average of models of the first two by the third
average() {
    cat >tasks.yaml <<END
tasks:
  one: {data.train: $1}
  two: {data.train: $2, seed: 2}
  mean: {run: average, after: [one, two], data.test: $3}
END
    rm -rf averages
    "$trireme" train tasks.yaml output=averages report.progress=no >said 2>&1
}
average ab.csv ab.csv ab.csv || fail "average of columns: $(cat said)"
for files in "ab.csv ba.csv ab.csv" "ba.csv ba.csv ab.csv" "city.csv city.csv city.csv"; do
    # shellcheck disable=SC2086 # words on purpose
    average $files
    [ $? -eq 65 ] && grep -q 'an average is of models whose columns are numbers, and in the same order' said ||
        fail "average of $files: $(cat said)"
done
learn ab 1 data.train=ab.csv
learn more 1 data.train=ab.csv model.init=ab
for file in ba.csv city.csv; do
    refuses "model.init of other columns" 65 "its columns are not those of the data" "$trireme" train data.train=$file model.init=ab output=no report.progress=no
done

# ---- count ----
"$trireme" count train.csv --top 100 >said || fail "count"
"$trireme" count train.csv --top 100 data.hash=64 | cmp -s - said || fail "count with data.hash says something else"
grep -q '^3000 rows, 6 columns' said || fail "count: $(cat said)"
on 3 "$trireme" count train.csv --top 100 | cmp -s - said || fail "count on three ranks says something else"
(cat train.csv; echo '"') >torn.csv
refuses "a malformed row of another rank" 65 "torn.csv:300" on 2 "$trireme" count torn.csv
sort city | uniq -c | sort -k1,1nr -k2 | awk '{ print $1, $2 }' >a
awk '$1 == "city" { on = 1; next } $2 == "number" { on = 0 } on { print $1, $2 }' said >b
cmp -s a b || fail "count: other numbers than those of sort and uniq: $(cat b)"
awk '{ s += $1; if (NR == 1 || $1 < a) a = $1; if ($1 > b) b = $1 } END { printf "mean %.9g, ", s / NR; print a, b }' numbers >a
grep '^age ' said | sed 's/.*\(mean [^,]*, \).* from \([0-9]*\) to \([0-9]*\)/\1\2 \3/' | cmp -s - a || fail "count: mean of age"

awk '{ print $1 }' numbers | sort -n | awk '{ x[NR] = $1 } END { split("0.01 0.1 0.25 0.5 0.75 0.9 0.99", share)
    for (i = 1; i <= 7; i++) printf "  %g %%: %g%s", 100 * share[i], x[int(share[i] * NR)], i < 7 ? "," : "\n" }' >a
grep -A1 '^age ' said | tail -1 | sed 's/^ */  /' | cmp -s - a || fail "count: quantiles of age: $(grep -A1 '^age ' said) $(cat a)"

# ---- a number is its value, a word its bytes ----
awk 'BEGIN {
    print "kind,x,t"
    split("1 1.0 +1 1e0 01 2 -999 -999.0 007 a7", kind, " ")
    for (i = 0; i < 60; i++) {
        k = i % 10 + 1
        y = k <= 5
        print kind[k] "," (i % 3 ? i : i % 2 ? "-999" : "-999.00") "," y (i > 30 ? ".0" : "")
    }
}' >same.csv
"$trireme" count same.csv data.missing=-999 'data.columns={kind: category}' --top 9 >said || fail "count: numbers as categories"
grep -q '^kind  *category  *4 different, 12 missing' said || fail "kinds: $(cat said)"
grep -q '^x  *number  *20 missing' said || fail "missing numbers: $(cat said)"
# of x there are 40 numbers, 1, 2, 4, 5, … 59: Σ = 59 · 60 / 2 - 3 (1 + … + 19) = 1200
grep -q '^x .*mean 30,' said || fail "the mean of x: $(cat said)"
on 3 "$trireme" count same.csv data.missing=-999.0 'data.columns={kind: category}' --top 9 | cmp -s - said ||
    fail "values on three ranks: other ones"
"$trireme" convert same.csv same.h5 data.missing=-999 'data.columns={kind: category}' >/dev/null || fail "convert"
for from in same.csv same.h5; do
    for ranks in 1 3; do
        learn same$ranks $ranks data.train=$from data.label=t data.positive=1 data.missing=-999 'data.columns={kind: category}' solve.epochs=40
        for file in same.csv same.h5; do
            "$trireme" evaluate same$ranks $file >said 2>err || fail "evaluate $file: $(cat err)"
            awk '$1 == "1" && $2 == "is" { n = $3 + $4 } $1 == "accuracy" { a = $2 } END { exit !(n == 30 && a == 1) }' said ||
                fail "$from on $ranks ranks, $file: 30 rows of 1 expected, all right: $(cat said)"
        done
        "$trireme" inspect same$ranks --top 20 | grep -o '^ *kind=[^ ]*' | sort | tr -d ' \n' >said
        [ "$(cat said)" = kind=1kind=2kind=7kind=a7kind=missing ] || fail "$from on $ranks ranks: keys $(cat said)"
    done
done
cmp -s same1/model.txt same3/model.txt || near "$(of same1 objective)" "$(of same3 objective)" 1e-3 || fail "values on three ranks: another model"

# ---- an integer label is exact: 2^24 + 1 and days are not floats ----
awk 'BEGIN { print "a,day"; for (i = 1; i <= 40; i++) print i "," (i > 20 ? "20240103" : i > 10 ? "20240102.0" : "9") }' >days.csv
awk 'BEGIN { for (i = 1; i <= 40; i++) print (i > 20 ? 16777217 : 16777216) " 1:" i }' >days.svm
for ranks in 1 3; do
    for model in model.type=logistic model.type=auto "model.type=trees model.min_rows=5"; do
        on $ranks "$trireme" train data.train=days.csv data.label=day $model output=days --fresh >out 2>err ||
            fail "days by $model: $(cat err)"
        "$trireme" predict days days.csv | sort -u | tr '\n' ' ' >said
        [ "$(cat said)" = "20240102 20240103 9 " ] || fail "$model on $ranks ranks: predicts $(cat said)"
        "$trireme" evaluate days days.csv >said && grep -q '^20240103 is' said || fail "evaluate days: $(cat said)"
        grep -q '^predicted  *9  *20240102  *20240103' said || fail "labels do not ascend by value: $(cat said)"
    done
    learn svm-days $ranks data.train=days.svm data.test=days.svm
    "$trireme" predict svm-days days.svm | sort | uniq -c | tr -s ' \n' ' ' >said
    [ "$(cat said)" = " 20 16777216 20 16777217 " ] || fail "two labels of libsvm that are one float, on $ranks ranks: $(cat said)"
    says svm-days/model.txt '^label 16777217 16777216$'
    "$trireme" evaluate svm-days days.svm --json >said && says said '"confusion_16777217_as_16777217": 20'
done
learn regression 1 data.train=days.csv data.label=day model.type=linear
"$trireme" evaluate regression days.csv | grep -q '^rmse' || fail "regression with large labels"
refuses "a label of model.txt" 65 "a label is not exact in a 32-bit float: expected model.h5" "$trireme" predict svm-days/model.txt days.svm
learn disk-days 2 data.train=days.svm data.storage=disk data.scratch=scratch data.partition=horizontal
"$trireme" predict disk-days days.svm | sort -u | tr '\n' ' ' >said && grep -qx '16777216 16777217 ' said || fail "labels on a disk: $(cat said)"
"$trireme" train data.train=days.svm model.type=linear output=regression2 >/dev/null 2>err || fail "regression with large labels of libsvm: $(cat err)"

# ---- a byte order mark of UTF-8 is no part of a name ----
printf '\357\273\2774\n3\n6\n1 1 2\n1 2 1\n2 3 4\n3 1 1\n3 2 2\n4 3 1\n' >mark.txt
"$trireme" train data.train=mark.txt model.type=lda model.topics=2 output=mark >out 2>err || fail "a mark before documents: $(cat err)"

# ---- columns that only a file to predict has are ignored ----

for format in csv h5; do
    awk -F, 'NR == 1 { print "spare," $0 ",more"; next } { print "x" NR "," $0 "," NR }' iris.csv >spare.csv
    [ $format = csv ] || { "$trireme" convert spare.csv spare.h5 data.label=kind >/dev/null 2>&1 || fail "convert"; }
    "$trireme" predict names spare.$format >said 2>notes || fail "more columns, $format: $(cat notes)"
    "$trireme" predict names iris.csv | cmp -s - said || fail "more columns, $format: other predictions"
    grep -q 'note: columns that the training data do not have are ignored: spare, more$' notes || fail "more columns, $format: $(cat notes)"
    "$trireme" evaluate names spare.$format 2>/dev/null | grep '^accuracy' >said && "$trireme" evaluate names iris.csv | grep '^accuracy' | cmp -s - said ||
        fail "more columns, $format: evaluate: $(cat said)"
done
refuses "--strict" 65 "spare.csv: unknown column spare: the training data have none of that name" "$trireme" predict names spare.csv --strict
learn spared 2 data.train=iris.csv data.test=spare.csv
says spared.out '^note: *columns of data.test that data.train does not have are ignored: spare, more'

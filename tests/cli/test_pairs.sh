#!/bin/sh
# Each format of data with each type of model works, or is refused by name before data are read; data files without a
# job.
. "$(dirname "$0")/lib.sh"

for i in 1 2 3 4 5 6 7 8; do
    printf '%d 1:%d 3:0.%d\n' $((i % 2)) $i $i >>libsvm
    printf '0.%d,%d,7,%d\n' $i $i $((i % 2)) >>csv
    printf '%d %d %d\n' $i $((i % 3 + 1)) $((i % 5 + 1)) >>ratings
done
printf '8\n3\n8\n' >docword
for i in 1 2 3 4 5 6 7 8; do printf '%d %d %d\n' $i $((i % 3 + 1)) $((i % 2 + 1)) >>docword; done
check "convert" "$trireme" convert csv hdf5

# FORMATS TYPE SETTING…: the formats work, the others are refused before data are read
cat >pairs <<'END'
libsvm,csv,hdf5 auto
libsvm,csv,hdf5 logistic
libsvm,csv,hdf5 svm
libsvm,csv,hdf5 l2svm
libsvm,csv,hdf5 linear
libsvm,csv,hdf5 huber
libsvm,csv,hdf5 quantile
libsvm,csv,hdf5 logcosh
libsvm,csv,hdf5 poisson solve.method=sgd
libsvm,csv,hdf5 trees
libsvm,csv,hdf5 kmeans model.clusters=2
ratings mf model.rank=2
docword lda model.topics=2
END
for ranks in 1 2; do
    run_all $ranks /dev/null <<END
$(while read -r formats type settings; do for format in libsvm csv hdf5 ratings docword; do
    case ,$formats, in *,$format,*) echo "$format-$type data.train=$format data.format=$format model.type=$type solve.epochs=200 $settings" ;; esac
done; done <pairs)
END
    for folder in $list; do [ -f "$folder/model.h5" ] || fail "$folder on $ranks ranks: no model"; done
done
while read -r formats type settings; do
    for format in libsvm csv hdf5 ratings docword; do
        case ,$formats, in *,$format,*) continue ;; esac
        name=$format-$type
        # shellcheck disable=SC2086
        "$trireme" train data.train=$format data.format=$format model.type=$type output="$name" $settings >out 2>err
        is "$name: exit code" $? 78
        grep '^trireme: error: ' err | grep -q "data.format.*$format" || fail "$name: «$(cat err)» does not name data.format"
        silent err 'training data' "$name"
        [ ! -f "$name/status.json" ] || is "$name" "$(state "$name")" failed
    done
done <pairs

# ---- what files look like: no job file, no format, no column of labels, no type of model ----
awk 'BEGIN { srand(2); print "a\tb\tclass" >"header.tsv"; print "\"y\";\"a\";\"b\"" >"named.csv"
    for (i = 0; i < 400; i++) { a = rand(); b = rand(); k = a > b ? 3 : 7; v = 2 * a - b + 5
        print a "\t" b "\t" k >"header.tsv"; print v ";" a ";" b >"named.csv"; print k, a, b >"first.txt"; print a "," b "," v >"last.csv"
        print k " 0:" a " 1:" b >"zero.svm" } }'
first() { # FILE WORDS METRIC LEAST SETTING…
    file=$1 words=$2 metric=$3 least=$4 folder=runs/${1%%.*}; shift 4
    rm -rf runs
    "$trireme" train data.train="$file" data.test=20% "$@" >out 2>&1 || fail "$file: exit $?: $(grep error out)"
    grep -q "$words" out || fail "$file: does not say «$words»: $(cat out)"
    case $metric in rmse) holds "$file" "$(of "$folder" test_rmse) <= $least" ;; *) holds "$file" "$(of "$folder" test_accuracy) >= $least" ;; esac
    check "$file: evaluate" "$trireme" evaluate "$folder" "$file" --json
    near "$(number "$metric" <out)" "$(of "$folder" "test_$metric")" 0.1 || fail "$file: evaluate $(number "$metric" <out)"
}
first header.tsv "label class" accuracy 0.9
first named.csv "label y" rmse 0.2
first first.txt "label column 1" accuracy 0.9
first last.csv "linear: labels are" rmse 0.2
first zero.svm "training data" accuracy 0.9
expect 78 "data.train is missing" train solve.epochs=3
expect 66 "job.yaml: cannot read the job file" train job.yaml
check "run without a job file" "$trireme" run data.train=last.csv -n 2 output=supervised -- --oversubscribe

# ---- what labels are, if the job does not say so: words and few integers are classes, ages and real numbers are numbers ----

awk 'BEGIN { srand(8); for (i = 0; i < 1300; i++) { a = rand(); b = rand(); k = int(26 * a)
    print k + 1 "," a "," b >"letters.csv"; print "w" k "," a "," b >"words.csv"; print (i % 4 ? 5 + k % 9 : k + 1) "," a "," b >"rings.csv"
    print a / 3 "," a "," b >"reals.csv" } }'
for type in linear trees; do
    key=model.type classes=logistic numbers=linear
    [ $type = linear ] || { key=model.objective classes=softmax numbers=squared; }
    for case in "letters $classes 26.integers.(1.*26);.$key=$numbers" "words $classes 26.names$" "rings $numbers 26.integers.(1.*26);.$key=$classes" "reals $numbers [0-9]*.real.numbers"; do
        set -- $case
        for ranks in 1 3; do
            run kind $ranks data.train=$1.csv data.label=1 solve.epochs=2 $([ $type = linear ] || echo model.type=trees)
            says kind.out "^$key: *$2: labels are $3" "$1, $type, $ranks ranks"
        done
    done
    numbers_of=$([ $type = linear ] && echo model.type=huber || echo model.type=trees model.objective=absolute)
    classes_of=$([ $type = linear ] && echo model.type=svm || echo model.type=trees model.objective=softmax)
    expect 65 "labels are 26 names, but $key ${numbers_of##*=} needs numbers: expected $key $classes" train data.train=words.csv data.label=1 $numbers_of output=no
    expect 65 "needs classes: expected $key $numbers" train data.train=reals.csv data.label=1 $classes_of output=no
done
# dates are exact as names only: classes, though some are rare
awk 'BEGIN { srand(2); for (i = 0; i < 600; i++) { a = rand(); print 20240100 + (i < 580 ? int(a * 25) : 25 + i % 5) "," a }; print 20240199 ",0.5" }' >dates.csv
run dates 1 data.train=dates.csv data.label=1 solve.epochs=2 && says dates.out "^model.type: *logistic: labels are 31 names$"
[ "$("$trireme" predict dates dates.csv | grep -cv '^202401[0-9][0-9]$')" = 0 ] || fail "dates: other labels are predicted"
run leaves 1 data.train=letters.csv data.label=1 model.type=trees solve.epochs=2 model.min_rows=5000
says leaves.out "^note: *all trees are single leaves"

#!/bin/sh
# predict writes one line for each row of its files, with the identifier of the row.
. "$(dirname "$0")/lib.sh"

# lines FILE TEXT…: the file has these lines
lines() { of=$1; shift; printf '%s\n' "$@" | cmp -s - "$of" || fail "$what: «$(tr '\n' '|' <"$of")», expected «$*»"; }
# predicts NAME WORD…: trireme predict WORD… succeeds; its output is in the files out and err
predicts() { what=$1; shift; "$trireme" predict "$@" >out 2>err || fail "$what: predict $*: exit $?: $(cat err)"; }

# sign by 1:x, except that 2:x is -1
printf '1 1:1\n-1 1:-1\n1 1:2\n-1 2:3\n' >sign.svm
run sign 1 data.train=sign.svm
printf 'x,y\n1,1\n2,2\n3,3\n4,4\n' >line.csv
run line 1 data.train=line.csv data.label=y model.type=linear solve.method=newton model.l2=1e-9 data.scale=none

# ---- libsvm: without labels an empty line is a row of zeros, with labels it is none ----
printf '\n1:1\n\n# a comment\n1:-1\n\n' >bare.svm
gzip -k bare.svm
predicts zeros sign bare.svm --id line
cut -f1 out | tr '\n' ' ' >said && is "numbers of lines" "$(cat said)" "1 2 3 5 6 "
cut -f2 out >said
is "rows of zeros are equal, the others are 1 and -1" "$(sed -n '1p;3p;5p' said | sort -u | wc -l) $(sed -n 2p said) $(sed -n 4p said)" "1 1 -1"
for file in bare.svm bare.svm.gz; do
    on 3 "$trireme" predict sign $file --id line | cmp -s - out || fail "$file on three ranks: other lines"
done
printf '1 1:1\n\n-1 1:-1\n\n' >labelled.svm
predicts labelled sign labelled.svm
lines out 1 -1
is "empty lines of a labelled file" "$(cat err)" "trireme: note: 1 empty lines between rows are no rows: they have no prediction"

# ---- csv: in a column of its own, an empty line is a missing value, which is the mean, 2.5 ----
printf 'x\n1\n\n3\n\n' >column.csv
predicts "one column" line column.csv
awk '{ printf "%.2f ", $1 }' out >said && is "one column" "$(cat said)" "1.00 2.50 3.00 2.50 "
printf 'x,y\n1,1\n\n3,3\n\n' >gaps.csv
predicts "two columns" line gaps.csv
is "two columns" "$(wc -l <out) $(cat err)" "2 trireme: note: 1 empty lines between rows are no rows: they have no prediction"
printf 'x\ty\n1\t1\n\t\n3\t3\n' >tabs.tsv # a row whose values are missing, not an empty line
predicts tabs line tabs.tsv
awk '{ printf "%.2f ", $1 }' out >said && is "a row of tabs" "$(cat said)" "1.00 2.50 3.00 "

# ---- malformed rows: an error, or nan with data.on_error=skip, given here or in training ----
printf 'x,y\n1,1\none,2\n3,3,3\n4,4\n' >wrong.csv
printf '1:1\n1:x\n1:-1\n' >wrong.svm
refuses "a malformed row" 65 "wrong.csv:3: column x: 'one' is not a number" "$trireme" predict line wrong.csv
predicts skipped line wrong.csv data.on_error=skip
awk '{ printf "%.2f ", $1 }' out >said && is "malformed rows of csv" "$(cat said)" "1.00 nan nan 4.00 "
is "malformed rows of csv" "$(tail -1 err)" "trireme: note: 2 malformed rows have the prediction nan"
predicts skipped sign wrong.svm data.on_error=skip --id line
what="malformed rows of libsvm" && lines out "1	1" "2	nan" "3	-1"
run skips 1 data.train=sign.svm data.on_error=skip
predicts "as in training" skips wrong.svm && lines out 1 nan -1
"$trireme" evaluate line wrong.csv data.on_error=skip >out 2>err && says out "^rows *2$" && says err "note: 2 malformed rows were left out"
refuses "another word" 64 "data.on_error=no: expected stop or skip" "$trireme" predict line wrong.csv data.on_error=no

# ---- identifiers: columns of tables, also in HDF5; numbers of rows; datasets ----
printf 'key,x,y\n"k,1",1,1\nk2,2,2\nk3,3,3\nk2,4,4\n' >keys.csv
run keys 1 data.train=keys.csv data.label=y data.columns=key:id model.type=linear
predicts "keys of csv" keys keys.csv --id key
check "convert" "$trireme" convert keys.csv keys.h5
"$trireme" predict keys keys.h5 --id key >said 2>err && predicts "keys of csv" keys keys.csv --id key && cmp -s out said || fail "keys of HDF5: $(cat said err)"
refuses "a file without columns" 64 "expected --id line" "$trireme" predict sign sign.svm --id key
check "convert" "$trireme" convert sign.svm sign.h5
predicts "rows of HDF5" sign sign.h5 --id row
cut -f1 out | tr '\n' ' ' >said && is "numbers of rows" "$(cat said)" "0 1 2 3 "
refuses "no such dataset" 65 "sign.h5:/ has no cells; there is: " "$trireme" predict sign sign.h5 --id cells
command -v h5import >/dev/null || { skip "h5import is not installed"; exit; }

# import FILE PATH CLASS SIZE SHAPE <VALUES: adds a dataset
import() {
    cat >values
    case $3 in
    STR) printf 'PATH %s\nINPUT-CLASS STR\n' "$2" ;;
    *) printf 'PATH %s\nINPUT-CLASS %s\nINPUT-SIZE %s\nRANK %s\nDIMENSION-SIZES %s\nOUTPUT-CLASS %s\nOUTPUT-SIZE %s\n' \
        "$2" "TEXT$3" "$4" "$(echo "$5" | wc -w)" "$5" "$3" "$4" ;;
    esac >how
    h5import values -c how -o "$1" >imported 2>&1 || fail "h5import $1 $2: $(cat imported)"
}
printf '1 0\n-1 0\n2 0\n0 3\n' | import cells.h5 X FP 32 "4 2"
printf 'aa\nb c\n\ndddd\n' | import cells.h5 barcodes STR
printf '9007199254740993\n-5\n0\n7\n' | import cells.h5 obs/number IN 64 4
predicts "texts of HDF5" sign cells.h5 --id barcodes
what=barcodes && lines out "aa	1" "b c	-1" "	1" "dddd	-1"
predicts "numbers of HDF5" sign cells.h5 --id obs/number
what=numbers && lines out "9007199254740993	1" "-5	-1" "0	1" "7	-1"

# ---- labels of HDF5 are predicted and evaluated as they are in the file: texts, large integers, fractions ----
awk 'BEGIN { for (i = 1; i <= 40; i++) print i }' >order
labels() { awk -v a="$1" -v b="$2" 'BEGIN { for (i = 1; i <= 40; i++) print (i > 20 ? b : a) "" }'; }
while read -r class size low high; do
    rm -f classes.h5
    import classes.h5 X FP 32 "40 1" <order
    labels "$low" "$high" | import classes.h5 y $class $size 40
    for how in "1 model.type=logistic" "3 model.type=trees model.min_rows=5 data.test=classes.h5"; do
        # shellcheck disable=SC2086 # words on purpose
        run classes ${how%% *} data.train=classes.h5 ${how#* }
        predicts classes classes classes.h5
        labels "$low" "$high" | paste - out | awk '$1 == $2 { n++ } END { exit n < 38 }' || fail "$class $size, $how: $(sort out | uniq -c)"
        "$trireme" evaluate classes classes.h5 --json >said && says said "\"confusion_${high}_as_$high\": [12]"
        rm -rf classes
    done
done <<END
IN 64 9007199254740992 9007199254740993
IN 32 20231231 20240103
FP 64 16777216 16777217
FP 64 0.1 0.2
STR 0 Oslo Rome,Italy
IN 8 0 1
END
# tasks: one reading of the files for all
labels a b | import texts.h5 y STR 0 40 && import texts.h5 X FP 32 "40 1" <order
run_all 2 /dev/null <<END
one data.train=texts.h5 model.type=logistic
two data.train=texts.h5 data.test=25% model.type=trees model.min_rows=5
END
for task in one two; do
    predicts task $task texts.h5
    labels a b | paste - out | awk '$1 == $2 { n++ } END { exit n < 38 }' || fail "task $task: $(sort out | uniq -c)"
done

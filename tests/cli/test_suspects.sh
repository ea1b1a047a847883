#!/bin/sh
# Suspicious columns are named, and rows that a format cannot hold are refused: each with the key or the command that helps.
. "$(dirname "$0")/lib.sh"

# ---- suspicious columns are named, each with the key that helps, in the same way on any number of ranks ----
awk 'BEGIN { srand(4); print "row,name,c,a,b,known,y"
    for (i = 0; i < 200; i++) { a = int(9 * rand()); y = (a + 5 * rand() > 6)
        print i ",n" i ",7," a "," a "," (y ? "late" : "early") "," y } }' >suspects.csv
"$trireme" count suspects.csv data.label=y | grep '^note: ' >said
cat >wanted <<'END2'
note: column row: counts the rows, as an index does: data.columns={row: id}
note: column name: 200 of 200 rows have different words, as in an identifier: data.columns={name: id}
note: column c: all rows have one value: data.columns={c: ignore}
note: column b: equals the column a in all rows: data.columns={b: ignore}
note: column known: each of its values has one label and each label one value, in all rows: if it is known only with the label, leave it out: data.columns={known: ignore}
END2
cmp -s said wanted || fail "suspicious columns: $(diff said wanted)"
on 3 "$trireme" count suspects.csv data.label=y | grep '^note: ' | cmp -s - wanted || fail "suspicious columns on three ranks"
for ranks in 1 2; do
    run suspects $ranks data.train=suspects.csv data.label=y data.test=suspects.csv
    [ "$(grep -c '^note: *column ' suspects.out)" -eq 3 ] || fail "three notes on $ranks ranks: $(cat suspects.out)"
    says suspects.out '^note: *of 200 rows of data.test, 200 are equal to rows of data.train'
done
awk 'NR == 1 || NR % 2' suspects.csv | sed '5s/,[01]$/,rare/' >rare.csv
"$trireme" count rare.csv data.label=y | grep -q '^note: column y: 1 label is in one row only, the first is rare' || fail "a label of one row"
"$trireme" count suspects.csv data.label=row | grep -q '^note: column row: no two rows have one label' || fail "an identifier as label"
awk 'BEGIN { srand(5); print "a,b,y"; for (i = 0; i < 300; i++) print int(99 * rand()) "," rand() "," int(3 * rand()) }' >usual.csv
"$trireme" count usual.csv data.label=y | grep '^note' && fail "usual columns are suspicious"

# ---- what libsvm and HDF5 cannot hold is refused with its place and a way out ----
refused_line() { # TEXT OF FILE, WORDS
    printf '1 1:1\n-1 1:2\n%s\n' "$1" >odd.svm
    refuses "$1" 65 "odd.svm:3: '$2" "$trireme" train data.train=odd.svm data.format=libsvm output=no report.progress=no
}
refused_line '1 1:nan' "1:nan': the value is not finite, expected an ordinary number: leave the pair out for 0"
refused_line '1:0.5 1:3' "1:0.5': expected a label before the first index:value; weights of rows are in the file of data.weight"
refused_line '1,3 1:1' "1,3': several labels, expected one number: write a file for each label"
refused_line '1 5 7' "5': expected a colon and a value behind the index, as in 5:1"
printf '1 5 7\n-1 5 7 9\n' >lists.txt
refuses "lists of indices" 65 "lists.txt:2: more than 3 columns, expected 3 as in the first line" \
    "$trireme" train data.train=lists.txt output=no report.progress=no
grep -q 'lists of indices need values, as in 1 5:1 7:1' err || fail "lists of indices: $(cat err)"

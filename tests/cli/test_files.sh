#!/bin/sh
# Files as spreadsheets, databases, R, Python and instruments write them: they are read as their author meant them, or refused with
# the line, the cause and the key that helps. trireme convert shows how a file was read.
tests=$(realpath "$(dirname "$0")")
. "$(dirname "$0")/lib.sh"

# reads NAME SETTING…: the file NAME is converted, and the result is the file `expected`
reads() {
    name=$1; shift
    "$trireme" convert "$name" result.csv "$@" >out 2>err || { fail "$name $*: exit $?: $(cat err)"; return; }
    cmp -s result.csv expected || fail "$name $*: read as: $(cat result.csv)"
}
rows() { awk -v n="${1:-40}" "BEGIN { for (i = 1; i <= n; i++) $2 }"; }

# ---- encodings and line ends ----
{ echo "name,price"; rows 40 'printf "caf\xc3\xa9 %d,%d.5\n", i, i'; } >expected
iconv -f utf-8 -t utf-16 expected >utf16.csv;                 reads utf16.csv
iconv -f utf-8 -t utf-16le expected >utf16le.csv;             reads utf16le.csv data.encoding=utf-16
iconv -f utf-8 -t utf-16be expected | cat >utf16be.csv;       reads utf16be.csv
iconv -f utf-8 -t latin1 expected >latin1.csv;                reads latin1.csv
                                                              reads latin1.csv data.encoding=latin-1
tr '\n' '\r' <expected >cr.csv;                               reads cr.csv
{ printf '\357\273\277'; sed 's/$/\r/' expected; } >crlf.csv; reads crlf.csv
gzip -c utf16.csv >packed.csv.gz;                             reads packed.csv.gz

# ---- quotes: line ends, single quotes, escapes, none ----
{ echo "id,text"; rows 40 'printf "%d,\"line %d\n\nsaid \"\"yes\"\", %d\"\n", i, i, i'; } >expected
reads expected
sed "s/\"\"/\\\\\"/g" expected >escaped.csv; reads escaped.csv
                                              reads escaped.csv data.escape=backslash
sed "s/\"\"/~/g; s/\"/'/g; s/~/\"/g" expected >single.csv; reads single.csv
                                              reads single.csv data.quote=single data.newlines=yes
printf 'id,inches\n1,5"\n2,"7\n3,8\n' >inches.csv
printf 'id,inches\n1,"5"""\n2,"""7"\n3,8\n' >expected; reads inches.csv data.quote=none

# ---- delimiters, preamble, comments, several lines of names, units ----
{ echo "id,words,n"; rows 40 'printf "%d,\"a, b%d\",%d\n", i, i % 3, i * 7 % 13'; } >expected
sed 's/,\([^ ]\)/|\1/g; s/"//g' expected >bars.csv; reads bars.csv
                                             reads bars.csv data.delimiter=pipe
{ printf 'Report of the year\nmade by us\n\n'; cat expected; } >preamble.csv; reads preamble.csv
                                             reads preamble.csv data.skip_lines=3
sed '5s/^/# &/; 9s/^/#/' expected >comments.csv
sed '5d; 9d' expected >expected2; mv expected2 expected
reads comments.csv data.comment='#'
{ echo "speed min,speed max,t"; rows 40 'print i "," i * 3 % 7 "," i % 2'; } >expected
{ printf 'speed,speed,\nmin,max,t\n'; tail -n +2 expected; } >two.csv; reads two.csv data.header=2
sed '1s/$/\nkm,km,s/' expected >units.csv;   reads units.csv
sed 1d expected >none.csv; sed -i '1s/.*/1,2,3/' expected; reads none.csv data.header=no

# … and names without one for the first column, as R writes them
{ echo "1,a,y"; rows 9 'print i "," i * 3 % 7 ".5," i % 2'; } >expected
sed '1s/^1,//; s/,/ /g; s/^/"/; s/ /" /; 1s/ \(.*\)/ "\1"/' expected >write.table; reads write.table
says err 'the first column has no name'

# ---- a quoted NA is a word (of R: Namibia), without quotes the value is missing ----
printf 'land,x,y\n"NA",1,0\nNA,2,1\n"DE",3,0\n"NA",NA,1\n' >land.csv; tr -d '"' <land.csv | sed 's/^NA,1/"NA",1/; s/^NA,N/"NA",N/' >expected
reads land.csv
"$trireme" count land.csv >out; says out 'land  *category  2 different, 1 missing'
"$trireme" count land.csv data.missing=NA >out; says out 'land  *category  1 different, 3 missing'

# ---- numbers ----
{ echo "a;b;c"; rows 40 'printf "%d,%d;1.%03d,5;%d\n", i, i % 10, i * 7, i'; } >decimal.csv
{ echo "a,b,c"; rows 40 'printf "%d.%d,1%03d.5,%d\n", i, i % 10, i * 7, i'; } >expected
reads decimal.csv
reads decimal.csv data.decimal=comma data.thousands=point data.delimiter=';'
{ echo "price,share,n"; rows 9 'printf "\"$1,%d.5\",%d %%,1.%d\n", i * 111, i, i'; } >marks.csv
{ echo "price,share,n"; rows 9 'printf "1%d.5,%d,1.%d\n", i * 111, i, i'; } >expected
reads marks.csv data.thousands=none 'data.columns={price: {type: number, strip: "$", thousands: ","}, sha*: {strip: "% pct"}}'
printf 'data:\n  columns:\n    price: {strip: "$", thousands: comma}\n    y: label\n  train: paid.csv\noutput: paid\n' >paid.yaml
sed '1s/n$/y/' marks.csv >paid.csv
check "columns with keys in a file" "$trireme" train paid.yaml model.type=linear

# ---- dates: days since 2000, month, weekday, hour; by another program ----
printf 'when,seen,y\n2024-02-29T18:30:00,29/2/2024,1\n1999-12-31,1/1/00,0\n,?,1\n' >dates.csv
day() { echo $((($(date -u -d "$1" +%s) - $(date -u -d 2000-01-01 +%s)) / 86400)); }
{ echo "when.days,when.month,when.weekday,when.hour,seen.days,seen.month,seen.weekday,y"
    echo "$(day 2024-02-29).7708333,2,$(date -d 2024-02-29 +%u),18,$(day 2024-02-29),2,$(date -d 2024-02-29 +%u),1"
    echo "-1,12,$(date -d 1999-12-31 +%u),0,0,1,$(date -d 2000-01-01 +%u),0"
    echo ',,,,?,?,?,1'; } | sed 's/7708333/770833/' >expected
reads dates.csv 'data.columns={when: time, seen: {type: date, format: d/m/y}}'
printf 'when,y\n2024-01-31,1\nsoon,0\n2024-03-31,0\n' >late.csv
expect 65 "late.csv:3: column when.days: 'soon' is not a number" train data.train=late.csv data.label=y data.columns='when: date' output=late

# ---- malformed rows: the line of the file, the cause and the key; or left out ----
printf 'a,b\n1,"x\ny"\n2,"u\n3,v\n4,w,w\n5,"z"\n' >bad.csv
expect 65 "bad.csv:4: column b: '\"u' opens a quote that does not close in this line: see data.newlines=yes" convert bad.csv result.csv
printf 'a,b\n1,"x\ny"\n3,v\n5,z\n' >expected; reads bad.csv data.on_error=skip
says out "2 malformed records left out"
sed 's/,"u/,u/' bad.csv >bad2.csv; expect 65 "bad2.csv:6: more than 2 columns, expected 2" convert bad2.csv result.csv

# a separator between a number and a quoted text is missing; the names again; a first row that is malformed
printf 'a,b,c\n1,"x, y",2\n2"x, y",3\n4,z,5\n' >torn.csv
expect 65 "torn.csv:3: column a: '2\"x' has a quote that closes in another column" convert torn.csv result.csv
{ echo "a,y"; rows 40 'print i "," i % 2'; } >again.csv; cat again.csv again.csv >twice.csv
expect 65 "twice.csv:42: column a: 'a' is the name of the column: the line is a second header" train data.train=twice.csv data.label=y output=no
sed '2s/^/7,/' again.csv >first.csv; sed '2d' again.csv >expected; reads first.csv data.on_error=skip

# ---- names that are numbers; words that begin as nan and inf; notations that two rows show ----
{ echo "0,1,2,label"; rows 40 'print i % 7 "," i * 3 % 11 "," i % 5 "," i % 2'; } >numbered.csv
run numbered 1 data.train=numbered.csv data.label=label
says numbered.out "the first line has names (data.header)"
is "rows below names that are numbers" "$("$trireme" count numbered.csv 2>err | awk 'NR == 1 { print $1 }')" 40
{ echo "who,y"; rows 40 'print (i % 2 ? "Nancy" : "info") "," i % 2'; } >who.csv
run who 1 data.train=who.csv data.label=y; says who.out "1 category"
{ echo "a,b,y"; rows 40 'printf "\"%d,%03d\",%d%%,%d\n", i, i * 37 % 1000, i * 7 % 31, (i > 20)'; } >marked.csv
run marked 1 data.train=marked.csv data.label=y
says marked.out "',' between thousands, or decimal mark (data.thousands), column b has numbers with %, which data.columns='{b: {type: number, strip: \"%\"}}' reads"
says marked.out "1 number, 1 category"
run marks 1 data.train=marked.csv data.label=y 'data.columns={b: {type: number, strip: "%"}}'
says marks.out "2 numbers"; silent marks.out "column b has"

# ---- settings ----
printf '1 1:1\n0 2:1\n' >d.svm
expect 78 "data.decimal is for csv and ratings, and the data are libsvm" train data.train=d.svm data.decimal=comma
"$trireme" convert preamble.csv p.h5 >/dev/null || fail "convert to HDF5"
expect 78 "data.encoding is for text, and the data are hdf5" train data.train=p.h5 data.encoding=utf-8
expect 78 "none.csv has no header, which dates need" convert none.csv result.csv data.header=no 'data.columns=1: date'
expect 78 "data.delimiter is «ab»: expected one character" convert bars.csv result.csv data.delimiter=ab
expect 78 "data.decimal is «;»: expected point or comma" convert bars.csv result.csv "data.decimal=;"
expect 78 "data.escape has no effect: data.quote is none" convert bars.csv result.csv data.quote=none data.escape=backslash
expect 78 "data.thousands is the decimal mark" convert bars.csv result.csv data.thousands=comma data.decimal=comma
expect 78 "expected the keys type, strip, decimal, thousands and format" convert bars.csv result.csv 'data.columns={n: {stripe: x}}'
expect 78 "expected type: number, which strip, decimal and thousands are for" convert bars.csv result.csv 'data.columns={n: {type: id, strip: x}}'
expect 78 "has no column when" convert bars.csv result.csv 'data.columns=when: date'
expect 78 "only tables of text are converted to csv" convert d.svm result.csv

# ---- the same models on any number of ranks, from any dialect; predict reads files of either dialect ----
awk 'BEGIN { srand(3); print "x,kind,y"; for (i = 0; i < 900; i++) { x = int(100 * rand()) / 10; k = i % 3
    printf "%s,\"kind %d\nof 3\",%d\n", x, k, (x + 2 * k > 7) } }' >usual.csv
sed 's/^\([0-9.]*\),/\1;/; s/3",/3";/; s/,kind,/;kind;/; s/^x,/x;/; s/^\([0-9]*\)\.\([0-9]\)/\1,\2/; 1s/.*/x;kind;y/' usual.csv | iconv -f utf-8 -t utf-16 >other.csv
run usual 1 data.train=usual.csv data.label=y model.l2=1e-3
for ranks in 1 3; do
    run other $ranks data.train=other.csv data.label=y model.l2=1e-3
    says other.out "dialect: .*other.csv: .*UTF-16"
    near "$(of usual objective)" "$(of other objective)" 1e-6 || fail "$ranks ranks: $(of other objective) instead of $(of usual objective)"
done
"$trireme" predict usual usual.csv >a; "$trireme" predict other other.csv >b; "$trireme" predict other usual.csv >c
[ "$(wc -l <a)" -eq 900 ] && cmp -s a b && cmp -s a c || fail "predictions differ"
"$trireme" inspect usual/model.h5 --top 9 | grep -qF 'kind=kind 2\nof 3' || fail "a value with a line end is not shown in one line"

# one row does not show that commas are decimal marks: the model knows it
{ echo "a;b"; rows 60 'printf "1,%d;%d\n", i % 50, (i % 50 > 25)'; } >comma.csv
sed 's/,/./' comma.csv >point.csv
run comma 1 data.train=comma.csv data.label=b
run point 1 data.train=point.csv data.label=b
[ "$("$trireme" predict comma comma.csv | head -7)" = "$("$trireme" predict point point.csv | head -7)" ] || fail "decimal commas: other predictions"
printf 'a;b\n1,375;0\n' >one-comma.csv
printf 'a;b\n1.375;0\n' >one-point.csv
for m in comma point; do "$trireme" predict $m one-$m.csv --margin >one-$m 2>&1; done
[ "$(wc -l <one-point)" -eq 1 ] && cmp -s one-comma one-point || fail "one row: $(cat one-comma one-point)"

# ---- the first column of pandas and R has no name ----
{ echo ",a,y"; rows 40 'print i - 1 "," i * 7 % 11 "," i % 2'; } >index.csv
run index 1 data.train=index.csv data.label=y
says index.out "1 number, 1 ignored" "the row numbers are a feature"
sed '2s/^0,/7,/' index.csv >first.csv; sed -i '1s/^/1/' first.csv; sed '1s/^1//' first.csv >unnamed.csv
cp first.csv expected; reads unnamed.csv

# ---- HDF5 of MATLAB and AnnData: the same rows as text give the same predictions ----
hdf5=$(pkg-config --exists hdf5-serial && echo hdf5-serial || echo hdf5)
${CC:-cc} $(pkg-config --cflags $hdf5) "$tests/hdf5_kinds.c" -o kinds $(pkg-config --libs $hdf5) && ./kinds || fail "hdf5_kinds"
linear="model.type=logistic solve.method=newton sync.mode=bsp"
run text 1 $linear data.train=rows.svm
"$trireme" predict text rows.svm --margin >expected
while read -r name ranks file label; do
    run $name $ranks $linear data.train=$file ${label:+data.label=$label}
    "$trireme" predict $name $file --margin | paste -d' ' - expected | awk '{ d = $1 - $2; if (d * d > 1e-6) exit 1 } END { exit NR != 60 }' ||
        fail "$file $label: other predictions than of text"
    [ "$("$trireme" evaluate $name $file | grep accuracy)" = "$("$trireme" evaluate text rows.svm | grep accuracy)" ] || fail "$file $label: evaluate"
done <<'END'
matlab 1 matlab.mat
across 3 matlab.mat:/X /across
cells 3 cells.h5ad obs/cell_type
cells1 1 cells.h5ad cell_type
score 1 cells.h5ad:/X score
END
[ "$("$trireme" predict cells cells.h5ad | sort -u)" = "$(printf 'B cell\nT cell')" ] || fail "cells.h5ad: predict: $("$trireme" predict cells cells.h5ad | sort -u)"
train="train model.type=linear output=refused"
expect 65 "cells.h5ad:/ has no kind; there is: X/, obs/" $train data.train=cells.h5ad data.label=kind
expect 65 "cells.h5ad:/obs has no codes and categories" $train data.train=cells.h5ad data.label=obs
expect 65 "matlab.mat:S: a sparse matrix of MATLAB, expected a full one: S = full(S)" $train data.train=matlab.mat:/S
expect 65 "pandas.read_hdf('pandas.h5').to_csv('pandas.h5.csv', index=False)" $train data.train=pandas.h5

# ---- files that are not read: the command that writes them as text ----
foreign() { printf "$2" >"$1"; expect 65 "$1: $3, which is not read: $4" $train data.train="$1"; }
foreign a.parquet 'PAR1\25\0' Parquet "python3 -c \"import pandas; pandas.read_parquet('a.parquet').to_csv('a.parquet.csv', index=False)\""
foreign a.feather 'ARROW1\0\0' "Arrow (Feather)" "python3"
foreign a.db 'SQLite format 3\0' "a database of SQLite" "sqlite3 -header -csv 'a.db'"
foreign a.npy '\223NUMPY\1\0v\0{' "an array of NumPy" "python3 -c \"import numpy; numpy.savetxt('a.npy.csv', numpy.load('a.npy'), delimiter=',')\""
foreign a.xlsx 'PK\3\00412345678901234567890123456[Content_Types].xml' "a document of Excel or another office program" "save the sheet as csv"
foreign a.npz 'PK\3\00412345678901234567890123456indices.npy' "a sparse matrix of scipy" "python3"
foreign a.zip 'PK\3\004123' "a zip archive (also .npz of NumPy)" "unzip 'a.zip'"
foreign a.pkl '\200\4\225' "a pickle of Python" "python3"
foreign a.xls '\320\317\21\340\241\261\32\341' "a document of Excel 97" "save"
foreign a.mat 'MATLAB 5.0 MAT-file, Platform' "a MATLAB file of version 5" "load('a.mat'); save('a.mat', '-v7.3') in MATLAB"

exit $bad

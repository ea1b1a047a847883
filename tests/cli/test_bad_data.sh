#!/bin/sh
# Malformed data in all formats except LIBSVM end with one line, from one rank, and the exit code that fits; unusual
# but valid data are read.
. "$(dirname "$0")/lib.sh"
cases=0

# train SETTING…: on one rank, each third case on three
train() {
    rm -rf out
    cases=$((cases + 1))
    on $((cases % 3 ? 1 : 3)) "$trireme" train job.yaml "$@" >said 2>err
}

# refuses CODE WORDS SETTING…: ends with this exit code, and the one line that is an error has the words
refuses() {
    code=$1 words=$2
    shift 2
    train "$@"
    one_error "$*" $? "$code" "$words"
    [ ! -e out/model.h5 ] || fail "$*: leaves a model"
}

# accepts WORDS SETTING…: trains, and says the words
accepts() {
    words=$1
    shift
    train "$@" || fail "$*: exit $?: $(cat err)"
    grep -qF -- "$words" err || fail "$*: «$(cat err)» lacks «$words»"
}

# text BYTES: the file x
text() { printf '%b' "$1" >x; }

printf 'name: job\noutput: out\nsolve: {epochs: 2}\ndata: {train: x}\n' >job.yaml

# ---- ratings ----
mf="model.type=mf model.rank=2"
text '1\t2\t3\n1\t2\n';                 refuses 65 "x:2: '1': expected three columns" $mf
text '1,2,3\n1,2,bad\n';                refuses 65 "x:2: 'bad': the rating is not a number" $mf
text '1,2,3\n1,,3\n';                   refuses 65 "x:2: '1': the item is missing" $mf
text '1,2,3\n1,2,inf\n';                refuses 65 "x:2: 'inf': the rating is not finite" $mf
text 'user,item,rating\n';              refuses 66 "x: there is no record in it" $mf
text '1 1:2 3:4\n';                     refuses 65 "x: looks like data.format: libsvm, expected ratings" $mf
text '1 2\n3 4\n';                      refuses 65 "x:1: '1': expected three columns" $mf
text '1,2,3\n2,2,1\n1,3,3\n';           printf '1,z,3\n' >y
refuses 65 "y:1: 'z': the item is no whole number, as those of the training data are" $mf data.test=y
text 'ann::The Matrix::5\nbob::Heat::1\nann::Heat::2::978300760\nann::Heat::3\n'
accepts "2 users, 2 items, 3 ratings" $mf
text '1,2,3\n1,x\n2,2,1\n3,3,x\n1,3,1\n'
accepts "2 malformed records left out" $mf data.on_error=skip
text 'id,movie,stars\n1,2,3\n2,3,4\n'
refuses 65 "x:1: 'stars': the rating is not a number" $mf data.header=no

# ---- bags of words ----
lda="model.type=lda model.topics=2"
text '2\n3\n2\n1 1 1\n2 4 1\n';         refuses 65 "x:5: '4': no such word, expected 1 to 3" $lda
text '2\n3\n2\n1 1 1\n3 1 1\n';         refuses 65 "x:5: '3': no such document, expected 1 to 2" $lda
text '2\n3\n2\n1 1 0\n2 1 1\n';         refuses 65 "x:4: '0': the count is wrong, expected 1 to 1000000" $lda
text '2\n3\n2\n1 1 1\n2 1 1000000000\n'; refuses 65 "x:5: '1000000000': the count is wrong" $lda
text '2\n3\n3\n1 1 1\n2 1 1\n';         refuses 65 "x: 2 records, expected 3 as its third line says" $lda
text '2\n3\n1\n1 1 1\n2 1 1\n';         refuses 65 "x: 2 records, expected 1 as its third line says" $lda
text '1 1 1\n2 1 1\n';                  refuses 65 "x: expected three lines with the numbers of documents" $lda
text '2\n3\n0\n';                       refuses 66 "x: there is no record in it" $lda
text '1 1:2 3:4\n';                     refuses 65 "x: looks like data.format: libsvm, expected docword" $lda
text '2\n3\n2\n1 1 1\n2 1 1\n';         printf '1\n4\n1\n1 1 1\n' >y
refuses 65 "y: its header says 4 words, but that of x 3" $lda data.train=x,y
text '3\n4\n5\n3 4 2\n1 2 1\n1 1 7\n3 1 1\n1 2 4\n'
accepts "2 documents, 4 words, 4 counts, 15 tokens" $lda

# ---- tables ----
km="model.type=kmeans model.clusters=2"
text '1,2\n3,4,5\n';                    refuses 65 "x:2: more than 2 columns, expected 2 as in the first line" $km
text '1,2,3\n3,4\n';                    refuses 65 "x:2: 2 columns, expected 3 as in the first line" $km
text '1,2\n3,1e400\n';                  refuses 65 "x:2: column 2: '1e400' is too large for a 32-bit float" $km
text '1,2\ninf,1\n';                    refuses 65 "x:2: column 1: 'inf' is not finite" $km
text '1,2\n3,\0001\n';                  refuses 65 "x:2: column 2: '\x01' found bytes that are not text" $km
text '1,2\n3,"4\n5,6\n';                refuses 65 "x:2: column 2: '\"4' opens a quote that does not close in this line" $km
text '1,2\n3,"4"5\n';                   refuses 65 "x:2: column 2: '\"4\"5' found text behind the quote that closes" $km
text '1,2\n3,four\n';                   refuses 65 "x:2: column 2: 'four' is not a number" $km "data.columns=2: number"
text '1,2\n3,four\n';                   accepts "column 2 is a category, as x:2 has 'four'" $km
text 'a,y\n"1,234",1\n';                refuses 65 "x:2: column a: '\"1' is not a number" $km data.columns=a:number
text 'a,y\n1,234,1\n';                  refuses 65 "x:1: the header names 2 columns, but the line behind it has 3: data.header=no data.skip_lines=1 leaves it out" $km
text '1,2\n0x10,3\n';                   refuses 65 "x:2: column 1: '0x10' is not a number" $km "data.columns=1: number"
text 'a,b,a\n1,2,3\n';                  refuses 65 "x: two columns are called a" $km
text 'a,b\n1,2\n';                      refuses 78 "data.columns: x has no column c" $km "data.columns=c: number"
text 'a,b\n1,2\n';                      refuses 78 "expected «name: type» with one of number, category" $km "data.columns=b: float"
text 'a,b\n1,2\n';                      refuses 78 "data.label: x has no column z" $km data.label=z
text 'a,b\n1,2\n'; printf 'b,a,c\n1,2,3\n' >y
refuses 65 "y: unknown column c: the training data have none of that name" $km data.train=x,y
text 'a,b\n1,2\n'; printf 'b\n1\n' >y; refuses 65 "y: there is no column a, which the training data have" $km data.train=x,y
text 'a,b\n1,\n2,\n';                   refuses 65 "x: no row has a label in column b" $km data.label=b
{ printf 'a,b\n1,'; head -c 70000 /dev/zero | tr '\0' w; echo; echo 2,v; } >x
refuses 65 "x:2: column b: 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww…' has 70000 bytes, expected at most 65535" $km
text '1\n2\n';                          refuses 65 "x: there is no column besides that of data.label" $km data.label=last
text '1,2\n3,4\n';                      printf '1,2,3\n' >y
refuses 65 "y: 3 columns, but x has 2" $km data.train=x,y
text '2\n3\n2\n1 1 1\n2 1 1\n';         refuses 65 "x: looks like data.format: docword, expected csv" $km
text 'a;b\n1;2\n3;4\n5;6,5\n';          refuses 65 "x:4: column b: '6,5' is not a number" $km "data.columns=*: number"
text 'a;b\n1;2\n3;4\n5;6,5\n';          accepts "column b is a category, as x:4 has '6,5'" $km
text '\0357\0273\0277a;b\r\n1;2\r\n\r\n3;4\r\n 5 ;"6"'
accepts "3 dense rows, 2 columns" $km
text '1\t2\t3\n4\t5\t6\n7\t8\t9\n';     accepts "3 dense rows, 2 columns" $km data.label=first
text '1,2\nx,3\n3,4\n';                 accepts "1 malformed records left out" $km data.on_error=skip

# ---- columns that tell nothing: one value, none at all; each scale leaves them without effect ----
awk 'BEGIN { print "a,same,none,b,y"
    for (i = 0; i < 200; i++) { a = i * 7 % 11; b = i * 5 % 13; print a ",7,," b "," a + 2 * b } }' >x
for scale in auto none standard minmax maxabs; do
    accepts "4 numbers, missing values in 1; label y" model.type=linear solve.epochs=5 data.label=y data.scale=$scale
    "$trireme" inspect out/model.h5 >shown
    awk '$1 == "a" { a = $2 } $1 == "b" { b = $2 } END { exit !(a > 0.9 && a < 1.1 && b > 1.9 && b < 2.1) }' shown ||
        fail "$scale: $(grep -E '^ +(a|b) ' shown)"
    "$trireme" evaluate out x >shown || fail "$scale: evaluate: exit $?"
    awk '$1 == "r2" && $2 > 0.99 { good = 1 } END { exit !good }' shown || fail "$scale: $(cat shown)"
done

# ---- names and values in Latin-1; 100,000 columns; a field of 10 MB ----
awk 'BEGIN { for (i = 0; i < 60; i++) print "na\351ve" i % 3 "," i "," 10 * (i % 3) }' | LC_ALL=C sed '1i caf\xe9,a,y' >x
accepts "1 number, 1 category" model.type=linear data.label=y
"$trireme" inspect out/model.h5 | grep -qF 'café=naéve2' || fail "names in Latin-1"
"$trireme" evaluate out x >shown && awk '$1 == "r2" && $2 > 0.9 { good = 1 } END { exit !good }' shown || fail "latin: $(cat shown)"
awk 'BEGIN { for (i = 0; i < 3; i++) { for (j = 0; j < 99999; j++) printf "%d,", i * j % 7; print i % 2 } }' >x
accepts "3 dense rows, 99999 columns" model.type=logistic data.label=last
{ printf 'a,b,y\n1,2,3\n"'; head -c 10000000 /dev/zero | tr '\0' x; printf '",2,3\n'; } >x
refuses 65 "x:3: column a: '\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…' has 10000000 bytes, expected at most 65535" model.type=linear data.label=y data.columns=a:category

#!/bin/sh
# trireme generate: rows, whole files or none, wrong options.
. "$(dirname "$0")/lib.sh"

small="rows=50k features=1k nonzeros=5 seed=7"
expect 0 "50000 rows" generate ctr -o new/folder/a.svm $small
[ "$(wc -l <new/folder/a.svm)" = 50000 ] || fail "a.svm has not 50000 rows"
"$trireme" generate ctr -o - $small | cmp - new/folder/a.svm || fail "standard output differs from a file"
"$trireme" generate ctr -o - $small rows=10k first_row=40k >end.svm
tail -n 10000 new/folder/a.svm | cmp - end.svm || fail "first_row does not make the rows of the whole"
expect 0 "" generate ctr -o a.svm.gz $small
gzip -dc a.svm.gz | cmp - new/folder/a.svm || fail "the compressed file differs"
expect 0 "" generate ctr -o real.svm $small rows=10 values=real
grep -q ':0\.' real.svm || fail "values=real makes no real values"

# lines FILE: how many it has
lines() { wc -l <"$1" | tr -d ' '; }

few="users=2k items=1k ratings=60k"
expect 0 "60000 ratings" generate ratings -o all $few
[ "$(lines all)" = 60000 ] || fail "all has not 60000 ratings"
expect 0 " ratings, " generate ratings -o train -t test $few test=0.2
[ "$(($(lines train) + $(lines test)))" = 60000 ] || fail "train and test are not all ratings"
[ "$(lines test)" -gt 11000 ] && [ "$(lines test)" -lt 13000 ] || fail "test is not a fifth"
sort all >all.sorted
sort train test | cmp - all.sorted || fail "train and test differ from all"
"$trireme" generate ratings -o - $few | cmp - all || fail "ratings on standard output differ"

expect 0 " words, " generate docword -o docs -v words documents=500 words=300 tokens=60k topics=5
[ "$(head -n 1 docs)" = 500 ] && [ "$(sed -n 2p docs)" = 300 ] || fail "docs begins wrongly"
[ "$(sed -n 3p docs)" = "$(tail -n +4 docs | wc -l)" ] || fail "docs has not as many counts as it says"
[ "$(tail -n +4 docs | awk '{ n += $3 } END { print n }')" = 60000 ] || fail "docs has not 60000 tokens"
[ "$(sort -u words | wc -l)" = 300 ] || fail "words has not 300 different ones"
"$trireme" generate docword -o - documents=500 words=300 tokens=60k topics=5 | cmp - docs || fail "docs differ"
expect 0 "" generate docword -o docs.gz documents=500 words=300 tokens=60k topics=5
gzip -dc docs.gz | cmp - docs || fail "the compressed documents differ"

expect 0 "50000 rows" generate dense -o dense.csv rows=50k columns=3 clusters=2 label=first
[ "$(awk -F, 'NF == 4 && ($1 == 0 || $1 == 1)' dense.csv | wc -l)" = 50000 ] || fail "dense.csv is wrong"
"$trireme" generate dense -o - rows=10 columns=3 clusters=2 label=first first_row=49990 >end.csv
tail -n 10 dense.csv | cmp - end.csv || fail "first_row does not make the dense rows of the whole"
expect 0 "" generate dense -o dense.svm rows=10 columns=2 format=libsvm
[ "$(grep -c '^[0-9]* 1:-*[0-9.]* 2:-*[0-9.]*$' dense.svm)" = 10 ] || fail "dense.svm is wrong"

expect 64 "did you mean ctr?" generate crt -o b
expect 64 "did you mean nonzeros?" generate ctr -o b nonzero=5
expect 64 "unknown option --rows" generate ctr -o b --rows=5
expect 64 "expected a whole number such as 500000, 500k or 1M" generate ctr -o b rows=many
expect 64 "rows is «1.5»" generate ctr -o b rows=1.5
expect 64 "expected unit, binary or real" generate ctr -o b values=true
expect 64 "expected 1 to 3, the number of features" generate ctr -o b features=3 nonzeros=4
expect 64 "did you mean ratings?" generate rating -o b
expect 64 "did you mean users?" generate ratings -o b user=5
expect 64 "expected whole or real" generate ratings -o b values=true
expect 64 "expected at most 25, a quarter of users times items" generate ratings -o b users=10 items=10 ratings=26
expect 64 "users: 0" generate ratings -o b users=0
expect 64 "add -t FILE" generate ratings -o b test=0.1
expect 64 "two different files" generate ratings -o b -t b
expect 64 "test: 1.5" generate ratings -o b -t c test=1.5
expect 64 "unknown option -t" generate dense -o b -t c
expect 64 "generate: -t: expected TEST" generate ratings -o b -t
expect 64 "alpha: -1" generate docword -o b alpha=-1
expect 64 "documents: 0" generate docword -o b documents=0
expect 64 "expected csv or libsvm" generate dense -o b format=text
expect 64 "clusters: 0" generate dense -o b clusters=0
expect 64 "add -o FILE" generate ctr rows=5
expect 64 "expected ctr, ratings, docword, dense, events or claims" generate
expect 73 "is a folder" generate ctr -o new rows=5
expect 73 "is a file" generate ctr -o end.svm/b rows=5
[ ! -e b ] && [ ! -e b.part ] && [ ! -e c ] || fail "a failed call left a file"
if [ -c /dev/full ]; then
    expect 74 "No space left" generate ctr -o /dev/full rows=5
    ln -s /dev/full full.gz
    expect 74 "No space left" generate ctr -o full.gz $small
    [ ! -e full.gz.part ] || fail "a full disk left a file"
fi

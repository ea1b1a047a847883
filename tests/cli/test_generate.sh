#!/bin/sh
# trireme generate: the rows, whole files or none, and words that are wrong. Usage: test_generate.sh TRIREME
trireme=$(realpath "$1")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failed=0

fail() {
    echo "FAILED: $*" >&2
    failed=1
}

# expect CODE TEXT WORD...: the command ends with this code and says this
expect() {
    code=$1 text=$2
    shift 2
    said=$(timeout 60 "$trireme" generate "$@" 2>&1 >/dev/null)
    got=$?
    [ "$got" = "$code" ] || fail "generate $*: exit $got, expected $code: $said"
    case $said in
    *"$text"*) ;;
    *) fail "generate $*: says «$said», expected «$text»" ;;
    esac
}

small="rows=50k features=1k nonzeros=5 seed=7"
expect 0 "50000 rows" ctr -o new/folder/a.svm $small
[ "$(wc -l <new/folder/a.svm)" = 50000 ] || fail "a.svm has not 50000 rows"
"$trireme" generate ctr -o - $small | cmp - new/folder/a.svm || fail "standard output differs from a file"
"$trireme" generate ctr -o - $small rows=10k first_row=40k >end.svm
tail -n 10000 new/folder/a.svm | cmp - end.svm || fail "first_row does not make the rows of the whole"
expect 0 "" ctr -o a.svm.gz $small
gzip -dc a.svm.gz | cmp - new/folder/a.svm || fail "the compressed file differs"
expect 0 "" ctr -o real.svm $small rows=10 values=real
grep -q ':0\.' real.svm || fail "values=real makes no real values"

expect 64 "did you mean ctr?" crt -o b
expect 64 "did you mean nonzeros?" ctr -o b nonzero=5
expect 64 "unknown option --rows" ctr -o b --rows=5
expect 64 "expected a whole number such as 500000, 500k or 1M" ctr -o b rows=many
expect 64 "rows: 1.5" ctr -o b rows=1.5
expect 64 "expected unit, binary or real" ctr -o b values=true
expect 64 "expected 1 to 3, the number of features" ctr -o b features=3 nonzeros=4
expect 64 "add -o FILE" ctr rows=5
expect 64 "usage: trireme generate"
expect 73 "is a folder" ctr -o new rows=5
expect 73 "is a file" ctr -o end.svm/b rows=5
[ ! -e b ] && [ ! -e b.tmp ] || fail "a failed call left a file"
if [ -c /dev/full ]; then
    expect 74 "No space left" ctr -o /dev/full rows=5
    ln -s /dev/full full.tmp
    expect 74 "No space left" ctr -o full $small
    ln -s /dev/full full.gz.tmp
    expect 74 "" ctr -o full.gz $small
    [ ! -e full ] && [ ! -e full.gz ] || fail "a full disk left a file"
fi
exit $failed

#!/bin/sh
# Installs into a folder of its own and builds a program against that alone, as a user of the library does: headers,
# pkg-config file, shared and static library, program and job files must all be there and fit.
#   test_install.sh BUILD
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
meson install -C "$build" --no-rebuild --destdir "$work" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }

pc=$(find "$work" -name trireme.pc)
lib=$(dirname "$(dirname "$pc")")
prefix=$(sed -n 's/^prefix=//p' "$pc")
cat >"$work/hello.c" <<'END'
#include <stdio.h>
#include <trireme/trireme.h>

int main(int argc, char **argv)
{
    tr_context *tr;
    TR_TRY(tr_open(&argc, &argv, &tr));
    tr_table *table;
    int status = tr_table_create(tr, "w", TR_F32, 1, 10, &table);
    if (status == TR_OK) printf("rank %d of %d, %d keys\n", tr_rank(tr), tr_size(tr), (int)tr_table_keys(table));
    int outcome = tr_close(tr);
    return status ? status : outcome;
}
END
printf 'name: hello\n' >"$work/job.yaml"

export PKG_CONFIG_PATH="$lib/pkgconfig"
flags="--define-variable=prefix=$work$prefix"
failures=0
check() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then echo "ok $name"; return; fi
    echo "FAIL $name"
    cat "$work/log"
    failures=$((failures + 1))
}
says_hello() {
    "$@" "$work/job.yaml" | grep -qx 'rank 0 of 1, 10 keys'
}
# shellcheck disable=SC2046 # words on purpose
{
    check "a program builds with the shared library" \
        cc "$work/hello.c" -o "$work/shared" $(pkg-config "$flags" --cflags --libs trireme)
    check "a program builds with the static library" \
        cc "$work/hello.c" -o "$work/static" $(pkg-config "$flags" --cflags trireme) "$lib/libtrireme.a" \
        $(pkg-config "$flags" --static --libs trireme | sed 's/-ltrireme//')
}
# the example of the README is this way kept true
root=$(cd "$(dirname "$0")/../.." && pwd)
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/README.md" >"$work/readme.c"
# shellcheck disable=SC2046
check "the README's example builds" \
    cc -Wall -Werror "$work/readme.c" -o "$work/readme" $(pkg-config "$flags" --cflags --libs trireme) -lm
"$work$prefix/bin/trireme" generate ctr -o "$work/data" rows=1000 features=100 nonzeros=5 >"$work/log" 2>&1
printf 'data: {train: %s}\n' "$work/data" >"$work/data.yaml"
check "the README's example runs" env LD_LIBRARY_PATH="$lib" "$work/readme" "$work/data.yaml"
check "it runs with the shared library" says_hello env LD_LIBRARY_PATH="$lib" "$work/shared"
check "it runs with the static library" says_hello "$work/static"
check "the program is there" "$work$prefix/bin/trireme" --version
check "job files are there" test -f "$work$prefix/share/trireme/jobs/ctr-small.yaml"
# what is public stands in the headers; anything more would become a promise
check "only the public interface is visible" sh -c "
    nm -D --defined-only '$lib/libtrireme.so' | awk '\$2 ~ /[A-Z]/ { print \$3 }' | while read -r name; do
        cat '$work$prefix'/include/trireme/*.h | grep -q \"\\<\$name(\" || { echo \"\$name\"; exit 1; }
    done"
[ $failures -eq 0 ]

#!/bin/sh
# Installs into a folder of its own and builds a program against that alone, as a user of the library does: headers,
# pkg-config file, shared and static library, program and job files must all be there and fit.
#   test_install.sh BUILD
set -eu
build=$(realpath "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
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

cd "$work" # where the programs leave what they write
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
# the example of docs/library.md is this way kept true
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/docs/library.md" >"$work/example.c"
# shellcheck disable=SC2046
check "the example builds" \
    cc -Wall -Werror "$work/example.c" -o "$work/example" $(pkg-config "$flags" --cflags --libs trireme) -lm
"$work$prefix/bin/trireme" generate ctr -o "$work/data" rows=1000 features=100 nonzeros=5 >"$work/log" 2>&1
printf 'data: {train: %s}\n' "$work/data" >"$work/data.yaml"
check "the example runs" env LD_LIBRARY_PATH="$lib" "$work/example" "$work/data.yaml"

# a program of some size: two ranks, data, a table, views, clocks, evaluations, settings of the job
# shellcheck disable=SC2046
check "the course's logistic regression builds" \
    cc -std=c17 -Wall -Wextra -Wpedantic -Wconversion -Werror "$root/docs/course/4-logistic.c" -o "$work/logistic" \
    $(pkg-config "$flags" --cflags --libs trireme) -lm
falls() { # RANKS SETTING: the objective does, in each of 20 evaluations
    LD_LIBRARY_PATH=$lib mpirun -n "$1" --oversubscribe "$work/logistic" "$work/data.yaml" output="$work/falls" solve.epochs=100 "$2" || return
    awk -F, 'NR > 1 { if (NR < 22 && $3 != 5 * (NR - 1) || NR > 2 && NR < 22 && $4 >= last) exit 1; last = $4 }
        END { exit NR < 21 || last > 0.693 }' "$work/falls/metrics.csv" || { cat "$work/falls/metrics.csv"; return 1; }
    rm -rf "$work/falls"
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
check "it learns on one rank" falls 1 solve.rate=1
check "it learns on two ranks" falls 2 solve.rate=1
check "it learns on three ranks, one of them a server" falls 3 "ranks.layout=dedicated"

# functions of the user's own, run by servers: 1000 keys of worker 0, every second one of the others, in 5 clocks
cp "$root/tests/cli/user_function.c" "$work"
# shellcheck disable=SC2046
check "a user's server function builds" \
    cc -std=c17 -Wall -Wextra -Wno-unused-parameter -Wpedantic -Wconversion -Werror "$work/user_function.c" -o "$work/function" \
    $(pkg-config "$flags" --cflags --libs trireme)
counts() {
    ranks=$1 line=$2
    shift 2
    LD_LIBRARY_PATH=$lib mpirun -n "$ranks" --oversubscribe "$work/function" "$work/job.yaml" "$@" >"$work/counts" || return
    grep -qx "$line" "$work/counts" || { cat "$work/counts"; return 1; }
}
check "it counts on one rank" counts 1 "updates 5000 clocks 0 to 4 sum 5000"
check "it counts on three ranks" counts 3 "updates 10000 clocks 0 to 4 sum 17500" sync.mode=ssp
check "it counts on five ranks, two of them servers" \
    counts 5 "updates 7500 clocks 0 to 4 sum 10000" ranks.layout=dedicated ranks.servers=2

check "it runs with the shared library" says_hello env LD_LIBRARY_PATH="$lib" "$work/shared"
check "it runs with the static library" says_hello "$work/static"
check "the program is there" "$work$prefix/bin/trireme" --version
check "manual pages are there" sh -c "ls '$work$prefix'/share/man/man1/trireme-train.1 '$work$prefix'/share/man/man5/trireme.yaml.5"
check "completion is there" test -f "$work$prefix/share/bash-completion/completions/trireme"

# job files, and what makes their data, work from where they are installed, in any folder
shared=$work$prefix/share/trireme
mkdir "$work/elsewhere"
cd "$work/elsewhere"
PATH=$work$prefix/bin:$PATH
check "a job runs where it is installed" trireme train "$shared/jobs/kmeans.yaml" solve.epochs=1
check "data for jobs are made" "$shared/tools/data" ctr-small
check "a job takes them" trireme train "$shared/jobs/ctr-small.yaml" solve.epochs=1
cd "$work"
check "scripts for Slurm, and the course, are there" ls "$shared/slurm/train.sbatch" "$shared/docs/course/1-hello.c"
paths_of_module() {
    sed -n 's/^prepend-path [A-Z_]* //p' "$work$prefix"/share/modulefiles/trireme/* >"$work/paths"
    [ "$(wc -l <"$work/paths")" -ge 4 ] && while read -r path; do ls -d "$work$path" || return; done <"$work/paths"
}
check "paths of the environment module are there" paths_of_module

# the recipes of packages: what they build with, and what they pack
recipes=$root/tools/packages
names_all() { # what tools/setup builds and runs with
    sed -n 's/^run="\(.*\)"/\1/p' "$root/tools/setup" | tr ' ' '\n' | while read -r name; do
        grep -q "$name" "$recipes/debian/control" || { echo "debian/control lacks $name"; return 1; }
    done
}
check "the Debian package builds with what tools/setup names" names_all
if command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null; then
    check "a Debian package is built" env BUILT="$build" "$root/tools/deb" "$work"
    check "it unpacks" dpkg-deb -x "$work"/trireme_*.deb "$work/unpacked"
    check "it needs what it calls" sh -c "dpkg-deb -f '$work'/trireme_*.deb Depends | grep -q 'openmpi-bin.*libhdf5-.*libmicrohttpd'"
    check "it is of this version" sh -c "[ \"\$(dpkg-deb -f '$work'/trireme_*.deb Version)\" = \"\$('$work/unpacked/usr/bin/trireme' --version | sed -n '1s/trireme //p')\" ]"
    check "it has all that is installed, but the module" sh -c "
        cd '$work$prefix' && find . -type f ! -path '*/modulefiles/*' | sort >'$work/here'
        cd '$work/unpacked/usr' && find . -type f ! -path '*/share/doc/trireme/*' | sed 's/[.]gz\$//' | sort | diff - '$work/here'"
    check "its library is found by pkg-config" sh -c "find '$work/unpacked/usr' -path '*/pkgconfig/trireme.pc' -exec cat {} + | grep -qx prefix=/usr"
fi
if [ -e "$root/.git" ] && command -v git >/dev/null; then
    check "meson dist" sh -c "meson dist -C '$build' --no-tests --allow-dirty --formats gztar &&
        tar -tzf '$build'/meson-dist/trireme-*.tar.gz | grep -q tools/packages/debian/rules"
fi
# what is public stands in the headers; anything more would become a promise
check "only the public interface is visible" sh -c "
    nm -D --defined-only '$lib/libtrireme.so' | awk '\$2 ~ /[A-Z]/ { print \$3 }' | while read -r name; do
        cat '$work$prefix'/include/trireme/*.h | grep -q \"\\<\$name(\" || { echo \"\$name\"; exit 1; }
    done"
[ $failures -eq 0 ]

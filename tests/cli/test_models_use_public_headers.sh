#!/bin/sh
# Each file of a model compiles with the headers in include/ and those of BLIS alone: without MPI and without those of other
# rooms, as a plugin does.
cd "$(dirname "$0")/../.." || exit 1
bad=0
for model in kmeans lda linear mf; do
    for file in src/model/"$model"/*.c; do
        ${CC:-cc} -std=c17 -fsyntax-only -w -Iinclude -I/usr/include/"$(uname -m)"-linux-gnu/blis-serial "$file" || { echo "FAILED: $file"; bad=1; }
        ! grep -n 'MPI_' "$file" || { echo "FAILED: $file calls MPI"; bad=1; }
    done
done
exit $bad

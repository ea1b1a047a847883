#!/bin/sh
# Each file of a model compiles with the headers in include/ and those of BLIS alone: without MPI and without those of other
# folders of src, as a plugin does. No folder includes one that stands below it in README's table, and headers do not include
# each other in circles.
cd "$(dirname "$0")/../.." || exit 1
bad=0
blis=/usr/include/$(uname -m)-linux-gnu/blis-serial
for file in $(find src/model -mindepth 2 -name '*.c'); do
    ${CC:-cc} -std=c17 -fsyntax-only -w -Iinclude -I"$blis" "$file" || { echo "FAILED: $file"; bad=1; }
done
for header in include/trireme/*.h; do # C++, too, if there is a compiler
    command -v c++ >/dev/null || break
    c++ -x c++ -fsyntax-only -w -Iinclude "$header" || { echo "FAILED: $header is not C++"; bad=1; }
done
! grep -rn 'MPI_' src/model || { echo "FAILED: a model calls MPI"; bad=1; }

higher=$(sed -n 's/^| `src\/\([a-z]*\)` |.*/\1/p' README.md)
for folder in src/*/; do
    echo "$higher" | grep -qx "$(basename "$folder")" || { echo "FAILED: README's table has no $folder"; bad=1; }
done
for folder in $higher; do
    higher=$(echo "$higher" | tail -n +2)
    [ -z "$higher" ] || ! grep -rnE "#include \"($(echo "$higher" | paste -sd'|'))/" "src/$folder" || {
        echo "FAILED: $folder includes what stands below it in README's table"
        bad=1
    }
done
grep -roE --include='*.h' '#include "[^"]*' src include | sed 's/^src\///; s/^include\///; s/:#include "/ /' |
    tsort >/dev/null || { echo "FAILED: headers include each other in circles"; bad=1; }
exit $bad

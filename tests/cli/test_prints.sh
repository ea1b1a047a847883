#!/bin/sh
# Rules of the source, besides those of test_models_use_public_headers.sh.
#
# Text from outside reaches terminals and files only through base/escape.h: a statement of src that prints a string by
# printf, or prints a variable by fputs or puts, is an error outside of the files below. tr_printf() is the way to print.
cd "$(dirname "$0")/../.." || exit 1
allowed='
src/cli/plot.c                   scripts: words of the program, and the whole script to gnuplot
src/cli/average.c                commas of JSON
src/cli/generate.c               generated data
src/cli/help.c                   help
src/data/dataset.c               a text that is compared, not shown
src/job/value.c                  plain words of YAML
src/job/write.c                  YAML: names of keys; shown words of a message; help
src/model/linear/descent/descent.c  CSV: names of metrics
src/model/linear/saved.c         model.txt: numbers, words of the program
src/model/trees/saved.c          model.txt: numbers, words of the program
src/monitor/files.c              numbers and commas of JSON, names of events, dates
src/stage/scheduler.c            separators
src/store/persistent.c           a state that the program reads back
src/watch/runs.c                 commas of JSON
src/watch/server.c               commas of JSON'
bad=0
for file in $(find src -name '*.c'); do
    echo "$allowed" | grep -q "^$file " && continue
    # a record is a statement; strings with a semicolon end it too early, which is harmless
    found=$(awk 'BEGIN { RS = ";" }
        /(^|[^_a-z])(f|d|v|vf|vd)?printf\(/ && /%[-+ #0-9.*]*s/ || /(^|[^_a-z])(v|vf|vd)printf\(/ ||
        /(^|[^_a-z])(fputs|puts)\([^"()]*[,)]/ && !/puts\([^,]*(usage|help)/ { sub(/^[[:space:]]+/, ""); print }' "$file")
    [ -z "$found" ] || { echo "FAILED: $file prints text past base/escape.h: $found"; bad=1; }
done
for file in $(echo "$allowed" | awk 'NF { print $1 }'); do
    [ -f "$file" ] || { echo "FAILED: $file is listed but does not exist"; bad=1; }
done

# MPI's functions that wait for other ranks are called in one file; a flush of a window ends when its target is in MPI.
found=$(grep -rnoE 'MPI_[A-Z][A-Za-z_]*\(' src | grep -v '/ranks/blocking\.c:' |
    grep -vE ':MPI_(I[a-z]+|Test[a-z]*|Comm_(free|rank|size|idup|group|compare)|Type_[a-z_]+|Get_[a-z_]+|R?(get|put|accumulate)|Rget|Put|Accumulate|Raccumulate|Cancel|Reduce_local|Request_free|Win_(sync|flush|flush_all|flush_local|shared_query)|Initialized)\($' |
    grep -vE '/ranks/ranks\.c:.*:MPI_(Init|Finalize)\($')
[ -z "$found" ] || { echo "FAILED: a blocking call outside of src/ranks/blocking.c: $found"; bad=1; }
exit $bad

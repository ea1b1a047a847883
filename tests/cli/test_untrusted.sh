#!/bin/sh
# Files and connections of other users cannot make the program run, open or reveal anything. docs/security.md names the
# case of each attack. Cases with a second user need root.
[ $# -gt 0 ] || set -- "$(dirname "$0")/../../build/trireme"
tests=$(realpath "$(dirname "$0")")
. "$(dirname "$0")/lib.sh"

[ "$(id -u)" -eq 0 ] && as_root=yes || as_root=
[ "$as_root" ] || skip "attacks of another user: they need root"

awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { k = i % 2; row = k
    for (j = 1; j <= 4; j++) row = row " " j ":" (rand() + (j % 2 == k ? 0.7 : 0)); print row } }' >rows.svm

# ---- plugins ----
# A model, a checkpoint and a job that name a plugin, which leaves the file «ran» wherever it is loaded.
mkdir plugins
${CC:-cc} -std=c17 -shared -fPIC -I"$tests/../../include" -DMARK="\"$here/ran\"" "$tests/plugin_softmax.c" -o plugins/mark.so -lm ||
    fail "the plugin does not compile"
softmax="data.train=rows.svm model.type=softmax model.classes=2 solve.epochs=20"
check "a plugin that the command line names" "$trireme" train $softmax checkpoint.every="5 clocks" output=theirs --plugin plugins/mark.so
[ -e ran ] || fail "the plugin that the command line names is not loaded"
# a run that was stopped, with its checkpoint
check "a part of a run" sh -c "'$trireme' train $softmax checkpoint.every='5 clocks' output=part --plugin plugins/mark.so solve.epochs=1000000 --max-time 2s; [ \$? -eq 75 ]"
[ -e part/checkpoints ] || fail "no checkpoint: $(ls part)"
rm -f ran

unloaded() { # unloaded NAME EXIT WORDS COMMAND…
    refuses "$@"
    [ ! -e ran ] || fail "$1: the plugin was loaded"
    rm -f ran
}
needs="theirs/model.h5: the model needs its plugin, mark.so: add --plugin FILE"
unloaded inspect 64 "$needs" "$trireme" inspect theirs/model.h5
unloaded "inspect --servers" 64 "$needs" "$trireme" inspect theirs/model.h5 --servers 2
unloaded predict 64 "$needs" "$trireme" predict theirs/model.h5 rows.svm
unloaded "an option of predict" 64 "predict: unknown option --more" "$trireme" predict theirs/model.h5 rows.svm --more
unloaded evaluate 64 "$needs" "$trireme" evaluate theirs/model.h5 rows.svm
unloaded convert 65 "theirs/model.h5:" "$trireme" convert theirs/model.h5 out.h5
linear="data.train=rows.svm solve.epochs=2 report.progress=no"
check "a job with model.init" sh -c "! '$trireme' train $linear model.init=theirs/model.h5 output=init"
grep -q "$needs" err || fail "model.init: $(cat err)"
check "a run that goes on" sh -c "! '$trireme' train $linear output=part checkpoint.every='5 clocks'"
grep -q "the job of the earlier run cannot be read" err || fail "resume: $(cat err)"
"$trireme" inspect theirs >out 2>&1
"$trireme" plot theirs >out 2>&1
[ ! -e ran ] || fail "model.init, resume or inspect of a folder: the plugin was loaded"

# the model says the name and the checksum of the plugin
for word in plugin plugin_checksum; do
    ! command -v h5dump >/dev/null || h5dump -A theirs/model.h5 | grep -q "\"$word\"" || fail "model.h5 has no $word"
done

with() { echo "$trireme train $softmax output=no --plugin $1"; }
ln -s mark.so plugins/link.so && mkdir plugins/folder.so && mkfifo plugins/pipe.so
mkdir open sticky && cp plugins/mark.so open && cp plugins/mark.so sticky && chmod 777 open && chmod 1777 sticky
cp plugins/mark.so plugins/written.so && chmod 666 plugins/written.so
cp plugins/mark.so plugins/group.so && chmod 664 plugins/group.so
echo "no library" >plugins/text.so
unloaded "a symbolic link" 77 "plugins/link.so: is a symbolic link" $(with plugins/link.so)
unloaded "a folder" 66 "plugins/folder.so: is a folder" $(with plugins/folder.so)
unloaded "a pipe" 66 "plugins/pipe.so: is a pipe" $(with plugins/pipe.so)
unloaded "a missing plugin" 66 "plugins/none.so: No such file" $(with plugins/none.so)
unloaded "no library" 66 "plugins/text.so: " $(with plugins/text.so)
unloaded "a plugin that others can write" 77 "plugins/written.so: other users can write to it (mode 666)" $(with plugins/written.so)
unloaded "a plugin that the group can write" 77 "plugins/group.so: other users can write to it (mode 664)" $(with plugins/group.so)
unloaded "a folder that others can write" 77 "open/mark.so: other users can write to its folder (mode 777)" $(with open/mark.so)
unloaded "a sticky folder" 77 "sticky/mark.so: other users can write to its folder (mode 1777)" $(with sticky/mark.so)
unloaded "a plugin of a job" 77 "plugins/link.so: is a symbolic link" "$trireme" train $softmax model.plugin=plugins/link.so output=no
unloaded "predict with such a plugin" 77 "plugins/link.so: is a symbolic link" "$trireme" predict theirs rows.svm --plugin plugins/link.so
unloaded "run with such a plugin" 77 "plugins/link.so: is a symbolic link" "$trireme" run -n 2 $softmax output=no --plugin plugins/link.so
if [ "$as_root" ]; then
    cp plugins/mark.so plugins/other.so && chown 65534 plugins/other.so
    unloaded "a plugin of another user" 77 "plugins/other.so: it belongs to user 65534" $(with plugins/other.so)
    mkdir others && cp plugins/mark.so others && chown 65534 others
    unloaded "a folder of another user" 77 "others/mark.so: its folder belongs to user 65534" $(with others/mark.so)
fi
check "predict with its plugin" "$trireme" predict theirs rows.svm --plugin plugins/mark.so
[ -e ran ] || fail "predict --plugin does not load the plugin"
rm -f ran

# ---- HDF5 files that refer to other files ----
hdf5=$(pkg-config --exists hdf5-serial && echo hdf5-serial || echo hdf5)
if ${CC:-cc} $(pkg-config --cflags $hdf5) "$tests/hdf5_links.c" -o links $(pkg-config --libs $hdf5) && ./links; then
    for command in "convert FILE out.h5" "train data.train=FILE output=no model.type=kmeans model.clusters=2 report.progress=no"; do
        for kind in "external external storage" "link external link" "virtual a virtual dataset"; do
            file=${kind%% *}.h5
            refuses "$command: $file" 65 "$file:/X: " "$trireme" $(echo "$command" | sed "s/FILE/$file/")
            grep -q "(${kind#* })" err || fail "$command: $(cat err)"
        done
    done
    for command in inspect "predict FILE rows.svm"; do
        for file in external.h5 link.h5 virtual.h5; do
            refuses "a model, $file" 65 "$file:/X: " "$trireme" $(case $command in inspect) echo "inspect $file" ;; *) echo "predict $file rows.svm" ;; esac)
        done
    done
    check "a soft link" "$trireme" convert soft.h5 out.h5
    # filters: a library that leaves the file «ran» when HDF5 loads it
    mkdir filters && echo "#include <stdio.h>
        __attribute__((constructor)) static void run(void) { fclose(fopen(\"$here/ran\", \"w\")); }" >filter.c
    ${CC:-cc} -shared -fPIC filter.c -o filters/libfilter.so || fail "the filter does not compile"
    default=$(strings "$(ldd links | sed -n 's/.*libhdf5[^ ]*\.so[^ ]* => \([^ ]*\).*/\1/p' | head -1)" 2>/dev/null | grep -m 1 '^/.*/plugins\{0,1\}$')
    above=$(dirname "$default")
    if [ -d "$above" ] && unshare --mount true 2>/dev/null; then
        with_filters='mount -t tmpfs tmpfs "$1" && mkdir -p "$2" && cp filters/libfilter.so "$2" && shift 2 && exec "$@"'
        unloaded "a filter in the default folder" 65 "filter.h5:/X: packed by the filter" \
            unshare --mount sh -c "$with_filters" - "$above" "$default" env -u HDF5_PLUGIN_PATH "$trireme" convert filter.h5 out.h5
    else skip "a filter in the default folder of HDF5: not known, or no mounts here"; fi
    HDF5_PLUGIN_PATH=$here/filters "$trireme" convert filter.h5 out.h5 >out 2>err
    [ -e ran ] || fail "HDF5_PLUGIN_PATH: the filter is not loaded: $(cat err)"
    rm -f ran
else skip "HDF5 files that refer to other files: the program that writes them does not compile"; fi

# ---- text from files, on terminals, pages, in JSON and plots ----

# harmless FILE…: valid UTF-8 without control characters, C1 ones and characters that reverse text
harmless() {
    for file in "$@"; do
        python3 - "$file" <<'END' || fail "$file: what a terminal acts on: $(cat -v "$file")"
import sys, unicodedata
text = open(sys.argv[1], "rb").read().decode()
sys.exit(any(unicodedata.category(c) in ("Cc", "Cf") and c != "\n" for c in text))
END
    done
}
esc=$(printf '\033[31m') csi=$(printf '\302\233')31m turn=$(printf '\342\200\256') latin=$(printf '\351')
bad_name="d$esc$latin$turn
x"
awk -v l="caf$latin" -v r="t${turn}h" -v c="$csi" 'BEGIN { print "a,b" c r "," l
    for (i = 0; i < 60; i++) print i * 7 % 11 ",v" c i % 3 "," (i % 2 ? l : r) }' >"$bad_name.csv"
cp "$bad_name.csv" d.csv
# file names, names of columns, labels and categories, by each command
check "count" "$trireme" count "$bad_name.csv" && harmless out err
grep -qF 'caf\xe9' out && grep -qF 'v\u009b31m1' out || fail "count: $(cat -v out)"
check "train" "$trireme" train data.train=d.csv data.label=last output=o && harmless out err o/log o/job.yaml
grep -qF 'b\u009b31mt\u202eh' err || fail "train: the column is not shown: $(cat -v err)"
check "inspect" "$trireme" inspect o/model.h5 && harmless out err
check "inspect of a folder" "$trireme" inspect o && harmless out err
check "predict" "$trireme" predict o d.csv && harmless out err
check "evaluate" "$trireme" evaluate o d.csv && harmless out err
grep -qF 'caf\xe9 is' out || fail "evaluate: $(cat -v out)"
for words in "predict o" "evaluate o" "inspect" "count" "plot" "help" "$bad_name" "train" "train data.train=d.csv" "watch"; do
    # shellcheck disable=SC2086
    [ "$words" = "$bad_name" ] && "$trireme" "$words" >out 2>err || "$trireme" $words "$bad_name" >out 2>err
    [ $? -ne 0 ] || fail "$words: not refused"
    harmless out err
    [ "$(grep -c 'trireme: error: ' err)" -le 1 ] || fail "$words: more than one error: $(cat -v err)"
done
# JSON is JSON
"$trireme" evaluate o d.csv --json >o/evaluate.json
for file in o/*.json; do
    python3 -c "import json, sys; json.loads(open(sys.argv[1], 'rb').read().decode())" "$file" || fail "$file: not JSON"
done
# no name starts a program: gnuplot reads a script, and starts what is behind < and | in names of files
if command -v gnuplot >/dev/null; then
    for name in "a
system('touch started')
#" "q'. system('touch started') .'" 'b\' 'p%d%s`touch started`' '$(touch started)' '< touch started' '|touch started' \
        '"; system("touch started");"' "$esc$latin$turn"; do
        cp -r o "$name"
        check "plot of «$name»" "$trireme" plot "$name" -o all.svg
        check "plot of «$name» on a terminal" "$trireme" plot "$name"
        check "plot into «$name»" "$trireme" plot o -o "$name.svg"
        grep -q '</svg>' "$name.svg" || fail "plot into «$name»: no drawing"
        python3 -c "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])" all.svg || fail "plot of «$name»: not SVG"
        [ ! -e started ] || fail "plot of «$name»: it started a program"
        rm -rf "$name" "$name.svg" started
    done
    expect 64 "unknown option" plot "-e 'touch started'"
    [ ! -e started ] || fail "plot: an option reached gnuplot"
fi

# ---- trireme watch ----

# Runs with mode 700, which other users may not read; beside them a folder that links lead to.
mkdir runs outside runs/good runs/links
for each in runs/good outside; do
    printf '{"state": "%s", "objective": 0.5}\n' "$(basename $each | sed 's/good/done/; s/outside/secret/')" >$each/status.json
done
ln -s ../outside runs/link
ln -s ../../outside/status.json runs/links/status.json
chmod 700 runs
"$trireme" watch runs/none >out 2>&1
if grep -q 'built without libmicrohttpd' out; then
    skip "trireme watch: built without libmicrohttpd"
else
    [ "$(id -u)" -eq 0 ] || skip "trireme watch and other users: needs root"
    for address in 127.0.0.1 ::1 0.0.0.0; do
        [ $address != ::1 ] || [ -e /proc/net/if_inet6 ] || { skip "trireme watch at ::1: no IPv6 here"; continue; }
        "$trireme" watch runs --host $address >served 2>served.err &
        server=$!
        wait_for "trireme watch at $address" grep -q '^to end: ' served
        timeout -s KILL $patience python3 -B "$tests/watch_attacks.py" served runs $address || bad=1
        kill $server
        wait $server || fail "trireme watch at $address: exit $?"
        [ ! -s served.err ] || fail "trireme watch at $address says: $(cat served.err)"
    done
    refuses "watch a missing folder" 66 "/nonexistent: No such file or directory" "$trireme" watch /nonexistent
    refuses "watch a missing folder beside another" 66 "/nonexistent: No such file or directory" "$trireme" watch runs /nonexistent
fi

# ---- limits ----

# peak WORD…: runs trireme WORD…; its exit code is in $got, what it says in out and err, and its memory in MiB in $peak
peak() {
    python3 - "$trireme" "$@" >peak <<'END'
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=open("out", "w"), stderr=open("err", "w"))
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
END
    read -r got peak <peak
    [ "$sanitized" ] && peak=0
}
# a small file that is large when it is unpacked: empty lines take no memory, a record stops at the limit
mkdir limits
head -c 300000000 /dev/zero | tr '\0' '\n' | gzip -1 >limits/blank.csv.gz
printf 'a,b\n1,2\n3,4\n' | gzip >>limits/blank.csv.gz
peak count limits/blank.csv.gz
[ "$got" -eq 0 ] && grep -q '^2 rows, 2 columns' out || fail "empty lines: exit $got: $(cat out err)"
[ "$peak" -lt 150 ] || fail "empty lines: $peak MiB of memory"
for packer in gzip bzip2 xz zstd lz4; do
    command -v $packer >/dev/null || { skip "a long record packed by $packer"; continue; }
    { printf 'a,b\n'; head -c 3000000 /dev/zero | tr '\0' 1; printf ',2\n3,4\n'; } | $packer -c >limits/long.csv.$packer
done
printf 'a,b\n1,1\n0,2\n' >limits/short.csv
check "a model of short records" "$trireme" train data.train=limits/short.csv data.label=first data.max_record=1M output=limits/model
for file in limits/long.csv.*; do
    what="$file:2: record longer than 1 MiB: data.max_record="
    for words in "train output=no data.label=first data.max_record=1M data.train=" "count data.max_record=1M " \
        "convert limits/no.h5 data.max_record=1M " "predict limits/model " "evaluate limits/model "; do
        case $words in
        convert*) set -- convert "$file" limits/no.h5 data.max_record=1M ;;
        # shellcheck disable=SC2086
        *) set -- $(echo "$words$file") ;;
        esac
        "$trireme" "$@" >out 2>err; got=$?
        [ $got -eq 65 ] && grep -qF "trireme: error: $what" err || fail "$*: exit $got: $(cat err)"
        [ "$(grep -c error: err)" -eq 1 ] || fail "$*: not one line: $(cat err)"
    done
    check "$file under a higher limit" "$trireme" count data.on_error=skip "$file"
done
# the first record, which tells the format, too; by default 64 MiB
head -c 70000000 /dev/zero | tr '\0' 1 | gzip -1 >limits/endless.gz
for words in count "train output=no data.train=limits/endless.gz"; do
    # shellcheck disable=SC2086
    peak $words $([ "${words#train}" = "$words" ] && echo limits/endless.gz)
    [ "$got" -eq 65 ] && grep -qF 'limits/endless.gz:1: record longer than 64 MiB' err || fail "$words: exit $got: $(cat err)"
    [ "$peak" -lt 300 ] || fail "$words: $peak MiB of memory for one record"
done
expect 78 data.max_record train data.train=limits/short.csv output=no data.max_record=10K

# ---- files that are written ----

# Entries of another user in a folder that all users can write to: symbolic links at names that can be guessed, folders, files.
# Without the sticky bit the kernel does not protect links either.
[ "$as_root" ] || skip "files that are written: entries of another user need root"
if [ "$as_root" ]; then
    planted() { rm -f "$1"; ln -s "$here/victim" "$1" && chown -h 65534:65534 "$1"; }
    written() { # written NAME FILE: by the command, private, and not into the victim
        [ "$(cat victim)" = mine ] || fail "$1: it wrote to the target of a link"
        [ -f "$2" ] && [ ! -L "$2" ] && [ "$(stat -c %a "$2")" = 600 ] || fail "$1: $(ls -l "$2")"
        [ ! -e "$2.part" ] || fail "$1: $2.part is left"
    }
    train="data.train=rows.svm solve.epochs=2 report.progress=no"
    chmod 700 . # the attacks on trireme watch open it to all users
    check "a model" "$trireme" train $train output=model
    [ "$(stat -c %a model)" = 755 ] && [ "$(stat -c %a model/model.h5)" = 644 ] || fail "modes in a folder of the user: $(ls -ld model model/*)"
    for mode in 1777 777; do
        rm -rf all && mkdir all && chmod $mode all && echo mine >victim
        for name in p.csv g.svm c.h5 d.svg; do planted "all/$name.part"; done
        check "predict" "$trireme" predict model rows.svm -o all/p.csv && written predict all/p.csv
        check "generate" "$trireme" generate ctr -o all/g.svm rows=5 && written generate all/g.svm
        check "convert" "$trireme" convert rows.svm all/c.h5 && written convert all/c.h5
        if command -v gnuplot >/dev/null; then
            check "plot" "$trireme" plot model -o all/d.svg && written plot all/d.svg
        fi
        for name in p.csv g.svm c.h5 d.svg log; do planted "all/$name"; done
        whose="belongs to user 65534, in a folder that all users can write to"
        refuses "predict into a link" 77 "all/p.csv: $whose" "$trireme" predict model rows.svm -o all/p.csv
        refuses "generate into a link" 77 "all/g.svm: $whose" "$trireme" generate ctr -o all/g.svm rows=5
        refuses "convert into a link" 77 "all/c.h5: $whose" "$trireme" convert rows.svm all/c.h5
        refuses "plot into a link" 77 "all/d.svg: $whose" "$trireme" plot model -o all/d.svg
        refuses "run --log" 77 "all/log: $whose" "$trireme" run -n 1 --log all/log $train output=no
        mkdir all/theirs && chmod 777 all/theirs && ln -s "$here/model" all/link && mkfifo all/pipe && chown -h 65534:65534 all/theirs all/link all/pipe
        for name in theirs theirs/run link link/run; do
            refuses "output=all/$name" 77 "output all/${name%/run}: $whose" "$trireme" train $train output=all/$name
        done
        expect 74 "could not be written: all/theirs: $whose" train $train output=no checkpoint.every="1 clocks" checkpoint.to=all/theirs/c
        refuses "predict into their pipe" 77 "all/pipe: $whose" "$trireme" predict model rows.svm -o all/pipe
        ln -s theirs all/own
        refuses "a link of the user that leads to them" 77 "/all/theirs: $whose" "$trireme" train $train output=all/own/run
        check "train" "$trireme" train $train output=all/deep/run checkpoint.every="1 clocks" checkpoint.to=all/checkpoints
        for folder in all/deep all/checkpoints; do
            [ "$(stat -c %a $folder)" = 700 ] || fail "train: $(ls -ld $folder)"
        done
        # an output folder that all users can write to
        mkdir all/run && chmod $mode all/run
        for name in job.yaml.part status.json.part; do planted all/run/$name; done
        check "train into an open folder" "$trireme" train $train output=all/run
        for name in job.yaml status.json metrics.csv log model.h5 model.txt summary.json; do written "train: $name" all/run/$name; done
        for name in log metrics.csv; do
            rm -rf all/run && mkdir all/run && chmod $mode all/run && planted all/run/$name && touch all/run/.lock
            refuses "a planted $name" 77 "all/run/$name: $whose" "$trireme" train $train output=all/run
        done
        [ "$(cat victim)" = mine ] || fail "something wrote to the target of a link"
    done
    # a file that the user cannot remove
    other=$(mktemp -d /tmp/untrusted.XXXXXX) && chmod 1777 "$other" && touch "$other/x.part" && chown 1 "$other/x.part"
    nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
    if $nobody "$trireme" --version >/dev/null 2>&1; then
        refuses "a file of another user" 77 "$other/x.part: belongs to user 1" $nobody "$trireme" generate ctr -o "$other/x" rows=5
    else skip "a file of another user: nobody cannot start $trireme"; fi
    rm -rf "$other"
fi

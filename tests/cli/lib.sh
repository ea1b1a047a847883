# Shared by the scripts that test the program, each of which is called with the program:
#
#   test_NAME.sh TRIREME
#     TRIREME_DATA  folder of the public datasets; without it, cases that need them are skipped
#
# A script runs in a new folder, which is removed at its end. Its exit code is $bad unless it ends with another one above 1.
#
#   $trireme, $jobs, $data   the program, the job files, and the folder of the public datasets (none: there is none)
#   $mpirun                  mpirun with the options that all starts have
#   $sanitized               yes if the program is built with a sanitizer, which must be its first library
#   $patience                seconds after which a command hangs: far more than any takes on a busy machine
#   $bad                     1 after the first failure
#   $at_end                  commands to run before the folder is removed
set -u
trireme=$(realpath "${1:?usage: $0 TRIREME}")
jobs=$(realpath "$(dirname "$0")/../../jobs")
data=${TRIREME_DATA:-none}
sanitized=$(grep -aqE '__(asan|tsan)_init' "$trireme" && echo yes)
here=$(mktemp -d) && cd "$here" || exit 1
# for mpirun: in a folder of several, one that ends may remove the files of another that starts
export TMPDIR="$here/.tmp" && mkdir "$TMPDIR" || exit 1
# Under a sanitizer everything takes longer: tools/sanitize sets the factor, for Check as well.
bad=0 patience=$((600 * ${CK_TIMEOUT_MULTIPLIER:-1})) at_end=
# 1 may be the exit code of the last command, such as a comparison
trap 'code=$?; cd /; eval "$at_end"; rm -rf "$here"; [ $code -gt 1 ] && [ $code.$bad != 77.1 ] || code=$bad; exit $code' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# After an exit code other than 0 mpirun waits a second before it ends the other ranks by SIGTERM, and another before SIGKILL,
# even if all have ended. A sanitizer may still be at work then.
[ "$sanitized" ] || export OMPI_MCA_odls_base_sigkill_timeout=0
stack='^\[[^]]*:[0-9]*\] \(\[\|Signal\|Failing\)' # Open MPI's report of a rank that was ended by a signal
quiet=$(mpirun -q --version >/dev/null 2>&1 && echo -q) # no comments on exit codes; Open MPI 5 has no such option
mpirun="mpirun $quiet --oversubscribe"

fail() { echo "FAILED: $*"; bad=1; }
skip() { echo "skipped: $*"; }

# on RANKS COMMAND…: one rank is a process without mpirun
on() {
    count=$1; shift
    [ "$count" -eq 1 ] || set -- $mpirun -n "$count" "$@"
    timeout -s KILL $patience "$@"
}
# run FOLDER RANKS JOB SETTING…: trains into the folder; its messages are in FOLDER.out
run() {
    into=$1 count=$2; shift 2
    on "$count" "$trireme" train "$@" output="$into" >"$into.out" 2>&1 </dev/null && return # mpirun reads standard input
    fail "$into: trireme train $* on $count ranks: exit $?: $(grep -e error -e "$stack" "$into.out" || tail -3 "$into.out")"
    return 1
}
# run_all RANKS JOB: trains a model for each line «NAME SETTING…» of standard input into the folder NAME, all as tasks of one
# run, one after the other on all ranks; messages are in NAME.out. A task gives the same model as a job of its own.
run_all() {
    count=$1 list=
    rm -rf tasks && { cat "$2"; echo tasks:; } >tasks.yaml
    while read -r task settings; do
        [ "$task" ] || continue
        list="$list $task"
        echo "$task: ranks=$count $settings" | awk '{
            for (i = 2; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] } # the last value of a key counts
            for (key in value) { line = line comma key ": " value[key]; comma = ", " }
            print "  " $1 " {" line "}" }' >>tasks.yaml
    done
    run tasks "$count" tasks.yaml
    for task in $list; do
        rm -rf "$task" && mv "tasks/$task" "$task"
        sed -n "s/^$task: //p" tasks.out >"$task.out"
    done
}
# starts EXIT RANKS WORD…: trireme train WORD… ends with this exit code (killed: any but 0); its messages are in the file out
starts() {
    code=$1 count=$2; shift 2
    on "$count" "$trireme" train "$@" >out 2>&1; got=$?
    no_notices out
    if [ "$code" = killed ]; then [ $got -ne 0 ]; else [ $got -eq "$code" ]; fi ||
        fail "trireme train $* on $count ranks: exit $got, expected $code: $(tail -3 out)"
}
# check NAME COMMAND…: succeeds; its messages are in the files out and err
check() {
    what=$1; shift
    "$@" >out 2>err || { fail "$what: exit $?"; head -3 out err; }
}
# wait_for WHAT COMMAND…: until it succeeds
wait_for() {
    waits=$1 turns=0; shift
    until "$@" >/dev/null 2>&1; do
        turns=$((turns + 1))
        [ $turns -lt $((10 * patience)) ] || { fail "waited in vain for $waits"; return 1; }
        sleep 0.1
    done
}

# of FOLDER MEMBER: of its summary.json
of() { sed -n "s/^  \"$2\": \(.*[^,]\),\{0,1\}\$/\1/p" "$1/summary.json" 2>/dev/null | tr -d '"'; }
# state FOLDER: of its status.json
state() { sed -n 's/^  "state": "\(.*\)",$/\1/p' "$1/status.json" 2>/dev/null; }
# number NAME: of the JSON on standard input
number() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p"; }
# is WHAT VALUE EXPECTED
is() { [ "$2" = "$3" ] || fail "$1: «$2», expected «$3»"; }
# holds WHAT EXPRESSION: of awk
holds() { awk "BEGIN { exit !($2) }" || fail "$1: not true: $2"; }
# near A B DISTANCE: whether they are two numbers that differ by less
near() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < e && d > -e) }'; }
# same_model A B: the same model.txt in both folders
same_model() { cmp -s "$1/model.txt" "$2/model.txt" || fail "$1 and $2 have different models"; }
# says FILE PATTERN [WHAT], silent FILE PATTERN [WHAT]: a line matches, or none
says() { grep -q -- "$2" "$1" || fail "${3:-$1}: no line matches «$2»: $(cat "$1")"; }
silent() { ! grep -q -- "$2" "$1" || fail "${3:-$1}: a line matches «$2»: $(cat "$1")"; }

# dense_rows N SEED: LIBSVM lines of 8 features, of which each row has all
dense_rows() {
    awk -v n="$1" -v seed="$2" 'BEGIN { srand(seed); for (i = 0; i < n; i++) { m = 0; row = "";
        for (j = 1; j <= 8; j++) { x = int(rand() * 1000) / 1000 - 0.3; m += x * (j - 4); row = row " " j ":" (x == 0 ? 1e-3 : x) }
        print (m + 2 * (rand() - 0.5) > 1 ? 1 : -1) row } }'
}
# same_trees A B: the same arrays in both models; SETS names further ones
same_trees() {
    for folder in "$1" "$2"; do
        for field in tree_begin feature child number missing_left gain weight base ${SETS-}; do
            h5dump -d $field "$folder/model.h5" | tail -n +2
        done >"${folder##*/}.dump"
    done
    [ -s "${1##*/}.dump" ] && cmp -s "${1##*/}.dump" "${2##*/}.dump" || fail "$1 and $2 have different trees"
}

# no_notices FILE: removes what mpirun says by itself: that of Open MPI 4 now and then, when it ends while a pipe is being
# closed; that of 5 after an exit code other than 0, between two lines of dashes
no_notices() {
    sed -i '/^\[warn\] Epoll /d' "$1"
    [ -n "$quiet" ] || sed -i '/^-\{40,\}$/,/^-\{40,\}$/d; /^\[.*\] PMIX ERROR/d' "$1"
}
# refuses NAME EXIT WORDS COMMAND…: fails with this exit code and one line that has the words
refuses() {
    what=$1 code=$2 words=$3; shift 3
    "$@" >out 2>err; got=$?
    no_notices err
    [ $got -eq "$code" ] || fail "$what: exit $got, expected $code: $(head -1 err)"
    grep -qF -- "$words" err || fail "$what: «$(head -1 err)» lacks «$words»"
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line: $(cat err)"
}
# refused EXIT PATTERN SETTING…: training job.yaml ends with this exit code and one error that matches. Errors in the job
# itself are found before ranks differ: one process finds them. Ranks must agree on all others, so two ranks check these.
refused() {
    code=$1 pattern=$2; shift 2
    on 1 "$trireme" train job.yaml output=no "$@" >said 2>&1
    got=$?
    grep -q '^trireme: error: \(command line\|default\|job.yaml:[0-9]*\): ' said || {
        on 2 "$trireme" train job.yaml output=no "$@" >said 2>&1
        got=$?
    }
    [ $got -eq "$code" ] || fail "$*: not refused with $code: $(cat said)"
    grep '^trireme: error: ' said | grep -q -- "$pattern" || fail "$*: «$(grep error: said)» lacks «$pattern»"
    [ "$(grep -c '^trireme: error: ' said)" -eq 1 ] || fail "$*: not one line: $(cat said)"
}
# expect EXIT WORDS WORD…: trireme WORD… ends with this exit code, and its messages have the words
expect() {
    code=$1 words=$2; shift 2
    said=$(on 1 "$trireme" "$@" 2>&1); got=$?
    [ $got -eq "$code" ] || fail "trireme $*: exit $got, expected $code: $said"
    case $said in
    *"$words"*) ;;
    *) fail "trireme $*: says «$said», expected «$words»" ;;
    esac
}
# one_error WHAT GOT EXIT WORDS: the exit code is the expected one; err has, besides train's usual messages, one line, an error
# with the words: no banner of mpirun, no trace, no warning
one_error() {
    no_notices err
    is "$1: exit code" "$2" "$3"
    [ "$(grep -c '^trireme: error: ' err)" -eq 1 ] || fail "$1: not one line of error: $(cat err)"
    grep '^trireme: error: ' err | grep -qF -- "$4" || fail "$1: «$(grep error err)» lacks «$4»"
    others=$(grep -vE "^(trireme: error|layout|memory|output|reading|training data|test data|each worker|labels|scaled|centred|model.type|epoch)" err)
    [ -z "$others" ] || fail "$1: also says «$others»"
}

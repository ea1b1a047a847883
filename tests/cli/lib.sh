# What the tests of the program share, read by them with their own argument: the program. Afterwards they are in a folder
# of their own, which goes when they end.
#
#   $trireme, $jobs, $data   the program, the job files, and the folder of the public datasets (none: there is none)
#   $sanitized               yes where the program is built with a sanitizer, which wants to be its first library
#   $quiet                   mpirun's option for not commenting on exit codes; Open MPI 5 has none
#   $patience                seconds after which a command hangs: far more than any takes, however busy the machine is
#   $bad                     1 after the first fail
set -u
trireme=$(realpath "${1:?usage: $0 TRIREME}")
jobs=$(realpath "$(dirname "$0")/../../jobs")
data=${TRIREME_DATA:-none}
sanitized=$(grep -aqE '__(asan|tsan)_init' "$trireme" && echo yes)
here=$(mktemp -d) && cd "$here" || exit 1
# mpirun has its folder in there, too: in one that several share, one that ends may remove what another has just made
export TMPDIR="$here/.tmp" && mkdir "$TMPDIR" || exit 1
trap 'cd /; rm -rf "$here"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# After an exit code but 0 mpirun waits a second before it ends the other ranks by SIGTERM, and another before SIGKILL,
# though all have ended by themselves. A sanitizer may still be at work then.
[ "$sanitized" ] || export OMPI_MCA_odls_base_sigkill_timeout=0
# Under a sanitizer all takes longer: tools/sanitize says by how much, to Check as well.
bad=0 patience=$((600 * ${CK_TIMEOUT_MULTIPLIER:-1}))
stack='^\[[^]]*:[0-9]*\] \(\[\|Signal\|Failing\)' # what Open MPI says of a rank that a signal ended
quiet=$(mpirun -q --version >/dev/null 2>&1 && echo -q)

fail() { echo "FAILED: $*"; bad=1; }
skip() { echo "skipped: $*"; }

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
# holds WHAT EXPRESSION: of awk
holds() { awk "BEGIN { exit !($2) }" || fail "$1: not true: $2"; }
# number NAME: of the JSON that comes in
number() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p"; }
# near A B DISTANCE: whether they are two numbers less than that far from each other
near() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d < e && d > -e) }'; }
# check NAME COMMAND…: succeeds; what it says is in the files out and err
check() {
    what=$1; shift
    "$@" >out 2>err || { fail "$what: exit $?"; head -3 out err; }
}

# no_notices FILE: takes out what mpirun says by itself: that of Open MPI 4 now and then, when it ends while a pipe is being
# closed; that of 5 after an exit code but 0, between two lines of dashes
no_notices() {
    sed -i '/^\[warn\] Epoll /d' "$1"
    [ -n "$quiet" ] || sed -i '/^-\{40,\}$/,/^-\{40,\}$/d; /^\[.*\] PMIX ERROR/d' "$1"
}

# refuses NAME EXIT WORDS COMMAND…: fails with that exit code and one line that has the words
refuses() {
    what=$1 code=$2 words=$3; shift 3
    "$@" >out 2>err; got=$?
    no_notices err
    [ $got -eq "$code" ] || fail "$what: exit $got, expected $code: $(head -1 err)"
    grep -qF -- "$words" err || fail "$what: «$(head -1 err)» lacks «$words»"
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line: $(cat err)"
}

# run FOLDER RANKS JOB SETTING…: trains into the folder, and keeps what is said in FOLDER.out; 1 rank is without mpirun
run() {
    into=$1 ranks=$2; shift 2
    launch="mpirun $quiet --oversubscribe -n $ranks"
    [ "$ranks" -gt 1 ] || launch=
    timeout -s KILL $patience $launch "$trireme" train "$@" output="$into" >"$into.out" 2>&1 && return
    fail "$into: $launch trireme train $*: exit $?: $(grep -e error -e "$stack" "$into.out" || tail -3 "$into.out")"
    return 1
}

# refused EXIT PATTERN SETTING…: training job.yaml ends with that exit code and one error that matches. Errors in the job
# itself are found before ranks differ: by one process. Ranks must agree on all others, so these are checked on two.
refused() {
    code=$1 pattern=$2; shift 2
    timeout -s KILL $patience "$trireme" train job.yaml output=no "$@" >said 2>&1
    got=$?
    grep -q '^trireme: error: \(command line\|default\|job.yaml:[0-9]*\): ' said || {
        timeout -s KILL $patience mpirun $quiet --oversubscribe -n 2 "$trireme" train job.yaml output=no "$@" >said 2>&1
        got=$?
    }
    [ $got -eq "$code" ] || fail "$*: not refused with $code: $(cat said)"
    grep '^trireme: error: ' said | grep -q -- "$pattern" || fail "$*: «$(grep error: said)» lacks «$pattern»"
    [ "$(grep -c '^trireme: error: ' said)" -eq 1 ] || fail "$*: not one line: $(cat said)"
}

# expect EXIT WORDS WORD…: trireme WORD… ends with that exit code and says the words
expect() {
    code=$1 words=$2; shift 2
    said=$(timeout -s KILL $patience "$trireme" "$@" 2>&1); got=$?
    [ $got -eq "$code" ] || fail "trireme $*: exit $got, expected $code: $said"
    case $said in
    *"$words"*) ;;
    *) fail "trireme $*: says «$said», expected «$words»" ;;
    esac
}

# one_error WHAT GOT EXIT WORDS: the exit code is the one expected; in err, besides what train says on its way, there is
# one line, an error that has the words: no banner of mpirun, no trace, no warning
one_error() {
    no_notices err
    [ "$2" -eq "$3" ] || fail "$1: exit $2, expected $3: $(cat err)"
    [ "$(grep -c '^trireme: error: ' err)" -eq 1 ] || fail "$1: not one line of error: $(cat err)"
    grep '^trireme: error: ' err | grep -qF -- "$4" || fail "$1: «$(grep error err)» lacks «$4»"
    others=$(grep -vE "^(trireme: error|layout|memory|output|reading|training data|test data|each worker|labels|scaled|centred|model.type|epoch)" err)
    [ -z "$others" ] || fail "$1: also says «$others»"
}

# What the tests of the program share, read by them with their own argument: the program. Afterwards they are in a folder
# of their own, which goes when they end.
#
#   $trireme, $jobs, $data   the program, the job files, and the folder of the public datasets (none: there is none)
#   $quiet                   mpirun's option for not commenting on exit codes; Open MPI 5 has none
#   $bad                     1 after the first fail
set -u
trireme=$(realpath "${1:?usage: $0 TRIREME}")
jobs=$(realpath "$(dirname "$0")/../../jobs")
data=${TRIREME_DATA:-none}
here=$(mktemp -d) && cd "$here" || exit 1
trap 'cd /; rm -rf "$here"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
bad=0
quiet=$(mpirun -q --version >/dev/null 2>&1 && echo -q)

fail() { echo "FAILED: $*"; bad=1; }
skip() { echo "skipped: $*"; }

# of FOLDER MEMBER: of its summary.json
of() { sed -n "s/^  \"$2\": \(.*[^,]\),\{0,1\}\$/\1/p" "$1/summary.json" 2>/dev/null | tr -d '"'; }
# holds WHAT EXPRESSION: of awk
holds() { awk "BEGIN { exit !($2) }" || fail "$1: not true: $2"; }
# check NAME COMMAND…: succeeds; what it says is in the files out and err
check() {
    what=$1; shift
    "$@" >out 2>err || { fail "$what: exit $?"; head -3 out err; }
}

# refuses NAME EXIT WORDS COMMAND…: fails with that exit code and one line that has the words
refuses() {
    what=$1 code=$2 words=$3; shift 3
    "$@" >out 2>err; got=$?
    [ $got -eq "$code" ] || fail "$what: exit $got, expected $code: $(head -1 err)"
    grep -qF -- "$words" err || fail "$what: «$(head -1 err)» lacks «$words»"
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: more than one line"
}

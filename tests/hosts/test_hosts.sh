#!/bin/sh
# Trains over two hosts: two network namespaces joined by a cable, with host names of their own, so that nothing is
# shared but what a cluster shares. mpirun gets only what it needs to start there; that tables open, that updates
# arrive and that the clock goes round between hosts is the program's own duty.
#   test_hosts.sh TRIREME      skipped (77) where namespaces cannot be made
set -eu
trireme=$(realpath "$1")
work=${2:-}

# First in the world outside: go into namespaces of our own. Whatever happens, all of it (processes, mounts, hosts)
# vanishes with the first process inside.
if [ -z "$work" ]; then
    private="unshare --mount --net --pid --fork --kill-child --mount-proc"
    [ "$(id -u)" -eq 0 ] || private="$private --user --map-root-user"
    if ! $private sh -c 'mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add try' >/dev/null 2>&1; then
        echo "SKIP hosts: network namespaces cannot be made here"
        exit 77
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    $private "$0" "$trireme" "$work" &
    inside=$!
    trap 'kill -9 $inside; exit 130' INT TERM
    wait $inside
    exit
fi

# ---- the hosts h1 and h2 ----

mount -t tmpfs tmpfs /run
mkdir /run/netns
printf '127.0.0.1 localhost\n10.77.0.1 h1\n10.77.0.2 h2\n' >"$work/names"
mount --bind "$work/names" /etc/hosts
ip netns add h1
ip netns add h2
ip link add cable1 netns h1 type veth peer name cable2 netns h2
for i in 1 2; do
    ip -n h$i link set lo up
    ip -n h$i link set cable$i name eth0
    ip -n h$i addr add 10.77.0.$i/24 dev eth0
    ip -n h$i link set eth0 up
done
# in place of ssh:  on HOST COMMAND...
cat >"$work/on" <<'END'
#!/bin/sh
host=$1
shift
exec nsenter --net=/run/netns/"$host" unshare --uts sh -c 'hostname "$0"; eval "$1"' "$host" "$*"
END
chmod +x "$work/on"
printf 'h1 slots=2\nh2 slots=2\n' >"$work/hostfile"

# ---- the job ----

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ -f "${TRIREME_DATA:-}/a9a/a9a.gz" ]; then
    data=$TRIREME_DATA/a9a/a9a.gz
else
    data=$work/data
    "$trireme" generate ctr -o "$data" rows=20k features=500 nonzeros=10 >/dev/null 2>&1
fi
cat >"$work/job.yaml" <<END
name: hosts
model: {type: logistic, l2: 1/n}
solve: {method: dual, epochs: 100, target_gap: 1e-4}
data: {train: $data}
END

failures=0
# case NAME LAYOUT settings…: four ranks over both hosts must reach the objective of one process
case_of() {
    name=$1 layout=$2
    shift 2
    run=$work/$name
    code=0
    # the cores of two hosts are in truth those of one: waiting ranks give way
    "$work/on" h1 mpirun --hostfile "$work/hostfile" -n 4 --mca plm_rsh_agent "$work/on" \
        --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --bind-to none --mca mpi_yield_when_idle 1 \
        "$trireme" train "$work/job.yaml" "output=$run" "$@" >"$run.log" 2>&1 || code=$?
    reached=$(objective "$run" || true)
    if [ $code -ne 0 ]; then wrong="exit code $code"
    elif ! grep -q "$layout: 4 ranks on 2 nodes" "$run.log"; then wrong="not the layout $layout on 2 nodes"
    elif ! [ -s "$run/model.h5" ]; then wrong="no model.h5"
    elif ! near "$reached" "$alone"; then wrong="objective $reached, one process reaches $alone"
    else
        echo "ok $name: objective $reached, one process $alone"
        return
    fi
    echo "FAIL $name: $wrong"
    tail -30 "$run.log"
    failures=$((failures + 1))
}

objective() {
    sed -n 's/.*"objective": *\([0-9.e+-]*\).*/\1/p' "$1/summary.json" 2>/dev/null
}

near() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b > 0 && (a - b) / b < 1e-3 && (b - a) / b < 1e-3) }'
}

"$trireme" train "$work/job.yaml" "output=$work/alone" >"$work/alone.log" 2>&1 || { cat "$work/alone.log"; exit 1; }
alone=$(objective "$work/alone")

# Without steps in common it takes more of them, and a gap measured on the way proves nothing, as every worker
# evaluates what it sees: so many epochs and no target.
freely="solve.epochs=1000 solve.target_gap=0 report.every=1000"
for layout in dedicated colocated; do
    settings=ranks.layout=colocated
    [ $layout = colocated ] || settings=ranks.servers=1
    # shellcheck disable=SC2086 # words on purpose
    {
        case_of $layout-bsp $layout $settings
        case_of $layout-ssp $layout $settings sync.mode=ssp $freely
        case_of $layout-asp $layout $settings sync.mode=asp $freely
    }
done
[ $failures -eq 0 ]

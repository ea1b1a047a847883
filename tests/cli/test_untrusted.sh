#!/bin/sh
# Files and connections of other users cannot make the program run, open or reveal anything: test_untrusted.sh [TRIREME]
# docs/security.md names the case of each attack. Cases that need a second user are skipped without root.
[ $# -gt 0 ] || set -- "$(dirname "$0")/../../build/trireme"
tests=$(realpath "$(dirname "$0")")
. "$(dirname "$0")/lib.sh"

# ---- plugins ----

# ---- HDF5 files that refer to other files ----

# ---- text from files, on terminals, pages, in JSON and plots ----

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

# ---- files that are written ----

exit $bad

#!/bin/sh
# Files and connections of other users cannot make the program run, open or reveal anything: test_untrusted.sh [TRIREME]
# docs/security.md names the case of each attack. Cases that need a second user are skipped without root.
[ $# -gt 0 ] || set -- "$(dirname "$0")/../../build/trireme"
. "$(dirname "$0")/lib.sh"

# ---- plugins ----

# ---- HDF5 files that refer to other files ----

# ---- text from files, on terminals, pages, in JSON and plots ----

# ---- trireme watch ----

# ---- limits ----

# ---- files that are written ----

exit $bad

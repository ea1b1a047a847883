/* Fault injection at named points of the program, for tests of checkpoints and restarts.
 *
 * The environment variable TRIREME_FAULT contains rules, separated by commas:
 *
 *   POINT[=ACTION][@RANK]:CHANCE[:SEED[:ATTEMPT]]
 *
 *   POINT    argument of a TR_FAULT(): load, pull, merge, stage, checkpoint.write, and others
 *   ACTION   kill (the default: SIGKILL to itself), segv, exit[=code] (default 70), stop (SIGSTOP to itself),
 *            delay[=milliseconds] (default 10); enospc, eio, short: the caller behaves as if the system had failed like this;
 *            hang: the caller waits forever, as after a lost message (only at `enter`, `clock`, `meet`, `leave`)
 *   RANK     of MPI_COMM_WORLD; default: all
 *   CHANCE   probability of a fault at each visit of the point, 0 to 1; or #N: at the Nth visit, from 1
 *   SEED     the same rule with the same seed gives faults at the same visits of the same ranks; default: 0
 *   ATTEMPT  only at this start of the job by `trireme run`, from 0; default: all. With a probability, each attempt has
 *            faults at other visits.
 *
 * A point is visited rarely: once per message, file or clock. The build option `faults` enables the points.
 */
#ifndef TR_FAULT_H
#define TR_FAULT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Actions of faults. The caller of tr_fault_at() simulates those up to TR_FAULT_HANG; tr_fault_at() performs the others. */
enum tr_fault {
    TR_FAULT_NONE,
    TR_FAULT_ENOSPC,
    TR_FAULT_EIO,
    TR_FAULT_SHORT,
    TR_FAULT_HANG,
    TR_FAULT_KILL,
    TR_FAULT_SEGV,
    TR_FAULT_EXIT,
    TR_FAULT_STOP,
    TR_FAULT_DELAY
};

/* Marks a point; the value is that of tr_fault_at(). A caller that simulates no failure writes (void)TR_FAULT("pull"). */
#ifdef TR_FAULTS
#define TR_FAULT(point) tr_fault_at(point)
#else
#define TR_FAULT(point) TR_FAULT_NONE
#endif

/* Performs the fault that TRIREME_FAULT requests at this visit, or returns it if the caller must simulate it. For all threads. */
enum tr_fault tr_fault_at(const char *point);

/* ---- rules ---- */

struct tr_fault_rule {
    char point[32];
    enum tr_fault action;
    long number;             /* exit: the code; delay: milliseconds */
    long rank;               /* -1: all */
    double chance;           /* probability of the fault at a visit; unused if `at` is not 0 */
    uint64_t at;             /* number of the only visit with the fault, from 1; 0: random visits */
    uint64_t seed;           /* tr_faults_settle() combines it with rank and attempt */
    long attempt;            /* -1: all */
    _Atomic uint64_t visits; /* number of visits so far */
};

enum { TR_FAULT_RULES = 16 };
struct tr_faults {
    size_t n;
    struct tr_fault_rule rule[TR_FAULT_RULES];
};

/* Parses rules. TR_ERR_USAGE if they are invalid. */
int tr_faults_parse(const char *text, struct tr_faults *faults);

/* Disables the rules for other ranks and attempts than these. */
void tr_faults_settle(struct tr_faults *faults, long rank, long attempt);

/* Counts a visit of the point. Returns the first rule that applies, or NULL. */
const struct tr_fault_rule *tr_faults_visit(struct tr_faults *faults, const char *point);

#endif

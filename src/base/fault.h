/* Failures on purpose, at named points of the program: what the tests of checkpoints and restarts use.
 *
 * The variable TRIREME_FAULT of the environment has rules, with commas between them:
 *
 *   POINT[=ACTION][@RANK]:CHANCE[:SEED[:ATTEMPT]]
 *
 *   POINT    where: load, pull, merge, stage, checkpoint.write, …: whatever stands in a TR_FAULT()
 *   ACTION   kill (the default: SIGKILL to itself), segv, exit[=code] (70), stop (SIGSTOP to itself), delay[=milliseconds]
 *            (10); enospc, eio, short: the caller is told to behave as if the system had said so; hang: to wait for
 *            ever, as one does whose message was lost (at `enter`, `clock`, `meet`, `leave`)
 *   RANK     of MPI_COMM_WORLD; without it, all
 *   CHANCE   of each visit of the point, 0 to 1; or #N: at the Nth visit, from 1 on
 *   SEED     the same rule with the same seed fails at the same visits of the same ranks (0)
 *   ATTEMPT  only when trireme run starts the job for the so many-th time, from 0 on; without it, always. By chance each
 *            attempt fails elsewhere.
 *
 * Points are visited rarely: once a message, a file or a clock. Without the build option `faults` there are none.
 */
#ifndef TR_FAULT_H
#define TR_FAULT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What a fault does; after the first five the caller of the point is to behave so, the others happen in tr_fault_at(). */
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

/* A point: enum tr_fault. Where nothing can be pretended: (void)TR_FAULT("pull"). */
#ifdef TR_FAULTS
#define TR_FAULT(point) tr_fault_at(point)
#else
#define TR_FAULT(point) TR_FAULT_NONE
#endif

/* Does what the environment wants at this point, and says how the caller is to behave; any thread. */
enum tr_fault tr_fault_at(const char *point);

/* ---- what it is made of ---- */

struct tr_fault_rule {
    char point[32];
    enum tr_fault action;
    long number; /* exit: the code; delay: milliseconds */
    long rank;   /* -1: all */
    double chance;
    uint64_t at;   /* this visit alone; 0: by chance */
    uint64_t seed; /* with rank and attempt mixed in by tr_faults_settle() */
    long attempt;  /* -1: all */
    _Atomic uint64_t visits;
};

enum { TR_FAULT_RULES = 16 };
struct tr_faults {
    size_t n;
    struct tr_fault_rule rule[TR_FAULT_RULES];
};

/* Reads rules. TR_ERR_USAGE says what is wrong with them. */
int tr_faults_parse(const char *text, struct tr_faults *faults);

/* Forgets the rules of other ranks and attempts. */
void tr_faults_settle(struct tr_faults *faults, long rank, long attempt);

/* A visit of the point: the first rule that strikes, or NULL. */
const struct tr_fault_rule *tr_faults_visit(struct tr_faults *faults, const char *point);

#endif

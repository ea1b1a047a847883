/* supervisor/ — a process beside mpirun that starts a job, sees at once when a rank dies or hangs, ends what is left, and
 * starts it again: trireme run. No MPI here.
 *
 *   members   the ranks, as they report through their lifelines, and their processes
 *   mpirun    as a child, and what it and the ranks write
 *   failure   what a failure was, and whether to start again
 *   supervise one start of the job after the other
 */
#ifndef TR_SUPERVISOR_H
#define TR_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>

struct tr_supervision {
    /* mpirun's words, ended by NULL: without what the supervisor adds, with program and its words */
    const char *const *command;
    size_t options; /* so many of its first words are mpirun's own, its name included */
    /* the word that means «start anew», which counts until training has begun; 0: there is none */
    size_t fresh;
    const char *output;      /* folder of the run, for what status.json says */
    bool everywhere;         /* ranks are on other hosts, too */
    double heartbeat, limit; /* seconds */
    int max_restarts;
    double max_time; /* seconds from now until the job must have ended, over all its starts; 0: no limit */
    const char *log; /* file to which events are added, or NULL */
};

/* Runs the job to its end: the exit code, that of train unless it fails in another way. SIGINT, SIGTERM, SIGHUP, SIGUSR1
 * and SIGUSR2 are passed on to the ranks; what is to be said is said on stderr. */
int tr_supervise(const struct tr_supervision *options);

/* Number of cores that this process may use. */
int tr_supervisor_cores(void);

#endif

/* supervisor/: `trireme run`. It starts a job with mpirun, detects immediately when a rank dies or hangs, terminates the remaining
 * processes, and starts the job again. It does not use MPI.
 *
 *   members    the ranks: their lifelines, their processes, their shared memory
 *   mpirun     mpirun as a child process, and its output
 *   failure    description of failures, decision to start again
 *   supervise  the loop of starts
 */
#ifndef TR_SUPERVISOR_H
#define TR_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>

struct tr_supervision {
    /* command line of mpirun with the program and its arguments, ended by NULL, without the options that the supervisor adds */
    const char *const *command;
    size_t options; /* number of leading words that belong to mpirun, including its name */
    /* index of the word --fresh, which is passed until training has started; 0: none */
    size_t fresh;
    const char *output;      /* folder of the run with status.json */
    bool everywhere;         /* ranks may run on other hosts */
    double heartbeat, limit; /* seconds */
    int max_restarts;
    double max_time; /* seconds until the job must have ended, including all restarts; 0: no limit */
    const char *log; /* file to which events are appended, or NULL */
};

/* Runs the job to its end and returns the exit code: of train, or of the failure. Forwards SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
 * SIGUSR2 to the ranks. Messages go to stderr. */
int tr_supervise(const struct tr_supervision *options);

/* Returns the number of cores that this process may use. */
int tr_supervisor_cores(void);

#endif

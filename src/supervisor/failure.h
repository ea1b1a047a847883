/* Failures of a job: their description, and the decision whether to start the job again. */
#ifndef TR_SUPERVISOR_FAILURE_H
#define TR_SUPERVISOR_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

#include "ranks/lifeline.h"

enum tr_cause_kind {
    TR_CAUSE_NONE,   /* no failure */
    TR_CAUSE_SIGNAL, /* killed by a signal */
    TR_CAUSE_EXIT,   /* exited with a code */
    TR_CAUSE_SILENT, /* no message for `number` seconds; possibly stopped */
    TR_CAUSE_HOST,   /* mpirun could not start its daemon on a host, or lost it, before any rank started */
    TR_CAUSE_STUCK,  /* all ranks have waited for each other for `number` seconds */
    TR_CAUSE_GONE    /* ended, reason unknown */
};

struct tr_failure {
    enum tr_cause_kind kind;
    int number;  /* signal, exit code or seconds, depending on kind */
    long rank;   /* -1: unknown, or mpirun itself */
    long pid;    /* 0: unknown */
    bool mpirun; /* mpirun failed, not a rank */
    bool stopped;
    char host[128];          /* "": unknown */
    struct tr_life_state at; /* progress of the job */
    double epoch;            /* NaN: unknown */
};

/* Describes a failure: "rank 2 (pid 4711 on node7) was killed by SIGKILL in stage 2 at clock 37, epoch 4.62". */
void tr_failure_describe(const struct tr_failure *failure, char *text, size_t size);

/* Describes the lost work: "5 clocks since the checkpoint of clock 32 are lost", or that there was no checkpoint. "" if no clock
 * had ended. */
void tr_failure_loss(const struct tr_failure *failure, char *text, size_t size);

/* Returns the exit code of a job that ends with this failure. */
int tr_failure_code(const struct tr_failure *failure);

/* Failures of all starts of a job. Initial value: {.best = TR_LIFE_NOWHERE}. */
struct tr_history {
    int restarts;
    int alike; /* consecutive failures of the same kind at the same clock */
    int idle;  /* consecutive failures without progress between them */
    struct tr_failure last;
    struct tr_life_state best; /* most advanced state of the job, and its newest checkpoint */
};

/* Returns true if another start would fail in the same way: the rank exited with a code of Trireme, or a rank has reported a lack
 * of system resources and no start has reached training. */
bool tr_failure_is_final(const struct tr_failure *failure, const struct tr_history *before);

enum tr_decision { TR_START_AGAIN, TR_FAILS_ALIKE, TR_FAILS_TOO_OFTEN };

enum { TR_ALIKE = 3, TR_LONGEST_PAUSE = 60 };

/* Adds a failure that is not final and decides whether to start again.
 *
 * @param [out] pause  seconds to wait before the next start: 0 after progress, then 1, 2, 4, ... up to TR_LONGEST_PAUSE
 * @return TR_FAILS_ALIKE: the same failure has occurred TR_ALIKE times in a row at the same clock, without a new checkpoint;
 *         TR_FAILS_TOO_OFTEN: more than max_restarts restarts; TR_START_AGAIN otherwise
 */
enum tr_decision tr_history_add(struct tr_history *history, const struct tr_failure *failure,
                                int max_restarts, double *pause);

#endif

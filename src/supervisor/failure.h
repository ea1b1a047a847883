/* How one start of a job ended, in words, and whether the job is started again after it. */
#ifndef TR_SUPERVISOR_FAILURE_H
#define TR_SUPERVISOR_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

#include "ranks/lifeline.h"

enum tr_cause_kind {
    TR_CAUSE_NONE,   /* all is well */
    TR_CAUSE_SIGNAL, /* killed by it */
    TR_CAUSE_EXIT,   /* left with this code */
    TR_CAUSE_SILENT, /* not heard of for so many seconds; stopped, perhaps */
    TR_CAUSE_HOST,   /* mpirun could not start its daemon on a host, or lost it, before ranks came */
    TR_CAUSE_STUCK,  /* all ranks have waited for one another for so many seconds */
    TR_CAUSE_GONE    /* how is not known */
};

struct tr_failure {
    enum tr_cause_kind kind;
    int number;  /* of the signal; the code; the seconds */
    long rank;   /* -1: not known, or mpirun itself */
    long pid;    /* 0: not known */
    bool mpirun; /* it was no rank */
    bool stopped;
    char host[128];          /* "": not known */
    struct tr_life_state at; /* where the job stood */
    double epoch;            /* NaN: not known */
};

/* "rank 2 (pid 4711 on node7) was killed by SIGKILL in stage 2 at clock 37, epoch 4.62". */
void tr_failure_describe(const struct tr_failure *failure, char *text, size_t size);

/* "5 clocks since the checkpoint of clock 32 are lost", or that there was none; "" where no clock had ended. */
void tr_failure_loss(const struct tr_failure *failure, char *text, size_t size);

/* The exit code of a job that ends by this. */
int tr_failure_code(const struct tr_failure *failure);

/* All starts of a job so far; begins as {.best = TR_LIFE_NOWHERE}. */
struct tr_history {
    int restarts;
    int alike; /* failures in a row that were the same at the same place */
    int idle;  /* failures in a row without progress between them */
    struct tr_failure last;
    struct tr_life_state best; /* farthest that the job ever was, and its newest checkpoint */
};

/* Whether the job would end so again: an exit code on purpose, or the system has no room for it, which a rank has said, and no
 * start has got as far as training. */
bool tr_failure_is_final(const struct tr_failure *failure, const struct tr_history *before);

enum tr_decision { TR_START_AGAIN, TR_FAILS_ALIKE, TR_FAILS_TOO_OFTEN };

enum { TR_ALIKE = 3, TR_LONGEST_PAUSE = 60 };

/* After a failure that is not final; *pause: seconds to wait before the next start: none after progress, then 1, 2, 4,
 * … up to TR_LONGEST_PAUSE. TR_FAILS_ALIKE: TR_ALIKE times in a row the same has failed at the same clock, and no
 * checkpoint was taken meanwhile. TR_FAILS_TOO_OFTEN: more than max_restarts in all. */
enum tr_decision tr_history_add(struct tr_history *history, const struct tr_failure *failure,
                                int max_restarts, double *pause);

#endif

/* The checkpoint policy: when one is due, by time, by clocks, by signal, and before the time that a run may take is over; and
 * the signals of the process. */
#ifndef TR_STORE_POLICY_H
#define TR_STORE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "job/job.h"

/* TR_DUE_EVALUATION: a pause, but only for what is evaluated in it; the best model is kept in memory. */
enum tr_due { TR_NOT_DUE, TR_DUE_EVALUATION, TR_DUE, TR_DUE_AND_STOP };

/* Of those on the disk, or of those in memory. */
struct tr_pace {
    double seconds;     /* one each so many; 0: not by time */
    int64_t clocks;     /* 0: not by clocks */
    double last;        /* when the last one was taken, or training began … */
    int64_t last_clock; /* … and at which clock */
    double cost;        /* seconds from taking the last one until it was whole */
};

struct tr_policy {
    struct tr_pace disk, memory;
    double end;         /* as tr_now(): the time is over; infinity */
    double most;        /* seconds of the whole run; infinity */
    bool entered;       /* training has begun */
    int opened, obeyed; /* signals that ask for one: before this was opened; when the last one was taken */
};

/* begin: when the process started, as tr_now(). */
void tr_policy_open(struct tr_policy *policy, const struct tr_job *job, double begin);

/* Rank 0, between the clocks of a stage: how many clocks the slowest worker has ended. */
enum tr_due tr_policy_due(const struct tr_policy *policy, int64_t clock);

/* Whether one in memory is. */
bool tr_policy_memory_due(const struct tr_policy *policy, int64_t clock);

/* A stage begins, whose clocks begin at 0. Time goes on: stages may be short. What was asked for meanwhile still is. */
void tr_policy_enter(struct tr_policy *policy);

/* How often one was asked for by signal since this was opened: other processes may have had other signals before. */
int tr_policy_asked(const struct tr_policy *policy);

/* One was taken at that clock, in memory or on the disk (which serves for both), or the run goes on there. */
void tr_policy_taken(struct tr_policy *policy, int64_t clock, bool in_memory);

/* Signals of the process. USR1 and USR2 ask for a checkpoint, USR1 for a stop, too, from the first open to the last close;
 * TERM and INT ask for a stop instead of ending the process from the first catch to the last release: the second one ends
 * it, unless it comes within a second. What was asked for is forgotten when they are opened again. */
void tr_signals_open(void);
void tr_signals_close(void);
void tr_signals_catch(void);
void tr_signals_release(void);

/* Whether a stop was asked for; how often a checkpoint was. */
bool tr_signals_stop(void);
int tr_signals_asked(void);

/* As if USR1 or USR2 had come: another rank has got it. */
void tr_signals_pass(bool stop);

#endif

/* When a checkpoint is due: by time, by clocks, by signal, and before the time that a run may take is over. */
#ifndef TR_CHECKPOINT_WHEN_H
#define TR_CHECKPOINT_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "job/job.h"

enum tr_due { TR_NOT_DUE, TR_DUE, TR_DUE_AND_STOP };

struct tr_when {
    double every;         /* seconds; 0: not by time */
    int64_t every_clocks; /* 0: not by clocks */
    double memory;        /* the same of those in memory */
    int64_t memory_clocks;
    double end;         /* as tr_now(): the time is over; infinity */
    double most;        /* seconds of the whole run; infinity */
    double last;        /* when the last one was taken, or training began … */
    int64_t last_clock; /* … and at which clock */
    double last_memory; /* … and of those in memory */
    int64_t last_memory_clock;
    double cost; /* seconds from taking the last one until it was whole */
    double memory_cost;
    bool entered;      /* training has begun */
    int opened, heard; /* signals that ask for one: before this was opened; which were heeded */
};

/* begin: when the process started, as tr_now(). */
void tr_when_open(struct tr_when *when, const struct tr_job *job, double begin);

/* Rank 0, between the clocks of a stage: how many clocks the slowest worker has ended. */
enum tr_due tr_when_due(const struct tr_when *when, int64_t clock);

/* The same of those in memory. */
bool tr_when_memory_due(const struct tr_when *when, int64_t clock);

/* A stage begins, whose clocks begin at 0. Time goes on: stages may be short. What was asked for meanwhile still is. */
void tr_when_enter(struct tr_when *when);

/* How often one was asked for by signal since this was opened: other processes may have had other signals before. */
int tr_when_asked(const struct tr_when *when);

/* One was taken at that clock, or the run goes on there: of both kinds, or of that in memory. */
void tr_when_taken(struct tr_when *when, int64_t clock);
void tr_when_memory_taken(struct tr_when *when, int64_t clock);

/* Signals of the process. USR1 and USR2 ask for a checkpoint, USR1 for a stop, too, from the first hear to the last unhear;
 * TERM and INT ask for a stop instead of ending the process from the first listen to the last deafen: the second one ends
 * it, unless it comes within a second. What was asked for is forgotten when somebody hears again. */
void tr_signals_hear(void);
void tr_signals_unhear(void);
void tr_signals_listen(void);
void tr_signals_deafen(void);

/* Whether a stop was asked for; how often a checkpoint was. */
bool tr_signals_stop(void);
int tr_signals_asked(void);

/* As if USR1 or USR2 had come: another rank has got it. */
void tr_signals_pass(bool stop);

#endif

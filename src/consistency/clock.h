/* The clock window: who has got how far, in words that others read without asking.
 *
 * Each rank has a line in memory shared by its node, with counters that only grow:
 *   written  every update that this rank owes for clocks < written is in the tables
 *   read     this rank has finished reading for clocks < read
 *   version  the shares of this server hold an update of clock version - 1 (DynSGD, section 6)
 * Whoever raises the minimum of its node says so: on a single node in the word that all read, otherwise to
 * the scheduler, whose window takes the minimum over the nodes and is answered with one word a node. So a
 * clock costs each rank one store, each node one message to the scheduler and one back: nothing grows with
 * the square of the ranks, and a rank never asks a busy rank for the time.
 */
#ifndef TR_CONSISTENCY_CLOCK_H
#define TR_CONSISTENCY_CLOCK_H

#include "ranks/ranks.h"

struct tr_clock;

/* All ranks. `keeps` says whether this rank's counters count. */
int tr_clock_open(tr_context *tr, struct tr_clock **clock);
void tr_clock_close(struct tr_clock **clock);

/* Begins again at 0 with new participants: those of the stage, before a barrier of theirs. All who took part in the
 * stage before have agreed on its outcome. */
int tr_clock_reset(struct tr_clock *clock, bool keeps_written, bool keeps_read, bool keeps_version);

/* This rank's counters count no more, as the next stage may be one without it: participants, once all are done with the
 * clocks of this stage, and before they part. */
void tr_clock_leave(struct tr_clock *clock);

/* Raise this rank's counters. */
int tr_clock_written(struct tr_clock *clock, int64_t clocks);
int tr_clock_read(struct tr_clock *clock, int64_t clocks);
int tr_clock_version(struct tr_clock *clock, int64_t clocks);

/* The minima over all ranks, as known here. */
int64_t tr_clock_min_written(const struct tr_clock *clock);
int64_t tr_clock_min_read(const struct tr_clock *clock);
int64_t tr_clock_min_version(const struct tr_clock *clock);

/* Any worker asks all for an evaluation, by its number; the highest that was asked for. */
int tr_clock_ask(struct tr_clock *clock, int64_t evaluation);
int64_t tr_clock_asked(const struct tr_clock *clock);

/* A server function has failed: nothing more is worth computing in this stage. */
void tr_clock_fail(struct tr_clock *clock);
bool tr_clock_failed(const struct tr_clock *clock);

/* The scheduler's word: clocks below `granted` will be run, whatever happens; `stop` says that none will be
 * granted any more. Both only grow. */
int tr_clock_grant(struct tr_clock *clock, int64_t clocks, bool stop);
int64_t tr_clock_granted(const struct tr_clock *clock);
bool tr_clock_stopped(const struct tr_clock *clock);

/* … and its word that all are to meet: a number that only grows. */
int tr_clock_call(struct tr_clock *clock, int64_t number);
int64_t tr_clock_called(const struct tr_clock *clock);

#endif

/* consistency/ — when a worker may read, when its clock ends, and what becomes of its updates at the servers.
 *
 *   clock      the clock window
 *   sync       the consistency of views: BSP, SSP(s), ASP over the clock window; of rows: rows
 *   replica    when a node's own copy of a table is taken and given
 *   functions  server functions: arithmetic, and one for each optimizer
 *   versions   … weights by staleness (DynSGD)
 *   optimizer  steps of the gradient optimizers, for servers and workers
 *   answers    what servers compute where the values lie
 *
 * With staleness s a worker at clock c reads only when every update of clocks < c - s is in the tables (SSP,
 * Ho et al. 2013; architecture.md of the papers' common notation): s = 0 is BSP, infinity is ASP. Under BSP,
 * besides, no update of clock c shows before everybody has read for c: that is up to the way of pushing
 * (merge, messages held by the server, or direct adding after the read clock allows it).
 */
#ifndef TR_CONSISTENCY_SYNC_H
#define TR_CONSISTENCY_SYNC_H

#include "consistency/clock.h"
#include "table/function.h"
#include "table/merge.h"
#include "table/server.h"
#include "table/tables.h"
#include "table/view.h"

struct tr_sync {
    tr_context *tr;
    struct tr_clock *clock;
    int64_t staleness; /* INT64_MAX: asynchronous */
    bool caching;      /* views are read again only when staleness demands it */
    bool running;      /* between begin and end of a stage */
    bool tells_rows;   /* … and others wait to hear that the rows that it has pushed have arrived */
    bool counting;     /* all views are open, so it is known what this rank owes */
    bool works;        /* this rank computes */
    bool left;         /* … but has ended its last clock */
    bool stands_in;    /* … but does not compute */
    int64_t now;       /* this worker's clock: it has ended so many */
    int64_t written;   /* last told to the clock window */
};

int tr_sync_open(tr_context *tr);
void tr_sync_close(tr_context *tr); /* all ranks */

/* BSP: reads and updates of a clock are kept apart. */
static inline bool tr_sync_lockstep(const struct tr_sync *sync)
{
    return sync->staleness == 0;
}

/* A stage begins: clocks and consistency start at 0. All ranks. */
int tr_sync_begin(struct tr_sync *sync);

/* All views of the stage are open and the tables are ready for what they push: the first clock begins. */
void tr_sync_count(struct tr_sync *sync);

/* For a worker that does not compute, or evaluate, as somebody has failed: it takes part in what its group pulls together in this
 * clock, and pushes, if it is one of computing. So other members, who may not know yet, are not left waiting; nor is it, where all
 * others end the clock without. */
int tr_sync_stand_in(struct tr_sync *sync, bool pushes);

/* Begins this worker's next clock: its deltas may be written again. */
int tr_sync_next(struct tr_sync *sync);

/* Ends this worker's clock: what it has not pushed is pushed, under BSP; the clock counts as written once all
 * of that has arrived. */
int tr_sync_tick(struct tr_sync *sync);

/* Waits until all that this rank owes has arrived and nothing is being read, then until all participants are here. None
 * of them changes anything in tables after that, until they end the stage or continue. */
int tr_sync_barrier(struct tr_sync *sync);

/* After the barrier, what filters have held back, and rounding has taken, goes to the servers, as the update of one more clock, and
 * all meet again: all participants. Nothing without them; *flushed: whether there are any. */
int tr_sync_flush(struct tr_sync *sync, bool *flushed);

/* Ends the stage after the barrier: all participants. */
int tr_sync_end(struct tr_sync *sync);

/* Continues after the barrier: in lockstep with the next clock, otherwise, after tr_sync_end(), with the first one again,
 * since those who had gone ahead would wait for the others' clocks. All participants. */
int tr_sync_continue(struct tr_sync *sync);

#endif

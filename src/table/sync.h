/* Consistency: when a worker may read, when its clock ends, and when its updates become visible.
 *
 * With staleness s a worker at clock c reads only when every update of clocks < c - s is in the tables (SSP, Ho et al. 2013):
 * s = 0 is BSP, infinity is ASP. Under BSP, besides, no update of clock c is visible before all workers have read for c. The
 * way of pushing ensures that: a merge, messages that the server holds, or direct adding after the read clock allows it.
 */
#ifndef TR_TABLE_SYNC_H
#define TR_TABLE_SYNC_H

#include "ranks/ranks.h"
#include "table/function.h"
#include "table/merge.h"
#include "table/server.h"
#include "table/table.h"
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

/* ======== the clock window ======== */

/* The clock window: who has got how far, in words that only grow and that others read without asking.
 *
 * Each rank has a line in memory shared by its node. Whoever raises the minimum of its node says so: on a single node in
 * the word that all read, otherwise to the scheduler, whose window takes the minimum over the nodes and is answered with
 * one word a node. So a clock costs each rank one store, each node one message to the scheduler and one back: nothing
 * grows with the square of the ranks, and a rank never asks a busy rank for the time.
 */

enum tr_clock_word {
    /* The minimum over all ranks that count … */
    TR_CLOCK_WRITTEN, /* every update that a rank owes for clocks < written is in the tables */
    TR_CLOCK_READ,    /* a rank has finished reading for clocks < read */
    TR_CLOCK_PUSHED,  /* what a rank has pushed as rows in clocks < pushed has reached its servers (BSP) */
    TR_CLOCK_VERSION, /* the shares of a server hold an update of clock version - 1 (DynSGD, section 6) */
    TR_CLOCK_MINIMA,
    /* … the maximum … */
    TR_CLOCK_ASKED = TR_CLOCK_MINIMA, /* the highest number of an evaluation that a worker asks for */
    TR_CLOCK_FAILED, /* 1: a server function has failed, and nothing more is worth computing */
    TR_CLOCK_MAXIMA,
    /* … and what the scheduler says, who alone raises it. */
    TR_CLOCK_LIMIT = TR_CLOCK_MAXIMA, /* clocks below it will be run, whatever happens */
    TR_CLOCK_STOPPED,                 /* 1: the limit will not be raised any more */
    TR_CLOCK_CALLED,                  /* the number of the next barrier that all are called to */
    TR_CLOCK_WORDS
};

struct tr_clock;

/* All ranks. */
int tr_clock_open(tr_context *tr, struct tr_clock **clock);
void tr_clock_close(struct tr_clock **clock);

/* Begins again at 0 with new participants, of which `counts` says which of this rank's words count: the participants of
 * the stage, before a barrier of theirs. All who took part in the stage before have agreed on its outcome. */
int tr_clock_reset(struct tr_clock *clock, const bool counts[TR_CLOCK_MINIMA]);

/* This rank's words count no more, as the next stage may be one without it: the participants, once all of them are done
 * with the clocks of this stage, and before they part. */
void tr_clock_leave(struct tr_clock *clock);

/* Raises this rank's word, unless it is that high already. */
void tr_clock_raise(struct tr_clock *clock, enum tr_clock_word word, int64_t value);

/* A word over all ranks, as far as it is known here. */
int64_t tr_clock_get(const struct tr_clock *clock, enum tr_clock_word word);

/* ---- for those who watch: each rank says what it does in a line of its own, which nobody else reads but rank 0, now and
 * then, by looking at the memory of its node ---- */

enum tr_rank_state {
    TR_RANK_STANDS, /* takes no part, or serves */
    TR_RANK_COMPUTES,
    TR_RANK_EVALUATES,
    TR_RANK_PULLS,
    TR_RANK_PUSHES,
    TR_RANK_WAITS, /* for other workers */
    TR_RANK_SAVES, /* copies what a checkpoint takes */
    TR_RANK_STATES
};

struct tr_rank_seen {
    enum tr_rank_state state; /* TR_RANK_STATES: not known, as it is on another node */
    int64_t clock;            /* of a worker, or -1; on another node as of its last evaluation, as is: */
    double seconds;           /* that it has computed in this stage */
    double serving,
        held; /* of a server: seconds that messages have taken it, and bytes of its shares of tables */
};

/* This rank does this from now on; what it did before. Costs a store. */
enum tr_rank_state tr_clock_say(struct tr_clock *clock, enum tr_rank_state state);

/* … and has got so far. */
void tr_clock_count(struct tr_clock *clock, struct tr_rank_seen seen);

/* … and as a server. */
void tr_clock_serve(struct tr_clock *clock, double serving, double held);

/* Rank 0: what a rank of another node has reported; and what it knows of all ranks, by rank. */
void tr_clock_hear(struct tr_clock *clock, int rank, struct tr_rank_seen seen);
void tr_clock_see(const struct tr_clock *clock, struct tr_rank_seen seen[]);

#endif

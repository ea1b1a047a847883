/* Consistency: when a worker may read, when its clock ends, and when its updates become visible.
 *
 * With staleness s a worker at clock c reads only when every update of clocks < c - s is in the tables (SSP, Ho et al. 2013):
 * s = 0 is BSP, infinity is ASP. Moreover, under BSP no update of clock c is visible before all workers have read for c. The
 * way of pushing ensures that: a merge, messages that the server holds, or direct adding after the read clock allows it.
 */
#ifndef TR_TABLE_SYNC_H
#define TR_TABLE_SYNC_H

#include "table/view.h"

struct tr_sync {
    tr_context *tr;
    struct tr_clock *clock;
    int64_t staleness; /* INT64_MAX: asynchronous */
    bool caching;      /* views are read again only when staleness demands it (sync.pull: stale) */
    bool running;      /* between begin and end of a stage, on ranks that owe updates */
    bool tells_rows;   /* this worker reports TR_CLOCK_PUSHED, which servers wait for */
    bool counting;     /* between tr_sync_count() and the end of the stage: all views are open */
    bool works;        /* this rank is a worker of the stage */
    bool left;         /* it has ended its last clock */
    bool stands_in;    /* it takes part in a pull of its group without computing */
    int64_t now;       /* number of clocks that this worker has ended */
    int64_t written;   /* value of TR_CLOCK_WRITTEN that this rank reported last */
};

int tr_sync_open(tr_context *tr);
void tr_sync_close(tr_context *tr); /* both collective over all ranks */

/* BSP: no update of a clock is visible to readers of that clock. */
static inline bool tr_sync_lockstep(const struct tr_sync *sync)
{
    return sync->staleness == 0;
}

/* Starts a stage at clock 0. Collective over its participants. */
int tr_sync_begin(struct tr_sync *sync);

/* Starts the first clock: all views of the stage are open and the tables are ready (tr_tables_ready()). Local. */
void tr_sync_count(struct tr_sync *sync);

/* For a worker that skips computing or evaluating because a rank has failed: takes part in the pulls of its group in this
 * clock and, with `pushes`, in its pushes, so that members that do not know of the failure yet do not wait for it. It does not
 * wait for a pull if all other workers have ended the clock. */
int tr_sync_stand_in(struct tr_sync *sync, bool pushes);

/* Starts this worker's next clock: waits until the deltas of its views may be written again. */
int tr_sync_next(struct tr_sync *sync);

/* Ends this worker's clock. Under BSP, views that were not pushed are pushed now. The clock counts as written once all updates
 * have arrived. */
int tr_sync_tick(struct tr_sync *sync);

/* Waits until all updates that this rank owes have arrived and no view is being read, then for all participants of the stage.
 * Tables do not change until the stage ends or continues. Collective over the participants. */
int tr_sync_barrier(struct tr_sync *sync);

/* After the barrier: sends residuals of filters and of rounding as the update of one more clock, and runs the barrier again.
 * *flushed = false, and nothing happens, if there can be none. Collective over the participants. */
int tr_sync_flush(struct tr_sync *sync, bool *flushed);

/* Ends the stage after the barrier: server functions add the versions that they keep apart to the values. Collective over the
 * participants. */
int tr_sync_end(struct tr_sync *sync);

/* Continues after the barrier: under BSP with the next clock; otherwise, after tr_sync_end(), with clock 0 again, because
 * workers that were ahead would have to wait for the others. Collective over the participants. */
int tr_sync_continue(struct tr_sync *sync);

/* ======== the clock window: progress of all ranks, in words that only grow ========
 *
 * Each rank has a cache line in memory shared by its node. A rank that raises the minimum of its node publishes it: on a single
 * node in the word that all ranks read, otherwise in the window of the scheduler, which takes the minimum over the nodes and
 * writes it back to each node. A clock costs each rank one store, and each node one message to the scheduler and one back:
 * no cost grows with the square of the number of ranks, and a rank never waits for a busy rank to read a clock. */

enum tr_clock_word {
    /* minimum over all ranks that count */
    TR_CLOCK_WRITTEN, /* every update that a rank owes for clocks < written is in the tables */
    TR_CLOCK_READ,    /* a rank has finished reading for clocks < read */
    TR_CLOCK_PUSHED,  /* rows that a rank pushed in clocks < pushed have reached their servers (BSP) */
    TR_CLOCK_VERSION, /* the shares of a server hold an update of clock version - 1 (DynSGD, section 6) */
    TR_CLOCK_MINIMA,
    /* maximum over all ranks */
    TR_CLOCK_ASKED = TR_CLOCK_MINIMA, /* number of the latest evaluation that a worker asks for */
    TR_CLOCK_FAILED,                  /* 1: a server function has failed: workers stop computing */
    TR_CLOCK_MAXIMA,
    /* raised by the scheduler only */
    TR_CLOCK_LIMIT = TR_CLOCK_MAXIMA, /* clocks < limit will be run in any case */
    TR_CLOCK_STOPPED,                 /* 1: the limit is final */
    TR_CLOCK_CALLED,                  /* number of the next barrier that all workers are called to */
    TR_CLOCK_WORDS
};

struct tr_clock;

/* Words of this rank do not count any more, because the next stage may run without it. On each participant, after all of them
 * have ended the clocks of the stage. */
void tr_clock_leave(struct tr_clock *clock);

/* Raises this rank's word to `value`, unless it is that high already. */
void tr_clock_raise(struct tr_clock *clock, enum tr_clock_word word, int64_t value);

/* The minimum or maximum of a word over all ranks, as far as this rank knows. */
int64_t tr_clock_get(const struct tr_clock *clock, enum tr_clock_word word);

/* ---- activity of each rank, for the monitor: a cache line that only rank 0 reads, now and then ---- */

enum tr_rank_state {
    TR_RANK_STANDS, /* does not take part, or only serves */
    TR_RANK_COMPUTES,
    TR_RANK_EVALUATES,
    TR_RANK_PULLS,
    TR_RANK_PUSHES,
    TR_RANK_WAITS, /* for other workers */
    TR_RANK_SAVES, /* copies its part of a checkpoint */
    TR_RANK_STATES
};

struct tr_rank_seen {
    enum tr_rank_state state; /* TR_RANK_STATES: unknown, because the rank is on another node */
    int64_t clock;            /* of a worker, or -1; on another node: at its last evaluation */
    double seconds;           /* of computing in this stage; on another node: at its last evaluation */
    double serving;           /* of a server: seconds of handling messages */
    double held;              /* of a server: bytes of its shares */
};

/* Sets the state of this rank, and returns the previous one. Costs a store. */
enum tr_rank_state tr_clock_say(struct tr_clock *clock, enum tr_rank_state state);

/* Sets state, clock and seconds of this rank. */
void tr_clock_count(struct tr_clock *clock, struct tr_rank_seen seen);

/* On rank 0: notes the report of a rank of another node; and lists the state of all ranks, by rank. */
void tr_clock_hear(struct tr_clock *clock, int rank, struct tr_rank_seen seen);
void tr_clock_see(const struct tr_clock *clock, struct tr_rank_seen seen[]);

#endif

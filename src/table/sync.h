/* Consistency: when a worker may read, when its clock ends, and when its updates become visible.
 *
 * With staleness s a worker at clock c reads only when every update of clocks < c - s is in the tables (SSP, Ho et al. 2013): s = 0
 * is BSP, infinity is ASP. Under BSP, moreover, no update of clock c is visible before all workers have read for c. Three kinds of
 * push ensure this: a merge, messages that the server holds, or direct adding when TR_CLOCK_READ is above c.
 */
#ifndef TR_TABLE_SYNC_H
#define TR_TABLE_SYNC_H

#include "table/view.h"

struct tr_sync {
    tr_context *tr;
    struct tr_clock *clock;
    int64_t staleness; /* maximum staleness in clocks (see above); INT64_MAX: asynchronous */
    bool caching;      /* views are read again only when staleness demands it (sync.pull: stale) */
    bool running;      /* a stage runs in which this rank is a worker or, under BSP, a server */
    bool tells_rows;   /* this worker raises TR_CLOCK_PUSHED, for which servers of sparse rows wait */
    bool counting;     /* clocks are running: between tr_sync_count() and the end of the stage */
    bool works;        /* this rank is a worker of the stage */
    bool left;         /* not under BSP: this worker has ended its last clock of the stage */
    bool stands_in;    /* tr_sync_stand_in() is running, and pulls for the group */
    int64_t now;       /* current clock of this worker: the number of clocks that it has ended */
    int64_t written;   /* value of TR_CLOCK_WRITTEN that this rank reported last */
};

/* tr_sync_open() makes tr->sync, tr_sync_close() frees it. Both are collective over all ranks. */
int tr_sync_open(tr_context *tr);
void tr_sync_close(tr_context *tr);

/* Returns whether the job runs under BSP. */
static inline bool tr_sync_lockstep(const struct tr_sync *sync)
{
    return sync->staleness == 0;
}

/* Starts a stage at clock 0. Collective over its participants: workers, servers and the scheduler (tr_worker_set). */
int tr_sync_begin(struct tr_sync *sync);

/* Starts the first clock, after all views of the stage were opened and tr_tables_ready() has returned. Local. */
void tr_sync_count(struct tr_sync *sync);

/* Called by a worker that does not compute or evaluate because a rank has failed. Takes part in the pulls of its group in this
 * clock and, if `pushes`, in the pushes, so that members that do not know of the failure yet do not wait for this worker. Stops
 * waiting for a pull when all other workers have ended the clock. */
int tr_sync_stand_in(struct tr_sync *sync, bool pushes);

/* Starts this worker's next clock: waits until the worker may write to the deltas of its views. */
int tr_sync_next(struct tr_sync *sync);

/* Ends this worker's clock. Under BSP, views that were not pushed in this clock are pushed now. */
int tr_sync_tick(struct tr_sync *sync);

/* Waits until all updates of this rank have arrived and no view is being read, then for all participants of the stage. After that,
 * tables do not change until the stage ends or continues. Collective over the participants. */
int tr_sync_barrier(struct tr_sync *sync);

/* After the barrier: sends the residuals of filters and rounding as the update of one more clock, and runs the barrier again. If no
 * table can have residuals, does nothing and sets *flushed to false. Collective over the participants. */
int tr_sync_flush(struct tr_sync *sync, bool *flushed);

/* Ends the stage after the barrier: server functions add the separately stored versions to the values. Collective over the
 * participants. */
int tr_sync_end(struct tr_sync *sync);

/* Continues the stage after the barrier: under BSP with the next clock; otherwise, after tr_sync_end(), with clock 0 on all
 * workers, because workers at different clocks would have to wait for the slowest. Collective over the participants. */
int tr_sync_continue(struct tr_sync *sync);

/* ======== the clock window: progress of all ranks, in words that only grow ========
 *
 * A word is a number that each rank raises for itself; ranks read its minimum or maximum over all ranks. Each rank has a cache line
 * of words in memory shared by its node. A rank that raises the minimum of its node publishes this minimum: on a single node in the
 * word that all ranks read, otherwise in an RMA window of the scheduler, which takes the minimum over the nodes and writes it to
 * each node. A clock costs each rank one store, and each node one message to the scheduler and one back. So costs do not grow with
 * the square of the number of ranks, and a rank reads a clock without waiting for another rank. */

enum tr_clock_word {
    /* words of which ranks read the minimum over the ranks that contribute (see tr_sync_begin()) */
    TR_CLOCK_WRITTEN, /* `written`: all updates of the rank for clocks < written are in the tables */
    TR_CLOCK_READ,    /* `read`: the worker has finished reading for clocks < read */
    TR_CLOCK_PUSHED,  /* `pushed`, BSP: rows that the worker pushed in clocks < pushed are at the servers */
    TR_CLOCK_VERSION, /* `version` v: each share of the server has received an update of clock v - 1 from some worker (DynSGD) */
    TR_CLOCK_MINIMA,
    /* words of which ranks read the maximum over all ranks */
    TR_CLOCK_ASKED = TR_CLOCK_MINIMA, /* number of the latest evaluation that a worker asks for */
    TR_CLOCK_FAILED,                  /* 1: a server function has failed, and workers stop computing */
    TR_CLOCK_MAXIMA,
    /* words that only the scheduler raises */
    TR_CLOCK_LIMIT = TR_CLOCK_MAXIMA, /* `limit`: all workers will run all clocks < limit */
    TR_CLOCK_STOPPED,                 /* 1: the limit is final */
    TR_CLOCK_CALLED,                  /* number of the next pause, at which all workers meet at a barrier */
    TR_CLOCK_WORDS
};

struct tr_clock;

/* Removes this rank from all minima, because it may not take part in the next stage. On each participant, after all participants
 * have ended the clocks of the stage. */
void tr_clock_leave(struct tr_clock *clock);

/* Raises this rank's word to `value`, if the word is lower. */
void tr_clock_raise(struct tr_clock *clock, enum tr_clock_word word, int64_t value);

/* Returns the minimum or maximum of a word over all ranks, as last published to this node. */
int64_t tr_clock_get(const struct tr_clock *clock, enum tr_clock_word word);

/* ---- activity of each rank, for the monitor: a cache line per rank, which rank 0 reads ---- */

enum tr_rank_state {
    TR_RANK_STANDS, /* the rank is not used, or is only a server */
    TR_RANK_COMPUTES,
    TR_RANK_EVALUATES,
    TR_RANK_PULLS,
    TR_RANK_PUSHES,
    TR_RANK_WAITS, /* the rank waits for other workers */
    TR_RANK_SAVES, /* the rank copies its part of a checkpoint */
    TR_RANK_STATES
};

struct tr_rank_seen {
    enum tr_rank_state state; /* TR_RANK_STATES: unknown, because the rank is on another node */
    int64_t clock;            /* worker: its clock (on another node: at the last evaluation); others: -1 */
    double seconds; /* worker: seconds of computing in this stage (on another node: at the last evaluation) */
    double serving; /* server: seconds spent handling messages */
    double held;    /* server: bytes of its shares */
};

/* Sets the state of this rank, and returns the previous state. */
enum tr_rank_state tr_clock_say(struct tr_clock *clock, enum tr_rank_state state);

/* Publishes the state, clock and seconds of `seen` as the activity of this rank. */
void tr_clock_count(struct tr_clock *clock, struct tr_rank_seen seen);

/* On rank 0: stores the activity of a rank of another node, as it has reported it. */
void tr_clock_hear(struct tr_clock *clock, int rank, struct tr_rank_seen seen);

/* On rank 0: writes the activity of all ranks to seen, by rank. */
void tr_clock_see(const struct tr_clock *clock, struct tr_rank_seen seen[]);

#endif

/* The clock window: who has got how far, in words that only grow and that others read without asking.
 *
 * Each rank has a line in memory shared by its node. Whoever raises the minimum of its node says so: on a single node in
 * the word that all read, otherwise to the scheduler, whose window takes the minimum over the nodes and is answered with
 * one word a node. So a clock costs each rank one store, each node one message to the scheduler and one back: nothing
 * grows with the square of the ranks, and a rank never asks a busy rank for the time.
 */
#ifndef TR_CONSISTENCY_CLOCK_H
#define TR_CONSISTENCY_CLOCK_H

#include "ranks/ranks.h"

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

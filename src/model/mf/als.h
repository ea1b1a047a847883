/* Alternating least squares on tables: what als.c and als_half.c share, also with tests.
 *
 * A sweep is two clocks. In the first each worker solves for its users, given the rows of the items that they have
 * rated, which it pulls as they arrive; in the second for the items that are its own, given the rows of their users.
 * For that the ratings are held twice: by user as the data have them, and by item, exchanged once at the start: items
 * are cut into as many ranges as there are workers, with as much work in each.
 *
 * Rows pulled are kept for the clock in an arena of bounded memory, so that each is pulled once; where they do not all
 * fit, the rows to solve for are cut into batches that are done one after the other, two arenas taking turns: while the
 * rows of one batch arrive, the batch before is solved.
 *
 * A row can be solved for when all that it needs is here, and before nearly everything has come that is true of nearly
 * none. So while rows arrive, sums of equations are begun: those of the rows with most ratings, for as many as memory
 * allows, each some times with what has come meanwhile, so long as that is worth fetching its sums from memory. How
 * long to compute between two looks at the network is adapted to how long one had to wait for it: over memory that is
 * shared there is no waiting, and everything is solved at once when all is here.
 */
#ifndef TR_MODEL_MF_ALS_H
#define TR_MODEL_MF_ALS_H

#include "mf.h"
#include "solve.h"

/* Rows of the own side that are solved together: turns first .. end - 1, and which rows of the other side they need. */
struct tr_als_batch {
    size_t first, end, n;
    uint32_t *place; /* n places in side->keys, ascending */
};

/* One direction: the rows that this worker solves for, and their ratings by rows of the other side. */
struct tr_als_side {
    enum tr_mf_side which;
    tr_table *own, *from;
    tr_view *view;         /* of its own rows: value holds what they are */
    size_t n;              /* rows of its own … */
    const tr_key *number;  /* … their numbers … */
    const uint64_t *begin; /* … and ratings */
    const uint32_t *other; /* by rating: its place in keys … */
    const float *value;    /* … and the rating; NULL: all are 1 */
    const tr_key *keys;    /* numbers of the other side, ascending; perhaps more than needed */
    size_t n_keys;
    uint32_t *turn; /* its own rows in the order in which they are solved */
    struct tr_als_batch *batch;
    size_t batches, largest; /* rows that a batch needs at most */
    tr_table *gram_table;    /* implicit: Σ v vᵀ over all rows of the own side … */
    tr_view *gram;
    double *gram_mine; /* … and over this worker's, as pushed last */
    double loss;       /* of its own rows, when they were solved last */
    double quantum;    /* seconds to compute between two looks at what arrives: what was right last */
};

/* Rows of the other side while a clock computes, and how far the batch is for which they are. */
struct tr_als_arena {
    const struct tr_als_batch *batch;
    tr_key *key;     /* of each row: its number … */
    uint32_t *order; /* … and how many rows had come before it; NOT_HERE before */
    uint32_t *slot; /* of every place in side->keys: which of the rows it is; of those not needed, anything */
    float *row, *bias;
    size_t arrived; /* rows that have come */
    size_t solved;  /* turns before this one are */
};

/* What it may take. */
struct tr_als_limits {
    size_t arena_bytes; /* rows of the other side that are kept */
    size_t sums_bytes;  /* equations begun while rows arrive */
    double worth;       /* ratings for which it pays to add to a row's sums */
    double quantum;     /* seconds to compute at least between two looks at what arrives; usually 0 */
};

struct tr_mf_als {
    struct tr_mf *m;
    struct tr_als_limits limits;
    struct tr_solver *solver;
    struct tr_als_side side[2]; /* by enum tr_mf_side */
    struct tr_mf_lists by_item;
    tr_key *item_number;
    bool ahead;          /* rows are under way, from other nodes, while others are worked on */
    size_t stride;       /* floats of a row in an arena */
    const float **other; /* some ratings of a row: their rows … */
    float *target;       /* … and targets */
    float *x;            /* a row */
    double *gram;        /* implicit: this worker's share of a sum, and the changes of it */

    /* while a clock computes */
    struct tr_als_side *now;
    struct tr_als_arena arena[2], *filling, *ready; /* ready: all its rows are here; NULL: none */
    float *sums;                                    /* of rows begun, and of one more */
    uint32_t *begun_at; /* of each: rows that had come when its sums were added to last */
    size_t begun, begun_most, next_begun;
    double left_at;                /* when the last row was done with */
    double waited;                 /* for rows, since the last look */
    double answered_at;            /* when others were answered last */
    size_t until_look, look_every; /* rows */
};

enum { TR_ALS_CHUNK = 1024 /* ratings that are looked up at a time: room in other and target */ };

/* tr_mf_als_train() with limits, NULL for the usual ones: all ranks. */
int tr_als_train(struct tr_mf *m, const struct tr_als_limits *limits);

/* Solves all rows of the side als->now: the view's delta has the changes then, which are not pushed yet, and the side
 * has its loss. first_clock: the other side has its first values, which nobody has pushed. */
int tr_als_solve_side(struct tr_mf_als *als, bool first_clock);

#endif

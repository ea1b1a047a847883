/* Alternating least squares: declarations shared by als.c and tests.
 *
 * A sweep is two clocks. In the first each worker solves for its users, given the rows of the items that they rated; in the
 * second for its items, given the rows of their users. Ratings are stored twice: by user as in the data, and by item,
 * exchanged once at the start. Each worker owns a range of items with a similar amount of work.
 *
 * Pulled rows stay in an arena of bounded memory for the clock, so that each is pulled once. If they do not all fit, the rows
 * to solve for are divided into batches. Two arenas alternate: while the rows of one batch arrive, the previous batch is
 * solved.
 *
 * A row can be solved when all rows that it needs have arrived, which for most rows is near the end. Therefore the sums of the
 * normal equations are accumulated while rows arrive: for the rows with the most ratings that fit into memory, each a few
 * times, if enough has arrived to be worth loading its sums. The time of computation between two polls adapts to
 * the time spent waiting: with shared memory there is no waiting, and everything is solved once all rows are there.
 */
#ifndef TR_MODEL_MF_ALS_H
#define TR_MODEL_MF_ALS_H

#include "mf.h"
#include "solve.h"

/* Rows of the own side that are solved together, side->turn[first .. end - 1], and the rows of the other side that they
 * need. */
struct tr_als_batch {
    size_t first, end, n;
    uint32_t *place; /* n indices into side->keys, ascending */
};

/* One direction: the rows that this worker solves for, and their ratings. */
struct tr_als_side {
    enum tr_mf_side which;
    tr_table *own, *from;
    tr_view *view;         /* own rows; view->value contains them */
    size_t n;              /* number of own rows */
    const tr_key *number;  /* their numbers */
    const uint64_t *begin; /* own row i has the ratings begin[i] .. begin[i + 1] - 1 */
    const uint32_t *other; /* per rating: index into keys */
    const float *value;    /* per rating: the rating; NULL: all are 1 */
    const tr_key *keys;    /* numbers of the other side, ascending; may include unused ones */
    size_t n_keys;
    uint32_t *turn; /* own rows in the order of solving */
    struct tr_als_batch *batch;
    size_t batches, largest; /* number of batches; maximum number of rows that a batch needs */
    tr_table *gram_table;    /* implicit: Σ v vᵀ over all rows of the own side */
    tr_view *gram;
    double *gram_mine; /* implicit: the part of this worker's rows that was pushed */
    double loss;       /* loss of the own rows when they were last solved */
    double quantum;    /* seconds of computation between two polls, adapted */
};

/* Rows of the other side for a batch, and the progress of the batch. */
struct tr_als_arena {
    const struct tr_als_batch *batch;
    tr_key *key;     /* numbers of the rows */
    uint32_t *order; /* position of each row in the order of arrival; NOT_HERE before */
    uint32_t *slot;  /* for every index into side->keys: index of the row here; undefined for unused keys */
    float *row, *bias;
    size_t arrived; /* number of rows that have arrived */
    size_t solved;  /* next element of side->turn to solve */
};

/* Limits of memory and computation. */
struct tr_als_limits {
    size_t arena_bytes; /* memory for rows of the other side */
    size_t sums_bytes;  /* memory for sums that are accumulated while rows arrive */
    double worth;       /* minimum number of ratings that are added to the sums of a row at a time */
    double quantum;     /* minimum seconds of computation between two polls; default 0 */
};

struct tr_mf_als {
    struct tr_mf *m;
    struct tr_als_limits limits;
    struct tr_solver *solver;
    struct tr_als_side side[2]; /* by enum tr_mf_side */
    struct tr_mf_lists by_item;
    tr_key *item_number;
    bool ahead;          /* rows arrive from other nodes during computation */
    size_t stride;       /* floats per row in an arena */
    const float **other; /* scratch: rows of some ratings */
    float *target;       /* scratch: targets of these ratings */
    float *x;            /* scratch: one row */
    double *gram;        /* implicit: this worker's part of the sum */

    /* state of a clock */
    struct tr_als_side *now;
    struct tr_als_arena arena[2], *filling, *ready; /* ready: all of its rows have arrived; NULL: none */
    float *sums;                                    /* sums of begun_most rows and of one more */
    uint32_t *begun_at;                   /* arena->arrived when the sums of the row were last extended */
    size_t begun, begun_most, next_begun; /* rows with sums; their maximum number; next row to extend */
    double left_at;                       /* time when the last row was processed */
    double waited;                        /* seconds of waiting for rows since the last poll */
    double answered_at;                   /* time when requests of other ranks were last answered */
    size_t until_look, look_every;        /* rows until the next poll; rows between two polls */
};

enum { TR_ALS_CHUNK = 1024 /* number of ratings that are processed at a time */ };

/* tr_mf_als_train() with limits; NULL: the defaults. All ranks. */
int tr_als_train(struct tr_mf *m, const struct tr_als_limits *limits);

#endif

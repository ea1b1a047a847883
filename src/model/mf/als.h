/* Alternating least squares on tables: what als.c is made of, for tests and measurements.
 *
 * A sweep is two clocks. In the first each worker solves for its users, given the rows of the items that they have
 * rated, which it pulls as they arrive; in the second for the items that are its own, given the rows of their users.
 * For that the ratings are held twice: by user as the data have them, and by item, exchanged once at the start: items
 * are cut into as many ranges as there are workers, with as much work in each.
 *
 * Rows pulled are kept for the clock in an arena of bounded memory, so that each is pulled once; where they do not all
 * fit, the rows to solve for are cut into batches that are done one after the other, two arenas taking turns: while the
 * rows of one batch arrive, the batch before is solved. While the rows of the first arrive, the sums of its equations
 * are begun with those that are there, for as many rows as memory allows: each is visited once before all has come, and
 * once after. How long to compute between two looks at the network is adapted to how long one had to wait for it.
 */
#ifndef TR_MODEL_MF_ALS_H
#define TR_MODEL_MF_ALS_H

#include "model/mf/mf.h"
#include "model/mf/solve.h"

/* Pulled rows of the other side, by slot in the order of keys. */
struct tr_als_arena {
    size_t first, end; /* rows of the batch that they are for … */
    size_t solved;     /* … of which those before are solved */
    size_t begun;      /* … and those before have sums, of what had come by then */
    size_t n, arrived;
    tr_key *keys;      /* n, ascending: which rows */
    uint32_t *slot;    /* of every number of side->keys: its slot; others' are not to be read */
    uint32_t *order;   /* of every slot: how many rows had come before; UINT32_MAX: not here yet */
    float *row;        /* room × stride */
    float *bias;       /* room */
    uint32_t *begun_at; /* of the rows with sums: rows that had come */
};

/* One direction: the rows that are solved for by this worker, and their ratings by rows of the other side. */
struct tr_als_side {
    enum tr_mf_side which;
    tr_table *own, *from;
    tr_view *view;           /* of its own rows: value holds what they are */
    size_t n;                /* rows of its own */
    const tr_key *number;    /* … their numbers */
    const uint64_t *begin;   /* … and ratings, n + 1 */
    const uint32_t *other;   /* by rating: place in keys */
    const float *value;      /* NULL: all are 1 */
    const tr_key *keys;      /* numbers of the other side, ascending; more than needed where a group shares them */
    size_t n_keys;
    size_t most;             /* ratings of one row */
    size_t *batch, batches;  /* batch b: rows batch[b] .. batch[b + 1] - 1 */
    size_t room;             /* slots that its batches need */
    tr_table *gram_table;    /* implicit: Σ v vᵀ of all rows on the own side */
    tr_view *gram;
    double *gram_sum;        /* … of this worker's, as far as pushed */
    double loss, penalty;    /* after solving: of the own rows */
};

/* What it may take. */
struct tr_als_limits {
    size_t arena_bytes; /* of rows kept */
    size_t sums_bytes;  /* of equations begun while rows arrive */
};

struct tr_mf_als {
    struct tr_mf *m;
    struct tr_als_limits limits;
    struct tr_solver *solver;
    struct tr_als_side side[2]; /* by enum tr_mf_side */
    struct tr_als_arena arena[2];
    size_t stride;              /* floats of a row in an arena */
    size_t sums_room;           /* rows that can be begun */
    float *sums;                /* theirs, and of one more */
    const float **other;        /* of one row's ratings */
    float *target;
    uint64_t *begin_memory;     /* what the items' side owns */
    uint32_t *other_memory;
    float *value_memory;
    tr_key *number_memory, *keys_memory;

    /* while a clock computes */
    struct tr_als_side *now;
    struct tr_als_arena *filling, *ready; /* ready: NULL, or all of it is here */
    double quantum;                       /* seconds to compute between two requests' worth of rows */
    double left_at;                       /* when the last row was done with … */
    double waited;                        /* … and how long was waited since the last look */
    size_t until_look;                    /* rows to come before the next */
    size_t look_every;
    double meanwhile_at;                  /* when others were last answered */

    struct tr_als_test *test; /* test ratings by item */

    /* seconds of this worker since the stage began, for measurements */
    double solve_seconds, arrive_seconds; /* solving; of it while rows were under way */
};

/* The parts of tr_mf_als_train(), for a test that looks at them. */
int tr_als_new(struct tr_mf *m, const struct tr_als_limits *limits, struct tr_mf_als **als);

#endif

/* Stochastic gradient descent on tables: what sgd.c is made of, for its tests.
 *
 * A clock is a full rotation (M4) on one part of the users: in its round r, slave i has block (i + r) mod K of the
 * items and steps on what its users of the part have rated there, so that no two slaves touch a row at once and every
 * rating is trained on once an epoch. Users' factors stay with their worker until the end. Between groups a block's
 * rows are what the table "items" has at the clock's start, and their change is added to it at its end; with one
 * group the block is what counts, and the table follows.
 *
 * A clock may have several such rotations, each on some of the part's users: what users and items learn from each other
 * gets round sooner, at the price of shorter rounds.
 *
 * Ratings are trained on as (r - average) / spread: the same rates suit all scales. Biases begin at shrunk means, which
 * leaves little but the factors to be learnt. Rates fall to 0 at the end, as (1 - part of the clocks done)^0.7: that
 * takes fewer epochs to the same error than any constant rate, by half and more. With adagrad a row's rate
 * is also divided by the root of the mean squares of its gradients so far (Chin et al., A learning-rate schedule for
 * stochastic gradient methods to matrix factorization, 2015: here a sum a row).
 */
#ifndef TR_MODEL_MF_SGD_H
#define TR_MODEL_MF_SGD_H

#include "model/mf/cut.h"
#include "model/mf/meet.h"
#include "model/mf/mf.h"
#include "trireme/rotation.h"

struct tr_mf_sgd {
    struct tr_mf *m;
    bool adagrad, plain_l2; /* plain_l2: model.l2_weighted no */
    bool con;               /* sync.weight con: what groups push is averaged */
    size_t blocks, parts;   /* clocks of an epoch: parts … */
    size_t turns;           /* … and rotations of a clock */
    size_t pad;             /* floats of a row */
    double factor, bias;    /* what a factor and a bias are in the tables, if they are 1 here */
    uint64_t *first_item;   /* of each block, and behind the last */
    float *user_start,
        *item_start; /* first biases of the users, and of the items of the first block; or NULL */
    tr_rotation *rotation;
    struct tr_mf_cut cut;
    float *memory, *spare; /* of the users; a row */
    struct tr_mf_rows user;
    tr_view *items; /* of the block that this worker has in the last round */
    tr_view *users; /* after training */
    tr_key *keys;   /* of the block that it has in the first */

    double squares; /* of the clocks of this epoch … */
    double ratings; /* … and how many */

    /* Where the run goes on from a checkpoint: the clock that it goes on with, and how many groups there were. With one
     * group blocks are ahead of the table; several are put together by the table alone. */
    int64_t first_clock, groups_before;

    struct tr_mf_met test;
    tr_view *test_items;
};

/* Workers, together, before the first clock: first_item, and with biases the starts. */
int tr_mf_sgd_plan(struct tr_mf_sgd *sgd, tr_worker *me);

/* Rows of a block, what they were before the clock, and how many there are. */
struct tr_mf_rows tr_mf_sgd_rows_in(const struct tr_mf_sgd *sgd, float *memory, size_t n, float **before);
size_t tr_mf_sgd_items_of(const struct tr_mf_sgd *sgd, size_t block);

/* What is kept of training. */
int tr_mf_sgd_keep(tr_worker *me, void *mf, tr_snapshot *snapshot);

#endif

/* Linear models (M31): one table "w" of a weight per feature, and one for the bias where there is one.
 */
#ifndef TR_LINEAR_H
#define TR_LINEAR_H

#include "job/job.h"
#include "model/linear/pass.h"
#include "trireme/trireme.h"

struct tr_linear {
    tr_context *tr;
    const tr_job *job;
    tr_data *train, *test; /* test: NULL without data.test */
    tr_table *w, *count;   /* count: rows that have a feature, for SGD's regularisation */
    double l2;
    int64_t iterations, clocks_per_epoch; /* mini-batches and clocks of one epoch */
    int64_t every;                        /* mini-batches of one clock */

    /* a worker's */
    struct tr_problem problem, test_problem;
    float *target, *test_target;
    tr_view *view, *test_view, *count_view;
    struct tr_linear_variance *variance; /* svrg, svrg++, katyusha */
    struct tr_linear_growing *growing;
    tr_view *fresh_view;           /* sync.pull stale: what is evaluated */
    uint32_t *order;               /* rows in this epoch's order */
    float *dual, *norm;            /* dual: a of each row, and |x|² */
    float *reg;                    /* sgd: λ n / rows that have the feature, over a mini-batch's rows */
    size_t first_row, end_row;     /* sgd: those of the problem that are its part */
    uint32_t *batch;               /* sgd: this epoch's order of mini-batches */
    int64_t ordered;               /* epochs for which order or batch was made: one more than its number */
    double *margin;                /* of some rows */
    struct tr_optimizer optimizer; /* sgd, if not the plain one … */
    void *gradient, *packed, *state; /* … at the worker: of a mini-batch, by key; of its keys; its memory … */
    uint32_t *touched;               /* … and the keys that a mini-batch has */
    bool *is_touched;

    /* the scheduler's */
    tr_evaluation last; /* the latest evaluation */
    double usual;       /* objective of the first, or of weights of zero if that is higher; 0 before */
};

#endif

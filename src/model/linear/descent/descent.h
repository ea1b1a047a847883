/* What descent keeps: solve.method descent, and its path of penalties. */
#ifndef TR_LINEAR_DESCENT_H
#define TR_LINEAR_DESCENT_H

#include "blocks.h"
#include "../columns.h"
#include "../linear.h"

/* Where the weights stand, over all workers. Everything is in sums over the rows, not means. */
struct tr_descent_point {
    double loss, slope, curve;           /* Σ of the rows' */
    double absolutes, squares, nonzeros; /* of the weights */
    double excess;                       /* Σ max(0, |gradient| - alpha)², of the loss alone */
    double greatest;                     /* |gradient|, of the loss alone */
    double violation;                    /* the most that an optimality condition fails by */
};

/* Columns that steps change: the same at all workers. */
struct tr_descent_set {
    size_t n, capacity;
    tr_key *key;
    double *weight, *next; /* before the step, and after it */
    uint32_t *column;      /* in this worker's rows; UINT32_MAX: in none of them */
    uint32_t *slot;        /* in this worker's vectors; UINT32_MAX: there it is not */
    size_t blocks, block_capacity;
    struct tr_column_block *block; /* of them, in their order */
};

/* A penalty of the path that is done. */
struct tr_descent_value {
    double alpha, nonzeros, objective, gap, metric;
};

/* The weights that the test data like best of those on the path. */
struct tr_descent_best {
    double metric, objective, dual, bias, nonzeros;
    size_t n, value; /* weights that are not 0, and their penalty's number */
    tr_key *key;
    double *weight;
};

/* Of solve.folds: folds.c. */
struct tr_descent_folds {
    size_t n, lap;        /* 0: there are none. Which fold is held out; in the last lap, n, none */
    uint32_t *of;         /* the fold of each of this worker's rows */
    float *weight;        /* of these rows, 0 of those that are held out */
    double *share;        /* of all rows' weights, what each lap learns from */
    double *told;         /* what the folds make of each penalty */
    size_t least, chosen; /* penalties: of the least loss; of the model */
};

/* A penalty, and the loss of rows that were held out: the mean over the folds, and its standard error. */
struct tr_descent_worth {
    double l1, nonzeros, loss, error;
};

struct tr_linear_descent {
    double alpha, l2, bias_l2; /* times the weight of the rows that are learnt from … */
    double share;              /* … which are this part of all */
    struct tr_descent_folds folds;

    /* a worker's */
    struct tr_descent_rows rows;  /* with the columns that may leave 0 */
    tr_key *key;                  /* of these columns */
    double *margin, *all_margins; /* of its rows; of the rows that its group has */
    size_t first_row;             /* of them, among the group's */
    const float *target;
    const float *row_weight;            /* NULL: all 1 */
    struct tr_row_model *model, *probe; /* probe: of conjugate gradients */
    double *partial;                    /* Σ over its rows, for each of the columns */
    struct tr_columns shared; /* to sum them up: vectors that it has of all columns, or of a range of them */
    double *gradient, *weight, *entries;
    bool *working;  /* in the set */
    uint32_t *mine; /* columns that it alone speaks for and that may leave 0: places in these vectors */
    size_t n_mine;
    struct tr_descent_set set;
    double bias, bias_move, bias_gradient;
    struct tr_descent_point at;
    double dual;            /* the best so far for this alpha */
    bool known;             /* `at` and the gradient are those of the weights */
    double margin_of_zeros; /* columns of weight 0 whose gradient is that close to alpha are in the set */
    int steps;              /* at this penalty */
    double passes;          /* over the non-zeros; the gradient at the current weights belongs to the next step */
    double most_passes;     /* the maximum: solve.epochs, of a path for each penalty and fold */
    double lacking;         /* the number of passes after the next step, if that is above the maximum; else 0 */
    tr_view *view;          /* of w: the columns that it owns, and the bias at the last worker */
    tr_view *initial;       /* model.init: … those of its rows, and the bias */

    /* the path (path.c): how many penalties, from which on, and which one it is at */
    size_t values, value;
    double first_alpha;
    struct tr_descent_best best; /* by the test data */
    bool told;                   /* the penalty is done, and known to be: the next one may begin */
    bool chosen;                 /* the weights are the best ones: nothing is left to do */

    /* the scheduler's */
    double nonzeros, all_passes;
    struct tr_descent_value *done;
};

/* What one of this worker's rows counts. */
static inline double tr_descent_weight(const struct tr_linear_descent *d, size_t i)
{
    return d->row_weight ? (double)d->row_weight[i] : 1;
}

/* Place of a column in this worker's vectors, or UINT32_MAX. */
static inline uint32_t tr_descent_slot(const struct tr_linear_descent *d, tr_key key)
{
    bool here = key >= d->shared.first && key - d->shared.first < d->shared.n;
    return here ? (uint32_t)(key - d->shared.first) : UINT32_MAX;
}

/* All workers: the columns that may leave 0, this worker's rows of them, and what is needed to sum over workers. The slopes
 * of the rows are in the model, `at` has the sums of this worker's. Sets the first penalty of a path. screen.c */
int tr_descent_find_columns(struct tr_linear *m);

/* ---- where the weights stand: point.c; workers, all of them where a status is returned ---- */

static inline int tr_descent_sum(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, values, n);
}

static inline int tr_descent_greatest(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, values, n);
}

/* Fills the rows' models; the sums are over this worker's rows. */
void tr_descent_model_rows(const struct tr_linear *m, struct tr_descent_point *at);

/* Brings the bias to its minimum, and the margins with it. */
int tr_descent_minimise_bias(struct tr_linear *m);

/* Finds the gradient and what `at` and `dual` are of it; and where just the penalty is another one, these alone. */
int tr_descent_look(struct tr_linear *m);
int tr_descent_look_at_penalty(struct tr_linear *m);

double tr_descent_objective(const struct tr_linear_descent *d);
double tr_descent_gap(const struct tr_linear_descent *d);

/* ---- the set of columns that steps change: set.c ---- */

/* All workers: adds to the set what matters by now. It is made anew where most of what its blocks hold does not matter any
 * more, and where one block will do. */
int tr_descent_choose_columns(struct tr_linear *m);

/* Adds columns at the end of the set; takes all from it. */
int tr_descent_add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n);
void tr_descent_clear_set(struct tr_linear_descent *d);

/* ---- a step: step.c ---- */

int tr_descent_step(struct tr_linear *m); /* all workers */

/* What a pass over the set's entries counts for beside one over all. */
double tr_descent_pass(const struct tr_linear_descent *d);

/* All workers, within a step: conjugate gradients over the columns that are not 0. support.c */
int tr_descent_follow_support(struct tr_linear *m);

/* ---- the path of penalties: path.c ---- */

/* Penalty i times the rows; of a job without a path the one that there is. */
double tr_descent_alpha(const struct tr_linear *m, size_t i);

/* Workers: remembers the weights of a penalty that is done if the test data, whose report this is, like them best; in the
 * end these are what is learnt. */
int tr_descent_compare(struct tr_linear *m, const tr_report *report);
void tr_descent_choose(struct tr_linear *m);

/* The scheduler: a penalty is done, number `value`; and in the end writes all to path.csv. */
void tr_descent_add(struct tr_linear *m, size_t value, double alpha, double nonzeros,
                    const tr_evaluation *evaluation);
int tr_descent_write_path(const struct tr_linear *m);

/* ---- folds, which choose among these penalties: folds.c ---- */

int tr_descent_make_folds(struct tr_descent_folds *folds, size_t n, size_t values);
void tr_descent_close_folds(struct tr_descent_folds *folds);

/* All workers: deals the rows to the folds; and, for the lap at hand, gives the held out ones a weight of 0. */
int tr_descent_open_folds(const tr_worker *me, struct tr_linear *m);
void tr_descent_hold_out(struct tr_linear *m);

/* All workers: the penalty is done, what do the held out rows say? And after the laps over all folds: which one is it? */
int tr_descent_judge(struct tr_linear *m);
void tr_descent_choose_value(struct tr_descent_folds *folds, size_t values);

/* All ranks, after training: says what was found. Then the scheduler can ask for it. */
int tr_descent_tell_folds(struct tr_linear *m);
struct tr_descent_worth tr_descent_worth(const struct tr_descent_folds *folds, size_t value);

int tr_descent_keep_folds(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot);

/* For the snapshot function. */
int tr_descent_keep_path(tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot);

#endif

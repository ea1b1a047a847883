/* State of solve.method descent (descent.c), and its steps (step.c). */
#ifndef TR_LINEAR_DESCENT_H
#define TR_LINEAR_DESCENT_H

#include "blocks.h"
#include "../columns.h"
#include "../linear.h"

/* Loss, gradient and penalties at the current weights, over all workers. All values are sums over rows, not means. */
struct tr_descent_point {
    double loss, slope, curve; /* Σ of the rows */
    double terms;              /* Σ |loss| + |slope · margin|, for the rounding error */
    double drift;              /* Σ |slope| · error of the margin, which steps add to in single precision */
    double absolutes, squares, nonzeros; /* of the weights: Σ |w|, Σ w², number of non-zero weights */
    double excess;                       /* Σ max(0, |gradient| - alpha)², gradient of the loss alone */
    double greatest;                     /* max |gradient|, gradient of the loss alone */
    double violation;                    /* largest violation of an optimality condition */
};

/* The working set: columns that steps change. All workers have the same set. */
struct tr_descent_set {
    size_t n, capacity;
    tr_key *key;
    double *weight, *next; /* before and after the step */
    uint32_t *column;      /* local column id; UINT32_MAX: no row of this worker has the column */
    uint32_t *slot;        /* index in this worker's vectors; UINT32_MAX: not in them */
    size_t blocks, block_capacity;
    struct tr_column_block *block; /* of these columns, in the same order */
};

/* Result of one penalty of the path. */
struct tr_descent_value {
    double alpha, nonzeros, objective, gap, metric;
};

/* The weights of the penalty with the best test metric. */
struct tr_descent_best {
    double metric, objective, distance, bias, nonzeros;
    size_t n;     /* number of non-zero weights */
    size_t value; /* index of the penalty + 1; 0: none yet */
    tr_key *key;
    double *weight;
};

/* Cross-validation, solve.folds. */
struct tr_descent_folds {
    size_t n;             /* number of folds; 0: no cross-validation */
    size_t lap;           /* fold that is held out; n: none, the final lap */
    uint32_t *of;         /* fold of each row of this worker */
    float *weight;        /* of these rows; 0 for held-out rows */
    double *share;        /* share of the total weight that each lap is trained on */
    double *told;         /* for each penalty: loss of each fold, non-zeros of each fold, model.l1 */
    size_t least, chosen; /* index of the penalty with the least loss; of the penalty of the model */
};

struct tr_linear_descent {
    double alpha, l2, bias_l2; /* penalties times the weight of the training rows */
    double share;              /* share of the total weight that these rows have */
    struct tr_descent_folds folds;

    /* Worker. */
    struct tr_descent_rows rows;  /* with the columns that can leave 0 */
    tr_key *key;                  /* of these columns */
    double *margin, *all_margins; /* of this worker's rows; of all rows of its group */
    size_t first_row;             /* index of its first row in the group */
    const float *target;
    const float *row_weight;            /* NULL: all 1 */
    struct tr_row_model *model, *probe; /* probe: of conjugate gradients */
    double *partial;                    /* gradient of its own rows, by columns */
    struct tr_columns shared; /* sums vectors over the workers; the vectors hold all columns or a range */
    double *gradient, *weight, *entries;
    bool *working;  /* whether the column is in the set */
    uint32_t *mine; /* columns that only this worker reports and that can leave 0: indices of these vectors */
    size_t n_mine;
    struct tr_descent_set set;
    double bias, bias_move, bias_gradient;
    double
        project[2]; /* factors of negative and positive slopes that make them a dual point: they sum to 0 */
    double drift;   /* Σ over the rows of this worker since the margins were computed from the weights */
    double
        zeros_loss; /* objective of weights of zero, an upper bound of the loss, on which the choice of columns is based */
    struct tr_descent_point at;
    double dual;            /* largest dual value for this alpha so far */
    bool known;             /* `at` and `gradient` belong to the current weights */
    double margin_of_zeros; /* columns of weight 0 with |gradient| > alpha - margin_of_zeros are in the set */
    int steps;              /* taken at this penalty */
    double passes;      /* over the non-zeros. The gradient at the current weights belongs to the next step */
    double most_passes; /* maximum: solve.epochs, times the number of penalties and folds of a path */
    double lacking;     /* number of passes after the next step, if that is above the maximum; else 0 */
    tr_view *view;      /* of w: the columns that it owns; at the last worker also the bias */
    tr_view *initial;   /* model.init: the columns of its rows, and the bias */

    /* Path of penalties. */
    size_t values, value; /* number of penalties; index of the current one */
    double first_alpha;
    struct tr_descent_best best;
    bool told;   /* the current penalty was reported; the next one may start */
    bool chosen; /* the weights are the best ones: training is complete */

    /* Scheduler. */
    double nonzeros, all_passes;
    struct tr_descent_value *done; /* by penalties */
};

/* Weight of a row of this worker. */
static inline double tr_descent_weight(const struct tr_linear_descent *d, size_t i)
{
    return d->row_weight ? (double)d->row_weight[i] : 1;
}

/* Returns the index of a column in this worker's vectors, or UINT32_MAX. */
static inline uint32_t tr_descent_slot(const struct tr_linear_descent *d, tr_key key)
{
    bool here = key >= d->shared.first && key - d->shared.first < d->shared.n;
    return here ? (uint32_t)(key - d->shared.first) : UINT32_MAX;
}

/* ---- step.c: called by workers; functions that return a status are collective over all workers ---- */

/* Fills the model of each row; at->loss, slope and curve are sums over this worker's rows. The slopes are a dual point: those of an
 * unpenalised bias sum to 0. */
int tr_descent_model_rows(struct tr_linear *m);

/* Minimises over the bias and updates the margins. */
int tr_descent_minimise_bias(struct tr_linear *m);

/* Computes the gradient, `at` and `dual` at the current weights. The second function reuses the gradient: only the penalty
 * has changed. */
int tr_descent_look(struct tr_linear *m);
int tr_descent_look_at_penalty(struct tr_linear *m);

/* The objective; a bound of its distance from the optimum, with rounding errors; and this relative to the optimum. */
double tr_descent_objective(const struct tr_linear_descent *d);
double tr_descent_distance(const struct tr_linear_descent *d);
double tr_descent_gap(const struct tr_linear_descent *d);

/* Computes the margins of the rows from the weights of the set: of all rows, or of those with NaN. */
int tr_descent_find_margins(struct tr_linear_descent *d, bool all);

/* Appends columns to the working set; empties the set. */
int tr_descent_add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n);
void tr_descent_clear_set(struct tr_linear_descent *d);

/* Takes a step, unless it would exceed the maximum number of passes: then d->lacking is set. */
int tr_descent_step(struct tr_linear *m);

#endif

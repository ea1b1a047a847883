/* State of solve.method descent (descent.c), and its steps (step.c). slope and curve are the first and second derivative of a row's
 * loss by its margin, times the weight of the row. alpha is the factor of |w|₁. descent.c explains path, fold and lap. */
#ifndef TR_LINEAR_DESCENT_H
#define TR_LINEAR_DESCENT_H

#include "../linear.h"

/* ---- blocks of columns, and the minimum of the quadratic model over one block ----
 *
 * Plain coordinate descent visits one column at a time. If the rows are distributed, each column needs a sum over all workers. A
 * block of columns needs only two sums: its gradient and its Gram matrix. With these, every worker minimises over the block by the
 * same steps of coordinate descent, so the result does not depend on the number of workers. */

enum { TR_BLOCK_COLUMNS = 256 };

/* The rows of this worker, as sparse rows. A column is an index of tr_linear_descent.key. */
struct tr_descent_rows {
    size_t n, columns;
    uint64_t *begin; /* row i has the entries begin[i] .. begin[i + 1] - 1 */
    const uint32_t *column;
    const float *value;
    uint32_t *entries; /* number of entries of each column */
    /* memory of `column` and `value` if they are copies of the rows of the data; otherwise NULL */
    uint32_t *own_column;
    float *own_value;
};

/* The quadratic model of a row's loss as a function of its margin. move: change of the margin in the current step so far. */
struct tr_row_model {
    double slope;
    float curve, move;
};

/* The entries of up to TR_BLOCK_COLUMNS columns, stored by rows. */
struct tr_column_block {
    size_t n;        /* number of columns */
    size_t rows;     /* number of rows with at least one entry */
    uint32_t *row;   /* index of each of these rows */
    uint64_t *begin; /* entries begin[i] .. begin[i + 1] - 1 belong to the i-th of these rows */
    uint8_t *column; /* for each entry, the index of its column in the block */
    float *value;    /* value of each entry */
    float *gram; /* (n + 1) × (n + 1); the last row and column belong to the bias, which is 1 in all rows */
};

/* Copies columns into blocks of TR_BLOCK_COLUMNS columns; the last block may be smaller.
 *
 * @param [in]  columns  n columns in the order of the blocks; UINT32_MAX: no row of this worker has the column
 * @param [out] blocks   ceil(n / TR_BLOCK_COLUMNS) blocks, zeroed by the caller; free each with tr_block_free(), also after
 *                       an error
 */
int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks);
void tr_block_free(struct tr_column_block *block);

/* Returns the number of elements of the lower triangle of the Gram matrix. */
static inline size_t tr_block_triangle(const struct tr_column_block *block)
{
    return (block->n + 1) * (block->n + 2) / 2;
}

/* Computes Σ curve x xᵀ over the rows of this worker, where x are the values of a row in the block and 1. Overwrites block->gram.
 *
 * @param [out] triangle  lower triangle by rows, tr_block_triangle() elements. The last element is Σ curve over the rows with
 *                        entries in the block only
 */
void tr_block_products(const struct tr_column_block *block, const struct tr_row_model *model,
                       float *triangle);

/* Sets block->gram from a triangle that was summed over all workers.
 *
 * @param [in] all_rows_curve  diagonal element of the bias: Σ curve over all rows
 * @param [in] ridge           number to add to the diagonal elements of the columns
 */
void tr_block_set_gram(struct tr_column_block *block, const float *triangle, double all_rows_curve,
                       double ridge);

/* Sets gradient = Σ (slope + curve · move) x over the rows of this worker: the gradient of the model after the moves. */
void tr_block_gradient(const struct tr_column_block *block, const struct tr_row_model *model,
                       double *gradient);

/* Adds Σ change x to `move` of each row: the change of its margin when the weights of the block change. */
void tr_block_move(const struct tr_column_block *block, const double *change, struct tr_row_model *model);

/* A problem: minimise over x  gᵀ(x - x₀) + ½ (x - x₀)ᵀ G (x - x₀) + alpha Σ |x_j|, for a few hundred coordinates. */
struct tr_quadratic {
    size_t n, penalised; /* number of coordinates; the first `penalised` of them have the penalty */
    const float *gram;   /* G, n × n, with a positive diagonal */
    double alpha;
    double *x;        /* input: x₀; output: the x that minimises */
    double *gradient; /* input: g; output: gradient at the result, without the penalty */
    double *work;     /* scratch of 5 n elements */
};

/* Returns the x that minimises alpha |x| + ½ (x - value)². */
static inline double tr_soft_threshold(double value, double alpha)
{
    return value > alpha ? value - alpha : value < -alpha ? value + alpha : 0;
}

/* Minimises by sweeps of coordinate descent, which finds the coordinates that are 0. Between sweeps, conjugate gradients minimise
 * over the other coordinates until a coordinate changes its sign, because coordinate descent alone is slow for correlated columns.
 * Stops when a sweep changes no element of the gradient by more than `tolerance`, or after `sweeps` sweeps. Returns the largest
 * change of an element in the first sweep. */
double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps);

/* ---- the state ---- */

/* Loss, gradient and penalties at the current weights, over all workers: sums over rows (not means), followed by two maxima. The
 * gradient is that of the loss alone. */
struct tr_descent_point {
    double loss, slope, curve; /* Σ of the losses, slopes and curves of the rows */
    double terms;              /* Σ |loss| + |slope · margin|, for the rounding error */
    double drift;              /* Σ |slope| × (error of the margin due to steps in single precision) */
    double absolutes, squares, nonzeros; /* Σ |w|, Σ w², number of non-zero weights */
    double excess;                       /* Σ max(0, |gradient| - alpha)² over the columns */
    double greatest;                     /* max |gradient| */
    double violation;                    /* largest violation of an optimality condition */
};

/* The working set: the columns that steps change. All workers have the same set. */
struct tr_descent_set {
    size_t n, capacity;
    tr_key *key;
    double *weight, *next; /* weights before the step; weights that the step has found so far */
    /* index of each column in tr_linear_descent.key; UINT32_MAX: no row of this worker has it */
    uint32_t *column;
    uint32_t *slot; /* slot of each column of the set, see tr_descent_slot() */
    size_t blocks, block_capacity;
    struct tr_column_block *block; /* the columns of the set, in the same order */
};

/* Result for one penalty of the path. alpha: its model.l1; 0: there is no result. */
struct tr_descent_value {
    double alpha, nonzeros, objective, gap, metric;
};

/* The weights of the best penalty so far: with the best test metric, or the penalty that the folds have chosen. */
struct tr_descent_best {
    struct { /* saved in checkpoints */
        double metric, objective, distance, bias, nonzeros;
        double n;     /* number of elements of key and weight */
        double value; /* 1 + index of the penalty; 0: no penalty is complete yet */
    } of;
    tr_key *key;
    double *weight;
};

/* Cross-validation, solve.folds. */
struct tr_descent_folds {
    size_t n;             /* number of folds; 0: no cross-validation */
    size_t lap;           /* index of the current lap and of the fold that it holds out; n: the final lap */
    uint32_t *of;         /* fold of each row of this worker */
    float *weight;        /* weights of the rows of this worker; 0 for held-out rows */
    double *share;        /* [lap]: fraction of the total weight that the training rows have */
    double *results;      /* for each penalty: loss of each fold, non-zeros of each fold, model.l1 */
    size_t least, chosen; /* index of the penalty with the least loss; index of the penalty of the model */
};

struct tr_linear_descent {
    double alpha, l2, bias_l2; /* penalties, times the total weight of the training rows of this lap */
    double share;              /* fraction of the total weight that the training rows of this lap have */
    struct tr_descent_folds folds;

    /* The following members are used on workers. */
    struct tr_descent_rows rows;  /* rows of this worker, with the columns that can leave 0 */
    tr_key *key;                  /* keys of these columns, ascending */
    double *margin, *all_margins; /* margins of this worker's rows; margins of all rows of its group */
    /* index of this worker's first row in all_margins: margin = all_margins + first_row */
    size_t first_row;
    const float *target;     /* target of each row: ±1 or a number */
    const float *row_weight; /* weight of each row; NULL: all are 1 */
    const float *row_offset; /* offset of each row; NULL: all are 0 */
    /* model of each row; model with slope 0, for conjugate gradients */
    struct tr_row_model *model, *probe;
    /* gradient over this worker's rows, one element per column of `rows` */
    double *partial;
    /* distribution of the columns over workers; the next four members are such vectors */
    struct tr_columns shared;
    double *gradient, *weight, *entries;
    bool *working;  /* whether the column is in the working set */
    uint32_t *mine; /* slots of the columns that only this worker counts and pushes */
    size_t n_mine;
    struct tr_descent_set set;
    double bias, bias_move, bias_gradient; /* bias_move: its change in the current step so far */
    double project[2]; /* factors of negative and of positive slopes with which the slopes sum to 0 */
    double drift;      /* tr_descent_point.drift of this worker's rows since tr_descent_find_margins() */
    double zeros_loss; /* objective of zero weights, which bounds the loss of all later weights */
    struct tr_descent_point at;
    double dual;            /* largest dual value for this alpha so far */
    bool known;             /* the members `at` and `gradient` were computed at the current weights */
    double margin_of_zeros; /* columns of weight 0 with |gradient| > alpha - margin_of_zeros are in the set */
    int steps;              /* number of steps at this penalty */
    double passes; /* passes over the non-zeros so far; the last gradient is counted with the next step */
    double most_passes; /* maximum of passes: solve.epochs, times the penalties and laps of a path */
    double lacking;     /* number of passes after the next step if it exceeds most_passes; else 0 */
    tr_view *view;      /* view of w at the keys of `mine`; at the last worker also the bias */
    tr_view *initial;   /* model.init: view of w at `key`, and the bias; else NULL */

    /* members for the path of penalties */
    size_t values, value; /* number of penalties, 0 without a path; index of the current penalty */
    double first_alpha;   /* alpha of the first penalty for all rows */
    struct tr_descent_best best;
    bool reported; /* the current penalty was evaluated, so that the next penalty may start */
    bool chosen;   /* the weights are those of `best`: training is complete */

    /* The following members are used on the scheduler. */
    double nonzeros, all_passes;   /* sums of the last evaluation: number of non-zero weights, and passes */
    struct tr_descent_value *done; /* results of the penalties */
};

/* Returns the weight of a row of this worker. */
static inline double tr_descent_weight(const struct tr_linear_descent *d, size_t i)
{
    return d->row_weight ? (double)d->row_weight[i] : 1;
}

static inline double tr_descent_offset(const struct tr_linear_descent *d, size_t i)
{
    return d->row_offset ? (double)d->row_offset[i] : 0;
}

/* Returns the slot of a column: its index in gradient, weight, entries and working; UINT32_MAX: this worker does not have it. */
static inline uint32_t tr_descent_slot(const struct tr_linear_descent *d, tr_key key)
{
    bool here = key >= d->shared.first && key - d->shared.first < d->shared.n;
    return here ? (uint32_t)(key - d->shared.first) : UINT32_MAX;
}

/* ---- step.c: called by workers; functions that return a status are collective over all workers ---- */

/* Fills the model of each row. Sets at->loss, slope and curve to sums over this worker's rows. If the bias has no penalty, the
 * slopes of all rows are projected to sum to 0, as the dual requires. */
int tr_descent_model_rows(struct tr_linear *m);

/* Minimises the objective over the bias, and updates the margins. */
int tr_descent_minimise_bias(struct tr_linear *m);

/* Computes d->gradient, at and dual at the current weights. moved: the weights have changed since the last call; false: only the
 * penalty has changed. */
int tr_descent_look(struct tr_linear *m, bool moved);

/* Returns the objective at the last tr_descent_look(). */
double tr_descent_objective(const struct tr_linear_descent *d);

/* Returns an upper bound of the distance of the objective from the optimum, with rounding errors. */
double tr_descent_distance(const struct tr_linear_descent *d);

/* Returns the distance relative to a lower bound of the optimum. */
double tr_descent_gap(const struct tr_linear_descent *d);

/* Computes the margins of rows from the weights of the working set. If `all` is set, it computes them for all rows, otherwise only
 * for rows whose margin is NaN. */
int tr_descent_find_margins(struct tr_linear_descent *d, bool all);

/* Appends columns to the working set. */
int tr_descent_add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n);

/* Empties the working set. */
void tr_descent_clear_set(struct tr_linear_descent *d);

/* Takes a step, unless it would exceed the maximum number of passes: then only d->lacking is set. */
int tr_descent_step(struct tr_linear *m);

#endif

/* State of solve.method descent (descent.c), and its steps (step.c). */
#ifndef TR_LINEAR_DESCENT_H
#define TR_LINEAR_DESCENT_H

#include "../linear.h"

/* ---- blocks of columns, and the minimum of the quadratic model over one block ----
 *
 * Plain coordinate descent visits one column at a time. If the rows are distributed, each column needs a sum over all
 * workers. A block of columns needs one such sum for its gradient, and one for its Gram matrix. These suffice to minimise
 * over the block, so the steps are those of coordinate descent for any number of workers. */

enum { TR_BLOCK_COLUMNS = 256 };

/* Rows of this worker. Columns are local ids from 0. */
struct tr_descent_rows {
    size_t n, columns;
    uint64_t *begin; /* n + 1 */
    const uint32_t *column;
    const float *value;
    uint32_t *entries;    /* number of entries of each column */
    uint32_t *own_column; /* memory of `column` and `value` if they are copies; else NULL */
    float *own_value;
};

/* Second-order model of a row's loss as a function of its margin, and the movement of the margin so far. */
struct tr_row_model {
    double slope;
    float curve, move;
};

/* The entries of up to TR_BLOCK_COLUMNS columns, by rows. */
struct tr_column_block {
    size_t n;        /* columns */
    size_t rows;     /* rows with at least one entry */
    uint32_t *row;   /* index of each of these rows */
    uint64_t *begin; /* first entry of each of these rows: rows + 1 */
    uint8_t *column; /* of each entry: index in the block */
    float *value;    /* of each entry */
    float *gram; /* (n + 1) × (n + 1); the last row and column belong to the bias, which is 1 in all rows */
};

/* Copies columns into blocks of TR_BLOCK_COLUMNS columns; the last block may be smaller.
 *
 * @param [in]  columns  n local column ids in the order of the blocks; UINT32_MAX: no row of this worker has the column
 * @param [out] blocks   ceil(n / TR_BLOCK_COLUMNS) blocks, zeroed by the caller; free each with tr_block_free(), also after
 *                       an error
 */
int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks);
void tr_block_free(struct tr_column_block *block);

/* Number of elements of the lower triangle of the Gram matrix. */
static inline size_t tr_block_triangle(const struct tr_column_block *block)
{
    return (block->n + 1) * (block->n + 2) / 2;
}

/* Computes Σ curve x xᵀ over the rows of this worker. Overwrites block->gram.
 *
 * @param [out] triangle  lower triangle by rows, tr_block_triangle() elements. The last element, of the bias, sums over
 *                        the rows of the block only
 */
void tr_block_products(const struct tr_column_block *block, const struct tr_row_model *model,
                       float *triangle);

/* Sets block->gram from a triangle summed over all workers.
 *
 * @param [in] all_rows_curve  diagonal element of the bias
 * @param [in] ridge           added to the diagonal elements of the columns
 */
void tr_block_set_gram(struct tr_column_block *block, const float *triangle, double all_rows_curve,
                       double ridge);

/* gradient = Σ (slope + curve · move) x over the rows of this worker: the gradient at the moved margins. */
void tr_block_gradient(const struct tr_column_block *block, const struct tr_row_model *model,
                       double *gradient);

/* move += Σ change x for each row. */
void tr_block_move(const struct tr_column_block *block, const double *change, struct tr_row_model *model);

/* The problem: minimise over x  gᵀ(x - x₀) + ½ (x - x₀)ᵀ G (x - x₀) + alpha Σ |x_j|, for a few hundred coordinates. */
struct tr_quadratic {
    size_t n, penalised; /* coordinates; the first `penalised` ones have the penalty */
    const float *gram;   /* G, n × n, with a positive diagonal */
    double alpha;
    double *x;        /* in: x₀; out: the result */
    double *gradient; /* gradient of the smooth part at x; in: g */
    double *work;     /* 5 n elements */
};

/* Returns the x that minimises alpha |x| + ½ (x - value)². */
static inline double tr_soft_threshold(double value, double alpha)
{
    return value > alpha ? value - alpha : value < -alpha ? value + alpha : 0;
}

/* Minimises by coordinate descent, which finds the coordinates that are 0. Between sweeps, conjugate gradients minimise over
 * the other coordinates until one changes its sign, because coordinate descent alone is slow for correlated columns. Stops
 * when a sweep changes no gradient by more than `tolerance`, or after `sweeps` sweeps. Returns the largest change of a
 * gradient in the first sweep. */
double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps);

/* ---- the state ---- */

/* Loss, gradient and penalties at the current weights, over all workers. All values are sums over rows, not means. The
 * sums come first, followed by the two maxima. */
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
    struct { /* saved in checkpoints */
        double metric, objective, distance, bias, nonzeros;
        double n;     /* number of non-zero weights */
        double value; /* index of the penalty + 1; 0: none yet */
    } of;
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
        project[2]; /* factors of negative and positive slopes, which then are a dual point: they sum to 0 */
    double drift;   /* Σ over the rows of this worker since the margins were computed from the weights */
    double
        zeros_loss; /* objective of weights of zero: the bound of the loss that the choice of columns needs */
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

/* Computes the gradient, `at` and `dual` at the current weights. Without `moved` only the penalty has changed, and the gradient is
 * reused. */
int tr_descent_look(struct tr_linear *m, bool moved);

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

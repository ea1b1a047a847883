/* Blocks of columns for coordinate descent, and the minimum of the objective's quadratic model over one block.
 *
 * Plain coordinate descent visits one column at a time. If the rows are distributed, each column needs a sum over all
 * workers. A block of columns needs one such sum for its gradient, and one for its Gram matrix. These suffice to minimise
 * over the block, so the steps are those of coordinate descent for any number of workers.
 */
#ifndef TR_LINEAR_BLOCKS_H
#define TR_LINEAR_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

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

/* ---- the minimum over one block ---- */

/* The problem: minimise over x  gᵀ(x - x₀) + ½ (x - x₀)ᵀ G (x - x₀) + alpha Σ |x_j|, for a few hundred coordinates. */
struct tr_quadratic {
    size_t n, penalised; /* coordinates; the first `penalised` ones have the penalty */
    const float *gram;   /* G, n × n, with a positive diagonal */
    double alpha;
    double *x;        /* in: x₀; out: the result */
    double *gradient; /* gradient of the smooth part at x; in: g */
    double *work;     /* 4 n elements */
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

#endif

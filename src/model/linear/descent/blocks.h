/* Blocks of columns: rows of some columns laid out for one block of them after the other.
 *
 * Coordinate descent takes columns one at a time, and asks all workers for each column's gradient if rows are spread over
 * them. A block of columns needs one such sum: its gradient, and once its Gram matrix, which is all that minimising over the
 * block takes. So steps are those of coordinate descent, however many workers divide the rows.
 */
#ifndef TR_LINEAR_BLOCKS_H
#define TR_LINEAR_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

enum { TR_BLOCK_COLUMNS = 256 };

/* This worker's rows; columns are numbered from 0. */
struct tr_descent_rows {
    size_t n, columns;
    uint64_t *begin; /* n + 1 */
    const uint32_t *column;
    const float *value;
    uint32_t *entries;    /* of each column */
    uint32_t *own_column; /* where they are no other's: the memory of column … */
    float *own_value;     /* … and value */
};

/* The loss as a function of a row's margin, up to the second order, and how far the margin has moved. */
struct tr_row_model {
    double slope;
    float curve, move;
};

struct tr_column_block {
    size_t n;        /* columns */
    size_t rows;     /* that have some of them … */
    uint32_t *row;   /* … which … */
    uint64_t *begin; /* … and where their entries begin: rows + 1 */
    uint8_t *column; /* of each entry, within the block */
    float *value;    /* of each entry */
    float *gram;     /* (n + 1)²: the last is the bias, of which all rows have 1 */
};

/* Makes blocks of these columns, in their order, TR_BLOCK_COLUMNS each but the last. A column that no row here has is
 * UINT32_MAX. blocks: room for them all. */
int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks);
void tr_block_free(struct tr_column_block *block);

/* Σ curve x xᵀ over the rows, its lower triangle row by row, the bias last: (n + 1)(n + 2)/2 numbers; the bias's own entry
 * is over the block's rows alone. gram: from sums of these. */
void tr_block_products(const struct tr_column_block *block, const struct tr_row_model *model,
                       float *triangle);
void tr_block_set_gram(struct tr_column_block *block, const float *triangle, double all_rows_curve,
                       double ridge);
static inline size_t tr_block_triangle(const struct tr_column_block *block)
{
    return (block->n + 1) * (block->n + 2) / 2;
}

/* Σ (slope + curve · move) x: the gradient where the margins have moved to. */
void tr_block_gradient(const struct tr_column_block *block, const struct tr_row_model *model,
                       double *gradient);

/* move += Σ change x */
void tr_block_move(const struct tr_column_block *block, const double *change, struct tr_row_model *model);

#endif

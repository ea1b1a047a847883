/* Rows as training uses them. Sparse: 8 bytes a non-zero, 4 when every value is 1. Dense: 4 bytes a number. */
#ifndef TR_DATA_MATRIX_H
#define TR_DATA_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct tr_matrix {
    size_t rows;
    size_t columns;   /* dense rows: numbers in each; 0: sparse rows */
    uint64_t *begin;  /* sparse: row i holds the non-zeros begin[i] .. begin[i + 1] - 1; rows + 1 of them */
    uint32_t *column; /* sparse: ascending within a row */
    float *value;     /* sparse: NULL when every value is 1. Dense: one row after the other */
    float *label;     /* one a row, or NULL */
};

static inline size_t tr_matrix_nonzeros(const struct tr_matrix *m)
{
    return m->begin ? (size_t)m->begin[m->rows] : m->rows * m->columns;
}

/* Frees the arrays, not the struct; it is empty afterwards. */
static inline void tr_matrix_free(struct tr_matrix *m)
{
    free(m->begin);
    free(m->column);
    free(m->value);
    free(m->label);
    *m = (struct tr_matrix){0};
}

/* Sparse: counts columns from first_index on, and leaves out those that are not less than `columns` then (0: none). Returns
 * how many non-zeros were left out. */
uint64_t tr_matrix_limit(struct tr_matrix *m, uint32_t first_index, uint64_t columns);

/* Writes the non-zeros of n lists into dense rows of so many numbers, which are 0. value: NULL when every value is 1. */
void tr_lists_fill(const uint64_t *begin, size_t n, const uint32_t *column, const float *value,
                   size_t columns, float *dense);

/* The numbers of dense rows that are not 0, without labels. Free with tr_matrix_free(), also after an error. */
int tr_matrix_to_sparse(const struct tr_matrix *dense, struct tr_matrix *sparse);

/* The same in place, with labels; and sparse rows with less than so many columns become dense. */
int tr_matrix_make_sparse(struct tr_matrix *m);
int tr_matrix_make_dense(struct tr_matrix *m, size_t columns);

#endif

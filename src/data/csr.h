/* Sparse rows as training uses them: 8 bytes a non-zero, 4 when every value is 1. */
#ifndef TR_DATA_CSR_H
#define TR_DATA_CSR_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct tr_csr {
    size_t rows;
    uint64_t *begin;  /* row i holds the non-zeros begin[i] .. begin[i + 1] - 1; rows + 1 of them */
    uint32_t *column; /* ascending within a row */
    float *value;     /* NULL when every value is 1 */
    float *label;     /* one a row */
};

static inline size_t tr_csr_nonzeros(const struct tr_csr *csr)
{
    return csr->begin ? csr->begin[csr->rows] : 0;
}

/* Frees the arrays, not the struct; it is empty afterwards. */
static inline void tr_csr_free(struct tr_csr *csr)
{
    free(csr->begin);
    free(csr->column);
    free(csr->value);
    free(csr->label);
    *csr = (struct tr_csr){0};
}

#endif

/* Rows in memory, sparse or dense: their forms, numbers for the columns and rows that occur, quantiles. No MPI in this file.
 *
 * Sparse rows take 8 bytes for each non-zero, 4 if every value is 1; dense rows 4 bytes for each number.
 */
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

/* Replaces the form of rows, which keep their labels; *by is empty afterwards. */
void tr_matrix_replace(struct tr_matrix *m, struct tr_matrix *by);

/* Sparse: makes columns count from first_index, and removes those that are then not below `columns` (0: none). Returns the number of
 * non-zeros that were removed. */
uint64_t tr_matrix_limit(struct tr_matrix *m, uint32_t first_index, uint64_t columns);

/* Writes the non-zeros of n lists into dense rows of `columns` zeros each. value: NULL if every value is 1. */
void tr_lists_fill(const uint64_t *begin, size_t n, const uint32_t *column, const float *value,
                   size_t columns, float *dense);

/* Sparse rows of the numbers of dense rows that are not 0, without labels. Free with tr_matrix_free(), also after an error. */
int tr_matrix_to_sparse(const struct tr_matrix *dense, struct tr_matrix *sparse);

/* The same in place, with labels; and the reverse, of sparse rows whose columns are below `columns`. */
int tr_matrix_make_sparse(struct tr_matrix *m);
int tr_matrix_make_dense(struct tr_matrix *m, size_t columns);

/* ---- numbers for indices ---- */

/* 32 indices: which of them are in a set, and the number of smaller indices in it. */
struct tr_index_word {
    uint32_t bits, rank;
};

/* A set of 32-bit indices. After tr_index_set_number(), tr_index_set_find() returns the position of one in ascending order. */
struct tr_index_set {
    struct tr_index_word **page; /* of 2^16 indices each; NULL: none of them is in the set */
};

enum { TR_INDEX_PAGE_BITS = 16, TR_INDEX_PAGE_WORDS = (1 << TR_INDEX_PAGE_BITS) / 32 };

/* Adds index[0], index[stride], ..., n of them. */
int tr_index_set_add(struct tr_index_set *set, const uint32_t *index, size_t n, size_t stride);

/* Removes indices outside first .. end - 1, and lists the others, less `first`, in ascending order: n of them in *list (to be freed). */
int tr_index_set_number(struct tr_index_set *set, uint64_t first, uint64_t end, uint32_t **list, size_t *n);

void tr_index_set_free(struct tr_index_set *set);

static inline uint32_t tr_count_bits(uint32_t x)
{
    x -= (x >> 1) & 0x55555555u;
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    return (((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
}

/* index: in the set. */
static inline uint32_t tr_index_set_find(const struct tr_index_set *set, uint32_t index)
{
    struct tr_index_word word = set->page[index >> TR_INDEX_PAGE_BITS][index / 32 % TR_INDEX_PAGE_WORDS];
    return word.rank + tr_count_bits(word.bits & ((1u << index % 32) - 1));
}

/* Replaces columns by their positions among the distinct columns, which are listed in ascending order in *keys (n of them, to be freed).
 * All columns are in lowest .. highest, as the reader reports them (lowest > highest: there is none), or fewer. Temporary memory: about
 * the lesser of 1/4 byte for each index of the range and 36 to 60 bytes for each distinct column. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n);

/* Sorts n keys and removes duplicates; *n becomes the number of those left. Temporary memory: that of the keys. */
int tr_keys_sort(uint32_t *keys, size_t *n);

/* ---- rows of triples ---- */

struct tr_triples;

/* Makes rows of the triples, whose records are freed: in ascending order of their row numbers, which are listed in *numbers (to be freed).
 * Columns of a row are below `columns` and ascend; equal columns stay in the order of the triples. */
int tr_triples_to_rows(struct tr_triples *triples, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers);

/* Merges non-zeros of the same row and column: TR_DUPLICATES_.... */
void tr_rows_merge(struct tr_matrix *m, int duplicates);

/* ---- quantiles of many numbers in one pass: a sketch (Manku, Rajagopalan, Lindsay, SIGMOD 1998, section 3) ----
 *
 * Numbers are collected in a buffer of TR_QUANTILES_BUFFER. A full buffer is sorted, and every second of its numbers goes to the next
 * buffer, where its weight is double. That moves the rank of a number by at most one of them, and happens once for this many numbers
 * in each of the log2(n / TR_QUANTILES_BUFFER) buffers. So the rank of a result is wrong by at most n / 65536 for each of these: exact
 * up to 65536 numbers, 1/9362 of the rows at 8 million, 1/2621 at 2 · 10^12. */

enum { TR_QUANTILES_BUFFER = 65536, TR_QUANTILES_LEVELS = 48 };

struct tr_quantiles {
    uint64_t n; /* numbers that were added */
    struct {
        uint32_t *key; /* numbers as keys of the same order; each has weight 2^level */
        size_t n, capacity;
        bool odd; /* the half that went to the next level last */
    } level[TR_QUANTILES_LEVELS];
};

/* x: not NaN. TR_ERR_SYSTEM. */
int tr_quantiles_add(struct tr_quantiles *q, float x);

/* Adds n numbers of weight 2^level that another sketch has. TR_ERR_SYSTEM. */
int tr_quantiles_join(struct tr_quantiles *q, size_t level, const uint32_t *key, size_t n);

/* The smallest numbers that are not below these shares (0 to 1) of all numbers, of which there is at least one. TR_ERR_SYSTEM. */
int tr_quantiles_at(const struct tr_quantiles *q, const double *share, size_t n, float *x);

void tr_quantiles_free(struct tr_quantiles *q); /* it is empty afterwards */

#endif

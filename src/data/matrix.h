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
    size_t columns;   /* dense: numbers per row. Sparse: 0 */
    uint64_t *begin;  /* sparse: row i has the non-zeros begin[i] .. begin[i + 1] - 1; rows + 1 elements */
    uint32_t *column; /* sparse: column of each non-zero, ascending within a row */
    float *value;     /* sparse: NULL if every value is 1. Dense: one row after the other */
    float *label;     /* label of each row; NULL: rows have no labels */
};

static inline size_t tr_matrix_nonzeros(const struct tr_matrix *m)
{
    return m->begin ? (size_t)m->begin[m->rows] : m->rows * m->columns;
}

/* Frees the arrays and empties the struct. */
static inline void tr_matrix_free(struct tr_matrix *m)
{
    free(m->begin);
    free(m->column);
    free(m->value);
    free(m->label);
    *m = (struct tr_matrix){0};
}

/* Replaces the rows of m by those of `by`, which is empty afterwards. The labels of m stay. */
void tr_matrix_replace(struct tr_matrix *m, struct tr_matrix *by);

/* Subtracts first_index from the columns of sparse rows, and removes non-zeros whose column is then not below `columns` (0: no
 * limit). Returns the number of removed non-zeros. */
uint64_t tr_matrix_limit(struct tr_matrix *m, uint32_t first_index, uint64_t columns);

/* Writes the non-zeros of n sparse rows into dense rows of `columns` zeros each. value: NULL if every value is 1. */
void tr_lists_fill(const uint64_t *begin, size_t n, const uint32_t *column, const float *value,
                   size_t columns, float *dense);

/* Makes sparse rows of dense rows, without labels. Free them with tr_matrix_free(), also after an error. */
int tr_matrix_to_sparse(const struct tr_matrix *dense, struct tr_matrix *sparse);

/* tr_matrix_make_sparse() makes dense rows sparse in place, with labels. tr_matrix_make_dense() makes sparse rows dense; their
 * columns are below `columns`. */
int tr_matrix_make_sparse(struct tr_matrix *m);
int tr_matrix_make_dense(struct tr_matrix *m, size_t columns);

/* ---- numbers for indices ---- */

/* 32 consecutive indices. bits: which of them are in the set; rank: the number of smaller indices in the set. */
struct tr_index_word {
    uint32_t bits, rank;
};

/* A set of 32-bit indices. After tr_index_set_number(), tr_index_set_find() returns the position of an index in the ascending list
 * of all. */
struct tr_index_set {
    struct tr_index_word **page; /* pages of 2^16 indices; NULL: no index of the page is in the set */
};

enum { TR_INDEX_PAGE_BITS = 16, TR_INDEX_PAGE_WORDS = (1 << TR_INDEX_PAGE_BITS) / 32 };

/* Adds n indices: index[0], index[stride], index[2 * stride], ... */
int tr_index_set_add(struct tr_index_set *set, const uint32_t *index, size_t n, size_t stride);

/* Removes indices outside first .. end - 1. *list (to be freed) receives the n others in ascending order, minus `first`. */
int tr_index_set_number(struct tr_index_set *set, uint64_t first, uint64_t end, uint32_t **list, size_t *n);

void tr_index_set_free(struct tr_index_set *set);

static inline uint32_t tr_count_bits(uint32_t x)
{
    x -= (x >> 1) & 0x55555555u;
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    return (((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
}

/* Returns the position of an index, which must be in the set. */
static inline uint32_t tr_index_set_find(const struct tr_index_set *set, uint32_t index)
{
    struct tr_index_word word = set->page[index >> TR_INDEX_PAGE_BITS][index / 32 % TR_INDEX_PAGE_WORDS];
    return word.rank + tr_count_bits(word.bits & ((1u << index % 32) - 1));
}

/* Replaces each column by its position in *keys (to be freed), the ascending list of the n distinct columns. All columns are in
 * lowest .. highest (lowest > highest: there is no column). Temporary memory: 1/4 byte for each index of this range, or 36 to 60
 * bytes for each distinct column if that is less. */
int tr_renumber(struct tr_matrix *m, uint32_t lowest, uint32_t highest, uint32_t **keys, size_t *n);

/* Sorts n keys and removes duplicates; *n becomes the number of remaining keys. Takes as much temporary memory as the keys. */
int tr_keys_sort(uint32_t *keys, size_t *n);

/* ---- rows of triples ---- */

struct tr_triples;

/* Makes sparse rows of the triples, and frees the triples. Row i of m has row number (*numbers)[i] (to be freed); these ascend and
 * are below row_numbers. Columns of a row are below `columns` and ascend; equal columns are in the order of the triples. */
int tr_triples_to_rows(struct tr_triples *triples, uint64_t row_numbers, size_t columns, struct tr_matrix *m,
                       uint64_t **numbers);

/* Merges non-zeros of the same row and column. duplicates: TR_DUPLICATES_LAST, TR_DUPLICATES_MEAN or TR_DUPLICATES_SUM. */
void tr_rows_merge(struct tr_matrix *m, int duplicates);

/* ---- quantiles of many numbers in one pass: a sketch (Manku, Rajagopalan, Lindsay, SIGMOD 1998, section 3) ---- Level 0 is a
 * buffer of TR_QUANTILES_BUFFER numbers of weight 1. A full buffer is sorted, and every second of its numbers goes to the buffer of
 * the next level, where each number has twice the weight. This changes the rank of a result by at most one weight of the old level,
 * so each level adds an error of at most n / 65536. There are log2(n / 65536) levels: ranks are exact up to 65536 numbers, and
 * wrong by 1/9362 of the rows at 8 million rows, by 1/2621 at 2 · 10^12. */

enum { TR_QUANTILES_BUFFER = 65536, TR_QUANTILES_LEVELS = 48 };

struct tr_quantiles {
    uint64_t n; /* number of numbers that were added */
    struct {
        uint32_t *key; /* numbers of weight 2^level, as integers that sort in the same order */
        size_t n, capacity;
        bool odd; /* the numbers with odd index went to the next level last time, not those with even index */
    } level[TR_QUANTILES_LEVELS];
};

/* Adds a number, which must not be NaN. TR_ERR_SYSTEM: no memory. */
int tr_quantiles_add(struct tr_quantiles *q, float x);

/* Adds n numbers of weight 2^level from another sketch. TR_ERR_SYSTEM: no memory. */
int tr_quantiles_join(struct tr_quantiles *q, size_t level, const uint32_t *key, size_t n);

/* Sets x[k] to the smallest number such that a fraction of at least share[k] (0 to 1) of all numbers is not larger. The sketch has
 * at least one number. TR_ERR_SYSTEM: no memory. */
int tr_quantiles_at(const struct tr_quantiles *q, const double *share, size_t n, float *x);

void tr_quantiles_free(struct tr_quantiles *q); /* the sketch is empty afterwards */

#endif

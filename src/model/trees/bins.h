/* Bins: each column is divided into at most 255 ranges with about the same number of rows, and rows are stored as the numbers
 * of these ranges. */
#ifndef TR_TREES_BINS_H
#define TR_TREES_BINS_H

#include "../labels.h"
#include "trireme/trireme.h"

enum { TR_BINS = 256 }; /* maximum number of bins of a column that is stored in bytes, with the last bin */
enum { TR_MOST_VALUES = 65535 }; /* maximum number of values of a category that have bins of their own */
enum { TR_BLOCK = 32 };          /* bundles whose bytes of a row are adjacent */

/* The bins of a column. Numeric column: bin b contains cut[b - 1] < x <= cut[b]. Category: bin v contains value v. If
 * `missing` is set, the last bin contains the rows without a number, and values of a category that have no bin. */
struct tr_column_bins {
    size_t offset; /* of the first bin among the bins of all columns */
    uint32_t bins; /* number of bins, with the last; 1: a constant column */
    uint32_t zero; /* bin that contains 0 */
    bool missing, category;
    float most;       /* larger numbers are in the last bin */
    const float *cut; /* bins - 1 - missing numbers, ascending */
};

struct tr_bins {
    size_t columns, total; /* total: number of bins of all columns */
    struct tr_column_bins *column;
    float *cuts;
    bool sparse; /* rows are sparse, on all workers */
};

/* Position of a column in a bundle: columns that share a byte. */
struct tr_bundled {
    uint32_t bundle;
    uint32_t first; /* byte of the first bin that does not contain 0; 0: the byte is the bin */
};

/* The rows of a worker in one of two forms. Bytes: one per row and bundle. Lists: for each row the ascending indices, among the
 * bins of all columns, of its bins that do not contain 0. */
struct tr_binned {
    size_t n, bundles, columns;
    size_t first, end;          /* columns that have bins here: all, or those of a member of a group */
    struct tr_bundled *bundled; /* per column */
    uint32_t *column,
        *column_begin;  /* bundle b contains column[column_begin[b]] .. ; without constant columns */
    uint8_t *block;     /* bytes: block k contains the bundles 32 k .. 32 k + 31, row by row; NULL: lists */
    uint8_t *of_bundle; /* the same bytes, bundle by bundle; NULL: no copy */
    uint16_t **wide;    /* per column with more than TR_BINS bins: the bin of each row; its byte is unused */
    uint64_t *begin;    /* lists: row i has place[begin[i]] .. place[begin[i + 1] - 1] */
    uint32_t *place;
};

/* Makes the bins of all columns from a sample of the rows. The sample does not depend on the distribution of the rows. All
 * workers, in a stage.
 *
 * @param [in]  number  global number of each row
 * @param [in]  weight  weight of each row; NULL: all are 1
 * @param [in]  values  per column: number of values of a category, 0 for a numeric column; NULL: all are numeric
 * @param [in]  most    maximum number of bins of a column
 * @param [in]  least   a column gets one bin if fewer rows than this differ from its most frequent number
 * @param [out] bins    to be freed by tr_bins_free(), also after an error
 */
int tr_bins_make(tr_context *tr, const tr_data *data, const uint32_t *number, const float *weight,
                 const uint32_t *values, size_t most, uint64_t least, uint64_t seed, struct tr_bins *bins);
void tr_bins_free(struct tr_bins *bins);

/* Stores rows by their bins. The numbers of the data are freed on the way.
 *
 * @param [in]  bundle  combine columns of sparse rows into bundles, if these need no more memory than lists
 * @param [out] rows    to be freed by tr_binned_free(), also after an error
 */
int tr_bins_apply(const struct tr_bins *bins, const tr_data *data, bool bundle, struct tr_binned *rows);
void tr_binned_free(struct tr_binned *rows);

/* Stores the bytes once more, bundle by bundle: rows are divided faster. */
int tr_bins_by_column(struct tr_binned *rows);

/* Allocates `bundled` and the bytes of `bundles` bundles. */
int tr_binned_open(const struct tr_bins *bins, struct tr_binned *rows, size_t bundles);

/* Fills column and column_begin, the inverse of `bundled`. */
int tr_binned_list(const struct tr_bins *bins, struct tr_binned *rows);

/* Replaces lists by bundles, if these need no more memory. */
int tr_binned_bundle(const struct tr_bins *bins, struct tr_binned *rows);

/* Asks for huge pages for memory that has been allocated and not yet touched. */
void tr_trees_huge(void *memory, size_t bytes);

/* Returns the first bin whose cut is not below x. */
static inline uint32_t tr_bin_among(const float *cut, size_t cuts, float x)
{
    size_t low = 0;
    while (low < cuts) {
        size_t middle = (low + cuts) / 2;
        if (cut[middle] < x) low = middle + 1;
        else cuts = middle;
    }
    return (uint32_t)low;
}

/* Number of bytes of a row in block k, a multiple of four. */
static inline size_t tr_block_width(const struct tr_binned *rows, size_t block)
{
    size_t left = rows->bundles - block * TR_BLOCK;
    return left >= TR_BLOCK ? TR_BLOCK : (left + 3) / 4 * 4;
}

static inline uint8_t *tr_byte_of(const struct tr_binned *rows, size_t row, size_t bundle)
{
    size_t block = bundle / TR_BLOCK;
    return rows->block + block * TR_BLOCK * rows->n + row * tr_block_width(rows, block) + bundle % TR_BLOCK;
}

/* Returns the bin of a column, given the byte of its bundle. */
static inline uint32_t tr_bin_of_byte(const struct tr_column_bins *c, uint32_t first, uint32_t byte)
{
    if (first == 0) return byte;
    uint32_t bin = byte - first;
    return bin >= c->bins - 1u ? c->zero : bin + (bin >= c->zero);
}

/* Returns the bin of a row in a column that has more than one. Bytes: column->bins if the row has no number and the column
 * has no bin for missing numbers. */
uint32_t tr_bin_of_sparse(const struct tr_bins *bins, const struct tr_binned *rows, size_t row,
                          size_t column);
static inline uint32_t tr_bin_of(const struct tr_bins *bins, const struct tr_binned *rows, size_t row,
                                 size_t column)
{
    if (!rows->block) return tr_bin_of_sparse(bins, rows, row, column);
    if (rows->wide && rows->wide[column]) return rows->wide[column][row];
    struct tr_bundled at = rows->bundled[column];
    return tr_bin_of_byte(&bins->column[column], at.first, *tr_byte_of(rows, row, at.bundle));
}

#endif

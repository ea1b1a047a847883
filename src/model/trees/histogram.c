#include <string.h>

#include "trees.h"

enum { AHEAD = 16 }; /* rows that are fetched before they are needed; lists have so many places more */

/* Adds rows of one block to 32-bit sums of its columns, TR_BINS of each: with a constant width, the inner loop is unrolled. */
static inline __attribute__((always_inline)) void add_rows(const uint8_t *block, size_t width,
                                                           const uint32_t *row, const uint32_t *pair,
                                                           size_t n, bool all, uint32_t *sum)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *bin = block + (all ? i : row[i]) * width;
        if (!all) __builtin_prefetch(block + row[i + AHEAD] * width);
        uint32_t p = pair[i];
#pragma GCC unroll 32
        for (size_t c = 0; c < width; c++) sum[c * TR_BINS + bin[c]] += p;
    }
}

static void add_to_block(const uint8_t *block, size_t width, const uint32_t *row, const uint32_t *pair,
                         size_t n, bool all, uint32_t *sum)
{
    switch (width / 4) {
    case 1: add_rows(block, 4, row, pair, n, all, sum); break;
    case 2: add_rows(block, 8, row, pair, n, all, sum); break;
    case 3: add_rows(block, 12, row, pair, n, all, sum); break;
    case 4: add_rows(block, 16, row, pair, n, all, sum); break;
    case 5: add_rows(block, 20, row, pair, n, all, sum); break;
    case 6: add_rows(block, 24, row, pair, n, all, sum); break;
    case 7: add_rows(block, 28, row, pair, n, all, sum); break;
    default: add_rows(block, 32, row, pair, n, all, sum); break;
    }
}

/* The 32-bit sums, before they can overflow, into those of 64 bits. */
static void widen(const struct tr_column_bins *column, size_t columns, const uint32_t *sum, tr_pair *hist)
{
    for (size_t c = 0; c < columns; c++, sum += TR_BINS) {
        tr_pair *to = hist + column[c].offset;
        for (size_t b = 0; b < column[c].bins; b++) to[b] += tr_pair_of_row(sum[b]);
    }
}

static void add_dense(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                      const uint32_t *pair, size_t n, bool all, size_t flush, tr_pair *hist)
{
    uint32_t sum[TR_BLOCK * TR_BINS] __attribute__((aligned(64)));
    const uint8_t *block = rows->block;
    for (size_t k = 0; k * TR_BLOCK < bins->columns; k++) {
        size_t width = tr_block_width(bins, k), first = k * TR_BLOCK,
               columns = tr_min_size(bins->columns - first, TR_BLOCK);
        for (size_t i = 0; i < n; i += flush) {
            memset(sum, 0, columns * TR_BINS * sizeof *sum);
            add_to_block(all ? block + i * width : block, width, row + i, pair + i, tr_min_size(flush, n - i),
                         all, sum);
            widen(&bins->column[first], columns, sum, hist);
        }
        block += rows->n * width;
    }
}

static void add_sparse(const struct tr_binned *rows, const uint32_t *row, const uint32_t *pair, size_t n,
                       bool all, tr_pair *hist)
{
    for (size_t i = 0; i < n; i++) {
        size_t r = all ? i : row[i];
        tr_pair p = tr_pair_of_row(pair[i]);
        if (!all) __builtin_prefetch(rows->place + rows->begin[row[i + AHEAD]]);
        for (uint64_t k = rows->begin[r]; k < rows->begin[r + 1]; k++) hist[rows->place[k]] += p;
    }
}

void tr_histogram_add(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                      const uint32_t *pair, size_t n, bool all, size_t flush, tr_pair *hist)
{
    if (n == 0) return;
    if (rows->block) add_dense(bins, rows, row, pair, n, all, flush, hist);
    else add_sparse(rows, row, pair, n, all, hist);
}

size_t tr_divide_rows(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                      const uint8_t *left, const uint32_t *row, const uint32_t *pair, size_t n, bool all,
                      uint32_t *to_row, uint32_t *to_pair, uint32_t *other_row, uint32_t *other_pair)
{
    const uint8_t *bin = rows->of_column ? rows->of_column + column * rows->n : NULL;
    size_t stay = 0, go = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t r = all ? (uint32_t)i : row[i], p = pair[i];
        bool is_left = left[bin ? bin[r] : tr_bin_of(bins, rows, r, column)];
        to_row[stay] = r;
        to_pair[stay] = p;
        other_row[go - 1] = r;
        other_pair[go - 1] = p;
        stay += is_left;
        go -= !is_left;
    }
    return stay;
}

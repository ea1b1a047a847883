#include <string.h>

#include "trees.h"

#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

enum { AHEAD = 16 }; /* rows that are fetched before they are needed; lists have so many places more */

/* The bins of four columns, the first in the lowest byte. */
static inline uint32_t four_bins(const uint8_t *bin)
{
    uint32_t four;
    memcpy(&four, bin, sizeof four);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    four = __builtin_bswap32(four);
#endif
    return four;
}

/* Adds rows of one block to 32-bit sums of its columns, TR_BINS of each: with a constant width, the inner loop is unrolled. Loads
 * and stores are what takes the time: bins are loaded four at once. */
static inline __attribute__((always_inline)) void add_rows(const uint8_t *block, size_t width,
                                                           const uint32_t *row, const uint32_t *pair,
                                                           size_t n, bool all, uint32_t *sum)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *bin = block + (all ? i : row[i]) * width;
        if (!all) {
            const uint8_t *next = block + row[i + AHEAD] * width;
            __builtin_prefetch(next);
            __builtin_prefetch(next + width - 1);
        }
        uint32_t p = pair[i];
#pragma GCC unroll 8
        for (size_t c = 0; c < width; c += 4) {
            uint32_t four = four_bins(bin + c), *of = sum + c * TR_BINS;
            of[four & 255] += p;
            of[TR_BINS + (four >> 8 & 255)] += p;
            of[2 * TR_BINS + (four >> 16 & 255)] += p;
            of[3 * TR_BINS + (four >> 24)] += p;
        }
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

/* The 32-bit sums of some bundles, before they can overflow, into those of 64 bits of their columns' bins. */
TR_CPU_CLONES static void widen(const struct tr_bins *bins, const struct tr_binned *rows, size_t first,
                                size_t end, const uint32_t *sum, tr_pair *hist)
{
    for (size_t b = first; b < end; b++, sum += TR_BINS)
        for (size_t i = rows->column_begin[b]; i < rows->column_begin[b + 1]; i++) {
            const struct tr_column_bins *column = &bins->column[rows->column[i]];
            const uint32_t *from = sum + rows->bundled[rows->column[i]].first;
            bool shared = from > sum; /* the bin of 0 is left out */
            size_t zero = shared ? column->zero : column->bins;
            tr_pair *to = hist + column->offset;
            for (size_t k = 0; k < zero; k++) to[k] += tr_pair_of_row(from[k]);
            for (size_t k = zero + 1; k < column->bins; k++) to[k] += tr_pair_of_row(from[k - 1]);
        }
}

/* Rows that may be added to the sums of some bundles before one of them can overflow. */
TR_CPU_CLONES static size_t find_room(const uint32_t *sum, size_t bundles, unsigned bits)
{
    int32_t most_g = 0, most_h = 0;
    for (size_t b = 0; b < bundles; b++, sum += TR_BINS)
        for (size_t i = 0; i < TR_BINS; i++) {
            int32_t h = sum[i] & 0xffff, g = (int32_t)sum[i] >> 16;
            g = g < 0 ? -g : g;
            most_h = h > most_h ? h : most_h;
            most_g = g > most_g ? g : most_g;
        }
    return (size_t)tr_min_size((size_t)(0xffff - most_h) >> bits, (size_t)(0x7fff - most_g) >> (bits - 1));
}

/* As long as rows are spread over the bins there is room for many more of them than would fill one. */
static void add_bytes(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                      const uint32_t *pair, size_t n, bool all, unsigned bits, tr_pair *hist)
{
    uint32_t sum[TR_BLOCK * TR_BINS] __attribute__((aligned(64)));
    const uint8_t *block = rows->block;
    const size_t empty = (size_t)0x7fff >> (bits - 1);
    for (size_t k = 0; k * TR_BLOCK < rows->bundles; k++) {
        size_t width = tr_block_width(rows, k), first = k * TR_BLOCK,
               end = tr_min_size(rows->bundles, first + TR_BLOCK), sums = (end - first) * TR_BINS, room = 0,
               done;
        memset(sum, 0, sums * sizeof *sum);
        for (size_t i = 0; i < n; i += done) {
            if (i == 0) room = empty;
            done = tr_min_size(room, n - i);
            add_to_block(all ? block + i * width : block, width, row + i, pair + i, done, all, sum);
            room = i + done < n ? find_room(sum, end - first, bits) : 0;
            if (room >= empty / 2) continue;
            widen(bins, rows, first, end, sum, hist);
            memset(sum, 0, sums * sizeof *sum);
            room = empty;
        }
        block += rows->n * width;
    }
}

static void add_wide(const uint16_t *bin, const uint32_t *row, const uint32_t *pair, size_t n, bool all,
                     tr_pair *hist)
{
    for (size_t i = 0; i < n; i++) {
        if (!all) __builtin_prefetch(bin + row[i + AHEAD]);
        hist[bin[all ? i : row[i]]] += tr_pair_of_row(pair[i]);
    }
}

static void add_lists(const struct tr_binned *rows, const uint32_t *row, const uint32_t *pair, size_t n,
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
                      const uint32_t *pair, size_t n, bool all, unsigned bits, tr_pair *hist)
{
    if (n == 0) return;
    if (rows->block) add_bytes(bins, rows, row, pair, n, all, bits, hist);
    else add_lists(rows, row, pair, n, all, hist);
    for (size_t c = rows->first; c < rows->end && rows->wide; c++)
        if (rows->wide[c]) add_wide(rows->wide[c], row, pair, n, all, hist + bins->column[c].offset);
}

/* ---- the rows of a leaf become those of two ---- */

struct division {
    const uint8_t *side;
    const uint32_t *row, *pair;
    uint32_t *to_row, *to_pair, *other_row, *other_pair;
    size_t stay, go; /* where the next row goes that goes left, and right, from there down */
    bool all;
};

#ifdef TR_CPU_LEVELS

/* The lanes that are in a set of them, and then the others, four bits each. */
static inline __attribute__((target("bmi2,popcnt"))) uint32_t in_order(unsigned set)
{
    const uint32_t lanes = 0x76543210, in = _pdep_u32(set, 0x11111111) * 15;
    return _pext_u32(lanes, in) | (uint32_t)((uint64_t)_pext_u32(lanes, ~in) << 4 * __builtin_popcount(set));
}

/* Eight rows at a time, as long as there are eight: all eight are stored at either side, and those that do not belong there are
 * overwritten by the next. Returns how many rows are done. */
static __attribute__((target("avx2,bmi2,popcnt"))) size_t
divide_eights(struct division *d, const uint8_t *bin, const uint8_t *left, size_t n)
{
    uint32_t bits[8] = {0};
    size_t stay = 0, go = n, i = 0;
    for (unsigned b = 0; b < TR_BINS; b++) bits[b / 32] |= (uint32_t)left[b] << b % 32;
    const __m256i goes_left = _mm256_loadu_si256((const void *)bits),
                  lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), shift = _mm256_slli_epi32(lane, 2),
                  low = _mm256_set1_epi32(255);
    for (; i + 8 <= n; i += 8) {
        __m256i of, pair = _mm256_loadu_si256((const void *)(d->pair + i)),
                    row = d->all ? _mm256_add_epi32(lane, _mm256_set1_epi32((int)i))
                                 : _mm256_loadu_si256((const void *)(d->row + i));
        unsigned set;
        if (d->side) {
            set = d->side[i / 8];
        } else {
            if (d->all) of = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(bin + i)));
            else of = _mm256_and_si256(_mm256_i32gather_epi32((const void *)bin, row, 1), low);
            __m256i word = _mm256_permutevar8x32_epi32(goes_left, _mm256_srli_epi32(of, 5));
            __m256i sign = _mm256_sllv_epi32(
                word, _mm256_sub_epi32(_mm256_set1_epi32(31), _mm256_and_si256(of, _mm256_set1_epi32(31))));
            set = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(sign));
        }
        __m256i by = _mm256_srlv_epi32(_mm256_set1_epi32((int)in_order(set)), shift);
        row = _mm256_permutevar8x32_epi32(row, by);
        pair = _mm256_permutevar8x32_epi32(pair, by);
        _mm256_storeu_si256((void *)(d->to_row + stay), row);
        _mm256_storeu_si256((void *)(d->to_pair + stay), pair);
        _mm256_storeu_si256((void *)(d->other_row + go - 8), row);
        _mm256_storeu_si256((void *)(d->other_pair + go - 8), pair);
        stay += (unsigned)__builtin_popcount(set);
        go = n - (i + 8 - stay);
    }
    d->stay = stay;
    d->go = go;
    return i;
}
#endif

/* Where the bytes of a column's bundle are, one row after the other, and which of them go left. */
static const uint8_t *bytes_of(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                               const uint8_t *left, uint8_t *byte_left)
{
    if (!rows->of_bundle || (rows->wide && rows->wide[column])) return NULL;
    struct tr_bundled at = rows->bundled[column];
    for (uint32_t b = 0; b < TR_BINS; b++)
        byte_left[b] = left[tr_bin_of_byte(&bins->column[column], at.first, b)];
    return rows->of_bundle + at.bundle * rows->n;
}

void tr_find_sides(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                   const uint8_t *left, const uint32_t *row, size_t n, bool all, uint8_t *side)
{
    uint8_t byte_left[TR_BINS];
    const uint8_t *byte = bytes_of(bins, rows, column, left, byte_left);
    memset(side, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        uint32_t r = all ? (uint32_t)i : row[i];
        uint8_t is_left = byte ? byte_left[byte[r]] : left[tr_bin_of(bins, rows, r, column)];
        side[i / 8] |= (uint8_t)(is_left << i % 8);
    }
}

size_t tr_divide_rows(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                      const uint8_t *left, const uint8_t *side, const uint32_t *row, const uint32_t *pair,
                      size_t n, bool all, uint32_t *to_row, uint32_t *to_pair, uint32_t *other_row,
                      uint32_t *other_pair)
{
    uint8_t byte_left[TR_BINS] = {0};
    const uint8_t *byte = side ? NULL : bytes_of(bins, rows, column, left, byte_left);
    struct division d = {side, row, pair, to_row, to_pair, other_row, other_pair, 0, n, all};
    size_t i = 0;
#ifdef TR_CPU_LEVELS
    if ((byte || side) && rows->n <= INT32_MAX && tr_cpu() >= TR_CPU_AVX2)
        i = divide_eights(&d, byte, byte_left, n);
#endif
    for (; i < n; i++) {
        uint32_t r = all ? (uint32_t)i : row[i], p = pair[i];
        bool is_left = side   ? side[i / 8] >> i % 8 & 1
                       : byte ? byte_left[byte[r]]
                              : left[tr_bin_of_sparse(bins, rows, r, column)];
        to_row[d.stay] = r;
        to_pair[d.stay] = p;
        other_row[d.go - 1] = r;
        other_pair[d.go - 1] = p;
        d.stay += is_left;
        d.go -= !is_left;
    }
    return d.stay;
}

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

/* Where a column has its bytes, so far apart from row to row, and a bit for each byte that goes left. */
struct side_bytes {
    const uint8_t *byte;
    size_t apart;
    uint32_t left[TR_BINS / 32];
};

static bool bytes_of(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                     const uint8_t *left, struct side_bytes *of)
{
    if (!rows->block || (rows->wide && rows->wide[column])) return false;
    struct tr_bundled at = rows->bundled[column];
    *of =
        (struct side_bytes){tr_byte_of(rows, 0, at.bundle), tr_block_width(rows, at.bundle / TR_BLOCK), {0}};
    if (rows->of_bundle) *of = (struct side_bytes){rows->of_bundle + at.bundle * rows->n, 1, {0}};
    for (uint32_t b = 0; b < TR_BINS; b++)
        of->left[b / 32] |= (uint32_t)left[tr_bin_of_byte(&bins->column[column], at.first, b)] << b % 32;
    return true;
}

#ifdef TR_CPU_LEVELS

/* Eight rows at a time. */
static __attribute__((target("avx2"))) size_t find_eights(const struct side_bytes *of, const uint32_t *row,
                                                          size_t n, uint64_t *side)
{
    const __m256i goes_left = _mm256_loadu_si256((const void *)of->left), low = _mm256_set1_epi32(255),
                  last = _mm256_set1_epi32(31), apart = _mm256_set1_epi32((int)of->apart);
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t bits = 0;
        for (size_t k = 0; k < 64; k += 8) {
            __m256i at = _mm256_mullo_epi32(_mm256_loadu_si256((const void *)(row + i + k)), apart),
                    byte = _mm256_and_si256(_mm256_i32gather_epi32((const void *)of->byte, at, 1), low),
                    word = _mm256_permutevar8x32_epi32(goes_left, _mm256_srli_epi32(byte, 5)),
                    sign = _mm256_sllv_epi32(word, _mm256_sub_epi32(last, _mm256_and_si256(byte, last)));
            bits |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(sign)) << k;
        }
        side[i / 64] = bits;
    }
    return i;
}
#endif

void tr_find_sides(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                   const uint8_t *left, const uint32_t *row, size_t n, uint64_t *side)
{
    struct side_bytes of;
    bool bytes = bytes_of(bins, rows, column, left, &of);
    size_t i = 0;
#ifdef TR_CPU_LEVELS
    if (bytes && rows->n <= INT32_MAX / of.apart && tr_cpu() >= TR_CPU_AVX2)
        i = find_eights(&of, row, n, side);
#endif
    for (; i < n; i++) {
        uint32_t byte = bytes ? of.byte[of.apart * row[i]] : 0;
        uint64_t is_left =
            bytes ? of.left[byte / 32] >> byte % 32 & 1 : left[tr_bin_of(bins, rows, row[i], column)];
        side[i / 64] = (i % 64 > 0 ? side[i / 64] : 0) | is_left << i % 64;
    }
}

static void swap(uint32_t *of, size_t a, size_t b)
{
    uint32_t at_a = of[a];
    of[a] = of[b];
    of[b] = at_a;
}

/* As many rows that go right lie where those that go left are to be as the other way round: each of the one changes places with one of
 * the other. */
TR_CPU_CLONES size_t tr_divide_rows(const uint64_t *side, uint32_t *row, uint32_t *pair, size_t n)
{
    size_t left = 0;
    for (size_t k = 0; k * 64 < n; k++) left += (size_t)__builtin_popcountll(side[k]);
    size_t there = left / 64;
    uint64_t stay = left < n ? side[there] & ~(uint64_t)0 << left % 64 : 0;
    for (size_t here = 0; here * 64 < left; here++) {
        uint64_t go = ~side[here];
        if (left - here * 64 < 64) go &= ((uint64_t)1 << left % 64) - 1;
        for (; go; go &= go - 1, stay &= stay - 1) {
            while (!stay) stay = side[++there];
            size_t a = here * 64 + (size_t)__builtin_ctzll(go),
                   b = there * 64 + (size_t)__builtin_ctzll(stay);
            swap(row, a, b);
            swap(pair, a, b);
        }
    }
    return left;
}

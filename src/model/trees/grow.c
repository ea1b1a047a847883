/* Grows one tree: finds splits, builds histograms, divides the rows of leaves, and computes the values of leaves. In this file,
 * g and h are sums of gradients and of second derivatives (curvature). The histogram of a leaf has a pair per bin: the sum of the
 * pairs of the leaf's rows in this bin. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

/* ================ splits: ranges of numbers ================ */

/* Returns the gain of a child whose gradients sum to g and second derivatives to h.
 *
 * @param [out] value  value that the child would have as a leaf, within the bounds s->low and s->high */
static inline float child_gain(const struct tr_scan *s, float g, float h, float l2, float *value)
{
    float v = -g / (h + l2);
    *value = v < s->low ? s->low : v > s->high ? s->high : v;
    return -*value * (2 * g + (h + l2) * *value);
}

/* Returns the gain of a split whose left child has the sums g and h; 0 if a child is too small. */
static inline float split_gain(const struct tr_scan *s, float g, float h)
{
    float other_g = s->all_gradient - g, other_h = s->all_curvature - h;
    float value = g * g / (h + s->l2) + other_g * other_g / (other_h + s->l2) - s->parent;
    return h < s->least || other_h < s->least ? 0 : value;
}

/* Does the work of scan_bins() for so few bins that vector instructions would be slower. Sparse columns often have two bins. */
enum { FEW_BINS = 4 };
static void scan_few_bins(const struct tr_scan *s, const tr_pair *hist, size_t n, tr_pair left,
                          struct tr_split *best, uint32_t column, bool missing_left)
{
    for (size_t t = 0; t < n; t++) {
        left += hist[t];
        float gain = split_gain(s, (float)(int32_t)tr_pair_gradient(left) * s->gradient,
                                (float)tr_pair_curvature(left) * s->curvature);
        if (gain > best->gain)
            *best = (struct tr_split){.gain = gain,
                                      .column = column,
                                      .bin = (uint32_t)t,
                                      .missing_left = missing_left,
                                      .left = left};
    }
}

/* Finds the first bin whose split has the largest gain, and writes this gain to *most. Returns n if no gain is larger than *most.
 * Gains are compared as integers: non-negative floats have the order of their bits. */
TR_CPU_CLONES static size_t scan_best_bin(const struct tr_scan *s, const tr_pair *sum, size_t n, float *most)
{
    union {
        float gain;
        int32_t bits;
    } of[TR_BINS], best = {*most};
    for (size_t t = 0; t < n; t++)
        of[t].gain = split_gain(s, (float)(int32_t)tr_pair_gradient(sum[t]) * s->gradient,
                                (float)tr_pair_curvature(sum[t]) * s->curvature);
    int32_t largest = best.bits;
    for (size_t t = 0; t < n; t++) largest = of[t].bits > largest ? of[t].bits : largest;
    if (largest == best.bits) return n;
    size_t at = 0;
    while (of[at].bits != largest) at++;
    *most = of[at].gain;
    return at;
}

/* Tries the splits where bins 0 .. t go left, for each t < n.
 *
 * @param [in] before  pair of the missing numbers if they go left, otherwise 0 */
static void scan_bins(const struct tr_scan *s, const tr_pair *hist, size_t n, tr_pair before,
                      struct tr_split *best, uint32_t column, bool missing_left)
{
    tr_pair sum[TR_BINS], left = before;
    float most = best->gain;
    if (n < FEW_BINS) {
        scan_few_bins(s, hist, n, before, best, column, missing_left);
        return;
    }
    for (size_t t = 0; t < n; t++) sum[t] = left += hist[t];
    size_t at = scan_best_bin(s, sum, n, &most);
    if (at < n)
        *best = (struct tr_split){.gain = most,
                                  .column = column,
                                  .bin = (uint32_t)at,
                                  .missing_left = missing_left,
                                  .left = sum[at]};
}

static bool column_is_drawn(const struct tr_trees *m, size_t column)
{
    double part = m->o->columns;
    if (part >= 1) return true;
    uint64_t random =
        tr_mix(tr_mix(tr_mix(m->seed) ^ (m->tree.round * m->outputs + m->tree.output)) + column);
    return (double)(random >> 11) < part * 0x1p53;
}

/* Does the work of scan_bins() with model.monotone: the values of the children must be within the bounds of the leaf, and the right
 * value must not be smaller (direction 1) or larger (direction -1) than the left value. */
static void scan_bounded(const struct tr_scan *s, int direction, const tr_pair *hist, size_t n,
                         tr_pair before, struct tr_split *best, uint32_t column, bool missing_left)
{
    tr_pair left = before;
    for (size_t t = 0; t < n; t++) {
        left += hist[t];
        float g = (float)tr_pair_gradient(left) * s->gradient,
              h = (float)tr_pair_curvature(left) * s->curvature, other_g = s->all_gradient - g,
              other_h = s->all_curvature - h, value, other;
        if (h < s->least || other_h < s->least) continue;
        float gain =
            child_gain(s, g, h, s->l2, &value) + child_gain(s, other_g, other_h, s->l2, &other) - s->parent;
        if (!(gain > best->gain) || (float)direction * (other - value) < 0) continue;
        *best = (struct tr_split){
            .gain = gain, .column = column, .bin = (uint32_t)t, .missing_left = missing_left, .left = left};
    }
}

/* ================ splits: sets of categories ================ */

/* The values of a category are sorted by mean gradient, and a prefix or suffix of the sorted list goes left. For two classes and
 * squared errors no other set is better (Fisher 1958; Ke et al., LightGBM, NIPS 2017). Four rules of LightGBM avoid overfitting to
 * rare values: mean gradients are smoothed, the children have an additional L2 regularization (model.category_l2), few values go
 * left, and each side has a minimum number of rows. */
enum { ONE_VALUE = 4 }; /* if a category has at most this number of values, only sets of one value go left */

static int category_compare(const void *a, const void *b)
{
    const struct tr_category_value *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return (x->bin > y->bin) - (x->bin < y->bin);
}

static float category_gain(const struct tr_scan *s, float g, float h, float l2)
{
    float value;
    return child_gain(s, g, h, l2, &value) +
           child_gain(s, s->all_gradient - g, s->all_curvature - h, l2, &value) - s->parent;
}

/* Sets *best to the split where the values value[0], value[step] .. value[(n - 1) * step] go left. */
static void category_set_split(const struct tr_category_value *value, ptrdiff_t step, size_t n,
                               const tr_pair *hist, float gain, uint32_t column, struct tr_split *best)
{
    *best = (struct tr_split){.gain = gain, .column = column, .values = (uint16_t)n};
    for (size_t i = 0; i < n; i++, value += step) {
        best->value[i] = (uint16_t)value->bin;
        best->left += hist[value->bin];
    }
}

/* Tries the prefixes of the sorted list of n values as sets that go left; step -1: the suffixes, and `value` is the last value. */
static void category_scan_order(const struct tr_scan *s, const struct tr_trees_options *o,
                                const struct tr_category_value *value, ptrdiff_t step, size_t n,
                                const tr_pair *hist, uint32_t column, struct tr_split *best)
{
    float g = 0, h = 0, fresh = 0, least = (float)o->category_rows * s->row;
    size_t most = tr_min_size((n + 1) / 2, (size_t)o->category_values);
    for (size_t i = 0; i < most; i++) {
        const struct tr_category_value *v = value + step * (ptrdiff_t)i;
        g += v->gradient;
        h += v->curvature;
        fresh += v->curvature;
        float other_h = s->all_curvature - h;
        if (other_h < s->least || other_h < least) return;
        if (h < s->least || fresh < least) continue;
        fresh = 0;
        float gain = category_gain(s, g, h, s->l2 + (float)o->category_l2);
        if (gain > best->gain) category_set_split(value, step, i + 1, hist, gain, column, best);
    }
}

static void scan_category(struct tr_category_value *value, const struct tr_scan *s,
                          const struct tr_trees_options *o, const tr_pair *hist, size_t n, uint32_t column,
                          struct tr_split *best)
{
    float smoothing = (float)o->category_smoothing, least = n > ONE_VALUE ? smoothing * s->row : 0;
    size_t used = 0;
    for (size_t b = 0; b < n; b++) {
        float g = (float)tr_pair_gradient(hist[b]) * s->gradient,
              h = (float)tr_pair_curvature(hist[b]) * s->curvature;
        if (hist[b] != 0 && h >= least)
            value[used++] = (struct tr_category_value){g / (h + smoothing), g, h, (uint32_t)b};
    }
    if (used == 0) return;
    for (size_t i = 0; i < used && n <= ONE_VALUE; i++) {
        float g = value[i].gradient, h = value[i].curvature, gain = category_gain(s, g, h, s->l2);
        if (h >= s->least && s->all_curvature - h >= s->least && gain > best->gain)
            category_set_split(&value[i], 1, 1, hist, gain, column, best);
    }
    if (n <= ONE_VALUE) return;
    qsort(value, used, sizeof *value, category_compare);
    category_scan_order(s, o, value, 1, used, hist, column, best);
    category_scan_order(s, o, value + used - 1, -1, used, hist, column, best);
}

/* ================ splits: one column ================ */

bool tr_scan_begin(const struct tr_trees *m, const struct tr_leaf_sums *leaf, double part, struct tr_scan *s)
{
    float value;
    double G = (double)tr_pair_gradient(leaf->sum) * m->tree.units.gradient,
           H = (double)tr_pair_curvature(leaf->sum) * m->tree.units.curvature;
    double rows = part * (m->tree.base > 0 ? m->tree.base : 1);
    *s = (struct tr_scan){.sum = leaf->sum,
                          .gradient = (float)m->tree.units.gradient,
                          .curvature = (float)m->tree.units.curvature,
                          .least = (float)fmax(part * m->o->min_weight, (double)m->o->min_rows * rows),
                          .row = (float)rows,
                          .all_gradient = (float)G,
                          .all_curvature = (float)H,
                          .l2 = (float)m->l2,
                          .parent = (float)(G * G / (H + m->l2)),
                          .low = leaf->low,
                          .high = leaf->high};
    if (m->direction) s->parent = child_gain(s, s->all_gradient, s->all_curvature, s->l2, &value);
    s->nothing = (float)fmax(m->o->gamma, m->least_gain);
    return s->all_curvature >= 2 * s->least;
}

void tr_scan_column(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t c,
                    struct tr_split *best)
{
    const struct tr_column_bins *column = &m->bins.column[c];
    if (column->bins < 2) return;
    tr_pair apart = s->sum - hist[column->zero]; /* a child without the bin of 0 has at most these rows */
    if ((float)tr_pair_curvature(apart) * s->curvature < s->least || !column_is_drawn(m, c)) return;
    if (column->category)
        scan_category(m->categories, s, m->o, hist, (size_t)column->bins - column->missing, (uint32_t)c,
                      best);
    else {
        /* Try the splits with missing numbers on the right side, then on the left side. */
        size_t numbers = (size_t)column->bins - column->missing;
        tr_pair missing = column->missing ? hist[numbers] : 0;
        for (int left = 0; left <= (missing != 0); left++) {
            size_t n = numbers - 1 + (missing != 0 && !left);
            tr_pair before = left ? missing : 0;
            if (m->direction) scan_bounded(s, m->direction[c], hist, n, before, best, (uint32_t)c, left);
            else scan_bins(s, hist, n, before, best, (uint32_t)c, left);
        }
    }
}

/* Returns whether a is better than b. Of equal gains, the smaller column is better, so that all workers choose the same split. */
static bool split_is_better(const struct tr_split *a, const struct tr_split *b)
{
    return a->gain > b->gain || (a->gain == b->gain && a->gain > 0 && a->column < b->column);
}

size_t tr_split_bytes(const struct tr_trees *m)
{
    return m->values ? sizeof(struct tr_split) : offsetof(struct tr_split, value);
}

/* ================ histograms and rows of leaves ================ */

/* Distance of prefetching in rows: m->row has at least this number of unused elements at its end. */
enum { AHEAD = 16 };

/* Reads the bins of four columns, the first in the lowest byte. */
static inline uint32_t four_bins(const uint8_t *bin)
{
    uint32_t four;
    memcpy(&four, bin, sizeof four);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    four = __builtin_bswap32(four);
#endif
    return four;
}

/* Adds the pairs of n rows (all: rows 0 .. n - 1, otherwise the rows in `row`) to the 32-bit sums of a block's bundles, TR_BINS
 * sums per bundle. Callers pass a constant width, so that the compiler unrolls the inner loop. Loads and stores dominate the time,
 * so four bins are loaded together. */
static inline __attribute__((always_inline)) void histogram_add_rows(const uint8_t *block, size_t width,
                                                                     const uint32_t *row,
                                                                     const uint32_t *pair, size_t n, bool all,
                                                                     uint32_t *sum)
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

static void histogram_add_block(const uint8_t *block, size_t width, const uint32_t *row, const uint32_t *pair,
                                size_t n, bool all, uint32_t *sum)
{
    switch (width / 4) {
    case 1: histogram_add_rows(block, 4, row, pair, n, all, sum); break;
    case 2: histogram_add_rows(block, 8, row, pair, n, all, sum); break;
    case 3: histogram_add_rows(block, 12, row, pair, n, all, sum); break;
    case 4: histogram_add_rows(block, 16, row, pair, n, all, sum); break;
    case 5: histogram_add_rows(block, 20, row, pair, n, all, sum); break;
    case 6: histogram_add_rows(block, 24, row, pair, n, all, sum); break;
    case 7: histogram_add_rows(block, 28, row, pair, n, all, sum); break;
    default: histogram_add_rows(block, 32, row, pair, n, all, sum); break;
    }
}

/* Adds the 32-bit sums of the bundles first .. end - 1 to the 64-bit histogram of their columns. */
TR_CPU_CLONES static void histogram_widen(const struct tr_bins *bins, const struct tr_binned *rows,
                                          size_t first, size_t end, const uint32_t *sum, tr_pair *hist)
{
    for (size_t b = first; b < end; b++, sum += TR_BINS)
        for (size_t i = rows->column_begin[b]; i < rows->column_begin[b + 1]; i++) {
            const struct tr_column_bins *column = &bins->column[rows->column[i]];
            const uint32_t *from = sum + rows->bundled[rows->column[i]].first;
            bool shared = from > sum; /* several columns share the byte: the bin of 0 has no byte value */
            size_t zero = shared ? column->zero : column->bins;
            tr_pair *to = hist + column->offset;
            for (size_t k = 0; k < zero; k++) to[k] += tr_pair_of_row(from[k]);
            for (size_t k = zero + 1; k < column->bins; k++) to[k] += tr_pair_of_row(from[k - 1]);
        }
}

/* Returns how many rows can be added until a half of a 32-bit sum can overflow. */
TR_CPU_CLONES static size_t histogram_capacity(const uint32_t *sum, size_t bundles, unsigned bits)
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

/* Adds rows that are stored as bytes to a histogram. 32-bit sums are widened when they could overflow. Rows are usually spread over
 * many bins: then this is needed much less often than if all rows were in one bin. */
static void histogram_add_bytes(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
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
            histogram_add_block(all ? block + i * width : block, width, row + i, pair + i, done, all, sum);
            room = i + done < n ? histogram_capacity(sum, end - first, bits) : 0;
            if (room >= empty / 2) continue;
            histogram_widen(bins, rows, first, end, sum, hist);
            memset(sum, 0, sums * sizeof *sum);
            room = empty;
        }
        block += rows->n * width;
    }
}

static void histogram_add(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                          const uint32_t *pair, size_t n, bool all, unsigned bits, tr_pair *hist)
{
    if (n == 0) return;
    if (rows->block) histogram_add_bytes(bins, rows, row, pair, n, all, bits, hist);
    for (size_t i = 0; i < n && !rows->block; i++) {
        size_t r = all ? i : row[i];
        tr_pair p = tr_pair_of_row(pair[i]);
        if (!all) __builtin_prefetch(rows->place + rows->begin[row[i + AHEAD]]);
        for (uint64_t k = rows->begin[r]; k < rows->begin[r + 1]; k++) hist[rows->place[k]] += p;
    }
    for (size_t c = rows->first; c < rows->end && rows->wide; c++) {
        const uint16_t *bin = rows->wide[c];
        tr_pair *to = hist + bins->column[c].offset;
        for (size_t i = 0; i < n && bin; i++) {
            if (!all) __builtin_prefetch(bin + row[i + AHEAD]);
            to[bin[all ? i : row[i]]] += tr_pair_of_row(pair[i]);
        }
    }
}

/* ---- dividing the rows of a leaf ---- */

/* The bytes of a column's bundle. */
struct side_bytes {
    const uint8_t *byte; /* byte[i * apart] is the byte of row i */
    size_t apart;
    uint32_t left[TR_BINS / 32]; /* a bit per byte value: 1 if rows with this byte go left */
};

#ifdef TR_CPU_LEVELS

/* Finds the sides of rows like sides_find(), eight at a time. Returns the number of rows processed, a multiple of 64. */
static __attribute__((target("avx2"))) size_t sides_find_avx2(const struct side_bytes *of,
                                                              const uint32_t *row, size_t n, uint64_t *side)
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

/* Finds the sides of n rows in a split: a bit per row, 1 if the row goes left. left: per bin of the column, 1 if it goes left. */
static void sides_find(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                       const uint8_t *left, const uint32_t *row, size_t n, uint64_t *side)
{
    bool bytes = rows->block && !(rows->wide && rows->wide[column]);
    struct side_bytes of = {0};
    size_t i = 0;
    if (bytes) {
        struct tr_bundled at = rows->bundled[column];
        of.byte = rows->of_bundle ? rows->of_bundle + at.bundle * rows->n : tr_byte_of(rows, 0, at.bundle);
        of.apart = rows->of_bundle ? 1 : tr_block_width(rows, at.bundle / TR_BLOCK);
        for (uint32_t b = 0; b < TR_BINS; b++)
            of.left[b / 32] |= (uint32_t)left[tr_bin_of_byte(&bins->column[column], at.first, b)] << b % 32;
    }
#ifdef TR_CPU_LEVELS
    if (bytes && rows->n <= INT32_MAX / of.apart && tr_cpu() >= TR_CPU_AVX2)
        i = sides_find_avx2(&of, row, n, side);
#endif
    for (; i < n; i++) {
        uint32_t byte = bytes ? of.byte[of.apart * row[i]] : 0;
        uint64_t is_left =
            bytes ? of.left[byte / 32] >> byte % 32 & 1 : left[tr_bin_of(bins, rows, row[i], column)];
        side[i / 64] = (i % 64 > 0 ? side[i / 64] : 0) | is_left << i % 64;
    }
}

static void rows_swap(uint32_t *of, size_t a, size_t b)
{
    uint32_t at_a = of[a];
    of[a] = of[b];
    of[b] = at_a;
}

/* Moves the rows that go left, and their pairs, before the rows that go right. Returns the number of rows that go left.
 *
 * If n rows among the first `left` rows go right, then n of the other rows go left: they are swapped in pairs. */
TR_CPU_CLONES static size_t rows_divide(const uint64_t *side, uint32_t *row, uint32_t *pair, size_t n)
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
            rows_swap(row, a, b);
            rows_swap(pair, a, b);
        }
    }
    return left;
}

/* ================ growing a tree ================ */

enum { SPARE = 64 }; /* unused elements at the end of a list, which prefetching and vector loads read */

struct leaf {
    size_t begin, end; /* range of the leaf's rows in m->row and m->pair */
    bool all;          /* the rows of the leaf are 0 .. end - 1, in this order */
    uint64_t depth;
    size_t node, slot;  /* index of the node in the tree; index of the histogram in tr_trees_grower.slot */
    struct leaf *child; /* left child, followed by the right one; NULL: the rows are not divided yet */
    struct tr_leaf_sums sums;
    struct tr_split split; /* the best split of the leaf */
};

struct tr_trees_grower {
    struct tr_trees_share share; /* columns of the histograms: this worker's share; voting: all columns */
    tr_pair *slot;      /* histograms of leaves, share.bins pairs each; voting: of this worker's rows only */
    tr_pair *own;       /* voting, per slot: sum of the pairs of this worker's rows */
    struct leaf *pool;  /* memory of all leaves, with the ones already split and ones not in the tree yet */
    struct leaf **leaf; /* leaves of the tree so far */
    size_t pooled, leaves, slots; /* numbers of elements of pool, leaf and slot in use */
    size_t ahead;                 /* number of leaves of the tree whose rows are already divided */
    double numbers; /* mean number of bins that a worker adds to build a histogram of all rows */
    struct tr_node *node;
    struct tr_node_note *note;
    uint8_t *goes_left; /* per bin of the column of a split: whether it goes left */
    size_t most_bins;   /* length of goes_left: maximum number of bins of a column + 1 */
    size_t nodes;       /* number of nodes of the tree so far */
    int64_t *sums;      /* per leaf: sums of gradients and second derivatives, in steps of tr_trees_grow() */
    size_t split_bytes; /* result of tr_split_bytes() */
};

static double grow_curvature(const struct tr_trees *m, tr_pair p)
{
    return (double)tr_pair_curvature(p) * m->tree.units.curvature;
}

/* ---- histograms ---- */

/* Builds the histograms of n leaves with consecutive slots: sums over the rows of all workers, for the columns of the share.
 * solve.parallel voting: n is 1, and only this worker's rows are summed. */
static int grow_build(struct tr_trees *m, struct leaf *const *leaf, size_t n)
{
    struct tr_trees_grower *g = m->grower;
    struct tr_trees_share had = tr_trees_merge_columns(m->merge, m->member);
    tr_pair *slot = g->slot + leaf[0]->slot * g->share.bins, *local = m->merge->local, sum = 0;
    bool merges = local && !m->voting;
    for (size_t k = 0; k < n; k++) {
        tr_pair *hist = merges ? local + k * m->bins.total : slot + k * g->share.bins;
        size_t first = leaf[k]->begin, rows = leaf[k]->end - first;
        memset(hist + had.offset, 0, had.bins * sizeof *hist);
        histogram_add(&m->bins, &m->rows, m->row + first, m->pair + first, rows, leaf[k]->all,
                      (unsigned)m->o->bits, hist);
    }
    if (merges) TR_TRY(tr_trees_merge_add(m->merge, NULL, n, slot));
    for (size_t i = leaf[0]->begin; i < leaf[0]->end && m->voting; i++) sum += tr_pair_of_row(m->pair[i]);
    if (m->voting) g->own[leaf[0]->slot] = sum;
    for (size_t k = 0; k < n && m->bins.sparse;
         k++) /* sparse rows do not store the bin of 0: it gets the sum of the leaf minus the other bins */
        for (size_t c = g->share.first; c < g->share.last; c++) {
            const struct tr_column_bins *column = &m->bins.column[c];
            tr_pair *bin = slot + k * g->share.bins + column->offset - g->share.offset,
                    left = m->voting ? sum : leaf[k]->sums.sum;
            for (size_t b = 0; b < column->bins; b++) left -= bin[b];
            bin[column->zero] += left;
        }
    return TR_OK;
}

/* Finds the best splits of n leaves among all columns. */
static int grow_find_splits(struct tr_trees *m, struct leaf *const *leaf, size_t n)
{
    struct tr_trees_grower *g = m->grower;
    char mine[2 * TR_MOST_TOGETHER * sizeof(struct tr_split)];
    size_t bytes = g->split_bytes;
    for (size_t i = 0; i < n; i++) {
        struct tr_leaf_sums own = leaf[i]->sums;
        if (m->voting) own.sum = g->own[leaf[i]->slot];
        if (m->voting)
            TR_TRY(
                tr_vote(m, g->slot + leaf[i]->slot * g->share.bins, &own, &leaf[i]->sums, &leaf[i]->split));
        else {
            const tr_pair *slot = g->slot + leaf[i]->slot * g->share.bins - g->share.offset;
            struct tr_scan s;
            leaf[i]->split = (struct tr_split){0};
            if (tr_scan_begin(m, &leaf[i]->sums, 1, &s)) {
                leaf[i]->split.gain = s.nothing;
                for (size_t c = g->share.first; c < g->share.last; c++)
                    tr_scan_column(m, &s, slot + m->bins.column[c].offset, c, &leaf[i]->split);
                if (leaf[i]->split.gain <= s.nothing) leaf[i]->split.gain = 0;
            }
        }
        memcpy(mine + i * bytes, &leaf[i]->split, bytes);
    }
    if (!m->merge->local) return TR_OK;
    TR_TRY(tr_trees_merge_send(m->merge, mine, n * bytes));
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < (size_t)tr_workers(m->tr); w++) {
            struct tr_split other;
            memcpy(&other, (const char *)tr_trees_merge_sent(m->merge, w) + i * bytes, bytes);
            if (w == 0 || split_is_better(&other, &leaf[i]->split)) leaf[i]->split = other;
        }
    return TR_OK;
}

/* ---- growing ---- */

/* Makes the root from the drawn rows, and finds its split. */
static int grow_start_tree(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *root = g->leaf[0] = &g->pool[0];
    size_t n = 0;
    bool all = m->o->rows >= 1 || m->members > 1;
    int64_t sum[3] = {0}; /* sum of pairs; number of rows with a weight above 0; sum of weights in steps */
    for (size_t i = m->own_first; i < m->own_first + m->own_rows; i++) {
        if (m->o->rows < 1 && !m->drawn[i]) continue;
        sum[0] += tr_pair_of_row(m->pair[i]);
        sum[1] += !m->weight || m->weight[i] > 0;
        sum[2] += m->weight ? llrint((double)m->weight[i] * m->weight_steps) : 0;
    }
    for (; all && n < m->rows.n; n++) m->row[n] = (uint32_t)n;
    for (size_t i = 0; !all && i < m->rows.n; i++) {
        m->row[n] = (uint32_t)i;
        m->pair[n] = m->pair[i];
        n += m->drawn[i];
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_I64, sum, 3));
    *root = (struct leaf){.end = n, .all = all, .sums = {sum[0], -INFINITY, INFINITY}};
    /* A row of weight w counts as w rows; if the mean weight is below 1, each row counts as one row. */
    double rows = m->weight ? fmax((double)sum[1], (double)sum[2] / m->weight_steps) : (double)sum[1];
    m->tree.base = grow_curvature(m, root->sums.sum) / fmax(rows, 1);
    g->pooled = g->leaves = g->slots = g->nodes = 1;
    g->ahead = 0;
    g->node[0] = (struct tr_node){.feature = TR_LEAF};
    TR_TRY(grow_build(m, &root, 1));
    return grow_find_splits(m, &root, 1);
}

/* Returns the index of the leaf with the largest gain, or, unless `after` is NONE, of the leaf that follows leaf `after` in
 * descending order of gains; NONE: there is no such leaf. */
static const size_t NONE = SIZE_MAX;
static size_t grow_next_leaf(const struct tr_trees *m, size_t after)
{
    const struct tr_trees_grower *g = m->grower;
    size_t best = NONE;
    float bound = after == NONE ? INFINITY : g->leaf[after]->split.gain;
    for (size_t k = 0; k < g->leaves; k++) {
        float gain = g->leaf[k]->split.gain;
        if (gain <= 0 || (m->o->depth > 0 && g->leaf[k]->depth >= m->o->depth)) continue;
        bool follows = gain < bound || (gain == bound && (after == NONE || k > after));
        if (follows && (best == NONE || gain > g->leaf[best]->split.gain)) best = k;
    }
    return best;
}

/* Returns whether missing numbers go left. If no number is missing in the training data, they go to the side with more rows. */
static bool grow_missing_left(const struct tr_trees *m, const struct leaf *leaf)
{
    const struct tr_split *s = &leaf->split;
    if (m->bins.column[s->column].missing) return s->missing_left;
    return 2 * (uint64_t)tr_pair_curvature(s->left) >= tr_pair_curvature(leaf->sums.sum);
}

/* Makes the node of a leaf an inner node, and adds two leaves as its children to the tree. */
static int grow_add_node(struct tr_trees *m, const struct leaf *leaf)
{
    struct tr_trees_grower *g = m->grower;
    const struct tr_split *s = &leaf->split;
    const struct tr_column_bins *column = &m->bins.column[s->column];
    struct tr_node *node = &g->node[leaf->node];
    size_t cuts = (size_t)column->bins - 1 - column->missing;
    *node = (struct tr_node){.feature = s->column, .child = (uint32_t)g->nodes};
    g->note[leaf->node] = (struct tr_node_note){s->gain, (float)grow_curvature(m, leaf->sums.sum)};
    g->node[g->nodes] = g->node[g->nodes + 1] = (struct tr_node){.feature = TR_LEAF};
    if (s->values > 0) {
        uint32_t value[TR_SPLIT_VALUES];
        for (size_t i = 0; i < s->values; i++) value[i] = s->value[i];
        return tr_forest_add_set(&m->forest, value, s->values, node);
    }
    node->number = s->bin < cuts ? column->cut[s->bin] : INFINITY;
    node->flags = grow_missing_left(m, leaf) ? TR_NODE_MISSING_LEFT : 0;
    return TR_OK;
}

/* Divides the rows of a leaf between its two children, which are added to the pool. */
static int grow_divide(struct tr_trees *m, struct leaf *leaf)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *left = leaf->child = &g->pool[g->pooled], *right = left + 1;
    uint32_t *row = m->row + leaf->begin;
    size_t column = leaf->split.column, n = leaf->end - leaf->begin;
    const struct tr_split *s = &leaf->split;
    const struct tr_column_bins *of = &m->bins.column[column];
    memset(g->goes_left, 0, g->most_bins);
    for (size_t i = 0; i < s->values; i++) g->goes_left[s->value[i]] = 1;
    for (size_t b = 0; b < of->bins && s->values == 0; b++) g->goes_left[b] = b <= s->bin;
    if (s->values == 0) g->goes_left[of->bins - of->missing] = grow_missing_left(m, leaf);
    if (m->rows.first <= column && column < m->rows.end)
        sides_find(&m->bins, &m->rows, column, g->goes_left, row, n, m->side);
    if (m->members > 1) TR_TRY(tr_trees_send_sides(m, column, n));
    size_t middle = leaf->begin + rows_divide(m->side, row, m->pair + leaf->begin, n);
    *left = *right =
        (struct leaf){.begin = leaf->begin, .end = leaf->end, .depth = leaf->depth + 1, .sums = leaf->sums};
    left->end = right->begin = middle;
    left->sums.sum = leaf->split.left;
    right->sums.sum -= leaf->split.left;
    if (m->direction && m->direction[column] != 0) {
        /* The mean of the values of the two children bounds the values of all leaves below them (as in LightGBM, method basic). */
        bool up = m->direction[column] > 0;
        tr_pair sum[2] = {left->sums.sum, right->sums.sum};
        double bound = 0;
        for (int k = 0; k < 2; k++) {
            double value = -((double)tr_pair_gradient(sum[k]) * m->tree.units.gradient) /
                           fmax(grow_curvature(m, sum[k]) + m->l2, 1e-30);
            bound += fmin(fmax(value, (double)left->sums.low), (double)left->sums.high) / 2;
        }
        *(up ? &left->sums.high : &left->sums.low) = (float)bound;
        *(up ? &right->sums.low : &right->sums.high) = (float)bound;
    }
    g->pooled += 2;
    return TR_OK;
}

/* Finds the splits of the children of n leaves. The histogram of the smaller child is built from its rows; the histogram of the
 * larger child is the parent's minus that of the smaller child, and takes the parent's slot. */
static int grow_find_children(struct tr_trees *m, struct leaf *const *parent, size_t n)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *child[2 * TR_MOST_TOGETHER], *small[TR_MOST_TOGETHER] = {NULL}, *large[TR_MOST_TOGETHER];
    for (size_t i = 0; i < n; i++) {
        struct leaf *left = child[2 * i] = parent[i]->child, *right = child[2 * i + 1] = left + 1;
        bool left_is_smaller = tr_pair_curvature(left->sums.sum) <= tr_pair_curvature(right->sums.sum);
        small[i] = left_is_smaller ? left : right;
        large[i] = left_is_smaller ? right : left;
        large[i]->slot = parent[i]->slot;
        small[i]->slot = g->slots++;
    }
    TR_TRY(grow_build(m, small, n));
    for (size_t i = 0; i < n; i++) {
        tr_pair *from = g->slot + large[i]->slot * g->share.bins;
        const tr_pair *less = g->slot + small[i]->slot * g->share.bins;
        for (size_t b = 0; b < g->share.bins; b++) from[b] -= less[b];
        if (m->voting) g->own[large[i]->slot] -= g->own[small[i]->slot];
    }
    return grow_find_splits(m, child, 2 * n);
}

/* Divides the rows of the best leaf and finds the splits of its children. If workers are on several machines, other leaves with
 * large gains are divided in the same step, because they will probably be split too. The tree does not depend on this choice. */
static int grow_prepare(struct tr_trees *m, size_t best)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *leaf[TR_MOST_TOGETHER];
    size_t splits = m->o->leaves - g->leaves, n = 0,
           most = tr_max_size(m->merge->together, g->ahead + 1) - g->ahead;
    enum { FEW_NUMBERS = 1 << 18 };
    double whole = tr_pair_curvature(g->pool[0].sums.sum);
    leaf[n++] = g->leaf[best];
    for (size_t k = best, before = 1; n < most && before < (splits + 1) / 2; before++) {
        k = grow_next_leaf(m, k);
        if (k == NONE) break;
        /* The leaf may not be split in the end. It is examined only if the histogram of its smaller child is cheap. */
        struct leaf *next = g->leaf[k];
        uint32_t all = tr_pair_curvature(next->sums.sum), left = tr_pair_curvature(next->split.left);
        double small = left < all - left ? left : all - left;
        if (!next->child && g->numbers * small <= FEW_NUMBERS * whole) leaf[n++] = next;
    }
    for (size_t i = 0; i < n; i++) TR_TRY(grow_divide(m, leaf[i]));
    g->ahead += n;
    return splits > 1 ? grow_find_children(m, leaf, n) : TR_OK;
}

/* ---- values of leaves ---- */

/* Adds gradients and second derivatives to sum[0] and sum[1], each rounded to an integer number of steps (by_g and by_h are the
 * numbers of steps per 1). There are fewer than 2^31 rows (most_rows() in trees.c), so no sum overflows. */
TR_CPU_CLONES static void leaves_add_exactly(const float *gradient, const float *curvature, size_t n,
                                             float by_g, float by_h, int64_t sum[2])
{
    int64_t sum_g = 0, sum_h = 0;
    for (size_t i = 0; i < n; i++) {
        sum_g += (int32_t)rintf(gradient[i] * by_g);
        sum_h += (int32_t)rintf(curvature[i] * by_h);
    }
    sum[0] += sum_g;
    sum[1] += sum_h;
}

/* Returns whether this worker sums the rows of a leaf. With solve.parallel feature every member of a group has all rows of the
 * group: then each member sums the rows of some leaves. */
static bool leaves_is_mine(const struct tr_trees *m, size_t leaf)
{
    return leaf % m->members == m->member;
}

/* For losses without curvature, such as quantile: replaces the values of leaves by quantiles of the residuals. */
static int leaves_renew(struct tr_trees *m, double part)
{
    struct tr_trees_grower *g = m->grower;
    TR_FREED struct tr_row_set *set = NULL;
    TR_FREED float *value = NULL;
    TR_FREED float *weight = NULL;
    TR_TRY(TR_NEW(&set, g->leaves));
    TR_TRY(TR_NEW(&value, g->leaves));
    if (!m->scratch) TR_TRY(TR_NEW(&m->scratch, m->rows.n));
    float gradient[TR_GRADIENTS];
    if (m->weight || m->drawn) { /* these losses return the weight of a row as its second derivative */
        TR_TRY(TR_NEW(&weight, m->rows.n));
        for (size_t i = 0, n; i < m->rows.n; i += n) {
            n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
            tr_gradients_of(m, NULL, i, n, gradient, weight + i);
        }
    }
    for (size_t i = 0; i < m->rows.n; i++) m->scratch[i] = m->label[i] - m->score[i];
    for (size_t k = 0; k < g->leaves; k++)
        set[k] = (struct tr_row_set){m->row + g->leaf[k]->begin,
                                     leaves_is_mine(m, k) ? g->leaf[k]->end - g->leaf[k]->begin : 0};
    TR_TRY(tr_weighted_quantiles(m->tr, TR_SET_WORKERS, set, g->leaves, m->scratch, weight, part, value));
    for (size_t k = 0; k < g->leaves; k++) g->node[g->leaf[k]->node].number = value[k];
    return TR_OK;
}

int tr_trees_grow(struct tr_trees *m, size_t output, uint64_t round)
{
    struct tr_trees_grower *g = m->grower;
    m->tree.round = round;
    m->tree.output = output;
    m->tree.largest = INFINITY;
    TR_TRY(tr_gradients(m));
    TR_TRY(grow_start_tree(m));
    for (size_t k; g->leaves < m->o->leaves && (k = grow_next_leaf(m, NONE)) != NONE;) {
        struct leaf *leaf = g->leaf[k];
        if (!leaf->child) TR_TRY(grow_prepare(m, k));
        TR_TRY(grow_add_node(m, leaf));
        g->leaf[k] = &leaf->child[0];
        g->leaf[g->leaves++] = &leaf->child[1];
        leaf->child[0].node = g->nodes++;
        leaf->child[1].node = g->nodes++;
        g->ahead--;
    }
    /* Values of leaves are computed from full gradients, not from those that were rounded to few bits for the histograms. Each
     * gradient is rounded to a multiple of a small step, so sums do not depend on the order of addition. */
    double part, rate = m->rate * pow(1 - m->o->decay, (double)m->tree.round);
    double step_g = m->tree.units.gradient * 0x1p-20, step_h = m->tree.units.curvature * 0x1p-20;
    float by_g = (float)(1 / step_g), by_h = (float)(1 / step_h), gradient[TR_GRADIENTS],
          curvature[TR_GRADIENTS];
    for (size_t k = 0; k < g->leaves; k++) {
        const struct leaf *leaf = g->leaf[k];
        g->sums[2 * k] = g->sums[2 * k + 1] = 0;
        for (size_t i = leaf->begin, n; leaves_is_mine(m, k) && i < leaf->end; i += n) {
            n = tr_min_size(TR_GRADIENTS, leaf->end - i);
            tr_gradients_of(m, m->row + i, 0, n, gradient, curvature);
            leaves_add_exactly(gradient, curvature, n, by_g, by_h, g->sums + 2 * k);
        }
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_I64, g->sums, 2 * g->leaves));
    for (size_t k = 0; k < g->leaves; k++) {
        double G = (double)g->sums[2 * k] * step_g, H = (double)g->sums[2 * k + 1] * step_h;
        g->node[g->leaf[k]->node].number = (float)(-G / fmax(H + m->l2, 1e-30));
        g->note[g->leaf[k]->node] = (struct tr_node_note){0, (float)H};
    }
    if (tr_trees_is_quantile(m, &part)) TR_TRY(leaves_renew(m, part));
    for (size_t k = 0; k < g->leaves; k++) {
        const struct leaf *leaf = g->leaf[k];
        float *value = &g->node[leaf->node].number;
        *value = (float)(rate * (double)fminf(fmaxf(*value, leaf->sums.low), leaf->sums.high));
    }
    TR_TRY(tr_forest_add(&m->forest, g->node, g->note, g->nodes));
    /* Add the tree to the scores of the training rows. If all rows were drawn, the lists of the leaves contain every row. */
    float *score = m->score + output * m->rows.n;
    if (m->o->rows < 1 && m->members == 1) return tr_trees_score(m, &m->rows, m->forest.trees - 1, m->score);
    for (size_t k = 0; k < g->leaves; k++) {
        const struct leaf *leaf = g->leaf[k];
        float value = g->node[leaf->node].number;
        for (size_t i = leaf->begin; i < leaf->end; i++) score[m->row[i]] += value;
    }
    return TR_OK;
}

/* ---- opening ---- */

int tr_grower_open(struct tr_trees *m)
{
    struct tr_trees_grower *g;
    size_t n = m->rows.n + SPARE, leaves = (size_t)m->o->leaves, most = leaves + m->merge->together;
    TR_TRY(TR_NEW(&m->grower, 1));
    g = m->grower;
    TR_TRY(TR_NEW(&m->row, n));
    TR_TRY(TR_NEW(&m->pair, n));
    TR_TRY(TR_NEW(&m->side, n / 64 + 1));
    tr_trees_huge(m->row, n * sizeof *m->row);
    tr_trees_huge(m->pair, n * sizeof *m->pair);
    g->most_bins = TR_BINS + 1;
    for (size_t c = 0; c < m->bins.columns; c++)
        g->most_bins = tr_max_size(g->most_bins, m->bins.column[c].bins + 1);
    TR_TRY(TR_NEW(&g->goes_left, g->most_bins));
    TR_TRY(TR_NEW(&m->categories, g->most_bins));
    g->split_bytes = tr_split_bytes(m);
    TR_TRY(tr_voting_open(m));
    g->share = m->merge->share[m->merge->me];
    if (m->voting) g->share = (struct tr_trees_share){0, m->bins.columns, 0, m->bins.total};
    TR_TRY(TR_NEW(&g->own, most));
    TR_TRY(TR_NEW(&g->slot, most * g->share.bins));
    TR_TRY(TR_NEW(&g->pool, 2 * most));
    TR_TRY(TR_NEW(&g->leaf, leaves));
    TR_TRY(TR_NEW(&g->sums, 2 * leaves));
    TR_TRY(TR_NEW(&g->node, 2 * leaves));
    TR_TRY(TR_NEW(&g->note, 2 * leaves));
    if (m->merge->together == 1) return TR_OK;
    const struct tr_binned *rows = &m->rows;
    double numbers = rows->block   ? (double)rows->n * (double)rows->bundles
                     : rows->n > 0 ? (double)rows->begin[rows->n]
                                   : 0;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &numbers, 1));
    g->numbers = numbers / tr_workers(m->tr);
    return TR_OK;
}

void tr_grower_close(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
    tr_voting_close(&m->voting);
    tr_trees_merge_close(&m->merge);
    TR_FREE_ALL(m->row, m->pair, m->scratch, m->drawn, m->side, m->categories);
    if (!g) return;
    TR_FREE_ALL(g->goes_left, g->slot, g->own, g->pool, g->leaf, g->sums, g->node, g->note, g);
    m->grower = NULL;
}

/* Growing one tree. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

/* ================ histograms and rows of leaves ================ */

enum { AHEAD = 16 }; /* number of rows to prefetch; lists are this much longer */

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

/* Adds rows of one block to 32-bit sums of its columns, TR_BINS per column. A constant width lets the compiler unroll the inner
 * loop. Loads and stores dominate the time, so four bins are loaded together. */
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

/* Adds the 32-bit sums of bundles to the 64-bit histogram of their columns. */
TR_CPU_CLONES static void histogram_widen(const struct tr_bins *bins, const struct tr_binned *rows,
                                          size_t first, size_t end, const uint32_t *sum, tr_pair *hist)
{
    for (size_t b = first; b < end; b++, sum += TR_BINS)
        for (size_t i = rows->column_begin[b]; i < rows->column_begin[b + 1]; i++) {
            const struct tr_column_bins *column = &bins->column[rows->column[i]];
            const uint32_t *from = sum + rows->bundled[rows->column[i]].first;
            bool shared = from > sum; /* a shared byte: the bin of 0 has no byte value */
            size_t zero = shared ? column->zero : column->bins;
            tr_pair *to = hist + column->offset;
            for (size_t k = 0; k < zero; k++) to[k] += tr_pair_of_row(from[k]);
            for (size_t k = zero + 1; k < column->bins; k++) to[k] += tr_pair_of_row(from[k - 1]);
        }
}

/* Returns the number of rows that can be added before one of the 32-bit sums can overflow. */
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

/* Adds rows that are stored as bytes. While rows are spread over the bins, many more rows can be added than would fill one bin. */
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

static void histogram_add_wide(const uint16_t *bin, const uint32_t *row, const uint32_t *pair, size_t n,
                               bool all, tr_pair *hist)
{
    for (size_t i = 0; i < n; i++) {
        if (!all) __builtin_prefetch(bin + row[i + AHEAD]);
        hist[bin[all ? i : row[i]]] += tr_pair_of_row(pair[i]);
    }
}

static void histogram_add_lists(const struct tr_binned *rows, const uint32_t *row, const uint32_t *pair,
                                size_t n, bool all, tr_pair *hist)
{
    for (size_t i = 0; i < n; i++) {
        size_t r = all ? i : row[i];
        tr_pair p = tr_pair_of_row(pair[i]);
        if (!all) __builtin_prefetch(rows->place + rows->begin[row[i + AHEAD]]);
        for (uint64_t k = rows->begin[r]; k < rows->begin[r + 1]; k++) hist[rows->place[k]] += p;
    }
}

static void histogram_add(const struct tr_bins *bins, const struct tr_binned *rows, const uint32_t *row,
                          const uint32_t *pair, size_t n, bool all, unsigned bits, tr_pair *hist)
{
    if (n == 0) return;
    if (rows->block) histogram_add_bytes(bins, rows, row, pair, n, all, bits, hist);
    else histogram_add_lists(rows, row, pair, n, all, hist);
    for (size_t c = rows->first; c < rows->end && rows->wide; c++)
        if (rows->wide[c])
            histogram_add_wide(rows->wide[c], row, pair, n, all, hist + bins->column[c].offset);
}

/* ---- dividing the rows of a leaf ---- */

/* The bytes of a column, `apart` bytes from row to row, and a bit per byte value: 1 = left. */
struct side_bytes {
    const uint8_t *byte;
    size_t apart;
    uint32_t left[TR_BINS / 32];
};

static bool sides_bytes(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
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

/* Finds the sides of eight rows at a time; returns the number of rows processed. */
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

static void sides_find(const struct tr_bins *bins, const struct tr_binned *rows, size_t column,
                       const uint8_t *left, const uint32_t *row, size_t n, uint64_t *side)
{
    struct side_bytes of;
    bool bytes = sides_bytes(bins, rows, column, left, &of);
    size_t i = 0;
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

/* Moves rows that go left before those that go right, with their gradients. Returns the number of rows that go left.
 *
 * The number of right rows in the left part equals the number of left rows in the right part: they are swapped in pairs. */
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

enum { SPARE = 64 }; /* elements after a list that are read but not used */

struct leaf {
    size_t begin, end; /* range of its rows in the list */
    bool all;          /* its rows are 0 .. end - 1 in this order */
    uint64_t depth;
    size_t node, slot;
    struct leaf *child; /* two children; NULL: its rows are not divided yet */
    struct tr_leaf_sums sums;
    struct tr_split split;
};

struct tr_trees_grower {
    struct tr_trees_share share;  /* this worker's share of the columns */
    tr_pair *slot;                /* histograms of the share; leaf->slot is an index */
    tr_pair *own;                 /* voting: slots contain only this worker's rows; here their sums */
    struct leaf *pool;            /* all leaves whose split is known */
    struct leaf **leaf;           /* leaves of the tree so far */
    size_t pooled, leaves, slots; /* numbers in use */
    size_t ahead;                 /* number of leaves that already have children */
    double numbers;               /* mean number of bins that a worker adds for all rows */
    struct tr_node *node;
    struct tr_node_note *note;
    uint8_t *goes_left; /* per bin: whether it goes left */
    size_t most_bins;   /* maximum of a column */
    size_t nodes;
    int64_t *sums;      /* per leaf: sums of gradients and second derivatives, in steps */
    size_t split_bytes; /* bytes of a split that are sent */
};

static double grow_gradient(const struct tr_trees *m, tr_pair p)
{
    return (double)tr_pair_gradient(p) * m->tree.units.gradient;
}

static double grow_curvature(const struct tr_trees *m, tr_pair p)
{
    return (double)tr_pair_curvature(p) * m->tree.units.curvature;
}

/* ---- histograms ---- */

/* Sparse rows: the bin of 0 gets the sum of the leaf minus the other bins. */
static void grow_find_zeros(const struct tr_trees *m, tr_pair sum, tr_pair *slot)
{
    const struct tr_trees_grower *g = m->grower;
    for (size_t c = g->share.first; c < g->share.last; c++) {
        const struct tr_column_bins *column = &m->bins.column[c];
        tr_pair *bin = slot + column->offset - g->share.offset, left = sum;
        for (size_t b = 0; b < column->bins; b++) left -= bin[b];
        bin[column->zero] += left;
    }
}

/* Builds the histograms of n leaves with consecutive slots: sums over all rows, of the columns of the share. Voting: of one leaf and
 * this worker's rows. */
static int grow_build(struct tr_trees *m, struct leaf *const *leaf, size_t n)
{
    struct tr_trees_grower *g = m->grower;
    struct tr_trees_share had = tr_trees_merge_columns(m->merge, m->member);
    tr_pair *slot = g->slot + leaf[0]->slot * g->share.bins, *local = tr_trees_merge_local(m->merge), sum = 0;
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
    for (size_t k = 0; k < n && m->bins.sparse; k++)
        grow_find_zeros(m, m->voting ? sum : leaf[k]->sums.sum, slot + k * g->share.bins);
    return TR_OK;
}

/* Finds the best split among this worker's columns. */
static void grow_find_split(struct tr_trees *m, struct leaf *leaf)
{
    const struct tr_trees_grower *g = m->grower;
    const tr_pair *slot = g->slot + leaf->slot * g->share.bins - g->share.offset;
    struct tr_scan s;
    leaf->split = (struct tr_split){0};
    if (!tr_scan_begin(m, &leaf->sums, 1, &s)) return;
    leaf->split.gain = s.nothing;
    for (size_t c = g->share.first; c < g->share.last; c++)
        tr_scan_column(m, &s, slot + m->bins.column[c].offset, c, &leaf->split);
    if (leaf->split.gain <= s.nothing) leaf->split.gain = 0;
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
        else grow_find_split(m, leaf[i]);
        memcpy(mine + i * bytes, &leaf[i]->split, bytes);
    }
    if (!tr_trees_merge_local(m->merge)) return TR_OK;
    TR_TRY(tr_trees_merge_send(m->merge, mine, n * bytes));
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < (size_t)tr_workers(m->tr); w++) {
            struct tr_split other;
            memcpy(&other, (const char *)tr_trees_merge_sent(m->merge, w) + i * bytes, bytes);
            if (w == 0 || tr_split_is_better(&other, &leaf[i]->split)) leaf[i]->split = other;
        }
    return TR_OK;
}

/* ---- growing ---- */

static int grow_start_tree(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *root = g->leaf[0] = &g->pool[0];
    size_t n = 0;
    bool all = m->o->rows >= 1 || m->members > 1;
    int64_t sum[3] = {0}; /* gradients; number of rows with a weight above 0; weights in steps */
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
    /* a row of weight n counts as n rows; if the mean weight is below 1, each row counts as one */
    double rows = m->weight ? fmax((double)sum[1], (double)sum[2] / m->weight_steps) : (double)sum[1];
    m->tree.base = grow_curvature(m, root->sums.sum) / fmax(rows, 1);
    g->pooled = g->leaves = g->slots = g->nodes = 1;
    g->ahead = 0;
    g->node[0] = (struct tr_node){.feature = (uint32_t)TR_LEAF};
    TR_TRY(grow_build(m, &root, 1));
    return grow_find_splits(m, &root, 1);
}

/* Returns the leaf with the largest gain, or the next one after leaf `after`; NONE: there is none. */
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

/* Returns whether missing numbers go left. If the training data have none, they go to the side with more rows. */
static bool grow_missing_left(const struct tr_trees *m, const struct leaf *leaf)
{
    const struct tr_split *s = &leaf->split;
    if (m->bins.column[s->column].missing) return s->missing_left;
    return 2 * (uint64_t)tr_pair_curvature(s->left) >= tr_pair_curvature(leaf->sums.sum);
}

/* Fills goes_left for the split of a leaf. */
static void grow_find_bins_left(const struct tr_trees *m, const struct leaf *leaf)
{
    uint8_t *left = m->grower->goes_left;
    const struct tr_split *s = &leaf->split;
    const struct tr_column_bins *column = &m->bins.column[s->column];
    memset(left, 0, m->grower->most_bins);
    for (size_t i = 0; i < s->values; i++) left[s->value[i]] = 1;
    if (s->values > 0) return;
    for (size_t b = 0; b < column->bins; b++) left[b] = b <= s->bin;
    left[column->bins - column->missing] = grow_missing_left(m, leaf);
}

static int grow_add_node(struct tr_trees *m, const struct leaf *leaf)
{
    struct tr_trees_grower *g = m->grower;
    const struct tr_split *s = &leaf->split;
    const struct tr_column_bins *column = &m->bins.column[s->column];
    struct tr_node *node = &g->node[leaf->node];
    size_t cuts = (size_t)column->bins - 1 - column->missing;
    *node = (struct tr_node){.feature = s->column, .child = (uint32_t)g->nodes};
    g->note[leaf->node] = (struct tr_node_note){s->gain, (float)grow_curvature(m, leaf->sums.sum)};
    g->node[g->nodes] = g->node[g->nodes + 1] = (struct tr_node){.feature = (uint32_t)TR_LEAF};
    if (s->values > 0) {
        uint32_t value[TR_SPLIT_VALUES];
        for (size_t i = 0; i < s->values; i++) value[i] = s->value[i];
        return tr_forest_add_set(&m->forest, value, s->values, node);
    }
    node->number = s->bin < cuts ? column->cut[s->bin] : INFINITY;
    node->flags = grow_missing_left(m, leaf) ? TR_NODE_MISSING_LEFT : 0;
    return TR_OK;
}

/* model.monotone: the middle between the values of two children bounds all leaves below them (the basic method of LightGBM). */
static void grow_set_bounds(const struct tr_trees *m, size_t column, struct leaf *left, struct leaf *right)
{
    bool up = m->direction[column] > 0;
    tr_pair sum[2] = {left->sums.sum, right->sums.sum};
    double middle = 0;
    for (int k = 0; k < 2; k++) {
        double value = -grow_gradient(m, sum[k]) / fmax(grow_curvature(m, sum[k]) + m->o->l2, 1e-30);
        middle += fmin(fmax(value, (double)left->sums.low), (double)left->sums.high) / 2;
    }
    *(up ? &left->sums.high : &left->sums.low) = (float)middle;
    *(up ? &right->sums.low : &right->sums.high) = (float)middle;
}

static int grow_divide(struct tr_trees *m, struct leaf *leaf)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *left = leaf->child = &g->pool[g->pooled], *right = left + 1;
    uint32_t *row = m->row + leaf->begin;
    size_t column = leaf->split.column, n = leaf->end - leaf->begin;
    grow_find_bins_left(m, leaf);
    if (m->rows.first <= column && column < m->rows.end)
        sides_find(&m->bins, &m->rows, column, g->goes_left, row, n, m->side);
    if (m->members > 1) TR_TRY(tr_trees_send_sides(m, column, n));
    size_t middle = leaf->begin + rows_divide(m->side, row, m->pair + leaf->begin, n);
    *left = *right =
        (struct leaf){.begin = leaf->begin, .end = leaf->end, .depth = leaf->depth + 1, .sums = leaf->sums};
    left->end = right->begin = middle;
    left->sums.sum = leaf->split.left;
    right->sums.sum -= leaf->split.left;
    if (m->direction && m->direction[column] != 0) grow_set_bounds(m, column, left, right);
    g->pooled += 2;
    return TR_OK;
}

/* Finds the splits of the children of n leaves. The histogram of the smaller child is built; the other is the difference to the
 * parent's. */
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

/* Returns whether the histogram of a child takes no longer than a few messages. Then examining a leaf that is not split in the end
 * costs little. */
enum { FEW_NUMBERS = 1 << 18 };
static bool grow_is_small(const struct tr_trees_grower *g, const struct leaf *leaf)
{
    uint32_t all = tr_pair_curvature(leaf->sums.sum), left = tr_pair_curvature(leaf->split.left);
    double whole = tr_pair_curvature(g->pool[0].sums.sum), small = left < all - left ? left : all - left;
    return g->numbers * small <= FEW_NUMBERS * whole;
}

/* Divides the rows of the best leaf and finds the splits of its children. If this needs messages, other leaves are processed with it:
 * the better half of the leaves that can still be split. The tree does not depend on this choice. */
static int grow_prepare(struct tr_trees *m, size_t best)
{
    struct tr_trees_grower *g = m->grower;
    struct leaf *leaf[TR_MOST_TOGETHER];
    size_t splits = m->o->leaves - g->leaves, n = 0,
           most = tr_max_size(tr_trees_merge_together(m->merge), g->ahead + 1) - g->ahead;
    leaf[n++] = g->leaf[best];
    for (size_t k = best, before = 1; n < most && before < (splits + 1) / 2; before++) {
        k = grow_next_leaf(m, k);
        if (k == NONE) break;
        if (!g->leaf[k]->child && grow_is_small(g, g->leaf[k])) leaf[n++] = g->leaf[k];
    }
    for (size_t i = 0; i < n; i++) TR_TRY(grow_divide(m, leaf[i]));
    g->ahead += n;
    return splits > 1 ? grow_find_children(m, leaf, n) : TR_OK;
}

/* ---- values of leaves ---- */

/* Adds gradients and second derivatives, rounded to steps. There are fewer than 2^31 rows (most_rows() in trees.c), so no sum
 * overflows. */
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

/* If all members of a group have the rows of all leaves, each member sums some leaves. */
static bool leaves_is_mine(const struct tr_trees *m, size_t leaf)
{
    return leaf % m->members == m->member;
}

/* Computes the values of leaves from gradients that are not rounded to few bits. Sums of multiples of a small step do not depend on
 * their order. */
static int leaves_weigh(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
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
        g->node[g->leaf[k]->node].number = (float)(-G / fmax(H + m->o->l2, 1e-30));
        g->note[g->leaf[k]->node] = (struct tr_node_note){0, (float)H};
    }
    return TR_OK;
}

/* Weights of rows for quantiles. Losses without curvature have the weight as second derivative. */
static int leaves_find_weights(const struct tr_trees *m, float **weight)
{
    float gradient[TR_GRADIENTS];
    if (!m->weight && !m->drawn) return TR_OK;
    TR_TRY(TR_NEW(weight, m->rows.n));
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, gradient, *weight + i);
    }
    return TR_OK;
}

/* Losses without curvature: replaces the values of leaves by quantiles of the residuals. */
static int leaves_renew(struct tr_trees *m, double part)
{
    struct tr_trees_grower *g = m->grower;
    struct tr_row_set *set;
    float *value = NULL, *weight = NULL;
    TR_TRY(TR_NEW(&set, g->leaves));
    int status = TR_NEW(&value, g->leaves);
    if (status == TR_OK && !m->scratch) status = TR_NEW(&m->scratch, m->rows.n);
    if (status == TR_OK) status = leaves_find_weights(m, &weight);
    for (size_t i = 0; i < m->rows.n && status == TR_OK; i++) m->scratch[i] = m->label[i] - m->score[i];
    for (size_t k = 0; k < g->leaves; k++)
        set[k] = (struct tr_row_set){m->row + g->leaf[k]->begin,
                                     leaves_is_mine(m, k) ? g->leaf[k]->end - g->leaf[k]->begin : 0};
    if (status == TR_OK)
        status =
            tr_weighted_quantiles(m->tr, TR_SET_WORKERS, set, g->leaves, m->scratch, weight, part, value);
    for (size_t k = 0; k < g->leaves && status == TR_OK; k++) g->node[g->leaf[k]->node].number = value[k];
    free(weight);
    free(value);
    free(set);
    return status;
}

static int leaves_set_values(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
    double part, rate = m->o->rate * pow(1 - m->o->decay, (double)m->tree.round);
    TR_TRY(leaves_weigh(m));
    if (tr_trees_is_quantile(m, &part)) TR_TRY(leaves_renew(m, part));
    for (size_t k = 0; k < g->leaves; k++) {
        const struct leaf *leaf = g->leaf[k];
        float *value = &g->node[leaf->node].number;
        *value = (float)(rate * (double)fminf(fmaxf(*value, leaf->sums.low), leaf->sums.high));
    }
    return TR_OK;
}

/* Adds the tree to the scores of training rows. If it was grown on all rows, the lists contain the leaf of each row. */
static int grow_add_scores(struct tr_trees *m)
{
    const struct tr_trees_grower *g = m->grower;
    float *score = m->score + m->tree.output * m->rows.n;
    if (m->o->rows < 1 && m->members == 1) return tr_trees_score(m, &m->rows, m->forest.trees - 1, m->score);
    for (size_t k = 0; k < g->leaves; k++) {
        const struct leaf *leaf = g->leaf[k];
        float value = g->node[leaf->node].number;
        for (size_t i = leaf->begin; i < leaf->end; i++) score[m->row[i]] += value;
    }
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
    TR_TRY(leaves_set_values(m));
    TR_TRY(tr_forest_add(&m->forest, g->node, g->note, g->nodes));
    return grow_add_scores(m);
}

/* ---- opening ---- */

static int grow_count_numbers(struct tr_trees *m)
{
    const struct tr_binned *rows = &m->rows;
    double n = rows->block   ? (double)rows->n * (double)rows->bundles
               : rows->n > 0 ? (double)rows->begin[rows->n]
                             : 0;
    if (tr_trees_merge_together(m->merge) == 1) return TR_OK;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &n, 1));
    m->grower->numbers = n / tr_workers(m->tr);
    return TR_OK;
}

int tr_grower_open(struct tr_trees *m)
{
    struct tr_trees_grower *g;
    size_t n = m->rows.n + SPARE, leaves = (size_t)m->o->leaves,
           most = leaves + tr_trees_merge_together(m->merge);
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
    g->share = *tr_trees_merge_share(m->merge);
    if (m->voting) g->share = (struct tr_trees_share){0, m->bins.columns, 0, m->bins.total};
    TR_TRY(TR_NEW(&g->own, most));
    TR_TRY(TR_NEW(&g->slot, most * g->share.bins));
    TR_TRY(TR_NEW(&g->pool, 2 * most));
    TR_TRY(TR_NEW(&g->leaf, leaves));
    TR_TRY(TR_NEW(&g->sums, 2 * leaves));
    TR_TRY(TR_NEW(&g->node, 2 * leaves));
    TR_TRY(TR_NEW(&g->note, 2 * leaves));
    return grow_count_numbers(m);
}

void tr_grower_close(struct tr_trees *m)
{
    struct tr_trees_grower *g = m->grower;
    free(m->row);
    free(m->pair);
    free(m->scratch);
    free(m->drawn);
    free(m->side);
    tr_voting_close(&m->voting);
    tr_trees_merge_close(&m->merge);
    free(m->categories);
    if (!g) return;
    void *arrays[] = {g->goes_left, g->slot, g->own, g->pool, g->leaf, g->sums, g->node, g->note};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(g);
    m->grower = NULL;
}

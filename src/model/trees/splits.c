/* The best split of a leaf by one column. */
#include <math.h>
#include <stdlib.h>

#include "trees.h"

/* ================ ranges of numbers ================ */

/* Returns the gain of a child whose gradients sum to g and second derivatives to h.
 *
 * @param [out] value  of the child as a leaf, within its bounds
 */
static inline float child_gain(const struct tr_scan *s, float g, float h, float l2, float *value)
{
    float v = -g / (h + l2);
    *value = v < s->low ? s->low : v > s->high ? s->high : v;
    return -*value * (2 * g + (h + l2) * *value);
}

static inline float split_gain(const struct tr_scan *s, float g, float h)
{
    float other_g = s->all_gradient - g, other_h = s->all_curvature - h;
    float value = g * g / (h + s->l2) + other_g * other_g / (other_h + s->l2) - s->parent;
    return h < s->least || other_h < s->least ? 0 : value;
}

/* Like scan_bins(), for fewer bins than vector instructions pay for. Sparse rows have many columns with two bins. */
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

/* Returns the first bin with the largest gain, and the gain; n if no gain is larger than *most. Positive floats have the order of
 * their bits. */
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
 * @param [in] before  sums of missing numbers that go left too */
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

/* Like scan_bins(), with model.monotone: the values of the children are within the bounds of the leaf and ordered by `direction` (0:
 * any order). */
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

/* Tries the splits of a numeric column, with missing numbers on either side. */
static void scan_numbers(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t c,
                         struct tr_split *best)
{
    const struct tr_column_bins *column = &m->bins.column[c];
    size_t numbers = (size_t)column->bins - column->missing;
    tr_pair missing = column->missing ? hist[numbers] : 0;
    for (int left = 0; left <= (missing != 0); left++) {
        size_t n = numbers - 1 + (missing != 0 && !left);
        tr_pair before = left ? missing : 0;
        if (m->direction) scan_bounded(s, m->direction[c], hist, n, before, best, (uint32_t)c, left);
        else scan_bins(s, hist, n, before, best, (uint32_t)c, left);
    }
}

/* ================ sets of categories ================ */

/* Values are sorted by their mean gradient, and a prefix or a suffix of this order goes left; for two classes and squared errors no
 * other set is better (Fisher 1958; Ke et al., LightGBM, NIPS 2017). Four rules of LightGBM prevent that rare values are overfit:
 * sums are smoothed, children are regularized more than those of numbers, few values go left, and each side has a minimum of
 * rows. */
enum { ONE_VALUE = 4 }; /* up to this number of values, only single values go left */

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

/* Sets *best: the first n values go left, in steps of `step`. */
static void category_set_split(const struct tr_category_value *value, ptrdiff_t step, size_t n,
                               const tr_pair *hist, float gain, uint32_t column, struct tr_split *best)
{
    *best = (struct tr_split){.gain = gain, .column = column, .values = (uint16_t)n};
    for (size_t i = 0; i < n; i++, value += step) {
        best->value[i] = (uint16_t)value->bin;
        best->left += hist[value->bin];
    }
}

/* Tries the sets that start at one end of the order. */
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

/* ================ the splits of a column ================ */

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
                          .l2 = (float)m->o->l2,
                          .parent = (float)(G * G / (H + m->o->l2)),
                          .low = leaf->low,
                          .high = leaf->high};
    if (m->direction) s->parent = child_gain(s, s->all_gradient, s->all_curvature, s->l2, &value);
    s->nothing = (float)fmax(m->o->gamma, 1e-6);
    return s->all_curvature >= 2 * s->least;
}

void tr_scan_column(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t c,
                    struct tr_split *best)
{
    const struct tr_column_bins *column = &m->bins.column[c];
    if (column->bins < 2) return;
    tr_pair apart = s->sum - hist[column->zero]; /* one of the two children has at most these rows */
    if ((float)tr_pair_curvature(apart) * s->curvature < s->least || !column_is_drawn(m, c)) return;
    if (column->category)
        scan_category(m->categories, s, m->o, hist, (size_t)column->bins - column->missing, (uint32_t)c,
                      best);
    else scan_numbers(m, s, hist, c, best);
}

bool tr_split_is_better(const struct tr_split *a, const struct tr_split *b)
{
    return a->gain > b->gain || (a->gain == b->gain && a->gain > 0 && a->column < b->column);
}

size_t tr_split_bytes(const struct tr_trees *m)
{
    return m->values ? sizeof(struct tr_split) : offsetof(struct tr_split, value);
}

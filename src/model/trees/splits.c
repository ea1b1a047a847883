/* The best split of a leaf by a column, from the sums of its bins. */
#include <math.h>

#include "trees.h"

static inline float gain_of(const struct tr_scan *s, float g, float h)
{
    float other_g = s->all_gradient - g, other_h = s->all_curvature - h;
    float value = g * g / (h + s->l2) + other_g * other_g / (other_h + s->l2) - s->parent;
    return h < s->least || other_h < s->least ? 0 : value;
}

/* As scan_bins(), for so few bins that vectors do not pay: columns of two bins are many where rows are sparse. */
enum { FEW_BINS = 4 };
static void scan_few(const struct tr_scan *s, const tr_pair *hist, size_t n, tr_pair left,
                     struct tr_split *best, uint32_t column, bool missing_left)
{
    for (size_t t = 0; t < n; t++) {
        left += hist[t];
        float gain = gain_of(s, (float)(int32_t)tr_pair_gradient(left) * s->gradient,
                             (float)tr_pair_curvature(left) * s->curvature);
        if (gain > best->gain)
            *best = (struct tr_split){.gain = gain,
                                      .column = column,
                                      .bin = (uint32_t)t,
                                      .missing_left = missing_left,
                                      .left = left};
    }
}

/* The first of the bins whose gain is largest, if that is above *most; n if none is. Gains above 0 have the order of their bits. */
TR_CPU_CLONES static size_t best_bin(const struct tr_scan *s, const tr_pair *sum, size_t n, float *most)
{
    union {
        float gain;
        int32_t bits;
    } of[TR_BINS], best = {*most};
    for (size_t t = 0; t < n; t++)
        of[t].gain = gain_of(s, (float)(int32_t)tr_pair_gradient(sum[t]) * s->gradient,
                             (float)tr_pair_curvature(sum[t]) * s->curvature);
    int32_t largest = best.bits;
    for (size_t t = 0; t < n; t++) largest = of[t].bits > largest ? of[t].bits : largest;
    if (largest == best.bits) return n;
    size_t at = 0;
    while (of[at].bits != largest) at++;
    *most = of[at].gain;
    return at;
}

/* Bins 0 .. t go left, for each t below n; `before` goes left, too. The first of the best. */
static void scan_bins(const struct tr_scan *s, const tr_pair *hist, size_t n, tr_pair before,
                      struct tr_split *best, uint32_t column, bool missing_left)
{
    tr_pair sum[TR_BINS], left = before;
    float most = best->gain;
    if (n < FEW_BINS) {
        scan_few(s, hist, n, before, best, column, missing_left);
        return;
    }
    for (size_t t = 0; t < n; t++) sum[t] = left += hist[t];
    size_t at = best_bin(s, sum, n, &most);
    if (at < n)
        *best = (struct tr_split){.gain = most,
                                  .column = column,
                                  .bin = (uint32_t)at,
                                  .missing_left = missing_left,
                                  .left = sum[at]};
}

static bool is_drawn(const struct tr_trees *m, size_t column)
{
    double part = m->o->columns;
    if (part >= 1) return true;
    uint64_t random =
        tr_mix(tr_mix(tr_mix(m->seed) ^ (m->tree.round * m->outputs + m->tree.output)) + column);
    return (double)(random >> 11) < part * 0x1p53;
}

/* Of numbers, of which some may be missing: these go either way. */
static void scan_numbers(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t c,
                         struct tr_split *best)
{
    const struct tr_column_bins *column = &m->bins.column[c];
    size_t numbers = (size_t)column->bins - column->missing;
    tr_pair missing = column->missing ? hist[numbers] : 0;
    for (int left = 0; left <= (missing != 0); left++) {
        size_t n = numbers - 1 + (missing != 0 && !left);
        tr_pair before = left ? missing : 0;
        if (m->direction) tr_scan_bounded(s, m->direction[c], hist, n, before, best, (uint32_t)c, left);
        else scan_bins(s, hist, n, before, best, (uint32_t)c, left);
    }
}

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
    if (m->direction) s->parent = tr_child_gain(s, s->all_gradient, s->all_curvature, s->l2, &value);
    s->nothing = (float)fmax(m->o->gamma, 1e-6);
    return s->all_curvature >= 2 * s->least;
}

void tr_scan_column(const struct tr_trees *m, const struct tr_scan *s, const tr_pair *hist, size_t c,
                    struct tr_split *best)
{
    const struct tr_column_bins *column = &m->bins.column[c];
    if (column->bins < 2) return;
    tr_pair apart = s->sum - hist[column->zero]; /* one of two children has no more than these rows */
    if ((float)tr_pair_curvature(apart) * s->curvature < s->least || !is_drawn(m, c)) return;
    if (column->category)
        tr_scan_category(m->categories, s, m->o, hist, (size_t)column->bins - column->missing, (uint32_t)c,
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

/* Splits of columns of categories: values are sorted by their mean gradient, and of this order some of the first, or of the last, go
 * left; of two classes or squared errors no other sets are better (Fisher 1958; Ke et al., LightGBM, NIPS 2017). What keeps rare
 * values from being learnt by heart is LightGBM's, too: sums are smoothed, the two children are shrunk more than those of numbers,
 * few values go left at once, and so many rows at least come with them. */
#include <stdlib.h>

#include "trees.h"

enum { ONE_VALUE = 4 }; /* up to so many values each is tried alone */

struct value {
    float order, gradient, curvature;
    uint32_t bin;
};

struct tr_category_scan {
    struct value *value;
};

int tr_category_scan_open(size_t most_values, struct tr_category_scan **scan)
{
    TR_TRY(TR_NEW(scan, 1));
    return TR_NEW(&(*scan)->value, most_values);
}

void tr_category_scan_close(struct tr_category_scan **scan)
{
    if (*scan) free((*scan)->value);
    free(*scan);
    *scan = NULL;
}

static int by_order(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return (x->bin > y->bin) - (x->bin < y->bin);
}

static float gain_of(const struct tr_scan *s, float g, float h, float l2)
{
    float value;
    return tr_child_gain(s, g, h, l2, &value) +
           tr_child_gain(s, s->all_gradient - g, s->all_curvature - h, l2, &value) - s->parent;
}

/* The first n values of a list that is gone through by `step` go left. */
static void take(const struct value *value, ptrdiff_t step, size_t n, const tr_pair *hist, float gain,
                 uint32_t column, struct tr_split *best)
{
    *best = (struct tr_split){.gain = gain, .column = column, .values = (uint16_t)n};
    for (size_t i = 0; i < n; i++, value += step) {
        best->value[i] = (uint16_t)value->bin;
        best->left += hist[value->bin];
    }
}

static void scan_single(const struct tr_scan *s, const struct value *value, size_t n, const tr_pair *hist,
                        uint32_t column, struct tr_split *best)
{
    for (size_t i = 0; i < n; i++) {
        float g = value[i].gradient, h = value[i].curvature, gain = gain_of(s, g, h, s->l2);
        if (h >= s->least && s->all_curvature - h >= s->least && gain > best->gain)
            take(&value[i], 1, 1, hist, gain, column, best);
    }
}

/* From one end of the order. */
static void scan_order(const struct tr_scan *s, const struct tr_trees_options *o, const struct value *value,
                       ptrdiff_t step, size_t n, const tr_pair *hist, uint32_t column, struct tr_split *best)
{
    float g = 0, h = 0, fresh = 0, least = (float)o->category_rows * s->row;
    size_t most = tr_min_size((n + 1) / 2, (size_t)o->category_values);
    for (size_t i = 0; i < most; i++) {
        const struct value *v = value + step * (ptrdiff_t)i;
        g += v->gradient;
        h += v->curvature;
        fresh += v->curvature;
        float other_h = s->all_curvature - h;
        if (other_h < s->least || other_h < least) return;
        if (h < s->least || fresh < least) continue;
        fresh = 0;
        float gain = gain_of(s, g, h, s->l2 + (float)o->category_l2);
        if (gain > best->gain) take(value, step, i + 1, hist, gain, column, best);
    }
}

void tr_scan_category(struct tr_category_scan *scan, const struct tr_scan *s,
                      const struct tr_trees_options *o, const tr_pair *hist, size_t n, uint32_t column,
                      struct tr_split *best)
{
    struct value *value = scan->value;
    float smoothing = (float)o->category_smoothing, least = n > ONE_VALUE ? smoothing * s->row : 0;
    size_t used = 0;
    for (size_t b = 0; b < n; b++) {
        float g = (float)tr_pair_gradient(hist[b]) * s->gradient,
              h = (float)tr_pair_curvature(hist[b]) * s->curvature;
        if (hist[b] != 0 && h >= least)
            value[used++] = (struct value){g / (h + smoothing), g, h, (uint32_t)b};
    }
    if (used == 0) return;
    if (n <= ONE_VALUE) {
        scan_single(s, value, used, hist, column, best);
        return;
    }
    qsort(value, used, sizeof *value, by_order);
    scan_order(s, o, value, 1, used, hist, column, best);
    scan_order(s, o, value + used - 1, -1, used, hist, column, best);
}

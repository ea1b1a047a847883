#include <math.h>
#include <stdlib.h>

#include "trees.h"

/* Of row i: the same 32 random bits wherever the row is. */
static inline uint32_t random_of(uint32_t number, uint32_t salt)
{
    uint32_t x = (number ^ salt) * 0x9e3779b1u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* most, sum: of a row's scores. */
TR_CPU_CLONES static void softmax(const float *score, const float *label, const float *most, const float *sum,
                                  float name, float factor, size_t n, float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        float p = tr_fast_exp(score[i] - most[i]) / sum[i];
        g[i] = p - (label[i] == name ? 1.0f : 0.0f);
        h[i] = factor * p * (1 - p);
    }
}

void tr_gradients_begin(struct tr_trees *m)
{
    size_t n = m->rows.n;
    if (m->outputs == 1) return;
    for (size_t i = 0; i < n; i++) m->most[i] = m->score[i];
    for (size_t k = 1; k < m->outputs; k++)
        for (size_t i = 0; i < n; i++) m->most[i] = fmaxf(m->most[i], m->score[k * n + i]);
    for (size_t i = 0; i < n; i++) m->sum[i] = 0;
    for (size_t k = 0; k < m->outputs; k++)
        for (size_t i = 0; i < n; i++) m->sum[i] += tr_fast_exp(m->score[k * n + i] - m->most[i]);
}

/* ---- of some rows: computed whenever they are needed, so that nothing is kept of each row ---- */

/* What is known of n rows: of a list they are brought together in `room`. */
static const float *numbers_of(const float *number, const uint32_t *row, size_t first, size_t n, float *room)
{
    if (!row) return number + first;
    for (size_t i = 0; i < n; i++) room[i] = number[row[i]];
    return room;
}

static void find(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g, float *h)
{
    float room[4][TR_GRADIENTS];
    size_t output = m->tree.output;
    const float *score = numbers_of(m->score + output * m->rows.n, row, first, n, room[0]),
                *label = numbers_of(m->label, row, first, n, room[1]), *most, *sum;
    if (m->loss->joint) {
        most = numbers_of(m->most, row, first, n, room[2]);
        sum = numbers_of(m->sum, row, first, n, room[3]);
        softmax(score, label, most, sum, m->label_name[output], (float)m->outputs / (float)(m->outputs - 1),
                n, g, h);
    } else {
        float parameter = tr_trees_classify(m) ? m->label_name[1] : (float)tr_trees_shape(m);
        m->loss->trees.gradients(score, label, n, parameter, g, h);
    }
    if (!m->weight) return;
    const float *weight = numbers_of(m->weight, row, first, n, room[0]);
    for (size_t i = 0; i < n; i++) {
        g[i] *= weight[i];
        h[i] *= weight[i];
    }
}

void tr_gradients_of(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                     float *h)
{
    float factor = (float)(1 / m->o->rows);
    find(m, row, first, n, g, h);
    for (size_t i = 0; i < n && m->drawn; i++) {
        bool drawn = m->drawn[row ? row[i] : first + i],
             top = m->o->top == 0 || fabsf(g[i]) > m->tree.largest;
        float by = !drawn ? 0 : top ? 1 : factor;
        g[i] *= by;
        h[i] *= by;
    }
}

/* Down or up at random, so that the mean stays. */
TR_CPU_CLONES static void round_some(const struct tr_trees *m, uint32_t salt, const struct tr_units *units,
                                     const float *g, const float *h, const uint32_t *number, size_t n,
                                     uint32_t *pair)
{
    const int32_t most_g = (1 << (m->o->bits - 1)) - 1;
    float by_g = (float)(1 / units->gradient), by_h = (float)(1 / units->curvature),
          most_h = (float)((1 << m->o->bits) - 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t random = random_of(number[i], salt);
        float up_g = (float)(random & 0xffff) * 0x1p-16f, up_h = (float)(random >> 16) * 0x1p-16f;
        int32_t whole_g = (int32_t)floorf(g[i] * by_g + up_g);
        float whole_h = floorf(h[i] * by_h + up_h);
        whole_g = whole_g > most_g ? most_g : whole_g;
        pair[i] = ((uint32_t)whole_g << 16) + (uint32_t)(int32_t)(whole_h < most_h ? whole_h : most_h);
    }
}

TR_CPU_CLONES static void find_most(const float *g, const float *h, size_t n, float *most_g, float *most_h)
{
    float a = *most_g, b = *most_h;
    for (size_t i = 0; i < n; i++) {
        a = fabsf(g[i]) > a ? fabsf(g[i]) : a;
        b = h[i] > b ? h[i] : b;
    }
    *most_g = a;
    *most_h = b;
}

/* What the largest gradient, and the largest second derivative, are the most of that their bits can say. */
static int find_units(struct tr_trees *m, struct tr_units *units)
{
    float g[TR_GRADIENTS], h[TR_GRADIENTS], most_g = 0, most_h = 0;
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, g, h);
        find_most(g, h, n, &most_g, &most_h);
    }
    double most[2] = {(double)most_g, (double)most_h};
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, most, 2));
    if (!isfinite(most[0]) || !isfinite(most[1]))
        return tr_fail(TR_ERR_DIVERGED,
                       "trees: gradients are not finite: lower solve.rate, or the labels are too large");
    bool same = m->loss->trees.unit_curvature && !m->weight && m->o->top == 0;
    units->gradient = fmax(most[0], 1e-30) / ((1 << (m->o->bits - 1)) - 1);
    units->curvature = same ? 1 : fmax(most[1], 1e-30) / ((1 << m->o->bits) - 1);
    return TR_OK;
}

int tr_gradients(struct tr_trees *m)
{
    float g[TR_GRADIENTS], h[TR_GRADIENTS];
    TR_TRY(tr_draw_rows(m));
    TR_TRY(find_units(m, &m->tree.units));
    uint32_t salt = (uint32_t)tr_mix(tr_mix(m->seed ^ m->tree.round) + m->tree.output);
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, g, h);
        round_some(m, salt, &m->tree.units, g, h, m->number + i, n, m->pair + i);
    }
    return TR_OK;
}

bool tr_trees_is_quantile(const struct tr_trees *m, double *part)
{
    *part = m->loss->shape == TR_SHAPE_QUANTILE ? m->o->quantile : 0.5;
    return m->loss->trees.quantile;
}

/* Of one row, by the score of its label's class among those of all. */
static double softmax_loss(const struct tr_trees *m, const float *score, size_t apart, size_t class)
{
    double most = (double)score[0], total = 0;
    for (size_t k = 1; k < m->outputs; k++) most = fmax(most, (double)score[k * apart]);
    for (size_t k = 0; k < m->outputs; k++) total += exp((double)score[k * apart] - most);
    return log(total) + most - (double)score[class * apart];
}

double tr_trees_loss(const struct tr_trees *m, const float *label, const float *weight, const float *score,
                     size_t n, size_t apart)
{
    double sum = 0, shape = tr_trees_shape(m);
    bool classes = tr_trees_classify(m);
    for (size_t i = 0; i < n; i++) {
        size_t class = classes ? tr_trees_class_of(m, label[i]) : 0;
        double y = classes ? (class > 0 ? 1 : -1) : (double)label[i];
        double loss = m->loss->joint ? softmax_loss(m, score + i, apart, class)
                                     : m->loss->value((double)score[i], y, shape);
        sum += (weight ? (double)weight[i] : 1) * loss;
    }
    return sum;
}

/* Gradients of the loss, row weights, and sampling of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

/* ================ gradients ================ */

/* Returns 32 random bits that depend on the global number of a row, not on its worker. */
static inline uint32_t random_of_row(uint32_t number, uint32_t salt)
{
    uint32_t x = (number ^ salt) * 0x9e3779b1u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

/* Computes gradients and second derivatives of the softmax loss for the class with the label `name`. The arrays `most` and `sum`
 * have the meaning of the members of struct tr_trees. */
TR_CPU_CLONES static void gradients_softmax(const float *score, const float *label, const float *most,
                                            const float *sum, float name, float factor, size_t n, float *g,
                                            float *h)
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

/* ---- gradients of some rows: they are computed again at each use, to save memory ---- */

/* Returns an array of the numbers of n rows. With a list `row`, the numbers are copied to `room`, otherwise not copied. */
static const float *gradients_gather(const float *number, const uint32_t *row, size_t first, size_t n,
                                     float *room)
{
    if (!row) return number + first;
    for (size_t i = 0; i < n; i++) room[i] = number[row[i]];
    return room;
}

void tr_gradients_of(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                     float *h)
{
    float factor = (float)(1 / m->o->rows);
    float room[4][TR_GRADIENTS];
    size_t output = m->tree.output;
    const float *score = gradients_gather(m->score + output * m->rows.n, row, first, n, room[0]),
                *label = gradients_gather(m->label, row, first, n, room[1]), *most, *sum;
    if (m->loss->joint) {
        most = gradients_gather(m->most, row, first, n, room[2]);
        sum = gradients_gather(m->sum, row, first, n, room[3]);
        gradients_softmax(score, label, most, sum, m->label_name[output],
                          (float)m->outputs / (float)(m->outputs - 1), n, g, h);
    } else {
        float parameter = tr_trees_classify(m) ? m->label_name[1] : (float)m->shape;
        m->loss->trees.gradients(score, label, n, parameter, g, h);
    }
    if (m->weight) {
        const float *weight = gradients_gather(m->weight, row, first, n, room[0]);
        for (size_t i = 0; i < n; i++) {
            g[i] *= weight[i];
            h[i] *= weight[i];
        }
    }
    for (size_t i = 0; i < n && m->drawn; i++) {
        bool drawn = m->drawn[row ? row[i] : first + i],
             top = m->o->top == 0 || fabsf(g[i]) > m->tree.largest;
        float by = !drawn ? 0 : top ? 1 : factor;
        g[i] *= by;
        h[i] *= by;
    }
}

/* ================ weights ================ */

int tr_trees_weigh(struct tr_trees *m)
{
    TR_FREED double *of = NULL;
    bool by_class = *m->o->class_weights;
    if (!by_class && !m->train->weighted) return TR_OK;
    if (by_class) { /* set of[k] to the weight of class k */
        size_t labels = (size_t)m->labels;
        TR_FREED double *count = NULL;
        TR_TRY(TR_NEW(&of, labels));
        TR_TRY(TR_NEW(&count, labels));
        const float *weight = m->train->rows.weight;
        for (size_t i = 0; i < m->train->rows.n; i++)
            count[tr_trees_class_of(m, m->label[i])] += weight ? (double)weight[i] : 1;
        TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, labels));
        TR_TRY(tr_class_weights_find(m->job, m->o->class_weights, m->label_name, count, labels, of));
    }
    const tr_batch *rows = &m->train->rows;
    double most = 0;
    TR_TRY(TR_NEW(&m->weight, rows->n));
    for (size_t i = 0; i < rows->n; i++) {
        m->weight[i] = rows->weight ? rows->weight[i] : 1;
        if (of) m->weight[i] *= (float)of[tr_trees_class_of(m, m->label[i])];
        most = fmax(most, (double)m->weight[i]);
    }
    TR_TRY(tr_all_reduce(m->tr, TR_SET_ALL, TR_MAX, TR_F64, &most, 1));
    int exponent;
    (void)frexp(most, &exponent);
    m->weight_steps = ldexp(1, 24 - exponent);
    const char *key = *m->o->class_weights ? "model.class_weights" : "data.weight";
    if (!isfinite(most))
        return tr_fail(TR_ERR_CONFIG, "%s: %s gives a row a weight above 3e38", tr_job_where(m->job, key),
                       key);
    if (!(most > 0))
        return tr_fail(TR_ERR_CONFIG, "%s: %s leaves no row a weight above 0", tr_job_where(m->job, key),
                       key);
    return TR_OK;
}

/* ================ rows of a tree, and rounding ================ */

/* Writes pairs: gradients and second derivatives are rounded down or up at random, so that the expected error is 0. */
TR_CPU_CLONES static void gradients_round(const struct tr_trees *m, uint32_t salt,
                                          const struct tr_units *units, const float *g, const float *h,
                                          const uint32_t *number, size_t n, uint32_t *pair)
{
    const int32_t most_g = (1 << (m->o->bits - 1)) - 1;
    float by_g = (float)(1 / units->gradient), by_h = (float)(1 / units->curvature),
          most_h = (float)((1 << m->o->bits) - 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t random = random_of_row(number[i], salt);
        float up_g = (float)(random & 0xffff) * 0x1p-16f, up_h = (float)(random >> 16) * 0x1p-16f;
        int32_t whole_g = (int32_t)floorf(g[i] * by_g + up_g);
        float whole_h = floorf(h[i] * by_h + up_h);
        whole_g = whole_g > most_g ? most_g : whole_g;
        pair[i] = ((uint32_t)whole_g << 16) + (uint32_t)(int32_t)(whole_h < most_h ? whole_h : most_h);
    }
}

/* Raises *most_g to the largest |g[i]|, and *most_h to the largest h[i]. */
TR_CPU_CLONES static void gradients_find_most(const float *g, const float *h, size_t n, float *most_g,
                                              float *most_h)
{
    float a = *most_g, b = *most_h;
    for (size_t i = 0; i < n; i++) {
        a = fabsf(g[i]) > a ? fabsf(g[i]) : a;
        b = h[i] > b ? h[i] : b;
    }
    *most_g = a;
    *most_h = b;
}

int tr_gradients(struct tr_trees *m)
{
    float g[TR_GRADIENTS], h[TR_GRADIENTS];
    size_t rows = m->rows.n;
    if (m->o->rows < 1) {
        /* Draw the rows of the next tree. With solve.top_share, rows with the largest gradients are always drawn; other rows are
         * drawn at random and get a larger weight (gradient-based one-side sampling; Ke et al., LightGBM, NIPS 2017). */
        uint64_t draw = tr_mix(tr_mix(m->seed + 1) ^ m->tree.round);
        struct tr_row_set own = {NULL, m->own_rows};
        if (!m->drawn) TR_TRY(TR_NEW(&m->drawn, rows));
        if (m->o->top > 0) {
            if (!m->scratch) TR_TRY(TR_NEW(&m->scratch, rows));
            memset(m->drawn, 1, rows);
            m->tree.largest = 0;
            for (size_t i = 0, n; i < rows; i += n) {
                n = tr_min_size(TR_GRADIENTS, rows - i);
                tr_gradients_of(m, NULL, i, n, m->scratch + i, h);
                for (size_t k = i; k < i + n; k++) m->scratch[k] = fabsf(m->scratch[k]);
            }
            TR_TRY(tr_weighted_quantiles(m->tr, TR_SET_WORKERS, &own, 1, m->scratch + m->own_first, NULL,
                                         1 - m->o->top, &m->tree.largest));
        }
        for (size_t i = 0; i < rows; i++)
            m->drawn[i] = (double)(tr_mix(draw ^ m->number[i]) >> 11) < m->o->rows * 0x1p53 ||
                          (m->o->top > 0 && m->scratch[i] > m->tree.largest);
    }
    /* Choose the units such that the largest gradient and the largest second derivative of a row fit into their bits. */
    float most_g = 0, most_h = 0;
    for (size_t i = 0, n; i < rows; i += n) {
        n = tr_min_size(TR_GRADIENTS, rows - i);
        tr_gradients_of(m, NULL, i, n, g, h);
        gradients_find_most(g, h, n, &most_g, &most_h);
    }
    double most[2] = {(double)most_g, (double)most_h};
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, most, 2));
    if (!isfinite(most[0]) || !isfinite(most[1]))
        return tr_fail(TR_ERR_DIVERGED,
                       "trees: a gradient is not finite: expected a smaller solve.rate or smaller labels");
    bool same = m->loss->trees.unit_curvature && !m->weight && m->o->top == 0;
    m->tree.units.gradient = fmax(most[0], 1e-30) / ((1 << (m->o->bits - 1)) - 1);
    m->tree.units.curvature = same ? 1 : fmax(most[1], 1e-30) / ((1 << m->o->bits) - 1);
    uint32_t salt = (uint32_t)tr_mix(tr_mix(m->seed ^ m->tree.round) + m->tree.output);
    for (size_t i = 0, n; i < rows; i += n) {
        n = tr_min_size(TR_GRADIENTS, rows - i);
        tr_gradients_of(m, NULL, i, n, g, h);
        gradients_round(m, salt, &m->tree.units, g, h, m->number + i, n, m->pair + i);
    }
    return TR_OK;
}

bool tr_trees_is_quantile(const struct tr_trees *m, double *part)
{
    *part = m->loss->shape == TR_SHAPE_QUANTILE ? m->o->quantile : 0.5;
    return m->loss->trees.quantile;
}

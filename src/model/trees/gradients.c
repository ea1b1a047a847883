/* Gradients of the loss, row weights, and sampling of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../labels.h"
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

/* Gradients of the softmax loss; most and sum are those of struct tr_trees. */
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

/* ---- gradients of some rows: they are computed whenever they are needed, to save memory ---- */

/* Returns the numbers of n rows; those of a list are copied to `room`. */
static const float *gradients_gather(const float *number, const uint32_t *row, size_t first, size_t n,
                                     float *room)
{
    if (!row) return number + first;
    for (size_t i = 0; i < n; i++) room[i] = number[row[i]];
    return room;
}

static void gradients_find(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                           float *h)
{
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
        float parameter = tr_trees_classify(m) ? m->label_name[1] : (float)tr_trees_shape(m);
        m->loss->trees.gradients(score, label, n, parameter, g, h);
    }
    if (!m->weight) return;
    const float *weight = gradients_gather(m->weight, row, first, n, room[0]);
    for (size_t i = 0; i < n; i++) {
        g[i] *= weight[i];
        h[i] *= weight[i];
    }
}

void tr_gradients_of(const struct tr_trees *m, const uint32_t *row, size_t first, size_t n, float *g,
                     float *h)
{
    float factor = (float)(1 / m->o->rows);
    gradients_find(m, row, first, n, g, h);
    for (size_t i = 0; i < n && m->drawn; i++) {
        bool drawn = m->drawn[row ? row[i] : first + i],
             top = m->o->top == 0 || fabsf(g[i]) > m->tree.largest;
        float by = !drawn ? 0 : top ? 1 : factor;
        g[i] *= by;
        h[i] *= by;
    }
}

/* ================ weights and the rows of a tree ================ */

/* ---- weights ---- */

/* Computes the weight of each label from model.class_weights. */
static int weights_of_labels(const struct tr_trees *m, double *of)
{
    size_t labels = (size_t)m->labels;
    double *count;
    TR_TRY(TR_NEW(&count, labels));
    const float *weight = m->train->rows.weight;
    for (size_t i = 0; i < m->train->rows.n; i++)
        count[tr_trees_class_of(m, m->label[i])] += weight ? (double)weight[i] : 1;
    int status = tr_all_reduce(m->tr, TR_SET_ALL, TR_SUM, TR_F64, count, labels);
    if (status == TR_OK)
        status = tr_class_weights_find(m->job, m->o->class_weights, m->label_name, count, labels, of);
    free(count);
    return status;
}

static int weights_fill(struct tr_trees *m, const double *of)
{
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

int tr_trees_weigh(struct tr_trees *m)
{
    double *of = NULL;
    bool by_class = *m->o->class_weights;
    if (!by_class && !m->train->weighted) return TR_OK;
    int status = by_class ? TR_NEW(&of, (size_t)m->labels) : TR_OK;
    if (status == TR_OK && by_class) status = weights_of_labels(m, of);
    if (status == TR_OK) status = weights_fill(m, of);
    free(of);
    return status;
}

/* ---- rows of a tree ---- */

static inline bool row_is_drawn(const struct tr_trees *m, uint64_t salt, size_t i)
{
    return (double)(tr_mix(salt ^ m->number[i]) >> 11) < m->o->rows * 0x1p53;
}

/* Computes the absolute gradients of all rows. */
static int rows_find_sizes(struct tr_trees *m)
{
    float h[TR_GRADIENTS];
    if (!m->scratch) TR_TRY(TR_NEW(&m->scratch, m->rows.n));
    memset(m->drawn, 1, m->rows.n);
    m->tree.largest = 0;
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, m->scratch + i, h);
        for (size_t k = i; k < i + n; k++) m->scratch[k] = fabsf(m->scratch[k]);
    }
    return TR_OK;
}

/* Draws the rows of the next tree. With solve.top_share, rows with the largest gradients are always drawn; the others are drawn at
 * random and get a larger weight (gradient-based one-side sampling; Ke et al., LightGBM, NIPS 2017). */
static int rows_draw(struct tr_trees *m)
{
    uint64_t salt = tr_mix(tr_mix(m->seed + 1) ^ m->tree.round);
    size_t n = m->rows.n;
    struct tr_row_set own = {NULL, m->own_rows};
    if (m->o->rows >= 1) return TR_OK;
    if (!m->drawn) TR_TRY(TR_NEW(&m->drawn, n));
    if (m->o->top > 0) {
        TR_TRY(rows_find_sizes(m));
        TR_TRY(tr_weighted_quantiles(m->tr, TR_SET_WORKERS, &own, 1, m->scratch + m->own_first, NULL,
                                     1 - m->o->top, &m->tree.largest));
    }
    for (size_t i = 0; i < n; i++)
        m->drawn[i] = row_is_drawn(m, salt, i) || (m->o->top > 0 && m->scratch[i] > m->tree.largest);
    return TR_OK;
}

/* ================ rounding ================ */

/* Rounds gradients down or up at random, without bias. */
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

/* Finds the units such that the largest gradient and the largest second derivative fit into their bits. */
static int gradients_find_units(struct tr_trees *m, struct tr_units *units)
{
    float g[TR_GRADIENTS], h[TR_GRADIENTS], most_g = 0, most_h = 0;
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
        tr_gradients_of(m, NULL, i, n, g, h);
        gradients_find_most(g, h, n, &most_g, &most_h);
    }
    double most[2] = {(double)most_g, (double)most_h};
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, most, 2));
    if (!isfinite(most[0]) || !isfinite(most[1]))
        return tr_fail(TR_ERR_DIVERGED,
                       "trees: a gradient is not finite: expected a smaller solve.rate or smaller labels");
    bool same = m->loss->trees.unit_curvature && !m->weight && m->o->top == 0;
    units->gradient = fmax(most[0], 1e-30) / ((1 << (m->o->bits - 1)) - 1);
    units->curvature = same ? 1 : fmax(most[1], 1e-30) / ((1 << m->o->bits) - 1);
    return TR_OK;
}

int tr_gradients(struct tr_trees *m)
{
    float g[TR_GRADIENTS], h[TR_GRADIENTS];
    TR_TRY(rows_draw(m));
    TR_TRY(gradients_find_units(m, &m->tree.units));
    uint32_t salt = (uint32_t)tr_mix(tr_mix(m->seed ^ m->tree.round) + m->tree.output);
    for (size_t i = 0, n; i < m->rows.n; i += n) {
        n = tr_min_size(TR_GRADIENTS, m->rows.n - i);
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

/* Softmax loss of one row. */
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

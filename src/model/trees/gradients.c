#include <math.h>
#include <stdlib.h>

#include "trees.h"

/* exp(x) for |x| up to 87, by a polynomial of 2^f: without a call, so that loops of it become vectors. Errs by 2e-7 at most. */
static inline float fast_exp(float x)
{
    x = x > 87 ? 87 : x < -87 ? -87 : x;
    float t = x * 1.44269504f, whole = (t + 12582912.0f) - 12582912.0f, f = t - whole;
    float p = 1.8775767e-3f;
    p = p * f + 8.9893397e-3f;
    p = p * f + 5.5826318e-2f;
    p = p * f + 2.4015361e-1f;
    p = p * f + 6.9315308e-1f;
    p = p * f + 1;
    union {
        int32_t bits;
        float value;
    } power = {((int32_t)whole + 127) << 23};
    return p * power.value;
}

/* Of row i: the same 32 random bits wherever the row is. */
static inline uint32_t random_of(uint32_t number, uint32_t salt)
{
    uint32_t x = (number ^ salt) * 0x9e3779b1u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

TR_CPU_CLONES static void logistic(const float *score, const float *label, size_t n, float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        float p = 1 / (1 + fast_exp(-score[i]));
        g[i] = p - label[i];
        h[i] = p * (1 - p);
    }
}

TR_CPU_CLONES static void squared(const float *score, const float *label, size_t n, float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        g[i] = score[i] - label[i];
        h[i] = 1;
    }
}

TR_CPU_CLONES static void poisson(const float *score, const float *label, size_t n, float *g, float *h)
{
    for (size_t i = 0; i < n; i++) {
        h[i] = fast_exp(score[i]);
        g[i] = h[i] - label[i];
    }
}

TR_CPU_CLONES static void softmax(const struct tr_trees *m, size_t output, size_t n, float *g, float *h)
{
    const float *score = m->score + output * n;
    float factor = (float)m->outputs / (float)(m->outputs - 1);
    for (size_t i = 0; i < n; i++) {
        float p = fast_exp(score[i] - m->most[i]) / m->sum[i];
        g[i] = p - (float)(m->label[i] == (float)output);
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
        for (size_t i = 0; i < n; i++) m->sum[i] += fast_exp(m->score[k * n + i] - m->most[i]);
}

static void find(struct tr_trees *m, size_t output)
{
    size_t n = m->rows.n;
    const float *score = m->score + output * n;
    switch (m->objective) {
    case TR_OBJECTIVE_LOGISTIC: logistic(score, m->label, n, m->gradient, m->curvature); break;
    case TR_OBJECTIVE_POISSON: poisson(score, m->label, n, m->gradient, m->curvature); break;
    case TR_OBJECTIVE_SOFTMAX: softmax(m, output, n, m->gradient, m->curvature); break;
    default: squared(score, m->label, n, m->gradient, m->curvature); break;
    }
}

/* Down or up at random, so that the mean stays. */
TR_CPU_CLONES static void round_all(const struct tr_trees *m, uint32_t salt, const struct tr_units *units,
                                    uint32_t *pair)
{
    const float *g = m->gradient, *h = m->curvature, most_h = (float)((1 << m->o->bits) - 1);
    const int32_t most_g = (1 << (m->o->bits - 1)) - 1;
    float by_g = (float)(1 / units->gradient), by_h = (float)(1 / units->curvature);
    for (size_t i = 0; i < m->rows.n; i++) {
        uint32_t random = random_of((uint32_t)m->number[i], salt);
        float up_g = (float)(random & 0xffff) * 0x1p-16f, up_h = (float)(random >> 16) * 0x1p-16f;
        int32_t whole_g = (int32_t)floorf(g[i] * by_g + up_g);
        float whole_h = floorf(h[i] * by_h + up_h);
        whole_g = whole_g > most_g ? most_g : whole_g;
        pair[i] = ((uint32_t)whole_g << 16) + (uint32_t)(int32_t)(whole_h < most_h ? whole_h : most_h);
    }
}

TR_CPU_CLONES static void find_most(const float *g, const float *h, size_t n, float *most_g, float *most_h)
{
    float a = 0, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = fabsf(g[i]) > a ? fabsf(g[i]) : a;
        b = h[i] > b ? h[i] : b;
    }
    *most_g = a;
    *most_h = b;
}

int tr_gradients(struct tr_trees *m, size_t output, uint64_t round, struct tr_units *units)
{
    double most[2] = {0};
    float most_g, most_h;
    find(m, output);
    find_most(m->gradient, m->curvature, m->rows.n, &most_g, &most_h);
    most[0] = (double)most_g;
    most[1] = (double)most_h;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, most, 2));
    if (!isfinite(most[0]) || !isfinite(most[1]))
        return tr_fail(TR_ERR_DIVERGED,
                       "trees: gradients are not finite: lower solve.rate, or the labels are too large");
    bool same = m->objective == TR_OBJECTIVE_SQUARED; /* all second derivatives are 1 */
    units->gradient = fmax(most[0], 1e-30) / ((1 << (m->o->bits - 1)) - 1);
    units->curvature = same ? 1 : fmax(most[1], 1e-30) / ((1 << m->o->bits) - 1);
    uint32_t salt = (uint32_t)tr_mix(tr_mix(m->seed ^ round) + output);
    round_all(m, salt, units, m->lists.pair[0]);
    return TR_OK;
}

double tr_trees_loss(const struct tr_trees *m, const float *label, const float *score, size_t n, size_t apart)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double s = (double)score[i], y = (double)label[i], total = 0, most = s;
        switch (m->objective) {
        case TR_OBJECTIVE_LOGISTIC: sum += (s > 0 ? log1p(exp(-s)) + s : log1p(exp(s))) - y * s; break;
        case TR_OBJECTIVE_POISSON: sum += exp(s) - y * s; break;
        case TR_OBJECTIVE_SOFTMAX:
            for (size_t k = 1; k < m->outputs; k++) most = fmax(most, (double)score[k * apart + i]);
            for (size_t k = 0; k < m->outputs; k++) total += exp((double)score[k * apart + i] - most);
            sum += log(total) + most - (double)score[(size_t)y * apart + i];
            break;
        default: sum += (s - y) * (s - y) / 2; break;
        }
    }
    return sum;
}

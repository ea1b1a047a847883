/* The passes for one element type: included by pass.c with REAL and NAME(x) defined. No include guard. */

static inline double NAME(dot)(const struct tr_problem *p, size_t i, const REAL *restrict w)
{
    const uint32_t *restrict column = p->rows.column;
    const float *restrict value = p->rows.value;
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    if (value) {
        for (; k + 4 <= end; k += 4) {
            s0 += (double)(value[k] * w[column[k]]);
            s1 += (double)(value[k + 1] * w[column[k + 1]]);
            s2 += (double)(value[k + 2] * w[column[k + 2]]);
            s3 += (double)(value[k + 3] * w[column[k + 3]]);
        }
        for (; k < end; k++) s0 += (double)(value[k] * w[column[k]]);
    } else {
        for (; k + 4 <= end; k += 4) {
            s0 += (double)w[column[k]];
            s1 += (double)w[column[k + 1]];
            s2 += (double)w[column[k + 2]];
            s3 += (double)w[column[k + 3]];
        }
        for (; k < end; k++) s0 += (double)w[column[k]];
    }
    if (p->bias) s0 += (double)w[p->keys];
    return (s0 + s1) + (s2 + s3);
}

static inline void NAME(add)(const struct tr_problem *p, size_t i, REAL step, REAL *restrict w)
{
    const uint32_t *restrict column = p->rows.column;
    const float *restrict value = p->rows.value;
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    if (value)
        for (; k < end; k++) w[column[k]] += step * value[k];
    else
        for (; k < end; k++) w[column[k]] += step;
    if (p->bias) w[p->keys] += step;
}

static void NAME(margins)(const struct tr_problem *p, size_t first, size_t n, const REAL *w, double *margin)
{
    for (size_t i = 0; i < n; i++) margin[i] = NAME(dot)(p, first + i, w);
}

static void NAME(add_rows)(const struct tr_problem *p, size_t first, size_t n, const double *slope,
                           double rate, const float *reg, const REAL *old, REAL *w)
{
    for (size_t i = 0; i < n; i++) {
        NAME(add)(p, first + i, (REAL)(-rate * slope[i]), w);
        if (!reg) continue;
        for (uint64_t k = p->rows.begin[first + i]; k < p->rows.begin[first + i + 1]; k++) {
            uint32_t j = p->rows.column[k];
            w[j] -= (REAL)rate * (REAL)reg[j] * old[j];
        }
        if (p->bias) w[p->keys] -= (REAL)rate * (REAL)reg[p->keys] * old[p->keys];
    }
}

/* Rows come in random order: asking for one some steps ahead hides most of its way from memory. */
static inline void NAME(fetch)(const struct tr_problem *p, size_t i)
{
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    for (; k < end; k += 16) {
        __builtin_prefetch(&p->rows.column[k]);
        if (p->rows.value) __builtin_prefetch(&p->rows.value[k]);
    }
}

static void NAME(dual_pass)(const struct tr_problem *p, const uint32_t *order, size_t n, double sigma,
                            const float *norm, float *a, REAL *w)
{
    enum { AHEAD = 4 };
    double step = 1 / (p->l2 * p->n);
    bool signs = p->model != TR_LOSS_LINEAR;
    for (size_t s = 0; s < n; s++) {
        if (s + AHEAD < n) NAME(fetch)(p, order[s + AHEAD]);
        size_t i = order[s];
        double y = (double)p->target[i], old = (double)a[i], m = NAME(dot)(p, i, w);
        float moved = (float)tr_dual_step(p->model, old, m, y, sigma * step * (double)norm[i]);
        double by = (double)moved - old; /* what is stored, so that w stays the sum of the rows */
        if (by == 0) continue;
        a[i] = moved;
        NAME(add)(p, i, (REAL)(sigma * step * (signs ? y * by : by)), w);
    }
}

#undef REAL
#undef NAME

#include "pass.h"

#include "loss.h"

#define REAL    float
#define NAME(x) x##_f32
#include "pass_real.h"

#define REAL    double
#define NAME(x) x##_f64
#include "pass_real.h"

void tr_margins(const struct tr_problem *p, size_t first, size_t n, const void *w, double *margin)
{
    if (p->dtype == TR_F32) margins_f32(p, first, n, w, margin);
    else margins_f64(p, first, n, w, margin);
}

void tr_add_rows(const struct tr_problem *p, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w)
{
    if (p->dtype == TR_F32) add_rows_f32(p, first, n, slope, rate, reg, old, w);
    else add_rows_f64(p, first, n, slope, rate, reg, old, w);
}

void tr_dual_pass(const struct tr_problem *p, const uint32_t *order, size_t n, double sigma,
                  const float *norm, float *a, void *w)
{
    if (p->dtype == TR_F32) dual_pass_f32(p, order, n, sigma, norm, a, w);
    else dual_pass_f64(p, order, n, sigma, norm, a, w);
}

double tr_dual_sum(const struct tr_problem *p, const float *a)
{
    double sum = 0;
    for (size_t i = 0; i < p->rows.n; i++)
        sum += tr_loss_conjugate(p->model, (double)a[i], (double)p->target[i]);
    return sum;
}

void tr_row_norms(const struct tr_problem *p, float *norm)
{
    for (size_t i = 0; i < p->rows.n; i++) {
        double sum = p->bias;
        for (uint64_t k = p->rows.begin[i]; k < p->rows.begin[i + 1]; k++)
            sum += p->rows.value ? (double)p->rows.value[k] * (double)p->rows.value[k] : 1;
        norm[i] = (float)sum;
    }
}

#define _GNU_SOURCE /* barriers, in cblas.h */
#include "pass.h"

#include <cblas.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "trireme/cpu.h"

/* The clones of TR_CPU_CLONES compute the same bits: they have the same number of partial sums. */

enum { LANES = 8, SUMS = 4 };
enum { TILE_ROWS = 64, TILE_COLUMNS = 256, TILE_OUTPUTS = 64 };
typedef float f32s __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double f64s __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

double tr_row_target(const struct tr_problem *p, size_t i, size_t k)
{
    double target = (double)p->target[i];
    return p->outputs == 1 ? target : (size_t)target == k ? 1 : -1;
}

/* Computes the movement of w along -x by the changes of the dual variables of a row, up to the factor that makes q of |x|². Returns
 * whether w moves. */
static bool dual_find_change(const struct tr_problem *p, size_t i, struct tr_class_block own,
                             const float *old, const float *a, double *change)
{
    bool moves = false;
    for (size_t k = 0; k < own.n; k++) {
        double more = (double)a[k] - (double)old[k];
        change[k] = p->softmax ? more : -tr_row_target(p, i, own.first + k) * more;
        moves = moves || more != 0;
    }
    return moves;
}

/* Sets the dual variables of a row. margin: its margins, followed by memory for the same number of elements. The new probabilities of a
 * softmax minimise Σ next log next - Σ m (next - a) + q/2 |next - a|² where Σ next = 1: Newton steps on log next and the multiplier. */
static void dual_set_row(const struct tr_problem *p, size_t i, struct tr_class_block own, double q, float *a,
                         double *margin)
{
    double *next = margin + own.n, change = 1;
    for (size_t k = 0; k < own.n && !p->softmax; k++)
        a[k] = (float)tr_loss_step(p->loss, (double)a[k], margin[k], tr_row_target(p, i, own.first + k), q,
                                   p->shape);
    if (!p->softmax) return;
    for (size_t k = 0; k < own.n; k++) next[k] = fmax((double)a[k], 1e-12);
    for (int round = 0; round < 30 && change > 1e-4; round++) {
        double sum = 0, slopes = 0, due = 0;
        for (size_t k = 0; k < own.n; k++) {
            double slope = next[k] / (1 + q * next[k]);
            sum += next[k];
            slopes += slope;
            due += slope * (margin[k] - log(next[k]) - q * (next[k] - (double)a[k]));
        }
        double multiplier = (1 - sum - due) / slopes;
        change = 0;
        for (size_t k = 0; k < own.n; k++) {
            double by = margin[k] - log(next[k]) - q * (next[k] - (double)a[k]) + multiplier;
            by /= 1 + q * next[k];
            next[k] = fmax(next[k] * exp(fmin(fmax(by, -8), 8)), 1e-30);
            if (next[k] > 1e-9) change = fmax(change, fabs(by));
        }
    }
    for (size_t k = 0; k < own.n; k++) a[k] = (float)next[k];
}

#define REAL    float
#define REALS   f32s
#define BITS    uint32_t
#define GEMM    cblas_sgemm
#define NAME(x) x##_f32
#include "pass_real.h"

#define REAL    double
#define REALS   f64s
#define BITS    uint64_t
#define GEMM    cblas_dgemm
#define NAME(x) x##_f64
#include "pass_real.h"

void tr_margins(const struct tr_problem *p, size_t first, size_t n, const void *w, double *margin)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_BY_TYPE(p->dtype, margins, p, first + at, some, w, margin + at * p->outputs);
}

/* log Σ exp(m) */
static double log_sum(size_t n, const double *margin)
{
    double most = margin[0], sum = 0;
    for (size_t k = 1; k < n; k++) most = fmax(most, margin[k]);
    for (size_t k = 0; k < n; k++) sum += exp(margin[k] - most);
    return most + log(sum);
}

/* The loss is selected once per call, which is faster than once per row for short rows. */
double tr_row_losses(const struct tr_problem *p, size_t first, size_t n, const double *margin, double sum)
{
    size_t outputs = p->outputs;
#define LOSSES(name)                                                                                         \
    if (p->loss == &tr_loss_##name && outputs == 1) {                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            sum += tr_row_weight(p, first + i) *                                                             \
                   name##_value(margin[i], (double)p->target[first + i], p->shape);                          \
        return sum;                                                                                          \
    }
    TR_INLINE_LOSSES(LOSSES)
#undef LOSSES
    for (size_t i = first; i < first + n; i++, margin += outputs) {
        double loss = p->softmax ? log_sum(outputs, margin) - margin[(size_t)p->target[i]] : 0;
        for (size_t k = 0; k < outputs && !p->softmax; k++)
            loss += tr_loss_value(p->loss, margin[k], tr_row_target(p, i, k), p->shape);
        sum += tr_row_weight(p, i) * loss;
    }
    return sum;
}

void tr_row_slopes(const struct tr_problem *p, size_t first, size_t n, double *margin)
{
    size_t outputs = p->outputs;
#define SLOPES(name)                                                                                         \
    if (p->loss == &tr_loss_##name && outputs == 1) {                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            margin[i] = tr_row_weight(p, first + i) *                                                        \
                        name##_slope(margin[i], (double)p->target[first + i], p->shape);                     \
        return;                                                                                              \
    }
    TR_INLINE_LOSSES(SLOPES)
#undef SLOPES
    for (size_t i = first; i < first + n; i++, margin += outputs) {
        double weight = tr_row_weight(p, i), sum = p->softmax ? log_sum(outputs, margin) : 0;
        for (size_t k = 0; k < outputs; k++)
            margin[k] =
                weight * (p->softmax ? exp(margin[k] - sum) - ((size_t)p->target[i] == k)
                                     : tr_loss_slope(p->loss, margin[k], tr_row_target(p, i, k), p->shape));
    }
}

void tr_add_rows(const struct tr_problem *p, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_BY_TYPE(p->dtype, add_rows, p, first + at, some, slope + at * p->outputs, rate, reg, old, w);
}

void tr_dual_pass(const struct tr_problem *p, const uint32_t *order, size_t n, double sigma,
                  const float *norm, float *a, void *w, bool shared)
{
    if (shared) TR_BY_TYPE(p->dtype, dual_pass_shared, p, order, n, sigma, norm, a, w);
    else TR_BY_TYPE(p->dtype, dual_pass, p, order, n, sigma, norm, a, w);
}

void tr_add_row_shared(const struct tr_problem *p, size_t i, void *w)
{
    TR_BY_TYPE(p->dtype, add_shared, p, i, 1, w);
}

void tr_add_shared(enum tr_dtype dtype, void *w, size_t at, double x)
{
    if (dtype == TR_F32) add_one_f32((float *)w + at, (float)x);
    else add_one_f64((double *)w + at, x);
}

void tr_dual_pass_classes(const struct tr_problem *p, struct tr_class_block own, size_t base,
                          const uint32_t *order, size_t n, double sigma, const float *norm, float *a,
                          double *room, void *w)
{
    TR_BY_TYPE(p->dtype, dual_pass_classes, p, own, base, order, n, sigma, norm, a, room, w);
}

void tr_add_changes(const struct tr_problem *p, struct tr_class_block own, size_t base, size_t n,
                    const float *old, const float *a, double *room, void *w)
{
    TR_BY_TYPE(p->dtype, add_changes, p, own, base, n, old, a, room, w);
}

double tr_dual_sum(const struct tr_problem *p, struct tr_class_block own, size_t base, size_t n,
                   const float *a)
{
    double sum = 0;
    for (size_t i = base; i < base + n; i++, a += own.n)
        for (size_t k = 0; k < own.n; k++) {
            double q = (double)a[k], y = tr_row_target(p, i, own.first + k);
            sum += tr_row_weight(p, i) * (!p->softmax ? p->loss->conjugate(q, y) : q > 0 ? q * log(q) : 0);
        }
    return sum;
}

void tr_row_norms(const struct tr_problem *p, size_t first, size_t n, float *norm)
{
    for (size_t i = first, end = first + n, some; (some = tr_ready_piece(p, i, end - i)) > 0;)
        for (size_t stop = i + some; i < stop; i++) {
            struct tr_data_row x = tr_row_of(p, i);
            norm[i] = (float)((p->bias ? p->of_bias : 0) + tr_row_square(&x));
        }
}

/* Passes over rows, the inner loops of training. A vector w over the keys of the rows is f32 or f64, as the
 * model's table is; the last key is the bias where there is one. A key has as many weights as there are outputs, one after
 * the other, and so has a row margins and slopes.
 */
#ifndef TR_LINEAR_PASS_H
#define TR_LINEAR_PASS_H

#include "../loss.h"
#include "trireme/base.h"
#include "trireme/data.h"

/* Methods, in the order of solve.method. */
enum {
    TR_METHOD_AUTO,
    TR_METHOD_DUAL,
    TR_METHOD_SGD,
    TR_METHOD_SVRG,
    TR_METHOD_SVRGPP,
    TR_METHOD_KATYUSHA,
    TR_METHOD_GROWING,
    TR_METHOD_NEWTON,
    TR_METHOD_DESCENT
};

/* Element i of an array of f32 or f64. */
static inline size_t tr_real_size(enum tr_dtype dtype)
{
    return dtype == TR_F32 ? sizeof(float) : sizeof(double);
}

static inline double tr_real_get(enum tr_dtype dtype, const void *values, size_t i)
{
    return dtype == TR_F32 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

static inline void tr_real_set(enum tr_dtype dtype, void *values, size_t i, double x)
{
    if (dtype == TR_F32) ((float *)values)[i] = (float)x;
    else ((double *)values)[i] = x;
}

static inline void tr_real_add(enum tr_dtype dtype, void *values, size_t i, double x)
{
    if (dtype == TR_F32) ((float *)values)[i] += (float)x;
    else ((double *)values)[i] += x;
}

/* What every pass needs to know of the problem. */
struct tr_problem {
    const struct tr_loss *loss;
    double shape; /* of the loss */
    enum tr_dtype dtype;
    tr_batch rows;
    const tr_data *data; /* asked whether rows are there before they are used (tr_data_ready()) */
    const float *target; /* labels as the loss wants them: ±1, real, or the number of the row's class */
    const float *weight; /* of the rows' losses; NULL: all 1 */
    size_t outputs;      /* margins of a row, weights of a key: 1, or as many as there are classes … */
    bool softmax;        /* … of one softmax; else each class has a loss of its own, against the rest */
    bool bias;           /* rows have one more non-zero: 1 at key `keys` … */
    double of_bias; /* … whose square dual steps take for this: 1, or less where λ does not count for it */
    size_t keys;    /* of the rows, without the bias */
    double l2;      /* λ */
    double n;       /* rows of the whole data set, or the sum of their weights */
};

/* margin = w · x of the rows first .. first + n - 1, of each as many as there are outputs. */
void tr_margins(const struct tr_problem *problem, size_t first, size_t n, const void *w, double *margin);

/* What a row is to output k: its target, or, of several outputs, ±1. */
double tr_row_target(const struct tr_problem *problem, size_t i, size_t k);

/* Returns sum + Σ loss × weight over the rows first .. first + n - 1, from their margins. */
double tr_row_losses(const struct tr_problem *problem, size_t first, size_t n, const double *margin,
                     double sum);

/* Replaces the margins of the rows first .. first + n - 1 by slope × weight. */
void tr_row_slopes(const struct tr_problem *problem, size_t first, size_t n, double *margin);

/* Which of n numbers is the largest; the first of those that are. */
size_t tr_largest(const double *number, size_t n);

/* w -= rate · Σ slope_i x_i over these rows; where `reg` is given, also w_j -= rate · reg[j] · old[j] for every
 * non-zero (regularisation spread over the rows that have the feature). */
void tr_add_rows(const struct tr_problem *problem, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w);

/* How many of these rows can be used now: tr_data_ready(). */
static inline size_t tr_ready(const struct tr_problem *p, size_t first, size_t n)
{
    return p->data ? tr_data_ready(p->data, first, n) : n;
}

/* The same in pieces of a few microseconds, with seams between them. */
static inline size_t tr_ready_piece(const struct tr_problem *p, size_t first, size_t n)
{
    enum { PIECE = 128 };
    tr_seam();
    return tr_ready(p, first, n < PIECE ? n : PIECE);
}

/* One pass of dual coordinate descent over the rows order[0..n-1], which must be there: each a (by row), which counts times the row's weight, is
 * set to its minimum against w, which moves by sigma (new - old) / (λ n) at once. norm[i] is |x_i|². */
void tr_dual_pass(const struct tr_problem *problem, const uint32_t *order, size_t n, double sigma,
                  const float *norm, float *a, void *w);

/* The same where others change w at the same time: no change of an element is lost. Nobody else has these rows. */
void tr_dual_pass_shared(const struct tr_problem *problem, const uint32_t *order, size_t n, double sigma,
                         const float *norm, float *a, void *w);

/* w += x_i for each of the rows first .. first + n - 1, while others do so, too. */
void tr_add_rows_shared(const struct tr_problem *problem, size_t first, size_t n, void *w);

/* w[at] += x, while others change it, too. */
void tr_add_shared(enum tr_dtype dtype, void *w, size_t at, double x);

/* Σ φ*(-α) over the rows first .. first + n - 1. */
double tr_dual_sum(const struct tr_problem *problem, size_t first, size_t n, const float *a);

/* Some neighbouring classes of several outputs. */
struct tr_class_block {
    size_t first, n;
};

/* The same for these classes of several outputs, over the rows base + order[0..n-1]: a has own.n numbers for each order, of
 * a softmax (all classes) the probabilities q that make α = e_y - q. room: for 3 × own.n numbers. */
void tr_dual_pass_classes(const struct tr_problem *problem, struct tr_class_block own, size_t base,
                          const uint32_t *order, size_t n, double sigma, const float *norm, float *a,
                          double *room, void *w);

/* w += Σ (α - α of old) x / (λ n) over n rows from base on: what such passes have moved. */
void tr_add_changes(const struct tr_problem *problem, struct tr_class_block own, size_t base, size_t n,
                    const float *old, const float *a, double *room, void *w);

/* Σ φ*(-α) over n rows from base on. */
double tr_dual_sum_classes(const struct tr_problem *problem, struct tr_class_block own, size_t base, size_t n,
                           const float *a);

/* norm[i] = |x_i|², with of_bias where there is one, of these rows. */
void tr_row_norms(const struct tr_problem *problem, size_t first, size_t n, float *norm);

#endif

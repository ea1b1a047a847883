/* Stochastic steps with variance reduction on sparse rows. Several processes may share the model in memory.
 *
 * An epoch has two stages. The full stage computes μ = (1/n) Σ φ'(x_i·x̃) x_i at a snapshot x̃. The inner stage takes m
 * steps. Each draws b rows at random and moves against
 *
 *     g = (1/b) Σ [φ'(x_i·w) - φ'(x_i·x̃)] x_i + μ + λ w
 *
 * whose mean is the gradient of F at w, and whose variance vanishes as w and x̃ approach the optimum.
 *
 *   TR_METHOD_SVRG      w -= η g; the next snapshot is the last w (Johnson and Zhang 2013; FlexPS, Algorithm 1)
 *   TR_METHOD_SVRGPP    the same, but the snapshot becomes the mean of the epoch's w, the next epoch starts from the last,
 *                      and has twice the steps (Allen-Zhu and Yuan 2016)
 *   TR_METHOD_KATYUSHA  x = τ₁z + τ₂x̃ + (1-τ₁-τ₂)y, g at x; z and y take proximal steps of a and 1/(3L); the snapshot
 *                      becomes a weighted mean of the epoch's y (Allen-Zhu 2017, Algorithm 1, option I). Without λ, τ₁
 *                      falls from epoch to epoch (the same, Algorithm 2)
 *
 * A step changes a coordinate that none of its rows has by a linear map that is the same in all steps. The change is
 * delayed until the coordinate is used: k missed steps are the k-th power of the map, which is composed from tables. So
 * the cost of a step is proportional to the non-zeros of its rows. last[j] is the number of steps that coordinate j has.
 *
 * An epoch of W workers on one model (| is a barrier):
 *
 *     tr_variance_gradient(own rows)              all workers of all nodes; the caller sums: μ = Σ / n
 *   | own coordinates: last[j] = 0, sum[j] = 0; one worker: *step = 0
 *   | tr_variance_steps(all rows, m / W)          with the slopes of tr_variance_gradient()
 *   | tr_variance_settle(own coordinates); tr_variance_snapshot(own coordinates)
 *
 * Workers draw from all rows of the node. If each drew from a part, a worker that runs alone for a while, because there
 * are more processes than cores, would follow the gradient of its part. */
#ifndef TR_LINEAR_STEPS_H
#define TR_LINEAR_STEPS_H

#include <stdatomic.h>

#include "../pass.h"
#include "trireme/base.h"
#include "trireme/replica.h"

/* The model of an epoch: arrays of n elements of problem.dtype, the last for the bias if there is one. Processes may
 * share them. The caller owns them. Arrays that a method does not need may be NULL. */
struct tr_variance_model {
    size_t n;
    void *w;     /* the iterate; katyusha: y */
    void *z;     /* katyusha. Before the first epoch w = z = snapshot; they continue from epoch to epoch */
    double *sum; /* svrg++: Σ w; katyusha: weighted Σ (y - x̃). f64 for each dtype */
    const void *snapshot;   /* x̃; svrg and svrg++ need it only for steps without slopes */
    const void *mu;         /* mean gradient of the loss over all rows at x̃, without λ x̃ */
    uint32_t *last;         /* number of steps that each coordinate has */
    _Atomic uint64_t *step; /* number of started steps of this epoch, of all workers */
};

enum { TR_VARIANCE_STEPS = (1u << 31) - 1 };

struct tr_variance_options {
    int method;        /* TR_METHOD_SVRG, _SVRGPP, _KATYUSHA */
    double smoothness; /* L, from tr_variance_smoothness(); not used if rate is set */
    double rate;       /* η; katyusha: the rate of y, which determines L = 1/(3η). 0: tr_variance_rate() */
    bool bias_l2;      /* the bias is regularised */
    uint64_t steps;    /* of an epoch, by all workers, at most TR_VARIANCE_STEPS */
    uint64_t epoch;    /* from 0, for katyusha without λ */
    size_t batch;      /* rows of a step, at least 1 */
};

struct tr_variance;

/* Opens the tables and scratch memory of a worker for epochs with these options, in some microseconds. The problem must
 * outlive them. TR_ERR_CONFIG if the rate is not positive or rate · λ ≥ 1, if the loss is not smooth, or if there are too
 * many steps. Close with tr_variance_close(). */
int tr_variance_open(const struct tr_problem *problem, const struct tr_variance_options *options,
                     struct tr_variance **variance);
void tr_variance_close(struct tr_variance **variance);

/* ---- smoothness, rate and epochs ---- */

/* Returns the largest |x_i|² of the rows first .. first + n - 1, with the bias. */
double tr_variance_largest_norm(const struct tr_problem *problem, size_t first, size_t n);

/* Returns L of the loss of a row and its regularisation: largest |x_i|² (of all workers) · most_curvature + λ; 0 for a loss
 * whose curvature has no bound. */
double tr_variance_smoothness(const struct tr_problem *problem, double largest_norm);

/* Returns the default rate: svrg 1/(2L), svrg++ and katyusha 1/L; for logistic, whose
 * curvature is below its bound nearly everywhere, svrg 3/(4L) and katyusha 4/(3L). Convergence is proven for smaller
 * rates: less than 1/(4L) in long epochs that start from a random iterate (svrg), 1/(7L) (svrg++), 1/(3L) (katyusha).
 * Measured on a9a (f64, λ = 1/n, two passes of steps in an epoch, one worker): after 30 passes logistic regression is
 * 10^-5.6, 10^-5.4 and 10^-8.0 above the least objective. With twice the rate it is 10^-1.2, 10^-4.2 and 10^-7.7 above
 * it, and katyusha diverges for l2svm; four times the rate is worse for all of them. */
double tr_variance_rate(int method, const struct tr_loss *loss, double smoothness);

/* Returns the number of steps of an epoch (from 0), if the first has `inner` passes over all rows. */
uint64_t tr_variance_epoch_steps(int method, double n, double inner, size_t batch, uint64_t epoch);

/* ---- the full stage ---- */

/* Adds Σ φ'(x_i·w) x_i over the rows first .. first + n - 1 to gradient, which is f64 for each dtype because sums over
 * many rows would stall in f32. The order of summation is fixed, so the result is reproducible.
 *
 * @param [in,out] loss   Σ φ is added; may be NULL
 * @param [out]    slope  φ'(x_i·w) by row of the problem, as problem.dtype; the rounded value enters the gradient. May be
 *                        NULL
 */
void tr_variance_gradient(const struct tr_problem *problem, size_t first, size_t n, const void *w,
                          double *loss, void *slope, double *gradient);

/* ---- the inner stage ---- */

/* Takes `steps` steps on rows that are drawn uniformly and independently from first .. first + n - 1, n > 0.
 *
 * @param [in] slope    slopes of these rows at the snapshot, from tr_variance_gradient(); NULL: they are computed with
 *                      another dot product, to the same bits
 * @param [in] updates  how other processes change the model at the same time, or its replica; NULL: no other process
 *                      changes it, and all coordinates are at their own places
 */
void tr_variance_steps(struct tr_variance *variance, size_t first, size_t n, const void *slope,
                       uint64_t steps, struct tr_rng *rng, const struct tr_variance_model *model,
                       const tr_updates *updates);

/* Applies missed steps to the coordinates from .. to - 1, which are at `place` and behind. No steps at the same time. */
void tr_variance_settle(const struct tr_variance *variance, const struct tr_variance_model *model,
                        size_t from, size_t to, size_t place);

/* Writes the places from .. to - 1 of the next snapshot, after tr_variance_settle() of these coordinates. `snapshot` may
 * be model->snapshot. */
void tr_variance_snapshot(const struct tr_variance *variance, const struct tr_variance_model *model,
                          size_t from, size_t to, void *snapshot);

#endif

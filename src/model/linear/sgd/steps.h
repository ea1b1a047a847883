/* Stochastic steps with variance reduction on sparse rows. Several processes may share the model in memory.
 *
 * An epoch has two stages. The full stage computes μ = (1/n) Σ φ'(x_i·x̃) x_i at a snapshot x̃. The inner stage takes m steps. Each
 * draws b rows at random and moves against
 *
 *     g = (1/b) Σ [φ'(x_i·w) - φ'(x_i·x̃)] x_i + μ + λ w
 *
 * The mean of g is the gradient of F at w, and its variance vanishes as w and x̃ approach the optimum.
 *
 *   TR_METHOD_SVRG      w -= η g; the next snapshot is the last w (Johnson and Zhang 2013; FlexPS, Algorithm 1)
 *   TR_METHOD_SVRGPP    w -= η g; the next snapshot is the mean of the epoch's w; the next epoch starts from the last w and has
 *                      twice the steps (Allen-Zhu and Yuan 2016)
 *   TR_METHOD_KATYUSHA  g is computed at x = τ₁z + τ₂x̃ + (1-τ₁-τ₂)y; z and y take proximal steps of lengths a and 1/(3L); the
 *                      next snapshot is a weighted mean of the epoch's y (Allen-Zhu 2017, Algorithm 1, option I). Without λ,
 *                      τ₁ falls from epoch to epoch (Algorithm 2)
 *
 * A step changes each coordinate that none of its rows has by a linear map, which is equal in all steps. Such steps are first
 * omitted: the coordinate has missed them. When the coordinate is used, k missed steps are applied together as the k-th power of
 * the map, which is composed from tables. The cost of a step is therefore proportional to the non-zeros of its rows. last[j] is the
 * number of steps that have been applied to coordinate j.
 *
 * The place of a coordinate is its index in the arrays of the model. It differs from the coordinate only if a replica loads chunks
 * of coordinates on demand (trireme/replica.h).
 *
 * An epoch of W workers on one model (| is a barrier):
 *
 *     tr_variance_gradient(own rows)              all workers of all nodes; the caller sums: μ = Σ / n
 *   | own coordinates: last[j] = 0, sum[j] = 0; one worker: *step = 0
 *   | tr_variance_steps(all rows, m / W)          with the slopes of tr_variance_gradient()
 *   | tr_variance_settle(own coordinates); tr_variance_snapshot(own coordinates)
 *
 * Workers draw from all rows of the node. If each worker drew from a part of the rows, and there were more processes than cores, a
 * worker that runs alone for a while would follow the gradient of its part. */
#ifndef TR_LINEAR_STEPS_H
#define TR_LINEAR_STEPS_H

#include <stdatomic.h>

#include "../pass.h"
#include "trireme/base.h"
#include "trireme/replica.h"

/* The model of an epoch: arrays of n elements of problem.dtype, the last element for the bias if there is one. Processes may share
 * the arrays. The caller owns the arrays; those that a method does not need may be NULL. */
struct tr_variance_model {
    size_t n;
    void *w;                /* the iterate; katyusha: y. Before the first epoch w = z = snapshot */
    void *z;                /* katyusha only. w and z keep their values from epoch to epoch */
    double *sum;            /* svrg++: Σ w; katyusha: weighted Σ (y - x̃). f64 for each dtype */
    const void *snapshot;   /* x̃; svrg and svrg++ need it only for steps without slopes */
    const void *mu;         /* mean gradient of the loss over all rows at x̃, without λ x̃ */
    uint32_t *last;         /* number of steps that have been applied to each coordinate */
    _Atomic uint64_t *step; /* number of steps of this epoch that any worker has started */
};

enum { TR_VARIANCE_STEPS = (1u << 31) - 1 };

struct tr_variance_options {
    int method;        /* TR_METHOD_SVRG, _SVRGPP, _KATYUSHA */
    double smoothness; /* L, from tr_variance_smoothness(); not used if rate is set */
    double rate;       /* η; katyusha: the rate of y, which determines L = 1/(3η). 0: tr_variance_rate() */
    bool bias_l2;      /* the bias is regularised */
    uint64_t steps;    /* number of steps of an epoch, by all workers; at most TR_VARIANCE_STEPS */
    uint64_t epoch;    /* index of the epoch, used by katyusha without λ */
    size_t batch;      /* number of rows of a step, at least 1 */
};

struct tr_variance;

/* Opens the tables of maps and the scratch memory of a worker for epochs with these options, in some microseconds. The problem must
 * outlive these. TR_ERR_CONFIG if the rate is not positive or rate · λ ≥ 1, the loss is not smooth, or there are too many steps. */
int tr_variance_open(const struct tr_problem *problem, const struct tr_variance_options *options,
                     struct tr_variance **variance);
void tr_variance_close(struct tr_variance **variance);

/* ---- smoothness, rate and epochs ---- */

/* Returns the largest |x_i|² of the rows first .. first + n - 1, with the bias. */
double tr_variance_largest_norm(const struct tr_problem *problem, size_t first, size_t n);

/* Returns L, the bound of the curvature of a row's loss with regularisation: largest_norm (over all workers) · most_curvature + λ;
 * 0 if the curvature of the loss has no bound. */
double tr_variance_smoothness(const struct tr_problem *problem, double largest_norm);

/* Returns the default rate: svrg 1/(2L), svrg++ and katyusha 1/L; for logistic loss, whose curvature is below its bound nearly
 * everywhere, svrg 3/(4L) and katyusha 4/(3L). Convergence is proven for smaller rates: less than 1/(4L) in long epochs that start
 * from a random iterate (svrg), 1/(7L) (svrg++), 1/(3L) (katyusha). Measured on a9a (f64, λ = 1/n, two passes of steps in an epoch,
 * one worker): after 30 passes the objective of logistic regression is 10^-5.6, 10^-5.4 and 10^-8.0 above its minimum. With twice
 * the rate it is 10^-1.2, 10^-4.2 and 10^-7.7 above, and katyusha diverges for l2svm; four times the rate is worse for each. */
double tr_variance_rate(int method, const struct tr_loss *loss, double smoothness);

/* Returns the number of steps of the epoch with this index, if the first epoch has `inner` passes over all rows. */
uint64_t tr_variance_epoch_steps(int method, double n, double inner, size_t batch, uint64_t epoch);

/* ---- the full stage ---- */

/* Adds Σ φ'(x_i·w) x_i over the rows first .. first + n - 1 to gradient. gradient is always f64, because small terms would be lost
 * in long sums in f32. The order of summation is fixed, so the result is reproducible.
 *
 * @param [in,out] loss   Σ φ is added to it; may be NULL
 * @param [out]    slope  φ'(x_i·w) by row of the problem, rounded to problem.dtype; the gradient uses the rounded slopes. May be
 *                        NULL
 */
void tr_variance_gradient(const struct tr_problem *problem, size_t first, size_t n, const void *w,
                          double *loss, void *slope, double *gradient);

/* ---- the inner stage ---- */

/* Takes `steps` steps on rows that are drawn uniformly and independently from first .. first + n - 1, n > 0.
 *
 * @param [in] slope    slopes at the snapshot by row, from tr_variance_gradient(); NULL: steps compute the same slopes again
 * @param [in] updates  how processes that change the model at the same time avoid conflicts, and its replica on demand; NULL: no
 *                      other process changes the model, and the place of each coordinate is its index
 */
void tr_variance_steps(struct tr_variance *variance, size_t first, size_t n, const void *slope,
                       uint64_t steps, struct tr_rng *rng, const struct tr_variance_model *model,
                       const tr_updates *updates);

/* Applies missed steps to the coordinates from .. to - 1, whose places begin at `place`. No process may take steps meanwhile. */
void tr_variance_settle(const struct tr_variance *variance, const struct tr_variance_model *model,
                        size_t from, size_t to, size_t place);

/* Writes the next snapshot at the places from .. to - 1, after tr_variance_settle() for these coordinates. `snapshot` may be
 * model->snapshot. */
void tr_variance_snapshot(const struct tr_variance *variance, const struct tr_variance_model *model,
                          size_t from, size_t to, void *snapshot);

#endif

/* Stochastic steps with variance reduction, on sparse rows, by several processes on one model in memory they share.
 *
 * An epoch has two stages. The full one computes μ = (1/n) Σ φ'(x_i·x̃) x_i at a snapshot x̃. The inner one takes m
 * steps; each draws b rows at random and moves against
 *
 *     g = (1/b) Σ [φ'(x_i·w) - φ'(x_i·x̃)] x_i + μ + λ w
 *
 * whose mean is the gradient of F at w, and whose variance vanishes as w and x̃ come to the optimum.
 *
 *   TR_METHOD_SVRG      w -= η g; the next snapshot is the last w (Johnson and Zhang 2013; FlexPS, Algorithm 1)
 *   TR_METHOD_SVRGPP    the same, but the snapshot becomes the mean of the epoch's w, the next epoch starts from the last,
 *                      and has twice as many steps (Allen-Zhu and Yuan 2016)
 *   TR_METHOD_KATYUSHA  x = τ₁z + τ₂x̃ + (1-τ₁-τ₂)y, g at x; z and y take proximal steps of a and 1/(3L); the snapshot
 *                      becomes a weighted mean of the epoch's y (Allen-Zhu 2017, Algorithm 1, option I). Without λ, τ₁
 *                      falls from epoch to epoch (the same, Algorithm 2)
 *   TR_METHOD_GROWING   plain mini-batches: w -= η ((1/b) Σ φ'(x_i·w) x_i + λ w); no snapshot, no μ
 *
 * What a step does to a coordinate that none of its rows has depends on that coordinate alone, and is the same linear map
 * every time. It is put off until the coordinate is touched: k missed steps are the k-th power of the map, put together
 * from tables. So a step costs the non-zeros of its rows. last[j] counts the steps that coordinate j has seen.
 *
 * An epoch, W workers on one model (| is a barrier):
 *
 *     tr_variance_gradient(rows of mine)          all workers of all nodes; μ = their sum / n, to be shared by the caller
 *   | tr_variance_start(coordinates of mine); one of them: *step = 0
 *   | tr_variance_steps(rows of all, m / W)       with the slopes that tr_variance_gradient() has left
 *   | tr_variance_settle(coordinates of mine); tr_variance_snapshot(the same)
 *
 * Workers draw from all the rows that they can reach, not each from a part: where a worker is alone for a while, as some
 * are when there are more processes than cores, the mean of a part's steps is not the gradient, and the epoch drifts
 * away. */
#ifndef TR_LINEAR_STEPS_H
#define TR_LINEAR_STEPS_H

#include <stdatomic.h>

#include "../pass.h"
#include "trireme/base.h"
#include "trireme/replica.h"

/* The model of one epoch: arrays of n elements of problem.dtype unless said otherwise, the last being the bias where
 * there is one. All may be shared by processes; owned by the caller. Those that a method does not know may be NULL. */
struct tr_variance_model {
    size_t n;
    void *w;     /* the iterate; katyusha: y */
    void *z;     /* katyusha. Before its first epoch, w = z = snapshot; all go on from epoch to epoch */
    double *sum; /* svrg++: Σ w; katyusha: Σ of y - x̃, weighted (doubles for any dtype) */
    const void *snapshot; /* x̃. svrg and svrg++ only need it in steps without slopes */
    const void *mu; /* mean over the whole data of the loss's gradient at x̃, without λ x̃. Not for growing */
    uint32_t *last;         /* steps that each coordinate has seen */
    _Atomic uint64_t *step; /* steps of this epoch begun so far, by all workers */
};

enum { TR_VARIANCE_STEPS = (1u << 31) - 1 };

struct tr_variance_options {
    int method;        /* TR_METHOD_SVRG, _SVRGPP, _KATYUSHA, _GROWING */
    double smoothness; /* L, of tr_variance_smoothness(); not used where rate is given */
    double rate;       /* η; katyusha: of y, 1/(3L), and its L is what that says. 0: tr_variance_rate() */
    bool bias_l2;      /* λ counts for the bias, too */
    uint64_t steps;    /* of one epoch by all workers together, at most TR_VARIANCE_STEPS */
    uint64_t epoch;    /* from 0; katyusha without λ */
    size_t batch;      /* rows of a step, at least 1 */
};

struct tr_variance;

/* Tables and scratch memory of one worker for epochs with these options, some microseconds' work. The problem must stay
 * where it is. Fails with TR_ERR_CONFIG for a rate that cannot be (not positive, or rate · λ ≥ 1), a method without
 * smooth loss, too many steps. Close with tr_variance_close(). */
int tr_variance_open(const struct tr_problem *problem, const struct tr_variance_options *options,
                     struct tr_variance **variance);
void tr_variance_close(struct tr_variance **variance);

/* ---- before: what a step may be ---- */

/* The largest |x_i|² of the rows first .. first + n - 1, with the bias; of all workers' the largest counts. */
double tr_variance_largest_norm(const struct tr_problem *problem, size_t first, size_t n);

/* L of one row's loss and regularisation: largest |x_i|² · the loss's most_curvature + λ; 0 for a loss whose curvature has no
 * bound. */
double tr_variance_smoothness(const struct tr_problem *problem, double largest_norm);

/* The rate without tuning, or 0 for growing, which needs one: svrg 1/(2L), svrg++ and katyusha 1/L; for logistic, whose
 * curvature is below its bound nearly everywhere, svrg 3/(4L) and katyusha 4/(3L). Proofs are of smaller ones: less than
 * 1/(4L) in long epochs that go on from an iterate drawn at random (svrg), 1/(7L) (svrg++), 1/(3L) (katyusha). That these
 * converge is measured, not proven: on a9a (f64, λ = 1/n, two passes of steps in an epoch, one worker) logistic
 * regression has come to 10^-5.6, 10^-5.4 and 10^-8.0 above the least objective in 30 passes. Twice the rate ended at
 * 10^-1.2, 10^-4.2 and 10^-7.7 there, and makes katyusha diverge for l2svm; four times the rate is of no use with any
 * of them. */
double tr_variance_rate(int method, const struct tr_loss *loss, double smoothness);

/* Steps of epoch number `epoch` (from 0), if the first has `inner` passes over the rows of the whole data set. */
uint64_t tr_variance_epoch_steps(int method, double n, double inner, size_t batch, uint64_t epoch);

/* ---- the full stage ---- */

/* Adds Σ φ'(x_i·w) x_i over the rows first .. first + n - 1 to gradient (doubles for any dtype: sums over very many rows
 * would stall in f32), and Σ φ to *loss unless that is NULL. Unless slope is NULL, φ'(x_i·w) is stored as slope[i], i
 * counting from row 0 of the problem, as an element of problem.dtype, and exactly what is stored enters the gradient. One
 * order of summation, so the same bits every time. */
void tr_variance_gradient(const struct tr_problem *problem, size_t first, size_t n, const void *w,
                          double *loss, void *slope, double *gradient);

/* ---- the inner stage ---- */

/* Makes coordinates from .. to - 1 ready for the first step of an epoch. */
void tr_variance_start(const struct tr_variance *variance, const struct tr_variance_model *model, size_t from,
                       size_t to);

/* Takes so many steps; rows are drawn by rng from first .. first + n - 1, uniformly and independently (n > 0). slope as
 * tr_variance_gradient() has left it at the snapshot, for these rows at least; or NULL: then each row's is computed from
 * the snapshot, for one more dot product, to the same bits. updates: how others change the model at the same time, or
 * which replica it is a part of; NULL: nobody does, and all coordinates lie at their own places. */
void tr_variance_steps(struct tr_variance *variance, size_t first, size_t n, const void *slope,
                       uint64_t steps, struct tr_rng *rng, const struct tr_variance_model *model,
                       const tr_updates *updates);

/* Brings coordinates from .. to - 1, which lie from `place` on, up to step *model->step. While no one takes steps. */
void tr_variance_settle(const struct tr_variance *variance, const struct tr_variance_model *model,
                        size_t from, size_t to, size_t place);

/* Writes elements from .. to - 1 (places) of the next snapshot, once these coordinates are settled; into
 * model->snapshot's memory, if the caller wants to. */
void tr_variance_snapshot(const struct tr_variance *variance, const struct tr_variance_model *model,
                          size_t from, size_t to, void *snapshot);

#endif

/* Least squares for one row of a factorization, given the rows of the other side: the serial, numerical part of alternating
 * least squares.
 *
 * A row x of `rank` factors, and a bias b if the model has biases, has n ratings. The target of the k-th rating, of row v_k,
 * is t_k = x · v_k + b (mean and bias of v_k are already subtracted). The result minimises
 *
 *   explicit   Σ_k (t_k - b - x · v_k)² + λ' (|x|² + b²),  λ' = λ n (ALS-WR; Zhou et al. 2008, section 3.1) or λ
 *   implicit   Σ_k [(1 + a |t_k|) (p_k - x · v_k)² - (x · v_k)²] + Σ_v (x · v)² + λ' |x|²,
 *              p = 1 where t > 0, else 0; Σ_v over all rows of the other side (Hu, Koren, Volinsky 2008, section 4)
 *
 * by the normal equations and Cholesky or, for few ratings, by the dual equations with one unknown per rating,
 * x = Vᵀ (V Vᵀ + λ')⁻¹ t, which have the same solution. Non-negative factors are computed by coordinate descent on the normal
 * equations, starting from the given x. A row without ratings is 0.
 */
#ifndef TR_MODEL_MF_SOLVE_H
#define TR_MODEL_MF_SOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"

struct tr_solve_problem {
    size_t rank;
    bool bias; /* rows have rank + 1 elements, the last is the bias; not with implicit */
    bool nonnegative, implicit;
    bool weighted;     /* λ' = λ n */
    double l2;         /* λ */
    double confidence; /* a */
};

struct tr_solver;

/* Creates a solver with its buffers. Free it with tr_solver_free(), also after an error. */
int tr_solver_new(const struct tr_solve_problem *problem, enum tr_cpu level, struct tr_solver **solver);
void tr_solver_free(struct tr_solver **solver);

/* Solves for one row.
 *
 * @param [in]     other   n rows v of at least `rank` floats
 * @param [in]     target  n numbers t
 * @param [in,out] x       rank + bias floats: the result; with nonnegative also the start
 * @return TR_ERR_DIVERGED if a value is not finite
 */
int tr_solve(struct tr_solver *solver, size_t n, const float *const *other, const float *target, float *x);

/* The same in parts, for ratings that arrive over time.
 *
 * @param [in,out] sums  tr_solver_sums() floats, zeros at first; tr_solve_sums() destroys them
 * @param [in]     n     of tr_solve_sums(): total number of ratings
 */
size_t tr_solver_sums(const struct tr_solver *solver);
void tr_solve_add(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                  float *sums);
int tr_solve_sums(struct tr_solver *solver, size_t n, float *sums, float *x);

/* The fit of the row that was solved last: the objective is loss + penalty with penalty = λ' (|x|² + b²). The loss is a
 * difference of sums. */
struct tr_solve_fit {
    double loss, penalty;
    bool cancels; /* explicit: the difference is too small to be accurate; use tr_solve_loss() */
};
struct tr_solve_fit tr_solver_fit(const struct tr_solver *solver);

/* explicit: returns the loss of x on some of its ratings. */
double tr_solve_loss(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                     const float *x);

/* implicit: adds Σ v vᵀ over n rows, `stride` floats apart, to a matrix of tr_solver_gram() doubles, which the caller sums over
 * all workers; and sets the matrix for tr_solve(). */
size_t tr_solver_gram(const struct tr_solver *solver);
void tr_gram_add(struct tr_solver *solver, size_t n, const float *rows, size_t stride, double *gram);
void tr_gram_set(struct tr_solver *solver, const double *gram);

/* Statistics since the solver was created: floating-point operations of the equations (sums of the upper halves, n³/3 per
 * factorization), and the number of rows by method. */
struct tr_solve_count {
    double flops;
    uint64_t direct, few, descents, careful; /* careful: in f64, because f32 was not accurate enough */
};
struct tr_solve_count tr_solver_count(const struct tr_solver *solver);

#endif

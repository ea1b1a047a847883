/* Solving for rows of one side of a factorization, the rows of the other side given: the numerical part of alternating
 * least squares, for one row at a time and in one thread. Nothing here knows of tables or ranks.
 *
 * A row x of `rank` factors, and a bias b where there is one, has n ratings; the k-th is of row v_k and should be
 * reached as t_k = x · v_k + b (mean and the bias of v_k are subtracted already). It becomes the minimum of
 *
 *   explicit   Σ_k (t_k - b - x · v_k)² + λ' (|x|² + b²),  λ' = λ n (ALS-WR; Zhou et al. 2008, section 3.1) or λ
 *   implicit   Σ_k [(1 + a |t_k|) (p_k - x · v_k)² - (x · v_k)²] + Σ_v (x · v)² + λ' |x|²,
 *              p = 1 where t > 0, else 0; Σ_v over all rows of the other side (Hu, Koren, Volinsky 2008, section 4)
 *
 * found by the normal equations and Cholesky, or, for few ratings, by the equations in as many unknowns as there are
 * ratings, x = Vᵀ (V Vᵀ + λ')⁻¹ t, which is the same x. Non-negative factors come by coordinate descent on the normal
 * equations, from the present x. A row without ratings is 0.
 */
#ifndef TR_MODEL_MF_SOLVE_H
#define TR_MODEL_MF_SOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/cpu.h"

struct tr_solve_problem {
    size_t rank;
    bool bias; /* rows have rank + 1 elements, the last being the bias; not with implicit */
    bool nonnegative, implicit;
    bool weighted;     /* λ' = λ n */
    double l2;         /* λ */
    double confidence; /* a */
};

struct tr_solver;

/* Buffers and kernels for a problem. Free with tr_solver_free(), also after an error. */
int tr_solver_new(const struct tr_solve_problem *problem, enum tr_cpu level, struct tr_solver **solver);
void tr_solver_free(struct tr_solver **solver);

/* Solves for one row.
 *   other   n pointers to rows v of at least `rank` floats
 *   target  n numbers t
 *   x       rank + bias floats: the result; with nonnegative also where to start
 * TR_ERR_DIVERGED if something is not finite. */
int tr_solve(struct tr_solver *solver, size_t n, const float *const *other, const float *target, float *x);

/* The same in parts, for rows whose ratings come one after the other: sums of tr_solver_sums() floats, zeros at first,
 * take any number of ratings at a time; n is their number in all. The sums are used up. */
size_t tr_solver_sums(const struct tr_solver *solver);
void tr_solve_add(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                  float *sums);
int tr_solve_sums(struct tr_solver *solver, size_t n, float *sums, float *x);

/* How well the row solved last fits: what is minimised (above) is loss + penalty, with penalty = λ' (|x|² + b²). The loss is
 * a difference of sums. */
struct tr_solve_fit {
    double loss, penalty;
    bool cancels; /* explicit: so small a difference that tr_solve_loss() should say what it is */
};
struct tr_solve_fit tr_solver_fit(const struct tr_solver *solver);

/* explicit: the loss of x, as it was solved for, on some of its ratings, from these. */
double tr_solve_loss(struct tr_solver *solver, size_t n, const float *const *other, const float *target,
                     const float *x);

/* implicit: Σ v vᵀ over n rows, `stride` floats apart, is added to the matrix, of tr_solver_gram() doubles, which is
 * then to be summed over all who have rows; and what it is while solving. */
size_t tr_solver_gram(const struct tr_solver *solver);
void tr_gram_add(struct tr_solver *solver, size_t n, const float *rows, size_t stride, double *gram);
void tr_gram_set(struct tr_solver *solver, const double *gram);

/* What has been done since the solver was made: floating-point operations that the equations need (sums of the upper
 * halves, n³/3 a factorization), and how rows were solved. */
struct tr_solve_count {
    double flops;
    uint64_t direct, few, descents, careful; /* careful: in f64, where f32 was not enough */
};
struct tr_solve_count tr_solver_count(const struct tr_solver *solver);

#endif

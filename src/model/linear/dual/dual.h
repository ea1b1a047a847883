/* Functions that both variants of dual coordinate descent use: dual.c for one output, classes.c for several classes.
 *
 * A bias without λ is learnt as anchor + b'. b' = c² Σ α / (λ n) is regularised as the weight of a feature that is c in all
 * rows, and the anchor follows the bias. This is the proximal point method, whose dual is the method of multipliers
 * (Rockafellar 1976). At the end b' is nearly 0 and costs nothing. The anchor moves in many small steps, because the rows
 * after a large one would have to compensate for it.
 *
 * c is small compared to the rows. Otherwise the bias is the largest common component of the rows, and their steps on it
 * undo each other. (Passes to a gap of 1e-3 with c² = |x|² = 1, and with c² = 0.03: 20 newsgroups svm 17 and 8, l2svm 9 and 5;
 * clicks 10 and 7, 14 and 8. Simulated, svm on four groups: 20 newsgroups more than 40 and 11; clicks 18 and 9.) If λ n is
 * large compared to c², the bias lags behind the rows: with logistic loss 4000 clicks take 4 passes for c² = 400 λ, and 8 for
 * 120 λ.
 */
#ifndef TR_LINEAR_DUAL_H
#define TR_LINEAR_DUAL_H

#include "../linear.h"
#include "trireme/collective.h"

/* Steps of the anchor in an epoch, if there are as many rows. */
enum { TR_ANCHOR_STEPS = 64 };

/* Returns whether the members of a group have the same rows. */
static inline bool tr_linear_dual_has_common_rows(const struct tr_linear *m)
{
    return tr_group_size(m->tr) > 1 && tr_job_is(m->job, "data.partition", "replicated");
}

/* Computes |x|² + c² of the rows first .. first + n - 1, and sets problem.of_bias to c², which is the same for all workers.
 * All workers. */
int tr_linear_dual_norms(struct tr_linear *m, size_t first, size_t n, float *norm);

/* Returns the part of the conjugate that accounts for a bias that is not at its optimum. own: its b'. */
double tr_linear_cost_of_bias(const struct tr_linear *m, double bias, double own);

/* Usual number of turns of an epoch for this number of workers that each have a copy of w. A turn is the work between two
 * merges. */
int64_t tr_linear_dual_usual_turns(const struct tr_linear *m, int workers);

/* Number of turns of an epoch: from solve.batch and sync.push, or the usual number. Sets m->clocks_per_epoch.
 *
 * @param [out] every  turns per clock
 */
int64_t tr_linear_dual_turns(struct tr_linear *m, int64_t usual, int64_t *every);

#endif

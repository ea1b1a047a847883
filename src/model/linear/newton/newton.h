/* Newton's method for linear models with a smooth loss, on rows that lie with many workers.
 *
 * A row has K margins m = W x (tr_problem.outputs), K = 1 for two kinds and for regression; one class against the rest is
 * solved as one problem whose Hessian consists of blocks. Each step solves H s = -g by conjugate gradients,
 * whose products H d = X' D (X d) / n + λ d are sums over rows: each worker sums its own, so that the passes that it takes
 * do not depend on how many workers there are. Margins are kept by row, X s comes out of the products, and so a line search
 * costs no pass (Galli and Lin 2021, Truncated Newton methods for linear classification). The preconditioner is
 *   dense     for few columns: the Cholesky factor of the whole Hessian, summed over the workers, kept for later steps as
 *             long as it does well (with a new one each step this is the exact Newton method); of several classes, if these
 *             and the columns are too many for that, of each class's block on the diagonal
 *   diagonal  for many: the Hessian's diagonal, mixed with λ (Hsia, Chiang and Lin 2018, section 4)
 *
 * With α_i = -φ'(m_i), Fenchel's equality makes F(w) - D(α) = |∇F(w)|² / (2 λ): the gap is known with the gradient. A bias
 * without λ needs Σ α = 0, so it is set to its minimum before every gradient, which takes margins alone.
 *
 * The hinge has a rounded corner, whose curvature stands for that which the hinge lacks, and which moves from row to row until the
 * hinge's own minimum is found (solver.c). The gap is always that of the hinge itself: what a row lacks to Fenchel's equality at
 * its corner is added.
 *
 * Vectors of few columns are whole at every worker. Many columns are divided: a worker has a range of them, sums what the
 * others send of theirs, in the order of workers, and sends values to those whose rows have the key.
 */
#ifndef TR_LINEAR_NEWTON_H
#define TR_LINEAR_NEWTON_H

#include "../pass.h"
#include "trireme/context.h"
#include "trireme/snapshot.h"

enum tr_preconditioner { TR_PRECONDITION_AUTO, TR_PRECONDITION_DENSE, TR_PRECONDITION_DIAGONAL };

struct tr_newton_options {
    tr_context *tr;                   /* NULL: this process is the only worker */
    const struct tr_problem *problem; /* of any loss but the quantiles' */
    size_t first, n;                  /* rows of the problem that are this worker's */
    const tr_key *keys;               /* of the problem's keys, ascending; the bias is key `columns` */
    uint64_t columns;                 /* without the bias */
    bool bias_l2;                     /* λ counts for the bias, too */
    double nonzeros;                  /* of all workers' rows */
    enum tr_preconditioner preconditioner;
    double passes; /* the maximum of tr_newton_state.passes; 0: none */
};

/* Whether the factors are of all that the Hessian has. The same on all ranks: keys and rows are not looked at. */
bool tr_newton_is_exact(const struct tr_newton_options *options);

/* The number of passes of the first step, at least: the gradient, a product, and if there is a factor the Hessian. The same on
 * all ranks. */
int tr_newton_least_passes(const struct tr_newton_options *options);

struct tr_newton;

/* All workers. The problem must stay where it is. Weights are zeros. */
int tr_newton_open(const struct tr_newton_options *options, struct tr_newton **newton);
void tr_newton_close(struct tr_newton **newton);

/* The weights that this worker has: n × K numbers of the keys first .. first + n - 1, the bias behind the columns. Where all
 * workers have all of them, they are the same to the last bit. A caller that has changed them calls tr_newton_moved(),
 * with all workers. */
struct tr_newton_weights {
    double *value;
    uint64_t first;
    size_t n;
    bool whole;
};
struct tr_newton_weights tr_newton_weights(struct tr_newton *newton);
int tr_newton_moved(struct tr_newton *newton);

/* Where it stands; the same on all workers. */
struct tr_newton_state {
    double objective; /* F(w) */
    double gap;       /* F(w) - D(α); NaN if λ is 0 */
    double
        decrease; /* that the last step's model had promised, as a part of the objective: about the distance from the
                       * optimum before it. 1 before the first */
    /* Passes over the rows so far. The gradient at the current weights counts with the step that starts from it: after the last
     * step it only proves the gap, which is a part of the evaluation. */
    double passes;
    double next; /* passes of the next step, at least */
    bool stuck;  /* steps do not find lower values any more: as near as numbers allow */
};

/* How good the weights are; one step, and how good they are after it. A step that would take more passes than are left changes
 * nothing. All workers. */
int tr_newton_look(struct tr_newton *newton, struct tr_newton_state *state);
int tr_newton_step(struct tr_newton *newton, struct tr_newton_state *state);

/* For snapshot functions of a stage whose workers have these rows of data. On ranks that do not work newton is NULL, and of
 * the options tr, columns, nonzeros, preconditioner and of the problem outputs, softmax, bias and n are those of the others. */
int tr_newton_keep(const struct tr_newton_options *options, struct tr_newton *newton, const tr_data *data,
                   tr_snapshot *snapshot);

/* For tests: the gradient into own weights' shape; H d for a d of that shape, of the last gradient's point. All workers. */
int tr_newton_gradient(struct tr_newton *newton, const double **gradient);
int tr_newton_product(struct tr_newton *newton, const double *direction, double *product);

#endif

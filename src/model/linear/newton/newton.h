/* Newton's method for linear models, on rows distributed over workers.
 *
 * A row has K margins m = W x (K = tr_problem.outputs); K is 1 for two classes and for regression. One-against-rest is solved as
 * one problem whose Hessian H is block diagonal. Each step s solves H s = -g, where g is the gradient, by conjugate gradients. The
 * products H d = X' D (X d) / n + λ d are sums over rows: each worker sums its own rows, so the number of passes does not depend on
 * the number of workers. Margins are stored by row, and X s follows from the products, so a line search needs no pass (Galli and
 * Lin 2021, Truncated Newton methods for linear classification). The preconditioner is
 *   dense     for few columns: the Cholesky factor of the whole Hessian, summed over the workers and kept for later steps
 *             while it is accurate (with a new factor in each step this is the exact Newton method); or the factor of each
 *             class's diagonal block, if the classes and columns are too many for the whole Hessian
 *   diagonal  for many columns: the diagonal of the Hessian, mixed with λ (Hsia, Chiang and Lin 2018, section 4)
 *
 * With α_i = -φ'(m_i), Fenchel's equality gives F(w) - D(α) = |∇F(w)|² / (2 λ): the gap follows from the gradient. A free bias
 * (without penalty) requires Σ α = 0. It is therefore minimised before each gradient, which needs only margins, and the slopes are
 * projected (bias_project()).
 *
 * The slope of hinge and quantile loss jumps at one margin, the corner. Corners are rounded over a certain width, so that the loss
 * has a curvature. The rounded corner of each row is shifted until the minimum of the rounded losses is that of the losses
 * themselves. The gap is always the gap without rounding: `excess` is the part of it that rounding causes.
 *
 * pass.h explains how vectors over columns are distributed over workers. */
#ifndef TR_LINEAR_NEWTON_H
#define TR_LINEAR_NEWTON_H

#include "../linear.h"
#include "trireme/context.h"
#include "trireme/stage.h"

enum tr_preconditioner { TR_PRECONDITION_AUTO, TR_PRECONDITION_DENSE, TR_PRECONDITION_DIAGONAL };

struct tr_newton_options {
    tr_context *tr; /* context of the workers; NULL: this process is the only worker */
    const struct tr_problem *problem;
    size_t first, n;    /* this worker processes the rows first .. first + n - 1 of the problem */
    const tr_key *keys; /* column of each key of the problem, ascending; the bias is column `columns` */
    uint64_t columns;   /* number of columns, without the bias */
    bool bias_l2;       /* the bias is regularised */
    double start;       /* initial value of a free bias */
    double scale;       /* typical error of a regression, in units of which corners are rounded; 0: 1 */
    double nonzeros;    /* number of non-zeros in the rows of all workers */
    enum tr_preconditioner preconditioner;
    double passes; /* maximum of tr_newton_state.passes; 0: no limit */
};

/* Returns whether the preconditioner is the factor of the whole Hessian. Any rank, same result: keys and rows are not used. */
bool tr_newton_is_exact(const struct tr_newton_options *options);

/* Returns the minimum number of passes of the first step: one for the gradient, one for a product, and one for the Hessian if it
 * is factored. Any rank, same result. */
int tr_newton_least_passes(const struct tr_newton_options *options);

struct tr_newton;

/* Opens a solver with zero weights. All workers. The problem must outlive the solver. */
int tr_newton_open(const struct tr_newton_options *options, struct tr_newton **newton);
void tr_newton_close(struct tr_newton **newton);

/* The weights of this worker, in the memory of the solver. */
struct tr_newton_weights {
    double *value; /* n × K elements for the columns first .. first + n - 1; the bias is the last column */
    const double *gradient; /* n × K elements: ∇F at the last evaluation */
    uint64_t first;
    size_t n;
    bool whole; /* every worker has all columns; their values are equal bit by bit */
};
struct tr_newton_weights tr_newton_weights(struct tr_newton *newton);

/* Must be called after a caller has changed tr_newton_weights.value. All workers. */
int tr_newton_moved(struct tr_newton *newton);

/* State of the solver, equal on all workers. */
struct tr_newton_state {
    double objective; /* F(w) */
    double gap;       /* bound of F(w) - F*, with rounding errors; if λ is 0 an estimate, or NaN */
    double excess;    /* part of the gap that is due to rounded corners and the projection of the slopes */
    double decrease;  /* decrease of F that the last step predicted, relative to F; 1 before the first step */
    /* Passes over the rows so far. The gradient at the current weights is counted with the next step, because without a next step
     * it is only a part of the evaluation. */
    double passes;
    double next; /* minimum number of passes of the next step */
    bool stuck;  /* rounding prevents any further decrease */
};

/* Evaluates the current weights, and sets *state. All workers must call it. */
int tr_newton_look(struct tr_newton *newton, struct tr_newton_state *state);

/* Takes one step and evaluates the new weights. Changes nothing if the step would exceed the maximum of passes. All workers. */
int tr_newton_step(struct tr_newton *newton, struct tr_newton_state *state);

/* Sets product = H direction at the weights of the last gradient. All workers. */
int tr_newton_product(struct tr_newton *newton, const double *direction, double *product);

/* State of solve.method newton. */
struct tr_linear_newton {
    struct tr_newton_options options;
    struct tr_newton *solver; /* NULL on ranks that are no workers */
    tr_view *own; /* view of the table w at this worker's weights; read-only if another worker writes them */
    bool started; /* the initial weights have been chosen */
    struct tr_newton_state state;
};

#endif

/* Newton's method for linear models, on rows distributed over workers.
 *
 * A row has K margins m = W x (K = tr_problem.outputs), K = 1 for two classes and for regression. One-against-rest is solved as
 * one problem whose Hessian is block diagonal. Each step solves H s = -g by conjugate gradients. The products
 * H d = X' D (X d) / n + λ d are sums over rows: each worker sums its own rows, so the number of passes does not depend on the
 * number of workers. Margins are stored by row, and X s is a by-product of the products, so a line search needs no pass
 * (Galli and Lin 2021, Truncated Newton methods for linear classification). The preconditioner is
 *   dense     for few columns: the Cholesky factor of the whole Hessian, summed over the workers and kept for later steps
 *             while it is accurate (with a new one in each step this is the exact Newton method); or of each class's diagonal
 *             block, if the classes and columns are too many for the whole Hessian
 *   diagonal  for many columns: the diagonal of the Hessian, mixed with λ (Hsia, Chiang and Lin 2018, section 4)
 *
 * With α_i = -φ'(m_i), Fenchel's equality gives F(w) - D(α) = |∇F(w)|² / (2 λ): the gap follows from the gradient. A bias
 * without λ requires Σ α = 0, so it is minimised before each gradient, which needs only margins, and the slopes are projected
 * (bias_project()).
 *
 * Losses with a corner (hinge, quantile) are rounded, which gives them a curvature. The corner moves from row to row until the
 * minimum of the loss itself is found. The gap is always that of the loss itself: the terms by which rows in the corner
 * violate Fenchel's equality are added.
 *
 * Vectors over few columns are replicated at all workers. Vectors over many columns are distributed: each worker has a range
 * of columns (pass.h).
 */
#ifndef TR_LINEAR_NEWTON_H
#define TR_LINEAR_NEWTON_H

#include "../linear.h"
#include "trireme/context.h"
#include "trireme/stage.h"

enum tr_preconditioner { TR_PRECONDITION_AUTO, TR_PRECONDITION_DENSE, TR_PRECONDITION_DIAGONAL };

struct tr_newton_options {
    tr_context *tr;                   /* NULL: this process is the only worker */
    const struct tr_problem *problem; /* any loss */
    size_t first, n;                  /* rows of this worker */
    const tr_key *keys; /* global ids of the problem's keys, ascending; the bias is key `columns` */
    uint64_t columns;   /* without the bias */
    bool bias_l2;       /* the bias is regularised */
    double start;       /* of a free bias */
    double scale;       /* size of the errors of a regression, for rounded corners; 0: 1 */
    double nonzeros;    /* of the rows of all workers */
    enum tr_preconditioner preconditioner;
    double passes; /* maximum of tr_newton_state.passes; 0: no limit */
};

/* Returns whether the factors contain the whole Hessian. Depends on values that all ranks have alike: not on keys and rows. */
bool tr_newton_is_exact(const struct tr_newton_options *options);

/* Returns the minimum number of passes of the first step: gradient, product, and Hessian if there are factors. The same on all
 * ranks. */
int tr_newton_least_passes(const struct tr_newton_options *options);

struct tr_newton;

/* Opens a solver with zero weights. All workers. The problem must outlive the solver. */
int tr_newton_open(const struct tr_newton_options *options, struct tr_newton **newton);
void tr_newton_close(struct tr_newton **newton);

/* The weights of this worker: n × K elements for the keys first .. first + n - 1, the bias after the columns. whole: all
 * workers have all weights, equal bit by bit. A caller that changes them calls tr_newton_moved() afterwards, on all workers. */
struct tr_newton_weights {
    double *value;
    const double *gradient; /* in the same shape, at the last evaluation */
    uint64_t first;
    size_t n;
    bool whole;
};
struct tr_newton_weights tr_newton_weights(struct tr_newton *newton);
int tr_newton_moved(struct tr_newton *newton);

/* State of the solver; the same on all workers. */
struct tr_newton_state {
    double objective; /* F(w) */
    double gap;       /* bound of F(w) - F*, with rounding errors; if λ is 0 an estimate, or NaN */
    double excess;    /* part of it that is due to rounded corners and the projection of the slopes */
    /* Decrease that the model of the last step predicted, relative to F: about the distance from the optimum before the step.
     * 1 before the first step. */
    double decrease;
    /* Passes over the rows so far. The gradient at the current weights counts with the step that starts from it: after the
     * last step it only proves the gap, which is a part of the evaluation. */
    double passes;
    double next; /* minimum number of passes of the next step */
    bool stuck;  /* rounding prevents any further decrease */
};

/* Evaluates the weights; takes one step and evaluates the weights after it. A step that would exceed the maximum number of
 * passes changes nothing. All workers. */
int tr_newton_look(struct tr_newton *newton, struct tr_newton_state *state);
int tr_newton_step(struct tr_newton *newton, struct tr_newton_state *state);

/* For tests: H d at the point of the last gradient. All workers. */
int tr_newton_product(struct tr_newton *newton, const double *direction, double *product);

/* State of solve.method newton. */
struct tr_linear_newton {
    struct tr_newton_options options;
    struct tr_newton *solver; /* of a worker */
    tr_view *own; /* keys of this worker's weights; without deltas if another worker writes them */
    bool started;
    struct tr_newton_state state;
};

#endif

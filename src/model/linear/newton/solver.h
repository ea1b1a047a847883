/* What the parts of Newton's method share: the passes over the rows (passes.c), the factors that precondition (factor.c), how far a
 * step goes (search.c), and the steps themselves (solver.c). Whatever sums over rows or columns is for all workers to call. */
#ifndef TR_LINEAR_NEWTON_SOLVER_H
#define TR_LINEAR_NEWTON_SOLVER_H

#include "../columns.h"
#include "../pass.h"
#include "newton.h"

/* Rows that are worked on at once: what is computed of them stays in the cache until it is added up. */
enum { TR_NEWTON_BLOCK = 256 };

/* What is factored of the Hessian: of each class its block on the diagonal, which is all that it has where each is against the
 * rest; or, where a softmax couples few classes and columns, all of it. */
struct tr_newton_factors {
    size_t n, side; /* so many matrices of side × side; 0: none */
    double cost;    /* to make them, in products with the Hessian */
};

struct tr_newton {
    struct tr_newton_options o;
    struct tr_problem rounded; /* the options' problem; of the hinge, with a width of its corner */
    const struct tr_problem *problem;
    size_t outputs;
    struct tr_columns columns;
    tr_key *keys;     /* of the rows, and the bias */
    double *in, *out; /* vectors over these keys */
    double *part;     /* of one block: slopes or products, and room for a row's more */
    double *margin, *step_margin, *direction_margin, *curvature; /* by row */
    double *shift; /* of the corner, by row: margins are less by that here. Without corners 0 */
    /* over this worker's columns */
    double *w, *gradient, *step, *residual, *direction, *product, *solved, *diagonal;
    size_t all; /* columns, with the bias */
    struct tr_newton_factors factors;
    double *factor; /* of the Hessian of some step before; NULL: the diagonal preconditions */
    bool has_factor, has_gradient, restored;
    int64_t iterations; /* of the last step's conjugate gradients */
    double loss;        /* Σ φ / n, of the rounded hinge where there is one */
    double corner_gap;  /* the part of the gap that its corner makes */
    struct tr_newton_state state;
};

/* ---- vectors over columns ---- */

static inline bool tr_newton_has_corner(const struct tr_newton *t)
{
    return t->rounded.loss->corner;
}

/* Elements of this worker's part of a vector that λ counts for: all but a free bias, which is the last. */
static inline size_t tr_newton_regularised(const struct tr_newton *t)
{
    bool has_last = t->columns.first + t->columns.n == t->all;
    bool free_bias = t->problem->bias && !t->o.bias_l2 && has_last;
    return (t->columns.n - free_bias) * t->outputs;
}

static inline size_t tr_newton_own(const struct tr_newton *t)
{
    return t->columns.n * t->outputs;
}

static inline double tr_newton_dot(size_t n, const double *x, const double *y)
{
    double s[8] = {0};
    size_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (size_t u = 0; u < 8; u++) s[u] += x[j + u] * y[j + u];
    for (; j < n; j++) s[0] += x[j] * y[j];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static inline void tr_newton_axpy(size_t n, double a, const double *restrict x, double *restrict y)
{
    for (size_t j = 0; j < n; j++) y[j] += a * x[j];
}

/* Rows of the block that begins behind `done` of this worker's. */
static inline size_t tr_newton_block(const struct tr_newton *t, size_t done)
{
    return tr_min_size(TR_NEWTON_BLOCK, t->o.n - done);
}

/* ---- passes.c ---- */

/* Of n rows, of which `done` of this worker's come before: what the Hessian's diagonal has of each margin, with the curvature that the
 * last pass for the gradient has left. */
void tr_newton_diagonal_of_rows(const struct tr_newton *t, size_t done, size_t n, double *out);

/* The gradient at the margins as they are, and, where it preconditions, the Hessian's diagonal. */
int tr_newton_gradient_pass(struct tr_newton *t);

/* product = H d; X d stays by row. */
int tr_newton_hessian_pass(struct tr_newton *t, const double *direction, double *product);

/* Σ φ / n at margin + by × shift of each class, or without a shift by × the step's margins, over all workers' rows. */
int tr_newton_sum_losses(struct tr_newton *t, double by, const double *shift, double *loss);

/* Sets a bias without λ to its minimum, by margins alone. */
int tr_newton_settle_bias(struct tr_newton *t);

/* ---- factor.c ---- */

/* Which are made, by the options alone. */
struct tr_newton_factors tr_newton_choose_factors(const struct tr_newton_options *o);

/* Numbers of a factor. */
static inline size_t tr_newton_square(const struct tr_newton_factors *f)
{
    return f->side * f->side;
}

/* Factors that this worker makes and solves by. */
struct tr_newton_part {
    size_t first, end;
};

struct tr_newton_part tr_newton_own_part(const tr_context *tr, const struct tr_newton_factors *f);

/* Whether the next step makes a new factor, which takes a pass. */
bool tr_newton_needs_factor(const struct tr_newton *newton);

/* Makes a new factor where the last one does not serve any more; *most: iterations that the step may take. */
int tr_newton_precondition(struct tr_newton *t, int64_t *most);

/* out = what the preconditioner makes of r. */
int tr_newton_apply_preconditioner(struct tr_newton *t, const double *r, double *out);

/* ---- search.c ---- */

/* How far the step goes, *by of it; t->loss becomes the loss there. Where there are corners the step is stretched, and *by is 1. */
int tr_newton_search(struct tr_newton *t, double *by);
int tr_newton_search_corners(struct tr_newton *t, double *by);

#endif

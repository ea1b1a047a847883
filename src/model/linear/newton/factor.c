/* Newton's method: which factors of the Hessian precondition, how they are made, and solving by them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"
#include "solver.h"

/* A factor takes longer to make than a pass, but saves passes in every step (most on unscaled columns: covtype, 23 passes
 * instead of 244). A whole one goes over all workers, who factor it each; blocks are divided among them. */
static bool can_factor(const struct tr_newton_options *o, struct tr_newton_factors *f, double nonzeros)
{
    enum { MOST_SIDE = 1024, MOST_NUMBERS = 1 << 23 };
    double n = (double)f->side, workers = o->tr ? tr_workers(o->tr) : 1;
    if (n > MOST_SIDE || (f->n > 1 && n * n * (double)f->n > MOST_NUMBERS)) return false;
    double nanoseconds = n * n * (n / 30 + 8 * (workers > 1)) * ceil((double)f->n / workers) * workers;
    f->cost = tr_newton_outer_cost(nonzeros, n);
    return f->cost + nanoseconds / (2 * o->nonzeros * (double)o->problem->outputs + 1e6) < 60;
}

struct tr_newton_factors tr_newton_choose_factors(const struct tr_newton_options *o)
{
    const struct tr_problem *p = o->problem;
    size_t all = (size_t)o->columns + p->bias;
    double each = o->nonzeros / fmax(p->n, 1) + p->bias;
    struct tr_newton_factors whole = {1, all * p->outputs, 0}, blocks = {p->outputs, all, 0}, none = {0};
    if (o->preconditioner == TR_PRECONDITION_DIAGONAL) return none;
    if (p->softmax && can_factor(o, &whole, each * (double)p->outputs)) return whole;
    return can_factor(o, &blocks, each) || o->preconditioner == TR_PRECONDITION_DENSE ? blocks : none;
}

bool tr_newton_is_exact(const struct tr_newton_options *o)
{
    struct tr_newton_factors f = tr_newton_choose_factors(o);
    return f.n == 1 || (f.n > 1 && !o->problem->softmax);
}

int tr_newton_least_passes(const struct tr_newton_options *o)
{
    return tr_newton_choose_factors(o).n > 0 ? 3 : 2;
}

static struct tr_newton_part part_of(const struct tr_newton_factors *f, int worker, int workers)
{
    size_t w = (size_t)worker, all = (size_t)workers;
    if (f->n == 1 || worker < 0) return (struct tr_newton_part){0, worker < 0 ? 0 : f->n};
    return (struct tr_newton_part){f->n * w / all, f->n * (w + 1) / all};
}

struct tr_newton_part tr_newton_own_part(const tr_context *tr, const struct tr_newton_factors *f)
{
    return tr ? part_of(f, tr_set_rank(tr, TR_SET_WORKERS), tr_workers(tr)) : part_of(f, 0, 1);
}

/* The blocks on the Hessian's diagonal, of this worker's rows. */
static int add_blocks(struct tr_newton *t, double *blocks)
{
    size_t outputs = t->outputs;
    double *of_class = t->part + TR_NEWTON_BLOCK * outputs;
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_newton_block(t, done);
        tr_newton_diagonal_of_rows(t, done, n, t->part);
        for (size_t k = 0; k < outputs; k++) {
            for (size_t i = 0; i < n; i++) of_class[i] = t->part[i * outputs + k];
            TR_TRY(tr_newton_add_outer(t->problem, t->o.first + done, n, of_class, t->keys, t->all,
                                       blocks + k * t->all * t->all));
        }
    }
    return TR_OK;
}

/* All of a softmax's: X' (diag(q) - q q') X for the probabilities q of a row. */
static int add_whole(struct tr_newton *t, double *whole)
{
    size_t outputs = t->outputs, all = t->all, side = t->factors.side;
    double *blocks;
    TR_TRY(TR_NEW(&blocks, outputs * all * all));
    int status = TR_OK;
    for (size_t done = 0, n; done < t->o.n && status == TR_OK; done += n) {
        n = tr_newton_block(t, done);
        const double *curvature = t->curvature + done * outputs;
        for (size_t i = 0; i < n * outputs; i += outputs) {
            double weight = 0;
            for (size_t k = 0; k < outputs; k++) weight += curvature[i + k];
            for (size_t k = 0; k < outputs; k++)
                t->part[i + k] = weight > 0 ? curvature[i + k] / sqrt(weight) : 0;
        }
        status = tr_newton_subtract_outer(t->problem, t->o.first + done, n, t->part, t->keys, all, whole);
        for (size_t k = 0; k < outputs && status == TR_OK; k++) {
            for (size_t i = 0; i < n; i++) t->part[i] = curvature[i * outputs + k];
            status = tr_newton_add_outer(t->problem, t->o.first + done, n, t->part, t->keys, all,
                                         blocks + k * all * all);
        }
    }
    for (size_t k = 0; k < outputs; k++)
        for (size_t i = 0; i < all; i++)
            for (size_t j = 0; j <= i; j++)
                whole[(i * outputs + k) * side + j * outputs + k] += blocks[(k * all + i) * all + j];
    free(blocks);
    return status;
}

/* All workers' sums: of blocks each gets its own. */
static int sum_factors(struct tr_newton *t)
{
    const struct tr_newton_factors *f = &t->factors;
    int workers = t->columns.workers;
    size_t *counts;
    if (f->n == 1 || workers == 1)
        return tr_columns_sum_rows(&t->columns, t->factor, f->n * tr_newton_square(f));
    TR_TRY(TR_NEW(&counts, (size_t)workers));
    for (int w = 0; w < workers; w++) {
        struct tr_newton_part part = part_of(f, w, workers);
        counts[w] = (part.end - part.first) * tr_newton_square(f);
    }
    int status = tr_reduce_scatter(t->o.tr, TR_SET_WORKERS, TR_F64, t->factor, counts, NULL);
    free(counts);
    return status;
}

/* The Hessian, or its blocks, become factors. */
static int make_factor(struct tr_newton *t)
{
    const struct tr_newton_factors *f = &t->factors;
    struct tr_newton_part part = tr_newton_own_part(t->o.tr, f);
    size_t side = f->side, lambdas = tr_newton_regularised(t) * side / tr_newton_own(t);
    memset(t->factor, 0, f->n * tr_newton_square(f) * sizeof *t->factor);
    TR_TRY((side > t->all ? add_whole : add_blocks)(t, t->factor));
    TR_TRY(sum_factors(t));
    for (size_t k = part.first; k < part.end; k++) {
        double *h = t->factor + k * tr_newton_square(f), share = 1 / t->problem->n;
        for (size_t j = 0; j < tr_newton_square(f); j++) h[j] *= share;
        for (size_t j = 0; j < lambdas; j++) h[j * side + j] += t->problem->l2;
        tr_cholesky(side, h);
    }
    t->has_factor = true;
    t->iterations = 0;
    t->state.passes++;
    return TR_OK;
}

/* A factor of a Hessian some steps before serves until it takes as many products to correct it as a third of the time that
 * a new one takes is worth, but for three; then the step ends, and the next has a new one. Rows that come into corners, or
 * leave them, change the Hessian too much for that. */
static int64_t most_corrections(const struct tr_newton *t)
{
    return (int64_t)fmax(4, t->factors.cost / 3);
}

bool tr_newton_needs_factor(const struct tr_newton *t)
{
    bool serves = t->has_factor && t->iterations < most_corrections(t) && !tr_newton_has_corner(t);
    return t->factor && !serves;
}

int tr_newton_precondition(struct tr_newton *t, int64_t *most)
{
    enum { MOST = 250 };
    *most = MOST;
    if (tr_newton_needs_factor(t)) return make_factor(t);
    if (t->factor) *most = most_corrections(t);
    return TR_OK;
}

static double mean_of(size_t n, const double *x, size_t stride)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += x[k * stride];
    return sum / (double)n;
}

/* Solves by the classes' blocks, each worker by its own. What all weights of a column have in common does not change a
 * softmax's probabilities: along it the Hessian is λ, and blocks are asked about the rest alone. */
static int solve_blocks(struct tr_newton *t, const double *r, double *out)
{
    size_t outputs = t->outputs, all = t->all, free_bias = tr_newton_regularised(t) / outputs;
    struct tr_newton_part part = tr_newton_own_part(t->o.tr, &t->factors);
    bool softmax = t->problem->softmax;
    double *of_class = t->product, l2 = t->problem->l2; /* nobody needs the last product any more */
    memset(of_class, 0, tr_newton_own(t) * sizeof *of_class);
    for (size_t k = part.first; k < part.end; k++) {
        double *x = of_class + k * all;
        for (size_t j = 0; j < all; j++)
            x[j] = r[j * outputs + k] - (softmax ? mean_of(outputs, r + j * outputs, 1) : 0);
        tr_cholesky_solve(all, t->factor + k * tr_newton_square(&t->factors), 1, x);
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, of_class, tr_newton_own(t)));
    for (size_t j = 0; j < all; j++) {
        double more = 0;
        if (softmax) more -= mean_of(outputs, of_class + j, all);
        if (softmax && l2 > 0 && j < free_bias) more += mean_of(outputs, r + j * outputs, 1) / l2;
        for (size_t k = 0; k < outputs; k++) out[j * outputs + k] = of_class[k * all + j] + more;
    }
    return TR_OK;
}

/* Hsia, Chiang and Lin 2018: a hundredth of the diagonal and the rest of the identity, which is λ here. A free bias has its
 * diagonal alone. */
int tr_newton_apply_preconditioner(struct tr_newton *t, const double *r, double *out)
{
    const double share = 0.01;
    double l2 = t->problem->l2, n = t->problem->n;
    size_t free_bias = tr_newton_regularised(t);
    if (t->factors.n > 1) return solve_blocks(t, r, out);
    if (t->factor) {
        memcpy(out, r, tr_newton_own(t) * sizeof *out);
        tr_cholesky_solve(t->factors.side, t->factor, 1, out);
        return TR_OK;
    }
    for (size_t j = 0; j < tr_newton_own(t); j++) {
        double diagonal = j < free_bias && l2 > 0 ? l2 + share * t->diagonal[j] / n : t->diagonal[j] / n;
        out[j] = diagonal > 0 ? r[j] / diagonal : 0;
    }
    return TR_OK;
}

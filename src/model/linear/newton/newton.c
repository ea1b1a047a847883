/* Newton's method: the solver (passes over the rows, preconditioner, step length, steps, checkpoints), and solve.method newton.
 * newton.h explains the method. Functions of the solver that sum over rows or columns are collective over all workers. */
#include "newton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows are processed in blocks of this size, so that intermediate results of a block stay in the cache. */
enum { BLOCK_ROWS = 256 };

/* The matrices of which Cholesky factors are made: one diagonal block of the Hessian per class, which is everything for
 * one-against-rest; or the whole Hessian of a softmax with few classes and columns. */
struct factors {
    size_t n, side;    /* n matrices of side × side elements; n = 0: diagonal preconditioner */
    double cost;       /* time to make the factors, as a multiple of the time of a product with the Hessian */
    size_t first, end; /* this worker makes the factors first .. end - 1; a single factor is made by all */
};

struct tr_newton {
    struct tr_newton_options o;
    const struct tr_problem *problem; /* &ridged if the loss has corners and λ is 0, else o.problem */
    struct tr_problem ridged;         /* o.problem with a tiny λ, because the curvature may be 0 */
    double width;                     /* width of the rounded corners; 0: the loss has no corner */
    size_t outputs;
    struct tr_columns columns;
    tr_key *keys;     /* columns of the keys of the problem, and of the bias */
    double *in, *out; /* vectors over `keys` */
    double *part;     /* scratch for 3 numbers per output of a block of rows */
    /* for each row: w x - shift; product of the step and x; product of the direction and x */
    double *margin, *step_margin, *direction_margin;
    double *curvature; /* for each row: weight × φ''; for softmax weight × probability of each class */
    double *shift;     /* for each row: shift of the corner along the margin; NULL: the loss has no corner */
    double *project;   /* parameters of bias_project() */
    /* vectors over the columns that this worker owns (struct tr_columns) */
    double *w, *gradient, *step, *residual, *direction, *product, *solved, *diagonal;
    size_t all; /* number of columns including the bias */
    struct factors factors;
    double *factor;    /* memory of the factors; NULL: diagonal preconditioner */
    bool has_factor;   /* `factor` contains factors, possibly of an earlier step */
    bool has_gradient; /* `gradient` belongs to the current weights */
    bool restored;     /* margins and loss are from a checkpoint, and the gradient is still missing */
    bool careful; /* curvatures are those of parabolas above the loss, because the last step was too long */
    double last_square; /* |∇F|² before the last step */
    int64_t iterations; /* iterations of conjugate gradients in the last step */
    double loss;        /* Σ φ / n over all rows, with rounded corners */
    double projected;   /* part of the gap due to the projection; softmax: sum over this worker's rows */
    double terms; /* Σ |slope · margin| over the rows of this worker, for the rounding error of the gap */
    struct tr_newton_state state;
};

/* ---- vectors over columns ---- */

/* Returns the number of regularised elements that this worker owns of a vector: all but a free bias, the last column. */
static size_t newton_regularised(const struct tr_newton *t)
{
    bool has_last = t->columns.first + t->columns.n == t->all;
    bool free_bias = t->problem->bias && !t->o.bias_l2 && has_last;
    return (t->columns.n - free_bias) * t->outputs;
}

static size_t newton_own(const struct tr_newton *t)
{
    return t->columns.n * t->outputs;
}

static double newton_dot(size_t n, const double *x, const double *y)
{
    double s[8] = {0};
    size_t j = 0;
    for (; j + 8 <= n; j += 8)
        for (size_t u = 0; u < 8; u++) s[u] += x[j + u] * y[j + u];
    for (; j < n; j++) s[0] += x[j] * y[j];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void newton_axpy(size_t n, double a, const double *restrict x, double *restrict y)
{
    for (size_t j = 0; j < n; j++) y[j] += a * x[j];
}

/* ---- passes over the rows ---- */

/* Sets sum = (Σ of t->out over the workers) / n + λ w. */
static int pass_finish(struct tr_newton *t, const double *w, double *sum)
{
    double part = 1 / t->problem->n;
    TR_TRY(tr_columns_sum(&t->columns, t->out, sum));
    for (size_t j = 0; j < newton_own(t); j++) sum[j] *= part;
    newton_axpy(newton_regularised(t), t->problem->l2, w, sum);
    return TR_OK;
}

/* Returns the slope of a row at margin m. The corner of a piecewise linear loss is rounded (Nesterov 2005): φ is the maximum of
 * u r - width/2 (u - (low + high)/2)² + width/8 over low ≤ u ≤ high, where r = m - y. The slope is the u of the maximum. */
static double row_slope(const struct tr_newton *t, double m, double y)
{
    const struct tr_problem *p = t->problem;
    double low, high;
    if (!(t->width > 0)) return tr_loss_slope(p->loss, m, y, p->shape);
    p->loss->corner(y, p->shape, &low, &high);
    return fmin(fmax((low + high) / 2 + (m - y) / t->width, low), high);
}

/* Returns the curvature of a row at margin m. A careful step uses a parabola that touches the loss at m and at the mirror image of
 * m behind the minimum. The parabola lies above the loss (Huber 1964), so the step is not too long where the curvature is 0. */
static double row_curvature(const struct tr_newton *t, double m, double y, double slope)
{
    const struct tr_problem *p = t->problem;
    double low, high, off = m - y;
    if (!(t->width > 0)) {
        bool above = t->careful && p->loss->labels == TR_LABELS_NUMBERS && off != 0;
        return above ? slope / off : tr_loss_curvature(p->loss, m, y, slope, p->shape);
    }
    p->loss->corner(y, p->shape, &low, &high);
    if (slope > low && slope < high) return 1 / t->width;
    return t->careful && slope != 0 ? slope / (off + (low + high) / 2 * t->width) : 0;
}

/* Processes the n rows from index `done` of this worker's rows on. Replaces their margins in `slope` by weight × slope, and sets
 * `curvature` to weight × φ'', for softmax to weight × probability. */
static void pass_slopes(const struct tr_newton *t, size_t done, size_t n, double *slope, double *curvature)
{
    const struct tr_problem *p = t->problem;
    size_t outputs = t->outputs, first = t->o.first + done;
    tr_seam();
    if (p->softmax) {
        tr_row_slopes(p, first, n, slope);
        for (size_t i = 0; i < n * outputs; i++) {
            bool is = (size_t)p->target[first + i / outputs] == i % outputs;
            curvature[i] = slope[i] + (is ? tr_row_weight(p, first + i / outputs) : 0);
        }
        return;
    }
    for (size_t i = 0; i < n * outputs; i++) {
        double weight = tr_row_weight(p, first + i / outputs),
               y = tr_row_target(p, first + i / outputs, i % outputs), m = slope[i];
        slope[i] = row_slope(t, m, y);
        curvature[i] = weight * row_curvature(t, m, y, slope[i]);
        slope[i] *= weight;
    }
}

/* Sets `out` to the diagonals of the K × K Hessians of the losses of n rows, which are the curvatures except for softmax. */
static void pass_diagonal_of_rows(const struct tr_newton *t, size_t done, size_t n, double *out)
{
    size_t outputs = t->outputs;
    const double *curvature = t->curvature + done * outputs;
    for (size_t i = 0; i < n; i++, curvature += outputs, out += outputs) {
        double weight = 0;
        for (size_t k = 0; k < outputs; k++) weight += curvature[k];
        for (size_t k = 0; k < outputs; k++)
            out[k] = !t->problem->softmax ? curvature[k]
                     : weight > 0         ? curvature[k] * (1 - curvature[k] / weight)
                                          : 0;
    }
}

/* Also sets t->direction_margin = X direction. */
int tr_newton_product(struct tr_newton *t, const double *direction, double *product)
{
    size_t outputs = t->outputs;
    TR_TRY(tr_columns_fetch(&t->columns, direction, t->in));
    memset(t->out, 0, t->columns.local * outputs * sizeof *t->out);
    TR_TRY(tr_turn_begin(t->o.tr, "gradient"));
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_min_size(BLOCK_ROWS, t->o.n - done);
        double *z = t->direction_margin + done * outputs;
        const double *curvature = t->curvature + done * outputs;
        tr_newton_times(t->problem, t->o.first + done, n, t->in, z);
        for (size_t i = 0; i < n * outputs; i += outputs) {
            /* softmax: weight of the row; mean of z, weighted by the probabilities of the classes */
            double weight = 0, mean = 0;
            for (size_t k = i; k < i + outputs && t->problem->softmax; k++)
                weight += curvature[k], mean += curvature[k] * z[k];
            if (weight > 0) mean /= weight;
            for (size_t k = i; k < i + outputs; k++) t->part[k] = curvature[k] * (z[k] - mean);
        }
        tr_newton_add(t->problem, t->o.first + done, n, t->part, t->out);
    }
    TR_TRY(tr_turn_end(t->o.tr, TR_OK));
    t->state.passes++;
    return pass_finish(t, direction, product);
}

/* Computes Σ φ / n over the rows of all workers at the margins t->margin + by × shift, where shift has one element per output; if
 * shift is NULL, at t->margin + by × t->step_margin. */
static int pass_sum_losses(struct tr_newton *t, double by, const double *shift, double *loss)
{
    const struct tr_problem *p = t->problem;
    size_t outputs = t->outputs;
    double sum = 0;
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_min_size(BLOCK_ROWS, t->o.n - done);
        tr_seam();
        const double *margin = t->margin + done * outputs, *moved = t->step_margin + done * outputs;
        double *at = t->part, of_block = 0;
        for (size_t i = 0; i < n * outputs; i++)
            at[i] = margin[i] + by * (shift ? shift[i % outputs] : moved[i]);
        for (size_t i = 0; t->width > 0 && i < n * outputs; i++) {
            size_t row = t->o.first + done + i / outputs;
            double y = tr_row_target(p, row, i % outputs), low, high, u = row_slope(t, at[i], y);
            p->loss->corner(y, p->shape, &low, &high);
            double off = u - (low + high) / 2;
            of_block += tr_row_weight(p, row) * (u * (at[i] - y) + t->width * (0.125 - off * off / 2));
        }
        sum += t->width > 0 ? of_block : tr_row_losses(p, t->o.first + done, n, at, 0);
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, &sum, 1));
    *loss = sum / p->n;
    return TR_OK;
}

/* ---- a free bias ----
 *
 * The dual requires that the slopes of each output sum to 0. The bias is therefore minimised before each gradient. A small sum
 * remains due to rounding, and a projection removes it: if the positive slopes have the larger sum they are multiplied by the ratio
 * of the sums, else the negative slopes; the probabilities of a softmax are mixed with another distribution. By convexity the gap
 * grows by at most (1 - ratio) Σ φ / n, because 0 is a dual point with φ* = 0. */

/* Adds by × shift to the biases and to all margins; shift has one element per output. */
static void bias_move(struct tr_newton *t, double by, const double *shift)
{
    size_t outputs = t->outputs, at = newton_regularised(t);
    for (size_t i = 0; i < t->o.n * outputs; i++) t->margin[i] += by * shift[i % outputs];
    if (at < newton_own(t)) newton_axpy(outputs, by, shift, t->w + at);
}

/* Search for the bias of one output at which the slope of Σ φ is 0. */
struct bias_search {
    double by;        /* change of the bias so far */
    double low, high; /* bracket: the slope is 0 at a `by` between these; ±INFINITY: no bound is known yet */
    double reach;     /* maximum length of the next step while the bracket is open */
    double negative, positive, curvature; /* at `by`: Σ |slope| of negative and of positive slopes; Σ φ'' */
    bool found;
};

/* Changes b->by by a Newton step; by bisection if the step leaves the bracket. Steps grow while the bracket is open, because the
 * curvature may be 0. */
static void bias_advance(const struct tr_newton *t, struct bias_search *b, int turn)
{
    double slope = b->positive - b->negative, sum = b->positive + b->negative;
    b->found = fabs(slope) <= (turn < 20 ? 1e-12 : 1e-9) * sum || b->high - b->low <= 4e-16 * fabs(b->by);
    if (b->found) return;
    if (slope > 0) b->high = b->by;
    else b->low = b->by;
    double step = b->curvature > 0 ? -slope / b->curvature : (double)-INFINITY * slope;
    bool open = !isfinite(b->high - b->low);
    if (open && fabs(step) > b->reach && !t->problem->loss->quadratic) {
        step = copysign(b->reach, step);
        b->reach *= 4;
    }
    double next = b->by + step;
    if (!open && !(next > b->low && next < b->high)) next = (b->low + b->high) / 2;
    b->found = next == b->by;
    b->by = next;
}

/* Minimises over the bias of each output by at most `turns` steps (0: none); sets t->project and t->projected. */
static int bias_settle_each(struct tr_newton *t, int turns)
{
    size_t outputs = t->outputs;
    double *slope = t->part, *curvature = slope + BLOCK_ROWS * outputs;
    TR_FREED struct bias_search *of = NULL;
    TR_FREED double *sums = NULL;
    bool all_found = false;
    TR_TRY(TR_NEW(&of, outputs));
    TR_TRY(TR_NEW(&sums, 6 * outputs));
    double *block = sums + 3 * outputs;
    for (size_t k = 0; k < outputs; k++)
        of[k] = (struct bias_search){.low = -INFINITY, .high = INFINITY, .reach = t->o.scale};
    for (int turn = 0; !all_found; turn++) {
        memset(sums, 0, 3 * outputs * sizeof *sums);
        for (size_t done = 0, n; done < t->o.n; done += n) {
            n = tr_min_size(BLOCK_ROWS, t->o.n - done);
            for (size_t i = 0; i < n * outputs; i++)
                slope[i] = t->margin[done * outputs + i] + of[i % outputs].by;
            pass_slopes(t, done, n, slope, curvature);
            memset(block, 0, 3 * outputs * sizeof *block);
            for (size_t i = 0; i < n * outputs; i++) {
                double *sum = block + 3 * (i % outputs);
                sum[slope[i] > 0] += fabs(slope[i]);
                sum[2] += curvature[i];
            }
            newton_axpy(3 * outputs, 1, block, sums);
        }
        TR_TRY(tr_columns_sum_rows(&t->columns, sums, 3 * outputs));
        all_found = true;
        for (size_t k = 0; k < outputs; k++) {
            of[k].negative = sums[3 * k];
            of[k].positive = sums[3 * k + 1];
            of[k].curvature = sums[3 * k + 2];
            if (!of[k].found && turn < turns) bias_advance(t, &of[k], turn);
            all_found = all_found && (of[k].found || turn >= turns);
        }
    }
    for (size_t k = 0; k < outputs; k++) sums[k] = of[k].by;
    bias_move(t, 1, sums);
    t->projected = 0;
    for (size_t k = 0; k < outputs; k++) {
        double most = fmax(of[k].negative, of[k].positive), least = fmin(of[k].negative, of[k].positive);
        double ratio = most > 0 ? least / most : 1;
        t->project[2 * k] = of[k].negative > of[k].positive ? ratio : 1;
        t->project[2 * k + 1] = of[k].positive > of[k].negative ? ratio : 1;
        t->projected = fmax(t->projected, 1 - ratio);
    }
    return TR_OK;
}

/* Does the work of bias_settle_each() for softmax, by Newton's method on all biases together. t->project is then the fraction of
 * the distribution that is mixed in, followed by the added probability of each class. */
static int bias_settle_softmax(struct tr_newton *t, int turns)
{
    size_t outputs = t->outputs;
    double n = t->problem->n, last = INFINITY, loss = t->loss;
    TR_FREED double *sums = NULL;
    TR_TRY(TR_NEW(&sums, outputs * (outputs + 3)));
    double *hessian = sums + 2 * outputs, *shift = hessian + outputs * outputs;
    for (int turn = 0;; turn++) {
        double *slope = t->part, *curvature = slope + BLOCK_ROWS * outputs, size = 0;
        memset(sums, 0, outputs * (outputs + 2) * sizeof *sums);
        for (size_t done = 0, some; done < t->o.n; done += some) {
            some = tr_min_size(BLOCK_ROWS, t->o.n - done);
            memcpy(slope, t->margin + done * outputs, some * outputs * sizeof *slope);
            pass_slopes(t, done, some, slope, curvature);
            for (size_t i = 0; i < some; i++) {
                const double *q = curvature + i * outputs;
                double weight = 0;
                newton_axpy(outputs, 1, slope + i * outputs, sums);
                newton_axpy(outputs, 1, q, sums + outputs);
                for (size_t k = 0; k < outputs; k++) {
                    hessian[k * outputs + k] += q[k];
                    weight += q[k];
                }
                for (size_t k = 0; k < outputs && weight > 0; k++)
                    newton_axpy(k + 1, -q[k] / weight, q, hessian + k * outputs);
            }
        }
        TR_TRY(tr_columns_sum_rows(&t->columns, sums, outputs * (outputs + 2)));
        for (size_t k = 0; k < outputs; k++) size = fmax(size, fabs(sums[k]));
        if (turn == turns || size <= 1e-13 * n || (size < 1e-8 * n && size > last / 2)) break;
        last = size;
        for (size_t k = 0; k < outputs; k++) {
            if (!(hessian[k * outputs + k] > 1e-12 * n))
                hessian[k * outputs + k] = n;     /* there is no curvature: takes a small step */
            hessian[k * outputs + k] *= 1 + 1e-9; /* equal changes of all biases have no curvature */
        }
        memcpy(shift, sums, outputs * sizeof *shift);
        tr_cholesky(outputs, hessian);
        tr_cholesky_solve(outputs, hessian, 1, shift);
        double by = -1;
        do TR_TRY(pass_sum_losses(t, by, shift, &loss));
        while (!(loss <= t->loss * (1 + 1e-14)) && (by /= 2) < -1e-6);
        if (!(by < -1e-6)) break;
        bias_move(t, by, shift);
        t->loss = loss;
    }
    double mix = 0, *all = sums + outputs;
    for (size_t k = 0; k < outputs; k++) mix = fmax(mix, all[k] > 0 ? sums[k] / all[k] : 0);
    t->project[0] = mix;
    for (size_t k = 0; k < outputs; k++) t->project[1 + k] = fmax(0, mix * all[k] / n - sums[k] / n);
    return TR_OK;
}

/* Projects the slopes of a block of rows, so that the slopes of all rows sum to 0. */
static void bias_project(struct tr_newton *t, size_t done, size_t n, double *slope)
{
    size_t outputs = t->outputs;
    if (!t->problem->bias || t->o.bias_l2) return;
    if (!t->problem->softmax) {
        for (size_t i = 0; i < n * outputs; i++) slope[i] *= t->project[2 * (i % outputs) + (slope[i] > 0)];
        return;
    }
    if (t->project[0] == 0) return;
    for (size_t i = 0; i < n; i++, slope += outputs) {
        const double *q = t->curvature + (done + i) * outputs;
        double weight = tr_row_weight(t->problem, t->o.first + done + i), least = 1;
        if (!(weight > 0)) continue;
        for (size_t k = 0; k < outputs; k++) {
            least = fmin(least, q[k] / weight);
            slope[k] += weight * t->project[1 + k] - t->project[0] * q[k];
        }
        /* bound of the growth of the gap: Σ p log (p / q) ≤ -log(min q) */
        t->projected += weight * t->project[0] * -log(fmax(least, 1e-300));
    }
}

/* Minimises over a free bias, and computes the gradient from the projected slopes, which are feasible dual variables. */
static int pass_gradient(struct tr_newton *t)
{
    size_t outputs = t->outputs, local = t->columns.local * outputs;
    double *squares = t->in, *part = t->part, *more = part + BLOCK_ROWS * outputs;
    if (t->problem->bias && !t->o.bias_l2)
        TR_TRY((t->problem->softmax ? bias_settle_softmax : bias_settle_each)(t, t->restored ? 0 : 60));
    if (!t->restored) TR_TRY(pass_sum_losses(t, 0, NULL, &t->loss));
    if (t->problem->softmax) t->projected = 0;
    t->restored = false;
    t->terms = 0;
    memset(t->out, 0, local * sizeof *t->out);
    memset(squares, 0, local * sizeof *squares);
    TR_TRY(tr_turn_begin(t->o.tr, "gradient"));
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_min_size(BLOCK_ROWS, t->o.n - done);
        const double *margin = t->margin + done * outputs;
        double terms = 0;
        memcpy(part, margin, n * outputs * sizeof *part);
        pass_slopes(t, done, n, part, t->curvature + done * outputs);
        bias_project(t, done, n, part);
        for (size_t i = 0; i < n * outputs; i++) terms += fabs(part[i] * margin[i]);
        t->terms += terms;
        tr_newton_add(t->problem, t->o.first + done, n, part, t->out);
        if (t->factor) continue;
        pass_diagonal_of_rows(t, done, n, more);
        tr_newton_add_squares(t->problem, t->o.first + done, n, more, squares);
    }
    TR_TRY(tr_turn_end(t->o.tr, TR_OK));
    TR_TRY(pass_finish(t, t->w, t->gradient));
    t->has_gradient = true;
    return t->factor ? TR_OK : tr_columns_sum(&t->columns, squares, t->diagonal);
}

/* ---- the preconditioner ---- */

/* Returns whether factors of this size are worth their cost; sets f->cost. Factors take longer than a pass, but save passes in
 * every step (covtype, whose columns are not scaled: 23 passes instead of 244). Each worker factors a single matrix, or some
 * blocks. */
static bool factor_is_possible(const struct tr_newton_options *o, struct factors *f, double nonzeros)
{
    enum { MOST_SIDE = 1024, MOST_NUMBERS = 1 << 23 };
    double n = (double)f->side, workers = o->tr ? tr_workers(o->tr) : 1;
    if (n > MOST_SIDE || (f->n > 1 && n * n * (double)f->n > MOST_NUMBERS)) return false;
    double nanoseconds = n * n * (n / 30 + 8 * (workers > 1)) * ceil((double)f->n / workers) * workers;
    f->cost = tr_newton_outer_cost(nonzeros, n);
    return f->cost + nanoseconds / (2 * o->nonzeros * (double)o->problem->outputs + 1e6) < 60;
}

static struct factors factor_choose(const struct tr_newton_options *o)
{
    const struct tr_problem *p = o->problem;
    size_t all = (size_t)o->columns + p->bias;
    double each = o->nonzeros / fmax(p->n, 1) + p->bias;
    struct factors whole = {.n = 1, .side = all * p->outputs}, f = {.n = p->outputs, .side = all};
    if (o->preconditioner == TR_PRECONDITION_DIAGONAL) return (struct factors){0};
    if (p->softmax && factor_is_possible(o, &whole, each * (double)p->outputs)) f = whole;
    else if (!factor_is_possible(o, &f, each) && o->preconditioner != TR_PRECONDITION_DENSE)
        return (struct factors){0};
    int worker = o->tr ? tr_set_rank(o->tr, TR_SET_WORKERS) : 0, workers = o->tr ? tr_workers(o->tr) : 1;
    if (worker < 0) return f;
    f.first = f.n == 1 ? 0 : f.n * (size_t)worker / (size_t)workers;
    f.end = f.n == 1 ? 1 : f.n * ((size_t)worker + 1) / (size_t)workers;
    return f;
}

bool tr_newton_is_exact(const struct tr_newton_options *o)
{
    struct factors f = factor_choose(o);
    return f.n == 1 || (f.n > 1 && !o->problem->softmax);
}

int tr_newton_least_passes(const struct tr_newton_options *o)
{
    return factor_choose(o).n > 0 ? 3 : 2;
}

/* Adds the whole Hessian of a softmax, the sum over rows of X' (diag(q) - q q') X, where q are the probabilities of the row. */
static int factor_add_whole(struct tr_newton *t, double *whole)
{
    size_t outputs = t->outputs, all = t->all, side = t->factors.side;
    TR_FREED double *blocks = NULL;
    TR_TRY(TR_NEW(&blocks, outputs * all * all));
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_min_size(BLOCK_ROWS, t->o.n - done);
        const double *curvature = t->curvature + done * outputs;
        for (size_t i = 0; i < n * outputs; i += outputs) {
            double weight = 0;
            for (size_t k = 0; k < outputs; k++) weight += curvature[i + k];
            for (size_t k = 0; k < outputs; k++)
                t->part[i + k] = weight > 0 ? curvature[i + k] / sqrt(weight) : 0;
        }
        TR_TRY(tr_newton_subtract_outer(t->problem, t->o.first + done, n, t->part, t->keys, all, whole));
        for (size_t k = 0; k < outputs; k++) {
            for (size_t i = 0; i < n; i++) t->part[i] = curvature[i * outputs + k];
            TR_TRY(tr_newton_add_outer(t->problem, t->o.first + done, n, t->part, t->keys, all,
                                       blocks + k * all * all));
        }
    }
    for (size_t k = 0; k < outputs; k++)
        for (size_t i = 0; i < all; i++)
            for (size_t j = 0; j <= i; j++)
                whole[(i * outputs + k) * side + j * outputs + k] += blocks[(k * all + i) * all + j];
    return TR_OK;
}

/* Computes the Hessian or its blocks, sums them over the workers, and factors them: of several blocks those first .. end - 1. */
static int factor_make(struct tr_newton *t)
{
    const struct factors *f = &t->factors;
    int workers = t->columns.workers;
    size_t outputs = t->outputs, side = f->side, square = side * side,
           lambdas = newton_regularised(t) * side / newton_own(t);
    bool whole = side > t->all;
    memset(t->factor, 0, f->n * square * sizeof *t->factor);
    if (whole) TR_TRY(factor_add_whole(t, t->factor));
    for (size_t done = 0, n; done < t->o.n && !whole; done += n) {
        double *of_class = t->part + BLOCK_ROWS * outputs;
        n = tr_min_size(BLOCK_ROWS, t->o.n - done);
        pass_diagonal_of_rows(t, done, n, t->part);
        for (size_t k = 0; k < outputs; k++) {
            for (size_t i = 0; i < n; i++) of_class[i] = t->part[i * outputs + k];
            TR_TRY(tr_newton_add_outer(t->problem, t->o.first + done, n, of_class, t->keys, t->all,
                                       t->factor + k * square));
        }
    }
    if (f->n == 1 || workers == 1) {
        TR_TRY(tr_columns_sum_rows(&t->columns, t->factor, f->n * square));
    } else {
        TR_FREED size_t *counts = NULL;
        TR_TRY(TR_NEW(&counts, (size_t)workers));
        for (size_t w = 0, all = (size_t)workers; w < all; w++)
            counts[w] = (f->n * (w + 1) / all - f->n * w / all) * square;
        TR_TRY(tr_reduce_scatter(t->o.tr, TR_SET_WORKERS, TR_F64, t->factor, counts, NULL));
    }
    for (size_t k = f->first; k < f->end; k++) {
        double *h = t->factor + k * square, share = 1 / t->problem->n;
        for (size_t j = 0; j < square; j++) h[j] *= share;
        for (size_t j = 0; j < lambdas; j++) h[j * side + j] += t->problem->l2;
        tr_cholesky(side, h);
    }
    t->has_factor = true;
    t->iterations = 0;
    t->state.passes++;
    return TR_OK;
}

/* Returns the maximum number of iterations of a step with a factor of an earlier step. When they cost a third of a new factor, the
 * step ends, and the next step makes a new factor. With corners every step makes a new factor, because rows that enter or leave a
 * corner change the Hessian too much. */
static int64_t factor_most_corrections(const struct tr_newton *t)
{
    return (int64_t)fmax(4, t->factors.cost / 3);
}

static bool factor_is_needed(const struct tr_newton *t)
{
    bool serves = t->has_factor && t->iterations < factor_most_corrections(t) && !(t->width > 0);
    return t->factor && !serves;
}

/* Returns the mean of n elements at distance `stride`. */
static double factor_mean(size_t n, const double *x, size_t stride)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += x[k * stride];
    return sum / (double)n;
}

/* Solves with the diagonal blocks, each worker with its own. Equal changes of the weights of all classes do not change the
 * probabilities of a softmax. Along this direction the Hessian is λ; the blocks solve for the remaining directions. */
static int factor_solve_blocks(struct tr_newton *t, const double *r, double *out)
{
    size_t outputs = t->outputs, all = t->all, free_bias = newton_regularised(t) / outputs;
    bool softmax = t->problem->softmax;
    double *of_class = t->product, l2 = t->problem->l2; /* scratch: the last product is not needed any more */
    memset(of_class, 0, newton_own(t) * sizeof *of_class);
    for (size_t k = t->factors.first; k < t->factors.end; k++) {
        double *x = of_class + k * all;
        for (size_t j = 0; j < all; j++)
            x[j] = r[j * outputs + k] - (softmax ? factor_mean(outputs, r + j * outputs, 1) : 0);
        tr_cholesky_solve(all, t->factor + k * t->factors.side * t->factors.side, 1, x);
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, of_class, newton_own(t)));
    for (size_t j = 0; j < all; j++) {
        double more = 0;
        if (softmax) more -= factor_mean(outputs, of_class + j, all);
        if (softmax && l2 > 0 && j < free_bias) more += factor_mean(outputs, r + j * outputs, 1) / l2;
        for (size_t k = 0; k < outputs; k++) out[j * outputs + k] = of_class[k * all + j] + more;
    }
    return TR_OK;
}

/* Applies the preconditioner: out = M⁻¹ r. The diagonal M of Hsia, Chiang and Lin 2018 mixes a hundredth of the Hessian's diagonal
 * with the identity, here with λ. For a free bias M is the element of the diagonal. */
static int factor_apply(struct tr_newton *t, const double *r, double *out)
{
    const double share = 0.01;
    double l2 = t->problem->l2, n = t->problem->n;
    size_t free_bias = newton_regularised(t);
    if (t->factors.n > 1) return factor_solve_blocks(t, r, out);
    if (t->factor) {
        memcpy(out, r, newton_own(t) * sizeof *out);
        tr_cholesky_solve(t->factors.side, t->factor, 1, out);
        return TR_OK;
    }
    for (size_t j = 0; j < newton_own(t); j++) {
        double diagonal = j < free_bias && l2 > 0 ? l2 + share * t->diagonal[j] / n : t->diagonal[j] / n;
        out[j] = diagonal > 0 ? r[j] / diagonal : 0;
    }
    return TR_OK;
}

/* ---- the length of a step ---- */

/* Line search along the step of one output. */
struct along {
    double by;        /* current factor of the step */
    double low, high; /* bounds of the factor; high INFINITY: not known yet */
    double first;     /* |slope| along the step at factor 1 */
    bool found;
};

/* Scales the step of each output to the minimum along it, by Newton's method on the slope. A full or halved step rarely fits,
 * because the quadratic model of a step ignores the corners that the step crosses. *by: the smallest factor, at most 1. */
static int search_corners(struct tr_newton *t, double *by)
{
    enum { MOST = 100, LONGEST = 64 };
    const struct tr_problem *p = t->problem;
    size_t outputs = t->outputs;
    TR_FREED struct along *along = NULL;
    /* for each output: slope and curvature of Σ φ; then for each output: w · step and |step|² */
    TR_FREED double *sums = NULL;
    TR_TRY(TR_NEW(&along, outputs));
    TR_TRY(TR_NEW(&sums, 4 * outputs));
    double *squares = sums + 2 * outputs;
    for (size_t j = 0; j < newton_regularised(t); j++) {
        squares[2 * (j % outputs)] += t->w[j] * t->step[j];
        squares[2 * (j % outputs) + 1] += t->step[j] * t->step[j];
    }
    TR_TRY(tr_columns_sum_parts(&t->columns, squares, 2 * outputs));
    for (size_t k = 0; k < outputs; k++) along[k] = (struct along){.by = 1, .high = INFINITY};
    bool all_found = false;
    for (int turn = 0; turn < MOST && !all_found; turn++) {
        memset(sums, 0, 2 * outputs * sizeof *sums);
        for (size_t i = 0; i < t->o.n * outputs; i++) {
            size_t row = t->o.first + i / outputs, k = i % outputs;
            double y = tr_row_target(p, row, k), d = t->step_margin[i], m = t->margin[i] + along[k].by * d;
            double weight = tr_row_weight(p, row), slope = row_slope(t, m, y);
            if (i % 4096 == 0) tr_seam();
            sums[2 * k] += weight * d * slope;
            sums[2 * k + 1] += weight * d * d * row_curvature(t, m, y, slope);
        }
        TR_TRY(tr_columns_sum_rows(&t->columns, sums, 2 * outputs));
        all_found = true;
        for (size_t k = 0; k < outputs; k++) {
            struct along *a = &along[k];
            const double *sum = sums + 2 * k, *square = squares + 2 * k;
            double slope = sum[0] / p->n + p->l2 * (square[0] + a->by * square[1]),
                   next = a->by - slope / (sum[1] / p->n + p->l2 * square[1]);
            if (a->found) continue;
            if (turn == 0) a->first = fabs(slope);
            a->found =
                fabs(slope) <= 1e-3 * a->first || a->high - a->low < 1e-6 * a->high || a->low >= LONGEST;
            if (a->found) continue;
            all_found = false;
            *(slope > 0 ? &a->high : &a->low) = a->by;
            if (next > a->low && next < a->high) a->by = next;
            else a->by = isfinite(a->high) ? (a->low + a->high) / 2 : 2 * a->low;
        }
    }
    *by = 1;
    for (size_t k = 0; k < outputs; k++) *by = fmin(*by, along[k].by);
    for (size_t j = 0; j < newton_own(t); j++) t->step[j] *= along[j % outputs].by;
    for (size_t i = 0; i < t->o.n * outputs; i++) t->step_margin[i] *= along[i % outputs].by;
    return TR_OK;
}

/* Halves the step until F decreases by at least 1e-4 of the first-order prediction (Armijo), up to rounding. *by: the factor; 0 if
 * no factor above 1e-9 is enough. */
static int search_armijo(struct tr_newton *t, double *by)
{
    size_t n = newton_regularised(t);
    double sums[] = {newton_dot(newton_own(t), t->gradient, t->step), newton_dot(n, t->w, t->w),
                     newton_dot(n, t->w, t->step), newton_dot(n, t->step, t->step)};
    double l2 = t->problem->l2, before, loss;
    TR_TRY(tr_columns_sum_parts(&t->columns, sums, 4));
    before = t->loss + l2 / 2 * sums[1];
    for (*by = 1; *by > 1e-9; *by /= 2) {
        TR_TRY(pass_sum_losses(t, *by, NULL, &loss));
        double now = loss + l2 / 2 * (sums[1] + 2 * *by * sums[2] + *by * *by * sums[3]);
        if (!(now <= before + 1e-4 * *by * sums[0] + 1e-15 * before)) continue;
        t->loss = loss;
        return TR_OK;
    }
    *by = 0;
    return TR_OK;
}

/* Width of the rounded corners, as a multiple of options.scale: initial value, so that with zero weights nearly all rows are in a
 * corner; factor when corners are shifted, if the previous step took at most FEW_PRODUCTS products; minimum. Corners are shifted
 * when the rest of the gap is at most few_times the excess. (Hinge, to a gap of 1e-3: 34 passes on a9a, 86 on w8a and on 20
 * newsgroups, 95 on clicks. Corners that only become narrower take 67, 223, and more than 400 on the others, because their
 * curvature grows.) */
static const double first_width = 4, narrower = 0.7, least_width = 1e-4, few_times = 10;
enum { FEW_PRODUCTS = 10 };

/* ---- opening ---- */

static int solver_open(struct tr_newton *t)
{
    const struct tr_problem *p = t->problem;
    TR_TRY(TR_NEW(&t->keys, p->keys + 1));
    if (p->keys > 0) memcpy(t->keys, t->o.keys, p->keys * sizeof *t->keys);
    t->keys[p->keys] = t->o.columns;
    t->all = (size_t)t->o.columns + p->bias;
    TR_TRY(tr_columns_open(&t->columns, t->o.tr, t->keys, p->keys + p->bias, t->all, t->outputs));
    size_t local = t->columns.local * t->outputs, rows = t->o.n * t->outputs, own = newton_own(t);
    double **of_keys[] = {&t->in, &t->out},
           **of_rows[] = {&t->margin, &t->step_margin, &t->direction_margin, &t->curvature},
           **of_columns[] = {&t->w,         &t->gradient, &t->step,   &t->residual,
                             &t->direction, &t->product,  &t->solved, &t->diagonal};
    for (size_t i = 0; i < 2; i++) TR_TRY(TR_NEW(of_keys[i], local));
    for (size_t i = 0; i < 4; i++) TR_TRY(TR_NEW(of_rows[i], rows));
    for (size_t i = 0; i < 8; i++) TR_TRY(TR_NEW(of_columns[i], own));
    if (t->width > 0) TR_TRY(TR_NEW(&t->shift, rows));
    TR_TRY(TR_NEW(&t->part, 3 * BLOCK_ROWS * t->outputs));
    TR_TRY(TR_NEW(&t->project, 2 * t->outputs));
    t->factors = factor_choose(&t->o);
    if (t->factors.n > 0) TR_TRY(TR_NEW(&t->factor, t->factors.n * t->factors.side * t->factors.side));
    tr_add_offsets(p, t->o.first, t->o.n, t->margin);
    if (p->bias && !t->o.bias_l2 && t->o.start != 0) bias_move(t, t->o.start, &(double){1});
    return TR_OK;
}

int tr_newton_open(const struct tr_newton_options *options, struct tr_newton **newton)
{
    struct tr_newton *t;
    TR_TRY(TR_NEW(&t, 1));
    *t = (struct tr_newton){.o = *options,
                            .problem = options->problem,
                            .outputs = options->problem->outputs,
                            .state = {.decrease = 1}};
    if (!(t->o.scale > 0)) t->o.scale = 1;
    t->ridged = *options->problem;
    t->ridged.l2 = 1e-9 / t->o.scale;
    if (t->problem->loss->corner) t->width = first_width * t->o.scale;
    if (t->problem->loss->corner && t->problem->l2 == 0) t->problem = &t->ridged;
    int status = solver_open(t);
    if (status != TR_OK) tr_newton_close(&t);
    *newton = t;
    return status;
}

void tr_newton_close(struct tr_newton **newton)
{
    struct tr_newton *t = *newton;
    if (!t) return;
    TR_FREE_ALL(t->keys, t->in, t->out, t->part, t->margin, t->step_margin, t->direction_margin, t->curvature,
                t->w, t->gradient, t->step, t->residual, t->direction, t->product, t->solved, t->diagonal,
                t->factor, t->shift, t->project);
    tr_columns_close(&t->columns);
    free(t);
    *newton = NULL;
}

struct tr_newton_weights tr_newton_weights(struct tr_newton *t)
{
    return (struct tr_newton_weights){t->w, t->gradient, t->columns.first, t->columns.n, t->columns.whole};
}

/* ---- evaluation of the weights ---- */

/* Returns whether the next step shifts the corners first. */
static bool solver_moves_corners(const struct tr_newton *t)
{
    return t->width > 0 && t->state.gap - t->state.excess <= few_times * t->state.excess;
}

/* The slopes of the last gradient are feasible dual variables. With these, the gap is |∇F|² / (2 λ), plus the excess
 * Σ (φ(m) + φ*(u) - u m) / n, plus a bound of the rounding errors. */
int tr_newton_look(struct tr_newton *t, struct tr_newton_state *state)
{
    double l2 = t->problem->l2, parts[2], rows[5] = {0}, n = t->problem->n;
    size_t regularised = newton_regularised(t);
    if (!t->has_gradient) TR_TRY(pass_gradient(t));
    parts[0] = newton_dot(regularised, t->w, t->w);
    parts[1] = newton_dot(regularised, t->gradient, t->gradient);
    TR_TRY(tr_columns_sum_parts(&t->columns, parts, 2));
    /* for losses with corners: rows[0] is Σ φ without rounding, rows[1] the excess for the feasible slopes u */
    bool projects = t->problem->bias && !t->o.bias_l2;
    for (size_t i = 0; i < t->o.n * t->outputs && t->width > 0; i++) {
        size_t row = t->o.first + i / t->outputs, k = i % t->outputs;
        double y = tr_row_target(t->problem, row, k), u = row_slope(t, t->margin[i], y), low, high;
        double r = t->margin[i] + t->shift[i] - y, weight = tr_row_weight(t->problem, row);
        if (projects) u *= t->project[2 * k + (u > 0)];
        t->problem->loss->corner(y, t->problem->shape, &low, &high);
        rows[0] += weight * (r > 0 ? high : low) * r;
        rows[1] += weight * ((r > 0 ? high : low) - u) * r;
    }
    rows[2] = t->terms;
    rows[3] = t->problem->softmax ? t->projected : 0;
    rows[4] = (double)t->o.n;
    TR_TRY(tr_columns_sum_rows(&t->columns, rows, 5));
    t->state.objective = (t->width > 0 ? rows[0] / n : t->loss) + t->o.problem->l2 / 2 * parts[0];
    t->state.excess = t->width > 0 ? rows[1] / n : t->problem->softmax ? rows[3] / n : t->projected * t->loss;
    double rounding = 2.3e-16 * (64 + rows[4] / (BLOCK_ROWS * (double)t->columns.workers));
    t->state.gap = (double)NAN;
    if (l2 > 0)
        t->state.gap = t->state.excess + parts[1] / (2 * l2) + rounding * (t->state.objective + rows[2] / n);
    t->state.next = 2 + solver_moves_corners(t) + factor_is_needed(t);
    *state = t->state;
    return TR_OK;
}

int tr_newton_moved(struct tr_newton *t)
{
    TR_TRY(tr_columns_fetch(&t->columns, t->w, t->in));
    tr_newton_times(t->problem, t->o.first, t->o.n, t->in, t->margin);
    tr_add_offsets(t->problem, t->o.first, t->o.n, t->margin);
    if (t->width > 0) newton_axpy(t->o.n * t->outputs, -1, t->shift, t->margin);
    t->state.passes += 1 + t->has_gradient; /* counts a gradient at the old weights, which no step uses */
    t->has_gradient = t->has_factor = t->state.stuck = false;
    return TR_OK;
}

/* ---- a step ---- */

/* Sets t->solved to the preconditioned residual; squares to residual · solved, the square in the norm of the preconditioner, and
 * |residual|². */
static int solver_measure_residual(struct tr_newton *t, double *squares)
{
    size_t n = newton_own(t);
    TR_TRY(factor_apply(t, t->residual, t->solved));
    squares[0] = newton_dot(n, t->residual, t->solved);
    squares[1] = newton_dot(n, t->residual, t->residual);
    return tr_columns_sum_parts(&t->columns, squares, 2);
}

/* Solves H step = -gradient by at most `most` iterations of conjugate gradients. Sets state.decrease to the predicted decrease
 * relative to F. Stops when the residual is a fifth of its first value, or when an iteration hardly decreases the model (Nash and
 * Sofer 1990). The residual must be small in the norm of the preconditioner and in the 2-norm: the 2-norm determines the gap, and
 * the residual may be concentrated in few columns with little weight in the other norm (clicks, to a gap of 1e-3: 47 passes for
 * logistic loss, 81 for squared hinge; without the 2-norm 270, and more than 400). With corners the norm of the preconditioner is
 * enough, because corners are shifted before the gap is small. */
static int solver_solve(struct tr_newton *t, int64_t most)
{
    const double enough = 0.2 * 0.2, little = 0.1;
    size_t n = newton_own(t);
    double decrease = 0, square[2], first[2];
    memset(t->step, 0, n * sizeof *t->step);
    memset(t->step_margin, 0, t->o.n * t->outputs * sizeof *t->step_margin);
    for (size_t j = 0; j < n; j++) t->residual[j] = -t->gradient[j];
    TR_TRY(solver_measure_residual(t, square));
    memcpy(t->direction, t->solved, n * sizeof *t->direction);
    memcpy(first, square, sizeof first);
    for (t->iterations = 0; t->iterations < most && square[0] > 0;) {
        TR_TRY(tr_newton_product(t, t->direction, t->product));
        double curvature = newton_dot(n, t->direction, t->product);
        TR_TRY(tr_columns_sum_parts(&t->columns, &curvature, 1));
        if (!(curvature > 0)) break;
        double a = square[0] / curvature, gained = a * square[0] / 2, before = square[0];
        newton_axpy(n, a, t->direction, t->step);
        newton_axpy(n, -a, t->product, t->residual);
        newton_axpy(t->o.n * t->outputs, a, t->direction_margin, t->step_margin);
        decrease += gained;
        t->iterations++;
        if ((double)t->iterations * gained <= little * decrease) break;
        TR_TRY(solver_measure_residual(t, square));
        if (square[0] <= enough * first[0] && (t->width > 0 || square[1] <= enough * first[1])) break;
        for (size_t j = 0; j < n; j++) t->direction[j] = t->solved[j] + square[0] / before * t->direction[j];
    }
    t->state.decrease = decrease / t->state.objective;
    return TR_OK;
}

/* Shifts the corner of each row, by the method of multipliers (Rockafellar 1976): the centre of the prox function, at first the
 * middle of the slopes, becomes the slope of the row. Therefore the gap falls to 0 at any width. */
static int solver_move_corners(struct tr_newton *t)
{
    const struct tr_problem *p = t->problem;
    double least = least_width * t->o.scale, width = t->width, low, high;
    if (t->iterations <= FEW_PRODUCTS) width = fmax(width * narrower, least);
    for (size_t i = 0; i < t->o.n * t->outputs; i++) {
        double y = tr_row_target(p, t->o.first + i / t->outputs, i % t->outputs), before = t->shift[i];
        double u = row_slope(t, t->margin[i], y);
        p->loss->corner(y, p->shape, &low, &high);
        t->shift[i] = -width * (u - (low + high) / 2);
        t->margin[i] += before - t->shift[i];
    }
    t->width = width;
    t->state.passes++;
    return pass_gradient(t);
}

/* A step is stuck if the predicted decrease is below rounding and |∇F|² has fallen by less than a factor of 4. The second condition
 * is needed because steps that do not change F any more still lower the gap, which is a sum of squares. */
int tr_newton_step(struct tr_newton *t, struct tr_newton_state *state)
{
    const double too_long = 0.3, far = 0.1;
    double by = 0, square;
    int64_t most = 250;
    TR_TRY(tr_newton_look(t, state));
    if (t->o.passes > 0 && state->passes + state->next > t->o.passes) return TR_OK;
    t->state.passes++; /* computing the gradient took one pass */
    if (solver_moves_corners(t)) TR_TRY(solver_move_corners(t));
    if (factor_is_needed(t)) TR_TRY(factor_make(t));
    else if (t->factor) most = factor_most_corrections(t);
    if (t->o.passes > 0) most = (int64_t)fmin((double)most, t->o.passes - t->state.passes);
    TR_TRY(solver_solve(t, most));
    bool corners = t->width > 0, was_careful = t->careful;
    if (t->iterations > 0) TR_TRY((corners ? search_corners : search_armijo)(t, &by));
    double length = corners && by > 0 ? 1 : by; /* search_corners() has scaled the step itself */
    newton_axpy(newton_own(t), length, t->step, t->w);
    newton_axpy(t->o.n * t->outputs, length, t->step_margin, t->margin);
    t->careful = t->state.decrease > far ? by < too_long || was_careful : by == 0;
    if (t->careful != was_careful) t->has_factor = false;
    square = newton_dot(newton_regularised(t), t->gradient, t->gradient);
    TR_TRY(tr_columns_sum_parts(&t->columns, &square, 1));
    bool slow = square > 0.25 * t->last_square, stuck = t->state.decrease < 1e-15 && slow;
    t->last_square = square;
    if (by == 0) stuck = !t->careful || was_careful;
    /* the prediction of the decrease was wrong; the next step is careful */
    if (by == 0 && !stuck) t->state.decrease = 1;
    if (by > 0 || t->careful != was_careful) TR_TRY(pass_gradient(t));
    TR_TRY(tr_newton_look(t, state));
    state->stuck = t->state.stuck = stuck && !solver_moves_corners(t);
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Lists numbers by row in a snapshot, one array per output. */
static int solver_keep_margins(const struct tr_newton *t, const char *of, double *numbers, size_t outputs,
                               const tr_data *data, tr_snapshot *snapshot)
{
    TR_FREED double *one = NULL;
    size_t n = t ? t->o.n : 0;
    TR_TRY(TR_NEW(&one, data->rows.n));
    for (size_t k = 0; k < outputs; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s_%zu", of, k);
        for (size_t i = 0; i < n; i++) one[t->o.first + i] = numbers[i * outputs + k];
        TR_TRY(tr_data_keep(data, snapshot, name, TR_F64, one));
        for (size_t i = 0; i < n; i++) numbers[i * outputs + k] = one[t->o.first + i];
    }
    return TR_OK;
}

/* alike: this rank lists the values that are equal on all workers: worker 0 when they are saved, all workers when they are
 * restored. Ranks that are no workers have no solver (t is NULL). */
static int newton_snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_newton *t = m->newton->solver;
    const struct tr_newton_options *o = &m->newton->options;
    const tr_data *data = m->train;
    enum { NUMBERS = 8 };
    bool restores = tr_snapshot_restores(snapshot),
         alike = t && (restores || tr_set_rank(o->tr, TR_SET_WORKERS) == 0);
    size_t all = (size_t)o->columns + o->problem->bias, outputs = o->problem->outputs;
    struct factors factors = factor_choose(o);
    double numbers[NUMBERS] = {0};
    if (t)
        memcpy(numbers,
               (double[]){t->state.decrease, t->state.passes, t->loss, t->has_factor, (double)t->iterations,
                          t->width, t->careful, t->last_square},
               sizeof numbers);
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    if (restores) m->newton->started = true;
    TR_TRY(tr_snapshot_rows(snapshot, "newton", TR_F64, 1, NUMBERS, NULL, 0, alike, numbers));
    bool has_part = t && (alike || !t->columns.whole);
    TR_TRY(tr_snapshot_rows(snapshot, "weights", TR_F64, all, outputs, NULL, has_part ? t->columns.first : 0,
                            has_part ? t->columns.n : 0, t ? t->w : NULL));
    TR_TRY(solver_keep_margins(t, "margin", t ? t->margin : NULL, outputs, data, snapshot));
    if (o->problem->loss->corner)
        TR_TRY(solver_keep_margins(t, "shift", t ? t->shift : NULL, outputs, data, snapshot));
    size_t square = factors.side * factors.side;
    bool has_factor = t && (factors.n > 1 || alike) && factors.end > factors.first;
    if (factors.n > 0)
        TR_TRY(tr_snapshot_rows(snapshot, "factor", TR_F64, factors.n, square, NULL, factors.first,
                                has_factor ? factors.end - factors.first : 0,
                                t ? t->factor + factors.first * square : NULL));
    if (!t || !restores) return TR_OK;
    t->state.decrease = numbers[0];
    t->state.passes = numbers[1];
    t->loss = numbers[2];
    t->has_factor = numbers[3] > 0;
    t->iterations = (int64_t)numbers[4];
    t->width = numbers[5];
    t->careful = numbers[6] > 0;
    t->last_square = numbers[7];
    t->has_gradient = false;
    t->restored = true;
    return TR_OK;
}

/* ==== solve.method newton ==== */

/* A clock is one step of the solver. After it, the weights are pushed to the table w, rounded to its type. */

static int newton_check(const tr_job *job, const struct tr_linear_options *o)
{
    const struct tr_refusal list[] = {
        {o->l1 > 0, "model.l1", "model.l1 is not smooth: not for solve.method newton"},
        {!tr_job_is(job, "sync.mode", "bsp"), "sync.mode",
         "with newton all workers step together: expected bsp"},
        {!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD, "solve.method",
         "sync.weight and solve.optimizer are for solve.method sgd"},
        {tr_job_is(job, "data.partition", "vertical"), "data.partition",
         "data.partition vertical is not for solve.method newton, which needs whole rows"},
        {.key = NULL}};
    return tr_linear_refuse_any(job, list);
}

static int newton_open(struct tr_linear *m)
{
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->newton, 1)));
    if (!m->target)
        m->problem = (struct tr_problem){.loss = m->loss,
                                         .outputs = m->outputs,
                                         .softmax = m->softmax,
                                         .bias = m->o->bias,
                                         .n = m->total_weight};
    m->newton->options = (struct tr_newton_options){.tr = m->tr,
                                                    .problem = &m->problem,
                                                    .keys = m->train->keys,
                                                    .columns = m->train->columns,
                                                    .bias_l2 = m->o->bias_l2,
                                                    .start = m->start,
                                                    .scale = m->unit,
                                                    .nonzeros = (double)m->train->total_nonzeros};
    return TR_OK;
}

static void newton_close(struct tr_linear *m)
{
    struct tr_linear_newton *s = m->newton;
    if (!s) return;
    tr_newton_close(&s->solver);
    tr_view_close(&s->own);
    free(s);
    m->newton = NULL;
}

/* ---- the stage ---- */

static int newton_prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_newton *s = m->newton;
    TR_TRY(tr_linear_prepare_rows(me, m, 1));
    s->options.first = tr_data_part_begin(m->train, me);
    s->options.n = tr_data_part_end(m->train, me) - s->options.first;
    s->options.passes = (double)m->epochs - tr_linear_epochs_before(m);
    TR_TRY(tr_newton_open(&s->options, &s->solver));
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    return tr_linear_open_range(m->w, weights.first, weights.n,
                                weights.whole && me->worker > 0 ? TR_VIEW_READ : TR_VIEW_UPDATE, &s->own);
}

/* Starts from the weights in the table (of another method or model.init), if they are better than zeros; else from zeros. Far from
 * the optimum losses are nearly linear, and Newton steps fail. */
static int newton_start(struct tr_linear *m)
{
    struct tr_linear_newton *s = m->newton;
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    size_t n = weights.n * m->outputs;
    double sum = 0, zeros;
    s->started = true;
    for (size_t i = 0; i < n; i++) sum += fabs(tr_real_get(m->problem.dtype, s->own->value, i));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &sum, 1));
    if (sum == 0) return TR_OK;
    TR_TRY(tr_newton_look(s->solver, &s->state));
    zeros = s->state.objective;
    for (size_t i = 0; i < n; i++) weights.value[i] = tr_real_get(m->problem.dtype, s->own->value, i);
    TR_TRY(tr_newton_moved(s->solver));
    TR_TRY(tr_newton_look(s->solver, &s->state));
    if (s->state.objective <= zeros) return TR_OK;
    bool free_bias = m->o->bias && !m->o->bias_l2 && weights.first + weights.n > m->train->columns;
    for (size_t i = 0; i < n; i++) weights.value[i] = free_bias && i + m->outputs >= n ? m->start : 0;
    return tr_newton_moved(s->solver);
}

static int newton_compute(tr_worker *me, void *state)
{
    (void)me;
    struct tr_linear *m = state;
    struct tr_linear_newton *s = m->newton;
    TR_TRY(tr_view_pull(s->own));
    if (!s->started) TR_TRY(newton_start(m));
    TR_TRY(tr_newton_look(s->solver, &s->state));
    /* a run that resumes at its last step takes no further step. The factor 0.9 is that of tr_linear_prove() */
    double goal = m->o->target_gap * (m->l2 > 0 ? 1 : 0.9);
    if (!(s->state.gap <= goal * (s->state.objective - s->state.gap)))
        TR_TRY(tr_newton_step(s->solver, &s->state));
    if (!s->own->delta) return TR_OK;
    struct tr_newton_weights weights = tr_newton_weights(s->solver);
    for (size_t i = 0; i < weights.n * m->outputs; i++) {
        if (m->problem.dtype == TR_F32)
            ((float *)s->own->delta)[i] = (float)weights.value[i] - ((const float *)s->own->value)[i];
        else ((double *)s->own->delta)[i] = weights.value[i] - ((const double *)s->own->value)[i];
    }
    return tr_view_push(s->own);
}

/* All workers have the same state; worker 0 reports it. */
static int newton_evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    const struct tr_newton_state *at = &m->newton->state;
    if (me->worker == 0) {
        report->sum[TR_LINEAR_LOSS] += at->objective * m->problem.n;
        report->sum[TR_LINEAR_OWN_SUMS] = at->gap;
        report->sum[TR_LINEAR_OWN_SUMS + 1] = at->decrease + at->excess / at->objective;
        report->sum[TR_LINEAR_OWN_SUMS + 2] = at->passes;
        report->sum[TR_LINEAR_OWN_SUMS + 3] = at->stuck ? -1 : at->next;
    }
    return m->test ? tr_linear_report_test(me, m, m->test_view, report) : TR_OK;
}

static int newton_summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    const double *sum = report->sum + TR_LINEAR_OWN_SUMS;
    evaluation->epoch = tr_linear_epochs_before(m) + sum[2];
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    /* Without λ no gap is proven. For losses with corners the solver estimates the gap. For other losses the estimate is the
     * decrease that the last step predicted; training ends when it is small, or if the objective of separable rows is near 0. */
    double goal = m->o->target_gap, objective = evaluation->objective;
    bool stop = evaluation->stop, small = tr_linear_classifies(m) && objective < goal * m->usual;
    tr_linear_prove(m, isnan(sum[0]) ? sum[1] * objective : sum[0], m->l2 > 0, evaluation);
    if (isnan(sum[0])) evaluation->stop = stop || (goal > 0 && (sum[1] < goal / 10 || small));
    if (sum[3] < 0 || evaluation->epoch + sum[3] > (double)m->epochs) evaluation->stop = true;
    m->stuck = sum[3] < 0;
    m->last = *evaluation;
    return TR_OK;
}

static int newton_train(struct tr_linear *m)
{
    tr_stage train = tr_linear_stage(m);
    int least = tr_newton_least_passes(&m->newton->options);
    if (m->epochs < least)
        return tr_agree(m->tr,
                        tr_fail(TR_ERR_CONFIG,
                                "%s: solve.epochs is %lld, but a step of Newton's method takes %d passes "
                                "over the rows: set %d or more, or solve.method dual",
                                tr_job_where(m->job, "solve.epochs"), (long long)m->epochs, least, least));
    train.name = "newton";
    train.clocks = m->epochs;
    train.evaluate_every = 1;
    train.epochs_per_clock = 1;
    if (m->l2 == 0)
        tr_say(
            m->tr,
            "note:          without model.l2 the gap is estimated from the step, and no method can prove it: "
            "model.l2 > 0 by newton or dual, or model.l1 > 0 by descent, has a proof");
    return tr_run(m->tr, &train);
}

const struct tr_linear_method tr_linear_newton = {.check = newton_check,
                                                  .passes = true,
                                                  .open = newton_open,
                                                  .train = newton_train,
                                                  .prepare = newton_prepare,
                                                  .compute = newton_compute,
                                                  .evaluate = newton_evaluate,
                                                  .summarize = newton_summarize,
                                                  .snapshot = newton_snapshot,
                                                  .close = newton_close,
                                                  .many_outputs = true,
                                                  .weighs_rows = true,
                                                  .minimises = TR_LOSS_CURVED,
                                                  .diverged = "set model.dtype to f64"};

/* Newton's method: opening, how good the weights are, steps, and what checkpoints keep of them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"
#include "solver.h"

/* Widths of the hinge's corner: at first, where all rows are in it at weights of zero; what is left of it each time that the
 * corners move, if the step before took few products; and the least. They move once the rest of the gap is a few times their
 * part of it. (To a gap of 1e-3 these take 34 passes on a9a, 86 on w8a and on 20 newsgroups, 95 on clicks. Corners that stay
 * about z = 1 and become narrower take 67, 223, and more than 400 on the others: their curvature grows.) */
static const double first_width = 4, narrower = 0.7, least_width = 1e-4, few_times = 10;
enum { FEW_PRODUCTS = 10 };

/* ---- opening ---- */

static int make(double **const *vectors, size_t n_vectors, size_t n)
{
    for (size_t i = 0; i < n_vectors; i++) TR_TRY(TR_NEW(vectors[i], n));
    return TR_OK;
}

static int open_vectors(struct tr_newton *t)
{
    size_t k = t->outputs;
    TR_TRY(make((double **[]){&t->in, &t->out}, 2, t->columns.local * k));
    TR_TRY(make((double **[]){&t->margin, &t->step_margin, &t->direction_margin, &t->shift, &t->curvature}, 5,
                t->o.n * k));
    TR_TRY(make((double **[]){&t->w, &t->gradient, &t->step, &t->residual, &t->direction, &t->product,
                              &t->solved, &t->diagonal},
                8, tr_newton_own(t)));
    TR_TRY(TR_NEW(&t->part, 3 * TR_NEWTON_BLOCK * k));
    t->factors = tr_newton_choose_factors(&t->o);
    if (t->factors.n > 0) TR_TRY(TR_NEW(&t->factor, t->factors.n * tr_newton_square(&t->factors)));
    return TR_OK;
}

static int open_solver(struct tr_newton *t)
{
    const struct tr_problem *p = t->problem;
    TR_TRY(TR_NEW(&t->keys, p->keys + 1));
    if (p->keys > 0) memcpy(t->keys, t->o.keys, p->keys * sizeof *t->keys);
    t->keys[p->keys] = t->o.columns;
    t->all = (size_t)t->o.columns + p->bias;
    TR_TRY(tr_columns_open(&t->columns, t->o.tr, t->keys, p->keys + p->bias, t->all, t->outputs));
    return open_vectors(t);
}

int tr_newton_open(const struct tr_newton_options *options, struct tr_newton **newton)
{
    struct tr_newton *t;
    TR_TRY(TR_NEW(&t, 1));
    *t = (struct tr_newton){.o = *options,
                            .rounded = *options->problem,
                            .outputs = options->problem->outputs,
                            .state = {.decrease = 1}};
    t->problem = &t->rounded;
    if (tr_newton_has_corner(t)) t->rounded.shape = first_width;
    int status = open_solver(t);
    if (status != TR_OK) tr_newton_close(&t);
    *newton = t;
    return status;
}

void tr_newton_close(struct tr_newton **newton)
{
    struct tr_newton *t = *newton;
    if (!t) return;
    void *arrays[] = {
        t->keys,      t->in,       t->out,      t->part, t->margin,   t->step_margin, t->direction_margin,
        t->curvature, t->w,        t->gradient, t->step, t->residual, t->direction,   t->product,
        t->solved,    t->diagonal, t->factor,   t->shift};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    tr_columns_close(&t->columns);
    free(t);
    *newton = NULL;
}

struct tr_newton_weights tr_newton_weights(struct tr_newton *t)
{
    return (struct tr_newton_weights){t->w, t->columns.first, t->columns.n, t->columns.whole};
}

/* ---- how good the weights are ---- */

/* Of the hinge as it is: Σ φ / n, and Σ (φ(m) + φ*(-α) + α m) / n, the part of the gap that its rounded corner makes. */
static int measure_corner(struct tr_newton *t, double *sums)
{
    const struct tr_problem *p = t->problem;
    sums[0] = sums[1] = 0;
    for (size_t i = 0; i < t->o.n * t->outputs; i++) {
        size_t row = t->o.first + i / t->outputs;
        double weight = p->weight ? (double)p->weight[row] : 1, y = tr_row_target(p, row, i % t->outputs);
        double loss = p->loss->value(t->margin[i] + t->shift[i], y, 0);
        double a = -y * p->loss->slope(t->margin[i], y, p->shape);
        sums[0] += weight * loss;
        sums[1] += weight * (loss - a * (1 - y * (t->margin[i] + t->shift[i])));
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, sums, 2));
    sums[0] /= p->n;
    sums[1] /= p->n;
    return TR_OK;
}

static bool is_corners_turn(const struct tr_newton *t)
{
    return tr_newton_has_corner(t) && t->state.gap - t->corner_gap <= few_times * t->corner_gap;
}

int tr_newton_look(struct tr_newton *t, struct tr_newton_state *state)
{
    double l2 = t->problem->l2, sums[2], corner[2] = {0};
    size_t n = tr_newton_regularised(t);
    if (!t->has_gradient && !t->restored) {
        TR_TRY(tr_newton_sum_losses(t, 0, NULL, &t->loss));
        TR_TRY(tr_newton_settle_bias(t));
    }
    if (!t->has_gradient) TR_TRY(tr_newton_gradient_pass(t));
    t->restored = false;
    sums[0] = tr_newton_dot(n, t->w, t->w);
    sums[1] = tr_newton_dot(n, t->gradient, t->gradient);
    TR_TRY(tr_columns_sum_parts(&t->columns, sums, 2));
    if (tr_newton_has_corner(t)) TR_TRY(measure_corner(t, corner));
    t->state.objective = (tr_newton_has_corner(t) ? corner[0] : t->loss) + l2 / 2 * sums[0];
    t->state.gap = l2 > 0 ? sums[1] / (2 * l2) + corner[1] : (double)NAN;
    t->corner_gap = corner[1];
    t->state.next = 2 + is_corners_turn(t) + tr_newton_needs_factor(t);
    *state = t->state;
    return TR_OK;
}

int tr_newton_moved(struct tr_newton *t)
{
    TR_TRY(tr_columns_fetch(&t->columns, t->w, t->in));
    tr_newton_times(t->problem, t->o.first, t->o.n, t->in, t->margin);
    tr_newton_axpy(t->o.n * t->outputs, -1, t->shift, t->margin);
    t->state.passes += 1 + t->has_gradient; /* the gradient at the weights before was in vain */
    t->has_gradient = t->has_factor = t->state.stuck = false;
    return TR_OK;
}

/* ---- a step ---- */

/* The preconditioned residual, and its square by the preconditioner and as it is. */
static int measure_residual(struct tr_newton *t, double *squares)
{
    size_t n = tr_newton_own(t);
    TR_TRY(tr_newton_apply_preconditioner(t, t->residual, t->solved));
    squares[0] = tr_newton_dot(n, t->residual, t->solved);
    squares[1] = tr_newton_dot(n, t->residual, t->residual);
    return tr_columns_sum_parts(&t->columns, squares, 2);
}

/* Solves H s = -g by conjugate gradients; the decrease that this promises becomes state.decrease, of F. They end where the
 * residual is a fifth of what it was, or the model falls little any more (Nash and Sofer 1990). It must be so by the
 * preconditioner and as it is: that makes the gap, and may lie in few columns which the former makes light of (clicks, to a gap
 * of 1e-3: 47 passes for logistic loss, 81 for squared hinge; by the
 * preconditioner alone 270, and more than 400). Corners move before that is worth anything. */
static int solve(struct tr_newton *t, int64_t most)
{
    const double enough = 0.2 * 0.2, little = 0.1;
    size_t n = tr_newton_own(t);
    double decrease = 0, square[2], first[2];
    memset(t->step, 0, n * sizeof *t->step);
    memset(t->step_margin, 0, t->o.n * t->outputs * sizeof *t->step_margin);
    for (size_t j = 0; j < n; j++) t->residual[j] = -t->gradient[j];
    TR_TRY(measure_residual(t, square));
    memcpy(t->direction, t->solved, n * sizeof *t->direction);
    memcpy(first, square, sizeof first);
    for (t->iterations = 0; t->iterations < most && square[0] > 0;) {
        TR_TRY(tr_newton_hessian_pass(t, t->direction, t->product));
        double curvature = tr_newton_dot(n, t->direction, t->product);
        TR_TRY(tr_columns_sum_parts(&t->columns, &curvature, 1));
        if (!(curvature > 0)) break;
        double a = square[0] / curvature, gained = a * square[0] / 2, before = square[0];
        tr_newton_axpy(n, a, t->direction, t->step);
        tr_newton_axpy(n, -a, t->product, t->residual);
        tr_newton_axpy(t->o.n * t->outputs, a, t->direction_margin, t->step_margin);
        decrease += gained;
        t->iterations++;
        if ((double)t->iterations * gained <= little * decrease) break;
        TR_TRY(measure_residual(t, square));
        if (square[0] <= enough * first[0] && (tr_newton_has_corner(t) || square[1] <= enough * first[1]))
            break;
        for (size_t j = 0; j < n; j++) t->direction[j] = t->solved[j] + square[0] / before * t->direction[j];
    }
    t->state.decrease = decrease / t->state.objective;
    return TR_OK;
}

/* The method of multipliers (Rockafellar 1976): the prox function's centre moves from 1/2 to where the dual variable is, which
 * moves the row's corner along the margin. So the gap goes to 0 at any width. */
static int move_corners(struct tr_newton *t)
{
    struct tr_problem *p = &t->rounded;
    double width = t->iterations <= FEW_PRODUCTS ? fmax(p->shape * narrower, least_width) : p->shape;
    for (size_t i = 0; i < t->o.n * t->outputs; i++) {
        double y = tr_row_target(p, t->o.first + i / t->outputs, i % t->outputs), before = t->shift[i];
        double a = -y * p->loss->slope(t->margin[i], y, p->shape);
        t->shift[i] = y * width * (a - 0.5);
        t->margin[i] += before - t->shift[i];
    }
    p->shape = width;
    TR_TRY(tr_newton_sum_losses(t, 0, NULL, &t->loss));
    TR_TRY(tr_newton_settle_bias(t));
    t->state.passes++;
    return tr_newton_gradient_pass(t);
}

int tr_newton_step(struct tr_newton *t, struct tr_newton_state *state)
{
    double by = 0;
    int64_t most;
    TR_TRY(tr_newton_look(t, state));
    if (t->o.passes > 0 && state->passes + state->next > t->o.passes) return TR_OK;
    t->state.passes++; /* of the gradient */
    if (is_corners_turn(t)) TR_TRY(move_corners(t));
    TR_TRY(tr_newton_precondition(t, &most));
    if (t->o.passes > 0) most = (int64_t)fmin((double)most, t->o.passes - t->state.passes);
    TR_TRY(solve(t, most));
    if (t->iterations > 0)
        TR_TRY((tr_newton_has_corner(t) ? tr_newton_search_corners : tr_newton_search)(t, &by));
    tr_newton_axpy(tr_newton_own(t), by, t->step, t->w);
    tr_newton_axpy(t->o.n * t->outputs, by, t->step_margin, t->margin);
    bool stuck = by == 0 || t->state.decrease < 1e-15;
    if (by > 0) {
        TR_TRY(tr_newton_settle_bias(t));
        TR_TRY(tr_newton_gradient_pass(t));
    }
    TR_TRY(tr_newton_look(t, state));
    state->stuck = t->state.stuck = stuck && !is_corners_turn(t);
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Numbers by row, as many as there are outputs, each under its name. */
static int keep_margins(const struct tr_newton *t, const char *of, double *numbers, size_t outputs,
                        const tr_data *data, tr_snapshot *snapshot)
{
    double *one;
    size_t n = t ? t->o.n : 0;
    TR_TRY(TR_NEW(&one, data->rows.n));
    int status = TR_OK;
    for (size_t k = 0; k < outputs && status == TR_OK; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s_%zu", of, k);
        for (size_t i = 0; i < n; i++) one[t->o.first + i] = numbers[i * outputs + k];
        status = tr_data_keep(data, snapshot, name, TR_F64, one);
        for (size_t i = 0; i < n; i++) numbers[i * outputs + k] = one[t->o.first + i];
    }
    free(one);
    return status;
}

/* What all workers have alike is kept by the first, and filled at all. */
int tr_newton_keep(const struct tr_newton_options *o, struct tr_newton *t, const tr_data *data,
                   tr_snapshot *snapshot)
{
    enum { NUMBERS = 6 };
    bool restores = tr_snapshot_restores(snapshot),
         alike = t && (restores || tr_set_rank(o->tr, TR_SET_WORKERS) == 0);
    size_t all = (size_t)o->columns + o->problem->bias, outputs = o->problem->outputs;
    struct tr_newton_factors factors = tr_newton_choose_factors(o);
    double numbers[NUMBERS] = {0};
    if (t)
        memcpy(numbers,
               (double[]){t->state.decrease, t->state.passes, t->loss, t->has_factor, (double)t->iterations,
                          t->rounded.shape},
               sizeof numbers);
    TR_TRY(tr_snapshot_rows(snapshot, "newton", TR_F64, 1, NUMBERS, NULL, 0, alike, numbers));
    bool has_part = t && (alike || !t->columns.whole);
    TR_TRY(tr_snapshot_rows(snapshot, "weights", TR_F64, all, outputs, NULL, has_part ? t->columns.first : 0,
                            has_part ? t->columns.n : 0, t ? t->w : NULL));
    TR_TRY(keep_margins(t, "margin", t ? t->margin : NULL, outputs, data, snapshot));
    if (o->problem->loss->corner)
        TR_TRY(keep_margins(t, "shift", t ? t->shift : NULL, outputs, data, snapshot));
    struct tr_newton_part part = tr_newton_own_part(o->tr, &factors);
    bool has_factor = t && (factors.n > 1 || alike) && part.end > part.first;
    if (factors.n > 0)
        TR_TRY(tr_snapshot_rows(snapshot, "factor", TR_F64, factors.n, tr_newton_square(&factors), NULL,
                                part.first, has_factor ? part.end - part.first : 0,
                                t ? t->factor + part.first * tr_newton_square(&factors) : NULL));
    if (!t || !restores) return TR_OK;
    t->state.decrease = numbers[0];
    t->state.passes = numbers[1];
    t->loss = numbers[2];
    t->has_factor = numbers[3] > 0;
    t->iterations = (int64_t)numbers[4];
    t->rounded.shape = numbers[5];
    t->has_gradient = false;
    t->restored = true;
    return TR_OK;
}

/* ---- for tests ---- */

int tr_newton_gradient(struct tr_newton *t, const double **gradient)
{
    struct tr_newton_state state;
    *gradient = t->gradient;
    return tr_newton_look(t, &state);
}

int tr_newton_product(struct tr_newton *t, const double *direction, double *product)
{
    return tr_newton_hessian_pass(t, direction, product);
}

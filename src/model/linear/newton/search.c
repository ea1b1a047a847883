/* Newton's method: how far a step goes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../loss_inline.h"
#include "solver.h"

/* How far the step goes for one class, between what has been found too short and too long. */
struct along {
    double by, low, high, first; /* first: the slope when it goes as far as it says itself */
    double sums[2];              /* slope and curvature of Σ φ / n so far on it */
    double squares[2];           /* weights · step, |step|² */
    bool found;
};

static int slopes_along(struct tr_newton *t, struct along *along, double *sums)
{
    const struct tr_problem *p = t->problem;
    size_t outputs = t->outputs;
    memset(sums, 0, 2 * outputs * sizeof *sums);
    for (size_t i = 0; i < t->o.n * outputs; i++) {
        size_t row = t->o.first + i / outputs, k = i % outputs;
        double y = tr_row_target(p, row, k), d = t->step_margin[i], m = t->margin[i] + along[k].by * d;
        double weight = p->weight ? (double)p->weight[row] : 1;
        if (i % 4096 == 0) tr_seam();
        double slope = tr_loss_slope(p->loss, m, y, p->shape);
        sums[2 * k] += weight * d * slope;
        sums[2 * k + 1] += weight * d * d * tr_loss_curvature(p->loss, m, y, slope, p->shape);
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, sums, 2 * outputs));
    for (size_t k = 0; k < outputs; k++)
        for (size_t i = 0; i < 2; i++) along[k].sums[i] = sums[2 * k + i] / p->n;
    return TR_OK;
}

static int measure_step(struct tr_newton *t, struct along *along, double *sums)
{
    size_t outputs = t->outputs;
    memset(sums, 0, 2 * outputs * sizeof *sums);
    for (size_t j = 0; j < tr_newton_regularised(t); j++) {
        sums[2 * (j % outputs)] += t->w[j] * t->step[j];
        sums[2 * (j % outputs) + 1] += t->step[j] * t->step[j];
    }
    TR_TRY(tr_columns_sum_parts(&t->columns, sums, 2 * outputs));
    for (size_t k = 0; k < outputs; k++)
        along[k] = (struct along){.by = 1, .high = INFINITY, .squares = {sums[2 * k], sums[2 * k + 1]}};
    return TR_OK;
}

/* Newton's method for the slope. */
static void go_along(struct along *a, double l2, bool is_first)
{
    double slope = a->sums[0] + l2 * (a->squares[0] + a->by * a->squares[1]),
           next = a->by - slope / (a->sums[1] + l2 * a->squares[1]);
    if (is_first) a->first = fabs(slope);
    a->found = fabs(slope) <= 1e-3 * a->first || a->high - a->low < 1e-6 * a->high;
    if (a->found) return;
    if (slope > 0) a->high = a->by;
    else a->low = a->by;
    a->by = next > a->low && next < a->high ? next : isfinite(a->high) ? (a->low + a->high) / 2 : 2 * a->low;
}

static int find_minima(struct tr_newton *t, struct along *along, double *sums)
{
    enum { MOST = 40 };
    bool all_found = false;
    TR_TRY(measure_step(t, along, sums));
    for (int turn = 0; turn < MOST && !all_found; turn++) {
        TR_TRY(slopes_along(t, along, sums));
        all_found = true;
        for (size_t k = 0; k < t->outputs; k++) {
            if (!along[k].found) go_along(&along[k], t->problem->l2, turn == 0);
            all_found = all_found && along[k].found;
        }
    }
    return TR_OK;
}

/* Stretches each class's part of the step to the minimum along it, as it goes past corners that it does not know of, and half
 * of it or all is rarely right. */
int tr_newton_search_corners(struct tr_newton *t, double *by)
{
    size_t outputs = t->outputs;
    struct along *along;
    double *sums = NULL;
    TR_TRY(TR_NEW(&along, outputs));
    int status = TR_NEW(&sums, 2 * outputs);
    if (status == TR_OK) status = find_minima(t, along, sums);
    if (status == TR_OK) {
        for (size_t j = 0; j < tr_newton_own(t); j++) t->step[j] *= along[j % outputs].by;
        for (size_t i = 0; i < t->o.n * outputs; i++) t->step_margin[i] *= along[i % outputs].by;
        *by = 1;
        status = tr_newton_sum_losses(t, *by, NULL, &t->loss);
    }
    free(sums);
    free(along);
    return status;
}

/* Halves the step until the objective falls by a ten-thousandth of what the slope says (Armijo), but for rounding. */
int tr_newton_search(struct tr_newton *t, double *by)
{
    size_t n = tr_newton_regularised(t);
    double sums[] = {tr_newton_dot(tr_newton_own(t), t->gradient, t->step), tr_newton_dot(n, t->w, t->w),
                     tr_newton_dot(n, t->w, t->step), tr_newton_dot(n, t->step, t->step)};
    double l2 = t->problem->l2, before, loss;
    TR_TRY(tr_columns_sum_parts(&t->columns, sums, 4));
    before = t->loss + l2 / 2 * sums[1];
    for (*by = 1; *by > 1e-9; *by /= 2) {
        TR_TRY(tr_newton_sum_losses(t, *by, NULL, &loss));
        double now = loss + l2 / 2 * (sums[1] + 2 * *by * sums[2] + *by * *by * sums[3]);
        if (!(now <= before + 1e-4 * *by * sums[0] + 1e-15 * before)) continue;
        t->loss = loss;
        return TR_OK;
    }
    *by = 0;
    return TR_OK;
}

/* Newton's method: what goes over the rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../loss_inline.h"
#include "rows.h"
#include "solver.h"

/* own = (what the workers have in t->out, summed) / n + λ w */
static int finish(struct tr_newton *t, const double *w, double *sum)
{
    double part = 1 / t->problem->n;
    TR_TRY(tr_columns_sum(&t->columns, t->out, sum));
    for (size_t j = 0; j < tr_newton_own(t); j++) sum[j] *= part;
    tr_newton_axpy(tr_newton_regularised(t), t->problem->l2, w, sum);
    return TR_OK;
}

/* ---- passes ---- */

/* φ'' by row, as numbers that product_of_row() goes by: of softmax the probabilities, times the row's weight. */
static void slopes_and_curvature(struct tr_newton *t, size_t done, size_t n, double *slope)
{
    const struct tr_problem *p = t->problem;
    size_t outputs = t->outputs, first = t->o.first + done;
    const double *margin = t->margin + done * outputs;
    double *curvature = t->curvature + done * outputs;
    memcpy(slope, margin, n * outputs * sizeof *slope);
    for (size_t i = 0; i < n; i++, slope += outputs, curvature += outputs, margin += outputs) {
        double weight = p->weight ? (double)p->weight[first + i] : 1, y = (double)p->target[first + i];
        if (i % 512 == 0) tr_seam();
        tr_row_slopes(p, first + i, slope);
        for (size_t k = 0; k < outputs; k++) {
            bool is = outputs == 1 || (size_t)y == k;
            double at = weight > 0 ? slope[k] / weight : 0;
            curvature[k] = p->softmax ? slope[k] + (is ? weight : 0)
                                      : weight * tr_loss_curvature(p->loss, margin[k],
                                                                   outputs == 1 ? y
                                                                   : is         ? 1
                                                                                : -1,
                                                                   at, p->shape);
        }
    }
}

static void product_of_rows(const struct tr_newton *t, size_t done, size_t n, const double *z, double *out)
{
    size_t outputs = t->outputs;
    const double *curvature = t->curvature + done * outputs;
    if (!t->problem->softmax) {
        for (size_t i = 0; i < n * outputs; i++) out[i] = curvature[i] * z[i];
        return;
    }
    for (size_t i = 0; i < n; i++, curvature += outputs, z += outputs, out += outputs) {
        double weight = 0, mean = 0;
        for (size_t k = 0; k < outputs; k++) weight += curvature[k], mean += curvature[k] * z[k];
        if (weight > 0) mean /= weight;
        for (size_t k = 0; k < outputs; k++) out[k] = curvature[k] * (z[k] - mean);
    }
}

void tr_newton_diagonal_of_rows(const struct tr_newton *t, size_t done, size_t n, double *out)
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

int tr_newton_gradient_pass(struct tr_newton *t)
{
    double *squares = t->in, *part = t->part, *more = part + TR_NEWTON_BLOCK * t->outputs;
    size_t local = t->columns.local * t->outputs;
    memset(t->out, 0, local * sizeof *t->out);
    memset(squares, 0, local * sizeof *squares);
    TR_TRY(tr_turn_begin(t->o.tr, "gradient"));
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_newton_block(t, done);
        slopes_and_curvature(t, done, n, part);
        tr_newton_add(t->problem, t->o.first + done, n, part, t->out);
        if (t->factor) continue;
        tr_newton_diagonal_of_rows(t, done, n, more);
        tr_newton_add_squares(t->problem, t->o.first + done, n, more, squares);
    }
    TR_TRY(tr_turn_end(t->o.tr, TR_OK));
    TR_TRY(finish(t, t->w, t->gradient));
    t->has_gradient = true;
    return t->factor ? TR_OK : tr_columns_sum(&t->columns, squares, t->diagonal);
}

int tr_newton_hessian_pass(struct tr_newton *t, const double *direction, double *product)
{
    TR_TRY(tr_columns_fetch(&t->columns, direction, t->in));
    memset(t->out, 0, t->columns.local * t->outputs * sizeof *t->out);
    TR_TRY(tr_turn_begin(t->o.tr, "gradient"));
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_newton_block(t, done);
        double *z = t->direction_margin + done * t->outputs;
        tr_newton_times(t->problem, t->o.first + done, n, t->in, z);
        product_of_rows(t, done, n, z, t->part);
        tr_newton_add(t->problem, t->o.first + done, n, t->part, t->out);
    }
    TR_TRY(tr_turn_end(t->o.tr, TR_OK));
    t->state.passes++;
    return finish(t, direction, product);
}

/* Σ φ / n at margin + by × step's margins, over all workers' rows. */
int tr_newton_sum_losses(struct tr_newton *t, double by, const double *shift, double *loss)
{
    double sum = 0;
    for (size_t i = 0; i < t->o.n; i++) {
        const double *margin = t->margin + i * t->outputs, *moved = t->step_margin + i * t->outputs;
        if (i % 512 == 0) tr_seam();
        for (size_t k = 0; k < t->outputs; k++) t->part[k] = margin[k] + by * (shift ? shift[k] : moved[k]);
        sum += tr_row_loss(t->problem, t->o.first + i, t->part);
    }
    TR_TRY(tr_columns_sum_rows(&t->columns, &sum, 1));
    *loss = sum / t->problem->n;
    return TR_OK;
}

/* ---- a bias without λ ---- */

/* Slopes summed over the rows, and their derivatives by the bias: outputs, and as many squared. */
static int sum_bias(struct tr_newton *t, double *sums)
{
    size_t outputs = t->outputs;
    double *slope = t->part, *hessian = sums + outputs;
    memset(sums, 0, outputs * (outputs + 1) * sizeof *sums);
    for (size_t done = 0, n; done < t->o.n; done += n) {
        n = tr_newton_block(t, done);
        slopes_and_curvature(t, done, n, slope);
        for (size_t i = 0; i < n; i++) {
            const double *curvature = t->curvature + (done + i) * outputs;
            double weight = 0;
            tr_newton_axpy(outputs, 1, slope + i * outputs, sums);
            for (size_t k = 0; k < outputs; k++) {
                hessian[k * outputs + k] += curvature[k];
                weight += curvature[k];
            }
            if (!t->problem->softmax || !(weight > 0)) continue;
            for (size_t k = 0; k < outputs; k++)
                tr_newton_axpy(k + 1, -curvature[k] / weight, curvature, hessian + k * outputs);
        }
    }
    return tr_columns_sum_rows(&t->columns, sums, outputs * (outputs + 1));
}

static void move_bias(struct tr_newton *t, double by, const double *shift)
{
    size_t outputs = t->outputs, at = tr_newton_regularised(t);
    for (size_t i = 0; i < t->o.n * outputs; i++) t->margin[i] += by * shift[i % outputs];
    if (at < tr_newton_own(t)) tr_newton_axpy(outputs, by, shift, t->w + at);
}

/* One Newton step of the bias alone; *moved becomes false where there is nothing left to gain. */
static int step_bias(struct tr_newton *t, double *sums, bool *moved)
{
    size_t outputs = t->outputs;
    double n = t->problem->n, gain = 0, loss;
    TR_TRY(sum_bias(t, sums));
    double *shift = sums, *hessian = sums + outputs;
    *moved = false;
    for (size_t k = 0; k < outputs; k++) {
        if (!(hessian[k * outputs + k] > 1e-12 * n)) hessian[k * outputs + k] = n; /* flat: a careful step */
        hessian[k * outputs + k] *= 1 + 1e-9; /* of softmax one direction is flat */
    }
    double *slope = hessian + outputs * outputs;
    memcpy(slope, sums, outputs * sizeof *slope);
    tr_cholesky(outputs, hessian);
    tr_cholesky_solve(outputs, hessian, 1, shift);
    gain = tr_newton_dot(outputs, slope, shift) / n;
    if (gain <= 1e-15 * (t->loss + 1e-300)) return TR_OK;
    for (double by = -1; by < -1e-6; by /= 2) {
        TR_TRY(tr_newton_sum_losses(t, by, shift, &loss));
        if (!(loss < t->loss)) continue;
        move_bias(t, by, shift);
        *moved = gain > 1e-12 * t->loss;
        t->loss = loss;
        break;
    }
    return TR_OK;
}

int tr_newton_settle_bias(struct tr_newton *t)
{
    double *sums;
    bool moved = true;
    if (!t->problem->bias || t->o.bias_l2) return TR_OK;
    TR_TRY(TR_NEW(&sums, t->outputs * (t->outputs + 2)));
    int status = TR_OK;
    for (int turn = 0; turn < 30 && moved && status == TR_OK; turn++) status = step_bias(t, sums, &moved);
    free(sums);
    return status;
}

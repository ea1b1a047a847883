/* Where the weights stand: the rows' losses, the gradient, the objective and what is proven of it. */
#include "../../loss_inline.h"
#include "descent.h"

#include <math.h>
#include <string.h>

/* ---- the rows' losses ---- */

/* Where the curvature is all but 0, the model would be of no use far off. */
static const double LEAST_CURVE = 1e-6;

void tr_descent_model_rows(const struct tr_linear *m, struct tr_descent_point *at)
{
    const struct tr_linear_descent *d = m->descent;
    at->loss = at->slope = at->curve = 0;
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], margin = d->margin[i], slope = tr_loss_slope(m->loss, margin, y, 0);
        double weight = tr_descent_weight(d, i),
               curve = weight * fmax(tr_loss_curvature(m->loss, margin, y, slope, 0), LEAST_CURVE);
        d->model[i] = (struct tr_row_model){.slope = weight * slope, .curve = (float)curve, .move = 0};
        at->loss += weight * tr_loss_value(m->loss, margin, y, 0);
        at->slope += weight * slope;
        at->curve += curve;
    }
}

/* The bias's penalty counts too. */
static int bias_slope(struct tr_linear *m, double change, double *slope, double *curve)
{
    const struct tr_linear_descent *d = m->descent;
    double sums[2] = {0, 0};
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], margin = d->margin[i] + change,
               one = tr_loss_slope(m->loss, margin, y, 0), weight = tr_descent_weight(d, i);
        sums[0] += weight * one;
        sums[1] += weight * tr_loss_curvature(m->loss, margin, y, one, 0);
    }
    TR_TRY(tr_descent_sum(m, sums, 2));
    *slope = sums[0] + d->bias_l2 * (d->bias + change);
    *curve = sums[1] + d->bias_l2;
    return TR_OK;
}

/* Newton steps, or halves of the interval that the minimum must lie in where they leave that. */
int tr_descent_minimise_bias(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double change = 0, low = -INFINITY, high = INFINITY, slope, curve;
    if (!m->o->bias) return TR_OK;
    for (int i = 0; i < 60; i++) {
        TR_TRY(bias_slope(m, change, &slope, &curve));
        if (fabs(slope) <= 1e-12 * m->problem.n || curve == 0) break;
        *(slope > 0 ? &high : &low) = change;
        double next = change - slope / curve;
        if (!(next > low && next < high)) next = isfinite(low + high) ? (low + high) / 2 : change - slope;
        if (next == change) break;
        change = next;
    }
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] += change;
    d->bias += change;
    return TR_OK;
}

/* ---- where the weights stand ---- */

static void sum_gradient(struct tr_linear_descent *d)
{
    const struct tr_descent_rows *rows = &d->rows;
    memset(d->partial, 0, rows->columns * sizeof *d->partial);
    for (size_t i = 0; i < rows->n; i++) {
        double slope = d->model[i].slope;
        if (slope == 0) continue;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            d->partial[rows->column[k]] += slope * (double)rows->value[k];
    }
}

/* How much the gradient fails to be that of a minimum. */
static double violation(const struct tr_linear_descent *d, size_t j)
{
    double w = d->weight[j], gradient = d->gradient[j] + d->l2 * w;
    if (w != 0) return fabs(gradient + (w > 0 ? d->alpha : -d->alpha));
    return fmax(0, fabs(gradient) - d->alpha);
}

static int look_at_columns(struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    struct tr_descent_point *at = &m->descent->at;
    double most[2] = {0, 0}, sums[7] = {0, 0, 0, 0, at->loss, at->slope, at->curve};
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        double w = d->weight[j], size = fabs(d->gradient[j]), over = fmax(0, size - d->alpha);
        sums[0] += fabs(w);
        sums[1] += w * w;
        sums[2] += w != 0;
        sums[3] += over * over;
        most[0] = fmax(most[0], size);
        most[1] = fmax(most[1], violation(d, j));
    }
    TR_TRY(tr_descent_sum(m, sums, 7));
    TR_TRY(tr_descent_greatest(m, most, 2));
    *at = (struct tr_descent_point){sums[4], sums[5], sums[6], sums[0], sums[1],
                                    sums[2], sums[3], most[0], most[1]};
    return TR_OK;
}

double tr_descent_objective(const struct tr_linear_descent *d)
{
    const struct tr_descent_point *at = &d->at;
    return at->loss + d->alpha * at->absolutes + 0.5 * d->l2 * at->squares +
           0.5 * d->bias_l2 * d->bias * d->bias;
}

/* The dual value of the slopes times some scales, 1 (which is a dual point with l2 only) and the largest without. */
static int bound(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const double scale[2] = {fmin(1, d->alpha / fmax(d->at.greatest, 1e-300)), 1};
    double conjugate[2] = {0, 0};
    int scales = d->l2 > 0 ? 2 : 1;
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], a = -tr_loss_slope(m->loss, d->margin[i], y, 0);
        if (tr_linear_classifies(m)) a *= y;
        for (int k = 0; k < scales; k++)
            conjugate[k] += tr_descent_weight(d, i) * m->loss->conjugate(scale[k] * a, y);
    }
    TR_TRY(tr_descent_sum(m, conjugate, 2));
    for (int k = 0; k < scales; k++) {
        double bias = scale[k] * d->bias, over = k == 1 ? d->at.excess / (2 * d->l2) : 0;
        /* a bias that is not penalised is not quite at its minimum; how far that is from it is a guess */
        double rest = m->o->bias && d->bias_l2 == 0 ? fabs(d->at.slope) * (1 + fabs(d->bias)) : 0;
        d->dual = fmax(d->dual, -conjugate[k] - over - rest - 0.5 * d->bias_l2 * bias * bias);
    }
    return TR_OK;
}

double tr_descent_gap(const struct tr_linear_descent *d)
{
    return (tr_descent_objective(d) - d->dual) / fmax(fabs(d->dual), 1e-300);
}

int tr_descent_look(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    tr_descent_model_rows(m, &d->at);
    sum_gradient(d);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    TR_TRY(tr_columns_sum(&d->shared, d->partial, d->gradient));
    TR_TRY(look_at_columns(m));
    d->known = true;
    return bound(m);
}

int tr_descent_look_at_penalty(struct tr_linear *m)
{
    tr_descent_model_rows(m, &m->descent->at);
    TR_TRY(look_at_columns(m));
    return bound(m);
}

/* Every loss of the table: its functions agree with one another. */
#include "unit.h"

#include "model/loss.h"

/* Margins to try, away from the corners. */
static const double margins[] = {-40, -3.1, -1.8, -0.72, 0.2, 0.93, 1.4, 2.2, 6, 40};
enum { MARGINS = COUNT(margins), LABELS = 2 };

static double shape_of(const struct tr_loss *loss)
{
    return tr_loss_shape(loss, 1.5, 0.3, 1.4);
}

static double label_of(const struct tr_loss *loss, int i)
{
    static const double labels[][LABELS] = {[TR_LABELS_CLASSES] = {-1, 1},
                                            [TR_LABELS_NUMBERS] = {-0.6, 2.5},
                                            [TR_LABELS_COUNTS] = {0, 3},
                                            [TR_LABELS_POSITIVE] = {0.4, 3}};
    return labels[loss->labels][i];
}

/* The loss number i of linear models, or behind them of trees; NULL behind all. */
static const struct tr_loss *loss_number(size_t i)
{
    size_t n = 0;
    while (tr_losses[n]) n++;
    return i < n ? tr_losses[i] : tr_objective_losses[i - n + 1];
}

#define FOR_LOSSES(loss)                                                                                     \
    for (size_t i_##loss = 0; loss_number(i_##loss); i_##loss++)                                             \
        for (const struct tr_loss *loss = loss_number(i_##loss); loss; loss = NULL)                          \
            if (!loss->joint)

UNIT_CASE(slopes_and_curvatures_are_derivatives)
{
    FOR_LOSSES(loss)
    for (int i = 0; i < MARGINS; i++)
        for (int l = 0; l < LABELS; l++) {
            double m = margins[i], y = label_of(loss, l), h = 1e-5, s = shape_of(loss), low, high;
            double slope = loss->slope(m, y, s);
            double by_value = (loss->value(m + h, y, s) - loss->value(m - h, y, s)) / (2 * h);
            double by_slope = (loss->slope(m + h, y, s) - loss->slope(m - h, y, s)) / (2 * h);
            double curvature = loss->curvature ? loss->curvature(m, y, slope, s) : 0;
            if (loss->labels >= TR_LABELS_COUNTS && fabs(m) > 6)
                continue; /* exp(m) is too large to compare */
            ck_assert_double_eq_tol(slope, by_value, 1e-5 * (1 + fabs(slope)));
            ck_assert_double_eq_tol(curvature, by_slope, 1e-5 * (1 + fabs(curvature)));
            ck_assert_double_ge(loss->value(m, y, s), -1e-15);
            ck_assert(curvature >= 0 && curvature <= loss->most_curvature);
            if (loss->bounded_slope) ck_assert_double_le(fabs(slope), fmax(1, s));
            if (!loss->corner) continue;
            loss->corner(y, s, &low, &high);
            ck_assert_double_eq_tol(loss->value(m, y, s), fmax(low * (m - y), high * (m - y)), 1e-12);
        }
}

UNIT_CASE(values_are_finite_for_large_margins)
{
    FOR_LOSSES(loss)
    if (loss->labels < TR_LABELS_COUNTS)
        for (int l = 0; l < LABELS; l++)
            for (double m = -1e5; m <= 1e5; m += 1e5)
                ck_assert(isfinite(loss->value(m, label_of(loss, l), shape_of(loss))));
}

/* φ(m) + φ*(-α) + α m is 0 where -α is the slope at m, and at least 0 for the slopes of other margins (Fenchel and Young). */
UNIT_CASE(conjugates_touch_and_bound_losses)
{
    FOR_LOSSES(loss)
    if (loss->conjugate)
        for (int i = 0; i < MARGINS; i++)
            for (int j = 0; j < MARGINS; j++)
                for (int l = 0; l < LABELS; l++) {
                    double m = margins[i], y = label_of(loss, l), s = shape_of(loss),
                           sign = tr_loss_classifies(loss) ? y : 1;
                    double a = -sign * loss->slope(margins[j], y, s), value = loss->value(m, y, s);
                    double sum = value + loss->conjugate(a, y) + sign * a * m;
                    ck_assert_double_ge(sum, -1e-9 * (1 + value));
                    if (i == j) ck_assert_double_eq_tol(sum, 0, 1e-8 * (1 + value));
                }
}

/* Among dual variables that are the slopes of some margin, none is better than the step. */
UNIT_CASE(steps_minimise_their_coordinate)
{
    FOR_LOSSES(loss)
    if (loss->step)
        for (int i = 0; i < MARGINS; i++)
            for (int o = 0; o < MARGINS; o++)
                for (double q = 0.01; q < 100; q *= 9) {
                    double m = margins[i], y = label_of(loss, i % LABELS), s = shape_of(loss),
                           sign = tr_loss_classifies(loss) ? y : 1,
                           old = -sign * loss->slope(margins[o], y, s);
                    double step = loss->step(old, m, y, q, s), least = old, most = old;
#define AT(a) (loss->conjugate(a, y) + sign * m * ((a)-old) + q / 2 * ((a)-old) * ((a)-old))
                    for (double from = -5; from < 5; from += 0.05) {
                        double a = -sign * loss->slope(from, y, s);
                        least = fmin(least, a);
                        most = fmax(most, a);
                        ck_assert_double_le(AT(step), AT(a) + 1e-3 * fabs(AT(a)) + 1e-9);
                    }
                    if (loss->bounded_slope) ck_assert(step >= least - 1e-2 && step <= most + 1e-2);
                }
    FOR_LOSSES(loss)
    ck_assert_int_eq(loss->step != NULL, loss->conjugate != NULL);
}

/* However near to 0 or 1 it begins: by bisection of the slope. */
UNIT_CASE(the_step_of_logistic_loss_is_right_near_its_ends)
{
    static const double olds[] = {0, 1e-10, 1e-3, 0.9, 0.999, 1 - 1e-7, 1}, factors[] = {0.001, 1, 100, 1e4};
    for (int i = 0; i < 7; i++)
        for (double m = -100; m <= 100; m += 10)
            for (int c = 0; c < 4; c++) {
                double old = olds[i], q = factors[c], low = 0, high = 1;
                double found = tr_loss_logistic.step(old, m, 1, q, 0);
                for (int k = 0; k < 60; k++) {
                    double z = (low + high) / 2, slope = log(z / (1 - z)) + m + q * (z - old);
                    if (slope > 0) high = z;
                    else low = z;
                }
                ck_assert_double_eq_tol(found, low, 1e-3 * fmin(low, 1 - low) + 1e-6);
            }
}

/* Of rows with two labels, by the share of the larger one. */
UNIT_CASE(constants_minimise_the_mean_loss)
{
    FOR_LOSSES(loss)
    if (loss->constant)
        for (double share = 0.05; share < 1; share += 0.2) {
            double low = label_of(loss, 0), high = label_of(loss, 1), s = shape_of(loss);
            double c = loss->constant(tr_loss_classifies(loss) ? share : share * high + (1 - share) * low);
#define MEAN(m) (share * loss->value(m, high, s) + (1 - share) * loss->value(m, low, s))
            for (double m = -5; m < 5; m += 0.01) ck_assert_double_le(MEAN(c), MEAN(m) + 1e-12);
        }
}

UNIT_CASE(links_invert_constants)
{
    FOR_LOSSES(loss)
    if (loss->mean)
        for (double mean = 0.1; mean < 1; mean += 0.1)
            ck_assert_double_eq_tol(loss->mean(loss->constant(mean)), mean, 1e-12);
}

/* Trees of absolute errors use the slopes of the median's pinball loss, half of those of |r|. */
UNIT_CASE(gradients_of_trees_are_slopes_and_curvatures)
{
    enum { N = 40 };
    FOR_LOSSES(loss)
    if (loss->objective) {
        float score[N], label[N], g[N], h[N], s = (float)shape_of(loss);
        bool classifies = tr_loss_classifies(loss);
        double times = !strcmp(loss->objective, "absolute") ? 0.5 : 1;
        for (int i = 0; i < N; i++) {
            score[i] = -4.03f + 0.2f * (float)i;
            label[i] = classifies ? (float)(i % 2) : (float)label_of(loss, i % LABELS);
        }
        loss->trees.gradients(score, label, N, classifies ? 1 : s, g, h);
        for (int i = 0; i < N; i++) {
            double m = (double)score[i], y = classifies ? (label[i] > 0 ? 1 : -1) : (double)label[i];
            double slope = loss->slope(m, y, (double)s);
            double curvature = loss->trees.unit_curvature ? 1 : loss->curvature(m, y, slope, (double)s);
            ck_assert_double_eq_tol((double)g[i], times * slope, 1e-6 * (1 + fabs(slope)));
            ck_assert_double_eq_tol((double)h[i], curvature, 1e-6 * (1 + fabs(curvature)));
        }
        ck_assert(loss->trees.lightgbm && loss->trees.xgboost.name && loss->trees.xgboost.base_score);
    }
}

UNIT_CASE(each_name_has_its_loss)
{
    size_t n = 0;
    for (; tr_losses[n]; n++) {
        ck_assert_str_eq(tr_losses[n]->type, tr_loss_types[n]);
        ck_assert_ptr_eq(tr_loss_of_type(tr_loss_types[n]), tr_losses[n]);
        ck_assert(tr_losses[n]->metric_times > 0 || !strcmp(tr_losses[n]->metric, "rmse"));
    }
    ck_assert_str_eq(tr_loss_types[n], "auto");
    ck_assert_ptr_eq(tr_loss_of_type("auto"), NULL);
    for (n = 1; tr_objective_losses[n]; n++) {
        ck_assert_str_eq(tr_objective_losses[n]->objective, tr_loss_objectives[n]);
        ck_assert_ptr_eq(tr_loss_of_objective(tr_loss_objectives[n]), tr_objective_losses[n]);
    }
    ck_assert_ptr_eq(tr_loss_of_objective("auto"), NULL);
}

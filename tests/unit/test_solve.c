#include "unit.h"

#include <math.h>
#include <string.h>

#include "model/linear/loss.h"
#include "model/linear/pass.h"

static const int models[] = {TR_LOSS_LOGISTIC, TR_LOSS_LINEAR, TR_LOSS_SVM, TR_LOSS_L2SVM};
enum { MODELS = 4 };

static bool classifies(int model)
{
    return model != TR_LOSS_LINEAR;
}

/* Margins and labels to try, away from the kinks of the hinge. */
static const double margins[] = {-40, -3.1, -0.7, 0.2, 0.93, 1.4, 6, 40};
enum { MARGINS = sizeof margins / sizeof *margins };

START_TEST(slopes_are_the_derivatives_of_losses)
{
    for (int k = 0; k < MODELS; k++)
        for (int i = 0; i < MARGINS; i++)
            for (double y = -1; y <= 1; y += 2) {
                double m = margins[i], h = 1e-6;
                double slope = (tr_loss(models[k], m + h, y) - tr_loss(models[k], m - h, y)) / (2 * h);
                ck_assert_double_eq_tol(tr_loss_slope(models[k], m, y), slope, 1e-5 * (1 + fabs(slope)));
            }
}
END_TEST

/* φ(m) + φ*(-α) + α m ≥ 0 for every α, and 0 where -α is the slope at m (Fenchel and Young). */
START_TEST(conjugates_bound_losses_and_touch_them)
{
    for (int k = 0; k < MODELS; k++)
        for (int i = 0; i < MARGINS; i++)
            for (double y = -1; y <= 1; y += 2) {
                int model = models[k];
                double m = margins[i], sign = classifies(model) ? y : 1;
                for (double a = 0; a <= 1; a += 0.125)
                    ck_assert_double_ge(tr_loss(model, m, y) + tr_loss_conjugate(model, a, y) + sign * a * m,
                                        -1e-9);
                double touching = -sign * tr_loss_slope(model, m, y);
                double sum =
                    tr_loss(model, m, y) + tr_loss_conjugate(model, touching, y) + sign * touching * m;
                ck_assert_double_eq_tol(sum, 0, 1e-8 * (1 + fabs(touching * m)));
            }
}
END_TEST

START_TEST(a_dual_step_is_the_minimum_of_its_coordinate)
{
    static const double curvatures[] = {0.01, 1, 80};
    for (int k = 0; k < MODELS; k++)
        for (int i = 0; i < MARGINS; i++)
            for (int c = 0; c < 3; c++)
                for (double old = 0; old <= 1; old += 0.25) {
                    int model = models[k];
                    double m = margins[i], y = i % 2 ? 1 : -1, q = curvatures[c],
                           sign = classifies(model) ? y : 1;
                    double best = tr_dual_step(model, old, m, y, q);
#define VALUE(a) (tr_loss_conjugate(model, a, y) + sign * m * ((a)-old) + q / 2 * ((a)-old) * ((a)-old))
                    double lowest = VALUE(best);
                    for (double a = classifies(model) ? 0 : -2; a <= 1; a += 1.0 / 64)
                        ck_assert_double_le(lowest, VALUE(a) + 1e-3 * fabs(VALUE(a)) + 1e-9);
                }
}
END_TEST

/* ---- passes, on a small random problem ---- */

enum { ROWS = 60, KEYS = 23 };

struct fixture {
    struct tr_problem problem;
    uint64_t begin[ROWS + 1];
    uint32_t column[ROWS * KEYS];
    float value[ROWS * KEYS], label[ROWS];
};

static void make(struct fixture *f, int model, enum tr_dtype dtype, bool binary, bool bias)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    uint64_t n = 0;
    for (int i = 0; i < ROWS; i++) {
        f->begin[i] = n;
        for (uint32_t k = 0; k < KEYS; k++) {
            if (tr_rng_uniform(&rng) > 0.3) continue;
            f->column[n] = k;
            f->value[n++] = binary ? 1.0f : (float)tr_rng_normal(&rng);
        }
        f->label[i] = classifies(model) ? (tr_rng_next(&rng) & 1 ? 1.0f : -1.0f) : (float)tr_rng_normal(&rng);
    }
    f->begin[ROWS] = n;
    f->problem = (struct tr_problem){.outputs = 1,
                                     .model = model,
                                     .dtype = dtype,
                                     .rows = {ROWS, f->begin, f->column, binary ? NULL : f->value, f->label},
                                     .target = f->label,
                                     .bias = bias,
                                     .keys = KEYS,
                                     .l2 = 0.05,
                                     .n = ROWS};
}

static double reference_margin(const struct fixture *f, int row, const double *w)
{
    double sum = f->problem.bias ? w[KEYS] : 0;
    for (uint64_t k = f->begin[row]; k < f->begin[row + 1]; k++) sum += (double)f->value[k] * w[f->column[k]];
    return sum;
}

static double objective(const struct fixture *f, const double *w)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < ROWS; i++)
        sum += tr_loss(f->problem.model, reference_margin(f, i, w), (double)f->label[i]);
    for (int j = 0; j < KEYS; j++) squares += w[j] * w[j];
    return sum / ROWS + f->problem.l2 / 2 * squares;
}

START_TEST(margins_are_dot_products)
{
    for (int form = 0; form < 8; form++) {
        struct fixture f;
        make(&f, TR_LOSS_LOGISTIC, form & 1 ? TR_F64 : TR_F32, form & 2, form & 4);
        double w64[KEYS + 1], margin[ROWS];
        float w32[KEYS + 1];
        for (int j = 0; j <= KEYS; j++) w64[j] = (double)(w32[j] = (float)sin(j));
        tr_margins(&f.problem, 3, ROWS - 3, form & 1 ? (void *)w64 : (void *)w32, margin);
        for (int i = 3; i < ROWS; i++)
            ck_assert_double_eq_tol(margin[i - 3], reference_margin(&f, i, w64), form & 1 ? 1e-12 : 1e-5);
    }
}
END_TEST

/* A step over all rows with rate h moves w by -h times the gradient of n F, regularisation included. */
START_TEST(a_gradient_step_agrees_with_finite_differences)
{
    for (int k = 0; k < MODELS; k++)
        for (int binary = 0; binary < 2; binary++) {
            struct fixture f;
            make(&f, models[k], TR_F64, binary, true);
            double w[KEYS + 1], moved[KEYS + 1], slope[ROWS];
            float reg[KEYS + 1] = {0};
            for (int j = 0; j <= KEYS; j++) moved[j] = w[j] = 0.3 * sin(1 + j);
            for (uint64_t z = 0; z < f.begin[ROWS]; z++) reg[f.column[z]] += 1;
            for (int j = 0; j < KEYS; j++) reg[j] = (float)(f.problem.l2 * ROWS / (double)reg[j]);
            tr_margins(&f.problem, 0, ROWS, w, slope);
            for (int i = 0; i < ROWS; i++) slope[i] = tr_loss_slope(models[k], slope[i], (double)f.label[i]);
            tr_add_rows(&f.problem, 0, ROWS, slope, 1e-3, reg, w, moved);
            for (int j = 0; j <= KEYS; j++) {
                double at = w[j], h = 1e-6;
                w[j] = at + h;
                double above = objective(&f, w);
                w[j] = at - h;
                double below = objective(&f, w);
                w[j] = at;
                double gradient = ROWS * (above - below) / (2 * h);
                ck_assert_double_eq_tol((moved[j] - w[j]) / -1e-3, gradient, 1e-4 * (1 + fabs(gradient)));
            }
        }
}
END_TEST

/* Passes keep w = Σ α x / (λ n), and close the gap between objective and dual. */
START_TEST(dual_passes_reach_the_optimum)
{
    for (int k = 0; k < MODELS; k++) {
        struct fixture f;
        make(&f, models[k], TR_F64, false, false);
        double w[KEYS + 1] = {0}, sum[KEYS] = {0}, squares = 0;
        float norm[ROWS], a[ROWS] = {0};
        uint32_t order[ROWS];
        for (uint32_t i = 0; i < ROWS; i++) order[i] = (i * 7) % ROWS;
        tr_row_norms(&f.problem, norm);
        for (int pass = 0; pass < 400; pass++) tr_dual_pass(&f.problem, order, ROWS, 1, norm, a, w);
        for (int i = 0; i < ROWS; i++)
            for (uint64_t z = f.begin[i]; z < f.begin[i + 1]; z++)
                sum[f.column[z]] += (classifies(models[k]) ? (double)f.label[i] : 1) * (double)a[i] *
                                    (double)f.value[z] / (f.problem.l2 * ROWS);
        for (int j = 0; j < KEYS; j++) {
            ck_assert_double_eq_tol(w[j], sum[j], 1e-9);
            squares += w[j] * w[j];
        }
        double primal = objective(&f, w),
               dual = -f.problem.l2 / 2 * squares - tr_dual_sum(&f.problem, a) / ROWS;
        ck_assert_double_ge(primal, dual - 1e-9);
        ck_assert_double_le(primal - dual, 1e-4 * primal);
    }
}
END_TEST

UNIT_MAIN("solve", slopes_are_the_derivatives_of_losses, conjugates_bound_losses_and_touch_them,
          a_dual_step_is_the_minimum_of_its_coordinate, margins_are_dot_products,
          a_gradient_step_agrees_with_finite_differences, dual_passes_reach_the_optimum)

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

/* Those with a shape: between which numbers their dual variables lie, and none for counts. */
static const struct {
    int model;
    double shape, least, most;
} shaped[] = {{TR_LOSS_HUBER, 1.5, -1.5, 1.5},
              {TR_LOSS_QUANTILE, 0.3, -0.7, 0.3},
              {TR_LOSS_LINEAR, 0, -3, 3},
              {TR_LOSS_POISSON, 0, 0, 0},
              {TR_LOSS_LOGISTIC, 0, 0, 0}};
enum { SHAPED = sizeof shaped / sizeof *shaped };

START_TEST(slopes_and_curvatures_of_all_losses_are_their_derivatives)
{
    for (int k = 0; k < SHAPED; k++)
        for (int i = 0; i < MARGINS; i++)
            for (double y = shaped[k].model == TR_LOSS_POISSON ? 0 : -1; y <= 1; y++) {
                int model = shaped[k].model;
                double s = shaped[k].shape, m = margins[i], h = 1e-5;
                if (y == 0 && model == TR_LOSS_LOGISTIC) continue;
                double slope =
                    (tr_shaped_loss(model, s, m + h, y) - tr_shaped_loss(model, s, m - h, y)) / (2 * h);
                double curve =
                    (tr_shaped_slope(model, s, m + h, y) - tr_shaped_slope(model, s, m - h, y)) / (2 * h);
                ck_assert_double_eq_tol(tr_shaped_slope(model, s, m, y), slope, 1e-5 * (1 + fabs(slope)));
                ck_assert_double_eq_tol(tr_shaped_curvature(model, s, m, y), curve, 1e-5 * (1 + fabs(curve)));
            }
}
END_TEST

START_TEST(conjugates_and_steps_suit_losses_with_a_shape)
{
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < MARGINS; i++)
            for (double q = 0.01; q < 100; q *= 9) {
                int model = shaped[k].model;
                double s = shaped[k].shape, m = margins[i], y = i % 2 ? 1 : -2.5, old = 0.1;
                double step = tr_shaped_step(model, s, old, m, y, q);
                ck_assert(step >= shaped[k].least || model == TR_LOSS_LINEAR);
                ck_assert(step <= shaped[k].most || model == TR_LOSS_LINEAR);
                double touching = -tr_shaped_slope(model, s, m, y), loss = tr_shaped_loss(model, s, m, y);
                ck_assert_double_eq_tol(loss + tr_shaped_conjugate(model, touching, y) + touching * m, 0,
                                        1e-8 * (1 + loss));
                for (double a = shaped[k].least; a <= shaped[k].most; a += 0.05) {
                    ck_assert_double_ge(loss + tr_shaped_conjugate(model, a, y) + a * m, -1e-9);
#define AT(a) (tr_shaped_conjugate(model, a, y) + m * ((a)-old) + q / 2 * ((a)-old) * ((a)-old))
                    ck_assert_double_le(AT(step), AT(a) + 1e-9);
                }
            }
}
END_TEST

/* A softmax, and classes each against the rest, with weights of rows. */
START_TEST(slopes_of_several_outputs_are_derivatives)
{
    enum { CLASSES = 4, WIDE_ROWS = 3 };
    static const float target[WIDE_ROWS] = {2, 0, 3}, weight[WIDE_ROWS] = {1, 0, 2.5f};
    for (int k = 0; k < MODELS + 1; k++) {
        struct tr_problem p = {.model = k < MODELS ? models[k] : TR_LOSS_LOGISTIC,
                               .target = target,
                               .weight = weight,
                               .outputs = CLASSES,
                               .softmax = k == MODELS};
        if (k < MODELS && !classifies(models[k])) continue;
        for (size_t i = 0; i < WIDE_ROWS; i++) {
            double m[CLASSES] = {0.3, -700, 2.5, 700 * (double)(i % 2)}, slope[CLASSES];
            memcpy(slope, m, sizeof m);
            tr_row_slopes(&p, i, slope);
            for (size_t o = 0; o < CLASSES; o++) {
                double h = 1e-6, at = m[o], up, down;
                m[o] = at + h, up = tr_row_loss(&p, i, m);
                m[o] = at - h, down = tr_row_loss(&p, i, m);
                m[o] = at;
                ck_assert_double_eq_tol(slope[o], (up - down) / (2 * h), 1e-4);
            }
        }
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
        tr_row_norms(&f.problem, 0, ROWS, norm);
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
               dual = -f.problem.l2 / 2 * squares - tr_dual_sum(&f.problem, 0, ROWS, a) / ROWS;
        ck_assert_double_ge(primal, dual - 1e-9);
        ck_assert_double_le(primal - dual, 1e-4 * primal);
    }
}
END_TEST

/* One softmax, and each class against the rest, with weights of rows; the classes all at once, or in two blocks as two members
 * of a group have them. What has changed adds up to w. */
START_TEST(dual_passes_of_several_classes_reach_the_optimum)
{
    enum { CLASSES = 5 };
    for (int k = 0; k < 2 * (MODELS + 1); k++) {
        struct fixture f;
        bool softmax = k / 2 == MODELS;
        int model = softmax ? TR_LOSS_LOGISTIC : models[k / 2];
        if (!classifies(model) || (softmax && k % 2)) continue;
        make(&f, model, TR_F64, false, true);
        float weight[ROWS], norm[ROWS], a[2][ROWS * CLASSES] = {0}, zeros[ROWS * CLASSES] = {0};
        double w[(KEYS + 1) * CLASSES] = {0}, sum[(KEYS + 1) * CLASSES] = {0}, room[3 * CLASSES], squares = 0,
                              n = 0;
        uint32_t order[ROWS];
        for (uint32_t i = 0; i < ROWS; i++) {
            f.label[i] = (float)(i % CLASSES);
            n += (double)(weight[i] = (float)(i % 3));
            order[i] = (i * 7) % ROWS;
        }
        f.problem.outputs = CLASSES, f.problem.softmax = softmax, f.problem.weight = weight, f.problem.n = n;
        struct tr_class_block block[2] = {{0, k % 2 ? 2 : CLASSES}, {2, k % 2 ? CLASSES - 2 : 0}};
        for (size_t i = 0; softmax && i < ROWS; i++)
            a[0][i * CLASSES + i % CLASSES] = zeros[i * CLASSES + i % CLASSES] = 1;
        tr_row_norms(&f.problem, 0, ROWS, norm);
        for (int pass = 0; pass < 600; pass++)
            for (int b = 0; b < 2; b++)
                tr_dual_pass_classes(&f.problem, block[b], 0, order, ROWS, 1, norm, a[b], room, w);
        double dual = 0, primal = 0, margin[ROWS * CLASSES];
        for (int b = 0; b < 2; b++) {
            tr_add_changes(&f.problem, block[b], 0, ROWS, zeros, a[b], room, sum);
            dual -= tr_dual_sum_classes(&f.problem, block[b], 0, ROWS, a[b]) / n;
        }
        tr_margins(&f.problem, 0, ROWS, w, margin);
        for (size_t i = 0; i < ROWS; i++) primal += tr_row_loss(&f.problem, i, margin + i * CLASSES) / n;
        for (int j = 0; j < (KEYS + 1) * CLASSES; j++) {
            ck_assert_double_eq_tol(w[j], sum[j], 1e-6);
            squares += w[j] * w[j];
        }
        primal += f.problem.l2 / 2 * squares;
        dual -= f.problem.l2 / 2 * squares;
        ck_assert_double_ge(primal, dual - 1e-6);
        ck_assert_double_le(primal - dual, 1e-3 * primal);
    }
}
END_TEST

UNIT_MAIN("solve", slopes_are_the_derivatives_of_losses, conjugates_bound_losses_and_touch_them,
          a_dual_step_is_the_minimum_of_its_coordinate,
          slopes_and_curvatures_of_all_losses_are_their_derivatives,
          conjugates_and_steps_suit_losses_with_a_shape, slopes_of_several_outputs_are_derivatives,
          margins_are_dot_products, a_gradient_step_agrees_with_finite_differences,
          dual_passes_reach_the_optimum, dual_passes_of_several_classes_reach_the_optimum)

#include "unit.h"

#include "model/loss.h"
#include "model/linear/pass.h"

static const struct tr_loss *const models[] = {&tr_loss_logistic, &tr_loss_linear, &tr_loss_svm,
                                               &tr_loss_l2svm};
enum { MODELS = 4 };

static bool classifies(const struct tr_loss *model)
{
    return model != &tr_loss_linear;
}

/* A softmax, and classes each against the rest, with weights of rows. */
UNIT_CASE(slopes_of_several_outputs_are_derivatives)
{
    enum { CLASSES = 4, WIDE_ROWS = 3 };
    static const float target[WIDE_ROWS] = {2, 0, 3}, weight[WIDE_ROWS] = {1, 0, 2.5f};
    for (int k = 0; k < MODELS + 1; k++) {
        struct tr_problem p = {.loss = k < MODELS ? models[k] : &tr_loss_logistic,
                               .target = target,
                               .weight = weight,
                               .outputs = CLASSES,
                               .softmax = k == MODELS};
        if (k < MODELS && !classifies(models[k])) continue;
        for (size_t i = 0; i < WIDE_ROWS; i++) {
            double m[CLASSES] = {0.3, -700, 2.5, 700 * (double)(i % 2)}, slope[CLASSES];
            memcpy(slope, m, sizeof m);
            tr_row_slopes(&p, i, 1, slope);
            for (size_t o = 0; o < CLASSES; o++) {
                double h = 1e-6, at = m[o], up, down;
                m[o] = at + h, up = tr_row_losses(&p, i, 1, m, 0);
                m[o] = at - h, down = tr_row_losses(&p, i, 1, m, 0);
                m[o] = at;
                ck_assert_double_eq_tol(slope[o], (up - down) / (2 * h), 1e-4);
            }
        }
    }
}

/* ---- passes, on a small random problem ---- */

enum { ROWS = 60, KEYS = 23 };

struct fixture {
    struct tr_problem problem;
    uint64_t begin[ROWS + 1];
    uint32_t column[ROWS * KEYS];
    float value[ROWS * KEYS], label[ROWS];
};

static void make(struct fixture *f, const struct tr_loss *model, enum tr_dtype dtype, bool binary, bool bias)
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
                                     .loss = model,
                                     .dtype = dtype,
                                     .rows = {ROWS, f->begin, f->column, binary ? NULL : f->value, f->label},
                                     .target = f->label,
                                     .bias = bias,
                                     .of_bias = 1,
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
        sum += f->problem.loss->value(reference_margin(f, i, w), (double)f->label[i], 0);
    for (int j = 0; j < KEYS; j++) squares += w[j] * w[j];
    return sum / ROWS + f->problem.l2 / 2 * squares;
}

UNIT_CASE(margins_are_dot_products)
{
    for (int form = 0; form < 8; form++) {
        struct fixture f;
        make(&f, &tr_loss_logistic, form & 1 ? TR_F64 : TR_F32, form & 2, form & 4);
        double w64[KEYS + 1], margin[ROWS];
        float w32[KEYS + 1];
        for (int j = 0; j <= KEYS; j++) w64[j] = (double)(w32[j] = (float)sin(j));
        tr_margins(&f.problem, 3, ROWS - 3, form & 1 ? (void *)w64 : (void *)w32, margin);
        for (int i = 3; i < ROWS; i++)
            ck_assert_double_eq_tol(margin[i - 3], reference_margin(&f, i, w64), form & 1 ? 1e-12 : 1e-5);
    }
}

/* A step over all rows with rate h moves w by -h times the gradient of n F, regularisation included. */
UNIT_CASE(a_gradient_step_agrees_with_finite_differences)
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
            for (int i = 0; i < ROWS; i++) slope[i] = models[k]->slope(slope[i], (double)f.label[i], 0);
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

/* Passes keep w = Σ α x / (λ n), and close the gap between objective and dual. */
UNIT_CASE(dual_passes_reach_the_optimum)
{
    for (int k = 0; k < MODELS; k++) {
        struct fixture f;
        make(&f, models[k], TR_F64, false, false);
        double w[KEYS + 1] = {0}, sum[KEYS] = {0}, squares = 0;
        float norm[ROWS], a[ROWS] = {0};
        uint32_t order[ROWS];
        for (uint32_t i = 0; i < ROWS; i++) order[i] = (i * 7) % ROWS;
        tr_row_norms(&f.problem, NULL, 0, ROWS, norm);
        struct tr_class_block one = {0, 1};
        for (int pass = 0; pass < 400; pass++)
            tr_dual_pass(&f.problem, one, order, ROWS, 1, NULL, norm, a, NULL, w);
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

/* One softmax, and each class against the rest, with weights of rows; the classes in one block, or in two blocks as in a group
 * with two members. w is the sum of α x / (λ n). */
UNIT_CASE(dual_passes_of_several_classes_reach_the_optimum)
{
    enum { CLASSES = 5 };
    for (int k = 0; k < 2 * (MODELS + 1); k++) {
        struct fixture f;
        bool softmax = k / 2 == MODELS;
        const struct tr_loss *model = softmax ? &tr_loss_logistic : models[k / 2];
        if (!classifies(model) || (softmax && k % 2)) continue;
        make(&f, model, TR_F64, false, true);
        float weight[ROWS], norm[ROWS], a[ROWS * CLASSES] = {0};
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
        for (size_t i = 0; softmax && i < ROWS; i++) a[i * CLASSES + i % CLASSES] = 1;
        tr_row_norms(&f.problem, NULL, 0, ROWS, norm);
        for (int pass = 0; pass < 600; pass++)
            for (int b = 0; b < 2; b++)
                tr_dual_pass(&f.problem, block[b], order, ROWS, 1, NULL, norm, a, room, w);
        double dual = -tr_dual_sum(&f.problem, 0, ROWS, a) / n, primal = 0, margin[ROWS * CLASSES];
        for (size_t i = 0; i < ROWS; i++)
            for (size_t c = 0; c < CLASSES; c++) {
                bool is_class = c == i % CLASSES;
                double alpha = (double)a[i * CLASSES + c], step = (double)weight[i] / (f.problem.l2 * n);
                step *= softmax ? is_class - alpha : is_class ? alpha : -alpha;
                for (uint64_t z = f.begin[i]; z < f.begin[i + 1]; z++)
                    sum[f.column[z] * CLASSES + c] += step * (double)f.value[z];
                sum[KEYS * CLASSES + c] += step; /* the bias */
            }
        tr_margins(&f.problem, 0, ROWS, w, margin);
        primal += tr_row_losses(&f.problem, 0, ROWS, margin, 0) / n;
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

/* w changes by the sum of the changes of the copies, divided by the factor of the key; other outputs do not change. */
UNIT_CASE(copies_are_merged_for_the_given_outputs)
{
    enum { COLUMNS = 700, OUTPUTS = 3, STRIDE = COLUMNS * OUTPUTS + 5, FIRST = 2, LENGTH = COLUMNS - 4 };
    static float copies[2 * STRIDE], w[COLUMNS * OUTPUTS];
    static uint8_t code[COLUMNS];
    struct tr_problem p = {.dtype = TR_F32, .outputs = OUTPUTS, .keys = COLUMNS};
    struct tr_spread spread = {code, 0.5f};
    struct tr_class_block blocks[] = {{1, 2}, {0, OUTPUTS}};
    for (size_t b = 0; b < COUNT(blocks); b++) {
        for (int j = 0; j < COLUMNS; j++) code[j] = (uint8_t)(j % 7);
        for (int e = 0; e < COLUMNS * OUTPUTS; e++) {
            w[e] = (float)(e % 11);
            copies[e] = w[e] + (float)(e % 5), copies[STRIDE + e] = w[e] - 3;
        }
        tr_dual_merge(&p, blocks[b], &spread, FIRST, LENGTH, copies, STRIDE, 2, w);
        for (int e = 0; e < COLUMNS * OUTPUTS; e++) {
            size_t key = (size_t)e / OUTPUTS, output = (size_t)e % OUTPUTS;
            bool is_merged = key >= FIRST && key < FIRST + LENGTH && output >= blocks[b].first;
            double expected = e % 11, sum = e % 5 - 3;
            if (is_merged) expected += sum / (1 + 0.5 * (double)(key % 7));
            ck_assert_double_eq_tol((double)w[e], expected, 1e-5);
            ck_assert(!is_merged || (copies[e] == w[e] && copies[STRIDE + e] == w[e]));
        }
    }
}

/* ---- dense rows ---- */

/* A problem of which three rows in ten are zeros, in both forms. */
struct forms {
    struct tr_problem sparse, dense;
    uint64_t *begin;
    uint32_t *column;
    float *value, *all, *target, *norm;
};

enum { MANY_ROWS = 150 };

static void open_forms(struct forms *f, size_t keys, size_t outputs, enum tr_dtype dtype)
{
    struct tr_rng rng;
    uint64_t n = 0;
    tr_rng_seed(&rng, 11, keys, outputs);
    ck_ok(TR_NEW(&f->begin, MANY_ROWS + 1));
    ck_ok(TR_NEW(&f->column, MANY_ROWS * keys));
    ck_ok(TR_NEW(&f->value, MANY_ROWS * keys));
    ck_ok(TR_NEW(&f->all, MANY_ROWS * keys));
    ck_ok(TR_NEW(&f->target, MANY_ROWS));
    ck_ok(TR_NEW(&f->norm, MANY_ROWS));
    for (size_t i = 0; i < MANY_ROWS; i++) {
        for (uint32_t j = 0; j < keys; j++) {
            if (tr_rng_uniform(&rng) < 0.3) continue;
            f->column[n] = j;
            f->all[i * keys + j] = f->value[n++] = (float)tr_rng_normal(&rng);
        }
        f->begin[i + 1] = n;
        f->target[i] = outputs > 1 ? (float)(i % outputs) : i % 3 ? 1 : -1;
    }
    f->sparse = (struct tr_problem){.loss = &tr_loss_logistic,
                                    .dtype = dtype,
                                    .rows = {MANY_ROWS, f->begin, f->column, f->value, f->target, NULL},
                                    .target = f->target,
                                    .outputs = outputs,
                                    .bias = true,
                                    .of_bias = 1,
                                    .keys = keys,
                                    .l2 = 0.05,
                                    .n = MANY_ROWS};
    f->dense = f->sparse;
    f->dense.rows = (tr_batch){.n = MANY_ROWS, .label = f->target, .dense = f->all};
}

static void close_forms(struct forms *f)
{
    void *arrays[] = {f->begin, f->column, f->value, f->all, f->target, f->norm};
    for (size_t i = 0; i < COUNT(arrays); i++) free(arrays[i]);
}

/* What passes make of w: margins, a gradient step, and steps of the dual variables. */
static void pass_over(const struct tr_problem *p, float *norm, double *w64, double *margin)
{
    enum { FIRST = 5 };
    size_t outputs = p->outputs, n = MANY_ROWS - FIRST, all = (p->keys + 1) * outputs;
    uint32_t order[MANY_ROWS];
    float *w32, *a;
    double *room;
    uint8_t *code;
    ck_ok(TR_NEW(&code, p->keys + 1));
    ck_ok(TR_NEW(&w32, all));
    ck_ok(TR_NEW(&a, MANY_ROWS * outputs));
    ck_ok(TR_NEW(&room, 3 * outputs));
    void *w = p->dtype == TR_F32 ? (void *)w32 : w64;
    for (size_t j = 0; j < all; j++) w64[j] = (double)(w32[j] = (float)sin((double)j) / 8);
    for (uint32_t i = 0; i < MANY_ROWS; i++) order[i] = i * 7 % MANY_ROWS;
    tr_margins(p, FIRST, n, w, margin);
    tr_row_slopes(p, FIRST, n, margin);
    tr_add_rows(p, FIRST, n, margin, 1e-3, NULL, NULL, w);
    tr_row_norms(p, NULL, 0, MANY_ROWS, norm);
    struct tr_spread spread = {code, 0.01f};
    for (size_t j = 0; j <= p->keys; j++) code[j] = (uint8_t)(j * 37);
    for (int turn = 0; turn < 2; turn++) {
        if (turn) tr_row_norms(p, &spread, 0, MANY_ROWS, norm);
        tr_dual_pass(p, (struct tr_class_block){0, outputs}, order, MANY_ROWS, 1, turn ? &spread : NULL, norm,
                     a, room, w);
    }
    for (size_t j = 0; j < all && p->dtype == TR_F32; j++) w64[j] = (double)w32[j];
    TR_FREE_ALL(code, w32, a, room);
}

/* Fewer columns than vector instructions are for, some left over, and more columns, rows and outputs than BLIS gets at
 * once. */
UNIT_CASE(dense_rows_give_what_sparse_rows_do)
{
    static const size_t keys[] = {3, 23, 300}, outputs[] = {1, 5, 70};
    for (int k = 0; k < 18; k++) {
        struct forms f;
        enum tr_dtype dtype = k % 2 ? TR_F64 : TR_F32;
        size_t width = outputs[k / 2 % 3], n = keys[k / 6];
        double *w[2], *margin[2], far = dtype == TR_F32 ? 2e-3 : 1e-9;
        open_forms(&f, n, width, dtype);
        for (int form = 0; form < 2; form++) {
            ck_ok(TR_NEW(&w[form], (n + 1) * width));
            ck_ok(TR_NEW(&margin[form], MANY_ROWS * width));
            pass_over(form ? &f.dense : &f.sparse, f.norm, w[form], margin[form]);
        }
        for (size_t i = 0; i < (MANY_ROWS - 5) * width; i++)
            ck_assert_double_eq_tol(margin[0][i], margin[1][i], far);
        for (size_t j = 0; j < (n + 1) * width; j++) ck_assert_double_eq_tol(w[0][j], w[1][j], far);
        for (int form = 0; form < 2; form++) free(w[form]), free(margin[form]);
        close_forms(&f);
    }
}

/* All features of a mini-batch of dense rows shrink in one step. */
UNIT_CASE(dense_rows_shrink_all_features)
{
    struct forms f;
    double *w, *moved, slope[MANY_ROWS] = {0};
    float *reg;
    open_forms(&f, 23, 1, TR_F64);
    ck_ok(TR_NEW(&w, 24));
    ck_ok(TR_NEW(&moved, 24));
    ck_ok(TR_NEW(&reg, 24));
    for (size_t j = 0; j < 24; j++) moved[j] = w[j] = sin((double)j), reg[j] = j < 23 ? 0.5f : 0;
    tr_add_rows(&f.dense, 3, 10, slope, 0.01, reg, w, moved);
    for (size_t j = 0; j < 23; j++) ck_assert_double_eq_tol(moved[j], w[j] * (1 - 10 * 0.01 * 0.5), 1e-12);
    ck_assert(moved[23] == w[23]);
    TR_FREE_ALL(w, moved, reg);
    close_forms(&f);
}

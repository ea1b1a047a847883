/* A step: the quadratic model of the loss minimised over the set of columns, and a line search along that. */
#include "../../loss_inline.h"
#include "descent.h"

#include <math.h>
#include <stdlib.h>

#include "quadratic.h"

static bool is_first(const struct tr_linear *m)
{
    return tr_set_rank(m->tr, TR_SET_WORKERS) == 0;
}

/* The part of a pass over the data that blocks first .. end - 1 of the set make. */
static double pass_of_blocks(const struct tr_linear_descent *d, size_t first, size_t end)
{
    double entries = 0;
    for (size_t b = first; b < end; b++) entries += (double)d->set.block[b].begin[d->set.block[b].rows];
    return entries / fmax(1, (double)d->rows.begin[d->rows.n]);
}

static int find_products(struct tr_linear *m, struct tr_column_block *block, float *triangle)
{
    const struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_turn_begin(m->tr, "gradient"));
    tr_block_products(block, d->model, triangle);
    TR_TRY(tr_turn_end(m->tr, TR_OK));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F32, triangle, tr_block_triangle(block)));
    tr_block_set_gram(block, triangle, d->at.curve + d->bias_l2, d->l2);
    if (m->o->bias) return TR_OK;
    for (size_t k = 0; k < block->n; k++) /* it does not move then */
        block->gram[block->n * (block->n + 1) + k] = block->gram[k * (block->n + 1) + block->n] = 0;
    return TR_OK;
}

/* Products are computed in every step, as the curvature of a loss changes; a quadratic loss has one curvature. */
static bool needs_products(const struct tr_linear *m, const struct tr_column_block *block)
{
    return !m->loss->quadratic || block->gram[(block->n + 1) * (block->n + 1) - 1] == 0;
}

static int find_all_products(struct tr_linear *m)
{
    struct tr_descent_set *s = &m->descent->set;
    float *triangle;
    TR_TRY(TR_NEW(&triangle, (TR_BLOCK_COLUMNS + 1) * (TR_BLOCK_COLUMNS + 2) / 2));
    int status = TR_OK;
    for (size_t b = 0; status == TR_OK && b < s->blocks; b++)
        if (needs_products(m, &s->block[b])) status = find_products(m, &s->block[b], triangle);
    free(triangle);
    return status;
}

/* Minimises over a block; *most: what that has changed a gradient by. */
static int step_block(struct tr_linear *m, const struct tr_column_block *block, double *next,
                      double tolerance, double *most)
{
    enum { ROOM = TR_BLOCK_COLUMNS + 1 };
    struct tr_linear_descent *d = m->descent;
    double x[ROOM], gradient[ROOM], work[4 * ROOM];
    size_t n = block->n;
    const float *bias = block->gram + n * (n + 1);
    tr_block_gradient(block, d->model, gradient);
    TR_TRY(tr_descent_sum(m, gradient, n));
    for (size_t k = 0; k < n; k++) {
        x[k] = next[k];
        gradient[k] += d->bias_move * (double)bias[k] + d->l2 * x[k];
    }
    x[n] = d->bias_move;
    gradient[n] = d->bias_gradient;
    struct tr_quadratic q = {.n = n + 1,
                             .penalised = n,
                             .gram = block->gram,
                             .alpha = d->alpha,
                             .x = x,
                             .gradient = gradient,
                             .work = work};
    *most = fmax(*most, tr_quadratic_minimise(&q, 0.1 * tolerance, d->set.blocks == 1 ? 1000 : 30));
    d->bias_move = x[n];
    d->bias_gradient = gradient[n];
    for (size_t k = 0; k < n; k++) {
        double change = x[k] - next[k];
        next[k] = x[k];
        x[k] = change;
    }
    tr_block_move(block, x, d->model);
    return TR_OK;
}

double tr_descent_pass(const struct tr_linear_descent *d)
{
    return pass_of_blocks(d, 0, d->set.blocks);
}

/* Minimises the quadratic model: passes over the blocks until they change little, and conjugate gradients between them where
 * some passes alone do not do. The first steps lead to where the model is another one: they are not worth many passes. */
static int find_step(struct tr_linear *m)
{
    enum { PASSES = 7, ALONE = 2, SUPPORT = 17 }; /* SUPPORT: passes of conjugate gradients, at most */
    int passes = tr_min_int(PASSES, 2 + m->descent->steps++);
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *s = &d->set;
    double tolerance = 0.05 * d->at.violation;
    d->bias_move = 0;
    d->bias_gradient = m->o->bias ? d->at.slope + d->bias_l2 * d->bias : 0;
    for (int pass = 0; pass < passes; pass++) {
        double most = 0, *next = s->next;
        for (size_t b = 0; b < s->blocks; next += s->block[b++].n)
            TR_TRY(step_block(m, &s->block[b], next, tolerance, &most));
        double one = tr_descent_pass(d);
        d->passes += one;
        double all[] = {most, d->passes + one, d->passes + (SUPPORT + 1) * one};
        TR_TRY(tr_descent_greatest(m, all, 3));
        if (s->blocks == 1 || all[0] <= tolerance || all[1] > d->most_passes) break;
        if (pass >= ALONE && pass < passes - 1 && all[2] <= d->most_passes)
            TR_TRY(tr_descent_follow_support(m));
    }
    return TR_OK;
}

/* How much the penalties grow by t times the step, and how fast that begins if t is 0. */
static double penalty_change(const struct tr_linear_descent *d, double t)
{
    const struct tr_descent_set *s = &d->set;
    double absolutes = 0, squares = 0, bias = d->bias + t * d->bias_move;
    for (size_t j = 0; j < s->n; j++) {
        double old = s->weight[j], x = old + t * (s->next[j] - old);
        absolutes += fabs(x) - fabs(old);
        squares += x * x - old * old;
    }
    return d->alpha * absolutes + 0.5 * d->l2 * squares +
           0.5 * d->bias_l2 * (bias * bias - d->bias * d->bias);
}

/* What the first order of the loss and the penalty promise of a whole step. */
static double promised(const struct tr_linear_descent *d)
{
    double change = 0;
    for (size_t i = 0; i < d->rows.n; i++)
        change += d->model[i].slope * ((double)d->model[i].move + d->bias_move);
    return change;
}

/* Armijo's rule for proximal steps (Tseng and Yun 2009): the largest t of 1, 1/2, 1/4 … 0: not even a small step helps, as
 * rounding is all that is left. */
static int search(struct tr_linear *m, double *t)
{
    const struct tr_linear_descent *d = m->descent;
    double rounding = 1e-13 * tr_descent_objective(d), promise = 0;
    for (*t = 1; *t > 1e-4; *t /= 2) {
        double sums[3] = {0, 0, 0};
        for (size_t i = 0; i < d->rows.n; i++)
            sums[0] += tr_descent_weight(d, i) *
                       tr_loss_value(m->loss, d->margin[i] + *t * ((double)d->model[i].move + d->bias_move),
                                     (double)d->target[i], 0);
        if (is_first(m)) sums[1] = penalty_change(d, *t);
        if (*t == 1) sums[2] = promised(d);
        TR_TRY(tr_descent_sum(m, sums, 3));
        if (*t == 1) promise = sums[2] + sums[1];
        if (sums[0] - d->at.loss + sums[1] <= 0.01 * *t * promise + rounding) return TR_OK;
    }
    *t = 0;
    return TR_OK;
}

static void take_step(struct tr_linear_descent *d, double t)
{
    struct tr_descent_set *s = &d->set;
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] += t * ((double)d->model[i].move + d->bias_move);
    d->bias += t * d->bias_move;
    for (size_t j = 0; j < s->n; j++) {
        s->weight[j] = s->next[j] = t == 1 ? s->next[j] : s->weight[j] + t * (s->next[j] - s->weight[j]);
        if (s->slot[j] != UINT32_MAX) d->weight[s->slot[j]] = s->weight[j];
    }
}

int tr_descent_step(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double t;
    TR_TRY(tr_descent_choose_columns(m));
    double products = 0;
    for (size_t b = 0; b < d->set.blocks; b++)
        if (needs_products(m, &d->set.block[b])) products += pass_of_blocks(d, b, b + 1);
    d->lacking = d->passes + 1 + products + tr_descent_pass(d);
    TR_TRY(tr_descent_greatest(m, &d->lacking, 1));
    if (d->lacking > d->most_passes) return TR_OK;
    d->lacking = 0;
    d->passes += 1 + products; /* 1: the gradient at the current weights */
    d->margin_of_zeros = 0.5 * fmin(d->at.violation, d->alpha);
    TR_TRY(find_all_products(m));
    TR_TRY(find_step(m));
    TR_TRY(search(m, &t));
    take_step(d, t);
    TR_TRY(tr_descent_minimise_bias(m));
    return tr_descent_look(m);
}

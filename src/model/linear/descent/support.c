/* Conjugate gradients over the columns of the set that are not 0, all blocks together: between passes of descent over the
 * blocks, which are slow where columns of different blocks resemble each other, and ask the workers once for every block. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "descent.h"

/* Vectors over the set, the bias last. */
struct support {
    size_t n;
    double *gradient, *diagonal, *step, *residual, *direction, *product;
};

static bool is_free(const struct tr_descent_set *set, size_t j)
{
    return j == set->n || set->next[j] != 0;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += a[j] * b[j];
    return sum;
}

/* What is beyond the rows: l2, and what columns have to do with the bias; and the sum over workers. */
static int complete(struct tr_linear *m, const double *vector, double *product)
{
    const struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, product, set->n));
    double bias = 0;
    size_t at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n) {
        size_t n = set->block[b].n;
        const float *row = set->block[b].gram + n * (n + 1);
        for (size_t k = 0; k < n; k++) {
            product[at + k] += vector[set->n] * (double)row[k] + d->l2 * vector[at + k];
            bias += vector[at + k] * (double)row[k];
        }
    }
    product[set->n] = bias + vector[set->n] * (d->at.curve + d->bias_l2);
    return TR_OK;
}

/* The model's matrix times a vector; the rows' products with the vector are the probe's moves. */
static int multiply(struct tr_linear *m, const double *vector, double *product)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    size_t at = 0;
    for (size_t i = 0; i < d->rows.n; i++) d->probe[i].move = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_move(&set->block[b], vector + at, d->probe);
    at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_gradient(&set->block[b], d->probe, product + at);
    d->passes += tr_descent_pass(d);
    return complete(m, vector, product);
}

/* The smooth part's gradient where the step has come to. */
static int find_gradient(struct tr_linear *m, struct support *s)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    size_t at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_gradient(&set->block[b], d->model, s->gradient + at);
    memcpy(s->step, set->next, set->n * sizeof *s->step);
    s->step[set->n] = d->bias_move;
    TR_TRY(complete(m, s->step, s->gradient));
    s->gradient[set->n] = d->bias_gradient;
    d->passes += 0.5 * tr_descent_pass(d);
    return TR_OK;
}

static double precondition(const struct tr_descent_set *set, const struct support *s)
{
    double size = 0;
    for (size_t j = 0; j <= set->n; j++)
        if (is_free(set, j)) size += s->residual[j] * s->residual[j] / s->diagonal[j];
        else s->residual[j] = 0;
    return size;
}

static void begin(const struct tr_linear *m, struct support *s)
{
    const struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    size_t at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        for (size_t k = 0; k < set->block[b].n; k++)
            s->diagonal[at + k] = (double)set->block[b].gram[k * (set->block[b].n + 2)];
    s->diagonal[set->n] = d->at.curve + d->bias_l2;
    for (size_t j = 0; j <= set->n; j++) {
        double sign = j < set->n ? (set->next[j] > 0) - (set->next[j] < 0) : 0;
        s->step[j] = 0;
        s->residual[j] = is_free(set, j) ? -(s->gradient[j] + d->alpha * sign) : 0;
        s->direction[j] = s->residual[j] / s->diagonal[j];
    }
    if (!m->o->bias) s->residual[set->n] = s->direction[set->n] = 0;
}

/* The step to the minimum with the signs as they are, about. */
static int find_step(struct tr_linear *m, struct support *s)
{
    enum { MOST = 15 };
    const struct tr_descent_set *set = &m->descent->set;
    begin(m, s);
    double size = precondition(set, s), enough = 1e-3 * size;
    for (int i = 0; i < MOST && size > enough; i++) {
        TR_TRY(multiply(m, s->direction, s->product));
        double t = size / dot(s->direction, s->product, s->n), last = size;
        for (size_t j = 0; j < s->n; j++) {
            s->step[j] += t * s->direction[j];
            s->residual[j] -= t * s->product[j];
        }
        if (!m->o->bias) s->residual[set->n] = 0;
        size = precondition(set, s);
        for (size_t j = 0; j < s->n; j++)
            s->direction[j] = s->residual[j] / s->diagonal[j] + size / last * s->direction[j];
    }
    return TR_OK;
}

/* Columns that would change their sign stay at 0; the objective's change in the first order and the penalty. */
static double project(const struct tr_linear_descent *d, const struct support *s, double t, double *change)
{
    const struct tr_descent_set *set = &d->set;
    double absolutes = 0;
    for (size_t j = 0; j < set->n; j++) {
        double x = set->next[j] + t * s->step[j];
        if (x * set->next[j] < 0) x = 0;
        absolutes += fabs(x) - fabs(set->next[j]);
        change[j] = x - set->next[j];
    }
    change[set->n] = t * s->step[set->n];
    return dot(s->gradient, change, s->n) + d->alpha * absolutes;
}

/* The longest of some parts of the step that lowers the objective. */
static int take_step(struct tr_linear *m, struct support *s)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_set *set = &d->set;
    double *change = s->direction;
    for (double t = 1; t > 0.1; t /= 2) {
        double first = project(d, s, t, change);
        TR_TRY(multiply(m, change, s->product));
        if (!(first + 0.5 * dot(change, s->product, s->n) < 0)) continue;
        for (size_t j = 0; j < set->n; j++) set->next[j] += change[j];
        for (size_t i = 0; i < d->rows.n; i++) d->model[i].move += d->probe[i].move;
        d->bias_move += change[set->n];
        d->bias_gradient += s->product[set->n];
        return TR_OK;
    }
    return TR_OK;
}

int tr_descent_follow_support(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct support s = {.n = d->set.n + 1};
    double *vectors;
    TR_TRY(TR_NEW(&vectors, 6 * s.n));
    s.gradient = vectors;
    s.diagonal = vectors + s.n;
    s.step = vectors + 2 * s.n;
    s.residual = vectors + 3 * s.n;
    s.direction = vectors + 4 * s.n;
    s.product = vectors + 5 * s.n;
    for (size_t i = 0; i < d->rows.n; i++)
        d->probe[i] = (struct tr_row_model){.slope = 0, .curve = d->model[i].curve, .move = 0};
    int status = find_gradient(m, &s);
    if (status == TR_OK) status = find_step(m, &s);
    if (status == TR_OK) status = take_step(m, &s);
    free(vectors);
    return status;
}

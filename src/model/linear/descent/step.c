/* Steps of coordinate descent: a step minimises the quadratic model of the loss over the working set, followed by a
 * line search. */
#include "descent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../loss_inline.h"

/* ---- sums over workers ---- */

static int descent_sum(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, values, n);
}

static int descent_max(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, values, n);
}

/* ---- the losses of the rows ---- */

/* Lower bound of the curvature. With smaller curvatures the model would be useless at some distance. */
static const double LEAST_CURVE = 1e-6;

int tr_descent_model_rows(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_point *at = &d->at;
    double side[2] = {0, 0};
    at->loss = at->curve = at->terms = 0;
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], margin = d->margin[i], slope = tr_loss_slope(m->loss, margin, y, 0);
        double weight = tr_descent_weight(d, i), loss = weight * tr_loss_value(m->loss, margin, y, 0),
               curve = weight * fmax(tr_loss_curvature(m->loss, margin, y, slope, 0), LEAST_CURVE);
        d->model[i] = (struct tr_row_model){.slope = weight * slope, .curve = (float)curve, .move = 0};
        at->loss += loss;
        at->curve += curve;
        at->terms += loss + fabs(weight * slope * margin);
        side[slope > 0] += fabs(weight * slope);
    }
    d->project[0] = d->project[1] = 1;
    at->slope = side[1] - side[0];
    if (!m->o->bias || d->bias_l2 > 0) return TR_OK;
    TR_TRY(descent_sum(m, side, 2));
    bool most = side[1] > side[0];
    if (side[most] > 0) d->project[most] = side[!most] / side[most];
    for (size_t i = 0; i < d->rows.n && d->project[most] < 1; i++)
        d->model[i].slope *= d->project[d->model[i].slope > 0];
    at->slope = 0;
    return TR_OK;
}

/* Includes the penalty of the bias. */
static int bias_find_slope(struct tr_linear *m, double change, double *slope, double *curve)
{
    const struct tr_linear_descent *d = m->descent;
    double sums[2] = {0, 0};
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], margin = d->margin[i] + change,
               one = tr_loss_slope(m->loss, margin, y, 0), weight = tr_descent_weight(d, i);
        sums[0] += weight * one;
        sums[1] += weight * tr_loss_curvature(m->loss, margin, y, one, 0);
    }
    TR_TRY(descent_sum(m, sums, 2));
    *slope = sums[0] + d->bias_l2 * (d->bias + change);
    *curve = sums[1] + d->bias_l2;
    return TR_OK;
}

/* Newton steps. A step that leaves the interval known to contain the minimum is replaced by bisection. */
int tr_descent_minimise_bias(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double change = 0, low = -INFINITY, high = INFINITY, slope, curve;
    if (!m->o->bias) return TR_OK;
    for (int i = 0; i < 60; i++) {
        TR_TRY(bias_find_slope(m, change, &slope, &curve));
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

/* ---- gradient, objective and gap ---- */

static void point_sum_gradient(struct tr_linear_descent *d)
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

/* Violation of the optimality condition of a column. */
static double point_violation(const struct tr_linear_descent *d, size_t j)
{
    double w = d->weight[j], gradient = d->gradient[j] + d->l2 * w;
    if (w != 0) return fabs(gradient + (w > 0 ? d->alpha : -d->alpha));
    return fmax(0, fabs(gradient) - d->alpha);
}

static int point_look_at_columns(struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    struct tr_descent_point *at = &m->descent->at;
    double most[2] = {0, 0}, sums[9] = {0, 0, 0, 0, at->loss, at->slope, at->curve, at->terms, d->drift};
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        double w = d->weight[j], size = fabs(d->gradient[j]), over = fmax(0, size - d->alpha);
        sums[0] += fabs(w);
        sums[1] += w * w;
        sums[2] += w != 0;
        sums[3] += over * over;
        most[0] = fmax(most[0], size);
        most[1] = fmax(most[1], point_violation(d, j));
    }
    TR_TRY(descent_sum(m, sums, 9));
    TR_TRY(descent_max(m, most, 2));
    *at = (struct tr_descent_point){sums[4], sums[5], sums[6], sums[7], sums[8], sums[0],
                                    sums[1], sums[2], sums[3], most[0], most[1]};
    return TR_OK;
}

double tr_descent_objective(const struct tr_linear_descent *d)
{
    const struct tr_descent_point *at = &d->at;
    return at->loss + d->alpha * at->absolutes + 0.5 * d->l2 * at->squares +
           0.5 * d->bias_l2 * d->bias * d->bias;
}

/* Updates the dual value from the slopes times two scales: the largest scale that is feasible without l2, and 1, which
 * is feasible with l2 only. The removed columns are feasible if the loss is not above that of zeros (screen_stays()). */
static int point_find_dual(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const double scale[2] = {fmin(1, d->alpha / fmax(d->at.greatest, 1e-300) * (1 - 1e-13)), 1};
    double conjugate[2] = {0, 0};
    int scales = d->l2 > 0 ? 2 : 1;
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], slope = tr_loss_slope(m->loss, d->margin[i], y, 0);
        double a = -slope * d->project[slope > 0] * (tr_linear_classifies(m) ? y : 1);
        for (int k = 0; k < scales; k++)
            conjugate[k] += tr_descent_weight(d, i) * m->loss->conjugate(scale[k] * a, y);
    }
    TR_TRY(descent_sum(m, conjugate, 2));
    for (int k = 0; k < scales && d->at.loss <= d->zeros_loss * (1 + 1e-6); k++) {
        double slope = scale[k] * d->at.slope, over = k == 1 ? d->at.excess / (2 * d->l2) : 0;
        double of_bias = d->bias_l2 > 0 ? slope * slope / (2 * d->bias_l2) : 0;
        d->dual = fmax(d->dual, -conjugate[k] - over - of_bias);
    }
    return TR_OK;
}

double tr_descent_distance(const struct tr_linear_descent *d)
{
    double rounding = 2.3e-16 * (64 + (double)d->rows.n);
    return fmax(0, tr_descent_objective(d) - d->dual) + rounding * d->at.terms + d->at.drift;
}

double tr_descent_gap(const struct tr_linear_descent *d)
{
    double distance = tr_descent_distance(d), least = tr_descent_objective(d) - distance;
    return distance <= 0 ? 0 : least > 0 ? distance / least : (double)INFINITY;
}

int tr_descent_find_margins(struct tr_linear_descent *d, bool all)
{
    double *weight;
    TR_TRY(TR_NEW(&weight, d->rows.columns));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.column[j] != UINT32_MAX) weight[d->set.column[j]] = d->set.weight[j];
    for (size_t i = 0; i < d->rows.n; i++) {
        if (!all && !isnan(d->margin[i])) continue;
        d->margin[i] = d->bias;
        for (uint64_t k = d->rows.begin[i]; k < d->rows.begin[i + 1]; k++)
            d->margin[i] += weight[d->rows.column[k]] * (double)d->rows.value[k];
    }
    free(weight);
    return TR_OK;
}

int tr_descent_look(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    for (bool again = true; again;) {
        TR_TRY(tr_descent_model_rows(m));
        TR_TRY(tr_turn_begin(m->tr, "gradient"));
        point_sum_gradient(d);
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        TR_TRY(tr_columns_sum(&d->shared, d->partial, d->gradient));
        TR_TRY(point_look_at_columns(m));
        TR_TRY(point_find_dual(m));
        again = d->at.drift > 0.1 * tr_descent_distance(d);
        if (!again) break;
        d->drift = 0;
        d->passes += 1;
        TR_TRY(tr_descent_find_margins(d, true));
        TR_TRY(tr_descent_minimise_bias(m));
    }
    d->known = true;
    return TR_OK;
}

int tr_descent_look_at_penalty(struct tr_linear *m)
{
    TR_TRY(tr_descent_model_rows(m));
    TR_TRY(point_look_at_columns(m));
    return point_find_dual(m);
}

/* ---- the working set ---- */

struct set_entry {
    tr_key key;
    double weight, entries;
};

/* Sorts frequent columns first, so that columns with many common rows share a block. */
static int set_compare_entries(const void *a, const void *b)
{
    const struct set_entry *x = a, *y = b;
    int i, k;
    (void)frexp(x->entries, &i);
    (void)frexp(y->entries, &k);
    return i != k ? k - i : (x->key > y->key) - (x->key < y->key);
}

static bool set_matters(const struct tr_linear_descent *d, size_t j)
{
    return d->weight[j] != 0 || fabs(d->gradient[j]) > d->alpha - d->margin_of_zeros;
}

static uint32_t set_find(const tr_key *keys, size_t n, tr_key key)
{
    size_t first = 0, end = n;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (keys[middle] < key) first = middle + 1;
        else end = middle;
    }
    return first < n && keys[first] == key ? (uint32_t)first : UINT32_MAX;
}

void tr_descent_clear_set(struct tr_linear_descent *d)
{
    struct tr_descent_set *s = &d->set;
    for (size_t b = 0; b < s->blocks; b++) tr_block_free(&s->block[b]);
    s->n = s->blocks = 0;
    if (d->working) memset(d->working, 0, d->shared.n * sizeof *d->working);
}

int tr_descent_add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n)
{
    struct tr_descent_set *s = &d->set;
    size_t first = s->n, blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    size_t capacity[5] = {s->capacity, s->capacity, s->capacity, s->capacity, s->capacity};
    TR_TRY(TR_GROW(&s->key, &capacity[0], first + n));
    TR_TRY(TR_GROW(&s->weight, &capacity[1], first + n));
    TR_TRY(TR_GROW(&s->next, &capacity[2], first + n));
    TR_TRY(TR_GROW(&s->column, &capacity[3], first + n));
    TR_TRY(TR_GROW(&s->slot, &capacity[4], first + n));
    s->capacity = capacity[4];
    TR_TRY(TR_GROW(&s->block, &s->block_capacity, s->blocks + blocks));
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i;
        s->key[at] = keys[i];
        s->weight[at] = s->next[at] = weights[i];
        s->column[at] = set_find(d->key, d->rows.columns, keys[i]);
        s->slot[at] = tr_descent_slot(d, keys[i]);
        if (s->slot[at] != UINT32_MAX) d->working[s->slot[at]] = true;
    }
    memset(s->block + s->blocks, 0, blocks * sizeof *s->block);
    s->n += n;
    s->blocks += blocks;
    return tr_blocks_make(&d->rows, s->column + first, n, s->block + s->blocks - blocks);
}

/* Adds the columns that matter at any worker. */
static int set_gather(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t workers = (size_t)tr_set_size(m->tr, TR_SET_WORKERS), own = 0, n = 0, *bytes = NULL;
    struct set_entry *mine, *all = NULL;
    tr_key *keys = NULL;
    double *weights = NULL;
    TR_TRY(TR_NEW(&mine, d->n_mine));
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        if (!d->working[j] && set_matters(d, j))
            mine[own++] = (struct set_entry){d->shared.first + j, d->weight[j], d->entries[j]};
    }
    own *= sizeof *mine;
    int status = TR_NEW(&bytes, workers);
    if (status == TR_OK) status = tr_all_gather(m->tr, TR_SET_WORKERS, &own, sizeof own, bytes);
    for (size_t r = 0; status == TR_OK && r < workers; r++) n += bytes[r] / sizeof *mine;
    if (status == TR_OK) status = TR_NEW(&all, n);
    if (status == TR_OK) status = tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, all);
    if (status == TR_OK) status = TR_NEW(&keys, n);
    if (status == TR_OK) status = TR_NEW(&weights, n);
    if (status == TR_OK) {
        qsort(all, n, sizeof *all, set_compare_entries);
        for (size_t i = 0; i < n; i++) keys[i] = all[i].key, weights[i] = all[i].weight;
        status = tr_descent_add_columns(d, keys, weights, n);
    }
    void *arrays[] = {mine, bytes, all, keys, weights};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}

static int set_choose_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double sums[3] = {0, 0, 0};
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        sums[0] += set_matters(d, j) && !d->working[j];
        sums[1] += set_matters(d, j) ? d->entries[j] : 0;
        sums[2] += d->working[j] ? d->entries[j] : 0;
    }
    TR_TRY(descent_sum(m, sums, 3));
    bool fewer = sums[1] < 0.5 * sums[2], one = (double)d->set.n + sums[0] <= TR_BLOCK_COLUMNS;
    if (sums[0] == 0 && !fewer) return TR_OK;
    if (fewer || one) tr_descent_clear_set(d);
    return set_gather(m);
}

/* Cost of a pass over the blocks first .. end - 1, relative to a pass over all entries of the data. */
static double step_pass_of_blocks(const struct tr_linear_descent *d, size_t first, size_t end)
{
    double entries = 0;
    for (size_t b = first; b < end; b++) entries += (double)d->set.block[b].begin[d->set.block[b].rows];
    return entries / fmax(1, (double)d->rows.begin[d->rows.n]);
}

/* The same for all blocks of the set. */
static double step_pass(const struct tr_linear_descent *d)
{
    return step_pass_of_blocks(d, 0, d->set.blocks);
}

/* ---- conjugate gradients over the non-zero columns of all blocks ----
 *
 * They run between passes over the blocks, which converge slowly if columns of different blocks are correlated, and which
 * need one collective call per block. */

/* Vectors over the set; the last element belongs to the bias. */
struct support {
    size_t n;
    double *gradient, *diagonal, *step, *residual, *direction, *product;
};

static bool support_is_free(const struct tr_descent_set *set, size_t j)
{
    return j == set->n || set->next[j] != 0;
}

static double support_dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += a[j] * b[j];
    return sum;
}

/* Sums the product over workers and adds the terms of l2 and of the bias. */
static int support_complete(struct tr_linear *m, const double *vector, double *product)
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

/* product = Hessian of the model times vector. The products of the rows with the vector are left in d->probe[].move. */
static int support_multiply(struct tr_linear *m, const double *vector, double *product)
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
    d->passes += step_pass(d);
    return support_complete(m, vector, product);
}

/* Gradient of the smooth part of the model after the step so far. */
static int support_find_gradient(struct tr_linear *m, struct support *s)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    size_t at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_gradient(&set->block[b], d->model, s->gradient + at);
    memcpy(s->step, set->next, set->n * sizeof *s->step);
    s->step[set->n] = d->bias_move;
    TR_TRY(support_complete(m, s->step, s->gradient));
    s->gradient[set->n] = d->bias_gradient;
    d->passes += 0.5 * step_pass(d);
    return TR_OK;
}

static double support_precondition(const struct tr_descent_set *set, const struct support *s)
{
    double size = 0;
    for (size_t j = 0; j <= set->n; j++)
        if (support_is_free(set, j)) size += s->residual[j] * s->residual[j] / s->diagonal[j];
        else s->residual[j] = 0;
    return size;
}

static void support_begin(const struct tr_linear *m, struct support *s)
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
        s->residual[j] = support_is_free(set, j) ? -(s->gradient[j] + d->alpha * sign) : 0;
        s->direction[j] = s->residual[j] / s->diagonal[j];
    }
    if (!m->o->bias) s->residual[set->n] = s->direction[set->n] = 0;
}

/* Approximate step to the minimum without sign changes. */
static int support_find_step(struct tr_linear *m, struct support *s)
{
    enum { MOST = 15 };
    const struct tr_descent_set *set = &m->descent->set;
    support_begin(m, s);
    double size = support_precondition(set, s), enough = 1e-3 * size;
    for (int i = 0; i < MOST && size > enough; i++) {
        TR_TRY(support_multiply(m, s->direction, s->product));
        double t = size / support_dot(s->direction, s->product, s->n), last = size;
        for (size_t j = 0; j < s->n; j++) {
            s->step[j] += t * s->direction[j];
            s->residual[j] -= t * s->product[j];
        }
        if (!m->o->bias) s->residual[set->n] = 0;
        size = support_precondition(set, s);
        for (size_t j = 0; j < s->n; j++)
            s->direction[j] = s->residual[j] / s->diagonal[j] + size / last * s->direction[j];
    }
    return TR_OK;
}

/* Computes the change of each weight; weights that would change their sign become 0. Returns the first-order change of
 * the objective including the penalty. */
static double support_project(const struct tr_linear_descent *d, const struct support *s, double t,
                              double *change)
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
    return support_dot(s->gradient, change, s->n) + d->alpha * absolutes;
}

/* Halves the step until it lowers the objective, and takes it. */
static int support_take_step(struct tr_linear *m, struct support *s)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_set *set = &d->set;
    double *change = s->direction;
    for (double t = 1; t > 0.1; t /= 2) {
        double first = support_project(d, s, t, change);
        TR_TRY(support_multiply(m, change, s->product));
        if (!(first + 0.5 * support_dot(change, s->product, s->n) < 0)) continue;
        for (size_t j = 0; j < set->n; j++) set->next[j] += change[j];
        for (size_t i = 0; i < d->rows.n; i++) d->model[i].move += d->probe[i].move;
        d->bias_move += change[set->n];
        d->bias_gradient += s->product[set->n];
        return TR_OK;
    }
    return TR_OK;
}

static int support_follow(struct tr_linear *m)
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
    int status = support_find_gradient(m, &s);
    if (status == TR_OK) status = support_find_step(m, &s);
    if (status == TR_OK) status = support_take_step(m, &s);
    free(vectors);
    return status;
}

/* ---- a step ---- */

/* The products are computed in each step because the curvature changes; that of a quadratic loss is constant. */
static bool step_needs_products(const struct tr_linear *m, const struct tr_column_block *block)
{
    return !m->loss->quadratic || block->gram[(block->n + 1) * (block->n + 1) - 1] == 0;
}

static int step_find_products(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_set *s = &d->set;
    float *triangle;
    TR_TRY(TR_NEW(&triangle, (TR_BLOCK_COLUMNS + 1) * (TR_BLOCK_COLUMNS + 2) / 2));
    int status = TR_OK;
    for (size_t b = 0; status == TR_OK && b < s->blocks; b++) {
        struct tr_column_block *block = &s->block[b];
        if (!step_needs_products(m, block)) continue;
        status = tr_turn_begin(m->tr, "gradient");
        if (status == TR_OK) tr_block_products(block, d->model, triangle);
        if (status == TR_OK) status = tr_turn_end(m->tr, TR_OK);
        if (status == TR_OK)
            status = tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F32, triangle, tr_block_triangle(block));
        tr_block_set_gram(block, triangle, d->at.curve + d->bias_l2, d->l2);
        for (size_t k = 0; k < block->n && !m->o->bias; k++) /* the bias does not move */
            block->gram[block->n * (block->n + 1) + k] = block->gram[k * (block->n + 1) + block->n] = 0;
    }
    free(triangle);
    return status;
}

/* Minimises over a block. *most: largest change of a gradient. */
static int step_block(struct tr_linear *m, const struct tr_column_block *block, double *next,
                      double tolerance, double *most)
{
    enum { ROOM = TR_BLOCK_COLUMNS + 1 };
    struct tr_linear_descent *d = m->descent;
    double x[ROOM], gradient[ROOM], work[4 * ROOM];
    size_t n = block->n;
    const float *bias = block->gram + n * (n + 1);
    tr_block_gradient(block, d->model, gradient);
    TR_TRY(descent_sum(m, gradient, n));
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

/* Minimises the quadratic model by passes over the blocks, with conjugate gradients in between, until the changes are
 * small. The model of the first steps is inaccurate, so they make fewer passes. */
static int step_minimise_model(struct tr_linear *m)
{
    enum {
        PASSES = 7,
        ALONE = 2,
        SUPPORT = 17
    }; /* SUPPORT: maximum number of passes of conjugate gradients */
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
        double one = step_pass(d);
        d->passes += one;
        double all[] = {most, d->passes + one, d->passes + (SUPPORT + 1) * one};
        TR_TRY(descent_max(m, all, 3));
        if (s->blocks == 1 || all[0] <= tolerance || all[1] > d->most_passes) break;
        if (pass >= ALONE && pass < passes - 1 && all[2] <= d->most_passes) TR_TRY(support_follow(m));
    }
    return TR_OK;
}

/* Change of the penalties from the current weights to t times the step. */
static double step_penalty_change(const struct tr_linear_descent *d, double t)
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

/* Armijo's rule for proximal steps (Tseng and Yun 2009): finds the largest t among 1, 1/2, 1/4 and so on; 0 if rounding prevents
 * any decrease. */
static int step_search(struct tr_linear *m, double *t)
{
    const struct tr_linear_descent *d = m->descent;
    double rounding = 1e-13 * tr_descent_objective(d), promise = 0;
    for (*t = 1; *t > 1e-4; *t /= 2) {
        double sums[3] = {0, 0, 0};
        for (size_t i = 0; i < d->rows.n; i++)
            sums[0] += tr_descent_weight(d, i) *
                       tr_loss_value(m->loss, d->margin[i] + *t * ((double)d->model[i].move + d->bias_move),
                                     (double)d->target[i], 0);
        if (tr_set_rank(m->tr, TR_SET_WORKERS) == 0) sums[1] = step_penalty_change(d, *t);
        for (size_t i = 0; i < d->rows.n && *t == 1; i++) /* first-order change of the loss */
            sums[2] += d->model[i].slope * ((double)d->model[i].move + d->bias_move);
        TR_TRY(descent_sum(m, sums, 3));
        if (*t == 1) promise = sums[2] + sums[1];
        if (sums[0] - d->at.loss + sums[1] <= 0.01 * *t * promise + rounding) return TR_OK;
    }
    *t = 0;
    return TR_OK;
}

static void step_take(struct tr_linear_descent *d, double t)
{
    struct tr_descent_set *s = &d->set;
    for (size_t i = 0; i < d->rows.n; i++) {
        double move = t * (double)d->model[i].move;
        d->margin[i] += move + t * d->bias_move;
        d->drift += 6e-8 * fabs(d->model[i].slope * move);
    }
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
    TR_TRY(set_choose_columns(m));
    double products = 0;
    for (size_t b = 0; b < d->set.blocks; b++)
        if (step_needs_products(m, &d->set.block[b])) products += step_pass_of_blocks(d, b, b + 1);
    d->lacking = d->passes + 1 + products + step_pass(d);
    TR_TRY(descent_max(m, &d->lacking, 1));
    if (d->lacking > d->most_passes) return TR_OK;
    d->lacking = 0;
    d->passes += 1 + products; /* 1: gradient at the current weights */
    d->margin_of_zeros = 0.5 * fmin(d->at.violation, d->alpha);
    TR_TRY(step_find_products(m));
    TR_TRY(step_minimise_model(m));
    TR_TRY(step_search(m, &t));
    step_take(d, t);
    TR_TRY(tr_descent_minimise_bias(m));
    return tr_descent_look(m);
}

/* Coordinate descent for penalties with |w|₁: proximal Newton steps (newGLMNET, Yuan, Ho and Lin 2012). A step replaces the
 * loss by its quadratic model where the weights stand, and minimises that and the penalty over the columns that matter, in
 * blocks (blocks.h): columns that are not 0, or that the gradient may soon let leave 0; a line search along the step
 * follows. Workers divide the rows. Each block's gradient is summed over them, and all minimise over the block alike, so
 * that steps and passes do not depend on how many they are.
 *
 * The gap is proven: the losses' slopes, scaled until no column's gradient exceeds alpha, are a dual point (as in the
 * gap-safe rules of Fercoq, Gramfort and Salmon 2015). An unpenalised bias is at its minimum whenever it is computed, so the
 * slopes sum to 0, as the dual wants it. */
#include "descent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quadratic.h"

/* ---- checking ---- */

static int check(const tr_job *job, const struct tr_linear_options *o)
{
    if (o->l1 == 0)
        return tr_linear_refuse(job, "model.l1",
                                "model.l1 is 0, but solve.method descent is for model.l1 > 0");
    if (o->l1 < 0 && o->target_gap == 0)
        return tr_linear_refuse(
            job, "solve.target_gap",
            "model.l1 path goes on to the next penalty at solve.target_gap: expected > 0");
    if (o->l1 < 0 && *o->init)
        return tr_linear_refuse(job, "model.init",
                                "model.l1 path begins with the largest penalty, where weights are 0");
    if (!tr_job_is(job, "sync.mode", "bsp") && !tr_job_is(job, "sync.mode", "auto"))
        return tr_linear_refuse(job, "sync.mode",
                                "solve.method descent takes steps of all workers together: expected bsp");
    if (tr_job_is(job, "data.partition", "vertical"))
        return tr_linear_refuse(job, "data.partition",
                                "solve.method descent divides the rows: expected horizontal or replicated");
    if (o->folds == 1)
        return tr_linear_refuse(
            job, "solve.folds",
            "solve.folds is 1, which leaves no row to learn from: expected 0, or 2 or more");
    if (o->folds > 0 && tr_job_given(job, "solve.target"))
        return tr_linear_refuse(job, "solve.target",
                                "solve.target would end solve.folds before they are done: expected none");
    if (!tr_job_is(job, "table.filter", "none"))
        return tr_linear_refuse(job, "table.filter",
                                "solve.method descent writes whole weights: expected none");
    if (!tr_job_is(job, "sync.weight", "sum") || o->optimizer != TR_PLAIN_SGD)
        return tr_linear_refuse(job, "solve.method",
                                "sync.weight and solve.optimizer are for solve.method sgd");
    return TR_OK;
}

/* ---- sums over workers ---- */

static int sum(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, values, n);
}

static int greatest(struct tr_linear *m, double *values, size_t n)
{
    return tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, values, n);
}

static bool is_first(const struct tr_linear *m)
{
    return tr_set_rank(m->tr, TR_SET_WORKERS) == 0;
}

/* ---- the rows' losses ---- */

static double curve_of(int type, double slope, double margin, double y)
{
    if (type == TR_LOSS_LINEAR) return 1;
    if (type == TR_LOSS_L2SVM) return y * margin < 1 ? 2 : 0;
    return fabs(slope) * (1 - fabs(slope));
}

/* Where the curvature is all but 0, the model would be of no use far off. */
static const double LEAST_CURVE = 1e-6;

/* Fills the rows' models; the sums are over this worker's rows. */
static void model_rows(const struct tr_linear *m, struct tr_descent_point *at)
{
    const struct tr_linear_descent *d = m->descent;
    at->loss = at->slope = at->curve = 0;
    for (size_t i = 0; i < d->rows.n; i++) {
        double y = (double)d->target[i], margin = d->margin[i], slope = tr_loss_slope(m->type, margin, y);
        double weight = tr_descent_weight(d, i),
               curve = weight * fmax(curve_of(m->type, slope, margin, y), LEAST_CURVE);
        d->model[i] = (struct tr_row_model){.slope = weight * slope, .curve = (float)curve, .move = 0};
        at->loss += weight * tr_loss(m->type, margin, y);
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
               one = tr_loss_slope(m->type, margin, y), weight = tr_descent_weight(d, i);
        sums[0] += weight * one;
        sums[1] += weight * curve_of(m->type, one, margin, y);
    }
    TR_TRY(sum(m, sums, 2));
    *slope = sums[0] + d->bias_l2 * (d->bias + change);
    *curve = sums[1] + d->bias_l2;
    return TR_OK;
}

/* The bias at its minimum: Newton steps, or halves of the interval that it must lie in where they leave that. */
static int minimise_bias(struct tr_linear *m)
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
    d->passes += 1;
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
    TR_TRY(sum(m, sums, 7));
    TR_TRY(greatest(m, most, 2));
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
        double y = (double)d->target[i], a = -tr_loss_slope(m->type, d->margin[i], y);
        if (tr_linear_classifies(m)) a *= y;
        for (int k = 0; k < scales; k++)
            conjugate[k] += tr_descent_weight(d, i) * tr_loss_conjugate(m->type, scale[k] * a, y);
    }
    TR_TRY(sum(m, conjugate, 2));
    for (int k = 0; k < scales; k++) {
        double bias = scale[k] * d->bias, over = k == 1 ? d->at.excess / (2 * d->l2) : 0;
        /* a bias that is not penalised is not quite at its minimum; how far that is from it is a guess */
        double rest = m->o->bias && d->bias_l2 == 0 ? fabs(d->at.slope) * (1 + fabs(d->bias)) : 0;
        d->dual = fmax(d->dual, -conjugate[k] - over - rest - 0.5 * d->bias_l2 * bias * bias);
    }
    return TR_OK;
}

static double gap(const struct tr_linear_descent *d)
{
    return (tr_descent_objective(d) - d->dual) / fmax(fabs(d->dual), 1e-300);
}

static int look(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    model_rows(m, &d->at);
    sum_gradient(d);
    TR_TRY(tr_columns_sum(&d->shared, d->partial, d->gradient));
    TR_TRY(look_at_columns(m));
    d->known = true;
    return bound(m);
}

/* ---- the set of columns that steps change ---- */

struct entry {
    tr_key key;
    double weight, entries;
};

/* Frequent columns first: those that share most rows come into the same blocks. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int i, k;
    (void)frexp(x->entries, &i);
    (void)frexp(y->entries, &k);
    return i != k ? k - i : (x->key > y->key) - (x->key < y->key);
}

static bool matters(const struct tr_linear_descent *d, size_t j)
{
    return d->weight[j] != 0 || fabs(d->gradient[j]) > d->alpha - d->margin_of_zeros;
}

static uint32_t find(const tr_key *keys, size_t n, tr_key key)
{
    size_t first = 0, end = n;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (keys[middle] < key) first = middle + 1;
        else end = middle;
    }
    return first < n && keys[first] == key ? (uint32_t)first : UINT32_MAX;
}

static int grow_set(struct tr_descent_set *s, size_t n)
{
    size_t capacity[5] = {s->capacity, s->capacity, s->capacity, s->capacity, s->capacity};
    TR_TRY(TR_GROW(&s->key, &capacity[0], n));
    TR_TRY(TR_GROW(&s->weight, &capacity[1], n));
    TR_TRY(TR_GROW(&s->next, &capacity[2], n));
    TR_TRY(TR_GROW(&s->column, &capacity[3], n));
    TR_TRY(TR_GROW(&s->slot, &capacity[4], n));
    s->capacity = capacity[4];
    return TR_OK;
}

static void clear_set(struct tr_linear_descent *d)
{
    struct tr_descent_set *s = &d->set;
    for (size_t b = 0; b < s->blocks; b++) tr_block_free(&s->block[b]);
    s->n = s->blocks = 0;
    if (d->working) memset(d->working, 0, d->shared.n * sizeof *d->working);
}

/* More columns, at the end of the set. */
static int add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n)
{
    struct tr_descent_set *s = &d->set;
    size_t first = s->n, blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    TR_TRY(grow_set(s, first + n));
    TR_TRY(TR_GROW(&s->block, &s->block_capacity, s->blocks + blocks));
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i;
        s->key[at] = keys[i];
        s->weight[at] = s->next[at] = weights[i];
        s->column[at] = find(d->key, d->rows.columns, keys[i]);
        s->slot[at] = tr_descent_slot(d, keys[i]);
        if (s->slot[at] != UINT32_MAX) d->working[s->slot[at]] = true;
    }
    memset(s->block + s->blocks, 0, blocks * sizeof *s->block);
    s->n += n;
    s->blocks += blocks;
    return tr_blocks_make(&d->rows, s->column + first, n, s->block + s->blocks - blocks);
}

/* What this worker's columns add to the set, gathered from all. */
static int gather(struct tr_linear *m, struct entry **all, size_t *n)
{
    struct tr_linear_descent *d = m->descent;
    size_t workers = (size_t)tr_set_size(m->tr, TR_SET_WORKERS), own = 0, *bytes;
    struct entry *mine;
    TR_TRY(TR_NEW(&mine, d->n_mine));
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        if (!d->working[j] && matters(d, j))
            mine[own++] = (struct entry){d->shared.first + j, d->weight[j], d->entries[j]};
    }
    own *= sizeof *mine;
    TR_TRY(TR_NEW(&bytes, workers));
    int status = tr_all_gather(m->tr, TR_SET_WORKERS, &own, sizeof own, bytes);
    *n = 0;
    for (size_t r = 0; r < workers; r++) *n += bytes[r] / sizeof *mine;
    if (status == TR_OK) status = TR_NEW(all, *n);
    if (status == TR_OK) status = tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, *all);
    free(bytes);
    free(mine);
    return status;
}

static int add_gathered(struct tr_linear *m)
{
    struct entry *all = NULL;
    tr_key *keys = NULL;
    double *weights = NULL;
    size_t n = 0;
    int status = gather(m, &all, &n);
    if (status == TR_OK) status = TR_NEW(&keys, n);
    if (status == TR_OK) status = TR_NEW(&weights, n);
    if (status == TR_OK) {
        qsort(all, n, sizeof *all, compare_entries);
        for (size_t i = 0; i < n; i++) keys[i] = all[i].key, weights[i] = all[i].weight;
        status = add_columns(m->descent, keys, weights, n);
    }
    free(all);
    free(keys);
    free(weights);
    return status;
}

/* Adds to the set what matters by now. It is made anew where most of what its blocks hold does not matter any more, and where
 * one block will do. */
static int choose(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double sums[3] = {0, 0, 0};
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        sums[0] += matters(d, j) && !d->working[j];
        sums[1] += matters(d, j) ? d->entries[j] : 0;
        sums[2] += d->working[j] ? d->entries[j] : 0;
    }
    TR_TRY(sum(m, sums, 3));
    bool fewer = sums[1] < 0.5 * sums[2], one = (double)d->set.n + sums[0] <= TR_BLOCK_COLUMNS;
    if (sums[0] == 0 && !fewer) return TR_OK;
    if (fewer || one) clear_set(d);
    return add_gathered(m);
}

/* ---- a step ---- */

static int find_products(struct tr_linear *m, struct tr_column_block *block, float *triangle)
{
    const struct tr_linear_descent *d = m->descent;
    tr_block_products(block, d->model, triangle);
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F32, triangle, tr_block_triangle(block)));
    tr_block_set_gram(block, triangle, d->at.curve + d->bias_l2, d->l2);
    if (m->o->bias) return TR_OK;
    for (size_t k = 0; k < block->n; k++) /* it does not move then */
        block->gram[block->n * (block->n + 1) + k] = block->gram[k * (block->n + 1) + block->n] = 0;
    return TR_OK;
}

/* With every step, as the losses' curvature changes; that of squares does not. */
static int find_all_products(struct tr_linear *m)
{
    struct tr_descent_set *s = &m->descent->set;
    float *triangle;
    TR_TRY(TR_NEW(&triangle, (TR_BLOCK_COLUMNS + 1) * (TR_BLOCK_COLUMNS + 2) / 2));
    int status = TR_OK;
    for (size_t b = 0; status == TR_OK && b < s->blocks; b++) {
        size_t n = s->block[b].n;
        if (m->type != TR_LOSS_LINEAR || s->block[b].gram[(n + 1) * (n + 1) - 1] == 0)
            status = find_products(m, &s->block[b], triangle);
    }
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
    TR_TRY(sum(m, gradient, n));
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
    const struct tr_descent_set *s = &d->set;
    double entries = 0;
    for (size_t b = 0; b < s->blocks; b++) entries += (double)s->block[b].begin[s->block[b].rows];
    return entries / fmax(1, (double)d->rows.begin[d->rows.n]);
}

/* Minimises the quadratic model: passes over the blocks until they change little, and conjugate gradients between them where
 * some passes alone do not do. The first steps lead to where the model is another one: they are not worth many passes. */
static int find_step(struct tr_linear *m)
{
    enum { PASSES = 7, ALONE = 2 };
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
        d->passes += tr_descent_pass(d);
        TR_TRY(greatest(m, &most, 1));
        if (s->blocks == 1 || most <= tolerance) break;
        if (pass >= ALONE && pass < passes - 1) TR_TRY(tr_descent_follow_support(m));
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
                       tr_loss(m->type, d->margin[i] + *t * ((double)d->model[i].move + d->bias_move),
                               (double)d->target[i]);
        if (is_first(m)) sums[1] = penalty_change(d, *t);
        if (*t == 1) sums[2] = promised(d);
        TR_TRY(sum(m, sums, 3));
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

static int step(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double t;
    TR_TRY(choose(m));
    d->margin_of_zeros = 0.5 * fmin(d->at.violation, d->alpha);
    TR_TRY(find_all_products(m));
    TR_TRY(find_step(m));
    TR_TRY(search(m, &t));
    take_step(d, t);
    TR_TRY(minimise_bias(m));
    return look(m);
}

/* ---- preparing ---- */

/* The columns that it speaks for, and the bias at the last worker. */
static int open_view(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    bool last = tr_set_rank(m->tr, TR_SET_WORKERS) + 1 == tr_set_size(m->tr, TR_SET_WORKERS);
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, d->n_mine + 1));
    for (size_t i = 0; i < d->n_mine; i++) keys[i] = d->shared.first + d->mine[i];
    keys[d->n_mine] = m->train->columns;
    int status = tr_view_open(m->w, keys, d->n_mine + (m->o->bias && last), TR_VIEW_UPDATE, &d->view);
    free(keys);
    return status;
}

static int open_initial(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t n = d->rows.columns;
    tr_key *keys;
    if (!m->initial) return TR_OK;
    TR_TRY(TR_NEW(&keys, n + 1));
    memcpy(keys, d->key, n * sizeof *keys);
    keys[n] = m->train->columns;
    int status = tr_view_open(m->w, keys, n + m->o->bias, TR_VIEW_READ, &d->initial);
    free(keys);
    return status;
}

/* Of rows that the members of a group all have, each takes a part. */
static void take_part(const tr_worker *me, struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t first = tr_data_part_begin(m->train, me);
    d->rows.n = m->problem.rows.n = tr_data_part_end(m->train, me) - first;
    d->margin = d->all_margins + first;
    d->target = m->target + first;
    m->problem.rows.begin += first;
    d->first_row = first;
    d->row_weight = m->problem.weight ? m->problem.weight + first : NULL;
}

static int prepare(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool bias = tr_linear_has_bias(m, me);
    TR_TRY(tr_linear_set_problem(m, bias, m->train, &m->problem, &m->target));
    TR_TRY(TR_NEW(&d->all_margins, m->problem.rows.n));
    for (size_t i = 0; i < m->problem.rows.n; i++) d->all_margins[i] = NAN; /* other members' */
    take_part(me, m);
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = 0;
    TR_TRY(TR_NEW(&d->rows.begin, d->rows.n + 1));
    TR_TRY(TR_NEW(&d->model, d->rows.n));
    TR_TRY(TR_NEW(&d->probe, d->rows.n));
    TR_TRY(minimise_bias(m));
    model_rows(m, &d->at);
    TR_TRY(tr_descent_open_folds(me, m));
    TR_TRY(tr_descent_find_columns(m));
    TR_TRY(open_view(m));
    TR_TRY(open_initial(m));
    tr_descent_hold_out(m);
    if (d->folds.n > 0) TR_TRY(minimise_bias(m));
    d->alpha = tr_descent_alpha(m, 0);
    if (!m->test) return TR_OK;
    TR_TRY(TR_NEW(&m->margin, TR_LINEAR_MARGINS));
    TR_TRY(tr_linear_open_view(m, me, m->test, m->w, TR_VIEW_READ, &m->test_view));
    return tr_linear_set_problem(m, bias, m->test, &m->test_problem, &m->test_target);
}

/* ---- the stage ---- */

/* What the table lacks of the weights. */
static int push(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const tr_view *view = d->view;
    for (size_t j = 0; j < view->n; j++) {
        double x = j < d->n_mine ? d->weight[d->mine[j]] : d->bias;
        if (m->o->dtype == TR_F32) ((float *)view->delta)[j] = (float)x - ((const float *)view->value)[j];
        else ((double *)view->delta)[j] = x - ((const double *)view->value)[j];
    }
    return tr_view_push(d->view);
}

static bool is_proven(const struct tr_linear *m)
{
    return gap(m->descent) <= m->o->target_gap;
}

/* Another penalty: where the weights stand is known, but not what that means. */
static int next_alpha(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double last = d->alpha;
    d->alpha = tr_descent_alpha(m, ++d->value);
    /* the sequential strong rule (Tibshirani et al. 2012): a gradient is expected to change no more than alpha does */
    d->margin_of_zeros = last - d->alpha;
    d->dual = -INFINITY;
    d->steps = 1;
    d->at.loss = d->at.slope = d->at.curve = 0;
    model_rows(m, &d->at);
    TR_TRY(look_at_columns(m));
    return bound(m);
}

static double element(const struct tr_linear *m, const tr_view *view, size_t i)
{
    return m->o->dtype == TR_F32 ? (double)((const float *)view->value)[i] : ((const double *)view->value)[i];
}

/* model.init: the weights are those of the table; the margins follow. */
static int begin(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_rows *rows = &d->rows;
    TR_TRY(tr_view_pull(d->initial));
    for (size_t j = 0; j < d->n_mine; j++) d->weight[d->mine[j]] = element(m, d->view, j);
    d->bias = m->o->bias ? element(m, d->initial, rows->columns) : 0;
    for (size_t i = 0; i < rows->n; i++) {
        d->margin[i] = d->bias;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++)
            d->margin[i] += element(m, d->initial, rows->column[k]) * (double)rows->value[k];
    }
    tr_view_close(&d->initial);
    return minimise_bias(m);
}

/* The path again from its beginning, on other rows. */
static int next_fold(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (++d->folds.lap == d->folds.n) tr_descent_choose_value(&d->folds, d->values);
    tr_descent_hold_out(m);
    clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t i = 0; i < d->rows.n; i++) d->margin[i] = 0;
    d->bias = d->margin_of_zeros = 0;
    d->dual = -INFINITY;
    d->steps = 0;
    d->value = 0;
    d->alpha = tr_descent_alpha(m, 0);
    TR_TRY(minimise_bias(m));
    return look(m);
}

static bool is_last_lap(const struct tr_linear_descent *d)
{
    return d->folds.lap == d->folds.n;
}

/* Where the path ends, in this lap. */
static size_t last_value(const struct tr_linear_descent *d)
{
    return d->folds.n > 0 && is_last_lap(d) ? d->folds.chosen : d->values - 1;
}

/* One step, at a penalty that is not done. */
static int compute(tr_worker *me, void *state)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_view_pull(d->view));
    if (me->clock == 0 && d->initial) TR_TRY(begin(m));
    if (!d->known) TR_TRY(look(m));
    bool done = d->values > 0 && d->told && is_proven(m);
    if (done && d->value < last_value(d)) TR_TRY(next_alpha(m));
    else if (done && !is_last_lap(d)) TR_TRY(next_fold(m));
    else if (done) tr_descent_choose(m);
    if (!is_proven(m)) TR_TRY(step(m));
    return push(m);
}

/* What the first worker reports beside the class's sums. */
enum { NONZEROS = TR_SUMS - 5, PASSES, DONE, ALPHA, CHOSEN };

static int evaluate(tr_worker *me, void *state, tr_report *report)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    bool done = d->values > 0 && !d->chosen && is_proven(m);
    TR_TRY(tr_view_pull(d->view)); /* what was pushed has arrived */
    if (me->worker == 0) {         /* what only some rows count for, as if it were all */
        tr_linear_report_loss(report, d->chosen ? d->best.objective : tr_descent_objective(d) / d->share);
        tr_linear_report_conjugate(report, d->chosen ? -d->best.dual : -d->dual / d->share);
        report->sum[NONZEROS] = d->chosen ? d->best.nonzeros : d->at.nonzeros;
        report->sum[PASSES] = d->passes;
        report->sum[DONE] = done && is_last_lap(d) ? (double)d->value + 1 : 0;
        report->sum[ALPHA] = d->alpha / (m->problem.n * d->share);
        report->sum[CHOSEN] = d->chosen;
    }
    if (m->test) TR_TRY(tr_linear_report_test(me, m, m->test_view, report));
    d->told = true;
    if (!done) return TR_OK;
    return is_last_lap(d) ? tr_descent_compare(m, report) : tr_descent_judge(m);
}

static int summarize(void *state, const tr_report *report, tr_evaluation *evaluation)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(tr_linear_summarize(m, report, evaluation));
    tr_linear_prove(m, tr_linear_dual_value(m, report), evaluation);
    d->nonzeros = report->sum[NONZEROS];
    d->all_passes = report->sum[PASSES];
    if (d->values == 0) return TR_OK;
    evaluation->stop = report->sum[CHOSEN] > 0;
    size_t done = (size_t)report->sum[DONE];
    if (done > 0) tr_descent_add(m, done - 1, report->sum[ALPHA], d->nonzeros, evaluation);
    return TR_OK;
}

/* ---- checkpoints ---- */

/* Numbers of the set, so that it can be made again. */
static int restore_set(struct tr_linear_descent *d, const int64_t *key, const double *weight,
                       const int64_t *block_columns, size_t blocks)
{
    size_t at = 0;
    clear_set(d);
    memset(d->weight, 0, d->shared.n * sizeof *d->weight);
    for (size_t b = 0; b < blocks; at += (size_t)block_columns[b++])
        TR_TRY(add_columns(d, (const tr_key *)key + at, weight + at, (size_t)block_columns[b]));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.slot[j] != UINT32_MAX) d->weight[d->set.slot[j]] = weight[j];
    d->known = false;
    return TR_OK;
}

/* The set is the same at all workers: the first one's is kept. */
static int keep_set(tr_worker *me, struct tr_linear_descent *d, tr_snapshot *snapshot, int64_t n,
                    int64_t blocks)
{
    const struct tr_descent_set *s = &d->set;
    bool restores = tr_snapshot_restores(snapshot), has = restores ? me->worker >= 0 : me->worker == 0;
    int64_t *key = NULL, *columns = NULL;
    double *weight = NULL;
    size_t rows = has ? (size_t)n : 0, parts = has ? (size_t)blocks : 0;
    int status = TR_NEW(&key, rows);
    if (status == TR_OK) status = TR_NEW(&weight, rows);
    if (status == TR_OK) status = TR_NEW(&columns, parts);
    for (size_t j = 0; status == TR_OK && !restores && j < rows; j++)
        key[j] = (int64_t)s->key[j], weight[j] = s->weight[j];
    for (size_t b = 0; status == TR_OK && !restores && b < parts; b++) columns[b] = (int64_t)s->block[b].n;
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, "set", TR_I64, (uint64_t)n, 1, NULL, 0, rows, key);
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, "set_weight", TR_F64, (uint64_t)n, 1, NULL, 0, rows, weight);
    if (status == TR_OK)
        status =
            tr_snapshot_rows(snapshot, "set_blocks", TR_I64, (uint64_t)blocks, 1, NULL, 0, parts, columns);
    if (status == TR_OK && restores && has) status = restore_set(d, key, weight, columns, parts);
    free(key);
    free(weight);
    free(columns);
    return status;
}

/* Rows that were another member's on the ranks that there were: their margins follow from the weights. */
static int restore_margins(struct tr_linear_descent *d)
{
    double *weight;
    TR_TRY(TR_NEW(&weight, d->rows.columns));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.column[j] != UINT32_MAX) weight[d->set.column[j]] = d->set.weight[j];
    for (size_t i = 0; i < d->rows.n; i++) {
        if (!isnan(d->margin[i])) continue;
        d->margin[i] = d->bias;
        for (uint64_t k = d->rows.begin[i]; k < d->rows.begin[i + 1]; k++)
            d->margin[i] += weight[d->rows.column[k]] * (double)d->rows.value[k];
    }
    free(weight);
    return TR_OK;
}

/* What follows from margins and weights is computed again. */
static int snapshot(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *s = &d->set;
    enum { NUMBERS = 9 };
    double number[NUMBERS] = {(double)s->n, (double)s->blocks,  d->bias,
                              d->dual,      d->margin_of_zeros, (double)d->value,
                              d->passes,    d->chosen,          (double)d->steps};
    double scheduler[2] = {d->nonzeros, d->all_passes};
    TR_TRY(tr_linear_keep_summary(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "reported", TR_F64, 2, scheduler));
    TR_TRY(tr_snapshot_rows(snapshot, "numbers", TR_F64, 1, NUMBERS, NULL, 0, me->worker >= 0, number));
    TR_TRY(keep_set(me, d, snapshot, (int64_t)number[0], (int64_t)number[1]));
    TR_TRY(tr_data_keep(m->train, snapshot, "margin", TR_F64, d->all_margins));
    TR_TRY(tr_descent_keep_path(me, m, snapshot));
    TR_TRY(tr_descent_keep_folds(me, m, snapshot));
    if (!tr_snapshot_restores(snapshot)) return TR_OK;
    d->bias = number[2];
    d->dual = number[3];
    d->margin_of_zeros = number[4];
    d->value = (size_t)number[5];
    d->passes = number[6];
    d->chosen = number[7] > 0;
    d->steps = (int)number[8];
    d->told = true;
    d->nonzeros = scheduler[0];
    d->all_passes = scheduler[1];
    if (me->worker < 0) return TR_OK;
    d->alpha = tr_descent_alpha(m, d->value);
    return restore_margins(d);
}

/* ---- the method ---- */

static int open_descent(struct tr_linear *m)
{
    struct tr_linear_descent *d;
    TR_TRY(tr_agree(m->tr, TR_NEW(&m->descent, 1)));
    d = m->descent;
    if (m->o->l2 == TR_JOB_AUTO) m->l2 = 0;
    d->l2 = m->l2 * m->total_weight;
    d->bias_l2 = m->o->bias && m->o->bias_l2 ? d->l2 : 0;
    d->dual = -INFINITY;
    d->share = 1;
    d->values = m->o->l1 < 0 ? m->o->path : 0;
    m->clocks_per_epoch = 1;
    TR_TRY(tr_agree(m->tr, tr_descent_make_folds(&d->folds, (size_t)m->o->folds, d->values)));
    return tr_agree(m->tr, TR_NEW(&d->done, d->values));
}

static int train(struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    tr_stage train = tr_linear_stage(m);
    train.clocks = m->epochs * (int64_t)(d->values > 0 ? d->values * (d->folds.n + 1) : 1);
    train.evaluate_every = d->values > 0 ? 1 : m->report_every;
    train.epochs_per_clock = 1;
    train.prepare = prepare;
    train.compute = compute;
    train.evaluate = evaluate;
    train.summarize = summarize;
    train.snapshot = snapshot;
    TR_TRY(tr_run(m->tr, &train));
    tr_say(m->tr, "non-zeros:     %.0f of %llu weights, after %.1f passes over the data", d->nonzeros,
           (unsigned long long)m->train->columns, d->all_passes);
    TR_TRY(tr_report_figure(m->tr, "nonzero_weights", d->nonzeros));
    TR_TRY(tr_report_figure(m->tr, "passes", d->all_passes));
    if (d->folds.n > 0) TR_TRY(tr_agree(m->tr, tr_descent_tell_folds(m)));
    bool writes = d->values > 0 && (tr_roles(m->tr) & TR_SCHEDULER);
    return tr_agree(m->tr, writes ? tr_descent_write_path(m) : TR_OK);
}

static void close_descent(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    if (!d) return;
    clear_set(d);
    tr_descent_close_folds(&d->folds);
    tr_columns_close(&d->shared);
    tr_view_close(&d->view);
    tr_view_close(&d->initial);
    void *arrays[] = {
        d->probe,    d->mine,        d->rows.entries, d->rows.begin, d->rows.column, d->rows.value,
        d->key,      d->all_margins, d->model,        d->partial,    d->gradient,    d->weight,
        d->entries,  d->working,     d->set.key,      d->set.weight, d->set.next,    d->set.column,
        d->set.slot, d->set.block,   d->done,         d->best.key,   d->best.weight, d};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    m->descent = NULL;
}

const struct tr_linear_method tr_linear_descent = {.check = check,
                                                   .sparse_rows = true,
                                                   .open = open_descent,
                                                   .train = train,
                                                   .close = close_descent,
                                                   .weighs_rows = true,
                                                   .losses = 1 << TR_LOSS_LOGISTIC | 1 << TR_LOSS_L2SVM |
                                                             1 << TR_LOSS_LINEAR,
                                                   .diverged = "raise model.l1 or model.l2"};

/* Steps of coordinate descent. A step minimises the quadratic model of the loss over the working set, block by block, and then
 * searches the length of the step. */
#include "descent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks of columns ---- */

/* Most entries of the rows belong to columns outside of the blocks. A bitmap of the columns in the blocks finds these quickly,
 * because it stays in the caches. */
int tr_blocks_make(const struct tr_descent_rows *rows, const uint32_t *columns, size_t n,
                   struct tr_column_block *blocks)
{
    size_t n_blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    TR_FREED uint64_t *has = NULL;     /* bit j is set if column j is in a block */
    TR_FREED uint32_t *place = NULL;   /* place[j]: index of column j in `columns` */
    TR_FREED uint64_t *entries = NULL; /* entries[b]: number of entries copied to block b so far */
    /* last[b]: 1 + index of the last row with an entry in block b; 0: no row yet */
    TR_FREED size_t *last = NULL;
    TR_TRY(TR_NEW(&has, rows->columns / 64 + 1));
    TR_TRY(TR_NEW(&place, rows->columns));
    TR_TRY(TR_NEW(&entries, n_blocks));
    TR_TRY(TR_NEW(&last, n_blocks));
    for (size_t b = 0; b < n_blocks; b++) {
        size_t first = b * TR_BLOCK_COLUMNS, end = tr_min_size(first + TR_BLOCK_COLUMNS, n);
        uint64_t most = 0; /* number of entries of the block */
        for (size_t k = first; k < end; k++) {
            uint32_t column = columns[k];
            if (column == UINT32_MAX) continue;
            has[column / 64] |= (uint64_t)1 << column % 64;
            place[column] = (uint32_t)k;
            most += rows->entries[column];
        }
        struct tr_column_block *block = &blocks[b];
        *block = (struct tr_column_block){.n = end - first};
        /* allocates memory for the maximum of rows; unused pages cost nothing */
        TR_TRY(TR_NEW(&block->row, tr_min_size(rows->n, most)));
        TR_TRY(TR_NEW(&block->begin, tr_min_size(rows->n, most) + 1));
        TR_TRY(TR_NEW(&block->column, most));
        TR_TRY(TR_NEW(&block->value, most));
        TR_TRY(TR_NEW(&block->gram, (block->n + 1) * (block->n + 1)));
    }
    for (size_t i = 0; i < rows->n; i++)
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            uint32_t column = rows->column[k];
            if (!(has[column / 64] >> column % 64 & 1)) continue;
            size_t at = place[column], b = at / TR_BLOCK_COLUMNS;
            struct tr_column_block *block = &blocks[b];
            if (last[b] != i + 1) {
                last[b] = i + 1;
                block->begin[block->rows] = entries[b];
                block->row[block->rows++] = (uint32_t)i;
            }
            block->column[entries[b]] = (uint8_t)(at % TR_BLOCK_COLUMNS);
            block->value[entries[b]++] = rows->value[k];
        }
    for (size_t b = 0; b < n_blocks; b++) blocks[b].begin[blocks[b].rows] = entries[b];
    return TR_OK;
}

void tr_block_free(struct tr_column_block *block)
{
    TR_FREE_ALL(block->row, block->begin, block->column, block->value, block->gram);
    *block = (struct tr_column_block){.n = 0};
}

/* The product of a pair of columns is added to one of its two elements of the square, depending on their order in the row. The sum
 * of the two elements is the element of the triangle. */
void tr_block_products(const struct tr_column_block *block, const struct tr_row_model *model, float *triangle)
{
    size_t width = block->n + 1;
    float *square = block->gram, *bias = square + block->n * width, all = 0;
    memset(square, 0, width * width * sizeof *square);
    for (size_t i = 0; i < block->rows; i++) {
        float curve = model[block->row[i]].curve;
        uint64_t first = block->begin[i], n = block->begin[i + 1] - first;
        const uint8_t *column = block->column + first;
        const float *value = block->value + first;
        all += curve;
        for (size_t a = 0; a < n; a++) {
            float x = curve * value[a], *row = square + column[a] * width;
            bias[column[a]] += x;
            for (size_t k = 0; k <= a; k++) row[column[k]] += x * value[k];
        }
    }
    for (size_t a = 0, at = 0; a < width; a++)
        for (size_t k = 0; k <= a; k++)
            triangle[at++] = a == k ? square[a * width + a] : square[a * width + k] + square[k * width + a];
    triangle[tr_block_triangle(block) - 1] = all;
}

void tr_block_set_gram(struct tr_column_block *block, const float *triangle, double all_rows_curve,
                       double ridge)
{
    size_t width = block->n + 1;
    for (size_t a = 0, at = 0; a < width; a++)
        for (size_t b = 0; b <= a; b++)
            block->gram[a * width + b] = block->gram[b * width + a] = triangle[at++];
    for (size_t a = 0; a < block->n; a++) block->gram[a * width + a] += (float)ridge;
    block->gram[width * width - 1] = (float)all_rows_curve;
}

void tr_block_gradient(const struct tr_column_block *block, const struct tr_row_model *model,
                       double *gradient)
{
    memset(gradient, 0, block->n * sizeof *gradient);
    for (size_t i = 0; i < block->rows; i++) {
        const struct tr_row_model *row = &model[block->row[i]];
        double slope = row->slope + (double)row->curve * (double)row->move;
        for (uint64_t k = block->begin[i]; k < block->begin[i + 1]; k++)
            gradient[block->column[k]] += slope * (double)block->value[k];
    }
}

void tr_block_move(const struct tr_column_block *block, const double *change, struct tr_row_model *model)
{
    for (size_t i = 0; i < block->rows; i++) {
        double sum = 0;
        for (uint64_t k = block->begin[i]; k < block->begin[i + 1]; k++)
            sum += change[block->column[k]] * (double)block->value[k];
        model[block->row[i]].move += (float)sum;
    }
}

/* ---- a quadratic model with an l1 penalty ---- */

/* A minimisation over the support: the coordinates that are not 0, and those without a penalty. Coordinate descent finds the
 * support, but is slow for correlated columns. */
struct support {
    size_t n, penalised; /* number of coordinates; the first `penalised` of them have the penalty */
    double alpha, *x, *gradient;
    double *diagonal, *step, *residual, *direction, *product; /* scratch vectors; diagonal: of the Hessian */
    /* Sets product to the product of the Hessian and the vector. */
    int (*multiply)(void *state, const double *vector, double *product);
    void *state;
};

/* Divides memory of 5 n elements among the five scratch vectors. */
static void support_divide(struct support *s, double *memory)
{
    s->diagonal = memory;
    s->step = memory + s->n;
    s->residual = memory + 2 * s->n;
    s->direction = memory + 3 * s->n;
    s->product = memory + 4 * s->n;
}

static bool support_is_free(const struct support *s, size_t j)
{
    return j >= s->penalised || s->x[j] != 0;
}

static double support_dot(const struct support *s, const double *a, const double *b)
{
    double sum = 0;
    for (size_t j = 0; j < s->n; j++) sum += a[j] * b[j];
    return sum;
}

/* Returns Σ r_j² / H_jj, the square of the residual r in the norm of the diagonal preconditioner. */
static double support_norm(const struct support *s)
{
    double sum = 0;
    for (size_t j = 0; j < s->n; j++) sum += s->residual[j] * s->residual[j] / s->diagonal[j];
    return sum;
}

/* Takes a step towards the minimum over the support for the current signs. Conjugate gradients with diagonal preconditioning find
 * the step: at most `most` iterations, or until the square of the residual has fallen by the factor `enough`. The step is halved
 * until it lowers the objective, down to the length `least`; coordinates that would change their sign become 0. On return
 * s->direction is the change of x, and s->product its product with the Hessian. *taken: false if no length lowers the objective; x
 * is then unchanged. */
static int support_minimise(struct support *s, size_t most, double enough, double least, bool *taken)
{
    for (size_t j = 0; j < s->n; j++) {
        double sign = j < s->penalised ? (s->x[j] > 0) - (s->x[j] < 0) : 0;
        s->step[j] = 0;
        s->residual[j] = support_is_free(s, j) ? -(s->gradient[j] + s->alpha * sign) : 0;
        s->direction[j] = s->residual[j] / s->diagonal[j];
    }
    double size = support_norm(s);
    enough *= size;
    for (size_t i = 0; i < most && size > enough; i++) {
        TR_TRY(s->multiply(s->state, s->direction, s->product));
        double curve = support_dot(s, s->direction, s->product), last = size;
        if (!(curve > 0)) break;
        for (size_t j = 0; j < s->n; j++) {
            s->step[j] += last / curve * s->direction[j];
            s->residual[j] = support_is_free(s, j) ? s->residual[j] - last / curve * s->product[j] : 0;
        }
        size = support_norm(s);
        for (size_t j = 0; j < s->n; j++)
            s->direction[j] = s->residual[j] / s->diagonal[j] + size / last * s->direction[j];
    }
    double *change = s->direction;
    *taken = false;
    for (double t = 1; t > least && !*taken; t /= 2) {
        double absolutes = 0;
        for (size_t j = 0; j < s->n; j++) {
            double x = s->x[j] + t * s->step[j];
            if (j < s->penalised && x * s->x[j] < 0) x = 0;
            if (j < s->penalised) absolutes += fabs(x) - fabs(s->x[j]);
            change[j] = x - s->x[j];
        }
        TR_TRY(s->multiply(s->state, change, s->product));
        double first = support_dot(s, s->gradient, change) + s->alpha * absolutes;
        *taken = first + 0.5 * support_dot(s, change, s->product) < 0;
    }
    for (size_t j = 0; *taken && j < s->n; j++) s->x[j] += change[j], s->gradient[j] += s->product[j];
    return TR_OK;
}

static int quadratic_multiply(void *state, const double *vector, double *product)
{
    const struct tr_quadratic *q = state;
    memset(product, 0, q->n * sizeof *product);
    for (size_t j = 0; j < q->n; j++) {
        const float *row = q->gram + j * q->n;
        if (vector[j] == 0) continue;
        for (size_t k = 0; k < q->n; k++) product[k] += vector[j] * (double)row[k];
    }
    return TR_OK;
}

double tr_quadratic_minimise(struct tr_quadratic *q, double tolerance, int sweeps)
{
    enum { SWEEPS_BETWEEN = 4 };
    double first = 0;
    bool taken;
    struct support s = {.n = q->n,
                        .penalised = q->penalised,
                        .alpha = q->alpha,
                        .x = q->x,
                        .gradient = q->gradient,
                        .multiply = quadratic_multiply,
                        .state = q};
    support_divide(&s, q->work);
    for (size_t j = 0; j < q->n; j++) s.diagonal[j] = (double)q->gram[j * q->n + j];
    for (int i = 0; i < sweeps; i++) {
        double most = 0; /* largest change of a coordinate, times its curvature */
        for (size_t j = 0; j < q->n; j++) {
            double curve = s.diagonal[j], old = q->x[j], x = old - q->gradient[j] / curve;
            if (j < q->penalised) x = tr_soft_threshold(x, q->alpha / curve);
            if (x == old) continue;
            most = fmax(most, fabs(x - old) * curve);
            const float *row = q->gram + j * q->n;
            double change = x - old, *gradient = q->gradient;
            q->x[j] = x;
            for (size_t k = 0; k < q->n; k++) gradient[k] += change * (double)row[k];
        }
        if (i == 0) first = most;
        if (most <= tolerance) break;
        if (i % SWEEPS_BETWEEN == SWEEPS_BETWEEN - 1) (void)support_minimise(&s, q->n, 1e-10, 1e-3, &taken);
    }
    return first;
}

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

/* Lower bound of the curvature of a row in the model. With a smaller curvature the model would predict a much too long step. */
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

/* Takes Newton steps. If a step leaves the interval low .. high, which contains the minimum, bisection replaces the step. */
int tr_descent_minimise_bias(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double change = 0, low = -INFINITY, high = INFINITY;
    if (!m->o->bias) return TR_OK;
    for (int i = 0; i < 60; i++) {
        double sums[2] = {0, 0}; /* Σ slope and Σ curvature over all rows */
        for (size_t k = 0; k < d->rows.n; k++) {
            double y = (double)d->target[k], margin = d->margin[k] + change,
                   one = tr_loss_slope(m->loss, margin, y, 0), weight = tr_descent_weight(d, k);
            sums[0] += weight * one;
            sums[1] += weight * tr_loss_curvature(m->loss, margin, y, one, 0);
        }
        TR_TRY(descent_sum(m, sums, 2));
        double slope = sums[0] + d->bias_l2 * (d->bias + change), curve = sums[1] + d->bias_l2;
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

static int point_look_at_columns(struct tr_linear *m)
{
    const struct tr_linear_descent *d = m->descent;
    struct tr_descent_point *at = &m->descent->at;
    at->drift = d->drift;
    at->absolutes = at->squares = at->nonzeros = at->excess = at->greatest = at->violation = 0;
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        double w = d->weight[j], size = fabs(d->gradient[j]), over = fmax(0, size - d->alpha);
        double smooth = d->gradient[j] + d->l2 * w; /* gradient of the objective without alpha |w|₁ */
        double violation =
            w != 0 ? fabs(smooth + (w > 0 ? d->alpha : -d->alpha)) : fmax(0, fabs(smooth) - d->alpha);
        at->absolutes += fabs(w);
        at->squares += w * w;
        at->nonzeros += w != 0;
        at->excess += over * over;
        at->greatest = fmax(at->greatest, size);
        at->violation = fmax(at->violation, violation);
    }
    TR_TRY(descent_sum(m, &at->loss, offsetof(struct tr_descent_point, greatest) / sizeof(double)));
    return descent_max(m, &at->greatest, 2);
}

double tr_descent_objective(const struct tr_linear_descent *d)
{
    const struct tr_descent_point *at = &d->at;
    return at->loss + d->alpha * at->absolutes + 0.5 * d->l2 * at->squares +
           0.5 * d->bias_l2 * d->bias * d->bias;
}

/* Updates the dual value from the slopes multiplied by two scales: the largest scale that is feasible without l2, and 1, which is
 * feasible with l2 only. Constraints of removed columns hold if the loss is at most that of zeros (screen_columns()). */
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
            conjugate[k] += tr_descent_weight(d, i) *
                            (m->loss->conjugate(scale[k] * a, y) -
                             scale[k] * slope * d->project[slope > 0] * tr_descent_offset(d, i));
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
    TR_FREED double *weight = NULL;
    TR_TRY(TR_NEW(&weight, d->rows.columns));
    for (size_t j = 0; j < d->set.n; j++)
        if (d->set.column[j] != UINT32_MAX) weight[d->set.column[j]] = d->set.weight[j];
    for (size_t i = 0; i < d->rows.n; i++) {
        if (!all && !isnan(d->margin[i])) continue;
        d->margin[i] = d->bias + tr_descent_offset(d, i);
        for (uint64_t k = d->rows.begin[i]; k < d->rows.begin[i + 1]; k++)
            d->margin[i] += weight[d->rows.column[k]] * (double)d->rows.value[k];
    }
    return TR_OK;
}

int tr_descent_look(struct tr_linear *m, bool moved)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_rows *rows = &d->rows;
    for (;; moved = true) {
        TR_TRY(tr_descent_model_rows(m));
        if (moved) {
            TR_TRY(tr_turn_begin(m->tr, "gradient"));
            memset(d->partial, 0, rows->columns * sizeof *d->partial);
            for (size_t i = 0; i < rows->n; i++) {
                double slope = d->model[i].slope;
                for (uint64_t k = rows->begin[i]; slope != 0 && k < rows->begin[i + 1]; k++)
                    d->partial[rows->column[k]] += slope * (double)rows->value[k];
            }
            TR_TRY(tr_turn_end(m->tr, TR_OK));
            TR_TRY(tr_columns_sum(&d->shared, d->partial, d->gradient));
        }
        TR_TRY(point_look_at_columns(m));
        TR_TRY(point_find_dual(m));
        d->known = true;
        if (!moved || d->at.drift <= 0.1 * tr_descent_distance(d)) return TR_OK;
        d->drift = 0;
        d->passes += 1;
        TR_TRY(tr_descent_find_margins(d, true));
        TR_TRY(tr_descent_minimise_bias(m));
    }
}

/* ---- the working set ---- */

struct set_entry {
    tr_key key;
    double weight, entries;
};

/* Sorts columns by the logarithm of their frequency, so that columns with many common rows are in the same block. */
static int set_compare_entries(const void *a, const void *b)
{
    const struct set_entry *x = a, *y = b;
    int i, k;
    (void)frexp(x->entries, &i);
    (void)frexp(y->entries, &k);
    return i != k ? k - i : (x->key > y->key) - (x->key < y->key);
}

/* Returns whether the column of slot j belongs to the working set. */
static bool set_matters(const struct tr_linear_descent *d, size_t j)
{
    return d->weight[j] != 0 || fabs(d->gradient[j]) > d->alpha - d->margin_of_zeros;
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
        size_t low = 0, high = d->rows.columns; /* finds the index of the key by binary search */
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (d->key[middle] < keys[i]) low = middle + 1;
            else high = middle;
        }
        s->column[at] = low < d->rows.columns && d->key[low] == keys[i] ? (uint32_t)low : UINT32_MAX;
        s->slot[at] = tr_descent_slot(d, keys[i]);
        if (s->slot[at] != UINT32_MAX) d->working[s->slot[at]] = true;
    }
    memset(s->block + s->blocks, 0, blocks * sizeof *s->block);
    s->n += n;
    s->blocks += blocks;
    return tr_blocks_make(&d->rows, s->column + first, n, s->block + s->blocks - blocks);
}

/* Adds the columns that belong to the set (set_matters()) and are not in it. Empties the set first if many of its columns no longer
 * belong to it, or if the new set fits into one block. */
static int set_choose_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    size_t workers = (size_t)tr_set_size(m->tr, TR_SET_WORKERS), own = 0, n = 0;
    /* Sums over the workers. [0]: number of columns to add. [1]: entries of the columns that belong to the set now (set_matters()).
     * [2]: entries of the columns that are in the set. */
    double sums[3] = {0};
    TR_FREED struct set_entry *mine = NULL;
    TR_FREED struct set_entry *all = NULL;
    TR_FREED size_t *bytes = NULL;
    TR_FREED tr_key *keys = NULL;
    TR_FREED double *weights = NULL;
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
    TR_TRY(TR_NEW(&mine, d->n_mine));
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        if (!d->working[j] && set_matters(d, j))
            mine[own++] = (struct set_entry){d->shared.first + j, d->weight[j], d->entries[j]};
    }
    own *= sizeof *mine;
    TR_TRY(TR_NEW(&bytes, workers));
    TR_TRY(tr_all_gather(m->tr, TR_SET_WORKERS, &own, sizeof own, bytes));
    for (size_t r = 0; r < workers; r++) n += bytes[r] / sizeof *mine;
    TR_TRY(TR_NEW(&all, n));
    TR_TRY(tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, all));
    TR_TRY(TR_NEW(&keys, n));
    TR_TRY(TR_NEW(&weights, n));
    qsort(all, n, sizeof *all, set_compare_entries);
    for (size_t i = 0; i < n; i++) keys[i] = all[i].key, weights[i] = all[i].weight;
    return tr_descent_add_columns(d, keys, weights, n);
}

/* Returns the cost of a pass over the blocks first .. end - 1 as a fraction of a pass over all entries of the data. */
static double step_pass_of_blocks(const struct tr_linear_descent *d, size_t first, size_t end)
{
    double entries = 0;
    for (size_t b = first; b < end; b++) entries += (double)d->set.block[b].begin[d->set.block[b].rows];
    return entries / fmax(1, (double)d->rows.begin[d->rows.n]);
}

/* ---- conjugate gradients over the non-zero columns of all blocks ----
 *
 * Conjugate gradients run between passes over the blocks, because passes converge slowly if columns of different blocks are
 * correlated, and need one collective call per block. Vectors have one element per column of the set; the last element belongs to
 * the bias. */

/* Sums the product over the workers, and adds the terms of l2 and of the bias. */
static int set_complete_product(struct tr_linear *m, const double *vector, double *product)
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

/* Sets product = (Hessian of the model) × vector, and d->probe[i].move to the product of row i and the vector. */
static int set_multiply(void *state, const double *vector, double *product)
{
    struct tr_linear *m = state;
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    size_t at = 0;
    for (size_t i = 0; i < d->rows.n; i++) d->probe[i].move = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_move(&set->block[b], vector + at, d->probe);
    at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n)
        tr_block_gradient(&set->block[b], d->probe, product + at);
    d->passes += step_pass_of_blocks(d, 0, set->blocks);
    return set_complete_product(m, vector, product);
}

/* Minimises the model over the non-zero columns of the set and the bias by support_minimise(). */
static int set_follow_support(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *set = &d->set;
    struct support s = {
        .n = set->n + 1, .penalised = set->n, .alpha = d->alpha, .multiply = set_multiply, .state = m};
    TR_FREED double *vectors = NULL;
    bool taken;
    TR_TRY(TR_NEW(&vectors, 7 * s.n));
    support_divide(&s, vectors);
    s.gradient = vectors + 5 * s.n;
    s.x = vectors + 6 * s.n;
    for (size_t i = 0; i < d->rows.n; i++)
        d->probe[i] = (struct tr_row_model){.slope = 0, .curve = d->model[i].curve, .move = 0};
    size_t at = 0;
    for (size_t b = 0; b < set->blocks; at += set->block[b++].n) {
        tr_block_gradient(&set->block[b], d->model, s.gradient + at);
        for (size_t k = 0; k < set->block[b].n; k++)
            s.diagonal[at + k] = (double)set->block[b].gram[k * (set->block[b].n + 2)];
    }
    s.diagonal[set->n] = d->at.curve + d->bias_l2;
    memcpy(s.x, set->next, set->n * sizeof *s.x);
    s.x[set->n] = d->bias_move;
    TR_TRY(set_complete_product(m, s.x, s.gradient));
    s.gradient[set->n] = d->bias_gradient;
    s.x[set->n] = 0; /* the element of the bias is its change from bias_move */
    d->passes += 0.5 * step_pass_of_blocks(d, 0, set->blocks);
    TR_TRY(support_minimise(&s, 15, 1e-3, 0.1, &taken));
    if (!taken) return TR_OK;
    memcpy(set->next, s.x, set->n * sizeof *s.x);
    for (size_t i = 0; i < d->rows.n; i++) d->model[i].move += d->probe[i].move;
    d->bias_move += s.x[set->n];
    d->bias_gradient += s.product[set->n];
    return TR_OK;
}

/* ---- a step ---- */

/* Returns whether a step must compute the Gram matrix of a block. With a quadratic loss, whose curvature is constant, only once. */
static bool step_needs_products(const struct tr_linear *m, const struct tr_column_block *block)
{
    return !m->loss->quadratic || block->gram[(block->n + 1) * (block->n + 1) - 1] == 0;
}

/* Minimises the model over a block. Raises *most to the largest change of an element of the gradient. */
static int step_block(struct tr_linear *m, const struct tr_column_block *block, double *next,
                      double tolerance, double *most)
{
    enum { ROOM = TR_BLOCK_COLUMNS + 1 };
    struct tr_linear_descent *d = m->descent;
    double x[ROOM], gradient[ROOM], work[5 * ROOM];
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

/* Minimises the quadratic model by passes over the blocks, with conjugate gradients in between, until the changes are small. The
 * first steps make fewer passes, because their model is inaccurate. */
static int step_minimise_model(struct tr_linear *m)
{
    /* maximum number of passes; passes before the first conjugate gradients; maximum cost of these, in passes */
    enum { PASSES = 7, ALONE = 2, SUPPORT = 17 };
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
        double one = step_pass_of_blocks(d, 0, s->blocks);
        d->passes += one;
        double all[] = {most, d->passes + one, d->passes + (SUPPORT + 1) * one};
        TR_TRY(descent_max(m, all, 3));
        if (s->blocks == 1 || all[0] <= tolerance || all[1] > d->most_passes) break;
        if (pass >= ALONE && pass < passes - 1 && all[2] <= d->most_passes) TR_TRY(set_follow_support(m));
    }
    return TR_OK;
}

/* Searches the length of a step by Armijo's rule for proximal steps (Tseng and Yun 2009). *t: the largest length among 1, 1/2, 1/4
 * and so on that decreases the objective enough; 0 if rounding prevents any decrease. */
static int step_search(struct tr_linear *m, double *t)
{
    const struct tr_linear_descent *d = m->descent;
    const struct tr_descent_set *s = &d->set;
    double rounding = 1e-13 * tr_descent_objective(d), promise = 0;
    for (*t = 1; *t > 1e-4; *t /= 2) {
        double sums[3] = {0}; /* loss at length t; change of the penalties; first-order change of the loss */
        for (size_t i = 0; i < d->rows.n; i++) {
            double move = (double)d->model[i].move + d->bias_move;
            sums[0] += tr_descent_weight(d, i) *
                       tr_loss_value(m->loss, d->margin[i] + *t * move, (double)d->target[i], 0);
            if (*t == 1) sums[2] += d->model[i].slope * move;
        }
        if (tr_set_rank(m->tr, TR_SET_WORKERS) == 0) {
            double absolutes = 0, squares = 0, bias = d->bias + *t * d->bias_move;
            for (size_t j = 0; j < s->n; j++) {
                double old = s->weight[j], x = old + *t * (s->next[j] - old);
                absolutes += fabs(x) - fabs(old);
                squares += x * x - old * old;
            }
            sums[1] = d->alpha * absolutes + 0.5 * d->l2 * squares +
                      0.5 * d->bias_l2 * (bias * bias - d->bias * d->bias);
        }
        TR_TRY(descent_sum(m, sums, 3));
        if (*t == 1) promise = sums[2] + sums[1];
        if (sums[0] - d->at.loss + sums[1] <= 0.01 * *t * promise + rounding) return TR_OK;
    }
    *t = 0;
    return TR_OK;
}

int tr_descent_step(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_descent_set *s = &d->set;
    double t, products = 0;
    TR_TRY(set_choose_columns(m));
    for (size_t b = 0; b < s->blocks; b++)
        if (step_needs_products(m, &s->block[b])) products += step_pass_of_blocks(d, b, b + 1);
    d->lacking = d->passes + 1 + products + step_pass_of_blocks(d, 0, s->blocks);
    TR_TRY(descent_max(m, &d->lacking, 1));
    if (d->lacking > d->most_passes) return TR_OK;
    d->lacking = 0;
    d->passes += 1 + products; /* the gradient at the current weights took one pass */
    d->margin_of_zeros = 0.5 * fmin(d->at.violation, d->alpha);
    TR_FREED float *triangle = NULL;
    TR_TRY(TR_NEW(&triangle, (TR_BLOCK_COLUMNS + 1) * (TR_BLOCK_COLUMNS + 2) / 2));
    for (size_t b = 0; b < s->blocks; b++) {
        struct tr_column_block *block = &s->block[b];
        if (!step_needs_products(m, block)) continue;
        TR_TRY(tr_turn_begin(m->tr, "gradient"));
        tr_block_products(block, d->model, triangle);
        TR_TRY(tr_turn_end(m->tr, TR_OK));
        TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F32, triangle, tr_block_triangle(block)));
        tr_block_set_gram(block, triangle, d->at.curve + d->bias_l2, d->l2);
        /* without a bias, the element of the bias must not change */
        for (size_t k = 0; k < block->n && !m->o->bias; k++)
            block->gram[block->n * (block->n + 1) + k] = block->gram[k * (block->n + 1) + block->n] = 0;
    }
    TR_TRY(step_minimise_model(m));
    TR_TRY(step_search(m, &t));
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
    TR_TRY(tr_descent_minimise_bias(m));
    return tr_descent_look(m, true);
}

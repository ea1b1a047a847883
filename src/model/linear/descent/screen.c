/* Which columns can ever leave 0: most rare ones cannot, and rows need not have them. */
#include <math.h>
#include <stdlib.h>

#include "descent.h"

/* What bounds a column's gradient wherever the objective is no higher than at the beginning: Σ |x|, Σ x², and the gradient
 * there. The first is then the place of what becomes of the column. And how many rows have it. */
enum { ABSOLUTES, SQUARES, GRADIENT, ENTRIES, SUMS };
enum { STAYS = -1, LEAVES };

/* Columns come in no order: their sums are fetched before they are needed. */
enum { AHEAD = 24 };

static void add_up_columns(const struct tr_linear *m, double *sums)
{
    const tr_batch *rows = &m->problem.rows;
    uint64_t end = rows->begin[rows->n];
    for (size_t i = 0; i < rows->n; i++) {
        double weight = tr_descent_weight(m->descent, i), slope = m->descent->model[i].slope;
        for (uint64_t k = rows->begin[i]; k < rows->begin[i + 1]; k++) {
            double x = rows->value ? (double)rows->value[k] : 1, *sum = sums + (size_t)rows->column[k] * SUMS;
            if (k + AHEAD < end) __builtin_prefetch(sums + (size_t)rows->column[k + AHEAD] * SUMS, 1);
            sum[ABSOLUTES] += weight * fabs(x);
            sum[SQUARES] += weight * x * x;
            sum[GRADIENT] += slope * x;
            sum[ENTRIES] += 1;
        }
    }
}

/* Whether the weight of a column stays 0 for this alpha: |Σ x φ'| ≤ Σ |x| where |φ'| ≤ 1, and ≤ |x| |φ'| with |φ'|² ≤ 2 L Σ φ,
 * as φ ≥ 0 and φ'' ≤ L. */
static bool stays(const struct tr_linear *m, const double *sum, double alpha)
{
    double limit = sqrt(sum[SQUARES] * 2 * m->loss->most_curvature * m->descent->at.loss);
    if (m->loss->bounded_slope) limit = fmin(limit, sum[ABSOLUTES]);
    return limit * (1 + 1e-6) <= alpha;
}

/* Sums over the workers, at those who have vectors of the columns; they find which ones stay 0. Where these have few entries
 * of all, they are not worth copying rows without them: all leave. */
static int screen(struct tr_linear *m, struct tr_columns *columns, double *local, double *own)
{
    const double few = 0.2;
    struct tr_linear_descent *d = m->descent;
    double most = 0, entries[2] = {0, 0}; /* of columns that leave, and that stay */
    add_up_columns(m, local);
    for (size_t j = 0; j < columns->local; j++) d->rows.entries[j] = (uint32_t)local[j * SUMS + ENTRIES];
    TR_TRY(tr_columns_sum(columns, local, own));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_SUM, TR_F64, &d->at.loss, 1));
    for (size_t j = 0; j < columns->n; j++) most = fmax(most, fabs(own[j * SUMS + GRADIENT]));
    TR_TRY(tr_all_reduce(m->tr, TR_SET_WORKERS, TR_MAX, TR_F64, &most, 1));
    d->first_alpha = most;
    double least = tr_descent_alpha(m, d->values > 0 ? d->values - 1 : 0), share = 1;
    for (size_t k = 0; k < d->folds.n; k++) share = fmin(share, d->folds.share[k]);
    for (size_t j = 0; j < columns->n; j++) {
        double *sum = own + j * SUMS;
        bool is_zero = stays(m, sum, share * least);
        entries[is_zero] += sum[ENTRIES];
        sum[0] = is_zero ? STAYS : LEAVES;
    }
    TR_TRY(tr_columns_sum_parts(columns, entries, 2));
    bool all = entries[1] < few * entries[0];
    for (size_t j = 0; all && j < columns->n; j++) own[j * SUMS] = LEAVES;
    return tr_columns_fetch(columns, own, local);
}

/* Takes out those that stay 0, and numbers the others. */
static void number_columns(struct tr_linear *m, const double *local, uint32_t *number)
{
    struct tr_descent_rows *to = &m->descent->rows;
    for (size_t j = 0; j < m->train->n_keys; j++) {
        number[j] = UINT32_MAX;
        if (local[j * SUMS] < 0) continue;
        m->descent->key[to->columns] = m->train->keys[j];
        to->entries[to->columns] = to->entries[j];
        number[j] = (uint32_t)to->columns++;
    }
}

/* The rows without the columns that stay 0. */
static int copy_rows(struct tr_linear *m, const uint32_t *number)
{
    const tr_batch *from = &m->problem.rows;
    struct tr_descent_rows *to = &m->descent->rows;
    uint64_t n = 0;
    for (size_t j = 0; j < to->columns; j++) n += to->entries[j];
    TR_TRY(TR_NEW(&to->own_column, n));
    TR_TRY(TR_NEW(&to->own_value, n));
    n = 0;
    for (size_t i = 0; i < from->n; i++) {
        for (uint64_t k = from->begin[i]; k < from->begin[i + 1]; k++) {
            uint32_t j = number[from->column[k]];
            if (j == UINT32_MAX) continue;
            to->own_column[n] = j;
            to->own_value[n++] = from->value ? from->value[k] : 1;
        }
        to->begin[i + 1] = n;
    }
    to->column = to->own_column;
    to->value = to->own_value;
    return TR_OK;
}

/* Where all columns may leave, the rows are those of the data. */
static int take_rows(struct tr_linear *m)
{
    const tr_batch *from = &m->problem.rows;
    struct tr_descent_rows *to = &m->descent->rows;
    uint64_t first = from->begin[0], n = from->begin[from->n] - first;
    for (size_t i = 0; i <= from->n; i++) to->begin[i] = from->begin[i] - first;
    to->column = from->column ? from->column + first : NULL;
    to->value = from->value ? from->value + first : NULL;
    if (from->value) return TR_OK;
    TR_TRY(TR_NEW(&to->own_value, n));
    for (uint64_t k = 0; k < n; k++) to->own_value[k] = 1;
    to->value = to->own_value;
    return TR_OK;
}

static int open_rows(struct tr_linear *m, const double *local)
{
    uint32_t *number;
    TR_TRY(TR_NEW(&number, m->train->n_keys));
    number_columns(m, local, number);
    int status = m->descent->rows.columns == m->train->n_keys ? take_rows(m) : copy_rows(m, number);
    free(number);
    return status;
}

/* A worker speaks for the columns of its vectors; where all have the same ones, for a part of them. */
static int list_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    uint64_t n = d->shared.n, rank = (uint64_t)tr_set_rank(m->tr, TR_SET_WORKERS),
             workers = (uint64_t)tr_set_size(m->tr, TR_SET_WORKERS);
    uint64_t first = d->shared.whole ? n * rank / workers : 0,
             end = d->shared.whole ? n * (rank + 1) / workers : n;
    for (uint64_t j = first; j < end; j++) d->n_mine += d->entries[j] > 0;
    TR_TRY(TR_NEW(&d->mine, d->n_mine));
    d->n_mine = 0;
    for (uint64_t j = first; j < end; j++)
        if (d->entries[j] > 0) d->mine[d->n_mine++] = (uint32_t)j;
    return TR_OK;
}

static int open_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    struct tr_columns *c = &d->shared;
    TR_TRY(tr_columns_open(c, m->tr, d->key, d->rows.columns, m->train->columns, 1));
    TR_TRY(TR_NEW(&d->partial, d->rows.columns));
    TR_TRY(TR_NEW(&d->gradient, c->n));
    TR_TRY(TR_NEW(&d->weight, c->n));
    TR_TRY(TR_NEW(&d->entries, c->n));
    TR_TRY(TR_NEW(&d->working, c->n));
    for (size_t j = 0; j < d->rows.columns; j++) d->partial[j] = (double)d->rows.entries[j];
    TR_TRY(tr_columns_sum(c, d->partial, d->entries));
    return list_columns(m);
}

int tr_descent_find_columns(struct tr_linear *m)
{
    struct tr_columns columns = {.n = 0};
    double *local = NULL, *own = NULL;
    struct tr_linear_descent *d = m->descent;
    TR_TRY(TR_NEW(&d->key, m->train->n_keys));
    TR_TRY(TR_NEW(&d->rows.entries, m->train->n_keys));
    int status = tr_columns_open(&columns, m->tr, m->train->keys, m->train->n_keys, m->train->columns, SUMS);
    if (status == TR_OK) status = TR_NEW(&local, columns.local * SUMS);
    if (status == TR_OK) status = TR_NEW(&own, columns.n * SUMS);
    if (status == TR_OK) status = screen(m, &columns, local, own);
    if (status == TR_OK) status = open_rows(m, local);
    free(local);
    free(own);
    tr_columns_close(&columns);
    return status == TR_OK ? open_columns(m) : status;
}

#define _GNU_SOURCE /* for barriers in cblas.h */
#include "newton.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one output ---- */

static double rows_dot(const struct tr_data_row *x, const double *restrict w)
{
    const uint32_t *restrict column = x->column;
    const float *restrict value = x->value;
    size_t k = 0;
    double s[4] = {0};
    if (!column) return tr_dense_dot_f64(x->n, value, w);
    if (value) {
        for (; k + 4 <= x->n; k += 4)
            for (size_t u = 0; u < 4; u++) s[u] += (double)value[k + u] * w[column[k + u]];
        for (; k < x->n; k++) s[0] += (double)value[k] * w[column[k]];
    } else {
        for (; k + 4 <= x->n; k += 4)
            for (size_t u = 0; u < 4; u++) s[u] += w[column[k + u]];
        for (; k < x->n; k++) s[0] += w[column[k]];
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static void rows_times_single(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    double bias = p->bias ? w[p->keys] : 0;
    for (size_t i = 0; i < n; i++) {
        struct tr_data_row x = tr_row_of(p, first + i);
        z[i] = bias + rows_dot(&x, w);
    }
}

static void rows_add_single(const struct tr_problem *p, size_t i, double c, double *restrict w)
{
    struct tr_data_row x = tr_row_of(p, i);
    const uint32_t *restrict column = x.column;
    const float *restrict value = x.value;
    if (p->bias) w[p->keys] += c;
    if (!column) tr_dense_add_f64(x.n, c, value, w);
    else if (value)
        for (size_t k = 0; k < x.n; k++) w[column[k]] += c * (double)value[k];
    else
        for (size_t k = 0; k < x.n; k++) w[column[k]] += c;
}

/* ---- any number of outputs ---- */

static void rows_axpy(size_t n, double a, const double *restrict x, double *restrict y)
{
    for (size_t k = 0; k < n; k++) y[k] += a * x[k];
}

static void rows_times(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    size_t outputs = p->outputs;
    if (outputs == 1) {
        rows_times_single(p, first, n, w, z);
        return;
    }
    if (p->rows.dense) {
        tr_dense_margins_f64(p, first, n, w, z);
        return;
    }
    memset(z, 0, n * outputs * sizeof *z);
    for (size_t i = 0; i < n; i++, z += outputs) {
        struct tr_data_row x = tr_row_of(p, first + i);
        if (p->bias) rows_axpy(outputs, 1, w + p->keys * outputs, z);
        for (size_t k = 0; k < x.n; k++)
            rows_axpy(outputs, (double)tr_row_value(&x, k), w + tr_row_key(&x, k) * outputs, z);
    }
}

void tr_newton_times(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        rows_times(p, first + at, some, w, z + at * p->outputs);
}

static void rows_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    size_t outputs = p->outputs;
    if (p->rows.dense && outputs > 1) {
        tr_dense_add_rows_f64(p, first, n, 1, c, w);
        return;
    }
    for (size_t i = 0; i < n; i++, c += outputs) {
        if (outputs == 1) {
            if (*c != 0) rows_add_single(p, first + i, *c, w);
            continue;
        }
        struct tr_data_row x = tr_row_of(p, first + i);
        if (p->bias) rows_axpy(outputs, 1, c, w + p->keys * outputs);
        for (size_t k = 0; k < x.n; k++)
            rows_axpy(outputs, (double)tr_row_value(&x, k), c, w + tr_row_key(&x, k) * outputs);
    }
}

void tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        rows_add(p, first + at, some, c + at * p->outputs, w);
}

static void rows_add_squares(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    size_t outputs = p->outputs;
    for (size_t i = 0; i < n; i++, c += outputs) {
        struct tr_data_row x = tr_row_of(p, first + i);
        if (p->bias) rows_axpy(outputs, 1, c, w + p->keys * outputs);
        for (size_t k = 0; k < x.n; k++) {
            double value = (double)tr_row_value(&x, k);
            rows_axpy(outputs, value * value, c, w + tr_row_key(&x, k) * outputs);
        }
    }
}

void tr_newton_add_squares(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        rows_add_squares(p, first + at, some, c + at * p->outputs, w);
}

/* ---- X' C X ---- */

/* Rows per tile. */
enum { TILE = 128 };

/* Nanoseconds of a product of two non-zeros that is added to H; of a product in BLIS; of a non-zero in X' C X v. */
static const double one_by_one = 0.8, in_blis = 0.016, in_product = 2;

static double outer_time(double nonzeros, double columns)
{
    return fmin(one_by_one * nonzeros * nonzeros / 2, in_blis * columns * columns);
}

double tr_newton_outer_cost(double nonzeros, double columns)
{
    return outer_time(nonzeros, columns) / (in_product * nonzeros);
}

/* Columns and values of a row, with the bias. */
struct row {
    size_t n;
    uint32_t *column;
    double *value;
};

static void list_row(const struct tr_problem *p, size_t i, const tr_key *place, struct row *row)
{
    struct tr_data_row x = tr_row_of(p, i);
    row->n = x.n;
    for (size_t k = 0; k < x.n; k++) {
        row->column[k] = (uint32_t)place[tr_row_key(&x, k)];
        row->value[k] = (double)tr_row_value(&x, k);
    }
    if (!p->bias) return;
    row->column[row->n] = (uint32_t)place[p->keys];
    row->value[row->n++] = 1;
}

static void add_row(const struct row *row, double c, size_t columns, double *h)
{
    const uint32_t *restrict column = row->column;
    const double *restrict value = row->value;
    for (size_t a = 0; a < row->n; a++) {
        double *restrict to = h + column[a] * columns, by = c * value[a];
        for (size_t b = 0; b <= a; b++) to[column[b]] += by * value[b];
    }
}

static int rows_add_one_by_one(const struct tr_problem *p, size_t first, size_t n, const double *c,
                               const tr_key *place, size_t columns, double *h)
{
    struct row row = {0};
    int status = TR_NEW(&row.column, columns);
    if (status == TR_OK) status = TR_NEW(&row.value, columns);
    for (size_t i = 0; i < n && status == TR_OK; i++) {
        if (!(c[i] > 0)) continue;
        list_row(p, first + i, place, &row);
        add_row(&row, c[i], columns, h);
    }
    free(row.column);
    free(row.value);
    return status;
}

/* Fills a tile with the rows that have c > 0, times √c. Returns their number. */
static size_t rows_fill_tile(const struct tr_problem *p, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *tile)
{
    size_t filled = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(c[i] > 0)) continue;
        double root = sqrt(c[i]), *to = tile + filled++ * columns;
        memset(to, 0, columns * sizeof *to);
        struct tr_data_row x = tr_row_of(p, first + i);
        for (size_t k = 0; k < x.n; k++) to[place[tr_row_key(&x, k)]] = root * (double)tr_row_value(&x, k);
        if (p->bias) to[place[p->keys]] = root;
    }
    return filled;
}

static double rows_mean_cells(const struct tr_problem *p, size_t first, size_t n)
{
    if (n == 0) return 0;
    return p->rows.dense ? (double)p->keys
                         : (double)(p->rows.begin[first + n] - p->rows.begin[first]) / (double)n;
}

static int add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c, const tr_key *place,
                     size_t columns, double *h)
{
    double *tile, nonzeros = rows_mean_cells(p, first, n), all = (double)columns;
    if (one_by_one * nonzeros * nonzeros / 2 < in_blis * all * all)
        return rows_add_one_by_one(p, first, n, c, place, columns, h);
    TR_TRY(TR_NEW(&tile, (size_t)TILE * columns));
    for (size_t at = 0; at < n; at += TILE) {
        size_t rows = tr_min_size(TILE, n - at);
        size_t filled = rows_fill_tile(p, first + at, rows, c + at, place, columns, tile);
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)columns, (int)filled, 1, tile, (int)columns,
                    1, h, (int)columns);
    }
    free(tile);
    return TR_OK;
}

int tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_TRY(add_outer(p, first + at, some, c + at, place, columns, h));
    return TR_OK;
}

static int subtract_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                          const tr_key *place, size_t columns, double *h)
{
    size_t outputs = p->outputs, side = columns * outputs;
    double *tile;
    TR_TRY(TR_NEW(&tile, n * side));
    for (size_t i = 0; i < n; i++, c += outputs) {
        double *to = tile + i * side;
        struct tr_data_row x = tr_row_of(p, first + i);
        for (size_t k = 0; k < x.n; k++)
            rows_axpy(outputs, (double)tr_row_value(&x, k), c, to + place[tr_row_key(&x, k)] * outputs);
        if (p->bias) rows_axpy(outputs, 1, c, to + place[p->keys] * outputs);
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)side, (int)n, -1, tile, (int)side, 1, h,
                (int)side);
    free(tile);
    return TR_OK;
}

int tr_newton_subtract_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *h)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_TRY(subtract_outer(p, first + at, some, c + at * p->outputs, place, columns, h));
    return TR_OK;
}

/* ---- Cholesky ---- */

/* Factors a diagonal block. was: diagonal elements of the matrix. If an element is lost to rounding, its column is
 * treated as orthogonal to the previous ones. */
static void rows_factor_block(size_t n, size_t stride, double *h, const double *was)
{
    for (size_t j = 0; j < n; j++) {
        double *row = h + j * stride, rest = row[j];
        for (size_t k = 0; k < j; k++) rest -= row[k] * row[k];
        if (!(rest > 1e-13 * was[j])) rest = was[j] > 0 ? was[j] : 1;
        row[j] = sqrt(rest);
        for (size_t i = j + 1; i < n; i++) {
            double *below = h + i * stride, sum = below[j];
            for (size_t k = 0; k < j; k++) sum -= below[k] * row[k];
            below[j] = sum / row[j];
        }
    }
}

void tr_cholesky(size_t n, double *h)
{
    enum { BLOCK = 64 };
    for (size_t j = 0; j < n; j += BLOCK) {
        size_t now = tr_min_size(BLOCK, n - j), below = n - j - now;
        double *corner = h + j * n + j, *panel = corner + now * n, was[BLOCK];
        for (size_t k = 0; k < now; k++) {
            double sum = corner[k * n + k]; /* undo the updates of earlier blocks */
            for (size_t i = 0; i < j; i++) sum += h[(j + k) * n + i] * h[(j + k) * n + i];
            was[k] = sum;
        }
        rows_factor_block(now, n, corner, was);
        if (below == 0) return;
        cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)below, (int)now, 1,
                    corner, (int)n, panel, (int)n);
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)below, (int)now, -1, panel, (int)n, 1,
                    panel + now, (int)n);
    }
}

void tr_cholesky_solve(size_t n, const double *factor, size_t width, double *b)
{
    for (int turn = 0; turn < 2; turn++) {
        enum CBLAS_TRANSPOSE side = turn == 0 ? CblasNoTrans : CblasTrans;
        if (width == 1)
            cblas_dtrsv(CblasRowMajor, CblasLower, side, CblasNonUnit, (int)n, factor, (int)n, b, 1);
        else
            cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, side, CblasNonUnit, (int)n, (int)width, 1,
                        factor, (int)n, b, (int)width);
    }
}

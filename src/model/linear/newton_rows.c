#define _GNU_SOURCE /* barriers, in cblas.h */
#include "newton_rows.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one output ---- */

static double dot(const struct tr_problem *p, size_t i, const double *restrict w)
{
    const uint32_t *restrict column = p->rows.column;
    const float *restrict value = p->rows.value;
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    double s[4] = {0};
    if (value) {
        for (; k + 4 <= end; k += 4)
            for (int u = 0; u < 4; u++) s[u] += (double)value[k + (uint64_t)u] * w[column[k + (uint64_t)u]];
        for (; k < end; k++) s[0] += (double)value[k] * w[column[k]];
    } else {
        for (; k + 4 <= end; k += 4)
            for (int u = 0; u < 4; u++) s[u] += w[column[k + (uint64_t)u]];
        for (; k < end; k++) s[0] += w[column[k]];
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static double dense_dot(size_t n, const float *restrict x, const double *restrict w)
{
    enum { LANES = 16 };
    double s[LANES] = {0}, sum = 0;
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (size_t u = 0; u < LANES; u++) s[u] += (double)x[j + u] * w[j + u];
    for (; j < n; j++) sum += (double)x[j] * w[j];
    for (size_t u = 0; u < LANES; u++) sum += s[u];
    return sum;
}

static void times_single(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    double bias = p->bias ? w[p->keys] : 0;
    if (p->rows.dense)
        for (size_t i = 0; i < n; i++)
            z[i] = bias + dense_dot(p->keys, p->rows.dense + (first + i) * p->keys, w);
    else
        for (size_t i = 0; i < n; i++) z[i] = bias + dot(p, first + i, w);
}

static void add_single(const struct tr_problem *p, size_t i, double c, double *restrict w)
{
    const uint32_t *restrict column = p->rows.column;
    const float *restrict value = p->rows.value;
    if (p->bias) w[p->keys] += c;
    if (p->rows.dense) {
        const float *restrict x = p->rows.dense + i * p->keys;
        for (size_t j = 0; j < p->keys; j++) w[j] += c * (double)x[j];
        return;
    }
    uint64_t k = p->rows.begin[i], end = p->rows.begin[i + 1];
    if (value)
        for (; k < end; k++) w[column[k]] += c * (double)value[k];
    else
        for (; k < end; k++) w[column[k]] += c;
}

/* ---- any number of outputs ---- */

/* The k-th non-zero of row i: its key and value. */
struct cell {
    size_t key;
    double value;
};

static size_t cells(const struct tr_problem *p, size_t i)
{
    return p->rows.dense ? p->keys : (size_t)(p->rows.begin[i + 1] - p->rows.begin[i]);
}

static struct cell cell(const struct tr_problem *p, size_t i, size_t k)
{
    if (p->rows.dense) return (struct cell){k, (double)p->rows.dense[i * p->keys + k]};
    uint64_t at = p->rows.begin[i] + k;
    return (struct cell){p->rows.column[at], p->rows.value ? (double)p->rows.value[at] : 1};
}

static void axpy(size_t n, double a, const double *restrict x, double *restrict y)
{
    for (size_t k = 0; k < n; k++) y[k] += a * x[k];
}

void tr_newton_times(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    size_t outputs = p->outputs;
    if (outputs == 1) {
        times_single(p, first, n, w, z);
        return;
    }
    memset(z, 0, n * outputs * sizeof *z);
    for (size_t i = 0; i < n; i++, z += outputs) {
        if (p->bias) axpy(outputs, 1, w + p->keys * outputs, z);
        for (size_t k = 0; k < cells(p, first + i); k++) {
            struct cell x = cell(p, first + i, k);
            axpy(outputs, x.value, w + x.key * outputs, z);
        }
    }
}

void tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    size_t outputs = p->outputs;
    for (size_t i = 0; i < n; i++, c += outputs) {
        if (outputs == 1) {
            if (*c != 0) add_single(p, first + i, *c, w);
            continue;
        }
        if (p->bias) axpy(outputs, 1, c, w + p->keys * outputs);
        for (size_t k = 0; k < cells(p, first + i); k++) {
            struct cell x = cell(p, first + i, k);
            axpy(outputs, x.value, c, w + x.key * outputs);
        }
    }
}

void tr_newton_add_squares(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    size_t outputs = p->outputs;
    for (size_t i = 0; i < n; i++, c += outputs) {
        if (p->bias) axpy(outputs, 1, c, w + p->keys * outputs);
        for (size_t k = 0; k < cells(p, first + i); k++) {
            struct cell x = cell(p, first + i, k);
            axpy(outputs, x.value * x.value, c, w + x.key * outputs);
        }
    }
}

/* ---- X' C X ---- */

/* Rows of a tile. */
enum { TILE = 128 };

/* Nanoseconds of a product of two of a row's non-zeros that is added where it belongs, of a product in BLIS, and of a
 * non-zero in X' C X v. */
static const double one_by_one = 0.8, in_blis = 0.016, in_product = 2;

static double outer_time(double nonzeros, double columns)
{
    return fmin(one_by_one * nonzeros * nonzeros / 2, in_blis * columns * columns);
}

double tr_newton_outer_cost(double nonzeros, double columns)
{
    return outer_time(nonzeros, columns) / (in_product * nonzeros);
}

/* A row's columns and values, one after the other. */
struct row {
    size_t n;
    uint32_t *column;
    double *value;
};

static void list_row(const struct tr_problem *p, size_t i, const tr_key *place, struct row *row)
{
    row->n = cells(p, i);
    for (size_t k = 0; k < row->n; k++) {
        struct cell x = cell(p, i, k);
        row->column[k] = (uint32_t)place[x.key];
        row->value[k] = x.value;
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

static int add_one_by_one(const struct tr_problem *p, size_t first, size_t n, const double *c,
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

static void fill_tile(const struct tr_problem *p, size_t first, size_t n, const double *c,
                      const tr_key *place, size_t columns, double *tile)
{
    memset(tile, 0, n * columns * sizeof *tile);
    for (size_t i = 0; i < n; i++, tile += columns) {
        double root = sqrt(c[i]);
        for (size_t k = 0; k < cells(p, first + i); k++) {
            struct cell x = cell(p, first + i, k);
            tile[place[x.key]] = root * x.value;
        }
        if (p->bias) tile[place[p->keys]] = root;
    }
}

static double mean_cells(const struct tr_problem *p, size_t first, size_t n)
{
    if (n == 0) return 0;
    return p->rows.dense ? (double)p->keys
                         : (double)(p->rows.begin[first + n] - p->rows.begin[first]) / (double)n;
}

int tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h)
{
    double *tile, nonzeros = mean_cells(p, first, n), all = (double)columns;
    if (one_by_one * nonzeros * nonzeros / 2 < in_blis * all * all)
        return add_one_by_one(p, first, n, c, place, columns, h);
    TR_TRY(TR_NEW(&tile, (size_t)TILE * columns));
    for (size_t at = 0; at < n; at += TILE) {
        size_t rows = tr_min_size(TILE, n - at);
        fill_tile(p, first + at, rows, c + at, place, columns, tile);
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)columns, (int)rows, 1, tile, (int)columns, 1,
                    h, (int)columns);
    }
    free(tile);
    return TR_OK;
}

/* ---- Cholesky ---- */

/* A block on the diagonal; first: its place, for what its diagonal elements were. */
static void factor_block(size_t n, size_t stride, double *h, const double *was)
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
            double sum = corner[k * n + k]; /* and what blocks before have taken away */
            for (size_t i = 0; i < j; i++) sum += h[(j + k) * n + i] * h[(j + k) * n + i];
            was[k] = sum;
        }
        factor_block(now, n, corner, was);
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

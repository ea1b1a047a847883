#define _GNU_SOURCE /* for barriers, which cblas.h uses */
#include "pass.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/cpu.h"

/* The number of partial sums does not depend on the processor, so that all clones of a function (TR_CPU_CLONES) round equally. */

enum { LANES = 8, SUMS = 4 };
enum { TILE_ROWS = 64, TILE_COLUMNS = 256, TILE_OUTPUTS = 64 };
typedef float f32s __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double f64s __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

double tr_row_target(const struct tr_problem *p, size_t i, size_t k)
{
    double target = (double)p->target[i];
    return p->outputs == 1 ? target : (size_t)target == k ? 1 : -1;
}

/* Sets `change` to the factors by which w changes along -x when the dual variables of row i change from `old` to `a`. The caller
 * multiplies them by weight × sigma / (λ n). Returns whether a factor is not 0. */
static bool dual_find_change(const struct tr_problem *p, size_t i, struct tr_class_block own,
                             const float *old, const float *a, double *change)
{
    bool moves = false;
    for (size_t k = 0; k < own.n; k++) {
        double more = (double)a[k] - (double)old[k];
        change[k] = p->softmax ? more : -tr_row_target(p, i, own.first + k) * more;
        moves = moves || more != 0;
    }
    return moves;
}

/* Sets the dual variables `a` of row i to their minimum; q as in tr_loss.step. margin: the margins of the row, followed by scratch
 * of the same size. The new probabilities of a softmax minimise Σ next log next - Σ m (next - a) + q/2 |next - a|² where
 * Σ next = 1. They are found by Newton steps on log next and on the multiplier of that condition. */
static void dual_set_row(const struct tr_problem *p, size_t i, struct tr_class_block own, double q, float *a,
                         double *margin)
{
    double *next = margin + own.n, change = 1;
    for (size_t k = 0; k < own.n && !p->softmax; k++)
        a[k] = (float)tr_loss_step(p->loss, (double)a[k], margin[k], tr_row_target(p, i, own.first + k), q,
                                   p->shape);
    if (!p->softmax) return;
    for (size_t k = 0; k < own.n; k++) next[k] = fmax((double)a[k], 1e-12);
    for (int round = 0; round < 30 && change > 1e-4; round++) {
        double sum = 0, slopes = 0, due = 0;
        for (size_t k = 0; k < own.n; k++) {
            double slope = next[k] / (1 + q * next[k]);
            sum += next[k];
            slopes += slope;
            due += slope * (margin[k] - log(next[k]) - q * (next[k] - (double)a[k]));
        }
        double multiplier = (1 - sum - due) / slopes;
        change = 0;
        for (size_t k = 0; k < own.n; k++) {
            double by = margin[k] - log(next[k]) - q * (next[k] - (double)a[k]) + multiplier;
            by /= 1 + q * next[k];
            next[k] = fmax(next[k] * exp(fmin(fmax(by, -8), 8)), 1e-30);
            if (next[k] > 1e-9) change = fmax(change, fabs(by));
        }
    }
    for (size_t k = 0; k < own.n; k++) a[k] = (float)next[k];
}

#define REAL    float
#define REALS   f32s
#define GEMM    cblas_sgemm
#define NAME(x) x##_f32
#include "pass_real.h"

#define REAL    double
#define REALS   f64s
#define GEMM    cblas_dgemm
#define NAME(x) x##_f64
#include "pass_real.h"

void tr_margins(const struct tr_problem *p, size_t first, size_t n, const void *w, double *margin)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_BY_TYPE(p->dtype, margins, p, first + at, some, w, margin + at * p->outputs);
    tr_add_offsets(p, first, n, margin);
}

/* Returns log Σ exp(margin). */
static double log_sum(size_t n, const double *margin)
{
    double most = margin[0], sum = 0;
    for (size_t k = 1; k < n; k++) most = fmax(most, margin[k]);
    for (size_t k = 0; k < n; k++) sum += exp(margin[k] - most);
    return most + log(sum);
}

/* Selects the loss once per call: for short rows, selecting it once per row would take a large part of the time. */
double tr_row_losses(const struct tr_problem *p, size_t first, size_t n, const double *margin, double sum)
{
    size_t outputs = p->outputs;
#define LOSSES(name)                                                                                         \
    if (p->loss == &tr_loss_##name && outputs == 1) {                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            sum += tr_row_weight(p, first + i) *                                                             \
                   name##_value(margin[i], (double)p->target[first + i], p->shape);                          \
        return sum;                                                                                          \
    }
    TR_INLINE_LOSSES(LOSSES)
#undef LOSSES
    for (size_t i = first; i < first + n; i++, margin += outputs) {
        double loss = p->softmax ? log_sum(outputs, margin) - margin[(size_t)p->target[i]] : 0;
        for (size_t k = 0; k < outputs && !p->softmax; k++)
            loss += tr_loss_value(p->loss, margin[k], tr_row_target(p, i, k), p->shape);
        sum += tr_row_weight(p, i) * loss;
    }
    return sum;
}

void tr_row_slopes(const struct tr_problem *p, size_t first, size_t n, double *margin)
{
    size_t outputs = p->outputs;
#define SLOPES(name)                                                                                         \
    if (p->loss == &tr_loss_##name && outputs == 1) {                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            margin[i] = tr_row_weight(p, first + i) *                                                        \
                        name##_slope(margin[i], (double)p->target[first + i], p->shape);                     \
        return;                                                                                              \
    }
    TR_INLINE_LOSSES(SLOPES)
#undef SLOPES
    for (size_t i = first; i < first + n; i++, margin += outputs) {
        double weight = tr_row_weight(p, i), sum = p->softmax ? log_sum(outputs, margin) : 0;
        for (size_t k = 0; k < outputs; k++)
            margin[k] =
                weight * (p->softmax ? exp(margin[k] - sum) - ((size_t)p->target[i] == k)
                                     : tr_loss_slope(p->loss, margin[k], tr_row_target(p, i, k), p->shape));
    }
}

void tr_add_rows(const struct tr_problem *p, size_t first, size_t n, const double *slope, double rate,
                 const float *reg, const void *old, void *w)
{
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some)
        TR_BY_TYPE(p->dtype, add_rows, p, first + at, some, slope + at * p->outputs, rate, reg, old, w);
}

void tr_dual_pass(const struct tr_problem *p, struct tr_class_block own, const uint32_t *order, size_t n,
                  double sigma, const struct tr_spread *spread, const float *norm, float *a, double *room,
                  void *w)
{
    if (p->outputs > 1)
        TR_BY_TYPE(p->dtype, dual_pass_classes, p, own, order, n, sigma, spread, norm, a, room, w);
    else if (spread) TR_BY_TYPE(p->dtype, dual_pass_spread, p, order, n, sigma, spread, norm, a, w);
    else TR_BY_TYPE(p->dtype, dual_pass, p, order, n, sigma, norm, a, w);
}

void tr_dual_merge(const struct tr_problem *p, struct tr_class_block own, const struct tr_spread *spread,
                   size_t first, size_t n, void *copies, size_t stride, size_t copied, void *w)
{
    TR_BY_TYPE(p->dtype, dual_merge, p, own, spread, first, n, copies, stride, copied, w);
}

double tr_dual_sum(const struct tr_problem *p, size_t first, size_t n, const float *a)
{
    double sum = 0;
    a += first * p->outputs;
    for (size_t i = first; i < first + n; i++, a += p->outputs)
        for (size_t k = 0; k < p->outputs; k++) {
            double q = (double)a[k], y = tr_row_target(p, i, k);
            double shift = p->offset ? q * (tr_loss_classifies(p->loss) ? y : 1) * tr_row_offset(p, i) : 0;
            sum += tr_row_weight(p, i) * ((!p->softmax ? p->loss->conjugate(q, y)
                                           : q > 0     ? q * log(q)
                                                       : 0) +
                                          shift);
        }
    return sum;
}

void tr_row_norms(const struct tr_problem *p, const struct tr_spread *spread, size_t first, size_t n,
                  float *norm)
{
    double of_bias = !p->bias ? 0 : spread ? p->of_bias * tr_spread_factor(spread, p->keys) : p->of_bias;
    for (size_t i = first, end = first + n, some; (some = tr_ready_piece(p, i, end - i)) > 0;)
        for (size_t stop = i + some; i < stop; i++) {
            struct tr_data_row x = tr_row_of(p, i);
            double sum = spread ? 0 : tr_row_square(&x);
            for (size_t k = 0; k < x.n && spread; k++) {
                double value = (double)tr_row_value(&x, k);
                sum += value * value * tr_spread_factor(spread, tr_row_key(&x, k));
            }
            norm[i] = (float)(of_bias + sum);
        }
}

/* ---- products in f64 ---- */

static void rows_axpy(size_t n, double a, const double *restrict x, double *restrict y)
{
    for (size_t k = 0; k < n; k++) y[k] += a * x[k];
}

void tr_newton_times(const struct tr_problem *p, size_t first, size_t n, const double *w, double *z)
{
    struct tr_problem wide = *p;
    wide.dtype = TR_F64;
    wide.offset = NULL;
    if (p->outputs == 1) wide.bias = false; /* the bias is added below */
    tr_margins(&wide, first, n, w, z);
    for (size_t i = 0; i < n && p->bias && p->outputs == 1; i++) z[i] += w[p->keys];
}

void tr_newton_add(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    struct tr_problem wide = *p;
    wide.dtype = TR_F64;
    wide.of_bias = 1;
    tr_add_rows(&wide, first, n, c, -1, NULL, NULL, w);
}

void tr_newton_add_squares(const struct tr_problem *p, size_t first, size_t n, const double *c, double *w)
{
    size_t outputs = p->outputs;
    for (size_t i = first, end = first + n, some; (some = tr_ready_piece(p, i, end - i)) > 0;)
        for (size_t stop = i + some; i < stop; i++, c += outputs) {
            struct tr_data_row x = tr_row_of(p, i);
            if (p->bias) rows_axpy(outputs, 1, c, w + p->keys * outputs);
            for (size_t k = 0; k < x.n; k++) {
                double value = (double)tr_row_value(&x, k);
                rows_axpy(outputs, value * value, c, w + tr_row_key(&x, k) * outputs);
            }
        }
}

/* ---- X' C X ---- */

/* Rows per tile. */
enum { TILE = 128 };

/* Nanoseconds per product of two non-zeros in outer_add_one_by_one(), per element of H and row in BLIS, and per non-zero in a
 * product X' C X v. */
static const double one_by_one = 0.8, in_blis = 0.016, in_product = 2;

double tr_newton_outer_cost(double nonzeros, double columns)
{
    double time = fmin(one_by_one * nonzeros * nonzeros / 2, in_blis * columns * columns);
    return time / (in_product * nonzeros);
}

static int outer_add_one_by_one(const struct tr_problem *p, size_t first, size_t n, const double *c,
                                const tr_key *place, size_t columns, double *h)
{
    TR_FREED uint32_t *column = NULL; /* column of H and value of each non-zero of a row, with the bias */
    TR_FREED double *value = NULL;
    TR_TRY(TR_NEW(&column, columns));
    TR_TRY(TR_NEW(&value, columns));
    for (size_t i = 0; i < n; i++) {
        if (!(c[i] > 0)) continue;
        struct tr_data_row x = tr_row_of(p, first + i);
        for (size_t k = 0; k < x.n; k++) {
            column[k] = (uint32_t)place[tr_row_key(&x, k)];
            value[k] = (double)tr_row_value(&x, k);
        }
        if (p->bias) column[x.n] = (uint32_t)place[p->keys], value[x.n] = 1;
        for (size_t a = 0; a < x.n + p->bias; a++) {
            double *restrict to = h + column[a] * columns, by = c[i] * value[a];
            for (size_t b = 0; b <= a; b++) to[column[b]] += by * value[b];
        }
    }
    return TR_OK;
}

/* Copies the rows with c > 0, multiplied by √c, into tiles; adds tile' × tile to H. */
static int outer_add_tiles(const struct tr_problem *p, size_t first, size_t n, const double *c,
                           const tr_key *place, size_t columns, double *h)
{
    TR_FREED double *tile = NULL;
    TR_TRY(TR_NEW(&tile, (size_t)TILE * columns));
    for (size_t at = 0; at < n; at += TILE) {
        size_t filled = 0;
        for (size_t i = at; i < tr_min_size(at + TILE, n); i++) {
            if (!(c[i] > 0)) continue;
            double root = sqrt(c[i]), *to = tile + filled++ * columns;
            memset(to, 0, columns * sizeof *to);
            struct tr_data_row x = tr_row_of(p, first + i);
            for (size_t k = 0; k < x.n; k++)
                to[place[tr_row_key(&x, k)]] = root * (double)tr_row_value(&x, k);
            if (p->bias) to[place[p->keys]] = root;
        }
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)columns, (int)filled, 1, tile, (int)columns,
                    1, h, (int)columns);
    }
    return TR_OK;
}

int tr_newton_add_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                        const tr_key *place, size_t columns, double *h)
{
    double all = (double)columns;
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some) {
        const uint64_t *begin = p->rows.begin + first + at;
        double nonzeros = p->rows.dense ? (double)p->keys : (double)(begin[some] - begin[0]) / (double)some;
        bool few = one_by_one * nonzeros * nonzeros / 2 < in_blis * all * all;
        TR_TRY(
            (few ? outer_add_one_by_one : outer_add_tiles)(p, first + at, some, c + at, place, columns, h));
    }
    return TR_OK;
}

int tr_newton_subtract_outer(const struct tr_problem *p, size_t first, size_t n, const double *c,
                             const tr_key *place, size_t columns, double *h)
{
    size_t outputs = p->outputs, side = columns * outputs;
    for (size_t at = 0, some; (some = tr_ready_piece(p, first + at, n - at)) > 0; at += some) {
        TR_FREED double *tile = NULL;
        TR_TRY(TR_NEW(&tile, some * side));
        for (size_t i = 0; i < some; i++, c += outputs) {
            double *to = tile + i * side;
            struct tr_data_row x = tr_row_of(p, first + at + i);
            for (size_t k = 0; k < x.n; k++)
                rows_axpy(outputs, (double)tr_row_value(&x, k), c, to + place[tr_row_key(&x, k)] * outputs);
            if (p->bias) rows_axpy(outputs, 1, c, to + place[p->keys] * outputs);
        }
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)side, (int)some, -1, tile, (int)side, 1, h,
                    (int)side);
    }
    return TR_OK;
}

/* ---- Cholesky ---- */

void tr_cholesky(size_t n, double *h)
{
    enum { BLOCK = 64 };
    for (size_t j = 0; j < n; j += BLOCK) {
        size_t now = tr_min_size(BLOCK, n - j), below = n - j - now;
        double *corner = h + j * n + j, *panel = corner + now * n, was[BLOCK];
        for (size_t k = 0; k < now; k++) { /* was[k]: diagonal element before the updates by blocks */
            was[k] = corner[k * n + k];
            for (size_t i = 0; i < j; i++) was[k] += h[(j + k) * n + i] * h[(j + k) * n + i];
        }
        for (size_t k = 0; k < now; k++) { /* factors the diagonal block */
            double *row = corner + k * n, rest = row[k];
            for (size_t i = 0; i < k; i++) rest -= row[i] * row[i];
            if (!(rest > 1e-13 * was[k])) rest = was[k] > 0 ? was[k] : 1; /* rest is only rounding errors */
            row[k] = sqrt(rest);
            for (size_t b = k + 1; b < now; b++) {
                double *other = corner + b * n, sum = other[k];
                for (size_t i = 0; i < k; i++) sum -= other[i] * row[i];
                other[k] = sum / row[k];
            }
        }
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

/* ---- vectors over all columns ---- */

/* Maximum number of elements of a vector of which every worker owns all columns: 1 MB. */
enum { MOST_WHOLE = 1 << 17 };

static uint64_t columns_first(uint64_t columns, int worker, int workers)
{
    uint64_t all = (uint64_t)workers, w = (uint64_t)worker;
    return columns / all * w + columns % all * w / all;
}

int tr_columns_open(struct tr_columns *c, tr_context *tr, const tr_key *keys, size_t n, uint64_t columns,
                    size_t width)
{
    *c = (struct tr_columns){
        .tr = tr, .workers = tr ? tr_workers(tr) : 1, .width = width, .keys = keys, .local = n};
    c->whole = c->workers == 1 || columns * width <= MOST_WHOLE;
    int me = c->whole ? 0 : tr_set_rank(tr, TR_SET_WORKERS), parts = c->whole ? 1 : c->workers;
    c->first = columns_first(columns, me, parts);
    uint64_t own = columns_first(columns, me + 1, parts) - c->first;
    if (own > UINT32_MAX)
        return tr_fail(
            TR_ERR_CONFIG,
            "solve.method newton and descent keep vectors of all columns, and there are %llu at each worker: "
            "expected fewer than 2^32, or solve.method dual",
            (unsigned long long)own);
    c->n = (size_t)own;
    if (c->whole) return TR_OK;
    TR_TRY(TR_NEW(&c->to, (size_t)c->workers));
    TR_TRY(TR_NEW(&c->from, (size_t)c->workers));
    /* sends the keys of this worker to the owners of the columns */
    TR_FREED tr_key *received = NULL;
    size_t at = 0, bytes = 0;
    for (int w = 0; w < c->workers; w++) {
        size_t begin = at;
        uint64_t end = columns_first(columns, w + 1, c->workers);
        while (at < n && keys[at] < end) at++;
        c->to[w] = (at - begin) * sizeof(tr_key);
    }
    TR_TRY(tr_exchange_counts(tr, TR_SET_WORKERS, c->to, c->from));
    for (int w = 0; w < c->workers; w++) bytes += c->from[w];
    c->places = bytes / sizeof *received;
    TR_TRY(TR_NEW(&received, c->places));
    TR_TRY(tr_exchange(tr, TR_SET_WORKERS, keys, c->to, received, c->from));
    TR_TRY(TR_NEW(&c->place, c->places));
    for (size_t i = 0; i < c->places; i++) c->place[i] = (uint32_t)(received[i] - c->first);
    for (int w = 0; w < c->workers; w++) c->to[w] *= width, c->from[w] *= width;
    return TR_NEW(&c->buffer, c->places * width);
}

void tr_columns_close(struct tr_columns *c)
{
    TR_FREE_ALL(c->to, c->from, c->place, c->buffer);
    *c = (struct tr_columns){0};
}

int tr_columns_sum(struct tr_columns *c, const double *local, double *own)
{
    size_t width = c->width;
    memset(own, 0, c->n * width * sizeof *own);
    if (c->whole) {
        for (size_t j = 0; j < c->local; j++)
            memcpy(own + c->keys[j] * width, local + j * width, width * sizeof(double));
        return tr_columns_sum_rows(c, own, c->n * width);
    }
    TR_TRY(tr_exchange(c->tr, TR_SET_WORKERS, local, c->to, c->buffer, c->from));
    for (size_t i = 0; i < c->places; i++)
        for (size_t k = 0; k < width; k++) own[c->place[i] * width + k] += c->buffer[i * width + k];
    return TR_OK;
}

int tr_columns_fetch(struct tr_columns *c, const double *own, double *local)
{
    size_t width = c->width;
    if (c->whole) {
        for (size_t j = 0; j < c->local; j++)
            memcpy(local + j * width, own + c->keys[j] * width, width * sizeof(double));
        return TR_OK;
    }
    for (size_t i = 0; i < c->places; i++)
        memcpy(c->buffer + i * width, own + c->place[i] * width, width * sizeof(double));
    return tr_exchange(c->tr, TR_SET_WORKERS, c->buffer, c->from, local, c->to);
}

int tr_columns_sum_rows(struct tr_columns *c, double *sums, size_t n)
{
    return c->workers == 1 ? TR_OK : tr_all_reduce(c->tr, TR_SET_WORKERS, TR_SUM, TR_F64, sums, n);
}

int tr_columns_sum_parts(struct tr_columns *c, double *sums, size_t n)
{
    return c->whole ? TR_OK : tr_columns_sum_rows(c, sums, n);
}

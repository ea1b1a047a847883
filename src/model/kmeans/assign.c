#include "kmeans.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* Maximum relative rounding error of an f32 operation. */
#define ROUNDING 0x1p-24f

/* Number of rows in a chunk. A chunk stays in the cache between the test of bounds and the computation of scores. */
enum { CHUNK = 1024 };

/* assign_tighten() is tried in every TRY_EVERY-th chunk. The next chunks use it only if it excluded one row in PAYS. */
enum { TRY_EVERY = 16, PAYS = 24 };

typedef float tr_f32x4 __attribute__((vector_size(16)));
typedef int32_t tr_i32x4 __attribute__((vector_size(16)));
typedef float tr_f32x8 __attribute__((vector_size(32)));
typedef double tr_f64x8 __attribute__((vector_size(64)));

/* Results for the rows of a tile: the two smallest scores and the centre of the smallest; |x|², and bounds of distances; whether
 * the smallest score may be wrong. */
struct tr_leaders {
    _Alignas(64) float best[TR_TILE_MOST], second[TR_TILE_MOST];
    _Alignas(64) int which[TR_TILE_MOST];
    _Alignas(64) float square[TR_TILE_MOST], upper[TR_TILE_MOST], lower[TR_TILE_MOST];
    _Alignas(64) int doubt[TR_TILE_MOST];
};

struct tr_sparse_row {
    size_t n;
    const uint32_t *column;
    const float *value; /* NULL: all values are 1 */
};

#define TR_KERNEL "kmeans/assign_kernel.h"
#include "../levels.h"

/* The kernels of one instruction level; assign_kernel.h explains each of them. */
struct level {
    size_t tile; /* number of rows of a tile */
    void (*lead)(const float *const *, const struct tr_centres *, float *, struct tr_leaders *);
    void (*conclude)(struct tr_leaders *, size_t, float, float);
    void (*exact)(const float *, const float *, size_t, size_t, double *);
    float (*apart)(const float *, const float *, size_t);
    void (*score)(const struct tr_sparse_row *, const struct tr_centres *, float *);
    void (*pick)(const float *, size_t, float *, float *, int *);
};

static struct level level_of(enum tr_cpu cpu)
{
    return (struct level){.tile = (size_t)TR_BY_LEVEL(cpu, tile),
                          .lead = TR_BY_LEVEL(cpu, lead),
                          .conclude = TR_BY_LEVEL(cpu, conclude),
                          .exact = TR_BY_LEVEL(cpu, exact),
                          .apart = TR_BY_LEVEL(cpu, apart),
                          .score = TR_BY_LEVEL(cpu, score),
                          .pick = TR_BY_LEVEL(cpu, pick)};
}

static struct tr_sparse_row sparse_row(const tr_batch *rows, size_t i)
{
    uint64_t begin = rows->begin[i];
    return (struct tr_sparse_row){rows->begin[i + 1] - begin, rows->column + begin,
                                  rows->value ? rows->value + begin : NULL};
}

static double value_of(const struct tr_sparse_row *x, size_t i)
{
    return x->value ? (double)x->value[i] : 1;
}

/* ---- centres ---- */

/* Returns k, rounded up to the number of centres that the kernels process together. */
static size_t assign_padded(const struct tr_centres *c)
{
    return c->sparse ? c->width : (c->k + TR_PANEL - 1) / TR_PANEL * TR_PANEL;
}

/* Returns the number of elements of c->value. */
static size_t assign_values(const struct tr_centres *c)
{
    return c->columns * (c->sparse ? c->width : c->k);
}

int tr_centres_open(size_t k, size_t columns, bool sparse, struct tr_centres *c)
{
    size_t width = (k + TR_WIDTH_STEP - 1) / TR_WIDTH_STEP * TR_WIDTH_STEP;
    *c = (struct tr_centres){.k = k, .columns = columns, .sparse = sparse, .width = width, .level = tr_cpu()};
    TR_TRY(TR_NEW_ALIGNED(&c->value, assign_values(c), true));
    TR_TRY(TR_NEW_ALIGNED(&c->before, assign_values(c), true));
    if (!sparse) TR_TRY(TR_NEW_ALIGNED(&c->packed, assign_padded(c) * columns, true));
    TR_TRY(TR_NEW_ALIGNED(&c->half, assign_padded(c), true));
    TR_TRY(TR_NEW_ALIGNED(&c->moved, assign_padded(c), true));
    TR_TRY(TR_NEW_ALIGNED(&c->scratch, sparse ? width : columns * TR_TILE_MOST, true));
    TR_TRY(TR_NEW(&c->rest, k));
    return TR_NEW(&c->norm, k);
}

void tr_centres_close(struct tr_centres *c)
{
    TR_FREE_ALL(c->value, c->before, c->packed, c->half, c->moved, c->scratch, c->rest, c->norm);
    *c = (struct tr_centres){0};
}

static float round_up(double x)
{
    return (float)(x * (1 + 4 * (double)ROUNDING));
}

/* Returns the squared distance of two dense vectors, summed in the order of columns. */
static double assign_apart(const float *x, const float *y, size_t columns)
{
    double sum = 0;
    for (size_t p = 0; p < columns; p++) {
        double d = (double)x[p] - (double)y[p];
        sum += d * d;
    }
    return sum;
}

int tr_centres_ready(struct tr_centres *c)
{
    double longest = 0;
    if (!c->sparse) {
        for (size_t j = 0; j < c->k; j++) {
            const float *from = c->value + j * c->columns;
            float *to = c->packed + j / TR_PANEL * TR_PANEL * c->columns + j % TR_PANEL;
            double norm = 0;
            for (size_t p = 0; p < c->columns; p++) {
                to[p * TR_PANEL] = from[p];
                norm += (double)from[p] * (double)from[p];
            }
            c->norm[j] = norm;
        }
    }
    for (size_t j = 0; j < assign_padded(c); j++) {
        c->half[j] = j < c->k ? (float)(c->norm[j] / 2) : FLT_MAX;
        if (j < c->k) longest = fmax(longest, c->norm[j]);
    }
    c->longest = round_up(sqrt(longest));
    if (c->sparse) {
        /* A rank stores only the columns in which its rows have entries. Rows are 0 in the other columns, so the length of the
         * centre in these columns acts as one more coordinate: the movement includes the change of this length. */
        TR_FREED double *here = NULL;
        TR_FREED double *squares = NULL;
        TR_TRY(TR_NEW(&squares, c->width));
        TR_TRY(TR_NEW(&here, c->width));
        for (size_t p = 0; p < c->columns; p++)
            for (size_t j = 0; j < c->width; j++) {
                double v = (double)c->value[p * c->width + j], d = v - (double)c->before[p * c->width + j];
                here[j] += v * v;
                squares[j] += d * d;
            }
        for (size_t j = 0; j < c->k; j++) {
            double rest = sqrt(fmax(0, c->norm[j] - here[j])), by = rest - c->rest[j];
            double unsure = 2 * sqrt(0x1p-52 * (double)(c->columns + 8) * c->norm[j]);
            c->moved[j] = round_up(sqrt(squares[j] + by * by) + unsure);
            c->rest[j] = rest;
        }
    } else {
        for (size_t j = 0; j < c->k; j++)
            c->moved[j] = round_up(
                sqrt(assign_apart(c->value + j * c->columns, c->before + j * c->columns, c->columns)));
    }
    c->most[0] = c->most[1] = 0;
    c->mover = 0;
    for (size_t j = 0; j < c->k; j++) {
        if (c->moved[j] > c->most[0]) {
            c->most[1] = c->most[0];
            c->most[0] = c->moved[j];
            c->mover = (uint32_t)j;
        } else if (c->moved[j] > c->most[1]) c->most[1] = c->moved[j];
    }
    memcpy(c->before, c->value, assign_values(c) * sizeof *c->value);
    return TR_OK;
}

/* ---- one row in f64 ---- */

static double sparse_square(const struct tr_sparse_row *x)
{
    double sum = 0;
    for (size_t i = 0; i < x->n; i++) sum += value_of(x, i) * value_of(x, i);
    return sum;
}

static double sparse_distance(const struct tr_centres *c, const struct tr_sparse_row *x, uint32_t j)
{
    double dot = 0;
    for (size_t i = 0; i < x->n; i++) dot += value_of(x, i) * (double)c->value[x->column[i] * c->width + j];
    return c->norm[j] - 2 * dot + sparse_square(x);
}

double tr_distance(const struct tr_centres *c, const tr_batch *rows, size_t row, uint32_t j)
{
    if (!c->sparse)
        return assign_apart(rows->dense + row * c->columns, c->value + j * c->columns, c->columns);
    struct tr_sparse_row x = sparse_row(rows, row);
    return fmax(0, sparse_distance(c, &x, j));
}

/* ---- labels and bounds ---- */

int tr_assigned_open(const struct tr_centres *c, const tr_batch *rows, bool bounds, struct tr_assigned *to)
{
    *to = (struct tr_assigned){.n = rows->n, .tighten = true};
    TR_TRY(TR_NEW(&to->label, rows->n));
    TR_TRY(TR_NEW(&to->square, rows->n));
    if (bounds) TR_TRY(TR_NEW(&to->upper, rows->n));
    if (bounds) TR_TRY(TR_NEW(&to->lower, rows->n));
    for (size_t i = 0; i < rows->n; i++) {
        double square = 0;
        to->label[i] = TR_NO_CENTRE;
        if (c->sparse) {
            struct tr_sparse_row x = sparse_row(rows, i);
            square = sparse_square(&x);
            to->most = tr_max_size(to->most, x.n);
        }
        for (size_t p = 0; p < c->columns && !c->sparse; p++) {
            double v = (double)rows->dense[i * c->columns + p];
            square += v * v;
        }
        to->square[i] = (float)square;
    }
    return TR_OK;
}

void tr_assigned_close(struct tr_assigned *to)
{
    TR_FREE_ALL(to->label, to->square, to->upper, to->lower);
    *to = (struct tr_assigned){0};
}

void tr_assigned_set(struct tr_assigned *to, size_t row, uint32_t label)
{
    to->label[row] = label;
    if (!to->upper) return;
    to->upper[row] = INFINITY;
    to->lower[row] = 0;
}

/* ---- a pass ---- */

/* Arguments of tr_assign(). */
struct pass {
    struct level level;
    const struct tr_centres *c;
    const tr_batch *rows;
    struct tr_assigned *to;
    float wrong; /* bound of the relative error of scores, an argument of conclude() */
    tr_changed_fn *changed;
    void *who;
};

/* Finds the nearest centre of a row in f64. */
static uint32_t assign_nearest(const struct pass *pass, size_t row)
{
    enum { SOME = 4 * TR_PANEL };
    const struct tr_centres *c = pass->c;
    struct tr_sparse_row x = c->sparse ? sparse_row(pass->rows, row) : (struct tr_sparse_row){0};
    uint32_t best = 0;
    double least = INFINITY, some[SOME];
    for (size_t j = 0; j < c->k; j++) {
        if (!c->sparse && j % SOME == 0)
            pass->level.exact(pass->rows->dense + row * c->columns, c->packed + j * c->columns, c->columns,
                              tr_min_size(4, (assign_padded(c) - j) / TR_PANEL), some);
        double d = c->sparse ? sparse_distance(c, &x, (uint32_t)j) : some[j % SOME];
        if (!(d < least)) continue;
        least = d;
        best = (uint32_t)j;
    }
    return best;
}

/* Stores the label and bounds of a row, given the results at->...[r] of a tile. If the smallest score may be wrong, f64 decides. */
static void store_label(const struct pass *pass, const struct tr_leaders *at, size_t r, size_t row)
{
    struct tr_assigned *to = pass->to;
    uint32_t lead = (uint32_t)at->which[r], label = lead, old = to->label[row];
    if (at->doubt[r]) {
        label = assign_nearest(pass, row);
        to->doubtful++;
    }
    if (to->upper) {
        to->upper[row] = label == lead ? at->upper[r] : INFINITY;
        to->lower[row] = label == lead ? at->lower[r] : 0;
    }
    if (label == old) return;
    to->label[row] = label;
    if (pass->changed) pass->changed(pass->who, row, old, label);
}

/* Assigns the rows first + list[0 .. n - 1], tile by tile. */
static void assign_listed(const struct pass *pass, const uint32_t *list, size_t n, size_t first)
{
    enum { ENOUGH = 1 << 18 }; /* number of multiplications that take about ten microseconds */
    struct tr_leaders at = {0};
    const struct tr_centres *c = pass->c;
    const float *row[TR_TILE_MOST];
    size_t tile = pass->level.tile, work = 0; /* work: multiplications since the last call of tr_seam() */
    for (size_t i = 0; i < n; i += tile) {
        size_t some = tr_min_size(tile, n - i);
        work += tile * c->k * (c->sparse ? 100 : c->columns);
        if (work >= ENOUGH) {
            tr_seam();
            work = 0;
        }
        for (size_t r = 0; c->sparse && r < some; r++) {
            size_t which = first + list[i + r];
            struct tr_sparse_row x = sparse_row(pass->rows, which);
            pass->level.score(&x, c, c->scratch);
            pass->level.pick(c->scratch, c->width, &at.best[r], &at.second[r], &at.which[r]);
            at.square[r] = pass->to->square[which];
        }
        for (size_t r = 0; r < tile && !c->sparse; r++) { /* copies of the last row fill the last tile */
            size_t which = first + list[tr_min_size(i + r, n - 1)];
            row[r] = pass->rows->dense + which * c->columns;
            at.square[r] = pass->to->square[which];
        }
        if (!c->sparse) pass->level.lead(row, c, c->scratch, &at);
        pass->level.conclude(&at, c->sparse ? some : tile, pass->wrong, c->longest);
        for (size_t r = 0; r < some; r++) store_label(pass, &at, r, first + list[i + r]);
    }
}

/* Replaces the upper bound of the listed rows by the distance to their own centre, and removes the rows from the list for which it
 * is below the lower bound. Returns the new length of the list. */
static size_t assign_tighten(const struct pass *pass, size_t first, uint32_t *list, size_t n)
{
    struct tr_assigned *to = pass->to;
    const struct tr_centres *c = pass->c;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        size_t row = first + list[i];
        uint32_t label = to->label[row];
        list[m] = list[i];
        if (label != TR_NO_CENTRE && c->sparse) {
            struct tr_sparse_row x = sparse_row(pass->rows, row);
            double unsure = 0x1p-52 * (double)(x.n + 8) * (c->norm[label] + 2 * (double)to->square[row]);
            to->upper[row] = round_up(sqrt(fmax(0, sparse_distance(c, &x, label)) + unsure));
        } else if (label != TR_NO_CENTRE) {
            const float *x = pass->rows->dense + row * c->columns;
            float square = pass->level.apart(x, c->value + label * c->columns, c->columns);
            to->upper[row] = sqrtf(square) * (1 + ROUNDING * (float)(c->columns + 8));
        }
        m += label != TR_NO_CENTRE && to->upper[row] < to->lower[row] ? 0 : 1;
    }
    return m;
}

/* Lists the rows of a chunk whose label may change, as indices relative to `first`. Returns their number. */
static size_t list_rows(const struct pass *pass, size_t chunk, size_t first, size_t n, uint32_t *list)
{
    if (!pass->to->upper) {
        for (size_t i = 0; i < n; i++) list[i] = (uint32_t)i;
        return n;
    }
    /* Widen the bounds by the movement of the centres, and list the rows whose upper bound is not below the lower bound. */
    const struct tr_centres *c = pass->c;
    struct tr_assigned *to = pass->to;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        size_t row = first + i;
        uint32_t label = to->label[row];
        list[m] = (uint32_t)i;
        if (label == TR_NO_CENTRE) {
            m++;
            continue;
        }
        to->upper[row] = (to->upper[row] + c->moved[label]) * (1 + 2 * ROUNDING);
        to->lower[row] = (to->lower[row] - c->most[label == c->mover]) * (1 - 2 * ROUNDING);
        m += to->upper[row] < to->lower[row] ? 0 : 1;
    }
    bool trial = chunk % TRY_EVERY == 0;
    if (m == 0 || !(trial || pass->to->tighten)) return m;
    size_t left = assign_tighten(pass, first, list, m);
    if (trial) pass->to->tighten = (m - left) * PAYS >= m;
    return left;
}

void tr_assign(const struct tr_centres *c, const tr_batch *rows, size_t first, size_t last,
               struct tr_assigned *to, tr_changed_fn *changed, void *who)
{
    struct pass pass = {.level = level_of(c->level),
                        .c = c,
                        .rows = rows,
                        .to = to,
                        .wrong = ROUNDING * (float)((c->sparse ? to->most : c->columns) + 12),
                        .changed = changed,
                        .who = who};
    uint32_t list[CHUNK];
    for (size_t at = first, chunk = 0; at < last; at += CHUNK, chunk++) {
        tr_seam();
        size_t n = list_rows(&pass, chunk, at, tr_min_size(CHUNK, last - at), list);
        if (n == 0) continue;
        assign_listed(&pass, list, n, at);
        to->computed += n;
    }
}

void tr_lower(const float *rows, size_t n, size_t columns, const float *centre, uint32_t number,
              double *least, uint32_t *which)
{
    struct level level = level_of(tr_cpu());
    for (size_t i = 0; i < n; i++) {
        double d = (double)level.apart(rows + i * columns, centre, columns);
        if (!(d < least[i])) continue;
        least[i] = d;
        which[i] = number;
    }
}

double tr_inertia(const struct tr_centres *c, const tr_batch *rows, size_t first, size_t last,
                  const struct tr_assigned *assigned)
{
    struct level level = level_of(c->level);
    double sum = 0;
    for (size_t i = first; i < last; i++) {
        uint32_t j = assigned->label[i];
        if (c->sparse) sum += tr_distance(c, rows, i, j);
        else sum += (double)level.apart(rows->dense + i * c->columns, c->value + j * c->columns, c->columns);
    }
    return sum;
}

#include "model/kmeans/assign.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

/* Half the distance from 1 to the next number of f32. */
#define ROUNDING 0x1p-24f

/* Rows that are looked at together: they stay in cache from the test of their bounds to their scores. */
enum { CHUNK = 1024 };

/* Every so many chunks it is tried whether tighter upper bounds pay, and they do if one row in so many needs no scores. */
enum { TRY_EVERY = 16, PAYS = 24 };

typedef float tr_f32x4 __attribute__((vector_size(16)));
typedef int32_t tr_i32x4 __attribute__((vector_size(16)));
typedef float tr_f32x8 __attribute__((vector_size(32)));
typedef double tr_f64x8 __attribute__((vector_size(64)));

/* The two least scores of the rows of a tile, whose the least is, and what follows from them. */
struct tr_leaders {
    _Alignas(64) float best[TR_TILE_MOST], second[TR_TILE_MOST];
    _Alignas(64) int which[TR_TILE_MOST];
    _Alignas(64) float square[TR_TILE_MOST], upper[TR_TILE_MOST], lower[TR_TILE_MOST];
    _Alignas(64) int doubt[TR_TILE_MOST];
};

#define NAME(f) f##_plain
#include "model/kmeans/assign_kernel.h"
enum { TILE_PLAIN = TILE };
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include "model/kmeans/assign_kernel.h"
#pragma GCC pop_options
enum { TILE_AVX2 = TILE };
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "model/kmeans/assign_kernel.h"
#pragma GCC pop_options
enum { TILE_AVX512 = TILE };
#endif

/* The kernels of one level. */
struct level {
    size_t tile;
    void (*lead)(const float *const *, const struct tr_centres *, float *, struct tr_leaders *);
    void (*conclude)(struct tr_leaders *, float, float);
    void (*exact)(const float *, const float *, size_t, double *);
    float (*apart)(const float *, const float *, size_t);
};

static struct level level_of(enum tr_cpu cpu)
{
#ifdef TR_CPU_LEVELS
    if (cpu == TR_CPU_AVX512)
        return (struct level){TILE_AVX512, lead_avx512, conclude_avx512, exact_avx512, apart_avx512};
    if (cpu == TR_CPU_AVX2)
        return (struct level){TILE_AVX2, lead_avx2, conclude_avx2, exact_avx2, apart_avx2};
#else
    (void)cpu;
#endif
    return (struct level){TILE_PLAIN, lead_plain, conclude_plain, exact_plain, apart_plain};
}

/* ---- centres ---- */

static size_t padded(size_t k)
{
    return (k + TR_PANEL - 1) / TR_PANEL * TR_PANEL;
}

/* Zeros on a cache line of their own. */
static int new_lines(float **array, size_t n)
{
    size_t bytes = (n * sizeof **array + 63) / 64 * 64;
    *array = aligned_alloc(64, tr_max_size(bytes, 64));
    if (!*array) return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu bytes for centres", bytes);
    memset(*array, 0, bytes);
    return TR_OK;
}

int tr_centres_open(size_t k, size_t columns, struct tr_centres *c)
{
    *c = (struct tr_centres){.k = k, .columns = columns, .level = tr_cpu()};
    TR_TRY(new_lines(&c->value, k * columns));
    TR_TRY(new_lines(&c->before, k * columns));
    TR_TRY(new_lines(&c->packed, padded(k) * columns));
    TR_TRY(new_lines(&c->half, padded(k)));
    TR_TRY(new_lines(&c->moved, padded(k)));
    float *scratch = NULL;
    int status = new_lines(&scratch, columns * TR_TILE_MOST);
    c->scratch = scratch;
    return status;
}

void tr_centres_close(struct tr_centres *c)
{
    float *arrays[] = {c->value, c->before, c->packed, c->half, c->moved, c->scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *c = (struct tr_centres){0};
}

static float round_up(double x)
{
    return (float)(x * (1 + 4 * (double)ROUNDING));
}

static void pack(struct tr_centres *c, size_t j)
{
    const float *from = c->value + j * c->columns;
    float *to = c->packed + j / TR_PANEL * TR_PANEL * c->columns + j % TR_PANEL;
    for (size_t p = 0; p < c->columns; p++) to[p * TR_PANEL] = from[p];
}

static void find_movers(struct tr_centres *c)
{
    c->most[0] = c->most[1] = 0;
    c->mover = 0;
    for (size_t j = 0; j < c->k; j++) {
        double distance = tr_distance(c->value + j * c->columns, c->before + j * c->columns, c->columns);
        float moved = c->moved[j] = round_up(sqrt(distance));
        if (moved > c->most[0]) {
            c->most[1] = c->most[0];
            c->most[0] = moved;
            c->mover = (uint32_t)j;
        } else if (moved > c->most[1]) c->most[1] = moved;
    }
}

void tr_centres_ready(struct tr_centres *c)
{
    double longest = 0;
    for (size_t j = 0; j < padded(c->k); j++) {
        c->half[j] = FLT_MAX;
        if (j >= c->k) continue;
        double square = 0;
        for (size_t p = 0; p < c->columns; p++) {
            double v = (double)c->value[j * c->columns + p];
            square += v * v;
        }
        c->half[j] = (float)(square / 2);
        longest = fmax(longest, square);
        pack(c, j);
    }
    c->longest = round_up(sqrt(longest));
    if (c->seen) find_movers(c);
    c->seen = true;
    memcpy(c->before, c->value, c->k * c->columns * sizeof *c->value);
}

double tr_distance(const float *x, const float *c, size_t columns)
{
    double sum = 0;
    for (size_t p = 0; p < columns; p++) {
        double apart = (double)x[p] - (double)c[p];
        sum += apart * apart;
    }
    return sum;
}

static uint32_t nearest(const struct level *level, const struct tr_centres *c, const float *x,
                        double *distance)
{
    uint32_t best = 0;
    *distance = INFINITY;
    for (size_t j = 0; j < c->k; j += TR_PANEL) {
        double d[TR_PANEL];
        level->exact(x, c->packed + j * c->columns, c->columns, d);
        for (size_t i = 0; i < TR_PANEL && j + i < c->k; i++) {
            if (!(d[i] < *distance)) continue;
            *distance = d[i];
            best = (uint32_t)(j + i);
        }
    }
    return best;
}

uint32_t tr_nearest(const struct tr_centres *c, const float *x, double *distance)
{
    struct level level = level_of(c->level);
    return nearest(&level, c, x, distance);
}

/* ---- rows ---- */

int tr_assigned_open(const struct tr_centres *c, const float *x, size_t n, bool bounds,
                     struct tr_assigned *to)
{
    *to = (struct tr_assigned){.n = n, .tighten = true};
    TR_TRY(TR_NEW(&to->label, n));
    TR_TRY(TR_NEW(&to->square, n));
    memset(to->label, 0xff, n * sizeof *to->label);
    for (size_t i = 0; i < n; i++) {
        double square = 0;
        for (size_t p = 0; p < c->columns; p++) {
            double v = (double)x[i * c->columns + p];
            square += v * v;
        }
        to->square[i] = (float)square;
    }
    if (!bounds) return TR_OK;
    TR_TRY(TR_NEW(&to->upper, n));
    return TR_NEW(&to->lower, n);
}

void tr_assigned_close(struct tr_assigned *to)
{
    free(to->label);
    free(to->square);
    free(to->upper);
    free(to->lower);
    *to = (struct tr_assigned){0};
}

/* What tr_assign() was called with. */
struct pass {
    struct level level;
    const struct tr_centres *c;
    const float *x;
    struct tr_assigned *to;
    float wrong; /* see conclude() */
    tr_changed_fn *changed;
    void *who;
};

static void take(const struct pass *pass, const struct tr_leaders *at, size_t r, size_t row)
{
    struct tr_assigned *to = pass->to;
    uint32_t label = (uint32_t)at->which[r], old = to->label[row];
    if (at->doubt[r]) {
        double distance;
        label = nearest(&pass->level, pass->c, pass->x + row * pass->c->columns, &distance);
        to->doubtful++;
    }
    if (to->upper) {
        /* in doubt the two least are so close that either may be own or other */
        bool other = label != (uint32_t)at->which[r];
        to->upper[row] = other ? INFINITY : at->upper[r];
        to->lower[row] = other ? 0 : at->lower[r];
    }
    if (label == old) return;
    to->label[row] = label;
    pass->changed(pass->who, row, old, label);
}

static void assign_rows(const struct pass *pass, const uint32_t *list, size_t n, size_t first)
{
    struct tr_leaders at = {0};
    const float *row[TR_TILE_MOST];
    size_t tile = pass->level.tile, columns = pass->c->columns;
    for (size_t i = 0; i < n; i += tile) {
        for (size_t r = 0; r < tile; r++) { /* the last row fills up a tile */
            size_t which = first + list[tr_min_size(i + r, n - 1)];
            row[r] = pass->x + which * columns;
            at.square[r] = pass->to->square[which];
        }
        pass->level.lead(row, pass->c, pass->c->scratch, &at);
        pass->level.conclude(&at, pass->wrong, pass->c->longest);
        for (size_t r = 0; r < tile && i + r < n; r++) take(pass, &at, r, first + list[i + r]);
    }
    pass->to->computed += n;
}

/* Lists those of rows first .. first+n-1 whose bounds, after centres have moved, do not tell their label any more. */
static size_t test_bounds(const struct pass *pass, size_t first, size_t n, uint32_t *list)
{
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
        m += !(to->upper[row] < to->lower[row]);
    }
    return m;
}

/* Leaves out those whose distance from their own centre, computed, is below the lower bound. */
static size_t tighten(const struct pass *pass, size_t first, uint32_t *list, size_t n)
{
    const struct tr_centres *c = pass->c;
    struct tr_assigned *to = pass->to;
    float wrong = 1 + ROUNDING * (float)(c->columns + 8);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        size_t row = first + list[i];
        uint32_t label = to->label[row];
        list[m] = list[i];
        if (label != TR_NO_CENTRE) {
            float apart = pass->level.apart(pass->x + row * c->columns, c->value + label * c->columns, c->columns);
            to->upper[row] = sqrtf(apart) * wrong;
            if (to->upper[row] < to->lower[row]) continue;
        }
        m++;
    }
    return m;
}

static void assign_chunk(const struct pass *pass, size_t chunk, size_t first, size_t n)
{
    uint32_t list[CHUNK];
    size_t left = n;
    if (pass->to->upper) {
        left = test_bounds(pass, first, n, list);
        bool trial = chunk % TRY_EVERY == 0;
        if (left > 0 && (pass->to->tighten || trial)) {
            size_t before = left;
            left = tighten(pass, first, list, left);
            if (trial) pass->to->tighten = (before - left) * PAYS >= before;
        }
    } else {
        for (size_t i = 0; i < n; i++) list[i] = (uint32_t)i;
    }
    if (left > 0) assign_rows(pass, list, left, first);
}

void tr_assign(const struct tr_centres *c, const float *x, size_t first, size_t last, struct tr_assigned *to,
               tr_changed_fn *changed, void *who)
{
    struct pass pass = {.level = level_of(c->level),
                        .c = c,
                        .x = x,
                        .to = to,
                        .wrong = ROUNDING * (float)(c->columns + 12),
                        .changed = changed,
                        .who = who};
    for (size_t at = first, chunk = 0; at < last; at += CHUNK, chunk++)
        assign_chunk(&pass, chunk, at, tr_min_size(CHUNK, last - at));
}

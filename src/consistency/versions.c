/* Updates weighted by their staleness, and revised backwards.
 *
 * The updates of one version v, from whatever workers and whenever they come, count together as t(v) U(v): their sum and
 * a weight, which changes with each that comes. Whoever is behind the others revises an old version instead of pushing
 * the parameter with the full weight of an update that was computed elsewhere.
 *
 *   dyn         t(v) = 1/S(v), S(v) being the updates in v: their mean, as DynSGD has it (Jiang et al. 2017, section 5)
 *   dyn-stable  the same, but the value holds only the versions that all workers are past; whoever reads gets those
 *               above it added up to the version he asks for (section 6: partition synchronisation)
 *   agree       t(v) = Σ|u|² / 2|U(v)|², between 1/S(v) and 1: updates that say all the same are averaged, others are
 *               added up. (Up to 4 was a little faster where they cancel each other, and unsteady near the optimum.)
 *
 * That one rule of agree serves data whose workers pull in one direction, where sums overshoot, and data whose workers
 * do not, where means throw work away. It was found by simulation; each share judges by its own part of the updates.
 *
 * A version is a sorted list of units while it has less than half of them, then an array. In shares that grow it
 * stays a list.
 */
#include <stdlib.h>

#include "consistency/functions.h"

struct version {
    int64_t number;
    double count;           /* S: updates that are in it */
    double weight;          /* t: what their sum counts */
    double squares, square; /* Σ|u|² and |U|² */
    size_t n;               /* units listed */
    uint32_t *unit;         /* NULL: all units of the share */
    void *sum;              /* U */
};

/* The active versions, ascending. */
struct versions {
    struct version *version;
    size_t n, capacity;
};

static size_t unit_bytes(const tr_share *share)
{
    return share->width * tr_dtype_size(share->dtype);
}

static void drop(struct version *v)
{
    free(v->unit);
    free(v->sum);
}

static int open_versions(tr_share *share)
{
    if (share->dtype != TR_F32 && share->dtype != TR_F64)
        return tr_fail(
            TR_ERR_CONFIG,
            "table %s: weights by staleness are fractions, which integers have not: expected f32 or f64",
            share->table);
    struct versions *own;
    TR_TRY(TR_NEW(&own, 1));
    share->own = own;
    return TR_OK;
}

static void forget_below(struct versions *own, int64_t version)
{
    size_t gone = 0;
    while (gone < own->n && own->version[gone].number < version) drop(&own->version[gone++]);
    own->n -= gone;
    memmove(own->version, own->version + gone, own->n * sizeof *own->version);
}

static void close_versions(tr_share *share)
{
    struct versions *own = share->own;
    for (size_t i = 0; i < own->n; i++) drop(&own->version[i]);
    free(own->version);
    free(own);
}

static size_t versions_memory(const tr_share *share)
{
    const struct versions *own = share->own;
    size_t bytes = own->capacity * sizeof *own->version;
    for (size_t i = 0; i < own->n; i++) {
        const struct version *v = &own->version[i];
        bytes += v->unit ? v->n * (unit_bytes(share) + sizeof *v->unit) : share->units * unit_bytes(share);
    }
    return bytes;
}

/* What the worker has read, and its own updates since: the version that it computes for. */
static int map_version(const tr_share *share, const tr_update *u, int64_t *version)
{
    (void)share;
    *version = u->seen;
    return TR_OK;
}

static int find_version(struct versions *own, int64_t number, struct version **found)
{
    size_t i = own->n;
    while (i > 0 && own->version[i - 1].number >= number) i--;
    if (i == own->n || own->version[i].number != number) {
        TR_TRY(TR_GROW(&own->version, &own->capacity, own->n + 1));
        memmove(&own->version[i + 1], &own->version[i], (own->n++ - i) * sizeof *own->version);
        own->version[i] = (struct version){.number = number};
        TR_TRY(TR_NEW(&own->version[i].unit, 0));
    }
    *found = &own->version[i];
    return TR_OK;
}

/* ---- adding an update to its version ---- */

/* From here on the version is an array. */
static int make_dense(const tr_share *share, struct version *v)
{
    size_t bytes = unit_bytes(share);
    char *sum;
    TR_TRY(TR_NEW(&sum, share->units * bytes));
    for (size_t i = 0; i < v->n; i++)
        memcpy(sum + v->unit[i] * bytes, (const char *)v->sum + i * bytes, bytes);
    drop(v);
    v->unit = NULL;
    v->sum = sum;
    return TR_OK;
}

/* The sum as an array. */
static void revise_array(const tr_share *share, struct version *v, const tr_update *u, double old,
                         void *value)
{
    size_t width = share->width;
    TR_FOR_REAL(share->dtype, {
        const T *update = u->value;
        T *sum = v->sum, *w = value, weight = (T)v->weight, change = (T)(v->weight - old);
        for (size_t i = 0; w && v->count > 1 && i < share->units * width; i++) w[i] += change * sum[i];
        for (size_t i = 0; i < u->n; i++) {
            size_t at = (u->unit ? u->unit[i] : i) * width;
            for (size_t k = 0; k < width; k++) {
                sum[at + k] += update[i * width + k];
                if (w) w[at + k] += weight * update[i * width + k];
            }
        }
    })
}

/* The sum as a list: it and the update's ascend, and are merged into a new one of at most as many units as both. */
static size_t merge_lists(const tr_share *share, const struct version *v, const tr_update *u, double old,
                          void *value, uint32_t *unit, void *merged)
{
    size_t width = share->width, n = 0, i = 0, j = 0;
    TR_FOR_REAL(share->dtype, {
        T *sum = v->sum, *to = merged, *w = value, weight = (T)v->weight, change = (T)(v->weight - old);
        while (i < v->n || j < u->n) {
            uint32_t a = i < v->n ? v->unit[i] : UINT32_MAX, b = UINT32_MAX;
            if (j < u->n) b = u->unit ? u->unit[j] : (uint32_t)j;
            const T *before = a <= b ? sum + i++ * width : NULL;
            const T *more = b <= a ? (const T *)u->value + j++ * width : NULL;
            bool any = before != NULL; /* else there may be nothing new */
            for (size_t k = 0; k < width; k++) {
                T x = before ? before[k] : 0, y = more ? more[k] : 0;
                any = any || y != 0;
                to[n * width + k] = x + y;
                if (w) w[(before ? a : b) * width + k] += change * x + weight * y;
            }
            unit[n] = before ? a : b;
            n += any;
        }
    })
    return n;
}

static int revise_list(const tr_share *share, struct version *v, const tr_update *u, double old, void *value)
{
    size_t bytes = unit_bytes(share);
    uint32_t *unit;
    char *sum;
    TR_TRY(TR_NEW(&unit, v->n + u->n));
    TR_TRY(TR_NEW(&sum, (v->n + u->n) * bytes));
    size_t n = merge_lists(share, v, u, old, value, unit, sum);
    drop(v);
    TR_SHRINK(&unit, n); /* units that both have were counted twice */
    TR_SHRINK(&sum, n * bytes);
    v->unit = unit;
    v->sum = sum;
    v->n = n;
    return TR_OK;
}

/* One more update: it joins the sum, and the parameters, if they are given, move by as much as the version does. */
static int revise(const tr_share *share, struct version *v, const tr_update *u, double weight, void *value)
{
    double old = v->weight;
    v->weight = weight;
    if (v->unit && !share->growing && 2 * (v->n + u->n) > share->units) TR_TRY(make_dense(share, v));
    if (v->unit) return revise_list(share, v, u, old, value);
    revise_array(share, v, u, old, value);
    return TR_OK;
}

/* ---- reading a version ---- */

/* Where the version has a unit: its place in the sum, or SIZE_MAX. Units are asked for in ascending order; *next: where
 * the search goes on. */
static inline size_t place_of(const struct version *v, size_t unit, size_t *next)
{
    if (!v->unit) return unit;
    while (*next < v->n && v->unit[*next] < unit) ++*next;
    return *next < v->n && v->unit[*next] == unit ? *next : SIZE_MAX;
}

/* How much the updates of a version agree: 1/(2 S) if they are all the same, 1/2 if they are at right angles. */
static double agreement(struct version *v, const tr_share *share, const tr_update *u)
{
    double product = 0, square = 0;
    size_t width = share->width, next = 0;
    TR_FOR_REAL(share->dtype, {
        const T *sum = v->sum, *x = u->value;
        for (size_t i = 0; i < u->n; i++, x += width) {
            size_t at = place_of(v, u->unit ? u->unit[i] : i, &next);
            for (size_t k = 0; k < width; k++) square += (double)x[k] * (double)x[k];
            for (size_t k = 0; at != SIZE_MAX && k < width; k++)
                product += (double)x[k] * (double)sum[at * width + k];
        }
    })
    v->squares += square;
    v->square += 2 * product + square;
    double least = 1 / v->count, most = 1, t = v->square > 0 ? v->squares / (2 * v->square) : most;
    return t < least ? least : t > most ? most : t;
}

static int add_update(const tr_share *share, const tr_update *u, bool agree, void *value)
{
    struct version *v;
    TR_TRY(find_version(share->own, u->version, &v));
    v->count++;
    return revise(share, v, u, agree ? agreement(v, share, u) : 1 / v->count, value);
}

static int update_dyn(tr_share *share, const tr_update *u)
{
    return add_update(share, u, false, share->value);
}

static int update_stable(tr_share *share, const tr_update *u)
{
    return add_update(share, u, false, NULL);
}

static int update_agree(tr_share *share, const tr_update *u)
{
    return add_update(share, u, true, share->value);
}

static int expire_dyn(tr_share *share, int64_t version)
{
    forget_below(share->own, version);
    return TR_OK;
}

/* value += t(v) U(v) */
static int expire_stable(tr_share *share, int64_t version)
{
    struct versions *own = share->own;
    size_t width = share->width;
    for (const struct version *v = own->version; v < own->version + own->n && v->number < version; v++)
        TR_FOR_REAL(share->dtype, {
            const T *sum = v->sum, weight = (T)v->weight;
            T *value = share->value;
            for (size_t i = 0, n = v->unit ? v->n : share->units; i < n; i++)
                for (size_t k = 0, at = (v->unit ? v->unit[i] : i) * width; k < width; k++)
                    value[at + k] += weight * sum[i * width + k];
        })
    forget_below(own, version);
    return TR_OK;
}

/* The same for some units, which ascend, into packed memory. */
static int read_stable(const tr_share *share, int64_t version, size_t n, const uint32_t *unit, void *packed)
{
    const struct versions *own = share->own;
    size_t width = share->width;
    tr_gather(unit, n, unit_bytes(share), share->value, packed);
    for (const struct version *v = own->version; v < own->version + own->n && v->number < version; v++)
        TR_FOR_REAL(share->dtype, {
            const T *sum = v->sum, weight = (T)v->weight;
            T *to = packed;
            for (size_t i = 0, next = 0; i < n; i++, to += width) {
                size_t at = place_of(v, unit ? unit[i] : i, &next);
                for (size_t k = 0; at != SIZE_MAX && k < width; k++) to[k] += weight * sum[at * width + k];
            }
        })
    return TR_OK;
}

#define VERSIONS(NAME, UPDATE, EXPIRE, READ)                                                                 \
    {                                                                                                        \
        .name = NAME, .sparse = true, .open = open_versions, .close = close_versions, .map = map_version,    \
        .update = UPDATE, .expire = EXPIRE, .read = READ, .memory = versions_memory                          \
    }

const tr_function tr_dyn_function = VERSIONS("dyn", update_dyn, expire_dyn, NULL);
const tr_function tr_agree_function = VERSIONS("agree", update_agree, expire_dyn, NULL);
const tr_function tr_dyn_stable_function = VERSIONS("dyn-stable", update_stable, expire_stable, read_stable);

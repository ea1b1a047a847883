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
#include <string.h>

#include "base/base.h"
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
    return share->width * (share->dtype == TR_F32 ? sizeof(float) : sizeof(double));
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

/* ---- arithmetic, by type ---- */

#define DYN_REAL  float
#define DYN(name) name##_f32
#include "consistency/versions_real.h"
#undef DYN_REAL
#undef DYN
#define DYN_REAL  double
#define DYN(name) name##_f64
#include "consistency/versions_real.h"
#undef DYN_REAL
#undef DYN

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

/* One more update: it joins the sum, and the parameters, if they are given, move by as much as the version does. */
static int revise(const tr_share *share, struct version *v, const tr_update *u, double weight, void *value)
{
    double old = v->weight;
    v->weight = weight;
    if (v->unit && !share->growing && 2 * (v->n + u->n) > share->units) TR_TRY(make_dense(share, v));
    if (v->unit)
        return share->dtype == TR_F32 ? revise_list_f32(share->width, v, u, old, value)
                                      : revise_list_f64(share->width, v, u, old, value);
    if (share->dtype == TR_F32) revise_array_f32(share->units, share->width, v, u, old, value);
    else revise_array_f64(share->units, share->width, v, u, old, value);
    return TR_OK;
}

static int update_dyn(tr_share *share, const tr_update *u)
{
    struct version *v;
    TR_TRY(find_version(share->own, u->version, &v));
    return revise(share, v, u, 1 / ++v->count, share->value);
}

static int update_stable(tr_share *share, const tr_update *u)
{
    struct version *v;
    TR_TRY(find_version(share->own, u->version, &v));
    return revise(share, v, u, 1 / ++v->count, NULL);
}

/* How much the updates of a version agree: 1/(2 S) if they are all the same, 1/2 if they are at right angles. */
static double agreement(struct version *v, const tr_share *share, const tr_update *u)
{
    double product = 0, square = 0;
    if (share->dtype == TR_F32) products_f32(share->width, v, u, &product, &square);
    else products_f64(share->width, v, u, &product, &square);
    v->squares += square;
    v->square += 2 * product + square;
    double least = 1 / v->count, most = 1, t = v->square > 0 ? v->squares / (2 * v->square) : most;
    return t < least ? least : t > most ? most : t;
}

static int update_agree(tr_share *share, const tr_update *u)
{
    struct version *v;
    TR_TRY(find_version(share->own, u->version, &v));
    v->count++;
    return revise(share, v, u, agreement(v, share, u), share->value);
}

static void forget_below(struct versions *own, int64_t version)
{
    size_t gone = 0;
    while (gone < own->n && own->version[gone].number < version) drop(&own->version[gone++]);
    own->n -= gone;
    memmove(own->version, own->version + gone, own->n * sizeof *own->version);
}

static int expire_dyn(tr_share *share, int64_t version)
{
    forget_below(share->own, version);
    return TR_OK;
}

/* value += t(v) U(v) */
static void add_version(const tr_share *share, const struct version *v)
{
    if (share->dtype == TR_F32) add_all_f32(share->units, share->width, v, share->value);
    else add_all_f64(share->units, share->width, v, share->value);
}

static int expire_stable(tr_share *share, int64_t version)
{
    struct versions *own = share->own;
    for (size_t i = 0; i < own->n && own->version[i].number < version; i++)
        add_version(share, &own->version[i]);
    forget_below(own, version);
    return TR_OK;
}

static int read_stable(const tr_share *share, int64_t version, size_t n, const uint32_t *unit, void *packed)
{
    const struct versions *own = share->own;
    size_t bytes = unit_bytes(share);
    const char *value = share->value;
    for (size_t i = 0; i < n; i++)
        memcpy((char *)packed + i * bytes, value + (unit ? unit[i] : i) * bytes, bytes);
    for (size_t k = 0; k < own->n && own->version[k].number < version; k++) {
        if (share->dtype == TR_F32) add_some_f32(share->width, &own->version[k], n, unit, packed);
        else add_some_f64(share->width, &own->version[k], n, unit, packed);
    }
    return TR_OK;
}

const tr_function tr_dyn_function = {.name = "dyn",
                                     .sparse = true,
                                     .open = open_versions,
                                     .close = close_versions,
                                     .map = map_version,
                                     .update = update_dyn,
                                     .expire = expire_dyn,
                                     .memory = versions_memory};

const tr_function tr_agree_function = {.name = "agree",
                                       .sparse = true,
                                       .open = open_versions,
                                       .close = close_versions,
                                       .map = map_version,
                                       .update = update_agree,
                                       .expire = expire_dyn,
                                       .memory = versions_memory};

const tr_function tr_dyn_stable_function = {.name = "dyn-stable",
                                            .sparse = true,
                                            .open = open_versions,
                                            .close = close_versions,
                                            .map = map_version,
                                            .update = update_stable,
                                            .expire = expire_stable,
                                            .read = read_stable,
                                            .memory = versions_memory};

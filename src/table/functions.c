/* Built-in server functions and answers, and optimizers. */

#include <stdlib.h>
#include <string.h>
#include <tgmath.h> /* so that sqrt() of a float is a float */

#include "table/server.h"

/* ======== arithmetic and optimizers ======== */

/* ---- arithmetic: value = f(value, update) ---- */

/* Returns whether n ascending units are contiguous, so that a fast loop over contiguous memory can be used. If unit is NULL, the
 * units are 0 .. n-1. Sets *first to the first unit. */
static inline bool units_in_a_row(const uint32_t *unit, size_t n, size_t *first)
{
    *first = unit && n > 0 ? unit[0] : 0;
    return !unit || n == 0 || unit[n - 1] - unit[0] == n - 1;
}

/* Rounds a real to int64_t, limited to the range of the type. */
static inline int64_t function_whole(double x)
{
    static const double edge = 9.2e18;
    return llrint(x > edge ? edge : x > -edge ? x : -edge);
}

/* Returns the rate of server function scale: its argument or, if it has no argument, 1 / number of pushers. */
static double scale_rate(const tr_share *share)
{
    double rate = 1.0 / tr_max_int(share->pushers, 1);
    if (share->argument) memcpy(&rate, share->argument, sizeof rate);
    return rate;
}

/* Defines update_NAME(), which replaces each element v of the share by RESULT; u is the corresponding element of the update. */
#define ARITHMETIC(NAME, RESULT)                                                                             \
    static int update_##NAME(tr_share *share, const tr_update *update)                                       \
    {                                                                                                        \
        const uint32_t *unit = update->unit;                                                                 \
        size_t n = update->n, width = share->width, first;                                                   \
        double rate = scale_rate(share);                                                                     \
        (void)rate;                                                                                          \
        if (units_in_a_row(unit, n, &first)) n *= width, first *= width, width = 1, unit = NULL;             \
        TR_FOR_TYPE(share->dtype, {                                                                          \
            const T *from = update->value;                                                                   \
            T *to = share->value;                                                                            \
            for (size_t i = 0; !unit && i < n; i++) {                                                        \
                T v = to[first + i], u = from[i];                                                            \
                (void)v;                                                                                     \
                to[first + i] = (T)(RESULT);                                                                 \
            }                                                                                                \
            for (size_t i = 0; unit && i < n; i++)                                                           \
                for (size_t k = 0; k < width; k++) {                                                         \
                    T v = to[unit[i] * width + k], u = from[i * width + k];                                  \
                    (void)v;                                                                                 \
                    to[unit[i] * width + k] = (T)(RESULT);                                                   \
                }                                                                                            \
        })                                                                                                   \
        return TR_OK;                                                                                        \
    }

ARITHMETIC(add, v + u)
ARITHMETIC(assign, u)
ARITHMETIC(max, u > v ? u : v)
ARITHMETIC(scale,
           (T)0.5 != 0 ? (T)((double)v + rate * (double)u) : (T)(v + (T)function_whole(rate * (double)u)))

static int scale_open(tr_share *share)
{
    if (isfinite(scale_rate(share))) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "table %s: scale: the rate is %g: expected a number", share->table,
                   scale_rate(share));
}

/* ---- optimizers ---- */

static int optimizer_open(tr_share *share, enum tr_optimizer_kind kind)
{
    const char *name = tr_optimizer_name(kind);
    const tr_optimizer *given = share->argument;
    tr_optimizer resolved;
    if (share->dtype != TR_F32 && share->dtype != TR_F64)
        return tr_fail(TR_ERR_CONFIG, "table %s: %s needs real numbers: expected TR_F32 or TR_F64",
                       share->table, name);
    if (!given)
        return tr_fail(TR_ERR_CONFIG, "table %s: %s needs its settings: expected a tr_optimizer as argument",
                       share->table, name);
    if (given->kind != kind)
        return tr_fail(TR_ERR_CONFIG, "table %s: the settings are of optimizer %s, the function is %s",
                       share->table, tr_optimizer_name(given->kind) ? tr_optimizer_name(given->kind) : "?",
                       name);
    int status = tr_optimizer_resolve(given, &resolved);
    return status == TR_OK ? TR_OK : tr_fail(status, "table %s: %s", share->table, tr_error_text());
}

/* Takes a step on the units first .. first + n - 1 of an update. */
static void optimizer_step_units(tr_share *share, const tr_update *u, const tr_optimizer *o, size_t first,
                                 size_t n)
{
    size_t begin, bytes = share->width * tr_dtype_size(share->dtype);
    bool in_a_row = units_in_a_row(u->unit, u->n, &begin);
    size_t skip = in_a_row ? (begin + first) * bytes : 0;
    void *state[TR_STATE_ARRAYS];
    for (size_t a = 0; a < TR_STATE_ARRAYS; a++)
        state[a] = share->state[a] ? (char *)share->state[a] + skip : NULL;
    tr_optimizer_step(o, share->dtype, u->clock, n, share->width, in_a_row ? NULL : u->unit + first,
                      (const char *)u->value + first * bytes, (char *)share->value + skip, state);
}

static int optimizer_update(tr_share *share, const tr_update *u)
{
    const tr_optimizer *o = share->argument;
    tr_optimizer free = *o;
    size_t first = 0, unit;
    free.l1 = 0;
    for (uint32_t piece = 0; o->l1 > 0 && o->l1_keys > 0 && piece < tr_share_pieces(share); piece++) {
        if (!tr_share_find(share, o->l1_keys, piece, &unit)) continue;
        size_t at = u->unit ? u->n : unit + 1; /* behind the unit in the update, if it has the unit */
        while (u->unit && at > first && u->unit[at - 1] > unit) at--;
        if (at == first || at > u->n || (u->unit && u->unit[at - 1] != unit)) continue;
        at--;
        optimizer_step_units(share, u, o, first, at - first);
        optimizer_step_units(share, u, &free, at, 1);
        first = at + 1;
    }
    optimizer_step_units(share, u, o, first, u->n - first);
    return TR_OK;
}

/* Defines the open() of an optimizer. Each optimizer has its own open(), because open() does not get the name of the function. */
#define OPEN(NAME, KIND)                                                                                     \
    static int open_##NAME(tr_share *share)                                                                  \
    {                                                                                                        \
        return optimizer_open(share, KIND);                                                                  \
    }

OPEN(sgd, TR_SGD)
OPEN(momentum, TR_MOMENTUM)
OPEN(nesterov, TR_NESTEROV)
OPEN(adagrad, TR_ADAGRAD)
OPEN(adadelta, TR_ADADELTA)
OPEN(rmsprop, TR_RMSPROP)
OPEN(adam, TR_ADAM)
OPEN(ftrl, TR_FTRL)

/* ======== versions ======== */

/* Server functions that weight updates by their staleness.
 *
 * The version of an update is that of the values from which it was computed. U(v) is the sum of all updates u of version v so far,
 * and S(v) their number. Together they change the parameters by t(v) U(v), with a weight t(v) that is computed again after each
 * update. So a late update changes the contribution of its old version, instead of being added with full weight.
 *
 *   dyn         t(v) = 1/S(v): the mean of the updates (DynSGD, Jiang et al. 2017, section 5)
 *   dyn-stable  t(v) as dyn, but the stored value contains only versions that all workers have passed; a read adds later versions,
 *               up to the requested one (section 6: partition synchronisation)
 *   agree       t(v) = Σ|u|² / 2|U(v)|², limited to 1/S(v) .. 1. (A limit of 4 instead of 1 was slightly faster if updates cancel
 *               each other, but unstable near the optimum.)
 *
 * The rule of agree was found by simulation. It approximately averages updates that have one direction, because their sum would
 * overshoot, and adds orthogonal updates, because their mean would waste work. Each share applies it to its part of the updates.
 *
 * The sum of a version is a list of units while it has less than half of all units, then an array (not with hash storage).
 */

struct version {
    int64_t number;
    double count;           /* S(v) */
    double weight;          /* t(v) */
    double squares, square; /* Σ|u|² and |U(v)|², for agree */
    size_t n;               /* number of units in the list */
    uint32_t *unit;         /* the list, ascending; NULL: sum has all units of the share */
    /* values of U(v): for each unit of the list or, without a list, for each unit of the share */
    void *sum;
};

/* The versions that have not expired, ascending. */
struct versions {
    struct version *version;
    size_t n, capacity;
};

static size_t version_unit_bytes(const tr_share *share)
{
    return share->width * tr_dtype_size(share->dtype);
}

static void version_drop(struct version *v)
{
    TR_FREE_ALL(v->unit, v->sum);
}

static int versions_open(tr_share *share)
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

/* Frees all versions whose number is below `version`. */
static int versions_expire(tr_share *share, int64_t version)
{
    struct versions *own = share->own;
    size_t gone = 0;
    while (gone < own->n && own->version[gone].number < version) version_drop(&own->version[gone++]);
    own->n -= gone;
    memmove(own->version, own->version + gone, own->n * sizeof *own->version);
    return TR_OK;
}

static void versions_close(tr_share *share)
{
    struct versions *own = share->own;
    (void)versions_expire(share, INT64_MAX);
    TR_FREE_ALL(own->version, own);
}

static size_t versions_memory(const tr_share *share)
{
    const struct versions *own = share->own;
    size_t bytes = own->capacity * sizeof *own->version;
    for (size_t i = 0; i < own->n; i++) {
        const struct version *v = &own->version[i];
        bytes += v->unit ? v->n * (version_unit_bytes(share) + sizeof *v->unit)
                         : share->units * version_unit_bytes(share);
    }
    return bytes;
}

/* Returns the version of an update: the version that the worker read last, plus the number of updates that it has pushed since. */
static int versions_map(const tr_share *share, const tr_update *u, int64_t *version)
{
    (void)share;
    *version = u->seen;
    return TR_OK;
}

static int version_find(struct versions *own, int64_t number, struct version **found)
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

/* Adds an update to a sum that is a list, by merging both lists into a new one. Also adds the change of t(v) U(v) to `value`,
 * unless `value` is NULL. old: t(v) before the update. */
static int version_revise_list(const tr_share *share, struct version *v, const tr_update *u, double old,
                               void *value)
{
    size_t bytes = version_unit_bytes(share), width = share->width, n = 0, i = 0, j = 0;
    uint32_t *unit;
    char *merged;
    TR_TRY(TR_NEW(&unit, v->n + u->n));
    TR_TRY(TR_NEW(&merged, (v->n + u->n) * bytes));
    TR_FOR_REAL(share->dtype, {
        T *sum = v->sum, *to = (T *)(void *)merged, *w = value;
        T weight = (T)v->weight, change = (T)(v->weight - old);
        while (i < v->n || j < u->n) {
            uint32_t a = i < v->n ? v->unit[i] : UINT32_MAX, b = UINT32_MAX;
            if (j < u->n) b = u->unit ? u->unit[j] : (uint32_t)j;
            const T *before = a <= b ? sum + i++ * width : NULL;
            const T *more = b <= a ? (const T *)u->value + j++ * width : NULL;
            /* false: the unit is not in the list, and its update is zero, so it is omitted */
            bool any = before != NULL;
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
    version_drop(v);
    TR_SHRINK(&unit, n); /* releases memory: units that both lists have were counted twice */
    TR_SHRINK(&merged, n * bytes);
    v->unit = unit;
    v->sum = merged;
    v->n = n;
    return TR_OK;
}

/* ---- reading a version ---- */

/* Returns the index of a unit in the sum of a version, or SIZE_MAX if the sum does not have the unit. Look up units in ascending
 * order; set *next = 0 before the first look-up. */
static inline size_t version_place(const struct version *v, size_t unit, size_t *next)
{
    if (!v->unit) return unit;
    while (*next < v->n && v->unit[*next] < unit) ++*next;
    return *next < v->n && v->unit[*next] == unit ? *next : SIZE_MAX;
}

/* Adds an update to Σ|u|² and |U(v)|², and returns t(v) of agree. */
static double version_agreement(struct version *v, const tr_share *share, const tr_update *u)
{
    double product = 0, square = 0;
    size_t width = share->width, next = 0;
    TR_FOR_REAL(share->dtype, {
        const T *sum = v->sum, *x = u->value;
        for (size_t i = 0; i < u->n; i++, x += width) {
            size_t at = version_place(v, u->unit ? u->unit[i] : i, &next);
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

static int version_add_update(const tr_share *share, const tr_update *u, bool agree, void *value)
{
    struct version *v;
    TR_TRY(version_find(share->own, u->version, &v));
    v->count++;
    /* adds the update to U(v), and the change of t(v) U(v) to `value`, unless `value` is NULL */
    double weight = agree ? version_agreement(v, share, u) : 1 / v->count;
    double old = v->weight;
    v->weight = weight;
    if (v->unit && !share->growing && 2 * (v->n + u->n) > share->units) {
        /* the list may get half of all units: replaces it by an array with all units */
        size_t bytes = version_unit_bytes(share);
        char *sum;
        TR_TRY(TR_NEW(&sum, share->units * bytes));
        for (size_t i = 0; i < v->n; i++)
            memcpy(sum + v->unit[i] * bytes, (const char *)v->sum + i * bytes, bytes);
        version_drop(v);
        v->unit = NULL;
        v->sum = sum;
    }
    if (v->unit) return version_revise_list(share, v, u, old, value);
    TR_FOR_REAL(share->dtype, {
        const size_t width = share->width;
        const T *update = u->value;
        T *sum = v->sum, *w = value, change = (T)(weight - old);
        for (size_t i = 0; w && v->count > 1 && i < share->units * width; i++) w[i] += change * sum[i];
        for (size_t i = 0; i < u->n; i++) {
            size_t at = (u->unit ? u->unit[i] : i) * width;
            for (size_t k = 0; k < width; k++) {
                sum[at + k] += update[i * width + k];
                if (w) w[at + k] += (T)weight * update[i * width + k];
            }
        }
    })
    return TR_OK;
}

static int update_dyn(tr_share *share, const tr_update *u)
{
    return version_add_update(share, u, false, share->value);
}

static int update_stable(tr_share *share, const tr_update *u)
{
    return version_add_update(share, u, false, NULL);
}

static int update_agree(tr_share *share, const tr_update *u)
{
    return version_add_update(share, u, true, share->value);
}

/* For all versions below `version`: adds t(v) U(v) to the values of the share, and frees the version. */
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
    return versions_expire(share, version);
}

/* Computes the values of n ascending units as of `version`: the stored value plus t(v) U(v) of all versions below `version`. */
static int read_stable(const tr_share *share, int64_t version, size_t n, const uint32_t *unit, void *packed)
{
    const struct versions *own = share->own;
    size_t width = share->width;
    tr_gather(unit, n, version_unit_bytes(share), share->value, packed);
    for (const struct version *v = own->version; v < own->version + own->n && v->number < version; v++)
        TR_FOR_REAL(share->dtype, {
            const T *sum = v->sum, weight = (T)v->weight;
            T *to = packed;
            for (size_t i = 0, next = 0; i < n; i++, to += width) {
                size_t at = version_place(v, unit ? unit[i] : i, &next);
                for (size_t k = 0; at != SIZE_MAX && k < width; k++) to[k] += weight * sum[at * width + k];
            }
        })
    return TR_OK;
}

/* ======== answers ======== */

/* Returns one element as a double. (Loops over many elements use TR_FOR_TYPE, which is faster.) */
static double answer_element(const tr_share *share, size_t at)
{
    TR_FOR_TYPE(share->dtype, { return (double)((const T *)share->value)[at]; })
    return 0;
}

/* ---- questions and results ---- */

static int answer_question(const char *answer, const void *question, size_t bytes, void *into, size_t wanted)
{
    if (bytes != wanted)
        return tr_fail(TR_ERR_INTERNAL, "answer %s: a question of %zu bytes: expected %zu", answer, bytes,
                       wanted);
    if (wanted > 0) memcpy(into, question, wanted);
    return TR_OK;
}

static int answer_result(const char *answer, const void *from, size_t n, void *result, size_t *bytes)
{
    if (*bytes < n)
        return tr_fail(TR_ERR_INTERNAL, "answer %s: room for a result of %zu bytes: expected %zu", answer,
                       *bytes, n);
    memcpy(result, from, n);
    *bytes = n;
    return TR_OK;
}

/* Adds one server's part to a result, 8 bytes at a time: word i as uint64_t if bit i of `counts` is set, otherwise as double. */
static int answer_add_words(void *result, size_t bytes, const void *part, size_t part_bytes, unsigned counts)
{
    if (bytes != part_bytes)
        return tr_fail(TR_ERR_INTERNAL, "parts of an answer differ in size: %zu and %zu bytes", bytes,
                       part_bytes);
    for (size_t i = 0; i < bytes / 8; i++) {
        union {
            double real;
            uint64_t count;
        } sum, more;
        memcpy(&sum, (char *)result + 8 * i, sizeof sum);
        memcpy(&more, (const char *)part + 8 * i, sizeof more);
        if (i < 2 && (counts >> i & 1)) sum.count += more.count;
        else sum.real += more.real;
        memcpy((char *)result + 8 * i, &sum, sizeof sum);
    }
    return TR_OK;
}

int tr_answer_add_doubles(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return answer_add_words(result, *bytes, part, part_bytes, 0);
}

static int answer_add_count(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return answer_add_words(result, *bytes, part, part_bytes, 1);
}

/* Adds one server's struct tr_dot, a double and a count, to the result. */
static int answer_add_dot(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    (void)room;
    return answer_add_words(result, *bytes, part, part_bytes, 2);
}

/* ---- sums over all elements: four partial sums, whose order depends on the number of elements only ---- */

/* Defines get_NAME(), which answers the sum of TERM over the share's elements v. */
#define SUM(NAME, RESULT, TERM)                                                                              \
    static int get_##NAME(const tr_share *share, const void *question, size_t question_bytes, void *result,  \
                          size_t *bytes)                                                                     \
    {                                                                                                        \
        RESULT sum[4] = {0, 0, 0, 0};                                                                        \
        size_t n = share->units * share->width, fours = n / 4 * 4;                                           \
        TR_TRY(answer_question(#NAME, question, question_bytes, NULL, 0));                                   \
        TR_FOR_TYPE(share->dtype, {                                                                          \
            const T *a = share->value;                                                                       \
            for (size_t i = 0; i < fours; i += 4)                                                            \
                for (size_t k = 0; k < 4; k++) {                                                             \
                    T v = a[i + k];                                                                          \
                    sum[k] += TERM;                                                                          \
                }                                                                                            \
            for (size_t i = fours; i < n; i++) {                                                             \
                T v = a[i];                                                                                  \
                sum[0] += TERM;                                                                              \
            }                                                                                                \
        })                                                                                                   \
        sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);                                                      \
        return answer_result(#NAME, sum, sizeof *sum, result, bytes);                                        \
    }

SUM(squares, double, (double)v *(double)v)
SUM(sum1, double, fabs((double)v))
SUM(nonzeros, uint64_t, v != 0)

/* ---- dot ---- */

static int get_dot(const tr_share *share, const void *question, size_t question_bytes, void *result,
                   size_t *bytes)
{
    tr_key key[2];
    struct tr_dot dot = {0};
    TR_TRY(answer_question("dot", question, question_bytes, key, sizeof key));
    for (uint32_t piece = 0; piece < tr_share_pieces(share); piece++) {
        size_t a, b;
        if (!tr_share_has_place(share, key[0], piece) || !tr_share_has_place(share, key[1], piece)) continue;
        dot.pieces++;
        if (!tr_share_find(share, key[0], piece, &a) || !tr_share_find(share, key[1], piece, &b)) continue;
        for (size_t i = 0; i < share->width; i++)
            dot.sum +=
                answer_element(share, a * share->width + i) * answer_element(share, b * share->width + i);
    }
    return answer_result("dot", &dot, sizeof dot, result, bytes);
}

/* ---- top ---- */

/* Compares two pairs for qsort(): the larger absolute value comes first, of equal values the lower key, so that parts can be
 * combined in any order. NaN comes before all numbers, so that callers notice it. */
static int top_compare(const void *a, const void *b)
{
    const struct tr_top_pair *p = a, *q = b;
    double x = isnan(p->value) ? INFINITY : fabs(p->value), y = isnan(q->value) ? INFINITY : fabs(q->value);
    if (x != y) return x > y ? -1 : 1;
    return (p->key > q->key) - (p->key < q->key);
}

static size_t top_bytes(uint32_t n)
{
    return sizeof(struct tr_top) + n * sizeof(struct tr_top_pair);
}

/* Sorts n pairs, and writes the first k of them as the result of answer top. */
static void top_result(struct tr_top_pair *pair, size_t n, uint32_t k, void *result, size_t *bytes)
{
    struct tr_top top = {.k = k, .n = (uint32_t)tr_min_size(n, k)};
    qsort(pair, n, sizeof *pair, top_compare);
    memcpy(result, &top, sizeof top);
    memcpy((char *)result + sizeof top, pair, top.n * sizeof *pair);
    *bytes = top_bytes(top.n);
}

static int get_top(const tr_share *share, const void *question, size_t question_bytes, void *result,
                   size_t *bytes)
{
    uint32_t k = 0;
    TR_TRY(answer_question("top", question, question_bytes, &k, sizeof k));
    if (share->width != 1)
        return tr_fail(TR_ERR_INTERNAL, "answer top: table %s has rows of %zu elements: expected one row",
                       share->table, share->width);
    if (*bytes < top_bytes(k))
        return tr_fail(TR_ERR_INTERNAL, "answer top: room for %zu bytes: expected %zu, for %u pairs", *bytes,
                       top_bytes(k), k);
    size_t most = tr_min_size(k, share->units), n = 0;
    TR_FREED struct tr_top_pair *pair = NULL;
    TR_TRY(TR_NEW(&pair, 2 * most));
    double least = 0; /* the smallest of the `most` largest absolute values so far */
    for (size_t unit = 0; unit < share->units && most > 0; unit++) {
        double value = answer_element(share, unit);
        if (value == 0 || fabs(value) < least) continue;
        pair[n++] = (struct tr_top_pair){tr_share_key(share, unit), value};
        if (n < 2 * most) continue;
        qsort(pair, n, sizeof *pair, top_compare);
        n = most;
        least = isnan(pair[n - 1].value) ? INFINITY : fabs(pair[n - 1].value);
    }
    top_result(pair, n, k, result, bytes);
    return TR_OK;
}

static int top_combine(void *result, size_t *bytes, size_t room, const void *part, size_t part_bytes)
{
    struct tr_top a, b;
    TR_FREED struct tr_top_pair *pair = NULL;
    memcpy(&a, result, sizeof a);
    memcpy(&b, part, sizeof b);
    if (top_bytes(a.n) != *bytes || top_bytes(b.n) != part_bytes || a.k != b.k || room < top_bytes(a.k))
        return tr_fail(TR_ERR_INTERNAL, "parts of an answer do not belong together");
    TR_TRY(TR_NEW(&pair, (size_t)a.n + b.n));
    memcpy(pair, (char *)result + sizeof a, a.n * sizeof *pair);
    memcpy(pair + a.n, (const char *)part + sizeof b, b.n * sizeof *pair);
    top_result(pair, (size_t)a.n + b.n, a.k, result, bytes);
    return TR_OK;
}

/* ---- present ---- */

/* Counts the units that are stored among those of a range of keys. Loops over the shorter of two lists: the units of the share or
 * the keys of the range. */
static int get_present(const tr_share *share, const void *question, size_t question_bytes, void *result,
                       size_t *bytes)
{
    struct tr_range range;
    uint64_t present = 0;
    TR_TRY(answer_question("present", question, question_bytes, &range, sizeof range));
    for (size_t unit = 0; unit < share->units && share->units < range.n; unit++)
        present += tr_share_key(share, unit) - range.first < range.n;
    for (tr_key k = 0; k < range.n && share->units >= range.n; k++)
        for (uint32_t piece = 0; piece < tr_share_pieces(share); piece++) {
            size_t unit;
            present += tr_share_find(share, range.first + k, piece, &unit);
        }
    return answer_result("present", &present, sizeof present, result, bytes);
}

/* ---- soft: values moved towards 0 by a threshold ---- */

/* In a server's part of the answer, keys of other servers are 0, so that the parts can be added. */
static int get_soft(const tr_share *share, const void *question, size_t question_bytes, void *result,
                    size_t *bytes)
{
    struct tr_soft soft;
    TR_TRY(answer_question("soft", question, question_bytes, &soft, sizeof soft));
    size_t pieces = tr_share_pieces(share), row = pieces * share->width * sizeof(double);
    if (soft.n > *bytes / row)
        return tr_fail(TR_ERR_INTERNAL, "answer soft: room for %zu bytes: expected %zu for each of %llu keys",
                       *bytes, row, (unsigned long long)soft.n);
    *bytes = (size_t)soft.n * row;
    memset(result, 0, *bytes);
    for (tr_key k = 0; k < soft.n; k++)
        for (uint32_t piece = 0; piece < pieces; piece++) {
            size_t unit;
            if (!tr_share_find(share, soft.first + k, piece, &unit)) continue;
            for (size_t i = 0; i < share->width; i++) {
                double v = answer_element(share, unit * share->width + i), beyond = fabs(v) - soft.threshold;
                v = beyond > 0 ? copysign(beyond, v) : isnan(v) ? v : 0;
                memcpy((char *)result + ((k * pieces + piece) * share->width + i) * sizeof v, &v, sizeof v);
            }
        }
    return TR_OK;
}

/* ======== optimizers ======== */

static const struct {
    const char *name;
    size_t arrays;
    double memory, epsilon; /* values of these settings if the model does not set them */
} optimizer_kinds[] = {
    [TR_SGD] = {"sgd", 0, 0.9, 1e-8},
    [TR_MOMENTUM] = {"momentum", 1, 0.9, 1e-8},
    [TR_NESTEROV] = {"nesterov", 1, 0.9, 1e-8},
    [TR_ADAGRAD] = {"adagrad", 1, 0.9, 1e-8},
    [TR_ADADELTA] = {"adadelta", 2, 0.99, 1e-6},
    [TR_RMSPROP] = {"rmsprop", 1, 0.99, 1e-8},
    [TR_ADAM] = {"adam", 2, 0.999, 1e-8},
    [TR_FTRL] = {"ftrl", 2, 0.9, 1e-8},
};

static bool optimizer_is_kind(enum tr_optimizer_kind kind)
{
    return (size_t)kind < sizeof optimizer_kinds / sizeof *optimizer_kinds;
}

const char *tr_optimizer_name(enum tr_optimizer_kind kind)
{
    return optimizer_is_kind(kind) ? optimizer_kinds[kind].name : NULL;
}

size_t tr_optimizer_arrays(enum tr_optimizer_kind kind)
{
    return optimizer_is_kind(kind) ? optimizer_kinds[kind].arrays : 0;
}

/* ---- settings ---- */

static tr_optimizer optimizer_fill_in(const tr_optimizer *optimizer)
{
    tr_optimizer o = *optimizer;
    if (o.memory <= 0) o.memory = optimizer_kinds[o.kind].memory;
    if (o.epsilon <= 0) o.epsilon = optimizer_kinds[o.kind].epsilon;
    return o;
}

/* Checks the value x of a setting, which must be finite. fits: x is in the range that `expected` describes. */
static int optimizer_check(const tr_optimizer *o, const char *what, double x, bool fits, const char *expected)
{
    if (isfinite(x) && fits) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "optimizer %s: %s is %g: expected %s", optimizer_kinds[o->kind].name, what,
                   x, expected);
}

int tr_optimizer_resolve(const tr_optimizer *optimizer, tr_optimizer *resolved)
{
    if (!optimizer_is_kind(optimizer->kind))
        return tr_fail(TR_ERR_CONFIG, "there is no optimizer of kind %d", (int)optimizer->kind);
    tr_optimizer o = optimizer_fill_in(optimizer);
    TR_TRY(optimizer_check(&o, "rate", o.rate, o.rate > 0, "a number above 0"));
    TR_TRY(optimizer_check(&o, "decay", o.decay, o.decay >= 0, "0 or more"));
    TR_TRY(optimizer_check(&o, "horizon", o.horizon, o.horizon >= 0, "0 or more"));
    TR_TRY(optimizer_check(&o, "momentum", o.momentum, o.momentum >= 0 && o.momentum < 1,
                           "0 or more, less than 1"));
    TR_TRY(optimizer_check(&o, "memory", o.memory, o.memory < 1, "less than 1"));
    TR_TRY(optimizer_check(&o, "epsilon", o.epsilon, true, "a number"));
    TR_TRY(optimizer_check(&o, "l1", o.l1, o.l1 >= 0, "0 or more"));
    TR_TRY(optimizer_check(&o, "l2", o.l2, o.l2 >= 0, "0 or more"));
    *resolved = o;
    return TR_OK;
}

/* ---- steps ---- */

/* Runs code for every element of the update, with its gradient g, value *w and state *a and *b. If unit is NULL, elements are
 * contiguous, and the loop is vectorised. */
#define FOR_EACH(...)                                                                                        \
    {                                                                                                        \
        for (size_t i = 0; !unit && i < n * width; i++) ELEMENT(i, i, __VA_ARGS__)                           \
        for (size_t i = 0; unit && width == 1 && i < n; i++) ELEMENT(i, unit[i], __VA_ARGS__)                \
        for (size_t i = 0; unit && width > 1 && i < n; i++)                                                  \
            for (size_t k = 0; k < width; k++) ELEMENT(i *width + k, unit[i] * width + k, __VA_ARGS__)       \
    }

#define ELEMENT(FROM, AT, ...)                                                                               \
    {                                                                                                        \
        T *w = value + (AT), *a = first + (AT), *b = second + (AT), g = gradient[FROM] + decay * *w;         \
        (void)a, (void)b;                                                                                    \
        __VA_ARGS__                                                                                          \
    }

/* *a is z of FTRL, *b the sum of squares of g, and d the divisor of the new w. If w is not 0, z is computed from w, as -sign(w) l1
 * - d w. So w may be changed elsewhere (initial values, checkpoints); the stored z is used only if w is 0. */
#define FTRL_ELEMENT                                                                                         \
    *b += g * g;                                                                                             \
    T old = *w, d = (epsilon + sqrt(*b)) * rate + l2;                                                        \
    T held = *a > l1 ? l1 : *a < -l1 ? -l1 : *a;                                                             \
    T to = (old > 0 ? -l1 : old < 0 ? l1 : held) + g - d * old;                                              \
    T beyond = to > l1 ? l1 - to : to < -l1 ? -l1 - to : 0;                                                  \
    *a = to;                                                                                                 \
    *w = g != 0 ? beyond / d : old; /* if g is 0, beyond / d is `old` except for rounding */

double tr_optimizer_rate(const tr_optimizer *o, int64_t clock)
{
    double c = (double)clock, left = o->horizon > 0 ? fmax(1 - c / o->horizon, 1e-6) : 1;
    return o->rate * left / (o->kind == TR_FTRL ? 1 : sqrt(o->decay * c + 1));
}

void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradients, void *values,
                       void *const state[])
{
    if (!optimizer_is_kind(optimizer->kind)) return;
    const tr_optimizer o = optimizer_fill_in(optimizer);
    size_t arrays = tr_optimizer_arrays(o.kind);
    double t = (double)clock + 1, falling = tr_optimizer_rate(&o, clock);
    TR_FOR_REAL(dtype, {
        const T *gradient = gradients;
        T *value = values, *first = arrays > 0 ? state[0] : values, *second = arrays > 1 ? state[1] : values;
        const T rate = (T)(o.kind == TR_FTRL ? 1 / falling : falling), epsilon = (T)o.epsilon, l1 = (T)o.l1;
        const T l2 = (T)o.l2, decay = o.kind == TR_FTRL ? 0 : l2, mu = (T)o.momentum, rho = (T)o.memory;
        const T fresh_mu = (T)(1 - o.momentum), fresh_rho = (T)(1 - o.memory);
        const T correct_m = (T)(falling / (1 - pow(o.momentum, t))),
                correct_s = (T)(1 / (1 - pow(o.memory, t)));
        switch (o.kind) {
        case TR_SGD: FOR_EACH(*w -= rate * g;) break;
        case TR_MOMENTUM: FOR_EACH(*a = mu * *a + rate * g; *w -= *a;) break;
        case TR_NESTEROV: FOR_EACH(*a = mu * *a + rate * g; *w -= mu * *a + rate * g;) break;
        case TR_ADAGRAD: FOR_EACH(*a += g * g; *w -= rate * g / (sqrt(*a) + epsilon);) break;
        case TR_ADADELTA:
            FOR_EACH(*a = rho * *a + fresh_rho * g * g; T u = g * sqrt((*b + epsilon) / (*a + epsilon));
                     *b = rho * *b + fresh_rho * u * u; *w -= rate * u;)
            break;
        case TR_RMSPROP:
            FOR_EACH(*a = rho * *a + fresh_rho * g * g; *w -= rate * g / (sqrt(*a) + epsilon);)
            break;
        case TR_ADAM:
            FOR_EACH(*a = mu * *a + fresh_mu * g; *b = rho * *b + fresh_rho * g * g;
                     *w -= correct_m * *a / (sqrt(*b * correct_s) + epsilon);)
            break;
        case TR_FTRL: FOR_EACH(FTRL_ELEMENT) break;
        }
    })
}

/* ======== lists of the server functions and answers ======== */

#define VERSIONS(NAME, UPDATE, EXPIRE, READ)                                                                 \
    {                                                                                                        \
        .name = NAME, .sparse = true, .open = versions_open, .close = versions_close, .map = versions_map,   \
        .update = UPDATE, .expire = EXPIRE, .read = READ, .memory = versions_memory                          \
    }

#define OPTIMIZER(NAME, ARRAYS)                                                                              \
    {                                                                                                        \
        .name = #NAME, .state_arrays = ARRAYS, .merged = true, .sparse = true, .gradients = true,            \
        .argument = sizeof(tr_optimizer), .open = open_##NAME, .update = optimizer_update                    \
    }

const tr_function tr_builtin_functions[] = {
    {.name = "add", .merged = true, .sparse = true, .update = update_add},
    {.name = "assign", .update = update_assign},
    {.name = "max", .update = update_max},
    {.name = "scale",
     .merged = true,
     .sparse = true,
     .argument = sizeof(double),
     .open = scale_open,
     .update = update_scale},
    VERSIONS("dyn", update_dyn, versions_expire, NULL),
    VERSIONS("dyn-stable", update_stable, expire_stable, read_stable),
    VERSIONS("agree", update_agree, versions_expire, NULL),
    OPTIMIZER(sgd, 0),
    OPTIMIZER(momentum, 1),
    OPTIMIZER(nesterov, 1),
    OPTIMIZER(adagrad, 1),
    OPTIMIZER(adadelta, 2),
    OPTIMIZER(rmsprop, 1),
    OPTIMIZER(adam, 2),
    OPTIMIZER(ftrl, 2),
};
const size_t tr_builtin_function_count = sizeof tr_builtin_functions / sizeof *tr_builtin_functions;

const tr_answer tr_builtin_answers[] = {
    {"squares", true, get_squares, tr_answer_add_doubles},
    {"sum1", true, get_sum1, tr_answer_add_doubles},
    {"nonzeros", true, get_nonzeros, answer_add_count},
    {"dot", true, get_dot, answer_add_dot},
    {"top", true, get_top, top_combine},
    {"present", true, get_present, answer_add_count},
    {"soft", true, get_soft, tr_answer_add_doubles},
};
const size_t tr_builtin_answer_count = sizeof tr_builtin_answers / sizeof *tr_builtin_answers;

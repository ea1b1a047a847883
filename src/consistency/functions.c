#include "consistency/functions.h"

#include <math.h>
#include <string.h>

/* ---- arithmetic: value = f(value, update) ---- */

/* What is added to a whole number, which must not leave the range of its type on the way from double. */
static inline int64_t whole(double x)
{
    static const double edge = 9.2e18;
    return llrint(x > edge ? edge : x > -edge ? x : -edge);
}

/* Makes NAME_TYPE(): the function over all elements of an update. v is the value, u the update's element, r the
 * rate. */
#define LOOP(NAME, SUFFIX, TYPE, RESULT)                                                                     \
    static void NAME##_row_##SUFFIX(size_t n, double rate, const TYPE *restrict from, TYPE *restrict to)     \
    {                                                                                                        \
        (void)rate;                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                     \
            TYPE v = to[i], u = from[i];                                                                     \
            (void)v;                                                                                         \
            to[i] = RESULT;                                                                                  \
        }                                                                                                    \
    }                                                                                                        \
    static void NAME##_##SUFFIX(const tr_share *share, const tr_update *update, double rate)                 \
    {                                                                                                        \
        const uint32_t *unit = update->unit;                                                                 \
        const TYPE *restrict from = update->value;                                                           \
        TYPE *restrict to = share->value;                                                                    \
        size_t width = share->width, first;                                                                  \
        if (tr_units_in_a_row(unit, update->n, &first))                                                      \
            NAME##_row_##SUFFIX(update->n *width, rate, from, to + first * width);                           \
        else if (width == 1)                                                                                 \
            for (size_t i = 0; i < update->n; i++) {                                                         \
                TYPE v = to[unit[i]], u = from[i];                                                           \
                (void)v;                                                                                     \
                to[unit[i]] = RESULT;                                                                        \
            }                                                                                                \
        else                                                                                                 \
            for (size_t i = 0; i < update->n; i++)                                                           \
                NAME##_row_##SUFFIX(width, rate, from + i * width, to + unit[i] * width);                    \
    }

/* The function for all types of elements, with one expression for reals and one for whole numbers. */
#define ARITHMETIC(NAME, REAL_RESULT, WHOLE_RESULT)                                                          \
    LOOP(NAME, f32, float, (float)(REAL_RESULT))                                                             \
    LOOP(NAME, f64, double, (double)(REAL_RESULT))                                                           \
    LOOP(NAME, i32, int32_t, (int32_t)(WHOLE_RESULT))                                                        \
    LOOP(NAME, i64, int64_t, (int64_t)(WHOLE_RESULT))                                                        \
    static void apply_##NAME(const tr_share *share, const tr_update *update, double rate)                    \
    {                                                                                                        \
        switch (share->dtype) {                                                                              \
        case TR_F32: NAME##_f32(share, update, rate); break;                                                 \
        case TR_F64: NAME##_f64(share, update, rate); break;                                                 \
        case TR_I32: NAME##_i32(share, update, rate); break;                                                 \
        case TR_I64: NAME##_i64(share, update, rate); break;                                                 \
        }                                                                                                    \
    }

ARITHMETIC(add, v + u, v + u)
ARITHMETIC(assign, u, u)
ARITHMETIC(max, u > v ? u : v, u > v ? u : v)
ARITHMETIC(scale, v + rate * u, v + whole(rate * (double)u))

static int update_add(tr_share *share, const tr_update *update)
{
    apply_add(share, update, 1);
    return TR_OK;
}

static int update_assign(tr_share *share, const tr_update *update)
{
    apply_assign(share, update, 1);
    return TR_OK;
}

static int update_max(tr_share *share, const tr_update *update)
{
    apply_max(share, update, 1);
    return TR_OK;
}

static int open_scale(tr_share *share)
{
    double rate = 1;
    if (share->argument) memcpy(&rate, share->argument, sizeof rate);
    if (isfinite(rate)) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "table %s: scale: the rate is %g: expected a number", share->table, rate);
}

static int update_scale(tr_share *share, const tr_update *update)
{
    double rate = 1.0 / tr_max_int(share->pushers, 1);
    if (share->argument) memcpy(&rate, share->argument, sizeof rate);
    apply_scale(share, update, rate);
    return TR_OK;
}

static const tr_function add = {.name = "add", .merged = true, .sparse = true, .update = update_add};
static const tr_function assign = {.name = "assign", .update = update_assign};
static const tr_function max = {.name = "max", .update = update_max};
static const tr_function scale = {.name = "scale",
                                  .merged = true,
                                  .sparse = true,
                                  .argument = sizeof(double),
                                  .open = open_scale,
                                  .update = update_scale};

/* ---- optimizers ---- */

static int open_optimizer(tr_share *share, enum tr_optimizer_kind kind)
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

static int update_optimizer(tr_share *share, const tr_update *u)
{
    size_t first, element = share->dtype == TR_F32 ? sizeof(float) : sizeof(double);
    bool in_a_row = tr_units_in_a_row(u->unit, u->n, &first);
    size_t skip = in_a_row ? first * share->width * element : 0;
    void *state[TR_STATE_ARRAYS];
    for (size_t a = 0; a < TR_STATE_ARRAYS; a++)
        state[a] = share->state[a] ? (char *)share->state[a] + skip : NULL;
    tr_optimizer_step(share->argument, share->dtype, u->clock, u->n, share->width, in_a_row ? NULL : u->unit,
                      u->value, (char *)share->value + skip, state);
    return TR_OK;
}

/* open() gets no word of which function it is for, so that each has one of its own. */
#define OPTIMIZER(NAME, KIND, ARRAYS)                                                                        \
    static int open_##NAME(tr_share *share)                                                                  \
    {                                                                                                        \
        return open_optimizer(share, KIND);                                                                  \
    }                                                                                                        \
    static const tr_function NAME = {.name = #NAME,                                                          \
                                     .state_arrays = ARRAYS,                                                 \
                                     .merged = true,                                                         \
                                     .sparse = true,                                                         \
                                     .gradients = true,                                                      \
                                     .argument = sizeof(tr_optimizer),                                       \
                                     .open = open_##NAME,                                                    \
                                     .update = update_optimizer};

OPTIMIZER(sgd, TR_SGD, 0)
OPTIMIZER(momentum, TR_MOMENTUM, 1)
OPTIMIZER(nesterov, TR_NESTEROV, 1)
OPTIMIZER(adagrad, TR_ADAGRAD, 1)
OPTIMIZER(adadelta, TR_ADADELTA, 2)
OPTIMIZER(rmsprop, TR_RMSPROP, 1)
OPTIMIZER(adam, TR_ADAM, 2)
OPTIMIZER(ftrl, TR_FTRL, 2)

const tr_function *const tr_builtin_functions[] = {
    &add,
    &assign,
    &max,
    &scale,
    &tr_dyn_function,
    &tr_dyn_stable_function,
    &tr_agree_function,
    &sgd,
    &momentum,
    &nesterov,
    &adagrad,
    &adadelta,
    &rmsprop,
    &adam,
    &ftrl,
};
const size_t tr_builtin_function_count = sizeof tr_builtin_functions / sizeof *tr_builtin_functions;

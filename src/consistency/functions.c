#include "consistency/functions.h"

#include <math.h>

/* ---- arithmetic: value = f(value, update) ---- */

/* What is added to a whole number, which must not leave the range of its type on the way from double. */
static inline int64_t whole(double x)
{
    static const double edge = 9.2e18;
    return llrint(x > edge ? edge : x > -edge ? x : -edge);
}

/* The rate of scale: without an argument one worker's part of the mean. */
static double rate_of(const tr_share *share)
{
    double rate = 1.0 / tr_max_int(share->pushers, 1);
    if (share->argument) memcpy(&rate, share->argument, sizeof rate);
    return rate;
}

/* Makes update_NAME(), which gives every element v of which the update has an element u the value RESULT. */
#define ARITHMETIC(NAME, RESULT)                                                                             \
    static int update_##NAME(tr_share *share, const tr_update *update)                                       \
    {                                                                                                        \
        const uint32_t *unit = update->unit;                                                                 \
        size_t n = update->n, width = share->width, first;                                                   \
        double rate = rate_of(share);                                                                        \
        (void)rate;                                                                                          \
        if (tr_units_in_a_row(unit, n, &first)) n *= width, first *= width, width = 1, unit = NULL;          \
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
ARITHMETIC(scale, (T)0.5 != 0 ? (T)((double)v + rate * (double)u) : (T)(v + (T)whole(rate * (double)u)))

static int open_scale(tr_share *share)
{
    if (isfinite(rate_of(share))) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "table %s: scale: the rate is %g: expected a number", share->table,
                   rate_of(share));
}

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
    size_t first;
    bool in_a_row = tr_units_in_a_row(u->unit, u->n, &first);
    size_t skip = in_a_row ? first * share->width * tr_dtype_size(share->dtype) : 0;
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

/* ---- the list ---- */

static const tr_function add = {.name = "add", .merged = true, .sparse = true, .update = update_add};
static const tr_function assign = {.name = "assign", .update = update_assign};
static const tr_function max = {.name = "max", .update = update_max};
static const tr_function scale = {.name = "scale",
                                  .merged = true,
                                  .sparse = true,
                                  .argument = sizeof(double),
                                  .open = open_scale,
                                  .update = update_scale};

const tr_function *const tr_builtin_functions[] = {&add,
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
                                                   &ftrl};
const size_t tr_builtin_function_count = sizeof tr_builtin_functions / sizeof *tr_builtin_functions;

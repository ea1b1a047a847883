#include "trireme/optimizer.h"

#include <math.h>

#include "base/base.h"

static const struct {
    const char *name;
    size_t arrays;
    double memory, epsilon; /* by default */
} kinds[] = {
    [TR_SGD] = {"sgd", 0, 0.9, 1e-8},
    [TR_MOMENTUM] = {"momentum", 1, 0.9, 1e-8},
    [TR_NESTEROV] = {"nesterov", 1, 0.9, 1e-8},
    [TR_ADAGRAD] = {"adagrad", 1, 0.9, 1e-8},
    [TR_ADADELTA] = {"adadelta", 2, 0.95, 1e-6},
    [TR_RMSPROP] = {"rmsprop", 1, 0.9, 1e-8},
    [TR_ADAM] = {"adam", 2, 0.999, 1e-8},
    [TR_FTRL] = {"ftrl", 2, 0.9, 1e-8},
};

static bool is_kind(enum tr_optimizer_kind kind)
{
    return (size_t)kind < sizeof kinds / sizeof *kinds;
}

const char *tr_optimizer_name(enum tr_optimizer_kind kind)
{
    return is_kind(kind) ? kinds[kind].name : NULL;
}

size_t tr_optimizer_arrays(enum tr_optimizer_kind kind)
{
    return is_kind(kind) ? kinds[kind].arrays : 0;
}

/* ---- settings ---- */

static tr_optimizer filled_in(const tr_optimizer *optimizer)
{
    tr_optimizer o = *optimizer;
    if (o.memory <= 0) o.memory = kinds[o.kind].memory;
    if (o.epsilon <= 0) o.epsilon = kinds[o.kind].epsilon;
    return o;
}

/* Infinities and NaN fit nowhere. */
static int check(const tr_optimizer *o, const char *what, double x, bool fits, const char *expected)
{
    if (isfinite(x) && fits) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "optimizer %s: %s is %g: expected %s", kinds[o->kind].name, what, x,
                   expected);
}

int tr_optimizer_resolve(const tr_optimizer *optimizer, tr_optimizer *resolved)
{
    if (!is_kind(optimizer->kind))
        return tr_fail(TR_ERR_CONFIG, "there is no optimizer of kind %d", (int)optimizer->kind);
    tr_optimizer o = filled_in(optimizer);
    TR_TRY(check(&o, "rate", o.rate, o.rate > 0, "a number above 0"));
    TR_TRY(check(&o, "decay", o.decay, o.decay >= 0, "0 or more"));
    TR_TRY(check(&o, "momentum", o.momentum, o.momentum >= 0 && o.momentum < 1, "0 or more, less than 1"));
    TR_TRY(check(&o, "memory", o.memory, o.memory < 1, "less than 1"));
    TR_TRY(check(&o, "epsilon", o.epsilon, true, "a number"));
    TR_TRY(check(&o, "l1", o.l1, o.l1 >= 0, "0 or more"));
    TR_TRY(check(&o, "l2", o.l2, o.l2 >= 0, "0 or more"));
    *resolved = o;
    return TR_OK;
}

/* ---- steps ---- */

#define REAL    float
#define ROOT    sqrtf
#define NAME(x) x##_f32
#include "consistency/optimizer_real.h"

#define REAL    double
#define ROOT    sqrt
#define NAME(x) x##_f64
#include "consistency/optimizer_real.h"

void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradient, void *value,
                       void *const state[])
{
    if (!is_kind(optimizer->kind)) return;
    tr_optimizer o = filled_in(optimizer);
    if (dtype == TR_F32) step_f32(&o, clock, n, width, unit, gradient, value, state);
    else if (dtype == TR_F64) step_f64(&o, clock, n, width, unit, gradient, value, state);
}

#include "trireme/optimizer.h"

#include <tgmath.h> /* sqrt() of a float is one of floats */

#include "table/elements.h"

static const struct {
    const char *name;
    size_t arrays;
    double memory, epsilon; /* by default */
} kinds[] = {
    [TR_SGD] = {"sgd", 0, 0.9, 1e-8},
    [TR_MOMENTUM] = {"momentum", 1, 0.9, 1e-8},
    [TR_NESTEROV] = {"nesterov", 1, 0.9, 1e-8},
    [TR_ADAGRAD] = {"adagrad", 1, 0.9, 1e-8},
    [TR_ADADELTA] = {"adadelta", 2, 0.99, 1e-6},
    [TR_RMSPROP] = {"rmsprop", 1, 0.99, 1e-8},
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
    TR_TRY(check(&o, "horizon", o.horizon, o.horizon >= 0, "0 or more"));
    TR_TRY(check(&o, "momentum", o.momentum, o.momentum >= 0 && o.momentum < 1, "0 or more, less than 1"));
    TR_TRY(check(&o, "memory", o.memory, o.memory < 1, "less than 1"));
    TR_TRY(check(&o, "epsilon", o.epsilon, true, "a number"));
    TR_TRY(check(&o, "l1", o.l1, o.l1 >= 0, "0 or more"));
    TR_TRY(check(&o, "l2", o.l2, o.l2 >= 0, "0 or more"));
    *resolved = o;
    return TR_OK;
}

/* ---- steps ---- */

/* Runs code for every element, with its gradient g, its value *w and its state *a and *b: for elements in a row, which
 * vectorises, or for those of some units. */
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

/* With the divisor d of the new w, z is -sign(w) l1 - d w wherever w is not 0, its proximal terms included. So w may
 * come from elsewhere, from a start or from other workers, and only where l1 holds it at 0 is the z kept needed. */
#define FTRL_ELEMENT                                                                                         \
    *b += g * g;                                                                                             \
    T old = *w, d = (epsilon + sqrt(*b)) * rate + l2;                                                        \
    T held = *a > l1 ? l1 : *a < -l1 ? -l1 : *a;                                                             \
    T to = (old > 0 ? -l1 : old < 0 ? l1 : held) + g - d * old;                                              \
    T beyond = to > l1 ? l1 - to : to < -l1 ? -l1 - to : 0;                                                  \
    *a = to;                                                                                                 \
    *w = g != 0 ? beyond / d : old; /* the same for a g of 0, but for rounding */

double tr_optimizer_rate(const tr_optimizer *o, int64_t clock)
{
    double c = (double)clock, left = o->horizon > 0 ? fmax(1 - c / o->horizon, 1e-6) : 1;
    return o->rate * left / (o->kind == TR_FTRL ? 1 : sqrt(o->decay * c + 1));
}

void tr_optimizer_step(const tr_optimizer *optimizer, enum tr_dtype dtype, int64_t clock, size_t n,
                       size_t width, const uint32_t *unit, const void *gradients, void *values,
                       void *const state[])
{
    if (!is_kind(optimizer->kind)) return;
    const tr_optimizer o = filled_in(optimizer);
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

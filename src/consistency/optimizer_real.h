/* The steps for one element type: included by optimizer.c with REAL, ROOT and NAME(x) defined. No include guard.
 *
 * Each optimizer is one function of one element, from which STEPS makes two loops: over elements in a row, which
 * vectorises, and over elements by number. */

/* What the loops need, computed once a step in double. */
struct NAME(numbers) {
    REAL rate, momentum, memory, epsilon, l1, l2;
    REAL fresh_momentum, fresh_memory; /* 1 - momentum, 1 - memory */
    REAL per_rate;                     /* 1 / rate */
    REAL correct_m, correct_s;         /* adam: rate / (1 - μ^t), 1 / (1 - ρ^t) */
};

static inline void NAME(sgd_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *a, REAL *b)
{
    (void)a, (void)b;
    *w -= c.rate * g;
}

static inline void NAME(momentum_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *m, REAL *b)
{
    (void)b;
    *m = c.momentum * *m + c.rate * g;
    *w -= *m;
}

static inline void NAME(nesterov_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *m, REAL *b)
{
    (void)b;
    *m = c.momentum * *m + c.rate * g;
    *w -= c.momentum * *m + c.rate * g;
}

static inline void NAME(adagrad_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *s, REAL *b)
{
    (void)b;
    *s += g * g;
    *w -= c.rate * g / (ROOT(*s) + c.epsilon);
}

static inline void NAME(adadelta_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *s, REAL *d)
{
    *s = c.memory * *s + c.fresh_memory * g * g;
    REAL u = g * ROOT((*d + c.epsilon) / (*s + c.epsilon));
    *d = c.memory * *d + c.fresh_memory * u * u;
    *w -= c.rate * u;
}

static inline void NAME(rmsprop_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *s, REAL *b)
{
    (void)b;
    *s = c.memory * *s + c.fresh_memory * g * g;
    *w -= c.rate * g / (ROOT(*s) + c.epsilon);
}

static inline void NAME(adam_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *m, REAL *s)
{
    *m = c.momentum * *m + c.fresh_momentum * g;
    *s = c.memory * *s + c.fresh_memory * g * g;
    *w -= c.correct_m * *m / (ROOT(*s * c.correct_s) + c.epsilon);
}

/* With the divisor d of the new w, z is -sign(w) l1 - d w wherever w is not 0, its proximal terms included. So w may
 * come from elsewhere, from a start or from other workers, and only where l1 holds it at 0 is the z kept needed. */
static inline void NAME(ftrl_element)(struct NAME(numbers) c, REAL g, REAL *w, REAL *z, REAL *s)
{
    *s += g * g;
    REAL old = *w, d = (c.epsilon + ROOT(*s)) * c.per_rate + c.l2;
    REAL held = *z > c.l1 ? c.l1 : *z < -c.l1 ? -c.l1 : *z;
    REAL from = old > 0 ? -c.l1 : old < 0 ? c.l1 : held;
    REAL to = from + g - d * old;
    REAL beyond = to > c.l1 ? c.l1 - to : to < -c.l1 ? -c.l1 - to : 0;
    *z = to;
    *w = g != 0 ? beyond / d : old; /* the same for a g of 0, but for rounding */
}

#define STEPS(KIND)                                                                                          \
    static void NAME(KIND##_row)(const struct NAME(numbers) * numbers, size_t n, const REAL *restrict g,     \
                                 REAL *restrict w, REAL *restrict a, REAL *restrict b)                       \
    {                                                                                                        \
        const struct NAME(numbers) c = *numbers;                                                             \
        for (size_t i = 0; i < n; i++) NAME(KIND##_element)(c, g[i], w + i, a + i, b + i);                   \
    }                                                                                                        \
    static void NAME(KIND##_at)(const struct NAME(numbers) * numbers, size_t n, const uint32_t *unit,        \
                                const REAL *restrict g, REAL *restrict w, REAL *restrict a,                  \
                                REAL *restrict b)                                                            \
    {                                                                                                        \
        const struct NAME(numbers) c = *numbers;                                                             \
        for (size_t i = 0; i < n; i++) NAME(KIND##_element)(c, g[i], w + unit[i], a + unit[i], b + unit[i]); \
    }

STEPS(sgd)
STEPS(momentum)
STEPS(nesterov)
STEPS(adagrad)
STEPS(adadelta)
STEPS(rmsprop)
STEPS(adam)
STEPS(ftrl)

static const struct {
    void (*row)(const struct NAME(numbers) *, size_t, const REAL *restrict, REAL *restrict, REAL *restrict,
                REAL *restrict);
    void (*at)(const struct NAME(numbers) *, size_t, const uint32_t *, const REAL *restrict, REAL *restrict,
               REAL *restrict, REAL *restrict);
} NAME(steps)[] = {
    [TR_SGD] = {NAME(sgd_row), NAME(sgd_at)},
    [TR_MOMENTUM] = {NAME(momentum_row), NAME(momentum_at)},
    [TR_NESTEROV] = {NAME(nesterov_row), NAME(nesterov_at)},
    [TR_ADAGRAD] = {NAME(adagrad_row), NAME(adagrad_at)},
    [TR_ADADELTA] = {NAME(adadelta_row), NAME(adadelta_at)},
    [TR_RMSPROP] = {NAME(rmsprop_row), NAME(rmsprop_at)},
    [TR_ADAM] = {NAME(adam_row), NAME(adam_at)},
    [TR_FTRL] = {NAME(ftrl_row), NAME(ftrl_at)},
};

static struct NAME(numbers) NAME(numbers_of)(const tr_optimizer *o, int64_t clock)
{
    double rate = o->kind == TR_FTRL ? o->rate : o->rate / sqrt(o->decay * (double)clock + 1);
    double t = (double)clock + 1;
    return (struct NAME(numbers)){.rate = (REAL)rate,
                                  .momentum = (REAL)o->momentum,
                                  .memory = (REAL)o->memory,
                                  .epsilon = (REAL)o->epsilon,
                                  .l1 = (REAL)o->l1,
                                  .l2 = (REAL)o->l2,
                                  .fresh_momentum = (REAL)(1 - o->momentum),
                                  .fresh_memory = (REAL)(1 - o->memory),
                                  .per_rate = (REAL)(1 / rate),
                                  .correct_m = (REAL)(rate / (1 - pow(o->momentum, t))),
                                  .correct_s = (REAL)(1 / (1 - pow(o->memory, t)))};
}

static void NAME(step)(const tr_optimizer *o, int64_t clock, size_t n, size_t width, const uint32_t *unit,
                       const REAL *g, REAL *w, void *const state[])
{
    struct NAME(numbers) numbers = NAME(numbers_of)(o, clock);
    size_t arrays = tr_optimizer_arrays(o->kind);
    REAL *a = arrays > 0 ? state[0] : w; /* never used, but an address to count from */
    REAL *b = arrays > 1 ? state[1] : w;
    if (!unit) NAME(steps)[o->kind].row(&numbers, n * width, g, w, a, b);
    else if (width == 1) NAME(steps)[o->kind].at(&numbers, n, unit, g, w, a, b);
    else
        for (size_t i = 0; i < n; i++) {
            size_t at = unit[i] * width;
            NAME(steps)[o->kind].row(&numbers, width, g + i * width, w + at, a + at, b + at);
        }
}

#undef STEPS
#undef REAL
#undef ROOT
#undef NAME

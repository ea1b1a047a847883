#include "table/filter.h"

#include <math.h>

#include "base/base.h"

/* Every filter is a bound for each unit: held are those all of whose elements are below it. A bound of 0 or
 * less holds nothing, and what is not finite is below none. */

/* Units that are filtered at once. */
enum { BLOCK = 256 };

#define INLINE static inline __attribute__((always_inline))

/* How one call filters. */
struct pass {
    const struct tr_filter *filter;
    size_t width;
    double limit; /* kkt: of |u|, rather than of the gradient */
    uint64_t hash, chance, first;
    bool drops;
};

/* Whether chance lets a unit wait: 53 uniform bits are below `chance`, which is the probability times 2^53. */
static bool waits(uint64_t hash, uint64_t unit, uint64_t chance)
{
    return tr_mix(hash + unit) >> 11 < chance;
}

/* REAL is what elements are compared as. */
#define FILTER(NAME, TYPE, REAL, ABS)                                                                        \
    INLINE REAL largest_##NAME(const TYPE *w, size_t width)                                                  \
    {                                                                                                        \
        REAL most = 0;                                                                                       \
        for (size_t j = 0; j < width; j++) most = ABS((REAL)w[j]) > most ? ABS((REAL)w[j]) : most;           \
        return most;                                                                                         \
    }                                                                                                        \
    static void bound_##NAME(const struct pass *p, size_t begin, size_t n, const TYPE *value, REAL *bound)   \
    {                                                                                                        \
        const TYPE *w = value ? value + begin * p->width : NULL;                                             \
        static const REAL none_or_all[] = {0, (REAL)INFINITY}; /* for a branch would be mispredicted */      \
        REAL limit = (REAL)p->limit;                                                                         \
        switch (p->filter->kind) {                                                                           \
        case TR_FILTER_SIGNIFICANT:                                                                          \
            for (size_t i = 0; i < n; i++) bound[i] = limit * largest_##NAME(w + i * p->width, p->width);    \
            break;                                                                                           \
        case TR_FILTER_KKT:                                                                                  \
            for (size_t i = 0; i < n; i++) {                                                                 \
                bool zero = true;                                                                            \
                for (size_t j = 0; j < p->width; j++) zero &= w[i * p->width + j] == 0;                      \
                bound[i] = zero ? limit : 0;                                                                 \
            }                                                                                                \
            break;                                                                                           \
        case TR_FILTER_SKIP:                                                                                 \
            for (size_t i = 0; i < n; i++)                                                                   \
                bound[i] = none_or_all[waits(p->hash, p->first + begin + i, p->chance)];                     \
            break;                                                                                           \
        default:                                                                                             \
            for (size_t i = 0; i < n; i++) bound[i] = limit;                                                 \
        }                                                                                                    \
    }                                                                                                        \
    INLINE void hold_##NAME(size_t n, size_t width, bool drops, const REAL *restrict bound,                  \
                            TYPE *restrict delta, TYPE *restrict kept, uint64_t *seen, uint64_t *held)       \
    {                                                                                                        \
        uint32_t some_seen = 0, some_held = 0;                                                               \
        for (size_t i = 0; i < n; i++) {                                                                     \
            TYPE *u = delta + i * width, *k = kept + i * width;                                              \
            bool below = true, any = false;                                                                  \
            for (size_t j = 0; j < width; j++) {                                                             \
                u[j] += k[j];                                                                                \
                below &= ABS((REAL)u[j]) < bound[i];                                                         \
                any |= u[j] != 0;                                                                            \
            }                                                                                                \
            for (size_t j = 0; j < width; j++) {                                                             \
                TYPE whole = u[j];                                                                           \
                u[j] = below ? 0 : whole;                                                                    \
                k[j] = below && !drops ? whole : 0;                                                          \
            }                                                                                                \
            some_seen += any;                                                                                \
            some_held += any & below;                                                                        \
        }                                                                                                    \
        *seen += some_seen;                                                                                  \
        *held += some_held;                                                                                  \
    }                                                                                                        \
    static void apply_##NAME(const struct pass *p, size_t n, const void *value, TYPE *delta, TYPE *kept,     \
                             uint64_t *seen, uint64_t *held)                                                 \
    {                                                                                                        \
        REAL bound[BLOCK];                                                                                   \
        for (size_t i = 0; i < n; i += BLOCK) {                                                              \
            size_t some = tr_min_size(BLOCK, n - i);                                                         \
            TYPE *u = delta + i * p->width, *k = kept + i * p->width;                                        \
            bound_##NAME(p, i, some, value, bound);                                                          \
            if (p->width == 1) hold_##NAME(some, 1, p->drops, bound, u, k, seen, held);                      \
            else hold_##NAME(some, p->width, p->drops, bound, u, k, seen, held);                             \
        }                                                                                                    \
    }

FILTER(f32, float, float, fabsf)
FILTER(f64, double, double, fabs)
FILTER(i32, int32_t, double, fabs)
FILTER(i64, int64_t, double, fabs)

static struct pass pass_of(const struct tr_filter *f, size_t width, uint64_t first, int64_t clock)
{
    struct pass p = {.filter = f, .width = width, .first = first, .drops = f->kind == TR_FILTER_KKT};
    if (f->kind == TR_FILTER_THRESHOLD || f->kind == TR_FILTER_SIGNIFICANT) p.limit = f->limit;
    if (f->kind == TR_FILTER_KKT) p.limit = fabs(f->scale) * (f->alpha - f->limit);
    if (f->kind == TR_FILTER_SKIP) {
        p.hash = tr_mix(tr_mix(f->seed) ^ (uint64_t)clock);
        p.chance = (uint64_t)(f->skip * 0x1p53);
    }
    return p;
}

void tr_filter_apply(const struct tr_filter *f, const struct tr_slice *s, uint64_t first, int64_t clock,
                     const void *value, void *delta, void *kept, struct tr_filter_counts *counts)
{
    struct pass p = pass_of(f, s->width, first, clock);
    uint64_t seen = 0, held = 0;
    switch (s->dtype) {
    case TR_F32: apply_f32(&p, s->n, value, delta, kept, &seen, &held); break;
    case TR_F64: apply_f64(&p, s->n, value, delta, kept, &seen, &held); break;
    case TR_I32: apply_i32(&p, s->n, value, delta, kept, &seen, &held); break;
    case TR_I64: apply_i64(&p, s->n, value, delta, kept, &seen, &held); break;
    }
    counts->seen += seen;
    *(p.drops ? &counts->dropped : &counts->held) += held;
}

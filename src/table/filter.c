#include "table/filter.h"

#include <tgmath.h> /* fabs() of a float is one of floats */

#include "table/elements.h"

/* Every filter is a bound for each unit: held are those all of whose elements are below it. A bound of 0 or
 * less holds nothing, and what is not finite is below none. */

/* Units that are filtered at once. */
enum { BLOCK = 256 };

/* How one call filters. */
struct pass {
    int kind;
    enum tr_dtype dtype;
    size_t width;
    double limit; /* kkt: of |u|, rather than of the gradient */
    uint64_t hash, chance;
    bool drops;
};

/* What elements of type T are compared as: R. Whole numbers as doubles. */
#define COMPARED_AS_R typedef __typeof__(_Generic((T)0, float : 0.0F, default : 0.0)) R

/* The bounds of n units of which the first is number `first` of the pusher. */
static void find_bounds(const struct pass *p, uint64_t first, size_t n, const void *value, void *bounds)
{
    TR_FOR_TYPE(p->dtype, {
        COMPARED_AS_R;
        static const R none_or_all[] = {0, (R)INFINITY}; /* for a branch would be mispredicted */
        const T *w = value;
        R *bound = bounds, limit = (R)p->limit;
        for (size_t i = 0; i < n; i++) bound[i] = limit;
        for (size_t i = 0; i < n && p->kind == TR_FILTER_SIGNIFICANT; i++) {
            R most = 0;
            for (size_t j = i * p->width; j < (i + 1) * p->width; j++)
                most = fabs((R)w[j]) > most ? fabs((R)w[j]) : most;
            bound[i] *= most;
        }
        for (size_t i = 0; i < n && p->kind == TR_FILTER_KKT; i++) {
            bool zero = true;
            for (size_t j = i * p->width; j < (i + 1) * p->width; j++) zero &= w[j] == 0;
            bound[i] = zero ? limit : 0;
        }
        /* 53 uniform bits are below `chance`, which is the probability times 2^53 */
        for (size_t i = 0; i < n && p->kind == TR_FILTER_SKIP; i++)
            bound[i] = none_or_all[tr_mix(p->hash + first + i) >> 11 < p->chance];
    })
}

/* Adds what was kept to n units, and keeps those below their bounds. Compiled for a width of 1 besides. */
#define HOLD_BACK(WIDTH)                                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
        T *u = (T *)delta + i * (WIDTH), *k = (T *)kept + i * (WIDTH);                                       \
        bool below = true, any = false;                                                                      \
        for (size_t j = 0; j < (WIDTH); j++) {                                                               \
            u[j] += k[j];                                                                                    \
            below &= fabs((R)u[j]) < bound[i];                                                               \
            any |= u[j] != 0;                                                                                \
        }                                                                                                    \
        for (size_t j = 0; j < (WIDTH); j++) {                                                               \
            T whole = u[j];                                                                                  \
            u[j] = below ? 0 : whole;                                                                        \
            k[j] = below && !p->drops ? whole : 0;                                                           \
        }                                                                                                    \
        seen += any;                                                                                         \
        held += any & below;                                                                                 \
    }

static void hold_back(const struct pass *p, size_t n, const void *bounds, void *delta, void *kept,
                      struct tr_filter_counts *counts)
{
    uint32_t seen = 0, held = 0;
    TR_FOR_TYPE(p->dtype, {
        COMPARED_AS_R;
        const R *bound = bounds;
        if (p->width == 1) HOLD_BACK(1)
        else HOLD_BACK(p->width)
    })
    counts->seen += seen;
    *(p->drops ? &counts->dropped : &counts->held) += held;
}

void tr_filter_apply(const struct tr_filter *f, const struct tr_slice *s, uint64_t first, int64_t clock,
                     const void *value, void *delta, void *kept, struct tr_filter_counts *counts)
{
    struct pass p = {
        .kind = f->kind, .dtype = s->dtype, .width = s->width, .drops = f->kind == TR_FILTER_KKT};
    double bound[BLOCK];
    size_t bytes = s->width * tr_dtype_size(s->dtype);
    if (f->kind == TR_FILTER_THRESHOLD || f->kind == TR_FILTER_SIGNIFICANT) p.limit = f->limit;
    if (f->kind == TR_FILTER_KKT) p.limit = fabs(f->scale) * (f->alpha - f->limit);
    if (f->kind == TR_FILTER_SKIP) {
        p.hash = tr_mix(tr_mix(f->seed) ^ (uint64_t)clock);
        p.chance = (uint64_t)(f->skip * 0x1p53);
    }
    for (size_t i = 0; i < s->n; i += BLOCK) {
        size_t some = tr_min_size(BLOCK, s->n - i);
        find_bounds(&p, first + i, some, value ? (const char *)value + i * bytes : NULL, bound);
        hold_back(&p, some, bound, (char *)delta + i * bytes, (char *)kept + i * bytes, counts);
    }
}

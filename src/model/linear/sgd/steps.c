#include "steps.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The numbers that a coordinate has: PLAIN (svrg) w; MEAN (svrg++) w and sum; KATYUSHA y, z and sum. SNAPSHOT: functions read the
 * snapshot instead. */
enum shape { PLAIN, MEAN, KATYUSHA, SNAPSHOT };

/* How steps access coordinates: a value of enum tr_update_mode; or HELD: chunks of a replica on demand are held meanwhile. */
enum { HELD = TR_UPDATE_HOGWILD + 1 };

/* Kinds of coordinates, in tr_variance.side. The bias may have no λ. */
enum { WEIGHT, BIAS };

enum {
    LEAD = 8,    /* number of rows that are drawn ahead, for prefetching */
    RESERVE = 8, /* rows of the steps that a worker takes from the common counter with one atomic addition */
    BLOCK = 64,  /* number of rows whose slopes are computed together */
    BITS = 7,    /* bits of the number of missed steps that one table of powers covers */
    POWERS = 1 << BITS,
    LEVELS = 5 /* number of tables */
};

/* Functions that are inlined, so that the compiler knows the arguments shape and kind (of access) as constants. */
#define ALWAYS static inline __attribute__((always_inline))

/* The numbers of a coordinate. y is w for svrg and svrg++; for katyusha y and z are relative to the snapshot. s is the sum. */
struct point {
    double z, y, s;
};

/* The linear map by which one or several steps change a coordinate that none of their rows has. f is a constant of the coordinate:
 *
 *     z' = zz z + zf f
 *     y' = yz z + yy y + yf f
 *     s' = sz z + sy y + ss s + sf f
 *
 * Its members are the factors in these formulas. */
struct map {
    double zz, zf, yz, yy, yf, sz, sy, ss, sf;
};

/* The maps of svrg and of svrg++, which need fewer factors: y is yy, f is yf. */
struct map_plain {
    double y, f;
};
struct map_mean {
    double y, f, sy, sf;
};

/* Constants of all weights, or of the bias. */
struct side {
    double l2, rate_z, rate_y; /* λ; factors of a row's gradient in a step of z and of y */
    void *power; /* array of one of the three structs; [l · POWERS + i]: power i · 2^(BITS l) of the map */
};

struct tr_variance {
    const struct tr_problem *problem;
    int method;
    enum shape shape;
    bool is_large; /* the model is larger than the L2 cache, so that coordinates are prefetched */
    double rate, tau1, tau3;
    double fading; /* factor by which each step multiplies the sum: θ⁻¹ of Allen-Zhu; 1 except for katyusha */
    struct side side[2]; /* constants of weights (side[WEIGHT]) and of the bias (side[BIAS]) */
    size_t batch;
    uint64_t reserve; /* number of steps that a worker takes from the common counter together */
    size_t mask;      /* number of elements of `row` minus 1, a bit mask */
    size_t *row;      /* ring buffer of the indices of rows that have been drawn */
    double *slope;    /* slope differences of the rows of a step */
};

/* Source of the rows of steps: rows first .. first + n - 1. */
struct tr_draw {
    struct tr_rng *rng;
    size_t first, n;
};

/* A chunk that is locked or held. Its coordinate j is at place j + offset of each array. */
struct visit {
    size_t chunk, offset;
};

/* ---- concurrent changes ---- */

/* Locks a chunk. Locks are held for some hundred cycles only; if it takes longer, the owner was preempted and needs a core. */
static inline void steps_lock(uint32_t *word)
{
    enum { PATIENCE = 100 };
    for (int turn = 0; __atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE);)
        while (__atomic_load_n(word, __ATOMIC_RELAXED))
            if (++turn >= PATIENCE) sched_yield();
}

/* Compare and swap: if *at equals *from, sets *at = to and returns true; else sets *from = *at and returns false. */
ALWAYS bool swap_f32(float *at, float *from, float to)
{
    return __atomic_compare_exchange(at, from, &to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

ALWAYS bool swap_f64(double *at, double *from, double to)
{
    return __atomic_compare_exchange(at, from, &to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* ---- missed steps ---- */

/* Returns max(0, t - seen), the number of missed steps. Has no branch, because a branch would often be mispredicted. */
ALWAYS uint32_t steps_missed(uint32_t t, uint32_t seen)
{
    int32_t missed = (int32_t)(t - seen);
    return (uint32_t)(missed & ~(missed >> 31));
}

/* Defines functions that return w after missed steps, for svrg and svrg++. */
#define AFTER_W(NAME, MAP)                                                                                   \
    ALWAYS double NAME(const struct side *side, uint32_t missed, double w, double f)                         \
    {                                                                                                        \
        const struct MAP *power = side->power;                                                               \
        w = power[missed % POWERS].y * w + power[missed % POWERS].f * f;                                     \
        while (missed >>= BITS) {                                                                            \
            power += POWERS;                                                                                 \
            w = power[missed % POWERS].y * w + power[missed % POWERS].f * f;                                 \
        }                                                                                                    \
        return w;                                                                                            \
    }
AFTER_W(after_plain, map_plain)
AFTER_W(after_mean_w, map_mean)
#undef AFTER_W

ALWAYS void after_mean(const struct side *side, uint32_t missed, double f, struct point *at)
{
    const struct map_mean *power = side->power;
    for (;; power += POWERS) {
        const struct map_mean *p = &power[missed % POWERS];
        at->s += p->sy * at->y + p->sf * f;
        at->y = p->y * at->y + p->f * f;
        if (!(missed >>= BITS)) return;
    }
}

ALWAYS void after_katyusha(const struct side *side, uint32_t missed, double f, struct point *at)
{
    const struct map *power = side->power;
    for (;; power += POWERS) {
        const struct map *p = &power[missed % POWERS];
        at->s = p->sz * at->z + p->sy * at->y + p->ss * at->s + p->sf * f;
        at->y = p->yz * at->z + p->yy * at->y + p->yf * f;
        at->z = p->zz * at->z + p->zf * f;
        if (!(missed >>= BITS)) return;
    }
}

ALWAYS void after(int shape, const struct side *side, uint32_t missed, double f, struct point *at)
{
    if (shape == PLAIN) at->y = after_plain(side, missed, at->y, f);
    else if (shape == MEAN) after_mean(side, missed, f, at);
    else after_katyusha(side, missed, f, at);
}

/* ---- tables ---- */

/* Fills the constants of weights or of the bias. a: rate of z; l2: λ, or 0 for a bias without it. The map of one step is
 *
 * svrg, svrg++: w' = w - η (f + λ w), s' = s + w'.
 * katyusha: relative to the snapshot, with f = μ + λ x̃ and the factors p = 1/(1 + a λ), q = 1/(1 + η λ) of the proximal steps,
 * z' = p (z - a f), y' = q (τ₁z + τ₃y - η f), s' = s / (1 + a σ) + y', where σ is the λ of the weights. */
static int steps_make_side(const struct tr_variance *v, double a, double l2, struct side *side)
{
    double rows = (double)v->batch, p = 1 / (1 + a * l2), q = 1 / (1 + v->rate * l2), kept = 1 - v->rate * l2;
    struct map step = {.zz = 1, .yy = kept, .yf = -v->rate, .sy = kept, .ss = 1, .sf = -v->rate};
    side->l2 = l2;
    side->rate_y = v->rate / rows;
    if (v->shape == KATYUSHA) {
        side->rate_z = a / (1 + a * l2) / rows;
        side->rate_y /= 1 + v->rate * l2;
        step = (struct map){.zz = p,
                            .zf = -a * p,
                            .yz = q * v->tau1,
                            .yy = q * v->tau3,
                            .yf = -v->rate * q,
                            .sz = q * v->tau1,
                            .sy = q * v->tau3,
                            .ss = v->fading,
                            .sf = -v->rate * q};
    }
    size_t entry = v->shape == PLAIN  ? sizeof(struct map_plain)
                   : v->shape == MEAN ? sizeof(struct map_mean)
                                      : sizeof(struct map);
    TR_TRY(TR_NEW((char **)&side->power, (size_t)LEVELS * POWERS * entry));
    for (size_t level = 0; level < LEVELS; level++) {
        struct map power = {.zz = 1, .yy = 1, .ss = 1};
        for (size_t i = 0; i < POWERS; i++) {
            const struct map m = power, by = step; /* the next power is m followed by `by` */
            size_t at = level * POWERS + i;
            if (v->shape == PLAIN) ((struct map_plain *)side->power)[at] = (struct map_plain){m.yy, m.yf};
            else if (v->shape == MEAN)
                ((struct map_mean *)side->power)[at] = (struct map_mean){m.yy, m.yf, m.sy, m.sf};
            else ((struct map *)side->power)[at] = m;
            power = (struct map){.zz = by.zz * m.zz,
                                 .zf = by.zz * m.zf + by.zf,
                                 .yz = by.yz * m.zz + by.yy * m.yz,
                                 .yy = by.yy * m.yy,
                                 .yf = by.yz * m.zf + by.yy * m.yf + by.yf,
                                 .sz = by.sz * m.zz + by.sy * m.yz + by.ss * m.sz,
                                 .sy = by.sy * m.yy + by.ss * m.sy,
                                 .ss = by.ss * m.ss,
                                 .sf = by.sz * m.zf + by.sy * m.yf + by.ss * m.sf + by.sf};
        }
        step = power;
    }
    return TR_OK;
}

/* Returns Σ 1/θ^i for i = 0 .. steps - 1, with 1/θ = fading: the total weight of the iterates in the sum of an epoch. */
static double steps_total_weight(const struct tr_variance *v, uint64_t steps)
{
    double fades = -log(v->fading), m = (double)steps;
    return fades > 0 ? expm1(-fades * m) / expm1(-fades) : fmax(m, 1);
}

/* ---- opening ---- */

static int steps_open(struct tr_variance *v, const struct tr_variance_options *o)
{
    double sigma = v->problem->l2, a = 0;
    if (v->shape == KATYUSHA) {
        /* Allen-Zhu 2017: τ₂ = 1/2, a = 1/(3 τ₁ L), η = 1/(3L); τ₁ depends on σ, or on the epoch if σ = 0 */
        v->tau1 =
            sigma > 0 ? fmin(sqrt((double)o->steps * sigma * v->rate), 0.5) : 2 / ((double)o->epoch + 4);
        v->tau3 = 0.5 - v->tau1;
        a = v->rate / v->tau1;
        v->fading = 1 / (1 + a * sigma);
    }
    TR_TRY(steps_make_side(v, a, sigma, &v->side[WEIGHT]));
    TR_TRY(steps_make_side(v, a, o->bias_l2 ? sigma : 0, &v->side[BIAS]));
    size_t ring = 1;
    while (ring < v->batch + LEAD) ring *= 2;
    v->mask = ring - 1;
    TR_TRY(TR_NEW(&v->row, ring));
    return TR_NEW(&v->slope, v->batch);
}

int tr_variance_open(const struct tr_problem *p, const struct tr_variance_options *o,
                     struct tr_variance **variance)
{
    enum { NEAR = 1 << 20 };
    double rate = o->rate != 0 ? o->rate : tr_variance_rate(o->method, p->loss, o->smoothness);
    struct tr_variance *v;
    *variance = NULL;
    if (p->loss->corner)
        return tr_fail(TR_ERR_CONFIG,
                       "variance reduction needs a smooth loss, and that of svm is not: expected "
                       "logistic, linear or l2svm");
    if (!(rate > 0 && isfinite(rate)))
        return tr_fail(TR_ERR_CONFIG, "solve.rate: a rate of %g: expected a positive number", rate);
    if (o->method != TR_METHOD_KATYUSHA && rate * p->l2 >= 1)
        return tr_fail(TR_ERR_CONFIG, "solve.rate: a rate of %g with model.l2 %g: expected less than %g",
                       rate, p->l2, 1 / p->l2);
    if (o->steps > TR_VARIANCE_STEPS || !o->batch)
        return tr_fail(TR_ERR_CONFIG,
                       "%llu steps of %zu rows in an epoch: expected less than 2^31 of at least one",
                       (unsigned long long)o->steps, o->batch);
    TR_TRY(TR_NEW(&v, 1));
    *v = (struct tr_variance){.problem = p,
                              .method = o->method,
                              .shape = o->method == TR_METHOD_KATYUSHA ? KATYUSHA
                                       : o->method == TR_METHOD_SVRGPP ? MEAN
                                                                       : PLAIN,
                              .is_large = p->keys * 12 > NEAR,
                              .rate = rate,
                              .fading = 1,
                              .batch = o->batch,
                              .reserve = tr_max_size(RESERVE / o->batch, 1)};
    int status = steps_open(v, o);
    if (status != TR_OK) tr_variance_close(&v);
    *variance = v;
    return status;
}

void tr_variance_close(struct tr_variance **variance)
{
    struct tr_variance *v = *variance;
    if (!v) return;
    TR_FREE_ALL(v->side[WEIGHT].power, v->side[BIAS].power, v->row, v->slope, v);
    *variance = NULL;
}

/* ---- smoothness, rate and epochs ---- */

double tr_variance_largest_norm(const struct tr_problem *p, size_t first, size_t n)
{
    double largest = 0;
    for (size_t i = first; i < first + n; i++) {
        double sum = p->bias;
        for (uint64_t k = p->rows.begin[i]; k < p->rows.begin[i + 1]; k++)
            sum += p->rows.value ? (double)p->rows.value[k] * (double)p->rows.value[k] : 1;
        largest = fmax(largest, sum);
    }
    return largest;
}

double tr_variance_smoothness(const struct tr_problem *p, double largest_norm)
{
    return isfinite(p->loss->most_curvature) ? p->loss->most_curvature * largest_norm + p->l2 : 0;
}

double tr_variance_rate(int method, const struct tr_loss *loss, double smoothness)
{
    bool more = loss->rarely_curved;
    if (method == TR_METHOD_SVRG) return (more ? 0.75 : 0.5) / smoothness;
    return (method == TR_METHOD_KATYUSHA && more ? 4.0 / 3 : 1) / smoothness;
}

uint64_t tr_variance_epoch_steps(int method, double n, double inner, size_t batch, uint64_t epoch)
{
    double steps = ceil(inner * n / (double)batch);
    if (method == TR_METHOD_SVRGPP) steps = ldexp(steps, (int)(epoch < 64 ? epoch : 64));
    return steps < 1 ? 1 : steps < TR_VARIANCE_STEPS ? (uint64_t)steps : TR_VARIANCE_STEPS;
}

/* ---- the full stage ---- */

/* Replaces margins by slopes. Returns the sum of the losses, or 0 if loss is NULL. */
static double full_slopes(const struct tr_problem *p, size_t n, const float *target, double *margin,
                          const double *loss)
{
    double sum = 0;
    for (size_t r = 0; loss && r < n; r++)
        sum += tr_loss_value(p->loss, margin[r], (double)target[r], p->shape);
    for (size_t r = 0; r < n; r++) margin[r] = tr_loss_slope(p->loss, margin[r], (double)target[r], p->shape);
    return sum;
}

#define REAL    float
#define SWAP    swap_f32
#define NAME(x) x##_f32
#include "steps_real.h"

#define REAL    double
#define SWAP    swap_f64
#define NAME(x) x##_f64
#include "steps_real.h"

void tr_variance_gradient(const struct tr_problem *p, size_t first, size_t n, const void *w, double *loss,
                          void *slope, double *gradient)
{
    TR_BY_TYPE(p->dtype, gradient, p, first, n, w, loss, slope, gradient);
}

/* ---- the inner stage ---- */

void tr_variance_steps(struct tr_variance *v, size_t first, size_t n, const void *slope, uint64_t steps,
                       struct tr_rng *rng, const struct tr_variance_model *model, const tr_updates *updates)
{
    struct tr_draw from = {rng, first, n};
    enum tr_dtype dtype = v->problem->dtype;
    if (v->shape == PLAIN) TR_BY_TYPE(dtype, PLAIN_steps, v, &from, slope, steps, model, updates);
    else if (v->shape == MEAN) TR_BY_TYPE(dtype, MEAN_steps, v, &from, slope, steps, model, updates);
    else TR_BY_TYPE(dtype, KATYUSHA_steps, v, &from, slope, steps, model, updates);
}

void tr_variance_settle(const struct tr_variance *v, const struct tr_variance_model *model, size_t from,
                        size_t to, size_t place)
{
    TR_BY_TYPE(v->problem->dtype, settle, v, model, from, to, place);
}

void tr_variance_snapshot(const struct tr_variance *v, const struct tr_variance_model *model, size_t from,
                          size_t to, void *snapshot)
{
    TR_BY_TYPE(v->problem->dtype, snapshot, v, model, from, to, snapshot);
}

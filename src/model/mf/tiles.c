#include "model/mf/tiles.h"

#include <math.h>
#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

enum { TR_MF_BATCH = 16 };

/* How the rows of a batch's items step. */
struct tr_mf_turn {
    float error[TR_MF_BATCH], step[TR_MF_BATCH], keep[TR_MF_BATCH];
};

/* A pass at work. */
struct tr_mf_work {
    const struct tr_mf_pass *pass;
    struct tr_mf_rows user, item;
    float *spare;    /* a row of zeros */
    float per_rank;  /* 1/rank */
    double squares;
    float *user_bias, *user_sum; /* of the visit's user, or NULL */
    float user_share, base;      /* base: μ + b_u */
};

static inline void tr_mf_begin_visit(struct tr_mf_work *k, const struct tr_mf_visit *visit)
{
    size_t u = visit->user;
    k->user_bias = k->user.bias ? k->user.bias + u : NULL;
    k->user_sum = k->user.sum ? k->user.sum + u : NULL;
    k->user_share = k->user.share ? k->user.share[u] : 1;
    k->base = k->pass->mean + (k->user_bias ? *k->user_bias : 0);
}

#define NAME(f) f##_plain
#include "model/mf/sgd_kernel.h"
#undef NAME
#undef LANES
#undef VEC
#undef ALWAYS
#undef LOWER
#undef HIGHER
#undef PICK
#undef FOLD
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "model/mf/sgd_kernel.h"
#pragma GCC pop_options
#endif

double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile, struct tr_mf_rows user,
                       struct tr_mf_rows item)
{
    static _Alignas(64) float spare[128];
    struct tr_mf_work work = {.pass = pass, .user = user, .item = item, .per_rank = 1 / (float)pass->rank, .spare = spare};
    pass2_avx512(&work, tile);
    return work.squares;
}

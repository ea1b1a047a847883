#include "model/mf/tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

enum { TR_MF_BATCH = 16 }; /* ratings that step together at most */

/* A pass at work. */
struct tr_mf_work {
    const struct tr_mf_pass *pass;
    struct tr_mf_rows user, item;
    float *spare;   /* a row, of any use */
    float per_rank; /* 1/rank */
    double squares;
    float *user_bias, *user_sum; /* of the visit's user, or NULL … */
    float user_share, base;      /* … and μ + b_u */
};

static inline void begin_visit(struct tr_mf_work *k, size_t u)
{
    k->user_bias = k->user.bias ? k->user.bias + u : NULL;
    k->user_sum = k->user.sum ? k->user.sum + u : NULL;
    k->user_share = k->user.share ? k->user.share[u] : 1;
    k->base = k->pass->mean + (k->user_bias ? *k->user_bias : 0);
}

/* Vectors wider than the level's are handed between functions that are inlined: there is no ABI to keep. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define NAME(f) f##_plain
#include "model/mf/sgd_kernel.h"
#undef NAME
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include "model/mf/sgd_kernel.h"
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "model/mf/sgd_kernel.h"
#undef NAME
#pragma GCC pop_options
#endif

double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile, struct tr_mf_rows user,
                       struct tr_mf_rows item)
{
    struct tr_mf_work work = {
        .pass = pass, .user = user, .item = item, .spare = pass->spare, .per_rank = 1 / (float)pass->rank};
    switch (pass->level) {
#ifdef TR_CPU_LEVELS
    case TR_CPU_AVX512: tile_avx512(&work, tile); break;
    case TR_CPU_AVX2: tile_avx2(&work, tile); break;
#endif
    default: tile_plain(&work, tile); break;
    }
    return work.squares;
}

#define _GNU_SOURCE
#include "model/mf/tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

#include "trireme/status.h"

int tr_mf_memory(void **memory, size_t n, size_t size)
{
    const size_t line = 64, huge_page = (size_t)2 << 20;
    size_t align = n * size >= huge_page ? huge_page : line, bytes = (n * size + align) / align * align;
    *memory = aligned_alloc(align, bytes);
    if (!*memory) return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu times %zu bytes", n, size);
    if (align == huge_page) madvise(*memory, bytes, MADV_HUGEPAGE);
    return TR_OK;
}

enum { TR_MF_BATCH = 16 }; /* ratings that step together at most */

/* A pass at work. */
struct tr_mf_work {
    const struct tr_mf_pass *pass;
    struct tr_mf_rows user, item;
    float *spare;    /* a row, of any use */
    float per_rank;  /* 1/rank */
    float bias_part; /* rate of biases, in rates of factors */
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
    struct tr_mf_work work = {.pass = pass,
                              .user = user,
                              .item = item,
                              .spare = pass->spare,
                              .per_rank = 1 / (float)pass->rank,
                              .bias_part = pass->bias_part};
    switch (pass->level) {
#ifdef TR_CPU_LEVELS
    case TR_CPU_AVX512: tile_avx512(&work, tile); break;
    case TR_CPU_AVX2: tile_avx2(&work, tile); break;
#endif
    default: tile_plain(&work, tile); break;
    }
    return work.squares;
}

#define _GNU_SOURCE
#include "tiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "trireme/base.h"
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

enum { TR_MF_BATCH = 16 }; /* maximum number of ratings per step */

/* Vectors wider than those of the level are passed between inlined functions only: no ABI is involved. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define NAME(f) f##_plain
#include "sgd_kernel.h"
#undef NAME
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include "sgd_kernel.h"
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "sgd_kernel.h"
#undef NAME
#pragma GCC pop_options
#endif

double tr_mf_tile_pass(const struct tr_mf_pass *pass, const struct tr_mf_tile *tile,
                       const struct tr_mf_rows *users, const struct tr_mf_rows *items)
{
#ifdef TR_CPU_LEVELS
    if (pass->level == TR_CPU_AVX512) return tile_avx512(pass, tile, users, items);
    if (pass->level == TR_CPU_AVX2) return tile_avx2(pass, tile, users, items);
#endif
    return tile_plain(pass, tile, users, items);
}

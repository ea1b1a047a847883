#include "model/kmeans/assign.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#ifdef TR_CPU_LEVELS
#include <immintrin.h>
#endif

typedef float tr_f32x4 __attribute__((vector_size(16)));
typedef int32_t tr_i32x4 __attribute__((vector_size(16)));
typedef float tr_f32x8 __attribute__((vector_size(32)));
typedef double tr_f64x8 __attribute__((vector_size(64)));

/* The two least scores of the rows of a tile, and whose the least is. */
struct tr_leaders {
    _Alignas(64) float best[TR_TILE_MOST], second[TR_TILE_MOST];
    _Alignas(64) int which[TR_TILE_MOST];
};

struct tr_columns { size_t width; float*value,*half; };

#define NAME(f) f##_plain
#include "model/kmeans/assign_kernel.h"
enum { TILE_PLAIN = TILE };
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include "model/kmeans/assign_kernel.h"
#pragma GCC pop_options
enum { TILE_AVX2 = TILE };
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include "model/kmeans/assign_kernel.h"
#pragma GCC pop_options
enum { TILE_AVX512 = TILE };
#endif

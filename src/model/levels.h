/* Compiles a kernel once per instruction level (trireme/cpu.h). Each inclusion compiles the file TR_KERNEL, whose path is relative
 * to this folder, hence no guard:
 *
 *     #define TR_KERNEL "x/x_kernel.h"           // defines static double NAME(sum)(const float *x, size_t n)
 *     #include "../levels.h"
 *     double sum(const float *x, size_t n) { return TR_BY_LEVEL(tr_cpu(), sum)(x, n); }
 *
 * A pragma does not expand macros, so the list for AVX-512 repeats the list for AVX2.
 */
#include "trireme/cpu.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#define NAME(f) f##_plain
#include TR_KERNEL
#undef NAME
#ifdef TR_CPU_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c")
#define NAME(f) f##_avx2
#include TR_KERNEL
#undef NAME
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define NAME(f) f##_avx512
#include TR_KERNEL
#undef NAME
#pragma GCC pop_options
#endif
#undef TR_KERNEL

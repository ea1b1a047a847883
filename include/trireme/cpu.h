/* Which vector instructions this processor has, for kernels that are compiled several times.
 *
 * A kernel is a header, x_kernel.h, of static functions whose names end in NAME(…). The file x.c includes it once for
 * each level, with the instructions of the level switched on for just these lines, and chooses when it is called:
 *
 *     #define NAME(f) f##_plain
 *     #include "x_kernel.h"
 *     #ifdef TR_CPU_LEVELS
 *     #pragma GCC push_options
 *     #pragma GCC target("avx2,fma,bmi,bmi2,lzcnt,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl")
 *     #define NAME(f) f##_avx512
 *     #include "x_kernel.h"
 *     #pragma GCC pop_options
 *     #endif
 *
 * and once more with the first seven of these for NAME(f) f##_avx2; a pragma takes no macro for the list. Kernels are
 * written with GCC's vector types (a vector of 64 bytes becomes whatever the level has), and with intrinsics under
 * #ifdef __AVX512F__ where those do better. Where levels round differently, tests compare them.
 */
#ifndef TRIREME_CPU_H
#define TRIREME_CPU_H

#include <stdint.h> /* __GLIBC__ */

#ifdef __cplusplus
extern "C" {
#endif

/* Before a function to be compiled twice, with AVX2 and without: the processor chooses, before ThreadSanitizer is there. Both come to
 * the same bits if sums do not depend on how many are made side by side: no product is added unrounded. Clang wants it at declarations. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define TR_CPU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TR_CPU_CLONES
#endif

enum tr_cpu { TR_CPU_PLAIN, TR_CPU_AVX2, TR_CPU_AVX512 };

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) /* which ignores these pragmas */
#define TR_CPU_LEVELS
#endif

/* The best level of this processor; TRIREME_CPU=plain|avx2|avx512 in the environment lowers it. */
enum tr_cpu tr_cpu(void);

/* "avx512" */
const char *tr_cpu_name(enum tr_cpu level);

#ifdef __cplusplus
}
#endif
#endif

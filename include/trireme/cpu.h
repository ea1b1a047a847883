/* Vector instruction levels of the processor, for kernels that are compiled once per level.
 *
 * A kernel is a header of static functions whose names are written as NAME(f), which becomes f_plain, f_avx2 or f_avx512. A file
 * includes the header once per level, with the instructions of that level enabled (src/model/levels.h does this for the models).
 * TR_BY_LEVEL() selects a function at run time. Kernels use GCC's vector types: the compiler maps a vector of 64 bytes to the
 * registers of the level. Intrinsics under #ifdef __AVX512F__ are used where they are faster. If levels round differently, a test
 * compares them.
 */
#ifndef TRIREME_CPU_H
#define TRIREME_CPU_H

#include <stdint.h> /* __GLIBC__ */

#ifdef __cplusplus
extern "C" {
#endif

/* Compiles the function that follows for AVX2 and for plain x86-64; the loader selects one. Both give the same bits if no sum
 * depends on the vector length and the compiler uses no FMA, which omits a rounding. Has no effect under clang, which requires the
 * attribute at declarations, and under ThreadSanitizer, which is initialised after the selection. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define TR_CPU_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TR_CPU_CLONES
#endif

enum tr_cpu { TR_CPU_PLAIN, TR_CPU_AVX2, TR_CPU_AVX512 };

/* clang ignores the pragmas of src/model/levels.h */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TR_CPU_LEVELS
/* Selects f_plain, f_avx2 or f_avx512. */
#define TR_BY_LEVEL(level, f)                                                                                \
    ((level) == TR_CPU_AVX512 ? f##_avx512 : (level) == TR_CPU_AVX2 ? f##_avx2 : f##_plain)
#else
#define TR_BY_LEVEL(level, f) ((void)(level), f##_plain)
#endif

/* Returns the highest level that this processor supports. TRIREME_CPU=plain|avx2|avx512 in the environment lowers it. */
enum tr_cpu tr_cpu(void);

/* Returns the name of a level: "plain", "avx2" or "avx512". */
const char *tr_cpu_name(enum tr_cpu level);

#ifdef __cplusplus
}
#endif
#endif

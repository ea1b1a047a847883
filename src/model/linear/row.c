#define _GNU_SOURCE /* barriers, in cblas.h */
#include "row.h"

#include <cblas.h>
#include <string.h>

/* Loops that are compiled twice; the processor chooses. Both come to the same bits: as many sums side by side, and no
 * product is added unrounded. */
#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif

enum { LANES = 8, SUMS = 4 };
enum { TILE_ROWS = 64, TILE_COLUMNS = 256, TILE_OUTPUTS = 64 };
typedef float f32s __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double f64s __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

#define REAL    float
#define REALS   f32s
#define GEMM    cblas_sgemm
#define NAME(x) x##_f32
#include "row_real.h"

#define REAL    double
#define REALS   f64s
#define GEMM    cblas_dgemm
#define NAME(x) x##_f64
#include "row_real.h"

#define _GNU_SOURCE /* barriers, in cblas.h */
#include "row.h"

#include <cblas.h>
#include <string.h>

#include "trireme/cpu.h"

/* TR_CPU_CLONES come to the same bits: as many sums side by side. */

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

/* BLIS's matrix product on one core: the rate that kernels are held against. */
#ifndef TR_BENCH_BLIS_H
#define TR_BENCH_BLIS_H

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include <cblas.h>

#include "base/base.h"
#include "trireme/cpu.h"

/* Seconds that this process has had a core: others may run on the machine. */
static inline double core_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Numbers between 0 and 1, the same for the same n. */
static inline void fill(float *values, size_t n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, 5, n, 0);
    for (size_t i = 0; i < n; i++) values[i] = (float)tr_rng_uniform(&rng);
}

/* The best of `times` products of square matrices, in 10⁹ operations per second. */
static inline int blis_gflops(int times, double *gflops)
{
    enum { N = 1536 };
    float *a, *b, *c;
    double best = INFINITY;
    TR_TRY(TR_NEW(&a, N * N));
    TR_TRY(TR_NEW(&b, N * N));
    TR_TRY(TR_NEW(&c, N * N));
    fill(a, N * N);
    fill(b, N * N);
    for (int i = 0; i < times; i++) {
        double begin = core_seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, a, N, b, N, 0, c, N);
        best = fmin(best, core_seconds() - begin);
    }
    *gflops = 2e-9 * N * N * N / best;
    free(a);
    free(b);
    free(c);
    return TR_OK;
}

#endif

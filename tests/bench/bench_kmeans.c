/* What tools/bench kmeans holds against each other, each on one core:
 *
 *   bench_kmeans peak               GFLOP/s of BLIS's matrix product
 *   bench_kmeans assign COLUMNS K   GFLOP/s of labels for dense rows without bounds, and seconds for a million rows
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cblas.h>

#include "base/base.h"
#include "model/kmeans/assign.h"

enum { SIDE = 1536, ROWS = 50000, TIMES = 7 };

/* Seconds of this process alone, as others may want the core too. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fill(float **array, size_t n)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, n, 0, 0);
    TR_TRY(TR_NEW(array, n));
    for (size_t i = 0; i < n; i++) (*array)[i] = (float)tr_rng_uniform(&rng);
    return TR_OK;
}

static int peak(void)
{
    float *a, *b, *c;
    double best = INFINITY;
    TR_TRY(fill(&a, (size_t)SIDE * SIDE));
    TR_TRY(fill(&b, (size_t)SIDE * SIDE));
    TR_TRY(fill(&c, (size_t)SIDE * SIDE));
    for (int i = 0; i < TIMES; i++) {
        double begin = now();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c,
                    SIDE);
        best = fmin(best, now() - begin);
    }
    printf("%.2f\n", 2e-9 * SIDE * SIDE * SIDE / best);
    free(a);
    free(b);
    free(c);
    return TR_OK;
}

static void ignore_change(void *who, size_t row, uint32_t from, uint32_t to)
{
    (void)who;
    (void)row;
    (void)from;
    (void)to;
}

static int assign(size_t columns, size_t k)
{
    float *x;
    struct tr_centres c;
    struct tr_assigned a;
    double best = INFINITY;
    TR_TRY(fill(&x, ROWS * columns));
    tr_batch rows = {.n = ROWS, .dense = x};
    TR_TRY(tr_centres_open(k, columns, false, &c));
    TR_TRY(tr_assigned_open(&c, &rows, false, &a));
    memcpy(c.value, x, k * columns * sizeof *x);
    TR_TRY(tr_centres_ready(&c));
    for (int i = 0; i < TIMES; i++) {
        double begin = now();
        tr_assign(&c, &rows, 0, ROWS, &a, ignore_change, NULL);
        best = fmin(best, now() - begin);
    }
    double flops = 2.0 * ROWS * (double)columns * (double)k;
    printf("%.2f %.4f\n", 1e-9 * flops / best, best * 1e6 / ROWS);
    tr_assigned_close(&a);
    tr_centres_close(&c);
    free(x);
    return TR_OK;
}

int main(int argc, char **argv)
{
    int status = TR_ERR_USAGE;
    tr_blis_environment();
    if (argc == 2 && strcmp(argv[1], "peak") == 0) status = peak();
    else if (argc == 4 && atoi(argv[2]) > 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= ROWS)
        status = assign((size_t)atoi(argv[2]), (size_t)atoi(argv[3]));
    if (status != TR_OK) fprintf(stderr, "usage: bench_kmeans peak | assign COLUMNS K\n");
    return status;
}

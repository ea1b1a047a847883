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

#include "base/base.h"
#include "blis.h"
#include "model/kmeans/kmeans.h"

enum { ROWS = 50000, TIMES = 7 };

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
    TR_TRY(TR_NEW(&x, ROWS * columns));
    fill(x, ROWS * columns);
    tr_batch rows = {.n = ROWS, .dense = x};
    TR_TRY(tr_centres_open(k, columns, false, &c));
    TR_TRY(tr_assigned_open(&c, &rows, false, &a));
    memcpy(c.value, x, k * columns * sizeof *x);
    TR_TRY(tr_centres_ready(&c));
    for (int i = 0; i < TIMES; i++) {
        double begin = core_seconds();
        tr_assign(&c, &rows, 0, ROWS, &a, ignore_change, NULL);
        best = fmin(best, core_seconds() - begin);
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
    double peak;
    tr_blis_environment();
    if (argc == 2 && strcmp(argv[1], "peak") == 0) {
        status = blis_gflops(TIMES, &peak);
        if (status == TR_OK) printf("%.2f\n", peak);
    } else if (argc == 4 && atoi(argv[2]) > 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= ROWS)
        status = assign((size_t)atoi(argv[2]), (size_t)atoi(argv[3]));
    if (status != TR_OK) fprintf(stderr, "usage: bench_kmeans peak | assign COLUMNS K\n");
    return status;
}

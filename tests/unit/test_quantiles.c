#include "unit.h"

#include "data/matrix.h"

enum { SHARES = 257 };

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* How far the rank of x is from that share of all, at least: equal numbers have many ranks. */
static double error_of(const float *sorted, size_t n, float x, double share)
{
    size_t below = 0, end = n;
    while (below < end) {
        size_t middle = below + (end - below) / 2;
        if (sorted[middle] < x) below = middle + 1;
        else end = middle;
    }
    size_t up_to = below;
    while (up_to < n && sorted[up_to] == x) up_to++;
    if (up_to == below) return 1; /* it is none of them */
    double wanted = share * (double)n;
    if (wanted < (double)below) return ((double)below - wanted) / (double)n;
    return wanted > (double)up_to ? (wanted - (double)up_to) / (double)n : 0;
}

/* Of n numbers. */
static void check_quantiles(size_t n, int kind, double most)
{
    struct tr_quantiles q = {.n = 0};
    struct tr_rng rng;
    float *x, found[SHARES];
    int status = TR_OK;
    double share[SHARES];
    ck_ok(TR_NEW(&x, n));
    tr_rng_seed(&rng, n, 1, 0);
    for (size_t i = 0; i < n; i++) {
        float u = (float)tr_rng_below(&rng, 1 << 24);
        x[i] = kind == 0 ? u - 5e6f : kind == 1 ? (float)i : kind == 2 ? -(float)i : (float)(int)(u / 1e6f);
        status = status == TR_OK ? tr_quantiles_add(&q, x[i]) : status;
    }
    ck_ok(status);
    for (int k = 0; k < SHARES; k++) share[k] = k / (double)(SHARES - 1);
    ck_ok(tr_quantiles_at(&q, share, SHARES, found));
    qsort(x, n, sizeof *x, by_value);
    double worst = 0;
    for (int k = 0; k < SHARES; k++) worst = fmax(worst, error_of(x, n, found[k], share[k]));
    ck_assert_double_le(worst, most + 1.0 / (double)n);
    ck_assert_uint_eq(q.n, n);
    tr_quantiles_free(&q);
    free(x);
}

UNIT_CASE(few_numbers_are_exact)
{
    for (int kind = 0; kind < 4; kind++) {
        check_quantiles(1, kind, 0);
        check_quantiles(1000, kind, 0);
        check_quantiles(65535, kind, 0);
    }
}

/* The bound of quantiles.h: six buffers are in use. */
UNIT_CASE(many_numbers_are_within_the_bound)
{
    for (int kind = 0; kind < 4; kind++) check_quantiles(2000000, kind, 6 / 65536.0);
}

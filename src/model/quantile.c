/* Weighted quantiles of numbers that are distributed over ranks. */
#include "quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trireme/base.h"

/* The rows of a set are distributed over ranks. The 32 bits of a quantile are found eight at a time by counting, from the highest.
 * Sums are of integers, so any number of ranks finds the same numbers. */
enum { COUNTERS = 256 };

struct quantile_search {
    uint32_t found;     /* the highest bits, as far as they are known */
    int64_t below, all; /* weight of smaller numbers; of all numbers */
    int64_t *counter;
};

static void quantile_count(struct quantile_search *s, const struct tr_row_set *set, const float *value,
                           const float *weight, float scale, unsigned shift)
{
    memset(s->counter, 0, COUNTERS * sizeof *s->counter);
    for (size_t i = 0; i < set->n; i++) {
        size_t r = set->row ? set->row[i] : i;
        uint32_t key = tr_key_of_float(value[r]);
        if ((uint64_t)key >> (shift + 8) != s->found) continue;
        s->counter[key >> shift & 255] += weight ? llrintf(weight[r] * scale) : 1;
    }
}

/* Chooses the next eight bits: the first counter at which the sum reaches the part of the total weight. */
static void quantile_choose(struct quantile_search *s, double part, bool first)
{
    size_t k = 0;
    for (size_t c = 0; c < COUNTERS && first; c++) s->all += s->counter[c];
    int64_t least = (int64_t)ceil(part * (double)s->all);
    least = least > 1 ? least : 1;
    while (k + 1 < COUNTERS && s->below + s->counter[k] < least) s->below += s->counter[k++];
    s->found = s->found << 8 | (uint32_t)k;
}

static int quantile_find(tr_context *tr, enum tr_set ranks, struct quantile_search *s,
                         const struct tr_row_set *set, size_t n, const float *value, const float *weight,
                         double part, float *quantile)
{
    double most = 0;
    for (size_t k = 0; k < n && weight; k++)
        for (size_t i = 0; i < set[k].n; i++)
            most = fmax(most, (double)weight[set[k].row ? set[k].row[i] : i]);
    TR_TRY(tr_all_reduce(tr, ranks, TR_MAX, TR_F64, &most, 1));
    float scale = most > 0 ? (float)(0x1p20 / most) : 0;
    for (unsigned shift = 32; shift > 0;) {
        shift -= 8;
        for (size_t k = 0; k < n; k++) quantile_count(&s[k], &set[k], value, weight, scale, shift);
        TR_TRY(tr_all_reduce(tr, ranks, TR_SUM, TR_I64, s->counter, n * COUNTERS));
        for (size_t k = 0; k < n; k++) quantile_choose(&s[k], part, shift == 24);
    }
    for (size_t k = 0; k < n; k++) quantile[k] = s[k].all > 0 ? tr_float_of_key(s[k].found) : 0;
    return TR_OK;
}

int tr_weighted_quantiles(tr_context *tr, enum tr_set ranks, const struct tr_row_set *set, size_t n,
                          const float *value, const float *weight, double part, float *quantile)
{
    struct quantile_search *s;
    int64_t *counter = NULL;
    TR_TRY(TR_NEW(&s, n));
    int status = TR_NEW(&counter, n * COUNTERS);
    for (size_t k = 0; k < n; k++) s[k].counter = counter + k * COUNTERS;
    if (status == TR_OK) status = quantile_find(tr, ranks, s, set, n, value, weight, part, quantile);
    free(counter);
    free(s);
    return status;
}

/* Quantiles of rows that lie with many workers: the 32 bits of a number, in their order, are found eight at a time by counting. Sums
 * are of integers, so that any number of ranks finds the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trees.h"

enum { COUNTERS = 256 };

struct search {
    uint32_t found;     /* the first bits, so many as are known */
    int64_t below, all; /* weight of lesser numbers; of all */
    int64_t *counter;
};

static void count(struct search *s, const struct tr_row_set *set, const float *value, const float *weight,
                  float scale, unsigned shift)
{
    memset(s->counter, 0, COUNTERS * sizeof *s->counter);
    for (size_t i = 0; i < set->n; i++) {
        size_t r = set->row ? set->row[i] : i;
        uint32_t key = tr_key_of_float(value[r]);
        if ((uint64_t)key >> (shift + 8) != s->found) continue;
        s->counter[key >> shift & 255] += weight ? llrintf(weight[r] * scale) : 1;
    }
}

/* The first of the counters by which there is so large a part of all. */
static void choose(struct search *s, double part, bool first)
{
    size_t k = 0;
    for (size_t c = 0; c < COUNTERS && first; c++) s->all += s->counter[c];
    int64_t least = (int64_t)ceil(part * (double)s->all);
    least = least > 1 ? least : 1;
    while (k + 1 < COUNTERS && s->below + s->counter[k] < least) s->below += s->counter[k++];
    s->found = s->found << 8 | (uint32_t)k;
}

static int find(tr_context *tr, struct search *s, const struct tr_row_set *set, size_t n, const float *value,
                const float *weight, double part, float *quantile)
{
    double most = 0;
    for (size_t k = 0; k < n && weight; k++)
        for (size_t i = 0; i < set[k].n; i++)
            most = fmax(most, (double)weight[set[k].row ? set[k].row[i] : i]);
    TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_MAX, TR_F64, &most, 1));
    float scale = most > 0 ? (float)(0x1p20 / most) : 0;
    for (unsigned shift = 32; shift > 0;) {
        shift -= 8;
        for (size_t k = 0; k < n; k++) count(&s[k], &set[k], value, weight, scale, shift);
        TR_TRY(tr_all_reduce(tr, TR_SET_WORKERS, TR_SUM, TR_I64, s->counter, n * COUNTERS));
        for (size_t k = 0; k < n; k++) choose(&s[k], part, shift == 24);
    }
    for (size_t k = 0; k < n; k++) quantile[k] = s[k].all > 0 ? tr_float_of_key(s[k].found) : 0;
    return TR_OK;
}

int tr_quantiles(tr_context *tr, const struct tr_row_set *set, size_t n, const float *value,
                 const float *weight, double part, float *quantile)
{
    struct search *s;
    int64_t *counter = NULL;
    TR_TRY(TR_NEW(&s, n));
    int status = TR_NEW(&counter, n * COUNTERS);
    for (size_t k = 0; k < n; k++) s[k].counter = counter + k * COUNTERS;
    if (status == TR_OK) status = find(tr, s, set, n, value, weight, part, quantile);
    free(counter);
    free(s);
    return status;
}

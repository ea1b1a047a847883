#include "data/quantiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static uint32_t key_of(float x)
{
    uint32_t bits;
    x += 0.0f; /* -0 is 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float number_of(uint32_t key)
{
    uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int push(struct tr_quantiles *q, size_t level, uint32_t key);

/* Half of the numbers go to the next level. */
static int compact(struct tr_quantiles *q, size_t level)
{
    uint32_t *key = q->level[level].key, *other;
    size_t n = q->level[level].n;
    TR_TRY(TR_NEW(&other, n));
    tr_sort_u32(key, other, n);
    free(other);
    q->level[level].n = 0;
    q->level[level].odd = !q->level[level].odd;
    for (size_t i = q->level[level].odd; i < n; i += 2) TR_TRY(push(q, level + 1, key[i]));
    return TR_OK;
}

static int push(struct tr_quantiles *q, size_t level, uint32_t key)
{
    if (q->level[level].n == q->level[level].capacity)
        TR_TRY(TR_GROW(&q->level[level].key, &q->level[level].capacity, q->level[level].n + 1));
    q->level[level].key[q->level[level].n++] = key;
    return q->level[level].n == TR_QUANTILES_BUFFER ? compact(q, level) : TR_OK;
}

int tr_quantiles_add(struct tr_quantiles *q, float x)
{
    q->n++;
    return push(q, 0, key_of(x));
}

int tr_quantiles_join(struct tr_quantiles *q, size_t level, const uint32_t *key, size_t n)
{
    q->n += (uint64_t)n << level;
    for (size_t i = 0; i < n; i++) TR_TRY(push(q, level, key[i]));
    return TR_OK;
}

struct weighed {
    uint32_t key;
    uint64_t weight;
};

static int by_key(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

int tr_quantiles_at(const struct tr_quantiles *q, const double *share, size_t n, float *x)
{
    struct weighed *all;
    size_t count = 0, at = 0;
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++) count += q->level[level].n;
    TR_TRY(TR_NEW(&all, count));
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++)
        for (size_t i = 0; i < q->level[level].n; i++)
            all[at++] = (struct weighed){q->level[level].key[i], (uint64_t)1 << level};
    qsort(all, count, sizeof *all, by_key);
    for (size_t k = 0; k < n; k++) {
        double wanted = fmax(1, ceil(share[k] * (double)q->n));
        uint64_t sum = 0;
        size_t i = 0;
        while (i + 1 < count && (double)(sum += all[i].weight) < wanted) i++;
        x[k] = number_of(all[i].key);
    }
    free(all);
    return TR_OK;
}

void tr_quantiles_free(struct tr_quantiles *q)
{
    for (size_t level = 0; level < TR_QUANTILES_LEVELS; level++) free(q->level[level].key);
    memset(q, 0, sizeof *q);
}

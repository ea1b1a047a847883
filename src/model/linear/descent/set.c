/* The set of columns that steps change. */
#include "descent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    tr_key key;
    double weight, entries;
};

/* Frequent columns first: those that share most rows come into the same blocks. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int i, k;
    (void)frexp(x->entries, &i);
    (void)frexp(y->entries, &k);
    return i != k ? k - i : (x->key > y->key) - (x->key < y->key);
}

static bool matters(const struct tr_linear_descent *d, size_t j)
{
    return d->weight[j] != 0 || fabs(d->gradient[j]) > d->alpha - d->margin_of_zeros;
}

static uint32_t find(const tr_key *keys, size_t n, tr_key key)
{
    size_t first = 0, end = n;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (keys[middle] < key) first = middle + 1;
        else end = middle;
    }
    return first < n && keys[first] == key ? (uint32_t)first : UINT32_MAX;
}

static int grow_set(struct tr_descent_set *s, size_t n)
{
    size_t capacity[5] = {s->capacity, s->capacity, s->capacity, s->capacity, s->capacity};
    TR_TRY(TR_GROW(&s->key, &capacity[0], n));
    TR_TRY(TR_GROW(&s->weight, &capacity[1], n));
    TR_TRY(TR_GROW(&s->next, &capacity[2], n));
    TR_TRY(TR_GROW(&s->column, &capacity[3], n));
    TR_TRY(TR_GROW(&s->slot, &capacity[4], n));
    s->capacity = capacity[4];
    return TR_OK;
}

void tr_descent_clear_set(struct tr_linear_descent *d)
{
    struct tr_descent_set *s = &d->set;
    for (size_t b = 0; b < s->blocks; b++) tr_block_free(&s->block[b]);
    s->n = s->blocks = 0;
    if (d->working) memset(d->working, 0, d->shared.n * sizeof *d->working);
}

int tr_descent_add_columns(struct tr_linear_descent *d, const tr_key *keys, const double *weights, size_t n)
{
    struct tr_descent_set *s = &d->set;
    size_t first = s->n, blocks = (n + TR_BLOCK_COLUMNS - 1) / TR_BLOCK_COLUMNS;
    TR_TRY(grow_set(s, first + n));
    TR_TRY(TR_GROW(&s->block, &s->block_capacity, s->blocks + blocks));
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i;
        s->key[at] = keys[i];
        s->weight[at] = s->next[at] = weights[i];
        s->column[at] = find(d->key, d->rows.columns, keys[i]);
        s->slot[at] = tr_descent_slot(d, keys[i]);
        if (s->slot[at] != UINT32_MAX) d->working[s->slot[at]] = true;
    }
    memset(s->block + s->blocks, 0, blocks * sizeof *s->block);
    s->n += n;
    s->blocks += blocks;
    return tr_blocks_make(&d->rows, s->column + first, n, s->block + s->blocks - blocks);
}

/* What this worker's columns add to the set, gathered from all. */
static int gather(struct tr_linear *m, struct entry **all, size_t *n)
{
    struct tr_linear_descent *d = m->descent;
    size_t workers = (size_t)tr_set_size(m->tr, TR_SET_WORKERS), own = 0, *bytes;
    struct entry *mine;
    TR_TRY(TR_NEW(&mine, d->n_mine));
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        if (!d->working[j] && matters(d, j))
            mine[own++] = (struct entry){d->shared.first + j, d->weight[j], d->entries[j]};
    }
    own *= sizeof *mine;
    TR_TRY(TR_NEW(&bytes, workers));
    int status = tr_all_gather(m->tr, TR_SET_WORKERS, &own, sizeof own, bytes);
    *n = 0;
    for (size_t r = 0; r < workers; r++) *n += bytes[r] / sizeof *mine;
    if (status == TR_OK) status = TR_NEW(all, *n);
    if (status == TR_OK) status = tr_all_gather_lists(m->tr, TR_SET_WORKERS, mine, bytes, *all);
    free(bytes);
    free(mine);
    return status;
}

static int add_gathered(struct tr_linear *m)
{
    struct entry *all = NULL;
    tr_key *keys = NULL;
    double *weights = NULL;
    size_t n = 0;
    int status = gather(m, &all, &n);
    if (status == TR_OK) status = TR_NEW(&keys, n);
    if (status == TR_OK) status = TR_NEW(&weights, n);
    if (status == TR_OK) {
        qsort(all, n, sizeof *all, compare_entries);
        for (size_t i = 0; i < n; i++) keys[i] = all[i].key, weights[i] = all[i].weight;
        status = tr_descent_add_columns(m->descent, keys, weights, n);
    }
    free(all);
    free(keys);
    free(weights);
    return status;
}

int tr_descent_choose_columns(struct tr_linear *m)
{
    struct tr_linear_descent *d = m->descent;
    double sums[3] = {0, 0, 0};
    for (size_t i = 0; i < d->n_mine; i++) {
        uint32_t j = d->mine[i];
        sums[0] += matters(d, j) && !d->working[j];
        sums[1] += matters(d, j) ? d->entries[j] : 0;
        sums[2] += d->working[j] ? d->entries[j] : 0;
    }
    TR_TRY(tr_descent_sum(m, sums, 3));
    bool fewer = sums[1] < 0.5 * sums[2], one = (double)d->set.n + sums[0] <= TR_BLOCK_COLUMNS;
    if (sums[0] == 0 && !fewer) return TR_OK;
    if (fewer || one) tr_descent_clear_set(d);
    return add_gathered(m);
}

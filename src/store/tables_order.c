/* How a share's units lie in ascending order: see tables.h. */
#include <stdlib.h>
#include <string.h>

#include "store/tables.h"

/* ---- sorting ---- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* One pass of a radix sort; false if all have the same digit. */
static bool sort_by_digit(uint64_t n, unsigned shift, const uint64_t *key, const uint32_t *at,
                          uint64_t *to_key, uint32_t *to_at)
{
    uint64_t start[DIGITS] = {0}, sum = 0;
    for (uint64_t i = 0; i < n; i++) start[key[i] >> shift & (DIGITS - 1)]++;
    if (start[key[0] >> shift & (DIGITS - 1)] == n) return false;
    for (int d = 0; d < DIGITS; d++) {
        uint64_t count = start[d];
        start[d] = sum;
        sum += count;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = start[key[i] >> shift & (DIGITS - 1)]++;
        to_key[to] = key[i];
        to_at[to] = at[i];
    }
    return true;
}

static int sort(struct tr_order *l, uint64_t highest)
{
    uint64_t *key = NULL;
    uint32_t *at = NULL;
    int status = TR_NEW(&key, l->blocks);
    if (status == TR_OK) status = TR_NEW(&at, l->blocks);
    for (unsigned shift = 0; status == TR_OK && shift < 64 && highest >> shift > 0; shift += DIGIT_BITS) {
        if (!sort_by_digit(l->blocks, shift, l->number, l->at, key, at)) continue;
        uint64_t *old_key = l->number;
        uint32_t *old_at = l->at;
        l->number = key;
        l->at = at;
        key = old_key;
        at = old_at;
    }
    free(key);
    free(at);
    return status;
}

/* ---- the order ---- */

static uint64_t number_of(const struct tr_table *t, uint64_t block, uint64_t i)
{
    if (t->map) return tr_hashmap_key(t->map, (uint32_t)i);
    return tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)(i * block)) / block;
}

int tr_order_make(const struct tr_table *t, struct tr_order *order)
{
    struct tr_order l = {
        .block = t->map ? 1 : t->partition.block, .end = t->keys * t->pieces, .straight = true};
    l.blocks = t->map ? t->map->count : tr_partition_share(&t->partition, (uint32_t)t->server) / l.block;
    int status = TR_NEW(&l.number, l.blocks);
    if (status == TR_OK) status = TR_NEW(&l.at, l.blocks);
    uint64_t highest = 0;
    for (uint64_t i = 0; status == TR_OK && i < l.blocks; i++) {
        l.number[i] = number_of(t, l.block, i);
        l.at[i] = (uint32_t)i;
        if (i > 0 && l.number[i] < highest) l.straight = false;
        else highest = l.number[i];
    }
    if (status == TR_OK && !l.straight) status = sort(&l, highest);
    if (status == TR_OK) *order = l;
    else tr_order_free(&l);
    return status;
}

void tr_order_free(struct tr_order *l)
{
    free(l->number);
    free(l->at);
    *l = (struct tr_order){0};
}

/* ---- runs ---- */

/* The first block that ends behind a unit. */
static uint64_t find_block(const struct tr_order *l, uint64_t unit)
{
    return tr_place_u64(l->number, l->blocks, unit / l->block);
}

/* The units of a block within first .. end - 1; behind the last one, none. */
static inline struct tr_row_run block_run(const struct tr_order *l, uint64_t i, uint64_t first, uint64_t end)
{
    uint64_t from = l->number[i] * l->block, to = from + l->block;
    if (to > l->end) to = l->end;
    if (to > end) to = end;
    if (from < first) from = first;
    return (struct tr_row_run){from, from < to ? to - from : 0};
}

int tr_order_runs(const struct tr_order *l, uint64_t first, uint64_t end, struct tr_part *part,
                  uint64_t *before)
{
    uint64_t from = find_block(l, first), next;
    struct tr_row_run run;
    *before = from < l->blocks && l->number[from] * l->block < first ? first % l->block : 0;
    *before += from * l->block;            /* none but the last block is shorter */
    for (int fill = 0; fill < 2; fill++) { /* counted, then written */
        if (fill) TR_TRY(TR_NEW(&part->run, part->runs));
        part->runs = 0;
        part->rows = 0;
        next = UINT64_MAX;
        for (uint64_t i = from; i < l->blocks && (run = block_run(l, i, first, end)).n > 0; i++) {
            if (run.first != next) part->runs++;
            if (fill && run.first != next) part->run[part->runs - 1].first = run.first - first;
            if (fill) part->run[part->runs - 1].n += run.n;
            part->rows += run.n;
            next = run.first + run.n;
        }
    }
    return TR_OK;
}

/* ---- copying ---- */

/* In a call of its own for each size, so that single numbers are moved as such. */
#define COPY_SCATTERED(TYPE)                                                                                 \
    do {                                                                                                     \
        TYPE *there = packed_, *here = array_;                                                               \
        if (gather)                                                                                          \
            for (uint64_t i = 0; i < n; i++) there[i] = here[at[i]];                                         \
        else                                                                                                 \
            for (uint64_t i = 0; i < n; i++) here[at[i]] = there[i];                                         \
    } while (0)

/* Blocks of one unit of one number. */
static bool copy_numbers(const uint32_t *at, uint64_t n, size_t unit_bytes, bool gather, void *packed_,
                         void *array_)
{
    if (unit_bytes == sizeof(uint32_t)) COPY_SCATTERED(uint32_t);
    else if (unit_bytes == sizeof(uint64_t)) COPY_SCATTERED(uint64_t);
    else return false;
    return true;
}

void tr_order_copy(const struct tr_order *l, uint64_t first, uint64_t end, size_t unit_bytes, bool gather,
                   void *packed_, void *array_)
{
    char *packed = packed_, *array = array_;
    uint64_t from = find_block(l, first), to = from;
    if (l->block == 1) {
        to = find_block(l, end);
        if (copy_numbers(l->at + from, to - from, unit_bytes, gather, packed, array)) return;
    }
    struct tr_row_run run;
    for (uint64_t i = from; i < l->blocks && (run = block_run(l, i, first, end)).n > 0; i++) {
        char *there = array + ((uint64_t)l->at[i] * l->block + run.first % l->block) * unit_bytes;
        memcpy(gather ? packed : there, gather ? there : packed, run.n * unit_bytes);
        packed += run.n * unit_bytes;
    }
}

void tr_order_places(const struct tr_order *l, uint32_t *place)
{
    struct tr_row_run run;
    for (uint64_t i = 0; i < l->blocks && (run = block_run(l, i, 0, l->end)).n > 0; i++)
        for (uint64_t k = 0; k < run.n; k++) *place++ = (uint32_t)((uint64_t)l->at[i] * l->block + k);
}

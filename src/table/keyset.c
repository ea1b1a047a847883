#include "table/keyset.h"

#include <stdlib.h>

#include "table/elements.h"

/* A memcpy call pays from about this many units on; below, indexed loops win. */
enum { MEAN_RUN_WORTH_IT = 16 };

int tr_segment_find_runs(struct tr_segment *s)
{
    uint32_t runs = 0;
    for (uint32_t i = 0; i < s->n; i++)
        runs += i == 0 || s->position[i] != s->position[i - 1] + 1 || s->local[i] != s->local[i - 1] + 1;
    if (s->n == 0 || s->n / runs < MEAN_RUN_WORTH_IT) return TR_OK;
    TR_TRY(TR_NEW(&s->run, runs));
    for (uint32_t i = 0; i < s->n; i++) {
        if (i == 0 || s->position[i] != s->position[i - 1] + 1 || s->local[i] != s->local[i - 1] + 1)
            s->run[s->runs++] = (struct tr_run){s->local[i], s->position[i], 0};
        s->run[s->runs - 1].length++;
    }
    return TR_OK;
}

/* Blocks are permuted, so that positions ascend only inside each block. */
static int sort_segment(struct tr_segment *s)
{
    uint64_t *entry;
    uint32_t ascending = 1;
    while (ascending < s->n && s->position[ascending - 1] < s->position[ascending]) ascending++;
    if (ascending < s->n) {
        TR_TRY(TR_NEW(&entry, 2 * (size_t)s->n));
        for (uint32_t i = 0; i < s->n; i++) entry[i] = (uint64_t)s->position[i] << 32 | s->local[i];
        tr_sort_by_upper_half(entry, entry + s->n, s->n);
        for (uint32_t i = 0; i < s->n; i++) {
            s->position[i] = (uint32_t)(entry[i] >> 32);
            s->local[i] = (uint32_t)entry[i];
        }
        free(entry);
    }
    return tr_segment_find_runs(s);
}

/* Distributes the units over the segments, in two passes: count, then fill. Keys of an unbounded partition stay in
 * order. */
static int split(const struct tr_partition *partition, uint64_t table_keys, uint32_t pieces,
                 const tr_key *keys, size_t n, struct tr_keyset *set)
{
    struct tr_walker walker = {.partition = partition};
    for (uint32_t piece = 0; piece < pieces; piece++)
        for (size_t i = 0; i < n; i++)
            set->segment[tr_walk_to(&walker, piece * table_keys + keys[i]).server].n++;
    for (uint32_t server = 0; server < set->servers; server++) {
        struct tr_segment *s = &set->segment[server];
        TR_TRY(TR_NEW(&s->local, s->n));
        TR_TRY(partition->unbounded ? TR_NEW(&s->key, s->n) : TR_NEW(&s->position, s->n));
        s->n = 0;
    }
    for (uint32_t piece = 0; piece < pieces; piece++)
        for (size_t i = 0; i < n; i++) {
            struct tr_location at = tr_walk_to(&walker, piece * table_keys + keys[i]);
            struct tr_segment *s = &set->segment[at.server];
            s->local[s->n] = (uint32_t)(i * pieces + piece);
            if (partition->unbounded) s->key[s->n++] = keys[i];
            else s->position[s->n++] = at.position;
        }
    for (uint32_t server = 0; server < set->servers && !partition->unbounded; server++)
        TR_TRY(sort_segment(&set->segment[server]));
    return TR_OK;
}

int tr_keyset_make(const struct tr_partition *partition, uint64_t table_keys, uint32_t pieces,
                   const tr_key *keys, size_t n, struct tr_keyset *keyset)
{
    if (n * pieces > UINT32_MAX)
        return tr_fail(TR_ERR_INTERNAL, "a view has at most 2^32 units, not %zu", n * pieces);
    for (size_t i = 0; i < n; i++) {
        if (keys[i] >= table_keys || (i > 0 && keys[i] <= keys[i - 1]))
            return tr_fail(TR_ERR_INTERNAL, "key %zu of a view is %llu: keys must ascend and lie below %llu",
                           i, (unsigned long long)keys[i], (unsigned long long)table_keys);
    }
    struct tr_keyset set = {.servers = partition->servers, .units = n * pieces};
    TR_TRY(TR_NEW(&set.segment, set.servers));
    int status = split(partition, table_keys, pieces, keys, n, &set);
    if (status != TR_OK) {
        tr_keyset_free(&set);
        return status;
    }
    *keyset = set;
    return TR_OK;
}

void tr_keyset_free(struct tr_keyset *keyset)
{
    for (uint32_t server = 0; keyset->segment && server < keyset->servers; server++) {
        free(keyset->segment[server].local);
        free(keyset->segment[server].position);
        free(keyset->segment[server].key);
        free(keyset->segment[server].run);
    }
    free(keyset->segment);
    *keyset = (struct tr_keyset){0};
}

uint32_t tr_segment_find(const struct tr_segment *s, uint32_t position)
{
    return (uint32_t)tr_place_u32(s->position, s->n, position);
}

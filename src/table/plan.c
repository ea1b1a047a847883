#include "table/plan.h"

#include <stdlib.h>
#include <string.h>

#include "table/table.h"

/* ======== partitions ======== */

const char *tr_partition_name(enum tr_partition_kind kind)
{
    static const char *const name[] = {"range", "hash", "range-hash", "ring", "own"};
    return name[kind];
}

/* ---- by arithmetic: range, hash, range-hash ---- */

/* A pseudo-random permutation of 0..blocks-1, or its inverse if `back` is true: a four-round Feistel network over an even number of
 * bits. It is repeated until the result is below `blocks` (fewer than four times on average). For the inverse, the halves are
 * exchanged and the rounds run in reverse order. */
static inline uint64_t partition_permute(const struct tr_partition *p, uint64_t block, bool back)
{
    uint64_t mask = (UINT64_C(1) << p->half_bits) - 1;
    do {
        uint64_t high = block >> p->half_bits, low = block & mask, a = back ? low : high,
                 b = back ? high : low;
        for (uint64_t i = 0; i < 4; i++) {
            uint64_t next = a ^ (tr_mix(b + ((back ? 3 - i : i) << 60)) & mask);
            a = b;
            b = next;
        }
        block = back ? b << p->half_bits | a : a << p->half_bits | b;
    } while (block >= p->blocks);
    return block;
}

/* ---- by a table of blocks: ring, own ---- */

static bool partition_is_placed(const struct tr_partition *p)
{
    return !p->unbounded && (p->kind == TR_PARTITION_RING || p->kind == TR_PARTITION_OWN);
}

static int ring_compare(const void *a, const void *b)
{
    const struct tr_ring_point *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Lists the points of all servers in ascending order. The points of a server depend only on its number. All points differ, because
 * tr_mix() is a bijection. */
static int ring_points(const struct tr_partition *p, struct tr_ring_point **points)
{
    TR_TRY(TR_NEW(points, (size_t)p->servers * p->points));
    struct tr_ring_point *next = *points;
    for (uint64_t server = 0; server < p->servers; server++)
        for (uint32_t i = 0; i < p->points; i++)
            *next++ = (struct tr_ring_point){tr_mix(server << 32 | i), (uint32_t)server};
    qsort(*points, (size_t)(next - *points), sizeof **points, ring_compare);
    return TR_OK;
}

/* Returns the server of a block: the one whose point is the first at or behind the hash of the block, or the first of all if none
 * is behind it. Points are hashes of small numbers, and blocks are hashed as their complements, so no block has the hash of a
 * point. */
static uint32_t ring_owner(const struct tr_ring_point *points, size_t n, uint64_t block)
{
    uint64_t at = tr_mix(~block);
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (points[middle].at < at) low = middle + 1;
        else high = middle;
    }
    return points[low < n ? low : 0].server;
}

/* ---- all kinds ---- */

int tr_partition_make(const struct tr_partition_options *options, uint64_t units, uint32_t servers,
                      struct tr_partition *partition)
{
    struct tr_partition p TR_CLOSED_BY(tr_partition_free) = {.kind = options->kind,
                                                             .unbounded = options->unbounded,
                                                             .units = units,
                                                             .servers = servers,
                                                             .points = options->points};
    uint64_t even = (units + servers - 1) / servers; /* units per server, rounded up */
    /* With 64 blocks per server, shares of range-hash differ by a few per cent. Blocks above 65536 units would not make copies
     * faster. Unbounded partitions need no contiguous units; blocks of 64 keys save look-ups for neighbouring keys. */
    enum { PLACED_BLOCKS = 65536 };
    uint64_t longest = options->unbounded ? 64 : 65536, block = even / 64;
    if (options->kind != TR_PARTITION_RANGE_HASH) block = (units + PLACED_BLOCKS - 1) / PLACED_BLOCKS;
    p.block = options->kind == TR_PARTITION_RANGE  ? even
              : options->kind == TR_PARTITION_HASH ? 1
              : options->block > 0                 ? tr_min_size(options->block, units)
                                                   : tr_min_size(block, longest);
    if (p.block < 1) p.block = 1;
    p.blocks = (units + p.block - 1) / p.block;
    if (p.unbounded) {
        if (p.units > UINT64_C(1) << 63)
            return tr_fail(TR_ERR_CONFIG, "table %s: %llu keys are more than 2^63", options->table,
                           (unsigned long long)p.units);
        if (p.kind == TR_PARTITION_OWN)
            return tr_fail(TR_ERR_CONFIG,
                           "table %s: with hash storage its keys cannot be placed by a user-defined function",
                           options->table);
        if (p.kind == TR_PARTITION_RING) TR_TRY(ring_points(&p, &p.ring));
    }
    if (partition_is_placed(&p)) { /* chooses the server of each block, and its position there */
        if (p.blocks > TR_MOST_PLACED_BLOCKS)
            return tr_fail(TR_ERR_CONFIG,
                           "table %s: %llu blocks of %llu are more than the %d that every rank can list: "
                           "make the blocks larger (table.block)",
                           options->table, (unsigned long long)p.blocks, (unsigned long long)p.block,
                           TR_MOST_PLACED_BLOCKS);
        TR_TRY(TR_NEW(&p.placed, (size_t)p.blocks));
        TR_TRY(TR_NEW(&p.block_at, (size_t)p.blocks));
        TR_TRY(TR_NEW(&p.first, (size_t)p.servers + 1));
        TR_FREED struct tr_ring_point *points = NULL;
        if (p.kind == TR_PARTITION_RING) TR_TRY(ring_points(&p, &points));
        for (uint64_t b = 0; b < p.blocks; b++) {
            uint32_t server = points ? ring_owner(points, (size_t)p.servers * p.points, b)
                                     : options->place(options->who, b, p.blocks, p.servers);
            if (server >= p.servers)
                return tr_fail(
                    TR_ERR_CONFIG,
                    "table %s: its place function puts block %llu of %llu on server %u, but there are %u",
                    options->table, (unsigned long long)b, (unsigned long long)p.blocks, server, p.servers);
            p.placed[b] = (struct tr_location){server, p.first[server + 1]++};
        }
        for (uint32_t server = 0; server < p.servers; server++) p.first[server + 1] += p.first[server];
        for (uint64_t b = 0; b < p.blocks; b++)
            p.block_at[p.first[p.placed[b].server] + p.placed[b].position] = (uint32_t)b;
    }
    if (!p.unbounded && (partition_is_placed(&p) ? tr_partition_longest(&p) : even + p.block) > UINT32_MAX)
        return tr_fail(
            TR_ERR_CONFIG,
            "table %s: its %llu elements need more than %u servers: one holds at most 2^32 (or, with "
            "table.storage=hash, 2^32 keys that are used)",
            options->table, (unsigned long long)p.units, p.servers);
    while (!p.unbounded && (UINT64_C(1) << (2 * p.half_bits)) < p.blocks) p.half_bits++;
    *partition = p;
    p = (struct tr_partition){0};
    return TR_OK;
}

void tr_partition_free(struct tr_partition *p)
{
    TR_FREE_ALL(p->placed, p->first, p->block_at, p->ring);
    *p = (struct tr_partition){0};
}

uint64_t tr_partition_share(const struct tr_partition *p, uint32_t server)
{
    if (p->unbounded) return 0;
    if (partition_is_placed(p)) return (p->first[server + 1] - p->first[server]) * p->block;
    return (p->blocks / p->servers + (server < p->blocks % p->servers)) * p->block;
}

uint64_t tr_partition_longest(const struct tr_partition *p)
{
    uint64_t longest = 0;
    for (uint32_t server = 0; server < p->servers; server++) {
        uint64_t share = tr_partition_share(p, server);
        if (share > longest) longest = share;
    }
    return longest;
}

static struct tr_location partition_locate_block(const struct tr_partition *p, uint64_t block)
{
    if (partition_is_placed(p)) return p->placed[block];
    if (p->unbounded && p->kind == TR_PARTITION_RING)
        return (struct tr_location){.server = ring_owner(p->ring, (size_t)p->servers * p->points, block)};
    if (p->unbounded && p->kind != TR_PARTITION_RANGE)
        /* hashes ~block, because hash maps use tr_mix(key): otherwise all keys in the map of a server would have some bits of the
         * hash in common */
        return (struct tr_location){.server = (uint32_t)((tr_mix(~block) >> 32) * p->servers >> 32)};
    if (p->unbounded) return (struct tr_location){.server = (uint32_t)block};
    if (p->kind != TR_PARTITION_RANGE) block = partition_permute(p, block, false);
    return (struct tr_location){(uint32_t)(block % p->servers), (uint32_t)(block / p->servers)};
}

void tr_partition_count(const struct tr_partition *p, uint64_t *count)
{
    for (uint32_t server = 0; server < p->servers; server++) count[server] = tr_partition_share(p, server);
    for (uint64_t block = 0; p->unbounded && block < p->blocks; block++)
        count[partition_locate_block(p, block).server] += p->block;
    if (p->blocks > 0)
        count[partition_locate_block(p, p->blocks - 1).server] -= p->blocks * p->block - p->units;
}

struct tr_location tr_partition_locate(const struct tr_partition *p, uint64_t unit)
{
    uint64_t block = unit / p->block, offset = unit % p->block;
    struct tr_location at = partition_locate_block(p, block);
    return (struct tr_location){at.server, (uint32_t)(at.position * p->block + offset)};
}

uint64_t tr_partition_unit(const struct tr_partition *p, uint32_t server, uint32_t position)
{
    uint64_t at = position / p->block, block;
    if (partition_is_placed(p)) block = p->block_at[p->first[server] + at];
    else block = at * p->servers + server;
    if (p->kind == TR_PARTITION_HASH || p->kind == TR_PARTITION_RANGE_HASH)
        block = partition_permute(p, block, true);
    uint64_t unit = block * p->block + position % p->block;
    return unit < p->units ? unit : UINT64_MAX;
}

uint64_t tr_partition_print(const struct tr_partition *p)
{
    uint64_t print = tr_mix((uint64_t)p->kind + 256 * p->unbounded);
    print = tr_mix(print ^ p->units);
    print = tr_mix(print ^ p->block);
    print = tr_mix(print ^ p->servers);
    for (uint64_t block = 0; partition_is_placed(p) && block < p->blocks; block++)
        print = tr_mix(print ^ p->placed[block].server);
    return print;
}

/* ======== plans ======== */

static inline bool segment_starts_run(const struct tr_segment *s, uint32_t i)
{
    return i == 0 || s->position[i] != s->position[i - 1] + 1 ||
           (s->local && s->local[i] != s->local[i - 1] + 1);
}

int tr_segment_find_runs(struct tr_segment *s)
{
    /* mean units per run from which memcpy() is faster than an indexed loop */
    enum { MEAN_RUN_WORTH_IT = 16 };
    uint32_t runs = 0;
    for (uint32_t i = 0; i < s->n; i++) runs += segment_starts_run(s, i);
    if (s->n == 0 || s->n / runs < MEAN_RUN_WORTH_IT) return TR_OK;
    TR_TRY(TR_NEW(&s->run, runs));
    for (uint32_t i = 0; i < s->n; i++) {
        if (segment_starts_run(s, i))
            s->run[s->runs++] = (struct tr_run){s->local ? s->local[i] : i, s->position[i], 0};
        s->run[s->runs - 1].length++;
    }
    return TR_OK;
}

int tr_plan_make(const struct tr_table *t, const tr_key *key, size_t n, enum tr_plan_order order,
                 const bool *skip, struct tr_plan *plan)
{
    if (n * t->pieces > UINT32_MAX)
        return tr_fail(TR_ERR_INTERNAL, "a view has at most 2^32 units, not %zu", n * t->pieces);
    for (size_t i = 0; i < n && order == TR_PLAN_ASCENDING; i++)
        if (key[i] >= t->keys || (i > 0 && key[i] <= key[i - 1]))
            return tr_fail(TR_ERR_INTERNAL, "key %zu of a view is %llu: keys must ascend and lie below %llu",
                           i, (unsigned long long)key[i], (unsigned long long)t->keys);
    struct tr_plan p TR_CLOSED_BY(tr_plan_free) = {.servers = t->partition.servers};
    /* counts the units of each server, allocates memory for all segments together, and fills them */
    const bool listed = order == TR_PLAN_LISTED, unbounded = t->partition.unbounded;
    /* loops key by key or, if the order allows it, piece by piece, because this needs fewer look-ups */
    const bool by_key = listed && t->pieces > 1;
    const size_t outer = by_key ? n : t->pieces, inner = by_key ? t->pieces : n;
    struct tr_walker walker = {.partition = &t->partition};
    TR_TRY(TR_NEW(&p.segment, p.servers));
    for (uint64_t piece = 0; piece < t->pieces; piece++)
        for (size_t i = 0; i < n; i++) p.segment[tr_walk_to(&walker, piece * t->keys + key[i]).server].n++;
    for (uint32_t server = 0; server < p.servers; server++) {
        if (skip && skip[server]) p.segment[server].n = 0;
        p.units += p.segment[server].n;
    }
    TR_TRY(TR_NEW(&p.local, p.units));
    TR_TRY(unbounded ? TR_NEW(&p.key, p.units) : TR_NEW(&p.position, p.units));
    size_t first = 0;
    for (uint32_t server = 0; server < p.servers; server++) {
        struct tr_segment *s = &p.segment[server];
        s->local = p.local + first;
        if (unbounded) s->key = p.key + first;
        else s->position = p.position + first;
        first += s->n;
        s->n = 0;
    }
    for (size_t a = 0; a < outer; a++)
        for (size_t b = 0; b < inner; b++) {
            size_t i = by_key ? a : b, piece = by_key ? b : a;
            struct tr_location at = tr_walk_to(&walker, piece * t->keys + key[i]);
            struct tr_segment *s = &p.segment[at.server];
            if (skip && skip[at.server]) continue;
            s->local[s->n] = (uint32_t)(i * t->pieces + piece);
            if (unbounded) s->key[s->n++] = key[i];
            else s->position[s->n++] = at.position;
        }
    for (uint32_t server = 0; server < p.servers && !listed && !unbounded; server++) {
        /* sorts the units by position: after a permutation of blocks, positions ascend only within each block */
        struct tr_segment *s = &p.segment[server];
        TR_FREED uint64_t *entry = NULL;
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
        }
        TR_TRY(tr_segment_find_runs(s));
    }
    *plan = p;
    p = (struct tr_plan){0};
    return TR_OK;
}

void tr_plan_free(struct tr_plan *plan)
{
    for (uint32_t server = 0; plan->segment && server < plan->servers; server++)
        free(plan->segment[server].run);
    TR_FREE_ALL(plan->segment, plan->local, plan->position, plan->key);
    *plan = (struct tr_plan){0};
}

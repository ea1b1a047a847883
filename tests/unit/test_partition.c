#include "unit.h"

#include "table/table.h"

enum { KINDS = 5, POINTS = 128 };
static const enum tr_partition_kind kinds[] = {TR_PARTITION_RANGE, TR_PARTITION_HASH, TR_PARTITION_RANGE_HASH,
                                               TR_PARTITION_RING, TR_PARTITION_OWN};

/* A user's function: some servers get nothing. */
static uint32_t few(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    *(uint64_t *)who += block < blocks;
    return (uint32_t)(tr_mix(block) % ((servers + 1) / 2));
}

static uint64_t asked; /* how often few() was */

static uint64_t held_by(const struct tr_partition *p, uint32_t server)
{
    uint64_t count[64];
    tr_partition_count(p, count);
    return count[server];
}

static int make(enum tr_partition_kind kind, uint64_t units, uint64_t block, uint32_t servers,
                struct tr_partition *p)
{
    struct tr_partition_options wish = {
        .kind = kind, .block = block, .points = POINTS, .place = few, .who = &asked, .table = "w"};
    return tr_partition_make(&wish, units, servers, p);
}

UNIT_CASE(every_unit_has_a_place_of_its_own)
{
    static const uint64_t units[] = {1, 2, 3, 7, 64, 1000, 4097, 100000};
    static const uint32_t servers[] = {1, 2, 3, 7, 16};
    static const uint64_t blocks[] = {0, 1, 5, UINT64_MAX};
    for (size_t u = 0; u < 8; u++)
        for (size_t s = 0; s < 5; s++)
            for (size_t b = 0; b < 4 * KINDS; b++) {
                struct tr_partition p;
                ck_ok(make(kinds[b % KINDS], units[u], blocks[b / KINDS], servers[s], &p));
                uint64_t total = 0, held = 0, begin[16];
                for (uint32_t server = 0; server < servers[s]; server++) {
                    begin[server] = total;
                    total += tr_partition_share(&p, server);
                    held += held_by(&p, server);
                    ck_assert_uint_le(tr_partition_share(&p, server), tr_partition_longest(&p));
                }
                ck_assert_uint_eq(held, units[u]);
                ck_assert_uint_ge(total, units[u]);
                ck_assert_uint_lt(total, units[u] + p.block); /* only the last block is padded */
                ck_assert_uint_le(p.block, units[u]);         /* larger ones would be room for nothing */
                char *taken = calloc(total, 1);
                for (uint64_t unit = 0; unit < units[u]; unit++) {
                    struct tr_location at = tr_partition_locate(&p, unit);
                    ck_assert(at.server < servers[s] && at.position < tr_partition_share(&p, at.server));
                    ck_assert(!taken[begin[at.server] + at.position]++);
                    ck_assert(tr_partition_unit(&p, at.server, at.position) == unit);
                }
                for (uint32_t server = 0; server < servers[s]; server++) { /* the rest is padding */
                    uint64_t share = tr_partition_share(&p, server), count = 0;
                    for (uint32_t position = 0; position < share; position++) {
                        bool used = taken[begin[server] + position];
                        ck_assert(used == (tr_partition_unit(&p, server, position) != UINT64_MAX));
                        count += used;
                    }
                    ck_assert(count == held_by(&p, server));
                }
                free(taken);
                tr_partition_free(&p);
            }
}

/* A hot range is spread evenly by both hashes, and stays in one place by range. */
UNIT_CASE(hashes_balance_a_hot_range)
{
    enum { UNITS = 1 << 20, HOT = UNITS / 8, SERVERS = 4 };
    for (int k = 0; k < 3; k++) {
        struct tr_partition p;
        ck_ok(make(kinds[k], UNITS, kinds[k] == TR_PARTITION_RANGE_HASH ? 64 : 0, SERVERS, &p));
        int count[SERVERS] = {0};
        for (uint64_t unit = 0; unit < HOT; unit++) count[tr_partition_locate(&p, unit).server]++;
        for (int s = 0; s < SERVERS && k > 0; s++)
            ck_assert_int_lt(abs(count[s] - HOT / SERVERS), HOT / SERVERS / 5);
        if (k == 0) ck_assert_int_eq(count[0], HOT);
    }
}

UNIT_CASE(too_much_for_the_servers_is_refused)
{
    struct tr_partition p;
    ck_fails(make(TR_PARTITION_HASH, UINT64_C(1) << 33, 0, 2, &p), TR_ERR_CONFIG, "more than 2 servers");
    ck_ok(make(TR_PARTITION_HASH, UINT64_C(1) << 33, 0, 3, &p));
}

/* The inverse far beyond what can be tried unit by unit. */
UNIT_CASE(any_place_knows_its_unit)
{
    static const uint64_t units[] = {UINT64_C(1) << 33, (UINT64_C(1) << 33) - 12345, 999999937};
    struct tr_rng rng;
    tr_rng_seed(&rng, 7, 0, 0);
    for (size_t u = 0; u < 3; u++)
        for (int k = 0; k < KINDS; k++) {
            struct tr_partition p;
            ck_ok(make(kinds[k], units[u], 0, 13, &p));
            uint64_t in_padding = 0;
            for (int i = 0; i < 20000; i++) {
                uint64_t unit = tr_rng_below(&rng, units[u]);
                struct tr_location at = tr_partition_locate(&p, unit);
                ck_assert(tr_partition_unit(&p, at.server, at.position) == unit);
                uint32_t server = (uint32_t)tr_rng_below(&rng, 7); /* few() fills no more */
                uint32_t position = (uint32_t)tr_rng_below(&rng, tr_partition_share(&p, server));
                unit = tr_partition_unit(&p, server, position);
                if (unit == UINT64_MAX) {
                    in_padding++;
                    continue;
                }
                at = tr_partition_locate(&p, unit);
                ck_assert(at.server == server && at.position == position);
            }
            ck_assert_uint_lt(in_padding, 200);
            tr_partition_free(&p);
        }
}

/* The share of a server is a sum of `points` arcs, nearly exponential ones: it varies by 1/√points relatively.
 * Four times that is beyond what 16 servers ever show, and leaves room for what the number of blocks adds. */
UNIT_CASE(a_ring_is_balanced)
{
    static const uint32_t points[] = {16, 128, 2048};
    enum { UNITS = 1 << 22, SERVERS = 16 };
    double spread[3];
    for (int i = 0; i < 3; i++) {
        struct tr_partition p;
        struct tr_partition_options wish = {.kind = TR_PARTITION_RING, .points = points[i], .table = "w"};
        ck_ok(tr_partition_make(&wish, UNITS, SERVERS, &p));
        double most = 0, least = UNITS, bound = 4 / sqrt(points[i]);
        for (uint32_t server = 0; server < SERVERS; server++) {
            double relative = (double)held_by(&p, server) * SERVERS / UNITS;
            most = fmax(most, relative);
            least = fmin(least, relative);
        }
        ck_assert_double_lt(most, 1 + bound);
        ck_assert_double_gt(least, 1 - bound);
        spread[i] = most - least;
        tr_partition_free(&p);
    }
    ck_assert_double_lt(spread[1], spread[0]);
    ck_assert_double_lt(spread[2], spread[1]);
}

/* What a server more changes: units go to it, in proportion, and nowhere else. */
UNIT_CASE(a_ring_moves_little)
{
    enum { UNITS = 1 << 20 };
    for (uint32_t servers = 1; servers <= 12; servers++) {
        struct tr_partition p, q;
        ck_ok(make(TR_PARTITION_RING, UNITS, 0, servers, &p));
        ck_ok(make(TR_PARTITION_RING, UNITS, 0, servers + 1, &q));
        ck_assert_uint_eq(p.block, q.block);
        double moved = 0, astray = 0;
        for (uint64_t unit = 0; unit < UNITS; unit++) {
            uint32_t before = tr_partition_locate(&p, unit).server,
                     after = tr_partition_locate(&q, unit).server;
            moved += before != after;
            astray += before != after && after != servers;
        }
        double fair = UNITS / (servers + 1.0), bound = 4 / sqrt(POINTS);
        ck_assert_double_eq(astray, 0);
        ck_assert_double_gt(moved, fair * (1 - bound));
        ck_assert_double_lt(moved, fair * (1 + bound));
        ck_assert_double_eq(moved, (double)held_by(&q, servers));
        tr_partition_free(&p);
        tr_partition_free(&q);
    }
}

static uint32_t by_halves(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return block < blocks / 2 ? servers - 1 : 0;
}

UNIT_CASE(a_user_places_blocks)
{
    struct tr_partition_options wish = {
        .kind = TR_PARTITION_OWN, .block = 10, .place = by_halves, .table = "w"};
    struct tr_partition p;
    ck_ok(tr_partition_make(&wish, 95, 3, &p)); /* ten blocks, the last of five */
    ck_assert_uint_eq(tr_partition_share(&p, 0), 50);
    ck_assert_uint_eq(held_by(&p, 0), 45);
    ck_assert_uint_eq(tr_partition_share(&p, 1), 0);
    ck_assert_uint_eq(tr_partition_share(&p, 2), 50);
    ck_assert_uint_eq(tr_partition_locate(&p, 23).server, 2);
    ck_assert_uint_eq(tr_partition_locate(&p, 23).position, 23);
    ck_assert_uint_eq(tr_partition_locate(&p, 71).server, 0);
    ck_assert_uint_eq(tr_partition_locate(&p, 71).position, 21);
    ck_assert_uint_eq(tr_partition_unit(&p, 0, 49), UINT64_MAX);
    tr_partition_free(&p);

    asked = 0;
    ck_ok(make(TR_PARTITION_OWN, 1000, 7, 4, &p));
    ck_assert_uint_eq(asked, p.blocks);
    tr_partition_free(&p);
}

static uint32_t beyond(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return block == blocks - 2 ? servers : 0;
}

static uint32_t all_on_one(void *who, uint64_t block, uint64_t blocks, uint32_t servers)
{
    return servers - 1;
}

UNIT_CASE(what_cannot_be_placed_is_refused)
{
    struct tr_partition p;
    struct tr_partition_options wish = {
        .kind = TR_PARTITION_OWN, .block = 1, .place = beyond, .table = "factors"};
    ck_fails(tr_partition_make(&wish, 10, 3, &p), TR_ERR_CONFIG, "factors");
    ck_fails(tr_partition_make(&wish, 10, 3, &p), TR_ERR_CONFIG, "block 8 of 10 on server 3");
    ck_fails(make(TR_PARTITION_RING, UINT64_C(1) << 25, 1, 3, &p), TR_ERR_CONFIG, "33554432 blocks of 1");
    wish.place = all_on_one;
    wish.block = 0;
    ck_fails(tr_partition_make(&wish, UINT64_C(1) << 32, 3, &p), TR_ERR_CONFIG, "more than 3 servers");
    ck_ok(tr_partition_make(&wish, UINT64_C(1) << 31, 3, &p));
    tr_partition_free(&p);
}

/* Ranks compare fingerprints: every change of the place of a unit changes them. */
UNIT_CASE(prints_tell_partitions_apart)
{
    struct tr_partition p;
    uint64_t print[KINDS + 4];
    int n = 0;
    for (int k = 0; k < KINDS; k++) {
        ck_ok(make(kinds[k], 1000, 10, 4, &p));
        print[n++] = tr_partition_print(&p);
        tr_partition_free(&p);
        ck_ok(make(kinds[k], 1000, 10, 4, &p));
        ck_assert_uint_eq(tr_partition_print(&p), print[n - 1]);
        tr_partition_free(&p);
    }
    struct tr_partition_options wish = {.kind = TR_PARTITION_RING, .block = 10, .points = 3, .table = "w"};
    ck_ok(tr_partition_make(&wish, 1000, 4, &p));
    print[n++] = tr_partition_print(&p);
    p.placed[99].server ^= 1;
    print[n++] = tr_partition_print(&p);
    tr_partition_free(&p);
    ck_ok(make(TR_PARTITION_RANGE_HASH, 1000, 20, 4, &p));
    print[n++] = tr_partition_print(&p);
    ck_ok(make(TR_PARTITION_RANGE_HASH, 1001, 10, 4, &p));
    print[n++] = tr_partition_print(&p);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) ck_assert_uint_ne(print[i], print[k]);
}

static void make_unbounded(enum tr_partition_kind kind, uint64_t units, uint64_t block, uint32_t servers,
                           struct tr_partition *p)
{
    struct tr_partition_options wish = {
        .kind = kind, .block = block, .points = POINTS, .table = "w", .unbounded = true};
    ck_ok(tr_partition_make(&wish, units, servers, p));
}

/* Up to 2^63 keys, in blocks that stay together, evenly however the keys follow each other. */
UNIT_CASE(unbounded_partitions_spread_keys)
{
    enum { SERVERS = 5, KEYS = 50000 };
    static const uint64_t strides[] = {1, 64, 1000, UINT64_C(1) << 40};
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            enum tr_partition_kind kind = kinds[k];
            if (kind == TR_PARTITION_OWN) continue;
            struct tr_partition p;
            make_unbounded(kind, UINT64_C(1) << 63, i == 2 ? 10 : 0, SERVERS, &p);
            uint64_t count[SERVERS] = {0};
            for (uint64_t n = 0; n < KEYS; n++) {
                uint64_t key = (UINT64_C(1) << 63) - 1 - n * strides[i];
                uint32_t server = tr_partition_locate(&p, key).server;
                ck_assert(server < SERVERS && server == tr_partition_locate(&p, key - key % p.block).server);
                count[server]++;
            }
            double allowed = kind == TR_PARTITION_RANGE ? INFINITY : kind == TR_PARTITION_RING ? 1.5 : 1.2;
            for (int server = 0; server < SERVERS; server++)
                ck_assert_double_lt((double)count[server] * SERVERS / KEYS, allowed);
            ck_assert_uint_eq(tr_partition_longest(&p), 0);
            tr_partition_free(&p);
        }
}

UNIT_CASE(unbounded_partitions_count_and_refuse)
{
    struct tr_partition p, q;
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k] == TR_PARTITION_OWN) continue;
        uint64_t count[7], sum = 0, found[7] = {0};
        make_unbounded(kinds[k], 1003, 0, 7, &p);
        tr_partition_count(&p, count);
        for (uint64_t unit = 0; unit < 1003; unit++) found[tr_partition_locate(&p, unit).server]++;
        for (int server = 0; server < 7; server++) {
            ck_assert_uint_eq(count[server], found[server]);
            sum += count[server];
        }
        ck_assert_uint_eq(sum, 1003);
        ck_ok(make(kinds[k], 1003, 0, 7, &q));
        ck_assert(tr_partition_print(&p) != tr_partition_print(&q));
        for (uint64_t unit = 0; unit < 1003 && kinds[k] == TR_PARTITION_RANGE; unit++)
            ck_assert_uint_eq(tr_partition_locate(&p, unit).server, tr_partition_locate(&q, unit).server);
        tr_partition_free(&p);
        tr_partition_free(&q);
    }
    struct tr_partition_options wish = {.kind = TR_PARTITION_HASH, .table = "w", .unbounded = true};
    ck_fails(tr_partition_make(&wish, (UINT64_C(1) << 63) + 1, 3, &p), TR_ERR_CONFIG, "more than 2^63");
    wish.kind = TR_PARTITION_OWN;
    ck_fails(tr_partition_make(&wish, 10, 3, &p), TR_ERR_CONFIG, "user-defined function");
    wish = (struct tr_partition_options){.kind = TR_PARTITION_HASH, .table = "w"};
    ck_fails(tr_partition_make(&wish, UINT64_C(1) << 63, 3, &p), TR_ERR_CONFIG, "table.storage=hash");
}

static int plan(const struct tr_partition *p, uint64_t table_keys, uint32_t pieces, const tr_key *keys,
                size_t n, struct tr_plan *plan)
{
    const struct tr_table table = {.partition = *p, .keys = table_keys, .pieces = pieces};
    return tr_plan_make(&table, keys, n, TR_PLAN_ASCENDING, NULL, plan);
}

/* Every key is in the segment of its server, by its number, however large. */
UNIT_CASE(key_sets_of_unbounded_partitions_list_keys)
{
    enum { KEYS = 5000 };
    static tr_key keys[KEYS];
    struct tr_partition p;
    struct tr_plan set;
    for (tr_key k = 0; k < KEYS; k++) keys[k] = (UINT64_C(1) << 63) - (KEYS - k) * (k < KEYS / 2 ? 1000 : 1);
    make_unbounded(TR_PARTITION_RANGE_HASH, UINT64_C(1) << 63, 0, 4, &p);
    ck_ok(plan(&p, UINT64_C(1) << 63, 1, keys, KEYS, &set));
    size_t units = 0;
    for (uint32_t server = 0; server < 4; server++) {
        const struct tr_segment *s = &set.segment[server];
        ck_assert_uint_gt(s->n, 0);
        ck_assert_uint_eq(s->runs, 0);
        for (uint32_t i = 0; i < s->n; i++, units++) {
            ck_assert_uint_eq(s->key[i], keys[s->local[i]]);
            ck_assert(i == 0 || s->key[i - 1] < s->key[i]);
            ck_assert_uint_eq(tr_partition_locate(&p, s->key[i]).server, server);
        }
    }
    ck_assert_uint_eq(units, KEYS);
    tr_plan_free(&set);
    keys[KEYS - 1] = UINT64_C(1) << 63;
    ck_fails(plan(&p, UINT64_C(1) << 63, 1, keys, KEYS, &set), TR_ERR_INTERNAL, "lie below");
    tr_partition_free(&p);
}

/* In listed order a segment has its units in the order of the list, which may repeat keys; skipped servers have none. */
UNIT_CASE(listed_keys_keep_their_order)
{
    enum { KEYS = 500, SERVERS = 4 };
    for (uint32_t pieces = 1; pieces <= 3; pieces += 2) {
        struct tr_partition p;
        struct tr_plan set;
        tr_key keys[KEYS];
        const bool skip[SERVERS] = {false, true, false, false};
        ck_ok(make(TR_PARTITION_RANGE_HASH, KEYS * pieces, 4, SERVERS, &p));
        for (uint64_t i = 0; i < KEYS; i++) keys[i] = tr_mix(i) % KEYS;
        const struct tr_table table = {.partition = p, .keys = KEYS, .pieces = pieces};
        ck_ok(tr_plan_make(&table, keys, KEYS, TR_PLAN_LISTED, skip, &set));
        size_t units = 0;
        for (uint32_t unit = 0; unit < KEYS * pieces; unit++) {
            struct tr_location at = tr_partition_locate(&p, unit % pieces * KEYS + keys[unit / pieces]);
            struct tr_segment *s = &set.segment[at.server];
            if (skip[at.server]) continue;
            ck_assert_uint_gt(s->n, 0); /* the next one of its segment */
            ck_assert_uint_eq(*s->local, unit);
            ck_assert_uint_eq(*s->position, at.position);
            s->local++, s->position++, s->n--, units++;
        }
        ck_assert_uint_eq(set.segment[1].n, 0);
        ck_assert_uint_eq(units, set.units);
        tr_plan_free(&set);
        tr_partition_free(&p);
    }
}

/* Every unit of every key is in the segment of its server, positions ascend, and runs say the same. */
UNIT_CASE(key_sets_are_split_by_server)
{
    enum { KEYS = 5000 };
    for (int trial = 0; trial < 12 * KINDS; trial++) {
        uint32_t pieces = trial % 4 == 3 ? 3 : 1, servers = 1 + (uint32_t)trial % 7;
        struct tr_partition p;
        ck_ok(make(kinds[trial % KINDS], KEYS * pieces, 0, servers, &p));
        tr_key keys[KEYS];
        size_t n = 0;
        for (tr_key k = 0; k < KEYS; k++)
            if (tr_mix(k + (uint64_t)trial * KEYS) % 3 <= (uint64_t)trial % 3) keys[n++] = k;
        struct tr_plan set;
        ck_ok(plan(&p, KEYS, pieces, keys, n, &set));
        size_t units = 0;
        bool seen[KEYS * 3] = {false};
        for (uint32_t server = 0; server < servers; server++) {
            const struct tr_segment *s = &set.segment[server];
            units += s->n;
            for (uint32_t i = 0; i < s->n; i++) {
                ck_assert(i == 0 || s->position[i - 1] < s->position[i]);
                ck_assert(!seen[s->local[i]]);
                seen[s->local[i]] = true;
                struct tr_location at =
                    tr_partition_locate(&p, s->local[i] % pieces * KEYS + keys[s->local[i] / pieces]);
                ck_assert_uint_eq(at.server, server);
                ck_assert_uint_eq(at.position, s->position[i]);
                ck_assert_uint_eq(tr_place_u32(s->position, s->n, s->position[i]), i);
            }
            uint32_t at = 0;
            for (uint32_t r = 0; r < s->runs; r++)
                for (uint32_t i = 0; i < s->run[r].length; i++, at++) {
                    ck_assert_uint_eq(s->run[r].local + i, s->local[at]);
                    ck_assert_uint_eq(s->run[r].position + i, s->position[at]);
                }
            if (s->runs) ck_assert_uint_eq(at, s->n);
            if (n == KEYS && pieces == 1 && kinds[trial % KINDS] == TR_PARTITION_RANGE)
                ck_assert_uint_eq(s->runs, 1);
        }
        ck_assert_uint_eq(units, n * pieces);
        tr_plan_free(&set);
        tr_partition_free(&p);
    }
}

UNIT_CASE(keys_must_ascend_and_exist)
{
    struct tr_partition p;
    struct tr_plan set;
    ck_ok(make(TR_PARTITION_RANGE, 10, 0, 2, &p));
    ck_fails(plan(&p, 10, 1, (tr_key[]){1, 1}, 2, &set), TR_ERR_INTERNAL, "ascend");
    ck_fails(plan(&p, 10, 1, (tr_key[]){10}, 1, &set), TR_ERR_INTERNAL, "below 10");
    ck_ok(plan(&p, 10, 1, NULL, 0, &set));
    tr_plan_free(&set);
}

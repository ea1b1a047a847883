#include "unit.h"

#include <string.h>

#include "table/keyset.h"

static const enum tr_partition_kind kinds[] = {TR_PARTITION_RANGE, TR_PARTITION_HASH,
                                               TR_PARTITION_RANGE_HASH};

START_TEST(every_unit_has_a_place_of_its_own)
{
    static const uint64_t units[] = {1, 2, 3, 7, 64, 1000, 4097, 100000};
    static const uint32_t servers[] = {1, 2, 3, 7, 16};
    static const uint64_t blocks[] = {0, 1, 5, 4096};
    for (size_t u = 0; u < 8; u++)
        for (size_t s = 0; s < 5; s++)
            for (size_t b = 0; b < 12; b++) {
                struct tr_partition p;
                ck_ok(tr_partition_make(kinds[b % 3], units[u], blocks[b / 3], servers[s], &p));
                uint64_t total = 0, begin[16];
                for (uint32_t server = 0; server < servers[s]; server++) {
                    begin[server] = total;
                    total += tr_partition_share(&p, server);
                }
                ck_assert_uint_ge(total, units[u]);
                ck_assert_uint_lt(total, units[u] + p.block); /* only the last block is padded */
                char *taken = calloc(total, 1);
                uint64_t wrong = 0; /* a check of Check's writes to a file: too slow for every unit */
                for (uint64_t unit = 0; unit < units[u]; unit++) {
                    struct tr_location at = tr_partition_locate(&p, unit);
                    bool inside = at.server < servers[s] && at.position < tr_partition_share(&p, at.server);
                    if (!inside || taken[begin[at.server] + at.position]++) wrong++;
                }
                ck_assert_uint_eq(wrong, 0);
                free(taken);
            }
}
END_TEST

/* A hot range is spread evenly by both hashes, and stays in one place by range. */
START_TEST(hashes_balance_a_hot_range)
{
    enum { UNITS = 1 << 20, HOT = UNITS / 8, SERVERS = 4 };
    for (int k = 0; k < 3; k++) {
        struct tr_partition p;
        ck_ok(tr_partition_make(kinds[k], UNITS, kinds[k] == TR_PARTITION_RANGE_HASH ? 64 : 0, SERVERS, &p));
        int count[SERVERS] = {0};
        for (uint64_t unit = 0; unit < HOT; unit++) count[tr_partition_locate(&p, unit).server]++;
        for (int s = 0; s < SERVERS && k > 0; s++)
            ck_assert_int_lt(abs(count[s] - HOT / SERVERS), HOT / SERVERS / 5);
        if (k == 0) ck_assert_int_eq(count[0], HOT);
    }
}
END_TEST

START_TEST(too_much_for_the_servers_is_refused)
{
    struct tr_partition p;
    ck_fails(tr_partition_make(TR_PARTITION_HASH, UINT64_C(1) << 33, 0, 2, &p), TR_ERR_CONFIG,
             "more than 2 servers");
    ck_ok(tr_partition_make(TR_PARTITION_HASH, UINT64_C(1) << 33, 0, 3, &p));
}
END_TEST

/* Every unit of every key is in the segment of its server, positions ascend, and runs say the same. */
START_TEST(key_sets_are_split_by_server)
{
    enum { KEYS = 5000 };
    for (int trial = 0; trial < 36; trial++) {
        uint32_t pieces = trial % 4 == 3 ? 3 : 1, servers = 1 + (uint32_t)trial % 5;
        struct tr_partition p;
        ck_ok(tr_partition_make(kinds[trial % 3], KEYS * pieces, 0, servers, &p));
        tr_key keys[KEYS];
        size_t n = 0;
        for (tr_key k = 0; k < KEYS; k++)
            if (trial / 12 == 0 || tr_mix(k + (uint64_t)trial * KEYS) % 3 < (uint64_t)trial / 12)
                keys[n++] = k;
        struct tr_keyset set;
        ck_ok(tr_keyset_make(&p, KEYS, pieces, keys, n, &set));
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
                ck_assert_uint_eq(tr_segment_find(s, s->position[i]), i);
            }
            uint32_t at = 0;
            for (uint32_t r = 0; r < s->runs; r++)
                for (uint32_t i = 0; i < s->run[r].length; i++, at++) {
                    ck_assert_uint_eq(s->run[r].local + i, s->local[at]);
                    ck_assert_uint_eq(s->run[r].position + i, s->position[at]);
                }
            if (s->runs) ck_assert_uint_eq(at, s->n);
            if (trial < 12 && pieces == 1 && kinds[trial % 3] == TR_PARTITION_RANGE)
                ck_assert_uint_eq(s->runs, 1);
        }
        ck_assert_uint_eq(units, n * pieces);
        tr_keyset_free(&set);
    }
}
END_TEST

START_TEST(keys_must_ascend_and_exist)
{
    struct tr_partition p;
    struct tr_keyset set;
    ck_ok(tr_partition_make(TR_PARTITION_RANGE, 10, 0, 2, &p));
    ck_fails(tr_keyset_make(&p, 10, 1, (tr_key[]){1, 1}, 2, &set), TR_ERR_INTERNAL, "ascend");
    ck_fails(tr_keyset_make(&p, 10, 1, (tr_key[]){10}, 1, &set), TR_ERR_INTERNAL, "below 10");
    ck_ok(tr_keyset_make(&p, 10, 1, NULL, 0, &set));
    tr_keyset_free(&set);
}
END_TEST

UNIT_MAIN("partition", every_unit_has_a_place_of_its_own, hashes_balance_a_hot_range,
          too_much_for_the_servers_is_refused, key_sets_are_split_by_server, keys_must_ascend_and_exist)

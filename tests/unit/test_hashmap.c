#include "unit.h"

#include <sys/resource.h>

#include "table/storage.h"

#define expect_ok(call) ck_assert((call) == TR_OK)

static const tr_key top = (UINT64_C(1) << 63) - 1; /* the highest key of a table */

/* Families of keys that break poor maps: key i of each, all different and at most 2^63 - 1. */
enum { FAMILIES = 8 };
static tr_key family_key(int family, uint32_t i)
{
    switch (family) {
    case 0: return i;
    case 1: return top - i;
    case 2: return (tr_key)i << 12;
    case 3: return (tr_key)i << 32;
    case 4: return (tr_key)i << 43;
    case 5: return (tr_key)i * 1000003;
    case 6: return (tr_key)(i % 1000) << 40 | i / 1000;
    default: return i == 0 ? 0 : i == 1 ? top : tr_mix(i) >> 1;
    }
}

/* The key that tr_mix() turns into this hash. */
static tr_key unmix(uint64_t x)
{
    x = x ^ (x >> 31) ^ (x >> 62);
    x *= 0x319642b2d24d8ec3u; /* the inverses of tr_mix()'s factors modulo 2^64 */
    x = x ^ (x >> 27) ^ (x >> 54);
    x *= 0x96de1b173f119089u;
    x = x ^ (x >> 30) ^ (x >> 60);
    return x - 0x9e3779b97f4a7c15u;
}

static void open_map(struct tr_hashmap *map)
{
    ck_ok(tr_hashmap_open((const size_t[]){sizeof(float), sizeof(double)}, 2, map));
}

static int add_one(struct tr_hashmap *map, tr_key key, uint32_t *slot)
{
    return tr_hashmap_add_all(map, &key, 1, slot);
}

/* After any operations in any order, slots are numbered consecutively and keep their position and contents. */
UNIT_LOOP(random_operations_agree_with_a_plain_list, FAMILIES)
{
    enum { KEYS = 20000, OPERATIONS = 60000 };
    static uint32_t slot_of[KEYS];
    struct tr_hashmap map;
    struct tr_rng rng;
    tr_rng_seed(&rng, 5, (uint64_t)_i, 0);
    open_map(&map);
    memset(slot_of, 0xff, sizeof slot_of);
    uint32_t count = 0;
    for (int step = 0; step < OPERATIONS; step++) {
        uint32_t i = (uint32_t)tr_rng_below(&rng, KEYS);
        tr_key key = family_key(_i, i);
        ck_assert(tr_hashmap_find(&map, key) == slot_of[i]);
        if (tr_rng_below(&rng, 2)) continue;
        uint32_t slot;
        expect_ok(add_one(&map, key, &slot));
        if (slot_of[i] == TR_NO_SLOT) {
            slot_of[i] = count++;
            ck_assert(((float *)map.array[0].at)[slot] == 0 && ((double *)map.array[1].at)[slot] == 0);
            ((float *)map.array[0].at)[slot] = (float)i;
            ((double *)map.array[1].at)[slot] = (double)key;
        }
        ck_assert(slot == slot_of[i]);
        ck_assert(map.count == count);
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        tr_key key = family_key(_i, i);
        uint32_t slot = tr_hashmap_find(&map, key);
        ck_assert(slot == slot_of[i]);
        if (slot == TR_NO_SLOT) continue;
        ck_assert(tr_hashmap_key(&map, slot) == key);
        ck_assert(((float *)map.array[0].at)[slot] == (float)i);
        ck_assert(((double *)map.array[1].at)[slot] == (double)key);
    }
    tr_hashmap_close(&map);
}

/* Many keys in one call give the same result as one key per call, for any number of keys and repetitions. */
UNIT_LOOP(batches_agree_with_single_keys, FAMILIES)
{
    enum { KEYS = 70000, MOST = 300 };
    struct tr_hashmap one, many;
    struct tr_rng rng;
    tr_rng_seed(&rng, 6, (uint64_t)_i, 0);
    open_map(&one);
    open_map(&many);
    while (many.count < KEYS / 2) {
        tr_key key[MOST];
        uint32_t slot[MOST];
        size_t n = tr_rng_below(&rng, MOST);
        for (size_t i = 0; i < n; i++) key[i] = family_key(_i, (uint32_t)tr_rng_below(&rng, KEYS));
        tr_hashmap_find_all(&many, key, n, slot);
        for (size_t i = 0; i < n; i++) ck_assert(slot[i] == tr_hashmap_find(&one, key[i]));
        expect_ok(tr_hashmap_add_all(&many, key, n, slot));
        for (size_t i = 0; i < n; i++) {
            uint32_t expected;
            expect_ok(add_one(&one, key[i], &expected));
            ck_assert(slot[i] == expected);
        }
        ck_assert(many.count == one.count);
    }
    tr_hashmap_close(&one);
    tr_hashmap_close(&many);
}

/* The work of any one call is bounded, that of all together proportional to the keys. */
UNIT_LOOP(no_call_moves_more_than_a_page, FAMILIES)
{
    enum { KEYS = 300000 };
    struct tr_hashmap map;
    ck_ok(tr_hashmap_open(NULL, 0, &map));
    for (uint32_t i = 0; i < KEYS; i++) {
        uint64_t before = map.moved;
        uint32_t slot, pages = map.pages;
        expect_ok(add_one(&map, family_key(_i, i), &slot));
        ck_assert(map.moved - before <= TR_HASH_PAGE_KEYS);
        ck_assert(map.pages - pages <= 1);
    }
    ck_assert_uint_eq(map.count, KEYS);
    ck_assert_uint_gt(map.moved, KEYS / 2);
    ck_assert_uint_lt(map.moved, 3 * KEYS);
    tr_hashmap_close(&map);
}

static void check_bytes_a_key(const struct tr_hashmap *map)
{
    enum { MOST = 14 }; /* of index; 12.8 right after all pages have been split, and the directory */
    ck_assert(tr_hashmap_memory(map) <= (size_t)map->count * (sizeof(tr_key) + 12 + MOST));
}

UNIT_LOOP(memory_follows_the_keys_present, FAMILIES)
{
    enum { KEYS = 400000 };
    struct tr_hashmap map;
    open_map(&map);
    uint64_t before = tr_peak_rss();
    ck_assert_uint_lt(tr_hashmap_memory(&map), 8192);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t slot;
        expect_ok(add_one(&map, family_key(_i, i), &slot));
        memset((char *)map.array[0].at + slot * map.slot_bytes[0], 1, map.slot_bytes[0]);
        memset((char *)map.array[1].at + slot * map.slot_bytes[1], 1, map.slot_bytes[1]);
        if (i >= 2000) check_bytes_a_key(&map);
    }
    ck_assert_uint_ge(tr_hashmap_memory(&map), KEYS * 20 + KEYS * 6);
    /* which is the resident memory, within a huge page for each of the areas */
    ck_assert_uint_le(tr_peak_rss() - before, tr_hashmap_memory(&map) + ((size_t)12 << 20));
    tr_hashmap_close(&map);
}

/* What deals keys to servers may look at the same hash: then all keys of a server are alike in some bits. */
UNIT_LOOP(keys_of_one_server_take_no_more_memory, 2)
{
    enum { KEYS = 100000, SERVERS = 64 };
    struct tr_hashmap map;
    open_map(&map);
    for (uint64_t i = 0; map.count < KEYS; i++) {
        uint32_t slot;
        uint64_t hash = tr_mix(i);
        tr_key key = unmix(_i ? hash >> 6 : hash / SERVERS * SERVERS);
        expect_ok(add_one(&map, key, &slot));
        if (map.count >= 2000) check_bytes_a_key(&map);
    }
    tr_hashmap_close(&map);
}

UNIT_CASE(looking_does_not_create)
{
    enum { KEYS = 5000 };
    struct tr_hashmap map;
    open_map(&map);
    static tr_key key[KEYS];
    static uint32_t slot[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) key[i] = 2 * (tr_key)i;
    for (int round = 0; round < 2; round++) {
        size_t memory = tr_hashmap_memory(&map);
        uint32_t count = map.count;
        for (uint32_t i = 0; i < KEYS; i++) ck_assert(tr_hashmap_find(&map, key[i] + 1) == TR_NO_SLOT);
        for (uint32_t i = 0; i < KEYS; i++) key[i]++;
        tr_hashmap_find_all(&map, key, KEYS, slot);
        for (uint32_t i = 0; i < KEYS; i++) ck_assert(slot[i] == TR_NO_SLOT);
        ck_assert(map.count == count);
        ck_assert(tr_hashmap_memory(&map) == memory);
        for (uint32_t i = 0; i < KEYS; i++) key[i]--;
        expect_ok(tr_hashmap_add_all(&map, key, KEYS, slot));
        ck_assert(map.count == KEYS);
    }
    tr_hashmap_close(&map);
}

UNIT_CASE(what_cannot_be_had_is_an_error)
{
    struct tr_hashmap map;
    uint32_t slot;
    ck_ok(tr_hashmap_open((const size_t[]){4, (size_t)1 << 50}, 2, &map));
    ck_fails(add_one(&map, 3, &slot), TR_ERR_SYSTEM, "out of memory");
    ck_assert_uint_eq(map.count, 0);
    ck_assert_uint_eq(tr_hashmap_find(&map, 3), TR_NO_SLOT);
    tr_hashmap_close(&map);
    ck_ok(tr_hashmap_open((const size_t[]){SIZE_MAX / 3}, 1, &map));
    ck_fails(add_one(&map, 3, &slot), TR_ERR_SYSTEM, "out of memory");
    tr_hashmap_close(&map);
    size_t bytes[TR_HASH_ARRAYS + 1] = {0};
    ck_fails(tr_hashmap_open(bytes, TR_HASH_ARRAYS + 1, &map), TR_ERR_INTERNAL, "at most 8 arrays");
}

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* these need address space without end */

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(statm);
    ck_assert_int_eq(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    return pages * 4096;
}

/* If memory ends while the table grows, its contents stay, and it grows later when there is memory again. */
UNIT_CASE(the_end_of_memory_leaves_the_map_whole)
{
    struct tr_hashmap map;
    open_map(&map);
    struct rlimit limit, old;
    getrlimit(RLIMIT_AS, &old);
    for (size_t more = 4 << 20; more <= 64 << 20; more *= 2) {
        limit = (struct rlimit){.rlim_cur = address_space() + more, .rlim_max = old.rlim_max};
        setrlimit(RLIMIT_AS, &limit);
        int status = TR_OK;
        uint32_t slot, begin = map.count;
        while (status == TR_OK) {
            status = add_one(&map, family_key(3, map.count), &slot);
            if (status == TR_OK) ((float *)map.array[0].at)[slot] = (float)slot;
        }
        setrlimit(RLIMIT_AS, &old);
        ck_assert_int_eq(status, TR_ERR_SYSTEM);
        ck_assert_uint_lt(limit.rlim_cur - address_space(), 1 << 20); /* all of it was made use of */
        ck_assert_uint_gt(map.count, begin);
        for (uint32_t i = 0; i < map.count; i++) {
            ck_assert(tr_hashmap_find(&map, family_key(3, i)) == i);
            ck_assert(((float *)map.array[0].at)[i] == (float)i);
        }
        ck_assert(tr_hashmap_find(&map, family_key(3, map.count)) == TR_NO_SLOT);
    }
    tr_hashmap_close(&map);
}

#endif

/* Keys made to meet are refused in the end instead of eating up the memory; others have their place still. */
UNIT_CASE(keys_made_to_meet_do_no_harm)
{
    enum { KEYS = 3000 };
    struct tr_hashmap map;
    open_map(&map);
    ck_assert_uint_eq(tr_mix(unmix(12345)), 12345);
    int status = TR_OK;
    uint32_t slot;
    uint64_t n = 0;
    for (; n < KEYS && status == TR_OK; n++)
        status = add_one(&map, unmix((n & 0xfff) | n >> 12 << 58), &slot);
    ck_assert_int_eq(status, TR_ERR_SYSTEM);
    ck_contains(tr_error_text(), "have hashes like");
    ck_assert_uint_eq(map.count, TR_HASH_PAGE_KEYS);
    ck_assert_uint_lt(tr_hashmap_memory(&map), 1 << 20);
    for (uint64_t i = 0; i < map.count; i++) ck_assert(tr_hashmap_find(&map, unmix(i)) == i);
    /* splitting their pages changes many entries of a directory that has become too deep for them */
    static uint32_t slot_of[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        if ((tr_mix(family_key(7, i)) >> 12) % 256 == 0) continue; /* may lead to the full page */
        expect_ok(add_one(&map, family_key(7, i), &slot_of[i]));
        ck_assert(slot_of[i] == map.count - 1);
    }
    for (uint32_t i = 0; i < KEYS; i++)
        ck_assert(slot_of[i] == 0 || tr_hashmap_find(&map, family_key(7, i)) == slot_of[i]);
    ck_assert_uint_gt(map.count, KEYS);
    tr_hashmap_close(&map);
}

static void check_list(const struct tr_hash_list *list, const struct tr_hashmap *map)
{
    uint32_t absent = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        ck_assert(list->slot[i] == tr_hashmap_find(map, list->key[i]));
        absent += list->slot[i] == TR_NO_SLOT;
    }
    ck_assert_uint_eq(list->absent, absent);
}

/* Lists know what came into being since they looked, be it little or much. */
UNIT_CASE(lists_of_keys_follow_the_map)
{
    enum { KEYS = 9000, ROUNDS = 60 };
    static tr_key key[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) key[i] = 3 * (tr_key)i + 1;
    struct tr_hashmap map;
    struct tr_hash_list list = {0}, empty = {0};
    struct tr_rng rng;
    tr_rng_seed(&rng, 8, 0, 0);
    open_map(&map);
    static uint32_t all[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) all[i] = i;
    ck_ok(tr_hash_list_append(&list, key, KEYS / 2));
    ck_ok(tr_hash_list_append(&empty, NULL, 0));
    for (int round = 0; round < ROUNDS; round++) {
        /* others come to the map, of which the list has every third */
        uint64_t others = round % 3 == 0 ? 0 : round % 3 == 1 ? 20 : 900;
        for (uint32_t slot; others > 0; others--)
            expect_ok(add_one(&map, tr_rng_below(&rng, 3 * KEYS), &slot));
        if (round == ROUNDS / 2) ck_ok(tr_hash_list_append(&list, key + KEYS / 2, KEYS - KEYS / 2));
        if (round % 4 == 3) {
            uint32_t at[200], n = 0, step = 1 + (uint32_t)tr_rng_below(&rng, 3);
            for (uint32_t i = (uint32_t)tr_rng_below(&rng, list.n); i < list.n && n < 200; i += step)
                at[n++] = i;
            expect_ok(tr_hash_list_add(&list, &map, at, n));
            for (uint32_t i = 0; i < n; i++) ck_assert(list.slot[at[i]] == tr_hashmap_find(&map, key[at[i]]));
        }
        uint32_t count = map.count;
        tr_hash_list_refresh(&list, &map);
        tr_hash_list_refresh(&empty, &map);
        ck_assert(map.count == count);
        check_list(&list, &map);
    }
    ck_assert_uint_gt(list.absent, 0);
    ck_ok(tr_hash_list_add(&list, &map, all, KEYS));
    ck_assert_uint_eq(list.absent, 0);
    check_list(&list, &map);
    tr_hash_list_free(&list);
    tr_hash_list_free(&empty);
    tr_hashmap_close(&map);
}

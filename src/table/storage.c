#define _GNU_SOURCE
#include "table/storage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "table/codec.h"
#include "table/table.h"

/* ======== dense shares ======== */

enum { LINE = 64, LOCK_UNITS = 1024 }; /* bytes of a cache line, units under one lock */

/* ---- memory ---- */

static size_t share_values_bytes(const struct tr_table *t, uint64_t units)
{
    return (units * t->unit_bytes + LINE - 1) / LINE * LINE;
}

double tr_initial_element(enum tr_initial initial, double scale, uint64_t seed, tr_key key, uint64_t column)
{
    uint64_t mixed = tr_mix(tr_mix(tr_mix(seed) ^ key) ^ column);
    double u = (double)(mixed >> 11) * 0x1p-53, v = (double)(tr_mix(mixed) >> 11) * 0x1p-53;
    switch (initial) {
    case TR_INITIAL_ZERO: return 0;
    case TR_INITIAL_CONSTANT: return scale;
    case TR_INITIAL_UNIFORM: return scale * (2 * u - 1);
    case TR_INITIAL_NORMAL: return scale * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    }
    return 0;
}

int tr_share_open(struct tr_table *t, const tr_table_options *options)
{
    tr_context *tr = t->tr;
    size_t bytes = t->server < 0 ? 0
                                 : share_values_bytes(t, t->share_units) + sizeof **t->line +
                                       (t->share_units / LOCK_UNITS + 1) * sizeof(atomic_uint);
    int status = tr_shm_open(tr, tr->node, bytes, false, &t->memory);
    /* the memory is zero already, but the first write places its pages near this rank (NUMA) */
    if (status == TR_OK && bytes > 0) memset(t->memory.part[tr->node_rank].at, 0, bytes);
    TR_TRY(tr_agree(tr, status));
    for (uint32_t server = 0; server < t->partition.servers; server++) {
        int rank = tr_table_server_rank(t, server);
        if (!tr_same_node(tr, rank)) continue;
        uint64_t units = t->sparse ? 0 : tr_partition_share(&t->partition, server);
        int number = 0; /* index of `rank` among the ranks of the node, which are in the order of tr->world */
        for (int r = 0; r < rank; r++) number += tr_same_node(tr, r);
        char *share = t->memory.part[number].at;
        t->line[server] = (struct tr_share_line *)(void *)(share + share_values_bytes(t, units));
        if (units > 0) t->share[server] = share;
    }
    for (uint64_t position = 0; options->initial != TR_INITIAL_ZERO && position < t->share_units;
         position++) {
        void *share = t->share[t->server];
        uint64_t unit = tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)position);
        if (unit == UINT64_MAX) continue; /* padding stays 0 */
        uint64_t key = unit % t->keys, column = unit / t->keys * t->unit_width;
        for (size_t i = 0, at = position * t->unit_width; i < t->unit_width; i++, at++) {
            double x = tr_initial_element(options->initial, options->scale, options->seed, key, column + i);
            switch (t->dtype) {
            case TR_F32: ((float *)share)[at] = (float)x; break;
            case TR_F64: ((double *)share)[at] = x; break;
            case TR_I32: ((int32_t *)share)[at] = (int32_t)lrint(x); break;
            case TR_I64: ((int64_t *)share)[at] = llrint(x); break;
            }
        }
    }
    /* the initial values must be complete before another rank reads them */
    if (options->initial != TR_INITIAL_ZERO) tr_meet(tr, tr->node, "the ranks of this node to fill a table");
    /* opens an RMA window over the shares, unless no rank accesses them by RMA */
    bool far = tr->layout.nodes > 1 || t->route == TR_ROUTE_GET;
    if (!far || t->hash || t->sparse) return TR_OK;
    void *own = t->server >= 0 ? t->share[t->server] : NULL;
    return tr_window_open(tr, own, own ? share_values_bytes(t, t->share_units) : 0, 1,
                          "all ranks to open a table", &t->window);
}

void tr_share_close(struct tr_table *t)
{
    tr_window_close(t->tr, t->tr->world, "all ranks to close a table", &t->window);
    tr_shm_close(&t->memory);
}

/* ---- adding under locks ---- */

static atomic_uint *share_lock(const struct tr_table *t, uint32_t server, uint32_t position)
{
    atomic_uint *locks = (atomic_uint *)(void *)(t->line[server] + 1), *its = &locks[position / LOCK_UNITS];
    tr_spin_lock(its);
    return its;
}

/* Adds n units at the positions from `first` on. */
static void share_add_run(struct tr_table *t, uint32_t server, uint32_t first, uint32_t n, const char *values)
{
    for (uint32_t i = 0, length; i < n; i += length) {
        uint32_t position = first + i, left = LOCK_UNITS - position % LOCK_UNITS;
        length = n - i < left ? n - i : left;
        atomic_uint *its = share_lock(t, server, position);
        tr_add_elements(t->dtype, length * t->unit_width, values + i * t->unit_bytes,
                        (char *)t->share[server] + position * t->unit_bytes);
        tr_spin_unlock(its);
    }
}

/* Adds n units at ascending positions. Unit i is unit local[i] of `values` or, if local is NULL, unit i. */
static void share_add_listed(struct tr_table *t, uint32_t server, const uint32_t *local,
                             const uint32_t *position, uint32_t n, const char *values)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && position[end] / LOCK_UNITS == position[i] / LOCK_UNITS;) end++;
        atomic_uint *its = share_lock(t, server, position[i]);
        tr_add_units(t->dtype, local ? local + i : NULL, position + i, end - i, t->unit_width,
                     local ? values : values + i * t->unit_bytes, t->share[server]);
        tr_spin_unlock(its);
    }
}

void tr_share_add(struct tr_table *t, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values)
{
    if (position) share_add_listed(t, (uint32_t)t->server, NULL, position, n, values);
    else share_add_run(t, (uint32_t)t->server, first, n, values);
}

void tr_share_add_view(struct tr_table *t, uint32_t server, const struct tr_segment *s, const void *view)
{
    for (uint32_t r = 0; r < s->runs; r++)
        share_add_run(t, server, s->run[r].position, s->run[r].length,
                      (const char *)view + s->run[r].local * t->unit_bytes);
    if (s->runs == 0) share_add_listed(t, server, s->local, s->position, s->n, view);
}

void tr_share_copy(const struct tr_table *t, uint32_t server, uint32_t position, void *to)
{
    atomic_uint *its = share_lock(t, server, position);
    memcpy(to, (const char *)t->share[server] + position * t->unit_bytes, t->unit_bytes);
    tr_spin_unlock(its);
}

/* ======== hash maps ======== */

enum {
    SPLIT_AT = TR_HASH_PAGE_KEYS / 6 * 5, /* a page with this number of keys is split before one is added */
    SPREAD = 6,        /* maximum by which the depth of a page may exceed log2 of the number of pages */
    DEEPEST = 31,      /* maximum depth of a page */
    BATCH = 32,        /* number of keys that are looked up together */
    FIRST_SLOTS = 256, /* initial capacity */
    /* areas grow by multiples of this size, the largest page size of supported systems */
    SMALL_PAGE = 1 << 16,
    HUGE_PAGE = 2 << 20,
    LARGE_AREA = 4 * HUGE_PAGE, /* areas of at least this size are aligned to huge pages */
};

struct bucket {
    /* tag of the key at each place; 0: the place is free. Places are filled in ascending order */
    uint8_t tag[TR_HASH_PLACES];
    uint8_t passed; /* 1: the bucket was full when a key was added, so a later bucket has the key */
    uint8_t pad[3];
    uint32_t slot[TR_HASH_PLACES];
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

struct page {
    struct bucket bucket[TR_HASH_BUCKETS];
};

/* Fill of a page. This struct is not part of the page, so that adding a key writes to one cache line of the page only. */
struct fill {
    uint16_t keys;
    uint16_t depth; /* bits of the hash that all keys of the page have in common */
};

/* ---- areas ---- */

/* Changes the size of an area; false: out of memory. A large area moves to an address aligned to huge pages, for faster random
 * access. To move an area changes page tables, but copies nothing. */
static bool area_resize(struct tr_hash_area *area, size_t bytes)
{
    void *at = MAP_FAILED;
    bytes = (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    char *all = MAP_FAILED;
    if (!area->at) at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (bytes >= LARGE_AREA)
        all = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all != MAP_FAILED) {
        size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
        if (before > 0) munmap(all, before);
        munmap(all + before + bytes, HUGE_PAGE - before);
        at = mremap(area->at, area->bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, all + before);
        if (at == MAP_FAILED) munmap(all + before, bytes);
        else (void)madvise(at, bytes, MADV_HUGEPAGE);
    }
    if (area->at && at == MAP_FAILED) at = mremap(area->at, area->bytes, bytes, MREMAP_MAYMOVE);
    if (at != MAP_FAILED) *area = (struct tr_hash_area){at, bytes};
    return at != MAP_FAILED;
}

/* Ensures that an area has room for n items. It grows by half, so that few calls change its size, or, if memory is short, by the
 * minimum. what: content of the area, for the error message. */
static int area_grow(struct tr_hash_area *area, size_t n, size_t size, const char *what)
{
    size_t bytes;
    bool fits = !__builtin_mul_overflow(n, size, &bytes) && bytes <= SIZE_MAX / 2;
    if (fits &&
        (bytes <= area->bytes || area_resize(area, tr_max_size(bytes, area->bytes + area->bytes / 2)) ||
         area_resize(area, bytes)))
        return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "out of memory: %zu times %zu bytes for %s", n, size, what);
}

static void area_free(struct tr_hash_area *area)
{
    if (area->at) munmap(area->at, area->bytes);
    *area = (struct tr_hash_area){0};
}

/* ---- from a hash to its page and bucket ---- */

/* Bits of a hash that choose the page. The lowest and highest bits are not used: they may be equal in all keys of a server, because
 * they have determined the server. */
static inline uint32_t hash_directory_bits(uint64_t hash)
{
    return (uint32_t)(hash >> 12);
}

static inline uint32_t hash_first_bucket(uint64_t hash)
{
    return (uint32_t)(hash >> 44) % TR_HASH_BUCKETS;
}

static inline uint8_t hash_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 50);
    return (uint8_t)(tag + !tag);
}

static inline uint32_t hash_page_number(const struct tr_hashmap *m, uint64_t hash)
{
    uint32_t mask = (UINT32_C(1) << m->depth) - 1;
    return ((const uint32_t *)m->directory.at)[hash_directory_bits(hash) & mask];
}

/* Returns 8 bits; bit i is set if byte i of x is zero (Lamport: Multiple byte processing with full-word instructions, 1975). */
static inline unsigned bucket_zero_bytes(uint64_t x)
{
    const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
    uint64_t zero = ~(((x & low) + low) | x | low);
    return (unsigned)((zero >> 7) * UINT64_C(0x0102040810204080) >> 56);
}

static inline uint64_t bucket_eight_bytes(const uint8_t *b)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < 8; i++) x |= (uint64_t)b[i] << (8 * i);
    return x;
}

/* Returns a bit for each place of a bucket, which is set if the place has this tag. */
static inline unsigned bucket_matches(const struct bucket *b, uint8_t tag)
{
    enum { REST = TR_HASH_PLACES - 8 };
    uint64_t wanted = UINT64_C(0x0101010101010101) * tag;
    return bucket_zero_bytes(bucket_eight_bytes(b->tag) ^ wanted) |
           bucket_zero_bytes(bucket_eight_bytes(b->tag + REST) ^ wanted) << REST;
}

static uint32_t hashmap_find_hashed(const struct tr_hashmap *m, tr_key key, uint64_t hash)
{
    const struct page *page = (struct page *)m->page.at + hash_page_number(m, hash);
    uint8_t tag = hash_tag(hash);
    for (uint32_t i = 0; i < TR_HASH_BUCKETS; i++) {
        const struct bucket *b = &page->bucket[(hash_first_bucket(hash) + i) % TR_HASH_BUCKETS];
        for (unsigned left = bucket_matches(b, tag); left; left &= left - 1) {
            uint32_t slot = b->slot[__builtin_ctz(left)];
            if (tr_hashmap_key(m, slot) == key) return slot;
        }
        if (!b->passed) break;
    }
    return TR_NO_SLOT;
}

uint32_t tr_hashmap_find(const struct tr_hashmap *m, tr_key key)
{
    return hashmap_find_hashed(m, key, tr_mix(key));
}

/* ---- adding ---- */

/* Enters a slot in page `number`, which must have a free place. */
static void hashmap_place(struct tr_hashmap *m, uint32_t number, uint64_t hash, uint32_t slot)
{
    struct page *page = (struct page *)m->page.at + number;
    struct bucket *b;
    unsigned vacant;
    for (uint32_t i = hash_first_bucket(hash);; i++) {
        b = &page->bucket[i % TR_HASH_BUCKETS];
        vacant = bucket_matches(b, 0);
        if (vacant) break;
        b->passed = 1;
    }
    int at = __builtin_ctz(vacant);
    b->tag[at] = hash_tag(hash);
    b->slot[at] = slot;
    ((struct fill *)m->fill.at)[number].keys++;
}

static int hashmap_add_page(struct tr_hashmap *m, unsigned depth)
{
    TR_TRY(area_grow(&m->page, (size_t)m->pages + 1, sizeof(struct page), "the pages of a hash map"));
    TR_TRY(area_grow(&m->fill, (size_t)m->pages + 1, sizeof(struct fill), "the pages of a hash map"));
    ((struct fill *)m->fill.at)[m->pages++] = (struct fill){.depth = (uint16_t)depth};
    return TR_OK;
}

/* Splits the page of this hash in two: the next bit of a key's hash decides whether the key moves to the new page. */
static int hashmap_split(struct tr_hashmap *m, uint64_t hash)
{
    uint32_t number = hash_page_number(m, hash), fresh = m->pages;
    unsigned depth = ((struct fill *)m->fill.at)[number].depth;
    if (depth == m->depth) {
        size_t entries = (size_t)1 << m->depth;
        TR_TRY(area_grow(&m->directory, 2 * entries, sizeof(uint32_t), "the directory of a hash map"));
        uint32_t *half = m->directory.at;
        memcpy(half + entries, half, entries * sizeof *half);
        m->depth++;
    }
    TR_TRY(hashmap_add_page(m, depth + 1));
    uint32_t bit = UINT32_C(1) << depth, *directory = m->directory.at;
    for (uint64_t i = (hash_directory_bits(hash) & (bit - 1)) | bit; i >> m->depth == 0;
         i += 2 * (uint64_t)bit)
        directory[i] = fresh;
    struct page *page = (struct page *)m->page.at + number, old = *page;
    const tr_key *key = m->key.at;
    memset(page, 0, sizeof old);
    ((struct fill *)m->fill.at)[number] = (struct fill){.depth = (uint16_t)(depth + 1)};
    for (int b = 0; b < TR_HASH_BUCKETS; b++)
        for (int i = 0; i < TR_HASH_PLACES && old.bucket[b].tag[i]; i++)
            __builtin_prefetch(&key[old.bucket[b].slot[i]]);
    for (int b = 0; b < TR_HASH_BUCKETS; b++)
        for (int i = 0; i < TR_HASH_PLACES && old.bucket[b].tag[i]; i++) {
            uint32_t slot = old.bucket[b].slot[i];
            uint64_t its = tr_mix(key[slot]);
            hashmap_place(m, hash_directory_bits(its) & bit ? fresh : number, its, slot);
            m->moved++;
        }
    return TR_OK;
}

static int hashmap_grow_arrays(struct tr_hashmap *m, size_t slots)
{
    TR_TRY(area_grow(&m->key, slots, sizeof(tr_key), "the keys of a hash map"));
    for (uint32_t i = 0; i < m->arrays; i++)
        TR_TRY(area_grow(&m->array[i], slots, m->slot_bytes[i], "the values of a hash map"));
    m->capacity = (uint32_t)slots;
    return TR_OK;
}

static int hashmap_add_hashed(struct tr_hashmap *m, tr_key key, uint64_t hash, uint32_t *slot)
{
    uint32_t found = hashmap_find_hashed(m, key, hash);
    if (found == TR_NO_SLOT) {
        if (m->count == TR_NO_SLOT) return tr_fail(TR_ERR_SYSTEM, "a hash map holds at most 2^32 - 1 keys");
        size_t wanted = tr_max_size((size_t)m->count + m->count / 2, FIRST_SLOTS);
        if (m->count == m->capacity && hashmap_grow_arrays(m, tr_min_size(wanted, TR_NO_SLOT)) != TR_OK)
            TR_TRY(hashmap_grow_arrays(m, (size_t)m->count + 1));
        const struct fill *fill = &((struct fill *)m->fill.at)[hash_page_number(m, hash)];
        /* limits the size of the directory: keys that were chosen to have equal hash bits could make it arbitrarily large */
        bool may_split = fill->depth < DEEPEST && (UINT64_C(1) << fill->depth) <= (uint64_t)m->pages
                                                                                      << SPREAD;
        if (fill->keys >= SPLIT_AT && may_split) TR_TRY(hashmap_split(m, hash));
        uint32_t number = hash_page_number(m, hash);
        if (((struct fill *)m->fill.at)[number].keys == TR_HASH_PAGE_KEYS)
            return tr_fail(TR_ERR_SYSTEM, "too many keys of a hash map have hashes like that of key %llu",
                           (unsigned long long)key);
        found = m->count++;
        ((tr_key *)m->key.at)[found] = key;
        hashmap_place(m, number, hash, found);
    }
    *slot = found;
    return TR_OK;
}

/* ---- many keys ---- */

/* Looks up n <= BATCH keys in their first buckets, with overlapping cache misses. Returns a bit for each key. The bit is set if
 * slot[i] may be wrong, because another key has the same tag, or because the key may be in a later bucket. */
static uint32_t hashmap_find_some(const struct tr_hashmap *m, const tr_key *key, size_t n, uint64_t *hash,
                                  uint32_t *slot)
{
    const struct bucket *bucket[BATCH];
    uint32_t unsure = 0;
    for (size_t i = 0; i < n; i++) {
        hash[i] = tr_mix(key[i]);
        const struct page *page = (struct page *)m->page.at + hash_page_number(m, hash[i]);
        bucket[i] = &page->bucket[hash_first_bucket(hash[i])];
        __builtin_prefetch(bucket[i]);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned found = bucket_matches(bucket[i], hash_tag(hash[i]));
        slot[i] = found ? bucket[i]->slot[__builtin_ctz(found)] : TR_NO_SLOT;
        unsure |= (uint32_t)(!found && bucket[i]->passed) << i;
        if (found) __builtin_prefetch((const tr_key *)m->key.at + slot[i]);
        else __builtin_prefetch(bucket[i] + 1); /* the bucket that is probably inspected next */
    }
    for (size_t i = 0; i < n; i++)
        unsure |= (uint32_t)(slot[i] != TR_NO_SLOT && tr_hashmap_key(m, slot[i]) != key[i]) << i;
    return unsure;
}

void tr_hashmap_find_all(const struct tr_hashmap *m, const tr_key *key, size_t n, uint32_t *slot)
{
    uint64_t hash[BATCH];
    for (size_t some; n > 0; n -= some, key += some, slot += some) {
        some = tr_min_size(BATCH, n);
        for (uint32_t left = hashmap_find_some(m, key, some, hash, slot); left; left &= left - 1) {
            int i = __builtin_ctz(left);
            slot[i] = hashmap_find_hashed(m, key[i], hash[i]);
        }
    }
}

int tr_hashmap_add_all(struct tr_hashmap *m, const tr_key *key, size_t n, uint32_t *slot)
{
    uint64_t hash[BATCH];
    for (size_t some; n > 0; n -= some, key += some, slot += some) {
        some = tr_min_size(BATCH, n);
        uint32_t unsure = hashmap_find_some(m, key, some, hash, slot);
        for (size_t i = 0; i < some; i++)
            if (slot[i] == TR_NO_SLOT || (unsure >> i & 1))
                TR_TRY(hashmap_add_hashed(m, key[i], hash[i], &slot[i]));
    }
    return TR_OK;
}

/* ---- opening and closing ---- */

int tr_hashmap_open(const size_t *slot_bytes, uint32_t arrays, struct tr_hashmap *map)
{
    if (arrays > TR_HASH_ARRAYS)
        return tr_fail(TR_ERR_INTERNAL, "a hash map has at most %d arrays, not %u", TR_HASH_ARRAYS, arrays);
    struct tr_hashmap m TR_CLOSED_BY(tr_hashmap_close) = {.arrays = arrays};
    for (uint32_t i = 0; i < arrays; i++) m.slot_bytes[i] = slot_bytes[i];
    TR_TRY(area_grow(&m.directory, 1, sizeof(uint32_t), "the directory of a hash map"));
    TR_TRY(hashmap_add_page(&m, 0));
    *map = m;
    m = (struct tr_hashmap){0};
    return TR_OK;
}

int tr_hashmap_add_array(struct tr_hashmap *m, size_t slot_bytes)
{
    if (m->arrays == TR_HASH_ARRAYS)
        return tr_fail(TR_ERR_INTERNAL, "a hash map has at most %d arrays", TR_HASH_ARRAYS);
    TR_TRY(area_grow(&m->array[m->arrays], m->capacity, slot_bytes, "the values of a hash map"));
    m->slot_bytes[m->arrays++] = slot_bytes;
    return TR_OK;
}

void tr_hashmap_keep_arrays(struct tr_hashmap *m, uint32_t arrays)
{
    while (m->arrays > arrays) area_free(&m->array[--m->arrays]);
}

void tr_hashmap_close(struct tr_hashmap *m)
{
    for (uint32_t i = 0; i < m->arrays; i++) area_free(&m->array[i]);
    area_free(&m->key);
    area_free(&m->page);
    area_free(&m->fill);
    area_free(&m->directory);
    *m = (struct tr_hashmap){0};
}

int tr_hashmap_clear(struct tr_hashmap *m)
{
    size_t slot_bytes[TR_HASH_ARRAYS];
    uint32_t arrays = m->arrays;
    memcpy(slot_bytes, m->slot_bytes, sizeof slot_bytes);
    tr_hashmap_close(m);
    return tr_hashmap_open(slot_bytes, arrays, m);
}

size_t tr_hashmap_memory(const struct tr_hashmap *m)
{
    size_t slot = sizeof(tr_key);
    for (uint32_t i = 0; i < m->arrays; i++) slot += m->slot_bytes[i];
    return m->count * slot + m->pages * (sizeof(struct page) + sizeof(struct fill)) +
           (sizeof(uint32_t) << m->depth);
}

/* ---- lists of keys ---- */

int tr_hash_list_append(struct tr_hash_list *l, const tr_key *key, uint32_t n)
{
    if (n == 0) return TR_OK;
    size_t all = (size_t)l->n + n;
    tr_key *longer = realloc(l->key, all * sizeof *longer);
    if (longer) l->key = longer;
    uint32_t *slots = longer ? realloc(l->slot, all * sizeof *slots) : NULL;
    if (!slots) return tr_fail(TR_ERR_SYSTEM, "out of memory: a list of %zu keys", all);
    l->slot = slots;
    memcpy(l->key + l->n, key, n * sizeof *key);
    for (size_t i = l->n; i < all; i++) l->slot[i] = TR_NO_SLOT;
    l->n += n;
    l->absent += n;
    l->seen = 0;
    return TR_OK;
}

void tr_hash_list_free(struct tr_hash_list *list)
{
    TR_FREE_ALL(list->key, list->slot);
    *list = (struct tr_hash_list){0};
}

void tr_hash_list_forget(struct tr_hash_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) l->slot[i] = TR_NO_SLOT;
    l->absent = l->n;
    l->seen = 0;
}

/* Collects at most BATCH absent keys of the list. among: n indices in the list (NULL: 0 .. n-1). Inspects among[*from] and the
 * following ones, and advances *from. Writes the keys, and their indices in the list to `at`; returns their number. */
static uint32_t hash_list_next_absent(const struct tr_hash_list *l, const uint32_t *among, uint32_t *from,
                                      uint32_t n, tr_key *key, uint32_t *at)
{
    uint32_t some = 0;
    for (; *from < n && some < BATCH; ++*from) {
        uint32_t number = among ? among[*from] : *from;
        if (l->slot[number] != TR_NO_SLOT) continue;
        at[some] = number;
        key[some++] = l->key[number];
    }
    return some;
}

static void hash_list_remember(struct tr_hash_list *l, const uint32_t *at, const uint32_t *slot, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        l->slot[at[i]] = slot[i];
        l->absent -= slot[i] != TR_NO_SLOT;
    }
}

void tr_hash_list_refresh(struct tr_hash_list *l, const struct tr_hashmap *m)
{
    /* a binary search in the list takes about as long as SEARCH look-ups in the map */
    enum { SEARCH = 16 };
    if (l->absent > 0 && l->seen < m->count && (uint64_t)(m->count - l->seen) * SEARCH < l->absent) {
        /* searches the few new keys of the map in the list, instead of looking up all absent keys in the map */
        for (uint32_t slot = l->seen; slot < m->count; slot++) {
            tr_key key = tr_hashmap_key(m, slot);
            uint32_t low = (uint32_t)tr_place_u64(l->key, l->n, key);
            if (low < l->n && l->key[low] == key && l->slot[low] == TR_NO_SLOT)
                hash_list_remember(l, &low, &slot, 1);
        }
    } else if (l->absent > 0 && l->seen < m->count) {
        tr_key key[BATCH];
        uint32_t at[BATCH], slot[BATCH], from = 0, some;
        while ((some = hash_list_next_absent(l, NULL, &from, l->n, key, at)) > 0) {
            tr_hashmap_find_all(m, key, some, slot);
            hash_list_remember(l, at, slot, some);
        }
    }
    l->seen = m->count;
}

int tr_hash_list_add(struct tr_hash_list *l, struct tr_hashmap *m, const uint32_t *at, uint32_t n)
{
    tr_key key[BATCH];
    uint32_t absent[BATCH], slot[BATCH], from = 0, some;
    while (l->absent > 0 && (some = hash_list_next_absent(l, at, &from, n, key, absent)) > 0) {
        TR_TRY(tr_hashmap_add_all(m, key, some, slot));
        hash_list_remember(l, absent, slot, some);
    }
    return TR_OK;
}

/* ======== sparse rows ======== */

/* ---- rows ---- */

int tr_sparse_open(enum tr_dtype dtype, uint64_t rows, struct tr_sparse **sparse)
{
    struct tr_sparse *s;
    TR_TRY(TR_NEW(&s, 1));
    s->real = dtype == TR_F32;
    s->rows = rows;
    int status = TR_NEW(&s->row, rows);
    if (status == TR_OK) *sparse = s;
    else free(s);
    return status;
}

void tr_sparse_close(struct tr_sparse **sparse)
{
    struct tr_sparse *s = *sparse;
    if (!s) return;
    for (uint64_t i = 0; i < s->rows; i++) free(s->row[i].column);
    TR_FREE_ALL(s->row, s->entry.column, s->entry.value, s);
    *sparse = NULL;
}

uint64_t tr_sparse_bytes(const struct tr_sparse *s)
{
    return s->rows * sizeof *s->row + s->entry_bytes;
}

/* Sets the capacity of a row, which must not be below its number of entries. */
static int sparse_set_capacity(struct tr_sparse *s, struct tr_sparse_row *row, uint32_t room)
{
    enum { ENTRY = 2 * sizeof(uint32_t) };
    uint32_t *column = malloc((size_t)room * ENTRY);
    if (!column) return tr_fail(TR_ERR_SYSTEM, "out of memory: a sparse row of %u entries", room);
    if (row->n > 0) {
        memcpy(column, row->column, row->n * sizeof *column);
        memcpy(column + room, tr_sparse_values(row), row->n * sizeof *column);
    }
    free(row->column);
    s->entry_bytes += (uint64_t)room * ENTRY;
    s->entry_bytes -= (uint64_t)row->room * ENTRY;
    row->column = column;
    row->room = room;
    return TR_OK;
}

static void sparse_clear_row(struct tr_sparse *s, struct tr_sparse_row *row)
{
    s->entry_bytes -= (uint64_t)row->room * 2 * sizeof *row->column;
    free(row->column);
    *row = (struct tr_sparse_row){.n = 0};
}

/* Returns whether a value is zero; -0 counts as zero. */
static bool sparse_is_zero(bool real, uint32_t bits)
{
    return real ? bits << 1 == 0 : bits == 0;
}

int tr_sparse_add(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    enum { SMALL = 8 };
    struct tr_sparse_row *row = &s->row[number];
    if (n == 0) return TR_OK;
    /* counts the columns that both the row and the update have */
    size_t both = 0;
    for (uint32_t i = 0, k = 0; i < row->n && k < n;) {
        uint32_t a = row->column[i], b = column[k];
        both += a == b;
        i += a <= b;
        k += b <= a;
    }
    size_t all = (size_t)row->n + n - both;
    if (all > UINT32_MAX - UINT32_MAX / 4)
        return tr_fail(TR_ERR_SYSTEM, "a sparse row of %zu entries is too long", all);
    uint32_t wanted = (uint32_t)all;
    if (wanted > row->room) TR_TRY(sparse_set_capacity(s, row, wanted + (row->room > 0 ? wanted / 4 : 0)));
    /* Merges row and update from the end, so that no entry is overwritten before it is read. When k is 0, the remaining entries of
     * the row already have their final places. */
    const uint32_t *added = value;
    uint32_t *values = tr_sparse_values(row), i = row->n, k = n, kept = 0;
    bool whole = true;
    for (uint32_t to = wanted; k > 0;) {
        to--;
        if (i > 0 && row->column[i - 1] > column[k - 1]) {
            i--;
            row->column[to] = row->column[i];
            values[to] = values[i];
            continue;
        }
        uint32_t sum = added[--k];
        if (i > 0 && row->column[i - 1] == column[k]) {
            float x, y;
            memcpy(&x, &values[--i], sizeof x);
            memcpy(&y, &sum, sizeof y);
            x += y;
            if (s->real) memcpy(&sum, &x, sizeof sum);
            else sum += values[i];
        }
        row->column[to] = column[k];
        values[to] = sum;
        whole = whole && !sparse_is_zero(s->real, sum);
    }
    row->n = wanted;
    for (i = 0; i < wanted && !whole; i++) {
        row->column[kept] = row->column[i];
        values[kept] = values[i];
        kept += !sparse_is_zero(s->real, values[i]);
    }
    if (!whole) row->n = kept;
    if (row->n == 0) {
        sparse_clear_row(s, row);
    } else if (row->room > SMALL && row->n < row->room / 4) {
        (void)sparse_set_capacity(s, row, row->n + row->n / 4); /* if memory is short, the capacity stays */
    }
    return TR_OK;
}

int tr_sparse_set(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    sparse_clear_row(s, &s->row[number]);
    return tr_sparse_add(s, number, n, column, value);
}

/* ---- rows in messages ---- */

uint32_t tr_sparse_write(bool real, uint32_t n, const uint32_t *column, const void *value, unsigned char *out,
                         size_t room, size_t *bytes)
{
    const uint32_t *values = value;
    unsigned char *at = out + TR_SPARSE_HEAD, *last = out + room - TR_SPARSE_ENTRY_MOST;
    uint32_t i = 0, before = 0;
    for (; i < n && at <= last; i++) {
        at = tr_put_gap(column[i] - before, at);
        before = column[i];
        if (real) {
            memcpy(at, &values[i], sizeof *values);
            at += sizeof *values;
        } else {
            at = tr_put_gap((uint32_t)(values[i] << 1 ^ (0u - (values[i] >> 31))), at); /* zigzag encoding */
        }
    }
    memcpy(out, &i, sizeof i);
    *bytes = (size_t)(at - out);
    return i;
}

int tr_sparse_reserve(struct tr_sparse_entries *e, size_t n)
{
    TR_TRY(TR_GROW(&e->column, &e->column_room, tr_max_size(e->n + n, 1)));
    return TR_GROW(&e->value, &e->value_room, tr_max_size(e->n + n, 1));
}

int tr_sparse_read(bool real, uint64_t width, const unsigned char **at, const unsigned char *end,
                   struct tr_sparse_entries *e)
{
    uint64_t gap, bits, last = 0;
    uint32_t n;
    if (end - *at < TR_SPARSE_HEAD) return TR_ERR_PEER;
    memcpy(&n, *at, sizeof n);
    *at += TR_SPARSE_HEAD;
    if (n > (size_t)(end - *at) / 2) return TR_ERR_PEER; /* an entry takes two bytes at least */
    TR_TRY(tr_sparse_reserve(e, n));
    uint32_t *column = e->column + e->n, *value = e->value + e->n;
    for (uint32_t i = 0; i < n; i++) {
        if (!tr_take_gap(at, end, &gap) || gap > UINT32_MAX || (i > 0 && gap == 0)) return TR_ERR_PEER;
        last += gap;
        if (last >= width) return TR_ERR_PEER;
        column[i] = (uint32_t)last;
        if (real) {
            if (end - *at < (ptrdiff_t)sizeof *value) return TR_ERR_PEER;
            memcpy(&value[i], *at, sizeof *value);
            *at += sizeof *value;
        } else {
            if (!tr_take_gap(at, end, &bits) || bits > UINT32_MAX) return TR_ERR_PEER;
            value[i] = (uint32_t)bits >> 1 ^ (0u - ((uint32_t)bits & 1));
        }
    }
    e->n += n;
    return TR_OK;
}

/* ---- requests ---- */

int tr_sparse_answer(const struct tr_sparse *s, uint32_t n, const void *requests, unsigned char *out,
                     size_t room, struct tr_sparse_head *head)
{
    *head = (struct tr_sparse_head){.rows = 0};
    for (; head->rows < n && room - head->bytes >= TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST; head->rows++) {
        struct tr_sparse_request request;
        memcpy(&request, (const char *)requests + head->rows * sizeof request, sizeof request);
        if (request.position >= s->rows)
            return tr_fail(TR_ERR_PEER, "row %u is asked for, but the share has %llu", request.position,
                           (unsigned long long)s->rows);
        const struct tr_sparse_row *row = &s->row[request.position];
        uint32_t first = request.from > 0 ? (uint32_t)tr_place_u32(row->column, row->n, request.from) : 0;
        const uint32_t *values = row->n > 0 ? tr_sparse_values(row) : NULL;
        size_t bytes = 0;
        uint32_t written = tr_sparse_write(s->real, row->n - first, row->n > 0 ? row->column + first : NULL,
                                           row->n > 0 ? values + first : NULL, out + head->bytes,
                                           room - head->bytes, &bytes);
        bool whole = first + written == row->n;
        if (!whole && head->rows > 0) break; /* the next answer may have room for the whole row */
        head->bytes += (uint32_t)bytes;
        if (whole) continue;
        head->cut = 1;
        head->from = row->column[first + written];
        break;
    }
    return TR_OK;
}

int tr_sparse_take(struct tr_sparse *s, uint64_t width, const void *update, size_t bytes)
{
    const unsigned char *at = update, *end = at + bytes;
    while (at < end) {
        uint32_t position = UINT32_MAX;
        int status = TR_ERR_PEER;
        if (end - at >= (ptrdiff_t)sizeof position) memcpy(&position, at, sizeof position);
        at += sizeof position;
        s->entry.n = 0;
        if (position < s->rows) status = tr_sparse_read(s->real, width, &at, end, &s->entry);
        if (status == TR_ERR_PEER) return tr_fail(TR_ERR_PEER, "an update of sparse rows is malformed");
        TR_TRY(status);
        TR_TRY(tr_sparse_add(s, position, s->entry.n, s->entry.column, s->entry.value));
    }
    return TR_OK;
}

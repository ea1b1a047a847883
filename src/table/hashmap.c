#define _GNU_SOURCE
#include "table/storage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SPLIT_AT = TR_HASH_PAGE_KEYS / 6 * 5, /* fuller pages are split when a key is added */
    SPREAD = 6,                           /* no page is split by more bits than this beyond the usual */
    DEEPEST = 31,
    BATCH = 32,           /* keys whose cache misses overlap */
    FIRST_SLOTS = 256,    /* room to begin with */
    SMALL_PAGE = 1 << 16, /* no machine has larger ones */
    HUGE_PAGE = 2 << 20,
    LARGE_AREA = 4 * HUGE_PAGE, /* from here on a huge page more or less is no waste */
};

struct bucket {
    uint8_t tag[TR_HASH_PLACES]; /* 0: free; places are taken in order */
    uint8_t passed;              /* it was full, and a key was placed in a later bucket */
    uint8_t pad[3];
    uint32_t slot[TR_HASH_PLACES];
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a cache line");

struct page {
    struct bucket bucket[TR_HASH_BUCKETS];
};

/* Kept apart from the pages: adding a key should not touch one more line of them. */
struct fill {
    uint16_t keys;
    uint16_t depth; /* bits of the hash that all keys of the page have in common */
};

/* ---- areas ---- */

/* Moves an area to where huge pages fit: they spare random access much of the translation of addresses, and
 * moving means a few entries in the page tables. */
static void *area_move(const struct tr_hash_area *area, size_t bytes)
{
    char *all = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return MAP_FAILED;
    size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
    char *at = all + before;
    if (before > 0) munmap(all, before);
    munmap(at + bytes, HUGE_PAGE - before);
    if (mremap(area->at, area->bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
        munmap(at, bytes);
        return MAP_FAILED;
    }
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static bool area_resize(struct tr_hash_area *area, size_t bytes)
{
    void *at = MAP_FAILED;
    bytes = (bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    if (!area->at) at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (bytes >= LARGE_AREA) at = area_move(area, bytes);
    if (area->at && at == MAP_FAILED) at = mremap(area->at, area->bytes, bytes, MREMAP_MAYMOVE);
    if (at != MAP_FAILED) *area = (struct tr_hash_area){at, bytes};
    return at != MAP_FAILED;
}

/* Grows by half, so that growing costs little; by no more than it must where memory is short. */
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

static struct page *hashmap_pages(const struct tr_hashmap *m)
{
    return m->page.at;
}

static struct fill *hashmap_fills(const struct tr_hashmap *m)
{
    return m->fill.at;
}

/* ---- where a hash leads ---- */

/* The lowest and the highest bits are left alone: what spreads keys over servers may have used them up. */
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

static inline const struct bucket *hash_bucket(const struct tr_hashmap *m, uint64_t hash)
{
    return &hashmap_pages(m)[hash_page_number(m, hash)].bucket[hash_first_bucket(hash)];
}

/* Bit i is set if byte i is zero: eight comparisons in one register (Lamport: Multiple byte processing with
 * full-word instructions, 1975). */
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

/* The places of a bucket with this tag, one bit each. */
static inline unsigned bucket_matches(const struct bucket *b, uint8_t tag)
{
    enum { REST = TR_HASH_PLACES - 8 };
    uint64_t wanted = UINT64_C(0x0101010101010101) * tag;
    return bucket_zero_bytes(bucket_eight_bytes(b->tag) ^ wanted) |
           bucket_zero_bytes(bucket_eight_bytes(b->tag + REST) ^ wanted) << REST;
}

static uint32_t hashmap_find_hashed(const struct tr_hashmap *m, tr_key key, uint64_t hash)
{
    const struct page *page = &hashmap_pages(m)[hash_page_number(m, hash)];
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

/* Puts a slot into a page that has room. */
static void hashmap_place(struct tr_hashmap *m, uint32_t number, uint64_t hash, uint32_t slot)
{
    struct page *page = &hashmap_pages(m)[number];
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
    hashmap_fills(m)[number].keys++;
}

static int hashmap_double_directory(struct tr_hashmap *m)
{
    size_t entries = (size_t)1 << m->depth;
    TR_TRY(area_grow(&m->directory, 2 * entries, sizeof(uint32_t), "the directory of a hash map"));
    uint32_t *directory = m->directory.at;
    memcpy(directory + entries, directory, entries * sizeof *directory);
    m->depth++;
    return TR_OK;
}

static int hashmap_add_page(struct tr_hashmap *m, unsigned depth)
{
    TR_TRY(area_grow(&m->page, (size_t)m->pages + 1, sizeof(struct page), "the pages of a hash map"));
    TR_TRY(area_grow(&m->fill, (size_t)m->pages + 1, sizeof(struct fill), "the pages of a hash map"));
    hashmap_fills(m)[m->pages++] = (struct fill){.depth = (uint16_t)depth};
    return TR_OK;
}

/* Moves the keys of a copied page to two, by the bit of the hash that now tells these apart. */
static void hashmap_split_keys(struct tr_hashmap *m, const struct page *page, const uint32_t to[2],
                               uint32_t bit)
{
    const tr_key *key = m->key.at;
    for (int b = 0; b < TR_HASH_BUCKETS; b++)
        for (int i = 0; i < TR_HASH_PLACES && page->bucket[b].tag[i]; i++)
            __builtin_prefetch(&key[page->bucket[b].slot[i]]);
    for (int b = 0; b < TR_HASH_BUCKETS; b++)
        for (int i = 0; i < TR_HASH_PLACES && page->bucket[b].tag[i]; i++) {
            uint32_t slot = page->bucket[b].slot[i];
            uint64_t hash = tr_mix(key[slot]);
            hashmap_place(m, to[(hash_directory_bits(hash) & bit) != 0], hash, slot);
            m->moved++;
        }
}

/* Splits the page to which this hash leads. */
static int hashmap_split(struct tr_hashmap *m, uint64_t hash)
{
    uint32_t number = hash_page_number(m, hash), fresh = m->pages;
    unsigned depth = hashmap_fills(m)[number].depth;
    if (depth == m->depth) TR_TRY(hashmap_double_directory(m));
    TR_TRY(hashmap_add_page(m, depth + 1));
    uint32_t bit = UINT32_C(1) << depth, *directory = m->directory.at;
    for (uint64_t i = (hash_directory_bits(hash) & (bit - 1)) | bit; i >> m->depth == 0;
         i += 2 * (uint64_t)bit)
        directory[i] = fresh;
    struct page old = hashmap_pages(m)[number];
    memset(&hashmap_pages(m)[number], 0, sizeof old);
    hashmap_fills(m)[number] = (struct fill){.depth = (uint16_t)(depth + 1)};
    hashmap_split_keys(m, &old, (const uint32_t[]){number, fresh}, bit);
    return TR_OK;
}

/* Pages of keys that are alike in bits of their hashes, which chance does not bring about, would make a directory
 * without end. */
static bool hashmap_may_split(const struct tr_hashmap *m, unsigned depth)
{
    return depth < DEEPEST && (UINT64_C(1) << depth) <= (uint64_t)m->pages << SPREAD;
}

static int hashmap_grow_arrays(struct tr_hashmap *m, size_t slots)
{
    TR_TRY(area_grow(&m->key, slots, sizeof(tr_key), "the keys of a hash map"));
    for (uint32_t i = 0; i < m->arrays; i++)
        TR_TRY(area_grow(&m->array[i], slots, m->slot_bytes[i], "the values of a hash map"));
    m->capacity = (uint32_t)slots;
    return TR_OK;
}

static int hashmap_make_slot(struct tr_hashmap *m)
{
    if (m->count < m->capacity) return TR_OK;
    if (m->count == TR_NO_SLOT) return tr_fail(TR_ERR_SYSTEM, "a hash map holds at most 2^32 - 1 keys");
    size_t wanted = tr_max_size((size_t)m->count + m->count / 2, FIRST_SLOTS);
    if (hashmap_grow_arrays(m, tr_min_size(wanted, TR_NO_SLOT)) == TR_OK) return TR_OK;
    return hashmap_grow_arrays(m, (size_t)m->count + 1);
}

static int hashmap_add_hashed(struct tr_hashmap *m, tr_key key, uint64_t hash, uint32_t *slot)
{
    uint32_t found = hashmap_find_hashed(m, key, hash);
    if (found == TR_NO_SLOT) {
        TR_TRY(hashmap_make_slot(m));
        const struct fill *fill = &hashmap_fills(m)[hash_page_number(m, hash)];
        if (fill->keys >= SPLIT_AT && hashmap_may_split(m, fill->depth)) TR_TRY(hashmap_split(m, hash));
        uint32_t number = hash_page_number(m, hash);
        if (hashmap_fills(m)[number].keys == TR_HASH_PAGE_KEYS)
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

/* Looks up to BATCH keys up with their cache misses at the same time. Returns those, one bit each, of which slot
 * does not say the truth yet: where another key had the same tag, or had taken the place. */
static uint32_t hashmap_find_some(const struct tr_hashmap *m, const tr_key *key, size_t n, uint64_t *hash,
                                  uint32_t *slot)
{
    const struct bucket *bucket[BATCH];
    uint32_t unsure = 0;
    for (size_t i = 0; i < n; i++) {
        hash[i] = tr_mix(key[i]);
        bucket[i] = hash_bucket(m, hash[i]);
        __builtin_prefetch(bucket[i]);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned found = bucket_matches(bucket[i], hash_tag(hash[i]));
        slot[i] = found ? bucket[i]->slot[__builtin_ctz(found)] : TR_NO_SLOT;
        unsure |= (uint32_t)(!found && bucket[i]->passed) << i;
        if (found) __builtin_prefetch((const tr_key *)m->key.at + slot[i]);
        else __builtin_prefetch(bucket[i] + 1); /* mostly the next one to be looked at */
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

/* ---- the whole ---- */

int tr_hashmap_open(const size_t *slot_bytes, uint32_t arrays, struct tr_hashmap *map)
{
    if (arrays > TR_HASH_ARRAYS)
        return tr_fail(TR_ERR_INTERNAL, "a hash map has at most %d arrays, not %u", TR_HASH_ARRAYS, arrays);
    struct tr_hashmap m = {.arrays = arrays};
    for (uint32_t i = 0; i < arrays; i++) m.slot_bytes[i] = slot_bytes[i];
    int status = area_grow(&m.directory, 1, sizeof(uint32_t), "the directory of a hash map");
    if (status == TR_OK) status = hashmap_add_page(&m, 0);
    if (status != TR_OK) {
        tr_hashmap_close(&m);
        return status;
    }
    *map = m;
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
    free(list->key);
    free(list->slot);
    *list = (struct tr_hash_list){0};
}

void tr_hash_list_forget(struct tr_hash_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) l->slot[i] = TR_NO_SLOT;
    l->absent = l->n;
    l->seen = 0;
}

/* Collects the next absent keys, at most BATCH, among those that the n numbers in `among` (NULL: 0 .. n-1) stand for,
 * from *from on; at[i]: where they stand in the list. */
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

static void hash_list_look_up_absent(struct tr_hash_list *l, const struct tr_hashmap *m)
{
    tr_key key[BATCH];
    uint32_t at[BATCH], slot[BATCH], from = 0, some;
    while ((some = hash_list_next_absent(l, NULL, &from, l->n, key, at)) > 0) {
        tr_hashmap_find_all(m, key, some, slot);
        hash_list_remember(l, at, slot, some);
    }
}

/* The other way round: looks up the map's new keys in the list. */
static void hash_list_look_up_new(struct tr_hash_list *l, const struct tr_hashmap *m)
{
    for (uint32_t slot = l->seen; slot < m->count; slot++) {
        tr_key key = tr_hashmap_key(m, slot);
        uint32_t low = (uint32_t)tr_place_u64(l->key, l->n, key);
        if (low < l->n && l->key[low] == key && l->slot[low] == TR_NO_SLOT)
            hash_list_remember(l, &low, &slot, 1);
    }
}

void tr_hash_list_refresh(struct tr_hash_list *l, const struct tr_hashmap *m)
{
    /* a search in the list costs about as much as SEARCH look-ups of keys of the list */
    enum { SEARCH = 16 };
    if (l->absent > 0 && l->seen < m->count) {
        if ((uint64_t)(m->count - l->seen) * SEARCH < l->absent) hash_list_look_up_new(l, m);
        else hash_list_look_up_absent(l, m);
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

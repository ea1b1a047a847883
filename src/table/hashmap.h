/* What a server keeps of a table with hash storage: a map from keys to slots, and arrays indexed by slot.
 *
 * A key that is added gets the next slot, 0, 1, 2, …, and keeps it for ever; keys are never taken out. Beside the
 * map lie arrays with a fixed number of bytes a slot (values, state of server functions), zeros at first. They
 * grow without being copied, so that addresses into them hold only until a key is added.
 *
 * The index is extendible hashing (Fagin, Nievergelt, Pippenger, Strong: Extendible hashing, 1979, section 2):
 * some bits of the hash choose, through a directory, a page of 64 buckets; a page that has filled up is split in
 * two by one more bit. A bucket is a cache line of 12 places, each a byte of the hash and a slot, so that a
 * look-up costs one cache miss in the index and, where the byte fits, one in the array of keys. No call moves
 * more keys than one page holds; 6.4 to 12.8 bytes of index go with the 8 of each key, and memory follows the
 * keys present, not the space they come from. Only the directory, 4 bytes for some 500 keys, is doubled at once.
 *
 * Threads take turns by themselves: there are no locks in here.
 */
#ifndef TR_TABLE_HASHMAP_H
#define TR_TABLE_HASHMAP_H

#include "base/base.h"
#include "trireme/table.h"

/* Where an absent key lies. */
#define TR_NO_SLOT UINT32_MAX

/* TR_HASH_PAGE_KEYS: what one call moves at most. */
enum { TR_HASH_ARRAYS = 8, TR_HASH_BUCKETS = 64, TR_HASH_PLACES = 12 };
enum { TR_HASH_PAGE_KEYS = TR_HASH_BUCKETS * TR_HASH_PLACES };

/* Memory that grows in place or moves without a copy; zeros where nothing was written. */
struct tr_hash_area {
    void *at;
    size_t bytes;
};

struct tr_hashmap {
    uint32_t count;    /* keys, and slots in use */
    uint32_t capacity; /* slots that all arrays have room for */
    uint32_t arrays;
    size_t slot_bytes[TR_HASH_ARRAYS];
    struct tr_hash_area array[TR_HASH_ARRAYS]; /* array[i].at: capacity × slot_bytes[i] */
    struct tr_hash_area key;                   /* by slot */

    struct tr_hash_area page, fill, directory;
    uint32_t pages;
    unsigned depth; /* the directory has 2^depth entries */
    uint64_t moved; /* keys that splits have put in a new place so far */
};

/* Makes an empty map with so many arrays beside it, of slot_bytes[i] > 0 bytes a slot each. Free it with
 * tr_hashmap_close(). TR_ERR_SYSTEM without memory, TR_ERR_INTERNAL for more than TR_HASH_ARRAYS arrays. */
int tr_hashmap_open(const size_t *slot_bytes, uint32_t arrays, struct tr_hashmap *map);
void tr_hashmap_close(struct tr_hashmap *map);

/* One more array of zeros, the last one; the others stay where they are. Errors as above: nothing has changed. */
int tr_hashmap_add_array(struct tr_hashmap *map, size_t slot_bytes);

/* Gives back all arrays but the first ones. */
void tr_hashmap_keep_arrays(struct tr_hashmap *map, uint32_t arrays);

/* Takes all keys out; the arrays remain, of zeros. TR_ERR_SYSTEM: there is nothing left but to close it. */
int tr_hashmap_clear(struct tr_hashmap *map);

/* The slot of a key, or TR_NO_SLOT. */
uint32_t tr_hashmap_find(const struct tr_hashmap *map, tr_key key);

/* The same for n keys in any order, twice as fast as one by one. */
void tr_hashmap_find_all(const struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

/* The slots of n keys in any order, new ones for those that have none. TR_ERR_SYSTEM without memory: the keys before
 * the one that failed have been added, and slot says nothing. */
int tr_hashmap_add_all(struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

static inline tr_key tr_hashmap_key(const struct tr_hashmap *map, uint32_t slot)
{
    return ((const tr_key *)map->key.at)[slot];
}

/* Bytes that have been touched, of index, keys and arrays; address space held in reserve does not count. */
size_t tr_hashmap_memory(const struct tr_hashmap *map);

/* A list of keys whose slots are remembered: what a server keeps of each client's registered keys. Slots hold
 * for ever, so that only absent keys are looked up again, and only when the map has grown since. */
struct tr_hash_list {
    uint32_t n;
    tr_key *key;     /* ascending */
    uint32_t *slot;  /* TR_NO_SLOT: absent when last looked up */
    uint32_t absent; /* how many of them are */
    uint32_t seen;   /* keys of the map then */
};

/* Lengthens a list, of zeros at first, by n ascending keys above those that it has. They are copied, and none of
 * them looked up. Free it with tr_hash_list_free(). TR_ERR_SYSTEM without memory: the list is as before. */
int tr_hash_list_append(struct tr_hash_list *list, const tr_key *key, uint32_t n);
void tr_hash_list_free(struct tr_hash_list *list);

/* All keys are absent again: the map has been cleared. */
void tr_hash_list_forget(struct tr_hash_list *list);

/* Before reading: finds out which of the absent keys have come into being. */
void tr_hash_list_refresh(struct tr_hash_list *list, const struct tr_hashmap *map);

/* Before writing to n keys of the list, those with the ascending numbers at[0 .. n-1]: adds the absent ones.
 * Errors as tr_hashmap_add_all(); both stay right, and calling it again goes on. */
int tr_hash_list_add(struct tr_hash_list *list, struct tr_hashmap *map, const uint32_t *at, uint32_t n);

#endif

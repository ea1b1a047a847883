/* Storage of the servers' shares: dense shares, hash maps and sparse rows.
 *
 * A dense share lies in memory that its node shares, where ranks of the node read and add directly; an RMA window opens it to
 * other nodes. Behind the values lie a struct tr_share_line, and a lock for each 1024 units, which adding takes. */
#ifndef TR_TABLE_STORAGE_H
#define TR_TABLE_STORAGE_H

#include "base/base.h"
#include "table/plan.h"
#include "trireme/table.h"

/* Allocates the share of this rank with its initial values, and finds those of its node; opens a window if other nodes will read
 * or write them. Both functions are collective over all ranks. */
int tr_share_open(struct tr_table *table, const tr_table_options *options);
void tr_share_close(struct tr_table *table);

/* Adds the values of a segment in `view` to a share in shared memory. Other ranks may add at the same time. */
void tr_share_add_view(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                       const void *view);

/* Adds n packed units to this rank's share: at ascending positions or, position NULL, contiguously from `first` on. */
void tr_share_add(struct tr_table *table, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values);

/* Copies a unit of a share in shared memory under its lock. */
void tr_share_copy(const struct tr_table *table, uint32_t server, uint32_t position, void *to);

/* ======== hash maps ========
 *
 * The share of a table with hash storage: a map from keys to slots, and arrays indexed by slot.
 *
 * A key that is added gets the next slot, from 0 on, and keeps it; keys are never removed. Arrays have a fixed number of bytes a
 * slot (values, state of server functions), zeros at first. They grow without being copied, so addresses in them are valid only
 * until a key is added.
 *
 * The index is extendible hashing (Fagin et al. 1979, section 2): some bits of the hash choose, through a directory, a page of 64 buckets; a full page is split in two by one more bit. A bucket is a cache line
 * of 12 places, each a byte of the hash and a slot: a look-up takes one cache miss in the index and, if the byte matches, one
 * in the array of keys. No call moves more keys than a page has. A key takes 6.4 to 12.8 bytes of index and 8 of its own;
 * memory grows with the number of keys. Only the directory, 4 bytes for some 500 keys, is doubled as a whole. Not thread-safe. */

/* The slot of an absent key. */
#define TR_NO_SLOT UINT32_MAX

/* TR_HASH_PAGE_KEYS: maximum number of keys that one call moves. */
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

/* Makes an empty map with `arrays` arrays of slot_bytes[i] > 0 bytes a slot. Free it with
 * tr_hashmap_close(). TR_ERR_SYSTEM without memory, TR_ERR_INTERNAL for more than TR_HASH_ARRAYS arrays. */
int tr_hashmap_open(const size_t *slot_bytes, uint32_t arrays, struct tr_hashmap *map);
void tr_hashmap_close(struct tr_hashmap *map);

/* Appends an array of zeros; the others keep their places. On errors (as above) nothing has changed. */
int tr_hashmap_add_array(struct tr_hashmap *map, size_t slot_bytes);

/* Gives back all arrays but the first ones. */
void tr_hashmap_keep_arrays(struct tr_hashmap *map, uint32_t arrays);

/* Removes all keys; the arrays remain, of zeros. TR_ERR_SYSTEM: the map can only be closed. */
int tr_hashmap_clear(struct tr_hashmap *map);

/* The slot of a key, or TR_NO_SLOT. */
uint32_t tr_hashmap_find(const struct tr_hashmap *map, tr_key key);

/* The same for n keys in any order, twice as fast as one by one. */
void tr_hashmap_find_all(const struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

/* The slots of n keys in any order; absent keys are added. TR_ERR_SYSTEM without memory: the keys before the failed one have been
 * added, and slot is undefined. */
int tr_hashmap_add_all(struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

static inline tr_key tr_hashmap_key(const struct tr_hashmap *map, uint32_t slot)
{
    return ((const tr_key *)map->key.at)[slot];
}

/* Bytes of index, keys and arrays without reserved address space. */
size_t tr_hashmap_memory(const struct tr_hashmap *map);

/* A list of keys with their slots, which a server keeps for each client's registered keys. Slots never change, so only absent
 * keys are looked up again, and only if the map has grown since. */
struct tr_hash_list {
    uint32_t n;
    tr_key *key;     /* ascending */
    uint32_t *slot;  /* TR_NO_SLOT: absent when last looked up */
    uint32_t absent; /* how many of them are */
    uint32_t seen;   /* keys of the map then */
};

/* Appends n ascending keys, all above the present ones, to a list (zeros at first). They are copied and not looked up. Free it
 * with tr_hash_list_free(). TR_ERR_SYSTEM without memory: the list is unchanged. */
int tr_hash_list_append(struct tr_hash_list *list, const tr_key *key, uint32_t n);
void tr_hash_list_free(struct tr_hash_list *list);

/* Call it after the map has been cleared: marks all keys of the list as absent. */
void tr_hash_list_forget(struct tr_hash_list *list);

/* Before reading: looks up absent keys that have been added to the map since. */
void tr_hash_list_refresh(struct tr_hash_list *list, const struct tr_hashmap *map);

/* Before writing to n keys of the list, those with the ascending numbers at[0 .. n-1]: adds the absent ones.
 * Errors as tr_hashmap_add_all(): list and map stay consistent, and a second call continues. */
int tr_hash_list_add(struct tr_hash_list *list, struct tr_hashmap *map, const uint32_t *at, uint32_t n);

/* ======== sparse rows ========
 *
 * A row is a list of ascending columns, followed by the list of their values, without zeros: 8 bytes an entry, a quarter more if a
 * row has grown, and 16 bytes a row.
 *
 * In messages an entry is the distance of its column from the previous one, and its value: 7 bits a byte, lowest first, the
 * upper bit says that more follow. Integers have their sign in the lowest bit (the zigzag encoding of Protocol Buffers), reals
 * are 4 bytes in the order of the machine. The number of entries (uint32) precedes a row or a part of one. So counts of words
 * and topics take 2 to 3 bytes. */

struct tr_sparse_row {
    uint32_t n, room;
    uint32_t *column; /* room of them; the values, 4 bytes each, follow */
};

/* A row that was read or copied; zeros at first. */
struct tr_sparse_entries {
    uint32_t n;
    uint32_t *column, *value; /* 4 bytes each; NULL until the first tr_sparse_reserve() */
    size_t column_room, value_room;
};

struct tr_sparse {
    bool real; /* TR_F32; else TR_I32 */
    uint64_t rows;
    struct tr_sparse_row *row;
    uint64_t entry_bytes;           /* of all rows, with unused capacity */
    struct tr_sparse_entries entry; /* one row of a message */
};

static inline void *tr_sparse_values(const struct tr_sparse_row *row)
{
    return row->column + row->room;
}

/* Rows of zeros. TR_ERR_SYSTEM without memory. */
int tr_sparse_open(enum tr_dtype dtype, uint64_t rows, struct tr_sparse **sparse);
void tr_sparse_close(struct tr_sparse **sparse);

/* Adds n values at ascending columns to a row, and removes entries that become zero. value: n int32_t or float. TR_ERR_SYSTEM
 * without memory: the row is unchanged. Integers wrap at 32 bits. */
int tr_sparse_add(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Replaces a row by n entries, as tr_sparse_add() to an empty row. */
int tr_sparse_set(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Bytes of the share: rows, entries and unused capacity. */
uint64_t tr_sparse_bytes(const struct tr_sparse *sparse);

/* ---- rows in messages ---- */

enum { TR_SPARSE_HEAD = 4, TR_SPARSE_ENTRY_MOST = 10 };

/* Writes a head and the first of n entries that fit into `room` bytes (at least TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST). *bytes: the
 * length. Returns the number of written entries. */
uint32_t tr_sparse_write(bool real, uint32_t n, const uint32_t *column, const void *value, unsigned char *out,
                         size_t room, size_t *bytes);

/* Makes room for n more entries. */
int tr_sparse_reserve(struct tr_sparse_entries *entries, size_t n);

/* Appends the next row. TR_ERR_PEER, without an error text: it is malformed, or columns do not ascend below `width`. */
int tr_sparse_read(bool real, uint64_t width, const unsigned char **at, const unsigned char *end,
                   struct tr_sparse_entries *entries);

/* ---- requests ---- */

/* A requested row. */
struct tr_sparse_request {
    uint32_t position, from; /* only columns from there on */
};

/* In front of the rows of an answer, in the order of the requests. Only a row that is longer than an answer is cut. */
struct tr_sparse_head {
    uint32_t bytes; /* of the rows that follow */
    uint32_t rows;  /* number of complete rows */
    uint32_t cut;   /* 1: the first part of one more row follows */
    uint32_t from;  /* the column at which the rest of that row starts */
};

/* Writes the answer to n requests (4 bytes each for position and column, unaligned) to `room` bytes behind the head.
 * TR_ERR_PEER: a row does not exist. */
int tr_sparse_answer(const struct tr_sparse *sparse, uint32_t n, const void *requests, unsigned char *out,
                     size_t room, struct tr_sparse_head *head);

/* Adds an update, rows with their positions (uint32) in front. TR_ERR_PEER: it is malformed. */
int tr_sparse_take(struct tr_sparse *sparse, uint64_t width, const void *update, size_t bytes);

#endif

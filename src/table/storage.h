/* Storage of the servers' shares: dense shares, hash maps and sparse rows.
 *
 * A dense share lies in shared memory of its node. Ranks of the node read it and add to it directly; ranks of other nodes access it
 * by an RMA window. Behind its values lie a struct tr_share_line and one lock per 1024 units, held while units are added. */
#ifndef TR_TABLE_STORAGE_H
#define TR_TABLE_STORAGE_H

#include "base/base.h"
#include "table/plan.h"
#include "trireme/table.h"

/* tr_share_open() allocates the share of this rank, writes its initial values, and sets the addresses of all shares on this node.
 * It opens an RMA window if ranks of other nodes access the table. Both functions are collective over all ranks. */
int tr_share_open(struct tr_table *table, const tr_table_options *options);
void tr_share_close(struct tr_table *table);

/* Adds the units of a segment in the memory of a view to a share in shared memory, under the locks of the share: other ranks may
 * add at the same time. */
void tr_share_add_view(struct tr_table *table, uint32_t server, const struct tr_segment *segment,
                       const void *view);

/* Adds n packed units to this rank's share, under its locks: at the ascending positions or, if position is NULL, from position
 * `first` on. */
void tr_share_add(struct tr_table *table, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values);

/* Copies a unit of a share in shared memory to `to`. Holds the lock of the unit meanwhile; the caller must not hold it. */
void tr_share_copy(const struct tr_table *table, uint32_t server, uint32_t position, void *to);

/* ======== hash maps ========
 *
 * The share of a table with hash storage consists of a map from keys to slots, and of arrays indexed by slot.
 *
 * A key that is added gets the next slot, from 0 on, and keeps it; keys are never removed. An array has a fixed number of bytes per
 * slot (values, or state of a server function), which are zeros at first. Arrays may move in memory when they grow, so addresses in
 * them are valid only until a key is added.
 *
 * The index is extendible hashing (Fagin et al. 1979, section 2): some bits of the hash choose, through a directory, a page of 64
 * buckets; a full page is split in two by one more bit. A bucket is a cache line of 12 places, each with a byte of the hash (tag)
 * and a slot. A look-up takes one cache miss in the index and, if the tag matches, one in the array of keys. No call moves more
 * keys than a page has. A key takes 6.4 to 12.8 bytes of the index and 8 bytes of the array of keys. Only the directory, 4 bytes
 * for some 500 keys, is doubled as a whole. Not thread-safe. */

/* The slot of an absent key. */
#define TR_NO_SLOT UINT32_MAX

/* TR_HASH_PAGE_KEYS: places of a page, which limit the number of keys that one call moves. */
enum { TR_HASH_ARRAYS = 8, TR_HASH_BUCKETS = 64, TR_HASH_PLACES = 12 };
enum { TR_HASH_PAGE_KEYS = TR_HASH_BUCKETS * TR_HASH_PLACES };

/* Mapped memory that grows in place or moves without a copy. Memory that was not written contains zeros. */
struct tr_hash_area {
    void *at;
    size_t bytes;
};

struct tr_hashmap {
    uint32_t count;    /* number of keys, and of slots in use */
    uint32_t capacity; /* number of slots for which all arrays have memory */
    uint32_t arrays;
    size_t slot_bytes[TR_HASH_ARRAYS];
    struct tr_hash_area array[TR_HASH_ARRAYS]; /* array[i] has capacity × slot_bytes[i] bytes */
    struct tr_hash_area key;                   /* keys in the order of slots */

    struct tr_hash_area page, fill, directory;
    uint32_t pages;
    unsigned depth; /* the directory has 2^depth entries */
    uint64_t moved; /* number of keys that splits of pages have moved so far */
};

/* Makes an empty map with `arrays` arrays of slot_bytes[i] > 0 bytes per slot. Free it with tr_hashmap_close(). TR_ERR_SYSTEM: out
 * of memory; TR_ERR_INTERNAL: more than TR_HASH_ARRAYS arrays. */
int tr_hashmap_open(const size_t *slot_bytes, uint32_t arrays, struct tr_hashmap *map);
void tr_hashmap_close(struct tr_hashmap *map);

/* Appends an array of zeros; existing arrays are not moved. On the errors of tr_hashmap_open() the map is unchanged. */
int tr_hashmap_add_array(struct tr_hashmap *map, size_t slot_bytes);

/* Frees all arrays except the first `arrays` ones. */
void tr_hashmap_keep_arrays(struct tr_hashmap *map, uint32_t arrays);

/* Removes all keys, and sets all arrays to zeros. TR_ERR_SYSTEM: out of memory, and the map can only be closed. */
int tr_hashmap_clear(struct tr_hashmap *map);

/* Returns the slot of a key, or TR_NO_SLOT. */
uint32_t tr_hashmap_find(const struct tr_hashmap *map, tr_key key);

/* Finds the slots of n keys in any order, in half the time of n calls of tr_hashmap_find(). */
void tr_hashmap_find_all(const struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

/* Finds the slots of n keys in any order, and adds absent keys. TR_ERR_SYSTEM: out of memory; some of the keys may have been added,
 * and slot is undefined. */
int tr_hashmap_add_all(struct tr_hashmap *map, const tr_key *key, size_t n, uint32_t *slot);

static inline tr_key tr_hashmap_key(const struct tr_hashmap *map, uint32_t slot)
{
    return ((const tr_key *)map->key.at)[slot];
}

/* Bytes of index, keys and arrays, without reserved address space. */
size_t tr_hashmap_memory(const struct tr_hashmap *map);

/* A list of keys with their slots, which a server keeps for each registered key set. Slots never change, so only absent keys are
 * looked up again, and only if the map has grown since the last look-up. */
struct tr_hash_list {
    uint32_t n;
    tr_key *key;     /* ascending */
    uint32_t *slot;  /* slot of each key; TR_NO_SLOT: the key was absent at the last look-up */
    uint32_t absent; /* number of keys with TR_NO_SLOT */
    uint32_t seen;   /* number of keys of the map at the last look-up */
};

/* Appends copies of n ascending keys, which must be above the keys of the list, without looking them up. Initialize a list with
 * zeros; free it with tr_hash_list_free(). TR_ERR_SYSTEM: out of memory, and the list is unchanged. */
int tr_hash_list_append(struct tr_hash_list *list, const tr_key *key, uint32_t n);
void tr_hash_list_free(struct tr_hash_list *list);

/* Marks all keys of the list as absent. Call it after the map has been cleared. */
void tr_hash_list_forget(struct tr_hash_list *list);

/* Looks up absent keys again, if the map has grown. Call it before slots are read. */
void tr_hash_list_refresh(struct tr_hash_list *list, const struct tr_hashmap *map);

/* Adds keys of the list to the map if they are absent: those with the ascending indices at[0 .. n-1] in the list. Call it before
 * slots are written. TR_ERR_SYSTEM: out of memory; list and map are consistent, and the call can be repeated. */
int tr_hash_list_add(struct tr_hash_list *list, struct tr_hashmap *map, const uint32_t *at, uint32_t n);

/* ======== sparse rows ========
 *
 * A row is an array of ascending columns, followed by the array of their values, which are not zero. It takes 16 bytes plus 8 bytes
 * per entry, and a quarter more if it has grown.
 *
 * In messages an entry is the gap between its column and the previous one (codec.h), and its value. An integer is written like a
 * gap, with its sign in the lowest bit (the zigzag encoding of Protocol Buffers); a real is 4 bytes in the byte order of the
 * machine. The number of entries (uint32) precedes a row or a part of a row. A small integer takes 2 to 3 bytes. */

struct tr_sparse_row {
    uint32_t n, room; /* number of entries, and number for which there is memory */
    uint32_t *column; /* `room` columns, followed by `room` values of 4 bytes each */
};

/* A row that was read or copied. Initialize the struct with zeros; the caller frees `column` and `value`. */
struct tr_sparse_entries {
    uint32_t n;
    uint32_t *column, *value; /* columns and values (float or int32_t); may be NULL */
    size_t column_room, value_room;
};

struct tr_sparse {
    bool real; /* true: TR_F32; false: TR_I32 */
    uint64_t rows;
    struct tr_sparse_row *row;
    uint64_t entry_bytes;           /* memory of the entries of all rows, with unused capacity */
    struct tr_sparse_entries entry; /* buffer for one row of a message */
};

static inline void *tr_sparse_values(const struct tr_sparse_row *row)
{
    return row->column + row->room;
}

/* Allocates a share of empty rows. TR_ERR_SYSTEM: out of memory. */
int tr_sparse_open(enum tr_dtype dtype, uint64_t rows, struct tr_sparse **sparse);
void tr_sparse_close(struct tr_sparse **sparse);

/* Adds n values (int32_t or float) at ascending columns to a row, and removes entries that become zero. Integers wrap at 32 bits.
 * TR_ERR_SYSTEM: out of memory, and the row is unchanged. */
int tr_sparse_add(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Replaces a row: empties it and calls tr_sparse_add(). */
int tr_sparse_set(struct tr_sparse *sparse, uint64_t row, uint32_t n, const uint32_t *column,
                  const void *value);

/* Bytes of the share: rows, entries and unused capacity. */
uint64_t tr_sparse_bytes(const struct tr_sparse *sparse);

/* ---- rows in messages ---- */

enum { TR_SPARSE_HEAD = 4, TR_SPARSE_ENTRY_MOST = 10 };

/* Writes the number of entries, and those of n entries that fit into `room` bytes (at least TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST).
 * *bytes: number of bytes written. Returns the number of entries written. */
uint32_t tr_sparse_write(bool real, uint32_t n, const uint32_t *column, const void *value, unsigned char *out,
                         size_t room, size_t *bytes);

/* Allocates memory for n more entries. */
int tr_sparse_reserve(struct tr_sparse_entries *entries, size_t n);

/* Appends the row at *at of a message to entries, and advances *at. TR_ERR_PEER, without an error text: the row is malformed, or
 * its columns do not ascend or are not below `width`. */
int tr_sparse_read(bool real, uint64_t width, const unsigned char **at, const unsigned char *end,
                   struct tr_sparse_entries *entries);

/* ---- requests ---- */

/* A request for the entries of a row whose columns are `from` or above. */
struct tr_sparse_request {
    uint32_t position, from;
};

/* Head of an answer. Rows follow in the order of the requests. Only a row that does not fit into an empty answer is cut. */
struct tr_sparse_head {
    uint32_t bytes; /* size of the rows that follow */
    uint32_t rows;  /* number of complete rows */
    uint32_t cut;   /* 1: the first part of one more row follows; else 0 */
    uint32_t from;  /* column at which the rest of this row starts */
};

/* Answers n requests (an unaligned array): writes rows to `room` bytes at out, and fills the head. TR_ERR_PEER: unknown row. */
int tr_sparse_answer(const struct tr_sparse *sparse, uint32_t n, const void *requests, unsigned char *out,
                     size_t room, struct tr_sparse_head *head);

/* Adds an update to the share: a list of positions (uint32), each followed by a row. TR_ERR_PEER: the update is malformed. */
int tr_sparse_take(struct tr_sparse *sparse, uint64_t width, const void *update, size_t bytes);

#endif

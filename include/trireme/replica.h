/* Replicas: copies of tables in memory that the ranks of a node share, for stages whose workers are all on one node (FlexPS,
 * section 5.3, single-machine mode).
 *
 * Values that such a stage reads and changes repeatedly need not be transferred each time. The workers copy the tables, completely
 * when the stage begins, or each chunk (a range of keys) on first access. They work on the copy, and add the changes to the tables
 * when the stage ends. Other nodes do not see the changes before; the next stage, on any node, sees all changes.
 *
 * Example: a clock of a stage on one node.
 *
 *     TR_TRY(tr_replica_take(replica, me));
 *     if (tr_replica_ready(replica)) {
 *         TR_TRY(tr_replica_read(replica, keys, n, w));
 *         gradient(w, delta);
 *         TR_TRY(tr_replica_add(replica, keys, n, delta));
 *     }
 *     TR_TRY(tr_replica_give(replica, me));
 */
#ifndef TRIREME_REPLICA_H
#define TRIREME_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_replica tr_replica;

/* How the workers of a node change the same values: the words of sync.race, in this order. With one worker all three give
 * the same bits. */
enum tr_update_mode {
    TR_UPDATE_LOCKED, /* sync.race: chunk. A worker holds the lock of the chunk that it reads or changes */
    TR_UPDATE_ATOMIC, /* sync.race: atomic. Each number is changed atomically, and no update is lost */
    TR_UPDATE_HOGWILD /* sync.race: none. Plain stores; some updates are lost (Recht et al. 2011, «Hogwild!») */
};

/* ---- opening ---- */

/* One array of a replica: one or more values per key. */
typedef struct tr_replica_array {
    tr_table *table; /* the table that is copied; NULL: the array is no copy, and contains zeros at first */
    size_t bytes;    /* bytes per key if table is NULL */
    bool given;      /* changes are added to the table when the stage ends */
} tr_replica_array;

/* A callback of the model for the keys first .. first + n - 1. Their values are at the indices place .. place + n - 1 of each
 * array. */
typedef void tr_replica_fn(void *state, tr_key first, size_t n, size_t place);

enum { TR_REPLICA_ARRAYS = 8 }; /* maximum number of arrays */

typedef struct tr_replica_options {
    const tr_replica_array *array; /* the first has a table; all tables have the same number of keys */
    size_t arrays;
    uint64_t chunk; /* keys per chunk; 0: local.chunk */
    size_t shared;  /* bytes of additional shared memory; the maximum over the ranks of a node is allocated */
    size_t moves;   /* tr_replica_take_from() transfers the first `moves` arrays between nodes */
    void *state;    /* argument of the callbacks */
    tr_replica_fn *fetched; /* called after keys were fetched, before other workers see them; may be NULL */
    tr_replica_fn *finish;  /* called per key before tr_replica_give() or _leave(); may be NULL */
} tr_replica_options;

/* Allocates replicas of dense tables on every node. All ranks must call it, outside tr_run().
 *
 *   local.model    integral: all keys are fetched at the beginning of a stage; demand: a chunk on its first access
 *   local.chunk    keys per chunk, rounded up to a power of two
 *   local.memory   demand: bytes of chunks in memory per node, 0: unlimited. If it is full, a chunk is evicted; changed
 *                  chunks are written to an unnamed file in TMPDIR (/tmp)
 *   local.replace  eviction policy: lru, fifo or random
 *
 * Memory per node: the arrays, or local.memory, plus 64 bytes per chunk.
 *
 * @param [out] replica  free it with tr_replica_close()
 * @return TR_ERR_CONFIG if a table has hash storage, sparse rows or a server function, or local.memory is too small;
 *         TR_ERR_SYSTEM if shared memory is exhausted; TR_ERR_NO_OUTPUT if TMPDIR is not writable
 */
int tr_replica_open_with(tr_context *tr, const tr_replica_options *options, tr_replica **replica);

/* As tr_replica_open_with(), for one array: a copy of `table`, to which changes are added. */
int tr_replica_open(tr_table *table, tr_replica **replica);

/* Frees a replica and sets *replica to NULL. All ranks must call it, before its tables are dropped. *replica may be NULL. */
void tr_replica_close(tr_replica **replica);

/* ---- transfers from and to the tables: all workers of the stage must call them in the same clock; they wait for each other
 * ---- */

/* Takes the replica: prepares the copy for access. With local.model integral each worker fetches a part of the keys.
 *
 * @return TR_ERR_CONFIG if the workers are on several nodes; TR_ERR_SYSTEM or TR_ERR_IO if a worker failed
 *
 * Until tr_replica_give(), other updates of the tables are not seen in the replica. They must not change keys that are changed in
 * the replica.
 */
int tr_replica_take(tr_replica *replica, tr_worker *me);

/* With local.model integral only: takes the replica of another node, which is transferred directly, without the servers.
 *
 * @param [in] group  a group of that node; -1: the replica of this node
 * @param [in] again  bit i is set: array i is not transferred but fetched from its table
 */
int tr_replica_take_from(tr_replica *replica, tr_worker *me, int group, unsigned again);

/* Adds the changes to the tables; each worker transfers a part. The workers that took the replica call it. Only changed chunks are
 * transferred. Afterwards replica and tables are equal bit by bit. */
int tr_replica_give(tr_replica *replica, tr_worker *me);

/* With local.model integral only: ends the access without changing the tables, so that another node can take this replica. */
int tr_replica_leave(tr_replica *replica, tr_worker *me);

/* Returns whether the replica is taken and no worker of the node has failed. */
bool tr_replica_ready(const tr_replica *replica);

/* ---- access by keys, to the first array: any worker may call these functions between take and give ---- */

/* Reads the values of n keys. With TR_UPDATE_LOCKED all values of a chunk are from one moment, otherwise only each number is.
 *
 * @param [in]  keys  in any order; ascending keys cost least
 * @param [out] out   n × width elements
 * @return TR_ERR_INTERNAL if a key does not exist or the replica is not taken; TR_ERR_IO if the file fails
 */
int tr_replica_read(tr_replica *replica, const tr_key *keys, size_t n, void *out);

/* Adds n × width elements to the values of n keys, given as for tr_replica_read(). */
int tr_replica_add(tr_replica *replica, const tr_key *keys, size_t n, const void *delta);

/* With local.model integral only: returns this rank's address of all values, keys × width elements, for direct access. NULL with
 * local.model demand and while the replica is not taken. From the first call on, tr_replica_give() compares every chunk to find
 * changes. */
void *tr_replica_values(tr_replica *replica);

/* ---- access by position, for loops over all arrays ---- */

/* Describes how a loop must access the arrays. */
typedef struct tr_updates {
    enum tr_update_mode mode;
    unsigned shift; /* key k belongs to chunk k >> shift */
    uint32_t *lock; /* TR_UPDATE_LOCKED: lock[c * TR_LOCK_STRIDE] is the lock of chunk c: 0: free, 1: held */
    tr_replica *replica; /* tr_replica_hold() returns the position of a key; NULL: key k is at position k */
} tr_updates;

enum { TR_LOCK_STRIDE = 16 }; /* distance of two locks: one lock per cache line */

/* Fills in *updates for a replica that was taken. */
void tr_replica_updates(tr_replica *replica, tr_updates *updates);

/* Return this rank's address of array i, and of the shared bytes (tr_replica_options.shared), which are zero at first. */
void *tr_replica_array_of(const tr_replica *replica, size_t i);
void *tr_replica_shared(const tr_replica *replica);

/* tr_replica_hold() loads a chunk, which then remains in memory until tr_replica_release(); with TR_UPDATE_LOCKED no other worker
 * can hold it. A worker may hold one chunk at a time.
 *
 * @param [in] changed  whether the worker wrote to the chunk
 * @return position of the first key of the chunk. If loading fails, the position of unused memory: the loop may continue,
 *         and tr_replica_status() returns the error afterwards
 */
size_t tr_replica_hold(tr_replica *replica, size_t chunk);
void tr_replica_release(tr_replica *replica, size_t chunk, bool changed);
int tr_replica_status(const tr_replica *replica);

/* ---- statistics ---- */

/* Counts of all ranks of this node since the replica was opened. A visit is the work of one call on one chunk; if chunks are not
 * locked and all are in memory, a call counts as one visit. */
typedef struct tr_replica_counts {
    uint64_t hits, misses;       /* number of visits to chunks in memory, and of visits that loaded a chunk */
    uint64_t fetched;            /* number of chunks read from tables */
    uint64_t given;              /* number of chunks added to tables; a chunk of k tables counts k times */
    uint64_t evicted;            /* number of chunks evicted from memory */
    uint64_t written, read_back; /* number of chunks written to the file, and read from the file */
    uint64_t bytes_fetched, bytes_given, bytes_written;
    uint64_t bytes_moved; /* bytes received directly from other nodes */
} tr_replica_counts;
void tr_replica_count(const tr_replica *replica, tr_replica_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

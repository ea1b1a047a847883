/* Replicas: a node's own copy of tables, in memory that its ranks share, for stages whose workers are all on one node
 * (FlexPS, section 5.3, single-machine mode).
 *
 * Values that such a stage reads and changes repeatedly need not be transferred each time. Its workers copy the tables,
 * completely at the beginning or each chunk on first access, work on the copy with at most a lock between them, and write
 * the changes back to the tables when the stage ends. No other node sees the changes before; the next stage, on any node,
 * sees all of them.
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
    TR_UPDATE_LOCKED, /* chunk: a worker holds the lock of the chunk that it reads or changes */
    TR_UPDATE_ATOMIC, /* atomic: each number is changed atomically, no update is lost */
    TR_UPDATE_HOGWILD /* none: plain stores; some updates are lost (Recht et al. 2011, «Hogwild!») */
};

/* ---- opening ---- */

/* One array of a replica: a value (or several) for every key. */
typedef struct tr_replica_array {
    tr_table *table; /* the table that is copied; NULL: data of the workers, zeros at first */
    size_t bytes;    /* size per key if table is NULL */
    bool given;      /* changes are added to the table when the stage ends */
} tr_replica_array;

/* A callback of the model for the keys first .. first + n - 1, which are at the positions place .. place + n - 1 of every
 * array. */
typedef void tr_replica_fn(void *state, tr_key first, size_t n, size_t place);

enum { TR_REPLICA_ARRAYS = 8 }; /* maximum number of arrays */

typedef struct tr_replica_options {
    const tr_replica_array *array; /* the first has a table; all tables have the same number of keys */
    size_t arrays;
    uint64_t chunk; /* keys per chunk; 0: local.chunk */
    size_t
        shared; /* bytes of shared memory for the workers of a node; the maximum over its ranks is allocated */
    size_t
        moves; /* number of arrays, from the first on, that tr_replica_take_from() transfers between nodes */
    void *state;            /* argument of the callbacks */
    tr_replica_fn *fetched; /* after keys were fetched, before other workers see them; may be NULL */
    tr_replica_fn *finish;  /* before keys are given or left, once per key; may be NULL */
} tr_replica_options;

/* Allocates replicas of dense tables on every node. All ranks, outside tr_run().
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

/* The same for one table, which receives the changes. */
int tr_replica_open(tr_table *table, tr_replica **replica);

/* Frees a replica and sets *replica to NULL. All ranks, before its tables are dropped. *replica may be NULL. */
void tr_replica_close(tr_replica **replica);

/* ---- transfers from and to the tables: all workers of the stage, in the same clock; they wait for each other ---- */

/* Copies the tables before the first access. With local.model integral each worker fetches a part of the keys.
 *
 * @return TR_ERR_CONFIG if the workers are on several nodes; TR_ERR_SYSTEM or TR_ERR_IO if a worker failed
 *
 * Updates that reach the tables in other ways until tr_replica_give() are not seen here, and must not concern keys that
 * are changed here.
 */
int tr_replica_take(tr_replica *replica, tr_worker *me);

/* Integral only: continues with the replica of another node, which is transferred directly, without the servers.
 *
 * @param [in] group  a group of that node; -1: the replica of this node
 * @param [in] again  bit i: array i is fetched from its table nevertheless
 */
int tr_replica_take_from(tr_replica *replica, tr_worker *me, int group, unsigned again);

/* Adds the changes to the tables, each worker a part. Called by the workers that took the replica. Only changed chunks are
 * transferred. Afterwards replica and tables are equal bit by bit. */
int tr_replica_give(tr_replica *replica, tr_worker *me);

/* Integral only: ends without writing back, so that another node can continue with this replica. */
int tr_replica_leave(tr_replica *replica, tr_worker *me);

/* Returns whether the replica is taken and no worker of the node has failed. */
bool tr_replica_ready(const tr_replica *replica);

/* ---- access by keys, to the first array: any worker, between take and give ---- */

/* Reads the values of n keys. Chunks (locked) or single numbers (otherwise) are consistent, the whole call is not.
 *
 * @param [in]  keys  in any order; ascending keys cost least
 * @param [out] out   n × width elements
 * @return TR_ERR_INTERNAL if a key does not exist or the replica is not taken; TR_ERR_IO if the file fails
 */
int tr_replica_read(tr_replica *replica, const tr_key *keys, size_t n, void *out);

/* Adds n × width elements to the values of n keys, given as for tr_replica_read(). */
int tr_replica_add(tr_replica *replica, const tr_key *keys, size_t n, const void *delta);

/* Integral only: returns this rank's address of all values, keys × width elements, for direct access by the workers of the
 * node; NULL with local.model demand and while the replica is not taken. From the first call on, tr_replica_give()
 * compares every chunk to find changes. */
void *tr_replica_values(tr_replica *replica);

/* ---- access by position, for loops over all arrays ---- */

/* How such a loop addresses keys: key k belongs to chunk k >> shift. */
typedef struct tr_updates {
    enum tr_update_mode mode;
    unsigned shift;
    uint32_t *lock;      /* mode locked: chunk c at c * TR_LOCK_STRIDE; 0: free, 1: held */
    tr_replica *replica; /* chunks are held with tr_replica_hold(); NULL: key k is at position k */
} tr_updates;

enum { TR_LOCK_STRIDE = 16 }; /* no two locks are in one cache line */

void tr_replica_updates(tr_replica *replica, tr_updates *updates);

/* Return this rank's address of array i, and of the shared bytes (tr_replica_options.shared), which are zero at first. */
void *tr_replica_array_of(const tr_replica *replica, size_t i);
void *tr_replica_shared(const tr_replica *replica);

/* Loads a chunk and holds it, exclusively in mode locked. A worker may hold one chunk at a time.
 *
 * @param [in] changed  of tr_replica_release(): whether the worker wrote to the chunk
 * @return position of the first key of the chunk. If loading fails, the position of unused memory: the loop may continue,
 *         and tr_replica_status() returns the error afterwards
 */
size_t tr_replica_hold(tr_replica *replica, size_t chunk);
void tr_replica_release(tr_replica *replica, size_t chunk, bool changed);
int tr_replica_status(const tr_replica *replica);

/* ---- statistics ---- */

/* Counts of all ranks of this node since the replica was opened. A visit is the work of one call on one chunk; if chunks
 * are not locked and all are in memory, a call is one visit. */
typedef struct tr_replica_counts {
    uint64_t hits, misses;       /* visits to chunks in memory; visits that loaded a chunk */
    uint64_t fetched;            /* chunks read from tables */
    uint64_t given;              /* chunks added to tables, per table */
    uint64_t evicted;            /* chunks evicted from memory */
    uint64_t written, read_back; /* chunks written to the file, and read from it */
    uint64_t bytes_fetched, bytes_given, bytes_written;
    uint64_t bytes_moved; /* received directly from other nodes */
} tr_replica_counts;
void tr_replica_count(const tr_replica *replica, tr_replica_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

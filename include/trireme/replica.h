/* Replicas: a node's own copy of tables, in memory that its ranks share, for stages whose workers are all of one node
 * (FlexPS, section 5.3, single-machine mode).
 *
 * What such a stage reads and changes again and again need not travel: its workers take the values over, or let each
 * chunk of them be fetched when it is first touched, work on the copy with no more than a lock between them, and give
 * what they have changed to the tables when the stage ends. Nobody else sees it before; the next stage, on whichever
 * node, sees all of it.
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

/* How the workers of a node change the same values, as sync.race of the job says, in the order of its words. With one
 * worker, all three compute the same bits. */
enum tr_update_mode {
    TR_UPDATE_LOCKED, /* chunk: who reads or changes some of a chunk holds its lock */
    TR_UPDATE_ATOMIC, /* atomic: each number is changed atomically, no update is lost */
    TR_UPDATE_HOGWILD /* none: plain stores, some of which are lost now and then (Recht et al. 2011, "Hogwild!") */
};

/* ---- opening ---- */

/* What a replica has of every key. */
typedef struct tr_replica_array {
    tr_table *table; /* elements of this table; NULL: the workers' own, zeros when the rest is fetched … */
    size_t bytes;    /* … of so many bytes */
    bool given;      /* what has changed is added to the table in the end */
} tr_replica_array;

/* A hook of the model's for the keys first .. first + n - 1, which lie at the places from `place` on in every array. */
typedef void tr_replica_fn(void *state, tr_key first, size_t n, size_t place);

enum { TR_REPLICA_ARRAYS = 8 }; /* at most */

typedef struct tr_replica_options {
    const tr_replica_array *array; /* the first has a table, and all tables have as many keys as that one */
    size_t arrays;
    uint64_t chunk; /* keys of a chunk; 0: local.chunk */
    size_t shared;  /* bytes that ranks of a node share beside the arrays: the most that one asks for */
    size_t moves;   /* arrays, from the first on, that tr_replica_take_from() brings from other nodes */
    void *state;    /* handed to: */
    tr_replica_fn *fetched; /* the worker that has fetched these keys, before anybody sees them */
    tr_replica_fn *finish;  /* one worker for each key, before it is given or left. Both may be NULL */
} tr_replica_options;

/* Makes room for copies of dense tables, on every node: all ranks, outside tr_run(). The job says how:
 *   local.model    integral: all keys are fetched at the beginning of a stage; demand: a chunk when it is first touched
 *   local.chunk    keys of a chunk, rounded up to a power of two
 *   local.memory   demand: bytes of chunks that a node holds at once, 0: all of them. When they are full, a chunk makes
 *                  room; if it has been changed, it goes to a file in TMPDIR (/tmp) that vanishes with the job
 *   local.replace  which one: lru, fifo or random
 *
 * A node needs the bytes of all arrays, or local.memory, and 64 bytes for each chunk. TR_ERR_CONFIG: a table has hash
 * storage, sparse rows or a server function; local.memory is too little for the whole (integral) or for one chunk.
 * TR_ERR_SYSTEM: no room in shared memory. TR_ERR_NO_OUTPUT: no file in TMPDIR. */
int tr_replica_open_with(tr_context *tr, const tr_replica_options *options, tr_replica **replica);
int tr_replica_open(tr_table *table, tr_replica **replica); /* of one table, which gets what has changed */
void tr_replica_close(tr_replica **replica); /* all ranks, before a table is dropped; NULL inside is fine */

/* ---- from and to the tables: all workers of the stage, in the same clock; they wait for each other ---- */

/* Takes the tables over, before anybody reads. Integral, each worker fetches a part of the keys. TR_ERR_CONFIG if the
 * workers are not all of one node; TR_ERR_SYSTEM and TR_ERR_IO if some of them cannot go on. What the tables get by other
 * ways while they are taken is not seen here, and must not be of keys that are changed here. */
int tr_replica_take(tr_replica *replica, tr_worker *me);

/* Integral: goes on with what the node of a group has in its replica, which comes directly, past the servers; -1: with
 * what this node has. Bit i of `again`: array i is fetched from its table all the same. */
int tr_replica_take_from(tr_replica *replica, tr_worker *me, int group, unsigned again);

/* Gives what has changed to the tables, each worker a part: those that have taken it, when they are done. Only chunks
 * that were changed travel. Afterwards the replica has the same bits as the tables. */
int tr_replica_give(tr_replica *replica, tr_worker *me);

/* Integral: ends without giving, so that another node can take over from this one. */
int tr_replica_leave(tr_replica *replica, tr_worker *me);

/* Whether there is something to work on: taken, and no worker of the node has failed. */
bool tr_replica_ready(const tr_replica *replica);

/* ---- use by keys: the first array, any worker, between taking and giving ---- */

/* Copies the values of n keys to `out`, n × width elements. Keys in any order, ascending ones cost least; a whole call
 * is not one moment: it is each chunk (locked) or each number (otherwise) that is read as it is at one time.
 * TR_ERR_INTERNAL: there is no such key, or it is not taken; TR_ERR_IO: its file cannot be written or read. */
int tr_replica_read(tr_replica *replica, const tr_key *keys, size_t n, void *out);

/* Adds n × width elements to those of n keys, which are as for tr_replica_read(). */
int tr_replica_add(tr_replica *replica, const tr_key *keys, size_t n, const void *delta);

/* Integral: all values, keys × width, where the workers of the node read and change them for themselves, at an address of
 * each rank's own. On demand, and while it is not taken: NULL. From then on every chunk is looked through for changes
 * when it is given. */
void *tr_replica_values(tr_replica *replica);

/* ---- use by place: loops over all arrays ---- */

/* How such a loop gets at keys: key k is of chunk k >> shift. */
typedef struct tr_updates {
    enum tr_update_mode mode;
    unsigned shift;
    uint32_t *lock; /* locked: of chunk c at c * TR_LOCK_STRIDE, 0 while nobody holds it, else 1 */
    tr_replica
        *replica; /* chunks are held, by tr_replica_hold(); NULL: key k lies at place k, for all keys */
} tr_updates;

enum { TR_LOCK_STRIDE = 16 }; /* so that no two locks are in one line of the cache */

void tr_replica_updates(tr_replica *replica, tr_updates *updates);

/* An array, at an address of each rank's own, and the bytes that the workers share, zeros at first. */
void *tr_replica_array_of(const tr_replica *replica, size_t i);
void *tr_replica_shared(const tr_replica *replica);

/* Brings a chunk and holds it, one at a time for each worker, alone if the mode is locked; returns the place of its first
 * key. changed: something was written there. Where the chunk cannot be brought its place is one that nobody looks at:
 * the loop may go on, and tr_replica_status() says afterwards what went wrong. */
size_t tr_replica_hold(tr_replica *replica, size_t chunk);
void tr_replica_release(tr_replica *replica, size_t chunk, bool changed);
int tr_replica_status(const tr_replica *replica);

/* ---- figures ---- */

/* What has happened to chunks, by all ranks of this node since the replica was opened. A visit is a call's work on one
 * chunk; where nobody locks chunks and all are there, a call is one visit. */
typedef struct tr_replica_counts {
    /* visits that found it in memory; chunks that were brought there when they were visited */
    uint64_t hits, misses;
    uint64_t fetched;            /* chunks from the tables */
    uint64_t given;              /* … and to them, for each table */
    uint64_t evicted;            /* that made room */
    uint64_t written, read_back; /* to the file, and from it */
    uint64_t bytes_fetched, bytes_given, bytes_written;
    uint64_t bytes_moved; /* directly from other nodes */
} tr_replica_counts;
void tr_replica_count(const tr_replica *replica, tr_replica_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

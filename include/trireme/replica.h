/* Local models: a node's own copy of a table, in memory that its ranks share, for stages whose workers are all of one
 * node (FlexPS, section 5.3, single-machine mode).
 *
 * What such a stage reads and changes again and again need not travel: its workers take the values over, or let each
 * chunk of them be fetched when it is first touched, work on the copy with no more than a lock between them, and give
 * what they have changed to the table when the stage ends. Nobody else sees it before; the next stage, on whichever
 * node, sees all of it. As sync.race of the job says, workers
 *   chunk    hold the lock of a chunk while they read or change some of it
 *   atomic   change each number atomically: no update is lost
 *   none     change numbers by plain stores, of which some are lost now and then (Recht et al. 2011, "Hogwild!")
 */
#ifndef TRIREME_REPLICA_H
#define TRIREME_REPLICA_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_replica tr_replica;

/* Makes room for local copies of a dense table, on every node: all ranks, outside tr_run(). The job says how:
 *   local.model    integral: all values are fetched at the beginning of a stage; demand: a chunk when it is first touched
 *   local.chunk    keys of a chunk, rounded up to a power of two
 *   local.memory   demand: bytes of chunks that a node holds at once, in two copies: as it was fetched, and as it is
 *                  now. When they are full, a chunk makes room; if it has been changed, it goes to a file in TMPDIR
 *                  (/tmp) that vanishes with the job
 *   local.replace  which one: lru, fifo or random
 *   sync.race      see above
 *
 * A node needs twice the bytes of the table, or local.memory, and 64 bytes for each chunk. TR_ERR_CONFIG: the table has
 * hash storage, sparse rows or a server function; local.memory is too little for the whole model (integral) or for one
 * chunk. TR_ERR_SYSTEM: no room in shared memory. TR_ERR_NO_OUTPUT: no file in TMPDIR. */
int tr_replica_open(tr_table *table, tr_replica **local);
void tr_replica_close(tr_replica **local); /* all ranks, before the table is dropped */

/* Takes the table over: all workers of the stage, in the same clock, before they read. Integral, each fetches a part of
 * it. They wait for each other. TR_ERR_CONFIG if they are not all of one node; TR_ERR_SYSTEM and TR_ERR_IO if some of
 * them cannot go on. What the table gets by other ways while it is taken is not seen here, and must not be of keys that
 * are changed here. */
int tr_replica_take(tr_replica *local, tr_worker *me);

/* Gives what has changed since to the table, each worker a part of it: all workers that have taken it, in the same
 * clock, when they are done; they wait for each other first. Only chunks that were changed travel. */
int tr_replica_give(tr_replica *local, tr_worker *me);

/* Copies the values of n keys to `out`, n × width elements. Keys in any order, ascending ones cost least; a whole call
 * is not one moment: it is each chunk (sync.race chunk) or each number (otherwise) that is read as it is at one time.
 * Any worker, between taking and giving. TR_ERR_INTERNAL: there is no such key, or it is not taken; TR_ERR_IO: its file
 * cannot be written or read. */
int tr_replica_read(tr_replica *local, const tr_key *keys, size_t n, void *out);

/* Adds n × width elements to those of n keys, which are as for tr_replica_read(). */
int tr_replica_add(tr_replica *local, const tr_key *keys, size_t n, const void *delta);

/* Integral: all values, keys × width, where the workers of the node read and change them for themselves, at an address of
 * each rank's own. On demand: NULL. Between taking and giving; from then on every chunk is looked through for changes
 * when it is given. */
void *tr_replica_values(tr_replica *local);

/* What has happened to chunks, by all ranks of this node since the model was opened. A visit is a call's work on one
 * chunk; where nobody locks chunks and all are there, a call is one visit. */
typedef struct tr_replica_counts {
    /* visits that found it in memory; chunks that were brought there when they were visited */
    uint64_t hits, misses;
    uint64_t fetched;            /* chunks from the table */
    uint64_t given;              /* … and to it */
    uint64_t evicted;            /* that made room */
    uint64_t written, read_back; /* to the file, and from it */
    uint64_t bytes_fetched, bytes_given, bytes_written;
} tr_replica_counts;
void tr_replica_count(const tr_replica *local, tr_replica_counts *counts);

#ifdef __cplusplus
}
#endif
#endif

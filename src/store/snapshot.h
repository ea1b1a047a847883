/* What stages and tables list, from inside: see trireme/snapshot.h. It is copied into parts, or filled from shards. */
#ifndef TR_STORE_SNAPSHOT_H
#define TR_STORE_SNAPSHOT_H

#include "store/checkpoint.h"
#include "store/shard.h"

struct tr_checkpoint_memory;

struct tr_snapshot {
    tr_context *tr;
    const char *prefix; /* in front of the names that are listed now; NULL: nothing */
    /* taking */
    struct tr_part *part;
    size_t parts, capacity;
    /* filling */
    const struct tr_manifest *manifest;
    const char *folder;
    struct tr_checkpoint_memory *memory; /* NULL: all shards are in the folder */
    uint32_t *order;  /* in which shards are looked through: none has to be fetched before it is needed */
    bool same_layout; /* the run goes on with the same ranks in the same roles */
    struct tr_shard **shards; /* by number, those that are open; NULL: taking */
    uint32_t open;
    /* The best model: the parts stay in this process, which restores from them. Every rank has its own copy of common parts. */
    bool in_process, fills;
};

/* Begins to take (from NULL), or to fill from the checkpoint of that manifest in the folder; both stay the caller's. */
int tr_snapshot_open(tr_context *tr, const char *folder, const struct tr_manifest *from,
                     tr_snapshot **snapshot);

/* Its shards lie in memory, some of them elsewhere: as it was verified. */
void tr_snapshot_from_memory(tr_snapshot *snapshot, struct tr_checkpoint_memory *memory);
void tr_snapshot_close(tr_snapshot **snapshot); /* NULL inside is fine */

/* Taking: adds a copy of the part (its run, begin and data stay the caller's). Restoring: fills part->data with the rows
 * of part->run, wherever they are; TR_ERR_DATA names the first row that nobody kept. */
int tr_snapshot_part(tr_snapshot *snapshot, struct tr_part *part);

/* Taking: adds a part whose run, begin and data (all from malloc) are handed over. */
int tr_snapshot_give(tr_snapshot *snapshot, struct tr_part *part);

/* Restoring: hands over all rows of that name, of all shards, in pieces: a part like the stored one, but with a run of
 * its rows and their data; in each shard rows ascend. Of the runs that are stored this rank reads those that are
 * wanted(). */
typedef bool tr_wanted_fn(void *who, const struct tr_row_run *run);
typedef int tr_piece_fn(void *who, const struct tr_part *piece);
int tr_snapshot_each(tr_snapshot *snapshot, const char *name, tr_wanted_fn *wanted, tr_piece_fn *piece,
                     void *who);

/* Restoring: whether any rank has kept something of that name. */
int tr_snapshot_has(tr_snapshot *snapshot, const char *name, bool *has);

/* All tables of the context that are not left out: the ranks that serve them. The outcome is this rank's own. */
int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot);

#endif

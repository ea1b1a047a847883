/* Snapshots of stages and tables (trireme/snapshot.h): parts in memory that are written to shards, or filled from shards. */
#ifndef TR_STORE_SNAPSHOT_H
#define TR_STORE_SNAPSHOT_H

#include "store/checkpoint.h"
#include "store/shard.h"

struct tr_checkpoint_memory;

struct tr_snapshot {
    tr_context *tr;
    const char *prefix; /* of the names that are listed now; may be NULL */
    /* writing */
    struct tr_part *part;
    size_t parts, capacity;
    /* restoring */
    const struct tr_manifest *manifest;
    const char *folder;
    struct tr_checkpoint_memory *memory; /* NULL: all shards are in the folder */
    uint32_t *order;                     /* of searching shards: shards on other hosts come last */
    bool same_layout;                    /* the run resumes with the same ranks in the same roles */
    struct tr_shard **shards;            /* open shards by number; NULL: writing */
    uint32_t open;
    /* the best model: the parts stay in this process, which restores from them; every rank has a copy of common parts */
    bool in_process, fills;
};

/* Starts writing (from NULL) or restoring from the checkpoint with this manifest. The caller owns folder and manifest.
 *
 * @param [in] memory  checkpoints in memory that contain the shards; NULL: all shards are in the folder
 */
int tr_snapshot_open(tr_context *tr, const char *folder, struct tr_checkpoint_memory *memory,
                     const struct tr_manifest *from, tr_snapshot **snapshot);
void tr_snapshot_close(tr_snapshot **snapshot); /* *snapshot may be NULL */

/* Writing: adds a copy of the part. Restoring: fills part->data with the rows of part->run from any shard. TR_ERR_DATA: rows are
 * missing. */
int tr_snapshot_part(tr_snapshot *snapshot, struct tr_part *part);

/* Writing: adds a part and takes ownership of run, begin and data (from malloc), which become NULL. */
int tr_snapshot_give(tr_snapshot *snapshot, struct tr_part *part);

/* Restoring: calls piece() with the rows of this name in all shards for which wanted() returns true. A piece is a part with one run
 * and its data; the rows of a shard are ascending. */
typedef bool tr_wanted_fn(void *who, const struct tr_row_run *run);
typedef int tr_piece_fn(void *who, const struct tr_part *piece);
int tr_snapshot_each(tr_snapshot *snapshot, const char *name, tr_wanted_fn *wanted, tr_piece_fn *piece,
                     void *who);

/* Restoring: sets *has if a shard contains a part with this name. */
int tr_snapshot_has(tr_snapshot *snapshot, const char *name, bool *has);

/* Lists all tables of the context that are not left out. Each rank returns its own outcome. */
int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot);

#endif

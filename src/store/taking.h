/* What lists are copied into, or filled from: for those who begin and end that. */
#ifndef TR_CHECKPOINT_TAKING_H
#define TR_CHECKPOINT_TAKING_H

#include "store/folder.h"
#include "store/snapshot.h"
#include "store/manifest.h"

struct tr_snapshot {
    tr_context *tr;
    const char *room; /* in front of the names that are listed now; NULL: nothing */
    /* taking */
    struct tr_part *part;
    size_t parts, room_of_parts;
    /* filling */
    const struct tr_manifest *manifest;
    const char *folder;
    struct tr_memory *memory; /* NULL: all shards are in the folder */
    uint32_t *order; /* in which shards are looked through: none has to be fetched before it is needed */
    bool same_layout;
    struct tr_shard **shards; /* by number, those that are open; NULL: taking */
    uint32_t open;
};

/* Begins to take (from NULL), or to fill from the checkpoint of that manifest in the folder; both stay the caller's. */
int tr_snapshot_open(tr_context *tr, const char *folder, const struct tr_manifest *from,
                     tr_snapshot **snapshot);

/* Its shards lie in memory, some of them elsewhere: as it was verified. */
void tr_snapshot_from_memory(tr_snapshot *snapshot, struct tr_memory *memory);
void tr_snapshot_close(tr_snapshot **snapshot); /* NULL inside is fine */

/* A shard to read from: stays open until the next one is asked for, at least. */
int tr_snapshot_shard(tr_snapshot *snapshot, uint32_t number, struct tr_shard **shard);

#endif

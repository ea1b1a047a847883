/* What stages and tables list, from inside: see trireme/snapshot.h. */
#ifndef TR_CHECKPOINT_KEEP_H
#define TR_CHECKPOINT_KEEP_H

#include "store/checkpoint.h"
#include "store/part.h"

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

/* Whether the run goes on with the same ranks in the same roles. */
bool tr_snapshot_same_layout(const tr_snapshot *snapshot);

/* All tables of the context that are not left out: the ranks that serve them. The outcome is this rank's own. */
int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot);

#endif

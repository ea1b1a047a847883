/* store/ — HDF5 files that are whole or refused: model files, and checkpoints, what a run needs to go on where it was.
 *
 *   checked     checked files: header, writer, reader
 *   h5          model files in this format
 *   shard       a checkpoint on the disk: parts of arrays, shards, manifest, folders
 *   snapshot    the arrays that stages list, copied into parts or filled from them
 *   tables      the arrays of tables, for any number of servers; residuals of filters
 *   persistent  folders in the memory of a host that outlive a process
 *   memory      checkpoints in the memory of this node and of others
 *   checkpoint  when a checkpoint is due, how it is written, found and restored; the best model so far
 *
 * A checkpoint is a folder <to>/<number>, of shards shard-NNNN.h5 and manifest.h5. A folder without a manifest is none.
 * It is taken between two clocks, when every update has arrived: all ranks copy what they have, which is all that training
 * waits for; a thread of each writes it. The file <to>/ended names the run that has ended, which nobody goes on with.
 */
#ifndef TR_CHECKPOINT_H
#define TR_CHECKPOINT_H

#include "job/job.h"
#include "ranks/ranks.h"
#include "store/shard.h"
#include "trireme/snapshot.h"

/* ---- when a checkpoint is due; signals of the process ---- */

/* TR_DUE_EVALUATION: a pause, but only for what is evaluated in it; the best model is kept in memory. */
enum tr_due { TR_NOT_DUE, TR_DUE_EVALUATION, TR_DUE, TR_DUE_AND_STOP };

/* Signals of the process. USR1 and USR2 ask for a checkpoint, USR1 for a stop, too, from the first open to the last close;
 * TERM and INT ask for a stop instead of ending the process from the first catch to the last release: the second one ends
 * it, unless it comes within a second. What was asked for is forgotten when they are opened again. */
void tr_signals_open(void);
void tr_signals_close(void);
void tr_signals_catch(void);
void tr_signals_release(void);

/* Whether a stop was asked for; how often a checkpoint was. */
bool tr_signals_stop(void);
int tr_signals_asked(void);

/* As if USR1 or USR2 had come: another rank has got it. */
void tr_signals_pass(bool stop);

/* ---- checkpoints ---- */

/* How a start of a job begins: from the newest checkpoint that is whole, of a run that has not ended; from none; or, as the
 * run in the output folder is complete, from its last one if the job wants more epochs now, and else from none. */
enum tr_beginning { TR_GO_ON, TR_BEGIN_ANEW, TR_GO_FURTHER };

/* Finds out whether the job goes on from a checkpoint. From then on stages that can be kept are. All ranks, after
 * tr_context_assign(), before tables are made; agreed on. TR_ERR_CONFIG: the job has changed in what may not change. */
int tr_checkpoints_open(tr_context *tr, enum tr_beginning beginning);

/* ended: the run is complete, and nobody is to go on with it. Waits for what is being written. All ranks; NULL inside the
 * context is fine. Returns status, or TR_ERR_IO if that was TR_OK but checkpoints could not be written. */
int tr_checkpoints_close(tr_context *tr, bool ended, int status);

/* Closes it without a word: what is in memory stays for the next start. */
void tr_checkpoints_leave(tr_context *tr);

/* The checkpoint that the run goes on from, or NULL: the same on all ranks. */
const struct tr_manifest *tr_checkpoint_found(const tr_context *tr);

/* … and whether that one is in memory. */
bool tr_checkpoint_found_in_memory(const tr_context *tr);

/* Somebody besides stages who has something to keep: called on all ranks, as a stage's snapshot function is. May come before
 * or after what it belongs to is restored, which is when the stage begins that the checkpoint was taken of. */
typedef int tr_lister_fn(void *who, tr_snapshot *snapshot);
void tr_on_snapshot(tr_context *tr, tr_lister_fn *lister, void *who);

/* What has been done so far, on rank 0. */
struct tr_checkpoint_counts {
    int64_t written, failed;          /* checkpoints on the disk */
    int64_t in_memory, not_in_memory; /* … in memory */
    uint64_t last_in_memory;          /* number of the last of these */
    uint64_t last;                    /* number of the last that is whole; 0: none */
    int64_t clock;                    /* … and where it stands */
    double copying, writing;          /* seconds, all together: that training waited; that threads took */
    double epoch;                     /* … when the last one was taken */
    double age;                       /* seconds since then */
};
void tr_checkpoint_count(const tr_context *tr, struct tr_checkpoint_counts *counts);

/* ---- for stages ---- */

/* Whether the job keeps anything: false in contexts without tr_checkpoints_open(). */
bool tr_checkpoints_are_on(const tr_context *tr);

/* A stage or a task begins: counts them, and says whether it is the one to be restored. All ranks. TR_ERR_DATA: it should
 * be, but is called otherwise. */
int tr_checkpoint_enter(tr_context *tr, const char *name, bool *restores);

/* Whether a checkpoint is due; rank 0, often. Never while one is being written, unless the run is to stop. */
enum tr_due tr_checkpoint_due(tr_context *tr, int64_t clock);

/* Whether one is due because a stage is over: where the run is so long that there are others. What follows may fail, like
 * writing the model on a full disk. Rank 0. */
bool tr_checkpoint_due_at_end(const tr_context *tr);

/* Copies what the lister, all tables, and observers list, and lets it be written. All ranks, with the same facts but those
 * that only rank 0 knows; when it returns, nobody copies any more. stops: waits until it is whole. That it failed is a
 * warning. */
int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *lister,
                       void *who);

/* Fills tables, observers' and the lister's state from what was found, of which *facts tells. All ranks; agreed on. */
int tr_checkpoint_restore(tr_context *tr, tr_lister_fn *lister, void *who, struct tr_facts *facts);

/* Keeps tables and what the lister lists in this process's memory, in place of what was kept before; and fills them from
 * there. All ranks, between two clocks, where contexts have checkpoints; agreed on. */
int tr_best_keep(tr_context *tr, tr_lister_fn *lister, void *who);
int tr_best_restore(tr_context *tr, tr_lister_fn *lister, void *who);

/* Whether that is what is listed now, and not a checkpoint. */
bool tr_snapshot_in_process(const tr_snapshot *snapshot);

/* For listers of checkpoints: lists what is kept. Filling: *found, if the run goes on with the same layout. */
int tr_best_list(tr_context *tr, tr_snapshot *snapshot, bool *found);

/* Waits until nothing is being written: before a rank uses HDF5 for something else. All ranks. */
int tr_checkpoint_settle(tr_context *tr);

#endif

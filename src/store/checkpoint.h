/* store/: HDF5 files with checksums (model files), and checkpoints, from which a run resumes.
 *
 *   checked     checked files: header, writer, reader
 *   h5          model files in this format
 *   shard       a checkpoint on the disk: parts of arrays, shards, manifest, folders
 *   snapshot    the arrays of stages, copied to parts or filled from them
 *   tables      the arrays of tables, for any number of servers; residuals of filters
 *   persistent  folders in the memory of a host that outlive a process
 *   memory      checkpoints in the memory of this node and of others
 *   checkpoint  when a checkpoint is due, how it is written, found and restored; the best model so far
 *
 * A checkpoint is a folder <to>/<number> with shards shard-NNNN.h5 and manifest.h5. Without a manifest it is incomplete. It is
 * taken between two clocks, when all updates have arrived: all ranks copy their arrays, and training waits only for that; a
 * thread of each rank writes the copy. The file <to>/ended names a run that has ended and is not resumed.
 */
#ifndef TR_CHECKPOINT_H
#define TR_CHECKPOINT_H

#include "job/job.h"
#include "ranks/ranks.h"
#include "store/shard.h"
#include "trireme/stage.h"

/* ---- when a checkpoint is due; signals of the process ---- */

/* TR_DUE_EVALUATION: a pause for an evaluation; the best model is kept in memory. */
enum tr_due { TR_NOT_DUE, TR_DUE_EVALUATION, TR_DUE, TR_DUE_AND_STOP };

enum tr_signals {
    TR_SIGNALS_ASK = 0, /* USR2 asks for a checkpoint, USR1 for a checkpoint and a stop */
    TR_SIGNALS_END =
        2 /* TERM and INT ask for a stop; a second signal, at least a second later, ends the process */
};

/* Handles these signals from the first call with `on` until there was a call without it for each call with it; then their handlers
 * are restored. The first call for TR_SIGNALS_ASK forgets earlier requests. */
void tr_signals_handle(enum tr_signals which, bool on);

bool tr_signals_stop(void); /* returns whether a stop was requested */

/* Acts as if this process had received USR1 (stop) or USR2. */
void tr_signals_pass(bool stop);

/* ---- checkpoints ---- */

/* How a job starts: from the newest undamaged checkpoint of a run that has not ended, or from none; without a checkpoint; or, if the
 * run in the output folder is complete, from its last checkpoint if the job asks for more epochs, or from none. */
enum tr_beginning { TR_GO_ON, TR_BEGIN_ANEW, TR_GO_FURTHER };

/* Determines the checkpoint that the job resumes from. From then on checkpoints are taken of stages with a snapshot function. All
 * ranks, after tr_context_assign(), before tables are created; agreed on. TR_ERR_CONFIG: the job has changed too much. */
int tr_checkpoints_open(tr_context *tr, enum tr_beginning beginning);

/* Waits for the checkpoint that is being written. All ranks; also without checkpoints.
 *
 * @param [in] ended   the run is complete and will not be resumed
 * @param [in] status  of the run
 * @return status, or TR_ERR_IO if status is TR_OK but the last checkpoint could not be written
 */
int tr_checkpoints_close(tr_context *tr, bool ended, int status);

/* Closes without waiting or messages. Checkpoints in memory stay for the next start. */
void tr_checkpoints_leave(tr_context *tr);

/* Returns the checkpoint that the run resumes from, or NULL: the same on all ranks. */
const struct tr_manifest *tr_checkpoint_found(const tr_context *tr);

/* Returns whether that checkpoint is in memory. */
bool tr_checkpoint_found_in_memory(const tr_context *tr);

/* Registers an observer that stores state in checkpoints: called on all ranks, like the snapshot function of a stage. When the stage
 * of the checkpoint starts, it restores its state, before or after the objects that the state belongs to exist. */
typedef int tr_lister_fn(void *who, tr_snapshot *snapshot);
void tr_on_snapshot(tr_context *tr, tr_lister_fn *lister, void *who);

/* Counts of rank 0. */
struct tr_checkpoint_counts {
    int64_t written, failed;          /* on the disk */
    int64_t in_memory, not_in_memory; /* written and failed in memory */
    uint64_t last_in_memory;          /* number of the last one in memory */
    uint64_t last;                    /* number of the last complete one on the disk; 0: none */
    int64_t clock;                    /* its clock */
    double copying, writing;          /* total seconds for which training waited, and which threads took */
    double epoch, age;                /* epoch of the last one that was taken; seconds since then */
};
void tr_checkpoint_count(const tr_context *tr, struct tr_checkpoint_counts *counts);

/* ---- for stages ---- */

/* Counts the stages and tasks: called when one starts. All ranks.
 *
 * @param [out] restores  the checkpoint was taken in this stage
 * @return TR_OK, or TR_ERR_DATA if that stage had another name
 */
int tr_checkpoint_enter(tr_context *tr, const char *name, bool *restores);

/* Returns whether a checkpoint is due; on rank 0, often. Not while one is being written, unless the run must stop. */
enum tr_due tr_checkpoint_due(tr_context *tr, int64_t clock);

/* Returns whether a checkpoint is due at the end of a stage: only in a run that has taken others. The following work may fail, for
 * example writing the model to a full disk. Rank 0. */
bool tr_checkpoint_due_at_end(const tr_context *tr);

/* Copies the arrays of the lister, of all tables, and of observers, and starts to write them. All ranks, with the same facts except
 * those that only rank 0 knows. When it returns, all ranks have copied. A failure is a warning.
 *
 * @param [in] stops  wait until the checkpoint is complete
 */
int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *lister,
                       void *who);

/* Restores tables, observers and the state of the lister. *facts receives the position. All ranks; agreed on. */
int tr_checkpoint_restore(tr_context *tr, tr_lister_fn *lister, void *who, struct tr_facts *facts);

/* Keep tables and the arrays of the lister in the memory of this process, instead of those kept before; restore them. All ranks,
 * between two clocks, in contexts with checkpoints; agreed on. */
int tr_best_keep(tr_context *tr, tr_lister_fn *lister, void *who);
int tr_best_restore(tr_context *tr, tr_lister_fn *lister, void *who);

/* For listers of checkpoints: lists the best model. Restoring: *found is true if the layout is the same and there is one. */
int tr_best_list(tr_context *tr, tr_snapshot *snapshot, bool *found);

/* Waits until nothing is being written, before a rank uses HDF5 itself. All ranks. */
int tr_checkpoint_settle(tr_context *tr);

/* ---- snapshots ---- */

/* Snapshots of stages and tables: parts in memory that are written to shards, or filled from shards. */

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

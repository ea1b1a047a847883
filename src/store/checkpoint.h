/* store/: HDF5 files with checksums (model files), and checkpoints, from which a run resumes.
 *
 *   checked     checked files (HDF5 files with checksums): header, writer, reader
 *   h5          model files, which are checked files
 *   shard       a checkpoint on the disk: parts of arrays, shards, manifest, folders
 *   snapshot    the arrays of stages: copied to parts, or restored from parts
 *   tables      the arrays of tables, for any number of servers; residuals of filters
 *   persistent  folders in the memory of a host that outlive a process
 *   memory      checkpoints in the memory of this node and of others
 *   checkpoint  when a checkpoint is due, how it is written, found and restored; the best model so far
 *
 * A checkpoint is a folder <to>/<number> with a shard of each rank, shard-NNNN.h5, and manifest.h5. Without a manifest it is
 * incomplete. All ranks take a checkpoint between two clocks, when all updates have arrived: they copy their arrays, while
 * training waits, and a thread of each rank writes the copy. The file <to>/ended names a run that has ended and is not resumed.
 */
#ifndef TR_CHECKPOINT_H
#define TR_CHECKPOINT_H

#include "job/job.h"
#include "ranks/ranks.h"
#include "store/shard.h"
#include "trireme/stage.h"

/* ---- when a checkpoint is due; signals of the process ---- */

/* Reasons to pause a stage. TR_DUE_EVALUATION: an evaluation, after which the best model is stored; TR_DUE: a checkpoint. */
enum tr_due { TR_NOT_DUE, TR_DUE_EVALUATION, TR_DUE, TR_DUE_AND_STOP };

enum tr_signals {
    TR_SIGNALS_ASK = 0, /* USR2 asks for a checkpoint, USR1 for a checkpoint and a stop */
    TR_SIGNALS_END = 2  /* TERM and INT ask for a stop; if repeated after a second, they end the process */
};

/* Installs handlers for these signals (on), or restores the previous ones. Calls are counted: only the first call with `on` and the
 * last call without it have an effect. The first call for TR_SIGNALS_ASK forgets earlier requests. */
void tr_signals_handle(enum tr_signals which, bool on);

bool tr_signals_stop(void); /* returns whether a stop was requested */

/* Has the effect of a signal to this process: of USR1 if `stop`, otherwise of USR2. */
void tr_signals_pass(bool stop);

/* ---- checkpoints ---- */

/* The checkpoint that a job resumes from. TR_GO_ON: the newest undamaged checkpoint of a run that has not ended; TR_BEGIN_ANEW:
 * none; TR_GO_FURTHER, if the run in the output folder is complete: its last checkpoint if the job asks for more epochs. */
enum tr_beginning { TR_GO_ON, TR_BEGIN_ANEW, TR_GO_FURTHER };

/* Determines the checkpoint that the job resumes from, and enables checkpoints of stages that have a snapshot function. All ranks,
 * after tr_context_assign(), before tables are created; agreed on. TR_ERR_CONFIG: the job has changed so that it cannot resume. */
int tr_checkpoints_open(tr_context *tr, enum tr_beginning beginning);

/* Waits for the checkpoint that is being written, and frees the state of checkpoints. All ranks must call it; does nothing if the
 * context has no checkpoints.
 *
 * @param [in] ended   the run is complete and will not be resumed
 * @param [in] status  status of the run
 * @return status, or TR_ERR_IO if status is TR_OK but the last checkpoint could not be written
 */
int tr_checkpoints_close(tr_context *tr, bool ended, int status);

/* Frees the state of checkpoints without waiting and without messages. Checkpoints in memory stay for the next start. */
void tr_checkpoints_leave(tr_context *tr);

/* Returns the checkpoint that the run resumes from; NULL: none. All ranks get the same result. */
const struct tr_manifest *tr_checkpoint_found(const tr_context *tr);

/* Returns whether the checkpoint that the run resumes from is in memory. */
bool tr_checkpoint_found_in_memory(const tr_context *tr);

/* Registers a lister: a function that lists state for checkpoints, like the snapshot function of a stage. It is called on all ranks
 * when a checkpoint is taken, and when the stage of the checkpoint starts, to restore the state. Objects of the state may not exist
 * yet then. */
typedef int tr_lister_fn(void *who, tr_snapshot *snapshot);
void tr_on_snapshot(tr_context *tr, tr_lister_fn *lister, void *who);

/* Counts since the start of this process, on rank 0: a run that resumes counts from 0. */
struct tr_checkpoint_counts {
    int64_t written, failed;          /* checkpoints on the disk: written, failed */
    int64_t in_memory, not_in_memory; /* numbers of checkpoints that were written, or failed, in memory */
    uint64_t last_in_memory;          /* number of the last complete checkpoint in memory; 0: none */
    uint64_t last;                    /* number of the last complete checkpoint on the disk; 0: none */
    int64_t clock;                    /* clock of the last complete checkpoint on the disk */
    double copying;                   /* total seconds in which training waited for copies */
    double epoch;                     /* epoch of the last checkpoint that was taken */
};
void tr_checkpoint_count(const tr_context *tr, struct tr_checkpoint_counts *counts);

/* ---- for stages ---- */

/* Counts the stages and tasks. Call it on all ranks when a stage or a task starts.
 *
 * @param [out] restores  the checkpoint that the run resumes from was taken in this stage
 * @return TR_OK, or TR_ERR_DATA if the stage of the checkpoint had another name
 */
int tr_checkpoint_enter(tr_context *tr, const char *name, bool *restores);

/* Returns whether a checkpoint is due: not while another one is being written, unless the run must stop. Call it often on rank
 * 0. */
enum tr_due tr_checkpoint_due(tr_context *tr, int64_t clock);

/* Returns whether a checkpoint is due at the end of a stage: in a run that has other checkpoints. It protects the result if the
 * following work fails, for example writing the model to a full disk. Rank 0. */
bool tr_checkpoint_due_at_end(const tr_context *tr);

/* Copies the arrays of `lister`, of all tables, and of registered listers, and starts to write the copies. All ranks must call it,
 * with equal facts except those that only rank 0 knows. When it returns, all ranks have copied their arrays. If the checkpoint
 * fails, a warning is printed, and training continues.
 *
 * @param [in] stops  wait until the checkpoint is complete
 */
int tr_checkpoint_take(tr_context *tr, const struct tr_facts *facts, bool stops, tr_lister_fn *lister,
                       void *who);

/* Restores the tables, and the state of `lister` and of registered listers. *facts receives the position. All ranks; agreed on. */
int tr_checkpoint_restore(tr_context *tr, tr_lister_fn *lister, void *who, struct tr_facts *facts);

/* tr_best_keep() replaces the best model by a copy of the tables and the arrays of `lister` in the memory of this process;
 * tr_best_restore() restores them. All ranks, between two clocks, in contexts with checkpoints; agreed on. */
int tr_best_keep(tr_context *tr, tr_lister_fn *lister, void *who);
int tr_best_restore(tr_context *tr, tr_lister_fn *lister, void *who);

/* Lists the best model as a part of a checkpoint. Call it in listers. Restoring: sets *found if the checkpoint contains it and the
 * layout is equal. */
int tr_best_list(tr_context *tr, tr_snapshot *snapshot, bool *found);

/* Waits until no checkpoint is being written. All ranks, before one of them uses HDF5, which only one thread may use. */
int tr_checkpoint_settle(tr_context *tr);

/* ---- snapshots ---- */

/* A snapshot is a list of parts (shard.h) of the arrays of stages and tables. Taking it copies the parts, which are then written to
 * a shard. Restoring fills the arrays from shards. */

struct tr_checkpoint_memory;

struct tr_snapshot {
    tr_context *tr;
    const char *prefix; /* start of the names that are listed now; may be NULL */
    /* used for writing: the copied parts */
    struct tr_part *part;
    size_t parts, capacity;
    /* used for restoring: the checkpoint with this manifest in this folder */
    const struct tr_manifest *manifest;
    const char *folder;
    struct tr_checkpoint_memory *memory; /* NULL: all shards are in the folder */
    uint32_t *order;                     /* numbers of shards in the order of searching */
    bool same_layout;                    /* the run resumes with the same ranks in the same roles */
    struct tr_shard **shards;            /* open shards by number; NULL: not restoring from shards */
    uint32_t open;                       /* number of open shards */
    /* in_process: the snapshot is the best model, whose parts stay in this process; all ranks copy common parts. fills: this
     * snapshot is being restored */
    bool in_process, fills;
};

/* Creates a snapshot for writing (from = NULL), or for restoring the checkpoint with this manifest. The caller owns folder and
 * manifest.
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

/* Restoring: reads the rows of this name from all shards, and passes them to piece() as parts of one run with data, in ascending
 * order within a shard. Runs for which wanted() returns false are skipped. */
typedef bool tr_wanted_fn(void *who, const struct tr_row_run *run);
typedef int tr_piece_fn(void *who, const struct tr_part *piece);
int tr_snapshot_each(tr_snapshot *snapshot, const char *name, tr_wanted_fn *wanted, tr_piece_fn *piece,
                     void *who);

/* Restoring: sets *has if a shard contains a part with this name. */
int tr_snapshot_has(tr_snapshot *snapshot, const char *name, bool *has);

/* Lists all tables of the context except those that are left out of checkpoints. The statuses of the ranks may differ. */
int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot);

#endif

/* What a context knows of its checkpoints. */
#ifndef TR_CHECKPOINT_STATE_H
#define TR_CHECKPOINT_STATE_H

#include "store/checkpoint.h"
#include "store/memory.h"
#include "store/writer.h"

/* What a rank tells rank 0 of its shard. */
struct tr_shard_report {
    int64_t number, status;
    struct tr_shard_seal seal;
    double seconds;
    char error[512];
};

struct tr_lister {
    tr_lister_fn *list;
    void *who;
};

/* One on its way: rank 0 waits for shards, then for the manifest; others for their shard. */
struct tr_being_written {
    bool any, in_memory;
    bool told, commits; /* in memory: rank 0 knows of this rank's shard; the manifest is on its way */
    uint64_t number;
    double begin;
    /* rank 0 */
    struct tr_manifest manifest; /* taken over by the writer */
    uint32_t arrived;
    int status;
    char error[512];
};

struct tr_checkpoints {
    tr_context *tr;
    char *to;
    uint64_t run, number; /* of the last one begun */
    bool continues, restored;
    struct tr_memory *memory;
    bool wants_memory;        /* rank 0: the one that is due is due there */
    struct tr_manifest found; /* where it continues … */
    bool found_in_memory;     /* … which is not on the disk */
    int64_t entered;          /* stages and tasks so far */
    double began, before;     /* of this process; seconds of the run before it */
    struct tr_when when;
    struct tr_lister *lister;
    size_t listers, lister_room;
    struct tr_writer writer;
    struct tr_being_written now;
    struct tr_shard_report report; /* on its way to rank 0 */
    MPI_Request sending, passing;
    int64_t passed[2]; /* signals that rank 0 was told of: stop, ask */
    double probed;     /* when signals of others were looked for */
    struct tr_checkpoint_counts counts;
    int failure; /* rank 0: of the last one on the disk */
    char why[512];
    double taken; /* when the last one was */
};

/* Fills run, number, continues and found: all ranks; agreed on. */
int tr_checkpoints_find(struct tr_checkpoints *c, bool fresh);

/* The outcome of the lowest rank that found something wrong, with its text on rank 0: nothing that ends the job. All
 * ranks. */
int tr_checkpoints_hear(tr_context *tr, int status, char *why, size_t room);

/* Lets nobody go on with this run. Rank 0. */
int tr_checkpoints_end(const struct tr_checkpoints *c);

#endif

/* What a context knows of its checkpoints. */
#ifndef TR_STORE_STATE_H
#define TR_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/checkpoint.h"
#include "store/memory.h"
#include "store/snapshot.h"

/* What a rank tells rank 0 of its shard. */
struct tr_shard_report {
    int64_t number, status;
    struct tr_shard_seal seal;
    double seconds;
    char error[512];
};

/* Files are written while training goes on: by a thread of this rank that alone uses HDF5 meanwhile, and never MPI. A disk
 * may take seconds to say that it has something, and a rank that waited for it would keep all others waiting. */
struct tr_writer {
    pthread_t thread;
    bool busy;        /* the thread has not been joined */
    atomic_bool done; /* … but has done its work */
    int (*write)(struct tr_checkpoints *c);
    /* outcome */
    int status;
    double seconds;
    char error[512];
};

/* One on its way: rank 0 waits for all shards, then for the manifest; others for their shard. */
struct tr_being_written {
    bool any, in_memory;
    bool told; /* in memory: rank 0 knows of this rank's shard */
    uint64_t number;
    double begin;
    tr_snapshot *snapshot;       /* the parts of the shard … */
    struct tr_shard_seal seal;   /* … when it is written */
    struct tr_manifest manifest; /* rank 0's; of others only what tr_manifest_head() needs */
    uint32_t arrived;            /* rank 0: shards that are written, or have failed */
    int status;
    char error[512];
};

struct tr_checkpoints {
    tr_context *tr;
    char *to;
    char *locked;                  /* rank 0: the file, if checkpoint.to names the folder … */
    int lock;                      /* … once this run has it; or -1 */
    uint64_t run, attempt, number; /* number: of the last one begun */
    bool continues, restored;
    struct tr_memory *memory;
    bool wants_memory;        /* rank 0: the one that is due is due there */
    struct tr_manifest found; /* where it continues … */
    bool found_in_memory;     /* … which is not on the disk */
    int64_t entered;          /* stages and tasks so far */
    double began, before;     /* of this process; seconds of the run before it */
    struct tr_policy policy;
    struct tr_lister {
        tr_lister_fn *list;
        void *who;
    } * lister;
    size_t listers, lister_capacity;
    struct tr_writer writer;
    struct tr_being_written now;
    struct tr_shard_report report; /* on its way to rank 0 */
    MPI_Request sending, passing;
    int64_t passed[2]; /* signals that rank 0 was told of: stop, ask */
    double probed;     /* when signals of others were looked for */
    struct tr_checkpoint_counts counts;
    int failure; /* rank 0: of the last one on the disk */
    char why[512];
    double taken;      /* when the last one was */
    tr_snapshot *best; /* the best model so far; NULL: none is kept */
};

/* What tables have, and the stage: best.c. */
int tr_snapshot_model(tr_context *tr, tr_snapshot *snapshot, tr_lister_fn *list, void *who);

/* Fills run, attempt, number, continues and found: all ranks; agreed on. */
int tr_checkpoints_find(struct tr_checkpoints *c, enum tr_beginning beginning);

/* The outcome of the lowest rank that found something wrong, with its text on all: nothing that ends the job. All ranks. */
int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size);

/* Lets nobody go on with this run. Rank 0. */
int tr_checkpoints_end(const struct tr_checkpoints *c);

#endif

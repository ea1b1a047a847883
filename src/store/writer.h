/* Writing while training goes on: a thread of this rank that alone uses HDF5 meanwhile, and never MPI. A disk may take
 * seconds to say that it has something, and a rank that waited for it would keep all others waiting. */
#ifndef TR_CHECKPOINT_WRITER_H
#define TR_CHECKPOINT_WRITER_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/taking.h"

struct tr_writer {
    pthread_t thread;
    bool busy;             /* the thread has not been joined */
    atomic_bool done;      /* … but has done its work */
    tr_snapshot *snapshot; /* a shard of these parts; or NULL: a manifest */
    char *folder;          /* of all checkpoints */
    struct tr_shard_head head;
    struct tr_manifest manifest;
    size_t remain;             /* checkpoints, once the manifest is written; 0: all */
    bool durable;              /* brought to the disk */
    void (*before)(void *who); /* what else the thread does, first; NULL: nothing */
    void *who;
    struct tr_lifeline *lifeline; /* which is to know that the thread works; NULL: none */
    /* outcome */
    struct tr_shard_seal seal;
    int status;
    double seconds;
    char error[512];
};

/* Begin to write; keep is handed over, of the manifest what it points to. Outcomes are there when it is done. What is
 * durable, before, who and lifeline say is the caller's, who sets them first. */
int tr_writer_shard(struct tr_writer *w, const char *folder, const struct tr_shard_head *head,
                    tr_snapshot *snapshot);
int tr_writer_manifest(struct tr_writer *w, const char *folder, const struct tr_manifest *manifest,
                       size_t remain);

/* Whether the writing that was begun has just ended, and so the writer is free again. */
bool tr_writer_ended(struct tr_writer *w);

/* Waits for it without looking after anything: for the very end. */
void tr_writer_wait(struct tr_writer *w);

#endif

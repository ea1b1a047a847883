/* Checkpoints in memory. They are taken far more often than checkpoints on the disk, and survive all failures except the loss of a
 * node together with the nodes that have its copies.
 *
 * The shard of a rank is a file in the memory of its node, which outlives the process. It is copied to the next checkpoint.copies
 * nodes, to the rank with the same number there. Shard 0 contains the manifest. A checkpoint is complete if all shards are. When
 * all ranks have reported to rank 0 that their shards have arrived everywhere, this checkpoint stays while the next one is taken.
 * Checkpoints in memory and on the disk share their numbers: a higher number is a later state.
 *
 * A run resumes from the newest checkpoint of which every shard exists undamaged on some host. A rank that needs a shard that its
 * host does not have requests it from a rank that has it.
 */
#ifndef TR_STORE_MEMORY_H
#define TR_STORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "ranks/ranks.h"
#include "store/shard.h"

/* ---- files ---- */

/* Checkpoints in memory are files in persistent folders of this host (store/persistent.h). No MPI here.
 *
 * A node has the folder trireme-<user>-<run>-<host>.<node>, with folders of checkpoints as on the disk, but without manifests. The
 * file `owner` in it names the folder of the checkpoints on the disk, in which the file `memory` names the run. If it names another
 * run, the run of the node's folder is over, and the folder is removed when any run starts. The host is part of the name, because
 * several hosts may be one machine; the node is 0, unless ranks.node_size divides a host into nodes.
 */

/* A shard of a run on this host. */
struct tr_memory_file {
    uint64_t number;
    int64_t shard;
    char *path;
};

/* Lists the files of a run: the highest numbers first, then by shard. Free with tr_memory_files_free(), also if this fails. */
int tr_memory_list(uint64_t run, struct tr_memory_file **files, size_t *n);
void tr_memory_files_free(struct tr_memory_file *files, size_t n);

/* Returns the run that <to>/memory names; 0: none. */
uint64_t tr_memory_run(const char *to);

/* Names the run there, so that its folders stay; creates the folder `to`. TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_memory_name(const char *to, uint64_t run);

/* Removes the file <to>/memory. */
void tr_memory_unname(const char *to);

/* Removes the checkpoints of a run on this host except these two numbers; 0, 0: all. */
void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other);

/* Removes the folders of this user on this host whose runs are over, except those of `run`. */
void tr_memory_clean(uint64_t run);

/* Removes the checkpoints in memory of this host of the run whose folder is tr_checkpoints_place(to, output), which will not resume.
 * Other hosts remove theirs when the next run starts there. */
void tr_memory_give_up(const char *to, const char *output);

/* ---- streams ---- */

/* A file that is sent to another rank, in pieces, by polling. */
enum { TR_STREAM_PIECES = 4 }; /* maximum number of pending messages */

/* The first message. */
struct tr_stream_head {
    uint64_t number, bytes;
    int64_t status;
    char error[200];
};

struct tr_stream {
    tr_context *tr; /* NULL: not in use */
    bool sends, over;
    int peer, status;
    uint64_t number; /* of the checkpoint: equal on both sides */
    char *path;
    char *memory; /* the mapped file; NULL: none, or a receiver has failed and ignores the data */
    struct tr_stream_head head;
    uint64_t pieces, begun,
        ended; /* numbers of messages including the head; pieces is 1 until the head has arrived */
    MPI_Request request[TR_STREAM_PIECES];
    char error[200];
};

/* ---- checkpoints in memory ---- */

#define TR_MANIFEST_PART "manifest" /* in shard 0: tr_manifest_pack() */

enum { TR_MEMORY_SERVED = 8 }; /* maximum number of shards that a rank sends at the same time */

/* Checkpoints in memory, as known to a rank. */
struct tr_checkpoint_memory {
    tr_context *tr;
    const char *to; /* the caller's */
    MPI_Comm host;  /* ranks that see the same files */
    int host_rank, host_size;
    int node;    /* number of its node on its host */
    int copies;  /* checkpoint.copies, but fewer than there are nodes */
    int *peer;   /* ranks that receive the copies of this rank */
    int *source; /* ranks whose copies this rank receives */
    size_t sources;
    uint64_t committed; /* the last complete checkpoint; 0: none; known to rank 0 first */
    bool warned;        /* rank 0 has printed that a checkpoint failed */
    bool noted;         /* rank 0 has printed the note of a rank */
    /* the checkpoint that is being taken */
    uint64_t run, number;
    char *folder;          /* of the node; NULL: none */
    uint64_t before[2];    /* bytes of the last two checkpoints on this node */
    struct tr_stream *out; /* copies of them; NULL: the shard is not written yet */
    struct tr_stream *in;  /* sources of them */
    char note[200];        /* why the checkpoint is in slower memory */
    /* the checkpoint that the run resumes from */
    uint64_t found;
    struct tr_memory_file *file; /* all files of the run on this host */
    size_t files;
    uint32_t shards;
    uint64_t largest;  /* bytes of its largest shard */
    const char **here; /* by shard: path of an undamaged file on this host, or NULL */
    int *holder;       /* by shard: a rank that has it */
    bool serves;
    char *fetched; /* folder of the node for shards from other hosts */
    struct tr_stream asked, served[TR_MEMORY_SERVED];
    MPI_Request asking;
    uint64_t wanted[2];
};

int tr_memory_open(tr_context *tr, const char *to, struct tr_checkpoint_memory **memory); /* all ranks */

/* All ranks; *memory may be NULL.
 *
 * @param [in] removes  remove all checkpoints of the run from memory; the value on rank 0 counts
 */
void tr_memory_close(struct tr_checkpoint_memory **memory, uint64_t run, bool removes);

/* ---- writing ---- */

/* Prepares checkpoint `number`; `bytes`: size of the parts of this rank. All ranks of a node. TR_ERR_NO_OUTPUT: not enough space. */
int tr_memory_begin(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t number, uint64_t bytes);

/* Starts to send the shard, or the error of writing it, to the peers. */
void tr_memory_send(struct tr_checkpoint_memory *memory, int status, const char *error);

/* Advances all streams. Returns whether something was done.
 *
 * @param [out] arrived        the shard has arrived everywhere, and all copies have arrived here, or have failed
 * @param [out] status, error  of the first stream that failed
 */
bool tr_memory_turn(struct tr_checkpoint_memory *memory, bool *arrived, int *status, const char **error);

/* Frees the streams. */
void tr_memory_end(struct tr_checkpoint_memory *memory);

/* ---- reading ---- */

/* Lists the files of the run on this host. All ranks, agreed on.
 *
 * @param [out] most  the highest number of a checkpoint on any host; 0: none
 */
int tr_memory_look(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t *most);

/* Finds the newest checkpoint below a number whose shard 0 exists on some host: *number (0: none), and the lowest rank there. All
 * ranks. */
int tr_memory_next(struct tr_checkpoint_memory *memory, uint64_t below, uint64_t *number, int *rank);

/* Reads the manifest in shard 0, on a rank that has it. */
int tr_memory_manifest(const struct tr_checkpoint_memory *memory, uint64_t number,
                       struct tr_manifest *manifest);

/* Verifies that every shard is undamaged on some host, and records where. All ranks; TR_OK on all, or an error on all with `why`. */
int tr_memory_verify(struct tr_checkpoint_memory *memory, const struct tr_manifest *manifest, char *why,
                     size_t size);

/* Returns a path of a shard on this host; fetches it from another rank if necessary, which must poll. Free *path. */
int tr_memory_shard(struct tr_checkpoint_memory *memory, uint32_t shard, char **path);

/* Sends shards that other ranks request. A poll function. */
void tr_memory_serve(struct tr_checkpoint_memory *memory, int *did);

/* Ends serving: all ranks have their shards. */
void tr_memory_found_end(struct tr_checkpoint_memory *memory);

/* Agrees on the outcome of the lowest rank that failed, whose error text becomes `why` on all ranks. It does not end the job. All
 * ranks. */
int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size);

#endif

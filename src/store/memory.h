/* Checkpoints in memory. They are taken far more often than checkpoints on the disk, and survive all failures except the loss of a
 * node together with the nodes that have its copies.
 *
 * The shard of a rank is a file in the memory of its node, which outlives the process. Each of the next checkpoint.copies nodes
 * gets a copy: the rank with the same number on that node. Shard 0 contains the manifest. A checkpoint is complete if all its
 * shards are complete. Rank 0 knows this when all ranks have reported that their shards have arrived on all nodes; then this
 * checkpoint stays while the next one is taken. Checkpoints in memory and on the disk share their numbers: a higher number is a
 * later state.
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
 * A node has the folder trireme-<user>-<run>-<host>.<node>, with folders of checkpoints as on the disk, but without manifests. Its
 * file `owner` contains the path of the folder of checkpoints on the disk. There, the file `memory` contains the number of the
 * current run. If this is another run than that of the node's folder, that folder is removed when any run starts. The host is part
 * of the name, because several hosts may be one machine; <node> is 0, unless ranks.node_size divides a host into nodes.
 */

/* A shard of a run on this host: number of its checkpoint, number of the shard, path. */
struct tr_memory_file {
    uint64_t number;
    int64_t shard;
    char *path;
};

/* Lists the shards of a run on this host, the newest checkpoint first. Free with tr_memory_files_free(), also if this fails. */
int tr_memory_list(uint64_t run, struct tr_memory_file **files, size_t *n);
void tr_memory_files_free(struct tr_memory_file *files, size_t n);

/* Returns the run in the file <to>/memory; 0: there is no such file. */
uint64_t tr_memory_run(const char *to);

/* Writes the run to the file <to>/memory, so that its folders in memory stay. Creates the folder `to`. TR_ERR_NO_OUTPUT,
 * TR_ERR_IO. */
int tr_memory_name(const char *to, uint64_t run);

/* Removes the file <to>/memory. */
void tr_memory_unname(const char *to);

/* Removes the checkpoints of a run on this host, except those with these two numbers; 0, 0: removes all. */
void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other);

/* Removes the folders of this user on this host whose runs are over, except those of `run`. */
void tr_memory_clean(uint64_t run);

/* Removes the checkpoints in the memory of this host of a run that will not resume. Its folder is tr_checkpoints_place(to, output).
 * Other hosts remove their checkpoints of this run when the next run starts there. */
void tr_memory_give_up(const char *to, const char *output);

/* ---- streams ---- */

/* A stream sends a file to another rank: a head, then the file in messages of equal size (pieces). It progresses by polling. */
enum { TR_STREAM_PIECES = 4 }; /* maximum number of pending messages */

/* The first message: number of the checkpoint, bytes of the file. If the sender has failed: its status and error text. */
struct tr_stream_head {
    uint64_t number, bytes;
    int64_t status;
    char error[200];
};

/* One side of a stream. */
struct tr_stream {
    tr_context *tr;   /* NULL: not in use */
    bool sends, over; /* sends: this side is the sender; over: all messages have been sent or received */
    int peer, status; /* peer: rank of the other side; status: first failure of this side */
    uint64_t number;  /* expected number of the checkpoint in the head */
    char *path;
    char *memory; /* the mapped file; NULL: not mapped yet, or a receiver has failed and ignores the data */
    struct tr_stream_head head;
    /* numbers of messages, the head included: of the whole stream (1 until the head is known), begun, ended */
    uint64_t pieces, begun, ended;
    MPI_Request request[TR_STREAM_PIECES];
    char error[200];
};

/* ---- checkpoints in memory ---- */

/* name of the part of shard 0 that contains the bytes of tr_manifest_pack() */
#define TR_MANIFEST_PART "manifest"

enum { TR_MEMORY_SERVED = 8 }; /* maximum number of shards that a rank sends at the same time */

/* State of a rank for checkpoints in memory. */
struct tr_checkpoint_memory {
    tr_context *tr;
    const char *to; /* folder of the checkpoints on the disk, owned by the caller */
    MPI_Comm host;  /* communicator of the ranks that see the same files: the ranks of this host */
    int host_rank, host_size;
    int node;    /* number of the node of this rank on its host */
    int copies;  /* checkpoint.copies, or the number of other nodes if that is less */
    int *peer;   /* `copies` ranks to which this rank sends its shard */
    int *source; /* `sources` ranks from which this rank receives shards */
    size_t sources;
    uint64_t committed; /* number of the last complete checkpoint; 0: none */
    bool warned;        /* rank 0 has printed that a checkpoint failed */
    bool noted;         /* rank 0 has printed a note about a checkpoint outside of the first base */
    /* members about the checkpoint that is being taken */
    uint64_t run, number;
    char *folder;          /* folder of the node; NULL: none */
    uint64_t before[2];    /* bytes of the last two checkpoints on this node */
    struct tr_stream *out; /* streams to the peers; NULL: the shard is not written yet */
    struct tr_stream *in;  /* streams from the sources */
    char note[200];        /* reason why the checkpoint is not in the first base, or "" */
    /* members about the checkpoint that the run resumes from */
    uint64_t found;              /* number of the checkpoint */
    struct tr_memory_file *file; /* all files of the run on this host */
    size_t files;
    uint32_t shards;
    uint64_t largest;  /* bytes of the largest shard */
    const char **here; /* path of each shard if an undamaged file is on this host, else NULL */
    int *holder;       /* a rank that has the shard, for each shard */
    bool serves;       /* this rank sends shards to ranks that request them */
    char *fetched;     /* folder of the node for shards from other hosts; NULL: none yet */
    /* asked: stream of a shard to this rank; served: streams of shards from this rank */
    struct tr_stream asked, served[TR_MEMORY_SERVED];
    /* request that sends `wanted`: the numbers of a checkpoint and of one of its shards */
    MPI_Request asking;
    uint64_t wanted[2];
};

/* All ranks must call it. */
int tr_memory_open(tr_context *tr, const char *to, struct tr_checkpoint_memory **memory);

/* Frees the state. All ranks; *memory may be NULL.
 *
 * @param [in] removes  remove all checkpoints of the run from memory; the value on rank 0 counts
 */
void tr_memory_close(struct tr_checkpoint_memory **memory, uint64_t run, bool removes);

/* ---- writing ---- */

/* Prepares checkpoint `number`: creates its folder, and starts to receive. bytes: size of the parts of this rank. All ranks of a
 * node. TR_ERR_NO_OUTPUT: there is not enough space. */
int tr_memory_begin(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t number, uint64_t bytes);

/* Starts to send the shard to the peers; if writing it has failed, sends status and error instead. */
void tr_memory_send(struct tr_checkpoint_memory *memory, int status, const char *error);

/* Advances all streams. Returns whether something was done.
 *
 * @param [out] arrived        all streams have ended: the shard is on the peers, and the copies of the sources are here
 * @param [out] status, error  status and error text of the first stream that failed
 */
bool tr_memory_turn(struct tr_checkpoint_memory *memory, bool *arrived, int *status, const char **error);

/* Ends and frees the streams of the checkpoint that is being taken. */
void tr_memory_end(struct tr_checkpoint_memory *memory);

/* ---- reading ---- */

/* Lists the files of the run on this host. All ranks; agreed on.
 *
 * @param [out] most  the highest number of a checkpoint on any host; 0: none
 */
int tr_memory_look(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t *most);

/* Finds the newest checkpoint below a number whose shard 0 exists on any host: *number (0: none), and the lowest rank on that host,
 * *rank. All ranks. */
int tr_memory_next(struct tr_checkpoint_memory *memory, uint64_t below, uint64_t *number, int *rank);

/* Reads the manifest in shard 0, on a rank that has it. */
int tr_memory_manifest(const struct tr_checkpoint_memory *memory, uint64_t number,
                       struct tr_manifest *manifest);

/* Verifies that every shard has an undamaged copy on some host, and records its host. All ranks; returns TR_OK on all ranks, or an
 * error on all ranks with the reason in `why`. */
int tr_memory_verify(struct tr_checkpoint_memory *memory, const struct tr_manifest *manifest, char *why,
                     size_t size);

/* Returns the path of a shard on this host. If the shard is on other hosts only, it is fetched from another rank, which must poll.
 * Free *path. */
int tr_memory_shard(struct tr_checkpoint_memory *memory, uint32_t shard, char **path);

/* Sends shards that other ranks request. A poll function. */
void tr_memory_serve(struct tr_checkpoint_memory *memory, int *did);

/* Ends tr_memory_serve(). Call it when all ranks have their shards. */
void tr_memory_found_end(struct tr_checkpoint_memory *memory);

/* Returns TR_OK if no rank failed, else TR_ERR_DATA on all ranks, with the error text of the lowest failed rank in `why`. Unlike
 * tr_agree() it does not end the job. All ranks. */
int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size);

#endif

/* Checkpoints in memory: taken like those on the disk and far more often, for what happens more often than a node is lost
 * with all its neighbours.
 *
 * Each rank's shard goes into a file in its node's memory, which outlives the process, and from there to
 * as many next nodes as checkpoint.copies says, to the rank with the same number there. Shard 0 has what the manifest says
 * on the disk; a checkpoint is whole if all shards are. When all ranks have told rank 0 that theirs has arrived everywhere,
 * it is the one that stays while the next is taken. They have their numbers in common with those on the disk: a higher
 * number is a later state.
 *
 * A run that goes on takes the newest one of which every shard is whole somewhere. What a rank wants to read and its host
 * lacks it asks from one that has it.
 */
#ifndef TR_STORE_MEMORY_H
#define TR_STORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "ranks/ranks.h"
#include "store/shard.h"

/* ---- files ---- */

/* Where checkpoints in memory lie: files in persistent folders of this host (store/persistent.h). No MPI here.
 *
 * A node has the folder trireme-<user>-<run>-<host>.<node>, with checkpoints by number in it as on the disk, but shards
 * alone, and the file owner, which says where the checkpoints on the disk are. There the file memory names the run: a folder
 * that is not named there is left over from a run that is over, and goes when any run begins. The host is part of the name
 * for hosts that are one machine; the node, 0, for nodes that are one host, as ranks.node_size has them.
 */

/* A shard of a run on this host. */
struct tr_memory_file {
    uint64_t number;
    int64_t shard;
    char *path;
};

/* All of the run, the highest numbers first, then by shard; to be freed with tr_memory_files_free(). */
int tr_memory_list(uint64_t run, struct tr_memory_file **files, size_t *n);
void tr_memory_files_free(struct tr_memory_file *files, size_t n);

/* The run that <to>/memory names; 0: none. */
uint64_t tr_memory_run(const char *to);

/* Names it there, from when on its folders stay; makes the folder `to`. TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_memory_name(const char *to, uint64_t run);

/* Names none: folders that are not removed are left over. */
void tr_memory_unname(const char *to);

/* Removes what this host has of the run but the checkpoints of these numbers; with 0, 0 all of it. */
void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other);

/* Removes what this host has of this user's runs that are over, but nothing of that run. */
void tr_memory_clean(uint64_t run);

/* Nobody will go on with the run whose checkpoints are in `to`, or where that is empty in checkpoints in `output`: removes
 * what this host has of it in memory; other hosts, when the next run begins there. */
void tr_memory_give_up(const char *to, const char *output);

/* ---- streams ---- */

/* A file on its way to another rank, in pieces that are sent and received whenever somebody polls. */
enum { TR_STREAM_PIECES = 4 }; /* on their way at the same time */

/* What comes first. */
struct tr_stream_head {
    uint64_t number, bytes;
    int64_t status;
    char error[200];
};

struct tr_stream {
    tr_context *tr; /* NULL: nothing is on its way */
    bool sends, over;
    int peer, status;
    uint64_t number; /* whatever tells files from each other: the same on both sides */
    char *path;      /* where it comes from, or goes to */
    char *memory;    /* the file's; NULL: none, or receiving what nobody wants any more */
    struct tr_stream_head head;
    uint64_t pieces, begun, ended; /* messages, the head among them; 1 until more are known */
    MPI_Request request[TR_STREAM_PIECES];
    char error[200];
};

/* ---- checkpoints in memory ---- */

#define TR_MANIFEST_PART "manifest" /* in shard 0: tr_manifest_pack() */

enum { TR_MEMORY_SERVED = 8 }; /* ranks that one gives shards to at the same time */

/* What a rank knows of what is in memory. */
struct tr_checkpoint_memory {
    tr_context *tr;
    const char *to; /* the caller's */
    MPI_Comm host;  /* ranks that see the same files */
    int host_rank, host_size;
    int node;    /* number of its node on its host */
    int copies;  /* as many as there are nodes for */
    int *peer;   /* to whom each goes */
    int *source; /* whose come here */
    size_t sources;
    uint64_t committed; /* the last one that is whole; 0: none; rank 0 knows first */
    bool warned;        /* rank 0 has said that it does not work … */
    bool strange;       /* … that it is not where it was meant to be, as `note` of some rank has it */
    /* the one that is taken */
    uint64_t run, number;
    char *folder;          /* the node's; NULL: none */
    uint64_t before[2];    /* bytes of this node's last one, and the one before */
    struct tr_stream *out; /* copies of them; NULL: the shard is not written yet */
    struct tr_stream *in;  /* sources of them */
    char note[200];
    /* the one that is gone on with */
    uint64_t found;
    struct tr_memory_file *file; /* on this host, of the run */
    size_t files;
    uint32_t shards;
    uint64_t largest;  /* bytes of its largest shard */
    const char **here; /* by shard: the path of a whole one on this host; NULL */
    int *holder;       /* … and the rank to ask for it */
    bool serves;
    char *fetched; /* the node's folder for what was asked for */
    struct tr_stream asked, served[TR_MEMORY_SERVED];
    MPI_Request asking;
    uint64_t wanted[2];
};

/* All ranks. */
int tr_memory_open(tr_context *tr, const char *to, struct tr_checkpoint_memory **memory);

/* Removes everything of the run from memory if `removes`, as nobody is to go on with it from there. All ranks; NULL inside
 * is fine. */
void tr_memory_close(struct tr_checkpoint_memory **memory, uint64_t run, bool removes);

/* ---- writing ---- */

/* Makes ready for checkpoint `number`, of whose parts this rank has so many bytes. All
 * ranks of a node together. TR_ERR_NO_OUTPUT: there is no room for it. */
int tr_memory_begin(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t number, uint64_t bytes);

/* Removes all but this one and the one that was committed; in the thread that writes. */
void tr_memory_tidy(struct tr_checkpoint_memory *memory);

/* The shard is written, or not: it goes to its peers. */
void tr_memory_send(struct tr_checkpoint_memory *memory, int status, const char *error);

/* Moves on; *arrived: the rank's shard has arrived everywhere, and all that it gets, or has failed to (*status, *error). */
bool tr_memory_turn(struct tr_checkpoint_memory *memory, bool *arrived, int *status, const char **error);

/* Frees what was only for the one taken. */
void tr_memory_end(struct tr_checkpoint_memory *memory);

/* ---- reading ---- */

/* Lists what this host has of the run; *most: the highest number of anything on all hosts; 0: nothing. All ranks, agreed
 * on. */
int tr_memory_look(struct tr_checkpoint_memory *memory, uint64_t run, uint64_t *most);

/* The newest one below a number of which some host has shard 0: *number (0: none), and the lowest rank there. All ranks. */
int tr_memory_next(struct tr_checkpoint_memory *memory, uint64_t below, uint64_t *number, int *rank);

/* Reads what shard 0 says; a rank that has it. */
int tr_memory_manifest(const struct tr_checkpoint_memory *memory, uint64_t number,
                       struct tr_manifest *manifest);

/* Verifies that every shard is whole somewhere, and notes where. All ranks; TR_OK on all, or not, with `why`. */
int tr_memory_verify(struct tr_checkpoint_memory *memory, const struct tr_manifest *manifest, char *why,
                     size_t size);

/* Whether a shard can be read without asking for it; and a path where it can be read: to be freed. Asking waits for
 * ranks that poll. */
bool tr_memory_has(const struct tr_checkpoint_memory *memory, uint32_t shard);
int tr_memory_shard(struct tr_checkpoint_memory *memory, uint32_t shard, char **path);

/* Gives others what they ask for. */
void tr_memory_serve(struct tr_checkpoint_memory *memory, int *did);

/* All have what they want. */
void tr_memory_found_end(struct tr_checkpoint_memory *memory);

/* The outcome of the lowest rank that found something wrong, with its text on all: nothing that ends the job. All ranks. */
int tr_checkpoints_agree(tr_context *tr, int status, char *why, size_t size);

#endif

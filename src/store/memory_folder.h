/* Where checkpoints in memory lie: files in persistent folders of this host (store/persistent.h). No MPI here.
 *
 * A node has the folder trireme-<user>-<run>-<host>.<node>, with checkpoints by number in it as on the disk, but shards
 * alone, and the file owner, which says where the checkpoints on the disk are. There the file memory names the run: a folder
 * that is not named there is left over from a run that is over, and goes when any run begins. The host is part of the name
 * for hosts that are one machine; the node, 0, for nodes that are one host, as ranks.node_size has them.
 */
#ifndef TR_STORE_MEMORY_FOLDER_H
#define TR_STORE_MEMORY_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Makes the folder of a checkpoint, and what it lies in: *path is the node's folder, to be freed. TR_ERR_NO_OUTPUT. */
int tr_memory_make(const char *base, uint64_t run, int node, const char *to, uint64_t number, char **path);

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

#endif

/* Checkpoints in a folder, each in a folder of its own that is called by its number. No MPI here. */
#ifndef TR_STORE_FOLDER_H
#define TR_STORE_FOLDER_H

#include <stddef.h>
#include <stdint.h>

/* Where a job has its checkpoints: in checkpoint.to, or where that is empty in <output>/checkpoints; to be freed. */
int tr_checkpoints_place(const char *to, const char *output, char **folder);

/* <to>/<number, 8 digits>, and in it shard-<4 digits>.h5; to be freed. */
int tr_checkpoint_path(const char *to, uint64_t number, char **path);
int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path);

/* Numbers of the folders that are there, the highest first, whether or not they have a manifest: *numbers (to be freed);
 * none where `to` does not exist. TR_ERR_NO_INPUT: it cannot be read. */
int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n);

/* Makes the folder of a new one, and `to` with its parents. TR_ERR_NO_OUTPUT. */
int tr_checkpoint_make(const char *to, uint64_t number);

/* Removes one, its manifest first, and nothing but the files that belong to it. */
int tr_checkpoint_remove(const char *to, uint64_t number);

/* Removes all but the `keep` highest that have a manifest, and those without one that are older than the newest that has
 * one. */
int tr_checkpoints_prune(const char *to, size_t keep);

/* The file <to>/<name> that names a run; 0: there is none. */
uint64_t tr_read_run(const char *to, const char *name);
int tr_write_run(const char *to, const char *name, uint64_t run);

#endif

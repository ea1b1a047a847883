/* Rows in files of the node: shared by the members of a group, by several teams, or kept for the next start of a job.
 *
 * Kept (data.cache): the rows of a worker lie in a file of the node's memory until the job ends, or on a disk. They are moved
 * there after they were read, which takes twice the memory for a moment, and used where they lie. When a job that failed
 * starts again, each rank looks for its files by name. If all ranks find theirs undamaged, made at the same time from the same
 * files in the same way for the same ranks, nothing is read; otherwise all ranks read. The files are removed when the job
 * ends; those of runs that ended in another way when the next job starts (tr_cache_clean()).
 *
 * Shared (data.partition: replicated): the rows of a group lie once in memory that its members share.
 *
 * Pooled: teams that have made the same rows of the same files use one copy.
 */
#ifndef TR_DATA_CACHE_H
#define TR_DATA_CACHE_H

#include "data/dataset.h"
#include "data/row_store.h"

/* ---- folders ---- */

/* A folder of a job in the memory of this host, or in a folder on a disk: <base>/trireme-data-<user>-<hash of the output folder
 * and the host>. The file `owner` in it names the run; the process that looks after the folder holds a lock on that file, which
 * ends with the process. A folder without a lock belongs to a run that is over, or about to be started again. */
struct tr_cache_folder {
    char *path; /* NULL: none */
    int lock;   /* descriptor of the locked file; -1: this process does not look after the folder */
};

#define TR_CACHE_FILES "data" /* the folder in it that has the files */

/* The path of the folder, whether or not it exists; to be freed. base = NULL: the memory of the host. The same for all processes
 * of a run on this host. */
int tr_cache_folder_path(const char *base, const char *output, char **path);

/* Makes the folder if there is none, and locks it. TR_ERR_NO_OUTPUT: it cannot be made, or another process has locked it. */
int tr_cache_folder_lock(const char *base, const char *output, struct tr_cache_folder *folder);

/* Removes it with its contents, if this process has locked it. */
void tr_cache_folder_remove(struct tr_cache_folder *folder);

/* Removes what processes that are no more have left in the memory of this host: files that were to lose their names, and this user's
 * folders that nobody has locked and whose runs are over. A run is over if it has ended, or if its status.json is older than an
 * hour. Runs in the folder `ended` (NULL: none) are over in any case. Folders of runs that see other files, in a container or
 * chroot, stay. Any process, with or without MPI. */
void tr_cache_clean(const char *ended);

/* ---- rows that are kept ---- */

/* The files of a data set. */
struct tr_cached {
    char *head,
        *rows; /* paths: of this rank's file of everything but rows; of the file of rows, which may be the group's */
    struct tr_row_key key, generation; /* hash of the source; of the time and process that made it */
    bool found;                        /* an earlier start, or another team, has made it */
    bool pooled;                       /* there is only the file of rows, which other teams use, too */
};

/* Looks for the data set that an earlier start has kept. *found: it is there, except for data->rows. what: "training data" or "test
 * data"; key: the source. All ranks together; agreed on. */
int tr_cache_find(tr_data *data, const char *what, const char *key, bool *found);

/* Keeps a data set that was read for the next start, if that is wanted and possible. All ranks together. */
int tr_cache_keep(tr_data *data);

/* Moves the rows of this rank into a file of this folder of the node, or uses the file that another team has made with this key.
 * The rows stay in the heap if that fails. Any rank, alone. */
int tr_cache_pool(tr_data *data, const char *folder, const char *key);

/* Closes the file of the rows. Files stay, but a pooled one is removed with its last user. */
void tr_cache_close(struct tr_data_state *state);

/* Frees everything that a data set knows besides its rows: names, labels, heads, the scale, ... */
void tr_data_free_head(tr_data *data);

/* ---- rows that a group shares ---- */

/* Whether this rank's group has its rows once, in memory that its members share. */
bool tr_data_is_shared(const tr_context *tr);

/* Moves the rows of each such group into one file: those of member 0 first, and so on. Each member has its rows in data->state; their
 * columns count its own keys (ascending, n_keys of them) or, if all_columns, all columns. Afterwards data->state and data->keys
 * point into the file, and columns count the keys of the group. All ranks (those without such a group do nothing); errors are
 * agreed on. TR_ERR_SYSTEM: shared memory is too small. */
int tr_data_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all_columns);

#endif

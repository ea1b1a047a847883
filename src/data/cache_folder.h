/* The folder of a job in the memory of a node, for what is to outlive its processes but not the job. No MPI here.
 *
 * It is trireme-data-<user>-<hash of the output folder and the node>, in /dev/shm or wherever checkpoints in memory are to
 * lie first (checkpoint/memory_folder.h), for nobody but the user. The file `owner` in it says
 * which run it belongs to; the process that looks after the folder holds a lock on that, which ends with it however it
 * ends. So a folder that is not locked belongs to a run that is over, or that is about to be started again.
 */
#ifndef TR_DATA_CACHE_FOLDER_H
#define TR_DATA_CACHE_FOLDER_H

struct tr_cache_folder {
    char *path; /* NULL: none */
    int lock;   /* of who looks after it; else -1 */
};

/* Where it is, whether or not it is there; to be freed. The same for all processes of a run on that node. */
int tr_cache_folder_path(const char *output, const char *node, char **path);

/* Makes the folder if it is not there, and looks after it from now on. TR_ERR_NO_OUTPUT: it cannot be made; another process
 * looks after it. */
int tr_cache_folder_take(const char *output, const char *node, struct tr_cache_folder *folder);

/* Removes it with all that is in it, if it was taken. */
void tr_cache_folder_remove(struct tr_cache_folder *folder);

/* Removes this user's folders on this node that nobody looks after and whose runs are over: they have ended, or nobody has
 * heard of them for an hour. Those of the run in the folder `ended` (NULL: of none), and of its tasks, are over in any
 * case. */
void tr_cache_folders_clean(const char *ended, const char *node);

#endif

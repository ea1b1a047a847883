/* The folder of a job in the memory of this host, for data that are to outlive its processes but not the job; or in a folder
 * on a disk, where they outlive that, too. No MPI here.
 *
 * It is trireme-data-<user>-<hash of the output folder and the host>, in the first base (store/persistent.h; in functions: NULL). The file `owner`
 * in it says which run it belongs to; the process that looks after the folder holds a lock on that, which ends with it
 * however it ends. So a folder that is not locked belongs to a run that is over, or that is about to be started again.
 */
#ifndef TR_DATA_CACHE_FOLDER_H
#define TR_DATA_CACHE_FOLDER_H

#define TR_CACHE_FILES "data" /* in that folder: the one of the files */

struct tr_cache_folder {
    char *path; /* NULL: none */
    int lock;   /* of who looks after it; else -1 */
};

/* Where it is, whether or not it is there; to be freed. The same for all processes of a run on this host. */
int tr_cache_folder_path(const char *base, const char *output, char **path);

/* Makes the folder if it is not there, and looks after it from now on. TR_ERR_NO_OUTPUT: it cannot be made; another process
 * looks after it. */
int tr_cache_folder_take(const char *base, const char *output, struct tr_cache_folder *folder);

/* Leaves it, with all that is in it, to the next start. */
void tr_cache_folder_leave(struct tr_cache_folder *folder);

/* Removes it with all that is in it, if it was taken. */
void tr_cache_folder_remove(struct tr_cache_folder *folder);

/* Where a file in this host's memory may be made that loses its name as soon as those who share it have it open; to be freed. */
int tr_cache_passing_path(char **path);

/* Removes such files of processes that are no more; and this user's folders on this host that nobody looks after and whose runs are over: they have ended, or nobody has
 * heard of them for an hour. Who sees other files than such a run did, in a container or chroot, leaves its folder. Those of the run in the folder `ended` (NULL: of none), and of its tasks, are over in any
 * case: nobody will start it again. Also for who is no rank. */
void tr_cache_clean(const char *ended);

#endif

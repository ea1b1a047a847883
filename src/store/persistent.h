/* Persistent shared memory: folders of files in this host's memory, which outlive processes: checkpoints in memory, data that
 * were read. They are called <base>/<kind>-<user>-<name>, and are for nobody but the user. A file `owner` in each says what
 * it belongs to; what that means, and when the folder goes, is up to who makes it.
 */
#ifndef TR_PERSISTENT_H
#define TR_PERSISTENT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Folders, with : between them, that are used instead of /dev/shm and, where that is too small, of $TMPDIR or /tmp. */
#define TR_PERSISTENT_VARIABLE "TRIREME_MEMORY"

enum { TR_PERSISTENT_BASES = 4, TR_HOST_BYTES = 256, TR_VIEW_BYTES = 64 };

struct tr_persistent_bases {
    size_t n;
    char base[TR_PERSISTENT_BASES][256];
};
void tr_persistent_bases(struct tr_persistent_bases *bases);

/* Bytes that may still be written there, with some left for others; 0 where that cannot be known. */
uint64_t tr_persistent_free(const char *base);

/* This host's name, to be part of a folder's: hosts may be one machine. */
void tr_host_name(char host[TR_HOST_BYTES]);

/* Which files this process sees, and by which numbers it knows processes, as words without blanks. Containers and chroots of a
 * host may share its memory, but not its other files or its processes: what a path or a number means there, only those can tell
 * who have the same words. */
void tr_view_of_processes(char view[TR_VIEW_BYTES]);

/* The name of a folder; to be freed. */
int tr_persistent_path(const char *base, const char *kind, const char *name, char **path);

/* Makes a folder for this user alone, unless it is there and is one. TR_ERR_NO_OUTPUT. */
int tr_persistent_make(const char *path);

/* Whether it is one, and no link: nobody else may have put something in its place. */
bool tr_persistent_is_own(const char *path);

/* All own folders of the kind that are in any base; anything but TR_OK ends it. */
typedef int tr_persistent_fn(void *who, const char *path, const char *name);
int tr_persistent_each(const char *kind, tr_persistent_fn *look, void *who);

/* The same path from everywhere, whether or not there is something; to be freed. */
int tr_whole_path(const char *path, char **whole);

/* What the file `owner` says: a path, and whether it means the same here, on this host among these files. Reading fails where that
 * has not been written. */
bool tr_owner_read(int fd, char path[PATH_MAX], bool *here);
bool tr_owner_write(int fd, const char *path);

/* Removes a folder with its files and those of folders in it; `owner` goes last: without it nobody could tell later whose
 * the rest is. */
void tr_persistent_remove(const char *path);

#endif

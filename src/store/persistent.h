/* Persistent shared memory: folders of files in the memory of this host, which outlive processes, for checkpoints and data. Their
 * names are <base>/<kind>-<user>-<name>; only the user has access. The file `owner` in such a folder contains the path of the file
 * or folder that it belongs to. The module that creates a folder decides when it is removed. */
#ifndef TR_PERSISTENT_H
#define TR_PERSISTENT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Environment variable with a list of bases, separated by colons. Default: /dev/shm, and, if that is full, $TMPDIR or /tmp. */
#define TR_PERSISTENT_VARIABLE "TRIREME_MEMORY"

enum { TR_PERSISTENT_BASES = 4, TR_HOST_BYTES = 256, TR_VIEW_BYTES = 64 };

struct tr_persistent_bases {
    size_t n;
    char base[TR_PERSISTENT_BASES][256];
};
void tr_persistent_bases(struct tr_persistent_bases *bases);

/* Returns the free bytes of a base minus a reserve for other users, a sixteenth of its size; 0: unknown. */
uint64_t tr_persistent_free(const char *base);

/* Returns the name of this host, with _ instead of /, for names of folders: several hosts may be one machine. */
void tr_host_name(char host[TR_HOST_BYTES]);

/* Returns an identifier of the PID namespace of this process. Containers of a host may share its memory but not its processes: a
 * pid has a meaning only within one namespace. */
void tr_view_of_processes(char view[TR_VIEW_BYTES]);

/* Sets *path to <base>/<kind>-<user>-<name>, which the caller frees. */
int tr_persistent_path(const char *base, const char *kind, const char *name, char **path);

/* Creates a folder with access for this user only, unless it exists. TR_ERR_NO_OUTPUT: it exists with other permissions. */
int tr_persistent_make(const char *path);

/* Returns whether the path is a folder with access for this user only, and not a link. */
bool tr_persistent_is_own(const char *path);

/* Calls look() for all folders of this kind and user in all bases, until it returns another status than TR_OK. */
typedef int tr_persistent_fn(void *who, const char *path, const char *name);
int tr_persistent_each(const char *kind, tr_persistent_fn *look, void *who);

/* Sets *whole to the absolute form of a path, which need not exist. The caller frees *whole. */
int tr_whole_path(const char *path, char **whole);

/* tr_owner_write() writes this path into a file `owner`, tr_owner_read() reads the path. *here: the file was written on this host,
 * in the same mount namespace with the same root folder. Reading fails if the file is incomplete. */
bool tr_owner_read(int fd, char path[PATH_MAX], bool *here);
bool tr_owner_write(int fd, const char *path);

/* Removes a folder with all files and folders in it. The file `owner` is removed last, because it identifies the rest. */
void tr_persistent_remove(const char *path);

#endif

/* Folders in this host's memory, for what is to outlive processes: checkpoints in memory, data that were read. They are
 * called <base>/<kind>-<user>-…, and are for nobody but the user. What they belong to, and when they go, is up to who makes
 * them.
 */
#ifndef TR_LASTING_H
#define TR_LASTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Folders, with : between them, that are used instead of /dev/shm and, where that is too small, of $TMPDIR or /tmp. */
#define TR_LASTING_VARIABLE "TRIREME_MEMORY"

enum { TR_LASTING_BASES = 4, TR_LASTING_HOST = 256 };

struct tr_lasting_bases {
    size_t n;
    char base[TR_LASTING_BASES][256];
};
void tr_lasting_bases(struct tr_lasting_bases *bases);

/* Bytes that may still be written there, with some left for others; 0 where that cannot be known. */
uint64_t tr_lasting_room(const char *base);

/* This host's name, to be part of a folder's: hosts may be one machine. */
void tr_lasting_host(char host[TR_LASTING_HOST]);

/* Makes a folder for this user alone, unless it is there and is one. TR_ERR_NO_OUTPUT. */
int tr_lasting_make(const char *path);

/* Whether it is one, and no link: nobody else may have put something in its place. */
bool tr_lasting_is_own(const char *path);

/* All own folders of the kind that are in any base; rest: of the name, behind <kind>-<user>-. Anything but TR_OK ends it. */
typedef int tr_lasting_fn(void *who, const char *path, const char *rest);
int tr_lasting_each(const char *kind, tr_lasting_fn *look, void *who);

/* Removes the files of a folder; it too, if it is empty then. */
void tr_lasting_remove(const char *path);

#endif

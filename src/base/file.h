/* Files and folders: made whole, or with a lock, by one process. */
#ifndef TR_BASE_FILE_H
#define TR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Files and folders of other users: in a folder that all users can write to, such as /tmp, another user may have made the entry
 * that this process is about to use. The functions below refuse a path on which such an entry belongs to neither this user nor
 * root (TR_ERR_NO_PERM); what they create there has mode 0600 or 0700. */

/* Makes a folder and the folders above it that are missing. durable: fsync of their names. TR_ERR_NO_OUTPUT, TR_ERR_NO_PERM,
 * TR_ERR_IO. */
int tr_make_folder(const char *folder, bool durable);

/* mkdir() with the mode that fits the place: 0, or -1 and errno. */
int tr_create_folder(const char *path);

/* Creates a file for writing in place of an older file of that name: a descriptor, or -1 and errno. Safe in a signal handler. */
int tr_create_file(const char *path);

/* Opens a file that keeps its content (flags: O_WRONLY or O_RDWR, O_APPEND), or creates it: a descriptor, or -1 and errno, which
 * is EPERM if another user made an entry on the path. */
int tr_open_file(const char *path, int flags);

/* fsync of a folder, or of the folder that a path is in, where there is such a thing. TR_ERR_IO. */
int tr_sync_folder(const char *path);
int tr_sync_above(const char *path);

/* Writes all of it: 0, or an errno. */
int tr_write_all(int fd, const char *text, size_t length);

/* Describes what the system said of the path, with the status that fits: a disk may be full before a byte is written. */
int tr_file_failed(const char *path, const char *what, int error);

/* Replaces folder/name by the text: readers see the old text or the new one. durable: fsync before the rename. On failure the
 * old file stays: TR_ERR_NO_OUTPUT if the file cannot be created, TR_ERR_IO if it cannot be written. */
int tr_replace_file(const char *folder, const char *name, const char *text, size_t length, bool durable);

/* Takes a lock of the kernel on the file, which is made, for as long as *fd is open in this process: it ends with the process however
 * that ends. File systems that have no locks let everybody in. False: another process has the lock, and `who` says which, on
 * which host, if it has signed. *fd is -1 then, and where the file cannot be opened (errno). Given back by
 * tr_unlock_file(), which removes the file; -1 is fine. */
bool tr_lock_file(const char *path, int *fd, char *who, size_t size);
void tr_sign_lock(int fd);
void tr_unlock_file(const char *path, int fd);

/* Refuses an output that is an input as well: it would be replaced by what is made of it. TR_ERR_USAGE. */
int tr_check_not_input(const char *output, const char *input);

/* Opens a file whose code this process will run. It must be a regular file, not a symbolic link; it and its folder must belong to
 * this user or to root, and neither group nor others may write to them. The caller checks and loads the open file, so the file
 * cannot be exchanged in between. TR_ERR_NO_INPUT, TR_ERR_NO_PERM; the text of the error does not contain the path. */
int tr_open_code(const char *path, int *fd);

/* Whether the open file is still the one at that path: somebody may have moved its folder away or removed it. */
bool tr_is_still_at(int fd, const char *path);

#endif

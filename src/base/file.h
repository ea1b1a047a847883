/* Folders, files that are replaced as a whole, and files as locks. */
#ifndef TR_BASE_FILE_H
#define TR_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Files and folders of other users: in a folder that all users can write to, such as /tmp, another user may have created the entry
 * that this process is about to use. The functions below refuse a path with such an entry, unless it belongs to this user or to
 * root (TR_ERR_NO_PERM). New files and folders there have mode 0600 or 0700. */

/* Creates a folder and its missing parents. durable: calls fsync for their names. TR_ERR_NO_OUTPUT, TR_ERR_NO_PERM, TR_ERR_IO. */
int tr_make_folder(const char *folder, bool durable);

/* Calls mkdir() with the mode described above. Returns 0, or -1 and errno. */
int tr_create_folder(const char *path);

/* Creates a file for writing and removes an older file of that name. Returns a descriptor, or -1 and errno. Safe in a signal
 * handler. */
int tr_create_file(const char *path);

/* Opens a file without truncation, or creates it. flags: O_WRONLY or O_RDWR, and O_APPEND. Returns a descriptor, or -1 and errno,
 * which is EPERM if another user created an entry on the path. */
int tr_open_file(const char *path, int flags);

/* tr_sync_folder() calls fsync for a folder, tr_sync_above() for the folder that contains the path. TR_ERR_IO. */
int tr_sync_folder(const char *path);
int tr_sync_above(const char *path);

/* Writes all bytes. Returns 0 or an errno. */
int tr_write_all(int fd, const char *text, size_t length);

/* Fails with «<path>: cannot be <what>» and the text of the errno `error`. Returns TR_ERR_NO_OUTPUT if `what` is "created" and the
 * disk is not full, else TR_ERR_IO. */
int tr_file_failed(const char *path, const char *what, int error);

/* Replaces folder/name by the text: readers see the old text or the new one. durable: fsync before the rename. On failure the
 * old file stays: TR_ERR_NO_OUTPUT if the file cannot be created, TR_ERR_IO if it cannot be written. */
int tr_replace_file(const char *folder, const char *name, const char *text, size_t length, bool durable);

/* Creates a file and locks it (flock) until tr_unlock_file(), which removes the file, or until the process ends. On file systems
 * without locks it always succeeds. tr_sign_lock() writes process and host into the file.
 *
 * @param [out] fd   -1 if another process has the lock, or if the file cannot be opened (errno)
 * @param [out] who  process and host that have the lock, or a note that they are unknown; set if false is returned
 * @return false if another process has the lock
 */
bool tr_lock_file(const char *path, int *fd, char *who, size_t size);
void tr_sign_lock(int fd);
void tr_unlock_file(const char *path, int fd); /* fd may be -1 */

/* Fails with TR_ERR_USAGE if both paths name the same file. */
int tr_check_not_input(const char *output, const char *input);

/* Opens a file whose code this process will run. It must be a regular file, not a symbolic link; it and its folder must belong to
 * this user or to root, and group and others must not have write access. The caller checks and loads the open file, so the file
 * cannot be exchanged in between. TR_ERR_NO_INPUT, TR_ERR_NO_PERM; the text of the error does not contain the path. */
int tr_open_code(const char *path, int *fd);

/* Returns whether the path still names the open file. It does not if the file or its folder was moved or removed. */
bool tr_is_still_at(int fd, const char *path);

#endif

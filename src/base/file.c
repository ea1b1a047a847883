#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* ---- folders ---- */

int tr_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return TR_OK; /* this user can write to the folder but not read it */
    /* EINVAL: the file system does not support fsync of a folder, which is no error */
    int status = fd < 0 || (fsync(fd) < 0 && errno != EINVAL)
                     ? tr_fail(TR_ERR_IO, "%s: cannot be brought to the disk: %s", path, strerror(errno))
                     : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

int tr_sync_above(const char *path)
{
    TR_FREED char *above = NULL;
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return tr_sync_folder(slash ? "/" : ".");
    TR_TRY(tr_format(&above, "%.*s", (int)(slash - path), path));
    return tr_sync_folder(above);
}

/* ---- entries of other users ---- */

static bool entry_is_foreign(const struct stat *entry)
{
    return entry->st_uid != geteuid() && entry->st_uid != 0;
}

/* Finds an entry on a path, or on the target of its links, that another user has put into a folder that all users can write to. */
static bool entry_find_foreign(const char *path, char name[PATH_MAX], struct stat *entry)
{
    char real[PATH_MAX];
    struct stat above;
    size_t length = strlen(path), begin = 0;
    if (length >= PATH_MAX || stat(*path == '/' ? "/" : ".", &above) < 0) return false; /* open() will fail */
    memcpy(name, path, length + 1);
    while (begin < length) {
        size_t n = strcspn(name + begin, "/"), end = begin + n;
        bool is_entry = n > 0 && strncmp(name + begin, "..", n) != 0; /* "", "." and ".." are not */
        name[end] = '\0';
        if (is_entry && lstat(name, entry) < 0) return false;
        if (is_entry && (above.st_mode & S_IWOTH) && entry_is_foreign(entry)) return true;
        if (is_entry && S_ISLNK(entry->st_mode) && realpath(name, real) &&
            entry_find_foreign(real, name, entry))
            return true;
        memcpy(name, path, length + 1);
        name[end] = '\0';
        if (n > 0 && stat(name, &above) < 0) return false;
        name[end] = path[end];
        begin = end + 1;
    }
    return false;
}

static int entry_check_path(const char *path)
{
    char name[PATH_MAX];
    struct stat entry;
    if (!entry_find_foreign(path, name, &entry)) return TR_OK;
    return tr_fail(TR_ERR_NO_PERM,
                   "%s: belongs to user %u, in a folder that all users can write to: choose another name",
                   name, (unsigned)entry.st_uid);
}

/* Returns the mode of a new file or folder: without bits of group and others if all users can write to the folder that contains
 * it. */
static mode_t entry_mode(const char *path, mode_t mode)
{
    char above[PATH_MAX];
    struct stat folder;
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] != '/') n--;
    if (n >= sizeof above) return mode & 0700;
    memcpy(above, path, n);
    memcpy(above + n, ".", 2);
    return stat(above, &folder) == 0 && !(folder.st_mode & S_IWOTH) ? mode : mode & 0700;
}

int tr_create_folder(const char *path)
{
    return mkdir(path, entry_mode(path, 0777));
}

enum { ATTEMPTS = 100 }; /* an attempt fails if another process creates or removes the file meanwhile */

int tr_create_file(const char *path)
{
    int fd = -1;
    for (int i = 0; i < ATTEMPTS; i++) {
        if (unlink(path) < 0 && errno != ENOENT) return -1;
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, entry_mode(path, 0666));
        if (fd >= 0 || errno != EEXIST) break;
    }
    return fd;
}

/* Another user cannot replace an entry between check and open(): only its owner can remove it from a sticky folder. */
int tr_open_file(const char *path, int flags)
{
    char name[PATH_MAX];
    struct stat entry;
    int fd = -1;
    for (int i = 0; i < ATTEMPTS; i++) {
        bool is_foreign_path = entry_find_foreign(path, name, &entry);
        if (!is_foreign_path) {
            fd = open(path, flags | O_CREAT | O_EXCL | O_CLOEXEC, entry_mode(path, 0666));
            if (fd >= 0 || errno != EEXIST) return fd;
            is_foreign_path = entry_find_foreign(path, name, &entry);
        }
        errno = EPERM;
        if (is_foreign_path) return -1;
        fd = open(path, flags | O_CLOEXEC);
        if (fd >= 0 || errno != ENOENT) return fd;
    }
    return fd;
}

static int folder_make(char *path, bool durable)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return TR_OK;
    char *slash = strrchr(path, '/');
    while (slash && slash > path && slash[-1] == '/') slash--; /* "a//b" */
    if (slash && slash > path) {
        *slash = '\0';
        int above = folder_make(path, durable);
        *slash = '/';
        TR_TRY(above);
    }
    if (tr_create_folder(path) == 0) return durable ? tr_sync_above(path) : TR_OK;
    int error = errno;
    bool there = error == EEXIST && stat(path, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) return TR_OK;
    if (there) return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a file, expected a folder", path);
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(error));
}

/* The second check finds entries that another user created after the first check. */
int tr_make_folder(const char *folder, bool durable)
{
    TR_FREED char *path = NULL;
    TR_TRY(tr_copy_string(folder, &path));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
    TR_TRY(entry_check_path(path));
    TR_TRY(folder_make(path, durable));
    return entry_check_path(path);
}

/* ---- files ---- */

int tr_file_failed(const char *path, const char *what, int error)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
    bool creating = !strcmp(what, "created");
    if (error == EPERM) TR_TRY(entry_check_path(path));
    return tr_fail(creating && !full ? TR_ERR_NO_OUTPUT : TR_ERR_IO, "%s: cannot be %s: %s", path, what,
                   strerror(error));
}

int tr_write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        text += n;
        length -= (size_t)n;
    }
    return 0;
}

int tr_target_open(struct tr_target *t, int how, const char *format, ...)
{
    struct stat there;
    va_list arguments;
    *t = (struct tr_target){.how = how, .in_place = how & TR_TARGET_IN_PLACE};
    va_start(arguments, format);
    int length = vasprintf(&t->path, format, arguments);
    va_end(arguments);
    if (length < 0) t->path = NULL;
    if (length < 0) return tr_fail(TR_ERR_SYSTEM, "out of memory: the name of a file");
    TR_TRY(entry_check_path(t->path));
    bool is_special = false;
    /* checked again: another user may have created the entry after entry_check_path() */
    if ((how & TR_TARGET_NAMED) && lstat(t->path, &there) == 0 &&
        (!entry_is_foreign(&there) || entry_mode(t->path, 0077))) {
        char *real = NULL;
        if (S_ISLNK(there.st_mode) && stat(t->path, &there) == 0 && S_ISREG(there.st_mode))
            real = realpath(t->path, NULL);
        if (real) free(t->path);
        if (real) t->path = real;
        is_special = !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode);
    }
    t->in_place = t->in_place || is_special;
    if (is_special) t->how &= ~TR_TARGET_DURABLE;
    TR_TRY(tr_format(&t->part, "%s%s", t->path, t->in_place ? "" : ".part"));
    int fd = is_special ? open(t->path, O_WRONLY | O_CLOEXEC) : tr_create_file(t->part);
    if (fd < 0) return tr_file_failed(errno == EPERM ? t->part : t->path, "created", errno);
    t->file = fdopen(fd, "w");
    if (t->file) return TR_OK;
    close(fd);
    return tr_fail(TR_ERR_SYSTEM, "out of memory: %s", t->path);
}

/* Some file systems report a full disk only in fclose(). */
int tr_target_close(struct tr_target *t, int status)
{
    if (t->file) {
        struct stat made;
        bool is_regular = fstat(fileno(t->file), &made) == 0 && S_ISREG(made.st_mode);
        errno = 0;
        bool fails = ferror(t->file) || fflush(t->file) != 0;
        if (!fails && status == TR_OK && (t->how & TR_TARGET_DURABLE))
            fails = fsync(fileno(t->file)) < 0 && errno != EINVAL;
        int error = errno;
        bool closes = fclose(t->file) == 0;
        if (!fails && (!closes || (status == TR_OK && !t->in_place && rename(t->part, t->path) < 0))) {
            fails = true;
            error = errno;
        }
        if (status == TR_OK && fails) status = tr_file_failed(t->path, "written", error ? error : EIO);
        if (status != TR_OK && is_regular) unlink(t->part);
    }
    TR_FREE_ALL(t->path, t->part);
    *t = (struct tr_target){0};
    return status;
}

int tr_replace_file(const char *folder, const char *name, const char *text, size_t length, bool durable)
{
    struct tr_target t;
    int status = tr_target_open(&t, durable ? TR_TARGET_DURABLE : 0, "%s/%s", folder, name);
    int error = status == TR_OK ? tr_write_all(fileno(t.file), text, length) : 0;
    if (error) status = tr_file_failed(t.path, "written", error);
    return tr_target_close(&t, status);
}

/* ---- files that other users must not be able to change ---- */

static int code_check_owner(const char *what, const struct stat *s)
{
    if (entry_is_foreign(s))
        return tr_fail(TR_ERR_NO_PERM,
                       "%s belongs to user %u, expected you or root: copy the file to a folder of yours",
                       what, (unsigned)s->st_uid);
    if (s->st_mode & (S_IWGRP | S_IWOTH))
        return tr_fail(
            TR_ERR_NO_PERM,
            "other users can write to %s (mode %o): chmod go-w, or copy the file to a folder of yours", what,
            (unsigned)s->st_mode & 07777);
    return TR_OK;
}

int tr_open_code(const char *path, int *fd)
{
    struct stat folder, file;
    char *above;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    TR_TRY(tr_format(&above, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : "."));
    int at = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC), error = errno;
    free(above);
    *fd = at < 0 ? -1 : openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (at >= 0) error = errno;
    int status = TR_OK;
    if (*fd < 0 && error == ELOOP)
        status = tr_fail(TR_ERR_NO_PERM, "is a symbolic link: expected the file that it leads to");
    else if (*fd < 0) status = tr_fail(TR_ERR_NO_INPUT, "%s", strerror(error));
    else if (fstat(*fd, &file) < 0 || fstat(at, &folder) < 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s", strerror(errno));
    else if (!S_ISREG(file.st_mode))
        status = tr_fail(TR_ERR_NO_INPUT, "is a %s, expected a shared object",
                         S_ISDIR(file.st_mode) ? "folder" : "pipe or device");
    if (status == TR_OK) status = code_check_owner("it", &file);
    if (status == TR_OK) status = code_check_owner("its folder", &folder);
    if (at >= 0) close(at);
    if (status != TR_OK && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

/* ---- locks ---- */

bool tr_lock_file(const char *path, int *fd, char *who, size_t size)
{
    *fd = tr_open_file(path, O_RDWR);
    if (*fd < 0 || flock(*fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return true;
    ssize_t n = pread(*fd, who, size - 1, 0);
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    if (!*who) snprintf(who, size, "its process is not known");
    close(*fd);
    *fd = -1;
    return false;
}

void tr_sign_lock(int fd)
{
    char host[256] = "unknown", text[320];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "process %ld on host %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) == 0)
        (void)tr_write_all(fd, text,
                           (size_t)n); /* a failure is ignored: then messages do not name this process */
}

void tr_unlock_file(const char *path, int fd)
{
    if (fd < 0) return;
    if (tr_is_still_at(fd, path)) unlink(path);
    close(fd);
}

bool tr_is_still_at(int fd, const char *path)
{
    struct stat open, there;
    return fstat(fd, &open) == 0 && stat(path, &there) == 0 && open.st_ino == there.st_ino &&
           open.st_dev == there.st_dev;
}

int tr_check_not_input(const char *output, const char *input)
{
    struct stat to, from;
    if (stat(output, &to) < 0 || stat(input, &from) < 0 || !S_ISREG(to.st_mode)) return TR_OK;
    if (to.st_dev != from.st_dev || to.st_ino != from.st_ino) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: is read, and cannot be the output as well: expected another name",
                   output);
}

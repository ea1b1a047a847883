#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
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
    if (fd < 0 && errno == EACCES) return TR_OK; /* one may write there, but not look */
    /* some file systems cannot sync a folder and say EINVAL: the names are as safe as they can be there */
    int status = fd < 0 || (fsync(fd) < 0 && errno != EINVAL)
                     ? tr_fail(TR_ERR_IO, "%s: cannot be brought to the disk: %s", path, strerror(errno))
                     : TR_OK;
    if (fd >= 0) close(fd);
    return status;
}

int tr_sync_above(const char *path)
{
    char *above;
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return tr_sync_folder(slash ? "/" : ".");
    TR_TRY(tr_format(&above, "%.*s", (int)(slash - path), path));
    int status = tr_sync_folder(above);
    free(above);
    return status;
}

static int make_with_parents(char *path, bool durable)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return TR_OK;
    char *slash = strrchr(path, '/');
    while (slash && slash > path && slash[-1] == '/') slash--; /* "a//b" */
    if (slash && slash > path) {
        *slash = '\0';
        int above = make_with_parents(path, durable);
        *slash = '/';
        TR_TRY(above);
    }
    if (mkdir(path, 0777) == 0) return durable ? tr_sync_above(path) : TR_OK;
    int error = errno;
    bool there = error == EEXIST && stat(path, &status) == 0;
    if (there && S_ISDIR(status.st_mode)) return TR_OK;
    if (there) return tr_fail(TR_ERR_NO_OUTPUT, "%s: is a file, expected a folder", path);
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(error));
}

int tr_make_folder(const char *folder, bool durable)
{
    char *path;
    TR_TRY(tr_copy_string(folder, &path));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
    int status = make_with_parents(path, durable);
    free(path);
    return status;
}

/* ---- files ---- */

int tr_file_failed(const char *path, const char *what, int error)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
    bool creating = !strcmp(what, "created");
    return tr_fail(creating && !full ? TR_ERR_NO_OUTPUT : TR_ERR_IO, "%s cannot be %s: %s", path, what,
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

static int write_file(const char *path, const char *text, size_t length, bool durable)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return tr_file_failed(path, "created", errno);
    int error = tr_write_all(fd, text, length);
    if (!error && durable && fsync(fd) < 0 && errno != EINVAL) error = errno;
    if (close(fd) < 0 && !error) error = errno; /* some file systems say only here that the disk is full */
    return error ? tr_file_failed(path, "written", error) : TR_OK;
}

int tr_replace_file(const char *folder, const char *name, const char *text, size_t length, bool durable)
{
    char *path = NULL, *temporary = NULL;
    int status = tr_format(&path, "%s/%s", folder, name);
    if (status == TR_OK) status = tr_format(&temporary, "%s.tmp", path);
    if (status == TR_OK) {
        status = write_file(temporary, text, length, durable);
        if (status == TR_OK && rename(temporary, path) < 0) status = tr_file_failed(path, "written", errno);
        if (status != TR_OK) unlink(temporary);
    }
    free(temporary);
    free(path);
    return status;
}

/* ---- files that other users must not be able to change ---- */

static int check_owner(const char *what, const struct stat *s)
{
    if (s->st_uid != geteuid() && s->st_uid != 0)
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
    if (status == TR_OK) status = check_owner("it", &file);
    if (status == TR_OK) status = check_owner("its folder", &folder);
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
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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
    if (ftruncate(fd, 0) == 0) (void)tr_write_all(fd, text, (size_t)n); /* without it others know less */
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

/* ---- outputs ---- */

int tr_target_of(const char *name, struct tr_target *t)
{
    struct stat there, link;
    bool exists = stat(name, &there) == 0;
    *t = (struct tr_target){.in_place = exists && !S_ISREG(there.st_mode)};
    if (exists && !t->in_place && lstat(name, &link) == 0 && S_ISLNK(link.st_mode))
        t->path = realpath(name, NULL);
    if (!t->path) TR_TRY(tr_copy_string(name, &t->path));
    return tr_format(&t->part, "%s%s", t->path, t->in_place ? "" : ".part");
}

int tr_target_finish(struct tr_target *t, int status)
{
    if (t->part && !t->in_place) {
        if (status == TR_OK && rename(t->part, t->path) < 0)
            status = tr_file_failed(t->path, "created", errno);
        if (status != TR_OK) unlink(t->part);
    }
    free(t->path);
    free(t->part);
    *t = (struct tr_target){0};
    return status;
}

int tr_check_not_input(const char *output, const char *input)
{
    struct stat to, from;
    if (stat(output, &to) < 0 || stat(input, &from) < 0 || !S_ISREG(to.st_mode)) return TR_OK;
    if (to.st_dev != from.st_dev || to.st_ino != from.st_ino) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: is read, and cannot be the output as well: expected another name",
                   output);
}

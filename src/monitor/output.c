#define _GNU_SOURCE
#include "monitor/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* ---- folders ---- */

static int no_folder(const char *folder, const char *why)
{
    return tr_fail(TR_ERR_NO_OUTPUT, "output %s: %s", folder, why);
}

/* mkdir that is content with a folder that is there. */
static int make_one(const char *folder)
{
    struct stat status;
    if (mkdir(folder, 0777) == 0) return TR_OK;
    int error = errno;
    if (stat(folder, &status) < 0) return no_folder(folder, strerror(error));
    return S_ISDIR(status.st_mode) ? TR_OK : no_folder(folder, "is a file, expected a folder");
}

int tr_output_make(const char *folder)
{
    char *path;
    TR_TRY(tr_copy_string(folder, &path));
    int status = TR_OK;
    for (char *end = path + (*path == '/'); status == TR_OK && *end; end++) {
        end = strchrnul(end, '/');
        char old = *end;
        *end = '\0';
        status = make_one(path);
        *end = old;
        if (!old) break;
    }
    free(path);
    return status;
}

enum contents { NOTHING, EARLIER_RUN, OTHER };

static int look_into(const char *folder, enum contents *contents)
{
    DIR *files = opendir(folder);
    if (!files) return no_folder(folder, strerror(errno));
    *contents = NOTHING;
    for (struct dirent *file; (file = readdir(files));) {
        if (!strcmp(file->d_name, ".") || !strcmp(file->d_name, "..")) continue;
        if (*contents == NOTHING) *contents = OTHER;
        if (!strcmp(file->d_name, "job.yaml") || !strcmp(file->d_name, "status.json"))
            *contents = EARLIER_RUN;
    }
    closedir(files);
    return TR_OK;
}

/* Never onto something: a number that is taken is passed over. */
static int move_away(const char *folder, char **moved)
{
    for (int number = 1;; number++) {
        char *name;
        struct stat status;
        TR_TRY(tr_format(&name, "%s.%d", folder, number));
        if (lstat(name, &status) < 0 && errno == ENOENT) {
            if (rename(folder, name) == 0) {
                *moved = name;
                return TR_OK;
            }
            int outcome =
                tr_fail(TR_ERR_NO_OUTPUT, "output %s: the earlier run in it cannot be renamed to %s: %s",
                        folder, name, strerror(errno));
            free(name);
            return outcome;
        }
        free(name);
    }
}

static int prepare(const char *folder, char **moved)
{
    struct stat status;
    enum contents contents = NOTHING;
    if (stat(folder, &status) == 0 && S_ISDIR(status.st_mode)) TR_TRY(look_into(folder, &contents));
    if (contents == OTHER)
        return no_folder(folder, "holds files, but none of an earlier run: choose another output");
    if (contents == EARLIER_RUN) TR_TRY(move_away(folder, moved));
    int outcome = tr_output_make(folder);
    if (outcome == TR_OK && access(folder, W_OK | X_OK) < 0) outcome = no_folder(folder, strerror(errno));
    return outcome;
}

int tr_output_prepare(const char *folder, char **moved)
{
    char *path;
    TR_TRY(tr_copy_string(folder, &path));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0'; /* "runs/a/" is "runs/a" */
    *moved = NULL;
    int status = prepare(path, moved);
    if (status != TR_OK) {
        free(*moved);
        *moved = NULL;
    }
    free(path);
    return status;
}

/* ---- files ---- */

int tr_output_failed(const char *path, const char *what, int error)
{
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
    bool creating = !strcmp(what, "created");
    return tr_fail(creating && !full ? TR_ERR_NO_OUTPUT : TR_ERR_IO, "%s cannot be %s: %s", path, what,
                   strerror(error));
}

int tr_output_write(int fd, const char *text, size_t length)
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
    if (fd < 0) return tr_output_failed(path, "created", errno);
    int error = tr_output_write(fd, text, length);
    if (!error && durable && fsync(fd) < 0 && errno != EINVAL) error = errno;
    if (close(fd) < 0 && !error) error = errno; /* some file systems say only here that the disk is full */
    return error ? tr_output_failed(path, "written", error) : TR_OK;
}

int tr_output_replace(const char *folder, const char *name, const char *text, size_t length, bool durable)
{
    char *path = NULL, *temporary = NULL;
    int status = tr_format(&path, "%s/%s", folder, name);
    if (status == TR_OK) status = tr_format(&temporary, "%s.tmp", path);
    if (status == TR_OK) {
        status = write_file(temporary, text, length, durable);
        if (status == TR_OK && rename(temporary, path) < 0) status = tr_output_failed(path, "written", errno);
        if (status != TR_OK) unlink(temporary);
    }
    free(temporary);
    free(path);
    return status;
}

#define _GNU_SOURCE
#include "monitor/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

#define LOCK_NAME ".lock"

/* ---- folders ---- */

static int folder_fail(const char *folder, const char *why)
{
    return tr_fail(TR_ERR_NO_OUTPUT, "output %s: %s", folder, why);
}

/* Files that a run writes before its first evaluation. */
static const char *const begun[] = {"job.yaml",   "status.json", "metrics.csv", "ranks.json",
                                    "events.csv", "log",         LOCK_NAME};
enum { BEGUN = sizeof begun / sizeof *begun };

/* Returns whether a name is in this list, or that of a temporary file (job.yaml.part) that a killed run has left. */
static bool is_begun(const char *name)
{
    for (int i = 0; i < BEGUN; i++) {
        size_t n = strlen(begun[i]);
        if (strncmp(name, begun[i], n) == 0 && (!name[n] || strcmp(name + n, ".part") == 0)) return true;
    }
    return false;
}

enum contents { NOTHING, EARLIER_RUN, OTHER };

/* A user's own files may have the names of files of a run. A run has a status or a checkpoint; if it was killed before its first
 * status, its lock. */
static int folder_look(const char *folder, enum contents *contents)
{
    DIR *files = opendir(folder);
    bool any = false, job = false, locked = false, others = false;
    if (!files) return folder_fail(folder, strerror(errno));
    for (struct dirent *file; (file = readdir(files));) {
        const char *name = file->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        any = any || !strstr(name, ".part");
        job = job || !strcmp(name, "job.yaml");
        locked = locked || !strcmp(name, LOCK_NAME);
        others = others || !is_begun(name);
    }
    closedir(files);
    TR_FREED char *manifests = NULL;
    glob_t found = {.gl_pathc = 0};
    TR_TRY(tr_format(&manifests, "%s/checkpoints/*/manifest.h5", folder));
    bool run =
        (job && locked) || tr_status_look(folder).any || glob(manifests, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    *contents = run ? EARLIER_RUN : others || (any && !locked) ? OTHER : NOTHING;
    return TR_OK;
}

static int folder_make(const char *folder)
{
    char text[512];
    int status = tr_make_folder(folder, false);
    snprintf(text, sizeof text, "%s", tr_error_text());
    return status == TR_OK ? TR_OK : tr_fail(status, "output %s", text);
}

/* Finds the name of a folder: without slashes at its end, and if it is a symbolic link that may be followed, that of the folder to
 * which it points. */
static int folder_name(const char *folder, char **name)
{
    struct stat status;
    int length = (int)strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--; /* "runs/a/" is "runs/a" */
    TR_TRY(tr_format(name, "%.*s", length, folder));
    if (lstat(*name, &status) < 0 || !S_ISLNK(status.st_mode)) return TR_OK;
    TR_TRY(folder_make(*name));
    char *target = realpath(*name, NULL);
    if (!target) return TR_OK;
    free(*name);
    *name = target;
    return TR_OK;
}

/* Renames the folder to the first free name of <folder>.1, .2, ..., and removes the lock in it. */
static int folder_move_away(const char *folder, char **moved)
{
    for (int number = 1;; number++) {
        TR_FREED char *name = NULL, *lock = NULL;
        struct stat status;
        TR_TRY(tr_format(&name, "%s.%d", folder, number));
        TR_TRY(tr_format(&lock, "%s/" LOCK_NAME, name));
        if (lstat(name, &status) == 0 || errno != ENOENT) continue;
        if (rename(folder, name) < 0)
            return tr_fail(TR_ERR_NO_OUTPUT, "output %s: the earlier run in it cannot be renamed to %s: %s",
                           folder, name, strerror(errno));
        unlink(lock);
        *moved = name;
        name = NULL;
        return TR_OK;
    }
}

/* ---- taking a folder ---- */

/* Checks the folder, locks it, and checks it again, since another run may have renamed it meanwhile. *lock stays -1, and the caller
 * repeats the call, if another run has, or if this function has renamed the folder of an earlier run. */
static int folder_try_to_take(const char *folder, const char *path, char **moved, int *lock)
{
    enum contents contents;
    int fd, status;
    char text[512];
    TR_TRY(folder_make(folder));
    TR_TRY(folder_look(folder, &contents));
    if (contents == OTHER)
        return folder_fail(folder, "holds files, but none of an earlier run: choose another output");
    if (!tr_lock_file(path, &fd, text, sizeof text)) /* the text names the other run */
        return tr_fail(TR_ERR_NO_OUTPUT,
                       "output %s: another run is writing there now (%s): choose another output", folder,
                       text);
    if (fd < 0) return folder_fail(folder, strerror(errno));
    bool ours = tr_is_still_at(fd, path);
    status = ours ? folder_look(folder, &contents) : TR_OK;
    if (status == TR_OK && ours && moved && contents == EARLIER_RUN) {
        free(*moved);
        *moved = NULL;
        status = folder_move_away(folder, moved);
        ours = false;
    }
    if (status == TR_OK && ours) {
        tr_sign_lock(fd);
        *lock = fd;
    } else {
        close(fd);
    }
    return status;
}

int tr_output_take(const char *folder, char **moved, int *lock)
{
    int status = TR_OK;
    TR_FREED char *name = NULL, *path = NULL;
    *lock = -1;
    if (moved) *moved = NULL;
    TR_TRY(folder_name(folder, &name));
    TR_TRY(tr_format(&path, "%s/" LOCK_NAME, name));
    while (status == TR_OK && *lock < 0) status = folder_try_to_take(name, path, moved, lock);
    if (status == TR_OK || !moved) return status;
    free(*moved);
    *moved = NULL;
    return status;
}

bool tr_output_put_back(const char *output, const char *moved)
{
    TR_FREED char *folder = NULL;
    if (folder_name(output, &folder) != TR_OK) return false;
    DIR *files = opendir(folder);
    bool only = files != NULL; /* the folder contains only files of the list `begun` */
    for (struct dirent *file; only && (file = readdir(files));)
        only = !strcmp(file->d_name, ".") || !strcmp(file->d_name, "..") || is_begun(file->d_name);
    if (files) closedir(files);
    if (!only) return false;
    for (size_t i = 0; i < BEGUN; i++) {
        TR_FREED char *path = NULL;
        if (tr_format(&path, "%s/%s", folder, begun[i]) != TR_OK) return false;
        unlink(path);
    }
    return rmdir(folder) == 0 && rename(moved, folder) == 0;
}

bool tr_output_exchange(const char *output, const char *moved)
{
    TR_FREED char *folder = NULL;
    if (folder_name(output, &folder) != TR_OK) return false;
    return renameat2(AT_FDCWD, folder, AT_FDCWD, moved, RENAME_EXCHANGE) == 0;
}

void tr_output_release(const char *folder, int lock)
{
    TR_FREED char *path = NULL;
    if (lock < 0) return;
    if (tr_format(&path, "%s/" LOCK_NAME, folder) == TR_OK) tr_unlock_file(path, lock);
    else close(lock);
}

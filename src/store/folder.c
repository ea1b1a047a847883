#define _GNU_SOURCE
#include "store/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "store/checked.h"
#include "store/shard.h"

int tr_checkpoints_place(const char *to, const char *output, char **folder)
{
    return *to ? tr_copy_string(to, folder) : tr_format(folder, "%s/checkpoints", output);
}

int tr_checkpoint_path(const char *to, uint64_t number, char **path)
{
    return tr_format(path, "%s/%08" PRIu64, to, number);
}

int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path)
{
    char name[TR_SHARD_NAME_BYTES];
    tr_shard_name(shard, name);
    return tr_format(path, "%s/%08" PRIu64 "/%s", to, number, name);
}

static int failed(int status, const char *path, const char *what)
{
    return tr_fail(status, "%s: cannot be %s: %s", path, what, strerror(errno));
}

/* ---- listing ---- */

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* Whether it is a folder with a number for a name, written as we write it. */
static bool is_checkpoint(DIR *in, const char *name, uint64_t *number)
{
    char text[32];
    struct stat status;
    *number = strtoull(name, NULL, 10);
    snprintf(text, sizeof text, "%08" PRIu64, *number);
    return !strcmp(text, name) && fstatat(dirfd(in), name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode);
}

int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n)
{
    uint64_t number;
    size_t capacity = 0;
    struct dirent *entry;
    *numbers = NULL;
    *n = 0;
    DIR *folder = opendir(to);
    if (!folder && access(to, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)) return TR_OK;
    int status = folder ? TR_OK : failed(TR_ERR_NO_INPUT, to, "read");
    while (status == TR_OK && (errno = 0, entry = readdir(folder))) {
        if (!is_checkpoint(folder, entry->d_name, &number)) continue;
        status = TR_GROW(numbers, &capacity, *n + 1);
        if (status == TR_OK) (*numbers)[(*n)++] = number;
    }
    if (status == TR_OK && errno) status = failed(TR_ERR_NO_INPUT, to, "read");
    if (folder) closedir(folder);
    if (*n > 0) qsort(*numbers, *n, sizeof **numbers, descending);
    if (status == TR_OK) return TR_OK;
    free(*numbers);
    *numbers = NULL;
    *n = 0;
    return status;
}

int tr_checkpoint_make(const char *to, uint64_t number)
{
    char *path;
    TR_TRY(tr_make_folder(to, true));
    TR_TRY(tr_checkpoint_path(to, number, &path));
    int status = mkdir(path, 0777) < 0 ? failed(TR_ERR_NO_OUTPUT, path, "made") : tr_sync_folder(to);
    free(path);
    return status;
}

/* ---- removing ---- */

/* Removes a file of ours; one that is not there is fine. */
static int remove_file(int folder, const char *path, const char *name, size_t *removed)
{
    if (unlinkat(folder, name, 0) == 0) {
        ++*removed;
        return TR_OK;
    }
    if (errno == ENOENT) return TR_OK;
    return tr_fail(TR_ERR_IO, "%s/%s: cannot be removed: %s", path, name, strerror(errno));
}

/* Without its manifest it is no checkpoint any more, whatever comes; and that first, on the disk too. What cannot be removed
 * does not keep the others from it; the first failure is told. */
static int remove_files(DIR *folder, const char *path, size_t *removed)
{
    char name[TR_SHARD_NAME_BYTES];
    uint32_t shard;
    TR_TRY(remove_file(dirfd(folder), path, "manifest.h5", removed));
    if (*removed > 0 && fsync(dirfd(folder)) < 0 && errno != EINVAL)
        return failed(TR_ERR_IO, path, "brought to the disk");
    int first = remove_file(dirfd(folder), path, "manifest.h5.part", removed);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (sscanf(entry->d_name, "shard-%10" SCNu32 ".h5", &shard) != 1) continue;
        tr_shard_name(shard, name);
        if (strcmp(name, entry->d_name) != 0) continue;
        if (first == TR_OK) first = remove_file(dirfd(folder), path, name, removed);
        else *removed += unlinkat(dirfd(folder), name, 0) == 0;
    }
    return first;
}

/* What nothing was removed from, and what is not empty, was none of ours. */
static int remove_checkpoint(const char *to, uint64_t number, bool tell)
{
    char *path;
    size_t removed = 0;
    int status = TR_OK;
    TR_TRY(tr_checkpoint_path(to, number, &path));
    DIR *folder = opendir(path);
    if (folder) {
        status = remove_files(folder, path, &removed);
        closedir(folder);
    } else if (errno != ENOENT) {
        status = failed(TR_ERR_IO, path, "removed");
    }
    if (status == TR_OK && rmdir(path) < 0 && errno != ENOENT) {
        bool foreign = errno == ENOTEMPTY || errno == EEXIST;
        if (!foreign) status = failed(TR_ERR_IO, path, "removed");
        else if (tell || removed > 0)
            status = tr_fail(
                TR_ERR_IO, "%s: the folder stays: there are files in it that are none of a checkpoint", path);
    }
    free(path);
    return status;
}

int tr_checkpoint_remove(const char *to, uint64_t number)
{
    return remove_checkpoint(to, number, true);
}

static bool has_manifest(const char *to, uint64_t number)
{
    char *path;
    struct stat status;
    if (tr_format(&path, "%s/%08" PRIu64 "/manifest.h5", to, number) != TR_OK) return true;
    bool has = stat(path, &status) == 0 || errno != ENOENT;
    free(path);
    return has;
}

int tr_checkpoints_prune(const char *to, size_t keep)
{
    uint64_t *number;
    size_t n, whole = 0;
    int first = TR_OK;
    char why[1024] = "";
    TR_TRY(tr_checkpoints_list(to, &number, &n));
    for (size_t i = 0; i < n; i++) {
        bool is_whole = has_manifest(to, number[i]);
        whole += is_whole;
        /* without a manifest, above all that have one, it may be in the making */
        if (is_whole ? whole <= keep : whole == 0) continue;
        int status = remove_checkpoint(to, number[i], false);
        if (first == TR_OK && status != TR_OK) snprintf(why, sizeof why, "%s", tr_error_text());
        if (first == TR_OK) first = status;
    }
    free(number);
    return first == TR_OK ? TR_OK : tr_fail(first, "%s", why);
}

/* ---- files of one line ---- */

uint64_t tr_read_run(const char *to, const char *name)
{
    char *path;
    uint64_t run = 0;
    if (tr_format(&path, "%s/%s", to, name) != TR_OK) return 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%16" SCNx64, &run) != 1) run = 0;
    if (file) fclose(file);
    free(path);
    return run;
}

int tr_write_run(const char *to, const char *name, uint64_t run)
{
    char text[20];
    int length = snprintf(text, sizeof text, "%016" PRIx64 "\n", run);
    return tr_replace_file(to, name, text, (size_t)length, false);
}

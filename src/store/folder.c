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

/* ---- names ---- */

/* The number that a name is made of, if it is written as we write it. */
static bool parse_number(const char *name, size_t length, int digits, uint64_t *number)
{
    char text[32];
    uint64_t n = 0;
    if (length < (size_t)digits || length > 20) return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] < '0' || name[i] > '9') return false;
        n = n * 10 + (uint64_t)(name[i] - '0');
    }
    snprintf(text, sizeof text, "%0*" PRIu64, digits, n);
    *number = n;
    return strlen(text) == length && memcmp(text, name, length) == 0;
}

static bool is_shard(const char *name)
{
    const char *begin = "shard-", *end = ".h5";
    size_t length = strlen(name), around = strlen(begin) + strlen(end);
    uint64_t number;
    return length > around && strncmp(name, begin, strlen(begin)) == 0 &&
           strcmp(name + length - strlen(end), end) == 0 &&
           parse_number(name + strlen(begin), length - around, 4, &number);
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

static bool is_folder(DIR *in, const char *name)
{
    struct stat status;
    return fstatat(dirfd(in), name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
}

int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n)
{
    uint64_t *found = NULL, number;
    size_t count = 0, capacity = 0;
    DIR *folder = opendir(to);
    bool nothing = !folder && access(to, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR);
    int status = folder || nothing ? TR_OK : failed(TR_ERR_NO_INPUT, to, "read");
    for (struct dirent *entry; folder && status == TR_OK;) {
        errno = 0;
        if (!(entry = readdir(folder))) {
            if (errno) status = failed(TR_ERR_NO_INPUT, to, "read");
            break;
        }
        if (!parse_number(entry->d_name, strlen(entry->d_name), 8, &number) ||
            !is_folder(folder, entry->d_name))
            continue;
        status = TR_GROW(&found, &capacity, count + 1);
        if (status == TR_OK) found[count++] = number;
    }
    if (folder) closedir(folder);
    if (status != TR_OK) {
        free(found);
        return status;
    }
    if (count > 0) qsort(found, count, sizeof *found, descending);
    *numbers = found;
    *n = count;
    return TR_OK;
}

/* ---- making ---- */

int tr_checkpoint_make(const char *to, uint64_t number)
{
    char *path;
    TR_TRY(tr_make_folder(to));
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

/* Goes on where something cannot be removed: the rest is gone, and the first failure told. */
static int remove_shards(DIR *folder, const char *path, size_t *removed)
{
    int first = TR_OK;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_shard(entry->d_name)) continue;
        int status = first == TR_OK ? remove_file(dirfd(folder), path, entry->d_name, removed) : TR_OK;
        if (first != TR_OK && unlinkat(dirfd(folder), entry->d_name, 0) == 0) ++*removed;
        if (first == TR_OK) first = status;
    }
    return first;
}

static int remove_files(const char *path, size_t *removed)
{
    DIR *folder = opendir(path);
    if (!folder) return errno == ENOENT ? TR_OK : failed(TR_ERR_IO, path, "removed");
    /* without its manifest it is no checkpoint any more, whatever comes; and that first, on the disk too */
    int status = remove_file(dirfd(folder), path, "manifest.h5", removed);
    if (status == TR_OK && *removed > 0 && fsync(dirfd(folder)) < 0 && errno != EINVAL)
        status = failed(TR_ERR_IO, path, "brought to the disk");
    if (status == TR_OK) status = remove_file(dirfd(folder), path, "manifest.h5.part", removed);
    if (status == TR_OK) status = remove_shards(folder, path, removed);
    closedir(folder);
    return status;
}

/* What nothing was removed from, and what is not empty, was none of ours. */
static int remove_checkpoint(const char *to, uint64_t number, bool tell)
{
    char *path;
    size_t removed = 0;
    TR_TRY(tr_checkpoint_path(to, number, &path));
    int status = remove_files(path, &removed);
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

int tr_checkpoints_prune(const char *to, size_t snapshot)
{
    uint64_t *number;
    size_t n, whole = 0;
    int first = TR_OK;
    TR_TRY(tr_checkpoints_list(to, &number, &n));
    for (size_t i = 0; i < n; i++) {
        bool is_whole = has_manifest(to, number[i]);
        whole += is_whole;
        /* without a manifest, above all that have one, it may be in the making */
        if (is_whole ? whole <= snapshot : whole == 0) continue;
        if (first == TR_OK) first = remove_checkpoint(to, number[i], false);
        else {
            char text[1024];
            snprintf(text, sizeof text, "%s", tr_error_text());
            if (remove_checkpoint(to, number[i], false) != TR_OK) tr_fail(first, "%s", text);
        }
    }
    free(number);
    return first;
}

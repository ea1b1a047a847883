#define _GNU_SOURCE
#include "data/cache_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/base.h"
#include "checkpoint/memory_folder.h"

#define NAME "trireme-data-"
enum { SILENCE = 3600 }; /* seconds after which a run that says nothing is over */

/* ---- names ---- */

/* The same from everywhere, whether or not it is there. */
static int whole_path(const char *output, char **path)
{
    char real[PATH_MAX], here[PATH_MAX];
    if (realpath(output, real)) return tr_copy_string(real, path);
    if (*output == '/' || !getcwd(here, sizeof here)) return tr_copy_string(output, path);
    return tr_format(path, "%s/%s", here, output);
}

/* The first of the folders in which checkpoints in memory may lie. */
static const char *get_base(struct tr_memory_bases *bases)
{
    tr_memory_bases(bases);
    return bases->base[0];
}

int tr_cache_folder_path(const char *output, const char *node, char **path)
{
    struct tr_memory_bases bases;
    char *whole, *name = NULL;
    TR_TRY(whole_path(output, &whole));
    int status = tr_format(&name, "%s\n%s", whole, node);
    if (status == TR_OK)
        status = tr_format(path, "%s/" NAME "%ld-%016llx", get_base(&bases), (long)geteuid(),
                           (unsigned long long)XXH3_64bits(name, strlen(name)));
    free(name);
    free(whole);
    return status;
}

/* ---- owners ---- */

struct owner {
    char output[PATH_MAX + 512], node[256];
};

static bool read_owner(int fd, struct owner *owner)
{
    char text[PATH_MAX + 512];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return false;
    text[n] = '\0';
    char *end = strchr(text, '\n');
    if (!end) return false;
    *end = '\0';
    snprintf(owner->output, sizeof owner->output, "%s", text);
    return sscanf(end + 1, "node %255s", owner->node) == 1;
}

static void sign(int fd, const char *output, const char *node)
{
    char *whole, *text;
    if (whole_path(output, &whole) != TR_OK) return;
    if (tr_format(&text, "%s\nnode %s\nprocess %ld\n", whole, node, (long)getpid()) == TR_OK) {
        /* without it the folder cannot be told from one whose run is not known, which goes as well */
        if (ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) < 0) (void)ftruncate(fd, 0);
        free(text);
    }
    free(whole);
}

/* Nobody else may have put something in its place. */
static bool is_ours(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

/* Somebody may have removed the folder between our opening and locking. */
static bool is_still_at(int fd, const char *path)
{
    struct stat locked, there;
    return fstat(fd, &locked) == 0 && stat(path, &there) == 0 && locked.st_ino == there.st_ino &&
           locked.st_dev == there.st_dev;
}

/* The lock of the folder, or -1. */
static int lock_folder(const char *folder, bool make)
{
    char *path;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || !is_still_at(fd, path))) {
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

static int take(struct tr_cache_folder *folder)
{
    for (int turn = 0; turn < 3 && folder->lock < 0; turn++) { /* whoever removes it may be at it */
        if (mkdir(folder->path, 0700) < 0 && errno != EEXIST)
            return tr_fail(TR_ERR_NO_OUTPUT, "%s: %s", folder->path, strerror(errno));
        if (!is_ours(folder->path))
            return tr_fail(TR_ERR_NO_OUTPUT, "%s: is not a folder of this user alone", folder->path);
        folder->lock = lock_folder(folder->path, true);
    }
    return folder->lock >= 0 ? TR_OK
                             : tr_fail(TR_ERR_NO_OUTPUT, "%s: another process is using it", folder->path);
}

int tr_cache_folder_take(const char *output, const char *node, struct tr_cache_folder *folder)
{
    folder->lock = -1;
    TR_TRY(tr_cache_folder_path(output, node, &folder->path));
    int status = take(folder);
    if (status == TR_OK) {
        sign(folder->lock, output, node);
        return TR_OK;
    }
    free(folder->path);
    folder->path = NULL;
    return status;
}

/* ---- removing ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)at;
    (void)(kind == FTW_DP || kind == FTW_DNR ? rmdir(path) : unlink(path));
    return 0;
}

static void remove_tree(const char *path)
{
    if (is_ours(path)) nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void tr_cache_folder_remove(struct tr_cache_folder *folder)
{
    if (folder->path && folder->lock >= 0) {
        remove_tree(folder->path);
        close(folder->lock);
    }
    free(folder->path);
    *folder = (struct tr_cache_folder){.lock = -1};
}

/* ---- those of runs that are over ---- */

/* What its status.json says, which is written anew every few seconds while it runs. */
static bool has_ended(const char *output)
{
    static const char *const ends[] = {"\"state\": \"done\"", "\"state\": \"failed\"",
                                       "\"state\": \"stopped\""};
    char *path, text[2048];
    struct stat status;
    if (tr_format(&path, "%s/status.json", output) != TR_OK) return false;
    FILE *file = fopen(path, "re");
    free(path);
    if (!file) return true;
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    bool ended = fstat(fileno(file), &status) < 0 || time(NULL) - status.st_mtime > SILENCE;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) ended = ended || strstr(text, ends[i]);
    fclose(file);
    return ended;
}

/* The folder itself, or one in it. */
static bool is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static void clean_one(const char *path, const char *ended, const char *node)
{
    struct owner owner;
    if (!is_ours(path)) return;
    int lock = lock_folder(path, false);
    if (lock < 0) {
        (void)rmdir(path); /* of somebody who was killed between two calls; not if there is anything in it */
        return;
    }
    bool known = read_owner(lock, &owner);
    bool here = known && strcmp(owner.node, node) == 0;
    bool over = here && ((ended && is_below(owner.output, ended)) || has_ended(owner.output));
    if (over || !known) remove_tree(path);
    close(lock);
}

static bool is_name(const char *name)
{
    char begin[64];
    int n = snprintf(begin, sizeof begin, NAME "%ld-", (long)geteuid());
    return strncmp(name, begin, (size_t)n) == 0 && strspn(name + n, "0123456789abcdef") == 16 &&
           !name[n + 16];
}

void tr_cache_folders_clean(const char *ended, const char *node)
{
    struct tr_memory_bases bases;
    const char *base = get_base(&bases);
    char *whole = NULL, path[PATH_MAX];
    DIR *all = opendir(base);
    if (all && (!ended || whole_path(ended, &whole) == TR_OK))
        for (struct dirent *entry; (entry = readdir(all));) {
            if (!is_name(entry->d_name)) continue;
            snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
            clean_one(path, whole, node);
        }
    free(whole);
    if (all) closedir(all);
}

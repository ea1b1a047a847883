#define _GNU_SOURCE
#include "data/cache_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
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
#include "base/file.h"
#include "store/persistent.h"

#define KIND    "trireme-data"
#define PASSING "trireme-rows"
enum { SILENCE = 3600 }; /* seconds after which a run that says nothing is over */

/* ---- names ---- */

int tr_cache_folder_path(const char *base, const char *output, char **path)
{
    struct tr_persistent_bases bases;
    char *whole, *name = NULL, host[TR_HOST_BYTES];
    TR_TRY(tr_whole_path(output, &whole));
    tr_persistent_bases(&bases);
    tr_host_name(host);
    int status = tr_format(&name, "%s\n%s", whole, host);
    if (status == TR_OK)
        status = tr_format(path, "%s/" KIND "-%u-%016llx", base ? base : bases.base[0], (unsigned)geteuid(),
                           (unsigned long long)XXH3_64bits(name, strlen(name)));
    free(name);
    free(whole);
    return status;
}

/* ---- owners ---- */

/* The lock of the folder, or -1. */
static int lock_folder(const char *folder, bool make)
{
    char *path;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || !tr_is_still_at(fd, path))) {
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

/* Another job that is starting may be looking just now whose folder this is, on a processor that many share. */
static int take(struct tr_cache_folder *folder)
{
    enum { TURNS = 400 };
    for (int turn = 0; turn < TURNS && folder->lock < 0; turn++) {
        if (turn > 0) tr_sleep(0.005);
        TR_TRY(tr_persistent_make(folder->path));
        folder->lock = lock_folder(folder->path, true);
    }
    return folder->lock >= 0 ? TR_OK
                             : tr_fail(TR_ERR_NO_OUTPUT, "%s: another process is using it", folder->path);
}

int tr_cache_folder_take(const char *base, const char *output, struct tr_cache_folder *folder)
{
    char *files = NULL;
    folder->lock = -1;
    TR_TRY(tr_cache_folder_path(base, output, &folder->path));
    int status = take(folder);
    /* without an owner the folder cannot be told from one whose run is not known, which goes as well */
    if (status == TR_OK && ftruncate(folder->lock, 0) == 0 && !tr_owner_write(folder->lock, output))
        (void)ftruncate(folder->lock, 0);
    if (status == TR_OK) status = tr_format(&files, "%s/" TR_CACHE_FILES, folder->path);
    if (status == TR_OK) status = tr_persistent_make(files);
    free(files);
    if (status != TR_OK) tr_cache_folder_remove(folder);
    return status;
}

/* ---- removing ---- */

void tr_cache_folder_leave(struct tr_cache_folder *folder)
{
    if (folder->lock >= 0) close(folder->lock);
    free(folder->path);
    *folder = (struct tr_cache_folder){.lock = -1};
}

void tr_cache_folder_remove(struct tr_cache_folder *folder)
{
    if (folder->path && folder->lock >= 0) {
        if (tr_persistent_is_own(folder->path)) tr_persistent_remove(folder->path);
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

/* Whether the run is over whose folder this is, one in the folder `ended` at any rate; so it is for one that has no owner. Only who
 * sees the same files can tell by the folder of the run: others leave it. */
static bool is_over(const char *ended, int fd)
{
    char output[PATH_MAX];
    bool here;
    if (!tr_owner_read(fd, output, &here)) return true;
    return here && ((ended && is_below(output, ended)) || has_ended(output));
}

/* Looks without the lock first: a run that goes on may be about to take it. */
static bool seems_over(const char *ended, const char *folder)
{
    char *path;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool over = fd < 0 || is_over(ended, fd);
    if (fd >= 0) close(fd);
    free(path);
    return over;
}

static int clean_one(void *what, const char *path, const char *rest)
{
    const char *ended = what;
    if (strspn(rest, "0123456789abcdef") != 16 || rest[16] || !seems_over(ended, path)) return TR_OK;
    int lock = lock_folder(path, false);
    if (lock < 0) {
        (void)rmdir(path); /* of somebody who was killed between two calls; not if there is anything in it */
        return TR_OK;
    }
    if (is_over(ended, lock)) tr_persistent_remove(path);
    close(lock);
    return TR_OK;
}

/* ---- files that lose their names at once ---- */

int tr_cache_passing_path(char **path)
{
    struct tr_persistent_bases bases;
    char host[TR_HOST_BYTES], view[TR_VIEW_BYTES], name[TR_HOST_BYTES + TR_VIEW_BYTES + 32];
    tr_persistent_bases(&bases);
    tr_host_name(host);
    tr_view_of_processes(view);
    snprintf(name, sizeof name, "%s-%s-%ld", host, view, (long)getpid());
    return tr_persistent_path(bases.base[0], PASSING, name, path);
}

/* Of processes that are no more, and that this process would know. */
static void remove_passing(void)
{
    struct tr_persistent_bases bases;
    glob_t found;
    char *pattern, host[TR_HOST_BYTES], view[TR_VIEW_BYTES];
    tr_persistent_bases(&bases);
    tr_host_name(host);
    tr_view_of_processes(view);
    if (tr_format(&pattern, "%s/" PASSING "-%u-%s-%s-*", bases.base[0], (unsigned)geteuid(), host, view) !=
        TR_OK)
        return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            long pid = strtol(strrchr(found.gl_pathv[i], '-') + 1, NULL, 10);
            if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH) unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    free(pattern);
}

void tr_cache_clean(const char *ended)
{
    char *whole = NULL;
    if (!ended || tr_whole_path(ended, &whole) == TR_OK) (void)tr_persistent_each(KIND, clean_one, whole);
    remove_passing();
    free(whole);
}

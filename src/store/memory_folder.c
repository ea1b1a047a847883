#define _GNU_SOURCE
#include "store/memory_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "store/persistent.h"
#include "store/checked.h"
#include "store/folder.h"
#include "store/shard.h"

#define KIND "trireme"
#define NAME "memory" /* in the folder of the checkpoints on the disk */

/* ---- all folders ---- */

/* What is done with the folders of this user on this host. */
struct visit {
    int (*look)(struct visit *v, const char *folder, uint64_t run);
    char host[TR_HOST_BYTES];
    uint64_t run;                /* that it is about */
    uint64_t number, other;      /* removing: which stay */
    struct tr_memory_file *file; /* listing */
    size_t n, capacity;
};

/* name: <run, 16 digits>-<host>.<node> */
static int visit(void *what, const char *path, const char *name)
{
    struct visit *v = what;
    size_t length = strlen(v->host);
    const char *host = name + 17, *node = host + length + 1;
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '-') return TR_OK;
    if (strncmp(host, v->host, length) != 0 || host[length] != '.') return TR_OK;
    if (!*node || strspn(node, "0123456789") != strlen(node)) return TR_OK;
    return v->look(v, path, strtoull(name, NULL, 16));
}

static int for_each_folder(struct visit *v)
{
    tr_host_name(v->host);
    return tr_persistent_each(KIND, visit, v);
}

/* ---- making ---- */

/* Ranks of a node may do it at the same time. */
static int make_owner(const char *folder, const char *to)
{
    char *path;
    TR_TRY(tr_format(&path, "%s/owner", folder));
    int status = TR_OK, fd = access(path, F_OK) == 0 ? -2 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd == -1 || (fd >= 0 && !tr_owner_write(fd, to)))
        status = tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

int tr_memory_make(const char *base, uint64_t run, int node, const char *to, uint64_t number, char **path)
{
    char host[TR_HOST_BYTES], name[TR_HOST_BYTES + 40], *folder, *own = NULL;
    tr_host_name(host);
    snprintf(name, sizeof name, "%016" PRIx64 "-%s.%d", run, host, node);
    TR_TRY(tr_persistent_path(base, KIND, name, &folder));
    int status = tr_persistent_make(folder);
    if (status == TR_OK) status = make_owner(folder, to);
    if (status == TR_OK) status = tr_checkpoint_path(folder, number, &own);
    if (status == TR_OK) status = tr_persistent_make(own);
    free(own);
    if (status == TR_OK) *path = folder;
    else free(folder);
    return status;
}

/* ---- listing ---- */

static int list_file(struct visit *v, const char *folder, const char *path)
{
    struct tr_memory_file f = {.number = 0};
    char is[64], name[TR_SHARD_NAME_BYTES];
    uint32_t shard;
    const char *rest = path + strlen(folder);
    if (sscanf(rest, "/%20" SCNu64 "/shard-%10" SCNu32 ".h5", &f.number, &shard) != 2) return TR_OK;
    tr_shard_name(shard, name);
    snprintf(is, sizeof is, "/%08" PRIu64 "/%s", f.number, name);
    if (strcmp(rest, is) != 0) return TR_OK;
    f.shard = shard;
    TR_TRY(tr_copy_string(path, &f.path));
    int status = TR_GROW(&v->file, &v->capacity, v->n + 1);
    if (status == TR_OK) v->file[v->n++] = f;
    else free(f.path);
    return status;
}

static int list_folder(struct visit *v, const char *folder, uint64_t run)
{
    char *pattern;
    glob_t found;
    if (run != v->run) return TR_OK;
    TR_TRY(tr_format(&pattern, "%s/*/shard-*.h5", folder));
    int status = TR_OK;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && status == TR_OK; i++)
            status = list_file(v, folder, found.gl_pathv[i]);
        globfree(&found);
    }
    free(pattern);
    return status;
}

static int newest_first(const void *a, const void *b)
{
    const struct tr_memory_file *x = a, *y = b;
    if (x->number != y->number) return x->number > y->number ? -1 : 1;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return strcmp(x->path, y->path);
}

int tr_memory_list(uint64_t run, struct tr_memory_file **files, size_t *n)
{
    struct visit v = {.look = list_folder, .run = run};
    int status = for_each_folder(&v);
    if (v.n > 0) qsort(v.file, v.n, sizeof *v.file, newest_first);
    *files = v.file;
    *n = v.n;
    if (status == TR_OK) return TR_OK;
    tr_memory_files_free(v.file, v.n);
    *files = NULL;
    *n = 0;
    return status;
}

void tr_memory_files_free(struct tr_memory_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}

/* ---- the run that has something in memory ---- */

uint64_t tr_memory_run(const char *to)
{
    return tr_read_run(to, NAME);
}

int tr_memory_name(const char *to, uint64_t run)
{
    if (tr_memory_run(to) == run) return TR_OK;
    TR_TRY(tr_make_folder(to, true));
    return tr_write_run(to, NAME, run);
}

void tr_memory_unname(const char *to)
{
    char *path;
    if (tr_format(&path, "%s/" NAME, to) != TR_OK) return;
    if (unlink(path) == 0) rmdir(to); /* where there is nothing else */
    free(path);
}

/* ---- removing ---- */

static int remove_from(struct visit *v, const char *folder, uint64_t run)
{
    uint64_t *number;
    size_t n;
    char *path;
    if (run != v->run) return TR_OK;
    if (v->number == 0 && v->other == 0) {
        tr_persistent_remove(folder);
        return TR_OK;
    }
    if (tr_checkpoints_list(folder, &number, &n) != TR_OK) return TR_OK;
    for (size_t i = 0; i < n; i++) {
        if (number[i] == v->number || number[i] == v->other) continue;
        if (tr_checkpoint_path(folder, number[i], &path) != TR_OK) break;
        tr_persistent_remove(path);
        free(path);
    }
    free(number);
    return TR_OK;
}

void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other)
{
    struct visit v = {.look = remove_from, .run = run, .number = number, .other = other};
    (void)for_each_folder(&v);
}

/* Whether the folder is not named where its owner says. That it cannot be looked up is no reason, nor can it be by who sees
 * other files. */
static bool is_left_over(const char *folder, uint64_t run)
{
    enum { YOUNG = 600 };
    struct stat about;
    char *path, to[PATH_MAX];
    bool here;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool hidden = fd < 0 && errno != ENOENT, known = fd >= 0 && tr_owner_read(fd, to, &here);
    if (fd >= 0) close(fd);
    free(path);
    if (hidden) return false;
    if (!known) /* nobody has written it, or not yet */
        return stat(folder, &about) == 0 && time(NULL) > about.st_mtime + YOUNG;
    if (!here || tr_format(&path, "%s/" NAME, to) != TR_OK) return false;
    bool none = access(path, F_OK) < 0, seen = !none || errno == ENOENT || errno == ENOTDIR;
    free(path);
    return seen && (none || tr_memory_run(to) != run);
}

static int clean(struct visit *v, const char *folder, uint64_t run)
{
    if (run != v->run && is_left_over(folder, run)) tr_persistent_remove(folder);
    return TR_OK;
}

void tr_memory_clean(uint64_t run)
{
    struct visit v = {.look = clean, .run = run};
    (void)for_each_folder(&v);
}

void tr_memory_give_up(const char *to, const char *output)
{
    char *folder;
    if (tr_checkpoints_place(to, output, &folder) != TR_OK) return;
    uint64_t run = tr_memory_run(folder);
    if (run != 0) {
        tr_memory_unname(folder);
        tr_memory_remove(run, 0, 0);
    }
    free(folder);
}

#define _GNU_SOURCE
#include "store/memory_folder.h"

#include <dirent.h>
#include <errno.h>
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
#include "base/lasting.h"
#include "store/folder.h"
#include "store/shard.h"

#define KIND  "trireme"
#define NAME  "memory" /* in the folder of the checkpoints on the disk */
#define OWNER "owner"

/* ---- names ---- */

/* Whether it is the name of a folder on this host, and of which run; rest: behind the user. */
static bool parse_name(const char *rest, const char *host, uint64_t *run)
{
    size_t length = strlen(host);
    if (strspn(rest, "0123456789abcdef") != 16 || rest[16] != '-') return false;
    *run = strtoull(rest, NULL, 16);
    rest += 17;
    if (strncmp(rest, host, length) != 0 || rest[length] != '.') return false;
    rest += length + 1;
    return *rest && strspn(rest, "0123456789") == strlen(rest);
}

typedef int folder_fn(void *who, const char *path, uint64_t run);

struct visit {
    folder_fn *look;
    void *who;
    char host[TR_LASTING_HOST];
};

static int visit(void *what, const char *path, const char *rest)
{
    const struct visit *v = what;
    uint64_t run;
    return parse_name(rest, v->host, &run) ? v->look(v->who, path, run) : TR_OK;
}

/* All folders of this user on this host. */
static int for_each_folder(folder_fn *look, void *who)
{
    struct visit v = {.look = look, .who = who};
    tr_lasting_host(v.host);
    return tr_lasting_each(KIND, visit, &v);
}

/* ---- making ---- */

static int no_output(const char *path)
{
    return tr_fail(TR_ERR_NO_OUTPUT, "%s: cannot be made: %s", path, strerror(errno));
}

static int make_owner(const char *folder, const char *to)
{
    char *path, *real = realpath(to, NULL);
    int status = tr_format(&path, "%s/" OWNER, folder);
    if (status == TR_OK) {
        FILE *file = access(path, F_OK) == 0 ? NULL : fopen(path, "w");
        if (file && fputs(real ? real : to, file) < 0) status = no_output(path);
        if (file && fclose(file) != 0 && status == TR_OK) status = no_output(path);
        free(path);
    }
    free(real);
    return status;
}

int tr_memory_make(const char *base, uint64_t run, int node, const char *to, uint64_t number, char **path)
{
    char host[TR_LASTING_HOST], *folder, *own = NULL;
    tr_lasting_host(host);
    TR_TRY(tr_format(&folder, "%s/" KIND "-%u-%016" PRIx64 "-%s.%d", base, (unsigned)geteuid(), run, host,
                     node));
    int status = tr_lasting_make(folder);
    if (status == TR_OK) status = make_owner(folder, to);
    if (status == TR_OK) status = tr_checkpoint_path(folder, number, &own);
    if (status == TR_OK) status = tr_lasting_make(own);
    free(own);
    if (status == TR_OK) *path = folder;
    else free(folder);
    return status;
}

/* ---- listing ---- */

struct listing {
    uint64_t run;
    struct tr_memory_file *file;
    size_t n, room;
};

static bool parse_file(const char *name, int64_t *shard)
{
    char text[TR_SHARD_NAME_BYTES];
    uint32_t number;
    *shard = TR_MEMORY_MANIFEST;
    if (!strcmp(name, "manifest.h5")) return true;
    if (sscanf(name, "shard-%10" SCNu32 ".h5", &number) != 1) return false;
    *shard = number;
    tr_shard_name(number, text);
    return !strcmp(name, text);
}

static int list_number(struct listing *l, const char *folder, uint64_t number)
{
    char *path;
    TR_TRY(tr_checkpoint_path(folder, number, &path));
    DIR *dir = opendir(path);
    int status = TR_OK;
    int64_t shard;
    for (struct dirent *entry; dir && status == TR_OK && (entry = readdir(dir));) {
        if (!parse_file(entry->d_name, &shard)) continue;
        status = TR_GROW(&l->file, &l->room, l->n + 1);
        if (status != TR_OK) break;
        l->file[l->n] = (struct tr_memory_file){.number = number, .shard = shard};
        status = tr_format(&l->file[l->n].path, "%s/%s", path, entry->d_name);
        if (status == TR_OK) l->n++;
    }
    if (dir) closedir(dir);
    free(path);
    return status;
}

static int list_folder(void *who, const char *folder, uint64_t run)
{
    struct listing *l = who;
    uint64_t *number;
    size_t n;
    if (run != l->run || tr_checkpoints_list(folder, &number, &n) != TR_OK) return TR_OK;
    int status = TR_OK;
    for (size_t i = 0; i < n && status == TR_OK; i++) status = list_number(l, folder, number[i]);
    free(number);
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
    struct listing l = {.run = run};
    int status = for_each_folder(list_folder, &l);
    if (status != TR_OK) {
        tr_memory_files_free(l.file, l.n);
        return status;
    }
    if (l.n > 0) qsort(l.file, l.n, sizeof *l.file, newest_first);
    *files = l.file;
    *n = l.n;
    return TR_OK;
}

void tr_memory_files_free(struct tr_memory_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}

/* ---- the run that has something in memory ---- */

uint64_t tr_memory_run(const char *to)
{
    char *path;
    uint64_t run = 0;
    if (tr_format(&path, "%s/" NAME, to) != TR_OK) return 0;
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return 0;
    if (fscanf(file, "%16" SCNx64, &run) != 1) run = 0;
    fclose(file);
    return run;
}

int tr_memory_name(const char *to, uint64_t run)
{
    char *path, *part;
    if (tr_memory_run(to) == run) return TR_OK;
    TR_TRY(tr_make_folder(to));
    TR_TRY(tr_format(&path, "%s/" NAME, to));
    int status = tr_format(&part, "%s.part", path);
    if (status == TR_OK) {
        FILE *file = fopen(part, "w");
        bool written = file && fprintf(file, "%016" PRIx64 "\n", run) > 0;
        if (file && fclose(file) != 0) written = false;
        if (!written || rename(part, path) < 0)
            status = tr_fail(TR_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
        free(part);
    }
    free(path);
    return status;
}

void tr_memory_unname(const char *to)
{
    char *path;
    if (tr_format(&path, "%s/" NAME, to) != TR_OK) return;
    if (unlink(path) == 0) rmdir(to); /* where there is nothing else */
    free(path);
}

/* ---- removing ---- */

struct removal {
    uint64_t run, number, other;
};

/* The owner goes last: a folder without one that is not quite young is left over as well. */
static int remove_from(void *who, const char *folder, uint64_t run)
{
    const struct removal *r = who;
    uint64_t *number;
    size_t n;
    char *path;
    if (run != r->run || tr_checkpoints_list(folder, &number, &n) != TR_OK) return TR_OK;
    for (size_t i = 0; i < n; i++) {
        if (number[i] == r->number || number[i] == r->other) continue;
        if (tr_checkpoint_path(folder, number[i], &path) != TR_OK) break;
        tr_lasting_remove(path);
        free(path);
    }
    free(number);
    if (!r->number && !r->other) tr_lasting_remove(folder);
    return TR_OK;
}

void tr_memory_remove(uint64_t run, uint64_t number, uint64_t other)
{
    struct removal r = {run, number, other};
    (void)for_each_folder(remove_from, &r);
}

/* Whether the folder is not named where its owner says. That it cannot be looked up is no reason. */
static bool is_left_over(const char *folder, uint64_t run)
{
    char *path, to[PATH_MAX] = "";
    struct stat about;
    if (tr_format(&path, "%s/" OWNER, folder) != TR_OK) return false;
    FILE *file = fopen(path, "r");
    bool hidden = !file && errno != ENOENT;
    free(path);
    if (hidden) return false;
    size_t length = file ? fread(to, 1, sizeof to - 1, file) : 0;
    if (file) fclose(file);
    to[length] = '\0';
    if (length == 0) { /* nobody has written it, or not yet */
        enum { YOUNG = 600 };
        return stat(folder, &about) == 0 && time(NULL) > about.st_mtime + YOUNG;
    }
    if (tr_format(&path, "%s/" NAME, to) != TR_OK) return false;
    bool none = access(path, F_OK) < 0;
    bool known = !none || errno == ENOENT || errno == ENOTDIR;
    free(path);
    return known && (none || tr_memory_run(to) != run);
}

static int clean(void *who, const char *folder, uint64_t run)
{
    const uint64_t *own = who;
    if (run == *own || !is_left_over(folder, run)) return TR_OK;
    struct removal r = {run, 0, 0};
    return remove_from(&r, folder, run);
}

void tr_memory_clean(uint64_t run)
{
    (void)for_each_folder(clean, &run);
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

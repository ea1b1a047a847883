#define _GNU_SOURCE
#include "watch/runs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/json.h"

enum { STATUS, METRICS, SUMMARY };
enum { DEEPEST = 6, MOST_ENTRIES = 200000, LONGEST_STATUS = 1 << 20 };

const char *const tr_watched_file[TR_WATCHED_FILES] = {
    "status.json", "metrics.csv", "summary.json", "job.yaml", "ranks.json", "events.csv", "log"};

int tr_watched_file_number(const char *name)
{
    for (int i = 0; i < TR_WATCHED_FILES; i++)
        if (strcmp(tr_watched_file[i], name) == 0) return i;
    return -1;
}

/* ---- the list ---- */

/* Its place, or where it belongs. */
static size_t place_of(const struct tr_watched_runs *w, const char *id)
{
    size_t low = 0, high = w->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(w->run[middle].id, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

const struct tr_watched_run *tr_watched_find(const struct tr_watched_runs *w, const char *id)
{
    size_t i = place_of(w, id);
    return i < w->n && strcmp(w->run[i].id, id) == 0 && w->run[i].there ? &w->run[i] : NULL;
}

static void free_run(struct tr_watched_run *run)
{
    free(run->id);
    free(run->path);
    free(run->status);
}

static int find_or_add(struct tr_watched_runs *w, const char *id, const char *path,
                       struct tr_watched_run **run)
{
    size_t i = place_of(w, id);
    if (i == w->n || strcmp(w->run[i].id, id) != 0) {
        struct tr_watched_run fresh = {.id = NULL};
        int status = TR_GROW(&w->run, &w->capacity, w->n + 1);
        if (status == TR_OK) status = tr_copy_string(id, &fresh.id);
        if (status == TR_OK) status = tr_copy_string(path, &fresh.path);
        if (status == TR_OK) status = tr_copy_string("", &fresh.status);
        if (status != TR_OK) return free_run(&fresh), status;
        memmove(&w->run[i + 1], &w->run[i], (w->n++ - i) * sizeof *w->run);
        w->run[i] = fresh;
    }
    *run = &w->run[i];
    return TR_OK;
}

void tr_watched_free(struct tr_watched_runs *w)
{
    for (size_t i = 0; i < w->n; i++) free_run(&w->run[i]);
    free(w->run);
    *w = (struct tr_watched_runs){.folder = NULL};
}

/* ---- looking ---- */

int tr_watched_open(const struct tr_watched_run *run, int file)
{
    char *path;
    struct stat seen;
    if (tr_format(&path, "%s/%s", run->path, tr_watched_file[file]) != TR_OK) return -1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    free(path);
    if (fd >= 0 && fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int read_status(struct tr_watched_run *run)
{
    char *text = NULL;
    size_t length = 0;
    int fd = tr_watched_open(run, STATUS);
    int status = TR_NEW(&text, LONGEST_STATUS + 1);
    for (ssize_t n = 1; fd >= 0 && status == TR_OK && n > 0 && length < LONGEST_STATUS;) {
        n = read(fd, text + length, LONGEST_STATUS - length);
        if (n > 0) length += (size_t)n;
    }
    if (fd >= 0) close(fd);
    if (status != TR_OK) return status;
    tr_shrink((void **)&text, length + 1, 1);
    free(run->status);
    run->status = text;
    return TR_OK;
}

/* What has become of its files since the last look. */
static int look_at_run(struct tr_watched_runs *w, int folder, const bool *has, const char *id,
                       const char *path)
{
    struct tr_watched_run *run;
    TR_TRY(find_or_add(w, id, path, &run));
    bool changed = !run->there, status_changed = changed;
    run->there = true;
    run->seen = w->looks;
    for (int i = 0; i < TR_WATCHED_FILES; i++) {
        struct stat seen;
        int64_t size = -1;
        uint64_t mark = 0;
        if (has[i] && fstatat(folder, tr_watched_file[i], &seen, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(seen.st_mode)) {
            size = seen.st_size;
            mark = tr_mix(tr_mix((uint64_t)seen.st_mtim.tv_nsec) + (uint64_t)seen.st_mtim.tv_sec) +
                   tr_mix((uint64_t)seen.st_ino) + (uint64_t)size;
        }
        if (mark == run->mark[i] && size == run->size[i]) continue;
        changed = true;
        status_changed = status_changed || i == STATUS;
        run->mark[i] = mark;
        run->size[i] = size;
    }
    if (changed) run->changed = w->looks;
    return status_changed ? read_status(run) : TR_OK;
}

static int look_below(struct tr_watched_runs *w, const char *id, const char *path, int depth);

static int look_at_folder(struct tr_watched_runs *w, DIR *folder, bool *has, const char *id, const char *path,
                          int depth)
{
    int status = TR_OK;
    for (struct dirent *e; status == TR_OK && (e = readdir(folder)) != NULL;) {
        struct stat seen;
        char *below = NULL, *name = NULL;
        w->cut = w->cut || ++w->entries > MOST_ENTRIES;
        if (w->cut) return TR_OK;
        int file = tr_watched_file_number(e->d_name);
        if (file >= 0 && (e->d_type == DT_REG || e->d_type == DT_UNKNOWN)) has[file] = true;
        bool is_folder = e->d_type == DT_DIR;
        if (e->d_type == DT_UNKNOWN)
            is_folder =
                fstatat(dirfd(folder), e->d_name, &seen, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(seen.st_mode);
        if (!is_folder || *e->d_name == '.' || strcmp(e->d_name, "checkpoints") == 0 || depth == DEEPEST)
            continue;
        status = tr_format(&below, "%s/%s", path, e->d_name);
        if (status == TR_OK) status = tr_format(&name, "%s/%s", id, e->d_name);
        if (status == TR_OK) status = look_below(w, name, below, depth + 1);
        free(below);
        free(name);
    }
    return status;
}

static int look_below(struct tr_watched_runs *w, const char *id, const char *path, int depth)
{
    bool has[TR_WATCHED_FILES] = {false};
    DIR *folder = opendir(path);
    if (!folder) return TR_OK;
    int status = look_at_folder(w, folder, has, id, path, depth);
    if (status == TR_OK && (has[STATUS] || has[METRICS] || has[SUMMARY]))
        status = look_at_run(w, dirfd(folder), has, id, path);
    closedir(folder);
    return status;
}

int tr_watched_look(struct tr_watched_runs *w)
{
    double begin = tr_now();
    int status = TR_OK;
    if (begin < w->next) return TR_OK;
    w->looks++;
    w->entries = 0;
    w->cut = false;
    for (size_t i = 0; i < w->folders && status == TR_OK; i++) {
        char id[24];
        snprintf(id, sizeof id, "%zu", i);
        status = look_below(w, id, w->folder[i], 0);
    }
    for (size_t i = 0; i < w->n && !w->cut && status == TR_OK; i++) {
        struct tr_watched_run *run = &w->run[i];
        if (!run->there || run->seen == w->looks) continue;
        run->there = false;
        run->changed = w->looks;
    }
    double took = tr_now() - begin;
    w->next = begin + took + (took > 0.1 ? 9 * took : 1 - took);
    return status;
}

void tr_watched_write(FILE *file, const struct tr_watched_run *run)
{
    const char *comma = "";
    fputs("{\"id\": ", file);
    tr_json_text(file, run->id);
    if (run->there) {
        tr_json_text_behind(file, "path", run->path);
        tr_json_text_behind(file, "status", run->status);
        fputs(", \"files\": {", file);
        for (int i = 0; i < TR_WATCHED_FILES; i++) {
            if (run->size[i] < 0) continue;
            fprintf(file, "%s\"%s\": [%lld, \"%llx\"]", comma, tr_watched_file[i], (long long)run->size[i],
                    (unsigned long long)run->mark[i]);
            comma = ", ";
        }
        fputs("}", file);
    }
    fputs("}", file);
}

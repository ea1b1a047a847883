/* The list of runs of trireme watch. watch.h explains scans. */
#define _GNU_SOURCE
#include "watch/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"

enum { STATUS, METRICS, SUMMARY }; /* indices into tr_watched_file */
/* Maximum depth of subfolders, number of directory entries in a scan, and bytes of status.json that are read. */
enum { DEEPEST = 6, MOST_ENTRIES = 200000, LONGEST_STATUS = 1 << 20 };

const char *const tr_watched_file[TR_WATCHED_FILES] = {
    "status.json", "metrics.csv", "summary.json", "job.yaml", "ranks.json", "events.csv", "log"};

int tr_watched_file_number(const char *name)
{
    for (int i = 0; i < TR_WATCHED_FILES; i++)
        if (strcmp(tr_watched_file[i], name) == 0) return i;
    return -1;
}

/* ---- the list of runs, sorted by id ---- */

/* Returns the index of the run with this id, or, if there is none, the index at which the run must be inserted. */
static size_t find_index(const struct tr_watched_runs *w, const char *id)
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
    size_t i = find_index(w, id);
    return i < w->n && strcmp(w->run[i].id, id) == 0 && w->run[i].there ? &w->run[i] : NULL;
}

static void free_run(struct tr_watched_run *run)
{
    TR_FREE_ALL(run->id, run->path, run->status);
}

static int find_or_add(struct tr_watched_runs *w, const char *id, const char *path,
                       struct tr_watched_run **run)
{
    size_t i = find_index(w, id);
    if (i == w->n || strcmp(w->run[i].id, id) != 0) {
        struct tr_watched_run added = {.id = NULL};
        int status = TR_GROW(&w->run, &w->capacity, w->n + 1);
        if (status == TR_OK) status = tr_copy_string(id, &added.id);
        if (status == TR_OK) status = tr_copy_string(path, &added.path);
        if (status == TR_OK) status = tr_copy_string("", &added.status);
        if (status != TR_OK) return free_run(&added), status;
        memmove(&w->run[i + 1], &w->run[i], (w->n++ - i) * sizeof *w->run);
        w->run[i] = added;
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

/* ---- opening without following symbolic links ---- */

/* Opens a folder by its absolute path, one component at a time, so that it also fails if a component was replaced by a symbolic
 * link since the scan. Returns a descriptor for openat(), or -1. */
static int open_folder(const char *path)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (; fd >= 0 && *(path += strspn(path, "/")); path += strcspn(path, "/")) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(path, "/");
        int above = fd;
        fd = -1;
        if (length <= NAME_MAX) {
            snprintf(name, sizeof name, "%.*s", (int)length, path);
            fd = openat(above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        close(above);
    }
    return fd;
}

static int open_file(int folder, int file)
{
    struct stat found;
    int fd = openat(folder, tr_watched_file[file], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

int tr_watched_open(const struct tr_watched_run *run, int file)
{
    int folder = open_folder(run->path);
    if (folder < 0) return -1;
    int fd = open_file(folder, file);
    close(folder);
    return fd;
}

/* ---- the scan ---- */

/* Adds a run, or updates it if one of its files has changed since the last scan. has: per file, whether the folder contains it. */
static int scan_run(struct tr_watched_runs *w, int folder, const bool *has, const char *id, const char *path)
{
    struct tr_watched_run *run;
    char *text = NULL;
    size_t length = 0;
    TR_TRY(find_or_add(w, id, path, &run));
    bool changed = !run->there, status_changed = changed;
    run->there = true;
    run->seen = w->scans;
    for (int i = 0; i < TR_WATCHED_FILES; i++) {
        struct stat found;
        int64_t size = -1;
        uint64_t mark = 0;
        if (has[i] && fstatat(folder, tr_watched_file[i], &found, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(found.st_mode)) {
            size = found.st_size;
            mark = tr_mix(tr_mix((uint64_t)found.st_mtim.tv_nsec) + (uint64_t)found.st_mtim.tv_sec) +
                   tr_mix((uint64_t)found.st_ino) + (uint64_t)size;
        }
        if (mark == run->mark[i] && size == run->size[i]) continue;
        changed = true;
        status_changed = status_changed || i == STATUS;
        run->mark[i] = mark;
        run->size[i] = size;
    }
    if (changed) run->changed = w->scans;
    if (!status_changed) return TR_OK;
    TR_TRY(TR_NEW(&text, LONGEST_STATUS + 1));
    int fd = open_file(folder, STATUS);
    for (ssize_t n = 1; fd >= 0 && n > 0 && length < LONGEST_STATUS;) {
        n = read(fd, text + length, LONGEST_STATUS - length);
        if (n > 0) length += (size_t)n;
    }
    if (fd >= 0) close(fd);
    tr_shrink((void **)&text, length + 1, 1);
    free(run->status);
    run->status = text;
    return TR_OK;
}

/* Scans the folder `name`, which is in the open folder `above`, and its subfolders. Skips a folder that cannot be opened. */
static int scan_folder(struct tr_watched_runs *w, int above, const char *name, const char *id,
                       const char *path, int depth)
{
    bool has[TR_WATCHED_FILES] = {false};
    int status = TR_OK, fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        if (fd >= 0) close(fd);
        return TR_OK;
    }
    for (struct dirent *e; status == TR_OK && (e = readdir(folder)) != NULL;) {
        struct stat found;
        TR_FREED char *subpath = NULL, *subid = NULL;
        w->cut = w->cut || ++w->entries > MOST_ENTRIES;
        if (w->cut) break;
        int file = tr_watched_file_number(e->d_name);
        if (file >= 0 && (e->d_type == DT_REG || e->d_type == DT_UNKNOWN)) has[file] = true;
        bool is_folder = e->d_type == DT_DIR;
        if (e->d_type == DT_UNKNOWN)
            is_folder = fstatat(fd, e->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode);
        if (!is_folder || *e->d_name == '.' || strcmp(e->d_name, "checkpoints") == 0 || depth == DEEPEST)
            continue;
        status = tr_format(&subpath, "%s/%s", path, e->d_name);
        if (status == TR_OK) status = tr_format(&subid, "%s/%s", id, e->d_name);
        if (status == TR_OK) status = scan_folder(w, fd, e->d_name, subid, subpath, depth + 1);
    }
    if (status == TR_OK && (has[STATUS] || has[METRICS] || has[SUMMARY]))
        status = scan_run(w, fd, has, id, path);
    closedir(folder);
    return status;
}

int tr_watched_scan(struct tr_watched_runs *w)
{
    double begin = tr_now();
    int status = TR_OK;
    if (begin < w->next) return TR_OK;
    w->scans++;
    w->entries = 0;
    w->cut = false;
    for (size_t i = 0; i < w->folders && status == TR_OK; i++) {
        char id[24];
        int folder = open_folder(w->folder[i]);
        if (folder < 0) continue;
        snprintf(id, sizeof id, "%zu", i);
        status = scan_folder(w, folder, ".", id, w->folder[i], 0);
        close(folder);
    }
    for (size_t i = 0; i < w->n && !w->cut && status == TR_OK; i++) {
        struct tr_watched_run *run = &w->run[i];
        if (!run->there || run->seen == w->scans) continue;
        run->there = false;
        run->changed = w->scans;
    }
    double seconds = tr_now() - begin;
    w->next = begin + seconds + (seconds > 0.1 ? 9 * seconds : 1 - seconds);
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

#define _GNU_SOURCE
#include "data/files.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* ---- opening ---- */

static int no_input(const char *path, const char *why)
{
    return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, why);
}

static bool starts_with_gzip_magic(int fd)
{
    unsigned char magic[2];
    return pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

static int look_at(const char *path, struct tr_file *file)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (fd < 0) return no_input(path, strerror(errno));
    int result = TR_OK;
    if (fstat(fd, &status) < 0) result = no_input(path, strerror(errno));
    else if (S_ISDIR(status.st_mode))
        result = no_input(path, "a folder, expected a file (its files: add /*)");
    else if (!S_ISREG(status.st_mode)) result = no_input(path, "not a regular file");
    else *file = (struct tr_file){.size = (uint64_t)status.st_size, .gzip = starts_with_gzip_magic(fd)};
    close(fd);
    return result == TR_OK ? tr_copy_string(path, &file->path) : result;
}

static int add_file(struct tr_files *files, size_t *capacity, const char *path)
{
    struct tr_file file;
    TR_TRY(TR_GROW(&files->file, capacity, files->n + 1));
    TR_TRY(look_at(path, &file));
    files->file[files->n++] = file;
    files->total += file.size;
    return TR_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* glob() sorts by the user's language, which differs between machines: we sort by bytes. */
static int add_matches(struct tr_files *files, size_t *capacity, const char *pattern)
{
    glob_t matches;
    int code = glob(pattern, GLOB_NOSORT, NULL, &matches);
    if (code == GLOB_NOMATCH) return no_input(pattern, "no such file");
    if (code) return tr_fail(TR_ERR_SYSTEM, "%s: cannot expand this pattern", pattern);
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, compare_paths);
    int result = TR_OK;
    for (size_t i = 0; i < matches.gl_pathc && result == TR_OK; i++)
        result = add_file(files, capacity, matches.gl_pathv[i]);
    globfree(&matches);
    return result;
}

/* A file of exactly that name wins, so that data[1].txt can be read. */
static int add_pattern(struct tr_files *files, size_t *capacity, const char *pattern)
{
    struct stat status;
    if (stat(pattern, &status) == 0) return add_file(files, capacity, pattern);
    return add_matches(files, capacity, pattern);
}

int tr_files_open(char *const patterns[], size_t n, struct tr_files *files)
{
    struct tr_files opened = {0};
    size_t capacity = 0;
    int result = TR_OK;
    for (size_t i = 0; i < n && result == TR_OK; i++) result = add_pattern(&opened, &capacity, patterns[i]);
    if (result == TR_OK && opened.n == 0) result = tr_fail(TR_ERR_NO_INPUT, "no input files");
    if (result == TR_OK && opened.total == 0)
        result =
            no_input(opened.file[0].path, opened.n == 1 ? "empty" : "empty, as are all other input files");
    if (result == TR_OK) *files = opened;
    else tr_files_close(&opened);
    return result;
}

void tr_files_close(struct tr_files *files)
{
    for (size_t i = 0; i < files->n; i++) free(files->file[i].path);
    free(files->file);
    *files = (struct tr_files){0};
}

static bool matches_something(const char *pattern)
{
    struct stat status;
    if (stat(pattern, &status) == 0) return true;
    glob_t matches;
    int code = glob(pattern, GLOB_NOSORT, NULL, &matches);
    if (code == 0) globfree(&matches);
    return code == 0;
}

int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found)
{
    for (size_t i = 0; i < n && pattern[0] != '/'; i++) {
        char *path;
        if (strcmp(folders[i], ".") == 0) TR_TRY(tr_copy_string(pattern, &path));
        else TR_TRY(tr_format(&path, "%s/%s", folders[i], pattern));
        if (matches_something(path)) {
            *found = path;
            return TR_OK;
        }
        free(path);
    }
    return tr_copy_string(pattern, found);
}

/* ---- division ---- */

/* k * total / readers without overflow. */
static uint64_t share_begin(uint64_t total, size_t reader, size_t readers)
{
    return reader * (total / readers) + reader * (total % readers) / readers;
}

struct range {
    uint64_t begin, end;
};

/* What lies of the file in the reader's share, in bytes of the file. */
static struct range overlap(uint64_t start, uint64_t size, uint64_t total, size_t reader, size_t readers)
{
    uint64_t begin = share_begin(total, reader, readers), end = share_begin(total, reader + 1, readers);
    if (begin < start) begin = start;
    if (end > start + size) end = start + size;
    if (begin >= end) return (struct range){0, 0};
    return (struct range){begin - start, end - start};
}

bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_part *part)
{
    uint64_t start = 0, size = files->file[file].size;
    for (size_t i = 0; i < file; i++) start += files->file[i].size;
    struct range mine = overlap(start, size, files->total, reader, readers);
    if (mine.begin == mine.end) return false;
    *part = (struct tr_part){.file = file, .begin = mine.begin, .end = mine.end};
    for (size_t k = 0; k < readers; k++) {
        struct range other = overlap(start, size, files->total, k, readers);
        if (other.begin == other.end) continue;
        part->turns++;
        part->turn += k < reader;
    }
    return true;
}

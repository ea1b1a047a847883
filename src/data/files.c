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
    *found = NULL;
    if (pattern[0] == '/') return tr_copy_string(pattern, found);
    for (size_t i = 0; i < n; i++) {
        char *path;
        if (strcmp(folders[i], ".") == 0) TR_TRY(tr_copy_string(pattern, &path));
        else TR_TRY(tr_format(&path, "%s/%s", folders[i], pattern));
        if (matches_something(path)) {
            *found = path;
            return TR_OK;
        }
        free(path);
    }
    return TR_OK;
}

/* ---- division ---- */

#define CHUNKS        64                   /* that each reader should have at least */
#define LEAST_CHUNK   ((uint64_t)4 << 10)  /* but none smaller than this */
#define LARGEST_CHUNK ((uint64_t)4 << 20)  /* and none much larger */
#define UNPACKED_MORE ((uint64_t)32 << 20) /* stored bytes a reader unpacks besides its share, about */
#define LARGEST_PIECE ((uint64_t)64 << 10) /* of the text of a gzip file */

static uint64_t clamp(uint64_t x, uint64_t least, uint64_t most)
{
    return x < least ? least : x > most ? most : x;
}

static uint64_t divide_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by > 0);
}

uint64_t tr_files_chunk(const struct tr_files *files, size_t readers)
{
    if (readers == 1) return files->total;
    uint64_t share = files->total / readers, bytes = clamp(share / CHUNKS, LEAST_CHUNK, LARGEST_CHUNK);
    uint64_t rounds = share > bytes ? share / bytes : 1;
    return divide_up(files->total, readers * rounds);
}

/* How many readers after the one that has this chunk it is the reader's turn. */
static size_t turns_away(size_t reader, size_t readers, uint64_t chunk)
{
    return (reader + readers - (size_t)(chunk % readers)) % readers;
}

/* At least size * share / UNPACKED_MORE, but no more than a share: so about 1 + UNPACKED_MORE / share readers unpack
 * each file, whatever its size, and each reader UNPACKED_MORE besides its share. */
static uint64_t gzip_chunk(uint64_t size, uint64_t share, uint64_t chunk)
{
    if (size >= UNPACKED_MORE) return share;
    uint64_t least = share / UNPACKED_MORE * size + share % UNPACKED_MORE * size / UNPACKED_MORE;
    return least > chunk ? least : chunk;
}

/* The size of the text is not known, but it is hardly smaller than what is stored. */
static bool deal_gzip(uint64_t start, uint64_t size, size_t reader, size_t readers, uint64_t chunk,
                      struct tr_file_part *part)
{
    uint64_t first = start / chunk, n = (start + size - 1) / chunk - first + 1;
    size_t turn = turns_away(reader, readers, first), turns = n < readers ? (size_t)n : readers;
    part->bytes = clamp(size / turns / CHUNKS, LEAST_CHUNK, LARGEST_PIECE);
    part->end = (turn + 1) * part->bytes;
    part->stride = turns * part->bytes;
    part->readers = turns;
    return turn < turns;
}

/* Of the bytes first .. last - 1 of all files, which lie in this one. */
static bool deal_plain(uint64_t start, uint64_t first, uint64_t last, size_t reader, size_t readers,
                       uint64_t chunk, struct tr_file_part *part)
{
    uint64_t mine = first / chunk + turns_away(reader, readers, first / chunk);
    if (first >= last || mine * chunk >= last) return false;
    part->bytes = chunk;
    part->end = (mine + 1) * chunk - start;
    part->stride = readers * chunk;
    part->limit = last - start;
    return true;
}

/* Where the reader's first lap begins and its second ends. */
static uint64_t lap_begin(uint64_t total, size_t reader, size_t readers, uint64_t chunk)
{
    uint64_t rounds = divide_up(divide_up(total, chunk), readers);
    return rounds * reader / readers * readers * chunk;
}

bool tr_files_deal(const struct tr_files *files, size_t file, size_t reader, size_t readers, uint64_t chunk,
                   int lap, struct tr_file_part *part)
{
    uint64_t start = 0, size = files->file[file].size;
    uint64_t middle = lap_begin(files->total, reader, readers, chunk);
    if (size == 0) return false;
    for (size_t i = 0; i < file; i++) start += files->file[i].size;
    uint64_t end = start + size;
    *part = (struct tr_file_part){.file = file};
    if (files->file[file].gzip) {
        if ((start < middle) != lap) return false;
        chunk = gzip_chunk(size, divide_up(files->total, readers), chunk);
        return deal_gzip(start, size, reader, readers, chunk, part);
    }
    uint64_t first = lap == 0 && middle > start ? middle : start;
    uint64_t last = lap == 1 && middle < end ? middle : end;
    return deal_plain(start, first, last, reader, readers, chunk, part);
}

bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_file_part *part)
{
    return tr_files_deal(files, file, reader, readers, divide_up(files->total, readers), 0, part);
}

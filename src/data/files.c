#define _GNU_SOURCE
#include "data/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "data/ids.h"

/* ---- opening ---- */

static int no_input(const char *path, const char *why)
{
    return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, why);
}

/* How packed files begin; one that ends before that does is cut off. Behind bzip2's «BZh9» is the begin of a block, or of the end. */
static const struct {
    enum tr_packing packing;
    size_t at, n;
    const char *bytes;
} packings[] = {{TR_GZIP, 0, 2, "\x1f\x8b"},
                {TR_BZIP2, 4, 10, "1AY&SY"},
                {TR_BZIP2, 4, 10, "\x17rE8P\x90"},
                {TR_XZ, 0, 6,
                 "\xfd"
                 "7zXZ\0"},
                {TR_ZSTD, 0, 4, "\x28\xb5\x2f\xfd"},
                {TR_LZ4, 0, 4, "\x04\x22\x4d\x18"}};

/* What the first bytes of a file say. HDF5 may stand behind a header: that of MATLAB, or our own. */
static void tell_kind(int fd, struct tr_file *file)
{
    static const char *const hdf5[] = {"\x89HDF\r\n\x1a\n", "MATLAB 7.3 MAT-file", "trireme-"};
    char begin[32] = "";
    ssize_t read = pread(fd, begin, sizeof begin, 0), n = read < 0 ? 0 : read;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        size_t at = packings[i].at, there = tr_min_size((size_t)n, packings[i].n),
               least = tr_min_size(3, packings[i].n);
        if (there < least || (at > 0 && memcmp(begin, "BZh", 3) != 0)) continue;
        if (there <= at || memcmp(begin + at, packings[i].bytes, there - at) == 0)
            file->packing = packings[i].packing;
    }
    for (size_t i = 0; i < sizeof hdf5 / sizeof *hdf5; i++)
        file->hdf5 |= n == sizeof begin && memcmp(begin, hdf5[i], strlen(hdf5[i])) == 0;
}

static int look_at(const char *path, struct tr_file *file)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    if (fd < 0) return no_input(path, strerror(errno));
    int result = TR_OK;
    if (fstat(fd, &status) < 0) result = no_input(path, strerror(errno));
    else if (!S_ISREG(status.st_mode)) result = no_input(path, "not a regular file");
    else *file = (struct tr_file){.size = (uint64_t)status.st_size};
    if (result == TR_OK) tell_kind(fd, file);
    close(fd);
    return result == TR_OK ? tr_copy_string(path, &file->path) : result;
}

static int add_file(struct tr_files *files, size_t *capacity, const char *path, const char *inside);

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The regular files in a folder, sorted by bytes, without hidden ones and folders. */
static int add_folder(struct tr_files *files, size_t *capacity, const char *folder, const char *inside)
{
    struct dirent **entries;
    size_t before = files->n;
    int n = scandir(folder, &entries, is_shown, by_bytes), result = TR_OK;
    if (n < 0) return no_input(folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        struct stat status;
        if (result == TR_OK) result = tr_format(&path, "%s/%s", folder, entries[i]->d_name);
        if (result == TR_OK && stat(path, &status) == 0 && S_ISREG(status.st_mode))
            result = add_file(files, capacity, path, inside);
        free(path);
        free(entries[i]);
    }
    free(entries);
    if (result == TR_OK && files->n == before) result = no_input(folder, "a folder without files");
    return result;
}

static int add_file(struct tr_files *files, size_t *capacity, const char *path, const char *inside)
{
    struct tr_file file;
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) return add_folder(files, capacity, path, inside);
    TR_TRY(TR_GROW(&files->file, capacity, files->n + 1));
    TR_TRY(look_at(path, &file));
    files->file[files->n++] = file;
    files->total += file.size;
    if (!inside) return TR_OK;
    if (!file.hdf5) return no_input(path, "not an HDF5 file, in which something could be chosen by :/");
    return tr_copy_string(inside, &files->file[files->n - 1].inside);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* glob() sorts by the user's language, which differs between machines: we sort by bytes. */
static int add_matches(struct tr_files *files, size_t *capacity, const char *pattern, const char *inside)
{
    glob_t matches;
    int code = glob(pattern, GLOB_NOSORT, NULL, &matches);
    if (code == GLOB_NOMATCH) return no_input(pattern, "no such file");
    if (code) return tr_fail(TR_ERR_SYSTEM, "%s: cannot expand this pattern", pattern);
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, compare_paths);
    int result = TR_OK;
    for (size_t i = 0; i < matches.gl_pathc && result == TR_OK; i++)
        result = add_file(files, capacity, matches.gl_pathv[i], inside);
    globfree(&matches);
    return result;
}

/* What is chosen in an HDF5 file, from its / on: behind a colon. NULL: nothing is. */
static const char *find_inside(const char *pattern)
{
    const char *colon = strstr(pattern, ":/");
    return colon && colon > pattern ? colon + 1 : NULL;
}

/* A file of exactly that name wins, so that data[1].txt can be read. */
static int add_pattern(struct tr_files *files, size_t *capacity, const char *pattern)
{
    struct stat status;
    if (stat(pattern, &status) == 0) return add_file(files, capacity, pattern, NULL);
    const char *inside = find_inside(pattern);
    char *path;
    TR_TRY(tr_copy_string(pattern, &path));
    if (inside) path[inside - 1 - pattern] = '\0';
    int result = stat(path, &status) == 0 ? add_file(files, capacity, path, inside)
                                          : add_matches(files, capacity, path, inside);
    free(path);
    return result;
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

/* Some blocks of a file, at equal distances from its begin to its end; of one that is not larger than these, all. */
static uint64_t digest_blocks(const struct tr_file *file, uint64_t blocks, uint64_t digest)
{
    enum { BLOCK = 4096 };
    char block[BLOCK];
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    uint64_t all = (file->size + BLOCK - 1) / BLOCK,
             step = all > blocks ? (file->size - BLOCK) / tr_max_size(blocks - 1, 1) : BLOCK;
    for (uint64_t i = 0; fd >= 0 && i < tr_min_size(all, blocks); i++) {
        ssize_t n = pread(fd, block, BLOCK, (off_t)(i * step));
        if (n > 0) digest = tr_mix(digest ^ tr_text_hash(block, (size_t)n));
    }
    if (fd >= 0) close(fd);
    return digest;
}

uint64_t tr_files_digest(const struct tr_files *files)
{
    enum { BLOCKS = 256 };
    uint64_t digest = tr_mix(files->n);
    size_t step = (files->n + BLOCKS - 1) / BLOCKS;
    for (size_t i = 0; i < files->n; i++) {
        digest = tr_mix(digest ^ files->file[i].size);
        if (i % step == 0) digest = digest_blocks(&files->file[i], tr_max_size(BLOCKS / files->n, 1), digest);
    }
    return digest ? digest : 1;
}

void tr_files_close(struct tr_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->file[i].path);
        free(files->file[i].inside);
    }
    free(files->file);
    *files = (struct tr_files){0};
}

static bool matches_something(char *pattern)
{
    struct stat status;
    if (stat(pattern, &status) == 0) return true;
    glob_t matches;
    const char *inside = find_inside(pattern);
    if (inside) pattern[inside - 1 - pattern] = '\0';
    int code = glob(pattern, GLOB_NOSORT, NULL, &matches);
    if (inside) pattern[inside - 1 - pattern] = ':';
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
#define LARGEST_PIECE ((uint64_t)64 << 10) /* of the text of a packed file */

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
static uint64_t packed_chunk(uint64_t size, uint64_t share, uint64_t chunk)
{
    if (size >= UNPACKED_MORE) return share;
    uint64_t least = share / UNPACKED_MORE * size + share % UNPACKED_MORE * size / UNPACKED_MORE;
    return least > chunk ? least : chunk;
}

/* The size of the text is not known, but it is hardly smaller than what is stored. */
static bool deal_packed(uint64_t start, uint64_t size, size_t reader, size_t readers, uint64_t chunk,
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
    if (size == 0) return false;
    uint64_t middle = lap_begin(files->total, reader, readers, chunk);
    for (size_t i = 0; i < file; i++) start += files->file[i].size;
    uint64_t end = start + size;
    *part = (struct tr_file_part){.file = file};
    if (files->file[file].packing) {
        if ((start < middle) != lap) return false;
        chunk = packed_chunk(size, divide_up(files->total, readers), chunk);
        return deal_packed(start, size, reader, readers, chunk, part);
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

int tr_files_each_part(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                       tr_part_fn *take, void *state)
{
    if (chunk == 0) chunk = divide_up(files->total, readers);
    for (int lap = 0; lap < 2; lap++)
        for (size_t file = 0; file < files->n; file++) {
            struct tr_file_part part;
            if (tr_files_deal(files, file, reader, readers, chunk, lap, &part)) TR_TRY(take(state, &part));
        }
    return TR_OK;
}

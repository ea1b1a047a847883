#define _GNU_SOURCE
#include "data/input.h"

#include <archive.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "data/names.h"

/* ---- files ---- */

static int fail_no_input(const char *path, const char *why)
{
    return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, why);
}

const char *tr_packing_word(enum tr_packing packing)
{
    static const char *const words[] = {
        [TR_GZIP] = "gzip", [TR_BZIP2] = "bzip2", [TR_XZ] = "xz", [TR_ZSTD] = "zstd", [TR_LZ4] = "lz4"};
    return words[packing];
}

/* Magic numbers: bytes at .. n - 1 of compressed files. A file that ends within these bytes is a truncated compressed file. bzip2
 * has «BZh9», and then the magic number of a block or of the end of the file. */
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

static const char pickle_as_csv[] =
    "python3 -c \"import pandas; pandas.read_pickle('%s').to_csv('%s.csv', index=False)\"";

/* Files of other programs, which are not read. `how`: a command that writes the file as text or HDF5, with up to
 * three times its path. */
static const struct {
    size_t at, n; /* offset and number of the bytes */
    const char *bytes, *what, *how;
} foreign[] = {
    {0, 5, "PAR1\x15", "Parquet",
     "python3 -c \"import pandas; pandas.read_parquet('%s').to_csv('%s.csv', index=False)\""},
    {0, 7, "ARROW1", "Arrow (Feather)",
     "python3 -c \"import pandas; pandas.read_feather('%s').to_csv('%s.csv', index=False)\""},
    {0, 16, "SQLite format 3", "a database of SQLite",
     "sqlite3 -header -csv '%s' 'SELECT * FROM table' >table.csv"},
    {0, 6, "\x93NUMPY", "an array of NumPy",
     "python3 -c \"import numpy; numpy.savetxt('%s.csv', numpy.load('%s'), delimiter=',')\""},
    {30, 19, "[Content_Types].xml", "a document of Excel or another office program",
     "save the sheet as csv (UTF-8)"},
    {30, 9, "docProps/", "a document of Excel or another office program", "save the sheet as csv (UTF-8)"},
    {30, 3, "xl/", "a document of Excel or another office program", "save the sheet as csv (UTF-8)"},
    {30, 8, "mimetype", "a document of LibreOffice", "libreoffice --convert-to csv '%s'"},
    {30, 11, "indices.npy", "a sparse matrix of scipy",
     "python3 -c \"import scipy.sparse, sklearn.datasets; sklearn.datasets.dump_svmlight_file("
     "scipy.sparse.load_npz('%s'), LABELS, '%s.svm')\""},
    {0, 4, "PK\3\4", "a zip archive (also .npz of NumPy)",
     "unzip '%s'; or, for .npz, python3 -c \"import numpy; "
     "numpy.savetxt('%s.csv', numpy.load('%s')['X'], delimiter=',')\""},
    {0, 2, "\x80\x02", "a pickle of Python", pickle_as_csv},
    {0, 2, "\x80\x03", "a pickle of Python", pickle_as_csv},
    {0, 2, "\x80\x04", "a pickle of Python", pickle_as_csv},
    {0, 2, "\x80\x05", "a pickle of Python", pickle_as_csv},
    {0, 8, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Excel 97", "save the sheet as csv (UTF-8)"},
    {0, 19, "MATLAB 5.0 MAT-file", "a MATLAB file of version 5", "load('%s'); save('%s', '-v7.3') in MATLAB"},
};

static int file_refuse(const char *path, const char *begin, size_t n)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        bool inside = foreign[i].at > 0; /* the name of the first file in an archive */
        if (n < foreign[i].at + foreign[i].n || (inside && memcmp(begin, "PK\3\4", 4) != 0) ||
            memcmp(begin + foreign[i].at, foreign[i].bytes, foreign[i].n) != 0)
            continue;
        TR_FREED char *how = NULL;
        TR_TRY(tr_format(&how, foreign[i].how, path, path, path));
        return tr_fail(TR_ERR_DATA, "%s: %s, which is not read: %s", path, foreign[i].what, how);
    }
    return TR_OK;
}

/* Opens a file and detects its packing, or HDF5, which may follow a header of MATLAB or of trireme. */
static int file_open(const char *path, struct tr_file *file)
{
    static const char *const hdf5[] = {"\x89HDF\r\n\x1a\n", "MATLAB 7.3 MAT-file", "trireme-"};
    struct stat status;
    char begin[64] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for the writer of a pipe */
    if (fd < 0) return fail_no_input(path, strerror(errno));
    int error = fstat(fd, &status) < 0 ? errno : 0;
    ssize_t read = error ? 0 : pread(fd, begin, sizeof begin, 0), n = read < 0 ? 0 : read;
    close(fd);
    if (error) return fail_no_input(path, strerror(error));
    if (!S_ISREG(status.st_mode)) return fail_no_input(path, "not a regular file");
    TR_TRY(file_refuse(path, begin, (size_t)n));
    *file = (struct tr_file){.size = (uint64_t)status.st_size};
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        size_t at = packings[i].at, there = tr_min_size((size_t)n, packings[i].n);
        if (there < tr_min_size(3, packings[i].n) || (at > 0 && memcmp(begin, "BZh", 3) != 0)) continue;
        if (there <= at || memcmp(begin + at, packings[i].bytes, there - at) == 0)
            file->packing = packings[i].packing;
    }
    for (size_t i = 0; i < sizeof hdf5 / sizeof *hdf5; i++)
        file->hdf5 |= n >= 32 && memcmp(begin, hdf5[i], strlen(hdf5[i])) == 0;
    return tr_copy_string(path, &file->path);
}

static int files_by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds a file, or the regular files of a folder except hidden ones. */
static int files_add(struct tr_files *files, size_t *capacity, const char *path, const char *inside)
{
    struct stat status;
    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)) {
        struct tr_file file;
        TR_TRY(TR_GROW(&files->file, capacity, files->n + 1));
        TR_TRY(file_open(path, &file));
        files->file[files->n++] = file;
        files->total += file.size;
        if (!inside) return TR_OK;
        if (!file.hdf5)
            return fail_no_input(path, "not an HDF5 file, in which something could be chosen by :/");
        return tr_copy_string(inside, &files->file[files->n - 1].inside);
    }
    struct dirent **entries;
    size_t before = files->n;
    int n = scandir(path, &entries, NULL, files_by_bytes), result = TR_OK;
    if (n < 0) return fail_no_input(path, strerror(errno));
    for (int i = 0; i < n; i++) {
        TR_FREED char *whole = NULL;
        bool hidden = entries[i]->d_name[0] == '.';
        if (result == TR_OK && !hidden) result = tr_format(&whole, "%s/%s", path, entries[i]->d_name);
        if (result == TR_OK && !hidden && stat(whole, &status) == 0 && S_ISREG(status.st_mode))
            result = files_add(files, capacity, whole, inside);
        free(entries[i]);
    }
    free(entries);
    return result == TR_OK && files->n == before ? fail_no_input(path, "a folder without files") : result;
}

static int files_compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns the path of the object that a pattern selects in an HDF5 file, the text behind «:»; NULL: the pattern has none. */
static const char *files_find_inside(const char *pattern)
{
    const char *colon = strstr(pattern, ":/");
    return colon && colon > pattern ? colon + 1 : NULL;
}

/* Adds the files that match a pattern. A file with exactly this name has priority, so that data[1].txt can be read. glob() sorts by
 * the user's locale, which may differ between ranks; therefore matches are sorted by bytes. */
static int files_add_pattern(struct tr_files *files, size_t *capacity, const char *pattern)
{
    struct stat status;
    glob_t matches;
    if (stat(pattern, &status) == 0) return files_add(files, capacity, pattern, NULL);
    const char *inside = files_find_inside(pattern);
    TR_FREED char *path = NULL;
    TR_TRY(tr_copy_string(pattern, &path));
    if (inside) path[inside - 1 - pattern] = '\0';
    if (stat(path, &status) == 0) return files_add(files, capacity, path, inside);
    int code = glob(path, GLOB_NOSORT, NULL, &matches), result = TR_OK;
    if (code == GLOB_NOMATCH) return fail_no_input(path, "no such file");
    if (code != 0) return tr_fail(TR_ERR_SYSTEM, "%s: cannot expand this pattern", path);
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, files_compare_paths);
    for (size_t i = 0; i < matches.gl_pathc && result == TR_OK; i++)
        result = files_add(files, capacity, matches.gl_pathv[i], inside);
    globfree(&matches);
    return result;
}

int tr_files_open(char *const patterns[], size_t n, struct tr_files *files)
{
    TR_CLOSED_BY(tr_files_close) struct tr_files opened = {0};
    size_t capacity = 0;
    for (size_t i = 0; i < n; i++) TR_TRY(files_add_pattern(&opened, &capacity, patterns[i]));
    if (opened.n == 0) return tr_fail(TR_ERR_NO_INPUT, "no input files");
    if (opened.total == 0)
        return fail_no_input(opened.file[0].path,
                             opened.n == 1 ? "empty" : "empty, as are all other input files");
    *files = opened;
    opened = (struct tr_files){0};
    return TR_OK;
}

int tr_files_set_label(struct tr_files *files, const char *label, bool may_miss)
{
    for (const char *const *word = (const char *const[]){"none", "auto", "first", "last", NULL}; *word;
         word++)
        if (strcmp(*word, label) == 0) return TR_OK;
    for (size_t i = 0; i < files->n; i++) {
        struct tr_file *f = &files->file[i];
        f->label_may_miss = may_miss;
        if (f->hdf5) TR_TRY(tr_copy_string(label, &f->label));
    }
    return TR_OK;
}

void tr_files_close(struct tr_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        free(files->file[i].path);
        free(files->file[i].inside);
        free(files->file[i].label);
    }
    for (size_t i = 0; i < files->forms; i++) tr_column_form_free(&files->form[i]);
    TR_FREE_ALL(files->file, files->form);
    *files = (struct tr_files){0};
}

uint64_t tr_files_digest(const struct tr_files *files)
{
    enum { BLOCKS = 256, BLOCK = 4096 };
    char block[BLOCK];
    uint64_t digest = tr_mix(files->n);
    size_t step = (files->n + BLOCKS - 1) / BLOCKS;
    for (size_t i = 0; i < files->n; i++) {
        uint64_t size = files->file[i].size, all = (size + BLOCK - 1) / BLOCK,
                 blocks = tr_max_size(BLOCKS / files->n, 1),
                 distance = all > blocks ? (size - BLOCK) / tr_max_size(blocks - 1, 1) : BLOCK;
        digest = tr_mix(digest ^ size);
        if (i % step != 0) continue;
        int fd = open(files->file[i].path, O_RDONLY | O_CLOEXEC);
        for (uint64_t k = 0; fd >= 0 && k < tr_min_size(all, blocks); k++) {
            ssize_t n = pread(fd, block, BLOCK, (off_t)(k * distance));
            if (n > 0) digest = tr_mix(digest ^ tr_text_hash(block, (size_t)n));
        }
        if (fd >= 0) close(fd);
    }
    return digest ? digest : 1;
}

int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found)
{
    *found = NULL;
    if (pattern[0] == '/') return tr_copy_string(pattern, found);
    for (size_t i = 0; i < n && !*found; i++) {
        TR_FREED char *path = NULL;
        struct stat status;
        glob_t matches;
        if (strcmp(folders[i], ".") == 0) TR_TRY(tr_copy_string(pattern, &path));
        else TR_TRY(tr_format(&path, "%s/%s", folders[i], pattern));
        bool matched = stat(path, &status) == 0;
        if (!matched) {
            const char *inside = files_find_inside(path);
            if (inside) path[inside - 1 - path] = '\0';
            matched = glob(path, GLOB_NOSORT, NULL, &matches) == 0;
            if (matched) globfree(&matches);
            if (inside) path[inside - 1 - path] = ':';
        }
        if (!matched) continue;
        *found = path;
        path = NULL;
    }
    return TR_OK;
}

/* ---- division among readers ---- */

#define CHUNKS        64                  /* minimum of chunks per reader */
#define LEAST_CHUNK   ((uint64_t)4 << 10) /* minimum size of a chunk */
#define LARGEST_CHUNK ((uint64_t)4 << 20) /* approximate maximum size of a chunk */
#define UNPACKED_MORE                                                                                        \
    ((uint64_t)32 << 20) /* about how many stored bytes a reader decompresses besides its share */
#define LARGEST_PIECE ((uint64_t)64 << 10) /* maximum bytes of a piece of the text of a compressed file */

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

bool tr_files_deal(const struct tr_files *files, size_t file, size_t reader, size_t readers, uint64_t chunk,
                   int lap, struct tr_file_part *part)
{
    uint64_t start = 0, size = files->file[file].size;
    if (size == 0) return false;
    /* `middle`: where the reader begins its first lap and ends its second */
    uint64_t rounds = divide_up(divide_up(files->total, chunk), readers);
    uint64_t middle = rounds * reader / readers * readers * chunk;
    for (size_t i = 0; i < file; i++) start += files->file[i].size;
    uint64_t end = start + size;
    *part = (struct tr_file_part){.file = file};
    if (!tr_file_is_stream(&files->file[file])) {
        uint64_t first = lap == 0 && middle > start ? middle : start,
                 last = lap == 1 && middle < end ? middle : end;
        uint64_t mine = first / chunk + (reader + readers - (size_t)(first / chunk % readers)) % readers;
        if (first >= last || mine * chunk >= last) return false;
        part->bytes = chunk;
        part->end = (mine + 1) * chunk - start;
        part->stride = readers * chunk;
        part->limit = last - start;
        return true;
    }
    if ((start < middle) != lap) return false;
    /* Chunks have at least size * share / UNPACKED_MORE bytes, but not more than a share. Then about 1 + UNPACKED_MORE / share
     * readers decompress a file of any size, and each reader decompresses about UNPACKED_MORE bytes besides its share. */
    uint64_t share = divide_up(files->total, readers),
             least = share / UNPACKED_MORE * size + share % UNPACKED_MORE * size / UNPACKED_MORE;
    chunk = size >= UNPACKED_MORE ? share : least > chunk ? least : chunk;
    /* the size of the text is unknown, but rarely less than the stored size, which determines the pieces */
    uint64_t first = start / chunk, n = (start + size - 1) / chunk - first + 1;
    size_t turn = (reader + readers - (size_t)(first % readers)) % readers,
           turns = n < readers ? (size_t)n : readers;
    part->bytes = clamp(size / turns / CHUNKS, LEAST_CHUNK, LARGEST_PIECE);
    part->end = (turn + 1) * part->bytes;
    part->stride = turns * part->bytes;
    part->readers = turns;
    return turn < turns;
}

bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_file_part *part)
{
    return tr_files_deal(files, file, reader, readers, divide_up(files->total, readers), 0, part);
}

int tr_files_each_part(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                       tr_part_fn *read, void *state)
{
    if (chunk == 0) chunk = divide_up(files->total, readers);
    for (int lap = 0; lap < 2; lap++)
        for (size_t file = 0; file < files->n; file++) {
            struct tr_file_part part;
            if (tr_files_deal(files, file, reader, readers, chunk, lap, &part)) TR_TRY(read(state, &part));
        }
    return TR_OK;
}

/* ---- bytes of a file ---- */

#define PACKED_BYTES ((size_t)64 << 10)

/* Reads up to n stored bytes; *got = 0 at the end of the file. */
static int source_read_stored(struct tr_source *source, void *to, size_t n, size_t *got)
{
    ssize_t bytes;
    do bytes = pread(source->fd, to, n, (off_t)source->stored);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0) return tr_fail(TR_ERR_IO, "%s: %s", source->file->path, strerror(errno));
    if (bytes == 0 && source->stored < source->file->size)
        return tr_fail(TR_ERR_IO, "%s: has become shorter while it was read", source->file->path);
    source->stored += (uint64_t)bytes;
    *got = (size_t)bytes;
    return TR_OK;
}

static int source_fail_memory(const struct tr_source *source)
{
    return tr_fail(TR_ERR_SYSTEM, "out of memory for unpacking %s", source->file->path);
}

static int source_fail_corrupt(const struct tr_source *source, uint64_t byte, const char *why)
{
    return tr_fail(TR_ERR_DATA, "%s: corrupt %s data near byte %llu (%s)", source->file->path,
                   tr_packing_word(source->file->packing), (unsigned long long)byte,
                   why ? why : "unknown cause");
}

static int source_fail_truncated(const struct tr_source *source)
{
    return tr_fail(TR_ERR_DATA, "%s: truncated %s file: ends at byte %llu in the middle of its data",
                   source->file->path, tr_packing_word(source->file->packing),
                   (unsigned long long)source->stored);
}

/* Decompresses gzip. A file may have several members, with zeros between them and at the end; other bytes there are an error. */
static int source_read_gzip(struct tr_source *source, char *to, size_t n, size_t *got)
{
    z_stream *gzip = &source->gzip;
    gzip->next_out = (Bytef *)to;
    gzip->avail_out = (uInt)n;
    while (gzip->avail_out > 0) {
        if (gzip->avail_in == 0) {
            size_t more = 0;
            TR_TRY(source_read_stored(source, source->packed, PACKED_BYTES, &more));
            gzip->next_in = source->packed;
            gzip->avail_in = (uInt)more;
            if (more == 0 && source->in_member) return source_fail_truncated(source);
            if (more == 0) break;
        }
        if (!source->in_member) {
            while (gzip->avail_in > 0 && *gzip->next_in == 0 && gzip->total_in > 0)
                gzip->next_in++, gzip->avail_in--;
            if (gzip->avail_in == 0) continue;
            if (gzip->total_in > 0) inflateReset(gzip);
            source->in_member = true;
        }
        int code = inflate(gzip, Z_NO_FLUSH);
        if (code == Z_STREAM_END) source->in_member = false;
        else if (code == Z_MEM_ERROR) return source_fail_memory(source);
        else if (code != Z_OK) return source_fail_corrupt(source, source->stored - gzip->avail_in, gzip->msg);
    }
    *got = n - gzip->avail_out;
    return TR_OK;
}

static la_ssize_t source_feed_archive(struct archive *archive, void *state, const void **bytes)
{
    struct tr_source *source = state;
    size_t got = 0;
    source->status = source_read_stored(source, source->packed, PACKED_BYTES, &got);
    *bytes = source->packed;
    if (source->status == TR_OK) return (la_ssize_t)got;
    archive_set_error(archive, EIO, "cannot be read");
    return -1;
}

static int source_fail_archive(const struct tr_source *source)
{
    const char *why = archive_error_string(source->archive);
    if (source->status != TR_OK) return source->status;
    if (archive_errno(source->archive) == ENOMEM) return source_fail_memory(source);
    /* «no progress» is the error of xz for truncated files */
    bool cut = why && (strcasestr(why, "truncated") || strcasestr(why, "no progress"));
    if (source->stored == source->file->size && cut) return source_fail_truncated(source);
    return source_fail_corrupt(source, source->stored, why);
}

int tr_source_open(struct tr_source *source, const struct tr_file *file, uint64_t offset)
{
    struct archive_entry *entry;
    *source = (struct tr_source){.file = file};
    source->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) return tr_fail(TR_ERR_NO_INPUT, "%s: %s", file->path, strerror(errno));
    source->stored = offset;
    if (file->rewritten) TR_TRY(tr_rewriter_open(&file->dialect, file->form, file->forms, &source->rewriter));
    if (!file->packing) return TR_OK;
    TR_TRY(TR_NEW(&source->packed, PACKED_BYTES));
    if (file->packing == TR_GZIP) /* 15: the largest window; + 16: only gzip headers are accepted */
        return inflateInit2(&source->gzip, 15 + 16) == Z_OK ? TR_OK : source_fail_memory(source);
    struct archive *archive = source->archive = archive_read_new();
    if (!archive) return source_fail_memory(source);
    if (file->packing == TR_BZIP2) archive_read_support_filter_bzip2(archive);
    if (file->packing == TR_XZ) archive_read_support_filter_xz(archive);
    if (file->packing == TR_ZSTD) archive_read_support_filter_zstd(archive);
    if (file->packing == TR_LZ4) archive_read_support_filter_lz4(archive);
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
    int code = archive_read_open(archive, source, NULL, source_feed_archive, NULL);
    if (code == ARCHIVE_OK) code = archive_read_next_header(archive, &entry);
    source->ended = code == ARCHIVE_EOF;
    if (code != ARCHIVE_OK && !source->ended) return source_fail_archive(source);
    /* if a compressed file is too short, libarchive considers it a plain file */
    return archive_filter_code(archive, 0) == ARCHIVE_FILTER_NONE ? source_fail_truncated(source) : TR_OK;
}

void tr_source_close(struct tr_source *source)
{
    if (source->archive) archive_read_free(source->archive);
    else if (source->packed) inflateEnd(&source->gzip);
    free(source->packed);
    tr_rewriter_close(&source->rewriter);
    if (source->fd >= 0) close(source->fd);
}

/* Reads and decompresses up to n bytes; *got = 0 at the end. */
static int source_read_text(struct tr_source *source, char *to, size_t n, size_t *got)
{
    la_ssize_t bytes = 0;
    *got = 0;
    if (!source->file->packing) return source_read_stored(source, to, n, got);
    if (!source->archive) return source_read_gzip(source, to, n, got);
    do bytes = source->ended ? 0 : archive_read_data(source->archive, to, n);
    while (bytes == ARCHIVE_RETRY);
    if (bytes < 0) return source_fail_archive(source);
    source->ended = bytes == 0;
    *got = (size_t)bytes;
    return TR_OK;
}

int tr_source_read(struct tr_source *source, char *to, size_t n, size_t *got)
{
    struct tr_rewriter *r = source->rewriter;
    if (!r) return source_read_text(source, to, n, got);
    for (size_t bytes = 1; (*got = tr_rewriter_take(r, to, n)) == 0 && bytes > 0;) {
        char *room;
        TR_TRY(tr_rewriter_room(r, &room, &bytes));
        TR_TRY(source_read_text(source, room, bytes, &bytes));
        TR_TRY(tr_rewriter_add(r, bytes, TR_TEXT_LONGEST_LINE));
    }
    return TR_OK;
}

/* ---- lines ---- */

#define AT_ONCE ((size_t)64 << 10)

/* A reader of the lines of a part: those that begin in the range begin .. end - 1, and then in further ranges at equal distances.
 * The text between ranges is skipped: plain files are not read there, compressed files must be decompressed. */
struct tr_text {
    struct tr_source source;
    uint64_t begin, end;
    struct tr_file_part part; /* part.end is the end of the next range */
    char *buffer;
    size_t longest;      /* maximum bytes of a line */
    size_t capacity;     /* bytes of the buffer without TR_TEXT_SLACK */
    size_t used, filled; /* bytes used .. filled - 1 of the buffer were read but not yet returned */
    uint64_t offset;     /* position of the byte buffer[used] in the text */
    bool inside;         /* buffer[used] may be inside of a line; false: a line begins there */
    bool ended;          /* the end of the source was reached */
    uint64_t done;       /* plain files: number of bytes in the ranges that were read completely */
};

/* Goes to the next range. Returns false if a plain file has no more ranges. For a compressed file it always returns true: only
 * decompression finds the end of the text. */
static bool text_next_range(struct tr_text *text)
{
    struct tr_file_part *part = &text->part;
    text->done += text->end - text->begin;
    text->begin = part->end > part->bytes ? part->end - part->bytes : 0;
    text->end = part->end;
    part->end += part->stride;
    if (tr_file_is_stream(text->source.file)) return true;
    if (text->begin > part->limit) text->begin = part->limit;
    if (text->end > part->limit) text->end = part->limit;
    return text->begin < text->end;
}

/* Returns the offset from which a range that begins at `byte` is read: the byte before it shows whether a line begins there. */
static uint64_t byte_before(uint64_t byte)
{
    return byte > 0 ? byte - 1 : 0;
}

static size_t text_longest_line(const struct tr_files *files)
{
    return files->max_record ? (size_t)files->max_record : TR_TEXT_LONGEST_LINE;
}

int tr_text_open(const struct tr_files *files, const struct tr_file_part *part, size_t chunk_bytes,
                 struct tr_text **text)
{
    const struct tr_file *file = &files->file[part->file];
    TR_CLOSED_BY(tr_text_close) struct tr_text *t = NULL;
    TR_TRY(TR_NEW(&t, 1));
    *t = (struct tr_text){.source = {.file = file, .fd = -1},
                          .part = *part,
                          .longest = text_longest_line(files),
                          .capacity = chunk_bytes};
    text_next_range(t);
    if (!tr_file_is_stream(file)) t->offset = byte_before(t->begin);
    TR_TRY(TR_NEW(&t->buffer, chunk_bytes + TR_TEXT_SLACK));
    TR_TRY(tr_source_open(&t->source, file, t->offset));
    *text = t;
    t = NULL;
    return TR_OK;
}

void tr_text_close(struct tr_text **text)
{
    if (!*text) return;
    tr_source_close(&(*text)->source);
    free((*text)->buffer);
    free(*text);
    *text = NULL;
}

uint64_t tr_text_done(const struct tr_text *text)
{
    if (tr_file_is_stream(text->source.file)) return text->source.stored / text->part.readers;
    uint64_t end = text->offset < text->end ? text->offset : text->end;
    return text->done + (end > text->begin ? end - text->begin : 0);
}

/* Reads more bytes into the buffer. Other readers read what follows the range in a plain file, so only up to 16 KiB are read behind
 * the range, for the end of its last line, and this number is doubled each time if the line is longer. A full buffer is doubled, up
 * to one byte more than the longest line. */
static int text_fill(struct tr_text *text)
{
    size_t rest = text->filled - text->used, got = 0;
    if (text->used > 0) memmove(text->buffer, text->buffer + text->used, rest);
    text->used = 0;
    text->filled = rest;
    if (rest == text->capacity) {
        size_t capacity = tr_min_size(2 * text->capacity, text->longest + 1);
        char *buffer = realloc(text->buffer, capacity + TR_TEXT_SLACK);
        if (!buffer) return tr_fail(TR_ERR_SYSTEM, "out of memory: a line of %zu bytes", capacity);
        memset(buffer + text->capacity, 0, capacity - text->capacity + TR_TEXT_SLACK);
        text->buffer = buffer;
        text->capacity = capacity;
    }
    uint64_t position = text->offset + rest, wanted = text->capacity - rest;
    uint64_t ahead = clamp(text->part.bytes / 16, 1 << 10, 16 << 10);
    if (position > text->end && position - text->end > ahead) ahead = position - text->end;
    if (!tr_file_is_stream(text->source.file) && position + wanted > text->end + ahead)
        wanted = tr_min_size(wanted, position < text->end ? text->end - position + ahead : ahead);
    TR_TRY(tr_source_read(&text->source, text->buffer + rest, wanted, &got));
    text->filled += got;
    text->ended = got == 0;
    return TR_OK;
}

/* Drops bytes until a line begins in the range. The newline before this line precedes the last byte of the range: if there is no
 * newline up to that byte, the search stops there, inside of a line. In a plain file, bytes before the range are skipped. */
static int text_find_line(struct tr_text *text)
{
    uint64_t from = text->offset < text->begin ? byte_before(text->begin) : text->offset;
    if (!tr_file_is_stream(text->source.file) && from > text->offset + (text->filled - text->used)) {
        text->used = text->filled = 0;
        text->offset = text->source.stored = from;
    }
    text->inside = true;
    for (;;) {
        const char *start = text->buffer + text->used, *newline = NULL;
        size_t n = tr_min_size(text->filled - text->used, byte_before(text->end) - text->offset);
        size_t skip = from > text->offset ? (size_t)(from - text->offset) : 0;
        if (skip < n) newline = memchr(start + skip, '\n', n - skip);
        if (newline) n = (size_t)(newline - start) + 1;
        text->inside = !newline;
        text->used += n;
        text->offset += n;
        if (newline || text->ended || text->offset + 1 >= text->end) return TR_OK;
        TR_TRY(text_fill(text));
    }
}

/* Returns the next n bytes, which are whole lines; or drops them, if they are the beginning of a line that is too long. */
static int text_return(struct tr_text *text, size_t n, bool too_long, struct tr_chunk *chunk)
{
    const char *start = too_long ? NULL : text->buffer + text->used;
    *chunk = (struct tr_chunk){start, start ? start + n : NULL, text->offset, too_long};
    text->inside = text->inside || too_long;
    text->used += n;
    text->offset += n;
    return TR_OK;
}

int tr_text_next(struct tr_text *text, struct tr_chunk *chunk)
{
    for (;;) {
        size_t n = text->filled - text->used, last;
        const char *start = text->buffer + text->used, *newline = NULL;
        if (text->ended && n == 0) return text_return(text, 0, false, chunk);
        /* a loop, because one line may cover several ranges */
        if (text->offset + text->inside >= text->end) {
            if (!text_next_range(text)) return text_return(text, 0, false, chunk);
            continue;
        }
        if (text->offset < text->begin || text->inside) {
            TR_TRY(text_find_line(text));
            continue;
        }
        last = (size_t)(text->end - text->offset) - 1; /* the last line of the range ends here or later */
        if (last < n) newline = memchr(start + last, '\n', n - last);
        if (!newline) newline = memrchr(start, '\n', n);
        if (newline) return text_return(text, (size_t)(newline - start) + 1, false, chunk);
        if (n > text->longest) return text_return(text, n, true, chunk);
        if (text->ended) text->buffer[text->filled++] = '\n'; /* TR_TEXT_SLACK has room for it */
        else TR_TRY(text_fill(text));
    }
}

int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line)
{
    TR_CLOSED_BY(tr_source_close) struct tr_source source;
    TR_FREED char *buffer = NULL;
    *line = 1;
    TR_TRY(tr_source_open(&source, &files->file[file], 0));
    TR_TRY(TR_NEW(&buffer, AT_ONCE));
    for (size_t got = 1; offset > 0 && got > 0; offset -= got) {
        got = 0;
        TR_TRY(tr_source_read(&source, buffer, tr_min_size(offset, AT_ONCE), &got));
        for (size_t i = 0; i < got; i++)
            *line += buffer[i] == '\n' || (source.rewriter && buffer[i] == TR_QUOTED_NEWLINE);
    }
    return TR_OK;
}

struct tr_text_problem tr_text_too_long(const struct tr_files *files)
{
    struct tr_text_problem problem;
    size_t longest = text_longest_line(files), mib = (size_t)1 << 20;
    bool whole = longest % mib == 0;
    snprintf(problem.text, sizeof problem.text,
             "record longer than %zu %s: data.max_record=SIZE sets the limit",
             whole ? longest / mib : longest, whole ? "MiB" : "bytes");
    return problem;
}

int tr_text_fail_too_long(const struct tr_files *files, size_t file, uint64_t offset)
{
    uint64_t line;
    TR_TRY(tr_files_line(files, file, offset, &line));
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", files->file[file].path, (unsigned long long)line,
                   tr_text_too_long(files).text);
}

/* The input of a job: a list of files, its division among readers, and the lines of text of each reader. A reader is one of the W
 * processes that read the files together. The bytes of all files (compressed files: as stored) are concatenated and divided into
 * chunks of equal size, except the last one: chunk i belongs to reader i mod W. The chunks of a reader are its share. With small
 * chunks a share is a sample of all rows, even if the files are sorted by label or by day; with W chunks it is contiguous. Reader k
 * starts with its first chunk after k/W of all bytes, and wraps around at the end. So readers, and workers that learn from the rows
 * in this order, are at different positions at any time. A stream, a file that is compressed or in an unusual dialect, can only be
 * read from its beginning: all readers that have chunks of it read the whole file. Its text is divided into pieces, which these readers parse in turn.
 */
#ifndef TR_DATA_INPUT_H
#define TR_DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <zlib.h>

#include "data/dialect.h"

/* ---- files ---- */

/* How a file is compressed. */
enum tr_packing { TR_PLAIN, TR_GZIP, TR_BZIP2, TR_XZ, TR_ZSTD, TR_LZ4 };

struct tr_file {
    char *path;
    uint64_t size; /* compressed size of a compressed file */
    enum tr_packing packing;
    bool hdf5;                 /* packing and hdf5 are detected by the first bytes, not by the name */
    char *inside;              /* hdf5: path of an object in the file; NULL: the default object */
    char *label;               /* hdf5: path of the labels, as in data.label; NULL: the default names */
    bool label_may_miss;       /* the file may have no object of this path, as before predict */
    struct tr_dialect dialect; /* encoding TR_ENCODING_UNKNOWN: it was not searched for */
    bool rewritten;            /* the dialect is not the usual one: tr_source_read() rewrites the text */
    const struct tr_column_form *form; /* `forms` columns have a form; they belong to tr_files */
    size_t forms;
};

/* Returns whether the text can only be read from its beginning. */
static inline bool tr_file_is_stream(const struct tr_file *file)
{
    return file->packing || file->rewritten;
}

struct tr_files {
    struct tr_file *file;
    size_t n;
    uint64_t total;      /* sum of the sizes of all files */
    uint64_t max_record; /* maximum bytes of a line (data.max_record); 0: TR_TEXT_LONGEST_LINE */
    /* settings of the job: the dialect that is given, and the forms of columns (tr_dialect_settings()) */
    struct tr_dialect given;
    struct tr_column_form *form;
    size_t forms;
    /* of the training data: decimal and thousands mark if they are unusual; used if the delimiter is the same */
    struct tr_notation notation;
};

/* Expands patterns and opens every file once. A pattern is a shell glob, whose matches are sorted by bytes, or a folder: its
 * regular files except hidden ones. The text after «:/» is the path of an array or a group in an HDF5 file: d.h5:/train/X.
 * TR_ERR_NO_INPUT names the first file that is missing, irregular or unreadable, or says that all files are empty. */
int tr_files_open(char *const patterns[], size_t n, struct tr_files *files);
void tr_files_close(struct tr_files *files);

/* hdf5: sets the path of the labels to data.label, if that is no word such as auto. */
int tr_files_set_label(struct tr_files *files, const char *label, bool may_miss);

/* Returns a hash, never 0, of all sizes and of 1 MiB sampled from the files. It detects changed files. */
uint64_t tr_files_digest(const struct tr_files *files);

/* Prepends the first of n folders in which the pattern matches a file. An absolute pattern is copied. *found must be freed; NULL:
 * no folder has a match. */
int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found);

/* Returns the name of a packing; NULL for plain files. */
const char *tr_packing_word(enum tr_packing packing);

/* ---- division among readers ---- */

/* The part of one file that belongs to one reader: ranges of its text, which is the file itself unless it is compressed. Range i
 * has the `bytes` bytes before byte end + i * stride, or fewer at the beginning of the file. A line belongs to the range that
 * contains its first byte. */
struct tr_file_part {
    size_t file;
    uint64_t end, bytes, stride;
    uint64_t limit; /* plain files: end of the last range; streams: ranges end with the text */
    size_t readers; /* streams: number of readers that decompress or rewrite the file */
};

/* Returns the size of the chunks: 1/64 of a share, but 4 KiB to about 4 MiB, and such that all readers have the same number of
 * chunks. With 64 chunks a share is a fair sample, and lines that cross borders shift few bytes between readers. A few MiB are
 * enough to read disks and parallel file systems at full speed. Below 4 KiB handling the borders would take more time than parsing
 * the lines. A single reader has one chunk. */
uint64_t tr_files_chunk(const struct tr_files *files, size_t readers);

/* Finds the part of a file that belongs to a reader.
 *
 * @param [in] chunk  size of the chunks, > 0. For compressed files chunks are larger, up to a reader's share, if a reader would
 *                    decompress much more (32 MiB of compressed data) than its share otherwise
 * @param [in] lap    a reader passes over the files twice, since it wraps around. 0: the part of the file that it reads before
 *                    it wraps around; 1: the part that it reads afterwards. All parts of a compressed file are in one lap
 * @return false if the part is empty
 */
bool tr_files_deal(const struct tr_files *files, size_t file, size_t reader, size_t readers, uint64_t chunk,
                   int lap, struct tr_file_part *part);

/* Does the same as tr_files_deal() for contiguous shares, which need one lap. A single reader has all files in order. */
bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_file_part *part);

/* Calls `read` for each part of the reader in its order, until it returns anything but TR_OK. chunk 0: contiguous shares. */
typedef int tr_part_fn(void *state, const struct tr_file_part *part);
int tr_files_each_part(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                       tr_part_fn *read, void *state);

/* ---- text of a file, decompressed and in the usual form: gzip by zlib; bzip2, xz, zstd and lz4 by libarchive ---- */

struct archive;

struct tr_source {
    const struct tr_file *file;
    int fd;
    uint64_t stored;         /* position in the file: number of stored bytes read */
    unsigned char *packed;   /* buffer of compressed bytes */
    z_stream gzip;           /* gzip: state of the decompression */
    bool in_member;          /* gzip: the position is between header and trailer of a member of the file */
    struct archive *archive; /* packings other than gzip use this and the next members */
    bool ended;
    int status;                   /* result of the last read of the file */
    struct tr_rewriter *rewriter; /* NULL: the text is in the usual form */
};

/* Opens a file at an offset, which is 0 for streams. Call tr_source_close() also after an error. */
int tr_source_open(struct tr_source *source, const struct tr_file *file, uint64_t offset);
void tr_source_close(struct tr_source *source);

/* Reads, decompresses and rewrites *got <= n bytes; *got = 0 at the end. TR_ERR_DATA for damaged or truncated data. */
int tr_source_read(struct tr_source *source, char *to, size_t n, size_t *got);

/* ---- lines of a part, in chunks that stay in the cache of the processor ---- */

#define TR_TEXT_CHUNK        ((size_t)192 << 10) /* bytes of a chunk: it fits, with its rows, in 1 MiB of L2 */
#define TR_TEXT_LONGEST_LINE ((size_t)64 << 20)  /* maximum bytes of a line without data.max_record */
#define TR_TEXT_SLACK        64 /* readable bytes after a chunk; their values do not matter */

struct tr_text;

/* Whole lines. The last byte is always a newline, which is added if the file ends without it: a parser that stops at newlines needs
 * no other bound. */
struct tr_chunk {
    const char *begin, *end; /* begin == end: end of the part */
    uint64_t offset;         /* offset of `begin` in the text of the file */
    bool too_long;           /* there are no lines: a line longer than files->max_record was dropped */
};

/* Opens a part of a file. chunk_bytes: TR_TEXT_CHUNK, or less to test the borders of chunks. */
int tr_text_open(const struct tr_files *files, const struct tr_file_part *part, size_t chunk_bytes,
                 struct tr_text **text);
void tr_text_close(struct tr_text **text); /* *text may be NULL */

/* Reads the next lines of the part, which are valid until the next call. TR_ERR_DATA: the compressed file is corrupt. */
int tr_text_next(struct tr_text *text, struct tr_chunk *chunk);

/* Returns the number of stored bytes read so far. The sum over all readers is about the size of the file. */
uint64_t tr_text_done(const struct tr_text *text);

/* tr_text_too_long() formats the error of a line that is too long. tr_text_fail_too_long() adds path and line number, and returns
 * TR_ERR_DATA. */
struct tr_text_problem {
    char text[96];
};
struct tr_text_problem tr_text_too_long(const struct tr_files *files);
int tr_text_fail_too_long(const struct tr_files *files, size_t file, uint64_t offset);

/* Finds the number, from 1, of the line with this byte of the text. Reads the file up to the byte. */
int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line);

#endif

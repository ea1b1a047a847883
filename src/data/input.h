/* The input of a job: a list of files, its division among readers, and the lines of text of each reader.
 *
 * The bytes of all files are concatenated (compressed bytes of compressed files) and divided into chunks of equal size, except
 * the last one: chunk i belongs to reader i mod W. With small chunks every reader has a sample of all rows, even if the files
 * are sorted by label or by day; with W chunks every reader has one contiguous share. Reader k starts with its first chunk
 * after k/W of all bytes and ends with the chunks before it. So readers, and workers that learn from the rows in this order, are
 * at different positions at any time.
 *
 * A compressed file can only be decompressed from its beginning: all readers that have chunks of it decompress it, and divide
 * the pieces of its text among them.
 */
#ifndef TR_DATA_INPUT_H
#define TR_DATA_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <zlib.h>

/* ---- files ---- */

enum tr_packing { TR_PLAIN, TR_GZIP, TR_BZIP2, TR_XZ, TR_ZSTD, TR_LZ4 };

struct tr_file {
    char *path;
    uint64_t size; /* compressed size of a compressed file */
    enum tr_packing packing;
    bool hdf5;    /* detected by the first bytes, as the packing, not by the name */
    char *inside; /* hdf5: path of an object in the file; NULL: the default object */
};

struct tr_files {
    struct tr_file *file;
    size_t n;
    uint64_t total;      /* sum of the sizes */
    uint64_t max_record; /* maximum bytes of a line (data.max_record); 0: TR_TEXT_LONGEST_LINE */
};

/* Expands patterns and opens every file once. A pattern is a shell glob, whose matches are sorted by bytes, or a folder: its
 * regular files except hidden ones. The text after «:/» is the path of an array or a group in an HDF5 file: d.h5:/train/X.
 * TR_ERR_NO_INPUT names the first file that is missing, irregular or unreadable, or says that all files are empty. */
int tr_files_open(char *const patterns[], size_t n, struct tr_files *files);
void tr_files_close(struct tr_files *files);

/* Returns a hash of the sizes and of 1 MiB of the bytes, sampled from all files, to detect changed files. Never 0. */
uint64_t tr_files_digest(const struct tr_files *files);

/* Prepends to a relative pattern the first of n folders in which it matches a file. An absolute pattern is copied. *found must
 * be freed; NULL: no match. */
int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found);

/* Returns the name of a packing; NULL for plain files. */
const char *tr_packing_word(enum tr_packing packing);

/* ---- division among readers ---- */

/* The part of one file that belongs to one reader: ranges of its text, which is the file itself unless it is compressed. Range i
 * ends before byte end + i * stride and has `bytes` bytes, unless the beginning of the file cuts it. A line belongs to the range
 * that contains its first byte. */
struct tr_file_part {
    size_t file;
    uint64_t end, bytes, stride;
    uint64_t
        limit; /* plain files: end of the last range. Those of compressed files go to the end of the text */
    size_t readers; /* compressed files: number of readers that decompress the file */
};

/* Returns the size of the chunks: a 64th of a reader's share, but 4 KiB to about 4 MiB, and such that all readers have the same
 * number of chunks. 64 chunks are a fair sample, and lines that cross borders shift few bytes between readers; a few MiB are
 * enough to read disks and parallel file systems at full speed; below 4 KiB the borders would take more time than the lines. A
 * single reader has one chunk. */
uint64_t tr_files_chunk(const struct tr_files *files, size_t readers);

/* Finds the part of a file that belongs to a reader.
 *
 * @param [in] chunk  size of the chunks, > 0. For compressed files chunks are larger, up to a reader's share, if a reader would
 *                    decompress much more (32 MiB of compressed data) than its share otherwise
 * @param [in] lap    0: the part that is read first, of all files in order; 1: the rest. Compressed files are in one lap
 * @return false if the part is empty
 */
bool tr_files_deal(const struct tr_files *files, size_t file, size_t reader, size_t readers, uint64_t chunk,
                   int lap, struct tr_file_part *part);

/* The same with one contiguous share per reader, in one lap. A single reader has all files in order. */
bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_file_part *part);

/* Calls `read` for each part of the reader in its order, until it returns anything but TR_OK. chunk 0: one contiguous share per
 * reader. */
typedef int tr_part_fn(void *state, const struct tr_file_part *part);
int tr_files_each_part(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                       tr_part_fn *read, void *state);

/* ---- bytes of a file, decompressed: gzip by zlib; bzip2, xz, zstd and lz4 by libarchive ---- */

struct archive;

struct tr_source {
    const struct tr_file *file;
    int fd;
    uint64_t stored;         /* position in the file */
    unsigned char *packed;   /* compressed bytes */
    z_stream gzip;           /* for gzip, as the next member */
    bool in_member;          /* between the header and the trailer of a member of a gzip file */
    struct archive *archive; /* for the other packings, as the next two members */
    bool ended;
    int status; /* of the last read of the file */
};

/* The offset is 0 for compressed files. Call tr_source_close() also after an error. */
int tr_source_open(struct tr_source *source, const struct tr_file *file, uint64_t offset);
void tr_source_close(struct tr_source *source);

/* Reads up to n bytes; 0 at the end. TR_ERR_DATA for damaged or truncated data. */
int tr_source_read(struct tr_source *source, char *to, size_t n, size_t *got);

/* ---- lines of a part, in chunks that stay in the cache of the processor ---- */

#define TR_TEXT_CHUNK        ((size_t)192 << 10) /* a chunk and its rows fit in 1 MiB of L2 */
#define TR_TEXT_LONGEST_LINE ((size_t)64 << 20)  /* without data.max_record */
#define TR_TEXT_SLACK        64                  /* readable bytes without meaning after a chunk */

struct tr_text;

/* Whole lines. The last byte is always a newline, which is added if the file ends without one: a parser that stops at newlines
 * needs no other bound. */
struct tr_chunk {
    const char *begin, *end; /* begin == end: end of the part */
    uint64_t offset;         /* of begin in the text of the file */
    bool too_long;           /* no lines: a line longer than files->max_record was dropped */
};

/* chunk_bytes: TR_TEXT_CHUNK, or small to test the borders. */
int tr_text_open(const struct tr_files *files, const struct tr_file_part *part, size_t chunk_bytes,
                 struct tr_text **text);
void tr_text_close(struct tr_text **text); /* *text may be NULL */

/* Reads the next lines of the part, valid until the next call. TR_ERR_DATA for a corrupt compressed file. */
int tr_text_next(struct tr_text *text, struct tr_chunk *chunk);

/* Returns the stored bytes that are read. Their sum over all readers is about the size of the file. */
uint64_t tr_text_done(const struct tr_text *text);

/* Formats the error of a line that is too long. tr_text_fail_too_long() adds path and line: TR_ERR_DATA. */
struct tr_text_problem {
    char text[96];
};
struct tr_text_problem tr_text_too_long(const struct tr_files *files);
int tr_text_fail_too_long(const struct tr_files *files, size_t file, uint64_t offset);

/* Finds the line number, from 1, of a byte of the text. Reads the file up to it. */
int tr_files_line(const struct tr_files *files, size_t file, uint64_t offset, uint64_t *line);

#endif

/* The input of a job: a list of files and its fair division over readers.
 *
 * All bytes of all files are laid end to end (packed bytes of packed ones) and cut into chunks of equal size, the
 * last one excepted: chunk i is for reader i mod W. Of small chunks, dealt in turn, every reader has a sample of
 * the whole even where the files are sorted, by label or by day; of W chunks, each reader has one contiguous share.
 * Reader k begins with its chunk after k/W of all, and ends with those before: so at any time the readers, and those
 * who learn from the rows in this order, are in different places.
 *
 * What a reader finds in a file is its part of it: of a plain file the bytes of its chunks. A packed file can only be
 * unpacked from its beginning, so all those of whom it has chunks unpack it, and take pieces of its text in
 * turn. text.h turns parts into lines.
 */
#ifndef TR_DATA_FILES_H
#define TR_DATA_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_packing { TR_PLAIN, TR_GZIP, TR_BZIP2, TR_XZ, TR_ZSTD, TR_LZ4 };

struct tr_file {
    char *path;
    uint64_t size; /* as stored, so packed */
    enum tr_packing packing;
    bool hdf5;    /* by its first bytes, as the packing, not by its name */
    char *inside; /* hdf5: what is to be read of it; NULL: what is there */
};

struct tr_files {
    struct tr_file *file;
    size_t n;
    uint64_t total;      /* sum of the sizes */
    uint64_t max_record; /* bytes of a line at most (data.max_record); 0: TR_TEXT_LONGEST_LINE of text.h */
};

/* Expands patterns (shell globs, the matches of each sorted by bytes; a folder means the regular files in it but hidden ones) and
 * looks at every file once. What follows «:/» names an
 * array or a group in an HDF5 file: d.h5:/train/X.
 * TR_ERR_NO_INPUT names the first that is missing, not a file, unreadable, or says that all are empty. */
int tr_files_open(char *const patterns[], size_t n, struct tr_files *files);
void tr_files_close(struct tr_files *files);

/* A number that tells files that have changed from what they were, wherever they lie: of their sizes, and of a MiB of their
 * bytes, spread over them all. Never 0. */
uint64_t tr_files_digest(const struct tr_files *files);

/* Puts before a relative pattern the first of the folders in which it matches something; an absolute one is copied as it is.
 * *found is to be freed; NULL: it matches nowhere. */
int tr_files_find(const char *pattern, char *const folders[], size_t n, char **found);

/* What one reader has to do with one file: ranges of its text, which is the file itself unless that is packed. Range i
 * ends before byte end + i*stride and is `bytes` long, unless the beginning of the file cuts it short. A line belongs
 * to the range in which its first byte lies. */
struct tr_file_part {
    size_t file;
    uint64_t end, bytes, stride;
    uint64_t limit; /* plain: here the ranges end; of packed files they go on to the end of the text */
    size_t readers; /* packed: how many unpack the file */
};

/* The size of the chunks to be dealt among so many readers: a 64th of a reader's share, but from 4 KiB to about 4 MiB,
 * and such that all readers have equally many. 64 chunks are a fair sample, and keep what lines that cross borders
 * shift between readers small; a few MiB are enough for disks and parallel file systems to read at full speed; below
 * 4 KiB more time would go into the borders than into the lines. A single reader has one chunk, the whole. */
uint64_t tr_files_chunk(const struct tr_files *files, size_t readers);

/* Gives a reader its part of a file when chunks of so many bytes are dealt, tr_files_chunk() or any other size > 0.
 * lap 0: what is to be read first, of all files in their order; lap 1: what comes then (packed files are read whole, in
 * one of them). False if that is nothing. For packed files the chunks are larger, up to a reader's share, where it would
 * otherwise have to unpack much more (32 MiB as stored) than its share. */
bool tr_files_deal(const struct tr_files *files, size_t file, size_t reader, size_t readers, uint64_t chunk,
                   int lap, struct tr_file_part *part);

/* The same with one contiguous share for each reader, in one lap: of one reader, all in the order of the files. */
bool tr_files_part(const struct tr_files *files, size_t file, size_t reader, size_t readers,
                   struct tr_file_part *part);

/* Calls take() for each part of the files that is the reader's, in the order in which it reads them: chunks of so many bytes are
 * dealt, or (0) each reader has one contiguous share. Anything but TR_OK ends it. */
typedef int tr_part_fn(void *state, const struct tr_file_part *part);
int tr_files_each_part(const struct tr_files *files, size_t reader, size_t readers, uint64_t chunk,
                       tr_part_fn *take, void *state);

#endif

/* A rank's parts in a checked file (checked.h). No MPI here.
 *
 * A file has the attributes format ("trireme-shard"), format_version, trireme (the version that wrote it), run (random, the
 * same in all files of a run), number (of the checkpoint), shard and shards. A part "tables/w" is the group /tables/w
 * (from column 64 on of a matrix that is cut: /tables/w@64) with the attributes kind, type, total_rows, total_columns,
 * first_column, columns, and the datasets
 *   runs    r × 2: first row, rows
 *   values  rows × columns elements, or one dimension where the whole has one column; of lists, all elements
 *   begin   lists: rows + 1 numbers
 * The directory of the file lists the parts again: with it a shard is opened in a few reads, and HDF5, which takes a hundred
 * times as long, is not asked. What that shows is for people.
 */
#ifndef TR_STORE_SHARD_H
#define TR_STORE_SHARD_H

#include <stdbool.h>

#include "store/checked.h"
#include "store/part.h"

enum {
    TR_SHARD_PIECE = 1 << 18, /* elements of values that have a sum of their own */
    TR_SHARD_NAME_BYTES = 24,
    TR_PART_PATH_BYTES = sizeof((struct tr_part *)NULL)->name + 24
};

/* The name of its file in the folder of a checkpoint: "shard-0012.h5". */
void tr_shard_name(uint32_t shard, char name[TR_SHARD_NAME_BYTES]);

struct tr_shard_head {
    uint64_t run, number;
    uint32_t shard, shards;
    uint64_t
        attempt; /* random, of the start of the run that wrote it: two may have come to the same number */
};

/* What the manifest says of a shard; the digest covers its parts, and by their sums its values. */
struct tr_shard_seal {
    uint64_t bytes, digest;
};

/* Writes a new file and brings it to the disk (durable: fsync). It is not left behind on failure: TR_ERR_NO_OUTPUT,
 * TR_ERR_IO with the reason. May be called in a thread that alone uses HDF5 meanwhile. Reading shards does not use it. */
int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal);

struct tr_shard {
    struct tr_checked file;
    size_t parts;
    struct tr_part *part; /* in the order in which they were written, without data */
};

/* Opens a file and lists its parts, without values; checks that it is what head and seal say (NULL: not known).
 * TR_ERR_NO_INPUT: cannot be read; TR_ERR_DATA: is not, or not whole, with what is wrong in one line. */
int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard);
void tr_shard_close(struct tr_shard **shard);

/* The part of that name and first column; -1: there is none. */
ptrdiff_t tr_shard_find(const struct tr_shard *shard, const char *name, uint64_t first_column);

/* Elements first .. first + n - 1 of a part's values, checked; TR_ERR_DATA if they are not what was written. */
int tr_shard_read(struct tr_shard *shard, size_t part, uint64_t first, uint64_t n, void *values);

/* Reads and checks everything. */
int tr_shard_verify(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal);

/* How parts lie in HDF5: their type; "tables/w" or "tables/w@64"; the shape of so many rows, or of lists with so many
 * elements altogether (returns the dimensions). */
hid_t tr_part_h5_type(enum tr_part_type type);
void tr_part_path(const struct tr_part *part, char *path, size_t size);
int tr_part_shape(const struct tr_part *part, uint64_t rows, uint64_t columns, uint64_t elements,
                  uint64_t *shape);

#endif

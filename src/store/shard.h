/* A checkpoint on the disk: parts of arrays, the shards that contain them, the manifest that makes the shards a checkpoint, and
 * the folders of checkpoints. No MPI here. */
#ifndef TR_STORE_SHARD_H
#define TR_STORE_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "store/checked.h"
#include "trireme/table.h"

/* ---- part: the rows (and of these the columns) of an array that one rank writes ---- */

/* The values of enum tr_dtype, and bytes. */
enum tr_part_type { TR_PART_F32, TR_PART_F64, TR_PART_I32, TR_PART_I64, TR_PART_U8, TR_PART_TYPES };

enum tr_part_kind {
    TR_PART_ROWS,   /* rows of a matrix that is distributed over ranks */
    TR_PART_LISTS,  /* the same with rows of different lengths */
    TR_PART_COMMON, /* equal on all ranks, written by one */
    TR_PART_OWN,    /* state of one rank, for the same rank of the same layout */
    TR_PART_KINDS
};

/* Rows first .. first + n - 1. */
struct tr_row_run {
    uint64_t first, n;
};

struct tr_part {
    char name[96]; /* such as "tables/w": letters, digits, _ and / */
    enum tr_part_kind kind;
    enum tr_part_type type;
    uint64_t total_rows, total_columns; /* of the whole array; total_columns 0: lists */
    uint64_t first_column, columns;     /* of this part; parts of one name differ in first_column */
    size_t runs;                        /* ascending and not adjacent */
    struct tr_row_run *run;
    uint64_t rows;   /* in all runs */
    uint64_t *begin; /* lists: rows + 1 numbers from 0; else NULL */
    void *data;      /* rows × columns elements in the order of the runs; NULL: not read */
};

static inline size_t tr_part_type_size(enum tr_part_type type)
{
    return type == TR_PART_U8 ? 1 : type == TR_PART_F32 || type == TR_PART_I32 ? 4 : 8;
}

/* Returns the number of elements of all rows. */
static inline uint64_t tr_part_elements(const struct tr_part *p)
{
    return p->begin ? p->begin[p->rows] : p->rows * p->columns;
}

/* Returns a part of an array of total × columns elements without name, runs and data. columns 0: lists. */
static inline struct tr_part tr_part_make(enum tr_part_kind kind, enum tr_part_type type, uint64_t total,
                                          uint64_t columns)
{
    return (struct tr_part){
        .kind = kind, .type = type, .total_rows = total, .total_columns = columns, .columns = columns};
}

/* Returns a copy of a part without its arrays. */
static inline struct tr_part tr_part_without_arrays(const struct tr_part *p)
{
    struct tr_part copy = *p;
    copy.run = NULL;
    copy.begin = NULL;
    copy.data = NULL;
    return copy;
}

/* Frees the memory of a part. */
static inline void tr_part_free(struct tr_part *part)
{
    free(part->run);
    free(part->begin);
    free(part->data);
    *part = tr_part_without_arrays(part);
}

/* ---- shard ---- */

/* The parts of a rank in a checked file (checked.h).
 *
 * Attributes of the file: format ("trireme-shard"), format_version, trireme (the version of the program), run (random, equal in
 * all files of a run), number (of the checkpoint), shard and shards. A part "tables/w" is the group /tables/w (if its first
 * column is 64: /tables/w@64) with the attributes kind, type, total_rows, total_columns, first_column, columns, and the datasets
 *   runs    r × 2: first row, number of rows
 *   values  rows × columns elements; one dimension if total_columns is 1; all elements of lists
 *   begin   lists: rows + 1 numbers
 * These are for users. Trireme reads the directory of the file, which lists the parts again: it takes a hundredth of the time of
 * HDF5. */
enum {
    TR_SHARD_PIECE = 1 << 18, /* elements of values per checksum */
    TR_SHARD_NAME_BYTES = 24,
    TR_PART_PATH_BYTES = sizeof((struct tr_part *)NULL)->name + 24
};

/* Writes the name of its file in the folder of a checkpoint: "shard-0012.h5". */
void tr_shard_name(uint32_t shard, char name[TR_SHARD_NAME_BYTES]);

struct tr_shard_head {
    uint64_t run, number;
    uint32_t shard, shards;
    uint64_t
        attempt; /* random number of the start of the run: two starts may reach the same checkpoint number */
};

/* Size and digest of a shard in the manifest. The digest covers the parts and, through their sums, the values. */
struct tr_shard_seal {
    uint64_t bytes, digest;
};

/* Writes a new file; removes it on failure. May be called in a thread, if no other thread uses HDF5 meanwhile. (Reading shards does
 * not use HDF5.)
 *
 * @param [in] durable  call fsync
 * @return TR_OK, TR_ERR_NO_OUTPUT or TR_ERR_IO
 */
int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal);

struct tr_shard {
    struct tr_checked file;
    size_t parts;
    struct tr_part *part; /* in the order of writing, without data */
};

/* Opens a file and lists its parts without values. Checks head and seal (NULL: unknown). TR_ERR_NO_INPUT: cannot be read;
 * TR_ERR_DATA: damaged, or another file. */
int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard);
void tr_shard_close(struct tr_shard **shard);

/* Returns the number of the part with this name and first column, or -1. */
ptrdiff_t tr_shard_find(const struct tr_shard *shard, const char *name, uint64_t first_column);

/* Reads and checks elements first .. first + n - 1 of a part. TR_ERR_DATA: damaged. */
int tr_shard_read(struct tr_shard *shard, size_t part, uint64_t first, uint64_t n, void *values);

/* Reads and checks the whole file. */
int tr_shard_verify(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal);

/* ---- manifest ---- */

/* manifest.h5: a checked file (checked.h), which makes the shards of a folder a checkpoint.
 *
 * Attributes: format ("trireme-checkpoint"), format_version, trireme (the version of the program), run, number and created (UTC)
 * of the checkpoint, and the position of the run: stage, clock and other members of struct tr_facts. Datasets:
 *   /job      the resolved job as YAML
 *   /<part>   each array of kind rows and common: a virtual dataset over the shards, readable with h5py and h5dump; zeros for
 *             missing rows. HDF5 takes about 50 µs per selection of rows (runs with equal lengths and distances are one), so
 *             a manifest shows arrays of at most TR_MANIFEST_RUNS selections
 * These are for users. Trireme reads the directory of the file, which has all facts, and size and digest of each shard. */
enum { TR_MANIFEST_RUNS = 1 << 12, TR_MANIFEST_VERSION = 3 };

/* Position of a run. */
struct tr_facts {
    char stage[64];       /* its name */
    int64_t stage_number; /* number of the run of a stage or task in this context, from 0 */
    int64_t clock;        /* of the slowest worker */
    int64_t evaluations;  /* number of evaluations so far */
    double epochs_per_evaluation;
    int64_t ended; /* 1: the stage was over */
    int64_t ranks, servers, groups, group_size;
    double seconds; /* since the first start, without interruptions */
    double epoch;   /* passes over the data, as in the output of progress */
    uint64_t data;  /* tr_files_digest() of the training data; 0: unknown */
};

struct tr_manifest {
    uint64_t run, number, attempt; /* as in struct tr_shard_head */
    struct tr_facts facts;
    char *job; /* resolved, as YAML */
    uint32_t shards;
    struct tr_shard_seal
        *seal; /* by shard; checkpoints in memory: all zeros, as their shards are identified by their heads */
};

struct tr_shard_head tr_manifest_head(const struct tr_manifest *manifest, uint32_t shard);

/* Convert a manifest to bytes in new memory, and back. path: name for messages. TR_ERR_DATA: damaged. */
int tr_manifest_pack(const struct tr_manifest *manifest, void *packed_pointer, size_t *bytes);
int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *manifest);

/* Writes folder/manifest.h5, under another name until it is complete. Opens the shards to list their parts. TR_ERR_NO_OUTPUT, TR_ERR_IO, or
 * an error of tr_shard_open(). */
int tr_manifest_write(const char *folder, const struct tr_manifest *manifest, bool durable);

/* Reads a manifest. Free it with tr_manifest_free(). TR_ERR_NO_INPUT: missing or unreadable; TR_ERR_DATA: damaged or of another
 * format. */
int tr_manifest_read(const char *folder, struct tr_manifest *manifest);
void tr_manifest_free(struct tr_manifest *manifest);

/* ---- folder ---- */

/* A folder contains checkpoints, each in a folder that is named by its number. */

/* Returns the folder of the checkpoints of a job: checkpoint.to, or <output>/checkpoints if that is empty. Free it. */
int tr_checkpoints_place(const char *to, const char *output, char **folder);

/* Return the paths <to>/<number, 8 digits>, and shard-<4 digits>.h5 in it. Free them. */
int tr_checkpoint_path(const char *to, uint64_t number, char **path);
int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path);

/* Lists the numbers of the folders, with or without manifests, in descending order; none if `to` does not exist. Free *numbers.
 * TR_ERR_NO_INPUT: cannot be read. */
int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n);

/* Creates the folder of a checkpoint, and `to` with its parents. TR_ERR_NO_OUTPUT. */
int tr_checkpoint_make(const char *to, uint64_t number);

/* Removes the files of a checkpoint, its manifest first. A folder that contains other files stays. This is an error (TR_ERR_IO) if
 * `strict`, or if files of a checkpoint were removed. */
int tr_checkpoint_remove(const char *to, uint64_t number, bool strict);

/* Removes all checkpoints but the `keep` highest that have a manifest, and folders without one below the newest that has one. */
int tr_checkpoints_prune(const char *to, size_t keep);

/* Read and write the file <to>/<name>, which contains the number of a run; 0: there is no file. */
uint64_t tr_read_run(const char *to, const char *name);
int tr_write_run(const char *to, const char *name, uint64_t run);

#endif

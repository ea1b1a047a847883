/* A checkpoint on the disk. A part is the range of an array that one rank writes. The shard of a rank is the file with its parts.
 * The manifest describes the checkpoint; without it the shards are invalid. No MPI here. */
#ifndef TR_STORE_SHARD_H
#define TR_STORE_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "store/checked.h"
#include "trireme/table.h"

/* ---- part ---- */

/* Type of elements: the values of enum tr_dtype (TR_F32 = TR_PART_F32, ...), and bytes. */
enum tr_part_type { TR_PART_F32, TR_PART_F64, TR_PART_I32, TR_PART_I64, TR_PART_U8, TR_PART_TYPES };

enum tr_part_kind {
    TR_PART_ROWS,   /* rows of a matrix that is distributed over ranks */
    TR_PART_LISTS,  /* rows of different lengths that are distributed over ranks */
    TR_PART_COMMON, /* array that is equal on all ranks; rank 0 writes it */
    TR_PART_OWN,    /* state of one rank, restored on the same rank if the layout is the same */
    TR_PART_KINDS
};

/* A run of rows: rows first .. first + n - 1. */
struct tr_row_run {
    uint64_t first, n;
};

struct tr_part {
    char name[96]; /* such as "tables/w": letters, digits, _ and / */
    enum tr_part_kind kind;
    enum tr_part_type type;
    /* rows and columns of the whole array; total_columns 0: its rows are lists */
    uint64_t total_rows, total_columns;
    uint64_t first_column, columns; /* columns of this part; a rank may have several parts of an array */
    size_t runs;                    /* number of runs of rows, which are ascending and not adjacent */
    struct tr_row_run *run;
    uint64_t rows; /* number of rows in all runs */
    /* lists: index in `data` of the first element of each row, and of the end; otherwise NULL */
    uint64_t *begin;
    /* rows × columns elements (or the elements of the lists) in the order of the runs; NULL: not read */
    void *data;
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

/* Returns a part, without name, runs and data, that has all columns of an array of total × columns elements. columns 0: lists. */
static inline struct tr_part tr_part_make(enum tr_part_kind kind, enum tr_part_type type, uint64_t total,
                                          uint64_t columns)
{
    return (struct tr_part){
        .kind = kind, .type = type, .total_rows = total, .total_columns = columns, .columns = columns};
}

/* Returns a copy of a part in which the pointers to arrays are NULL. */
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

/* A shard is a checked file (checked.h) with the parts of a rank.
 *
 * Attributes of the file: format ("trireme-shard"), format_version, trireme (the version of the program), run (random, equal in
 * all files of a run), number (of the checkpoint), shard and shards. A part "tables/w" is the group /tables/w (if its first
 * column is 64: /tables/w@64) with the attributes kind, type, total_rows, total_columns, first_column, columns, and the datasets
 *   runs    r × 2: first row, number of rows
 *   values  rows × columns elements (one dimension if total_columns is 1), or the concatenated elements of lists
 *   begin   lists: rows + 1 numbers, as in struct tr_part
 * Users read these by HDF5. Trireme reads the directory of the file, which also lists the parts, in a hundredth of the time. */
enum {
    TR_SHARD_PIECE = 1 << 18, /* elements of values per checksum */
    TR_SHARD_NAME_BYTES = 24,
    TR_PART_PATH_BYTES = sizeof((struct tr_part *)NULL)->name + 24
};

/* Writes the file name of a shard in the folder of a checkpoint: "shard-0012.h5". */
void tr_shard_name(uint32_t shard, char name[TR_SHARD_NAME_BYTES]);

struct tr_shard_head {      /* the members that identify a shard */
    uint64_t run, number;   /* number that identifies the run of training; number of the checkpoint */
    uint32_t shard, shards; /* number of the shard; number of shards */
    uint64_t attempt;       /* random number of this start of the run: two starts may reach the same number */
};

/* Size and digest (checked.h) of a shard in the manifest. The digest includes the checksums of all values. */
struct tr_shard_seal {
    uint64_t bytes, digest;
};

/* Writes a shard to a new file; removes the file on failure. May be called in a thread, if no other thread uses HDF5 meanwhile.
 * (Reading shards does not use HDF5.)
 *
 * @param [in] durable  call fsync
 * @return TR_OK, TR_ERR_NO_OUTPUT or TR_ERR_IO
 */
int tr_shard_write(const char *path, const struct tr_shard_head *head, const struct tr_part *parts, size_t n,
                   bool durable, struct tr_shard_seal *seal);

struct tr_shard {
    struct tr_checked file;
    size_t parts;
    struct tr_part *part; /* all parts, without data */
};

/* Opens a shard and lists its parts without data. Compares it with head and seal unless they are NULL. TR_ERR_NO_INPUT: the file
 * cannot be read; TR_ERR_DATA: it is damaged, or another shard. */
int tr_shard_open(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal,
                  struct tr_shard **shard);
void tr_shard_close(struct tr_shard **shard);

/* Returns the index of the part with this name and first column, or -1. */
ptrdiff_t tr_shard_find(const struct tr_shard *shard, const char *name, uint64_t first_column);

/* Reads elements first .. first + n - 1 of a part, and compares them with checksums. TR_ERR_DATA: they are damaged. */
int tr_shard_read(struct tr_shard *shard, size_t part, uint64_t first, uint64_t n, void *values);

/* Reads a whole shard and compares it with all checksums. */
int tr_shard_verify(const char *path, const struct tr_shard_head *head, const struct tr_shard_seal *seal);

/* ---- manifest ---- */

/* manifest.h5: a checked file (checked.h), which makes the shards of a folder a checkpoint.
 *
 * Attributes: format ("trireme-checkpoint"), format_version, trireme (the version of the program), run, number and created (UTC)
 * of the checkpoint, and the position of the run: stage, clock and other members of struct tr_facts. Datasets:
 *   /job      the resolved job as YAML
 *   /<part>   each array of kind rows and common: a virtual dataset over the shards, readable with h5py and h5dump; missing
 *             rows are zeros. HDF5 takes about 50 µs per selection (runs of rows with equal lengths and distances), so a
 *             manifest shows only arrays with at most TR_MANIFEST_RUNS selections together
 * Users read these by HDF5. Trireme reads the directory of the file, which has all facts, and size and digest of each shard. */
enum { TR_MANIFEST_RUNS = 1 << 12, TR_MANIFEST_VERSION = 3 };

/* Position of a run of training when the checkpoint was taken. */
struct tr_facts {
    char stage[64];       /* name of the stage */
    int64_t stage_number; /* number of stages and tasks that had started before this stage */
    int64_t clock;        /* clock of the slowest worker */
    int64_t evaluations;  /* number of evaluations so far */
    double epochs_per_evaluation;
    int64_t ended; /* 1: the stage was over, so that the next stage follows */
    int64_t ranks, servers, groups, group_size;
    double seconds; /* duration of the run so far, without times between its parts */
    double epoch;   /* passes over the data, as progress shows them */
    uint64_t data;  /* tr_files_digest() of the training data; 0: unknown */
};

struct tr_manifest {
    uint64_t run, number, attempt; /* see struct tr_shard_head */
    struct tr_facts facts;
    char *job; /* the resolved job as YAML */
    uint32_t shards;
    /* seal of each shard; zeros for checkpoints in memory, whose shards are identified by their heads */
    struct tr_shard_seal *seal;
};

struct tr_shard_head tr_manifest_head(const struct tr_manifest *manifest, uint32_t shard);

/* tr_manifest_pack() converts a manifest to bytes in new memory, tr_manifest_unpack() converts bytes to a manifest. path: name for
 * messages. TR_ERR_DATA: the bytes are damaged. */
int tr_manifest_pack(const struct tr_manifest *manifest, void *packed_pointer, size_t *bytes);
int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *manifest);

/* Writes folder/manifest.h5, which has another name until it is complete. Opens the shards to list their parts. TR_ERR_NO_OUTPUT,
 * TR_ERR_IO, or an error of tr_shard_open(). */
int tr_manifest_write(const char *folder, const struct tr_manifest *manifest, bool durable);

/* Reads a manifest. Free it with tr_manifest_free(). TR_ERR_NO_INPUT: it cannot be read; TR_ERR_DATA: it is damaged, or has another
 * format. */
int tr_manifest_read(const char *folder, struct tr_manifest *manifest);
void tr_manifest_free(struct tr_manifest *manifest);

/* ---- folder ---- */

/* The folder `to` of a job contains a folder for each checkpoint, which is named by its number. */

/* Sets *folder to the folder of the checkpoints of a job: checkpoint.to, or <output>/checkpoints if `to` is empty. The caller frees
 * it. */
int tr_checkpoints_place(const char *to, const char *output, char **folder);

/* tr_checkpoint_path() returns <to>/<number, 8 digits>, tr_shard_path() the file shard-<4 digits>.h5 in that folder. The caller
 * frees the paths. */
int tr_checkpoint_path(const char *to, uint64_t number, char **path);
int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path);

/* Lists the numbers of all checkpoints, with or without manifests, in descending order; none if `to` does not exist. Free *numbers.
 * TR_ERR_NO_INPUT: the folder cannot be read. */
int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n);

/* Creates the folder of a checkpoint, and `to` with its parents. TR_ERR_NO_OUTPUT. */
int tr_checkpoint_make(const char *to, uint64_t number);

/* Removes the files of a checkpoint, its manifest first, and the folder. If the folder contains other files, it stays; this is an
 * error (TR_ERR_IO) if `strict`, or if files of a checkpoint were removed. */
int tr_checkpoint_remove(const char *to, uint64_t number, bool strict);

/* Removes all checkpoints with a manifest except the `keep` newest, and all without a manifest that are older than the newest one
 * with a manifest. */
int tr_checkpoints_prune(const char *to, size_t keep);

/* Read and write the file <to>/<name>, which contains the number of a run. tr_read_run() returns 0 if there is no file. */
uint64_t tr_read_run(const char *to, const char *name);
int tr_write_run(const char *to, const char *name, uint64_t run);

#endif

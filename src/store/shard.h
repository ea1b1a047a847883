/* A checkpoint on the disk: its arrays, the shards that contain them, the manifest that makes the shards a checkpoint, and
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
    TR_PART_ROWS,   /* of a matrix that is spread over ranks */
    TR_PART_LISTS,  /* … whose rows differ in length */
    TR_PART_COMMON, /* one rank's for all */
    TR_PART_OWN,    /* one rank's for the same rank of the same layout */
    TR_PART_KINDS
};

/* Rows first .. first + n - 1. */
struct tr_row_run {
    uint64_t first, n;
};

struct tr_part {
    char name[96]; /* groups and own name, as "tables/w": letters, digits, _ and / */
    enum tr_part_kind kind;
    enum tr_part_type type;
    uint64_t total_rows, total_columns; /* of the whole; total_columns 0: lists */
    uint64_t first_column, columns; /* what is here of every row; parts of one name differ in first_column */
    size_t runs;                    /* ascending, without gaps between neighbours that could be one run */
    struct tr_row_run *run;
    uint64_t rows;   /* the sum of their n */
    uint64_t *begin; /* lists: rows + 1, the first 0; else NULL */
    void *data;      /* rows × columns elements in the order of the runs; NULL in what was only listed */
};

static inline size_t tr_part_type_size(enum tr_part_type type)
{
    return type == TR_PART_U8 ? 1 : type == TR_PART_F32 || type == TR_PART_I32 ? 4 : 8;
}

/* Elements of all rows. */
static inline uint64_t tr_part_elements(const struct tr_part *p)
{
    return p->begin ? p->begin[p->rows] : p->rows * p->columns;
}

/* Frees what it points to. */
static inline void tr_part_free(struct tr_part *part)
{
    free(part->run);
    free(part->begin);
    free(part->data);
    part->run = NULL;
    part->begin = NULL;
    part->data = NULL;
}

/* ---- shard ---- */

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

/* ---- manifest ---- */

/* manifest.h5: what makes the shards of a folder a checkpoint. No MPI here.
 *
 * A checked file (checked.h). Attributes: format ("trireme-checkpoint"), format_version, trireme (the version that wrote it),
 * and run, number and created (UTC) of the checkpoint; where the run stood: stage, clock, and what else facts say. Datasets:
 *   /job      the resolved job as YAML
 *   /<part>   every part of kind rows and common of the shards, whole: virtual datasets over the shards, to be read with
 *             h5py or h5dump; zeros where there are no rows. HDF5 takes about 50 µs for each stretch of rows (runs that
 *             are equally long and equally far apart are one); of all parts together so many as TR_MANIFEST_RUNS are
 *             shown, and the others only by the shards
 * That is for people: Trireme reads the directory of the file, which has it all, and bytes and digest of every shard.
 */

enum { TR_MANIFEST_RUNS = 1 << 12, TR_MANIFEST_VERSION = 3 };

/* Where the run stood. */
struct tr_facts {
    char stage[64];       /* its name */
    int64_t stage_number; /* of the runs of stages and tasks of this context, counted from 0 */
    int64_t clock;        /* workers have ended so many (the slowest) */
    int64_t evaluations;  /* … and were judged so often */
    double epochs_per_evaluation;
    int64_t ended; /* 1: that stage was over */
    int64_t ranks, servers, groups, group_size;
    double seconds; /* of all runs so far, since the first one started */
    double epoch;   /* passes over the data, as progress counts them */
    uint64_t data;  /* tr_files_digest() of what is learned from; 0: not known */
};

struct tr_manifest {
    uint64_t run, number, attempt; /* as in struct tr_shard_head */
    struct tr_facts facts;
    char *job; /* resolved, as YAML */
    uint32_t shards;
    struct tr_shard_seal *seal; /* by shard; in memory all zeros: shards are known by their heads */
};

struct tr_shard_head tr_manifest_head(const struct tr_manifest *manifest, uint32_t shard);

/* All of it in fresh memory, to be freed, and back; path: where it comes from. TR_ERR_DATA: it cannot be. */
int tr_manifest_pack(const struct tr_manifest *manifest, void *packed_pointer, size_t *bytes);
int tr_manifest_unpack(const void *packed, uint64_t bytes, const char *path, struct tr_manifest *manifest);

/* Writes folder/manifest.h5 (under another name until it is on the disk), looking into the shards for what they have.
 * TR_ERR_NO_OUTPUT, TR_ERR_IO; and as tr_shard_open() where a shard is not what its seal says. */
int tr_manifest_write(const char *folder, const struct tr_manifest *manifest, bool durable);

/* TR_ERR_NO_INPUT: there is none, or it cannot be read; TR_ERR_DATA: it is not whole, or of another format, with what is
 * wrong in one line. Free with tr_manifest_free(). */
int tr_manifest_read(const char *folder, struct tr_manifest *manifest);
void tr_manifest_free(struct tr_manifest *manifest);

/* ---- folder ---- */

/* Checkpoints in a folder, each in a folder of its own that is called by its number. No MPI here. */

/* Where a job has its checkpoints: in checkpoint.to, or where that is empty in <output>/checkpoints; to be freed. */
int tr_checkpoints_place(const char *to, const char *output, char **folder);

/* <to>/<number, 8 digits>, and in it shard-<4 digits>.h5; to be freed. */
int tr_checkpoint_path(const char *to, uint64_t number, char **path);
int tr_shard_path(const char *to, uint64_t number, uint32_t shard, char **path);

/* Numbers of the folders that are there, the highest first, whether or not they have a manifest: *numbers (to be freed);
 * none where `to` does not exist. TR_ERR_NO_INPUT: it cannot be read. */
int tr_checkpoints_list(const char *to, uint64_t **numbers, size_t *n);

/* Makes the folder of a new one, and `to` with its parents. TR_ERR_NO_OUTPUT. */
int tr_checkpoint_make(const char *to, uint64_t number);

/* Removes one, its manifest first, and nothing but the files that belong to it. */
int tr_checkpoint_remove(const char *to, uint64_t number);

/* Removes all but the `keep` highest that have a manifest, and those without one that are older than the newest that has
 * one. */
int tr_checkpoints_prune(const char *to, size_t keep);

/* The file <to>/<name> that names a run; 0: there is none. */
uint64_t tr_read_run(const char *to, const char *name);
int tr_write_run(const char *to, const char *name, uint64_t run);

#endif

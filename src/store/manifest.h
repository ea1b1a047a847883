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
#ifndef TR_STORE_MANIFEST_H
#define TR_STORE_MANIFEST_H

#include <stdbool.h>

#include "store/shard.h"

enum { TR_MANIFEST_RUNS = 1 << 12, TR_MANIFEST_VERSION = 3 };

/* Where the run stood. */
struct tr_facts {
    char stage[64];       /* its name */
    int64_t stage_number; /* of the runs of stages and tasks of this context, counted from 0 */
    int64_t clock;        /* workers have ended so many (the slowest) */
    int64_t evaluations;  /* … and were judged so often */
    double epochs_per_evaluation;
    int64_t ended;        /* 1: that stage was over */
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

#endif

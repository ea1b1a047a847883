/* Which server stores which unit (partitions), and the units of some keys by server (plans).
 *
 * The units of a table are numbered 0..units-1 and divided into blocks of equal size. Every rank computes the same partition,
 * without communication. In three kinds of partition, block i goes to server π(i) modulo the number of servers:
 *   range       one block for each server, π(i) = i: neighbouring units stay together, also those that are used most
 *   hash        blocks of one unit, π a pseudo-random permutation: even load, but neighbouring units are separated
 *   range-hash  blocks of some units, π a pseudo-random permutation: even load, and runs of neighbours (DynSGD, section 5)
 *
 * In two kinds, a function chooses the server of each block. A server stores its blocks in ascending order, and every rank has a
 * table of their positions: 12 bytes per block, 0.8 MB for the default of 65536 blocks.
 *   ring        consistent hashing with virtual nodes (Karger et al. 1997; PS, section 4.3): servers have points on a ring, and a
 *               block belongs to the next point clockwise of its hash. A new server takes its part from all others, and no other
 *               block moves
 *   own         a function that the creator of the table provides (tr_table_options.place)
 *
 * Unbounded partitions, of up to 2^63 keys with hash storage, determine only the server of a key; the server looks up its position.
 * They need no table of blocks, and the size of shares is not known in advance. The server of a block is found as above for range,
 * by a hash of the block number for hash and range-hash, and by a search among the points of a ring; own is not possible. */
#ifndef TR_TABLE_PLAN_H
#define TR_TABLE_PLAN_H

#include "base/base.h"
#include "ranks/ranks.h"
#include "trireme/table.h"

/* The first four values are in the order of the words of the job key table.partition. */
enum tr_partition_kind {
    TR_PARTITION_RANGE,
    TR_PARTITION_HASH,
    TR_PARTITION_RANGE_HASH,
    TR_PARTITION_RING,
    TR_PARTITION_OWN
};

/* Maximum number of blocks of ring and own. */
enum { TR_MOST_PLACED_BLOCKS = 1 << 24 };

/* Settings of the job and options of the table. */
struct tr_partition_options {
    enum tr_partition_kind kind;
    uint64_t block;     /* units per block for range-hash, ring and own; 0: choose the number */
    uint32_t points;    /* ring: number of points of each server, at least 1 */
    tr_place_fn *place; /* own: returns the server of a block */
    void *who;          /* argument of place() */
    const char *table;  /* name of the table, for error messages */
    bool unbounded;
};

/* The server of a unit or a block, and its position in the share of this server. */
struct tr_location {
    uint32_t server, position;
};

struct tr_ring_point {
    uint64_t at;
    uint32_t server;
};

struct tr_partition {
    enum tr_partition_kind kind;
    bool unbounded;
    uint64_t units, block, blocks; /* number of units, units per block, number of blocks */
    uint32_t servers;
    /* hash and range-hash: half the number of bits of the block numbers that π permutes */
    unsigned half_bits;

    /* ---- ring and own ---- */
    uint32_t points;            /* ring: number of points of each server */
    struct tr_location *placed; /* placed[b]: location of block b; its position is counted in blocks */
    uint32_t *first;            /* first[s]: index in block_at of its first block; servers + 1 entries */
    /* the block numbers of each server, in the order of servers and then of positions */
    uint32_t *block_at;

    struct tr_ring_point *ring; /* unbounded ring: its servers × points points, ascending; otherwise NULL */
};

/* Makes a partition; free it with tr_partition_free(). The block size of ring and own does not depend on the number of servers, so
 * that blocks stay equal if servers are added. TR_ERR_CONFIG: a share would exceed 2^32 units, there are too many blocks to list,
 * or place() returns a server that does not exist; unbounded: more than 2^63 keys, or kind own. */
int tr_partition_make(const struct tr_partition_options *options, uint64_t units, uint32_t servers,
                      struct tr_partition *partition);
void tr_partition_free(struct tr_partition *partition);

/* Returns the number of units of a server's share, including the padding of the last block; 0 if unbounded. */
uint64_t tr_partition_share(const struct tr_partition *partition, uint32_t server);

/* Returns the maximum of tr_partition_share() over the servers. */
uint64_t tr_partition_longest(const struct tr_partition *partition);

/* Writes the number of units of each server, without padding, to count. If unbounded, it visits every block. */
void tr_partition_count(const struct tr_partition *partition, uint64_t *count);

/* Returns the location of a unit. Units of a block have consecutive positions. If unbounded, the position is meaningless. */
struct tr_location tr_partition_locate(const struct tr_partition *partition, uint64_t unit);

/* Locates units in any order, with one look-up for neighbouring units of a block. Initialize the member `partition`, and all others
 * with zeros. */
struct tr_walker {
    const struct tr_partition *partition;
    uint64_t first, end;   /* the block that was looked up last: units first .. end - 1 */
    struct tr_location at; /* location of unit `first` */
};

static inline struct tr_location tr_walk_to(struct tr_walker *w, uint64_t unit)
{
    if (unit < w->first || unit >= w->end) {
        w->first = unit - unit % w->partition->block;
        w->end = w->first + w->partition->block;
        w->at = tr_partition_locate(w->partition, w->first);
    }
    return (struct tr_location){w->at.server, w->at.position + (uint32_t)(unit - w->first)};
}

/* Returns the unit at a position of a server's share, or UINT64_MAX if the position is padding (the inverse of
 * tr_partition_locate()). The partition must not be unbounded. */
uint64_t tr_partition_unit(const struct tr_partition *partition, uint32_t server, uint32_t position);

/* Returns the word of table.partition, or "own". */
const char *tr_partition_name(enum tr_partition_kind kind);

/* Returns a checksum of the partition, by which ranks check that theirs are equal. */
uint64_t tr_partition_print(const struct tr_partition *partition);

/* ======== plans: keys → segments by server ========
 *
 * A plan lists the units of some keys. For each unit it has the server, the position in the server's share, and the index of its
 * values in the caller's memory (local). Views, lists of rows, unions of a node and subscriptions all read and write by plans.
 *
 * A segment contains the units at one server. In TR_PLAN_ASCENDING order, positions ascend. If most units are contiguous in share
 * and memory, the segment also has a shorter list of runs, each of which one memcpy() moves. In TR_PLAN_LISTED order, all pieces of
 * the first key come first, then those of the second. With hash storage only servers know positions: a segment has keys instead. */
struct tr_run {
    uint32_t local, position, length; /* first unit in memory and in the share; number of units */
};

struct tr_segment {
    uint32_t n; /* number of units */
    /* local[i]: index of unit i in the caller's memory, which is index of the key × pieces + piece; NULL: local[i] = i */
    uint32_t *local;
    uint32_t *position; /* position[i]: position of unit i in the server's share; NULL with hash storage */
    tr_key *key;        /* key[i]: key of unit i; NULL without hash storage */
    uint32_t runs;      /* number of runs that contain all units; 0: runs would be too short */
    struct tr_run *run;
};

struct tr_plan {
    uint32_t servers;
    size_t units;               /* number of units in all segments */
    struct tr_segment *segment; /* one segment per server */
    uint32_t *local, *position; /* memory of the arrays of all segments, one segment after the other */
    tr_key *key;
};

enum tr_plan_order { TR_PLAN_ASCENDING, TR_PLAN_LISTED };

/* Splits n keys of a table by server. Units of server s are left out if skip[s] is true; skip may be NULL. Free the plan with
 * tr_plan_free(). TR_ERR_INTERNAL: more than 2^32 units, or, in ascending order, keys that do not ascend or do not exist. In listed
 * order the caller must have checked the keys. */
int tr_plan_make(const struct tr_table *table, const tr_key *key, size_t n, enum tr_plan_order order,
                 const bool *skip, struct tr_plan *plan);
void tr_plan_free(struct tr_plan *plan);

/* Makes the list of runs of an ascending segment, if a run has at least 16 units on average. */
int tr_segment_find_runs(struct tr_segment *segment);

#endif

/* Which server holds which unit (partitions), and the units of some keys by server (plans).
 *
 * The units of a table are numbered 0..units-1 and lie in blocks of equal size. Every rank computes the same partition, without
 * communication. In three kinds, a bijection of the block numbers spreads the blocks over the servers in turn:
 *   range       one block for each server, in order: neighbours stay together, hot ranges too
 *   hash        blocks of one unit, permuted: even load, no neighbours
 *   range-hash  blocks of some units, permuted: even load, and runs of neighbours (DynSGD, section 5)
 *
 * Two kinds choose a server for each block. Servers keep their blocks in ascending order, and every rank lists the places: 12 bytes
 * a block, 0.8 MB for the default of 65536 blocks.
 *   ring        consistent hashing with virtual nodes (Karger et al. 1997; PS, section 4.3): servers have points on a ring, and a
 *               block belongs to the next point clockwise of its hash. A new server takes its part from all others, and no other
 *               block moves
 *   own         a function of the table's user
 *
 * Unbounded partitions, of up to 2^63 keys with hash storage, determine only the server of a key; the server finds its place.
 * Nothing is listed, and shares have no size in advance. The server of a block is found by range as above, for hash and range-hash
 * by a hash of the block's number, and on a ring by a search among its points; own is not possible. */
#ifndef TR_TABLE_PLAN_H
#define TR_TABLE_PLAN_H

#include "base/base.h"
#include "ranks/ranks.h"
#include "trireme/table.h"

/* The first four in the order of table.partition's words. */
enum tr_partition_kind {
    TR_PARTITION_RANGE,
    TR_PARTITION_HASH,
    TR_PARTITION_RANGE_HASH,
    TR_PARTITION_RING,
    TR_PARTITION_OWN
};

/* Maximum number of blocks of ring and own. */
enum { TR_MOST_PLACED_BLOCKS = 1 << 24 };

/* The wishes of the job and of the table. */
struct tr_partition_options {
    enum tr_partition_kind kind;
    uint64_t block;     /* units of a block for range-hash, ring and own; 0 to choose */
    uint32_t points;    /* ring: of each server, at least 1 */
    tr_place_fn *place; /* own */
    void *who;          /* its argument */
    const char *table;  /* for messages */
    bool unbounded;
};

/* The place of a unit or a block: a server, and the position in its share. */
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
    uint64_t units, block, blocks;
    uint32_t servers;
    unsigned half_bits; /* the permutation works on numbers of 2 × half_bits bits */

    /* ring and own */
    uint32_t points;
    struct tr_location *placed; /* by block; positions in blocks */
    uint32_t *first;            /* by server, and one more: its blocks in block_at */
    uint32_t *block_at;         /* by server and position */

    struct tr_ring_point *ring; /* unbounded ring: servers × points, in their order */
};

/* Blocks of ring and own do not depend on the number of servers, so that they are the same after a change of servers. TR_ERR_CONFIG
 * if a share would exceed 2^32 units, if there are too many blocks to list, and if place() returns a server that does not exist;
 * unbounded, for more than 2^63 keys and for own. Free with tr_partition_free(). */
int tr_partition_make(const struct tr_partition_options *options, uint64_t units, uint32_t servers,
                      struct tr_partition *partition);
void tr_partition_free(struct tr_partition *partition);

/* The number of units of a server's share, with the padding of the last block (unbounded: 0); and of the longest share. */
uint64_t tr_partition_share(const struct tr_partition *partition, uint32_t server);
uint64_t tr_partition_longest(const struct tr_partition *partition);

/* The number of units of each server without padding. Unbounded: takes time for each block. */
void tr_partition_count(const struct tr_partition *partition, uint64_t *count);

/* The place of a unit: the units of a block are contiguous. Unbounded: the position is meaningless. */
struct tr_location tr_partition_locate(const struct tr_partition *partition, uint64_t unit);

/* Locates neighbouring units: one look-up serves a whole block. Starts as the partition and zeros. */
struct tr_walker {
    const struct tr_partition *partition;
    uint64_t first, end; /* units of the block last looked up */
    struct tr_location at;
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

/* The inverse: the unit at a position of a server's share; UINT64_MAX: padding. Not for unbounded partitions. */
uint64_t tr_partition_unit(const struct tr_partition *partition, uint32_t server, uint32_t position);

/* "range-hash", as in table.partition; "own". */
const char *tr_partition_name(enum tr_partition_kind kind);

/* A checksum of the partition, which ranks compare. */
uint64_t tr_partition_print(const struct tr_partition *partition);

/* ======== plans: keys → segments by server ========
 *
 * A plan contains for each unit of some keys its server, its position in the server's share, and the place of its values in the
 * caller's memory. Views, lists of rows, unions of a node and subscriptions all read and write by plans.
 *
 * A segment lists the units at one server. In TR_PLAN_ASCENDING order, positions ascend; if most units have neighbours (whole
 * ranges), there is also a shorter list of runs, and values move by memcpy(). In TR_PLAN_LISTED order, all pieces of the first key
 * come first, then those of the second. With hash storage only servers know positions, and a segment lists keys instead, in the
 * caller's order. */
struct tr_run {
    uint32_t local, position, length;
};

struct tr_segment {
    uint32_t n; /* units at this server */
    uint32_t
        *local; /* their numbers in the caller's memory: number of the key × pieces + piece; NULL: 0 .. n-1 */
    uint32_t *position; /* their positions in the server's share; NULL with hash storage */
    tr_key *key;        /* hash storage: their keys; else NULL */
    uint32_t runs;      /* > 0: the same as runs, because they are long */
    struct tr_run *run;
};

struct tr_plan {
    uint32_t servers;
    size_t units;               /* in all segments */
    struct tr_segment *segment; /* by server; their arrays lie side by side in these: */
    uint32_t *local, *position;
    tr_key *key;
};

enum tr_plan_order { TR_PLAN_ASCENDING, TR_PLAN_LISTED };

/* Splits n keys of a table by server. skip: by server: its units are left out; NULL: of no server. TR_ERR_INTERNAL for more
 * than 2^32 units and, in ascending order, for keys that do not ascend or do not exist (the caller has checked keys in listed
 * order). Free with tr_plan_free(). */
int tr_plan_make(const struct tr_table *table, const tr_key *key, size_t n, enum tr_plan_order order,
                 const bool *skip, struct tr_plan *plan);
void tr_plan_free(struct tr_plan *plan);

/* Lists the runs of a segment in ascending order if they have 16 units on average. */
int tr_segment_find_runs(struct tr_segment *segment);

#endif

/* Which server holds what: the same on every rank, found without asking anybody.
 *
 * The units of a table are numbered 0..units-1 and lie in blocks of equal size. Three kinds are pure
 * arithmetic: a bijection of the block numbers spreads the blocks over the servers in turn.
 *   range       as many blocks as servers, in order: neighbours stay together, hot ranges too
 *   hash        blocks of one unit, permuted: even load, no neighbours
 *   range-hash  blocks of some units, permuted: even load, and runs of neighbours (DynSGD, section 5)
 *
 * Two give each block a server of its own. Servers keep their blocks in ascending order, and every rank lists
 * where they are: 12 bytes a block, 0.8 MB for the 65536 blocks that are chosen where nobody says how many.
 *   ring        consistent hashing with virtual nodes (Karger et al. 1997; PS, section 4.3): servers have
 *               points on a ring, and a block belongs to the next point clockwise of its hash. One more
 *               server takes its part from all others, and nothing else moves
 *   own         a function of the table's user says it
 *
 * Unbounded partitions, of up to 2^63 keys with hash storage, say only which server a key belongs to; where it lies
 * there, its server finds out. So nothing is listed, and shares have no size beforehand: the server of a block is
 * found by range as above, for hash and range-hash by a hash of the block's number, and on a ring by a search
 * among its points. own has none.
 */
#ifndef TR_TABLE_PLAN_H
#define TR_TABLE_PLAN_H

#include "base/base.h"
#include "trireme/table.h"

/* The first four in the order of table.partition's words. */
enum tr_partition_kind {
    TR_PARTITION_RANGE,
    TR_PARTITION_HASH,
    TR_PARTITION_RANGE_HASH,
    TR_PARTITION_RING,
    TR_PARTITION_OWN
};

/* More blocks than this have no lists. */
enum { TR_MOST_PLACED_BLOCKS = 1 << 24 };

/* What is asked for. */
struct tr_partition_options {
    enum tr_partition_kind kind;
    uint64_t block;     /* units of a block for range-hash, ring and own; 0 to choose */
    uint32_t points;    /* ring: of each server, at least 1 */
    tr_place_fn *place; /* own */
    void *who;          /* … what it is handed */
    const char *table;  /* for messages */
    bool unbounded;
};

/* Where a unit or a block lies: a server, and the place in its share. */
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

/* All ranks get the same from the same options. Blocks of ring and own that are chosen do not depend on the number
 * of servers, so that they stay what they are when servers come or go. TR_ERR_CONFIG if a share would exceed
 * 2^32 units, if there are too many blocks to list, and if place() names a server that does not exist; unbounded,
 * for more than 2^63 keys and for own. Making a ring takes 16 bytes a point meanwhile, which unbounded ones keep.
 * Free with tr_partition_free(). */
int tr_partition_make(const struct tr_partition_options *options, uint64_t units, uint32_t servers,
                      struct tr_partition *partition);
void tr_partition_free(struct tr_partition *partition);

/* The number of units that a server keeps room for (the last block is padded; none if unbounded), and the longest of
 * them all. */
uint64_t tr_partition_share(const struct tr_partition *partition, uint32_t server);
uint64_t tr_partition_longest(const struct tr_partition *partition);

/* The number of units that each server holds, by server. Unbounded, all blocks are gone through. */
void tr_partition_count(const struct tr_partition *partition, uint64_t *count);

/* Where a unit lies: the units of a block follow each other. Unbounded, the position says nothing. */
struct tr_location tr_partition_locate(const struct tr_partition *partition, uint64_t unit);

/* Where neighbouring units lie: one look-up serves a whole block. Begins with the partition and zeros. */
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

/* The inverse: which unit lies at a position below the server's share; UINT64_MAX where it is padding. Not for
 * unbounded ones. */
uint64_t tr_partition_unit(const struct tr_partition *partition, uint32_t server, uint32_t position);

/* "range-hash", as table.partition has it; "own". */
const char *tr_partition_name(enum tr_partition_kind kind);

/* One number that tells partitions apart: ranks compare it. */
uint64_t tr_partition_print(const struct tr_partition *partition);

/* ======== key sets ======== */

/* The keys of a view, split by server: where each lies there, and where it goes in the view.
 *
 * A segment lists the units that the view has at one server by ascending position; local[i] is the unit's
 * number in the view. Where neighbours are mostly kept together (whole ranges), runs say the same in less
 * space, and values move by memcpy. With hash storage servers alone know positions, and a segment lists keys.
 */

struct tr_run {
    uint32_t local, position, length;
};

struct tr_segment {
    uint32_t n;         /* units of the view at this server */
    uint32_t *local;    /* their numbers in the view … */
    uint32_t *position; /* … and at the server, ascending; NULL with hash storage … */
    tr_key *key;        /* … where the keys say what is meant, ascending; else NULL */
    uint32_t runs;      /* > 0: the same as runs, because they are long */
    struct tr_run *run;
};

struct tr_keyset {
    uint32_t servers;
    size_t units;
    struct tr_segment *segment; /* by server */
};

/* Splits n ascending keys of `pieces` units each (one, where the partition is unbounded). TR_ERR_INTERNAL where they do
 * not ascend or lie outside. */
int tr_keyset_make(const struct tr_partition *partition, uint64_t table_keys, uint32_t pieces,
                   const tr_key *keys, size_t n, struct tr_keyset *keyset);
void tr_keyset_free(struct tr_keyset *keyset);

/* Lists the runs of a segment where they are long enough to be worth it. */
int tr_segment_find_runs(struct tr_segment *segment);

/* The first entry of a segment at or behind a position: cuts segments into chunks. */
uint32_t tr_segment_find(const struct tr_segment *segment, uint32_t position);

#endif

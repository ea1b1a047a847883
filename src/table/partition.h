/* Which server holds what: pure arithmetic, the same on every rank, no table of places.
 *
 * The units of a table are numbered 0..units-1 and lie in blocks of equal size; a bijection of the block
 * numbers deals the blocks to the servers in turn.
 *   range       as many blocks as servers, in order: neighbours stay together, hot ranges too
 *   hash        blocks of one unit, permuted: even load, no neighbours
 *   range-hash  blocks of some units, permuted: even load, and runs of neighbours (DynSGD, section 5)
 */
#ifndef TR_TABLE_PARTITION_H
#define TR_TABLE_PARTITION_H

#include "base/base.h"

enum tr_partition_kind { TR_PARTITION_RANGE, TR_PARTITION_HASH, TR_PARTITION_RANGE_HASH };

struct tr_partition {
    enum tr_partition_kind kind;
    uint64_t units, block, blocks;
    uint32_t servers;
    unsigned half_bits; /* the permutation works on numbers of 2 × half_bits bits */
};

/* block: units of a block for range-hash, 0 to choose. TR_ERR_CONFIG if a share would exceed 2^32 units. */
int tr_partition_make(enum tr_partition_kind kind, uint64_t units, uint64_t block, uint32_t servers,
                      struct tr_partition *partition);

/* The number of units that a server keeps room for (the last block is padded). */
uint64_t tr_partition_share(const struct tr_partition *partition, uint32_t server);

/* Where a unit lies. */
struct tr_location {
    uint32_t server, position;
};
struct tr_location tr_partition_locate(const struct tr_partition *partition, uint64_t unit);

#endif

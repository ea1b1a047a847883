#include "table/partition.h"

/* A pseudo-random bijection of 0..blocks-1: a four-round Feistel network over the next even number of bits,
 * walked until it falls into the range again (fewer than four steps on average). */
static uint64_t permute(const struct tr_partition *p, uint64_t block)
{
    uint64_t mask = (UINT64_C(1) << p->half_bits) - 1;
    do {
        uint64_t left = block >> p->half_bits, right = block & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (tr_mix(right + (round << 60)) & mask);
            left = right;
            right = next;
        }
        block = left << p->half_bits | right;
    } while (block >= p->blocks);
    return block;
}

int tr_partition_make(enum tr_partition_kind kind, uint64_t units, uint64_t block, uint32_t servers,
                      struct tr_partition *partition)
{
    struct tr_partition p = {.kind = kind, .units = units, .servers = servers};
    uint64_t even = (units + servers - 1) / servers; /* an even share, rounded up */
    switch (kind) {
    case TR_PARTITION_RANGE: p.block = even; break;
    case TR_PARTITION_HASH: p.block = 1; break;
    case TR_PARTITION_RANGE_HASH:
        /* 64 blocks a server keep the shares within some per cent of each other; blocks above 65536 units
         * gain nothing more for runs */
        p.block = block ? block : even / 64 < 65536 ? even / 64 : 65536;
        break;
    }
    if (p.block < 1) p.block = 1;
    p.blocks = (units + p.block - 1) / p.block;
    while ((UINT64_C(1) << (2 * p.half_bits)) < p.blocks) p.half_bits++;
    if (even + p.block > UINT32_MAX)
        return tr_fail(TR_ERR_CONFIG,
                       "a table of %llu elements needs more than %u servers: one holds at most 2^32",
                       (unsigned long long)units, servers);
    *partition = p;
    return TR_OK;
}

uint64_t tr_partition_share(const struct tr_partition *p, uint32_t server)
{
    return (p->blocks / p->servers + (server < p->blocks % p->servers)) * p->block;
}

struct tr_location tr_partition_locate(const struct tr_partition *p, uint64_t unit)
{
    uint64_t block = unit / p->block, offset = unit % p->block;
    if (p->kind != TR_PARTITION_RANGE) block = permute(p, block);
    return (struct tr_location){(uint32_t)(block % p->servers),
                                (uint32_t)(block / p->servers * p->block + offset)};
}

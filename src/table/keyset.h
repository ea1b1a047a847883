/* The keys of a view, split by server: where each lies there, and where it goes in the view.
 *
 * A segment lists the units that the view has at one server by ascending position; local[i] is the unit's
 * number in the view. Where neighbours are mostly kept together (whole ranges), runs say the same in less
 * space, and values move by memcpy. With hash storage servers alone know positions, and a segment lists keys.
 */
#ifndef TR_TABLE_KEYSET_H
#define TR_TABLE_KEYSET_H

#include "table/partition.h"
#include "trireme/table.h"

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

/* Direct model transfer (M24; FlexPS, section 5.3): what the ranks of a node have worked on in memory they share goes to
 * the next node without passing the servers, while their table is out of date. The node that goes on fetches it; the one
 * that has it need do nothing, so that its ranks may rest or be at something else.
 */
#ifndef TR_TABLE_TRANSFER_H
#define TR_TABLE_TRANSFER_H

#include "table/replica.h"

struct tr_transfer {
    tr_context *tr;
    const struct tr_node_memory *memory;
    MPI_Win window;
    int *head;      /* by node: the rank that opens its memory to others */
    uint64_t bytes; /* that this rank has fetched */
};

/* Opens the memory of every node to the ranks of all others. All ranks; the memory stays until it is closed. */
int tr_transfer_open(tr_context *tr, const struct tr_node_memory *memory, struct tr_transfer *transfer);
void tr_transfer_close(struct tr_transfer *transfer); /* all ranks; zeros are fine */

/* Fetches bytes from another node's memory to the same place of this node's. Who writes there meanwhile, on either node,
 * is up to the caller. Any rank, by itself. */
int tr_transfer_fetch(struct tr_transfer *transfer, int node, size_t offset, size_t bytes);

#endif

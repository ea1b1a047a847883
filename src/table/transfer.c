#include "table/transfer.h"

#include <stdlib.h>

int tr_transfer_open(tr_context *tr, const struct tr_node_memory *memory, struct tr_transfer *t)
{
    *t = (struct tr_transfer){.tr = tr, .memory = memory};
    if (tr->layout.nodes == 1) return TR_OK;
    TR_TRY(tr_agree(tr, TR_NEW(&t->head, (size_t)tr->layout.nodes)));
    for (int rank = tr->size - 1; rank >= 0; rank--) t->head[tr->node_of[rank]] = rank;
    MPI_Win_create(memory->at, tr->node_rank == 0 ? (MPI_Aint)memory->bytes : 0, 1, MPI_INFO_NULL, tr->world,
                   &t->window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, t->window);
    return TR_OK;
}

void tr_transfer_close(struct tr_transfer *t)
{
    if (t->window) {
        MPI_Win_unlock_all(t->window);
        MPI_Win_free(&t->window);
    }
    free(t->head);
    *t = (struct tr_transfer){.tr = NULL};
}

int tr_transfer_fetch(struct tr_transfer *t, int node, size_t offset, size_t bytes)
{
    enum { AT_ONCE = 1 << 24 };
    for (size_t done = 0; done < bytes; done += AT_ONCE) {
        size_t n = tr_min_size(bytes - done, AT_ONCE);
        MPI_Request request;
        MPI_Rget(t->memory->at + offset + done, (int)n, MPI_BYTE, t->head[node], (MPI_Aint)(offset + done),
                 (int)n, MPI_BYTE, t->window, &request);
        TR_TRY(tr_wait_request(t->tr, &request, "the model from the node that had it last"));
    }
    t->bytes += bytes;
    return TR_OK;
}

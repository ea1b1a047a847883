#include "table/replica.h"

#include <string.h>

/* MPI's memory begins behind a header of its own, anywhere in a line of the cache, but in the same place of a page for all
 * ranks. */
enum { LINE = 64 };

static int allocate(tr_context *tr, size_t bytes, struct tr_node_memory *memory)
{
    char *own;
    MPI_Aint size;
    int unit;
    if (bytes > 0) bytes += LINE;
    if (MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, tr->node, &own, &memory->window) !=
        MPI_SUCCESS) {
        memory->window = 0;
        return tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, memory->window);
    MPI_Win_shared_query(memory->window, 0, &size, &unit, &memory->at);
    size_t shift = size > 0 ? (LINE - (uintptr_t)memory->at % LINE) % LINE : 0;
    memory->at += shift;
    memory->bytes = (size_t)size - (size > 0 ? LINE : 0);
    if (tr->node_rank == 0) memset(memory->at, 0, memory->bytes);
    MPI_Barrier(tr->node);
    return TR_OK;
}

int tr_node_memory_open(tr_context *tr, size_t bytes, struct tr_node_memory *memory)
{
    *memory = (struct tr_node_memory){.at = NULL};
    if (tr->node_rank != 0) bytes = 0;
    TR_TRY(tr_agree(tr, tr_room_in_shared_memory(tr, bytes)));
    return tr_agree(tr, allocate(tr, bytes, memory));
}

void tr_node_memory_close(struct tr_node_memory *memory)
{
    if (!memory->window) return;
    MPI_Win_unlock_all(memory->window);
    MPI_Win_free(&memory->window);
    *memory = (struct tr_node_memory){.at = NULL};
}

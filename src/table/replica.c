#include "table/replica.h"

int tr_node_memory_open(tr_context *tr, size_t bytes, struct tr_node_memory *memory)
{
    *memory = (struct tr_node_memory){.at = NULL};
    if (tr->node_rank != 0) bytes = 0;
    TR_TRY(tr_agree(tr, tr_shm_open(tr->node, bytes, true, &memory->shm)));
    memory->at = memory->shm.part[0].at;
    memory->bytes = memory->shm.part[0].bytes;
    return TR_OK;
}

void tr_node_memory_close(struct tr_node_memory *memory)
{
    if (memory->shm.members > 0) tr_shm_close(&memory->shm);
    *memory = (struct tr_node_memory){.at = NULL};
}

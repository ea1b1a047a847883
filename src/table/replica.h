/* Memory that the ranks of a node share, for what they compute on together: local models (FlexPS, section 5.3). */
#ifndef TR_TABLE_LOCAL_H
#define TR_TABLE_LOCAL_H

#include "table/table.h"

struct tr_node_memory {
    struct tr_shm shm;
    /* Zeros at first; the same memory for all ranks of the node, at an address of each rank's own, where a line of the
     * cache begins. */
    char *at;
    size_t bytes;
};

/* As much for each node as its first rank asks for. All ranks; errors are agreed on: no room in shared memory, above all.
 * Free with tr_node_memory_close(), all ranks. */
int tr_node_memory_open(tr_context *tr, size_t bytes, struct tr_node_memory *memory);
void tr_node_memory_close(struct tr_node_memory *memory); /* zeros are fine */

/* Arrays one behind the other in one block of memory, each where a line of the cache begins if the block does. Laid out
 * twice by the same function: without memory, to see how many bytes they take; then in it. */
struct tr_arrays {
    char *memory; /* NULL: there is none yet */
    size_t bytes; /* taken so far */
};

/* The next array, of so many bytes; NULL without memory. */
static inline void *tr_arrays_take(struct tr_arrays *arrays, size_t bytes)
{
    size_t at = arrays->bytes;
    arrays->bytes += (bytes + 63) & ~(size_t)63;
    return arrays->memory ? arrays->memory + at : NULL;
}

#endif

/* Memory that the ranks of a node share, each with a part of its own: tables, rows, clocks, blocks that rotate. MPI allocates
 * it (MPI_Win_allocate_shared), so that it goes when the processes do.
 *
 * To open a window and to close it takes all ranks of a node some dozen steps in which they wait for one another. So memory
 * of which nobody wants more than 16 kB is a slot of one window, which the ranks of a node open when they first need one. */
#ifndef TR_SHM_H
#define TR_SHM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"

/* One member's part of it, where this rank sees it. */
struct tr_shm_part {
    char *at; /* a multiple of 64 */
    size_t bytes;
};

struct tr_shm {
    tr_context *tr;
    MPI_Comm comm;  /* of its members */
    MPI_Win window; /* locked for all; MPI_WIN_NULL: closed */
    int slot;       /* of the node's window; -1: it has a window of its own */
    int members;
    struct tr_shm_part *part; /* by rank of the communicator */
};

#define TR_SHM_CLOSED ((struct tr_shm){.window = MPI_WIN_NULL, .slot = -1})

/* Allocates memory of the ranks of a communicator that lies within one node: `bytes` for this rank's part, which may be 0
 * and begins on a page of its own. It begins with zeros; zeroed: all of it has been touched before anybody returns.
 * Collective, and it waits without looking after other roles. TR_ERR_SYSTEM, on all of these ranks, where /dev/shm has no
 * room for it: touching it would kill the process. Free with tr_shm_close(), collective as well, before the communicator. */
int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm);
void tr_shm_close(struct tr_shm *shm); /* a closed one is fine */

/* Closes the window of slots, none of which is in use any more. The ranks of the node, before its communicator goes. */
void tr_shm_end(tr_context *tr);

/* Bytes of such memory that this node has room for; UINT64_MAX where that cannot be known. It is a file in memory:
 * when that file system is full, the first touch of what was allocated kills the process. */
uint64_t tr_shm_free(void);

#endif

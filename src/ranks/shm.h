/* Shared memory of the ranks of a node: tables, rows, clocks, blocks that rotate. Each rank has its own part. MPI allocates it
 * (MPI_Win_allocate_shared), so that it is removed when the processes end.
 *
 * Opening and closing a window takes about a dozen synchronizations of all ranks of the node. Therefore memory of at most 16 kB
 * per rank is a slot of one common window, which is opened when it is first needed. */
#ifndef TR_SHM_H
#define TR_SHM_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"

/* Part of one member, at its address in this process. */
struct tr_shm_part {
    char *at; /* a multiple of 64 */
    size_t bytes;
};

struct tr_shm {
    tr_context *tr;
    MPI_Comm comm;  /* members */
    MPI_Win window; /* locked for all; MPI_WIN_NULL: closed */
    int slot;       /* slot in the common window; -1: separate window */
    int members;
    struct tr_shm_part *part; /* by rank of the communicator */
};

#define TR_SHM_CLOSED ((struct tr_shm){.window = MPI_WIN_NULL, .slot = -1})

/* Allocates shared memory, initially zero. All ranks of the communicator; it waits without polling.
 *
 * @param [in]  comm    ranks of one node; must exist until tr_shm_close()
 * @param [in]  bytes   size of the part of this rank, may be 0; the part starts on a page of its own
 * @param [in]  zeroed  write zeros to all pages before the function returns
 * @param [out] shm     close it with tr_shm_close() on all ranks of the communicator
 * @return TR_OK, or TR_ERR_SYSTEM on all ranks if /dev/shm is too small (writing to the memory would kill the process)
 */
int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm);
void tr_shm_close(struct tr_shm *shm); /* shm may be closed already */

/* Closes the window of slots; no slot may be in use. All ranks of the node, before its communicator is freed. */
void tr_shm_end(tr_context *tr);

/* Returns the free shared memory of this node in bytes; UINT64_MAX: unknown. If the file system /dev/shm is full, the first write to
 * allocated memory kills the process. */
uint64_t tr_shm_free(void);

#endif

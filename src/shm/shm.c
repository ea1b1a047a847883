#include "shm/shm.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/base.h"

enum { LINE = 64 };

/* MPI takes shared memory from files there. */
uint64_t tr_shm_free(void)
{
    struct statvfs fs;
    return statvfs("/dev/shm", &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* There must be room for the parts of all members; one alone needs none. */
static int check_room(MPI_Comm comm, int members, size_t bytes)
{
    double all = (double)bytes, left = (double)tr_shm_free();
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_SUM, comm);
    if (members == 1 || all <= left) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "this needs %.1f MB of shared memory on this node, but /dev/shm has %.1f MB free",
                   all / 1e6, left / 1e6);
}

static bool allocate(MPI_Comm comm, size_t bytes, MPI_Win *window)
{
    MPI_Info info;
    void *own;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true"); /* each part on pages of its own, near its rank */
    int failed = MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, comm, &own, window);
    MPI_Info_free(&info);
    return failed == MPI_SUCCESS;
}

/* MPI's memory begins behind a header of its own, anywhere in a line of the cache. */
static void find_parts(struct tr_shm *shm)
{
    for (int member = 0; member < shm->members; member++) {
        MPI_Aint size;
        int unit;
        char *memory;
        MPI_Win_shared_query(shm->window, member, &size, &unit, &memory);
        if (size == 0) continue;
        size_t shift = (LINE - (uintptr_t)memory % LINE) % LINE;
        shm->part[member] = (struct tr_shm_part){memory + shift, (size_t)size - LINE};
    }
}

int tr_shm_open(MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm)
{
    *shm = TR_SHM_CLOSED;
    int rank, status, worst;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &shm->members);
    size_t padded = bytes > 0 ? bytes + LINE : 0;
    status = TR_NEW(&shm->part, (size_t)shm->members);
    int room = check_room(comm, shm->members, padded);
    if (status == TR_OK) status = room;
    MPI_Allreduce(&status, &worst, 1, MPI_INT, MPI_MAX, comm);
    if (worst == TR_OK && !allocate(comm, padded, &shm->window))
        worst = tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
    if (worst != TR_OK) {
        free(shm->part);
        *shm = TR_SHM_CLOSED;
        return worst;
    }
    find_parts(shm);
    if (zeroed && bytes > 0) memset(shm->part[rank].at, 0, bytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, shm->window);
    if (zeroed) MPI_Barrier(comm);
    return TR_OK;
}

void tr_shm_close(struct tr_shm *shm)
{
    if (shm->window == MPI_WIN_NULL) return;
    MPI_Win_unlock_all(shm->window);
    MPI_Win_free(&shm->window);
    free(shm->part);
    *shm = TR_SHM_CLOSED;
}

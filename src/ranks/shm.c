#include "ranks/shm.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"
#include "ranks/ranks.h"

enum { LINE = 64 };

static const char waiting_for[] = "the ranks of this node to open memory that they share";

/* MPI takes shared memory from files there. */
uint64_t tr_shm_free(void)
{
    struct statvfs fs;
    return statvfs("/dev/shm", &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* There must be room for the parts of all members, each on pages of its own, and for what MPI keeps of them: Open MPI 4 does not
 * tell the other ranks that the first one had none, and they wait for it for ever. One alone needs none. */
static int check_room(tr_context *tr, MPI_Comm comm, int members, size_t bytes)
{
    const double page = (double)sysconf(_SC_PAGESIZE), state = 4 * page;
    double all = (double)bytes + page, left = (double)tr_shm_free();
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
    tr_wait_alone(tr, &request, waiting_for);
    if (members == 1 || all + state <= left) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "this needs %.2f MB of shared memory on this node, but /dev/shm has %.2f MB free",
                   (all + state) / 1e6, left / 1e6);
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

int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm)
{
    *shm = TR_SHM_CLOSED;
    shm->tr = tr;
    shm->comm = comm;
    int rank, status, worst;
    MPI_Request request;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &shm->members);
    size_t padded = bytes > 0 ? bytes + LINE : 0;
    status = TR_NEW(&shm->part, (size_t)shm->members);
    int room = check_room(tr, comm, shm->members, padded);
    if (status == TR_OK) status = room;
    MPI_Iallreduce(&status, &worst, 1, MPI_INT, MPI_MAX, comm, &request);
    tr_wait_alone(tr, &request, waiting_for);
    if (worst == TR_OK && !tr_window_share(tr, comm, padded, &shm->window))
        worst = tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
    if (worst != TR_OK) {
        free(shm->part);
        *shm = TR_SHM_CLOSED;
        return worst;
    }
    find_parts(shm);
    if (zeroed && bytes > 0) memset(shm->part[rank].at, 0, bytes);
    if (zeroed) tr_meet(tr, comm, waiting_for);
    return TR_OK;
}

void tr_shm_close(struct tr_shm *shm)
{
    if (shm->window == MPI_WIN_NULL) return;
    tr_window_close(shm->tr, shm->comm, "the ranks of this node to close memory that they share",
                    &shm->window);
    free(shm->part);
    *shm = TR_SHM_CLOSED;
}

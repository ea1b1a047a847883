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

/* MPI creates files for shared memory in /dev/shm. */
uint64_t tr_shm_free(void)
{
    struct statvfs fs;
    return statvfs("/dev/shm", &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* Finds the parts. The memory of MPI starts after a header, not aligned to a cache line. */
static void find_parts(MPI_Win window, int members, struct tr_shm_part *part)
{
    for (int member = 0; member < members; member++) {
        MPI_Aint size;
        int unit;
        char *memory;
        MPI_Win_shared_query(window, member, &size, &unit, &memory);
        if (size == 0) continue;
        size_t shift = (LINE - (uintptr_t)memory % LINE) % LINE;
        part[member] = (struct tr_shm_part){memory + shift, (size_t)size - LINE};
    }
}

static int share_window(tr_context *tr, MPI_Comm comm, size_t bytes, MPI_Win *window)
{
    return tr_window_share(tr, comm, bytes, window)
               ? TR_OK
               : tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
}

/* ---- slots ---- */

enum { SLOTS = 16, SLOT_BYTES = 16 << 10, ALL_SLOTS = SLOTS * SLOT_BYTES };

/* All ranks of a node open and close memory in the same order and therefore agree on the used slots. */
struct tr_shm_slots {
    MPI_Win window;            /* MPI_WIN_NULL: not open yet */
    unsigned used;             /* as bits */
    struct tr_shm_part part[]; /* by rank on the node: all slots of its part */
};

static int begin_slots(tr_context *tr)
{
    if (tr->slots) return TR_OK;
    size_t parts = (size_t)tr->node_size * sizeof(struct tr_shm_part);
    TR_TRY(tr_new((void **)&tr->slots, 1, sizeof *tr->slots + parts, "slots of shared memory"));
    tr->slots->window = MPI_WIN_NULL;
    return TR_OK;
}

/* Returns whether a slot can be used: the members are all ranks of the node. Same result on all members. left: free bytes. */
static bool may_have_slot(const struct tr_shm *shm, double left)
{
    const tr_context *tr = shm->tr;
    const struct tr_shm_slots *slots = tr->slots;
    int same;
    if (shm->members < 2 || shm->members != tr->node_size || slots->used == (1u << SLOTS) - 1) return false;
    if (slots->window == MPI_WIN_NULL && (double)(ALL_SLOTS + LINE) * tr->node_size > left) return false;
    MPI_Comm_compare(shm->comm, tr->node, &same);
    return same == MPI_IDENT || same == MPI_CONGRUENT;
}

static int take_slot(struct tr_shm *shm)
{
    tr_context *tr = shm->tr;
    struct tr_shm_slots *slots = tr->slots;
    if (slots->window == MPI_WIN_NULL) {
        TR_TRY(share_window(tr, tr->node, ALL_SLOTS + LINE, &slots->window));
        find_parts(slots->window, tr->node_size, slots->part);
    }
    shm->slot = 0;
    while (slots->used >> shm->slot & 1) shm->slot++;
    slots->used |= 1u << shm->slot;
    shm->window = slots->window;
    for (int member = 0; member < shm->members; member++)
        shm->part[member] = (struct tr_shm_part){slots->part[member].at + shm->slot * SLOT_BYTES, SLOT_BYTES};
    return TR_OK;
}

void tr_shm_end(tr_context *tr)
{
    if (!tr->slots) return;
    tr_window_close(tr, tr->node, "the ranks of this node to close memory that they share",
                    &tr->slots->window);
    free(tr->slots);
    tr->slots = NULL;
}

/* ---- opening and closing ---- */

/* Requests of the members, summed (as doubles, exact for these numbers). */
struct wishes {
    double bytes, large,
        failed; /* total size; number of members whose part exceeds a slot; number of members that have failed */
    double left; /* free bytes, which each member reads at a slightly different time */
};
_Static_assert(sizeof(struct wishes) == 4 * sizeof(double), "they are added up as an array");

static void add_wishes(const struct tr_shm *shm, struct wishes *wishes)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, wishes, 4, MPI_DOUBLE, MPI_SUM, shm->comm, &request);
    tr_wait_alone(shm->tr, &request, waiting_for);
    wishes->left /= shm->members;
}

/* Checks that there is enough space for the parts of all members, on separate pages, and for the header of MPI. Open MPI 4 does not
 * report to the other ranks that the first one had no space, and they would wait forever. A single rank needs no space. */
static int check_room(const struct tr_shm *shm, const struct wishes *wishes)
{
    double pages = (double)(shm->members + 4) * (double)sysconf(_SC_PAGESIZE), all = wishes->bytes + pages;
    if (shm->members == 1 || all <= wishes->left) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "this needs %.2f MB of shared memory on this node, but /dev/shm has %.2f MB free",
                   all / 1e6, wishes->left / 1e6);
}

static int open_memory(struct tr_shm *shm, size_t bytes, int status)
{
    struct wishes wishes = {(double)bytes, bytes > SLOT_BYTES, status != TR_OK, (double)tr_shm_free()};
    add_wishes(shm, &wishes);
    TR_TRY(status);
    if (wishes.failed > 0) return tr_fail(TR_ERR_SYSTEM, "another rank of this node is out of memory");
    TR_TRY(check_room(shm, &wishes));
    if (wishes.large == 0 && may_have_slot(shm, wishes.left)) return take_slot(shm);
    TR_TRY(share_window(shm->tr, shm->comm, bytes, &shm->window));
    find_parts(shm->window, shm->members, shm->part);
    return TR_OK;
}

int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm)
{
    int rank;
    *shm = TR_SHM_CLOSED;
    shm->tr = tr;
    shm->comm = comm;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &shm->members);
    int status = TR_NEW(&shm->part, (size_t)shm->members);
    if (status == TR_OK) status = begin_slots(tr);
    status = open_memory(shm, bytes > 0 ? bytes + LINE : 0, status);
    if (status != TR_OK) {
        free(shm->part);
        *shm = TR_SHM_CLOSED;
        return status;
    }
    bool used =
        shm->slot >= 0 || shm->members == 1; /* possibly used; the memory of a single rank is private */
    if (bytes > 0 && (zeroed || used)) memset(shm->part[rank].at, 0, bytes);
    if (zeroed) tr_meet(tr, comm, waiting_for);
    return TR_OK;
}

/* A slot is reused only after all members have called tr_shm_open() again, therefore after all have left this function. */
void tr_shm_close(struct tr_shm *shm)
{
    if (shm->window == MPI_WIN_NULL) return;
    if (shm->slot < 0)
        tr_window_close(shm->tr, shm->comm, "the ranks of this node to close memory that they share",
                        &shm->window);
    else shm->tr->slots->used &= ~(1u << shm->slot);
    free(shm->part);
    *shm = TR_SHM_CLOSED;
}

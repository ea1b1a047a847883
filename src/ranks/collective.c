#include "trireme/collective.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ranks/ranks.h"

/* ---- shared memory of a node ---- */

enum { SHM_LINE = 64 }; /* bytes of a cache line */

static const char shm_waiting_for[] = "the ranks of this node to open memory that they share";

/* MPI creates files for shared memory in /dev/shm. */
uint64_t tr_shm_free(void)
{
    struct statvfs fs;
    return statvfs("/dev/shm", &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

/* Finds the parts of all members. MPI puts a header before its memory, so a part is shifted to the next cache line. */
static void shm_find_parts(MPI_Win window, int members, struct tr_shm_part *part)
{
    for (int member = 0; member < members; member++) {
        MPI_Aint size;
        int unit;
        char *memory;
        MPI_Win_shared_query(window, member, &size, &unit, &memory);
        if (size == 0) continue;
        size_t shift = (SHM_LINE - (uintptr_t)memory % SHM_LINE) % SHM_LINE;
        part[member] = (struct tr_shm_part){memory + shift, (size_t)size - SHM_LINE};
    }
}

enum { SLOTS = 16, SLOT_BYTES = 16 << 10, ALL_SLOTS = SLOTS * SLOT_BYTES }; /* ALL_SLOTS: bytes of a part */

/* All ranks of a node open and close memory in the same order and therefore agree on the used slots. */
struct tr_shm_slots {
    MPI_Win window;            /* MPI_WIN_NULL: not open yet */
    unsigned used;             /* bit i: slot i is in use */
    struct tr_shm_part part[]; /* by rank on the node: the part of that rank, which contains all slots */
};

void tr_shm_end(tr_context *tr)
{
    if (!tr->slots) return;
    tr_window_close(tr, tr->node, "the ranks of this node to close memory that they share",
                    &tr->slots->window);
    free(tr->slots);
    tr->slots = NULL;
}

/* Requests of the members, added over all members (as doubles, exact for these numbers). */
struct wishes {
    double bytes, large,
        failed; /* total size; number of members whose part exceeds a slot; number of members that have failed */
    double left; /* free bytes of /dev/shm; divided to a mean, as each member reads them at another time */
};
_Static_assert(sizeof(struct wishes) == 4 * sizeof(double), "they are added up as an array");

static int shm_open(struct tr_shm *shm, size_t bytes, int status)
{
    tr_context *tr = shm->tr;
    struct tr_shm_slots *slots = tr->slots;
    struct wishes wishes = {(double)bytes, bytes > SLOT_BYTES, status != TR_OK, (double)tr_shm_free()};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &wishes, 4, MPI_DOUBLE, MPI_SUM, shm->comm, &request);
    tr_wait_alone(tr, &request, shm_waiting_for);
    wishes.left /= shm->members;
    TR_TRY(status);
    if (wishes.failed > 0) return tr_fail(TR_ERR_SYSTEM, "another rank of this node is out of memory");
    /* Checks the space for the parts of all members, on separate pages, and for the header of MPI. If the first rank had no
     * space, Open MPI 4 would not report this to the other ranks, which would wait forever. A single rank needs no shared
     * memory. */
    double pages = (double)(shm->members + 4) * (double)sysconf(_SC_PAGESIZE), all = wishes.bytes + pages;
    if (shm->members > 1 && all > wishes.left)
        return tr_fail(TR_ERR_SYSTEM,
                       "this needs %.2f MB of shared memory on this node, but /dev/shm has %.2f MB free",
                       all / 1e6, wishes.left / 1e6);
    /* a slot can be used if the members are all ranks of the node; all members find the same result */
    bool has_slot =
        wishes.large == 0 && shm->members > 1 && shm->members == tr->node_size &&
        slots->used != (1u << SLOTS) - 1 &&
        (slots->window != MPI_WIN_NULL || (double)(ALL_SLOTS + SHM_LINE) * tr->node_size <= wishes.left);
    int same = MPI_UNEQUAL;
    if (has_slot) MPI_Comm_compare(shm->comm, tr->node, &same);
    if (same != MPI_IDENT && same != MPI_CONGRUENT) {
        TR_TRY(tr_window_share(tr, shm->comm, bytes, &shm->window));
        shm_find_parts(shm->window, shm->members, shm->part);
        return TR_OK;
    }
    if (slots->window == MPI_WIN_NULL) {
        TR_TRY(tr_window_share(tr, tr->node, ALL_SLOTS + SHM_LINE, &slots->window));
        shm_find_parts(slots->window, tr->node_size, slots->part);
    }
    shm->slot = 0;
    while (slots->used >> shm->slot & 1) shm->slot++;
    slots->used |= 1u << shm->slot;
    shm->window = slots->window;
    for (int member = 0; member < shm->members; member++)
        shm->part[member] = (struct tr_shm_part){slots->part[member].at + shm->slot * SLOT_BYTES, SLOT_BYTES};
    return TR_OK;
}

int tr_shm_open(tr_context *tr, MPI_Comm comm, size_t bytes, bool zeroed, struct tr_shm *shm)
{
    int rank, status = TR_OK;
    *shm = TR_SHM_CLOSED;
    shm->tr = tr;
    shm->comm = comm;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &shm->members);
    if (!tr->slots) {
        size_t parts = (size_t)tr->node_size * sizeof(struct tr_shm_part);
        status = tr_new((void **)&tr->slots, 1, sizeof *tr->slots + parts, "slots of shared memory");
        if (status == TR_OK) tr->slots->window = MPI_WIN_NULL;
    }
    if (status == TR_OK) status = TR_NEW(&shm->part, (size_t)shm->members);
    status = shm_open(shm, bytes > 0 ? bytes + SHM_LINE : 0, status);
    if (status != TR_OK) {
        free(shm->part);
        *shm = TR_SHM_CLOSED;
        return status;
    }
    bool used = shm->slot >= 0 ||
                shm->members == 1; /* the memory of a single rank is private and may have been used */
    if (bytes > 0 && (zeroed || used)) memset(shm->part[rank].at, 0, bytes);
    if (zeroed) tr_meet(tr, comm, shm_waiting_for);
    return TR_OK;
}

/* A slot is reused without a barrier here: all members have left this function when they have called tr_shm_open() again. */
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

/* ---- collectives ---- */

static MPI_Comm set_comm(const tr_context *tr, enum tr_set set)
{
    const MPI_Comm comm[] = {
        [TR_SET_ALL] = tr->world,   [TR_SET_SERVERS] = tr->servers, [TR_SET_WORKERS] = tr->workers,
        [TR_SET_GROUP] = tr->group, [TR_SET_LEADERS] = tr->leaders, [TR_SET_NODE] = tr->node};
    return comm[set];
}

static const char *const set_waiting_for[] = {[TR_SET_ALL] = "all ranks to exchange numbers",
                                              [TR_SET_SERVERS] = "all servers to exchange numbers",
                                              [TR_SET_WORKERS] = "all workers to exchange numbers",
                                              [TR_SET_GROUP] = "the group to exchange numbers",
                                              [TR_SET_LEADERS] = "all leaders to exchange numbers",
                                              [TR_SET_NODE] = "the ranks of this node to exchange numbers"};

/* Checks that this rank belongs to the set, and that MPI can count n elements or bytes. */
static int set_check(const tr_context *tr, enum tr_set set, size_t n)
{
    if (set_comm(tr, set) == MPI_COMM_NULL)
        return tr_fail(TR_ERR_INTERNAL, "rank %d called for a set of ranks that it does not belong to",
                       tr->rank);
    if (n > INT_MAX)
        return tr_fail(TR_ERR_INTERNAL, "a collective call of %zu elements: 2^31 - 1 at most", n);
    return TR_OK;
}

int tr_set_rank(const tr_context *tr, enum tr_set set)
{
    int rank = -1;
    if (set_comm(tr, set) != MPI_COMM_NULL) MPI_Comm_rank(set_comm(tr, set), &rank);
    return rank;
}

int tr_set_size(const tr_context *tr, enum tr_set set)
{
    int size = 0;
    if (set_comm(tr, set) != MPI_COMM_NULL) MPI_Comm_size(set_comm(tr, set), &size);
    return size;
}

enum { LONG = 1 << 16 };

/* From LONG bytes on, each member sums one part and sends the result to the others. This is faster than MPI_Iallreduce of Open MPI,
 * which sends all data up and down a tree, one direction at a time. */
int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n)
{
    const MPI_Op operations[] = {[TR_SUM] = MPI_SUM, [TR_MIN] = MPI_MIN, [TR_MAX] = MPI_MAX};
    size_t members = (size_t)tr_set_size(tr, set), me = (size_t)tr_set_rank(tr, set),
           size = tr_dtype_size(dtype);
    TR_TRY(set_check(tr, set, n));
    if (operation == TR_SUM && n * size >= LONG && members > 1) {
        TR_FREED size_t *counts = NULL;
        TR_TRY(TR_NEW(&counts, members));
        for (size_t i = 0; i < members; i++) counts[i] = n * (i + 1) / members - n * i / members;
        TR_TRY(tr_reduce_scatter(tr, set, dtype, values, counts, NULL));
        for (size_t i = 0; i < members; i++) counts[i] *= size;
        return tr_all_gather_lists(tr, set, (char *)values + n * me / members * size, counts, values);
    }
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values, (int)n, tr_dtype_mpi(dtype), operations[operation],
                   set_comm(tr, set), &request);
    return tr_wait_request(tr, &request, set_waiting_for[set]);
}

int tr_sum_before(tr_context *tr, enum tr_set set, uint64_t value, uint64_t *before)
{
    TR_TRY(set_check(tr, set, 0));
    MPI_Request request;
    *before = 0; /* MPI_Exscan does not set it on the first rank */
    MPI_Iexscan(&value, before, 1, MPI_UINT64_T, MPI_SUM, set_comm(tr, set), &request);
    return tr_wait_request(tr, &request, set_waiting_for[set]);
}

int tr_broadcast(tr_context *tr, enum tr_set set, int root, void *data, size_t bytes)
{
    TR_TRY(set_check(tr, set, bytes));
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, set_comm(tr, set), &request);
    return tr_wait_request(tr, &request, set_waiting_for[set]);
}

int tr_messages_start(struct tr_messages *m, void *memory, size_t bytes, int member, bool sends,
                      MPI_Comm comm)
{
    const size_t most = (size_t)64 << 20;
    for (size_t at = 0; at < bytes; at += most) {
        int n = (int)tr_min_size(bytes - at, most);
        TR_TRY(TR_GROW(&m->request, &m->capacity, m->n + 1));
        MPI_Request *request = &m->request[m->n++];
        if (sends) MPI_Isend((char *)memory + at, n, MPI_BYTE, member, TR_TAG_SET, comm, request);
        else MPI_Irecv((char *)memory + at, n, MPI_BYTE, member, TR_TAG_SET, comm, request);
    }
    return TR_OK;
}

void tr_messages_free(struct tr_messages *messages)
{
    free(messages->request);
}

static int messages_wait(tr_context *tr, enum tr_set set, struct tr_messages *messages)
{
    for (size_t i = 0; i < messages->n; i++)
        TR_TRY(tr_wait_request(tr, &messages->request[i], set_waiting_for[set]));
    return TR_OK;
}

static size_t set_sum_of_sizes(const size_t *bytes, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

int tr_exchange(tr_context *tr, enum tr_set set, const void *sent, const size_t *to_each, void *received,
                const size_t *from_each)
{
    TR_TRY(set_check(tr, set, 0));
    MPI_Comm comm = set_comm(tr, set);
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set);
    char *in = received, *out = (char *)(uintptr_t)sent; /* MPI_Isend does not change it */
    struct tr_messages messages TR_CLOSED_BY(tr_messages_free) = {0};
    if (to_each[me] > 0)
        memcpy(in + set_sum_of_sizes(from_each, me), out + set_sum_of_sizes(to_each, me), to_each[me]);
    for (int turn = 1; turn < members; turn++) {
        int m = (me + members - turn) % members;
        TR_TRY(
            tr_messages_start(&messages, in + set_sum_of_sizes(from_each, m), from_each[m], m, false, comm));
    }
    for (int turn = 1; turn < members; turn++) { /* each rank starts with another receiver */
        int m = (me + turn) % members;
        TR_TRY(tr_messages_start(&messages, out + set_sum_of_sizes(to_each, m), to_each[m], m, true, comm));
    }
    return messages_wait(tr, set, &messages);
}

/* ---- sums by recursive halving ---- */

/* A set is halved recursively until each part has one member. Members of a half are numbered from 0; a member exchanges data with
 * the members of the other half that have the same number modulo the size of the smaller half. */
struct halves {
    int own, members, other, others; /* own half: first member, size; other half: first member, size */
};

enum { MOST_HALVINGS = 32 };

/* Lists the halvings that this member takes part in, starting with that of the whole set. Returns their number. */
static int halves_find(const tr_context *tr, enum tr_set set, struct halves *h)
{
    int first = 0, end = tr_set_size(tr, set), me = tr_set_rank(tr, set), n = 0;
    while (end - first > 1) {
        int middle = first + (end - first) / 2;
        bool low = me < middle;
        h[n++] = low ? (struct halves){first, middle - first, middle, end - middle}
                     : (struct halves){middle, end - middle, first, middle - first};
        if (low) end = middle;
        else first = middle;
    }
    return n;
}

/* In each halving, a member sends its numbers for the other half to one member of that half, and adds the received numbers. */
int tr_reduce_scatter(tr_context *tr, enum tr_set set, enum tr_dtype dtype, void *values_,
                      const size_t *counts, void *sum)
{
    struct halves halves[MOST_HALVINGS];
    MPI_Comm comm = set_comm(tr, set);
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set);
    TR_TRY(set_check(tr, set, set_sum_of_sizes(counts, members)));
    int halvings = halves_find(tr, set, halves);
    size_t room = 0, size = tr_dtype_size(dtype);
    char *values = values_;
    TR_FREED size_t *at = NULL; /* start of the numbers of each member */
    TR_FREED char *spare = NULL;
    TR_TRY(TR_NEW(&at, (size_t)members + 1));
    for (int i = 0; i < members; i++) at[i + 1] = at[i] + counts[i];
    for (int n = 0; n < halvings; n++) {
        const struct halves *h = &halves[n];
        int number = me - h->own;
        char *own = values + at[h->own] * size;
        size_t part = (at[h->own + h->members] - at[h->own]) * size, arrived = 0;
        struct tr_messages messages TR_CLOSED_BY(tr_messages_free) = {0};
        TR_TRY(TR_GROW(&spare, &room, part * (size_t)(h->others / h->members + 1)));
        for (int i = number; i < h->others; i += h->members)
            TR_TRY(tr_messages_start(&messages, spare + part * arrived++, part, h->other + i, false, comm));
        TR_TRY(tr_messages_start(&messages, values + at[h->other] * size,
                                 (at[h->other + h->others] - at[h->other]) * size,
                                 h->other + number % h->others, true, comm));
        TR_TRY(messages_wait(tr, set, &messages));
        for (size_t i = 0; i < arrived; i++)
            MPI_Reduce_local(spare + part * i, own, (int)(part / size), tr_dtype_mpi(dtype), MPI_SUM);
    }
    if (sum && counts[me] > 0) memcpy(sum, values + at[me] * size, counts[me] * size);
    return TR_OK;
}

/* Recursive doubling: from groups of two members to the whole set, each member exchanges the lists of its half of the group with a
 * member of the other half. */
int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all_)
{
    struct halves halves[MOST_HALVINGS];
    MPI_Comm comm = set_comm(tr, set);
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set);
    char *all = all_;
    TR_FREED size_t *at = NULL;
    TR_TRY(set_check(tr, set, 0));
    TR_TRY(TR_NEW(&at, (size_t)members + 1));
    for (int i = 0; i < members; i++) at[i + 1] = at[i] + counts[i];
    if (counts[me] > 0) memmove(all + at[me], mine, counts[me]);
    for (int n = halves_find(tr, set, halves) - 1; n >= 0; n--) {
        const struct halves *h = &halves[n];
        struct tr_messages messages TR_CLOSED_BY(tr_messages_free) = {0};
        int number = me - h->own;
        size_t own = at[h->own + h->members] - at[h->own];
        TR_TRY(tr_messages_start(&messages, all + at[h->other], at[h->other + h->others] - at[h->other],
                                 h->other + number % h->others, false, comm));
        for (int i = number; i < h->others; i += h->members)
            TR_TRY(tr_messages_start(&messages, all + at[h->own], own, h->other + i, true, comm));
        TR_TRY(messages_wait(tr, set, &messages));
    }
    return TR_OK;
}

int tr_all_gather(tr_context *tr, enum tr_set set, const void *mine, size_t bytes, void *all)
{
    size_t members = (size_t)tr_set_size(tr, set);
    TR_FREED size_t *counts = NULL;
    TR_TRY(TR_NEW(&counts, members));
    for (size_t i = 0; i < members; i++) counts[i] = bytes;
    return tr_all_gather_lists(tr, set, mine, counts, all);
}

int tr_exchange_counts(tr_context *tr, enum tr_set set, const size_t *to_each, size_t *from_each)
{
    TR_TRY(set_check(tr, set, 0));
    MPI_Request request;
    MPI_Ialltoall(to_each, sizeof *to_each, MPI_BYTE, from_each, sizeof *from_each, MPI_BYTE,
                  set_comm(tr, set), &request);
    return tr_wait_request(tr, &request, set_waiting_for[set]);
}

int tr_barrier_of(tr_context *tr, enum tr_set set)
{
    TR_TRY(set_check(tr, set, 0));
    return tr_barrier(tr, set_comm(tr, set), set_waiting_for[set]);
}

struct tr_set_memory {
    struct tr_shm
        shm; /* the part of the first member contains a counter and the memory; other parts are empty */
    tr_context *tr;
    enum tr_set set;
    uint64_t met; /* value of the counter once all members have arrived at the current tr_set_memory_meet() */
};

enum { COUNTER_BYTES = 64 }; /* the counter has its own cache line */

int tr_set_memory_open(tr_context *tr, enum tr_set set, size_t bytes, tr_set_memory **memory)
{
    int32_t least = tr->node_of[tr->rank], most = least;
    TR_TRY(tr_all_reduce(tr, set, TR_MIN, TR_I32, &least, 1));
    TR_TRY(tr_all_reduce(tr, set, TR_MAX, TR_I32, &most, 1));
    if (least != most)
        return tr_fail(
            TR_ERR_CONFIG,
            "ranks that are to share memory are on several nodes: see ranks.group_size and data.partition");
    TR_TRY(TR_NEW(memory, 1));
    **memory = (struct tr_set_memory){.shm = TR_SHM_CLOSED, .tr = tr, .set = set};
    return tr_shm_open(tr, set_comm(tr, set), tr_set_rank(tr, set) == 0 ? COUNTER_BYTES + bytes : 0, true,
                       &(*memory)->shm);
}

void *tr_set_memory_at(const tr_set_memory *memory)
{
    return memory->shm.part[0].at + COUNTER_BYTES;
}

int tr_set_memory_meet(tr_set_memory *memory)
{
    _Atomic uint64_t *counter = (void *)memory->shm.part[0].at;
    memory->met += (uint64_t)memory->shm.members;
    atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
    TR_WAIT_UNTIL(memory->tr, atomic_load_explicit(counter, memory_order_acquire) >= memory->met, "%s",
                  set_waiting_for[memory->set]);
    return TR_OK;
}

void tr_set_memory_close(tr_set_memory **memory)
{
    if (!*memory) return;
    tr_shm_close(&(*memory)->shm);
    free(*memory);
    *memory = NULL;
}

#include "trireme/collective.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"
#include "ranks/shm.h"

static MPI_Comm comm_of(const tr_context *tr, enum tr_set set)
{
    switch (set) {
    case TR_SET_SERVERS: return tr->servers;
    case TR_SET_WORKERS: return tr->workers;
    case TR_SET_GROUP: return tr->group;
    case TR_SET_LEADERS: return tr->leaders;
    case TR_SET_NODE: return tr->node;
    default: return tr->world;
    }
}

static const char *waiting_for(enum tr_set set)
{
    static const char *const whom[] = {
        "all ranks to exchange numbers",   "all servers to exchange numbers",
        "all workers to exchange numbers", "the group to exchange numbers",
        "all leaders to exchange numbers", "the ranks of this node to exchange numbers"};
    return whom[set];
}

static int check(const tr_context *tr, enum tr_set set, size_t bytes)
{
    if (comm_of(tr, set) == MPI_COMM_NULL)
        return tr_fail(TR_ERR_INTERNAL, "rank %d called for a set of ranks that it does not belong to",
                       tr->rank);
    if (bytes > INT_MAX)
        return tr_fail(TR_ERR_INTERNAL, "a collective call of %zu bytes: 2 GiB - 1 at most", bytes);
    return TR_OK;
}

int tr_set_rank(const tr_context *tr, enum tr_set set)
{
    int rank = -1;
    if (comm_of(tr, set) != MPI_COMM_NULL) MPI_Comm_rank(comm_of(tr, set), &rank);
    return rank;
}

int tr_set_size(const tr_context *tr, enum tr_set set)
{
    int size = 0;
    if (comm_of(tr, set) != MPI_COMM_NULL) MPI_Comm_size(comm_of(tr, set), &size);
    return size;
}

static MPI_Datatype type_of(enum tr_dtype dtype)
{
    const MPI_Datatype types[] = {
        [TR_F32] = MPI_FLOAT, [TR_F64] = MPI_DOUBLE, [TR_I32] = MPI_INT32_T, [TR_I64] = MPI_INT64_T};
    return types[dtype];
}

static MPI_Op operation_of(enum tr_operation operation)
{
    const MPI_Op operations[] = {[TR_SUM] = MPI_SUM, [TR_MIN] = MPI_MIN, [TR_MAX] = MPI_MAX};
    return operations[operation];
}

int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n)
{
    TR_TRY(check(tr, set, n));
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values, (int)n, type_of(dtype), operation_of(operation), comm_of(tr, set),
                   &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

int tr_sum_before(tr_context *tr, enum tr_set set, uint64_t value, uint64_t *before)
{
    TR_TRY(check(tr, set, 0));
    MPI_Request request;
    *before = 0; /* MPI leaves the first rank's alone */
    MPI_Iexscan(&value, before, 1, MPI_UINT64_T, MPI_SUM, comm_of(tr, set), &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

int tr_broadcast(tr_context *tr, enum tr_set set, int root, void *data, size_t bytes)
{
    TR_TRY(check(tr, set, bytes));
    MPI_Request request;
    MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, comm_of(tr, set), &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

int tr_all_gather(tr_context *tr, enum tr_set set, const void *mine, size_t bytes, void *all)
{
    TR_TRY(check(tr, set, bytes));
    MPI_Request request;
    MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, comm_of(tr, set), &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

static int gather_pieces(tr_context *tr, enum tr_set set, const size_t *counts, char *all)
{
    const size_t most = (size_t)1 << 30;
    for (int m = 0; m < tr_set_size(tr, set); all += counts[m++])
        for (size_t at = 0; at < counts[m]; at += most)
            TR_TRY(tr_broadcast(tr, set, m, all + at, tr_min_size(counts[m] - at, most)));
    return TR_OK;
}

int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all)
{
    size_t n = (size_t)tr_set_size(tr, set), sum = 0, own = 0;
    int *count, *begin, me = tr_set_rank(tr, set);
    TR_TRY(check(tr, set, 0));
    TR_TRY(TR_NEW(&count, 2 * n));
    begin = count + n;
    for (size_t i = 0; i < n; sum += counts[i++]) {
        if ((int)i == me) own = sum;
        count[i] = (int)counts[i];
        begin[i] = (int)sum;
    }
    if (counts[me] > 0) memcpy((char *)all + own, mine, counts[me]);
    MPI_Request request;
    int status = TR_OK;
    if (sum > INT_MAX) { /* more than MPI's counts can say */
        status = gather_pieces(tr, set, counts, all);
    } else {
        MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, count, begin, MPI_BYTE, comm_of(tr, set), &request);
        status = tr_wait_request(tr, &request, waiting_for(set));
    }
    free(count);
    return status;
}

/* Messages under way: MPI's counts allow of 2 GiB - 1 each, and pieces of 64 MiB keep its buffers small. */
struct messages {
    MPI_Request *request;
    size_t n, capacity;
};

static int start(struct messages *m, char *memory, size_t bytes, int member, bool sends, MPI_Comm comm)
{
    const size_t most = (size_t)64 << 20;
    enum { TAG = 1 }; /* these communicators carry no other messages from one to one */
    for (size_t at = 0; at < bytes; at += most) {
        int n = (int)tr_min_size(bytes - at, most);
        TR_TRY(TR_GROW(&m->request, &m->capacity, m->n + 1));
        MPI_Request *request = &m->request[m->n++];
        if (sends) MPI_Isend(memory + at, n, MPI_BYTE, member, TAG, comm, request);
        else MPI_Irecv(memory + at, n, MPI_BYTE, member, TAG, comm, request);
    }
    return TR_OK;
}

static size_t sum_of(const size_t *bytes, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

int tr_exchange(tr_context *tr, enum tr_set set, const void *sent, const size_t *to_each, void *received,
                const size_t *from_each)
{
    TR_TRY(check(tr, set, 0));
    MPI_Comm comm = comm_of(tr, set);
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set), status = TR_OK;
    char *in = received, *out = (char *)(uintptr_t)sent; /* MPI's sends only read it */
    struct messages messages = {0};
    if (to_each[me] > 0) memcpy(in + sum_of(from_each, me), out + sum_of(to_each, me), to_each[me]);
    for (int turn = 1; turn < members && status == TR_OK; turn++) {
        int m = (me + members - turn) % members;
        status = start(&messages, in + sum_of(from_each, m), from_each[m], m, false, comm);
    }
    for (int turn = 1; turn < members && status == TR_OK; turn++) { /* not all to the same at once */
        int m = (me + turn) % members;
        status = start(&messages, out + sum_of(to_each, m), to_each[m], m, true, comm);
    }
    for (size_t i = 0; i < messages.n && status == TR_OK; i++)
        status = tr_wait_request(tr, &messages.request[i], waiting_for(set));
    free(messages.request);
    return status;
}

int tr_exchange_counts(tr_context *tr, enum tr_set set, const size_t *to_each, size_t *from_each)
{
    TR_TRY(check(tr, set, 0));
    MPI_Request request;
    MPI_Ialltoall(to_each, sizeof *to_each, MPI_BYTE, from_each, sizeof *from_each, MPI_BYTE,
                  comm_of(tr, set), &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

int tr_barrier_of(tr_context *tr, enum tr_set set)
{
    TR_TRY(check(tr, set, 0));
    return tr_barrier(tr, comm_of(tr, set), waiting_for(set));
}

struct tr_set_memory {
    struct tr_shm shm; /* all is the first member's part: a counter, and the memory */
    tr_context *tr;
    enum tr_set set;
    uint64_t met; /* what the counter says once all have come */
};

/* The counter has a line of the cache to itself. */
enum { COUNTER_BYTES = 64 };

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
    return tr_shm_open(tr, comm_of(tr, set), tr_set_rank(tr, set) == 0 ? COUNTER_BYTES + bytes : 0, true,
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
                  waiting_for(memory->set));
    return TR_OK;
}

void tr_set_memory_close(tr_set_memory **memory)
{
    if (!*memory) return;
    tr_shm_close(&(*memory)->shm);
    free(*memory);
    *memory = NULL;
}

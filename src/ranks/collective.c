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

static size_t size_of(enum tr_dtype dtype)
{
    int size;
    MPI_Type_size(type_of(dtype), &size);
    return (size_t)size;
}

static MPI_Op operation_of(enum tr_operation operation)
{
    const MPI_Op operations[] = {[TR_SUM] = MPI_SUM, [TR_MIN] = MPI_MIN, [TR_MAX] = MPI_MAX};
    return operations[operation];
}

/* Size in bytes above which sum_long() is used. MPI_Iallreduce of Open MPI sends all data up and down a tree, one direction at a
 * time. */
enum { LONG = 1 << 16 };

/* Each member sums one part and sends it to the others. */
static int sum_long(tr_context *tr, enum tr_set set, enum tr_dtype dtype, void *values, size_t n)
{
    size_t members = (size_t)tr_set_size(tr, set), me = (size_t)tr_set_rank(tr, set), size = size_of(dtype),
           *counts;
    TR_TRY(TR_NEW(&counts, members));
    for (size_t i = 0; i < members; i++) counts[i] = n * (i + 1) / members - n * i / members;
    int status = tr_reduce_scatter(tr, set, dtype, values, counts, NULL);
    for (size_t i = 0; i < members; i++) counts[i] *= size;
    if (status == TR_OK)
        status = tr_all_gather_lists(tr, set, (char *)values + n * me / members * size, counts, values);
    free(counts);
    return status;
}

int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n)
{
    TR_TRY(check(tr, set, n));
    if (operation == TR_SUM && n * size_of(dtype) >= LONG && tr_set_size(tr, set) > 1)
        return sum_long(tr, set, dtype, values, n);
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values, (int)n, type_of(dtype), operation_of(operation), comm_of(tr, set),
                   &request);
    return tr_wait_request(tr, &request, waiting_for(set));
}

int tr_sum_before(tr_context *tr, enum tr_set set, uint64_t value, uint64_t *before)
{
    TR_TRY(check(tr, set, 0));
    MPI_Request request;
    *before = 0; /* MPI_Exscan does not set it on the first rank */
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

/* Pending messages. Counts of MPI are limited to 2 GiB - 1, and pieces of 64 MiB keep its buffers small. */
struct messages {
    MPI_Request *request;
    size_t n, capacity;
};

static int start(struct messages *m, char *memory, size_t bytes, int member, bool sends, MPI_Comm comm)
{
    const size_t most = (size_t)64 << 20;
    for (size_t at = 0; at < bytes; at += most) {
        int n = (int)tr_min_size(bytes - at, most);
        TR_TRY(TR_GROW(&m->request, &m->capacity, m->n + 1));
        MPI_Request *request = &m->request[m->n++];
        if (sends) MPI_Isend(memory + at, n, MPI_BYTE, member, TR_TAG_SET, comm, request);
        else MPI_Irecv(memory + at, n, MPI_BYTE, member, TR_TAG_SET, comm, request);
    }
    return TR_OK;
}

static int finish(tr_context *tr, enum tr_set set, struct messages *messages, int status)
{
    for (size_t i = 0; i < messages->n && status == TR_OK; i++)
        status = tr_wait_request(tr, &messages->request[i], waiting_for(set));
    free(messages->request);
    return status;
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
    char *in = received, *out = (char *)(uintptr_t)sent; /* only read, by MPI_Isend */
    struct messages messages = {0};
    if (to_each[me] > 0) memcpy(in + sum_of(from_each, me), out + sum_of(to_each, me), to_each[me]);
    for (int turn = 1; turn < members && status == TR_OK; turn++) {
        int m = (me + members - turn) % members;
        status = start(&messages, in + sum_of(from_each, m), from_each[m], m, false, comm);
    }
    for (int turn = 1; turn < members && status == TR_OK; turn++) { /* in different order on each rank */
        int m = (me + turn) % members;
        status = start(&messages, out + sum_of(to_each, m), to_each[m], m, true, comm);
    }
    return finish(tr, set, &messages, status);
}

/* ---- sums by recursive halving ---- */

/* A set is halved recursively until each part has one member. Members of a half are numbered from 0; a member exchanges data with
 * the members of the other half that have the same number modulo the size of the smaller half. */
struct halves {
    int own, members, other, others; /* first member and size of the own and of the other half */
};

enum { MOST_HALVINGS = 32 };

/* Lists the halves from the whole set down to the member. Returns their number. */
static int find_halves(const tr_context *tr, enum tr_set set, struct halves *h)
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

/* Sends the numbers of the other half to one of its members, and adds the received numbers of the own half. at[i]: start of the
 * numbers of member i. */
static int add_up(tr_context *tr, enum tr_set set, const struct halves *h, MPI_Datatype type, char *values,
                  const size_t *at, char **spare, size_t *room)
{
    MPI_Comm comm = comm_of(tr, set);
    int number = tr_set_rank(tr, set) - h->own, size, status = TR_OK;
    MPI_Type_size(type, &size);
    size_t bytes = (size_t)size, part = (at[h->own + h->members] - at[h->own]) * bytes, arrived = 0;
    struct messages messages = {0};
    TR_TRY(TR_GROW(spare, room, part * (size_t)(h->others / h->members + 1)));
    for (int i = number; i < h->others && status == TR_OK; i += h->members)
        status = start(&messages, *spare + part * arrived++, part, h->other + i, false, comm);
    if (status == TR_OK)
        status =
            start(&messages, values + at[h->other] * bytes, (at[h->other + h->others] - at[h->other]) * bytes,
                  h->other + number % h->others, true, comm);
    status = finish(tr, set, &messages, status);
    for (size_t i = 0; i < arrived && status == TR_OK; i++)
        MPI_Reduce_local(*spare + part * i, values + at[h->own] * bytes, (int)(part / bytes), type, MPI_SUM);
    return status;
}

int tr_reduce_scatter(tr_context *tr, enum tr_set set, enum tr_dtype dtype, void *values,
                      const size_t *counts, void *sum)
{
    struct halves h[MOST_HALVINGS];
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set), status = TR_OK;
    TR_TRY(check(tr, set, sum_of(counts, members)));
    int halvings = find_halves(tr, set, h);
    size_t *at, room = 0, size = size_of(dtype);
    char *spare = NULL;
    TR_TRY(TR_NEW(&at, (size_t)members + 1));
    for (int i = 0; i < members; i++) at[i + 1] = at[i] + counts[i];
    for (int i = 0; i < halvings && status == TR_OK; i++)
        status = add_up(tr, set, &h[i], type_of(dtype), values, at, &spare, &room);
    if (status == TR_OK && sum && counts[me] > 0)
        memcpy(sum, (char *)values + at[me] * size, counts[me] * size);
    free(spare);
    free(at);
    return status;
}

/* Exchanges the results of the own half with the other half. */
static int tell(tr_context *tr, enum tr_set set, const struct halves *h, char *all, const size_t *at)
{
    MPI_Comm comm = comm_of(tr, set);
    int number = tr_set_rank(tr, set) - h->own;
    struct messages messages = {0};
    int status = start(&messages, all + at[h->other], at[h->other + h->others] - at[h->other],
                       h->other + number % h->others, false, comm);
    for (int i = number; i < h->others && status == TR_OK; i += h->members)
        status = start(&messages, all + at[h->own], at[h->own + h->members] - at[h->own], h->other + i, true,
                       comm);
    return finish(tr, set, &messages, status);
}

int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all)
{
    struct halves h[MOST_HALVINGS];
    int members = tr_set_size(tr, set), me = tr_set_rank(tr, set), status = TR_OK;
    TR_TRY(check(tr, set, 0));
    size_t *at;
    TR_TRY(TR_NEW(&at, (size_t)members + 1));
    for (int i = 0; i < members; i++) at[i + 1] = at[i] + counts[i];
    if (counts[me] > 0) memmove((char *)all + at[me], mine, counts[me]);
    for (int i = find_halves(tr, set, h) - 1; i >= 0 && status == TR_OK; i--)
        status = tell(tr, set, &h[i], all, at);
    free(at);
    return status;
}

int tr_all_gather(tr_context *tr, enum tr_set set, const void *mine, size_t bytes, void *all)
{
    size_t *counts, members = (size_t)tr_set_size(tr, set);
    TR_TRY(TR_NEW(&counts, members));
    for (size_t i = 0; i < members; i++) counts[i] = bytes;
    int status = tr_all_gather_lists(tr, set, mine, counts, all);
    free(counts);
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
    struct tr_shm
        shm; /* the part of the first member contains a counter and the memory; other parts are empty */
    tr_context *tr;
    enum tr_set set;
    uint64_t met; /* value of the counter when all members have arrived */
};

/* The counter has its own cache line. */
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

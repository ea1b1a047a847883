#include "trireme/collective.h"

#include <limits.h>
#include <stdlib.h>

#include "ranks/ranks.h"

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

int tr_all_reduce(tr_context *tr, enum tr_set set, enum tr_operation operation, enum tr_dtype dtype,
                  void *values, size_t n)
{
    const MPI_Op operations[] = {[TR_SUM] = MPI_SUM, [TR_MIN] = MPI_MIN, [TR_MAX] = MPI_MAX};
    const MPI_Datatype types[] = {
        [TR_F32] = MPI_FLOAT, [TR_F64] = MPI_DOUBLE, [TR_I32] = MPI_INT32_T, [TR_I64] = MPI_INT64_T};
    TR_TRY(check(tr, set, n));
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values, (int)n, types[dtype], operations[operation], comm_of(tr, set),
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

/* What MPI wants to know of pieces that lie one after the other. */
struct pieces {
    int *count, *begin;
};

static int lay_out(size_t n, const size_t *bytes, struct pieces *pieces)
{
    size_t sum = 0;
    TR_TRY(TR_NEW(&pieces->count, 2 * n));
    pieces->begin = pieces->count + n;
    for (size_t i = 0; i < n; i++) {
        pieces->count[i] = (int)bytes[i];
        pieces->begin[i] = (int)sum;
        sum += bytes[i];
        if (sum > INT_MAX) return tr_fail(TR_ERR_INTERNAL, "a collective call of more than 2 GiB - 1 bytes");
    }
    return TR_OK;
}

int tr_all_gather_lists(tr_context *tr, enum tr_set set, const void *mine, const size_t *counts, void *all)
{
    struct pieces to = {0};
    TR_TRY(check(tr, set, 0));
    int status = lay_out((size_t)tr_set_size(tr, set), counts, &to);
    if (status == TR_OK) {
        MPI_Request request;
        MPI_Iallgatherv(mine, to.count[tr_set_rank(tr, set)], MPI_BYTE, all, to.count, to.begin, MPI_BYTE,
                        comm_of(tr, set), &request);
        status = tr_wait_request(tr, &request, waiting_for(set));
    }
    free(to.count);
    return status;
}

int tr_exchange(tr_context *tr, enum tr_set set, const void *sent, const size_t *to_each, void *received,
                const size_t *from_each)
{
    struct pieces to = {0}, from = {0};
    TR_TRY(check(tr, set, 0));
    size_t n = (size_t)tr_set_size(tr, set);
    int status = lay_out(n, to_each, &to);
    if (status == TR_OK) status = lay_out(n, from_each, &from);
    if (status == TR_OK) {
        MPI_Request request;
        MPI_Ialltoallv(sent, to.count, to.begin, MPI_BYTE, received, from.count, from.begin, MPI_BYTE,
                       comm_of(tr, set), &request);
        status = tr_wait_request(tr, &request, waiting_for(set));
    }
    free(to.count);
    free(from.count);
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

#include "trireme/rotation.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"
#include "ranks/shm.h"

enum { ALIGNMENT = 64, MESSAGE = 1 << 30 };

struct tr_rotation {
    tr_context *tr;
    int members, member;
    size_t *bytes; /* by block */
    int held;      /* the block that this member has, or that is on its way to it */
    bool taken;
    int64_t given; /* rounds */
    bool shares;
    MPI_Comm comm;        /* of the members, who may be no set of workers any more when they close it */
    struct tr_shm memory; /* shared: a part for each block */
    /* travelling */
    char *here, *coming; /* held lies here; the next comes there; one buffer in a group of one */
    size_t messages;     /* of the largest block */
    MPI_Request *sent, *received;
};

bool tr_rotation_schedule(const tr_worker *me, int64_t rotations, tr_command *commands)
{
    if (me->round >= rotations * me->group_size) return false;
    for (int m = 0; m < me->group_size; m++)
        commands[m] = (tr_command){{(m + me->round) % me->group_size, me->round / me->group_size}};
    return true;
}

/* ---- opening ---- */

static int rank_of(const tr_rotation *r, int member)
{
    const struct tr_worker_set *set = r->tr->active;
    return tr_worker_rank(r->tr, set, set->group * r->members + member);
}

/* Whether all members lie on one node, and it has room for the blocks. Those of its other groups may ask for as much
 * at the same time. */
static bool can_share(const tr_rotation *r, const tr_worker *me)
{
    double needed = 0;
    for (int m = 0; m < r->members; m++) {
        if (!tr_same_node(r->tr, rank_of(r, m))) return false;
        needed += (double)r->bytes[m];
    }
    return (double)tr_shm_free() > 1.05 * needed * me->groups;
}

static int open_buffer(size_t bytes, char **buffer)
{
    size_t padded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    *buffer = aligned_alloc(ALIGNMENT, padded);
    if (!*buffer) return tr_fail(TR_ERR_SYSTEM, "out of memory: a block of %zu bytes", bytes);
    memset(*buffer, 0, padded);
    return TR_OK;
}

static int open_travelling(tr_rotation *r)
{
    size_t largest = 0;
    for (int b = 0; b < r->members; b++) largest = tr_max_size(largest, r->bytes[b]);
    r->messages = largest / MESSAGE + 1;
    TR_TRY(TR_NEW(&r->sent, r->messages));
    TR_TRY(TR_NEW(&r->received, r->messages));
    for (size_t i = 0; i < r->messages; i++) r->sent[i] = r->received[i] = MPI_REQUEST_NULL;
    TR_TRY(open_buffer(largest, &r->here));
    return r->members > 1 ? open_buffer(largest, &r->coming) : TR_OK;
}

static int open_memory(tr_rotation *r, const tr_worker *me)
{
    int way = r->tr->job ? r->tr->job->table.rotate : TR_ROTATE_AUTO;
    int shares = r->members > 1 && way != TR_ROTATE_TRAVEL && can_share(r, me);
    /* all are here before anybody is inside a call that does not look after its other roles */
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &shares, 1, MPI_INT, MPI_MIN, r->tr->active->members, &request);
    TR_TRY(tr_wait_request(r->tr, &request, "the group to open a rotation"));
    if (way == TR_ROTATE_SHARE && !shares && r->members > 1)
        return tr_fail(
            TR_ERR_CONFIG,
            "table.rotate is share, but the members of a group lie on several nodes, or their node has no "
            "room for all blocks in shared memory");
    r->shares = shares;
    if (shares) {
        MPI_Comm_idup(r->tr->active->members, &r->comm, &request);
        TR_TRY(tr_wait_request(r->tr, &request, "the group to open a rotation"));
    }
    TR_TRY(shares ? tr_shm_open(r->tr, r->comm, r->bytes[r->member], true, &r->memory) : open_travelling(r));
    return tr_barrier(r->tr, r->tr->active->members, "the group to open a rotation");
}

int tr_rotation_open(tr_worker *me, const size_t *bytes, tr_rotation **rotation)
{
    tr_rotation *r;
    TR_TRY(TR_NEW(&r, 1));
    *r = (tr_rotation){.tr = me->tr,
                       .members = me->group_size,
                       .member = me->member,
                       .held = me->member,
                       .comm = MPI_COMM_NULL,
                       .memory = TR_SHM_CLOSED};
    int status = TR_NEW(&r->bytes, (size_t)r->members);
    if (status == TR_OK) {
        memcpy(r->bytes, bytes, (size_t)r->members * sizeof *bytes);
        status = open_memory(r, me);
    }
    *rotation = r;
    return status;
}

/* ---- rounds ---- */

/* Sends or receives a block in as many messages as it takes. */
static void move(const tr_rotation *r, char *memory, int block, int member, bool sends, MPI_Request *requests)
{
    size_t left = r->bytes[block];
    for (size_t i = 0; left > 0; i++) {
        size_t n = tr_min_size(left, MESSAGE);
        int rank = rank_of(r, member);
        if (sends) MPI_Isend(memory, (int)n, MPI_BYTE, rank, TR_TAG_BLOCK, r->tr->wire, &requests[i]);
        else MPI_Irecv(memory, (int)n, MPI_BYTE, rank, TR_TAG_BLOCK, r->tr->wire, &requests[i]);
        memory += n;
        left -= n;
    }
}

static int wait_for(const tr_rotation *r, MPI_Request *requests, const char *what)
{
    for (size_t i = 0; i < r->messages; i++) TR_TRY(tr_wait_request(r->tr, &requests[i], what));
    return TR_OK;
}

int tr_rotation_look(tr_rotation *r, tr_block *block)
{
    if (!r->shares) TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
    *block = (tr_block){r->held, r->shares ? r->memory.part[r->held].at : r->here, r->bytes[r->held]};
    return TR_OK;
}

int tr_rotation_take(tr_rotation *r, const tr_worker *me, tr_block *block)
{
    if (r->taken || r->held != (int)me->command.word[0])
        return tr_fail(TR_ERR_INTERNAL,
                       "round %d wants block %lld, but block %d is next: each round takes and gives once",
                       me->round, (long long)me->command.word[0], r->held);
    TR_TRY(tr_rotation_look(r, block));
    atomic_thread_fence(memory_order_seq_cst);
    r->taken = true;
    return TR_OK;
}

/* Rounds end with a message to the leader and begin with one from it, so that shared memory needs no more than order. */
int tr_rotation_give(tr_rotation *r)
{
    int next = (r->held + 1) % r->members;
    r->taken = false;
    r->given++;
    atomic_thread_fence(memory_order_seq_cst);
    if (!r->shares && r->members > 1) {
        TR_TRY(wait_for(r, r->sent, "the member before to take a block"));
        char *leaving = r->here;
        move(r, leaving, r->held, (r->member + r->members - 1) % r->members, true, r->sent);
        /* what left in the round before has left: its memory is free for what comes */
        r->here = r->coming;
        r->coming = leaving;
        move(r, r->here, next, (r->member + 1) % r->members, false, r->received);
    }
    r->held = next;
    return TR_OK;
}

const char *tr_rotation_way(const tr_rotation *r)
{
    return r->members == 1 ? "alone" : r->shares ? "share" : "travel";
}

/* A member that failed may have given less often than the others, whose blocks would wait for it forever. */
static int catch_up(tr_rotation *r)
{
    int64_t most = r->given;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, r->tr->active->members, &request);
    TR_TRY(tr_wait_request(r->tr, &request, "the group to close a rotation"));
    while (!r->shares && r->messages > 0 && r->given < most) {
        TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
        TR_TRY(tr_rotation_give(r));
    }
    if (!r->sent || !r->received) return TR_OK;
    TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
    return wait_for(r, r->sent, "the member before to take a block");
}

void tr_rotation_close(tr_rotation **rotation)
{
    tr_rotation *r = *rotation;
    if (!r) return;
    (void)catch_up(r);
    tr_shm_close(&r->memory);
    if (r->comm != MPI_COMM_NULL) MPI_Comm_free(&r->comm);
    free(r->here);
    free(r->coming);
    free(r->sent);
    free(r->received);
    free(r->bytes);
    free(r);
    *rotation = NULL;
}

#define _GNU_SOURCE
#include "trireme/rotation.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"

enum { ALIGNMENT = 64, MESSAGE = 1 << 30 };

struct tr_rotation {
    tr_context *tr;
    int members, member;
    size_t *bytes; /* by block */
    int held;      /* the block that this member has, or that is on its way to it */
    bool taken;
    int64_t given; /* rounds */
    bool shares;
    /* shared */
    MPI_Win window;
    char **memory; /* by block */
    /* travelling */
    char *here, *coming; /* held lies here; the next comes there; one buffer in a group of one */
    size_t messages;     /* under way, at most */
    MPI_Request *sent, *received;
};

static int64_t rounds_of(const tr_worker *me, int64_t rotations)
{
    return rotations * me->group_size;
}

bool tr_rotation_schedule(const tr_worker *me, int64_t rotations, tr_command *commands)
{
    if (me->round >= rounds_of(me, rotations)) return false;
    for (int m = 0; m < me->group_size; m++) {
        commands[m] = (tr_command){{0}};
        commands[m].word[0] = (m + me->round) % me->group_size;
        commands[m].word[1] = me->round / me->group_size;
    }
    return true;
}

/* ---- memory that the members share ---- */

static bool on_one_node(const tr_context *tr, const tr_worker *me)
{
    int first = me->group * me->group_size;
    for (int m = 1; m < me->group_size; m++)
        if (tr->node_of[tr_worker_rank(tr, tr->active, first + m)] !=
            tr->node_of[tr_worker_rank(tr, tr->active, first)])
            return false;
    return true;
}

/* The members of other groups of the node may ask for as much at the same time. */
static bool has_room(const tr_rotation *r, const tr_worker *me)
{
    double needed = 0;
    for (int b = 0; b < r->members; b++) needed += (double)r->bytes[b];
    return (double)tr_shared_memory_free() > 1.05 * needed * me->groups;
}

static size_t padded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Each member's block lies near it at first; MPI's memory begins at a page, or wherever it likes. */
static int open_shared(tr_rotation *r)
{
    MPI_Info info;
    char *mine = NULL;
    size_t bytes = padded(r->bytes[r->member]) + ALIGNMENT;
    TR_TRY(TR_NEW(&r->memory, (size_t)r->members));
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    int failed = MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, r->tr->active->members, &mine, &r->window);
    MPI_Info_free(&info);
    if (failed != MPI_SUCCESS)
        return tr_fail(TR_ERR_SYSTEM, "MPI cannot allocate %zu bytes of shared memory", bytes);
    for (int b = 0; b < r->members; b++) {
        MPI_Aint size;
        int unit;
        char *memory;
        MPI_Win_shared_query(r->window, b, &size, &unit, &memory);
        r->memory[b] = memory + (ALIGNMENT - (size_t)((uintptr_t)memory % ALIGNMENT)) % ALIGNMENT;
    }
    memset(r->memory[r->member], 0, r->bytes[r->member]);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, r->window);
    return TR_OK;
}

/* ---- blocks that travel ---- */

static int open_buffer(size_t bytes, char **buffer)
{
    if (posix_memalign((void **)buffer, ALIGNMENT, tr_max_size(padded(bytes), ALIGNMENT)) != 0) {
        *buffer = NULL;
        return tr_fail(TR_ERR_SYSTEM, "out of memory: a block of %zu bytes", bytes);
    }
    memset(*buffer, 0, bytes);
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

/* Sends or receives a block in as many messages as it takes. */
static void move(const tr_rotation *r, char *memory, int block, int member, bool sends, MPI_Request *requests)
{
    size_t left = r->bytes[block];
    for (size_t i = 0; left > 0; i++) {
        size_t n = tr_min_size(left, MESSAGE);
        int rank = tr_worker_rank(r->tr, r->tr->active, r->tr->active->group * r->members + member);
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

static int wait_for_both(const tr_rotation *r)
{
    TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
    return wait_for(r, r->sent, "the member before to take a block");
}

/* ---- a rotation ---- */

static int open_memory(tr_rotation *r, const tr_worker *me)
{
    int way = r->tr->job ? r->tr->job->table.rotate : TR_ROTATE_AUTO;
    int shares = r->members > 1 && way != TR_ROTATE_TRAVEL && on_one_node(r->tr, me) && has_room(r, me);
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
    if (r->shares) TR_TRY(open_shared(r));
    else TR_TRY(open_travelling(r));
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
                       .window = MPI_WIN_NULL};
    int status = TR_NEW(&r->bytes, (size_t)r->members);
    if (status == TR_OK) {
        memcpy(r->bytes, bytes, (size_t)r->members * sizeof *bytes);
        status = open_memory(r, me);
    }
    *rotation = r;
    return status;
}

int tr_rotation_take(tr_rotation *r, const tr_worker *me, tr_block *block)
{
    if (r->taken || r->held != (int)me->command.word[0])
        return tr_fail(TR_ERR_INTERNAL,
                       "round %d wants block %lld, but block %d is next: each round takes and gives once",
                       me->round, (long long)me->command.word[0], r->held);
    if (!r->shares) TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
    atomic_thread_fence(memory_order_seq_cst);
    r->taken = true;
    *block = (tr_block){r->held, r->shares ? r->memory[r->held] : r->here, r->bytes[r->held]};
    return TR_OK;
}

int tr_rotation_look(tr_rotation *r, tr_block *block)
{
    if (!r->shares) TR_TRY(wait_for(r, r->received, "a block from the next member of the group"));
    *block = (tr_block){r->held, r->shares ? r->memory[r->held] : r->here, r->bytes[r->held]};
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
    return r->sent && r->received ? wait_for_both(r) : TR_OK;
}

void tr_rotation_close(tr_rotation **rotation)
{
    tr_rotation *r = *rotation;
    if (!r) return;
    (void)catch_up(r);
    if (r->window != MPI_WIN_NULL) {
        MPI_Win_unlock_all(r->window);
        MPI_Win_free(&r->window);
    }
    free(r->memory);
    free(r->here);
    free(r->coming);
    free(r->sent);
    free(r->received);
    free(r->bytes);
    free(r);
    *rotation = NULL;
}

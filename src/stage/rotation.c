#include "trireme/stage.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "table/sync.h"
#include "ranks/ranks.h"
#include "table/table.h"

/* Minimum size of a message, in bytes. MPI usually sends messages up to 64 KB eagerly, before the receiver waits for them. */
enum { LEAST_PART = 56 << 10 };
enum { ALIGNMENT = 64, MESSAGE = 1 << 30, MOST_DEPTH = 2 };

/* Head of a block in shared memory. */
struct shared_head {
    _Atomic int64_t given; /* number of calls of tr_rotation_give() for this block */
    char pad[ALIGNMENT - sizeof(int64_t)];
};

/* Memory of a block that is sent by messages. It arrives from the next member, is used, and leaves to the previous member. */
struct slot {
    char *memory;
    bool comes;                   /* messages of the block are being received */
    bool awaited;                 /* the time until the block arrives counts as way_seconds (table.h) */
    bool leaves;                  /* messages of the block are being sent */
    MPI_Request *received, *sent; /* requests by message of the block */
};

struct tr_rotation {
    tr_context *tr;
    int members, member, depth, blocks;
    size_t *bytes; /* by block: its size */
    bool taken;    /* this member has a block, between take and give */
    bool halted;   /* a block could not be given, because a member has failed */
    bool closes; /* tr_rotation_close() is running: members give their missing blocks even after a failure */
    int64_t given; /* number of rounds that have ended */
    size_t
        parts; /* number of messages into which a block is divided; more if a message would exceed MESSAGE bytes */
    bool shares; /* blocks are in shared memory; false: blocks are sent by messages */
    /* Communicator of the members. That of the worker set may be closed before, or have an incomplete sum after a failure. */
    MPI_Comm comm;
    struct tr_shm memory; /* shares: a part for each member, with the blocks that it has first */
    /* the other members are for blocks that are sent: the block of round r is in slot r mod slots */
    int slots;
    struct slot slot[MOST_DEPTH + 1];
    size_t messages; /* maximum number of messages per block */
    int64_t posted;  /* the receives of the blocks of all rounds < posted have been started */
    size_t passed;   /* number of messages of this round's block that have been sent so far */
};

/* The depth is 2 if the members of any group are on several nodes. It is equal for all groups, so that their numbers of rounds
 * are. */
int tr_rotation_depth(const tr_context *tr)
{
    const struct tr_layout *l = &tr->layout;
    for (int worker = 0; worker < tr_layout_workers(l); worker++) {
        int first = worker / l->group_size * l->group_size;
        if (tr->node_of[l->worker_rank[worker]] != tr->node_of[l->worker_rank[first]]) return MOST_DEPTH;
    }
    return 1;
}

/* Returns the block that this member has in round r->given + rounds. */
static int rotation_block(const tr_rotation *r, int rounds)
{
    return (int)(((int64_t)r->member * r->depth + r->given + rounds) % r->blocks);
}

/* ---- opening ---- */

static int rotation_rank(const tr_rotation *r, int member)
{
    const struct tr_worker_set *set = r->tr->active;
    return tr_worker_rank(r->tr, set, set->group * r->members + member);
}

static size_t block_shared_bytes(const tr_rotation *r, int block)
{
    return sizeof(struct shared_head) + (r->bytes[block] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Returns the size of each message of a block except the last message, which may be shorter. */
static size_t block_part_bytes(const tr_rotation *r, int block)
{
    size_t part = (r->bytes[block] / r->parts / ALIGNMENT + 1) * ALIGNMENT;
    return tr_min_size(tr_max_size(part, LEAST_PART), MESSAGE);
}

static size_t block_messages(const tr_rotation *r, int block)
{
    size_t part = block_part_bytes(r, block);
    return (r->bytes[block] + part - 1) / part;
}

/* ---- messages ---- */

static void *block_message(const tr_rotation *r, const struct slot *slot, int block, size_t i, int *bytes)
{
    size_t part = block_part_bytes(r, block), at = i * part;
    *bytes = (int)tr_min_size(part, r->bytes[block] - at);
    return slot->memory + at;
}

/* Starts to send the first n messages of this round's block, unless they were sent before. */
static void block_send_until(tr_rotation *r, size_t n)
{
    int block = rotation_block(r, 0), rank = rotation_rank(r, (r->member + r->members - 1) % r->members);
    struct slot *slot = &r->slot[r->given % r->slots];
    if (r->passed >= n) return;
    if (!slot->leaves) tr_way_begin(r->tr->tables);
    slot->leaves = true;
    for (; r->passed < n; r->passed++) {
        int bytes;
        void *at = block_message(r, slot, block, r->passed, &bytes);
        MPI_Isend(at, bytes, MPI_BYTE, rank, TR_TAG_BLOCK, r->tr->wire, &slot->sent[r->passed]);
    }
}

/* Starts to receive the block of round r->given + r->depth, if the block that was sent from its slot has left. So the next member
 * can send it while this member computes. */
static void block_receive_next(tr_rotation *r)
{
    int64_t round = r->given + r->depth;
    struct slot *slot = &r->slot[round % r->slots];
    int block = rotation_block(r, r->depth), rank = rotation_rank(r, (r->member + 1) % r->members);
    if (r->posted > round || slot->leaves) return;
    for (size_t i = 0; i < block_messages(r, block); i++) {
        int bytes;
        void *at = block_message(r, slot, block, i, &bytes);
        MPI_Irecv(at, bytes, MPI_BYTE, rank, TR_TAG_BLOCK, r->tr->wire, &slot->received[i]);
    }
    slot->comes = true;
    r->posted = round + 1;
}

static bool slot_all_done(const tr_rotation *r, MPI_Request *requests)
{
    int done = 0;
    MPI_Testall((int)r->messages, requests, &done, MPI_STATUSES_IGNORE);
    return done;
}

/* Poll function: completes sends and receives of blocks, and starts to receive the next block. */
static int slots_poll(void *what, int *did)
{
    tr_rotation *r = what;
    for (struct slot *s = r->slot; s < r->slot + r->slots; s++) {
        bool arrives = s->comes && slot_all_done(r, s->received),
             has_left = s->leaves && slot_all_done(r, s->sent);
        if (arrives && s->awaited) tr_way_end(r->tr->tables);
        if (arrives) s->comes = s->awaited = false;
        if (has_left) tr_way_end(r->tr->tables);
        if (has_left) s->leaves = false;
        *did += arrives + has_left;
    }
    if (r->taken) block_receive_next(r);
    return TR_OK;
}

/* ---- memory ---- */

static int slots_open(tr_rotation *r)
{
    size_t largest = 0;
    for (int b = 0; b < r->blocks; b++) {
        largest = tr_max_size(largest, r->bytes[b]);
        r->messages = tr_max_size(r->messages, block_messages(r, b));
    }
    size_t padded = (largest / ALIGNMENT + 1) * ALIGNMENT;
    r->slots = r->members > 1 ? r->depth + 1 : r->depth;
    for (struct slot *s = r->slot; s < r->slot + r->slots; s++) {
        s->memory = aligned_alloc(ALIGNMENT, padded);
        if (!s->memory) return tr_fail(TR_ERR_SYSTEM, "out of memory: a block of %zu bytes", largest);
        memset(s->memory, 0, padded);
        TR_TRY(TR_NEW(&s->sent, r->messages));
        TR_TRY(TR_NEW(&s->received, r->messages));
        for (size_t i = 0; i < r->messages; i++) s->sent[i] = s->received[i] = MPI_REQUEST_NULL;
    }
    return r->members > 1 ? tr_poll_add(r->tr, slots_poll, r) : TR_OK;
}

int tr_rotation_open(tr_worker *me, const size_t *bytes, int parts, tr_rotation **rotation)
{
    tr_rotation *r;
    int depth = tr_rotation_depth(me->tr);
    TR_TRY(TR_NEW(&r, 1));
    *r = (tr_rotation){.tr = me->tr,
                       .members = me->group_size,
                       .member = me->member,
                       .depth = depth,
                       .blocks = depth * me->group_size,
                       .parts = (size_t)parts,
                       .posted = depth,
                       .comm = MPI_COMM_NULL,
                       .memory = TR_SHM_CLOSED};
    *rotation = r;
    TR_TRY(TR_NEW(&r->bytes, (size_t)r->blocks));
    memcpy(r->bytes, bytes, (size_t)r->blocks * sizeof *bytes);

    /* sharing requires that the group is on one node, with enough memory for all groups, which may all be on this node */
    int way = r->tr->job ? r->tr->job->table.rotate : TR_ROTATE_AUTO;
    int shares = r->members > 1 && way != TR_ROTATE_TRAVEL;
    double needed = 0;
    size_t own = 0;
    for (int m = 0; m < r->members; m++) shares = shares && tr_same_node(r->tr, rotation_rank(r, m));
    for (int b = 0; b < r->blocks; b++) needed += (double)block_shared_bytes(r, b);
    shares = shares && (double)tr_shm_free() > 1.05 * needed * me->groups;
    /* also makes all members arrive before tr_shm_open(), which does not poll */
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &shares, 1, MPI_INT, MPI_MIN, r->tr->active->members, &request);
    TR_TRY(tr_wait_request(r->tr, &request, "the group to open a rotation"));
    if (way == TR_ROTATE_SHARE && !shares && r->members > 1)
        return tr_fail(
            TR_ERR_CONFIG,
            "table.rotate is share, but the members of a group lie on several nodes, or their node "
            "has no room for all blocks in shared memory");
    r->shares = shares;
    MPI_Comm_idup(r->tr->active->members, &r->comm, &request);
    TR_TRY(tr_wait_request(r->tr, &request, "the group to open a rotation"));
    for (int d = 0; d < r->depth; d++) own += block_shared_bytes(r, r->member * r->depth + d);
    TR_TRY(shares ? tr_shm_open(r->tr, r->comm, own, true, &r->memory) : slots_open(r));
    return tr_barrier(r->tr, r->tr->active->members, "the group to open a rotation");
}

/* ---- rounds ---- */

static struct shared_head *block_in_memory(const tr_rotation *r, int block)
{
    char *at = r->memory.part[block / r->depth].at;
    for (int b = block - block % r->depth; b < block; b++) at += block_shared_bytes(r, b);
    return (struct shared_head *)at;
}

/* Returns whether the block of round r->given + rounds has arrived. A shared block of round r has arrived when it was given r /
 * depth times, because members give it in every depth-th round. */
static bool block_is_here(const tr_rotation *r, int rounds)
{
    int64_t round = r->given + rounds;
    if (!r->shares) return !r->slot[round % r->slots].comes;
    return atomic_load_explicit(&block_in_memory(r, rotation_block(r, rounds))->given,
                                memory_order_acquire) >= round / r->depth;
}

static bool rotation_has_failed(const tr_rotation *r)
{
    return tr_clock_get(r->tr->sync->clock, TR_CLOCK_FAILED) != 0;
}

int tr_rotation_look(tr_rotation *r, int rounds, tr_block *block)
{
    tr_context *tr = r->tr;
    int number = rotation_block(r, rounds);
    *block = (tr_block){.number = number, .bytes = r->bytes[number]};
    if (r->halted) return TR_OK;
    if (!block_is_here(r, rounds)) {
        double begin = tr_now();
        tr_wait_begin(tr->tables);
        enum tr_rank_state before = tr_clock_say(tr->sync->clock, TR_RANK_WAITS);
        TR_WAIT_UNTIL(tr, block_is_here(r, rounds) || rotation_has_failed(r),
                      "a block from the next member of the group");
        tr_clock_say(tr->sync->clock, before);
        tr_wait_end(tr->tables);
        tr->tables->traffic.pull_seconds += tr_now() - begin;
    }
    if (!block_is_here(r, rounds)) return TR_OK;
    block->memory =
        r->shares ? (char *)(block_in_memory(r, number) + 1) : r->slot[(r->given + rounds) % r->slots].memory;
    return TR_OK;
}

int tr_rotation_take(tr_rotation *r, tr_block *block)
{
    if (r->taken)
        return tr_fail(TR_ERR_INTERNAL, "block %d is taken twice: each round takes and gives once",
                       rotation_block(r, 0));
    TR_TRY(tr_rotation_look(r, 0, block));
    r->taken = block->memory != NULL;
    return TR_OK;
}

void tr_rotation_pass(tr_rotation *r, size_t bytes)
{
    if (r->taken && !r->shares && r->members > 1)
        block_send_until(r, bytes / block_part_bytes(r, rotation_block(r, 0)));
}

int tr_rotation_give(tr_rotation *r)
{
    struct tr_tables *tables = r->tr->tables;
    int block = rotation_block(r, 0), next = rotation_block(r, r->depth);
    r->taken = false;
    if (r->shares)
        atomic_store_explicit(&block_in_memory(r, block)->given, r->given / r->depth + 1,
                              memory_order_release);
    if (r->shares || r->members == 1) {
        r->given += !r->halted;
        return TR_OK;
    }
    struct slot *coming = &r->slot[(r->given + r->depth) % r->slots];
    if (coming->leaves) {
        double begin = tr_now();
        tr_wait_begin(tables);
        TR_WAIT_UNTIL(r->tr, !coming->leaves || (!r->closes && rotation_has_failed(r)),
                      "the member before to take a block");
        tr_wait_end(tables);
        tables->traffic.push_seconds += tr_now() - begin;
    }
    r->halted = coming->leaves;
    if (r->halted) return TR_OK;
    block_receive_next(r);
    block_send_until(r, block_messages(r, block));
    r->passed = 0;
    r->given++;
    coming->awaited = coming->comes;
    if (coming->comes) tr_way_begin(tables);
    tables->traffic.bytes_pushed += r->bytes[block];
    tables->traffic.bytes_pulled += r->bytes[next];
    return TR_OK;
}

const char *tr_rotation_way(const tr_rotation *r)
{
    return r->members == 1 ? "alone" : r->shares ? "share" : "travel";
}

/* ---- closing ---- */

/* After a failure, some members may have given fewer blocks than others. Gives the missing blocks, unchanged, and completes all
 * messages, so that no member waits for a block forever. */
static int rotation_catch_up(tr_rotation *r)
{
    int64_t most = r->given + (r->passed > 0);
    MPI_Request request;
    r->closes = true;
    MPI_Iallreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, r->comm, &request);
    TR_TRY(tr_wait_request(r->tr, &request, "the group to close a rotation"));
    while (r->given < most) {
        TR_WAIT_UNTIL(r->tr, block_is_here(r, 0), "a block from the next member of the group");
        TR_TRY(tr_rotation_give(r));
    }
    if (!r->shares && r->posted > r->given + r->depth) { /* this block will not be sent */
        struct slot *slot = &r->slot[(r->posted - 1) % r->slots];
        for (size_t i = 0; slot->comes && i < r->messages; i++) {
            if (slot->received[i] == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&slot->received[i]);
            tr_wait_alone(r->tr, &slot->received[i], "the end of a cancelled block");
        }
        slot->comes = false;
    }
    for (const struct slot *s = r->slot; s < r->slot + r->slots; s++)
        TR_WAIT_UNTIL(r->tr, !s->comes && !s->leaves, "blocks of the group to arrive");
    return TR_OK;
}

void tr_rotation_close(tr_rotation **rotation)
{
    tr_rotation *r = *rotation;
    if (!r) return;
    if (r->shares || r->slots > r->depth) (void)rotation_catch_up(r);
    tr_poll_remove(r->tr, slots_poll, r);
    tr_shm_close(&r->memory);
    if (r->comm != MPI_COMM_NULL) MPI_Comm_free(&r->comm);
    for (int i = 0; i < r->slots; i++) {
        TR_FREE_ALL(r->slot[i].memory, r->slot[i].sent, r->slot[i].received);
    }
    TR_FREE_ALL(r->bytes, r);
    *rotation = NULL;
}

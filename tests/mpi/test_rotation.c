/* Rotation: the owner of each block at each step, its contents, and that no rank waits after a failure. */
#include "mpi_unit.h"

#include "ranks/ranks.h"
#include "trireme/stage.h"

enum { CLOCKS = 3, ROTATIONS = 2, MOST = 32 };

/* In front of every block; the rest of it is filled with the number of visits. */
struct head {
    int64_t number, visits, last_round, last_member, holder;
};

/* What leaders have sent to slaves: in lockstep blocks alone say what comes next. */
static int commands;

int MPI_Isend(const void *data, int n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    commands += tag == TR_TAG_COMMAND;
    return PMPI_Isend(data, n, type, rank, tag, comm, request);
}

struct crew {
    tr_context *tr;
    tr_rotation *rotation;
    size_t bytes[MOST];
    int64_t visited[MOST]; /* by block: rounds in which this member had it */
    int64_t rounds;
    int parts;       /* in which blocks are passed on */
    int fail_worker; /* in clock 1, with a block taken, of which a part has left; -1: nobody */
};

/* Blocks of different sizes; one of them has only its header. */
static size_t size_of(int block)
{
    return sizeof(struct head) + (size_t)block * 1000 + (block == 1 ? 300001 : 0);
}

static int blocks_of(const struct crew *c)
{
    return tr_rotation_depth(c->tr) * c->tr->layout.group_size;
}

static int prepare(tr_worker *me, void *state)
{
    struct crew *c = state;
    for (int b = 0; b < blocks_of(c); b++) c->bytes[b] = size_of(b);
    return tr_rotation_open(me, c->bytes, c->parts, &c->rotation);
}

static void check_visit(const struct crew *c, const tr_worker *me, int64_t round, const tr_block *block)
{
    struct head *head = block->memory;
    int depth = tr_rotation_depth(c->tr);
    int64_t before = (me->member + 1) % me->group_size;
    mpi_check(block->number == (me->member * depth + round) % blocks_of(c),
              "round %ld of member %d has block %d", round, me->member, block->number);
    mpi_equal(block->bytes, c->bytes[block->number]);
    mpi_check((uintptr_t)block->memory % 64 == 0, "block %d is not aligned", block->number);
    mpi_check(head->visits == round / depth, "block %d has been visited %ld times before round %ld",
              block->number, head->visits, round);
    if (round < depth) return;
    mpi_check(
        head->number == block->number && head->last_round == round - depth && head->last_member == before,
        "block %d comes from member %ld in round %ld", block->number, head->last_member, head->last_round);
    const unsigned char *byte = (const unsigned char *)(head + 1),
                        *end = (const unsigned char *)head + block->bytes;
    for (; byte < end; byte++)
        if (*byte != (unsigned char)head->visits) {
            mpi_check(false, "byte %td of block %d is %d in round %ld", byte - (const unsigned char *)head,
                      block->number, *byte, round);
            return;
        }
}

/* Blocks leave as they are filled. */
static void fill(const struct crew *c, const tr_block *block)
{
    enum { PIECE = 10000 };
    struct head *head = block->memory;
    for (size_t at = sizeof *head; at < block->bytes; at += PIECE) {
        memset((char *)block->memory + at, (int)head->visits, tr_min_size(PIECE, block->bytes - at));
        tr_rotation_pass(c->rotation, at);
    }
}

static int work_on(struct crew *c, const tr_worker *me, int64_t round, const tr_block *block)
{
    struct head *head = block->memory;
    check_visit(c, me, round, block);
    mpi_check(head->holder == 0, "block %d is with worker %ld too", block->number, head->holder - 1);
    head->holder = me->worker + 1;
    if (me->worker == c->fail_worker && me->clock == 1) {
        tr_rotation_pass(c->rotation, block->bytes / 2);
        return tr_fail(TR_ERR_DIVERGED, "on purpose");
    }
    head->number = block->number;
    head->last_round = round;
    head->last_member = me->member;
    head->visits++;
    head->holder = 0;
    fill(c, block);
    c->visited[block->number]++;
    c->rounds++;
    return TR_OK;
}

/* Before a clock members sum something, and look at all the blocks that they have. */
static int compute(tr_worker *me, void *state)
{
    struct crew *c = state;
    tr_block block;
    tr_sum *sum;
    double one = 1;
    TR_TRY(tr_group_sum_begin(me, &one, 1, &sum));
    TR_TRY(tr_group_sum_end(me, &sum, &one));
    if (sum) return TR_OK;
    mpi_equal(one, me->group_size);
    int depth = tr_rotation_depth(c->tr), rounds = ROTATIONS * blocks_of(c);
    for (int d = 0; d < depth; d++) {
        TR_TRY(tr_rotation_look(c->rotation, d, &block));
        mpi_check(!block.memory || block.number == me->member * depth + d, "member %d looks at block %d",
                  me->member, block.number);
    }
    for (int round = 0; round < rounds; round++) {
        TR_TRY(tr_rotation_take(c->rotation, &block));
        if (!block.memory) return TR_OK;
        TR_TRY(work_on(c, me, me->clock * rounds + round, &block));
        TR_TRY(tr_rotation_give(c->rotation));
    }
    return TR_OK;
}

static void begin(struct crew *c, const char *settings, int parts)
{
    *c = (struct crew){.tr = mpi_context(settings), .parts = parts, .fail_worker = -1};
}

static int run(struct crew *c)
{
    return tr_run(c->tr, &(tr_stage){.name = "turning",
                                     .state = c,
                                     .clocks = CLOCKS,
                                     .prepare = prepare,
                                     .compute = compute,
                                     .rotates = true});
}

/* Layouts with groups of several: in which all ranks form one group, on one node and on nodes of two, and others. (Blocks go
 * whole in the first, in two parts in the next, and in three.) */
static bool settings_of(int i, char *settings, size_t size)
{
    static const char *const ways[] = {"auto", "travel"};
    char whole[96];
    snprintf(whole, sizeof whole, "ranks.layout=colocated ranks.groups=1 ranks.group_size=%d%s",
             mpi_test.size, i / 2 == 1 ? " ranks.node_size=2" : "");
    const char *layout = i / 2 < 2 ? whole : mpi_layout(i / 2 - 2);
    if (!layout) return false;
    snprintf(settings, size, "%s table.rotate=%s", layout, ways[i % 2]);
    return true;
}

MPI_CASE(every_slave_has_every_block_once_in_a_rotation)
{
    char settings[MPI_NOTE];
    for (int i = 0; settings_of(i, settings, sizeof settings); i++) {
        struct crew c;
        begin(&c, settings, 1 + i % 3);
        commands = 0;
        mpi_ok(run(&c));
        mpi_equal(commands, 0);
        int members = c.tr->layout.group_size, blocks = blocks_of(&c);
        if (tr_is(c.tr, TR_SLAVE)) {
            const char *way = tr_rotation_way(c.rotation);
            for (int b = 0; b < blocks; b++)
                mpi_check(c.visited[b] == CLOCKS * ROTATIONS, "block %d was here %ld times", b, c.visited[b]);
            mpi_equal(c.rounds, CLOCKS * ROTATIONS * blocks);
            mpi_check(members > 1 || strcmp(way, "alone") == 0, "a group of one: %s", way);
            mpi_check(members == 1 || i % 2 == 0 || strcmp(way, "travel") == 0, "%s", way);
            mpi_check(members == 1 || i % 2 == 1 || c.tr->layout.nodes > 1 || strcmp(way, "share") == 0, "%s",
                      way);
        }
        tr_rotation_close(&c.rotation);
        mpi_ok(tr_close(c.tr));
    }
}

MPI_CASE(a_member_that_fails_with_a_block_leaves_nobody_waiting)
{
    char settings[MPI_NOTE];
    for (int i = 0; settings_of(i, settings, sizeof settings); i++) {
        struct crew c;
        begin(&c, settings, 1 + i % 3);
        c.fail_worker = tr_layout_workers(&c.tr->layout) - 1;
        int status = run(&c);
        mpi_equal(status, TR_ERR_DIVERGED);
        tr_rotation_close(&c.rotation);
        mpi_check(tr_close(c.tr) == TR_ERR_DIVERGED, "the context forgot that");
    }
}

MPI_CASE(sharing_across_nodes_is_refused)
{
    if (mpi_test.size < 2) return;
    const char *settings = mpi_text(
        "ranks.layout=colocated ranks.groups=1 ranks.group_size=%d ranks.node_size=1 table.rotate=share",
        mpi_test.size);
    struct crew c;
    begin(&c, settings, 1);
    int status = run(&c);
    mpi_equal(status, TR_ERR_CONFIG);
    tr_rotation_close(&c.rotation);
    mpi_check(tr_close(c.tr) == TR_ERR_CONFIG, "the context forgot that");
}

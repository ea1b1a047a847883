/* Groups: rounds and commands, sums inside a group, how failures end a stage, and that two hosts send to each other at the same time. */
#include "mpi_unit.h"

#include <inttypes.h>

#include "trireme/collective.h"

enum { CLOCKS = 4, ROUNDS = 3, KEYS = 90 };

struct crew {
    tr_context *tr;
    tr_table *table;
    tr_view *view;
    tr_key key[KEYS];
    size_t n;
    int rounds_seen, turns;
    int fail_worker; /* returns an error in this round of clock 1; -1: nobody */
    bool fail_before_pull;
};

static const char *group_layout(int i)
{
    const char *layout;
    for (int k = 0; (layout = mpi_layout(k)); k++)
        if ((strstr(layout, "group_size") || k == 0) && i-- == 0) return layout;
    return NULL;
}

static void begin(struct crew *c, const char *settings)
{
    *c = (struct crew){.tr = mpi_context(settings), .fail_worker = -1};
    mpi_ok(tr_table_create(c->tr, "w", TR_I32, 1, KEYS, &c->table));
}

static void end(struct crew *c)
{
    tr_view_close(&c->view);
    mpi_ok(tr_close(c->tr));
}

static int open_shared(tr_worker *me, void *state)
{
    struct crew *c = state;
    for (tr_key k = (tr_key)me->group % 2; k < KEYS; k += 2) c->key[c->n++] = k; /* of the group */
    return tr_view_open(c->table, c->key, c->n, TR_VIEW_GROUP, &c->view);
}

static int open_own(tr_worker *me, void *state)
{
    struct crew *c = state;
    for (tr_key k = (tr_key)me->member; k < KEYS; k += (tr_key)me->group_size) c->key[c->n++] = k;
    return tr_view_open(c->table, c->key, c->n, TR_VIEW_UPDATE, &c->view);
}

/* Commands say whom they are for and when. */
static int schedule(tr_worker *me, void *state, tr_command *commands, bool *again)
{
    struct crew *c = state;
    mpi_equal(me->member, 0);
    mpi_check(me->round == c->turns++ % (ROUNDS + 1), "round %d is scheduled in turn %d", me->round,
              c->turns);
    for (int m = 0; m < me->group_size; m++)
        commands[m] = (tr_command){{me->group, m, me->clock, me->round, 7, 8, 9, 10}};
    *again = me->round < ROUNDS;
    return TR_OK;
}

/* All members add 1 to all keys of the group in each round. */
static int round_of_all(tr_worker *me, void *state)
{
    struct crew *c = state;
    const int64_t *word = me->command.word;
    mpi_check(word[0] == me->group && word[1] == me->member && word[2] == me->clock && word[3] == me->round &&
                  word[7] == 10,
              "member %d of group %d in clock %ld, round %d: command %ld %ld %ld %ld", me->member, me->group,
              me->clock, me->round, word[0], word[1], word[2], word[3]);
    mpi_equal(c->rounds_seen, me->clock * ROUNDS + me->round);
    c->rounds_seen++;
    if (me->round == 0) TR_TRY(tr_view_pull(c->view));
    double sum[2] = {me->round, me->worker};
    TR_TRY(tr_group_sum(me, sum, 2));
    double first = me->group * me->group_size, size = me->group_size;
    mpi_equal(sum[0], me->round * me->group_size);
    mpi_equal(sum[1], size * first + size * (size - 1) / 2);
    int sharers = 0; /* groups with the same keys */
    for (int g = 0; g < me->groups; g++) sharers += g % 2 == me->group % 2;
    for (size_t i = 0; i < c->n; i++) {
        int32_t value = ((const int32_t *)c->view->value)[i];
        mpi_check(value == me->clock * ROUNDS * sharers * me->group_size, "clock %ld key %zu: %d", me->clock,
                  i, (int)value);
        ((int32_t *)c->view->delta)[i] += 1;
    }
    return me->round == ROUNDS - 1 && me->clock % 2 ? tr_view_push(c->view) : TR_OK;
}

MPI_CASE(rounds_reach_all_members_and_sum_once)
{
    static const char *const ways[] = {"table.push=merge", "table.push=message table.route=request",
                                       "table.push=accumulate"};
    for (int i = 0; group_layout(i); i++)
        for (size_t way = 0; way < 3; way++) {
            const char *settings = mpi_text("%s %s", group_layout(i), ways[way]);
            struct crew c;
            begin(&c, settings);
            mpi_ok(tr_run(c.tr, &(tr_stage){.name = "rounds",
                                            .state = &c,
                                            .clocks = CLOCKS,
                                            .prepare = open_shared,
                                            .compute = round_of_all,
                                            .schedule = schedule}));
            if (tr_is(c.tr, TR_SLAVE)) mpi_equal(c.rounds_seen, CLOCKS * ROUNDS);
            end(&c);
        }
}

/* Vertical: each member pulls and pushes keys of its own. */
static int own_keys(tr_worker *me, void *state)
{
    struct crew *c = state;
    TR_TRY(tr_view_pull(c->view));
    for (size_t i = 0; i < c->n; i++) {
        int32_t value = ((const int32_t *)c->view->value)[i],
                wanted = (int32_t)me->clock * me->groups * (me->member + 1);
        mpi_check(value == wanted, "clock %ld key %zu: %d, not %d", me->clock, i, (int)value, (int)wanted);
        ((int32_t *)c->view->delta)[i] = me->member + 1;
    }
    return tr_view_push(c->view);
}

MPI_CASE(vertical_members_push_their_own_keys)
{
    for (int i = 0; group_layout(i); i++) {
        struct crew c;
        begin(&c, group_layout(i));
        mpi_ok(tr_run(c.tr, &(tr_stage){.name = "vertical",
                                        .state = &c,
                                        .clocks = CLOCKS,
                                        .prepare = open_own,
                                        .compute = own_keys}));
        end(&c);
    }
}

/* ---- failures ---- */

static int failing(tr_worker *me, void *state)
{
    struct crew *c = state;
    bool fails = me->worker == c->fail_worker && me->clock == 1 && me->round == 0;
    if (fails && c->fail_before_pull) return tr_fail(TR_ERR_DIVERGED, "worker %d fails early", me->worker);
    TR_TRY(tr_view_pull(c->view));
    if (fails) return tr_fail(TR_ERR_DIVERGED, "worker %d fails late", me->worker);
    for (size_t i = 0; i < c->n; i++) ((int32_t *)c->view->delta)[i] += 1;
    return me->round == 0 ? tr_view_push(c->view) : TR_OK;
}

static int schedule_one(tr_worker *me, void *state, tr_command *commands, bool *again)
{
    *again = me->round < 1;
    return TR_OK;
}

/* All ranks return the status of the rank that failed, and stay alive. */
static int prepare_failing(tr_worker *me, void *state)
{
    struct crew *c = state;
    if (me->worker == c->fail_worker) return tr_fail(TR_ERR_DATA, "worker %d is not prepared", me->worker);
    return open_shared(me, state);
}

MPI_CASE(a_failure_to_prepare_leaves_nobody_waiting)
{
    if (mpi_test.rank == 0 && !freopen("/dev/null", "w", stderr)) return; /* the errors are wanted */
    for (int i = 0; group_layout(i); i++)
        for (int last = 0; last < 2; last++) {
            struct crew c;
            begin(&c, group_layout(i));
            c.fail_worker = last ? tr_layout_workers(&c.tr->layout) - 1 : 0;
            int status = tr_run(c.tr, &(tr_stage){.name = "unprepared",
                                                  .state = &c,
                                                  .clocks = CLOCKS,
                                                  .prepare = prepare_failing,
                                                  .compute = failing});
            mpi_equal(status, TR_ERR_DATA);
            tr_view_close(&c.view);
            mpi_check(tr_close(c.tr) == TR_ERR_DATA, "the context forgot that");
        }
}

MPI_CASE(a_failure_ends_the_stage_on_all_ranks)
{
    if (mpi_test.rank == 0 && !freopen("/dev/null", "w", stderr)) return; /* the errors are wanted */
    for (int i = 0; group_layout(i); i++)
        for (int kind = 0; kind < 12; kind++) {
            const char *settings = mpi_text("%s sync.mode=%s", group_layout(i), mpi_modes[kind % 3]);
            struct crew c;
            begin(&c, settings);
            c.fail_worker =
                tr_layout_workers(&c.tr->layout) - (kind % 2 ? 1 : tr_layout_workers(&c.tr->layout));
            c.fail_before_pull = kind / 2 % 2;
            int status = tr_run(c.tr, &(tr_stage){.name = "failing",
                                                  .state = &c,
                                                  .clocks = CLOCKS,
                                                  .prepare = open_shared,
                                                  .compute = failing,
                                                  .schedule = kind >= 6 ? schedule_one : NULL});
            mpi_equal(status, TR_ERR_DIVERGED);
            tr_view_close(&c.view);
            mpi_check(tr_close(c.tr) == TR_ERR_DIVERGED, "the context forgot that");
        }
}

/* Each member writes its number, and sees everybody's; where a group is of two nodes there is no such memory. */
MPI_CASE(members_of_a_group_share_memory)
{
    for (int i = 0; group_layout(i); i++) {
        tr_context *tr = mpi_context(group_layout(i));
        tr_set_memory *memory = NULL;
        int member = tr_set_rank(tr, TR_SET_GROUP), members = tr_set_size(tr, TR_SET_GROUP);
        if (member >= 0) {
            int status = tr_set_memory_open(tr, TR_SET_GROUP, (size_t)members * sizeof(int), &memory);
            mpi_check(status == TR_OK || status == TR_ERR_CONFIG, "status %d", status);
        }
        if (memory) {
            int *number = tr_set_memory_at(memory);
            mpi_equal(number[member], 0);
            for (int round = 1; round <= 100; round++) {
                number[member] = member + round;
                mpi_ok(tr_set_memory_meet(memory));
                for (int m = 0; m < members; m++)
                    mpi_check(number[m] == m + round, "%d of member %d", number[m], m);
                mpi_ok(tr_set_memory_meet(memory));
            }
        }
        tr_set_memory_close(&memory);
        mpi_check(memory == NULL, "not closed");
        mpi_ok(tr_close(tr));
    }
}

/* A memory of a node: each rank has a number in it. */
static tr_set_memory *open_numbers(tr_context *tr, size_t bytes)
{
    tr_set_memory *memory = NULL;
    mpi_ok(tr_set_memory_open(tr, TR_SET_NODE, bytes, &memory));
    const int *number = tr_set_memory_at(memory);
    for (int m = 0; m < tr_set_size(tr, TR_SET_NODE); m++) mpi_equal(number[m], 0);
    mpi_ok(tr_set_memory_meet(memory));
    return memory;
}

static void check_numbers(tr_context *tr, tr_set_memory *memory, int base)
{
    const int *number = tr_set_memory_at(memory);
    for (int m = 0; m < tr_set_size(tr, TR_SET_NODE); m++) mpi_equal(number[m], base + m);
}

/* Small ones are slots of one window, of which there are fewer than there is memory here; large ones are between them. */
MPI_CASE(memories_do_not_meet_each_other_and_begin_with_zeros)
{
    enum { MEMORIES = 24, LARGE = 1 << 20, TURNS = 3 };
    tr_context *tr = mpi_context("ranks.node_size=3");
    tr_set_memory *memory[MEMORIES];
    int me = tr_set_rank(tr, TR_SET_NODE);
    for (int i = 0; i < MEMORIES; i++) memory[i] = open_numbers(tr, i % 5 == 4 ? LARGE : 1000);
    for (int turn = 1; turn <= TURNS; turn++) {
        for (int i = 0; i < MEMORIES; i++)
            ((int *)tr_set_memory_at(memory[i]))[me] = turn * 1000 + i * 10 + me;
        for (int i = 0; i < MEMORIES; i++) mpi_ok(tr_set_memory_meet(memory[i]));
        for (int i = 0; i < MEMORIES; i++) check_numbers(tr, memory[i], turn * 1000 + i * 10);
        for (int i = 0; i < MEMORIES; i++) mpi_ok(tr_set_memory_meet(memory[i]));
        for (int i = turn % 2; i < MEMORIES; i += 2) tr_set_memory_close(&memory[i]);
        for (int i = 1 - turn % 2; i < MEMORIES; i += 2) check_numbers(tr, memory[i], turn * 1000 + i * 10);
        for (int i = turn % 2; i < MEMORIES; i += 2) memory[i] = open_numbers(tr, 500);
    }
    for (int i = 0; i < MEMORIES; i++) tr_set_memory_close(&memory[i]);
    mpi_ok(tr_close(tr));
}

/* ---- between hosts ---- */

/* Bytes that this host has sent, or has received, through the network of tools/hosts. */
static uint64_t bytes_through_network(bool sent)
{
    char line[512];
    uint64_t received = 0, out = 0;
    FILE *file = fopen("/proc/self/net/dev", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " eth0: %" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &received, &out) == 2)
            break;
    if (file) fclose(file);
    return sent ? out : received;
}

/* How many bytes of its own message the last rank has sent when that of the first one, of which some was here before, is there. */
static uint64_t leave_meanwhile(int other, size_t bytes, size_t some)
{
    int done = 0;
    char *mine = calloc(1, bytes), *theirs = calloc(1, bytes);
    MPI_Request received, sent;
    uint64_t before_in = bytes_through_network(false), before_out = bytes_through_network(true);
    MPI_Irecv(theirs, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &received);
    while (mpi_test.rank > other && !done && bytes_through_network(false) - before_in < some)
        MPI_Test(&received, &done, MPI_STATUS_IGNORE);
    MPI_Isend(mine, (int)bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &sent);
    while (!done) MPI_Test(&received, &done, MPI_STATUS_IGNORE);
    uint64_t out = bytes_through_network(true) - before_out;
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    TR_FREE_ALL(mine, theirs);
    return out;
}

/* If a long message waits for an answer of its receiver, and this answer waits behind the receiver's own long message, then one
 * message is complete before the other starts, in every round. Otherwise this may happen on a loaded machine, but not always. */
MPI_CASE(long_messages_go_both_ways_at_once)
{
    enum { BYTES = 1 << 25, SOME = 1 << 20, TRIES = 8 };
    int last = mpi_test.size - 1;
    uint64_t most = 0;
    if (!getenv("SLOW_LINK"))
        return; /* on a link as fast as memory one call may send everything before an answer arrives */
    for (int i = 0; i < TRIES; i++) {
        uint64_t out = 0;
        if (mpi_test.rank == 0) leave_meanwhile(last, BYTES, SOME);
        if (mpi_test.rank == last) out = leave_meanwhile(0, BYTES, SOME);
        if (out > most) most = out;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    mpi_check(mpi_test.rank != last || most > BYTES / 4,
              "%" PRIu64 " of %d bytes at most have left when the other's are here", most, (int)BYTES);
}

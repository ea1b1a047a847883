/* Merging between nodes in rounds: the number of messages, and whether the new values come back with them (test_tables.c and
 * test_clocks.c check the sums); rows that follow merges; and collective calls in rounds. */
#include "mpi_unit.h"

#include "table/table.h"
#include "table/view.h"
#include "trireme/collective.h"
#include "trireme/table.h"

enum { KEYS = 700, CLOCKS = 20, COUNTED_FROM = 6, SMALLEST = 64 };

static long sent, sent_bytes; /* messages of this rank with values in them */

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int size;
    MPI_Type_size(type, &size);
    if (n * size >= SMALLEST) sent++, sent_bytes += n * size;
    return PMPI_Isend(from, n, type, to, tag, comm, request);
}

struct trial {
    tr_table *table;
    tr_view *view;
    int every;    /* clocks: from one update to the next */
    bool lazy;    /* one worker does not read in odd clocks */
    int brought;  /* clocks whose values had come with the merge of the one before */
    long counted; /* of sent, when counting began */
};

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    return mpi_open_view(t->table, TR_VIEW_UPDATE, &t->view);
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    if (me->clock == COUNTED_FROM) t->counted = sent;
    t->brought += t->view->state->merged_for == me->clock;
    if (me->clock % t->every > 0) return TR_OK;
    if (!t->lazy || me->worker > 0 || me->clock % 2 == 0) {
        TR_TRY(tr_view_pull(t->view));
        const int64_t *value = t->view->value;
        for (size_t i = 0; i < KEYS; i++)
            mpi_check(value[i] == me->clock / t->every * me->workers * (int64_t)i,
                      "clock %ld: key %zu is %ld", me->clock, i, value[i]);
    }
    for (size_t i = 0; i < KEYS; i++) ((int64_t *)t->view->delta)[i] = (int64_t)i;
    return tr_view_push(t->view);
}

/* Messages of all ranks in a clock. */
static double run_trial(const char *merge, struct trial *t)
{
    tr_context *tr = mpi_context(mpi_text("ranks.node_size=1 table.merge=%s", merge));
    mpi_ok(tr_table_create(tr, "t", TR_I64, 1, KEYS, &t->table));
    tr_table_update_every(t->table, t->every, 0);
    mpi_ok(tr_run(
        tr,
        &(tr_stage){.name = "trial", .state = t, .clocks = CLOCKS, .prepare = prepare, .compute = compute}));
    int64_t all = sent - t->counted;
    mpi_ok(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &all, 1));
    tr_view_close(&t->view);
    mpi_ok(tr_close(tr));
    return (double)all / (CLOCKS - COUNTED_FROM);
}

/* Up and down, a message in each round: the ranks are halved until they are alone. */
MPI_CASE(rounds_take_few_messages)
{
    struct trial direct = {.every = 1}, rounds = {.every = 1};
    double size = mpi_test.size, levels = 0;
    while (1 << (int)levels < mpi_test.size) levels++;
    double each = run_trial("direct", &direct);
    mpi_equal(each, 2 * size * (size - 1));
    each = run_trial("rounds", &rounds);
    mpi_check(each <= 2 * size * levels, "rounds: %g messages", each);
    if (mpi_test.size > 1) mpi_equal(rounds.brought, CLOCKS - 1);
}

/* Values come back only if all workers have read the keys that they push. */
MPI_CASE(what_one_does_not_read_comes_to_none)
{
    struct trial lazy = {.every = 1, .lazy = true};
    run_trial("rounds", &lazy);
    if (mpi_test.size > 1) mpi_equal(lazy.brought, CLOCKS / 2);
}

/* Clocks without updates take no messages, and what came before is still what the next update's clock reads. */
MPI_CASE(merges_leave_clocks_without_updates_out)
{
    struct trial second = {.every = 2};
    double size = mpi_test.size, updates = (CLOCKS - COUNTED_FROM) / 2;
    double each = run_trial("direct", &second);
    mpi_equal(each, updates * 2 * size * (size - 1) / (CLOCKS - COUNTED_FROM));
}

/* ---- rows that workers subscribe to ---- */

enum { ROWS = 300, WIDTH = 8 };

struct subscribed {
    tr_table *table;
    tr_view *view;
    int64_t every, first;
    tr_key own[ROWS], wanted[ROWS];
    size_t n, wants, came;
    int64_t clock, asked; /* messages of this worker to servers, before */
};

/* Each worker changes rows of its own, and reads two thirds of all, others than the other workers. */
static int subscribe(tr_worker *me, void *state)
{
    struct subscribed *s = state;
    for (tr_key r = 0; r < ROWS; r++) {
        if (r % (tr_key)me->workers == (tr_key)me->worker) s->own[s->n++] = r;
        if (tr_mix(r * 64 + (tr_key)me->worker) % 3 > 0) s->wanted[s->wants++] = r;
    }
    TR_TRY(tr_rows_subscribe(s->table, s->wanted, s->wants));
    mpi_check(tr_rows_subscribe(s->table, s->wanted, s->wants) == TR_ERR_INTERNAL, "subscribed twice");
    return tr_view_open(s->table, s->own, s->n, TR_VIEW_UPDATE, &s->view);
}

/* Updates of clocks before this one. */
static int64_t updates_before(const struct subscribed *s, int64_t clock)
{
    return (clock + s->every - 1 - s->first) / s->every;
}

static int check_row(void *state, const tr_row *row)
{
    struct subscribed *s = state;
    float wanted = (float)(updates_before(s, s->clock) * (int64_t)(row->key + 1));
    mpi_check(row->place < s->wants && row->key == s->wanted[row->place], "place %zu", row->place);
    for (size_t k = 0; k < WIDTH; k++)
        mpi_check(((const float *)row->value)[k] == wanted, "clock %ld: row %lu is %g, not %g", s->clock,
                  row->key, (double)((const float *)row->value)[k], (double)wanted);
    s->came++;
    return TR_OK;
}

static int read_and_update(tr_worker *me, void *state)
{
    struct subscribed *s = state;
    bool updates = (me->clock - s->first) % s->every == 0;
    s->clock = me->clock;
    s->came = 0;
    if (me->clock == s->first + 1) s->asked = (int64_t)me->tr->tables->traffic.messages;
    TR_TRY(tr_rows_pull(s->table, s->wanted, s->wants, check_row, s));
    mpi_equal(s->came, s->wants);
    if (!updates) {
        if (s->table->merge)
            mpi_check(tr_view_push(s->view) == TR_ERR_INTERNAL, "pushed in a clock without updates");
        return TR_OK;
    }
    for (size_t i = 0; i < s->n * WIDTH; i++) ((float *)s->view->delta)[i] = (float)(s->own[i / WIDTH] + 1);
    return tr_view_push(s->view);
}

/* Messages of one worker to servers from the first update on: none, as nothing is asked for and nothing is pushed by message. */
static void run_subscribed(const char *settings, int64_t every, int64_t first)
{
    struct subscribed s = {.every = every, .first = first};
    tr_context *tr = mpi_context(settings);
    mpi_ok(tr_table_create(tr, "t", TR_F32, ROWS, WIDTH, &s.table));
    tr_table_update_every(s.table, every, first);
    mpi_ok(tr_run(tr, &(tr_stage){.name = "trial",
                                  .state = &s,
                                  .clocks = CLOCKS,
                                  .prepare = subscribe,
                                  .compute = read_and_update}));
    mpi_check(tr->tables->traffic.messages == (uint64_t)s.asked, "%s: %d messages to servers", settings,
              (int)((int64_t)tr->tables->traffic.messages - s.asked));
    tr_view_close(&s.view);
    mpi_ok(tr_close(tr));
}

MPI_CASE(subscribed_rows_come_unasked)
{
    for (int i = 0; mpi_layout(i); i++)
        for (int64_t every = 1; every <= 2; every++) run_subscribed(mpi_layout(i), every, every - 1);
    run_subscribed("ranks.node_size=1 table.merge=rounds", 2, 0);
    run_subscribed("ranks.node_size=1 table.merge=direct", 1, 0);
}

/* Member i gets i % 3 × 50 sums over the members; member m contributes (m + 1) × position. */
MPI_CASE(sums_are_scattered_and_parts_gathered)
{
    tr_context *tr = mpi_context("ranks.node_size=1");
    size_t size = (size_t)mpi_test.size, me = (size_t)mpi_test.rank, n = 0, first = 0;
    size_t counts[64];
    int64_t values[64 * 100], sum[100];
    for (size_t i = 0; i < size; n += counts[i++]) {
        counts[i] = i % 3 * 50;
        if (i < me) first += counts[i];
    }
    for (size_t i = 0; i < n; i++) values[i] = (int64_t)((me + 1) * i);
    long before = sent, levels = 0;
    while (1 << levels < mpi_test.size) levels++;
    mpi_ok(tr_reduce_scatter(tr, TR_SET_ALL, TR_I64, values, counts, sum));
    for (size_t i = 0; i < counts[me]; i++)
        mpi_check(sum[i] == (int64_t)(size * (size + 1) / 2 * (first + i)), "sum %zu is %ld", i, sum[i]);
    mpi_check(sent - before <= levels, "%ld messages", sent - before);
    int64_t all[64 * 8], mine[8];
    for (int i = 0; i < 8; i++) mine[i] = 10 * (int64_t)me + i;
    before = sent;
    mpi_ok(tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all));
    for (size_t i = 0; i < 8 * size; i++)
        mpi_check(all[i] == (int64_t)(i / 8 * 10 + i % 8), "number %zu is %ld", i, all[i]);
    mpi_check(sent - before <= 2 * levels, "%ld messages tell all", sent - before);
    mpi_ok(tr_close(tr));
}

/* A sum of many numbers goes in parts, which all members make at the same time: nobody sends more than twice all, in the mean less;
 * up and down a tree, one sends all to several. */
MPI_CASE(long_sums_go_in_parts)
{
    enum { N = 20001 };
    tr_context *tr = mpi_context("ranks.node_size=1");
    double *values, size = mpi_test.size;
    mpi_ok(TR_NEW(&values, N));
    for (int i = 0; i < N; i++) values[i] = (mpi_test.rank + 1) * (double)i;
    long before = sent_bytes;
    mpi_ok(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, values, N));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += values[i] != size * (size + 1) / 2 * i;
    mpi_check(wrong == 0, "%d sums of %d", wrong, N);
    int64_t all = sent_bytes - before;
    mpi_ok(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &all, 1));
    if (mpi_test.size > 1)
        mpi_check(all > 0 && all <= (int64_t)(2 * (size - 1) * N * sizeof *values), "%ld bytes", all);
    free(values);
    mpi_ok(tr_close(tr));
}

/* Few bytes for many ranks: rounds. Many that no two ranks have in common: direct, since rounds would send them several times. */
MPI_CASE(the_degree_follows_messages_and_bytes)
{
    int few = tr_merge_choose_degree(64, 64 * 1000., 1000, 4), many = tr_merge_choose_degree(8, 8e6, 8e7, 4);
    mpi_check(few < 64, "degree %d for 64 ranks that all have 1000 keys", few);
    mpi_equal(many, 8);
    mpi_check(tr_merge_choose_degree(2, 10, 10, 4) == 2, "two ranks have one round");
}

/* Merging between nodes in rounds: how many messages that takes, and whether the new values come back with it (what is merged is
 * checked by test_tables.c and test_clocks.c); and collective calls that go in rounds. */
#include "mpi_unit.h"

#include "table/rounds.h"
#include "table/view.h"
#include "trireme/collective.h"

enum { KEYS = 700, CLOCKS = 20, COUNTED_FROM = 5, SMALLEST = 64 };

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
    bool lazy;    /* one worker does not read in odd clocks */
    int brought;  /* clocks whose values had come with the merge of the one before */
    long counted; /* of sent, when counting began */
};

static int prepare(tr_worker *me, void *state)
{
    struct trial *t = state;
    (void)me;
    tr_key keys[KEYS];
    for (size_t i = 0; i < KEYS; i++) keys[i] = i;
    return tr_view_open(t->table, keys, KEYS, TR_VIEW_UPDATE, &t->view);
}

static int compute(tr_worker *me, void *state)
{
    struct trial *t = state;
    if (me->clock == COUNTED_FROM) t->counted = sent;
    t->brought += t->view->state->merged_for == me->clock;
    if (!t->lazy || me->worker > 0 || me->clock % 2 == 0) {
        TR_TRY(tr_view_pull(t->view));
        const int64_t *value = t->view->value;
        for (size_t i = 0; i < KEYS; i++)
            mpi_check(value[i] == me->clock * me->workers * (int64_t)i, "clock %lld: key %zu is %lld",
                      (long long)me->clock, i, (long long)value[i]);
    }
    for (size_t i = 0; i < KEYS; i++) ((int64_t *)t->view->delta)[i] = (int64_t)i;
    return tr_view_push(t->view);
}

/* Messages of all ranks in a clock. */
static double run_trial(const char *merge, struct trial *t)
{
    char settings[MPI_NOTE];
    snprintf(settings, sizeof settings, "ranks.node_size=1 table.merge=%s", merge);
    tr_context *tr = mpi_context(settings);
    mpi_ok(tr_table_create(tr, "t", TR_I64, 1, KEYS, &t->table));
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
    struct trial direct = {0}, rounds = {0};
    double size = mpi_test.size, levels = 0;
    while (1 << (int)levels < mpi_test.size) levels++;
    double each = run_trial("direct", &direct);
    mpi_check(each == 2 * size * (size - 1), "direct: %g messages", each);
    each = run_trial("rounds", &rounds);
    mpi_check(each <= 2 * size * levels, "rounds: %g messages", each);
    if (mpi_test.size > 1)
        mpi_check(rounds.brought == CLOCKS - 1, "%d clocks brought values", rounds.brought);
}

/* Values come only where all workers have read what they push to. */
MPI_CASE(what_one_does_not_read_comes_to_none)
{
    struct trial lazy = {.lazy = true};
    run_trial("rounds", &lazy);
    if (mpi_test.size > 1) mpi_check(lazy.brought == CLOCKS / 2, "%d clocks brought values", lazy.brought);
}

/* Member i gets i % 3 × 50 numbers, sums of what the members have: their number + 1, times where it lies. */
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
        mpi_check(sum[i] == (int64_t)(size * (size + 1) / 2 * (first + i)), "sum %zu is %lld", i,
                  (long long)sum[i]);
    mpi_check(sent - before <= levels, "%ld messages", sent - before);
    int64_t all[64 * 8], mine[8];
    for (int i = 0; i < 8; i++) mine[i] = 10 * (int64_t)me + i;
    before = sent;
    mpi_ok(tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all));
    for (size_t i = 0; i < 8 * size; i++)
        mpi_check(all[i] == (int64_t)(i / 8 * 10 + i % 8), "number %zu is %lld", i, (long long)all[i]);
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
        mpi_check(all > 0 && all <= (int64_t)(2 * (size - 1) * N * sizeof *values), "%lld bytes",
                  (long long)all);
    free(values);
    mpi_ok(tr_close(tr));
}

/* Few bytes for many ranks: rounds. Many that no two ranks have in common: direct, since rounds would send them several times. */
MPI_CASE(the_degree_follows_messages_and_bytes)
{
    int few = tr_rounds_choose_degree(64, 64 * 1000., 1000, 4),
        many = tr_rounds_choose_degree(8, 8e6, 8e7, 4);
    mpi_check(few < 64, "degree %d for 64 ranks that all have 1000 keys", few);
    mpi_check(many == 8, "degree %d for 8 ranks of a million keys each among 80 million", many);
    mpi_check(tr_rounds_choose_degree(2, 10, 10, 4) == 2, "two ranks have one round");
}

MPI_MAIN(&the_degree_follows_messages_and_bytes, &sums_are_scattered_and_parts_gathered,
         &long_sums_go_in_parts, &rounds_take_few_messages, &what_one_does_not_read_comes_to_none)

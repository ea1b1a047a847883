#include "unit.h"

#include "stage/scheduler.h"

/* ---- short words for the cases ---- */

static struct tr_schedule *s;

static void close_schedule(void)
{
    tr_schedule_close(s);
}

UNIT_FIXTURE(NULL, close_schedule)

/* `nodes` nodes of `ranks_each` ranks; tasks that want `wanted[i]` ranks, or all if `wanted` is NULL, on data of their
 * own. */
static void open_nodes(int nodes, int ranks_each, int tasks, const int *wanted)
{
    int node_of[256];
    for (int rank = 0; rank < nodes * ranks_each; rank++) node_of[rank] = rank / ranks_each;
    ck_ok(tr_schedule_open(nodes * ranks_each, node_of, (size_t)tasks, &s));
    for (int i = 0; i < tasks; i++) {
        s->task[i].wanted = wanted ? wanted[i] : 0;
        s->task[i].data = i;
    }
}

#define WANT(...)                                                                                            \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[])                                         \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

static void expect_nothing(double now)
{
    int task;
    ck_assert(!tr_schedule_next(s, now, &task));
}

/* It runs, on `ranks` ranks. */
static void expect_run(double now, int task, int ranks)
{
    int got, n = 0;
    ck_assert(tr_schedule_next(s, now, &got));
    ck_assert_int_eq(got, task);
    ck_assert_int_eq(s->task[task].state, TR_TASK_RUNNING);
    ck_assert_int_eq(s->task[task].ranks, ranks);
    ck_assert_double_eq(s->task[task].begin, now);
    for (int rank = 0; rank < s->ranks; rank++) n += s->owner[rank] == task;
    ck_assert_int_eq(n, ranks);
}

/* The ranks of that task are these. */
static void expect_ranks(double now, int task, int n, const int *rank)
{
    expect_run(now, task, n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(s->owner[rank[i]], task);
}

static void expect_drop(double now, int task, int because)
{
    int got;
    ck_assert(tr_schedule_next(s, now, &got));
    ck_assert_int_eq(got, task);
    ck_assert_int_eq(s->task[task].state, TR_TASK_DROPPED);
    ck_assert_int_eq(s->task[task].because, because);
}

static void comes_after(int task, int n, const int *before)
{
    s->task[task].after = before;
    s->task[task].after_count = (size_t)n;
}

/* ---- where ---- */

UNIT_CASE(small_tasks_are_packed_on_one_node_and_rank_0_is_the_last)
{
    open_nodes(3, 4, WANT(3, 2, 1, 6, 4));
    expect_ranks(0, 0, WANT(11, 10, 9));
    expect_ranks(0, 1, WANT(7, 6));
    expect_ranks(0, 2, WANT(8));
    expect_ranks(0, 3, WANT(3, 2, 1, 0, 5, 4)); /* does not fit on one: a whole node and the rest */
    expect_nothing(0);
    tr_schedule_ended(s, 0, false, 1);
    expect_nothing(1);
    tr_schedule_ended(s, 2, false, 2);
    expect_ranks(2, 4, WANT(8, 9, 10, 11));
}

UNIT_CASE(ranks_may_lie_on_nodes_in_any_order)
{
    static const int node_of[6] = {0, 1, 0, 1, 0, 2};
    ck_ok(tr_schedule_open(6, node_of, 2, &s));
    s->task[0].wanted = 2;
    s->task[1].wanted = 3;
    s->task[1].data = 1;
    expect_ranks(0, 0, WANT(3, 1));
    expect_ranks(0, 1, WANT(4, 2, 0));
}

UNIT_CASE(tasks_on_the_same_files_go_to_the_same_node)
{
    open_nodes(3, 2, WANT(2, 2, 1, 1, 1));
    s->task[3].data = s->task[4].data = 1;
    expect_ranks(0, 0, WANT(5, 4));
    expect_ranks(0, 1, WANT(3, 2));
    expect_ranks(0, 2, WANT(1));
    tr_schedule_ended(s, 0, false, 1);
    expect_ranks(1, 3, WANT(5)); /* that of task 1 is full: the first with room */
    tr_schedule_ended(s, 1, false, 2);
    expect_ranks(2, 4, WANT(4)); /* where the data was last */
}

UNIT_CASE(of_equal_tasks_the_one_goes_first_whose_data_are_there)
{
    open_nodes(1, 3, WANT(1, 1, 1, 1, 1, 1, 1));
    for (int task = 3; task < 6; task++) s->task[task].data = task - 3; /* folds of the next setting */
    s->task[6].data = 1;
    s->task[6].priority = -1;
    for (int task = 0; task < 3; task++) expect_ranks(0, task, WANT(2 - task));
    tr_schedule_ended(s, 1, false, 1);
    expect_ranks(1, 4, WANT(1)); /* not the first that waits */
    tr_schedule_ended(s, 2, false, 2);
    tr_schedule_ended(s, 0, false, 2);
    expect_ranks(2, 3, WANT(2));
    expect_ranks(2, 5, WANT(0));
    tr_schedule_ended(s, 5, false, 3);
    expect_ranks(3, 6, WANT(0));
}

UNIT_CASE(a_task_may_take_all_that_are_free)
{
    open_nodes(2, 4, WANT(3, 0, 0));
    expect_ranks(0, 0, WANT(7, 6, 5));
    expect_ranks(0, 1, WANT(4, 3, 2, 1, 0));
    expect_nothing(0);
    tr_schedule_ended(s, 0, false, 1);
    expect_run(1, 2, 3);
}

UNIT_CASE(places_are_chosen_by_when_they_were_used)
{
    static const int64_t last[] = {3, 1, 4, 1};
    ck_assert_int_eq(tr_choose_place(last, NULL, 4, 1, true), 1);
    ck_assert_int_eq(tr_choose_place(last, NULL, 4, 1, false), 2);
    ck_assert_int_eq(tr_choose_place(last, (int[]){4, 1, 2, 3}, 4, 3, true), 3);
    ck_assert_int_eq(tr_choose_place(last, (int[]){4, 1, 2, 3}, 4, 3, false), 0);
    ck_assert_int_eq(tr_choose_place(last, (int[]){4, 1, 2, 3}, 4, 5, false), -1);
}

/* ---- when ---- */

UNIT_CASE(tasks_begin_after_those_they_come_after)
{
    enum { MEAN, A, B };
    open_nodes(1, 4, WANT(1, 2, 2));
    comes_after(MEAN, WANT(A, B));
    expect_run(0, A, 2);
    expect_run(0, B, 2);
    expect_nothing(0);
    tr_schedule_ended(s, A, false, 1);
    expect_nothing(1);
    ck_assert(!tr_schedule_over(s));
    tr_schedule_ended(s, B, false, 2);
    expect_run(2, MEAN, 1);
    ck_assert_double_eq(s->task[MEAN].since, 2);
    tr_schedule_ended(s, MEAN, false, 3);
    ck_assert(tr_schedule_over(s));
}

UNIT_CASE(a_task_that_was_done_before_does_not_run)
{
    open_nodes(1, 1, WANT(1, 1));
    comes_after(0, WANT(1));
    s->task[1].state = TR_TASK_DONE;
    expect_run(5, 0, 1);
    tr_schedule_ended(s, 0, false, 6);
    expect_nothing(6);
    ck_assert(tr_schedule_over(s));
}

UNIT_CASE(a_failure_drops_what_comes_after_it_and_nothing_else)
{
    enum { A, B, C, D, E };
    open_nodes(1, 4, WANT(2, 1, 1, 4, 1));
    comes_after(B, WANT(A));
    comes_after(C, WANT(B, D));
    comes_after(E, WANT(D));
    expect_run(0, A, 2);
    expect_nothing(0);
    tr_schedule_ended(s, A, true, 1);
    expect_drop(1, B, A);
    expect_drop(1, C, B);
    expect_run(1, D, 4);
    tr_schedule_ended(s, D, false, 2);
    expect_run(2, E, 1);
    tr_schedule_ended(s, E, false, 2);
    ck_assert(tr_schedule_over(s));
    ck_assert_int_eq(s->task[A].state, TR_TASK_FAILED);
}

UNIT_CASE(long_chains_are_no_matter)
{
    enum { CHAIN = 3000 };
    static int before[CHAIN];
    open_nodes(1, 1, CHAIN, NULL);
    for (int t = 1; t < CHAIN; t++) {
        before[t] = t - 1;
        comes_after(t, 1, &before[t]);
    }
    expect_run(0, 0, 1);
    tr_schedule_ended(s, 0, true, 0);
    for (int t = 1; t < CHAIN; t++) expect_drop(0, t, t - 1);
    ck_assert(tr_schedule_over(s));
}

UNIT_CASE(higher_priority_goes_first_and_waiting_raises_it)
{
    enum { FIRST, SECOND, LOW, HIGH, LATER };
    open_nodes(1, 2, WANT(1, 1, 2, 2, 2));
    comes_after(HIGH, WANT(FIRST));
    comes_after(LATER, WANT(SECOND));
    s->task[FIRST].priority = s->task[SECOND].priority = 9;
    s->task[HIGH].priority = s->task[LATER].priority = 5;
    expect_run(0, FIRST, 1);
    expect_run(0, SECOND, 1);
    expect_nothing(0);
    tr_schedule_ended(s, FIRST, false, 4);
    expect_nothing(4);
    tr_schedule_ended(s, SECOND, false, 6); /* at 6: low 6, high 7, later 5 */
    expect_run(6, HIGH, 2);
    tr_schedule_ended(s, HIGH, false, 8);
    expect_run(8, LOW, 2);
    ck_assert_double_eq(s->task[LOW].begin - s->task[LOW].since, 8);
    tr_schedule_ended(s, LOW, false, 9);
    expect_run(9, LATER, 2);
}

/* ---- starvation ---- */

UNIT_CASE(what_does_not_fit_is_passed_over_until_it_is_starved)
{
    enum { LONG, FAT, SMALL, LATE, BEFORE_LATE };
    open_nodes(2, 2, WANT(1, 4, 3, 1, 1));
    comes_after(LATE, WANT(SMALL));
    s->task[FAT].priority = 1;
    s->task[LONG].priority = 2;
    comes_after(BEFORE_LATE, WANT(LATE));
    expect_run(0, LONG, 1);
    expect_run(0, SMALL, 3);
    tr_schedule_ended(s, SMALL, false, 8.5);
    expect_run(8.5, LATE, 1); /* the other has come to 9.5 */
    tr_schedule_ended(s, LATE, false, 9);
    expect_nothing(9.5); /* three ranks are free, and one would do, but the starved one wants four */
    tr_schedule_ended(s, LONG, false, 20);
    expect_run(20, FAT, 4);
    expect_nothing(20);
    tr_schedule_ended(s, FAT, false, 21);
    expect_run(21, BEFORE_LATE, 1);
}

/* ---- all together ---- */

/* Many tasks of all sizes with random durations; some fail, and each of the second half depends on one of the first. Every
 * rank has at most one owner, every task gets its ranks, and no task waits forever. */
static void simulate(int nodes, int each, int tasks, int fail_every, uint64_t seed)
{
    struct tr_rng rng;
    int *after, running = 0, ended = 0;
    open_nodes(nodes, each, tasks, NULL);
    double now = 0, *ends;
    tr_rng_seed(&rng, seed, 0, 0);
    ck_ok(TR_NEW(&after, (size_t)tasks));
    ck_ok(TR_NEW(&ends, (size_t)tasks));
    for (int i = 0; i < tasks; i++) {
        s->task[i].wanted = 1 + (int)tr_rng_below(&rng, (uint64_t)(nodes * each));
        s->task[i].data = i % 3;
        after[i] = i - tasks / 2;
        if (after[i] >= 0) comes_after(i, 1, &after[i]);
        ends[i] = HUGE_VAL;
    }
    while (!tr_schedule_over(s)) {
        for (int task; tr_schedule_next(s, now, &task);) {
            if (s->task[task].state == TR_TASK_DROPPED) continue;
            ck_assert_int_eq(s->task[task].ranks, s->task[task].wanted);
            ends[task] = now + 0.5 + 4 * tr_rng_uniform(&rng);
            running++;
        }
        int first = 0;
        for (int i = 1; i < tasks; i++)
            if (ends[i] < ends[first]) first = i;
        if (running == 0) break;
        now = ends[first];
        ends[first] = HUGE_VAL;
        tr_schedule_ended(s, first, fail_every && ++ended % fail_every == 0, now);
        running--;
    }
    ck_assert(tr_schedule_over(s));
    for (int rank = 0; rank < s->ranks; rank++) ck_assert_int_eq(s->owner[rank], -1);
    for (int node = 0; node < s->nodes; node++) ck_assert_int_eq(s->free[node], each);
    TR_FREE_ALL(after, ends);
}

UNIT_CASE(clusters_of_all_shapes_work)
{
    for (int i = 0; i < 60; i++) simulate(1 + i % 5, 1 + i % 7, 40, 0, (uint64_t)i);
    for (int i = 0; i < 60; i++) simulate(2 + i % 5, 2 + i % 7, 40, 7, (uint64_t)i);
    simulate(32, 8, 300, 0, 1);
}

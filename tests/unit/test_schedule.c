#include "unit.h"

#include <math.h>
#include <string.h>

#include "../simulated_schedule.h"

/* ---- short words for the cases ---- */

static struct tr_schedule *open_nodes(int nodes, int workers_each, const struct tr_schedule_options *options)
{
    int node_of[256];
    struct tr_schedule *s;
    for (int w = 0; w < nodes * workers_each; w++) node_of[w] = w / workers_each;
    ck_ok(tr_schedule_open(nodes * workers_each, node_of, options ? options : &tr_schedule_defaults, &s));
    return s;
}

static int add(struct tr_schedule *s, const char *name, double priority)
{
    int task;
    ck_ok(tr_schedule_add_task(s, &(struct tr_task_wish){.name = name, .priority = priority}, &task));
    return task;
}

/* A task with data on the nodes 0 .. nodes-1. */
static int add_with_data(struct tr_schedule *s, const char *name, int nodes)
{
    int task, node[64];
    for (int i = 0; i < nodes; i++) node[i] = nodes - 1 - i;
    ck_ok(tr_schedule_add_task(s, &(struct tr_task_wish){.name = name, .nodes = nodes, .node = node}, &task));
    return task;
}

static void ask(struct tr_schedule *s, int task, int workers, enum tr_stage_place place, double now)
{
    struct tr_stage_wish wish = {.name = "work", .workers = workers, .place = place};
    ck_ok(tr_schedule_stage(s, task, &wish, now));
}

static struct tr_decision expect(struct tr_schedule *s, double now, enum tr_decide what, int task)
{
    struct tr_decision d;
    ck_assert(tr_schedule_next(s, now, &d));
    ck_assert_int_eq(d.what, what);
    ck_assert_int_eq(d.task, task);
    return d;
}

static void expect_nothing(struct tr_schedule *s, double now)
{
    struct tr_decision d;
    ck_assert(!tr_schedule_next(s, now, &d));
}

static struct tr_decision expect_workers(struct tr_schedule *s, double now, int task, int n,
                                         const int *worker)
{
    struct tr_decision d = expect(s, now, TR_DECIDE_RUN, task);
    ck_assert_int_eq(d.workers, n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(d.worker[i], worker[i]);
    return d;
}
#define WORKERS(...)                                                                                         \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[])                                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

static void begin_all(struct tr_schedule *s, int tasks)
{
    for (int t = 0; t < tasks; t++) expect(s, 0, TR_DECIDE_BEGIN, t);
    expect_nothing(s, 0);
}

/* ---- where ---- */

START_TEST(small_stages_are_packed_on_one_node)
{
    struct tr_schedule *s = open_nodes(3, 4, NULL);
    for (int t = 0; t < 4; t++) add(s, "t", 0);
    begin_all(s, 4);
    ask(s, 0, 3, TR_PLACE_ANYWHERE, 0);
    expect_workers(s, 0, 0, WORKERS(0, 1, 2));
    ask(s, 1, 2, TR_PLACE_ANYWHERE, 0);
    ck_assert_int_eq(expect_workers(s, 0, 1, WORKERS(4, 5)).nodes, 1);
    ask(s, 2, 1, TR_PLACE_ONE_NODE, 0);
    expect_workers(s, 0, 2, WORKERS(3));
    ask(s, 3, 6, TR_PLACE_ANYWHERE, 0); /* does not fit on one: a whole node and what is left */
    ck_assert_int_eq(expect_workers(s, 0, 3, WORKERS(6, 7, 8, 9, 10, 11)).nodes, 2);
    ck_ok(tr_schedule_stage_ended(s, 0, 1));
    ck_ok(tr_schedule_stage_ended(s, 1, 1));
    ask(s, 0, 4, TR_PLACE_ONE_NODE, 1); /* five are free, but not four on a node */
    expect_nothing(s, 1);
    ck_ok(tr_schedule_stage_ended(s, 2, 2));
    expect_workers(s, 2, 0, WORKERS(0, 1, 2, 3));
    tr_schedule_close(s);
}
END_TEST

START_TEST(workers_may_lie_on_nodes_in_any_order)
{
    static const int node_of[6] = {1, 0, 1, 0, 1, 2};
    struct tr_schedule *s;
    ck_ok(tr_schedule_open(6, node_of, &tr_schedule_defaults, &s));
    add(s, "t", 0);
    begin_all(s, 1);
    ask(s, 0, 3, TR_PLACE_ONE_NODE, 0);
    expect_workers(s, 0, 0, WORKERS(0, 2, 4));
    ck_ok(tr_schedule_stage_ended(s, 0, 0));
    ask(s, 0, 6, TR_PLACE_EVERY_NODE, 0);
    expect_workers(s, 0, 0, WORKERS(1, 3, 0, 2, 4, 5));
    ck_ok(tr_schedule_stage_ended(s, 0, 0));
    ask(s, 0, 4, TR_PLACE_EVERY_NODE, 0); /* as evenly as sizes allow */
    expect_workers(s, 0, 0, WORKERS(1, 3, 0, 5));
    tr_schedule_close(s);
}
END_TEST

START_TEST(of_the_nodes_with_data_the_longest_unused_is_taken)
{
    struct tr_schedule *s = open_nodes(4, 2, NULL);
    add_with_data(s, "a", 3);
    add_with_data(s, "b", 4);
    begin_all(s, 2);
    static const int turns[] = {0, 1, 2, 0, 1, 2, 0};
    for (int i = 0; i < 7; i++) {
        ask(s, 0, 2, TR_PLACE_ONE_NODE, i);
        expect_workers(s, i, 0, WORKERS(2 * turns[i], 2 * turns[i] + 1));
        ck_ok(tr_schedule_stage_ended(s, 0, i));
        if (i != 4) continue;
        ask(s, 0, 3, TR_PLACE_EVERY_NODE, i); /* on all of them: whose turn it is stays */
        expect_workers(s, i, 0, WORKERS(0, 2, 4));
        ck_ok(tr_schedule_stage_ended(s, 0, i));
    }
    ask(s, 1, 2, TR_PLACE_ONE_NODE, 8); /* another task has turns of its own */
    expect_workers(s, 8, 1, WORKERS(0, 1));
    ask(s, 0, 1, TR_PLACE_ANYWHERE, 8);
    expect_workers(s, 8, 0, WORKERS(2));
    tr_schedule_close(s);
}
END_TEST

START_TEST(stages_run_on_the_nodes_that_they_name)
{
    struct tr_schedule *s = open_nodes(4, 2, NULL);
    add_with_data(s, "a", 4);
    begin_all(s, 1);
    struct tr_stage_wish wish = {
        .name = "work", .workers = 2, .place = TR_PLACE_EVERY_NODE, .nodes = 2, .node = (int[]){3, 1}};
    ck_ok(tr_schedule_stage(s, 0, &wish, 0));
    expect_workers(s, 0, 0, WORKERS(2, 6));
    tr_schedule_close(s);
}
END_TEST

START_TEST(a_stage_may_take_fewer_workers_rather_than_wait)
{
    struct tr_schedule *s = open_nodes(2, 4, NULL);
    add(s, "a", 0);
    add(s, "b", 0);
    begin_all(s, 2);
    ask(s, 0, 3, TR_PLACE_ONE_NODE, 0);
    expect_workers(s, 0, 0, WORKERS(0, 1, 2));
    struct tr_stage_wish wish = {.name = "rest", .workers = 8, .least = 2};
    ck_ok(tr_schedule_stage(s, 1, &wish, 0));
    expect_workers(s, 0, 1, WORKERS(3, 4, 5, 6, 7));
    ck_ok(tr_schedule_stage_ended(s, 1, 1));
    wish.place = TR_PLACE_ONE_NODE;
    ck_ok(tr_schedule_stage(s, 1, &wish, 1));
    expect_workers(s, 1, 1, WORKERS(4, 5, 6, 7));
    tr_schedule_close(s);
}
END_TEST

START_TEST(what_never_fits_is_refused)
{
    struct tr_schedule *s = open_nodes(3, 4, NULL);
    add_with_data(s, "small", 2);
    begin_all(s, 1);
    struct tr_stage_wish wish = {.name = "full", .workers = 9};
    ck_fails(tr_schedule_stage(s, 0, &wish, 0), TR_ERR_CONFIG,
             "task small, stage full: 9 workers, but its nodes have 8");
    wish = (struct tr_stage_wish){.name = "full", .workers = 5, .place = TR_PLACE_ONE_NODE};
    ck_fails(tr_schedule_stage(s, 0, &wish, 0), TR_ERR_CONFIG, "but its largest node has 4");
    wish = (struct tr_stage_wish){.name = "full", .workers = 1, .place = TR_PLACE_EVERY_NODE};
    ck_fails(tr_schedule_stage(s, 0, &wish, 0), TR_ERR_CONFIG, "1 workers on each of 2 nodes");
    wish.workers = 2; /* the task may ask again */
    ck_ok(tr_schedule_stage(s, 0, &wish, 0));
    ck_fails(tr_schedule_stage(s, 0, &wish, 0), TR_ERR_INTERNAL, "has a stage");
    ck_fails(tr_schedule_stage_ended(s, 0, 0), TR_ERR_INTERNAL, "no stage");
    ck_fails(tr_schedule_stage(s, 7, &wish, 0), TR_ERR_INTERNAL, "task 7");
    tr_schedule_close(s);
}
END_TEST

/* ---- when ---- */

START_TEST(tasks_begin_after_those_they_come_after)
{
    struct tr_schedule *s = open_nodes(1, 4, NULL);
    int mean = add(s, "mean", 0), a = add(s, "a", 0), b = add(s, "b", 0);
    ck_ok(tr_schedule_after(s, mean, a));
    ck_ok(tr_schedule_after(s, mean, b));
    expect(s, 0, TR_DECIDE_BEGIN, a);
    expect(s, 0, TR_DECIDE_BEGIN, b);
    expect_nothing(s, 0);
    struct tr_stage_wish wish = {.name = "work", .workers = 1};
    ck_fails(tr_schedule_stage(s, mean, &wish, 0), TR_ERR_INTERNAL, "has not begun");
    ck_ok(tr_schedule_task_ended(s, a, false, 1));
    expect_nothing(s, 1);
    ask(s, b, 1, TR_PLACE_ANYWHERE, 1);
    expect(s, 1, TR_DECIDE_RUN, b);
    ck_ok(tr_schedule_task_ended(s, b, false, 2)); /* and its stage with it */
    expect(s, 2, TR_DECIDE_BEGIN, mean);
    int late = add(s, "late", 0);
    ck_ok(tr_schedule_after(s, late, a));
    expect(s, 2, TR_DECIDE_BEGIN, late);
    ck_assert(!tr_schedule_over(s));
    ck_ok(tr_schedule_task_ended(s, late, false, 2));
    ck_ok(tr_schedule_task_ended(s, mean, false, 2));
    ck_assert(tr_schedule_over(s));
    struct tr_schedule_view view;
    tr_schedule_view(s, 3, &view);
    ck_assert_int_eq(view.free, 4);
    ck_assert_double_eq(view.busy, 1);
    tr_schedule_close(s);
}
END_TEST

START_TEST(a_failure_drops_what_comes_after_it_and_nothing_else)
{
    struct tr_schedule *s = open_nodes(1, 4, NULL);
    int a = add(s, "a", 0), b = add(s, "b", 0), c = add(s, "c", 0), d = add(s, "d", 0), e = add(s, "e", 0);
    ck_ok(tr_schedule_after(s, b, a));
    ck_ok(tr_schedule_after(s, c, b));
    ck_ok(tr_schedule_after(s, c, d));
    ck_ok(tr_schedule_after(s, e, d));
    expect(s, 0, TR_DECIDE_BEGIN, a);
    expect(s, 0, TR_DECIDE_BEGIN, d);
    ask(s, a, 2, TR_PLACE_ANYWHERE, 0);
    expect(s, 0, TR_DECIDE_RUN, a);
    ask(s, d, 4, TR_PLACE_ANYWHERE, 0);
    ck_ok(tr_schedule_task_ended(s, a, true, 1));
    ck_assert_int_eq(expect(s, 1, TR_DECIDE_DROP, b).because, a);
    ck_assert_int_eq(expect(s, 1, TR_DECIDE_DROP, c).because, b);
    expect_workers(s, 1, d, WORKERS(0, 1, 2, 3));
    ck_ok(tr_schedule_task_ended(s, d, false, 2));
    expect(s, 2, TR_DECIDE_BEGIN, e);
    int late = add(s, "late", 0);
    ck_ok(tr_schedule_after(s, late, c));
    ck_assert_int_eq(expect(s, 2, TR_DECIDE_DROP, late).because, c);
    ck_ok(tr_schedule_task_ended(s, e, false, 2));
    ck_assert(tr_schedule_over(s));
    struct tr_task_view view;
    tr_schedule_view_task(s, c, &view);
    ck_assert_str_eq(view.name, "c");
    ck_assert_int_eq(view.state, TR_TASK_DROPPED);
    tr_schedule_view_task(s, a, &view);
    ck_assert_int_eq(view.state, TR_TASK_FAILED);
    ck_assert_double_eq(view.worker_seconds, 2);
    tr_schedule_close(s);
}
END_TEST

START_TEST(long_chains_are_no_matter)
{
    enum { CHAIN = 100000 };
    struct tr_schedule *s = open_nodes(1, 1, NULL);
    for (int t = 0; t < CHAIN; t++) {
        int task = add(s, "t", 0);
        if (t) ck_ok(tr_schedule_after(s, task, t - 1));
    }
    expect(s, 0, TR_DECIDE_BEGIN, 0);
    ck_ok(tr_schedule_task_ended(s, 0, true, 0));
    for (int t = 1; t < CHAIN; t++) ck_assert_int_eq(expect(s, 0, TR_DECIDE_DROP, t).because, t - 1);
    ck_assert(tr_schedule_over(s));
    tr_schedule_close(s);
}
END_TEST

START_TEST(higher_priority_goes_first_and_waiting_raises_it)
{
    struct tr_schedule_options options = {.growth = 2, .threshold = 1e9, .reservations = 1};
    struct tr_schedule *s = open_nodes(1, 2, &options);
    int busy = add(s, "busy", 0), low = add(s, "low", 0), high = add(s, "high", 10),
        later = add(s, "later", 10);
    begin_all(s, 4);
    ask(s, busy, 2, TR_PLACE_ANYWHERE, 0);
    expect(s, 0, TR_DECIDE_RUN, busy);
    ask(s, low, 2, TR_PLACE_ANYWHERE, 0);
    ask(s, high, 2, TR_PLACE_ANYWHERE, 4); /* at 7: low 14, high 16, later 12 */
    ask(s, later, 2, TR_PLACE_ANYWHERE, 6);
    ck_ok(tr_schedule_stage_ended(s, busy, 7));
    expect(s, 7, TR_DECIDE_RUN, high);
    ck_ok(tr_schedule_stage_ended(s, high, 8));
    ck_assert_double_eq(expect(s, 8, TR_DECIDE_RUN, low).waited, 8);
    ck_ok(tr_schedule_stage_ended(s, low, 9));
    expect(s, 9, TR_DECIDE_RUN, later);
    struct tr_schedule_view view;
    tr_schedule_view(s, 9, &view);
    ck_assert_int_eq(view.longest_waiting_task, low);
    ck_assert_double_eq(view.longest_wait, 8);
    tr_schedule_close(s);
}
END_TEST

START_TEST(what_does_not_fit_is_passed_over)
{
    struct tr_schedule *s = open_nodes(2, 4, NULL);
    for (int t = 0; t < 4; t++) add(s, "t", t == 1 ? 5 : 0);
    begin_all(s, 4);
    ask(s, 0, 3, TR_PLACE_ONE_NODE, 0);
    expect(s, 0, TR_DECIDE_RUN, 0);
    ask(s, 1, 8, TR_PLACE_EVERY_NODE, 0);
    ask(s, 2, 2, TR_PLACE_ONE_NODE, 0);
    expect(s, 0, TR_DECIDE_RUN, 2);
    expect_nothing(s, 0);
    tr_schedule_close(s);
}
END_TEST

/* ---- starvation ---- */

/* Three tasks whose stages of one worker take two seconds, staggered so that two workers are never free at once, and from
 * the second 2 on a stage of two: when that runs, or -1 if it has not within 1000 seconds. */
static double fat_stage_runs_at(int reservations, enum tr_stage_place place)
{
    struct tr_schedule_options options = {.growth = 1, .threshold = 10, .reservations = reservations};
    struct tr_schedule *s =
        open_nodes(place == TR_PLACE_ONE_NODE ? 1 : 2, place == TR_PLACE_ONE_NODE ? 2 : 1, &options);
    struct tr_decision d;
    double ends[4] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL}, at = -1;
    for (int t = 0; t < 4; t++) add(s, "t", 0);
    begin_all(s, 4);
    for (int now = 0; now < 1000 && at < 0; now++) {
        if (now < 3) ask(s, now, 1, TR_PLACE_ANYWHERE, now);
        if (now == 2) ask(s, 3, 2, place, now);
        for (int t = 0; t < 3; t++) {
            if (ends[t] > now) continue;
            ck_ok(tr_schedule_stage_ended(s, t, now));
            ends[t] = HUGE_VAL;
            ask(s, t, 1, TR_PLACE_ANYWHERE, now);
        }
        while (tr_schedule_next(s, now, &d)) {
            ends[d.task] = now + 2;
            if (d.task != 3) continue;
            at = now;
            ck_assert(d.starved);
        }
    }
    tr_schedule_close(s);
    return at;
}

START_TEST(a_fat_stage_runs_in_a_stream_of_small_ones)
{
    /* Without reservation never; with it 10 seconds until it is starved, and 1 until the second worker is free. */
    for (enum tr_stage_place place = TR_PLACE_ANYWHERE; place <= TR_PLACE_EVERY_NODE; place++) {
        ck_assert_double_eq(fat_stage_runs_at(0, place), -1);
        ck_assert_double_eq(fat_stage_runs_at(1, place), 13);
    }
}
END_TEST

/* Two nodes of two workers; tasks 0 to 3 each have one of them, until they are ended. */
static struct tr_schedule *open_full(int reservations)
{
    struct tr_schedule_options options = {.growth = 1, .threshold = 10, .reservations = reservations};
    struct tr_schedule *s = open_nodes(2, 2, &options);
    for (int t = 0; t < 8; t++) add(s, "t", t == 7 ? 100 : 0);
    begin_all(s, 8);
    for (int t = 0; t < 4; t++) {
        ask(s, t, 1, TR_PLACE_ANYWHERE, 0);
        expect_workers(s, 0, t, WORKERS(t));
    }
    return s;
}

START_TEST(a_starved_stage_takes_the_first_node_that_has_room)
{
    struct tr_schedule *s = open_full(1);
    ask(s, 4, 2, TR_PLACE_ONE_NODE, 0);
    ask(s, 5, 1, TR_PLACE_ANYWHERE, 0.5);
    ck_ok(tr_schedule_task_ended(s, 0, false, 20));
    expect_nothing(s, 20); /* worker 0 is kept */
    ck_ok(tr_schedule_task_ended(s, 3, false, 21));
    expect_workers(s, 21, 5, WORKERS(3)); /* of the other node: nobody else's */
    ck_ok(tr_schedule_task_ended(s, 5, false, 22));
    ck_ok(tr_schedule_task_ended(s, 2, false, 22));
    ck_assert(expect_workers(s, 22, 4, WORKERS(2, 3)).starved);
    struct tr_schedule_view view;
    tr_schedule_view(s, 22, &view);
    ck_assert_int_eq(view.free, 1); /* worker 0 again */
    ck_assert_int_eq(view.kept, 0);
    ck_assert_int_eq(view.helped, 1);
    ck_assert_double_eq(view.idle_kept, 2);
    tr_schedule_close(s);
}
END_TEST

START_TEST(a_later_stage_of_higher_priority_gets_what_was_kept)
{
    for (int reservations = 1; reservations <= 2; reservations++) {
        struct tr_schedule *s = open_full(reservations);
        ask(s, 4, 3, TR_PLACE_ANYWHERE, 0);
        ck_ok(tr_schedule_stage_ended(s, 0, 20));
        ck_ok(tr_schedule_stage_ended(s, 1, 20));
        expect_nothing(s, 20); /* two are kept */
        ask(s, 7, 4, TR_PLACE_EVERY_NODE, 21);
        expect_nothing(s, 21);
        ck_ok(tr_schedule_stage_ended(s, 2, 22));
        expect_nothing(s, 22); /* three would be enough for the other */
        ck_ok(tr_schedule_stage_ended(s, 3, 22));
        expect_workers(s, 22, 7, WORKERS(0, 1, 2, 3));
        ck_ok(tr_schedule_stage_ended(s, 7, 23));
        expect_workers(s, 23, 4, WORKERS(0, 1, 2));
        tr_schedule_close(s);
    }
}
END_TEST

START_TEST(uneven_shares_are_kept_too)
{
    struct tr_schedule *s = open_full(1);
    ask(s, 4, 3, TR_PLACE_EVERY_NODE, 0); /* two of the first node, one of the second */
    ask(s, 5, 1, TR_PLACE_ANYWHERE, 15);
    ck_ok(tr_schedule_stage_ended(s, 0, 20));
    ck_ok(tr_schedule_stage_ended(s, 2, 20));
    expect_nothing(s, 20); /* a worker of each is free */
    ck_ok(tr_schedule_stage_ended(s, 1, 21));
    expect_workers(s, 21, 4, WORKERS(0, 1, 2));
    expect_nothing(s, 21);
    tr_schedule_close(s);
}
END_TEST

START_TEST(a_stage_that_is_withdrawn_leaves_what_was_kept)
{
    struct tr_schedule *s = open_full(1);
    ask(s, 4, 4, TR_PLACE_EVERY_NODE, 0);
    ask(s, 5, 2, TR_PLACE_ANYWHERE, 15);
    ck_ok(tr_schedule_stage_ended(s, 0, 20));
    ck_ok(tr_schedule_stage_ended(s, 3, 20));
    expect_nothing(s, 20);
    ck_ok(tr_schedule_task_ended(s, 4, true, 20));
    expect_workers(s, 20, 5, WORKERS(0, 3));
    tr_schedule_close(s);
}
END_TEST

/* ---- workers that are gone ---- */

START_TEST(lost_workers_are_given_no_more)
{
    struct tr_schedule *s = open_full(1);
    int task;
    ask(s, 4, 4, TR_PLACE_ANYWHERE, 0);
    ask(s, 5, 3, TR_PLACE_EVERY_NODE, 0);
    ask(s, 6, 2, TR_PLACE_ONE_NODE, 0);
    ck_ok(tr_schedule_after(s, add(s, "after 4", 0), 4));
    ck_ok(tr_schedule_stage_ended(s, 0, 20));
    expect_nothing(s, 20); /* worker 0 is kept for task 4 */
    ck_ok(tr_schedule_lost(s, 0, &task, 21));
    ck_assert_int_eq(task, -1);
    expect(s, 21, TR_DECIDE_IMPOSSIBLE, 4);
    ck_assert_int_eq(expect(s, 21, TR_DECIDE_DROP, 8).because, 4);
    expect_nothing(s, 21);
    ck_ok(tr_schedule_lost(s, 2, &task, 22)); /* its stage still runs */
    ck_assert_int_eq(task, 2);
    expect(s, 22, TR_DECIDE_IMPOSSIBLE, 5);
    expect(s, 22, TR_DECIDE_IMPOSSIBLE, 6);
    ck_ok(tr_schedule_stage_ended(s, 2, 23));
    expect_nothing(s, 23);
    ask(s, 2, 2, TR_PLACE_EVERY_NODE, 23);
    ck_ok(tr_schedule_stage_ended(s, 1, 24));
    ck_ok(tr_schedule_stage_ended(s, 3, 24));
    expect_workers(s, 24, 2, WORKERS(1, 3));
    struct tr_schedule_view view;
    tr_schedule_view(s, 24, &view);
    ck_assert_int_eq(view.workers, 2);
    ck_fails(tr_schedule_lost(s, 4, &task, 25), TR_ERR_INTERNAL, "worker 4");
    tr_schedule_close(s);
}
END_TEST

/* ---- all at once ---- */

static struct simulated simulate(struct simulated about)
{
    ck_ok(simulate_schedule(&about));
    ck_assert_msg(!about.wrong, "%s", about.wrong);
    if (!about.fail_every) ck_assert_int_eq(about.stages, (int64_t)about.tasks * about.stages_each);
    return about;
}

/* More is wanted than there are workers: in the mean a stage waits 29 seconds. Measured: 0.74 of the workers are busy, and
 * the longest wait, of a stage on more than half of them, is 535 seconds; 4700, until nearly all else has ended, if no
 * workers are kept. */
START_TEST(a_thousand_tasks_share_four_thousand_workers)
{
    struct simulated about = {.nodes = 64,
                              .workers_each = 64,
                              .tasks = 1000,
                              .stages_each = 50,
                              .sets = 8,
                              .pause = 60,
                              .options = {.growth = 1, .threshold = 60, .reservations = 1},
                              .seed = 1};
    about = simulate(about);
    ck_assert_int_ge(about.events, 100000);
    ck_assert_double_ge(about.utilisation, 0.68);
    ck_assert_double_le(about.mean_wait, 40);
    ck_assert_double_le(about.longest_wait, 800);
}
END_TEST

/* 64 seconds at most, against 1410. */
START_TEST(the_same_without_keeping_workers_starves)
{
    struct simulated about = {.nodes = 16,
                              .workers_each = 16,
                              .tasks = 100,
                              .stages_each = 60,
                              .sets = 8,
                              .pause = 20,
                              .options = {.growth = 1, .threshold = 60, .reservations = 1},
                              .seed = 1};
    struct simulated with = simulate(about);
    about.options.reservations = 0;
    struct simulated without = simulate(about);
    ck_assert_double_le(3 * with.longest_wait, without.longest_wait);
}
END_TEST

START_TEST(small_clusters_of_all_shapes_work)
{
    for (int i = 0; i < 60; i++) {
        int nodes = 1 + i % 5, each = 1 + i % 7;
        struct simulated about = simulate(
            (struct simulated){.nodes = nodes,
                               .workers_each = each,
                               .tasks = 20,
                               .stages_each = 10,
                               .sets = 1 + i % 4,
                               .pause = 5,
                               .options = {.growth = 1, .threshold = i % 3 ? 20 : 0, .reservations = i % 4},
                               .seed = (uint64_t)i});
        ck_assert_double_gt(about.utilisation, 0);
    }
}
END_TEST

START_TEST(failures_and_losses_leave_nothing_behind)
{
    for (int i = 0; i < 60; i++)
        simulate((struct simulated){.nodes = 2 + i % 5,
                                    .workers_each = 2 + i % 7,
                                    .tasks = 40,
                                    .stages_each = 10,
                                    .sets = 1 + i % 4,
                                    .pause = 5,
                                    .fail_every = 20,
                                    .lose_every = 60,
                                    .options = {1, i % 3 ? 20 : 0, i % 4},
                                    .seed = (uint64_t)i});
}
END_TEST

UNIT_MAIN("schedule", small_stages_are_packed_on_one_node, workers_may_lie_on_nodes_in_any_order,
          of_the_nodes_with_data_the_longest_unused_is_taken, stages_run_on_the_nodes_that_they_name,
          a_stage_may_take_fewer_workers_rather_than_wait, what_never_fits_is_refused,
          tasks_begin_after_those_they_come_after, a_failure_drops_what_comes_after_it_and_nothing_else,
          long_chains_are_no_matter, higher_priority_goes_first_and_waiting_raises_it,
          what_does_not_fit_is_passed_over, a_fat_stage_runs_in_a_stream_of_small_ones,
          a_starved_stage_takes_the_first_node_that_has_room,
          a_later_stage_of_higher_priority_gets_what_was_kept, uneven_shares_are_kept_too,
          a_stage_that_is_withdrawn_leaves_what_was_kept, lost_workers_are_given_no_more,
          a_thousand_tasks_share_four_thousand_workers, the_same_without_keeping_workers_starves,
          small_clusters_of_all_shapes_work, failures_and_losses_leave_nothing_behind)

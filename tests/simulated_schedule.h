/* A simulated cluster under the scheduler: many tasks, each of which asks for one stage after the other, of mixed degrees;
 * time is that of the simulation. The same for a test and for a benchmark, always the same for a seed. Every decision is
 * checked: no worker is given twice, each stage gets what it asked for. */
#ifndef TR_TESTS_SIMULATED_SCHEDULE_H
#define TR_TESTS_SIMULATED_SCHEDULE_H

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "stage/schedule.h"

struct simulated {
    int nodes, workers_each, tasks, stages_each;
    int sets;     /* of nodes, in which data lies; each of a quarter of them, the first of all */
    double pause; /* mean seconds that a task computes nothing between two stages */
    struct tr_schedule_options options;
    uint64_t seed;
    bool time_it;
    int fail_every,
        lose_every; /* a task fails at one stage's end in so many, a worker is lost at one event in so many;
                                   0: never. Then the second half of the tasks also comes after the first, one each */

    /* what it showed */
    const char *wrong; /* NULL: nothing */
    int64_t stages, events;
    double seconds;                 /* simulated */
    double utilisation, idle_kept;  /* of all workers, while less than nine tenths of the stages had ended */
    double longest_wait, mean_wait; /* simulated seconds */
    double fat_wait;                /* the longest of stages on half of all workers or more */
    double scheduler_seconds;       /* of the processor's time, in the scheduler */
};

struct simulated_end {
    double at;
    int task;
    bool asks; /* for its next stage; otherwise a stage ends */
};

struct simulation {
    struct simulated *about;
    struct tr_schedule *schedule;
    struct tr_rng rng;
    struct simulated_end *ends; /* a heap */
    int end_count;
    int *owner;                 /* by worker: task, or -1 */
    bool *gone;                 /* by worker: lost */
    int *left;                  /* by task: stages */
    struct tr_stage_wish *wish; /* by task */
    double *lasts;              /* by task: its stage */
    struct tr_decision *has;    /* by task: the workers of its stage */
    int64_t ended;              /* stages */
    double now, waited, since, busy_since, kept_since;
};

static inline void simulated_push(struct simulation *m, struct simulated_end end)
{
    int at = m->end_count++;
    for (; at > 0 && m->ends[(at - 1) / 2].at > end.at; at = (at - 1) / 2)
        m->ends[at] = m->ends[(at - 1) / 2];
    m->ends[at] = end;
}

static inline struct simulated_end simulated_pop(struct simulation *m)
{
    struct simulated_end first = m->ends[0], last = m->ends[--m->end_count];
    int at = 0;
    for (int child; (child = 2 * at + 1) < m->end_count; at = child) {
        if (child + 1 < m->end_count && m->ends[child + 1].at < m->ends[child].at) child++;
        if (last.at <= m->ends[child].at) break;
        m->ends[at] = m->ends[child];
    }
    m->ends[at] = last;
    return first;
}

static inline int simulated_between(struct simulation *m, int low, int high)
{
    return high <= low ? low : low + (int)tr_rng_below(&m->rng, (uint64_t)(high - low) + 1);
}

/* Of twenty stages, thirteen are small and of one node, four of some nodes, two on every node of the data, and one, of tasks
 * whose data lies on all nodes, on half of all workers or more. */
static inline struct tr_stage_wish simulated_wish(struct simulation *m, int task)
{
    const struct simulated *a = m->about;
    int each = a->workers_each, kind = simulated_between(m, 0, 19), all = a->nodes * each;
    int data = task % a->sets ? tr_max_int(1, a->nodes / 4) : a->nodes;
    struct tr_stage_wish wish = {.name = "simulated",
                                 .place = TR_PLACE_ONE_NODE,
                                 .workers = simulated_between(m, 1, tr_max_int(1, each / 4))};
    if (kind >= 13 && kind < 17)
        wish = (struct tr_stage_wish){.name = "some", .workers = simulated_between(m, 1, data * each / 4)};
    else if (kind >= 17 && kind < 19)
        wish = (struct tr_stage_wish){
            .name = "every", .workers = data * simulated_between(m, 1, each), .place = TR_PLACE_EVERY_NODE};
    else if (kind == 19 && data == a->nodes)
        wish = (struct tr_stage_wish){.name = "fat", .workers = simulated_between(m, (all + 1) / 2, all)};
    return wish;
}

static inline void simulated_fail(struct simulation *m, const char *what)
{
    if (!m->about->wrong) m->about->wrong = what;
}

/* Time in the scheduler alone. */
#define SIMULATED_TIME(m, work)                                                                              \
    do {                                                                                                     \
        double begin_ = (m)->about->time_it ? tr_now() : 0;                                                  \
        work;                                                                                                \
        if ((m)->about->time_it) (m)->about->scheduler_seconds += tr_now() - begin_;                         \
    } while (0)

static inline void simulated_ask(struct simulation *m, int task)
{
    int status;
    m->wish[task] = simulated_wish(m, task);
    m->lasts[task] = 0.5 + 4 * tr_rng_uniform(&m->rng);
    SIMULATED_TIME(m, status = tr_schedule_stage(m->schedule, task, &m->wish[task], m->now));
    if (status == TR_ERR_CONFIG && m->about->lose_every) /* too many are gone */
        status = tr_schedule_task_ended(m->schedule, task, true, m->now);
    if (status) simulated_fail(m, tr_error_text());
}

static inline void simulated_run(struct simulation *m, const struct tr_decision *d)
{
    const struct tr_stage_wish *wish = &m->wish[d->task];
    struct simulated *a = m->about;
    if (d->workers != wish->workers) simulated_fail(m, "a stage got more or fewer workers than it wanted");
    if (wish->place == TR_PLACE_ONE_NODE && d->nodes != 1)
        simulated_fail(m, "a stage of one node is on several");
    for (int i = 0; i < d->workers; i++) {
        if (m->owner[d->worker[i]] >= 0) simulated_fail(m, "a worker was given twice");
        if (m->gone[d->worker[i]]) simulated_fail(m, "a lost worker was given");
        m->owner[d->worker[i]] = d->task;
    }
    a->stages++;
    m->has[d->task] = *d;
    m->waited += d->waited;
    a->longest_wait = fmax(a->longest_wait, d->waited);
    if (2 * wish->workers >= a->nodes * a->workers_each) a->fat_wait = fmax(a->fat_wait, d->waited);
    simulated_push(m, (struct simulated_end){m->now + m->lasts[d->task], d->task, false});
}

/* Its next stage after a pause, or the task's end. */
static inline void simulated_go_on(struct simulation *m, int task)
{
    int status = TR_OK;
    double pause = 2 * m->about->pause * tr_rng_uniform(&m->rng);
    if (m->left[task]--) simulated_push(m, (struct simulated_end){m->now + pause, task, true});
    else SIMULATED_TIME(m, status = tr_schedule_task_ended(m->schedule, task, false, m->now));
    if (status) simulated_fail(m, tr_error_text());
}

static inline void simulated_act(struct simulation *m)
{
    struct tr_decision d;
    for (bool any;;) {
        SIMULATED_TIME(m, any = tr_schedule_next(m->schedule, m->now, &d));
        if (!any) return;
        if (d.what == TR_DECIDE_BEGIN) simulated_go_on(m, d.task);
        else if (d.what == TR_DECIDE_RUN) simulated_run(m, &d);
        else if (!m->about->fail_every) simulated_fail(m, "a task was dropped");
    }
}

static inline void simulated_end_stage(struct simulation *m, int task)
{
    int status;
    for (int i = 0; i < m->has[task].workers; i++) m->owner[m->has[task].worker[i]] = -1;
    m->ended++;
    bool fails = m->about->fail_every && m->ended % m->about->fail_every == 0;
    if (fails) status = tr_schedule_task_ended(m->schedule, task, true, m->now);
    else SIMULATED_TIME(m, status = tr_schedule_stage_ended(m->schedule, task, m->now));
    if (status) simulated_fail(m, tr_error_text());
    if (!fails) simulated_go_on(m, task);
}

static inline void simulated_lose(struct simulation *m)
{
    const struct simulated *a = m->about;
    if (!a->lose_every || a->events % a->lose_every != a->lose_every - 1) return;
    int task, worker = simulated_between(m, 0, a->nodes * a->workers_each - 1), has = m->owner[worker];
    if (m->gone[worker]) return;
    if (tr_schedule_lost(m->schedule, worker, &task, m->now)) simulated_fail(m, tr_error_text());
    if (task != has) simulated_fail(m, "a lost worker had another stage");
    m->gone[worker] = true;
}

/* Busy and kept worker seconds from the first tenth of all stages to the ninth: neither the start nor the tail. */
static inline void simulated_measure(struct simulation *m)
{
    struct simulated *a = m->about;
    int64_t tenth = (int64_t)a->tasks * a->stages_each / 10;
    if (m->ended != tenth && m->ended != 9 * tenth) return;
    struct tr_schedule_view view;
    tr_schedule_view(m->schedule, m->now, &view);
    if (m->ended == tenth) {
        m->since = m->now;
        m->busy_since = view.busy;
        m->kept_since = view.idle_kept;
        return;
    }
    double all = (m->now - m->since) * view.workers;
    a->utilisation = (view.busy - m->busy_since) / all;
    a->idle_kept = (view.idle_kept - m->kept_since) / all;
}

static inline int simulated_open(struct simulation *m)
{
    struct simulated *a = m->about;
    size_t workers = (size_t)a->nodes * (size_t)a->workers_each, tasks = (size_t)a->tasks;
    TR_TRY(TR_NEW(&m->owner, workers));
    TR_TRY(TR_NEW(&m->gone, workers));
    TR_TRY(TR_NEW(&m->left, tasks));
    TR_TRY(TR_NEW(&m->wish, tasks));
    TR_TRY(TR_NEW(&m->lasts, tasks));
    TR_TRY(TR_NEW(&m->has, tasks));
    TR_TRY(TR_NEW(&m->ends, 2 * tasks));
    for (size_t w = 0; w < workers; w++) m->owner[w] = (int)w / a->workers_each; /* for a moment: its node */
    TR_TRY(tr_schedule_open((int)workers, m->owner, &a->options, &m->schedule));
    for (size_t w = 0; w < workers; w++) m->owner[w] = -1;
    tr_rng_seed(&m->rng, a->seed, 0, 0);
    return TR_OK;
}

/* Data of set i lies on a quarter of the nodes, each following on the other, that of set 0 on all. */
static inline int simulated_add_tasks(struct simulation *m)
{
    struct simulated *a = m->about;
    int *node, task;
    TR_TRY(TR_NEW(&node, (size_t)a->nodes));
    for (int t = 0; t < a->tasks; t++) {
        int set = t % a->sets, n = set ? tr_max_int(1, a->nodes / 4) : a->nodes;
        for (int i = 0; i < n; i++) node[i] = (set * a->nodes / a->sets + i) % a->nodes;
        TR_TRY(tr_schedule_add_task(m->schedule, &(struct tr_task_wish){"task", 0, n, node}, &task));
        m->left[task] = a->stages_each;
        if (a->fail_every && t >= a->tasks / 2) TR_TRY(tr_schedule_after(m->schedule, t, t - a->tasks / 2));
    }
    free(node);
    return TR_OK;
}

static inline void simulated_close(struct simulation *m)
{
    tr_schedule_close(m->schedule);
    free(m->owner);
    free(m->gone);
    free(m->left);
    free(m->wish);
    free(m->lasts);
    free(m->has);
    free(m->ends);
}

static inline int simulate_schedule(struct simulated *about)
{
    struct simulation m = {.about = about};
    TR_TRY(simulated_open(&m));
    TR_TRY(simulated_add_tasks(&m));
    for (simulated_act(&m); m.end_count && !about->wrong; simulated_act(&m), about->events++) {
        struct simulated_end end = simulated_pop(&m);
        m.now = end.at;
        if (end.asks) simulated_ask(&m, end.task);
        else simulated_end_stage(&m, end.task);
        if (!end.asks) simulated_measure(&m);
        simulated_lose(&m);
    }
    struct tr_schedule_view view;
    tr_schedule_view(m.schedule, m.now, &view);
    if (!tr_schedule_over(m.schedule)) simulated_fail(&m, "a task never ended");
    else if (view.free != view.workers || view.kept || view.waiting || view.running)
        simulated_fail(&m, "a worker is not free at the end, or a stage is left");
    about->seconds = m.now;
    about->mean_wait = m.waited / (double)about->stages;
    simulated_close(&m);
    return TR_OK;
}

#endif

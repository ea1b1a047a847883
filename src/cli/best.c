#include "cli/best.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"

/* What the tasks before one have come to, or of n = 0 nothing that can be compared. */
struct merit {
    struct tr_outcome_seen seen;
    double mean, deviation, seconds;
    size_t n;
};

/* Whether it begins only if what it comes after is better than others. */
static bool chooses(const struct tr_job_task *task)
{
    return task->run == TR_RUN_BEST || task->best > 0;
}

static size_t before(const tr_job *job, size_t task, size_t i)
{
    return (size_t)(tr_job_task_of(job, job->task[task].after.item[i]) - job->task);
}

int tr_best_check(const tr_job *job, const struct tr_job_task *task)
{
    for (size_t i = 0; i < task->after.n; i++) {
        const struct tr_job_task *other = tr_job_task_of(job, task->after.item[i]);
        if (other->job->data.test.n == 0)
            return tr_fail(TR_ERR_CONFIG,
                           "%s: task %s runs the best, but %s has no data.test to be compared by",
                           task->first, task->name, other->name);
    }
    return TR_OK;
}

bool tr_best_follows(const tr_job *job, size_t task)
{
    for (size_t i = 0; i < job->tasks; i++)
        for (size_t k = 0; chooses(&job->task[i]) && k < job->task[i].after.n; k++)
            if (before(job, i, k) == task) return true;
    return false;
}

static struct merit judge(const tr_job *job, const struct tr_schedule *schedule, size_t task)
{
    struct merit m = {.n = job->task[task].after.n};
    double squares = 0;
    for (size_t i = 0; i < m.n; i++) {
        size_t one = before(job, task, i);
        m.seen = tr_outcome_look(job->task[one].job->output);
        if (schedule->task[one].state != TR_TASK_DONE || !isfinite(m.seen.value)) return (struct merit){0};
        m.mean += m.seen.value / (double)m.n;
        m.seconds += m.seen.seconds;
        squares += m.seen.value * m.seen.value;
    }
    if (m.n > 1) m.deviation = sqrt(fmax(0, squares - (double)m.n * m.mean * m.mean) / (double)(m.n - 1));
    return m;
}

static bool is_better(const struct merit *a, const struct merit *b)
{
    if (b->n == 0 || a->n == 0) return a->n > 0;
    return a->seen.ascends ? a->mean > b->mean : a->mean < b->mean;
}

/* What a task sets itself, but for where it writes and what it tests with. */
static void name_settings(const tr_job *job, const struct tr_job_task *task, char *text, size_t size)
{
    static const char *const own[] = {"run", "after", "ranks", "priority", "output", "data.test"};
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < task->job->settings && at < size; i++) {
        const struct tr_job_setting *s = &task->job->setting[i];
        bool tells = s->n == 1;
        for (size_t k = 0; tells && k < sizeof own / sizeof *own; k++) tells = strcmp(s->key, own[k]) != 0;
        if (tells)
            at += (size_t)snprintf(text + at, size - at, "%s%s=%s", at > 0 ? " " : "", s->key, s->item[0]);
    }
    if (at == 0) snprintf(text, size, "as the whole %s", job->name);
}

static void say(const tr_context *world, const struct tr_schedule *schedule, size_t best)
{
    const tr_job *job = world->job;
    bool headed = false;
    for (size_t i = 0; i < job->tasks; i++) {
        char settings[512];
        if (job->task[i].run != TR_RUN_BEST) continue;
        struct merit m = judge(job, schedule, i);
        if (m.n > 0 && !headed)
            tr_say(world, "%-12s  %12s  %10s  %11s  settings", "task", m.seen.name, "deviation", "took");
        headed = headed || m.n > 0;
        name_settings(job, &job->task[i], settings, sizeof settings);
        bool given_up = schedule->task[before(job, i, 0)].state == TR_TASK_DROPPED;
        if (m.n == 0)
            tr_say(world, "%-12s  %12s  %10s  %11s  %s", job->task[i].name, given_up ? "given up" : "failed",
                   "-", "-", settings);
        else
            tr_say(world, "%-12s  %12.6g  %10.2g  %11s  %s%s", job->task[i].name, m.mean, m.deviation,
                   tr_duration(m.seconds).text, settings, i == best ? "  <- best" : "");
    }
}

/* Whether all that it comes after is over. */
static bool can_be_judged(const tr_job *job, const struct tr_schedule *schedule, size_t task)
{
    for (size_t i = 0; i < job->task[task].after.n; i++) {
        const struct tr_scheduled *t = &schedule->task[before(job, task, i)];
        if (t->held || t->state == TR_TASK_WAITING || t->state == TR_TASK_RUNNING) return false;
    }
    return schedule->task[task].held;
}

/* The one with the best merit of those that are on their turn; tasks: none. */
static size_t find_best(const tr_job *job, const struct tr_schedule *schedule, const bool *turn)
{
    struct merit most = {0};
    size_t best = job->tasks;
    for (size_t i = 0; i < job->tasks; i++) {
        struct merit m = turn[i] ? judge(job, schedule, i) : (struct merit){0};
        if (!is_better(&m, &most)) continue;
        most = m;
        best = i;
    }
    return best;
}

/* It may begin, unless an earlier start of the job has done it. */
static void let_go(struct tr_schedule *schedule, struct tr_task_row *row, size_t task)
{
    struct tr_status_seen seen = tr_status_look(row[task].output);
    schedule->task[task].held = false;
    schedule->task[task].state = seen.done ? TR_TASK_DONE : TR_TASK_WAITING;
    if (seen.done) row[task].objective = seen.objective;
}

bool tr_best_choose(const tr_context *world, struct tr_schedule *schedule, struct tr_task_row *row, bool *any)
{
    const tr_job *job = world->job;
    bool *turn, last = true;
    size_t turns = 0, most = 1;
    for (size_t i = 0; i < job->tasks; i++) {
        const struct tr_scheduled *t = &schedule->task[i];
        if (!t->held && (t->state == TR_TASK_WAITING || t->state == TR_TASK_RUNNING)) return false;
    }
    if (TR_NEW(&turn, job->tasks) != TR_OK) return false;
    for (size_t i = 0; i < job->tasks; i++) {
        turn[i] = can_be_judged(job, schedule, i);
        turns += turn[i];
        if (!turn[i] || job->task[i].run == TR_RUN_BEST) continue;
        last = false;
        most = (size_t)job->task[i].best;
    }
    size_t best = find_best(job, schedule, turn);
    if (turns > 0 && last) say(world, schedule, best);
    for (size_t i = best; i < job->tasks && most > 0; i = find_best(job, schedule, turn), most--) {
        turn[i] = false;
        let_go(schedule, row, i);
    }
    for (size_t i = 0; i < job->tasks; i++) {
        if (!turn[i]) continue;
        schedule->task[i].held = false;
        schedule->task[i].state = TR_TASK_DROPPED;
    }
    free(turn);
    *any = best < job->tasks;
    return turns > 0;
}

/* Checks the tasks of a job: order, outputs and checkpoints. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

/* ---- tasks that start from the model of another task ---- */

static const char *place_of(const struct tr_job *job, const struct tr_job_task *task, const char *key)
{
    struct tr_job_name name;
    snprintf(name.text, sizeof name.text, "tasks.%s.%s", task->name, key);
    const char *where = tr_job_where(job, name.text);
    return strcmp(where, "default") ? where : task->first;
}

static int fail_unknown_task(const struct tr_job *job, const struct tr_job_task *task, const char *name)
{
    const char *meant = tr_job_suggest_task(job, name);
    return tr_job_fail(place_of(job, task, "after"), "task %s is to run after %s, which is no task%s%s%s",
                       task->name, tr_shown(name).text, meant ? ": did you mean " : "", meant ? meant : "",
                       meant ? "?" : "");
}

static bool comes_after(const struct tr_job_task *task, const char *name)
{
    for (size_t i = 0; i < task->after.n; i++)
        if (strcmp(task->after.item[i], name) == 0) return true;
    return false;
}

/* Adds a dependency. where: place of the setting that requires it. */
static int add_after(struct tr_job_task *task, const char *name, const char *where)
{
    struct tr_job_list *after = &task->after;
    struct tr_job_slot slot;
    if (comes_after(task, name)) return TR_OK;
    if (tr_job_find_in(tr_job_task_values(task), "after", &slot) && !*slot.where) *slot.where = where;
    char **item = realloc(after->item, (after->n + 1) * sizeof *item);
    if (!item) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    after->item = item;
    TR_TRY(tr_copy_string(name, &after->item[after->n]));
    after->n++;
    return TR_OK;
}

static const char begins_with_task[] = "task ";

/* Replaces «task a» by the folder of a, and adds a to the dependencies. */
static int link_task(struct tr_job *job, struct tr_job_task *task)
{
    struct tr_job_slot slot;
    if (!tr_job_find_of(task->job, task, "model.init", &slot)) return TR_OK;
    char **init = slot.field;
    if (strncmp(*init, begins_with_task, strlen(begins_with_task)) != 0) return TR_OK;
    const char *name = *init + strlen(begins_with_task), *place = place_of(job, task, "model.init");
    const struct tr_job_task *other = tr_job_task_of(job, name);
    if (!other)
        return tr_job_fail(place, "task %s is to begin with the model of %s, which is no task", task->name,
                           tr_shown(name).text);
    if (other->run == TR_RUN_AVERAGE)
        return tr_job_fail(place, "task %s is an average, and leaves no model for task %s", other->name,
                           task->name);
    TR_TRY(add_after(task, other->name, *slot.where));
    free(*init);
    *init = NULL;
    return tr_copy_string(other->job->output, init);
}

int tr_job_link_tasks(struct tr_job *job)
{
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(link_task(job, &job->task[i]));
    return TR_OK;
}

/* ---- checks ---- */

/* Checks `after` of a task. seen: for each task, the number (from 1) of the last task that named it. */
static int check_after(const struct tr_job *job, size_t which, size_t *seen)
{
    const struct tr_job_task *task = &job->task[which];
    for (size_t i = 0; i < task->after.n; i++) {
        const char *name = task->after.item[i];
        const struct tr_job_task *other = tr_job_task_of(job, name);
        if (!other) return fail_unknown_task(job, task, name);
        const char *place = place_of(job, task, "after");
        if (other == task) return tr_job_fail(place, "task %s is to run after itself", name);
        size_t *last = &seen[other - job->task];
        if (*last == which + 1) return tr_job_fail(place, "tasks.%s.after names %s twice", task->name, name);
        *last = which + 1;
    }
    if (task->best > 0 && (task->run != TR_RUN_TRAIN || task->after.n != 1))
        return tr_job_fail(place_of(job, task, "best"),
                           "best needs run: train and exactly one task in `after`: check task %s",
                           task->name);
    if (task->run == TR_RUN_TRAIN || task->after.n > 0) return TR_OK;
    return tr_job_fail(place_of(job, task, "run"),
                       "tasks.%s.run is %s: expected the names of tasks in tasks.%s.after", task->name,
                       task->run == TR_RUN_AVERAGE ? "average" : "best", task->name);
}

/* Reports a cycle as «a -> b -> a». Long cycles are truncated. */
static int fail_cycle(const struct tr_job *job, const size_t *path, size_t n)
{
    char text[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool enough = at + 2 * TR_JOB_LONGEST_WORD + 24 > sizeof text;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s -> ", enough ? "…" : job->task[path[i]].name);
        if (enough) break;
    }
    return tr_job_fail(place_of(job, &job->task[path[0]], "after"), "tasks wait for each other: %s%s", text,
                       job->task[path[0]].name);
}

/* Depth-first search along `after`. path: tasks from the start to the current one; done: tasks from which no cycle is reachable. */
struct search {
    const struct tr_job *job;
    size_t *path, length;
    bool *reached, *done;
};

static int find_cycle(struct search *s, size_t task)
{
    if (s->done[task]) return TR_OK;
    if (s->reached[task]) {
        size_t first = 0;
        while (s->path[first] != task) first++;
        return fail_cycle(s->job, s->path + first, s->length - first);
    }
    s->path[s->length++] = task;
    s->reached[task] = true;
    const struct tr_job_list *after = &s->job->task[task].after;
    for (size_t i = 0; i < after->n; i++) /* the depth is limited by the number of tasks */
        TR_TRY(find_cycle(s, (size_t)(tr_job_task_of(s->job, after->item[i]) - s->job->task)));
    s->length--;
    s->done[task] = true;
    return TR_OK;
}

static int search_cycles(const struct tr_job *job, struct search *s)
{
    s->job = job;
    TR_TRY(TR_NEW(&s->path, job->tasks));
    TR_TRY(TR_NEW(&s->reached, job->tasks));
    TR_TRY(TR_NEW(&s->done, job->tasks));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_after(job, i, s->path));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(find_cycle(s, i));
    return TR_OK;
}

static int check_order(const struct tr_job *job)
{
    struct search s = {0};
    int status = search_cycles(job, &s);
    free(s.path);
    free(s.reached);
    free(s.done);
    return status;
}

/* Advances to the next component of a path; returns false at its end. Empty components and "." are skipped. */
static bool step(const char **path, size_t *length)
{
    do {
        *path += strspn(*path, "/");
        *length = strcspn(*path, "/");
        if (*length == 1 && **path == '.') *path += 1;
        else break;
    } while (**path);
    return *length > 0 && **path;
}

/* Returns whether two paths are equal after normalization. Links are not resolved. */
static bool same_folder(const char *a, const char *b)
{
    if ((*a == '/') != (*b == '/')) return false;
    for (;;) {
        size_t n, m;
        bool more = step(&a, &n);
        if (step(&b, &m) != more) return false;
        if (!more) return true;
        if (n != m || strncmp(a, b, n) != 0) return false;
        a += n;
        b += m;
    }
}

/* Returns whether two tasks may share a folder: of several tasks with run=best only one runs. */
static bool may_share_folder(const struct tr_job_task *a, const struct tr_job_task *b)
{
    return a->run == TR_RUN_BEST && b->run == TR_RUN_BEST;
}

static int check_output(const struct tr_job *job, size_t which)
{
    const struct tr_job_task *task = &job->task[which];
    const char *output = task->job->output;
    const char *place = place_of(job, task, "output");
    if (same_folder(output, job->output))
        return tr_job_fail(place, "task %s writes the output of the whole job: %s", task->name,
                           tr_shown(output).text);
    for (size_t i = 0; i < which; i++)
        if (!may_share_folder(&job->task[i], task) && same_folder(output, job->task[i].job->output))
            return tr_job_fail(place, "tasks %s and %s write the same output: %s", job->task[i].name,
                               task->name, tr_shown(output).text);
    return TR_OK;
}

static int check_checkpoints(const struct tr_job *job, size_t which)
{
    const struct tr_job_task *task = &job->task[which];
    const char *to = task->job->checkpoint.to;
    for (size_t i = 0; *to && i < which; i++)
        if (!may_share_folder(&job->task[i], task) && same_folder(to, job->task[i].job->checkpoint.to))
            return tr_job_fail(place_of(job, task, "checkpoint.to"),
                               "tasks %s and %s have the same checkpoint.to: %s", job->task[i].name,
                               task->name, tr_shown(to).text);
    return TR_OK;
}

int tr_job_check_tasks(const struct tr_job *job)
{
    TR_TRY(check_order(job));
    for (size_t i = 0; i < job->tasks; i++) {
        TR_TRY(check_output(job, i));
        TR_TRY(check_checkpoints(job, i));
    }
    return TR_OK;
}

/* Jobs, stages and tasks: creation, access to values, destruction. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

enum { MOST_STAGES = 64, MOST_TASKS = 1024 }; /* lookups are linear */

/* ---- the values of a table ---- */

/* The values must not be changed if the job is const. */
struct tr_job_values tr_job_values(const struct tr_job *job)
{
    void *base = (void *)(uintptr_t)job;
    size_t n = tr_job_tables[TR_TABLE_JOB].n + tr_job_options(job->class);
    return (struct tr_job_values){TR_TABLE_JOB, job->where ? n : 0, base, job->where};
}

struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage)
{
    void *base = (void *)(uintptr_t)stage;
    return (struct tr_job_values){TR_TABLE_STAGE, tr_job_tables[TR_TABLE_STAGE].n, base, stage->where};
}

struct tr_job_values tr_job_task_values(const struct tr_job_task *task)
{
    void *base = (void *)(uintptr_t)task;
    return (struct tr_job_values){TR_TABLE_TASK, tr_job_tables[TR_TABLE_TASK].n, base, task->where};
}

/* Options of a class are in the struct of the class. */
struct tr_job_slot tr_job_slot(const struct tr_job_values *values, size_t i)
{
    const struct tr_job_keys *table = &tr_job_tables[values->table];
    char *base = values->base;
    const tr_option *key = &table->key[i];
    if (values->table == TR_TABLE_JOB) {
        const struct tr_job *job = values->base;
        if (i >= table->n) key = &job->class->options[i - table->n];
        if (i >= table->n) base = job->options;
        if (i < table->n && !strcmp(key->name, "model.type")) key = &job->type_key;
        else if (i < table->n && !strcmp(key->name, "solve.method")) key = &job->method_key;
    }
    return (struct tr_job_slot){key, base + key->offset, &values->where[i]};
}

static int set_defaults(struct tr_job_values values)
{
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(tr_job_set_default(&slot, slot.key->by_default));
    }
    return TR_OK;
}

static void free_values(struct tr_job_values values)
{
    for (size_t i = 0; values.where && i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        tr_job_free_value(&slot);
    }
    free((void *)(uintptr_t)values.where);
}

/* ---- jobs, stages and tasks ---- */

int tr_job_new(const char *path, struct tr_job **job)
{
    TR_TRY(TR_NEW(job, 1));
    return tr_copy_string(path, &(*job)->path);
}

static void free_setting(struct tr_job_setting *s)
{
    for (size_t i = 0; i < s->n; i++) free(s->item[i]);
    free(s->item);
    free(s->key);
    free(s->where);
}

void tr_job_free_stages(struct tr_job_stage *stage, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free_values(tr_job_stage_values(&stage[i]));
        free(stage[i].name);
        free(stage[i].first);
    }
    free(stage);
}

static void free_task(struct tr_job_task *task)
{
    free_values(tr_job_task_values(task));
    tr_job_free(task->job);
    free(task->name);
    free(task->first);
}

void tr_job_free(struct tr_job *job)
{
    if (!job) return;
    tr_job_free_stages(job->stage, job->stages);
    for (size_t i = 0; i < job->tasks; i++) free_task(&job->task[i]);
    free(job->task);
    free_values(tr_job_values(job));
    for (size_t i = 0; i < job->settings; i++) free_setting(&job->setting[i]);
    free(job->setting);
    free(job->options);
    free((void *)(uintptr_t)job->type_key.words);
    free((void *)(uintptr_t)job->method_key.words);
    free(job->path);
    free(job);
}

int tr_job_place(const struct tr_job *job, size_t line, char **where)
{
    return line ? tr_format(where, "%s:%zu", job->path, line) : tr_copy_string(TR_COMMAND_LINE, where);
}

static int fail_at(const struct tr_job *job, size_t line, const char *text)
{
    char *where;
    TR_TRY(tr_job_place(job, line, &where));
    int status = tr_job_fail(where, "%s", text);
    free(where);
    return status;
}

static int check_word(const struct tr_job *job, const char *what, const char *name, size_t line)
{
    char text[320];
    if (tr_job_is_word(name)) return TR_OK;
    snprintf(
        text, sizeof text,
        "«%s» is no name for a %s: expected a lower-case letter, then such letters, digits and -, %d at most",
        tr_shown(name).text, what, TR_JOB_LONGEST_WORD);
    return fail_at(job, line, text);
}

int tr_job_add_stage(struct tr_job *job, const char *name, size_t line)
{
    TR_TRY(check_word(job, "stage", name, line));
    size_t n = job->stages, capacity = n;
    if (n == MOST_STAGES) return fail_at(job, line, "more than 64 stages");
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->stage, &capacity, n ? 2 * n : 1));
    struct tr_job_stage *stage = &job->stage[n];
    *stage = (struct tr_job_stage){0};
    job->stages++; /* tr_job_free() now frees it */
    TR_TRY(TR_NEW(&stage->where, tr_job_tables[TR_TABLE_STAGE].n));
    TR_TRY(tr_copy_string(name, &stage->name));
    TR_TRY(tr_job_place(job, line, &stage->first));
    return set_defaults(tr_job_stage_values(stage));
}

int tr_job_add_task(struct tr_job *job, const char *name, size_t line)
{
    TR_TRY(check_word(job, "task", name, line));
    size_t n = job->tasks, capacity = n;
    if (n == MOST_TASKS) return fail_at(job, line, "more than 1024 tasks");
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->task, &capacity, n ? 2 * n : 1));
    struct tr_job_task *task = &job->task[n];
    *task = (struct tr_job_task){0};
    job->tasks++;
    TR_TRY(TR_NEW(&task->where, tr_job_tables[TR_TABLE_TASK].n));
    TR_TRY(tr_copy_string(name, &task->name));
    TR_TRY(tr_job_place(job, line, &task->first));
    TR_TRY(set_defaults(tr_job_task_values(task)));
    return tr_job_new(job->path, &task->job);
}

const struct tr_job_stage *tr_job_stage_of(const struct tr_job *job, const char *name)
{
    for (size_t i = 0; i < job->stages; i++)
        if (!strcmp(job->stage[i].name, name)) return &job->stage[i];
    return NULL;
}

const struct tr_job_task *tr_job_task_of(const struct tr_job *job, const char *name)
{
    for (size_t i = 0; i < job->tasks; i++)
        if (!strcmp(job->task[i].name, name)) return &job->task[i];
    return NULL;
}

const char *tr_job_suggest_task(const struct tr_job *job, const char *name)
{
    const char *names[MOST_TASKS];
    for (size_t i = 0; i < job->tasks; i++) names[i] = job->task[i].name;
    return tr_job_suggest(name, names, job->tasks);
}

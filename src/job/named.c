/* Where names lead: to values of the job, of one of its stages or tasks, or of a task's own job; and how all of
 * these come and go. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

enum { MOST_STAGES = 64, MOST_TASKS = 1024 }; /* each lookup walks over them */

/* ---- the values of a table ---- */

/* All are for reading when what they belong to is const. */
struct tr_job_values tr_job_values(const struct tr_job *job)
{
    void *base = (void *)(uintptr_t)job;
    return (struct tr_job_values){&tr_job_tables[TR_TABLE_JOB], base, job->where};
}

struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage)
{
    void *base = (void *)(uintptr_t)stage;
    return (struct tr_job_values){&tr_job_tables[TR_TABLE_STAGE], base, stage->where};
}

struct tr_job_values tr_job_task_values(const struct tr_job_task *task)
{
    void *base = (void *)(uintptr_t)task;
    return (struct tr_job_values){&tr_job_tables[TR_TABLE_TASK], base, task->where};
}

struct tr_job_slot tr_job_slot(const struct tr_job_values *values, size_t i)
{
    const struct tr_job_key *key = &values->table->key[i];
    struct tr_job_slot slot = {key, (char *)values->base + key->offset, &values->where[i], {""}};
    snprintf(slot.name.text, sizeof slot.name.text, "%s", key->name);
    return slot;
}

static int set_default(struct tr_job_slot *slot)
{
    const struct tr_job_key *key = slot->key;
    struct tr_job_place table = {"default", 0};
    bool text = key->kind == TR_KIND_TEXT;
    if (text == (*key->by_default != '\0')) return TR_OK; /* of a text only the empty one is a default */
    if (!tr_job_is_list(key)) return tr_job_set(slot, key->by_default, false, table);
    char *items;
    TR_TRY(tr_copy_string(key->by_default, &items));
    int status = tr_job_split_list(slot, items, table);
    free(items);
    return status;
}

int tr_job_set_defaults(struct tr_job_values values)
{
    for (size_t i = 0; i < values.table->keys; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(set_default(&slot));
    }
    return TR_OK;
}

/* What was not made yet is NULL. */
static void free_values(struct tr_job_values values)
{
    for (size_t i = 0; values.where && i < values.table->keys; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        if (slot.key->kind == TR_KIND_TEXT) free(*(char **)slot.field);
        if (tr_job_is_list(slot.key)) tr_job_empty_list(&slot);
        free(*slot.where);
    }
    free(values.where);
}

/* ---- jobs, stages and tasks ---- */

int tr_job_new(const char *path, struct tr_job **job)
{
    TR_TRY(TR_NEW(job, 1));
    TR_TRY(TR_NEW(&(*job)->where, TR_JOB_KEYS));
    return tr_copy_string(path, &(*job)->path);
}

static void free_stage(struct tr_job_stage *stage)
{
    free_values(tr_job_stage_values(stage));
    free(stage->name);
    free(stage->first);
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
    for (size_t i = 0; i < job->stages; i++) free_stage(&job->stage[i]);
    for (size_t i = 0; i < job->tasks; i++) free_task(&job->task[i]);
    free(job->stage);
    free(job->task);
    free_values(tr_job_values(job));
    free(job->path);
    free(job);
}

static int check_word(const char *what, const char *name, struct tr_job_place place)
{
    if (tr_job_is_word(name)) return TR_OK;
    return tr_job_fail(
        place,
        "«%s» is no name for a %s: expected a lower-case letter, then such letters, digits and -, "
        "%d at most",
        tr_shown(name).text, what, TR_JOB_LONGEST_WORD);
}

int tr_job_add_stage(struct tr_job *job, const char *name, struct tr_job_place place)
{
    TR_TRY(check_word("stage", name, place));
    size_t n = job->stages, room = n;
    if (n == MOST_STAGES) return tr_job_fail(place, "more than %d stages", MOST_STAGES);
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->stage, &room, n ? 2 * n : 1));
    struct tr_job_stage *stage = &job->stage[n];
    *stage = (struct tr_job_stage){0};
    job->stages++; /* from now on it is freed with the job */
    TR_TRY(TR_NEW(&stage->where, TR_STAGE_KEYS));
    TR_TRY(tr_copy_string(name, &stage->name));
    TR_TRY(tr_job_place_text(place, &stage->first));
    return tr_job_set_defaults(tr_job_stage_values(stage));
}

int tr_job_add_task(struct tr_job *job, const char *name, struct tr_job_place place)
{
    TR_TRY(check_word("task", name, place));
    size_t n = job->tasks, room = n;
    if (n == MOST_TASKS) return tr_job_fail(place, "more than %d tasks", MOST_TASKS);
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->task, &room, n ? 2 * n : 1));
    struct tr_job_task *task = &job->task[n];
    *task = (struct tr_job_task){0};
    job->tasks++;
    TR_TRY(TR_NEW(&task->where, TR_TASK_KEYS));
    TR_TRY(tr_copy_string(name, &task->name));
    TR_TRY(tr_job_place_text(place, &task->first));
    TR_TRY(tr_job_set_defaults(tr_job_task_values(task)));
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

/* ---- names ---- */

/* What a name consists of: tasks.TASK.stages.STAGE.key, where parts may be missing. */
struct route {
    char task[TR_JOB_LONGEST_WORD + 2]; /* one more than is allowed, so that what is too long stays so */
    char stage[TR_JOB_LONGEST_WORD + 2];
    const char *key; /* empty: the name ends with the task's or the stage's */
    bool nameless;   /* nothing between dots where a name belongs */
};

/* Takes the section and the word behind it off the name, if it begins so. */
static void take(struct route *route, const char *section, char *word)
{
    size_t length = strlen(section);
    *word = '\0';
    if (strncmp(route->key, section, length) != 0 || route->key[length] != '.') return;
    const char *from = route->key + length + 1;
    size_t n = strcspn(from, ".");
    snprintf(word, TR_JOB_LONGEST_WORD + 2, "%.*s", (int)tr_min_size(n, TR_JOB_LONGEST_WORD + 1), from);
    route->nameless |= n == 0;
    route->key = from + n + (from[n] == '.');
}

static struct route find_route(const char *name)
{
    struct route route = {.key = name};
    take(&route, "tasks", route.task);
    take(&route, "stages", route.stage);
    return route;
}

/* The key of the values, if there is one: by its whole name, or by its own where names are given. */
static bool find_in(struct tr_job_values values, const char *key, bool own, struct tr_job_slot *slot)
{
    for (size_t i = 0; i < values.table->keys; i++) {
        const char *name = values.table->key[i].name;
        if (strcmp(own ? tr_job_own_name(name) : name, key) != 0) continue;
        *slot = tr_job_slot(&values, i);
        return true;
    }
    return false;
}

static bool follow(const struct tr_job *job, const struct route *route, struct tr_job_slot *slot)
{
    if (route->nameless) return false;
    if (*route->task) {
        const struct tr_job_task *task = tr_job_task_of(job, route->task);
        if (!task) return false;
        if (!*route->stage && find_in(tr_job_task_values(task), route->key, true, slot)) return true;
        job = task->job;
    }
    if (!*route->stage) return find_in(tr_job_values(job), route->key, false, slot);
    const struct tr_job_stage *stage = tr_job_stage_of(job, route->stage);
    return stage && find_in(tr_job_stage_values(stage), route->key, true, slot);
}

bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot)
{
    struct route route = find_route(name);
    if (!follow(job, &route, slot)) return false;
    snprintf(slot->name.text, sizeof slot->name.text, "%s", name);
    return true;
}

/* A task is made by the file only: a misspelt one on the command line would be one more. */
static int need_task(struct tr_job *job, const char *name, struct tr_job_place place)
{
    if (tr_job_task_of(job, name)) return TR_OK;
    if (place.line) return tr_job_add_task(job, name, place);
    return tr_job_fail_unknown(place, "task", name, tr_job_suggest_task(job, name));
}

int tr_job_locate(struct tr_job *job, const char *name, struct tr_job_place place, struct tr_job_slot *slot)
{
    struct route route = find_route(name);
    struct tr_job *owner = job;
    slot->key = NULL;
    if (route.nameless || !*route.key) return TR_OK;
    if (*route.task) {
        TR_TRY(need_task(job, route.task, place));
        owner = tr_job_task_of(job, route.task)->job;
    }
    if (*route.stage && !tr_job_stage_of(owner, route.stage))
        TR_TRY(tr_job_add_stage(owner, route.stage, place));
    if (!tr_job_find(job, name, slot)) slot->key = NULL;
    return TR_OK;
}

/* ---- where values came from ---- */

/* Of a stage or a task, NULL if there is none. */
static const char *find_first(const struct tr_job *job, const struct route *route)
{
    const struct tr_job_task *task = *route->task ? tr_job_task_of(job, route->task) : NULL;
    if (*route->key || (*route->task && !task)) return NULL;
    if (!*route->stage) return task ? task->first : NULL;
    const struct tr_job_stage *stage = tr_job_stage_of(task ? task->job : job, route->stage);
    return stage ? stage->first : NULL;
}

const char *tr_job_where(const struct tr_job *job, const char *name)
{
    struct route route = find_route(name);
    struct tr_job_slot slot;
    if (follow(job, &route, &slot)) return *slot.where ? *slot.where : "default";
    const char *first = find_first(job, &route);
    return first ? first : job->path;
}

/* ---- whether stages are those of the method ---- */

static int fail_unknown_stage(const struct tr_job_stage *stage, const char *const *names, size_t n)
{
    struct tr_job_place place = {stage->first, 0};
    const char *meant = tr_job_suggest(stage->name, names, n);
    if (n == 0)
        return tr_job_fail(place, "unknown stage %s: this solve.method has no stages of its own",
                           stage->name);
    char list[320] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    return tr_job_fail(place, "unknown stage %s: %s%s%sthe method has %s", stage->name,
                       meant ? "did you mean " : "", meant ? meant : "", meant ? "? " : "", list);
}

int tr_job_check_stages(const struct tr_job *job, const char *const *names, size_t n)
{
    for (size_t i = 0; i < job->stages; i++) {
        size_t known = 0;
        while (known < n && strcmp(job->stage[i].name, names[known]) != 0) known++;
        if (known == n) return fail_unknown_stage(&job->stage[i], names, n);
    }
    return TR_OK;
}

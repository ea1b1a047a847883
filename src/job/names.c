/* Where names of keys lead, and settings taken under their names. */
#include "job/schema.h"

#include <string.h>

#include "base/base.h"
#include "job/text.h"

/* What a name consists of: tasks.TASK.stages.STAGE.key, where parts may be missing. */
struct route {
    char task[TR_JOB_LONGEST_WORD + 2]; /* one more than is allowed, so that what is too long stays so */
    char stage[TR_JOB_LONGEST_WORD + 2];
    const char *own; /* behind the task */
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
    route.own = route.key;
    take(&route, "stages", route.stage);
    return route;
}

/* The key of the values, if there is one: by its whole name, or by its own where names are given. */
bool tr_job_find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot)
{
    for (size_t i = 0; i < values.n; i++) {
        *slot = tr_job_slot(&values, i);
        const char *name = slot->key->name;
        if (strcmp(values.table == TR_TABLE_JOB ? name : tr_job_own_name(name), key) == 0) return true;
    }
    return false;
}

static bool follow(const struct tr_job *job, const struct route *route, struct tr_job_slot *slot)
{
    if (route->nameless) return false;
    if (*route->task) {
        const struct tr_job_task *task = tr_job_task_of(job, route->task);
        if (!task) return false;
        if (!*route->stage && tr_job_find_in(tr_job_task_values(task), route->key, slot)) return true;
        job = task->job;
    }
    if (!*route->stage) return tr_job_find_in(tr_job_values(job), route->key, slot);
    const struct tr_job_stage *stage = tr_job_stage_of(job, route->stage);
    return stage && tr_job_find_in(tr_job_stage_values(stage), route->key, slot);
}

bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot)
{
    struct route route = find_route(name);
    return follow(job, &route, slot);
}

bool tr_job_find_of(const struct tr_job *job, const struct tr_job_task *task, const char *key,
                    struct tr_job_slot *slot)
{
    struct route route = {.key = key};
    take(&route, "stages", route.stage);
    if (task && !*route.stage && tr_job_find_in(tr_job_task_values(task), key, slot)) return true;
    return follow(job, &route, slot);
}

const char *tr_job_where(const struct tr_job *job, const char *name)
{
    struct route route = find_route(name);
    struct tr_job_slot slot;
    if (follow(job, &route, &slot)) return *slot.where ? *slot.where : "default";
    const struct tr_job_task *task = *route.task ? tr_job_task_of(job, route.task) : NULL;
    if (*route.key || (*route.task && !task)) return job->path;
    if (!*route.stage) return task ? task->first : job->path;
    const struct tr_job_stage *stage = tr_job_stage_of(task ? task->job : job, route.stage);
    return stage ? stage->first : job->path;
}

bool tr_job_given(const struct tr_job *job, const char *name)
{
    struct tr_job_slot slot;
    return tr_job_find(job, name, &slot) && *slot.where;
}

int tr_job_fail_unknown(const char *where, const char *what, const char *name, const char *suggestion)
{
    bool known = suggestion && *suggestion;
    return tr_job_fail(where, "unknown %s %s%s%s%s", what, tr_shown(name).text,
                       known ? ": did you mean " : "", known ? suggestion : "", known ? "?" : "");
}

/* ---- taking settings ---- */

static int add_setting(struct tr_job *job, const char *key, size_t line, const char *item,
                       struct tr_job_setting **setting)
{
    TR_TRY(TR_GROW(&job->setting, &job->setting_capacity, job->settings + 1));
    struct tr_job_setting *s = &job->setting[job->settings++];
    *s = (struct tr_job_setting){.commanded = line == 0};
    if (setting) *setting = s;
    TR_TRY(tr_copy_string(key, &s->key));
    TR_TRY(tr_job_place(job, line, &s->where));
    if (!item) return TR_OK;
    TR_TRY(TR_NEW(&s->item, 1));
    TR_TRY(tr_copy_string(item, &s->item[0]));
    s->n = 1;
    return TR_OK;
}

int tr_job_add(struct tr_job *job, const char *name, size_t line, const char *item,
               struct tr_job_setting **setting)
{
    struct route route = find_route(name);
    const char *key = name;
    if (route.nameless || !*route.key) return add_setting(job, name, line, item, setting);
    if (*route.task) {
        const struct tr_job_task *task = tr_job_task_of(job, route.task);
        bool by_file = job->tasks > 0 && strcmp(job->task[0].first, TR_COMMAND_LINE) != 0;
        if (!task && line == 0 && by_file)
            return tr_job_fail_unknown(TR_COMMAND_LINE, "task", route.task,
                                       tr_job_suggest_task(job, route.task));
        if (!task) TR_TRY(tr_job_add_task(job, route.task, line));
        job = tr_job_task_of(job, route.task)->job;
        key = route.own;
    }
    if (*route.stage && !tr_job_stage_of(job, route.stage)) TR_TRY(tr_job_add_stage(job, route.stage, line));
    return add_setting(job, key, line, item, setting);
}

int tr_job_add_override(struct tr_job *job, const char *argument)
{
    const char *equals = strchr(argument, '=');
    if (!equals)
        return tr_fail(TR_ERR_USAGE, "command line: «%s»: expected section.key=value",
                       tr_shown(argument).text);
    struct tr_job_name name = {""};
    memcpy(name.text, argument, tr_min_size((size_t)(equals - argument), sizeof name.text - 1));
    const struct tr_job_section *section = tr_job_find_section(name.text);
    const char *key = section && section->short_for ? section->short_for : name.text;
    const struct tr_model_class *class;
    if (!equals[1] && tr_job_known_key(key, 0, &class))
        return tr_job_fail(TR_COMMAND_LINE, "%s has no value", key);
    return tr_job_add(job, key, 0, equals + 1, NULL);
}

/* Comparison of two jobs: whether a run of one may resume with the other. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

struct comparison {
    FILE *changes;   /* permitted differences, as «solve.epochs 10 -> 20, seed 1 -> 2» */
    size_t allowed;  /* their number */
    size_t refused;  /* number of other differences */
    char first[640]; /* description of the first of these */
};

/* Returns the value of a key for messages; the default if the job does not contain it. */
static struct tr_shown value_of(const struct tr_job *job, const char *name, const tr_option *key)
{
    struct tr_job_slot slot;
    char *text = NULL;
    if (!tr_job_find(job, name, &slot)) return tr_shown(key->by_default);
    struct tr_shown shown = tr_shown(tr_job_value_text(&slot, &text) ? text : "?");
    free(text);
    return shown;
}

/* Returns whether both jobs have the same value of a key; a missing key has its default. */
static bool same(const struct tr_job *now, const struct tr_job *old, const char *name, const tr_option *key)
{
    struct tr_job_slot a, b;
    if (tr_job_find(now, name, &a) && tr_job_find(old, name, &b)) return tr_job_same(&a, &b);
    return strcmp(value_of(now, name, key).text, value_of(old, name, key).text) == 0;
}

static void refuse(struct comparison *c, const char *what, const char *was, const char *is, const char *where)
{
    if (c->refused++ == 0)
        snprintf(c->first, sizeof c->first, "%s%s%s is %s (%s)", what, was, *was ? "," : "", is, where);
}

/* Compares a key of both jobs. checkpoint.* may differ, since it does not affect the model. */
static void compare_key(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                        const char *name, const tr_option *key)
{
    if (same(now, old, name, key) || !strncmp(key->name, "checkpoint.", strlen("checkpoint."))) return;
    struct tr_shown was = value_of(old, name, key), is = value_of(now, name, key);
    struct tr_job_slot slot;
    const char *where = tr_job_find(now, name, &slot) && *slot.where ? *slot.where : "default";
    if (key->may_change) {
        fprintf(c->changes, "%s%s %s -> %s", c->allowed++ ? ", " : "", name, was.text, is.text);
        return;
    }
    struct tr_job_name before;
    snprintf(before.text, sizeof before.text, " was %.100s", was.text);
    refuse(c, name, before.text, is.text, where);
}

/* Compares the stages of both jobs. prefix: of a task. */
static void compare_stages(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                           const char *prefix, const struct tr_job *mine, const struct tr_job *theirs)
{
    for (size_t i = 0; i < mine->stages + theirs->stages; i++) {
        bool second = i >= mine->stages;
        const char *stage = second ? theirs->stage[i - mine->stages].name : mine->stage[i].name;
        if (second && tr_job_stage_of(mine, stage)) continue;
        for (size_t k = 0; k < tr_job_tables[TR_TABLE_STAGE].n; k++) {
            const tr_option *key = &tr_job_tables[TR_TABLE_STAGE].key[k];
            struct tr_job_name name;
            snprintf(name.text, sizeof name.text, "%sstages.%s.%s", prefix, stage,
                     tr_job_own_name(key->name));
            compare_key(c, now, old, name.text, key);
        }
    }
}

/* Compares the keys of the job or of a task. Differences between the whole jobs are not repeated for their tasks. If the classes
 * of models differ, model.type is reported before the options of the classes. */
static void compare_values(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                           const char *prefix, const struct tr_job *mine)
{
    struct tr_job_values values = tr_job_values(mine);
    for (size_t i = 0; i < values.n; i++) {
        const tr_option *key = tr_job_slot(&values, i).key;
        struct tr_job_slot slot;
        if (*prefix && tr_job_find(now, key->name, &slot) && tr_job_find(old, key->name, &slot) &&
            !same(now, old, key->name, key))
            continue;
        if (!tr_job_find(old, tr_job_join(prefix, key->name).text, &slot)) continue;
        compare_key(c, now, old, tr_job_join(prefix, key->name).text, key);
    }
}

static void compare_tasks(struct comparison *c, const struct tr_job *now, const struct tr_job *old)
{
    for (size_t i = 0; i < now->tasks; i++) {
        const struct tr_job_task *a = &now->task[i], *b = tr_job_task_of(old, a->name);
        struct tr_job_name prefix, what = tr_job_join("task ", a->name);
        snprintf(prefix.text, sizeof prefix.text, "tasks.%s.", a->name);
        if (!b) refuse(c, what.text, "", "new", a->first);
        for (size_t k = 0; b && k < tr_job_tables[TR_TABLE_TASK].n; k++) {
            const tr_option *key = &tr_job_tables[TR_TABLE_TASK].key[k];
            compare_key(c, now, old, tr_job_join(prefix.text, tr_job_own_name(key->name)).text, key);
        }
        if (b) compare_values(c, now, old, prefix.text, a->job);
        if (b) compare_stages(c, now, old, prefix.text, a->job, b->job);
    }
    for (size_t i = 0; i < old->tasks; i++)
        if (!tr_job_task_of(now, old->task[i].name))
            refuse(c, tr_job_join("task ", old->task[i].name).text, "", "gone", now->path);
}

static int compare(struct comparison *c, const struct tr_job *now, const struct tr_job *old)
{
    compare_values(c, now, old, "", now);
    compare_stages(c, now, old, "", now, old);
    compare_tasks(c, now, old);
    if (c->refused == 0) return TR_OK;
    char more[48] = "";
    if (c->refused > 1)
        snprintf(more, sizeof more, ", and %zu more differ%s", c->refused - 1, c->refused == 2 ? "s" : "");
    return tr_fail(TR_ERR_CONFIG, "%s%s; --fresh starts over", c->first, more);
}

static int read_old(const tr_model_class *own, const char *yaml, struct tr_job **old)
{
    if (tr_job_parse_as(TR_JOB_WRITTEN, own, yaml, strlen(yaml), "job.yaml", 0, NULL, old) == TR_OK)
        return TR_OK;
    char why[640];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(TR_ERR_CONFIG, "the job of the earlier run cannot be read (%s); --fresh starts over", why);
}

int tr_job_compare(const struct tr_job *now, const char *old_yaml, char **change)
{
    struct tr_job *old = NULL;
    struct comparison c = {0};
    char *text = NULL;
    size_t length = 0;
    TR_TRY(read_old(now->own, old_yaml, &old));
    c.changes = open_memstream(&text, &length);
    int status = c.changes ? compare(&c, now, old) : TR_OK;
    if ((!c.changes || fclose(c.changes) != 0) && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "out of memory for comparing jobs");
    tr_job_free(old);
    bool wanted = status == TR_OK && change && c.allowed > 0;
    if (status == TR_OK && change) *change = wanted ? text : NULL;
    if (!wanted) free(text);
    return status;
}

bool tr_job_extends(const struct tr_job *now, const char *old_yaml)
{
    struct tr_job *old = NULL;
    if (tr_job_compare(now, old_yaml, NULL) != TR_OK || read_old(now->own, old_yaml, &old) != TR_OK)
        return false;
    bool more = now->solve.epochs > old->solve.epochs;
    tr_job_free(old);
    return more;
}

/* Whether a run of one job may go on as another. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

struct comparison {
    FILE *changes;   /* those that may be, as «solve.epochs 10 -> 20, seed …» */
    size_t allowed;  /* … so many */
    size_t refused;  /* others */
    char first[640]; /* of these, in words */
};

/* ---- one key ---- */

/* Short and printable, for a message. */
static struct tr_shown value_of(const struct tr_job_slot *slot)
{
    char *text = NULL;
    struct tr_shown shown = tr_shown(tr_job_value_text(slot, &text) ? text : "?");
    free(text);
    return shown;
}

/* Changed from part to part, and of no account to what is learnt. */
static bool is_tacit(const tr_option *key)
{
    return !strncmp(key->name, "checkpoint.", strlen("checkpoint."));
}

static void note(struct comparison *c, const char *name, const struct tr_job_slot *now,
                 const struct tr_job_slot *old)
{
    if (is_tacit(now->key)) return;
    struct tr_shown was = value_of(old), is = value_of(now);
    if (now->key->may_change) {
        fprintf(c->changes, "%s%s %s -> %s", c->allowed++ ? ", " : "", name, was.text, is.text);
        return;
    }
    const char *where = *now->where ? *now->where : "default";
    if (c->refused++ == 0)
        snprintf(c->first, sizeof c->first, "%s was %s, is %s (%s)", name, was.text, is.text, where);
}

/* The values of one table. Those in which the whole jobs differ as well (NULL: none) are told of these. Where the classes
 * of models differ, so does model.type, which comes before their options. */
static void compare_values(struct comparison *c, const char *prefix, struct tr_job_values now,
                           struct tr_job_values old, const struct tr_job *whole,
                           const struct tr_job *old_whole)
{
    for (size_t i = 0; i < now.n && i < old.n; i++) {
        struct tr_job_slot a = tr_job_slot(&now, i), b = tr_job_slot(&old, i), x, y;
        const char *key = a.key->name;
        if (strcmp(key, b.key->name) != 0 || tr_job_same(&a, &b)) continue;
        if (whole && tr_job_find(whole, key, &x) && tr_job_find(old_whole, key, &y) && !tr_job_same(&x, &y))
            continue;
        const char *own = now.table == TR_TABLE_JOB ? key : tr_job_own_name(key);
        note(c, tr_job_join(prefix, own).text, &a, &b);
    }
}

/* ---- stages ---- */

static int compare_with_defaults(struct comparison *c, const char *prefix, const struct tr_job_stage *stage,
                                 bool is_now)
{
    struct tr_job *plain;
    TR_TRY(tr_job_new("", &plain));
    int status = tr_job_add_stage(plain, stage->name, 0);
    if (status == TR_OK) {
        struct tr_job_values given = tr_job_stage_values(stage),
                             usual = tr_job_stage_values(&plain->stage[0]);
        compare_values(c, prefix, is_now ? given : usual, is_now ? usual : given, NULL, NULL);
    }
    tr_job_free(plain);
    return status;
}

static struct tr_job_name stage_prefix(const char *prefix, const char *stage)
{
    return tr_job_join(tr_job_join(tr_job_join(prefix, "stages.").text, stage).text, ".");
}

/* What is said of a stage of both, or of one of them. */
static int compare_stages(struct comparison *c, const char *prefix, const struct tr_job *now,
                          const struct tr_job *old)
{
    for (size_t i = 0; i < now->stages; i++) {
        const struct tr_job_stage *a = &now->stage[i], *b = tr_job_stage_of(old, a->name);
        struct tr_job_name name = stage_prefix(prefix, a->name);
        if (b) compare_values(c, name.text, tr_job_stage_values(a), tr_job_stage_values(b), NULL, NULL);
        else TR_TRY(compare_with_defaults(c, name.text, a, true));
    }
    for (size_t i = 0; i < old->stages; i++) {
        const struct tr_job_stage *b = &old->stage[i];
        if (tr_job_stage_of(now, b->name)) continue;
        TR_TRY(compare_with_defaults(c, stage_prefix(prefix, b->name).text, b, false));
    }
    return TR_OK;
}

/* ---- tasks ---- */

static void note_task(struct comparison *c, const char *name, const char *what, const char *where)
{
    if (c->refused++ == 0)
        snprintf(c->first, sizeof c->first, "task %s is %s (%s)", tr_shown(name).text, what, where);
}

static int compare_task(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                        const struct tr_job_task *a, const struct tr_job_task *b)
{
    struct tr_job_name prefix = tr_job_join(tr_job_join("tasks.", a->name).text, ".");
    compare_values(c, prefix.text, tr_job_task_values(a), tr_job_task_values(b), NULL, NULL);
    compare_values(c, prefix.text, tr_job_values(a->job), tr_job_values(b->job), now, old);
    return compare_stages(c, prefix.text, a->job, b->job);
}

static int compare_tasks(struct comparison *c, const struct tr_job *now, const struct tr_job *old)
{
    for (size_t i = 0; i < now->tasks; i++) {
        const struct tr_job_task *a = &now->task[i], *b = tr_job_task_of(old, a->name);
        if (b) TR_TRY(compare_task(c, now, old, a, b));
        else note_task(c, a->name, "new", a->first);
    }
    for (size_t i = 0; i < old->tasks; i++)
        if (!tr_job_task_of(now, old->task[i].name)) note_task(c, old->task[i].name, "gone", now->path);
    return TR_OK;
}

/* ---- the job ---- */

static int compare(struct comparison *c, const struct tr_job *now, const struct tr_job *old)
{
    compare_values(c, "", tr_job_values(now), tr_job_values(old), NULL, NULL);
    TR_TRY(compare_stages(c, "", now, old));
    TR_TRY(compare_tasks(c, now, old));
    if (c->refused == 0) return TR_OK;
    char more[48] = "";
    if (c->refused > 1)
        snprintf(more, sizeof more, ", and %zu more differ%s", c->refused - 1, c->refused == 2 ? "s" : "");
    return tr_fail(TR_ERR_CONFIG, "%s%s; --fresh starts anew", c->first, more);
}

static int read_old(const char *yaml, struct tr_job **old)
{
    int status = tr_job_parse_written(yaml, "job.yaml", 0, NULL, old);
    if (status == TR_OK) return TR_OK;
    char why[640];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(TR_ERR_CONFIG, "the job of the earlier run cannot be read (%s); --fresh starts anew", why);
}

int tr_job_compare(const struct tr_job *now, const char *old_yaml, char **change)
{
    struct tr_job *old = NULL;
    struct comparison c = {0};
    char *text = NULL;
    size_t length = 0;
    TR_TRY(read_old(old_yaml, &old));
    c.changes = open_memstream(&text, &length);
    int status =
        c.changes ? compare(&c, now, old) : tr_fail(TR_ERR_SYSTEM, "out of memory for comparing jobs");
    if (c.changes && fclose(c.changes) != 0 && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "out of memory for comparing jobs");
    tr_job_free(old);
    if (status != TR_OK || !change || c.allowed == 0) {
        free(text);
        text = NULL;
    }
    if (status == TR_OK && change) *change = text;
    return status;
}

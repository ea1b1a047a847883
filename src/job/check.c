/* Checks that the settings of a job are used by its class and method and fit together. */
#include "job/schema.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

static int fail_unused_by_method(const struct tr_job *job, const struct tr_job_setting *s,
                                 const tr_option *key)
{
    const char *method = tr_job_chosen_method(job)->name, *type = job->type_key.words[job->model.type];
    if (key->methods)
        return tr_job_fail(s->where, "%s is for solve.method %s, and of no use to %s", s->key, key->methods,
                           method);
    return tr_job_fail(s->where, "%s is of no use to solve.method %s of model.type %s", s->key, method, type);
}

static bool has_weight_column(const struct tr_job *job)
{
    const struct tr_job_list *list = &job->data.columns;
    for (size_t i = 0; i < list->n; i++) {
        const char *colon = strrchr(list->item[i], ':');
        if (colon && !strcmp(colon + 1 + strspn(colon + 1, " "), "weight")) return true;
    }
    return false;
}

bool tr_job_weighs_rows(const struct tr_job *job)
{
    return *job->data.weight || has_weight_column(job);
}

static int check_use(const struct tr_job *job, const struct tr_job *whole)
{
    for (size_t i = 0; i < job->settings; i++) {
        const struct tr_job_setting *s = &job->setting[i];
        struct tr_job_slot slot;
        bool used = !tr_job_find(job, s->key, &slot) || tr_job_uses(job, slot.key);
        const tr_option *key = used ? NULL : slot.key;
        for (size_t t = 0; t < whole->tasks && !used && job == whole; t++)
            used =
                tr_job_find(whole->task[t].job, s->key, &slot) && tr_job_uses(whole->task[t].job, slot.key);
        if (!used) return fail_unused_by_method(job, s, key);
    }
    struct tr_job_slot weight;
    if (!has_weight_column(job) || !tr_job_find(job, "data.weight", &weight) || tr_job_uses(job, weight.key))
        return TR_OK;
    return tr_job_fail(tr_job_where(job, "data.columns"),
                       "data.columns: weights of rows are of no use to model.type %s",
                       job->type_key.words[job->model.type]);
}

/* table.push=merge needs complete updates of all workers in the same clock. Updates that are filtered or rounded, and updates that
 * workers push at different times, are sent as messages. */
static int check_merge(const struct tr_job *job)
{
    const char *key = job->table.filter != TR_FILTER_NONE         ? "table.filter"
                      : job->table.precision != TR_PRECISION_FULL ? "table.precision"
                      : job->sync.mode == TR_SYNC_SSP || job->sync.mode == TR_SYNC_ASP
                          ? "sync.mode ssp and asp"
                          : NULL;
    if (job->table.push != TR_PUSH_MERGE || !key) return TR_OK;
    return tr_job_fail(tr_job_where(job, "table.push"),
                       "table.push merge is of no use: with %s updates are not merged", key);
}

int tr_job_held_out(const struct tr_job *job, struct tr_job_held_out *held)
{
    const struct tr_job_list *test = &job->data.test;
    const char *text = test->n == 1 ? test->item[0] : "";
    size_t length = strlen(text);
    bool folds = !strncmp(text, "fold ", 5);
    *held = (struct tr_job_held_out){0};
    if (!folds && (length == 0 || text[length - 1] != '%')) return TR_OK;
    int end = 0, fold = 0, n = 0;
    if (folds && sscanf(text, "fold %d/%d%n", &fold, &n, &end) == 2)
        *held = (struct tr_job_held_out){(double)(fold - 1) / n, (double)fold / n};
    else if (!folds && sscanf(text, "%lf%%%n", &held->to, &end) == 1) held->to /= 100;
    bool is_part = folds ? n >= 2 && fold >= 1 && fold <= n : held->to > 0 && held->to < 1;
    if (is_part && end > 0 && text[end] == '\0') return TR_OK;
    return tr_job_fail(
        tr_job_where(job, "data.test"),
        "data.test is «%s»: expected files, a share of data.train above 0%% and below 100%%, or "
        "«fold 2/5», the second of five",
        tr_shown(text).text);
}

bool tr_job_output_has(const struct tr_job *job, const char *path)
{
    size_t n = strlen(job->output);
    while (n > 1 && job->output[n - 1] == '/') n--;
    return strncmp(path, job->output, n) == 0 && (!path[n] || path[n] == '/');
}

/* Data must not be in the output folder. (The name may seem to be in it although the file is in one of data.folders.) */
static int check_place(const struct tr_job *job, const char *key, const struct tr_job_list *files)
{
    for (size_t i = 0; i < files->n; i++) {
        const char *file = files->item[i];
        glob_t found;
        if (!tr_job_output_has(job, file) || glob(file, GLOB_NOSORT, NULL, &found) != 0) continue;
        globfree(&found);
        return tr_job_fail(tr_job_where(job, key),
                           "%s: %s is in the folder of this run: expected another output", key, file);
    }
    return TR_OK;
}

static int check_settings(const struct tr_job *job)
{
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    TR_TRY(check_place(job, "data.train", &job->data.train));
    TR_TRY(check_place(job, "data.test", &job->data.test));
    if (job->solve.patience > 0 && job->data.test.n == 0)
        return tr_job_fail(tr_job_where(job, "solve.patience"),
                           "solve.patience needs data.test: files, or a share of data.train as 10%%");
    return check_merge(job);
}

/* Checks the stages of the job. A method without a list has no stages; with an empty list the class checks the names. For listed
 * stages the job may set the number of workers only. */
static int check_stages(const struct tr_job *job)
{
    const char *const *names = tr_job_chosen_method(job)->stages;
    size_t n = 0;
    while (names && names[n]) n++;
    if (names && n == 0) return TR_OK;
    TR_TRY(tr_job_check_stages(job, names, n));
    for (size_t i = 0; i < job->stages; i++) {
        const struct tr_job_stage *stage = &job->stage[i];
        char key[96];
        if (stage->clocks == 0 && stage->servers == 0) continue;
        snprintf(key, sizeof key, "stages.%s.%s", stage->name, stage->clocks > 0 ? "clocks" : "servers");
        return tr_job_fail(tr_job_where(job, key),
                           "%s is of no use to solve.method %s: its stages have parallelism alone", key,
                           tr_job_chosen_method(job)->name);
    }
    return TR_OK;
}

int tr_job_check_use(const struct tr_job *job)
{
    if (job->tasks == 0) TR_TRY(check_stages(job));
    TR_TRY(check_use(job, job));
    TR_TRY(check_settings(job));
    for (size_t i = 0; i < job->tasks; i++) {
        TR_TRY(check_use(job->task[i].job, job));
        TR_TRY(check_settings(job->task[i].job));
        if (job->task[i].run != TR_RUN_AVERAGE) TR_TRY(check_stages(job->task[i].job));
    }
    return TR_OK;
}

static int fail_unknown_stage(const struct tr_job_stage *stage, const char *const *names, size_t n)
{
    const char *meant = tr_job_suggest(stage->name, names, n);
    if (n == 0)
        return tr_job_fail(stage->first, "unknown stage %s: this solve.method has no stages of its own",
                           stage->name);
    char list[320] = "";
    for (size_t i = 0, at = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    return tr_job_fail(stage->first, "unknown stage %s: %s%s%sthe method has %s", stage->name,
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

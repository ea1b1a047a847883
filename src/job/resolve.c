/* Converts settings to values: class and method of the job, inheritance of tasks from the whole job. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

/* ---- the settings of one job, weakest first ---- */

struct sources {
    struct tr_job *job;
    struct tr_job *whole;      /* of a task; else NULL */
    struct tr_job_task *task;  /* NULL: none */
    struct tr_job_name prefix; /* of names in messages */
};

/* Returns whether tasks inherit a setting. Name and output identify a run and are not inherited. */
static bool is_inherited(const struct tr_job_setting *s)
{
    return strcmp(s->key, "name") != 0 && strcmp(s->key, "output") != 0;
}

bool tr_job_is_own(const struct tr_job *job, const char *where)
{
    for (size_t i = 0; where && i < job->settings; i++)
        if (job->setting[i].where == where) return true;
    return false;
}

/* Returns the last setting of a key, which has the highest priority. */
static struct tr_job_setting *last_of(struct sources *from, const char *key)
{
    struct tr_job_setting *last = NULL;
    for (int layer = 0; layer < 4; layer++) {
        struct tr_job *job = layer % 2 ? from->job : from->whole;
        for (size_t i = 0; job && i < job->settings; i++)
            if (job->setting[i].commanded == layer / 2 && !strcmp(job->setting[i].key, key))
                last = &job->setting[i];
    }
    return last;
}

static int set_value(struct sources *from, struct tr_job_setting *s, bool inherited)
{
    struct tr_job_slot slot;
    if (inherited && strchr(s->key, '.') == NULL &&
        tr_job_find_in(tr_job_task_values(from->task), s->key, &slot))
        return TR_OK; /* a key of tasks, which the whole job does not have */
    if (!tr_job_find_of(from->job, from->task, s->key, &slot))
        return TR_OK; /* reported later if no job uses it */
    struct tr_job_name name = tr_job_join(inherited ? "" : from->prefix.text, s->key);
    s->used = true;
    bool chosen = slot.key == &from->job->type_key || slot.key == &from->job->method_key;
    if (chosen && from->job->reader == TR_JOB_FOREIGN) return TR_OK;
    if (inherited && last_of(from, s->key) != s)
        return TR_OK; /* the task overrides it; the inherited value may be for another class */
    if (*slot.where && !s->commanded && !inherited && tr_job_is_own(from->job, *slot.where))
        return tr_job_fail(s->where, "%s is given twice: first at %s", name.text, *slot.where);
    TR_TRY(tr_job_set(&slot, s, name.text));
    *slot.where = s->where;
    return TR_OK;
}

static int set_values(struct sources *from)
{
    for (int commanded = 0; commanded < 2; commanded++) {
        for (size_t i = 0; from->whole && i < from->whole->settings; i++) {
            struct tr_job_setting *s = &from->whole->setting[i];
            if (s->commanded == commanded && is_inherited(s)) TR_TRY(set_value(from, s, true));
        }
        for (size_t i = 0; i < from->job->settings; i++) {
            struct tr_job_setting *s = &from->job->setting[i];
            if (s->commanded == commanded) TR_TRY(set_value(from, s, false));
        }
    }
    return TR_OK;
}

/* ---- class and method ---- */

int tr_job_method(const struct tr_job *job)
{
    return job->solve.word - 1;
}

int tr_job_type(const struct tr_job *job)
{
    const char *word = job->type_key.words[job->model.type];
    int i = 0;
    while (job->class->types[i] && strcmp(job->class->types[i], word) != 0) i++;
    return i;
}

/* The path is relative to the folder of the job file, or to the current folder if it comes from the command line. */
static int load_plugin(struct tr_job *job, const struct tr_job_setting *s,
                       const struct tr_model_class **class)
{
    const char *path = s->item[0], *slash = strrchr(job->path, '/');
    bool by_file = *path != '/' && !s->commanded && slash;
    char *whole, *real;
    TR_TRY(by_file ? tr_format(&whole, "%.*s/%s", (int)(slash - job->path), job->path, path)
                   : tr_format(&whole, "%s%s", *path == '/' ? "" : "./", path));
    int status = tr_plugin_load(whole, s->where, class);
    real = status == TR_OK ? realpath(whole, NULL) : NULL;
    free(whole);
    if (real) {
        free(s->item[0]);
        s->item[0] = real;
    }
    return status;
}

/* Sets model.type or solve.method, whose words depend on the job. */
static int choose(struct sources *from, tr_option *key, const char *name, const char **words,
                  const char *otherwise)
{
    struct tr_job_setting *s = from->job->reader == TR_JOB_FOREIGN ? NULL : last_of(from, name);
    const char *where = NULL;
    for (size_t i = 0; i < tr_job_tables[TR_TABLE_JOB].n; i++)
        if (!strcmp(tr_job_tables[TR_TABLE_JOB].key[i].name, name)) *key = tr_job_tables[TR_TABLE_JOB].key[i];
    key->words = words;
    struct tr_job_slot slot = {key, (char *)from->job + key->offset, &where};
    return s ? tr_job_set(&slot, s, name) : tr_job_set_default(&slot, otherwise);
}

/* Returns the i-th possible class: the class of the program; or the built-in classes and then the class of the plugin (NULL: none).
 * A job that Trireme has written may use the class of any loaded plugin. */
static const tr_model_class *class_at(const struct tr_job *job, size_t i, const tr_model_class *extra)
{
    if (job->own) return i == 0 ? job->own : NULL;
    if (i < tr_model_class_count) return tr_model_classes[i];
    i -= tr_model_class_count;
    if (extra) return i == 0 ? extra : NULL;
    const struct tr_plugin *p = job->reader == TR_JOB_WRITTEN ? tr_plugin_number(i) : NULL;
    return p ? p->class : NULL;
}

static int choose_class(struct sources *from)
{
    struct tr_job *job = from->job;
    struct tr_job_setting *plugin = last_of(from, "model.plugin");
    const tr_model_class *extra = NULL, *class;
    const char **words = NULL;
    size_t n = 0, capacity = 0;
    bool named_now = plugin && (job->reader == TR_JOB_STRICT || plugin->commanded);
    bool loads = named_now && !plugin->list && *plugin->item[0] && job->reader != TR_JOB_FOREIGN;
    if (loads && job->own)
        return tr_job_fail(plugin->where, "model.plugin: this program brings its class of models itself");
    if (loads) TR_TRY(load_plugin(job, plugin, &extra));
    for (size_t c = 0; (class = class_at(job, c, extra)); c++)
        for (size_t i = 0; class->types[i]; i++) {
            TR_TRY(TR_GROW(&words, &capacity, n + 2));
            words[n++] = class->types[i];
        }
    words[n] = NULL;
    const char *usual = extra ? extra->types[0] : job->own ? words[0] : "auto";
    TR_TRY(choose(from, &job->type_key, "model.type", words, usual));
    n = (size_t)job->model.type;
    for (size_t c = 0; (class = class_at(job, c, extra)) && !job->class; c++)
        for (size_t i = 0; class->types[i]; i++)
            if (n-- == 0) job->class = class;
    return TR_OK;
}

static bool has_method(const tr_model_class *class, const char *word)
{
    const tr_method *m = class->methods;
    while (m->name && strcmp(m->name, word) != 0) m++;
    return m->name != NULL;
}

/* Refuses a method of another class; most likely the user has forgotten model.type. */
static int refuse_method_of_another(struct sources *from)
{
    const struct tr_job *job = from->job;
    struct tr_job_setting *s = job->reader == TR_JOB_FOREIGN ? NULL : last_of(from, "solve.method");
    const tr_model_class *class;
    if (!s || s->list || !strcmp(s->item[0], "auto") || has_method(job->class, s->item[0])) return TR_OK;
    for (size_t c = 0; (class = class_at(job, c, NULL)); c++)
        if (has_method(class, s->item[0]))
            return tr_job_fail(s->where, "solve.method %s is for %s, and model.type is %s", s->item[0],
                               class->name, job->type_key.words[job->model.type]);
    return TR_OK;
}

static int choose_method(struct sources *from)
{
    struct tr_job *job = from->job;
    const char **words;
    TR_TRY(refuse_method_of_another(from));
    size_t n = 0;
    while (job->class->methods[n].name) n++;
    TR_TRY(TR_NEW(&words, n + 2));
    words[0] = "auto";
    for (size_t i = 0; i < n; i++) words[i + 1] = job->class->methods[i].name;
    TR_TRY(choose(from, &job->method_key, "solve.method", words, "auto"));
    return TR_OK;
}

const tr_method *tr_job_chosen_method(const struct tr_job *job)
{
    return &job->class->methods[tr_max_int(job->solve.word, 1) - 1];
}

static bool rule_is_for(const tr_rule *rule, const struct tr_job *job, const char *key)
{
    size_t length = strlen(rule->key);
    bool section = length > 1 && rule->key[length - 1] == '*';
    return (section ? !strncmp(rule->key, key, length - 1) : !strcmp(rule->key, key)) &&
           tr_job_among(rule->methods, tr_job_chosen_method(job)->name);
}

static const char *default_of(const struct tr_job *job, const tr_option *key)
{
    for (const tr_rule *rule = job->class->rules; rule && rule->key; rule++)
        if (rule->value && rule_is_for(rule, job, key->name)) return rule->value;
    return key->by_default;
}

bool tr_job_uses(const struct tr_job *job, const tr_option *key)
{
    for (const tr_rule *rule = job->class->rules; rule && rule->key; rule++)
        if (rule->unused && rule_is_for(rule, job, key->name)) return false;
    return tr_job_among(key->methods, tr_job_chosen_method(job)->name);
}

/* ---- one job ---- */

/* Merges the stages of a task and of the whole job; those of the whole job come first. */
static int merge_stages(struct sources *from)
{
    struct tr_job *job = from->job;
    struct tr_job_stage *own = job->stage;
    size_t n = job->stages;
    int status = TR_OK;
    job->stage = NULL;
    job->stages = 0;
    for (size_t i = 0; i < from->whole->stages && status == TR_OK; i++)
        status = tr_job_add_stage(job, from->whole->stage[i].name, 0);
    for (size_t i = 0; i < n && status == TR_OK; i++)
        if (!tr_job_stage_of(job, own[i].name)) status = tr_job_add_stage(job, own[i].name, 0);
    for (size_t i = 0; i < job->stages && status == TR_OK; i++) {
        const struct tr_job_stage *first = tr_job_stage_of(from->whole, job->stage[i].name);
        for (size_t k = 0; k < n; k++)
            if (!strcmp(own[k].name, job->stage[i].name)) first = &own[k];
        free(job->stage[i].first);
        job->stage[i].first = NULL;
        status = tr_copy_string(first->first, &job->stage[i].first);
    }
    tr_job_free_stages(own, n);
    return status;
}

static int resolve_job(struct sources *from)
{
    struct tr_job *job = from->job;
    TR_TRY(choose_class(from));
    TR_TRY(choose_method(from));
    if (job->class->options_size > 0) TR_TRY(tr_new(&job->options, 1, job->class->options_size, "options"));
    TR_TRY(TR_NEW(&job->where, tr_job_tables[TR_TABLE_JOB].n + tr_job_options(job->class)));
    struct tr_job_values values = tr_job_values(job);
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        if (slot.key != &job->type_key && slot.key != &job->method_key)
            TR_TRY(tr_job_set_default(&slot, default_of(job, slot.key)));
    }
    if (from->whole) TR_TRY(merge_stages(from));
    TR_TRY(set_values(from));
    job->solve.word = tr_max_int(job->solve.word, 1);
    bool on_disk = job->data.storage == TR_LEVEL_DISK || job->data.storage == TR_LEVEL_MEMORY_DISK;
    if (on_disk &&
        !strcmp(tr_job_where(job, "data.partition"), "default")) /* rows on disk cannot be shared */
        job->data.partition = TR_DATA_HORIZONTAL;
    return TR_OK;
}

bool tr_job_is_setting(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    return name > 0 && word[name] == '=' && word[0] != '-';
}

/* Derives the name of the job: ads for jobs/ads.yaml; without a job file, a9a for data.train=a9a/a9a.gz. */
static int name_of_file(struct tr_job *job)
{
    bool none = strcmp(job->path, TR_NO_JOB_FILE) == 0 || strcmp(job->path, TR_STANDARD_INPUT) == 0;
    const char *path = !none ? job->path : job->data.train.n > 0 ? job->data.train.item[0] : "";
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    TR_TRY(tr_copy_string(*base ? base : "job", &job->name));
    char *dot = none ? strchr(job->name + 1, '.') : strrchr(job->name, '.');
    if (dot && dot != job->name && (none || !strcmp(dot, ".yaml") || !strcmp(dot, ".yml"))) *dot = '\0';
    if (tr_utf8_valid(job->name)) return TR_OK;
    return tr_job_fail(job->path, "name is «%s»: expected text (UTF-8)", tr_shown(job->name).text);
}

static int resolve_task(struct tr_job *whole, struct tr_job_task *task)
{
    struct tr_job *job = task->job;
    struct sources from = {job, whole, task, {""}};
    job->own = whole->own;
    job->reader = whole->reader;
    snprintf(from.prefix.text, sizeof from.prefix.text, "tasks.%s.", task->name);
    TR_TRY(resolve_job(&from));
    if (!job->name) TR_TRY(tr_copy_string(task->name, &job->name));
    const char *own = task->run == TR_RUN_BEST ? "best" : task->name; /* only one task runs */
    if (!job->output) TR_TRY(tr_format(&job->output, "%s/%s", whole->output, own));
    /* each task has its own folder within checkpoint.to of the whole job */
    const char *where = tr_job_where(job, "checkpoint.to");
    char *to = job->checkpoint.to;
    if (!*to || tr_job_is_own(job, where)) return TR_OK;
    TR_TRY(tr_format(&job->checkpoint.to, "%s/%s", to, own));
    free(to);
    return TR_OK;
}

/* ---- unused settings ---- */

static int fail_unused(const struct tr_job *job, const struct tr_job_setting *s, const char *name,
                       bool foreign)
{
    char others[160] = "", where[512];
    const struct tr_model_class *class;
    for (size_t n = 0, at = 0; foreign && tr_job_known_key(s->key, n, &class) && at < sizeof others; n++)
        if (class)
            at += (size_t)snprintf(others + at, sizeof others - at, "%s%s", n > 0 ? ", " : "", class->name);
    if (*others && job->own)
        return tr_job_fail(s->where, "%s is for %s, and of no use to this program", name, others);
    if (*others)
        return tr_job_fail(s->where, "%s is for %s, and model.type is %s", name, others,
                           job->type_key.words[job->model.type]);
    snprintf(where, sizeof where, "%s: %s=%s", s->where, tr_shown(name).text,
             s->n ? tr_shown(s->item[0]).text : "");
    return tr_job_fail_unknown(s->commanded ? where : s->where, "key", name,
                               tr_job_suggest_key(job->class, name).text);
}

/* Reports unused settings. Unknown keys are reported before keys of other classes. */
static int check_used(const struct tr_job *job, const char *prefix)
{
    const struct tr_model_class *class;
    for (int foreign = 0; foreign < 2; foreign++)
        for (size_t i = 0; i < job->settings; i++) {
            const struct tr_job_setting *s = &job->setting[i];
            if (!s->used && foreign == !!tr_job_known_key(s->key, 0, &class))
                return fail_unused(job, s, tr_job_join(prefix, s->key).text, foreign);
        }
    return TR_OK;
}

int tr_job_resolve(struct tr_job *job)
{
    bool strict = job->reader == TR_JOB_STRICT;
    struct sources from = {job, NULL, NULL, {""}};
    TR_TRY(resolve_job(&from));
    if (!job->name) TR_TRY(name_of_file(job));
    if (!job->output) TR_TRY(tr_format(&job->output, "runs/%s", job->name));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(resolve_task(job, &job->task[i]));
    if (strict) TR_TRY(check_used(job, ""));
    for (size_t i = 0; i < job->tasks && strict; i++) {
        struct tr_job_name prefix;
        snprintf(prefix.text, sizeof prefix.text, "tasks.%s.", job->task[i].name);
        TR_TRY(check_used(job->task[i].job, prefix.text));
    }
    TR_TRY(tr_job_link_tasks(job));
    return tr_job_check_tasks(job);
}

/* Resolves a job whose class is unknown in this process: the keys of the class are ignored. */
static const tr_model_class foreign_class = {
    .name = "foreign",
    .types = TR_WORDS("foreign"),
    .methods =
        (const tr_method[]){{.name = "foreign", .stages = (const char *const[]){NULL}}, {.name = NULL}}};

int tr_job_parse_as(enum tr_job_reader reader, const tr_model_class *own, const char *text, size_t length,
                    const char *path, int n, char *const overrides[], struct tr_job **result)
{
    struct tr_job *job = NULL;
    int status = tr_job_new(path, &job);
    if (status == TR_OK) {
        job->reader = reader;
        job->own = reader == TR_JOB_FOREIGN ? &foreign_class : own;
        status = tr_job_read_yaml(job, text, length);
    }
    for (int i = 0; i < n && status == TR_OK; i++) status = tr_job_add_override(job, overrides[i]);
    if (status == TR_OK) status = tr_job_resolve(job);
    if (status == TR_OK) *result = job;
    else tr_job_free(job);
    return status;
}

int tr_job_parse(const char *text, size_t length, const char *path, int n, char *const overrides[],
                 struct tr_job **result)
{
    return tr_job_parse_as(TR_JOB_STRICT, NULL, text, length, path, n, overrides, result);
}

int tr_job_read(const char *path, int n, char *const overrides[], struct tr_job **job)
{
    char *text = NULL;
    size_t length = 0;
    int status = tr_job_read_text(path, &text, &length);
    if (status == TR_OK) status = tr_job_parse(text, length, path, n, overrides, job);
    free(text);
    return status;
}

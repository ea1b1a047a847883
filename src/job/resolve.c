/* From settings to values: where names lead, which class and method a job has, and what a task takes from the whole job. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "job/text.h"

enum { MOST_STAGES = 64, MOST_TASKS = 1024 }; /* each lookup walks over them */

static const char command_line[] = "command line";

/* ---- the values of a table ---- */

/* All are for reading when what they belong to is const. */
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

/* Options of a class lie in its own struct. */
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

static void free_stages(struct tr_job_stage *stage, size_t n)
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
    free_stages(job->stage, job->stages);
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

static int place(const struct tr_job *job, size_t line, char **where)
{
    return line ? tr_format(where, "%s:%zu", job->path, line) : tr_copy_string(command_line, where);
}

static int fail_at(const struct tr_job *job, size_t line, const char *text)
{
    char *where;
    TR_TRY(place(job, line, &where));
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
    job->stages++; /* from now on it is freed with the job */
    TR_TRY(TR_NEW(&stage->where, tr_job_tables[TR_TABLE_STAGE].n));
    TR_TRY(tr_copy_string(name, &stage->name));
    TR_TRY(place(job, line, &stage->first));
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
    TR_TRY(place(job, line, &task->first));
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

/* ---- names ---- */

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
static bool find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot)
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
        if (!*route->stage && find_in(tr_job_task_values(task), route->key, slot)) return true;
        job = task->job;
    }
    if (!*route->stage) return find_in(tr_job_values(job), route->key, slot);
    const struct tr_job_stage *stage = tr_job_stage_of(job, route->stage);
    return stage && find_in(tr_job_stage_values(stage), route->key, slot);
}

bool tr_job_find(const struct tr_job *job, const char *name, struct tr_job_slot *slot)
{
    struct route route = find_route(name);
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
    TR_TRY(place(job, line, &s->where));
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
        bool by_file = job->tasks > 0 && strcmp(job->task[0].first, command_line) != 0;
        if (!task && line == 0 && by_file)
            return tr_job_fail_unknown(command_line, "task", route.task,
                                       tr_job_suggest_task(job, route.task));
        if (!task) TR_TRY(tr_job_add_task(job, route.task, line));
        job = tr_job_task_of(job, route.task)->job;
        key = route.own;
    }
    if (*route.stage && !tr_job_stage_of(job, route.stage)) TR_TRY(tr_job_add_stage(job, route.stage, line));
    return add_setting(job, key, line, item, setting);
}

/* «--epochs 3» or «--epochs=3», as other programs have it: solve.epochs=3 is meant; or an option, misspelt. */
static int fail_option(const char *argument, const char *next)
{
    static const char *const options[] = {"--fresh", "--explain", "--max-time"};
    struct tr_job_name name = {""};
    const char *equals = strchr(argument, '='), *value = equals ? equals + 1 : next;
    snprintf(name.text, sizeof name.text, "%.*s", (int)strcspn(argument, "="), argument);
    char *key = name.text + strspn(name.text, "-");
    const char *meant = tr_job_suggest(name.text, options, sizeof options / sizeof *options);
    for (char *c = key; *c; c++) /* --max-bins is max_bins */
        if (*c == '-') *c = '_';
    struct tr_job_name setting = tr_job_suggest_key(NULL, key);
    bool is_key = *setting.text && (!meant || strcmp(tr_job_own_name(setting.text), key) == 0);
    bool takes = value && value[0] != '-' && !strchr(value, '=');
    if (is_key)
        return tr_fail(TR_ERR_USAGE, "unknown option %s: did you mean %s=%s?", tr_shown(argument).text,
                       setting.text, takes ? tr_shown(value).text : "…");
    return tr_fail(TR_ERR_USAGE, "unknown option %s: %s%s%s", tr_shown(argument).text,
                   meant ? "did you mean " : "settings are section.key=value", meant ? meant : "",
                   meant ? "?" : "");
}

/* «key=value» of the command line; next: the word behind it, or NULL. */
static int add_override(struct tr_job *job, const char *argument, const char *next)
{
    const char *equals = strchr(argument, '=');
    if (argument[0] == '-') return fail_option(argument, next);
    if (!equals)
        return tr_fail(TR_ERR_USAGE, "command line: «%s»: expected section.key=value",
                       tr_shown(argument).text);
    struct tr_job_name name = {""};
    memcpy(name.text, argument, tr_min_size((size_t)(equals - argument), sizeof name.text - 1));
    const struct tr_job_section *section = tr_job_find_section(name.text);
    const char *key = section && section->short_for ? section->short_for : name.text;
    const struct tr_model_class *class;
    if (!equals[1] && tr_job_known_key(key, 0, &class))
        return tr_job_fail(command_line, "%s has no value", key);
    return tr_job_add(job, key, 0, equals + 1, NULL);
}

/* ---- the settings of one job, weakest first ---- */

struct sources {
    struct tr_job *job;
    struct tr_job *whole;      /* of a task; NULL */
    struct tr_job_task *task;  /* NULL: none */
    struct tr_job_name prefix; /* of names in messages */
};

typedef int setting_fn(struct sources *from, struct tr_job_setting *s, bool inherited);

/* Name and output say which run it is: those of the whole job are not the task's. */
static bool is_inherited(const struct tr_job_setting *s)
{
    return strcmp(s->key, "name") != 0 && strcmp(s->key, "output") != 0;
}

static int each_setting(struct sources *from, setting_fn *call)
{
    for (int commanded = 0; commanded < 2; commanded++) {
        for (size_t i = 0; from->whole && i < from->whole->settings; i++) {
            struct tr_job_setting *s = &from->whole->setting[i];
            if (s->commanded == commanded && is_inherited(s)) TR_TRY(call(from, s, true));
        }
        for (size_t i = 0; i < from->job->settings; i++) {
            struct tr_job_setting *s = &from->job->setting[i];
            if (s->commanded == commanded) TR_TRY(call(from, s, false));
        }
    }
    return TR_OK;
}

static bool find_slot(const struct sources *from, const char *key, struct tr_job_slot *slot)
{
    struct route route = {.key = key};
    take(&route, "stages", route.stage);
    if (from->task && !*route.stage && find_in(tr_job_task_values(from->task), key, slot)) return true;
    return follow(from->job, &route, slot);
}

bool tr_job_is_own(const struct tr_job *job, const char *where)
{
    for (size_t i = 0; where && i < job->settings; i++)
        if (job->setting[i].where == where) return true;
    return false;
}

/* The last setting of a key is the strongest. */
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
    if (inherited && strchr(s->key, '.') == NULL && find_in(tr_job_task_values(from->task), s->key, &slot))
        return TR_OK;                                  /* a key of tasks, which the whole job does not have */
    if (!find_slot(from, s->key, &slot)) return TR_OK; /* told when all jobs have had their chance */
    struct tr_job_name name = tr_job_join(inherited ? "" : from->prefix.text, s->key);
    s->used = true;
    bool chosen = slot.key == &from->job->type_key || slot.key == &from->job->method_key;
    if (chosen && from->job->reader == TR_JOB_FOREIGN) return TR_OK;
    if (inherited && last_of(from, s->key) != s)
        return TR_OK; /* perhaps for another class: what it says is its own */
    if (*slot.where && !s->commanded && !inherited && tr_job_is_own(from->job, *slot.where))
        return tr_job_fail(s->where, "%s is given twice: first at %s", name.text, *slot.where);
    TR_TRY(tr_job_set(&slot, s, name.text));
    *slot.where = s->where;
    return TR_OK;
}

/* ---- class and method ---- */

/* What is at the folder of the job file, if a file says it, else at the present one. */
static int load_plugin(struct tr_job *job, const struct tr_job_setting *s,
                       const struct tr_model_class **class)
{
    const char *path = s->item[0], *slash = strrchr(job->path, '/');
    bool by_file = *path != '/' && !s->commanded && slash;
    char *whole, *real;
    TR_TRY(by_file ? tr_format(&whole, "%.*s/%s", (int)(slash - job->path), job->path, path)
                   : tr_format(&whole, "%s%s", *path == '/' ? "" : "./", path));
    real = realpath(whole, NULL);
    int status = tr_plugin_load(real ? real : whole, s->where, class);
    free(whole);
    if (status == TR_OK && real) {
        free(s->item[0]);
        s->item[0] = real;
    } else free(real);
    return status;
}

/* Sets one of the two choices whose words the job has itself. */
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

/* The program's own; or those that Trireme brings, and behind them that of the plugin (NULL: none). */
static const tr_model_class *class_at(const struct tr_job *job, size_t i, const tr_model_class *extra)
{
    if (job->own) return i == 0 ? job->own : NULL;
    return i < tr_model_class_count ? tr_model_classes[i] : i == tr_model_class_count ? extra : NULL;
}

static int choose_class(struct sources *from)
{
    struct tr_job *job = from->job;
    struct tr_job_setting *plugin = last_of(from, "model.plugin");
    const tr_model_class *extra = NULL, *class;
    const char **words = NULL;
    size_t n = 0, capacity = 0;
    bool loads = plugin && !plugin->list && *plugin->item[0] && job->reader != TR_JOB_FOREIGN;
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

static int choose_method(struct sources *from)
{
    struct tr_job *job = from->job;
    const char **words;
    size_t n = 0;
    while (job->class->methods[n].name) n++;
    TR_TRY(TR_NEW(&words, n + 2));
    words[0] = "auto";
    for (size_t i = 0; i < n; i++) words[i + 1] = job->class->methods[i].name;
    TR_TRY(choose(from, &job->method_key, "solve.method", words, "auto"));
    return TR_OK;
}

static const tr_method *method_of(const struct tr_job *job)
{
    return &job->class->methods[tr_max_int(job->solve.word, 1) - 1];
}

static bool rule_is_for(const tr_rule *rule, const struct tr_job *job, const char *key)
{
    size_t length = strlen(rule->key);
    bool section = length > 1 && rule->key[length - 1] == '*';
    return (section ? !strncmp(rule->key, key, length - 1) : !strcmp(rule->key, key)) &&
           tr_job_among(rule->methods, method_of(job)->name);
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
    return tr_job_among(key->methods, method_of(job)->name);
}

/* ---- one job ---- */

/* Those that the whole job speaks of come first. */
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
    free_stages(own, n);
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
    TR_TRY(each_setting(from, set_value));
    job->solve.word = tr_max_int(job->solve.word, 1);
    bool on_disk = job->data.storage == TR_LEVEL_DISK || job->data.storage == TR_LEVEL_MEMORY_DISK;
    if (on_disk &&
        !strcmp(tr_job_where(job, "data.partition"), "default")) /* rows on a disk are nobody else's */
        job->data.partition = TR_DATA_HORIZONTAL;
    return TR_OK;
}

bool tr_job_is_setting(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    return name > 0 && word[name] == '=' && word[0] != '-';
}

/* jobs/ads.yaml is called ads; without a job file, what is learnt from a9a/a9a.gz is called a9a. */
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
    const char *own = task->run == TR_RUN_BEST ? "best" : task->name; /* of which there is one */
    if (!job->output) TR_TRY(tr_format(&job->output, "%s/%s", whole->output, own));
    /* in a folder for the checkpoints of the whole job each task has one of its own */
    const char *where = tr_job_where(job, "checkpoint.to");
    char *to = job->checkpoint.to;
    if (!*to || tr_job_is_own(job, where)) return TR_OK;
    TR_TRY(tr_format(&job->checkpoint.to, "%s/%s", to, own));
    free(to);
    return TR_OK;
}

/* ---- what nobody had a use for ---- */

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

/* Keys that do not exist come before those of other classes. */
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
    return tr_job_check_tasks(job);
}

/* Of a job whose class is another process's: its keys mean nothing here. */
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
    for (int i = 0; i < n && status == TR_OK; i++)
        status = add_override(job, overrides[i], i + 1 < n ? overrides[i + 1] : NULL);
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

/* ---- whether the settings are of use ---- */

static int fail_unused_by_method(const struct tr_job *job, const struct tr_job_setting *s,
                                 const tr_option *key)
{
    const char *method = method_of(job)->name, *type = job->type_key.words[job->model.type];
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

/* Merges are of whole updates, of all workers at once: what filters or rounding leave of them travels as messages, and so
 * does what workers push at their own pace. */
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

static int check_settings(const struct tr_job *job)
{
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    if (job->solve.patience > 0 && job->data.test.n == 0)
        return tr_job_fail(tr_job_where(job, "solve.patience"),
                           "solve.patience needs data.test: files, or a share of data.train as 10%%");
    return check_merge(job);
}

/* Where the method has no list of stages there are none; an empty list leaves it to the class. */
static int check_stages(const struct tr_job *job)
{
    const char *const *names = method_of(job)->stages;
    size_t n = 0;
    while (names && names[n]) n++;
    return names && n == 0 ? TR_OK : tr_job_check_stages(job, names, n);
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

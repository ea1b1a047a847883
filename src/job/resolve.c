/* Converts settings to values: class and method of the job, plugins, inheritance of tasks from the whole job; and checks that the
 * values are used and fit together. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/file.h"

/* ---- classes of models from outside: in a shared object (model.plugin) or in the program ---- */

#define OTHER_VERSION "it is for version %d of trireme/model.h, this is version %d"

/* Returns the fault of option i as a text, or NULL if it has none. */
static const char *class_find_fault(const tr_model_class *c, size_t i)
{
    const tr_option *o = &c->options[i];
    const struct tr_model_class *other;
    if (strncmp(o->name, "model.", 6) != 0 && strncmp(o->name, "solve.", 6) != 0)
        return "is not in section model or solve";
    if (tr_job_known_key(o->name, 0, &other) && !other) return "is a key of all models";
    for (size_t k = 0; k < i; k++)
        if (!strcmp(c->options[k].name, o->name)) return "is listed twice";
    if (o->kind == TR_KIND_NONE || o->kind > TR_KIND_CHOICE) return "has no kind that there is";
    if (o->kind == TR_KIND_CHOICE && !o->words) return "is a choice without words";
    if (!o->by_default || !o->help) return "has no default, or no help";
    return o->offset >= c->options_size ? "lies outside of the struct of options" : NULL;
}

int tr_class_check(const char *place, const char *what, const tr_model_class *c, bool trains_itself)
{
    if (c->abi != TR_MODEL_ABI) return tr_job_fail(place, "%s: " OTHER_VERSION, what, c->abi, TR_MODEL_ABI);
    const char *fault = NULL;
    if (!c->name || !c->types || !c->types[0] || !c->noun || !c->help || !c->format)
        fault = "lacks a name, types, a noun, help or a format";
    else if (!c->methods || !c->methods[0].name || !c->data_formats || !c->data_formats[0])
        fault = "has no methods or reads no format of data";
    else if (!trains_itself && (c->model_size == 0 || !c->open || !c->train || !c->fields || !c->close))
        fault = "lacks model_size, open, train, fields or close";
    else if (tr_model_class_of_format(c->format)) fault = "has the format of model files of another class";
    for (size_t t = 0; !fault && !trains_itself && c->types[t];
         t++) /* a class of the program is the only class */
        for (size_t k = 0; k < tr_model_class_count; k++)
            for (size_t i = 0; tr_model_classes[k]->types[i]; i++)
                if (!strcmp(tr_model_classes[k]->types[i], c->types[t]))
                    fault = "has a model.type of another class";
    if (fault) return tr_job_fail(place, "%s: the class %s", what, fault);
    for (size_t i = 0; i < tr_job_options(c); i++)
        if ((fault = class_find_fault(c, i)))
            return tr_job_fail(place, "%s: option %.60s %s", what, c->options[i].name, fault);
    return TR_OK;
}

enum { MOST_PLUGINS = 64 };

/* The plugins of this process. They are never unloaded. Their descriptors stay open: plugin_open() loads /proc/self/fd/N, and if N
 * were used for another file, dlopen() would return the old library for the same name. */
static struct tr_plugin plugins[MOST_PLUGINS];
static size_t n_plugins;

const struct tr_plugin *tr_plugin_of(const tr_model_class *class)
{
    for (size_t i = 0; i < n_plugins; i++)
        if (plugins[i].class == class) return &plugins[i];
    return NULL;
}

static int plugin_checksum(int fd, uint64_t *checksum)
{
    char piece[1 << 14];
    ssize_t n;
    XXH3_state_t *state = XXH3_createState();
    if (!state) return tr_fail(TR_ERR_SYSTEM, "out of memory for a checksum");
    XXH3_64bits_reset(state);
    for (off_t at = 0; (n = pread(fd, piece, sizeof piece, at)) > 0; at += n)
        XXH3_64bits_update(state, piece, (size_t)n);
    *checksum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return n < 0 ? tr_fail(TR_ERR_NO_INPUT, "cannot be read: %s", strerror(errno)) : TR_OK;
}

/* Loads the plugin in an open file. The texts of errors do not contain the path, which the caller adds. */
static int plugin_open(int fd, struct tr_plugin *p)
{
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (n_plugins == MOST_PLUGINS) return tr_fail(TR_ERR_CONFIG, "more than %d plugins", MOST_PLUGINS);
    TR_TRY(plugin_checksum(fd, &p->checksum));
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        size_t n = strlen(name);
        bool names_it = strncmp(why, name, n) == 0 && strncmp(why + n, ": ", 2) == 0;
        return tr_fail(TR_ERR_NO_INPUT, "%s", names_it ? why + n + 2 : why);
    }
    p->class = dlsym(library, "tr_plugin");
    if (!p->class)
        return tr_fail(TR_ERR_NO_INPUT, "it has no tr_plugin: expected a tr_model_class of this name");
    if (p->class->abi != TR_MODEL_ABI)
        return tr_fail(TR_ERR_NO_INPUT, OTHER_VERSION, p->class->abi, TR_MODEL_ABI);
    return TR_OK;
}

/* Loads a plugin, once per file. Call it only for a path from the user, never for a path from a model or a checkpoint. The file must
 * pass tr_open_code(). TR_ERR_NO_INPUT, TR_ERR_NO_PERM, TR_ERR_CONFIG; the text of the error starts with `place`. */
static int plugin_load(const char *path, const char *place, const struct tr_model_class **class)
{
    struct tr_plugin new = {.checksum = 0};
    struct stat file;
    const char *slash = strrchr(path, '/');
    int fd, status = tr_open_code(path, &fd);
    if (status == TR_OK && fstat(fd, &file) < 0) status = tr_fail(TR_ERR_NO_INPUT, "%s", strerror(errno));
    for (size_t i = 0; status == TR_OK && i < n_plugins; i++)
        if (plugins[i].device == file.st_dev && plugins[i].inode == file.st_ino) {
            close(fd);
            *class = plugins[i].class;
            return TR_OK;
        }
    char what[200];
    snprintf(what, sizeof what, "model.plugin %s", tr_shown(path).text);
    if (status == TR_OK) status = plugin_open(fd, &new);
    if (status != TR_OK) {
        char why[640];
        snprintf(why, sizeof why, "%s", tr_error_text());
        return tr_fail(status, "%s: %s: %s", place, what, why);
    }
    TR_TRY(tr_class_check(place, what, new.class, false));
    new.device = file.st_dev;
    new.inode = file.st_ino;
    TR_TRY(tr_copy_string(slash ? slash + 1 : path, &new.name));
    plugins[n_plugins++] = new;
    *class = new.class;
    return TR_OK;
}

/* ---- the settings of one job, weakest first ---- */

struct sources {
    struct tr_job *job;
    struct tr_job *whole;      /* the whole job if `job` is that of a task; otherwise NULL */
    struct tr_job_task *task;  /* the task that runs `job`; NULL: it is the whole job */
    struct tr_job_name prefix; /* prefix of names in messages: "" or "tasks.NAME." */
};

bool tr_job_is_own(const struct tr_job *job, const char *where)
{
    for (size_t i = 0; where && i < job->settings; i++)
        if (job->setting[i].where == where) return true;
    return false;
}

/* Returns the setting of a key with the highest priority. From the lowest to the highest: settings of the whole job in the file, of
 * the task in the file, of the whole job on the command line, of the task on the command line. */
static struct tr_job_setting *last_of(const struct sources *from, const char *key)
{
    struct tr_job_setting *last = NULL;
    for (int layer = 0; layer < 4; layer++) {
        const struct tr_job *job = layer % 2 ? from->job : from->whole;
        for (size_t i = 0; job && i < job->settings; i++)
            if (job->setting[i].commanded == layer / 2 && !strcmp(job->setting[i].key, key))
                last = &job->setting[i];
    }
    return last;
}

static int set_value(const struct sources *from, struct tr_job_setting *s, bool inherited)
{
    struct tr_job_slot slot;
    /* Name and output identify a run and are not inherited; keys of tasks are not keys of the whole job. */
    if (inherited && (!strcmp(s->key, "name") || !strcmp(s->key, "output"))) return TR_OK;
    if (inherited && !strchr(s->key, '.') && tr_job_find_in(tr_job_task_values(from->task), s->key, &slot))
        return TR_OK;
    if (!tr_job_find_of(from->job, from->task, s->key, &slot))
        return TR_OK; /* check_known() reports it if no job has the key */
    struct tr_job_name name = tr_job_join(inherited ? "" : from->prefix.text, s->key);
    s->used = true;
    bool chosen = slot.key == &from->job->type_key || slot.key == &from->job->method_key;
    if (chosen && from->job->reader == TR_JOB_FOREIGN) return TR_OK;
    if (inherited && last_of(from, s->key) != s)
        return TR_OK; /* the task overrides it: the value may not fit the task's class */
    if (*slot.where && !s->commanded && !inherited && tr_job_is_own(from->job, *slot.where))
        return tr_job_fail(s->where, "%s is given twice: first at %s", name.text, *slot.where);
    TR_TRY(tr_job_set(&slot, s, name.text));
    *slot.where = s->where;
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

/* Loads the plugin of a setting of model.plugin. The path is relative to the folder of the job file, or to the current folder if
 * the setting comes from the command line. */
static int load_plugin(struct tr_job *job, const struct tr_job_setting *s,
                       const struct tr_model_class **class)
{
    const char *path = s->value.item[0], *slash = strrchr(job->path, '/');
    bool by_file = *path != '/' && !s->commanded && slash;
    TR_FREED char *whole = NULL;
    TR_TRY(by_file ? tr_format(&whole, "%.*s/%s", (int)(slash - job->path), job->path, path)
                   : tr_format(&whole, "%s%s", *path == '/' ? "" : "./", path));
    TR_TRY(plugin_load(whole, s->where, class));
    char *real = realpath(whole, NULL);
    if (!real) return TR_OK;
    free(s->value.item[0]);
    s->value.item[0] = real;
    return TR_OK;
}

/* Sets model.type or solve.method, whose possible words depend on the job. otherwise: the default. */
static int choose(const struct sources *from, tr_option *key, const char *name, const char **words,
                  const char *otherwise)
{
    struct tr_job_setting *s = from->job->reader == TR_JOB_FOREIGN ? NULL : last_of(from, name);
    const char *where = NULL;
    const struct tr_model_class *class;
    *key = *tr_job_known_key(name, 0, &class);
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
    return job->reader == TR_JOB_WRITTEN && i < n_plugins ? plugins[i].class : NULL;
}

static int choose_class(const struct sources *from)
{
    struct tr_job *job = from->job;
    struct tr_job_setting *plugin = last_of(from, "model.plugin");
    const tr_model_class *extra = NULL, *class;
    const char **words = NULL;
    size_t n = 0, capacity = 0;
    bool named_now = plugin && (job->reader == TR_JOB_STRICT || plugin->commanded);
    bool loads = named_now && !plugin->list && *plugin->value.item[0] && job->reader != TR_JOB_FOREIGN;
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

static bool class_has_method(const tr_model_class *class, const char *word)
{
    const tr_method *m = class->methods;
    while (m->name && strcmp(m->name, word) != 0) m++;
    return m->name != NULL;
}

static int choose_method(const struct sources *from)
{
    struct tr_job *job = from->job;
    const struct tr_job_setting *s = job->reader == TR_JOB_FOREIGN ? NULL : last_of(from, "solve.method");
    const char *word = s && !s->list ? s->value.item[0] : "auto", **words;
    const tr_model_class *class;
    size_t n = 0;
    /* If another class has the method, the user has most likely forgotten model.type. */
    bool has = strcmp(word, "auto") == 0 || class_has_method(job->class, word);
    for (size_t c = 0; !has && (class = class_at(job, c, NULL)); c++)
        if (class_has_method(class, word))
            return tr_job_fail(s->where, "solve.method %s is for %s, and model.type is %s", word, class->name,
                               job->type_key.words[job->model.type]);
    while (job->class->methods[n].name) n++;
    TR_TRY(TR_NEW(&words, n + 2));
    words[0] = "auto";
    for (size_t i = 0; i < n; i++) words[i + 1] = job->class->methods[i].name;
    return choose(from, &job->method_key, "solve.method", words, "auto");
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

bool tr_job_uses(const struct tr_job *job, const tr_option *key)
{
    for (const tr_rule *rule = job->class->rules; rule && rule->key; rule++)
        if (rule->unused && rule_is_for(rule, job, key->name)) return false;
    return tr_job_among(key->methods, tr_job_chosen_method(job)->name);
}

/* ---- one job ---- */

/* Adds the stages of the whole job before those of a task. Stages of the same name become one stage. */
static int merge_stages(const struct sources *from)
{
    struct tr_job *job = from->job;
    struct tr_job_stage *own = job->stage;
    const struct tr_job *whole = from->whole;
    size_t n = job->stages;
    int status = TR_OK;
    job->stage = NULL;
    job->stages = 0;
    for (size_t i = 0; i < whole->stages + n && status == TR_OK; i++) {
        const struct tr_job_stage *stage = i < whole->stages ? &whole->stage[i] : &own[i - whole->stages];
        struct tr_job_stage *merged = (struct tr_job_stage *)(uintptr_t)tr_job_stage_of(job, stage->name);
        if (!merged) status = tr_job_add_stage(job, stage->name, 0);
        if (status != TR_OK) break;
        if (!merged) merged = &job->stage[job->stages - 1];
        free(merged->first); /* the place in the task replaces that in the whole job */
        merged->first = NULL;
        status = tr_copy_string(stage->first, &merged->first);
    }
    tr_job_free_stages(own, n);
    return status;
}

static int resolve_job(const struct sources *from)
{
    struct tr_job *job = from->job;
    TR_TRY(choose_class(from));
    TR_TRY(choose_method(from));
    if (job->class->options_size > 0) TR_TRY(tr_new(&job->options, 1, job->class->options_size, "options"));
    TR_TRY(TR_NEW(&job->where, tr_job_tables[TR_TABLE_JOB].n + tr_job_options(job->class)));
    struct tr_job_values values = tr_job_values(job);
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        const char *usual = NULL;
        for (const tr_rule *rule = job->class->rules; rule && rule->key && !usual; rule++)
            if (rule->value && rule_is_for(rule, job, slot.key->name)) usual = rule->value;
        if (slot.key != &job->type_key && slot.key != &job->method_key)
            TR_TRY(tr_job_set_default(&slot, usual ? usual : slot.key->by_default));
    }
    if (from->whole) TR_TRY(merge_stages(from));
    for (int layer = 0; layer < 4; layer++) { /* as in last_of() */
        const struct tr_job *of = layer % 2 ? job : from->whole;
        for (size_t i = 0; of && i < of->settings; i++)
            if (of->setting[i].commanded == layer / 2) TR_TRY(set_value(from, &of->setting[i], of != job));
    }
    job->solve.word = tr_max_int(job->solve.word, 1);
    bool on_disk = job->data.storage == TR_LEVEL_DISK || job->data.storage == TR_LEVEL_MEMORY_DISK;
    if (on_disk && !tr_job_given(job, "data.partition")) /* members of a group cannot share rows on a disk */
        job->data.partition = TR_DATA_HORIZONTAL;
    return TR_OK;
}

bool tr_job_is_setting(const char *word)
{
    size_t name = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
    return name > 0 && word[name] == '=' && word[0] != '-';
}

/* Derives the name of the job from the job file (ads for jobs/ads.yaml) or, without a job file, from the data (a9a for
 * data.train=a9a/a9a.gz). */
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
    struct sources from = {job, whole, task, tr_job_task_prefix(task)};
    job->own = whole->own;
    job->reader = whole->reader;
    TR_TRY(resolve_job(&from));
    if (!job->name) TR_TRY(tr_copy_string(task->name, &job->name));
    const char *own = task->run == TR_RUN_BEST ? "best" : task->name; /* only one of them runs */
    if (!job->output) TR_TRY(tr_format(&job->output, "%s/%s", whole->output, own));
    /* each task has its own folder within checkpoint.to of the whole job */
    const char *where = tr_job_where(job, "checkpoint.to");
    char *to = job->checkpoint.to;
    if (!*to || tr_job_is_own(job, where)) return TR_OK;
    TR_TRY(tr_format(&job->checkpoint.to, "%s/%s", to, own));
    free(to);
    return TR_OK;
}

/* Returns an error if a setting is not used. Unknown keys have priority over keys of other classes. */
static int check_known(const struct tr_job *job, const char *prefix)
{
    const struct tr_model_class *class;
    for (int foreign = 0; foreign < 2; foreign++)
        for (size_t i = 0; i < job->settings; i++) {
            const struct tr_job_setting *s = &job->setting[i];
            struct tr_job_name name = tr_job_join(prefix, s->key);
            char others[160] = "", where[512];
            if (s->used || foreign != !!tr_job_known_key(s->key, 0, &class)) continue;
            for (size_t n = 0, at = 0; foreign && tr_job_known_key(s->key, n, &class) && at < sizeof others;
                 n++)
                if (class)
                    at += (size_t)snprintf(others + at, sizeof others - at, "%s%s", n > 0 ? ", " : "",
                                           class->name);
            if (*others && job->own)
                return tr_job_fail(s->where, "%s is for %s, and of no use to this program", name.text,
                                   others);
            if (*others)
                return tr_job_fail(s->where, "%s is for %s, and model.type is %s", name.text, others,
                                   job->type_key.words[job->model.type]);
            snprintf(where, sizeof where, "%s: %s=%s", s->where, tr_shown(name.text).text,
                     s->value.n ? tr_shown(s->value.item[0]).text : "");
            return tr_job_fail_unknown(s->commanded ? where : s->where, "key", name.text,
                                       tr_job_suggest_key(job->class, name.text).text);
        }
    return TR_OK;
}

/* ---- tasks ---- */

/* Returns the place of the setting of a key in a task, or the place of the task if the key is not set. */
static const char *task_place(const struct tr_job_task *task, const char *key)
{
    struct tr_job_slot slot;
    return tr_job_find_of(task->job, task, key, &slot) && *slot.where ? *slot.where : task->first;
}

/* If model.init of a task is «task a»: replaces it by the output folder of task a, and makes the task run after task a. */
static int link_task(struct tr_job *job, struct tr_job_task *task)
{
    static const char begins_with_task[] = "task ";
    struct tr_job_slot slot, after;
    if (!tr_job_find(task->job, "model.init", &slot)) return TR_OK;
    char **init = slot.field;
    if (strncmp(*init, begins_with_task, strlen(begins_with_task)) != 0) return TR_OK;
    const char *name = *init + strlen(begins_with_task), *place = task_place(task, "model.init");
    const struct tr_job_task *other = tr_job_task_of(job, name);
    if (!other)
        return tr_job_fail(place, "task %s starts with the model of %s, which is no task", task->name,
                           tr_shown(name).text);
    if (other->run == TR_RUN_AVERAGE)
        return tr_job_fail(place, "task %s is an average, and leaves no model for task %s", other->name,
                           task->name);
    size_t i = 0;
    while (i < task->after.n && strcmp(task->after.item[i], other->name) != 0) i++;
    if (i == task->after.n) {
        if (tr_job_find_in(tr_job_task_values(task), "after", &after) && !*after.where)
            *after.where = *slot.where;
        TR_TRY(tr_job_append(&task->after, other->name));
    }
    free(*init);
    *init = NULL;
    return tr_copy_string(other->job->output, init);
}

/* Checks `after`, `best` and `run` of a task. */
static int check_after(const struct tr_job *job, const struct tr_job_task *task)
{
    for (size_t i = 0; i < task->after.n; i++) {
        const char *name = task->after.item[i], *place = task_place(task, "after");
        const struct tr_job_task *other = tr_job_task_of(job, name);
        const char *meant = other ? NULL : tr_job_suggest_task(job, name);
        if (!other)
            return tr_job_fail(place, "task %s is to run after %s, which is no task%s%s%s", task->name,
                               tr_shown(name).text, meant ? ": did you mean " : "", meant ? meant : "",
                               meant ? "?" : "");
        if (other == task) return tr_job_fail(place, "task %s is to run after itself", name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(task->after.item[k], name))
                return tr_job_fail(place, "tasks.%s.after names %s twice", task->name, name);
    }
    if (task->best > 0 && (task->run != TR_RUN_TRAIN || task->after.n != 1))
        return tr_job_fail(task_place(task, "best"),
                           "best needs run: train and exactly one task in `after`: check task %s",
                           task->name);
    if (task->run == TR_RUN_TRAIN || task->after.n > 0) return TR_OK;
    return tr_job_fail(task_place(task, "run"),
                       "tasks.%s.run is %s: expected the names of tasks in tasks.%s.after", task->name,
                       task->run == TR_RUN_AVERAGE ? "average" : "best", task->name);
}

/* Depth-first search for a cycle, from a task to the tasks in its `after`. path: the tasks from the start to this one. state[i]: 1
 * if task i is on the path; 2 if no cycle is reachable from it. The depth is limited by the number of tasks. */
static int find_cycle(const struct tr_job *job, size_t task, size_t *path, size_t length, char *state)
{
    if (state[task] == 2) return TR_OK;
    if (state[task] == 1) {
        char text[400] = "";
        size_t first = 0, at = 0;
        bool enough = false; /* long cycles are truncated */
        while (path[first] != task) first++;
        for (size_t i = first; i < length && !enough; i++) {
            enough = at + 2 * TR_JOB_LONGEST_WORD + 24 > sizeof text;
            at += (size_t)snprintf(text + at, sizeof text - at, "%s -> ",
                                   enough ? "..." : job->task[path[i]].name);
        }
        return tr_job_fail(task_place(&job->task[task], "after"), "tasks wait for each other: %s%s", text,
                           job->task[task].name);
    }
    path[length] = task;
    state[task] = 1;
    const struct tr_job_list *after = &job->task[task].after;
    for (size_t i = 0; i < after->n; i++) {
        size_t other = (size_t)(tr_job_task_of(job, after->item[i]) - job->task);
        TR_TRY(find_cycle(job, other, path, length + 1, state));
    }
    state[task] = 2;
    return TR_OK;
}

/* Advances to the next component of a path, and returns its length, or 0 at the end of the path. Skips empty components and ".". */
static size_t path_step(const char **path)
{
    for (;;) {
        *path += strspn(*path, "/");
        size_t length = strcspn(*path, "/");
        if (length != 1 || **path != '.') return length;
        ++*path;
    }
}

/* Returns whether two paths are equal after normalization. Links are not resolved. */
static bool same_folder(const char *a, const char *b)
{
    bool same = (*a == '/') == (*b == '/');
    for (size_t n; same && (n = path_step(&a)) > 0; a += n, b += n)
        same = path_step(&b) == n && strncmp(a, b, n) == 0;
    return same && path_step(&b) == 0;
}

/* Checks that a task and the tasks before it write to different folders. Tasks with run=best may have the same folder, since only
 * one of them runs. */
static int check_folders(const struct tr_job *job, size_t which)
{
    const struct tr_job_task *task = &job->task[which], *other;
    const char *output = task->job->output, *to = task->job->checkpoint.to;
    if (same_folder(output, job->output))
        return tr_job_fail(task_place(task, "output"), "task %s writes the output of the whole job: %s",
                           task->name, tr_shown(output).text);
    for (other = job->task; other < task; other++) {
        if (other->run == TR_RUN_BEST && task->run == TR_RUN_BEST) continue;
        if (same_folder(output, other->job->output))
            return tr_job_fail(task_place(task, "output"), "tasks %s and %s write the same output: %s",
                               other->name, task->name, tr_shown(output).text);
        if (*to && same_folder(to, other->job->checkpoint.to))
            return tr_job_fail(task_place(task, "checkpoint.to"),
                               "tasks %s and %s have the same checkpoint.to: %s", other->name, task->name,
                               tr_shown(to).text);
    }
    return TR_OK;
}

/* ---- parsing ---- */

/* Computes all values of a job and its tasks. */
static int resolve(struct tr_job *job)
{
    bool strict = job->reader == TR_JOB_STRICT;
    struct sources from = {job, NULL, NULL, {""}};
    TR_TRY(resolve_job(&from));
    if (!job->name) TR_TRY(name_of_file(job));
    if (!job->output) TR_TRY(tr_format(&job->output, "runs/%s", job->name));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(resolve_task(job, &job->task[i]));
    if (strict) TR_TRY(check_known(job, ""));
    for (size_t i = 0; i < job->tasks && strict; i++)
        TR_TRY(check_known(job->task[i].job, tr_job_task_prefix(&job->task[i]).text));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(link_task(job, &job->task[i]));
    TR_FREED size_t *path = NULL;
    TR_FREED char *state = NULL;
    TR_TRY(TR_NEW(&path, job->tasks));
    TR_TRY(TR_NEW(&state, job->tasks));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_after(job, &job->task[i]));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(find_cycle(job, i, path, 0, state));
    for (size_t i = 0; i < job->tasks; i++) TR_TRY(check_folders(job, i));
    return TR_OK;
}

/* The class of jobs with TR_JOB_FOREIGN: it has no options, so the keys of the unknown class are ignored. */
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
    if (status != TR_OK) return status;
    job->reader = reader;
    job->own = reader == TR_JOB_FOREIGN ? &foreign_class : own;
    status = tr_job_read_yaml(job, text, length);
    for (int i = 0; i < n && status == TR_OK; i++) status = tr_job_add_override(job, overrides[i]);
    if (status == TR_OK) status = resolve(job);
    if (status == TR_OK) *result = job;
    else tr_job_free(job);
    return status;
}

int tr_job_parse(const char *text, size_t length, const char *path, int n, char *const overrides[],
                 struct tr_job **result)
{
    return tr_job_parse_as(TR_JOB_STRICT, NULL, text, length, path, n, overrides, result);
}

/* ---- checks of a resolved job ---- */

/* Returns whether data.columns has a column of the type «weight» or «offset». */
static bool has_extra_column(const struct tr_job *job, const char *extra)
{
    const struct tr_job_list *list = &job->data.columns;
    for (size_t i = 0; i < list->n; i++) {
        const char *colon = strrchr(list->item[i], ':');
        if (colon && !strcmp(colon + 1 + strspn(colon + 1, " "), extra)) return true;
    }
    return false;
}

bool tr_job_has_extra(const struct tr_job *job, const char *extra)
{
    return *(strcmp(extra, "weight") ? job->data.offset : job->data.weight) || has_extra_column(job, extra);
}

/* Checks that the class and the method of the job, or of one of its tasks, use all settings. */
static int check_use(const struct tr_job *job, const struct tr_job *whole)
{
    const char *method = tr_job_chosen_method(job)->name, *type = job->type_key.words[job->model.type];
    for (size_t i = 0; i < job->settings; i++) {
        const struct tr_job_setting *s = &job->setting[i];
        struct tr_job_slot slot;
        bool used = !tr_job_find(job, s->key, &slot) || tr_job_uses(job, slot.key);
        const char *methods = used ? NULL : slot.key->methods;
        for (size_t t = 0; t < whole->tasks && !used && job == whole; t++)
            used =
                tr_job_find(whole->task[t].job, s->key, &slot) && tr_job_uses(whole->task[t].job, slot.key);
        if (!used && methods)
            return tr_job_fail(s->where, "%s is for solve.method %s, and of no use to %s", s->key, methods,
                               method);
        if (!used)
            return tr_job_fail(s->where, "%s is of no use to solve.method %s of model.type %s", s->key,
                               method, type);
    }
    static const char *const extras[][2] = {{"data.weight", "weight"}, {"data.offset", "offset"}};
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        struct tr_job_slot slot;
        if (has_extra_column(job, extras[i][1]) && tr_job_find(job, extras[i][0], &slot) &&
            !tr_job_uses(job, slot.key))
            return tr_job_fail(tr_job_where(job, "data.columns"),
                               "data.columns: %ss of rows are of no use to model.type %s", extras[i][1],
                               type);
    }
    return TR_OK;
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
        *held = (struct tr_job_held_out){(double)(fold - 1) / n, (double)fold / n, fold, n};
    else if (!folds && sscanf(text, "%lf%%%n", &held->to, &end) == 1) held->to /= 100;
    bool is_part = folds ? n >= 2 && fold >= 1 && fold <= n : held->to > 0 && held->to < 1;
    if (is_part && end > 0 && text[end] == '\0') return TR_OK;
    return tr_job_fail(tr_job_where(job, "data.test"),
                       "data.test is «%s»: expected files, a share of data.train above 0%% and below 100%%, "
                       "or «fold 2/5», the second of five",
                       tr_shown(text).text);
}

bool tr_job_output_has(const struct tr_job *job, const char *path)
{
    size_t n = strlen(job->output);
    while (n > 1 && job->output[n - 1] == '/') n--;
    return strncmp(path, job->output, n) == 0 && (!path[n] || path[n] == '/');
}

/* Checks that data files are not in the output folder. If a file of this path does not exist, it is one in data.folders. */
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
    if (job->report.metric.n > 0 && job->data.test.n == 0)
        return tr_job_fail(tr_job_where(job, "report.metric"),
                           "report.metric needs data.test: files, or a share of data.train as 10%%");
    /* table.push=merge needs complete updates of all workers in the same clock. Updates that are filtered or rounded, and updates
     * that workers push at different times, are sent as messages. */
    const char *key = job->table.filter != TR_FILTER_NONE         ? "table.filter"
                      : job->table.precision != TR_PRECISION_FULL ? "table.precision"
                      : job->sync.mode == TR_SYNC_SSP || job->sync.mode == TR_SYNC_ASP
                          ? "sync.mode ssp and asp"
                          : NULL;
    if (job->table.push != TR_PUSH_MERGE || !key) return TR_OK;
    return tr_job_fail(tr_job_where(job, "table.push"),
                       "table.push merge is of no use: with %s updates are not merged", key);
}

int tr_job_check_stages(const struct tr_job *job, const char *const *names, size_t n)
{
    char list[320] = "";
    for (size_t i = 0; i < job->stages; i++) {
        const struct tr_job_stage *stage = &job->stage[i];
        size_t known = 0;
        while (known < n && strcmp(stage->name, names[known]) != 0) known++;
        if (known < n) continue;
        const char *meant = tr_job_suggest(stage->name, names, n);
        if (n == 0)
            return tr_job_fail(stage->first, "unknown stage %s: this solve.method has no stages of its own",
                               stage->name);
        for (size_t k = 0, at = 0; k < n && at < sizeof list; k++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", k ? ", " : "", names[k]);
        return tr_job_fail(stage->first, "unknown stage %s: %s%s%sthe method has %s", stage->name,
                           meant ? "did you mean " : "", meant ? meant : "", meant ? "? " : "", list);
    }
    return TR_OK;
}

/* Checks the stages of the job. If a method has no list of stages (NULL), it has no stages; if the list is empty, the class checks
 * the names. For listed stages the job may only set parallelism. */
static int check_stages(const struct tr_job *job)
{
    const tr_method *method = tr_job_chosen_method(job);
    size_t n = 0;
    while (method->stages && method->stages[n]) n++;
    if (method->stages && n == 0) return TR_OK;
    TR_TRY(tr_job_check_stages(job, method->stages, n));
    for (size_t i = 0; i < job->stages; i++) {
        const struct tr_job_stage *stage = &job->stage[i];
        char key[96];
        if (stage->clocks == 0 && stage->servers == 0) continue;
        snprintf(key, sizeof key, "stages.%s.%s", stage->name, stage->clocks > 0 ? "clocks" : "servers");
        return tr_job_fail(tr_job_where(job, key),
                           "%s is of no use to solve.method %s: its stages have parallelism alone", key,
                           method->name);
    }
    return TR_OK;
}

/* Checks data.group and data.time of the job or of a task. `whole` is the job: one of its tasks must hold out rows. */
static int check_split(const struct tr_job *job, const struct tr_job *whole)
{
    const char *key = *job->data.group ? "data.group" : "data.time";
    struct tr_job_held_out held;
    bool holds_out = tr_job_held_out(job, &held) == TR_OK && held.to > 0;
    for (size_t i = 0; i < whole->tasks; i++)
        holds_out = holds_out || (tr_job_held_out(whole->task[i].job, &held) == TR_OK && held.to > 0);
    if (*job->data.group && *job->data.time)
        return tr_job_fail(tr_job_where(job, "data.time"),
                           "data.time and data.group are both set: expected one of them");
    if (holds_out || (!*job->data.group && !*job->data.time)) return TR_OK;
    return tr_job_fail(tr_job_where(job, key),
                       "%s is of no use: no rows are held out: expected a share for data.test, "
                       "as 10%%, or trireme sweep",
                       key);
}

int tr_job_check_use(const struct tr_job *job)
{
    if (job->tasks == 0) TR_TRY(check_stages(job));
    TR_TRY(check_use(job, job));
    TR_TRY(check_settings(job));
    TR_TRY(check_split(job, job));
    for (size_t i = 0; i < job->tasks; i++) {
        TR_TRY(check_use(job->task[i].job, job));
        TR_TRY(check_settings(job->task[i].job));
        TR_TRY(check_split(job->task[i].job, job));
        if (job->task[i].run != TR_RUN_AVERAGE) TR_TRY(check_stages(job->task[i].job));
    }
    return TR_OK;
}

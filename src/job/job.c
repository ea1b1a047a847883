/* Jobs, stages and tasks: creation, access to values by name, and settings, which come from a job file or the command line. The job
 * file is parsed by events of libyaml, which have exact line numbers. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/base.h"

enum { MOST_STAGES = 64, MOST_TASKS = 1024 }; /* limits, since lookups are linear */
enum { LARGEST_FILE = 1 << 20 };

/* ---- the values of a table ---- */

/* The result has no const: if the job is const, the caller must not change the values. */
struct tr_job_values tr_job_values(const struct tr_job *job)
{
    size_t n = tr_job_tables[TR_TABLE_JOB].n + tr_job_options(job->class);
    return (struct tr_job_values){TR_TABLE_JOB, job->where ? n : 0, (void *)(uintptr_t)job, job->where};
}

struct tr_job_values tr_job_stage_values(const struct tr_job_stage *stage)
{
    size_t n = tr_job_tables[TR_TABLE_STAGE].n;
    return (struct tr_job_values){TR_TABLE_STAGE, n, (void *)(uintptr_t)stage, stage->where};
}

struct tr_job_values tr_job_task_values(const struct tr_job_task *task)
{
    size_t n = tr_job_tables[TR_TABLE_TASK].n;
    return (struct tr_job_values){TR_TABLE_TASK, n, (void *)(uintptr_t)task, task->where};
}

/* Values of the engine's keys are members of `base`; values of a class's options are members of job->options. */
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

static void values_free(struct tr_job_values values)
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

int tr_job_append(struct tr_job_list *list, const char *text)
{
    size_t capacity = list->n;
    if ((list->n & (list->n - 1)) == 0) TR_TRY(TR_GROW(&list->item, &capacity, list->n ? 2 * list->n : 1));
    TR_TRY(tr_copy_string(text, &list->item[list->n]));
    list->n++;
    return TR_OK;
}

void tr_job_list_free(struct tr_job_list *list)
{
    for (size_t i = 0; i < list->n; i++) free(list->item[i]);
    free(list->item);
    *list = (struct tr_job_list){0};
}

void tr_job_free_stages(struct tr_job_stage *stage, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        values_free(tr_job_stage_values(&stage[i]));
        TR_FREE_ALL(stage[i].name, stage[i].first);
    }
    free(stage);
}

void tr_job_free(struct tr_job *job)
{
    if (!job) return;
    tr_job_free_stages(job->stage, job->stages);
    for (size_t i = 0; i < job->tasks; i++) {
        values_free(tr_job_task_values(&job->task[i]));
        tr_job_free(job->task[i].job);
        TR_FREE_ALL(job->task[i].name, job->task[i].first);
    }
    free(job->task);
    values_free(tr_job_values(job));
    for (size_t i = 0; i < job->settings; i++) {
        tr_job_list_free(&job->setting[i].value);
        TR_FREE_ALL(job->setting[i].key, job->setting[i].where);
    }
    TR_FREE_ALL(job->setting, job->options, (void *)(uintptr_t)job->type_key.words,
                (void *)(uintptr_t)job->method_key.words, job->path, job);
}

/* The place of a setting in messages: "jobs/x.yaml:12", or the command line for line 0. */
struct place {
    char text[640];
};

static struct place place_of_line(const struct tr_job *job, size_t line)
{
    struct place place = {TR_COMMAND_LINE};
    if (line) snprintf(place.text, sizeof place.text, "%s:%zu", job->path, line);
    return place;
}

/* Sets name, place and default values of a new stage or task. what: "stage" or "task". */
static int job_name_values(const struct tr_job *job, const char *what, const char *name, size_t line,
                           struct tr_job_values values, char **own, char **first)
{
    if (!tr_job_is_word(name))
        return tr_job_fail(
            place_of_line(job, line).text,
            "«%s» is no name for a %s: expected a lower-case letter, then such letters, digits "
            "and -, %d at most",
            tr_shown(name).text, what, TR_JOB_LONGEST_WORD);
    TR_TRY(tr_copy_string(name, own));
    TR_TRY(tr_copy_string(place_of_line(job, line).text, first));
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(tr_job_set_default(&slot, slot.key->by_default));
    }
    return TR_OK;
}

int tr_job_add_stage(struct tr_job *job, const char *name, size_t line)
{
    size_t n = job->stages, capacity = n;
    if (n == MOST_STAGES) return tr_job_fail(place_of_line(job, line).text, "more than 64 stages");
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->stage, &capacity, n ? 2 * n : 1));
    struct tr_job_stage *stage = &job->stage[n];
    *stage = (struct tr_job_stage){0};
    job->stages++; /* tr_job_free() frees the stage from now on, also after an error */
    TR_TRY(TR_NEW(&stage->where, tr_job_tables[TR_TABLE_STAGE].n));
    return job_name_values(job, "stage", name, line, tr_job_stage_values(stage), &stage->name, &stage->first);
}

static int job_add_task(struct tr_job *job, const char *name, size_t line)
{
    size_t n = job->tasks, capacity = n;
    if (n == MOST_TASKS) return tr_job_fail(place_of_line(job, line).text, "more than 1024 tasks");
    if ((n & (n - 1)) == 0) TR_TRY(TR_GROW(&job->task, &capacity, n ? 2 * n : 1));
    struct tr_job_task *task = &job->task[n];
    *task = (struct tr_job_task){0};
    job->tasks++;
    TR_TRY(TR_NEW(&task->where, tr_job_tables[TR_TABLE_TASK].n));
    TR_TRY(job_name_values(job, "task", name, line, tr_job_task_values(task), &task->name, &task->first));
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

/* The parts of a full name tasks.TASK.stages.STAGE.key, of which some may be missing. TASK and STAGE may have one character more than
 * is allowed, so that names that are too long are not accepted. */
struct route {
    char task[TR_JOB_LONGEST_WORD + 2];
    char stage[TR_JOB_LONGEST_WORD + 2];
    const char *own; /* the name behind tasks.TASK. */
    const char *key; /* the name behind task and stage; empty if the full name ends with them */
    bool nameless;   /* TASK or STAGE is empty */
};

/* If route->key starts with section.WORD., removes that from the key and stores WORD. */
static void route_split(struct route *route, const char *section, char *word)
{
    size_t length = strlen(section);
    if (strncmp(route->key, section, length) != 0 || route->key[length] != '.') return;
    const char *from = route->key + length + 1;
    size_t n = strcspn(from, ".");
    snprintf(word, TR_JOB_LONGEST_WORD + 2, "%.*s", (int)tr_min_size(n, TR_JOB_LONGEST_WORD + 1), from);
    route->nameless |= n == 0;
    route->key = from + n + (from[n] == '.');
}

static struct route route_of_name(const char *name)
{
    struct route route = {.key = name};
    route_split(&route, "tasks", route.task);
    route.own = route.key;
    route_split(&route, "stages", route.stage);
    return route;
}

bool tr_job_find_in(struct tr_job_values values, const char *key, struct tr_job_slot *slot)
{
    for (size_t i = 0; i < values.n; i++) {
        *slot = tr_job_slot(&values, i);
        const char *name = slot->key->name;
        if (strcmp(values.table == TR_TABLE_JOB ? name : tr_job_own_name(name), key) == 0) return true;
    }
    return false;
}

static bool route_find(const struct tr_job *job, const struct route *route, struct tr_job_slot *slot)
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
    struct route route = route_of_name(name);
    return route_find(job, &route, slot);
}

bool tr_job_find_of(const struct tr_job *job, const struct tr_job_task *task, const char *key,
                    struct tr_job_slot *slot)
{
    struct route route = {.key = key};
    route_split(&route, "stages", route.stage);
    if (task && !*route.stage && tr_job_find_in(tr_job_task_values(task), key, slot)) return true;
    return route_find(job, &route, slot);
}

const char *tr_job_where(const struct tr_job *job, const char *name)
{
    struct route route = route_of_name(name);
    struct tr_job_slot slot;
    if (route_find(job, &route, &slot)) return *slot.where ? *slot.where : "default";
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

/* ---- adding settings ---- */

/* Adds a setting with a full name, and its task or stage if that is new. line 0: the setting is from the command line, which does
 * not add tasks to those of a file. item: the value; NULL: the caller adds items to *setting. */
static int job_add_setting(struct tr_job *job, const char *name, size_t line, const char *item,
                           struct tr_job_setting **setting)
{
    struct route route = route_of_name(name);
    const char *key = name;
    if (!route.nameless && *route.key) {
        if (*route.task) {
            const struct tr_job_task *task = tr_job_task_of(job, route.task);
            bool by_file = job->tasks > 0 && strcmp(job->task[0].first, TR_COMMAND_LINE) != 0;
            if (!task && line == 0 && by_file)
                return tr_job_fail_unknown(TR_COMMAND_LINE, "task", route.task,
                                           tr_job_suggest_task(job, route.task));
            if (!task) TR_TRY(job_add_task(job, route.task, line));
            job = tr_job_task_of(job, route.task)->job;
            key = route.own;
        }
        if (*route.stage && !tr_job_stage_of(job, route.stage))
            TR_TRY(tr_job_add_stage(job, route.stage, line));
    }
    TR_TRY(TR_GROW(&job->setting, &job->setting_capacity, job->settings + 1));
    struct tr_job_setting *s = &job->setting[job->settings++];
    *s = (struct tr_job_setting){.commanded = line == 0};
    if (setting) *setting = s;
    TR_TRY(tr_copy_string(key, &s->key));
    TR_TRY(tr_copy_string(place_of_line(job, line).text, &s->where));
    return item ? tr_job_append(&s->value, item) : TR_OK;
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
    return job_add_setting(job, key, 0, equals + 1, NULL);
}

/* ---- reading YAML ---- */

struct reader {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current event */
    size_t line;        /* line of the current event; if it is a value, line of its key */
    const char *text;
    size_t length;
    struct tr_job *job;
    const char *where; /* place, if a value of the command line is read; NULL: `line` is the place */
};

/* A scope is a part of the file with sections: the whole file or one task. */
struct scope {
    const char *prefix;           /* prefix of its names: "" or "tasks.one." */
    struct tr_job *job;           /* the whole job, or the job of the task */
    size_t line[TR_JOB_SECTIONS]; /* line of each section; 0: not seen yet */
};

static struct place reader_place(const struct reader *r)
{
    struct place place = {""};
    if (!r->where) return place_of_line(r->job, r->line);
    snprintf(place.text, sizeof place.text, "%s", r->where);
    return place;
}

#define READER_FAIL(r, ...) tr_job_fail(reader_place(r).text, __VA_ARGS__)

/* ---- events ---- */

static int reader_fail_syntax(struct reader *r)
{
    const char *text = r->text, *end = text + r->length;
    if (r->yaml.error == YAML_MEMORY_ERROR) return tr_fail(TR_ERR_SYSTEM, "out of memory for the job file");
    r->line = r->yaml.problem_mark.line + 1;
    if (r->yaml.error == YAML_READER_ERROR) { /* an error of the encoding: only its offset is known */
        r->line = 1;
        for (size_t i = 0; i < tr_min_size(r->yaml.problem_offset, r->length); i++)
            r->line += text[i] == '\n';
    }
    for (size_t line = r->line; --line && text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        text = newline ? newline + 1 : end;
    }
    while (text < end && *text == ' ') text++;
    if (text < end && *text == '\t') return READER_FAIL(r, "not YAML: a tab indents this line: use spaces");
    return READER_FAIL(r, "not YAML: %s", r->yaml.problem);
}

static const char *reader_scalar(const struct reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

/* Advances to the next event. Refuses anchors, aliases and tags. */
static int reader_next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->yaml, &r->event)) return reader_fail_syntax(r);
    r->line = r->event.start_mark.line + 1;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch ((int)r->event.type) {
    case YAML_ALIAS_EVENT: anchor = r->event.data.alias.anchor; break;
    case YAML_SCALAR_EVENT:
        if (strlen(reader_scalar(r)) != r->event.data.scalar.length)
            return READER_FAIL(r, "a NUL character in «%s»", tr_shown(reader_scalar(r)).text);
        anchor = r->event.data.scalar.anchor;
        tag = r->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = r->event.data.sequence_start.anchor;
        tag = r->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = r->event.data.mapping_start.anchor;
        tag = r->event.data.mapping_start.tag;
        break;
    }
    if (anchor) return READER_FAIL(r, "anchors (&) and aliases (*) are not allowed: quote the text");
    if (tag) return READER_FAIL(r, "tags (!) are not allowed: quote the text");
    return TR_OK;
}

static bool reader_is_quoted(const struct reader *r)
{
    return r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static bool reader_is_null(const struct reader *r)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (r->event.type != YAML_SCALAR_EVENT || reader_is_quoted(r)) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(reader_scalar(r), words[i])) return true;
    return false;
}

/* ---- keys and values: these functions are called when the current event is the first of the value ---- */

/* Reads a mapping as the text «name: {key: "value"}», which tr_job_read_list() reads. */
static int read_pair_keys(struct reader *r, const char *name, const char *of, struct tr_job_setting *s)
{
    TR_FREED char *text = NULL;
    size_t n;
    FILE *memory = open_memstream(&text, &n);
    if (!memory) return tr_fail(TR_ERR_SYSTEM, "out of memory for %s", name);
    fwrite(of, 1, strlen(of), memory);
    fputs(": {", memory);
    for (size_t i = 0;; i++) {
        int status = reader_next(r);
        bool ends = status == TR_OK && r->event.type == YAML_MAPPING_END_EVENT;
        if (status == TR_OK && !ends && (r->event.type != YAML_SCALAR_EVENT || reader_is_null(r)))
            status = READER_FAIL(r, "%s: %s: expected keys with words", name, tr_shown(of).text);
        if (status == TR_OK && !ends) {
            fputs(i == 0 ? "" : i % 2 ? ": " : ", ", memory);
            tr_put_quoted(memory, reader_scalar(r));
            continue;
        }
        fputc('}', memory);
        if (fclose(memory) != 0 && status == TR_OK)
            status = tr_fail(TR_ERR_SYSTEM, "out of memory for %s", name);
        return status == TR_OK ? tr_job_append(&s->value, text) : status;
    }
}

/* Reads a list of texts, or a mapping of names to words as a list of «name: word». */
static int read_items(struct reader *r, const char *name, bool pairs, struct tr_job_setting *s)
{
    for (s->list = true;;) {
        TR_FREED char *key = NULL, *pair = NULL;
        TR_TRY(reader_next(r));
        if (r->event.type == (pairs ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT)) return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return READER_FAIL(r, "%s: expected %s", name,
                               pairs ? "a name, not a list or keys"
                                     : "text in the list, not another list or keys");
        if (pairs) {
            TR_TRY(tr_copy_string(reader_scalar(r), &key));
            TR_TRY(reader_next(r));
            if (r->event.type == YAML_MAPPING_START_EVENT) {
                TR_TRY(read_pair_keys(r, name, key, s));
                continue;
            }
            if (r->event.type != YAML_SCALAR_EVENT || reader_is_null(r))
                return READER_FAIL(r, "%s: %s: expected a word", name, tr_shown(key).text);
            TR_TRY(tr_format(&pair, "%s: %s", key, reader_scalar(r)));
        } else if (reader_is_null(r)) {
            return READER_FAIL(r, "%s: an item has no value", name);
        }
        TR_TRY(tr_job_append(&s->value, pairs ? pair : reader_scalar(r)));
    }
}

/* Returns the error of a value of a wrong kind. own: last part of the name if there may also be a section here; otherwise NULL. */
static int refuse_value(struct reader *r, const char *name, const char *own)
{
    const struct tr_model_class *class;
    const tr_option *key = tr_job_known_key(name, 0, &class);
    if (key && reader_is_null(r)) return READER_FAIL(r, "%s has no value", name);
    if (key) return READER_FAIL(r, "%s is a section: expected %s", name, tr_job_expected(key).text);
    if (!own || reader_is_null(r) || strchr(own, '.'))
        return tr_job_fail_unknown(reader_place(r).text, "key", name, tr_job_suggest_key(NULL, name).text);
    const char *meant = tr_job_suggest_section(own);
    char whole[2 * TR_JOB_LONGEST_NAME] = "";
    if (meant && strcmp(meant, own) != 0)
        snprintf(whole, sizeof whole, "%.*s%s", (int)(own - name), name, meant);
    return tr_job_fail_unknown(reader_place(r).text, "section", name, whole);
}

static int read_value(struct reader *r, const char *name, const char *own)
{
    struct tr_job_setting *s;
    const struct tr_model_class *class;
    const tr_option *key = tr_job_known_key(name, 0, &class);
    bool pairs = key && key->kind == TR_KIND_PAIRS && r->event.type == YAML_MAPPING_START_EVENT;
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    if (!pairs && (r->event.type == YAML_MAPPING_START_EVENT || reader_is_null(r)))
        return refuse_value(r, name, own);
    TR_TRY(job_add_setting(r->job, name, r->line, pairs || list ? NULL : reader_scalar(r), &s));
    if (pairs || list) return read_items(r, name, pairs, s);
    s->quoted = reader_is_quoted(r);
    return TR_OK;
}

/* ---- mappings: these functions are called at the first event of a value, and return at the last event of its mapping ---- */

/* Advances to the value of the next key, and sets *name to prefix and key; *more = false: there is no other key. */
static int next_entry(struct reader *r, const char *prefix, struct tr_job_name *name, bool *more)
{
    TR_TRY(reader_next(r));
    *more = r->event.type != YAML_MAPPING_END_EVENT;
    if (!*more) return TR_OK;
    if (r->event.type != YAML_SCALAR_EVENT) return READER_FAIL(r, "expected a key, not a list or keys");
    *name = tr_job_join(prefix, reader_scalar(r));
    size_t line = r->line;
    TR_TRY(reader_next(r));
    r->line = line; /* if the value begins on another line, errors report the line of its key */
    return TR_OK;
}

/* Reads the keys of a section or a stage. */
static int read_keys(struct reader *r, const char *section)
{
    struct tr_job_name prefix = tr_job_join(section, "."), name;
    for (bool more;;) {
        TR_TRY(next_entry(r, prefix.text, &name, &more));
        if (!more) return TR_OK;
        TR_TRY(read_value(r, name.text, NULL));
    }
}

static int expect_mapping(const struct reader *r, const char *name)
{
    if (r->event.type == YAML_MAPPING_START_EVENT) return TR_OK;
    if (reader_is_null(r)) return READER_FAIL(r, "section %s is empty: fill it or leave it out", name);
    return READER_FAIL(r, "%s is a section: expected its keys, one a line, indented", name);
}

static int read_scope(struct reader *r, struct scope *scope);

/* Reads the section of all stages of `job`, or of all tasks. */
static int read_named(struct reader *r, struct tr_job *job, const char *section, bool tasks)
{
    struct tr_job_name prefix = tr_job_join(section, "."), name;
    for (bool more;;) {
        TR_TRY(next_entry(r, prefix.text, &name, &more));
        if (!more) return TR_OK;
        const char *own = name.text + strlen(prefix.text);
        const struct tr_job_task *task = tasks ? tr_job_task_of(job, own) : NULL;
        const struct tr_job_stage *stage = tasks ? NULL : tr_job_stage_of(job, own);
        if (task || stage)
            return READER_FAIL(r, "%s is given twice: first at %s", name.text,
                               task ? task->first : stage->first);
        TR_TRY(tasks ? job_add_task(job, own, r->line) : tr_job_add_stage(job, own, r->line));
        TR_TRY(expect_mapping(r, name.text));
        if (tasks) {
            struct tr_job_name of_task = tr_job_join(name.text, ".");
            struct scope scope = {.prefix = of_task.text, .job = tr_job_task_of(job, own)->job};
            TR_TRY(read_scope(r, &scope));
        } else {
            TR_TRY(read_keys(r, name.text));
        }
    }
}

static int read_section(struct reader *r, struct scope *scope, const struct tr_job_section *section)
{
    struct tr_job_name name = tr_job_join(scope->prefix, section->name);
    size_t *line = &scope->line[section - tr_job_sections];
    if (*line) return READER_FAIL(r, "%s is given twice: first at %s:%zu", name.text, r->job->path, *line);
    *line = r->line;
    if (r->event.type == YAML_SCALAR_EVENT && section->short_for && !reader_is_null(r))
        return read_value(r, section->short_for, NULL);
    TR_TRY(expect_mapping(r, name.text));
    if (section->named) return read_named(r, scope->job, name.text, !strcmp(section->name, "tasks"));
    return read_keys(r, name.text);
}

static int read_scope(struct reader *r, struct scope *scope)
{
    struct tr_job_name name;
    for (bool more;;) {
        TR_TRY(next_entry(r, scope->prefix, &name, &more));
        if (!more) return TR_OK;
        const char *own = name.text + strlen(scope->prefix);
        const struct tr_job_section *section = tr_job_find_section(own);
        /* In a task, `tasks` is no section, and `ranks` may be a number, a key of the task, or the section. */
        bool number = r->event.type == YAML_SCALAR_EVENT && !reader_is_null(r) && !strcmp(own, "ranks");
        if (*scope->prefix && (number || !strcmp(own, "tasks"))) section = NULL;
        TR_TRY(section ? read_section(r, scope, section) : read_value(r, name.text, own));
    }
}

static int read_document(struct reader *r)
{
    TR_TRY(reader_next(r)); /* start of the stream */
    TR_TRY(reader_next(r));
    bool empty = r->event.type == YAML_STREAM_END_EVENT;
    if (!empty) TR_TRY(reader_next(r)); /* the root */
    if (empty || reader_is_null(r))
        return tr_fail(TR_ERR_NO_INPUT, "%s: the job file is empty", r->job->path);
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return READER_FAIL(r, "expected sections and keys, as in «seed: 1»");
    struct scope file = {.prefix = "", .job = r->job};
    TR_TRY(read_scope(r, &file));
    TR_TRY(reader_next(r)); /* end of the document */
    TR_TRY(reader_next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return READER_FAIL(r, "a second YAML document: a job file holds one");
    return TR_OK;
}

/* Reads the text of a list into `items`; if that is NULL, reads the text of a job into r->job. */
static int reader_run(struct reader *r, const char *name, struct tr_job_setting *items)
{
    int status = TR_OK;
    if (!yaml_parser_initialize(&r->yaml)) return tr_fail(TR_ERR_SYSTEM, "out of memory for %s", name);
    yaml_parser_set_input_string(&r->yaml, (const yaml_char_t *)r->text, r->length);
    if (!items) status = read_document(r);
    /* skip the events for the start of the stream and of the document, and advance to the start of the list */
    for (int i = 0; i < 3 && items && status == TR_OK; i++) status = reader_next(r);
    if (items && status == TR_OK)
        status = read_items(r, name, r->event.type == YAML_MAPPING_START_EVENT, items);
    if (items && status == TR_OK) status = reader_next(r);
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->yaml);
    return status;
}

int tr_job_read_yaml(struct tr_job *job, const char *text, size_t length)
{
    struct reader r = {.text = text, .length = length, .job = job};
    if (length > LARGEST_FILE)
        return tr_fail(TR_ERR_CONFIG, "%s: larger than 1 MiB: not a job file?", job->path);
    return reader_run(&r, "the job file", NULL);
}

int tr_job_read_list(const char *where, const char *name, const char *text, struct tr_job_setting *items)
{
    return reader_run(&(struct reader){.text = text, .length = strlen(text), .where = where}, name, items);
}

/* Reads up to LARGEST_FILE + 1 bytes: tr_job_read_yaml() reports files that are too long. */
int tr_job_read_text(const char *path, char **text, size_t *length)
{
    static const char *const forms[] = {"%s.yaml", "%s.yml", "jobs/%s", "jobs/%s.yaml"};
    if (strcmp(path, TR_NO_JOB_FILE) == 0) {
        *length = 2;
        return tr_copy_string("{}", text);
    }
    FILE *file = strcmp(path, TR_STANDARD_INPUT) == 0 ? stdin : fopen(path, "rb");
    int status = file ? TR_NEW(text, LARGEST_FILE + 1) : TR_OK;
    if (file && status == TR_OK) *length = fread(*text, 1, LARGEST_FILE + 1, file);
    if (status == TR_OK && (!file || ferror(file))) { /* there is no such file, or it is a folder */
        int error = errno;
        char meant[640] = "";
        for (size_t i = 0; error == ENOENT && !*meant && i < sizeof forms / sizeof *forms; i++) {
            snprintf(meant, sizeof meant, forms[i], path);
            if (access(meant, R_OK) != 0) *meant = '\0';
        }
        status = tr_fail(TR_ERR_NO_INPUT, "%s: cannot read the job file: %s%s%s%s", path, strerror(error),
                         *meant ? ": did you mean " : "", meant, *meant ? "?" : "");
    }
    if (file && file != stdin) fclose(file);
    return status;
}

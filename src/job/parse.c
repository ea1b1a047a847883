/* The job file: events of libyaml, whose line numbers are exact, and what the command line overrides. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/base.h"
#include "job/text.h"

enum { LARGEST_FILE = 1 << 20, LONGEST_NAME = 128 }; /* of a name, what is longer is cut: no key is so long */

struct reader {
    yaml_parser_t yaml;
    yaml_event_t event;        /* the current one */
    struct tr_job_place place; /* of the current event */
    const char *text;
    size_t length;
    size_t section_line[TR_JOB_SECTIONS]; /* 0: not seen yet */
    struct tr_job *job;
};

/* ---- events ---- */

static size_t line_at(const char *text, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset; i++) line += text[i] == '\n';
    return line;
}

/* Whether a tab stands among the blanks that indent the line: the usual cause of libyaml's stranger
 * complaints. */
static bool is_indented_by_tab(const char *text, size_t length, size_t line)
{
    const char *end = text + length;
    while (--line && text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        text = newline ? newline + 1 : end;
    }
    while (text < end && *text == ' ') text++;
    return text < end && *text == '\t';
}

static int not_yaml(struct reader *r)
{
    if (r->yaml.error == YAML_MEMORY_ERROR) return tr_fail(TR_ERR_SYSTEM, "out of memory for the job file");
    bool undecodable = r->yaml.error == YAML_READER_ERROR; /* found ahead of parsing: has an offset only */
    r->place.line = undecodable ? line_at(r->text, tr_min_size(r->yaml.problem_offset, r->length))
                                : r->yaml.problem_mark.line + 1;
    if (is_indented_by_tab(r->text, r->length, r->place.line))
        return tr_job_fail(r->place, "not YAML: a tab indents this line: use spaces");
    return tr_job_fail(r->place, "not YAML: %s", r->yaml.problem);
}

static int refuse_extras(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor) return tr_job_fail(r->place, "anchors (&) and aliases (*) are not allowed: quote the text");
    if (tag) return tr_job_fail(r->place, "tags (!) are not allowed: quote the text");
    return TR_OK;
}

static const char *scalar(const struct reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

static int check_scalar(struct reader *r)
{
    if (strlen(scalar(r)) != r->event.data.scalar.length)
        return tr_job_fail(r->place, "a NUL character in «%s»", tr_shown(scalar(r)).text);
    return refuse_extras(r, r->event.data.scalar.anchor, r->event.data.scalar.tag);
}

/* Goes on to the next event. Everything that refers to others or hides types is refused here, once. */
static int next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->yaml, &r->event)) return not_yaml(r);
    r->place.line = r->event.start_mark.line + 1;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT: return refuse_extras(r, r->event.data.alias.anchor, NULL);
    case YAML_SCALAR_EVENT: return check_scalar(r);
    case YAML_SEQUENCE_START_EVENT:
        return refuse_extras(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return refuse_extras(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag);
    default: return TR_OK;
    }
}

static bool is_quoted(const struct reader *r)
{
    return r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static bool is_null(const struct reader *r)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (r->event.type != YAML_SCALAR_EVENT || is_quoted(r)) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(scalar(r), words[i])) return true;
    return false;
}

/* ---- keys and values; the current event is the value's first ---- */

static int read_list(struct reader *r, const struct tr_job_key *key)
{
    tr_job_empty_list(r->job, key);
    for (;;) {
        TR_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return tr_job_fail(r->place, "%s: expected text in the list, not another list or keys",
                               key->name);
        if (is_null(r)) return tr_job_fail(r->place, "%s: an item has no value", key->name);
        TR_TRY(tr_job_add(r->job, key, scalar(r), r->place));
    }
}

static int read_known(struct reader *r, const struct tr_job_key *key)
{
    const char *before = r->job->where[key - tr_job_keys];
    if (before) return tr_job_fail(r->place, "%s is given twice: first at %s", key->name, before);
    TR_TRY(tr_job_mark(r->job, key, r->place));
    if (is_null(r)) return tr_job_fail(r->place, "%s has no value", key->name);
    if (r->event.type == YAML_SCALAR_EVENT) return tr_job_set(r->job, key, scalar(r), is_quoted(r), r->place);
    if (r->event.type == YAML_SEQUENCE_START_EVENT && key->kind == TR_KIND_LIST) return read_list(r, key);
    return tr_job_fail(r->place, "%s is a %s: expected %s", key->name,
                       r->event.type == YAML_SEQUENCE_START_EVENT ? "list" : "section",
                       tr_job_expected(key).text);
}

static int read_value(struct reader *r, const char *name)
{
    const struct tr_job_key *key = tr_job_find_key(name);
    if (key) return read_known(r, key);
    if (r->event.type == YAML_MAPPING_START_EVENT && !strchr(name, '.'))
        return tr_job_fail_unknown(r->place, "section", name, tr_job_suggest_section(name));
    return tr_job_fail_unknown(r->place, "key", name, tr_job_suggest_key(name));
}

static int read_entries(struct reader *r, const struct tr_job_section *section);

static int read_section(struct reader *r, const struct tr_job_section *section)
{
    size_t *line = &r->section_line[section - tr_job_sections];
    const char *file = r->place.name;
    if (*line) return tr_job_fail(r->place, "%s is given twice: first at %s:%zu", section->name, file, *line);
    *line = r->place.line;
    if (r->event.type == YAML_MAPPING_START_EVENT) return read_entries(r, section);
    if (is_null(r))
        return tr_job_fail(r->place, "section %s is empty: fill it or leave it out", section->name);
    if (r->event.type == YAML_SCALAR_EVENT && section->short_for) return read_value(r, section->short_for);
    return tr_job_fail(r->place, "%s is a section: expected its keys, one a line, indented", section->name);
}

/* The entries of a mapping: those of the section, or of the whole file when it is NULL. */
static int read_entries(struct reader *r, const struct tr_job_section *section)
{
    for (;;) {
        TR_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return tr_job_fail(r->place, "expected a key, not a list or keys");
        char name[LONGEST_NAME];
        snprintf(name, sizeof name, "%s%s%s", section ? section->name : "", section ? "." : "", scalar(r));
        size_t line = r->place.line;
        TR_TRY(next(r));
        r->place.line = line; /* a value on the lines below its key is blamed on the key */
        const struct tr_job_section *inner = section ? NULL : tr_job_find_section(name);
        TR_TRY(inner ? read_section(r, inner) : read_value(r, name));
    }
}

static int no_settings(const struct reader *r)
{
    return tr_fail(TR_ERR_NO_INPUT, "%s: the job file is empty", r->place.name);
}

static int read_document(struct reader *r)
{
    TR_TRY(next(r)); /* the stream's start */
    TR_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return no_settings(r);
    TR_TRY(next(r)); /* the root */
    if (is_null(r)) return no_settings(r);
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return tr_job_fail(r->place, "expected sections and keys, as in «seed: 1»");
    TR_TRY(read_entries(r, NULL));
    TR_TRY(next(r)); /* the document's end */
    TR_TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return tr_job_fail(r->place, "a second YAML document: a job file holds one");
    return TR_OK;
}

static int read_yaml(struct tr_job *job, const char *text, size_t length)
{
    struct reader r = {.text = text, .length = length, .job = job, .place = {.name = job->path}};
    if (length == 0) return no_settings(&r);
    if (length > LARGEST_FILE)
        return tr_fail(TR_ERR_CONFIG, "%s: larger than 1 MiB: not a job file?", job->path);
    if (!yaml_parser_initialize(&r.yaml)) return tr_fail(TR_ERR_SYSTEM, "out of memory for the job file");
    yaml_parser_set_input_string(&r.yaml, (const yaml_char_t *)text, length);
    int status = read_document(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.yaml);
    return status;
}

/* ---- the command line ---- */

static const struct tr_job_place command_line = {"command line", 0};

/* A comma ends an item: a path that holds one can only be named in the file. */
static int split_list(struct tr_job *job, const struct tr_job_key *key, char *items,
                      struct tr_job_place place)
{
    tr_job_empty_list(job, key);
    for (char *item; (item = strsep(&items, ","));) TR_TRY(tr_job_add(job, key, item, place));
    return TR_OK;
}

static int override_value(struct tr_job *job, const struct tr_job_key *key, char *value)
{
    if (!*value) return tr_job_fail(command_line, "%s has no value", key->name);
    TR_TRY(key->kind == TR_KIND_LIST ? split_list(job, key, value, command_line)
                                     : tr_job_set(job, key, value, false, command_line));
    return tr_job_mark(job, key, command_line);
}

/* Splits «key=value» in place. */
static int override_split(struct tr_job *job, const char *argument, char *copy)
{
    char *equals = strchr(copy, '=');
    if (!equals)
        return tr_fail(TR_ERR_USAGE, "command line: «%s»: expected section.key=value",
                       tr_shown(argument).text);
    *equals = '\0';
    const struct tr_job_section *section = tr_job_find_section(copy);
    const char *name = section && section->short_for ? section->short_for : copy;
    const struct tr_job_key *key = tr_job_find_key(name);
    if (key) return override_value(job, key, equals + 1);

    char place[LONGEST_NAME];
    snprintf(place, sizeof place, "command line: %s", tr_shown(argument).text);
    return tr_job_fail_unknown((struct tr_job_place){place, 0}, "key", name, tr_job_suggest_key(name));
}

static int override(struct tr_job *job, const char *argument)
{
    char *copy;
    TR_TRY(tr_copy_string(argument, &copy));
    int status = override_split(job, argument, copy);
    free(copy);
    return status;
}

/* ---- the job ---- */

static int set_default(struct tr_job *job, const struct tr_job_key *key)
{
    struct tr_job_place table = {"default", 0};
    if (key->kind == TR_KIND_TEXT || !*key->by_default) return TR_OK;
    if (key->kind != TR_KIND_LIST) return tr_job_set(job, key, key->by_default, false, table);
    char *items;
    TR_TRY(tr_copy_string(key->by_default, &items));
    int status = split_list(job, key, items, table);
    free(items);
    return status;
}

static int set_defaults(struct tr_job *job)
{
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++)
        TR_TRY(set_default(job, key));
    return TR_OK;
}

/* jobs/ads.yaml is called ads. */
static int default_name(struct tr_job *job)
{
    const char *slash = strrchr(job->path, '/'), *base = slash ? slash + 1 : job->path;
    char *name;
    TR_TRY(tr_copy_string(*base ? base : "job", &name));
    char *dot = strrchr(name, '.');
    if (dot && dot != name && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"))) *dot = '\0';
    struct tr_job_place place = {job->path, 0};
    int status = tr_job_set(job, tr_job_find_key("name"), name, false, place);
    free(name);
    return status;
}

/* What follows from the kind of model. */
static void choose_method(struct tr_job *job)
{
    bool linear = job->model.type <= TR_MODEL_L2SVM;
    static const int usual[] = {[TR_MODEL_LOGISTIC] = TR_SOLVE_DUAL, [TR_MODEL_LINEAR] = TR_SOLVE_DUAL,
                                [TR_MODEL_SVM] = TR_SOLVE_DUAL,      [TR_MODEL_L2SVM] = TR_SOLVE_DUAL,
                                [TR_MODEL_KMEANS] = TR_SOLVE_LLOYD,  [TR_MODEL_MF] = TR_SOLVE_SGD,
                                [TR_MODEL_LDA] = TR_SOLVE_GIBBS};
    if (job->solve.method == TR_SOLVE_AUTO) job->solve.method = usual[job->model.type];
    if (job->solve.rate == TR_JOB_AUTO && linear) job->solve.rate = 0.1;
    if (job->model.type == TR_MODEL_MF && strcmp(tr_job_where(job, "solve.optimizer"), "default") == 0)
        job->solve.optimizer = TR_OPTIMIZER_ADAGRAD;
}

/* Defaults that follow from other values. */
static int complete(struct tr_job *job)
{
    choose_method(job);
    if (!job->name) TR_TRY(default_name(job));
    if (!job->output) TR_TRY(tr_format(&job->output, "runs/%s", job->name));
    return TR_OK;
}

static int fill(struct tr_job *job, const char *text, size_t length, int n, char *const overrides[])
{
    TR_TRY(set_defaults(job));
    TR_TRY(read_yaml(job, text, length));
    for (int i = 0; i < n; i++) TR_TRY(override(job, overrides[i]));
    return complete(job);
}

static int new_job(const char *path, struct tr_job **job)
{
    TR_TRY(TR_NEW(job, 1));
    TR_TRY(TR_NEW(&(*job)->where, TR_JOB_KEYS));
    return tr_copy_string(path, &(*job)->path);
}

int tr_job_parse(const char *text, size_t length, const char *path, int n, char *const overrides[],
                 struct tr_job **result)
{
    struct tr_job *job = NULL;
    int status = new_job(path, &job);
    if (status == TR_OK) status = fill(job, text, length, n, overrides);
    if (status == TR_OK) *result = job;
    else tr_job_free(job);
    return status;
}

void tr_job_free(struct tr_job *job)
{
    if (!job) return;
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++)
        if (key->kind == TR_KIND_LIST) tr_job_empty_list(job, key);
    for (size_t i = 0; job->where && i < TR_JOB_KEYS; i++) free(job->where[i]);
    free(job->where);
    free(job->output);
    free(job->name);
    free(job->path);
    free(job);
}

/* ---- the file ---- */

/* Reads one byte more than is allowed, so that the parser can tell. */
int tr_job_read_text(const char *path, char **text, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (!file) return tr_fail(TR_ERR_NO_INPUT, "%s: cannot read the job file: %s", path, strerror(errno));
    int status = TR_NEW(text, LARGEST_FILE + 1);
    if (status == TR_OK) {
        *length = fread(*text, 1, LARGEST_FILE + 1, file);
        if (ferror(file)) /* a folder, for one */
            status = tr_fail(TR_ERR_NO_INPUT, "%s: cannot read the job file: %s", path, strerror(errno));
    }
    fclose(file);
    return status;
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

/* Parses the job file into settings, by events of libyaml, which have exact line numbers. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/base.h"
#include "job/text.h"

enum { LARGEST_FILE = 1 << 20 };

struct reader {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current one */
    size_t line;        /* of the current event, or of the key of this value */
    const char *text;
    size_t length;
    struct tr_job *job;
    const char *where; /* of a value of the command line; NULL: the line counts */
};

/* The context of sections: the whole file or one task. */
struct scope {
    const char *prefix;           /* of names: "" or "tasks.one." */
    struct tr_job *job;           /* the job of the reader, or of the task */
    size_t line[TR_JOB_SECTIONS]; /* line of each section; 0: not seen yet */
};

static int fail(const struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
static int fail(const struct reader *r, const char *format, ...)
{
    char text[640];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (r->where) return tr_fail(TR_ERR_CONFIG, "%s: %s", r->where, text);
    return tr_fail(TR_ERR_CONFIG, "%s:%zu: %s", r->job->path, r->line, text);
}

static int fail_unknown(const struct reader *r, const char *what, const char *name, const char *meant)
{
    bool known = meant && *meant;
    return fail(r, "unknown %s %s%s%s%s", what, tr_shown(name).text, known ? ": did you mean " : "",
                known ? meant : "", known ? "?" : "");
}

static int fail_twice(const struct reader *r, const char *name, const char *first)
{
    return fail(r, "%s is given twice: first at %s", name, first);
}

/* ---- events ---- */

static size_t line_at(const char *text, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset; i++) line += text[i] == '\n';
    return line;
}

/* Returns whether a tab is in the indentation of the line, the usual cause of unclear errors of libyaml. */
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
    bool undecodable = r->yaml.error == YAML_READER_ERROR; /* detected before parsing: only an offset */
    r->line = undecodable ? line_at(r->text, tr_min_size(r->yaml.problem_offset, r->length))
                          : r->yaml.problem_mark.line + 1;
    if (is_indented_by_tab(r->text, r->length, r->line))
        return fail(r, "not YAML: a tab indents this line: use spaces");
    return fail(r, "not YAML: %s", r->yaml.problem);
}

static int refuse_extras(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor) return fail(r, "anchors (&) and aliases (*) are not allowed: quote the text");
    if (tag) return fail(r, "tags (!) are not allowed: quote the text");
    return TR_OK;
}

static const char *scalar(const struct reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

static int check_scalar(struct reader *r)
{
    if (strlen(scalar(r)) != r->event.data.scalar.length)
        return fail(r, "a NUL character in «%s»", tr_shown(scalar(r)).text);
    return refuse_extras(r, r->event.data.scalar.anchor, r->event.data.scalar.tag);
}

/* Advances to the next event. Refuses anchors, aliases and tags. */
static int next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->yaml, &r->event)) return not_yaml(r);
    r->line = r->event.start_mark.line + 1;
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

static int add_item(struct tr_job_setting *s, const char *text)
{
    size_t capacity = s->n;
    if ((s->n & (s->n - 1)) == 0) TR_TRY(TR_GROW(&s->item, &capacity, s->n ? 2 * s->n : 1));
    TR_TRY(tr_copy_string(text, &s->item[s->n]));
    s->n++;
    return TR_OK;
}

static int read_list(struct reader *r, const char *name, struct tr_job_setting *s)
{
    s->list = true;
    for (;;) {
        TR_TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail(r, "%s: expected text in the list, not another list or keys", name);
        if (is_null(r)) return fail(r, "%s: an item has no value", name);
        TR_TRY(add_item(s, scalar(r)));
    }
}

/* Refuses a value of a wrong kind. own: last part of the name if a section may also be here, else NULL. */
static int refuse_value(struct reader *r, const char *name, const char *own)
{
    const struct tr_model_class *class;
    const tr_option *key = tr_job_known_key(name, 0, &class);
    if (key && is_null(r)) return fail(r, "%s has no value", name);
    if (key) return fail(r, "%s is a section: expected %s", name, tr_job_expected(key).text);
    if (!own || is_null(r) || strchr(own, '.'))
        return fail_unknown(r, "key", name, tr_job_suggest_key(NULL, name).text);
    const char *meant = tr_job_suggest_section(own);
    char whole[2 * TR_JOB_LONGEST_NAME] = "";
    if (meant && strcmp(meant, own) != 0)
        snprintf(whole, sizeof whole, "%.*s%s", (int)(own - name), name, meant);
    return fail_unknown(r, "section", name, whole);
}

/* Reads a mapping of names to words as a list of «name: word». */
static int read_pairs(struct reader *r, const char *name, struct tr_job_setting *s)
{
    s->list = true;
    for (;;) {
        char *pair, *key;
        TR_TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT) return TR_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail(r, "%s: expected a name, not a list or keys", name);
        TR_TRY(tr_copy_string(scalar(r), &key));
        int status = next(r);
        if (status == TR_OK && (r->event.type != YAML_SCALAR_EVENT || is_null(r)))
            status = fail(r, "%s: %s: expected a word", name, tr_shown(key).text);
        if (status == TR_OK) status = tr_format(&pair, "%s: %s", key, scalar(r));
        free(key);
        TR_TRY(status);
        status = add_item(s, pair);
        free(pair);
        TR_TRY(status);
    }
}

static int read_value(struct reader *r, const char *name, const char *own)
{
    struct tr_job_setting *s;
    const struct tr_model_class *class;
    const tr_option *key = tr_job_known_key(name, 0, &class);
    bool pairs = key && key->kind == TR_KIND_PAIRS && r->event.type == YAML_MAPPING_START_EVENT;
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    if (!pairs && (r->event.type == YAML_MAPPING_START_EVENT || is_null(r)))
        return refuse_value(r, name, own);
    TR_TRY(tr_job_add(r->job, name, r->line, pairs || list ? NULL : scalar(r), &s));
    if (pairs) return read_pairs(r, name, s);
    if (list) return read_list(r, name, s);
    s->quoted = is_quoted(r);
    return TR_OK;
}

/* ---- mappings; the current event is the value's first, in the end the mapping's last ---- */

/* Advances to the value of the next key. name: prefix and key. */
static int next_entry(struct reader *r, const char *prefix, struct tr_job_name *name, bool *more)
{
    TR_TRY(next(r));
    *more = r->event.type != YAML_MAPPING_END_EVENT;
    if (!*more) return TR_OK;
    if (r->event.type != YAML_SCALAR_EVENT) return fail(r, "expected a key, not a list or keys");
    *name = tr_job_join(prefix, scalar(r));
    size_t line = r->line;
    TR_TRY(next(r));
    r->line = line; /* errors in a value below its key are reported for the line of the key */
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
    if (is_null(r)) return fail(r, "section %s is empty: fill it or leave it out", name);
    return fail(r, "%s is a section: expected its keys, one a line, indented", name);
}

static int read_stage(struct reader *r, struct tr_job *job, const char *name, const char *own)
{
    const struct tr_job_stage *before = tr_job_stage_of(job, own);
    if (before) return fail_twice(r, name, before->first);
    TR_TRY(tr_job_add_stage(job, own, r->line));
    TR_TRY(expect_mapping(r, name));
    return read_keys(r, name);
}

static int read_scope(struct reader *r, struct scope *scope);

static int read_task(struct reader *r, const char *name, const char *own)
{
    const struct tr_job_task *before = tr_job_task_of(r->job, own);
    if (before) return fail_twice(r, name, before->first);
    TR_TRY(tr_job_add_task(r->job, own, r->line));
    TR_TRY(expect_mapping(r, name));
    struct tr_job_name prefix = tr_job_join(name, ".");
    struct scope scope = {.prefix = prefix.text, .job = tr_job_task_of(r->job, own)->job};
    return read_scope(r, &scope);
}

/* Reads all stages or all tasks of a job. */
static int read_named(struct reader *r, struct tr_job *job, const char *section, bool tasks)
{
    struct tr_job_name prefix = tr_job_join(section, "."), name;
    for (bool more;;) {
        TR_TRY(next_entry(r, prefix.text, &name, &more));
        if (!more) return TR_OK;
        const char *own = name.text + strlen(prefix.text);
        TR_TRY(tasks ? read_task(r, name.text, own) : read_stage(r, job, name.text, own));
    }
}

static int read_section(struct reader *r, struct scope *scope, const struct tr_job_section *section)
{
    struct tr_job_name name = tr_job_join(scope->prefix, section->name);
    size_t *line = &scope->line[section - tr_job_sections];
    if (*line) return fail(r, "%s is given twice: first at %s:%zu", name.text, r->job->path, *line);
    *line = r->line;
    if (r->event.type == YAML_SCALAR_EVENT && section->short_for && !is_null(r))
        return read_value(r, section->short_for, NULL);
    TR_TRY(expect_mapping(r, name.text));
    if (section->named) return read_named(r, scope->job, name.text, !strcmp(section->name, "tasks"));
    return read_keys(r, name.text);
}

/* Returns the section that starts here, or NULL. A task has no tasks, and its `ranks` is a number or a section. */
static const struct tr_job_section *section_here(const struct reader *r, const struct scope *scope,
                                                 const char *own)
{
    const struct tr_job_section *section = tr_job_find_section(own);
    if (!section || !*scope->prefix) return section;
    bool number = r->event.type == YAML_SCALAR_EVENT && !is_null(r) && !strcmp(own, "ranks");
    return number || !strcmp(own, "tasks") ? NULL : section;
}

static int read_scope(struct reader *r, struct scope *scope)
{
    struct tr_job_name name;
    for (bool more;;) {
        TR_TRY(next_entry(r, scope->prefix, &name, &more));
        if (!more) return TR_OK;
        const char *own = name.text + strlen(scope->prefix);
        const struct tr_job_section *section = section_here(r, scope, own);
        TR_TRY(section ? read_section(r, scope, section) : read_value(r, name.text, own));
    }
}

/* ---- the file as a whole ---- */

static int no_settings(const struct reader *r)
{
    return tr_fail(TR_ERR_NO_INPUT, "%s: the job file is empty", r->job->path);
}

static int read_document(struct reader *r)
{
    TR_TRY(next(r)); /* start of the stream */
    TR_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return no_settings(r);
    TR_TRY(next(r)); /* the root */
    if (is_null(r)) return no_settings(r);
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return fail(r, "expected sections and keys, as in «seed: 1»");
    struct scope file = {.prefix = "", .job = r->job};
    TR_TRY(read_scope(r, &file));
    TR_TRY(next(r)); /* end of the document */
    TR_TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return fail(r, "a second YAML document: a job file holds one");
    return TR_OK;
}

int tr_job_read_yaml(struct tr_job *job, const char *text, size_t length)
{
    struct reader r = {.text = text, .length = length, .job = job};
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

int tr_job_read_list(const char *where, const char *name, const char *text, struct tr_job_setting *items)
{
    struct reader r = {.text = text, .length = strlen(text), .where = where};
    if (!yaml_parser_initialize(&r.yaml)) return tr_fail(TR_ERR_SYSTEM, "out of memory for %s", name);
    yaml_parser_set_input_string(&r.yaml, (const yaml_char_t *)text, r.length);
    int status = next(&r); /* the start of the stream, of the document, of the list */
    if (status == TR_OK) status = next(&r);
    if (status == TR_OK) status = next(&r);
    if (status == TR_OK)
        status = r.event.type == YAML_MAPPING_START_EVENT ? read_pairs(&r, name, items)
                                                          : read_list(&r, name, items);
    if (status == TR_OK) status = next(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.yaml);
    return status;
}

/* Reports a missing file and suggests e.yaml or jobs/e.yaml for e. */
static int no_such_file(const char *path)
{
    static const char *const forms[] = {"%s.yaml", "%s.yml", "jobs/%s", "jobs/%s.yaml"};
    int error = errno;
    char *meant = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        free(meant);
        if (asprintf(&meant, forms[i], path) < 0) return tr_fail(TR_ERR_SYSTEM, "out of memory");
        if (error == ENOENT && access(meant, R_OK) == 0) break;
        meant[0] = '\0';
    }
    int status = tr_fail(TR_ERR_NO_INPUT, "%s: cannot read the job file: %s%s%s%s", path, strerror(error),
                         *meant ? ": did you mean " : "", meant, *meant ? "?" : "");
    free(meant);
    return status;
}

/* Reads one byte more than the limit, so that the parser can report files that are too long. */
int tr_job_read_text(const char *path, char **text, size_t *length)
{
    if (strcmp(path, TR_NO_JOB_FILE) == 0) {
        *length = 2;
        return tr_copy_string("{}", text);
    }
    FILE *file = strcmp(path, TR_STANDARD_INPUT) == 0 ? stdin : fopen(path, "rb");
    if (!file) return no_such_file(path);
    int status = TR_NEW(text, LARGEST_FILE + 1);
    if (status == TR_OK) {
        *length = fread(*text, 1, LARGEST_FILE + 1, file);
        if (ferror(file)) /* for example a folder */
            status = tr_fail(TR_ERR_NO_INPUT, "%s: cannot read the job file: %s", path, strerror(errno));
    }
    if (file != stdin) fclose(file);
    return status;
}

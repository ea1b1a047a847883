/* The resolved job, as YAML and as JSON, and the table of keys as help. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "job/text.h"

enum style { YAML, JSON };

/* ---- values ---- */

/* Whether YAML reads the text as it is: a letter, digit, / . or _, then also -, and no word for nothing. */
static bool is_plain(const char *text)
{
    if (!*text) return false;
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
    return *text != '-' && !text[strspn(text, inside)] && strcasecmp(text, "null");
}

static void put_text(FILE *file, const char *text, enum style style)
{
    if (style == YAML && is_plain(text)) fputs(text, file);
    else tr_put_quoted(file, text);
}

static void put_list(FILE *file, const struct tr_job_list *list, enum style style)
{
    fputc('[', file);
    for (size_t i = 0; i < list->n; i++) {
        if (i) fputs(", ", file);
        put_text(file, list->item[i], style);
    }
    fputc(']', file);
}

/* The fewest digits that read back as the same number. */
static void put_real(FILE *file, double value)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    fputs(text, file);
}

static void put_often(FILE *file, const struct tr_job_often *often, enum style style)
{
    char text[40] = "auto";
    if (often->unit == TR_OFTEN_EVERY) snprintf(text, sizeof text, "every %" PRIu64, often->n);
    if (often->unit == TR_OFTEN_PER_EPOCH) snprintf(text, sizeof text, "%" PRIu64 " per epoch", often->n);
    if (style == YAML) fputs(text, file);
    else tr_put_quoted(file, text);
}

/* In the largest unit of which it is a whole number; seconds else. */
static void put_time(FILE *file, double seconds)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    size_t i = 0;
    if (seconds == 0) {
        fputs("no", file);
        return;
    }
    while (i < 3 && fmod(seconds, units[i].seconds) != 0) i++;
    put_real(file, seconds / units[i].seconds);
    fputs(units[i].name, file);
}

static void put_pace(FILE *file, const struct tr_job_pace *pace)
{
    if (pace->clocks == 1) fputs("1 clock", file);
    else if (pace->clocks > 0) fprintf(file, "%" PRIu64 " clocks", pace->clocks);
    else put_time(file, pace->seconds);
}

static void put_words(FILE *file, const struct tr_job_slot *slot, enum style style)
{
    if (style == JSON) fputc('"', file);
    if (slot->key->kind == TR_KIND_TIME) put_time(file, *(const double *)slot->field);
    else put_pace(file, slot->field);
    if (style == JSON) fputc('"', file);
}

static void put_value(FILE *file, const struct tr_job_slot *slot, enum style style)
{
    const void *field = slot->field;
    const char *word = tr_job_word(slot);
    if (word) {
        put_text(file, word, style);
        return;
    }
    switch (slot->key->kind) {
    case TR_KIND_TEXT: put_text(file, *(char *const *)field, style); break;
    case TR_KIND_LIST:
    case TR_KIND_NAMES: put_list(file, field, style); break;
    case TR_KIND_INTEGER: fprintf(file, "%" PRIu64, *(const uint64_t *)field); break;
    case TR_KIND_REAL: put_real(file, *(const double *)field); break;
    case TR_KIND_BOOL: fputs(*(const bool *)field ? "true" : "false", file); break;
    case TR_KIND_OFTEN: put_often(file, field, style); break;
    case TR_KIND_PACE:
    case TR_KIND_TIME: put_words(file, slot, style); break;
    case TR_KIND_CHOICE: break; /* has a word */
    }
}

void tr_job_put_value(FILE *file, const struct tr_job_slot *slot)
{
    put_value(file, slot, YAML);
}

/* ---- sections ---- */

static size_t section_length(const struct tr_job_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? (size_t)(dot - key->name) : 0;
}

static bool is_in(const struct tr_job_key *key, const char *section)
{
    return strlen(section) == section_length(key) && !strncmp(key->name, section, strlen(section));
}

/* Whether the key is the first of its section: the table holds sections in one piece. */
static bool opens_section(const struct tr_job_key *key)
{
    size_t length = section_length(key);
    return length && (key == tr_job_keys || section_length(key - 1) != length ||
                      strncmp(key->name, key[-1].name, length) != 0);
}

/* ---- settings, one a line ---- */

/* What is written where, in which style. */
struct writer {
    FILE *file;
    enum style style;
    int indent;       /* of the next line */
    const char *next; /* JSON: what comes before the next line: "" or "," */
};

static void begin_line(struct writer *w)
{
    if (w->style == JSON) fprintf(w->file, "%s\n", w->next);
    fprintf(w->file, "%*s", w->indent, "");
    w->next = ",";
}

static void put_name(struct writer *w, const char *name)
{
    put_text(w->file, name, w->style);
    fputc(':', w->file);
}

/* A line of YAML is done in memory first, so that what follows can stand in a column. */
static int put_yaml_line(struct writer *w, const char *name, const struct tr_job_slot *slot)
{
    char *line = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&line, &length);
    if (!memory) return tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
    fprintf(memory, "%*s%s: ", w->indent, "", name);
    put_value(memory, slot, YAML);
    bool complete = fclose(memory) == 0;
    if (complete) {
        fprintf(w->file, "%-35s # ", line);
        tr_put_line(w->file, *slot->where ? *slot->where : "default");
        fputc('\n', w->file);
    }
    free(line);
    return complete ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
}

static int put_setting(struct writer *w, const char *name, const struct tr_job_slot *slot)
{
    if (w->style == YAML) return put_yaml_line(w, name, slot);
    begin_line(w);
    put_name(w, name);
    fputc(' ', w->file);
    put_value(w->file, slot, JSON);
    return TR_OK;
}

static void open_level(struct writer *w, const char *name)
{
    begin_line(w);
    put_name(w, name);
    fputs(w->style == YAML ? "\n" : " {", w->file);
    w->indent += 2;
    w->next = "";
}

static void close_level(struct writer *w)
{
    w->indent -= 2;
    w->next = ",";
    if (w->style == JSON) fprintf(w->file, "\n%*s}", w->indent, "");
}

/* ---- stages and tasks ---- */

static int put_own(struct writer *w, struct tr_job_values values)
{
    for (size_t i = 0; i < values.table->keys; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(put_setting(w, tr_job_own_name(slot.key->name), &slot));
    }
    return TR_OK;
}

static int put_stages(struct writer *w, const struct tr_job *job)
{
    if (job->stages == 0) return TR_OK;
    open_level(w, "stages");
    for (size_t i = 0; i < job->stages; i++) {
        open_level(w, job->stage[i].name);
        TR_TRY(put_own(w, tr_job_stage_values(&job->stage[i])));
        close_level(w);
    }
    close_level(w);
    return TR_OK;
}

/* What a task has of its own, by whole names: ranks is a key of a task as well as a section. */
static int put_differences(struct writer *w, struct tr_job_values values, struct tr_job_values whole,
                           const char *stage)
{
    for (size_t i = 0; i < values.table->keys; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i), other = {0};
        if (whole.where) other = tr_job_slot(&whole, i);
        bool its_own = slot.key->kind == TR_KIND_TEXT && **(char *const *)slot.field; /* name and folders */
        if (!its_own && whole.where && tr_job_same(&slot, &other)) continue;
        if (stage)
            snprintf(slot.name.text, sizeof slot.name.text, "stages.%s.%s", stage,
                     tr_job_own_name(slot.key->name));
        TR_TRY(put_setting(w, slot.name.text, &slot));
    }
    return TR_OK;
}

static int put_task(struct writer *w, const struct tr_job *job, const struct tr_job_task *task)
{
    TR_TRY(put_own(w, tr_job_task_values(task)));
    TR_TRY(put_differences(w, tr_job_values(task->job), tr_job_values(job), NULL));
    for (size_t i = 0; i < task->job->stages; i++) {
        const struct tr_job_stage *stage = &task->job->stage[i], *whole = tr_job_stage_of(job, stage->name);
        struct tr_job_values none = {0};
        TR_TRY(put_differences(w, tr_job_stage_values(stage), whole ? tr_job_stage_values(whole) : none,
                               stage->name));
    }
    return TR_OK;
}

static int put_tasks(struct writer *w, const struct tr_job *job)
{
    if (job->tasks == 0) return TR_OK;
    open_level(w, "tasks");
    for (size_t i = 0; i < job->tasks; i++) {
        open_level(w, job->task[i].name);
        TR_TRY(put_task(w, job, &job->task[i]));
        close_level(w);
    }
    close_level(w);
    return TR_OK;
}

/* ---- the job ---- */

static int put_sections(struct writer *w, const struct tr_job *job)
{
    struct tr_job_values values = tr_job_values(job);
    bool inside = false;
    for (size_t i = 0; i < values.table->keys; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        if (opens_section(slot.key)) {
            struct tr_job_name section = slot.name;
            section.text[section_length(slot.key)] = '\0';
            if (inside) close_level(w);
            open_level(w, section.text);
            inside = true;
        }
        TR_TRY(put_setting(w, tr_job_own_name(slot.key->name), &slot));
    }
    close_level(w);
    return TR_OK;
}

static int put_job(struct writer *w, const struct tr_job *job)
{
    TR_TRY(put_sections(w, job));
    TR_TRY(put_stages(w, job));
    TR_TRY(put_tasks(w, job));
    return ferror(w->file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

int tr_job_write_yaml(const struct tr_job *job, FILE *file)
{
    struct writer w = {file, YAML, 0, ""};
    return put_job(&w, job);
}

int tr_job_write_json(const struct tr_job *job, FILE *file, int indent)
{
    struct writer w = {file, JSON, indent + 2, ""};
    fputc('{', file);
    int status = put_job(&w, job);
    fprintf(file, "\n%*s}", indent, "");
    if (status != TR_OK) return status;
    return ferror(file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

/* ---- help ---- */

enum { LINE = 110 };

struct widths {
    int name, kind, value;
};

/* Columns this wide serve all but a few, whose meaning goes to the next line. */
enum { WIDEST_NAME = 26, WIDEST_KIND = 20, WIDEST_VALUE = 11 };

static int wider(int width, const char *text, int widest)
{
    int length = (int)strlen(text);
    return length > width && length <= widest ? length : width;
}

/* The i-th of all keys, table by table. */
enum { ALL_KEYS = TR_JOB_KEYS + TR_STAGE_KEYS + TR_TASK_KEYS };
static const struct tr_job_key *key_at(size_t i)
{
    const struct tr_job_table *table = tr_job_tables;
    for (; i >= table->keys; table++) i -= table->keys;
    return &table->key[i];
}

/* Over all keys, so that sections shown alone look the same. */
static struct widths measure(void)
{
    struct widths w = {0};
    for (size_t i = 0; i < ALL_KEYS; i++) {
        const struct tr_job_key *key = key_at(i);
        w.name = wider(w.name, key->name, WIDEST_NAME);
        w.kind = wider(w.kind, tr_job_kind_words(key).text, WIDEST_KIND);
        w.value = wider(w.value, key->by_default, WIDEST_VALUE);
    }
    return w;
}

/* Puts the text at this column, broken between words. */
static void put_wrapped(FILE *file, const char *text, int column)
{
    int at = column;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > LINE) {
            fprintf(file, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(file, "%s%.*s", at > column ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

static void put_key(FILE *file, const struct tr_job_key *key, struct widths w)
{
    int column = w.name + w.kind + w.value + 8;
    struct tr_job_words words = tr_job_kind_words(key);
    const char *kind = words.text;
    if ((int)strlen(kind) <= w.kind && (int)strlen(key->by_default) <= w.value)
        fprintf(file, "  %-*s  %-*s  %-*s  ", w.name, key->name, w.kind, kind, w.value, key->by_default);
    else fprintf(file, "  %-*s  %s  %s\n%*s", w.name, key->name, kind, key->by_default, column, "");
    put_wrapped(file, key->help, column);
}

static void put_section(FILE *file, const struct tr_job_section *section, struct widths w)
{
    int column = fprintf(file, "\n%s: ", section->name) - 1;
    put_wrapped(file, section->help, column);
    for (size_t i = 0; i < ALL_KEYS; i++)
        if (is_in(key_at(i), section->name)) put_key(file, key_at(i), w);
}

static void put_all(FILE *file, struct widths w)
{
    fputs("A job file is YAML: sections of keys, each with a default. Any key can be given on the command "
          "line\n"
          "as section.key=value, which wins; a list there has commas between its items.\n\n",
          file);
    fprintf(file, "  %-*s  %-*s  %-*s  %s\n", w.name, "key", w.kind, "value", w.value, "default", "meaning");
    for (size_t i = 0; i < ALL_KEYS; i++)
        if (is_in(key_at(i), "")) put_key(file, key_at(i), w);
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) put_section(file, &tr_job_sections[i], w);
}

static void put_unknown(FILE *file, const char *filter)
{
    const char *meant = tr_job_suggest_section(filter);
    struct tr_job_name key = tr_job_suggest_key(filter);
    if (!meant && *key.text) meant = key.text;
    fprintf(file, "no section or key %s in a job file", tr_shown(filter).text);
    if (meant) fprintf(file, ": did you mean %s?", meant);
    else fputs("; the sections are", file);
    for (size_t i = 0; !meant && i < TR_JOB_SECTIONS; i++)
        fprintf(file, "%s%s", i ? ", " : " ", tr_job_sections[i].name);
    fputc('\n', file);
}

void tr_job_help(FILE *file, const char *filter)
{
    struct widths w = measure();
    const struct tr_job_section *section = filter ? tr_job_find_section(filter) : NULL;
    const struct tr_job_key *key = filter ? tr_job_find_key(filter) : NULL;
    if (!filter) put_all(file, w);
    else if (section) put_section(file, section, w);
    else if (key) put_key(file, key, w);
    else put_unknown(file, filter);
}

int tr_job_as_text(const tr_job *job, char **text)
{
    size_t length;
    FILE *file = open_memstream(text, &length);
    if (!file) return tr_fail(TR_ERR_SYSTEM, "out of memory: the text of the job");
    int status = tr_job_write_yaml(job, file);
    if (fclose(file) != 0 && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "out of memory: the text of the job");
    return status;
}

/* The resolved job, as YAML and as JSON, and the table of keys as help. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <inttypes.h>
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

static void put_value(FILE *file, const struct tr_job *job, const struct tr_job_key *key, enum style style)
{
    const void *field = tr_job_field(job, key);
    const char *word = tr_job_word(job, key);
    if (word) {
        put_text(file, word, style);
        return;
    }
    switch (key->kind) {
    case TR_KIND_TEXT: put_text(file, *(char *const *)field, style); break;
    case TR_KIND_LIST: put_list(file, field, style); break;
    case TR_KIND_INTEGER: fprintf(file, "%" PRIu64, *(const uint64_t *)field); break;
    case TR_KIND_REAL: put_real(file, *(const double *)field); break;
    case TR_KIND_BOOL: fputs(*(const bool *)field ? "true" : "false", file); break;
    case TR_KIND_OFTEN: put_often(file, field, style); break;
    case TR_KIND_CHOICE: break; /* has a word */
    }
}

/* ---- sections ---- */

static size_t section_length(const struct tr_job_key *key)
{
    const char *dot = strchr(key->name, '.');
    return dot ? (size_t)(dot - key->name) : 0;
}

static const char *own_name(const struct tr_job_key *key)
{
    size_t length = section_length(key);
    return key->name + (length ? length + 1 : 0);
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

/* ---- YAML ---- */

static int put_yaml_line(FILE *file, const struct tr_job *job, const struct tr_job_key *key)
{
    char *line = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&line, &length);
    if (!memory) return tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
    fprintf(memory, "%s%s: ", section_length(key) ? "  " : "", own_name(key));
    put_value(memory, job, key, YAML);
    bool complete = fclose(memory) == 0;
    if (complete) {
        fprintf(file, "%-35s # ", line);
        tr_put_line(file, tr_job_where(job, key->name));
        fputc('\n', file);
    }
    free(line);
    return complete ? TR_OK : tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
}

static int check_written(FILE *file)
{
    return ferror(file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

int tr_job_write_yaml(const struct tr_job *job, FILE *file)
{
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++) {
        if (opens_section(key)) fprintf(file, "%.*s:\n", (int)section_length(key), key->name);
        TR_TRY(put_yaml_line(file, job, key));
    }
    return check_written(file);
}

/* ---- JSON ---- */

int tr_job_write_json(const struct tr_job *job, FILE *file, int indent)
{
    bool inside = false;
    fputc('{', file);
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++) {
        bool opens = opens_section(key);
        if (opens && inside) fprintf(file, "\n%*s}", indent + 2, "");
        fputs(key == tr_job_keys ? "\n" : ",\n", file);
        if (opens) fprintf(file, "%*s\"%.*s\": {\n", indent + 2, "", (int)section_length(key), key->name);
        inside |= opens;
        fprintf(file, "%*s\"%s\": ", indent + (inside ? 4 : 2), "", own_name(key));
        put_value(file, job, key, JSON);
    }
    fprintf(file, "\n%*s}\n%*s}", indent + 2, "", indent, "");
    return check_written(file);
}

/* ---- help ---- */

enum { LINE = 110 };

struct widths {
    int name, kind, value;
};

/* Columns this wide serve all but a few, whose meaning goes to the next line. */
enum { WIDEST = 26 };

static int wider(int width, const char *text)
{
    int length = (int)strlen(text);
    return length > width && length <= WIDEST ? length : width;
}

/* Over all keys, so that sections shown alone look the same. */
static struct widths measure(void)
{
    struct widths w = {0};
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++) {
        w.name = wider(w.name, key->name);
        w.kind = wider(w.kind, tr_job_kind_words(key).text);
        w.value = wider(w.value, key->by_default);
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
    if ((int)strlen(kind) <= w.kind)
        fprintf(file, "  %-*s  %-*s  %-*s  ", w.name, key->name, w.kind, kind, w.value, key->by_default);
    else fprintf(file, "  %-*s  %s  %s\n%*s", w.name, key->name, kind, key->by_default, column, "");
    put_wrapped(file, key->help, column);
}

static void put_section(FILE *file, const struct tr_job_section *section, struct widths w)
{
    fprintf(file, "\n%s: %s\n", section->name, section->help);
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++)
        if (is_in(key, section->name)) put_key(file, key, w);
}

static void put_all(FILE *file, struct widths w)
{
    fputs("A job file is YAML: sections of keys, each with a default. Any key can be given on the command "
          "line\n"
          "as section.key=value, which wins; a list there has commas between its items.\n\n",
          file);
    fprintf(file, "  %-*s  %-*s  %-*s  %s\n", w.name, "key", w.kind, "value", w.value, "default", "meaning");
    for (const struct tr_job_key *key = tr_job_keys; key < tr_job_keys + TR_JOB_KEYS; key++)
        if (is_in(key, "")) put_key(file, key, w);
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) put_section(file, &tr_job_sections[i], w);
}

static void put_unknown(FILE *file, const char *filter)
{
    const char *meant = tr_job_suggest_section(filter);
    if (!meant) meant = tr_job_suggest_key(filter);
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

/* Writes jobs as YAML and JSON, compares two jobs, and prints the tables of keys for `trireme help job`. */
#define _GNU_SOURCE
#include "job/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/terminal.h"

/* ---- writing ---- */

/* Writes the lines of a job. */
struct writer {
    FILE *file;
    bool json;
    int indent;       /* number of blanks before the next line */
    const char *next; /* JSON: separator before the next line: "" or "," */
};

static void begin_line(struct writer *w, const char *name)
{
    if (w->json) fprintf(w->file, "%s\n", w->next);
    fprintf(w->file, "%*s", w->indent, "");
    w->next = ",";
    tr_job_put_text(w->file, name, w->json);
    fputc(':', w->file);
}

/* A line of YAML is formatted in memory first, so that comments are aligned. */
static int put_setting(struct writer *w, const char *name, const struct tr_job_slot *slot)
{
    if (w->json) {
        begin_line(w, name);
        fputc(' ', w->file);
        tr_job_put_value(w->file, slot, true);
        return TR_OK;
    }
    TR_FREED char *value = NULL, *line = NULL;
    const char *where = *slot->where ? *slot->where : "default";
    if (!tr_job_value_text(slot, &value)) return tr_fail(TR_ERR_SYSTEM, "out of memory for writing the job");
    TR_TRY(tr_format(&line, "%*s%s: %s", w->indent, "", name, value));
    fprintf(w->file, "%-35s # ", line);
    tr_put_visible(w->file, where, strlen(where));
    fputc('\n', w->file);
    return TR_OK;
}

static void open_level(struct writer *w, const char *name)
{
    begin_line(w, name);
    fputs(!w->json ? "\n" : " {", w->file);
    w->indent += 2;
    w->next = "";
}

static void close_level(struct writer *w)
{
    w->indent -= 2;
    w->next = ",";
    if (w->json) fprintf(w->file, "\n%*s}", w->indent, "");
}

static int put_own(struct writer *w, struct tr_job_values values)
{
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        TR_TRY(put_setting(w, tr_job_own_name(slot.key->name), &slot));
    }
    return TR_OK;
}

/* Returns whether the job sets the key, or its class and method use the key. */
static bool is_written(const struct tr_job *job, const struct tr_job_slot *slot)
{
    return tr_job_uses(job, slot->key) || tr_job_is_own(job, *slot->where);
}

/* Writes the settings of a task that differ from the whole job, with full names, because `ranks` is a key of a task and also a section. */
static int put_differences(struct writer *w, const struct tr_job *job, const struct tr_job *whole)
{
    struct tr_job_values values = tr_job_values(job);
    struct tr_job_slot other;
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        const char *name = slot.key->name;
        bool text = slot.key->kind == TR_KIND_TEXT && !slot.key->words && **(char *const *)slot.field;
        bool its_own = text || tr_job_is_own(job, *slot.where); /* texts are names and folders of the task */
        bool taken =
            tr_job_find(whole, name, &other) && is_written(whole, &other) && tr_job_same(&slot, &other);
        if (is_written(job, &slot) && (its_own || !taken)) TR_TRY(put_setting(w, name, &slot));
    }
    for (size_t s = 0; s < job->stages; s++) {
        values = tr_job_stage_values(&job->stage[s]);
        for (size_t i = 0; i < values.n; i++) {
            struct tr_job_slot slot = tr_job_slot(&values, i);
            struct tr_job_name name;
            snprintf(name.text, sizeof name.text, "stages.%s.%s", job->stage[s].name,
                     tr_job_own_name(slot.key->name));
            if (!tr_job_find(whole, name.text, &other) || !tr_job_same(&slot, &other))
                TR_TRY(put_setting(w, name.text, &slot));
        }
    }
    return TR_OK;
}

/* Writes a section: first the keys of the engine, then those of the class. */
static int put_section(struct writer *w, const struct tr_job *job, const char *section)
{
    struct tr_job_values values = tr_job_values(job);
    bool open = !*section;
    for (size_t i = 0; i < values.n; i++) {
        struct tr_job_slot slot = tr_job_slot(&values, i);
        if (!tr_job_in_section(slot.key->name, section) || !is_written(job, &slot)) continue;
        if (!open) open_level(w, section);
        open = true;
        TR_TRY(put_setting(w, tr_job_own_name(slot.key->name), &slot));
    }
    if (*section && open) close_level(w);
    return TR_OK;
}

static int put_job(struct writer *w, const struct tr_job *job)
{
    TR_TRY(put_section(w, job, ""));
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++)
        if (!tr_job_sections[i].named) TR_TRY(put_section(w, job, tr_job_sections[i].name));
    for (size_t i = 0; i < job->stages; i++) {
        if (i == 0) open_level(w, "stages");
        open_level(w, job->stage[i].name);
        TR_TRY(put_own(w, tr_job_stage_values(&job->stage[i])));
        close_level(w);
        if (i + 1 == job->stages) close_level(w);
    }
    for (size_t i = 0; i < job->tasks; i++) {
        if (i == 0) open_level(w, "tasks");
        open_level(w, job->task[i].name);
        TR_TRY(put_own(w, tr_job_task_values(&job->task[i])));
        TR_TRY(put_differences(w, job->task[i].job, job));
        close_level(w);
        if (i + 1 == job->tasks) close_level(w);
    }
    return ferror(w->file) ? tr_fail(TR_ERR_IO, "the job cannot be written") : TR_OK;
}

int tr_job_write_yaml(const struct tr_job *job, FILE *file)
{
    struct writer w = {file, false, 0, ""};
    return put_job(&w, job);
}

int tr_job_write_json(const struct tr_job *job, FILE *file, int indent)
{
    struct writer w = {file, true, indent + 2, ""};
    fputc('{', file);
    TR_TRY(put_job(&w, job));
    fprintf(file, "\n%*s}", indent, "");
    return TR_OK;
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

/* ---- comparison of two jobs: whether a run of one may resume with the other ---- */

struct comparison {
    FILE *changes;   /* permitted differences, as «solve.epochs 10 -> 20, seed 1 -> 2» */
    size_t allowed;  /* number of permitted differences */
    size_t refused;  /* number of other differences */
    char first[640]; /* description of the first difference that is not permitted */
};

/* Returns the value of a key for messages; the default if the job does not contain it. */
static struct tr_shown value_of(const struct tr_job *job, const char *name, const tr_option *key)
{
    struct tr_job_slot slot;
    TR_FREED char *text = NULL;
    if (!tr_job_find(job, name, &slot)) return tr_shown(key->by_default);
    return tr_shown(tr_job_value_text(&slot, &text) ? text : "?");
}

/* Returns whether both jobs have the same value of a key; a missing key has its default. */
static bool same(const struct tr_job *now, const struct tr_job *old, const char *name, const tr_option *key)
{
    struct tr_job_slot a, b;
    if (tr_job_find(now, name, &a) && tr_job_find(old, name, &b)) return tr_job_same(&a, &b);
    return strcmp(value_of(now, name, key).text, value_of(old, name, key).text) == 0;
}

static void refuse(struct comparison *c, const char *what, const char *was, const char *is, const char *where)
{
    if (c->refused++ == 0)
        snprintf(c->first, sizeof c->first, "%s%s%s is %s (%s)", what, was, *was ? "," : "", is, where);
}

/* Compares a key of both jobs. checkpoint.* may differ, since it does not affect the model. */
static void compare_key(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                        const char *name, const tr_option *key)
{
    if (same(now, old, name, key) || !strncmp(key->name, "checkpoint.", strlen("checkpoint."))) return;
    struct tr_shown was = value_of(old, name, key), is = value_of(now, name, key);
    struct tr_job_slot slot;
    const char *where = tr_job_find(now, name, &slot) && *slot.where ? *slot.where : "default";
    if (key->may_change) {
        fprintf(c->changes, "%s%s %s -> %s", c->allowed++ ? ", " : "", name, was.text, is.text);
        return;
    }
    struct tr_job_name before;
    snprintf(before.text, sizeof before.text, " was %.100s", was.text);
    refuse(c, name, before.text, is.text, where);
}

/* Compares the keys of the whole jobs, or of a task. prefix: "" or "tasks.NAME."; mine, theirs: the whole jobs, or the jobs of the
 * task in `now` and `old`. Differences between the whole jobs are not repeated for their tasks. If the classes of models differ,
 * model.type is reported before the options of the classes. */
static void compare_values(struct comparison *c, const struct tr_job *now, const struct tr_job *old,
                           const char *prefix, const struct tr_job *mine, const struct tr_job *theirs)
{
    struct tr_job_values values = tr_job_values(mine);
    struct tr_job_slot slot;
    for (size_t i = 0; i < values.n; i++) {
        const tr_option *key = tr_job_slot(&values, i).key;
        struct tr_job_name name = tr_job_join(prefix, key->name);
        bool repeated = *prefix && tr_job_find(now, key->name, &slot) && tr_job_find(old, key->name, &slot) &&
                        !same(now, old, key->name, key);
        if (!repeated && tr_job_find(old, name.text, &slot)) compare_key(c, now, old, name.text, key);
    }
    for (size_t i = 0; i < mine->stages + theirs->stages; i++) {
        bool second = i >= mine->stages;
        const char *stage = second ? theirs->stage[i - mine->stages].name : mine->stage[i].name;
        if (second && tr_job_stage_of(mine, stage)) continue;
        for (size_t k = 0; k < tr_job_tables[TR_TABLE_STAGE].n; k++) {
            const tr_option *key = &tr_job_tables[TR_TABLE_STAGE].key[k];
            struct tr_job_name name;
            snprintf(name.text, sizeof name.text, "%sstages.%s.%s", prefix, stage,
                     tr_job_own_name(key->name));
            compare_key(c, now, old, name.text, key);
        }
    }
}

static int compare_jobs(struct comparison *c, const struct tr_job *now, const struct tr_job *old)
{
    compare_values(c, now, old, "", now, old);
    for (size_t i = 0; i < now->tasks; i++) {
        const struct tr_job_task *a = &now->task[i], *b = tr_job_task_of(old, a->name);
        struct tr_job_name prefix = tr_job_task_prefix(a), what = tr_job_join("task ", a->name);
        if (!b) refuse(c, what.text, "", "new", a->first);
        for (size_t k = 0; b && k < tr_job_tables[TR_TABLE_TASK].n; k++) {
            const tr_option *key = &tr_job_tables[TR_TABLE_TASK].key[k];
            compare_key(c, now, old, tr_job_join(prefix.text, tr_job_own_name(key->name)).text, key);
        }
        if (b) compare_values(c, now, old, prefix.text, a->job, b->job);
    }
    for (size_t i = 0; i < old->tasks; i++)
        if (!tr_job_task_of(now, old->task[i].name))
            refuse(c, tr_job_join("task ", old->task[i].name).text, "", "gone", now->path);
    if (c->refused == 0) return TR_OK;
    char more[48] = "";
    if (c->refused > 1)
        snprintf(more, sizeof more, ", and %zu more differ%s", c->refused - 1, c->refused == 2 ? "s" : "");
    return tr_fail(TR_ERR_CONFIG, "%s%s; --fresh starts over", c->first, more);
}

static int read_old(const tr_model_class *own, const char *yaml, struct tr_job **old)
{
    if (tr_job_parse_as(TR_JOB_WRITTEN, own, yaml, strlen(yaml), "job.yaml", 0, NULL, old) == TR_OK)
        return TR_OK;
    char why[640];
    snprintf(why, sizeof why, "%s", tr_error_text());
    return tr_fail(TR_ERR_CONFIG, "the job of the earlier run cannot be read (%s); --fresh starts over", why);
}

int tr_job_compare(const struct tr_job *now, const char *old_yaml, char **change)
{
    struct tr_job *old = NULL;
    struct comparison c = {0};
    char *text = NULL;
    size_t length = 0;
    TR_TRY(read_old(now->own, old_yaml, &old));
    c.changes = open_memstream(&text, &length);
    int status = c.changes ? compare_jobs(&c, now, old) : TR_OK;
    if ((!c.changes || fclose(c.changes) != 0) && status == TR_OK)
        status = tr_fail(TR_ERR_SYSTEM, "out of memory for comparing jobs");
    tr_job_free(old);
    bool wanted = status == TR_OK && change && c.allowed > 0;
    if (status == TR_OK && change) *change = wanted ? text : NULL;
    if (!wanted) free(text);
    return status;
}

bool tr_job_extends(const struct tr_job *now, const char *old_yaml)
{
    struct tr_job *old = NULL;
    if (tr_job_compare(now, old_yaml, NULL) != TR_OK || read_old(now->own, old_yaml, &old) != TR_OK)
        return false;
    bool more = now->solve.epochs > old->solve.epochs;
    tr_job_free(old);
    return more;
}

/* ---- help ---- */

/* Help has the width of the terminal, up to LINE columns; LINE if it is not printed to a terminal. If less than NARROW columns are
 * left beside the name of a key, its meaning starts on the next line, after INDENT blanks. */
enum { LINE = 110, NARROW = 40, INDENT = 8 };

struct widths {
    int name, kind, value, line;
};

/* Maximum widths of the columns, in which almost all texts fit. The meaning of the other keys starts on the next line. */
enum { WIDEST_NAME = 26, WIDEST_KIND = 20, WIDEST_VALUE = 11 };

static int help_wider(int width, const char *text, int widest)
{
    int length = (int)strlen(text);
    return length > width && length <= widest ? length : width;
}

static void help_key(FILE *file, const tr_option *key, struct widths w)
{
    int column = w.name + w.kind + w.value + 8;
    struct tr_job_words words = tr_job_kind_words(key);
    const char *kind = words.text, *value = key->by_default;
    if (column + NARROW > w.line) {
        const char *usual = *value ? "default " : "", *comma = *kind && *usual ? ", " : "";
        int length = (int)(strlen(key->name) + strlen(kind) + strlen(usual) + strlen(value)) + 6;
        column = INDENT;
        fprintf(file, "  %s  %s%s%s%s\n", key->name, length <= w.line ? kind : "",
                length <= w.line ? comma : "", usual, value);
        if (length > w.line) { /* «a|b|c» may be broken between the words */
            char text[2 * sizeof words];
            size_t n = 0;
            for (; *kind; kind++)
                n += (size_t)snprintf(text + n, sizeof text - n, *kind == '|' ? "| " : "%c", *kind);
            tr_put_paragraph(file, text, fprintf(file, "%*s", column, ""), w.line);
        }
        fprintf(file, "%*s", column, "");
    } else if ((int)strlen(kind) <= w.kind && (int)strlen(value) <= w.value) {
        fprintf(file, "  %-*s  %-*s  %-*s  ", w.name, key->name, w.kind, kind, w.value, value);
    } else {
        fprintf(file, "  %-*s  %s  %s\n%*s", w.name, key->name, kind, value, column, "");
    }
    char text[2048];
    snprintf(text, sizeof text, "%s%s%s", key->methods ? key->methods : "", key->methods ? ": " : "",
             key->help);
    tr_put_paragraph(file, text, column, w.line);
}

/* Prints the keys that a table has in a section, below the name of their class. section NULL: all keys, without this name. */
static void help_keys(FILE *file, struct tr_job_keys keys, const char *section, struct widths w)
{
    bool named = !section || !keys.class;
    for (size_t i = 0; i < keys.n; i++) {
        if (section && !tr_job_in_section(keys.key[i].name, section)) continue;
        if (!named) fprintf(file, " %s:\n", keys.class->name);
        named = true;
        help_key(file, &keys.key[i], w);
    }
}

/* Prints «name: text» after an empty line. */
static void help_title(FILE *file, const char *name, const char *text, struct widths w)
{
    int column = fprintf(file, "\n%s: ", name) - 1;
    tr_put_paragraph(file, text, column, w.line);
}

static void help_section(FILE *file, const struct tr_job_section *section, struct widths w)
{
    help_title(file, section->name, section->help, w);
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++)
        help_keys(file, tr_job_table(t), section->name, w);
}

/* Prints words with commas between them, from column `column` on. */
static void help_words(FILE *file, const char *const *words, int column, struct widths w)
{
    char text[1024] = "";
    size_t n = 0;
    for (size_t i = 0; words[i] && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", words[i]);
    tr_put_paragraph(file, text, column, w.line);
}

static void help_methods(FILE *file, const tr_model_class *class, struct widths w)
{
    for (const tr_method *m = class->methods; m->name; m++)
        tr_put_paragraph(file, m->help, fprintf(file, "    %-10s  ", m->name), w.line);
}

/* Prints types, methods and keys of a class. */
static void help_class(FILE *file, struct tr_job_keys keys, struct widths w)
{
    const tr_model_class *class = keys.class;
    help_title(file, class->name, class->help, w);
    help_words(file, class->types, fprintf(file, "  model.type   "), w);
    help_words(file, class->data_formats, fprintf(file, "  data.format  "), w);
    fputs("  solve.method\n", file);
    help_methods(file, class, w);
    fputc('\n', file);
    help_keys(file, keys, NULL, w);
}

/* Prints the names of all keys in a section: those of the engine, and those of each class in a paragraph of their own. */
static void help_names(FILE *file, const char *section, struct widths w)
{
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++) {
        struct tr_job_keys keys = tr_job_table(t);
        const char *names[128];
        size_t n = 0;
        for (size_t i = 0; i < keys.n && n < 127; i++)
            if (tr_job_in_section(keys.key[i].name, section)) names[n++] = tr_job_own_name(keys.key[i].name);
        names[n] = NULL;
        if (n == 0) continue;
        bool of_class = keys.class != NULL;
        help_words(file, names,
                   fprintf(file, of_class ? "    %s: " : "    ", of_class ? keys.class->name : ""), w);
    }
}

/* Prints all keys, or only the names of sections, keys and classes. */
static void help_overview(FILE *file, bool all, struct widths w)
{
    tr_put_paragraph(file,
                     "A job file is YAML: sections of keys, each with a default. Any key can be given on the "
                     "command line as section.key=value, which wins. A list is [a, b] or a,b, there as in "
                     "the file. Some keys are those of a class of models, and mean nothing to others.",
                     0, w.line);
    fputc('\n', file);
    if (all) {
        help_keys(file, tr_job_table(TR_TABLE_JOB), "", w);
        for (size_t i = 0; i < TR_JOB_SECTIONS; i++) help_section(file, &tr_job_sections[i], w);
        return;
    }
    fputs("  trireme help job SECTION | SECTION.KEY | CLASS | all\n\nKeys without a section\n", file);
    help_names(file, "", w);
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) {
        help_title(file, tr_job_sections[i].name, tr_job_sections[i].help, w);
        help_names(file, tr_job_sections[i].name, w);
    }
    fputs("\nClasses of models\n", file);
    for (size_t c = 0; c < tr_model_class_count; c++)
        tr_put_paragraph(file, tr_model_classes[c]->help,
                         fprintf(file, "    %-8s ", tr_model_classes[c]->name), w.line);
}

bool tr_job_help(FILE *file, const char *filter)
{
    /* measures all keys, so that a section has the same columns when it is shown alone. */
    struct widths w = {.line = tr_min_int(tr_terminal_columns(stdout, LINE), LINE)};
    for (size_t t = 0; t < TR_JOB_TABLES + tr_model_class_count; t++) {
        struct tr_job_keys keys = tr_job_table(t);
        for (size_t i = 0; i < keys.n; i++) {
            w.name = help_wider(w.name, keys.key[i].name, WIDEST_NAME);
            w.kind = help_wider(w.kind, tr_job_kind_words(&keys.key[i]).text, WIDEST_KIND);
            w.value = help_wider(w.value, keys.key[i].by_default, WIDEST_VALUE);
        }
    }
    const tr_model_class *class;
    const tr_option *key;
    const struct tr_job_section *section = filter ? tr_job_find_section(filter) : NULL;
    if (section) help_section(file, section, w);
    if (!filter || !strcmp(filter, "all")) help_overview(file, filter, w);
    if (section || !filter || !strcmp(filter, "all")) return true;
    for (size_t c = 0; c < tr_model_class_count; c++)
        if (strcmp(tr_model_classes[c]->name, filter) == 0) {
            help_class(file, tr_job_table(TR_JOB_TABLES + c), w);
            return true;
        }
    size_t n = 0;
    for (; (key = tr_job_known_key(filter, n, &class)); n++) {
        if (class) fprintf(file, " %s:\n", class->name);
        help_key(file, key, w);
    }
    bool type = !strcmp(filter, "model.type"), method = !strcmp(filter, "solve.method");
    for (size_t c = 0; c < tr_model_class_count && (type || method);
         c++) { /* list the values of all classes */
        fprintf(file, "\n %s:\n", tr_model_classes[c]->name);
        if (type) help_words(file, tr_model_classes[c]->types, fprintf(file, "    "), w);
        else help_methods(file, tr_model_classes[c], w);
    }
    if (n > 0) return true;
    const char *meant = tr_job_suggest_section(filter);
    struct tr_job_name name = tr_job_suggest_key(NULL, filter);
    if (!meant && *name.text) meant = name.text;
    fprintf(file, "no section or key %s in a job file", tr_shown(filter).text);
    if (meant) fprintf(file, ": did you mean %s?", meant);
    else fputs("; the sections are", file);
    for (size_t i = 0; !meant && i < TR_JOB_SECTIONS; i++)
        fprintf(file, "%s%s", i ? ", " : " ", tr_job_sections[i].name);
    fputc('\n', file);
    return false;
}

/* trireme help job: the tables of keys. */
#include "job/schema.h"

#include <string.h>

#include "base/base.h"
#include "base/terminal.h"
#include "job/text.h"

/* Of the terminal, or 110 elsewhere and at most; the meaning of a key has a line of its own where it would get less than 40
 * columns beside its name. */
enum { LINE = 110, NARROW = 40, INDENT = 8 };

struct widths {
    int name, kind, value, line;
};

/* Columns this wide serve all but a few, whose meaning goes to the next line. */
enum { WIDEST_NAME = 26, WIDEST_KIND = 20, WIDEST_VALUE = 11 };

static int wider(int width, const char *text, int widest)
{
    int length = (int)strlen(text);
    return length > width && length <= widest ? length : width;
}

static void widen(struct widths *w, const tr_option *key)
{
    w->name = wider(w->name, key->name, WIDEST_NAME);
    w->kind = wider(w->kind, tr_job_kind_words(key).text, WIDEST_KIND);
    w->value = wider(w->value, key->by_default, WIDEST_VALUE);
}

/* Over all keys, so that sections shown alone look the same. */
static struct widths measure(void)
{
    struct widths w = {.line = tr_terminal_columns(stdout, LINE)};
    if (w.line > LINE) w.line = LINE;
    for (size_t t = 0; t < TR_JOB_TABLES; t++)
        for (size_t i = 0; i < tr_job_tables[t].n; i++) widen(&w, &tr_job_tables[t].key[i]);
    for (size_t c = 0; c < tr_model_class_count; c++)
        for (size_t i = 0; i < tr_job_options(tr_model_classes[c]); i++)
            widen(&w, &tr_model_classes[c]->options[i]);
    return w;
}

/* A line of its own for «a|b|c», which may be broken between the words. */
static void put_choice(FILE *file, const char *kind, int column, struct widths w)
{
    char text[2 * sizeof(struct tr_job_words)];
    size_t n = 0;
    for (; *kind; kind++) n += (size_t)snprintf(text + n, sizeof text - n, *kind == '|' ? "| " : "%c", *kind);
    tr_put_paragraph(file, text, fprintf(file, "%*s", column, ""), w.line);
}

static void put_key(FILE *file, const tr_option *key, struct widths w)
{
    int column = w.name + w.kind + w.value + 8;
    struct tr_job_words words = tr_job_kind_words(key);
    const char *kind = words.text;
    bool narrow = column + NARROW > w.line;
    if (narrow) {
        column = INDENT;
        const char *usual = *key->by_default ? "default " : "", *comma = *kind && *usual ? ", " : "";
        bool fits =
            (int)(strlen(key->name) + strlen(kind) + strlen(usual) + strlen(key->by_default)) + 6 <= w.line;
        fprintf(file, "  %s  %s%s%s%s\n", key->name, fits ? kind : "", fits ? comma : "", usual,
                key->by_default);
        if (!fits) put_choice(file, kind, column, w);
        fprintf(file, "%*s", column, "");
    } else if ((int)strlen(kind) <= w.kind && (int)strlen(key->by_default) <= w.value)
        fprintf(file, "  %-*s  %-*s  %-*s  ", w.name, key->name, w.kind, kind, w.value, key->by_default);
    else fprintf(file, "  %-*s  %s  %s\n%*s", w.name, key->name, kind, key->by_default, column, "");
    char text[2048];
    snprintf(text, sizeof text, "%s%s%s", key->methods ? key->methods : "", key->methods ? ": " : "",
             key->help);
    tr_put_paragraph(file, text, column, w.line);
}

static bool is_in(const tr_option *key, const char *section)
{
    size_t length = strlen(section);
    return *section ? !strncmp(key->name, section, length) && key->name[length] == '.'
                    : !strchr(key->name, '.');
}

/* Keys of a class in a section (NULL: all). */
static void put_options(FILE *file, const tr_model_class *class, const char *section, struct widths w)
{
    bool begun = false;
    for (size_t i = 0; i < tr_job_options(class); i++) {
        if (section && !is_in(&class->options[i], section)) continue;
        if (section && !begun) fprintf(file, " %s:\n", class->name);
        begun = true;
        put_key(file, &class->options[i], w);
    }
}

static void put_section(FILE *file, const struct tr_job_section *section, struct widths w)
{
    int column = fprintf(file, "\n%s: ", section->name) - 1;
    tr_put_paragraph(file, section->help, column, w.line);
    for (size_t t = 0; t < TR_JOB_TABLES; t++)
        for (size_t i = 0; i < tr_job_tables[t].n; i++)
            if (is_in(&tr_job_tables[t].key[i], section->name)) put_key(file, &tr_job_tables[t].key[i], w);
    for (size_t c = 0; c < tr_model_class_count; c++)
        put_options(file, tr_model_classes[c], section->name, w);
}

/* Puts words at this column, with commas between them. */
static void put_words(FILE *file, const char *const *words, int column, struct widths w)
{
    char text[1024] = "";
    size_t n = 0;
    for (size_t i = 0; words[i] && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", words[i]);
    tr_put_paragraph(file, text, column, w.line);
}

static void put_methods(FILE *file, const tr_model_class *class, struct widths w)
{
    for (const tr_method *m = class->methods; m->name; m++)
        tr_put_paragraph(file, m->help, fprintf(file, "    %-10s  ", m->name), w.line);
}

/* Its types, methods and keys. */
static void put_class(FILE *file, const tr_model_class *class, struct widths w)
{
    int column = fprintf(file, "\n%s: ", class->name) - 1;
    tr_put_paragraph(file, class->help, column, w.line);
    put_words(file, class->types, fprintf(file, "  model.type   "), w);
    put_words(file, class->data_formats, fprintf(file, "  data.format  "), w);
    fputs("  solve.method\n", file);
    put_methods(file, class, w);
    fputc('\n', file);
    put_options(file, class, NULL, w);
}

/* The values of model.type or solve.method: they are those of all classes. */
static void put_choices(FILE *file, const char *key, struct widths w)
{
    for (size_t c = 0; c < tr_model_class_count; c++) {
        const tr_model_class *class = tr_model_classes[c];
        fprintf(file, "\n %s:\n", class->name);
        if (!strcmp(key, "model.type")) put_words(file, class->types, fprintf(file, "    "), w);
        else put_methods(file, class, w);
    }
}

static void put_introduction(FILE *file, struct widths w)
{
    tr_put_paragraph(
        file,
        "A job file is YAML: sections of keys, each with a default. Any key can be given on the "
        "command line as section.key=value, which wins. A list is [a, b] or a,b, there as in the file. "
        "Some keys are those of a class of models, and mean nothing to others.",
        0, w.line);
}

/* The names of keys in a section, of the engine or of a class (NULL: the engine's). */
static void put_names(FILE *file, const tr_model_class *class, const char *section, struct widths w)
{
    char names[2048] = "";
    size_t at = 0;
    const tr_option *key = class ? class->options : NULL;
    size_t n = tr_job_options(class);
    for (size_t t = 0; t < (class ? 1 : TR_JOB_TABLES); t++) {
        if (!class) key = tr_job_tables[t].key, n = tr_job_tables[t].n;
        for (size_t i = 0; i < n && at < sizeof names; i++)
            if (is_in(&key[i], section))
                at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                       tr_job_own_name(key[i].name));
    }
    if (at == 0) return;
    int column = class ? fprintf(file, "    %s: ", class->name) : fprintf(file, "    ");
    tr_put_paragraph(file, names, column, w.line);
}

/* What there is, without what it means. */
static void put_overview(FILE *file, struct widths w)
{
    put_introduction(file, w);
    fputs("\n  trireme help job SECTION | SECTION.KEY | CLASS | all\n\nKeys without a section\n", file);
    put_names(file, NULL, "", w);
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) {
        const struct tr_job_section *section = &tr_job_sections[i];
        int column = fprintf(file, "\n%s: ", section->name) - 1;
        tr_put_paragraph(file, section->help, column, w.line);
        put_names(file, NULL, section->name, w);
        for (size_t c = 0; c < tr_model_class_count; c++)
            put_names(file, tr_model_classes[c], section->name, w);
    }
    fputs("\nClasses of models\n", file);
    for (size_t c = 0; c < tr_model_class_count; c++)
        tr_put_paragraph(file, tr_model_classes[c]->help,
                         fprintf(file, "    %-8s ", tr_model_classes[c]->name), w.line);
}

static void put_all(FILE *file, struct widths w)
{
    put_introduction(file, w);
    fputc('\n', file);
    for (size_t i = 0; i < tr_job_tables[TR_TABLE_JOB].n; i++)
        if (is_in(&tr_job_tables[TR_TABLE_JOB].key[i], ""))
            put_key(file, &tr_job_tables[TR_TABLE_JOB].key[i], w);
    for (size_t i = 0; i < TR_JOB_SECTIONS; i++) put_section(file, &tr_job_sections[i], w);
}

static void put_unknown(FILE *file, const char *filter)
{
    const char *meant = tr_job_suggest_section(filter);
    struct tr_job_name key = tr_job_suggest_key(NULL, filter);
    if (!meant && *key.text) meant = key.text;
    fprintf(file, "no section or key %s in a job file", tr_shown(filter).text);
    if (meant) fprintf(file, ": did you mean %s?", meant);
    else fputs("; the sections are", file);
    for (size_t i = 0; !meant && i < TR_JOB_SECTIONS; i++)
        fprintf(file, "%s%s", i ? ", " : " ", tr_job_sections[i].name);
    fputc('\n', file);
}

bool tr_job_help(FILE *file, const char *filter)
{
    struct widths w = measure();
    const struct tr_job_section *section = filter ? tr_job_find_section(filter) : NULL;
    const tr_model_class *class;
    const tr_option *key;
    bool found = true;
    if (!filter || !strcmp(filter, "all")) {
        if (filter) put_all(file, w);
        else put_overview(file, w);
        return true;
    }
    for (size_t c = 0; c < tr_model_class_count && !section; c++) {
        if (strcmp(tr_model_classes[c]->name, filter) != 0) continue;
        put_class(file, tr_model_classes[c], w);
        return true;
    }
    if (section) put_section(file, section, w);
    else if (!tr_job_known_key(filter, 0, &class)) put_unknown(file, filter), found = false;
    for (size_t n = 0; !section && (key = tr_job_known_key(filter, n, &class)); n++) {
        if (class) fprintf(file, " %s:\n", class->name);
        put_key(file, key, w);
    }
    if (!strcmp(filter, "model.type") || !strcmp(filter, "solve.method")) put_choices(file, filter, w);
    return found;
}

#define _GNU_SOURCE
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/field.h"
#include "data/hdf5.h"
#include "data/reader.h"
#include "data/schema.h"

static const char *const type_words[] = {"number", "category", "label",  "label",
                                         "id",     "ignore",   "weight", "offset"};

/* Returns whether a column has a number of the dates in the column `pattern` of the file, such as when.days. */
static bool column_is_of_date(const char *name, const char *pattern)
{
    char base[TR_NAME_LONGEST + 1];
    const char *dot = strrchr(name, '.');
    if (!dot) return false;
    memcpy(base, name, (size_t)(dot - name));
    base[dot - name] = '\0';
    bool part = false;
    for (int i = 0; i < 4; i++) part = part || strcmp(dot + 1, tr_date_parts[i]) == 0;
    return part && fnmatch(pattern, base, 0) == 0;
}

/* ---- names and types, from the first lines ---- */

/* Counts of successive numbers of a column, which show whether single precision is sufficient. */
struct steps {
    double last;
    /* numbers; those that differ from the number before; those of them that are equal as floats; those that are one more */
    size_t n, differ, lost, counted;
};

/* What look_at_field() finds in the first lines of a file. */
struct look {
    const char *path;
    struct tr_ids *names;
    bool unnamed;             /* the first column has no name */
    struct tr_column *column; /* NULL: only the names are read */
    bool *known;              /* known[c]: a value of column c has been seen */
    struct steps *steps;
    size_t n;
    const struct tr_schema *schema; /* schema whose data.missing decides which fields are missing */
};

static int look_at_field(void *state, size_t line, size_t field, const char *text, size_t n)
{
    struct look *l = state;
    if (line == 0) {
        uint32_t place;
        l->unnamed = l->unnamed || (field == 0 && n == 0);
        if (n > TR_NAME_LONGEST)
            return tr_fail(TR_ERR_DATA, "%s: the name of column %zu has %zu bytes, expected at most %d",
                           l->path, field + 1, n, TR_NAME_LONGEST);
        char unnamed[24]; /* such a column is called by its number */
        if (n == 0) n = (size_t)snprintf(unnamed, sizeof unnamed, "%zu", field + 1), text = unnamed;
        TR_TRY(tr_ids_add_text(l->names, text, n, &place));
        if (place == field) return TR_OK;
        return tr_fail(TR_ERR_DATA, "%s: two columns are called %.*s", l->path, (int)tr_min_size(n, 80),
                       text);
    }
    if (!l->column || field >= l->n || tr_schema_is_missing(l->schema, text, n, false)) return TR_OK;
    char number[TR_TOKEN_ROOM + 32];
    float value = NAN;
    bool is_number = n < TR_TOKEN_ROOM;
    if (is_number) {
        memcpy(number, text, n);
        memset(number + n, '\n', 32);
        is_number = tr_read_float(number, &value) == number + n || tr_token_is_special(number);
    }
    if (is_number) {
        struct steps *s = &l->steps[field];
        double now = (double)value; /* keeps this value if the text is nan or inf */
        (void)tr_value_is_number(text, n, &now);
        bool differs = s->n++ > 0 && now != s->last;
        s->differ += differs;
        s->counted += s->n > 1 && now == s->last + 1;
        s->lost += differs && (float)now == (float)s->last;
        s->last = now;
    } else if (!l->known[field]) {
        l->column[field].type = TR_COLUMN_CATEGORY;
    }
    l->known[field] = true;
    return TR_OK;
}

/* Finds names and types of columns from the first lines of a file. Without names in the file, columns are named by their
 * numbers. */
static int schema_look(const struct tr_files *files, const struct tr_head *heads, size_t file,
                       struct tr_schema *s)
{
    struct look look = {.path = files->file[file].path, .names = &s->names, .schema = s};
    look.n = s->n = (size_t)heads[file].fields;
    s->named = heads[file].header;
    TR_TRY(TR_NEW(&s->column, s->n));
    look.column = s->column;
    TR_FREED bool *known = NULL;
    TR_FREED struct steps *steps = NULL;
    TR_TRY(TR_NEW(&known, s->n));
    TR_TRY(TR_NEW(&steps, s->n));
    look.known = known;
    look.steps = steps;
    TR_TRY(tr_head_fields(files, file, &heads[file], look_at_field, &look));
    for (size_t c = 0; c < s->n; c++) s->column[c].rounded = 2 * steps[c].lost > steps[c].differ;
    /* the numbers of rows that pandas and R write */
    if (look.unnamed && steps[0].n > 1 && steps[0].counted + 1 == steps[0].n)
        s->column[0].type = TR_COLUMN_ID;
    if (heads[file].named) { /* HDF5 stores the types */
        TR_TRY(tr_hdf5_read_kinds(&files->file[file], s->n, known));
        for (size_t c = 0; c < s->n; c++)
            s->column[c].type = known[c] ? TR_COLUMN_CATEGORY : TR_COLUMN_NUMBER;
    }
    for (size_t k = s->names.n; k < s->n && !s->named; k++) {
        char text[24];
        uint32_t place;
        int length = snprintf(text, sizeof text, "%zu", k + 1);
        TR_TRY(tr_ids_add_text(&s->names, text, (size_t)length, &place));
    }
    if (s->names.n == s->n) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s:1: the header names %zu columns, but the line behind it has %zu: "
                   "data.header=no data.skip_lines=1 leaves it out",
                   files->file[file].path, s->names.n, s->n);
}

/* ---- settings of the job ---- */

static int fail_no_column(const tr_job *job, const char *key, const char *name, const struct tr_files *files)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s: %s has no column %s", tr_job_where(job, key), key,
                   files->file[0].path, tr_shown(name).text);
}

static void column_set_type(struct tr_column *c, uint8_t type)
{
    c->type = type == TR_COLUMN_LABEL && c->type == TR_COLUMN_CATEGORY ? TR_COLUMN_NAMED_LABEL : type;
    c->fixed = type != TR_COLUMN_LABEL;
}

/* Applies data.columns, a list of «name: type». patterns = false: only the names of columns; true: only the patterns, for all
 * columns that match except the label and columns that a name has set. */
static int schema_set_types(const tr_job *job, const struct tr_files *files, struct tr_schema *s,
                            bool patterns)
{
    for (size_t i = 0; i < job->data.columns.n; i++) {
        const char *pair = job->data.columns.item[i];
        TR_CLOSED_BY(tr_column_form_free) struct tr_column_form form;
        char text[TR_NAME_LONGEST + 1];
        uint8_t type = 0;
        TR_TRY(tr_column_form_read(job, pair, &form));
        while (type < TR_COLUMN_TYPES && strcmp(type_words[type], form.type) != 0) ++type;
        if (form.date) type = TR_COLUMN_NUMBER;
        if (type == TR_COLUMN_TYPES)
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: data.columns: «%s»: expected «name: type» with one of number, category, date, "
                "time, label, id, weight, offset and ignore",
                tr_job_where(job, "data.columns"), tr_shown(pair).text);
        size_t c = form.date ? s->n : tr_schema_find(s, form.name);
        bool named = c < s->n, any = named || !patterns;
        if (named && !patterns) column_set_type(&s->column[c], type);
        for (c = 0; c < s->n && patterns && !named; c++) {
            size_t n;
            const char *of_column = tr_ids_text(&s->names, c, &n);
            memcpy(text, of_column, n);
            text[n] = '\0';
            if (form.date ? !column_is_of_date(text, form.name) : fnmatch(form.name, text, 0) != 0) continue;
            any = true;
            if (!s->column[c].fixed && c != s->label) column_set_type(&s->column[c], type);
        }
        if (!any && form.date && !s->named)
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns: %s has no header, which dates need",
                           tr_job_where(job, "data.columns"), files->file[0].path);
        if (!any) return fail_no_column(job, "data.columns", form.name, files);
    }
    return TR_OK;
}

/* Returns whether the column is no feature and no label. */
static bool column_is_excluded(const struct tr_column *c)
{
    return c->type == TR_COLUMN_ID || c->type == TR_COLUMN_IGNORE || tr_column_extra(c->type) < TR_EXTRAS;
}

static bool column_is_label(const struct tr_column *c)
{
    return c->type == TR_COLUMN_LABEL || c->type == TR_COLUMN_NAMED_LABEL;
}

/* Guesses the label for data.label: auto. It is the last column if its name is that of a label, otherwise the first column with
 * such a name; if there is none, the first or the last column, see tr_table_head(). */
static size_t schema_guess_label(const struct tr_schema *s, const struct tr_head *head)
{
    static const char *const names[] = {"label", "labels", "class", "target", "y", "outcome", "response"};
    size_t found = s->n, first = 0, last = s->n - 1;
    if (head->named && head->label_column == s->n) return s->n;
    if (head->named && !column_is_excluded(&s->column[head->label_column])) return (size_t)head->label_column;
    for (size_t c = 0; c < s->n && s->named; c++) {
        size_t n;
        const char *text = tr_ids_text(&s->names, c, &n);
        bool called_label = false;
        for (; n > 0 && *text == '#'; n--) text++;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            called_label |= strlen(names[i]) == n && strncasecmp(names[i], text, n) == 0;
        if (!called_label || column_is_excluded(&s->column[c])) continue;
        if (c + 1 == s->n || found == s->n) found = c;
    }
    while (first < last && column_is_excluded(&s->column[first])) first++;
    while (last > first && column_is_excluded(&s->column[last])) last--;
    if (found < s->n || first == last) return found;
    return head->label == TR_LABEL_FIRST ? first : last;
}

static int schema_find_label(const tr_job *job, const struct tr_files *files, const struct tr_head *head,
                             struct tr_schema *s)
{
    const char *label = job->data.label;
    size_t c = s->n;
    s->label = s->n; /* first find the label in data.columns */
    for (size_t k = 0; k < s->n; k++) {
        if (column_is_label(&s->column[k]) && s->label < s->n)
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns has two columns for labels, expected one",
                           tr_job_where(job, "data.columns"));
        if (column_is_label(&s->column[k])) s->label = k;
    }
    if (strcmp(label, "none") == 0) return TR_OK;
    if (strcmp(label, "auto") == 0) c = s->label < s->n ? s->label : schema_guess_label(s, head);
    else if (strcmp(label, "first") == 0) c = 0;
    else if (strcmp(label, "last") == 0) c = s->n - 1;
    else if ((c = tr_schema_find(s, label)) == s->n) return fail_no_column(job, "data.label", label, files);
    if (s->label < s->n && c != s->label)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.label and data.columns name two columns for labels, expected one",
                       tr_job_where(job, "data.label"));
    s->label = c;
    if (c == s->n) return TR_OK;
    struct tr_column *column = &s->column[c];
    if (column->fixed && column->type == TR_COLUMN_CATEGORY) column->type = TR_COLUMN_NAMED_LABEL;
    else if (column->fixed && column->type == TR_COLUMN_NUMBER) column->type = TR_COLUMN_LABEL;
    else column_set_type(column, TR_COLUMN_LABEL);
    return TR_OK;
}

/* Finds the column with an extra, by data.weight (data.offset) or data.columns. If data.weight is no column, it names files. */
static int schema_find_extra(const tr_job *job, struct tr_schema *s, enum tr_extra extra)
{
    const char *name = tr_extra_in_job(job, extra), *noun = tr_extra_kinds[extra].noun;
    char key[32];
    size_t c = *name ? tr_schema_find(s, name) : s->n, found = s->n;
    snprintf(key, sizeof key, "data.%s", noun);
    if (c < s->n && c == s->label)
        return tr_fail(TR_ERR_CONFIG, "%s: %s: column %s has the labels", tr_job_where(job, key), key,
                       tr_shown(name).text);
    enum tr_extra other = c < s->n ? tr_column_extra(s->column[c].type) : TR_EXTRAS;
    if (other < extra)
        return tr_fail(TR_ERR_CONFIG, "%s: %s: column %s has the %ss", tr_job_where(job, key), key,
                       tr_shown(name).text, tr_extra_kinds[other].noun);
    uint8_t type = extra == TR_EXTRA_WEIGHT ? TR_COLUMN_WEIGHT : TR_COLUMN_OFFSET;
    if (c < s->n) s->column[c] = (struct tr_column){.type = type, .fixed = true};
    for (size_t k = 0; k < s->n; k++) {
        if (s->column[k].type != type) continue;
        if (found < s->n || (*name && c == s->n))
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns and %s name two %ss, expected one",
                           tr_job_where(job, "data.columns"), key, noun);
        found = k;
    }
    return TR_OK;
}

/* Finds the column of data.group or data.time (*found; s->n: none), and makes it an identifier unless data.columns sets its type. */
static int schema_find_split(const tr_job *job, const struct tr_files *files, struct tr_schema *s,
                             size_t *found)
{
    const char *key = *job->data.group ? "data.group" : "data.time",
               *name = *job->data.group ? job->data.group : job->data.time;
    *found = *name ? tr_schema_find(s, name) : s->n;
    if (*found == s->n) return *name ? fail_no_column(job, key, name, files) : TR_OK;
    struct tr_column *c = &s->column[*found];
    if (!c->fixed && !column_is_label(c)) *c = (struct tr_column){.type = TR_COLUMN_ID, .fixed = true};
    if (*job->data.time || c->type > TR_COLUMN_CATEGORY) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: data.group: data.columns makes column %s a feature, expected id",
                   tr_job_where(job, "data.group"), tr_shown(name).text);
}

/* Checks that column c, of data.group or data.time, has no labels and no weights. */
static int schema_check_split(const tr_job *job, const struct tr_schema *s, size_t c)
{
    const char *key = *job->data.group ? "data.group" : "data.time";
    bool label = c < s->n && column_is_label(&s->column[c]),
         weight = c < s->n && s->column[c].type == TR_COLUMN_WEIGHT;
    if (!label && !weight) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: %s: column %s has the %s", tr_job_where(job, key), key,
                   tr_shown(*job->data.group ? job->data.group : job->data.time).text,
                   label ? "labels" : "weights");
}

static int fail_bad_cross(const tr_job *job, const char *text, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: data.cross: «%s»: %s", tr_job_where(job, "data.cross"),
                   tr_shown(text).text, why);
}

/* Adds the columns of data.cross, as «city*device», after those of the files. */
static int schema_add_crosses(const tr_job *job, const struct tr_files *files, struct tr_schema *s)
{
    const struct tr_job_list *list = &job->data.cross;
    size_t n = s->n, capacity = s->n;
    TR_TRY(TR_NEW(&s->cross, list->n));
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->item[i];
        struct tr_cross *cross = &s->cross[i];
        TR_FREED char *parts = NULL;
        TR_TRY(tr_copy_string(text, &parts));
        for (char *rest = parts, *name; (name = strsep(&rest, "*"));) {
            size_t c = tr_schema_find(s, name);
            if (cross->n == TR_CROSS_MOST) return fail_bad_cross(job, text, "expected at most 4 columns");
            if (c == s->n) return fail_no_column(job, "data.cross", name, files);
            if (column_is_label(&s->column[c]) || tr_column_extra(s->column[c].type) < TR_EXTRAS)
                return fail_bad_cross(job, text, "labels, weights and offsets cannot be crossed");
            cross->column[cross->n++] = (uint32_t)c;
        }
        if (cross->n < 2) return fail_bad_cross(job, text, "expected columns with * between");
    }
    TR_TRY(TR_GROW(&s->column, &capacity, n + list->n));
    for (size_t i = 0; i < list->n; i++) {
        uint32_t place;
        TR_TRY(tr_ids_add_text(&s->names, list->item[i], strlen(list->item[i]), &place));
        if (place != n + i) return fail_bad_cross(job, list->item[i], "there is a column of that name");
        s->column[place] = (struct tr_column){.type = TR_COLUMN_CATEGORY, .fixed = true};
    }
    s->crosses = list->n;
    s->n = n + list->n;
    if (s->label == n) s->label = s->n;
    return TR_OK;
}

/* Applies data.positive: one label becomes class 1, all others class 0. */
static int schema_set_positive(const tr_job *job, struct tr_schema *s)
{
    char others[TR_NAME_LONGEST + 8], room[TR_VALUE_ROOM];
    uint32_t place;
    size_t n = strlen(job->data.positive);
    if (n == 0) return TR_OK;
    if (s->label == s->n)
        return tr_fail(TR_ERR_CONFIG, "%s: data.positive needs labels: see data.label",
                       tr_job_where(job, "data.positive"));
    if (n > TR_NAME_LONGEST - 4)
        return tr_fail(TR_ERR_CONFIG, "%s: data.positive is too long", tr_job_where(job, "data.positive"));
    const char *text = tr_value_text(job->data.positive, &n, room);
    s->column[s->label].type = TR_COLUMN_NAMED_LABEL;
    s->column[s->label].fixed = true;
    TR_TRY(tr_format(&s->positive, "%.*s", (int)n, text));
    n = (size_t)snprintf(others, sizeof others, "not %s", s->positive);
    TR_TRY(tr_ids_append_text(&s->labels, others, n, &place));
    return tr_ids_append_text(&s->labels, s->positive, strlen(s->positive), &place);
}

static int schema_fill(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                       struct tr_schema *s)
{
    size_t file = 0, split;
    while (file < files->n && heads[file].fields == 0) file++;
    if (file == files->n)
        return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", files->file[0].path);
    for (size_t i = 0; i < job->data.missing.n; i++) {
        char room[TR_VALUE_ROOM];
        uint32_t place;
        size_t n = strlen(job->data.missing.item[i]);
        const char *text = tr_value_text(job->data.missing.item[i], &n, room);
        TR_TRY(tr_ids_add_text(&s->missing, text, n, &place));
    }
    TR_TRY(schema_look(files, heads, file, s));
    const struct tr_dialect *d = &heads[file].dialect;
    if (d->decimal == ',' || d->thousands)
        s->notation = (struct tr_notation){d->decimal, d->thousands, d->delimiter};
    TR_TRY(schema_set_types(job, files, s, false));
    TR_TRY(schema_find_split(job, files, s, &split));
    TR_TRY(schema_find_label(job, files, &heads[file], s));
    TR_TRY(schema_set_types(job, files, s, true));
    for (int e = 0; e < TR_EXTRAS; e++) TR_TRY(schema_find_extra(job, s, (enum tr_extra)e));
    TR_TRY(schema_check_split(job, s, split));
    s->hash = job->data.hash;
    if (s->hash > 0 && (job->data.min_count > 1 || job->data.most_values > 0))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.hash counts no values: data.min_count and data.most_values are of no use",
                       tr_job_where(job, "data.hash"));
    TR_TRY(schema_add_crosses(job, files, s));
    TR_TRY(schema_set_positive(job, s));
    return tr_schema_number(s);
}

int tr_schema_make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                   struct tr_schema **schema)
{
    TR_TRY(tr_schema_new(schema));
    int status = schema_fill(job, files, heads, *schema);
    if (status != TR_OK) tr_schema_release(schema);
    return status;
}

/* ---- the columns of each file ---- */

/* Returns whether a column is a part of a crossed column. */
static bool schema_crosses_column(const struct tr_schema *s, size_t column)
{
    for (size_t i = 0; i < s->crosses; i++)
        for (size_t k = 0; k < s->cross[i].n; k++)
            if (s->cross[i].column[k] == column) return true;
    return false;
}

/* Finds the columns of a file's fields by their names. */
static int binding_by_name(const struct tr_schema *s, const struct tr_files *files, size_t file,
                           const struct tr_head *head, int how, struct tr_binding *b, char unknown[160])
{
    bool label_needed = how & TR_BIND_LABEL;
    const char *path = files->file[file].path;
    TR_CLOSED_BY(tr_ids_free) struct tr_ids names = {.are_text = true};
    TR_FREED bool *there = NULL;
    struct look look = {.path = path, .names = &names};
    TR_TRY(tr_head_fields(files, file, head, look_at_field, &look));
    b->fields = names.n;
    TR_TRY(TR_NEW(&b->column, b->fields));
    TR_TRY(TR_NEW(&there, s->n + 1));
    for (size_t k = 0; k < b->fields; k++) {
        size_t n;
        const char *text = tr_ids_text(&names, k, &n);
        uint32_t c = tr_ids_find_text(&s->names, text, n);
        if (c >= tr_schema_fields(s) && how & TR_BIND_KNOWN) {
            size_t at = strlen(unknown);
            if (at < 100)
                snprintf(unknown + at, 160 - at, "%s%.*s", at ? ", " : "", (int)tr_min_size(n, 40), text);
            b->column[k] = (uint32_t)s->n;
            continue;
        }
        if (c >= tr_schema_fields(s))
            return tr_fail(TR_ERR_DATA, "%s: unknown column %.*s: the training data have none of that name",
                           path, (int)tr_min_size(n, 80), text);
        there[b->column[k] = c] = true;
    }
    for (size_t c = 0; c < tr_schema_fields(s); c++) {
        const struct tr_column *column = &s->column[c];
        bool needed = column->type <= TR_COLUMN_CATEGORY || column->type == TR_COLUMN_OFFSET ||
                      (column_is_label(column) && label_needed) || schema_crosses_column(s, c);
        char name[TR_SHOWN_NAME];
        if (there[c] || !needed) continue;
        tr_schema_column_text(s, c, name);
        return tr_fail(TR_ERR_DATA, "%s: there is no column %s, which the training data have", path, name);
    }
    return TR_OK;
}

/* Finds the columns of a file's fields by their order: all columns, or all columns except the label, unless label_needed, and the
 * weight. */
static int binding_by_order(const struct tr_schema *s, const char *path, uint64_t fields, bool label_needed,
                            struct tr_binding *b)
{
    size_t weight = tr_schema_extra(s, TR_EXTRA_WEIGHT), label = label_needed ? s->n : s->label,
           n = tr_schema_fields(s);
    size_t least = n - (label < s->n) - (weight < s->n);
    b->fields = (size_t)fields;
    TR_TRY(TR_NEW(&b->column, b->fields));
    if (b->fields != n && b->fields != least)
        return tr_fail(TR_ERR_DATA, "%s: %zu columns, expected %zu as the training data have%s", path,
                       b->fields, least,
                       s->label == s->n ? ""
                       : label_needed   ? " with the label"
                                        : " besides the label");
    for (size_t k = 0, c = 0; k < b->fields; k++, c++) {
        while (b->fields != n && (c == label || c == weight)) c++;
        b->column[k] = (uint32_t)c;
    }
    return TR_OK;
}

/* Checks that columns have the same kind, texts or numbers, as in an HDF5 file with named columns. */
static int binding_check_kinds(const struct tr_schema *s, const struct tr_file *file,
                               const struct tr_binding *b)
{
    TR_FREED bool *texts = NULL;
    TR_TRY(TR_NEW(&texts, b->fields));
    TR_TRY(tr_hdf5_read_kinds(file, b->fields, texts));
    for (size_t k = 0; k < b->fields; k++) {
        uint32_t column = b->column[k];
        if (column == s->n) continue;
        uint8_t type = column < s->n ? s->column[column].type : TR_COLUMN_IGNORE;
        bool number =
                 type == TR_COLUMN_NUMBER || type == TR_COLUMN_LABEL || tr_column_extra(type) < TR_EXTRAS,
             text = type == TR_COLUMN_CATEGORY || (column < s->n && schema_crosses_column(s, column));
        if (texts[k] ? !number : !text) continue;
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s, column, name);
        return tr_fail(TR_ERR_DATA,
                       "%s: column %s is one of %s in this file, expected %s: convert it with "
                       "data.columns='%s: %s'",
                       file->path, name, texts[k] ? "words" : "numbers", texts[k] ? "numbers" : "words", name,
                       texts[k] ? "number" : "category");
    }
    return TR_OK;
}

int tr_schema_bind(const struct tr_schema *s, const struct tr_files *files, struct tr_head *heads, int how,
                   struct tr_bindings *bindings)
{
    int status = TR_OK;
    *bindings = (struct tr_bindings){.n = 0};
    for (size_t i = 0; i < files->n && status == TR_OK; i++) {
        struct tr_binding b = {.fields = 0};
        const struct tr_file *file = &files->file[i];
        size_t which = 0, capacity = bindings->n;
        if (heads[i].fields == 0) continue;
        status = s->named && heads[i].header
                     ? binding_by_name(s, files, i, &heads[i], how, &b, bindings->unknown)
                     : binding_by_order(s, file->path, heads[i].fields, how & TR_BIND_LABEL, &b);
        for (size_t k = 0; k < b.fields && status == TR_OK; k++)
            b.labelled = b.labelled || (b.column[k] == s->label && s->label < s->n);
        if (status == TR_OK && heads[i].named) status = binding_check_kinds(s, file, &b);
        /* searches for an equal binding, because equal ones are stored once */
        for (; which < bindings->n && status == TR_OK; which++) {
            const struct tr_binding *other = &bindings->binding[which];
            if (other->fields == b.fields &&
                memcmp(other->column, b.column, b.fields * sizeof *b.column) == 0)
                break;
        }
        bool is_new = status == TR_OK && which == bindings->n;
        if (is_new) status = TR_GROW(&bindings->binding, &capacity, bindings->n + 1);
        if (is_new && status == TR_OK) bindings->binding[bindings->n++] = b;
        else free(b.column);
        heads[i].binding = (uint32_t)which;
        if (status == TR_OK && bindings->n > 1 &&
            bindings->binding[bindings->n - 1].labelled != bindings->binding[0].labelled)
            status = tr_fail(TR_ERR_DATA, "%s: only some of the files have a column of labels", file->path);
    }
    if (status != TR_OK) tr_bindings_free(bindings);
    return status;
}

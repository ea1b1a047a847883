/* The schema of a job's training files: names and types by their first lines, and what the job says. */
#define _GNU_SOURCE
#include "data/schema.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/hdf5.h"
#include "data/number.h"
#include "data/token.h"
#include "data/value.h"

static const char *const type_words[] = {"number", "category", "label", "label", "id", "ignore", "weight"};

/* ---- names and types: what a column's first value is ---- */

/* Of a column, the last number, how many were another one than that before, and how many of these the same in single precision. */
struct steps {
    double last;
    size_t n, differ, lost;
};

struct look {
    const char *path;
    struct tr_ids *names;
    struct tr_column *column; /* NULL: names alone */
    bool *known;              /* a value of theirs has been seen */
    struct steps *steps;
    size_t n;
    const struct tr_schema *schema;
};

static int take_name(const struct look *l, size_t field, const char *text, size_t n)
{
    uint32_t place;
    if (n > TR_NAME_LONGEST)
        return tr_fail(TR_ERR_DATA, "%s: the name of column %zu has %zu bytes, expected at most %d", l->path,
                       field + 1, n, TR_NAME_LONGEST);
    if (n == 0)
        return tr_fail(TR_ERR_DATA, "%s: column %zu has no name: expected one, or data.header: no", l->path,
                       field + 1);
    TR_TRY(tr_ids_add_text(l->names, text, n, &place));
    if (place == field) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: two columns are called %.*s", l->path, (int)tr_min_size(n, 80), text);
}

static bool is_number(const char *text, size_t n)
{
    char number[TR_TOKEN_ROOM + 32];
    float value;
    if (n >= TR_TOKEN_ROOM) return false;
    memcpy(number, text, n);
    memset(number + n, '\n', 32);
    return tr_read_float(number, &value) == number + n || tr_token_is_special(number);
}

static void take_step(struct steps *s, const char *text, size_t n)
{
    char number[TR_TOKEN_ROOM];
    memcpy(number, text, n);
    number[n] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double now = strtod_l(number, NULL, c);
    freelocale(c);
    bool differs = s->n++ > 0 && now != s->last;
    s->differ += differs;
    s->lost += differs && (float)now == (float)s->last;
    s->last = now;
}

static int take_field(void *state, size_t line, size_t field, const char *text, size_t n)
{
    struct look *l = state;
    if (line == 0) return take_name(l, field, text, n);
    if (!l->column || field >= l->n || tr_schema_is_missing(l->schema, text, n)) return TR_OK;
    bool number = is_number(text, n);
    if (number) take_step(&l->steps[field], text, n);
    if (!l->known[field] && !number) l->column[field].type = TR_COLUMN_CATEGORY;
    l->known[field] = true;
    return TR_OK;
}

int tr_schema_read_names(const struct tr_files *files, size_t file, const struct tr_head *head,
                         struct tr_ids *names)
{
    struct look look = {.path = files->file[file].path, .names = names};
    return tr_head_fields(files, file, head, take_field, &look);
}

/* Columns without names are called by their numbers. */
static int name_by_number(struct tr_ids *names, size_t n)
{
    for (size_t k = names->n; k < n; k++) {
        char text[24];
        uint32_t place;
        int length = snprintf(text, sizeof text, "%zu", k + 1);
        TR_TRY(tr_ids_add_text(names, text, (size_t)length, &place));
    }
    return TR_OK;
}

/* Of HDF5, which says it. */
static int take_kinds(const struct tr_file *file, struct tr_schema *s)
{
    bool *texts;
    TR_TRY(TR_NEW(&texts, s->n));
    int status = tr_hdf5_read_kinds(file, s->n, texts);
    for (size_t c = 0; c < s->n; c++) s->column[c].type = texts[c] ? TR_COLUMN_CATEGORY : TR_COLUMN_NUMBER;
    free(texts);
    return status;
}

static int look_at_first(const struct tr_files *files, const struct tr_head *heads, size_t file,
                         struct tr_schema *s)
{
    s->n = (size_t)heads[file].fields;
    s->named = heads[file].header;
    TR_TRY(TR_NEW(&s->column, s->n));
    struct look look = {
        .path = files->file[file].path, .names = &s->names, .column = s->column, .n = s->n, .schema = s};
    TR_TRY(TR_NEW(&look.known, s->n));
    int status = TR_NEW(&look.steps, s->n);
    if (status == TR_OK) status = tr_head_fields(files, file, &heads[file], take_field, &look);
    for (size_t c = 0; c < s->n && status == TR_OK; c++)
        s->column[c].rounded = 2 * look.steps[c].lost > look.steps[c].differ;
    if (status == TR_OK && heads[file].named) status = take_kinds(&files->file[file], s);
    free(look.known);
    free(look.steps);
    TR_TRY(status);
    if (!s->named) TR_TRY(name_by_number(&s->names, s->n));
    if (s->names.n == s->n) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s:1: the header names %zu columns, but the line behind it has %zu",
                   files->file[file].path, s->names.n, s->n);
}

/* ---- what the job says ---- */

static int no_column(const tr_job *job, const char *key, const char *name, const struct tr_files *files)
{
    return tr_fail(TR_ERR_CONFIG, "%s: %s: %s has no column %s", tr_job_where(job, key), key,
                   files->file[0].path, tr_shown(name).text);
}

/* «name: word», of which name becomes a text of its own, to be freed. */
static int split_pair(const tr_job *job, const char *pair, char **name, uint8_t *type)
{
    const char *colon = strrchr(pair, ':'), *word = colon ? colon + 1 : "";
    word += strspn(word, " ");
    *type = 0;
    while (*type < TR_COLUMN_TYPES && strcmp(type_words[*type], word) != 0) ++*type;
    if (!colon || *type == TR_COLUMN_TYPES)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.columns: «%s»: expected «name: type» with one of number, category, label, "
                       "id, weight and ignore",
                       tr_job_where(job, "data.columns"), tr_shown(pair).text);
    TR_TRY(tr_copy_string(pair, name));
    size_t n = (size_t)(colon - pair);
    while (n > 0 && (*name)[n - 1] == ' ') n--;
    (*name)[n] = '\0';
    memmove(*name, *name + strspn(*name, " "), n - strspn(*name, " ") + 1);
    return TR_OK;
}

static void set_type(struct tr_schema *s, size_t c, uint8_t type)
{
    bool words = s->column[c].type == TR_COLUMN_CATEGORY;
    s->column[c].type = type == TR_COLUMN_LABEL && words ? TR_COLUMN_NAMED_LABEL : type;
    s->column[c].fixed = type != TR_COLUMN_LABEL;
}

/* All columns whose names match, but the label's, unless a name alone has said it of them. */
static int set_matching(const tr_job *job, const struct tr_files *files, struct tr_schema *s,
                        const char *pattern, uint8_t type)
{
    char name[TR_NAME_LONGEST + 1];
    bool any = false;
    for (size_t c = 0; c < s->n; c++) {
        size_t n;
        const char *text = tr_ids_text(&s->names, c, &n);
        memcpy(name, text, n);
        name[n] = '\0';
        if (fnmatch(pattern, name, 0) != 0) continue;
        any = true;
        if (!s->column[c].fixed && c != s->label) set_type(s, c, type);
    }
    return any ? TR_OK : no_column(job, "data.columns", pattern, files);
}

/* Those of data.columns that are names of columns, or patterns. */
static int set_types(const tr_job *job, const struct tr_files *files, struct tr_schema *s, bool patterns)
{
    const struct tr_job_list *list = &job->data.columns;
    for (size_t i = 0; i < list->n; i++) {
        char *name;
        uint8_t type;
        TR_TRY(split_pair(job, list->item[i], &name, &type));
        size_t c = tr_schema_find(s, name);
        int status = TR_OK;
        if (c < s->n && !patterns) set_type(s, c, type);
        else if (c == s->n && patterns) status = set_matching(job, files, s, name, type);
        free(name);
        TR_TRY(status);
    }
    return TR_OK;
}

/* What the job says to be neither data nor labels. */
static bool is_apart(const struct tr_column *c)
{
    return c->type == TR_COLUMN_ID || c->type == TR_COLUMN_IGNORE || c->type == TR_COLUMN_WEIGHT;
}

/* data.label: auto. */
static size_t guess_label(const struct tr_schema *s, const struct tr_head *head)
{
    size_t found = s->n, first = 0, last = s->n - 1;
    if (head->named && head->label_column == s->n) return s->n;
    if (head->named && !is_apart(&s->column[head->label_column])) return (size_t)head->label_column;
    for (size_t c = 0; c < s->n && s->named; c++) {
        size_t n;
        const char *text = tr_ids_text(&s->names, c, &n);
        if (!tr_is_called_label(text, n) || is_apart(&s->column[c])) continue;
        if (c + 1 == s->n || found == s->n) found = c;
    }
    while (first < last && is_apart(&s->column[first])) first++;
    while (last > first && is_apart(&s->column[last])) last--;
    if (found < s->n || first == last) return found;
    return head->label == TR_LABEL_FIRST ? first : last;
}

static bool is_label(const struct tr_column *c)
{
    return c->type == TR_COLUMN_LABEL || c->type == TR_COLUMN_NAMED_LABEL;
}

/* That of data.columns; n: none. */
static int find_typed_label(const tr_job *job, struct tr_schema *s)
{
    s->label = s->n;
    for (size_t c = 0; c < s->n; c++) {
        if (is_label(&s->column[c]) && s->label < s->n)
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns has two columns for labels, expected one",
                           tr_job_where(job, "data.columns"));
        if (is_label(&s->column[c])) s->label = c;
    }
    return TR_OK;
}

static int find_label(const tr_job *job, const struct tr_files *files, const struct tr_head *head,
                      struct tr_schema *s)
{
    const char *label = job->data.label;
    TR_TRY(find_typed_label(job, s));
    size_t c = s->n;
    if (strcmp(label, "none") == 0) return TR_OK;
    if (strcmp(label, "auto") == 0) c = s->label < s->n ? s->label : guess_label(s, head);
    else if (strcmp(label, "first") == 0) c = 0;
    else if (strcmp(label, "last") == 0) c = s->n - 1;
    else if ((c = tr_schema_find(s, label)) == s->n) return no_column(job, "data.label", label, files);
    if (s->label < s->n && c != s->label)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.label and data.columns name two columns for labels, expected one",
                       tr_job_where(job, "data.label"));
    s->label = c;
    if (c == s->n) return TR_OK;
    if (s->column[c].fixed && s->column[c].type == TR_COLUMN_CATEGORY)
        s->column[c].type = TR_COLUMN_NAMED_LABEL;
    else if (s->column[c].fixed && s->column[c].type == TR_COLUMN_NUMBER) s->column[c].type = TR_COLUMN_LABEL;
    else set_type(s, c, TR_COLUMN_LABEL);
    return TR_OK;
}

/* The column that data.weight or data.columns says; a data.weight that is no column is a file. */
static int find_weight(const tr_job *job, struct tr_schema *s)
{
    size_t c = *job->data.weight ? tr_schema_find(s, job->data.weight) : s->n, found = s->n;
    if (c < s->n && c == s->label)
        return tr_fail(TR_ERR_CONFIG, "%s: data.weight: column %s has the labels",
                       tr_job_where(job, "data.weight"), tr_shown(job->data.weight).text);
    if (c < s->n) s->column[c] = (struct tr_column){.type = TR_COLUMN_WEIGHT, .fixed = true};
    for (size_t k = 0; k < s->n; k++) {
        if (s->column[k].type != TR_COLUMN_WEIGHT) continue;
        if (found < s->n || (*job->data.weight && c == s->n))
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns and data.weight name two weights, expected one",
                           tr_job_where(job, "data.columns"));
        found = k;
    }
    return TR_OK;
}

static int bad_cross(const tr_job *job, const char *text, const char *why)
{
    return tr_fail(TR_ERR_CONFIG, "%s: data.cross: «%s»: %s", tr_job_where(job, "data.cross"),
                   tr_shown(text).text, why);
}

/* «city*device» */
static int make_cross(const tr_job *job, const char *text, const struct tr_files *files,
                      const struct tr_schema *s, struct tr_cross *cross)
{
    char *parts, *rest, *name;
    TR_TRY(tr_copy_string(text, &parts));
    rest = parts;
    int status = TR_OK;
    *cross = (struct tr_cross){.n = 0};
    while (status == TR_OK && (name = strsep(&rest, "*"))) {
        size_t c = tr_schema_find(s, name);
        if (cross->n == TR_CROSS_MOST) status = bad_cross(job, text, "expected at most 4 columns");
        else if (c == s->n) status = no_column(job, "data.cross", name, files);
        else if (is_label(&s->column[c]) || s->column[c].type == TR_COLUMN_WEIGHT)
            status = bad_cross(job, text, "labels and weights cannot be crossed");
        else cross->column[cross->n++] = (uint32_t)c;
    }
    free(parts);
    return status == TR_OK && cross->n < 2 ? bad_cross(job, text, "expected columns with * between") : status;
}

/* They come behind the files' columns. */
static int add_crosses(const tr_job *job, const struct tr_files *files, struct tr_schema *s)
{
    const struct tr_job_list *list = &job->data.cross;
    size_t n = s->n, capacity = s->n;
    bool labelled = s->label < n;
    TR_TRY(TR_NEW(&s->cross, list->n));
    for (size_t i = 0; i < list->n; i++) TR_TRY(make_cross(job, list->item[i], files, s, &s->cross[i]));
    TR_TRY(TR_GROW(&s->column, &capacity, n + list->n));
    for (size_t i = 0; i < list->n; i++) {
        uint32_t place;
        TR_TRY(tr_ids_add_text(&s->names, list->item[i], strlen(list->item[i]), &place));
        if (place != n + i) return bad_cross(job, list->item[i], "there is a column of that name");
        s->column[place] = (struct tr_column){.type = TR_COLUMN_CATEGORY, .fixed = true};
    }
    s->crosses = list->n;
    s->n = n + list->n;
    if (!labelled) s->label = s->n;
    return TR_OK;
}

static int take_hash(const tr_job *job, struct tr_schema *s)
{
    s->hash = job->data.hash;
    if (s->hash == 0 || (job->data.min_count <= 1 && job->data.most_values == 0)) return TR_OK;
    return tr_fail(TR_ERR_CONFIG,
                   "%s: data.hash counts no values: data.min_count and data.most_values are of no use",
                   tr_job_where(job, "data.hash"));
}

/* Rows of one label against those of all others. */
static int take_positive(const tr_job *job, struct tr_schema *s)
{
    if (!*job->data.positive) return TR_OK;
    if (s->label == s->n)
        return tr_fail(TR_ERR_CONFIG, "%s: data.positive needs labels: see data.label",
                       tr_job_where(job, "data.positive"));
    if (strlen(job->data.positive) > TR_NAME_LONGEST - 4)
        return tr_fail(TR_ERR_CONFIG, "%s: data.positive is too long", tr_job_where(job, "data.positive"));
    char others[TR_NAME_LONGEST + 8], room[TR_VALUE_ROOM];
    uint32_t place;
    size_t n = strlen(job->data.positive);
    const char *text = tr_value_text(job->data.positive, &n, room);
    s->column[s->label].type = TR_COLUMN_NAMED_LABEL;
    s->column[s->label].fixed = true;
    TR_TRY(tr_format(&s->positive, "%.*s", (int)n, text));
    n = (size_t)snprintf(others, sizeof others, "not %s", s->positive);
    TR_TRY(tr_ids_append_text(&s->labels, others, n, &place));
    return tr_ids_append_text(&s->labels, s->positive, strlen(s->positive), &place);
}

static int make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                struct tr_schema *s)
{
    size_t file = 0;
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
    TR_TRY(look_at_first(files, heads, file, s));
    TR_TRY(set_types(job, files, s, false));
    TR_TRY(find_label(job, files, &heads[file], s));
    TR_TRY(set_types(job, files, s, true));
    TR_TRY(find_weight(job, s));
    TR_TRY(take_hash(job, s));
    TR_TRY(add_crosses(job, files, s));
    TR_TRY(take_positive(job, s));
    return tr_schema_number(s);
}

int tr_schema_make(const tr_job *job, const struct tr_files *files, const struct tr_head *heads,
                   struct tr_schema **schema)
{
    TR_TRY(tr_schema_new(schema));
    int status = make(job, files, heads, *schema);
    if (status != TR_OK) tr_schema_release(schema);
    return status;
}

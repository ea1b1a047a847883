#define _GNU_SOURCE
#include "data/schema.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dictionary.h"
#include "data/number.h"
#include "data/token.h"
#include "job/text.h"

static const char *const type_words[] = {"number", "category", "label", "label", "id", "ignore", "weight"};

/* ---- memory ---- */

void tr_schema_keep(struct tr_schema *s)
{
    s->users++;
}

void tr_schema_release(struct tr_schema **schema)
{
    struct tr_schema *s = *schema;
    *schema = NULL;
    if (!s || --s->users > 0) return;
    for (size_t c = 0; c < s->n && s->values; c++) tr_ids_free(&s->values[c]);
    tr_ids_free(&s->names);
    tr_ids_free(&s->missing);
    tr_ids_free(&s->labels);
    tr_dictionary_free(&s->dictionary);
    free(s->values);
    free(s->positive);
    free(s->cross);
    free(s->column);
    free(s);
}

void tr_bindings_free(struct tr_bindings *b)
{
    for (size_t i = 0; i < b->n; i++) free(b->binding[i].column);
    free(b->binding);
    *b = (struct tr_bindings){.n = 0};
}

int tr_schema_new(struct tr_schema **schema)
{
    TR_TRY(TR_NEW(schema, 1));
    (*schema)->users = 1;
    (*schema)->names.are_text = (*schema)->missing.are_text = (*schema)->labels.are_text = true;
    return TR_OK;
}

/* ---- fields ---- */

bool tr_schema_is_missing(const struct tr_schema *s, const char *text, size_t n)
{
    static const char *const words[] = {"NA", "NaN", "nan", "null", "NULL", "?", "\\N"};
    if (n == 0) return true;
    for (size_t i = 0; n <= 4 && i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(words[i], text, n) == 0) return true;
    return s->missing.n > 0 && tr_ids_find_text(&s->missing, text, n) != UINT32_MAX;
}

/* ---- names and types: what a column's first value is ---- */

struct look {
    const char *path;
    struct tr_ids *names;
    struct tr_column *column; /* NULL: names alone */
    bool *known;              /* a value of theirs has been seen */
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

static int take_field(void *state, size_t line, size_t field, const char *text, size_t n)
{
    struct look *l = state;
    if (line == 0) return take_name(l, field, text, n);
    if (!l->column || field >= l->n || l->known[field] || tr_schema_is_missing(l->schema, text, n))
        return TR_OK;
    l->known[field] = true;
    if (!is_number(text, n)) l->column[field].type = TR_COLUMN_CATEGORY;
    return TR_OK;
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

static int look_at_first(const struct tr_files *files, const struct tr_head *heads, size_t file,
                         struct tr_schema *s)
{
    s->n = (size_t)heads[file].fields;
    s->named = heads[file].header;
    TR_TRY(TR_NEW(&s->column, s->n));
    struct look look = {
        .path = files->file[file].path, .names = &s->names, .column = s->column, .n = s->n, .schema = s};
    TR_TRY(TR_NEW(&look.known, s->n));
    int status = tr_head_fields(files, file, &heads[file], take_field, &look);
    free(look.known);
    TR_TRY(status);
    if (!s->named) TR_TRY(name_by_number(&s->names, s->n));
    if (s->names.n == s->n) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: the header names %zu columns, but the line behind it has %zu",
                   files->file[file].path, s->names.n, s->n);
}

/* ---- what the job says ---- */

size_t tr_schema_find(const struct tr_schema *s, const char *name)
{
    uint64_t number;
    uint32_t place = tr_ids_find_text(&s->names, name, strlen(name));
    if (place != UINT32_MAX) return place;
    return tr_id_number(name, strlen(name), &number) && number > 0 && number <= s->n ? (size_t)number - 1
                                                                                     : s->n;
}

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

/* data.label: auto. */
static size_t guess_label(const struct tr_schema *s, const struct tr_head *head)
{
    size_t found = s->n;
    for (size_t c = 0; c < s->n && s->named; c++) {
        size_t n;
        const char *text = tr_ids_text(&s->names, c, &n);
        if (!tr_is_called_label(text, n)) continue;
        if (c + 1 == s->n || found == s->n) found = c;
    }
    if (found < s->n || s->n < 2) return found;
    return head->label == TR_LABEL_FIRST ? 0 : s->n - 1;
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
    char others[TR_NAME_LONGEST + 8];
    uint32_t place;
    size_t n = (size_t)snprintf(others, sizeof others, "not %s", job->data.positive);
    s->column[s->label].type = TR_COLUMN_NAMED_LABEL;
    s->column[s->label].fixed = true;
    TR_TRY(tr_copy_string(job->data.positive, &s->positive));
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
        uint32_t place;
        TR_TRY(tr_ids_add_text(&s->missing, job->data.missing.item[i], strlen(job->data.missing.item[i]),
                               &place));
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

/* ---- slots and keys ---- */

bool tr_schema_has_categories(const struct tr_schema *s)
{
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_CATEGORY) return true;
    return false;
}

size_t tr_schema_weight(const struct tr_schema *s)
{
    size_t c = 0;
    while (c < s->n && s->column[c].type != TR_COLUMN_WEIGHT) c++;
    return c;
}

bool tr_schema_is_dense(const struct tr_schema *s)
{
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_CATEGORY && !s->column[c].raw) return false;
    return s->keys == s->slots;
}

int tr_schema_number(struct tr_schema *s)
{
    bool hashes = s->hash > 0 && tr_schema_has_categories(s);
    uint64_t keys = 0;
    s->slots = 0;
    for (size_t c = 0; c < s->n; c++) {
        struct tr_column *column = &s->column[c];
        bool number = column->type == TR_COLUMN_NUMBER, category = column->type == TR_COLUMN_CATEGORY;
        uint64_t more = column->raw && (number || category) ? 1
                        : number                            ? 1 + (uint64_t)column->missing
                        : category ? s->hash > 0 ? 0 : (uint64_t)column->values + column->others
                                   : 0;
        if (keys + more + s->hash > UINT32_MAX - 1)
            return tr_fail(
                TR_ERR_DATA,
                "the categories have more than 2^32 - 2 different values: expected data.min_count or "
                "data.most_values to leave some out, or a smaller data.hash");
        size_t length;
        const char *name = tr_ids_text(&s->names, c, &length);
        column->seed = tr_text_hash(name, length);
        column->first = (uint32_t)keys;
        column->keys = (uint32_t)more;
        column->slot = (uint32_t)s->slots;
        s->slots += number || category;
        keys += more;
    }
    s->hashed = keys;
    s->keys = keys + (hashes ? s->hash : 0);
    return TR_OK;
}

/* ---- files ---- */

static bool may_be_missing(const struct tr_schema *s, size_t c, bool label_needed)
{
    for (size_t i = 0; i < s->crosses; i++)
        for (size_t k = 0; k < s->cross[i].n; k++)
            if (s->cross[i].column[k] == c) return false;
    if (c >= tr_schema_fields(s)) return true; /* they are made */
    switch (s->column[c].type) {
    case TR_COLUMN_NUMBER:
    case TR_COLUMN_CATEGORY: return false;
    case TR_COLUMN_LABEL:
    case TR_COLUMN_NAMED_LABEL: return !label_needed;
    default: return true;
    }
}

/* By the file's own names. */
static int bind_names(const struct tr_schema *s, const char *path, const struct tr_ids *names,
                      bool label_needed, struct tr_binding *b)
{
    bool *there;
    char name[TR_SHOWN_NAME];
    int status = TR_OK;
    TR_TRY(TR_NEW(&there, s->n + 1));
    for (size_t k = 0; k < b->fields && status == TR_OK; k++) {
        size_t n;
        const char *text = tr_ids_text(names, k, &n);
        uint32_t c = tr_ids_find_text(&s->names, text, n);
        if (c >= tr_schema_fields(s))
            status = tr_fail(TR_ERR_DATA, "%s: unknown column %.*s: the training data have none of that name",
                             path, (int)tr_min_size(n, 80), text);
        else there[b->column[k] = c] = true;
    }
    for (size_t c = 0; c < s->n && status == TR_OK; c++) {
        if (there[c] || may_be_missing(s, c, label_needed)) continue;
        tr_schema_column_text(s, c, name);
        status = tr_fail(TR_ERR_DATA, "%s: there is no column %s, which the training data have", path, name);
    }
    free(there);
    return status;
}

/* By order: all columns, or all but the label and the weight, if both of them may be missing; or but the one that may. */
static int bind_order(const struct tr_schema *s, const char *path, bool label_needed, struct tr_binding *b)
{
    size_t weight = tr_schema_weight(s), label = label_needed ? s->n : s->label, n = tr_schema_fields(s);
    size_t least = n - (label < s->n) - (weight < s->n);
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

static int bind_file(const struct tr_schema *s, const struct tr_file *file, const struct tr_files *files,
                     size_t i, const struct tr_head *head, bool label_needed, struct tr_binding *b)
{
    struct tr_ids names = {.are_text = true};
    struct look look = {.path = file->path, .names = &names, .schema = s};
    bool by_name = s->named && head->header;
    int status = TR_OK;
    b->fields = (size_t)head->fields;
    if (by_name) status = tr_head_fields(files, i, head, take_field, &look);
    if (by_name) b->fields = names.n;
    if (status == TR_OK) status = TR_NEW(&b->column, b->fields);
    if (status == TR_OK)
        status = by_name ? bind_names(s, file->path, &names, label_needed, b)
                         : bind_order(s, file->path, label_needed, b);
    for (size_t k = 0; k < b->fields && status == TR_OK; k++) {
        b->labelled = b->labelled || b->column[k] == s->label;
    }
    tr_ids_free(&names);
    return status;
}

static bool are_alike(const struct tr_binding *a, const struct tr_binding *b)
{
    return a->fields == b->fields && memcmp(a->column, b->column, a->fields * sizeof *a->column) == 0;
}

static int add_binding(struct tr_bindings *all, struct tr_binding *b, uint32_t *which)
{
    size_t capacity = all->n;
    for (size_t i = 0; i < all->n; i++)
        if (are_alike(&all->binding[i], b)) {
            free(b->column);
            return *which = (uint32_t)i, TR_OK;
        }
    TR_TRY(TR_GROW(&all->binding, &capacity, all->n + 1));
    *which = (uint32_t)all->n;
    all->binding[all->n++] = *b;
    return TR_OK;
}

int tr_schema_bind(const struct tr_schema *s, const struct tr_files *files, struct tr_head *heads,
                   bool label_needed, struct tr_bindings *bindings)
{
    int status = TR_OK;
    *bindings = (struct tr_bindings){.n = 0};
    for (size_t i = 0; i < files->n && status == TR_OK; i++) {
        struct tr_binding b = {.fields = 0};
        if (heads[i].fields == 0) continue;
        status = bind_file(s, &files->file[i], files, i, &heads[i], label_needed, &b);
        if (status != TR_OK) free(b.column);
        else status = add_binding(bindings, &b, &heads[i].binding);
        if (status == TR_OK && bindings->n > 1 &&
            bindings->binding[bindings->n - 1].labelled != bindings->binding[0].labelled)
            status = tr_fail(TR_ERR_DATA, "%s: only some of the files have a column of labels",
                             files->file[i].path);
    }
    if (status != TR_OK) tr_bindings_free(bindings);
    return status;
}

/* ---- as users see it ---- */

static void show(char to[TR_SHOWN_NAME], const char *text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool escaped = (text[i] >= 0 && text[i] < ' ') || text[i] == 0x7f;
        if (at + 8 > TR_SHOWN_NAME) {
            strcpy(to + at, "…");
            return;
        }
        if (escaped) at += (size_t)sprintf(to + at, "\\x%02x", (unsigned)(unsigned char)text[i]);
        else to[at++] = text[i];
    }
    to[at] = '\0';
}

static void append(char to[TR_SHOWN_NAME], const char *more)
{
    size_t n = strlen(to);
    snprintf(to + n, TR_SHOWN_NAME - n, "%s", more);
}

void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME])
{
    size_t n;
    const char *name = tr_ids_text(&s->names, column, &n);
    show(text, name, n);
}

/* The last column whose first key is not behind it, and which has keys. */
static size_t column_of_key(const struct tr_schema *s, uint64_t key)
{
    size_t low = 0, high = s->n;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (s->column[middle].first <= key) low = middle;
        else high = middle;
    }
    while (low > 0 && s->column[low].keys == 0) low--;
    return low;
}

static void value_text(const struct tr_schema *s, size_t column, uint64_t value, char text[TR_SHOWN_NAME])
{
    strcpy(text, "other");
    if (value >= s->column[column].values || !s->values || value >= s->values[column].n) return;
    size_t n;
    const char *name = tr_ids_text(&s->values[column], value, &n);
    if (n > 0) show(text, name, n);
    else strcpy(text, "missing");
}

void tr_schema_value_text(const struct tr_schema *s, uint64_t key, uint64_t value, char text[TR_SHOWN_NAME])
{
    value_text(s, column_of_key(s, key), value, text);
}

void tr_schema_key_text(const struct tr_schema *s, uint64_t key, char text[TR_SHOWN_NAME])
{
    size_t column = column_of_key(s, key);
    const struct tr_column *c = &s->column[column];
    uint64_t number = key - c->first;
    if (s->hash > 0 && key >= s->hashed) {
        snprintf(text, TR_SHOWN_NAME, "hash=%llu", (unsigned long long)(key - s->hashed));
        return;
    }
    char value[TR_SHOWN_NAME] = "missing";
    tr_schema_column_text(s, column, text);
    if (number == 0 && (c->type == TR_COLUMN_NUMBER || c->raw)) return;
    if (c->type != TR_COLUMN_NUMBER) value_text(s, column, number, value);
    append(text, "=");
    append(text, value);
}

static bool is_of_numbers(const struct tr_schema *s)
{
    return !s || (!tr_schema_has_categories(s) && s->keys == s->slots && s->labels.n == 0);
}

bool tr_schema_agrees(const struct tr_schema *a, const struct tr_schema *b)
{
    if (!is_of_numbers(a) || !is_of_numbers(b)) return false;
    for (uint64_t k = 0; a && b && k < a->keys && k < b->keys; k++) {
        char of_a[TR_SHOWN_NAME], of_b[TR_SHOWN_NAME];
        tr_schema_key_text(a, k, of_a);
        tr_schema_key_text(b, k, of_b);
        if (strcmp(of_a, of_b) != 0) return false;
    }
    return true;
}

void tr_schema_label_text(const struct tr_schema *s, float label, char text[TR_SHOWN_NAME])
{
    if (s && label >= 0 && label < (float)s->labels.n) {
        size_t n;
        const char *name = tr_ids_text(&s->labels, (size_t)label, &n);
        show(text, name, n);
    } else {
        snprintf(text, TR_SHOWN_NAME, "%.9g", (double)label);
    }
}

/* ---- as bytes ---- */

struct bytes {
    char *at;
    size_t n, capacity;
    const char *from, *end; /* when they are read */
    int status;
};

static void put(struct bytes *b, const void *from, size_t n)
{
    if (b->status == TR_OK) b->status = TR_GROW(&b->at, &b->capacity, b->n + n);
    if (b->status != TR_OK || n == 0) return;
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static void get(struct bytes *b, void *to, size_t n)
{
    if (b->status == TR_OK && (size_t)(b->end - b->from) < n)
        b->status = tr_fail(TR_ERR_DATA, "a schema is cut off");
    if (b->status != TR_OK || n == 0) return;
    memcpy(to, b->from, n);
    b->from += n;
}

static void put_texts(struct bytes *b, const struct tr_ids *texts)
{
    put(b, &texts->n, sizeof texts->n);
    for (size_t i = 0; i < texts->n; i++) {
        size_t n;
        const char *text = tr_ids_text(texts, i, &n);
        put(b, &n, sizeof n);
        put(b, text, n);
    }
}

static void get_texts(struct bytes *b, struct tr_ids *texts)
{
    size_t n = 0;
    uint32_t place;
    get(b, &n, sizeof n);
    for (size_t i = 0; i < n && b->status == TR_OK; i++) {
        size_t length = 0;
        get(b, &length, sizeof length);
        if (b->status != TR_OK || length > (size_t)(b->end - b->from)) return;
        b->status = tr_ids_add_text(texts, b->from, length, &place);
        b->from += length;
    }
}

int tr_schema_pack(const struct tr_schema *s, const struct tr_bindings *bindings, char **bytes, size_t *n)
{
    struct bytes b = {.at = NULL};
    struct tr_schema head = *s;
    head.positive = NULL;
    bool positive = s->positive != NULL;
    put(&b, &head, sizeof head);
    put(&b, s->column, s->n * sizeof *s->column);
    put(&b, s->cross, s->crosses * sizeof *s->cross);
    put_texts(&b, &s->names);
    put_texts(&b, &s->missing);
    put_texts(&b, &s->labels);
    put(&b, &positive, sizeof positive);
    put(&b, &bindings->n, sizeof bindings->n);
    for (size_t i = 0; i < bindings->n; i++) {
        put(&b, &bindings->binding[i], sizeof *bindings->binding);
        put(&b, bindings->binding[i].column, bindings->binding[i].fields * sizeof(uint32_t));
    }
    if (b.status != TR_OK) free(b.at);
    *bytes = b.at;
    *n = b.n;
    return b.status;
}

static int get_bindings(struct bytes *b, struct tr_bindings *bindings)
{
    size_t n = 0;
    get(b, &n, sizeof n);
    if (b->status == TR_OK) b->status = TR_NEW(&bindings->binding, n);
    for (size_t i = 0; i < n && b->status == TR_OK; i++) {
        struct tr_binding *to = &bindings->binding[bindings->n++];
        get(b, to, sizeof *to);
        to->column = NULL;
        if (b->status == TR_OK) b->status = TR_NEW(&to->column, to->fields);
        if (b->status == TR_OK) get(b, to->column, to->fields * sizeof *to->column);
    }
    return b->status;
}

static int unpack(struct bytes *b, struct tr_schema *s)
{
    struct tr_schema head = {.n = 0};
    bool positive = false;
    get(b, &head, sizeof head);
    TR_TRY(b->status);
    TR_TRY(TR_NEW(&s->column, head.n));
    s->n = head.n;
    s->named = head.named;
    s->label = head.label;
    get(b, s->column, s->n * sizeof *s->column);
    s->hash = head.hash;
    if (b->status == TR_OK) TR_TRY(TR_NEW(&s->cross, head.crosses));
    s->crosses = head.crosses;
    get(b, s->cross, s->crosses * sizeof *s->cross);
    get_texts(b, &s->names);
    get_texts(b, &s->missing);
    get_texts(b, &s->labels);
    get(b, &positive, sizeof positive);
    TR_TRY(b->status);
    if (positive) {
        size_t n;
        const char *text = tr_ids_text(&s->labels, 1, &n);
        TR_TRY(TR_NEW(&s->positive, n + 1));
        memcpy(s->positive, text, n);
    }
    return tr_schema_number(s);
}

int tr_schema_unpack(const char *bytes, size_t n, struct tr_schema **schema, struct tr_bindings *bindings)
{
    struct bytes b = {.from = bytes, .end = bytes + n};
    struct tr_bindings found = {.n = 0};
    TR_TRY(tr_schema_new(schema));
    int status = unpack(&b, *schema);
    if (status == TR_OK) status = get_bindings(&b, &found);
    if (status == TR_OK) {
        *bindings = found;
        return TR_OK;
    }
    tr_bindings_free(&found);
    tr_schema_release(schema);
    return status;
}

/* ---- rows of keys ---- */

struct expansion {
    const struct tr_schema *schema;
    uint32_t *const *number;
    const struct tr_column **of_slot;
    size_t *column_of;
    uint32_t *key;
    float *value;
    size_t n, hashed; /* of all rows yet; where the hashed keys of the row at hand begin */
    uint64_t unknown;
};

static inline void add_key(struct expansion *e, uint32_t key, float value)
{
    if (value == 0) return;
    e->key[e->n] = key;
    e->value[e->n++] = value;
}

/* The hashed keys of a row are its last, ascending; one that is there counts once more. */
static void add_hashed(struct expansion *e, uint32_t key)
{
    size_t k = e->n;
    while (k > e->hashed && e->key[k - 1] > key) k--;
    if (k > e->hashed && e->key[k - 1] == key) {
        e->value[k - 1] += 1;
        return;
    }
    memmove(e->key + k + 1, e->key + k, (e->n - k) * sizeof *e->key);
    memmove(e->value + k + 1, e->value + k, (e->n - k) * sizeof *e->value);
    e->key[k] = key;
    e->value[k] = 1;
    e->n++;
}

static void add_category(struct expansion *e, size_t slot, float value)
{
    const struct tr_column *c = e->of_slot[slot];
    uint32_t number = tr_slot_place(value);
    if (number != TR_NO_VALUE && e->number) number = e->number[e->column_of[slot]][number];
    if (number < c->values) add_key(e, c->first + number, 1);
    else if (c->others) add_key(e, c->first + c->values, 1);
    else e->unknown++;
}

static void add_row(struct expansion *e, const float *row)
{
    const struct tr_schema *s = e->schema;
    for (size_t slot = 0; slot < s->slots; slot++) {
        const struct tr_column *c = e->of_slot[slot];
        if (c->type == TR_COLUMN_CATEGORY) {
            if (s->hash == 0) add_category(e, slot, row[slot]);
        } else if (isnan(row[slot])) {
            add_key(e, c->first, (float)c->mean);
            if (c->missing) add_key(e, c->first + 1, 1);
        } else {
            add_key(e, c->first, row[slot]);
        }
    }
    e->hashed = e->n;
    for (size_t slot = 0; slot < s->slots && s->hash > 0; slot++)
        if (e->of_slot[slot]->type == TR_COLUMN_CATEGORY)
            add_hashed(e, (uint32_t)s->hashed + tr_slot_place(row[slot]));
}

/* The number of a category's value, or NaN. */
static float code_of(struct expansion *e, size_t slot, float value)
{
    const struct tr_column *c = e->of_slot[slot];
    uint32_t number = tr_slot_place(value);
    if (number != TR_NO_VALUE && e->number) number = e->number[e->column_of[slot]][number];
    if (number < c->values) return (float)number;
    e->unknown += !c->others;
    return NAN;
}

/* Each slot is a key. */
static void fill_in(struct expansion *e, struct tr_matrix *m)
{
    for (size_t k = 0; k < m->columns; k++) {
        const struct tr_column *c = e->of_slot[k];
        for (size_t i = 0; i < m->rows; i++) {
            float *x = &m->value[i * m->columns + k];
            if (c->type == TR_COLUMN_CATEGORY) *x = code_of(e, k, *x);
            else if (isnan(*x) && !c->raw) *x = (float)c->mean;
        }
    }
}

static int expand(struct expansion *e, struct tr_matrix *m)
{
    struct tr_matrix sparse = {.rows = m->rows, .label = m->label};
    size_t capacity = 0, values = 0, most = m->rows * m->columns / 8 + 1;
    int status = TR_NEW(&sparse.begin, m->rows + 1);
    for (size_t i = 0; i < m->rows && status == TR_OK; i++) {
        size_t room = e->n + 2 * m->columns;
        if (room > capacity) status = TR_GROW(&sparse.column, &capacity, room + most);
        if (status == TR_OK && room > values) status = TR_GROW(&sparse.value, &values, room + most);
        if (status != TR_OK) break;
        e->key = sparse.column;
        e->value = sparse.value;
        add_row(e, m->value + i * m->columns);
        sparse.begin[i + 1] = e->n;
    }
    if (status != TR_OK) {
        sparse.label = NULL;
        tr_matrix_free(&sparse);
        return status;
    }
    TR_SHRINK(&sparse.column, e->n);
    TR_SHRINK(&sparse.value, e->n);
    free(m->value);
    *m = sparse;
    return TR_OK;
}

int tr_schema_expand(const struct tr_schema *s, uint32_t *const *number, struct tr_matrix *m,
                     uint64_t *unknown)
{
    struct expansion e = {.schema = s, .number = number};
    int status = TR_NEW(&e.of_slot, s->slots);
    if (status == TR_OK) status = TR_NEW(&e.column_of, s->slots);
    for (size_t c = 0; c < s->n && status == TR_OK; c++) {
        const struct tr_column *column = &s->column[c];
        if (column->type > TR_COLUMN_CATEGORY) continue;
        e.of_slot[column->slot] = column;
        e.column_of[column->slot] = c;
    }
    if (status == TR_OK && tr_schema_is_dense(s)) fill_in(&e, m);
    else if (status == TR_OK) status = expand(&e, m);
    *unknown = e.unknown;
    free(e.of_slot);
    free(e.column_of);
    return status;
}

/* Where the columns of a schema are in each file. */
#include "data/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/hdf5.h"

/* Whether a column is one of those that a crossed one is made of. */
static bool is_crossed(const struct tr_schema *s, size_t column)
{
    for (size_t i = 0; i < s->crosses; i++)
        for (size_t k = 0; k < s->cross[i].n; k++)
            if (s->cross[i].column[k] == column) return true;
    return false;
}

static bool may_be_missing(const struct tr_schema *s, size_t c, bool label_needed)
{
    if (is_crossed(s, c)) return false;
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

/* HDF5 has texts or numbers, which is said when it is made. */
static int check_kinds(const struct tr_schema *s, const struct tr_file *file, const struct tr_binding *b)
{
    bool *texts;
    int status = TR_NEW(&texts, b->fields);
    if (status == TR_OK) status = tr_hdf5_read_kinds(file, b->fields, texts);
    for (size_t k = 0; k < b->fields && status == TR_OK; k++) {
        uint32_t column = b->column[k];
        uint8_t type = column < s->n ? s->column[column].type : TR_COLUMN_IGNORE;
        bool number = type == TR_COLUMN_NUMBER || type == TR_COLUMN_LABEL || type == TR_COLUMN_WEIGHT,
             text = type == TR_COLUMN_CATEGORY || (column < s->n && is_crossed(s, column));
        if (texts[k] ? !number : !text) continue;
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s, column, name);
        status = tr_fail(TR_ERR_DATA,
                         "%s: column %s is one of %s in this file, expected %s: convert it with "
                         "data.columns='%s: %s'",
                         file->path, name, texts[k] ? "words" : "numbers", texts[k] ? "numbers" : "words",
                         name, texts[k] ? "number" : "category");
    }
    free(texts);
    return status;
}

static int bind_file(const struct tr_schema *s, const struct tr_files *files, size_t i,
                     const struct tr_head *head, bool label_needed, struct tr_binding *b)
{
    const char *path = files->file[i].path;
    struct tr_ids names = {.are_text = true};
    bool by_name = s->named && head->header;
    int status = TR_OK;
    b->fields = (size_t)head->fields;
    if (by_name) status = tr_schema_read_names(files, i, head, &names);
    if (by_name) b->fields = names.n;
    if (status == TR_OK) status = TR_NEW(&b->column, b->fields);
    if (status == TR_OK)
        status =
            by_name ? bind_names(s, path, &names, label_needed, b) : bind_order(s, path, label_needed, b);
    for (size_t k = 0; k < b->fields && status == TR_OK; k++) {
        b->labelled = b->labelled || b->column[k] == s->label;
    }
    if (status == TR_OK && head->named) status = check_kinds(s, &files->file[i], b);
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
        status = bind_file(s, files, i, &heads[i], label_needed, &b);
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

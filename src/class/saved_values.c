/* Maps the category codes of a saved model to those of the training data. The code of a value is its number in a dictionary, which
 * orders values by frequency, so codes differ between data sets. Rank 0 has the texts of the model's values, and finds their codes
 * in the dictionary of the training data, which is distributed over the workers. */
#include <stdlib.h>
#include <string.h>

#include "class/class.h"
#include "data/names.h"
#include "data/schema.h"
#include "data/dataset.h"
#include "trireme/base.h"
#include "trireme/collective.h"

struct tr_saved_values {
    char *path;
    struct tr_schema *schema; /* of the model; NULL: its columns have no names */
    uint32_t *column;         /* of each column of the model, its index in the schema */
    uint32_t **number;        /* number[column of the model][code in the model]: code in the training data */
    size_t columns;
};

static bool ids_equal(const struct tr_ids *a, size_t i, const struct tr_ids *b, size_t k)
{
    size_t n, m;
    const char *x = tr_ids_text(a, i, &n), *y = tr_ids_text(b, k, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* Returns the index of the first column, from `at` on, that has keys; s->n: there is none. */
static size_t next_column(const struct tr_schema *s, size_t at)
{
    while (at < s->n && s->column[at].keys == 0) at++;
    return at;
}

/* Writes name and type of a column for messages: «city (category)». */
static void show_column(const struct tr_schema *s, size_t column, char text[2 * TR_SHOWN_NAME])
{
    char name[TR_SHOWN_NAME];
    strcpy(text, "no column");
    if (column == s->n) return;
    tr_schema_column_text(s, column, name);
    snprintf(text, 2 * TR_SHOWN_NAME, "%s (%s)", name,
             s->column[column].type == TR_COLUMN_CATEGORY ? "category" : "number");
}

/* Checks that the model has the columns and the labels of the training data. */
static int saved_compare_columns(const char *path, const struct tr_schema *data,
                                 const struct tr_schema *saved)
{
    char of_data[2 * TR_SHOWN_NAME], of_saved[2 * TR_SHOWN_NAME];
    if ((!data && !saved) || ((!data || !saved) && tr_schema_agrees(data, saved))) return TR_OK;
    if (!data || !saved)
        return tr_fail(TR_ERR_DATA, "%s: %s: expected columns of numbers", path,
                       data ? "it does not name its columns" : "the data do not name their columns");
    size_t a = next_column(data, 0), b = next_column(saved, 0);
    while (a < data->n && b < saved->n && data->column[a].type == saved->column[b].type &&
           ids_equal(&data->names, a, &saved->names, b)) {
        a = next_column(data, a + 1);
        b = next_column(saved, b + 1);
    }
    if (a < data->n || b < saved->n) {
        show_column(data, a, of_data);
        show_column(saved, b, of_saved);
        return tr_fail(TR_ERR_DATA,
                       "%s: its columns are not those of the data: expected %s, in the data there is %s",
                       path, of_saved, of_data);
    }
    bool same = data->labels.n == saved->labels.n;
    for (size_t i = 0; i < saved->labels.n && same; i++)
        same = ids_equal(&data->labels, i, &saved->labels, i);
    return same ? TR_OK : tr_fail(TR_ERR_DATA, "%s: the names of its labels are not those of the data", path);
}

/* Reads a model on rank 0, and prepares its columns. */
static int saved_open(const tr_context *tr, const char *path, struct tr_model *m, tr_saved_values **values)
{
    TR_TRY(tr_model_open_own(tr, path, m));
    TR_TRY(tr_model_read(m));
    TR_TRY(saved_compare_columns(path, tr_store_schema(tr), m->schema));
    TR_TRY(TR_NEW(values, 1));
    tr_saved_values *v = *values;
    TR_TRY(tr_copy_string(path, &v->path));
    const struct tr_schema *s = v->schema = m->schema;
    m->schema = NULL;
    if (!s) return TR_OK;
    TR_TRY(TR_NEW(&v->column, s->n));
    for (size_t c = next_column(s, 0); c < s->n; c = next_column(s, c + 1))
        v->column[v->columns++] = (uint32_t)c;
    return TR_NEW(&v->number, v->columns);
}

/* Makes the requests for the codes of all values of the model: asked[c] for column c of the training data. */
static int saved_ask(const struct tr_schema *data, const tr_saved_values *v, struct tr_counted **asked)
{
    static const struct tr_ids none = {.are_text = true};
    TR_TRY(TR_NEW(asked, data->n));
    for (size_t c = 0; c < data->n; c++) (*asked)[c].values = &none;
    for (size_t c = next_column(data, 0), k = 0; c < data->n && v; c = next_column(data, c + 1), k++) {
        const struct tr_ids *values = &v->schema->values[v->column[k]];
        uint64_t *count;
        TR_TRY(TR_NEW(&count, values->n));
        for (size_t i = 0; i < values->n; i++) count[i] = 1;
        (*asked)[c] = (struct tr_counted){values, count};
    }
    return TR_OK;
}

static int saved_find_numbers(tr_context *tr, tr_saved_values *v)
{
    const struct tr_schema *data = tr_store_schema(tr);
    TR_FREED struct tr_counted *asked = NULL;
    TR_FREED uint32_t **number = NULL;
    if (!data || !data->dictionary) return TR_OK;
    int status = saved_ask(data, v, &asked);
    if (status == TR_OK) status = TR_NEW(&number, data->n);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_dictionary_find(tr, data->dictionary, asked, data->n, number);
    for (size_t c = next_column(data, 0), k = 0; c < data->n && v && number;
         c = next_column(data, c + 1), k++) {
        v->number[k] = number[c];
        number[c] = NULL;
    }
    for (size_t c = 0; c < data->n; c++) {
        if (asked) free((void *)(uintptr_t)asked[c].count);
        if (number) free(number[c]);
    }
    return status;
}

int tr_model_load_coded(tr_context *tr, const char *path, void **model, tr_saved_values **values)
{
    TR_CLOSED_BY(tr_model_close) struct tr_model m = {0};
    *model = NULL;
    *values = NULL;
    int status = tr_agree(tr, tr_rank(tr) == 0 ? saved_open(tr, path, &m, values) : TR_OK);
    if (status == TR_OK) status = saved_find_numbers(tr, *values);
    if (status == TR_OK) {
        *model = m.model;
        m.model = NULL;
    } else {
        tr_saved_values_close(values);
    }
    return status;
}

int tr_saved_value_number(const tr_saved_values *v, uint64_t column, uint64_t value, uint32_t *number)
{
    char of_column[TR_SHOWN_NAME], of_value[TR_SHOWN_NAME];
    size_t c = column < v->columns ? v->column[column] : 0;
    if (column >= v->columns || !v->number[column] || value >= v->schema->values[c].n)
        return tr_fail(TR_ERR_DATA, "%s: damaged: a value of a category that it does not name", v->path);
    *number = v->number[column][value];
    if (*number != TR_NO_NUMBER) return TR_OK;
    tr_schema_column_text(v->schema, c, of_column);
    tr_schema_value_text(v->schema, v->schema->column[c].first, value, of_value);
    return tr_fail(TR_ERR_DATA,
                   "%s: it tells %s=%s from other values, and the training data have no such value", v->path,
                   of_column, of_value);
}

void tr_saved_values_close(tr_saved_values **values)
{
    tr_saved_values *v = *values;
    if (!v) return;
    for (size_t k = 0; k < v->columns && v->number; k++) free(v->number[k]);
    tr_schema_release(&v->schema);
    TR_FREE_ALL(v->number, v->column, v->path, v);
    *values = NULL;
}

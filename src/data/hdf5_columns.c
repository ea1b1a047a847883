/* Rows of HDF5 files whose columns have names: those of csv, converted. */
#include "data/hdf5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names and texts ---- */

void tr_hdf5_strings_free(struct tr_hdf5_strings *s)
{
    tr_ids_free(&s->all);
    free(s->first);
    s->first = NULL;
}

static int get_all(struct tr_hdf5 *t, const struct tr_hdf5_array *a, void *values)
{
    return tr_checked_get(&t->checked, &(struct tr_checked_array){a->name, a->at, a->rows, a->size}, values);
}

static bool are_right(const struct tr_hdf5 *t, const struct tr_hdf5_strings *s, uint64_t texts)
{
    const struct tr_ids *all = &s->all;
    bool right = texts == all->n && all->begin[0] == 0 && all->begin[all->n] <= t->strings.rows;
    for (size_t i = 0; i < all->n && right; i++) right = all->begin[i] <= all->begin[i + 1];
    return right;
}

int tr_hdf5_read_strings(struct tr_hdf5 *t, struct tr_hdf5_strings *s)
{
    uint64_t *texts = NULL, n = t->columns;
    *s = (struct tr_hdf5_strings){.all = {.are_text = true, .n = (size_t)t->string_begin.rows - 1}};
    TR_TRY(TR_NEW(&s->first, (size_t)t->columns + 1));
    int status = get_all(t, &t->texts, &texts);
    if (status == TR_OK) status = get_all(t, &t->string_begin, &s->all.begin);
    if (status == TR_OK) status = get_all(t, &t->strings, &s->all.text);
    bool right = status == TR_OK;
    for (size_t c = 0; c < t->columns && right; c++) {
        s->first[c] = n;
        right = texts[c] <= s->all.n && n <= s->all.n;
        n += texts[c];
    }
    s->first[t->columns] = n;
    free(texts);
    if (status != TR_OK || (right && are_right(t, s, n))) return status;
    return tr_fail(TR_ERR_DATA, "%s:%s: damaged: not what the columns have", t->path, t->string_begin.name);
}

int tr_hdf5_read_names(const struct tr_file *file, tr_field_fn *take, void *state)
{
    struct tr_hdf5 t;
    struct tr_hdf5_strings s = {.first = NULL};
    int status = tr_hdf5_table_open(file, &t);
    if (status == TR_OK && t.named) status = tr_hdf5_read_strings(&t, &s);
    for (size_t c = 0; c < t.columns && t.named && status == TR_OK; c++) {
        size_t n;
        const char *name = tr_ids_text(&s.all, c, &n);
        status = take(state, 0, c, name, n);
    }
    tr_hdf5_strings_free(&s);
    tr_hdf5_table_close(&t);
    return status;
}

int tr_hdf5_read_kinds(const struct tr_file *file, size_t columns, bool *texts)
{
    struct tr_hdf5 t;
    uint64_t *n = NULL;
    int status = tr_hdf5_table_open(file, &t);
    if (status == TR_OK && t.named) status = get_all(&t, &t.texts, &n);
    for (size_t c = 0; c < columns && c < t.columns && n && status == TR_OK; c++) texts[c] = n[c] > 0;
    free(n);
    tr_hdf5_table_close(&t);
    return status;
}

/* ---- rows ---- */

#define NOT_YET (TR_NO_VALUE - 1) /* a text whose place among the reader's values nobody has asked for */

/* Columns of numbers that follow each other in the file and in memory: n of them from a field on, to a slot on. */
struct stretch {
    size_t field, slot, n;
};

struct tr_hdf5_columns {
    struct tr_hdf5_strings strings;
    uint32_t *place;         /* of each string: as a slot has it */
    struct stretch *stretch; /* all columns of numbers that become slots; and the other fields */
    size_t *other, stretches, others;
    float *raw; /* the rows at hand */
    size_t raw_capacity;
};

static void divide_fields(struct tr_hdf5_columns *c, const struct tr_reader *r)
{
    for (size_t field = 0; field < r->fields; field++) {
        const struct tr_bound *b = &r->bound[field];
        struct stretch *last = &c->stretch[c->stretches - (c->stretches > 0)];
        bool goes_on = c->stretches > 0 && last->field + last->n == field && last->slot + last->n == b->slot;
        if (b->type != TR_COLUMN_NUMBER) c->other[c->others++] = field;
        else if (goes_on) last->n++;
        else c->stretch[c->stretches++] = (struct stretch){field, b->slot, 1};
    }
}

int tr_hdf5_columns_open(struct tr_hdf5 *t, const struct tr_reader *r, struct tr_hdf5_columns **columns)
{
    TR_TRY(TR_NEW(columns, 1));
    struct tr_hdf5_columns *c = *columns;
    TR_TRY(tr_hdf5_read_strings(t, &c->strings));
    TR_TRY(TR_NEW(&c->place, c->strings.all.n));
    for (size_t i = 0; i < c->strings.all.n; i++) c->place[i] = NOT_YET;
    TR_TRY(TR_NEW(&c->stretch, r->fields));
    TR_TRY(TR_NEW(&c->other, r->fields));
    divide_fields(c, r);
    return TR_OK;
}

void tr_hdf5_columns_close(struct tr_hdf5_columns **columns)
{
    struct tr_hdf5_columns *c = *columns;
    if (!c) return;
    tr_hdf5_strings_free(&c->strings);
    free(c->place);
    free(c->stretch);
    free(c->other);
    free(c->raw);
    free(c);
    *columns = NULL;
}

static bool bad(struct tr_reader *r, size_t field, const char *what)
{
    char name[TR_SHOWN_NAME];
    tr_schema_column_text(r->options->schema, r->bound[field].column, name);
    (void)tr_reader_bad(r, NULL, ' ', "column %s: %s", name, what);
    return false;
}

/* The text that stands in a field: of a column of numbers, its number. */
static bool text_of(const struct tr_hdf5_columns *c, struct tr_reader *r, size_t field, float x,
                    char number[32], struct tr_field *text, size_t *string)
{
    uint64_t first = c->strings.first[field], n = c->strings.first[field + 1] - first;
    *text = (struct tr_field){.text = number};
    *string = c->strings.all.n;
    if (n == 0) {
        if (!isnan(x)) text->n = (size_t)(tr_put_f32(number, x) - number);
        return true;
    }
    if (!(x >= 0 && x < (float)n)) return bad(r, field, "damaged: there is no such text");
    *string = (size_t)(first + (uint64_t)x);
    text->text = tr_ids_text(&c->strings.all, *string, &text->n);
    return true;
}

/* As a slot has it. */
static bool take_text(struct tr_hdf5_columns *c, struct tr_reader *r, size_t field, float x, uint32_t *place)
{
    struct tr_field text;
    char number[32];
    size_t string, column = r->bound[field].column;
    bool label = r->bound[field].type == TR_COLUMN_NAMED_LABEL;
    if (!text_of(c, r, field, x, number, &text, &string)) return false;
    if (string < c->strings.all.n && (*place = c->place[string]) != NOT_YET) return true;
    if (text.n > (label ? (size_t)TR_NAME_LONGEST : (size_t)TR_VALUE_LONGEST))
        return bad(r, field, "a text is too long");
    if (tr_schema_is_missing(r->options->schema, text.text, text.n)) text.n = 0;
    r->status = tr_csv_find_value(r, column, text.text, text.n, place);
    if (r->status != TR_OK) return false;
    if (label && *place == TR_NO_VALUE && text.n > 0 && !r->options->rows_without_label)
        return bad(r, field, "a text is no label of the training data");
    if (string < c->strings.all.n) c->place[string] = *place;
    return true;
}

static bool take_number(struct tr_reader *r, size_t field, float x, float *to)
{
    *to = x;
    if (isnan(x) || tr_schema_is_missing_number(r->options->schema, x))
        tr_csv_miss_number(r, r->bound[field].column, to);
    return !isinf(x) || bad(r, field, "is infinite, expected an ordinary number");
}

static bool take_field(struct tr_hdf5_columns *c, struct tr_reader *r, size_t field, float x, float *row,
                       float *label)
{
    const struct tr_bound *b = &r->bound[field];
    uint32_t place;
    switch (b->type) {
    case TR_COLUMN_LABEL: return take_number(r, field, x, label);
    case TR_COLUMN_WEIGHT:
        r->weight[r->report.rows + r->matrix.rows] = x;
        return (x >= 0 && !isinf(x)) || bad(r, field, "is no weight of a row, expected a number, 0 or more");
    case TR_COLUMN_CATEGORY:
        if (!take_text(c, r, field, x, &place)) return false;
        row[b->slot] = tr_slot_of_place(place);
        return true;
    case TR_COLUMN_NAMED_LABEL:
        if (!take_text(c, r, field, x, &place)) return false;
        if (place != TR_NO_VALUE) *label = (float)place;
        return true;
    default: return true;
    }
}

/* Of one row, whose fields are fine. */
static bool take_crosses(struct tr_hdf5_columns *c, struct tr_reader *r, const float *x, float *row)
{
    const struct tr_schema *s = r->options->schema;
    for (size_t i = 0; i < s->crosses; i++) {
        const struct tr_cross *cross = &s->cross[i];
        struct tr_field part[TR_CROSS_MOST];
        char number[TR_CROSS_MOST][32];
        size_t column = tr_schema_fields(s) + i, string;
        for (size_t field = 0; field < r->fields; field++)
            for (size_t k = 0; k < cross->n; k++)
                if (r->bound[field].column == cross->column[k] &&
                    !text_of(c, r, field, x[field], number[k], &part[k], &string))
                    return false;
        if (!tr_csv_cross_values(r, column, cross, part, &row[s->column[column].slot])) return false;
    }
    return true;
}

/* clean: its numbers are finite. */
static bool take_row(struct tr_hdf5_columns *c, struct tr_reader *r, const float *x, bool clean)
{
    struct tr_matrix *m = &r->matrix;
    float label = NAN, *row = m->value + m->rows * m->columns;
    if (r->weight) r->weight[r->report.rows + m->rows] = 1; /* where this file has none */
    for (size_t i = 0; i < c->stretches; i++) {
        const struct stretch *s = &c->stretch[i];
        if (clean) memcpy(row + s->slot, x + s->field, s->n * sizeof *x);
        for (size_t field = s->field; field < s->field + s->n && !clean; field++)
            if (!take_number(r, field, x[field], row + r->bound[field].slot)) return false;
    }
    for (size_t i = 0; i < c->others; i++)
        if (!take_field(c, r, c->other[i], x[c->other[i]], row, &label)) return false;
    return take_crosses(c, r, x, row) && tr_csv_end_row(r, "", label);
}

int tr_hdf5_columns_take(struct tr_hdf5_columns *c, struct tr_hdf5 *t, struct tr_reader *r, uint64_t first,
                         size_t n)
{
    size_t columns = (size_t)t->columns;
    TR_TRY(tr_csv_make_room(r, n));
    if (r->options->piece || r->options->places)
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, r->matrix.rows + n));
    TR_TRY(TR_GROW(&c->raw, &c->raw_capacity, n * columns));
    TR_TRY(tr_hdf5_read_reals(t, &t->x, first, n, c->raw));
    bool any_missing = r->options->schema->missing_numbers > 0,
         clean = !any_missing && tr_are_finite(c->raw, n * columns);
    for (size_t i = 0; i < n && !r->enough; i++) {
        size_t rows = r->matrix.rows;
        r->offset = first + i;
        if (tr_hdf5_leaves_out(r, r->offset)) continue;
        const float *x = c->raw + i * columns;
        if (!take_row(c, r, x, clean || (!any_missing && tr_are_finite(x, columns))))
            TR_TRY(tr_reader_reject(r));
        if (r->place && r->matrix.rows > rows) r->place[rows] = r->offset;
    }
    return TR_OK;
}

/* Rows of keys, made of rows as they are read. */
#include "data/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

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

#define _GNU_SOURCE
#include "data/schema.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/escape.h"
#include "data/field.h"
#include "data/names.h"

/* ---- values ---- */

/* A decimal number: 0.d1d2d3... · 10^point. The first and the last of its n digits are not 0; the number 0 has no digits. */
struct decimal {
    bool negative;
    size_t n;
    long point;
    char digit[TR_VALUE_DIGITS];
};

/* Converts a text. Returns false if it is not a number. */
static bool decimal_read(const char *text, size_t n, struct decimal *d)
{
    const char *p = text, *end = text + n;
    bool any = false, behind_point = false;
    long exponent = 0;
    *d = (struct decimal){.negative = n > 0 && *p == '-'};
    if (n == 0 || n > TR_VALUE_DIGITS) return false;
    for (p += *p == '-' || *p == '+'; p < end && (tr_is_digit(*p) || (*p == '.' && !behind_point)); p++) {
        if (*p == '.') {
            behind_point = true;
            continue;
        }
        any = true;
        if (d->n > 0 || *p != '0') d->digit[d->n++] = *p;
        d->point += d->n > 0 && !behind_point;
        d->point -= d->n == 0 && behind_point;
    }
    if (!any) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool below = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (p == end || end - p > 5) return false;
        for (; p < end && tr_is_digit(*p); p++) exponent = exponent * 10 + (*p - '0');
        d->point += below ? -exponent : exponent;
    }
    while (d->n > 0 && d->digit[d->n - 1] == '0') d->n--;
    d->negative = d->negative && d->n > 0;
    return p == end;
}

const char *tr_value_number(const char *text, size_t *n, char room[TR_VALUE_ROOM])
{
    struct decimal d;
    char *to = room;
    size_t k = *text == '-';
    bool whole = *n > k && text[k] > '0'; /* the usual case: a whole number in its own form */
    while (whole && k < *n && tr_is_digit(text[k])) k++;
    if ((whole && k == *n && *n <= 21) || (*n == 1 && *text == '0') || !decimal_read(text, *n, &d))
        return text;
    if (d.negative) *to++ = '-';
    if (d.n == 0) {
        *to++ = '0';
    } else if (d.point > 21 || d.point < -5) {
        *to++ = d.digit[0];
        if (d.n > 1) *to++ = '.';
        memcpy(to, d.digit + 1, d.n - 1);
        to += d.n - 1;
        to += sprintf(to, "e%ld", d.point - 1);
    } else {
        size_t before = d.point > 0 ? tr_min_size((size_t)d.point, d.n) : 0;
        if (before == 0) *to++ = '0';
        memcpy(to, d.digit, before);
        to += before;
        for (long i = (long)d.n; i < d.point; i++) *to++ = '0';
        if (before < d.n) *to++ = '.';
        for (long i = d.point; i < 0; i++) *to++ = '0';
        memcpy(to, d.digit + before, d.n - before);
        to += d.n - before;
    }
    bool same = *n == (size_t)(to - room) && memcmp(text, room, *n) == 0;
    *n = (size_t)(to - room);
    return same ? text : room;
}

int tr_value_compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    struct decimal x, y;
    bool a_number = decimal_read(a, n_a, &x), b_number = decimal_read(b, n_b, &y);
    if (!a_number || !b_number) return a_number ? -1 : b_number ? 1 : tr_bytes_compare(a, n_a, b, n_b);
    int sign_x = x.n == 0 ? 0 : x.negative ? -1 : 1, sign_y = y.n == 0 ? 0 : y.negative ? -1 : 1;
    if (sign_x != sign_y) return sign_x < sign_y ? -1 : 1;
    if (x.point != y.point) return (x.point < y.point) == (sign_x > 0) ? -1 : 1;
    return sign_x * tr_bytes_compare(x.digit, x.n, y.digit, y.n);
}

bool tr_value_is_number(const char *text, size_t n, double *number)
{
    struct decimal d;
    char copy[TR_VALUE_DIGITS + 1];
    if (!decimal_read(text, n, &d)) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *number = strtod_l(copy, NULL, c);
    freelocale(c);
    return true;
}

/* ---- memory ---- */

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
    free(s->missing_number);
    free(s->values);
    free(s->positive);
    free(s->cross);
    free(s->column);
    free(s);
}

void tr_bindings_free(struct tr_bindings *b)
{
    for (size_t i = 0; i < b->n && b->binding; i++) free(b->binding[i].column);
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

bool tr_schema_is_missing(const struct tr_schema *s, const char *text, size_t n, bool quoted)
{
    static const char *const words[] = {"NA", "NaN", "nan", "null", "NULL", "?", "\\N"};
    if (n == 0) return true;
    for (size_t i = 0; n <= 4 && !quoted && i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(words[i], text, n) == 0) return true;
    if (s->missing.n == 0) return false;
    char room[TR_VALUE_ROOM];
    text = tr_value_text(text, &n, room);
    return tr_ids_find_text(&s->missing, text, n) != UINT32_MAX;
}

bool tr_schema_is_missing_number(const struct tr_schema *s, float number)
{
    for (size_t i = 0; i < s->missing_numbers; i++)
        if (s->missing_number[i] == number) return true;
    return false;
}

size_t tr_schema_find(const struct tr_schema *s, const char *name)
{
    uint64_t number;
    uint32_t place = tr_ids_find_text(&s->names, name, strlen(name));
    if (place != UINT32_MAX) return place;
    return tr_id_number(name, strlen(name), &number) && number > 0 && number <= s->n ? (size_t)number - 1
                                                                                     : s->n;
}

/* ---- slots and keys ---- */

bool tr_schema_has_categories(const struct tr_schema *s)
{
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_CATEGORY) return true;
    return false;
}

const struct tr_extra_kind tr_extra_kinds[TR_EXTRAS] = {
    [TR_EXTRA_WEIGHT] = {"weight", "is no weight of a row, expected a number, 0 or more",
                         "is no weight of a row, expected one number, 0 or more", 1, true},
    [TR_EXTRA_OFFSET] = {"offset", "is no offset of a row, expected a finite number",
                         "is no offset of a row, expected one finite number", 0, false}};

size_t tr_schema_extra(const struct tr_schema *s, enum tr_extra extra)
{
    size_t c = 0, n = s ? s->n : 0;
    while (c < n && tr_column_extra(s->column[c].type) != extra) c++;
    return c;
}

bool tr_schema_has_extra(const struct tr_schema *s, enum tr_extra extra)
{
    return s && tr_schema_extra(s, extra) < s->n;
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
    if (!s->missing_number) TR_TRY(TR_NEW(&s->missing_number, s->missing.n));
    s->missing_numbers = 0;
    for (size_t i = 0; i < s->missing.n; i++) {
        double number;
        size_t n;
        const char *text = tr_ids_text(&s->missing, i, &n);
        if (tr_value_is_number(text, n, &number)) s->missing_number[s->missing_numbers++] = (float)number;
    }
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

/* ---- texts for users ---- */

void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME])
{
    size_t n;
    const char *name = tr_ids_text(&s->names, column, &n);
    tr_escape(text, TR_SHOWN_NAME, name, n);
}

/* Returns the column to which a key belongs. */
static size_t schema_column_of_key(const struct tr_schema *s, uint64_t key)
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

void tr_schema_value_text(const struct tr_schema *s, uint64_t key, uint64_t value, char text[TR_SHOWN_NAME])
{
    size_t column = schema_column_of_key(s, key), n;
    strcpy(text, "other");
    if (value >= s->column[column].values || !s->values || value >= s->values[column].n) return;
    const char *name = tr_ids_text(&s->values[column], value, &n);
    if (n > 0) tr_escape(text, TR_SHOWN_NAME, name, n);
    else strcpy(text, "missing");
}

void tr_schema_key_text(const struct tr_schema *s, uint64_t key, char text[TR_SHOWN_NAME])
{
    if (s->hash > 0 && key >= s->hashed) {
        snprintf(text, TR_SHOWN_NAME, "hash=%llu", (unsigned long long)(key - s->hashed));
        return;
    }
    size_t column = schema_column_of_key(s, key), n;
    const struct tr_column *c = &s->column[column];
    uint64_t number = key - c->first;
    char value[TR_SHOWN_NAME] = "missing";
    tr_schema_column_text(s, column, text);
    if (number == 0 && (c->type == TR_COLUMN_NUMBER || c->raw)) return;
    if (c->type != TR_COLUMN_NUMBER) tr_schema_value_text(s, key, number, value);
    n = strlen(text);
    snprintf(text + n, TR_SHOWN_NAME - n, "=%s", value);
}

static bool schema_is_of_numbers(const struct tr_schema *s)
{
    return !s || (!tr_schema_has_categories(s) && s->keys == s->slots);
}

bool tr_schema_agrees(const struct tr_schema *a, const struct tr_schema *b)
{
    static const struct tr_ids none = {.are_text = true};
    const struct tr_ids *x = a ? &a->labels : &none, *y = b ? &b->labels : &none;
    if (!schema_is_of_numbers(a) || !schema_is_of_numbers(b) || x->n != y->n) return false;
    for (size_t i = 0; i < x->n; i++) {
        size_t n_x, n_y;
        const char *of_x = tr_ids_text(x, i, &n_x), *of_y = tr_ids_text(y, i, &n_y);
        if (n_x != n_y || memcmp(of_x, of_y, n_x) != 0) return false;
    }
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
        tr_escape(text, TR_SHOWN_NAME, name, n);
    } else {
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(text, TR_SHOWN_NAME, "%.*g", digits, (double)label);
            if (strtof(text, NULL) == label) return;
        }
    }
}

/* ---- as bytes ---- */

int tr_schema_archive(struct tr_archive *a, struct tr_schema **schema, struct tr_bindings *bindings)
{
    if (!a->writes) TR_TRY(tr_schema_new(schema));
    struct tr_schema *s = *schema;
    bool positive = s->positive != NULL;
    TR_TRY(tr_archive_copy(a, &s->n, sizeof s->n));
    TR_TRY(tr_archive_copy(a, &s->crosses, sizeof s->crosses));
    TR_TRY(tr_archive_copy(a, &s->named, sizeof s->named));
    TR_TRY(tr_archive_copy(a, &s->label, sizeof s->label));
    TR_TRY(tr_archive_copy(a, &s->hash, sizeof s->hash));
    TR_TRY(tr_archive_copy(a, &s->notation, sizeof s->notation));
    TR_TRY(tr_archive_copy(a, &positive, sizeof positive));
    TR_TRY(tr_archive_array(a, &s->column, s->n * sizeof *s->column));
    TR_TRY(tr_archive_array(a, &s->cross, s->crosses * sizeof *s->cross));
    TR_TRY(tr_archive_ids(a, &s->names, true));
    TR_TRY(tr_archive_ids(a, &s->missing, true));
    TR_TRY(tr_archive_ids(a, &s->labels, true));
    TR_TRY(tr_archive_copy(a, &bindings->n, sizeof bindings->n));
    TR_TRY(tr_archive_array(a, &bindings->binding, bindings->n * sizeof *bindings->binding));
    for (size_t i = 0; i < bindings->n && !a->writes; i++) bindings->binding[i].column = NULL;
    for (size_t i = 0; i < bindings->n; i++) {
        struct tr_binding *b = &bindings->binding[i];
        TR_TRY(tr_archive_array(a, &b->column, b->fields * sizeof *b->column));
    }
    if (a->writes) return TR_OK;
    if (positive) {
        size_t length;
        const char *text = tr_ids_text(&s->labels, 1, &length);
        TR_TRY(tr_format(&s->positive, "%.*s", (int)length, text));
    }
    return tr_schema_number(s);
}

/* ---- rows of keys ---- */

struct expansion {
    const struct tr_schema *schema;
    /* number[column][place]: number of a value in the dictionary; NULL: places are numbers */
    uint32_t *const *number;
    uint32_t *key;
    float *value;
    size_t n;         /* number of non-zeros of all rows so far */
    uint64_t unknown; /* number of values without a key */
};

static inline void expansion_add_key(struct expansion *e, uint32_t key, float value)
{
    if (value == 0) return;
    e->key[e->n] = key;
    e->value[e->n++] = value;
}

static inline uint32_t expansion_number(const struct expansion *e, size_t column, float slot)
{
    uint32_t number = tr_slot_place(slot);
    return number != TR_NO_VALUE && e->number ? e->number[column][number] : number;
}

static void expansion_add_row(struct expansion *e, const float *row)
{
    const struct tr_schema *s = e->schema;
    for (size_t i = 0; i < s->n; i++) {
        const struct tr_column *c = &s->column[i];
        /* a column that is no number and no category has no slot */
        if (c->type > TR_COLUMN_CATEGORY) continue;
        float x = row[c->slot];
        if (c->type == TR_COLUMN_CATEGORY && s->hash == 0) {
            uint32_t number = expansion_number(e, i, x);
            if (number < c->values) expansion_add_key(e, c->first + number, 1);
            else if (c->others) expansion_add_key(e, c->first + c->values, 1);
            else e->unknown++;
        } else if (c->type == TR_COLUMN_NUMBER) {
            expansion_add_key(e, c->first, isnan(x) ? (float)c->mean : x);
            if (isnan(x) && c->missing) expansion_add_key(e, c->first + 1, 1);
        }
    }
    /* insert hashed keys, which follow all others, in ascending order. The value is the number of categories with this key */
    size_t hashed = e->n;
    for (size_t i = 0; i < s->n && s->hash > 0; i++) {
        if (s->column[i].type != TR_COLUMN_CATEGORY) continue;
        uint32_t key = (uint32_t)s->hashed + tr_slot_place(row[s->column[i].slot]);
        size_t k = e->n;
        while (k > hashed && e->key[k - 1] > key) k--;
        if (k > hashed && e->key[k - 1] == key) {
            e->value[k - 1] += 1;
            continue;
        }
        memmove(e->key + k + 1, e->key + k, (e->n - k) * sizeof *e->key);
        memmove(e->value + k + 1, e->value + k, (e->n - k) * sizeof *e->value);
        e->key[k] = key;
        e->value[k] = 1;
        e->n++;
    }
}

static int expansion_make_sparse(struct expansion *e, struct tr_matrix *m)
{
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix sparse = {.rows = m->rows};
    size_t capacity = 0, values = 0, most = m->rows * m->columns / 8 + 1;
    TR_TRY(TR_NEW(&sparse.begin, m->rows + 1));
    for (size_t i = 0; i < m->rows; i++) {
        size_t room = e->n + 2 * m->columns;
        if (room > capacity) TR_TRY(TR_GROW(&sparse.column, &capacity, room + most));
        if (room > values) TR_TRY(TR_GROW(&sparse.value, &values, room + most));
        e->key = sparse.column;
        e->value = sparse.value;
        expansion_add_row(e, m->value + i * m->columns);
        sparse.begin[i + 1] = e->n;
    }
    TR_SHRINK(&sparse.column, e->n);
    TR_SHRINK(&sparse.value, e->n);
    tr_matrix_replace(m, &sparse);
    return TR_OK;
}

int tr_schema_expand(const struct tr_schema *s, uint32_t *const *number, struct tr_matrix *m,
                     uint64_t *unknown)
{
    struct expansion e = {.schema = s, .number = number};
    bool dense = tr_schema_is_dense(s);
    int status = dense ? TR_OK : expansion_make_sparse(&e, m);
    for (size_t i = 0; i < s->n && dense; i++) {
        const struct tr_column *c = &s->column[i];
        bool category = c->type == TR_COLUMN_CATEGORY;
        for (size_t k = 0; k < m->rows && (category || (c->type == TR_COLUMN_NUMBER && !c->raw)); k++) {
            float *x = &m->value[k * m->columns + c->slot];
            uint32_t code = category ? expansion_number(&e, i, *x) : 0;
            if (!category) *x = isnan(*x) ? (float)c->mean : *x;
            else if (code < c->values) *x = (float)code;
            else {
                e.unknown += !c->others;
                *x = NAN;
            }
        }
    }
    *unknown = e.unknown;
    return status;
}

int tr_schema_keys_of(const struct tr_schema *s, uint32_t *const *number, const struct tr_matrix *m,
                      struct tr_matrix *keys, uint64_t *unknown)
{
    *keys = (struct tr_matrix){.rows = m->rows, .columns = m->columns};
    TR_TRY(TR_NEW(&keys->value, m->rows * m->columns));
    memcpy(keys->value, m->value, m->rows * m->columns * sizeof *m->value);
    return tr_schema_expand(s, number, keys, unknown);
}

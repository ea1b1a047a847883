#include "data/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dictionary.h"
#include "data/value.h"

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
    free(s->missing_number);
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

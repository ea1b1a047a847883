/* Columns, keys and labels as users see them. */
#include "data/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/escape.h"

static void append(char to[TR_SHOWN_NAME], const char *more)
{
    size_t n = strlen(to);
    snprintf(to + n, TR_SHOWN_NAME - n, "%s", more);
}

void tr_schema_column_text(const struct tr_schema *s, size_t column, char text[TR_SHOWN_NAME])
{
    size_t n;
    const char *name = tr_ids_text(&s->names, column, &n);
    tr_escape(text, TR_SHOWN_NAME, name, n);
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
    if (n > 0) tr_escape(text, TR_SHOWN_NAME, name, n);
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
        tr_escape(text, TR_SHOWN_NAME, name, n);
    } else {
        snprintf(text, TR_SHOWN_NAME, "%.9g", (double)label);
    }
}

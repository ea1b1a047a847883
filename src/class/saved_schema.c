/* The columns of the training data in the file of a model: names, types, means and dictionaries, so that predict and evaluate accept
 * raw tables.
 *
 * Attributes table_columns (how many), table_header, table_hash (keys of all categories; 0: they have dictionaries), table_crosses
 * (the last columns are of others: five numbers of each in /table_crossed, how many and which); texts /table_names, /table_labels and
 * /table_missing; of each column /table_types (as in data/schema.h), /table_flags (1: some numbers are missing, 2: the dictionary
 * leaves some values out, 4: the column is raw), /table_means and /table_values (of its dictionary). Values of all dictionaries
 * follow each other: value i is bytes begin[i] .. begin[i + 1] - 1 of /dictionary_text.
 */
#include "class/saved_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dictionary.h"
#include "data/names.h"
#include "data/value.h"

/* ---- writing ---- */

static int put_texts(struct tr_h5_writer *w, const char *name, const char *count, const struct tr_ids *texts)
{
    size_t longest = 1, n;
    char *padded;
    TR_TRY(tr_h5_put_count(w, count, texts->n));
    if (texts->n == 0) return TR_OK;
    for (size_t i = 0; i < texts->n; i++) {
        (void)tr_ids_text(texts, i, &n);
        longest = tr_max_size(longest, n);
    }
    TR_TRY(tr_h5_begin_texts(w, name, texts->n, longest));
    TR_TRY(TR_NEW(&padded, longest));
    int status = TR_OK;
    for (size_t i = 0; i < texts->n && status == TR_OK; i++) {
        const char *text = tr_ids_text(texts, i, &n);
        memset(padded, 0, longest);
        memcpy(padded, text, n);
        status = tr_h5_append(w, padded, 1);
    }
    free(padded);
    return status;
}

struct row {
    uint8_t *type, *flags;
    double *mean;
    uint64_t *values;
};

static int open_row(struct row *r, size_t n)
{
    *r = (struct row){.type = NULL};
    TR_TRY(TR_NEW(&r->type, n));
    TR_TRY(TR_NEW(&r->flags, n));
    TR_TRY(TR_NEW(&r->mean, n));
    return TR_NEW(&r->values, n);
}

static void close_row(struct row *r)
{
    free(r->type);
    free(r->flags);
    free(r->mean);
    free(r->values);
}

static int put_row(struct tr_h5_writer *w, const struct tr_schema *s, struct row *r)
{
    for (size_t c = 0; c < s->n; c++) {
        const struct tr_column *column = &s->column[c];
        r->type[c] = column->type;
        r->flags[c] = (uint8_t)(column->missing | column->others << 1 | column->raw << 2);
        r->mean[c] = column->mean;
        r->values[c] = column->values;
    }
    TR_TRY(tr_h5_put(w, "table_types", TR_H5_U8, s->n, 0, r->type));
    TR_TRY(tr_h5_put(w, "table_flags", TR_H5_U8, s->n, 0, r->flags));
    TR_TRY(tr_h5_put(w, "table_means", TR_H5_F64, s->n, 0, r->mean));
    return tr_h5_put(w, "table_values", TR_H5_U64, s->n, 0, r->values);
}

static int put_columns(struct tr_h5_writer *w, const struct tr_schema *s)
{
    struct row r;
    TR_TRY(put_texts(w, "table_names", "table_columns", &s->names));
    TR_TRY(tr_h5_put_count(w, "table_header", s->named));
    TR_TRY(put_texts(w, "table_labels", "table_label_names", &s->labels));
    TR_TRY(put_texts(w, "table_missing", "table_missing_words", &s->missing));
    TR_TRY(tr_h5_put_count(w, "table_one_positive", s->positive != NULL));
    TR_TRY(tr_h5_put_count(w, "table_hash", s->hash));
    TR_TRY(tr_h5_put_count(w, "table_crosses", s->crosses));
    if (s->crosses > 0)
        TR_TRY(tr_h5_put(w, "table_crossed", TR_H5_U32, s->crosses, 1 + TR_CROSS_MOST, s->cross));
    int status = open_row(&r, s->n);
    if (status == TR_OK) status = put_row(w, s, &r);
    close_row(&r);
    return status;
}

/* Writes values in pieces, as they arrive. */
struct values_writer {
    struct tr_h5_writer *w;
    uint64_t bytes;
};

static int write_begins(void *state, const tr_names_piece *piece)
{
    struct values_writer *v = state;
    uint64_t *end;
    TR_TRY(TR_NEW(&end, piece->n));
    for (size_t i = 0; i < piece->n; i++) end[i] = v->bytes += piece->begin[i + 1] - piece->begin[i];
    int status = tr_h5_append(v->w, end, piece->n);
    free(end);
    return status;
}

static int write_text(void *state, const tr_names_piece *piece)
{
    struct values_writer *v = state;
    return tr_h5_append(v->w, piece->text + piece->begin[0],
                        (size_t)(piece->begin[piece->n] - piece->begin[0]));
}

static int put_values(tr_context *tr, const tr_names *names, struct tr_h5_writer *w)
{
    struct values_writer v = {.w = w};
    int status = w ? tr_h5_begin(w, "dictionary_begin", TR_H5_U64, tr_names_count(names) + 1, 0) : TR_OK;
    if (status == TR_OK && w) status = tr_h5_append(w, &v.bytes, 1);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_names_each(names, write_begins, &v));
    status = w ? tr_h5_begin(w, "dictionary_text", TR_H5_U8, v.bytes + 1, 0) : TR_OK;
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_names_each(names, write_text, &v));
    return tr_agree(tr, w ? tr_h5_append(w, "", 1) : TR_OK);
}

int tr_saved_schema_write(tr_context *tr, const struct tr_schema *s, struct tr_h5_writer *w)
{
    if (!s) return TR_OK;
    TR_TRY(tr_agree(tr, w ? put_columns(w, s) : TR_OK));
    return s->dictionary ? put_values(tr, tr_dictionary_names(s->dictionary), w) : TR_OK;
}

/* ---- reading ---- */

static int damaged(void)
{
    return tr_fail(TR_ERR_DATA, "model.h5: damaged: invalid description of the columns");
}

static int get_texts(struct tr_h5_reader *r, const char *name, const char *count, struct tr_ids *texts)
{
    uint64_t n;
    char *text;
    size_t width;
    uint32_t place;
    TR_TRY(tr_h5_get_count(r, count, &n));
    if (n == 0) return TR_OK;
    TR_TRY(tr_h5_get_texts(r, name, n, &text, &width));
    int status = TR_OK;
    for (size_t i = 0; i < n && status == TR_OK; i++) {
        status = tr_ids_add_text(texts, text + i * width, strlen(text + i * width), &place);
        if (status == TR_OK && place != i) status = damaged();
    }
    free(text);
    return status;
}

static int get_row(struct tr_h5_reader *r, struct tr_schema *s)
{
    struct row row = {.type = NULL};
    int status = tr_h5_get(r, "table_types", TR_H5_U8, s->n, 0, &row.type);
    if (status == TR_OK) status = tr_h5_get(r, "table_flags", TR_H5_U8, s->n, 0, &row.flags);
    if (status == TR_OK) status = tr_h5_get(r, "table_means", TR_H5_F64, s->n, 0, &row.mean);
    if (status == TR_OK) status = tr_h5_get(r, "table_values", TR_H5_U64, s->n, 0, &row.values);
    for (size_t c = 0; c < s->n && status == TR_OK; c++) {
        if (row.type[c] >= TR_COLUMN_TYPES || row.values[c] >= UINT32_MAX) status = damaged();
        s->column[c] = (struct tr_column){.type = row.type[c],
                                          .fixed = true,
                                          .missing = row.flags[c] & 1,
                                          .others = row.flags[c] >> 1 & 1,
                                          .raw = row.flags[c] >> 2 & 1,
                                          .mean = row.mean[c],
                                          .values = (uint32_t)row.values[c]};
        if (s->column[c].raw != s->column[0].raw) status = damaged(); /* all columns are raw, or none */
        if (row.type[c] != TR_COLUMN_LABEL && row.type[c] != TR_COLUMN_NAMED_LABEL) continue;
        if (s->label < s->n) status = damaged(); /* a label column exists */
        s->label = c;
    }
    close_row(&row);
    return status;
}

/* Adds a value in its canonical form (data/value.h). Files of older versions may contain a number in two forms: the second one is
 * never found. */
static int add_value(struct tr_ids *texts, const char *text, size_t n, uint32_t *place)
{
    char room[TR_VALUE_ROOM];
    double number;
    text = tr_value_text(text, &n, room);
    bool twice = tr_value_is_number(text, n, &number) && tr_ids_find_text(texts, text, n) != UINT32_MAX;
    return twice ? tr_ids_append_text(texts, text, n, place) : tr_ids_add_text(texts, text, n, place);
}

/* Splits the values by column. */
static int split_values(struct tr_schema *s, const uint64_t *begin, uint64_t n, const char *text,
                        uint64_t bytes)
{
    uint64_t at = 0;
    uint32_t place;
    for (size_t c = 0; c < s->n; c++)
        for (uint64_t k = 0; k < s->column[c].values; k++, at++) {
            if (at >= n || begin[at] > begin[at + 1] || begin[at + 1] > bytes) return damaged();
            TR_TRY(add_value(&s->values[c], text + begin[at], (size_t)(begin[at + 1] - begin[at]), &place));
            if (place != k) return damaged();
        }
    return at == n ? TR_OK : damaged();
}

static int get_values(struct tr_h5_reader *r, struct tr_schema *s)
{
    uint64_t n = 0, *begin = NULL;
    char *text = NULL;
    TR_TRY(TR_NEW(&s->values, s->n));
    for (size_t c = 0; c < s->n; c++) {
        s->values[c].are_text = true;
        n += s->column[c].values;
    }
    if (!tr_h5_has(r, "dictionary_begin")) return n == 0 ? TR_OK : damaged();
    int status = tr_h5_get(r, "dictionary_begin", TR_H5_U64, n + 1, 0, &begin);
    if (status == TR_OK) status = tr_h5_get(r, "dictionary_text", TR_H5_U8, begin[n] + 1, 0, &text);
    if (status == TR_OK) status = split_values(s, begin, n, text, begin[n]);
    free(begin);
    free(text);
    return status;
}

static int get_crosses(struct tr_h5_reader *r, struct tr_schema *s)
{
    uint64_t n;
    if (!tr_h5_has(r, "table_crossed")) return TR_OK;
    TR_TRY(tr_h5_get_count(r, "table_crosses", &n));
    TR_TRY(tr_h5_get(r, "table_crossed", TR_H5_U32, n, 1 + TR_CROSS_MOST, &s->cross));
    s->crosses = (size_t)n;
    if (n >= s->n) return damaged();
    for (size_t i = 0; i < n; i++) {
        const struct tr_cross *cross = &s->cross[i];
        if (cross->n > TR_CROSS_MOST || s->column[tr_schema_fields(s) + i].type != TR_COLUMN_CATEGORY)
            return damaged();
        for (size_t k = 0; k < cross->n; k++)
            if (cross->column[k] >= tr_schema_fields(s)) return damaged();
    }
    return TR_OK;
}

static int read_schema(struct tr_h5_reader *r, struct tr_schema *s)
{
    uint64_t named, positive;
    TR_TRY(get_texts(r, "table_names", "table_columns", &s->names));
    s->n = s->label = s->names.n;
    TR_TRY(TR_NEW(&s->column, s->n));
    TR_TRY(tr_h5_get_count(r, "table_header", &named));
    s->named = named;
    TR_TRY(get_texts(r, "table_labels", "table_label_names", &s->labels));
    TR_TRY(get_texts(r, "table_missing", "table_missing_words", &s->missing));
    TR_TRY(tr_h5_get_count(r, "table_one_positive", &positive));
    TR_TRY(get_row(r, s));
    TR_TRY(get_crosses(r, s));
    if (tr_h5_has(r, "table_hash")) TR_TRY(tr_h5_get_count(r, "table_hash", &s->hash));
    if (s->hash >= UINT32_MAX) return damaged();
    if (positive && s->labels.n != 2) return damaged();
    if (positive) {
        size_t n;
        const char *text = tr_ids_text(&s->labels, 1, &n);
        TR_TRY(TR_NEW(&s->positive, n + 1));
        memcpy(s->positive, text, n);
    }
    TR_TRY(get_values(r, s));
    return tr_schema_number(s);
}

int tr_saved_schema_read(struct tr_h5_reader *r, struct tr_schema **schema)
{
    *schema = NULL;
    if (!tr_h5_has(r, "table_names")) return TR_OK;
    TR_TRY(tr_schema_new(schema));
    int status = read_schema(r, *schema);
    if (status != TR_OK) tr_schema_release(schema);
    return status;
}

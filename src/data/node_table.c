#define _GNU_SOURCE
#include "data/node_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/number.h"
#include "data/schema_all.h"

/* ---- the words of a node ---- */

enum { MOST_BYTES = 256 << 20 }; /* of all columns, on each rank */

/* Whether the slots of a column, or its labels, are places of words. */
static bool has_words(const struct tr_schema *s, size_t c)
{
    bool named = s->column[c].type == TR_COLUMN_NAMED_LABEL && !s->positive; /* otherwise 0 and 1 */
    return named || s->column[c].type == TR_COLUMN_CATEGORY;
}

static uint64_t bytes_of(const struct tr_ids *words)
{
    return words->n > 0 ? words->begin[words->n] : 0;
}

static int check_room(const tr_data *data, const struct tr_column_seen *seen)
{
    const struct tr_schema *s = data->state->schema;
    uint64_t bytes = 0;
    for (size_t c = 0; c < s->n; c++) bytes += bytes_of(&seen[c].values) + 32 * seen[c].values.n;
    TR_TRY(tr_all_reduce(data->state->tr, TR_SET_GROUP, TR_SUM, TR_I64, &bytes, 1));
    return bytes <= MOST_BYTES ? TR_OK
                               : tr_fail(TR_ERR_SYSTEM, "the words in them may need %.1f MB on each rank",
                                         (double)bytes / 1e6);
}

static int gather_words(tr_context *tr, const struct tr_ids *mine, struct tr_ids *all)
{
    uint32_t *length = NULL, *lengths = NULL, place;
    char *texts = NULL;
    uint64_t n = 0, bytes = 0, at = 0;
    TR_TRY(TR_NEW(&length, mine->n));
    for (size_t i = 0; i < mine->n; i++) length[i] = (uint32_t)(mine->begin[i + 1] - mine->begin[i]);
    int status = tr_gather_to_all(tr, TR_SET_GROUP, length, mine->n, sizeof *length, (void **)&lengths, &n);
    if (status == TR_OK)
        status = tr_gather_to_all(tr, TR_SET_GROUP, mine->text, bytes_of(mine), 1, (void **)&texts, &bytes);
    for (uint64_t i = 0; i < n && status == TR_OK; at += lengths[i++])
        status = tr_ids_add_text(all, texts + at, lengths[i], &place);
    free(length);
    free(lengths);
    free(texts);
    return status;
}

/* From places among this rank's words to those among all. */
static int renumber(tr_data *data, size_t c, const struct tr_ids *mine, const struct tr_ids *all)
{
    const struct tr_column *column = &data->state->schema->column[c];
    struct tr_matrix *m = &data->state->rows;
    uint32_t *number;
    TR_TRY(TR_NEW(&number, mine->n));
    for (size_t i = 0; i < mine->n; i++) {
        size_t n;
        const char *text = tr_ids_text(mine, i, &n);
        number[i] = tr_ids_find_text(all, text, n);
    }
    bool label = column->type == TR_COLUMN_NAMED_LABEL;
    for (size_t i = 0; i < m->rows; i++) {
        float *slot = label ? &m->label[i] : &m->value[i * m->columns + column->slot];
        *slot = label ? (float)number[(size_t)*slot] : tr_slot_of_place(number[tr_slot_place(*slot)]);
    }
    free(number);
    return TR_OK;
}

int tr_node_table_unite(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    TR_TRY(check_room(data, part->seen));
    for (size_t c = 0; c < s->schema->n; c++) {
        struct tr_ids *mine = &part->seen[c].values, all = {.are_text = true};
        if (!has_words(s->schema, c)) continue;
        int status = gather_words(s->tr, mine, &all);
        if (status == TR_OK) status = renumber(data, c, mine, &all);
        tr_ids_free(mine);
        *mine = all;
        TR_TRY(status);
    }
    s->words = part->seen;
    part->seen = NULL;
    return TR_OK;
}

/* ---- taking rows ---- */

#define NOT_YET (TR_NO_VALUE - 1) /* nobody has asked where the word is among the reader's */

struct tr_node_table {
    const struct tr_data_state *node;
    struct tr_reader *r;
    size_t *column, columns; /* those of words */
    uint32_t **place;        /* of each of them, and each word: as the reader has it */
};

int tr_node_table_open(const struct tr_data_state *node, struct tr_reader *r, struct tr_node_table **table)
{
    const struct tr_schema *s = node->schema;
    struct tr_node_table *t;
    TR_TRY(TR_NEW(&t, 1));
    *table = t;
    t->node = node;
    t->r = r;
    TR_TRY(TR_NEW(&t->column, s->n));
    TR_TRY(TR_NEW(&t->place, s->n));
    for (size_t c = 0; c < s->n; c++) {
        uint32_t **place = &t->place[t->columns];
        if (!has_words(s, c)) continue;
        TR_TRY(TR_NEW(place, node->words[c].values.n));
        for (size_t i = 0; i < node->words[c].values.n; i++) (*place)[i] = NOT_YET;
        t->column[t->columns++] = c;
    }
    return TR_OK;
}

void tr_node_table_close(struct tr_node_table **table)
{
    struct tr_node_table *t = *table;
    if (!t) return;
    for (size_t k = 0; t->place && k < t->node->schema->n; k++) free(t->place[k]);
    free(t->place);
    free(t->column);
    free(t);
    *table = NULL;
}

static int refuse(const struct tr_reader *r, size_t c, const char *text, size_t n, const char *what)
{
    char name[TR_SHOWN_NAME], problem[256];
    const struct tr_file_place place = {r->file, r->offset};
    tr_schema_column_text(r->options->schema, c, name);
    snprintf(problem, sizeof problem, "column %s: '%.*s' %s", name, (int)tr_min_size(n, 32), text, what);
    return tr_place_fail(r->files, &place, problem);
}

/* A word in a column that this reader takes for one of numbers: other rows than his have one that is none. */
static int take_number(const struct tr_node_table *t, size_t c, const char *text, size_t n, float *to)
{
    const struct tr_reader_options *o = t->r->options;
    struct tr_column_seen *seen = &o->seen[c];
    char number[64];
    seen->missing = seen->missing || n == 0;
    *to = NAN;
    if (n == 0) return TR_OK;
    if (n < sizeof number) {
        memcpy(number, text, n);
        number[n] = '\n';
        const char *end = tr_read_float(number, to);
        if (end == number + n && isfinite(*to)) return TR_OK;
    }
    if (o->settled) return refuse(t->r, c, text, n, "is not a number");
    *to = 0;
    if (seen->word) return TR_OK;
    seen->word = true;
    seen->place = (struct tr_file_place){t->r->file, t->r->offset};
    snprintf(seen->text, sizeof seen->text, "%.*s", (int)n, text);
    return TR_OK;
}

/* Of the k-th column of words. */
static int take_word(struct tr_node_table *t, size_t k, float *to)
{
    const struct tr_schema *s = t->r->options->schema;
    size_t c = t->column[k];
    bool label = t->node->schema->column[c].type == TR_COLUMN_NAMED_LABEL;
    size_t n, word = label ? (size_t)*to : tr_slot_place(*to);
    uint32_t *place = &t->place[k][word];
    const char *text = tr_ids_text(&t->node->words[c].values, word, &n);
    if (s->column[c].type == TR_COLUMN_NUMBER || s->column[c].type == TR_COLUMN_LABEL)
        return take_number(t, c, text, n, to);
    if (*place == NOT_YET) TR_TRY(tr_csv_find_value(t->r, c, text, n, place));
    if (label && *place == TR_NO_VALUE) return refuse(t->r, c, text, n, "is no label of the training data");
    *to = label ? (float)*place : tr_slot_of_place(*place);
    return TR_OK;
}

static void note_missing(const struct tr_node_table *t, const float *row)
{
    const struct tr_schema *s = t->node->schema;
    for (size_t c = 0; c < s->n; c++)
        if (s->column[c].type == TR_COLUMN_NUMBER && isnan(row[s->column[c].slot]))
            t->r->options->seen[c].missing = true;
}

int tr_node_table_take(struct tr_node_table *t, size_t at, float *row, float *label)
{
    const struct tr_matrix *m = &t->node->rows;
    const struct tr_schema *s = t->node->schema;
    memcpy(row, m->value + at * m->columns, m->columns * sizeof *row);
    *label = m->label ? m->label[at] : NAN;
    if (!tr_are_finite(row, m->columns)) note_missing(t, row);
    for (size_t k = 0; k < t->columns; k++) {
        const struct tr_column *column = &s->column[t->column[k]];
        bool is_label = column->type == TR_COLUMN_NAMED_LABEL;
        TR_TRY(take_word(t, k, is_label ? label : &row[column->slot]));
    }
    return TR_OK;
}

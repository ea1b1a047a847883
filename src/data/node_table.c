#define _GNU_SOURCE
#include "data/node_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/number.h"

/* ---- the words of a node ---- */

enum { MOST_BYTES = 256 << 20 }; /* of all columns, on each rank */

/* Whether the slots of a column, or its labels, are places of words. */
static bool has_words(const struct tr_schema *s, size_t c)
{
    bool named = s->column[c].type == TR_COLUMN_NAMED_LABEL && !s->positive; /* otherwise 0 and 1 */
    return named || s->column[c].type == TR_COLUMN_CATEGORY;
}

static int check_room(tr_context *tr, const struct tr_ids *const words[], size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes +=
            32 * words[i]->n + (words[i]->are_text && words[i]->n > 0 ? words[i]->begin[words[i]->n] : 0);
    TR_TRY(tr_all_reduce(tr, TR_SET_GROUP, TR_SUM, TR_I64, &bytes, 1));
    return bytes <= MOST_BYTES ? TR_OK
                               : tr_fail(TR_ERR_SYSTEM, "the words in them may need %.1f MB on each rank",
                                         (double)bytes / 1e6);
}

static int add(struct tr_ids *ids, const struct tr_ids *from, size_t i, uint32_t *place)
{
    size_t n;
    if (!from->are_text) return tr_ids_add_number(ids, from->number[i], place);
    const char *text = tr_ids_text(from, i, &n);
    return tr_ids_add_text(ids, text, n, place);
}

/* What all have met; and, from places among what this rank has, those among all (to be freed). */
static int unite(tr_context *tr, const struct tr_ids *mine, struct tr_ids *all, uint32_t **number)
{
    struct tr_ids met;
    uint32_t place;
    *all = (struct tr_ids){.are_text = mine->are_text};
    TR_TRY(TR_NEW(number, mine->n));
    int status = tr_ids_gather(tr, TR_SET_GROUP, mine, &met);
    for (size_t i = 0; i < met.n && status == TR_OK; i++) status = add(all, &met, i, &place);
    for (size_t i = 0; i < mine->n && status == TR_OK; i++) status = add(all, mine, i, &(*number)[i]);
    tr_ids_free(&met);
    return status;
}

static int unite_column(tr_data *data, size_t c, const struct tr_ids *mine)
{
    struct tr_data_state *s = data->state;
    const struct tr_column *column = &s->schema->column[c];
    struct tr_matrix *m = &s->rows;
    uint32_t *number = NULL;
    bool label = column->type == TR_COLUMN_NAMED_LABEL;
    int status = unite(s->tr, mine, &s->words[c], &number);
    for (size_t i = 0; i < m->rows && status == TR_OK; i++) {
        float *slot = label ? &m->label[i] : &m->value[i * m->columns + column->slot];
        *slot = label ? (float)number[(size_t)*slot] : tr_slot_of_place(number[tr_slot_place(*slot)]);
    }
    free(number);
    return status;
}

static int open_words(struct tr_data_state *s, const struct tr_ids *const mine[], size_t n)
{
    TR_TRY(check_room(s->tr, mine, n));
    TR_TRY(TR_NEW(&s->words, n));
    s->word_lists = n;
    return TR_OK;
}

int tr_node_table_unite(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    const struct tr_ids **mine;
    TR_TRY(TR_NEW(&mine, s->schema->n));
    for (size_t c = 0; c < s->schema->n; c++) mine[c] = &part->seen[c].values;
    int status = open_words(s, mine, s->schema->n);
    for (size_t c = 0; c < s->schema->n && status == TR_OK; c++)
        if (has_words(s->schema, c)) status = unite_column(data, c, mine[c]);
    free(mine);
    return status;
}

static int unite_ids(tr_data *data, struct tr_triples *t)
{
    struct tr_data_state *s = data->state;
    const struct tr_ids *mine[] = {&t->rows, &t->columns};
    uint32_t *number[] = {NULL, NULL};
    TR_TRY(open_words(s, mine, 2));
    int status = TR_OK;
    for (int k = 0; k < 2 && status == TR_OK; k++) status = unite(s->tr, mine[k], &s->words[k], &number[k]);
    for (size_t i = 0; i < t->n && status == TR_OK; i++) {
        t->triple[i].row = number[0][t->triple[i].row];
        t->triple[i].column = number[1][t->triple[i].column];
    }
    free(number[0]);
    free(number[1]);
    return status;
}

int tr_node_triples_unite(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    struct tr_triples *t = &part->triples;
    t->rows.are_text = part->text_rows;
    t->columns.are_text = part->text_columns;
    if (data->format == TR_FORMAT_RATINGS) TR_TRY(unite_ids(data, t));
    s->full = true;
    data->columns = sizeof *t->triple / sizeof(float);
    data->total_rows = data->total_nonzeros = part->report.rows;
    TR_TRY(tr_all_reduce(s->tr, TR_SET_GROUP, TR_SUM, TR_I64, &data->total_rows, 1));
    s->rows = (struct tr_matrix){
        .rows = t->n, .columns = (size_t)data->columns, .value = (float *)(void *)t->triple};
    t->triple = NULL;
    TR_TRY(tr_number_rows(data, &part->runs));
    return tr_data_shares(s->tr) ? TR_OK : tr_part_take_keys(data, NULL, (size_t)data->columns);
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
    struct tr_node_table *t;
    TR_TRY(TR_NEW(&t, 1));
    *table = t;
    t->node = node;
    t->r = r;
    TR_TRY(TR_NEW(&t->column, node->word_lists));
    TR_TRY(TR_NEW(&t->place, node->word_lists));
    for (size_t c = 0; c < node->word_lists; c++) {
        uint32_t **place = &t->place[t->columns];
        if (node->schema && !has_words(node->schema, c)) continue;
        TR_TRY(TR_NEW(place, node->words[c].n));
        for (size_t i = 0; i < node->words[c].n; i++) (*place)[i] = NOT_YET;
        t->column[t->columns++] = c;
    }
    return TR_OK;
}

void tr_node_table_close(struct tr_node_table **table)
{
    struct tr_node_table *t = *table;
    if (!t) return;
    for (size_t k = 0; t->place && k < t->columns; k++) free(t->place[k]);
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
    const char *text = tr_ids_text(&t->node->words[c], word, &n);
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

/* ---- records ---- */

struct tr_triple tr_node_triple(const struct tr_data_state *node, size_t at)
{
    struct tr_triple triple;
    memcpy(&triple, node->rows.value + at * node->rows.columns, sizeof triple);
    return triple;
}

/* A user (k 0) or an item (1): its place among those that the reader has met. *is_text: it is no number, and he has numbers. */
static int take_id(struct tr_node_table *t, int k, uint32_t *id, bool *is_text)
{
    const struct tr_ids *words = &t->node->words[k];
    struct tr_ids *ids = k == 0 ? &t->r->triples.rows : &t->r->triples.columns;
    uint32_t *place = &t->place[k][*id];
    uint64_t number = 0;
    char digits[24];
    size_t n = 0;
    const char *text = words->are_text ? tr_ids_text(words, *id, &n) : digits;
    if (!words->are_text) number = words->number[*id];
    if (!words->are_text) n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    *is_text = !ids->are_text && words->are_text && !tr_id_number(text, n, &number);
    if (*is_text) return TR_OK;
    if (*place == NOT_YET)
        TR_TRY(ids->are_text ? tr_ids_add_text(ids, text, n, place) : tr_ids_add_number(ids, number, place));
    *id = *place;
    return TR_OK;
}

static int refuse_id(struct tr_node_table *t, const char *what)
{
    const struct tr_file_place place = {t->r->file, t->r->offset};
    char problem[96];
    snprintf(problem, sizeof problem, "the %s is no whole number, as those of the training data are", what);
    if (!t->r->options->skip_errors) return tr_place_fail(t->r->files, &place, problem);
    t->r->report.skipped++;
    return TR_OK;
}

int tr_node_triple_take(struct tr_node_table *t, size_t at, struct tr_triple *triple, bool *taken)
{
    const struct tr_reader_options *o = t->r->options;
    bool text[2] = {false, false};
    *triple = tr_node_triple(t->node, at);
    *taken = true;
    if (o->format != TR_FORMAT_RATINGS) return TR_OK;
    TR_TRY(take_id(t, 0, &triple->row, &text[0]));
    *taken = !text[0];
    if (text[0] && o->known_rows) return refuse_id(t, "user");
    TR_TRY(take_id(t, 1, &triple->column, &text[1]));
    *taken = !text[0] && !text[1];
    if (text[1] && o->known_columns) return refuse_id(t, "item");
    t->r->report.text_rows |= text[0];
    t->r->report.text_columns |= text[1];
    return TR_OK;
}

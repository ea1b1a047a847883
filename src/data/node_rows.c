#define _GNU_SOURCE
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"
#include "data/field.h"

/* ---- the rows of a node ---- */

static void node_rows_free(struct tr_node_rows *rows)
{
    if (rows->test) tr_data_close(&rows->test);
    if (rows->train) tr_data_close(&rows->train);
    free(rows->train_key);
    free(rows->test_key);
    rows->train_key = rows->test_key = NULL;
}

static int node_rows_open_files(tr_context *node, int part, const tr_data *like, tr_data **data, char **key)
{
    TR_TRY(tr_data_open(node, (enum tr_data_part)(part | TR_DATA_RAW | TR_DATA_NODE), like, data));
    return tr_agree(node, tr_store_rows_key(node->job, &(*data)->state->files, key));
}

int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows)
{
    int status = node_rows_open_files(node, TR_DATA_TRAIN, NULL, &rows->train, &rows->train_key);
    if (status == TR_OK && node->job->data.test.n > 0)
        status = node_rows_open_files(node, TR_DATA_TEST, rows->train, &rows->test, &rows->test_key);
    if (status != TR_OK) {
        node_rows_free(rows);
        return status;
    }
    rows->next = world->node_rows;
    world->node_rows = rows;
    return TR_OK;
}

void tr_node_rows_close(tr_context *world, struct tr_node_rows *rows)
{
    struct tr_node_rows **at = &world->node_rows;
    while (*at && *at != rows) at = &(*at)->next;
    if (*at) *at = rows->next;
    node_rows_free(rows);
}

void tr_node_rows_forget(struct tr_node_rows *rows)
{
    if (rows->forgotten) return;
    rows->forgotten = true;
    tr_data_forget(rows->train);
    if (rows->test) tr_data_forget(rows->test);
}

/* Returns whether the data set is read from the files of data.test. */
static bool has_test_files(const struct tr_data_state *s)
{
    return s->test && s->held_out.to == 0;
}

const struct tr_node_rows *tr_node_rows_find(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    TR_FREED char *key = NULL;
    bool never = s->on_disk || s->cached || s->form & TR_DATA_NODE;
    if (never || !s->tr->node_rows || tr_store_rows_key(s->tr->job, &s->files, &key) != TR_OK) return NULL;
    for (const struct tr_node_rows *r = s->tr->node_rows; r; r = r->next) {
        const char *has = has_test_files(s) ? r->test_key : r->train_key;
        if (!r->forgotten && has && strcmp(has, key) == 0 && r->train->format == data->format) return r;
    }
    return NULL;
}

/* ---- the words of a node ---- */

enum { MOST_BYTES = 256 << 20 }; /* maximum of the bytes that all words take on each rank */

/* Returns whether the slots of a column, or its labels, are places of words. */
static bool column_has_words(const struct tr_schema *s, size_t c)
{
    /* with data.positive a label is 0 or 1, not the place of a word */
    bool named = s->column[c].type == TR_COLUMN_NAMED_LABEL && !s->positive;
    return named || s->column[c].type == TR_COLUMN_CATEGORY;
}

static int words_open(struct tr_data_state *s, const struct tr_ids *const mine[], size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += 32 * mine[i]->n + (mine[i]->are_text && mine[i]->n > 0 ? mine[i]->begin[mine[i]->n] : 0);
    TR_TRY(tr_all_reduce(s->tr, TR_SET_GROUP, TR_SUM, TR_I64, &bytes, 1));
    if (bytes > MOST_BYTES)
        return tr_fail(TR_ERR_SYSTEM, "the words in them may need %.1f MB on each rank", (double)bytes / 1e6);
    TR_TRY(TR_NEW(&s->words, n));
    s->word_lists = n;
    return TR_OK;
}

/* Computes the union of the words of all ranks and, for each word of this rank, its index in the union (*number, to be freed). */
static int words_unite(tr_context *tr, const struct tr_ids *mine, struct tr_ids *all, uint32_t **number)
{
    TR_CLOSED_BY(tr_ids_free) struct tr_ids met = {.n = 0};
    *all = (struct tr_ids){.are_text = mine->are_text};
    TR_TRY(TR_NEW(number, mine->n));
    TR_TRY(tr_ids_gather(tr, TR_SET_GROUP, mine, &met));
    /* `met` has the words of all ranks in the order of ranks; then the words of this rank are looked up */
    for (size_t i = 0; i < met.n + mine->n; i++) {
        bool own = i >= met.n;
        const struct tr_ids *from = own ? mine : &met;
        size_t k = own ? i - met.n : i, n = 0;
        uint32_t ignored, *to = own ? &(*number)[k] : &ignored;
        const char *text = from->are_text ? tr_ids_text(from, k, &n) : NULL;
        TR_TRY(text ? tr_ids_add_text(all, text, n, to) : tr_ids_add_number(all, from->number[k], to));
    }
    return TR_OK;
}

int tr_node_rows_unite_words(tr_data *data, const struct tr_column_seen *seen)
{
    struct tr_data_state *s = data->state;
    const struct tr_schema *schema = s->schema;
    struct tr_matrix *m = &s->rows;
    TR_FREED const struct tr_ids **mine = NULL;
    TR_TRY(TR_NEW(&mine, schema->n));
    for (size_t c = 0; c < schema->n; c++) mine[c] = &seen[c].values;
    TR_TRY(words_open(s, mine, schema->n));
    for (size_t c = 0; c < schema->n; c++) {
        TR_FREED uint32_t *number = NULL;
        bool label = schema->column[c].type == TR_COLUMN_NAMED_LABEL;
        if (!column_has_words(schema, c)) continue;
        TR_TRY(words_unite(s->tr, mine[c], &s->words[c], &number));
        for (size_t i = 0; i < m->rows; i++) {
            float *slot = label ? &m->label[i] : &m->value[i * m->columns + schema->column[c].slot];
            *slot = label ? (float)number[(size_t)*slot] : tr_slot_of_place(number[tr_slot_place(*slot)]);
        }
    }
    return TR_OK;
}

int tr_node_rows_unite_ids(tr_data *data, struct tr_triples *t)
{
    struct tr_data_state *s = data->state;
    const struct tr_ids *mine[] = {&t->rows, &t->columns};
    TR_TRY(words_open(s, mine, 2));
    for (int k = 0; k < 2; k++) {
        TR_FREED uint32_t *number = NULL;
        TR_TRY(words_unite(s->tr, mine[k], &s->words[k], &number));
        tr_triples_map(t, k, number);
    }
    return TR_OK;
}

/* ---- a reader of a node's rows ---- */

#define NOT_YET (TR_NO_VALUE - 1) /* marks a word whose number for the reader was not looked up yet */

/* Copies the rows that reader r would read from the files. */
struct node_reader {
    const struct tr_data_state *s; /* state of the data set with all rows of the node */
    size_t all;                    /* number of rows of the node */
    struct tr_reader r;
    bool hdf5; /* files are HDF5, so offsets are indices of rows */
    /* hdf5 with held-out rows: the current file, whose array origin decides which rows are held out; otherwise NULL */
    struct tr_hdf5 *table;
    size_t *row; /* indices of the n rows to copy */
    size_t n, capacity;
    uint64_t *piece; /* piece[f]: bytes of a piece of the text of file f, see input.h; 0: it has no pieces */
    size_t *word_column, word_columns; /* the columns with words, see column_has_words() */
    uint32_t **word; /* word[k][place of a word in the node's list]: its number for the reader, or NOT_YET */
};

/* ---- indices of rows: in the order in which the node has read them; numbers of rows: in the order of the files ---- */

static size_t position_of(const struct node_reader *t, size_t number)
{
    const struct tr_stretch *stretch = t->s->stretch;
    size_t low = 0, high = t->s->stretches;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (stretch[middle].first <= number) low = middle;
        else high = middle;
    }
    return stretch[low].at + (number - (size_t)stretch[low].first);
}

/* Returns the number of the first row whose origin is not below `place`. */
static size_t first_number_from(const struct node_reader *t, uint64_t place)
{
    size_t low = 0, high = t->all;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->s->row_number[position_of(t, middle)] < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct tr_triple triple_at(const struct tr_data_state *node, size_t at)
{
    struct tr_triple triple;
    memcpy(&triple, node->rows.value + at * node->rows.columns, sizeof triple);
    return triple;
}

/* ---- which rows a reader gets ---- */

static uint64_t node_id_mark(const struct tr_ids *words, uint32_t id)
{
    size_t n;
    if (!words->are_text) return words->number[id];
    const char *text = tr_ids_text(words, id, &n);
    return tr_split_id_mark(text, n);
}

/* Returns the mark of a row (split.h). */
static uint64_t node_mark(const struct node_reader *t, size_t at)
{
    const struct tr_data_state *s = t->s;
    const struct tr_schema *schema = s->schema;
    size_t n;
    if (t->r.options->split.by == TR_SPLIT_PAIR) {
        struct tr_triple triple = triple_at(s, at);
        return tr_split_pair_mark(node_id_mark(&s->words[0], triple.row),
                                  node_id_mark(&s->words[1], triple.column));
    }
    if (t->r.options->split.by != TR_SPLIT_LABEL) return s->row_mark ? s->row_mark[at] : 0;
    float label = s->rows.label[at];
    if (!schema || !column_has_words(schema, schema->label)) return tr_split_number_mark(label);
    const char *text = tr_ids_text(&s->words[schema->label], (size_t)label, &n);
    return tr_csv_label_mark(schema, text, n);
}

/* Chooses the rows of one range of a file, except held-out rows. HDF5: whether a row is held out depends on its origin, which is
 * read from the file. */
static int choose_range(struct node_reader *t, size_t file, uint64_t begin, uint64_t end)
{
    const struct tr_reader_options *o = t->r.options;
    uint64_t base = tr_origin(file, 0);
    size_t first = first_number_from(t, base + begin), last = first_number_from(t, base + end), before = t->n;
    t->r.file = file;
    t->r.documents = tr_docword_base(t->r.files, o->heads, file);
    if (t->table) TR_TRY(tr_hdf5_read_origins(t->table, &t->r, begin, (size_t)(end - begin)));
    TR_TRY(TR_GROW(&t->row, &t->capacity, t->n + (last - first)));
    for (size_t number = first; number < last; number++) {
        size_t at = position_of(t, number);
        uint64_t place = t->s->row_number[at] - base;
        if (o->format == TR_FORMAT_DOCWORD) /* whole documents are held out */
            place = triple_at(t->s, at).row - t->r.documents + 1;
        uint64_t origin = t->hdf5 ? tr_hdf5_origin_of(&t->r, place) : tr_origin(file, place);
        if (o->split.by == TR_SPLIT_NONE ||
            !tr_split_leaves_out(&o->split, o->reads_held_out, node_mark(t, at), origin >> 48,
                                 origin - tr_origin(origin >> 48, 0)))
            t->row[t->n++] = at;
    }
    return t->n > before ? tr_reader_note_run(&t->r, begin, end, t->n - before) : TR_OK;
}

/* Chooses the rows of all ranges of a part. The ranges of a compressed file end behind its last row that the node has. */
static int choose_ranges(struct node_reader *t, const struct tr_file_part *part)
{
    size_t file = part->file, behind = first_number_from(t, tr_origin(file + 1, 0));
    uint64_t text = part->limit;
    if (tr_file_is_stream(&t->r.files->file[file])) {
        uint64_t last = behind > 0 ? t->s->row_number[position_of(t, behind - 1)] : 0;
        t->piece[file] = part->readers > 1 ? part->bytes : 0;
        text = last >= tr_origin(file, 0) ? last - tr_origin(file, 0) + 1 : 0;
    }
    for (uint64_t end = part->end;; end += part->stride) {
        uint64_t begin = end > part->bytes ? end - part->bytes : 0;
        if (begin >= text) return TR_OK;
        TR_TRY(choose_range(t, file, begin, end < text ? end : text));
    }
}

static int choose_rows_of_file(void *state, const struct tr_file_part *part)
{
    struct node_reader *t = state;
    if (!t->hdf5 || t->r.options->split.by == TR_SPLIT_NONE) return choose_ranges(t, part);
    TR_CLOSED_BY(tr_hdf5_table_close) struct tr_hdf5 table;
    TR_TRY(tr_hdf5_table_open(&t->r.files->file[part->file], &table));
    t->table = &table;
    int status = choose_ranges(t, part);
    t->table = NULL;
    return status;
}

/* ---- words: from numbers of the node to numbers of the reader ---- */

static int lookup_open(struct node_reader *t)
{
    TR_TRY(TR_NEW(&t->word_column, t->s->word_lists));
    TR_TRY(TR_NEW(&t->word, t->s->word_lists));
    for (size_t c = 0; c < t->s->word_lists; c++) {
        uint32_t **word = &t->word[t->word_columns];
        if (t->s->schema && !column_has_words(t->s->schema, c)) continue;
        TR_TRY(TR_NEW(word, t->s->words[c].n));
        for (size_t i = 0; i < t->s->words[c].n; i++) (*word)[i] = NOT_YET;
        t->word_column[t->word_columns++] = c;
    }
    return TR_OK;
}

static int refuse_word(const struct tr_reader *r, size_t c, const char *text, size_t n, const char *what)
{
    char name[TR_SHOWN_NAME], problem[256];
    const struct tr_file_place place = {r->file, r->offset};
    tr_schema_column_text(r->options->schema, c, name);
    snprintf(problem, sizeof problem, "column %s: '%.*s' %s", name, (int)tr_min_size(n, 32), text, what);
    return tr_place_fail(r->files, &place, problem);
}

/* Replaces the place of a word in the node's list, in the k-th column of words, by its number for the reader. */
static int lookup_word(struct node_reader *t, size_t k, float *to)
{
    const struct tr_reader_options *o = t->r.options;
    const struct tr_schema *s = o->schema;
    size_t c = t->word_column[k];
    bool label = t->s->schema->column[c].type == TR_COLUMN_NAMED_LABEL;
    size_t n, word = label ? (size_t)*to : tr_slot_place(*to);
    uint32_t *number = &t->word[k][word];
    const char *text = tr_ids_text(&t->s->words[c], word, &n);
    if (s->column[c].type != TR_COLUMN_NUMBER && s->column[c].type != TR_COLUMN_LABEL) {
        if (*number == NOT_YET) TR_TRY(tr_csv_find_value(&t->r, c, text, n, number));
        *to = label ? (float)*number : tr_slot_of_place(*number);
        return TR_OK;
    }

    /* this task reads the column as numbers; the node has words, because some rows, perhaps not of this reader, have words */
    struct tr_column_seen *seen = &o->seen[c];
    char digits[64];
    seen->missing = seen->missing || n == 0;
    *to = NAN;
    if (n == 0) return TR_OK;
    if (n < sizeof digits) {
        memcpy(digits, text, n);
        digits[n] = '\n';
        const char *end = tr_read_float(digits, to);
        if (end == digits + n && isfinite(*to)) return TR_OK;
    }
    if (o->settled) return refuse_word(&t->r, c, text, n, "is not a number");
    *to = 0;
    if (seen->word) return TR_OK;
    seen->word = true;
    seen->place = (struct tr_file_place){t->r.file, t->r.offset};
    snprintf(seen->text, sizeof seen->text, "%.*s", (int)n, text);
    return TR_OK;
}

/* Replaces the place of a user (k = 0) or item (k = 1) in the node's list by its place in the reader's list. *is_text: the id is no
 * number, but the reader's list has numbers only. */
static int lookup_id(struct node_reader *t, int k, uint32_t *id, bool *is_text)
{
    const struct tr_ids *words = &t->s->words[k];
    struct tr_ids *ids = k == 0 ? &t->r.triples.rows : &t->r.triples.columns;
    uint32_t *found = &t->word[k][*id];
    uint64_t number = 0;
    char digits[24];
    size_t n = 0;
    const char *text = words->are_text ? tr_ids_text(words, *id, &n) : digits;
    if (!words->are_text) {
        number = words->number[*id];
        n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
    }
    *is_text = !ids->are_text && words->are_text && !tr_id_number(text, n, &number);
    if (*is_text) return TR_OK;
    if (*found == NOT_YET)
        TR_TRY(ids->are_text ? tr_ids_add_text(ids, text, n, found) : tr_ids_add_number(ids, number, found));
    *id = *found;
    return TR_OK;
}

/* ---- copies of rows ---- */

/* Sets the reader's file and offset to those of the i-th chosen row, and returns the index of the row. */
static size_t go_to(struct node_reader *t, size_t i)
{
    uint64_t place = t->s->row_number[t->row[i]];
    t->r.file = (size_t)(place >> 48);
    t->r.offset = place - tr_origin(t->r.file, 0);
    return t->row[i];
}

static int copy_rows(struct node_reader *t, const tr_data *node, struct tr_matrix *m)
{
    const struct tr_matrix *from = &t->s->rows;
    const struct tr_reader_options *o = t->r.options;
    m->rows = t->n;
    if (!o->schema && !node->dense) {
        /* a reader of the files would return columns as in the files, which may count from 1 */
        uint32_t first = t->hdf5 ? 0 : node->first_index;
        TR_TRY(TR_NEW(&m->begin, t->n + 1));
        for (size_t i = 0; i < t->n; i++)
            m->begin[i + 1] = m->begin[i] + from->begin[t->row[i] + 1] - from->begin[t->row[i]];
        TR_TRY(TR_NEW(&m->column, (size_t)m->begin[t->n]));
        if (from->value) TR_TRY(TR_NEW(&m->value, (size_t)m->begin[t->n]));
        for (size_t i = 0; i < t->n; i++) {
            uint64_t k = from->begin[t->row[i]], to = m->begin[i], n = m->begin[i + 1] - to;
            for (uint64_t j = 0; j < n; j++)
                m->column[to + j] = (uint32_t)node->keys[from->column[k + j]] + first;
            if (m->value) memcpy(m->value + to, from->value + k, n * sizeof *m->value);
        }
    } else {
        m->columns = o->schema ? t->s->schema->slots : from->columns;
        TR_TRY(TR_NEW(&m->value, t->n * m->columns));
    }
    if (from->label) TR_TRY(TR_NEW(&m->label, t->n));
    for (int e = 0; e < TR_EXTRAS; e++) {
        if (!o->extra[e]) continue;
        TR_TRY(TR_NEW(o->extra[e], t->n));
        for (size_t i = 0; i < t->n; i++) (*o->extra[e])[i] = t->s->extra[e][t->row[i]];
    }
    if (o->schema) TR_TRY(lookup_open(t));
    for (size_t i = 0; i < t->n; i++) {
        size_t at = go_to(t, i);
        float label = from->label ? from->label[at] : NAN;
        float *row = m->columns > 0 ? m->value + i * m->columns : NULL;
        if (row) memcpy(row, from->value + at * m->columns, m->columns * sizeof *row);
        const struct tr_schema *s = t->s->schema;
        bool missing = o->schema && !tr_are_finite(row, m->columns);
        for (size_t c = 0; missing && c < s->n; c++)
            if (s->column[c].type == TR_COLUMN_NUMBER && isnan(row[s->column[c].slot]))
                o->seen[c].missing = true;
        for (size_t k = 0; o->schema && k < t->word_columns; k++) { /* fails as reading files does */
            const struct tr_column *column = &s->column[t->word_column[k]];
            bool is_label = column->type == TR_COLUMN_NAMED_LABEL;
            TR_TRY(lookup_word(t, k, is_label ? &label : &row[column->slot]));
        }
        if (!m->label) continue;
        m->label[i] = label;
        TR_TRY(tr_reader_note_label(&t->r, label));
    }
    return TR_OK;
}

static int copy_triples(struct node_reader *t, size_t reader)
{
    const struct tr_reader_options *o = t->r.options;
    struct tr_triples *to = &t->r.triples;
    to->rows.are_text = o->text_rows;
    to->columns.are_text = o->text_columns;
    for (size_t i = 0; i < t->r.files->n; i++) /* for tr_docword_check(): the node has checked the files */
        o->records[i] = reader == 0 ? o->heads[i].nonzeros : 0;
    if (!o->settled && o->format == TR_FORMAT_RATINGS) { /* held-out pairs count, too */
        t->r.report.text_rows = t->s->words[0].are_text && !o->text_rows;
        t->r.report.text_columns = t->s->words[1].are_text && !o->text_columns;
        /* the caller makes all readers read again, with ids as text */
        if (t->r.report.text_rows || t->r.report.text_columns) return TR_OK;
    }
    TR_TRY(lookup_open(t));
    TR_TRY(TR_NEW(&to->triple, t->n));
    to->triple_capacity = t->n;
    for (size_t i = 0; i < t->n; i++) {
        struct tr_triple triple = triple_at(t->s, go_to(t, i));
        bool text = false;
        for (int k = 0; k < 2 && o->format == TR_FORMAT_RATINGS && !text; k++) {
            TR_TRY(lookup_id(t, k, k == 0 ? &triple.row : &triple.column, &text));
            if (!text) continue;
            char problem[96];
            const struct tr_file_place place = {t->r.file, t->r.offset};
            snprintf(problem, sizeof problem, "the %s is no whole number, as those of the training data are",
                     k == 0 ? "user" : "item");
            if (!o->skip_errors) return tr_place_fail(t->r.files, &place, problem);
            t->r.report.skipped++;
        }
        if (text) continue; /* this record was counted as malformed */
        uint64_t piece = t->piece[t->r.file];
        TR_TRY(tr_reader_note_triples(&t->r, piece > 0 ? t->r.offset / piece : 0));
        to->triple[to->n++] = triple;
    }
    return TR_OK;
}

int tr_node_rows_read(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    const tr_data *node = has_test_files(s) ? s->node_rows->test : s->node_rows->train;
    struct node_reader t = {.s = node->state,
                            .all = (size_t)node->total_rows,
                            .r = {.files = &s->files,
                                  .options = options,
                                  .head = &s->heads[tr_heads_first(s->heads, s->files.n)],
                                  .last_label = NAN}};
    struct tr_read_report *report = &t.r.report;
    bool triples = tr_data_is_triples(data);
    t.hdf5 = tr_reader_is_hdf5(&t.r);
    TR_TRY(TR_NEW(&t.piece, s->files.n));
    struct tr_files rows = {.n = 0};
    uint64_t chunk = options->deal;
    const struct tr_files *parts = t.hdf5 ? &rows : t.r.files;
    int status = t.hdf5 ? tr_hdf5_rows(&t.r, readers, &rows, &chunk) : TR_OK;
    if (status == TR_OK) status = tr_files_each_part(parts, reader, readers, chunk, choose_rows_of_file, &t);
    free(rows.file);
    if (status == TR_OK) status = triples ? copy_triples(&t, reader) : copy_rows(&t, node, &s->rows);
    if (triples) in->triples = t.r.triples;
    for (size_t k = 0; t.word && k < t.word_columns; k++) free(t.word[k]);
    void *arrays[] = {t.word, t.word_column, t.row, t.piece, t.r.origin};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);

    /* these are totals of all readers, so only reader 0 reports some of them */
    report->rows = triples ? in->triples.n : s->rows.rows;
    report->nonzeros = triples ? in->triples.n : tr_matrix_nonzeros(&s->rows);
    report->lowest = node->n_keys > 0 ? (uint32_t)node->keys[0] + node->first_index : UINT32_MAX;
    report->highest = node->first_index + (uint32_t)(node->columns - 1);
    report->skipped += reader == 0 ? node->skipped : 0;
    report->unlabelled = reader == 0 ? node->state->unlabelled : 0;
    in->report = *report;
    return status;
}

#include "data/node_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/cache.h"
#include "data/hdf5.h"
#include "data/node_table.h"
#include "data/store.h"

/* ---- what a node has ---- */

static void free_rows(struct tr_node_rows *rows)
{
    if (rows->test) tr_data_close(&rows->test);
    if (rows->train) tr_data_close(&rows->train);
    free(rows->train_key);
    free(rows->test_key);
    rows->train_key = rows->test_key = NULL;
}

static int open_part(tr_context *node, int part, const tr_data *like, tr_data **data, char **key)
{
    TR_TRY(tr_data_open(node, (enum tr_data_part)(part | TR_DATA_RAW | TR_DATA_NODE), like, data));
    return tr_agree(node, tr_store_rows_key(node->job, &(*data)->state->files, key));
}

int tr_node_rows_open(tr_context *node, tr_context *world, struct tr_node_rows *rows)
{
    int status = open_part(node, TR_DATA_TRAIN, NULL, &rows->train, &rows->train_key);
    if (status == TR_OK && node->job->data.test.n > 0)
        status = open_part(node, TR_DATA_TEST, rows->train, &rows->test, &rows->test_key);
    if (status != TR_OK) {
        free_rows(rows);
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
    free_rows(rows);
}

void tr_node_rows_forget(struct tr_node_rows *rows)
{
    if (rows->forgotten) return;
    rows->forgotten = true;
    tr_data_forget(rows->train);
    if (rows->test) tr_data_forget(rows->test);
}

const struct tr_node_rows *tr_node_rows_find(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const struct tr_node_rows *found = NULL;
    char *key = NULL;
    bool never = s->on_disk || s->cached || s->form & TR_DATA_NODE;
    if (never || !s->tr->node_rows || tr_store_rows_key(s->tr->job, &s->files, &key) != TR_OK) return NULL;
    bool test = s->test && s->held_out.to == 0;
    for (struct tr_node_rows *r = s->tr->node_rows; r && !found; r = r->next) {
        if (r->forgotten) continue;
        const char *has = test ? r->test_key : r->train_key;
        if (has && strcmp(has, key) == 0 && r->train->format == data->format) found = r;
    }
    free(key);
    return found;
}

/* ---- where a row is ---- */

/* The rows of a node are in the order in which its ranks have read them; here they are counted in the order of the files. */
struct order {
    const struct tr_data_state *s; /* the node's */
    size_t n;                      /* rows */
};

static size_t at_of(const struct order *o, size_t number)
{
    const struct tr_stretch *stretch = o->s->stretch;
    size_t low = 0, high = o->s->stretches;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (stretch[middle].first <= number) low = middle;
        else high = middle;
    }
    return stretch[low].at + (number - (size_t)stretch[low].first);
}

/* The first row that does not stand before this place. */
static size_t first_from(const struct order *o, uint64_t origin)
{
    size_t low = 0, high = o->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (o->s->row_number[at_of(o, middle)] < origin) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- which rows a reader gets ---- */

struct taking {
    struct order order;
    struct tr_reader r; /* who would read them */
    bool hdf5;          /* places are numbers of rows … */
    /* … and which are held out depends on where they stood first, which this file says; NULL: it does not */
    struct tr_hdf5 *table;
    size_t *row; /* where they are */
    size_t n, capacity;
    /* of each file, bytes of the pieces of its text that readers have in turns; 0: they do not */
    uint64_t *piece;
};

static bool leaves_out(const struct taking *t, size_t at)
{
    uint64_t place = t->order.s->row_number[at] - tr_origin(t->r.file, 0);
    if (t->r.options->held_out.to == 0) return false;
    if (t->r.options->format == TR_FORMAT_DOCWORD) /* documents are */
        place = tr_node_triple(t->order.s, at).row - t->r.documents + 1;
    return t->hdf5 ? tr_hdf5_leaves_out(&t->r, place) : tr_reader_leaves_out(&t->r, t->r.file, place);
}

static int take_range(struct taking *t, size_t file, uint64_t begin, uint64_t end)
{
    uint64_t base = tr_origin(file, 0);
    size_t first = first_from(&t->order, base + begin), last = first_from(&t->order, base + end),
           before = t->n;
    t->r.file = file;
    t->r.documents = tr_docword_base(t->r.files, t->r.options->heads, file);
    if (t->table) TR_TRY(tr_hdf5_read_origins(t->table, &t->r, begin, (size_t)(end - begin)));
    TR_TRY(TR_GROW(&t->row, &t->capacity, t->n + (last - first)));
    for (size_t number = first; number < last; number++) {
        size_t at = at_of(&t->order, number);
        if (!leaves_out(t, at)) t->row[t->n++] = at;
    }
    return t->n > before ? tr_reader_note_run(&t->r, begin, end, t->n - before) : TR_OK;
}

/* Of a packed file the ranges go on to the end of the text, which is where the node has no more rows of it. */
static int take_ranges(struct taking *t, const struct tr_file_part *part)
{
    size_t file = part->file, behind = first_from(&t->order, tr_origin(file + 1, 0));
    uint64_t text = part->limit;
    if (t->r.files->file[file].packing) {
        size_t last = behind > 0 ? at_of(&t->order, behind - 1) : 0;
        uint64_t origin = behind > 0 ? t->order.s->row_number[last] : 0;
        t->piece[file] = part->readers > 1 ? part->bytes : 0;
        text = origin >= tr_origin(file, 0) ? origin - tr_origin(file, 0) + 1 : 0;
    }
    for (uint64_t end = part->end;; end += part->stride) {
        uint64_t begin = end > part->bytes ? end - part->bytes : 0;
        if (begin >= text) return TR_OK;
        TR_TRY(take_range(t, file, begin, end < text ? end : text));
    }
}

/* Of HDF5 it is not the rows that are read once more, but which they were in the text that they come from. */
static int take_part(void *state, const struct tr_file_part *part)
{
    struct taking *t = state;
    struct tr_hdf5 table;
    if (!t->hdf5 || t->r.options->held_out.to == 0) return take_ranges(t, part);
    int status = tr_hdf5_table_open(&t->r.files->file[part->file], &table);
    t->table = &table;
    if (status == TR_OK) status = take_ranges(t, part);
    t->table = NULL;
    tr_hdf5_table_close(&table);
    return status;
}

static int take_parts(struct taking *t, size_t reader, size_t readers)
{
    struct tr_files rows = {.n = 0};
    uint64_t chunk = t->r.options->deal;
    int status = t->hdf5 ? tr_hdf5_rows(&t->r, readers, &rows, &chunk) : TR_OK;
    if (status == TR_OK)
        status = tr_files_each_part(t->hdf5 ? &rows : t->r.files, reader, readers, chunk, take_part, t);
    free(rows.file);
    return status;
}

/* ---- copies of them ---- */

/* Columns as they are in the files, where those of text may count from 1. */
static int make_sparse_rows(const struct taking *t, const tr_data *node, struct tr_matrix *m)
{
    const struct tr_matrix *from = &t->order.s->rows;
    uint32_t first = t->hdf5 ? 0 : node->first_index;
    size_t nonzeros = 0;
    for (size_t i = 0; i < t->n; i++)
        nonzeros += (size_t)(from->begin[t->row[i] + 1] - from->begin[t->row[i]]);
    TR_TRY(TR_NEW(&m->begin, t->n + 1));
    TR_TRY(TR_NEW(&m->column, nonzeros));
    if (from->value) TR_TRY(TR_NEW(&m->value, nonzeros));
    for (size_t i = 0; i < t->n; i++) {
        uint64_t k = from->begin[t->row[i]], to = m->begin[i], n = from->begin[t->row[i] + 1] - k;
        for (uint64_t j = 0; j < n; j++)
            m->column[to + j] = (uint32_t)node->keys[from->column[k + j]] + first;
        if (m->value) memcpy(m->value + to, from->value + k, n * sizeof *m->value);
        m->begin[i + 1] = to + n;
    }
    return TR_OK;
}

/* Of the i-th row that is taken, where the reader is. */
static size_t go_to(struct taking *t, size_t i)
{
    uint64_t place = t->order.s->row_number[t->row[i]];
    t->r.file = (size_t)(place >> 48);
    t->r.offset = place - tr_origin(t->r.file, 0);
    return t->row[i];
}

static int take_labels(struct taking *t, struct tr_matrix *m)
{
    const float *label = t->order.s->rows.label;
    if (!label) return TR_OK;
    TR_TRY(TR_NEW(&m->label, t->n));
    for (size_t i = 0; i < t->n; i++) {
        m->label[i] = label[go_to(t, i)];
        TR_TRY(tr_reader_note_label(&t->r, m->label[i]));
    }
    return TR_OK;
}

static int make_dense_rows(const struct taking *t, struct tr_matrix *m)
{
    const struct tr_matrix *from = &t->order.s->rows;
    m->columns = from->columns;
    TR_TRY(TR_NEW(&m->value, t->n * m->columns));
    for (size_t i = 0; i < t->n; i++)
        memcpy(m->value + i * m->columns, from->value + t->row[i] * m->columns,
               m->columns * sizeof *m->value);
    return TR_OK;
}

static int fill_table(struct taking *t, struct tr_node_table *table, struct tr_matrix *m, float *weight)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t at = go_to(t, i);
        float label;
        TR_TRY(tr_node_table_take(table, at, m->value + i * m->columns, &label));
        if (weight) weight[i] = t->order.s->weight[at];
        if (!m->label) continue;
        m->label[i] = label;
        TR_TRY(tr_reader_note_label(&t->r, label));
    }
    return TR_OK;
}

static int make_table(struct taking *t, struct tr_matrix *m)
{
    const struct tr_data_state *node = t->order.s;
    const struct tr_reader_options *o = t->r.options;
    struct tr_node_table *table = NULL;
    m->columns = node->schema->slots;
    TR_TRY(TR_NEW(&m->value, t->n * m->columns));
    if (node->rows.label) TR_TRY(TR_NEW(&m->label, t->n));
    if (o->weight) TR_TRY(TR_NEW(o->weight, t->n));
    int status = tr_node_table_open(node, &t->r, &table);
    if (status == TR_OK) status = fill_table(t, table, m, o->weight ? *o->weight : NULL);
    tr_node_table_close(&table);
    return status;
}

static int make_triples(struct taking *t, struct tr_node_table *table)
{
    struct tr_triples *to = &t->r.triples;
    TR_TRY(TR_NEW(&to->triple, t->n));
    to->triple_capacity = t->n;
    for (size_t i = 0; i < t->n; i++) {
        struct tr_triple triple;
        bool taken;
        size_t at = go_to(t, i);
        TR_TRY(tr_node_triple_take(table, at, &triple, &taken));
        if (t->r.report.text_rows || t->r.report.text_columns) return TR_OK;
        if (!taken) continue;
        uint64_t piece = t->piece[t->r.file];
        TR_TRY(tr_reader_note_triples(&t->r, piece > 0 ? t->r.offset / piece : 0));
        to->triple[to->n++] = triple;
    }
    return TR_OK;
}

static int take_triples(struct taking *t, size_t reader, struct tr_part *part)
{
    const struct tr_reader_options *o = t->r.options;
    struct tr_node_table *table = NULL;
    t->r.triples.rows.are_text = o->text_rows;
    t->r.triples.columns.are_text = o->text_columns;
    for (size_t i = 0; i < t->r.files->n; i++) /* as the node has seen */
        o->records[i] = reader == 0 ? o->heads[i].nonzeros : 0;
    int status = tr_node_table_open(t->order.s, &t->r, &table);
    if (status == TR_OK) status = make_triples(t, table);
    tr_node_table_close(&table);
    part->triples = t->r.triples;
    return status;
}

static int make_rows(struct taking *t, const tr_data *node, struct tr_matrix *m)
{
    m->rows = t->n;
    if (t->r.options->schema) return make_table(t, m);
    TR_TRY(node->dense ? make_dense_rows(t, m) : make_sparse_rows(t, node, m));
    return take_labels(t, m);
}

/* What all readers of the files together would have found. */
static void report(const tr_data *node, size_t reader, const struct tr_matrix *m, struct tr_read_report *r)
{
    r->rows = m->rows;
    r->nonzeros = tr_matrix_nonzeros(m);
    r->lowest = node->n_keys > 0 ? (uint32_t)node->keys[0] + node->first_index : UINT32_MAX;
    r->highest = node->first_index + (uint32_t)(node->columns - 1);
    r->skipped += reader == 0 ? node->skipped : 0;
    r->unlabelled = reader == 0 ? node->state->unlabelled : 0;
}

int tr_node_rows_take(tr_data *data, size_t reader, size_t readers, const struct tr_reader_options *options,
                      struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    const tr_data *node = s->test && s->held_out.to == 0 ? s->node_rows->test : s->node_rows->train;
    struct taking t = {.order = {node->state, (size_t)node->total_rows},
                       .r = {.files = &s->files,
                             .options = options,
                             .head = &s->heads[tr_heads_first(s->heads, s->files.n)],
                             .last_label = NAN}};
    t.hdf5 = tr_reader_is_hdf5(&t.r);
    TR_TRY(TR_NEW(&t.piece, s->files.n));
    int status = take_parts(&t, reader, readers);
    bool triples = tr_data_is_triples(data);
    if (status == TR_OK) status = triples ? take_triples(&t, reader, part) : make_rows(&t, node, &s->rows);
    free(t.row);
    free(t.piece);
    free(t.r.origin);
    report(node, reader, &s->rows, &t.r.report);
    if (triples) t.r.report.rows = t.r.report.nonzeros = part->triples.n;
    part->report = t.r.report;
    return status;
}

void tr_node_rows_pool(tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    bool stays = !(s->form & TR_DATA_CODES) && !tr_data_is_triples(data);
    char *key;
    if (!s->node_rows->folder || s->file || s->cached || !stays || !tr_is(tr, TR_SLAVE)) return;
    if (tr_format(&key, "worker %d\n%s", tr->me.group * tr->layout.group_size + tr->me.member, s->store->key))
        return;
    (void)tr_cache_pool(data, s->node_rows->folder, key);
    free(key);
}

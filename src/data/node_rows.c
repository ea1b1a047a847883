#include "data/node_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/hdf5.h"

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
    return tr_agree(node, tr_store_rows_key(node, &(*data)->state->files, key));
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
    bool never = s->on_disk || s->cached || data->format != TR_FORMAT_LIBSVM || s->form & TR_DATA_NODE;
    if (never || !s->tr->node_rows || tr_store_rows_key(s->tr, &s->files, &key) != TR_OK) return NULL;
    bool test = s->test && s->held_out.to == 0;
    for (struct tr_node_rows *r = s->tr->node_rows; r && !found; r = r->next) {
        if (r->forgotten) continue;
        const char *has = test ? r->test_key : r->train_key;
        if (has && strcmp(has, key) == 0) found = r;
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

/* The first row whose line does not begin before this place. */
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
    size_t *row;        /* where they are */
    size_t n, capacity;
};

static int take_range(struct taking *t, size_t file, uint64_t begin, uint64_t end)
{
    const struct tr_reader_options *o = t->r.options;
    uint64_t base = tr_origin(file, 0);
    size_t first = first_from(&t->order, base + begin), last = first_from(&t->order, base + end),
           before = t->n;
    TR_TRY(TR_GROW(&t->row, &t->capacity, t->n + (last - first)));
    for (size_t number = first; number < last; number++) {
        size_t at = at_of(&t->order, number);
        uint64_t place = t->order.s->row_number[at] - base;
        if (o->held_out.to > 0 && tr_reader_leaves_out(&t->r, file, place)) continue;
        t->r.file = file;
        t->r.offset = place;
        TR_TRY(tr_reader_note_label(&t->r, t->order.s->rows.label[at]));
        t->row[t->n++] = at;
    }
    t->r.file = file;
    return t->n > before ? tr_reader_note_run(&t->r, begin, end, t->n - before) : TR_OK;
}

/* Of a packed file the ranges go on to the end of the text, which is where the node has no more rows of it. */
static int take_part(struct taking *t, const struct tr_file_part *part)
{
    size_t file = part->file, behind = first_from(&t->order, tr_origin(file + 1, 0));
    uint64_t text = part->limit;
    if (t->r.files->file[file].packing) {
        size_t last = behind > 0 ? at_of(&t->order, behind - 1) : 0;
        uint64_t origin = behind > 0 ? t->order.s->row_number[last] : 0;
        text = origin >= tr_origin(file, 0) ? origin - tr_origin(file, 0) + 1 : 0;
    }
    for (uint64_t end = part->end;; end += part->stride) {
        uint64_t begin = end > part->bytes ? end - part->bytes : 0;
        if (begin >= text) return TR_OK;
        TR_TRY(take_range(t, file, begin, end < text ? end : text));
    }
}

static int take_parts(struct taking *t, size_t reader, size_t readers)
{
    const struct tr_reader_options *o = t->r.options;
    for (int lap = 0; lap < (o->deal > 0 ? 2 : 1); lap++)
        for (size_t file = 0; file < t->r.files->n; file++) {
            struct tr_file_part part;
            bool mine = o->deal > 0 ? tr_files_deal(t->r.files, file, reader, readers, o->deal, lap, &part)
                                    : tr_files_part(t->r.files, file, reader, readers, &part);
            if (mine) TR_TRY(take_part(t, &part));
        }
    return TR_OK;
}

/* ---- copies of them ---- */

/* Columns as they are in the files. */
static void copy_rows(const struct taking *t, const tr_data *node, struct tr_matrix *m)
{
    const struct tr_matrix *from = &t->order.s->rows;
    for (size_t i = 0; i < t->n; i++) {
        size_t at = t->row[i];
        uint64_t k = from->begin[at], to = m->begin[i], n = from->begin[at + 1] - k;
        for (uint64_t j = 0; j < n; j++)
            m->column[to + j] = (uint32_t)node->keys[from->column[k + j]] + node->first_index;
        if (m->value) memcpy(m->value + to, from->value + k, n * sizeof *m->value);
        m->label[i] = from->label[at];
        m->begin[i + 1] = to + n;
    }
}

static int make_rows(const struct taking *t, const tr_data *node, struct tr_matrix *m)
{
    const struct tr_matrix *from = &t->order.s->rows;
    size_t nonzeros = 0;
    for (size_t i = 0; i < t->n; i++)
        nonzeros += (size_t)(from->begin[t->row[i] + 1] - from->begin[t->row[i]]);
    m->rows = t->n;
    TR_TRY(TR_NEW(&m->begin, t->n + 1));
    TR_TRY(TR_NEW(&m->column, nonzeros));
    TR_TRY(TR_NEW(&m->label, t->n));
    if (from->value) TR_TRY(TR_NEW(&m->value, nonzeros));
    copy_rows(t, node, m);
    return TR_OK;
}

/* What all readers of the files together would have found. */
static void report(const tr_data *node, size_t reader, const struct tr_matrix *m, struct tr_read_report *r)
{
    r->rows = m->rows;
    r->nonzeros = tr_matrix_nonzeros(m);
    r->lowest = node->n_keys > 0 ? (uint32_t)node->keys[0] + node->first_index : UINT32_MAX;
    r->highest = node->first_index + (uint32_t)(node->columns - 1);
    r->skipped = reader == 0 ? node->skipped : 0;
}

int tr_node_rows_take(tr_data *data, const struct tr_node_rows *rows, size_t reader, size_t readers,
                      const struct tr_reader_options *options, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    const tr_data *node = s->test && s->held_out.to == 0 ? rows->test : rows->train;
    struct taking t = {.order = {node->state, (size_t)node->total_rows},
                       .r = {.files = &s->files, .options = options, .last_label = NAN}};
    int status = take_parts(&t, reader, readers);
    if (status == TR_OK) status = make_rows(&t, node, &s->rows);
    free(t.row);
    report(node, reader, &s->rows, &t.r.report);
    part->report = t.r.report;
    s->node_rows = rows;
    return status;
}

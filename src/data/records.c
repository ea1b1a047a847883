#include "trireme/records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/csv.h"
#include "data/documents.h"
#include "data/libsvm_each.h"
#include "data/triples.h"

enum { SOME = 1024 }; /* rows handed out at once */

struct place {
    const struct tr_files *files;
    size_t file;
    uint64_t offset;
};

struct collector {
    const tr_read_options *options;
    tr_records_fn *each;
    void *state;
    uint64_t first, unknown;
    size_t n;
    uint64_t *begin;
    uint32_t *column;
    float *value, *dense, *label;
    bool is_dense, labelled;
    size_t columns, column_room, value_room, dense_room;
    struct place *place;
};

static int flush(struct collector *c)
{
    if (c->n == 0) return TR_OK;
    tr_batch rows = {.n = c->n, .label = c->labelled ? c->label : NULL};
    if (c->is_dense) rows.dense = c->dense;
    else rows.begin = c->begin, rows.column = c->column, rows.value = c->value;
    tr_records records = {.rows = rows, .first = c->first, .unknown = c->unknown, .where = c->place};
    int status = c->each(c->state, &records);
    c->first += c->n;
    c->n = 0;
    c->unknown = 0;
    return status;
}

static int end_row(struct collector *c, float label, const struct tr_files *files, size_t file,
                   uint64_t offset)
{
    c->place[c->n] = (struct place){files, file, offset};
    c->label[c->n++] = label;
    return c->n == SOME ? flush(c) : TR_OK;
}

static int room(struct collector *c, size_t more)
{
    if (c->is_dense) return TR_GROW(&c->dense, &c->dense_room, (c->n + 1) * c->columns);
    TR_TRY(TR_GROW(&c->column, &c->column_room, (size_t)c->begin[c->n] + more));
    return TR_GROW(&c->value, &c->value_room, (size_t)c->begin[c->n] + more);
}

static int take_sparse(void *state, const struct tr_libsvm_row *row)
{
    struct collector *c = state;
    TR_TRY(room(c, row->n));
    size_t kept = c->is_dense ? 0 : (size_t)c->begin[c->n];
    if (c->is_dense) memset(c->dense + c->n * c->columns, 0, c->columns * sizeof *c->dense);
    for (size_t i = 0; i < row->n; i++) {
        uint32_t column = row->index[i] - c->options->first_index;
        if (c->options->columns > 0 && column >= c->options->columns) {
            c->unknown++;
        } else if (c->is_dense) {
            c->dense[c->n * c->columns + column] = row->value[i];
        } else {
            c->column[kept] = column;
            c->value[kept++] = row->value[i];
        }
    }
    if (!c->is_dense) c->begin[c->n + 1] = kept;
    return end_row(c, row->labelled ? row->label : NAN, row->files, row->file, row->offset);
}

static int take_dense(void *state, const struct tr_csv_row *row)
{
    struct collector *c = state;
    TR_TRY(room(c, row->n));
    if (c->is_dense) memcpy(c->dense + c->n * c->columns, row->value, row->n * sizeof *c->dense);
    size_t kept = c->is_dense ? 0 : (size_t)c->begin[c->n];
    for (size_t p = 0; p < row->n && !c->is_dense; p++) {
        if (row->value[p] == 0) continue;
        c->column[kept] = (uint32_t)p;
        c->value[kept++] = row->value[p];
    }
    if (!c->is_dense) c->begin[c->n + 1] = kept;
    return end_row(c, row->label, row->files, row->file, row->offset);
}

static int take_document(void *state, const struct tr_document *d)
{
    struct collector *c = state;
    TR_TRY(room(c, d->n));
    size_t kept = (size_t)c->begin[c->n];
    for (size_t i = 0; i < d->n; i++) {
        if (c->options->columns > 0 && d->word[i] >= c->options->columns) {
            c->unknown++;
            continue;
        }
        c->column[kept] = d->word[i];
        c->value[kept++] = d->count[i];
    }
    c->begin[c->n + 1] = kept;
    return end_row(c, NAN, NULL, 0, 0);
}

static int read_csv(struct collector *c, const struct tr_files *files)
{
    const tr_read_options *o = c->options;
    struct tr_shape *shapes;
    TR_TRY(tr_look_shapes(files, TR_FORMAT_CSV, o->header, &shapes));
    struct tr_csv_options options = {.label = TR_LABEL_NONE, .shape = shapes};
    size_t there = tr_csv_columns(files, &options);
    if (o->label != TR_LABEL_NONE && there > 0 && there != o->columns) {
        options.label = o->label;
        there--;
    }
    c->labelled = options.label != TR_LABEL_NONE;
    c->columns = there;
    int status = o->columns == 0 || there == o->columns || there == 0
                     ? tr_csv_each(files, &options, take_dense, c)
                     : tr_fail(TR_ERR_DATA, "%s: %zu columns, expected %zu as the model has",
                               files->file[0].path, there, (size_t)o->columns);
    free(shapes);
    return status;
}

static int read_files(struct collector *c, const struct tr_files *files)
{
    const tr_read_options *o = c->options;
    int format = (int)o->format;
    struct tr_libsvm_each_options options = {.lowest_index = o->first_index, .unlabelled = !o->labelled};
    struct tr_shape *shapes;
    if (format == TR_FORMAT_AUTO) TR_TRY(tr_look_like(files, &format));
    c->is_dense = o->form == TR_ROWS_DENSE || (o->form == TR_ROWS_AS_READ && format == TR_FORMAT_CSV);
    c->columns = (size_t)o->columns;
    c->labelled = format == TR_FORMAT_LIBSVM;
    if (format == TR_FORMAT_LIBSVM) return tr_libsvm_each(files, &options, take_sparse, c);
    if (format == TR_FORMAT_CSV) return read_csv(c, files);
    c->is_dense = false;
    TR_TRY(tr_look_shapes(files, TR_FORMAT_DOCWORD, TR_HEADER_AUTO, &shapes));
    int status = tr_documents_each(files, shapes, false, take_document, c);
    free(shapes);
    return status;
}

int tr_read_rows(char *const patterns[], size_t n, const tr_read_options *options, tr_records_fn *records,
                 void *state)
{
    struct collector c = {.options = options, .each = records, .state = state};
    struct tr_files files;
    TR_TRY(tr_files_open(patterns, n, &files));
    int status = TR_NEW(&c.begin, SOME + 1);
    if (status == TR_OK) status = TR_NEW(&c.label, SOME);
    if (status == TR_OK) status = TR_NEW(&c.place, SOME);
    if (status == TR_OK) status = read_files(&c, &files);
    if (status == TR_OK) status = flush(&c);
    void *parts[] = {c.begin, c.label, c.place, c.column, c.value, c.dense};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    tr_files_close(&files);
    return status;
}

int tr_records_fail(const tr_records *records, size_t i, const char *what)
{
    const struct place *p = (const struct place *)records->where + i;
    struct tr_libsvm_row row = {.files = p->files, .file = p->file, .offset = p->offset};
    return tr_libsvm_row_fail(&row, what);
}

int tr_read_ratings(char *const patterns[], size_t n, bool third_may_miss, tr_rating_fn *rating, void *state)
{
    struct tr_files files;
    struct tr_shape *shapes = NULL;
    TR_TRY(tr_files_open(patterns, n, &files));
    int status = tr_look_shapes(&files, TR_FORMAT_RATINGS, TR_HEADER_AUTO, &shapes);
    if (status == TR_OK) status = tr_ratings_each(&files, shapes, third_may_miss, rating, state);
    free(shapes);
    tr_files_close(&files);
    return status;
}

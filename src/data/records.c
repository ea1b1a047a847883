#include "trireme/records.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/terminal.h"
#include "data/reader.h"

/* ---- rows ---- */

struct pass {
    const tr_read_options *options;
    tr_records_fn *records;
    void *state;
    struct tr_files files;
    uint64_t rows; /* handed out so far */
    float *dense;
    size_t dense_capacity;
};

/* Where the rows at hand stand. */
struct where {
    const struct tr_files *files;
    size_t file;
    const uint64_t *offset; /* of each */
    const char *text;       /* of identifiers, */
    const uint64_t *id;     /* and where that of each begins */
};

static int hand_out(struct pass *p, const tr_batch *rows, uint64_t unknown, const struct where *where)
{
    tr_records records = {.rows = *rows, .first = p->rows, .unknown = unknown, .where = where};
    p->rows += rows->n;
    return p->records(p->state, &records);
}

/* Sparse rows as dense ones: some at once, since they may take much more memory. */
static int hand_out_dense(struct pass *p, const tr_batch *lists, uint64_t unknown, const struct where *where)
{
    size_t columns = (size_t)p->options->columns, most = ((size_t)1 << 20) / columns + 1;
    for (size_t first = 0; first < lists->n; first += most) {
        size_t n = tr_min_size(most, lists->n - first);
        TR_TRY(TR_GROW(&p->dense, &p->dense_capacity, n * columns));
        memset(p->dense, 0, n * columns * sizeof *p->dense);
        tr_lists_fill(lists->begin + first, n, lists->column, lists->value, columns, p->dense);
        struct where here = {where->files, where->file, where->offset + first, where->text,
                             where->id ? where->id + first : NULL};
        tr_batch rows = {.n = n,
                         .label = lists->label ? lists->label + first : NULL,
                         .weight = lists->weight ? lists->weight + first : NULL,
                         .dense = p->dense};
        TR_TRY(hand_out(p, &rows, first == 0 ? unknown : 0, &here));
    }
    return TR_OK;
}

/* Rows of keys, as a model has them; or those that were read, without columns that it does not know. *rows: they are the reader's,
 * or *own, to be freed. */
static int make_rows(const struct pass *p, struct tr_reader *r, struct tr_matrix *own,
                     const struct tr_matrix **rows, uint64_t *unknown)
{
    const tr_read_options *o = p->options;
    struct tr_matrix *m = &r->matrix;
    *rows = own;
    if (r->options->schema) {
        *own = (struct tr_matrix){.rows = m->rows, .columns = m->columns};
        TR_TRY(TR_NEW(&own->value, m->rows * m->columns)); /* the reader keeps its own */
        memcpy(own->value, m->value, m->rows * m->columns * sizeof *m->value);
        TR_TRY(tr_schema_expand(o->schema, NULL, own, unknown));
        return !own->begin && o->form == TR_ROWS_SPARSE ? tr_matrix_make_sparse(own) : TR_OK;
    }
    if (!m->begin && o->form == TR_ROWS_SPARSE) return tr_matrix_to_sparse(m, own);
    *rows = m;
    bool from_zero = r->options->format == TR_FORMAT_HDF5;
    if (m->begin) *unknown = tr_matrix_limit(m, from_zero ? 0 : o->first_index, o->columns);
    return TR_OK;
}

static int take_rows(void *state, struct tr_reader *r)
{
    struct pass *p = state;
    struct where where = {&p->files, r->file, r->place, r->id_text, r->id};
    struct tr_matrix own = {0};
    const struct tr_matrix *m;
    uint64_t unknown = 0;
    int status = make_rows(p, r, &own, &m, &unknown);
    tr_batch rows = {.n = m->rows, .label = r->matrix.label, .dense = m->value};
    if (m->begin) rows = (tr_batch){m->rows, m->begin, m->column, m->value, r->matrix.label, NULL, NULL};
    if (r->weight) rows.weight = r->weight + r->report.rows;
    if (status == TR_OK)
        status = m->begin && p->options->form == TR_ROWS_DENSE ? hand_out_dense(p, &rows, unknown, &where)
                                                               : hand_out(p, &rows, unknown, &where);
    tr_matrix_free(&own);
    return status;
}

/* Predicting and the like, which write to another place. */
static int show_progress(void *state, uint64_t bytes)
{
    const struct pass *p = state;
    tr_show_part("reading", (double)bytes / (double)p->files.total);
    return TR_OK;
}

static int read_matrix(struct pass *p, struct tr_reader_options *options)
{
    struct tr_matrix none;
    struct tr_read_report report;
    options->piece = take_rows;
    options->piece_state = options->progress_state = p;
    /* where they go to the terminal, a bar would be in the way */
    if (!isatty(STDOUT_FILENO)) options->progress = show_progress;
    int status = tr_read_matrix(&p->files, p->options->reader, tr_max_size(1, p->options->readers), options,
                                &none, &report);
    tr_live_end();
    TR_TRY(status);
    tr_matrix_free(&none);
    tr_ids_free(&report.labels.bits);
    if (p->options->unlabelled) *p->options->unlabelled += report.unlabelled;
    return TR_OK;
}

static int read_libsvm(struct pass *p, const struct tr_head *heads)
{
    struct tr_reader_options options = {.format = TR_FORMAT_LIBSVM,
                                        .heads = heads,
                                        .lowest_index = p->options->first_index,
                                        .unlabelled = !p->options->labelled};
    return read_matrix(p, &options);
}

static int read_table(struct pass *p, struct tr_head *heads)
{
    const tr_read_options *o = p->options;
    struct tr_bindings bindings;
    float *weight = NULL;
    if (o->columns != 0 && o->columns != o->schema->keys)
        return tr_fail(TR_ERR_DATA,
                       "the model has %llu columns, but what it says of tables makes %llu: damaged",
                       (unsigned long long)o->columns, (unsigned long long)o->schema->keys);
    TR_TRY(tr_schema_bind(o->schema, &p->files, heads, false, &bindings));
    struct tr_reader_options options = {.format = TR_FORMAT_CSV,
                                        .heads = heads,
                                        .schema = o->schema,
                                        .bindings = &bindings,
                                        .settled = true,
                                        .id = o->id,
                                        .rows_without_label = !o->labelled};
    if (o->labelled && tr_schema_weight(o->schema) < o->schema->n) options.weight = &weight;
    int status = read_matrix(p, &options);
    tr_bindings_free(&bindings);
    free(weight);
    return status;
}

static int read_csv(struct pass *p, const struct tr_head *heads)
{
    const tr_read_options *o = p->options;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV, .heads = heads};
    if (heads[tr_heads_first(heads, p->files.n)].named)
        return tr_fail(TR_ERR_DATA, "%s: its columns have names, but the model knows none",
                       p->files.file[0].path);
    size_t there = tr_csv_columns(&p->files, heads, TR_LABEL_NONE);
    int label = o->label == TR_LABEL_AUTO ? tr_heads_label(heads, p->files.n) : o->label;
    if (label != TR_LABEL_NONE && there > 0 && (o->columns == 0 || there == o->columns + 1)) {
        options.label = label;
        there--;
    }
    if (o->columns == 0 || there == o->columns || there == 0) return read_matrix(p, &options);
    return tr_fail(TR_ERR_DATA, "%s: %zu columns, expected %zu as the model has", p->files.file[0].path,
                   there, (size_t)o->columns);
}

static int read_hdf5(struct pass *p, const struct tr_head *heads)
{
    const tr_read_options *o = p->options;
    const struct tr_head *head = &heads[tr_heads_first(heads, p->files.n)];
    struct tr_reader_options options = {.format = TR_FORMAT_HDF5, .heads = heads};
    if (head->sparse || o->columns == 0 || head->fields == o->columns || head->fields == 0)
        return read_matrix(p, &options);
    return tr_fail(TR_ERR_DATA, "%s: %llu columns, expected %llu as the model has", p->files.file[0].path,
                   (unsigned long long)head->fields, (unsigned long long)o->columns);
}

/* ---- documents ---- */

/* The rows of the documents that have words, as rows of all documents. */
static int hand_out_documents(struct pass *p, const struct tr_matrix *m, const uint64_t *numbers,
                              uint64_t documents, uint64_t unknown)
{
    uint64_t *begin;
    TR_TRY(TR_NEW(&begin, (size_t)documents + 1));
    for (size_t i = 0; i < m->rows; i++) begin[numbers[i] + 1] = m->begin[i + 1] - m->begin[i];
    for (uint64_t i = 0; i < documents; i++) begin[i + 1] += begin[i];
    tr_batch rows = {.n = (size_t)documents, .begin = begin, .column = m->column, .value = m->value};
    int status = hand_out(p, &rows, unknown, NULL);
    free(begin);
    return status;
}

/* Records may be in any order, so a whole file is held. */
static int read_documents(struct pass *p, size_t file, const struct tr_head *head)
{
    struct tr_files one = {.file = &p->files.file[file],
                           .n = 1,
                           .total = p->files.file[file].size,
                           .max_record = p->files.max_record};
    struct tr_triples triples = {0};
    struct tr_matrix m = {0};
    struct tr_read_report report;
    uint64_t records, *numbers = NULL;
    struct tr_reader_options options = {.format = TR_FORMAT_DOCWORD, .heads = head, .records = &records};
    if (one.total == 0) return TR_OK;
    TR_TRY(tr_read_triples(&one, 0, 1, &options, &triples, &report));
    int status = tr_docword_check(&one, head, &records);
    if (status == TR_OK)
        status = tr_triples_to_rows(&triples, head->documents, (size_t)head->words, &m, &numbers);
    if (status == TR_OK) {
        tr_rows_merge(&m, TR_DUPLICATES_SUM);
        uint64_t unknown = tr_matrix_limit(&m, 0, p->options->columns);
        status = hand_out_documents(p, &m, numbers, head->documents, unknown);
    }
    tr_triples_free(&triples);
    tr_matrix_free(&m);
    free(numbers);
    return status;
}

/* ---- all formats ---- */

static int read_files(struct pass *p)
{
    const tr_read_options *o = p->options;
    enum tr_format format = o->format;
    if (format == TR_FORMAT_AUTO) TR_TRY(tr_format_detect(&p->files, &format));
    if (format == TR_FORMAT_AUTO) format = TR_FORMAT_CSV;
    if (o->id && (format != TR_FORMAT_CSV || !o->schema))
        return tr_fail(TR_ERR_USAGE, "%s: --id is for tables (csv), and for models that learnt from such",
                       p->files.file[0].path);
    struct tr_head *heads;
    TR_TRY(tr_heads_read(&p->files, format, o->header, &heads));
    int status = format == TR_FORMAT_CSV      ? o->schema ? read_table(p, heads) : read_csv(p, heads)
                      : format == TR_FORMAT_HDF5 ? read_hdf5(p, heads)
                 : format == TR_FORMAT_LIBSVM ? read_libsvm(p, heads)
                                              : TR_OK;
    bool documents = format == TR_FORMAT_DOCWORD && o->reader == 0;
    for (size_t i = 0; i < p->files.n && documents && status == TR_OK; i++)
        status = read_documents(p, i, &heads[i]);
    free(heads);
    return status;
}

int tr_read_rows(char *const files[], size_t n, const tr_read_options *options, tr_records_fn *records,
                 void *state)
{
    struct pass p = {.options = options, .records = records, .state = state};
    TR_TRY(tr_files_open(files, n, &p.files));
    p.files.max_record = options->max_record;
    int status = read_files(&p);
    free(p.dense);
    tr_files_close(&p.files);
    return status;
}

int tr_records_fail(const tr_records *records, size_t i, const char *what)
{
    const struct where *where = records->where;
    if (!where) return tr_fail(TR_ERR_DATA, "data.test: %s", what); /* rows in memory */
    return tr_place_fail(where->files, &(struct tr_file_place){where->file, where->offset[i]}, what);
}

const char *tr_records_id(const tr_records *records, size_t i)
{
    const struct where *where = records->where;
    return where->text + where->id[i];
}

int tr_read_ratings(char *const patterns[], size_t n, bool third_may_miss, tr_rating_fn *rating, void *state)
{
    struct tr_files files;
    struct tr_head *heads = NULL;
    struct tr_triples none;
    struct tr_read_report report;
    TR_TRY(tr_files_open(patterns, n, &files));
    int status = tr_heads_read(&files, TR_FORMAT_RATINGS, TR_HEADER_AUTO, &heads);
    struct tr_reader_options options = {.format = TR_FORMAT_RATINGS,
                                        .heads = heads,
                                        .rating = rating,
                                        .rating_state = state,
                                        .third_may_miss = third_may_miss};
    if (status == TR_OK) status = tr_read_triples(&files, 0, 1, &options, &none, &report);
    if (status == TR_OK) tr_triples_free(&none);
    free(heads);
    tr_files_close(&files);
    return status;
}

/* Reading by one process, without storing rows: for predict and evaluate, and samples that estimate the size of a job's data. */
#define _GNU_SOURCE
#include "trireme/records.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/terminal.h"
#include "data/dataset.h"
#include "data/reader.h"

/* ---- rows ---- */

/* One call of tr_read_rows(). */
struct pass {
    const tr_read_options *options;
    tr_records_fn *records;
    void *state;
    struct tr_files files;
    struct tr_head *heads;
    uint64_t rows; /* number of rows passed to records() so far */
    float *dense;
    size_t dense_capacity;
    bool warned; /* of a missing number without a mean */
};

/* Positions and identifiers of rows of a file. */
struct where {
    const struct tr_files *files;
    size_t file;
    const uint64_t *offset; /* offset of each row, see struct tr_file_place */
    const char *text;       /* the identifiers, each with a NUL at the end; NULL: there are none */
    const uint64_t *id;     /* id[i]: offset in `text` of the identifier of row i */
};

static int pass_hand_out(struct pass *p, const tr_batch *rows, uint64_t unknown, const struct where *where)
{
    tr_records records = {.rows = *rows, .first = p->rows, .unknown = unknown, .where = where};
    p->rows += rows->n;
    return p->records(p->state, &records);
}

/* Converts sparse rows to dense rows, some at a time, since dense rows may take much more memory. */
static int pass_hand_out_dense(struct pass *p, const tr_batch *lists, uint64_t unknown,
                               const struct where *where)
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
                         .offset = lists->offset ? lists->offset + first : NULL,
                         .dense = p->dense};
        TR_TRY(pass_hand_out(p, &rows, first == 0 ? unknown : 0, &here));
    }
    return TR_OK;
}

/* Models of older versions have means only of the columns in which numbers were missing in training. */
static void pass_warn_of_means(struct pass *p, const struct tr_matrix *m)
{
    const struct tr_schema *s = p->options->schema;
    for (size_t c = 0; c < s->n; c++) {
        const struct tr_column *column = &s->column[c];
        bool lacks = column->type == TR_COLUMN_NUMBER && !column->raw && !column->averaged;
        for (size_t i = 0; i < m->rows && lacks && !p->warned; i++) {
            char name[TR_SHOWN_NAME];
            if (!isnan(m->value[i * m->columns + column->slot])) continue;
            tr_schema_column_text(s, c, name);
            tr_printf(stderr,
                      "trireme: warning: column %s: a number is missing and counts as 0, as the model has no "
                      "mean of it: train it again with this version\n",
                      name);
            p->warned = true;
        }
    }
}

/* Calls records() with the rows of the reader: as rows of keys if the model has a schema, otherwise unchanged except that columns
 * that the model does not have are dropped. */
static int pass_take_rows(void *state, struct tr_reader *r)
{
    struct pass *p = state;
    const tr_read_options *o = p->options;
    struct where where = {&p->files, r->file, r->place, r->id_text, r->id};
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix own = {0};
    struct tr_matrix *m = &r->matrix;
    uint64_t unknown = 0;
    if (r->options->schema) {
        if (!p->warned) pass_warn_of_means(p, m);
        TR_TRY(tr_schema_keys_of(o->schema, NULL, m, &own, &unknown));
        if (!own.begin && o->form == TR_ROWS_SPARSE) TR_TRY(tr_matrix_make_sparse(&own));
        m = &own;
    } else if (!m->begin && o->form == TR_ROWS_SPARSE) {
        TR_TRY(tr_matrix_to_sparse(m, &own));
        m = &own;
    } else if (m->begin) {
        bool from_zero = r->options->format == TR_FORMAT_HDF5;
        unknown = tr_matrix_limit(m, from_zero ? 0 : o->first_index, o->columns);
    }
    tr_batch rows = tr_matrix_batch(m);
    rows.label = r->matrix.label;
    const float *const *extra = (const float *const *)r->extra;
    if (extra[TR_EXTRA_WEIGHT]) rows.weight = extra[TR_EXTRA_WEIGHT] + r->report.rows;
    if (extra[TR_EXTRA_OFFSET]) rows.offset = extra[TR_EXTRA_OFFSET] + r->report.rows;
    bool fills = m->begin && o->form == TR_ROWS_DENSE;
    return fills ? pass_hand_out_dense(p, &rows, unknown, &where) : pass_hand_out(p, &rows, unknown, &where);
}

static int pass_show_progress(void *state, uint64_t bytes)
{
    const struct pass *p = state;
    tr_show_part("reading", (double)bytes / (double)p->files.total);
    return TR_OK;
}

static int pass_read(struct pass *p, struct tr_reader_options *options)
{
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix none = {0};
    struct tr_read_report report;
    const tr_read_options *o = p->options;
    options->heads = p->heads;
    options->every_row = o->every_row;
    if (o->names && o->names->labels.n > 0 && !o->every_row) options->label_names = &o->names->labels;
    options->skip_errors = o->skip_errors;
    options->piece = pass_take_rows;
    options->piece_state = options->progress_state = p;
    /* a progress bar would disturb output to the terminal */
    if (!isatty(STDOUT_FILENO)) options->progress = pass_show_progress;
    int status = tr_read_matrix(&p->files, o->reader, tr_max_size(1, o->readers), options, &none, &report);
    tr_live_end();
    TR_TRY(status);
    tr_ids_free(&report.labels.bits);
    if (!o->counts) return TR_OK;
    o->counts->unlabelled += report.unlabelled;
    o->counts->malformed += report.skipped;
    if (o->every_row) o->counts->empty += report.empty;
    return TR_OK;
}

static int pass_fail_columns(const struct pass *p, uint64_t columns)
{
    return tr_fail(TR_ERR_DATA, "%s: %llu columns, expected %llu as the model has", p->files.file[0].path,
                   (unsigned long long)columns, (unsigned long long)p->options->columns);
}

static int pass_read_csv(struct pass *p)
{
    const tr_read_options *o = p->options;
    struct tr_reader_options options = {.format = TR_FORMAT_CSV};
    if (o->schema) {
        TR_CLOSED_BY(tr_bindings_free) struct tr_bindings bindings = {.n = 0};
        TR_FREED float *weight = NULL, *offset = NULL;
        if (o->columns != 0 && o->columns != o->schema->keys)
            return tr_fail(TR_ERR_DATA,
                           "the model has %llu columns, but its description of tables gives %llu: damaged",
                           (unsigned long long)o->columns, (unsigned long long)o->schema->keys);
        TR_TRY(tr_schema_bind(o->schema, &p->files, p->heads, o->strict ? 0 : TR_BIND_KNOWN, &bindings));
        if (*bindings.unknown && o->reader == 0)
            tr_printf(stderr, "trireme: note: columns that the training data do not have are ignored: %s\n",
                      bindings.unknown);
        options.schema = o->schema;
        options.bindings = &bindings;
        options.settled = true;
        options.id = o->id;
        options.rows_without_label = !o->labelled;
        bool weighs = o->labelled && tr_schema_has_extra(o->schema, TR_EXTRA_WEIGHT);
        if (weighs) options.extra[TR_EXTRA_WEIGHT] = &weight;
        if (tr_schema_has_extra(o->schema, TR_EXTRA_OFFSET)) options.extra[TR_EXTRA_OFFSET] = &offset;
        return pass_read(p, &options);
    }
    const struct tr_head *head = &p->heads[tr_heads_first(p->heads, p->files.n)];
    if (head->named)
        return tr_fail(TR_ERR_DATA, "%s: its columns have names, but the model knows none",
                       p->files.file[0].path);
    uint64_t there = head->fields;
    int label = o->label == TR_LABEL_AUTO ? (there > 1 ? head->label : TR_LABEL_NONE) : o->label;
    if (label != TR_LABEL_NONE && there > 0 && (o->columns == 0 || there == o->columns + 1)) {
        options.label = label;
        there--;
    }
    if (o->columns == 0 || there == o->columns || there == 0) return pass_read(p, &options);
    return pass_fail_columns(p, there);
}

/* ---- documents ---- */

/* Calls records() with all documents of a file. Records of a document may be anywhere in the file, so all records are stored. */
static int pass_read_documents(struct pass *p, size_t file)
{
    const struct tr_head *head = &p->heads[file];
    struct tr_files one = {.file = &p->files.file[file],
                           .n = 1,
                           .total = p->files.file[file].size,
                           .max_record = p->files.max_record};
    TR_CLOSED_BY(tr_triples_free) struct tr_triples triples = {0};
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix m = {0};
    TR_FREED uint64_t *numbers = NULL, *begin = NULL;
    struct tr_read_report report;
    uint64_t records, documents = head->documents;
    struct tr_reader_options options = {.format = TR_FORMAT_DOCWORD, .heads = head, .records = &records};
    if (one.total == 0) return TR_OK;
    TR_TRY(tr_read_triples(&one, 0, 1, &options, &triples, &report));
    TR_TRY(tr_docword_check(&one, head, &records));
    TR_TRY(tr_triples_to_rows(&triples, documents, (size_t)head->words, &m, &numbers));
    TR_TRY(TR_NEW(&begin, (size_t)documents + 1));
    tr_rows_merge(&m, TR_DUPLICATES_SUM);
    uint64_t unknown = tr_matrix_limit(&m, 0, p->options->columns);
    for (size_t i = 0; i < m.rows; i++) begin[numbers[i] + 1] = m.begin[i + 1] - m.begin[i];
    for (uint64_t i = 0; i < documents; i++) begin[i + 1] += begin[i]; /* a document without words is empty */
    tr_batch rows = {.n = (size_t)documents, .begin = begin, .column = m.column, .value = m.value};
    return pass_hand_out(p, &rows, unknown, NULL);
}

/* ---- all formats ---- */

static int pass_read_files(struct pass *p)
{
    const tr_read_options *o = p->options;
    enum tr_format format = o->format;
    char said[TR_DIALECT_SAID]; /* training has said it */
    TR_TRY(tr_dialect_settings(o->job, &p->files));
    if (o->job) TR_TRY(tr_files_set_label(&p->files, o->job->data.label, true));
    if (o->schema) p->files.notation = o->schema->notation;
    if (o->header != TR_HEADER_AUTO) p->files.given.header = o->header == TR_HEADER_YES;
    TR_TRY(tr_dialects_find(&p->files, format, said));
    if (format == TR_FORMAT_AUTO) TR_TRY(tr_format_detect(&p->files, &format));
    if (format == TR_FORMAT_AUTO) format = TR_FORMAT_CSV;
    bool table = format == TR_FORMAT_CSV && o->schema, line = o->id && strcmp(o->id, "line") == 0;
    if (o->id && !table && format != TR_FORMAT_HDF5 && !line)
        return tr_fail(TR_ERR_USAGE,
                       "%s: --id %s: rows of format %s have no columns with names, expected --id line",
                       p->files.file[0].path, o->id, tr_format_word(format));
    TR_TRY(tr_heads_read(&p->files, format, TR_HEADER_AUTO, &p->heads));
    struct tr_reader_options options = {.format = format, .line_ids = line && !table, .id = o->id};
    if (format == TR_FORMAT_CSV) return pass_read_csv(p);
    if (format == TR_FORMAT_LIBSVM) {
        options.lowest_index = o->first_index;
        options.unlabelled = !o->labelled;
        return pass_read(p, &options);
    }
    if (format == TR_FORMAT_HDF5) {
        options.unlabelled = o->every_row;
        const struct tr_head *head = &p->heads[tr_heads_first(p->heads, p->files.n)];
        bool any = head->sparse || o->columns == 0 || head->fields == 0;
        return any || head->fields == o->columns ? pass_read(p, &options)
                                                 : pass_fail_columns(p, head->fields);
    }
    bool documents = format == TR_FORMAT_DOCWORD && o->reader == 0;
    for (size_t i = 0; i < p->files.n && documents; i++) TR_TRY(pass_read_documents(p, i));
    return TR_OK;
}

int tr_read_rows(char *const files[], size_t n, const tr_read_options *options, tr_records_fn *records,
                 void *state)
{
    struct pass p = {.options = options, .records = records, .state = state};
    TR_TRY(tr_files_open(files, n, &p.files));
    p.files.max_record = options->max_record;
    int status = pass_read_files(&p);
    free(p.heads);
    free(p.dense);
    tr_files_close(&p.files);
    return status;
}

int tr_records_fail(const tr_records *records, size_t i, const char *what)
{
    const struct where *where = records->where;
    /* the rows come from memory, so there is no file to name */
    if (!where) return tr_fail(TR_ERR_DATA, "data.test: %s", what);
    return tr_place_fail(where->files, &(struct tr_file_place){where->file, where->offset[i]}, what);
}

bool tr_records_malformed(const tr_records *records, size_t i)
{
    const struct where *where = records->where;
    return where && where->offset[i] & TR_PLACE_MALFORMED;
}

const char *tr_records_id(const tr_records *records, size_t i)
{
    const struct where *where = records->where;
    return where->text + where->id[i];
}

int tr_read_ratings(char *const patterns[], size_t n, const tr_read_options *how, tr_rating_fn *rating,
                    void *state)
{
    TR_CLOSED_BY(tr_files_close) struct tr_files files = {.n = 0};
    TR_CLOSED_BY(tr_triples_free) struct tr_triples none = {0};
    TR_FREED struct tr_head *heads = NULL;
    struct tr_read_report report;
    char said[TR_DIALECT_SAID];
    TR_TRY(tr_files_open(patterns, n, &files));
    TR_TRY(tr_dialect_settings(how->job, &files));
    TR_TRY(tr_dialects_find(&files, TR_FORMAT_RATINGS, said));
    files.max_record = how->max_record;
    TR_TRY(tr_heads_read(&files, TR_FORMAT_RATINGS, TR_HEADER_AUTO, &heads));
    struct tr_rating_columns columns = {.job = how->job, .rating_may_miss = !how->labelled};
    TR_TRY(tr_ratings_find_columns(&files, &columns, heads));
    struct tr_reader_options options = {.format = TR_FORMAT_RATINGS,
                                        .heads = heads,
                                        .rating = rating,
                                        .rating_state = state,
                                        .third_may_miss = !how->labelled};
    return tr_read_triples(&files, 0, 1, &options, &none, &report);
}

/* ---- files with one number a line ---- */

static int extra_parse_line(enum tr_extra extra, const char *p, struct tr_extra_line *line)
{
    line->line++;
    while (tr_is_blank(*p)) p++;
    const char *end = tr_read_float(p, &line->number);
    while (end && tr_is_blank(*end)) end++;
    if (end && end != p && tr_at_line_end(end) && tr_extra_takes(extra, line->number)) return TR_OK;
    char token[TR_TOKEN_ROOM];
    tr_token_quote(p, ' ', token);
    return tr_fail(TR_ERR_DATA, "%s:%llu: «%s» %s", line->path, (unsigned long long)line->line, token,
                   tr_extra_kinds[extra].bad_line);
}

int tr_extra_each(const tr_job *job, const char *name, enum tr_extra extra,
                  int (*each)(void *state, const struct tr_extra_line *line), void *state)
{
    TR_CLOSED_BY(tr_files_close) struct tr_files files = {.n = 0};
    TR_FREED char *path = NULL;
    TR_TRY(job ? tr_data_find(job, name, &path) : tr_copy_string(name, &path));
    TR_TRY(tr_files_open(&path, 1, &files));
    if (job) files.max_record = job->data.max_record;
    struct tr_extra_line line = {.path = name};
    for (size_t i = 0; i < files.n; i++) {
        struct tr_file_part part;
        line = (struct tr_extra_line){.path = files.file[i].path};
        TR_CLOSED_BY(tr_text_close) struct tr_text *text = NULL;
        struct tr_chunk lines;
        if (!tr_files_part(&files, i, 0, 1, &part)) continue;
        TR_TRY(tr_text_open(&files, &part, TR_TEXT_CHUNK, &text));
        do {
            TR_TRY(tr_text_next(text, &lines));
            if (lines.too_long) return tr_text_fail_too_long(&files, i, lines.offset);
            for (const char *p = lines.begin; p < lines.end; p = tr_behind_line(p, lines.end)) {
                TR_TRY(extra_parse_line(extra, p, &line));
                TR_TRY(each(state, &line));
            }
        } while (lines.begin < lines.end);
    }
    line.end = true;
    return each(state, &line);
}

/* ---- estimate of the size of a job's data ---- */

/* Adds the whole lines of `most` bytes from the offset on to a sample; adds none if the file cannot be read. */
static void sample_add_lines(const struct tr_file *file, uint64_t offset, size_t most,
                             struct tr_sample *sample)
{
    struct tr_source source;
    char *text = sample->text + sample->n;
    size_t n = 0, got = 1, begin = 0;
    int status = tr_source_open(&source, file, offset);
    for (; status == TR_OK && got > 0 && n < most; n += got) {
        got = 0;
        status = tr_source_read(&source, text + n, most - n, &got);
    }
    if (n > 0 && tr_file_is_stream(file))
        sample->packing = (double)n / fmax(1, fmin((double)source.stored, (double)file->size));
    tr_source_close(&source);
    const char *last = n == most ? memrchr(text, '\n', n) : NULL; /* drop the incomplete line at the end */
    if (last) n = (size_t)(last - text) + 1;
    const char *newline = offset > 0 ? memchr(text, '\n', n) : NULL; /* drop the incomplete first line */
    if (offset > 0) begin = newline ? (size_t)(newline - text) + 1 : n;
    memmove(text, text + begin, n - begin);
    sample->n += n - begin;
    if (n > begin) sample->end = (double)(offset + n);
}

/* Adds the estimate for one of `files` similar files. The sample is the beginning of the file and, unless it is compressed or
 * small, lines from its middle. */
static int estimate_file(const struct tr_file *file, const struct tr_head *head, double files, int format,
                         tr_data_size *size)
{
    enum { SAMPLE = 1 << 17 };
    const struct tr_text_format *f = tr_text_format((enum tr_format)format);
    struct tr_sample sample = {.packing = 1, .head = head};
    TR_FREED char *text = NULL;
    double lines = 0;
    TR_TRY(TR_NEW(&text, 2 * SAMPLE + 1));
    sample.text = text;
    bool halves = !tr_file_is_stream(file) && file->size > 4 * SAMPLE;
    sample_add_lines(file, 0, halves ? SAMPLE : 2 * SAMPLE, &sample);
    if (halves) sample_add_lines(file, file->size / 2, SAMPLE, &sample);
    sample.text[sample.n] = '\0';
    for (const char *line = sample.text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        lines += *line != '\n' && *line != '\r';
    if (sample.n == 0) return TR_OK;
    double bytes = sample.packing * (double)file->size;
    size->text += bytes;
    if (format != TR_FORMAT_DOCWORD) size->records += fmax(lines, 1) * bytes / (double)sample.n;
    return f->estimate ? f->estimate(&sample, bytes, files, size) : TR_OK;
}

/* Adds the estimate for the files of data.train or data.test. *format is detected in the first call. */
static int estimate_files(const struct tr_job *job, const struct tr_files *files, int *format,
                          tr_data_size *size)
{
    const double pair = 12; /* assumed bytes of text of a non-zero */
    TR_FREED struct tr_head *heads = NULL;
    enum tr_format found = TR_FORMAT_AUTO;
    if (*format == TR_FORMAT_AUTO) TR_TRY(tr_data_format(job, files, &found));
    if (*format == TR_FORMAT_AUTO) *format = (int)found;
    size->format = tr_format_word((enum tr_format) * format);
    bool tables = *format == TR_FORMAT_HDF5 || files->file[0].hdf5, full = false;
    if (*format == TR_FORMAT_RATINGS) {
        struct tr_rating_columns columns = {.job = job, .trains = true};
        TR_TRY(tr_heads_read(files, TR_FORMAT_RATINGS, TR_HEADER_AUTO, &heads));
        TR_TRY(tr_ratings_find_columns(files, &columns, heads));
    }
    for (size_t i = 0; i < files->n && !tables; i++)
        TR_TRY(estimate_file(&files->file[i], heads ? &heads[i] : NULL, (double)files->n, *format, size));
    if (*format != TR_FORMAT_CSV && !tables) return TR_OK;
    TR_TRY(tr_heads_read(files, (enum tr_format) * format, TR_HEADER_AUTO, &heads));
    if (tables) { /* the heads of HDF5 tables contain the sizes */
        double nonzeros = 0;
        for (size_t i = 0; i < files->n; i++) {
            size->records += (double)heads[i].rows;
            size->features = fmax(size->features, (double)heads[i].fields);
            size->text += pair * (double)heads[i].nonzeros;
            nonzeros += (double)heads[i].nonzeros;
            full |= heads[i].full;
        }
        size->values = 256;
        size->occurring = fmax(size->occurring, nonzeros);
        size->frequent = fmax(size->frequent, nonzeros / TR_FREQUENT_ROWS);
        size->format = full ? "csv" : "libsvm";
    } else {
        size->features = (double)tr_csv_columns(files, heads, TR_LABEL_NONE) + (double)job->data.hash;
    }
    return TR_OK;
}

int tr_data_guess(const struct tr_job *job, tr_data_size *size)
{
    int format = TR_FORMAT_AUTO;
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    for (int test = 0; test < 2; test++) {
        TR_CLOSED_BY(tr_files_close) struct tr_files files = {0};
        if (test && (job->data.test.n == 0 || held.to > 0)) continue;
        char said[TR_DIALECT_SAID];
        TR_TRY(tr_data_files(job, test, &files));
        TR_TRY(tr_dialects_find(&files, format ? (enum tr_format)format : (enum tr_format)job->data.format,
                                said));
        TR_TRY(estimate_files(job, &files, &format, size));
    }
    if (job->data.features > 0) size->features = (double)job->data.features;
    bool full = strcmp(size->format, "csv") == 0;
    size->occurring = full ? size->features : fmin(size->features, size->occurring);
    size->frequent = full ? size->features : fmin(size->features, size->frequent);
    return TR_OK;
}

#include "data/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/dataset.h"
#include "data/hdf5.h"
#include "data/schema.h"

enum { AREAS = 8, PIECE = 1 << 16, MOST_TEXTS = 1 << 24 /* X has the indices of texts as floats */ };

struct work {
    struct tr_conversion *c;
    struct tr_files files;
    struct tr_head *heads;
    enum tr_format format;
    struct tr_schema *schema; /* csv: the columns, which include labels and weights; otherwise NULL */
    struct tr_bindings bindings;
    struct tr_column_seen *seen; /* csv: the values of each column */
    /* csv: index of the label column in X; equal to the number of columns: there is none */
    uint64_t label;
    bool second;           /* this is the second pass over the files */
    bool labelled, valued; /* labelled: rows have labels; valued: not all non-zeros are 1 */
    bool dense;            /* training uses dense rows */
    uint64_t rows, nonzeros, lowest, highest;
    uint64_t columns, first_index;
    struct tr_checked_writer out;
    size_t x, indices, indptr, y, origin; /* indices of these arrays among the areas of `out` */
    uint64_t written, pairs;              /* number of rows and of non-zeros written so far */
    uint64_t *begin;
    int64_t *wide;
    uint8_t *one;
    float *full;
    size_t begin_capacity, wide_capacity, one_capacity, full_capacity;
};

/* ---- the first pass: sizes ---- */

static int measure_rows(void *state, struct tr_reader *r)
{
    struct work *w = state;
    const struct tr_matrix *m = &r->matrix;
    size_t n = tr_matrix_nonzeros(m);
    w->rows += m->rows;
    w->labelled = m->label != NULL;
    w->dense = !m->begin;
    if (w->dense && !w->schema)
        for (size_t k = 0; k < n; k++) w->nonzeros += m->value[k] != 0;
    else w->nonzeros += n;
    w->valued |= m->value != NULL;
    return TR_OK;
}

static int show_progress(void *state, uint64_t bytes)
{
    const struct work *w = state;
    double done = (double)bytes / (double)w->files.total;
    return w->c->progress ? w->c->progress((done + w->second) / 2) : TR_OK;
}

/* Makes one pass over the files. The first pass is repeated if it finds words in a column of numbers. */
static int read_all(struct work *w, int (*piece)(void *state, struct tr_reader *reader))
{
    const tr_job *job = w->c->job;
    do {
        if (w->schema && !w->second) tr_schema_seen_free(&w->seen, w->schema);
        if (w->schema && !w->seen && !(w->seen = tr_schema_seen(w->schema))) return TR_ERR_SYSTEM;
        if (!w->second) w->rows = w->nonzeros = 0;
        struct tr_reader_options options = {.format = w->format,
                                            .heads = w->heads,
                                            .skip_errors = job->data.on_error == TR_ON_ERROR_SKIP,
                                            .lowest_index = job->data.index_base == TR_INDEX_ONE,
                                            .schema = w->schema,
                                            .bindings = &w->bindings,
                                            .seen = w->seen,
                                            .progress = show_progress,
                                            .progress_state = w,
                                            .piece = piece,
                                            .piece_state = w};
        struct tr_matrix none;
        struct tr_read_report report;
        TR_TRY(tr_read_matrix(&w->files, 0, 1, &options, &none, &report));
        tr_matrix_free(&none);
        tr_ids_free(&report.labels.bits);
        if (*report.long_label && w->second)
            tr_printf(
                stderr,
                "trireme: note: label %s is not exact in a 32-bit float, and is rounded: train classes from "
                "the file itself\n",
                report.long_label);
        w->c->skipped = report.skipped;
        w->lowest = report.lowest;
        w->highest = report.highest;
    } while (w->schema && !w->second && tr_schema_take_words(w->schema, w->seen));
    return TR_OK;
}

/* Counts columns as training does: see decide_columns() in dataset.c. */
static int count_columns(struct work *w)
{
    const tr_job *job = w->c->job;
    const struct tr_head *head = &w->heads[tr_heads_first(w->heads, w->files.n)];
    uint64_t found = w->highest >= w->lowest ? w->highest + 1 : 1;
    if (w->schema) {
        w->columns = w->schema->slots;
        for (size_t c = 0; c < w->schema->n; c++) {
            char name[TR_SHOWN_NAME];
            if (w->schema->column[c].type != TR_COLUMN_CATEGORY || w->seen[c].values.n <= MOST_TEXTS)
                continue;
            tr_schema_column_text(w->schema, c, name);
            return tr_fail(TR_ERR_DATA,
                           "%s: column %s has %zu different values, expected at most "
                           "%d: data.columns='%s: ignore' "
                           "leaves it out",
                           w->files.file[0].path, name, w->seen[c].values.n, MOST_TEXTS, name);
        }
        return TR_OK;
    }
    if (w->format == TR_FORMAT_HDF5) {
        w->first_index = head->from_one;
        w->dense = head->full;
        found = head->fields;
        for (size_t i = 0; i < w->files.n; i++)
            if (w->heads[i].fields > found) found = w->heads[i].fields;
    } else {
        int base = job->data.index_base;
        w->first_index = base == TR_INDEX_ZERO ? 0 : base == TR_INDEX_ONE ? 1 : w->lowest > 0;
        if (found > w->first_index) found -= w->first_index;
    }
    w->columns = job->data.features ? job->data.features : found;
    if (found <= w->columns) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data have %llu",
                   tr_job_where(job, "data.features"), (unsigned long long)w->columns,
                   (unsigned long long)found);
}

/* ---- the second pass: the file ---- */

static int begin_array(struct work *w, hid_t where, const char *name, hid_t type, uint64_t rows,
                       uint64_t columns, size_t *area)
{
    const uint64_t shape[2] = {rows, columns};
    *area = w->out.areas;
    return tr_checked_begin(&w->out, where, name, type, columns > 0 ? 2 : 1, shape, PIECE, NULL);
}

static hid_t begin_group(struct work *w, const char *name)
{
    TR_HID how = tr_creation(H5P_GROUP_CREATE);
    hid_t group = H5Gcreate2(w->out.file, name, H5P_DEFAULT, how, H5P_DEFAULT);
    if (group < 0) (void)tr_layout_failed(name);
    return group;
}

/* Begins the arrays for lists of non-zeros. If all values are 1, the file has one byte for each. */
static int begin_lists(struct work *w)
{
    const hsize_t two = 2;
    const int64_t shape[2] = {(int64_t)w->rows, (int64_t)w->columns};
    const uint64_t zero = 0;
    TR_HID group = begin_group(w, "X");
    if (group < 0) return TR_ERR_IO;
    TR_TRY(tr_attribute_text(group, "encoding-type", "csr_matrix"));
    TR_TRY(tr_attribute_text(group, "encoding-version", "0.1.0"));
    TR_HID space = H5Screate_simple(1, &two, NULL);
    TR_HID a = H5Acreate2(group, "shape", H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a < 0 || H5Awrite(a, H5T_NATIVE_INT64, shape) < 0) return tr_layout_failed("shape");
    hid_t value = w->valued ? H5T_NATIVE_FLOAT : H5T_NATIVE_UINT8;
    hid_t index = w->columns > INT32_MAX ? H5T_NATIVE_INT64 : H5T_NATIVE_INT32;
    TR_TRY(begin_array(w, group, "data", value, w->nonzeros, 0, &w->x));
    TR_TRY(begin_array(w, group, "indices", index, w->nonzeros, 0, &w->indices));
    TR_TRY(begin_array(w, group, "indptr", H5T_NATIVE_INT64, w->rows + 1, 0, &w->indptr));
    return tr_checked_append_to(&w->out, w->indptr, &zero, sizeof zero);
}

static int write_array(struct work *w, const char *name, hid_t type, const void *from, uint64_t n,
                       size_t size)
{
    size_t area;
    TR_TRY(begin_array(w, w->out.file, name, type, n, 0, &area));
    return tr_checked_append_to(&w->out, area, from, n * size);
}

/* Writes the names of the columns that are in the file, and then the texts of each column. */
static int write_columns(struct work *w)
{
    const struct tr_schema *s = w->schema;
    TR_CLOSED_BY(tr_ids_free) struct tr_ids all = {.are_text = true};
    TR_FREED uint64_t *texts = NULL;
    TR_HID group = begin_group(w, "columns");
    if (group < 0) return TR_ERR_IO;
    TR_TRY(tr_attribute_count(w->out.file, "header", s->named));
    TR_TRY(tr_attribute_count(w->out.file, "label", w->label));
    TR_TRY(TR_NEW(&texts, s->n));
    for (size_t k = 0, at = 0; k < 2 * s->n; k++) {
        size_t c = k % s->n, n, names = k < s->n;
        uint32_t place;
        if (s->column[c].type != TR_COLUMN_NUMBER && s->column[c].type != TR_COLUMN_CATEGORY) continue;
        const struct tr_ids *list = names ? &s->names : &w->seen[c].values;
        if (!names) texts[at++] = list->n;
        for (size_t i = names ? c : 0; i < (names ? c + 1 : list->n); i++) {
            const char *text = tr_ids_text(list, i, &n);
            TR_TRY(tr_ids_append_text(&all, text, n, &place));
        }
    }
    TR_TRY(write_array(w, "columns/texts", H5T_NATIVE_UINT64, texts, w->columns, sizeof *texts));
    TR_TRY(
        write_array(w, "columns/string_begin", H5T_NATIVE_UINT64, all.begin, all.n + 1, sizeof *all.begin));
    return write_array(w, "columns/strings", H5T_NATIVE_UINT8, all.text, all.begin[all.n], 1);
}

static int begin_file(struct work *w)
{
    uint64_t bytes = w->c->sparse ? 16 * w->nonzeros + 8 * w->rows : 4 * w->rows * w->columns;
    /* adds a maximum of the bytes that write_columns() writes */
    for (size_t c = 0; w->schema && c < w->schema->n; c++) {
        const struct tr_ids *values = &w->seen[c].values;
        size_t n;
        tr_ids_text(&w->schema->names, c, &n);
        bytes += 2 * sizeof(uint64_t) + n;
        if (values->n > 0) bytes += sizeof(uint64_t) * values->n + values->begin[values->n];
    }
    uint64_t header = tr_checked_header_bytes(AREAS, (bytes + 12 * w->rows) / PIECE + AREAS, 0);
    TR_TRY(tr_checked_create(&w->out, w->c->out, TR_HDF5_DATA, TR_HDF5_DATA_VERSION, header,
                             TR_TARGET_NAMED | TR_TARGET_DURABLE, "convert.write", "convert.name"));
    TR_TRY(tr_attributes_of_format(w->out.file, TR_HDF5_DATA, TR_HDF5_DATA_VERSION, TR_VERSION));
    TR_TRY(tr_attribute_count(w->out.file, "first_index", w->first_index));
    TR_TRY(tr_attribute_count(w->out.file, "dense", w->dense || !w->c->sparse));
    if (w->schema) TR_TRY(write_columns(w));
    if (w->c->sparse) TR_TRY(begin_lists(w));
    else TR_TRY(begin_array(w, w->out.file, "X", H5T_NATIVE_FLOAT, w->rows, w->columns, &w->x));
    if (w->labelled) TR_TRY(begin_array(w, w->out.file, "y", H5T_NATIVE_FLOAT, w->rows, 0, &w->y));
    return begin_array(w, w->out.file, "origin", H5T_NATIVE_UINT64, w->rows, 0, &w->origin);
}

static int write_lists(struct work *w, const struct tr_matrix *m)
{
    size_t n = tr_matrix_nonzeros(m);
    const void *index = m->column, *value = m->value;
    size_t index_bytes = sizeof *m->column, value_bytes = w->valued ? sizeof *m->value : 1;
    TR_TRY(TR_GROW(&w->begin, &w->begin_capacity, m->rows));
    for (size_t i = 0; i < m->rows; i++) w->begin[i] = w->pairs + m->begin[i + 1];
    w->pairs += n;
    if (w->columns > INT32_MAX) {
        TR_TRY(TR_GROW(&w->wide, &w->wide_capacity, n));
        for (size_t k = 0; k < n; k++) w->wide[k] = m->column[k];
        index = w->wide;
        index_bytes = sizeof *w->wide;
    }
    if (!w->valued || !value) { /* all values are 1 */
        const float one = 1;
        TR_TRY(TR_GROW(&w->one, &w->one_capacity, n * value_bytes));
        for (size_t k = 0; k < n && w->valued; k++) memcpy(w->one + k * sizeof one, &one, sizeof one);
        if (!w->valued) memset(w->one, 1, n);
        value = w->one;
    }
    TR_TRY(tr_checked_append_to(&w->out, w->indices, index, n * index_bytes));
    TR_TRY(tr_checked_append_to(&w->out, w->x, value, n * value_bytes));
    return tr_checked_append_to(&w->out, w->indptr, w->begin, m->rows * sizeof *w->begin);
}

static int write_rows(void *state, struct tr_reader *r)
{
    struct work *w = state;
    struct tr_matrix *m = &r->matrix;
    if (m->begin)
        (void)tr_matrix_limit(m, w->format == TR_FORMAT_LIBSVM ? (uint32_t)w->first_index : 0, w->columns);
    w->written += m->rows;
    if (w->c->sparse) {
        TR_CLOSED_BY(tr_matrix_free) struct tr_matrix sparse = {0};
        if (!m->begin) TR_TRY(tr_matrix_to_sparse(m, &sparse));
        TR_TRY(write_lists(w, m->begin ? m : &sparse));
    } else if (m->begin) {
        /* sparse rows become rows of the dense array, some at a time */
        size_t columns = (size_t)w->columns, most = PIECE / (columns * sizeof(float)) + 1;
        for (size_t first = 0, n; first < m->rows; first += n) {
            n = tr_min_size(most, m->rows - first);
            TR_TRY(TR_GROW(&w->full, &w->full_capacity, n * columns));
            memset(w->full, 0, n * columns * sizeof *w->full);
            tr_lists_fill(m->begin + first, n, m->column, m->value, columns, w->full);
            TR_TRY(tr_checked_append_to(&w->out, w->x, w->full, n * columns * sizeof *w->full));
        }
    } else {
        /* replaces the places of texts (names.h) by numbers */
        for (size_t c = 0; w->schema && c < w->schema->n; c++) {
            const struct tr_column *column = &w->schema->column[c];
            for (size_t i = 0; i < m->rows && column->type == TR_COLUMN_CATEGORY; i++) {
                float *x = &m->value[i * m->columns + column->slot];
                *x = (float)tr_slot_place(*x);
            }
        }
        TR_TRY(tr_checked_append_to(&w->out, w->x, m->value, m->rows * m->columns * sizeof *m->value));
    }
    for (size_t i = 0; i < m->rows; i++) r->place[i] = tr_hdf5_origin_of(r, r->place[i]);
    TR_TRY(tr_checked_append_to(&w->out, w->origin, r->place, m->rows * sizeof *r->place));
    return m->label ? tr_checked_append_to(&w->out, w->y, m->label, m->rows * sizeof *m->label) : TR_OK;
}

/* ---- csv ---- */

/* Writes one field, in quotes if it needs them. word: without quotes it would be a missing value. */
static void text_put(FILE *out, const char *text, size_t n, bool word, char end)
{
    bool plain = n > 0 && !word && !tr_is_blank(*text) && !tr_is_blank(text[n - 1]);
    for (size_t i = 0; i < n; i++) plain = plain && !strchr(",\"\r\v", text[i]);
    if (!plain && n > 0) fputc('"', out);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') fputc('"', out);
        fputc(text[i] == TR_QUOTED_NEWLINE ? '\n' : text[i], out);
    }
    if (!plain && n > 0) fputc('"', out);
    fputc(end, out);
}

/* Finds the fields of a line, in the order of the columns. Returns NULL, or describes the fault of the line. */
static const char *text_read_line(const struct work *w, size_t file, const char *p, struct tr_field *field,
                                  char problem[256])
{
    const struct tr_binding *b = &w->bindings.binding[w->heads[file].binding];
    char separator = w->heads[file].separator, token[TR_TOKEN_ROOM], name[TR_SHOWN_NAME];
    for (size_t k = 0;; k++) {
        const char *wrong = tr_read_field(p, separator, &field[b->column[k]]);
        tr_token_quote(p, separator, token);
        tr_schema_column_text(w->schema, b->column[k], name);
        if (wrong) snprintf(problem, 256, "column %s: '%s' %s", name, token, wrong);
        if (wrong) return problem;
        p = field[b->column[k]].end;
        bool more = tr_next_field(&p, separator);
        if (more && k + 1 < b->fields) continue;
        snprintf(problem, 256, TR_BAD_COUNT, more ? "more than " : "", k + 1, k == 0 ? "" : "s", b->fields);
        return !more && k + 1 == b->fields ? NULL : problem;
    }
}

/* Writes the rows of one file. */
static int text_write_file(struct work *w, size_t file, FILE *out, struct tr_field *field)
{
    TR_CLOSED_BY(tr_text_close) struct tr_text *text = NULL;
    TR_FREED char *copy = NULL;
    struct tr_file_part part;
    struct tr_chunk lines;
    const struct tr_head *head = &w->heads[file];
    size_t capacity = 0, last = w->schema->n;
    memset(field, 0, (last + 1) * sizeof *field); /* columns that the file does not have stay empty */
    while (last > 0 && w->schema->column[last - 1].type == TR_COLUMN_IGNORE) last--;
    if (!tr_files_part(&w->files, file, 0, 1, &part)) return TR_OK;
    TR_TRY(tr_text_open(&w->files, &part, TR_TEXT_CHUNK, &text));
    for (;;) {
        TR_TRY(tr_text_next(text, &lines));
        if (lines.too_long) return tr_text_fail_too_long(&w->files, file, lines.offset);
        if (lines.begin == lines.end) return TR_OK;
        for (const char *p = lines.begin; p < lines.end; p = tr_behind_line(p, lines.end)) {
            struct tr_file_place place = {file, lines.offset + (uint64_t)(p - lines.begin)};
            const char *first = tr_skip_blanks(p);
            char problem[256];
            if (head->separator == '\t' && memchr(p, '\t', (size_t)(first - p))) first = p;
            if (place.offset < head->begin || tr_at_line_end(first)) continue;
            const char *wrong = text_read_line(w, file, head->separator == '\t' ? p : first, field, problem);
            if (wrong && w->c->job->data.on_error != TR_ON_ERROR_SKIP)
                return tr_place_fail(&w->files, &place, wrong);
            if (wrong) w->c->skipped++;
            else w->c->rows++;
            for (size_t c = 0; c < last && !wrong; c++) {
                if (w->schema->column[c].type == TR_COLUMN_IGNORE) continue;
                TR_TRY(TR_GROW(&copy, &capacity, field[c].n));
                size_t n = tr_field_copy(&field[c], copy);
                bool word = field[c].quoted && tr_schema_is_missing(w->schema, copy, n, false);
                text_put(out, copy, n, word, c + 1 < last ? ',' : '\n');
            }
        }
        if (w->c->progress) TR_TRY(w->c->progress((double)tr_text_done(text) / (double)w->files.total));
    }
}

static int text_write(struct work *w, FILE *out)
{
    const struct tr_schema *s = w->schema;
    TR_FREED struct tr_field *field = NULL;
    size_t fields = s->n;
    for (size_t i = 0; i < fields; i++) w->c->columns += s->column[i].type != TR_COLUMN_IGNORE;
    for (size_t i = 0, at = 0; i < fields; i++) {
        size_t n;
        const char *name = tr_ids_text(&s->names, i, &n);
        if (s->column[i].type != TR_COLUMN_IGNORE)
            text_put(out, name, n, false, ++at < w->c->columns ? ',' : '\n');
    }
    TR_TRY(TR_NEW(&field, fields + 1));
    for (size_t i = 0; i < w->files.n; i++)
        if (w->heads[i].fields > 0) TR_TRY(text_write_file(w, i, out, field));
    return TR_OK;
}

/* Writes the table as text. */
static int text_convert(struct work *w)
{
    struct tr_target target = {.part = NULL};
    struct tr_conversion *c = w->c;
    for (size_t i = 0; i < w->files.n; i++)
        if (w->format != TR_FORMAT_CSV || w->files.file[i].hdf5)
            return tr_fail(TR_ERR_CONFIG, "%s: only tables of text are converted to csv: expected OUT.h5",
                           w->files.file[i].path);
    TR_TRY(tr_schema_make(c->job, &w->files, w->heads, &w->schema));
    TR_TRY(tr_schema_bind(w->schema, &w->files, w->heads, TR_BIND_LABEL, &w->bindings));
    TR_TRY(tr_target_open(&target, TR_TARGET_NAMED | TR_TARGET_DURABLE, "%s", c->out));
    int status = text_write(w, target.file);
    c->bytes = (uint64_t)ftell(target.file);
    return tr_target_close(&target, status);
}

/* ---- both passes ---- */

/* Makes the schema. Columns with labels and extras are stored like all others, since data.label and data.weight apply to the new
 * file, too; columns that the job ignores are not stored. */
static int find_columns(struct work *w)
{
    TR_TRY(tr_schema_make(w->c->job, &w->files, w->heads, &w->schema));
    struct tr_schema *s = w->schema;
    for (size_t c = 0; c < s->n; c++) {
        uint8_t *type = &s->column[c].type;
        if (*type == TR_COLUMN_LABEL || tr_column_extra(*type) < TR_EXTRAS) *type = TR_COLUMN_NUMBER;
        if (*type == TR_COLUMN_NAMED_LABEL) *type = TR_COLUMN_CATEGORY;
    }
    size_t label = s->label;
    s->label = s->n;
    TR_TRY(tr_schema_number(s));
    w->label = label < s->n ? s->column[label].slot : s->slots;
    if (s->slots == 0)
        return tr_fail(TR_ERR_DATA, "%s: there is no column besides those that are left out",
                       w->files.file[0].path);
    return tr_schema_bind(s, &w->files, w->heads, TR_BIND_LABEL, &w->bindings);
}

static int convert(struct work *w)
{
    struct tr_conversion *c = w->c;
    const tr_job *job = c->job;
    TR_TRY(tr_files_of(job, c->files, c->n, &w->files));
    for (size_t i = 0; i < w->files.n; i++) TR_TRY(tr_check_not_input(c->out, w->files.file[i].path));
    char said[TR_DIALECT_SAID];
    TR_TRY(tr_dialects_find(&w->files, (enum tr_format)job->data.format, said));
    if (*said) tr_printf(stderr, "trireme: note: %s\n", said);
    TR_TRY(tr_data_format(job, &w->files, &w->format));
    if (w->format == TR_FORMAT_RATINGS || w->format == TR_FORMAT_DOCWORD)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.format: %s is no table of rows: only libsvm, csv "
                       "and hdf5 are converted",
                       tr_job_where(job, "data.format"), tr_format_word(w->format));
    TR_TRY(tr_heads_read(&w->files, w->format, TR_HEADER_AUTO, &w->heads));
    if (c->text) return text_convert(w);
    if (w->format == TR_FORMAT_CSV) TR_TRY(find_columns(w));
    TR_TRY(read_all(w, measure_rows));
    if (w->rows == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", w->files.file[0].path);
    TR_TRY(count_columns(w));
    c->rows = w->rows;
    c->columns = w->columns;
    c->nonzeros = w->nonzeros;
    /* a number takes 4 bytes in dense rows, a non-zero 8 bytes in sparse rows; training uses the same limit */
    c->sparse = !w->schema && (double)w->nonzeros < 0.5 * (double)w->rows * (double)w->columns;
    w->second = true;
    TR_TRY(begin_file(w));
    TR_TRY(read_all(w, write_rows));
    if (w->written != w->rows || (c->sparse && w->pairs != w->nonzeros))
        return tr_fail(TR_ERR_IO, "%s: has changed while it was read", w->files.file[0].path);
    TR_TRY(tr_checked_seal(&w->out, NULL, 0));
    c->bytes = w->out.bytes;
    return tr_checked_finish(&w->out);
}

int tr_convert(struct tr_conversion *c)
{
    size_t n = strlen(c->out);
    c->text = n > 4 && strcmp(c->out + n - 4, ".csv") == 0;
    struct work w = {.c = c, .out = {.fd = -1, .layout = -1, .file = -1, .array = -1}};
    int status = convert(&w);
    tr_checked_abandon(&w.out);
    if (w.schema) tr_schema_seen_free(&w.seen, w.schema);
    tr_schema_release(&w.schema);
    tr_bindings_free(&w.bindings);
    tr_files_close(&w.files);
    free(w.heads);
    void *arrays[] = {w.begin, w.wide, w.one, w.full};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}

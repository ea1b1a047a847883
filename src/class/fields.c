/* The members of a model are fields of model.h5. All ranks together write them; one process reads them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "class/class.h"
#include "data/dataset.h"
#include "data/names.h"
#include "data/schema.h"
#include "job/schema.h"
#include "ranks/ranks.h"
#include "store/h5.h"
#include "table/table.h"
#include "table/view.h"
#include "trireme/collective.h"
#include "trireme/function.h"

/* Bytes of the pieces in which an array is written. Reading a piece of a table needs ten times this memory. */
enum { PIECE_BYTES = 1 << 20 };

struct tr_fields {
    void *model;
    struct tr_h5_reader *reader; /* NULL: the fields are written or checked */
    struct tr_h5_writer *writer; /* on rank 0, if the fields are written; otherwise NULL */
    tr_context *tr;
    bool settled;            /* all ranks have agreed on the failure already */
    tr_query *list;          /* inspect: prints the fields that are read; otherwise NULL */
    bool checks;             /* only the names are checked; nothing is read or written */
    struct tr_job_list name; /* checks: the names so far */
};

static const size_t size_of[] = {
    [TR_FIELD_F32] = 4, [TR_FIELD_F64] = 8, [TR_FIELD_I32] = 4, [TR_FIELD_I64] = 8,
    [TR_FIELD_U8] = 1,  [TR_FIELD_U16] = 2, [TR_FIELD_U32] = 4, [TR_FIELD_U64] = 8};

/* Checks that the name of the field has not occurred before. */
static int field_note(tr_fields *f, const char *name)
{
    const tr_job *job = f->tr->job;
    for (size_t i = 0; i < f->name.n; i++)
        if (strcmp(f->name.item[i], name) == 0)
            return tr_fail(TR_ERR_CONFIG, "%s: %s: field %s is listed twice",
                           job->own ? job->path : tr_job_where(job, "model.plugin"),
                           job->own ? "the program's class" : "model.plugin", name);
    return tr_job_append(&f->name, name);
}

bool tr_fields_read(const tr_fields *f)
{
    return f->reader != NULL;
}

bool tr_fields_have(const tr_fields *f, const char *name)
{
    return !f->reader || tr_h5_has(f->reader, name);
}

int tr_fields_dtype(const tr_fields *f, const char *name, enum tr_dtype *dtype)
{
    bool single;
    TR_TRY(tr_h5_is_f32(f->reader, name, &single));
    *dtype = single ? TR_F32 : TR_F64;
    return TR_OK;
}

/* ---- attributes ---- */

int tr_field_count(tr_fields *f, const char *name, uint64_t *value)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) {
        TR_TRY(tr_h5_get_count(f->reader, name, value));
        if (f->list) tr_line(f->list, name, "%llu", (unsigned long long)*value);
        return TR_OK;
    }
    return f->writer ? tr_h5_put_count(f->writer, name, *value) : TR_OK;
}

int tr_field_real(tr_fields *f, const char *name, double *value)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) {
        TR_TRY(tr_h5_get_real(f->reader, name, value));
        if (f->list) tr_line(f->list, name, "%.9g", *value);
        return TR_OK;
    }
    return f->writer ? tr_h5_put_real(f->writer, name, *value) : TR_OK;
}

int tr_field_text(tr_fields *f, const char *name, char **value)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) {
        TR_TRY(tr_h5_get_text(f->reader, name, value));
        if (f->list) tr_line(f->list, name, "%s", *value);
        return TR_OK;
    }
    return f->writer ? tr_h5_put_text(f->writer, name, *value) : TR_OK;
}

/* ---- arrays ---- */

static size_t row_bytes(enum tr_field_type type, uint64_t columns)
{
    return size_of[type] * (columns ? (size_t)columns : 1);
}

static int field_read_array(tr_fields *f, const char *name, enum tr_field_type type, uint64_t rows,
                            uint64_t columns, const char *meaning, void *values)
{
    static const char *const types[] = {"f32", "f64", "i32", "i64", "u8", "u16", "u32", "u64"};
    TR_TRY(tr_h5_get(f->reader, name, (enum tr_h5_type)type, rows, columns, values));
    if (!f->list) return TR_OK;
    char shape[64];
    snprintf(shape, sizeof shape, columns ? "%llu × %llu" : "%llu", (unsigned long long)rows,
             (unsigned long long)columns);
    tr_line(f->list, name, "%s %s%s%s", shape, types[type], meaning ? ": " : "", meaning ? meaning : "");
    return TR_OK;
}

/* Appends rows to an array, piece by piece. fill() computes the rows of a piece. */
static int field_fill(tr_fields *f, const char *name, uint64_t rows, size_t bytes, tr_fill_fn *fill)
{
    size_t piece = tr_max_size(1, PIECE_BYTES / bytes);
    TR_FREED char *buffer = NULL;
    TR_TRY(tr_new((void **)&buffer, tr_min_size(piece, rows), bytes, name));
    for (uint64_t first = 0; first < rows; first += piece) {
        size_t n = tr_min_size(piece, rows - first);
        memset(buffer, 0, n * bytes);
        TR_TRY(fill(f->model, first, n, buffer));
        TR_TRY(tr_h5_append(f->writer, buffer, n));
    }
    return TR_OK;
}

int tr_field_filled(tr_fields *f, const char *name, enum tr_field_type type, uint64_t rows, uint64_t columns,
                    const char *meaning, tr_fill_fn *fill, void *values)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) return field_read_array(f, name, type, rows, columns, meaning, values);
    if (!f->writer) return TR_OK;
    TR_TRY(tr_h5_begin(f->writer, name, (enum tr_h5_type)type, rows, columns));
    TR_TRY(field_fill(f, name, rows, row_bytes(type, columns), fill));
    return meaning ? tr_h5_describe(f->writer, "meaning", meaning) : TR_OK;
}

int tr_field_array(tr_fields *f, const char *name, enum tr_field_type type, uint64_t rows, uint64_t columns,
                   const char *meaning, void *values)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) return field_read_array(f, name, type, rows, columns, meaning, values);
    if (!f->writer) return TR_OK;
    TR_TRY(tr_h5_put(f->writer, name, (enum tr_h5_type)type, rows, columns, *(void **)values));
    return meaning ? tr_h5_describe(f->writer, "meaning", meaning) : TR_OK;
}

/* Writes the rows of all ranks, in the order of ranks: each rank sends count[rank] rows to rank 0 in pieces. */
static int move_parts(tr_fields *f, const char *name, size_t bytes, const uint64_t *count, const char *values)
{
    tr_context *tr = f->tr;
    size_t piece = tr_max_size(1, PIECE_BYTES / bytes);
    TR_FREED char *buffer = NULL;
    if (f->writer) TR_TRY(tr_new((void **)&buffer, piece, bytes, name));
    for (int rank = 0; rank < tr->size; rank++)
        for (uint64_t at = 0; at < count[rank]; at += piece) {
            size_t n = tr_min_size(piece, count[rank] - at);
            const char *from = values + at * bytes;
            MPI_Request request;
            if (rank == tr->rank && f->writer) {
                TR_TRY(tr_h5_append(f->writer, from, n));
            } else if (rank == tr->rank) {
                MPI_Isend(from, (int)(n * bytes), MPI_BYTE, 0, TR_TAG_FIELD, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "the model to be written"));
            } else if (f->writer) {
                MPI_Irecv(buffer, (int)(n * bytes), MPI_BYTE, rank, TR_TAG_FIELD, tr->wire, &request);
                TR_TRY(tr_wait_request(tr, &request, "a part of the model"));
                TR_TRY(tr_h5_append(f->writer, buffer, n));
            }
        }
    return TR_OK;
}

int tr_field_parts(tr_fields *f, const char *name, enum tr_field_type type, uint64_t rows, uint64_t columns,
                   uint64_t first, uint64_t n, const char *meaning, void *values)
{
    if (f->checks) return field_note(f, name);
    (void)first;
    if (f->reader) return field_read_array(f, name, type, rows, columns, meaning, values);
    TR_FREED uint64_t *count = NULL;
    int status = TR_NEW(&count, (size_t)f->tr->size);
    if (status == TR_OK && f->writer)
        status = tr_h5_begin(f->writer, name, (enum tr_h5_type)type, rows, columns);
    status = tr_agree(f->tr, status);
    if (status == TR_OK) status = tr_all_gather(f->tr, TR_SET_ALL, &n, sizeof n, count);
    if (status == TR_OK)
        status = tr_agree(f->tr, move_parts(f, name, row_bytes(type, columns), count, *(char **)values));
    f->settled = status != TR_OK;
    bool described = status == TR_OK && f->writer && meaning;
    return described ? tr_h5_describe(f->writer, "meaning", meaning) : status;
}

/* ---- names ---- */

struct names_writer {
    struct tr_h5_writer *h5;
    size_t longest, capacity;
    char *text; /* scratch: texts of a piece, padded to the length of the longest text */
};

static int measure_names(void *state, const tr_names_piece *piece)
{
    struct names_writer *w = state;
    for (size_t i = 0; piece->begin && i < piece->n; i++)
        w->longest = tr_max_size(w->longest, (size_t)(piece->begin[i + 1] - piece->begin[i]));
    return TR_OK;
}

static int write_names(void *state, const tr_names_piece *piece)
{
    struct names_writer *w = state;
    if (piece->number) return tr_h5_append(w->h5, piece->number, piece->n);
    TR_TRY(TR_GROW(&w->text, &w->capacity, piece->n * w->longest + 1));
    memset(w->text, 0, piece->n * w->longest);
    for (size_t i = 0; i < piece->n; i++)
        memcpy(w->text + i * w->longest, piece->text + piece->begin[i],
               (size_t)(piece->begin[i + 1] - piece->begin[i]));
    return tr_h5_append(w->h5, w->text, piece->n);
}

static int put_names(tr_fields *f, const char *name, const tr_names *names, const char *meaning)
{
    struct names_writer w = {.h5 = f->writer, .longest = 1};
    bool numbers = tr_names_are_numbers(names);
    int status = tr_agree(f->tr, TR_OK); /* no rank has failed before */
    if (status == TR_OK && !numbers) status = tr_names_each(names, measure_names, &w);
    if (status == TR_OK && w.h5 && numbers)
        status = tr_h5_begin(w.h5, name, TR_H5_U64, tr_names_count(names), 0);
    else if (status == TR_OK && w.h5)
        status = tr_h5_begin_texts(w.h5, name, tr_names_count(names), w.longest);
    status = tr_agree(f->tr, status);
    if (status == TR_OK) status = tr_names_each(names, write_names, &w); /* agreed */
    f->settled = status != TR_OK;
    free(w.text);
    return status == TR_OK && f->writer ? tr_h5_describe(f->writer, "rows", meaning) : status;
}

int tr_field_names(tr_fields *f, const char *name, const tr_names *names, uint64_t n, const char *meaning,
                   struct tr_name_list *list)
{
    uint64_t *number, *begin;
    if (f->checks) return field_note(f, name);
    if (!f->reader) return put_names(f, name, names, meaning);
    *list = (struct tr_name_list){.n = (size_t)n};
    if (tr_h5_get(f->reader, name, TR_H5_U64, n, 0, &number) == TR_OK) {
        list->number = number;
    } else {
        char *text;
        size_t length, at = 0;
        TR_TRY(tr_h5_get_texts(f->reader, name, list->n, &text, &length));
        list->text = text;
        TR_TRY(TR_NEW(&begin, list->n + 1));
        list->begin = begin;
        for (size_t i = 0; i < list->n; i++) { /* remove the padding */
            size_t bytes = strlen(text + i * length);
            memmove(text + at, text + i * length, bytes);
            at += bytes;
            begin[i + 1] = at;
        }
    }
    if (f->list) tr_line(f->list, name, "%llu: %s", (unsigned long long)n, meaning);
    return TR_OK;
}

void tr_name_list_free(struct tr_name_list *list)
{
    free((void *)list->number);
    free((void *)list->begin);
    free((void *)list->text);
    *list = (struct tr_name_list){0};
}

int tr_field_texts(tr_fields *f, const char *name, uint64_t n, size_t length, tr_fill_fn *fill, char **texts,
                   size_t *width)
{
    if (f->checks) return field_note(f, name);
    if (f->reader) return tr_h5_get_texts(f->reader, name, n, texts, width);
    if (!f->writer) return TR_OK;
    TR_TRY(tr_h5_begin_texts(f->writer, name, n, length));
    return field_fill(f, name, n, length, fill);
}

/* ---- tables ---- */

int tr_table_read(tr_table *table, tr_key first, size_t n, void *values)
{
    TR_FREED tr_key *keys = NULL;
    TR_CLOSED_BY(tr_view_close) tr_view *view = NULL;
    struct tr_range range = {first, n};
    uint64_t present = 1;
    size_t bytes = sizeof present;
    /* With hash storage most ranges of keys have no values, which one request finds out. Pulling all keys would be slow. */
    if (table->hash) TR_TRY(tr_table_ask(table, "present", &range, sizeof range, &present, &bytes));
    if (present == 0) {
        memset(values, 0, n * table->width * tr_dtype_size(table->dtype));
        return TR_OK;
    }
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = first + i;
    TR_TRY(tr_view_open(table, keys, n, TR_VIEW_READ, &view));
    TR_TRY(tr_pull_start(view, view->value, TR_PULL_SERVERS, -1));
    TR_WAIT_UNTIL(table->tr, !tr_pull_busy(view), "the servers to hand out the model");
    memcpy(values, view->value, n * view->width * tr_dtype_size(table->dtype));
    return TR_OK;
}

struct table_rows {
    tr_table *table;
    tr_key first;
};

static int fill_from_table(void *who, uint64_t first, size_t n, void *values)
{
    const struct table_rows *rows = who;
    return tr_table_read(rows->table, rows->first + first, n, values);
}

int tr_field_table(tr_fields *f, const char *name, enum tr_field_type type, tr_table *table, uint64_t first,
                   uint64_t rows, uint64_t columns, const char *meaning, void *values)
{
    struct table_rows from = {table, first};
    void *model = f->model;
    f->model = &from; /* the argument of fill_from_table() */
    int status = tr_field_filled(f, name, type, rows, columns, meaning, fill_from_table, values);
    f->model = model;
    return status;
}

/* ---- lists of members ---- */

int tr_field_members(tr_fields *f, const tr_member *list, size_t n)
{
    for (const tr_member *m = list; m < list + n; m++) {
        if (m->absent) continue;
        if (m->of_scheduler && f->tr && !f->checks) {
            int status = tr_agree(f->tr, TR_OK); /* no rank has failed before */
            if (status == TR_OK) status = tr_model_tell(f->tr, 1, m->value);
            f->settled = status != TR_OK;
            TR_TRY(status);
        }
        if (!m->meaning && m->type == TR_FIELD_U64) TR_TRY(tr_field_count(f, m->name, m->value));
        else if (!m->meaning) TR_TRY(tr_field_real(f, m->name, m->value));
        else if (m->fill)
            TR_TRY(tr_field_filled(f, m->name, m->type, m->rows, m->columns, m->meaning, m->fill, m->value));
        else TR_TRY(tr_field_array(f, m->name, m->type, m->rows, m->columns, m->meaning, m->value));
    }
    return TR_OK;
}

/* Returns the number of elements of a member. Sets *values to their address; NULL: an array that is not allocated. */
static size_t member_elements(const tr_member *m, void **values)
{
    *values = m->meaning ? *(void **)m->value : m->value;
    return m->meaning ? (size_t)(m->rows * (m->columns ? m->columns : 1)) : 1;
}

int tr_members_keep(tr_snapshot *snapshot, const tr_member *list, size_t n)
{
    static const enum tr_dtype dtypes[] = {
        [TR_FIELD_F32] = TR_F32, [TR_FIELD_F64] = TR_F64, [TR_FIELD_I32] = TR_I32, [TR_FIELD_I64] = TR_I64,
        [TR_FIELD_U8] = TR_I32,  [TR_FIELD_U32] = TR_I32, [TR_FIELD_U64] = TR_I64};
    for (const tr_member *m = list; m < list + n; m++) {
        void *values;
        size_t elements = member_elements(m, &values), bytes = size_of[m->type];
        if (m->absent) continue;
        if (bytes == 1) elements = (elements + 3) / 4, bytes = 4; /* four bytes are stored as one word */
        if (m->meaning && tr_snapshot_restores(snapshot)) {
            free(values);
            TR_TRY(tr_new(m->value, elements, bytes, m->name));
            member_elements(m, &values);
        }
        TR_TRY(tr_snapshot_common(snapshot, m->name, dtypes[m->type], elements, values));
    }
    return TR_OK;
}

int tr_members_send(tr_context *tr, const tr_member *list, size_t n)
{
    for (const tr_member *m = list; m < list + n; m++) {
        void *values;
        size_t elements = member_elements(m, &values);
        if (m->absent) continue;
        TR_TRY(tr_agree(tr, values ? TR_OK : tr_new(m->value, elements, size_of[m->type], m->name)));
        member_elements(m, &values);
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, values, elements * size_of[m->type]));
    }
    return TR_OK;
}

/* ---- for snapshot functions ---- */

int tr_model_keep_evaluation(tr_snapshot *snapshot, tr_evaluation *v)
{
    enum { OTHERS = 4 };
    double number[OTHERS + TR_METRICS] = {v->objective, v->gap, v->epoch, v->stop + 2 * v->estimated};
    memcpy(number + OTHERS, v->metric, sizeof v->metric);
    TR_TRY(tr_snapshot_common(snapshot, "verdict", TR_F64, sizeof number / sizeof *number, number));
    *v = (tr_evaluation){.objective = number[0],
                         .gap = number[1],
                         .epoch = number[2],
                         .stop = (int)number[3] % 2 != 0,
                         .estimated = number[3] >= 2};
    memcpy(v->metric, number + OTHERS, sizeof v->metric);
    return TR_OK;
}

int tr_model_keep_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, size_t n, double *sums)
{
    char count[64];
    int64_t workers = me->workers; /* when restoring: number of workers of the earlier run */
    TR_FREED double *one = NULL;
    snprintf(count, sizeof count, "%s_workers", name);
    TR_TRY(tr_snapshot_common(snapshot, count, TR_I64, 1, &workers));
    if (me->worker < 0) return TR_OK;
    if (!tr_snapshot_restores(snapshot))
        return tr_snapshot_rows(snapshot, name, TR_F64, (uint64_t)workers, n, NULL, (uint64_t)me->worker, 1,
                                sums);
    TR_TRY(TR_NEW(&one, n));
    memset(sums, 0, n * sizeof *sums);
    for (int64_t w = me->worker; w < workers; w += me->workers) {
        TR_TRY(tr_snapshot_rows(snapshot, name, TR_F64, (uint64_t)workers, n, NULL, (uint64_t)w, 1, one));
        for (size_t i = 0; i < n; i++) sums[i] += one[i];
    }
    return TR_OK;
}

/* ---- columns of the training data ----
 *
 * They are stored in the file, so that predict and evaluate accept raw tables. Attributes: table_columns (their number),
 * table_header, table_hash (number of keys of all categories; 0: they have dictionaries), table_crosses (number of crossed columns,
 * the last ones; each has five numbers in /table_crossed: how many columns it combines, and their indices), table_notation (marks
 * of numbers, if they are unusual). Texts: /table_names,
 * /table_labels and /table_missing. For each column: /table_types (as in data/schema.h), /table_flags (1: some numbers are missing,
 * 2: the dictionary omits some values, 4: the column is raw, 8: the mean was computed), /table_means and /table_values (size of its
 * dictionary). The values of all dictionaries follow each other: value i is the bytes begin[i] .. begin[i + 1] - 1 of
 * /dictionary_text. Data without names of columns have only table_columns = 0 and /table_labels, if labels have names.
 */

static int schema_damaged(void)
{
    return tr_fail(TR_ERR_DATA, "model.h5: damaged: invalid description of the columns");
}

static int schema_texts(tr_fields *f, const char *name, const char *count, struct tr_ids *texts)
{
    uint64_t n = texts->n;
    size_t width = 1, bytes;
    uint32_t place;
    TR_FREED char *text = NULL;
    TR_TRY(tr_field_count(f, count, &n));
    if (n == 0) return TR_OK;
    if (f->reader) {
        TR_TRY(tr_h5_get_texts(f->reader, name, n, &text, &width));
        for (size_t i = 0; i < n; i++) {
            TR_TRY(tr_ids_add_text(texts, text + i * width, strlen(text + i * width), &place));
            if (place != i) return schema_damaged();
        }
        return TR_OK;
    }
    for (size_t i = 0; i < n; i++) {
        (void)tr_ids_text(texts, i, &bytes);
        width = tr_max_size(width, bytes);
    }
    TR_TRY(tr_h5_begin_texts(f->writer, name, n, width));
    TR_TRY(TR_NEW(&text, width));
    for (size_t i = 0; i < n; i++) {
        const char *from = tr_ids_text(texts, i, &bytes);
        memset(text, 0, width);
        memcpy(text, from, bytes);
        TR_TRY(tr_h5_append(f->writer, text, 1));
    }
    return TR_OK;
}

/* Writes or reads the schema without the values of its dictionaries. */
static int schema_fields(tr_fields *f, struct tr_schema *s)
{
    uint64_t named = s->named, positive = s->positive != NULL, crosses = s->crosses;
    TR_TRY(schema_texts(f, "table_names", "table_columns", &s->names));
    if (f->reader) {
        s->n = s->label = s->names.n;
        TR_TRY(TR_NEW(&s->column, s->n));
    }
    TR_TRY(tr_field_count(f, "table_header", &named));
    s->named = named;
    TR_TRY(schema_texts(f, "table_labels", "table_label_names", &s->labels));
    TR_TRY(schema_texts(f, "table_missing", "table_missing_words", &s->missing));
    TR_TRY(tr_field_count(f, "table_one_positive", &positive));
    const struct tr_notation *of = &s->notation;
    uint64_t notation = (uint64_t)(of->decimal << 16 | of->thousands << 8 | of->delimiter);
    if (f->reader ? tr_fields_have(f, "table_notation") : notation > 0)
        TR_TRY(tr_field_count(f, "table_notation", &notation));
    s->notation = (struct tr_notation){(char)(notation >> 16), (char)(notation >> 8), (char)notation};
    if (tr_fields_have(f, "table_hash")) TR_TRY(tr_field_count(f, "table_hash", &s->hash));
    if (f->writer || tr_fields_have(f, "table_crossed")) TR_TRY(tr_field_count(f, "table_crosses", &crosses));
    if (crosses > 0)
        TR_TRY(tr_field_array(f, "table_crossed", TR_FIELD_U32, crosses, 1 + TR_CROSS_MOST, NULL, &s->cross));
    /* types, flags, means and sizes of dictionaries of all columns */
    TR_FREED uint8_t *type = NULL, *flags = NULL;
    TR_FREED double *mean = NULL;
    TR_FREED uint64_t *values = NULL;
    if (s->n == 0) return TR_OK; /* only labels have names */
    if (f->writer) {
        TR_TRY(TR_NEW(&type, s->n));
        TR_TRY(TR_NEW(&flags, s->n));
        TR_TRY(TR_NEW(&mean, s->n));
        TR_TRY(TR_NEW(&values, s->n));
        for (size_t c = 0; c < s->n; c++) {
            const struct tr_column *column = &s->column[c];
            type[c] = column->type;
            flags[c] =
                (uint8_t)(column->missing | column->others << 1 | column->raw << 2 | column->averaged << 3);
            mean[c] = column->mean;
            values[c] = column->values;
        }
    }
    TR_TRY(tr_field_array(f, "table_types", TR_FIELD_U8, s->n, 0, NULL, &type));
    TR_TRY(tr_field_array(f, "table_flags", TR_FIELD_U8, s->n, 0, NULL, &flags));
    TR_TRY(tr_field_array(f, "table_means", TR_FIELD_F64, s->n, 0, NULL, &mean));
    TR_TRY(tr_field_array(f, "table_values", TR_FIELD_U64, s->n, 0, NULL, &values));
    if (f->writer) return TR_OK;
    for (size_t c = 0; c < s->n; c++) {
        if (type[c] >= TR_COLUMN_TYPES || values[c] >= UINT32_MAX) return schema_damaged();
        s->column[c] =
            (struct tr_column){.type = type[c],
                               .fixed = true,
                               .missing = flags[c] & 1,
                               .others = flags[c] >> 1 & 1,
                               .raw = flags[c] >> 2 & 1,
                               .averaged = (flags[c] >> 3 | flags[c]) & 1, /* older versions: if missing */
                               .mean = mean[c],
                               .values = (uint32_t)values[c]};
        if (s->column[c].raw != s->column[0].raw) return schema_damaged(); /* all columns are raw, or none */
        if (type[c] != TR_COLUMN_LABEL && type[c] != TR_COLUMN_NAMED_LABEL) continue;
        if (s->label < s->n) return schema_damaged(); /* there are two label columns */
        s->label = c;
    }
    if (s->hash >= UINT32_MAX || (positive && s->labels.n != 2)) return schema_damaged();
    if (crosses > 0 && crosses >= s->n) return schema_damaged();
    s->crosses = (size_t)crosses;
    for (size_t i = 0; i < s->crosses; i++) {
        const struct tr_cross *cross = &s->cross[i];
        if (cross->n > TR_CROSS_MOST || s->column[tr_schema_fields(s) + i].type != TR_COLUMN_CATEGORY)
            return schema_damaged();
        for (size_t k = 0; k < cross->n; k++)
            if (cross->column[k] >= tr_schema_fields(s)) return schema_damaged();
    }
    if (positive) {
        size_t n;
        const char *text = tr_ids_text(&s->labels, 1, &n);
        TR_TRY(TR_NEW(&s->positive, n + 1));
        memcpy(s->positive, text, n);
    }
    return TR_OK;
}

/* Writes the values of dictionaries, which tr_names_each() passes on in pieces. */
struct values_writer {
    struct tr_h5_writer *w;
    uint64_t bytes; /* sum of the lengths of the values so far */
};

static int values_write_begins(void *state, const tr_names_piece *piece)
{
    struct values_writer *v = state;
    TR_FREED uint64_t *end = NULL;
    TR_TRY(TR_NEW(&end, piece->n));
    for (size_t i = 0; i < piece->n; i++) end[i] = v->bytes += piece->begin[i + 1] - piece->begin[i];
    return tr_h5_append(v->w, end, piece->n);
}

static int values_write_text(void *state, const tr_names_piece *piece)
{
    struct values_writer *v = state;
    return tr_h5_append(v->w, piece->text + piece->begin[0],
                        (size_t)(piece->begin[piece->n] - piece->begin[0]));
}

/* Writes the schema of the training data with its dictionaries; nothing if schema is NULL. All ranks; returns the agreed status. */
static int schema_write(tr_fields *f, const struct tr_schema *schema)
{
    struct tr_schema *s = (struct tr_schema *)(uintptr_t)schema; /* is not changed */
    struct tr_h5_writer *w = f->writer;
    struct values_writer v = {.w = w};
    if (!s) return TR_OK;
    TR_TRY(tr_agree(f->tr, w ? schema_fields(f, s) : TR_OK));
    if (!s->dictionary) return TR_OK;
    const tr_names *names = tr_dictionary_names(s->dictionary);
    int status = w ? tr_h5_begin(w, "dictionary_begin", TR_H5_U64, tr_names_count(names) + 1, 0) : TR_OK;
    if (status == TR_OK && w) status = tr_h5_append(w, &v.bytes, 1);
    TR_TRY(tr_agree(f->tr, status));
    TR_TRY(tr_names_each(names, values_write_begins, &v));
    status = w ? tr_h5_begin(w, "dictionary_text", TR_H5_U8, v.bytes + 1, 0) : TR_OK;
    TR_TRY(tr_agree(f->tr, status));
    TR_TRY(tr_names_each(names, values_write_text, &v));
    return tr_agree(f->tr, w ? tr_h5_append(w, "", 1) : TR_OK);
}

/* Distributes the n values of all dictionaries to their columns, in their canonical form (data/schema.h). */
static int schema_split_values(struct tr_schema *s, const uint64_t *begin, uint64_t n, const char *text)
{
    uint64_t at = 0;
    for (size_t c = 0; c < s->n; c++)
        for (uint64_t k = 0; k < s->column[c].values; k++, at++) {
            if (begin[at] > begin[at + 1] || begin[at + 1] > begin[n]) return schema_damaged();
            char room[TR_VALUE_ROOM];
            double number;
            uint32_t place;
            size_t length = (size_t)(begin[at + 1] - begin[at]);
            struct tr_ids *values = &s->values[c];
            const char *value = tr_value_text(text + begin[at], &length, room);
            /* Files of older versions may have two forms of one number. The second one keeps its code, but is never looked up. */
            bool twice = tr_value_is_number(value, length, &number) &&
                         tr_ids_find_text(values, value, length) != UINT32_MAX;
            TR_TRY(twice ? tr_ids_append_text(values, value, length, &place)
                         : tr_ids_add_text(values, value, length, &place));
            if (place != k) return schema_damaged();
        }
    return TR_OK;
}

static int schema_read(tr_fields *f, struct tr_schema *s)
{
    uint64_t n = 0;
    TR_FREED uint64_t *begin = NULL;
    TR_FREED char *text = NULL;
    TR_TRY(schema_fields(f, s));
    TR_TRY(TR_NEW(&s->values, s->n));
    for (size_t c = 0; c < s->n; c++) {
        s->values[c].are_text = true;
        n += s->column[c].values;
    }
    if (!tr_h5_has(f->reader, "dictionary_begin")) return n == 0 ? tr_schema_number(s) : schema_damaged();
    TR_TRY(tr_h5_get(f->reader, "dictionary_begin", TR_H5_U64, n + 1, 0, &begin));
    TR_TRY(tr_h5_get(f->reader, "dictionary_text", TR_H5_U8, begin[n] + 1, 0, &text));
    TR_TRY(schema_split_values(s, begin, n, text));
    return tr_schema_number(s);
}

int tr_saved_schema_read(struct tr_h5_reader *r, struct tr_schema **schema)
{
    struct tr_fields f = {.reader = r};
    *schema = NULL;
    if (!tr_h5_has(r, "table_names") && !tr_h5_has(r, "table_labels")) return TR_OK;
    TR_TRY(tr_schema_new(schema));
    int status = schema_read(&f, *schema);
    if (status != TR_OK) tr_schema_release(schema);
    return status;
}

/* ---- the file ---- */

int tr_model_tell(tr_context *tr, size_t n, double *values)
{
    return tr_broadcast(tr, TR_SET_ALL, 0, values, n * sizeof *values);
}

int tr_report_figure(tr_context *tr, const char *name, double value)
{
    return tr_context_report(tr, name, value);
}

static void plugin_checksum_text(const struct tr_plugin *plugin, char text[17])
{
    snprintf(text, 17, "%016llx", (unsigned long long)plugin->checksum);
}

int tr_model_write(tr_context *tr, const tr_model_class *class, void *model, const char *folder)
{
    struct tr_fields f = {.model = model, .tr = tr};
    const struct tr_plugin *plugin = tr_plugin_of(class);
    char *job = NULL, checksum[17];
    int status = TR_OK;
    if (tr->rank == 0) {
        status = tr_job_as_text(tr->job, &job);
        if (status == TR_OK)
            status = tr_h5_create(folder, class->format, class->format_version, job, NULL, &f.writer);
        if (status == TR_OK && plugin) {
            plugin_checksum_text(plugin, checksum);
            status = tr_h5_put_text(f.writer, "plugin", plugin->name);
            if (status == TR_OK) status = tr_h5_put_text(f.writer, "plugin_checksum", checksum);
        }
    }
    status = tr_agree(tr, status);
    if (status == TR_OK) {
        status = class->fields(model, &f);
        if (!f.settled) status = tr_agree(tr, status);
        if (status == TR_OK) status = schema_write(&f, tr_store_schema(tr));
        if (status == TR_OK) status = tr_agree(tr, f.writer ? tr_h5_finish(&f.writer) : TR_OK);
    }
    tr_h5_abandon(&f.writer);
    free(job);
    return status;
}

int tr_model_check_fields(tr_context *tr, const tr_model_class *class, void *model)
{
    struct tr_fields f = {.model = model, .tr = tr, .checks = true};
    int status = class->fields(model, &f);
    tr_job_list_free(&f.name);
    return status;
}

/* ---- reading ---- */

/* Finds the class with the format of the model file: a built-in class, or the class of the plugin whose path the user has given. A
 * path in a model file is never used, since loading a plugin executes its code. */
static int model_find_class(struct tr_model *m, struct tr_h5_reader *r, const char *plugin)
{
    TR_FREED char *setting = NULL, *name = NULL, *was = NULL;
    char is[17];
    const char *format = tr_h5_format(r);
    if (plugin) TR_TRY(tr_format(&setting, "model.plugin=%s", plugin));
    const tr_model_class *own = tr_model_class_of_format(format);
    int status = m->text ? tr_job_parse_as(TR_JOB_WRITTEN, NULL, m->text, strlen(m->text), m->path,
                                           plugin != NULL, &setting, &m->job)
                         : TR_OK;
    m->class = own ? own : m->job ? m->job->class : NULL;
    if (own) return TR_OK;
    if (m->class && strcmp(m->class->format, format) == 0) {
        const struct tr_plugin *p = tr_plugin_of(m->class);
        if (!p || !tr_h5_has(r, "plugin_checksum")) return TR_OK;
        TR_TRY(tr_h5_get_text(r, "plugin_checksum", &was));
        plugin_checksum_text(p, is);
        m->other_plugin = strcmp(was, is) != 0;
        return TR_OK;
    }
    if (plugin && status != TR_OK) return status;
    if (!plugin && tr_h5_has(r, "plugin")) {
        TR_TRY(tr_h5_get_text(r, "plugin", &name));
        return tr_fail(
            TR_ERR_USAGE,
            "%s: the model needs its plugin, %s: add --plugin FILE, the path of this shared object", m->path,
            tr_shown(name).text);
    }
    return tr_fail(TR_ERR_DATA, "%s: the model has the format %.40s, which %s", m->path, format,
                   plugin ? "the plugin does not know"
                          : "no built-in class has: add --plugin FILE, the shared object of its class");
}

/* Finds the kind of a file. Sets *text to the class whose text files start as this file does, or to NULL. */
static int file_look(const char *path, enum tr_file_kind *kind, const tr_model_class **text)
{
    char first[64] = "";
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not block on a pipe */
    if (fd < 0 || fstat(fd, &status) < 0) {
        int why = errno;
        if (fd >= 0) close(fd);
        return tr_fail(TR_ERR_NO_INPUT, "%s: %s", path, strerror(why));
    }
    ssize_t n = S_ISREG(status.st_mode) ? pread(fd, first, sizeof first - 1, 0) : 0;
    close(fd);
    if (S_ISREG(status.st_mode) && status.st_size == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: empty", path);
    *text = NULL;
    for (size_t i = 0; i < tr_model_class_count && !*text; i++) {
        const char *begins = tr_model_classes[i]->text_begins;
        if (begins && strncmp(first, begins, strlen(begins)) == 0) *text = tr_model_classes[i];
    }
    *kind = S_ISDIR(status.st_mode)                   ? TR_FILE_FOLDER
            : n > 0 && tr_h5_begins(first, (size_t)n) ? TR_FILE_MODEL_H5
            : *text                                   ? TR_FILE_MODEL_TEXT
                                                      : TR_FILE_OTHER;
    return TR_OK;
}

int tr_file_kind(const char *path, enum tr_file_kind *kind)
{
    const tr_model_class *text;
    return file_look(path, kind, &text);
}

/* Opens the file of a model. path: the file, a folder with model.h5 or model.txt, or the folder of a sweep with its best run. */
static int model_open_file(const char *path, const char *plugin, struct tr_model *m)
{
    enum tr_file_kind kind;
    char best[4096], own[4096];
    bool fits = (size_t)snprintf(best, sizeof best, "%s/best", path) < sizeof best &&
                (size_t)snprintf(own, sizeof own, "%s/model.h5", path) < sizeof own;
    if (fits && access(own, F_OK) != 0 && access(best, F_OK) == 0) path = best;
    TR_TRY(file_look(path, &kind, &m->class));
    if (kind == TR_FILE_FOLDER) {
        TR_TRY(tr_format(&m->path, "%s/model.txt", path));
        bool is_text = access(m->path, F_OK) == 0;
        memcpy(m->path + strlen(path), "/model.h5", sizeof "/model.h5");
        if (access(m->path, F_OK) == 0) kind = TR_FILE_MODEL_H5;
        else if (!is_text) return tr_fail(TR_ERR_NO_INPUT, "%s: there is no model.h5 in this folder", path);
        else {
            memcpy(m->path + strlen(path), "/model.txt", sizeof "/model.txt");
            TR_TRY(file_look(m->path, &kind, &m->class));
        }
    } else {
        TR_TRY(tr_copy_string(path, &m->path));
    }
    if (kind == TR_FILE_MODEL_H5) {
        TR_CLOSED_BY(tr_h5_close) struct tr_h5_reader *r = NULL;
        TR_TRY(tr_h5_open(m->path, NULL, 0, &r));
        TR_TRY(tr_h5_get_job(r, &m->text));
        return model_find_class(m, r, plugin);
    }
    return m->class ? TR_OK
                    : tr_fail(TR_ERR_DATA, "%s: not a model: expected a model.h5 or model.txt", m->path);
}

int tr_model_open(const char *path, const char *plugin, struct tr_model *m)
{
    *m = (struct tr_model){0};
    if (plugin && !*plugin) plugin = NULL;
    int status = model_open_file(path, plugin, m);
    if (status != TR_OK) tr_model_close(m);
    return status;
}

/* Reads the members into `model`, and prints their names and values if `list` is not NULL. schema: receives the columns of the
 * training data; may be NULL. */
static int model_read_h5(const struct tr_model *m, void *model, tr_query *list, struct tr_schema **schema)
{
    struct tr_fields f = {.model = model, .list = list};
    TR_TRY(tr_h5_open(m->path, m->class->format, m->class->format_version, &f.reader));
    int status = m->class->fields(model, &f);
    if (status == TR_OK && schema && m->other_plugin && !tr_is_an_echo())
        tr_printf(stderr, "warning:       %s: another version of the plugin %s trained this model\n", m->path,
                  tr_plugin_of(m->class)->name);
    if (status == TR_OK && schema) status = tr_saved_schema_read(f.reader, schema);
    tr_h5_close(&f.reader);
    return status;
}

int tr_model_read(struct tr_model *m)
{
    enum tr_file_kind kind;
    TR_TRY(tr_file_kind(m->path, &kind));
    TR_TRY(tr_new(&m->model, 1, m->class->model_size, "model"));
    if (kind == TR_FILE_MODEL_TEXT) return m->class->read_text(m->model, m->path, &m->type);
    m->type = m->class->name;
    if (m->job) TR_TRY(tr_job_string(m->job, "model.type", &m->type));
    return model_read_h5(m, m->model, NULL, &m->schema);
}

int tr_model_list_fields(const struct tr_model *m, tr_query *query)
{
    void *model;
    TR_TRY(tr_new(&model, 1, m->class->model_size, "model"));
    int status = model_read_h5(m, model, query, NULL);
    m->class->close(model);
    free(model);
    return status;
}

void tr_model_close(struct tr_model *m)
{
    if (m->model) m->class->close(m->model);
    free(m->model);
    tr_schema_release(&m->schema);
    tr_job_free(m->job);
    TR_FREE_ALL(m->text, m->path);
    *m = (struct tr_model){0};
}

/* Reads a model that must have the columns of the training data. */
static int model_read_fitting(const tr_context *tr, const char *path, struct tr_model *m)
{
    TR_TRY(tr_model_read(m));
    if (tr_schema_agrees(tr_store_schema(tr), m->schema)) return TR_OK;
    return tr_fail(TR_ERR_DATA,
                   "%s: its columns are not those of the data: expected the same columns of numbers, in the "
                   "same order",
                   path);
}

int tr_model_load_centres(tr_context *tr, const char *path, tr_saved_centres *centres)
{
    TR_CLOSED_BY(tr_model_close) struct tr_model m = {0};
    *centres = (tr_saved_centres){0};
    TR_TRY(tr_model_open(path, tr->job->model.plugin, &m));
    if (!m.class->centres) return tr_fail(TR_ERR_DATA, "%s: %s, which has no centres", path, m.class->noun);
    TR_TRY(model_read_fitting(tr, path, &m));
    return m.class->centres(m.model, centres);
}

int tr_model_open_own(const tr_context *tr, const char *path, struct tr_model *m)
{
    const tr_model_class *class = tr->job->class;
    TR_TRY(tr_model_open(path, tr->job->model.plugin, m));
    if (m->class == class) return TR_OK;
    int status = tr_fail(TR_ERR_DATA, "%s: %s, expected %s", path, m->class->noun, class->noun);
    tr_model_close(m);
    return status;
}

int tr_model_load(tr_context *tr, const char *path, void **model)
{
    TR_CLOSED_BY(tr_model_close) struct tr_model m = {0};
    TR_TRY(tr_model_open_own(tr, path, &m));
    TR_TRY(model_read_fitting(tr, path, &m));
    *model = m.model;
    m.model = NULL;
    return TR_OK;
}

void tr_model_unload(tr_context *tr, void **model)
{
    if (*model) tr->job->class->close(*model);
    free(*model);
    *model = NULL;
}

#define _GNU_SOURCE
#include "data/spill.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/fault.h"
#include "data/storage.h"

/* ---- the first reading ---- */

static uint64_t count_nonzeros(const struct tr_matrix *m)
{
    uint64_t n = 0;
    for (size_t k = 0; k < m->rows * m->columns; k++) n += m->value[k] != 0;
    return n;
}

static int note_values(struct tr_spill_column *c, const struct tr_matrix *m, size_t slot, size_t values)
{
    size_t before = c->capacity;
    TR_TRY(TR_GROW(&c->count, &c->capacity, values));
    if (c->capacity > before) memset(c->count + before, 0, (c->capacity - before) * sizeof *c->count);
    for (size_t i = 0; i < m->rows; i++) {
        uint32_t place = tr_slot_place(m->value[i * m->columns + slot]);
        if (place < values) c->count[place]++;
    }
    return TR_OK;
}

uint64_t tr_spill_note_numbers(struct tr_spill_column *c, const struct tr_matrix *m, size_t slot)
{
    uint64_t nonzeros = 0;
    for (size_t i = 0; i < m->rows; i++) {
        float x = m->value[i * m->columns + slot];
        nonzeros += isnan(x) ? 2 : x != 0;
        if (isnan(x)) continue;
        double from_old = (double)x - c->mean;
        c->mean += from_old / ++c->n;
        c->apart += from_old * ((double)x - c->mean);
        c->sum += (double)x;
    }
    return nonzeros;
}

/* A value of a category is one key, at most. */
static int note_table(struct tr_spill *c, const struct tr_reader *r)
{
    const struct tr_schema *s = r->options->schema;
    if (!c->column) TR_TRY(TR_NEW(&c->column, s->n));
    c->columns = s->n;
    for (size_t k = 0; k < s->n; k++) {
        const struct tr_column *column = &s->column[k];
        if (column->type > TR_COLUMN_CATEGORY) continue;
        c->valued = c->valued || column->type == TR_COLUMN_NUMBER || s->hash > 0;
        if (column->type == TR_COLUMN_CATEGORY) {
            c->nonzeros += r->matrix.rows;
            TR_TRY(note_values(&c->column[k], &r->matrix, column->slot, r->options->seen[k].values.n));
        } else {
            c->nonzeros += tr_spill_note_numbers(&c->column[k], &r->matrix, column->slot);
        }
    }
    return TR_OK;
}

int tr_spill_note(void *spill, struct tr_reader *r)
{
    struct tr_spill *c = spill;
    const struct tr_matrix *m = &r->matrix;
    c->rows += m->rows;
    c->labelled = c->labelled || m->label;
    if (r->options->schema) return note_table(c, r);
    c->valued = c->valued || m->value;
    c->nonzeros += c->expands ? count_nonzeros(m) : tr_matrix_nonzeros(m);
    return m->begin && c->prunes ? tr_columns_note(&c->seen, m) : TR_OK;
}

/* ---- the file ---- */

static int no_room(const struct tr_spill *c, uint64_t bytes)
{
    const struct tr_data_state *s = c->data->state;
    const char *folder = s->tr->job->data.scratch;
    struct statvfs fs = {.f_bavail = 0};
    (void)statvfs(folder, &fs);
    return tr_fail(TR_ERR_IO,
                   "%s: data.scratch: %s: rank %d needs %.1f MB there for its %s, %.1f MB are free",
                   tr_job_where(s->tr->job, "data.scratch"), folder, s->tr->rank, (double)bytes / 1e6,
                   s->test ? "test data" : "training data", (double)fs.f_bavail * (double)fs.f_frsize / 1e6);
}

static int open_file(struct tr_spill *c, const uint64_t *bytes, uint64_t sum)
{
    struct tr_data_state *s = c->data->state;
    const struct tr_cached *cached = s->cached;
    int status =
        tr_cache_file_create(cached->rows_path, cached->generation, bytes, TR_CACHE_ARRAYS, &s->file);
    if (status == TR_OK) status = tr_cache_file_reserve(s->file, 0, 1);
    if (status == TR_OK) return TR_OK;
    int error = errno;
    if (s->file) tr_cache_file_spoil(s->file);
    tr_cache_file_close(&s->file);
    return error == ENOSPC || error == EDQUOT ? no_room(c, sum) : status;
}

static void *array_at(const struct tr_spill *c, size_t i)
{
    uint64_t bytes;
    void *at = tr_cache_file_at(c->data->state->file, i, &bytes);
    return bytes > 0 ? at : NULL;
}

int tr_spill_begin(struct tr_spill *c)
{
    tr_data *data = c->data;
    struct tr_data_state *s = data->state;
    uint64_t bytes[TR_CACHE_ARRAYS];
    struct tr_cache_shape shape = {.rows = c->rows,
                                   .nonzeros = c->dense ? c->rows * data->columns : c->nonzeros,
                                   .keys = data->n_keys,
                                   .dense = c->dense,
                                   .valued = c->valued,
                                   .labelled = c->labelled};
    uint64_t sum = tr_cache_measure(&shape, bytes);
    TR_TRY(open_file(c, bytes, sum));
    tr_storage_use_cache(s);
    s->rows = (struct tr_matrix){.rows = (size_t)c->rows,
                                 .columns = c->dense ? (size_t)data->columns : 0,
                                 .begin = array_at(c, TR_CACHE_BEGIN),
                                 .column = c->dense ? NULL : tr_cache_file_at(s->file, TR_CACHE_COLUMN, NULL),
                                 .value = array_at(c, TR_CACHE_VALUE),
                                 .label = array_at(c, TR_CACHE_LABEL)};
    tr_key *keys = tr_cache_file_at(s->file, TR_CACHE_KEYS, NULL);
    memcpy(keys, data->keys, data->n_keys * sizeof *keys);
    free((void *)(uintptr_t)data->keys);
    data->keys = keys;
    c->block_bytes = tr_block_bytes(s->memory);
    return TR_OK;
}

/* ---- the second reading ---- */

/* What was written goes to the disk in pieces: the last is on the way while the next is filled. */
static void send(struct tr_spill *c, size_t i, uint64_t bytes)
{
    const uint64_t piece = (uint64_t)4 << 20;
    struct tr_cache_file *file = c->data->state->file;
    uint64_t at = tr_cache_file_place(file, i);
    while (bytes - c->sent[i] >= piece) {
        tr_cache_file_settle(file, at + c->settled[i], c->sent[i] - c->settled[i]);
        c->settled[i] = c->sent[i];
        tr_cache_file_send(file, at + c->sent[i], piece);
        c->sent[i] += piece;
    }
}

static void send_all(struct tr_spill *c)
{
    uint64_t values = c->dense ? c->row * c->data->columns : c->nonzero;
    const struct tr_matrix *rows = &c->data->state->rows;
    if (rows->begin) send(c, TR_CACHE_BEGIN, c->row * sizeof *rows->begin);
    if (rows->column) send(c, TR_CACHE_COLUMN, values * sizeof *rows->column);
    if (rows->value) send(c, TR_CACHE_VALUE, values * sizeof *rows->value);
    if (rows->label) send(c, TR_CACHE_LABEL, c->row * sizeof *rows->label);
}

static int begin_block(struct tr_spill *c)
{
    struct tr_data_state *s = c->data->state;
    TR_TRY(TR_GROW(&s->block, &c->block_capacity, s->blocks + 2));
    s->block[s->blocks] = (struct tr_data_block){c->row, c->dense ? c->row * c->data->columns : c->nonzero};
    c->in_block = 0;
    return TR_OK;
}

/* One more row has been written, with so many numbers. */
static int end_row(struct tr_spill *c, uint64_t numbers)
{
    const struct tr_matrix *rows = &c->data->state->rows;
    c->row++;
    c->in_block +=
        numbers * ((rows->column ? sizeof *rows->column : 0) + (rows->value ? sizeof *rows->value : 0));
    c->in_block += (rows->begin ? sizeof *rows->begin : 0) + (rows->label ? sizeof *rows->label : 0);
    if (c->in_block < c->block_bytes) return TR_OK;
    c->data->state->blocks++;
    return begin_block(c);
}

static int write_dense(struct tr_spill *c, const struct tr_matrix *m)
{
    size_t columns = (size_t)c->data->columns;
    for (size_t i = 0; i < m->rows; i++) {
        float *to = c->data->state->rows.value + c->row * columns;
        if (m->begin) {
            memset(to, 0, columns * sizeof *to);
            tr_lists_fill(m->begin + i, 1, m->column, m->value, columns, to);
        } else {
            memcpy(to, m->value + i * columns, columns * sizeof *to);
        }
        TR_TRY(end_row(c, columns));
    }
    return TR_OK;
}

static int write_sparse(struct tr_spill *c, struct tr_matrix *m)
{
    struct tr_matrix *to = &c->data->state->rows;
    uint64_t n = tr_matrix_nonzeros(m), at = c->nonzero;
    if (n > c->nonzeros - c->nonzero) return TR_OK; /* tr_spill_end() says it */
    if (c->prunes && !c->expands) tr_columns_apply(&c->seen, c->first_index, m);
    for (uint64_t k = 0; k < n; k++) to->column[at + k] = c->united ? c->united[m->column[k]] : m->column[k];
    if (to->value && m->value) memcpy(to->value + at, m->value, n * sizeof *to->value);
    for (uint64_t k = 0; k < n && to->value && !m->value; k++) to->value[at + k] = 1;
    to->begin[0] = 0;
    for (size_t i = 0; i < m->rows; i++) {
        c->nonzero = at + m->begin[i + 1];
        to->begin[c->row + 1] = c->nonzero;
        TR_TRY(end_row(c, m->begin[i + 1] - m->begin[i]));
    }
    return TR_OK;
}

static int write_lists_or_rows(struct tr_spill *c, struct tr_matrix *m)
{
    struct tr_matrix sparse = {0};
    if (m->begin) (void)tr_matrix_limit(m, c->first_index, c->data->columns);
    if (c->dense) return write_dense(c, m);
    if (m->begin) return write_sparse(c, m);
    int status = tr_matrix_to_sparse(m, &sparse);
    if (status == TR_OK) status = write_sparse(c, &sparse);
    tr_matrix_free(&sparse);
    return status;
}

/* Rows of a table become rows of keys in memory of their own: that of the reader is for the next ones. */
static int write_rows(struct tr_spill *c, struct tr_matrix *m)
{
    struct tr_data_state *s = c->data->state;
    struct tr_matrix keys = {.rows = m->rows, .columns = m->columns};
    uint64_t unknown = 0;
    if (!c->makes_keys) return write_lists_or_rows(c, m);
    TR_TRY(TR_NEW(&keys.value, m->rows * m->columns));
    memcpy(keys.value, m->value, m->rows * m->columns * sizeof *m->value);
    int status = tr_schema_expand(s->schema, c->number, &keys, &unknown);
    s->unknown += unknown;
    if (status == TR_OK) status = write_lists_or_rows(c, &keys);
    tr_matrix_free(&keys);
    return status;
}

int tr_spill_write(void *spill, struct tr_reader *r)
{
    struct tr_spill *c = spill;
    const struct tr_data_state *s = c->data->state;
    (void)TR_FAULT("data.spill");
    if (r->matrix.rows > c->rows - c->row) { /* somebody writes the text files */
        c->rows = 0;
        r->enough = true;
        return TR_OK;
    }
    if (s->blocks == 0 && c->row == 0) TR_TRY(begin_block(c));
    if (s->rows.label) memcpy(s->rows.label + c->row, r->matrix.label, r->matrix.rows * sizeof(float));
    TR_TRY(write_rows(c, &r->matrix));
    send_all(c);
    return TR_OK;
}

int tr_spill_end(struct tr_spill *c)
{
    struct tr_data_state *s = c->data->state;
    if (c->row != c->rows)
        return tr_fail(TR_ERR_DATA, "%s: the files have changed while they were read", s->files.file[0].path);
    if (s->rows.begin && c->rows == 0) s->rows.begin[0] = 0;
    if (c->in_block > 0) s->block[++s->blocks] = (struct tr_data_block){c->row, 0};
    if (s->blocks > 0) s->block[s->blocks].nonzero = c->dense ? c->row * c->data->columns : c->nonzero;
    return TR_OK;
}

void tr_spill_forget(struct tr_spill *c)
{
    for (size_t k = 0; k < c->columns; k++) {
        if (c->column) free(c->column[k].count);
        if (c->number) free(c->number[k]);
    }
    free(c->column);
    free(c->number);
    c->column = NULL;
    c->number = NULL;
    c->columns = 0;
    c->valued = c->labelled = false;
    c->rows = c->nonzeros = 0;
}

void tr_spill_free(struct tr_spill *c)
{
    tr_spill_forget(c);
    tr_columns_free(&c->seen);
    free(c->united);
}

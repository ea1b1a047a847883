#include <string.h>

#include "data/dataset.h"
#include "data/scale.h"
#include "data/schema_all.h"

/* The columns of sparse row i, or the numbers of a dense one. */
static const void *row_of(const struct tr_matrix *m, size_t i, size_t *bytes)
{
    *bytes = (m->begin ? (size_t)(m->begin[i + 1] - m->begin[i]) : m->columns) * sizeof(float);
    return m->begin ? (const void *)(m->column + m->begin[i]) : (const void *)(m->value + i * m->columns);
}

static uint64_t hash_row(const struct tr_matrix *m, size_t i)
{
    size_t n;
    const char *row = row_of(m, i, &n);
    uint64_t h = n;
    for (size_t at = 0; at < n; at += 4) {
        uint32_t word;
        memcpy(&word, row + at, sizeof word);
        h = tr_mix(h ^ word);
    }
    return h;
}

static bool are_equal(const struct tr_matrix *m, size_t i, size_t k)
{
    size_t n, other;
    const void *a = row_of(m, i, &n), *b = row_of(m, k, &other);
    if (n != other || memcmp(a, b, n) != 0) return false;
    return !m->begin || !m->value || memcmp(m->value + m->begin[i], m->value + m->begin[k], n) == 0;
}

/* Moves row i to place `to`, before it or its own. */
static void move_row(struct tr_matrix *m, size_t i, size_t to)
{
    uint64_t from = m->begin ? m->begin[i] : i * m->columns, at = m->begin ? m->begin[to] : to * m->columns;
    size_t n = m->begin ? (size_t)(m->begin[i + 1] - from) : m->columns;
    if (m->column) memmove(m->column + at, m->column + from, n * sizeof *m->column);
    if (m->value) memmove(m->value + at, m->value + from, n * sizeof *m->value);
    if (m->label) m->label[to] = m->label[i];
    if (m->begin) m->begin[to + 1] = at + n;
}

/* Keeps the first n rows, or those that differ from all before. */
static int keep_rows(struct tr_matrix *m, size_t n, bool distinct)
{
    uint64_t *hash;
    size_t kept = 0;
    TR_TRY(TR_NEW(&hash, m->rows));
    for (size_t i = 0; i < m->rows && kept < n; i++) {
        hash[kept] = distinct ? hash_row(m, i) : 0;
        bool known = false;
        for (size_t k = 0; k < kept && distinct && !known; k++)
            known = hash[k] == hash[kept] && are_equal(m, i, k);
        if (!known) move_row(m, i, kept++);
    }
    free(hash);
    m->rows = kept;
    return TR_OK;
}

static int read_rows(const tr_data *data, size_t most, struct tr_column_seen *seen, struct tr_matrix *m)
{
    const struct tr_data_state *s = data->state;
    struct tr_reader_options options = tr_data_reading(data, data);
    struct tr_read_report report;
    options.most_rows = most;
    options.seen = seen;
    TR_TRY(tr_read_matrix(&s->files, 0, 1, &options, m, &report));
    tr_ids_free(&report.labels.bits);
    if (m->begin)
        (void)tr_matrix_limit(m, data->format == TR_FORMAT_HDF5 ? 0 : data->first_index,
                              data->columns); /* columns that training knows */
    return s->full && !s->schema ? tr_matrix_make_dense(m, (size_t)data->columns) : TR_OK;
}

/* Reads from the beginning, twice as much each time until enough rows differ. */
static int read_first(const tr_data *data, size_t n, bool distinct, struct tr_column_seen **seen,
                      struct tr_matrix *m)
{
    if (data->state->schema && !(*seen = tr_schema_seen(data->state->schema))) return TR_ERR_SYSTEM;
    for (size_t most = n;; most *= 2) {
        TR_TRY(read_rows(data, most, *seen, m));
        size_t found = m->rows;
        TR_TRY(keep_rows(m, n, distinct));
        if (m->rows >= n || found < most) return TR_OK;
        tr_matrix_free(m);
    }
}

/* Rank `root`, a worker, reads. */
static int root_of(const tr_context *tr)
{
    return tr->layout.worker_rank[0];
}

/* Rows of keys of those of a table, which one has read. */
static int make_keys(const tr_data *data, const struct tr_column_seen *seen, struct tr_matrix *m)
{
    const struct tr_data_state *s = data->state;
    bool mine = s->tr->rank == root_of(s->tr);
    if (!s->schema) return TR_OK;
    TR_TRY(tr_schema_expand_more(data, seen, mine && m->rows > 0 ? m : NULL));
    return tr_agree(s->tr,
                    mine && s->full && m->begin ? tr_matrix_make_dense(m, (size_t)data->columns) : TR_OK);
}

/* The rows that the root has, and nobody else. */
static int tell_rows(tr_context *tr, struct tr_matrix *m)
{
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, root_of(tr), &m->columns, sizeof m->columns));
    return tr_replicate_rows(tr, TR_SET_ALL, m, NULL);
}

/* Workers know the scale, and one tells the others what came out. */
static int scale_rows(const tr_data *data, struct tr_matrix *m)
{
    tr_context *tr = data->state->tr;
    size_t n = tr_matrix_nonzeros(m);
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? tr_scale_matrix(data, data->state->scale, m) : TR_OK));
    if (!m->value) TR_TRY(TR_NEW(&m->value, n));
    return tr_broadcast(tr, TR_SET_ALL, tr->layout.worker_rank[0], m->value, n * sizeof *m->value);
}

int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows)
{
    tr_context *tr = data->state->tr;
    struct tr_matrix m = {0};
    if (data->row_numbers > 0) return tr_fail(TR_ERR_INTERNAL, "first rows are those of libsvm and csv data");
    struct tr_column_seen *seen = NULL;
    int status =
        tr_agree(tr, tr->rank == root_of(tr) && n > 0 ? read_first(data, n, distinct, &seen, &m) : TR_OK);
    if (status == TR_OK) status = make_keys(data, seen, &m);
    if (data->state->schema) tr_schema_seen_free(&seen, data->state->schema);
    if (status == TR_OK) status = tell_rows(tr, &m);
    if (status == TR_OK && data->state->scale) status = scale_rows(data, &m);
    if (status == TR_OK && data->state->full && data->state->form & TR_DATA_SPARSE)
        status = tr_matrix_make_sparse(&m);
    if (status == TR_OK) status = TR_NEW(rows, 1);
    if (status != TR_OK) tr_matrix_free(&m);
    else if (m.begin) **rows = (tr_batch){m.rows, m.begin, m.column, m.value, m.label, NULL, NULL};
    else **rows = (tr_batch){.n = m.rows, .label = m.label, .dense = m.value};
    return status;
}

void tr_batch_free(tr_batch **rows)
{
    if (!*rows) return;
    const void *parts[] = {(*rows)->begin, (*rows)->column, (*rows)->value, (*rows)->label, (*rows)->dense};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free((void *)(uintptr_t)parts[i]);
    free(*rows);
    *rows = NULL;
}

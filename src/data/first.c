#include "data/dataset.h"

#include <string.h>

/* Rows as rank 0 has read them and all get them. */
struct rows {
    struct tr_csr csr;
    struct tr_dense dense;
};

static size_t row_bytes(const struct tr_data_state *s, const struct rows *r, size_t i, const void **begin)
{
    if (s->format == TR_FORMAT_CSV) {
        *begin = r->dense.value + i * r->dense.columns;
        return r->dense.columns * sizeof *r->dense.value;
    }
    *begin = r->csr.column + r->csr.begin[i];
    return (size_t)(r->csr.begin[i + 1] - r->csr.begin[i]) * sizeof *r->csr.column;
}

static uint64_t hash_bytes(const void *bytes, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word;
        memcpy(&word, (const char *)bytes + i, sizeof word);
        h = tr_mix(h ^ word);
    }
    return h;
}

static bool are_equal(const struct tr_data_state *s, const struct rows *r, size_t i, size_t k)
{
    const void *a, *b;
    size_t n = row_bytes(s, r, i, &a);
    if (row_bytes(s, r, k, &b) != n || memcmp(a, b, n) != 0) return false;
    if (s->format == TR_FORMAT_CSV || !r->csr.value) return true;
    return memcmp(r->csr.value + r->csr.begin[i], r->csr.value + r->csr.begin[k], n) == 0;
}

/* Moves row i to place `to`, before it or its own. */
static void move_row(const struct tr_data_state *s, struct rows *r, size_t i, size_t to)
{
    if (s->format == TR_FORMAT_CSV) {
        size_t n = r->dense.columns;
        memmove(r->dense.value + to * n, r->dense.value + i * n, n * sizeof *r->dense.value);
        if (r->dense.label) r->dense.label[to] = r->dense.label[i];
        return;
    }
    struct tr_csr *c = &r->csr;
    size_t n = (size_t)(c->begin[i + 1] - c->begin[i]);
    memmove(c->column + c->begin[to], c->column + c->begin[i], n * sizeof *c->column);
    if (c->value) memmove(c->value + c->begin[to], c->value + c->begin[i], n * sizeof *c->value);
    if (c->label) c->label[to] = c->label[i];
    c->begin[to + 1] = c->begin[to] + n;
}

static size_t count_rows(const struct tr_data_state *s, const struct rows *r)
{
    return s->format == TR_FORMAT_CSV ? r->dense.rows : r->csr.rows;
}

/* Keeps the first n rows, or those that differ from all before. */
static int keep_rows(const struct tr_data_state *s, struct rows *r, size_t n, bool distinct)
{
    uint64_t *hash;
    size_t rows = count_rows(s, r), kept = 0;
    TR_TRY(TR_NEW(&hash, rows));
    for (size_t i = 0; i < rows && kept < n; i++) {
        const void *bytes;
        size_t size = row_bytes(s, r, i, &bytes);
        hash[kept] = distinct ? hash_bytes(bytes, size) : 0;
        bool known = false;
        for (size_t k = 0; k < kept && distinct && !known; k++)
            known = hash[k] == hash[kept] && are_equal(s, r, i, k);
        if (!known) move_row(s, r, i, kept++);
    }
    free(hash);
    if (s->format == TR_FORMAT_CSV) r->dense.rows = kept;
    else r->csr.rows = kept;
    return TR_OK;
}

static int read_rows(const tr_data *data, size_t most, struct rows *r)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    bool skip = job->data.on_error == TR_ON_ERROR_SKIP;
    struct tr_read_report report;
    if (s->format == TR_FORMAT_CSV) {
        struct tr_csv_options options = {
            .skip_errors = skip, .label = job->data.label, .shape = s->shape, .most_rows = most};
        return tr_csv_read(&s->files, 0, 1, &options, &r->dense, &report);
    }
    struct tr_libsvm_options options = {
        .skip_errors = skip, .lowest_index = data->first_index, .most_rows = most};
    TR_TRY(tr_libsvm_read(&s->files, 0, 1, &options, &r->csr, &report));
    uint64_t kept = 0, k = 0; /* only columns that training knows */
    for (size_t i = 0; i < r->csr.rows; i++) {
        for (uint64_t end = r->csr.begin[i + 1]; k < end; k++) {
            uint32_t column = r->csr.column[k] - data->first_index;
            if (column >= data->columns) continue;
            r->csr.column[kept] = column;
            if (r->csr.value) r->csr.value[kept] = r->csr.value[k];
            kept++;
        }
        r->csr.begin[i + 1] = kept;
    }
    return TR_OK;
}

static void free_rows(struct rows *r)
{
    tr_csr_free(&r->csr);
    tr_dense_free(&r->dense);
}

/* Reads from the beginning, twice as much each time until enough rows differ. */
static int read_first(const tr_data *data, size_t n, bool distinct, struct rows *r)
{
    for (size_t most = n;; most *= 2) {
        TR_TRY(read_rows(data, most, r));
        size_t found = count_rows(data->state, r);
        TR_TRY(keep_rows(data->state, r, n, distinct));
        if (count_rows(data->state, r) >= n || found < most) return TR_OK;
        free_rows(r);
    }
}

/* An array that rank 0 has and others get; NULL stays so. */
static int tell(tr_context *tr, const void *from, size_t n, size_t unit, const void **to)
{
    uint64_t total, present = from != NULL;
    void *all;
    MPI_Request request;
    MPI_Ibcast(&present, 1, MPI_UINT64_T, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to read the first rows"));
    if (!present) return TR_OK;
    TR_TRY(tr_spread(tr, tr->world, from, n, unit, &all, &total));
    *to = all;
    return TR_OK;
}

static int tell_rows(tr_context *tr, const struct rows *r, tr_batch *b)
{
    uint64_t n = r->csr.rows + r->dense.rows;
    MPI_Request request;
    MPI_Ibcast(&n, 1, MPI_UINT64_T, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to read the first rows"));
    b->n = (size_t)n;
    const struct tr_csr *c = &r->csr;
    const struct tr_dense *d = &r->dense;
    size_t nonzeros = tr_csr_nonzeros(c);
    const float *label = c->label ? c->label : d->label;
    TR_TRY(tell(tr, c->begin, c->begin ? c->rows + 1 : 0, sizeof *c->begin, (const void **)&b->begin));
    TR_TRY(tell(tr, c->column, nonzeros, sizeof *c->column, (const void **)&b->column));
    TR_TRY(tell(tr, c->value, nonzeros, sizeof *c->value, (const void **)&b->value));
    TR_TRY(tell(tr, label, label ? c->rows + d->rows : 0, sizeof *label, (const void **)&b->label));
    return tell(tr, d->value, d->rows * d->columns, sizeof *d->value, (const void **)&b->dense);
}

int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows)
{
    tr_context *tr = data->state->tr;
    struct rows r = {.csr = {0}};
    tr_batch *b;
    if (data->row_numbers > 0) return tr_fail(TR_ERR_INTERNAL, "first rows are those of libsvm and csv data");
    TR_TRY(TR_NEW(&b, 1));
    int status = tr_agree(tr, tr->rank == 0 && n > 0 ? read_first(data, n, distinct, &r) : TR_OK);
    if (status == TR_OK) status = tell_rows(tr, &r, b);
    free_rows(&r);
    if (status == TR_OK) *rows = b;
    else tr_batch_free(&b);
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

/* The rows of a worker as models use them: mini-batches, numbers, the first rows of the files, a description. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/schema_all.h"
#include "table/codec.h"

/* ---- mini-batches ---- */

void tr_batches_free(struct tr_batches *b)
{
    void *arrays[] = {b->order, b->begin, b->column, b->value, b->label, b->weight};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *b = (struct tr_batches){0};
}

/* Allocates the arrays for the largest batch of the pass. */
static int batches_allocate(const tr_data *data, struct tr_batches *b)
{
    const tr_batch *rows = &data->rows;
    size_t most = 0;
    TR_TRY(TR_GROW(&b->begin, &b->begin_capacity, b->size + 1));
    TR_TRY(TR_GROW(&b->label, &b->label_capacity, b->size));
    if (rows->weight) TR_TRY(TR_GROW(&b->weight, &b->weight_capacity, b->size));
    if (rows->dense) return TR_GROW(&b->value, &b->value_capacity, b->size * (size_t)data->columns);
    for (size_t first = 0; first < b->end; first += b->size) {
        size_t sum = 0, end = tr_min_size(first + b->size, b->end);
        for (size_t i = first; i < end; i++)
            sum += (size_t)(rows->begin[b->order[i] + 1] - rows->begin[b->order[i]]);
        most = tr_max_size(most, sum);
    }
    TR_TRY(TR_GROW(&b->column, &b->column_capacity, most));
    return rows->value ? TR_GROW(&b->value, &b->value_capacity, most) : TR_OK;
}

int tr_data_shuffle(tr_data *data, const tr_worker *me, size_t rows, uint64_t pass)
{
    struct tr_batches *b = &((struct tr_data_user *)(void *)data)->batches;
    size_t first = tr_data_part_begin(data, me), n = tr_data_part_end(data, me) - first;
    struct tr_rng rng;
    if (rows == 0) return tr_fail(TR_ERR_CONFIG, "mini-batches of 0 rows, expected 1 at least");
    if (n >= UINT32_MAX)
        return tr_fail(TR_ERR_SYSTEM, "a worker has more than 2^32 - 2 rows: use more workers");
    TR_TRY(TR_GROW(&b->order, &b->order_capacity, n));
    tr_rng_seed(&rng, data->state->tr->job->seed, (uint64_t)me->worker, pass);
    tr_rng_permutation(&rng, b->order, n);
    for (size_t i = 0; i < n; i++) b->order[i] += (uint32_t)first;
    b->next = 0;
    b->end = n;
    b->size = tr_min_size(rows, n);
    return n > 0 ? batches_allocate(data, b) : TR_OK;
}

static void batches_copy_row(const tr_data *data, struct tr_batches *b, size_t row, size_t to)
{
    const tr_batch *rows = &data->rows;
    if (rows->label) b->label[to] = rows->label[row];
    if (rows->weight) b->weight[to] = rows->weight[row];
    if (rows->dense) {
        size_t n = (size_t)data->columns;
        memcpy(b->value + to * n, rows->dense + row * n, n * sizeof *b->value);
        return;
    }
    uint64_t from = rows->begin[row], n = rows->begin[row + 1] - from, at = b->begin[to];
    memcpy(b->column + at, rows->column + from, n * sizeof *b->column);
    if (rows->value) memcpy(b->value + at, rows->value + from, n * sizeof *b->value);
    b->begin[to + 1] = at + n;
}

bool tr_data_next(tr_data *data, tr_batch *batch)
{
    struct tr_batches *b = &((struct tr_data_user *)(void *)data)->batches;
    const tr_batch *rows = &data->rows;
    size_t n = tr_min_size(b->size, b->end - b->next);
    if (n == 0) return false;
    b->begin[0] = 0;
    for (size_t i = 0; i < n; i++) batches_copy_row(data, b, b->order[b->next + i], i);
    b->next += n;
    *batch =
        (tr_batch){.n = n, .label = rows->label ? b->label : NULL, .weight = rows->weight ? b->weight : NULL};
    if (rows->dense) {
        batch->dense = b->value;
    } else {
        batch->begin = b->begin;
        batch->column = b->column;
        batch->value = rows->value ? b->value : NULL;
    }
    return true;
}

/* ---- numbers of rows ---- */

/* A run of lines, and the worker that has read it. */
struct read {
    struct tr_read_run run;
    uint64_t worker, at; /* the worker's index of its first row */
};

static int runs_by_place(const void *a, const void *b)
{
    const struct tr_read_run *x = &((const struct read *)a)->run, *y = &((const struct read *)b)->run;
    if (x->file != y->file) return x->file > y->file ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

int tr_number_rows(tr_data *data, const struct tr_read_runs *runs)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct read *mine, *all = NULL;
    size_t members = (size_t)tr->layout.group_size, group = (size_t)tr->me.group * members, capacity = 0;
    uint64_t worker = group + (size_t)tr->me.member, at = 0, n = 0, number = 0, *before;
    TR_TRY(TR_NEW(&mine, runs->n));
    for (size_t i = 0; i < runs->n; at += runs->run[i++].rows)
        mine[i] = (struct read){runs->run[i], worker, at};
    int status = tr_gather_to_all(tr, TR_SET_WORKERS, mine, runs->n, sizeof *mine, (void **)&all, &n);
    free(mine);
    TR_TRY(status);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, runs_by_place);

    /* this worker holds its own rows, or those of its group: the rows of member 0 first */
    bool own = tr->job->data.partition == TR_DATA_HORIZONTAL;
    uint64_t first = own ? worker : group, end = own ? worker + 1 : group + members;
    status = TR_NEW(&before, members + 1);
    for (uint64_t i = 0; i < n && status == TR_OK && !own; i++)
        if (all[i].worker >= first && all[i].worker < end)
            before[all[i].worker - first + 1] += all[i].run.rows;
    for (size_t m = 0; m < members && status == TR_OK; m++) before[m + 1] += before[m];
    for (uint64_t i = 0; i < n && status == TR_OK; number += all[i++].run.rows) {
        const struct read *r = &all[i];
        if (r->worker < first || r->worker >= end || r->run.rows == 0) continue;
        status = TR_GROW(&s->stretch, &capacity, s->stretches + 1);
        if (status == TR_OK)
            s->stretch[s->stretches++] =
                (struct tr_stretch){number, (size_t)(before[r->worker - first] + r->at), (size_t)r->run.rows};
    }
    free(before);
    free(all);
    return status;
}

void tr_data_numbers(const tr_data *data, uint64_t *number)
{
    const struct tr_data_state *s = data->state;
    for (size_t i = 0; data->row && i < data->rows.n; i++) number[i] = data->row[i];
    for (size_t i = 0; !data->row && i < s->stretches; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++) number[s->stretch[i].at + r] = s->stretch[i].first + r;
}

int tr_data_row_numbers(const tr_data *data, uint64_t **number)
{
    TR_TRY(TR_NEW(number, data->rows.n));
    tr_data_numbers(data, *number);
    return TR_OK;
}

/* Copies values from the order of rows to the order of their numbers, or back. */
static void values_reorder(const struct tr_data_state *s, size_t size, char *values, char *sorted, bool back)
{
    for (size_t i = 0; i < s->stretches; i++) {
        size_t bytes = s->stretch[i].n * size;
        char *here = values + s->stretch[i].at * size;
        memcpy(back ? here : sorted, back ? sorted : here, bytes);
        sorted += bytes;
    }
}

int tr_data_keep(const tr_data *data, tr_snapshot *snapshot, const char *name, enum tr_dtype dtype,
                 void *values)
{
    const struct tr_data_state *s = data->state;
    size_t n = data->rows.n, size = tr_dtype_size(dtype);
    if (data->row_numbers > 0)
        return tr_snapshot_rows(snapshot, name, dtype, data->row_numbers, 1, data->row, 0, n, values);
    uint64_t *row = NULL;
    char *sorted = NULL;
    int status = TR_NEW(&row, n);
    for (size_t i = 0, k = 0; i < s->stretches && status == TR_OK; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++) row[k++] = s->stretch[i].first + r;
    if (status == TR_OK) status = TR_NEW(&sorted, n * size);
    if (status == TR_OK && !tr_snapshot_restores(snapshot)) values_reorder(s, size, values, sorted, false);
    if (status == TR_OK)
        status = tr_snapshot_rows(snapshot, name, dtype, data->total_rows, 1, row, 0, n, sorted);
    if (status == TR_OK && tr_snapshot_restores(snapshot)) values_reorder(s, size, values, sorted, true);
    free(row);
    free(sorted);
    return status;
}

/* ---- the first rows of the files ---- */

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

/* Moves row i to index `to` <= i. */
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

/* Reads from the beginning of the files, twice as many rows each time until enough of them differ. */
static int read_first_rows(const tr_data *data, size_t n, bool distinct, struct tr_column_seen **seen,
                           struct tr_matrix *m)
{
    const struct tr_data_state *s = data->state;
    if (s->schema && !(*seen = tr_schema_seen(s->schema))) return TR_ERR_SYSTEM;
    for (size_t most = n;; most *= 2) {
        struct tr_reader_options options = tr_data_reading(data, data);
        struct tr_read_report report;
        options.most_rows = most;
        options.seen = *seen;
        TR_TRY(tr_read_matrix(&s->files, 0, 1, &options, m, &report));
        tr_ids_free(&report.labels.bits);
        if (m->begin) /* only columns of the training data */
            (void)tr_matrix_limit(m, data->format == TR_FORMAT_HDF5 ? 0 : data->first_index, data->columns);
        if (s->full && !s->schema) TR_TRY(tr_matrix_make_dense(m, (size_t)data->columns));
        size_t found = m->rows;
        TR_TRY(keep_rows(m, n, distinct));
        if (m->rows >= n || found < most) return TR_OK;
        tr_matrix_free(m);
    }
}

int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows)
{
    const struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    int root = tr->layout.worker_rank[0];
    struct tr_matrix m = {0};
    struct tr_column_seen *seen = NULL;
    bool reads = tr->rank == root;
    if (data->row_numbers > 0) return tr_fail(TR_ERR_INTERNAL, "first rows are those of libsvm and csv data");
    int status = tr_agree(tr, reads && n > 0 ? read_first_rows(data, n, distinct, &seen, &m) : TR_OK);
    if (status == TR_OK && s->schema) { /* rows of a table become rows of keys */
        status = tr_schema_expand_more(data, seen, reads && m.rows > 0 ? &m : NULL);
        bool dense = reads && s->full && m.begin;
        if (status == TR_OK)
            status = tr_agree(tr, dense ? tr_matrix_make_dense(&m, (size_t)data->columns) : TR_OK);
    }
    if (s->schema) tr_schema_seen_free(&seen, s->schema);
    if (status == TR_OK) status = tr_broadcast(tr, TR_SET_ALL, root, &m.columns, sizeof m.columns);
    if (status == TR_OK) status = tr_replicate_rows(tr, TR_SET_ALL, &m, NULL); /* no other rank has rows */
    if (status == TR_OK && s->scale) { /* only workers know the scale */
        size_t values = tr_matrix_nonzeros(&m);
        status = tr_agree(tr, tr_is(tr, TR_SLAVE) ? tr_scale_matrix(data, s->scale, &m) : TR_OK);
        if (status == TR_OK && !m.value) status = TR_NEW(&m.value, values);
        if (status == TR_OK) status = tr_broadcast(tr, TR_SET_ALL, root, m.value, values * sizeof *m.value);
    }
    if (status == TR_OK && s->full && s->form & TR_DATA_SPARSE) status = tr_matrix_make_sparse(&m);
    if (status == TR_OK) status = TR_NEW(rows, 1);
    if (status != TR_OK) tr_matrix_free(&m);
    else if (m.begin) **rows = (tr_batch){m.rows, m.begin, m.column, m.value, m.label, NULL, NULL};
    else **rows = (tr_batch){.n = m.rows, .label = m.label, .dense = m.value};
    return status;
}

void tr_batch_free(tr_batch **rows)
{
    if (!*rows) return;
    const void *arrays[] = {(*rows)->begin, (*rows)->column, (*rows)->value, (*rows)->label, (*rows)->dense};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free((void *)(uintptr_t)arrays[i]);
    free(*rows);
    *rows = NULL;
}

/* ---- description ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What rows, columns and non-zeros are called. */
struct words {
    const char *rows, *columns, *nonzeros;
};

static struct words words_of(const tr_data *data)
{
    switch (data->format) {
    case TR_FORMAT_CSV: return (struct words){"rows", "columns", "numbers"};
    case TR_FORMAT_HDF5:
        if (data->state->full) return (struct words){"rows", "columns", "numbers"};
        return (struct words){"rows", "features", "non-zeros"};
    case TR_FORMAT_RATINGS: return (struct words){"users", "items", "ratings"};
    case TR_FORMAT_DOCWORD: return (struct words){"documents", "words", "counts"};
    default: return (struct words){"rows", "features", "non-zeros"};
    }
}

static uint64_t nonzeros_here(const tr_data *data)
{
    if (data->rows.n == 0) return 0;
    return data->rows.begin ? data->rows.begin[data->rows.n] : data->rows.n * data->columns;
}

/* An earlier start of the job has read the data, or another team has made the same rows. */
static bool is_found(const struct tr_data_state *s)
{
    return s->cached && s->cached->found;
}

/* text: the spread of rows and of non-zeros over the workers. */
static void say_data(const tr_data *data, const char *what, char text[2][96])
{
    tr_context *tr = data->state->tr;
    struct words words = words_of(data);
    char tokens[64] = "", read[96] = "in memory already";
    char label[32]; /* as wide as all labels before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    if (data->format == TR_FORMAT_DOCWORD)
        snprintf(tokens, sizeof tokens, ", %.0f tokens", data->total_values);
    bool on_disk = data->state->on_disk;
    const struct tr_node_rows *node = data->state->node_rows;
    if (node && strcmp(node->task, tr->team ? tr->team : "") != 0)
        snprintf(read, sizeof read, "rows of task %s%s", node->task,
                 is_found(data->state) ? ", where another has them" : "");
    else if (node && is_found(data->state)) snprintf(read, sizeof read, "where another task has them");
    else if (!node && data->state->store->opened == 1)
        snprintf(read, sizeof read, "%s in %.2f s",
                 is_found(data->state) ? on_disk ? "found on disk" : "found in memory"
                 : on_disk             ? "read, and written to disk,"
                                       : "read",
                 data->state->load_seconds);
    tr_say(tr, "%-14s %llu %s%s, %llu %s, %llu %s%s, %s", label, (unsigned long long)data->total_rows,
           data->dense ? "dense " : "", words.rows, (unsigned long long)data->columns, words.columns,
           (unsigned long long)data->total_nonzeros, words.nonzeros, tokens, read);
    if (tr_layout_workers(&tr->layout) > 1)
        tr_say(tr, "each worker:   %s %s, %s %s (min / median / max)", words.rows, text[0], words.nonzeros,
               text[1]);
    if (data->state->schema && !data->state->test) tr_schema_say(data);
    tr_scale_say(data);
    if (data->skipped)
        tr_say(tr, "%-14s %llu malformed records left out", label, (unsigned long long)data->skipped);
    if (data->state->unlabelled)
        tr_say(tr, "%-14s %llu rows without a label left out", label,
               (unsigned long long)data->state->unlabelled);
    if (data->state->unknown)
        tr_say(tr, "%-14s %llu values of categories are not among those of the training data", label,
               (unsigned long long)data->state->unknown);
}

/* Minimum, median and maximum over the workers of number k, 0 or 1. */
static int say_spread(const tr_context *tr, const uint64_t *all, int k, char text[96])
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    uint64_t *sorted;
    TR_TRY(TR_NEW(&sorted, workers));
    for (size_t w = 0; w < workers; w++) sorted[w] = all[2 * tr->layout.worker_rank[w] + k];
    qsort(sorted, workers, sizeof *sorted, by_size);
    snprintf(text, 96, "%llu / %llu / %llu", (unsigned long long)sorted[0],
             (unsigned long long)sorted[workers / 2], (unsigned long long)sorted[workers - 1]);
    free(sorted);
    return TR_OK;
}

int tr_data_describe(const tr_data *data, const char *what)
{
    tr_context *tr = data->state->tr;
    uint64_t mine[2] = {data->rows.n, nonzeros_here(data)}, *all;
    char text[2][96];
    TR_TRY(TR_NEW(&all, 2 * (size_t)tr->size));
    int status = tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all);
    for (int k = 0; k < 2 && status == TR_OK; k++) status = say_spread(tr, all, k, text[k]);
    if (status == TR_OK) say_data(data, what, text);
    free(all);
    return status;
}

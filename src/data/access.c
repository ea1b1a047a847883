/* The rows of a worker as models use them: mini-batches, numbers, the first rows of the files, a description. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "data/suspects.h"
#include "data/dataset.h"
#include "data/schema.h"
#include "table/codec.h"

/* ---- mini-batches ---- */

void tr_batches_free(struct tr_batches *b)
{
    void *arrays[] = {b->order, b->begin, b->column, b->value, b->label, b->weight, b->offset};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    *b = (struct tr_batches){0};
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
    if (n == 0) return TR_OK;

    /* allocate arrays of the size of the largest batch of the pass */
    const tr_batch *all = &data->rows;
    size_t most = 0;
    TR_TRY(TR_GROW(&b->begin, &b->begin_capacity, b->size + 1));
    TR_TRY(TR_GROW(&b->label, &b->label_capacity, b->size));
    if (all->weight) TR_TRY(TR_GROW(&b->weight, &b->weight_capacity, b->size));
    if (all->offset) TR_TRY(TR_GROW(&b->offset, &b->offset_capacity, b->size));
    if (all->dense) return TR_GROW(&b->value, &b->value_capacity, b->size * (size_t)data->columns);
    for (size_t at = 0; at < n; at += b->size) {
        size_t sum = 0, end = tr_min_size(at + b->size, n);
        for (size_t i = at; i < end; i++)
            sum += (size_t)(all->begin[b->order[i] + 1] - all->begin[b->order[i]]);
        most = tr_max_size(most, sum);
    }
    TR_TRY(TR_GROW(&b->column, &b->column_capacity, most));
    return all->value ? TR_GROW(&b->value, &b->value_capacity, most) : TR_OK;
}

bool tr_data_next(tr_data *data, tr_batch *batch)
{
    struct tr_batches *b = &((struct tr_data_user *)(void *)data)->batches;
    const tr_batch *rows = &data->rows;
    size_t n = tr_min_size(b->size, b->end - b->next);
    if (n == 0) return false;
    b->begin[0] = 0;
    for (size_t i = 0; i < n; i++) {
        size_t row = b->order[b->next + i];
        if (rows->label) b->label[i] = rows->label[row];
        if (rows->weight) b->weight[i] = rows->weight[row];
        if (rows->offset) b->offset[i] = rows->offset[row];
        if (rows->dense) {
            size_t columns = (size_t)data->columns;
            memcpy(b->value + i * columns, rows->dense + row * columns, columns * sizeof *b->value);
            continue;
        }
        uint64_t from = rows->begin[row], length = rows->begin[row + 1] - from, at = b->begin[i];
        memcpy(b->column + at, rows->column + from, length * sizeof *b->column);
        if (rows->value) memcpy(b->value + at, rows->value + from, length * sizeof *b->value);
        b->begin[i + 1] = at + length;
    }
    b->next += n;
    *batch = (tr_batch){.n = n,
                        .label = rows->label ? b->label : NULL,
                        .weight = rows->weight ? b->weight : NULL,
                        .offset = rows->offset ? b->offset : NULL};
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

/* A run of rows (reader.h), and the worker that has read it. */
struct read {
    struct tr_read_run run;
    uint64_t worker, at; /* at: index of the run's first row among the rows that the worker has read */
};

static int runs_by_place(const void *a, const void *b)
{
    const struct tr_read_run *x = &((const struct read *)a)->run, *y = &((const struct read *)b)->run;
    if (x->file != y->file) return x->file > y->file ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

int tr_number_rows(tr_data *data, const struct tr_read_runs *runs, size_t *own)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_FREED struct read *mine = NULL, *all = NULL;
    TR_FREED uint64_t *before = NULL;
    size_t members = (size_t)tr->layout.group_size, group = (size_t)tr->me.group * members, capacity = 0;
    uint64_t worker = group + (size_t)tr->me.member, at = 0, n = 0, number = 0;
    TR_TRY(TR_NEW(&mine, runs->n));
    for (size_t i = 0; i < runs->n; at += runs->run[i++].rows)
        mine[i] = (struct read){runs->run[i], worker, at};
    TR_TRY(tr_gather_to_all(tr, TR_SET_WORKERS, mine, runs->n, sizeof *mine, (void **)&all, &n));
    if (n > 0) qsort(all, (size_t)n, sizeof *all, runs_by_place);

    /* the worker stores its own rows, or those of its group: first the rows of member 0, then of member 1, and so on */
    bool alone = tr->job->data.partition == TR_DATA_HORIZONTAL;
    uint64_t first = alone ? worker : group, end = alone ? worker + 1 : group + members;
    TR_TRY(TR_NEW(&before, members + 1));
    for (uint64_t i = 0; i < n && !alone; i++)
        if (all[i].worker >= first && all[i].worker < end)
            before[all[i].worker - first + 1] += all[i].run.rows;
    for (size_t m = 0; m < members; m++) before[m + 1] += before[m];
    *own = (size_t)before[worker - first];
    for (uint64_t i = 0; i < n; number += all[i++].run.rows) {
        const struct read *r = &all[i];
        if (r->worker < first || r->worker >= end || r->run.rows == 0) continue;
        TR_TRY(TR_GROW(&s->stretch, &capacity, s->stretches + 1));
        s->stretch[s->stretches++] =
            (struct tr_stretch){number, (size_t)(before[r->worker - first] + r->at), (size_t)r->run.rows};
    }
    return TR_OK;
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

/* Copies `values`, one element per row, to `sorted`, where they are in the order of row numbers; back: copies sorted to values. */
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
    size_t n = data->rows.n, size = tr_dtype_size(dtype), k = 0;
    bool restores = tr_snapshot_restores(snapshot);
    if (data->row_numbers > 0)
        return tr_snapshot_rows(snapshot, name, dtype, data->row_numbers, 1, data->row, 0, n, values);
    TR_FREED uint64_t *row = NULL;
    TR_FREED char *sorted = NULL;
    TR_TRY(TR_NEW(&row, n));
    for (size_t i = 0; i < s->stretches; i++)
        for (size_t r = 0; r < s->stretch[i].n; r++) row[k++] = s->stretch[i].first + r;
    TR_TRY(TR_NEW(&sorted, n * size));
    if (!restores) values_reorder(s, size, values, sorted, false);
    TR_TRY(tr_snapshot_rows(snapshot, name, dtype, data->total_rows, 1, row, 0, n, sorted));
    if (restores) values_reorder(s, size, values, sorted, true);
    return TR_OK;
}

/* ---- the first rows of the files ---- */

/* Returns the columns of sparse row i, or the numbers of dense row i, and sets *bytes to their size. */
static const void *row_of(const struct tr_matrix *m, size_t i, size_t *bytes)
{
    *bytes = (m->begin ? (size_t)(m->begin[i + 1] - m->begin[i]) : m->columns) * sizeof(float);
    return m->begin ? (const void *)(m->column + m->begin[i]) : (const void *)(m->value + i * m->columns);
}

/* Removes all rows except the first n; if `distinct`, except the first n rows that differ from all earlier rows. */
static int first_rows_keep(struct tr_matrix *m, size_t n, bool distinct)
{
    TR_FREED uint64_t *hash = NULL;
    size_t kept = 0;
    TR_TRY(TR_NEW(&hash, m->rows));
    for (size_t i = 0; i < m->rows && kept < n; i++) {
        size_t bytes, other;
        const char *row = row_of(m, i, &bytes);
        bool known = false;
        if (distinct) {
            uint64_t h = bytes;
            for (size_t at = 0; at < bytes; at += 4) {
                uint32_t word;
                memcpy(&word, row + at, sizeof word);
                h = tr_mix(h ^ word);
            }
            hash[kept] = h;
        }
        for (size_t k = 0; k < kept && distinct && !known; k++) {
            if (hash[k] != hash[kept]) continue;
            const void *earlier = row_of(m, k, &other);
            known = bytes == other && memcmp(row, earlier, bytes) == 0 &&
                    (!m->begin || !m->value ||
                     memcmp(m->value + m->begin[i], m->value + m->begin[k], bytes) == 0);
        }
        if (known) continue;
        uint64_t from = m->begin ? m->begin[i] : i * m->columns,
                 to = m->begin ? m->begin[kept] : kept * m->columns;
        size_t values = bytes / sizeof(float);
        if (m->column) memmove(m->column + to, m->column + from, values * sizeof *m->column);
        if (m->value) memmove(m->value + to, m->value + from, values * sizeof *m->value);
        if (m->label) m->label[kept] = m->label[i];
        kept++;
        if (m->begin) m->begin[kept] = to + values;
    }
    m->rows = kept;
    return TR_OK;
}

/* Reads rows from the beginning of the files, and doubles their number until n (distinct: n different) rows are found. */
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
        if (m->begin) /* removes non-zeros of columns that the training data do not have */
            (void)tr_matrix_limit(m, data->format == TR_FORMAT_HDF5 ? 0 : data->first_index, data->columns);
        if (s->full && !s->schema) TR_TRY(tr_matrix_make_dense(m, (size_t)data->columns));
        size_t found = m->rows;
        TR_TRY(first_rows_keep(m, n, distinct));
        if (m->rows >= n || found < most) return TR_OK;
        tr_matrix_free(m);
    }
}

int tr_data_first_rows(const tr_data *data, size_t n, bool distinct, tr_batch **rows)
{
    const struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    int root = tr->layout.worker_rank[0];
    TR_CLOSED_BY(tr_matrix_free) struct tr_matrix m = {0};
    struct tr_column_seen *seen = NULL;
    bool reads = tr->rank == root;
    if (data->row_numbers > 0) return tr_fail(TR_ERR_INTERNAL, "first rows are those of libsvm and csv data");
    int status = tr_agree(tr, reads && n > 0 ? read_first_rows(data, n, distinct, &seen, &m) : TR_OK);
    if (status == TR_OK && s->schema) /* rows of a table become rows of keys */
        status = tr_schema_expand_more(data, seen, reads && m.rows > 0 ? &m : NULL);
    if (s->schema) tr_schema_seen_free(&seen, s->schema);
    TR_TRY(status);
    bool dense = reads && s->schema && s->full && m.begin;
    if (s->schema) TR_TRY(tr_agree(tr, dense ? tr_matrix_make_dense(&m, (size_t)data->columns) : TR_OK));
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, &m.columns, sizeof m.columns));
    TR_TRY(tr_replicate_rows(tr, TR_SET_ALL, &m, NULL)); /* `root` has all rows, the others none */
    /* only workers know how columns were scaled; the scaled rows are then sent to the other ranks */
    if (s->scale) {
        size_t values = tr_matrix_nonzeros(&m);
        TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? tr_scale_matrix(data, s->scale, &m) : TR_OK));
        if (!m.value) TR_TRY(TR_NEW(&m.value, values));
        TR_TRY(tr_broadcast(tr, TR_SET_ALL, root, m.value, values * sizeof *m.value));
    }
    if (s->full && s->form & TR_DATA_SPARSE) TR_TRY(tr_matrix_make_sparse(&m));
    TR_TRY(TR_NEW(rows, 1));
    **rows = tr_matrix_batch(&m);
    m = (struct tr_matrix){0};
    return TR_OK;
}

void tr_batch_free(tr_batch **rows)
{
    if (!*rows) return;
    const void *arrays[] = {(*rows)->begin, (*rows)->column, (*rows)->value, (*rows)->label, (*rows)->dense};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free((void *)(uintptr_t)arrays[i]);
    free(*rows);
    *rows = NULL;
}

/* The number of notes about suspicious columns so far. */
enum { SUSPECTS_SAID = 3 };
struct suspects_said {
    const tr_context *tr;
    int n;
};

static void say_suspect(void *state, const char *text)
{
    struct suspects_said *said = state;
    if (said->n++ < SUSPECTS_SAID) tr_say(said->tr, "note:          %s", text);
    else if (said->n == SUSPECTS_SAID + 1)
        tr_say(said->tr, "note:          more of this kind: see trireme count with data.label");
}

/* Prints notes about suspicious columns of training data, and about rows of files of data.test that are training rows. Rank 0. If
 * the files cannot be read a second time there are no notes. */
static void say_suspects(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    bool integers = true;
    size_t both = 0, rows = 0;
    for (size_t i = 0; i < data->labels; i++) integers = integers && data->label[i] == rintf(data->label[i]);
    bool classes = tr_data_labels_are_names(data) || s->form & TR_DATA_CLASSES ||
                   (s->form & TR_DATA_FEW_CLASSES && tr_labels_may_be_classes(data->labels, integers));
    struct tr_suspect_table table = {&s->files, s->heads, s->schema, &s->bindings, classes};
    if (!s->test) {
        (void)tr_suspects_find(&table, say_suspect, &(struct suspects_said){.tr = tr});
        return;
    }
    const struct tr_data_state *train = NULL;
    for (const struct tr_store *t = tr->stores ? tr->stores->first : NULL; t; t = t->next)
        if (!t->data.state->test && t->data.state->schema == s->schema) train = t->data.state;
    if (!train || s->held_out.to > 0) return;
    struct tr_suspect_table learnt = {&train->files, train->heads, train->schema, &train->bindings, classes};
    if (tr_suspects_overlap(&learnt, &table, &both, &rows) == TR_OK && both >= 20 && both * 5 >= rows)
        tr_say(tr,
               "note:          of %zu rows of data.test, %zu are equal to rows of data.train: data.test=10%% "
               "holds out other rows",
               rows, both);
}

/* ---- description ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int tr_data_describe(const tr_data *data, const char *what)
{
    const struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_batch *b = &data->rows;
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    uint64_t mine[2] = {b->n};
    TR_FREED uint64_t *all = NULL, *sorted = NULL;
    char text[2][96];
    mine[1] = b->n == 0 ? 0 : b->begin ? b->begin[b->n] : b->n * data->columns;
    TR_TRY(TR_NEW(&all, 2 * (size_t)tr->size));
    TR_TRY(tr_all_gather(tr, TR_SET_ALL, mine, sizeof mine, all));
    TR_TRY(TR_NEW(&sorted, workers));
    for (int k = 0; k < 2; k++) {
        for (size_t w = 0; w < workers; w++) sorted[w] = all[2 * tr->layout.worker_rank[w] + k];
        qsort(sorted, workers, sizeof *sorted, by_size);
        snprintf(text[k], sizeof text[k], "%llu / %llu / %llu", (unsigned long long)sorted[0],
                 (unsigned long long)sorted[workers / 2], (unsigned long long)sorted[workers - 1]);
    }
    bool table = data->format == TR_FORMAT_CSV || (data->format == TR_FORMAT_HDF5 && s->full);
    const char *const *words =
        table                               ? (const char *const[]){"rows", "columns", "numbers"}
        : data->format == TR_FORMAT_RATINGS ? (const char *const[]){"users", "items", "ratings"}
        : data->format == TR_FORMAT_DOCWORD ? (const char *const[]){"documents", "words", "counts"}
                                            : (const char *const[]){"rows", "features", "non-zeros"};
    char tokens[64] = "", read[96] = "in memory already";
    char label[32]; /* has the width of the labels that are printed before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    if (data->format == TR_FORMAT_DOCWORD)
        snprintf(tokens, sizeof tokens, ", %.0f tokens", data->total_values);
    const struct tr_node_rows *node = s->node_rows;
    /* the rows come from the files of an earlier start or of another team */
    bool found = s->cached && s->cached->found;
    if (node && strcmp(node->task, tr->team ? tr->team : "") != 0)
        snprintf(read, sizeof read, "rows of task %s%s", node->task, found ? ", where another has them" : "");
    else if (node && found) snprintf(read, sizeof read, "where another task has them");
    else if (!node && s->store->opened == 1)
        snprintf(read, sizeof read, "%s in %.2f s",
                 found        ? s->on_disk ? "found on disk" : "found in memory"
                 : s->on_disk ? "read, and written to disk,"
                              : "read",
                 s->load_seconds);
    tr_say(tr, "%-14s %llu %s%s, %llu %s, %llu %s%s, %s", label, (unsigned long long)data->total_rows,
           data->dense ? "dense " : "", words[0], (unsigned long long)data->columns, words[1],
           (unsigned long long)data->total_nonzeros, words[2], tokens, read);
    if (tr_layout_workers(&tr->layout) > 1)
        tr_say(tr, "each worker:   %s %s, %s %s (min / median / max)", words[0], text[0], words[2], text[1]);
    if (s->schema && !s->test) tr_schema_say(data);
    if (s->schema && tr->rank == 0 && !node && !found && s->store->opened == 1) say_suspects(data);
    tr_scale_say(data);
    if (data->skipped)
        tr_say(tr, "%-14s %llu malformed records left out", label, (unsigned long long)data->skipped);
    if (s->unlabelled)
        tr_say(tr, "%-14s %llu rows without a label left out", label, (unsigned long long)s->unlabelled);
    if (s->unknown)
        tr_say(tr, "%-14s %llu values of categories are not among those of the training data", label,
               (unsigned long long)s->unknown);
    return TR_OK;
}

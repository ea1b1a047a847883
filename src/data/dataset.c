#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "data/libsvm.h"
#include "data/renumber.h"
#include "data/text.h"

/* What all ranks learn of all parts; MPI_SUM, MPI_MIN and MPI_MAX put them together. */
struct totals {
    uint64_t sum[4]; /* rows, non-zeros, skipped, bytes */
    uint32_t lowest, highest;
};

static int all_reduce(tr_context *tr, void *numbers, int n, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, numbers, n, type, op, tr->world, &request);
    return tr_wait_request(tr, &request, "all workers to read their data");
}

static int agree_on_totals(tr_context *tr, const struct tr_libsvm_report *report, struct totals *t)
{
    *t = (struct totals){{report->rows, report->nonzeros, report->skipped, report->text_bytes},
                         report->lowest,
                         report->highest};
    TR_TRY(all_reduce(tr, t->sum, 4, MPI_UINT64_T, MPI_SUM));
    TR_TRY(all_reduce(tr, &t->lowest, 1, MPI_UINT32_T, MPI_MIN));
    return all_reduce(tr, &t->highest, 1, MPI_UINT32_T, MPI_MAX);
}

/* ---- labels ---- */

struct seen {
    float value;
    uint32_t file;
    uint64_t offset;
};

static int by_value(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Puts together the distinct labels of all workers, ascending; three stand for more than two. Kept beside the
 * third: where it is, because a binary model will want to say so. */
static int agree_on_labels(tr_context *tr, const struct tr_files *files,
                           const struct tr_libsvm_report *report, tr_data *data)
{
    enum { MOST = 3 };
    struct seen mine[MOST] = {{0}}, *all;
    int n = (int)report->labels, *counts;
    for (int i = 0; i < n; i++)
        mine[i] = (struct seen){report->label[i].value, (uint32_t)report->label[i].place.file,
                                report->label[i].place.offset};
    TR_TRY(TR_NEW(&all, (size_t)tr->size * MOST));
    TR_TRY(TR_NEW(&counts, (size_t)tr->size));
    MPI_Request request;
    MPI_Iallgather(&n, 1, MPI_INT, counts, 1, MPI_INT, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to compare labels"));
    MPI_Iallgather(mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all workers to compare labels"));
    struct seen kept[MOST];
    size_t distinct = 0;
    for (int rank = 0; rank < tr->size; rank++)
        for (int i = 0; i < counts[rank]; i++) {
            struct seen *s = &all[rank * MOST + i];
            bool known = false;
            for (size_t k = 0; k < distinct; k++) known = known || kept[k].value == s->value;
            if (!known && distinct < MOST) kept[distinct++] = *s;
        }
    free(all);
    free(counts);
    data->labels = distinct;
    if (distinct == MOST) {
        uint64_t line = 0;
        if (tr->rank == 0) TR_TRY(tr_files_line(files, kept[2].file, kept[2].offset, &line));
        TR_TRY(tr_format(&data->state->third_label, "%s:%llu: label %g is the third kind after %g and %g",
                         files->file[kept[2].file].path, (unsigned long long)line, (double)kept[2].value,
                         (double)kept[0].value, (double)kept[1].value));
    }
    qsort(kept, distinct, sizeof *kept, by_value);
    for (size_t k = 0; k < distinct; k++) data->label[k] = kept[k].value;
    return TR_OK;
}

/* ---- keys ---- */

/* Takes away columns that training has not seen: they have no weight. */
static void drop_columns(struct tr_csr *csr, uint64_t columns)
{
    uint64_t kept = 0, k = 0;
    for (size_t i = 0; i < csr->rows; i++) {
        uint64_t end = csr->begin[i + 1];
        for (; k < end; k++) {
            if (csr->column[k] >= columns) continue;
            csr->column[kept] = csr->column[k];
            if (csr->value) csr->value[kept] = csr->value[k];
            kept++;
        }
        csr->begin[i + 1] = kept;
    }
}

static int by_key(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The union of the members' keys, and this member's columns numbered in it. */
static int unite_keys(tr_context *tr, struct tr_csr *csr, uint32_t **keys, size_t *n)
{
    int members = tr->layout.group_size, mine = (int)*n, *counts, *at;
    TR_TRY(TR_NEW(&counts, (size_t)members));
    TR_TRY(TR_NEW(&at, (size_t)members));
    MPI_Request request;
    MPI_Iallgather(&mine, 1, MPI_INT, counts, 1, MPI_INT, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to unite keys"));
    size_t total = 0;
    for (int m = 0; m < members; m++) {
        at[m] = (int)total;
        total += (size_t)counts[m];
    }
    uint32_t *all, *to;
    TR_TRY(TR_NEW(&all, total));
    TR_TRY(TR_NEW(&to, *n));
    MPI_Iallgatherv(*keys, mine, MPI_UINT32_T, all, counts, at, MPI_UINT32_T, tr->group, &request);
    TR_TRY(tr_wait_request(tr, &request, "the group to unite keys"));
    qsort(all, total, sizeof *all, by_key);
    size_t distinct = 0;
    for (size_t i = 0; i < total; i++)
        if (i == 0 || all[i] != all[i - 1]) all[distinct++] = all[i];
    for (size_t i = 0, u = 0; i < *n; i++) {
        while (all[u] < (*keys)[i]) u++;
        to[i] = (uint32_t)u;
    }
    tr_columns_apply(csr, to);
    free(to);
    free(counts);
    free(at);
    free(*keys);
    *keys = all;
    *n = distinct;
    return TR_OK;
}

/* Columns stay as they are. */
static int take_all_keys(tr_data *data)
{
    TR_TRY(TR_NEW(&data->keys, (size_t)data->columns));
    for (uint64_t i = 0; i < data->columns; i++) data->keys[i] = i;
    data->n_keys = (size_t)data->columns;
    return TR_OK;
}

/* The columns that occur in this worker's rows, or in those of its group, are numbered. */
static int take_needed_keys(tr_data *data, bool of_group)
{
    struct tr_data_state *s = data->state;
    uint32_t *keys = NULL;
    size_t n = 0;
    TR_TRY(tr_renumber(&s->csr, 0, (uint32_t)(data->columns - 1), &keys, &n));
    if (of_group) TR_TRY(unite_keys(s->tr, &s->csr, &keys, &n));
    TR_TRY(TR_NEW(&data->keys, n));
    for (size_t i = 0; i < n; i++) data->keys[i] = keys[i];
    data->n_keys = n;
    free(keys);
    return TR_OK;
}

/* From columns as in the file to numbers of this worker's keys. */
static int number_keys(tr_data *data)
{
    struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    bool group = tr->layout.group_size > 1, vertical = group && tr->job->data.partition == TR_DATA_VERTICAL;
    for (uint64_t k = 0; data->first_index > 0 && k < tr_csr_nonzeros(&s->csr); k++)
        s->csr.column[k] -= data->first_index;
    drop_columns(&s->csr, data->columns);
    if (vertical) TR_TRY(tr_exchange_columns(s->tr, &s->csr));
    if (tr->job->table.prune || vertical) TR_TRY(take_needed_keys(data, group && !vertical));
    else TR_TRY(take_all_keys(data));
    data->rows = (tr_batch){s->csr.rows, s->csr.begin, s->csr.column, s->csr.value, s->csr.label};
    return TR_OK;
}

/* ---- reading ---- */

static int decide_columns(tr_data *data, const struct totals *totals, const tr_data *like)
{
    const tr_job *job = data->state->tr->job;
    if (totals->sum[0] == 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it",
                       like ? job->data.test.item[0] : job->data.train.item[0]);
    data->first_index = like                                    ? like->first_index
                        : job->data.index_base == TR_INDEX_ZERO ? 0
                        : job->data.index_base == TR_INDEX_ONE  ? 1
                                                                : totals->lowest > 0;
    uint64_t found =
        totals->highest >= totals->lowest ? (uint64_t)totals->highest + 1 - data->first_index : 1;
    data->columns = like ? like->columns : job->data.features ? job->data.features : found;
    if (!like && job->data.features && found > job->data.features)
        return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data has feature %u",
                       tr_job_where(job, "data.features"), (unsigned long long)job->data.features,
                       totals->highest);
    return TR_OK;
}

/* ---- how far it is ---- */

/* Of the worker that tells it to rank 0: by a call, or by messages about once a second and one more, ALL_READ. */
struct gauge {
    tr_context *tr;
    const char *what;
    uint64_t total; /* stored bytes of all workers */
    double begin, sent;
};

#define ALL_READ UINT64_MAX

static int teller(const tr_context *tr)
{
    return tr->layout.place[0].roles & TR_SLAVE ? 0 : tr->layout.worker_rank[0];
}

static int tell_loading(const struct gauge *g, uint64_t bytes)
{
    struct tr_loading progress = {g->what, (double)bytes * tr_layout_workers(&g->tr->layout),
                                  (double)g->total, tr_now() - g->begin};
    if (progress.done > progress.total) progress.done = progress.total;
    return g->tr->loading ? g->tr->loading(g->tr->loading_state, &progress) : TR_OK;
}

static int send_loading(tr_context *tr, uint64_t bytes)
{
    MPI_Request request;
    MPI_Isend(&bytes, 1, MPI_UINT64_T, 0, TR_TAG_LOADING, tr->wire, &request);
    return tr_wait_request(tr, &request, "rank 0 to hear how much has been read");
}

static int measure(void *gauge, uint64_t bytes)
{
    struct gauge *g = gauge;
    if (g->tr->rank == 0) return tell_loading(g, bytes);
    if (tr_now() - g->sent < 1) return TR_OK;
    g->sent = tr_now();
    return send_loading(g->tr, bytes);
}

/* Rank 0, which has nothing to read, listens to the teller until that is done. */
static int listen(struct gauge *g)
{
    int status = TR_OK;
    for (;;) {
        uint64_t bytes;
        MPI_Request request;
        MPI_Irecv(&bytes, 1, MPI_UINT64_T, teller(g->tr), TR_TAG_LOADING, g->tr->wire, &request);
        TR_TRY(tr_wait_request(g->tr, &request, "a worker to read its data"));
        if (bytes == ALL_READ) return status;
        if (status == TR_OK) status = tell_loading(g, bytes);
    }
}

void tr_on_loading(tr_context *tr, tr_loading_fn *loading, void *who)
{
    tr->loading = loading;
    tr->loading_state = who;
}

/* ---- reading, each its part ---- */

static int read_part(tr_data *data, const struct tr_files *files, const tr_data *like,
                     struct tr_libsvm_report *report)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct gauge gauge = {tr, like ? "test data" : "training data", files->total, tr_now(), tr_now()};
    *report = (struct tr_libsvm_report){.lowest = UINT32_MAX};
    if (!tr_is(tr, TR_SLAVE)) return tr->rank == 0 ? listen(&gauge) : TR_OK;
    bool one = like ? like->first_index == 1 : tr->job->data.index_base == TR_INDEX_ONE;
    bool tells = tr->rank == teller(tr);
    struct tr_libsvm_options options = {.skip_errors = tr->job->data.on_error == TR_ON_ERROR_SKIP,
                                        .lowest_index = one,
                                        .progress = tells ? measure : NULL,
                                        .progress_state = &gauge};
    size_t worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member);
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    if (tr->job->data.order == TR_ORDER_DEALT) options.deal = tr_files_chunk(files, workers);
    int status = tr_libsvm_read(files, worker, workers, &options, &s->csr, report);
    if (tells && tr->rank != 0) TR_TRY(send_loading(tr, ALL_READ));
    return status;
}

int tr_data_files(const tr_job *job, const struct tr_job_list *patterns, struct tr_files *files)
{
    if (patterns->n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from", job->path);
    char **paths;
    TR_TRY(TR_NEW(&paths, patterns->n));
    int status = TR_OK;
    for (size_t i = 0; i < patterns->n && status == TR_OK; i++)
        status = tr_files_find(patterns->item[i], job->data.folders.item, job->data.folders.n, &paths[i]);
    if (status == TR_OK) status = tr_files_open(paths, patterns->n, files);
    for (size_t i = 0; i < patterns->n; i++) free(paths[i]);
    free(paths);
    return status;
}

static int fill(tr_context *tr, const struct tr_files *files, const tr_data *like, tr_data *data)
{
    struct tr_libsvm_report report;
    struct totals totals;
    TR_TRY(tr_agree(tr, read_part(data, files, like, &report)));
    TR_TRY(agree_on_totals(tr, &report, &totals));
    data->total_rows = totals.sum[0];
    data->total_nonzeros = totals.sum[1];
    data->skipped = totals.sum[2];
    TR_TRY(tr_agree(tr, decide_columns(data, &totals, like)));
    TR_TRY(agree_on_labels(tr, files, &report, data));
    return tr_agree(tr, tr_is(tr, TR_SLAVE) ? number_keys(data) : TR_OK);
}

int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **out)
{
    double begin = tr_now();
    struct tr_files files = {0};
    tr_data *data = NULL;
    int status = TR_NEW(&data, 1);
    if (status == TR_OK) status = TR_NEW(&data->state, 1);
    if (status == TR_OK)
        status = tr_data_files(tr->job, part == TR_DATA_TRAIN ? &tr->job->data.train : &tr->job->data.test,
                               &files);
    status = tr_agree(tr, status);
    if (status == TR_OK) {
        data->state->tr = tr;
        status = fill(tr, &files, like, data);
        data->state->load_seconds = tr_now() - begin;
    }
    tr_files_close(&files);
    if (status == TR_OK) *out = data;
    else tr_data_close(&data);
    return status;
}

const char *tr_data_third_label(const tr_data *data)
{
    return data->state->third_label ? data->state->third_label : "";
}

void tr_data_close(tr_data **data)
{
    if (!*data) return;
    if ((*data)->state) {
        tr_csr_free(&(*data)->state->csr);
        free((*data)->state->third_label);
        free((*data)->state);
    }
    free((*data)->keys);
    free(*data);
    *data = NULL;
}

/* ---- how it lies ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int tr_data_describe(const tr_data *data, const char *what)
{
    tr_context *tr = data->state->tr;
    uint64_t mine[2] = {data->rows.n, data->rows.n ? data->rows.begin[data->rows.n] : 0}, *all = NULL,
             *sorted = NULL;
    if (tr->rank == 0) {
        TR_TRY(TR_NEW(&all, 2 * (size_t)tr->size));
        TR_TRY(TR_NEW(&sorted, (size_t)tr->size));
    }
    MPI_Request request;
    MPI_Igather(mine, 2, MPI_UINT64_T, all, 2, MPI_UINT64_T, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to count their rows"));
    if (tr->rank != 0) return TR_OK;
    char text[2][96];
    int workers = tr_layout_workers(&tr->layout);
    for (int k = 0; k < 2; k++) {
        for (int w = 0; w < workers; w++) sorted[w] = all[2 * tr->layout.worker_rank[w] + k];
        qsort(sorted, (size_t)workers, sizeof *sorted, by_number);
        snprintf(text[k], sizeof text[k], "%llu / %llu / %llu", (unsigned long long)sorted[0],
                 (unsigned long long)sorted[workers / 2], (unsigned long long)sorted[workers - 1]);
    }
    char label[32]; /* as wide as all labels before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    tr_say(tr, "%-14s %llu rows, %llu features, %llu non-zeros, read in %.2f s", label,
           (unsigned long long)data->total_rows, (unsigned long long)data->columns,
           (unsigned long long)data->total_nonzeros, data->state->load_seconds);
    if (workers > 1)
        tr_say(tr, "each worker:   rows %s, non-zeros %s (min / median / max)", text[0], text[1]);
    if (data->skipped)
        tr_say(tr, "%-14s %llu malformed records left out", label, (unsigned long long)data->skipped);
    free(all);
    free(sorted);
    return TR_OK;
}

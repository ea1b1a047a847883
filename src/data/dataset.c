#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "data/cache.h"
#include "data/deal.h"
#include "data/libsvm.h"
#include "data/renumber.h"
#include "data/store.h"
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

static int agree_on_totals(tr_context *tr, const struct tr_read_report *report, struct totals *t)
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
static int agree_on_labels(tr_context *tr, const struct tr_files *files, const struct tr_read_report *report,
                           tr_data *data)
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

/* What a worker has read. */
struct part {
    struct tr_read_report report;
    struct tr_read_runs runs;
    struct tr_triples triples;
    uint64_t *records; /* of each file: ratings, docword */
    bool text_rows, text_columns;
    size_t columns; /* of triples: what they have are less than this */
    uint32_t *keys; /* of rows that a group is to have once: the columns that occur, ascending, … */
    size_t n_keys;  /* … which the rows number */
};

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

/* The union of the members' keys, and this member's columns numbered in it. */
static int unite_keys(tr_context *tr, struct tr_csr *csr, uint32_t **keys, size_t *n)
{
    uint32_t *piece, *all, *to;
    size_t n_piece;
    uint64_t distinct;
    TR_TRY(tr_unite_keys(tr, *keys, *n, &piece, &n_piece));
    TR_TRY(tr_spread(tr, tr->group, piece, n_piece, sizeof *piece, (void **)&all, &distinct));
    free(piece);
    TR_TRY(TR_NEW(&to, *n));
    for (size_t i = 0, u = 0; i < *n; i++) {
        while (all[u] < (*keys)[i]) u++;
        to[i] = (uint32_t)u;
    }
    tr_columns_apply(csr, to);
    free(to);
    free(*keys);
    *keys = all;
    *n = (size_t)distinct;
    return TR_OK;
}

/* Columns stay as they are. */
static int take_all_keys(tr_data *data)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, (size_t)data->columns));
    for (uint64_t i = 0; i < data->columns; i++) keys[i] = i;
    data->keys = keys;
    data->n_keys = (size_t)data->columns;
    return TR_OK;
}

/* The columns that occur in this worker's rows, or in those of its group, are numbered. */
static int take_needed_keys(tr_data *data, bool of_group)
{
    struct tr_data_state *s = data->state;
    uint32_t *columns = NULL;
    tr_key *keys;
    size_t n = 0;
    TR_TRY(tr_renumber(&s->csr, 0, (uint32_t)(data->columns - 1), &columns, &n));
    if (of_group) TR_TRY(unite_keys(s->tr, &s->csr, &columns, &n));
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = columns[i];
    data->keys = keys;
    data->n_keys = n;
    free(columns);
    return TR_OK;
}

static bool is_group(const tr_context *tr, int partition)
{
    return tr->layout.group_size > 1 && tr->job->data.partition == partition;
}

/* All rows of the group, in this member's own memory. */
static bool has_copy(const tr_context *tr)
{
    return is_group(tr, TR_DATA_REPLICATED) && !tr_store_shares(tr);
}

/* Columns of sparse rows become numbers of this worker's keys. Of rows that a group has once: of the columns that it has
 * read itself, until all are together. */
static int number_keys(tr_data *data, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    if (tr_store_shares(tr))
        return tr->job->table.prune
                   ? tr_renumber(&s->csr, 0, (uint32_t)(data->columns - 1), &part->keys, &part->n_keys)
                   : TR_OK;
    bool vertical = is_group(tr, TR_DATA_VERTICAL);
    if (vertical) TR_TRY(tr_exchange_columns(tr, &s->csr));
    if (tr->job->table.prune || vertical) TR_TRY(take_needed_keys(data, is_group(tr, TR_DATA_HORIZONTAL)));
    else TR_TRY(take_all_keys(data));
    return TR_OK;
}

static void show_rows(tr_data *data)
{
    struct tr_data_state *s = data->state;
    data->rows = (tr_batch){s->csr.rows, s->csr.begin, s->csr.column, s->csr.value, s->csr.label, NULL};
    if (s->format == TR_FORMAT_CSV)
        data->rows = (tr_batch){.n = s->dense.rows, .label = s->dense.label, .dense = s->dense.value};
    data->row = s->row_number;
}

/* LIBSVM rows, as the file has them. */
static int finish_sparse(tr_data *data, struct part *part)
{
    struct tr_data_state *s = data->state;
    for (uint64_t k = 0; data->first_index > 0 && k < tr_csr_nonzeros(&s->csr); k++)
        s->csr.column[k] -= data->first_index;
    drop_columns(&s->csr, data->columns);
    if (has_copy(s->tr)) TR_TRY(tr_replicate_rows(s->tr, &s->csr, NULL));
    return number_keys(data, part);
}

static int finish_dense(tr_data *data)
{
    struct tr_data_state *s = data->state;
    if (tr_store_shares(s->tr)) return TR_OK;
    if (has_copy(s->tr)) TR_TRY(tr_replicate_dense(s->tr, &s->dense));
    return take_all_keys(data);
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

/* Where a worker reads: as the options of all readers have it. */
struct place {
    size_t worker, workers;
    uint64_t deal;
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
};

static int read_libsvm(tr_data *data, const struct place *at, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    bool one = like ? like->first_index == 1 : job->data.index_base == TR_INDEX_ONE;
    struct tr_libsvm_options options = {.skip_errors = job->data.on_error == TR_ON_ERROR_SKIP,
                                        .lowest_index = one,
                                        .progress = at->progress,
                                        .progress_state = at->progress_state,
                                        .deal = at->deal,
                                        .runs = &part->runs};
    return tr_libsvm_read(&s->files, at->worker, at->workers, &options, &s->csr, &part->report);
}

static struct tr_csv_options csv_options(const struct tr_data_state *s)
{
    const tr_job *job = s->tr->job;
    return (struct tr_csv_options){
        .skip_errors = job->data.on_error == TR_ON_ERROR_SKIP, .label = job->data.label, .shape = s->shape};
}

static int read_csv(tr_data *data, const struct place *at, struct part *part)
{
    struct tr_data_state *s = data->state;
    struct tr_csv_options options = csv_options(s);
    options.progress = at->progress;
    options.progress_state = at->progress_state;
    options.deal = at->deal;
    options.runs = &part->runs;
    return tr_csv_read(&s->files, at->worker, at->workers, &options, &s->dense, &part->report);
}

/* Each a contiguous share: the order of the files tells which of two equal pairs is the last, and the rows are dealt
 * afterwards. */
static int read_triples(tr_data *data, const struct place *at, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    struct tr_triples_options options = {.format = s->format,
                                         .skip_errors = s->tr->job->data.on_error == TR_ON_ERROR_SKIP,
                                         .text_rows = part->text_rows,
                                         .text_columns = part->text_columns,
                                         .known_rows = like != NULL,
                                         .known_columns = like != NULL,
                                         .shape = s->shape,
                                         .progress = at->progress,
                                         .progress_state = at->progress_state};
    struct tr_triples_report report;
    TR_TRY(tr_triples_read(&s->files, at->worker, at->workers, &options, &part->triples, part->records,
                           &report));
    part->text_rows |= report.text_rows;
    part->text_columns |= report.text_columns;
    part->report = (struct tr_read_report){.rows = report.records,
                                           .nonzeros = report.records,
                                           .lowest = UINT32_MAX,
                                           .text_bytes = report.text_bytes,
                                           .skipped = report.skipped,
                                           .first_skipped = report.first_skipped};
    return TR_OK;
}

static bool is_triples(const struct tr_data_state *s)
{
    return s->format == TR_FORMAT_RATINGS || s->format == TR_FORMAT_DOCWORD;
}

static int read_part(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct gauge gauge = {tr, like ? "test data" : "training data", s->files.total, tr_now(), tr_now()};
    part->report = (struct tr_read_report){.lowest = UINT32_MAX};
    if (!tr_is(tr, TR_SLAVE)) return tr->rank == 0 ? listen(&gauge) : TR_OK;
    bool tells = tr->rank == teller(tr);
    struct place at = {.worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member),
                       .workers = (size_t)tr_layout_workers(&tr->layout),
                       .progress = tells ? measure : NULL,
                       .progress_state = &gauge};
    if (tr->job->data.order == TR_ORDER_DEALT) at.deal = tr_files_chunk(&s->files, at.workers);
    int status = is_triples(s)                ? read_triples(data, &at, like, part)
                 : s->format == TR_FORMAT_CSV ? read_csv(data, &at, part)
                                              : read_libsvm(data, &at, like, part);
    if (tells && tr->rank != 0) TR_TRY(send_loading(tr, ALL_READ));
    return status;
}

/* ---- what the files look like: rank 0 looks for all ---- */

static int look(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    if (like) s->format = like->state->format;
    else TR_TRY(tr_look_format(job, &s->files, &s->format));
    if (s->format == TR_FORMAT_LIBSVM) return TR_NEW(&s->shape, s->files.n);
    if (job->data.partition == TR_DATA_VERTICAL && s->tr->layout.group_size > 1)
        return tr_fail(TR_ERR_CONFIG, "%s: data.partition: vertical is for data.format: libsvm",
                       tr_job_where(job, "data.partition"));
    return tr_look_shapes(&s->files, s->format, job->data.header, &s->shape);
}

static int tell_shapes(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    MPI_Request request;
    MPI_Ibcast(&s->format, 1, MPI_INT, 0, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "rank 0 to look at the data"));
    data->format = (enum tr_format)s->format;
    if (tr->rank != 0) TR_TRY(TR_NEW(&s->shape, s->files.n));
    MPI_Ibcast(s->shape, (int)(s->files.n * sizeof *s->shape), MPI_BYTE, 0, tr->world, &request);
    return tr_wait_request(tr, &request, "rank 0 to look at the data");
}

/* ---- dense rows ---- */

static int decide_dense(tr_data *data, const struct totals *totals, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    struct tr_csv_options options = csv_options(s);
    data->columns = tr_csv_columns(&s->files, &options);
    const char *path = s->files.file[0].path;
    if (totals->sum[0] == 0) return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", path);
    if (data->columns == 0)
        return tr_fail(TR_ERR_DATA, "%s: there is no column besides that of data.label", path);
    if (like && like->columns != data->columns)
        return tr_fail(TR_ERR_DATA, "%s: %llu columns%s, but the training data have %llu", path,
                       (unsigned long long)data->columns,
                       options.label != TR_LABEL_NONE ? " besides the label" : "",
                       (unsigned long long)like->columns);
    return TR_OK;
}

/* ---- ratings and bags of words ---- */

/* Reads again, as text, if somebody has found an id that is no number. */
static int read_ids(tr_data *data, const tr_data *like, struct part *part)
{
    tr_context *tr = data->state->tr;
    for (size_t i = 0; i < data->state->files.n && !like;
         i++) { /* so that nothing is read twice, as a rule */
        part->text_rows |= data->state->shape[i].text_rows;
        part->text_columns |= data->state->shape[i].text_columns;
    }
    if (like && like->row_names) part->text_rows = !tr_names_are_numbers(like->row_names);
    if (like && like->column_names) part->text_columns = !tr_names_are_numbers(like->column_names);
    for (;;) {
        int before = part->text_rows + part->text_columns, text[2];
        TR_TRY(tr_agree(tr, read_part(data, like, part)));
        text[0] = part->text_rows;
        text[1] = part->text_columns;
        TR_TRY(all_reduce(tr, text, 2, MPI_INT, MPI_LOR));
        part->text_rows = text[0];
        part->text_columns = text[1];
        if (text[0] + text[1] == before) return TR_OK;
        tr_triples_free(&part->triples);
    }
}

/* From places in what this worker has met to numbers of all workers. */
static int number_ids(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    struct tr_triples *t = &part->triples;
    uint32_t *row = NULL, *column = NULL;
    t->rows.are_text = part->text_rows;
    t->columns.are_text = part->text_columns;
    TR_TRY(TR_NEW(&row, t->rows.n));
    TR_TRY(TR_NEW(&column, t->columns.n));
    TR_TRY(tr_names_unite(s->tr, &t->rows, like ? like->row_names : NULL, row, &s->row_names));
    TR_TRY(tr_names_unite(s->tr, &t->columns, like ? like->column_names : NULL, column, &s->column_names));
    tr_ids_free(&t->rows);
    tr_ids_free(&t->columns);
    for (size_t i = 0; i < t->n; i++) {
        t->triple[i].row = row[t->triple[i].row];
        t->triple[i].column = column[t->triple[i].column];
    }
    free(row);
    free(column);
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    data->row_numbers = tr_names_first(s->row_names) + tr_names_count(s->row_names);
    data->columns = tr_names_first(s->column_names) + tr_names_count(s->column_names);
    part->columns = (size_t)data->columns;
    return TR_OK;
}

/* Whether pieces of a file's text have gone to several readers in turns. */
static bool is_in_turns(const struct tr_files *files, size_t readers)
{
    for (size_t i = 0; i < files->n; i++) {
        struct tr_file_part part = {.readers = 0};
        if (files->file[i].gzip) tr_files_part(files, i, 0, readers, &part);
        if (part.readers > 1) return true;
    }
    return false;
}

/* Rows at their workers, columns ascending, pairs once. */
static int finish_triples(tr_data *data, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    bool ratings = s->format == TR_FORMAT_RATINGS;
    bool in_turns = ratings && is_in_turns(&s->files, (size_t)tr_layout_workers(&tr->layout));
    struct tr_deal deal;
    TR_TRY(tr_deal_plan(tr, &part->triples, data->row_numbers, job->data.order == TR_ORDER_DEALT, &deal));
    TR_TRY(tr_deal_triples(tr, &deal, s->files.n, in_turns, &part->triples));
    tr_deal_free(&deal);
    TR_TRY(tr_triples_to_rows(&part->triples, data->row_numbers, part->columns, &s->csr, &s->row_number));
    if (!ratings) drop_columns(&s->csr, data->columns);
    tr_rows_merge(&s->csr, ratings ? job->data.duplicates : TR_DUPLICATES_SUM);
    double sum = 0;
    for (uint64_t k = 0; k < tr_csr_nonzeros(&s->csr); k++) sum += (double)s->csr.value[k];
    data->total_values = sum;
    data->total_rows = s->csr.rows;
    data->total_nonzeros = tr_csr_nonzeros(&s->csr);
    if (has_copy(tr)) TR_TRY(tr_replicate_rows(tr, &s->csr, &s->row_number));
    return number_keys(data, part);
}

/* What the headers say; test data have the words of training. */
static int number_documents(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    size_t first = 0;
    while (first + 1 < s->files.n && s->files.file[first].size == 0) first++;
    part->columns = (size_t)s->shape[first].words;
    data->columns = like ? like->columns : part->columns;
    data->row_numbers = tr_docword_base(&s->files, s->shape, s->files.n);
    return tr_docword_check(&s->files, s->shape, part->records);
}

static int fill_triples(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct totals totals;
    TR_TRY(tr_agree(tr, TR_NEW(&part->records, s->files.n)));
    TR_TRY(read_ids(data, like, part));
    TR_TRY(agree_on_totals(tr, &part->report, &totals));
    data->skipped = totals.sum[2];
    TR_TRY(all_reduce(tr, part->records, (int)s->files.n, MPI_UINT64_T, MPI_SUM));
    int status = TR_OK;
    if (s->format == TR_FORMAT_DOCWORD) status = number_documents(data, like, part);
    if (status == TR_OK && totals.sum[0] == 0)
        status = tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it", s->files.file[0].path);
    TR_TRY(tr_agree(tr, status));
    if (s->format == TR_FORMAT_RATINGS) TR_TRY(number_ids(data, like, part));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? finish_triples(data, part) : TR_OK));
    uint64_t counts[2] = {data->total_rows, data->total_nonzeros};
    TR_TRY(all_reduce(tr, counts, 2, MPI_UINT64_T, MPI_SUM));
    data->total_rows = counts[0];
    data->total_nonzeros = counts[1];
    return all_reduce(tr, &data->total_values, 1, MPI_DOUBLE, MPI_SUM);
}

/* ---- all formats ---- */

int tr_data_files(const tr_job *job, const struct tr_job_list *patterns, struct tr_files *files)
{
    if (patterns->n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from", job->path);
    char **paths;
    TR_TRY(TR_NEW(&paths, patterns->n));
    int status = TR_OK;
    for (size_t i = 0; i < patterns->n && status == TR_OK; i++)
        status = tr_data_find(job, patterns->item[i], &paths[i]);
    if (status == TR_OK) status = tr_files_open(paths, patterns->n, files);
    for (size_t i = 0; i < patterns->n; i++) free(paths[i]);
    free(paths);
    return status;
}

int tr_data_find(const tr_job *job, const char *path, char **found)
{
    return tr_files_find(path, job->data.folders.item, job->data.folders.n, found);
}

static int fill_rows(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct totals totals;
    bool dense = s->format == TR_FORMAT_CSV;
    TR_TRY(tr_agree(tr, read_part(data, like, part)));
    TR_TRY(agree_on_totals(tr, &part->report, &totals));
    data->total_rows = totals.sum[0];
    data->total_nonzeros = totals.sum[1];
    data->skipped = totals.sum[2];
    TR_TRY(tr_agree(tr, dense ? decide_dense(data, &totals, like) : decide_columns(data, &totals, like)));
    TR_TRY(agree_on_labels(tr, &s->files, &part->report, data));
    int status = TR_OK;
    if (tr_is(tr, TR_SLAVE)) status = tr_number_rows(data, &part->runs);
    TR_TRY(tr_agree(tr, status));
    if (tr_is(tr, TR_SLAVE)) status = dense ? finish_dense(data) : finish_sparse(data, part);
    return tr_agree(tr, status);
}

static int fill(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    struct part part = {.records = NULL};
    TR_TRY(tr_agree(s->tr, s->tr->rank == 0 ? look(data, like) : TR_OK));
    TR_TRY(tell_shapes(data));
    int status = is_triples(s) ? fill_triples(data, like, &part) : fill_rows(data, like, &part);
    tr_triples_free(&part.triples);
    if (status == TR_OK && is_group(s->tr, TR_DATA_REPLICATED))
        status = tr_store_share(data, part.keys, part.n_keys,
                                s->format == TR_FORMAT_CSV || !s->tr->job->table.prune);
    free(part.records);
    free(part.keys);
    free(part.runs.run);
    return status;
}

/* Of a store. */
struct user {
    tr_data data; /* a copy of the store's */
    bool forgot;  /* … but for the non-zeros */
};

static int load(struct tr_store *store, struct tr_files *files, enum tr_data_part part, const tr_data *like)
{
    double begin = tr_now();
    struct tr_data_state *s = store->data.state;
    tr_lifeline_load(s->tr->lifeline);
    (void)TR_FAULT("load");
    s->files = *files;
    *files = (struct tr_files){.n = 0};
    bool found = false;
    int status =
        tr_cache_find(&store->data, part == TR_DATA_TEST ? "test data" : "training data", store->key, &found);
    if (status == TR_OK && !found) status = fill(&store->data, like);
    if (status == TR_OK && !found) status = tr_cache_keep(&store->data);
    show_rows(&store->data);
    s->load_seconds = tr_now() - begin;
    return status;
}

int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **out)
{
    struct tr_files files = {.n = 0};
    struct tr_store *store = NULL;
    struct user *user = NULL;
    bool found = false;
    int status = TR_NEW(&user, 1);
    if (status == TR_OK)
        status = tr_data_files(tr->job, part == TR_DATA_TRAIN ? &tr->job->data.train : &tr->job->data.test,
                               &files);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_store_take(tr, &files, like, &store, &found);
    if (status == TR_OK && !found) status = load(store, &files, part, like);
    tr_files_close(&files);
    if (status == TR_OK) {
        user->data = store->data;
        *out = &user->data;
        if (part == TR_DATA_TRAIN) {
            tr->trained_on.rows = user->data.total_rows;
            tr->trained_on.columns = user->data.columns;
            tr->trained_on.nonzeros = user->data.total_nonzeros;
        }
        return TR_OK;
    }
    tr_store_release(tr, &store, false);
    free(user);
    return status;
}

const char *tr_data_third_label(const tr_data *data)
{
    return data->state->third_label ? data->state->third_label : "";
}

void tr_data_forget(tr_data *data)
{
    struct user *user = (struct user *)(void *)data;
    if (user->forgot) return;
    user->forgot = true;
    data->rows.begin = NULL;
    data->rows.column = NULL;
    data->rows.value = NULL;
    tr_store_forget(data->state->store);
}

void tr_data_close(tr_data **data)
{
    struct user *user = (struct user *)(void *)*data;
    if (!user) return;
    struct tr_store *store = user->data.state->store;
    tr_store_release(user->data.state->tr, &store, user->forgot);
    free(user);
    *data = NULL;
}

/* Where the member's part of the rows begins: all are everybody's where they are replicated, and otherwise its own. */
static size_t part_begin(const tr_data *data, const tr_worker *me, int member)
{
    if (!is_group(data->state->tr, TR_DATA_REPLICATED)) return member > me->member ? data->rows.n : 0;
    return data->rows.n * (size_t)member / (size_t)me->group_size;
}

size_t tr_data_part_begin(const tr_data *data, const tr_worker *me)
{
    return part_begin(data, me, me->member);
}

size_t tr_data_part_end(const tr_data *data, const tr_worker *me)
{
    return part_begin(data, me, me->member + 1);
}

/* ---- how it lies ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What its rows, columns and non-zeros are. */
struct words {
    const char *rows, *columns, *nonzeros;
};

static struct words words_of(int format)
{
    switch (format) {
    case TR_FORMAT_CSV: return (struct words){"rows", "columns", "numbers"};
    case TR_FORMAT_RATINGS: return (struct words){"users", "items", "ratings"};
    case TR_FORMAT_DOCWORD: return (struct words){"documents", "words", "counts"};
    default: return (struct words){"rows", "features", "non-zeros"};
    }
}

/* Smallest, median and largest of what all workers hold. */
static void say_spread(const uint64_t *sorted, int workers, char text[96])
{
    snprintf(text, 96, "%llu / %llu / %llu", (unsigned long long)sorted[0],
             (unsigned long long)sorted[workers / 2], (unsigned long long)sorted[workers - 1]);
}

static uint64_t nonzeros_here(const tr_data *data)
{
    if (data->rows.n == 0) return 0;
    return data->rows.begin ? data->rows.begin[data->rows.n] : data->rows.n * data->columns;
}

/* An earlier start of the job has read it. */
static bool is_found(const struct tr_data_state *s)
{
    return s->cached && s->cached->found;
}

/* Rank 0 says it; text: of rows and of non-zeros of each worker. */
static void say_data(const tr_data *data, const char *what, char text[2][96])
{
    tr_context *tr = data->state->tr;
    struct words words = words_of(data->state->format);
    char tokens[64] = "", read[32] = "in memory already";
    char label[32]; /* as wide as all labels before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    if (data->state->format == TR_FORMAT_DOCWORD)
        snprintf(tokens, sizeof tokens, ", %.0f tokens", data->total_values);
    if (data->state->store->opened == 1)
        snprintf(read, sizeof read, "%s in %.2f s", is_found(data->state) ? "found in memory" : "read",
                 data->state->load_seconds);
    tr_say(tr, "%-14s %llu %s, %llu %s, %llu %s%s, %s", label, (unsigned long long)data->total_rows,
           words.rows, (unsigned long long)data->columns, words.columns,
           (unsigned long long)data->total_nonzeros, words.nonzeros, tokens, read);
    if (tr_layout_workers(&tr->layout) > 1)
        tr_say(tr, "each worker:   %s %s, %s %s (min / median / max)", words.rows, text[0], words.nonzeros,
               text[1]);
    if (data->skipped)
        tr_say(tr, "%-14s %llu malformed records left out", label, (unsigned long long)data->skipped);
}

int tr_data_describe(const tr_data *data, const char *what)
{
    tr_context *tr = data->state->tr;
    uint64_t mine[2] = {data->rows.n, nonzeros_here(data)}, *all = NULL, *sorted = NULL;
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
        say_spread(sorted, workers, text[k]);
    }
    say_data(data, what, text);
    free(all);
    free(sorted);
    return TR_OK;
}

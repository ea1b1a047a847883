#define _GNU_SOURCE
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "data/cache.h"
#include "data/labels.h"
#include "data/schema_all.h"
#include "data/renumber.h"
#include "data/scale.h"
#include "data/shuffle.h"
#include "data/spill.h"
#include "data/storage.h"
#include "data/store.h"
#include "data/weights.h"
#include "trireme/model.h"

static bool is_triples(const tr_data *data)
{
    return data->format == TR_FORMAT_RATINGS || data->format == TR_FORMAT_DOCWORD;
}

static bool is_dense(const tr_data *data)
{
    return data->state->full && !(data->state->form & TR_DATA_SPARSE);
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

/* What a worker has read. */
struct part {
    struct tr_read_report report;
    struct tr_read_runs runs;
    struct tr_triples triples;
    uint64_t *records; /* of each file: ratings, docword */
    bool text_rows, text_columns;
    size_t columns;              /* of triples: what they have are less than this */
    struct tr_column_seen *seen; /* csv: of each column */
    float *weight;               /* csv: of each row, where a column has them */
    uint32_t *keys;        /* of rows that a group is to have once: the columns that occur, ascending, … */
    size_t n_keys;         /* … which the rows number */
    struct tr_spill spill; /* of rows that are to lie on a disk */
    bool again;            /* they are read for the second time */
};

/* What all ranks learn of all parts. */
struct totals {
    uint64_t rows, nonzeros, skipped, unlabelled;
    int64_t lowest, highest, queries;
};

static int agree_on_totals(tr_context *tr, const struct tr_read_report *report, struct totals *t)
{
    *t = (struct totals){report->rows,   report->nonzeros, report->skipped, report->unlabelled,
                         report->lowest, report->highest,  report->queries};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &t->rows, 4));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I64, &t->lowest, 1));
    return tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &t->highest, 2);
}

/* ---- keys ---- */

/* The union of the members' keys, and the numbers in it of this member's (to be freed). */
static int unite_keys(tr_context *tr, uint32_t **keys, size_t *n, uint32_t **numbers)
{
    uint32_t *piece, *all, *to;
    size_t n_piece;
    uint64_t distinct;
    TR_TRY(tr_unite_keys(tr, *keys, *n, &piece, &n_piece));
    TR_TRY(tr_gather_to_all(tr, TR_SET_GROUP, piece, n_piece, sizeof *piece, (void **)&all, &distinct));
    free(piece);
    TR_TRY(TR_NEW(&to, *n));
    for (size_t i = 0, u = 0; i < *n; i++) {
        while (all[u] < (*keys)[i]) u++;
        to[i] = (uint32_t)u;
    }
    *numbers = to;
    free(*keys);
    *keys = all;
    *n = (size_t)distinct;
    return TR_OK;
}

/* Keys are all columns, or those of the list. */
static int take_keys(tr_data *data, const uint32_t *columns, size_t n)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = columns ? columns[i] : i;
    data->keys = keys;
    data->n_keys = n;
    return TR_OK;
}

/* Columns of sparse rows become numbers of this worker's keys. Of rows that a group has once: of the columns that it has
 * read itself, until all are together. */
static int number_keys(tr_data *data, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    bool vertical = is_group(tr, TR_DATA_VERTICAL), prune = tr->job->table.prune || vertical;
    uint32_t *columns = NULL;
    size_t n = 0;
    if (vertical) TR_TRY(tr_exchange_columns(tr, &s->rows));
    if (prune) TR_TRY(tr_renumber(&s->rows, 0, (uint32_t)(data->columns - 1), &columns, &n));
    if (tr_store_shares(tr)) {
        part->keys = columns;
        part->n_keys = n;
        return TR_OK;
    }
    uint32_t *to = NULL;
    int status = prune && is_group(tr, TR_DATA_HORIZONTAL) ? unite_keys(tr, &columns, &n, &to) : TR_OK;
    for (size_t k = 0; to && k < tr_matrix_nonzeros(&s->rows); k++) s->rows.column[k] = to[s->rows.column[k]];
    if (status == TR_OK) status = take_keys(data, columns, prune ? n : (size_t)data->columns);
    free(to);
    free(columns);
    return status;
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

struct tr_reader_options tr_data_reading(const tr_data *data, const tr_data *like)
{
    const tr_job *job = data->state->tr->job;
    bool from_one = like ? like->first_index == 1 : job->data.index_base == TR_INDEX_ONE;
    return (struct tr_reader_options){.format = data->format,
                                      .heads = data->state->heads,
                                      .skip_errors = job->data.on_error == TR_ON_ERROR_SKIP,
                                      .lowest_index = from_one,
                                      .schema = data->state->schema,
                                      .bindings = &data->state->bindings,
                                      .settled = like != NULL,
                                      .held_out = data->state->held_out,
                                      .reads_held_out = data->state->test,
                                      .seed = job->seed,
                                      .known_rows = like != NULL,
                                      .known_columns = like != NULL};
}

/* Triples: each a contiguous share, since the order of the files tells which of two equal pairs is the last, and the rows
 * are dealt afterwards. */
static int read_share(tr_data *data, const tr_data *like, struct gauge *gauge, struct part *part)
{
    struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    struct tr_reader_options options = tr_data_reading(data, like);
    size_t worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member);
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    options.progress = gauge ? measure : NULL;
    options.progress_state = gauge;
    if (is_triples(data)) {
        options.text_rows = part->text_rows;
        options.text_columns = part->text_columns;
        options.records = part->records;
        return tr_read_triples(&s->files, worker, workers, &options, &part->triples, &part->report);
    }
    if (s->on_disk) {
        options.piece = part->again ? tr_spill_write : tr_spill_note;
        options.piece_state = &part->spill;
    }
    if (!part->again) options.runs = &part->runs;
    options.seen = part->seen;
    if (s->schema && !s->test && !part->again && tr_schema_weight(s->schema) < s->schema->n)
        options.weight = &part->weight;
    if (tr->job->data.order == TR_ORDER_DEALT) options.deal = tr_files_chunk(&s->files, workers);
    struct tr_matrix none = {0};
    int status =
        tr_read_matrix(&s->files, worker, workers, &options, s->on_disk ? &none : &s->rows, &part->report);
    tr_matrix_free(&none);
    return status;
}

static int read_part(tr_data *data, const tr_data *like, struct part *part)
{
    tr_context *tr = data->state->tr;
    struct gauge gauge = {tr, like ? "test data" : "training data", data->state->files.total, tr_now(),
                          tr_now()};
    part->report = (struct tr_read_report){.lowest = UINT32_MAX};
    if (!tr_is(tr, TR_SLAVE)) return tr->rank == 0 ? listen(&gauge) : TR_OK;
    bool tells = tr->rank == teller(tr);
    int status = read_share(data, like, tells ? &gauge : NULL, part);
    if (tells && tr->rank != 0) TR_TRY(send_loading(tr, ALL_READ));
    return status;
}

/* ---- what the files look like: rank 0 looks for all ---- */

/* The first format of the model's class, or another of them that the files look like. */
static enum tr_format usual_format(const tr_job *job, enum tr_format looks)
{
    const char *const *words = job->class->data_formats;
    for (size_t i = 0; words[i]; i++)
        if (tr_format_named(words[i]) == looks) return looks;
    return tr_format_named(words[0]);
}

int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format)
{
    enum tr_format looks = TR_FORMAT_AUTO, wanted = (enum tr_format)job->data.format;
    TR_TRY(tr_format_detect(files, &looks));
    if (wanted == TR_FORMAT_AUTO) wanted = usual_format(job, looks);
    *format = wanted;
    if ((looks == TR_FORMAT_HDF5) != (wanted == TR_FORMAT_HDF5))
        return tr_fail(TR_ERR_DATA, "%s: %s, expected data.format: %s", files->file[0].path,
                       looks == TR_FORMAT_HDF5 ? "an HDF5 file" : "not an HDF5 file", tr_format_word(wanted));
    bool table = wanted == TR_FORMAT_CSV || wanted == TR_FORMAT_RATINGS,
         other = looks == TR_FORMAT_LIBSVM || looks == TR_FORMAT_DOCWORD;
    if ((table && other) || (wanted == TR_FORMAT_LIBSVM && looks == TR_FORMAT_DOCWORD) ||
        (wanted == TR_FORMAT_DOCWORD && looks == TR_FORMAT_LIBSVM))
        return tr_fail(TR_ERR_DATA, "%s: looks like data.format: %s, expected %s", files->file[0].path,
                       tr_format_word(looks), tr_format_word(wanted));
    return TR_OK;
}

static const struct tr_head *hdf5_head(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->heads[tr_heads_first(s->heads, s->files.n)];
}

/* What the job says of columns is for tables. */
static int check_keys_of_tables(const tr_job *job, enum tr_format format)
{
    const struct {
        const char *key;
        bool given;
    } keys[] = {{"data.columns", job->data.columns.n},      {"data.missing", job->data.missing.n},
                {"data.cross", job->data.cross.n},          {"data.hash", job->data.hash},
                {"data.positive", *job->data.positive},     {"data.min_count", job->data.min_count > 1},
                {"data.most_values", job->data.most_values}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && format != TR_FORMAT_CSV; i++)
        if (keys[i].given)
            return tr_fail(TR_ERR_CONFIG, "%s: %s is for csv, and the data are %s",
                           tr_job_where(job, keys[i].key), keys[i].key, tr_format_word(format));
    return TR_OK;
}

static int read_heads(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    if (like) data->format = like->format;
    else TR_TRY(tr_data_format(job, &s->files, &data->format));
    TR_TRY(check_keys_of_tables(job, data->format));
    TR_TRY(tr_heads_read(&s->files, data->format, job->data.header, &s->heads));
    bool lists =
        data->format == TR_FORMAT_LIBSVM || (data->format == TR_FORMAT_HDF5 && !hdf5_head(data)->full);
    if (!lists && is_group(s->tr, TR_DATA_VERTICAL))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.partition: vertical is for sparse rows, as those of data.format: libsvm",
                       tr_job_where(job, "data.partition"));
    return TR_OK;
}

static int tell_heads(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, &data->format, sizeof data->format));
    if (tr->rank != 0) TR_TRY(TR_NEW(&s->heads, s->files.n));
    return tr_broadcast(tr, TR_SET_ALL, 0, s->heads, s->files.n * sizeof *s->heads);
}

static int label_place(const struct tr_schema *s)
{
    return s->label == s->n                      ? TR_LABEL_NONE
           : s->label == 0                       ? TR_LABEL_FIRST
           : s->label + 1 == tr_schema_fields(s) ? TR_LABEL_LAST
                                                 : TR_LABEL_NAMED;
}

/* ---- rows: libsvm and csv ---- */

static int decide_columns(tr_data *data, const struct totals *totals, const tr_data *like)
{
    const tr_job *job = data->state->tr->job;
    data->first_index = like                                    ? like->first_index
                        : job->data.index_base == TR_INDEX_ZERO ? 0
                        : job->data.index_base == TR_INDEX_ONE  ? 1
                                                                : totals->lowest > 0;
    uint64_t found =
        totals->highest >= totals->lowest ? (uint64_t)totals->highest + 1 - data->first_index : 1;
    data->columns = like ? like->columns : job->data.features ? job->data.features : found;
    if (!like && job->data.features && found > job->data.features)
        return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data has feature %lld",
                       tr_job_where(job, "data.features"), (unsigned long long)job->data.features,
                       (long long)totals->highest);
    return TR_OK;
}

/* Lists of non-zeros may be of any columns: others than those of training are dropped. */
static int decide_hdf5_columns(tr_data *data, const tr_data *like)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    const struct tr_head *head = hdf5_head(data);
    const char *path = s->files.file[0].path;
    data->first_index = like ? like->first_index : head->from_one;
    data->columns = head->fields;
    for (size_t i = 0; i < s->files.n; i++)
        if (s->heads[i].fields > data->columns) data->columns = s->heads[i].fields;
    if (data->columns == 0) return tr_fail(TR_ERR_DATA, "%s: there is no column in it", path);
    if (like && !head->sparse && like->columns != data->columns)
        return tr_fail(TR_ERR_DATA, "%s: %llu columns, but the training data have %llu", path,
                       (unsigned long long)data->columns, (unsigned long long)like->columns);
    if (!like && job->data.features && job->data.features != data->columns &&
        (!head->sparse || job->data.features < data->columns))
        return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data have %llu columns",
                       tr_job_where(job, "data.features"), (unsigned long long)job->data.features,
                       (unsigned long long)data->columns);
    if (like) data->columns = like->columns;
    else if (job->data.features) data->columns = job->data.features;
    return TR_OK;
}

static int no_record(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    if (s->unlabelled > 0) {
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s->schema, s->schema->label, name);
        return tr_fail(TR_ERR_DATA, "%s: no row has a label in column %s", s->files.file[0].path, name);
    }
    if (s->held_out.to > 0)
        return tr_fail(TR_ERR_NO_INPUT, "%s: data.test: %s leaves no record to %s",
                       tr_job_where(job, "data.test"), job->data.test.item[0],
                       s->test ? "test with" : "learn from");
    return tr_fail(TR_ERR_NO_INPUT, "%s: there is no record in it",
                   data->format != TR_FORMAT_LIBSVM ? s->files.file[0].path
                   : s->test                        ? job->data.test.item[0]
                                                    : job->data.train.item[0]);
}

/* The columns that occur are numbered, and the file is made that the rows will lie in. */
static int prepare_spill(tr_data *data, struct tr_spill *c)
{
    tr_context *tr = data->state->tr;
    uint32_t *columns = NULL;
    size_t n = (size_t)data->columns;
    c->dense = is_dense(data);
    c->prunes = c->prunes && !c->dense;
    c->first_index = data->format == TR_FORMAT_HDF5 ? 0 : data->first_index;
    if (c->prunes) TR_TRY(tr_columns_number(&c->seen, c->first_index, data->columns, &columns, &n));
    int status =
        c->prunes && is_group(tr, TR_DATA_HORIZONTAL) ? unite_keys(tr, &columns, &n, &c->united) : TR_OK;
    if (status == TR_OK) status = take_keys(data, columns, n);
    free(columns);
    return status == TR_OK ? tr_spill_begin(c) : status;
}

/* The second reading. */
static int write_rows(tr_data *data, const tr_data *like, struct part *part)
{
    struct part again = {.spill = part->spill, .again = true};
    if (!tr_is(data->state->tr, TR_SLAVE)) return TR_OK;
    int status = read_share(data, like, NULL, &again);
    if (status == TR_OK) status = tr_spill_end(&again.spill);
    part->spill = again.spill;
    tr_ids_free(&again.report.labels.bits);
    return status;
}

static int check_positive(const tr_data *data)
{
    const struct tr_schema *s = data->state->schema;
    if (!s || !s->positive || data->labels == 2 || data->label[0] == 1) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: data.positive: no row has the label %s",
                   tr_job_where(data->state->tr->job, "data.positive"), s->positive);
}

/* A worker's own rows, or all of its group, with their columns numbered. */
static int finish_rows(tr_data *data, struct part *part)
{
    struct tr_data_state *s = data->state;
    TR_TRY(tr_number_rows(data, &part->runs));
    if (part->weight && is_group(s->tr, TR_DATA_REPLICATED))
        TR_TRY(tr_replicate(s->tr, TR_SET_GROUP, (void **)&part->weight, part->report.rows, sizeof(float)));
    s->weight = part->weight;
    part->weight = NULL;
    if (s->on_disk) return prepare_spill(data, &part->spill);
    if (s->full && !is_dense(data)) TR_TRY(tr_matrix_make_sparse(&s->rows));
    if (is_dense(data) && tr_store_shares(s->tr)) return TR_OK;
    if (has_copy(s->tr)) TR_TRY(tr_replicate_rows(s->tr, &s->rows, NULL));
    return is_dense(data) ? take_keys(data, NULL, (size_t)data->columns) : number_keys(data, part);
}

/* A worker's own rows, columns counted from 0. */
static int shape_rows(tr_data *data)
{
    struct tr_matrix *m = &data->state->rows;
    bool from_zero = data->format == TR_FORMAT_HDF5;
    if (data->state->on_disk) return TR_OK;
    if (m->begin && !data->state->schema)
        (void)tr_matrix_limit(m, from_zero ? 0 : data->first_index, data->columns);
    return !data->state->full && m->columns > 0 ? tr_matrix_make_sparse(m) : TR_OK;
}

/* Whether rows are dense, or better so: at half of the cells lists of columns take as much memory, and are slower. Where
 * columns are scaled that is as little as a fifth, since only dense rows are centred. (Covtype, 22 % filled: 0.699 of the
 * test rows are right without, 0.719 with. Mnist, 19 %: none more, but five times the seconds, as columns of few non-zeros
 * get large ones, and longer rows.) All ranks. */
static int decide_form(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    double filled = (double)data->total_nonzeros / ((double)data->total_rows * (double)data->columns);
    bool is_table =
        s->schema ? tr_schema_is_dense(s->schema) : data->format == TR_FORMAT_HDF5 && hdf5_head(data)->full;
    s->full = like ? like->state->full : is_table;
    TR_TRY(tr_agree(s->tr, tr_is(s->tr, TR_SLAVE) ? shape_rows(data) : TR_OK));
    if (like || is_table || is_group(s->tr, TR_DATA_VERTICAL)) return TR_OK;
    if (filled >= 0.5) s->full = s->form & TR_DATA_DENSE || tr_scale_is_wanted(data);
    else if (filled >= 0.2) return tr_scale_would_centre(data, &s->full);
    return TR_OK;
}

/* Reads again, if somebody has found a word in a column of numbers, which the first lines do not have. */
static int read_table(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_TRY(tr_schema_open(data, like));
    data->label_column = label_place(s->schema);
    for (bool again = true;;) {
        bool works = tr_is(tr, TR_SLAVE);
        if (works) part->seen = tr_schema_seen(s->schema);
        TR_TRY(tr_agree(tr, works && !part->seen ? TR_ERR_SYSTEM : TR_OK));
        TR_TRY(tr_agree(tr, read_part(data, like, part)));
        if (like) return TR_OK;
        TR_TRY(tr_schema_change(data, part->seen, &again));
        if (!again) return TR_OK;
        if (s->on_disk) return tr_agree(tr, tr_schema_refuse_disk(data));
        tr_schema_seen_free(&part->seen, s->schema);
        tr_ids_free(&part->report.labels.bits);
        tr_matrix_free(&s->rows);
        free(part->weight);
        part->weight = NULL;
        part->runs.n = 0;
    }
}

static int fill_rows(tr_data *data, const tr_data *like, struct part *part)
{
    tr_context *tr = data->state->tr;
    struct totals totals;
    struct tr_spill *c = &part->spill;
    c->data = data;
    bool tables = data->format == TR_FORMAT_CSV || (data->format == TR_FORMAT_HDF5 && hdf5_head(data)->full);
    c->expands = tables && data->state->form & TR_DATA_SPARSE;
    c->prunes = !tables && tr->job->table.prune;
    TR_TRY(data->format == TR_FORMAT_CSV ? read_table(data, like, part)
                                         : tr_agree(tr, read_part(data, like, part)));
    TR_TRY(agree_on_totals(tr, &part->report, &totals));
    data->weighted =
        data->state->schema && !like && tr_schema_weight(data->state->schema) < data->state->schema->n;
    data->total_rows = totals.rows;
    data->total_nonzeros = totals.nonzeros;
    data->skipped = totals.skipped;
    if (totals.queries) tr_say(tr, "note:          query ids (qid) of the rows are ignored");
    data->state->unlabelled = totals.unlabelled;
    int status = totals.rows == 0                 ? no_record(data)
                 : data->format == TR_FORMAT_CSV  ? TR_OK
                 : data->format == TR_FORMAT_HDF5 ? decide_hdf5_columns(data, like)
                                                  : decide_columns(data, &totals, like);
    TR_TRY(tr_agree(tr, status));
    if (data->format == TR_FORMAT_CSV)
        TR_TRY(tr_schema_make_keys(data, like, part->seen, &part->report.labels));
    TR_TRY(tr_labels_unite(tr, &part->report.labels, data));
    TR_TRY(tr_agree(tr, like ? TR_OK : check_positive(data)));
    if (data->labels > 2) TR_TRY(tr_agree(tr, tr_labels_find_third(tr, &part->report.labels, data)));
    TR_TRY(decide_form(data, like));
    if (data->format == TR_FORMAT_HDF5 && data->state->full) /* though zeros may not be stored */
        data->total_nonzeros = data->total_rows * data->columns;
    bool fills = data->state->full && tr_is(tr, TR_SLAVE);
    TR_TRY(tr_agree(tr, fills ? tr_matrix_make_dense(&data->state->rows, (size_t)data->columns) : TR_OK));
    TR_TRY(tr_scale_rows(data, like));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? finish_rows(data, part) : TR_OK));
    return data->state->on_disk ? tr_agree(tr, write_rows(data, like, part)) : TR_OK;
}

/* ---- ratings and bags of words ---- */

/* Reads again, as text, if somebody has found an id that is no number. */
static int read_ids(tr_data *data, const tr_data *like, struct part *part)
{
    tr_context *tr = data->state->tr;
    for (size_t i = 0; i < data->state->files.n && !like;
         i++) { /* so that nothing is read twice, as a rule */
        part->text_rows |= data->state->heads[i].text_rows;
        part->text_columns |= data->state->heads[i].text_columns;
    }
    if (like && like->row_names) part->text_rows = !tr_names_are_numbers(like->row_names);
    if (like && like->column_names) part->text_columns = !tr_names_are_numbers(like->column_names);
    for (;;) {
        int32_t before = part->text_rows + part->text_columns, text[2];
        TR_TRY(tr_agree(tr, read_part(data, like, part)));
        text[0] = part->text_rows || part->report.text_rows;
        text[1] = part->text_columns || part->report.text_columns;
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, text, 2));
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
        if (files->file[i].packing) tr_files_part(files, i, 0, readers, &part);
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
    struct tr_matrix *m = &s->rows;
    bool ratings = data->format == TR_FORMAT_RATINGS;
    bool in_turns = ratings && is_in_turns(&s->files, (size_t)tr_layout_workers(&tr->layout));
    TR_TRY(tr_shuffle_triples(tr, data->row_numbers, job->data.order == TR_ORDER_DEALT, s->files.n, in_turns,
                              &part->triples));
    TR_TRY(tr_triples_to_rows(&part->triples, data->row_numbers, part->columns, m, &s->row_number));
    if (!ratings) (void)tr_matrix_limit(m, 0, data->columns);
    tr_rows_merge(m, ratings ? job->data.duplicates : TR_DUPLICATES_SUM);
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) data->total_values += (double)m->value[k];
    data->total_rows = m->rows;
    data->total_nonzeros = tr_matrix_nonzeros(m);
    if (has_copy(tr)) TR_TRY(tr_replicate_rows(tr, m, &s->row_number));
    return number_keys(data, part);
}

/* What the headers say; test data have the words of training. */
static int number_documents(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    size_t first = 0;
    while (first + 1 < s->files.n && s->files.file[first].size == 0) first++;
    part->columns = (size_t)s->heads[first].words;
    data->columns = like ? like->columns : part->columns;
    data->row_numbers = tr_docword_base(&s->files, s->heads, s->files.n);
    return tr_docword_check(&s->files, s->heads, part->records);
}

static int fill_triples(tr_data *data, const tr_data *like, struct part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct totals totals;
    TR_TRY(tr_agree(tr, TR_NEW(&part->records, s->files.n)));
    TR_TRY(read_ids(data, like, part));
    TR_TRY(agree_on_totals(tr, &part->report, &totals));
    data->skipped = totals.skipped;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, part->records, s->files.n));
    int status = data->format == TR_FORMAT_DOCWORD ? number_documents(data, like, part) : TR_OK;
    if (status == TR_OK && totals.rows == 0) status = no_record(data);
    TR_TRY(tr_agree(tr, status));
    if (data->format == TR_FORMAT_RATINGS) TR_TRY(number_ids(data, like, part));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? finish_triples(data, part) : TR_OK));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_rows, 1));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_nonzeros, 1));
    return tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, &data->total_values, 1);
}

/* ---- opening ---- */

int tr_data_find(const tr_job *job, const char *path, char **found)
{
    TR_TRY(tr_files_find(path, job->data.folders.item, job->data.folders.n, found));
    const char *more = getenv("TRIREME_DATA");
    if (*found || !more || strcmp(tr_job_where(job, "data.folders"), "default") != 0)
        return *found ? TR_OK : tr_copy_string(path, found);
    char *list, *rest, *folder;
    TR_TRY(tr_copy_string(more, &list));
    int status = TR_OK;
    for (rest = list; status == TR_OK && !*found && (folder = strsep(&rest, ":"));)
        if (*folder) status = tr_files_find(path, &folder, 1, found);
    free(list);
    return status == TR_OK && !*found ? tr_copy_string(path, found) : status;
}

int tr_data_files(const tr_job *job, bool test, struct tr_files *files)
{
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    const struct tr_job_list *patterns = test && held.to == 0 ? &job->data.test : &job->data.train;
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

static int fill(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    struct part part = {.records = NULL};
    TR_TRY(tr_agree(s->tr, s->tr->rank == 0 ? read_heads(data, like) : TR_OK));
    TR_TRY(tell_heads(data));
    int status = is_triples(data) ? fill_triples(data, like, &part) : fill_rows(data, like, &part);
    tr_triples_free(&part.triples);
    if (status == TR_OK && is_group(s->tr, TR_DATA_REPLICATED))
        status = tr_store_share(data, part.keys, part.n_keys, is_dense(data) || !s->tr->job->table.prune);
    tr_ids_free(&part.report.labels.bits);
    tr_spill_free(&part.spill);
    if (s->schema) tr_schema_seen_free(&part.seen, s->schema);
    free(part.weight);
    free(part.records);
    free(part.keys);
    free(part.runs.run);
    return status;
}

static void show_rows(tr_data *data)
{
    const struct tr_matrix *m = &data->state->rows;
    data->dense = is_dense(data);
    if (data->dense) data->rows = (tr_batch){.n = m->rows, .label = m->label, .dense = m->value};
    else data->rows = (tr_batch){m->rows, m->begin, m->column, m->value, m->label, NULL, NULL};
    data->rows.weight = data->state->weight;
    data->row = data->state->row_number;
}

static int load(struct tr_store *store, struct tr_files *files, const tr_data *like)
{
    double begin = tr_now();
    struct tr_data_state *s = store->data.state;
    tr_lifeline_load(s->tr->lifeline);
    (void)TR_FAULT("load");
    s->files = *files;
    *files = (struct tr_files){.n = 0};
    bool found = false;
    TR_TRY(tr_storage_choose(&store->data));
    int status = tr_cache_find(&store->data, s->test ? "test data" : "training data", store->key, &found);
    if (status == TR_OK && !found) status = fill(&store->data, like);
    if (status == TR_OK && !found) status = tr_cache_keep(&store->data);
    if (status == TR_OK) status = tr_weights_read(&store->data);
    show_rows(&store->data);
    if (status == TR_OK) status = tr_storage_open(&store->data, found);
    s->load_seconds = tr_now() - begin;
    return status;
}

/* Ranks on other hosts do not get the variables of the one where the job was started. */
static int tell_folders(tr_context *tr)
{
    char text[4096] = "";
    const char *mine = getenv("TRIREME_DATA");
    if (tr->rank == 0 && mine) snprintf(text, sizeof text, "%s", mine);
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, text, sizeof text));
    if (*text) setenv("TRIREME_DATA", text, 0);
    return TR_OK;
}

int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **out)
{
    bool test = part & TR_DATA_TEST, found = false;
    struct tr_files files = {.n = 0};
    struct tr_store *store = NULL;
    struct tr_data_user *user = NULL;
    TR_TRY(tr_agree(tr,
                    TR_OK)); /* who has failed before tells it here, and no call of all ranks meets another */
    TR_TRY(tell_folders(tr));
    int status = TR_NEW(&user, 1);
    if (status == TR_OK) status = tr_data_files(tr->job, test, &files);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = tr_store_take(tr, &files, part, like, &store, &found);
    if (status == TR_OK && !found) status = load(store, &files, like);
    tr_files_close(&files);
    if (status == TR_OK) {
        user->data = store->data;
        *out = &user->data;
        if (!test) {
            tr->trained_on.rows = user->data.total_rows;
            tr->trained_on.columns = user->data.columns;
            tr->trained_on.nonzeros = user->data.total_nonzeros;
            tr->trained_on.dense = user->data.dense;
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
    struct tr_data_user *user = (struct tr_data_user *)(void *)data;
    if (user->forgot) return;
    user->forgot = true;
    data->rows.begin = NULL;
    data->rows.column = NULL;
    data->rows.value = NULL;
    data->rows.dense = NULL;
    tr_store_forget(data->state->store);
}

void tr_data_close(tr_data **data)
{
    struct tr_data_user *user = (struct tr_data_user *)(void *)*data;
    if (!user) return;
    struct tr_store *store = user->data.state->store;
    tr_store_release(user->data.state->tr, &store, user->forgot);
    tr_batches_free(&user->batches);
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

/* An earlier start of the job has read it. */
static bool is_found(const struct tr_data_state *s)
{
    return s->cached && s->cached->found;
}

/* text: of rows and of non-zeros of each worker. */
static void say_data(const tr_data *data, const char *what, char text[2][96])
{
    tr_context *tr = data->state->tr;
    struct words words = words_of(data);
    char tokens[64] = "", read[64] = "in memory already";
    char label[32]; /* as wide as all labels before the table of progress */
    snprintf(label, sizeof label, "%s:", what);
    if (data->format == TR_FORMAT_DOCWORD)
        snprintf(tokens, sizeof tokens, ", %.0f tokens", data->total_values);
    bool on_disk = data->state->on_disk;
    if (data->state->store->opened == 1)
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

/* Smallest, median and largest of number k of 0 and 1 that all workers have told. */
static int say_spread(const tr_context *tr, const uint64_t *all, int k, char text[96])
{
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    uint64_t *sorted;
    TR_TRY(TR_NEW(&sorted, workers));
    for (size_t w = 0; w < workers; w++) sorted[w] = all[2 * tr->layout.worker_rank[w] + k];
    qsort(sorted, workers, sizeof *sorted, by_number);
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

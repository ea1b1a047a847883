#define _GNU_SOURCE
#include "data/part.h"

#include <stdlib.h>

#include "data/hdf5.h"
#include "data/node_rows.h"
#include "data/renumber.h"

int tr_part_totals(tr_context *tr, const struct tr_read_report *report, struct tr_totals *t)
{
    *t = (struct tr_totals){report->rows,   report->nonzeros, report->skipped, report->unlabelled,
                            report->lowest, report->highest,  report->queries};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &t->rows, 4));
    t->lowest = ~t->lowest; /* their order turned round */
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &t->lowest, 3));
    t->lowest = ~t->lowest;
    return TR_OK;
}

int tr_part_no_record(const tr_data *data)
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

/* ---- groups ---- */

bool tr_data_shares(const tr_context *tr)
{
    const struct tr_layout *layout = &tr->layout;
    if (tr->job->data.partition != TR_DATA_REPLICATED || !tr_is(tr, TR_SLAVE) || layout->group_size < 2)
        return false;
    for (int m = 0; m < layout->group_size; m++)
        if (!tr_same_node(tr, layout->worker_rank[tr->me.group * layout->group_size + m])) return false;
    return true;
}

/* ---- keys ---- */

int tr_part_unite_keys(tr_context *tr, uint32_t **keys, size_t *n, uint32_t **numbers)
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

int tr_part_take_keys(tr_data *data, const uint32_t *columns, size_t n)
{
    tr_key *keys;
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = columns ? columns[i] : i;
    data->keys = keys;
    data->n_keys = n;
    return TR_OK;
}

int tr_part_number_keys(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    bool vertical = tr_data_is_partitioned(tr, TR_DATA_VERTICAL), prune = tr->job->table.prune || vertical;
    uint32_t *columns = NULL;
    size_t n = 0;
    if (vertical) TR_TRY(tr_exchange_columns(tr, &s->rows));
    if (prune) TR_TRY(tr_renumber(&s->rows, 0, (uint32_t)(data->columns - 1), &columns, &n));
    if (tr_data_shares(tr)) {
        part->keys = columns;
        part->n_keys = n;
        return TR_OK;
    }
    uint32_t *to = NULL;
    int status = prune && tr_data_is_partitioned(tr, TR_DATA_HORIZONTAL)
                     ? tr_part_unite_keys(tr, &columns, &n, &to)
                     : TR_OK;
    for (size_t k = 0; to && k < tr_matrix_nonzeros(&s->rows); k++) s->rows.column[k] = to[s->rows.column[k]];
    if (status == TR_OK) status = tr_part_take_keys(data, columns, prune ? n : (size_t)data->columns);
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

/* Places in files become places among all files. */
static void add_files(uint64_t *place, const struct tr_read_runs *runs)
{
    for (size_t i = 0; i < runs->n; i++)
        for (uint64_t k = 0; k < runs->run[i].rows; k++, place++)
            *place = tr_origin(runs->run[i].file, *place);
}

/* Triples: each a contiguous share, since the order of the files tells which of two equal pairs is the last, and the rows
 * are dealt afterwards. */
static int read_share(tr_data *data, const tr_data *like, struct gauge *gauge, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    struct tr_reader_options options = tr_data_reading(data, like);
    size_t worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member);
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    bool triples = tr_data_is_triples(data), node = s->form & TR_DATA_NODE;
    options.progress = gauge ? measure : NULL;
    options.progress_state = gauge;
    if (triples) {
        options.text_rows = part->text_rows;
        options.text_columns = part->text_columns;
        options.records = part->records;
    }
    if (s->on_disk) {
        options.piece = part->again ? tr_spill_write : tr_spill_note;
        options.piece_state = &part->spill;
    }
    if (!part->again && (!triples || node)) options.runs = &part->runs;
    options.seen = part->seen;
    if (s->schema && !s->test && !part->again && tr_schema_weight(s->schema) < s->schema->n)
        options.weight = &part->weight;
    if (!triples && tr->job->data.order == TR_ORDER_DEALT) options.deal = tr_files_chunk(&s->files, workers);
    if (s->node_rows) return tr_node_rows_take(data, worker, workers, &options, part);
    if (node) options.places = &s->row_number;
    struct tr_matrix none = {0}, *rows = s->on_disk ? &none : &s->rows;
    int status = triples
                     ? tr_read_triples(&s->files, worker, workers, &options, &part->triples, &part->report)
                     : tr_read_matrix(&s->files, worker, workers, &options, rows, &part->report);
    if (status == TR_OK && options.places) add_files(s->row_number, &part->runs);
    tr_matrix_free(&none);
    return status;
}

int tr_part_read(tr_data *data, const tr_data *like, struct tr_part *part)
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

int tr_part_read_silently(tr_data *data, const tr_data *like, struct tr_part *part)
{
    return read_share(data, like, NULL, part);
}

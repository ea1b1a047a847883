/* Rows of libsvm, csv and hdf5, as all workers have read them. */
#define _GNU_SOURCE
#include "data/part.h"

#include <stdlib.h>

#include "data/labels.h"
#include "data/node_table.h"
#include "data/renumber.h"
#include "data/scale.h"
#include "data/schema_all.h"

static int decide_columns(tr_data *data, const struct tr_totals *totals, const tr_data *like)
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

static int label_place(const struct tr_schema *s)
{
    return s->label == s->n                      ? TR_LABEL_NONE
           : s->label == 0                       ? TR_LABEL_FIRST
           : s->label + 1 == tr_schema_fields(s) ? TR_LABEL_LAST
                                                 : TR_LABEL_NAMED;
}

/* Lists of non-zeros may be of any columns: others than those of training are dropped. */
static int decide_hdf5_columns(tr_data *data, const tr_data *like)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    const struct tr_head *head = tr_data_hdf5_head(data);
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

/* The columns that occur are numbered, and the file is made that the rows will lie in. */
static int prepare_spill(tr_data *data, struct tr_spill *c)
{
    tr_context *tr = data->state->tr;
    uint32_t *columns = NULL;
    size_t n = (size_t)data->columns;
    c->dense = tr_data_is_dense(data);
    c->prunes = c->prunes && !c->dense;
    c->first_index = data->format == TR_FORMAT_HDF5 ? 0 : data->first_index;
    if (c->prunes) TR_TRY(tr_columns_number(&c->seen, c->first_index, data->columns, &columns, &n));
    int status = c->prunes && tr_data_is_partitioned(tr, TR_DATA_HORIZONTAL)
                     ? tr_part_unite_keys(tr, &columns, &n, &c->united)
                     : TR_OK;
    if (status == TR_OK) status = tr_part_take_keys(data, columns, n);
    free(columns);
    return status == TR_OK ? tr_spill_begin(c) : status;
}

/* The second reading. */
static int write_rows(tr_data *data, const tr_data *like, struct tr_part *part)
{
    struct tr_part again = {.spill = part->spill, .again = true, .seen = part->seen};
    if (!tr_is(data->state->tr, TR_SLAVE)) return TR_OK;
    int status = tr_part_read_silently(data, like, &again);
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
static int finish_rows(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    TR_TRY(tr_number_rows(data, &part->runs));
    if (part->weight && tr_data_is_partitioned(s->tr, TR_DATA_REPLICATED))
        TR_TRY(tr_replicate(s->tr, TR_SET_GROUP, (void **)&part->weight, part->report.rows, sizeof(float)));
    s->weight = part->weight;
    part->weight = NULL;
    if (s->on_disk) return prepare_spill(data, &part->spill);
    if (s->full && !tr_data_is_dense(data)) TR_TRY(tr_matrix_make_sparse(&s->rows));
    if (tr_data_is_dense(data) && tr_data_shares(s->tr)) return TR_OK;
    if (tr_data_has_copy(s->tr)) TR_TRY(tr_replicate_rows(s->tr, TR_SET_GROUP, &s->rows, NULL));
    return tr_data_is_dense(data) ? tr_part_take_keys(data, NULL, (size_t)data->columns)
                                  : tr_part_number_keys(data, part);
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
    bool is_table = s->schema ? tr_schema_is_dense(s->schema)
                              : data->format == TR_FORMAT_HDF5 && tr_data_hdf5_head(data)->full;
    s->full = like ? like->state->full : is_table;
    TR_TRY(tr_agree(s->tr, tr_is(s->tr, TR_SLAVE) ? shape_rows(data) : TR_OK));
    if (like || is_table || tr_data_is_partitioned(s->tr, TR_DATA_VERTICAL)) return TR_OK;
    if (filled >= 0.5) s->full = s->form & TR_DATA_DENSE || tr_scale_is_wanted(data);
    else if (filled >= 0.2) return tr_scale_would_centre(data, &s->full);
    return TR_OK;
}

/* Reads again, if somebody has found a word in a column of numbers, which the first lines do not have. */
static int read_table(tr_data *data, const tr_data *like, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_TRY(tr_schema_open(data, like));
    if (s->form & TR_DATA_NODE) s->schema->hash = 0; /* tasks want the words */
    data->label_column = label_place(s->schema);
    for (bool again = true;;) {
        bool works = tr_is(tr, TR_SLAVE);
        if (works) part->seen = tr_schema_seen(s->schema);
        TR_TRY(tr_agree(tr, works && !part->seen ? TR_ERR_SYSTEM : TR_OK));
        TR_TRY(tr_agree(tr, tr_part_read(data, like, part)));
        if (like) return TR_OK;
        TR_TRY(tr_schema_change(data, part->seen, &again));
        if (!again) return TR_OK;
        tr_spill_forget(&part->spill);
        tr_schema_seen_free(&part->seen, s->schema);
        tr_ids_free(&part->report.labels.bits);
        tr_matrix_free(&s->rows);
        free(part->weight);
        part->weight = NULL;
        free(data->state->row_number);
        data->state->row_number = NULL;
        part->runs.n = 0;
    }
}

/* Rows of a node stay as they were read: what they become is each task's to say. */
static int fill_node(tr_data *data, struct tr_part *part)
{
    struct tr_data_state *s = data->state;
    s->full = s->schema || (data->format == TR_FORMAT_HDF5 && !tr_data_hdf5_head(data)->sparse);
    if (s->schema) data->columns = s->schema->slots;
    if (s->schema) TR_TRY(tr_agree(s->tr, tr_node_table_unite(data, part)));
    TR_TRY(tr_agree(s->tr, shape_rows(data)));
    return tr_agree(s->tr, finish_rows(data, part));
}

int tr_fill_rows(tr_data *data, const tr_data *like, struct tr_part *part)
{
    tr_context *tr = data->state->tr;
    struct tr_totals totals;
    struct tr_spill *c = &part->spill;
    c->data = data;
    bool tables =
        data->format == TR_FORMAT_CSV || (data->format == TR_FORMAT_HDF5 && tr_data_hdf5_head(data)->full);
    c->expands = tables && data->state->form & TR_DATA_SPARSE;
    c->prunes = !tables && tr->job->table.prune;
    TR_TRY(data->format == TR_FORMAT_CSV ? read_table(data, like, part)
                                         : tr_agree(tr, tr_part_read(data, like, part)));
    TR_TRY(tr_part_totals(tr, &part->report, &totals));
    data->weighted =
        data->state->schema && !like && tr_schema_weight(data->state->schema) < data->state->schema->n;
    data->total_rows = totals.rows;
    data->total_nonzeros = totals.nonzeros;
    data->skipped = totals.skipped;
    if (totals.queries) tr_say(tr, "note:          query ids (qid) of the rows are ignored");
    data->state->unlabelled = totals.unlabelled;
    int status = totals.rows == 0                 ? tr_part_no_record(data)
                 : data->format == TR_FORMAT_CSV  ? TR_OK
                 : data->format == TR_FORMAT_HDF5 ? decide_hdf5_columns(data, like)
                                                  : decide_columns(data, &totals, like);
    TR_TRY(tr_agree(tr, status));
    if (data->state->form & TR_DATA_NODE) return fill_node(data, part);
    if (data->format == TR_FORMAT_CSV) TR_TRY(tr_schema_make_keys(data, like, part));
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
    if (!data->state->on_disk) return TR_OK;
    TR_TRY(tr_agree(tr, write_rows(data, like, part)));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->state->unknown, 1));
    data->total_nonzeros -= data->state->unknown; /* which became no key */
    return TR_OK;
}

#define _GNU_SOURCE
#include "data/dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/base.h"
#include "data/hdf5.h"
#include "data/schema.h"
#include "data/field.h"
#include "data/input.h"
#include "trireme/collective.h"
#include "trireme/model.h"

/* ---- files ---- */

int tr_data_find(const tr_job *job, const char *path, char **found)
{
    TR_TRY(tr_files_find(path, job->data.folders.item, job->data.folders.n, found));
    if (!*found && strcmp(tr_job_where(job, "data.folders"), "default") == 0) {
        /* the folders of TRIREME_DATA, and ../datasets relative to the folder of the job file, as in an installed Trireme */
        const char *slash = strrchr(job->path, '/'), *more = getenv("TRIREME_DATA");
        TR_FREED char *list = NULL;
        TR_TRY(tr_format(&list, "%s:%.*s../datasets", more ? more : "",
                         slash ? (int)(slash - job->path) + 1 : 0, job->path));
        for (char *rest = list, *folder; !*found && (folder = strsep(&rest, ":"));)
            if (*folder) TR_TRY(tr_files_find(path, &folder, 1, found));
    }
    return *found ? TR_OK : tr_copy_string(path, found);
}

int tr_files_of(const tr_job *job, char *const names[], size_t n, struct tr_files *files)
{
    TR_FREED char **paths = NULL;
    TR_TRY(TR_NEW(&paths, n));
    int status = TR_OK;
    for (size_t i = 0; i < n && status == TR_OK; i++) status = tr_data_find(job, names[i], &paths[i]);
    if (status == TR_OK) status = tr_files_open(paths, n, files);
    if (status == TR_OK) files->max_record = job->data.max_record;
    if (status == TR_OK) status = tr_files_set_label(files, job->data.label, false);
    if (status == TR_OK) status = tr_dialect_settings(job, files);
    for (size_t i = 0; i < n; i++) free(paths[i]);
    return status;
}

int tr_data_files(const tr_job *job, bool test, struct tr_files *files)
{
    struct tr_job_held_out held;
    TR_TRY(tr_job_held_out(job, &held));
    const struct tr_job_list *patterns = test && held.to == 0 ? &job->data.test : &job->data.train;
    if (patterns->n == 0)
        return tr_fail(TR_ERR_CONFIG, "%s: data.train is missing: the files to learn from", job->path);
    return tr_files_of(job, patterns->item, patterns->n, files);
}

/* ---- formats and heads: rank 0 reads them for all ranks ---- */

int tr_data_format(const tr_job *job, const struct tr_files *files, enum tr_format *format)
{
    enum tr_format looks = TR_FORMAT_AUTO, wanted = (enum tr_format)job->data.format;
    TR_TRY(tr_format_detect(files, &looks));
    if (looks == TR_FORMAT_AUTO && files->file[0].rewritten && files->file[0].dialect.delimiter)
        looks = TR_FORMAT_CSV;
    /* takes the detected format if the model class reads it, otherwise the first format of the class */
    if (wanted == TR_FORMAT_AUTO) {
        const char *const *words = job->class->data_formats;
        wanted = tr_format_named(words[0]);
        for (size_t i = 0; words[i]; i++)
            if (tr_format_named(words[i]) == looks) wanted = looks;
    }
    if (wanted == TR_FORMAT_HDF5 && looks == TR_FORMAT_CSV && files->file[0].hdf5)
        wanted = looks; /* such an HDF5 file has named columns, and is read as csv */
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

static int read_heads(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    char said[TR_DIALECT_SAID];
    if (like && like->state->schema) s->files.notation = like->state->schema->notation;
    TR_TRY(tr_dialects_find(&s->files, like ? like->format : (enum tr_format)job->data.format, said));
    if (*said) tr_say(s->tr, "dialect:       %s", said);
    if (like) data->format = like->format;
    else TR_TRY(tr_data_format(job, &s->files, &data->format));
    bool ratings = data->format == TR_FORMAT_RATINGS;
    const struct {
        const char *key;
        bool given;
    } keys[] = {{"data.columns", job->data.columns.n && !ratings},
                {"data.missing", job->data.missing.n},
                {"data.cross", job->data.cross.n},
                {"data.hash", job->data.hash},
                {"data.positive", *job->data.positive},
                {"data.min_count", job->data.min_count > 1},
                {"data.most_values", job->data.most_values},
                {"data.group", *job->data.group},
                {"data.time", *job->data.time && !ratings},
                {"data.header", job->data.header},
                {"data.delimiter", *job->data.delimiter},
                {"data.quote", *job->data.quote},
                {"data.escape", *job->data.escape},
                {"data.newlines", job->data.newlines},
                {"data.comment", *job->data.comment},
                {"data.skip_lines", job->data.skip_lines + 1 > 1},
                {"data.decimal", *job->data.decimal},
                {"data.thousands", *job->data.thousands},
                {"data.encoding", job->data.encoding}};
    const size_t of_csv = 9, of_fields = sizeof keys / sizeof *keys - 1;
    bool hdf5 = s->files.file[0].hdf5, csv = data->format == TR_FORMAT_CSV;
    for (size_t i = 0; i <= of_fields; i++) {
        bool fields = !hdf5 && (csv || data->format == TR_FORMAT_RATINGS);
        if (!keys[i].given || (i < of_csv ? csv : i < of_fields ? fields : !hdf5)) continue;
        return tr_fail(TR_ERR_CONFIG, "%s: %s is for %s, and the data are %s", tr_job_where(job, keys[i].key),
                       keys[i].key,
                       i < of_csv      ? "csv"
                       : i < of_fields ? "csv and ratings"
                                       : "text",
                       tr_format_word(hdf5 ? TR_FORMAT_HDF5 : data->format));
    }
    if (hdf5 && s->files.forms > 0)
        return tr_fail(
            TR_ERR_CONFIG,
            "%s: data.columns: dates, strip, decimal and thousands are for text, and the data are hdf5",
            tr_job_where(job, "data.columns"));
    TR_TRY(tr_heads_read(&s->files, data->format, TR_HEADER_AUTO, &s->heads));
    struct tr_rating_columns columns = {.job = job, .trains = true};
    if (ratings) TR_TRY(tr_ratings_find_columns(&s->files, &columns, s->heads));
    if (*columns.ignored)
        tr_say(s->tr, "note:          columns that are no user, item, rating or time are ignored: %s",
               columns.ignored);
    bool lists = data->format == TR_FORMAT_LIBSVM ||
                 (data->format == TR_FORMAT_HDF5 && !tr_data_hdf5_head(data)->full);
    if (!lists && tr_data_is_partitioned(s->tr, TR_DATA_VERTICAL))
        return tr_fail(TR_ERR_CONFIG,
                       "%s: data.partition: vertical is for sparse rows, as those of data.format: libsvm",
                       tr_job_where(job, "data.partition"));
    return TR_OK;
}

/* ---- progress of reading ---- */

/* One worker reports its progress to rank 0. If rank 0 is a worker, it is this worker. Otherwise it is worker 0, which sends the
 * number of bytes that it has read about once a second, and ALL_READ at the end. */
struct loading {
    tr_context *tr;
    const char *what;
    uint64_t total; /* stored bytes that all workers will read */
    double begin, sent;
};

#define ALL_READ UINT64_MAX

static int loading_reporter(const tr_context *tr)
{
    return tr->layout.place[0].roles & TR_SLAVE ? 0 : tr->layout.worker_rank[0];
}

static int loading_show(const struct loading *g, uint64_t bytes)
{
    struct tr_loading progress = {g->what, (double)bytes * tr_layout_workers(&g->tr->layout),
                                  (double)g->total, tr_now() - g->begin};
    if (progress.done > progress.total) progress.done = progress.total;
    return g->tr->loading ? g->tr->loading(g->tr->loading_state, &progress) : TR_OK;
}

static int loading_send(tr_context *tr, uint64_t bytes)
{
    MPI_Request request;
    MPI_Isend(&bytes, 1, MPI_UINT64_T, 0, TR_TAG_LOADING, tr->wire, &request);
    return tr_wait_request(tr, &request, "rank 0 to hear how much has been read");
}

static int loading_report(void *loading, uint64_t bytes)
{
    struct loading *g = loading;
    if (g->tr->rank == 0) return loading_show(g, bytes);
    if (tr_now() - g->sent < 1) return TR_OK;
    g->sent = tr_now();
    return loading_send(g->tr, bytes);
}

void tr_on_loading(tr_context *tr, tr_loading_fn *loading, void *who)
{
    tr->loading = loading;
    tr->loading_state = who;
}

/* ---- reading ---- */

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
                                      .split = data->state->split,
                                      .reads_held_out = data->state->test};
}

/* Reads this worker's share of the files. The share of triples is contiguous, since the order of the files decides which of two
 * equal pairs is the last; rows of triples are sent to their workers afterwards. */
static int read_range(tr_data *data, const tr_data *like, struct loading *loading, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    const tr_context *tr = s->tr;
    struct tr_reader_options options = tr_data_reading(data, like);
    size_t worker = (size_t)(tr->me.group * tr->layout.group_size + tr->me.member);
    size_t workers = (size_t)tr_layout_workers(&tr->layout);
    bool triples = tr_data_is_triples(data), node = s->form & TR_DATA_NODE;
    options.progress = loading ? loading_report : NULL;
    options.progress_state = loading;
    if (triples) {
        options.text_rows = in->text_rows;
        options.text_columns = in->text_columns;
        options.records = in->records;
    }
    if (s->on_disk) {
        options.piece = in->second ? tr_disk_write : tr_disk_note;
        options.piece_state = &in->writer;
    }
    if (!in->second && (!triples || node)) options.runs = &in->runs;
    options.seen = in->seen;
    if (s->names && s->names->labels.n > 0) options.label_names = &s->names->labels;
    else if (s->names) options.label_seen = &in->label_seen;
    for (int e = 0; e < TR_EXTRAS; e++) /* also in the second pass, which must leave out the same rows */
        if (tr_schema_has_extra(s->schema, (enum tr_extra)e)) options.extra[e] = &in->extra[e];
    if (!triples && tr->job->data.order == TR_ORDER_DEALT) options.deal = tr_files_chunk(&s->files, workers);
    if (s->node_rows) return tr_node_rows_read(data, worker, workers, &options, in);
    if (node) options.places = &s->row_number;
    struct tr_marks marks = {.n = 0};
    options.marks = node ? &marks : NULL;
    struct tr_matrix none = {0}, *rows = s->on_disk ? &none : &s->rows;
    int status = triples ? tr_read_triples(&s->files, worker, workers, &options, &in->triples, &in->report)
                         : tr_read_matrix(&s->files, worker, workers, &options, rows, &in->report);
    if (node) s->row_mark = marks.mark;
    /* converts offsets in files to origins (tr_origin()), which include the index of the file */
    if (status == TR_OK && options.places) {
        uint64_t *place = s->row_number;
        for (size_t i = 0; i < in->runs.n; i++)
            for (uint64_t k = 0; k < in->runs.run[i].rows; k++, place++)
                *place = tr_origin(in->runs.run[i].file, *place);
    }
    tr_matrix_free(&none);
    return status;
}

/* Reads on all workers into in->triples or data->state->rows, and shows the progress on rank 0. Each rank returns its own
 * status. */
static int read_files(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    tr_context *tr = data->state->tr;
    struct loading loading = {tr, like ? "test data" : "training data", data->state->files.total, tr_now(),
                              tr_now()};
    in->report = (struct tr_read_report){.lowest = UINT32_MAX};
    if (!tr_is(tr, TR_SLAVE)) {
        int shown = TR_OK;
        while (tr->rank == 0) { /* rank 0 is no worker: it shows the reports of worker 0 until the last one */
            uint64_t bytes;
            MPI_Request request;
            MPI_Irecv(&bytes, 1, MPI_UINT64_T, loading_reporter(tr), TR_TAG_LOADING, tr->wire, &request);
            TR_TRY(tr_wait_request(tr, &request, "a worker to read its data"));
            if (bytes == ALL_READ) break;
            if (shown == TR_OK) shown = loading_show(&loading, bytes);
        }
        return shown;
    }
    bool reports = tr->rank == loading_reporter(tr);
    int status = read_range(data, like, reports ? &loading : NULL, in);
    if (reports && tr->rank != 0) TR_TRY(loading_send(tr, ALL_READ));
    return status;
}

/* Sums over all workers, and lowest and highest index of a column. */
struct totals {
    uint64_t rows, nonzeros, skipped, unlabelled;
    int64_t lowest, highest, queries;
};

static int sum_reports(tr_context *tr, const struct tr_read_report *report, struct totals *t)
{
    *t = (struct totals){report->rows,   report->nonzeros, report->skipped, report->unlabelled,
                         report->lowest, report->highest,  report->queries};
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &t->rows, 4));
    t->lowest = ~t->lowest; /* the inverted maximum of inverted numbers is their minimum */
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I64, &t->lowest, 3));
    t->lowest = ~t->lowest;
    return TR_OK;
}

static int fail_no_record(const tr_data *data)
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

/* ---- keys ---- */

/* Sets data->keys. columns: the n ascending columns of this member; NULL: all columns. If members of a group share keys, the keys
 * are the union of the columns of all members, and (*number)[i] (to be freed) is the index of columns[i] among the keys. Otherwise
 * the keys are the columns, and *number is NULL. */
static int set_keys(tr_data *data, const uint32_t *columns, size_t n, uint32_t **number)
{
    tr_context *tr = data->state->tr;
    TR_FREED uint32_t *piece = NULL, *united = NULL;
    tr_key *keys;
    *number = NULL;
    if (columns && tr_data_is_partitioned(tr, TR_DATA_HORIZONTAL)) {
        size_t n_piece;
        uint64_t distinct;
        TR_TRY(tr_unite_keys(tr, columns, n, &piece, &n_piece));
        TR_TRY(
            tr_gather_to_all(tr, TR_SET_GROUP, piece, n_piece, sizeof *piece, (void **)&united, &distinct));
        TR_TRY(TR_NEW(number, n));
        for (size_t i = 0, u = 0; i < n; i++) {
            while (united[u] < columns[i]) u++;
            (*number)[i] = (uint32_t)u;
        }
        columns = united;
        n = (size_t)distinct;
    }
    TR_TRY(TR_NEW(&keys, n));
    for (size_t i = 0; i < n; i++) keys[i] = columns ? columns[i] : i;
    data->keys = keys;
    data->n_keys = n;
    return TR_OK;
}

/* Replaces columns of sparse rows by indices of this worker's keys. If the group will share its rows: by indices of in->keys, the
 * columns that this member has read, which tr_row_store_share() unites later. */
static int number_keys(tr_data *data, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    bool vertical = tr_data_is_partitioned(tr, TR_DATA_VERTICAL), prune = tr->job->table.prune || vertical;
    TR_FREED uint32_t *columns = NULL, *to = NULL;
    size_t n = (size_t)data->columns;
    if (vertical) TR_TRY(tr_exchange_columns(tr, &s->rows));
    if (prune) TR_TRY(tr_renumber(&s->rows, 0, (uint32_t)(data->columns - 1), &columns, &n));
    if (tr_data_is_shared(tr)) {
        in->keys = columns;
        in->n_keys = prune ? n : 0;
        columns = NULL;
        return TR_OK;
    }
    TR_TRY(set_keys(data, columns, n, &to));
    for (size_t k = 0; to && k < tr_matrix_nonzeros(&s->rows); k++) s->rows.column[k] = to[s->rows.column[k]];
    return TR_OK;
}

/* Returns whether each member has all rows of the group in its own memory. */
static bool has_copy_of_group(const tr_context *tr)
{
    return tr_data_is_partitioned(tr, TR_DATA_REPLICATED) && !tr_data_is_shared(tr);
}

/* ---- rows of libsvm, csv and hdf5 ---- */

/* Sets data->columns and first_index. shape_rows() drops columns of sparse test data that the training data do not have. */
static int decide_columns(tr_data *data, const struct totals *totals, const tr_data *like)
{
    const struct tr_data_state *s = data->state;
    const tr_job *job = s->tr->job;
    const uint64_t features = job->data.features;
    const int base = job->data.index_base;
    if (data->format != TR_FORMAT_HDF5) {
        data->first_index = like                    ? like->first_index
                            : base == TR_INDEX_ZERO ? 0
                            : base == TR_INDEX_ONE  ? 1
                                                    : totals->lowest > 0;
        uint64_t found =
            totals->highest >= totals->lowest ? (uint64_t)totals->highest + 1 - data->first_index : 1;
        data->columns = like ? like->columns : features ? features : found;
        if (!like && features && found > features)
            return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data has feature %lld",
                           tr_job_where(job, "data.features"), (unsigned long long)features,
                           (long long)totals->highest);
        return TR_OK;
    }
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
    if (!like && features && features != data->columns && (!head->sparse || features < data->columns))
        return tr_fail(TR_ERR_DATA, "%s: data.features is %llu, but the data have %llu columns",
                       tr_job_where(job, "data.features"), (unsigned long long)features,
                       (unsigned long long)data->columns);
    if (like) data->columns = like->columns;
    else if (features) data->columns = features;
    return TR_OK;
}

/* ---- data.weight, data.offset: files with one number a line for each row of data.train ---- */

struct extra_reader {
    const tr_data *data;
    enum tr_extra extra;
    uint64_t row;   /* number of the next row of data.train */
    size_t stretch; /* index of the first stretch of this worker that does not end before `row` */
};

static int extra_read_line(void *state, const struct tr_extra_line *line)
{
    struct extra_reader *w = state;
    const struct tr_data_state *s = w->data->state;
    unsigned long long number = line->line, total = w->data->total_rows;
    const char *noun = tr_extra_kinds[w->extra].noun;
    if (line->end && w->row == total) return TR_OK;
    if (line->end)
        return tr_fail(TR_ERR_DATA, "%s:%llu: the %ss end here, after %llu, but data.train has %llu rows",
                       line->path, number, noun, (unsigned long long)w->row, total);
    if (w->row == total)
        return tr_fail(TR_ERR_DATA, "%s:%llu: one %s too many: data.train has %llu rows", line->path, number,
                       noun, total);
    while (w->stretch < s->stretches && w->row >= s->stretch[w->stretch].first + s->stretch[w->stretch].n)
        w->stretch++;
    const struct tr_stretch *here = &s->stretch[w->stretch];
    if (w->stretch < s->stretches && w->row >= here->first) /* this worker has the row */
        s->extra[w->extra][here->at + (size_t)(w->row - here->first)] = line->number;
    w->row++;
    return TR_OK;
}

/* Returns whether data.weight (data.offset) names files, not a column. */
static bool extra_is_in_file(const tr_data *data, enum tr_extra extra)
{
    const struct tr_data_state *s = data->state;
    return *tr_extra_in_job(s->tr->job, extra) && !tr_schema_has_extra(s->schema, extra) &&
           !(s->form & TR_DATA_NODE);
}

/* The files have a number for each row, so no row may be left out. All ranks. */
static int extra_check(tr_data *data, enum tr_extra extra)
{
    const struct tr_data_state *s = data->state;
    const char *noun = tr_extra_kinds[extra].noun, *why = NULL;
    if (!extra_is_in_file(data, extra)) return TR_OK;
    if (s->test && !tr_extra_kinds[extra].optional)
        why = "but none for those of data.test: expected a column that both have";
    else if (!s->test && s->split.by != TR_SPLIT_NONE)
        why = "but data.test takes some rows away: expected files for data.test";
    else if (!s->test && data->skipped > 0)
        why = "but malformed ones were left out: expected data.on_error stop";
    if (!why) return TR_OK;
    char key[32];
    snprintf(key, sizeof key, "data.%s", noun);
    return tr_fail(TR_ERR_CONFIG, "%s: %s has a number for each row%s, %s", tr_job_where(s->tr->job, key),
                   key, s->test ? " of data.train" : "", why);
}

/* Numbers the rows of this worker or of its group, and sets their extras. These were read with the rows if they are a column;
 * otherwise their files are read now. Workers only, together. */
static int extras_set(tr_data *data, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    size_t all = 0, own;
    int status = TR_OK;
    TR_TRY(tr_number_rows(data, &in->runs, &own));
    for (size_t i = 0; i < s->stretches; i++) all += s->stretch[i].n;
    for (int e = 0; e < TR_EXTRAS; e++) {
        struct extra_reader reader = {.data = data, .extra = (enum tr_extra)e};
        /* each worker reads the whole files, which are small compared to the rows */
        bool reads = !s->test && extra_is_in_file(data, reader.extra);
        if (reads && status == TR_OK) status = TR_NEW(&s->extra[e], all);
        if (reads && status == TR_OK)
            status = tr_extra_each(tr->job, tr_extra_in_job(tr->job, reader.extra), reader.extra,
                                   extra_read_line, &reader);
        if (!in->extra[e]) continue;
        if (tr_data_is_partitioned(tr, TR_DATA_REPLICATED)) {
            int moved =
                tr_replicate(tr, TR_SET_GROUP, (void **)&in->extra[e], in->report.rows, sizeof(float));
            if (status == TR_OK) status = moved;
        }
        s->extra[e] = in->extra[e];
        in->extra[e] = NULL;
    }
    s->own_weight = s->extra[TR_EXTRA_WEIGHT] ? s->extra[TR_EXTRA_WEIGHT] + own : NULL;
    return status;
}

/* Makes one copy of the rows for the whole group if data.partition gives all members the same rows, and replaces columns by indices
 * of keys. */
static int finish_rows(tr_data *data, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    bool dense = tr_data_is_dense(data);
    size_t n = (size_t)data->columns;
    uint32_t *none;
    if (s->on_disk) { /* numbers the columns that occur, and creates the file */
        struct tr_disk_writer *c = &in->writer;
        TR_FREED uint32_t *columns = NULL;
        c->dense = dense;
        c->prunes = c->prunes && !dense;
        c->first_index = data->format == TR_FORMAT_HDF5 ? 0 : data->first_index;
        uint64_t end = data->columns > UINT32_MAX ? (uint64_t)1 << 32 : c->first_index + data->columns;
        if (c->prunes) TR_TRY(tr_index_set_number(&c->seen, c->first_index, end, &columns, &n));
        TR_TRY(set_keys(data, columns, n, &c->united));
        return tr_disk_begin(c);
    }
    if (s->full && !dense) TR_TRY(tr_matrix_make_sparse(&s->rows));
    if (dense && tr_data_is_shared(s->tr)) return TR_OK;
    if (has_copy_of_group(s->tr)) TR_TRY(tr_replicate_rows(s->tr, TR_SET_GROUP, &s->rows, NULL));
    return dense ? set_keys(data, NULL, n, &none) : number_keys(data, in);
}

/* Makes columns of the rows that this worker has read count from 0, and drops unknown columns. Makes rows sparse unless
 * data->state->full. */
static int shape_rows(tr_data *data)
{
    struct tr_matrix *m = &data->state->rows;
    bool from_zero = data->format == TR_FORMAT_HDF5;
    if (data->state->on_disk) return TR_OK;
    if (m->begin && !data->state->schema)
        (void)tr_matrix_limit(m, from_zero ? 0 : data->first_index, data->columns);
    return !data->state->full && m->columns > 0 ? tr_matrix_make_sparse(m) : TR_OK;
}

static void extras_free(struct tr_reading *in)
{
    for (int e = 0; e < TR_EXTRAS; e++) {
        free(in->extra[e]);
        in->extra[e] = NULL;
    }
}

/* Drops the results of read_files(), which is called again. */
static void forget_rows(tr_data *data, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_disk_forget(&in->writer);
    if (s->schema) tr_schema_seen_free(&in->seen, s->schema);
    tr_ids_free(&in->report.labels.bits);
    tr_matrix_free(&s->rows);
    extras_free(in);
    free(s->row_number);
    free(s->row_mark);
    s->row_number = s->row_mark = NULL;
    in->runs.n = 0;
}

/* Reads a table. The first lines of the files determine the types of columns. If a worker finds a word in a column of numbers, the
 * column becomes a category, and all workers read again. */
static int read_table(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    TR_TRY(tr_schema_open(data, like));
    TR_TRY(tr_split_open(data, like));
    if (s->form & TR_DATA_NODE) s->schema->hash = 0; /* tasks need the words, not hashes */
    data->label_column = s->schema->label == s->schema->n                      ? TR_LABEL_NONE
                         : s->schema->label == 0                               ? TR_LABEL_FIRST
                         : s->schema->label + 1 == tr_schema_fields(s->schema) ? TR_LABEL_LAST
                                                                               : TR_LABEL_NAMED;
    for (bool again = true;;) {
        bool works = tr_is(tr, TR_SLAVE);
        if (works) in->seen = tr_schema_seen(s->schema);
        TR_TRY(tr_agree(tr, works && !in->seen ? TR_ERR_SYSTEM : TR_OK));
        TR_TRY(tr_agree(tr, read_files(data, like, in)));
        if (like) return TR_OK;
        size_t label = s->schema->label;
        bool names = false, numbers = label < s->schema->n &&
                                      s->schema->column[label].type == TR_COLUMN_LABEL &&
                                      !s->schema->column[label].fixed;
        if (numbers) TR_TRY(tr_labels_need_names(tr, &in->report, data, &names));
        s->long_labels = s->long_labels || names;
        if (names && in->seen && *in->report.long_label && !in->seen[label].word) {
            in->seen[label].word = true;
            in->seen[label].place = in->report.long_label_at;
            memcpy(in->seen[label].text, in->report.long_label, sizeof in->report.long_label);
        }
        TR_TRY(tr_schema_change(data, in->seen, &again));
        if (!again) return TR_OK;
        forget_rows(data, in);
    }
}

/* Reads rows without names of columns. If labels are integers that floats do not tell apart, they get names, and all workers read
 * again. Labels of HDF5 may be texts. */
static int read_unnamed(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_data *node = s->node_rows ? s->node_rows->train : NULL;
    const tr_data *from = like ? like : node;
    in->label_seen.are_text = true;
    if (from && from->state->names) {
        s->names = from->state->names;
        s->names->users++;
    }
    bool names = false, texts = data->format == TR_FORMAT_HDF5 && tr_data_hdf5_head(data)->text_labels;
    if (texts && !s->names) TR_TRY(tr_agree(tr, tr_schema_new(&s->names)));
    TR_TRY(tr_agree(tr, read_files(data, like, in)));
    if (from || s->names) return TR_OK;
    TR_TRY(tr_labels_need_names(tr, &in->report, data, &names));
    if (!names) return TR_OK;
    int status = TR_OK;
    if (s->form & TR_DATA_NODE && *in->report.long_label) {
        char problem[256];
        snprintf(problem, sizeof problem,
                 "label %s is not exact in a 32-bit float: expected integers up to 16777216 in a job with "
                 "tasks or folds, or data.format: csv",
                 in->report.long_label);
        status = tr_place_fail(&s->files, &in->report.long_label_at, problem);
    }
    if (status == TR_OK) status = tr_schema_new(&s->names);
    TR_TRY(tr_agree(tr, status));
    s->long_labels = true;
    forget_rows(data, in);
    return tr_agree(tr, read_files(data, like, in));
}

static int fill_rows(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct totals totals;
    bool csv = data->format == TR_FORMAT_CSV, hdf5 = data->format == TR_FORMAT_HDF5,
         tables = csv || (hdf5 && tr_data_hdf5_head(data)->full), works = tr_is(tr, TR_SLAVE);
    in->writer.data = data;
    in->writer.expands = tables && s->form & TR_DATA_SPARSE;
    in->writer.prunes = !tables && tr->job->table.prune;
    if (!csv) TR_TRY(tr_split_open(data, like));
    TR_TRY(csv ? read_table(data, like, in) : read_unnamed(data, like, in));
    TR_TRY(sum_reports(tr, &in->report, &totals));
    data->weighted = tr_schema_has_extra(s->schema, TR_EXTRA_WEIGHT) ||
                     (!s->test && extra_is_in_file(data, TR_EXTRA_WEIGHT));
    data->has_offsets =
        tr_schema_has_extra(s->schema, TR_EXTRA_OFFSET) || extra_is_in_file(data, TR_EXTRA_OFFSET);
    data->total_rows = totals.rows;
    data->total_nonzeros = totals.nonzeros;
    data->skipped = totals.skipped;
    if (totals.queries && s->split.by == TR_SPLIT_NONE)
        tr_say(tr, "note:          query ids (qid) of the rows are ignored");
    s->unlabelled = totals.unlabelled;
    TR_TRY(tr_agree(tr, totals.rows == 0 ? fail_no_record(data)
                        : csv            ? TR_OK
                                         : decide_columns(data, &totals, like)));

    if (s->names && s->names->labels.n == 0)
        TR_TRY(tr_schema_settle_labels(data, s->names, works ? &in->label_seen : NULL, &in->report.labels));

    if (s->form & TR_DATA_NODE) { /* rows of a node stay as they were read: each task converts a copy */
        s->full = s->schema || (hdf5 && !tr_data_hdf5_head(data)->sparse);
        if (s->schema) data->columns = s->schema->slots;
        TR_TRY(tr_agree(tr, works ? extras_set(data, in) : TR_OK));
        if (s->schema) TR_TRY(tr_agree(tr, tr_node_rows_unite_words(data, in->seen)));
        TR_TRY(tr_agree(tr, shape_rows(data)));
        return tr_agree(tr, finish_rows(data, in));
    }

    for (int e = 0; e < TR_EXTRAS; e++) TR_TRY(extra_check(data, (enum tr_extra)e));
    TR_TRY(tr_agree(tr, works ? extras_set(data, in) : TR_OK));
    if (csv) TR_TRY(tr_schema_make_keys(data, like, in));
    bool too_many = s->long_labels && s->form & TR_DATA_FEW_CLASSES &&
                    !tr_labels_may_be_classes(tr_data_schema(data)->labels.n, true);
    TR_TRY(tr_agree(tr, too_many
                            ? tr_fail(TR_ERR_DATA,
                                      "%s: %zu labels are integers that 32-bit floats do not tell apart: "
                                      "expected a model.type or model.objective of classes, or of regression",
                                      s->files.file[0].path, tr_data_schema(data)->labels.n)
                            : TR_OK));
    TR_TRY(tr_labels_unite(tr, &in->report.labels, data));
    bool one_label = !like && s->schema && s->schema->positive && data->labels != 2 && data->label[0] != 1;
    TR_TRY(tr_agree(tr, one_label ? tr_fail(TR_ERR_DATA, "%s: data.positive: no row has the label %s",
                                            tr_job_where(tr->job, "data.positive"), s->schema->positive)
                                  : TR_OK));
    if (data->labels > 2) TR_TRY(tr_agree(tr, tr_labels_find_third(tr, &in->report.labels, data)));

    /* Decide whether rows become dense. If half of the cells are not zero, sparse rows take as much memory as dense rows, and are
     * slower. If columns are scaled, a fifth is enough, since only dense rows are centred. (Covtype, 22 % of the cells: accuracy
     * 0.719 instead of 0.699. Mnist, 19 %: centring takes five times the time for the same accuracy, since columns with few
     * non-zeros get large values, and rows become longer.) */
    double filled = (double)data->total_nonzeros / ((double)data->total_rows * (double)data->columns);
    bool is_table = s->schema ? tr_schema_is_dense(s->schema) : hdf5 && tr_data_hdf5_head(data)->full;
    bool decided = like || is_table || tr_data_is_partitioned(tr, TR_DATA_VERTICAL);
    s->full = like ? like->state->full : is_table;
    TR_TRY(tr_agree(tr, works ? shape_rows(data) : TR_OK));
    if (!decided && filled >= 0.5) s->full = s->form & TR_DATA_DENSE || tr_scale_is_wanted(data);
    else if (!decided && filled >= 0.2) TR_TRY(tr_scale_would_centre(data, &s->full));
    if (hdf5 && s->full)
        data->total_nonzeros = data->total_rows * data->columns; /* dense rows: counts zeros, too */
    bool fills = s->full && works;
    TR_TRY(tr_agree(tr, fills ? tr_matrix_make_dense(&s->rows, (size_t)data->columns) : TR_OK));
    TR_TRY(tr_scale_rows(data, like));
    TR_TRY(tr_agree(tr, works ? finish_rows(data, in) : TR_OK));
    if (!s->on_disk) return TR_OK;

    int status = TR_OK;
    if (works) { /* workers read the files again: the second pass writes the rows */
        struct tr_reading second = {.writer = in->writer, .second = true, .seen = in->seen};
        status = read_range(data, like, NULL, &second);
        if (status == TR_OK) status = tr_disk_end(&second.writer);
        in->writer = second.writer;
        extras_free(&second);
        tr_ids_free(&second.report.labels.bits);
    }
    TR_TRY(tr_agree(tr, status));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &s->unknown, 1));
    data->total_nonzeros -= s->unknown; /* values without a key do not become non-zeros */
    return TR_OK;
}

/* ---- rows of ratings and bags of words ---- */

/* Reads ratings or docword. If a worker finds an id that is no number, all workers read again, with ids as text. The heads usually
 * show before whether ids are text. */
static int read_ids(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    tr_context *tr = data->state->tr;
    for (size_t i = 0; i < data->state->files.n && !like; i++) {
        in->text_rows |= data->state->heads[i].text_rows;
        in->text_columns |= data->state->heads[i].text_columns;
    }
    if (like && like->row_names) in->text_rows = !tr_names_are_numbers(like->row_names);
    if (like && like->column_names) in->text_columns = !tr_names_are_numbers(like->column_names);
    for (;;) {
        int32_t before = in->text_rows + in->text_columns, text[2];
        TR_TRY(tr_agree(tr, read_files(data, like, in)));
        text[0] = in->text_rows || in->report.text_rows;
        text[1] = in->text_columns || in->report.text_columns;
        TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, text, 2));
        in->text_rows = text[0];
        in->text_columns = text[1];
        if (text[0] + text[1] == before) return TR_OK;
        tr_triples_free(&in->triples);
        free(data->state->row_number);
        data->state->row_number = NULL;
        in->runs.n = 0;
    }
}

/* Numbers the users and items of all workers, and replaces the places of ids in this worker's triples by these numbers. */
static int number_ids(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    struct tr_triples *t = &in->triples;
    struct tr_ids *ids[] = {&t->rows, &t->columns};
    tr_names **names[] = {&s->row_names, &s->column_names};
    const tr_names *known[] = {like ? like->row_names : NULL, like ? like->column_names : NULL};
    size_t workers = (size_t)tr_layout_workers(&s->tr->layout);
    t->rows.are_text = in->text_rows;
    t->columns.are_text = in->text_columns;
    for (int k = 0; k < 2; k++) {
        TR_FREED uint32_t *number = NULL;
        TR_TRY(TR_NEW(&number, ids[k]->n));
        TR_TRY(tr_names_unite(s->tr, ids[k], known[k], workers, number, names[k]));
        tr_ids_free(ids[k]);
        tr_triples_map(t, k, number);
    }
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    data->row_numbers = tr_names_first(s->row_names) + tr_names_count(s->row_names);
    data->columns = tr_names_first(s->column_names) + tr_names_count(s->column_names);
    in->columns = (size_t)data->columns;
    return TR_OK;
}

/* Sends each triple to the worker of its row, and makes sorted rows: columns ascend, and repeated pairs are merged. */
static int finish_triples(tr_data *data, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    const tr_job *job = tr->job;
    struct tr_matrix *m = &s->rows;
    bool ratings = data->format == TR_FORMAT_RATINGS;
    bool interleaved = false; /* several readers have parsed pieces of one compressed file in turn */
    for (size_t i = 0; i < s->files.n && ratings; i++) {
        struct tr_file_part range = {.readers = 0};
        if (tr_file_is_stream(&s->files.file[i]))
            tr_files_part(&s->files, i, 0, (size_t)tr_layout_workers(&tr->layout), &range);
        interleaved = interleaved || range.readers > 1;
    }
    TR_TRY(tr_shuffle_triples(tr, data->row_numbers, job->data.order == TR_ORDER_DEALT, s->files.n,
                              interleaved, &in->triples));
    TR_TRY(tr_triples_to_rows(&in->triples, data->row_numbers, in->columns, m, &s->row_number));
    if (!ratings) (void)tr_matrix_limit(m, 0, data->columns);
    tr_rows_merge(m, ratings ? job->data.duplicates : TR_DUPLICATES_SUM);
    for (size_t k = 0; k < tr_matrix_nonzeros(m); k++) data->total_values += (double)m->value[k];
    data->total_rows = m->rows;
    data->total_nonzeros = tr_matrix_nonzeros(m);
    if (has_copy_of_group(tr)) TR_TRY(tr_replicate_rows(tr, TR_SET_GROUP, m, &s->row_number));
    return number_keys(data, in);
}

static int fill_triples(tr_data *data, const tr_data *like, struct tr_reading *in)
{
    struct tr_data_state *s = data->state;
    tr_context *tr = s->tr;
    struct totals totals;
    TR_TRY(tr_agree(tr, TR_NEW(&in->records, s->files.n)));
    if (data->format == TR_FORMAT_RATINGS) TR_TRY(tr_split_open(data, like));
    TR_TRY(read_ids(data, like, in));
    TR_TRY(sum_reports(tr, &in->report, &totals));
    data->skipped = totals.skipped;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, in->records, s->files.n));
    int status = TR_OK;
    if (data->format == TR_FORMAT_DOCWORD) { /* the headers have the numbers of documents and words */
        size_t first = 0;
        while (first + 1 < s->files.n && s->files.file[first].size == 0) first++;
        in->columns = (size_t)s->heads[first].words;
        /* test data have the vocabulary of the training data */
        data->columns = like ? like->columns : in->columns;
        data->row_numbers = tr_docword_base(&s->files, s->heads, s->files.n);
        status = tr_docword_check(&s->files, s->heads, in->records);
    }
    if (status == TR_OK && totals.rows == 0) status = fail_no_record(data);
    TR_TRY(tr_agree(tr, status));
    if (s->form & TR_DATA_NODE) { /* each record is a row of three numbers */
        struct tr_triples *t = &in->triples;
        t->rows.are_text = in->text_rows;
        t->columns.are_text = in->text_columns;
        if (data->format == TR_FORMAT_RATINGS) TR_TRY(tr_agree(tr, tr_node_rows_unite_ids(data, t)));
        s->full = true;
        data->columns = sizeof *t->triple / sizeof(float);
        data->total_rows = totals.rows;
        data->total_nonzeros = in->report.rows;
        s->rows = (struct tr_matrix){
            .rows = t->n, .columns = (size_t)data->columns, .value = (float *)(void *)t->triple};
        t->triple = NULL;
        size_t own;
        status = tr_number_rows(data, &in->runs, &own);
        uint32_t *none;
        if (status == TR_OK && !tr_data_is_shared(tr))
            status = set_keys(data, NULL, (size_t)data->columns, &none);
        return tr_agree(tr, status);
    }
    if (data->format == TR_FORMAT_RATINGS) TR_TRY(number_ids(data, like, in));
    TR_TRY(tr_agree(tr, tr_is(tr, TR_SLAVE) ? finish_triples(data, in) : TR_OK));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_rows, 1));
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_I64, &data->total_nonzeros, 1));
    return tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, &data->total_values, 1);
}

/* ---- open data sets: keys ---- */

/* Prints path, size, times, device and inode of each file: a key changes if a file was rewritten. */
static void print_files(FILE *text, const struct tr_files *files)
{
    for (size_t i = 0; i < files->n; i++) {
        struct stat about = {.st_size = 0};
        (void)stat(files->file[i].path, &about);
        const char *inside = files->file[i].inside;
        fprintf(text, "\n%s%s%s %llu %lld.%09ld %lld.%09ld %llu %llu", files->file[i].path, inside ? ":" : "",
                inside ? inside : "", (unsigned long long)files->file[i].size,
                (long long)about.st_mtim.tv_sec, about.st_mtim.tv_nsec, (long long)about.st_ctim.tv_sec,
                about.st_ctim.tv_nsec, (unsigned long long)about.st_dev, (unsigned long long)about.st_ino);
    }
}

static int end_key(FILE *text, char **key)
{
    bool written = !ferror(text);
    if (fclose(text) == 0 && written) return TR_OK;
    free(*key);
    *key = NULL;
    return tr_fail(TR_ERR_SYSTEM, "out of memory");
}

static void print_list(FILE *text, const struct tr_job_list *list)
{
    fputs(" list", text);
    for (size_t i = 0; i < list->n; i++) fprintf(text, "«%s»", list->item[i]);
}

/* Prints the settings that determine how files are read. */
static void print_reading(FILE *text, const tr_job *job)
{
    fprintf(text, "%d %d %d %llu %llu %s %s %llu", job->data.format, job->data.index_base, job->data.on_error,
            (unsigned long long)job->data.features, (unsigned long long)job->data.header, job->data.label,
            job->data.positive, (unsigned long long)job->data.hash);
    fprintf(text, " %s %s %s %s %s %s %llu %d %d", job->data.delimiter, job->data.quote, job->data.escape,
            job->data.comment, job->data.decimal, job->data.thousands,
            (unsigned long long)job->data.skip_lines, job->data.encoding, job->data.newlines);
    for (int e = 0; e < TR_EXTRAS; e++) {
        const char *extra = tr_extra_in_job(job, (enum tr_extra)e);
        if (*extra) fprintf(text, " %s %s", tr_extra_kinds[e].noun, extra);
    }
    if (*job->data.group) fprintf(text, " group %s", job->data.group);
    if (*job->data.time) fprintf(text, " time %s", job->data.time);
    if (job->data.on_error == TR_ON_ERROR_SKIP)
        fprintf(text, " records of %llu", (unsigned long long)job->data.max_record);
    print_list(text, &job->data.columns);
    print_list(text, &job->data.missing);
    print_list(text, &job->data.cross);
}

/* Writes everything that determines the rows as text: the key of a store. */
static int make_key(const tr_context *tr, const struct tr_files *files, enum tr_data_part part,
                    const tr_data *like, char **key)
{
    const tr_job *job = tr->job;
    struct tr_job_held_out held_out;
    size_t n;
    TR_TRY(tr_job_held_out(job, &held_out));
    FILE *text = open_memstream(key, &n);
    if (!text) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    print_reading(text, job);
    fprintf(text, " %d %d %d %d %d %d %d %d like %llu %llu %llu", (int)part & ~TR_DATA_TEST, job->data.scale,
            job->data.partition, job->data.order, job->data.duplicates, job->table.prune, tr->layout.groups,
            tr->layout.group_size, like ? (unsigned long long)like->state->store->number : 0,
            (unsigned long long)job->data.min_count, (unsigned long long)job->data.most_values);
    if (held_out.to > 0)
        fprintf(text, " %s %a to %a of %llu", part & TR_DATA_TEST ? "the" : "without the", held_out.from,
                held_out.to, (unsigned long long)job->seed);
    /* the class is part of the key, because data.format: auto depends on its formats */
    const char *const *formats = job->class->data_formats;
    for (size_t i = 0; job->data.format == TR_FORMAT_AUTO && formats[i]; i++)
        fprintf(text, " %s", formats[i]);
    print_files(text, files);
    if (like) fprintf(text, "\nlike\n%s", like->state->store->key);
    return end_key(text, key);
}

int tr_store_rows_key(const tr_job *job, const struct tr_files *files, char **key)
{
    size_t n;
    FILE *text = open_memstream(key, &n);
    if (!text) return tr_fail(TR_ERR_SYSTEM, "out of memory");
    print_reading(text, job);
    if (files) {
        print_files(text, files);
    } else {
        print_list(text, &job->data.train);
        print_list(text, &job->data.folders);
    }
    return end_key(text, key);
}

/* ---- open data sets: stores ---- */

/* Decrements store->readers, and frees the non-zeros if it is 0. */
static void store_forget(struct tr_store *store)
{
    if (--store->readers > 0) return;
    store->forgotten = true;
    tr_row_store_forget(&store->data);
}

/* Decrements the reference count, and frees the store if it is 0. forgot: the user had called tr_data_forget(). All ranks
 * together. */
static void store_release(tr_context *tr, struct tr_store **store, bool forgot)
{
    struct tr_store *s = *store;
    *store = NULL;
    if (!s) return;
    if (--s->users > 0) {
        /* the non-zeros are not freed, because the next task may need them */
        if (!forgot && s->held) s->readers--;
        else if (!forgot) store_forget(s);
        return;
    }
    struct tr_store **at = &tr->stores->first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    if (!tr->stores->first) {
        free(tr->stores);
        tr->stores = NULL;
    }
    tr_row_store_close(&s->data);
    tr_files_close(&s->data.state->files);
    tr_data_free_head(&s->data);
    free(s->data.state);
    free(s->key);
    free(s);
}

/* Releases the stores that the team holds for its next task: all of them, or only those that the current task has not opened. */
static void store_drop_held(tr_context *tr, bool all)
{
    for (struct tr_store *store = tr->stores ? tr->stores->first : NULL, *next; store; store = next) {
        next = store->next;
        if (!store->held || (store->job == tr->job && !all)) continue;
        store->held = false;
        store_release(tr, &store, true);
    }
}

static void store_drop_all_held(tr_context *tr)
{
    store_drop_held(tr, true);
}

/* Adds a store for these files and settings. */
static int store_add(tr_context *tr, enum tr_data_part part, char **key, struct tr_store **store)
{
    TR_FREED struct tr_store *added = NULL;
    if (!tr->stores) TR_TRY(TR_NEW(&tr->stores, 1));
    TR_TRY(TR_NEW(&added, 1));
    TR_TRY(TR_NEW(&added->data.state, 1));
    struct tr_data_state *s = added->data.state;
    s->tr = tr;
    s->store = added;
    s->form = (int)part & ~TR_DATA_TEST;
    s->test = part & TR_DATA_TEST;
    added->key = *key;
    *key = NULL;
    added->number = ++tr->stores->loaded;
    added->next = tr->stores->first;
    tr->stores->first = *store = added;
    added = NULL;
    TR_TRY(tr_job_held_out(tr->job, &s->held_out));
    s->split = tr_split_of_share(s->held_out.from, s->held_out.to, tr->job->seed);
    return TR_OK;
}

/* Finds the store of these files and settings; for test data also of the training data `like`. If there is none, adds a store, sets
 * *found to false, and the caller loads it. Increments the reference count. All ranks; errors are agreed on. */
static int store_find(tr_context *tr, const struct tr_files *files, enum tr_data_part part,
                      const tr_data *like, struct tr_store **store, bool *found)
{
    TR_FREED char *key = NULL;
    TR_TRY(tr_agree(tr, make_key(tr, files, part, like, &key)));
    *store = tr->stores ? tr->stores->first : NULL;
    while (*store && ((*store)->forgotten || strcmp((*store)->key, key) != 0)) *store = (*store)->next;

    /* All ranks must use the same store. They may find different ones: some ranks have forgotten its non-zeros, or see another
     * version of a file. */
    uint64_t number = *store ? (*store)->number : 0, bounds[2] = {number, ~number};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, tr->world, &request);
    int status = tr_wait_request(tr, &request, "all ranks to look for data that they have");
    if (status == TR_OK && bounds[0] != ~bounds[1]) *store = NULL;
    *found = *store != NULL;
    if (status == TR_OK && !*found) {
        store_drop_held(tr, false);
        status = tr_agree(tr, store_add(tr, part, &key, store));
    }
    if (*store) {
        (*store)->users++;
        (*store)->readers++;
        (*store)->opened++;
        (*store)->job = tr->job;
    }
    if (status != TR_OK) store_release(tr, store, false);
    return status;
}

const struct tr_schema *tr_store_schema(const tr_context *tr)
{
    const struct tr_store *last = NULL;
    for (const struct tr_store *s = tr->stores ? tr->stores->first : NULL; s; s = s->next)
        if (!s->data.state->test && (!last || s->number > last->number)) last = s;
    return last ? tr_data_schema(&last->data) : NULL;
}

int tr_store_report(tr_context *tr)
{
    static const char *const names[] = {"data_disk_bytes",    "data_memory_bytes",  "data_read_bytes",
                                        "data_dropped_bytes", "data_blocks_ready",  "data_blocks_waited",
                                        "data_read_seconds",  "data_waited_seconds"};
    _Static_assert(sizeof names / sizeof *names == TR_STREAM_COUNTS, "a name for each figure");
    double sum[TR_STREAM_COUNTS] = {0};
    bool any = false;
    for (const struct tr_store *s = tr->stores ? tr->stores->first : NULL; s; s = s->next) {
        any = any || s->data.state->on_disk;
        tr_row_stream_count(s->data.state->stream, sum);
    }
    if (!any) return TR_OK;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, TR_STREAM_COUNTS));
    for (int i = 0; i < TR_STREAM_COUNTS; i++) TR_TRY(tr_context_report(tr, names[i], sum[i]));
    return TR_OK;
}

/* ---- opening ---- */

/* Fills data from the files or, if the node already has their rows, from shared memory. like: data with the schema, or NULL. */
static int fill(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    struct tr_reading in = {.records = NULL};
    TR_TRY(tr_agree(s->tr, s->tr->rank == 0 ? read_heads(data, like) : TR_OK));
    TR_TRY(tr_broadcast(s->tr, TR_SET_ALL, 0, &data->format, sizeof data->format));
    if (s->tr->rank != 0) TR_TRY(TR_NEW(&s->heads, s->files.n));
    TR_TRY(tr_broadcast(s->tr, TR_SET_ALL, 0, s->heads, s->files.n * sizeof *s->heads));
    for (size_t i = 0; i < s->files.n; i++) tr_file_set_dialect(&s->files, i, &s->heads[i].dialect);
    s->node_rows = tr_node_rows_find(data);
    if (!s->test && !s->node_rows) s->tr->readings++;
    int status = tr_data_is_triples(data) ? fill_triples(data, like, &in) : fill_rows(data, like, &in);
    tr_triples_free(&in.triples);
    if (status == TR_OK && tr_data_is_partitioned(s->tr, TR_DATA_REPLICATED))
        status =
            tr_row_store_share(data, in.keys, in.n_keys, tr_data_is_dense(data) || !s->tr->job->table.prune);
    tr_ids_free(&in.report.labels.bits);
    tr_ids_free(&in.label_seen);
    tr_disk_free(&in.writer);
    if (s->schema) tr_schema_seen_free(&in.seen, s->schema);
    extras_free(&in);
    void *arrays[] = {in.records, in.keys, in.runs.run};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    return status;
}

static int load(struct tr_store *store, struct tr_files *files, const tr_data *like)
{
    double begin = tr_now();
    tr_data *data = &store->data;
    struct tr_data_state *s = data->state;
    tr_lifeline_load(s->tr->lifeline);
    (void)TR_FAULT("load");
    s->files = *files;
    *files = (struct tr_files){.n = 0};
    bool found = false;
    TR_TRY(tr_disk_choose(data));
    TR_TRY(tr_row_store_find(data, s->test ? "test data" : "training data", store->key, &found));
    if (!found) TR_TRY(fill(data, like));
    if (!found) TR_TRY(tr_row_store_keep(data));
    tr_row_store_pool(data);
    data->dense = tr_data_is_dense(data);
    data->on_disk = s->on_disk;
    data->rows = tr_matrix_batch(&s->rows);
    data->rows.weight = s->extra[TR_EXTRA_WEIGHT];
    data->rows.offset = s->extra[TR_EXTRA_OFFSET];
    s->own_weight = NULL;
    data->row = s->row_number;
    TR_TRY(tr_disk_open(data, found));
    s->load_seconds = tr_now() - begin;
    return TR_OK;
}

int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **out)
{
    bool test = part & TR_DATA_TEST, found = false;
    TR_CLOSED_BY(tr_files_close) struct tr_files files = {.n = 0};
    TR_FREED struct tr_data_user *user = NULL;
    struct tr_store *store = NULL;
    TR_TRY(tr_agree(tr, TR_OK)); /* if a rank has failed before this call, all ranks return here */
    char folders[4096] = "";     /* ranks on other hosts may not have the environment variables of rank 0 */
    const char *mine = getenv("TRIREME_DATA");
    if (tr->rank == 0 && mine) snprintf(folders, sizeof folders, "%s", mine);
    TR_TRY(tr_broadcast(tr, TR_SET_ALL, 0, folders, sizeof folders));
    if (*folders) setenv("TRIREME_DATA", folders, 0);
    int status = TR_NEW(&user, 1);
    if (status == TR_OK) status = tr_data_files(tr->job, test, &files);
    TR_TRY(tr_agree(tr, status));
    TR_TRY(store_find(tr, &files, part, like, &store, &found));
    status = found ? TR_OK : load(store, &files, like);
    if (status != TR_OK) {
        store_release(tr, &store, false);
        return status;
    }

    const struct tr_cached *cached = store->data.state->cached;
    if (!found && tr->team && (!cached || cached->pooled)) { /* files for the next start belong to a task */
        /* the team keeps the store for its next task. It is no reader, so a task that forgets the non-zeros frees them */
        store->users++;
        store->held = true;
        tr->let_go = store_drop_all_held;
    }
    user->data = store->data;
    if (!test) {
        tr->trained_on.rows = user->data.total_rows;
        tr->trained_on.columns = user->data.columns;
        tr->trained_on.nonzeros = user->data.total_nonzeros;
        tr->trained_on.dense = user->data.dense;
        bool ratings = user->data.format == TR_FORMAT_RATINGS,
             tokens = user->data.format == TR_FORMAT_DOCWORD;
        tr->trained_on.rate = ratings ? "ratings/s" : tokens ? "tokens/s" : "rows/s";
        tr->trained_on.units = ratings  ? (double)user->data.total_nonzeros
                               : tokens ? user->data.total_values
                                        : (double)user->data.total_rows;
    }
    *out = &user->data;
    user = NULL;
    return TR_OK;
}

const char *tr_data_third_label(const tr_data *data)
{
    return data->state->third_label ? data->state->third_label : "";
}

bool tr_data_labels_are_names(const tr_data *data)
{
    const struct tr_schema *s = tr_data_schema(data);
    return s && s->labels.n > 0 && !s->positive;
}

void tr_data_label_text(const tr_data *data, float label, char text[TR_LABEL_TEXT])
{
    tr_schema_label_text(data ? tr_data_schema(data) : NULL, label, text);
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
    store_forget(data->state->store);
}

void tr_data_forget_rows(const tr_data *data, size_t n)
{
    struct tr_data_state *s = data->state;
    if (s->store->readers > 1 || s->cached || s->file || s->stream) return;
    size_t numbers = s->rows.begin ? (size_t)s->rows.begin[n] : n * s->rows.columns;
    s->store->forgotten = true;
    tr_pages_give_back(s->rows.value, numbers * sizeof *s->rows.value);
    tr_pages_give_back(s->rows.column, numbers * sizeof *s->rows.column);
}

void tr_data_close(tr_data **data)
{
    struct tr_data_user *user = (struct tr_data_user *)(void *)*data;
    if (!user) return;
    struct tr_store *store = user->data.state->store;
    store_release(user->data.state->tr, &store, user->forgot);
    tr_batches_free(&user->batches);
    free(user);
    *data = NULL;
}

/* Returns the first row that a member of the group processes. Replicated rows are divided equally among the members; otherwise each
 * member processes all rows that it stores. */
static size_t part_begin(const tr_data *data, const tr_worker *me, int member)
{
    if (!tr_data_is_partitioned(data->state->tr, TR_DATA_REPLICATED))
        return member > me->member ? data->rows.n : 0;
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

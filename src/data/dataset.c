#define _GNU_SOURCE
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "data/cache.h"
#include "data/node_rows.h"
#include "data/part.h"
#include "data/schema_all.h"
#include "data/storage.h"
#include "data/store.h"
#include "data/weights.h"
#include "trireme/model.h"

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
    if (wanted == TR_FORMAT_HDF5 && looks == TR_FORMAT_CSV && files->file[0].hdf5)
        wanted = looks; /* with named columns */
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
    bool lists = data->format == TR_FORMAT_LIBSVM ||
                 (data->format == TR_FORMAT_HDF5 && !tr_data_hdf5_head(data)->full);
    if (!lists && tr_data_is_partitioned(s->tr, TR_DATA_VERTICAL))
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

/* ---- opening ---- */

/* In the folders of TRIREME_DATA, or else where data lie beside the job file, as those of an installed Trireme do. */
static int find_elsewhere(const tr_job *job, const char *path, char **found)
{
    const char *slash = strrchr(job->path, '/'), *more = getenv("TRIREME_DATA");
    char *list, *rest, *folder;
    TR_TRY(tr_format(&list, "%s:%.*s../datasets", more ? more : "", slash ? (int)(slash - job->path) + 1 : 0,
                     job->path));
    int status = TR_OK;
    for (rest = list; status == TR_OK && !*found && (folder = strsep(&rest, ":"));)
        if (*folder) status = tr_files_find(path, &folder, 1, found);
    free(list);
    return status;
}

int tr_data_find(const tr_job *job, const char *path, char **found)
{
    TR_TRY(tr_files_find(path, job->data.folders.item, job->data.folders.n, found));
    if (!*found && strcmp(tr_job_where(job, "data.folders"), "default") == 0)
        TR_TRY(find_elsewhere(job, path, found));
    return *found ? TR_OK : tr_copy_string(path, found);
}

int tr_files_of(const tr_job *job, char *const names[], size_t n, struct tr_files *files)
{
    char **paths;
    TR_TRY(TR_NEW(&paths, n));
    int status = TR_OK;
    for (size_t i = 0; i < n && status == TR_OK; i++) status = tr_data_find(job, names[i], &paths[i]);
    if (status == TR_OK) status = tr_files_open(paths, n, files);
    for (size_t i = 0; i < n; i++) free(paths[i]);
    free(paths);
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

static int fill(tr_data *data, const tr_data *like)
{
    struct tr_data_state *s = data->state;
    struct tr_part part = {.records = NULL};
    TR_TRY(tr_agree(s->tr, s->tr->rank == 0 ? read_heads(data, like) : TR_OK));
    TR_TRY(tell_heads(data));
    s->node_rows = tr_node_rows_find(data);
    if (!s->test && !s->node_rows) s->tr->readings++;
    int status =
        tr_data_is_triples(data) ? tr_fill_triples(data, like, &part) : tr_fill_rows(data, like, &part);
    tr_triples_free(&part.triples);
    if (status == TR_OK && tr_data_is_partitioned(s->tr, TR_DATA_REPLICATED))
        status =
            tr_data_share(data, part.keys, part.n_keys, tr_data_is_dense(data) || !s->tr->job->table.prune);
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
    data->dense = tr_data_is_dense(data);
    data->on_disk = data->state->on_disk;
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
    if (status == TR_OK && !(s->form & TR_DATA_NODE)) status = tr_weights_read(&store->data);
    if (status == TR_OK && s->node_rows) tr_node_rows_pool(&store->data);
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
        if (!found) tr_store_hold(store);
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

bool tr_data_is_held_out(const tr_data *data)
{
    return data->state->test && data->state->held_out.to > 0;
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

void tr_data_forget_rows(const tr_data *data, size_t n)
{
    tr_store_forget_rows(data->state->store, n);
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

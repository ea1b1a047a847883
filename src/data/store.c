#define _GNU_SOURCE
#include "data/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pages.h"
#include "data/cache.h"
#include "data/disk.h"
#include "trireme/collective.h"
#include "trireme/model.h"

/* ---- keys ---- */

/* Times, device and inode of each file: a file that was rewritten is another file. */
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

static void print_lists(FILE *text, const struct tr_job_list *const lists[], size_t n)
{
    for (size_t l = 0; l < n; l++) {
        fputs(" list", text);
        for (size_t i = 0; i < lists[l]->n; i++) fprintf(text, "«%s»", lists[l]->item[i]);
    }
}

/* The settings of reading files. */
static void print_reading(FILE *text, const tr_job *job)
{
    const struct tr_job_list *lists[] = {&job->data.columns, &job->data.missing, &job->data.cross};
    fprintf(text, "%d %d %d %llu %d %s %s %llu", job->data.format, job->data.index_base, job->data.on_error,
            (unsigned long long)job->data.features, job->data.header, job->data.label, job->data.positive,
            (unsigned long long)job->data.hash);
    if (*job->data.weight) fprintf(text, " weight %s", job->data.weight);
    if (job->data.on_error == TR_ON_ERROR_SKIP)
        fprintf(text, " records of %llu", (unsigned long long)job->data.max_record);
    print_lists(text, lists, 3);
}

/* Everything that determines the rows. */
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
    const char *const *formats = job->class->data_formats; /* they decide where data.format is auto */
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
    if (files) print_files(text, files);
    else print_lists(text, (const struct tr_job_list *[]){&job->data.train, &job->data.folders}, 2);
    return end_key(text, key);
}

/* ---- stores ---- */

static int store_add(tr_context *tr, enum tr_data_part part, char **key, struct tr_store **out)
{
    if (!tr->stores) TR_TRY(TR_NEW(&tr->stores, 1));
    struct tr_stores *all = tr->stores;
    struct tr_store *store;
    TR_TRY(TR_GROW(&all->store, &all->capacity, all->n + 1));
    TR_TRY(TR_NEW(&store, 1));
    int status = TR_NEW(&store->data.state, 1);
    if (status != TR_OK) {
        free(store);
        return status;
    }
    struct tr_data_state *s = store->data.state;
    s->tr = tr;
    s->store = store;
    s->form = (int)part & ~TR_DATA_TEST;
    s->test = part & TR_DATA_TEST;
    TR_TRY(tr_job_held_out(tr->job, &s->held_out));
    store->key = *key;
    *key = NULL;
    all->store[all->n++] = *out = store;
    return TR_OK;
}

/* Releases the stores that the team holds for its next task: all of them, or those that the present task has not opened. */
static void store_drop_held(tr_context *tr, bool all)
{
    for (size_t i = tr->stores ? tr->stores->n : 0; i-- > 0;) {
        struct tr_store *store = tr->stores->store[i];
        if (!store->held || (store->job == tr->job && !all)) continue;
        store->held = false;
        tr_store_release(tr, &store, true);
    }
}

static void store_drop_all_held(tr_context *tr)
{
    store_drop_held(tr, true);
}

void tr_store_hold(struct tr_store *store)
{
    tr_context *tr = store->data.state->tr;
    const struct tr_cached *cached = store->data.state->cached;
    if (!tr->team || (cached && !cached->pooled)) return; /* its files belong to the task */
    store->users++; /* but no reader: a task that forgets the non-zeros frees them */
    store->held = true;
    tr->let_go = store_drop_all_held;
}

int tr_store_find(tr_context *tr, const struct tr_files *files, enum tr_data_part part, const tr_data *like,
                  struct tr_store **store, bool *found)
{
    char *key = NULL;
    TR_TRY(tr_agree(tr, make_key(tr, files, part, like, &key)));
    *store = NULL;
    for (size_t i = 0; tr->stores && i < tr->stores->n && !*store; i++) {
        struct tr_store *other = tr->stores->store[i];
        if (!other->forgotten && strcmp(other->key, key) == 0) *store = other;
    }

    /* All ranks have to find the same one: some may have forgotten it, or see another version of a file. */
    uint64_t number = *store ? (*store)->number : 0, bounds[2] = {number, ~number};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, tr->world, &request);
    int status = tr_wait_request(tr, &request, "all ranks to look for data that they have");
    if (status == TR_OK && bounds[0] != ~bounds[1]) *store = NULL;
    *found = *store != NULL;
    if (status == TR_OK && !*found) {
        store_drop_held(tr, false);
        status = tr_agree(tr, store_add(tr, part, &key, store));
        if (*store) (*store)->number = ++tr->stores->loaded;
    }
    free(key);
    if (*store) {
        tr_store_keep(*store);
        (*store)->opened++;
        (*store)->job = tr->job;
    }
    if (status != TR_OK) tr_store_release(tr, store, false);
    return status;
}

const struct tr_schema *tr_store_schema(const tr_context *tr)
{
    const struct tr_store *last = NULL;
    for (size_t i = 0; tr->stores && i < tr->stores->n; i++) {
        const struct tr_store *store = tr->stores->store[i];
        if (!store->data.state->test && (!last || store->number > last->number)) last = store;
    }
    return last ? last->data.state->schema : NULL;
}

void tr_store_keep(struct tr_store *store)
{
    store->users++;
    store->readers++;
}

void tr_store_forget_rows(struct tr_store *store, size_t n)
{
    struct tr_data_state *s = store->data.state;
    if (store->readers > 1 || s->cached || s->file || s->stream) return;
    size_t numbers = s->rows.begin ? (size_t)s->rows.begin[n] : n * s->rows.columns;
    store->forgotten = true;
    tr_pages_give_back(s->rows.value, numbers * sizeof *s->rows.value);
    tr_pages_give_back(s->rows.column, numbers * sizeof *s->rows.column);
}

void tr_store_forget(struct tr_store *store)
{
    struct tr_data_state *s = store->data.state;
    if (--store->readers > 0) return;
    store->forgotten = true;
    tr_row_stream_close(&s->stream);
    if (s->file) tr_row_file_forget(s->file, TR_ROWS_LABEL);
    else tr_row_store_free(&store->data, TR_ROWS_LABEL);
}

void tr_store_release(tr_context *tr, struct tr_store **store, bool forgot)
{
    struct tr_store *s = *store;
    *store = NULL;
    if (!s) return;
    if (--s->users > 0) {
        if (!forgot && s->held) s->readers--; /* the next task may read them again */
        else if (!forgot) tr_store_forget(s);
        return;
    }
    struct tr_stores *all = tr->stores;
    size_t kept = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->store[i] != s) all->store[kept++] = all->store[i];
    all->n = kept;
    if (kept == 0) {
        free(all->store);
        free(all);
        tr->stores = NULL;
    }
    struct tr_data_state *state = s->data.state;
    tr_row_stream_close(&state->stream);
    if (!state->file) tr_row_store_free(&s->data, TR_ROW_ARRAYS);
    tr_cache_close(state);
    tr_files_close(&state->files);
    tr_data_free_head(&s->data);
    free(state);
    free(s->key);
    free(s);
}

int tr_store_report(tr_context *tr)
{
    struct tr_row_stream_counts c = {.disk_bytes = 0};
    bool any = false;
    for (size_t i = 0; tr->stores && i < tr->stores->n; i++) {
        const struct tr_data_state *s = tr->stores->store[i]->data.state;
        any = any || s->on_disk;
        tr_row_stream_count(s->stream, &c);
    }
    if (!any) return TR_OK;
    double sum[] = {(double)c.disk_bytes,    (double)c.memory_bytes, (double)c.read_bytes,
                    (double)c.dropped_bytes, (double)c.ready,        (double)c.waited,
                    c.read_seconds,          c.waited_seconds};
    static const char *const names[] = {"data_disk_bytes",    "data_memory_bytes",  "data_read_bytes",
                                        "data_dropped_bytes", "data_blocks_ready",  "data_blocks_waited",
                                        "data_read_seconds",  "data_waited_seconds"};
    enum { FIGURES = sizeof sum / sizeof *sum };
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_SUM, TR_F64, sum, FIGURES));
    for (int i = 0; i < FIGURES; i++) TR_TRY(tr_context_report(tr, names[i], sum[i]));
    return TR_OK;
}

#define _GNU_SOURCE
#include "data/store.h"

#include "trireme/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/pages.h"
#include "data/cache.h"
#include "data/scale.h"
#include "data/stream.h"

/* ---- what rows are made from ---- */

/* A file that is written anew is another file. */
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

/* What the job says of how files are read. */
static void print_reading(FILE *text, const tr_job *job)
{
    const struct tr_job_list *lists[] = {&job->data.columns, &job->data.missing, &job->data.cross};
    fprintf(text, "%d %d %d %llu %d %s %s %llu", job->data.format, job->data.index_base, job->data.on_error,
            (unsigned long long)job->data.features, job->data.header, job->data.label, job->data.positive,
            (unsigned long long)job->data.hash);
    if (*job->data.weight) fprintf(text, " weight %s", job->data.weight);
    print_lists(text, lists, 3);
}

/* All that the rows depend on. */
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
    const char *const *formats = job->class->data_formats; /* which say it where the job leaves it open */
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

static struct tr_store *look_up(const tr_context *tr, const char *key)
{
    for (size_t i = 0; tr->stores && i < tr->stores->n; i++) {
        struct tr_store *store = tr->stores->store[i];
        if (!store->forgotten && strcmp(store->key, key) == 0) return store;
    }
    return NULL;
}

/* A store that is not whole on all ranks is none: some may have forgotten it, or see a file otherwise. */
static int agree_on_store(tr_context *tr, struct tr_store **store)
{
    uint64_t number = *store ? (*store)->number : 0, bounds[2] = {number, ~number};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MIN, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all ranks to look for data that they have"));
    if (bounds[0] != ~bounds[1]) *store = NULL;
    return TR_OK;
}

static int add_store(tr_context *tr, enum tr_data_part part, char **key, struct tr_store **out)
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

/* What the team holds for tasks to come: all of it, or what none of this task has opened. */
static void drop_held(tr_context *tr, bool all)
{
    for (size_t i = tr->stores ? tr->stores->n : 0; i-- > 0;) {
        struct tr_store *store = tr->stores->store[i];
        if (!store->held || (store->job == tr->job && !all)) continue;
        store->held = false;
        tr_store_release(tr, &store, true);
    }
}

static void drop_all_held(tr_context *tr)
{
    drop_held(tr, true);
}

void tr_store_hold(struct tr_store *store)
{
    tr_context *tr = store->data.state->tr;
    const struct tr_cached *cached = store->data.state->cached;
    if (!tr->team || (cached && !cached->pooled)) return; /* whose files are the task's own */
    store->users++; /* but no reader: who forgets the non-zeros, gives them back */
    store->held = true;
    tr->let_go = drop_all_held;
}

int tr_store_take(tr_context *tr, const struct tr_files *files, enum tr_data_part part, const tr_data *like,
                  struct tr_store **store, bool *found)
{
    char *key = NULL;
    TR_TRY(tr_agree(tr, make_key(tr, files, part, like, &key)));
    *store = look_up(tr, key);
    int status = agree_on_store(tr, store);
    *found = *store != NULL;
    if (status == TR_OK && !*found) {
        drop_held(tr, false);
        status = tr_agree(tr, add_store(tr, part, &key, store));
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

static void free_nonzeros(struct tr_matrix *m)
{
    free(m->begin);
    free(m->column);
    free(m->value);
    m->begin = NULL;
    m->column = NULL;
    m->value = NULL;
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
    if (s->file) tr_cache_file_forget(s->file, TR_CACHE_BEGIN, TR_CACHE_VALUE);
    else free_nonzeros(&s->rows);
}

void tr_data_free_head(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_names_free(&s->row_names);
    tr_names_free(&s->column_names);
    free(s->heads);
    free((void *)(uintptr_t)data->label);
    free(s->stretch);
    free(s->block);
    free(s->weight);
    free(s->third_label);
    for (size_t i = 0; i < s->word_lists; i++) tr_ids_free(&s->words[i]);
    free(s->words);
    tr_scale_free(&s->scale);
    tr_schema_release(&s->schema);
    tr_bindings_free(&s->bindings);
}

static void free_data(tr_data *data)
{
    struct tr_data_state *s = data->state;
    tr_row_stream_close(&s->stream);
    if (!s->file) {
        tr_matrix_free(&s->rows);
        free(s->row_number);
        free((void *)(uintptr_t)data->keys);
    }
    tr_cache_close(s);
    tr_files_close(&s->files);
    tr_data_free_head(data);
    free(s);
}

static void remove_store(tr_context *tr, const struct tr_store *store)
{
    struct tr_stores *all = tr->stores;
    size_t kept = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->store[i] != store) all->store[kept++] = all->store[i];
    all->n = kept;
    if (kept > 0) return;
    free(all->store);
    free(all);
    tr->stores = NULL;
}

void tr_store_release(tr_context *tr, struct tr_store **store, bool forgot)
{
    struct tr_store *s = *store;
    *store = NULL;
    if (!s) return;
    if (--s->users > 0) {
        if (!forgot && s->held) s->readers--; /* there may be one again */
        else if (!forgot) tr_store_forget(s);
        return;
    }
    remove_store(tr, s);
    free_data(&s->data);
    free(s->key);
    free(s);
}

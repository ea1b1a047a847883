#include "cli/task_rows.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "store/persistent.h"
#include "stage/stage.h"
#include "trireme/collective.h"
#include "trireme/model.h"

/* Rows that are read once. */
struct set {
    tr_job
        job; /* of the first task, for a group of all ranks of a node; its pointers are owned by that task */
    tr_context *node;
    struct tr_node_rows rows;
    int tasks;
};

struct tr_task_rows {
    struct set *set;
    int n;
    int *of;                       /* by task: its set, or -1 */
    struct tr_cache_folder folder; /* in the node's memory, opened by one of its ranks: … */
    char *pool;                    /* … it holds rows that tasks derive from these; NULL: there is none */
};

/* ---- who shares what ---- */

static bool has_test_files(const tr_job *job)
{
    struct tr_job_held_out held;
    return job->data.test.n > 0 && tr_job_held_out(job, &held) == TR_OK && held.to == 0;
}

static bool can_share(const tr_job *job)
{
    bool in_memory = job->data.storage == TR_LEVEL_AUTO || job->data.storage == TR_LEVEL_MEMORY;
    return in_memory && job->data.cache != TR_CACHE_MEMORY;
}

/* Finds for each task the first task with the same rows. */
static int find_sets(const tr_job *job, const bool *wanted, int *of)
{
    char **key;
    int status = TR_OK;
    TR_TRY(TR_NEW(&key, job->tasks));
    for (size_t i = 0; i < job->tasks && status == TR_OK; i++) {
        of[i] = -1;
        if (!wanted[i] || !can_share(job->task[i].job)) continue;
        status = tr_store_rows_key(job->task[i].job, NULL, &key[i]);
        size_t first = 0;
        while (status == TR_OK && first < i && !(of[first] == (int)first && strcmp(key[first], key[i]) == 0))
            first++;
        of[i] = (int)first;
    }
    for (size_t i = 0; i < job->tasks; i++) free(key[i]);
    free(key);
    return status;
}

/* Numbers the sets of rows that several tasks use. */
static int number_sets(size_t tasks, int *of)
{
    int n = 0;
    for (size_t i = 0; i < tasks; i++) {
        int users = 0;
        for (size_t k = i; k < tasks && of[i] == (int)i; k++) users += of[k] == (int)i;
        for (size_t k = tasks; users > 0 && k-- > i;)
            if (of[k] == (int)i) of[k] = users > 1 ? -2 - n : -1;
        n += users > 1;
    }
    for (size_t i = 0; i < tasks; i++) of[i] = of[i] < -1 ? -2 - of[i] : -1;
    return n;
}

/* A copy of the task's job without folds, scaling and layout: every rank of the node loads all raw rows. */
static void choose_job(const tr_job *job, const int *of, int which, struct set *set)
{
    const struct tr_job_task *first = NULL;
    const tr_job *tested = NULL;
    for (size_t i = 0; i < job->tasks; i++) {
        if (of[i] != which) continue;
        if (!first) first = &job->task[i];
        if (!tested && has_test_files(job->task[i].job)) tested = job->task[i].job;
        set->tasks++;
    }
    set->rows.task = first->name;
    set->job = tested ? *tested : *first->job;
    if (!tested) set->job.data.test.n = 0;
    set->job.data.partition = TR_DATA_REPLICATED;
    set->job.data.order = TR_ORDER_FILE;
    set->job.data.storage = TR_LEVEL_MEMORY;
    set->job.data.cache = TR_CACHE_NO;
    set->job.data.scale = TR_SCALE_NONE;
    set->job.table.prune = true;
    set->job.ranks.layout = TR_ROLES_AUTO;
    set->job.ranks.servers = set->job.ranks.group_size = 0;
    set->job.ranks.groups = 1;
    set->job.stages = 0;
}

/* ---- reading ---- */

/* Packed text is taken for eight times as long, HDF5 for four times; numbers take up to twice as many bytes as their text, and places of
 * rows more. */
static int check_room(const tr_job *job)
{
    struct tr_files files = {.n = 0};
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    uint64_t need = 0, most = job->data.memory ? job->data.memory : UINT64_MAX,
             room = tr_persistent_free(bases.base[0]), half = tr_memory_free() / 2;
    TR_TRY(tr_data_files(job, false, &files));
    for (size_t i = 0; i < files.n; i++)
        need += files.file[i].size * (files.file[i].packing ? 8 : files.file[i].hdf5 ? 4 : 2);
    tr_files_close(&files);
    need += need / 2;
    if (most > room) most = room;
    if (most > half) most = half;
    return need <= most ? TR_OK
                        : tr_fail(TR_ERR_SYSTEM, "they may need %.1f MB, and a node has %.1f MB for them",
                                  (double)need / 1e6, (double)most / 1e6);
}

static int open_node(tr_context *world, int number, struct set *set)
{
    int *rank, n = 0;
    TR_TRY(TR_NEW(&rank, (size_t)world->size));
    for (int i = 0; i < world->size; i++)
        if (world->node_of[i] == world->node_of[world->rank]) rank[n++] = i;
    int status = tr_ranks_start_team(world, rank, n, number, &set->node);
    free(rank);
    TR_TRY(status);
    set->node->lent = true;
    set->node->quiet = true;
    TR_TRY(tr_context_assign(set->node, &set->job));
    TR_TRY(tr_agree(set->node, check_room(&set->job)));
    return tr_node_rows_open(set->node, world, &set->rows);
}

static uint64_t bytes_of(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    if (s->file) return tr_row_file_bytes(s->file);
    uint64_t row = 2 * sizeof(uint64_t) + sizeof(float), number = s->rows.value ? 8 : 4;
    return (data->total_rows + 1) * (row + s->rows.columns * sizeof(float)) +
           (data->dense ? 0 : data->total_nonzeros * number) + data->n_keys * sizeof(tr_key);
}

static void say(tr_context *world, const struct set *set)
{
    const tr_data *train = set->rows.train, *test = set->rows.test;
    double seconds = train->state->load_seconds + (test ? test->state->load_seconds : 0);
    uint64_t bytes = bytes_of(train) + (test ? bytes_of(test) : 0);
    char more[64] = "";
    if (test) snprintf(more, sizeof more, " and %llu of test data", (unsigned long long)test->total_rows);
    tr_say(world,
           "rows:          %llu of training data%s, read once for %d tasks in %.2f s, %.1f MB on each node",
           (unsigned long long)train->total_rows, more, set->tasks, seconds, (double)bytes / 1e6);
}

static void close_set(tr_context *world, struct set *set)
{
    if (!set->node) return;
    tr_node_rows_close(world, &set->rows);
    (void)tr_context_close(set->node);
    set->node = NULL;
}

/* Not an error: the tasks read the data themselves and report errors in them. */
static void open_set(tr_context *world, int which, struct set *set)
{
    enum { LAST_NUMBER = 32767 };
    int status = open_node(world, LAST_NUMBER - which, set);
    if (status == TR_OK) say(world, set);
    if (status == TR_ERR_SYSTEM)
        tr_say(world, "note:          each task reads its rows: %s", tr_error_text());
    if (status != TR_OK) close_set(world, set);
}

/* ---- all of it ---- */

/* Tasks can do without it. Simulated nodes would have one. */
static int open_pool(tr_context *world, struct tr_task_rows *r)
{
    char *path = NULL;
    int status = TR_OK;
    if (world->job->ranks.node_size > 0) return TR_OK;
    if (world->node_rank == 0) (void)tr_cache_folder_lock(NULL, world->job->output, &r->folder);
    else status = tr_cache_folder_path(NULL, world->job->output, &path);
    TR_TRY(tr_barrier(world, world->node, "a folder for rows"));
    const char *folder = path ? path : r->folder.path;
    if (status == TR_OK && folder) status = tr_format(&r->pool, "%s/" TR_CACHE_FILES, folder);
    free(path);
    if (status != TR_OK || !r->pool || tr_persistent_is_own(r->pool)) return status;
    free(r->pool);
    r->pool = NULL;
    return TR_OK;
}

int tr_task_rows_open(tr_context *world, const bool *wanted, struct tr_task_rows **rows)
{
    const tr_job *job = world->job;
    struct tr_task_rows *r = NULL;
    bool *told = NULL;
    int status = TR_NEW(&told, job->tasks);
    if (status == TR_OK && world->rank == 0) memcpy(told, wanted, job->tasks * sizeof *told);
    if (status == TR_OK) status = TR_NEW(&r, 1);
    *rows = r;
    if (status == TR_OK) r->folder.lock = -1;
    if (status == TR_OK) status = TR_NEW(&r->of, job->tasks);
    status = tr_agree(world, status);
    if (status == TR_OK) status = tr_broadcast(world, TR_SET_ALL, 0, told, job->tasks * sizeof *told);
    if (status == TR_OK) {
        status = find_sets(job, told, r->of);
        r->n = number_sets(job->tasks, r->of);
        if (status == TR_OK) status = TR_NEW(&r->set, (size_t)r->n);
        status = tr_agree(world, status);
    }
    if (status == TR_OK && r->n > 0) status = tr_agree(world, open_pool(world, r));
    free(told);
    for (int i = 0; status == TR_OK && i < r->n; i++) {
        choose_job(job, r->of, i, &r->set[i]);
        r->set[i].rows.folder = r->pool;
        open_set(world, i, &r->set[i]);
    }
    return status;
}

void tr_task_rows_close(tr_context *world, struct tr_task_rows **rows)
{
    struct tr_task_rows *r = *rows;
    if (!r) return;
    for (int i = 0; r->set && i < r->n; i++) close_set(world, &r->set[i]);
    if (r->pool && world->node_rank == 0) tr_cache_folder_remove(&r->folder);
    free(r->pool);
    free(r->set);
    free(r->of);
    free(r);
    *rows = NULL;
}

int tr_task_rows_of(const struct tr_task_rows *rows, size_t task)
{
    return rows->of[task];
}

int tr_task_rows_count(const struct tr_task_rows *rows)
{
    return rows->n;
}

uint64_t tr_task_rows_readings(const struct tr_task_rows *rows)
{
    uint64_t n = 0;
    for (int i = 0; i < rows->n; i++) n += rows->set[i].node != NULL;
    return n;
}

void tr_task_rows_forget(struct tr_task_rows *rows, int which)
{
    struct set *set = &rows->set[which];
    if (!set->node) return;
    tr_node_rows_forget(&set->rows);
}

#define _GNU_SOURCE
#include "data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/pages.h"
#include "data/dictionary.h"
#include "data/scale.h"
#include "store/persistent.h"
#include "trireme/collective.h"

/* ---- folders ---- */

#define FOLDERS "trireme-data"
#define UNNAMED "trireme-rows"
enum { SILENCE = 3600 }; /* seconds after which a run without news is over */

int tr_cache_folder_path(const char *base, const char *output, char **path)
{
    struct tr_persistent_bases bases;
    char *whole, *name = NULL, host[TR_HOST_BYTES];
    TR_TRY(tr_whole_path(output, &whole));
    tr_persistent_bases(&bases);
    tr_host_name(host);
    int status = tr_format(&name, "%s\n%s", whole, host);
    if (status == TR_OK)
        status = tr_format(path, "%s/" FOLDERS "-%u-%016llx", base ? base : bases.base[0],
                           (unsigned)geteuid(), (unsigned long long)XXH3_64bits(name, strlen(name)));
    free(name);
    free(whole);
    return status;
}

/* The locked file `owner` of a folder, or -1. */
static int folder_try_lock(const char *folder, bool make)
{
    char *path;
    if (tr_format(&path, "%s/owner", folder) != TR_OK) return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || !tr_is_still_at(fd, path))) {
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

static void folder_unlock(struct tr_cache_folder *folder)
{
    if (folder->lock >= 0) close(folder->lock);
    free(folder->path);
    *folder = (struct tr_cache_folder){.lock = -1};
}

int tr_cache_folder_lock(const char *base, const char *output, struct tr_cache_folder *folder)
{
    enum { ATTEMPTS = 400 }; /* a job that starts at the same time may hold the lock to look at the owner */
    char *files = NULL;
    folder->lock = -1;
    TR_TRY(tr_cache_folder_path(base, output, &folder->path));
    int status = TR_OK;
    for (int i = 0; i < ATTEMPTS && folder->lock < 0 && status == TR_OK; i++) {
        if (i > 0) tr_sleep(0.005);
        status = tr_persistent_make(folder->path);
        if (status == TR_OK) folder->lock = folder_try_lock(folder->path, true);
    }
    if (status == TR_OK && folder->lock < 0)
        status = tr_fail(TR_ERR_NO_OUTPUT, "%s: another process is using it", folder->path);
    /* an owner that cannot be written stays empty: then the folder is removed like that of an unknown run */
    if (status == TR_OK && ftruncate(folder->lock, 0) == 0 && !tr_owner_write(folder->lock, output))
        (void)ftruncate(folder->lock, 0);
    if (status == TR_OK) status = tr_format(&files, "%s/" TR_CACHE_FILES, folder->path);
    if (status == TR_OK) status = tr_persistent_make(files);
    free(files);
    if (status != TR_OK) tr_cache_folder_remove(folder);
    return status;
}

void tr_cache_folder_remove(struct tr_cache_folder *folder)
{
    if (folder->path && folder->lock >= 0 && tr_persistent_is_own(folder->path))
        tr_persistent_remove(folder->path);
    folder_unlock(folder);
}

/* ---- folders of runs that are over ---- */

/* Whether the status.json of a run, which it writes every few seconds, says that it has ended. */
static bool run_has_ended(const char *output)
{
    static const char *const ends[] = {"\"state\": \"done\"", "\"state\": \"failed\"",
                                       "\"state\": \"stopped\""};
    char *path, text[2048];
    struct stat status;
    if (tr_format(&path, "%s/status.json", output) != TR_OK) return false;
    FILE *file = fopen(path, "re");
    free(path);
    if (!file) return true;
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    bool ended = fstat(fileno(file), &status) < 0 || time(NULL) - status.st_mtime > SILENCE;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) ended = ended || strstr(text, ends[i]);
    fclose(file);
    return ended;
}

/* Whether the run that owns a folder is over; `ended`: runs there are. A folder without an owner is of no run. Only a process that
 * sees the same files as the owner can find the run's output. */
static bool folder_is_over(const char *ended, int fd)
{
    char output[PATH_MAX];
    bool here;
    if (!tr_owner_read(fd, output, &here)) return true;
    size_t n = ended ? strlen(ended) : 0;
    bool below = ended && strncmp(output, ended, n) == 0 && (output[n] == '\0' || output[n] == '/');
    return here && (below || run_has_ended(output));
}

static int folder_clean(void *what, const char *path, const char *rest)
{
    const char *ended = what;
    char *owner;
    if (strspn(rest, "0123456789abcdef") != 16 || rest[16]) return TR_OK;
    /* look without the lock first: a run that is being started again may be about to lock it */
    if (tr_format(&owner, "%s/owner", path) != TR_OK) return TR_OK;
    int fd = open(owner, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool over = fd < 0 || folder_is_over(ended, fd);
    free(owner);
    if (fd >= 0) close(fd);
    if (!over) return TR_OK;
    int lock = folder_try_lock(path, false);
    if (lock < 0) {
        (void)rmdir(path); /* the process was killed before it made `owner`; not if the folder has files */
        return TR_OK;
    }
    if (folder_is_over(ended, lock)) tr_persistent_remove(path);
    close(lock);
    return TR_OK;
}

/* The path of a file in this host's memory that loses its name as soon as all users have opened it. pid: of its process, or a
 * pattern. */
static int unnamed_path(const char *pid, char **path)
{
    struct tr_persistent_bases bases;
    char host[TR_HOST_BYTES], view[TR_VIEW_BYTES], name[TR_HOST_BYTES + TR_VIEW_BYTES + 32];
    tr_persistent_bases(&bases);
    tr_host_name(host);
    tr_view_of_processes(view);
    snprintf(name, sizeof name, "%s-%s-%s", host, view, pid);
    return tr_persistent_path(bases.base[0], UNNAMED, name, path);
}

void tr_cache_clean(const char *ended)
{
    char *whole = NULL, *pattern;
    glob_t found;
    if (!ended || tr_whole_path(ended, &whole) == TR_OK)
        (void)tr_persistent_each(FOLDERS, folder_clean, whole);
    free(whole);
    if (unnamed_path("*", &pattern) != TR_OK) return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            long pid = strtol(strrchr(found.gl_pathv[i], '-') + 1, NULL, 10);
            if (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH) unlink(found.gl_pathv[i]);
        }
        globfree(&found);
    }
    free(pattern);
}

/* ---- the cache of a context ---- */

enum { IN_MEMORY, ON_DISK, PLACES };

struct tr_cache {
    bool leads; /* the lowest rank of the host looks after the folders */
    bool said;  /* that something is not kept */
    struct cache_place {
        bool entered, wanted;
        struct tr_cache_folder folder;
        char *path;
    } place[PLACES];
};

static struct cache_place *cache_place(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->tr->cache->place[s->on_disk ? ON_DISK : IN_MEMORY];
}

/* The job has ended without failure: nothing in memory is needed again. */
static void cache_end(tr_context *tr)
{
    struct tr_cache *c = tr->cache;
    tr->cache = NULL;
    tr_cache_folder_remove(&c->place[IN_MEMORY].folder);
    if (tr->job->data.cache == TR_CACHE_NO) tr_cache_folder_remove(&c->place[ON_DISK].folder);
    else folder_unlock(&c->place[ON_DISK].folder);
    for (int i = 0; i < PLACES; i++) free(c->place[i].path);
    free(c);
}

/* Once: the job does not depend on it. */
static void cache_say_not_kept(tr_context *tr, const char *why)
{
    struct tr_cache *c = tr->cache;
    if (!c->said) tr_say(tr, "note:          data are not kept for another start%s%s", *why ? ": " : "", why);
    c->said = true;
}

/* *all: whether it is true on all ranks of the set. */
static int all_true(tr_context *tr, enum tr_set set, bool *all)
{
    int32_t n = *all;
    TR_TRY(tr_all_reduce(tr, set, TR_MIN, TR_I32, &n, 1));
    *all = n;
    return TR_OK;
}

static int cache_lock_folder(const tr_context *tr, struct cache_place *p, const char *base)
{
    char *folder;
    TR_TRY(tr_cache_folder_path(base, tr->job->output, &folder));
    int status = tr_format(&p->path, "%s/" TR_CACHE_FILES, folder);
    free(folder);
    if (status == TR_OK && tr->cache->leads) status = tr_cache_folder_lock(base, tr->job->output, &p->folder);
    return status;
}

/* Once in a context and place. */
static int cache_enter(tr_context *tr, bool disk)
{
    if (!tr->cache) {
        struct tr_cache *c;
        int host_rank;
        TR_TRY(tr_agree(tr, TR_NEW(&c, 1)));
        tr->cache = c;
        tr->at_end = cache_end;
        for (int i = 0; i < PLACES; i++) c->place[i].folder.lock = -1;
        MPI_Comm_rank(tr->host, &host_rank);
        c->leads = host_rank == 0;
    }
    struct cache_place *p = &tr->cache->place[disk ? ON_DISK : IN_MEMORY];
    if (p->entered) return TR_OK;
    p->entered = true;
    if (disk) { /* rows on a disk need the folder: without it the job fails */
        int status = cache_lock_folder(tr, p, tr->job->data.scratch);
        if (status != TR_OK)
            status = tr_fail(TR_ERR_NO_OUTPUT, "%s: data.scratch: %s", tr_job_where(tr->job, "data.scratch"),
                             tr_error_text());
        p->wanted = true;
        return tr_agree(tr, status);
    }
    int mode = tr->job->data.cache;
    bool asked = mode == TR_CACHE_MEMORY || (mode == TR_CACHE_AUTO && tr->lifeline && !tr->team);
    TR_TRY(all_true(tr, TR_SET_ALL, &asked));
    p->wanted = asked && cache_lock_folder(tr, p, NULL) == TR_OK;
    const char *why = p->wanted ? "" : tr_error_text();
    if (tr->cache->leads) tr_cache_clean(asked ? NULL : tr->job->output); /* a locked folder stays */
    if (!asked) return TR_OK;
    TR_TRY(all_true(tr, TR_SET_ALL, &p->wanted));
    if (!p->wanted) cache_say_not_kept(tr, why);
    return TR_OK;
}

void tr_cache_close(struct tr_data_state *s)
{
    struct tr_cached *c = s->cached;
    if (c && c->pooled) tr_row_file_leave(s->file, c->rows);
    tr_row_file_close(&s->file);
    if (!c) return;
    free(c->head);
    free(c->rows);
    free(c);
    s->cached = NULL;
}

/* ---- the head of a data set: everything but its rows ---- */

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

/* A sequence of bytes that is written by one start and read by the next. */
struct archive {
    bool writes;
    char *bytes;
    size_t n, capacity, at;
};

static int archive_copy(struct archive *a, void *memory, size_t n)
{
    size_t whole = (n + 7) / 8 * 8;
    if (a->writes) {
        TR_TRY(TR_GROW(&a->bytes, &a->capacity, a->at + whole));
        memset(a->bytes + a->at, 0, whole);
        memcpy(a->bytes + a->at, memory, n);
        a->n = a->at + whole;
    } else {
        if (whole < n || whole > a->n - a->at) return tr_fail(TR_ERR_DATA, "damaged");
        memcpy(memory, a->bytes + a->at, n);
    }
    a->at += whole;
    return TR_OK;
}

/* The *n bytes that the pointer at `pointer` points to. Reading sets *n and allocates them, with a 0 behind them; NULL if *n is 0. */
static int archive_bytes(struct archive *a, void *pointer, uint64_t *n)
{
    void **array = pointer;
    TR_TRY(archive_copy(a, n, sizeof *n));
    if (!a->writes) {
        *array = NULL;
        if (*n > a->n - a->at) return tr_fail(TR_ERR_DATA, "damaged");
        if (*n > 0) TR_TRY(tr_new(array, (size_t)*n + 1, 1, "what was kept"));
    }
    return *n > 0 ? archive_copy(a, *array, (size_t)*n) : TR_OK;
}

static int archive_array(struct archive *a, void *pointer, uint64_t bytes)
{
    return archive_bytes(a, pointer, &bytes);
}

static int archive_names(struct archive *a, tr_context *tr, tr_names **names)
{
    char *packed = NULL;
    size_t n = 0;
    int status = a->writes && *names ? tr_names_pack(*names, &packed, &n) : TR_OK;
    if (status == TR_OK) status = archive_array(a, &packed, n);
    if (status == TR_OK && !a->writes && packed) status = tr_names_unpack(tr, packed, names);
    free(packed);
    return status;
}

/* The dictionary of the schema belongs to the training data. */
static int archive_schema(struct archive *a, struct tr_data_state *s)
{
    char *packed = NULL, *values = NULL;
    size_t n = 0, values_n = 0;
    int status = a->writes && s->schema ? tr_schema_pack(s->schema, &s->bindings, &packed, &n) : TR_OK;
    if (status == TR_OK && a->writes && s->schema && s->schema->dictionary && !s->test)
        status = tr_dictionary_pack(s->schema->dictionary, &values, &values_n);
    if (status == TR_OK) status = archive_bytes(a, &packed, &n);
    if (status == TR_OK) status = archive_bytes(a, &values, &values_n);
    if (status == TR_OK && !a->writes && packed) {
        status = tr_schema_unpack(packed, n, &s->schema, &s->bindings);
        if (status == TR_OK && values)
            status = tr_dictionary_unpack(s->tr, values, values_n, &s->schema->dictionary);
    }
    free(packed);
    free(values);
    return status;
}

static int archive_scale(struct archive *a, tr_data *data)
{
    struct tr_scale **scale = &data->state->scale;
    TR_TRY(archive_array(a, scale, *scale ? sizeof **scale : 0));
    if (!*scale) return TR_OK;
    uint64_t bytes = (*scale)->share.n * sizeof(double), of_shift = (*scale)->shift ? bytes : 0;
    if (!a->writes) (*scale)->shift = (*scale)->factor = NULL;
    TR_TRY(archive_array(a, &(*scale)->shift, of_shift));
    TR_TRY(archive_array(a, &(*scale)->factor, bytes));
    (*scale)->share.shift = (*scale)->shift;
    (*scale)->share.factor = (*scale)->factor;
    data->scaling = &(*scale)->share;
    return TR_OK;
}

struct head {
    struct tr_row_key generation;
    tr_data data; /* its pointers are not valid */
    size_t rows, columns, stretches, blocks;
    bool full;
    uint64_t unknown, unlabelled, arrays; /* arrays: see struct tr_row_shape */
};

/* Everything that a data set knows besides its rows, in one order for writing and reading. */
static int archive_data(struct archive *a, tr_data *data, struct head *h)
{
    struct tr_data_state *s = data->state;
    *h = (struct head){.generation = s->cached->generation,
                       .data = *data,
                       .rows = s->rows.rows,
                       .columns = s->rows.columns,
                       .stretches = s->stretches,
                       .blocks = s->blocks,
                       .full = s->full,
                       .unknown = s->unknown,
                       .unlabelled = s->unlabelled,
                       .arrays = tr_row_store_shape(data).arrays};
    TR_TRY(archive_copy(a, h, sizeof *h));
    if (!a->writes) {
        *data = h->data;
        data->state = s;
        data->rows = (tr_batch){.n = 0};
        data->keys = NULL;
        data->label = NULL;
        data->row = NULL;
        data->row_names = data->column_names = NULL;
        data->scaling = NULL;
        s->rows.rows = h->rows;
        s->rows.columns = h->columns;
        s->stretches = h->stretches;
        s->blocks = h->blocks;
        s->full = h->full;
        s->unknown = h->unknown;
        s->unlabelled = h->unlabelled;
    }
    TR_TRY(archive_schema(a, s));
    TR_TRY(archive_array(a, &s->heads, s->files.n * sizeof *s->heads));
    TR_TRY(archive_array(a, &data->label, data->labels * sizeof *data->label));
    TR_TRY(archive_array(a, &s->stretch, s->stretches * sizeof *s->stretch));
    TR_TRY(archive_array(a, &s->block, s->blocks > 0 ? (s->blocks + 1) * sizeof *s->block : 0));
    TR_TRY(archive_array(a, &s->weight, s->weight ? s->rows.rows * sizeof *s->weight : 0));
    TR_TRY(archive_array(a, &s->third_label, s->third_label ? strlen(s->third_label) : 0));
    TR_TRY(archive_names(a, s->tr, &s->row_names));
    TR_TRY(archive_names(a, s->tr, &s->column_names));
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    return archive_scale(a, data);
}

static int cache_write_head(tr_data *data)
{
    const struct tr_cached *c = data->state->cached;
    struct archive a = {.writes = true};
    struct tr_row_file *file = NULL;
    struct head h;
    int status = archive_data(&a, data, &h);
    void **const array[] = {(void **)&a.bytes};
    const uint64_t bytes[] = {a.n};
    if (status == TR_OK) status = tr_row_file_move(c->head, c->key, array, bytes, 1, &file);
    tr_row_file_close(&file);
    free(a.bytes);
    return status;
}

/* ---- finding ---- */

/* Data are kept by rank: any other layout divides them in another way. */
static int cache_name_files(tr_data *data, const char *what, const char *key)
{
    const tr_context *tr = data->state->tr;
    struct tr_cached *c = data->state->cached;
    bool shared = tr_data_is_shared(tr);
    const char *folder = cache_place(data)->path;
    char *text;
    int length = (int)strcspn(what, " ");
    TR_TRY(tr_format(&text, "%s: rank %d of %d, roles %u, group %d of %d, member %d of %d, shared %d\n%s",
                     TR_VERSION, tr->rank, tr->size, tr->me.roles, tr->me.group, tr->layout.groups,
                     tr->me.member, tr->layout.group_size, shared, key));
    c->key = tr_row_key_of(text, strlen(text));
    free(text);
    int owner = shared ? tr->layout.worker_rank[tr->me.group * tr->layout.group_size] : tr->rank;
    TR_TRY(tr_format(&c->head, "%s/%.*s-%d", folder, length, what, tr->rank));
    return tr_format(&c->rows, "%s/%.*s-%d.rows", folder, length, what, owner);
}

static int cache_restore(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct tr_cached *c = s->cached;
    struct tr_row_file *file = NULL;
    struct head h;
    uint64_t bytes;
    bool shared = tr_data_is_shared(s->tr);
    TR_TRY(tr_row_file_open(c->head, c->key, 1, 0, 1, &file));
    struct archive a = {.bytes = tr_row_file_at(file, 0, &bytes)};
    a.n = (size_t)bytes;
    int status = archive_data(&a, data, &h);
    tr_row_file_close(&file);
    TR_TRY(status);
    if (h.arrays != 0) {
        size_t member = shared ? (size_t)s->tr->me.member : 0,
               members = shared ? (size_t)s->tr->layout.group_size : 1;
        if (s->on_disk) members = 0; /* blocks are checked when they are read */
        TR_TRY(tr_row_file_open(c->rows, h.generation, TR_ROW_ARRAYS, member, members, &s->file));
        tr_row_store_attach(data, h.arrays);
    }
    c->generation = h.generation;
    return TR_OK;
}

/* *found: all ranks have found theirs, made at the same time. */
static int cache_agree_on_found(tr_data *data, const char *what, int status, bool *found)
{
    struct tr_data_state *s = data->state;
    const uint64_t *g = s->cached->generation.word;
    /* maxima of: not found; found, but wrong; upper and (inverted) lower bounds of what must be equal */
    uint64_t most[6] = {status != TR_OK, status == TR_ERR_DATA, g[0], ~g[0], g[1], ~g[1]};
    TR_TRY(tr_all_reduce(s->tr, TR_SET_ALL, TR_MAX, TR_I64, most, 6));
    *found = !most[0] && most[2] == ~most[3] && most[4] == ~most[5];
    if (!*found && (most[1] || !most[0]))
        tr_say(s->tr, "note:          what was kept of the %s is not of these files and ranks, or damaged",
               what);
    return TR_OK;
}

static void cache_remove_files(const tr_data *data, const char *what)
{
    char *pattern;
    glob_t found;
    if (!data->state->tr->cache->leads ||
        tr_format(&pattern, "%s/%.*s-*", cache_place(data)->path, (int)strcspn(what, " "), what) != TR_OK)
        return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    free(pattern);
}

int tr_cache_find(tr_data *data, const char *what, const char *key, bool *found)
{
    struct tr_data_state *s = data->state;
    *found = false;
    TR_TRY(cache_enter(s->tr, s->on_disk));
    if (!cache_place(data)->wanted) return TR_OK;
    int status = TR_NEW(&s->cached, 1);
    if (status == TR_OK) status = cache_name_files(data, what, key);
    TR_TRY(tr_agree(s->tr, status));
    status = cache_restore(data);
    TR_TRY(cache_agree_on_found(data, what, status, found));
    s->cached->found = *found;
    if (*found) return TR_OK;

    /* Undo cache_restore(): this rank reads, because it or another rank has found nothing. */
    struct tr_data_state old = *s;
    tr_data_free_head(data);
    tr_row_file_close(&s->file);
    *s = (struct tr_data_state){.tr = old.tr,
                                .store = old.store,
                                .files = old.files,
                                .form = old.form,
                                .held_out = old.held_out,
                                .test = old.test,
                                .on_disk = old.on_disk,
                                .memory = old.memory,
                                .cacheable = old.cacheable,
                                .cached = old.cached};
    *data = (tr_data){.state = s};

    /* Files of another layout are removed before any rank makes a new one. */
    struct timespec now;
    cache_remove_files(data, what);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t facts[3] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid()};
    s->cached->generation = tr_row_key_of(facts, sizeof facts);
    TR_TRY(tr_barrier(s->tr, s->tr->world, "all ranks to begin to read data"));
    return tr_broadcast(s->tr, TR_SET_ALL, 0, &s->cached->generation, sizeof s->cached->generation);
}

/* ---- keeping ---- */

/* *enough: there is memory for `bytes` of this rank, twice over, on all nodes. Otherwise the data set is not kept. All ranks. */
static int cache_has_memory(tr_data *data, uint64_t bytes, bool *enough)
{
    tr_context *tr = data->state->tr;
    struct tr_persistent_bases bases;
    *enough = false;
    if (!data->state->cached) return TR_OK;
    tr_persistent_bases(&bases);
    uint64_t memory = tr_memory_free(), space = tr_persistent_free(bases.base[0]);
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    *enough = bytes <= (memory < space ? memory : space) / 2;
    TR_TRY(all_true(tr, TR_SET_ALL, enough));
    if (!*enough) cache_say_not_kept(tr, "memory has not twice the room for them");
    return TR_OK;
}

/* From the heap into a file with this path. */
static int cache_move_rows(tr_data *data, const char *path)
{
    struct tr_row_shape shape = tr_row_store_shape(data);
    uint64_t bytes[TR_ROW_ARRAYS];
    void **array[TR_ROW_ARRAYS];
    if (shape.arrays == 0) return TR_OK;
    (void)tr_row_store_measure(&shape, bytes);
    for (size_t i = 0; i < TR_ROW_ARRAYS; i++) array[i] = tr_row_store_array(data, i);
    TR_TRY(tr_row_file_move(path, data->state->cached->generation, array, bytes, TR_ROW_ARRAYS,
                            &data->state->file));
    tr_row_store_attach(data, shape.arrays);
    return TR_OK;
}

int tr_cache_keep(tr_data *data)
{
    struct tr_data_state *s = data->state;
    struct tr_row_shape shape = tr_row_store_shape(data);
    uint64_t bytes[TR_ROW_ARRAYS];
    bool well, shared = tr_data_is_shared(s->tr);
    if (!s->cached) return TR_OK;
    if (s->on_disk) { /* the rows lie in a file already */
        int status = s->file ? tr_row_file_sum_on_disk(s->file) : TR_OK;
        if (status == TR_OK && s->file) tr_row_file_seal(s->file);
        if (status == TR_OK) status = cache_write_head(data);
        return tr_agree(s->tr, status);
    }
    TR_TRY(cache_has_memory(data, shared ? 0 : tr_row_store_measure(&shape, bytes), &well));
    if (!well) return TR_OK;
    if (!shared) {
        well = cache_move_rows(data, s->cached->rows) == TR_OK;
    } else if ((well =
                    !s->file
                         ->unnamed)) { /* the same for all members, each of which sums a range of the file */
        tr_row_file_sum(s->file, (size_t)s->tr->me.member, (size_t)s->tr->layout.group_size);
        TR_TRY(tr_barrier(s->tr, s->tr->group, "the group to sum its rows"));
        if (s->tr->me.member == 0) tr_row_file_seal(s->file);
    }
    well = well && cache_write_head(data) == TR_OK;
    const char *why = well ? "" : tr_error_text();
    bool all = well;
    TR_TRY(all_true(s->tr, TR_SET_ALL, &all));
    if (all) return TR_OK;
    unlink(s->cached->head); /* rows that were moved stay in their file until it is closed */
    if (!shared || s->tr->me.member == 0) unlink(s->cached->rows);
    cache_say_not_kept(s->tr, why);
    return TR_OK;
}

/* ---- pools: several teams ---- */

/* Uses the file of another team instead of this rank's own arrays, which lie in the file `own` (NULL: in the heap). */
static bool pool_use(tr_data *data, struct tr_row_file *own)
{
    struct tr_cached *c = data->state->cached;
    struct tr_row_file *file;
    if (tr_row_file_open(c->rows, c->generation, TR_ROW_ARRAYS, 0, 0, &file) != TR_OK) return false;
    if (!tr_row_file_use(file, c->rows)) {
        tr_row_file_close(&file);
        return false;
    }
    uint64_t arrays = tr_row_store_shape(data).arrays;
    if (!own) tr_row_store_free(data, TR_ROW_ARRAYS);
    data->state->file = file;
    tr_row_store_attach(data, arrays);
    c->found = true;
    return true;
}

/* The file is made under another name and then linked, so that nobody finds an incomplete one. If another team was faster, its
 * file is used. */
static int pool_make(tr_data *data)
{
    const char *path = data->state->cached->rows;
    char *made;
    TR_TRY(tr_format(&made, "%s.%ld", path, (long)getpid()));
    int status = cache_move_rows(data, made);
    struct tr_row_file *own = data->state->file;
    if (own) (void)tr_row_file_use(own, made);
    if (own && link(made, path) < 0 && pool_use(data, own)) tr_row_file_close(&own);
    unlink(made);
    free(made);
    return status;
}

int tr_cache_pool(tr_data *data, const char *folder, const char *key)
{
    struct tr_data_state *s = data->state;
    struct tr_cached *c;
    TR_TRY(TR_NEW(&c, 1));
    c->generation = tr_row_key_of(key, strlen(key));
    int status = tr_format(&c->rows, "%s/%016llx%016llx", folder, (unsigned long long)c->generation.word[0],
                           (unsigned long long)c->generation.word[1]);
    s->cached = c;
    if (status == TR_OK && !pool_use(data, NULL)) (void)pool_make(data);
    c->pooled = s->file != NULL;
    if (!c->pooled) tr_cache_close(s);
    return TR_OK;
}

/* ---- rows that a group shares ---- */

bool tr_data_is_shared(const tr_context *tr)
{
    const struct tr_layout *layout = &tr->layout;
    if (tr->job->data.partition != TR_DATA_REPLICATED || !tr_is(tr, TR_SLAVE) || layout->group_size < 2)
        return false;
    for (int m = 0; m < layout->group_size; m++)
        if (!tr_same_node(tr, layout->worker_rank[tr->me.group * layout->group_size + m])) return false;
    return true;
}

struct sharing {
    tr_data *data;
    bool all_columns;    /* are keys; otherwise columns count … */
    const uint32_t *own; /* … this member's own keys */
    size_t n_own;
    uint32_t *piece;                       /* of the group's keys, mine.keys of them */
    struct tr_row_shape before, mine, all; /* of the members before this one; of this member; of the group */
    bool kept;                             /* for the next start of the job */
};

/* Each member has a piece of the keys: of the union, or of all columns. */
static int sharing_plan(struct sharing *m)
{
    tr_context *tr = m->data->state->tr;
    uint64_t members = (uint64_t)tr->layout.group_size, me = (uint64_t)tr->me.member;
    size_t n = (size_t)(m->data->columns * (me + 1) / members - m->data->columns * me / members);
    struct tr_row_shape *every;
    if (!m->all_columns) TR_TRY(tr_unite_keys(tr, m->own, m->n_own, &m->piece, &n));
    m->mine = tr_row_store_shape(m->data);
    m->mine.keys = n;
    TR_TRY(TR_NEW(&every, members));
    int status = tr_all_gather(tr, TR_SET_GROUP, &m->mine, sizeof m->mine, every);
    for (uint64_t k = 0; k < members && status == TR_OK; k++) {
        struct tr_row_shape *sums[] = {&m->all, &m->before};
        for (int i = 0; i < (k < me ? 2 : 1); i++) {
            sums[i]->rows += every[k].rows;
            sums[i]->values += every[k].values;
            sums[i]->keys += every[k].keys;
            sums[i]->arrays |= every[k].arrays;
        }
    }
    free(every);
    m->all.arrays |= 1u << TR_ROWS_KEYS;
    m->all.arrays |=
        m->data->state->rows.columns > 0 ? 1u << TR_ROWS_VALUE : 1u << TR_ROWS_BEGIN | 1u << TR_ROWS_COLUMN;
    return status;
}

/* All ranks of the node together; the rows of each group are counted once. */
static int sharing_check_memory(tr_context *tr, uint64_t bytes)
{
    struct tr_persistent_bases bases;
    tr_persistent_bases(&bases);
    uint64_t space = tr_persistent_free(bases.base[0]);
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    if (bytes <= space) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM,
                   "%s: data.partition: replicated rows need %.1f MB of shared memory on this node, "
                   "but %s has %.1f MB free",
                   tr_job_where(tr->job, "data.partition"), (double)bytes / 1e6, bases.base[0],
                   (double)space / 1e6);
}

/* key = NULL: a file that loses its name. *well: all members can write to it. */
static int sharing_open_file(struct sharing *m, const char *path, const struct tr_row_key *key, bool *well)
{
    struct tr_row_file **file = &m->data->state->file;
    tr_context *tr = m->data->state->tr;
    size_t member = (size_t)tr->me.member, members = (size_t)tr->layout.group_size;
    const struct tr_row_key none = {{0}};
    uint64_t bytes[TR_ROW_ARRAYS];
    (void)tr_row_store_measure(&m->all, bytes);
    *well = member > 0 || tr_row_file_create(path, key ? *key : none, bytes, TR_ROW_ARRAYS, file) == TR_OK;
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well && member > 0) *well = tr_row_file_join(path, file) == TR_OK;
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well && !key) tr_row_file_unname(*file);
    if (*well) *well = tr_row_file_reserve(*file, member, members) == TR_OK;
    TR_TRY(all_true(tr, TR_SET_GROUP, well));
    if (*well) return TR_OK;
    tr_row_file_close(file);
    if (member == 0) unlink(path);
    return TR_OK;
}

static int sharing_open(struct sharing *m)
{
    tr_context *tr = m->data->state->tr;
    const struct tr_cached *c = m->data->state->cached;
    char path[TR_HOST_BYTES + 400] = "", pid[24], *mine;
    bool well = false;
    TR_TRY(tr_barrier(tr, tr->group, "the group to open its memory"));
    if (m->kept) TR_TRY(sharing_open_file(m, c->rows, &c->generation, &well));
    if (well) return TR_OK;
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    TR_TRY(unnamed_path(pid, &mine));
    snprintf(path, sizeof path, "%s", mine);
    free(mine);
    TR_TRY(tr_broadcast(tr, TR_SET_GROUP, 0, path, sizeof path));
    TR_TRY(sharing_open_file(m, path, NULL, &well));
    return well ? TR_OK : tr_fail(TR_ERR_SYSTEM, "%s: there is no room for rows that a group shares", path);
}

/* Columns become numbers of the group's keys, in pieces whose memory is freed at once. */
static void sharing_move_columns(uint32_t *to, uint32_t **array, uint64_t n, const uint32_t *number)
{
    uint32_t *from = *array;
    const uint64_t most = ((uint64_t)4 << 20) / sizeof *from;
    for (uint64_t at = 0; at < n; at += most) {
        uint64_t end = at + (n - at < most ? n - at : most);
        for (uint64_t k = at; k < end; k++) to[k] = number[from[k]];
        tr_pages_give_back(from + at, (end - at) * sizeof *from);
    }
    free(from);
    *array = NULL;
}

/* This member's rows behind those of the members before it. The heap gives back each piece of memory that was moved, so that the node
 * needs hardly more memory than the rows take. */
static void sharing_move_rows(struct sharing *m, const uint32_t *number)
{
    struct tr_data_state *s = m->data->state;
    const struct tr_row_shape *mine = &m->mine, *before = &m->before;
    const uint64_t first[] = {before->rows + 1, before->values, before->values, before->rows, before->rows},
                   n[] = {mine->rows, mine->values, mine->values, mine->rows, mine->rows};
    for (size_t i = 0; i < TR_ROWS_KEYS; i++) {
        if (!(m->all.arrays >> i & 1)) continue;
        void **array = tr_row_store_array(m->data, i), *at = tr_row_file_at(s->file, i, NULL),
             *to = (char *)at + first[i] * tr_row_unit[i];
        if (i == TR_ROWS_BEGIN) {
            uint64_t *begin = at;
            if (s->tr->me.member == 0) begin[0] = 0;
            for (uint64_t k = 1; k <= n[i]; k++) begin[before->rows + k] = before->values + s->rows.begin[k];
            tr_row_store_free(m->data, 1);
        } else if (i == TR_ROWS_COLUMN && number) {
            sharing_move_columns(to, &s->rows.column, n[i], number);
        } else if (i == TR_ROWS_VALUE && !s->rows.value) { /* no array stands for values that are all 1 */
            for (uint64_t k = 0; k < n[i]; k++) ((float *)to)[k] = 1;
        } else {
            tr_pages_move(to, array, n[i], tr_row_unit[i]);
        }
    }
    tr_row_store_attach(m->data, m->all.arrays);
    s->rows.rows = (size_t)m->all.rows;
    m->data->n_keys = (size_t)m->all.keys;
}

/* Every member writes its piece of the keys, and then finds the numbers of its own keys. */
static int sharing_move(struct sharing *m)
{
    tr_context *tr = m->data->state->tr;
    tr_key *keys = tr_row_file_at(m->data->state->file, TR_ROWS_KEYS, NULL);
    uint32_t *number = NULL;
    size_t u = 0;
    if (!m->all_columns) TR_TRY(TR_NEW(&number, m->n_own));
    for (uint64_t i = 0, at = m->before.keys; i < m->mine.keys; i++, at++)
        keys[at] = m->all_columns ? at : m->piece[i];
    TR_TRY(tr_barrier(tr, tr->group, "the group to unite keys"));
    for (size_t i = 0; number && i < m->n_own; i++) {
        while (keys[u] < m->own[i]) u++;
        number[i] = (uint32_t)u;
    }
    sharing_move_rows(m, number);
    free(number);
    return tr_barrier(tr, tr->group, "the group to share rows");
}

int tr_data_share(tr_data *data, const uint32_t *keys, size_t n_keys, bool all_columns)
{
    tr_context *tr = data->state->tr;
    bool takes_part = tr_data_is_shared(tr), first = takes_part && tr->me.member == 0;
    struct sharing m = {.data = data, .all_columns = all_columns, .own = keys, .n_own = n_keys};
    uint64_t bytes[TR_ROW_ARRAYS], sum = 0;
    int status = tr_agree(tr, takes_part ? sharing_plan(&m) : TR_OK);
    if (first && status == TR_OK) sum = tr_row_store_measure(&m.all, bytes);
    if (status == TR_OK) status = tr_agree(tr, sharing_check_memory(tr, sum));
    if (status == TR_OK) status = cache_has_memory(data, sum, &m.kept);
    if (status == TR_OK) status = tr_agree(tr, takes_part ? sharing_open(&m) : TR_OK);
    if (status != TR_OK) tr_row_file_close(&data->state->file); /* rows are still in the heap */
    if (status == TR_OK) status = tr_agree(tr, takes_part ? sharing_move(&m) : TR_OK);
    free(m.piece);
    return status;
}

#define _GNU_SOURCE
#include "data/cache.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/pages.h"
#include "data/dictionary.h"
#include "data/part.h"
#include "data/scale.h"
#include "data/store.h"
#include "data/stream.h"
#include "store/persistent.h"
#include "trireme/collective.h"

/* ---- of a context ---- */

/* In the node's memory; in data.scratch. */
enum { IN_MEMORY, ON_DISK, PLACES };

struct tr_cache {
    bool leads; /* the lowest rank of the host: looks after the folders */
    bool said;  /* that something is not kept */
    struct place {
        bool entered, wanted;
        struct tr_cache_folder folder;
        char *path;
    } place[PLACES];
};

static struct place *place_of(const tr_data *data)
{
    const struct tr_data_state *s = data->state;
    return &s->tr->cache->place[s->on_disk ? ON_DISK : IN_MEMORY];
}

/* The job ends as it should: nobody will want again what is in memory. */
static void end(tr_context *tr)
{
    struct tr_cache *c = tr->cache;
    tr->cache = NULL;
    tr_cache_folder_remove(&c->place[IN_MEMORY].folder);
    if (tr->job->data.cache == TR_CACHE_NO) tr_cache_folder_remove(&c->place[ON_DISK].folder);
    else tr_cache_folder_leave(&c->place[ON_DISK].folder);
    for (int i = 0; i < PLACES; i++) free(c->place[i].path);
    free(c);
}

/* Said once: the job can do without. */
static void say_not_kept(tr_context *tr, const char *why)
{
    struct tr_cache *c = tr->cache;
    if (!c->said) tr_say(tr, "note:          data are not kept for another start%s%s", *why ? ": " : "", why);
    c->said = true;
}

/* Whether all is well on all ranks of a set, without words. */
static int all_well(tr_context *tr, enum tr_set set, bool *well)
{
    int32_t n = *well;
    TR_TRY(tr_all_reduce(tr, set, TR_MIN, TR_I32, &n, 1));
    *well = n;
    return TR_OK;
}

static bool is_lowest_of_host(const tr_context *tr)
{
    int rank;
    MPI_Comm_rank(tr->host, &rank);
    return rank == 0;
}

static int take_folder(const tr_context *tr, struct place *p, const char *base)
{
    char *folder;
    TR_TRY(tr_cache_folder_path(base, tr->job->output, &folder));
    int status = tr_format(&p->path, "%s/" TR_CACHE_FILES, folder);
    free(folder);
    if (status == TR_OK && tr->cache->leads) status = tr_cache_folder_take(base, tr->job->output, &p->folder);
    return status;
}

static int enter_memory(tr_context *tr, struct place *p)
{
    int mode = tr->job->data.cache;
    p->wanted = mode == TR_CACHE_MEMORY || (mode == TR_CACHE_AUTO && tr->lifeline && !tr->team);
    TR_TRY(all_well(tr, TR_SET_ALL, &p->wanted));
    bool asked = p->wanted;
    p->wanted = asked && take_folder(tr, p, NULL) == TR_OK;
    const char *why = p->wanted ? "" : tr_error_text();
    if (tr->cache->leads) tr_cache_clean(asked ? NULL : tr->job->output); /* never one that is taken */
    if (!asked) return TR_OK;
    TR_TRY(all_well(tr, TR_SET_ALL, &p->wanted));
    if (!p->wanted) say_not_kept(tr, why);
    return TR_OK;
}

/* There is no doing without it. */
static int enter_disk(tr_context *tr, struct place *p)
{
    int status = take_folder(tr, p, tr->job->data.scratch);
    if (status != TR_OK)
        status = tr_fail(TR_ERR_NO_OUTPUT, "%s: data.scratch: %s", tr_job_where(tr->job, "data.scratch"),
                         tr_error_text());
    p->wanted = true;
    return tr_agree(tr, status);
}

/* Once in a context. */
static int enter(tr_context *tr, bool disk)
{
    if (!tr->cache) {
        struct tr_cache *c;
        TR_TRY(tr_agree(tr, TR_NEW(&c, 1)));
        tr->cache = c;
        tr->at_end = end;
        for (int i = 0; i < PLACES; i++) c->place[i].folder.lock = -1;
        c->leads = is_lowest_of_host(tr);
    }
    struct place *p = &tr->cache->place[disk ? ON_DISK : IN_MEMORY];
    if (p->entered) return TR_OK;
    p->entered = true;
    return disk ? enter_disk(tr, p) : enter_memory(tr, p);
}

/* ---- what is kept ---- */

/* What the file of a rank has besides rows. */
enum {
    HEAD,
    HEADS,
    LABELS,
    STRETCHES,
    THIRD_LABEL,
    ROW_NAMES,
    COLUMN_NAMES,
    SCALE,
    SHIFT,
    FACTOR,
    BLOCKS,
    SCHEMA,
    DICTIONARY,
    WEIGHTS, /* of rows, by a column */
    HEAD_ARRAYS
};

struct head {
    struct tr_cache_key generation;
    tr_data data; /* pointers in it mean nothing */
    size_t rows, columns, stretches, blocks;
    bool full;
    uint64_t unknown, unlabelled;
    unsigned arrays; /* bit by bit: there is one */
};

struct slot {
    void **array;
    uint64_t n;
    size_t unit;
};

static void list_slots(tr_data *data, struct slot slot[TR_CACHE_ARRAYS])
{
    struct tr_data_state *s = data->state;
    struct tr_matrix *m = &s->rows;
    uint64_t nonzeros = tr_matrix_nonzeros(m), rows = m->rows;
    slot[TR_CACHE_BEGIN] = (struct slot){(void **)&m->begin, rows + 1, sizeof *m->begin};
    slot[TR_CACHE_COLUMN] = (struct slot){(void **)&m->column, nonzeros, sizeof *m->column};
    slot[TR_CACHE_VALUE] = (struct slot){(void **)&m->value, nonzeros, sizeof *m->value};
    slot[TR_CACHE_LABEL] = (struct slot){(void **)&m->label, rows, sizeof *m->label};
    slot[TR_CACHE_ROW] = (struct slot){(void **)&s->row_number, rows, sizeof *s->row_number};
    slot[TR_CACHE_KEYS] = (struct slot){(void **)(uintptr_t)&data->keys, data->n_keys, sizeof *data->keys};
}

uint64_t tr_cache_measure(const struct tr_cache_shape *s, uint64_t bytes[TR_CACHE_ARRAYS])
{
    uint64_t sum = 0;
    bytes[TR_CACHE_BEGIN] = s->dense ? 0 : (s->rows + 1) * sizeof(uint64_t);
    bytes[TR_CACHE_COLUMN] = s->dense ? 0 : s->nonzeros * sizeof(uint32_t);
    bytes[TR_CACHE_VALUE] = s->dense || s->valued ? s->nonzeros * sizeof(float) : 0;
    bytes[TR_CACHE_LABEL] = s->labelled ? s->rows * sizeof(float) : 0;
    bytes[TR_CACHE_ROW] = s->numbered ? s->rows * sizeof(uint64_t) : 0;
    bytes[TR_CACHE_KEYS] = s->keys * sizeof(tr_key);
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) sum += tr_to_pages(bytes[i]);
    return sum;
}

void tr_cache_close(struct tr_data_state *s)
{
    struct tr_cached *c = s->cached;
    if (c && c->pooled) tr_cache_file_leave(s->file, c->rows_path);
    tr_cache_file_close(&s->file);
    if (!c) return;
    free(c->head);
    free(c->rows_path);
    free(c);
    s->cached = NULL;
}

/* ---- finding ---- */

/* Whose rows this rank's file is of. */
static int rank_of_rows(const tr_context *tr)
{
    return tr_data_shares(tr) ? tr->layout.worker_rank[tr->me.group * tr->layout.group_size] : tr->rank;
}

/* Data are kept by rank: any other layout would have to divide them in another way. */
static int describe_ranks(const tr_context *tr, const char *key, char **text)
{
    return tr_format(text, "%s: rank %d of %d, roles %u, group %d of %d, member %d of %d, shared %d\n%s",
                     TR_VERSION, tr->rank, tr->size, tr->me.roles, tr->me.group, tr->layout.groups,
                     tr->me.member, tr->layout.group_size, tr_data_shares(tr), key);
}

static int name_files(tr_data *data, const char *what, const char *key)
{
    tr_context *tr = data->state->tr;
    struct tr_cached *c = data->state->cached;
    const char *path = place_of(data)->path;
    char *text;
    int length = (int)strcspn(what, " ");
    TR_TRY(describe_ranks(tr, key, &text));
    c->key = tr_cache_key_of(text, strlen(text));
    free(text);
    TR_TRY(tr_format(&c->head, "%s/%.*s-%d", path, length, what, tr->rank));
    return tr_format(&c->rows_path, "%s/%.*s-%d.rows", path, length, what, rank_of_rows(tr));
}

/* To be freed; of nothing, nothing. */
static int copy_bytes(const struct tr_cache_file *file, int array, void **copy)
{
    uint64_t bytes;
    char *memory;
    const void *from = tr_cache_file_at(file, (size_t)array, &bytes);
    if (bytes == 0) return TR_OK;
    TR_TRY(TR_NEW(&memory, bytes + 1)); /* a text is ended */
    memcpy(memory, from, bytes);
    *copy = memory;
    return TR_OK;
}

static int restore_names(tr_context *tr, const struct tr_cache_file *file, int array, tr_names **names)
{
    uint64_t bytes;
    const char *from = tr_cache_file_at(file, (size_t)array, &bytes);
    return bytes > 0 ? tr_names_unpack(tr, from, names) : TR_OK;
}

static int restore_scale(tr_data *data, const struct tr_cache_file *file)
{
    struct tr_data_state *s = data->state;
    data->scaling = NULL;
    TR_TRY(copy_bytes(file, SCALE, (void **)&s->scale));
    if (!s->scale) return TR_OK;
    s->scale->shift = s->scale->factor = NULL;
    TR_TRY(copy_bytes(file, SHIFT, (void **)&s->scale->shift));
    TR_TRY(copy_bytes(file, FACTOR, (void **)&s->scale->factor));
    s->scale->share.shift = s->scale->shift;
    s->scale->share.factor = s->scale->factor;
    data->scaling = &s->scale->share;
    return TR_OK;
}

static int restore_schema(tr_data *data, const struct tr_cache_file *file)
{
    struct tr_data_state *s = data->state;
    uint64_t bytes, more;
    const char *from = tr_cache_file_at(file, SCHEMA, &bytes),
               *values = tr_cache_file_at(file, DICTIONARY, &more);
    if (bytes == 0) return TR_OK;
    TR_TRY(tr_schema_unpack(from, (size_t)bytes, &s->schema, &s->bindings));
    return more > 0 ? tr_dictionary_unpack(s->tr, values, (size_t)more, &s->schema->dictionary) : TR_OK;
}

static int restore_head(tr_data *data, const struct tr_cache_file *file, const struct head *h)
{
    struct tr_data_state *s = data->state;
    *data = h->data;
    data->state = s;
    data->rows = (tr_batch){.n = 0};
    data->keys = NULL;
    data->label = NULL;
    data->row = NULL;
    data->row_names = data->column_names = NULL;
    s->full = h->full;
    s->unknown = h->unknown;
    s->unlabelled = h->unlabelled;
    TR_TRY(restore_schema(data, file));
    s->rows.rows = h->rows;
    s->rows.columns = h->columns;
    s->stretches = h->stretches;
    s->blocks = h->blocks;
    TR_TRY(copy_bytes(file, HEADS, (void **)&s->heads));
    TR_TRY(copy_bytes(file, LABELS, (void **)(uintptr_t)&data->label));
    TR_TRY(copy_bytes(file, STRETCHES, (void **)&s->stretch));
    TR_TRY(copy_bytes(file, BLOCKS, (void **)&s->block));
    TR_TRY(copy_bytes(file, WEIGHTS, (void **)&s->weight));
    TR_TRY(copy_bytes(file, THIRD_LABEL, (void **)&s->third_label));
    TR_TRY(restore_names(s->tr, file, ROW_NAMES, &s->row_names));
    TR_TRY(restore_names(s->tr, file, COLUMN_NAMES, &s->column_names));
    data->row_names = s->row_names;
    data->column_names = s->column_names;
    return restore_scale(data, file);
}

/* Takes back what restore_head() has made, for those who are to read after all. */
static void drop(tr_data *data)
{
    struct tr_data_state *s = data->state, kept = *s;
    tr_data_free_head(data);
    tr_cache_file_close(&s->file);
    *s = (struct tr_data_state){.tr = kept.tr,
                                .store = kept.store,
                                .files = kept.files,
                                .form = kept.form,
                                .held_out = kept.held_out,
                                .test = kept.test,
                                .on_disk = kept.on_disk,
                                .memory = kept.memory,
                                .cacheable = kept.cacheable,
                                .cached = kept.cached};
    *data = (tr_data){.state = s};
}

static int restore_rows(tr_data *data, const struct head *h)
{
    struct tr_data_state *s = data->state;
    struct tr_cached *c = s->cached;
    struct slot slot[TR_CACHE_ARRAYS];
    bool shared = tr_data_shares(s->tr);
    if (h->arrays == 0) return TR_OK;
    TR_TRY(tr_cache_file_open(c->rows_path, h->generation, TR_CACHE_ARRAYS,
                              shared ? (size_t)s->tr->me.member : 0,
                              shared       ? (size_t)s->tr->layout.group_size
                              : s->on_disk ? 0 /* checked when it is used */
                                           : 1,
                              &s->file));
    list_slots(data, slot);
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++)
        if (h->arrays & 1u << i) *slot[i].array = tr_cache_file_at(s->file, i, NULL);
    return TR_OK;
}

static int restore(tr_data *data)
{
    struct tr_cached *c = data->state->cached;
    struct tr_cache_file *file = NULL;
    uint64_t bytes;
    TR_TRY(tr_cache_file_open(c->head, c->key, HEAD_ARRAYS, 0, 1, &file));
    const struct head *h = tr_cache_file_at(file, HEAD, &bytes);
    int status =
        bytes == sizeof *h ? restore_head(data, file, h) : tr_fail(TR_ERR_DATA, "%s: damaged", c->head);
    if (status == TR_OK) status = restore_rows(data, h);
    if (status == TR_OK) c->generation = h->generation;
    tr_cache_file_close(&file);
    return status;
}

/* All have found theirs, made at the same time? */
static int agree_on_found(tr_data *data, const char *what, int status, bool *found)
{
    struct tr_data_state *s = data->state;
    const uint64_t *g = s->cached->generation.part;
    /* greatest of each: not found; there, but not as it should be; and bounds of what must be equal */
    uint64_t most[6] = {status != TR_OK, status == TR_ERR_DATA, g[0], ~g[0], g[1], ~g[1]};
    TR_TRY(tr_all_reduce(s->tr, TR_SET_ALL, TR_MAX, TR_I64, most, 6));
    *found = !most[0] && most[2] == ~most[3] && most[4] == ~most[5];
    if (!*found && (most[1] || !most[0]))
        tr_say(s->tr, "note:          what was kept of the %s is not of these files and ranks, or damaged",
               what);
    return TR_OK;
}

static void remove_files(const tr_data *data, const char *what)
{
    char *pattern;
    glob_t found;
    if (!data->state->tr->cache->leads ||
        tr_format(&pattern, "%s/%.*s-*", place_of(data)->path, (int)strcspn(what, " "), what) != TR_OK)
        return;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    free(pattern);
}

/* Nobody makes a file before all are here: what another layout has left is gone then. */
static int begin_anew(tr_data *data, const char *what)
{
    struct tr_data_state *s = data->state;
    struct timespec now;
    remove_files(data, what);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t facts[3] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid()};
    s->cached->generation = tr_cache_key_of(facts, sizeof facts);
    TR_TRY(tr_barrier(s->tr, s->tr->world, "all ranks to begin to read data"));
    return tr_broadcast(s->tr, TR_SET_ALL, 0, &s->cached->generation, sizeof s->cached->generation);
}

int tr_cache_find(tr_data *data, const char *what, const char *key, bool *found)
{
    struct tr_data_state *s = data->state;
    *found = false;
    TR_TRY(enter(s->tr, s->on_disk));
    if (!place_of(data)->wanted) return TR_OK;
    int status = TR_NEW(&s->cached, 1);
    if (status == TR_OK) status = name_files(data, what, key);
    TR_TRY(tr_agree(s->tr, status));
    status = restore(data);
    TR_TRY(agree_on_found(data, what, status, found));
    s->cached->found = *found;
    if (*found) return TR_OK;
    drop(data);
    return begin_anew(data, what);
}

/* ---- keeping ---- */

int tr_cache_has_room(tr_data *data, uint64_t bytes, bool *enough)
{
    tr_context *tr = data->state->tr;
    struct tr_persistent_bases bases;
    *enough = false;
    if (!data->state->cached) return TR_OK;
    tr_persistent_bases(&bases);
    uint64_t memory = tr_memory_free(), room = tr_persistent_free(bases.base[0]);
    TR_TRY(tr_all_reduce(tr, TR_SET_NODE, TR_SUM, TR_I64, &bytes, 1));
    *enough = bytes <= (memory < room ? memory : room) / 2;
    TR_TRY(all_well(tr, TR_SET_ALL, enough));
    if (!*enough) say_not_kept(tr, "memory has not twice the room for them");
    return TR_OK;
}

/* *well: this member can write to it. Without a key nobody is to find it. */
static int open_shared(tr_data *data, const char *path, const struct tr_cache_key *key, const uint64_t *bytes,
                       bool *well)
{
    struct tr_cache_file **file = &data->state->file;
    tr_context *tr = data->state->tr;
    size_t member = (size_t)tr->me.member, members = (size_t)tr->layout.group_size;
    const struct tr_cache_key none = {{0}};
    *well =
        member > 0 || tr_cache_file_create(path, key ? *key : none, bytes, TR_CACHE_ARRAYS, file) == TR_OK;
    TR_TRY(all_well(tr, TR_SET_GROUP, well));
    if (*well && member > 0) *well = tr_cache_file_join(path, file) == TR_OK;
    TR_TRY(all_well(tr, TR_SET_GROUP, well));
    if (*well && !key) tr_cache_file_hide(*file);
    if (*well) *well = tr_cache_file_reserve(*file, member, members) == TR_OK;
    TR_TRY(all_well(tr, TR_SET_GROUP, well));
    if (*well) return TR_OK;
    tr_cache_file_close(file);
    if (member == 0) unlink(path);
    return TR_OK;
}

int tr_cache_share(tr_data *data, const uint64_t *bytes, bool kept)
{
    struct tr_data_state *s = data->state;
    char path[TR_HOST_BYTES + 400] = "", *mine;
    bool well = false;
    if (kept) TR_TRY(open_shared(data, s->cached->rows_path, &s->cached->generation, bytes, &well));
    if (well) return TR_OK;
    TR_TRY(tr_cache_passing_path(&mine));
    snprintf(path, sizeof path, "%s", mine);
    free(mine);
    TR_TRY(tr_broadcast(s->tr, TR_SET_GROUP, 0, path, sizeof path)); /* that of member 0 */
    TR_TRY(open_shared(data, path, NULL, bytes, &well));
    return well ? TR_OK : tr_fail(TR_ERR_SYSTEM, "%s: there is no room for rows that a group shares", path);
}

/* Each member has a part to sum. */
static int seal_shared(struct tr_data_state *s, bool *well)
{
    *well = !tr_cache_file_is_hidden(s->file); /* the same for all members */
    if (!*well) return TR_OK;
    tr_cache_file_sum(s->file, (size_t)s->tr->me.member, (size_t)s->tr->layout.group_size);
    TR_TRY(tr_barrier(s->tr, s->tr->group, "the group to sum its rows"));
    if (s->tr->me.member == 0) tr_cache_file_seal(s->file);
    return TR_OK;
}

static void count_bytes(const struct slot slot[TR_CACHE_ARRAYS], uint64_t bytes[TR_CACHE_ARRAYS])
{
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) bytes[i] = *slot[i].array ? slot[i].n * slot[i].unit : 0;
}

static bool are_any(const struct slot slot[TR_CACHE_ARRAYS])
{
    bool any = false;
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) any = any || *slot[i].array;
    return any;
}

static int move_rows(tr_data *data)
{
    struct tr_cached *c = data->state->cached;
    struct tr_cache_file *file;
    struct slot slot[TR_CACHE_ARRAYS];
    uint64_t bytes[TR_CACHE_ARRAYS];
    list_slots(data, slot);
    if (!are_any(slot)) return TR_OK;
    count_bytes(slot, bytes);
    TR_TRY(tr_cache_file_create(c->rows_path, c->generation, bytes, TR_CACHE_ARRAYS, &file));
    int status = tr_cache_file_reserve(file, 0, 1);
    if (status != TR_OK) {
        tr_cache_file_close(&file);
        return status;
    }
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) {
        if (!*slot[i].array) continue;
        void *to = tr_cache_file_at(file, i, NULL);
        tr_pages_move(to, slot[i].array, slot[i].n, slot[i].unit);
        *slot[i].array = to;
    }
    tr_cache_file_sum(file, 0, 1);
    tr_cache_file_seal(file);
    data->state->file = file;
    return TR_OK;
}

static struct head make_head(tr_data *data)
{
    const struct tr_data_state *s = data->state;
    struct slot slot[TR_CACHE_ARRAYS];
    struct head h = {.generation = s->cached->generation,
                     .data = *data,
                     .full = s->full,
                     .unknown = s->unknown,
                     .unlabelled = s->unlabelled,
                     .rows = s->rows.rows,
                     .columns = s->rows.columns,
                     .stretches = s->stretches,
                     .blocks = s->blocks};
    list_slots(data, slot);
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++)
        if (*slot[i].array) h.arrays |= 1u << i;
    return h;
}

static int write_arrays(const struct tr_cached *c, const void *const *from, const uint64_t *bytes)
{
    struct tr_cache_file *file;
    TR_TRY(tr_cache_file_create(c->head, c->key, bytes, HEAD_ARRAYS, &file));
    int status = tr_cache_file_reserve(file, 0, 1);
    for (size_t i = 0; i < HEAD_ARRAYS && status == TR_OK; i++)
        if (bytes[i] > 0) memcpy(tr_cache_file_at(file, i, NULL), from[i], bytes[i]);
    if (status == TR_OK) {
        tr_cache_file_sum(file, 0, 1);
        tr_cache_file_seal(file);
    }
    tr_cache_file_close(&file);
    return status;
}

static int write_head(tr_data *data)
{
    const struct tr_data_state *s = data->state;
    struct head h = make_head(data);
    char *row = NULL, *column = NULL, *schema = NULL, *values = NULL;
    size_t row_bytes = 0, column_bytes = 0, schema_bytes = 0, values_bytes = 0;
    int status = s->row_names ? tr_names_pack(s->row_names, &row, &row_bytes) : TR_OK;
    if (status == TR_OK && s->column_names) status = tr_names_pack(s->column_names, &column, &column_bytes);
    if (status == TR_OK && s->schema)
        status = tr_schema_pack(s->schema, &s->bindings, &schema, &schema_bytes);
    if (status == TR_OK && s->schema && s->schema->dictionary && !s->test)
        status = tr_dictionary_pack(s->schema->dictionary, &values, &values_bytes);
    const void *from[] = {&h,
                          s->heads,
                          data->label,
                          s->stretch,
                          s->third_label,
                          row,
                          column,
                          s->scale,
                          s->scale ? s->scale->shift : NULL,
                          s->scale ? s->scale->factor : NULL,
                          s->block,

                          schema,
                          values,
                          s->weight};
    size_t scaled = s->scale ? s->scale->share.n * sizeof(double) : 0;
    const uint64_t bytes[] = {sizeof h,
                              s->files.n * sizeof *s->heads,
                              data->labels * sizeof *data->label,
                              s->stretches * sizeof *s->stretch,
                              s->third_label ? strlen(s->third_label) : 0,
                              row_bytes,
                              column_bytes,
                              s->scale ? sizeof *s->scale : 0,
                              s->scale && s->scale->shift ? scaled : 0,
                              scaled,
                              s->blocks > 0 ? (s->blocks + 1) * sizeof *s->block : 0,

                              schema_bytes,
                              values_bytes,
                              s->weight ? s->rows.rows * sizeof *s->weight : 0};
    if (status == TR_OK) status = write_arrays(s->cached, from, bytes);
    free(row);
    free(column);
    free(schema);
    free(values);
    return status;
}

/* Of this rank. */
static uint64_t bytes_to_move(tr_data *data)
{
    struct slot slot[TR_CACHE_ARRAYS];
    uint64_t bytes[TR_CACHE_ARRAYS], sum = 0;
    if (tr_data_shares(data->state->tr)) return 0; /* there already */
    list_slots(data, slot);
    count_bytes(slot, bytes);
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) sum += tr_to_pages(bytes[i]);
    return sum;
}

/* They lie there already. */
static int seal_on_disk(tr_data *data)
{
    struct tr_cache_file *file = data->state->file;
    if (file) TR_TRY(tr_cache_file_sum_on_disk(file));
    if (file) tr_cache_file_seal(file);
    return write_head(data);
}

int tr_cache_keep(tr_data *data)
{
    struct tr_data_state *s = data->state;
    bool well, shares = tr_data_shares(s->tr);
    if (!s->cached) return TR_OK;
    if (s->on_disk) return tr_agree(s->tr, seal_on_disk(data));
    TR_TRY(tr_cache_has_room(data, bytes_to_move(data), &well));
    if (!well) return TR_OK;
    if (shares) TR_TRY(seal_shared(s, &well));
    else well = move_rows(data) == TR_OK;
    well = well && write_head(data) == TR_OK;
    const char *why = well ? "" : tr_error_text();
    bool all = well;
    TR_TRY(all_well(s->tr, TR_SET_ALL, &all));
    if (all) return TR_OK;
    unlink(s->cached->head); /* rows that were moved stay where they are as long as they are used */
    if (!shares || s->tr->me.member == 0) unlink(s->cached->rows_path);
    say_not_kept(s->tr, why);
    return TR_OK;
}

/* ---- several teams ---- */

/* Somebody else's file, in place of this rank's own arrays. */
static bool take_pooled(tr_data *data, struct tr_cache_file *own)
{
    struct tr_cached *c = data->state->cached;
    struct tr_cache_file *file;
    struct slot slot[TR_CACHE_ARRAYS];
    if (tr_cache_file_open(c->rows_path, c->generation, TR_CACHE_ARRAYS, 0, 0, &file) != TR_OK) return false;
    if (!tr_cache_file_use(file, c->rows_path)) {
        tr_cache_file_close(&file);
        return false;
    }
    list_slots(data, slot);
    for (size_t i = 0; i < TR_CACHE_ARRAYS; i++) {
        if (!*slot[i].array) continue;
        if (!own) free(*slot[i].array);
        *slot[i].array = tr_cache_file_at(file, i, NULL);
    }
    data->state->file = file;
    c->found = true;
    return true;
}

/* Made under another name, so that nobody finds it before it is whole. If another was quicker, that one is taken. */
static int make_pooled(tr_data *data)
{
    struct tr_cached *c = data->state->cached;
    char *path = c->rows_path, *made;
    TR_TRY(tr_format(&made, "%s.%ld", path, (long)getpid()));
    c->rows_path = made;
    int status = move_rows(data);
    c->rows_path = path;
    struct tr_cache_file *own = data->state->file;
    if (own) (void)tr_cache_file_use(own, made);
    if (own && link(made, path) < 0 && take_pooled(data, own)) tr_cache_file_close(&own);
    unlink(made);
    free(made);
    return status;
}

int tr_cache_pool(tr_data *data, const char *folder, const char *key)
{
    struct tr_data_state *s = data->state;
    struct tr_cached *c;
    TR_TRY(TR_NEW(&c, 1));
    c->generation = tr_cache_key_of(key, strlen(key));
    int status =
        tr_format(&c->rows_path, "%s/%016llx%016llx", folder, (unsigned long long)c->generation.part[0],
                  (unsigned long long)c->generation.part[1]);
    s->cached = c;
    if (status == TR_OK && !take_pooled(data, NULL)) (void)make_pooled(data);
    c->pooled = s->file != NULL;
    if (!c->pooled) tr_cache_close(s);
    return TR_OK;
}

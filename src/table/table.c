#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#include "table/rows.h"
#include "table/share.h"
#include "trireme/collective.h"

MPI_Datatype tr_dtype_mpi(enum tr_dtype dtype)
{
    switch (dtype) {
    case TR_F32: return MPI_FLOAT;
    case TR_F64: return MPI_DOUBLE;
    case TR_I32: return MPI_INT32_T;
    case TR_I64: return MPI_INT64_T;
    }
    return MPI_BYTE;
}

/* Rows wider than this are cut, so that one row's pieces lie on several servers (2-D blocks). */
static uint32_t pieces_of_row(size_t width, size_t element)
{
    enum { LONGEST = 16384 };
    for (size_t pieces = 1; pieces <= 1024; pieces++)
        if (width % pieces == 0 && width / pieces * element <= LONGEST) return (uint32_t)pieces;
    return 1;
}

/* Chooses the servers of a table. A table on some of them begins behind the last such, so that several small
 * ones do not crowd on the first servers; all ranks make the same tables and so count alike. */
static int choose_servers(struct tr_table *t, const tr_table_options *options, const struct tr_table *like,
                          uint32_t *servers)
{
    const tr_job *job = t->tr->job;
    uint32_t all = (uint32_t)t->tr->layout.servers;
    uint64_t wish = options->servers > 0 ? options->servers : job ? job->table.servers : 0;
    if (wish > all)
        return tr_fail(TR_ERR_CONFIG, "table %s: it cannot lie on %llu servers, there are %u", t->name,
                       (unsigned long long)wish, all);
    *servers = wish > 0 ? (uint32_t)wish : all;
    if (like) {
        t->first_server = like->first_server;
    } else if (*servers < all) {
        t->first_server = t->tr->tables->next_server;
        t->tr->tables->next_server = (t->first_server + *servers) % all;
    }
    return TR_OK;
}

/* As the options say, and where they are silent, the job. */
static int partition_table(struct tr_table *t, const tr_table_options *options, const struct tr_table *like)
{
    const tr_job *job = t->tr->job;
    struct tr_partition_options wish = {
        .kind = TR_PARTITION_RANGE_HASH, .table = t->name, .unbounded = t->hash};
    if (job) {
        wish.kind = (enum tr_partition_kind)job->table.partition;
        wish.block = job->table.block;
        wish.points = (uint32_t)job->table.virtual_nodes;
    }
    if (options->block > 0) wish.block = options->block;
    if (options->place) {
        wish.kind = TR_PARTITION_OWN;
        wish.place = options->place;
        wish.who = options->who;
    }
    uint32_t servers = 0;
    TR_TRY(choose_servers(t, options, like, &servers));
    TR_TRY(tr_partition_make(&wish, t->keys * t->pieces, servers, &t->partition));
    t->server = tr_table_server_of(t, t->tr->rank);
    if (t->server >= 0 && !t->sparse) t->share_units = tr_partition_share(&t->partition, (uint32_t)t->server);
    return TR_OK;
}

/* What others reach without asking moves when a map grows. */
int tr_table_check_hash(const tr_context *tr)
{
    const tr_job *job = tr->job;
    if (!job) return TR_OK;
    if (job->table.route == TR_ROUTE_LOAD || job->table.route == TR_ROUTE_GET)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: table.route: hash storage is read by asking its server: expected auto or request",
                       tr_job_where(job, "table.route"));
    if (job->table.push == TR_PUSH_MERGE || job->table.push == TR_PUSH_ACCUMULATE)
        return tr_fail(TR_ERR_CONFIG,
                       "%s: table.push: hash storage gets its updates as messages: expected auto or message",
                       tr_job_where(job, "table.push"));
    return TR_OK;
}

/* Only the server of a share knows what is in its map. So nobody finds memory of it in t->share, and all ways to read
 * and push are those to a server far away. */
static int make_map(struct tr_table *t)
{
    if (!t->hash) return TR_OK;
    TR_TRY(tr_table_check_hash(t->tr));
    if (t->server < 0) return TR_OK;
    TR_TRY(TR_NEW(&t->map, 1));
    return tr_hashmap_open(&t->unit_bytes, 1, t->map);
}

/* Sparse rows, too: lists move when they grow. */
static int make_sparse_share(struct tr_table *t)
{
    if (!t->sparse) return TR_OK;
    if ((t->dtype != TR_F32 && t->dtype != TR_I32) || t->hash || t->width > UINT64_C(1) << 32)
        return tr_fail(
            TR_ERR_INTERNAL,
            "table %s: sparse rows are of f32 or i32 and at most 2^32 columns, without hash storage",
            t->name);
    if (t->server < 0) return TR_OK;
    return tr_sparse_open(t->dtype, tr_partition_share(&t->partition, (uint32_t)t->server), &t->sparse_share);
}

/* A place function that does not say the same everywhere would mix up parameters without a word. */
static int agree_on_places(const struct tr_table *t)
{
    uint64_t print = tr_partition_print(&t->partition), bounds[2] = {print, ~print};
    TR_TRY(tr_all_reduce(t->tr, TR_SET_ALL, TR_MIN, TR_I64, bounds,
                         2));                  /* signed: ~ turns their order as well */
    if (bounds[0] == ~bounds[1]) return TR_OK; /* the least is the greatest */
    return tr_agree(t->tr, tr_fail(TR_ERR_CONFIG,
                                   "table %s: ranks put its keys in different places: size, options and "
                                   "place function must be the same on all",
                                   t->name));
}

void tr_table_free(struct tr_table *t)
{
    tr_share_close(t);
    tr_partition_free(&t->partition);
    tr_sparse_close(&t->sparse_share);
    if (t->map) tr_hashmap_close(t->map);
    free(t->map);
    tr_rows_free(t);
    free(t->subscribed);
    free(t->share);
    free(t->line);
    free(t->name);
    free(t);
}

int tr_table_create(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                    tr_table **table)
{
    return tr_table_make(tr, name, dtype, rows, columns, NULL, NULL, table);
}

int tr_table_create_with(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows,
                         uint64_t columns, const tr_table_options *options, tr_table **table)
{
    return tr_table_make(tr, name, dtype, rows, columns, options, NULL, table);
}

int tr_table_make(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                  const tr_table_options *options, const struct tr_table *like, struct tr_table **table)
{
    static const tr_table_options as_the_job_says = {0};
    if (!options) options = &as_the_job_says;
    struct tr_tables *tables = tr->tables;
    struct tr_table *t;
    TR_TRY(TR_NEW(&t, 1));
    t->tr = tr;
    t->dtype = dtype;
    t->sparse = options->sparse;
    t->fallback = options->fallback;
    t->keys = rows == 1 && !t->sparse ? columns : rows;
    t->width = rows == 1 && !t->sparse ? 1 : columns;
    bool by_job = !t->sparse && !options->place;
    t->hash = options->hash || (by_job && tr->job && tr->job->table.storage == TR_STORAGE_HASH);
    t->pieces = options->place || t->hash || t->sparse ? 1 : pieces_of_row(t->width, tr_dtype_size(dtype));
    t->unit_width = t->width / t->pieces;
    t->unit_bytes = t->unit_width * tr_dtype_size(dtype);
    t->memory = TR_SHM_CLOSED;
    t->window = MPI_WIN_NULL;
    t->next_tag = 1;
    t->every = 1;
    t->lockstep = tr->staleness == 0;
    int status = tr_copy_string(name, &t->name);
    if (status == TR_OK && (t->keys == 0 || t->width == 0))
        status = tr_fail(TR_ERR_INTERNAL, "table %s: %llu rows of %llu columns are nothing", name,
                         (unsigned long long)rows, (unsigned long long)columns);
    if (status == TR_OK && options->initial != TR_INITIAL_ZERO && (t->hash || t->sparse))
        status =
            tr_fail(TR_ERR_CONFIG, "table %s: only dense tables have initial values: expected zeros", name);
    if (tr->job) {
        t->route = tr->job->table.route;
        t->push = tr->job->table.push;
        t->merges_shared = tr->job->table.merge == TR_MERGE_AUTO;
        t->wire = (struct tr_wire){tr->job->table.encoding, tr->job->table.precision};
        t->filter = (struct tr_filter){.kind = tr->job->table.filter,
                                       .limit = tr->job->table.filter_limit,
                                       .skip = tr->job->table.filter_skip,
                                       .seed = tr_mix(tr->job->seed + (uint64_t)tr->rank)};
    }
    t->merges_shared = t->merges_shared && t->lockstep && tr->layout.nodes == 1 && !t->hash && !t->sparse;
    if (status == TR_OK) status = partition_table(t, options, like);
    if (status == TR_OK) status = make_map(t);
    if (status == TR_OK) status = make_sparse_share(t);
    if (status == TR_OK) status = tr_rows_open(t);
    uint32_t servers = t->partition.servers;
    if (status == TR_OK) status = TR_NEW(&t->share, servers);
    if (status == TR_OK) status = TR_NEW(&t->line, servers);
    if (status == TR_OK) status = TR_GROW(&tables->table, &tables->capacity, tables->count + 1);
    status = tr_agree(tr, status);
    if (status == TR_OK) status = agree_on_places(t);
    if (status != TR_OK) {
        tr_table_free(t);
        return status;
    }
    TR_TRY(tr_share_open(t, options));
    t->index = (uint32_t)tables->count;
    tables->table[tables->count++] = t;
    *table = t;
    return TR_OK;
}

void tr_table_leave_out(tr_table *table)
{
    table->left_out = true;
}

uint64_t tr_table_keys(const tr_table *table)
{
    return table->keys;
}

size_t tr_table_width(const tr_table *table)
{
    return table->width;
}

void tr_table_clear(struct tr_table *t)
{
    if (t->server >= 0 && t->share[t->server]) memset(t->share[t->server], 0, t->share_units * t->unit_bytes);
    for (uint64_t i = 0; t->sparse_share && i < t->sparse_share->rows; i++)
        (void)tr_sparse_set(t->sparse_share, i, 0, NULL, NULL);
}

void tr_table_update_every(struct tr_table *t, int64_t every, int64_t first)
{
    t->every = every;
    t->first = first;
}

void tr_table_filter_l1(struct tr_table *t, double alpha, double scale)
{
    t->filter.alpha = alpha;
    t->filter.scale = scale;
}

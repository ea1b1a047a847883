#include "table/table.h"

#include <stdlib.h>
#include <string.h>

#include "table/view.h"
#include "trireme/collective.h"

/* ======== one table ======== */

/* Makes the partition from the options and, where they are not set, from the job. A table that uses only some of the servers starts
 * after the previous such table, so that small tables do not all use the first servers. like: see table_make(). */
static int table_partition(struct tr_table *t, const tr_table_options *options, const struct tr_table *like)
{
    const tr_job *job = t->tr->job;
    uint32_t all = (uint32_t)t->tr->layout.servers;
    uint64_t servers = options->servers > 0 ? options->servers : job ? job->table.servers : 0;
    struct tr_partition_options wish = {
        .kind = TR_PARTITION_RANGE_HASH, .table = t->name, .unbounded = t->hash};
    if (servers > all)
        return tr_fail(TR_ERR_CONFIG, "table %s: it cannot lie on %llu servers, there are %u", t->name,
                       (unsigned long long)servers, all);
    if (servers == 0) servers = all;
    if (like) {
        t->first_server = like->first_server;
    } else if (servers < all) {
        t->first_server = t->tr->tables->next_server;
        t->tr->tables->next_server = (t->first_server + (uint32_t)servers) % all;
    }
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
    TR_TRY(tr_partition_make(&wish, t->keys * t->pieces, (uint32_t)servers, &t->partition));
    t->server = tr_table_server_of(t, t->tr->rank);
    if (t->server >= 0 && !t->sparse) t->share_units = tr_partition_share(&t->partition, (uint32_t)t->server);
    return TR_OK;
}

/* Checks route and push for hash storage. Other ranks cannot access a hash map directly, as it moves in memory when it grows. */
static int table_check_hash(const tr_context *tr)
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

/* Precondition: views of the table are closed, and their messages have arrived. Collective over all ranks. */
static void table_free(struct tr_table *t)
{
    tr_merge_close(t);
    tr_use_free(t);
    tr_share_close(t);
    tr_partition_free(&t->partition);
    tr_sparse_close(&t->sparse_share);
    if (t->map) tr_hashmap_close(t->map);
    free(t->map);
    tr_rows_free(t);
    tr_server_close(t);
    tr_subscription_discard(t);
    TR_FREE_ALL(t->share, t->line, t->name, t);
}

/* Sets the members of a table and allocates its memory, except the dense share. Local. */
static int table_fill(struct tr_table *t, const char *name, enum tr_dtype dtype, uint64_t rows,
                      uint64_t columns, const tr_table_options *options, const struct tr_table *like)
{
    enum { LONGEST = 16384, MOST_PIECES = 1024 };
    const tr_context *tr = t->tr;
    const tr_job *job = tr->job;
    t->memory = TR_SHM_CLOSED;
    t->window = MPI_WIN_NULL;
    TR_TRY(tr_copy_string(name, &t->name));
    t->dtype = dtype;
    t->sparse = options->sparse;
    t->fallback = options->fallback;
    t->keys = rows == 1 && !t->sparse ? columns : rows;
    t->width = rows == 1 && !t->sparse ? 1 : columns;
    if (t->keys == 0 || t->width == 0)
        return tr_fail(TR_ERR_INTERNAL, "table %s: %llu rows of %llu columns are nothing", name,
                       (unsigned long long)rows, (unsigned long long)columns);
    bool by_job = !t->sparse && !options->place;
    t->hash = options->hash || (by_job && job && job->table.storage == TR_STORAGE_HASH);
    /* cuts rows above LONGEST bytes into pieces, which may lie on different servers (2-D blocks) */
    t->pieces = 1;
    for (size_t pieces = MOST_PIECES; pieces > 0 && !options->place && !t->hash && !t->sparse; pieces--)
        if (t->width % pieces == 0 && t->width / pieces * tr_dtype_size(dtype) <= LONGEST)
            t->pieces = (uint32_t)pieces;
    t->unit_width = t->width / t->pieces;
    t->unit_bytes = t->unit_width * tr_dtype_size(dtype);
    t->next_tag = 1;
    t->every = 1;
    t->lockstep = tr->staleness == 0;
    if (options->initial != TR_INITIAL_ZERO && (t->hash || t->sparse))
        return tr_fail(TR_ERR_CONFIG, "table %s: only dense tables have initial values: expected zeros",
                       name);
    if (t->sparse && ((dtype != TR_F32 && dtype != TR_I32) || t->hash || t->width > UINT64_C(1) << 32))
        return tr_fail(
            TR_ERR_INTERNAL,
            "table %s: sparse rows are of f32 or i32 and at most 2^32 columns, without hash storage", name);
    if (job) {
        t->route = job->table.route;
        t->push = job->table.push;
        t->wire = (struct tr_wire){job->table.encoding, job->table.precision};
        t->filter = (struct tr_filter){.kind = job->table.filter,
                                       .limit = job->table.filter_limit,
                                       .skip = job->table.filter_skip,
                                       .seed = tr_mix(job->seed + (uint64_t)tr->rank)};
        t->merges_shared = job->table.merge == TR_MERGE_AUTO && t->lockstep && tr->layout.nodes == 1 &&
                           !t->hash && !t->sparse;
    }
    TR_TRY(table_partition(t, options, like));
    if (t->hash) TR_TRY(table_check_hash(tr));
    if (t->hash && t->server >= 0) {
        /* t->share stays NULL on all ranks, so that they access the map by messages, as if the server were on another node */
        TR_TRY(TR_NEW(&t->map, 1));
        TR_TRY(tr_hashmap_open(&t->unit_bytes, 1, t->map));
    }
    if (t->sparse && t->server >= 0)
        TR_TRY(
            tr_sparse_open(dtype, tr_partition_share(&t->partition, (uint32_t)t->server), &t->sparse_share));
    TR_TRY(tr_rows_open(t));
    TR_TRY(tr_server_open(t));
    TR_TRY(TR_NEW(&t->share, t->partition.servers));
    TR_TRY(TR_NEW(&t->line, t->partition.servers));
    return TR_GROW(&tr->tables->table, &tr->tables->capacity, tr->tables->count + 1);
}

/* Performs tr_table_create_with(). The table has the same server 0 as the table `like`, unless `like` is NULL. Collective over all
 * ranks. */
static int table_make(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                      const tr_table_options *options, const struct tr_table *like, struct tr_table **table)
{
    static const tr_table_options as_the_job_says = {0};
    struct tr_tables *tables = tr->tables;
    struct tr_table *t;
    if (!options) options = &as_the_job_says;
    TR_TRY(TR_NEW(&t, 1));
    t->tr = tr;
    int status = tr_agree(tr, table_fill(t, name, dtype, rows, columns, options, like));
    if (status == TR_OK) {
        /* Checks that the partition is equal on all ranks: a place function with different results would mix up parameters. The
         * minima of the checksum and of its complement are complements only if all ranks have the same checksum. */
        uint64_t print = tr_partition_print(&t->partition), bounds[2] = {print, ~print};
        status = tr_all_reduce(tr, TR_SET_ALL, TR_MIN, TR_I64, bounds, 2);
        if (status == TR_OK && bounds[0] != ~bounds[1])
            status =
                tr_agree(tr, tr_fail(TR_ERR_CONFIG,
                                     "table %s: ranks put its keys in different places: size, options and "
                                     "place function must be the same on all",
                                     t->name));
    }
    if (status != TR_OK) {
        table_free(t);
        return status;
    }
    TR_TRY(tr_share_open(t, options));
    t->index = (uint32_t)tables->count;
    tables->table[tables->count++] = t;
    *table = t;
    return TR_OK;
}

int tr_table_create(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows, uint64_t columns,
                    tr_table **table)
{
    return table_make(tr, name, dtype, rows, columns, NULL, NULL, table);
}

int tr_table_create_with(tr_context *tr, const char *name, enum tr_dtype dtype, uint64_t rows,
                         uint64_t columns, const tr_table_options *options, tr_table **table)
{
    return table_make(tr, name, dtype, rows, columns, options, NULL, table);
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

/* ======== more or fewer servers ======== */

/* tr_table_resize() makes a new table and copies all units to it. With table.partition=ring the fewest units change their server: a
 * new server takes its part from all others, and a server that leaves gives its part to all others (Li et al. 2014, "Scaling
 * distributed machine learning with the parameter server", section 4.3). */

/* Copies this rank's share of the old table to the servers of the new table, by runs of units that are contiguous in both tables.
 * Returns the number of bytes that were sent to other ranks. */
static uint64_t resize_move(const struct tr_table *old, const struct tr_table *new)
{
    uint64_t moved = 0;
    size_t unit = old->unit_bytes;
    struct tr_walker to = {.partition = &new->partition};
    for (uint64_t position = 0; position < old->share_units;) {
        uint64_t first = tr_partition_unit(&old->partition, (uint32_t)old->server, (uint32_t)position);
        if (first == UINT64_MAX) {
            position++;
            continue;
        }
        struct tr_location at = tr_walk_to(&to, first);
        uint64_t end = first - first % old->partition.block + old->partition.block;
        if (to.end < end) end = to.end;
        if (old->partition.units < end) end = old->partition.units;
        size_t bytes = (size_t)(end - first) * unit;
        const char *from = (const char *)old->share[old->server] + position * unit;
        if (new->share[at.server])
            memcpy((char *)new->share[at.server] + (size_t)at.position *unit, from, bytes);
        else
            MPI_Put(from, (int)bytes, MPI_BYTE, tr_table_server_rank(new, at.server),
                    (MPI_Aint)((size_t)at.position * unit), (int)bytes, MPI_BYTE, new->window);
        if (tr_table_server_rank(new, at.server) != old->tr->rank) moved += bytes;
        position += end - first;
    }
    if (new->window != MPI_WIN_NULL) MPI_Win_flush_all(new->window);
    return moved;
}

int tr_table_resize(tr_table *t, uint32_t servers, uint64_t *moved)
{
    tr_context *tr = t->tr;
    struct tr_table *new = NULL;
    uint64_t bytes = 0;
    *moved = 0;
    if (t->partition.servers == servers) return TR_OK;
    TR_TRY(tr_tables_forget_views(tr));
    int status = TR_OK;
    if (t->hash || t->sparse || t->use || t->partition.kind == TR_PARTITION_OWN)
        status = tr_fail(
            TR_ERR_CONFIG,
            "table %s: only dense tables without server function and place function move to other servers",
            t->name);
    else if (servers < 1 || servers > (uint32_t)tr->layout.servers)
        status = tr_fail(TR_ERR_CONFIG, "table %s: it cannot lie on %u servers, there are %d", t->name,
                         servers, tr->layout.servers);
    else if (tr_server_has_clients(t) || t->updating_views > 0 || t->merge)
        status =
            tr_fail(TR_ERR_INTERNAL, "table %s moves to other servers while views of it are open", t->name);
    TR_TRY(tr_agree(tr, status));
    tr_table_options options = {.servers = servers, .block = t->partition.block};
    if (t->partition.kind == TR_PARTITION_RANGE || t->partition.kind == TR_PARTITION_HASH) options.block = 0;
    TR_TRY(table_make(tr, t->name, t->dtype, t->width == 1 ? 1 : t->keys, t->width == 1 ? t->keys : t->width,
                      &options, t, &new));
    if (t->server >= 0) bytes = resize_move(t, new);
    MPI_Request request;
    MPI_Iallreduce(&bytes, moved, 1, MPI_UINT64_T, MPI_SUM, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all servers to hand over their shares"));
    /* exchanges the contents of the old and the new table, because the caller's pointer must stay valid; keeps settings that
     * options do not contain */
    struct tr_table was = *t;
    *t = *new;
    *new = was;
    new->index = t->index;
    t->index = was.index;
    t->left_out = was.left_out;
    t->fallback = was.fallback;
    t->filter = was.filter;
    t->next_tag = was.next_tag;
    return tr_table_drop(&new);
}

/* ======== all tables ======== */

/* ---- opening and closing ---- */

/* Poll functions in the order in which they are called. tr_server_poll(), which sends replies to other ranks, is the first. */
static tr_poll_fn *const polls[] = {tr_server_poll, tr_merge_poll, tr_rows_poll, tr_view_poll};

int tr_tables_open(tr_context *tr)
{
    const tr_job *job = tr->job;
    if (job && job->table.servers > (uint64_t)tr->layout.servers)
        return tr_fail(
            TR_ERR_CONFIG, "%s: table.servers is %llu, but there are %d servers: see ranks.servers",
            tr_job_where(job, "table.servers"), (unsigned long long)job->table.servers, tr->layout.servers);
    if (job && job->table.storage == TR_STORAGE_HASH) TR_TRY(table_check_hash(tr));
    TR_TRY(TR_NEW(&tr->tables, 1));
    tr->tables->tr = tr;
    TR_TRY(tr_functions_open(tr->tables));
    for (size_t i = 0; i < sizeof polls / sizeof *polls; i++) TR_TRY(tr_poll_add(tr, polls[i], tr->tables));
    return TR_OK;
}

int tr_tables_forget_views(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->count; i++) tr_node_pull_forget(tables->table[i]);
    TR_WAIT_UNTIL(tr, !tables->sending, "the servers to forget closed views");
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to close views"));
    for (size_t i = 0; i < tables->count; i++) tr_node_pull_free(tables->table[i]);
    return TR_OK;
}

int tr_table_drop(tr_table **table)
{
    struct tr_tables *tables = (*table)->tr->tables;
    /* messages of views contain table numbers, which change below */
    TR_TRY(tr_tables_forget_views(tables->tr));
    size_t index = (*table)->index;
    table_free(*table);
    tables->count--;
    for (size_t i = index; i < tables->count; i++) {
        tables->table[i] = tables->table[i + 1];
        tables->table[i]->index = (uint32_t)i;
    }
    *table = NULL;
    return TR_OK;
}

void tr_tables_close(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    if (!tables) return;
    (void)tr_tables_forget_views(tr);
    for (size_t i = 0; i < sizeof polls / sizeof *polls; i++) tr_poll_remove(tr, polls[i], tables);
    while (tables->count > 0) table_free(tables->table[--tables->count]);
    for (struct tr_sending *m; (m = tables->spare); free(m)) tables->spare = m->next;
    TR_FREE_ALL(tables->functions.function, tables->functions.answer, tables->table, tables->views,
                tables->inbox, tables->packed, tables->unit, tables);
    tr->tables = NULL;
}

/* ---- stages ---- */

int tr_tables_ready(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    TR_TRY(tr_tables_forget_views(tr));
    TR_TRY(tr_views_ready(tr));
    tables->before = 0;
    for (size_t i = 0; i < tables->count; i++) {
        tr_server_begin(tables->table[i]);
        TR_TRY(tr_use_begin(tables->table[i]));
        TR_TRY(tr_rows_begin(tables->table[i]));
    }
    TR_TRY(tr_node_pull_open(tr)); /* registers key sets, so it must precede tr_merge_open() */
    for (size_t i = 0; i < tables->count; i++) TR_TRY(tr_merge_open(tables->table[i]));
    return TR_OK;
}

void tr_tables_count_from(tr_context *tr, int64_t clocks)
{
    struct tr_tables *tables = tr->tables;
    tables->before = clocks;
    for (size_t i = 0; i < tables->count; i++) {
        if (tables->table[i]->use) tables->table[i]->use->share.stable = clocks;
        tr_merge_begin(tables->table[i]);
    }
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        v->view.clock = v->merged_for = -1;
        v->ahead_wanted = v->ahead_started = false;
    }
}

/* ---- suspended stages ---- */

static bool table_counts_pushers(const struct tr_table *t)
{
    return t->sparse || tr_table_by_message(t);
}

int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend)
{
    const struct tr_tables *tables = tr->tables;
    TR_FREED int *open = NULL; /* open[i]: 1 if a view of table i is open on a rank */
    *needed = false;
    *can_suspend = true;
    if (tables->count == 0) return TR_OK;
    TR_TRY(TR_NEW(&open, tables->count));
    for (size_t i = 0; i < tables->view_count; i++) open[tables->views[i]->view.table->index] = 1;
    TR_TRY(tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, open, tables->count));
    for (size_t i = 0; i < tables->count; i++) {
        const struct tr_table *t = tables->table[i];
        if (!open[i]) continue;
        bool serves = tr->layout.nodes > 1 || t->merge || table_counts_pushers(t);
        if (serves && t->server >= 0) *needed = true;
        if (table_counts_pushers(t)) *can_suspend = false;
    }
    return TR_OK;
}

/* Exchanges the open views and merges with the suspended ones. */
static void suspended_swap(struct tr_tables *tables, struct tr_suspended *s)
{
    struct tr_suspended was = *s;
    s->views = tables->views;
    s->view_count = tables->view_count;
    s->view_capacity = tables->view_capacity;
    tables->views = was.views;
    tables->view_count = was.view_count;
    tables->view_capacity = was.view_capacity;
    for (size_t i = 0; i < s->tables; i++) {
        struct tr_table *t = tables->table[i];
        struct tr_suspended_table opened = {t->merge, t->subscription, t->updating_views};
        t->merge = s->table[i].merge;
        t->subscription = s->table[i].subscription;
        t->updating_views = s->table[i].updating_views;
        s->table[i] = opened;
    }
}

static void suspended_free(struct tr_suspended *s)
{
    TR_FREE_ALL(s->views, s->table);
    *s = (struct tr_suspended){0};
}

int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    suspended_free(s);
    TR_TRY(TR_NEW(&s->table, tables->count));
    s->tables = tables->count;
    /* the views are ended, so that servers do not wait for them in other stages */
    while (!resumes && tables->view_count > 0) tr_view_end(tables->views[0]);
    suspended_swap(tables, s);
    return TR_OK;
}

int tr_tables_resume(tr_context *tr, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    if (tables->view_count > 0)
        return tr_fail(TR_ERR_INTERNAL, "a view was left open between two stages of a task");
    suspended_swap(tables, s);
    tables->before = 0;
    for (size_t i = 0; i < s->tables; i++) {
        tr_server_begin(tables->table[i]);
        tr_merge_begin(tables->table[i]);
        TR_TRY(tr_rows_begin(tables->table[i]));
    }
    suspended_free(s);
    return TR_OK;
}

void tr_tables_end(tr_context *tr, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    suspended_swap(tables, s);
    for (size_t i = 0; i < s->tables; i++) tr_merge_close(tables->table[i]);
    while (tables->view_count > 0) tr_view_end(tables->views[0]);
    suspended_swap(tables, s);
    suspended_free(s);
}

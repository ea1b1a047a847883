#include "table/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "table/route.h"
#include "table/function.h"
#include "table/merge.h"
#include "table/node.h"
#include "table/rows.h"
#include "table/table.h"

/* A view of a group of several members: two communicators, because its members may start pulls and pushes in different order. */
struct tr_group_share {
    struct group_way {
        MPI_Comm comm;
        MPI_Request *request; /* by chunk */
    } pull, push;
    int chunks;
};

/* ---- choosing ---- */

/* Direct adding is 4 times as fast as an RMA accumulate (measured), but the two must not be mixed in one share: one uses locks, the
 * other is atomic inside MPI. So on several nodes `accumulate` means RMA for all ranks. */
static enum tr_way view_choose_way(const struct tr_table *t, uint32_t server)
{
    if (tr_table_by_message(t)) return TR_WAY_MESSAGE;
    if (t->push == TR_PUSH_ACCUMULATE) return t->tr->layout.nodes > 1 ? TR_WAY_ACCUMULATE : TR_WAY_ADD;
    return t->share[server] ? TR_WAY_ADD : TR_WAY_MESSAGE;
}

/* ---- opening and closing ---- */

static bool view_needs_registration(const struct tr_view_state *v, const struct tr_channel *c)
{
    const struct tr_table *t = v->view.table;
    if ((c->route == TR_ROUTE_REQUEST || c->measures) && c->segment->n > 0) return true;
    if (v->use == TR_VIEW_READ) return false;
    return !v->merged && c->way == TR_WAY_MESSAGE &&
           (c->segment->n > 0 || t->lockstep || t->use); /* see tr_channel_push() */
}

static int view_open_channel(struct tr_view_state *v, struct tr_channel *c)
{
    TR_TRY(tr_channel_open(c, v->use != TR_VIEW_READ && !v->merged && c->way == TR_WAY_ACCUMULATE));
    if (!view_needs_registration(v, c)) return TR_OK;
    return tr_channel_register(c, v->use != TR_VIEW_READ ? TR_FLAG_PUSHES : 0);
}

static int view_join_group(tr_context *tr, struct group_way *way)
{
    MPI_Request request;
    MPI_Comm_idup(tr->active->members, &way->comm, &request);
    return tr_wait_request(tr, &request, "the other members of the group to open a view");
}

int tr_views_ready(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_group_share *g = tables->views[i]->group;
        if (!g || g->push.comm != MPI_COMM_NULL) continue;
        TR_TRY(view_join_group(tr, &g->pull));
        TR_TRY(view_join_group(tr, &g->push));
    }
    return TR_OK;
}

static int view_fill(struct tr_view_state *v, const tr_key *keys, size_t n)
{
    struct tr_tables *tables = v->view.table->tr->tables;
    size_t bytes = tr_view_bytes(&v->view);
    bool shared = v->use == TR_VIEW_GROUP && tables->tr->active->of.group_size > 1;
    TR_TRY(TR_NEW((char **)&v->view.value, bytes));
    if (v->use != TR_VIEW_READ) TR_TRY(TR_NEW((char **)&v->view.delta, bytes));
    if (shared) {
        enum { CHUNK = 1 << 18 };
        struct tr_group_share *g;
        TR_TRY(TR_NEW(&g, 1));
        v->group = g;
        g->pull.comm = g->push.comm = MPI_COMM_NULL;
        g->chunks = (int)((v->view.n * v->view.width + CHUNK - 1) / CHUNK);
        TR_TRY(TR_NEW(&g->pull.request, (size_t)g->chunks));
        TR_TRY(TR_NEW(&g->push.request, (size_t)g->chunks));
    }
    if (!shared || tables->tr->active->member == 0) {
        /* this rank reads and pushes for itself or, as leader, for its group */
        struct tr_table *t = v->view.table;
        uint32_t servers = t->partition.servers;
        if (v->merged && t->updating_views > 0)
            return tr_fail(TR_ERR_INTERNAL, "table %s: a worker can update it through one view only",
                           t->name);
        TR_TRY(tr_plan_make(
            &(struct tr_plan_keys){
                .partition = &t->partition, .table_keys = t->keys, .pieces = t->pieces, .key = keys, .n = n},
            &v->keys));
        TR_TRY(TR_NEW(&v->channel, servers));
        t->updating_views += v->merged;
        for (uint32_t server = 0; server < servers; server++) {
            v->channel[server] = tr_channel_of(t, server, &v->keys.segment[server], v->tag);
            v->channel[server].way = view_choose_way(t, server);
            v->channel[server].exact = v->use == TR_VIEW_READ;
        }
        for (uint32_t server = 0; server < servers; server++)
            TR_TRY(view_open_channel(v, &v->channel[server]));
    }
    TR_TRY(TR_GROW(&tables->views, &tables->view_capacity, tables->view_count + 1));
    tables->views[tables->view_count++] = v;
    return TR_OK;
}

int tr_view_open(tr_table *t, const tr_key *keys, size_t n, enum tr_view_use use, tr_view **view)
{
    struct tr_view_state *v;
    if (t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s has sparse rows: they are pulled and pushed as rows",
                       t->name);
    TR_TRY(TR_NEW(&v, 1));
    v->view = (tr_view){.table = t, .n = n, .width = t->width, .clock = -1, .state = v};
    v->use = use;
    v->push_clock = v->merged_for = -1;
    v->tag = t->next_tag++;
    v->merged = use != TR_VIEW_READ && t->lockstep && !tr_table_by_message(t) &&
                (t->push == TR_PUSH_AUTO || t->push == TR_PUSH_MERGE);
    tr_view *opened = &v->view;
    int status = view_fill(v, keys, n);
    if (status != TR_OK) tr_view_close(&opened);
    else *view = opened;
    return status;
}

/* Removes it from the list of open views; false: it belongs to a suspended stage. */
static bool view_unlist(struct tr_tables *tables, const struct tr_view_state *v)
{
    for (size_t i = 0; i < tables->view_count; i++) {
        if (tables->views[i] != v) continue;
        tables->views[i] = tables->views[--tables->view_count];
        return true;
    }
    return false;
}

void tr_view_end(struct tr_view_state *v)
{
    struct tr_table *t = v->view.table;
    if (v->ended) return;
    v->ended = true;
    if (v->pull != PULL_IDLE) tr_way_end(t->tr->tables);
    if (v->push != PUSH_IDLE) tr_way_end(t->tr->tables);
    bool open = view_unlist(t->tr->tables, v);
    if (v->node_pull) tr_node_pull_leave(v->node_pull);
    if (open && v->channel && v->merged) t->updating_views--;
    for (uint32_t server = 0; v->channel && server < t->partition.servers; server++)
        tr_channel_close(&v->channel[server]);
    free(v->channel);
    v->channel = NULL;
}

void tr_view_close(tr_view **view)
{
    if (!*view) return;
    struct tr_view_state *v = (*view)->state;
    tr_view_end(v);
    tr_plan_free(&v->keys);
    if (v->group) {
        if (v->group->pull.comm != MPI_COMM_NULL) MPI_Comm_free(&v->group->pull.comm);
        if (v->group->push.comm != MPI_COMM_NULL) MPI_Comm_free(&v->group->push.comm);
        free(v->group->pull.request);
        free(v->group->push.request);
        free(v->group);
    }
    free(v->view.value);
    if (!v->lent) free(v->view.delta);
    free(v->ahead);
    free(v->merged_value);
    free(v);
    *view = NULL;
}

/* ---- pulling ---- */

bool tr_view_is_near(const tr_view *view)
{
    return !view->state->group && tr_view_reads_near(view->state);
}

/* The node pull by which the running pull reads from a server; NULL: the view reads by its own channel. */
static struct tr_node_pull *view_node_pull(const struct tr_view_state *v, uint32_t server)
{
    return v->joins && tr_node_pull_shares(v->node_pull, server) ? v->node_pull : NULL;
}

static int view_start_reading(struct tr_view_state *v)
{
    (void)TR_FAULT("pull");
    v->pull = PULL_READING;
    if (v->takes_merged) {
        memcpy(v->into, v->merged_value, tr_view_bytes(&v->view));
        return TR_OK;
    }
    for (uint32_t server = 0; server < v->keys.servers; server++) {
        struct tr_node_pull *shared = view_node_pull(v, server);
        if (shared) tr_node_pull_read(shared, server);
        else TR_TRY(tr_channel_read(&v->channel[server], v->into, v->version));
    }
    return TR_OK;
}

/* Starts to broadcast an array of the leader to its group or, `sums`, to reduce the members' arrays to the leader, chunk by
 * chunk. */
static void group_start(struct tr_view_state *v, void *array, struct group_way *way, bool sums)
{
    size_t elements = v->view.n * v->view.width, chunks = (size_t)v->group->chunks;
    size_t chunk = chunks ? (elements + chunks - 1) / chunks : 0;
    MPI_Datatype type = tr_dtype_mpi(v->view.table->dtype);
    bool leader = v->channel != NULL;
    for (size_t i = 0; i < chunks; i++) {
        char *part = (char *)array + i * chunk * tr_dtype_size(v->view.table->dtype);
        int n = (int)tr_min_size(chunk, elements - i * chunk);
        if (sums)
            MPI_Ireduce(leader ? MPI_IN_PLACE : part, leader ? part : NULL, n, type, MPI_SUM, 0, way->comm,
                        &way->request[i]);
        else MPI_Ibcast(part, n, type, 0, way->comm, &way->request[i]);
    }
}

static bool group_done(const struct tr_view_state *v, const struct group_way *way)
{
    int done = 0;
    MPI_Testall(v->group->chunks, way->request, &done, MPI_STATUSES_IGNORE);
    return done;
}

static void pull_spread(struct tr_view_state *v)
{
    group_start(v, v->into, &v->group->pull, false);
    v->pull = PULL_SPREADING;
}

static void pull_end(struct tr_view_state *v)
{
    v->pull = PULL_IDLE;
    tr_way_end(v->view.table->tr->tables);
}

void tr_pull_leave(tr_view *view)
{
    pull_end(view->state);
}

static int pull_advance(struct tr_view_state *v, int *did)
{
    if (v->pull == PULL_READING) {
        bool all;
        all = true;
        for (uint32_t server = 0; server < v->keys.servers && !v->takes_merged; server++) {
            struct tr_node_pull *shared = view_node_pull(v, server);
            bool done;
            if (shared) TR_TRY(tr_node_pull_poll(shared, server, &done, did));
            else TR_TRY(tr_channel_poll(&v->channel[server], &done, did));
            all = all && done;
        }
        if (!all) return TR_OK;
        ++*did;
        if (v->group) pull_spread(v);
        else pull_end(v);
    }
    if (v->pull == PULL_SPREADING && group_done(v, &v->group->pull)) {
        pull_end(v);
        ++*did;
    }
    return TR_OK;
}

/* A view of a group can be used after all members have opened it. */
static int view_check_complete(const struct tr_view_state *v)
{
    if (!v->group || v->group->push.comm != MPI_COMM_NULL) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "table %s: a view of a group can be used from the first clock on",
                   v->view.table->name);
}

static int pull_start(struct tr_view_state *v, void *into)
{
    TR_TRY(view_check_complete(v));
    v->into = into;
    v->view.table->tr->tables->traffic.pulls++;
    tr_way_begin(v->view.table->tr->tables);
    if (v->channel) TR_TRY(view_start_reading(v));
    else pull_spread(v);
    int did = 0;
    return pull_advance(v, &did);
}

int tr_pull_start(tr_view *view, void *into, int64_t version)
{
    struct tr_view_state *v = view->state;
    v->joins = v->takes_merged = false;
    v->version = version;
    return pull_start(v, into);
}

int tr_pull_start_shared(tr_view *view, void *into, int64_t least)
{
    struct tr_view_state *v = view->state;
    v->joins = v->node_pull != NULL;
    v->takes_merged = false;
    v->least = least;
    v->version = -1;
    return pull_start(v, into);
}

int tr_pull_start_merged(tr_view *view, void *into)
{
    struct tr_view_state *v = view->state;
    v->joins = false;
    v->takes_merged = true;
    return pull_start(v, into);
}

bool tr_pull_busy(const tr_view *view)
{
    return view->state->pull != PULL_IDLE;
}

/* ---- pushing ---- */

static int push_send(struct tr_view_state *v)
{
    for (uint32_t server = 0; server < v->keys.servers; server++)
        TR_TRY(tr_channel_push(&v->channel[server], &v->view, v->push_clock));
    memset(v->view.delta, 0, tr_view_bytes(&v->view)); /* it is all in the shares or in messages */
    return TR_OK;
}

static bool push_sent(struct tr_view_state *v)
{
    bool done = true;
    for (uint32_t server = 0; server < v->keys.servers; server++)
        done = tr_channel_has_pushed(&v->channel[server]) && done;
    return done;
}

static int push_advance(struct tr_view_state *v, int *did)
{
    if (v->push == PUSH_GATHERING) {
        if (!group_done(v, &v->group->push)) return TR_OK;
        ++*did;
        v->push = v->channel ? PUSH_WAITING : PUSH_IDLE;
        if (!v->channel) memset(v->view.delta, 0, tr_view_bytes(&v->view));
        if (!v->channel) tr_way_end(v->view.table->tr->tables);
    }
    if (v->push == PUSH_WAITING) {
        if (v->merged && tr_merge_busy(v->view.table)) return TR_OK;
        TR_TRY(v->merged ? tr_merge_start(v->view.table, &v->view) : push_send(v));
        v->push = PUSH_SENDING;
        ++*did;
    }
    if (v->push == PUSH_SENDING) {
        if (v->merged ? tr_merge_busy(v->view.table) : !push_sent(v)) return TR_OK;
        if (!v->merged) {
            /* completion of the request means that the values have left; only a flush means that they have arrived */
            for (uint32_t server = 0; v->channel && server < v->keys.servers; server++)
                if (v->channel[server].way == TR_WAY_ACCUMULATE && v->channel[server].segment->n > 0)
                    MPI_Win_flush(v->channel[server].rank, v->view.table->window);
        }
        if (v->node_pull) tr_node_pull_pushed(v->node_pull);
        tr_rows_pushed(v->view.table);
        v->push = PUSH_IDLE;
        tr_way_end(v->view.table->tr->tables);
        ++*did;
    }
    return TR_OK;
}

int tr_push_start(tr_view *view, int64_t clock)
{
    struct tr_view_state *v = view->state;
    TR_TRY(view_check_complete(v));
    view->table->tr->tables->traffic.pushes++;
    tr_way_begin(view->table->tr->tables);
    v->push_clock = clock;
    v->push = v->group ? PUSH_GATHERING : PUSH_WAITING;
    if (v->group) group_start(v, view->delta, &v->group->push, true);
    if (v->group && !v->channel) view->table->tr->tables->traffic.bytes_pushed += tr_view_bytes(view);
    int did = 0;
    return push_advance(v, &did);
}

bool tr_push_busy(const tr_view *view)
{
    return view->state->push != PUSH_IDLE;
}

int tr_view_poll(void *what, int *did)
{
    struct tr_tables *tables = what;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->pull != PULL_IDLE) TR_TRY(pull_advance(v, did));
        if (v->push != PUSH_IDLE) TR_TRY(push_advance(v, did));
    }
    return TR_OK;
}

bool tr_view_has_news(const struct tr_view_state *v, int64_t least)
{
    return v->node_pull && tr_node_pull_has_news(v->node_pull, least);
}

/* ---- which route is faster ---- */

/* Measures one remote server and uses its result for all. Drops registrations that the chosen route does not need. */
static int view_measure(struct tr_view_state *v)
{
    const struct tr_channel *measured = NULL;
    for (uint32_t server = 0; v->channel && server < v->keys.servers; server++) {
        struct tr_channel *c = &v->channel[server];
        if (!c->measures) continue;
        bool shared = v->node_pull && tr_node_pull_shares(v->node_pull, server);
        if (!shared && !measured) TR_TRY(tr_channel_measure(c));
        else if (!shared) c->route = measured->route;
        if (!shared && !measured) measured = c;
        c->measures = false;
        if (view_needs_registration(v, c)) continue;
        TR_TRY(tr_message_forget(v->view.table, c->rank, c->tag));
        c->registered = false;
    }
    return TR_OK;
}

int tr_views_measure(tr_context *tr)
{
    int status = TR_OK;
    if (tr->layout.nodes == 1 || tr->active != &tr->all) return TR_OK; /* see tr_node_pull_open() */
    for (size_t i = 0; i < tr->tables->view_count && status == TR_OK; i++)
        status = view_measure(tr->tables->views[i]);
    TR_TRY(tr_agree(tr, status));
    return tr_node_pull_measure(tr);
}

/* ---- --explain ---- */

struct tr_measured tr_view_measured(const tr_view *view)
{
    const struct tr_view_state *v = view->state;
    struct tr_measured measured = {0};
    if (v->node_pull) tr_node_pull_measured(v->node_pull, &measured);
    for (uint32_t server = 0; v->channel && server < v->keys.servers; server++)
        if (v->channel[server].measured.get > 0) measured = v->channel[server].measured;
    return measured;
}

/* "2 load, 1 request": the count of each kind. */
static void view_list_counts(const char *const names[], const unsigned counts[], size_t n, char *text,
                             size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (size_t i = 0; i < n && length < size; i++)
        if (counts[i] > 0)
            length += (size_t)snprintf(text + length, size - length, "%s%u %s", length ? ", " : "", counts[i],
                                       names[i]);
}

static const char *view_registered(const struct tr_view_state *v)
{
    size_t keys = 0;
    for (uint32_t server = 0; server < v->keys.servers; server++)
        if (v->channel[server].registered) keys += v->keys.segment[server].n;
    return keys == 0 ? "no" : keys == v->keys.units ? "all" : "some";
}

void tr_view_describe(const tr_view *view, char *text, size_t size)
{
    enum { WORDS = 96, NOTHING = TR_ROUTE_REQUEST + 1 };
    static const char *const route_name[] = {"auto", "load", "get", "request", "without keys"};
    static const char *const way_name[] = {"add", "accumulate", "message"};
    static const char *const use_name[] = {"read", "update", "group"};
    const struct tr_view_state *v = view->state;
    if (!v->channel) {
        snprintf(text, size, "table %s, %s: by the leader of the group", view->table->name, use_name[v->use]);
        return;
    }
    unsigned routes[NOTHING + 1] = {0}, ways[TR_WAY_MESSAGE + 1] = {0};
    for (uint32_t server = 0; server < v->keys.servers; server++) {
        const struct tr_channel *c = &v->channel[server];
        bool shared = v->node_pull && tr_node_pull_shares(v->node_pull, server);
        int through = shared ? tr_node_pull_route(v->node_pull, server) : c->route;
        routes[c->segment->n > 0 ? through : NOTHING]++;
        ways[c->way]++;
    }
    char route[WORDS], way[WORDS] = "none";
    view_list_counts(route_name, routes, NOTHING + 1, route, sizeof route);
    if (v->merged) strcpy(way, "merge");
    else if (v->use != TR_VIEW_READ) view_list_counts(way_name, ways, TR_WAY_MESSAGE + 1, way, sizeof way);
    char together[64] = "";
    if (v->node_pull) tr_node_pull_describe(v->node_pull, together, sizeof together);
    snprintf(text, size, "table %s, %s: route %s%s; way %s; %s keys registered", view->table->name,
             use_name[v->use], route, together, way, view_registered(v));
}

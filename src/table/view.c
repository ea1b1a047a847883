#include "table/view.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

/* ======== channels ======== */

enum { SLOTS = 4 }; /* maximum number of requests of one read in flight */

/* A request in flight. */
struct tr_slot {
    MPI_Request received;
    uint32_t first, n;         /* the request asks for units first .. first + n - 1 of the segment */
    struct tr_sending *answer; /* its body receives the answer: a tr_reply_head, then values */
};

/* ---- opening ---- */

struct tr_channel tr_channel_of(struct tr_table *t, uint32_t server, const struct tr_segment *segment,
                                uint32_t tag)
{
    return (struct tr_channel){.table = t,
                               .server = server,
                               .segment = segment,
                               .rank = tr_table_server_rank(t, server),
                               .owner = t->tr->rank,
                               .tag = tag,
                               .here = MPI_DATATYPE_NULL,
                               .there = MPI_DATATYPE_NULL,
                               .get = MPI_REQUEST_NULL,
                               .accumulate = MPI_REQUEST_NULL};
}

/* Chooses how a get reads scattered units. Takes the units of the share up to the last unit of the segment. If at least one in 32
 * of them belongs to the segment, returns their number: one get transfers all of them to a buffer. This is faster than a get by a
 * datatype, as MPI moves each block of a datatype separately. Otherwise returns 0, for a get by a datatype. */
static uint32_t channel_get_span(const struct tr_channel *c)
{
    enum { SPARSEST = 32 };
    const struct tr_segment *s = c->segment;
    uint32_t span = 0;
    for (uint32_t i = 0; s->runs == 0 && i < s->n; i++)
        if (s->position[i] >= span) span = s->position[i] + 1;
    return span / SPARSEST <= s->n && span * c->table->unit_width <= INT_MAX ? span : 0;
}

/* Within the node, loads are fastest. Over a network, a get of contiguous units needs no work of the server. Scattered units are
 * requested, because a get sends 12 bytes for each block of its datatype. A get cannot round or return the version that server
 * functions need. */
int tr_channel_choose_route(struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    bool near = t->share[c->server] != NULL || c->segment->n == 0;
    bool full = c->exact || t->wire.precision == TR_PRECISION_FULL;
    c->route = t->route;
    if (tr_table_keeps_versions(t)) c->route = TR_ROUTE_REQUEST;
    else if (t->route == TR_ROUTE_AUTO)
        c->route = near                                  ? TR_ROUTE_LOAD
                   : c->segment->runs && !t->use && full ? TR_ROUTE_GET
                                                         : TR_ROUTE_REQUEST;
    if (c->route == TR_ROUTE_GET) c->span = channel_get_span(c);
    if (c->route != TR_ROUTE_LOAD || near) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "table.route=load cannot reach server rank %d, which is on another node",
                   c->rank);
}

MPI_Datatype tr_type_of_units(const struct tr_table *t, size_t n, const int *length, const int *position)
{
    MPI_Datatype unit, type;
    MPI_Type_contiguous((int)t->unit_width, tr_dtype_mpi(t->dtype), &unit);
    if (length) MPI_Type_indexed((int)n, length, position, unit, &type);
    else MPI_Type_create_indexed_block((int)n, 1, position, unit, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&unit);
    return type;
}

/* Makes the MPI datatypes of gets and accumulates, with a block for each run or unit of the segment. */
static int channel_open_types(struct tr_channel *c)
{
    const struct tr_segment *s = c->segment;
    size_t pieces = s->runs ? s->runs : s->n;
    TR_FREED int *local = NULL;
    TR_TRY(TR_NEW(&local, 3 * pieces));
    int *position = local + pieces, *length = position + pieces;
    for (size_t i = 0; i < pieces; i++) {
        local[i] = (int)(s->runs ? s->run[i].local : s->local ? s->local[i] : (uint32_t)i);
        position[i] = (int)(s->runs ? s->run[i].position : s->position[i]);
        length[i] = (int)(s->runs ? s->run[i].length : 1);
    }
    c->here = tr_type_of_units(c->table, pieces, length, local);
    c->there = tr_type_of_units(c->table, pieces, length, position);
    return TR_OK;
}

int tr_channel_register(struct tr_channel *c, uint32_t flags)
{
    enum { ENTRIES = TR_MESSAGE_BYTES / TR_GAP_BYTES };
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    const struct tr_segment *s = c->segment;
    /* true: the segment has all units of the share, so that their list need not be sent */
    bool identity = s->n > 0 && s->n == tr_partition_share(&t->partition, c->server);
    uint32_t first = 0;
    do {
        uint32_t n = s->n - first < ENTRIES || identity ? s->n - first : ENTRIES;
        struct tr_sending *m;
        size_t bytes = 0;
        TR_TRY(tr_message_new(tables, identity ? 0 : tr_ascending_room(n), &m));
        m->header = (struct tr_message){.kind = TR_MESSAGE_REGISTER,
                                        .table = t->index,
                                        .tag = c->tag,
                                        .first = first,
                                        .n = n,
                                        .reply = tr_request_number(tables),
                                        .flags = (identity ? TR_FLAG_IDENTITY : 0u) | flags};
        if (!identity) {
            TR_FREED uint64_t *entry = NULL;
            TR_TRY(TR_NEW(&entry, n));
            for (uint32_t i = 0; i < n; i++) entry[i] = t->hash ? s->key[first + i] : s->position[first + i];
            bytes = tr_put_ascending(n, entry, m->body);
        }
        tr_message_send(tables, m, bytes, c->rank, &c->sending);
        TR_WAIT_UNTIL(t->tr, c->sending == 0, "server rank %d to register keys of table %s", c->rank,
                      t->name);
        first += n;
    } while (first < s->n);
    c->registered = true;
    return TR_OK;
}

void tr_channel_forget(struct tr_channel *c)
{
    struct tr_tables *tables = c->table->tr->tables;
    struct tr_sending *m;
    /* if there is no memory for the message, the server keeps the registration */
    if (c->registered && tr_message_new(tables, 0, &m) == TR_OK) {
        m->header = (struct tr_message){.kind = TR_MESSAGE_FORGET, .table = c->table->index, .tag = c->tag};
        tr_message_send(tables, m, 0, c->rank, NULL);
    }
    c->registered = false;
    for (int i = 0; c->slot && i < SLOTS; i++) {
        struct tr_slot *slot = &c->slot[i];
        if (!slot->answer) continue;
        if (slot->received == MPI_REQUEST_NULL) tr_message_release(tables, slot->answer);
        else tr_message_await(tables, slot->answer, slot->received);
    }
    free(c->slot);
    c->slot = NULL;
}

/* Waits until the get and the accumulate in flight do not use the channel's memory any more. */
static int channel_complete_access(struct tr_channel *c)
{
    TR_WAIT_UNTIL(c->table->tr, tr_request_done(&c->get) && tr_request_done(&c->accumulate),
                  "rank %d to complete the accesses of a closed view of table %s", c->rank, c->table->name);
    return TR_OK;
}

void tr_channel_close(struct tr_channel *c)
{
    (void)channel_complete_access(c); /* its error is ignored: MPI calls fail only during shutdown */
    tr_message_orphan(c->table->tr->tables, &c->sending);
    tr_channel_forget(c);
    if (c->here != MPI_DATATYPE_NULL) MPI_Type_free(&c->here);
    if (c->there != MPI_DATATYPE_NULL) MPI_Type_free(&c->there);
    TR_FREE_ALL(c->fetched, c->packed, c->residual);
}

/* ---- reading ---- */

static int channel_get(struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    c->fetching = c->span > 0;
    if (c->fetching) {
        if (!c->fetched) TR_TRY(TR_NEW(&c->fetched, c->span * t->unit_bytes));
        int n = (int)(c->span * t->unit_width);
        MPI_Rget(c->fetched, n, tr_dtype_mpi(t->dtype), c->rank, 0, n, tr_dtype_mpi(t->dtype), t->window,
                 &c->get);
        return TR_OK;
    }
    if (c->there == MPI_DATATYPE_NULL) TR_TRY(channel_open_types(c));
    MPI_Rget(c->into, 1, c->here, c->rank, 0, 1, c->there, t->window, &c->get);
    return TR_OK;
}

/* Maximum number of units in one message of a pull or push. */
static uint32_t channel_message_units(const struct tr_table *t)
{
    return (uint32_t)tr_max_size(1, TR_MESSAGE_BYTES / t->unit_bytes);
}

/* Maximum size of the answer to a request, in bytes. */
static size_t channel_answer_bytes(const struct tr_channel *c)
{
    struct tr_slice slice = tr_slice_of(c->table, channel_message_units(c->table));
    return sizeof(struct tr_reply_head) + tr_encode_room(&slice, tr_pull_wire(c->table, true));
}

static int channel_ask(struct tr_channel *c, struct tr_slot *slot)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_sending *m;
    TR_TRY(tr_message_new(tables, 0, &m));
    slot->first = c->asked;
    slot->n = (uint32_t)tr_min_size(c->segment->n - c->asked, channel_message_units(t));
    c->asked += slot->n;
    m->header = (struct tr_message){.kind = TR_MESSAGE_PULL,
                                    .table = t->index,
                                    .tag = c->tag,
                                    .owner = c->owner,
                                    .first = slot->first,
                                    .n = slot->n,
                                    .flags = c->exact || tables->exact ? TR_FLAG_EXACT : 0,
                                    .clock = c->version};
    tr_message_ask(tables, m, 0, c->rank, slot->answer->body, channel_answer_bytes(c), &slot->received);
    tables->traffic.bytes_pulled += sizeof m->header;
    return TR_OK;
}

static void channel_take_fetched(const struct tr_channel *c)
{
    const struct tr_segment *s = c->segment;
    size_t bytes = c->table->unit_bytes;
    if (s->local) tr_copy_segment(s, bytes, c->fetched, c->into);
    else tr_gather(s->position, s->n, bytes, c->fetched, c->into);
}

int tr_channel_read(struct tr_channel *c, void *into, int64_t version)
{
    struct tr_table *t = c->table;
    uint32_t n = c->segment->n;
    if (n == 0) return TR_OK;
    c->into = into;
    c->version = version;
    c->asked = c->got = 0;
    if (c->route != TR_ROUTE_REQUEST) t->tr->tables->traffic.bytes_pulled += n * t->unit_bytes;
    if (c->route == TR_ROUTE_LOAD) {
        c->seen = atomic_load_explicit(&t->line[c->server]->version, memory_order_acquire);
        tr_copy_segment(c->segment, t->unit_bytes, t->share[c->server], into);
        return TR_OK;
    }
    if (c->route == TR_ROUTE_GET) return channel_get(c);
    if (!c->slot) { /* slots are allocated at first use, because views with a node pull need no slots */
        TR_TRY(TR_NEW(&c->slot, SLOTS));
        for (int i = 0; i < SLOTS; i++) c->slot[i].received = MPI_REQUEST_NULL;
        for (int i = 0; i < SLOTS; i++)
            TR_TRY(tr_message_new(t->tr->tables, channel_answer_bytes(c), &c->slot[i].answer));
    }
    for (int i = 0; i < SLOTS && c->asked < n; i++) TR_TRY(channel_ask(c, &c->slot[i]));
    return TR_OK;
}

int tr_channel_poll(struct tr_channel *c, bool *done, int *did)
{
    const struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    *done = true;
    if (c->segment->n == 0) return TR_OK;
    if (c->route == TR_ROUTE_GET) *done = tr_request_done(&c->get);
    if (c->fetching && *done) channel_take_fetched(c);
    c->fetching = c->fetching && !*done;
    if (c->route != TR_ROUTE_REQUEST) return TR_OK;
    for (int i = 0; c->slot && i < SLOTS; i++) {
        struct tr_slot *slot = &c->slot[i];
        if (slot->received == MPI_REQUEST_NULL || !tr_request_done(&slot->received)) continue;
        ++*did;
        struct tr_slice slice = tr_slice_of(t, slot->n);
        struct tr_encoded message;
        struct tr_reply_head head;
        const void *packed;
        memcpy(&head, slot->answer->body, sizeof head);
        if (slot->first == 0) c->seen = c->version >= 0 ? c->version : head.version;
        tables->traffic.bytes_pulled += sizeof head + head.bytes;
        TR_TRY(tr_encoded_open(slot->answer->body + sizeof head, head.bytes, &slice, &message));
        if (c->segment->local) {
            TR_TRY(tr_decode(&message, &tables->packed, &tables->packed_size, &packed));
            tr_scatter(c->segment->local + slot->first, slot->n, t->unit_bytes, packed, c->into);
        } else {
            TR_TRY(tr_decode_packed(&message, (char *)c->into + slot->first * t->unit_bytes));
        }
        c->got += slot->n;
        if (c->asked < c->segment->n) TR_TRY(channel_ask(c, slot));
    }
    *done = c->got == c->segment->n;
    return TR_OK;
}

/* ---- pushing ---- */

int tr_channel_push(struct tr_channel *c, const void *delta, const void *value, int64_t clock)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    const struct tr_segment *s = c->segment;
    size_t bytes = s->n * t->unit_bytes;
    /* sends even an empty update if the server waits for updates of all pushing views, or counts their versions */
    bool always = c->way == TR_WAY_MESSAGE && (t->lockstep || t->use);
    if (s->n == 0 && !always) return TR_OK;
    if (c->way != TR_WAY_MESSAGE) tables->traffic.bytes_pushed += bytes;
    if (c->way == TR_WAY_ADD) {
        tr_share_add_view(t, c->server, s, delta);
        return TR_OK;
    }
    if (c->way == TR_WAY_ACCUMULATE) {
        if (c->there == MPI_DATATYPE_NULL) TR_TRY(channel_open_types(c));
        if (!c->packed) TR_TRY(TR_NEW(&c->packed, bytes));
        char *to = c->packed;
        for (uint32_t r = 0; r < s->runs; r++) {
            size_t length = s->run[r].length * t->unit_bytes;
            memcpy(to, (const char *)delta + s->run[r].local * t->unit_bytes, length);
            to += length;
        }
        if (s->runs == 0) tr_gather(s->local, s->n, t->unit_bytes, delta, to);
        MPI_Raccumulate(c->packed, (int)(s->n * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1,
                        c->there, MPI_SUM, t->window, &c->accumulate);
        return TR_OK;
    }
    const struct tr_wire wire = tr_push_wire(t);
    uint32_t first = 0, n;
    do { /* filters, encodes and sends one chunk; the server acknowledges the last chunk */
        n = (uint32_t)tr_min_size(s->n - first, channel_message_units(t));
        bool last = first + n == s->n;
        struct tr_slice slice = tr_slice_of(t, n);
        struct tr_sending *m;
        TR_TRY(tr_message_new(tables, tr_encode_room(&slice, wire), &m));
        m->header = (struct tr_message){.kind = TR_MESSAGE_PUSH,
                                        .table = t->index,
                                        .tag = c->tag,
                                        .first = first,
                                        .n = n,
                                        .flags = last ? TR_FLAG_LAST : 0,
                                        .reply = last ? tr_request_number(tables) : 0,
                                        .clock = clock,
                                        .seen = c->seen};
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, 2 * n * t->unit_bytes));
        char *packed = tables->packed, *pulled = packed + n * t->unit_bytes, *residual = NULL;
        tr_gather(s->local + first, n, t->unit_bytes, delta, packed);
        if (t->filter.kind != TR_FILTER_NONE || t->wire.precision != TR_PRECISION_FULL) {
            const struct tr_filter none = {0}, *filter = tables->flushes ? &none : &t->filter;
            if (!c->residual) TR_TRY(TR_NEW(&c->residual, s->n * t->unit_bytes));
            residual = c->residual + first * t->unit_bytes;
            if (tr_filter_reads_value(&t->filter))
                tr_gather(s->local + first, n, t->unit_bytes, value, pulled);
            tr_filter_apply(filter, &slice, first, clock + tables->before, pulled, packed, residual,
                            &tables->traffic.filtered);
        }
        bytes =
            tr_encode(&slice, wire, packed, wire.precision != TR_PRECISION_FULL ? residual : NULL, m->body);
        tr_message_send(tables, m, bytes, c->rank, &c->sending);
        tables->traffic.bytes_pushed += sizeof m->header + bytes;
        first += n;
    } while (first < s->n);
    c->seen++;
    return TR_OK;
}

/* ======== views ======== */

/* Collective operations of a group view. Pulls and pushes have different communicators, because members may start them in different
 * order. */
struct tr_group_share {
    struct group_way {
        MPI_Comm comm;
        MPI_Request *request; /* request of each chunk's collective */
    } pull, push;
    int chunks;
};

/* ---- opening and closing ---- */

int tr_views_ready(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_group_share *g = tables->views[i]->group;
        if (!g || g->push.comm != MPI_COMM_NULL) continue;
        MPI_Comm *const comms[] = {&g->pull.comm, &g->push.comm};
        for (int k = 0; k < 2; k++) {
            MPI_Request request;
            MPI_Comm_idup(tr->active->members, comms[k], &request);
            TR_TRY(tr_wait_request(tr, &request, "the other members of the group to open a view"));
        }
    }
    return TR_OK;
}

int tr_view_open(tr_table *t, const tr_key *keys, size_t n, enum tr_view_use use, tr_view **view)
{
    struct tr_tables *tables = t->tr->tables;
    struct tr_view_state *v;
    if (t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s has sparse rows: they are pulled and pushed as rows",
                       t->name);
    TR_TRY(TR_NEW(&v, 1));
    tr_view *opened TR_CLOSED_BY(tr_view_close) = &v->view;
    v->view = (tr_view){.table = t, .n = n, .width = t->width, .clock = -1, .state = v};
    v->use = use;
    v->push_clock = v->merged_for = -1;
    v->tag = t->next_tag++;
    v->merged = use != TR_VIEW_READ && t->lockstep && !tr_table_by_message(t) &&
                (t->push == TR_PUSH_AUTO || t->push == TR_PUSH_MERGE);
    size_t bytes = tr_view_bytes(&v->view);
    bool pushes = use != TR_VIEW_READ, shared = use == TR_VIEW_GROUP && t->tr->active->of.group_size > 1;
    TR_TRY(TR_NEW((char **)&v->view.value, bytes));
    if (pushes) TR_TRY(TR_NEW((char **)&v->view.delta, bytes));
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
    if (!shared || t->tr->active->member == 0) {
        /* this rank reads and pushes for itself or, as leader, for its group */
        if (v->merged && t->updating_views > 0)
            return tr_fail(TR_ERR_INTERNAL, "table %s: a worker can update it through one view only",
                           t->name);
        TR_TRY(tr_plan_make(t, keys, n, TR_PLAN_ASCENDING, NULL, &v->keys));
        TR_TRY(TR_NEW(&v->channel, v->keys.servers));
        t->updating_views += v->merged;
        for (uint32_t server = 0; server < v->keys.servers; server++) {
            v->channel[server] = tr_channel_of(t, server, &v->keys.segment[server], v->tag);
            /* Direct adding is 4 times as fast as an RMA accumulate (measured), but one share must not be changed by both: direct
             * adding uses locks, which MPI does not know. So on several nodes table.push: accumulate means RMA accumulates for all
             * ranks. */
            bool far = t->push == TR_PUSH_ACCUMULATE ? t->tr->layout.nodes > 1 : !t->share[server];
            v->channel[server].way = tr_table_by_message(t)          ? TR_WAY_MESSAGE
                                     : !far                          ? TR_WAY_ADD
                                     : t->push == TR_PUSH_ACCUMULATE ? TR_WAY_ACCUMULATE
                                                                     : TR_WAY_MESSAGE;
            v->channel[server].exact = !pushes;
        }
        for (uint32_t server = 0; server < v->keys.servers; server++) {
            struct tr_channel *c = &v->channel[server];
            TR_TRY(tr_channel_choose_route(c));
            bool some = c->segment->n > 0, requests = some && c->route == TR_ROUTE_REQUEST;
            bool messages = pushes && !v->merged && c->way == TR_WAY_MESSAGE &&
                            (some || t->lockstep || t->use); /* the same condition as in tr_channel_push() */
            if (requests || messages) TR_TRY(tr_channel_register(c, pushes ? TR_FLAG_PUSHES : 0));
        }
    }
    TR_TRY(TR_GROW(&tables->views, &tables->view_capacity, tables->view_count + 1));
    tables->views[tables->view_count++] = v;
    *view = opened;
    opened = NULL;
    return TR_OK;
}

void tr_view_end(struct tr_view_state *v)
{
    struct tr_table *t = v->view.table;
    struct tr_tables *tables = t->tr->tables;
    if (v->ended) return;
    v->ended = true;
    if (v->pull != PULL_IDLE) tr_way_end(tables);
    if (v->push != PUSH_IDLE) tr_way_end(tables);
    size_t i = 0;
    while (i < tables->view_count && tables->views[i] != v) i++;
    if (i < tables->view_count) { /* otherwise the view belongs to a suspended stage */
        tables->views[i] = tables->views[--tables->view_count];
        if (v->channel && v->merged) t->updating_views--;
    }
    if (v->node_pull) tr_node_pull_leave(v->node_pull);
    for (uint32_t server = 0; v->channel && server < v->keys.servers; server++)
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
        TR_FREE_ALL(v->group->pull.request, v->group->push.request, v->group);
    }
    free(v->view.value);
    if (!v->lent) free(v->view.delta);
    TR_FREE_ALL(v->ahead, v->merged_value, v);
    *view = NULL;
}

/* ---- groups ---- */

/* Starts a collective of a group, in chunks: if `sums`, a reduction of the members' arrays to the leader; otherwise a broadcast of
 * the leader's array. */
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

/* Checks that all members of the group have opened the view. */
static int group_check_complete(const struct tr_view_state *v)
{
    if (!v->group || v->group->push.comm != MPI_COMM_NULL) return TR_OK;
    return tr_fail(TR_ERR_INTERNAL, "table %s: a view of a group can be used from the first clock on",
                   v->view.table->name);
}

/* ---- pulling ---- */

void tr_pull_leave(tr_view *view)
{
    view->state->pull = PULL_IDLE;
    tr_way_end(view->table->tr->tables);
}

/* Returns the node pull by which the running pull reads from a server; NULL: the view reads by its channel. */
static struct tr_node_pull *view_node_pull(const struct tr_view_state *v, uint32_t server)
{
    bool joins = v->from == TR_PULL_NODE && v->node_pull && tr_node_pull_route(v->node_pull, server) >= 0;
    return joins ? v->node_pull : NULL;
}

static int pull_advance(struct tr_view_state *v, int *did)
{
    if (v->pull == PULL_READING) {
        bool all = true;
        for (uint32_t server = 0; server < v->keys.servers && v->from != TR_PULL_MERGE; server++) {
            struct tr_node_pull *shared = view_node_pull(v, server);
            bool done;
            if (shared) TR_TRY(tr_node_pull_poll(shared, server, &done, did));
            else TR_TRY(tr_channel_poll(&v->channel[server], &done, did));
            all = all && done;
        }
        if (!all) return TR_OK;
        ++*did;
        if (v->group) group_start(v, v->into, &v->group->pull, false);
        if (v->group) v->pull = PULL_SPREADING;
        else tr_pull_leave(&v->view);
    }
    if (v->pull == PULL_SPREADING && group_done(v, &v->group->pull)) {
        tr_pull_leave(&v->view);
        ++*did;
    }
    return TR_OK;
}

int tr_pull_start(tr_view *view, void *into, enum tr_pull_from from, int64_t number)
{
    struct tr_view_state *v = view->state;
    TR_TRY(group_check_complete(v));
    v->into = into;
    v->from = from;
    v->version = from == TR_PULL_SERVERS ? number : -1;
    v->least = number;
    view->table->tr->tables->traffic.pulls++;
    tr_way_begin(view->table->tr->tables);
    v->pull = PULL_READING; /* a pull without channels (of a group member) ends at the first poll */
    if (v->channel) (void)TR_FAULT("pull");
    if (v->channel && from == TR_PULL_MERGE) memcpy(into, v->merged_value, tr_view_bytes(view));
    for (uint32_t server = 0; server < v->keys.servers && from != TR_PULL_MERGE; server++) {
        struct tr_node_pull *shared = view_node_pull(v, server);
        if (shared) tr_node_pull_read(shared, server);
        else TR_TRY(tr_channel_read(&v->channel[server], into, v->version));
    }
    int did = 0;
    return pull_advance(v, &did);
}

/* ---- pushing ---- */

static int push_advance(struct tr_view_state *v, int *did)
{
    struct tr_table *t = v->view.table;
    uint32_t servers = v->keys.servers;
    if (v->push == PUSH_GATHERING) {
        if (!group_done(v, &v->group->push)) return TR_OK;
        ++*did;
        v->push = v->channel ? PUSH_WAITING : PUSH_IDLE;
        if (!v->channel) memset(v->view.delta, 0, tr_view_bytes(&v->view));
        if (!v->channel) tr_way_end(t->tr->tables);
    }
    if (v->push == PUSH_WAITING) {
        if (v->merged && tr_merge_busy(t)) return TR_OK;
        if (v->merged) TR_TRY(tr_merge_start(t, &v->view));
        for (uint32_t server = 0; server < servers && !v->merged; server++)
            TR_TRY(tr_channel_push(&v->channel[server], v->view.delta, v->view.value, v->push_clock));
        /* delta has been copied to the shares or to messages, so it can be set to zero */
        if (!v->merged) memset(v->view.delta, 0, tr_view_bytes(&v->view));
        v->push = PUSH_SENDING;
        ++*did;
    }
    if (v->push == PUSH_SENDING) {
        bool sent = !v->merged || !tr_merge_busy(t);
        for (uint32_t server = 0; server < servers && !v->merged; server++)
            sent = v->channel[server].sending == 0 && tr_request_done(&v->channel[server].accumulate) && sent;
        if (!sent) return TR_OK;
        /* a completed request means only that the values were sent: waits until they have arrived */
        for (uint32_t server = 0; server < servers && !v->merged; server++)
            if (v->channel[server].way == TR_WAY_ACCUMULATE && v->channel[server].segment->n > 0)
                MPI_Win_flush(v->channel[server].rank, t->window);
        if (v->node_pull) tr_node_pull_pushed(v->node_pull);
        tr_rows_pushed(t);
        v->push = PUSH_IDLE;
        tr_way_end(t->tr->tables);
        ++*did;
    }
    return TR_OK;
}

int tr_push_start(tr_view *view, int64_t clock)
{
    struct tr_view_state *v = view->state;
    struct tr_tables *tables = view->table->tr->tables;
    TR_TRY(group_check_complete(v));
    tables->traffic.pushes++;
    tr_way_begin(tables);
    v->push_clock = clock;
    v->push = v->group ? PUSH_GATHERING : PUSH_WAITING;
    if (v->group) group_start(v, view->delta, &v->group->push, true);
    if (v->group && !v->channel) tables->traffic.bytes_pushed += tr_view_bytes(view);
    int did = 0;
    return push_advance(v, &did);
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

/* ---- --explain ---- */

/* Writes the counts that are not zero with their names, for example "2 load, 1 request". */
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
    unsigned routes[NOTHING + 1] = {0}, ways[TR_WAY_MESSAGE + 1] = {0}, shares = 0;
    size_t registered = 0;
    for (uint32_t server = 0; server < v->keys.servers; server++) {
        const struct tr_channel *c = &v->channel[server];
        int shared = v->node_pull ? tr_node_pull_route(v->node_pull, server) : -1;
        int route = shared >= 0 ? shared : c->route;
        routes[c->segment->n > 0 ? route : NOTHING]++;
        shares += shared >= 0;
        ways[c->way]++;
        registered += c->registered ? c->segment->n : 0;
    }
    char route[WORDS], way[WORDS] = "none";
    view_list_counts(route_name, routes, NOTHING + 1, route, sizeof route);
    if (v->merged) strcpy(way, "merge");
    else if (v->use != TR_VIEW_READ) view_list_counts(way_name, ways, TR_WAY_MESSAGE + 1, way, sizeof way);
    char together[64] = "";
    if (v->node_pull) snprintf(together, sizeof together, " (%u together with the node)", shares);
    snprintf(text, size, "table %s, %s: route %s%s; way %s; %s keys registered", view->table->name,
             use_name[v->use], route, together, way,
             registered == 0               ? "no"
             : registered == v->keys.units ? "all"
                                           : "some");
}

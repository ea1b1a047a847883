#include "table/route.h"

#include <stdlib.h>
#include <string.h>

#include "table/function.h"
#include "table/server.h"
#include "table/storage.h"
#include "table/codec.h"

enum { SLOTS = 4 }; /* messages of one read in flight: one is decoded while others travel */

struct tr_slot {
    MPI_Request received;
    uint32_t first, n;
    struct tr_sending *answer; /* its body: tr_reply_head, then values */
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

/* On the node, loads are fastest. Over a network, a get needs no work of the server, and a request transfers only the units that
 * are needed: tr_channel_measure() finds the faster one, and until then runs are read by get. A get returns no version, which
 * server functions need, and does not round. */
static int channel_choose_route(struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    bool near = t->share[c->server] != NULL || c->segment->n == 0, full = c->exact;
    full = full || t->wire.precision == TR_PRECISION_FULL;
    c->route = t->route;
    if (tr_table_keeps_versions(t)) c->route = TR_ROUTE_REQUEST;
    else if (t->route == TR_ROUTE_AUTO)
        c->route = near                                  ? TR_ROUTE_LOAD
                   : c->segment->runs && !t->use && full ? TR_ROUTE_GET
                                                         : TR_ROUTE_REQUEST;
    c->measures = t->route == TR_ROUTE_AUTO && !near && !t->use && t->window != MPI_WIN_NULL && full;
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

int tr_channel_open_types(struct tr_channel *c)
{
    const struct tr_segment *s = c->segment;
    size_t pieces = s->runs ? s->runs : s->n;
    int *local, *position, *length;
    TR_TRY(TR_NEW(&local, 3 * pieces));
    position = local + pieces;
    length = position + pieces;
    for (size_t i = 0; i < pieces; i++) {
        local[i] = (int)(s->runs ? s->run[i].local : s->local ? s->local[i] : (uint32_t)i);
        position[i] = (int)(s->runs ? s->run[i].position : s->position[i]);
        length[i] = (int)(s->runs ? s->run[i].length : 1);
    }
    c->here = tr_type_of_units(c->table, pieces, length, local);
    c->there = tr_type_of_units(c->table, pieces, length, position);
    free(local);
    return TR_OK;
}

/* Ranges of a share that contain the scattered units of a segment and the gaps between them: in a get, each range costs more than
 * some extra bytes. */
struct tr_stretches {
    uint32_t n, units;  /* stretches; units in all of them */
    MPI_Datatype there; /* in the window */
    char *fetched;      /* their values, side by side */
    uint32_t *at;       /* by unit of the segment: its index in these */
    bool under_way;
};

static void stretches_free(struct tr_stretches *all)
{
    if (!all) return;
    if (all->there != MPI_DATATYPE_NULL) MPI_Type_free(&all->there);
    free(all->fetched);
    free(all->at);
    free(all);
}

/* Starts a get; its datatypes are made at the first use. */
static int channel_get(struct tr_channel *c, void *into)
{
    const struct tr_table *t = c->table;
    if (c->segment->runs) {
        if (c->there == MPI_DATATYPE_NULL) TR_TRY(tr_channel_open_types(c));
        MPI_Rget(into, 1, c->here, c->rank, 0, 1, c->there, t->window, &c->get);
        return TR_OK;
    }
    if (!c->stretches) {
        uint32_t n = c->segment->n;
        struct tr_stretches *all;
        int *position;
        TR_TRY(TR_NEW(&all, 1));
        c->stretches = all;
        all->there = MPI_DATATYPE_NULL;
        TR_TRY(TR_NEW(&all->at, n));
        TR_TRY(TR_NEW(&position, 2 * (size_t)n));
        int *length = position + n, status;
        const struct tr_segment *s = c->segment;
        /* Gaps of fewer bytes are fetched. Measured: a range costs 12 bytes of description and 50 ns over TCP, and 700 ns on
         * one node. */
        enum { FAR = 32, NEAR = 4096 };
        uint32_t gap = (uint32_t)((c->table->share[c->server] ? NEAR : FAR) / c->table->unit_bytes);
        for (uint32_t i = 0; i < s->n; i++) {
            uint32_t skipped = i == 0 ? 0 : s->position[i] - s->position[i - 1] - 1;
            if (i == 0 || skipped > gap) {
                position[all->n] = (int)s->position[i];
                length[all->n++] = 0;
                skipped = 0;
            }
            all->units += skipped;
            length[all->n - 1] += (int)skipped + 1;
            all->at[i] = all->units++;
        }
        status = TR_NEW(&all->fetched, all->units * t->unit_bytes);
        if (status == TR_OK) all->there = tr_type_of_units(t, all->n, length, position);
        free(position);
        TR_TRY(status);
    }
    struct tr_stretches *all = c->stretches;
    all->under_way = true;
    MPI_Rget(all->fetched, (int)(all->units * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1,
             all->there, t->window, &c->get);
    return TR_OK;
}

/* Maximum size of an answer to a request. */
static size_t channel_answer_bytes(const struct tr_channel *c)
{
    struct tr_slice slice = tr_slice_of(c->table, tr_message_units(c->table));
    return sizeof(struct tr_reply_head) + tr_encode_room(&slice, tr_pull_wire(c->table, true));
}

int tr_channel_open(struct tr_channel *c, bool accumulates)
{
    TR_TRY(channel_choose_route(c));
    if (c->segment->n == 0) return TR_OK;
    if (!accumulates) return TR_OK;
    return tr_channel_open_types(c);
}

/* Made at the first use: a view with a node pull never reads by this channel. */
static int channel_open_slots(struct tr_channel *c)
{
    if (c->slot) return TR_OK;
    TR_TRY(TR_NEW(&c->slot, SLOTS));
    for (int i = 0; i < SLOTS; i++) c->slot[i].received = MPI_REQUEST_NULL;
    for (int i = 0; i < SLOTS; i++)
        TR_TRY(tr_message_new(c->table->tr->tables, channel_answer_bytes(c), &c->slot[i].answer));
    return TR_OK;
}

int tr_channel_register(struct tr_channel *c, uint32_t flags)
{
    enum { ENTRIES = TR_MESSAGE_BYTES / TR_GAP_BYTES };
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    const struct tr_segment *s = c->segment;
    /* n equals the size of the share: the segment has all units */
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
            /* entries first .. first + n - 1 of the segment */
            uint64_t *entry;
            TR_TRY(TR_NEW(&entry, n));
            for (uint32_t i = 0; i < n; i++)
                entry[i] = c->table->hash ? s->key[first + i] : s->position[first + i];
            bytes = tr_put_ascending(n, entry, m->body);
            free(entry);
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
    if (c->registered) (void)tr_message_forget(c->table, c->rank, c->tag); /* without memory it stays there */
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

/* Waits for a get and an accumulate in flight, which use memory that will be freed. */
static int channel_complete_access(struct tr_channel *c)
{
    TR_WAIT_UNTIL(c->table->tr, tr_request_done(&c->get) && tr_request_done(&c->accumulate),
                  "rank %d to let a closed view of table %s go", c->rank, c->table->name);
    return TR_OK;
}

void tr_channel_close(struct tr_channel *c)
{
    (void)channel_complete_access(c); /* it fails when all of it ends */
    tr_message_orphan(c->table->tr->tables, &c->sending);
    tr_channel_forget(c);
    if (c->here != MPI_DATATYPE_NULL) MPI_Type_free(&c->here);
    if (c->there != MPI_DATATYPE_NULL) MPI_Type_free(&c->there);
    stretches_free(c->stretches);
    free(c->packed);
    free(c->residual);
}

/* ---- reading ---- */

static int channel_ask(struct tr_channel *c, struct tr_slot *slot)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_sending *m;
    TR_TRY(tr_message_new(tables, 0, &m));
    slot->first = c->asked;
    slot->n = (uint32_t)tr_min_size(c->segment->n - c->asked, tr_message_units(t));
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
        tr_copy_share_to_view(c->segment, t->unit_bytes, t->share[c->server], into);
    } else if (c->route == TR_ROUTE_GET) {
        TR_TRY(channel_get(c, into));
    } else {
        TR_TRY(channel_open_slots(c));
        for (int i = 0; i < SLOTS && c->asked < n; i++) TR_TRY(channel_ask(c, &c->slot[i]));
    }
    return TR_OK;
}

/* Writes the values of an answer to the destination. */
static int channel_read_answer(struct tr_channel *c, const struct tr_slot *slot)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, slot->n);
    struct tr_reply_head head;
    struct tr_encoded message;
    memcpy(&head, slot->answer->body, sizeof head);
    TR_TRY(tr_encoded_open(slot->answer->body + sizeof head, head.bytes, &slice, &message));
    if (slot->first == 0) c->seen = c->version >= 0 ? c->version : head.version;
    tables->traffic.bytes_pulled += sizeof head + head.bytes;
    if (!c->segment->local) return tr_decode_packed(&message, (char *)c->into + slot->first * t->unit_bytes);
    const void *packed = message.value;
    if (message.encoding != TR_ENCODING_DENSE || message.precision != TR_PRECISION_FULL) {
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, slice.n * t->unit_bytes));
        TR_TRY(tr_decode_packed(&message, tables->packed));
        packed = tables->packed;
    }
    tr_scatter(c->segment->local + slot->first, slot->n, t->unit_bytes, packed, c->into);
    return TR_OK;
}

/* Copies the units of the segment from the ranges that were fetched. */
static void stretches_copy(const struct tr_channel *c, struct tr_stretches *all)
{
    struct tr_segment there = {.n = c->segment->n, .local = c->segment->local, .position = all->at};
    if (!all->under_way) return;
    all->under_way = false;
    if (there.local) tr_copy_share_to_view(&there, c->table->unit_bytes, all->fetched, c->into);
    else tr_gather(all->at, there.n, c->table->unit_bytes, all->fetched, c->into);
}

int tr_channel_poll(struct tr_channel *c, bool *done, int *did)
{
    *done = true;
    if (c->segment->n == 0) return TR_OK;
    if (c->route == TR_ROUTE_GET) {
        *done = tr_request_done(&c->get);
        if (*done && c->stretches) stretches_copy(c, c->stretches);
    }
    if (c->route != TR_ROUTE_REQUEST) return TR_OK;
    for (int i = 0; c->slot && i < SLOTS; i++) {
        struct tr_slot *slot = &c->slot[i];
        if (slot->received == MPI_REQUEST_NULL || !tr_request_done(&slot->received)) continue;
        ++*did;
        TR_TRY(channel_read_answer(c, slot));
        c->got += slot->n;
        if (c->asked < c->segment->n) TR_TRY(channel_ask(c, slot));
    }
    *done = c->got == c->segment->n;
    return TR_OK;
}

/* ---- which route is faster ---- */

static int channel_time_reading(struct tr_channel *c, int route, void *into, double *least)
{
    double begin = tr_now();
    bool done = false;
    int did = 0;
    c->route = route;
    TR_TRY(tr_channel_read(c, into, -1));
    struct tr_waiting waiting = tr_waiting_begin();
    for (;;) {
        TR_TRY(tr_channel_poll(c, &done, &did));
        if (done) break;
        TR_TRY(tr_waiting_turn(c->table->tr, &waiting, "server rank %d to answer a measurement", c->rank));
    }
    double took = tr_now() - begin;
    if (*least == 0 || took < *least) *least = took;
    return TR_OK;
}

int tr_channel_measure(struct tr_channel *c)
{
    enum { SAMPLE = 1 << 17, ROUNDS = 3 }; /* bytes: some milliseconds at 1 Gbit/s */
    struct tr_segment part = *c->segment;
    size_t units = tr_max_size(SAMPLE / c->table->unit_bytes, 1);
    part.n = (uint32_t)tr_min_size(part.n, units);
    part.local = NULL;
    part.runs = 0;
    struct tr_channel trial = tr_channel_of(c->table, c->server, &part, c->tag);
    char *into;
    int status = TR_NEW(&into, part.n * c->table->unit_bytes);
    trial.owner = c->owner;
    trial.exact = c->exact;
    for (int i = 0; i < ROUNDS && status == TR_OK; i++) {
        status = channel_time_reading(&trial, TR_ROUTE_GET, into, &c->measured.get);
        if (status == TR_OK)
            status = channel_time_reading(&trial, TR_ROUTE_REQUEST, into, &c->measured.request);
    }
    tr_channel_close(&trial);
    free(into);
    c->measures = false;
    /* a request transfers fewer bytes, so it wins if it is nearly as fast */
    bool gets = c->measured.get < 0.9 * c->measured.request;
    if (status == TR_OK) c->route = gets ? TR_ROUTE_GET : TR_ROUTE_REQUEST;
    return status;
}

/* ---- pushing ---- */

/* Writes units first .. first + n - 1 of the segment with the table's filter and encoding; *bytes: the size. */
static int channel_write_update(struct tr_channel *c, const tr_view *view, const struct tr_message *m,
                                void *out, size_t *bytes)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, m->n);
    struct tr_wire wire = tr_push_wire(t);
    size_t length = m->n * t->unit_bytes;
    bool filters = t->filter.kind != TR_FILTER_NONE, rounds = t->wire.precision != TR_PRECISION_FULL;
    TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, 2 * length));
    char *packed = tables->packed, *value = packed + length, *residual = NULL;
    tr_gather(c->segment->local + m->first, m->n, t->unit_bytes, view->delta, packed);
    if (filters || rounds) {
        if (!c->residual) TR_TRY(TR_NEW(&c->residual, c->segment->n * t->unit_bytes));
        residual = c->residual + m->first * t->unit_bytes;
        if (tr_filter_reads_value(&t->filter))
            tr_gather(c->segment->local + m->first, m->n, t->unit_bytes, view->value, value);
        const struct tr_filter none = {0}, *filter = tables->flushes ? &none : &t->filter;
        tr_filter_apply(filter, &slice, m->first, m->clock + tables->before, value, packed, residual,
                        &tables->traffic.filtered);
    }
    *bytes =
        tr_encode(&slice, wire, packed, NULL, 0, wire.precision != TR_PRECISION_FULL ? residual : NULL, out);
    return TR_OK;
}

/* Sends the segment in chunks; the last one is acknowledged. */
static int channel_push_messages(struct tr_channel *c, const tr_view *view, int64_t clock)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    uint32_t first = 0, n;
    do {
        n = (uint32_t)tr_min_size(c->segment->n - first, tr_message_units(t));
        bool last = first + n == c->segment->n;
        struct tr_slice slice = tr_slice_of(t, n);
        struct tr_sending *m;
        size_t bytes = 0;
        TR_TRY(tr_message_new(tables, tr_encode_room(&slice, tr_push_wire(t)), &m));
        m->header = (struct tr_message){.kind = TR_MESSAGE_PUSH,
                                        .table = t->index,
                                        .tag = c->tag,
                                        .first = first,
                                        .n = n,
                                        .flags = last ? TR_FLAG_LAST : 0,
                                        .reply = last ? tr_request_number(tables) : 0,
                                        .clock = clock,
                                        .seen = c->seen};
        TR_TRY(channel_write_update(c, view, &m->header, m->body, &bytes));
        tr_message_send(tables, m, bytes, c->rank, &c->sending);
        tables->traffic.bytes_pushed += sizeof m->header + bytes;
        first += n;
    } while (first < c->segment->n);
    c->seen++;
    return TR_OK;
}

int tr_channel_push(struct tr_channel *c, const tr_view *view, int64_t clock)
{
    struct tr_table *t = c->table;
    const struct tr_segment *s = c->segment;
    size_t bytes = s->n * t->unit_bytes;
    if (c->way == TR_WAY_MESSAGE)
        /* in lockstep a server waits for all pushing views, and server functions count versions over all of them */
        return s->n > 0 || t->lockstep || t->use ? channel_push_messages(c, view, clock) : TR_OK;
    if (s->n == 0) return TR_OK;
    t->tr->tables->traffic.bytes_pushed += bytes;
    if (c->way == TR_WAY_ADD) {
        tr_share_add_view(t, c->server, s, view->delta);
        return TR_OK;
    }
    if (!c->packed) TR_TRY(TR_NEW(&c->packed, bytes));
    tr_gather(s->local, s->n, t->unit_bytes, view->delta, c->packed);
    MPI_Raccumulate(c->packed, (int)(s->n * t->unit_width), tr_dtype_mpi(t->dtype), c->rank, 0, 1, c->there,
                    MPI_SUM, t->window, &c->accumulate);
    return TR_OK;
}

bool tr_channel_has_pushed(struct tr_channel *c)
{
    return c->sending == 0 && tr_request_done(&c->accumulate);
}

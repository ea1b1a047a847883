#include "table/channel.h"

#include <stdlib.h>
#include <string.h>

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
                               .acknowledged = MPI_REQUEST_NULL};
}

/* Measured (README, `tools/bench first`): on the node nothing beats reading memory; over a network an RMA get
 * pays for whole runs only, single elements are cheaper gathered by their server. */
int tr_channel_choose_route(struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    bool near = t->share[c->server] != NULL || c->segment->n == 0;
    if (t->use && t->use->function.read) return c->route = TR_ROUTE_REQUEST, TR_OK;
    if (t->use && t->route == TR_ROUTE_AUTO) /* a get would not tell the version */
        return c->route = near ? TR_ROUTE_LOAD : TR_ROUTE_REQUEST, TR_OK;
    switch (t->route) {
    case TR_ROUTE_AUTO:
        c->route = near ? TR_ROUTE_LOAD : c->segment->runs ? TR_ROUTE_GET : TR_ROUTE_REQUEST;
        return TR_OK;
    case TR_ROUTE_LOAD:
        if (!near)
            return tr_fail(TR_ERR_CONFIG,
                           "table.route=load cannot reach server rank %d, which is on another node", c->rank);
        c->route = TR_ROUTE_LOAD;
        return TR_OK;
    default: c->route = t->route; return TR_OK;
    }
}

uint32_t tr_channel_chunk(const struct tr_table *t)
{
    return (uint32_t)tr_max_size(1, TR_MESSAGE_BYTES / t->unit_bytes);
}

/* Entries first .. first + n - 1 of the segment, as gaps; bytes. */
static size_t write_entries(const struct tr_channel *c, uint32_t first, uint32_t n, unsigned char *out)
{
    const struct tr_segment *s = c->segment;
    unsigned char *end = out;
    uint64_t before = 0;
    for (uint32_t i = first; i < first + n; i++) {
        uint64_t entry = c->table->hash ? s->key[i] : s->position[i];
        end = tr_put_gap(entry - before, end);
        before = entry;
    }
    return (size_t)(end - out);
}

int tr_channel_register(struct tr_channel *c, uint32_t flags)
{
    enum { ENTRIES = TR_MESSAGE_BYTES / TR_GAP_BYTES };
    struct tr_table *t = c->table;
    tr_context *tr = t->tr;
    const struct tr_segment *s = c->segment;
    uint64_t share = tr_partition_share(&t->partition, c->server);
    bool identity = s->n > 0 && s->n == share; /* ascending and as many as there are: all of them */
    struct {
        struct tr_message header;
        unsigned char entries[ENTRIES * TR_GAP_BYTES];
    } * message;
    TR_TRY(TR_NEW(&message, 1));
    uint32_t first = 0;
    do {
        uint32_t n = s->n - first < ENTRIES || identity ? s->n - first : ENTRIES;
        message->header = (struct tr_message){.kind = TR_MESSAGE_REGISTER,
                                              .table = t->index,
                                              .tag = c->tag,
                                              .first = first,
                                              .n = n,
                                              .reply = tr_request_number(tr->tables),
                                              .flags = (identity ? TR_FLAG_IDENTITY : 0u) | flags};
        size_t bytes = sizeof message->header;
        if (!identity) bytes += write_entries(c, first, n, message->entries);
        MPI_Request request[2];
        MPI_Irecv(NULL, 0, MPI_BYTE, c->rank, TR_TAG_REPLY + (int)message->header.reply, tr->wire,
                  &request[0]);
        MPI_Isend(message, (int)bytes, MPI_BYTE, c->rank, TR_TAG_SERVER, tr->wire, &request[1]);
        TR_WAIT_UNTIL(tr, tr_request_done(&request[1]) && tr_request_done(&request[0]),
                      "server rank %d to register keys of table %s", c->rank, t->name);
        first += n;
    } while (first < s->n);
    free(message);
    c->registered = true;
    return TR_OK;
}

int tr_channel_open_types(struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    const struct tr_segment *s = c->segment;
    MPI_Datatype unit;
    MPI_Type_contiguous((int)t->unit_width, tr_dtype_mpi(t->dtype), &unit);
    int pieces = (int)(s->runs ? s->runs : s->n), *local, *position, *length;
    TR_TRY(TR_NEW(&local, (size_t)pieces));
    TR_TRY(TR_NEW(&position, (size_t)pieces));
    TR_TRY(TR_NEW(&length, (size_t)pieces));
    for (int i = 0; i < pieces; i++) {
        local[i] = (int)(s->runs ? s->run[i].local : s->local ? s->local[i] : (uint32_t)i);
        position[i] = (int)(s->runs ? s->run[i].position : s->position[i]);
        length[i] = (int)(s->runs ? s->run[i].length : 1);
    }
    MPI_Type_indexed(pieces, length, local, unit, &c->here);
    MPI_Type_indexed(pieces, length, position, unit, &c->there);
    MPI_Type_commit(&c->here);
    MPI_Type_commit(&c->there);
    MPI_Type_free(&unit);
    free(local);
    free(position);
    free(length);
    return TR_OK;
}

/* No answer to a chunk is longer. */
static size_t answer_bytes(const struct tr_channel *c)
{
    const struct tr_table *t = c->table;
    struct tr_slice slice = tr_slice_of(t, tr_channel_chunk(t));
    return sizeof(struct tr_reply_head) + tr_encode_room(&slice, tr_pull_wire(t, c->exact));
}

int tr_channel_open_slots(struct tr_channel *c)
{
    TR_TRY(TR_NEW(&c->slot, TR_SLOTS));
    for (int i = 0; i < TR_SLOTS; i++) {
        c->slot[i].sent = c->slot[i].received = MPI_REQUEST_NULL;
        TR_TRY(TR_NEW(&c->slot[i].answer, answer_bytes(c)));
    }
    return TR_OK;
}

void tr_channel_close(struct tr_channel *c)
{
    /* without memory it stays there */
    if (c->registered) (void)tr_server_tell_forget(c->table, c->rank, c->tag);
    if (c->here != MPI_DATATYPE_NULL) MPI_Type_free(&c->here);
    if (c->there != MPI_DATATYPE_NULL) MPI_Type_free(&c->there);
    for (int i = 0; c->slot && i < TR_SLOTS; i++) free(c->slot[i].answer);
    free(c->slot);
    free(c->outgoing);
    free(c->kept);
    free(c->sends);
}

/* ---- reading ---- */

static void ask_chunk(struct tr_channel *c, struct tr_slot *slot)
{
    struct tr_table *t = c->table;
    tr_context *tr = t->tr;
    uint32_t n = c->segment->n - c->asked, most = tr_channel_chunk(t);
    if (n > most) n = most;
    slot->message = (struct tr_message){.kind = TR_MESSAGE_PULL,
                                        .table = t->index,
                                        .tag = c->tag,
                                        .owner = c->owner,
                                        .first = c->asked,
                                        .n = n,
                                        .flags = c->exact ? TR_FLAG_EXACT : 0,
                                        .clock = c->version,
                                        .reply = tr_request_number(tr->tables)};
    c->asked += n;
    MPI_Irecv(slot->answer, (int)answer_bytes(c), MPI_BYTE, c->rank, TR_TAG_REPLY + (int)slot->message.reply,
              tr->wire, &slot->received);
    MPI_Isend(&slot->message, sizeof slot->message, MPI_BYTE, c->rank, TR_TAG_SERVER, tr->wire, &slot->sent);
    tr->tables->traffic.messages++;
    tr->tables->traffic.bytes_pulled += sizeof slot->message;
}

void tr_channel_read(struct tr_channel *c, void *into, int64_t version)
{
    struct tr_table *t = c->table;
    if (c->segment->n == 0) return;
    c->into = into;
    c->version = version;
    switch (c->route) {
    case TR_ROUTE_AUTO:
    case TR_ROUTE_LOAD:
        c->seen = atomic_load_explicit(&t->line[c->server]->version, memory_order_acquire);
        tr_copy_share_to_view(c->segment, t->unit_bytes, t->share[c->server], into);
        t->tr->tables->traffic.bytes_pulled += c->segment->n * t->unit_bytes;
        break;
    case TR_ROUTE_GET:
        t->tr->tables->traffic.bytes_pulled += c->segment->n * t->unit_bytes;
        MPI_Rget(into, 1, c->here, c->rank, 0, 1, c->there, t->window, &c->get);
        break;
    case TR_ROUTE_REQUEST:
        c->asked = c->got = 0;
        for (int i = 0; i < TR_SLOTS && c->asked < c->segment->n; i++) ask_chunk(c, &c->slot[i]);
        break;
    }
}

/* The values of an answer go where they are wanted. */
static int take_answer(struct tr_channel *c, const struct tr_slot *slot)
{
    struct tr_table *t = c->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_slice slice = tr_slice_of(t, slot->message.n);
    struct tr_reply_head head;
    struct tr_encoded message;
    memcpy(&head, slot->answer, sizeof head);
    TR_TRY(tr_encoded_open(slot->answer + sizeof head, head.bytes, &slice, &message));
    if (slot->message.first == 0) c->seen = c->version >= 0 ? c->version : head.version;
    tables->traffic.bytes_pulled += sizeof head + head.bytes;
    if (!c->segment->local)
        return tr_decode_packed(&message, (char *)c->into + slot->message.first * t->unit_bytes);
    const void *packed = message.value;
    if (message.encoding != TR_ENCODING_DENSE || message.precision != TR_PRECISION_FULL) {
        TR_TRY(TR_GROW(&tables->packed, &tables->packed_size, slice.n * t->unit_bytes));
        TR_TRY(tr_decode_packed(&message, tables->packed));
        packed = tables->packed;
    }
    tr_copy_packed_to_view(c->segment, slot->message.first, slot->message.n, t->unit_bytes, packed, c->into);
    return TR_OK;
}

int tr_channel_poll(struct tr_channel *c, bool *done, int *did)
{
    *done = true;
    if (c->segment->n == 0) return TR_OK;
    if (c->route == TR_ROUTE_GET) *done = tr_request_done(&c->get);
    if (c->route != TR_ROUTE_REQUEST) return TR_OK;
    for (int i = 0; i < TR_SLOTS; i++) {
        struct tr_slot *slot = &c->slot[i];
        if (slot->received == MPI_REQUEST_NULL) continue;
        if (!tr_request_done(&slot->sent) || !tr_request_done(&slot->received)) continue;
        ++*did;
        TR_TRY(take_answer(c, slot));
        c->got += slot->message.n;
        if (c->asked < c->segment->n) ask_chunk(c, slot);
    }
    *done = c->got == c->segment->n;
    return TR_OK;
}

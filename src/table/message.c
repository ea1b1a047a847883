#include "table/message.h"

#include <assert.h>
#include <stdlib.h>

#include "table/function.h"

static_assert(sizeof(struct tr_message) % 16 == 0, "the body follows its header");

/* Long messages, which are all about as long, use the memory of earlier ones: fresh pages cost more than copying. */
enum { LONG = 1 << 16 };

int tr_message_new(struct tr_tables *tables, size_t room, struct tr_sending **message)
{
    struct tr_sending *m = room < LONG ? NULL : tables->spare;
    if (m && m->room >= room) {
        tables->spare = m->next;
    } else {
        m = malloc(sizeof *m + room);
        if (!m) return tr_fail(TR_ERR_SYSTEM, "out of memory: a message of %zu bytes", room);
        m->room = room;
    }
    m->sent = m->acknowledged = MPI_REQUEST_NULL;
    m->pending = NULL;
    *message = m;
    return TR_OK;
}

void tr_message_release(struct tr_tables *tables, struct tr_sending *m)
{
    if (m->room < LONG) {
        free(m);
        return;
    }
    m->next = tables->spare;
    tables->spare = m;
}

static void list(struct tr_tables *tables, struct tr_sending *m)
{
    m->next = tables->sending;
    tables->sending = m;
}

void tr_message_send(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank,
                     uint32_t *pending)
{
    MPI_Comm wire = tables->tr->wire;
    uint32_t kind = m->header.kind;
    int length = (int)(sizeof m->header + bytes);
    if ((kind == TR_MESSAGE_REGISTER || kind == TR_MESSAGE_PUSH) && m->header.reply > 0)
        MPI_Irecv(NULL, 0, MPI_BYTE, rank, TR_TAG_REPLY + (int)m->header.reply, wire, &m->acknowledged);
    if (kind == TR_MESSAGE_FORGET) /* synchronous: it leaves the list when it has been received */
        MPI_Issend(&m->header, length, MPI_BYTE, rank, TR_TAG_SERVER, wire, &m->sent);
    else MPI_Isend(&m->header, length, MPI_BYTE, rank, TR_TAG_SERVER, wire, &m->sent);
    if (pending) ++*pending;
    m->pending = pending;
    tables->traffic.messages += kind != TR_MESSAGE_REGISTER && kind != TR_MESSAGE_FORGET;
    list(tables, m);
}

void tr_message_ask(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank, void *answer,
                    size_t room, MPI_Request *received)
{
    m->header.reply = tr_request_number(tables);
    MPI_Irecv(answer, (int)room, MPI_BYTE, rank, TR_TAG_REPLY + (int)m->header.reply, tables->tr->wire,
              received);
    tr_message_send(tables, m, bytes, rank, NULL);
}

void tr_message_await(struct tr_tables *tables, struct tr_sending *m, MPI_Request received)
{
    m->acknowledged = received;
    list(tables, m);
}

void tr_message_reply(struct tr_tables *tables, struct tr_sending *m, size_t bytes, int rank, uint32_t number)
{
    MPI_Isend(m->body, (int)bytes, MPI_BYTE, rank, TR_TAG_REPLY + (int)number, tables->tr->wire, &m->sent);
    list(tables, m);
}

void tr_message_orphan(struct tr_tables *tables, const uint32_t *pending)
{
    for (struct tr_sending *m = tables->sending; m && *pending > 0; m = m->next)
        if (m->pending == pending) m->pending = NULL;
}

int tr_message_forget(struct tr_table *t, int rank, uint32_t tag)
{
    struct tr_sending *m = NULL;
    TR_TRY(tr_message_new(t->tr->tables, 0, &m));
    m->header = (struct tr_message){.kind = TR_MESSAGE_FORGET, .table = t->index, .tag = tag};
    tr_message_send(t->tr->tables, m, 0, rank, NULL);
    return TR_OK;
}

uint32_t tr_request_number(struct tr_tables *tables)
{
    enum { NUMBERS = 16384 }; /* far more than are ever under way, well below MPI's smallest tag limit */
    tables->next_request = tables->next_request % NUMBERS + 1;
    return tables->next_request;
}

void tr_messages_poll(struct tr_tables *tables, int *did)
{
    for (struct tr_sending **link = &tables->sending; *link;) {
        struct tr_sending *m = *link;
        if (!tr_request_done(&m->sent) || !tr_request_done(&m->acknowledged)) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        if (m->pending) --*m->pending;
        ++*did;
        tr_message_release(tables, m);
    }
}

void tr_messages_free(struct tr_tables *tables)
{
    for (struct tr_sending *m; (m = tables->spare);) {
        tables->spare = m->next;
        free(m);
    }
}

uint32_t tr_message_units(const struct tr_table *t)
{
    return (uint32_t)tr_max_size(1, TR_MESSAGE_BYTES / t->unit_bytes);
}

struct tr_wire tr_push_wire(const struct tr_table *t)
{
    bool all = t->use && !t->use->function.sparse;
    return (struct tr_wire){all ? TR_ENCODING_DENSE : t->wire.encoding,
                            t->tr->tables->flushes ? TR_PRECISION_FULL : t->wire.precision};
}

struct tr_wire tr_pull_wire(const struct tr_table *t, bool exact)
{
    int rounded = t->wire.precision == TR_PRECISION_F8 ? TR_PRECISION_F16 : t->wire.precision;
    return (struct tr_wire){t->wire.encoding, exact ? TR_PRECISION_FULL : rounded};
}

/* Pushing sparse rows: see table/rows.h. */
#include <stdlib.h>
#include <string.h>

#include "table/rows.h"

enum { MESSAGES_KEPT = 4 }; /* for each server, on their way */

/* A message of additions, being written or on its way. */
struct addition {
    struct addition *next;
    MPI_Request sent, received;
    uint32_t server;
    int64_t clock;
    size_t bytes;
    struct tr_message message;
    unsigned char data[TR_MESSAGE_BYTES];
};

/* What is added at one server. */
struct outgoing {
    struct addition *open;
    uint32_t under_way;
    uint32_t messages; /* of this clock */
};

struct tr_additions {
    struct outgoing *outgoing; /* by server */
    struct addition *sending, *spare;
};

static int open_outgoing(struct tr_table *t)
{
    if (t->additions) return TR_OK;
    struct tr_additions *additions;
    TR_TRY(TR_NEW(&additions, 1));
    int status = TR_NEW(&additions->outgoing, t->partition.servers);
    if (status == TR_OK) t->additions = additions;
    else free(additions);
    return status;
}

static void put_back(struct tr_additions *additions, struct addition *a)
{
    a->next = additions->spare;
    additions->spare = a;
}

/* A message to be written, as soon as not too many are on their way to its server. */
static int open_addition(struct tr_table *t, uint32_t server, int64_t clock)
{
    struct tr_additions *additions = t->additions;
    struct outgoing *o = &additions->outgoing[server];
    TR_WAIT_UNTIL(t->tr, o->under_way < MESSAGES_KEPT, "server rank %d to take what is added to table %s",
                  tr_table_server_rank(t, server), t->name);
    struct addition *a = additions->spare;
    if (a) additions->spare = a->next;
    else if (!(a = malloc(sizeof *a)))
        return tr_fail(TR_ERR_SYSTEM, "out of memory: a message of %zu bytes", sizeof *a);
    a->next = NULL;
    a->sent = a->received = MPI_REQUEST_NULL;
    a->server = server;
    a->clock = clock;
    a->bytes = 0;
    o->open = a;
    return TR_OK;
}

/* Sends what has been written for a server, if it is only that it is the last of the clock. */
static int send_addition(struct tr_table *t, uint32_t server, uint32_t flags)
{
    tr_context *tr = t->tr;
    struct tr_additions *additions = t->additions;
    struct outgoing *o = &additions->outgoing[server];
    struct addition *a = o->open;
    int rank = tr_table_server_rank(t, server);
    bool here = rank == tr->rank, last = flags & TR_FLAG_LAST;
    a->message =
        (struct tr_message){.kind = TR_MESSAGE_PUSH,
                            .table = t->index,
                            .first = o->messages++,
                            .flags = flags,
                            .reply = last && !t->lockstep && !here ? tr_request_number(tr->tables) : 0,
                            .clock = a->clock};
    o->open = NULL;
    tr->tables->traffic.bytes_pushed += sizeof a->message + a->bytes;
    if (here) {
        put_back(additions, a);
        return tr_server_push_here(t, &a->message, a->data, a->bytes);
    }
    if (a->message.reply > 0)
        MPI_Irecv(NULL, 0, MPI_BYTE, rank, TR_TAG_REPLY + (int)a->message.reply, tr->wire, &a->received);
    MPI_Isend(&a->message, (int)(sizeof a->message + a->bytes), MPI_BYTE, rank, TR_TAG_SERVER, tr->wire,
              &a->sent);
    tr->tables->traffic.messages++;
    a->next = additions->sending;
    additions->sending = a;
    o->under_way++;
    return TR_OK;
}

int tr_rows_flush(struct tr_table *t)
{
    for (uint32_t s = 0; t->additions && s < t->partition.servers; s++)
        if (t->additions->outgoing[s].open) TR_TRY(send_addition(t, s, 0));
    return TR_OK;
}

static int check_added(const struct tr_table *t, const tr_row *row)
{
    if (row->key >= t->keys)
        return tr_fail(TR_ERR_INTERNAL, "table %s: row %llu is pushed, but there are %llu", t->name,
                       (unsigned long long)row->key, (unsigned long long)t->keys);
    for (size_t i = 0; i < row->n; i++)
        if (row->column[i] >= t->width || (i > 0 && row->column[i] <= row->column[i - 1]))
            return tr_fail(
                TR_ERR_INTERNAL,
                "table %s: entry %zu of a row that is pushed is in column %u: columns must ascend and lie "
                "below %zu",
                t->name, i, row->column[i], t->width);
    return TR_OK;
}

/* Writes what fits of a row into its server's message, and how many entries that is. */
static size_t write_row(const struct tr_table *t, struct addition *a, uint32_t position, const tr_row *row,
                        size_t first)
{
    const uint32_t *value = row->value;
    size_t bytes;
    memcpy(a->data + a->bytes, &position, sizeof position);
    a->bytes += sizeof position;
    uint32_t n = tr_sparse_write(t->dtype == TR_F32, (uint32_t)(row->n - first), row->column + first,
                                 value + first, a->data + a->bytes, TR_MESSAGE_BYTES - a->bytes, &bytes);
    a->bytes += bytes;
    return n;
}

/* In one message if it can be, so that nobody sees half of it without BSP. */
static int add_row(struct tr_table *t, struct tr_location at, const tr_row *row, int64_t clock)
{
    enum { LEAST = sizeof at.position + TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST };
    struct outgoing *o = &t->additions->outgoing[at.server];
    for (size_t first = 0; first < row->n;) {
        if (o->open && o->open->bytes + LEAST > TR_MESSAGE_BYTES) TR_TRY(send_addition(t, at.server, 0));
        if (!o->open) TR_TRY(open_addition(t, at.server, clock));
        size_t before = o->open->bytes, written = write_row(t, o->open, at.position, row, first);
        bool whole = first + written == row->n;
        if (!whole && before > 0) {
            o->open->bytes = before;
            TR_TRY(send_addition(t, at.server, 0));
            continue;
        }
        first += written;
    }
    return TR_OK;
}

int tr_rows_add(struct tr_table *t, const tr_row *rows, size_t n, int64_t clock)
{
    struct tr_walker walker = {.partition = &t->partition};
    if (!t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s: only sparse rows are pushed as rows: views push others",
                       t->name);
    TR_TRY(open_outgoing(t));
    for (size_t i = 0; i < n; i++) TR_TRY(check_added(t, &rows[i]));
    for (size_t i = 0; i < n; i++) TR_TRY(add_row(t, tr_walk_to(&walker, rows[i].key), &rows[i], clock));
    return TR_OK;
}

int tr_rows_end_clock(struct tr_table *t, int64_t clock)
{
    if (!t->sparse || (!t->lockstep && !t->additions)) return TR_OK;
    TR_TRY(open_outgoing(t));
    bool pushed = false;
    for (uint32_t s = 0; s < t->partition.servers; s++) {
        struct outgoing *o = &t->additions->outgoing[s];
        bool silent = !o->open && o->messages == 0;
        pushed = pushed || !silent;
        if (silent && !t->lockstep) continue;
        if (!o->open) TR_TRY(open_addition(t, s, clock));
        TR_TRY(send_addition(t, s, TR_FLAG_LAST));
        o->messages = 0;
    }
    t->tr->tables->traffic.pushes += pushed; /* all of a clock is one update */
    return TR_OK;
}

int64_t tr_rows_sending(const struct tr_table *t)
{
    int64_t least = INT64_MAX;
    for (const struct addition *a = t->additions ? t->additions->sending : NULL; a; a = a->next)
        if (a->clock < least) least = a->clock;
    return least;
}

void tr_additions_poll(struct tr_table *t, int *did)
{
    struct tr_additions *additions = t->additions;
    for (struct addition **link = additions ? &additions->sending : NULL; link && *link;) {
        struct addition *a = *link;
        if (!tr_request_done(&a->sent) || !tr_request_done(&a->received)) {
            link = &a->next;
            continue;
        }
        *link = a->next;
        put_back(additions, a);
        additions->outgoing[a->server].under_way--;
        ++*did;
    }
}

void tr_additions_free(struct tr_table *t)
{
    struct tr_additions *additions = t->additions;
    if (!additions) return;
    while (additions->spare) {
        struct addition *a = additions->spare;
        additions->spare = a->next;
        free(a);
    }
    free(additions->outgoing);
    free(additions);
    t->additions = NULL;
}

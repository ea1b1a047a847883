/* Pushing sparse rows: see table/rows.h. */
#include <stdlib.h>
#include <string.h>

#include "table/message.h"
#include "table/rows.h"
#include "table/server.h"

/* What is added at one server. */
struct tr_row_push {
    struct tr_sending *open; /* the message that is being written … */
    size_t bytes;            /* … so far */
    uint32_t sending;        /* messages on their way */
    uint32_t messages;       /* sent in this clock */
};

/* A message to be written, as soon as not too many are on their way to its server. */
static int open_message(struct tr_table *t, uint32_t server, int64_t clock)
{
    enum { MOST_SENDING = 4 };
    struct tr_row_push *p = &t->row_push[server];
    TR_WAIT_UNTIL(t->tr, p->sending < MOST_SENDING, "server rank %d to take what is added to table %s",
                  tr_table_server_rank(t, server), t->name);
    TR_TRY(tr_message_new(t->tr->tables, TR_MESSAGE_BYTES, &p->open));
    p->open->header = (struct tr_message){.kind = TR_MESSAGE_PUSH, .table = t->index, .clock = clock};
    p->bytes = 0;
    return TR_OK;
}

/* Sends what has been written for a server, if it is only that it is the last of the clock. */
static int send_message(struct tr_table *t, uint32_t server, uint32_t flags)
{
    struct tr_tables *tables = t->tr->tables;
    struct tr_row_push *p = &t->row_push[server];
    struct tr_sending *m = p->open;
    int rank = tr_table_server_rank(t, server);
    bool here = rank == t->tr->rank, last = flags & TR_FLAG_LAST;
    m->header.first = p->messages++;
    m->header.flags = flags;
    m->header.reply = last && !here ? tr_request_number(tables) : 0;
    p->open = NULL;
    tables->traffic.bytes_pushed += sizeof m->header + p->bytes;
    if (!here) {
        tr_message_send(tables, m, p->bytes, rank, &p->sending);
        return TR_OK;
    }
    int status = tr_server_push_here(t, &m->header, m->body, p->bytes);
    tr_message_release(tables, m);
    return status;
}

int tr_rows_flush(struct tr_table *t)
{
    for (uint32_t s = 0; t->row_push && s < t->partition.servers; s++)
        if (t->row_push[s].open) TR_TRY(send_message(t, s, 0));
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

/* Writes what fits of a row, and how many entries that is. */
static size_t write_row(const struct tr_table *t, struct tr_row_push *p, uint32_t position, const tr_row *row,
                        size_t first)
{
    const uint32_t *value = row->value;
    size_t bytes;
    memcpy(p->open->body + p->bytes, &position, sizeof position);
    p->bytes += sizeof position;
    uint32_t n =
        tr_sparse_write(t->dtype == TR_F32, (uint32_t)(row->n - first), row->column + first, value + first,
                        p->open->body + p->bytes, TR_MESSAGE_BYTES - p->bytes, &bytes);
    p->bytes += bytes;
    return n;
}

/* In one message if it can be, so that nobody sees half of it without BSP. */
static int add_row(struct tr_table *t, struct tr_location at, const tr_row *row, int64_t clock)
{
    enum { LEAST = sizeof at.position + TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST };
    struct tr_row_push *p = &t->row_push[at.server];
    for (size_t first = 0; first < row->n;) {
        if (p->open && p->bytes + LEAST > TR_MESSAGE_BYTES) TR_TRY(send_message(t, at.server, 0));
        if (!p->open) TR_TRY(open_message(t, at.server, clock));
        size_t before = p->bytes, written = write_row(t, p, at.position, row, first);
        if (first + written < row->n && before > 0) {
            p->bytes = before;
            TR_TRY(send_message(t, at.server, 0));
            continue;
        }
        first += written;
    }
    return TR_OK;
}

static int open_push(struct tr_table *t)
{
    return t->row_push ? TR_OK : TR_NEW(&t->row_push, t->partition.servers);
}

int tr_rows_add(struct tr_table *t, const tr_row *rows, size_t n, int64_t clock)
{
    struct tr_walker walker = {.partition = &t->partition};
    if (!t->sparse)
        return tr_fail(TR_ERR_INTERNAL, "table %s: only sparse rows are pushed as rows: views push others",
                       t->name);
    if (t->rests)
        return tr_fail(TR_ERR_INTERNAL, "table %s: rows are pushed while it rests (tr_table_rest())",
                       t->name);
    TR_TRY(open_push(t));
    for (size_t i = 0; i < n; i++) TR_TRY(check_added(t, &rows[i]));
    for (size_t i = 0; i < n; i++) TR_TRY(add_row(t, tr_walk_to(&walker, rows[i].key), &rows[i], clock));
    return TR_OK;
}

int tr_rows_end_clock(struct tr_table *t, int64_t clock)
{
    bool pushed = false;
    for (uint32_t s = 0; t->row_push && s < t->partition.servers; s++) {
        struct tr_row_push *p = &t->row_push[s];
        if (!p->open && p->messages == 0) continue;
        pushed = true;
        if (!p->open) TR_TRY(open_message(t, s, clock));
        TR_TRY(send_message(t, s, TR_FLAG_LAST));
        p->messages = 0;
    }
    t->tr->tables->traffic.pushes += pushed; /* all of a clock is one update */
    return TR_OK;
}

int64_t tr_rows_sending(const struct tr_table *t)
{
    int64_t least = INT64_MAX;
    for (const struct tr_sending *m = t->row_push ? t->tr->tables->sending : NULL; m; m = m->next) {
        bool pushes = m->pending && m->header.kind == TR_MESSAGE_PUSH && m->header.table == t->index;
        if (pushes && m->header.clock < least) least = m->header.clock;
    }
    return least;
}

int tr_rows_settle(struct tr_table *t)
{
    TR_WAIT_UNTIL(t->tr, tr_rows_sending(t) == INT64_MAX, "the servers to take rows of table %s", t->name);
    return TR_OK;
}

void tr_row_push_free(struct tr_table *t)
{
    for (uint32_t s = 0; t->row_push && s < t->partition.servers; s++) {
        if (t->row_push[s].open) tr_message_release(t->tr->tables, t->row_push[s].open);
        tr_message_orphan(t->tr->tables, &t->row_push[s].sending);
    }
    free(t->row_push);
    t->row_push = NULL;
}

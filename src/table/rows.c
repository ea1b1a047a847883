/* Rows in any order: pulls as a stream, and updates of sparse rows (view.h). Variables named `want` contain the index of a unit in
 * a pull's plan. */
#include <stdlib.h>
#include <string.h>

#include "table/view.h"

/* One unit of a request. */
struct pull_ask {
    uint32_t want;
    uint32_t from; /* columns below `from` have arrived already */
    bool claimed;  /* this rank has claimed the unit's entry of the node cache */
};

/* A request, and its answer. */
struct pull_request {
    struct pull_request *next;
    uint32_t server, n; /* server that gets the request, and number of requested units */
    bool got;           /* true: the answer comes by an RMA get, so it has values but no head */
    struct pull_ask *ask;
    char *answer;
    size_t ask_room, answer_room;
    struct tr_sparse_head head; /* head of the answer; dense rows use only its members bytes and rows */
};

/* The units of a pull at one server. */
struct pull_source {
    bool near;              /* this rank reads the share directly */
    uint32_t next, end;     /* units next .. end - 1 are not yet requested, claimed or delivered */
    struct pull_ask *again; /* units that must be requested again; they are requested before unit `next` */
    size_t agains, room;
    size_t asked;       /* number of units requested so far */
    uint64_t under_way; /* number of requests whose answer has not arrived */
    uint64_t requests;  /* number of requests whose answer has not been delivered */
};

/* The part of a sparse row that has arrived. */
struct pull_part {
    struct pull_part *next;
    uint32_t want;
    struct tr_sparse_entries entry;
};

struct pull {
    struct tr_table *table;
    const struct tr_rows_terms *terms;
    struct tr_node_cache *cache; /* node cache of this pull; NULL: it uses none */
    struct tr_cache_terms cache_terms;
    const tr_key *keys;
    tr_row_fn *row;
    void *state;
    size_t n, left; /* number of rows, and of rows that have not been delivered */
    struct tr_plan plan;
    struct pull_source *source; /* one element per server */
    uint32_t *elsewhere;        /* ring buffer: units that other workers of the node fetch or have fetched */
    size_t elsewhere_first, elsewhere_n;
    struct pull_request *here, **here_end; /* list of requests whose answer has arrived */
    struct pull_request **flying;          /* the flying_n requests in flight */
    MPI_Request *received;                 /* MPI request of the answer to each request in flight */
    int *arrived;                          /* scratch: output of MPI_Testsome() */
    size_t flying_n;
    /* maximum of requests in flight to a server (table.ahead), and of bytes of an answer (table.row_bytes) */
    uint64_t ahead, row_bytes;
    struct pull_part *parts; /* list of sparse rows that have arrived only in part */

    double computed;        /* seconds spent in row() so far */
    double computing_since; /* tr_now() at the start of the current period in row() */
    double looked;          /* tr_now() at the last poll */

    /* The following members are for tables whose rows consist of several pieces. Row i uses element i % window of `missing` and
     * `whole`. */
    size_t base, window; /* rows < base are complete; rows >= base + window have not been requested */
    uint32_t *missing;   /* number of pieces of the row that have not arrived */
    char *whole;         /* values of the row */
    char *scratch;       /* copy of one row of a share */
};

struct row_push;

/* State of the rows of a table on this rank, between pulls and pushes. */
struct tr_rows {
    struct row_push *push; /* pushes to each server; NULL: no rows were pushed yet */
    struct pull *pull;     /* the running pull, or NULL */
    struct pull_request *spare;
    double row_bytes;               /* sparse rows: mean size of a row in recent answers */
    struct tr_sparse_entries entry; /* sparse rows: buffer for one row */
    /* dense rows: decoded values of the answer being delivered, and being copied to the cache */
    char *decoded, *cached;
    size_t decoded_room, cached_room;

    struct tr_node_cache cache; /* node cache whose items are units of the table; cache.head NULL: no cache */
    struct tr_shm cache_memory;
    bool looked_for_cache; /* tr_rows_begin() has decided about the cache */
    uint64_t after;        /* fetches with numbers <= after lack updates of this worker */
    uint64_t pulled;       /* tr_cache_number() when the last pull began; later fetches have higher numbers */
};

/* Returns the index in p->keys of the row to which a unit belongs. */
static inline size_t rows_place(const struct pull *p, uint32_t want)
{
    return p->plan.local[want] / p->table->pieces;
}
/* Returns the number of a unit among all units of the table. */
static inline uint64_t rows_unit(const struct pull *p, uint32_t want)
{
    const struct tr_table *t = p->table;
    return p->plan.local[want] % t->pieces * t->keys + p->keys[rows_place(p, want)];
}

/* Returns whether the next unit of a source may be requested or delivered now. */
static inline bool rows_may_begin(const struct pull *p, const struct pull_source *s)
{
    return s->next < s->end && (p->table->pieces == 1 || rows_place(p, s->next) < p->base + p->window);
}

/* ======== pushing sparse rows ======== */

/* State of the pushes to one server. */
struct row_push {
    struct tr_sending *open; /* the message that is being written, or NULL */
    size_t bytes;            /* size of the body of the open message so far */
    uint32_t sending;        /* number of messages in flight */
    uint32_t messages;       /* number of messages sent in this clock */
};

/* Opens a message, after waiting until fewer than MOST_SENDING messages are in flight to the server. */
static int row_push_open_message(struct tr_table *t, uint32_t server, int64_t clock)
{
    enum { MOST_SENDING = 4 };
    struct row_push *p = &t->rows->push[server];
    TR_WAIT_UNTIL(t->tr, p->sending < MOST_SENDING, "server rank %d to receive rows pushed to table %s",
                  tr_table_server_rank(t, server), t->name);
    TR_TRY(tr_message_new(t->tr->tables, TR_MESSAGE_BYTES, &p->open));
    p->open->header = (struct tr_message){.kind = TR_MESSAGE_PUSH, .table = t->index, .clock = clock};
    p->bytes = 0;
    return TR_OK;
}

/* Sends the open message, which may be empty if it is the last one of the clock. */
static int row_push_send(struct tr_table *t, uint32_t server, uint32_t flags)
{
    struct tr_tables *tables = t->tr->tables;
    struct row_push *p = &t->rows->push[server];
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
    int status = tr_server_push(t, t->tr->rank, &m->header, m->body, p->bytes);
    tr_message_release(tables, m);
    return status;
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
    for (const tr_row *row = rows; row < rows + n; row++) {
        if (row->key >= t->keys)
            return tr_fail(TR_ERR_INTERNAL, "table %s: row %llu is pushed, but there are %llu", t->name,
                           (unsigned long long)row->key, (unsigned long long)t->keys);
        for (size_t i = 0; i < row->n; i++)
            if (row->column[i] >= t->width || (i > 0 && row->column[i] <= row->column[i - 1]))
                return tr_fail(TR_ERR_INTERNAL,
                               "table %s: entry %zu of a row that is pushed is in column %u: columns must "
                               "ascend and lie below %zu",
                               t->name, i, row->column[i], t->width);
    }
    if (!t->rows->push) TR_TRY(TR_NEW(&t->rows->push, t->partition.servers));
    for (const tr_row *row = rows; row < rows + n; row++) {
        /* writes a row to one message if it fits, so that readers without BSP see all of the row or nothing */
        struct tr_location at = tr_walk_to(&walker, row->key);
        enum { LEAST = sizeof at.position + TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST };
        struct row_push *p = &t->rows->push[at.server];
        for (size_t first = 0, bytes; first < row->n;) {
            if (p->open && p->bytes + LEAST > TR_MESSAGE_BYTES) TR_TRY(row_push_send(t, at.server, 0));
            if (!p->open) TR_TRY(row_push_open_message(t, at.server, clock));
            size_t before = p->bytes;
            memcpy(p->open->body + p->bytes, &at.position, sizeof at.position);
            p->bytes += sizeof at.position;
            uint32_t written = tr_sparse_write(t->dtype == TR_F32, (uint32_t)(row->n - first),
                                               row->column + first, (const uint32_t *)row->value + first,
                                               p->open->body + p->bytes, TR_MESSAGE_BYTES - p->bytes, &bytes);
            p->bytes += bytes;
            if (first + written < row->n && before > 0) {
                p->bytes = before;
                TR_TRY(row_push_send(t, at.server, 0));
                continue;
            }
            first += written;
        }
    }
    return TR_OK;
}

int tr_rows_end_clock(struct tr_table *t, int64_t clock)
{
    bool pushed = false;
    for (uint32_t s = 0; t->rows->push && s < t->partition.servers; s++) {
        struct row_push *p = &t->rows->push[s];
        if (!p->open && p->messages == 0) continue;
        pushed = true;
        if (!p->open) TR_TRY(row_push_open_message(t, s, clock));
        TR_TRY(row_push_send(t, s, TR_FLAG_LAST));
        p->messages = 0;
    }
    t->tr->tables->traffic.pushes += pushed; /* all messages of a clock count as one push */
    return TR_OK;
}

int64_t tr_rows_sending(const struct tr_table *t)
{
    int64_t least = INT64_MAX;
    for (const struct tr_sending *m = t->rows->push ? t->tr->tables->sending : NULL; m; m = m->next) {
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

/* ======== pulling rows ======== */

/* Values of table.ahead and table.row_bytes if there is no job. */
enum { AHEAD = 4, ROW_BYTES = 1 << 18 };

/* Minimum seconds between two polls. Polls delay computing, but progress MPI and, with more ranks than cores, yield the core. */
static const double look_after = 500e-6;

int tr_rows_open(struct tr_table *t)
{
    TR_TRY(TR_NEW(&t->rows, 1));
    t->rows->row_bytes = 64;
    t->rows->cache_memory = TR_SHM_CLOSED;
    return TR_OK;
}

void tr_table_rest(struct tr_table *t, bool rests)
{
    t->rests = rests;
}

static uint32_t rows_next_near(const struct pull *p)
{
    uint32_t servers = p->table->partition.servers, s = 0;
    while (s < servers && !(p->source[s].near && rows_may_begin(p, &p->source[s]))) s++;
    return s;
}

/* ---- requests ---- */

static int rows_ask_again(struct pull_source *s, struct pull_ask ask)
{
    TR_TRY(TR_GROW(&s->again, &s->room, s->agains + 1));
    s->again[s->agains++] = ask;
    return TR_OK;
}

/* Chooses the next unit to be requested from a server; false: there is none. Moves units that other workers of the node fetch, or
 * have fetched, to `elsewhere`. */
static bool request_choose(struct pull *p, struct pull_source *s, struct pull_ask *ask)
{
    while (s->agains > 0 || rows_may_begin(p, s)) {
        *ask = s->agains > 0 ? s->again[--s->agains] : (struct pull_ask){.want = s->next++};
        if (!p->cache) return true;
        enum tr_cache_state state =
            tr_cache_claim(p->cache, rows_unit(p, ask->want), &p->cache_terms, p->terms->holds);
        ask->claimed = state == TR_CACHE_CLAIMED;
        if (ask->claimed || state == TR_CACHE_NONE) return true;
        p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->plan.units] = ask->want;
    }
    return false;
}

/* Sends one request to a server. *sent = false: there is no unit to be requested. */
static int request_one(struct pull *p, uint32_t server, bool *sent)
{
    enum { FIRST = 8, PLACE = 5 };
    enum { HEADS = sizeof(struct tr_reply_head) + TR_ENCODING_HEADER + sizeof(uint64_t) };
    struct tr_table *t = p->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_rows *rows = t->rows;
    struct pull_source *s = &p->source[server];
    const int rank = tr_table_server_rank(t, server);
    *sent = false;
    if (s->agains == 0 && !rows_may_begin(p, s)) return TR_OK;
    if (!rows->spare) TR_TRY(TR_NEW(&rows->spare, 1));
    struct pull_request *r = rows->spare;
    /* Computes the maximum number of units. For sparse rows, it is an estimate of the number that fills an answer. The first
     * requests are short, so that computing starts early. */
    size_t most = t->sparse ? (size_t)((double)p->row_bytes / rows->row_bytes) : p->row_bytes / t->unit_bytes;
    most = tr_min_size(most, p->row_bytes / sizeof(struct tr_sparse_request));
    if (p->ahead > 0) most = tr_min_size(most, tr_max_size(most / FIRST, s->asked));
    most = tr_max_size(1, most);
    TR_TRY(TR_GROW(&r->ask, &r->ask_room, most));
    r->server = server;
    r->n = 0;
    while (r->n < most && request_choose(p, s, &r->ask[r->n])) r->n++;
    if (r->n == 0) return TR_OK;
    s->asked += r->n;
    *sent = true;
    rows->spare = r->next;
    size_t sparse_room = tr_max_size(p->row_bytes, TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST);
    size_t room = HEADS + r->n * (t->unit_bytes + PLACE); /* PLACE is the size of the longest gap */
    if (t->sparse) room = sizeof(struct tr_sparse_head) + sparse_room;
    TR_TRY(TR_GROW(&r->answer, &r->answer_room, room));
    r->got = t->route == TR_ROUTE_GET && t->window != MPI_WIN_NULL;
    if (r->got) {
        TR_FREED int *position = NULL;
        TR_TRY(TR_NEW(&position, r->n));
        for (uint32_t i = 0; i < r->n; i++) position[i] = (int)p->plan.position[r->ask[i].want];
        MPI_Datatype there = tr_type_of_units(t, r->n, NULL, position);
        MPI_Rget(r->answer + sizeof(struct tr_reply_head), (int)(r->n * t->unit_width),
                 tr_dtype_mpi(t->dtype), rank, 0, 1, there, t->window, &p->received[p->flying_n]);
        MPI_Type_free(&there);
    } else {
        struct tr_sending *m;
        TR_TRY(tr_message_new(tables, r->n * sizeof(tr_key), &m));
        m->header = (struct tr_message){.kind = TR_MESSAGE_ROWS,
                                        .table = t->index,
                                        .n = r->n,
                                        .flags = p->terms->exact ? TR_FLAG_EXACT : 0,
                                        .clock = (int64_t)sparse_room};
        size_t each = t->hash     ? sizeof(tr_key)
                      : t->sparse ? sizeof(struct tr_sparse_request)
                                  : sizeof(uint32_t);
        for (uint32_t i = 0; i < r->n; i++) {
            const struct pull_ask *ask = &r->ask[i];
            struct tr_sparse_request wish = {p->plan.position ? p->plan.position[ask->want] : 0, ask->from};
            tr_key key = p->keys[rows_place(p, ask->want)];
            memcpy(m->body + i * each, t->hash ? (void *)&key : (void *)&wish,
                   each); /* dense rows: a request has only the position */
        }
        tables->traffic.bytes_pulled += sizeof m->header + r->n * each;
        tr_message_ask(tables, m, r->n * each, rank, r->answer, room, &p->received[p->flying_n]);
    }
    p->flying[p->flying_n++] = r;
    s->under_way++;
    s->requests++;
    return TR_OK;
}

static int rows_ask_more(struct pull *p)
{
    uint32_t servers = p->table->partition.servers, first = (uint32_t)p->table->tr->rank;
    if (p->ahead == 0) {
        /* one request at a time, when no other row can be delivered */
        bool sent = p->flying_n > 0 || p->here || rows_next_near(p) < servers;
        for (uint32_t s = 0; s < servers && !sent; s++)
            if (!p->source[s].near) TR_TRY(request_one(p, s, &sent));
        return TR_OK;
    }
    for (uint32_t i = 0; i < servers; i++) {
        struct pull_source *s = &p->source[(first + i) % servers];
        bool sent = !s->near;
        while (sent && s->under_way < p->ahead && s->requests <= p->ahead)
            TR_TRY(request_one(p, (first + i) % servers, &sent));
    }
    return TR_OK;
}

/* ---- answers ---- */

/* Finds the values of a dense answer: in the answer or, if they are encoded, in *memory after decoding. */
static int answer_decode(const struct pull *p, const struct pull_request *r, char **memory, size_t *room,
                         const void **value)
{
    struct tr_slice slice = tr_slice_of(p->table, r->n);
    struct tr_encoded message;
    *value = r->answer + sizeof(struct tr_reply_head);
    if (r->got) return TR_OK;
    TR_TRY(tr_encoded_open(*value, r->head.bytes, &slice, &message));
    return tr_decode(&message, memory, room, value);
}

/* Opens an answer with dense rows: copies claimed units to the cache, for the other workers of the node. */
static int answer_open_dense(struct pull *p, struct pull_request *r)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    struct tr_reply_head head = {.bytes = (uint32_t)(r->n * t->unit_bytes)};
    const void *value = NULL;
    bool claimed = false;
    if (!r->got) memcpy(&head, r->answer, sizeof head);
    r->head = (struct tr_sparse_head){.bytes = head.bytes, .rows = r->n};
    t->tr->tables->traffic.bytes_pulled += sizeof head + head.bytes;
    for (uint32_t i = 0; i < r->n; i++) claimed = claimed || r->ask[i].claimed;
    if (!claimed) return TR_OK;
    int status = answer_decode(p, r, &rows->cached, &rows->cached_room, &value);
    for (uint32_t i = 0; i < r->n; i++)
        if (r->ask[i].claimed) {
            uint64_t unit = rows_unit(p, r->ask[i].want);
            if (status == TR_OK)
                memcpy(tr_cache_value(&rows->cache, unit), (const char *)value + i * t->unit_bytes,
                       t->unit_bytes);
            tr_cache_put(&rows->cache, unit, status == TR_OK);
        }
    return status;
}

/* Opens an answer with sparse rows: units that did not fit are requested again, the rest of a cut row first. */
static int answer_open_sparse(struct pull *p, struct pull_request *r)
{
    struct tr_table *t = p->table;
    struct pull_source *s = &p->source[r->server];
    memcpy(&r->head, r->answer, sizeof r->head);
    t->tr->tables->traffic.bytes_pulled += sizeof r->head + r->head.bytes;
    uint32_t rows = r->head.rows + r->head.cut;
    if (rows == 0 || rows > r->n)
        return tr_fail(TR_ERR_PEER, "table %s: an answer has %u rows of %u", t->name, rows, r->n);
    t->rows->row_bytes += ((double)r->head.bytes / rows - t->rows->row_bytes) / 2;
    for (uint32_t i = r->n; i-- > rows;) TR_TRY(rows_ask_again(s, r->ask[i]));
    r->n = rows;
    if (!r->head.cut) return TR_OK;
    return rows_ask_again(s, (struct pull_ask){.want = r->ask[rows - 1].want, .from = r->head.from});
}

/* Moves requests whose answer has arrived from `flying` to `here`. One MPI call tests all, since each call progresses MPI. */
static int rows_take_answers(struct pull *p, bool *did)
{
    int arrived = 0, status = TR_OK;
    if (p->flying_n == 0) return TR_OK;
    MPI_Testsome((int)p->flying_n, p->received, &arrived, p->arrived, MPI_STATUSES_IGNORE);
    for (int i = 0; i < arrived; i++) {
        struct pull_request *r = p->flying[p->arrived[i]];
        int opened = p->table->sparse ? answer_open_sparse(p, r) : answer_open_dense(p, r);
        if (status == TR_OK) status = opened;
        r->next = NULL;
        *p->here_end = r;
        p->here_end = &r->next;
        p->source[r->server].under_way--;
        *did = true;
    }
    size_t n = 0;
    for (size_t i = 0; i < p->flying_n && arrived > 0; i++) {
        if (p->received[i] == MPI_REQUEST_NULL) continue;
        p->received[n] = p->received[i];
        p->flying[n++] = p->flying[i];
    }
    if (arrived > 0) p->flying_n = n;
    return status;
}

/* ---- delivering rows ---- */

/* Starts a period that counts as time in row(), until rows_stop_computing(). */
static void rows_begin_computing(struct pull *p)
{
    tr_wait_end(p->table->tr->tables);
    p->computing_since = tr_now();
}

static void rows_stop_computing(struct pull *p)
{
    p->computed += tr_now() - p->computing_since;
    tr_wait_begin(p->table->tr->tables);
}

/* Polls between two rows, and sends further requests. */
static int rows_look_around(struct pull *p)
{
    int did = 0;
    rows_stop_computing(p);
    TR_TRY(tr_progress(p->table->tr, &did));
    if (p->ahead > 0) TR_TRY(rows_ask_more(p));
    rows_begin_computing(p);
    p->looked = p->computing_since;
    return TR_OK;
}

static int rows_deliver(struct pull *p, size_t place, size_t n, const uint32_t *column, const void *value)
{
    tr_row row = {.key = p->keys[place], .place = place, .n = n, .column = column, .value = value};
    p->left--;
    TR_TRY(p->row(p->state, &row));
    return tr_now() - p->looked > look_after ? rows_look_around(p) : TR_OK;
}

/* Delivers a unit of a dense table. If it is a piece of a row, delivers the row when its last piece has arrived. */
static int rows_deliver_unit(struct pull *p, uint32_t want, const void *value)
{
    const struct tr_table *t = p->table;
    size_t place = rows_place(p, want);
    if (t->pieces == 1) return rows_deliver(p, place, t->width, NULL, value);
    char *whole = p->whole + place % p->window * t->pieces * t->unit_bytes;
    memcpy(whole + p->plan.local[want] % t->pieces * t->unit_bytes, value, t->unit_bytes);
    if (--p->missing[place % p->window] > 0) return TR_OK;
    int status = rows_deliver(p, place, t->width, NULL, whole);
    for (; p->base < p->n && p->missing[p->base % p->window] == 0; p->base++)
        p->missing[p->base % p->window] = t->pieces;
    return status;
}

/* ---- sparse rows from answers ---- */

static struct pull_part **part_find(struct pull *p, uint32_t want)
{
    struct pull_part **link = &p->parts;
    while (*link && (*link)->want != want) link = &(*link)->next;
    return link;
}

static void part_free(struct pull_part **link)
{
    struct pull_part *part = *link;
    *link = part->next;
    TR_FREE_ALL(part->entry.column, part->entry.value, part);
}

static int rows_deliver_lists(struct pull *p, const struct pull_request *r)
{
    const struct tr_table *t = p->table;
    const unsigned char *at = (const unsigned char *)r->answer + sizeof r->head, *end = at + r->head.bytes;
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t want = r->ask[i].want;
        bool cut = i >= r->head.rows, partly = cut || r->ask[i].from > 0;
        struct tr_sparse_entries *entry = &t->rows->entry;
        if (partly) {
            struct pull_part **link = part_find(p, want);
            if (!*link) TR_TRY(TR_NEW(link, 1));
            (*link)->want = want;
            entry = &(*link)->entry;
        } else {
            entry->n = 0;
        }
        int status = tr_sparse_read(t->dtype == TR_F32, t->width, &at, end, entry);
        if (status == TR_ERR_PEER)
            return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
        TR_TRY(status);
        if (cut) continue;
        status = rows_deliver(p, rows_place(p, want), entry->n, entry->column, entry->value);
        if (partly) part_free(part_find(p, want));
        TR_TRY(status);
    }
    return TR_OK;
}

/* ---- from memory of this rank or its node ---- */

/* Delivers a row that this rank reads directly. */
static int rows_deliver_near(struct pull *p, uint32_t server, uint32_t want)
{
    struct tr_table *t = p->table;
    uint32_t position = p->plan.position[want];
    if (t->sparse) {
        struct tr_sparse_entries *copy = &t->rows->entry;
        const struct tr_sparse_row *row = &t->sparse_share->row[position];
        size_t place = rows_place(p, want), bytes = row->n * sizeof *row->column;
        if (p->terms->still && row->n > 0)
            return rows_deliver(p, place, row->n, row->column, tr_sparse_values(row));
        copy->n = 0;
        TR_TRY(tr_sparse_reserve(copy, row->n));
        if (row->n > 0) memcpy(copy->column, row->column, bytes);
        if (row->n > 0) memcpy(copy->value, tr_sparse_values(row), bytes);
        return rows_deliver(p, place, row->n, copy->column, copy->value);
    }
    const char *value = (const char *)t->share[server] + position * t->unit_bytes;
    t->tr->tables->traffic.bytes_pulled += t->unit_bytes;
    if (p->terms->still) return rows_deliver_unit(p, want, value);
    tr_share_copy(t, server, position, p->scratch);
    return rows_deliver_unit(p, want, p->scratch);
}

/* ---- rows from answers and from the cache ---- */

/* Delivers the rows of the next answer. */
static int rows_deliver_answer(struct pull *p)
{
    struct tr_rows *rows = p->table->rows;
    struct pull_request *r = p->here;
    const void *value;
    p->here = r->next;
    if (!p->here) p->here_end = &p->here;
    int status = p->table->sparse ? rows_deliver_lists(p, r)
                                  : answer_decode(p, r, &rows->decoded, &rows->decoded_room, &value);
    for (uint32_t i = 0; !p->table->sparse && i < r->n && status == TR_OK; i++)
        status = rows_deliver_unit(p, r->ask[i].want, (const char *)value + i * p->table->unit_bytes);
    p->source[r->server].requests--;
    r->next = rows->spare; /* keeps the memory of the request for later requests */
    rows->spare = r;
    return status;
}

/* Delivers a unit that another worker of the node fetches or has fetched, if it is in the cache. If the cache does not have the
 * unit and no worker fetches it, requests the unit. */
static int rows_deliver_cached(struct pull *p, uint32_t want, bool *did)
{
    uint32_t server = 0;
    uint64_t unit = rows_unit(p, want);
    enum tr_cache_state state = tr_cache_take(p->cache, unit, &p->cache_terms, NULL);
    *did = *did || state != TR_CACHE_COMING;
    if (state == TR_CACHE_HERE) {
        int status = rows_deliver_unit(p, want, tr_cache_value(p->cache, unit));
        tr_cache_give_back(p->cache, unit);
        return status;
    }
    if (state == TR_CACHE_COMING) {
        p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->plan.units] = want;
        return TR_OK;
    }
    while (want >= p->source[server].end) server++; /* a server's units have consecutive indices */
    return rows_ask_again(&p->source[server], (struct pull_ask){.want = want});
}

/* Delivers rows while no answer has arrived: first subscribed rows, then units that other workers of the node fetch (trying each
 * once), then rows that this rank reads directly. If there is a subscription, rows that this rank reads directly wait for all
 * updates of clocks < least. */
static int rows_deliver_others(struct pull *p, bool *did)
{
    const struct tr_table *t = p->table;
    uint32_t servers = t->partition.servers, server;
    struct tr_subscribed rows;
    if (p->terms->subscribed && tr_subscription_take(t->subscription, &rows)) {
        *did = true;
        for (size_t i = 0; i < rows.n; i++)
            TR_TRY(rows_deliver(p, rows.place[i], t->width, NULL, rows.value + rows.slot[i] * t->unit_bytes));
    }
    for (size_t left = p->elsewhere_n; left > 0 && !p->here; left--) {
        uint32_t want = p->elsewhere[p->elsewhere_first];
        p->elsewhere_first = (p->elsewhere_first + 1) % p->plan.units;
        p->elsewhere_n--;
        TR_TRY(rows_deliver_cached(p, want, did));
    }
    if (p->terms->subscribed && t->tr->tables->written < p->terms->least) return TR_OK;
    while (!p->here && (server = rows_next_near(p)) < servers) {
        struct pull_source *source = &p->source[server];
        *did = true;
        while (!p->here && rows_may_begin(p, source)) TR_TRY(rows_deliver_near(p, server, source->next++));
    }
    return TR_OK;
}

static int rows_deliver_all(struct pull *p)
{
    tr_context *tr = p->table->tr;
    struct tr_waiting waiting = tr_waiting_begin();
    while (p->left > 0) {
        bool did = false;
        TR_TRY(rows_take_answers(p, &did));
        TR_TRY(rows_ask_more(p));
        rows_begin_computing(p);
        did = did || p->here;
        int status = p->here ? rows_deliver_answer(p) : rows_deliver_others(p, &did);
        rows_stop_computing(p);
        TR_TRY(status);
        if (did) waiting = tr_waiting_begin();
        else
            TR_TRY(tr_waiting_turn(tr, &waiting, "the servers of table %s to send %zu rows", p->table->name,
                                   p->left));
    }
    return TR_OK;
}

/* ---- pulling ---- */

/* After a failure: receives all answers, because other workers of the node may wait for claimed units. Returns the failure. */
static int rows_wait_for_answers(struct pull *p, int status)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tr_error_text());
    TR_WAIT_UNTIL(p->table->tr, p->flying_n == 0, "the servers of table %s to send rows", p->table->name);
    return tr_fail(status, "%s", text);
}

static int rows_open_pull(struct pull *p)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    const tr_job *job = t->tr->job;
    uint32_t servers = t->partition.servers;
    bool subscribed = p->terms->subscribed;
    TR_FREED bool *skip = NULL;
    p->ahead = job ? job->table.ahead : AHEAD;
    p->row_bytes = job ? job->table.row_bytes : ROW_BYTES;
    p->here_end = &p->here;
    p->left = p->n;
    p->looked = tr_now();
    if (subscribed) tr_subscription_begin(t->subscription);
    TR_TRY(TR_NEW(&p->source, servers));
    for (uint32_t s = 0; s < servers; s++)
        p->source[s].near = t->sparse
                                ? (int)s == t->server
                                : t->share[s] && (t->route == TR_ROUTE_AUTO || t->route == TR_ROUTE_LOAD);
    /* subscribed rows of other nodes arrive with merges, so they are not in the plan */
    if (subscribed) TR_TRY(TR_NEW(&skip, servers));
    for (uint32_t s = 0; skip && s < servers; s++) skip[s] = !p->source[s].near;
    TR_TRY(tr_plan_make(t, p->keys, p->n, TR_PLAN_LISTED, skip, &p->plan));
    for (uint32_t s = 0, first = 0; s < servers; s++) {
        p->source[s].next = first;
        p->source[s].end = first += p->plan.segment[s].n;
    }
    size_t bytes = t->pieces * t->unit_bytes, requests = p->ahead > 0 ? p->ahead * servers : 1;
    TR_TRY(TR_NEW(&p->scratch, t->sparse ? 0 : bytes));
    if (t->pieces > 1) {
        p->window = tr_max_size(2, (p->ahead + 1) * p->row_bytes / bytes * servers);
        if (p->window > p->n) p->window = p->n;
        TR_TRY(TR_NEW(&p->whole, p->window * bytes));
        TR_TRY(TR_NEW(&p->missing, p->window));
        for (size_t i = 0; i < p->window; i++) p->missing[i] = t->pieces;
    }
    TR_TRY(TR_NEW(&p->flying, requests));
    TR_TRY(TR_NEW(&p->received, requests));
    TR_TRY(TR_NEW(&p->arrived, requests));
    if (!p->terms->shared || !rows->cache.head) return TR_OK;
    p->cache = &rows->cache;
    p->cache_terms = (struct tr_cache_terms){t->lockstep, p->terms->least, rows->after};
    if (!t->lockstep) p->cache_terms.after = tr_max_size(rows->after, rows->pulled);
    rows->pulled = tr_cache_number(p->cache);
    return TR_NEW(&p->elsewhere, p->plan.units);
}

int tr_rows_move(struct tr_table *t, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed)
{
    struct pull p = {.table = t, .terms = terms, .keys = keys, .n = n, .row = row, .state = state};
    struct tr_rows *rows = t->rows;
    *computed = 0;
    if (rows->pull)
        return tr_fail(TR_ERR_INTERNAL, "rows of table %s are pulled while rows of it are handed over",
                       t->name);
    if (t->rests)
        return tr_fail(TR_ERR_INTERNAL, "table %s: rows are pulled while it rests (tr_table_rest())",
                       t->name);
    if (tr_table_keeps_versions(t))
        return tr_fail(TR_ERR_INTERNAL, "table %s keeps versions: it is read through views", t->name);
    if (n * t->pieces > UINT32_MAX)
        return tr_fail(TR_ERR_INTERNAL, "table %s: %zu rows of %u pieces are too many for one pull", t->name,
                       n, t->pieces);
    for (size_t i = 0; i < n; i++)
        if (keys[i] >= t->keys)
            return tr_fail(TR_ERR_INTERNAL, "table %s: row %llu is pulled, but there are %llu", t->name,
                           (unsigned long long)keys[i], (unsigned long long)t->keys);
    if (!t->lockstep) {
        for (uint32_t s = 0; t->rows->push && s < t->partition.servers; s++)
            if (t->rows->push[s].open) TR_TRY(row_push_send(t, s, 0));
    }
    t->tr->tables->traffic.pulls++;
    rows->pull = &p;
    tr_way_begin(t->tr->tables);
    int status = rows_open_pull(&p);
    if (status == TR_OK) status = rows_deliver_all(&p);
    if (status != TR_OK && p.flying_n > 0) status = rows_wait_for_answers(&p, status);
    *computed = p.computed;
    tr_way_end(t->tr->tables);
    for (struct pull_request *r; (r = p.here);) {
        p.here = r->next;
        r->next = rows->spare;
        rows->spare = r;
    }
    while (p.parts) part_free(&p.parts);
    for (uint32_t s = 0; p.source && s < t->partition.servers; s++) free(p.source[s].again);
    tr_plan_free(&p.plan);
    TR_FREE_ALL(p.source, p.elsewhere, p.flying, p.received, p.arrived, p.missing, p.whole, p.scratch);
    rows->pull = NULL;
    return status;
}

int tr_rows_meanwhile(tr_table *t)
{
    int did = 0;
    if (t->rows->pull) return rows_look_around(t->rows->pull);
    return tr_progress(t->tr, &did);
}

/* Receives answers whenever this rank polls, because other workers of the node may wait for units that it has claimed. */
int tr_rows_poll(void *what, int *did)
{
    struct tr_tables *tables = what;
    bool moved = false;
    for (size_t i = 0; i < tables->count; i++) {
        struct pull *pull = tables->table[i]->rows->pull;
        if (pull) TR_TRY(rows_take_answers(pull, &moved));
    }
    *did += moved;
    return TR_OK;
}

size_t tr_rows_memory(const struct tr_table *t)
{
    size_t bytes = t->rows->decoded_room + t->rows->cached_room;
    for (const struct pull_request *r = t->rows->spare; r; r = r->next) bytes += r->answer_room;
    return bytes;
}

/* ---- stages ---- */

void tr_rows_pushed(struct tr_table *t)
{
    /* in lockstep `after` is not used: the number `holds` of a fetch says which updates it contains */
    if (!t->rows || !t->rows->cache.head || t->lockstep) return;
    t->rows->after = tr_cache_number(&t->rows->cache);
}

int tr_rows_begin(struct tr_table *t)
{
    /* MOST: maximum bytes of a cache; FEWEST: minimum entries; LEAST_UNIT: minimum bytes of a unit */
    enum { MOST = 1 << 26, FEWEST = 16, LEAST_UNIT = 32 };
    tr_context *tr = t->tr;
    const tr_job *job = tr->job;
    struct tr_rows *rows = t->rows;
    int workers = 0, servers = 0; /* number of workers on this node, and of servers on other nodes */
    bool first = !rows->looked_for_cache, pays = !t->sparse && t->unit_bytes >= LEAST_UNIT && t->width > 1;
    rows->looked_for_cache = true;
    for (int w = 0; w < tr_worker_set_size(tr->active); w++)
        workers += tr_same_node(tr, tr_worker_rank(tr, tr->active, w));
    for (uint32_t s = 0; s < t->partition.servers; s++)
        servers += !tr_same_node(tr, tr_table_server_rank(t, s));
    if (first && pays && workers > 1 && servers > 0 && (!job || job->table.share_pulls)) {
        /* The cache has room for four times the rows that all workers of the node have in flight, so that slower workers still find
         * rows. If there is no memory for it, each worker fetches for itself. */
        uint64_t ahead = job ? job->table.ahead : AHEAD, row_bytes = job ? job->table.row_bytes : ROW_BYTES;
        uint64_t bytes =
            4 * (uint64_t)(workers * servers) * (ahead + 1) * tr_max_size(row_bytes, t->unit_bytes);
        uint64_t entries = tr_max_size(tr_min_size(bytes, MOST) / t->unit_bytes, FEWEST);
        entries = tr_min_size(entries, t->keys * t->pieces);
        size_t mine = tr->node_rank == 0 ? tr_cache_bytes(entries, t->unit_bytes) : 0;
        if (tr_shm_open(tr, tr->node, mine, false, &rows->cache_memory) == TR_OK) {
            rows->cache = tr_cache_at(rows->cache_memory.part[0].at, entries, t->unit_bytes);
            /* no rank uses the cache before all have opened it */
            tr_meet(tr, tr->node, "the ranks of this node to open a cache of rows");
        }
    }
    rows->after = rows->pulled = rows->cache.head ? tr_cache_number(&rows->cache) : 0;
    return TR_OK;
}

void tr_rows_free(struct tr_table *t)
{
    struct tr_rows *rows = t->rows;
    if (!rows) return;
    for (uint32_t s = 0; rows->push && s < t->partition.servers; s++) {
        if (rows->push[s].open) tr_message_release(t->tr->tables, rows->push[s].open);
        tr_message_orphan(t->tr->tables, &rows->push[s].sending);
    }
    free(rows->push);
    rows->push = NULL;
    while (rows->spare) {
        struct pull_request *r = rows->spare;
        rows->spare = r->next;
        TR_FREE_ALL(r->ask, r->answer, r);
    }
    tr_shm_close(&rows->cache_memory);
    TR_FREE_ALL(rows->decoded, rows->cached, rows->entry.column, rows->entry.value, rows);
    t->rows = NULL;
}

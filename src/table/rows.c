#include "table/rows.h"

#include <stdlib.h>
#include <string.h>

#include "table/shelf.h"

/* What the job may leave open where there is none. */
enum { AHEAD = 4, ROW_BYTES = 1 << 18 };
enum { SHELF_MOST = 1 << 26, SHELF_LEAST_UNIT = 32 }; /* bytes */

/* Seconds between two looks at what has arrived: the shorter after one that found something. A look lets MPI work, and
 * where there are more ranks than cores gives the core away. */
static const double look_soon = 100e-6, look_late = 400e-6;

/* One unit that is asked for. */
struct ask {
    uint32_t want; /* number in the list of wants */
    uint32_t from; /* sparse: a part of the row has come, the rest begins at this column */
    bool claimed;  /* its place on the shelf */
};

/* A request, and its answer. */
struct request {
    struct request *next;
    MPI_Request sent;
    uint32_t server;
    uint32_t n;
    struct ask *ask;
    char *question, *answer;
    size_t ask_room, question_room, answer_room;
    struct tr_sparse_head head;
};

/* A unit of the list, by server in the order of the list. */
struct want {
    uint32_t position; /* at its server */
    uint32_t unit;     /* number of its row in the list × pieces + piece */
};

/* What is wanted from one server. */
struct source {
    bool near;          /* this rank reads it directly */
    uint32_t next, end; /* wants that have not been looked at */
    struct ask *again;  /* to be asked for before them */
    size_t agains, room;
    uint64_t under_way, requests; /* of all requests, those without an answer */
};

/* The first part of a sparse row. */
struct part {
    struct part *next;
    uint32_t want, n;
    uint32_t *column, *value;
    size_t column_room, value_room;
};

/* A pull under way. */
struct pull {
    struct tr_table *table;
    const struct tr_rows_terms *terms;
    struct tr_shelf_terms shelf;
    const tr_key *keys;
    tr_row_fn *row;
    void *state;
    size_t n, left; /* rows */
    struct want *want;
    struct source *source; /* by server */
    uint32_t *elsewhere; /* wants that other workers of the node fetch or have fetched: a ring of all wants */
    size_t wants, elsewhere_first, elsewhere_n;
    struct request *here, **here_end; /* answered */
    struct request **flying;          /* not answered … */
    MPI_Request *received;            /* … and what would tell */
    int *arrived;                     /* numbers among them */
    size_t flying_n, flying_room, received_room, arrived_room;
    uint64_t ahead, row_bytes;
    struct part *parts;
    double computed;        /* seconds, before … */
    double computing_since; /* … row() was called in turn, as it is now */
    double looked;          /* when messages were looked after last … */
    double look_after;      /* … and after how long again */
    double clock_read;
    size_t group, until_clock; /* rows between two looks at the clock, and before the next */

    /* rows of several pieces */
    size_t base, window; /* rows below base are complete; those from base + window on are not begun */
    uint32_t *missing;   /* by row % window: pieces */
    char *whole;         /* … and their values */
    char *scratch;       /* one row */
};

struct tr_rows {
    struct pull *pull; /* NULL: none */
    struct request *spare;
    double row_bytes;         /* sparse: in messages, lately */
    uint32_t *column, *value; /* sparse: one row */
    size_t column_room, value_room;
    char *decoded, *shelved; /* dense: one answer that is handed over, and one that goes to the shelf */
    size_t decoded_room, shelved_room;

    struct tr_shelf *shelf; /* NULL: nothing is shared */
    bool looked_for_shelf;
    uint64_t after, pulled; /* fetches before lack own updates; the latest when the last pull began */
};

int tr_rows_open(struct tr_table *t)
{
    TR_TRY(TR_NEW(&t->rows, 1));
    t->rows->row_bytes = 64;
    return TR_OK;
}

/* ---- what is wanted ---- */

static bool is_near(const struct tr_table *t, uint32_t server)
{
    if (t->sparse) return (int)server == t->server;
    return t->share[server] && (t->route == TR_ROUTE_AUTO || t->route == TR_ROUTE_LOAD);
}

static int check_pull(const struct tr_table *t, const tr_key *keys, size_t n)
{
    if (t->use && t->use->function.read)
        return tr_fail(TR_ERR_INTERNAL, "table %s keeps versions: it is read through views", t->name);
    if (n * t->pieces > UINT32_MAX)
        return tr_fail(TR_ERR_INTERNAL, "table %s: %zu rows of %u pieces are too many for one pull", t->name,
                       n, t->pieces);
    for (size_t i = 0; i < n; i++)
        if (keys[i] >= t->keys)
            return tr_fail(TR_ERR_INTERNAL, "table %s: row %llu is pulled, but there are %llu", t->name,
                           (unsigned long long)keys[i], (unsigned long long)t->keys);
    return TR_OK;
}

/* Splits the list by server, in two passes: count, then fill. Hash storage has one piece a row, and no positions. */
static int split(struct pull *p)
{
    struct tr_table *t = p->table;
    uint32_t servers = t->partition.servers;
    struct tr_walker walker = {.partition = &t->partition};
    p->wants = p->n * t->pieces;
    TR_TRY(TR_NEW(&p->want, p->wants));
    TR_TRY(TR_NEW(&p->source, servers));
    for (uint64_t piece = 0; piece < t->pieces; piece++)
        for (size_t i = 0; i < p->n; i++)
            p->source[tr_walk_to(&walker, piece * t->keys + p->keys[i]).server].end++;
    for (uint32_t s = 0, at = 0; s < servers; s++) {
        p->source[s].near = is_near(t, s);
        p->source[s].next = at;
        at += p->source[s].end;
        p->source[s].end = p->source[s].next;
    }
    for (size_t i = 0; i < p->n; i++) /* all pieces of a row, then the next row: see `window` */
        for (uint32_t piece = 0; piece < t->pieces; piece++) {
            struct tr_location at = tr_walk_to(&walker, (uint64_t)piece * t->keys + p->keys[i]);
            p->want[p->source[at.server].end++] =
                (struct want){at.position, (uint32_t)(i * t->pieces + piece)};
        }
    return TR_OK;
}

static size_t row_of(const struct pull *p, uint32_t want)
{
    return p->want[want].unit / p->table->pieces;
}

static uint64_t unit_of(const struct pull *p, uint32_t want)
{
    const struct tr_table *t = p->table;
    return p->want[want].unit % t->pieces * t->keys + p->keys[row_of(p, want)];
}

/* Rows of several pieces are put together in memory for so many rows. */
static int open_window(struct pull *p)
{
    const struct tr_table *t = p->table;
    size_t bytes = t->pieces * t->unit_bytes;
    TR_TRY(TR_NEW(&p->scratch, t->sparse ? 0 : bytes));
    if (t->pieces == 1) return TR_OK;
    p->window = tr_max_size(2, (p->ahead + 1) * p->row_bytes / bytes * t->partition.servers);
    if (p->window > p->n) p->window = p->n;
    TR_TRY(TR_NEW(&p->whole, p->window * bytes));
    TR_TRY(TR_NEW(&p->missing, p->window));
    for (size_t i = 0; i < p->window; i++) p->missing[i] = t->pieces;
    return TR_OK;
}

/* Whether the next want of a source may be begun. */
static bool may_begin(const struct pull *p, const struct source *s)
{
    return s->next < s->end && (p->table->pieces == 1 || row_of(p, s->next) < p->base + p->window);
}

/* ---- handing over ---- */

static int look_around(struct pull *p);

/* Reading the clock takes as long as a small row does: after how many rows next, so that looks are in time. */
static int read_clock(struct pull *p)
{
    enum { ROWS_MOST = 16 };
    double now = tr_now(), since_look = now - p->looked;
    bool fast = (now - p->clock_read) * 4 < look_soon;
    p->group = fast ? tr_min_size(2 * p->group, ROWS_MOST) : tr_max_size(p->group / 2, 1);
    p->until_clock = p->group;
    p->clock_read = now;
    return since_look > p->look_after ? look_around(p) : TR_OK;
}

static int hand_over(struct pull *p, size_t place, size_t n, const uint32_t *column, const void *value)
{
    tr_row row = {.key = p->keys[place], .place = place, .n = n, .column = column, .value = value};
    p->left--;
    TR_TRY(p->row(p->state, &row));
    return --p->until_clock == 0 ? read_clock(p) : TR_OK;
}

/* From here on, until it stops, time is that of row(). */
static void begin_computing(struct pull *p)
{
    p->computing_since = tr_now();
}

static void stop_computing(struct pull *p)
{
    p->computed += tr_now() - p->computing_since;
}

/* One unit of a dense table: a row, or a piece of one. */
static int hand_over_unit(struct pull *p, uint32_t want, const void *value)
{
    const struct tr_table *t = p->table;
    size_t place = row_of(p, want);
    if (t->pieces == 1) return hand_over(p, place, t->width, NULL, value);
    char *whole = p->whole + place % p->window * t->pieces * t->unit_bytes;
    memcpy(whole + p->want[want].unit % t->pieces * t->unit_bytes, value, t->unit_bytes);
    if (--p->missing[place % p->window] > 0) return TR_OK;
    int status = hand_over(p, place, t->width, NULL, whole);
    for (; p->base < p->n && p->missing[p->base % p->window] == 0; p->base++)
        p->missing[p->base % p->window] = t->pieces;
    return status;
}

/* ---- from memory of this rank or its node ---- */

static int hand_over_own_list(struct pull *p, uint32_t want)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    const struct tr_sparse_row *row = &t->sparse_share->row[p->want[want].position];
    size_t place = row_of(p, want);
    if (row->n == 0) return hand_over(p, place, 0, rows->column, rows->value);
    if (p->terms->still) return hand_over(p, place, row->n, row->column, tr_sparse_values(row));
    TR_TRY(TR_GROW(&rows->column, &rows->column_room, row->n));
    TR_TRY(TR_GROW(&rows->value, &rows->value_room, row->n));
    memcpy(rows->column, row->column, row->n * sizeof *row->column);
    memcpy(rows->value, tr_sparse_values(row), row->n * sizeof *row->column);
    return hand_over(p, place, row->n, rows->column, rows->value);
}

static int hand_over_near(struct pull *p, uint32_t server, uint32_t want)
{
    struct tr_table *t = p->table;
    if (t->sparse) return hand_over_own_list(p, want);
    uint32_t position = p->want[want].position;
    const char *value = (const char *)t->share[server] + position * t->unit_bytes;
    t->tr->tables->traffic.bytes_pulled += t->unit_bytes;
    if (p->terms->still) return hand_over_unit(p, want, value);
    tr_locked_copy(t, server, position, p->scratch);
    return hand_over_unit(p, want, p->scratch);
}

static uint32_t next_near_source(const struct pull *p)
{
    uint32_t servers = p->table->partition.servers, s = 0;
    while (s < servers && !(p->source[s].near && may_begin(p, &p->source[s]))) s++;
    return s;
}

/* Until an answer has come, or there are no more of them. */
static int hand_over_near_rows(struct pull *p, bool *did)
{
    uint32_t servers = p->table->partition.servers, s;
    while (!p->here && (s = next_near_source(p)) < servers) {
        struct source *source = &p->source[s];
        *did = true;
        while (!p->here && may_begin(p, source)) TR_TRY(hand_over_near(p, s, source->next++));
    }
    return TR_OK;
}

/* ---- asking ---- */

static struct tr_shelf *shelf_of(const struct pull *p)
{
    return p->terms->shared ? p->table->rows->shelf : NULL;
}

static int new_request(struct pull *p, uint32_t server, struct request **request)
{
    struct tr_rows *rows = p->table->rows;
    struct request *r = rows->spare;
    if (r) rows->spare = r->next;
    else TR_TRY(TR_NEW(&r, 1));
    r->sent = MPI_REQUEST_NULL;
    r->server = server;
    r->n = 0;
    *request = r;
    return TR_OK;
}

static void put_back(struct tr_rows *rows, struct request *r)
{
    r->next = rows->spare;
    rows->spare = r;
}

static int ask_again(struct source *s, struct ask ask)
{
    TR_TRY(TR_GROW(&s->again, &s->room, s->agains + 1));
    s->again[s->agains++] = ask;
    return TR_OK;
}

/* The next unit to be asked for; false: there is none. What others of the node fetch is put aside. */
static bool choose(struct pull *p, struct source *s, struct ask *ask)
{
    struct tr_shelf *shelf = shelf_of(p);
    while (s->agains > 0 || may_begin(p, s)) {
        *ask = s->agains > 0 ? s->again[--s->agains] : (struct ask){.want = s->next++};
        if (!shelf) return true;
        switch (tr_shelf_claim(shelf, unit_of(p, ask->want), &p->shelf, p->terms->holds)) {
        case TR_SHELF_CLAIMED: ask->claimed = true; return true;
        case TR_SHELF_NONE: ask->claimed = false; return true;
        case TR_SHELF_HERE:
        case TR_SHELF_COMING: p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->wants] = ask->want;
        }
    }
    return false;
}

/* How many rows of a sparse table fill an answer is a guess. */
static size_t most_of_request(const struct pull *p)
{
    const struct tr_table *t = p->table;
    double rows = (double)p->row_bytes / t->rows->row_bytes;
    size_t most = t->sparse ? (size_t)rows : p->row_bytes / t->unit_bytes;
    return tr_max_size(1, tr_min_size(most, p->row_bytes / sizeof(struct tr_sparse_wish)));
}

static size_t sparse_room(const struct pull *p)
{
    return tr_max_size(p->row_bytes, TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST);
}

/* Bytes of the answer at most. */
static size_t answer_room(const struct pull *p, const struct request *r)
{
    const struct tr_table *t = p->table;
    enum { PLACE = 5, HEADS = sizeof(struct tr_reply_head) + TR_ENCODING_HEADER + sizeof(uint64_t) };
    if (t->sparse) return sizeof(struct tr_sparse_head) + sparse_room(p);
    return HEADS + r->n * (t->unit_bytes + PLACE); /* a gap is longer than a bit */
}

static char *write_ask(const struct pull *p, const struct ask *ask, char *out)
{
    const struct tr_table *t = p->table;
    struct tr_sparse_wish wish = {p->want[ask->want].position, ask->from};
    tr_key key = p->keys[row_of(p, ask->want)];
    const void *from = t->hash ? (void *)&key : (void *)&wish; /* which begins with the position */
    size_t bytes = t->hash ? sizeof key : t->sparse ? sizeof wish : sizeof wish.position;
    memcpy(out, from, bytes);
    return out + bytes;
}

static int send_request(struct pull *p, struct request *r)
{
    struct tr_table *t = p->table;
    tr_context *tr = t->tr;
    int rank = tr_table_server_rank(t, r->server);
    struct tr_message m = {.kind = TR_MESSAGE_ROWS,
                           .table = t->index,
                           .n = r->n,
                           .flags = p->terms->exact ? TR_FLAG_EXACT : 0,
                           .clock = (int64_t)sparse_room(p),
                           .reply = tr_request_number(tr->tables)};
    size_t room = answer_room(p, r);
    TR_TRY(TR_GROW(&r->question, &r->question_room, sizeof m + r->n * sizeof(tr_key)));
    TR_TRY(TR_GROW(&r->answer, &r->answer_room, room));
    TR_TRY(TR_GROW(&p->flying, &p->flying_room, p->flying_n + 1));
    TR_TRY(TR_GROW(&p->received, &p->received_room, p->flying_n + 1));
    TR_TRY(TR_GROW(&p->arrived, &p->arrived_room, p->flying_n + 1));
    memcpy(r->question, &m, sizeof m);
    char *end = r->question + sizeof m;
    for (uint32_t i = 0; i < r->n; i++) end = write_ask(p, &r->ask[i], end);
    MPI_Irecv(r->answer, (int)room, MPI_BYTE, rank, TR_TAG_REPLY + (int)m.reply, tr->wire,
              &p->received[p->flying_n]);
    MPI_Isend(r->question, (int)(end - r->question), MPI_BYTE, rank, TR_TAG_SERVER, tr->wire, &r->sent);
    p->flying[p->flying_n++] = r;
    p->source[r->server].under_way++;
    p->source[r->server].requests++;
    tr->tables->traffic.messages++;
    tr->tables->traffic.bytes_pulled += (size_t)(end - r->question);
    return TR_OK;
}

/* Sends one request to a server; *sent false: there is nothing to ask for. */
static int ask(struct pull *p, uint32_t server, bool *sent)
{
    struct source *s = &p->source[server];
    struct request *r;
    *sent = false;
    if (s->agains == 0 && !may_begin(p, s)) return TR_OK;
    TR_TRY(new_request(p, server, &r));
    size_t most = most_of_request(p);
    TR_TRY(TR_GROW(&r->ask, &r->ask_room, most));
    while (r->n < most && choose(p, s, &r->ask[r->n])) r->n++;
    *sent = r->n > 0;
    if (*sent) return send_request(p, r);
    put_back(p->table->rows, r);
    return TR_OK;
}

/* Without any ahead, nothing is under way while there is something to compute. */
static int ask_one(struct pull *p)
{
    bool sent = p->flying_n > 0 || p->here || next_near_source(p) < p->table->partition.servers;
    for (uint32_t s = 0; s < p->table->partition.servers && !sent; s++)
        if (!p->source[s].near) TR_TRY(ask(p, s, &sent));
    return TR_OK;
}

/* Sends as many requests as may be under way, to the servers in turn; this rank's neighbours begin with others. */
static int ask_more(struct pull *p)
{
    uint32_t servers = p->table->partition.servers, first = (uint32_t)p->table->tr->rank;
    if (p->ahead == 0) return ask_one(p);
    for (uint32_t i = 0; i < servers; i++) {
        struct source *s = &p->source[(first + i) % servers];
        bool sent = !s->near;
        while (sent && s->under_way < p->ahead && s->requests <= p->ahead)
            TR_TRY(ask(p, (first + i) % servers, &sent));
    }
    return TR_OK;
}

/* ---- answers ---- */

/* The values of an answer, packed: where they lie, or decoded into memory for one answer. */
static int decode(const struct pull *p, const struct request *r, char **memory, size_t *room,
                  const char **value)
{
    const struct tr_table *t = p->table;
    struct tr_slice slice = tr_slice_of(t, r->n);
    struct tr_encoded message;
    TR_TRY(tr_encoded_open(r->answer + sizeof(struct tr_reply_head), r->head.bytes, &slice, &message));
    *value = message.value;
    if (message.encoding == TR_ENCODING_DENSE && message.precision == TR_PRECISION_FULL) return TR_OK;
    TR_TRY(TR_GROW(memory, room, r->n * t->unit_bytes));
    *value = *memory;
    return tr_decode_packed(&message, *memory);
}

/* What was claimed on the shelf can be taken from there from now on. */
static int open_dense_answer(struct pull *p, struct request *r)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    struct tr_reply_head head;
    const char *value = NULL;
    bool claimed = false;
    memcpy(&head, r->answer, sizeof head);
    r->head = (struct tr_sparse_head){.bytes = head.bytes, .rows = r->n};
    t->tr->tables->traffic.bytes_pulled += sizeof head + head.bytes;
    for (uint32_t i = 0; i < r->n; i++) claimed = claimed || r->ask[i].claimed;
    if (!claimed) return TR_OK;
    int status = decode(p, r, &rows->shelved, &rows->shelved_room, &value);
    for (uint32_t i = 0; i < r->n; i++)
        if (r->ask[i].claimed)
            tr_shelf_put(rows->shelf, unit_of(p, r->ask[i].want),
                         status == TR_OK ? value + i * t->unit_bytes : NULL);
    return status;
}

/* What the server did not get to is asked for again, the rest of a row first. */
static int open_sparse_answer(struct pull *p, struct request *r)
{
    struct tr_table *t = p->table;
    struct source *s = &p->source[r->server];
    memcpy(&r->head, r->answer, sizeof r->head);
    t->tr->tables->traffic.bytes_pulled += sizeof r->head + r->head.bytes;
    uint32_t rows = r->head.rows + r->head.cut;
    if (rows == 0 || rows > r->n)
        return tr_fail(TR_ERR_PEER, "table %s: an answer has %u rows of %u", t->name, rows, r->n);
    t->rows->row_bytes += ((double)r->head.bytes / rows - t->rows->row_bytes) / 2;
    for (uint32_t i = r->n; i-- > rows;) TR_TRY(ask_again(s, r->ask[i]));
    r->n = rows;
    if (!r->head.cut) return TR_OK;
    return ask_again(s, (struct ask){.want = r->ask[rows - 1].want, .from = r->head.from});
}

static int take_answer(struct pull *p, struct request *r)
{
    int status = p->table->sparse ? open_sparse_answer(p, r) : open_dense_answer(p, r);
    r->next = NULL;
    *p->here_end = r;
    p->here_end = &r->next;
    p->source[r->server].under_way--;
    return status;
}

/* Looks once for all, since each look lets MPI work. That the question has left is sure when its answer is here. */
static int take_answers(struct pull *p, bool *did)
{
    int arrived = 0, status = TR_OK;
    if (p->flying_n == 0) return TR_OK;
    MPI_Testsome((int)p->flying_n, p->received, &arrived, p->arrived, MPI_STATUSES_IGNORE);
    for (int i = 0; i < arrived; i++) {
        struct request *r = p->flying[p->arrived[i]];
        MPI_Wait(&r->sent, MPI_STATUS_IGNORE);
        int taken = take_answer(p, r);
        if (status == TR_OK) status = taken;
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

/* Between two rows. */
static int look_around(struct pull *p)
{
    int did = 0;
    stop_computing(p);
    p->looked = tr_now();
    TR_TRY(tr_progress(p->table->tr, &did));
    p->look_after = did > 0 ? look_soon : look_late;
    if (p->ahead > 0) TR_TRY(ask_more(p));
    begin_computing(p);
    p->looked = p->clock_read = p->computing_since;
    return TR_OK;
}

/* ---- sparse rows out of answers ---- */

static struct part **find_part(struct pull *p, uint32_t want)
{
    struct part **link = &p->parts;
    while (*link && (*link)->want != want) link = &(*link)->next;
    return link;
}

static void free_part(struct part **link)
{
    struct part *part = *link;
    *link = part->next;
    free(part->column);
    free(part->value);
    free(part);
}

/* Reads the next row of an answer behind what has come of it before. */
static int read_part(struct pull *p, uint32_t want, uint32_t n, const unsigned char **at,
                     const unsigned char *end, struct part **part)
{
    const struct tr_table *t = p->table;
    struct part **link = find_part(p, want), *q = *link;
    if (!q) {
        TR_TRY(TR_NEW(&q, 1));
        q->want = want;
        *link = q;
    }
    TR_TRY(TR_GROW(&q->column, &q->column_room, (size_t)q->n + n));
    TR_TRY(TR_GROW(&q->value, &q->value_room, (size_t)q->n + n));
    if (!tr_sparse_read(t->dtype == TR_F32, t->width, at, end, q->column + q->n, q->value + q->n))
        return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
    q->n += n;
    *part = q;
    return TR_OK;
}

static int hand_over_list(struct pull *p, const struct request *r, uint32_t i, const unsigned char **at)
{
    const struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    const unsigned char *end = (const unsigned char *)r->answer + sizeof r->head + r->head.bytes;
    uint32_t want = r->ask[i].want, n;
    bool cut = i >= r->head.rows;
    if (!tr_sparse_next(*at, end, &n))
        return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
    if (cut || r->ask[i].from > 0) {
        struct part *part = NULL;
        TR_TRY(read_part(p, want, n, at, end, &part));
        int status = cut ? TR_OK : hand_over(p, row_of(p, want), part->n, part->column, part->value);
        if (!cut) free_part(find_part(p, want));
        return status;
    }
    TR_TRY(TR_GROW(&rows->column, &rows->column_room, (size_t)n + 1));
    TR_TRY(TR_GROW(&rows->value, &rows->value_room, (size_t)n + 1));
    if (!tr_sparse_read(t->dtype == TR_F32, t->width, at, end, rows->column, rows->value))
        return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
    return hand_over(p, row_of(p, want), n, rows->column, rows->value);
}

/* ---- what is here ---- */

static int hand_over_units(struct pull *p, const struct request *r)
{
    struct tr_rows *rows = p->table->rows;
    const char *value;
    TR_TRY(decode(p, r, &rows->decoded, &rows->decoded_room, &value));
    for (uint32_t i = 0; i < r->n; i++)
        TR_TRY(hand_over_unit(p, r->ask[i].want, value + i * p->table->unit_bytes));
    return TR_OK;
}

static int hand_over_lists(struct pull *p, const struct request *r)
{
    const unsigned char *at = (const unsigned char *)r->answer + sizeof r->head;
    for (uint32_t i = 0; i < r->n; i++) TR_TRY(hand_over_list(p, r, i, &at));
    return TR_OK;
}

static int hand_over_answer(struct pull *p)
{
    struct request *r = p->here;
    p->here = r->next;
    if (!p->here) p->here_end = &p->here;
    int status = p->table->sparse ? hand_over_lists(p, r) : hand_over_units(p, r);
    p->source[r->server].requests--;
    put_back(p->table->rows, r);
    return status;
}

static int take_from_shelf(struct pull *p, uint32_t want, bool *did)
{
    struct tr_table *t = p->table;
    struct tr_shelf *shelf = t->rows->shelf;
    uint32_t server = 0;
    const void *value = NULL;
    uint64_t unit = unit_of(p, want);
    switch (tr_shelf_take(shelf, unit, &p->shelf, &value)) {
    case TR_SHELF_HERE: {
        int status = hand_over_unit(p, want, value);
        tr_shelf_give_back(shelf, unit);
        *did = true;
        return status;
    }
    case TR_SHELF_COMING:
        p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->wants] = want;
        return TR_OK;
    default:
        while (want >= p->source[server].end) server++; /* wants are in the order of servers */
        *did = true;
        return ask_again(&p->source[server], (struct ask){.want = want});
    }
}

/* Goes round once, unless an answer comes. */
static int hand_over_elsewhere(struct pull *p, bool *did)
{
    for (size_t left = p->elsewhere_n; left > 0 && !p->here; left--) {
        uint32_t want = p->elsewhere[p->elsewhere_first];
        p->elsewhere_first = (p->elsewhere_first + 1) % p->wants;
        p->elsewhere_n--;
        TR_TRY(take_from_shelf(p, want, did));
    }
    return TR_OK;
}

static int hand_over_some(struct pull *p, bool *did)
{
    if (p->here) {
        *did = true;
        return hand_over_answer(p);
    }
    TR_TRY(hand_over_elsewhere(p, did));
    return hand_over_near_rows(p, did);
}

static int carry_on(struct pull *p, bool *did)
{
    TR_TRY(take_answers(p, did));
    TR_TRY(ask_more(p));
    bool something = p->here || p->elsewhere_n > 0 || next_near_source(p) < p->table->partition.servers;
    if (!something) return TR_OK;
    begin_computing(p);
    int status = hand_over_some(p, did);
    stop_computing(p);
    return status;
}

static int hand_over_all(struct pull *p)
{
    tr_context *tr = p->table->tr;
    struct tr_waiting waiting = tr_waiting_begin();
    while (p->left > 0) {
        bool did = false;
        TR_TRY(carry_on(p, &did));
        if (did) waiting = tr_waiting_begin();
        else
            TR_TRY(tr_waiting_turn(tr, &waiting, "the servers of table %s to send %zu rows", p->table->name,
                                   p->left));
    }
    return TR_OK;
}

/* ---- pulling ---- */

/* After a failure: answers still come, and others of the node may wait for them. */
static int wait_for_answers(struct pull *p)
{
    TR_WAIT_UNTIL(p->table->tr, p->flying_n == 0, "the servers of table %s to send rows", p->table->name);
    return TR_OK;
}

static void close_pull(struct pull *p)
{
    struct tr_rows *rows = p->table->rows;
    while (p->here) {
        struct request *r = p->here;
        p->here = r->next;
        put_back(rows, r);
    }
    while (p->parts) free_part(&p->parts);
    for (uint32_t s = 0; p->source && s < p->table->partition.servers; s++) free(p->source[s].again);
    free(p->source);
    free(p->want);
    free(p->elsewhere);
    free(p->flying);
    free(p->received);
    free(p->arrived);
    free(p->missing);
    free(p->whole);
    free(p->scratch);
    rows->pull = NULL;
}

static int open_pull(struct pull *p)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    const tr_job *job = t->tr->job;
    p->ahead = job ? job->table.ahead : AHEAD;
    p->row_bytes = job ? job->table.row_bytes : ROW_BYTES;
    p->here_end = &p->here;
    p->left = p->n;
    p->looked = p->clock_read = tr_now();
    p->group = p->until_clock = 1;
    p->look_after = look_soon;
    TR_TRY(split(p));
    TR_TRY(open_window(p));
    if (!shelf_of(p)) return TR_OK;
    p->shelf = (struct tr_shelf_terms){t->lockstep, p->terms->least, rows->after};
    if (!t->lockstep && rows->pulled > p->shelf.after) p->shelf.after = rows->pulled;
    rows->pulled = tr_shelf_number(rows->shelf);
    return TR_NEW(&p->elsewhere, p->wants);
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
    TR_TRY(check_pull(t, keys, n));
    if (!t->lockstep) TR_TRY(tr_rows_flush(t));
    t->tr->tables->traffic.pulls++;
    rows->pull = &p;
    int status = open_pull(&p);
    if (status == TR_OK) status = hand_over_all(&p);
    if (status != TR_OK && p.flying_n > 0) {
        char text[1024];
        snprintf(text, sizeof text, "%s", tr_error_text());
        (void)wait_for_answers(&p);
        status = tr_fail(status, "%s", text);
    }
    *computed = p.computed;
    close_pull(&p);
    return status;
}

int tr_rows_meanwhile(tr_table *t)
{
    int did = 0;
    if (t->rows->pull) return look_around(t->rows->pull);
    return tr_progress(t->tr, &did);
}

/* Answers are taken wherever this rank waits: others of the node may wait for what it has claimed. */
int tr_rows_poll(struct tr_table *t, int *did)
{
    bool moved = false;
    tr_additions_poll(t, did);
    if (t->rows->pull) TR_TRY(take_answers(t->rows->pull, &moved));
    *did += moved;
    return TR_OK;
}

size_t tr_rows_memory(const struct tr_table *t)
{
    size_t bytes = t->rows->decoded_room + t->rows->shelved_room;
    for (const struct request *r = t->rows->spare; r; r = r->next) bytes += r->answer_room;
    return bytes;
}

/* ---- stages ---- */

void tr_rows_pushed(struct tr_table *t)
{
    if (!t->rows || !t->rows->shelf || t->lockstep)
        return; /* in lockstep the clock says what is in a fetch */
    t->rows->after = tr_shelf_number(t->rows->shelf);
}

static int workers_here(const tr_context *tr)
{
    int n = 0;
    for (int w = 0; w < tr_layout_workers(&tr->layout); w++) n += tr_same_node(tr, tr->layout.worker_rank[w]);
    return n;
}

static int servers_elsewhere(const struct tr_table *t)
{
    int n = 0;
    for (uint32_t s = 0; s < t->partition.servers; s++) n += !tr_same_node(t->tr, tr_table_server_rank(t, s));
    return n;
}

/* Four times what all workers of the node have in flight at most, so that none of them is soon left behind: places of
 * rows that lie on this node stay empty. */
static int open_shelf(struct tr_table *t)
{
    const tr_context *tr = t->tr;
    const tr_job *job = tr->job;
    int workers = workers_here(tr), servers = servers_elsewhere(t);
    uint64_t ahead = job ? job->table.ahead : AHEAD, row_bytes = job ? job->table.row_bytes : ROW_BYTES;
    bool pays = !t->sparse && t->unit_bytes >= SHELF_LEAST_UNIT && t->width > 1;
    if (t->rows->looked_for_shelf) return TR_OK;
    t->rows->looked_for_shelf = true;
    if (!pays || workers < 2 || servers == 0 || (job && !job->table.share_pulls)) return TR_OK;
    uint64_t bytes = 4 * (uint64_t)(workers * servers) * (ahead + 1) * tr_max_size(row_bytes, t->unit_bytes);
    if (bytes > SHELF_MOST) bytes = SHELF_MOST;
    return tr_shelf_open(t, bytes, &t->rows->shelf);
}

int tr_rows_begin(struct tr_table *t)
{
    struct tr_rows *rows = t->rows;
    TR_TRY(open_shelf(t));
    rows->after = rows->pulled = rows->shelf ? tr_shelf_number(rows->shelf) : 0;
    if (t->sparse && t->lockstep && t->server >= 0)
        t->pushing_clients = (size_t)tr_layout_workers(&t->tr->layout);
    return TR_OK;
}

void tr_rows_free(struct tr_table *t)
{
    struct tr_rows *rows = t->rows;
    if (!rows) return;
    while (rows->spare) {
        struct request *r = rows->spare;
        rows->spare = r->next;
        free(r->ask);
        free(r->question);
        free(r->answer);
        free(r);
    }
    tr_shelf_close(&rows->shelf);
    free(rows->decoded);
    free(rows->shelved);
    free(rows->column);
    free(rows->value);
    free(rows);
    t->rows = NULL;
    tr_additions_free(t);
}

#include "table/rows_parts.h"
#include "table/message.h"

#include <stdlib.h>
#include <string.h>

/* ---- asking ---- */

int tr_rows_ask_again(struct tr_pull_source *s, struct tr_pull_ask ask)
{
    TR_TRY(TR_GROW(&s->again, &s->room, s->agains + 1));
    s->again[s->agains++] = ask;
    return TR_OK;
}

/* The next unit to be asked for; false: there is none. What others of the node fetch is put aside. */
static bool choose(struct tr_pull *p, struct tr_pull_source *s, struct tr_pull_ask *ask)
{
    while (s->agains > 0 || tr_rows_may_begin(p, s)) {
        *ask = s->agains > 0 ? s->again[--s->agains] : (struct tr_pull_ask){.want = s->next++};
        if (!p->cache) return true;
        enum tr_cache_state state =
            tr_cache_claim(p->cache, tr_rows_unit_of(p, ask->want), &p->cache_terms, p->terms->holds);
        ask->claimed = state == TR_CACHE_CLAIMED;
        if (ask->claimed || state == TR_CACHE_NONE) return true;
        p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->wants] = ask->want;
    }
    return false;
}

/* How many rows of a sparse table fill an answer is a guess. The first requests are short, so that computing begins as
 * soon as some rows are here. */
static size_t most_of_request(const struct tr_pull *p, const struct tr_pull_source *s)
{
    enum { FIRST = 8 };
    const struct tr_table *t = p->table;
    double rows = (double)p->row_bytes / t->rows->row_bytes;
    size_t most = t->sparse ? (size_t)rows : p->row_bytes / t->unit_bytes;
    most = tr_min_size(most, p->row_bytes / sizeof(struct tr_sparse_request));
    if (p->ahead > 0) most = tr_min_size(most, tr_max_size(most / FIRST, s->asked));
    return tr_max_size(1, most);
}

static size_t sparse_room(const struct tr_pull *p)
{
    return tr_max_size(p->row_bytes, TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST);
}

/* Bytes of the answer at most. */
static size_t answer_room(const struct tr_pull *p, const struct tr_pull_request *r)
{
    const struct tr_table *t = p->table;
    enum { PLACE = 5, HEADS = sizeof(struct tr_reply_head) + TR_ENCODING_HEADER + sizeof(uint64_t) };
    if (t->sparse) return sizeof(struct tr_sparse_head) + sparse_room(p);
    return HEADS + r->n * (t->unit_bytes + PLACE); /* a gap is longer than a bit */
}

static unsigned char *write_ask(const struct tr_pull *p, const struct tr_pull_ask *ask, unsigned char *out)
{
    const struct tr_table *t = p->table;
    struct tr_sparse_request wish = {p->want[ask->want].position, ask->from};
    tr_key key = p->keys[tr_rows_place_of(p, ask->want)];
    const void *from = t->hash ? (void *)&key : (void *)&wish; /* which begins with the position */
    size_t bytes = t->hash ? sizeof key : t->sparse ? sizeof wish : sizeof wish.position;
    memcpy(out, from, bytes);
    return out + bytes;
}

/* Starts to get the rows by RMA: their server need only be inside MPI. */
static int get(struct tr_pull *p, struct tr_pull_request *r)
{
    struct tr_table *t = p->table;
    MPI_Datatype unit, there;
    int *position;
    TR_TRY(TR_NEW(&position, r->n));
    for (uint32_t i = 0; i < r->n; i++) position[i] = (int)p->want[r->ask[i].want].position;
    MPI_Type_contiguous((int)t->unit_width, tr_dtype_mpi(t->dtype), &unit);
    MPI_Type_create_indexed_block((int)r->n, 1, position, unit, &there);
    MPI_Type_commit(&there);
    MPI_Rget(r->answer + sizeof(struct tr_reply_head), (int)(r->n * t->unit_width), tr_dtype_mpi(t->dtype),
             tr_table_server_rank(t, r->server), 0, 1, there, t->window, &p->received[p->flying_n]);
    MPI_Type_free(&there);
    MPI_Type_free(&unit);
    free(position);
    return TR_OK;
}

static int send_message(struct tr_pull *p, struct tr_pull_request *r, size_t room)
{
    struct tr_table *t = p->table;
    struct tr_tables *tables = t->tr->tables;
    struct tr_sending *m;
    int rank = tr_table_server_rank(t, r->server);
    TR_TRY(tr_message_new(tables, r->n * sizeof(tr_key), &m));
    m->header = (struct tr_message){.kind = TR_MESSAGE_ROWS,
                                    .table = t->index,
                                    .n = r->n,
                                    .flags = p->terms->exact ? TR_FLAG_EXACT : 0,
                                    .clock = (int64_t)sparse_room(p)};
    unsigned char *end = m->body;
    for (uint32_t i = 0; i < r->n; i++) end = write_ask(p, &r->ask[i], end);
    size_t bytes = (size_t)(end - m->body);
    tables->traffic.bytes_pulled += sizeof m->header + bytes;
    tr_message_ask(tables, m, bytes, rank, r->answer, room, &p->received[p->flying_n]);
    return TR_OK;
}

/* Hash storage and sparse rows have no window, and messages alone round. */
static int send_request(struct tr_pull *p, struct tr_pull_request *r)
{
    const struct tr_table *t = p->table;
    size_t room = answer_room(p, r);
    TR_TRY(TR_GROW(&r->answer, &r->answer_room, room));
    r->got = t->route == TR_ROUTE_GET && t->window != MPI_WIN_NULL;
    TR_TRY(r->got ? get(p, r) : send_message(p, r, room));
    p->flying[p->flying_n++] = r;
    p->source[r->server].under_way++;
    p->source[r->server].requests++;
    return TR_OK;
}

/* Sends one request to a server; *sent false: there is nothing to ask for. */
static int ask(struct tr_pull *p, uint32_t server, bool *sent)
{
    struct tr_rows *rows = p->table->rows;
    struct tr_pull_source *s = &p->source[server];
    *sent = false;
    if (s->agains == 0 && !tr_rows_may_begin(p, s)) return TR_OK;
    if (!rows->spare) TR_TRY(TR_NEW(&rows->spare, 1));
    struct tr_pull_request *r = rows->spare;
    size_t most = most_of_request(p, s);
    TR_TRY(TR_GROW(&r->ask, &r->ask_room, most));
    r->server = server;
    r->n = 0;
    while (r->n < most && choose(p, s, &r->ask[r->n])) r->n++;
    if (r->n == 0) return TR_OK;
    s->asked += r->n;
    *sent = true;
    rows->spare = r->next;
    return send_request(p, r);
}

/* table.ahead = 0: one request to all servers together, when nothing else is left to do. */
static int ask_one(struct tr_pull *p)
{
    bool sent = p->flying_n > 0 || p->here || tr_rows_next_near(p) < p->table->partition.servers;
    for (uint32_t s = 0; s < p->table->partition.servers && !sent; s++)
        if (!p->source[s].near) TR_TRY(ask(p, s, &sent));
    return TR_OK;
}

int tr_rows_ask_more(struct tr_pull *p)
{
    uint32_t servers = p->table->partition.servers, first = (uint32_t)p->table->tr->rank;
    if (p->ahead == 0) return ask_one(p);
    for (uint32_t i = 0; i < servers; i++) {
        struct tr_pull_source *s = &p->source[(first + i) % servers];
        bool sent = !s->near;
        while (sent && s->under_way < p->ahead && s->requests <= p->ahead)
            TR_TRY(ask(p, (first + i) % servers, &sent));
    }
    return TR_OK;
}

/* ---- answers ---- */

int tr_rows_decode(const struct tr_pull *p, const struct tr_pull_request *r, char **memory, size_t *room,
                   const char **value)
{
    const struct tr_table *t = p->table;
    struct tr_slice slice = tr_slice_of(t, r->n);
    struct tr_encoded message;
    *value = r->answer + sizeof(struct tr_reply_head);
    if (r->got) return TR_OK;
    TR_TRY(tr_encoded_open(r->answer + sizeof(struct tr_reply_head), r->head.bytes, &slice, &message));
    *value = message.value;
    if (message.encoding == TR_ENCODING_DENSE && message.precision == TR_PRECISION_FULL) return TR_OK;
    TR_TRY(TR_GROW(memory, room, r->n * t->unit_bytes));
    *value = *memory;
    return tr_decode_packed(&message, *memory);
}

/* What was claimed in the cache can be taken from there from now on. */
static int open_dense_answer(struct tr_pull *p, struct tr_pull_request *r)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    struct tr_reply_head head = {.bytes = (uint32_t)(r->n * t->unit_bytes)};
    const char *value = NULL;
    bool claimed = false;
    if (!r->got) memcpy(&head, r->answer, sizeof head);
    r->head = (struct tr_sparse_head){.bytes = head.bytes, .rows = r->n};
    t->tr->tables->traffic.bytes_pulled += sizeof head + head.bytes;
    for (uint32_t i = 0; i < r->n; i++) claimed = claimed || r->ask[i].claimed;
    if (!claimed) return TR_OK;
    int status = tr_rows_decode(p, r, &rows->cached, &rows->cached_room, &value);
    for (uint32_t i = 0; i < r->n; i++)
        if (r->ask[i].claimed) {
            uint64_t unit = tr_rows_unit_of(p, r->ask[i].want);
            if (status == TR_OK)
                memcpy(tr_cache_value(&rows->cache, unit), value + i * t->unit_bytes, t->unit_bytes);
            tr_cache_put(&rows->cache, unit, status == TR_OK);
        }
    return status;
}

/* What the server did not get to is asked for again, the rest of a row first. */
static int open_sparse_answer(struct tr_pull *p, struct tr_pull_request *r)
{
    struct tr_table *t = p->table;
    struct tr_pull_source *s = &p->source[r->server];
    memcpy(&r->head, r->answer, sizeof r->head);
    t->tr->tables->traffic.bytes_pulled += sizeof r->head + r->head.bytes;
    uint32_t rows = r->head.rows + r->head.cut;
    if (rows == 0 || rows > r->n)
        return tr_fail(TR_ERR_PEER, "table %s: an answer has %u rows of %u", t->name, rows, r->n);
    t->rows->row_bytes += ((double)r->head.bytes / rows - t->rows->row_bytes) / 2;
    for (uint32_t i = r->n; i-- > rows;) TR_TRY(tr_rows_ask_again(s, r->ask[i]));
    r->n = rows;
    if (!r->head.cut) return TR_OK;
    return tr_rows_ask_again(s, (struct tr_pull_ask){.want = r->ask[rows - 1].want, .from = r->head.from});
}

static int take_answer(struct tr_pull *p, struct tr_pull_request *r)
{
    int status = p->table->sparse ? open_sparse_answer(p, r) : open_dense_answer(p, r);
    r->next = NULL;
    *p->here_end = r;
    p->here_end = &r->next;
    p->source[r->server].under_way--;
    return status;
}

/* Looks once for all, since each look lets MPI work. */
int tr_rows_take_answers(struct tr_pull *p, bool *did)
{
    int arrived = 0, status = TR_OK;
    if (p->flying_n == 0) return TR_OK;
    MPI_Testsome((int)p->flying_n, p->received, &arrived, p->arrived, MPI_STATUSES_IGNORE);
    for (int i = 0; i < arrived; i++) {
        struct tr_pull_request *r = p->flying[p->arrived[i]];
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

/* ---- sparse rows out of answers ---- */

static struct tr_pull_part **find_part(struct tr_pull *p, uint32_t want)
{
    struct tr_pull_part **link = &p->parts;
    while (*link && (*link)->want != want) link = &(*link)->next;
    return link;
}

void tr_rows_free_part(struct tr_pull_part **link)
{
    struct tr_pull_part *part = *link;
    *link = part->next;
    free(part->column);
    free(part->value);
    free(part);
}

static int hand_over_list(struct tr_pull *p, const struct tr_pull_request *r, uint32_t i,
                          const unsigned char **at)
{
    const struct tr_table *t = p->table;
    const unsigned char *end = (const unsigned char *)r->answer + sizeof r->head + r->head.bytes;
    uint32_t want = r->ask[i].want, n;
    bool cut = i >= r->head.rows, partly = cut || r->ask[i].from > 0;
    struct tr_pull_part **link = find_part(p, want), *part = partly ? *link : &t->rows->part;
    if (!part) {
        TR_TRY(TR_NEW(link, 1));
        part = *link;
    }
    part->want = want;
    if (!partly) part->n = 0;
    if (!tr_sparse_next(*at, end, &n))
        return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
    TR_TRY(tr_rows_grow(part, (size_t)n + 1));
    if (!tr_sparse_read(t->dtype == TR_F32, t->width, at, end, part->column + part->n, part->value + part->n))
        return tr_fail(TR_ERR_PEER, "table %s: rows that came are malformed", t->name);
    part->n += n;
    if (cut) return TR_OK;
    int status = tr_rows_hand_over(p, tr_rows_place_of(p, want), part->n, part->column, part->value);
    if (partly) tr_rows_free_part(find_part(p, want));
    return status;
}

int tr_rows_hand_over_lists(struct tr_pull *p, const struct tr_pull_request *r)
{
    const unsigned char *at = (const unsigned char *)r->answer + sizeof r->head;
    for (uint32_t i = 0; i < r->n; i++) TR_TRY(hand_over_list(p, r, i, &at));
    return TR_OK;
}

#include "table/rows.h"

#include <stdlib.h>
#include <string.h>

#include "table/function.h"
#include "table/rows_parts.h"
#include "table/share.h"
#include "table/subscription.h"
#include "table/tables.h"

/* What the job may leave open where there is none. */
enum { AHEAD = 4, ROW_BYTES = 1 << 18 };

/* Seconds between two looks at what has arrived: each is time that is taken from computing, but lets MPI work, and where
 * there are more ranks than cores gives the core away. */
static const double look_after = 500e-6;

int tr_rows_open(struct tr_table *t)
{
    TR_TRY(TR_NEW(&t->rows, 1));
    t->rows->row_bytes = 64;
    t->rows->cache_memory = TR_SHM_CLOSED;
    return TR_OK;
}

/* ---- what is wanted ---- */

static bool is_near(const struct tr_table *t, uint32_t server)
{
    if (t->sparse) return (int)server == t->server;
    return t->share[server] && (t->route == TR_ROUTE_AUTO || t->route == TR_ROUTE_LOAD);
}

void tr_table_rest(struct tr_table *t, bool rests)
{
    t->rests = rests;
}

static int check_pull(const struct tr_table *t, const tr_key *keys, size_t n)
{
    if (t->rests)
        return tr_fail(TR_ERR_INTERNAL, "table %s: rows are pulled while it rests (tr_table_rest())",
                       t->name);
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

/* Splits the list by server, in two passes: count, then fill, without rows that come by themselves. Hash storage has one piece a
 * row, and no positions. */
static int split(struct tr_pull *p)
{
    struct tr_table *t = p->table;
    uint32_t servers = t->partition.servers;
    struct tr_walker walker = {.partition = &t->partition};
    p->wants = p->n * t->pieces;
    TR_TRY(TR_NEW(&p->want, p->wants));
    TR_TRY(TR_NEW(&p->source, servers));
    for (uint32_t s = 0; s < servers; s++) p->source[s].near = is_near(t, s);
    for (uint64_t piece = 0; piece < t->pieces; piece++)
        for (size_t i = 0; i < p->n; i++) {
            struct tr_pull_source *s = &p->source[tr_walk_to(&walker, piece * t->keys + p->keys[i]).server];
            s->end += s->near || !p->subscribed;
        }
    for (uint32_t s = 0, at = 0; s < servers; s++) {
        p->source[s].next = at;
        at += p->source[s].end;
        p->source[s].end = p->source[s].next;
    }
    for (size_t i = 0; i < p->n; i++) /* all pieces of a row, then the next row: see `window` */
        for (uint32_t piece = 0; piece < t->pieces; piece++) {
            struct tr_location at = tr_walk_to(&walker, (uint64_t)piece * t->keys + p->keys[i]);
            if (p->subscribed && !p->source[at.server].near) continue;
            p->want[p->source[at.server].end++] =
                (struct tr_pull_want){at.position, (uint32_t)(i * t->pieces + piece)};
        }
    return TR_OK;
}

/* Rows of several pieces are put together in memory for so many rows. */
static int open_window(struct tr_pull *p)
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

/* ---- handing over ---- */

/* From here on, until it stops, time is that of row(). */
static void begin_computing(struct tr_pull *p)
{
    tr_wait_end(p->table->tr->tables);
    p->computing_since = tr_now();
}

static void stop_computing(struct tr_pull *p)
{
    p->computed += tr_now() - p->computing_since;
    tr_wait_begin(p->table->tr->tables);
}

/* Between two rows. */
static int look_around(struct tr_pull *p)
{
    int did = 0;
    stop_computing(p);
    TR_TRY(tr_progress(p->table->tr, &did));
    if (p->ahead > 0) TR_TRY(tr_rows_ask_more(p));
    begin_computing(p);
    p->looked = p->computing_since;
    return TR_OK;
}

int tr_rows_hand_over(struct tr_pull *p, size_t place, size_t n, const uint32_t *column, const void *value)
{
    tr_row row = {.key = p->keys[place], .place = place, .n = n, .column = column, .value = value};
    p->left--;
    TR_TRY(p->row(p->state, &row));
    return tr_now() - p->looked > look_after ? look_around(p) : TR_OK;
}

/* One unit of a dense table: a row, or a piece of one. */
static int hand_over_unit(struct tr_pull *p, uint32_t want, const void *value)
{
    const struct tr_table *t = p->table;
    size_t place = tr_rows_place_of(p, want);
    if (t->pieces == 1) return tr_rows_hand_over(p, place, t->width, NULL, value);
    char *whole = p->whole + place % p->window * t->pieces * t->unit_bytes;
    memcpy(whole + p->want[want].unit % t->pieces * t->unit_bytes, value, t->unit_bytes);
    if (--p->missing[place % p->window] > 0) return TR_OK;
    int status = tr_rows_hand_over(p, place, t->width, NULL, whole);
    for (; p->base < p->n && p->missing[p->base % p->window] == 0; p->base++)
        p->missing[p->base % p->window] = t->pieces;
    return status;
}

/* ---- from memory of this rank or its node ---- */

int tr_rows_grow(struct tr_pull_part *part, size_t n)
{
    TR_TRY(TR_GROW(&part->column, &part->column_room, part->n + n));
    return TR_GROW(&part->value, &part->value_room, part->n + n);
}

static int hand_over_own_list(struct tr_pull *p, uint32_t want)
{
    struct tr_pull_part *copy = &p->table->rows->part;
    const struct tr_sparse_row *row = &p->table->sparse_share->row[p->want[want].position];
    size_t place = tr_rows_place_of(p, want), bytes = row->n * sizeof *row->column;
    copy->n = 0;
    TR_TRY(tr_rows_grow(copy, tr_max_size(row->n, 1)));
    if (row->n == 0) return tr_rows_hand_over(p, place, 0, copy->column, copy->value);
    if (p->terms->still) return tr_rows_hand_over(p, place, row->n, row->column, tr_sparse_values(row));
    memcpy(copy->column, row->column, bytes);
    memcpy(copy->value, tr_sparse_values(row), bytes);
    return tr_rows_hand_over(p, place, row->n, copy->column, copy->value);
}

static int hand_over_near(struct tr_pull *p, uint32_t server, uint32_t want)
{
    struct tr_table *t = p->table;
    if (t->sparse) return hand_over_own_list(p, want);
    uint32_t position = p->want[want].position;
    const char *value = (const char *)t->share[server] + position * t->unit_bytes;
    t->tr->tables->traffic.bytes_pulled += t->unit_bytes;
    if (p->terms->still) return hand_over_unit(p, want, value);
    tr_share_copy(t, server, position, p->scratch);
    return hand_over_unit(p, want, p->scratch);
}

uint32_t tr_rows_next_near(const struct tr_pull *p)
{
    uint32_t servers = p->table->partition.servers, s = 0;
    while (s < servers && !(p->source[s].near && tr_rows_may_begin(p, &p->source[s]))) s++;
    return s;
}

/* Until an answer has come, or there are no more of them; not before all updates are in them. */
static int hand_over_near_rows(struct tr_pull *p, bool *did)
{
    uint32_t servers = p->table->partition.servers, s;
    if (p->subscribed && p->table->tr->tables->written < p->terms->least) return TR_OK;
    while (!p->here && (s = tr_rows_next_near(p)) < servers) {
        struct tr_pull_source *source = &p->source[s];
        *did = true;
        while (!p->here && tr_rows_may_begin(p, source)) TR_TRY(hand_over_near(p, s, source->next++));
    }
    return TR_OK;
}

/* Some of those that come by themselves. */
static int hand_over_subscribed(struct tr_pull *p, bool *did)
{
    const struct tr_table *t = p->table;
    struct tr_subscribed rows;
    if (!p->subscribed || !tr_subscription_take(t->subscription, &rows)) return TR_OK;
    *did = true;
    for (size_t i = 0; i < rows.n; i++)
        TR_TRY(
            tr_rows_hand_over(p, rows.place[i], t->width, NULL, rows.value + rows.slot[i] * t->unit_bytes));
    return TR_OK;
}

/* ---- what is here ---- */

static int hand_over_units(struct tr_pull *p, const struct tr_pull_request *r)
{
    struct tr_rows *rows = p->table->rows;
    const char *value;
    TR_TRY(tr_rows_decode(p, r, &rows->decoded, &rows->decoded_room, &value));
    for (uint32_t i = 0; i < r->n; i++)
        TR_TRY(hand_over_unit(p, r->ask[i].want, value + i * p->table->unit_bytes));
    return TR_OK;
}

/* A request that is done with is kept for the next one. */
static void put_back(struct tr_rows *rows, struct tr_pull_request *r)
{
    r->next = rows->spare;
    rows->spare = r;
}

static int hand_over_answer(struct tr_pull *p)
{
    struct tr_pull_request *r = p->here;
    p->here = r->next;
    if (!p->here) p->here_end = &p->here;
    int status = p->table->sparse ? tr_rows_hand_over_lists(p, r) : hand_over_units(p, r);
    p->source[r->server].requests--;
    put_back(p->table->rows, r);
    return status;
}

static int take_from_cache(struct tr_pull *p, uint32_t want, bool *did)
{
    uint32_t server = 0;
    uint64_t unit = tr_rows_unit_of(p, want);
    enum tr_cache_state state = tr_cache_take(p->cache, unit, &p->cache_terms, NULL);
    *did = *did || state != TR_CACHE_COMING;
    if (state == TR_CACHE_HERE) {
        int status = hand_over_unit(p, want, tr_cache_value(p->cache, unit));
        tr_cache_give_back(p->cache, unit);
        return status;
    }
    if (state == TR_CACHE_COMING) {
        p->elsewhere[(p->elsewhere_first + p->elsewhere_n++) % p->wants] = want;
        return TR_OK;
    }
    while (want >= p->source[server].end) server++; /* wants are in the order of servers */
    return tr_rows_ask_again(&p->source[server], (struct tr_pull_ask){.want = want});
}

/* Goes round once, unless an answer comes. */
static int hand_over_elsewhere(struct tr_pull *p, bool *did)
{
    for (size_t left = p->elsewhere_n; left > 0 && !p->here; left--) {
        uint32_t want = p->elsewhere[p->elsewhere_first];
        p->elsewhere_first = (p->elsewhere_first + 1) % p->wants;
        p->elsewhere_n--;
        TR_TRY(take_from_cache(p, want, did));
    }
    return TR_OK;
}

static int carry_on(struct tr_pull *p, bool *did)
{
    int status = TR_OK;
    TR_TRY(tr_rows_take_answers(p, did));
    TR_TRY(tr_rows_ask_more(p));
    begin_computing(p);
    if (p->here) {
        *did = true;
        status = hand_over_answer(p);
    } else {
        status = hand_over_subscribed(p, did);
        if (status == TR_OK) status = hand_over_elsewhere(p, did);
        if (status == TR_OK) status = hand_over_near_rows(p, did);
    }
    stop_computing(p);
    return status;
}

static int hand_over_all(struct tr_pull *p)
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
static int wait_for_answers(struct tr_pull *p, int status)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", tr_error_text());
    TR_WAIT_UNTIL(p->table->tr, p->flying_n == 0, "the servers of table %s to send rows", p->table->name);
    return tr_fail(status, "%s", text);
}

static void close_pull(struct tr_pull *p)
{
    struct tr_rows *rows = p->table->rows;
    while (p->here) {
        struct tr_pull_request *r = p->here;
        p->here = r->next;
        put_back(rows, r);
    }
    while (p->parts) tr_rows_free_part(&p->parts);
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

static int open_pull(struct tr_pull *p)
{
    struct tr_table *t = p->table;
    struct tr_rows *rows = t->rows;
    const tr_job *job = t->tr->job;
    p->ahead = job ? job->table.ahead : AHEAD;
    p->row_bytes = job ? job->table.row_bytes : ROW_BYTES;
    p->here_end = &p->here;
    p->left = p->n;
    p->looked = tr_now();
    p->subscribed = p->terms->subscribed;
    if (p->subscribed) tr_subscription_begin(t->subscription);
    TR_TRY(split(p));
    TR_TRY(open_window(p));
    size_t requests = p->ahead > 0 ? p->ahead * t->partition.servers : 1;
    TR_TRY(TR_NEW(&p->flying, requests));
    TR_TRY(TR_NEW(&p->received, requests));
    TR_TRY(TR_NEW(&p->arrived, requests));
    if (!p->terms->shared || !rows->cache.head) return TR_OK;
    p->cache = &rows->cache;
    p->cache_terms = (struct tr_cache_terms){t->lockstep, p->terms->least, rows->after};
    if (!t->lockstep) p->cache_terms.after = tr_max_size(rows->after, rows->pulled);
    rows->pulled = tr_cache_number(p->cache);
    return TR_NEW(&p->elsewhere, p->wants);
}

int tr_rows_move(struct tr_table *t, const tr_key *keys, size_t n, tr_row_fn *row, void *state,
                 const struct tr_rows_terms *terms, double *computed)
{
    struct tr_pull p = {.table = t, .terms = terms, .keys = keys, .n = n, .row = row, .state = state};
    struct tr_rows *rows = t->rows;
    *computed = 0;
    if (rows->pull)
        return tr_fail(TR_ERR_INTERNAL, "rows of table %s are pulled while rows of it are handed over",
                       t->name);
    TR_TRY(check_pull(t, keys, n));
    if (!t->lockstep) TR_TRY(tr_rows_flush(t));
    t->tr->tables->traffic.pulls++;
    rows->pull = &p;
    tr_way_begin(t->tr->tables);
    int status = open_pull(&p);
    if (status == TR_OK) status = hand_over_all(&p);
    if (status != TR_OK && p.flying_n > 0) status = wait_for_answers(&p, status);
    *computed = p.computed;
    tr_way_end(t->tr->tables);
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
    if (t->rows->pull) TR_TRY(tr_rows_take_answers(t->rows->pull, &moved));
    *did += moved;
    return TR_OK;
}

size_t tr_rows_memory(const struct tr_table *t)
{
    size_t bytes = t->rows->decoded_room + t->rows->cached_room;
    for (const struct tr_pull_request *r = t->rows->spare; r; r = r->next) bytes += r->answer_room;
    return bytes;
}

/* ---- stages ---- */

void tr_rows_pushed(struct tr_table *t)
{
    if (!t->rows || !t->rows->cache.head || t->lockstep)
        return; /* in lockstep the clock says what is in a fetch */
    t->rows->after = tr_cache_number(&t->rows->cache);
}

/* Four times what all workers of the node have in flight at most, so that none of them is soon left behind: entries of
 * rows that lie on this node stay empty. */
static void open_cache(struct tr_table *t)
{
    enum { MOST = 1 << 26, FEWEST = 16, LEAST_UNIT = 32 }; /* bytes, entries, bytes */
    tr_context *tr = t->tr;
    const tr_job *job = tr->job;
    struct tr_rows *rows = t->rows;
    int workers = 0, servers = 0; /* workers of this node, servers on others */
    for (int w = 0; w < tr_worker_set_size(tr->active); w++)
        workers += tr_same_node(tr, tr_worker_rank(tr, tr->active, w));
    for (uint32_t s = 0; s < t->partition.servers; s++)
        servers += !tr_same_node(tr, tr_table_server_rank(t, s));
    uint64_t ahead = job ? job->table.ahead : AHEAD, row_bytes = job ? job->table.row_bytes : ROW_BYTES;
    bool pays = !t->sparse && t->unit_bytes >= LEAST_UNIT && t->width > 1;
    if (rows->looked_for_cache) return;
    rows->looked_for_cache = true;
    if (!pays || workers < 2 || servers == 0 || (job && !job->table.share_pulls)) return;
    uint64_t bytes = 4 * (uint64_t)(workers * servers) * (ahead + 1) * tr_max_size(row_bytes, t->unit_bytes);
    uint64_t entries = tr_max_size(tr_min_size(bytes, MOST) / t->unit_bytes, FEWEST);
    entries = tr_min_size(entries, t->keys * t->pieces);
    size_t mine = tr->node_rank == 0 ? tr_cache_bytes(entries, t->unit_bytes) : 0;
    /* without memory every worker fetches for itself */
    if (tr_shm_open(tr, tr->node, mine, false, &rows->cache_memory) != TR_OK) return;
    rows->cache = tr_cache_at(rows->cache_memory.part[0].at, entries, t->unit_bytes);
    if (tr->node_rank == 0) tr_cache_clear(&rows->cache);
    tr_meet(tr, tr->node,
            "the ranks of this node to open a cache of rows"); /* nobody looks before it is empty */
}

int tr_rows_begin(struct tr_table *t)
{
    struct tr_rows *rows = t->rows;
    open_cache(t);
    rows->after = rows->pulled = rows->cache.head ? tr_cache_number(&rows->cache) : 0;
    return TR_OK;
}

void tr_rows_free(struct tr_table *t)
{
    struct tr_rows *rows = t->rows;
    if (!rows) return;
    tr_row_push_free(t);
    while (rows->spare) {
        struct tr_pull_request *r = rows->spare;
        rows->spare = r->next;
        free(r->ask);
        free(r->answer);
        free(r);
    }
    tr_shm_close(&rows->cache_memory);
    free(rows->decoded);
    free(rows->cached);
    free(rows->part.column);
    free(rows->part.value);
    free(rows);
    t->rows = NULL;
}

/* Merging between nodes: under BSP all updates of a clock are added as one, by the rounds of rounds.h, in chunks of the servers'
 * shares. Two chunks are under way at once: while one travels, the other one is packed or added (M5).
 *
 * A chunk goes up: in each round a rank sends a message to some others, waits for theirs, and adds up what they sent. After the
 * last round the servers add the sums to their shares. Where all workers have read what they push to, they will want to read it
 * again for the next clock, and the chunk goes down: the rounds run backwards, and bring each rank the new values of its keys.
 * So a clock takes each rank as many messages as the rounds have, however many servers there are. Where workers subscribe to
 * rows (subscription.h), which may be others than they push to, the chunk goes down by rounds of theirs instead.
 *
 * Sums are taken in the order of ranks, so that runs repeat to the bit. And BSP is exact: in the first chunk everybody sends
 * messages, empty ones too, and a server that has finished it has heard, through others, that all workers are done with
 * this clock's reading. Nothing is added before.
 *
 * On one node nothing travels: see merge_shared.c. */
#include "table/merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "table/rounds.h"
#include "table/subscription.h"
#include "table/view.h"

enum { IN_FLIGHT = 2, CHUNK_BYTES = 1 << 20 };

/* Who reads the table again after this merge, as far as a rank has heard: in front of the values of each message. */
struct readers {
    uint32_t some;    /* reads what it pushes to, which lies on another node … */
    uint32_t not_all; /* … and one does not, or not in this way */
};

/* A chunk under way. */
struct lane {
    uint32_t chunk;
    size_t round;
    bool busy, down, posted;
    MPI_Request *request;
    int requests;
    char *out, *in, *held, *next; /* messages; units held before the round, and after it */
    size_t out_room, in_room, held_room, next_room;
};

struct tr_merge {
    struct tr_table *table;
    struct tr_shared_merge *shared; /* in shared memory instead: nothing below but busy and done is used */
    MPI_Comm comm;
    struct tr_rounds rounds;
    struct tr_rounds spread;    /* down, to what workers subscribe to; without rounds: nobody does */
    struct tr_view_state *view; /* gives its delta */
    bool busy;
    int64_t clock;                   /* of the running merge */
    int64_t done;                    /* updates of clocks before are in the share */
    uint32_t begun, added, finished; /* chunks of the running merge */
    struct readers readers;
    bool heard_all; /* of all workers: the first chunk is up */
    struct lane lane[IN_FLIGHT];
};

/* By which rounds a chunk travels. */
static const struct tr_rounds *plan_of(const struct tr_merge *m, const struct lane *l)
{
    return l->down && m->spread.n > 0 ? &m->spread : &m->rounds;
}

/* ---- messages of a round ---- */

/* A message is sent where it has values, or has to say that its sender is here. */
static bool is_sent(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f)
{
    return f->peer != m->rounds.me && (f->units[l->chunk] > 0 || (l->chunk == 0 && !l->down));
}

static size_t message_bytes(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f)
{
    return sizeof(struct readers) + f->units[l->chunk] * m->table->unit_bytes;
}

/* Room for a message of each flow, side by side. */
static int make_room(const struct tr_merge *m, const struct lane *l, const struct tr_flow *flow, size_t n,
                     char **memory, size_t *room)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += message_bytes(m, l, &flow[i]);
    return TR_GROW(memory, room, bytes);
}

/* Units that this rank holds for a flow, as they are packed in messages; and the other way round: units that have come. Before
 * the first round they lie in the view. */
static void take_held(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f, char *to)
{
    size_t bytes = m->table->unit_bytes;
    if (f->units[l->chunk] == 0) return;
    if (l->round > 0) {
        memcpy(to, l->held + f->at[l->chunk] * bytes, f->units[l->chunk] * bytes);
        return;
    }
    for (int p = f->first; p < f->end; p++) {
        struct tr_own_keys own = tr_rounds_own(&m->rounds, p, l->chunk);
        if (own.n > 0) tr_gather(own.segment->local + own.first, own.n, bytes, m->view->view.delta, to);
        to += own.n * bytes;
    }
}

static void put_held(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f,
                     const char *from)
{
    const struct tr_rounds *plan = plan_of(m, l);
    size_t bytes = m->table->unit_bytes;
    if (l->round > 0) {
        memcpy(l->next + f->at[l->chunk] * bytes, from, f->units[l->chunk] * bytes);
        return;
    }
    char *to = plan == &m->spread ? tr_subscription_memory(m->table->subscription) : m->view->merged_value;
    for (int p = f->first; p < f->end; p++) {
        struct tr_own_keys own = tr_rounds_own(plan, p, l->chunk);
        if (own.n > 0) tr_scatter(own.segment->local + own.first, own.n, bytes, from, to);
        from += own.n * bytes;
    }
}

/* Adds units to what is held after the round, or to the share; and takes them from there. */
static void add_to_sum(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f,
                       const char *from, char *sum)
{
    const struct tr_table *t = m->table;
    uint32_t at = f->at[l->chunk], n = f->units[l->chunk];
    if (f->place) tr_add_packed_to_share(t->dtype, f->place + at, n, t->unit_width, from, sum);
    else tr_add_packed_to_share(t->dtype, NULL, n, t->unit_width, from, sum + at * t->unit_bytes);
}

static void take_from_sum(const struct tr_merge *m, const struct lane *l, const struct tr_flow *f,
                          const char *sum, char *to)
{
    size_t bytes = m->table->unit_bytes;
    uint32_t at = f->at[l->chunk], n = f->units[l->chunk];
    if (f->place) tr_gather(f->place + at, n, bytes, sum, to);
    else tr_gather(NULL, n, bytes, sum + at * bytes, to);
}

static bool is_last(const struct tr_merge *m, const struct lane *l)
{
    return l->round + 1 == plan_of(m, l)->n;
}

static char *own_share(const struct tr_merge *m)
{
    return m->table->server >= 0 ? m->table->share[m->table->server] : NULL;
}

/* Sends what the flows `to` have in `out`, and receives those of `from` into `in`. */
static void post(struct tr_merge *m, struct lane *l, const struct tr_flow *to, size_t tos,
                 const struct tr_flow *from, size_t froms)
{
    int tag = (int)(2 * l->chunk + l->down);
    char *at = l->in;
    l->requests = 0;
    for (size_t i = 0; i < froms; at += message_bytes(m, l, &from[i++]))
        if (is_sent(m, l, &from[i]))
            MPI_Irecv(at, (int)message_bytes(m, l, &from[i]), MPI_BYTE, from[i].peer, tag, m->comm,
                      &l->request[l->requests++]);
    at = l->out;
    for (size_t i = 0; i < tos; at += message_bytes(m, l, &to[i++]))
        if (is_sent(m, l, &to[i]))
            MPI_Isend(at, (int)message_bytes(m, l, &to[i]), MPI_BYTE, to[i].peer, tag, m->comm,
                      &l->request[l->requests++]);
}

static uint64_t bytes_of(const struct tr_merge *m, const struct lane *l, const struct tr_flow *flow, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (is_sent(m, l, &flow[i])) bytes += flow[i].units[l->chunk] * m->table->unit_bytes;
    return bytes;
}

/* What this rank keeps for itself lies among the messages that leave by these flows. */
static const char *kept(const struct tr_merge *m, const struct lane *l, const struct tr_flow *flow)
{
    const char *at = l->out;
    for (; flow->peer != m->rounds.me; flow++) at += message_bytes(m, l, flow);
    return at;
}

/* ---- up: updates to the servers ---- */

static int post_up(struct tr_merge *m, struct lane *l)
{
    const struct tr_round *r = &m->rounds.round[l->round];
    TR_TRY(make_room(m, l, r->out, r->outs, &l->out, &l->out_room));
    TR_TRY(make_room(m, l, r->in, r->ins, &l->in, &l->in_room));
    char *at = l->out;
    for (size_t i = 0; i < r->outs; at += message_bytes(m, l, &r->out[i++])) {
        memcpy(at, &m->readers, sizeof m->readers);
        take_held(m, l, &r->out[i], at + sizeof(struct readers));
    }
    post(m, l, r->out, r->outs, r->in, r->ins);
    m->table->tr->tables->traffic.bytes_pushed += bytes_of(m, l, r->out, r->outs);
    return TR_OK;
}

static int finish_up(struct tr_merge *m, struct lane *l)
{
    const struct tr_round *r = &m->rounds.round[l->round];
    char *sum = own_share(m);
    if (!is_last(m, l)) {
        size_t bytes = r->held[l->chunk] * m->table->unit_bytes;
        TR_TRY(TR_GROW(&l->next, &l->next_room, bytes));
        if (bytes > 0) memset(l->next, 0, bytes);
        sum = l->next;
    }
    const char *at = l->in;
    for (size_t i = 0; i < r->ins; at += message_bytes(m, l, &r->in[i++])) {
        const char *from = r->in[i].peer == m->rounds.me ? kept(m, l, r->out) : at;
        if (l->chunk == 0) {
            struct readers heard;
            memcpy(&heard, from, sizeof heard);
            m->readers.some |= heard.some;
            m->readers.not_all |= heard.not_all;
        }
        if (r->in[i].units[l->chunk] > 0) add_to_sum(m, l, &r->in[i], from + sizeof(struct readers), sum);
    }
    return TR_OK;
}

/* ---- down: new values to those who push ---- */

static int post_down(struct tr_merge *m, struct lane *l)
{
    const struct tr_round *r = &plan_of(m, l)->round[l->round];
    const char *sum = is_last(m, l) ? own_share(m) : l->held;
    TR_TRY(make_room(m, l, r->in, r->ins, &l->out, &l->out_room));
    TR_TRY(make_room(m, l, r->out, r->outs, &l->in, &l->in_room));
    char *at = l->out;
    for (size_t i = 0; i < r->ins; at += message_bytes(m, l, &r->in[i++]))
        if (r->in[i].units[l->chunk] > 0) take_from_sum(m, l, &r->in[i], sum, at + sizeof(struct readers));
    post(m, l, r->in, r->ins, r->out, r->outs);
    m->table->tr->tables->traffic.bytes_pulled += bytes_of(m, l, r->out, r->outs);
    return TR_OK;
}

static int finish_down(struct tr_merge *m, struct lane *l)
{
    const struct tr_round *r = &plan_of(m, l)->round[l->round];
    if (l->round > 0) {
        uint32_t units = plan_of(m, l)->round[l->round - 1].held[l->chunk];
        TR_TRY(TR_GROW(&l->next, &l->next_room, units * m->table->unit_bytes));
    }
    const char *at = l->in;
    for (size_t i = 0; i < r->outs; at += message_bytes(m, l, &r->out[i++])) {
        const char *from = r->out[i].peer == m->rounds.me ? kept(m, l, r->in) : at;
        if (r->out[i].units[l->chunk] > 0) put_held(m, l, &r->out[i], from + sizeof(struct readers));
    }
    if (l->round == 0 && m->spread.n > 0) tr_subscription_put(m->table->subscription, l->chunk);
    return TR_OK;
}

/* ---- a merge ---- */

/* To the views that push, or to who has subscribed. */
static bool returns_to_views(const struct tr_merge *m)
{
    return m->spread.n == 0 && m->readers.some && !m->readers.not_all;
}

static bool goes_down(const struct tr_merge *m)
{
    return m->spread.n > 0 || returns_to_views(m);
}

static void swap_held(struct lane *l)
{
    char *held = l->held;
    size_t room = l->held_room;
    l->held = l->next;
    l->held_room = l->next_room;
    l->next = held;
    l->next_room = room;
}

/* A round has ended: what comes next. */
static int turn(struct tr_merge *m, struct lane *l)
{
    l->posted = false;
    if (!l->down && !is_last(m, l)) {
        l->round++;
    } else if (!l->down) {
        m->heard_all = true; /* the first chunk, or a later one */
        m->added++;
        l->down = goes_down(m);
        l->busy = l->down;
        if (returns_to_views(m) && m->view && !m->view->merged_value)
            TR_TRY(TR_NEW(&m->view->merged_value, tr_view_bytes(&m->view->view)));
        if (m->spread.n > 0) l->round = m->spread.n - 1;
        if (l->down) return TR_OK; /* begins with the last round, and the share */
    } else if (l->round > 0) {
        l->round--;
    } else {
        l->busy = false;
    }
    swap_held(l);
    return TR_OK;
}

static int carry_on(struct tr_merge *m, struct lane *l, bool *moved)
{
    *moved = false;
    if (!l->busy) {
        if (m->begun == m->rounds.chunks) return TR_OK;
        l->chunk = m->begun++;
        l->round = 0;
        l->busy = true;
        l->down = l->posted = false;
    }
    if (!l->posted) {
        TR_TRY(l->down ? post_down(m, l) : post_up(m, l));
        l->posted = *moved = true;
    }
    int done;
    MPI_Testall(l->requests, l->request, &done, MPI_STATUSES_IGNORE);
    if (!done || (!l->down && is_last(m, l) && l->chunk > 0 && !m->heard_all)) return TR_OK;
    TR_TRY(l->down ? finish_down(m, l) : finish_up(m, l));
    *moved = true;
    TR_TRY(turn(m, l));
    m->finished += !l->busy;
    return TR_OK;
}

static int carry_on_all(struct tr_merge *m, int *did)
{
    for (bool moved = true; moved && m->finished < m->rounds.chunks;) {
        moved = false;
        for (int i = 0; i < IN_FLIGHT; i++) {
            bool this_one;
            TR_TRY(carry_on(m, &m->lane[i], &this_one));
            moved = moved || this_one;
        }
        *did += moved;
    }
    return TR_OK;
}

int tr_merge_poll(struct tr_table *t, int *did)
{
    struct tr_merge *m = t->merge;
    if (!m || !m->busy) return TR_OK;
    if (m->shared && !tr_shared_merge_poll(m->shared, m->clock, did)) return TR_OK;
    if (!m->shared) TR_TRY(carry_on_all(m, did));
    if (m->added == m->rounds.chunks && m->done == m->clock) {
        atomic_thread_fence(memory_order_release); /* what was added shows before the clock that says so */
        m->done = tr_table_next_update(t, m->clock + 1);
        ++*did;
    }
    if (m->finished < m->rounds.chunks) return TR_OK;
    if (m->view) memset(m->view->view.delta, 0, tr_view_bytes(&m->view->view));
    ++*did;
    m->busy = false;
    if (m->view && !m->shared && returns_to_views(m)) m->view->merged_for = m->clock + 1;
    return TR_OK;
}

/* Whether what the servers make of this merge is to come back to the view: it has been read since the last merge, and the job
 * does not say how it is to be. */
static struct readers readers_of(const struct tr_view_state *v)
{
    if (!v) return (struct readers){0};
    const struct tr_table *t = v->view.table;
    bool read = v->view.clock >= 0 && v->view.clock > v->push_clock - t->every;
    bool reads = read && t->route == TR_ROUTE_AUTO && !v->node_pull;
    return (struct readers){.some = reads && !(v->channel && tr_view_reads_near(v)), .not_all = !reads};
}

int tr_merge_start(struct tr_table *t, tr_view *view)
{
    struct tr_merge *m = t->merge;
    (void)TR_FAULT("merge");
    m->view = view ? view->state : NULL;
    m->busy = true;
    m->clock = m->done;
    m->begun = m->added = m->finished = 0;
    m->heard_all = false;
    m->readers = readers_of(m->view);
    if (t->subscription) tr_subscription_next(t->subscription);
    if (m->shared) tr_shared_merge_start(m->shared, m->clock);
    return TR_OK;
}

void tr_merge_begin(struct tr_table *t)
{
    if (!t->merge) return;
    t->merge->done = tr_table_next_update(t, 0);
    if (t->subscription) tr_subscription_reset(t->subscription);
    if (t->merge->shared) tr_shared_merge_begin(t->merge->shared);
}

bool tr_merge_busy(const struct tr_table *t)
{
    return t->merge && t->merge->busy;
}

int64_t tr_merge_done(const struct tr_table *t)
{
    return t->merge ? t->merge->done : INT64_MAX;
}

struct tr_view_state *tr_merged_view(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->view.table == t && v->merged && v->channel) return v;
    }
    return NULL;
}

/* ---- opening and closing ---- */

static const char opening[] = "all ranks to open the merge of a table";

/* The degree of rounds of which all together begin with so many units. */
static int degree_of(const struct tr_merge *m, double held)
{
    const struct tr_table *t = m->table;
    int wish = t->tr->job ? t->tr->job->table.merge : TR_MERGE_AUTO, size;
    MPI_Comm_size(m->comm, &size);
    if (wish == TR_MERGE_DIRECT) return size;
    if (wish == TR_MERGE_ROUNDS) return 2;
    return tr_rounds_choose_degree(size, held, (double)t->partition.units, t->unit_bytes);
}

/* Positions of a share in a chunk. */
static uint32_t chunk_of(const struct tr_table *t)
{
    return (uint32_t)tr_max_size(CHUNK_BYTES / t->unit_bytes / t->partition.servers, 1024);
}

static size_t most_flows(const struct tr_rounds *rounds)
{
    size_t most = 0;
    for (size_t i = 0; i < rounds->n; i++)
        most = tr_max_size(most, rounds->round[i].ins + rounds->round[i].outs);
    return most;
}

static int open_rounds(struct tr_merge *m, double held)
{
    const struct tr_table *t = m->table;
    const struct tr_view_state *view = tr_merged_view(t);
    const struct tr_subscription *s = t->subscription;
    uint64_t longest = tr_partition_longest(&t->partition);
    double comes = s ? (double)tr_subscription_units(s) : 0;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &comes, 1, MPI_DOUBLE, MPI_SUM, m->comm, &request);
    tr_wait_alone(t->tr, &request, opening);
    TR_TRY(tr_rounds_open(t->tr, m->comm, t->server, view ? view->keys.segment : NULL, longest, chunk_of(t),
                          degree_of(m, held), &m->rounds));
    if (comes > 0)
        TR_TRY(tr_rounds_open(t->tr, m->comm, t->server, tr_subscription_segments(s), longest, chunk_of(t),
                              degree_of(m, comes), &m->spread));
    size_t most = tr_max_size(most_flows(&m->rounds), most_flows(&m->spread));
    for (int i = 0; i < IN_FLIGHT; i++) TR_TRY(TR_NEW(&m->lane[i].request, most));
    return TR_OK;
}

/* Rows come behind merges where the job does not say how they are to be read, and each row is one unit. */
static int open_subscription(struct tr_table *t, bool wanted)
{
    bool comes = wanted && !t->merges_shared && t->route == TR_ROUTE_AUTO && t->pieces == 1;
    uint32_t chunk = chunk_of(t);
    if (comes)
        return tr_subscription_open(t, chunk,
                                    (uint32_t)((tr_partition_longest(&t->partition) + chunk - 1) / chunk));
    free(t->subscribed);
    t->subscribed = NULL;
    return TR_OK;
}

int tr_merge_open(struct tr_table *t)
{
    tr_context *tr = t->tr;
    tr_merge_close(t);
    const struct tr_view_state *view = tr_merged_view(t);
    double sum[3] = {view ? (double)view->keys.units : 0, t->updating_views > 0, t->subscribed != NULL};
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, sum, 3, MPI_DOUBLE, MPI_SUM, tr->world, &request);
    tr_wait_alone(tr, &request, opening);
    TR_TRY(open_subscription(t, sum[1] > 0 && sum[2] > 0));
    if (sum[1] == 0) return TR_OK; /* nobody updates it */
    MPI_Comm comm = MPI_COMM_NULL;
    if (!t->merges_shared)
        tr_comm_split(tr, tr->world, t->server >= 0 || tr_works(tr) ? 0 : MPI_UNDEFINED, tr->rank, opening,
                      &comm);
    if (!t->merges_shared && comm == MPI_COMM_NULL) return TR_OK;
    struct tr_merge *m;
    TR_TRY(TR_NEW(&m, 1));
    t->merge = m;
    m->table = t;
    m->comm = comm;
    m->done = tr_table_next_update(t, 0);
    return t->merges_shared ? tr_shared_merge_open(t, &m->shared) : open_rounds(m, sum[0]);
}

void tr_merge_close(struct tr_table *t)
{
    struct tr_merge *m = t->merge;
    tr_subscription_close(t);
    if (!m) return;
    t->merge = NULL;
    if (m->shared) tr_shared_merge_close(m->shared);
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct lane *l = &m->lane[i];
        void *memory[] = {l->request, l->out, l->in, l->held, l->next};
        for (size_t k = 0; k < sizeof memory / sizeof *memory; k++) free(memory[k]);
    }
    tr_rounds_close(&m->rounds);
    tr_rounds_close(&m->spread);
    if (m->comm != MPI_COMM_NULL) MPI_Comm_free(&m->comm);
    free(m);
}

/* "direct", "in rounds of degree 4". */
static void describe_rounds(const struct tr_rounds *r, char *text, size_t size)
{
    if (r->degree >= r->size) snprintf(text, size, "direct");
    else snprintf(text, size, "in rounds of degree %d", r->degree);
}

void tr_merge_describe(const struct tr_table *t, char *text, size_t size)
{
    const struct tr_merge *m = t->merge;
    char up[32], down[32];
    if (!m) snprintf(text, size, "not merged");
    if (m && m->shared) snprintf(text, size, "merged near, in memory that the node shares");
    if (!m || m->shared) return;
    describe_rounds(&m->rounds, up, sizeof up);
    describe_rounds(&m->spread, down, sizeof down);
    int n = snprintf(text, size, "merged %s, in %u chunks a clock", up, m->rounds.chunks);
    if (m->spread.n > 0) snprintf(text + n, size - (size_t)n, "; rows come behind that %s", down);
}

#include "table/together.h"

#include <stdlib.h>
#include <string.h>

#include "shm/shm.h"
#include "table/channel.h"
#include "table/function.h"
#include "table/view.h"

enum { BUFFERS = 2, USES = TR_VIEW_GROUP + 1 };

/* In shared memory, one for each server that is read together; fetches are numbered from 0. */
struct line {
    _Atomic int64_t begun; /* fetches; the last is under way while begun > done */
    _Atomic int64_t done;
    struct {
        _Atomic int64_t holds;   /* all updates of clocks < holds are in it */
        _Atomic int64_t version; /* of the share, for functions */
        _Atomic int64_t readers; /* who are copying */
    } buffer[BUFFERS];           /* fetch f is in buffer f % buffers */
};

/* What the node has with one server, as this rank sees it. */
struct common {
    struct line *line; /* NULL: every worker reads for itself */
    char *buffer[BUFFERS];
    struct tr_segment all;     /* the union: entry i of position is unit i of a buffer */
    struct tr_segment own;     /* the view's keys, positions: in a buffer. local is the view's */
    struct tr_channel channel; /* fetches the union */
    bool prefers;              /* to fetch, if several want to at the same time */
    int64_t need;              /* fetches before this one lack an own update, or have been used */
    int64_t fetch;             /* under way by this rank */
    unsigned waited;           /* polls */
    enum { NOTHING, WANTED, CLAIMED, FETCHING } state;
};

struct tr_together {
    struct tr_together *next;
    struct tr_table *table;
    struct tr_view_state *view; /* of this rank; NULL: none, or it has been closed */
    uint32_t servers;
    int buffers;
    struct tr_shm memory;
    struct common *common; /* by server */
};

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- reading ---- */

bool tr_together_shares(const struct tr_together *p, uint32_t server)
{
    return p->common[server].own.n > 0;
}

void tr_together_read(struct tr_together *p, uint32_t server)
{
    struct common *k = &p->common[server];
    k->state = WANTED;
    k->waited = 0;
}

static bool is_usable(const struct tr_together *p, const struct common *k, int64_t fetch, int64_t holds)
{
    if (p->table->lockstep) return holds == p->view->least;
    return fetch >= k->need && holds >= p->view->least;
}

/* Copies the view's keys out of a buffer that nobody writes. */
static void copy_buffer(struct tr_together *p, uint32_t server, int64_t fetch)
{
    struct common *k = &p->common[server];
    int b = (int)(fetch % p->buffers);
    struct tr_view_state *v = p->view;
    int64_t holds = k->line->buffer[b].holds;
    tr_copy_share_to_view(&k->own, p->table->unit_bytes, k->buffer[b], v->into);
    v->channel[server].seen = k->line->buffer[b].version;
    if (holds < v->holds) v->holds = holds;
    k->need = fetch + 1;
    k->state = NOTHING;
}

/* Takes the latest of so many fetches if it will do. */
static void try_latest(struct tr_together *p, uint32_t server, int64_t done)
{
    struct common *k = &p->common[server];
    int64_t fetch = done - 1;
    if (fetch < 0) return;
    int b = (int)(fetch % p->buffers);
    atomic_fetch_add(&k->line->buffer[b].readers, 1);
    bool untouched = atomic_load(&k->line->begun) <= fetch + p->buffers; /* now nobody begins to write it */
    if (untouched && is_usable(p, k, fetch, k->line->buffer[b].holds)) copy_buffer(p, server, fetch);
    atomic_fetch_sub(&k->line->buffer[b].readers, 1);
}

/* Becomes the one who fetches, if nobody is fetching or has fetched since the latest was looked at. Where several
 * workers want to at the same time, they divide the servers: each at first claims only those that it prefers. */
static void try_claim(struct common *k, int64_t done)
{
    int64_t begun = done;
    if (!k->prefers && k->waited++ == 0) return;
    if (!atomic_compare_exchange_strong(&k->line->begun, &begun, done + 1)) return;
    k->fetch = done;
    k->state = CLAIMED;
}

static int start_fetch(struct tr_together *p, struct common *k)
{
    int b = (int)(k->fetch % p->buffers);
    if (atomic_load(&k->line->buffer[b].readers) > 0) return TR_OK;
    k->line->buffer[b].holds = p->table->tr->tables->written;
    k->state = FETCHING;
    return tr_channel_read(&k->channel, k->buffer[b], -1);
}

/* The own copy is made while nobody can begin to write the buffer again. */
static void publish(struct tr_together *p, uint32_t server)
{
    struct common *k = &p->common[server];
    int b = (int)(k->fetch % p->buffers);
    k->line->buffer[b].version = k->channel.seen;
    atomic_fetch_add(&k->line->buffer[b].readers, 1);
    atomic_store(&k->line->done, k->fetch + 1);
    copy_buffer(p, server, k->fetch);
    atomic_fetch_sub(&k->line->buffer[b].readers, 1);
}

int tr_together_poll(struct tr_together *p, uint32_t server, bool *done, int *did)
{
    struct common *k = &p->common[server];
    int before = (int)k->state;
    int64_t fetches = atomic_load(&k->line->done);
    if (k->state == WANTED) try_latest(p, server, fetches);
    if (k->state == WANTED) try_claim(k, fetches);
    if (k->state == CLAIMED) TR_TRY(start_fetch(p, k));
    if (k->state == FETCHING) {
        bool here;
        TR_TRY(tr_channel_poll(&k->channel, &here, did));
        if (here) publish(p, server);
    }
    *did += (int)k->state != before;
    *done = k->state == NOTHING;
    return TR_OK;
}

void tr_together_pushed(struct tr_together *p)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        struct common *k = &p->common[s];
        if (k->own.n == 0) continue;
        int64_t begun = atomic_load(&k->line->begun);
        if (k->need < begun) k->need = begun;
    }
}

bool tr_together_has_news(const struct tr_together *p, int64_t least)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        const struct common *k = &p->common[s];
        if (k->own.n == 0) continue;
        int64_t last = atomic_load(&k->line->begun) - 1;
        if (last < k->need) return false;
        bool under_way = atomic_load(&k->line->done) <= last; /* what it holds, its user will see */
        if (!under_way && k->line->buffer[last % p->buffers].holds < least) return false;
    }
    return true;
}

/* ---- finding what is common ---- */

/* A rank's units of each server on another node, for all ranks of this one. */
static void count_units(const struct tr_together *p, uint32_t *units)
{
    tr_context *tr = p->table->tr;
    uint32_t *mine = units + (size_t)tr->node_rank * p->servers;
    for (uint32_t s = 0; p->view && s < p->servers; s++)
        if (!tr_same_node(tr, p->view->channel[s].rank)) mine[s] = p->view->channel[s].segment->n;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, units, (int)p->servers, MPI_UINT32_T, tr->node);
}

static int readers_of(const struct tr_together *p, const uint32_t *units, uint32_t server)
{
    int readers = 0;
    for (int r = 0; r < p->table->tr->node_size; r++) readers += units[(size_t)r * p->servers + server] > 0;
    return readers;
}

/* Where a rank's list for a server begins in its part of the lists, counted in units. */
static size_t list_at(const struct tr_together *p, const uint32_t *units, int rank, uint32_t server)
{
    size_t at = 0;
    for (uint32_t s = 0; s < server; s++)
        if (readers_of(p, units, s) > 1) at += units[(size_t)rank * p->servers + s];
    return at;
}

/* Both are ascending; returns how many out has. */
static uint32_t unite(const uint32_t *a, uint32_t n, const uint32_t *b, uint32_t m, uint32_t *out)
{
    uint32_t i = 0, k = 0, count = 0;
    while (i < n || k < m) {
        uint32_t next = k == m || (i < n && a[i] <= b[k]) ? a[i] : b[k];
        i += i < n && a[i] == next;
        k += k < m && b[k] == next;
        out[count++] = next;
    }
    return count;
}

static bool node_agrees(tr_context *tr, int status)
{
    int well = status == TR_OK, all = 0;
    MPI_Allreduce(&well, &all, 1, MPI_INT, MPI_MIN, tr->node);
    return all;
}

/* The ranks of the node take the servers in turn: who unites the lists for a server, keeps its buffers and
 * registers. */
static bool keeps(const struct tr_together *p, uint32_t server)
{
    const tr_context *tr = p->table->tr;
    return (int)(server % (uint32_t)tr->node_size) == tr->node_rank;
}

/* Unites the lists of one server; nothing where that would not save a fifth. */
static int unite_lists(struct tr_together *p, const struct tr_shm *lists, const uint32_t *units,
                       uint32_t server)
{
    struct tr_segment *all = &p->common[server].all;
    uint64_t sum = 0;
    for (int r = 0; r < p->table->tr->node_size; r++) sum += units[(size_t)r * p->servers + server];
    uint32_t *other;
    TR_TRY(TR_NEW(&all->position, sum));
    TR_TRY(TR_NEW(&other, sum));
    for (int r = 0; r < p->table->tr->node_size; r++) {
        if (units[(size_t)r * p->servers + server] == 0) continue;
        const uint32_t *list = (const uint32_t *)(void *)lists->part[r].at + list_at(p, units, r, server);
        uint32_t *before = all->position;
        all->n = unite(before, all->n, list, units[(size_t)r * p->servers + server], other);
        all->position = other;
        other = before;
    }
    free(other);
    if ((uint64_t)all->n * 5 <= sum * 4) return TR_OK;
    free(all->position);
    *all = (struct tr_segment){.n = 0};
    return TR_OK;
}

/* The lists of all ranks in shared memory for a moment; each unites those of the servers that it keeps. */
static bool unite_all(struct tr_together *p, const uint32_t *units)
{
    tr_context *tr = p->table->tr;
    struct tr_shm lists;
    size_t bytes = list_at(p, units, tr->node_rank, p->servers) * sizeof(uint32_t);
    if (tr_shm_open(tr->node, bytes, false, &lists) != TR_OK) return false;
    char *mine = lists.part[tr->node_rank].at;
    for (uint32_t s = 0; p->view && s < p->servers; s++)
        if (readers_of(p, units, s) > 1 && units[(size_t)tr->node_rank * p->servers + s] > 0)
            memcpy((uint32_t *)(void *)mine + list_at(p, units, tr->node_rank, s),
                   p->view->channel[s].segment->position, p->view->channel[s].segment->n * sizeof(uint32_t));
    MPI_Barrier(tr->node);
    int status = TR_OK;
    for (uint32_t s = 0; s < p->servers && status == TR_OK; s++)
        if (keeps(p, s) && readers_of(p, units, s) > 1) status = unite_lists(p, &lists, units, s);
    bool well = node_agrees(tr, status);
    tr_shm_close(&lists);
    return well;
}

/* ---- what is in shared memory ---- */

/* What the keeper of a server tells the others; nothing for what every worker reads for itself. */
struct kept {
    uint64_t n, at, tag;
};

static size_t kept_bytes(const struct tr_together *p, uint64_t n)
{
    if (n == 0) return 0;
    return padded(sizeof(struct line)) + padded(n * sizeof(uint32_t)) +
           (size_t)p->buffers * padded(n * p->table->unit_bytes);
}

static void lay_out(struct tr_together *p, char *mine, const struct kept *kept)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        if (!keeps(p, s) || kept[s].n == 0) continue;
        char *part = mine + kept[s].at;
        memset(part, 0, sizeof(struct line));
        memcpy(part + padded(sizeof(struct line)), p->common[s].all.position, kept[s].n * sizeof(uint32_t));
    }
}

/* Ranks of a node are numbered as they are in the world. */
static int rank_on_node(const tr_context *tr, int node_rank)
{
    int rank = 0;
    while (!tr_same_node(tr, rank) || node_rank-- > 0) rank++;
    return rank;
}

/* Finds a server's part. The list of positions is read there from now on. */
static void find_part(struct tr_together *p, uint32_t server, const struct kept *kept)
{
    struct common *k = &p->common[server];
    int keeper = (int)(server % (uint32_t)p->table->tr->node_size);
    char *part = p->memory.part[keeper].at + kept->at;
    size_t n = (size_t)kept->n;
    k->line = (struct line *)(void *)part;
    part += padded(sizeof(struct line));
    free(k->all.position);
    k->all = (struct tr_segment){.n = (uint32_t)n, .position = (uint32_t *)(void *)part};
    part += padded(n * sizeof(uint32_t));
    for (int b = 0; b < p->buffers; b++) k->buffer[b] = part + (size_t)b * padded(n * p->table->unit_bytes);
    k->channel = tr_channel_of(p->table, server, &k->all, (uint32_t)kept->tag);
    k->channel.owner = rank_on_node(p->table->tr, keeper);
}

/* What every keeper keeps, and bytes of this rank's part. */
static size_t list_kept(struct tr_together *p, struct kept *kept)
{
    size_t bytes = 0;
    for (uint32_t s = 0; s < p->servers; s++) {
        uint64_t n = keeps(p, s) ? p->common[s].all.n : 0;
        if (n > 0) kept[s] = (struct kept){n, bytes, p->table->next_tag++};
        bytes += kept_bytes(p, n);
    }
    MPI_Allreduce(MPI_IN_PLACE, kept, (int)(3 * p->servers), MPI_UINT64_T, MPI_MAX, p->table->tr->node);
    return bytes;
}

static bool share_unions(struct tr_together *p)
{
    tr_context *tr = p->table->tr;
    struct kept *kept = NULL;
    if (!node_agrees(tr, TR_NEW(&kept, p->servers))) {
        free(kept);
        return false;
    }
    size_t bytes = list_kept(p, kept);
    bool some = false;
    for (uint32_t s = 0; s < p->servers; s++) some = some || kept[s].n > 0;
    bool well = some && tr_shm_open(tr->node, bytes, false, &p->memory) == TR_OK;
    if (well) {
        lay_out(p, p->memory.part[tr->node_rank].at, kept);
        MPI_Barrier(tr->node); /* nobody reads a part before it is laid out */
        for (uint32_t s = 0; s < p->servers; s++)
            if (kept[s].n > 0) find_part(p, s, &kept[s]);
    }
    free(kept);
    return well;
}

/* ---- what is the view's ---- */

/* Where the view's units lie in a buffer. */
static int find_own(struct common *k, const struct tr_segment *view)
{
    TR_TRY(TR_NEW(&k->own.position, view->n));
    k->own.local = view->local;
    k->own.n = view->n;
    for (uint32_t i = 0, at = 0; i < view->n; i++) {
        while (k->all.position[at] != view->position[i]) at++;
        k->own.position[i] = at;
    }
    return tr_segment_find_runs(&k->own);
}

/* The runs of a union decide on its route, and are what a get is made of. */
static int find_runs_of_union(struct tr_segment *all)
{
    TR_TRY(TR_NEW(&all->local, all->n));
    for (uint32_t i = 0; i < all->n; i++) all->local[i] = i;
    int status = tr_segment_find_runs(all);
    free(all->local);
    all->local = NULL;
    return status;
}

static int join_server(struct tr_together *p, uint32_t server)
{
    struct common *k = &p->common[server];
    struct tr_channel *own = &p->view->channel[server], *c = &k->channel;
    TR_TRY(find_own(k, own->segment));
    TR_TRY(find_runs_of_union(&k->all));
    c->exact = own->exact;
    return tr_channel_open(c, false);
}

static int join(struct tr_together *p, const uint32_t *units)
{
    tr_context *tr = p->table->tr;
    bool any = false;
    for (uint32_t s = 0; p->view && s < p->servers; s++) {
        if (!p->common[s].line || units[(size_t)tr->node_rank * p->servers + s] == 0) continue;
        TR_TRY(join_server(p, s));
        any = true;
        int before = 0;
        for (int r = 0; r < tr->node_rank; r++) before += units[(size_t)r * p->servers + s] > 0;
        p->common[s].prefers = (int)(s % (uint32_t)readers_of(p, units, s)) == before;
    }
    if (any) p->view->together = p;
    return TR_OK;
}

/* ---- opening and closing ---- */

static void close_reading(struct common *k)
{
    if (k->line) tr_channel_close(&k->channel);
    if (!k->line) free(k->all.position);
    free(k->all.run);
    free(k->own.position);
    free(k->own.run);
}

void tr_together_leave(struct tr_together *p)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        struct common *k = &p->common[s];
        k->own.n = 0;
    }
    p->view->together = NULL;
    p->view = NULL;
}

void tr_together_forget(struct tr_table *t)
{
    for (struct tr_together *p = t->together; p; p = p->next) {
        if (p->view) tr_together_leave(p);
        for (uint32_t s = 0; s < p->servers; s++) {
            struct tr_channel *c = &p->common[s].channel;
            if (c->registered) (void)tr_message_forget(t, c->rank, c->tag);
            c->registered = false;
        }
    }
}

static void free_one(struct tr_together *p)
{
    if (p->view && p->view->together == p) tr_together_leave(p);
    for (uint32_t s = 0; p->common && s < p->servers; s++) close_reading(&p->common[s]);
    tr_shm_close(&p->memory);
    free(p->common);
    free(p);
}

void tr_together_free(struct tr_table *t)
{
    while (t->together) {
        struct tr_together *next = t->together->next;
        free_one(t->together);
        t->together = next;
    }
}

static bool build(struct tr_together *p, uint32_t *units)
{
    bool some = false;
    count_units(p, units);
    for (uint32_t s = 0; s < p->servers; s++) some = some || readers_of(p, units, s) > 1;
    return some && unite_all(p, units) && share_unions(p) && node_agrees(p->table->tr, join(p, units));
}

/* One set of views, one of each worker of the node or none; all ranks of the node. */
static void open_one(struct tr_table *t, struct tr_view_state *view)
{
    tr_context *tr = t->tr;
    uint32_t *units = NULL;
    struct tr_together *p = NULL;
    int status = TR_NEW(&p, 1);
    if (p) p->memory = TR_SHM_CLOSED;
    if (p) status = TR_NEW(&p->common, t->partition.servers);
    if (status == TR_OK) status = TR_NEW(&units, (size_t)tr->node_size * t->partition.servers);
    bool well = node_agrees(tr, status);
    if (well) {
        p->table = t;
        p->view = view;
        p->servers = t->partition.servers;
        p->buffers = t->lockstep ? 1 : BUFFERS;
        well = build(p, units);
    }
    free(units);
    if (well) {
        p->next = t->together;
        t->together = p;
    } else if (p) {
        free_one(p);
    }
}

/* The i-th view that was opened for a use, or NULL: tags ascend. Members that their leader serves do not count. */
static struct tr_view_state *find_view(const struct tr_table *t, int use, uint32_t i)
{
    const struct tr_tables *tables = t->tr->tables;
    for (uint32_t tag = 0;; i--) {
        struct tr_view_state *next = NULL;
        for (size_t k = 0; k < tables->view_count; k++) {
            struct tr_view_state *v = tables->views[k];
            if (v->view.table != t || (int)v->use != use || !v->channel || v->tag <= tag) continue;
            if (!next || v->tag < next->tag) next = v;
        }
        if (!next || i == 0) return next;
        tag = next->tag;
    }
}

static bool may_share(const struct tr_table *t)
{
    const tr_context *tr = t->tr;
    if (tr->job && !tr->job->table.share_pulls) return false;
    return tr->layout.nodes > 1 && tr->node_size > 1 && !t->hash && !(t->use && t->use->function.read);
}

static void open_all(struct tr_table *t)
{
    int views[USES] = {0};
    if (!may_share(t)) return;
    for (int use = 0; use < USES; use++)
        while (find_view(t, use, (uint32_t)views[use])) views[use]++;
    MPI_Allreduce(MPI_IN_PLACE, views, USES, MPI_INT, MPI_MAX, t->tr->node);
    for (int use = 0; use < USES; use++)
        for (int i = 0; i < views[use]; i++) open_one(t, find_view(t, use, (uint32_t)i));
}

static int register_unions(struct tr_table *t)
{
    for (struct tr_together *p = t->together; p; p = p->next)
        for (uint32_t s = 0; s < p->servers; s++)
            if (p->common[s].line && keeps(p, s)) TR_TRY(tr_channel_register(&p->common[s].channel, 0));
    return TR_OK;
}

int tr_together_open(tr_context *tr)
{
    int status = TR_OK;
    if (tr->active != &tr->all) return TR_OK; /* not all ranks are there when a stage of a task reads */
    /* first what nodes do among themselves without polling, then what needs the servers of other nodes */
    for (size_t i = 0; i < tr->tables->count; i++) open_all(tr->tables->table[i]);
    for (size_t i = 0; i < tr->tables->count && status == TR_OK; i++)
        status = register_unions(tr->tables->table[i]);
    return tr_agree(tr, status);
}

/* ---- for people ---- */

void tr_together_describe(const struct tr_together *p, char *text, size_t size)
{
    unsigned servers = 0;
    for (uint32_t s = 0; s < p->servers; s++) servers += p->common[s].own.n > 0;
    snprintf(text, size, " (%u together with the node)", servers);
}

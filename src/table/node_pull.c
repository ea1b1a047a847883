#include "table/node_pull.h"

#include <stdlib.h>
#include <string.h>

#include "table/channel.h"
#include "table/function.h"
#include "table/node_cache.h"

enum { USES = TR_VIEW_GROUP + 1 };

/* What the node has with one server, as this rank sees it. */
struct source {
    struct tr_node_cache cache; /* one item: the values of the union. None: every worker reads for itself */
    struct tr_segment all;      /* the union: entry i of position is unit i of the values */
    struct tr_segment own;      /* the view's keys, positions: among those. local is the view's */
    struct tr_channel channel;  /* fetches the union */
    bool prefers;               /* to fetch, if several want to at the same time */
    uint64_t after;             /* fetches up to this one lack an own update, or have been used */
    unsigned waited;            /* polls */
    enum { NOTHING, WANTED, FETCHING } state;
};

struct tr_node_pull {
    struct tr_node_pull *next;
    struct tr_table *table;
    struct tr_view_state *view; /* of this rank; NULL: none, or it has been closed */
    uint32_t servers;
    struct tr_shm memory;  /* by rank: unions and caches that it keeps */
    struct source *source; /* by server */
};

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- reading ---- */

bool tr_node_pull_shares(const struct tr_node_pull *p, uint32_t server)
{
    return p->source[server].own.n > 0;
}

void tr_node_pull_read(struct tr_node_pull *p, uint32_t server)
{
    p->source[server].state = WANTED;
    p->source[server].waited = 0;
}

static struct tr_cache_terms terms_of(const struct tr_node_pull *p, const struct source *s, int64_t least)
{
    return (struct tr_cache_terms){p->table->lockstep, least, p->table->lockstep ? 0 : s->after};
}

/* Copies the view's keys out of values that nobody writes. */
static void copy_own(struct tr_node_pull *p, uint32_t server, const struct tr_cache_fetch *fetch)
{
    struct source *s = &p->source[server];
    struct tr_view_state *v = p->view;
    tr_copy_share_to_view(&s->own, p->table->unit_bytes, tr_cache_value(&s->cache, 0), v->into);
    v->channel[server].seen = fetch->version;
    if (fetch->holds < v->holds) v->holds = fetch->holds;
    s->after = fetch->number;
    s->state = NOTHING;
}

/* Takes the latest fetch if it will do, or becomes the one who fetches. Where several workers want to at the same
 * time, they divide the servers: each at first claims only those that it prefers. */
static int take_or_claim(struct tr_node_pull *p, uint32_t server)
{
    struct source *s = &p->source[server];
    struct tr_cache_terms terms = terms_of(p, s, p->view->least);
    struct tr_cache_fetch fetch;
    enum tr_cache_state state = tr_cache_take(&s->cache, 0, &terms, &fetch);
    if (state == TR_CACHE_HERE) {
        copy_own(p, server, &fetch);
        tr_cache_give_back(&s->cache, 0);
    }
    if (state != TR_CACHE_NONE || (!s->prefers && s->waited++ == 0)) return TR_OK;
    if (tr_cache_claim(&s->cache, 0, &terms, p->table->tr->tables->written) != TR_CACHE_CLAIMED) return TR_OK;
    s->state = FETCHING;
    return tr_channel_read(&s->channel, tr_cache_value(&s->cache, 0), -1);
}

int tr_node_pull_poll(struct tr_node_pull *p, uint32_t server, bool *done, int *did)
{
    struct source *s = &p->source[server];
    int before = (int)s->state;
    bool here = false;
    if (s->state == WANTED) TR_TRY(take_or_claim(p, server));
    if (s->state == FETCHING) TR_TRY(tr_channel_poll(&s->channel, &here, did));
    if (here) {
        struct tr_cache_fetch fetch = tr_cache_fetched(&s->cache, 0, s->channel.seen);
        copy_own(p, server, &fetch); /* while nobody can claim it again */
        tr_cache_put(&s->cache, 0, true);
    }
    *did += (int)s->state != before;
    *done = s->state == NOTHING;
    return TR_OK;
}

void tr_node_pull_pushed(struct tr_node_pull *p)
{
    for (uint32_t s = 0; s < p->servers; s++)
        if (p->source[s].own.n > 0) p->source[s].after = tr_cache_number(&p->source[s].cache);
}

bool tr_node_pull_has_news(const struct tr_node_pull *p, int64_t least)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        struct tr_cache_terms terms = terms_of(p, &p->source[s], least);
        if (p->source[s].own.n > 0 && !tr_cache_has_news(&p->source[s].cache, 0, &terms)) return false;
    }
    return true;
}

/* ---- finding what is common ---- */

static const char opening[] = "the ranks of this node to find what they pull together";

static bool node_agrees(tr_context *tr, int status)
{
    int well = status == TR_OK;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, tr->node, &request);
    tr_wait_alone(tr, &request, opening);
    return well;
}

/* Who unites the lists for a server, keeps its cache and registers: the ranks of the node in turn. */
static int keeper_of(const struct tr_node_pull *p, uint32_t server)
{
    return (int)(server % (uint32_t)p->table->tr->node_size);
}

/* Ranks before a number of the node that read from a server on another node. */
static int readers_before(const struct tr_node_pull *p, const uint32_t *units, uint32_t server, int node_rank)
{
    int readers = 0;
    for (int r = 0; r < node_rank; r++) readers += units[(size_t)r * p->servers + server] > 0;
    return readers;
}

/* The units that any of these lists of some readers has, ascending; nothing where fetching them for all would not save a
 * fifth. Under BSP they are fetched once a clock; else more often the more readers there are, who are not in step: 1.6 times by
 * four (measured). */
static int unite(const struct tr_node_pull *p, uint32_t server, const uint32_t *list, size_t n, int readers,
                 struct tr_segment *all)
{
    uint64_t fifths = p->table->lockstep ? 5 : 4 + (uint64_t)readers;
    uint64_t *has, words = tr_partition_share(&p->table->partition, server) / 64 + 1;
    TR_TRY(TR_NEW(&has, words));
    for (size_t i = 0; i < n; i++) has[list[i] / 64] |= UINT64_C(1) << list[i] % 64;
    for (uint64_t w = 0; w < words; w++) all->n += (uint32_t)__builtin_popcountll(has[w]);
    if (all->n * fifths > n * 4) all->n = 0;
    int status = all->n > 0 ? TR_NEW(&all->position, all->n) : TR_OK;
    size_t at = 0;
    for (uint64_t w = 0; w < words && all->position; w++)
        for (uint64_t bits = has[w]; bits; bits &= bits - 1)
            all->position[at++] = (uint32_t)(64 * w + (uint64_t)__builtin_ctzll(bits));
    free(has);
    return status;
}

/* Gathers the lists of all ranks for a server at its keeper. */
static bool unite_lists(struct tr_node_pull *p, const uint32_t *units, uint32_t server)
{
    tr_context *tr = p->table->tr;
    int *count = NULL, *at = NULL, status = TR_NEW(&count, 2 * (size_t)tr->node_size);
    bool keeps = keeper_of(p, server) == tr->node_rank;
    uint32_t *list = NULL;
    size_t sum = 0;
    for (int r = 0; count && r < tr->node_size; r++) {
        at = count + tr->node_size;
        at[r] = (int)sum;
        count[r] = (int)units[(size_t)r * p->servers + server];
        sum += (size_t)count[r];
    }
    if (status == TR_OK && keeps) status = TR_NEW(&list, sum);
    bool well = node_agrees(tr, status);
    if (well) {
        const uint32_t *own = count[tr->node_rank] ? p->view->channel[server].segment->position : NULL;
        MPI_Request request;
        MPI_Igatherv(own, count[tr->node_rank], MPI_UINT32_T, list, count, at, MPI_UINT32_T,
                     keeper_of(p, server), tr->node, &request);
        tr_wait_alone(tr, &request, opening);
        int readers = readers_before(p, units, server, tr->node_size);
        if (keeps) status = unite(p, server, list, sum, readers, &p->source[server].all);
        well = node_agrees(tr, status);
    }
    free(count);
    free(list);
    return well;
}

/* ---- what is in shared memory ---- */

/* What the keeper of a server tells the others: units of the union, where the list of their positions begins in its
 * memory, with the cache behind it, and the tag. Nothing for what every worker reads for itself. */
struct kept {
    uint64_t n, at, tag;
};

static size_t kept_bytes(const struct tr_node_pull *p, uint64_t n)
{
    return n == 0 ? 0 : padded(n * sizeof(uint32_t)) + tr_cache_bytes(1, n * p->table->unit_bytes);
}

/* Finds a server's part, which its keeper writes. The list of positions is read there from now on. */
static void find_part(struct tr_node_pull *p, uint32_t server, const struct kept *kept)
{
    tr_context *tr = p->table->tr;
    struct source *s = &p->source[server];
    int keeper = keeper_of(p, server), owner = 0;
    char *part = p->memory.part[keeper].at + kept->at;
    size_t list = kept->n * sizeof(uint32_t);
    s->cache = tr_cache_at(part + padded(list), 1, kept->n * p->table->unit_bytes);
    if (keeper == tr->node_rank) {
        memcpy(part, s->all.position, list);
        tr_cache_clear(&s->cache);
        memset(tr_cache_value(&s->cache, 0), 0, kept->n * p->table->unit_bytes); /* see tr_pull_differs() */
    }
    free(s->all.position);
    s->all = (struct tr_segment){.n = (uint32_t)kept->n, .position = (uint32_t *)(void *)part};
    while (!tr_same_node(tr, owner) || tr_node_rank(tr, owner) != keeper) owner++;
    s->channel = tr_channel_of(p->table, server, &s->all, (uint32_t)kept->tag);
    s->channel.owner = owner;
}

static bool share_unions(struct tr_node_pull *p)
{
    tr_context *tr = p->table->tr;
    struct kept *kept = NULL;
    size_t bytes = 0;
    bool some = false, well = node_agrees(tr, TR_NEW(&kept, p->servers));
    for (uint32_t s = 0; well && s < p->servers; s++) {
        uint64_t n = p->source[s].all.n; /* 0 but at the keeper */
        if (n > 0) kept[s] = (struct kept){n, bytes, p->table->next_tag++};
        bytes += kept_bytes(p, n);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (well)
        MPI_Iallreduce(MPI_IN_PLACE, kept, (int)(3 * p->servers), MPI_UINT64_T, MPI_MAX, tr->node, &request);
    tr_wait_alone(tr, &request, opening);
    for (uint32_t s = 0; well && s < p->servers; s++) some = some || kept[s].n > 0;
    well = some && tr_shm_open(tr, tr->node, bytes, false, &p->memory) == TR_OK;
    for (uint32_t s = 0; well && s < p->servers; s++)
        if (kept[s].n > 0) find_part(p, s, &kept[s]);
    if (well) tr_meet(tr, tr->node, opening); /* nobody reads a part before it is written */
    free(kept);
    return well;
}

/* ---- what is the view's ---- */

/* Where the view's units lie among the values. */
static int find_own(struct source *s, const struct tr_segment *view)
{
    TR_TRY(TR_NEW(&s->own.position, view->n));
    s->own.local = view->local;
    s->own.n = view->n;
    for (uint32_t i = 0, at = 0; i < view->n; i++) {
        while (s->all.position[at] != view->position[i]) at++;
        s->own.position[i] = at;
    }
    return tr_segment_find_runs(&s->own);
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

static int join(struct tr_node_pull *p, const uint32_t *units)
{
    int me = p->table->tr->node_rank, all = p->table->tr->node_size;
    for (uint32_t server = 0; p->view && server < p->servers; server++) {
        struct source *s = &p->source[server];
        const struct tr_channel *own = &p->view->channel[server];
        if (!s->cache.head || units[(size_t)me * p->servers + server] == 0) continue;
        TR_TRY(find_own(s, own->segment));
        TR_TRY(find_runs_of_union(&s->all));
        s->channel.exact = own->exact;
        TR_TRY(tr_channel_open(&s->channel, false));
        uint32_t readers = (uint32_t)readers_before(p, units, server, all);
        s->prefers = (int)(server % readers) == readers_before(p, units, server, me);
        p->view->node_pull = p;
    }
    return TR_OK;
}

/* ---- opening and closing ---- */

void tr_node_pull_leave(struct tr_node_pull *p)
{
    for (uint32_t s = 0; s < p->servers; s++) p->source[s].own.n = 0;
    p->view->node_pull = NULL;
    p->view = NULL;
}

void tr_node_pull_forget(struct tr_table *t)
{
    for (struct tr_node_pull *p = t->node_pulls; p; p = p->next) {
        if (p->view) tr_node_pull_leave(p);
        for (uint32_t s = 0; s < p->servers; s++) {
            if (p->source[s].cache.head) tr_channel_forget(&p->source[s].channel);
        }
    }
}

static void free_one(struct tr_node_pull *p)
{
    if (p->view && p->view->node_pull == p) tr_node_pull_leave(p);
    for (uint32_t i = 0; p->source && i < p->servers; i++) {
        struct source *s = &p->source[i];
        if (s->cache.head) tr_channel_close(&s->channel);
        else free(s->all.position);
        free(s->all.run);
        free(s->own.position);
        free(s->own.run);
    }
    tr_shm_close(&p->memory);
    free(p->source);
    free(p);
}

void tr_node_pull_free(struct tr_table *t)
{
    for (struct tr_node_pull *p; (p = t->node_pulls); free_one(p)) t->node_pulls = p->next;
}

static bool build(struct tr_node_pull *p, uint32_t *units)
{
    tr_context *tr = p->table->tr;
    uint32_t *mine = units + (size_t)tr->node_rank * p->servers;
    bool well = true;
    for (uint32_t s = 0; p->view && s < p->servers; s++)
        if (!tr_same_node(tr, p->view->channel[s].rank)) mine[s] = p->view->channel[s].segment->n;
    MPI_Request request;
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, units, (int)p->servers, MPI_UINT32_T, tr->node,
                   &request);
    tr_wait_alone(tr, &request, opening);
    for (uint32_t s = 0; s < p->servers && well; s++)
        if (readers_before(p, units, s, tr->node_size) > 1) well = unite_lists(p, units, s);
    return well && share_unions(p) && node_agrees(tr, join(p, units));
}

/* One set of views, one of each worker of the node or none; all ranks of the node. */
static void open_one(struct tr_table *t, struct tr_view_state *view)
{
    tr_context *tr = t->tr;
    uint32_t *units = NULL;
    struct tr_node_pull *p = NULL;
    int status = TR_NEW(&p, 1);
    if (p)
        *p = (struct tr_node_pull){
            .table = t, .view = view, .servers = t->partition.servers, .memory = TR_SHM_CLOSED};
    if (p) status = TR_NEW(&p->source, p->servers);
    if (status == TR_OK) status = TR_NEW(&units, (size_t)tr->node_size * p->servers);
    bool well = node_agrees(tr, status) && build(p, units);
    free(units);
    if (well) {
        p->next = t->node_pulls;
        t->node_pulls = p;
    } else if (p) {
        free_one(p);
    }
}

/* The i-th view that was opened for a use, or NULL: tags ascend. Members that their leader serves do not count. */
static struct tr_view_state *find_view(const struct tr_table *t, int use, int i)
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

static void open_all(struct tr_table *t)
{
    tr_context *tr = t->tr;
    int views[USES] = {0};
    if ((tr->job && !tr->job->table.share_pulls) || tr->layout.nodes == 1 || tr->node_size == 1) return;
    if (t->hash || (t->use && t->use->function.read)) return;
    for (int use = 0; use < USES; use++)
        while (find_view(t, use, views[use])) views[use]++;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, views, USES, MPI_INT, MPI_MAX, tr->node, &request);
    tr_wait_alone(tr, &request, opening);
    for (int use = 0; use < USES; use++)
        for (int i = 0; i < views[use]; i++) open_one(t, find_view(t, use, i));
}

static int register_unions(struct tr_table *t)
{
    for (struct tr_node_pull *p = t->node_pulls; p; p = p->next)
        for (uint32_t s = 0; s < p->servers; s++)
            if (p->source[s].cache.head && keeper_of(p, s) == t->tr->node_rank)
                TR_TRY(tr_channel_register(&p->source[s].channel, 0));
    return TR_OK;
}

/* The keeper of some servers measures one of them for all. */
static int measure_unions(struct tr_node_pull *p)
{
    const struct tr_channel *measured = NULL;
    for (uint32_t s = 0; s < p->servers; s++) {
        struct tr_channel *c = &p->source[s].channel;
        if (!p->source[s].cache.head || keeper_of(p, s) != p->table->tr->node_rank || !c->measures) continue;
        if (!measured) TR_TRY(tr_channel_measure(c));
        else c->route = measured->route;
        if (!measured) measured = c;
    }
    return TR_OK;
}

/* Every worker of the node reads as the keeper has found. */
static int share_routes(struct tr_node_pull *p)
{
    tr_context *tr = p->table->tr;
    MPI_Request request;
    int *route, status;
    TR_TRY(TR_NEW(&route, p->servers));
    for (uint32_t s = 0; s < p->servers; s++)
        if (keeper_of(p, s) == tr->node_rank) route[s] = p->source[s].channel.route;
    MPI_Iallreduce(MPI_IN_PLACE, route, (int)p->servers, MPI_INT, MPI_MAX, tr->node, &request);
    status = tr_wait_request(tr, &request, "the other ranks of the node to measure routes");
    for (uint32_t s = 0; s < p->servers && status == TR_OK; s++)
        if (p->source[s].channel.measures && route[s] != TR_ROUTE_AUTO) p->source[s].channel.route = route[s];
    free(route);
    return status;
}

int tr_node_pull_measure(tr_context *tr)
{
    int status = TR_OK;
    for (size_t i = 0; i < tr->tables->count && status == TR_OK; i++)
        for (struct tr_node_pull *p = tr->tables->table[i]->node_pulls; p && status == TR_OK; p = p->next)
            status = measure_unions(p);
    TR_TRY(tr_agree(tr, status));
    for (size_t i = 0; i < tr->tables->count; i++)
        for (struct tr_node_pull *p = tr->tables->table[i]->node_pulls; p; p = p->next)
            TR_TRY(share_routes(p));
    return TR_OK;
}

void tr_node_pull_measured(const struct tr_node_pull *p, struct tr_measured *measured)
{
    for (uint32_t s = 0; s < p->servers; s++)
        if (p->source[s].channel.measured.get > 0) *measured = p->source[s].channel.measured;
}

int tr_node_pull_route(const struct tr_node_pull *p, uint32_t server)
{
    return p->source[server].channel.route;
}

int tr_node_pull_open(tr_context *tr)
{
    int status = TR_OK;
    if (tr->active != &tr->all) return TR_OK; /* not all ranks are there when a stage of a task reads */
    /* first what nodes do among themselves without polling, then what needs the servers of other nodes */
    for (size_t i = 0; i < tr->tables->count; i++) open_all(tr->tables->table[i]);
    for (size_t i = 0; i < tr->tables->count && status == TR_OK; i++)
        status = register_unions(tr->tables->table[i]);
    return tr_agree(tr, status);
}

void tr_node_pull_describe(const struct tr_node_pull *p, char *text, size_t size)
{
    unsigned servers = 0;
    for (uint32_t s = 0; s < p->servers; s++) servers += p->source[s].own.n > 0;
    snprintf(text, size, " (%u together with the node)", servers);
}

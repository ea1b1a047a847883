/* Reads that the workers of a node share: caches, node pulls and subscriptions (view.h). */
#include <stdlib.h>
#include <string.h>

#include "table/view.h"

/* ======== caches ======== */

struct cache_entry {
    atomic_uint lock;
    uint32_t readers;
    enum { EMPTY, COMING, HERE } state;
    uint64_t item;
    struct tr_cache_fetch fetch;
};

struct tr_cache_head {
    _Atomic uint64_t fetches;
    char pad[56];
    struct cache_entry entry[];
};

/* ---- memory ---- */

static size_t node_padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t cache_values_offset(uint64_t entries)
{
    return node_padded(sizeof(struct tr_cache_head) + entries * sizeof(struct cache_entry));
}

size_t tr_cache_bytes(uint64_t entries, size_t value_bytes)
{
    return cache_values_offset(entries) + entries * node_padded(value_bytes);
}

struct tr_node_cache tr_cache_at(void *memory, uint64_t entries, size_t value_bytes)
{
    return (struct tr_node_cache){memory, (char *)memory + cache_values_offset(entries), entries,
                                  node_padded(value_bytes)};
}

uint64_t tr_cache_number(const struct tr_node_cache *c)
{
    return atomic_load(&c->head->fetches);
}

void *tr_cache_value(const struct tr_node_cache *c, uint64_t item)
{
    return c->value + item % c->entries * c->stride;
}

/* ---- entries ---- */

static struct cache_entry *cache_lock(struct tr_node_cache *c, uint64_t item)
{
    struct cache_entry *e = &c->head->entry[item % c->entries];
    tr_spin_lock(&e->lock);
    return e;
}

/* Returns whether the entry has, or is receiving, a fetch of the item with a number above terms->after. */
static bool cache_is_new(const struct cache_entry *e, uint64_t item, const struct tr_cache_terms *terms)
{
    return e->state != EMPTY && e->item == item && e->fetch.number > terms->after;
}

/* Returns whether the fetch in the entry has a number above terms->after and contains the updates that terms->least demands. */
static bool cache_suits(const struct cache_entry *e, uint64_t item, const struct tr_cache_terms *terms)
{
    bool holds = terms->lockstep ? e->fetch.holds == terms->least : e->fetch.holds >= terms->least;
    return holds && cache_is_new(e, item, terms);
}

enum tr_cache_state tr_cache_claim(struct tr_node_cache *c, uint64_t item, const struct tr_cache_terms *terms,
                                   int64_t holds)
{
    struct cache_entry *e = cache_lock(c, item);
    enum tr_cache_state state = TR_CACHE_NONE;
    if (cache_suits(e, item, terms)) {
        state = e->state == HERE ? TR_CACHE_HERE : TR_CACHE_COMING;
    } else if (e->state != COMING && e->readers == 0) {
        e->state = COMING;
        e->item = item;
        e->fetch.holds = holds;
        e->fetch.number = atomic_fetch_add(&c->head->fetches, 1) + 1;
        state = TR_CACHE_CLAIMED;
    }
    tr_spin_unlock(&e->lock);
    return state;
}

struct tr_cache_fetch tr_cache_fetched(struct tr_node_cache *c, uint64_t item, int64_t version)
{
    struct cache_entry *e = cache_lock(c, item);
    e->fetch.version = version;
    struct tr_cache_fetch fetch = e->fetch;
    tr_spin_unlock(&e->lock);
    return fetch;
}

void tr_cache_put(struct tr_node_cache *c, uint64_t item, bool fetched)
{
    struct cache_entry *e = cache_lock(c, item);
    e->state = fetched ? HERE : EMPTY;
    tr_spin_unlock(&e->lock);
}

enum tr_cache_state tr_cache_take(struct tr_node_cache *c, uint64_t item, const struct tr_cache_terms *terms,
                                  struct tr_cache_fetch *fetch)
{
    struct cache_entry *e = cache_lock(c, item);
    enum tr_cache_state state = TR_CACHE_NONE;
    if (cache_suits(e, item, terms)) {
        state = e->state == HERE ? TR_CACHE_HERE : TR_CACHE_COMING;
        e->readers += state == TR_CACHE_HERE;
        if (fetch) *fetch = e->fetch;
    }
    tr_spin_unlock(&e->lock);
    return state;
}

void tr_cache_give_back(struct tr_node_cache *c, uint64_t item)
{
    struct cache_entry *e = cache_lock(c, item);
    e->readers--;
    tr_spin_unlock(&e->lock);
}

/* ======== unions ======== */

/* The union of sets of numbers of the ranks of a node: a bitmap in shared memory. The order of calls is union_open(), union_add(),
 * union_seal(), union_index() and union_list(). After union_clear(), numbers of another union can be added. Open, seal and clear
 * are collective over the ranks of the node. */
struct node_union {
    tr_context *tr;
    size_t words;
    _Atomic uint64_t *word; /* bit i % 64 of word i / 64: number i is in the union */
    uint32_t *before;       /* before[w]: number of set bits below word w; words + 1 entries */
    struct tr_shm memory;
    const char *whom; /* description of the event that ranks wait for, shown if it takes too long */
};

/* Opens a union of numbers below `limit`. TR_ERR_SYSTEM, on all ranks of the node: out of memory. */
static int union_open(tr_context *tr, uint64_t limit, const char *whom, struct node_union *u)
{
    size_t words = (size_t)(limit / 64 + 1),
           bytes = words * sizeof *u->word + (words + 1) * sizeof *u->before;
    *u = (struct node_union){.tr = tr, .words = words, .memory = TR_SHM_CLOSED, .whom = whom};
    TR_TRY(tr_shm_open(tr, tr->node, tr->node_rank == 0 ? bytes : 0, true, &u->memory));
    u->word = (_Atomic uint64_t *)(void *)u->memory.part[0].at;
    u->before = (uint32_t *)(void *)(u->word + words);
    return TR_OK;
}

static void union_add(struct node_union *u, uint64_t number)
{
    atomic_fetch_or_explicit(&u->word[number / 64], UINT64_C(1) << number % 64, memory_order_relaxed);
}

/* Completes the union, and returns the number of its elements. */
static uint32_t union_seal(struct node_union *u)
{
    tr_meet(u->tr, u->tr->node, u->whom);
    for (size_t w = 0; w < u->words && u->tr->node_rank == 0; w++)
        u->before[w + 1] = u->before[w] + (uint32_t)__builtin_popcountll(u->word[w]);
    tr_meet(u->tr, u->tr->node, u->whom);
    return u->before[u->words];
}

/* Returns the index of a number in the union, which is the number of lower elements of the union. */
static uint32_t union_index(const struct node_union *u, uint64_t number)
{
    uint64_t below = u->word[number / 64] & ((UINT64_C(1) << number % 64) - 1);
    return u->before[number / 64] + (uint32_t)__builtin_popcountll(below);
}

/* Writes the elements of the union with indices first .. end - 1, in ascending order, to `number`. */
static void union_list(const struct node_union *u, size_t first, size_t end, uint64_t *number)
{
    for (size_t w = 0; w < u->words; w++) {
        if (u->before[w + 1] <= first || u->before[w] >= end) continue;
        size_t index = u->before[w];
        for (uint64_t left = u->word[w]; left; left &= left - 1, index++)
            if (index >= first && index < end) *number++ = 64 * w + (uint64_t)__builtin_ctzll(left);
    }
}

/* ======== node pulls ======== */

enum { USES = TR_VIEW_GROUP + 1 };

/* The part of a node pull that reads from one server. */
struct node_source {
    struct tr_node_cache cache; /* cache of one item, the values of the union; or no cache */
    struct tr_segment all;      /* keys of the union; its `local` is NULL */
    struct tr_segment own;      /* units of this rank's view; their positions are indices in the union */
    /* on the keeper (see node_pull_keeper()): positions of the union, until they are in shared memory */
    uint64_t *list;
    struct tr_channel channel; /* reads the keys of the union from the server into the cache */
    bool prefers;              /* this rank fetches first if several ranks need the values at the same time */
    uint64_t after;            /* without BSP: fetches <= after lack an own update, or were used */
    unsigned waited;           /* number of polls in state WANTED */
    enum { NOTHING, WANTED, FETCHING } state;
};

struct tr_node_pull {
    struct tr_node_pull *next;
    struct tr_table *table;
    struct tr_view_state *view; /* view of this rank; NULL: there is none, or it has been closed */
    uint32_t servers;
    struct tr_shm memory;       /* contains the unions and caches of all servers */
    struct node_source *source; /* one element per server */
};

/* ---- reading ---- */

int tr_node_pull_route(const struct tr_node_pull *p, uint32_t server)
{
    return p->source[server].own.n > 0 ? p->source[server].channel.route : -1;
}

void tr_node_pull_read(struct tr_node_pull *p, uint32_t server)
{
    p->source[server].state = WANTED;
    p->source[server].waited = 0;
}

/* Copies the values of the view's keys from the cache, whose entry the caller has taken or claimed. */
static void node_pull_copy(struct tr_node_pull *p, uint32_t server, const struct tr_cache_fetch *fetch)
{
    struct node_source *s = &p->source[server];
    struct tr_view_state *v = p->view;
    tr_copy_segment(&s->own, p->table->unit_bytes, tr_cache_value(&s->cache, 0), v->into);
    v->channel[server].seen = fetch->version;
    if (fetch->holds < v->holds) v->holds = fetch->holds;
    if (!p->table->lockstep) s->after = fetch->number;
    s->state = NOTHING;
}

int tr_node_pull_poll(struct tr_node_pull *p, uint32_t server, bool *done, int *did)
{
    struct node_source *s = &p->source[server];
    struct tr_cache_fetch fetch;
    int before = (int)s->state;
    if (s->state == WANTED) {
        /* Uses the latest fetch if it is new enough, otherwise claims the next fetch. At its first poll a rank claims only servers
         * that it prefers, so that workers that pull at the same time divide the servers. */
        struct tr_cache_terms terms = {p->table->lockstep, p->view->least, s->after};
        enum tr_cache_state state = tr_cache_take(&s->cache, 0, &terms, &fetch);
        if (state == TR_CACHE_HERE) {
            node_pull_copy(p, server, &fetch);
            tr_cache_give_back(&s->cache, 0);
        }
        bool claims = state == TR_CACHE_NONE && (s->prefers || s->waited++ > 0);
        if (claims &&
            tr_cache_claim(&s->cache, 0, &terms, p->table->tr->tables->written) == TR_CACHE_CLAIMED) {
            s->state = FETCHING;
            TR_TRY(tr_channel_read(&s->channel, tr_cache_value(&s->cache, 0), -1));
        }
    }
    if (s->state == FETCHING) {
        bool here;
        TR_TRY(tr_channel_poll(&s->channel, &here, did));
        if (here) {
            fetch = tr_cache_fetched(&s->cache, 0, s->channel.seen);
            node_pull_copy(p, server, &fetch); /* before other workers can claim the entry */
            tr_cache_put(&s->cache, 0, true);
        }
    }
    *did += (int)s->state != before;
    *done = s->state == NOTHING;
    return TR_OK;
}

void tr_node_pull_pushed(struct tr_node_pull *p)
{
    for (uint32_t s = 0; s < p->servers && !p->table->lockstep; s++)
        if (p->source[s].own.n > 0) p->source[s].after = tr_cache_number(&p->source[s].cache);
}

bool tr_node_pull_has_news(const struct tr_node_pull *p, int64_t least)
{
    for (uint32_t s = 0; s < p->servers; s++) {
        struct tr_cache_terms terms = {p->table->lockstep, least, p->source[s].after};
        if (p->source[s].own.n == 0) continue;
        /* a running fetch (COMING) counts as well: the pull will wait for it, whichever updates it contains */
        struct cache_entry *e = cache_lock(&p->source[s].cache, 0);
        bool news = cache_is_new(e, 0, &terms) && (e->state == COMING || e->fetch.holds >= least);
        tr_spin_unlock(&e->lock);
        if (!news) return false;
    }
    return true;
}

/* ---- closing ---- */

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
        for (uint32_t s = 0; s < p->servers; s++)
            if (p->source[s].cache.head) tr_channel_forget(&p->source[s].channel);
    }
}

static void node_pull_free_one(struct tr_node_pull *p)
{
    if (p->view && p->view->node_pull == p) tr_node_pull_leave(p);
    for (uint32_t i = 0; p->source && i < p->servers; i++) {
        struct node_source *s = &p->source[i];
        if (s->cache.head) tr_channel_close(&s->channel);
        TR_FREE_ALL(s->list, s->all.run, s->own.position, s->own.run);
    }
    tr_shm_close(&p->memory);
    TR_FREE_ALL(p->source, p);
}

void tr_node_pull_free(struct tr_table *t)
{
    for (struct tr_node_pull *p; (p = t->node_pulls); node_pull_free_one(p)) t->node_pulls = p->next;
}

/* ---- opening ---- */

static const char node_opening[] = "the ranks of this node to open node pulls";

static bool node_agrees(tr_context *tr, int status)
{
    int well = status == TR_OK;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &well, 1, MPI_INT, MPI_MIN, tr->node, &request);
    tr_wait_alone(tr, &request, node_opening);
    return well;
}

/* Returns the keeper of a server: the rank of the node that registers the union of keys at this server. The servers are distributed
 * over the ranks of the node. */
static int node_pull_keeper(const struct tr_node_pull *p, uint32_t server)
{
    const tr_context *tr = p->table->tr;
    int rank = 0;
    for (uint32_t left = server % (uint32_t)tr->node_size; !tr_same_node(tr, rank) || left-- > 0;) rank++;
    return rank;
}

/* Returns the number of ranks below node_rank of this node that read from the server. units[r * servers + s]: number of units that
 * rank r reads from server s. */
static int node_pull_readers(const struct tr_node_pull *p, const uint32_t *units, uint32_t server,
                             int node_rank)
{
    int readers = 0;
    for (int r = 0; r < node_rank; r++) readers += units[(size_t)r * p->servers + server] > 0;
    return readers;
}

/* For each server that several ranks of the node read, makes the union and finds the indices of this rank's units in it. The keeper
 * lists the positions of the union. Returns false, on all ranks of the node, if one of them is out of memory. */
static bool node_pull_unite(struct tr_node_pull *p, const uint32_t *units)
{
    tr_context *tr = p->table->tr;
    struct node_union u;
    int status = TR_OK;
    if (union_open(tr, tr_partition_longest(&p->table->partition), node_opening, &u) != TR_OK) return false;
    for (uint32_t server = 0; server < p->servers; server++) {
        struct node_source *s = &p->source[server];
        bool reads = units[(size_t)tr->node_rank * p->servers + server] > 0;
        const struct tr_segment *view = reads ? p->view->channel[server].segment : NULL;
        int readers = node_pull_readers(p, units, server, tr->node_size);
        if (readers < 2) continue;
        for (uint32_t i = 0; view && i < view->n; i++) union_add(&u, view->position[i]);
        s->all.n = union_seal(&u);
        /* Sharing must save a fifth of the bytes. Under BSP the union is fetched once per clock; otherwise more often, because
         * readers are at different clocks: 1.6 times with four readers (measured). */
        uint64_t sum = 0, fifths = p->table->lockstep ? 5 : 4 + (uint64_t)readers;
        for (int r = 0; r < tr->node_size; r++) sum += units[(size_t)r * p->servers + server];
        if (s->all.n * fifths > sum * 4) s->all.n = 0;
        if (s->all.n > 0 && node_pull_keeper(p, server) == tr->rank && status == TR_OK)
            status = TR_NEW(&s->list, s->all.n);
        if (s->list) union_list(&u, 0, s->all.n, s->list);
        if (s->all.n > 0 && view && status == TR_OK) status = TR_NEW(&s->own.position, view->n);
        for (uint32_t i = 0; s->own.position && i < view->n; i++)
            s->own.position[i] = union_index(&u, view->position[i]);
        tr_meet(u.tr, u.tr->node, u.whom);
        if (u.tr->node_rank == 0) memset((void *)u.word, 0, u.words * sizeof *u.word);
        tr_meet(u.tr, u.tr->node, u.whom);
    }
    tr_shm_close(&u.memory);
    return node_agrees(tr, status);
}

static size_t node_pull_kept_bytes(const struct tr_node_pull *p, uint64_t n)
{
    return n == 0 ? 0 : node_padded(n * sizeof(uint32_t)) + tr_cache_bytes(1, n * p->table->unit_bytes);
}

/* Allocates shared memory for each union: the list of its positions, which the keeper writes, and an empty cache. Makes the
 * channels, by which all ranks of the node read under the key set (owner and tag) that the keeper registers. */
static bool node_pull_share(struct tr_node_pull *p)
{
    struct tr_table *t = p->table;
    tr_context *tr = t->tr;
    size_t bytes = 0, at = 0;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, &t->next_tag, 1, MPI_UINT32_T, MPI_MAX, tr->node, &request);
    tr_wait_alone(tr, &request, node_opening);
    uint32_t tag = t->next_tag;
    t->next_tag += p->servers;
    for (uint32_t s = 0; s < p->servers; s++) bytes += node_pull_kept_bytes(p, p->source[s].all.n);
    if (bytes == 0) return false;
    if (tr_shm_open(tr, tr->node, tr->node_rank == 0 ? bytes : 0, false, &p->memory) != TR_OK) return false;
    for (uint32_t server = 0; server < p->servers; server++) {
        struct node_source *s = &p->source[server];
        const uint32_t n = s->all.n;
        if (n == 0) continue;
        char *part = p->memory.part[0].at + at;
        at += node_pull_kept_bytes(p, n);
        s->all.position = (uint32_t *)(void *)part;
        s->cache = tr_cache_at(part + node_padded(n * sizeof(uint32_t)), 1, n * t->unit_bytes);
        s->channel = tr_channel_of(t, server, &s->all, tag + server);
        s->channel.owner = node_pull_keeper(p, server);
    }
    tr_meet(tr, tr->node, node_opening); /* before the memory, which has empty caches, is written */
    for (uint32_t server = 0; server < p->servers; server++) {
        struct node_source *s = &p->source[server];
        for (uint32_t i = 0; s->list && i < s->all.n; i++) s->all.position[i] = (uint32_t)s->list[i];
    }
    tr_meet(tr, tr->node, node_opening); /* before another rank reads these positions */
    return true;
}

static int node_pull_join(struct tr_node_pull *p, const uint32_t *units)
{
    int me = p->table->tr->node_rank, all = p->table->tr->node_size;
    for (uint32_t server = 0; p->view && server < p->servers; server++) {
        struct node_source *s = &p->source[server];
        const struct tr_channel *own = &p->view->channel[server];
        if (!s->cache.head || units[(size_t)me * p->servers + server] == 0) continue;
        s->own.local = own->segment->local;
        s->own.n = own->segment->n;
        TR_TRY(tr_segment_find_runs(&s->own));
        TR_TRY(tr_segment_find_runs(&s->all));
        s->channel.exact = own->exact;
        TR_TRY(tr_channel_choose_route(&s->channel));
        uint32_t readers = (uint32_t)node_pull_readers(p, units, server, all);
        s->prefers = (int)(server % readers) == node_pull_readers(p, units, server, me);
        p->view->node_pull = p;
    }
    return TR_OK;
}

/* Opens a node pull for one view of each rank of the node; view: that of this rank, or NULL. Collective over the node. */
static void node_pull_open_one(struct tr_table *t, struct tr_view_state *view)
{
    tr_context *tr = t->tr;
    uint32_t *units = NULL, servers = t->partition.servers;
    struct tr_node_pull *p = NULL;
    int status = TR_NEW(&p, 1);
    if (p) *p = (struct tr_node_pull){.table = t, .view = view, .servers = servers, .memory = TR_SHM_CLOSED};
    if (p) status = TR_NEW(&p->source, servers);
    if (status == TR_OK) status = TR_NEW(&units, (size_t)tr->node_size * servers);
    bool well = node_agrees(tr, status);
    if (well) {
        MPI_Request request;
        for (uint32_t s = 0; view && s < servers; s++)
            if (!tr_same_node(tr, view->channel[s].rank))
                units[(size_t)tr->node_rank * servers + s] = view->channel[s].segment->n;
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, units, (int)servers, MPI_UINT32_T, tr->node,
                       &request);
        tr_wait_alone(tr, &request, node_opening);
        well = node_pull_unite(p, units) && node_pull_share(p) && node_agrees(tr, node_pull_join(p, units));
    }
    free(units);
    if (well) {
        p->next = t->node_pulls;
        t->node_pulls = p;
    } else if (p) {
        node_pull_free_one(p);
    }
}

/* Returns the i-th view of the table that was opened for a use, or NULL if there are fewer. Views without channels (of group
 * members) are not counted. */
static struct tr_view_state *node_pull_find_view(const struct tr_table *t, int use, int i)
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

int tr_node_pull_open(tr_context *tr)
{
    const struct tr_tables *tables = tr->tables;
    int status = TR_OK;
    /* no node pulls in stages of a task, because not all ranks take part in these stages */
    if (tr->active != &tr->all) return TR_OK;
    /* first does all steps within the node, during which ranks do not poll; then registers key sets, for which servers must poll */
    for (size_t i = 0; i < tables->count; i++) {
        struct tr_table *t = tables->table[i];
        int views[USES] = {0};
        if ((tr->job && !tr->job->table.share_pulls) || tr->layout.nodes == 1 || tr->node_size == 1) break;
        if (t->hash || tr_table_keeps_versions(t)) continue;
        for (int use = 0; use < USES; use++)
            while (node_pull_find_view(t, use, views[use])) views[use]++;
        MPI_Request request;
        MPI_Iallreduce(MPI_IN_PLACE, views, USES, MPI_INT, MPI_MAX, tr->node, &request);
        tr_wait_alone(tr, &request, node_opening);
        for (int use = 0; use < USES; use++)
            for (int k = 0; k < views[use]; k++) node_pull_open_one(t, node_pull_find_view(t, use, k));
    }
    for (size_t i = 0; i < tables->count; i++)
        for (struct tr_node_pull *p = tables->table[i]->node_pulls; p; p = p->next)
            for (uint32_t s = 0; s < p->servers && status == TR_OK; s++)
                if (p->source[s].cache.head && node_pull_keeper(p, s) == tr->rank)
                    status = tr_channel_register(&p->source[s].channel, 0);
    return tr_agree(tr, status);
}

/* ======== subscriptions ======== */

static const char subscribing[] = "the ranks of this node to open subscriptions";

int tr_rows_subscribe(struct tr_table *t, const tr_key *keys, size_t n)
{
    struct tr_subscription *s;
    if (t->subscribing)
        return tr_fail(TR_ERR_INTERNAL, "table %s: a worker subscribes to rows of it twice", t->name);
    for (size_t i = 0; i < n; i++)
        if (keys[i] >= t->keys || (i > 0 && keys[i] <= keys[i - 1]))
            return tr_fail(TR_ERR_INTERNAL,
                           "table %s: rows that are subscribed to must ascend and lie below %llu", t->name,
                           (unsigned long long)t->keys);
    TR_TRY(TR_NEW(&s, 1));
    t->subscribing = s;
    *s = (struct tr_subscription){.table = t, .n = n, .memory = TR_SHM_CLOSED};
    TR_TRY(TR_NEW(&s->key, n));
    if (n > 0) memcpy(s->key, keys, n * sizeof *keys);
    return TR_OK;
}

void tr_subscription_discard(struct tr_table *t)
{
    if (t->subscribing) free(t->subscribing->key);
    free(t->subscribing);
    t->subscribing = NULL;
}

/* ---- opening and closing ---- */

/* Returns the first slot of a member's slice. Sizes of slices differ by at most one. */
static size_t subscription_slice_start(const struct tr_subscription *s, size_t member)
{
    return s->units * member / (size_t)s->members;
}

/* Allocates memory for the union, makes the plan of this member's slice, and sorts the rows of this worker by part. If the node has
 * too little memory, s->arrived stays NULL. */
static int subscription_open_memory(struct tr_subscription *s, const struct node_union *rows, size_t units)
{
    const struct tr_table *t = s->table;
    const size_t most = (size_t)1 << 28;
    size_t parts = (size_t)s->members * s->chunks;
    size_t flags = node_padded(parts * sizeof *s->arrived);
    if (units == 0 || units * t->unit_bytes > most) return TR_OK;
    size_t bytes = t->tr->node_rank == 0 ? flags + units * t->unit_bytes : 0;
    if (tr_shm_open(t->tr, t->tr->node, bytes, false, &s->memory) != TR_OK) return TR_OK;
    s->units = units;
    s->arrived = (_Atomic int64_t *)(void *)s->memory.part[0].at;
    s->value = s->memory.part[0].at + flags;
    tr_meet(t->tr, t->tr->node, subscribing);
    if (s->member >= 0) {
        size_t first = subscription_slice_start(s, (size_t)s->member),
               end = subscription_slice_start(s, (size_t)s->member + 1);
        TR_FREED tr_key *keys = NULL;
        s->slice_value = s->value + first * t->unit_bytes;
        TR_TRY(TR_NEW(&keys, end - first));
        union_list(rows, first, end, keys);
        TR_TRY(tr_plan_make(t, keys, end - first, TR_PLAN_ASCENDING, NULL, &s->slice));
    }
    /* sorts the rows of this worker by part: turn 0 counts the rows of each part, turn 1 lists them */
    TR_TRY(TR_NEW(&s->begin, parts + 2));
    TR_TRY(TR_NEW(&s->left, parts));
    TR_TRY(TR_NEW(&s->place, s->n));
    TR_TRY(TR_NEW(&s->slot, s->n));
    for (int turn = 0; turn < 2; turn++) {
        struct tr_walker walker = {.partition = &t->partition};
        for (size_t i = 0; i < s->n; i++) {
            struct tr_location at = tr_walk_to(&walker, s->key[i]);
            if (t->share[at.server]) continue;
            uint32_t slot = union_index(rows, s->key[i]);
            size_t members = (size_t)s->members, member = slot * members / s->units;
            while (subscription_slice_start(s, member + 1) <= slot) member++;
            uint32_t *to = &s->begin[at.position / s->chunk * members + member + 2 - (size_t)turn];
            if (turn == 1) {
                s->place[*to] = (uint32_t)i;
                s->slot[*to] = slot;
            }
            ++*to;
        }
        for (size_t p = 2; p <= parts && turn == 0; p++) s->begin[p] += s->begin[p - 1];
    }
    return TR_OK;
}

int tr_subscription_open(struct tr_table *t, uint32_t chunk, uint32_t chunks)
{
    const tr_context *tr = t->tr;
    struct node_union rows;
    struct tr_subscription *s = t->subscribing;
    if (!s) TR_TRY(TR_NEW(&s, 1));
    if (!t->subscribing) *s = (struct tr_subscription){.table = t, .memory = TR_SHM_CLOSED};
    t->subscribing = NULL;
    t->subscription = s;
    s->chunk = chunk;
    s->chunks = chunks;
    s->member = -1;
    for (int w = 0; w < tr_worker_set_size(tr->active); w++) {
        int rank = tr_worker_rank(tr, tr->active, w);
        if (rank == tr->rank) s->member = s->members;
        s->members += tr_same_node(tr, rank);
    }
    if (union_open(t->tr, t->keys, subscribing, &rows) != TR_OK) return TR_OK;
    struct tr_walker walker = {.partition = &t->partition};
    for (size_t i = 0; i < s->n; i++)
        if (!t->share[tr_walk_to(&walker, s->key[i]).server]) union_add(&rows, s->key[i]);
    int status = subscription_open_memory(s, &rows, union_seal(&rows));
    tr_shm_close(&rows.memory);
    return status;
}

void tr_subscription_close(struct tr_table *t)
{
    struct tr_subscription *s = t->subscription;
    if (!s) return;
    t->subscription = NULL;
    tr_shm_close(&s->memory);
    tr_plan_free(&s->slice);
    TR_FREE_ALL(s->key, s->begin, s->place, s->slot, s->left, s);
}

/* ---- receiving ---- */

void tr_subscription_put(struct tr_subscription *s, uint32_t chunk)
{
    if (!s->arrived || s->member < 0) return;
    atomic_store_explicit(&s->arrived[(size_t)chunk * (size_t)s->members + (size_t)s->member], s->merge,
                          memory_order_release);
}

bool tr_subscription_has(const struct tr_table *t, const tr_key *keys, size_t n)
{
    const struct tr_subscription *s = t->subscription;
    return s && s->arrived && s->wanted > 0 && n == s->n && memcmp(keys, s->key, n * sizeof *keys) == 0;
}

void tr_subscription_begin(struct tr_subscription *s)
{
    s->lefts = 0;
    for (uint32_t p = 0; p < (uint32_t)s->members * s->chunks; p++)
        if (s->begin[p + 1] > s->begin[p]) s->left[s->lefts++] = p;
}

bool tr_subscription_take(struct tr_subscription *s, struct tr_subscribed *rows)
{
    enum { LOOK = 256 }; /* number of parts that are tested; chunks arrive approximately in ascending order */
    for (size_t i = 0; i < s->lefts && i < LOOK; i++) {
        uint32_t p = s->left[i];
        if (atomic_load_explicit(&s->arrived[p], memory_order_acquire) < s->wanted) continue;
        memmove(&s->left[i], &s->left[i + 1], (--s->lefts - i) * sizeof *s->left);
        *rows = (struct tr_subscribed){.n = s->begin[p + 1] - s->begin[p],
                                       .place = s->place + s->begin[p],
                                       .slot = s->slot + s->begin[p],
                                       .value = s->value};
        return true;
    }
    return false;
}

#include "table/sync.h"

#include <stdlib.h>

/* ======== the clock window ======== */

/* One value of each word, in cache lines that contain nothing else. */
struct clock_line {
    _Alignas(64) _Atomic int64_t word[TR_CLOCK_WORDS];
};

/* Shared memory of a node. `rank` has the words of each rank of the node, followed by a line with the activity of each rank. */
struct clock_board {
    struct clock_line world; /* minima and maxima over all ranks */
    struct clock_line node;  /* minima and maxima over the ranks of this node */
    struct clock_line rank[];
};
enum { DOES, REACHED, COMPUTED, SERVED, HELD }; /* words of an activity line: tr_rank_seen with times in µs */

struct tr_clock {
    tr_context *tr;
    struct tr_shm memory;            /* contains the board */
    struct clock_board *board;       /* board of this node */
    struct clock_line *mine, *doing; /* line with the words of this rank, and line with its activity */
    /* With several nodes, `nodes` is a window over node_line on rank 0, and `worlds` one over the world line of each node. */
    MPI_Win nodes, worlds;
    int64_t *node_line;           /* rank 0: minima and maxima of each node; else NULL */
    int *head;                    /* head[node]: the rank that offers the board of that node in the window */
    struct tr_rank_seen *heard;   /* rank 0: activity that each rank of another node has reported last */
    int64_t sent[TR_CLOCK_WORDS]; /* rank 0: values that were published last */
    bool resetting;               /* words are being set to 0, so rank 0 publishes nothing */
};

static int64_t clock_load(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

int64_t tr_clock_get(const struct tr_clock *c, enum tr_clock_word word)
{
    return clock_load(&c->board->world.word[word]);
}

/* Raises a word to at least `value`. Returns whether it was lower. */
static bool clock_raise(_Atomic int64_t *word, int64_t value)
{
    int64_t old = clock_load(word);
    while (old < value)
        if (atomic_compare_exchange_weak(word, &old, value)) return true;
    return false;
}

/* ---- raising ---- */

/* Raises a word in the window of another rank by an accumulate with MPI_MAX, so that the order of arrival does not matter. */
static void clock_send(MPI_Win window, int rank, int at, const int64_t *value)
{
    MPI_Accumulate(value, 1, MPI_INT64_T, rank, at, 1, MPI_INT64_T, MPI_MAX, window);
    MPI_Win_flush_local(rank, window);
}

/* Raises a word for all ranks of this node and, on the scheduler, for all ranks of all nodes. */
static void clock_publish(struct tr_clock *c, int word, int64_t value)
{
    clock_raise(&c->board->world.word[word], value);
    if (c->tr->layout.nodes == 1 || c->sent[word] >= value) return;
    c->sent[word] = value;
    for (int node = 0; node < c->tr->layout.nodes; node++)
        if (c->head[node] != 0) clock_send(c->worlds, c->head[node], word, &c->sent[word]);
}

/* Publishes the minimum or maximum of this node: to all ranks if there is one node, otherwise to the scheduler. */
static void clock_report(struct tr_clock *c, int word, int64_t value)
{
    tr_context *tr = c->tr;
    if (tr->layout.nodes == 1) clock_raise(&c->board->world.word[word], value);
    else clock_send(c->nodes, 0, tr->node_of[tr->rank] * TR_CLOCK_WORDS + word, &value);
}

static int64_t clock_least(const struct tr_clock *c, int word)
{
    int64_t least = INT64_MAX;
    for (int rank = 0; rank < c->tr->node_size; rank++) {
        int64_t value = atomic_load(&c->board->rank[rank].word[word]);
        if (value < least) least = value;
    }
    return least;
}

/* Recomputes the minimum of a word over the node, and publishes it if it has grown. Repeats this until the minimum is stable,
 * because another rank may raise its word meanwhile and still see the old minimum. */
static void clock_raise_node(struct tr_clock *c, int word)
{
    int64_t least = clock_least(c, word), next;
    if (!clock_raise(&c->board->node.word[word], least)) return;
    for (; (next = clock_least(c, word)) > least; least = next)
        if (!clock_raise(&c->board->node.word[word], next)) break;
    clock_report(c, word, least);
}

void tr_clock_raise(struct tr_clock *c, enum tr_clock_word word, int64_t value)
{
    if (word >= TR_CLOCK_MAXIMA) {
        clock_publish(c, (int)word, value);
    } else if (word >= TR_CLOCK_MINIMA) {
        if (clock_raise(&c->board->node.word[word], value)) clock_report(c, (int)word, value);
    } else {
        int64_t old = clock_load(&c->mine->word[word]);
        if (value <= old) return;
        /* these accesses are sequentially consistent: if two ranks raise their words together, at least one rank sees both new
         * values */
        atomic_store(&c->mine->word[word], value);
        if (old <= atomic_load(&c->board->node.word[word])) clock_raise_node(c, (int)word);
    }
}

/* On the scheduler: publishes the minima and maxima over all nodes. */
static int clock_poll(void *what, int *did)
{
    struct tr_clock *c = what;
    if (c->tr->rank != 0 || c->tr->layout.nodes == 1 || c->resetting) return TR_OK;
    MPI_Win_sync(c->nodes);
    for (int word = 0; word < TR_CLOCK_MAXIMA; word++) {
        int64_t least = INT64_MAX, most = 0;
        for (int node = 0; node < c->tr->layout.nodes; node++) {
            int64_t value = *(volatile int64_t *)&c->node_line[node * TR_CLOCK_WORDS + word];
            if (value < least) least = value;
            if (value > most) most = value;
        }
        int64_t value = word < TR_CLOCK_MINIMA ? least : most;
        if (value <= c->sent[word]) continue;
        clock_publish(c, word, value);
        ++*did;
    }
    return TR_OK;
}

/* ---- activity, for the monitor ---- */

enum tr_rank_state tr_clock_say(struct tr_clock *c, enum tr_rank_state state)
{
    int64_t before = atomic_load_explicit(&c->doing->word[DOES], memory_order_relaxed);
    atomic_store_explicit(&c->doing->word[DOES], state, memory_order_relaxed);
    return (enum tr_rank_state)before;
}

void tr_clock_count(struct tr_clock *c, struct tr_rank_seen seen)
{
    tr_clock_say(c, seen.state);
    atomic_store_explicit(&c->doing->word[REACHED], seen.clock, memory_order_relaxed);
    atomic_store_explicit(&c->doing->word[COMPUTED], (int64_t)(seen.seconds * 1e6), memory_order_relaxed);
}

void tr_clock_hear(struct tr_clock *c, int rank, struct tr_rank_seen seen)
{
    if (c->heard) c->heard[rank] = seen;
}

void tr_clock_see(const struct tr_clock *c, struct tr_rank_seen seen[])
{
    const struct clock_line *doing = &c->board->rank[c->tr->node_size];
    for (int rank = 0; rank < c->tr->size; rank++) {
        bool here = tr_same_node(c->tr, rank);
        if (!here) seen[rank] = c->heard[rank];
        else
            seen[rank] = (struct tr_rank_seen){
                (enum tr_rank_state)clock_load(&doing->word[DOES]), clock_load(&doing->word[REACHED]),
                1e-6 * (double)clock_load(&doing->word[COMPUTED]),
                1e-6 * (double)clock_load(&doing->word[SERVED]), (double)clock_load(&doing->word[HELD])};
        doing += here;
    }
}

/* ---- stages ---- */

/* Completes the RMA operations of this rank, so that none arrives in a later stage. */
static void clock_flush(const struct tr_clock *c)
{
    if (c->tr->layout.nodes == 1) return;
    MPI_Win_flush_all(c->nodes);
    MPI_Win_flush_all(c->worlds);
}

void tr_clock_leave(struct tr_clock *c)
{
    clock_flush(c);
    for (int word = 0; word < TR_CLOCK_MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
}

/* ======== consistency ======== */

static int64_t sync_written(const struct tr_sync *s)
{
    return tr_clock_get(s->clock, TR_CLOCK_WRITTEN);
}

/* ---- waiting ---- */

/* Returns whether a pull for `clock` may read: all updates of clocks < clock - staleness are in the tables. */
static bool sync_may_read(const struct tr_sync *s, int64_t clock)
{
    return !s->running || s->staleness == INT64_MAX || sync_written(s) >= clock - s->staleness;
}

static int sync_wait_to_read(struct tr_sync *s)
{
    if (sync_may_read(s, s->now)) return TR_OK;
    enum tr_rank_state before = tr_clock_say(s->clock, TR_RANK_WAITS);
    TR_WAIT_UNTIL(s->tr, sync_may_read(s, s->now),
                  "clock %lld of the slowest worker (this one is at %lld, the slowest at %lld)",
                  (long long)(s->now - s->staleness), (long long)s->now, (long long)sync_written(s));
    tr_clock_say(s->clock, before);
    return TR_OK;
}

static int sync_wait_for_push(struct tr_sync *s, const struct tr_view_state *v)
{
    TR_WAIT_UNTIL(s->tr, !tr_push_busy(&v->view), "the servers of table %s to take the update of clock %lld",
                  v->view.table->name, (long long)v->push_clock);
    return TR_OK;
}

/* ---- progress of this rank ---- */

/* Returns the lowest version of this server's shares; INT64_MAX: none of its tables keeps versions. */
static int64_t sync_own_version(const struct tr_sync *s)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < s->tr->tables->count; i++) {
        const struct tr_table *t = s->tr->tables->table[i];
        if (!tr_table_keeps_versions(t) || t->server < 0) continue;
        int64_t version = atomic_load_explicit(&t->line[t->server]->version, memory_order_relaxed);
        if (version < least) least = version;
    }
    return least;
}

/* ---- pulling a view ---- */

/* Returns whether the last merge has brought the values that a pull for `clock` needs. */
static bool view_has_merged_value(const struct tr_sync *s, const struct tr_view_state *v, int64_t clock)
{
    int64_t since = clock - v->merged_for;
    return s->running && v->merged_for >= 0 && since >= 0 && since < v->view.table->every;
}

/* Returns whether updates of the view are merged, but its table is not updated in this clock (tr_table_update_every()). */
static bool view_rests(const struct tr_sync *s, const struct tr_view_state *v)
{
    return v->merged && tr_table_next_update(v->view.table, s->now) > s->now;
}

/* Starts a pull. A table that keeps versions is read at the highest version that all its servers are known to have: the maximum of
 * TR_CLOCK_VERSION, TR_CLOCK_WRITTEN, and this worker's last push + 1. Node pulls are used only inside a stage. */
static int view_start_pull(struct tr_sync *s, struct tr_view_state *v, void *into, int64_t clock)
{
    int64_t version = -1;
    s->tr->tables->written = sync_written(s);
    if (view_has_merged_value(s, v, clock)) return tr_pull_start(&v->view, into, TR_PULL_MERGE, -1);
    if (v->node_pull && s->running && s->counting)
        return tr_pull_start(&v->view, into, TR_PULL_NODE, clock - s->staleness);
    if (tr_table_keeps_versions(v->view.table)) {
        version = tr_clock_get(s->clock, TR_CLOCK_VERSION);
        if (version < sync_written(s)) version = sync_written(s);
        if (version < v->push_clock + 1) version = v->push_clock + 1;
    }
    return tr_pull_start(&v->view, into, TR_PULL_SERVERS, version);
}

static int prefetch_start(struct tr_sync *s, struct tr_view_state *v)
{
    if (!v->ahead_wanted || v->pull != PULL_IDLE || tr_push_busy(&v->view)) return TR_OK;
    /* the leader reads after the reduction, because the update of a group is complete only then */
    if (v->group && s->now < v->ahead_clock) return TR_OK;
    if (v->channel && !sync_may_read(s, v->ahead_clock)) return TR_OK;
    v->ahead_wanted = false;
    v->ahead_started = true;
    return view_start_pull(s, v, v->ahead, v->ahead_clock);
}

static int prefetch_want(struct tr_sync *s, struct tr_view_state *v)
{
    if (!v->ahead) TR_TRY(TR_NEW((char **)&v->ahead, tr_view_bytes(&v->view)));
    v->ahead_wanted = true;
    v->ahead_clock = s->now + 1;
    return prefetch_start(s, v);
}

int tr_view_prefetch(tr_view *view)
{
    struct tr_view_state *v = view->state;
    struct tr_sync *s = view->table->tr->sync;
    /* no prefetch in an evaluation after the last clock: nothing would wait for it before the view is closed */
    if (!s->counting) return TR_OK;
    /* memory of the node is read as late as possible, because its values are newest then */
    if (v->ahead_started || (!v->group && tr_view_reads_near(v))) return TR_OK;
    /* with a server function, only the server knows how this worker's own update changes the values */
    if (view->table->use || s->caching) return TR_OK;
    /* for such views tr_view_push() uses the latest node pull instead of a prefetch */
    if (v->node_pull && !tr_sync_lockstep(s) && !v->group) return TR_OK;
    return prefetch_want(s, v);
}

/* Returns whether a view keeps its values over several clocks. The worker's own updates are added to these values. That is not
 * possible if updates are gradients, whose steps only the servers know, or in a group, whose members do not know each other's
 * updates. */
static bool view_is_cached(const struct tr_sync *s, const struct tr_view_state *v)
{
    const struct tr_use *use = v->view.table->use;
    return s->caching && v->use != TR_VIEW_READ && !v->group && !(use && use->function.gradients);
}

int tr_view_pull(tr_view *view)
{
    struct tr_view_state *v = view->state;
    struct tr_sync *s = view->table->tr->sync;
    struct tr_traffic *traffic = &s->tr->tables->traffic;
    double begin = tr_now(), pushed, waited = 0;
    bool fresh = view->clock == s->now || (s->running && view_is_cached(s, v) && view->clock >= 0 &&
                                           v->holds >= s->now - s->staleness);
    if (!fresh) {
        enum tr_rank_state before = tr_clock_say(s->clock, TR_RANK_PULLS);
        tr_wait_begin(s->tr->tables);
        /* a prefetched copy for this clock contains all own updates, even if the last one is in flight */
        if (!v->ahead_started || v->ahead_clock != s->now) TR_TRY(sync_wait_for_push(s, v));
        pushed = tr_now();
        /* discards a prefetch for an earlier clock, in which the view was not pulled */
        bool late = (v->ahead_wanted || v->ahead_started) && v->ahead_clock < s->now;
        if (late || v->ahead_started)
            TR_WAIT_UNTIL(s->tr, !v->ahead_wanted && !tr_pull_busy(view), "the prefetch of table %s",
                          view->table->name);
        if (late) v->ahead_started = false;
        if (v->ahead_started) {
            void *old = view->value;
            view->value = v->ahead;
            v->ahead = old;
            v->ahead_started = false;
        } else {
            v->ahead_wanted = false;
            if (v->channel && !view_has_merged_value(s, v, s->now)) TR_TRY(sync_wait_to_read(s));
            waited = tr_now() - pushed;
            v->holds = sync_written(s);
            TR_TRY(view_start_pull(s, v, view->value, s->now));
            /* in tr_sync_stand_in(), stops waiting for the group's broadcast when all workers have ended the clock */
            TR_WAIT_UNTIL(s->tr,
                          !tr_pull_busy(view) || (s->stands_in && v->pull == PULL_SPREADING &&
                                                  tr_clock_get(s->clock, TR_CLOCK_READ) > s->now),
                          "the servers of table %s to send %zu keys", view->table->name, view->n);
            if (tr_pull_busy(view)) tr_pull_leave(view);
        }
        traffic->push_seconds += pushed - begin;
        traffic->wait_seconds += waited;
        traffic->pull_seconds += tr_now() - pushed - waited;
        s->tr->tables->service.under_way += tr_push_busy(view);
        tr_wait_end(s->tr->tables);
        tr_clock_say(s->clock, before);
    }
    view->clock = s->now;
    return TR_OK;
}

/* ---- pushing a view ---- */

int tr_view_push(tr_view *view)
{
    struct tr_view_state *v = view->state;
    tr_context *tr = view->table->tr;
    struct tr_sync *s = tr->sync;
    size_t elements = view->n * view->width;
    if (!view->delta)
        return tr_fail(TR_ERR_INTERNAL, "a view of table %s opened for reading was pushed",
                       view->table->name);
    if (tr_sync_lockstep(s) && v->push_clock == s->now)
        return tr_fail(TR_ERR_INTERNAL, "a view of table %s was pushed twice in a clock under BSP",
                       view->table->name);
    if (view_rests(s, v))
        return tr_fail(TR_ERR_INTERNAL, "a view of table %s was pushed in a clock without updates of it",
                       view->table->name);
    if (tr->before_push) TR_TRY(tr->before_push(tr->before_push_state));
    double begin = tr_now(), waited = 0;
    enum tr_rank_state before = tr_clock_say(s->clock, TR_RANK_PUSHES);
    tr_wait_begin(tr->tables);
    TR_TRY(sync_wait_for_push(s, v));
    /* If a node pull has values that lack only this push and are new enough for the next clock, uses them as a prefetch (node
     * pulls, view.h). This is possible only if the worker knows the effect of the push: updates are simply added, and come from
     * this worker alone. */
    bool adds = !view->table->use && !s->caching && !v->group;
    if (v->node_pull && !tr_sync_lockstep(s) && s->counting && adds && !v->ahead_started &&
        !tr_pull_busy(view) && sync_may_read(s, s->now + 1) &&
        tr_node_pull_has_news(v->node_pull, s->now + 1 - s->staleness))
        TR_TRY(prefetch_want(s, v));
    if (v->ahead_started) { /* the prefetched copy lacks the update that is pushed now: adds it */
        TR_WAIT_UNTIL(tr, !tr_pull_busy(view), "the prefetch of table %s", view->table->name);
        tr_add_elements(view->table->dtype, elements, view->delta, v->ahead);
    }
    /* adds the update to the cached values, because a worker always sees its own updates */
    if (view_is_cached(s, v)) tr_add_elements(view->table->dtype, elements, view->delta, view->value);
    tr_clock_raise(s->clock, TR_CLOCK_READ, s->now + 1);
    if (tr_sync_lockstep(s) && view->table->push == TR_PUSH_ACCUMULATE && v->channel) {
        waited = tr_now();
        tr_clock_say(s->clock, TR_RANK_WAITS);
        TR_WAIT_UNTIL(tr, tr_clock_get(s->clock, TR_CLOCK_READ) > s->now,
                      "all workers to have read for clock %lld", (long long)s->now);
        tr_clock_say(s->clock, TR_RANK_PUSHES);
        waited = tr_now() - waited;
    }
    TR_TRY(tr_push_start(view, s->now));
    tr->tables->traffic.wait_seconds += waited;
    tr->tables->traffic.push_seconds += tr_now() - begin - waited;
    tr_wait_end(tr->tables);
    tr_clock_say(s->clock, before);
    return TR_OK;
}

/* ---- standing in for a worker of a group ---- */

int tr_sync_stand_in(struct tr_sync *s, bool pushes)
{
    const struct tr_tables *tables = s->tr->tables;
    tr_clock_raise(s->clock, TR_CLOCK_READ, s->now + 1);
    s->stands_in = true;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->group) TR_TRY(tr_view_pull(&v->view));
    }
    s->stands_in = false;
    for (size_t i = 0; i < tables->view_count && pushes; i++) {
        struct tr_view_state *v = tables->views[i];
        if (v->group && v->view.delta && v->push_clock < s->now) TR_TRY(tr_view_push(&v->view));
    }
    return TR_OK;
}

/* ---- rows ---- */

int tr_rows_pull(tr_table *t, const tr_key *keys, size_t n, tr_row_fn *row, void *state)
{
    struct tr_sync *s = t->tr->sync;
    struct tr_traffic *traffic = &t->tr->tables->traffic;
    double begin = tr_now(), pushed, waited, computed = 0;
    bool lockstep = tr_sync_lockstep(s), inside = s->running && s->counting;
    bool subscribed = lockstep && inside && tr_subscription_has(t, keys, n);
    /* after a push, other ranks assume that this worker has read; so under BSP updates of this clock may be visible already */
    for (size_t i = 0; i < t->tr->tables->view_count && s->running && lockstep; i++)
        if (t->tr->tables->views[i]->push_clock >= s->now)
            return tr_fail(TR_ERR_INTERNAL,
                           "rows of table %s are pulled after a view was pushed in the same clock", t->name);
    tr_wait_begin(t->tr->tables);
    /* waits for own updates, because a worker always sees them; in lockstep, sync_wait_to_read() includes this */
    for (size_t i = 0; i < t->tr->tables->view_count && !lockstep; i++) {
        const struct tr_view_state *v = t->tr->tables->views[i];
        TR_WAIT_UNTIL(t->tr, v->view.table != t || !tr_push_busy(&v->view),
                      "the servers of table %s to take an update", t->name);
    }
    pushed = tr_now();
    if (!subscribed) TR_TRY(sync_wait_to_read(s));
    waited = tr_now();
    struct tr_rows_terms terms = {.still = lockstep || !s->running,
                                  .exact = !s->running,
                                  .shared = inside,
                                  .subscribed = subscribed,
                                  .least = s->staleness == INT64_MAX ? 0 : s->now - s->staleness,
                                  .holds = lockstep ? s->now : sync_written(s)};
    enum tr_rank_state before = tr_clock_say(s->clock, TR_RANK_PULLS);
    int status = tr_rows_move(t, keys, n, row, state, &terms, &computed);
    traffic->push_seconds += pushed - begin;
    traffic->wait_seconds += waited - pushed;
    tr_clock_say(s->clock, before);
    traffic->pull_seconds += tr_now() - waited - computed;
    tr_wait_end(t->tr->tables);
    return status;
}

int tr_rows_push(tr_table *t, const tr_row *rows, size_t n)
{
    double begin = tr_now();
    enum tr_rank_state before = tr_clock_say(t->tr->sync->clock, TR_RANK_PUSHES);
    tr_wait_begin(t->tr->tables);
    int status = tr_rows_add(t, rows, n, t->tr->sync->now);
    tr_wait_end(t->tr->tables);
    tr_clock_say(t->tr->sync->clock, before);
    t->tr->tables->traffic.push_seconds += tr_now() - begin;
    return status;
}

/* ---- clocks ---- */

int tr_sync_next(struct tr_sync *s)
{
    struct tr_tables *tables = s->tr->tables;
    double begin = tr_now();
    /* only merged views and group views need a wait: of other views, delta is zero since the start of the push */
    for (size_t i = 0; i < tables->view_count; i++) {
        const struct tr_view_state *v = tables->views[i];
        if ((v->merged || v->group) && !view_rests(s, v)) TR_TRY(sync_wait_for_push(s, v));
    }
    tables->traffic.push_seconds += tr_now() - begin;
    return TR_OK;
}

int tr_sync_tick(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (!tr_sync_lockstep(s) || !v->view.delta || v->push_clock >= s->now || view_rests(s, v)) continue;
        TR_TRY(tr_view_push(&v->view));
        /* this empty push, which is sent only because servers wait for it, is not counted */
        tables->traffic.pushes--;
    }
    for (size_t i = 0; i < tables->count; i++) TR_TRY(tr_rows_end_clock(tables->table[i], s->now));
    for (size_t i = 0; i < tables->count; i++) { /* starts merges without an update of this worker */
        struct tr_table *t = tables->table[i];
        if (!t->merge || t->updating_views > 0 || tr_table_next_update(t, s->now) > s->now) continue;
        TR_WAIT_UNTIL(tr, !tr_merge_busy(t), "the merge of table %s", t->name);
        TR_TRY(tr_merge_start(t, NULL));
    }
    tr_clock_raise(s->clock, TR_CLOCK_READ, s->now + 1);
    s->now++;
    /* with more ranks than cores, clocks of workers that never wait would differ by whole time slices of the system */
    if (tr->crowded && !tr_sync_lockstep(s)) sched_yield();
    int did = 0;
    return tr_progress(tr, &did);
}

static int sync_poll(void *what, int *did)
{
    struct tr_sync *s = what;
    struct tr_tables *tables = s->tr->tables;
    _Atomic int64_t *doing = s->clock->doing->word;
    atomic_store_explicit(&doing[SERVED], (int64_t)(tables->service.seconds * 1e6), memory_order_relaxed);
    atomic_store_explicit(&doing[HELD], (int64_t)tables->service.share_bytes, memory_order_relaxed);
    if (!s->counting) return TR_OK;
    tables->written = sync_written(s);
    int64_t version = sync_own_version(s);
    if (version < INT64_MAX) {
        /* all servers have reached the stable version, so readers need no earlier versions */
        int64_t stable = tr_clock_get(s->clock, TR_CLOCK_VERSION) + tables->before;
        for (size_t i = 0; i < tables->count; i++)
            if (tables->table[i]->use) tables->table[i]->use->share.stable = stable;
        tr_clock_raise(s->clock, TR_CLOCK_VERSION, version);
    }
    if (tables->status != TR_OK && !tr_clock_get(s->clock, TR_CLOCK_FAILED))
        tr_clock_raise(s->clock, TR_CLOCK_FAILED, 1);
    /* A server that is no worker starts every merge below the clock limit, since this merge will take place. Held updates of views
     * are added when all workers have read for the clock of the update. Held rows are added when, in addition, the rows of all
     * workers have arrived. */
    int64_t limit = tr_clock_get(s->clock, TR_CLOCK_LIMIT), pushed = s->now;
    for (size_t i = 0; i < tables->count; i++) {
        struct tr_table *t = tables->table[i];
        if (!s->works && t->merge && !tr_merge_busy(t) && tr_merge_done(t) < limit) {
            TR_TRY(tr_merge_start(t, NULL));
            ++*did;
        }
        TR_TRY(tr_server_serve(t, tr_clock_get(s->clock, t->sparse ? TR_CLOCK_PUSHED : TR_CLOCK_READ), did));
        int64_t sending = tr_rows_sending(t);
        if (sending < pushed) pushed = sending;
    }
    if (s->tells_rows) tr_clock_raise(s->clock, TR_CLOCK_PUSHED, pushed);
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->ahead_wanted) TR_TRY(prefetch_start(s, tables->views[i]));
    /* computes TR_CLOCK_WRITTEN of this rank: the first clock with an update that has not arrived in the tables */
    int64_t now = s->works && !s->left ? s->now : INT64_MAX;
    for (size_t i = 0; i < tables->view_count; i++) {
        const struct tr_view_state *v = tables->views[i];
        bool merges = v->merged && v->channel; /* updates of these views are included in tr_merge_done() */
        if (!merges && tr_push_busy(&v->view) && v->push_clock < now) now = v->push_clock;
    }
    for (size_t i = 0; i < tables->count; i++) {
        const struct tr_table *t = tables->table[i];
        const int64_t arrived[] = {tr_merge_done(t), tr_rows_sending(t), tr_server_settled(t)};
        for (int k = 0; k < 3; k++) now = arrived[k] < now ? arrived[k] : now;
    }
    if (now <= s->written) return TR_OK;
    s->written = now;
    ++*did;
    tr_clock_raise(s->clock, TR_CLOCK_WRITTEN, now);
    return TR_OK;
}

/* ---- stages ---- */

/* Sets all words of the clock window to 0. The participants of the previous stage must have agreed on its outcome before. */
int tr_sync_begin(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    struct tr_clock *c = s->clock;
    bool works = tr_works(tr), owes = works || (tr_is(tr, TR_SERVER) && tr_sync_lockstep(s));
    s->tells_rows = false;
    for (size_t i = 0; i < tr->tables->count; i++)
        if (works && tr_rows_wait(tr->tables->table[i])) s->tells_rows = true;
    /* the words to whose minimum this rank contributes */
    const bool counts[TR_CLOCK_MINIMA] = {[TR_CLOCK_WRITTEN] = owes,
                                          [TR_CLOCK_READ] = works,
                                          [TR_CLOCK_PUSHED] = s->tells_rows,
                                          [TR_CLOCK_VERSION] = sync_own_version(s) != INT64_MAX};
    bool first = true; /* this rank is the first participant of its node */
    for (int rank = 0; rank < tr->rank; rank++)
        if (tr_same_node(tr, rank) && tr_participates(tr->active, rank)) first = false;
    c->resetting = true;
    clock_flush(c);
    for (int word = 0; word < TR_CLOCK_MINIMA; word++)
        atomic_store(&c->mine->word[word], counts[word] ? 0 : INT64_MAX);
    for (int word = 0; word < TR_CLOCK_WORDS; word++) {
        if (first) atomic_store(&c->board->world.word[word], 0);
        if (first) atomic_store(&c->board->node.word[word], 0);
        c->sent[word] = 0;
    }
    /* a node without participants does not count in minima: its minima are INT64_MAX */
    for (int i = 0; c->node_line && i < tr->layout.nodes * TR_CLOCK_WORDS; i++)
        c->node_line[i] = i % TR_CLOCK_WORDS < TR_CLOCK_MINIMA ? INT64_MAX : 0;
    for (int rank = 0; c->node_line && rank < tr->size; rank++)
        for (int word = 0; tr_participates(tr->active, rank) && word < TR_CLOCK_MINIMA; word++)
            c->node_line[tr->node_of[rank] * TR_CLOCK_WORDS + word] = 0;
    TR_TRY(tr_barrier(tr, tr->active->participants, "all ranks to set their clocks back"));
    c->resetting = false;
    for (int word = 0; word < TR_CLOCK_MINIMA; word++)
        if (!counts[word]) clock_raise_node(c, word);
    s->now = s->written = 0;
    s->works = works;
    s->running = owes;
    s->counting = s->left = false;
    for (size_t i = 0; i < tr->tables->view_count; i++) {
        tr->tables->views[i]->view.clock = -1;
        tr->tables->views[i]->push_clock = tr->tables->views[i]->merged_for = -1;
    }
    return TR_OK;
}

void tr_sync_count(struct tr_sync *s)
{
    struct tr_tables *tables = s->tr->tables;
    s->counting = true;
    tables->service.share_bytes = 0;
    for (size_t i = 0; i < tables->count; i++)
        tables->service.share_bytes += (double)tr_table_bytes(tables->table[i]);
}

int tr_sync_barrier(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    if (s->works) {
        /* Waits until this worker's updates have arrived and prefetches have ended. Without BSP, `left` ensures that other workers
         * can read at later clocks. Under BSP all workers end at the same clock, and servers may still be adding updates. */
        bool lockstep = tr_sync_lockstep(s);
        s->left = !lockstep;
        /* cancels prefetches for clocks that will not run */
        for (size_t i = 0; i < tr->tables->view_count; i++)
            if (tr->tables->views[i]->ahead_clock > s->now) tr->tables->views[i]->ahead_wanted = false;
        TR_WAIT_UNTIL(tr, s->written >= s->now, "own updates of clock %lld to arrive", (long long)s->now - 1);
        if (lockstep)
            TR_WAIT_UNTIL(tr, sync_written(s) >= s->now, "all updates of clock %lld to arrive",
                          (long long)s->now - 1);
        for (size_t i = 0; i < tr->tables->view_count; i++) {
            struct tr_view_state *v = tr->tables->views[i];
            TR_WAIT_UNTIL(tr, !v->ahead_wanted && !tr_pull_busy(&v->view), "prefetches to end");
            v->ahead_started = false;
        }
    }
    /* ranks that are no workers wait and poll here during the whole stage */
    TR_TRY(tr_barrier(s->tr, s->tr->active->participants, s->works ? "all ranks to end a stage" : NULL));
    for (size_t i = 0; i < tr->tables->count; i++)
        TR_WAIT_UNTIL(tr, !tr_merge_busy(tr->tables->table[i]), "the last merges to bring new values");
    return TR_OK;
}

static int sync_push_held(struct tr_sync *s)
{
    struct tr_tables *tables = s->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->view.delta && !view_rests(s, tables->views[i]))
            TR_TRY(tr_view_push(&tables->views[i]->view));
    TR_TRY(tr_sync_tick(s));
    for (size_t i = 0; i < tables->view_count; i++) TR_TRY(sync_wait_for_push(s, tables->views[i]));
    return TR_OK;
}

int tr_sync_flush(struct tr_sync *s, bool *flushed)
{
    struct tr_tables *tables = s->tr->tables;
    /* a server function would treat residuals of rounding as one more gradient, so they are not sent if a table has one */
    bool functions = false, filters = false;
    for (size_t i = 0; i < tables->count; i++) {
        functions = functions || tables->table[i]->use;
        filters = filters || tables->table[i]->filter.kind != TR_FILTER_NONE;
    }
    *flushed = filters || (tr_tables_round(tables) && !functions);
    if (!*flushed) return TR_OK;
    tables->flushes = true;
    int status = s->works ? sync_push_held(s) : TR_OK;
    tables->flushes = false;
    TR_TRY(status);
    return tr_sync_barrier(s);
}

int tr_sync_end(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    bool used = false;
    s->running = s->counting = false;
    for (size_t i = 0; i < tr->tables->count; i++) {
        used = used || tr->tables->table[i]->use;
        tr_use_end(tr->tables->table[i]);
    }
    return used ? tr_barrier(tr, tr->active->participants, "the servers to settle versions") : TR_OK;
}

int tr_sync_continue(struct tr_sync *s)
{
    if (tr_sync_lockstep(s)) return TR_OK;
    TR_TRY(tr_sync_begin(s));
    TR_TRY(tr_tables_ready(s->tr));
    tr_sync_count(s);
    return TR_OK;
}

/* ---- the context ---- */

int tr_sync_open(tr_context *tr)
{
    static const char opening[] = "all ranks to open their clocks";
    struct tr_sync *s;
    struct tr_clock *c;
    TR_TRY(TR_NEW(&s, 1));
    tr->sync = s;
    s->tr = tr;
    s->staleness = tr->staleness;
    s->caching =
        tr->job && tr->job->sync.pull == TR_PULL_STALE && s->staleness > 0 && s->staleness < INT64_MAX;
    TR_TRY(TR_NEW(&c, 1));
    s->clock = c;
    c->tr = tr;
    c->memory = TR_SHM_CLOSED;
    c->nodes = c->worlds = MPI_WIN_NULL;
    bool holds_board = tr->node_rank == 0;
    size_t bytes = sizeof(struct clock_board) + 2 * (size_t)tr->node_size * sizeof(struct clock_line);
    TR_TRY(tr_shm_open(tr, tr->node, holds_board ? bytes : 0, true, &c->memory));
    c->board = (struct clock_board *)(void *)c->memory.part[0].at;
    c->mine = &c->board->rank[tr->node_rank];
    c->doing = c->mine + tr->node_size;
    tr_clock_count(c, (struct tr_rank_seen){.clock = -1});
    for (int word = 0; word < TR_CLOCK_MINIMA; word++) atomic_store(&c->mine->word[word], INT64_MAX);
    if (tr->layout.nodes > 1) {
        size_t nodes = (size_t)tr->layout.nodes, line = TR_CLOCK_WORDS * sizeof(int64_t);
        TR_TRY(TR_NEW(&c->head, nodes));
        for (int rank = tr->size - 1; rank >= 0; rank--) c->head[tr->node_of[rank]] = rank;
        if (tr->rank == 0) TR_TRY(TR_NEW(&c->node_line, nodes * TR_CLOCK_WORDS));
        if (tr->rank == 0) TR_TRY(TR_NEW(&c->heard, (size_t)tr->size));
        for (int rank = 0; c->heard && rank < tr->size; rank++)
            c->heard[rank] = (struct tr_rank_seen){.state = TR_RANK_STATES, .clock = -1};
        TR_TRY(tr_window_open(tr, c->node_line, tr->rank == 0 ? nodes * line : 0, sizeof(int64_t), opening,
                              &c->nodes));
        TR_TRY(tr_window_open(tr, &c->board->world, holds_board ? line : 0, sizeof(int64_t), opening,
                              &c->worlds));
    }
    TR_TRY(tr_poll_add(tr, clock_poll, c));
    return tr_poll_add(tr, sync_poll, s);
}

void tr_sync_close(tr_context *tr)
{
    static const char closing[] = "all ranks to close their clocks";
    if (!tr->sync) return;
    struct tr_clock *c = tr->sync->clock;
    tr_poll_remove(tr, sync_poll, tr->sync);
    if (c) {
        tr_poll_remove(tr, clock_poll, c);
        tr_window_close(tr, tr->world, closing, &c->nodes);
        tr_window_close(tr, tr->world, closing, &c->worlds);
        tr_shm_close(&c->memory);
        TR_FREE_ALL(c->node_line, c->head, c->heard, c);
    }
    free(tr->sync);
    tr->sync = NULL;
}

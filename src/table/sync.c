#include "table/sync.h"

#include <sched.h>
#include <stdlib.h>

#include "table/function.h"
#include "table/node.h"
#include "table/rows.h"

static int64_t sync_written(const struct tr_sync *s)
{
    return tr_clock_get(s->clock, TR_CLOCK_WRITTEN);
}

/* ---- waiting ---- */

/* A pull for `clock` may read: every update of clocks < clock - staleness is in the tables. */
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

static int prefetch_wait(struct tr_sync *s, const struct tr_view_state *v)
{
    TR_WAIT_UNTIL(s->tr, !v->ahead_wanted && !tr_pull_busy(&v->view), "the prefetch of table %s",
                  v->view.table->name);
    return TR_OK;
}

/* ---- progress of this rank ---- */

/* The lowest version of this server's shares; INT64_MAX: no table here keeps versions. */
static int64_t sync_own_version(const struct tr_sync *s)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < s->tr->tables->count; i++) {
        int64_t version = tr_table_version(s->tr->tables->table[i]);
        if (version < least) least = version;
    }
    return least;
}

/* The number of clocks whose updates that this rank owes have all arrived in the tables. */
static int64_t sync_settled(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    int64_t least = s->works && !s->left ? s->now : INT64_MAX;
    for (size_t i = 0; i < tables->view_count; i++) {
        const struct tr_view_state *v = tables->views[i];
        bool merges = v->merged && v->channel; /* covered by tr_table_settled() below */
        if (!merges && tr_push_busy(&v->view) && v->push_clock < least) least = v->push_clock;
    }
    for (size_t i = 0; i < tables->count; i++) {
        int64_t settled = tr_table_settled(tables->table[i]);
        if (settled < least) least = settled;
    }
    return least;
}

/* Under BSP: the number of clocks whose rows, pushed by this worker, have all reached their servers. */
static int64_t sync_pushed_rows(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    int64_t least = s->now;
    for (size_t i = 0; i < tables->count; i++) {
        int64_t sending = tr_rows_sending(tables->table[i]);
        if (sending < least) least = sending;
    }
    return least;
}

/* Rows of some table may be pushed in this stage, and servers hold them. */
static bool sync_holds_rows(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    for (size_t i = 0; i < tables->count; i++)
        if (tr_rows_wait(tables->table[i])) return true;
    return false;
}

/* ---- pulling a view ---- */

/* The last merge has brought the values to be read at `clock`. */
static bool view_has_merged_value(const struct tr_sync *s, const struct tr_view_state *v, int64_t clock)
{
    int64_t since = clock - v->merged_for;
    return s->running && v->merged_for >= 0 && since >= 0 && since < v->view.table->every;
}

/* Updates of the view are merged, and its table is not updated in this clock. */
static bool view_rests(const struct tr_sync *s, const struct tr_view_state *v)
{
    return v->merged && tr_table_next_update(v->view.table, s->now) > s->now;
}

/* Starts a pull. A table that keeps versions is read at the highest version that all servers are known to have: the reported
 * one, or that of updates which all workers, or this one, are known to have written. Node pulls need clocks, so they are used
 * only inside a stage. */
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
    /* the update of a group is complete only after its reduction: the leader reads after that */
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

/* A prefetched copy becomes up to date by adding this worker's own update: updates are simply added, and this worker alone
 * knows its own. */
static bool view_adds_own_update(const struct tr_sync *s, const struct tr_view_state *v)
{
    return !v->view.table->use && !s->caching && !v->group;
}

int tr_view_prefetch(tr_view *view)
{
    struct tr_view_state *v = view->state;
    struct tr_sync *s = view->table->tr->sync;
    /* An evaluation after the last clock has no next clock: nothing would wait for the read before the view is closed. */
    if (!s->counting) return TR_OK;
    if (v->ahead_started || (!v->group && tr_view_reads_near(v)))
        return TR_OK; /* memory of the node is best read late, when it is fresh */
    if (view->table->use || s->caching)
        return TR_OK; /* only the server knows the effect of this worker's own update */
    if (v->node_pull && !tr_sync_lockstep(s) && !v->group) return TR_OK; /* see prefetch_take_over() */
    return prefetch_want(s, v);
}

/* If another worker of the node has read values that are new enough for the next clock, takes them over like a prefetched copy
 * (node.h). */
static int prefetch_take_over(struct tr_sync *s, struct tr_view_state *v)
{
    int64_t next = s->now + 1;
    if (!v->node_pull || tr_sync_lockstep(s) || !s->counting || !view_adds_own_update(s, v)) return TR_OK;
    if (v->ahead_started || tr_pull_busy(&v->view) || !sync_may_read(s, next)) return TR_OK;
    return tr_node_pull_has_news(v->node_pull, next - s->staleness) ? prefetch_want(s, v) : TR_OK;
}

/* A view keeps its values over several clocks if the worker's own updates can be added to them: not gradients, whose steps only
 * the servers know, and not in a group, whose members do not know each other's updates. */
static bool view_is_cached(const struct tr_sync *s, const struct tr_view_state *v)
{
    const struct tr_use *use = v->view.table->use;
    return s->caching && v->use != TR_VIEW_READ && !v->group && !(use && use->function.gradients);
}

/* The values of a view contain every update that they must contain at this clock. */
static bool view_is_fresh(const struct tr_sync *s, const struct tr_view_state *v)
{
    if (v->view.clock == s->now) return true;
    return s->running && view_is_cached(s, v) && v->view.clock >= 0 && v->holds >= s->now - s->staleness;
}

/* The prefetched copy is for this clock. It contains own updates, even one that is in flight. */
static bool prefetch_is_due(const struct tr_sync *s, const struct tr_view_state *v)
{
    return v->ahead_started && v->ahead_clock == s->now;
}

/* A worker that stands in waits for its group's broadcast, but all other workers have ended the clock without it. */
static bool view_is_left_out(const struct tr_sync *s, const struct tr_view_state *v)
{
    return s->stands_in && v->pull == PULL_SPREADING && tr_clock_get(s->clock, TR_CLOCK_READ) > s->now;
}

/* Fills the view with the prefetched copy for this clock or, where there is none, from the servers. */
static int view_read(struct tr_sync *s, struct tr_view_state *v, double *waited)
{
    if ((v->ahead_wanted || v->ahead_started) &&
        v->ahead_clock < s->now) { /* for a clock in which the view was not pulled */
        TR_TRY(prefetch_wait(s, v));
        v->ahead_started = false;
    }
    if (v->ahead_started) {
        TR_TRY(prefetch_wait(s, v));
        void *old = v->view.value;
        v->view.value = v->ahead;
        v->ahead = old;
        v->ahead_started = false;
        return TR_OK;
    }
    v->ahead_wanted = false;
    double begin = tr_now();
    if (v->channel && !view_has_merged_value(s, v, s->now)) TR_TRY(sync_wait_to_read(s));
    *waited = tr_now() - begin;
    v->holds = sync_written(s);
    TR_TRY(view_start_pull(s, v, v->view.value, s->now));
    TR_WAIT_UNTIL(s->tr, !tr_pull_busy(&v->view) || view_is_left_out(s, v),
                  "the servers of table %s to send %zu keys", v->view.table->name, v->view.n);
    if (tr_pull_busy(&v->view)) tr_pull_leave(&v->view);
    return TR_OK;
}

int tr_view_pull(tr_view *view)
{
    struct tr_view_state *v = view->state;
    struct tr_sync *s = view->table->tr->sync;
    struct tr_traffic *traffic = &s->tr->tables->traffic;
    double begin = tr_now(), pushed, waited = 0;
    if (!view_is_fresh(s, v)) {
        enum tr_rank_state before = tr_clock_say(s->clock, TR_RANK_PULLS);
        tr_wait_begin(s->tr->tables);
        if (!prefetch_is_due(s, v)) TR_TRY(sync_wait_for_push(s, v));
        pushed = tr_now();
        TR_TRY(view_read(s, v, &waited));
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
    TR_TRY(prefetch_take_over(s, v));
    if (v->ahead_started) { /* the prefetched copy lacks the update that is pushed now */
        TR_WAIT_UNTIL(tr, !tr_pull_busy(view), "the prefetch of table %s", view->table->name);
        tr_add_elements(view->table->dtype, elements, view->delta, v->ahead);
    }
    if (view_is_cached(s, v)) /* a worker sees its own updates */
        tr_add_elements(view->table->dtype, elements, view->delta, view->value);
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

/* ---- for a group ---- */

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

/* ---- rows (rows.h) ---- */

/* This worker has pushed a view in this clock. Under BSP that update becomes visible as soon as all workers have read; a worker
 * that pushes has read. */
static bool sync_has_pushed(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->push_clock >= s->now) return true;
    return false;
}

/* An update of this worker by a view of the table is in flight. A worker sees its own updates, so rows wait for it. */
static bool sync_is_pushing(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->view.table == t && tr_push_busy(&tables->views[i]->view)) return true;
    return false;
}

int tr_rows_pull(tr_table *t, const tr_key *keys, size_t n, tr_row_fn *row, void *state)
{
    struct tr_sync *s = t->tr->sync;
    struct tr_traffic *traffic = &t->tr->tables->traffic;
    double begin = tr_now(), pushed, waited, computed = 0;
    bool lockstep = tr_sync_lockstep(s), inside = s->running && s->counting;
    bool subscribed = lockstep && inside && tr_subscription_has(t, keys, n);
    if (s->running && lockstep && sync_has_pushed(s))
        return tr_fail(TR_ERR_INTERNAL,
                       "rows of table %s are pulled after a view was pushed in the same clock", t->name);
    tr_wait_begin(t->tr->tables);
    if (!lockstep) /* in lockstep, the clock window says that it has arrived */
        TR_WAIT_UNTIL(t->tr, !sync_is_pushing(t), "the servers of table %s to take an update", t->name);
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
    for (size_t i = 0; i < tables->view_count;
         i++) { /* the delta of other views was cleared when the push started */
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
        tables->traffic.pushes--; /* servers wait for it, but it contains no update */
    }
    TR_TRY(tr_tables_end_clock(tr, s->now));
    tr_clock_raise(s->clock, TR_CLOCK_READ, s->now + 1);
    s->now++;
    /* with more ranks than cores, workers that never wait would drift apart by whole time slices */
    if (tr->crowded && !tr_sync_lockstep(s)) sched_yield();
    int did = 0;
    return tr_progress(tr, &did);
}

static int sync_poll(void *what, int *did)
{
    struct tr_sync *s = what;
    struct tr_tables *tables = s->tr->tables;
    tr_clock_serve(s->clock, tables->service.seconds, tables->service.share_bytes);
    if (!s->counting) return TR_OK;
    tables->written = sync_written(s);
    int64_t version = sync_own_version(s);
    if (version < INT64_MAX) tr_tables_set_stable(tables, tr_clock_get(s->clock, TR_CLOCK_VERSION));
    if (version < INT64_MAX) tr_clock_raise(s->clock, TR_CLOCK_VERSION, version);
    if (tables->status != TR_OK && !tr_clock_get(s->clock, TR_CLOCK_FAILED))
        tr_clock_raise(s->clock, TR_CLOCK_FAILED, 1);
    /* A rank that only serves takes part in every merge that is sure to come. Updates that came as messages become visible
     * when all workers have read for their clock; rows, when besides all workers' rows have arrived. */
    const struct tr_table_clocks clocks = {.works = s->works,
                                           .limit = tr_clock_get(s->clock, TR_CLOCK_LIMIT),
                                           .read = tr_clock_get(s->clock, TR_CLOCK_READ),
                                           .pushed = tr_clock_get(s->clock, TR_CLOCK_PUSHED)};
    for (size_t i = 0; i < s->tr->tables->count; i++)
        TR_TRY(tr_table_serve(s->tr->tables->table[i], &clocks, did));
    if (s->tells_rows) tr_clock_raise(s->clock, TR_CLOCK_PUSHED, sync_pushed_rows(s));
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->ahead_wanted) TR_TRY(prefetch_start(s, tables->views[i]));
    int64_t now = sync_settled(s);
    if (now <= s->written) return TR_OK;
    s->written = now;
    ++*did;
    tr_clock_raise(s->clock, TR_CLOCK_WRITTEN, now);
    return TR_OK;
}

/* ---- stages ---- */

int tr_sync_begin(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    bool works = tr_works(tr), owes = works || (tr_is(tr, TR_SERVER) && tr_sync_lockstep(s));
    s->tells_rows = works && sync_holds_rows(s);
    const bool counts[TR_CLOCK_MINIMA] = {[TR_CLOCK_WRITTEN] = owes,
                                          [TR_CLOCK_READ] = works,
                                          [TR_CLOCK_PUSHED] = s->tells_rows,
                                          [TR_CLOCK_VERSION] = sync_own_version(s) != INT64_MAX};
    TR_TRY(tr_clock_reset(s->clock, counts));
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

/* No view is being prefetched or waits for it. */
static bool prefetch_none(const struct tr_tables *tables)
{
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->ahead_wanted || tr_pull_busy(&tables->views[i]->view)) return false;
    return true;
}

/* Waits until this worker's updates have arrived and prefetches have ended. A worker that stops early does not delay the reads of
 * others. Under BSP all workers end at the same clock, and servers may still be adding updates that were sent long ago. */
static int sync_settle(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    s->left = !tr_sync_lockstep(s);
    /* no member of a group prefetches a view for a clock that will not be run */
    for (size_t i = 0; i < tr->tables->view_count; i++)
        if (tr->tables->views[i]->ahead_clock > s->now) tr->tables->views[i]->ahead_wanted = false;
    TR_WAIT_UNTIL(tr, s->written >= s->now, "own updates of clock %lld to arrive", (long long)s->now - 1);
    if (tr_sync_lockstep(s))
        TR_WAIT_UNTIL(tr, sync_written(s) >= s->now, "all updates of clock %lld to arrive",
                      (long long)s->now - 1);
    TR_WAIT_UNTIL(tr, prefetch_none(tr->tables), "prefetches to end");
    for (size_t i = 0; i < tr->tables->view_count; i++) tr->tables->views[i]->ahead_started = false;
    return TR_OK;
}

int tr_sync_barrier(struct tr_sync *s)
{
    if (s->works) TR_TRY(sync_settle(s));
    /* for servers and the scheduler this is the whole of training */
    TR_TRY(tr_barrier(s->tr, s->tr->active->participants, s->works ? "all ranks to end a stage" : NULL));
    TR_WAIT_UNTIL(s->tr, !tr_tables_merge(s->tr->tables), "the last merges to bring new values");
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
    *flushed = tr_tables_hold_back(tables);
    if (!*flushed) return TR_OK;
    tables->flushes = true;
    int status = s->works ? sync_push_held(s) : TR_OK;
    tables->flushes = false;
    TR_TRY(status);
    return tr_sync_barrier(s);
}

int tr_sync_end(struct tr_sync *s)
{
    s->running = s->counting = false;
    return tr_tables_settle(s->tr);
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
    struct tr_sync *s;
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        TR_TRY(tr_function_add(tr->tables, tr_builtin_functions[i]));
    for (size_t i = 0; i < tr_builtin_answer_count; i++)
        TR_TRY(tr_answer_add(tr->tables, tr_builtin_answers[i]));
    TR_TRY(TR_NEW(&s, 1));
    tr->sync = s;
    s->tr = tr;
    s->staleness = tr->staleness;
    s->caching =
        tr->job && tr->job->sync.pull == TR_PULL_STALE && s->staleness > 0 && s->staleness < INT64_MAX;
    TR_TRY(tr_clock_open(tr, &s->clock));
    return tr_poll_add(tr, sync_poll, s);
}

void tr_sync_close(tr_context *tr)
{
    if (!tr->sync) return;
    tr_poll_remove(tr, sync_poll, tr->sync);
    tr_clock_close(&tr->sync->clock);
    free(tr->sync);
    tr->sync = NULL;
}

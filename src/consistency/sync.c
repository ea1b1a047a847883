#include "consistency/sync.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "consistency/functions.h"
#include "table/rows.h"
#include "table/together.h"

/* ---- what this rank owes ---- */

/* The clocks of which all that this rank owes has arrived in the tables. */
static int64_t settled(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    int64_t least = s->works && !s->left ? s->now : INT64_MAX;
    for (size_t i = 0; i < tables->view_count; i++) {
        const struct tr_view_state *v = tables->views[i];
        if (tr_push_busy(&v->view) && v->push_clock < least) least = v->push_clock;
    }
    for (size_t i = 0; i < tables->count; i++) {
        const struct tr_table *t = tables->table[i];
        int64_t merged = tr_merge_done(t), sending = tr_rows_sending(t);
        if (merged < least) least = merged;
        if (sending < least) least = sending;
        if (t->lockstep && tr_table_by_message(t) && t->pushing_clients > 0 && t->served < least)
            least = t->served;
    }
    return least;
}

/* A rank that only serves takes part in every merge that is sure to come. */
static int serve_merges(struct tr_sync *s, int *did)
{
    int64_t granted = tr_clock_granted(s->clock);
    for (size_t i = 0; i < s->tr->tables->count; i++) {
        struct tr_table *t = s->tr->tables->table[i];
        if (!t->merge || tr_merge_busy(t) || tr_merge_done(t) >= granted) continue;
        TR_TRY(tr_merge_start(t, NULL));
        ++*did;
    }
    return TR_OK;
}

/* Updates that came as messages show when everybody has read for their clock. */
static int serve_messages(struct tr_sync *s, int *did)
{
    for (size_t i = 0; i < s->tr->tables->count; i++) {
        struct tr_table *t = s->tr->tables->table[i];
        if (!tr_server_holds_clock(t) || tr_clock_min_read(s->clock) <= t->served) continue;
        TR_TRY(tr_server_apply_held(t));
        ++*did;
    }
    return TR_OK;
}

/* ---- versions ---- */

static bool keeps_versions(const struct tr_table *t)
{
    return t->use && t->use->function.read;
}

/* The lowest version of this server's shares, for the stable version of all. */
static int64_t own_version(const struct tr_sync *s)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < s->tr->tables->count; i++) {
        const struct tr_table *t = s->tr->tables->table[i];
        if (!keeps_versions(t) || t->server < 0) continue;
        int64_t version = atomic_load_explicit(&t->line[t->server]->version, memory_order_relaxed);
        if (version < least) least = version;
    }
    return least;
}

static int tell_version(struct tr_sync *s)
{
    if (s->tr->me.server < 0) return TR_OK;
    int64_t version = own_version(s);
    if (version == INT64_MAX) return TR_OK;
    for (size_t i = 0; i < s->tr->tables->count; i++)
        if (s->tr->tables->table[i]->use)
            s->tr->tables->table[i]->use->share.stable =
                tr_clock_min_version(s->clock) + s->tr->tables->before;
    return tr_clock_version(s->clock, version);
}

/* Which version a view is to be read at: tables that keep versions are read at the highest one that all servers are
 * known to have. What they have told may be old: they have what everybody has written, and what this worker has. */
static int64_t version_to_read(const struct tr_sync *s, const tr_view *view)
{
    int64_t told = tr_clock_min_version(s->clock), written = tr_clock_min_written(s->clock);
    int64_t own = view->state->push_clock + 1;
    if (!keeps_versions(view->table)) return -1;
    if (told < written) told = written;
    return told < own ? own : told;
}

/* ---- reading ahead ---- */

static bool may_read(const struct tr_sync *s, int64_t clock)
{
    return !s->running || s->staleness == INT64_MAX || tr_clock_min_written(s->clock) >= clock - s->staleness;
}

/* What a view reads together with others of its node goes by clocks, which there are only inside a stage. */
static int start_pull(struct tr_sync *s, struct tr_view_state *v, void *into, int64_t clock)
{
    s->tr->tables->written = tr_clock_min_written(s->clock);
    if (v->together && s->running && s->counting)
        return tr_pull_start_together(&v->view, into, clock - s->staleness);
    return tr_pull_start(&v->view, into, version_to_read(s, &v->view));
}

static int start_ahead(struct tr_sync *s, struct tr_view_state *v)
{
    if (!v->ahead_wanted || v->pull != PULL_IDLE || tr_push_busy(&v->view)) return TR_OK;
    /* a group's own update is known only when it has been gathered: its leader reads after that */
    if (v->group && s->now < v->ahead_clock) return TR_OK;
    if (v->channel && !may_read(s, v->ahead_clock)) return TR_OK;
    v->ahead_wanted = false;
    v->ahead_started = true;
    return start_pull(s, v, v->ahead, v->ahead_clock);
}

/* Where updates are simply added, and this worker knows its own, what lacks the update that leaves now can be had with
 * it added. */
static bool knows_own_update(const struct tr_sync *s, const struct tr_view_state *v)
{
    return !v->view.table->use && !s->caching && !v->group;
}

/* Another worker of the node has read what will do for this one's next clock: that is taken over like what was read
 * ahead (table/together.h). */
static int take_over(struct tr_sync *s, struct tr_view_state *v)
{
    int64_t next = s->now + 1;
    if (!v->together || tr_sync_lockstep(s) || !s->counting || !knows_own_update(s, v)) return TR_OK;
    if (v->ahead_started || tr_pull_busy(&v->view) || !may_read(s, next)) return TR_OK;
    if (!tr_together_has_news(v->together, next - s->staleness)) return TR_OK;
    if (!v->ahead) TR_TRY(TR_NEW((char **)&v->ahead, tr_view_bytes(&v->view)));
    v->ahead_clock = next;
    v->ahead_wanted = false;
    v->ahead_started = true;
    return start_pull(s, v, v->ahead, next);
}

int tr_view_prefetch(tr_view *view)
{
    struct tr_view_state *v = view->state;
    struct tr_sync *s = view->table->tr->sync;
    if (v->ahead_started || tr_view_is_near(view))
        return TR_OK; /* memory at hand is best read late, when it is fresh */
    if (view->table->use || s->caching)
        return TR_OK; /* what becomes of an own update, only the server knows */
    if (v->together && !tr_sync_lockstep(s) && knows_own_update(s, v)) return TR_OK; /* see take_over() */
    if (!v->ahead) TR_TRY(TR_NEW((char **)&v->ahead, tr_view_bytes(view)));
    v->ahead_wanted = true;
    v->ahead_clock = s->now + 1;
    return start_ahead(s, v);
}

/* ---- pulling and pushing as the consistency allows ---- */

/* A copy is kept over clocks where the worker's own updates can be added to it: not gradients, whose steps only the
 * servers know, and not in a group, whose members do not know each other's. */
static bool is_cached(const struct tr_sync *s, const struct tr_view_state *v)
{
    const struct tr_use *use = v->view.table->use;
    return s->caching && v->use != TR_VIEW_READ && !v->group && !(use && use->function.gradients);
}

/* Whether what a view holds need not be read again: every update that it has to hold is in it. */
static bool is_fresh_enough(const struct tr_sync *s, const struct tr_view_state *v)
{
    if (v->view.clock == s->now) return true;
    return s->running && is_cached(s, v) && v->view.clock >= 0 && v->holds >= s->now - s->staleness;
}

/* What was read ahead for a clock that was not pulled is too old. */
static int drop_what_is_too_old(struct tr_sync *s, struct tr_view_state *v)
{
    if (!(v->ahead_wanted || v->ahead_started) || v->ahead_clock >= s->now) return TR_OK;
    TR_WAIT_UNTIL(s->tr, !v->ahead_wanted && !tr_pull_busy(&v->view), "table %s to be read ahead",
                  v->view.table->name);
    v->ahead_started = false;
    return TR_OK;
}

static int take_what_was_read_ahead(struct tr_sync *s, struct tr_view_state *v)
{
    TR_WAIT_UNTIL(s->tr, !tr_pull_busy(&v->view), "table %s to be read ahead", v->view.table->name);
    void *old = v->view.value;
    v->view.value = v->ahead;
    v->ahead = old;
    v->ahead_started = false;
    return TR_OK;
}

/* Waits as the consistency demands: *waited seconds. */
static int read_now(struct tr_sync *s, struct tr_view_state *v, double *waited)
{
    v->ahead_wanted = false;
    double begin = tr_now();
    if (v->channel)
        TR_WAIT_UNTIL(s->tr, may_read(s, s->now),
                      "clock %lld of the slowest worker (this one is at %lld, the slowest at %lld)",
                      (long long)(s->now - s->staleness), (long long)s->now,
                      (long long)tr_clock_min_written(s->clock));
    *waited = tr_now() - begin;
    v->holds = tr_clock_min_written(s->clock);
    TR_TRY(start_pull(s, v, v->view.value, s->now));
    TR_WAIT_UNTIL(s->tr, !tr_pull_busy(&v->view), "the servers of table %s to send %zu keys",
                  v->view.table->name, v->view.n);
    return TR_OK;
}

int tr_view_pull(tr_view *view)
{
    struct tr_view_state *v = view->state;
    tr_context *tr = view->table->tr;
    struct tr_sync *s = tr->sync;
    struct tr_traffic *traffic = &tr->tables->traffic;
    double begin = tr_now(), pushed, waited = 0;
    if (!is_fresh_enough(s, v)) {
        TR_WAIT_UNTIL(tr, !tr_push_busy(view), "the servers of table %s to take the update of clock %lld",
                      view->table->name, (long long)v->push_clock);
        pushed = tr_now();
        traffic->push_seconds += pushed - begin;
        TR_TRY(drop_what_is_too_old(s, v));
        TR_TRY(v->ahead_started ? take_what_was_read_ahead(s, v) : read_now(s, v, &waited));
        traffic->wait_seconds += waited;
        traffic->pull_seconds += tr_now() - pushed - waited;
    }
    view->clock = s->now;
    return TR_OK;
}

int tr_view_push(tr_view *view)
{
    struct tr_view_state *v = view->state;
    tr_context *tr = view->table->tr;
    struct tr_sync *s = tr->sync;
    if (!view->delta)
        return tr_fail(TR_ERR_INTERNAL, "a view of table %s opened for reading was pushed",
                       view->table->name);
    if (tr_sync_lockstep(s) && v->push_clock == s->now)
        return tr_fail(TR_ERR_INTERNAL, "a view of table %s was pushed twice in a clock under BSP",
                       view->table->name);
    if (tr->before_push) TR_TRY(tr->before_push(tr->before_push_state));
    double begin = tr_now(), waited = 0;
    TR_WAIT_UNTIL(tr, !tr_push_busy(view), "the servers of table %s to take the update of clock %lld",
                  view->table->name, (long long)v->push_clock);
    TR_TRY(take_over(s, v));
    if (v->ahead_started) { /* what was read ahead lacks the update that leaves now */
        TR_WAIT_UNTIL(tr, !tr_pull_busy(view), "table %s to be read ahead", view->table->name);
        tr_add_elements(view->table->dtype, view->n * view->width, view->delta, v->ahead);
    }
    if (is_cached(s, v)) /* a worker sees its own updates */
        tr_add_elements(view->table->dtype, view->n * view->width, view->delta, view->value);
    TR_TRY(tr_clock_read(s->clock, s->now + 1));
    if (tr_sync_lockstep(s) && view->table->push == TR_PUSH_ACCUMULATE && v->channel) {
        waited = tr_now();
        TR_WAIT_UNTIL(tr, tr_clock_min_read(s->clock) > s->now, "all workers to have read for clock %lld",
                      (long long)s->now);
        waited = tr_now() - waited;
    }
    TR_TRY(tr_push_start(view, s->now));
    tr->tables->traffic.wait_seconds += waited;
    tr->tables->traffic.push_seconds += tr_now() - begin - waited;
    return TR_OK;
}

/* ---- clocks ---- */

int tr_sync_next(struct tr_sync *s)
{
    struct tr_tables *tables = s->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        if (!v->merged && !v->group) continue; /* else delta is zeroed at once */
        double begin = tr_now();
        TR_WAIT_UNTIL(s->tr, !tr_push_busy(&v->view),
                      "the servers of table %s to take the update of clock %lld", v->view.table->name,
                      (long long)v->push_clock);
        tables->traffic.push_seconds += tr_now() - begin;
    }
    return TR_OK;
}

int tr_sync_tick(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        bool pushes = v->view.delta && v->use != TR_VIEW_GIVE;
        if (tr_sync_lockstep(s) && pushes && v->push_clock < s->now) TR_TRY(tr_view_push(&v->view));
    }
    for (size_t i = 0; i < tables->count; i++) TR_TRY(tr_rows_end_clock(tables->table[i], s->now));
    for (size_t i = 0; i < tables->count; i++) { /* merges that this rank has nothing to give to */
        struct tr_table *t = tables->table[i];
        if (!t->merge || t->updating_views > 0) continue;
        TR_WAIT_UNTIL(tr, !tr_merge_busy(t), "the merge of table %s", t->name);
        TR_TRY(tr_merge_start(t, NULL));
    }
    TR_TRY(tr_clock_read(s->clock, s->now + 1));
    s->now++;
    /* with more ranks than cores, workers that never wait would run whole time slices apart */
    if (tr->crowded && !tr_sync_lockstep(s)) sched_yield();
    int did = 0;
    return tr_progress(tr, &did);
}

static int poll_sync(void *what, int *did)
{
    struct tr_sync *s = what;
    if (!s->counting) return TR_OK;
    s->tr->tables->written = tr_clock_min_written(s->clock);
    TR_TRY(tell_version(s));
    if (s->tr->tables->status != TR_OK && !tr_clock_failed(s->clock)) tr_clock_fail(s->clock);
    if (!s->works) TR_TRY(serve_merges(s, did));
    TR_TRY(serve_messages(s, did));
    for (size_t i = 0; i < s->tr->tables->view_count; i++)
        if (s->tr->tables->views[i]->ahead_wanted) TR_TRY(start_ahead(s, s->tr->tables->views[i]));
    int64_t now = settled(s);
    if (now <= s->written) return TR_OK;
    s->written = now;
    ++*did;
    return tr_clock_written(s->clock, now);
}

int tr_sync_begin(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    bool works = tr_works(tr);
    bool owes = works || (tr_is(tr, TR_SERVER) && tr_sync_lockstep(s));
    bool versions = tr->me.server >= 0 && own_version(s) != INT64_MAX;
    TR_TRY(tr_clock_reset(s->clock, owes, works, versions));
    s->now = s->written = 0;
    s->works = works;
    s->running = owes;
    s->counting = s->left = false;
    for (size_t i = 0; i < tr->tables->view_count; i++) {
        tr->tables->views[i]->view.clock = -1;
        tr->tables->views[i]->push_clock = -1;
    }
    return TR_OK;
}

void tr_sync_count(struct tr_sync *s)
{
    s->counting = true;
}

/* Nothing is being read ahead, nor going to be. */
static bool nothing_ahead(const struct tr_tables *tables)
{
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->ahead_wanted || tr_pull_busy(&tables->views[i]->view)) return false;
    return true;
}

/* Whoever has ended early, because he was told to stop, holds up nobody's reading; under BSP all end at the same
 * clock, and servers may still be adding what the workers have long sent. */
static int settle(struct tr_sync *s)
{
    tr_context *tr = s->tr;
    if (!s->works) return TR_OK;
    s->left = !tr_sync_lockstep(s);
    TR_WAIT_UNTIL(tr, s->written >= s->now, "own updates of clock %lld to arrive", (long long)s->now - 1);
    if (tr_sync_lockstep(s))
        TR_WAIT_UNTIL(tr, tr_clock_min_written(s->clock) >= s->now, "all updates of clock %lld to arrive",
                      (long long)s->now - 1);
    TR_WAIT_UNTIL(tr, nothing_ahead(tr->tables), "what is read ahead");
    for (size_t i = 0; i < tr->tables->view_count; i++) tr->tables->views[i]->ahead_started = false;
    return TR_OK;
}

int tr_sync_meet(struct tr_sync *s)
{
    TR_TRY(settle(s));
    /* for servers and the scheduler this is the whole of training */
    return tr_barrier(s->tr, s->tr->active->participants, s->works ? "all ranks to end a stage" : NULL);
}

int tr_sync_end(struct tr_sync *s)
{
    s->running = s->counting = false;
    return tr_tables_settle(s->tr);
}

int tr_sync_go_on(struct tr_sync *s)
{
    if (tr_sync_lockstep(s)) return TR_OK;
    TR_TRY(tr_sync_begin(s));
    TR_TRY(tr_tables_ready(s->tr));
    tr_sync_count(s);
    return TR_OK;
}

static int register_functions(struct tr_tables *tables)
{
    for (size_t i = 0; i < tr_builtin_function_count; i++)
        TR_TRY(tr_function_add(tables, tr_builtin_functions[i]));
    for (size_t i = 0; i < tr_builtin_answer_count; i++) TR_TRY(tr_answer_add(tables, tr_builtin_answers[i]));
    return TR_OK;
}

int tr_sync_open(tr_context *tr)
{
    TR_TRY(register_functions(tr->tables));
    struct tr_sync *s;
    TR_TRY(TR_NEW(&s, 1));
    tr->sync = s;
    s->tr = tr;
    s->staleness = tr->staleness;
    s->caching =
        tr->job && tr->job->sync.pull == TR_PULL_STALE && s->staleness > 0 && s->staleness < INT64_MAX;
    TR_TRY(tr_clock_open(tr, &s->clock));
    return tr_poll_add(tr, poll_sync, s);
}

void tr_sync_close(tr_context *tr)
{
    if (!tr->sync) return;
    tr_poll_remove(tr, poll_sync, tr->sync);
    tr_clock_close(&tr->sync->clock);
    free(tr->sync);
    tr->sync = NULL;
}

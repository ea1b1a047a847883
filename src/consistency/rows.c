/* When rows may be pulled and pushed: see trireme/rows.h; how they travel: table/rows.h. */
#include "table/rows.h"
#include "consistency/sync.h"

/* Under BSP what a view pushes shows as soon as everybody has read, and whoever pushes has. */
static bool has_pushed_a_view(const struct tr_sync *s)
{
    const struct tr_tables *tables = s->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->push_clock >= s->now) return true;
    return false;
}

/* Own updates are seen: those of views have to arrive first. */
static bool is_pushing(const struct tr_table *t)
{
    const struct tr_tables *tables = t->tr->tables;
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->view.table == t && tr_push_busy(&tables->views[i]->view)) return true;
    return false;
}

static bool may_pull(const struct tr_sync *s)
{
    return !s->running || s->staleness == INT64_MAX ||
           tr_clock_min_written(s->clock) >= s->now - s->staleness;
}

static struct tr_rows_terms terms_of(const struct tr_sync *s)
{
    bool stage = s->running && s->counting, lockstep = tr_sync_lockstep(s);
    return (struct tr_rows_terms){.still = lockstep || !s->running,
                                  .exact = !s->running,
                                  .shared = stage,
                                  .least = s->staleness == INT64_MAX ? 0 : s->now - s->staleness,
                                  .holds = lockstep ? s->now : tr_clock_min_written(s->clock)};
}

int tr_rows_pull(tr_table *t, const tr_key *keys, size_t n, tr_row_fn *row, void *state)
{
    tr_context *tr = t->tr;
    struct tr_sync *s = tr->sync;
    struct tr_traffic *traffic = &tr->tables->traffic;
    double begin = tr_now(), pushed, waited, computed = 0;
    if (s->running && tr_sync_lockstep(s) && has_pushed_a_view(s))
        return tr_fail(TR_ERR_INTERNAL,
                       "rows of table %s are pulled after a view was pushed in the same clock", t->name);
    TR_WAIT_UNTIL(tr, !is_pushing(t), "the servers of table %s to take an update", t->name);
    pushed = tr_now();
    TR_WAIT_UNTIL(
        tr, may_pull(s), "clock %lld of the slowest worker (this one is at %lld, the slowest at %lld)",
        (long long)(s->now - s->staleness), (long long)s->now, (long long)tr_clock_min_written(s->clock));
    waited = tr_now();
    struct tr_rows_terms terms = terms_of(s);
    int status = tr_rows_move(t, keys, n, row, state, &terms, &computed);
    traffic->push_seconds += pushed - begin;
    traffic->wait_seconds += waited - pushed;
    traffic->pull_seconds += tr_now() - waited - computed;
    return status;
}

int tr_rows_push(tr_table *t, const tr_row *rows, size_t n)
{
    tr_context *tr = t->tr;
    double begin = tr_now();
    int status = tr_rows_add(t, rows, n, tr->sync->now);
    tr->tables->traffic.push_seconds += tr_now() - begin;
    return status;
}

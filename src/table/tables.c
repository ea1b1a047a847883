#include "table/tables.h"

#include <stdlib.h>

#include "table/function.h"
#include "table/merge.h"
#include "table/node_pull.h"
#include "table/rows.h"
#include "table/server.h"
#include "table/squeeze.h"
#include "table/view.h"
#include "trireme/collective.h"

/* ---- opening and closing ---- */

/* Merges, messages, rows and views of all tables. */
static int poll_tables(void *what, int *did)
{
    struct tr_tables *tables = what;
    tr_messages_poll(tables, did);
    TR_TRY(tr_server_poll(tables, did));
    for (size_t i = 0; i < tables->count; i++) {
        TR_TRY(tr_merge_poll(tables->table[i], did));
        TR_TRY(tr_rows_poll(tables->table[i], did));
    }
    for (size_t i = 0; i < tables->view_count; i++) TR_TRY(tr_view_poll(tables->views[i], did));
    return TR_OK;
}

/* Said before anything is read, while it costs nothing. */
static int check_servers(const tr_context *tr)
{
    if (!tr->job || tr->job->table.servers <= (uint64_t)tr->layout.servers) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: table.servers is %llu, but there are %d servers: see ranks.servers",
                   tr_job_where(tr->job, "table.servers"), (unsigned long long)tr->job->table.servers,
                   tr->layout.servers);
}

int tr_tables_open(tr_context *tr)
{
    TR_TRY(check_servers(tr));
    if (tr->job && tr->job->table.storage == TR_STORAGE_HASH) TR_TRY(tr_table_check_hash(tr));
    TR_TRY(TR_NEW(&tr->tables, 1));
    tr->tables->tr = tr;
    TR_TRY(tr_functions_open(tr->tables));
    return tr_poll_add(tr, poll_tables, tr->tables);
}

int tr_tables_forget_views(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    for (size_t i = 0; i < tables->count; i++) tr_node_pull_forget(tables->table[i]);
    TR_WAIT_UNTIL(tr, !tables->sending, "the servers to forget closed views");
    TR_TRY(tr_barrier(tr, tr->world, "all ranks to close views"));
    for (size_t i = 0; i < tables->count; i++) tr_node_pull_free(tables->table[i]);
    return TR_OK;
}

/* Nothing of its views is left. */
static void free_table(struct tr_table *t)
{
    tr_merge_close(t);
    tr_server_forget_all(t);
    tr_use_free(t);
    tr_table_free(t);
}

int tr_table_drop(tr_table **table)
{
    struct tr_tables *tables = (*table)->tr->tables;
    /* what its views have sent must be handled while the numbers of the tables still hold */
    TR_TRY(tr_tables_forget_views(tables->tr));
    size_t index = (*table)->index;
    free_table(*table);
    tables->count--;
    for (size_t i = index; i < tables->count; i++) {
        tables->table[i] = tables->table[i + 1];
        tables->table[i]->index = (uint32_t)i;
    }
    *table = NULL;
    return TR_OK;
}

void tr_tables_close(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    if (!tables) return;
    (void)tr_tables_forget_views(tr);
    tr_poll_remove(tr, poll_tables, tables);
    while (tables->count > 0) free_table(tables->table[--tables->count]);
    tr_functions_close(tables);
    tr_messages_free(tables);
    free(tables->table);
    free(tables->views);
    free(tables->inbox);
    free(tables->packed);
    free(tables->unit);
    tr_squeezer_free(&tables->squeezer);
    free(tables);
    tr->tables = NULL;
}

/* ---- time on the way ---- */

/* Counts the time since the last change of what this rank does, or of what is on its way. */
static void count_way(struct tr_tables *tables)
{
    struct tr_way_now *way = &tables->way;
    double now = tr_now(), passed = way->under_way > 0 ? now - way->since : 0;
    tables->traffic.way_seconds += passed;
    if (way->computes && way->waits == 0) tables->traffic.hidden_seconds += passed;
    way->since = now;
}

void tr_way_begin(struct tr_tables *tables)
{
    count_way(tables);
    tables->way.under_way++;
}

void tr_way_end(struct tr_tables *tables)
{
    count_way(tables);
    tables->way.under_way--;
}

void tr_way_compute(struct tr_tables *tables, bool computes)
{
    count_way(tables);
    tables->way.computes = computes;
    tables->way.waits = 0; /* one that failed did not say that it ended */
}

void tr_wait_begin(struct tr_tables *tables)
{
    count_way(tables);
    tables->way.waits++;
}

void tr_wait_end(struct tr_tables *tables)
{
    count_way(tables);
    if (tables->way.waits > 0) tables->way.waits--;
}

/* ---- stages ---- */

int tr_tables_ready(tr_context *tr)
{
    struct tr_tables *tables = tr->tables;
    TR_TRY(tr_tables_forget_views(tr));
    TR_TRY(tr_views_ready(tr));
    tables->before = 0;
    for (size_t i = 0; i < tables->count; i++) {
        tables->table[i]->served = 0;
        TR_TRY(tr_use_begin(tables->table[i]));
        TR_TRY(tr_rows_begin(tables->table[i]));
    }
    TR_TRY(tr_node_pull_open(tr)); /* registers, and merges keep places of what is registered */
    TR_TRY(tr_views_measure(tr));
    for (size_t i = 0; i < tables->count; i++) TR_TRY(tr_merge_open(tables->table[i]));
    return TR_OK;
}

void tr_tables_count_from(tr_context *tr, int64_t clocks)
{
    struct tr_tables *tables = tr->tables;
    tables->before = clocks;
    for (size_t i = 0; i < tables->count; i++) {
        if (tables->table[i]->use) tables->table[i]->use->share.stable = clocks;
        tr_merge_begin(tables->table[i]);
    }
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        v->view.clock = v->merged_for = -1;
        v->ahead_wanted = v->ahead_started = false;
    }
}

int tr_tables_settle(tr_context *tr)
{
    bool used = false;
    for (size_t i = 0; i < tr->tables->count; i++) {
        used = used || tr->tables->table[i]->use;
        tr_use_end(tr->tables->table[i]);
    }
    if (!used) return TR_OK;
    return tr_barrier(tr, tr->active->participants, "the servers to settle what they keep apart");
}

/* ---- suspended stages ---- */

static bool counts_pushers(const struct tr_table *t)
{
    return t->sparse || tr_table_by_message(t);
}

int tr_tables_needs(tr_context *tr, bool *needed, bool *can_suspend)
{
    const struct tr_tables *tables = tr->tables;
    int *open; /* by table: views of any rank */
    *needed = false;
    *can_suspend = true;
    if (tables->count == 0) return TR_OK;
    TR_TRY(TR_NEW(&open, tables->count));
    for (size_t i = 0; i < tables->view_count; i++) open[tables->views[i]->view.table->index] = 1;
    int status = tr_all_reduce(tr, TR_SET_ALL, TR_MAX, TR_I32, open, tables->count);
    for (size_t i = 0; i < tables->count; i++) {
        const struct tr_table *t = tables->table[i];
        if (!open[i]) continue;
        bool serves = tr->layout.nodes > 1 || t->merge || counts_pushers(t);
        if (serves && t->server >= 0) *needed = true;
        if (counts_pushers(t)) *can_suspend = false;
    }
    free(open);
    return status;
}

/* What is open and what is suspended change places. */
static void swap(struct tr_tables *tables, struct tr_suspended *s)
{
    struct tr_suspended was = *s;
    s->views = tables->views;
    s->view_count = tables->view_count;
    s->view_capacity = tables->view_capacity;
    tables->views = was.views;
    tables->view_count = was.view_count;
    tables->view_capacity = was.view_capacity;
    for (size_t i = 0; i < s->tables; i++) {
        struct tr_table *t = tables->table[i];
        struct tr_suspended_table opened = {t->merge, t->subscription, t->updating_views};
        t->merge = s->table[i].merge;
        t->subscription = s->table[i].subscription;
        t->updating_views = s->table[i].updating_views;
        s->table[i] = opened;
    }
}

static void free_suspended(struct tr_suspended *s)
{
    free(s->views);
    free(s->table);
    *s = (struct tr_suspended){0};
}

int tr_tables_suspend(tr_context *tr, bool resumes, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    free_suspended(s);
    TR_TRY(TR_NEW(&s->table, tables->count));
    s->tables = tables->count;
    while (!resumes && tables->view_count > 0) /* servers are not to wait for them in other stages */
        tr_view_end(tables->views[0]);
    swap(tables, s);
    return TR_OK;
}

int tr_tables_resume(tr_context *tr, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    if (tables->view_count > 0)
        return tr_fail(TR_ERR_INTERNAL, "a view was left open between two stages of a task");
    swap(tables, s);
    tables->before = 0;
    for (size_t i = 0; i < s->tables; i++) {
        tables->table[i]->served = 0;
        tr_merge_begin(tables->table[i]);
        TR_TRY(tr_rows_begin(tables->table[i]));
    }
    free_suspended(s);
    return TR_OK;
}

void tr_tables_end(tr_context *tr, struct tr_suspended *s)
{
    struct tr_tables *tables = tr->tables;
    swap(tables, s);
    for (size_t i = 0; i < s->tables; i++) tr_merge_close(tables->table[i]);
    while (tables->view_count > 0) tr_view_end(tables->views[0]);
    swap(tables, s);
    free_suspended(s);
}

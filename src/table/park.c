/* Stages put aside: a stage that runs again and again, in turns with others, finds its views and merges as it left them,
 * instead of opening them anew, which takes all ranks and far longer than a short stage. */
#include <stdlib.h>
#include <string.h>

#include "table/function.h"
#include "table/merge.h"
#include "table/rows.h"
#include "table/view.h"

static bool counts_pushers(const struct tr_table *t)
{
    return t->sparse || tr_table_by_message(t);
}

static bool has_view(const struct tr_tables *tables, const struct tr_table *t)
{
    for (size_t i = 0; i < tables->view_count; i++)
        if (tables->views[i]->view.table == t) return true;
    return false;
}

int tr_tables_needs(tr_context *tr, bool *needed, bool *parks)
{
    const struct tr_tables *tables = tr->tables;
    *needed = false;
    *parks = true;
    if (tables->count == 0) return TR_OK;
    int *open;
    TR_TRY(TR_NEW(&open, tables->count));
    for (size_t i = 0; i < tables->count; i++) open[i] = has_view(tables, tables->table[i]);
    MPI_Allreduce(MPI_IN_PLACE, open, (int)tables->count, MPI_INT, MPI_MAX, tr->world);
    for (size_t i = 0; i < tables->count; i++) {
        const struct tr_table *t = tables->table[i];
        if (!open[i]) continue;
        bool serves = tr->layout.nodes > 1 || t->merge || counts_pushers(t);
        if (serves && t->server >= 0) *needed = true;
        if (counts_pushers(t)) *parks = false;
    }
    free(open);
    return TR_OK;
}

int tr_tables_park(tr_context *tr, bool snapshot, struct tr_parked *parked)
{
    struct tr_tables *tables = tr->tables;
    free(parked->table);
    TR_TRY(TR_NEW(&parked->table, tables->count));
    parked->tables = tables->count;
    for (size_t i = 0; i < tables->count; i++) {
        struct tr_table *t = tables->table[i];
        parked->table[i] = (struct tr_parked_table){t->merge, t->updating_views};
        t->merge = NULL;
        if (snapshot) t->updating_views = 0;
    }
    if (!snapshot) /* servers are not to wait for them in other stages */
        while (tables->view_count > 0) tr_view_part(tables->views[0]);
    parked->views = tables->views;
    parked->view_count = tables->view_count;
    parked->view_capacity = tables->view_capacity;
    tables->views = NULL;
    tables->view_count = tables->view_capacity = 0;
    return TR_OK;
}

int tr_tables_take_up(tr_context *tr, struct tr_parked *parked)
{
    struct tr_tables *tables = tr->tables;
    if (tables->view_count > 0)
        return tr_fail(TR_ERR_INTERNAL, "a view was left open between two stages of a task");
    free(tables->views);
    tables->views = parked->views;
    tables->view_count = parked->view_count;
    tables->view_capacity = parked->view_capacity;
    parked->views = NULL;
    parked->view_count = parked->view_capacity = 0;
    tables->before = 0;
    for (size_t i = 0; i < parked->tables; i++) {
        struct tr_table *t = tables->table[i];
        t->merge = parked->table[i].merge;
        t->updating_views = parked->table[i].updating_views;
        t->served = 0;
        tr_merge_begin(t);
        TR_TRY(tr_rows_begin(t));
    }
    free(parked->table);
    *parked = (struct tr_parked){0};
    return TR_OK;
}

void tr_tables_part(tr_context *tr, struct tr_parked *parked)
{
    for (size_t i = 0; i < parked->tables; i++) {
        struct tr_table *t = tr->tables->table[i];
        struct tr_merge *outer = t->merge;
        t->merge = parked->table[i].merge;
        tr_merge_close(t);
        t->merge = outer;
    }
    for (size_t i = 0; i < parked->view_count; i++) tr_view_part(parked->views[i]);
    free(parked->views);
    free(parked->table);
    *parked = (struct tr_parked){0};
}

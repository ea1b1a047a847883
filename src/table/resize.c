/* Tables on more or fewer servers (M39, elastic): the units that another server holds from now on move to it, all others
 * stay where they are in memory of the same rank. On a ring (table.partition: ring) that is the least there is: a new
 * server takes its part from all others, and a leaving one gives its own to all others (PS, section 4.3). */
#include <stdlib.h>
#include <string.h>

#include "table/tables.h"

static int check(const struct tr_table *t, uint32_t servers)
{
    if (t->hash || t->sparse || t->use || t->partition.kind == TR_PARTITION_OWN)
        return tr_fail(
            TR_ERR_CONFIG,
            "table %s: only dense tables without server function and place function move to other servers",
            t->name);
    if (servers < 1 || servers > (uint32_t)t->tr->layout.servers)
        return tr_fail(TR_ERR_CONFIG, "table %s: it cannot lie on %u servers, there are %d", t->name, servers,
                       t->tr->layout.servers);
    if (t->clients > 0 || t->updating_views > 0 || t->merge)
        return tr_fail(TR_ERR_INTERNAL, "table %s moves to other servers while views of it are open",
                       t->name);
    return TR_OK;
}

/* Copies what this rank holds in the old table to where the new one has it: a run of units at a time, as long as both
 * keep neighbours together. */
static uint64_t hand_over(const struct tr_table *old, const struct tr_table *new)
{
    uint64_t moved = 0;
    size_t unit = old->unit_bytes;
    struct tr_walker to = {.partition = &new->partition};
    for (uint64_t position = 0; position < old->share_units;) {
        uint64_t first = tr_partition_unit(&old->partition, (uint32_t)old->server, (uint32_t)position);
        if (first == UINT64_MAX) {
            position++;
            continue;
        }
        struct tr_location at = tr_walk_to(&to, first);
        uint64_t end = first - first % old->partition.block + old->partition.block;
        if (to.end < end) end = to.end;
        if (old->partition.units < end) end = old->partition.units;
        size_t bytes = (size_t)(end - first) * unit;
        const char *from = (const char *)old->share[old->server] + position * unit;
        if (new->share[at.server])
            memcpy((char *)new->share[at.server] + (size_t)at.position *unit, from, bytes);
        else
            MPI_Put(from, (int)bytes, MPI_BYTE, tr_table_server_rank(new, at.server),
                    (MPI_Aint)((size_t)at.position * unit), (int)bytes, MPI_BYTE, new->window);
        if (tr_table_server_rank(new, at.server) != old->tr->rank) moved += bytes;
        position += end - first;
    }
    if (new->window != MPI_WIN_NULL) MPI_Win_flush_all(new->window);
    return moved;
}

/* Whoever knows the table goes on knowing it; what is not of its shares stays. */
static void exchange(struct tr_table *a, struct tr_table *b)
{
    struct tr_table was = *a;
    *a = *b;
    *b = was;
    b->index = a->index;
    a->index = was.index;
    a->left_out = was.left_out;
    a->fallback = was.fallback;
    a->filter = was.filter;
    a->next_tag = was.next_tag;
}

int tr_table_resize(tr_table *t, uint32_t servers, uint64_t *moved)
{
    tr_context *tr = t->tr;
    struct tr_table *new = NULL;
    uint64_t bytes = 0;
    *moved = 0;
    if (t->partition.servers == servers) return TR_OK;
    TR_TRY(tr_tables_forget_views(tr));
    TR_TRY(tr_agree(tr, check(t, servers)));
    tr_table_options options = {.servers = servers, .block = t->partition.block};
    if (t->partition.kind == TR_PARTITION_RANGE || t->partition.kind == TR_PARTITION_HASH) options.block = 0;
    TR_TRY(tr_table_make(tr, t->name, t->dtype, t->width == 1 ? 1 : t->keys,
                         t->width == 1 ? t->keys : t->width, &options, t, &new));
    if (t->server >= 0) bytes = hand_over(t, new);
    MPI_Request request;
    MPI_Iallreduce(&bytes, moved, 1, MPI_UINT64_T, MPI_SUM, tr->world, &request);
    TR_TRY(tr_wait_request(tr, &request, "all servers to hand over their shares"));
    exchange(t, new);
    return tr_table_drop(&new);
}

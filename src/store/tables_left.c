/* What filters hold back and rounding takes of this rank's updates: see tables_parts.h. It lies with the channels of open
 * views, packed. */
#include <stdlib.h>
#include <string.h>

#include "store/tables_parts.h"
#include "table/channel.h"

/* The channels of a rank through which a table's updates leave, in the order in which their views were opened. */
struct left {
    struct tr_channel **channel;
    size_t channels, room;
    uint64_t units; /* of all */
};

bool tr_kept_has_left(const struct tr_table *t)
{
    bool real = t->dtype == TR_F32 || t->dtype == TR_F64;
    if (t->sparse) return false;
    return t->filter.kind != TR_FILTER_NONE || (real && t->wire.precision != TR_PRECISION_FULL);
}

/* The open view of the table whose tag is the next one above. */
static struct tr_view_state *next_view(const struct tr_table *t, uint32_t above)
{
    const struct tr_tables *tables = t->tr->tables;
    struct tr_view_state *next = NULL;
    for (size_t i = 0; i < tables->view_count; i++) {
        struct tr_view_state *v = tables->views[i];
        bool pushes = v->view.table == t && v->channel && v->use != TR_VIEW_READ;
        if (pushes && v->tag > above && (!next || v->tag < next->tag)) next = v;
    }
    return next;
}

static int find_channels(const struct tr_table *t, struct left *left)
{
    for (struct tr_view_state *v = next_view(t, 0); v; v = next_view(t, v->tag))
        for (uint32_t s = 0; s < v->keys.servers; s++) {
            struct tr_channel *c = &v->channel[s];
            if (c->way != TR_WAY_MESSAGE || c->segment->n == 0) continue;
            TR_TRY(TR_GROW(&left->channel, &left->room, left->channels + 1));
            left->channel[left->channels++] = c;
            left->units += c->segment->n;
        }
    return TR_OK;
}

/* The units of the table that the channels have, side by side. */
static void list_units(const struct tr_table *t, const struct left *left, uint64_t *unit)
{
    for (size_t i = 0; i < left->channels; i++) {
        const struct tr_channel *c = left->channel[i];
        const struct tr_segment *s = c->segment;
        for (uint32_t k = 0; k < s->n; k++)
            *unit++ = s->key ? s->key[k] : tr_partition_unit(&t->partition, c->server, s->position[k]);
    }
}

/* Side by side what is held back, or the other way round. */
static int copy_left(const struct tr_table *t, const struct left *left, bool back, char *packed)
{
    for (size_t i = 0; i < left->channels; i++) {
        struct tr_channel *c = left->channel[i];
        size_t bytes = c->segment->n * t->unit_bytes;
        if (!c->kept) TR_TRY(TR_NEW(&c->kept, bytes)); /* nothing so far */
        memcpy(back ? c->kept : packed, back ? packed : c->kept, bytes);
        packed += bytes;
    }
    return TR_OK;
}

/* ---- parts: by rank ---- */

static int keep_counts(struct tr_kept *k, uint64_t first, uint64_t n, int64_t *counts)
{
    return tr_kept_numbers(k, "_left_n", TR_ABOUT_RANKS, first, n, 1, counts);
}

/* What a rank held back, as two lists. */
static int keep_lists(struct tr_kept *k, uint64_t rank, uint64_t n, uint64_t *unit, char *value)
{
    const struct tr_table *t = k->table;
    TR_TRY(tr_kept_list(k, "_left_units", TR_PART_I64, TR_ABOUT_RANKS, rank, n, unit));
    return tr_kept_list(k, "_left", (enum tr_part_type)t->dtype, TR_ABOUT_RANKS, rank, n * t->unit_width,
                        value);
}

static int open_lists(const struct tr_table *t, uint64_t n, uint64_t **unit, char **value)
{
    *unit = NULL;
    *value = NULL;
    TR_TRY(TR_NEW(unit, n));
    int status = TR_NEW(value, n * t->unit_bytes);
    if (status == TR_OK) return TR_OK;
    free(*unit);
    *unit = NULL;
    return status;
}

/* ---- taking and giving back ---- */

static int take(struct tr_kept *k, const struct left *left, uint64_t *unit, char *value)
{
    uint64_t rank = (uint64_t)k->table->tr->rank;
    int64_t n = (int64_t)left->units;
    TR_TRY(keep_counts(k, rank, 1, &n));
    if (n == 0) return TR_OK;
    list_units(k->table, left, unit);
    TR_TRY(copy_left(k->table, left, false, value));
    return keep_lists(k, rank, left->units, unit, value);
}

/* Views with other keys than those of then begin without. */
static int give_back(struct tr_kept *k, const struct left *left, uint64_t *unit, char *value)
{
    uint64_t rank = (uint64_t)k->table->tr->rank, *now;
    int64_t n = 0;
    TR_TRY(keep_counts(k, rank, 1, &n));
    if (n == 0 || (uint64_t)n != left->units) return TR_OK;
    TR_TRY(keep_lists(k, rank, left->units, unit, value));
    TR_TRY(TR_NEW(&now, left->units));
    list_units(k->table, left, now);
    bool equal = !memcmp(now, unit, left->units * sizeof *now);
    free(now);
    return equal ? copy_left(k->table, left, true, value) : TR_OK;
}

static int keep_here(struct tr_kept *k)
{
    struct left left = {.channels = 0};
    uint64_t *unit = NULL;
    char *value = NULL;
    int status = find_channels(k->table, &left);
    if (status == TR_OK) status = open_lists(k->table, left.units, &unit, &value);
    if (status == TR_OK)
        status = tr_snapshot_restores(k->snapshot) ? give_back(k, &left, unit, value)
                                                   : take(k, &left, unit, value);
    free(left.channel);
    free(unit);
    free(value);
    return status;
}

/* ---- adding it to the values ---- */

/* As far as the units are in this rank's share. */
static int add_units(struct tr_table *t, uint64_t n, const uint64_t *unit, const char *value)
{
    struct tr_walker walker = {.partition = &t->partition};
    for (uint64_t i = 0; i < n; i++, value += t->unit_bytes) {
        struct tr_location at = tr_walk_to(&walker, unit[i]);
        if (at.server != (uint32_t)t->server || tr_is_zero(value, t->unit_bytes)) continue;
        if (t->map) TR_TRY(tr_hashmap_add_all(t->map, &unit[i], 1, &at.position));
        char *share = t->map ? t->map->array[0].at : t->share[t->server];
        tr_add_elements(t->dtype, t->unit_width, value, share + at.position * t->unit_bytes);
    }
    return TR_OK;
}

static int add_of_rank(struct tr_kept *k, uint64_t rank, uint64_t n)
{
    uint64_t *unit;
    char *value;
    if (n == 0) return TR_OK;
    TR_TRY(open_lists(k->table, n, &unit, &value));
    int status = keep_lists(k, rank, n, unit, value);
    if (status == TR_OK) status = add_units(k->table, n, unit, value);
    free(unit);
    free(value);
    return status;
}

/* Of all ranks, one after the other. */
static int add_all(struct tr_kept *k)
{
    uint64_t ranks = (uint64_t)k->about[TR_ABOUT_RANKS];
    int64_t *n;
    TR_TRY(TR_NEW(&n, ranks));
    int status = keep_counts(k, 0, ranks, n);
    for (uint64_t rank = 0; status == TR_OK && rank < ranks; rank++)
        status = add_of_rank(k, rank, (uint64_t)n[rank]);
    free(n);
    return status;
}

int tr_kept_left(struct tr_kept *k)
{
    const struct tr_table *t = k->table;
    if (!tr_snapshot_restores(k->snapshot)) return tr_kept_has_left(t) ? keep_here(k) : TR_OK;
    if (!k->about[TR_ABOUT_LEFT]) return TR_OK;
    if (k->same && tr_kept_has_left(t)) return keep_here(k);
    bool adds = t->server >= 0 && !t->use && !t->sparse && k->about[TR_ABOUT_PIECES] == t->pieces;
    return adds ? add_all(k) : TR_OK;
}

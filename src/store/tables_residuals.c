/* Residuals: what filters hold back and rounding takes of this rank's updates. See tables.h. It lies with the channels of open
 * views, packed. */
#include <stdlib.h>
#include <string.h>

#include "store/tables.h"
#include "table/route.h"

/* Units that a rank has residuals of, and these, side by side. */
struct residuals {
    uint64_t n, *unit;
    char *value;
};

bool tr_has_residuals(const struct tr_table *t)
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

static void list_units(const struct tr_table *t, const struct tr_channel *c, uint64_t *unit)
{
    const struct tr_segment *s = c->segment;
    for (uint32_t k = 0; k < s->n; k++)
        unit[k] = s->key ? s->key[k] : tr_partition_unit(&t->partition, c->server, s->position[k]);
}

enum pass { COUNT, UNITS, TAKE, GIVE_BACK };

/* Goes through the channels of this rank through which the table's updates leave, in the order in which their views were
 * opened: counts their units, lists them, or copies the residuals. */
static int go_through(const struct tr_table *t, enum pass pass, struct residuals *r)
{
    r->n = 0;
    for (struct tr_view_state *v = next_view(t, 0); v; v = next_view(t, v->tag))
        for (uint32_t s = 0; s < v->keys.servers; s++) {
            struct tr_channel *c = &v->channel[s];
            if (c->way != TR_WAY_MESSAGE || c->segment->n == 0) continue;
            size_t bytes = c->segment->n * t->unit_bytes;
            char *value = pass > UNITS ? r->value + r->n * t->unit_bytes : NULL;
            if (value && !c->residual) TR_TRY(TR_NEW(&c->residual, bytes)); /* nothing so far */
            if (pass == UNITS) list_units(t, c, r->unit + r->n);
            if (pass == TAKE) memcpy(value, c->residual, bytes);
            if (pass == GIVE_BACK) memcpy(c->residual, value, bytes);
            r->n += c->segment->n;
        }
    return TR_OK;
}

static int open_residuals(const struct tr_table *t, struct residuals *r)
{
    TR_TRY(TR_NEW(&r->unit, r->n));
    return TR_NEW(&r->value, r->n * t->unit_bytes);
}

static void close_residuals(struct residuals *r)
{
    free(r->unit);
    free(r->value);
}

/* ---- parts: by rank ---- */

static int list_counts(struct tr_saved *s, uint64_t first, uint64_t n, int64_t *counts)
{
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    return tr_saved_part(s, "_left_n", TR_PART_ROWS, TR_PART_I64, ranks, 1, first, n, counts);
}

static int list_residuals(struct tr_saved *s, uint64_t rank, struct residuals *r)
{
    const struct tr_table *t = s->table;
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    TR_TRY(tr_saved_part(s, "_left_units", TR_PART_LISTS, TR_PART_I64, ranks, 0, rank, r->n, r->unit));
    return tr_saved_part(s, "_left", TR_PART_LISTS, (enum tr_part_type)t->dtype, ranks, 0, rank,
                         r->n * t->unit_width, r->value);
}

/* ---- taking and giving back ---- */

static int take(struct tr_saved *s, struct residuals *r)
{
    uint64_t rank = (uint64_t)s->table->tr->rank;
    int64_t n = (int64_t)r->n;
    TR_TRY(list_counts(s, rank, 1, &n));
    if (n == 0) return TR_OK;
    TR_TRY(go_through(s->table, UNITS, r));
    TR_TRY(go_through(s->table, TAKE, r));
    return list_residuals(s, rank, r);
}

/* Views with other keys than those of then begin without. */
static int give_back(struct tr_saved *s, struct residuals *r)
{
    uint64_t rank = (uint64_t)s->table->tr->rank;
    struct residuals now = {.n = r->n};
    int64_t n = 0;
    TR_TRY(list_counts(s, rank, 1, &n));
    if (n == 0 || (uint64_t)n != r->n) return TR_OK;
    TR_TRY(list_residuals(s, rank, r));
    TR_TRY(TR_NEW(&now.unit, now.n));
    int status = go_through(s->table, UNITS, &now);
    bool equal = !memcmp(now.unit, r->unit, r->n * sizeof *r->unit);
    free(now.unit);
    return status == TR_OK && equal ? go_through(s->table, GIVE_BACK, r) : status;
}

static int list_here(struct tr_saved *s)
{
    struct residuals r = {.n = 0};
    int status = go_through(s->table, COUNT, &r);
    if (status == TR_OK) status = open_residuals(s->table, &r);
    if (status == TR_OK) status = s->restores ? give_back(s, &r) : take(s, &r);
    close_residuals(&r);
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

/* Of all ranks, one after the other. */
static int add_all(struct tr_saved *s)
{
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    int64_t *n;
    TR_TRY(TR_NEW(&n, ranks));
    int status = list_counts(s, 0, ranks, n);
    for (uint64_t rank = 0; status == TR_OK && rank < ranks; rank++) {
        struct residuals r = {.n = (uint64_t)n[rank]};
        if (r.n == 0) continue;
        status = open_residuals(s->table, &r);
        if (status == TR_OK) status = list_residuals(s, rank, &r);
        if (status == TR_OK) status = add_units(s->table, r.n, r.unit, r.value);
        close_residuals(&r);
    }
    free(n);
    return status;
}

int tr_saved_residuals(struct tr_saved *s)
{
    const struct tr_table *t = s->table;
    if (!s->restores) return tr_has_residuals(t) ? list_here(s) : TR_OK;
    if (!s->about[TR_ABOUT_LEFT]) return TR_OK;
    if (s->same && tr_has_residuals(t)) return list_here(s);
    bool adds = t->server >= 0 && !t->use && !t->sparse && s->about[TR_ABOUT_PIECES] == t->pieces;
    return adds ? add_all(s) : TR_OK;
}

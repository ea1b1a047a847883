/* Tables in checkpoints: how they are kept, and how a share's units become rows in ascending order, and back.
 *
 * A table NAME is kept as
 *   tables/NAME_about     common: what table it is, and how it lay on its servers (enum saved_about)
 *   tables/NAME_function  common: the name of its server function, as bytes
 *   tables/NAME           rows by key; of sparse rows, lists of values
 *   tables/NAME_columns   sparse rows: lists of their columns
 *   tables/NAME_lengths   sparse rows: rows of one number
 *   tables/NAME_state0 …  rows by key: the state of its function
 *   tables/NAME_servers   rows by server: keys present (hash storage), bytes of _own
 *   tables/NAME_order     lists by server: hash storage: its keys in the order in which they came
 *   tables/NAME_own       lists by server: bytes that the function saves
 *   tables/NAME_left      lists by rank: residuals, what filters and rounding hold back of updates; with _left_units, of
 *                         which units of which server, and _left_n, rows of one number
 *
 * Rows that are cut into pieces are parts of one name with different first columns, as each unit lies. Other characters
 * than letters, digits and _ become _ in NAME, and where that could be mistaken for another, __ and the number of the
 * table in its context follow.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/snapshot.h"
#include "table/function.h"
#include "table/rows.h"
#include "table/server.h"
#include "table/table.h"
#include "table/view.h"

/* What tables/NAME_about says, number by number. */
enum saved_about {
    TR_ABOUT_FORM, /* 0 dense, 1 hash storage, 2 sparse rows */
    TR_ABOUT_TYPE,
    TR_ABOUT_KEYS,
    TR_ABOUT_WIDTH,
    TR_ABOUT_PIECES,
    TR_ABOUT_SERVERS,
    TR_ABOUT_FIRST_SERVER,
    TR_ABOUT_PARTITION, /* its print */
    TR_ABOUT_STATES,
    TR_ABOUT_RANKS,
    TR_ABOUT_LEFT, /* 1: there may be residuals */
    TR_ABOUT_NUMBERS
};
enum { TR_FORM_DENSE, TR_FORM_HASH, TR_FORM_SPARSE };

/* A table on its way into a checkpoint or out of it. */
struct saved_table {
    tr_snapshot *snapshot;
    struct tr_table *table;
    bool restores;
    char name[72];                   /* "tables/NAME" */
    int64_t about[TR_ABOUT_NUMBERS]; /* of the table that was kept */
    bool same;                       /* restoring: ranks, servers and places are as they were */
};

/* The blocks of a share in ascending order; with hash storage its keys. */
struct table_order {
    uint64_t block, end; /* units of one; the last one ends there */
    uint64_t blocks;
    uint64_t *number; /* of the block in the table … */
    uint32_t *at;     /* … and in the share */
    bool straight;    /* both ascend: packed units lie as they do in the share */
};

enum { FUNCTION_NAME = 48 };

/* ---- parts ---- */

static bool is_plain(const struct tr_tables *tables, size_t index)
{
    static const char *const taken[] = {"_about",  "_function", "_columns", "_lengths",   "_state0",
                                        "_state1", "_state2",   "_state3",  "_servers",   "_order",
                                        "_own",    "_left",     "_left_n",  "_left_units"};
    const char *name = tables->table[index]->name;
    size_t n = strlen(name);
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && (*c != '_' || c[1] == '_')) return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (n >= strlen(taken[i]) && !strcmp(name + n - strlen(taken[i]), taken[i])) return false;
    for (size_t i = 0; i < index; i++)
        if (!strcmp(tables->table[i]->name, name)) return false;
    return n > 0 && n <= 48;
}

static void set_name(struct saved_table *s)
{
    const struct tr_table *t = s->table;
    int n = snprintf(s->name, sizeof s->name, "tables/%.48s", t->name);
    if (is_plain(t->tr->tables, t->index)) return;
    for (char *c = s->name + strlen("tables/"); *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(s->name + n, sizeof s->name - (size_t)n, "__%u", t->index);
}

/* A part of the table with nothing in it yet; columns 0: lists. */
static struct tr_part make_part(const struct saved_table *s, const char *suffix, enum tr_part_kind kind,
                                enum tr_part_type type, uint64_t total, uint64_t columns)
{
    struct tr_part part = {
        .kind = kind, .type = type, .total_rows = total, .total_columns = columns, .columns = columns};
    snprintf(part.name, sizeof part.name, "%s%s", s->name, suffix);
    return part;
}

/* Takes or fills the part with this suffix: n rows of `columns` elements, of `total`, from `first` on; of lists, row `first`
 * alone, with n elements. What is common is rank 0's. */
static int saved_part(const struct saved_table *s, const char *suffix, enum tr_part_kind kind,
                      enum tr_part_type type, uint64_t total, uint64_t columns, uint64_t first, uint64_t n,
                      void *values)
{
    struct tr_part part = make_part(s, suffix, kind, type, total, columns);
    bool list = kind == TR_PART_LISTS;
    uint64_t begin[2] = {0, n};
    struct tr_row_run run = {first, list ? 1 : n};
    part.run = &run;
    part.runs = run.n > 0;
    part.rows = run.n;
    part.begin = list ? begin : NULL;
    part.data = values;
    bool others = s->table->tr->rank != 0 && !s->snapshot->in_process;
    if (kind == TR_PART_COMMON && !s->restores && others) return TR_OK;
    return tr_snapshot_part(s->snapshot, &part);
}

/* Memory for n bytes, to be freed, that is written soon. Fresh memory costs more than the copy that is written to it, unless
 * its pages are large. */
static int allocate(uint64_t n, void **memory)
{
    enum { HUGE_PAGE = 2 << 20 };
    if (n < 2 * HUGE_PAGE) {
        *memory = malloc(n > 0 ? n : 1);
    } else {
        size_t bytes = (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        *memory = aligned_alloc(HUGE_PAGE, bytes);
        if (*memory) (void)madvise(*memory, bytes, MADV_HUGEPAGE);
    }
    if (*memory) return TR_OK;
    return tr_fail(TR_ERR_SYSTEM, "out of memory: %llu bytes for a checkpoint", (unsigned long long)n);
}

/* ================ order of a share ================ */

/* ---- sorting ---- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* One pass of a radix sort; false if all have the same digit. */
static bool sort_by_digit(uint64_t n, unsigned shift, const uint64_t *key, const uint32_t *at,
                          uint64_t *to_key, uint32_t *to_at)
{
    uint64_t start[DIGITS] = {0}, sum = 0;
    for (uint64_t i = 0; i < n; i++) start[key[i] >> shift & (DIGITS - 1)]++;
    if (start[key[0] >> shift & (DIGITS - 1)] == n) return false;
    for (int d = 0; d < DIGITS; d++) {
        uint64_t count = start[d];
        start[d] = sum;
        sum += count;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = start[key[i] >> shift & (DIGITS - 1)]++;
        to_key[to] = key[i];
        to_at[to] = at[i];
    }
    return true;
}

static int sort(struct table_order *l, uint64_t highest)
{
    uint64_t *key = NULL;
    uint32_t *at = NULL;
    int status = TR_NEW(&key, l->blocks);
    if (status == TR_OK) status = TR_NEW(&at, l->blocks);
    for (unsigned shift = 0; status == TR_OK && shift < 64 && highest >> shift > 0; shift += DIGIT_BITS) {
        if (!sort_by_digit(l->blocks, shift, l->number, l->at, key, at)) continue;
        uint64_t *old_key = l->number;
        uint32_t *old_at = l->at;
        l->number = key;
        l->at = at;
        key = old_key;
        at = old_at;
    }
    free(key);
    free(at);
    return status;
}

/* ---- the order ---- */

static uint64_t number_of(const struct tr_table *t, uint64_t block, uint64_t i)
{
    if (t->map) return tr_hashmap_key(t->map, (uint32_t)i);
    return tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)(i * block)) / block;
}

static void order_free(struct table_order *l)
{
    free(l->number);
    free(l->at);
    *l = (struct table_order){0};
}

static int order_make(const struct tr_table *t, struct table_order *order)
{
    struct table_order l = {
        .block = t->map ? 1 : t->partition.block, .end = t->keys * t->pieces, .straight = true};
    l.blocks = t->map ? t->map->count : tr_partition_share(&t->partition, (uint32_t)t->server) / l.block;
    int status = TR_NEW(&l.number, l.blocks);
    if (status == TR_OK) status = TR_NEW(&l.at, l.blocks);
    uint64_t highest = 0;
    for (uint64_t i = 0; status == TR_OK && i < l.blocks; i++) {
        l.number[i] = number_of(t, l.block, i);
        l.at[i] = (uint32_t)i;
        if (i > 0 && l.number[i] < highest) l.straight = false;
        else highest = l.number[i];
    }
    if (status == TR_OK && !l.straight) status = sort(&l, highest);
    if (status == TR_OK) *order = l;
    else order_free(&l);
    return status;
}

/* ---- runs ---- */

/* The first block that ends behind a unit. */
static uint64_t find_block(const struct table_order *l, uint64_t unit)
{
    return tr_place_u64(l->number, l->blocks, unit / l->block);
}

/* The units of a block within first .. end - 1; behind the last one, none. */
static inline struct tr_row_run block_run(const struct table_order *l, uint64_t i, uint64_t first,
                                          uint64_t end)
{
    uint64_t from = l->number[i] * l->block, to = from + l->block;
    if (to > l->end) to = l->end;
    if (to > end) to = end;
    if (from < first) from = first;
    return (struct tr_row_run){from, from < to ? to - from : 0};
}

/* Units first .. end - 1 of the table, as far as they are in the share: as runs counted from `first` on, and how many
 * there are in front of them in the share. part->run is to be freed. */
static int order_runs(const struct table_order *l, uint64_t first, uint64_t end, struct tr_part *part,
                      uint64_t *before)
{
    uint64_t from = find_block(l, first), next;
    struct tr_row_run run;
    *before = from < l->blocks && l->number[from] * l->block < first ? first % l->block : 0;
    *before += from * l->block;            /* none but the last block is shorter */
    for (int fill = 0; fill < 2; fill++) { /* counted, then written */
        if (fill) TR_TRY(TR_NEW(&part->run, part->runs));
        part->runs = 0;
        part->rows = 0;
        next = UINT64_MAX;
        for (uint64_t i = from; i < l->blocks && (run = block_run(l, i, first, end)).n > 0; i++) {
            if (run.first != next) part->runs++;
            if (fill && run.first != next) part->run[part->runs - 1].first = run.first - first;
            if (fill) part->run[part->runs - 1].n += run.n;
            part->rows += run.n;
            next = run.first + run.n;
        }
    }
    return TR_OK;
}

/* ---- copying ---- */

/* In a call of its own for each size, so that single numbers are moved as such. */
#define COPY_SCATTERED(TYPE)                                                                                 \
    do {                                                                                                     \
        TYPE *there = packed_, *here = array_;                                                               \
        if (gather)                                                                                          \
            for (uint64_t i = 0; i < n; i++) there[i] = here[at[i]];                                         \
        else                                                                                                 \
            for (uint64_t i = 0; i < n; i++) here[at[i]] = there[i];                                         \
    } while (0)

/* Blocks of one unit of one number. */
static bool copy_numbers(const uint32_t *at, uint64_t n, size_t unit_bytes, bool gather, void *packed_,
                         void *array_)
{
    if (unit_bytes == sizeof(uint32_t)) COPY_SCATTERED(uint32_t);
    else if (unit_bytes == sizeof(uint64_t)) COPY_SCATTERED(uint64_t);
    else return false;
    return true;
}

/* Copies these units of an array of the share into packed memory (gather), or back. */
static void order_copy(const struct table_order *l, uint64_t first, uint64_t end, size_t unit_bytes,
                       bool gather, void *packed_, void *array_)
{
    char *packed = packed_, *array = array_;
    uint64_t from = find_block(l, first), to = from;
    if (l->block == 1) {
        to = find_block(l, end);
        if (copy_numbers(l->at + from, to - from, unit_bytes, gather, packed, array)) return;
    }
    struct tr_row_run run;
    for (uint64_t i = from; i < l->blocks && (run = block_run(l, i, first, end)).n > 0; i++) {
        char *there = array + ((uint64_t)l->at[i] * l->block + run.first % l->block) * unit_bytes;
        memcpy(gather ? packed : there, gather ? there : packed, run.n * unit_bytes);
        packed += run.n * unit_bytes;
    }
}

/* Their places in the share, one by one. */
static void order_places(const struct table_order *l, uint32_t *place)
{
    struct tr_row_run run;
    for (uint64_t i = 0; i < l->blocks && (run = block_run(l, i, 0, l->end)).n > 0; i++)
        for (uint64_t k = 0; k < run.n; k++) *place++ = (uint32_t)((uint64_t)l->at[i] * l->block + k);
}

/* ================ residuals ================ */

/* Units that a rank has residuals of, and these, side by side. */
struct residuals {
    uint64_t n, *unit;
    char *value;
};

/* Of the views of this rank. Restoring: it is back where it was if the run goes on with the same layout; otherwise it is
 * added to the values of tables without a server function, as an update that arrives late, and lost in others. */
static bool has_residuals(const struct tr_table *t)
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

static int list_counts(struct saved_table *s, uint64_t first, uint64_t n, int64_t *counts)
{
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    return saved_part(s, "_left_n", TR_PART_ROWS, TR_PART_I64, ranks, 1, first, n, counts);
}

static int list_residuals(struct saved_table *s, uint64_t rank, struct residuals *r)
{
    const struct tr_table *t = s->table;
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    TR_TRY(saved_part(s, "_left_units", TR_PART_LISTS, TR_PART_I64, ranks, 0, rank, r->n, r->unit));
    return saved_part(s, "_left", TR_PART_LISTS, (enum tr_part_type)t->dtype, ranks, 0, rank,
                      r->n * t->unit_width, r->value);
}

/* ---- taking and giving back ---- */

static int take(struct saved_table *s, struct residuals *r)
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
static int give_back(struct saved_table *s, struct residuals *r)
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

static int list_here(struct saved_table *s)
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
static int add_all(struct saved_table *s)
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

static int saved_residuals(struct saved_table *s)
{
    const struct tr_table *t = s->table;
    if (!s->restores) return has_residuals(t) ? list_here(s) : TR_OK;
    if (!s->about[TR_ABOUT_LEFT]) return TR_OK;
    if (s->same && has_residuals(t)) return list_here(s);
    bool adds = t->server >= 0 && !t->use && !t->sparse && s->about[TR_ABOUT_PIECES] == t->pieces;
    return adds ? add_all(s) : TR_OK;
}

/* ================ tables ================ */

/* ---- what a table is ---- */

static size_t state_arrays(const struct tr_table *t)
{
    return t->use ? t->use->function.state_arrays : 0;
}

static void describe(const struct tr_table *t, int64_t about[TR_ABOUT_NUMBERS], char function[FUNCTION_NAME])
{
    about[TR_ABOUT_FORM] = t->hash ? TR_FORM_HASH : t->sparse ? TR_FORM_SPARSE : TR_FORM_DENSE;
    about[TR_ABOUT_TYPE] = t->dtype;
    about[TR_ABOUT_KEYS] = (int64_t)t->keys;
    about[TR_ABOUT_WIDTH] = (int64_t)t->width;
    about[TR_ABOUT_PIECES] = t->pieces;
    about[TR_ABOUT_SERVERS] = t->partition.servers;
    about[TR_ABOUT_FIRST_SERVER] = t->first_server;
    about[TR_ABOUT_PARTITION] = (int64_t)tr_partition_print(&t->partition);
    about[TR_ABOUT_STATES] = (int64_t)state_arrays(t);
    about[TR_ABOUT_RANKS] = t->tr->size;
    about[TR_ABOUT_LEFT] = has_residuals(t);
    memset(function, 0, FUNCTION_NAME);
    if (t->use) snprintf(function, FUNCTION_NAME, "%s", t->use->function.name);
}

static int check_shape(const struct saved_table *s, const int64_t *now)
{
    const int64_t *then = s->about;
    bool lists = then[TR_ABOUT_FORM] == TR_FORM_SPARSE;
    if (then[TR_ABOUT_TYPE] == now[TR_ABOUT_TYPE] && then[TR_ABOUT_KEYS] == now[TR_ABOUT_KEYS] &&
        then[TR_ABOUT_WIDTH] == now[TR_ABOUT_WIDTH] && lists == s->table->sparse)
        return TR_OK;
    static const char *const type[] = {"f32", "f64", "i32", "i64"};
    return tr_fail(TR_ERR_DATA,
                   "checkpoint: table %s had %llu keys of %lld %s elements%s, expected %llu of %lld %s%s",
                   s->table->name, (unsigned long long)then[TR_ABOUT_KEYS], (long long)then[TR_ABOUT_WIDTH],
                   type[then[TR_ABOUT_TYPE] & 3], lists ? " in sparse rows" : "",
                   (unsigned long long)now[TR_ABOUT_KEYS], (long long)now[TR_ABOUT_WIDTH],
                   type[now[TR_ABOUT_TYPE] & 3], s->table->sparse ? " in sparse rows" : "");
}

/* Another function may go on with the values, but not with what belongs to the first one. */
static int check_function(const struct saved_table *s, const char *then, const char *now)
{
    bool keeps = s->about[TR_ABOUT_STATES] > 0 || state_arrays(s->table) > 0 ||
                 (s->table->use && s->table->use->function.load);
    if (!keeps || !strncmp(then, now, FUNCTION_NAME)) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint: table %s was updated by server function %.47s, now by %s",
                   s->table->name, *then ? then : "add", *now ? now : "add");
}

static int list_description(struct saved_table *s)
{
    int64_t now[TR_ABOUT_NUMBERS];
    char function[FUNCTION_NAME], then[FUNCTION_NAME];
    struct tr_part about = make_part(s, "_about", TR_PART_COMMON, TR_PART_I64, 0, 1);
    bool has = true;
    describe(s->table, now, function);
    memcpy(s->about, now, sizeof now);
    memcpy(then, function, sizeof then);
    if (s->restores) TR_TRY(tr_snapshot_has(s->snapshot, about.name, &has));
    if (!has && s->table->fallback) {
        snprintf(s->name, sizeof s->name, "tables/%.48s", s->table->fallback);
        about = make_part(s, "_about", TR_PART_COMMON, TR_PART_I64, 0, 1);
        TR_TRY(tr_snapshot_has(s->snapshot, about.name, &has));
    }
    if (!has) return tr_fail(TR_ERR_DATA, "checkpoint: there is no table %s in it", s->table->name);
    TR_TRY(saved_part(s, "_about", TR_PART_COMMON, TR_PART_I64, TR_ABOUT_NUMBERS, 1, 0, TR_ABOUT_NUMBERS,
                      s->about));
    TR_TRY(saved_part(s, "_function", TR_PART_COMMON, TR_PART_U8, FUNCTION_NAME, 1, 0, FUNCTION_NAME, then));
    if (!s->restores) return TR_OK;
    TR_TRY(check_shape(s, now));
    TR_TRY(check_function(s, then, function));
    s->same = s->snapshot->same_layout;
    static const enum saved_about place[] = {TR_ABOUT_FORM,         TR_ABOUT_PIECES,    TR_ABOUT_SERVERS,
                                             TR_ABOUT_FIRST_SERVER, TR_ABOUT_PARTITION, TR_ABOUT_RANKS};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        s->same = s->same && s->about[place[i]] == now[place[i]];
    return TR_OK;
}

/* ---- values and state, where the rows that this server has are known ---- */

/* Array 0: the values; the others: state. With hash storage they move. */
static char *array_of(const struct tr_table *t, size_t number)
{
    if (t->map) return t->map->array[number].at;
    return number == 0 ? t->share[t->server] : t->use->share.state[number - 1];
}

static const char *array_name(size_t number)
{
    static const char *const name[] = {"", "_state0", "_state1", "_state2", "_state3"};
    _Static_assert(sizeof name / sizeof *name == TR_STATE_ARRAYS + 1, "each array has a name");
    return name[number];
}

/* One piece of all keys that this server has it of; what lies in order is filled where it lies. */
static int list_piece(struct saved_table *s, const struct table_order *o, struct tr_part *part,
                      uint64_t first, uint64_t before, char *array)
{
    uint64_t unit = s->table->unit_bytes, end = first + s->table->keys;
    char *place = array + before * unit;
    bool packs = !s->restores || !o->straight;
    int status = packs ? allocate(part->rows * unit, &part->data) : TR_OK;
    if (status == TR_OK && !s->restores) {
        if (o->straight) memcpy(part->data, place, part->rows * unit);
        else order_copy(o, first, end, unit, true, part->data, array);
        return tr_snapshot_give(s->snapshot, part);
    }
    if (!packs) part->data = place;
    if (status == TR_OK) status = tr_snapshot_part(s->snapshot, part);
    if (status == TR_OK && packs) order_copy(o, first, end, unit, false, part->data, array);
    if (packs) free(part->data);
    free(part->run);
    return status;
}

static int list_array(struct saved_table *s, const struct table_order *o, const char *suffix, char *array)
{
    const struct tr_table *t = s->table;
    for (uint32_t piece = 0; piece < t->pieces; piece++) {
        struct tr_part part =
            make_part(s, suffix, TR_PART_ROWS, (enum tr_part_type)t->dtype, t->keys, t->width);
        uint64_t first = piece * t->keys, before;
        part.columns = t->unit_width;
        part.first_column = piece * t->unit_width;
        TR_TRY(order_runs(o, first, first + t->keys, &part, &before));
        if (part.rows == 0) free(part.run);
        else TR_TRY(list_piece(s, o, &part, first, before, array));
    }
    return TR_OK;
}

/* The values as they are read when everything that a function keeps apart counts. */
static int take_settled(struct saved_table *s, const struct table_order *o)
{
    const struct tr_use *use = s->table->use;
    char *settled;
    TR_TRY(allocate(use->share.units * s->table->unit_bytes, (void **)&settled));
    int status = use->function.read(&use->share, INT64_MAX, use->share.units, NULL, settled);
    if (status == TR_OK) status = list_array(s, o, "", settled);
    free(settled);
    return status;
}

static int list_arrays(struct saved_table *s)
{
    struct tr_table *t = s->table;
    struct table_order order;
    TR_TRY(order_make(t, &order));
    bool apart = !s->restores && t->use && t->use->function.read;
    int status = apart ? take_settled(s, &order) : TR_OK;
    for (size_t i = apart; status == TR_OK && i <= state_arrays(t); i++)
        status = list_array(s, &order, array_name(i), array_of(t, i));
    order_free(&order);
    return status;
}

/* ---- … and from any form of storage ---- */

struct filling {
    struct saved_table *s;
    size_t array;
    struct tr_walker walker;
};

static bool is_of_interest(void *who, const struct tr_row_run *run)
{
    struct filling *f = who;
    const struct tr_table *t = f->s->table;
    if (t->pieces > 1) return true;
    for (uint64_t unit = run->first; unit < run->first + run->n; unit = f->walker.end)
        if (tr_walk_to(&f->walker, unit).server == (uint32_t)t->server) return true;
    return false;
}

/* What a stored row has of a unit: elements from `column` of the table on. In hash storage, keys are present that were so
 * or, in dense storage, not zero. */
static int fill_unit(struct filling *f, tr_key key, uint64_t piece, uint64_t column, size_t elements,
                     const char *values)
{
    struct tr_table *t = f->s->table;
    size_t size = tr_dtype_size(t->dtype);
    struct tr_location at = tr_walk_to(&f->walker, piece * t->keys + key);
    if (at.server != (uint32_t)t->server) return TR_OK;
    if (t->map) {
        if (f->s->about[TR_ABOUT_FORM] != TR_FORM_HASH && tr_is_zero(values, elements * size)) return TR_OK;
        TR_TRY(tr_hashmap_add_all(t->map, &key, 1, &at.position));
    }
    memcpy(array_of(t, f->array) + at.position * t->unit_bytes + (column - piece * t->unit_width) * size,
           values, elements * size);
    return TR_OK;
}

static int fill_row(struct filling *f, tr_key key, const struct tr_part *p, const char *values)
{
    const struct tr_table *t = f->s->table;
    uint64_t column = p->first_column, end = column + p->columns;
    while (column < end) {
        uint64_t piece = column / t->unit_width, border = (piece + 1) * t->unit_width;
        size_t elements = (size_t)((border < end ? border : end) - column);
        TR_TRY(fill_unit(f, key, piece, column, elements, values));
        column += elements;
        values += elements * tr_dtype_size(t->dtype);
    }
    return TR_OK;
}

static int fill_rows(void *who, const struct tr_part *p)
{
    struct filling *f = who;
    size_t row_bytes = p->columns * tr_dtype_size(f->s->table->dtype);
    const char *values = p->data;
    for (size_t r = 0; r < p->runs; r++)
        for (uint64_t i = 0; i < p->run[r].n; i++, values += row_bytes)
            TR_TRY(fill_row(f, p->run[r].first + i, p, values));
    return TR_OK;
}

/* Empties the share, which nobody may read meanwhile. */
static int clear(struct tr_table *t)
{
    if (t->map) {
        TR_TRY(tr_hashmap_clear(t->map));
        tr_server_forget_slots(t);
        tr_use_follow(t);
        return TR_OK;
    }
    for (size_t i = 0; t->share_units > 0 && i <= state_arrays(t); i++)
        memset(array_of(t, i), 0, t->share_units * t->unit_bytes);
    return TR_OK;
}

/* Everything is gone through. */
static int fill_from_all(struct saved_table *s)
{
    struct tr_table *t = s->table;
    TR_TRY(clear(t));
    for (size_t i = 0; i <= state_arrays(t); i++) {
        struct filling f = {.s = s, .array = i, .walker = {.partition = &t->partition}};
        struct tr_part part = make_part(s, array_name(i), TR_PART_ROWS, TR_PART_U8, 0, 0);
        TR_TRY(tr_snapshot_each(s->snapshot, part.name, is_of_interest, fill_rows, &f));
    }
    tr_use_follow(t);
    return TR_OK;
}

/* ---- by server ---- */

struct by_server {
    int64_t keys;  /* hash storage: that are present */
    int64_t saved; /* bytes by the function */
};
enum { BY_SERVER = sizeof(struct by_server) / sizeof(int64_t) };

/* What there is of n servers from the first one on. */
static int list_by_server(struct saved_table *s, uint64_t first, uint64_t n, struct by_server *values)
{
    return saved_part(s, "_servers", TR_PART_ROWS, TR_PART_I64, (uint64_t)s->about[TR_ABOUT_SERVERS],
                      BY_SERVER, first, n, values);
}

/* A list of n elements of one server. */
static int list_of_server(struct saved_table *s, const char *suffix, enum tr_part_type type, int server,
                          int64_t n, void *values)
{
    return saved_part(s, suffix, TR_PART_LISTS, type, (uint64_t)s->about[TR_ABOUT_SERVERS], 0,
                      (uint64_t)server, (uint64_t)n, values);
}

static int take_by_server(struct saved_table *s)
{
    struct tr_table *t = s->table;
    const struct tr_use *use = t->use;
    struct by_server mine = {.keys = t->map ? t->map->count : 0};
    void *saved = NULL;
    size_t bytes = 0;
    if (use && use->function.save) TR_TRY(use->function.save(&use->share, &saved, &bytes));
    mine.saved = (int64_t)(saved ? bytes : 0);
    int status = list_by_server(s, (uint64_t)t->server, 1, &mine);
    if (status == TR_OK && mine.saved > 0)
        status = list_of_server(s, "_own", TR_PART_U8, t->server, mine.saved, saved);
    if (status == TR_OK && mine.keys > 0)
        status = list_of_server(s, "_order", TR_PART_I64, t->server, mine.keys, t->map->key.at);
    free(saved);
    return status;
}

static int fill_own_of(struct saved_table *s, int server, int64_t bytes)
{
    struct tr_use *use = s->table->use;
    char *saved;
    TR_TRY(TR_NEW(&saved, (size_t)bytes));
    int status = bytes > 0 ? list_of_server(s, "_own", TR_PART_U8, server, bytes, saved) : TR_OK;
    if (status == TR_OK)
        status = use->function.load(&use->share, s->same, server, (int)s->about[TR_ABOUT_SERVERS],
                                    bytes > 0 ? saved : NULL, (size_t)bytes);
    free(saved);
    return status;
}

static int fill_own(struct saved_table *s)
{
    struct tr_table *t = s->table;
    int servers = (int)s->about[TR_ABOUT_SERVERS];
    struct by_server *there;
    if (!t->use || !t->use->function.load) return TR_OK;
    TR_TRY(TR_NEW(&there, (size_t)servers));
    int first = s->same ? t->server : 0, n = s->same ? 1 : servers;
    int status = list_by_server(s, (uint64_t)first, (uint64_t)n, there);
    for (int i = 0; status == TR_OK && i < n; i++) status = fill_own_of(s, first + i, there[i].saved);
    free(there);
    return status;
}

/* Hash storage on the server that had it: its keys come in their order, as what goes through a share one by one might
 * round otherwise. */
static int fill_order(struct saved_table *s)
{
    struct tr_table *t = s->table;
    struct by_server there;
    tr_key *key;
    uint32_t *slot;
    TR_TRY(clear(t));
    TR_TRY(list_by_server(s, (uint64_t)t->server, 1, &there));
    if (there.keys == 0) return TR_OK;
    TR_TRY(TR_NEW(&key, (size_t)there.keys));
    int status = TR_NEW(&slot, (size_t)there.keys);
    if (status == TR_OK) status = list_of_server(s, "_order", TR_PART_I64, t->server, there.keys, key);
    if (status == TR_OK) status = tr_hashmap_add_all(t->map, key, (size_t)there.keys, slot);
    tr_use_follow(t);
    free(key);
    free(slot);
    return status;
}

/* ---- sparse rows ---- */

/* Of a share: its rows in the order of their numbers, and what they hold, side by side. */
struct lists {
    struct table_order order;
    uint64_t rows;
    uint32_t *place;
    int64_t *length;
    uint64_t *begin;
    void *column, *value;
};

static void free_lists(struct lists *l)
{
    void *memory[] = {l->place, l->length, l->begin, l->column, l->value};
    order_free(&l->order);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

/* Columns of 31 bits are whole numbers of 32. */
static enum tr_part_type column_type(const struct tr_table *t)
{
    return t->width <= UINT64_C(1) << 31 ? TR_PART_I32 : TR_PART_I64;
}

/* Of these rows, an array: lengths, or the entries of lists, whose memory is handed over if they are taken. */
static int list_rows(struct saved_table *s, struct lists *l, const char *suffix, enum tr_part_kind kind,
                     enum tr_part_type type, void **data)
{
    bool lists = kind == TR_PART_LISTS;
    struct tr_part part = make_part(s, suffix, kind, type, s->table->keys, lists ? 0 : 1);
    uint64_t before;
    TR_TRY(order_runs(&l->order, 0, s->table->keys, &part, &before));
    part.data = *data;
    part.begin = lists ? l->begin : NULL;
    if (s->restores || !lists) {
        int status = tr_snapshot_part(s->snapshot, &part);
        free(part.run);
        return status;
    }
    *data = NULL;
    int status = TR_NEW(&part.begin, l->rows + 1);
    if (status != TR_OK) {
        tr_part_free(&part);
        return status;
    }
    memcpy(part.begin, l->begin, (l->rows + 1) * sizeof *l->begin);
    return tr_snapshot_give(s->snapshot, &part);
}

static int open_lists(struct saved_table *s, struct lists *l)
{
    TR_TRY(order_make(s->table, &l->order));
    const struct table_order *o = &l->order;
    l->rows = o->blocks * o->block;
    if (o->blocks > 0 && (o->number[o->blocks - 1] + 1) * o->block > o->end)
        l->rows -= (o->number[o->blocks - 1] + 1) * o->block - o->end;
    TR_TRY(TR_NEW(&l->place, l->rows));
    TR_TRY(TR_NEW(&l->length, l->rows));
    TR_TRY(TR_NEW(&l->begin, l->rows + 1));
    order_places(o, l->place);
    return TR_OK;
}

/* Lengths, and memory for what is so long. */
static int list_lengths(struct saved_table *s, struct lists *l)
{
    void *length = l->length;
    TR_TRY(list_rows(s, l, "_lengths", TR_PART_ROWS, TR_PART_I64, &length));
    for (uint64_t i = 0; i < l->rows; i++) l->begin[i + 1] = l->begin[i] + (uint64_t)l->length[i];
    uint64_t entries = l->begin[l->rows];
    TR_TRY(allocate(entries * tr_part_type_size(column_type(s->table)), &l->column));
    return allocate(entries * sizeof(uint32_t), &l->value);
}

static int list_entries(struct saved_table *s, struct lists *l)
{
    TR_TRY(list_rows(s, l, "_columns", TR_PART_LISTS, column_type(s->table), &l->column));
    return list_rows(s, l, "", TR_PART_LISTS, (enum tr_part_type)s->table->dtype, &l->value);
}

static int take_lists(struct saved_table *s, struct lists *l)
{
    const struct tr_sparse *share = s->table->sparse_share;
    bool narrow = column_type(s->table) == TR_PART_I32;
    for (uint64_t i = 0; i < l->rows; i++) l->length[i] = share->row[l->place[i]].n;
    TR_TRY(list_lengths(s, l));
    for (uint64_t i = 0; i < l->rows; i++) {
        const struct tr_sparse_row *row = &share->row[l->place[i]];
        if (row->n == 0) continue;
        memcpy((uint32_t *)l->value + l->begin[i], tr_sparse_values(row), row->n * sizeof(uint32_t));
        if (narrow) memcpy((uint32_t *)l->column + l->begin[i], row->column, row->n * sizeof(uint32_t));
        for (uint32_t e = 0; !narrow && e < row->n; e++)
            ((int64_t *)l->column)[l->begin[i] + e] = row->column[e];
    }
    return list_entries(s, l);
}

static int fill_lists(struct saved_table *s, struct lists *l)
{
    TR_TRY(list_lengths(s, l));
    TR_TRY(list_entries(s, l));
    bool narrow = column_type(s->table) == TR_PART_I32;
    uint32_t *column = l->column; /* longer ones are made shorter in their own memory */
    for (uint64_t i = 0; !narrow && i < l->begin[l->rows]; i++) {
        int64_t wide;
        memcpy(&wide, (char *)l->column + i * sizeof wide, sizeof wide);
        uint32_t short_one = (uint32_t)wide;
        memcpy((char *)l->column + i * sizeof short_one, &short_one, sizeof short_one);
    }
    for (uint64_t i = 0; i < l->rows; i++)
        TR_TRY(tr_sparse_set(s->table->sparse_share, l->place[i], (uint32_t)l->length[i],
                             column + l->begin[i], (uint32_t *)l->value + l->begin[i]));
    return TR_OK;
}

static int list_sparse(struct saved_table *s)
{
    struct lists l = {.rows = 0};
    int status = open_lists(s, &l);
    if (status == TR_OK && l.rows > 0) status = s->restores ? fill_lists(s, &l) : take_lists(s, &l);
    free_lists(&l);
    return status;
}

/* ---- tables ---- */

static int take_share(struct saved_table *s)
{
    struct tr_table *t = s->table;
    TR_TRY(list_arrays(s));
    return t->hash || (t->use && t->use->function.save) ? take_by_server(s) : TR_OK;
}

static int fill_share(struct saved_table *s)
{
    const struct tr_table *t = s->table;
    int64_t form = s->about[TR_ABOUT_FORM];
    bool known = t->hash ? s->same : form == TR_FORM_DENSE && s->about[TR_ABOUT_PIECES] == t->pieces;
    if (known && t->hash) TR_TRY(fill_order(s));
    TR_TRY(known ? list_arrays(s) : fill_from_all(s));
    return fill_own(s);
}

static int list_share(struct saved_table *s)
{
    if (s->table->sparse) return list_sparse(s);
    return s->restores ? fill_share(s) : take_share(s);
}

/* What others have put there directly, and what they are to find there. */
static void sync_windows(const struct tr_table *t)
{
    if (t->window != MPI_WIN_NULL) MPI_Win_sync(t->window);
    if (t->memory.window != MPI_WIN_NULL) MPI_Win_sync(t->memory.window);
}

static int list_table(tr_snapshot *snapshot, struct tr_table *t)
{
    struct saved_table s = {.snapshot = snapshot, .table = t, .restores = tr_snapshot_restores(snapshot)};
    set_name(&s);
    TR_TRY(list_description(&s));
    sync_windows(t);
    if (t->server >= 0) TR_TRY(list_share(&s));
    TR_TRY(saved_residuals(&s));
    sync_windows(t);
    if (s.restores) tr_rows_pushed(t); /* rows that the node has fetched before are old */
    return TR_OK;
}

int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot)
{
    for (size_t i = 0; i < tr->tables->count; i++)
        if (!tr->tables->table[i]->left_out) TR_TRY(list_table(snapshot, tr->tables->table[i]));
    if (snapshot->manifest) tr_tables_count_from(tr, snapshot->manifest->facts.clock);
    return TR_OK;
}

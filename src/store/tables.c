/* Tables in checkpoints: their arrays, and the conversion of the units of a share to rows in ascending order, and back.
 * A share is the part of a table on one server. It consists of units, which are distributed in blocks of consecutive units. A
 * unit is a row, or a piece of a row if the table cuts rows into pieces: piece p of row k is unit p * keys + k (table/table.h).
 *
 * The arrays of a table NAME, and their kind (enum tr_part_kind):
 *   tables/NAME_about     common: type and distribution of the table (enum saved_about)
 *   tables/NAME_function  common: the name of the server function, as bytes
 *   tables/NAME           rows, by key: the values; for sparse rows: lists of values
 *   tables/NAME_columns   lists, by key: columns of the values of sparse rows
 *   tables/NAME_lengths   rows of one number, by key: number of values of a sparse row
 *   tables/NAME_state0    rows, by key: state of the server function; up to _state3
 *   tables/NAME_servers   rows, by server: number of keys (hash storage), bytes of _own
 *   tables/NAME_order     lists, by server: keys of hash storage in the order of their insertion
 *   tables/NAME_own       lists, by server: bytes that the server function saves
 *   tables/NAME_left      lists, by rank: residuals, the fractions of updates that filters and rounding delay; _left_units:
 *                         their units; _left_n (rows of one number): number of these units
 *
 * Pieces of rows are parts of one name with different first columns. In NAME, characters other than letters, digits and _ become
 * _. If two tables would have the same name, or the name of another array, __ and the number of the table follow.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/checkpoint.h"
#include "table/view.h"

/* Indices of the numbers in the array tables/NAME_about. */
enum saved_about {
    TR_ABOUT_FORM, /* 0 dense, 1 hash storage, 2 sparse rows */
    TR_ABOUT_TYPE,
    TR_ABOUT_KEYS,
    TR_ABOUT_WIDTH,
    TR_ABOUT_PIECES,
    TR_ABOUT_SERVERS,
    TR_ABOUT_FIRST_SERVER,
    TR_ABOUT_PARTITION, /* hash of the partition (tr_partition_print()) */
    TR_ABOUT_STATES,    /* number of arrays of state */
    TR_ABOUT_RANKS,
    TR_ABOUT_LEFT, /* 1: the checkpoint may contain residuals */
    TR_ABOUT_NUMBERS
};
enum { TR_FORM_DENSE, TR_FORM_HASH, TR_FORM_SPARSE };

/* A table that is written to a checkpoint or restored from a checkpoint. */
struct saved_table {
    tr_snapshot *snapshot;
    struct tr_table *table;
    bool restores;
    char name[72];                   /* "tables/NAME" */
    int64_t about[TR_ABOUT_NUMBERS]; /* numbers of the table in the checkpoint, by enum saved_about */
    bool same;                       /* restoring: ranks, servers and partition have not changed */
};

/* The blocks of a share in ascending order. With hash storage, a block is a key. */
struct table_order {
    uint64_t block, end; /* number of units of a block; number of units of the table */
    uint64_t blocks;
    uint64_t *number; /* numbers of the share's blocks among all blocks of the table, ascending */
    uint32_t *at;     /* index of each of these blocks in the share */
    bool straight;    /* `at` is ascending, too: the share stores its units in ascending order */
};

enum { FUNCTION_NAME = 48 };

/* ---- parts ---- */

/* Sets s->name: see the head of this file. */
static void saved_set_name(struct saved_table *s)
{
    static const char *const taken[] = {"_about",  "_function", "_columns", "_lengths",   "_state0",
                                        "_state1", "_state2",   "_state3",  "_servers",   "_order",
                                        "_own",    "_left",     "_left_n",  "_left_units"};
    const struct tr_table *t = s->table;
    const struct tr_tables *tables = t->tr->tables;
    size_t length = strlen(t->name);
    bool plain = length > 0 && length <= 48;
    for (const char *c = t->name; *c; c++)
        if (!isalnum((unsigned char)*c) && (*c != '_' || c[1] == '_')) plain = false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (length >= strlen(taken[i]) && !strcmp(t->name + length - strlen(taken[i]), taken[i]))
            plain = false;
    for (size_t i = 0; i < t->index; i++)
        if (!strcmp(tables->table[i]->name, t->name)) plain = false;
    int n = snprintf(s->name, sizeof s->name, "tables/%.48s", t->name);
    if (plain) return;
    for (char *c = s->name + strlen("tables/"); *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(s->name + n, sizeof s->name - (size_t)n, "__%u", t->index);
}

/* Returns a part of the table without arrays. columns 0: lists. */
static struct tr_part saved_make_part(const struct saved_table *s, const char *suffix, enum tr_part_kind kind,
                                      enum tr_part_type type, uint64_t total, uint64_t columns)
{
    struct tr_part part = tr_part_make(kind, type, total, columns);
    snprintf(part.name, sizeof part.name, "%s%s", s->name, suffix);
    return part;
}

/* Writes or restores the part with this suffix: rows first .. first + n - 1 of `total` rows of `columns` elements; of lists: row
 * `first`, which has n elements. Only rank 0 writes common parts. */
static int saved_part(const struct saved_table *s, const char *suffix, enum tr_part_kind kind,
                      enum tr_part_type type, uint64_t total, uint64_t columns, uint64_t first, uint64_t n,
                      void *values)
{
    struct tr_part part = saved_make_part(s, suffix, kind, type, total, columns);
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

/* Allocates n bytes in huge pages: page faults of small pages would take longer than copying the data. */
static int saved_allocate(uint64_t n, void **memory)
{
    enum { HUGE_PAGE = 2 << 20 };
    bool large = n >= 2 * HUGE_PAGE;
    size_t bytes = (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    *memory = large ? aligned_alloc(HUGE_PAGE, bytes) : malloc(n > 0 ? n : 1);
    if (!*memory)
        return tr_fail(TR_ERR_SYSTEM, "out of memory: %llu bytes for a checkpoint", (unsigned long long)n);
    if (large) (void)madvise(*memory, bytes, MADV_HUGEPAGE);
    return TR_OK;
}

/* ================ order of a share ================ */

/* ---- sorting ---- */

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* Sorts the blocks by their numbers, of which `highest` is the maximum: radix sort, the lowest digit first. */
static int order_sort(struct table_order *l, uint64_t highest)
{
    TR_FREED uint64_t *key = NULL;
    TR_FREED uint32_t *at = NULL;
    uint64_t n = l->blocks;
    TR_TRY(TR_NEW(&key, n));
    TR_TRY(TR_NEW(&at, n));
    for (unsigned shift = 0; shift < 64 && highest >> shift > 0; shift += DIGIT_BITS) {
        uint64_t start[DIGITS] = {0}, sum = 0, *old_key = l->number;
        uint32_t *old_at = l->at;
        for (uint64_t i = 0; i < n; i++) start[old_key[i] >> shift & (DIGITS - 1)]++;
        if (start[old_key[0] >> shift & (DIGITS - 1)] == n) continue; /* all numbers have the same digit */
        for (int d = 0; d < DIGITS; d++) {
            uint64_t count = start[d];
            start[d] = sum;
            sum += count;
        }
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = start[old_key[i] >> shift & (DIGITS - 1)]++;
            key[to] = old_key[i];
            at[to] = old_at[i];
        }
        l->number = key;
        l->at = at;
        key = old_key;
        at = old_at;
    }
    return TR_OK;
}

/* ---- the order ---- */

static void order_free(struct table_order *l)
{
    TR_FREE_ALL(l->number, l->at);
    *l = (struct table_order){0};
}

/* Finds the order of the blocks of a share. Free it with order_free(), also if this fails. */
static int order_make(const struct tr_table *t, struct table_order *l)
{
    uint64_t highest = 0;
    *l = (struct table_order){
        .block = t->map ? 1 : t->partition.block, .end = t->keys * t->pieces, .straight = true};
    l->blocks = t->map ? t->map->count : tr_partition_share(&t->partition, (uint32_t)t->server) / l->block;
    TR_TRY(TR_NEW(&l->number, l->blocks));
    TR_TRY(TR_NEW(&l->at, l->blocks));
    for (uint64_t i = 0; i < l->blocks; i++) {
        if (t->map) l->number[i] = tr_hashmap_key(t->map, (uint32_t)i);
        else
            l->number[i] =
                tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)(i * l->block)) / l->block;
        l->at[i] = (uint32_t)i;
        if (i > 0 && l->number[i] < highest) l->straight = false;
        else highest = l->number[i];
    }
    return l->straight ? TR_OK : order_sort(l, highest);
}

/* ---- runs ---- */

/* Returns the index of the first block that ends after a unit. */
static uint64_t order_find(const struct table_order *l, uint64_t unit)
{
    return tr_place_u64(l->number, l->blocks, unit / l->block);
}

/* Returns the units of block i that are within first .. end - 1. */
static inline struct tr_row_run order_block(const struct table_order *l, uint64_t i, uint64_t first,
                                            uint64_t end)
{
    uint64_t from = l->number[i] * l->block, to = from + l->block;
    if (to > l->end) to = l->end;
    if (to > end) to = end;
    if (from < first) from = first;
    return (struct tr_row_run){from, from < to ? to - from : 0};
}

/* Sets the runs of a part to those units of first .. end - 1 that are in the share; rows of the part are counted from `first`. Free
 * part->run.
 *
 * @param [out] before  number of units of the share that are below `first`
 */
static int order_runs(const struct table_order *l, uint64_t first, uint64_t end, struct tr_part *part,
                      uint64_t *before)
{
    uint64_t from = order_find(l, first), next;
    struct tr_row_run run;
    *before = from < l->blocks && l->number[from] * l->block < first ? first % l->block : 0;
    *before += from * l->block;            /* these blocks have full length: only the last can be shorter */
    for (int fill = 0; fill < 2; fill++) { /* the first pass counts the runs, the second one lists them */
        if (fill) TR_TRY(TR_NEW(&part->run, part->runs));
        part->runs = 0;
        part->rows = 0;
        next = UINT64_MAX;
        for (uint64_t i = from; i < l->blocks && (run = order_block(l, i, first, end)).n > 0; i++) {
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

/* Copies units of one number, which is faster than memcpy() for each unit. */
#define COPY_SCATTERED(TYPE)                                                                                 \
    do {                                                                                                     \
        TYPE *there = packed_, *here = array_;                                                               \
        const uint32_t *at = l->at + from;                                                                   \
        uint64_t n = order_find(l, end) - from;                                                              \
        if (gather)                                                                                          \
            for (uint64_t i = 0; i < n; i++) there[i] = here[at[i]];                                         \
        else                                                                                                 \
            for (uint64_t i = 0; i < n; i++) here[at[i]] = there[i];                                         \
        return;                                                                                              \
    } while (0)

/* Copies those units of first .. end - 1 that are in the share from an array of the share to packed memory (gather), or back. */
static void order_copy(const struct table_order *l, uint64_t first, uint64_t end, size_t unit_bytes,
                       bool gather, void *packed_, void *array_)
{
    char *packed = packed_, *array = array_;
    uint64_t from = order_find(l, first);
    if (l->block == 1 && unit_bytes == sizeof(uint32_t)) COPY_SCATTERED(uint32_t);
    if (l->block == 1 && unit_bytes == sizeof(uint64_t)) COPY_SCATTERED(uint64_t);
    struct tr_row_run run;
    for (uint64_t i = from; i < l->blocks && (run = order_block(l, i, first, end)).n > 0; i++) {
        char *there = array + ((uint64_t)l->at[i] * l->block + run.first % l->block) * unit_bytes;
        memcpy(gather ? packed : there, gather ? there : packed, run.n * unit_bytes);
        packed += run.n * unit_bytes;
    }
}

/* ================ residuals ================ */

/* The n units of a rank that may have residuals (see the head of this file), and the values of the residuals. */
struct residuals {
    uint64_t n, *unit;
    char *value;
};

static void residuals_free(struct residuals *r)
{
    TR_FREE_ALL(r->unit, r->value);
}

/* Returns whether updates of the table may have residuals. Residuals belong to the views of a rank, and are restored if the layout
 * is the same. Otherwise they are added to the values, like a late update, or, if the table has a server function, lost. */
static bool residuals_exist(const struct tr_table *t)
{
    bool real = t->dtype == TR_F32 || t->dtype == TR_F64;
    if (t->sparse) return false;
    return t->filter.kind != TR_FILTER_NONE || (real && t->wire.precision != TR_PRECISION_FULL);
}

/* Returns the open view that pushes to the table and has the lowest tag above `above`; NULL: none. */
static struct tr_view_state *residuals_next_view(const struct tr_table *t, uint32_t above)
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

enum pass { COUNT, UNITS, TAKE, GIVE_BACK };

/* Visits the units that views of this rank push to the table in messages, in the order in which the views were opened. COUNT counts
 * the units, UNITS lists them, TAKE copies their residuals to r, GIVE_BACK copies residuals from r to the views. */
static int residuals_visit(const struct tr_table *t, enum pass pass, struct residuals *r)
{
    r->n = 0;
    for (struct tr_view_state *v = residuals_next_view(t, 0); v; v = residuals_next_view(t, v->tag))
        for (uint32_t s = 0; s < v->keys.servers; s++) {
            struct tr_channel *c = &v->channel[s];
            if (c->way != TR_WAY_MESSAGE || c->segment->n == 0) continue;
            const struct tr_segment *segment = c->segment;
            size_t bytes = segment->n * t->unit_bytes;
            char *value = pass > UNITS ? r->value + r->n * t->unit_bytes : NULL;
            /* zeros, because there were no residuals so far */
            if (value && !c->residual) TR_TRY(TR_NEW(&c->residual, bytes));
            for (uint32_t k = 0; pass == UNITS && k < segment->n; k++)
                r->unit[r->n + k] = segment->key
                                        ? segment->key[k]
                                        : tr_partition_unit(&t->partition, c->server, segment->position[k]);
            if (pass == TAKE) memcpy(value, c->residual, bytes);
            if (pass == GIVE_BACK) memcpy(c->residual, value, bytes);
            r->n += segment->n;
        }
    return TR_OK;
}

/* ---- parts: by rank ---- */

static int residuals_list(struct saved_table *s, uint64_t rank, struct residuals *r)
{
    const struct tr_table *t = s->table;
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    TR_TRY(saved_part(s, "_left_units", TR_PART_LISTS, TR_PART_I64, ranks, 0, rank, r->n, r->unit));
    return saved_part(s, "_left", TR_PART_LISTS, (enum tr_part_type)t->dtype, ranks, 0, rank,
                      r->n * t->unit_width, r->value);
}

/* Writes or restores the residuals of this rank. They are not restored if the views do not have the keys of the checkpoint. */
static int residuals_list_here(struct saved_table *s)
{
    struct residuals r TR_CLOSED_BY(residuals_free) = {.n = 0};
    uint64_t rank = (uint64_t)s->table->tr->rank;
    TR_TRY(residuals_visit(s->table, COUNT, &r));
    TR_TRY(TR_NEW(&r.unit, r.n));
    TR_TRY(TR_NEW(&r.value, r.n * s->table->unit_bytes));
    int64_t n = s->restores ? 0 : (int64_t)r.n;
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    TR_TRY(saved_part(s, "_left_n", TR_PART_ROWS, TR_PART_I64, ranks, 1, rank, 1, &n));
    if (n == 0 || (uint64_t)n != r.n) return TR_OK;
    if (!s->restores) {
        TR_TRY(residuals_visit(s->table, UNITS, &r));
        TR_TRY(residuals_visit(s->table, TAKE, &r));
        return residuals_list(s, rank, &r);
    }
    struct residuals now TR_CLOSED_BY(residuals_free) = {.n = r.n};
    TR_TRY(residuals_list(s, rank, &r));
    TR_TRY(TR_NEW(&now.unit, now.n));
    TR_TRY(residuals_visit(s->table, UNITS, &now));
    bool equal = !memcmp(now.unit, r.unit, r.n * sizeof *r.unit);
    return equal ? residuals_visit(s->table, GIVE_BACK, &r) : TR_OK;
}

/* Adds the residuals of all ranks to the values, for the units that are in the share of this rank. */
static int residuals_add_all(struct saved_table *s)
{
    struct tr_table *t = s->table;
    uint64_t ranks = (uint64_t)s->about[TR_ABOUT_RANKS];
    TR_FREED int64_t *n = NULL;
    TR_TRY(TR_NEW(&n, ranks));
    TR_TRY(saved_part(s, "_left_n", TR_PART_ROWS, TR_PART_I64, ranks, 1, 0, ranks, n));
    for (uint64_t rank = 0; rank < ranks; rank++) {
        struct residuals r TR_CLOSED_BY(residuals_free) = {.n = (uint64_t)n[rank]};
        struct tr_walker walker = {.partition = &t->partition};
        if (r.n == 0) continue;
        TR_TRY(TR_NEW(&r.unit, r.n));
        TR_TRY(TR_NEW(&r.value, r.n * t->unit_bytes));
        TR_TRY(residuals_list(s, rank, &r));
        const char *value = r.value;
        for (uint64_t i = 0; i < r.n; i++, value += t->unit_bytes) {
            struct tr_location at = tr_walk_to(&walker, r.unit[i]);
            if (at.server != (uint32_t)t->server || tr_is_zero(value, t->unit_bytes)) continue;
            if (t->map) TR_TRY(tr_hashmap_add_all(t->map, &r.unit[i], 1, &at.position));
            char *share = t->map ? t->map->array[0].at : t->share[t->server];
            tr_add_elements(t->dtype, t->unit_width, value, share + at.position * t->unit_bytes);
        }
    }
    return TR_OK;
}

/* ================ tables ================ */

/* ---- description ---- */

static size_t share_state_arrays(const struct tr_table *t)
{
    return t->use ? t->use->function.state_arrays : 0;
}

/* Writes the description (s->about and the name of the function), or reads it and compares it with the table. */
static int saved_description(struct saved_table *s)
{
    const struct tr_table *t = s->table;
    int64_t now[TR_ABOUT_NUMBERS] = {[TR_ABOUT_FORM] = t->hash     ? TR_FORM_HASH
                                                       : t->sparse ? TR_FORM_SPARSE
                                                                   : TR_FORM_DENSE,
                                     [TR_ABOUT_TYPE] = t->dtype,
                                     [TR_ABOUT_KEYS] = (int64_t)t->keys,
                                     [TR_ABOUT_WIDTH] = (int64_t)t->width,
                                     [TR_ABOUT_PIECES] = t->pieces,
                                     [TR_ABOUT_SERVERS] = t->partition.servers,
                                     [TR_ABOUT_FIRST_SERVER] = t->first_server,
                                     [TR_ABOUT_PARTITION] = (int64_t)tr_partition_print(&t->partition),
                                     [TR_ABOUT_STATES] = (int64_t)share_state_arrays(t),
                                     [TR_ABOUT_RANKS] = t->tr->size,
                                     [TR_ABOUT_LEFT] = residuals_exist(t)};
    char function[FUNCTION_NAME] = "", then[FUNCTION_NAME];
    bool has = true;
    if (t->use) snprintf(function, sizeof function, "%s", t->use->function.name);
    memcpy(s->about, now, sizeof now);
    memcpy(then, function, sizeof then);
    for (int i = 0; s->restores && i < 2; i++) {
        struct tr_part about = saved_make_part(s, "_about", TR_PART_COMMON, TR_PART_I64, 0, 1);
        TR_TRY(tr_snapshot_has(s->snapshot, about.name, &has));
        if (has || i > 0 || !t->fallback) break;
        snprintf(s->name, sizeof s->name, "tables/%.48s", t->fallback);
    }
    if (!has) return tr_fail(TR_ERR_DATA, "checkpoint: there is no table %s in it", t->name);
    TR_TRY(saved_part(s, "_about", TR_PART_COMMON, TR_PART_I64, TR_ABOUT_NUMBERS, 1, 0, TR_ABOUT_NUMBERS,
                      s->about));
    TR_TRY(saved_part(s, "_function", TR_PART_COMMON, TR_PART_U8, FUNCTION_NAME, 1, 0, FUNCTION_NAME, then));
    if (!s->restores) return TR_OK;
    const int64_t *was = s->about;
    bool lists = was[TR_ABOUT_FORM] == TR_FORM_SPARSE;
    if (was[TR_ABOUT_TYPE] != now[TR_ABOUT_TYPE] || was[TR_ABOUT_KEYS] != now[TR_ABOUT_KEYS] ||
        was[TR_ABOUT_WIDTH] != now[TR_ABOUT_WIDTH] || lists != t->sparse) {
        static const char *const type[] = {"f32", "f64", "i32", "i64"};
        return tr_fail(TR_ERR_DATA,
                       "checkpoint: table %s had %llu keys of %lld %s elements%s, expected %llu of %lld %s%s",
                       t->name, (unsigned long long)was[TR_ABOUT_KEYS], (long long)was[TR_ABOUT_WIDTH],
                       type[was[TR_ABOUT_TYPE] & 3], lists ? " in sparse rows" : "",
                       (unsigned long long)now[TR_ABOUT_KEYS], (long long)now[TR_ABOUT_WIDTH],
                       type[now[TR_ABOUT_TYPE] & 3], t->sparse ? " in sparse rows" : "");
    }
    /* another server function can continue with the values, but not with the state of the first function */
    bool keeps = was[TR_ABOUT_STATES] > 0 || share_state_arrays(t) > 0 || (t->use && t->use->function.load);
    if (keeps && strncmp(then, function, FUNCTION_NAME) != 0)
        return tr_fail(TR_ERR_DATA, "checkpoint: table %s was updated by server function %.47s, now by %s",
                       t->name, *then ? then : "add", *function ? function : "add");
    s->same = s->snapshot->same_layout;
    static const enum saved_about place[] = {TR_ABOUT_FORM,         TR_ABOUT_PIECES,    TR_ABOUT_SERVERS,
                                             TR_ABOUT_FIRST_SERVER, TR_ABOUT_PARTITION, TR_ABOUT_RANKS};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        s->same = s->same && was[place[i]] == now[place[i]];
    return TR_OK;
}

/* ---- values and state, if the rows of this server are known ---- */

/* Returns array `number` of the share: 0: the values, others: state. Insertions into hash storage change the address. */
static char *share_array(const struct tr_table *t, size_t number)
{
    if (t->map) return t->map->array[number].at;
    return number == 0 ? t->share[t->server] : t->use->share.state[number - 1];
}

static const char *share_array_name(size_t number)
{
    static const char *const name[] = {"", "_state0", "_state1", "_state2", "_state3"};
    _Static_assert(sizeof name / sizeof *name == TR_STATE_ARRAYS + 1, "each array has a name");
    return name[number];
}

/* Writes or restores an array of the share, one piece of all rows after the other. Restoring reads directly into the array if the
 * share stores its units in ascending order. */
static int saved_array(struct saved_table *s, const struct table_order *o, const char *suffix, char *array)
{
    const struct tr_table *t = s->table;
    uint64_t unit = t->unit_bytes, before;
    bool packs = !s->restores || !o->straight;
    for (uint32_t piece = 0; piece < t->pieces; piece++) {
        TR_FREED void *packed = NULL;
        TR_FREED struct tr_row_run *run = NULL;
        struct tr_part part =
            saved_make_part(s, suffix, TR_PART_ROWS, (enum tr_part_type)t->dtype, t->keys, t->width);
        uint64_t first = piece * t->keys, end = first + t->keys;
        part.columns = t->unit_width;
        part.first_column = piece * t->unit_width;
        TR_TRY(order_runs(o, first, end, &part, &before));
        run = part.run;
        if (part.rows == 0) continue;
        if (packs) TR_TRY(saved_allocate(part.rows * unit, &packed));
        part.data = packs ? packed : array + before * unit;
        if (s->restores) {
            TR_TRY(tr_snapshot_part(s->snapshot, &part));
            if (packs) order_copy(o, first, end, unit, false, packed, array);
            continue;
        }
        if (o->straight) memcpy(packed, array + before * unit, part.rows * unit);
        else order_copy(o, first, end, unit, true, packed, array);
        packed = NULL;
        run = NULL;
        TR_TRY(tr_snapshot_give(s->snapshot, &part));
    }
    return TR_OK;
}

static int saved_arrays(struct saved_table *s)
{
    struct tr_table *t = s->table;
    struct table_order order TR_CLOSED_BY(order_free) = {0};
    TR_TRY(order_make(t, &order));
    /* if the server function stores updates apart from the values, writes the values that include all updates */
    bool apart = !s->restores && t->use && t->use->function.read;
    if (apart) {
        TR_FREED void *settled = NULL;
        TR_TRY(saved_allocate(t->use->share.units * t->unit_bytes, &settled));
        TR_TRY(t->use->function.read(&t->use->share, INT64_MAX, t->use->share.units, NULL, settled));
        TR_TRY(saved_array(s, &order, "", settled));
    }
    for (size_t i = apart; i <= share_state_arrays(t); i++)
        TR_TRY(saved_array(s, &order, share_array_name(i), share_array(t, i)));
    return TR_OK;
}

/* ---- restoring values and state from another storage or layout ---- */

struct filling {
    struct saved_table *s;
    size_t array;
    struct tr_walker walker;
};

static bool filling_wants(void *who, const struct tr_row_run *run)
{
    struct filling *f = who;
    const struct tr_table *t = f->s->table;
    if (t->pieces > 1) return true;
    for (uint64_t unit = run->first; unit < run->first + run->n; unit = f->walker.end)
        if (tr_walk_to(&f->walker, unit).server == (uint32_t)t->server) return true;
    return false;
}

/* Stores those elements of the rows that are in the share. Hash storage gets all keys that the hash storage of the checkpoint had;
 * from dense storage it gets the keys whose elements are not zero. */
static int filling_add_piece(void *who, const struct tr_part *p)
{
    struct filling *f = who;
    struct tr_table *t = f->s->table;
    size_t size = tr_dtype_size(t->dtype), bytes;
    bool skips_zeros = t->map && f->s->about[TR_ABOUT_FORM] != TR_FORM_HASH;
    const char *values = p->data;
    uint64_t end = p->first_column + p->columns;
    for (tr_key key = p->run->first; key < p->run->first + p->run->n; key++)
        for (uint64_t column = p->first_column; column < end; column += bytes / size, values += bytes) {
            uint64_t piece = column / t->unit_width, border = (piece + 1) * t->unit_width;
            struct tr_location at = tr_walk_to(&f->walker, piece * t->keys + key);
            bytes = (size_t)((border < end ? border : end) - column) * size;
            if (at.server != (uint32_t)t->server || (skips_zeros && tr_is_zero(values, bytes))) continue;
            if (t->map) TR_TRY(tr_hashmap_add_all(t->map, &key, 1, &at.position));
            memcpy(share_array(t, f->array) + at.position * t->unit_bytes +
                       (column - piece * t->unit_width) * size,
                   values, bytes);
        }
    return TR_OK;
}

/* Sets the share to zero, or removes all keys of hash storage. No other rank may read the share meanwhile. */
static int share_clear(struct tr_table *t)
{
    if (t->map) {
        TR_TRY(tr_hashmap_clear(t->map));
        tr_server_forget_slots(t);
        tr_use_follow(t);
        return TR_OK;
    }
    for (size_t i = 0; t->share_units > 0 && i <= share_state_arrays(t); i++)
        memset(share_array(t, i), 0, t->share_units * t->unit_bytes);
    return TR_OK;
}

/* ---- by server ---- */

struct by_server {
    int64_t keys;  /* number of keys in hash storage; 0 for other storage */
    int64_t saved; /* number of bytes that the server function saves */
};
enum { BY_SERVER = sizeof(struct by_server) / sizeof(int64_t) };

/* Writes or restores the struct by_server of servers first .. first + n - 1. */
static int saved_by_server(struct saved_table *s, uint64_t first, uint64_t n, struct by_server *values)
{
    return saved_part(s, "_servers", TR_PART_ROWS, TR_PART_I64, (uint64_t)s->about[TR_ABOUT_SERVERS],
                      BY_SERVER, first, n, values);
}

/* Writes or restores the list of n elements of one server. */
static int saved_of_server(struct saved_table *s, const char *suffix, enum tr_part_type type, int server,
                           int64_t n, void *values)
{
    return saved_part(s, suffix, TR_PART_LISTS, type, (uint64_t)s->about[TR_ABOUT_SERVERS], 0,
                      (uint64_t)server, (uint64_t)n, values);
}

static int saved_fill_own(struct saved_table *s)
{
    struct tr_table *t = s->table;
    struct tr_use *use = t->use;
    int servers = (int)s->about[TR_ABOUT_SERVERS];
    TR_FREED struct by_server *there = NULL;
    if (!use || !use->function.load) return TR_OK;
    TR_TRY(TR_NEW(&there, (size_t)servers));
    int first = s->same ? t->server : 0, n = s->same ? 1 : servers;
    TR_TRY(saved_by_server(s, (uint64_t)first, (uint64_t)n, there));
    for (int i = 0; i < n; i++) {
        TR_FREED char *saved = NULL;
        int64_t bytes = there[i].saved;
        TR_TRY(TR_NEW(&saved, (size_t)bytes));
        if (bytes > 0) TR_TRY(saved_of_server(s, "_own", TR_PART_U8, first + i, bytes, saved));
        TR_TRY(use->function.load(&use->share, s->same, first + i, servers, bytes > 0 ? saved : NULL,
                                  (size_t)bytes));
    }
    return TR_OK;
}

/* Restores the keys of hash storage on the same server in the order of their insertion, because sums over a share would be rounded
 * differently in another order. */
static int saved_fill_order(struct saved_table *s)
{
    struct tr_table *t = s->table;
    struct by_server there;
    TR_FREED tr_key *key = NULL;
    TR_FREED uint32_t *slot = NULL;
    TR_TRY(share_clear(t));
    TR_TRY(saved_by_server(s, (uint64_t)t->server, 1, &there));
    if (there.keys == 0) return TR_OK;
    TR_TRY(TR_NEW(&key, (size_t)there.keys));
    TR_TRY(TR_NEW(&slot, (size_t)there.keys));
    int status = saved_of_server(s, "_order", TR_PART_I64, t->server, there.keys, key);
    if (status == TR_OK) status = tr_hashmap_add_all(t->map, key, (size_t)there.keys, slot);
    tr_use_follow(t);
    return status;
}

/* ---- sparse rows ---- */

/* The sparse rows of a share in ascending order, with concatenated columns (int32_t if that suffices, else int64_t) and values. */
struct lists {
    struct table_order order;
    uint64_t rows;
    uint32_t *place; /* index of each row in the share */
    int64_t *length; /* number of values of each row */
    uint64_t *begin; /* index of the first value of each row, and finally the number of all values */
    void *column, *value;
};

static void lists_free(struct lists *l)
{
    order_free(&l->order);
    TR_FREE_ALL(l->place, l->length, l->begin, l->column, l->value);
}

/* Writes or restores an array of the rows: lengths (kind rows), or columns or values (kind lists). Writing lists takes ownership of
 * *data, which becomes NULL. */
static int lists_rows(struct saved_table *s, struct lists *l, const char *suffix, enum tr_part_kind kind,
                      enum tr_part_type type, void **data)
{
    bool lists = kind == TR_PART_LISTS;
    struct tr_part part = saved_make_part(s, suffix, kind, type, s->table->keys, lists ? 0 : 1);
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

static int saved_sparse(struct saved_table *s)
{
    struct lists l TR_CLOSED_BY(lists_free) = {.rows = 0};
    struct tr_sparse *share = s->table->sparse_share;
    enum tr_part_type type =
        s->table->width <= UINT64_C(1) << 31 ? TR_PART_I32 : TR_PART_I64; /* type of the column numbers */
    bool narrow = type == TR_PART_I32;
    struct tr_row_run run;
    TR_TRY(order_make(s->table, &l.order));
    const struct table_order *o = &l.order;
    l.rows = o->blocks * o->block;
    if (o->blocks > 0 && (o->number[o->blocks - 1] + 1) * o->block > o->end)
        l.rows -= (o->number[o->blocks - 1] + 1) * o->block - o->end;
    TR_TRY(TR_NEW(&l.place, l.rows));
    TR_TRY(TR_NEW(&l.length, l.rows));
    TR_TRY(TR_NEW(&l.begin, l.rows + 1));
    uint32_t *place = l.place;
    for (uint64_t i = 0; i < o->blocks && (run = order_block(o, i, 0, o->end)).n > 0; i++)
        for (uint64_t k = 0; k < run.n; k++) *place++ = (uint32_t)((uint64_t)o->at[i] * o->block + k);
    if (l.rows == 0) return TR_OK;

    for (uint64_t i = 0; !s->restores && i < l.rows; i++) l.length[i] = share->row[l.place[i]].n;
    void *length = l.length;
    TR_TRY(lists_rows(s, &l, "_lengths", TR_PART_ROWS, TR_PART_I64, &length));
    for (uint64_t i = 0; i < l.rows; i++) l.begin[i + 1] = l.begin[i] + (uint64_t)l.length[i];
    uint64_t entries = l.begin[l.rows];
    TR_TRY(saved_allocate(entries * tr_part_type_size(type), &l.column));
    TR_TRY(saved_allocate(entries * sizeof(uint32_t), &l.value));
    for (uint64_t i = 0; !s->restores && i < l.rows; i++) {
        const struct tr_sparse_row *row = &share->row[l.place[i]];
        if (row->n == 0) continue;
        memcpy((uint32_t *)l.value + l.begin[i], tr_sparse_values(row), row->n * sizeof(uint32_t));
        if (narrow) memcpy((uint32_t *)l.column + l.begin[i], row->column, row->n * sizeof(uint32_t));
        for (uint32_t e = 0; !narrow && e < row->n; e++)
            ((int64_t *)l.column)[l.begin[i] + e] = row->column[e];
    }
    TR_TRY(lists_rows(s, &l, "_columns", TR_PART_LISTS, type, &l.column));
    TR_TRY(lists_rows(s, &l, "", TR_PART_LISTS, (enum tr_part_type)s->table->dtype, &l.value));
    if (!s->restores) return TR_OK;

    uint32_t *column = l.column; /* numbers of 64 bits are converted to 32 bits in place */
    for (uint64_t i = 0; !narrow && i < entries; i++) {
        int64_t wide;
        memcpy(&wide, (char *)l.column + i * sizeof wide, sizeof wide);
        uint32_t short_one = (uint32_t)wide;
        memcpy((char *)l.column + i * sizeof short_one, &short_one, sizeof short_one);
    }
    for (uint64_t i = 0; i < l.rows; i++)
        TR_TRY(tr_sparse_set(share, l.place[i], (uint32_t)l.length[i], column + l.begin[i],
                             (uint32_t *)l.value + l.begin[i]));
    return TR_OK;
}

/* ---- tables ---- */

static int saved_share(struct saved_table *s)
{
    struct tr_table *t = s->table;
    int64_t form = s->about[TR_ABOUT_FORM];
    if (t->sparse) return saved_sparse(s);
    if (!s->restores) {
        TR_TRY(saved_arrays(s));
        bool saves = t->use && t->use->function.save;
        if (!t->hash && !saves) return TR_OK;
        struct by_server mine = {.keys = t->map ? t->map->count : 0};
        TR_FREED void *saved = NULL;
        size_t bytes = 0;
        if (saves) TR_TRY(t->use->function.save(&t->use->share, &saved, &bytes));
        mine.saved = (int64_t)(saved ? bytes : 0);
        TR_TRY(saved_by_server(s, (uint64_t)t->server, 1, &mine));
        if (mine.saved > 0) TR_TRY(saved_of_server(s, "_own", TR_PART_U8, t->server, mine.saved, saved));
        if (mine.keys == 0) return TR_OK;
        return saved_of_server(s, "_order", TR_PART_I64, t->server, mine.keys, t->map->key.at);
    }
    bool known = t->hash ? s->same : form == TR_FORM_DENSE && s->about[TR_ABOUT_PIECES] == t->pieces;
    if (known && t->hash) TR_TRY(saved_fill_order(s));
    if (known) TR_TRY(saved_arrays(s));
    if (!known) TR_TRY(share_clear(t)); /* clears the share, and then fills it from the rows of all shards */
    for (size_t i = 0; !known && i <= share_state_arrays(t); i++) {
        struct filling f = {.s = s, .array = i, .walker = {.partition = &t->partition}};
        struct tr_part part = saved_make_part(s, share_array_name(i), TR_PART_ROWS, TR_PART_U8, 0, 0);
        TR_TRY(tr_snapshot_each(s->snapshot, part.name, filling_wants, filling_add_piece, &f));
    }
    if (!known) tr_use_follow(t);
    return saved_fill_own(s);
}

/* Synchronizes the windows of a table: makes direct writes of other ranks visible here, and writes of this rank visible to them. */
static void saved_sync_windows(const struct tr_table *t)
{
    if (t->window != MPI_WIN_NULL) MPI_Win_sync(t->window);
    if (t->memory.window != MPI_WIN_NULL) MPI_Win_sync(t->memory.window);
}

int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot)
{
    for (size_t i = 0; i < tr->tables->count; i++) {
        struct tr_table *t = tr->tables->table[i];
        if (t->left_out) continue;
        struct saved_table s = {.snapshot = snapshot, .table = t, .restores = tr_snapshot_restores(snapshot)};
        saved_set_name(&s);
        TR_TRY(saved_description(&s));
        saved_sync_windows(t);
        if (t->server >= 0) TR_TRY(saved_share(&s));
        bool here = residuals_exist(t) && (!s.restores || (s.same && s.about[TR_ABOUT_LEFT]));
        bool adds = s.restores && s.about[TR_ABOUT_LEFT] && !here && t->server >= 0 && !t->use &&
                    !t->sparse && s.about[TR_ABOUT_PIECES] == t->pieces;
        if (here) TR_TRY(residuals_list_here(&s));
        if (adds) TR_TRY(residuals_add_all(&s));
        saved_sync_windows(t);
        if (s.restores) tr_rows_pushed(t); /* marks rows in the cache of the node as outdated */
    }
    if (snapshot->manifest) tr_tables_count_from(tr, snapshot->manifest->facts.clock);
    return TR_OK;
}

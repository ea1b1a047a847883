/* Tables in checkpoints: every server copies its share in the order of the keys, so that any other set of servers can fill
 * its shares from that. See tables.h for what is kept under which name.
 *
 * It is done while no update is under way and nobody reads, by each server for its share alone. What is kept differs from
 * the share only where a function keeps something apart from its values: then it is what settling would make of it. */
#define _GNU_SOURCE
#include "store/tables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "table/rows.h"

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

static void set_name(struct tr_saved *s)
{
    const struct tr_table *t = s->table;
    int n = snprintf(s->name, sizeof s->name, "tables/%.48s", t->name);
    if (is_plain(t->tr->tables, t->index)) return;
    for (char *c = s->name + strlen("tables/"); *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(s->name + n, sizeof s->name - (size_t)n, "__%u", t->index);
}

/* A part of the table with nothing in it yet; columns 0: lists. */
static struct tr_part make_part(const struct tr_saved *s, const char *suffix, enum tr_part_kind kind,
                                enum tr_part_type type, uint64_t total, uint64_t columns)
{
    struct tr_part part = {
        .kind = kind, .type = type, .total_rows = total, .total_columns = columns, .columns = columns};
    snprintf(part.name, sizeof part.name, "%s%s", s->name, suffix);
    return part;
}

int tr_saved_part(const struct tr_saved *s, const char *suffix, enum tr_part_kind kind,
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
    about[TR_ABOUT_LEFT] = tr_has_residuals(t);
    memset(function, 0, FUNCTION_NAME);
    if (t->use) snprintf(function, FUNCTION_NAME, "%s", t->use->function.name);
}

static int check_shape(const struct tr_saved *s, const int64_t *now)
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
static int check_function(const struct tr_saved *s, const char *then, const char *now)
{
    bool keeps = s->about[TR_ABOUT_STATES] > 0 || state_arrays(s->table) > 0 ||
                 (s->table->use && s->table->use->function.load);
    if (!keeps || !strncmp(then, now, FUNCTION_NAME)) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint: table %s was updated by server function %.47s, now by %s",
                   s->table->name, *then ? then : "add", *now ? now : "add");
}

static int list_description(struct tr_saved *s)
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
    TR_TRY(tr_saved_part(s, "_about", TR_PART_COMMON, TR_PART_I64, TR_ABOUT_NUMBERS, 1, 0, TR_ABOUT_NUMBERS,
                         s->about));
    TR_TRY(
        tr_saved_part(s, "_function", TR_PART_COMMON, TR_PART_U8, FUNCTION_NAME, 1, 0, FUNCTION_NAME, then));
    if (!s->restores) return TR_OK;
    TR_TRY(check_shape(s, now));
    TR_TRY(check_function(s, then, function));
    s->same = s->snapshot->same_layout;
    static const enum tr_about place[] = {TR_ABOUT_FORM,         TR_ABOUT_PIECES,    TR_ABOUT_SERVERS,
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
static int list_piece(struct tr_saved *s, const struct tr_order *o, struct tr_part *part, uint64_t first,
                      uint64_t before, char *array)
{
    uint64_t unit = s->table->unit_bytes, end = first + s->table->keys;
    char *place = array + before * unit;
    bool packs = !s->restores || !o->straight;
    int status = packs ? allocate(part->rows * unit, &part->data) : TR_OK;
    if (status == TR_OK && !s->restores) {
        if (o->straight) memcpy(part->data, place, part->rows * unit);
        else tr_order_copy(o, first, end, unit, true, part->data, array);
        return tr_snapshot_give(s->snapshot, part);
    }
    if (!packs) part->data = place;
    if (status == TR_OK) status = tr_snapshot_part(s->snapshot, part);
    if (status == TR_OK && packs) tr_order_copy(o, first, end, unit, false, part->data, array);
    if (packs) free(part->data);
    free(part->run);
    return status;
}

static int list_array(struct tr_saved *s, const struct tr_order *o, const char *suffix, char *array)
{
    const struct tr_table *t = s->table;
    for (uint32_t piece = 0; piece < t->pieces; piece++) {
        struct tr_part part =
            make_part(s, suffix, TR_PART_ROWS, (enum tr_part_type)t->dtype, t->keys, t->width);
        uint64_t first = piece * t->keys, before;
        part.columns = t->unit_width;
        part.first_column = piece * t->unit_width;
        TR_TRY(tr_order_runs(o, first, first + t->keys, &part, &before));
        if (part.rows == 0) free(part.run);
        else TR_TRY(list_piece(s, o, &part, first, before, array));
    }
    return TR_OK;
}

/* The values as they are read when everything that a function keeps apart counts. */
static int take_settled(struct tr_saved *s, const struct tr_order *o)
{
    const struct tr_use *use = s->table->use;
    char *settled;
    TR_TRY(allocate(use->share.units * s->table->unit_bytes, (void **)&settled));
    int status = use->function.read(&use->share, INT64_MAX, use->share.units, NULL, settled);
    if (status == TR_OK) status = list_array(s, o, "", settled);
    free(settled);
    return status;
}

static int list_arrays(struct tr_saved *s)
{
    struct tr_table *t = s->table;
    struct tr_order order;
    TR_TRY(tr_order_make(t, &order));
    bool apart = !s->restores && t->use && t->use->function.read;
    int status = apart ? take_settled(s, &order) : TR_OK;
    for (size_t i = apart; status == TR_OK && i <= state_arrays(t); i++)
        status = list_array(s, &order, array_name(i), array_of(t, i));
    tr_order_free(&order);
    return status;
}

/* ---- … and from any form of storage ---- */

struct filling {
    struct tr_saved *s;
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
static int fill_from_all(struct tr_saved *s)
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
static int list_by_server(struct tr_saved *s, uint64_t first, uint64_t n, struct by_server *values)
{
    return tr_saved_part(s, "_servers", TR_PART_ROWS, TR_PART_I64, (uint64_t)s->about[TR_ABOUT_SERVERS],
                         BY_SERVER, first, n, values);
}

/* A list of n elements of one server. */
static int list_of_server(struct tr_saved *s, const char *suffix, enum tr_part_type type, int server,
                          int64_t n, void *values)
{
    return tr_saved_part(s, suffix, TR_PART_LISTS, type, (uint64_t)s->about[TR_ABOUT_SERVERS], 0,
                         (uint64_t)server, (uint64_t)n, values);
}

static int take_by_server(struct tr_saved *s)
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

static int fill_own_of(struct tr_saved *s, int server, int64_t bytes)
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

static int fill_own(struct tr_saved *s)
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
static int fill_order(struct tr_saved *s)
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
    struct tr_order order;
    uint64_t rows;
    uint32_t *place;
    int64_t *length;
    uint64_t *begin;
    void *column, *value;
};

static void free_lists(struct lists *l)
{
    void *memory[] = {l->place, l->length, l->begin, l->column, l->value};
    tr_order_free(&l->order);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
}

/* Columns of 31 bits are whole numbers of 32. */
static enum tr_part_type column_type(const struct tr_table *t)
{
    return t->width <= UINT64_C(1) << 31 ? TR_PART_I32 : TR_PART_I64;
}

/* Of these rows, an array: lengths, or the entries of lists, whose memory is handed over if they are taken. */
static int list_rows(struct tr_saved *s, struct lists *l, const char *suffix, enum tr_part_kind kind,
                     enum tr_part_type type, void **data)
{
    bool lists = kind == TR_PART_LISTS;
    struct tr_part part = make_part(s, suffix, kind, type, s->table->keys, lists ? 0 : 1);
    uint64_t before;
    TR_TRY(tr_order_runs(&l->order, 0, s->table->keys, &part, &before));
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

static int open_lists(struct tr_saved *s, struct lists *l)
{
    TR_TRY(tr_order_make(s->table, &l->order));
    const struct tr_order *o = &l->order;
    l->rows = o->blocks * o->block;
    if (o->blocks > 0 && (o->number[o->blocks - 1] + 1) * o->block > o->end)
        l->rows -= (o->number[o->blocks - 1] + 1) * o->block - o->end;
    TR_TRY(TR_NEW(&l->place, l->rows));
    TR_TRY(TR_NEW(&l->length, l->rows));
    TR_TRY(TR_NEW(&l->begin, l->rows + 1));
    tr_order_places(o, l->place);
    return TR_OK;
}

/* Lengths, and memory for what is so long. */
static int list_lengths(struct tr_saved *s, struct lists *l)
{
    void *length = l->length;
    TR_TRY(list_rows(s, l, "_lengths", TR_PART_ROWS, TR_PART_I64, &length));
    for (uint64_t i = 0; i < l->rows; i++) l->begin[i + 1] = l->begin[i] + (uint64_t)l->length[i];
    uint64_t entries = l->begin[l->rows];
    TR_TRY(allocate(entries * tr_part_type_size(column_type(s->table)), &l->column));
    return allocate(entries * sizeof(uint32_t), &l->value);
}

static int list_entries(struct tr_saved *s, struct lists *l)
{
    TR_TRY(list_rows(s, l, "_columns", TR_PART_LISTS, column_type(s->table), &l->column));
    return list_rows(s, l, "", TR_PART_LISTS, (enum tr_part_type)s->table->dtype, &l->value);
}

static int take_lists(struct tr_saved *s, struct lists *l)
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

static int fill_lists(struct tr_saved *s, struct lists *l)
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

static int list_sparse(struct tr_saved *s)
{
    struct lists l = {.rows = 0};
    int status = open_lists(s, &l);
    if (status == TR_OK && l.rows > 0) status = s->restores ? fill_lists(s, &l) : take_lists(s, &l);
    free_lists(&l);
    return status;
}

/* ---- tables ---- */

static int take_share(struct tr_saved *s)
{
    struct tr_table *t = s->table;
    TR_TRY(list_arrays(s));
    return t->hash || (t->use && t->use->function.save) ? take_by_server(s) : TR_OK;
}

static int fill_share(struct tr_saved *s)
{
    const struct tr_table *t = s->table;
    int64_t form = s->about[TR_ABOUT_FORM];
    bool known = t->hash ? s->same : form == TR_FORM_DENSE && s->about[TR_ABOUT_PIECES] == t->pieces;
    if (known && t->hash) TR_TRY(fill_order(s));
    TR_TRY(known ? list_arrays(s) : fill_from_all(s));
    return fill_own(s);
}

static int list_share(struct tr_saved *s)
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
    struct tr_saved s = {.snapshot = snapshot, .table = t, .restores = tr_snapshot_restores(snapshot)};
    set_name(&s);
    TR_TRY(list_description(&s));
    sync_windows(t);
    if (t->server >= 0) TR_TRY(list_share(&s));
    TR_TRY(tr_saved_residuals(&s));
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

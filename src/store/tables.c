/* Tables in checkpoints: every server copies its share in the order of the keys, so that any other set of servers can fill
 * its shares from that. See tables_parts.h for what is kept under which name.
 *
 * It is done while no update is under way and nobody reads, by each server for its share alone. What is kept differs from
 * the share only where a function keeps something apart from its values: then it is what settling would make of it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/tables_parts.h"
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

static void set_name(struct tr_kept *k)
{
    const struct tr_table *t = k->table;
    int n = snprintf(k->name, sizeof k->name, "tables/%.48s", t->name);
    if (is_plain(t->tr->tables, t->index)) return;
    for (char *c = k->name + strlen("tables/"); *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(k->name + n, sizeof k->name - (size_t)n, "__%u", t->index);
}

struct tr_part tr_kept_part(const struct tr_kept *k, const char *suffix, enum tr_part_kind kind,
                            enum tr_part_type type)
{
    struct tr_part part = {.kind = kind, .type = type, .total_rows = k->table->keys};
    snprintf(part.name, sizeof part.name, "%s%s", k->name, suffix);
    if (kind != TR_PART_LISTS) part.total_columns = part.columns = k->table->width;
    return part;
}

void tr_kept_rows(struct tr_part *part, struct tr_row_run *run, uint64_t first, uint64_t n)
{
    *run = (struct tr_row_run){first, n};
    part->run = run;
    part->runs = n > 0;
    part->rows = n;
}

/* Fresh memory costs more than the copy that is written to it, unless its pages are large. */
int tr_kept_room(uint64_t n, void **memory)
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

int tr_kept_numbers(struct tr_kept *k, const char *suffix, enum tr_about owners, uint64_t first, uint64_t n,
                    size_t columns, void *values)
{
    struct tr_part part = tr_kept_part(k, suffix, TR_PART_ROWS, TR_PART_I64);
    struct tr_row_run run;
    tr_kept_rows(&part, &run, first, n);
    part.total_rows = (uint64_t)k->about[owners];
    part.total_columns = part.columns = columns;
    part.data = values;
    return tr_snapshot_part(k->snapshot, &part);
}

int tr_kept_list(struct tr_kept *k, const char *suffix, enum tr_part_type type, enum tr_about owners,
                 uint64_t owner, uint64_t n, void *values)
{
    struct tr_part part = tr_kept_part(k, suffix, TR_PART_LISTS, type);
    struct tr_row_run run;
    uint64_t begin[2] = {0, n};
    tr_kept_rows(&part, &run, owner, 1);
    part.total_rows = (uint64_t)k->about[owners];
    part.begin = begin;
    part.data = values;
    return tr_snapshot_part(k->snapshot, &part);
}

/* Some numbers for all, from rank 0. */
static int keep_common(struct tr_kept *k, const char *suffix, enum tr_part_type type, uint64_t n,
                       void *values)
{
    struct tr_part part = tr_kept_part(k, suffix, TR_PART_COMMON, type);
    struct tr_row_run run;
    tr_kept_rows(&part, &run, 0, n);
    part.total_rows = n;
    part.total_columns = part.columns = 1;
    part.data = values;
    if (!tr_snapshot_restores(k->snapshot) && k->table->tr->rank != 0) return TR_OK;
    return tr_snapshot_part(k->snapshot, &part);
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
    about[TR_ABOUT_LEFT] = tr_kept_has_left(t);
    memset(function, 0, FUNCTION_NAME);
    if (t->use) snprintf(function, FUNCTION_NAME, "%s", t->use->function.name);
}

static int check_shape(const struct tr_kept *k, const int64_t *now)
{
    const int64_t *then = k->about;
    bool lists = then[TR_ABOUT_FORM] == TR_FORM_SPARSE;
    if (then[TR_ABOUT_TYPE] == now[TR_ABOUT_TYPE] && then[TR_ABOUT_KEYS] == now[TR_ABOUT_KEYS] &&
        then[TR_ABOUT_WIDTH] == now[TR_ABOUT_WIDTH] && lists == k->table->sparse)
        return TR_OK;
    static const char *const type[] = {"f32", "f64", "i32", "i64"};
    return tr_fail(TR_ERR_DATA,
                   "checkpoint: table %s had %llu keys of %lld %s elements%s, expected %llu of %lld %s%s",
                   k->table->name, (unsigned long long)then[TR_ABOUT_KEYS], (long long)then[TR_ABOUT_WIDTH],
                   type[then[TR_ABOUT_TYPE] & 3], lists ? " in sparse rows" : "",
                   (unsigned long long)now[TR_ABOUT_KEYS], (long long)now[TR_ABOUT_WIDTH],
                   type[now[TR_ABOUT_TYPE] & 3], k->table->sparse ? " in sparse rows" : "");
}

/* Another function may go on with the values, but not with what belongs to the first one. */
static int check_function(const struct tr_kept *k, const char *then, const char *now)
{
    bool keeps = k->about[TR_ABOUT_STATES] > 0 || state_arrays(k->table) > 0 ||
                 (k->table->use && k->table->use->function.load);
    if (!keeps || !strncmp(then, now, FUNCTION_NAME)) return TR_OK;
    return tr_fail(TR_ERR_DATA, "checkpoint: table %s was updated by server function %.47s, now by %s",
                   k->table->name, *then ? then : "add", *now ? now : "add");
}

static int find_table(const struct tr_kept *k)
{
    char name[sizeof((struct tr_part *)0)->name];
    bool has = true;
    snprintf(name, sizeof name, "%s_about", k->name);
    if (tr_snapshot_restores(k->snapshot)) TR_TRY(tr_snapshot_has(k->snapshot, name, &has));
    return has ? TR_OK : tr_fail(TR_ERR_DATA, "checkpoint: there is no table %s in it", k->table->name);
}

/* Rank 0 says it for all. */
static int keep_description(struct tr_kept *k)
{
    int64_t now[TR_ABOUT_NUMBERS];
    char function[FUNCTION_NAME], then[FUNCTION_NAME];
    describe(k->table, now, function);
    memcpy(k->about, now, sizeof now);
    memcpy(then, function, sizeof then);
    TR_TRY(find_table(k));
    TR_TRY(keep_common(k, "_about", TR_PART_I64, TR_ABOUT_NUMBERS, k->about));
    TR_TRY(keep_common(k, "_function", TR_PART_U8, FUNCTION_NAME, then));
    if (!tr_snapshot_restores(k->snapshot)) return TR_OK;
    TR_TRY(check_shape(k, now));
    TR_TRY(check_function(k, then, function));
    k->same = k->snapshot->same_layout;
    static const enum tr_about place[] = {TR_ABOUT_FORM,         TR_ABOUT_PIECES,    TR_ABOUT_SERVERS,
                                          TR_ABOUT_FIRST_SERVER, TR_ABOUT_PARTITION, TR_ABOUT_RANKS};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        k->same = k->same && k->about[place[i]] == now[place[i]];
    return TR_OK;
}

/* ---- values and state ---- */

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

/* One piece of all keys that this server has it of. */
static int take_piece(struct tr_kept *k, const struct tr_lay *l, struct tr_part *part, uint64_t first,
                      uint64_t end, uint64_t before, const char *array)
{
    size_t unit = k->table->unit_bytes;
    int status = tr_kept_room(part->rows * unit, &part->data);
    if (status != TR_OK) {
        free(part->run);
        return status;
    }
    if (l->straight) memcpy(part->data, array + before * unit, part->rows * unit);
    else tr_lay_gather(l, first, end, unit, array, part->data);
    return tr_snapshot_give(k->snapshot, part);
}

static int fill_piece(struct tr_kept *k, const struct tr_lay *l, struct tr_part *part, uint64_t first,
                      uint64_t end, uint64_t before, char *array)
{
    size_t unit = k->table->unit_bytes;
    int status = TR_OK;
    if (l->straight) part->data = array + before * unit;
    else status = tr_kept_room(part->rows * unit, &part->data);
    if (status == TR_OK) status = tr_snapshot_part(k->snapshot, part);
    if (status == TR_OK && !l->straight) tr_lay_scatter(l, first, end, unit, part->data, array);
    if (!l->straight) free(part->data);
    free(part->run);
    return status;
}

static int keep_array(struct tr_kept *k, const struct tr_lay *l, const char *suffix, char *array)
{
    const struct tr_table *t = k->table;
    for (uint32_t piece = 0; piece < t->pieces; piece++) {
        struct tr_part part = tr_kept_part(k, suffix, TR_PART_ROWS, (enum tr_part_type)t->dtype);
        uint64_t first = piece * t->keys, end = first + t->keys, before;
        part.columns = t->unit_width;
        part.first_column = piece * t->unit_width;
        TR_TRY(tr_lay_runs(l, first, end, &part, &before));
        if (part.rows == 0) free(part.run);
        else if (tr_snapshot_restores(k->snapshot))
            TR_TRY(fill_piece(k, l, &part, first, end, before, array));
        else TR_TRY(take_piece(k, l, &part, first, end, before, array));
    }
    return TR_OK;
}

/* The values as they are read when everything that a function keeps apart counts. */
static int take_settled(struct tr_kept *k, const struct tr_lay *l)
{
    const struct tr_use *use = k->table->use;
    char *settled;
    TR_TRY(tr_kept_room(use->share.units * k->table->unit_bytes, (void **)&settled));
    int status = use->function.read(&use->share, INT64_MAX, use->share.units, NULL, settled);
    if (status == TR_OK) status = keep_array(k, l, "", settled);
    free(settled);
    return status;
}

/* Where the rows that this server has are known. */
static int keep_arrays(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    struct tr_lay lay;
    TR_TRY(tr_lay_make(t, &lay));
    bool apart = !tr_snapshot_restores(k->snapshot) && t->use && t->use->function.read;
    int status = apart ? take_settled(k, &lay) : TR_OK;
    for (size_t i = apart; status == TR_OK && i <= state_arrays(t); i++)
        status = keep_array(k, &lay, array_name(i), array_of(t, i));
    tr_lay_free(&lay);
    return status;
}

/* ---- from any form of storage ---- */

struct filling {
    struct tr_kept *k;
    size_t array;
    struct tr_walker walker;
};

static bool is_of_interest(void *who, const struct tr_row_run *run)
{
    struct filling *f = who;
    const struct tr_table *t = f->k->table;
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
    struct tr_table *t = f->k->table;
    size_t size = tr_dtype_size(t->dtype);
    struct tr_location at = tr_walk_to(&f->walker, piece * t->keys + key);
    if (at.server != (uint32_t)t->server) return TR_OK;
    if (t->map) {
        if (f->k->about[TR_ABOUT_FORM] != TR_FORM_HASH && tr_is_zero(values, elements * size)) return TR_OK;
        TR_TRY(tr_hashmap_add_all(t->map, &key, 1, &at.position));
    }
    memcpy(array_of(t, f->array) + at.position * t->unit_bytes + (column - piece * t->unit_width) * size,
           values, elements * size);
    return TR_OK;
}

static int fill_row(struct filling *f, tr_key key, const struct tr_part *p, const char *values)
{
    const struct tr_table *t = f->k->table;
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
    size_t row_bytes = p->columns * tr_dtype_size(f->k->table->dtype);
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

/* Where they are not, or lay there in another form: everything is gone through. */
static int fill_from_all(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    TR_TRY(clear(t));
    for (size_t i = 0; i <= state_arrays(t); i++) {
        struct filling f = {.k = k, .array = i, .walker = {.partition = &t->partition}};
        char name[sizeof((struct tr_part *)0)->name];
        snprintf(name, sizeof name, "%s%s", k->name, array_name(i));
        TR_TRY(tr_snapshot_each(k->snapshot, name, is_of_interest, fill_rows, &f));
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
static int keep_by_server(struct tr_kept *k, uint64_t first, uint64_t n, struct by_server *values)
{
    return tr_kept_numbers(k, "_servers", TR_ABOUT_SERVERS, first, n, BY_SERVER, values);
}

/* A list of n elements of one server. */
static int keep_list(struct tr_kept *k, const char *suffix, enum tr_part_type type, uint64_t server,
                     uint64_t n, void *values)
{
    return tr_kept_list(k, suffix, type, TR_ABOUT_SERVERS, server, n, values);
}

static int take_by_server(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    const struct tr_use *use = t->use;
    struct by_server mine = {.keys = t->map ? t->map->count : 0};
    uint64_t server = (uint64_t)t->server;
    void *saved = NULL;
    size_t bytes = 0;
    if (use && use->function.save) TR_TRY(use->function.save(&use->share, &saved, &bytes));
    mine.saved = (int64_t)(saved ? bytes : 0);
    int status = keep_by_server(k, server, 1, &mine);
    if (status == TR_OK && mine.saved > 0)
        status = keep_list(k, "_own", TR_PART_U8, server, (uint64_t)mine.saved, saved);
    if (status == TR_OK && mine.keys > 0)
        status = keep_list(k, "_order", TR_PART_I64, server, (uint64_t)mine.keys, t->map->key.at);
    free(saved);
    return status;
}

static int fill_own_of(struct tr_kept *k, int server, const struct by_server *there)
{
    struct tr_use *use = k->table->use;
    char *saved;
    TR_TRY(TR_NEW(&saved, (size_t)there->saved));
    int status = TR_OK;
    if (there->saved > 0)
        status = keep_list(k, "_own", TR_PART_U8, (uint64_t)server, (uint64_t)there->saved, saved);
    if (status == TR_OK)
        status = use->function.load(&use->share, k->same, server, (int)k->about[TR_ABOUT_SERVERS],
                                    there->saved > 0 ? saved : NULL, (size_t)there->saved);
    free(saved);
    return status;
}

static int fill_own(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    size_t servers = (size_t)k->about[TR_ABOUT_SERVERS];
    struct by_server *there;
    if (!t->use || !t->use->function.load) return TR_OK;
    TR_TRY(TR_NEW(&there, servers));
    int first = k->same ? t->server : 0, n = k->same ? 1 : (int)servers;
    int status = keep_by_server(k, (uint64_t)first, (uint64_t)n, there);
    for (int i = 0; status == TR_OK && i < n; i++) status = fill_own_of(k, first + i, &there[i]);
    free(there);
    return status;
}

/* Hash storage on the server that had it: its keys come in their order, as what goes through a share one by one might
 * round otherwise. */
static int fill_order(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    struct by_server there;
    tr_key *key;
    uint32_t *slot;
    TR_TRY(clear(t));
    TR_TRY(keep_by_server(k, (uint64_t)t->server, 1, &there));
    size_t n = (size_t)there.keys;
    if (n == 0) return TR_OK;
    TR_TRY(TR_NEW(&key, n));
    int status = TR_NEW(&slot, n);
    if (status == TR_OK) status = keep_list(k, "_order", TR_PART_I64, (uint64_t)t->server, n, key);
    if (status == TR_OK) status = tr_hashmap_add_all(t->map, key, n, slot);
    tr_use_follow(t);
    free(key);
    free(slot);
    return status;
}

/* ---- sparse rows ---- */

/* Of a share: its rows in the order of their numbers, and what they hold, side by side. */
struct lists {
    struct tr_lay lay;
    uint64_t rows;
    uint32_t *place;
    int64_t *length;
    uint64_t *begin;
    void *column, *value;
};

static void free_lists(struct lists *l)
{
    tr_lay_free(&l->lay);
    free(l->place);
    free(l->length);
    free(l->begin);
    free(l->column);
    free(l->value);
}

/* Columns of 31 bits are whole numbers of 32. */
static enum tr_part_type column_type(const struct tr_table *t)
{
    return t->width <= UINT64_C(1) << 31 ? TR_PART_I32 : TR_PART_I64;
}

/* Of these rows, an array: lengths, or with begin the entries. Memory of the array is handed over if it is taken. */
static int keep_lists_part(struct tr_kept *k, struct lists *l, const char *suffix, enum tr_part_kind kind,
                           enum tr_part_type type, void **data)
{
    struct tr_part part = tr_kept_part(k, suffix, kind, type);
    uint64_t before;
    bool lists = kind == TR_PART_LISTS;
    if (!lists) part.total_columns = part.columns = 1;
    TR_TRY(tr_lay_runs(&l->lay, 0, k->table->keys, &part, &before));
    part.data = *data;
    if (tr_snapshot_restores(k->snapshot)) {
        part.begin = lists ? l->begin : NULL;
        int status = tr_snapshot_part(k->snapshot, &part);
        free(part.run);
        return status;
    }
    *data = NULL;
    int status = lists ? TR_NEW(&part.begin, l->rows + 1) : TR_OK;
    if (status != TR_OK) {
        tr_part_free(&part);
        return status;
    }
    if (lists) memcpy(part.begin, l->begin, (l->rows + 1) * sizeof *l->begin);
    return tr_snapshot_give(k->snapshot, &part);
}

static int open_lists(struct tr_kept *k, struct lists *l)
{
    TR_TRY(tr_lay_make(k->table, &l->lay));
    l->rows = l->lay.blocks * l->lay.block;
    if (l->lay.blocks > 0 && l->lay.number[l->lay.blocks - 1] * l->lay.block + l->lay.block > l->lay.end)
        l->rows -= l->lay.number[l->lay.blocks - 1] * l->lay.block + l->lay.block - l->lay.end;
    TR_TRY(TR_NEW(&l->place, l->rows));
    TR_TRY(TR_NEW(&l->length, l->rows));
    TR_TRY(TR_NEW(&l->begin, l->rows + 1));
    tr_lay_places(&l->lay, l->place);
    return TR_OK;
}

/* When lengths are known. */
static int make_room(struct tr_kept *k, struct lists *l)
{
    for (uint64_t i = 0; i < l->rows; i++) l->begin[i + 1] = l->begin[i] + (uint64_t)l->length[i];
    uint64_t entries = l->begin[l->rows];
    TR_TRY(tr_kept_room(entries * tr_part_type_size(column_type(k->table)), &l->column));
    return tr_kept_room(entries * sizeof(uint32_t), &l->value);
}

static int keep_entries(struct tr_kept *k, struct lists *l)
{
    TR_TRY(keep_lists_part(k, l, "_columns", TR_PART_LISTS, column_type(k->table), &l->column));
    return keep_lists_part(k, l, "", TR_PART_LISTS, (enum tr_part_type)k->table->dtype, &l->value);
}

static int take_lists(struct tr_kept *k, struct lists *l)
{
    const struct tr_sparse *s = k->table->sparse_share;
    for (uint64_t i = 0; i < l->rows; i++) l->length[i] = s->row[l->place[i]].n;
    TR_TRY(make_room(k, l));
    for (uint64_t i = 0; i < l->rows; i++) {
        const struct tr_sparse_row *row = &s->row[l->place[i]];
        if (row->n == 0) continue;
        memcpy((uint32_t *)l->value + l->begin[i], tr_sparse_values(row), row->n * sizeof(uint32_t));
        if (column_type(k->table) == TR_PART_I32)
            memcpy((uint32_t *)l->column + l->begin[i], row->column, row->n * sizeof(uint32_t));
        else
            for (uint32_t e = 0; e < row->n; e++) ((int64_t *)l->column)[l->begin[i] + e] = row->column[e];
    }
    void *length = l->length;
    int status = keep_lists_part(k, l, "_lengths", TR_PART_ROWS, TR_PART_I64, &length);
    l->length = length;
    return status == TR_OK ? keep_entries(k, l) : status;
}

static int fill_lists(struct tr_kept *k, struct lists *l)
{
    struct tr_sparse *s = k->table->sparse_share;
    void *length = l->length;
    TR_TRY(keep_lists_part(k, l, "_lengths", TR_PART_ROWS, TR_PART_I64, &length));
    TR_TRY(make_room(k, l));
    TR_TRY(keep_entries(k, l));
    uint32_t *column = l->column; /* longer ones are made shorter in their own memory */
    for (uint64_t i = 0; column_type(k->table) == TR_PART_I64 && i < l->begin[l->rows]; i++) {
        int64_t wide;
        memcpy(&wide, (char *)l->column + i * sizeof wide, sizeof wide);
        uint32_t narrow = (uint32_t)wide;
        memcpy((char *)l->column + i * sizeof narrow, &narrow, sizeof narrow);
    }
    for (uint64_t i = 0; i < l->rows; i++)
        TR_TRY(tr_sparse_set(s, l->place[i], (uint32_t)l->length[i], column + l->begin[i],
                             (uint32_t *)l->value + l->begin[i]));
    return TR_OK;
}

static int keep_sparse(struct tr_kept *k)
{
    struct lists l = {.rows = 0};
    int status = open_lists(k, &l);
    if (status == TR_OK && l.rows > 0)
        status = tr_snapshot_restores(k->snapshot) ? fill_lists(k, &l) : take_lists(k, &l);
    free_lists(&l);
    return status;
}

/* ---- tables ---- */

static int take_share(struct tr_kept *k)
{
    struct tr_table *t = k->table;
    TR_TRY(keep_arrays(k));
    return t->hash || (t->use && t->use->function.save) ? take_by_server(k) : TR_OK;
}

static int fill_share(struct tr_kept *k)
{
    const struct tr_table *t = k->table;
    int64_t form = k->about[TR_ABOUT_FORM];
    bool known = t->hash ? k->same : form == TR_FORM_DENSE && k->about[TR_ABOUT_PIECES] == t->pieces;
    if (known && t->hash) TR_TRY(fill_order(k));
    TR_TRY(known ? keep_arrays(k) : fill_from_all(k));
    return fill_own(k);
}

static int keep_share(struct tr_kept *k)
{
    if (k->table->sparse) return keep_sparse(k);
    return tr_snapshot_restores(k->snapshot) ? fill_share(k) : take_share(k);
}

/* What others have put there directly, and what they are to find there. */
static void sync_windows(const struct tr_table *t)
{
    if (t->window != MPI_WIN_NULL) MPI_Win_sync(t->window);
    if (t->memory.window != MPI_WIN_NULL) MPI_Win_sync(t->memory.window);
}

static int keep_table(tr_snapshot *snapshot, struct tr_table *t)
{
    struct tr_kept k = {.snapshot = snapshot, .table = t};
    set_name(&k);
    TR_TRY(keep_description(&k));
    sync_windows(t);
    if (t->server >= 0) TR_TRY(keep_share(&k));
    TR_TRY(tr_kept_left(&k));
    sync_windows(t);
    if (tr_snapshot_restores(snapshot)) tr_rows_pushed(t); /* rows that the node has fetched before are old */
    return TR_OK;
}

int tr_snapshot_tables(tr_context *tr, tr_snapshot *snapshot)
{
    for (size_t i = 0; i < tr->tables->count; i++)
        if (!tr->tables->table[i]->left_out) TR_TRY(keep_table(snapshot, tr->tables->table[i]));
    if (tr_snapshot_restores(snapshot)) tr_tables_count_from(tr, snapshot->manifest->facts.clock);
    return TR_OK;
}

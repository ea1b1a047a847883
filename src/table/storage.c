#include "table/storage.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "table/codec.h"
#include "table/table.h"

/* ======== dense shares ======== */

enum { LINE = 64, LOCK_UNITS = 1024 }; /* units under one lock */

/* ---- memory ---- */

static size_t share_values_bytes(const struct tr_table *t, uint64_t units)
{
    return (units * t->unit_bytes + LINE - 1) / LINE * LINE;
}

double tr_initial_element(enum tr_initial initial, double scale, uint64_t seed, tr_key key, uint64_t column)
{
    uint64_t mixed = tr_mix(tr_mix(tr_mix(seed) ^ key) ^ column);
    double u = (double)(mixed >> 11) * 0x1p-53, v = (double)(tr_mix(mixed) >> 11) * 0x1p-53;
    switch (initial) {
    case TR_INITIAL_ZERO: return 0;
    case TR_INITIAL_CONSTANT: return scale;
    case TR_INITIAL_UNIFORM: return scale * (2 * u - 1);
    case TR_INITIAL_NORMAL: return scale * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
    }
    return 0;
}

/* Opens a window over the shares if other nodes access them. */
static int share_open_window(struct tr_table *t)
{
    tr_context *tr = t->tr;
    bool far = tr->layout.nodes > 1 || t->route == TR_ROUTE_GET;
    if (!far || t->hash || t->sparse) return TR_OK;
    void *own = t->server >= 0 ? t->share[t->server] : NULL;
    return tr_window_open(tr, own, own ? share_values_bytes(t, t->share_units) : 0, 1,
                          "all ranks to open a table", &t->window);
}

int tr_share_open(struct tr_table *t, const tr_table_options *options)
{
    tr_context *tr = t->tr;
    size_t bytes = t->server < 0 ? 0
                                 : share_values_bytes(t, t->share_units) + sizeof **t->line +
                                       (t->share_units / LOCK_UNITS + 1) * sizeof(atomic_uint);
    int status = tr_shm_open(tr, tr->node, bytes, false, &t->memory);
    if (status == TR_OK &&
        bytes > 0) /* they are zeros already, but the first touch places the pages near this rank */
        memset(t->memory.part[tr->node_rank].at, 0, bytes);
    TR_TRY(tr_agree(tr, status));
    for (uint32_t server = 0; server < t->partition.servers; server++) {
        int rank = tr_table_server_rank(t, server);
        if (!tr_same_node(tr, rank)) continue;
        uint64_t units = t->sparse ? 0 : tr_partition_share(&t->partition, server);
        char *share = t->memory.part[tr_node_rank(tr, rank)].at;
        t->line[server] = (struct tr_share_line *)(void *)(share + share_values_bytes(t, units));
        if (units > 0) t->share[server] = share;
    }
    if (options->initial == TR_INITIAL_ZERO) return share_open_window(t);
    if (t->share_units > 0) {
        /* initial values of this rank's share */
        void *share = t->share[t->server];
        for (uint64_t position = 0; position < t->share_units; position++) {
            uint64_t unit = tr_partition_unit(&t->partition, (uint32_t)t->server, (uint32_t)position);
            if (unit == UINT64_MAX) continue; /* padding stays 0 */
            uint64_t key = unit % t->keys, column = unit / t->keys * t->unit_width;
            for (size_t i = 0, at = position * t->unit_width; i < t->unit_width; i++, at++) {
                double x =
                    tr_initial_element(options->initial, options->scale, options->seed, key, column + i);
                switch (t->dtype) {
                case TR_F32: ((float *)share)[at] = (float)x; break;
                case TR_F64: ((double *)share)[at] = x; break;
                case TR_I32: ((int32_t *)share)[at] = (int32_t)lrint(x); break;
                case TR_I64: ((int64_t *)share)[at] = llrint(x); break;
                }
            }
        }
    }
    tr_meet(tr, tr->node,
            "the ranks of this node to fill a table"); /* nobody reads before the values are written */
    return share_open_window(t);
}

void tr_share_close(struct tr_table *t)
{
    tr_window_close(t->tr, t->tr->world, "all ranks to close a table", &t->window);
    tr_shm_close(&t->memory);
}

/* ---- adding under locks ---- */

static atomic_uint *share_lock(const struct tr_table *t, uint32_t server, uint32_t position)
{
    atomic_uint *locks = (atomic_uint *)(void *)(t->line[server] + 1), *its = &locks[position / LOCK_UNITS];
    while (atomic_exchange_explicit(its, 1, memory_order_acquire)) sched_yield();
    return its;
}

static void share_unlock(atomic_uint *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

/* The end of the entries from `first` on that lie under one lock. */
static uint32_t share_end_of_lock(const uint32_t *position, uint32_t n, uint32_t first)
{
    uint32_t chunk = position[first] / LOCK_UNITS, end = first + 1;
    while (end < n && position[end] / LOCK_UNITS == chunk) end++;
    return end;
}

/* Adds n contiguous units from position `first` on. */
static void share_add_run(struct tr_table *t, uint32_t server, uint32_t first, uint32_t n, const char *values)
{
    for (uint32_t i = 0, length; i < n; i += length) {
        uint32_t position = first + i, left = LOCK_UNITS - position % LOCK_UNITS;
        length = n - i < left ? n - i : left;
        atomic_uint *its = share_lock(t, server, position);
        tr_add_elements(t->dtype, length * t->unit_width, values + i * t->unit_bytes,
                        (char *)t->share[server] + position * t->unit_bytes);
        share_unlock(its);
    }
}

void tr_share_add(struct tr_table *t, const uint32_t *position, uint32_t first, uint32_t n,
                  const char *values)
{
    uint32_t server = (uint32_t)t->server;
    if (!position) share_add_run(t, server, first, n, values);
    for (uint32_t i = 0, end; position && i < n; i = end) {
        end = share_end_of_lock(position, n, i);
        atomic_uint *its = share_lock(t, server, position[i]);
        tr_add_units(t->dtype, NULL, position + i, end - i, t->unit_width, values + i * t->unit_bytes,
                     t->share[server]);
        share_unlock(its);
    }
}

void tr_share_add_view(struct tr_table *t, uint32_t server, const struct tr_segment *s, const void *view)
{
    for (uint32_t r = 0; r < s->runs; r++)
        share_add_run(t, server, s->run[r].position, s->run[r].length,
                      (const char *)view + s->run[r].local * t->unit_bytes);
    for (uint32_t i = 0, end; s->runs == 0 && i < s->n; i = end) {
        end = share_end_of_lock(s->position, s->n, i);
        atomic_uint *its = share_lock(t, server, s->position[i]);
        tr_add_units(t->dtype, s->local + i, s->position + i, end - i, t->unit_width, view, t->share[server]);
        share_unlock(its);
    }
}

void tr_share_copy(const struct tr_table *t, uint32_t server, uint32_t position, void *to)
{
    atomic_uint *its = share_lock(t, server, position);
    memcpy(to, (const char *)t->share[server] + position * t->unit_bytes, t->unit_bytes);
    share_unlock(its);
}

/* ======== sparse rows ======== */

/* ---- rows ---- */

int tr_sparse_open(enum tr_dtype dtype, uint64_t rows, struct tr_sparse **sparse)
{
    struct tr_sparse *s;
    TR_TRY(TR_NEW(&s, 1));
    s->real = dtype == TR_F32;
    s->rows = rows;
    int status = TR_NEW(&s->row, rows);
    if (status == TR_OK) *sparse = s;
    else free(s);
    return status;
}

void tr_sparse_close(struct tr_sparse **sparse)
{
    struct tr_sparse *s = *sparse;
    if (!s) return;
    for (uint64_t i = 0; i < s->rows; i++) free(s->row[i].column);
    free(s->row);
    free(s->column);
    free(s->value);
    free(s);
    *sparse = NULL;
}

uint64_t tr_sparse_bytes(const struct tr_sparse *s)
{
    return s->rows * sizeof *s->row + s->entry_bytes;
}

/* Sets the capacity of a row, which must not be below its number of entries. */
static int sparse_set_capacity(struct tr_sparse *s, struct tr_sparse_row *row, uint32_t room)
{
    enum { ENTRY = 2 * sizeof(uint32_t) };
    uint32_t *column = malloc((size_t)room * ENTRY);
    if (!column) return tr_fail(TR_ERR_SYSTEM, "out of memory: a sparse row of %u entries", room);
    if (row->n > 0) {
        memcpy(column, row->column, row->n * sizeof *column);
        memcpy(column + room, tr_sparse_values(row), row->n * sizeof *column);
    }
    free(row->column);
    s->entry_bytes += (uint64_t)room * ENTRY;
    s->entry_bytes -= (uint64_t)row->room * ENTRY;
    row->column = column;
    row->room = room;
    return TR_OK;
}

static void sparse_clear_row(struct tr_sparse *s, struct tr_sparse_row *row)
{
    s->entry_bytes -= (uint64_t)row->room * 2 * sizeof *row->column;
    free(row->column);
    *row = (struct tr_sparse_row){.n = 0};
}

static uint32_t sparse_sum(bool real, uint32_t a, uint32_t b)
{
    if (!real) return a + b;
    float x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x += y;
    memcpy(&a, &x, sizeof a);
    return a;
}

/* -0 is a zero, too. */
static bool sparse_is_zero(bool real, uint32_t bits)
{
    return real ? bits << 1 == 0 : bits == 0;
}

/* Merges from the end, so that no entry is overwritten before it is read. False: some entries are zeros now. */
static bool sparse_merge(bool real, struct tr_sparse_row *row, uint32_t all, uint32_t n,
                         const uint32_t *column, const uint32_t *value)
{
    uint32_t *values = tr_sparse_values(row), i = row->n, k = n;
    bool whole = true;
    for (uint32_t to = all; k > 0;) { /* the remaining entries of the row are in their place */
        to--;
        if (i > 0 && row->column[i - 1] > column[k - 1]) {
            i--;
            row->column[to] = row->column[i];
            values[to] = values[i];
            continue;
        }
        uint32_t sum = value[--k];
        if (i > 0 && row->column[i - 1] == column[k]) sum = sparse_sum(real, values[--i], sum);
        row->column[to] = column[k];
        values[to] = sum;
        whole = whole && !sparse_is_zero(real, sum);
    }
    row->n = all;
    return whole;
}

static void sparse_drop_zeros(bool real, struct tr_sparse_row *row)
{
    uint32_t *values = tr_sparse_values(row), n = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        row->column[n] = row->column[i];
        values[n] = values[i];
        n += !sparse_is_zero(real, values[i]);
    }
    row->n = n;
}

int tr_sparse_add(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    enum { SMALL = 8 };
    struct tr_sparse_row *row = &s->row[number];
    if (n == 0) return TR_OK;
    /* the number of columns in the union of both lists */
    size_t both = 0;
    for (uint32_t i = 0, k = 0; i < row->n && k < n;) {
        uint32_t a = row->column[i], b = column[k];
        both += a == b;
        i += a <= b;
        k += b <= a;
    }
    size_t all = (size_t)row->n + n - both;
    if (all > UINT32_MAX - UINT32_MAX / 4)
        return tr_fail(TR_ERR_SYSTEM, "a sparse row of %zu entries is too long", all);
    uint32_t wanted = (uint32_t)all;
    if (wanted > row->room) TR_TRY(sparse_set_capacity(s, row, wanted + (row->room > 0 ? wanted / 4 : 0)));
    if (!sparse_merge(s->real, row, wanted, n, column, value)) sparse_drop_zeros(s->real, row);
    if (row->n == 0) {
        sparse_clear_row(s, row);
    } else if (row->room > SMALL && row->n < row->room / 4) {
        (void)sparse_set_capacity(s, row, row->n + row->n / 4); /* without memory it stays as long as it is */
    }
    return TR_OK;
}

int tr_sparse_set(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    sparse_clear_row(s, &s->row[number]);
    return tr_sparse_add(s, number, n, column, value);
}

/* ---- rows in messages ---- */

static inline bool sparse_read_number(const unsigned char **at, const unsigned char *end, uint32_t *number)
{
    uint64_t more;
    if (!tr_take_gap(at, end, &more) || more > UINT32_MAX) return false;
    *number = (uint32_t)more;
    return true;
}

/* Whole numbers with their sign in the lowest bit, and back. */
static inline uint32_t zigzag(uint32_t bits)
{
    return bits << 1 ^ (0u - (bits >> 31));
}
static inline uint32_t unzigzag(uint32_t bits)
{
    return bits >> 1 ^ (0u - (bits & 1));
}

uint32_t tr_sparse_write(bool real, uint32_t n, const uint32_t *column, const void *value, unsigned char *out,
                         size_t room, size_t *bytes)
{
    const uint32_t *values = value;
    unsigned char *at = out + TR_SPARSE_HEAD, *last = out + room - TR_SPARSE_ENTRY_MOST;
    uint32_t i = 0, before = 0;
    for (; i < n && at <= last; i++) {
        at = tr_put_gap(column[i] - before, at);
        before = column[i];
        if (real) {
            memcpy(at, &values[i], sizeof *values);
            at += sizeof *values;
        } else {
            at = tr_put_gap(zigzag(values[i]), at);
        }
    }
    memcpy(out, &i, sizeof i);
    *bytes = (size_t)(at - out);
    return i;
}

/* An entry takes two bytes at least. */
bool tr_sparse_next(const unsigned char *at, const unsigned char *end, uint32_t *n)
{
    if (end - at < TR_SPARSE_HEAD) return false;
    memcpy(n, at, sizeof *n);
    return *n <= (size_t)(end - at - TR_SPARSE_HEAD) / 2;
}

bool tr_sparse_read(bool real, uint64_t width, const unsigned char **at, const unsigned char *end,
                    uint32_t *column, void *value)
{
    uint32_t n, gap, bits, *values = value;
    uint64_t last = 0;
    if (!tr_sparse_next(*at, end, &n)) return false;
    *at += TR_SPARSE_HEAD;
    for (uint32_t i = 0; i < n; i++) {
        if (!sparse_read_number(at, end, &gap) || (i > 0 && gap == 0)) return false;
        last += gap;
        if (last >= width) return false;
        column[i] = (uint32_t)last;
        if (real) {
            if (end - *at < (ptrdiff_t)sizeof *values) return false;
            memcpy(&values[i], *at, sizeof *values);
            *at += sizeof *values;
        } else {
            if (!sparse_read_number(at, end, &bits)) return false;
            values[i] = unzigzag(bits);
        }
    }
    return true;
}

/* ---- requests ---- */

int tr_sparse_answer(const struct tr_sparse *s, uint32_t n, const void *requests, unsigned char *out,
                     size_t room, struct tr_sparse_head *head)
{
    *head = (struct tr_sparse_head){.rows = 0};
    for (; head->rows < n && room - head->bytes >= TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST; head->rows++) {
        struct tr_sparse_request request;
        memcpy(&request, (const char *)requests + head->rows * sizeof request, sizeof request);
        if (request.position >= s->rows)
            return tr_fail(TR_ERR_PEER, "row %u is asked for, but the share has %llu", request.position,
                           (unsigned long long)s->rows);
        const struct tr_sparse_row *row = &s->row[request.position];
        uint32_t first = request.from > 0 ? (uint32_t)tr_place_u32(row->column, row->n, request.from) : 0;
        const uint32_t *values = row->n > 0 ? tr_sparse_values(row) : NULL;
        size_t bytes = 0;
        uint32_t written = tr_sparse_write(s->real, row->n - first, row->n > 0 ? row->column + first : NULL,
                                           row->n > 0 ? values + first : NULL, out + head->bytes,
                                           room - head->bytes, &bytes);
        bool whole = first + written == row->n;
        if (!whole && head->rows > 0) break; /* it will come in one piece if it can */
        head->bytes += (uint32_t)bytes;
        if (whole) continue;
        head->cut = 1;
        head->from = row->column[first + written];
        break;
    }
    return TR_OK;
}

int tr_sparse_take(struct tr_sparse *s, uint64_t width, const void *update, size_t bytes)
{
    const unsigned char *at = update, *end = at + bytes;
    while (at < end) {
        uint32_t position = 0, n = 0;
        bool good = end - at >= (ptrdiff_t)sizeof position;
        if (good) memcpy(&position, at, sizeof position);
        at += good ? sizeof position : 0;
        good = good && position < s->rows && tr_sparse_next(at, end, &n);
        if (good) {
            TR_TRY(TR_GROW(&s->column, &s->column_room, n));
            TR_TRY(TR_GROW(&s->value, &s->value_room, n));
            good = tr_sparse_read(s->real, width, &at, end, s->column, s->value);
        }
        if (!good) return tr_fail(TR_ERR_PEER, "an update of sparse rows is malformed");
        TR_TRY(tr_sparse_add(s, position, n, s->column, s->value));
    }
    return TR_OK;
}

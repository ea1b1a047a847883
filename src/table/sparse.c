#include "table/sparse.h"

#include <stdlib.h>
#include <string.h>

#include "table/encoding.h"

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

/* Gives a row room for so many entries, no fewer than it has. */
static int set_room(struct tr_sparse *s, struct tr_sparse_row *row, uint32_t room)
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

static void empty(struct tr_sparse *s, struct tr_sparse_row *row)
{
    s->entry_bytes -= (uint64_t)row->room * 2 * sizeof *row->column;
    free(row->column);
    *row = (struct tr_sparse_row){.n = 0};
}

/* How many columns two ascending lists have in all. */
static size_t count_union(const struct tr_sparse_row *row, uint32_t n, const uint32_t *column)
{
    size_t both = 0;
    for (uint32_t i = 0, k = 0; i < row->n && k < n;) {
        uint32_t a = row->column[i], b = column[k];
        both += a == b;
        i += a <= b;
        k += b <= a;
    }
    return (size_t)row->n + n - both;
}

static uint32_t sum_of(bool real, uint32_t a, uint32_t b)
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
static bool is_zero(bool real, uint32_t bits)
{
    return real ? bits << 1 == 0 : bits == 0;
}

/* Merges from the end, so that nothing is overwritten that is still needed. False if some entries are zeros now. */
static bool merge_backwards(bool real, struct tr_sparse_row *row, uint32_t all, uint32_t n,
                            const uint32_t *column, const uint32_t *value)
{
    uint32_t *values = tr_sparse_values(row), i = row->n, k = n;
    bool whole = true;
    for (uint32_t to = all; k > 0;) { /* what is left of the row then is in its place */
        to--;
        if (i > 0 && row->column[i - 1] > column[k - 1]) {
            i--;
            row->column[to] = row->column[i];
            values[to] = values[i];
            continue;
        }
        uint32_t sum = value[--k];
        if (i > 0 && row->column[i - 1] == column[k]) sum = sum_of(real, values[--i], sum);
        row->column[to] = column[k];
        values[to] = sum;
        whole = whole && !is_zero(real, sum);
    }
    row->n = all;
    return whole;
}

static void leave_zeros_out(bool real, struct tr_sparse_row *row)
{
    uint32_t *values = tr_sparse_values(row), n = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        row->column[n] = row->column[i];
        values[n] = values[i];
        n += !is_zero(real, values[i]);
    }
    row->n = n;
}

int tr_sparse_add(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    enum { SMALL = 8 };
    struct tr_sparse_row *row = &s->row[number];
    if (n == 0) return TR_OK;
    size_t all = count_union(row, n, column);
    if (all > UINT32_MAX - UINT32_MAX / 4)
        return tr_fail(TR_ERR_SYSTEM, "a sparse row of %zu entries is too long", all);
    uint32_t wanted = (uint32_t)all;
    if (wanted > row->room) TR_TRY(set_room(s, row, wanted + (row->room > 0 ? wanted / 4 : 0)));
    if (!merge_backwards(s->real, row, wanted, n, column, value)) leave_zeros_out(s->real, row);
    if (row->n == 0) {
        empty(s, row);
    } else if (row->room > SMALL && row->n < row->room / 4) {
        (void)set_room(s, row, row->n + row->n / 4); /* without memory it stays as long as it is */
    }
    return TR_OK;
}

int tr_sparse_set(struct tr_sparse *s, uint64_t number, uint32_t n, const uint32_t *column, const void *value)
{
    empty(s, &s->row[number]);
    return tr_sparse_add(s, number, n, column, value);
}

/* ---- rows in messages ---- */

static inline bool take(const unsigned char **at, const unsigned char *end, uint32_t *number)
{
    uint64_t more;
    if (!tr_take_gap(at, end, &more) || more > UINT32_MAX) return false;
    *number = (uint32_t)more;
    return true;
}

/* Whole numbers with their sign in the lowest bit, and back. */
static inline uint32_t folded(uint32_t bits)
{
    return bits << 1 ^ (0u - (bits >> 31));
}
static inline uint32_t unfolded(uint32_t bits)
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
            at = tr_put_gap(folded(values[i]), at);
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
        if (!take(at, end, &gap) || (i > 0 && gap == 0)) return false;
        last += gap;
        if (last >= width) return false;
        column[i] = (uint32_t)last;
        if (real) {
            if (end - *at < (ptrdiff_t)sizeof *values) return false;
            memcpy(&values[i], *at, sizeof *values);
            *at += sizeof *values;
        } else {
            if (!take(at, end, &bits)) return false;
            values[i] = unfolded(bits);
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

/* Shares of sparse rows against plain arrays, and rows as they travel. */
#include "unit.h"

#include "table/storage.h"

enum { ROWS = 7, WIDTH = 300 };

static int32_t plain[ROWS][WIDTH];

static uint32_t bits_of(bool real, int32_t number)
{
    uint32_t bits = (uint32_t)number;
    float f = (float)number;
    if (real) memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void check_row(const struct tr_sparse *s, uint64_t r)
{
    const struct tr_sparse_row *row = &s->row[r];
    uint32_t i = 0;
    for (uint32_t c = 0; c < WIDTH; c++) {
        if (plain[r][c] == 0) continue;
        ck_assert_msg(i < row->n && row->column[i] == c, "row %d lacks column %u", (int)r, c);
        ck_assert_uint_eq(((const uint32_t *)tr_sparse_values(row))[i], bits_of(s->real, plain[r][c]));
        i++;
    }
    ck_assert_uint_eq(i, row->n);
}

static uint64_t bytes_of(const struct tr_sparse *s)
{
    uint64_t bytes = ROWS * sizeof *s->row;
    for (int r = 0; r < ROWS; r++) bytes += 8 * (uint64_t)s->row[r].room;
    return bytes;
}

/* Some columns of a row, ascending, with values that soon cancel. */
static uint32_t draw(struct tr_rng *rng, bool real, uint64_t r, uint32_t *column, uint32_t *value)
{
    uint64_t one_in = 1 + tr_rng_below(rng, 40);
    uint32_t n = 0;
    for (uint32_t c = 0; c < WIDTH; c++) {
        if (tr_rng_below(rng, one_in)) continue;
        int32_t delta = tr_rng_below(rng, 3) ? -plain[r][c] : (int32_t)tr_rng_below(rng, 5) - 2;
        plain[r][c] += delta;
        column[n] = c;
        value[n++] = bits_of(real, delta);
    }
    return n;
}

UNIT_CASE(adding_agrees_with_plain_arrays)
{
    for (int real = 0; real < 2; real++) {
        struct tr_sparse *s = NULL;
        struct tr_rng rng;
        uint32_t column[WIDTH], value[WIDTH];
        tr_rng_seed(&rng, 11, (uint64_t)real, 0);
        memset(plain, 0, sizeof plain);
        ck_ok(tr_sparse_open(real ? TR_F32 : TR_I32, ROWS, &s));
        for (int turn = 0; turn < 2000; turn++) {
            uint64_t r = tr_rng_below(&rng, ROWS);
            uint32_t n = draw(&rng, real, r, column, value);
            ck_ok(tr_sparse_add(s, r, n, column, value));
            check_row(s, r);
            ck_assert_uint_eq(tr_sparse_bytes(s), bytes_of(s));
        }
        tr_sparse_close(&s);
    }
}

/* Rows that become zeros again keep nothing, and rows that become short little. */
UNIT_CASE(memory_goes_with_what_is_not_zero)
{
    struct tr_sparse *s = NULL;
    uint32_t column[WIDTH], value[WIDTH];
    for (uint32_t c = 0; c < WIDTH; c++) {
        column[c] = c;
        value[c] = 5;
    }
    ck_ok(tr_sparse_open(TR_I32, ROWS, &s));
    ck_ok(tr_sparse_add(s, 3, WIDTH, column, value));
    ck_assert_uint_ge(tr_sparse_bytes(s), ROWS * sizeof *s->row + 8 * WIDTH);
    for (uint32_t c = 0; c < WIDTH; c++) value[c] = (uint32_t)-5;
    ck_ok(tr_sparse_add(s, 3, WIDTH - 4, column, value));
    ck_assert_uint_eq(s->row[3].n, 4);
    ck_assert_uint_le(tr_sparse_bytes(s), ROWS * sizeof *s->row + 8 * 8);
    ck_ok(tr_sparse_add(s, 3, 4, column + WIDTH - 4, value));
    ck_assert_uint_eq(tr_sparse_bytes(s), ROWS * sizeof *s->row);
    tr_sparse_close(&s);
}

UNIT_CASE(a_negative_zero_is_a_zero)
{
    struct tr_sparse *s = NULL;
    uint32_t column = 9;
    float value = -0.0f;
    ck_ok(tr_sparse_open(TR_F32, 1, &s));
    ck_ok(tr_sparse_add(s, 0, 1, &column, &value));
    ck_assert_uint_eq(s->row[0].n, 0);
    tr_sparse_close(&s);
}

/* Far columns and numbers of all sizes come back, however the row is cut. */
UNIT_CASE(rows_come_back_from_messages)
{
    enum { N = 9 };
    static const uint32_t column[N] = {0, 1, 127, 128, 255, 70000, 1u << 28, UINT32_MAX - 1, UINT32_MAX};
    static const int32_t value[N] = {1, -1, 63, -64, 64, INT32_MAX, INT32_MIN, -300, 7};
    for (int real = 0; real < 2; real++)
        for (size_t room = TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST; room < 200; room++) {
            unsigned char message[200];
            uint32_t n;
            for (uint32_t i = 0; i < N; i += n) {
                size_t bytes = 0;
                n = tr_sparse_write(real, N - i, column + i, value + i, message, room, &bytes);
                ck_assert_uint_ge(n, 1);
                ck_assert_uint_le(bytes, room);
                const unsigned char *at = message, *end = message + bytes;
                struct tr_sparse_entries got = {0};
                ck_ok(tr_sparse_read(real, UINT64_C(1) << 32, &at, end, &got));
                ck_assert_ptr_eq(at, end);
                ck_assert_uint_eq(got.n, n);
                ck_assert_mem_eq(got.column, column + i, n * sizeof *column);
                ck_assert_mem_eq(got.value, value + i, n * sizeof *value);
                at = message;
                ck_assert_int_eq(tr_sparse_read(real, UINT64_C(1) << 32, &at, end - 1, &got), TR_ERR_PEER);
                at = message;
                ck_assert_int_eq(tr_sparse_read(real, column[i + n - 1], &at, end, &got), TR_ERR_PEER);
                TR_FREE_ALL(got.column, got.value);
            }
        }
}

/* An answer contains the units that fit, their number, and the position of the next. */
UNIT_CASE(answers_are_filled_and_continued)
{
    struct tr_sparse *s = NULL;
    struct tr_rng rng;
    uint32_t column[WIDTH], value[WIDTH];
    tr_rng_seed(&rng, 12, 0, 0);
    memset(plain, 0, sizeof plain);
    ck_ok(tr_sparse_open(TR_I32, ROWS, &s));
    for (uint64_t r = 0; r < ROWS; r += 2) {
        uint32_t n = draw(&rng, false, r, column, value);
        ck_ok(tr_sparse_add(s, r, n, column, value));
    }
    for (size_t room = TR_SPARSE_HEAD + TR_SPARSE_ENTRY_MOST; room < 3000; room += 1 + room / 2) {
        struct tr_sparse_request wish[ROWS];
        int32_t seen[ROWS][WIDTH] = {{0}};
        unsigned char *out = malloc(room);
        for (uint32_t r = 0; r < ROWS; r++) wish[r] = (struct tr_sparse_request){r, 0};
        for (uint32_t first = 0; first < ROWS;) {
            struct tr_sparse_head head;
            ck_ok(tr_sparse_answer(s, ROWS - first, &wish[first], out, room, &head));
            ck_assert_uint_le(head.bytes, room);
            ck_assert_uint_ge(head.rows + head.cut, 1);
            const unsigned char *at = out, *end = out + head.bytes;
            for (uint32_t r = first; r < first + head.rows + head.cut; r++) {
                struct tr_sparse_entries got = {0};
                ck_ok(tr_sparse_read(false, WIDTH, &at, end, &got));
                for (uint32_t i = 0; i < got.n; i++) seen[r][got.column[i]] += (int32_t)got.value[i];
                TR_FREE_ALL(got.column, got.value);
            }
            ck_assert_ptr_eq(at, end);
            first += head.rows;
            if (head.cut) wish[first].from = head.from;
        }
        ck_assert_mem_eq(seen, plain, sizeof plain);
        free(out);
    }
    struct tr_sparse_request nowhere = {ROWS, 0};
    struct tr_sparse_head head;
    unsigned char out[64];
    ck_fails(tr_sparse_answer(s, 1, &nowhere, out, sizeof out, &head), TR_ERR_PEER, "row 7 is asked for");
    tr_sparse_close(&s);
}

/* All bytes that are no update are refused; none is read beyond its end (checked by sanitizers). */
UNIT_CASE(malformed_updates_are_refused)
{
    struct tr_sparse *s = NULL;
    struct tr_rng rng;
    int refused = 0;
    tr_rng_seed(&rng, 13, 0, 0);
    ck_ok(tr_sparse_open(TR_F32, ROWS, &s));
    for (int turn = 0; turn < 20000; turn++) {
        size_t bytes = (size_t)tr_rng_below(&rng, 40);
        unsigned char *update = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++)
            update[i] = (unsigned char)(tr_rng_below(&rng, 3) ? tr_rng_below(&rng, 4) : tr_rng_next(&rng));
        int status = tr_sparse_take(s, WIDTH, update, bytes);
        ck_assert(status == TR_OK || status == TR_ERR_PEER);
        refused += status != TR_OK;
        free(update);
    }
    ck_assert_int_gt(refused, 10000);
    for (int r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < s->row[r].n; i++)
            ck_assert(s->row[r].column[i] < WIDTH &&
                      (i == 0 || s->row[r].column[i - 1] < s->row[r].column[i]));
    tr_sparse_close(&s);
}

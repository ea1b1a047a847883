#include "unit.h"

#include "table/codec.h"
#include "../elements.h"

static const enum tr_dtype dtypes[] = {TR_F32, TR_F64, TR_I32, TR_I64};

/* ---- numbers of 16 bits ---- */

/* Rounding as the book says: the nearest multiple of the format's step at x, ties to even. */
static double rounded(double x, int precision)
{
    bool f8 = precision == TR_PRECISION_F8, f16 = f8 || precision == TR_PRECISION_F16;
    int exponent, least = f16 ? -14 : -126, digits = f8 ? 2 : f16 ? 10 : 7;
    double most = f8 ? 57344 : f16 ? 65504 : (2 - 0x1p-7) * 0x1p127;
    if (f8) x = rounded(x, TR_PRECISION_F16);
    if (!isfinite(x)) return x;
    frexp(x, &exponent);
    double step = ldexp(1, (exponent - 1 > least ? exponent - 1 : least) - digits);
    return copysign(fmin(fabs(nearbyint(x / step) * step), most), x);
}

/* The scalar functions of codec.h. */
static double through(double x, int precision, bool single)
{
    float f = single ? (float)x : tr_odd_float(x);
    return (double)(precision == TR_PRECISION_F16  ? tr_f16_widen(tr_f16_round(f))
                    : precision == TR_PRECISION_F8 ? tr_f8_widen(tr_f8_round(f))
                                                   : tr_bf16_widen(tr_bf16_round(f)));
}

static bool same(double a, double b)
{
    return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
}

/* Each 16-bit number comes back, and so do what lies half way to the next, and just beside that. */
UNIT_CASE(halves_round_to_the_nearest)
{
    uint64_t checked = 0;
    for (int precision = TR_PRECISION_F16; precision <= TR_PRECISION_BF16; precision++)
        for (uint32_t h = 0; h < 0x10000; h++) {
            bool f16 = precision == TR_PRECISION_F16;
            double x = (double)(f16 ? tr_f16_widen((uint16_t)h) : tr_bf16_widen((uint16_t)h));
            if (isnan(x)) {
                ck_assert(isnan(through(x, precision, true)) && isnan(through(x, precision, false)));
                continue;
            }
            uint16_t back = f16 ? tr_f16_round((float)x) : tr_bf16_round((float)x);
            ck_assert(back == h);
            double next = (double)(f16 ? tr_f16_widen((uint16_t)(h + 1)) : tr_bf16_widen((uint16_t)(h + 1)));
            if (!isfinite(next) || !isfinite(x)) continue;
            double tie = x / 2 + next / 2;
            float beside[] = {(float)tie, nextafterf((float)tie, INFINITY), nextafterf((float)tie, -INFINITY),
                              (float)(x * 0.7 + next * 0.3)};
            for (int k = 0; k < 4; k++, checked++)
                ck_assert(
                    same(through((double)beside[k], precision, true), rounded((double)beside[k], precision)));
            double near[] = {tie, nextafter(tie, INFINITY), nextafter(tie, -INFINITY), tie * (1 + 1e-10),
                             tie * (1 - 1e-10)};
            for (int k = 0; k < 5; k++, checked++)
                ck_assert(same(through(near[k], precision, false), rounded(near[k], precision)));
        }
    ck_assert_uint_gt(checked, 1000000);
}

UNIT_CASE(halves_saturate)
{
    static const double large[] = {65504, 65519.99, 65520, 65536, 1e10, 3.4e38, 1e39, 1e300};
    for (int i = 0; i < 8; i++)
        for (int single = 0; single < (large[i] < 3.4e38); single++) {
            ck_assert(through(large[i], TR_PRECISION_F16, single) == 65504);
            ck_assert(through(-large[i], TR_PRECISION_F16, single) == -65504);
        }
    const double most = (2 - 0x1p-7) * 0x1p127; /* of bf16 */
    ck_assert(through((double)3.4028235e38f, TR_PRECISION_BF16, true) == most);
    ck_assert(through(-1e300, TR_PRECISION_BF16, false) == -most);
    for (int precision = TR_PRECISION_F16; precision <= TR_PRECISION_BF16; precision++)
        for (int single = 0; single < 2; single++) {
            ck_assert(through(INFINITY, precision, single) == INFINITY);
            ck_assert(through(-INFINITY, precision, single) == -INFINITY);
            ck_assert(isnan(through(NAN, precision, single)));
        }
}

/* ---- a slice and what became of it ---- */

struct trial {
    struct tr_slice slice;
    size_t elements, bytes;
    void *value, *residual, *room;
    void *packed, *listed; /* decoded */
    uint32_t *unit;
    uint32_t n; /* listed */
    struct tr_encoded message;
    size_t size;
};

static struct trial begin(enum tr_dtype dtype, uint32_t n, size_t width)
{
    struct trial t = {.slice = {dtype, n, width}, .elements = n * width};
    t.bytes = t.elements * tr_dtype_size(dtype);
    ck_ok(TR_NEW((char **)&t.value, t.bytes));
    ck_ok(TR_NEW((char **)&t.residual, t.bytes));
    ck_ok(TR_NEW((char **)&t.packed, t.bytes));
    ck_ok(TR_NEW((char **)&t.listed, t.bytes));
    ck_ok(TR_NEW(&t.unit, n));
    return t;
}

static void end(struct trial *t)
{
    TR_FREE_ALL(t->value, t->residual, t->room, t->packed, t->listed, t->unit);
}

/* Encodes into just the room that is said to be needed, and decodes from just the bytes that were sent. One check for
 * all: Check writes each of them to a file. */
static void send(struct trial *t, struct tr_wire wire, void *residual)
{
    static const char guard[16] = "nothing of yours";
    size_t room = tr_encode_room(&t->slice, wire);
    free(t->room);
    t->room = malloc(room + sizeof guard);
    memcpy((char *)t->room + room, guard, sizeof guard);
    t->size = tr_encode(&t->slice, wire, t->value, residual, t->room);
    bool inside = t->size <= room && memcmp((char *)t->room + room, guard, sizeof guard) == 0;
    t->room = realloc(t->room, t->size);
    memset(t->packed, 0xff, t->bytes);
    int status = tr_encoded_open(t->room, t->size, &t->slice, &t->message);
    if (status == TR_OK) status = tr_decode_packed(&t->message, t->packed);
    if (status == TR_OK) status = tr_decode_units(&t->message, t->unit, t->listed, &t->n);
    ck_assert_msg(inside && status == TR_OK, "%d %d: %s", inside, status, tr_error_text());
}

/* Random numbers in a part of the units, single elements of which may be zero. */
static void fill(struct trial *t, double density, uint64_t seed)
{
    struct tr_rng rng;
    tr_rng_seed(&rng, seed, t->slice.n, t->slice.width);
    memset(t->value, 0, t->bytes);
    for (size_t i = 0; i < t->slice.n; i++) {
        if (tr_rng_uniform(&rng) >= density) continue;
        for (size_t j = 0; j < t->slice.width; j++) {
            if (j > 0 && tr_rng_below(&rng, 3) == 0) continue;
            double x = tr_rng_normal(&rng) * exp(4 * tr_rng_normal(&rng));
            set_element(t->slice.dtype, t->value, i * t->slice.width + j,
                        t->slice.dtype < TR_I32 ? x : 1 + 100 * x);
        }
    }
}

/* What should arrive for an element. */
static double expected(const struct trial *t, size_t i, int precision)
{
    double x = element(t->slice.dtype, t->value, i);
    return precision == TR_PRECISION_FULL || t->slice.dtype >= TR_I32 ? x : rounded(x, precision);
}

/* Whether packed values and list are just what should arrive. */
static void check_arrived(const struct trial *t, int precision)
{
    size_t width = t->slice.width, bytes = width * tr_dtype_size(t->slice.dtype);
    uint32_t k = 0;
    for (size_t i = 0; i < t->slice.n; i++) {
        bool zero = true;
        for (size_t j = i * width; j < (i + 1) * width; j++) {
            zero &= expected(t, j, precision) == 0;
            ck_assert(element(t->slice.dtype, t->packed, j) == expected(t, j, precision));
        }
        if (zero) continue;
        ck_assert(k < t->n && t->unit[k] == i);
        ck_assert(memcmp((char *)t->listed + k * bytes, (char *)t->packed + i * bytes, bytes) == 0);
        k++;
    }
    ck_assert_uint_eq(k, t->n);
}

static const struct {
    uint32_t n;
    size_t width;
} shapes[] = {{0, 1}, {1, 1},  {7, 1},  {64, 1},  {65, 1},   {1000, 1}, {40000, 1},
              {1, 3}, {63, 2}, {64, 3}, {777, 5}, {100, 40}, {3, 700}};
enum { SHAPES = COUNT(shapes) };
static const double densities[] = {0, 0.0005, 0.02, 0.1, 0.4, 0.9, 0.97, 1};
enum { DENSITIES = COUNT(densities) };

UNIT_CASE(everything_comes_back)
{
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (size_t d = 0; d < 4; d++) {
            struct trial t = begin(dtypes[d], shapes[shape].n, shapes[shape].width);
            for (size_t i = 0; i < DENSITIES; i++) {
                fill(&t, densities[i], i);
                for (int encoding = TR_ENCODING_AUTO; encoding <= TR_ENCODING_BITMAP; encoding++)
                    for (int precision = TR_PRECISION_FULL; precision <= TR_PRECISION_F8; precision++) {
                        send(&t, (struct tr_wire){encoding, precision}, NULL);
                        check_arrived(&t, precision);
                        if (encoding != TR_ENCODING_AUTO) ck_assert_int_eq(t.message.encoding, encoding);
                    }
            }
            end(&t);
        }
}

/* ---- sizes ---- */

static size_t gap_size(size_t gap)
{
    return gap < 128 ? 1 : gap < 16384 ? 2 : gap < 2097152 ? 3 : 4;
}

/* Bytes of a message by the words of codec.h. */
static size_t promised(const struct trial *t, int encoding, int precision)
{
    size_t width = t->slice.width, count = 0, gaps = 0, next = 0;
    bool half = precision != TR_PRECISION_FULL && t->slice.dtype < TR_I32;
    size_t element = precision == TR_PRECISION_F8 ? 1 : 2,
           unit = width * (half ? element : tr_dtype_size(t->slice.dtype));
    for (size_t i = 0; i < t->slice.n; i++) {
        bool zero = true;
        for (size_t j = i * width; j < (i + 1) * width; j++) zero &= expected(t, j, precision) == 0;
        if (zero) continue;
        gaps += gap_size(i - next);
        next = i + 1;
        count++;
    }
    switch (encoding) {
    case TR_ENCODING_DENSE: return TR_ENCODING_HEADER + t->slice.n * unit;
    case TR_ENCODING_SPARSE: return TR_ENCODING_HEADER + count * unit + gaps;
    default: return TR_ENCODING_HEADER + count * unit + (t->slice.n + 63) / 64 * 8;
    }
}

UNIT_CASE(the_smallest_is_chosen_and_sizes_are_as_promised)
{
    bool chosen[4] = {false};
    for (size_t shape = 0; shape < SHAPES; shape++)
        for (size_t d = 0; d < 4; d++) {
            struct trial t = begin(dtypes[d], shapes[shape].n, shapes[shape].width);
            for (size_t i = 0; i < DENSITIES + 14; i++) {
                fill(&t, i < DENSITIES ? densities[i] : (double)(i - DENSITIES) / 14, i);
                for (int precision = TR_PRECISION_FULL; precision <= TR_PRECISION_F8; precision++) {
                    size_t least = SIZE_MAX;
                    for (int encoding = TR_ENCODING_DENSE; encoding <= TR_ENCODING_BITMAP; encoding++) {
                        send(&t, (struct tr_wire){encoding, precision}, NULL);
                        ck_assert_uint_eq(t.size, promised(&t, encoding, precision));
                        least = tr_min_size(least, t.size);
                    }
                    send(&t, (struct tr_wire){TR_ENCODING_AUTO, precision}, NULL);
                    ck_assert_uint_eq(t.size, least);
                    chosen[t.message.encoding] = true;
                }
            }
            end(&t);
        }
    for (int encoding = TR_ENCODING_DENSE; encoding <= TR_ENCODING_BITMAP; encoding++)
        ck_assert(chosen[encoding]);
}

/* Gaps on both sides of each length, up to four bytes. */
UNIT_CASE(long_gaps_come_back)
{
    enum { N = 5000000 };
    static const uint32_t gaps[] = {0, 127, 128, 0, 16383, 16384, 1, 2097151, 2097152};
    struct trial t = begin(TR_I32, N, 1);
    uint32_t unit[9], next = 0;
    for (int i = 0; i < 9; i++) {
        unit[i] = next + gaps[i];
        set_element(TR_I32, t.value, unit[i], i - 20);
        next = unit[i] + 1;
    }
    set_element(TR_I32, t.value, unit[4], INT32_MIN); /* only its sign bit is set */
    send(&t, (struct tr_wire){TR_ENCODING_AUTO, TR_PRECISION_FULL}, NULL);
    ck_assert_int_eq(t.message.encoding, TR_ENCODING_SPARSE);
    ck_assert_uint_eq(t.size, TR_ENCODING_HEADER + 9 * 4 + 1 + 1 + 2 + 1 + 2 + 3 + 1 + 3 + 4);
    check_arrived(&t, TR_PRECISION_FULL);
    end(&t);
}

/* A sparse message of one integer with these bytes for its gap, in a slice of 2^32 - 1 units. */
static int list_far(const unsigned char *gap, size_t bytes, uint32_t *unit)
{
    struct tr_slice slice = {TR_I32, UINT32_MAX, 1};
    const uint32_t one = 1;
    const int32_t sent = 77;
    uint64_t room[4] = {0};
    unsigned char *message = (unsigned char *)room;
    const unsigned char head[] = {TR_ENCODING_SPARSE, TR_PRECISION_FULL, TR_I32, 0};
    memcpy(message, head, 4);
    memcpy(message + 4, &one, 4);
    memcpy(message + 8, &sent, 4);
    memcpy(message + 12, gap, bytes);
    struct tr_encoded e;
    uint32_t n;
    int32_t value;
    TR_TRY(tr_encoded_open(message, 12 + bytes, &slice, &e));
    TR_TRY(tr_decode_units(&e, unit, &value, &n));
    ck_assert(n == 1 && value == sent);
    return TR_OK;
}

UNIT_CASE(the_longest_gap_comes_back)
{
    uint32_t unit = 0;
    ck_ok(list_far((const unsigned char[]){0xfe, 0xff, 0xff, 0xff, 0x0f}, 5, &unit));
    ck_assert_uint_eq(unit, UINT32_MAX - 1);
    ck_fails(list_far((const unsigned char[]){0xff, 0xff, 0xff, 0xff, 0x0f}, 5, &unit), TR_ERR_PEER,
             "behind the last unit");
    ck_fails(list_far((const unsigned char[]){0x80, 0x80, 0x80, 0x80, 0x10}, 5, &unit), TR_ERR_PEER,
             "behind the last unit");
    ck_fails(list_far((const unsigned char[]){0x80, 0x80, 0x80, 0x80, 0x80, 0}, 6, &unit), TR_ERR_PEER,
             "too many bytes");
}

/* ---- error feedback ---- */

/* The same for 8 bits: every f16, and all that the format holds comes back. */
UNIT_CASE(eight_bits_round_to_the_nearest)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        double x = (double)tr_f16_widen((uint16_t)h);
        double got = through(x, TR_PRECISION_F8, true);
        ck_assert(isnan(x) ? isnan(got) : same(got, rounded(x, TR_PRECISION_F8)));
    }
    for (int b = 0; b < 256; b++) {
        float x = tr_f8_widen((uint8_t)b);
        ck_assert(isnan(x) || tr_f8_round(x) == b);
    }
    ck_assert(through(1e9, TR_PRECISION_F8, true) == 57344 &&
              isinf(through(INFINITY, TR_PRECISION_F8, true)));
}

/* An update far below the step of f16 at its size arrives all the same: 1000 of them, within one rounding. */
UNIT_CASE(what_rounding_takes_comes_later)
{
    enum { N = 300, UPDATES = 1000 };
    for (size_t d = 0; d < 2; d++)
        for (int precision = TR_PRECISION_F16; precision <= TR_PRECISION_BF16; precision++) {
            struct trial t = begin(dtypes[d], N, 1);
            double sum[N] = {0}, arrived[N] = {0};
            double least = precision == TR_PRECISION_F16 ? 1e-9 : 1e-41; /* below the smallest */
            for (int update = 0; update < UPDATES; update++) {
                for (size_t i = 0; i < N; i++) {
                    double tiny = i < 100 ? least * (double)(i + 1) : (double)i * (1 + 1e-5 * update);
                    set_element(t.slice.dtype, t.value, i, tiny);
                    sum[i] += element(t.slice.dtype, t.value, i);
                }
                tr_add_elements(t.slice.dtype, N, t.residual, t.value);
                memset(t.residual, 0, t.bytes);
                int encoding = update % 4; /* they may change on the way */
                send(&t, (struct tr_wire){encoding, precision}, t.residual);
                for (size_t i = 0; i < N; i++) arrived[i] += element(t.slice.dtype, t.packed, i);
            }
            size_t lost = 0, silent = 0;
            for (size_t i = 0; i < N; i++) {
                double last = element(t.slice.dtype, t.value, i);
                double step = fmax(fabs(last) / (precision == TR_PRECISION_F16 ? 1024 : 128),
                                   precision == TR_PRECISION_F16 ? 0x1p-24 : 0x1p-133);
                double noise =
                    dtypes[d] == TR_F32 ? (fabs(last) + step) * UPDATES * 0x1p-24 : fabs(sum[i]) * 1e-12;
                lost += fabs(sum[i] - arrived[i]) > step / 2 + noise;
                silent += arrived[i] == 0 && sum[i] > step;
                double rest = element(t.slice.dtype, t.residual, i);
                lost += fabs(sum[i] - arrived[i] - rest) > noise;
            }
            ck_assert_uint_eq(lost, 0);
            ck_assert_uint_eq(silent, 0);
            end(&t);
        }
}

/* The residual of an overflow is stored too; values that are not finite are sent unchanged and leave no residual. */
UNIT_CASE(overflow_is_kept_and_infinity_is_not)
{
    for (size_t d = 0; d < 2; d++) {
        struct trial t = begin(dtypes[d], 4, 1);
        const double x[] = {1e6, -1e5, INFINITY, NAN};
        for (size_t i = 0; i < 4; i++) set_element(t.slice.dtype, t.value, i, x[i]);
        set_element(t.slice.dtype, t.residual, 0, 1);
        send(&t, (struct tr_wire){TR_ENCODING_AUTO, TR_PRECISION_F16}, t.residual);
        ck_assert(element(t.slice.dtype, t.packed, 0) == 65504);
        ck_assert(element(t.slice.dtype, t.packed, 1) == -65504);
        ck_assert(element(t.slice.dtype, t.packed, 2) == INFINITY);
        ck_assert(isnan(element(t.slice.dtype, t.packed, 3)));
        ck_assert(element(t.slice.dtype, t.residual, 0) == 1e6 - 65504 + 1);
        ck_assert(element(t.slice.dtype, t.residual, 1) == 65504 - 1e5);
        ck_assert(element(t.slice.dtype, t.residual, 2) == 0);
        ck_assert(element(t.slice.dtype, t.residual, 3) == 0);
        end(&t);
    }
}

/* ---- damage ---- */

static int decode_all(struct trial *t, const void *bytes, size_t size)
{
    struct tr_encoded e;
    TR_TRY(tr_encoded_open(bytes, size, &t->slice, &e));
    int status = tr_decode_packed(&e, t->packed);
    ck_assert_int_eq(status, tr_decode_units(&e, t->unit, t->listed, &t->n));
    return status;
}

/* A copy of the message with this byte changed and this many bytes sent. */
static int decode_with(struct trial *t, size_t at, unsigned char byte, size_t size)
{
    unsigned char *copy;
    ck_ok(TR_NEW(&copy, size + t->size));
    memcpy(copy, t->room, t->size);
    if (at < t->size) copy[at] = byte;
    unsigned char *sent = malloc(size ? size : 1); /* for sanitizers */
    memcpy(sent, copy, size);
    int status = decode_all(t, sent, size);
    TR_FREE_ALL(copy, sent);
    return status;
}

UNIT_CASE(damage_is_found)
{
    enum { N = 300 };
    struct trial t = begin(TR_F32, N, 1);
    for (size_t i = 0; i < 5; i++) set_element(TR_F32, t.value, i * 64 + 40, 1 + (double)i);
    const size_t places = TR_ENCODING_HEADER + 5 * 4;
    send(&t, (struct tr_wire){TR_ENCODING_SPARSE, TR_PRECISION_FULL}, NULL);
    ck_assert_uint_eq(t.size, places + 5);
    ck_fails(decode_with(&t, 0, 0, t.size), TR_ERR_PEER, "unknown encoding");
    ck_fails(decode_with(&t, 1, 9, t.size), TR_ERR_PEER, "unknown encoding");
    ck_fails(decode_with(&t, 2, TR_F64, t.size), TR_ERR_PEER, "another type");
    ck_fails(decode_with(&t, 5, 2, t.size), TR_ERR_PEER, "number of units");
    ck_fails(decode_with(&t, 4, 100, t.size), TR_ERR_PEER, "too early");
    ck_fails(decode_with(&t, 4, 4, t.size), TR_ERR_PEER, "");
    ck_fails(decode_with(&t, 4, 0, t.size), TR_ERR_PEER, "too long");
    ck_fails(decode_with(&t, places + 4, 120, t.size), TR_ERR_PEER, "behind the last unit");
    ck_fails(decode_with(&t, places + 4, 200, t.size), TR_ERR_PEER, "end too early");
    ck_fails(decode_with(&t, SIZE_MAX, 0, t.size + 1), TR_ERR_PEER, "too long");
    for (size_t size = 0; size < t.size; size++)
        ck_assert_int_eq(decode_with(&t, SIZE_MAX, 0, size), TR_ERR_PEER);
    ck_ok(decode_with(&t, SIZE_MAX, 0, t.size));

    send(&t, (struct tr_wire){TR_ENCODING_BITMAP, TR_PRECISION_FULL}, NULL);
    ck_fails(decode_with(&t, places, 1, t.size), TR_ERR_PEER, "does not fit");
    ck_fails(decode_with(&t, t.size - 1, 1, t.size), TR_ERR_PEER, "behind the last unit");
    ck_fails(decode_with(&t, SIZE_MAX, 0, t.size - 8), TR_ERR_PEER, "another size");
    ck_fails(decode_with(&t, SIZE_MAX, 0, t.size + 8), TR_ERR_PEER, "another size");
    send(&t, (struct tr_wire){TR_ENCODING_DENSE, TR_PRECISION_FULL}, NULL);
    ck_fails(decode_with(&t, 4, 7, t.size), TR_ERR_PEER, "number of units");
    ck_fails(decode_with(&t, SIZE_MAX, 0, t.size + 4), TR_ERR_PEER, "too long");
    ck_fails(decode_with(&t, SIZE_MAX, 0, t.size - 4), TR_ERR_PEER, "too early");
    end(&t);

    /* short gaps, which are read eight at a time */
    t = begin(TR_F32, N, 1);
    for (size_t i = 0; i < 24; i++) set_element(TR_F32, t.value, i * 12 + 11, 1);
    send(&t, (struct tr_wire){TR_ENCODING_SPARSE, TR_PRECISION_FULL}, NULL);
    ck_assert_uint_eq(t.size, TR_ENCODING_HEADER + 24 * 4 + 24);
    ck_fails(decode_with(&t, t.size - 24, 127, t.size), TR_ERR_PEER, "behind the last unit");
    ck_fails(decode_with(&t, t.size - 1, 127, t.size), TR_ERR_PEER, "behind the last unit");
    end(&t);

    t = begin(TR_I64, N, 1);
    send(&t, (struct tr_wire){TR_ENCODING_DENSE, TR_PRECISION_F16}, NULL);
    ck_fails(decode_with(&t, 1, TR_PRECISION_F16, t.size), TR_ERR_PEER, "another type");
    end(&t);
}

UNIT_CASE(gaps_read_back_and_end_where_they_end)
{
    static const uint64_t gaps[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_C(1) << 62, UINT64_MAX};
    enum { N = COUNT(gaps) };
    unsigned char bytes[N * TR_GAP_BYTES], *end = bytes;
    for (size_t i = 0; i < N; i++) end = tr_put_gap(gaps[i], end);
    ck_assert_uint_eq((size_t)(end - bytes), 1 + 1 + 1 + 2 + 2 + 3 + 5 + 9 + 10);
    const unsigned char *at = bytes;
    uint64_t gap;
    for (size_t i = 0; i < N; i++) {
        ck_assert(tr_take_gap(&at, end, &gap));
        ck_assert(gap == gaps[i]);
    }
    ck_assert(!tr_take_gap(&at, end, &gap));
    at = bytes + 3;
    ck_assert(!tr_take_gap(&at, at + 1, &gap)); /* cut in the middle of 128 */
}

/* Every `every`-th number from `first` on, and of these but one of seven: bytes. */
static size_t ascend(uint64_t first, uint64_t every)
{
    enum { N = 6000 };
    static uint64_t number[N], back[N];
    static unsigned char bytes[1 + TR_GAP_BYTES * (N + 1)];
    for (size_t i = 0; i < N; i++) number[i] = first + (i + i / 6) * every;
    uint64_t limit = number[N - 1] + 1;
    size_t size = tr_put_ascending(N, number, bytes);
    ck_assert_uint_le(size, tr_ascending_room(N));
    ck_assert(tr_take_ascending(bytes, size, limit, N, back));
    ck_assert_mem_eq(back, number, sizeof number);
    ck_assert(!tr_take_ascending(bytes, size, limit - 1, N, back));
    ck_assert(!tr_take_ascending(bytes, size, limit, N - 1, back));
    ck_assert(!tr_take_ascending(bytes, size, limit, N + 1, back));
    for (size_t cut = 0; cut < size; cut += cut < 20 ? 1 : size / 50)
        ck_assert(!tr_take_ascending(bytes, cut, limit, N, back));
    return size;
}

UNIT_CASE(ascending_numbers_are_a_bitmap_or_gaps)
{
    ck_assert_uint_le(ascend(0, 1), 6000 / 6); /* dense: a bit each, and for those left out */
    ck_assert_uint_le(ascend((UINT64_C(1) << 62) + 5, 2), 6000 / 3); /* anywhere */
    ck_assert_uint_eq(ascend(3, 9), 1 + 6000);                       /* a byte each */
    ck_assert_uint_le(ascend(1000, 1000), 2 + 6000 * 2 + 2);
    uint64_t one = 77, back;
    unsigned char bytes[1 + 2 * TR_GAP_BYTES];
    ck_assert(tr_take_ascending(bytes, tr_put_ascending(0, NULL, bytes), 0, 0, &back));
    ck_assert(tr_take_ascending(bytes, tr_put_ascending(1, &one, bytes), 78, 1, &back) && back == 77);
    ck_assert(!tr_take_ascending(bytes, 0, 78, 0, &back));
}

#include "table/encoding.h"

#include <string.h>

#include "table/elements.h"
#include "table/half.h"
#include "trireme/cpu.h"

#define INLINE static inline __attribute__((always_inline))

/* Units whose places are read at once. */
enum { BLOCK = 256 };

/* Elements seen as their bits. */
typedef uint8_t bits8;
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;
typedef float __attribute__((may_alias)) real32;
typedef double __attribute__((may_alias)) real64;

/* ---- rounding and widening ---- */

/* How reals of one type are rounded to one format. */
struct narrowing {
    void (*round)(size_t n, const void *x, void *narrow);
    void (*widen)(size_t n, const void *narrow, void *x);
    void (*keep_rest)(size_t n, const void *x, const void *narrow, void *rest); /* rest += x - narrow */
};

/* FORMAT is f16, bf16 or f8, of so many BITS; reals of TYPE are made f32 by TO_FLOAT. Where x is not finite the rest is a
 * NaN, and nothing is kept. */
#define NARROWING(NAME, TYPE, FORMAT, BITS, TO_FLOAT)                                                        \
    TR_CPU_CLONES static void round_##NAME(size_t n, const void *x, void *narrow)                            \
    {                                                                                                        \
        const TYPE *from = x;                                                                                \
        bits##BITS *to = narrow;                                                                             \
        for (size_t i = 0; i < n; i++) to[i] = tr_##FORMAT##_round(TO_FLOAT(from[i]));                       \
    }                                                                                                        \
    TR_CPU_CLONES static void widen_##NAME(size_t n, const void *narrow, void *x)                            \
    {                                                                                                        \
        const bits##BITS *from = narrow;                                                                     \
        TYPE *to = x;                                                                                        \
        for (size_t i = 0; i < n; i++) to[i] = tr_##FORMAT##_widen(from[i]);                                 \
    }                                                                                                        \
    TR_CPU_CLONES static void keep_rest_##NAME(size_t n, const void *x, const void *narrow, void *rest)      \
    {                                                                                                        \
        const TYPE *from = x;                                                                                \
        const bits##BITS *rounded = narrow;                                                                  \
        TYPE *to = rest;                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                                     \
            TYPE taken = from[i] - (TYPE)tr_##FORMAT##_widen(rounded[i]);                                    \
            to[i] += taken == taken ? taken : 0;                                                             \
        }                                                                                                    \
    }                                                                                                        \
    static const struct narrowing NAME = {round_##NAME, widen_##NAME, keep_rest_##NAME};

#define AS_IT_IS
NARROWING(f32_f16, real32, f16, 16, AS_IT_IS)
NARROWING(f32_bf16, real32, bf16, 16, AS_IT_IS)
NARROWING(f32_f8, real32, f8, 8, AS_IT_IS)
NARROWING(f64_f16, real64, f16, 16, tr_odd_float)
NARROWING(f64_bf16, real64, bf16, 16, tr_odd_float)
NARROWING(f64_f8, real64, f8, 8, tr_odd_float)

/* How elements look in a message. */
struct form {
    int precision;
    const struct narrowing *narrowing; /* NULL: in full */
    size_t element, unit;              /* bytes of one */
    uint64_t mask; /* the bits of an element that make it no zero: all but the sign of a real */
};

static struct form form_of(const struct tr_slice *s, int precision)
{
    static const struct {
        const struct narrowing *f32, *f64;
        size_t bytes;
    } known[] = {[TR_PRECISION_F16] = {&f32_f16, &f64_f16, 2},
                 [TR_PRECISION_BF16] = {&f32_bf16, &f64_bf16, 2},
                 [TR_PRECISION_F8] = {&f32_f8, &f64_f8, 1}};
    bool real = s->dtype == TR_F32 || s->dtype == TR_F64;
    struct form form = {.precision = real ? precision : TR_PRECISION_FULL,
                        .element = tr_dtype_size(s->dtype)};
    if (form.precision != TR_PRECISION_FULL) {
        form.narrowing = s->dtype == TR_F32 ? known[precision].f32 : known[precision].f64;
        form.element = known[precision].bytes;
    }
    form.unit = s->width * form.element;
    form.mask = UINT64_MAX >> (64 - 8 * form.element) >> real;
    return form;
}

/* ---- which units are not zero: a bit for each, in words ---- */

static size_t words(size_t n)
{
    return (n + 63) / 64;
}

/* Eight bytes of 0 or 1 as bits: the multiplication moves byte i's to bit 56 + i, and nothing else there. */
INLINE uint64_t gather_bits(const uint8_t flag[8])
{
    uint64_t eight;
    memcpy(&eight, flag, sizeof eight);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return (eight * 0x0102040810204080u) >> 56;
}

/* Elements of so many bytes as their bits: B is their type. */
#define FOR_BITS(bytes, ...)                                                                                 \
    switch (bytes) {                                                                                         \
        CASE_BITS(1, bits8, __VA_ARGS__)                                                                     \
        CASE_BITS(2, bits16, __VA_ARGS__)                                                                    \
        CASE_BITS(4, bits32, __VA_ARGS__)                                                                    \
        CASE_BITS(8, bits64, __VA_ARGS__)                                                                    \
    }
#define CASE_BITS(BYTES, TYPE, ...)                                                                          \
    case BYTES: {                                                                                            \
        typedef TYPE B;                                                                                      \
        __VA_ARGS__                                                                                          \
    } break;

TR_CPU_CLONES static void mark_units(const struct form *form, size_t n, size_t width, const void *value,
                                     uint64_t *bits)
{
    FOR_BITS(form->element, {
        const B *v = value, mask = (B)form->mask;
        for (size_t i = 0; i < n; i += 64) {
            uint8_t flag[64] = {0};
            for (size_t k = 0; k < 64 && width == 1 && i + 64 <= n; k++) flag[k] = (v[i + k] & mask) != 0;
            for (size_t k = 0; k < n - i && k < 64 && (width > 1 || i + 64 > n); k++) {
                B any = 0;
                for (size_t j = 0; j < width; j++) any |= v[(i + k) * width + j] & mask;
                flag[k] = any != 0;
            }
            uint64_t word = 0;
            for (unsigned k = 0; k < 64; k += 8) word |= gather_bits(flag + k) << k;
            bits[i / 64] = word;
        }
    })
}

/* The same for a single unit. */
static bool is_zero(const struct form *form, const char *unit)
{
    uint64_t any = 0;
    FOR_BITS(form->element, {
        for (const B *at = (const B *)unit; (const char *)at < unit + form->unit; at++)
            any |= *at & form->mask;
    })
    return !any;
}

TR_CPU_CLONES static size_t count_bits(size_t n, const uint64_t *word)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += (size_t)__builtin_popcountll(word[i]);
    return count;
}

/* For each set bit of the words, with its number in i. */
#define FOR_EACH_BIT(i, n_words, word)                                                                       \
    for (size_t w_ = 0, i; w_ < (n_words); w_++)                                                             \
        for (uint64_t left_ = (word)[w_]; left_ && (i = w_ * 64 + (size_t)__builtin_ctzll(left_), true);     \
             left_ &= left_ - 1)

/* ---- moving units ---- */

/* Puts the marked units of `from` together; `to` may be `from` itself. */
static void compact(size_t n_words, const uint64_t *word, size_t unit_bytes, const void *from, void *to)
{
    char *out = to;
    TR_FOR_SIZE(unit_bytes, {
        FOR_EACH_BIT(i, n_words, word)
        {
            memmove(out, (const char *)from + i * SIZE, SIZE);
            out += SIZE;
}
})
}

/* ---- gaps ---- */

/* Most gaps are one byte; the loop is for the others. */
static size_t gap_bytes(size_t n_words, const uint64_t *word)
{
    size_t bytes = 0, next = 0;
    FOR_EACH_BIT(i, n_words, word)
    {
        bytes++;
        for (size_t gap = i - next; gap >= 128; gap >>= 7) bytes++;
        next = i + 1;
    }
    return bytes;
}

static unsigned char *write_gaps(size_t n_words, const uint64_t *word, unsigned char *out)
{
    size_t next = 0;
    FOR_EACH_BIT(i, n_words, word)
    {
        out = tr_put_gap(i - next, out);
        next = i + 1;
    }
    return out;
}

/* ---- encoding ---- */

/* Places of a bitmap, and more than the gaps of any sparse message that is not longer than one. If sparse is asked for,
 * the longest has all units, with a byte each: a longer gap leaves out more than it costs. */
static size_t most_place_bytes(const struct tr_slice *s, int encoding)
{
    size_t bitmap = words(s->n) * sizeof(uint64_t);
    return encoding == TR_ENCODING_SPARSE ? tr_max_size(s->n, bitmap) : bitmap;
}

/* Where in the room the bits are noted while values and places are written. */
static size_t bits_offset(const struct tr_slice *s, struct tr_wire wire)
{
    size_t most =
        TR_ENCODING_HEADER + s->n * form_of(s, wire.precision).unit + most_place_bytes(s, wire.encoding);
    return (most + 7) / 8 * 8;
}

size_t tr_encode_room(const struct tr_slice *s, struct tr_wire wire)
{
    return bits_offset(s, wire) + words(s->n) * sizeof(uint64_t);
}

/* Writes the units of the list that are not zero, and marks them. Returns how many there are. */
static size_t write_touched(const struct tr_slice *s, const struct form *form, const char *value,
                            const uint32_t *touched, size_t touched_n, char *residual, char *out,
                            uint64_t *bits)
{
    size_t bytes = s->width * tr_dtype_size(s->dtype), count = 0;
    memset(bits, 0, words(s->n) * sizeof *bits);
    for (size_t i = 0; i < touched_n; i++) bits[touched[i] / 64] |= UINT64_C(1) << touched[i] % 64;
    FOR_EACH_BIT(i, words(s->n), bits)
    {
        const char *unit = value + i * bytes;
        char *to = out + count * form->unit;
        if (!form->narrowing) memcpy(to, unit, bytes);
        else form->narrowing->round(s->width, unit, to);
        if (form->narrowing && residual) form->narrowing->keep_rest(s->width, unit, to, residual + i * bytes);
        if (!is_zero(form, to)) count++;
        else bits[i / 64] &= ~(UINT64_C(1) << i % 64);
    }
    return count;
}

/* The shortest way; of equals the one that is read faster. */
static int choose(const struct tr_slice *s, const struct form *form, size_t count, const uint64_t *bits)
{
    size_t bitmap = words(s->n) * sizeof *bits, places = bitmap;
    if (count < bitmap) places = tr_min_size(bitmap, gap_bytes(words(s->n), bits));
    if ((s->n - count) * form->unit <= places) return TR_ENCODING_DENSE;
    return places < bitmap ? TR_ENCODING_SPARSE : TR_ENCODING_BITMAP;
}

/* Head, and the places behind the values. */
static size_t finish(const struct tr_slice *s, const struct form *form, int encoding, size_t count,
                     const uint64_t *bits, char *out)
{
    uint32_t count32 = (uint32_t)count;
    const char head[4] = {(char)encoding, (char)form->precision, (char)s->dtype, 0};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, &count32, sizeof count32);
    size_t bytes = TR_ENCODING_HEADER + count * form->unit, bitmap = words(s->n) * sizeof *bits;
    if (encoding == TR_ENCODING_DENSE) return bytes;
    if (encoding == TR_ENCODING_SPARSE) {
        unsigned char *place = (unsigned char *)out + bytes;
        return bytes + (size_t)(write_gaps(words(s->n), bits, place) - place);
    }
    memcpy(out + bytes, bits, bitmap);
    return bytes + bitmap;
}

size_t tr_encode(const struct tr_slice *s, struct tr_wire wire, const void *value, const uint32_t *touched,
                 size_t touched_n, void *residual, void *out)
{
    struct form form = form_of(s, wire.precision);
    int encoding = wire.encoding;
    char *values = (char *)out + TR_ENCODING_HEADER;
    uint64_t *bits = (uint64_t *)((char *)out + bits_offset(s, wire));
    /* so few that looking at each costs less than at all, and that dense is out of the question */
    if (touched && touched_n < s->n / 32 && encoding != TR_ENCODING_DENSE) {
        size_t count = write_touched(s, &form, value, touched, touched_n, residual, values, bits);
        if (encoding == TR_ENCODING_AUTO) encoding = choose(s, &form, count, bits);
        return finish(s, &form, encoding, count, bits, out);
    }
    const void *from = value;
    size_t count = s->n;
    if (form.narrowing) {
        form.narrowing->round(s->n * s->width, value, values);
        if (residual) form.narrowing->keep_rest(s->n * s->width, value, values, residual);
        from = values;
    }
    if (encoding != TR_ENCODING_DENSE) {
        mark_units(&form, s->n, s->width, from, bits);
        count = count_bits(words(s->n), bits);
    }
    if (encoding == TR_ENCODING_AUTO) encoding = choose(s, &form, count, bits);
    if (encoding != TR_ENCODING_DENSE) compact(words(s->n), bits, form.unit, from, values);
    else if (from != values && s->n > 0) memcpy(values, from, s->n * form.unit);
    return finish(s, &form, encoding, encoding == TR_ENCODING_DENSE ? s->n : count, bits, out);
}

/* ---- decoding ---- */

static int malformed(const struct tr_slice *s, const char *what)
{
    return tr_fail(TR_ERR_PEER, "a message of %u units of %zu elements is damaged: %s", s->n, s->width, what);
}

/* Words of a bitmap lie behind values of any size: not aligned. */
static uint64_t bitmap_word(const struct tr_encoded *e, size_t i)
{
    uint64_t word;
    memcpy(&word, e->place + i * sizeof word, sizeof word);
    return word;
}

static int check_bitmap(const struct tr_encoded *e)
{
    uint64_t word[64];
    size_t n = words(e->slice.n), count = 0;
    if ((size_t)(e->end - e->place) != n * sizeof *word)
        return malformed(&e->slice, "its bitmap has another size");
    for (size_t i = 0; i < n; i += 64) {
        size_t some = tr_min_size(64, n - i);
        memcpy(word, e->place + i * sizeof *word, some * sizeof *word);
        count += count_bits(some, word);
    }
    if (e->slice.n % 64 && bitmap_word(e, n - 1) >> e->slice.n % 64)
        return malformed(&e->slice, "its bitmap has bits behind the last unit");
    return count == e->count ? TR_OK : malformed(&e->slice, "its bitmap does not fit its count");
}

int tr_encoded_open(const void *bytes, size_t size, const struct tr_slice *s, struct tr_encoded *message)
{
    const unsigned char *head = bytes;
    if ((uintptr_t)bytes % 8)
        return tr_fail(TR_ERR_INTERNAL, "a message must be aligned to 8 bytes to be decoded");
    if (size < TR_ENCODING_HEADER) return malformed(s, "it is shorter than its head");
    struct tr_encoded e = {.slice = *s, .encoding = head[0], .precision = head[1]};
    if (e.encoding < TR_ENCODING_DENSE || e.encoding > TR_ENCODING_BITMAP || e.precision > TR_PRECISION_F8)
        return malformed(s, "an unknown encoding");
    struct form form = form_of(s, e.precision);
    if (head[2] != s->dtype || head[3] || form.precision != e.precision)
        return malformed(s, "elements of another type");
    memcpy(&e.count, head + 4, sizeof e.count);
    if (e.count > s->n || (e.encoding == TR_ENCODING_DENSE && e.count != s->n))
        return malformed(s, "another number of units");
    if ((size - TR_ENCODING_HEADER) / form.unit < e.count) return malformed(s, "it ends too early");
    e.value = head + TR_ENCODING_HEADER;
    e.place = head + TR_ENCODING_HEADER + e.count * form.unit;
    e.end = head + size;
    if ((e.encoding == TR_ENCODING_DENSE || (e.encoding == TR_ENCODING_SPARSE && e.count == 0)) &&
        e.place != e.end)
        return malformed(s, "it is too long");
    if (e.encoding == TR_ENCODING_BITMAP) TR_TRY(check_bitmap(&e));
    *message = e;
    return TR_OK;
}

/* Reading places block by block; begins with e and place = e->place. */
struct reader {
    const struct tr_encoded *e;
    const unsigned char *place; /* sparse: the next gap */
    uint32_t done;              /* units so far */
    uint64_t next;              /* sparse: the first unit that may follow */
    size_t word;                /* bitmap: the next word, and what is left of the one before */
    uint64_t left;
};

static int read_gap(struct reader *r)
{
    const struct tr_slice *s = &r->e->slice;
    const unsigned char *from = r->place;
    uint64_t gap;
    if (!tr_take_gap(&r->place, r->e->end, &gap)) return malformed(s, "its places end too early");
    if (r->place - from > 5) return malformed(s, "a gap of too many bytes");
    r->next += gap;
    return r->next < s->n ? TR_OK : malformed(s, "a place behind the last unit");
}

/* Eight gaps of one byte each, if they are and surely end before the last unit. */
static bool read_short_gaps(struct reader *r, uint32_t *unit)
{
    uint64_t eight;
    if (r->e->end - r->place < 8 || r->next + 8 * 128 > r->e->slice.n) return false;
    memcpy(&eight, r->place, sizeof eight);
    if (eight & 0x8080808080808080u) return false;
    uint32_t at = (uint32_t)r->next;
    for (int k = 0; k < 8; k++) {
        at += r->place[k];
        unit[k] = at++;
    }
    r->place += 8;
    r->next = at;
    return true;
}

static int read_sparse(struct reader *r, uint32_t n, uint32_t *unit)
{
    for (uint32_t i = 0; i < n;) {
        if (n - i >= 8 && read_short_gaps(r, unit + i)) {
            i += 8;
            continue;
        }
        TR_TRY(read_gap(r));
        unit[i++] = (uint32_t)r->next++;
    }
    return TR_OK;
}

/* The bitmap has been counted: there are as many bits. */
static void read_bitmap(struct reader *r, uint32_t n, uint32_t *unit)
{
    for (uint32_t i = 0; i < n;) {
        while (r->left == 0) r->left = bitmap_word(r->e, r->word++);
        uint32_t first = (uint32_t)(r->word - 1) * 64;
        for (; r->left && i < n; r->left &= r->left - 1)
            unit[i++] = first + (uint32_t)__builtin_ctzll(r->left);
    }
}

static int read_places(struct reader *r, uint32_t n, uint32_t *unit)
{
    if (r->e->encoding == TR_ENCODING_BITMAP) read_bitmap(r, n, unit);
    else TR_TRY(read_sparse(r, n, unit));
    r->done += n;
    if (r->done == r->e->count && r->e->encoding == TR_ENCODING_SPARSE && r->place != r->e->end)
        return malformed(&r->e->slice, "it is too long");
    return TR_OK;
}

/* Units `first` to `first + n - 1` of those in the message, in full. */
static void copy_values(const struct tr_encoded *e, size_t first, size_t n, void *to)
{
    struct form form = form_of(&e->slice, e->precision);
    const char *from = (const char *)e->value + first * form.unit;
    if (n == 0) return; /* `to` may be no memory at all */
    if (!form.narrowing) memcpy(to, from, n * form.unit);
    else form.narrowing->widen(n * e->slice.width, from, to);
}

/* Values of a block of units to their places. Narrow halves are widened together first. */
static void place_values(const struct tr_encoded *e, size_t first, size_t n, const uint32_t *unit,
                         void *packed)
{
    struct form form = form_of(&e->slice, e->precision);
    size_t bytes = e->slice.width * tr_dtype_size(e->slice.dtype);
    double room[BLOCK];
    if (!form.narrowing) tr_scatter(unit, n, bytes, (const char *)e->value + first * bytes, packed);
    else if (n * bytes <= sizeof room) {
        copy_values(e, first, n, room);
        tr_scatter(unit, n, bytes, room, packed);
    } else
        for (size_t i = 0; i < n; i++) copy_values(e, first + i, 1, (char *)packed + unit[i] * bytes);
}

int tr_decode_packed(const struct tr_encoded *e, void *packed)
{
    const struct tr_slice *s = &e->slice;
    if (e->encoding == TR_ENCODING_DENSE) {
        copy_values(e, 0, s->n, packed);
        return TR_OK;
    }
    memset(packed, 0, s->n * s->width * tr_dtype_size(s->dtype));
    struct reader r = {e, .place = e->place};
    uint32_t unit[BLOCK];
    while (r.done < e->count) {
        uint32_t first = r.done, n = e->count - first < BLOCK ? e->count - first : BLOCK;
        TR_TRY(read_places(&r, n, unit));
        place_values(e, first, n, unit, packed);
    }
    return TR_OK;
}

/* Those of a dense message, without the zeros among them. */
static uint32_t list_dense(const struct tr_encoded *e, uint32_t *unit, char *value)
{
    struct form form = form_of(&e->slice, e->precision);
    size_t bytes = e->slice.width * tr_dtype_size(e->slice.dtype);
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->slice.n; i += 64) {
        uint32_t some = e->slice.n - i < 64 ? e->slice.n - i : 64;
        char *to = value + n * bytes;
        uint64_t live;
        mark_units(&form, some, e->slice.width, (const char *)e->value + i * form.unit, &live);
        copy_values(e, i, some, to);
        if (count_bits(1, &live) < some) compact(1, &live, bytes, to, to);
        for (uint64_t left = live; left; left &= left - 1) unit[n++] = i + (uint32_t)__builtin_ctzll(left);
    }
    return n;
}

int tr_decode_units(const struct tr_encoded *e, uint32_t *unit, void *value, uint32_t *n)
{
    if (e->encoding == TR_ENCODING_DENSE) {
        *n = list_dense(e, unit, value);
        return TR_OK;
    }
    struct reader r = {e, .place = e->place};
    TR_TRY(read_places(&r, e->count, unit));
    copy_values(e, 0, e->count, value);
    *n = e->count;
    return TR_OK;
}

/* ---- lists of ascending numbers ---- */

enum { AS_GAPS, AS_BITMAP };

static size_t put_bitmap(uint32_t n, const uint64_t *number, unsigned char *out)
{
    unsigned char *end = tr_put_gap(number[0], out);
    uint64_t word = 0, from = number[0];
    for (uint32_t i = 0; i < n; i++) {
        for (; number[i] - from >= 64; from += 64, end += sizeof word, word = 0)
            memcpy(end, &word, sizeof word);
        word |= UINT64_C(1) << (number[i] - from);
    }
    memcpy(end, &word, sizeof word);
    return (size_t)(end - out) + sizeof word;
}

size_t tr_put_ascending(uint32_t n, const uint64_t *number, unsigned char *out)
{
    unsigned char *end = out + 1;
    uint64_t next = 0;
    out[0] = n > 0 && (number[n - 1] - number[0]) / 64 * sizeof(uint64_t) + sizeof(uint64_t) < n;
    if (out[0] == AS_BITMAP) return 1 + put_bitmap(n, number, end);
    for (uint32_t i = 0; i < n; i++) {
        end = tr_put_gap(number[i] - next, end);
        next = number[i] + 1;
    }
    return (size_t)(end - out);
}

static bool take_bitmap(const unsigned char *at, const unsigned char *end, uint64_t limit, uint32_t n,
                        uint64_t *number)
{
    uint64_t from, word;
    uint32_t found = 0;
    if (!tr_take_gap(&at, end, &from)) return false;
    for (; (size_t)(end - at) >= sizeof word && from < limit; at += sizeof word, from += 64) {
        for (memcpy(&word, at, sizeof word); word; word &= word - 1) {
            uint64_t one = from + (uint64_t)__builtin_ctzll(word);
            if (found == n || one < from || one >= limit) return false;
            number[found++] = one;
        }
    }
    return at == end && found == n;
}

bool tr_take_ascending(const unsigned char *at, size_t size, uint64_t limit, uint32_t n, uint64_t *number)
{
    const unsigned char *end = at + size;
    uint64_t next = 0, gap;
    if (size < 1 || at[0] > AS_BITMAP) return false;
    if (*at++ == AS_BITMAP) return take_bitmap(at, end, limit, n, number);
    for (uint32_t i = 0; i < n; i++) {
        if (!tr_take_gap(&at, end, &gap) || next >= limit || gap >= limit - next) return false;
        number[i] = next + gap;
        next = number[i] + 1;
    }
    return at == end;
}

#include "table/codec.h"

#include <stdlib.h>
#include <string.h>
#include <tgmath.h> /* so that fabs() of a float is a float */

#include "base/base.h"
#include "table/storage.h"
#include "trireme/cpu.h"

/* ======== elements ======== */

/* ---- copies, which depend on the size of a unit ---- */

void tr_copy_segment(const struct tr_segment *s, size_t bytes, const void *share, void *view)
{
    const uint32_t *local = s->local, *position = s->position;
    const char *from = share;
    char *to = view;
    for (uint32_t r = 0; r < s->runs; r++)
        memcpy(to + s->run[r].local * bytes, from + s->run[r].position * bytes, s->run[r].length * bytes);
    if (s->runs) return;
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0, n = s->n; i < n; i++)
            memcpy(to + local[i] * SIZE, from + position[i] * SIZE, SIZE);
    })
}

void tr_gather(const uint32_t *at, size_t n, size_t bytes, const void *from, void *to)
{
    if (n == 0) return; /* memcpy() requires valid pointers, but these may be NULL */
    if (!at) memcpy(to, from, n * bytes);
    else
        TR_FOR_SIZE(bytes, {
            for (size_t i = 0; i < n; i++)
                memcpy((char *)to + i * SIZE, (const char *)from + at[i] * SIZE, SIZE);
        })
}

void tr_scatter(const uint32_t *at, size_t n, size_t bytes, const void *from, void *to)
{
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0; i < n; i++) memcpy((char *)to + at[i] * SIZE, (const char *)from + i * SIZE, SIZE);
    })
}

void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t bytes, const void *slots, void *packed)
{
    const char *from = slots;
    char *to = packed;
    TR_FOR_SIZE(bytes, {
        for (size_t i = 0; i < n; i++) {
            if (slot[i] == TR_NO_SLOT) memset(to + i * SIZE, 0, SIZE);
            else memcpy(to + i * SIZE, from + slot[i] * SIZE, SIZE);
        }
    })
}

uint32_t tr_leave_zeros_out(uint32_t n, size_t bytes, uint32_t *unit, const void *values, void *to)
{
    uint32_t left = 0;
    const char *from = values;
    TR_FOR_SIZE(bytes, {
        /* copies all units without a branch, which would often be mispredicted */
        for (uint32_t i = 0; i < n; i++) {
            bool any = !tr_is_zero(from + i * SIZE, SIZE);
            unit[left] = unit[i];
            memmove((char *)to + left * SIZE, from + i * SIZE, SIZE);
            left += any;
        }
    })
    return left;
}

/* Radix sort by 11 bits per pass, the lowest first. A pass is skipped if its bits are equal in all entries. */
void tr_sort_by_upper_half(uint64_t *entry, uint64_t *spare, size_t n)
{
    enum { BITS = 11, DIGITS = 1 << BITS };
    size_t first[DIGITS];
    uint64_t *to = spare, *now = entry;
    for (unsigned shift = 32; shift < 64; shift += BITS) {
        memset(first, 0, sizeof first);
        for (size_t i = 0; i < n; i++) first[now[i] >> shift & (DIGITS - 1)]++;
        if (n == 0 || first[now[0] >> shift & (DIGITS - 1)] == n) continue;
        size_t sum = 0, count;
        for (size_t d = 0; d < DIGITS; d++) count = first[d], first[d] = sum, sum += count;
        for (size_t i = 0; i < n; i++) to[first[now[i] >> shift & (DIGITS - 1)]++] = now[i];
        uint64_t *last = now;
        now = to;
        to = last;
    }
    if (now != entry) memcpy(entry, now, n * sizeof *entry);
}

/* ---- sums, which depend on the type ---- */

void tr_add_elements(enum tr_dtype dtype, size_t n, const void *a, void *b)
{
    TR_FOR_TYPE(dtype, {
        const T *restrict from = a;
        T *restrict to = b;
        for (size_t i = 0; i < n; i++) to[i] += from[i];
    })
}

void tr_add_units(enum tr_dtype dtype, const uint32_t *local, const uint32_t *position, size_t n,
                  size_t width, const void *a, void *b)
{
    if (!position) {
        tr_add_elements(dtype, n * width, a, b);
        return;
    }
    TR_FOR_TYPE(dtype, {
        const T *from = a;
        T *to = b;
        for (size_t i = 0; width == 1 && local && i < n; i++) to[position[i]] += from[local[i]];
        for (size_t i = 0; width == 1 && !local && i < n; i++) to[position[i]] += from[i];
        for (size_t i = 0; width > 1 && i < n; i++)
            tr_add_elements(dtype, width, from + (local ? local[i] : i) * width, to + position[i] * width);
    })
}

/* ======== encodings ======== */

#define INLINE static inline __attribute__((always_inline))

/* Number of units in a block. Places are read, and units are filtered, block by block. */
enum { BLOCK = 256 };

/* Unsigned integers of the sizes of elements, to read elements as bit patterns. */
typedef uint8_t bits8;
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;
typedef float __attribute__((may_alias)) real32;
typedef double __attribute__((may_alias)) real64;

/* ---- rounding and widening ---- */

/* Functions that convert reals of one type (f32 or f64) to and from one narrow format (f16, bf16 or f8). */
struct narrowing {
    void (*narrow)(size_t n, const void *x, void *narrow);
    void (*widen)(size_t n, const void *narrow, void *x);
    void (*keep_rest)(size_t n, const void *x, const void *narrow, void *rest); /* rest += x - narrow */
};

/* Defines struct narrowing NAME. FORMAT is f16, bf16 or f8, BITS its size; TO_FLOAT converts reals of TYPE to f32. If x is not
 * finite, x - narrow is a NaN, and is not added to the rest. */
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

/* The form of elements in a message. */
struct form {
    int precision;
    const struct narrowing *narrowing; /* NULL: elements are in full precision */
    size_t element, unit;              /* bytes of an element, and of a unit, in the message */
    uint64_t mask; /* bits that are all 0 in zeros only: all bits except the sign of a real */
};

static struct form codec_form(const struct tr_slice *s, int precision)
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

/* ---- bitmaps of the units that are not zero ---- */

static size_t codec_words(size_t n)
{
    return (n + 63) / 64;
}

/* Packs eight bytes of 0 or 1 into 8 bits: the multiplication moves byte i to bit 56 + i without carries. */
INLINE uint64_t codec_gather_bits(const uint8_t flag[8])
{
    uint64_t eight;
    memcpy(&eight, flag, sizeof eight);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return (eight * 0x0102040810204080u) >> 56;
}

/* Compiles the block for elements of 1, 2, 4 and 8 bytes as unsigned integers of type B, and runs the version for `bytes`. */
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

TR_CPU_CLONES static void codec_mark(const struct form *form, size_t n, size_t width, const void *value,
                                     uint64_t *bits){
    FOR_BITS(form->element,
             {
                 const B *v = value, mask = (B)form->mask;
                 for (size_t i = 0; i < n; i += 64) {
                     uint8_t flag[64] = {0};
                     for (size_t k = 0; k < 64 && width == 1 && i + 64 <= n; k++)
                         flag[k] = (v[i + k] & mask) != 0;
                     for (size_t k = 0; k < n - i && k < 64 && (width > 1 || i + 64 > n); k++) {
                         B any = 0;
                         for (size_t j = 0; j < width; j++) any |= v[(i + k) * width + j] & mask;
                         flag[k] = any != 0;
                     }
                     uint64_t word = 0;
                     for (unsigned k = 0; k < 64; k += 8) word |= codec_gather_bits(flag + k) << k;
                     bits[i / 64] = word;
                 }
             })}

TR_CPU_CLONES static size_t codec_count_bits(size_t n, const uint64_t *word)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += (size_t)__builtin_popcountll(word[i]);
    return count;
}

/* A loop over all set bits of a bitmap; i is the number of the bit. */
#define FOR_EACH_BIT(i, n_words, word)                                                                       \
    for (size_t w_ = 0, i; w_ < (n_words); w_++)                                                             \
        for (uint64_t left_ = (word)[w_]; left_ && (i = w_ * 64 + (size_t)__builtin_ctzll(left_), true);     \
             left_ &= left_ - 1)

/* ---- moving units ---- */

/* Copies the units of `from` whose bits are set contiguously to `to`, which may be equal to `from`. */
static void codec_compact(size_t n_words, const uint64_t *word, size_t unit_bytes, const void *from, void *to)
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

/* ---- gaps between set bits: in separate functions, whose loops keep all variables in registers ---- */

/* Returns the size of the gaps in bytes. Most gaps take one byte; the inner loop is for longer ones. */
static size_t gaps_bytes(size_t n_words, const uint64_t *word)
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

static unsigned char *gaps_write(size_t n_words, const uint64_t *word, unsigned char *out)
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

/* Returns the offset of the temporary bitmap in the output, behind the longest possible message. Places take at most the size of a
 * bitmap or, if the job sets encoding sparse, one byte per unit, because a gap of several bytes skips more units than bytes. */
static size_t encode_bits_offset(const struct tr_slice *s, struct tr_wire wire)
{
    size_t places = codec_words(s->n) * sizeof(uint64_t);
    if (wire.encoding == TR_ENCODING_SPARSE) places = tr_max_size(s->n, places);
    return (TR_ENCODING_HEADER + s->n * codec_form(s, wire.precision).unit + places + 7) / 8 * 8;
}

size_t tr_encode_room(const struct tr_slice *s, struct tr_wire wire)
{
    return encode_bits_offset(s, wire) + codec_words(s->n) * sizeof(uint64_t);
}

size_t tr_encode(const struct tr_slice *s, struct tr_wire wire, const void *value, void *residual, void *out)
{
    const struct form form = codec_form(s, wire.precision);
    const size_t words = codec_words(s->n);
    int encoding = wire.encoding;
    char *values = (char *)out + TR_ENCODING_HEADER;
    uint64_t *bits = (uint64_t *)((char *)out + encode_bits_offset(s, wire));
    const void *from = value;
    size_t count = s->n, bitmap = words * sizeof *bits;
    if (form.narrowing) {
        form.narrowing->narrow(s->n * s->width, value, values);
        if (residual) form.narrowing->keep_rest(s->n * s->width, value, values, residual);
        from = values;
    }
    if (encoding != TR_ENCODING_DENSE) {
        codec_mark(&form, s->n, s->width, from, bits);
        count = codec_count_bits(words, bits);
    }
    if (encoding == TR_ENCODING_AUTO) {
        size_t places = count < bitmap ? tr_min_size(bitmap, gaps_bytes(words, bits)) : bitmap;
        encoding = (s->n - count) * form.unit <= places ? TR_ENCODING_DENSE
                   : places < bitmap                    ? TR_ENCODING_SPARSE
                                                        : TR_ENCODING_BITMAP;
    }
    const bool dense = encoding == TR_ENCODING_DENSE;
    if (!dense) codec_compact(words, bits, form.unit, from, values);
    else if (from != values && s->n > 0) memcpy(values, from, s->n * form.unit);
    /* writes the head, and the places behind the values */
    const uint32_t units = (uint32_t)(dense ? s->n : count);
    const char head[4] = {(char)encoding, (char)form.precision, (char)s->dtype, 0};
    memcpy(out, head, sizeof head);
    memcpy((char *)out + sizeof head, &units, sizeof units);
    unsigned char *end = (unsigned char *)values + units * form.unit;
    if (encoding == TR_ENCODING_BITMAP) {
        memcpy(end, bits, bitmap);
        end += bitmap;
    }
    if (encoding == TR_ENCODING_SPARSE) end = gaps_write(words, bits, end);
    return (size_t)(end - (unsigned char *)out);
}

/* ---- decoding ---- */

static int codec_malformed(const struct tr_slice *s, const char *what)
{
    return tr_fail(TR_ERR_PEER, "a message of %u units of %zu elements is damaged: %s", s->n, s->width, what);
}

/* Reads word i of the bitmap, which is not aligned because values of any size precede it. */
static uint64_t decode_bitmap_word(const struct tr_encoded *e, size_t i)
{
    uint64_t word;
    memcpy(&word, e->place + i * sizeof word, sizeof word);
    return word;
}

int tr_encoded_open(const void *bytes, size_t size, const struct tr_slice *s, struct tr_encoded *message)
{
    const unsigned char *head = bytes;
    if ((uintptr_t)bytes % 8)
        return tr_fail(TR_ERR_INTERNAL, "a message must be aligned to 8 bytes to be decoded");
    if (size < TR_ENCODING_HEADER) return codec_malformed(s, "it is shorter than its head");
    struct tr_encoded e = {.slice = *s, .encoding = head[0], .precision = head[1]};
    if (e.encoding < TR_ENCODING_DENSE || e.encoding > TR_ENCODING_BITMAP || e.precision > TR_PRECISION_F8)
        return codec_malformed(s, "an unknown encoding");
    struct form form = codec_form(s, e.precision);
    if (head[2] != s->dtype || head[3] || form.precision != e.precision)
        return codec_malformed(s, "elements of another type");
    memcpy(&e.count, head + 4, sizeof e.count);
    if (e.count > s->n || (e.encoding == TR_ENCODING_DENSE && e.count != s->n))
        return codec_malformed(s, "another number of units");
    if ((size - TR_ENCODING_HEADER) / form.unit < e.count) return codec_malformed(s, "it ends too early");
    e.value = head + TR_ENCODING_HEADER;
    e.place = head + TR_ENCODING_HEADER + e.count * form.unit;
    e.end = head + size;
    if ((e.encoding == TR_ENCODING_DENSE || (e.encoding == TR_ENCODING_SPARSE && e.count == 0)) &&
        e.place != e.end)
        return codec_malformed(s, "it is too long");
    if (e.encoding == TR_ENCODING_BITMAP) {
        uint64_t word[64];
        size_t n = codec_words(s->n), count = 0;
        if ((size_t)(e.end - e.place) != n * sizeof *word)
            return codec_malformed(s, "its bitmap has another size");
        for (size_t i = 0; i < n; i += 64) {
            size_t some = tr_min_size(64, n - i);
            memcpy(word, e.place + i * sizeof *word, some * sizeof *word);
            count += codec_count_bits(some, word);
        }
        if (s->n % 64 && decode_bitmap_word(&e, n - 1) >> s->n % 64)
            return codec_malformed(s, "its bitmap has bits behind the last unit");
        if (count != e.count) return codec_malformed(s, "its bitmap does not fit its count");
    }
    *message = e;
    return TR_OK;
}

/* State of reading places block by block. Initialize e, and `place` with e->place. */
struct reader {
    const struct tr_encoded *e;
    const unsigned char *place; /* sparse: address of the next gap */
    uint32_t done;              /* number of units read so far */
    uint64_t next;              /* sparse: number of the unit behind the one that was read last */
    size_t word;                /* bitmap: index of the next word */
    uint64_t left;              /* bitmap: the bits of the previous word that have not been read */
};

/* Reads eight gaps of one byte each. Returns false, and reads nothing, if one is longer or might end behind the last unit. */
INLINE bool decode_short_gaps(struct reader *r, uint32_t *unit)
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

/* Writes the numbers of the next n units. tr_encoded_open() has checked that a bitmap has exactly `count` bits set. */
INLINE int decode_places(struct reader *r, uint32_t n, uint32_t *unit)
{
    const struct tr_slice *s = &r->e->slice;
    const bool sparse = r->e->encoding == TR_ENCODING_SPARSE;
    uint64_t left = r->left;
    for (uint32_t i = 0; i < n && !sparse;) {
        while (left == 0) left = decode_bitmap_word(r->e, r->word++);
        uint32_t first = (uint32_t)(r->word - 1) * 64;
        for (; left && i < n; left &= left - 1) unit[i++] = first + (uint32_t)__builtin_ctzll(left);
    }
    r->left = left;
    for (uint32_t i = 0; i < n && sparse;) {
        const unsigned char *from = r->place;
        uint64_t gap;
        if (n - i >= 8 && decode_short_gaps(r, unit + i)) {
            i += 8;
            continue;
        }
        if (!tr_take_gap(&r->place, r->e->end, &gap)) return codec_malformed(s, "its places end too early");
        if (r->place - from > 5) return codec_malformed(s, "a gap of too many bytes");
        r->next += gap;
        if (r->next >= s->n) return codec_malformed(s, "a place behind the last unit");
        unit[i++] = (uint32_t)r->next++;
    }
    r->done += n;
    if (r->done == r->e->count && sparse && r->place != r->e->end)
        return codec_malformed(s, "it is too long");
    return TR_OK;
}

/* Decodes the values of units `first` to `first + n - 1` of the message in full precision. */
static void decode_values(const struct tr_encoded *e, size_t first, size_t n, void *to)
{
    struct form form = codec_form(&e->slice, e->precision);
    const char *from = (const char *)e->value + first * form.unit;
    if (n == 0) return; /* `to` may be NULL if there is nothing to write */
    if (!form.narrowing) memcpy(to, from, n * form.unit);
    else form.narrowing->widen(n * e->slice.width, from, to);
}

int tr_decode_packed(const struct tr_encoded *e, void *packed)
{
    const struct tr_slice *s = &e->slice;
    const bool full = e->precision == TR_PRECISION_FULL;
    size_t bytes = s->width * tr_dtype_size(s->dtype);
    if (e->encoding == TR_ENCODING_DENSE) {
        decode_values(e, 0, s->n, packed);
        return TR_OK;
    }
    memset(packed, 0, s->n * bytes);
    struct reader r = {e, .place = e->place};
    uint32_t unit[BLOCK];
    double room[BLOCK];
    while (r.done < e->count) {
        uint32_t first = r.done, n = e->count - first < BLOCK ? e->count - first : BLOCK;
        TR_TRY(decode_places(&r, n, unit));
        if (full) tr_scatter(unit, n, bytes, (const char *)e->value + first * bytes, packed);
        else if (n * bytes <= sizeof room) { /* faster: widens the values of the block together */
            decode_values(e, first, n, room);
            tr_scatter(unit, n, bytes, room, packed);
        } else
            for (size_t i = 0; i < n; i++) decode_values(e, first + i, 1, (char *)packed + unit[i] * bytes);
    }
    return TR_OK;
}

int tr_decode(const struct tr_encoded *e, char **memory, size_t *room, const void **value)
{
    *value = e->value;
    if (e->encoding == TR_ENCODING_DENSE && e->precision == TR_PRECISION_FULL) return TR_OK;
    TR_TRY(TR_GROW(memory, room, e->slice.n * e->slice.width * tr_dtype_size(e->slice.dtype)));
    *value = *memory;
    return tr_decode_packed(e, *memory);
}

int tr_decode_units(const struct tr_encoded *e, uint32_t *unit, void *value, uint32_t *n)
{
    const struct tr_slice *s = &e->slice;
    if (e->encoding != TR_ENCODING_DENSE) {
        struct reader r = {e, .place = e->place};
        TR_TRY(decode_places(&r, e->count, unit));
        decode_values(e, 0, e->count, value);
        *n = e->count;
        return TR_OK;
    }
    struct form form = codec_form(s, e->precision);
    size_t bytes = s->width * tr_dtype_size(s->dtype);
    uint32_t found = 0;
    for (uint32_t i = 0; i < s->n; i += 64) {
        uint32_t some = s->n - i < 64 ? s->n - i : 64;
        char *to = (char *)value + found * bytes;
        uint64_t live;
        codec_mark(&form, some, s->width, (const char *)e->value + i * form.unit, &live);
        decode_values(e, i, some, to);
        if (codec_count_bits(1, &live) < some) codec_compact(1, &live, bytes, to, to);
        for (uint64_t left = live; left; left &= left - 1)
            unit[found++] = i + (uint32_t)__builtin_ctzll(left);
    }
    *n = found;
    return TR_OK;
}

/* ---- lists of ascending numbers ---- */

enum { AS_GAPS, AS_BITMAP };

size_t tr_put_ascending(uint32_t n, const uint64_t *number, unsigned char *out)
{
    unsigned char *end = out + 1;
    uint64_t next = 0;
    out[0] = n > 0 && (number[n - 1] - number[0]) / 64 * sizeof(uint64_t) + sizeof(uint64_t) < n;
    if (out[0] == AS_BITMAP) {
        uint64_t word = 0, from = number[0];
        end = tr_put_gap(from, end);
        for (uint32_t i = 0; i < n; i++) {
            for (; number[i] - from >= 64; from += 64, end += sizeof word, word = 0)
                memcpy(end, &word, sizeof word);
            word |= UINT64_C(1) << (number[i] - from);
        }
        memcpy(end, &word, sizeof word);
        return (size_t)(end - out) + sizeof word;
    }
    for (uint32_t i = 0; i < n; i++) {
        end = tr_put_gap(number[i] - next, end);
        next = number[i] + 1;
    }
    return (size_t)(end - out);
}

bool tr_take_ascending(const unsigned char *at, size_t size, uint64_t limit, uint32_t n, uint64_t *number)
{
    const unsigned char *end = at + size;
    uint64_t next = 0, gap;
    if (size < 1 || at[0] > AS_BITMAP) return false;
    if (*at++ == AS_BITMAP) {
        uint64_t from, word;
        uint32_t found = 0;
        if (!tr_take_gap(&at, end, &from)) return false;
        for (; (size_t)(end - at) >= sizeof word && from < limit; at += sizeof word, from += 64)
            for (memcpy(&word, at, sizeof word); word; word &= word - 1) {
                uint64_t one = from + (uint64_t)__builtin_ctzll(word);
                if (found == n || one < from || one >= limit) return false;
                number[found++] = one;
            }
        return at == end && found == n;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!tr_take_gap(&at, end, &gap) || next >= limit || gap >= limit - next) return false;
        number[i] = next + gap;
        next = number[i] + 1;
    }
    return at == end;
}

/* ======== filters ======== */

/* Every filter is implemented as a bound for each unit: the unit is held back if the absolute values of all its elements are below
 * the bound. A bound ≤ 0 holds nothing back. Infinities and NaNs are not below any bound. */

/* Defines R, the type in which elements of type T are compared. Integers are compared as doubles. */
#define COMPARED_AS_R typedef __typeof__(_Generic((T)0, float : 0.0F, default : 0.0)) R

/* Adds residuals to n units, and holds back units below their bounds. A macro, to compile it for the constant width 1, too. */
#define HOLD_BACK(WIDTH)                                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
        T *u = update + i * (WIDTH), *k = rest + i * (WIDTH);                                                \
        bool below = true, any = false;                                                                      \
        for (size_t j = 0; j < (WIDTH); j++) {                                                               \
            u[j] += k[j];                                                                                    \
            below &= fabs((R)u[j]) < bound[i];                                                               \
            any |= u[j] != 0;                                                                                \
        }                                                                                                    \
        for (size_t j = 0; j < (WIDTH); j++) {                                                               \
            T whole = u[j];                                                                                  \
            u[j] = below ? 0 : whole;                                                                        \
            k[j] = below && !drops ? whole : 0;                                                              \
        }                                                                                                    \
        seen += any;                                                                                         \
        held += any & below;                                                                                 \
    }

void tr_filter_apply(const struct tr_filter *f, const struct tr_slice *s, uint64_t first, int64_t clock,
                     const void *value, void *delta, void *kept, struct tr_filter_counts *counts)
{
    const int kind = f->kind;
    const size_t width = s->width;
    const bool drops = kind == TR_FILTER_KKT;
    double most = 0; /* bound of |u|, for kkt derived from the bound of the gradient */
    if (kind == TR_FILTER_THRESHOLD || kind == TR_FILTER_SIGNIFICANT) most = f->limit;
    if (kind == TR_FILTER_KKT) most = fabs(f->scale) * (f->alpha - f->limit);
    const uint64_t hash = tr_mix(tr_mix(f->seed) ^ (uint64_t)clock), chance = (uint64_t)(f->skip * 0x1p53);
    TR_FOR_TYPE(s->dtype, {
        COMPARED_AS_R;
        /* a look-up in this table instead of a branch, which would be mispredicted */
        static const R none_or_all[] = {0, (R)INFINITY};
        R bound[BLOCK], limit = (R)most;
        for (size_t at = 0; at < s->n; at += BLOCK) {
            size_t n = tr_min_size(BLOCK, s->n - at);
            const T *w = value ? (const T *)value + at * width : NULL;
            T *update = (T *)delta + at * width, *rest = (T *)kept + at * width;
            uint32_t seen = 0, held = 0;
            for (size_t i = 0; i < n; i++) bound[i] = limit;
            for (size_t i = 0; i < n && kind == TR_FILTER_SIGNIFICANT; i++) {
                R largest = 0;
                for (size_t j = i * width; j < (i + 1) * width; j++)
                    largest = fabs((R)w[j]) > largest ? fabs((R)w[j]) : largest;
                bound[i] *= largest;
            }
            for (size_t i = 0; i < n && kind == TR_FILTER_KKT; i++) {
                bool zero = true;
                for (size_t j = i * width; j < (i + 1) * width; j++) zero &= w[j] == 0;
                bound[i] = zero ? limit : 0;
            }
            /* holds back if 53 uniform random bits are below `chance`, the probability times 2^53 */
            for (size_t i = 0; i < n && kind == TR_FILTER_SKIP; i++)
                bound[i] = none_or_all[tr_mix(hash + first + at + i) >> 11 < chance];
            if (width == 1) HOLD_BACK(1)
            else HOLD_BACK(width)
            counts->seen += seen;
            *(drops ? &counts->dropped : &counts->held) += held;
        }
    })
}

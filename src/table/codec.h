/* Loops over elements of all types, and encodings and filters of values in messages.
 *
 * «packed» is a buffer in which the units of a segment follow each other; «share» is a server's memory, «view» that of a view.
 * `width` is the number of elements of a unit. */
#ifndef TR_TABLE_CODEC_H
#define TR_TABLE_CODEC_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "job/job.h" /* words of table.encoding and table.precision */
#include "table/plan.h"
#include "trireme/table.h"

/* TR_FOR_TYPE(dtype, block) compiles the block for every element type and runs that of dtype; T is the type in it. */
#define TR_FOR_TYPE(dtype, ...)                                                                              \
    switch (dtype) {                                                                                         \
        TR_CASE_TYPE(TR_F32, float, __VA_ARGS__)                                                             \
        TR_CASE_TYPE(TR_F64, double, __VA_ARGS__)                                                            \
        TR_CASE_TYPE(TR_I32, int32_t, __VA_ARGS__)                                                           \
        TR_CASE_TYPE(TR_I64, int64_t, __VA_ARGS__)                                                           \
    }

/* The same for TR_F32 and TR_F64; other types do nothing. */
#define TR_FOR_REAL(dtype, ...)                                                                              \
    switch (dtype) {                                                                                         \
        TR_CASE_TYPE(TR_F32, float, __VA_ARGS__)                                                             \
        TR_CASE_TYPE(TR_F64, double, __VA_ARGS__)                                                            \
    default: break;                                                                                          \
    }

#define TR_CASE_TYPE(DTYPE, TYPE, ...)                                                                       \
    case DTYPE: {                                                                                            \
        typedef TYPE T;                                                                                      \
        __VA_ARGS__                                                                                          \
    } break;

/* TR_FOR_SIZE(bytes, block) compiles the block for units of any SIZE, and for those of 1, 2, 4 and 8 bytes, which one
 * instruction moves. */
#define TR_FOR_SIZE(bytes, ...)                                                                              \
    switch (bytes) {                                                                                         \
        TR_CASE_SIZE(case 1, 1, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 2, 2, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 4, 4, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(case 8, 8, __VA_ARGS__)                                                                 \
        TR_CASE_SIZE(default, bytes, __VA_ARGS__)                                                            \
    }

#define TR_CASE_SIZE(CASE, BYTES, ...)                                                                       \
    CASE : {                                                                                                 \
        const size_t SIZE = (BYTES);                                                                         \
        __VA_ARGS__                                                                                          \
    } break;

/* Whether all bits of a unit are zero: -0 counts as a value, which does no harm. */
static inline bool tr_is_zero(const char *unit, size_t bytes)
{
    uint64_t both;
    uint32_t word;
    if (bytes == sizeof both) return memcpy(&both, unit, sizeof both), both == 0;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        memcpy(&word, unit + i, sizeof word);
        if (word) return false;
    }
    return true;
}

/* view[local] = share[position]: a pull from memory that can be read directly. */
void tr_copy_segment(const struct tr_segment *s, size_t unit_bytes, const void *share, void *view);

/* to[i] = from[at[i]], and to[at[i]] = from[i], for n units. tr_gather() with at NULL: to[i] = from[i]. */
void tr_gather(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);
void tr_scatter(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);

/* packed[i] = slots[slot[i]] of hash storage, zeros for TR_NO_SLOT. */
void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t unit_bytes, const void *slots,
                             void *packed);

/* Copies those of n packed units that are not all zeros, and compacts their numbers in `unit`. Returns their count. `to` may be
 * `from`. */
uint32_t tr_leave_zeros_out(uint32_t n, size_t unit_bytes, uint32_t *unit, const void *from, void *to);

/* Sorts n entries by their upper halves; equal ones keep their order. spare has as much room. */
void tr_sort_by_upper_half(uint64_t *entry, uint64_t *spare, size_t n);

/* to[position[i]] += from[local[i]] for n units. local NULL: from[i]; position NULL: to[i] += from[i]. */
void tr_add_units(enum tr_dtype dtype, const uint32_t *local, const uint32_t *position, size_t n,
                  size_t width, const void *from, void *to);

/* to[i] += from[i] for n elements. */
void tr_add_elements(enum tr_dtype dtype, size_t n, const void *from, void *to);

/* ======== numbers of 16 and 8 bits ========
 *
 * f16 is IEEE 754 binary16 (5 bits of exponent, 10 of fraction), bf16 the upper half of an f32, f8 the upper half of an f16 (5
 * bits of exponent, 2 of fraction), rounded to f16 first.
 *
 * Rounding is to nearest, ties to even. A finite number that is too large for the format becomes its largest finite one;
 * infinities and NaNs are kept, so that a diverged run is seen. All is integer arithmetic without branches, apart from a few
 * exact additions, so that compilers vectorise it and results are the same on every machine. */

static inline uint32_t tr_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float tr_bits_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A double as f32, rounded to odd: towards zero, with the last bit set if the result is inexact. Rounding this to 16 bits gives
 * the same as rounding the double itself: the odd bit distinguishes a tie from its neighbours. */
static inline float tr_odd_float(double x)
{
    float nearest = (float)x;
    uint32_t bits = tr_float_bits(nearest);
    bits -= fabs((double)nearest) > fabs(x);
    bits |= (double)nearest != x;
    return tr_bits_float(bits);
}

static inline uint16_t tr_f16_round(float x)
{
    const uint32_t infinity = 0x7f800000, least_normal = 0x38800000; /* 2^-14 */
    uint32_t sign = tr_float_bits(x) >> 16 & 0x8000, a = tr_float_bits(x) & 0x7fffffff;
    uint32_t normal = (a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13;
    /* from 0.5 on the last bit of an f32 is worth as much as that of a small f16: the addition rounds */
    uint32_t small = tr_float_bits(tr_bits_float(a) + 0.5f) - 0x3f000000;
    uint32_t finite = a < least_normal ? small : normal;
    finite = finite < 0x7bff ? finite : 0x7bff;
    uint32_t other = a > infinity ? 0x7e00 | (a >> 13 & 0x3ff) : 0x7c00;
    return (uint16_t)(sign | (a < infinity ? finite : other));
}

static inline float tr_f16_widen(uint16_t h)
{
    const uint32_t least_normal = 113u << 23;
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = (uint32_t)(h & 0x7fff) << 13;
    uint32_t small = tr_float_bits(tr_bits_float(a + least_normal) - tr_bits_float(least_normal));
    uint32_t normal = a + (112u << 23), other = a + (224u << 23);
    uint32_t finite = a < 0x400u << 13 ? small : normal;
    return tr_bits_float(sign | (a < 0x7c00u << 13 ? finite : other));
}

static inline uint16_t tr_bf16_round(float x)
{
    const uint32_t infinity = 0x7f800000;
    uint32_t sign = tr_float_bits(x) >> 16 & 0x8000, a = tr_float_bits(x) & 0x7fffffff;
    uint32_t finite = (a + 0x7fff + (a >> 16 & 1)) >> 16;
    finite = finite < 0x7f7f ? finite : 0x7f7f;
    uint32_t other = a > infinity ? 0x40 | a >> 16 : 0x7f80;
    return (uint16_t)(sign | (a < infinity ? finite : other));
}

static inline float tr_bf16_widen(uint16_t h)
{
    return tr_bits_float((uint32_t)h << 16);
}

static inline uint8_t tr_f8_round(float x)
{
    uint32_t h = tr_f16_round(x), a = h & 0x7fff, finite = (a + 0x7f + (a >> 8 & 1)) >> 8;
    finite = finite < 0x7b ? finite : 0x7b;
    uint32_t other = a >> 8 | (a > 0x7c00);
    return (uint8_t)((h & 0x8000) >> 8 | (a < 0x7c00 ? finite : other));
}

static inline float tr_f8_widen(uint8_t b)
{
    return tr_f16_widen((uint16_t)(b << 8));
}

/* ======== encodings ========
 *
 * A slice of n units × width elements, packed, is written in one of three encodings:
 *
 *   dense   all units
 *   sparse  the units that are not zero, and their places as gaps: the number of units left out since the previous unit, in 1
 *           to 5 bytes (7 bits a byte, lowest first; the upper bit says that more follow)
 *   bitmap  the units that are not zero, and their places as a bit for each of the n
 *
 * Values are written in full or, if they are reals, rounded to f16, bf16 or f8. TR_ENCODING_AUTO chooses the shortest encoding, of
 * equally long ones the one that is decoded faster. A message is, in the byte order of the machine,
 *
 *   8 bytes   encoding, precision, element type, 0, and the number of units that follow (uint32)
 *   values    that number of units × width elements; they come first so that they are aligned
 *   places    nothing, gaps, or ⌈n / 64⌉ words
 *
 * Both ends know n, width and element type. The result does not depend on the encoding: the units with an element that is not zero
 * after rounding (-0 is a zero), bit by bit. Rounding loses nothing if the sender adds the rounding error to its next update: error
 * feedback (Seide et al. 2014, 1-bit SGD, section 3). */

/* The part of a message that both ends know. */
struct tr_slice {
    enum tr_dtype dtype;
    uint32_t n;   /* units */
    size_t width; /* elements of one, at least 1 */
};

/* Encoding and precision of a message. Integers are never rounded. */
struct tr_wire {
    int encoding, precision;
};

enum { TR_ENCODING_HEADER = 8 };

/* Bytes that tr_encode() may write: the longest message and working space. */
size_t tr_encode_room(const struct tr_slice *slice, struct tr_wire wire);

/* Writes the slice's value (n × width) to out and returns the bytes to be sent.
 *   residual  NULL, or n × width: rounding errors are added, except those of infinities and NaNs
 *   out       tr_encode_room() bytes, aligned to 8; overlaps nothing */
size_t tr_encode(const struct tr_slice *slice, struct tr_wire wire, const void *value, void *residual,
                 void *out);

/* A received message whose head has been checked; it points into the message. In a dense message in full, `value` is packed. */
struct tr_encoded {
    struct tr_slice slice;
    int encoding, precision;
    uint32_t count;                   /* units that follow */
    const void *value;                /* count × width, at the precision */
    const unsigned char *place, *end; /* end: of the message */
};

/* Opens bytes (aligned to 8) as a message of this slice. TR_ERR_PEER: they are not one. */
int tr_encoded_open(const void *bytes, size_t size, const struct tr_slice *slice, struct tr_encoded *message);

/* Writes all n units; units that are not in the message become zero. TR_ERR_PEER: the message is damaged, packed is undefined. */
int tr_decode_packed(const struct tr_encoded *message, void *packed);

/* Finds the values of all n units: in the message itself if they lie there, else decoded in *memory, which has `room` bytes and
 * grows. */
int tr_decode(const struct tr_encoded *message, char **memory, size_t *room, const void **value);

/* Lists the units of the message that are not zero, ascending, and their values (at most message->count of both). *n: their
 * number. TR_ERR_PEER as above. */
int tr_decode_units(const struct tr_encoded *message, uint32_t *unit, void *value, uint32_t *n);

/* ---- gaps: distances between ascending numbers, in 1 to 10 bytes each: 7 bits a byte, lowest first ---- */

enum { TR_GAP_BYTES = 10 };

/* Writes a number's distance from the previous one, and returns the end. */
static inline unsigned char *tr_put_gap(uint64_t gap, unsigned char *out)
{
    for (; gap >= 128; gap >>= 7) *out++ = (unsigned char)(gap | 128);
    *out++ = (unsigned char)gap;
    return out;
}

/* Reads the next distance; false: the bytes end or are malformed. */
static inline bool tr_take_gap(const unsigned char **at, const unsigned char *end, uint64_t *gap)
{
    *gap = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char byte = *(*at)++;
        *gap |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* ---- lists of ascending numbers: gaps, or the first number and a bitmap if that is shorter ---- */

/* Maximum number of bytes of n numbers. */
static inline size_t tr_ascending_room(uint32_t n)
{
    return 1 + TR_GAP_BYTES * ((size_t)n + 1);
}

/* Writes n ascending numbers; returns the number of bytes. */
size_t tr_put_ascending(uint32_t n, const uint64_t *number, unsigned char *out);

/* Reads exactly n numbers below a limit; false: the bytes are malformed. */
bool tr_take_ascending(const unsigned char *bytes, size_t size, uint64_t limit, uint32_t n, uint64_t *number);

/* ======== filters ========
 *
 * Filters select the units of an update that the worker holds back (PS: user-defined filters; Li et al. 2014b, "Communication
 * efficient distributed machine learning with the parameter server"). A unit is sent or held as a whole; |u| is the largest of its
 * elements, |w| that of its value as last pulled.
 *
 *   threshold    held if |u| < limit. DynSGD drops these (section 5.3: 1e-6); here they are only delayed
 *   significant  held if |u| < limit |w|: a parameter that is 0 is always sent
 *   kkt          for problems with α |w|₁: dropped if w = 0 and its gradient lies inside (-α + limit, α - limit), where a proximal
 *                step leaves w at 0. Not held, because the gradient is computed again in the next clock
 *   skip         held with probability `skip`, by a hash of seed, clock and unit, so that the result does not depend on the order
 *                or the slices in which an update is filtered
 *
 * Held units lie in `kept` and are added to the next update first: nothing is lost except units that kkt drops. A last update
 * without a filter (and at full precision) sends all of them. Values that are not finite are always sent.
 *
 * tr_filter_apply() adds kept and holds back units; then tr_encode() takes kept as its residual and adds the rounding errors. Both
 * take packed slices, so kept has the order of packed values. */

struct tr_filter {
    int kind;      /* one of TR_FILTER_NONE to TR_FILTER_SKIP (job/job.h) */
    double limit;  /* threshold: absolute; significant: relative to |w|; kkt: δ, how far inside α */
    double skip;   /* skip: a probability; 1 holds all, for ever */
    double alpha;  /* kkt: the factor of |w|₁ in this pusher's part of the objective */
    double scale;  /* kkt: u = scale × gradient, of any sign: the learning rate if updates are steps */
    uint64_t seed; /* skip: different for each pusher */
};

/* Units that were not zero, added up over calls. */
struct tr_filter_counts {
    uint64_t seen, held, dropped; /* held and dropped are parts of seen; the others were sent */
};

/* tr_filter_apply() reads `value`. */
static inline bool tr_filter_reads_value(const struct tr_filter *filter)
{
    return filter->kind == TR_FILTER_SIGNIFICANT || filter->kind == TR_FILTER_KKT;
}

/* Filters a slice of n × width elements in place.
 *   first   number of its first unit among those of the pusher
 *   clock   of the update
 *   value   the parameters, n × width; NULL if they are not read
 *   delta   in: the update; out: the units to be sent, zeros elsewhere
 *   kept    n × width, zeros at first; in and out: the residuals, which are held back */
void tr_filter_apply(const struct tr_filter *filter, const struct tr_slice *slice, uint64_t first,
                     int64_t clock, const void *value, void *delta, void *kept,
                     struct tr_filter_counts *counts);

#endif

/* Loops over elements of all types, and encodings and filters of values in messages.
 *
 * A segment (plan.h) lists the units of a view that are stored at one server. A buffer is packed if it contains the units of a
 * segment contiguously, in the order of the segment. Parameters: `share` is the memory of a share, and `position` the index of a
 * unit in it; `view` is the memory of a view, and `local` the index of a unit in it; `width` is the number of elements per unit. */
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

/* TR_FOR_TYPE(dtype, block) compiles the block for every element type T, and runs the version for dtype. */
#define TR_FOR_TYPE(dtype, ...)                                                                              \
    switch (dtype) {                                                                                         \
        TR_CASE_TYPE(TR_F32, float, __VA_ARGS__)                                                             \
        TR_CASE_TYPE(TR_F64, double, __VA_ARGS__)                                                            \
        TR_CASE_TYPE(TR_I32, int32_t, __VA_ARGS__)                                                           \
        TR_CASE_TYPE(TR_I64, int64_t, __VA_ARGS__)                                                           \
    }

/* TR_FOR_REAL() is TR_FOR_TYPE() for TR_F32 and TR_F64; for integers it does nothing. */
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

/* TR_FOR_SIZE(bytes, block) compiles the block for a variable SIZE, and for the constants 1, 2, 4 and 8, so that one instruction
 * moves a unit of that size. It runs the version for `bytes`. */
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

/* Whether all bits of a unit are zero. For a unit with -0 the result is false. Such a unit is sent needlessly, without other
 * effect. */
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

/* Copies the units of a segment from a share to a view: view[local[i]] = share[position[i]]. */
void tr_copy_segment(const struct tr_segment *s, size_t unit_bytes, const void *share, void *view);

/* Copies n units: to[i] = from[at[i]] or, if at is NULL, from[i]. */
void tr_gather(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);

/* Copies n units: to[at[i]] = from[i]. */
void tr_scatter(const uint32_t *at, size_t n, size_t unit_bytes, const void *from, void *to);

/* Copies n units of hash storage: packed[i] = slots[slot[i]], or zeros if slot[i] is TR_NO_SLOT. */
void tr_copy_slots_to_packed(const uint32_t *slot, size_t n, size_t unit_bytes, const void *slots,
                             void *packed);

/* Copies those of n packed units that are not all zeros. `unit` has the number of each unit; the numbers of units that are all
 * zeros are removed. Returns the number of remaining units. `to` may be `from`. */
uint32_t tr_leave_zeros_out(uint32_t n, size_t unit_bytes, uint32_t *unit, const void *from, void *to);

/* Sorts n entries by their upper 32 bits; the sort is stable. spare: memory for n entries. */
void tr_sort_by_upper_half(uint64_t *entry, uint64_t *spare, size_t n);

/* Adds n units: to[position[i]] += from[local[i]]. If local is NULL, from[i] is added; if position is NULL, to[i] += from[i]. */
void tr_add_units(enum tr_dtype dtype, const uint32_t *local, const uint32_t *position, size_t n,
                  size_t width, const void *from, void *to);

/* Adds n elements: to[i] += from[i]. */
void tr_add_elements(enum tr_dtype dtype, size_t n, const void *from, void *to);

/* ======== numbers of 16 and 8 bits ========
 *
 * f16 is IEEE 754 binary16 (5 bits of exponent, 10 of fraction), bf16 the upper half of an f32, f8 the upper half of an f16 (5 bits
 * of exponent, 2 of fraction), rounded to f16 first.
 *
 * Rounding is to nearest, ties to even. A finite number that is too large for the format becomes the largest finite number of the
 * format. Infinities and NaNs are kept, so that a diverged run is noticed. The functions use integer arithmetic without branches
 * and a few exact additions, so that compilers vectorise them and results are equal on all machines. */

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

/* Rounds a double to odd f32: towards zero, and with the last bit set if the result is inexact. Rounding the result to 16 bits is
 * equal to rounding the double itself, because the last bit distinguishes a tie from numbers next to it. */
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
    /* in [0.5, 1) the last bit of an f32 has the value of the last bit of a subnormal f16, so the addition rounds */
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
 * A slice is a packed array of n units × width elements. It is written in one of three encodings:
 *
 *   dense   all units
 *   sparse  the units that are not zero, and their places as gaps: the number of units left out since the previous unit, in 1
 *           to 5 bytes (7 bits per byte, lowest first; the upper bit says that another byte follows)
 *   bitmap  the units that are not zero, and their places as a bitmap of n bits
 *
 * Values are written in full or, if they are reals, rounded to f16, bf16 or f8. TR_ENCODING_AUTO chooses the shortest encoding, and
 * among equally short ones the fastest to decode. A message consists of, in the byte order of the machine,
 *
 *   8 bytes   encoding, precision, element type, 0, and the number of units that follow (uint32)
 *   values    that number of units × width elements; they come first so that they are aligned
 *   places    nothing, gaps, or ⌈n / 64⌉ words of the bitmap
 *
 * Sender and receiver know n, width and element type. The decoded values do not depend on the encoding: bit by bit, they are the
 * units with an element that is not zero after rounding (-0 is a zero). Rounding loses nothing if the sender adds the rounding
 * error to its next update: error feedback (Seide et al. 2014, 1-bit SGD, section 3). */

/* Size and type of a slice, which sender and receiver know. */
struct tr_slice {
    enum tr_dtype dtype;
    uint32_t n;   /* number of units */
    size_t width; /* elements per unit, at least 1 */
};

/* Encoding and precision of a message. Integers are never rounded. */
struct tr_wire {
    int encoding, precision;
};

enum { TR_ENCODING_HEADER = 8 };

/* Bytes that tr_encode() may write, including temporary data behind the message. */
size_t tr_encode_room(const struct tr_slice *slice, struct tr_wire wire);

/* Encodes the values of a slice as a message in `out`. Returns the size of the message in bytes.
 *   value     n × width elements
 *   residual  NULL, or n × width elements to which the rounding errors are added, except those of infinities and NaNs
 *   out       tr_encode_room() bytes, aligned to 8, not overlapping the other arrays */
size_t tr_encode(const struct tr_slice *slice, struct tr_wire wire, const void *value, void *residual,
                 void *out);

/* A received message whose head has been checked. The pointers point into the message. */
struct tr_encoded {
    struct tr_slice slice;
    int encoding, precision;
    uint32_t count;             /* number of units in the message */
    const void *value;          /* count × width elements of the message's precision */
    const unsigned char *place; /* the places of the units (gaps or bitmap), in sparse and bitmap encoding */
    const unsigned char *end;   /* end of the message */
};

/* Opens bytes (aligned to 8) as a message of this slice. TR_ERR_PEER: the bytes are not such a message. */
int tr_encoded_open(const void *bytes, size_t size, const struct tr_slice *slice, struct tr_encoded *message);

/* Decodes all n units of the slice; units that are not in the message become zero. TR_ERR_PEER: the message is damaged. */
int tr_decode_packed(const struct tr_encoded *message, void *packed);

/* Sets *value to the values of all n units. They lie in the message if it is dense and in full precision. Otherwise they are
 * decoded to *memory of *room bytes, which is enlarged if necessary. */
int tr_decode(const struct tr_encoded *message, char **memory, size_t *room, const void **value);

/* Decodes the units of the message that are not zero: writes *n ascending numbers of units to `unit` and their values to `value`.
 * Both need room for message->count units. TR_ERR_PEER as above. */
int tr_decode_units(const struct tr_encoded *message, uint32_t *unit, void *value, uint32_t *n);

/* ---- gaps: distances between ascending numbers, in 1 to 10 bytes each: 7 bits per byte, lowest first ---- */

enum { TR_GAP_BYTES = 10 };

/* Writes a gap to `out`, and returns the address behind it. */
static inline unsigned char *tr_put_gap(uint64_t gap, unsigned char *out)
{
    for (; gap >= 128; gap >>= 7) *out++ = (unsigned char)(gap | 128);
    *out++ = (unsigned char)gap;
    return out;
}

/* Reads the gap at *at, and advances *at; false: the bytes end or are malformed. */
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

/* ---- lists of ascending numbers: written as gaps, or as the first number and a bitmap if that is shorter ---- */

/* Maximum number of bytes for a list of n numbers. */
static inline size_t tr_ascending_room(uint32_t n)
{
    return 1 + TR_GAP_BYTES * ((size_t)n + 1);
}

/* Writes a list of n ascending numbers, and returns the number of bytes written. */
size_t tr_put_ascending(uint32_t n, const uint64_t *number, unsigned char *out);

/* Reads a list of n numbers; false: the bytes are malformed, or are not exactly n numbers below `limit`. */
bool tr_take_ascending(const unsigned char *bytes, size_t size, uint64_t limit, uint32_t n, uint64_t *number);

/* ======== filters ========
 *
 * A filter selects the units of an update that the worker holds back: does not send, but adds to its next update (PS: user-defined
 * filters; Li et al. 2014b, "Communication efficient distributed machine learning with the parameter server"). Below, u is a unit
 * of an update, w the unit's value as last pulled, and |x| the largest absolute value of the elements of x.
 *
 *   threshold    held back if |u| < limit. DynSGD drops such units (section 5.3: 1e-6)
 *   significant  held back if |u| < limit |w|; so a unit whose value is 0 is always sent
 *   kkt          for problems with α |w|₁: dropped if w = 0 and its gradient lies inside (-α + limit, α - limit), where a proximal
 *                step leaves w at 0. Not held back, because the gradient is computed again in the next clock
 *   skip         held back with probability `skip`, by a hash of seed, clock and unit, so that the result does not depend on the
 *                order or the slices in which an update is filtered
 *
 * Units that are held back are stored in `kept`, so nothing is lost except units that kkt drops. The last update of a stage sends
 * all of them, without a filter and in full precision. Values that are not finite are always sent.
 *
 * tr_filter_apply() adds kept to the update and holds back units; then tr_encode() adds the rounding errors to kept, as its
 * residual. Both functions take packed slices, so kept has the order of packed values. */

struct tr_filter {
    int kind;     /* one of TR_FILTER_NONE to TR_FILTER_SKIP (job/job.h) */
    double limit; /* limit of threshold, significant and kkt, as above */
    double skip;  /* skip: probability; with 1, units are held back until the last update */
    double alpha; /* kkt: α in the part of the objective whose gradients this pusher computes */
    /* kkt: quotient u / gradient, which may be negative; the learning rate if updates are steps */
    double scale;
    uint64_t seed; /* skip: seed of the hash, different for each pusher */
};

/* Numbers of units that were not zero, summed over all calls of tr_filter_apply(). */
struct tr_filter_counts {
    uint64_t seen, held, dropped; /* seen: all such units; seen - held - dropped: units that were sent */
};

/* Returns whether tr_filter_apply() reads its argument `value`. */
static inline bool tr_filter_reads_value(const struct tr_filter *filter)
{
    return filter->kind == TR_FILTER_SIGNIFICANT || filter->kind == TR_FILTER_KKT;
}

/* Filters a slice of n × width elements in place.
 *   first   index of the slice's first unit in the segment of the pusher
 *   clock   clock of the update
 *   value   n × width parameters as last pulled; may be NULL if tr_filter_reads_value() is false
 *   delta   in: the update; out: the units to be sent, and zeros for all others
 *   kept    n × width residuals, zeros before the first call; in and out: the units that are held back */
void tr_filter_apply(const struct tr_filter *filter, const struct tr_slice *slice, uint64_t first,
                     int64_t clock, const void *value, void *delta, void *kept,
                     struct tr_filter_counts *counts);

#endif

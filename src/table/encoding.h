/* How the values of a message are written: which units, and with how many bits.
 *
 * A slice of n units × width elements, packed, most of them perhaps zeros, is written in one of three ways:
 *
 *   dense   all units
 *   sparse  the units that are not zero; where they lie, as gaps of 1 to 5 bytes (7 bits a byte, lowest first, the
 *           upper bit says that more follow): the units left out since the unit before
 *   bitmap  the units that are not zero; where they lie, as a bit for each of the n
 *
 * with values in full or, if they are reals, rounded to f16, bf16 or f8 (half.h). Which way is left to TR_ENCODING_AUTO:
 * exact counts decide, equals for the one that is read faster. A message is
 *
 *   8 bytes   encoding, precision, element type, 0, and how many units follow (uint32)
 *   values    that many units × width elements
 *   places    nothing, gaps, or ⌈n / 64⌉ words
 *
 * in the byte order of the machine, as all messages. n, width and element type are known at both ends; values come
 * first so that they are aligned.
 *
 * The way makes no difference to what arrives: the units of which some element is not zero after rounding (-0 is a
 * zero), with their values to the last bit. In a list of units they are just these, even from a dense message.
 *
 * Rounding loses nothing if the sender keeps what it took and adds it to its next update: error feedback, as Seide et
 * al. 2014 (1-bit SGD), section 3.
 */
#ifndef TR_TABLE_ENCODING_H
#define TR_TABLE_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "job/job.h" /* TR_ENCODING_…, TR_PRECISION_… */
#include "trireme/table.h"

/* What both ends know of a message. */
struct tr_slice {
    enum tr_dtype dtype;
    uint32_t n;   /* units */
    size_t width; /* elements of one, at least 1 */
};

/* How its sender wants it written. Integers travel in full whatever the precision. */
struct tr_wire {
    int encoding, precision;
};

enum { TR_ENCODING_HEADER = 8 };

/* Bytes that tr_encode() needs room for: no message is longer, and some serve it as working space. */
size_t tr_encode_room(const struct tr_slice *slice, struct tr_wire wire);

/* Writes the slice's value (n × width) to out and returns the bytes to be sent.
 *   touched   NULL, or a list of touched_n units (in any order, repeats are fine) outside of which all is zero: where
 *             it is short, the rest is not looked at
 *   residual  NULL, or n × width: what rounding took is added; nothing is for infinities and NaNs
 *   out       tr_encode_room() bytes, aligned to 8; overlaps nothing */
size_t tr_encode(const struct tr_slice *slice, struct tr_wire wire, const void *value,
                 const uint32_t *touched, size_t touched_n, void *residual, void *out);

/* A message that has arrived, its head checked. Points into it: the values of a dense message in full are packed values
 * as they lie there. */
struct tr_encoded {
    struct tr_slice slice;
    int encoding, precision;
    uint32_t count;                   /* units that follow */
    const void *value;                /* count × width, at the precision */
    const unsigned char *place, *end; /* end: of the message */
};

/* Opens any bytes (aligned to 8) as a message of this slice. TR_ERR_PEER: they are none. */
int tr_encoded_open(const void *bytes, size_t size, const struct tr_slice *slice, struct tr_encoded *message);

/* Writes all n units, zeros where nothing came. TR_ERR_PEER, with anything in packed: it is no message after all. */
int tr_decode_packed(const struct tr_encoded *message, void *packed);

/* Lists the units that came and are not zero, ascending, and their values: room for message->count of both. *n: how
 * many. TR_ERR_PEER as above. */
int tr_decode_units(const struct tr_encoded *message, uint32_t *unit, void *value, uint32_t *n);

/* ---- gaps: ascending numbers, as the distances between them, of 1 to 10 bytes each: 7 bits a byte, lowest first ---- */

enum { TR_GAP_BYTES = 10 };

/* Writes a number's distance from the one before; the end of what is written. */
static inline unsigned char *tr_put_gap(uint64_t gap, unsigned char *out)
{
    for (; gap >= 128; gap >>= 7) *out++ = (unsigned char)(gap | 128);
    *out++ = (unsigned char)gap;
    return out;
}

/* Reads the next; false where the bytes end or are none. */
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

/* ---- lists of ascending numbers: as gaps, or as a bitmap behind the first of them where that is shorter ---- */

/* Bytes of n numbers at most. */
static inline size_t tr_ascending_room(uint32_t n)
{
    return 1 + TR_GAP_BYTES * ((size_t)n + 1);
}

/* Writes n numbers that ascend; bytes. */
size_t tr_put_ascending(uint32_t n, const uint64_t *number, unsigned char *out);

/* Reads just n numbers below a limit; false: these bytes are none. */
bool tr_take_ascending(const unsigned char *bytes, size_t size, uint64_t limit, uint32_t n, uint64_t *number);

#endif

/* Numbers of 16 bits: f16 (IEEE 754 binary16: 5 bits of exponent, 10 of fraction) and bf16 (the upper half of an f32);
 * and of 8: f8 (the upper half of an f16: 5 bits of exponent, 2 of fraction), rounded to f16 first.
 *
 * Rounding is to nearest, ties to even. A finite number too large for the format becomes its largest finite one, never
 * an infinity; infinities and NaNs are kept, so that a diverged run is seen. Everything is integer
 * arithmetic without branches, apart from a few exact additions, so that compilers vectorise it: each result is the
 * same on every machine, and the same as that of the processor's own instructions except at the overflow.
 */
#ifndef TR_TABLE_HALF_H
#define TR_TABLE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

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

/* The f32 next to a double, rounded to odd: towards zero, and the last bit set where anything was lost. Rounding that
 * once more to 16 bits gives what rounding the double itself would: the odd bit tells a tie from its neighbours. */
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
    /* behind 0.5 the last bit of an f32 is worth as much as the last of a small f16: the addition rounds */
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

#endif

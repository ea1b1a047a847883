/* Reading numbers out of text, as fast as we can.
 *
 * Digits are found and converted eight at a time inside one 64-bit word, without a branch that depends on
 * how many there are: numbers of changing length cost no mispredictions. Two conditions on the text: it ends
 * with a byte that belongs to no number (a newline), and 16 bytes behind that may be read. Whoever includes
 * this defines _GNU_SOURCE first (for strtof_l).
 */
#ifndef TR_DATA_NUMBER_H
#define TR_DATA_NUMBER_H

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Keeps a condition a branch. The time goes into waiting for the place where the next number begins; what a
 * branch predicts need not be waited for, what is computed must be. */
#define TR_RARELY(condition) __builtin_expect((condition), 0)

/* ---- eight digits at once ---- */

/* The first character is the lowest byte, on every machine. */
static inline uint64_t tr_load8(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* How many of the eight characters are digits before the first that is none. Adding and subtracting carry
 * into higher bytes only, so the lowest marked byte is always right. */
static inline unsigned tr_leading_digits(uint64_t word)
{
    uint64_t others = ((word + 0x4646464646464646u) | (word - 0x3030303030303030u)) & 0x8080808080808080u;
    return others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* The value of the first n <= 8 digits. They move to the high bytes, where zeros come in before them; then
 * pairs, fours and eights are joined by multiplication. */
static inline uint64_t tr_digits_value(uint64_t word, unsigned n)
{
    const uint64_t mask = 0x000000ff000000ffu;
    unsigned half = 4 * (8 - n); /* twice, since a shift by 64 is not defined */
    word = ((word - 0x3030303030303030u) << half) << half;
    word = word * 10 + (word >> 8);
    return (((word & mask) * 0x000f424000000064u) + (((word >> 16) & mask) * 0x0000271000000001u)) >> 32;
}

static inline bool tr_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- whole numbers ---- */

#define TR_WHOLE_MAX ((uint64_t)1 << 48) /* larger whole numbers are read as this */

/* Reads on a whole number of more than eight digits. */
static inline const char *tr_read_long_whole(const char *p, uint64_t *number)
{
    for (; tr_is_digit(*p); p++) {
        *number = *number * 10 + (uint64_t)(*p - '0');
        if (*number > TR_WHOLE_MAX) *number = TR_WHOLE_MAX;
    }
    return p;
}

/* Reads digits and returns what follows; p itself if there is no digit. */
static inline const char *tr_read_whole(const char *p, uint64_t *number)
{
    uint64_t word = tr_load8(p);
    unsigned n = tr_leading_digits(word);
    *number = tr_digits_value(word, n);
    return n < 8 ? p + n : tr_read_long_whole(p + 8, number);
}

/* ---- decimal numbers ---- */

/* Digits go into the mantissa while it has room for them (at least 18), the others only into the exponent.
 * Each digit counts `step` (0 before the point, -1 behind) for the exponent, one more if it is dropped. */
static inline const char *tr_read_mantissa(const char *p, uint64_t *mantissa, long step, long *exponent)
{
    while (*mantissa < 10000000000u) {
        uint64_t word = tr_load8(p);
        unsigned n = tr_leading_digits(word);
        if (n < 8) break;
        *mantissa = *mantissa * 100000000u + tr_digits_value(word, 8);
        *exponent += 8 * step;
        p += 8;
    }
    for (; tr_is_digit(*p); p++) {
        bool room = *mantissa < 1000000000000000000u;
        if (room) *mantissa = *mantissa * 10 + (uint64_t)(*p - '0');
        *exponent += step + !room;
    }
    return p;
}

/* Reads e-7 and the like, if a digit comes; otherwise there is no exponent and the number ends before. */
static inline const char *tr_read_exponent(const char *p, long *exponent)
{
    if ((*p | 32) != 'e') return p;
    const char *digits = p + 1 + (p[1] == '-' || p[1] == '+');
    if (!tr_is_digit(*digits)) return p;
    long size = 0;
    for (const char *q = digits;; q++) {
        if (!tr_is_digit(*q)) {
            *exponent += p[1] == '-' ? -size : size;
            return q;
        }
        if (size < 1000000000) size = size * 10 + (*q - '0');
    }
}

/* The nearest float to a number that stands at p and is difficult: the library's reading, with a point for
 * a point whatever the user's language. */
static inline float tr_read_by_library(const char *p)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* costs nothing for "C" */
    float value = strtof_l(p, NULL, c);
    freelocale(c);
    return value;
}

/* mantissa * 10^exponent as a double with an error of a few units in its last place: the mantissa and each
 * step round once. */
static inline double tr_scale_roughly(uint64_t mantissa, long exponent)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double x = (double)mantissa;
    for (; exponent < -22; exponent += 22) x /= ten[22];
    for (; exponent > 22; exponent -= 22) x *= ten[22];
    return exponent < 0 ? x / ten[-exponent] : x * ten[exponent];
}

/* Whether every number within 16 units in the last place of x rounds to the same normal float: x must not
 * be near the middle between two floats, and these lie where the 29 bits that float lacks are 100…0. */
static inline bool tr_rounds_safely(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t from_middle = (bits & 0x1fffffffu) - 0x10000000u + 16;
    return from_middle > 32 && x > 1.2e-38 && x < 3.4e38;
}

/* Any decimal number; see tr_read_float(). */
__attribute__((noinline, unused)) static const char *tr_read_any_float(const char *p, float *value)
{
    const char *start = p;
    bool negative = *p == '-';
    p += negative || *p == '+';
    const char *digits = p;
    uint64_t mantissa = 0;
    long exponent = 0;
    p = tr_read_mantissa(p, &mantissa, 0, &exponent);
    ptrdiff_t n = p - digits;
    if (*p == '.') {
        digits = ++p;
        p = tr_read_mantissa(p, &mantissa, -1, &exponent);
        n += p - digits;
    }
    if (n == 0) return NULL;
    p = tr_read_exponent(p, &exponent);
    double x = exponent >= -80 && exponent <= 60 ? tr_scale_roughly(mantissa, exponent) : 0;
    if (mantissa == 0) *value = negative ? -0.0f : 0.0f;
    else if (tr_rounds_safely(x)) *value = (float)(negative ? -x : x);
    else *value = tr_read_by_library(start);
    return p;
}

/* Reads a decimal number ([+-]digits[.digits][e[+-]digits], with a digit before or behind the point) and
 * returns what follows, or NULL if there is none. The value is the nearest float; infinity if too large.
 *
 * Up to 7 digits on both sides of the point, and no exponent, are read here: the quotient of two exact
 * doubles is rounded to double and again to float, and with so few digits the first rounding cannot reach
 * the middle between two floats without having been there exactly. All others go to tr_read_any_float().
 * Most values have a sign seldom and one digit before the point, or are one digit: these are guessed, not computed. */
static inline const char *tr_read_float(const char *p, float *value)
{
    static const double sign[] = {1, -1};
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
    static const uint64_t whole_ten[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    const char *q = p;
    bool negative = *q == '-';
    if (TR_RARELY(negative || *q == '+')) q++;
    unsigned n = 1, places = 0;
    uint64_t mantissa, word;
    if (q[1] < '.' && tr_is_digit(*q)) { /* one digit, and a comma, a blank or the line's end */
        *value = (float)((double)(*q - '0') * sign[negative]);
        return q + 1;
    }
    if (q[1] == '.' && tr_is_digit(*q)) {
        mantissa = (uint64_t)(*q - '0');
    } else {
        word = tr_load8(q);
        n = tr_leading_digits(word);
        mantissa = tr_digits_value(word, n);
    }
    q += n;
    if (*q == '.') {
        word = tr_load8(++q);
        places = tr_leading_digits(word);
        mantissa = mantissa * whole_ten[places] + tr_digits_value(word, places);
        q += places;
    }
    if (n == 8 || places == 8 || n + places == 0 || (*q | 32) == 'e') return tr_read_any_float(p, value);
    *value = (float)((double)(int64_t)mantissa / ten[places] * sign[negative]);
    return q;
}

#endif

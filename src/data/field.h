/* Fields of lines of text: numbers, read as fast as possible, quotes, and their form in messages.
 *
 * Digits are found and converted eight at a time in one 64-bit word, without a branch that depends on their number: numbers of
 * varying length cause no mispredictions. Two conditions on the text: it ends with a byte that belongs to no number (a newline),
 * and 16 bytes behind that are readable. A line ends with a newline or CRLF.
 */
#ifndef TR_DATA_FIELD_H
#define TR_DATA_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/escape.h"

/* Keeps a condition a branch. Most time is spent on waiting for the position of the next number: a predicted branch need not be
 * waited for, a computed value must be. */
#define TR_RARELY(condition) __builtin_expect((condition), 0)

/* ---- eight digits in one word ---- */

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

/* Counts the digits among the eight characters before the first other one. Additions and subtractions carry into higher bytes
 * only, so the lowest marked byte is always right. */
static inline unsigned tr_leading_digits(uint64_t word)
{
    uint64_t others = ((word + 0x4646464646464646u) | (word - 0x3030303030303030u)) & 0x8080808080808080u;
    return others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* Returns the value of the first n <= 8 digits. They move to the high bytes, with zeros before them; then pairs, fours and
 * eights are joined by multiplication. */
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

/* Reads digits and returns the end of the number; p itself if there is no digit. */
static inline const char *tr_read_whole(const char *p, uint64_t *number)
{
    uint64_t word = tr_load8(p);
    unsigned n = tr_leading_digits(word);
    *number = tr_digits_value(word, n);
    if (n < 8) return p + n;
    for (p += 8; tr_is_digit(*p); p++) {
        *number = *number * 10 + (uint64_t)(*p - '0');
        if (*number > TR_WHOLE_MAX) *number = TR_WHOLE_MAX;
    }
    return p;
}

/* ---- decimal numbers ---- */

/* A number and its end in the text, NULL if there is none. */
struct tr_number {
    const char *end;
    float value;
};

/* Reads any decimal number; see tr_read_float(). It returns the value in a register: a pointer would keep the caller's variable
 * in memory, and loops that parse would be 10 % slower. */
struct tr_number tr_read_any_float(const char *p);

/* Reads a decimal number ([+-]digits[.digits][e[+-]digits], with a digit before or after the point) and returns its end, or
 * NULL if there is none. The value is the nearest float; infinity if too large.
 *
 * Up to 7 digits on both sides of the point, and no exponent, are read here: the quotient of two exact doubles is rounded to
 * double and again to float, and with so few digits the first rounding cannot reach the middle between two floats unless the
 * quotient is exactly there. tr_read_any_float() reads all others. Most values have no sign and one digit before the point, or
 * are one digit: these forms are predicted, not computed. */
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
    if (n == 8 || places == 8 || n + places == 0 || (*q | 32) == 'e') {
        struct tr_number any = tr_read_any_float(p);
        *value = any.value;
        return any.end;
    }
    *value = (float)((double)(int64_t)mantissa / ten[places] * sign[negative]);
    return q;
}

/* ---- fields ---- */

#define TR_TOKEN_ROOM 64

/* Separators are these or the characters themselves. */
enum { TR_SEPARATOR_BLANKS = ' ' /* any number of blanks and tabs */, TR_SEPARATOR_COLONS = ':' /* :: */ };

static inline bool tr_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline const char *tr_skip_blanks(const char *p)
{
    while (tr_is_blank(*p)) p++;
    return p;
}

static inline bool tr_at_line_end(const char *p)
{
    return *p == '\n' || (*p == '\r' && p[1] == '\n');
}

/* A blank beside a field, unless it separates fields. */
static inline bool tr_is_padding(char c, char separator)
{
    return c != separator && (c == ' ' || (c == '\t' && separator != ' '));
}

/* Whether a field ends here: a separator or the end of the line. */
static inline bool tr_token_ends(const char *p, char separator)
{
    if (tr_at_line_end(p)) return true;
    if (separator == TR_SEPARATOR_COLONS) return *p == ':' && p[1] == ':';
    return *p == separator || (separator == TR_SEPARATOR_BLANKS && *p == '\t');
}

/* Moves from the end of a field to the next one. False at the end of the line, which may have blanks that separate nothing. Not
 * for TR_SEPARATOR_COLONS, so that csv is faster. */
static inline bool tr_next_field(const char **at, char separator)
{
    const char *p = *at;
    bool more = *p == separator || (separator == TR_SEPARATOR_BLANKS && *p == '\t');
    if (separator == TR_SEPARATOR_BLANKS && more) {
        while (tr_is_blank(*p)) p++;
        more = !tr_at_line_end(p);
    } else if (more) {
        p++;
    }
    *at = p;
    return more;
}

/* The same for all separators. */
static inline bool tr_next_any_field(const char **at, char separator)
{
    if (separator != TR_SEPARATOR_COLONS) return tr_next_field(at, separator);
    bool more = !tr_at_line_end(*at);
    *at += more ? 2 : 0;
    return more;
}

/* A byte that does not occur in text. Letters beyond ASCII do. */
static inline bool tr_is_binary(char c)
{
    return (c >= 0 && c < ' ' && c != '\t' && c != '\r') || c == 0x7f;
}

static inline bool tr_token_is_binary(const char *p, char separator)
{
    for (; !tr_token_ends(p, separator); p++)
        if (tr_is_binary(*p)) return true;
    return false;
}

/* A field of a line, without quotes and blanks around it. */
struct tr_field {
    const char *text, *end; /* end: of the field with quotes and blanks, a separator or the end of the line */
    size_t n;
    bool quoted, doubled; /* in quotes; each "" inside is one quote */
};

/* In quotes every byte is text except the end of the line; quotes that do not begin a field are text. Returns an error text or
 * NULL. */
static inline const char *tr_read_field(const char *p, char separator, struct tr_field *f)
{
    while (tr_is_padding(*p, separator)) p++;
    *f = (struct tr_field){.quoted = *p == '"', .text = p + (*p == '"')};
    if (!f->quoted) {
        for (; !tr_token_ends(p, separator); p++)
            if (tr_is_binary(*p)) return "found bytes that are not text";
        f->n = (size_t)(p - f->text);
        while (f->n > 0 && tr_is_padding(f->text[f->n - 1], separator)) f->n--;
        f->end = p;
        return NULL;
    }
    for (p++; *p != '"' || p[1] == '"'; p++) {
        if (tr_at_line_end(p)) return "opens a quote that does not close in this line";
        if (tr_is_binary(*p)) return "found bytes that are not text";
        if (*p != '"') continue;
        f->doubled = true;
        p++;
    }
    f->n = (size_t)(p++ - f->text);
    while (tr_is_padding(*p, separator)) p++;
    f->end = p;
    return tr_token_ends(p, separator) ? NULL : "found text behind the quote that closes";
}

/* Copies the text of a field to at most f->n bytes, with one quote for each doubled one; returns its length. */
static inline size_t tr_field_copy(const struct tr_field *f, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        to[n++] = f->text[i];
        i += f->doubled && f->text[i] == '"';
    }
    return n;
}

/* nan or inf, in any case, with a sign. */
static inline bool tr_token_is_special(const char *p)
{
    p += *p == '-' || *p == '+';
    return strncasecmp(p, "nan", 3) == 0 || strncasecmp(p, "inf", 3) == 0;
}

/* Formats the field for a message: escaped, cut at 40 bytes. */
static inline void tr_token_quote(const char *p, char separator, char quoted[TR_TOKEN_ROOM])
{
    const char *end = p;
    while (end - p < TR_TOKEN_ROOM && !tr_token_ends(end, separator)) end++;
    tr_escape(quoted, 40 + sizeof "…", p, (size_t)(end - p));
}

#endif

/* Fields of lines of text: fast conversion of numbers, quotes, and how error texts show fields. A token is a field as it stands in
 * the text; struct tr_field is its content without quotes and blanks.
 *
 * Digits are found and converted eight at a time in one 64-bit word, without a branch that depends on how many there are: numbers
 * of varying length cause no mispredictions. The caller's text must end with a byte that belongs to no number (a newline), and 16
 * more bytes must be readable behind it. A line ends with a newline or CRLF.
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
#include "data/dialect.h"

/* Makes the compiler test a rare condition with a branch, not with a conditional move. The position of the next number depends on
 * the test: the processor predicts a branch, but waits for a computed value. */
#define TR_RARELY(condition) __builtin_expect((condition), 0)

/* ---- eight digits in one word ---- */

/* Loads eight characters. The first one is the lowest byte of the result, on machines of either byte order. */
static inline uint64_t tr_load8(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Returns how many of the eight characters are digits before the first other character. The highest bit marks bytes that are not
 * digits. Carries go to higher bytes only, so the lowest marked byte is always right. */
static inline unsigned tr_leading_digits(uint64_t word)
{
    uint64_t others = ((word + 0x4646464646464646u) | (word - 0x3030303030303030u)) & 0x8080808080808080u;
    return others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* Returns the value of the first n <= 8 digits. The digits are shifted to the high bytes, behind zeros. Multiplications then
 * combine digits to pairs, pairs to fours, and fours to eight digits. */
static inline uint64_t tr_digits_value(uint64_t word, unsigned n)
{
    const uint64_t mask = 0x000000ff000000ffu;
    unsigned half = 4 * (8 - n); /* half of the shift: C does not define a shift by 64 (n = 0) */
    word = ((word - 0x3030303030303030u) << half) << half;
    word = word * 10 + (word >> 8);
    return (((word & mask) * 0x000f424000000064u) + (((word >> 16) & mask) * 0x0000271000000001u)) >> 32;
}

static inline bool tr_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- whole numbers ---- */

#define TR_WHOLE_MAX ((uint64_t)1 << 48) /* tr_read_whole() returns this for larger numbers */

/* Reads digits. Returns the end of the number, or p if there is no digit. */
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

/* A number and the address of its end in the text; end is NULL if the text is no number. */
struct tr_number {
    const char *end;
    float value;
};

/* The slow part of tr_read_float(): reads all forms of numbers. The value is returned in a register: with a pointer the caller's
 * variable would stay in memory, and loops that parse would be 10 % slower. */
struct tr_number tr_read_any_float(const char *p);

/* Reads a decimal number ([+-]digits[.digits][e[+-]digits], with a digit before or after the point) and returns its end, or
 * NULL if there is none. The value is the nearest float; infinity if too large.
 *
 * Up to 7 digits on both sides of the point, and no exponent, are read here: the quotient of two exact doubles is rounded to double
 * and again to float, and with so few digits the first rounding cannot reach the middle between two floats unless the quotient is
 * exactly there. tr_read_any_float() reads all other forms. Most values are one digit, or have no sign and one digit before the
 * point: for these forms there are branches, which the processor predicts. */
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
    if (q[1] < '.' && tr_is_digit(*q)) { /* one digit before a comma, a blank or the end of the line */
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

/* A separator is a character. These two characters stand for longer separators. */
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

/* Returns whether c is a blank or a tab that may stand around a field, since it does not separate fields. */
static inline bool tr_is_padding(char c, char separator)
{
    return c != separator && (c == ' ' || (c == '\t' && separator != ' '));
}

/* Returns whether p points to a separator or to the end of the line. */
static inline bool tr_token_ends(const char *p, char separator)
{
    if (tr_at_line_end(p)) return true;
    if (separator == TR_SEPARATOR_COLONS) return *p == ':' && p[1] == ':';
    return *p == separator || (separator == TR_SEPARATOR_BLANKS && *p == '\t');
}

/* Moves *at from the end of a field to the next field. Returns false at the end of the line, also if blanks precede it.
 * TR_SEPARATOR_COLONS is not supported, so that reading csv is faster. */
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

/* Does the same as tr_next_field(), and supports TR_SEPARATOR_COLONS. */
static inline bool tr_next_any_field(const char **at, char separator)
{
    if (separator != TR_SEPARATOR_COLONS) return tr_next_field(at, separator);
    bool more = !tr_at_line_end(*at);
    *at += more ? 2 : 0;
    return more;
}

/* Returns whether a byte never occurs in text. Bytes above 127 may be a part of UTF-8 letters. */
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
    /* text: the n bytes of the field; end: the separator or the end of the line behind the field */
    const char *text, *end;
    size_t n;
    /* quoted: the field was in quotes; doubled: its text contains "", which means one quote */
    bool quoted, doubled;
};

/* Returns whether the first quote inside of a field that does not begin with one, at `quote`, closes in another field of the line. Then
 * a separator before the quote is probably missing. */
static inline bool tr_quote_is_torn(const char *quote, char separator)
{
    const char *p = quote + 1, *before;
    bool divided = false;
    for (; !tr_at_line_end(p) && (*p != '"' || p[1] == '"'); p += 1 + (*p == '"'))
        divided = divided || tr_token_ends(p, separator);
    for (before = p - 1; tr_is_padding(*before, separator);) before--;
    return *p == '"' && divided && tr_token_ends(p + 1, separator) && !tr_token_ends(before, separator);
}

/* Finds the field that begins at p. Separators between quotes are text, and quotes inside of a field that does not begin with a
 * quote. Returns NULL, or a text that describes why the field is malformed. */
static inline const char *tr_read_field(const char *p, char separator, struct tr_field *f)
{
    while (tr_is_padding(*p, separator)) p++;
    *f = (struct tr_field){.quoted = *p == '"', .text = p + (*p == '"')};
    if (!f->quoted) {
        const char *quote = NULL;
        for (; !tr_token_ends(p, separator); p++) {
            if ((unsigned char)*p >= '#' && *p != 0x7f) continue; /* most bytes */
            if (tr_is_binary(*p)) return "found bytes that are not text";
            if (*p == '"' && !quote) quote = p;
        }
        if (TR_RARELY(quote != NULL) && tr_quote_is_torn(quote, separator))
            return "has a quote that closes in another column: a separator is missing, or data.quote=none is "
                   "needed";
        f->n = (size_t)(p - f->text);
        while (f->n > 0 && tr_is_padding(f->text[f->n - 1], separator)) f->n--;
        f->end = p;
        return NULL;
    }
    for (p++; *p != '"' || p[1] == '"'; p++) {
        if (tr_at_line_end(p))
            return "opens a quote that does not close in this line: see data.newlines=yes (line ends in quotes), "
                   "data.quote=none (quotes are text), data.quote=single";
        if (tr_is_binary(*p) && *p != TR_QUOTED_NEWLINE) return "found bytes that are not text";
        if (*p != '"') continue;
        f->doubled = true;
        p++;
    }
    f->n = (size_t)(p++ - f->text);
    while (tr_is_padding(*p, separator)) p++;
    f->end = p;
    return tr_token_ends(p, separator) ? NULL : "found text behind the quote that closes";
}

/* Copies the text of a field, with one quote for each doubled one, to `to`, where f->n bytes are enough. Returns the length. */
static inline size_t tr_field_copy(const struct tr_field *f, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        to[n++] = f->text[i];
        i += f->doubled && f->text[i] == '"';
    }
    return n;
}

/* Returns whether the token is nan or inf, in upper or lower case, possibly after a sign. */
static inline bool tr_token_is_special(const char *p)
{
    p += *p == '-' || *p == '+';
    if (strncasecmp(p, "nan", 3) != 0 && strncasecmp(p, "inf", 3) != 0) return false;
    p += strncasecmp(p, "infinity", 8) == 0 ? 8 : 3;
    return strchr(" \t\r\n,;:|\"", *p); /* also at the end of a string */
}

/* Writes a field into `quoted` as error texts show it: unprintable bytes are escaped, and the text is cut at 40 bytes. */
static inline void tr_token_quote(const char *p, char separator, char quoted[TR_TOKEN_ROOM])
{
    const char *end = p;
    while (end - p < TR_TOKEN_ROOM && !tr_token_ends(end, separator)) end++;
    tr_escape(quoted, 40 + sizeof "…", p, (size_t)(end - p));
}

#endif

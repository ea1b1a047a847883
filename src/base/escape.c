#define _GNU_SOURCE
#include "base/escape.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

size_t tr_utf8_decode(const char *text, size_t n, uint32_t *character)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) return *character = c[0], 1;
    size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || length > n) return 0;
    uint32_t code = c[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    static const uint32_t least[] = {[2] = 0x80, [3] = 0x800, [4] = 0x10000};
    if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    *character = code;
    return length;
}

bool tr_utf8_valid(const char *text)
{
    uint32_t character;
    size_t n = strlen(text);
    for (size_t at = 0, length; at < n; at += length) {
        length = tr_utf8_decode(text + at, n - at, &character);
        if (!length) return false;
    }
    return true;
}

/* Returns whether the character is printed unchanged: it is printable and does not affect its neighbours. */
static bool visible_is_printable(uint32_t c)
{
    static const uint32_t hidden[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f}, {0x2028, 0x202e},
        {0x2066, 0x2069}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1]) return false;
    return true;
}

/* ---- the visible form ---- */

/* The visible form of one character, with `length` bytes; the character itself has `bytes` bytes in the text. */
struct visible {
    char form[12];
    size_t length, bytes;
};

static struct visible visible_next(const char *text, size_t n)
{
    uint32_t c;
    struct visible v = {.bytes = tr_utf8_decode(text, n, &c)};
    if (v.bytes > 0 && visible_is_printable(c)) {
        memcpy(v.form, text, v.length = v.bytes);
        return v;
    }
    if (v.bytes > 0 && c == '\v') { /* a line end in a field of a table (data/dialect.h) */
        memcpy(v.form, "\\n", v.length = 2);
        return v;
    }
    const char *format = v.bytes == 0 || c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (v.bytes == 0) c = (unsigned char)*text, v.bytes = 1;
    v.length = (size_t)snprintf(v.form, sizeof v.form, format, c);
    return v;
}

size_t tr_escape(char *to, size_t size, const char *text, size_t n)
{
    static const char more[] = "\u2026"; /* an ellipsis */
    size_t at = 0, fits = 0;             /* fits: greatest length so far behind which an ellipsis fits */
    for (size_t i = 0; i < n;) {
        struct visible v = visible_next(text + i, n - i);
        if (at + v.length >= size) {
            memcpy(to + fits, more, sizeof more);
            return fits + sizeof more - 1;
        }
        memcpy(to + at, v.form, v.length);
        at += v.length;
        if (at + sizeof more <= size) fits = at;
        i += v.bytes;
    }
    to[at] = '\0';
    return at;
}

struct tr_shown tr_shown(const char *text)
{
    struct tr_shown shown;
    tr_escape(shown.text, sizeof shown.text, text, strlen(text));
    return shown;
}

/* Prints the visible form of n bytes. The character `twice` is printed twice, the character `kept` unchanged; 0: no such
 * character. */
static void visible_put(FILE *file, const char *text, size_t n, char twice, char kept)
{
    for (size_t i = 0; i < n;) {
        struct visible v = visible_next(text + i, n - i);
        if (kept && text[i] == kept) fputc(kept, file);
        else fwrite(v.form, 1, v.length, file);
        if (twice && text[i] == twice) fputc(twice, file);
        i += v.bytes;
    }
}

void tr_put_visible(FILE *file, const char *text, size_t n)
{
    visible_put(file, text, n, 0, 0);
}

void tr_put_lines(FILE *file, const char *text)
{
    visible_put(file, text, strlen(text), 0, '\n');
}

/* Keeps the line feeds of the format. If the result has more line feeds than the format, arguments contain some: then only the line
 * feeds at the start and the end of the format are kept. */
int tr_vprintf(FILE *file, const char *format, va_list arguments)
{
    char usual[1024], *text = usual;
    va_list again;
    va_copy(again, arguments);
    int n = vsnprintf(usual, sizeof usual, format, arguments);
    if (n >= (int)sizeof usual) n = vasprintf(&text, format, again);
    va_end(again);
    if (n < 0) return n;
    size_t length = (size_t)n, lead = strspn(format, "\n"), trail = 0, feeds = 0, wanted = 0, plain = 0;
    for (size_t i = strlen(format); i > lead && format[i - 1] == '\n'; i--) trail++;
    for (const char *f = format; *f; f++) wanted += *f == '\n';
    for (size_t i = 0; i < length; i++) {
        feeds += text[i] == '\n';
        plain += (text[i] >= ' ' && text[i] <= '~') || text[i] == '\n';
    }
    if (feeds == wanted && plain == length) {
        fwrite(text, 1, length, file);
    } else {
        fwrite(text, 1, lead, file);
        visible_put(file, text + lead, length - lead - trail, 0, feeds == wanted ? '\n' : 0);
        fwrite(text + length - trail, 1, trail, file);
    }
    if (text != usual) free(text);
    return ferror(file) ? -1 : n;
}

int tr_printf(FILE *file, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = tr_vprintf(file, format, arguments);
    va_end(arguments);
    return n;
}

/* ---- quotes ---- */

void tr_put_quoted(FILE *file, const char *text)
{
    size_t n = strlen(text), length;
    fputc('"', file);
    for (size_t i = 0; i < n; i += length ? length : 1) {
        uint32_t c;
        length = tr_utf8_decode(text + i, n - i, &c);
        if (!length) c = 0xfffd;
        if (c == '"' || c == '\\') fputc('\\', file);
        if (length && (visible_is_printable(c) || c > 0xffff)) fwrite(text + i, 1, length, file);
        else fprintf(file, "\\u%04x", c);
    }
    fputc('"', file);
}

void tr_put_real(FILE *file, double number)
{
    char text[40];
    int digits = 14;
    do snprintf(text, sizeof text, "%.*g", ++digits, number);
    while (digits < 17 && strtod(text, NULL) != number);
    fprintf(file, "%.*g", digits, number);
}

void tr_put_csv(FILE *file, const char *text)
{
    bool quoted = strpbrk(text, ",\"") != NULL;
    if (quoted) fputc('"', file);
    visible_put(file, text, strlen(text), '"', 0);
    if (quoted) fputc('"', file);
}

void tr_put_gnuplot(FILE *file, const char *text)
{
    fputc('\'', file);
    visible_put(file, text, strlen(text), '\'', 0);
    fputc('\'', file);
}

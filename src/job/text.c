#include "job/text.h"

#include <string.h>

#include "base/base.h"

size_t tr_utf8_decode(const char *text, uint32_t *character)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80) return *character = c[0], 1;
    size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4) return 0;
    uint32_t code = c[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((c[i] & 0xc0) != 0x80) return 0; /* the final NUL stops here, too */
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
    for (size_t length; *text; text += length) {
        length = tr_utf8_decode(text, &character);
        if (!length) return false;
    }
    return true;
}

/* Characters that a line can hold as they are, in a terminal and in YAML. */
static bool is_printable(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return false; /* control characters */
    if (c == 0x2028 || c == 0x2029) return false;          /* line breaks */
    return c != 0xfeff && (c < 0xfffe || c > 0xffff);      /* byte order marks */
}

/* The length of the first character if it is valid and printable, else 0. */
static size_t printable(const char *text)
{
    uint32_t character;
    size_t length = tr_utf8_decode(text, &character);
    return length && is_printable(character) ? length : 0;
}

struct tr_shown tr_shown(const char *text)
{
    static const char more[] = "…";
    struct tr_shown shown;
    size_t n = 0;
    while (*text) {
        size_t length = printable(text);
        if (n + tr_max_size(length, 1) + sizeof more > sizeof shown.text) {
            memcpy(shown.text + n, more, sizeof more);
            return shown;
        }
        if (length) memcpy(shown.text + n, text, length);
        else shown.text[n] = '?';
        n += tr_max_size(length, 1);
        text += tr_max_size(length, 1);
    }
    shown.text[n] = '\0';
    return shown;
}

void tr_put_line(FILE *file, const char *text)
{
    for (size_t length; *text; text += tr_max_size(length, 1)) {
        length = printable(text);
        if (length) fwrite(text, 1, length, file);
        else fputc('?', file);
    }
}

struct tr_shown tr_shown_words(const char *const *words)
{
    struct tr_shown shown = {""};
    for (size_t i = 0, n = 0; words[i] && n < sizeof shown.text; i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(shown.text + n, sizeof shown.text - n, "%s%s", between, words[i]);
    }
    return shown;
}

void tr_put_quoted(FILE *file, const char *text)
{
    uint32_t character;
    fputc('"', file);
    for (size_t length; *text; text += length) {
        length = tr_utf8_decode(text, &character);
        if (!length) break;
        if (character == '"' || character == '\\') fputc('\\', file);
        if (is_printable(character)) fwrite(text, 1, length, file);
        else fprintf(file, "\\u%04x", character); /* all that are not printable fit four digits */
    }
    fputc('"', file);
}

size_t tr_edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    size_t n = strlen(a), m = strlen(b), cost[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) cost[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        cost[i][0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = tr_min_size(change, 1 + tr_min_size(cost[i - 1][j], cost[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = tr_min_size(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[n][m];
}

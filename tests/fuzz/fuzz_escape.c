/* Feeds base/escape.h any text: what each form promises to its reader must hold. The readers here are written for this test. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "fuzz.h"

/* What a function prints for the text, to be freed. */
static char *printed(void (*put)(FILE *file, const char *text), const char *text, size_t *n)
{
    char *form = NULL;
    FILE *file = open_memstream(&form, n);
    put(file, text);
    fclose(file);
    return form;
}

static void put_all(FILE *file, const char *text)
{
    tr_put_visible(file, text, strlen(text));
}

static void put_formatted(FILE *file, const char *text)
{
    DEMAND(tr_printf(file, "\n«%s»: %s\n", text, text) >= 0);
}

/* Valid UTF-8 without characters that a terminal acts on, apart from line feeds where they are allowed. */
static void check_harmless(const char *form, size_t n, bool feeds)
{
    DEMAND(strlen(form) == n);
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t c = 0;
        length = tr_utf8_decode(form + i, n - i, &c);
        expect(length > 0, "not UTF-8");
        expect(c >= 0x20 || (feeds && c == '\n'), "a control character");
        expect(c < 0x7f || c > 0x9f, "a C1 control character");
        expect((c < 0x202a || c > 0x202e) && (c < 0x2066 || c > 0x2069) && c != 0x200e && c != 0x200f &&
                   c != 0x61c,
               "a character that changes the direction of text");
        expect(c != 0x2028 && c != 0x2029 && c != 0xfeff, "a line separator or byte order mark");
    }
}

/* The text that a JSON string stands for. */
static char *read_json(const char *p, const char *end)
{
    char *text = malloc((size_t)(end - p) + 1), *to = text;
    expect(*p++ == '"', "no quote begins it");
    for (; *p != '"'; p++) {
        expect(p < end && (unsigned char)*p >= 0x20, "not a JSON string");
        unsigned c = 0;
        if (*p != '\\') {
            *to++ = *p;
        } else if (p[1] == '"' || p[1] == '\\') {
            *to++ = *++p;
        } else {
            expect(p[1] == 'u' && sscanf(p + 2, "%4x", &c) == 1, "not an escape of JSON");
            p += 5;
            if (c < 0x80) *to++ = (char)c;
            if (c >= 0x80 && c < 0x800) *to++ = (char)(0xc0 | c >> 6), *to++ = (char)(0x80 | (c & 0x3f));
            if (c >= 0x800)
                *to++ = (char)(0xe0 | c >> 12), *to++ = (char)(0x80 | (c >> 6 & 0x3f)),
                *to++ = (char)(0x80 | (c & 0x3f));
        }
    }
    DEMAND(p + 1 == end);
    *to = '\0';
    return text;
}

/* The text with U+FFFD for each byte that is not UTF-8. */
static char *replaced(const char *text)
{
    size_t n = strlen(text), at = 0;
    char *to = malloc(3 * n + 1);
    for (size_t i = 0, length; i < n; i += length ? length : 1) {
        uint32_t c;
        length = tr_utf8_decode(text + i, n - i, &c);
        memcpy(to + at, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
        at += length ? length : 3;
    }
    to[at] = '\0';
    return to;
}

/* What stands between quotes of which two stand for one; a quote alone must not stand inside. */
static char *unquoted(const char *form, size_t n, char quote)
{
    char *text = malloc(n + 1), *to = text;
    for (size_t i = 1; i + 1 < n; i++) {
        if (form[i] == quote) expect(i + 2 < n && form[++i] == quote, "a quote that ends the string");
        *to++ = form[i];
    }
    *to = '\0';
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), cut[64];
    size_t n, length;
    memcpy(text, data, size);
    text[size] = '\0';
    char *visible = printed(put_all, text, &n);
    check_harmless(visible, n, false);

    size_t least = size ? 4 + data[0] % (sizeof cut - 4) : 4;
    DEMAND(tr_escape(cut, least, text, strlen(text)) < least);
    check_harmless(cut, strlen(cut), false);
    DEMAND(n >= least || strcmp(cut, visible) == 0);
    (void)tr_fail(TR_ERR_DATA, "%s", text);
    check_harmless(tr_error_text(), strlen(tr_error_text()), false);

    char *form = printed(tr_put_lines, text, &length);
    check_harmless(form, length, true);
    free(form);
    form = printed(put_formatted, text, &length);
    check_harmless(form, length, true);
    DEMAND(form[0] == '\n' && strchr(form + 1, '\n') == form + length - 1);
    free(form);

    form = printed(tr_put_quoted, text, &length);
    char *read = read_json(form, form + length), *expected = replaced(text);
    DEMAND(strcmp(read, expected) == 0 && tr_utf8_valid(form));
    TR_FREE_ALL(read, expected, form);

    form = printed(tr_put_gnuplot, text, &length);
    check_harmless(form, length, false);
    DEMAND(length >= 2 && form[0] == '\'' && form[length - 1] == '\'');
    read = unquoted(form, length, '\'');
    DEMAND(strcmp(read, visible) == 0);
    TR_FREE_ALL(read, form);

    form = printed(tr_put_csv, text, &length);
    check_harmless(form, length, false);
    bool quoted = form[0] == '"';
    DEMAND(quoted || !strpbrk(form, ",\""));
    read = quoted ? unquoted(form, length, '"') : strdup(form);
    DEMAND(strcmp(read, visible) == 0);
    TR_FREE_ALL(read, form, visible, text);
    return 0;
}

/* Fields of lines of text, and how to show them in messages. A line ends with a newline or CRLF. */
#ifndef TR_DATA_TOKEN_H
#define TR_DATA_TOKEN_H

#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

#define TR_TOKEN_ROOM 64

static inline bool tr_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool tr_at_line_end(const char *p)
{
    return *p == '\n' || (*p == '\r' && p[1] == '\n');
}

/* A blank beside a field, unless it is what separates fields. */
static inline bool tr_is_padding(char c, char separator)
{
    return c != separator && (c == ' ' || (c == '\t' && separator != ' '));
}

/* A field ends here: the separator (':' stands for ::, ' ' for any number of blanks and tabs), or the line's end. */
static inline bool tr_token_ends(const char *p, char separator)
{
    if (tr_at_line_end(p)) return true;
    if (separator == ':') return *p == ':' && p[1] == ':';
    return *p == separator || (separator == ' ' && *p == '\t');
}

/* A byte that text does not hold. Letters beyond ASCII do occur in text. */
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

/* nan or inf, as many programs write them. */
static inline bool tr_token_is_special(const char *p)
{
    p += *p == '-' || *p == '+';
    return strncasecmp(p, "nan", 3) == 0 || strncasecmp(p, "inf", 3) == 0;
}

/* The field for a message: at most 40 characters, those that are not printable as \x.. */
static inline void tr_token_quote(const char *p, char separator, char quoted[TR_TOKEN_ROOM])
{
    size_t n = 0;
    for (; n < 40 && !tr_token_ends(p, separator); p++) {
        if (*p >= ' ' && *p <= '~') quoted[n++] = *p;
        else n += (size_t)sprintf(quoted + n, "\\x%02x", (unsigned)(unsigned char)*p);
    }
    if (n >= 40) n += (size_t)sprintf(quoted + n, "…");
    quoted[n] = 0;
}

#endif

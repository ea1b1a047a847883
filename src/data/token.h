/* Fields of lines of text, and how to show them in messages. A line ends with a newline or CRLF. */
#ifndef TR_DATA_TOKEN_H
#define TR_DATA_TOKEN_H

#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

#include "base/escape.h"

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

/* A field of a line, without quotes and blanks around it. */
struct tr_field {
    const char *text,
        *end; /* of the field with what is around it: a separator or the line's end stands there */
    size_t n;
    bool quoted, doubled; /* in quotes; each "" inside stands for one */
};

/* Inside quotes all is text but the end of the line; quotes that do not begin a field are text. Returns what is wrong, or NULL. */
static inline const char *tr_take_field(const char *p, char separator, struct tr_field *f)
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

/* The text of a field with doubled quotes, into as many bytes; returns its length. */
static inline size_t tr_undouble(const struct tr_field *f, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        to[n++] = f->text[i];
        i += f->text[i] == '"';
    }
    return n;
}

/* nan or inf, as many programs write them. */
static inline bool tr_token_is_special(const char *p)
{
    p += *p == '-' || *p == '+';
    return strncasecmp(p, "nan", 3) == 0 || strncasecmp(p, "inf", 3) == 0;
}

/* The field for a message: its visible form, cut at 40 bytes. */
static inline void tr_token_quote(const char *p, char separator, char quoted[TR_TOKEN_ROOM])
{
    const char *end = p;
    while (end - p < TR_TOKEN_ROOM && !tr_token_ends(end, separator)) end++;
    tr_escape(quoted, 40 + sizeof "…", p, (size_t)(end - p));
}

#endif

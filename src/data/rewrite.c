/* Rewrites text of any dialect to the usual form, field by field, in buffers that stay in the cache of the processor. */
#define _GNU_SOURCE
#include "data/dialect.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "data/field.h"
#include "data/input.h"
#include "data/split.h"

enum {
    PIECE = 1 << 17,          /* stored bytes that are read at once */
    LONGEST_QUOTED = 1 << 20, /* a quote that does not close within these bytes and line ends is malformed */
    MOST_HEADERS = 16
};

struct tr_rewriter {
    struct tr_dialect d;
    const struct tr_column_form *form;
    size_t forms;
    bool fields;    /* fields are rewritten; false: only characters */
    bool numbers;   /* numbers of all columns are rewritten */
    bool begun;     /* the byte order mark has been dropped */
    bool ended;     /* the end of the file has been reached */
    char separator; /* of the rewritten text */
    /* characters that may end a field, or a field in quotes */
    bool stop[256], quote_stop[256];
    bool
        simple; /* most fields are rewritten by rewrite_simple(), except those that begin with these characters */
    bool slow[256];

    unsigned char
        *raw; /* stored bytes of an encoding other than UTF-8; raw_n of them are an incomplete character */
    size_t raw_n;
    char *in; /* text; in_at: the first byte that is not rewritten */
    size_t in_at, in_n, in_capacity;
    char *out; /* rewritten text; out_at: the first byte that is not yet read */
    size_t out_at, out_n, out_capacity;

    size_t field;      /* index of the next field in its line */
    bool open;         /* the line has another field, because the text before it ends with a separator */
    uint32_t skip;     /* lines above the header that are still to be dropped */
    uint32_t header;   /* lines of names that are still to be read */
    uint8_t *form_of;  /* for each field 1 + index of its form; 0: none */
    size_t form_known; /* number of fields whose form is known */
    size_t form_capacity;
};

/* ---- dialects ---- */

static bool delimiter_is_usual(char c)
{
    return c == '\0' || strchr(",;\t ", c) || c == TR_SEPARATOR_COLONS;
}

char tr_dialect_separator(const struct tr_dialect *d)
{
    return delimiter_is_usual(d->delimiter) ? d->delimiter : ',';
}

static bool dialect_has_other_fields(const struct tr_dialect *d, size_t forms)
{
    return d->delimiter &&
           (forms > 0 || !delimiter_is_usual(d->delimiter) || d->quote != '"' || d->escape || d->comment ||
            d->decimal == ',' || d->thousands || d->newlines || d->units || d->unnamed || d->skip_lines > 0 ||
            (d->header > 1 && d->header < TR_DIALECT_COUNT));
}

bool tr_dialect_is_usual(const struct tr_dialect *d, size_t forms)
{
    return d->encoding <= TR_UTF8 && !d->cr && !dialect_has_other_fields(d, forms);
}

/* ---- characters ---- */

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) return *to = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; --i > 0; c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    *to = (char)(0xf00u >> n | c);
    return n;
}

/* Characters of Windows-1252 that differ from Latin-1: 0x80 .. 0x9f. Bytes without a character stand for themselves. */
static const uint16_t windows[32] = {0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                     0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,   0x017d, 0x8f,
                                     0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                     0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};

/* Appends the characters of n stored bytes to the text. Returns the number of bytes used: all except an incomplete character. */
static size_t decode(struct tr_rewriter *r, const unsigned char *p, size_t n)
{
    char *to = r->in + r->in_n;
    size_t at = 0;
    if (r->d.encoding == TR_LATIN1) {
        for (; at < n; at++) to += put_utf8(to, p[at] - 0x80u < 32 ? windows[p[at] - 0x80u] : p[at]);
    } else {
        size_t low = r->d.encoding == TR_UTF16_BE; /* index of the lower byte of a unit */
        for (; at + 2 <= n; at += 2) {
            uint32_t c = p[at + low] | (uint32_t)p[at + !low] << 8;
            if (c >> 10 == 0x36) { /* the first half of a pair */
                if (at + 4 > n && !r->ended) break;
                uint32_t second = at + 4 > n ? 0 : p[at + 2 + low] | (uint32_t)p[at + 2 + !low] << 8;
                bool pair = second >> 10 == 0x37;
                c = pair ? 0x10000 + ((c & 0x3ff) << 10 | (second & 0x3ff)) : 0xfffd;
                at += pair ? 2 : 0;
            } else if (c >> 10 == 0x37) {
                c = 0xfffd;
            }
            to += put_utf8(to, c);
        }
    }
    r->in_n = (size_t)(to - r->in);
    return at;
}

/* ---- numbers and dates ---- */

/* Returns the length of the mark between groups of digits at p; 0: there is none. A blank also stands for spaces that do not break. */
static size_t group_mark(const char *p, size_t n, char thousands)
{
    if (n > 0 && thousands && *p == thousands) return 1;
    if (thousands != ' ' || n < 2) return 0;
    if (memcmp(p, "\u00a0", 2) == 0) return 2;
    return n >= 3 && memcmp(p, "\u202f", 3) == 0 ? 3 : 0;
}

/* Writes a number with these marks as the parsers read it. Returns its length; 0: the text is no such number. */
static size_t put_number(const char *p, size_t n, char decimal, char thousands, char *to)
{
    size_t m = 0, digits = 0, run = 0, i = 0, mark;
    bool grouped = false, fraction = false;
    if (i < n && (*p == '-' || *p == '+')) to[m++] = p[i++];
    for (; i < n; i++) {
        if (tr_is_digit(p[i])) {
            to[m++] = p[i];
            digits++;
            run++;
        } else if (p[i] == decimal && !fraction && (!grouped || run == 3)) {
            to[m++] = '.';
            fraction = true;
        } else if (!fraction && run > 0 && (grouped ? run == 3 : run <= 3) &&
                   (mark = group_mark(p + i, n - i, thousands)) > 0) {
            grouped = true;
            run = 0;
            i += mark - 1;
        } else if ((p[i] | 32) == 'e' && digits > 0) {
            size_t first = i + 1 + (i + 1 < n && (p[i + 1] == '-' || p[i + 1] == '+'));
            for (size_t k = first; k < n; k++)
                if (!tr_is_digit(p[k])) return 0;
            if (first >= n) return 0;
            memcpy(to + m, p + i, n - i);
            m += n - i;
            break;
        } else {
            return 0;
        }
    }
    return digits > 0 && (fraction || !grouped || run == 3) ? m : 0;
}

/* Removes blanks from both ends of a text, and the marks of `strip`, which are separated by blanks. */
static void strip_marks(const char **text, const char **end, const char *strip)
{
    const char *p = *text, *q = *end;
    for (bool found = true; found;) {
        found = false;
        while (p < q && tr_is_blank(*p)) p++;
        while (q > p && tr_is_blank(q[-1])) q--;
        for (const char *mark = strip; mark && *mark && !found; mark += strspn(mark, " ")) {
            size_t n = strcspn(mark, " ");
            if (n > 0 && (size_t)(q - p) >= n && memcmp(p, mark, n) == 0) p += n, found = true;
            else if (n > 0 && (size_t)(q - p) >= n && memcmp(q - n, mark, n) == 0) q -= n, found = true;
            mark += n;
        }
    }
    *text = p;
    *end = q;
}

/* Reads a date in a format of the letters Y, m, d, H, M, S and other characters, as seconds since 1970. */
static bool date_read(const char *p, size_t n, const char *format, double *seconds)
{
    static const char letters[] = "YmdHMS";
    int part[] = {2000, 1, 1, 0, 0, 0};
    const char *end = p + n;
    for (; *format; format++) {
        const char *letter = strchr(letters, *format == 'y' ? 'Y' : *format);
        int value = 0, digits = 0, most = letter == letters ? 4 : 2;
        for (; letter && p < end && digits < most && tr_is_digit(*p); p++, digits++)
            value = value * 10 + (*p - '0');
        if (letter ? digits == 0 : p == end || *p++ != *format) return false;
        if (letter == letters && digits < 3) value += value < 70 ? 2000 : 1900;
        if (letter) part[letter - letters] = value;
    }
    struct tm tm = {.tm_year = part[0] - 1900, .tm_mon = part[1] - 1, .tm_mday = part[2]};
    *seconds = (double)timegm(&tm) + part[3] * 3600 + part[4] * 60 + part[5];
    return p == end && tm.tm_mon == part[1] - 1 && tm.tm_mday == part[2] && part[3] < 24 && part[4] < 60 &&
           part[5] <= 60;
}

/* ---- fields ---- */

/* A field of the text. */
struct span {
    const char *text, *end; /* its content, without quotes */
    const char *next;       /* the separator or the end of the line behind it, or the end of the text */
    bool quoted;
    bool broken; /* a quote does not close, or text follows it: the rest of the line is the content */
    bool simple; /* quoted: no escapes and no line ends */
    size_t newlines;
};

static bool at_delimiter(const struct tr_rewriter *r, const char *p)
{
    if (r->d.delimiter == TR_SEPARATOR_COLONS) return *p == ':' && p[1] == ':';
    return *p == r->d.delimiter || (r->d.delimiter == ' ' && *p == '\t');
}

/* Finds the field at p. *end is a newline. Returns false if more text is needed. last: there is no more text. */
static inline bool span_find(const struct tr_rewriter *r, const char *p, const char *end, bool last,
                             struct span *s)
{
    const char *q = p;
    *s = (struct span){.text = p, .simple = true};
    while (tr_is_padding(*q, r->d.delimiter)) q++;
    if (*q != r->d.quote || !r->d.quote) {
        for (q = p;; q++) {
            while (!r->stop[(unsigned char)*q]) q++;
            if (*q == '\n' || at_delimiter(r, q)) break;
        }
        if (q >= end && !last) return false;
        s->next = q;
        s->end = q - (*q == '\n' && q > p && q[-1] == '\r');
        return true;
    }
    s->quoted = true;
    s->text = ++q;
    for (;; q++) {
        while (!r->quote_stop[(unsigned char)*q]) q++;
        if (q + 1 >= end && !last) return false;
        if (*q == '\n') {
            if (q >= end || !r->d.newlines || q - p > LONGEST_QUOTED) break;
            s->newlines++;
            s->simple = false;
        } else if (*q == r->d.escape && (q[1] == r->d.quote || q[1] == r->d.escape) && q + 1 < end) {
            s->simple = false;
            q++;
        } else if (*q == r->d.quote && q[1] == r->d.quote && q + 1 < end) {
            q++;
        } else if (*q == r->d.quote) {
            s->end = q;
            s->next = q + 1;
            while (tr_is_padding(*s->next, r->d.delimiter)) s->next++;
            if (s->next + (*s->next == '\r') >= end && !last) return false;
            if (tr_at_line_end(s->next) || at_delimiter(r, s->next)) return true;
            if (!r->d.apostrophes) break;
        }
    }
    s->broken = true;
    s->text = p;
    s->newlines = 0;
    s->next = s->end = memchr(p, '\n', (size_t)(end - p) + 1);
    return s->next < end || last;
}

/* Returns the character at *p of the content of a field, without escapes, and advances *p. newline: stands for a line end. */
static inline char span_char(const struct tr_rewriter *r, const struct span *s, const char **p, char newline)
{
    char c = *(*p)++, next = *p < s->end ? **p : '\0';
    bool escapes = s->quoted && !s->broken && next && (c == r->d.escape || c == r->d.quote);
    if (escapes && (next == r->d.quote || next == r->d.escape)) c = *(*p)++;
    if (c == '\r' && next == '\n') c = *(*p)++;
    return c == '\n' ? newline : c;
}

/* Writes the content in double quotes; without the second one if the field is broken, so that the parser refuses it. */
static char *put_quoted(const struct tr_rewriter *r, const struct span *s, char *to)
{
    if (r->d.quote == '"' && s->quoted && (s->simple || s->broken)) {
        size_t n = (size_t)(s->end - s->text) + (s->broken ? 0 : 2);
        memcpy(to, s->text - !s->broken, n);
        return to + n;
    }
    *to++ = '"';
    for (const char *p = s->text; p < s->end;) {
        *to = span_char(r, s, &p, TR_QUOTED_NEWLINE);
        if (*to++ == '"') *to++ = '"';
    }
    if (!s->broken) *to++ = '"';
    return to;
}

/* Returns whether an unquoted text must be in quotes in the rewritten text. */
static bool needs_quotes(const struct tr_rewriter *r, const char *text, const char *end)
{
    if (r->separator != r->d.delimiter && memchr(text, r->separator, (size_t)(end - text))) return true;
    return r->d.quote != '"' && memchr(text, '"', (size_t)(end - text));
}

static char *put_text(const struct tr_rewriter *r, const struct span *s, char *to)
{
    if (s->quoted || needs_quotes(r, s->text, s->end)) return put_quoted(r, s, to);
    memcpy(to, s->text, (size_t)(s->end - s->text));
    return to + (s->end - s->text);
}

const char *const tr_date_parts[] = {"days", "month", "weekday", "hour"};

static size_t date_fields(const struct tr_column_form *form)
{
    return form->date == TR_DATE_TIME ? 4 : 3;
}

/* Writes the numbers of a date: days since 2000-01-01, month, weekday (Monday: 1) and hour. A text that is no date is written for
 * each of them: it may stand for a missing value, or the parser refuses it. */
static char *put_date(const struct tr_rewriter *r, const struct tr_column_form *form, const struct span *s,
                      char *to)
{
    double seconds;
    struct tm tm;
    const char *text = s->text, *end = s->end;
    strip_marks(&text, &end, form->strip);
    size_t n = (size_t)(end - text);
    bool good =
        form->format ? date_read(text, n, form->format, &seconds) : tr_split_read_date(text, n, &seconds);
    time_t whole = good ? (time_t)seconds - (seconds < (double)(time_t)seconds) : 0;
    if (good && gmtime_r(&whole, &tm)) {
        double days = (seconds - 946684800) / 86400;
        to += snprintf(to, 48, "%.10g%c%d%c%d", days, r->separator, tm.tm_mon + 1, r->separator,
                       tm.tm_wday ? tm.tm_wday : 7);
        return to + (form->date == TR_DATE_TIME ? snprintf(to, 16, "%c%d", r->separator, tm.tm_hour) : 0);
    }
    for (size_t k = 0; k < date_fields(form); k++) {
        if (k > 0) *to++ = r->separator;
        if (k > 0 && s->newlines > 0)
            *to++ = '?'; /* only one copy has the line ends, so that lines are counted right */
        else to = put_text(r, s, to);
    }
    return to;
}

static const struct tr_column_form *form_of_field(struct tr_rewriter *r, size_t field)
{
    for (; r->form_known <= field; r->form_known++) { /* columns without names */
        char number[24];
        snprintf(number, sizeof number, "%zu", r->form_known + 1);
        if (TR_GROW(&r->form_of, &r->form_capacity, r->form_known + 1) != TR_OK) return NULL;
        r->form_of[r->form_known] = 0;
        for (size_t i = r->forms; i-- > 0;)
            if (strcmp(r->form[i].name, number) == 0) r->form_of[r->form_known] = (uint8_t)(i + 1);
    }
    return r->form_of[field] ? &r->form[r->form_of[field] - 1] : NULL;
}

/* Writes a field. The buffer has room for four copies of it, with each quote doubled. */
static inline char *put_field(struct tr_rewriter *r, const struct span *s, char *to)
{
    const struct tr_column_form *form = r->forms > 0 ? form_of_field(r, r->field) : NULL;
    if ((form || r->numbers) && !s->broken) {
        char decimal = form && form->decimal ? form->decimal : r->d.decimal,
             thousands = form && form->thousands ? form->thousands : r->d.thousands;
        const char *text = s->text, *end = s->end;
        if (form && form->date) return put_date(r, form, s, to);
        strip_marks(&text, &end, form ? form->strip : NULL);
        size_t n =
            text < end && *text <= '9' ? put_number(text, (size_t)(end - text), decimal, thousands, to) : 0;
        if (n > 0) return to + n;
    }
    return put_text(r, s, to);
}

static int reserve(struct tr_rewriter *r, size_t bytes)
{
    return r->out_n + bytes <= r->out_capacity ? TR_OK : TR_GROW(&r->out, &r->out_capacity, r->out_n + bytes);
}

/* Passes the separator at p, or several blanks. Returns NULL if more text is needed, or the end of the line if only blanks precede
 * it. */
static const char *behind_delimiter(const struct tr_rewriter *r, const char *p, const char *end, bool last)
{
    if (r->d.delimiter != ' ') return p + 1 + (r->d.delimiter == TR_SEPARATOR_COLONS);
    p = tr_skip_blanks(p);
    return p + 1 >= end && !last ? NULL : p;
}

/* ---- lines ---- */

/* Chooses the form of a column by its name. Names have priority over patterns. */
static uint8_t form_named(const struct tr_rewriter *r, const char *name)
{
    for (int pattern = 0; pattern < 2; pattern++)
        for (size_t i = 0; i < r->forms; i++)
            if (pattern ? fnmatch(r->form[i].name, name, 0) == 0 : strcmp(r->form[i].name, name) == 0)
                return (uint8_t)(i + 1);
    return 0;
}

/* Writes the name of a column in quotes, with the names of all its numbers if it has dates. */
static int header_put_name(struct tr_rewriter *r, const char *name, size_t n)
{
    uint8_t form = form_named(r, name);
    TR_TRY(TR_GROW(&r->form_of, &r->form_capacity, r->form_known + 1));
    TR_TRY(reserve(r, 4 * (2 * n + 16)));
    char *to = r->out + r->out_n;
    size_t parts = form > 0 && r->form[form - 1].date ? date_fields(&r->form[form - 1]) : 0;
    if (r->form_known > 0) *to++ = r->separator;
    r->form_of[r->form_known++] = form;
    for (size_t k = 0; k < tr_max_size(parts, 1); k++) {
        if (k > 0) *to++ = r->separator;
        *to++ = '"';
        for (size_t i = 0; i < n; i++) {
            if (name[i] == '"') *to++ = '"';
            *to++ = name[i];
        }
        if (parts > 0) to += snprintf(to, 16, ".%s", tr_date_parts[k]);
        *to++ = '"';
    }
    r->out_n = (size_t)(to - r->out);
    return TR_OK;
}

/* Returns whether the line from p to its end is empty. */
static bool line_is_blank(const struct tr_rewriter *r, const char *p, const char *end)
{
    while (p < end && (tr_is_padding(*p, r->d.delimiter) || *p == ' ' || *p == '\r')) p++;
    return p == end || *p == '\n';
}

/* Returns the begin of the next line; NULL: it is not in the text. */
static const char *behind_newline(const char *p, const char *end, bool last)
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));
    return newline ? newline + 1 : last ? end : NULL;
}

/* Finds the end of a line of fields, and counts its line ends. Returns NULL if more text is needed. */
static const char *header_end(const struct tr_rewriter *r, const char *p, const char *end, bool last,
                              size_t *newlines)
{
    struct span s;
    for (;;) {
        if (!span_find(r, p, end, last, &s)) return NULL;
        *newlines += s.newlines;
        p = s.next;
        if (p >= end) return end;
        if (tr_at_line_end(p)) {
            ++*newlines;
            return end - p > 1 + (*p == '\r') ? p + 1 + (*p == '\r') : end;
        }
        if (!(p = behind_delimiter(r, p, end, last))) return NULL;
    }
}

/* Writes the lines of names and units as one line of names, after empty lines, so that the number of lines is preserved. Returns the
 * end of these lines; NULL: more text is needed, or *status is an error. */
static const char *rewrite_header(struct tr_rewriter *r, const char *p, const char *end, bool last,
                                  int *status)
{
    const char *line[MOST_HEADERS];
    size_t lines = 0, newlines = 0, capacity = 0;
    const size_t names = tr_min_size(r->header, MOST_HEADERS);
    for (bool units = r->d.units; (lines < names || units) && p < end;) {
        bool dropped = line_is_blank(r, p, end) || (*p && *p == r->d.comment);
        if (!dropped && lines == names) units = false, dropped = true;
        if (!dropped) line[lines++] = r->d.delimiter == ' ' ? tr_skip_blanks(p) : p;
        if (dropped) newlines++, p = behind_newline(p, end, last);
        else p = header_end(r, p, end, last, &newlines);
        if (!p || (p == end && !last)) return NULL;
    }
    TR_FREED char *name = NULL;
    *status = reserve(r, newlines);
    if (*status != TR_OK) return NULL;
    for (; newlines > 1; newlines--) r->out[r->out_n++] = '\n';
    *status = TR_GROW(&name, &capacity, (size_t)(end - line[0]) + MOST_HEADERS + 1);
    if (*status == TR_OK && r->d.unnamed) *status = header_put_name(r, "", 0);
    for (bool more = true; more && *status == TR_OK;) {
        size_t n = 0;
        more = false;
        for (size_t i = 0; i < lines; i++) {
            struct span s;
            if (!line[i]) continue; /* this line has fewer fields */
            (void)span_find(r, line[i], end, true, &s);
            strip_marks(&s.text, &s.end, NULL);
            if (n > 0 && s.text < s.end) name[n++] = ' ';
            for (const char *q = s.text; q < s.end;) name[n++] = span_char(r, &s, &q, ' ');
            bool ends = s.next >= end || tr_at_line_end(s.next);
            line[i] = ends ? NULL : behind_delimiter(r, s.next, end, true);
            if (line[i] && r->d.delimiter == ' ' && tr_at_line_end(line[i])) line[i] = NULL;
            more = more || line[i];
        }
        name[n] = '\0';
        *status = header_put_name(r, name, n);
    }
    if (*status == TR_OK) *status = reserve(r, 1);
    if (*status != TR_OK) return NULL;
    r->out[r->out_n++] = '\n';
    r->header = 0;
    return p;
}

/* Passes lines that are dropped, and those of names. Returns p if a line of fields begins there; NULL as rewrite_header(). */
static const char *rewrite_special(struct tr_rewriter *r, const char *p, const char *end, bool last,
                                   int *status)
{
    const char *behind = behind_newline(p, end, last);
    if (!behind) return NULL;
    bool blank = line_is_blank(r, p, end), comment = *p && *p == r->d.comment;
    if (r->skip == 0 && !blank && !comment)
        return r->header > 0 ? rewrite_header(r, p, end, last, status) : p;
    if (r->skip > 0) r->skip--;
    if (behind[-1] == '\n') r->out[r->out_n++] = '\n'; /* rewrite_lines() has reserved a byte */
    return behind;
}

/* Copies the content of a field in double quotes up to the quote that closes, and advances *out. Returns NULL if that is not simple. */
static inline const char *copy_quoted(const struct tr_rewriter *r, const char *p, const char *end, char **out)
{
    const char *begin = p;
    char *to = *out;
    for (;;) {
        while (!r->quote_stop[(unsigned char)*p]) *to++ = *p++;
        if (p + 2 >= end) return NULL;
        if (*p == '\n') {
            if (!r->d.newlines || p - begin > LONGEST_QUOTED) return NULL;
            if (to > *out && to[-1] == '\r') to--;
            *to++ = TR_QUOTED_NEWLINE;
            p++;
            continue;
        }
        *to++ = *p++;
        if (*p != '"') break;
        *to++ = *p++;
    }
    *out = to;
    return p + (*p == '\r' && p[1] == '\n');
}

/* Copies a field without quotes, and advances *out. A number may have a decimal comma. Returns its end; NULL if it is not simple. */
static inline const char *copy_unquoted(const struct tr_rewriter *r, const char *p, char **out)
{
    char *to = *out;
    if (!r->numbers || *p > '9' || *p < '+') {
        while (!r->stop[(unsigned char)*p]) *to++ = *p++;
    } else {
        bool comma = false;
        if (*p == '-' || *p == '+') *to++ = *p++;
        for (; !r->stop[(unsigned char)*p]; p++) {
            bool mark = *p == ',' && !comma;
            comma |= mark;
            *to++ = mark ? '.' : *p;
            if (!tr_is_digit(*p) && !mark) return NULL;
        }
    }
    if (*p == '\n' && to > *out && to[-1] == '\r') to--;
    *out = to;
    return p;
}

/* Rewrites fields as long as they are simple: of any dialect, but without escapes, blanks at the begin, dropped lines and forms. The
 * buffer has room for the text from p on. Returns the begin of the first field that is not simple. */
static const char *rewrite_simple(struct tr_rewriter *r, const char *p, const char *end)
{
    char *to = r->out + r->out_n;
    bool first = r->field == 0;
    while (p < end && !(first && *p == r->d.comment) && !r->slow[(unsigned char)*p]) {
        char *field = to;
        const char *next;
        if (*p == '"') {
            *to++ = '"';
            next = copy_quoted(r, p + 1, end, &to);
        } else {
            next = copy_unquoted(r, p, &to);
        }
        if (!next || next >= end || (*next != '\n' && *next != r->d.delimiter)) {
            to = field;
            break;
        }
        first = *next == '\n';
        *to++ = first ? '\n' : r->separator;
        r->field = !first;
        p = next + 1;
    }
    r->open = r->field > 0;
    r->out_n = (size_t)(to - r->out);
    return p;
}

/* Rewrites all complete fields. */
static int rewrite_lines(struct tr_rewriter *r, bool last)
{
    const char *p = r->in + r->in_at, *end = r->in + r->in_n;
    int status = TR_OK;
    r->in[r->in_n] = '\n';
    while (p < end || (last && r->open)) {
        struct span s;
        TR_TRY(reserve(r, (size_t)(end - p) + 1));
        if (r->simple && r->skip == 0 && r->header == 0 && (p = rewrite_simple(r, p, end)) == end) break;
        if (r->field == 0 &&
            (r->skip > 0 || r->header > 0 || (unsigned char)*p <= ' ' || *p == r->d.comment)) {
            const char *behind = rewrite_special(r, p, end, last, &status);
            TR_TRY(status);
            if (!behind) break;
            if (behind != p) {
                p = behind;
                continue;
            }
            if (r->d.delimiter == ' ') p = tr_skip_blanks(p);
        }
        if (!span_find(r, p, end, last, &s)) break;
        const char *behind = s.next;
        bool more = behind < end && !tr_at_line_end(behind);
        if (more && !(behind = behind_delimiter(r, behind, end, last))) break;
        if (more && r->d.delimiter == ' ' && (tr_at_line_end(behind) || behind >= end)) more = false;
        TR_TRY(reserve(r, 8 * (size_t)(s.end - s.text) + 64));
        char *to = put_field(r, &s, r->out + r->out_n);
        if (more) {
            *to++ = r->separator;
            if (r->separator == TR_SEPARATOR_COLONS) *to++ = ':';
            r->field++;
        } else {
            if (behind < end) *to++ = '\n';
            behind = end - behind > 1 + (*behind == '\r') ? behind + 1 + (*behind == '\r') : end;
            r->field = 0;
        }
        r->open = more;
        r->out_n = (size_t)(to - r->out);
        p = behind;
    }
    r->in_at = (size_t)(p - r->in);
    return TR_OK;
}

/* ---- the stream ---- */

int tr_rewriter_open(const struct tr_dialect *d, const struct tr_column_form *form, size_t forms,
                     struct tr_rewriter **rewriter)
{
    TR_CLOSED_BY(tr_rewriter_close) struct tr_rewriter *r = NULL;
    TR_TRY(TR_NEW(&r, 1));
    *r = (struct tr_rewriter){.d = *d, .form = form, .forms = forms, .separator = tr_dialect_separator(d)};
    r->fields = dialect_has_other_fields(d, forms);
    r->numbers = d->decimal == ',' || d->thousands;
    r->skip = d->skip_lines;
    r->header = d->header < TR_DIALECT_COUNT ? d->header : 0;
    r->simple = forms == 0 && !strchr(" :", d->delimiter) && !d->thousands && !d->escape;
    for (const char *c = r->numbers ? " \t\r\n\"" : " \t\r\n"; *c; c++) r->slow[(unsigned char)*c] = true;
    if (d->quote != '"') r->slow['"'] = r->slow[(unsigned char)d->quote] = true;
    r->slow[(unsigned char)d->delimiter] = false; /* an empty field */
    const char stops[] = {'\n', d->delimiter, d->delimiter == ' ' ? '\t' : r->separator};
    const char quote_stops[] = {'\n', d->quote ? d->quote : '\n', d->escape ? d->escape : '\n'};
    for (size_t i = 0; i < sizeof stops; i++) {
        r->stop[(unsigned char)stops[i]] = true;
        r->quote_stop[(unsigned char)quote_stops[i]] = true;
    }
    if (d->encoding > TR_UTF8) TR_TRY(TR_NEW(&r->raw, PIECE + 4));
    *rewriter = r;
    r = NULL;
    return TR_OK;
}

void tr_rewriter_close(struct tr_rewriter **rewriter)
{
    struct tr_rewriter *r = *rewriter;
    if (r) TR_FREE_ALL(r->raw, r->in, r->out, r->form_of, r);
    *rewriter = NULL;
}

int tr_rewriter_room(struct tr_rewriter *r, char **room, size_t *n)
{
    size_t rest = r->in_n - r->in_at;
    if (r->in_at > 0) memmove(r->in, r->in + r->in_at, rest);
    r->in_at = 0;
    r->in_n = rest;
    *n = PIECE;
    TR_TRY(TR_GROW(&r->in, &r->in_capacity, rest + 3 * (PIECE + 4) + TR_TEXT_SLACK));
    *room = r->raw ? (char *)r->raw + r->raw_n : r->in + r->in_n;
    return TR_OK;
}

int tr_rewriter_add(struct tr_rewriter *r, size_t n, size_t longest)
{
    size_t from = r->in_n;
    r->ended = n == 0;
    if (r->raw) {
        size_t used = decode(r, r->raw, r->raw_n + n);
        r->raw_n += n - used;
        memmove(r->raw, r->raw + used, r->raw_n);
    } else {
        r->in_n += n;
    }
    for (size_t i = from; r->d.cr && i < r->in_n; i++)
        if (r->in[i] == '\r') r->in[i] = '\n';
    if (!r->begun && (r->in_n >= 3 || r->ended)) {
        if (r->in_n >= 3 && memcmp(r->in, "\xef\xbb\xbf", 3) == 0) r->in_at = 3;
        r->begun = true;
    }
    if (!r->begun || !r->fields) return TR_OK;
    memset(r->in + r->in_n, 0, TR_TEXT_SLACK);
    return rewrite_lines(r, r->ended || r->in_n - r->in_at > longest);
}

size_t tr_rewriter_take(struct tr_rewriter *r, char *to, size_t n)
{
    char *from = r->fields ? r->out : r->in;
    size_t *at = r->fields ? &r->out_at : &r->in_at, *end = r->fields ? &r->out_n : &r->in_n;
    if (!r->begun) return 0;
    n = tr_min_size(n, *end - *at);
    if (n > 0) memcpy(to, from + *at, n);
    *at += n;
    if (*at == *end) *at = *end = 0;
    return n;
}

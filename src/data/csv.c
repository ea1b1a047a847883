/* Dense rows of numbers: text whose fields are separated by commas, semicolons, tabs or blanks, with a header or without,
 * read at the speed of memory.
 *
 * Fields may have blanks around them and stand in quotes; empty lines, CRLF and a last line without newline are fine. Every
 * row has as many fields as the first of its file; each is a decimal number in the range of float.
 */
#define _GNU_SOURCE
#include <math.h>

#include "data/number.h"
#include "data/reader.h"

/* ---- one line ---- */

static const char *field_problem(const char *p, const char *end, float value, char separator)
{
    if (tr_token_is_binary(p, separator)) return "found bytes that are not text, expected a number";
    if (tr_token_ends(p, separator)) return NULL;
    if (tr_token_is_special(p)) return "is not finite, expected an ordinary number";
    if (end && (tr_token_ends(end, separator) || *end == '"') && !isfinite(value))
        return "is too large for a 32-bit float";
    return "is not a number";
}

/* problem: NULL for an empty field. */
static const char *bad_field(struct tr_reader *r, size_t field, const char *token, const char *problem)
{
    char quoted[TR_TOKEN_ROOM];
    if (!problem) return tr_reader_bad(r, NULL, ' ', "column %zu: is empty, expected a number", field + 1);
    tr_token_quote(token, r->head->separator, quoted);
    return tr_reader_bad(r, NULL, ' ', "column %zu: '%s' %s", field + 1, quoted, problem);
}

/* A field that has blanks or quotes around it, or is wrong. Returns what follows it, NULL if it is wrong. */
static __attribute__((noinline)) const char *parse_odd_field(struct tr_reader *r, const char *p, size_t field,
                                                             float *value)
{
    char separator = r->head->separator;
    while (tr_is_padding(*p, separator)) p++;
    bool quoted = *p == '"';
    const char *text = p + quoted;
    if (quoted)
        while (tr_is_blank(*text)) text++;
    const char *end = tr_read_float(text, value), *behind = end;
    if (behind && quoted) {
        while (tr_is_blank(*behind)) behind++;
        if (*behind++ != '"') behind = NULL;
    }
    while (behind && tr_is_padding(*behind, separator)) behind++;
    if (behind && isfinite(*value) && tr_token_ends(behind, separator)) return behind;
    bool empty = quoted && *text == '"';
    return bad_field(r, field, p, empty ? NULL : field_problem(text, end, *value, separator));
}

static const char *bad_count(struct tr_reader *r, size_t found, bool more)
{
    return tr_reader_bad(r, NULL, ' ', "%s%zu column%s, expected %zu as in the first line",
                         more ? "more than " : "", found, found == 1 ? "" : "s", r->fields);
}

/* The fields of one line, where there is room for all of them. Returns the end of the line. This is where the time goes. */
static inline const char *parse_fields(struct tr_reader *r, const char *p, size_t labelled, float *label,
                                       float *value)
{
    char separator = r->head->separator;
    size_t n = r->fields;
    for (size_t k = 0;; k++) {
        float *to = k == labelled ? label : value;
        const char *end = tr_read_float(p, to);
        if (!end || (*end != separator && *end != '\n') || !isfinite(*to)) {
            end = parse_odd_field(r, p, k, to);
            if (!end) return NULL;
        }
        value += k != labelled;
        p = end;
        bool more = *p == separator || (separator == TR_SEPARATOR_BLANKS && *p == '\t');
        if (separator == TR_SEPARATOR_BLANKS &&
            more) { /* of which there may be any number, at the end of the line too */
            while (tr_is_blank(*p)) p++;
            more = !tr_at_line_end(p);
        } else if (more) {
            p++;
        }
        if (more && k + 1 < n) continue;
        if (!more && k + 1 == n) return p;
        return bad_count(r, k + 1, more);
    }
}

static const char *parse_line(struct tr_reader *r, const char *p)
{
    struct tr_matrix *m = &r->matrix;
    int where = r->options->label;
    size_t labelled = where == TR_LABEL_FIRST ? 0 : where == TR_LABEL_LAST ? r->fields - 1 : r->fields;
    float label = NAN;
    const char *end = parse_fields(r, p, labelled, &label, m->value + m->rows * m->columns);
    if (!end) return NULL;
    if (m->label) {
        r->status = tr_reader_note_label(r, label);
        if (r->status != TR_OK) return NULL;
        m->label[m->rows] = label;
    }
    r->enough = ++m->rows == r->options->most_rows; /* 0 is never reached here */
    return end;
}

/* ---- many lines ---- */

/* Room for one more row that is left unfinished, too: a field takes two bytes or more. */
static int make_room(struct tr_reader *r, size_t bytes)
{
    struct tr_matrix *m = &r->matrix;
    size_t rows = m->rows + bytes / 2 / (r->fields ? r->fields : 1) + 2;
    TR_TRY(TR_GROW(&m->value, &r->value_capacity, rows * m->columns));
    return r->options->label == TR_LABEL_NONE ? TR_OK : TR_GROW(&m->label, &r->label_capacity, rows);
}

static int parse_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    return tr_each_line(r, lines, parse_line);
}

static int open_reader(struct tr_reader *r)
{
    int label = r->options->label;
    r->matrix.columns = tr_csv_columns(r->files, r->options->heads, label);
    r->fields = r->matrix.columns + (label != TR_LABEL_NONE);
    return TR_OK;
}

size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label)
{
    uint64_t fields = 0;
    for (size_t i = 0; i < files->n && fields == 0; i++) fields = heads[i].fields;
    return fields > 0 ? (size_t)fields - (label != TR_LABEL_NONE) : 0;
}

const struct tr_format_reader tr_csv_reader = {.open = open_reader, .room = make_room, .lines = parse_lines};

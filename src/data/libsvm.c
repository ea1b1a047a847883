/* The LIBSVM text format, `label index:value index:value …` a line, read at the speed of memory. Behind the label may stand
 * `qid:number`, the query of ranking data, which is noted and ignored.
 *
 * Blanks and tabs separate; # begins a comment; empty lines, CRLF and a last line without newline are fine. Indices must
 * ascend. Values and labels are decimal numbers in the range of float.
 */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "data/number.h"
#include "data/reader.h"

static bool ends_number(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '#';
}

/* At the end of the index:value pairs of a line, or where one should begin and none does. */
static bool at_line_end(const char *p)
{
    return tr_at_line_end(p) || *p == '#';
}

/* ---- finding out what is wrong: the fast path only noticed that something is ---- */

static const char *bad(struct tr_reader *r, const char *token, const char *problem)
{
    if (tr_token_is_binary(token, ' '))
        problem = "found bytes that are not text, expected lines of label index:value …";
    return tr_reader_bad(r, token, ' ', "%s", problem);
}

/* end: behind the number, NULL if there is none. */
static const char *bad_label(struct tr_reader *r, const char *token, const char *end, float label)
{
    bool wrong = !end || !ends_number(*end) || isfinite(label);
    return bad(r, token,
               tr_token_is_special(token) ? "the label is not finite, expected an ordinary number"
               : end && *end == ','       ? "several labels, expected one number"
               : (end && *end == ':') || strncmp(token, "qid:", 4) == 0
                   ? "expected a label before the first index:value"
               : wrong ? "the label is not a number"
                       : "the label is too large for a 32-bit float");
}

static const char *bad_value(struct tr_reader *r, const char *token, const char *text, const char *end,
                             float value)
{
    bool wrong = !end || !ends_number(*end) || isfinite(value);
    return bad(r, token,
               ends_number(*text)          ? "the value is missing behind the colon"
               : tr_token_is_special(text) ? "the value is not finite, expected an ordinary number"
               : wrong                     ? "the value is not a number"
                                           : "the value is too large for a 32-bit float");
}

static uint64_t max_index(const struct tr_reader *r)
{
    return r->options->max_index ? r->options->max_index : TR_LIBSVM_MAX_INDEX;
}

/* least: the least index that could come here; end: behind the digits. */
static const char *bad_index(struct tr_reader *r, const char *token, const char *end, uint64_t index,
                             uint64_t least)
{
    if (tr_token_is_binary(token, ' ')) return bad(r, token, "");
    if (strncmp(token, "qid:", 4) == 0)
        return bad(r, token, "the query id (qid, of ranking data) is not a whole number behind the label");
    if (token[0] == '-' && tr_is_digit(token[1])) return bad(r, token, "the index is negative");
    if (end != token && *end != ':' && ends_number(*end))
        return bad(r, token, "expected a colon and a value behind the index");
    if (end == token || *end != ':')
        return bad(r, token, "the index is not a number, expected index:value with a whole number as index");
    if (index == 0 && r->options->lowest_index > 0)
        return bad(r, token, "the index is 0, expected 1 or more");
    if (index > max_index(r))
        return tr_reader_bad(r, token, ' ', "the index is too large, expected at most %llu",
                             (unsigned long long)max_index(r));
    return bad(r, token,
               index + 1 == least ? "the index is the same as the one before, expected a larger one"
                                  : "the index is smaller than the one before, expected ascending indices");
}

/* ---- one line ---- */

/* The first value that is not 1: all before it were. */
static int start_values(struct tr_reader *r, size_t ones)
{
    TR_TRY(TR_GROW(&r->matrix.value, &r->value_capacity, r->column_capacity));
    for (size_t i = 0; i < ones; i++) r->matrix.value[i] = 1;
    return TR_OK;
}

/* The pairs of one line. There is room for as many as fit into a chunk, so none is looked for here. This is where the time
 * goes. */
static inline const char *parse_pairs(struct tr_reader *r, const char *p)
{
    uint32_t *column = r->matrix.column;
    float *value = r->matrix.value;
    uint64_t least = r->options->lowest_index, max = max_index(r);
    size_t n = r->nonzeros;
    for (;;) {
        uint64_t index;
        const char *token = p;
        p = tr_read_whole(p, &index);
        if (p == token) { /* no digit */
            if (tr_is_blank(*p)) {
                p++;
                continue;
            }
            if (at_line_end(p)) break;
            return bad_index(r, token, p, index, least);
        }
        if (index < least || index > max || *p != ':') return bad_index(r, token, p, index, least);
        least = index + 1;
        column[n] = (uint32_t)index;
        if (p[1] == '1' && p[2] == ' ') { /* the commonest value by far */
            if (value) value[n] = 1;
            n++;
            p += 3;
            continue;
        }
        float x = 0;
        const char *text = p + 1;
        p = tr_read_float(text, &x);
        if (!p || !ends_number(*p) || !isfinite(x)) return bad_value(r, token, text, p, x);
        if (!value && x != 1) {
            r->status = start_values(r, n);
            if (r->status != TR_OK) return NULL;
            value = r->matrix.value;
        }
        if (value) value[n] = x;
        n++;
    }
    r->nonzeros = n;
    return p;
}

static int add_row(struct tr_reader *r, float label)
{
    struct tr_matrix *m = &r->matrix;
    size_t begin = (size_t)m->begin[m->rows];
    if (r->nonzeros >
        begin) { /* indices ascend: only the ends of a row can be the smallest and the largest */
        uint32_t first = m->column[begin], last = m->column[r->nonzeros - 1];
        if (first < r->report.lowest) r->report.lowest = first;
        if (last > r->report.highest) r->report.highest = last;
    }
    TR_TRY(tr_reader_note_label(r, label));
    m->label[m->rows] = label;
    m->begin[++m->rows] = r->nonzeros;
    r->enough = m->rows == r->options->most_rows; /* 0 is never reached here */
    return TR_OK;
}

/* What follows a query id; the id itself where it is none: as an index it is refused. */
static const char *pass_query(struct tr_reader *r, const char *p)
{
    uint64_t query;
    const char *end = strncmp(p, "qid:", 4) == 0 ? tr_read_whole(p + 4, &query) : p;
    if (end <= p + 4 || !ends_number(*end)) return p;
    r->report.queries = true;
    return end;
}

static const char *parse_row(struct tr_reader *r, const char *p)
{
    float label = 0;
    const char *end = tr_read_float(p, &label);
    if (end && *end == ':' && r->options->unlabelled) {
        label = NAN;
        end = p;
    } else if (!end || !ends_number(*end) || !isfinite(label)) {
        return bad_label(r, p, end, label);
    }
    if (tr_label_is_long(label)) tr_reader_note_long_label(r, p, ' ');
    while (tr_is_blank(*end)) end++;
    if (*end == 'q') end = pass_query(r, end);
    end = parse_pairs(r, end);
    if (end) r->status = add_row(r, label);
    return end && r->status == TR_OK ? end : NULL;
}

static const char *parse_line(struct tr_reader *r, const char *p)
{
    if (*p == '#') return p;
    bool had_values = r->matrix.value != NULL;
    r->status = TR_OK;
    const char *end = parse_row(r, p);
    if (!end && !had_values) { /* what the dropped record brought goes with it */
        free(r->matrix.value);
        r->matrix.value = NULL;
        r->value_capacity = 0;
    }
    return end;
}

/* ---- many lines ---- */

/* A row takes two bytes or more, a pair four. Large arrays grow by moving pages, not bytes, and pages never written to take
 * no memory: the peak is the size itself. */
static int make_room(struct tr_reader *r, size_t bytes)
{
    struct tr_matrix *m = &r->matrix;
    size_t rows = m->rows + bytes / 2 + 1, pairs = r->nonzeros + bytes / 4 + 1;
    bool first = !m->begin;
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, rows + 1));
    if (first) m->begin[0] = 0;
    TR_TRY(TR_GROW(&m->label, &r->label_capacity, rows));
    TR_TRY(TR_GROW(&m->column, &r->column_capacity, pairs));
    return m->value ? TR_GROW(&m->value, &r->value_capacity, pairs) : TR_OK;
}

static int parse_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    return tr_each_line(r, lines, parse_line);
}

const struct tr_format_reader tr_libsvm_reader = {.room = make_room, .lines = parse_lines};

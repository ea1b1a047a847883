/* The LIBSVM text format: `label index:value index:value ...` per line. `qid:number` after the label, the query of ranking data, is
 * the group of the row (split.h), and otherwise ignored.
 *
 * Blanks and tabs separate fields; # begins a comment; empty lines, CRLF and a last line without newline are accepted. Indices
 * must ascend. Values and labels are decimal numbers in the range of float.
 */
#include <math.h>
#include <stdlib.h>

#include "data/reader.h"

/* ---- detection ---- */

/* Returns whether the line is a number and then index:value. The number, the label, may be absent in rows for prediction. */
static bool libsvm_is_row(const char *p)
{
    float label;
    uint64_t index;
    const char *pair = tr_read_float(p, &label);
    pair = pair && tr_is_blank(*pair) ? tr_skip_blanks(pair) : p;
    const char *colon = tr_read_whole(pair, &index);
    if (strncmp(pair, "qid:", 4) == 0) return true;
    return colon != pair && *colon == ':' && colon[1] != ':';
}

/* Returns whether the row begins with index:value, not with a label. */
static bool libsvm_is_bare(const char *p)
{
    uint64_t index;
    const char *colon = tr_read_whole(p, &index);
    return colon != p && *colon == ':';
}

/* Finds whether the first row has a label and a qid. */
static int libsvm_head(const struct tr_first_lines *first, int header, struct tr_head *head)
{
    const char *p = tr_next_text(first->text, first->end);
    (void)header;
    while (p && *p == '#') p = tr_next_text(tr_behind_line(p, first->end), first->end);
    head->bare = p && libsvm_is_bare(p);
    if (first->offset > 0) head->begin = 0; /* the empty lines before are rows, too */
    while (p && !tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    head->queries = p && strncmp(tr_skip_blanks(p), "qid:", 4) == 0;
    return TR_OK;
}

/* Returns whether the line is a row with an error: it has a number, or several with commas between them, and then only pairs
 * number:number; or it has at least one pair after any label, and the next line is a row. A time of day in a table, 12:30, is not
 * sufficient. */
static bool libsvm_is_faulty_row(const char *p, const char *end)
{
    float number;
    size_t words = 0, pairs = 0;
    const char *label = tr_read_float(p, &number), *next = tr_next_text(tr_behind_line(p, end), end);
    bool several = label && *label == ',';
    while (label && *label == ',') label = tr_read_float(label + 1, &number);
    while (!tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    bool labels = label == p;
    for (p = tr_skip_blanks(p); !tr_at_line_end(p); p = tr_skip_blanks(p), words++) {
        const char *colon = tr_read_float(p, &number),
                   *behind = colon && *colon == ':' ? tr_read_float(colon + 1, &number) : NULL;
        pairs += behind && (tr_is_blank(*behind) || tr_at_line_end(behind));
        while (!tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    }
    if (labels && pairs == words && pairs > several) return true;
    return pairs > 0 && next && libsvm_is_row(next);
}

/* Decides by the first line that is no comment and no label without features. */
static bool libsvm_sniff(const char *p, const char *end)
{
    float label;
    for (p = tr_next_text(p, end); p; p = tr_next_text(tr_behind_line(p, end), end)) {
        const char *behind = tr_read_float(p, &label);
        if (*p != '#' && (!behind || !tr_at_line_end(tr_skip_blanks(behind))))
            return libsvm_is_row(p) || libsvm_is_faulty_row(p, end);
    }
    return false;
}

/* ---- errors: the fast path only detects them ---- */

static bool ends_number(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '#';
}

static const char *libsvm_bad(struct tr_reader *r, const char *token, const char *problem)
{
    if (tr_token_is_binary(token, ' '))
        problem = "found bytes that are not text, expected lines of label index:value …";
    return tr_reader_bad(r, token, ' ', "%s", problem);
}

/* Notes an error of the label. end: the end of the number at token, NULL if there is no number. */
static const char *libsvm_bad_label(struct tr_reader *r, const char *token, const char *end, float label)
{
    bool wrong = !end || !ends_number(*end) || isfinite(label);
    return libsvm_bad(r, token,
                      tr_token_is_special(token) ? "the label is not finite, expected an ordinary number"
                      : end && *end == ','
                          ? "several labels, expected one number: write a file for each label"
                      : (end && *end == ':') || strncmp(token, "qid:", 4) == 0
                          ? "expected a label before the first index:value; weights of rows "
                            "are in the file of data.weight"
                      : wrong ? "the label is not a number"
                              : "the label is too large for a 32-bit float");
}

static const char *libsvm_bad_value(struct tr_reader *r, const char *token, const char *text, const char *end,
                                    float value)
{
    bool wrong = !end || !ends_number(*end) || isfinite(value);
    return libsvm_bad(r, token,
                      ends_number(*text) ? "the value is missing behind the colon"
                      : tr_token_is_special(text)
                          ? "the value is not finite, expected an ordinary number: leave the pair "
                            "out for 0; only csv and tables have missing values"
                      : wrong ? "the value is not a number"
                              : "the value is too large for a 32-bit float");
}

/* Notes an error of an index. least: its minimum; end: the end of its digits. */
static const char *libsvm_bad_index(struct tr_reader *r, const char *token, const char *end, uint64_t index,
                                    uint64_t least)
{
    bool digits = end != token, pair = digits && *end == ':';
    if (pair && index > TR_LIBSVM_MAX_INDEX && !tr_token_is_binary(token, ' '))
        return tr_reader_bad(r, token, ' ', "the index is too large, expected at most %llu",
                             (unsigned long long)TR_LIBSVM_MAX_INDEX);
    return libsvm_bad(
        r, token,
        strncmp(token, "qid:", 4) == 0
            ? "the query id (qid, of ranking data) is not a whole number behind the label"
        : token[0] == '-' && tr_is_digit(token[1]) ? "the index is negative"
        : digits && !pair && ends_number(*end) ? "expected a colon and a value behind the index, as in 5:1"
        : !pair ? "the index is not a number, expected index:value with a whole number as index"
        : index == 0 && r->options->lowest_index > 0 ? "the index is 0, expected 1 or more"
        : index + 1 == least ? "the index is the same as the one before, expected a larger one"
                             : "the index is smaller than the one before, expected ascending indices");
}

/* ---- one line ---- */

/* Parses the pairs index:value of a line. libsvm_room() has allocated the memory for them. Most time is spent here. */
static inline const char *libsvm_parse_pairs(struct tr_reader *r, const char *p)
{
    uint32_t *column = r->matrix.column;
    float *value = r->matrix.value;
    uint64_t least = r->options->lowest_index, max = TR_LIBSVM_MAX_INDEX;
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
            if (tr_at_line_end(p) || *p == '#') break;
            return libsvm_bad_index(r, token, p, index, least);
        }
        if (index < least || index > max || *p != ':') return libsvm_bad_index(r, token, p, index, least);
        least = index + 1;
        column[n] = (uint32_t)index;
        if (p[1] == '1' && p[2] == ' ') { /* by far the most frequent value */
            if (value) value[n] = 1;
            n++;
            p += 3;
            continue;
        }
        float x = 0;
        const char *text = p + 1;
        p = tr_read_float(text, &x);
        if (!p || !ends_number(*p) || !isfinite(x)) return libsvm_bad_value(r, token, text, p, x);
        if (!value && x != 1) {
            r->status = tr_reader_start_values(r, n);
            if (r->status != TR_OK) return NULL;
            value = r->matrix.value;
        }
        if (value) value[n] = x;
        n++;
    }
    r->nonzeros = n;
    return p;
}

static const char *libsvm_parse_row(struct tr_reader *r, const char *p)
{
    struct tr_matrix *m = &r->matrix;
    float label = 0;
    const char *end = tr_read_float(p, &label);
    if (r->options->unlabelled && ((end && *end == ':') || tr_at_line_end(p))) {
        label = NAN;
        end = p;
    } else if (!end || !ends_number(*end) || !isfinite(label)) {
        return libsvm_bad_label(r, p, end, label);
    }
    if (tr_label_is_long(label)) tr_reader_note_long_label(r, p, ' ');
    if (tr_reader_names_labels(r->options) && end > p) {
        r->status = tr_reader_find_label(r->options, p, (size_t)(end - p), &label);
        if (r->status != TR_OK) return NULL;
    }
    while (tr_is_blank(*end)) end++;
    if (*end == 'q' && strncmp(end, "qid:", 4) == 0) { /* a second qid is refused as a malformed index */
        uint64_t query;
        const char *behind = tr_read_whole(end + 4, &query);
        bool right = behind > end + 4 && ends_number(*behind);
        r->report.queries |= right;
        end = right ? behind : end;
    }
    end = libsvm_parse_pairs(r, end);
    if (!end) return NULL;
    size_t begin = (size_t)m->begin[m->rows];
    if (r->nonzeros > begin) { /* indices ascend: the first is the smallest, the last the largest */
        uint32_t first = m->column[begin], last = m->column[r->nonzeros - 1];
        if (first < r->report.lowest) r->report.lowest = first;
        if (last > r->report.highest) r->report.highest = last;
    }
    m->begin[m->rows + 1] = r->nonzeros;
    r->status = tr_reader_end_row(r, label);
    return r->status == TR_OK ? end : NULL;
}

static const char *libsvm_parse_line(struct tr_reader *r, const char *p)
{
    if (*p == '#') return p;
    bool had_values = r->matrix.value != NULL;
    r->status = TR_OK;
    const char *end = libsvm_parse_row(r, p);
    if (!end && !had_values) { /* values were allocated for this malformed line: all others are 1 */
        free(r->matrix.value);
        r->matrix.value = NULL;
        r->value_capacity = 0;
    }
    return end;
}

/* ---- many lines ---- */

/* A row without a qid is a group of its own. */
static bool libsvm_mark(struct tr_reader *r, const char *p)
{
    float label = 0;
    if (*p == '#') return false;
    if (r->options->split.by == TR_SPLIT_LABEL) {
        (void)tr_read_float(p, &label);
        r->mark = tr_split_number_mark(label);
        return true;
    }
    r->mark = tr_mix((uint64_t)r->file << 48 | r->offset);
    while (!tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    p = tr_skip_blanks(p);
    if (strncmp(p, "qid:", 4) == 0) (void)tr_read_whole(p + 4, &r->mark);
    return true;
}

/* Allocates memory for a chunk of text, in which a row takes at least two bytes (one if it may be empty) and a pair at least four. Large arrays grow by
 * moving pages, not bytes, and unused pages take no memory: so growing takes no additional memory. */
static int libsvm_room(struct tr_reader *r, size_t bytes)
{
    struct tr_matrix *m = &r->matrix;
    size_t rows = m->rows + bytes / (r->blank_rows ? 1 : 2) + 1, pairs = r->nonzeros + bytes / 4 + 1;
    bool first = !m->begin;
    TR_TRY(TR_GROW(&m->begin, &r->begin_capacity, rows + 1));
    if (first) m->begin[0] = 0;
    TR_TRY(TR_GROW(&m->label, &r->label_capacity, rows));
    TR_TRY(TR_GROW(&m->column, &r->column_capacity, pairs));
    return m->value ? TR_GROW(&m->value, &r->value_capacity, pairs) : TR_OK;
}

static int libsvm_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    return tr_each_line(r, lines, libsvm_parse_line);
}

/* ---- estimate of the size ---- */

/* Extrapolates a number of distinct features to a text that is `times` as long as a sample. half, all: the numbers in the first
 * half and in all of the sample. The number grows as a power of the length. */
static double extrapolate(double half, double all, double times)
{
    double power = half > 0 ? fmin(1, log2(fmax(1, all / half))) : 1;
    return all * pow(fmax(1, times), power);
}

/* Estimates the number of distinct values (up to 256), the highest feature, the number of features that occur, and of features that
 * occur in TR_FREQUENT_ROWS rows, about twice in a sample of TENTH of the rows. Features may share a counter, which is rare. */
static int libsvm_estimate(const struct tr_sample *sample, double text, double files, tr_data_size *size)
{
    enum { MOST = 256, COLONS = 4096, COUNTERS = 1 << 20, TENTH = TR_FREQUENT_ROWS / 2 };
    const char *value[MOST], *colon = sample->text;
    size_t values = 0;
    for (int i = 0; values < MOST && i < COLONS && (colon = strchr(colon, ':')); i++, colon++) {
        size_t length = strcspn(colon + 1, " \t\r\n") + 1, at = 0;
        while (at < values && strncmp(value[at], colon + 1, length) != 0) at++;
        if (at == values) value[values++] = colon + 1;
    }
    size->values = fmax(size->values, (double)values);
    double n[2][2] = {{0}}; /* number of features in the first half, in all of the sample; seen once, twice */
    uint8_t *seen;
    TR_TRY(TR_NEW(&seen, COUNTERS));
    for (colon = sample->text; (colon = strchr(colon, ':')); colon++) {
        const char *digit = colon;
        while (digit > sample->text && tr_is_digit(digit[-1])) digit--;
        uint64_t index = strtoull(digit, NULL, 10);
        if (index <= TR_LIBSVM_MAX_INDEX) size->features = fmax(size->features, (double)index);
        uint8_t *times = &seen[index % COUNTERS];
        bool second = (size_t)(colon - sample->text) > sample->n / 2;
        if (*times < 2) n[1][*times]++;
        if (*times < 2 && !second) n[0][*times]++;
        *times = *times < 2 ? *times + 1 : 2;
    }
    free(seen);
    double times = files * text / (double)sample->n;
    size->occurring = fmax(size->occurring, extrapolate(n[0][0], n[1][0], times));
    size->frequent = fmax(size->frequent, extrapolate(n[0][1], n[1][1], times / TENTH));
    return TR_OK;
}

const struct tr_text_format tr_libsvm_format = {.sniff = libsvm_sniff,
                                                .head = libsvm_head,
                                                .room = libsvm_room,
                                                .lines = libsvm_lines,
                                                .mark = libsvm_mark,
                                                .estimate = libsvm_estimate};

#define _GNU_SOURCE
#include "data/libsvm.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "data/number.h"
#include "data/share.h"
#include "data/token.h"

/* What can be wrong with a record. */
enum problem {
    NONE,
    NO_MEMORY, /* already described */
    LINE_TOO_LONG,
    BINARY_DATA,
    LABEL_NOT_A_NUMBER,
    LABEL_MISSING,
    LABEL_NOT_FINITE,
    LABEL_TOO_LARGE,
    LABELS_SEVERAL,
    QUERY_ID,
    INDEX_NOT_A_NUMBER,
    INDEX_NEGATIVE,
    INDEX_ZERO,
    INDEX_TOO_LARGE,
    INDEX_TWICE,
    INDEX_DESCENDS,
    COLON_MISSING,
    VALUE_MISSING,
    VALUE_NOT_A_NUMBER,
    VALUE_NOT_FINITE,
    VALUE_TOO_LARGE,
};

static const char *const problem_text[] = {
    [LINE_TOO_LONG] = "line longer than 64 MiB",
    [BINARY_DATA] = "found bytes that are not text, expected lines of label index:value …",
    [LABEL_NOT_A_NUMBER] = "the label is not a number",
    [LABEL_MISSING] = "expected a label before the first index:value",
    [LABEL_NOT_FINITE] = "the label is not finite, expected an ordinary number",
    [LABEL_TOO_LARGE] = "the label is too large for a 32-bit float",
    [LABELS_SEVERAL] = "several labels, expected one number",
    [QUERY_ID] = "a query id (qid, of ranking data) is not supported, expected index:value",
    [INDEX_NOT_A_NUMBER] = "the index is not a number, expected index:value with a whole number as index",
    [INDEX_NEGATIVE] = "the index is negative",
    [INDEX_ZERO] = "the index is 0, expected 1 or more",
    [INDEX_TOO_LARGE] = "the index is too large",
    [INDEX_TWICE] = "the index is the same as the one before, expected a larger one",
    [INDEX_DESCENDS] = "the index is smaller than the one before, expected ascending indices",
    [COLON_MISSING] = "expected a colon and a value behind the index",
    [VALUE_MISSING] = "the value is missing behind the colon",
    [VALUE_NOT_A_NUMBER] = "the value is not a number",
    [VALUE_NOT_FINITE] = "the value is not finite, expected an ordinary number",
    [VALUE_TOO_LARGE] = "the value is too large for a 32-bit float",
};

struct reader {
    const struct tr_files *files;
    const struct tr_libsvm_options *options;
    struct tr_text_share share;
    uint64_t max_index;
    size_t most_rows;
    size_t file;       /* the one being read */
    struct tr_csr csr; /* as far as it is known; values only from the first that is not 1 */
    size_t nonzeros;
    size_t begin_capacity, column_capacity, value_capacity, label_capacity;
    struct tr_read_report report;
};

/* ---- describing what is wrong ---- */

static int describe(const struct reader *r, enum problem problem, const char *token, uint64_t offset)
{
    uint64_t line;
    char quoted[TR_TOKEN_ROOM] = "";
    TR_TRY(tr_files_line(r->files, r->file, offset, &line));
    const char *path = r->files->file[r->file].path, *text = problem_text[problem];
    unsigned long long number = line, max = r->max_index;
    if (!token) return tr_fail(TR_ERR_DATA, "%s:%llu: %s", path, number, text);
    tr_token_quote(token, ' ', quoted);
    if (problem == INDEX_TOO_LARGE)
        return tr_fail(TR_ERR_DATA, "%s:%llu: '%s': %s, expected at most %llu", path, number, quoted, text,
                       max);
    return tr_fail(TR_ERR_DATA, "%s:%llu: '%s': %s", path, number, quoted, text);
}

/* A bad record: the error, or one more record skipped. */
static int reject(struct reader *r, enum problem problem, const char *token, uint64_t offset)
{
    if (problem == NO_MEMORY) return TR_ERR_SYSTEM;
    if (!r->options->skip_errors) return describe(r, problem, token, offset);
    if (r->report.skipped++ == 0) r->report.first_skipped = (struct tr_file_place){r->file, offset};
    return TR_OK;
}

/* ---- finding out what is wrong: the fast path only noticed that something is ---- */

static bool ends_number(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '#';
}

static enum problem label_problem(const char *token, const char *end, float label)
{
    if (tr_token_is_binary(token, ' ')) return BINARY_DATA;
    if (tr_token_is_special(token)) return LABEL_NOT_FINITE;
    if (end && *end == ',') return LABELS_SEVERAL;
    if (end && *end == ':') return LABEL_MISSING;
    if (!end || !ends_number(*end))
        return strncmp(token, "qid:", 4) == 0 ? LABEL_MISSING : LABEL_NOT_A_NUMBER;
    return isfinite(label) ? LABEL_NOT_A_NUMBER : LABEL_TOO_LARGE;
}

static enum problem value_problem(const char *token, const char *text, const char *end, float value)
{
    if (tr_token_is_binary(token, ' ')) return BINARY_DATA;
    if (ends_number(*text)) return VALUE_MISSING;
    if (tr_token_is_special(text)) return VALUE_NOT_FINITE;
    if (!end || !ends_number(*end)) return VALUE_NOT_A_NUMBER;
    return isfinite(value) ? VALUE_NOT_A_NUMBER : VALUE_TOO_LARGE;
}

/* `least`: the least index that could come here, `end`: behind the digits. */
static enum problem index_problem(const struct reader *r, const char *token, const char *end, uint64_t index,
                                  uint64_t least)
{
    if (tr_token_is_binary(token, ' ')) return BINARY_DATA;
    if (strncmp(token, "qid:", 4) == 0) return QUERY_ID;
    if (token[0] == '-' && tr_is_digit(token[1])) return INDEX_NEGATIVE;
    if (end == token) return INDEX_NOT_A_NUMBER;
    if (*end != ':') return ends_number(*end) ? COLON_MISSING : INDEX_NOT_A_NUMBER;
    if (index == 0 && r->options->lowest_index > 0) return INDEX_ZERO;
    if (index > r->max_index) return INDEX_TOO_LARGE;
    return index + 1 == least ? INDEX_TWICE : INDEX_DESCENDS;
}

/* ---- one line ---- */

/* The first value that is not 1: all before it were. */
static int start_values(struct reader *r, size_t ones)
{
    TR_TRY(TR_GROW(&r->csr.value, &r->value_capacity, r->column_capacity));
    for (size_t i = 0; i < ones; i++) r->csr.value[i] = 1;
    return TR_OK;
}

/* At the end of the index:value pairs of a line, or where one should begin and none does. */
static bool at_line_end(const char *p)
{
    return tr_at_line_end(p) || *p == '#';
}

static const char *next_line(const char *p)
{
    while (*p != '\n') p++;
    return p + 1;
}

/* The pairs of one line. *at: what is behind them, or the token that is wrong. There is room for as many
 * pairs as fit into a chunk, so none is looked for here. This is where the time goes. */
static enum problem parse_pairs(struct reader *r, const char *p, const char **at)
{
    uint32_t *column = r->csr.column;
    float *value = r->csr.value;
    uint64_t least = r->options->lowest_index, max = r->max_index;
    size_t n = r->nonzeros;
    for (;;) {
        uint64_t index;
        const char *token = p;
        p = tr_read_whole(p, &index);
        if (p == token) { /* no digit */
            *at = p;
            if (tr_is_blank(*p)) {
                p++;
                continue;
            }
            if (at_line_end(p)) break;
            return index_problem(r, token, p, index, least);
        }
        *at = token;
        if (index < least || index > max || *p != ':') return index_problem(r, token, p, index, least);
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
        if (!p || !ends_number(*p) || !isfinite(x)) return value_problem(token, text, p, x);
        if (!value && x != 1) {
            if (start_values(r, n) != TR_OK) return NO_MEMORY;
            value = r->csr.value;
        }
        if (value) value[n] = x;
        n++;
    }
    r->nonzeros = n;
    return NONE;
}

/* Ascending indices: only the ends of a row can be the smallest and the largest. */
static void note_indices(struct reader *r, size_t begin)
{
    if (r->nonzeros == begin) return;
    uint32_t first = r->csr.column[begin], last = r->csr.column[r->nonzeros - 1];
    if (first < r->report.lowest) r->report.lowest = first;
    if (last > r->report.highest) r->report.highest = last;
}

/* The label is new, among at most two before. */
static void note_new_label(struct reader *r, float label, uint64_t offset)
{
    struct tr_read_report *report = &r->report;
    for (size_t i = 0; i < report->labels; i++)
        if (report->label[i].value == label) return;
    report->label[report->labels].value = label;
    report->label[report->labels].place = (struct tr_file_place){r->file, offset};
    report->labels++;
}

static void add_row(struct reader *r, float label, uint64_t offset)
{
    struct tr_csr *csr = &r->csr;
    note_indices(r, csr->begin[csr->rows]);
    if (r->report.labels < 3) note_new_label(r, label, offset);
    csr->label[csr->rows] = label;
    csr->begin[++csr->rows] = r->nonzeros;
}

static enum problem parse_row(struct reader *r, const char *p, const char **at, uint64_t offset)
{
    float label = 0;
    const char *end = tr_read_float(p, &label);
    *at = p;
    if (!end || !ends_number(*end) || !isfinite(label)) return label_problem(p, end, label);
    enum problem problem = parse_pairs(r, end, at);
    if (problem == NONE) add_row(r, label, offset);
    return problem;
}

/* Reads one line, adds its row (if it has one), and moves *p behind it. */
static int parse_line(struct reader *r, const char **p, uint64_t offset)
{
    const char *at = *p;
    bool had_values = r->csr.value != NULL;
    while (tr_is_blank(*at)) at++;
    if (!at_line_end(at)) {
        enum problem problem = parse_row(r, at, &at, offset);
        if (problem != NONE) {
            TR_TRY(reject(r, problem, at, offset));
            if (!had_values) { /* what the dropped record brought goes with it */
                free(r->csr.value);
                r->csr.value = NULL;
                r->value_capacity = 0;
            }
        }
    }
    *p = next_line(at);
    return TR_OK;
}

/* ---- many lines ---- */

/* Room for whatever the chunk can hold: a row takes two bytes or more, a pair four. Large arrays grow by
 * moving pages, not bytes, and pages never written to take no memory: the peak is the size itself. */
static int make_room(struct reader *r, size_t bytes)
{
    struct tr_csr *csr = &r->csr;
    size_t rows = csr->rows + bytes / 2 + 1, pairs = r->nonzeros + bytes / 4 + 1;
    TR_TRY(TR_GROW(&csr->begin, &r->begin_capacity, rows + 1));
    TR_TRY(TR_GROW(&csr->label, &r->label_capacity, rows));
    TR_TRY(TR_GROW(&csr->column, &r->column_capacity, pairs));
    if (csr->value) TR_TRY(TR_GROW(&csr->value, &r->value_capacity, pairs));
    return TR_OK;
}

static int parse_chunk(void *reader, const struct tr_text_share_chunk *of_share)
{
    struct reader *r = reader;
    const struct tr_chunk *chunk = &of_share->lines;
    r->file = of_share->file;
    if (chunk->too_long) return reject(r, LINE_TOO_LONG, NULL, chunk->offset);
    TR_TRY(make_room(r, (size_t)(chunk->end - chunk->begin)));
    size_t before = r->csr.rows;
    for (const char *p = chunk->begin; p < chunk->end && !r->share.enough;) {
        TR_TRY(parse_line(r, &p, chunk->offset + (uint64_t)(p - chunk->begin)));
        r->share.enough = r->csr.rows == r->most_rows;
    }
    r->report.text_bytes += (uint64_t)(chunk->end - chunk->begin);
    return tr_read_runs_add(r->options->runs, of_share, r->csr.rows - before);
}

static void trim(struct reader *r)
{
    struct tr_csr *csr = &r->csr;
    TR_SHRINK(&csr->begin, csr->rows + 1);
    TR_SHRINK(&csr->label, csr->rows);
    TR_SHRINK(&csr->column, r->nonzeros);
    if (csr->value) TR_SHRINK(&csr->value, r->nonzeros);
}

int tr_libsvm_read(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_libsvm_options *options, struct tr_csr *csr, struct tr_read_report *report)
{
    struct reader r = {.files = files, .options = options, .report.lowest = UINT32_MAX};
    r.max_index = options->max_index ? options->max_index : TR_LIBSVM_MAX_INDEX;
    r.most_rows = options->most_rows ? options->most_rows : SIZE_MAX;
    r.share = (struct tr_text_share){.files = files,
                                     .reader = reader,
                                     .readers = readers,
                                     .deal = options->deal,
                                     .chunk_bytes = options->chunk_bytes,
                                     .progress = options->progress,
                                     .progress_state = options->progress_state};
    int result = make_room(&r, 0);
    if (result == TR_OK) {
        r.csr.begin[0] = 0;
        result = tr_text_share_each(&r.share, parse_chunk, &r);
    }
    if (result != TR_OK) {
        tr_csr_free(&r.csr);
        return result;
    }
    trim(&r);
    r.report.rows = r.csr.rows;
    r.report.nonzeros = r.nonzeros;
    r.report.binary = r.csr.value == NULL;
    *csr = r.csr;
    *report = r.report;
    return TR_OK;
}

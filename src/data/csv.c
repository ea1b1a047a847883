#define _GNU_SOURCE
#include "data/csv.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "data/number.h"
#include "data/share.h"
#include "data/token.h"

/* What can be wrong with a record. */
enum problem {
    NONE,
    LINE_TOO_LONG,
    BINARY_DATA,
    FIELD_EMPTY,
    FIELD_NOT_A_NUMBER,
    FIELD_NOT_FINITE,
    FIELD_TOO_LARGE,
    FIELDS_FEW,
    FIELDS_MANY,
};

static const char *const problem_text[] = {
    [LINE_TOO_LONG] = "line longer than 64 MiB",
    [BINARY_DATA] = "found bytes that are not text, expected a number",
    [FIELD_EMPTY] = "is empty, expected a number",
    [FIELD_NOT_A_NUMBER] = "is not a number",
    [FIELD_NOT_FINITE] = "is not finite, expected an ordinary number",
    [FIELD_TOO_LARGE] = "is too large for a 32-bit float",
};

struct reader {
    const struct tr_files *files;
    const struct tr_csv_options *options;
    struct tr_text_share share;
    size_t file; /* the one being read */
    const struct tr_shape *shape;
    size_t fields, columns; /* with the label, and without */
    struct tr_dense dense;
    size_t value_capacity, label_capacity;
    struct tr_read_report report;
};

/* ---- describing what is wrong ---- */

/* Where parsing stopped. */
struct trouble {
    enum problem problem;
    size_t field; /* from 0; of FIELDS_…: how many there are */
    const char *token;
};

static int describe(const struct reader *r, const struct trouble *t, uint64_t offset)
{
    uint64_t line;
    char quoted[TR_TOKEN_ROOM] = "";
    TR_TRY(tr_files_line(r->files, r->file, offset, &line));
    const char *path = r->files->file[r->file].path;
    unsigned long long number = line;
    switch (t->problem) {
    case LINE_TOO_LONG: return tr_fail(TR_ERR_DATA, "%s:%llu: %s", path, number, problem_text[t->problem]);
    case FIELDS_FEW:
    case FIELDS_MANY:
        return tr_fail(TR_ERR_DATA, "%s:%llu: %s%zu column%s, expected %zu as in the first line", path,
                       number, t->problem == FIELDS_MANY ? "more than " : "",
                       t->problem == FIELDS_MANY ? r->fields : t->field, t->field == 1 ? "" : "s", r->fields);
    case FIELD_EMPTY:
        return tr_fail(TR_ERR_DATA, "%s:%llu: column %zu: %s", path, number, t->field + 1,
                       problem_text[t->problem]);
    default:
        tr_token_quote(t->token, r->shape->separator, quoted);
        return tr_fail(TR_ERR_DATA, "%s:%llu: column %zu: '%s' %s", path, number, t->field + 1, quoted,
                       problem_text[t->problem]);
    }
}

/* A bad record: the error, or one more record skipped. */
static int reject(struct reader *r, const struct trouble *t, uint64_t offset)
{
    if (!r->options->skip_errors) return describe(r, t, offset);
    if (r->report.skipped++ == 0) r->report.first_skipped = (struct tr_file_place){r->file, offset};
    return TR_OK;
}

static enum problem field_problem(const char *p, const char *end, float value, char separator)
{
    if (tr_token_is_binary(p, separator)) return BINARY_DATA;
    if (tr_token_ends(p, separator)) return FIELD_EMPTY;
    if (tr_token_is_special(p)) return FIELD_NOT_FINITE;
    if (end && (tr_token_ends(end, separator) || *end == '"') && !isfinite(value)) return FIELD_TOO_LARGE;
    return FIELD_NOT_A_NUMBER;
}

/* ---- one line ---- */

/* A field that has blanks or quotes around it, or is wrong. Returns what follows it, NULL for trouble. */
__attribute__((noinline)) static const char *parse_odd_field(const char *p, char separator, float *value,
                                                             struct trouble *t)
{
    while (tr_is_padding(*p, separator)) p++;
    t->token = p;
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
    if (quoted && *text == '"') t->problem = FIELD_EMPTY;
    else t->problem = field_problem(text, end, *value, separator);
    return NULL;
}

/* The fields of one line, where there is room for all of them. Returns the end of the line, NULL for trouble. This is
 * where the time goes. */
static const char *parse_fields(const struct reader *r, const char *p, float *label, float *value,
                                struct trouble *t)
{
    char separator = r->shape->separator;
    size_t n = r->fields, labelled = r->options->label == TR_LABEL_FIRST  ? 0
                                     : r->options->label == TR_LABEL_LAST ? n - 1
                                                                          : n;
    for (size_t k = 0;; k++) {
        float *to = k == labelled ? label : value;
        const char *end = tr_read_float(p, to);
        if (!end || (*end != separator && *end != '\n') || !isfinite(*to)) {
            t->field = k;
            end = parse_odd_field(p, separator, to, t);
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
        *t = (struct trouble){more ? FIELDS_MANY : FIELDS_FEW, k + 1, p};
        return NULL;
    }
}

static void note_label(struct reader *r, float label, uint64_t offset)
{
    struct tr_read_report *report = &r->report;
    for (size_t i = 0; i < report->labels; i++)
        if (report->label[i].value == label) return;
    report->label[report->labels].value = label;
    report->label[report->labels].place = (struct tr_file_place){r->file, offset};
    report->labels++;
}

static const char *next_line(const char *p)
{
    return (const char *)rawmemchr(p, '\n') + 1;
}

/* Reads one line, adds its row (if it has one), and moves *p behind it. */
static int parse_line(struct reader *r, const char **p, uint64_t offset, bool *is_row)
{
    struct tr_dense *d = &r->dense;
    const char *at = *p;
    *is_row = false;
    while (tr_is_blank(*at)) at++;
    if (tr_at_line_end(at)) {
        *p = next_line(at);
        return TR_OK;
    }
    float label = NAN;
    struct trouble trouble = {NONE, 0, at};
    const char *start =
        r->shape->separator == TR_SEPARATOR_BLANKS ? at : *p; /* a tab may end an empty field */
    const char *end = parse_fields(r, start, &label, d->value + d->rows * r->columns, &trouble);
    *p = next_line(end ? end : at);
    if (!end) return reject(r, &trouble, offset);
    if (d->label) {
        d->label[d->rows] = label;
        if (r->report.labels < 3) note_label(r, label, offset);
    }
    d->rows++;
    *is_row = true;
    return TR_OK;
}

/* ---- many lines ---- */

/* Room for whatever the chunk can hold, and for one row that is left unfinished: a field takes two bytes or more. */
static int make_room(struct reader *r, size_t bytes)
{
    struct tr_dense *d = &r->dense;
    size_t rows = bytes / 2 / (r->fields ? r->fields : 1) + 1;
    TR_TRY(TR_GROW(&d->value, &r->value_capacity, (d->rows + rows + 1) * r->columns));
    if (r->options->label != TR_LABEL_NONE)
        TR_TRY(TR_GROW(&d->label, &r->label_capacity, d->rows + rows + 1));
    return TR_OK;
}

/* Lines before the records are the header. False: nothing is left. */
static bool pass_header(const struct tr_shape *shape, struct tr_chunk *lines)
{
    if (lines->offset >= shape->begin) return true;
    uint64_t more = shape->begin - lines->offset, n = (uint64_t)(lines->end - lines->begin);
    if (more >= n) return false;
    lines->begin += more;
    lines->offset += more;
    return true;
}

static int enter_chunk(struct reader *r, const struct tr_text_share_chunk *c, struct tr_chunk *lines)
{
    *lines = c->lines;
    r->file = c->file;
    r->shape = &r->options->shape[c->file];
    if (lines->too_long) {
        lines->end = lines->begin;
        return reject(r, &(struct trouble){LINE_TOO_LONG, 0, NULL}, lines->offset);
    }
    if (!pass_header(r->shape, lines)) lines->begin = lines->end;
    return make_room(r, (size_t)(lines->end - lines->begin));
}

static int parse_chunk(void *state, const struct tr_text_share_chunk *c)
{
    struct reader *r = state;
    struct tr_chunk lines;
    bool is_row;
    TR_TRY(enter_chunk(r, c, &lines));
    size_t before = r->dense.rows;
    for (const char *p = lines.begin; p < lines.end && !r->share.enough;) {
        TR_TRY(parse_line(r, &p, lines.offset + (uint64_t)(p - lines.begin), &is_row));
        r->share.enough = r->options->most_rows > 0 && r->dense.rows == r->options->most_rows;
    }
    r->report.text_bytes += (uint64_t)(c->lines.end - c->lines.begin);
    return tr_read_runs_add(r->options->runs, c, r->dense.rows - before);
}

static void set_up(struct reader *r, const struct tr_files *files, const struct tr_csv_options *options)
{
    *r = (struct reader){.files = files, .options = options, .report.lowest = UINT32_MAX};
    r->columns = tr_csv_columns(files, options);
    r->fields = r->columns + (options->label != TR_LABEL_NONE);
    r->dense.columns = r->columns;
    r->share = (struct tr_text_share){.files = files, .readers = 1};
}

size_t tr_csv_columns(const struct tr_files *files, const struct tr_csv_options *options)
{
    uint64_t fields = 0;
    for (size_t i = 0; i < files->n && fields == 0; i++) fields = options->shape[i].fields;
    return fields > 0 ? (size_t)fields - (options->label != TR_LABEL_NONE) : 0;
}

int tr_csv_read(const struct tr_files *files, size_t reader, size_t readers,
                const struct tr_csv_options *options, struct tr_dense *dense, struct tr_read_report *report)
{
    struct reader r;
    set_up(&r, files, options);
    r.share = (struct tr_text_share){.files = files,
                                     .reader = reader,
                                     .readers = readers,
                                     .deal = options->deal,
                                     .chunk_bytes = options->chunk_bytes,
                                     .progress = options->progress,
                                     .progress_state = options->progress_state};
    int status = make_room(&r, 0);
    if (status == TR_OK) status = tr_text_share_each(&r.share, parse_chunk, &r);
    if (status != TR_OK) {
        tr_dense_free(&r.dense);
        return status;
    }
    TR_SHRINK(&r.dense.value, r.dense.rows * r.columns);
    if (r.dense.label) TR_SHRINK(&r.dense.label, r.dense.rows);
    r.report.rows = r.dense.rows;
    r.report.nonzeros = (uint64_t)r.dense.rows * r.columns;
    if (r.dense.rows > 0 && r.columns > 0) {
        r.report.lowest = 0;
        r.report.highest = (uint32_t)(r.columns - 1);
    }
    *dense = r.dense;
    *report = r.report;
    return TR_OK;
}

void tr_dense_free(struct tr_dense *dense)
{
    free(dense->value);
    free(dense->label);
    *dense = (struct tr_dense){0};
}

/* ---- one row after the other ---- */

struct each {
    struct reader reader;
    int (*row)(void *state, const struct tr_csv_row *row);
    void *state;
};

static int each_row(void *state, const struct tr_text_share_chunk *c)
{
    struct each *e = state;
    struct reader *r = &e->reader;
    struct tr_chunk lines;
    TR_TRY(enter_chunk(r, c, &lines));
    for (const char *p = lines.begin; p < lines.end;) {
        struct tr_csv_row row = {.n = r->columns, .files = r->files, .file = r->file};
        bool is_row;
        row.offset = lines.offset + (uint64_t)(p - lines.begin);
        r->dense.rows = 0;
        TR_TRY(parse_line(r, &p, row.offset, &is_row));
        if (!is_row) continue;
        row.value = r->dense.value;
        row.label = r->dense.label ? *r->dense.label : NAN;
        TR_TRY(e->row(e->state, &row));
    }
    r->dense.rows = 0;
    return TR_OK;
}

int tr_csv_each(const struct tr_files *files, const struct tr_csv_options *options,
                int (*row)(void *state, const struct tr_csv_row *row), void *state)
{
    struct each e = {.row = row, .state = state};
    set_up(&e.reader, files, options);
    int status = make_room(&e.reader, 0);
    if (status == TR_OK) status = tr_text_share_each(&e.reader.share, each_row, &e);
    tr_dense_free(&e.reader.dense);
    return status;
}

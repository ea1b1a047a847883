#define _GNU_SOURCE
#include "data/triples.h"

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
    AS_TEXT,   /* nothing, but ids must be read as text */
    LINE_TOO_LONG,
    BINARY_DATA,
    FIELDS_FEW,
    FIELDS_MANY,
    USER_MISSING,
    ITEM_MISSING,
    RATING_MISSING,
    USER_NOT_A_NUMBER,
    ITEM_NOT_A_NUMBER,
    RATING_NOT_A_NUMBER,
    RATING_NOT_FINITE,
    RATING_TOO_LARGE,
    DOCUMENT_NOT_A_NUMBER,
    DOCUMENT_OUTSIDE,
    WORD_NOT_A_NUMBER,
    WORD_OUTSIDE,
    COUNT_NOT_A_NUMBER,
    COUNT_OUTSIDE,
};

static const char *const problem_text[] = {
    [LINE_TOO_LONG] = "line longer than 64 MiB",
    [BINARY_DATA] = "found bytes that are not text",
    [FIELDS_FEW] = "expected three columns",
    [FIELDS_MANY] = "expected no more than three columns",
    [USER_MISSING] = "the user is missing",
    [ITEM_MISSING] = "the item is missing",
    [RATING_MISSING] = "the rating is missing",
    [USER_NOT_A_NUMBER] = "the user is no whole number, as those of the training data are",
    [ITEM_NOT_A_NUMBER] = "the item is no whole number, as those of the training data are",
    [RATING_NOT_A_NUMBER] = "the rating is not a number",
    [RATING_NOT_FINITE] = "the rating is not finite, expected an ordinary number",
    [RATING_TOO_LARGE] = "the rating is too large for a 32-bit float",
    [DOCUMENT_NOT_A_NUMBER] = "the document is not a whole number",
    [DOCUMENT_OUTSIDE] = "no such document, expected",
    [WORD_NOT_A_NUMBER] = "the word is not a whole number",
    [WORD_OUTSIDE] = "no such word, expected",
    [COUNT_NOT_A_NUMBER] = "the count is not a whole number",
    [COUNT_OUTSIDE] = "the count is wrong, expected",
};

struct reader {
    const struct tr_files *files;
    const struct tr_triples_options *options;
    struct tr_text_share share;
    size_t file; /* the one being read */
    const struct tr_shape *shape;
    uint64_t base; /* docword: documents before its first */
    struct tr_triples t;
    uint64_t *records;
    struct tr_triples_report report;
};

/* ---- describing what is wrong ---- */

static int describe(const struct reader *r, enum problem problem, const char *token, uint64_t offset)
{
    uint64_t line;
    char quoted[TR_TOKEN_ROOM] = "", range[48] = "";
    TR_TRY(tr_files_line(r->files, r->file, offset, &line));
    const char *path = r->files->file[r->file].path, *text = problem_text[problem];
    unsigned long long number = line, most = problem == DOCUMENT_OUTSIDE ? r->shape->documents
                                             : problem == WORD_OUTSIDE   ? r->shape->words
                                                                         : TR_DOCWORD_MOST_COUNT;
    if (!token || tr_at_line_end(token)) return tr_fail(TR_ERR_DATA, "%s:%llu: %s", path, number, text);
    tr_token_quote(token, r->shape->separator ? r->shape->separator : TR_SEPARATOR_BLANKS, quoted);
    if (problem >= DOCUMENT_OUTSIDE && problem != WORD_NOT_A_NUMBER && problem != COUNT_NOT_A_NUMBER)
        snprintf(range, sizeof range, " 1 to %llu", most);
    return tr_fail(TR_ERR_DATA, "%s:%llu: '%s': %s%s", path, number, quoted, text, range);
}

/* A bad record: the error, or one more record skipped. */
static int reject(struct reader *r, enum problem problem, const char *token, uint64_t offset)
{
    if (problem == NO_MEMORY) return TR_ERR_SYSTEM;
    if (!r->options->skip_errors) return describe(r, problem, token, offset);
    if (r->report.skipped++ == 0) r->report.first_skipped = (struct tr_file_place){r->file, offset};
    return TR_OK;
}

/* ---- whole numbers as ids ---- */

/* Reads digits and returns what follows; NULL if there is none, a leading zero, or more than 64 bits. */
static inline const char *read_id(const char *p, uint64_t *id)
{
    uint64_t word = tr_load8(p);
    unsigned n = tr_leading_digits(word);
    *id = tr_digits_value(word, n);
    if (TR_RARELY(n == 0 || (*p == '0' && n > 1))) return NULL;
    p += n;
    if (TR_RARELY(n == 8))
        for (; tr_is_digit(*p); p++) {
            uint64_t digit = (uint64_t)(*p - '0');
            if (*id > (UINT64_MAX - digit) / 10) return NULL;
            *id = *id * 10 + digit;
        }
    return p;
}

/* ---- ratings: any line ---- */

struct field {
    const char *text, *end;
};

/* The field at p without quotes and blanks around it. Returns what follows. A quote ends where a field may end. */
static const char *take_field(const char *p, char separator, struct field *field)
{
    while (tr_is_padding(*p, separator)) p++;
    if (*p == '"') {
        for (const char *q = p + 1; *q != '\n'; q++) {
            if (*q != '"') continue;
            const char *behind = q + 1;
            while (tr_is_padding(*behind, separator)) behind++;
            if (!tr_token_ends(behind, separator)) continue;
            *field = (struct field){p + 1, q};
            return behind;
        }
    }
    const char *q = p;
    while (!tr_token_ends(q, separator)) q++;
    *field = (struct field){p, q};
    while (field->end > p && tr_is_padding(field->end[-1], separator)) field->end--;
    return q;
}

/* Behind the separator; p itself if the line ends. */
static const char *pass_separator(const char *p, char separator)
{
    if (tr_at_line_end(p)) return p;
    if (separator == TR_SEPARATOR_COLONS) return p + 2;
    if (separator != TR_SEPARATOR_BLANKS) return p + 1;
    while (tr_is_blank(*p)) p++;
    return p;
}

struct rating {
    struct field user, item, rating;
    float value;
};

static bool field_is_empty(const struct field *f)
{
    return f->text == f->end;
}

static bool field_is_binary(const struct field *f)
{
    for (const char *p = f->text; p < f->end; p++)
        if (tr_is_binary(*p)) return true;
    return false;
}

static enum problem rating_problem(const char *token, const char *end, float value)
{
    if (tr_token_is_special(token)) return RATING_NOT_FINITE;
    return end && !isfinite(value) ? RATING_TOO_LARGE : RATING_NOT_A_NUMBER;
}

/* Takes any line apart; what is wrong with it stands at *at. */
static enum problem parse_rating(const char *p, char separator, bool third_may_miss, struct rating *rating,
                                 const char **at)
{
    *at = p;
    if (separator == TR_SEPARATOR_BLANKS)
        while (tr_is_blank(*p)) p++;
    const char *user = take_field(p, separator, &rating->user), *item = pass_separator(user, separator);
    if (field_is_binary(&rating->user)) return BINARY_DATA;
    if (field_is_empty(&rating->user)) return USER_MISSING;
    if (item == user) return FIELDS_FEW;
    const char *behind = take_field(item, separator, &rating->item);
    if (field_is_binary(&rating->item)) return BINARY_DATA;
    if (field_is_empty(&rating->item)) return ITEM_MISSING;
    const char *third = pass_separator(behind, separator);
    rating->value = NAN;
    if (third == behind || tr_at_line_end(third)) {
        if (third_may_miss) return NONE;
        return third == behind ? FIELDS_FEW : RATING_MISSING;
    }
    take_field(third, separator, &rating->rating);
    if (field_is_empty(&rating->rating)) return third_may_miss ? NONE : RATING_MISSING;
    *at = rating->rating.text;
    if (field_is_binary(&rating->rating)) return BINARY_DATA;
    const char *end = tr_read_float(*at, &rating->value);
    return end == rating->rating.end && isfinite(rating->value) ? NONE
                                                                : rating_problem(*at, end, rating->value);
}

static bool add_id(struct tr_ids *ids, const struct field *f, bool as_text, uint32_t *place,
                   enum problem *problem)
{
    uint64_t number;
    size_t n = (size_t)(f->end - f->text);
    if (!as_text && !tr_id_number(f->text, n, &number)) {
        *problem = AS_TEXT;
        return false;
    }
    int status = as_text ? tr_ids_add_text(ids, f->text, n, place) : tr_ids_add_number(ids, number, place);
    if (status != TR_OK) *problem = NO_MEMORY;
    return status == TR_OK;
}

/* A line that is not just numbers and separators. */
static enum problem read_any_rating(struct reader *r, const char *p, struct tr_triple *t, const char **at)
{
    struct rating rating;
    const struct tr_triples_options *o = r->options;
    enum problem problem = parse_rating(p, r->shape->separator, false, &rating, at);
    if (problem != NONE) return problem;
    bool user = add_id(&r->t.rows, &rating.user, o->text_rows, &t->row, &problem);
    if (!user && problem == AS_TEXT) {
        *at = rating.user.text;
        if (o->known_rows) return USER_NOT_A_NUMBER;
        r->report.text_rows = true;
    }
    bool item = add_id(&r->t.columns, &rating.item, o->text_columns, &t->column, &problem);
    if (!item && problem == AS_TEXT) {
        *at = rating.item.text;
        if (o->known_columns) return ITEM_NOT_A_NUMBER;
        r->report.text_columns = true;
    }
    t->value = rating.value;
    return problem;
}

/* ---- ratings: the common line ---- */

static inline const char *line_end(const char *p)
{
    for (;; p += 8) {
        uint64_t word = tr_load8(p) ^ 0x0a0a0a0a0a0a0a0au;
        uint64_t zeros = (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;
        if (zeros) return p + __builtin_ctzll(zeros) / 8;
    }
}

/* number separator number separator rating; separators are of `width` bytes. Returns the newline, or NULL for any other
 * line. This is where the time goes. */
static inline const char *read_plain_rating(const char *p, char separator, size_t width, uint64_t *user,
                                            uint64_t *item, float *value)
{
    p = read_id(p, user);
    if (TR_RARELY(!p || *p != separator || p[width - 1] != separator)) return NULL;
    p = read_id(p + width, item);
    if (TR_RARELY(!p || *p != separator || p[width - 1] != separator)) return NULL;
    p += width;
    if (tr_is_digit(*p) && p[1] == separator && p[width] == separator) { /* most ratings are a digit */
        *value = (float)(*p - '0');
        return line_end(p + 2);
    }
    p = tr_read_float(p, value);
    if (TR_RARELY(!p || !isfinite(*value))) return NULL;
    if (*p == '\n') return p;
    if (*p == '\r' && p[1] == '\n') return p + 1;
    return *p == separator && p[width - 1] == separator ? line_end(p) : NULL;
}

/* Only numbers are read; returns the newline. */
static const char *read_rating(struct reader *r, const char *p, struct tr_triple *t, enum problem *problem,
                               const char **at)
{
    uint64_t user, item;
    char separator = r->shape->separator;
    size_t width = separator == TR_SEPARATOR_COLONS ? 2 : 1;
    const struct tr_triples_options *o = r->options;
    const char *end = o->text_rows || o->text_columns
                          ? NULL
                          : read_plain_rating(p, separator, width, &user, &item, &t->value);
    *problem = NONE;
    if (TR_RARELY(!end)) {
        *at = p;
        *problem = read_any_rating(r, p, t, at);
        return rawmemchr(p, '\n');
    }
    if (tr_ids_number(&r->t.rows, user, &t->row) != TR_OK) *problem = NO_MEMORY;
    if (tr_ids_number(&r->t.columns, item, &t->column) != TR_OK) *problem = NO_MEMORY;
    return end;
}

/* ---- docword ---- */

/* A whole number from 1, and the blanks behind it. NULL if there is none. */
static inline const char *read_count(const char *p, uint64_t *number)
{
    const char *end = tr_read_whole(p, number);
    if (TR_RARELY(end == p)) return NULL;
    if (*end == ' ') end++;
    while (TR_RARELY(tr_is_blank(*end))) end++;
    return end;
}

static enum problem word_problem(const char *p, enum problem not_a_number)
{
    if (tr_token_is_binary(p, TR_SEPARATOR_BLANKS)) return BINARY_DATA;
    return tr_at_line_end(p) ? FIELDS_FEW : not_a_number;
}

/* A number must be followed by a blank or the end of the line. */
static bool ends_well(const char *end)
{
    return tr_is_blank(end[-1]) || tr_at_line_end(end);
}

static enum problem read_word(struct reader *r, const char *p, struct tr_triple *t, const char **at)
{
    uint64_t document, word, count;
    *at = p;
    const char *q = read_count(p, &document);
    if (!q || !ends_well(q)) return word_problem(p, DOCUMENT_NOT_A_NUMBER);
    if (document - 1 >= r->shape->documents) return DOCUMENT_OUTSIDE;
    *at = p = q;
    q = read_count(p, &word);
    if (!q || !ends_well(q)) return word_problem(p, WORD_NOT_A_NUMBER);
    if (word - 1 >= r->shape->words) return WORD_OUTSIDE;
    *at = p = q;
    q = read_count(p, &count);
    if (!q || !ends_well(q)) return word_problem(p, COUNT_NOT_A_NUMBER);
    if (count - 1 >= TR_DOCWORD_MOST_COUNT) return COUNT_OUTSIDE;
    *at = q;
    if (!tr_at_line_end(q)) return FIELDS_MANY;
    *t = (struct tr_triple){(uint32_t)(r->base + document - 1), (uint32_t)(word - 1), (float)count};
    return NONE;
}

/* ---- many lines ---- */

static int parse_line(struct reader *r, const char **p, uint64_t offset)
{
    struct tr_triple *t = &r->t.triple[r->t.n];
    const char *at = *p;
    enum problem problem;
    if (TR_RARELY(tr_is_blank(*at) || tr_at_line_end(at))) {
        while (tr_is_blank(*at)) at++;
        if (tr_at_line_end(at)) {
            *p = (const char *)rawmemchr(at, '\n') + 1;
            return TR_OK;
        }
        if (r->shape->separator == '\t') at = *p; /* a tab may end an empty field */
    }
    if (r->options->format == TR_FORMAT_RATINGS) {
        *p = read_rating(r, at, t, &problem, &at) + 1;
    } else {
        problem = read_word(r, at, t, &at);
        *p = (const char *)rawmemchr(at, '\n') + 1;
    }
    r->records[r->file]++;
    if (problem == NONE) r->t.n++;
    else if (problem == AS_TEXT) r->share.enough = true;
    else return reject(r, problem, at, offset);
    return TR_OK;
}

static int note_run(struct reader *r, const struct tr_text_share_chunk *c)
{
    struct tr_triples *t = &r->t;
    const struct tr_triple_run *last = t->runs > 0 ? &t->run[t->runs - 1] : NULL;
    if (last && last->file == c->file && last->piece == c->piece) return TR_OK;
    TR_TRY(TR_GROW(&t->run, &t->run_capacity, t->runs + 1));
    t->run[t->runs++] = (struct tr_triple_run){c->file, c->piece, t->n};
    return TR_OK;
}

static void enter_file(struct reader *r, size_t file)
{
    if (file == r->file && r->shape) return;
    r->file = file;
    r->shape = &r->options->shape[file];
    r->base = tr_docword_base(r->files, r->options->shape, file);
}

/* Lines before the records are the header. */
static void pass_header(const struct reader *r, struct tr_chunk *lines)
{
    uint64_t n = (uint64_t)(lines->end - lines->begin), header = r->shape->begin;
    if (lines->offset >= header) return;
    lines->begin += header - lines->offset < n ? header - lines->offset : n;
    lines->offset = header;
}

static int parse_chunk(void *state, const struct tr_text_share_chunk *c)
{
    struct reader *r = state;
    struct tr_chunk lines = c->lines;
    enter_file(r, c->file);
    if (lines.too_long) return reject(r, LINE_TOO_LONG, NULL, lines.offset);
    size_t n = (size_t)(lines.end - lines.begin);
    r->report.text_bytes += n;
    pass_header(r, &lines);
    TR_TRY(note_run(r, c));
    TR_TRY(TR_GROW(&r->t.triple, &r->t.triple_capacity,
                   r->t.n + n / 6 + 2)); /* a record takes six bytes or more */
    for (const char *p = lines.begin; p < lines.end && !r->share.enough;)
        TR_TRY(parse_line(r, &p, lines.offset + (uint64_t)(p - lines.begin)));
    return TR_OK;
}

void tr_triples_free(struct tr_triples *triples)
{
    free(triples->triple);
    free(triples->run);
    tr_ids_free(&triples->rows);
    tr_ids_free(&triples->columns);
    *triples = (struct tr_triples){0};
}

int tr_triples_read(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_triples_options *options, struct tr_triples *triples, uint64_t *records,
                    struct tr_triples_report *report)
{
    struct reader r = {.files = files, .options = options, .records = records};
    r.t.rows.are_text = options->text_rows;
    r.t.columns.are_text = options->text_columns;
    r.share = (struct tr_text_share){.files = files,
                                     .reader = reader,
                                     .readers = readers,
                                     .deal = options->deal,
                                     .chunk_bytes = options->chunk_bytes,
                                     .progress = options->progress,
                                     .progress_state = options->progress_state};
    memset(records, 0, files->n * sizeof *records);
    int status = tr_text_share_each(&r.share, parse_chunk, &r);
    if (status != TR_OK) {
        tr_triples_free(&r.t);
        return status;
    }
    TR_SHRINK(&r.t.triple, r.t.n);
    r.t.triple_capacity = r.t.n;
    r.report.records = r.t.n;
    *triples = r.t;
    *report = r.report;
    return TR_OK;
}

/* ---- docword: headers ---- */

uint64_t tr_docword_base(const struct tr_files *files, const struct tr_shape *shapes, size_t file)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < file && i < files->n; i++) sum += shapes[i].documents;
    return sum;
}

int tr_docword_check(const struct tr_files *files, const struct tr_shape *shapes, const uint64_t *records)
{
    for (size_t i = 0; i < files->n; i++) {
        if (records[i] == shapes[i].nonzeros) continue;
        return tr_fail(TR_ERR_DATA, "%s: %llu records, expected %llu as its third line says",
                       files->file[i].path, (unsigned long long)records[i],
                       (unsigned long long)shapes[i].nonzeros);
    }
    return TR_OK;
}

/* ---- one rating after the other ---- */

struct each_rating {
    struct reader reader; /* for messages */
    bool third_may_miss;
    tr_rating_fn *rating;
    void *state;
};

static int rate_line(struct each_rating *e, const char *p, uint64_t offset)
{
    struct reader *r = &e->reader;
    struct rating line;
    const char *at = p;
    while (tr_is_blank(*at)) at++;
    if (tr_at_line_end(at)) return TR_OK;
    enum problem problem = parse_rating(p, r->shape->separator, e->third_may_miss, &line, &at);
    if (problem != NONE) return describe(r, problem, at, offset);
    tr_rating rating = {.user = line.user.text,
                        .item = line.item.text,
                        .user_length = (size_t)(line.user.end - line.user.text),
                        .item_length = (size_t)(line.item.end - line.item.text),
                        .value = line.value};
    return e->rating(e->state, &rating);
}

static int rate_chunk(void *state, const struct tr_text_share_chunk *c)
{
    struct each_rating *e = state;
    struct reader *r = &e->reader;
    struct tr_chunk lines = c->lines;
    enter_file(r, c->file);
    if (lines.too_long) return describe(r, LINE_TOO_LONG, NULL, lines.offset);
    pass_header(r, &lines);
    for (const char *p = lines.begin; p < lines.end; p = (const char *)rawmemchr(p, '\n') + 1)
        TR_TRY(rate_line(e, p, lines.offset + (uint64_t)(p - lines.begin)));
    return TR_OK;
}

int tr_ratings_each(const struct tr_files *files, const struct tr_shape *shapes, bool third_may_miss,
                    tr_rating_fn *rating, void *state)
{
    struct tr_triples_options options = {.format = TR_FORMAT_RATINGS, .shape = shapes};
    struct each_rating e = {.reader = {.files = files, .options = &options},
                            .third_may_miss = third_may_miss,
                            .rating = rating,
                            .state = state};
    struct tr_text_share share = {.files = files, .readers = 1};
    return tr_text_share_each(&share, rate_chunk, &e);
}

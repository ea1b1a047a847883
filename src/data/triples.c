/* Text of three columns, read at the speed of memory: ratings of items by users, and UCI's bags of words.
 *
 *   ratings   user, item, rating, and anything more; separated by tabs, ::, semicolons, commas or blanks. An id is a
 *             whole number of up to 64 bits without leading zeros, or any other text; quotes around a field are dropped
 *   docword   behind a header document, word, count: whole numbers from 1, separated by blanks
 *
 * Empty lines, CRLF and a last line without newline are fine.
 */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "data/number.h"
#include "data/reader.h"

/* What is wrong with a line, where token says so: not at the end of the line. */
static const char *bad(struct tr_reader *r, const char *token, const char *problem)
{
    char separator = r->head->separator ? r->head->separator : TR_SEPARATOR_BLANKS;
    return tr_reader_bad(r, tr_at_line_end(token) ? NULL : token, separator, "%s", problem);
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

static bool is_binary(const struct field *f)
{
    for (const char *p = f->text; p < f->end; p++)
        if (tr_is_binary(*p)) return true;
    return false;
}

struct rating {
    struct field user, item;
    float value;
};

/* The third column at p, where `behind` is what follows the second. Returns what is wrong, or NULL. *at: where. */
static const char *parse_value(const char *p, const char *behind, char separator, bool may_miss, float *value,
                               const char **at)
{
    struct field field = {p, p};
    *value = NAN;
    if (p != behind && !tr_at_line_end(p)) take_field(p, separator, &field);
    if (field.text == field.end) {
        if (may_miss) return NULL;
        return p == behind ? "expected three columns" : "the rating is missing";
    }
    *at = field.text;
    if (is_binary(&field)) return "found bytes that are not text";
    const char *end = tr_read_float(*at, value);
    if (end == field.end && isfinite(*value)) return NULL;
    if (tr_token_is_special(*at)) return "the rating is not finite, expected an ordinary number";
    return end && !isfinite(*value) ? "the rating is too large for a 32-bit float"
                                    : "the rating is not a number";
}

/* Takes any line apart. Returns what is wrong, or NULL. */
static const char *parse_rating(const char *p, char separator, bool third_may_miss, struct rating *rating,
                                const char **at)
{
    static const char binary[] = "found bytes that are not text", few[] = "expected three columns";
    *at = p;
    if (separator == TR_SEPARATOR_BLANKS)
        while (tr_is_blank(*p)) p++;
    const char *user = take_field(p, separator, &rating->user), *item = pass_separator(user, separator);
    if (is_binary(&rating->user)) return binary;
    if (rating->user.text == rating->user.end) return "the user is missing";
    if (item == user) return few;
    const char *behind = take_field(item, separator, &rating->item);
    if (is_binary(&rating->item)) return binary;
    if (rating->item.text == rating->item.end) return "the item is missing";
    return parse_value(pass_separator(behind, separator), behind, separator, third_may_miss, &rating->value,
                       at);
}

/* Adds an id, as a number unless ids are text. *is_text: it is no number, and was not added. */
static int add_id(struct tr_ids *ids, const struct field *f, uint32_t *place, bool *is_text)
{
    uint64_t number;
    size_t n = (size_t)(f->end - f->text);
    *is_text = !ids->are_text && !tr_id_number(f->text, n, &number);
    if (*is_text) return TR_OK;
    return ids->are_text ? tr_ids_add_text(ids, f->text, n, place) : tr_ids_add_number(ids, number, place);
}

/* A line that is not just numbers and separators. */
static const char *read_any_rating(struct tr_reader *r, const char *p, struct tr_triple *t)
{
    struct rating rating;
    const char *at, *problem = parse_rating(p, r->head->separator, false, &rating, &at);
    bool text_user, text_item;
    if (problem) return bad(r, at, problem);
    r->status = add_id(&r->triples.rows, &rating.user, &t->row, &text_user);
    if (r->status != TR_OK) return NULL;
    if (text_user && r->options->known_rows)
        return bad(r, rating.user.text, "the user is no whole number, as those of the training data are");
    r->status = add_id(&r->triples.columns, &rating.item, &t->column, &text_item);
    if (r->status != TR_OK) return NULL;
    if (text_item && r->options->known_columns)
        return bad(r, rating.item.text, "the item is no whole number, as those of the training data are");
    r->report.text_rows |= text_user;
    r->report.text_columns |= text_item;
    r->enough = text_user || text_item;
    t->value = rating.value;
    if (!r->enough) r->triples.n++;
    return p;
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

/* As read_plain_rating() where only numbers are read; returns a byte of the line, or NULL if it is malformed. */
static const char *read_rating(struct tr_reader *r, const char *p)
{
    uint64_t user, item;
    struct tr_triple *t = &r->triples.triple[r->triples.n];
    char separator = r->head->separator;
    size_t width = separator == TR_SEPARATOR_COLONS ? 2 : 1;
    bool text = r->triples.rows.are_text || r->triples.columns.are_text;
    const char *end = text ? NULL : read_plain_rating(p, separator, width, &user, &item, &t->value);
    if (r->options->records) r->options->records[r->file]++;
    if (TR_RARELY(!end)) return read_any_rating(r, p, t);
    r->status = tr_ids_number(&r->triples.rows, user, &t->row);
    if (r->status == TR_OK) r->status = tr_ids_number(&r->triples.columns, item, &t->column);
    if (TR_RARELY(r->status != TR_OK)) return NULL;
    r->triples.n++;
    return end;
}

/* Hands out the rating instead. */
static const char *pass_rating_on(struct tr_reader *r, const char *p)
{
    struct rating line;
    const char *at, *problem = parse_rating(p, r->head->separator, r->options->third_may_miss, &line, &at);
    if (problem) return bad(r, at, problem);
    tr_rating rating = {.user = line.user.text,
                        .item = line.item.text,
                        .user_length = (size_t)(line.user.end - line.user.text),
                        .item_length = (size_t)(line.item.end - line.item.text),
                        .value = line.value};
    r->handed = r->options->rating(r->options->rating_state, &rating);
    r->enough = r->handed != TR_OK;
    return p;
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

/* One of the three numbers of a line, at *p: 1 to most. Returns what is wrong, or NULL, and moves *p behind it. */
static inline const char *read_number(const char **p, uint64_t most, const char *not_a_number,
                                      const char *outside, uint64_t *number)
{
    const char *end = read_count(*p, number);
    if (!end || !(tr_is_blank(end[-1]) || tr_at_line_end(end))) {
        if (tr_token_is_binary(*p, TR_SEPARATOR_BLANKS)) return "found bytes that are not text";
        return tr_at_line_end(*p) ? "expected three columns" : not_a_number;
    }
    if (*number - 1 >= most) return outside;
    *p = end;
    return NULL;
}

static const char *read_word(struct tr_reader *r, const char *p)
{
    static const char document_outside[] = "no such document, expected",
                      word_outside[] = "no such word, expected",
                      count_outside[] = "the count is wrong, expected";
    uint64_t document, word, count, documents = r->head->documents, words = r->head->words;
    const char *problem =
        read_number(&p, documents, "the document is not a whole number", document_outside, &document);
    if (r->options->records) r->options->records[r->file]++;
    if (!problem) problem = read_number(&p, words, "the word is not a whole number", word_outside, &word);
    if (!problem)
        problem =
            read_number(&p, TR_DOCWORD_MOST_COUNT, "the count is not a whole number", count_outside, &count);
    if (!problem && !tr_at_line_end(p)) problem = "expected no more than three columns";
    if (TR_RARELY(problem != NULL)) {
        uint64_t most = problem == document_outside ? documents
                        : problem == word_outside   ? words
                        : problem == count_outside  ? TR_DOCWORD_MOST_COUNT
                                                    : 0;
        if (most == 0) return bad(r, p, problem);
        return tr_reader_bad(r, p, TR_SEPARATOR_BLANKS, "%s 1 to %llu", problem, (unsigned long long)most);
    }
    if (TR_RARELY(r->options->held_out.to > 0) && tr_reader_leaves_out(r, r->file, document)) return p;
    r->triples.triple[r->triples.n++] =
        (struct tr_triple){(uint32_t)(r->documents + document - 1), (uint32_t)(word - 1), (float)count};
    return p;
}

/* ---- many lines ---- */

/* A record takes six bytes or more. */
static int make_room(struct tr_reader *r, size_t bytes)
{
    if (r->options->rating) return TR_OK;
    return TR_GROW(&r->triples.triple, &r->triples.triple_capacity, r->triples.n + bytes / 6 + 2);
}

static int rating_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    if (!r->options->rating) return tr_each_line(r, lines, read_rating);
    TR_TRY(tr_each_line(r, lines, pass_rating_on));
    return r->handed;
}

static int word_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    return tr_each_line(r, lines, read_word);
}

const struct tr_format_reader tr_ratings_reader = {.room = make_room, .lines = rating_lines},
                              tr_docword_reader = {.room = make_room, .lines = word_lines};

void tr_triples_free(struct tr_triples *triples)
{
    free(triples->triple);
    free(triples->run);
    tr_ids_free(&triples->rows);
    tr_ids_free(&triples->columns);
    *triples = (struct tr_triples){0};
}

uint64_t tr_docword_base(const struct tr_files *files, const struct tr_head *heads, size_t file)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < file && i < files->n; i++) sum += heads[i].documents;
    return sum;
}

int tr_docword_check(const struct tr_files *files, const struct tr_head *heads, const uint64_t *records)
{
    for (size_t i = 0; i < files->n; i++) {
        if (records[i] == heads[i].nonzeros) continue;
        return tr_fail(TR_ERR_DATA, "%s: %llu records, expected %llu as its third line says",
                       files->file[i].path, (unsigned long long)records[i],
                       (unsigned long long)heads[i].nonzeros);
    }
    return TR_OK;
}

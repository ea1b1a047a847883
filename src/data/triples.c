/* Text of three columns: ratings of items by users, and UCI's bags of words.
 *
 *   ratings   user, item, rating, and further fields; separated by tabs, ::, semicolons, commas or blanks. An id is a whole number
 *             of up to 64 bits without leading zeros, or any other text; quotes around a field are dropped
 *   docword   after a header document, word, count: whole numbers from 1, separated by blanks
 *
 * Empty lines, CRLF and a last line without newline are accepted.
 */
#include <math.h>
#include <stdlib.h>

#include "data/reader.h"

/* Notes the error of the field at token, or of the line if the line ends there. */
static const char *triples_bad(struct tr_reader *r, const char *token, const char *problem)
{
    char separator = r->head->separator ? r->head->separator : TR_SEPARATOR_BLANKS;
    return tr_reader_bad(r, tr_at_line_end(token) ? NULL : token, separator, "%s", problem);
}

/* Allocates memory for the records of a chunk: a record takes at least six bytes of text. */
static int triples_room(struct tr_reader *r, size_t bytes)
{
    if (r->options->rating) return TR_OK;
    return TR_GROW(&r->triples.triple, &r->triples.triple_capacity, r->triples.n + bytes / 6 + 2);
}

/* Reads up to three numbers of a line of a sample. Returns how many numbers it has read. */
static int sample_read_three(const char *line, double number[3])
{
    int n = 0;
    for (; n < 3; n++) {
        char *end;
        line += strspn(line, " \t,;:\"");
        number[n] = strtod(line, &end);
        if (end == line) break;
        line = end;
    }
    return n;
}

static const char *sample_next_line(const char *line)
{
    const char *newline = strchr(line, '\n');
    return newline ? newline + 1 : line + strlen(line);
}

/* ---- ratings: any line ---- */

/* Reads the field at p without quotes and blanks around it. Only a quote before a separator or the end of the line ends a quoted
 * field. Returns false if the field has bytes that are not text. */
static bool rating_read_field(const char *p, char separator, struct tr_field *f)
{
    while (tr_is_padding(*p, separator)) p++;
    const char *end = NULL;
    for (const char *q = p + 1; *p == '"' && *q != '\n' && !end; q++) {
        if (*q != '"') continue;
        f->end = q + 1;
        while (tr_is_padding(*f->end, separator)) f->end++;
        if (tr_token_ends(f->end, separator)) end = q;
    }
    f->text = p + (end != NULL);
    if (!end) {
        for (end = p; !tr_token_ends(end, separator);) end++;
        f->end = end;
        while (end > p && tr_is_padding(end[-1], separator)) end--;
    }
    f->n = (size_t)(end - f->text);
    for (size_t i = 0; i < f->n; i++)
        if (tr_is_binary(f->text[i]) && f->text[i] != TR_QUOTED_NEWLINE) return false;
    return true;
}

struct rating {
    struct tr_field user, item;
    float value;
};

/* Parses a line of any form, also one that rating_read_plain() refuses. Returns NULL, or an error text after setting *at to the
 * field with the error. */
static const char *rating_parse(const char *p, char separator, bool third_may_miss, struct rating *rating,
                                const char **at)
{
    static const char binary[] = "found bytes that are not text", few[] = "expected three columns";
    struct tr_field third = {.n = 0};
    *at = p;
    if (separator == TR_SEPARATOR_BLANKS) p = tr_skip_blanks(p);
    if (!rating_read_field(p, separator, &rating->user)) return binary;
    if (rating->user.n == 0) return "the user is missing";
    p = rating->user.end;
    (void)tr_next_any_field(&p, separator);
    if (p == rating->user.end) return few;
    if (!rating_read_field(p, separator, &rating->item)) return binary;
    if (rating->item.n == 0) return "the item is missing";
    p = rating->item.end;
    (void)tr_next_any_field(&p, separator);
    rating->value = NAN;
    bool none = p == rating->item.end,
         text = none || tr_at_line_end(p) || rating_read_field(p, separator, &third);
    if (third.n == 0) return third_may_miss ? NULL : none ? few : "the rating is missing";
    *at = third.text;
    if (!text) return binary;
    const char *end = tr_read_float(*at, &rating->value);
    bool finite = isfinite(rating->value);
    if (end == third.text + third.n && finite) return NULL;
    if (tr_token_is_special(*at)) return "the rating is not finite, expected an ordinary number";
    return end && !finite ? "the rating is too large for a 32-bit float" : "the rating is not a number";
}

/* Adds an id to a list of texts or of numbers. *is_text: the list is of numbers, the id is no number, and was not added. */
static int rating_add_id(struct tr_ids *ids, const struct tr_field *f, uint32_t *place, bool *is_text)
{
    uint64_t number;
    *is_text = !ids->are_text && !tr_id_number(f->text, f->n, &number);
    if (*is_text) return TR_OK;
    return ids->are_text ? tr_ids_add_text(ids, f->text, f->n, place) : tr_ids_add_number(ids, number, place);
}

/* Reads any line, slowly. */
static const char *rating_read_any(struct tr_reader *r, const char *p, struct tr_triple *t)
{
    struct rating rating;
    const char *at, *problem = rating_parse(p, r->head->separator, false, &rating, &at);
    bool text_user, text_item;
    if (problem) return triples_bad(r, at, problem);
    r->status = rating_add_id(&r->triples.rows, &rating.user, &t->row, &text_user);
    if (r->status != TR_OK) return NULL;
    if (text_user && r->options->settled)
        return triples_bad(r, rating.user.text,
                           "the user is no whole number, as those of the training data are");
    r->status = rating_add_id(&r->triples.columns, &rating.item, &t->column, &text_item);
    if (r->status != TR_OK) return NULL;
    if (text_item && r->options->settled)
        return triples_bad(r, rating.item.text,
                           "the item is no whole number, as those of the training data are");
    r->report.text_rows |= text_user;
    r->report.text_columns |= text_item;
    r->enough = text_user || text_item;
    t->value = rating.value;
    if (!r->enough) r->triples.n++;
    return p;
}

/* Calls options->rating with the record of a line. */
static const char *rating_hand_out(struct tr_reader *r, const char *p)
{
    struct rating line;
    const char *at, *problem = rating_parse(p, r->head->separator, r->options->third_may_miss, &line, &at);
    if (problem) return triples_bad(r, at, problem);
    tr_rating rating = {.user = line.user.text,
                        .item = line.item.text,
                        .user_length = line.user.n,
                        .item_length = line.item.n,
                        .value = line.value};
    r->handed = r->options->rating(r->options->rating_state, &rating);
    r->enough = r->handed != TR_OK;
    return p;
}

/* ---- ratings: the usual line ---- */

/* Reads digits and returns their end. Returns NULL if there are none, there is a redundant 0, or the number exceeds 64 bits. */
static inline const char *rating_read_id(const char *p, uint64_t *id)
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

static inline const char *rating_line_end(const char *p)
{
    for (;; p += 8) {
        uint64_t word = tr_load8(p) ^ 0x0a0a0a0a0a0a0a0au;
        uint64_t zeros = (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;
        if (zeros) return p + __builtin_ctzll(zeros) / 8;
    }
}

/* Reads a usual line: number, separator, number, separator, rating. A separator has `width` equal bytes. Returns the newline, or
 * NULL if the line has another form. Most time is spent here. */
static inline const char *rating_read_plain(const char *p, char separator, size_t width, uint64_t *user,
                                            uint64_t *item, float *value)
{
    p = rating_read_id(p, user);
    if (TR_RARELY(!p || *p != separator || p[width - 1] != separator)) return NULL;
    p = rating_read_id(p + width, item);
    if (TR_RARELY(!p || *p != separator || p[width - 1] != separator)) return NULL;
    p += width;
    if (tr_is_digit(*p) && p[1] == separator && p[width] == separator) { /* most ratings are one digit */
        *value = (float)(*p - '0');
        return rating_line_end(p + 2);
    }
    p = tr_read_float(p, value);
    if (TR_RARELY(!p || !isfinite(*value))) return NULL;
    if (*p == '\n') return p;
    if (*p == '\r' && p[1] == '\n') return p + 1;
    return *p == separator && p[width - 1] == separator ? rating_line_end(p) : NULL;
}

static const char *rating_read(struct tr_reader *r, const char *p)
{
    uint64_t user, item;
    struct tr_triple *t = &r->triples.triple[r->triples.n];
    char separator = r->head->separator;
    size_t width = separator == TR_SEPARATOR_COLONS ? 2 : 1;
    bool text = r->triples.rows.are_text || r->triples.columns.are_text;
    const char *end = text ? NULL : rating_read_plain(p, separator, width, &user, &item, &t->value);
    if (r->options->records) r->options->records[r->file]++;
    if (TR_RARELY(!end)) return rating_read_any(r, p, t);
    r->status = tr_ids_number(&r->triples.rows, user, &t->row);
    if (r->status == TR_OK) r->status = tr_ids_number(&r->triples.columns, item, &t->column);
    if (TR_RARELY(r->status != TR_OK)) return NULL;
    r->triples.n++;
    return end;
}

static int ratings_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    if (!r->options->rating) return tr_each_line(r, lines, rating_read);
    TR_TRY(tr_each_line(r, lines, rating_hand_out));
    return r->handed;
}

static int ratings_head(const struct tr_first_lines *first, int header, struct tr_head *head)
{
    return tr_table_head(first, true, header, head);
}

/* Estimates users and items by the largest ids of the sample. If users ascend, their number is proportional to the length of the
 * text; otherwise the maximum of a few thousand ids is near the maximum of all. If ids are text, assumes 20 ratings per user and 50
 * per item. */
static int ratings_estimate(const struct tr_sample *sample, double text, double files, tr_data_size *size)
{
    double lines = 0, user = 0, item = 0, before = 0, three[3];
    bool ascends = true;
    (void)files;
    for (const char *line = sample->text; *line; line = sample_next_line(line)) {
        lines += *line != '\n' && *line != '\r';
        if (sample_read_three(line, three) < 3) continue;
        ascends = ascends && three[0] >= before;
        before = three[0];
        user = fmax(user, three[0]);
        item = fmax(item, three[1]);
    }
    double records = fmax(lines, 1) * text / (double)sample->n;
    if (ascends) user *= fmax(1, text / sample->end);
    size->users = fmax(size->users, fmin(user > 0 ? user : records / 20, records));
    size->items = fmax(size->items, fmin(item > 0 ? item : records / 50, records));
    return TR_OK;
}

const struct tr_text_format tr_ratings_format = {
    .head = ratings_head, .room = triples_room, .lines = ratings_lines, .estimate = ratings_estimate};

/* ---- docword ---- */

/* Reads the header, three lines of one whole number each. Returns its end, or NULL if there is no header. */
static const char *docword_read_header(const char *p, const char *end, struct tr_head *head)
{
    uint64_t *to[] = {&head->documents, &head->words, &head->nonzeros};
    for (int i = 0; i < 3; i++) {
        if (!(p = tr_next_text(p, end))) return NULL;
        const char *behind = tr_read_whole(p, to[i]);
        if (behind == p || !tr_at_line_end(tr_skip_blanks(behind))) return NULL;
        p = tr_behind_line(behind, end);
    }
    return p;
}

/* Requires a header and a record after it: only three lines of one number may be a table of one column. */
static bool docword_sniff(const char *p, const char *end)
{
    struct tr_head head;
    if (!(p = docword_read_header(p, end, &head))) return false;
    if (!(p = tr_next_text(p, end))) return head.nonzeros == 0;
    for (int i = 0; i < 3; i++) {
        uint64_t number;
        const char *digits = p;
        p = tr_read_whole(p, &number);
        if (p == digits) return false;
        p = tr_skip_blanks(p);
    }
    return tr_at_line_end(p);
}

static int docword_head(const struct tr_first_lines *first, int header, struct tr_head *head)
{
    const char *records = docword_read_header(first->text, first->end, head);
    (void)header;
    if (!records)
        return tr_fail(
            TR_ERR_DATA,
            "%s: expected three lines with the numbers of documents, of words and of records before "
            "the records of data.format: docword",
            first->path);
    head->begin = first->offset + (uint64_t)(records - first->begin);
    if (head->words < UINT32_MAX && head->documents < UINT32_MAX) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: more than 2^32 - 2 documents or words", first->path);
}

/* Reads one of the three numbers of a line, 1 to `most`, and the blanks after it. Returns NULL and moves *p to their end, or
 * returns an error text. */
static inline const char *docword_read_number(const char **p, uint64_t most, const char *not_a_number,
                                              const char *outside, uint64_t *number)
{
    const char *end = tr_read_whole(*p, number);
    bool digits = end != *p;
    if (*end == ' ') end++;
    while (TR_RARELY(tr_is_blank(*end))) end++;
    if (TR_RARELY(!digits) || !(tr_is_blank(end[-1]) || tr_at_line_end(end))) {
        if (tr_token_is_binary(*p, TR_SEPARATOR_BLANKS)) return "found bytes that are not text";
        return tr_at_line_end(*p) ? "expected three columns" : not_a_number;
    }
    if (*number - 1 >= most) return outside;
    *p = end;
    return NULL;
}

static const char *docword_read(struct tr_reader *r, const char *p)
{
    static const char document_outside[] = "no such document, expected",
                      word_outside[] = "no such word, expected",
                      count_outside[] = "the count is wrong, expected";
    uint64_t document, word, count, documents = r->head->documents, words = r->head->words;
    const char *problem =
        docword_read_number(&p, documents, "the document is not a whole number", document_outside, &document);
    if (r->options->records) r->options->records[r->file]++;
    if (!problem)
        problem = docword_read_number(&p, words, "the word is not a whole number", word_outside, &word);
    if (!problem)
        problem = docword_read_number(&p, TR_DOCWORD_MOST_COUNT, "the count is not a whole number",
                                      count_outside, &count);
    if (!problem && !tr_at_line_end(p)) problem = "expected no more than three columns";
    if (TR_RARELY(problem != NULL)) {
        uint64_t most = problem == document_outside ? documents
                        : problem == word_outside   ? words
                        : problem == count_outside  ? TR_DOCWORD_MOST_COUNT
                                                    : 0;
        if (most == 0) return triples_bad(r, p, problem);
        return tr_reader_bad(r, p, TR_SEPARATOR_BLANKS, "%s 1 to %llu", problem, (unsigned long long)most);
    }
    if (TR_RARELY(r->options->split.by != TR_SPLIT_NONE) &&
        tr_split_leaves_out(&r->options->split, r->options->reads_held_out, 0, r->file, document))
        return p;
    r->triples.triple[r->triples.n++] =
        (struct tr_triple){(uint32_t)(r->documents + document - 1), (uint32_t)(word - 1), (float)count};
    return p;
}

static int docword_enter(struct tr_reader *r)
{
    r->documents = tr_docword_base(r->files, r->options->heads, r->file);
    return TR_OK;
}

static int docword_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    return tr_each_line(r, lines, docword_read);
}

/* The header contains all sizes except the number of tokens, for which the sample has the mean of the counts. */
static int docword_estimate(const struct tr_sample *sample, double text, double files, tr_data_size *size)
{
    double header[3] = {0}, sum = 0, n = 0, three[3];
    const char *line = sample->text;
    (void)text;
    (void)files;
    for (int i = 0; i < 3; i++, line = sample_next_line(line)) header[i] = strtod(line, NULL);
    for (; *line; line = sample_next_line(line)) {
        if (sample_read_three(line, three) < 3) continue;
        sum += three[2];
        n++;
    }
    size->words = header[1];
    size->records += header[2];
    size->tokens += header[2] * (n > 0 ? sum / n : 1);
    return TR_OK;
}

const struct tr_text_format tr_docword_format = {.certain = true,
                                                 .sniff = docword_sniff,
                                                 .head = docword_head,
                                                 .enter = docword_enter,
                                                 .room = triples_room,
                                                 .lines = docword_lines,
                                                 .estimate = docword_estimate};

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

void tr_triples_free(struct tr_triples *triples)
{
    free(triples->triple);
    free(triples->run);
    tr_ids_free(&triples->rows);
    tr_ids_free(&triples->columns);
    *triples = (struct tr_triples){0};
}

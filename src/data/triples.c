/* Text of three columns: ratings of items by users, and UCI's bags of words.
 *
 *   ratings   user, item, rating, and further fields; separated by tabs, ::, semicolons, commas or blanks. A header or data.columns
 *             may set another order. An id is a whole number of up to 64 bits without leading zeros, or any other text; quotes
 *             around a field are dropped
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

enum { SAMPLE_NUMBERS = 8 };

/* Reads up to SAMPLE_NUMBERS numbers of a line of a sample. Returns how many numbers it has read. */
static uint32_t sample_read_numbers(const char *line, double number[SAMPLE_NUMBERS])
{
    uint32_t n = 0;
    for (; n < SAMPLE_NUMBERS && *line != '\n'; n++) {
        char *end;
        line += strspn(line, " \t,;:\"");
        number[n] = *line == '\n' ? 0 : strtod(line, &end);
        if (*line == '\n' || end == line) break;
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
    struct tr_field field[TR_RATING_TIME]; /* user, item and rating */
    float value;
};

/* Parses a line of any form, also one that rating_read_plain() refuses. Returns NULL, or an error text after setting *at to the
 * field with the error. */
static const char *rating_parse(const char *p, const struct tr_head *head, bool third_may_miss,
                                struct rating *rating, const char **at)
{
    static const char binary[] = "found bytes that are not text", few[] = "expected three columns",
                      few_named[] = "expected the number of columns of the header",
                      *const missing[] = {"the user is missing", "the item is missing",
                                          "the rating is missing"};
    const char *too_few = head->plain ? few : few_named, *end;
    char separator = head->separator;
    *rating = (struct rating){.value = NAN};
    *at = p;
    if (separator == TR_SEPARATOR_BLANKS) p = tr_skip_blanks(p);
    uint32_t left = TR_RATING_TIME - (head->rating[TR_RATING_VALUE] == TR_NO_FIELD);
    bool more = true;
    for (uint32_t k = 0; more && left > 0; k++) {
        struct tr_field f;
        bool text = rating_read_field(p, separator, &f);
        for (int part = 0; part < TR_RATING_TIME; part++) {
            if (head->rating[part] != k) continue;
            if (!text) return binary;
            rating->field[part] = f;
            left--;
        }
        p = f.end;
        more = tr_next_any_field(&p, separator);
    }
    for (int part = 0; part < TR_RATING_VALUE; part++)
        if (rating->field[part].n == 0) return rating->field[part].text ? missing[part] : too_few;
    const struct tr_field *third = &rating->field[TR_RATING_VALUE];
    if (third->n == 0) return third_may_miss ? NULL : third->text ? missing[TR_RATING_VALUE] : too_few;
    *at = third->text;
    end = tr_read_float(third->text, &rating->value);
    bool finite = isfinite(rating->value);
    if (end == third->text + third->n && finite) return NULL;
    if (tr_token_is_special(third->text)) return "the rating is not finite, expected an ordinary number";
    return end && !finite ? "the rating is too large for a 32-bit float" : "the rating is not a number";
}

/* Returns whether the pair of a rating is held out, but not read, or the reverse. */
static inline bool rating_is_left_out(const struct tr_reader *r, uint64_t user_mark, uint64_t item_mark)
{
    const struct tr_reader_options *o = r->options;
    return o->split.by == TR_SPLIT_PAIR &&
           tr_split_leaves_out(&o->split, o->reads_held_out, tr_split_pair_mark(user_mark, item_mark), 0, 0);
}

/* Reads any line, slowly. If an id is no number, but its list has numbers, all readers read again with texts, also if the pair is held
 * out: the test data have the ids of the training data. */
static const char *rating_read_any(struct tr_reader *r, const char *p, struct tr_triple *t)
{
    static const char *const not_numbers[] = {
        "the user is no whole number, as those of the training data are",
        "the item is no whole number, as those of the training data are"};
    struct tr_ids *const ids[] = {&r->triples.rows, &r->triples.columns};
    bool *const texts[] = {&r->report.text_rows, &r->report.text_columns};
    uint32_t *const place[] = {&t->row, &t->column};
    struct rating rating;
    const struct tr_field *id = rating.field;
    const char *at, *problem = rating_parse(p, r->head, false, &rating, &at);
    bool by_pair = r->options->split.by == TR_SPLIT_PAIR;
    /* a malformed line has no pair; it was reported when the training data were read */
    if (problem) return by_pair && r->options->reads_held_out ? p : triples_bad(r, at, problem);
    bool left_out = by_pair && rating_is_left_out(r, tr_split_id_mark(id[0].text, id[0].n),
                                                  tr_split_id_mark(id[1].text, id[1].n));
    for (int k = 0; k < 2; k++) {
        uint64_t number;
        bool is_text = !ids[k]->are_text && !tr_id_number(id[k].text, id[k].n, &number);
        r->status = TR_OK;
        if (is_text && r->options->settled) return left_out ? p : triples_bad(r, id[k].text, not_numbers[k]);
        if (is_text) *texts[k] = r->enough = true;
        else if (!left_out)
            r->status = ids[k]->are_text ? tr_ids_add_text(ids[k], id[k].text, id[k].n, place[k])
                                         : tr_ids_add_number(ids[k], number, place[k]);
        if (r->status != TR_OK) return NULL;
    }
    t->value = rating.value;
    if (!r->enough && !left_out) r->triples.n++;
    return p;
}

/* Calls options->rating with the record of a line. */
static const char *rating_hand_out(struct tr_reader *r, const char *p)
{
    struct rating line;
    const struct tr_field *user = &line.field[TR_RATING_USER], *item = &line.field[TR_RATING_ITEM];
    const char *at, *problem = rating_parse(p, r->head, r->options->third_may_miss, &line, &at);
    if (problem) return triples_bad(r, at, problem);
    tr_rating rating = {.user = user->text,
                        .item = item->text,
                        .user_length = user->n,
                        .item_length = item->n,
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
    bool plain = r->head->plain && !r->triples.rows.are_text && !r->triples.columns.are_text;
    const char *end = !plain ? NULL : rating_read_plain(p, separator, width, &user, &item, &t->value);
    if (r->options->records) r->options->records[r->file]++;
    if (TR_RARELY(!end)) return rating_read_any(r, p, t);
    if (rating_is_left_out(r, user, item)) return end;
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

/* Reads the time of a line. */
static bool ratings_mark(struct tr_reader *r, const char *p)
{
    char separator = r->head->separator;
    uint32_t field = r->head->rating[TR_RATING_TIME];
    struct tr_field f;
    for (uint32_t k = 0; k <= field; k++, p = f.end) {
        if (k > 0 && !tr_next_any_field(&p, separator))
            return triples_bad(r, NULL, "the time is missing") != NULL;
        if (!rating_read_field(p, separator, &f))
            return triples_bad(r, p, "found bytes that are not text") != NULL;
    }
    const char *problem = tr_split_read_time(f.text, f.n, &r->mark);
    return !problem || tr_reader_bad(r, f.text, separator, "%s", problem) != NULL;
}

/* ---- ratings: columns ---- */

/* Common names of columns, without «_», «-», «.», blanks and «id» at the end; the best first. */
static const char *const rating_names[TR_RATING_PARTS][40] = {
    {"user", "u", "reviewer", "customer", "member", "visitor", "account", "person", "client", "buyer",
     "rater", "reader", "player", "subscriber", "viewer", "listener", "profile", "username", "reviewername"},
    {"item",  "i",     "movie",  "film",   "product",  "asin",    "parentasin", "isbn",       "book",
     "song",  "track", "artist", "album",  "business", "article", "anime",      "manga",      "joke",
     "beer",  "wine",  "recipe", "game",   "app",      "video",   "content",    "restaurant", "hotel",
     "venue", "place", "poi",    "course", "job",      "sku",     "page",       "url",        "title"},
    {"rating",     "r",           "score",       "star",         "stars",       "overall",       "bookrating",
     "userrating", "ratingscore", "ratingvalue", "reviewrating", "reviewscore", "overallrating", "starrating",
     "value",      "grade",       "mark",        "preference",   "count",       "plays",         "playcount",
     "listens",    "frequency",   "weight",      "quantity",     "clicks",      "views"},
    {"timestamp", "time", "ts", "date", "datetime", "unixreviewtime", "reviewtime", "reviewdate",
     "ratingtime", "ratingdate", "ratingtimestamp", "ratedat", "created", "createdat", "updatedat"}};

/* Returns the rank of a name among the names of a part, 0 for the best; UINT32_MAX if it is none of them. */
static uint32_t rating_name_rank(int part, const char *text, size_t n)
{
    char name[24];
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (strchr("_-. ", text[i])) continue;
        if (length + 1 == sizeof name) return UINT32_MAX;
        name[length++] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 32 : text[i]);
    }
    bool id = length > 2 && memcmp(name + length - 2, "id", 2) == 0;
    name[length - (id ? 2 : 0)] = '\0';
    for (uint32_t k = 0; rating_names[part][k]; k++)
        if (strcmp(name, rating_names[part][k]) == 0) return 2 * k + !id;
    return UINT32_MAX;
}

/* Reads the head. A first line that names users and items is a header, also if it has no third column; a line with a number and
 * without such names is none, also if its third field is a date. */
static int ratings_head(const struct tr_first_lines *first, int header, struct tr_head *head)
{
    TR_TRY(tr_table_head(first, true, header, head));
    const char *p = header == TR_HEADER_AUTO ? tr_next_text(first->text, first->end) : NULL;
    bool names[TR_RATING_PARTS] = {false}, number = false;
    for (bool more = p; more;) {
        struct tr_field f;
        float value;
        if (!rating_read_field(p, head->separator, &f)) break;
        number = number || tr_read_float(f.text, &value) == f.text + f.n;
        for (int part = 0; part < TR_RATING_PARTS; part++)
            names[part] = names[part] || rating_name_rank(part, f.text, f.n) != UINT32_MAX;
        p = f.end;
        more = tr_next_any_field(&p, head->separator);
    }
    bool named = names[TR_RATING_USER] && names[TR_RATING_ITEM],
         none = number && !names[TR_RATING_USER] && !names[TR_RATING_ITEM] && !names[TR_RATING_VALUE];
    if (p && ((named && !head->header) || (none && head->header))) {
        *head = (struct tr_head){.begin = first->offset + (uint64_t)(first->text - first->begin)};
        TR_TRY(tr_table_head(first, true, named ? TR_HEADER_YES : TR_HEADER_NO, head));
    }
    for (uint32_t part = 0; part < TR_RATING_PARTS; part++) head->rating[part] = part;
    if (head->fields <= TR_RATING_TIME) head->rating[TR_RATING_TIME] = TR_NO_FIELD;
    head->plain = true;
    return TR_OK;
}

/* The names of the header, or numbers, and the fields of the first record. */
struct rating_look {
    const char *path;
    struct tr_schema columns; /* only its names are used */
    struct tr_ids first;
};

static int rating_look_at_field(void *state, size_t line, size_t field, const char *text, size_t n)
{
    struct rating_look *look = state;
    char number[24];
    uint32_t place;
    if (line > 1) return TR_OK;
    if (line == 1) return tr_ids_append_text(&look->first, text, n, &place);
    if (n == 0) { /* as in files of R and pandas, whose first column has the numbers of rows */
        n = (size_t)snprintf(number, sizeof number, "%zu", field + 1);
        text = number;
    }
    TR_TRY(tr_ids_add_text(&look->columns.names, text, n, &place));
    if (place == field) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: two columns are called %.*s", look->path, (int)tr_min_size(n, 80), text);
}

static void rating_look_free(struct rating_look *look)
{
    tr_ids_free(&look->columns.names);
    tr_ids_free(&look->first);
}

/* Applies data.columns. A column that another entry had before loses its part. */
static int rating_set_types(const struct tr_rating_columns *wanted, const struct rating_look *look,
                            uint32_t rating[TR_RATING_PARTS], bool *ignored)
{
    static const char *const words[] = {"user", "item", "rating", "time", "ignore"};
    const tr_job *job = wanted->job;
    bool set[TR_RATING_PARTS] = {false};
    for (size_t i = 0; job && i < job->data.columns.n; i++) {
        TR_CLOSED_BY(tr_column_form_free) struct tr_column_form form;
        const char *pair = job->data.columns.item[i], *where = tr_job_where(job, "data.columns");
        uint32_t part = 0;
        TR_TRY(tr_column_form_read(job, pair, &form));
        while (part <= TR_RATING_PARTS && strcmp(words[part], form.type) != 0) part++;
        if (part > TR_RATING_PARTS || (part < TR_RATING_PARTS && set[part]))
            return tr_fail(
                TR_ERR_CONFIG,
                "%s: data.columns: «%s»: expected «name: type» with one of user, item, rating, time and "
                "ignore, each once except ignore",
                where, tr_shown(pair).text);
        size_t column = tr_schema_find(&look->columns, form.name);
        if (column == look->columns.n && !wanted->trains) continue;
        if (column == look->columns.n)
            return tr_fail(TR_ERR_CONFIG, "%s: data.columns: %s has no column %s", where, look->path,
                           tr_shown(form.name).text);
        for (int k = 0; k < TR_RATING_PARTS; k++)
            if (rating[k] == column) rating[k] = TR_NO_FIELD;
        ignored[column] = true;
        if (part == TR_RATING_PARTS) continue;
        rating[part] = (uint32_t)column;
        set[part] = true;
    }
    return TR_OK;
}

/* Sets the part «time» to the column of data.time. */
static int rating_set_time(const struct tr_rating_columns *wanted, const struct rating_look *look,
                           uint32_t rating[TR_RATING_PARTS])
{
    const char *name = wanted->job->data.time;
    size_t column = tr_schema_find(&look->columns, name), n = look->columns.n;
    bool common = rating_name_rank(TR_RATING_TIME, name, strlen(name)) != UINT32_MAX;
    if (column == n && common && rating[TR_RATING_TIME] < n) column = rating[TR_RATING_TIME];
    for (int part = 0; part < TR_RATING_TIME; part++)
        if (column == rating[part]) column = n;
    rating[TR_RATING_TIME] = (uint32_t)column;
    if (column < n) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: data.time: %s has no column %s besides user, item and rating",
                   tr_job_where(wanted->job, "data.time"), look->path, tr_shown(name).text);
}

static int rating_fail_no_column(const struct tr_rating_columns *wanted, const struct rating_look *look,
                                 int part)
{
    static const char *const nouns[] = {"user", "item", "rating"};
    char names[200] = "", how[64] = "";
    for (size_t k = 0, n, at; k < look->columns.n && (at = strlen(names)) < 140; k++) {
        const char *text = tr_ids_text(&look->columns.names, k, &n);
        snprintf(names + at, sizeof names - at, "%s%.*s", at ? ", " : "", (int)tr_min_size(n, 40), text);
    }
    if (wanted->trains) snprintf(how, sizeof how, ": expected data.columns='{NAME: %s}'", nouns[part]);
    return tr_fail(TR_ERR_DATA, "%s:1: no column of the header is called %s: its columns are %s%s",
                   look->path, nouns[part], names, how);
}

static int rating_find_columns(const struct tr_files *files, size_t file, struct tr_rating_columns *wanted,
                               struct tr_head *head)
{
    TR_CLOSED_BY(rating_look_free) struct rating_look look = {.path = files->file[file].path};
    TR_FREED bool *used = NULL;
    uint32_t *rating = head->rating;
    look.columns.names.are_text = look.first.are_text = true;
    TR_TRY(tr_head_fields(files, file, head, rating_look_at_field, &look));
    look.columns.n = head->header ? look.columns.names.n : (size_t)head->fields;
    TR_TRY(TR_NEW(&used, look.columns.n + 1));
    for (int part = 0; part < TR_RATING_PARTS && head->header; part++) {
        uint32_t best = UINT32_MAX;
        rating[part] = TR_NO_FIELD;
        for (size_t k = 0, n; k < look.columns.n; k++) {
            const char *text = tr_ids_text(&look.columns.names, k, &n);
            uint32_t rank = rating_name_rank(part, text, n);
            if (rank < best) rating[part] = (uint32_t)k;
            best = rank < best ? rank : best;
        }
    }
    TR_TRY(rating_set_types(wanted, &look, rating, used));
    if (wanted->trains && *wanted->job->data.time) TR_TRY(rating_set_time(wanted, &look, rating));
    for (int part = 0; part < TR_RATING_TIME; part++)
        if (rating[part] == TR_NO_FIELD && !(part == TR_RATING_VALUE && wanted->rating_may_miss))
            return rating_fail_no_column(wanted, &look, part);
    head->plain = rating[TR_RATING_USER] == 0 && rating[TR_RATING_ITEM] == 1 &&
                  (rating[TR_RATING_VALUE] == 2 || rating[TR_RATING_VALUE] == TR_NO_FIELD);
    for (int part = 0; part < TR_RATING_PARTS; part++)
        if (rating[part] < look.columns.n) used[rating[part]] = true;
    for (size_t k = 0, n, at; k < look.columns.names.n; k++) {
        const char *text = tr_ids_text(&look.columns.names, k, &n);
        if (!used[k] && (at = strlen(wanted->ignored)) < 100)
            snprintf(wanted->ignored + at, sizeof wanted->ignored - at, "%s%.*s", at ? ", " : "",
                     (int)tr_min_size(n, 40), text);
    }
    /* the first record shows whether ids are text */
    bool *is_text[] = {&head->text_rows, &head->text_columns};
    for (int part = 0; part < TR_RATING_VALUE && !head->plain && rating[part] < look.first.n; part++) {
        size_t n;
        uint64_t number;
        const char *text = tr_ids_text(&look.first, rating[part], &n);
        *is_text[part] = !tr_id_number(text, n, &number);
    }
    return TR_OK;
}

int tr_ratings_find_columns(const struct tr_files *files, struct tr_rating_columns *wanted,
                            struct tr_head *heads)
{
    for (size_t i = 0; i < files->n; i++) {
        if (heads[i].fields == 0) continue;
        *wanted->ignored = '\0';
        TR_TRY(rating_find_columns(files, i, wanted, &heads[i]));
    }
    return TR_OK;
}

/* Estimates users and items by the largest ids of the sample. If users ascend, their number is proportional to the length of the
 * text; otherwise the maximum of a few thousand ids is near the maximum of all. If ids are text, assumes 20 ratings per user and 50
 * per item. */
static int ratings_estimate(const struct tr_sample *sample, double text, double files, tr_data_size *size)
{
    double lines = 0, user = 0, item = 0, before = 0, number[SAMPLE_NUMBERS];
    const uint32_t *field = sample->head->rating;
    bool ascends = true;
    (void)files;
    for (const char *line = sample->text; *line; line = sample_next_line(line)) {
        lines += *line != '\n' && *line != '\r';
        uint32_t n = sample_read_numbers(line, number);
        if (field[TR_RATING_USER] >= n || field[TR_RATING_ITEM] >= n) continue;
        ascends = ascends && number[field[TR_RATING_USER]] >= before;
        before = number[field[TR_RATING_USER]];
        user = fmax(user, before);
        item = fmax(item, number[field[TR_RATING_ITEM]]);
    }
    double records = fmax(lines, 1) * text / (double)sample->n;
    if (ascends) user *= fmax(1, text / sample->end);
    size->users = fmax(size->users, fmin(user > 0 ? user : records / 20, records));
    size->items = fmax(size->items, fmin(item > 0 ? item : records / 50, records));
    return TR_OK;
}

const struct tr_text_format tr_ratings_format = {.head = ratings_head,
                                                 .room = triples_room,
                                                 .lines = ratings_lines,
                                                 .mark = ratings_mark,
                                                 .estimate = ratings_estimate};

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
    double header[3] = {0}, sum = 0, n = 0, number[SAMPLE_NUMBERS];
    const char *line = sample->text;
    (void)text;
    (void)files;
    for (int i = 0; i < 3; i++, line = sample_next_line(line)) header[i] = strtod(line, NULL);
    for (; *line; line = sample_next_line(line)) {
        if (sample_read_numbers(line, number) < 3) continue;
        sum += number[2];
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

#define _GNU_SOURCE
#include "data/head.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "data/hdf5.h"
#include "data/ids.h"
#include "data/number.h"
#include "data/text.h"
#include "data/token.h"

#include "base/base.h"

static const char *const format_word[] = {[TR_FORMAT_LIBSVM] = "libsvm",
                                          [TR_FORMAT_CSV] = "csv",
                                          [TR_FORMAT_RATINGS] = "ratings",
                                          [TR_FORMAT_DOCWORD] = "docword",
                                          [TR_FORMAT_HDF5] = "hdf5"};

const char *tr_format_word(enum tr_format format)
{
    return format_word[format];
}

enum tr_format tr_format_named(const char *word)
{
    for (enum tr_format f = TR_FORMAT_LIBSVM; f <= TR_FORMAT_HDF5; f++)
        if (strcmp(format_word[f], word) == 0) return f;
    return TR_FORMAT_AUTO;
}

/* ---- lines ---- */

static const char *skip_blanks(const char *p)
{
    while (tr_is_blank(*p)) p++;
    return p;
}

/* The first line from p on that is not empty, without blanks before it; NULL if there is none. */
static const char *next_text(const char *p, const char *end)
{
    while (p < end) {
        p = skip_blanks(p);
        if (!tr_at_line_end(p)) return p;
        p = (const char *)rawmemchr(p, '\n') + 1;
    }
    return NULL;
}

/* From where a line begins that next_text() has found: a tab may end an empty first field. */
static const char *with_blanks(const char *p, const char *begin, char separator)
{
    while (p && separator == '\t' && p > begin && tr_is_blank(p[-1])) p--;
    return p;
}

static const char *behind_line(const char *p)
{
    return (const char *)rawmemchr(p, '\n') + 1;
}

/* Behind the mark of UTF-8, if it stands there. */
static const char *pass_mark(const char *p, const char *end)
{
    return end - p > 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? p + 3 : p;
}

/* A whole number and nothing else on the line. */
static bool is_lone_number(const char *p, uint64_t *number)
{
    const char *end = tr_read_whole(p, number);
    return end != p && tr_at_line_end(skip_blanks(end));
}

/* ---- which format ---- */

/* Three lines of one whole number each. *records: behind them. */
static bool read_docword_header(const char *p, const char *end, struct tr_head *head, const char **records)
{
    uint64_t *to[] = {&head->documents, &head->words, &head->nonzeros};
    for (int i = 0; i < 3; i++) {
        p = next_text(p, end);
        if (!p || !is_lone_number(p, to[i])) return false;
        p = behind_line(p);
    }
    *records = p;
    return true;
}

/* With a record behind the header: three single numbers may be a table of one column, too. */
static bool looks_like_docword(const char *p, const char *end)
{
    struct tr_head head;
    if (!read_docword_header(p, end, &head, &p)) return false;
    if (!(p = next_text(p, end))) return head.nonzeros == 0;
    for (int i = 0; i < 3; i++) {
        uint64_t number;
        const char *digits = p;
        p = tr_read_whole(p, &number);
        if (p == digits) return false;
        p = skip_blanks(p);
    }
    return tr_at_line_end(p);
}

/* A number, and behind it index:value; of a row to predict for there may be no number. */
static bool is_libsvm_row(const char *p)
{
    float label;
    uint64_t index;
    const char *pair = tr_read_float(p, &label);
    pair = pair && tr_is_blank(*pair) ? skip_blanks(pair) : p;
    const char *colon = tr_read_whole(pair, &index);
    if (strncmp(pair, "qid:", 4) == 0) return true;
    return colon != pair && *colon == ':' && colon[1] != ':';
}

/* Whether the word at p is number:number. */
static bool is_pair(const char *p)
{
    float number;
    p = tr_read_float(p, &number);
    p = p && *p == ':' ? tr_read_float(p + 1, &number) : NULL;
    return p && (tr_is_blank(*p) || tr_at_line_end(p));
}

/* A number, or several with commas between them, and nothing but pairs behind; or at least one pair behind anything, and a row
 * in the next line. A time of day in a table, 12:30, is not enough. */
static bool is_faulty_libsvm_row(const char *p, const char *end)
{
    float number;
    size_t words = 0, pairs = 0;
    const char *label = tr_read_float(p, &number), *next = next_text(behind_line(p), end);
    bool several = label && *label == ',';
    while (label && *label == ',') label = tr_read_float(label + 1, &number);
    while (!tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    bool labels = label == p;
    for (p = skip_blanks(p); !tr_at_line_end(p); p = skip_blanks(p), words++) {
        pairs += is_pair(p);
        while (!tr_is_blank(*p) && !tr_at_line_end(p)) p++;
    }
    if (labels && pairs == words && pairs > several) return true;
    return pairs > 0 && next && is_libsvm_row(next);
}

/* Rows before the first that is looked at may have no features. */
static bool looks_like_libsvm(const char *p, const char *end)
{
    float label;
    for (p = next_text(p, end); p; p = next_text(behind_line(p), end)) {
        const char *behind = tr_read_float(p, &label);
        if (*p != '#' && (!behind || !tr_at_line_end(skip_blanks(behind))))
            return is_libsvm_row(p) || is_faulty_libsvm_row(p, end);
    }
    return false;
}

/* The first lines of a file that are not empty, or nothing: begin == end. To be freed. */
struct first_lines {
    char *begin, *end;
    uint64_t offset; /* of begin in the text of the file */
    size_t capacity;
};

static int append_lines(struct first_lines *first, const struct tr_chunk *chunk)
{
    size_t n = (size_t)(first->end - first->begin), more = (size_t)(chunk->end - chunk->begin);
    TR_TRY(TR_GROW(&first->begin, &first->capacity, n + more + TR_TEXT_SLACK));
    if (more > 0) memcpy(first->begin + n, chunk->begin, more);
    first->end = first->begin + n + more;
    memset(first->end, 0, TR_TEXT_SLACK);
    return TR_OK;
}

/* Empty lines before the first text are dropped, so any number of them takes no memory. */
static int gather_lines(const struct tr_files *files, size_t file, struct tr_text *text,
                        struct first_lines *first)
{
    const ptrdiff_t enough = 16 << 10;
    for (bool found = false; !found || first->end - first->begin < enough;) {
        struct tr_chunk chunk;
        TR_TRY(tr_text_next(text, &chunk));
        if (chunk.too_long && !found) return tr_text_fail_too_long(files, file, chunk.offset);
        if (chunk.begin == chunk.end)
            break; /* the end, or a record that is too long: its reader reports it */
        if (!found) {
            first->end = first->begin;
            first->offset = chunk.offset;
        }
        TR_TRY(append_lines(first, &chunk));
        found = found || next_text(first->begin, first->end);
    }
    return TR_OK;
}

static int open_first_lines(const struct tr_files *files, size_t file, struct first_lines *first)
{
    struct tr_file_part part;
    struct tr_text *text;
    *first = (struct first_lines){.begin = NULL};
    if (!tr_files_part(files, file, 0, 1, &part)) return TR_OK;
    TR_TRY(tr_text_open(files, &part, (size_t)64 << 10, &text));
    int status = gather_lines(files, file, text, first);
    tr_text_close(text);
    bool utf16 = status == TR_OK && first->begin && first->end - first->begin >= 2 && first->offset == 0 &&
                 (memcmp(first->begin, "\xff\xfe", 2) == 0 || memcmp(first->begin, "\xfe\xff", 2) == 0);
    if (utf16)
        status = tr_fail(TR_ERR_DATA,
                         "%s: the text is UTF-16, expected UTF-8: convert it with iconv -f UTF-16 -t UTF-8",
                         files->file[file].path);
    if (status != TR_OK) free(first->begin);
    return status;
}

/* What separates the fields of a line, outside of quotes: the rarest inside of fields first. */
static char find_separator(const char *p, bool colons)
{
    bool tab = false, semicolon = false, comma = false, pair = false, quoted = false;
    for (; *p != '\n'; p++) {
        if (*p == '"') quoted = !quoted;
        if (quoted) continue;
        tab |= *p == '\t';
        semicolon |= *p == ';';
        comma |= *p == ',';
        pair |= *p == ':' && p[1] == ':';
    }
    return tab              ? '\t'
           : pair && colons ? TR_SEPARATOR_COLONS
           : semicolon      ? ';'
           : comma          ? ','
                            : TR_SEPARATOR_BLANKS;
}

/* Behind the separator that stands at p, or NULL if none does. */
static const char *pass_separator(const char *p, char separator)
{
    if (separator == TR_SEPARATOR_BLANKS) {
        const char *q = skip_blanks(p);
        return q > p && !tr_at_line_end(q) ? q : NULL;
    }
    if (separator == TR_SEPARATOR_COLONS) return *p == ':' && p[1] == ':' ? p + 2 : NULL;
    return *p == separator ? p + 1 : NULL;
}

/* What a field holds, in quotes perhaps. */
enum content { NOTHING, NUMBER, WORD };

static enum content content_of(const char *p, const char *end)
{
    while (p < end && (tr_is_blank(*p) || *p == '"')) p++;
    while (p < end && (tr_is_blank(end[-1]) || end[-1] == '"' || end[-1] == '\r')) end--;
    if (p == end) return NOTHING;
    float value;
    if (tr_read_float(p, &value) == end) return NUMBER;
    p += *p == '-' || *p == '+';
    bool special = end - p == 3 && (strncasecmp(p, "nan", 3) == 0 || strncasecmp(p, "inf", 3) == 0);
    return special ? NUMBER : WORD;
}

struct fields {
    uint64_t n, of[3];                               /* fields, and how many hold nothing, a number, a word */
    bool third_is_word, third_is_number, is_text[2]; /* of the first two: no whole number */
    bool last_is_word;
    const char *last; /* where that begins */
};

static bool is_text_id(const char *p, const char *end)
{
    uint64_t number;
    while (p < end && (tr_is_blank(*p) || *p == '"')) p++;
    while (p < end && (tr_is_blank(end[-1]) || end[-1] == '"' || end[-1] == '\r')) end--;
    return !tr_id_number(p, (size_t)(end - p), &number);
}

/* At a quote: whether text behind it is inside of quotes, which begin a field. Passes the first of two inside. */
static bool toggle_quotes(const char *field, const char **p, bool quoted)
{
    if (quoted && (*p)[1] == '"') return ++*p, true;
    return !quoted && skip_blanks(field) == *p;
}

static struct fields look_at_fields(const char *p, char separator)
{
    struct fields f = {.n = 1};
    const char *field = p;
    for (bool quoted = false;; p++) {
        const char *next = quoted ? NULL : pass_separator(p, separator);
        bool ends = *p == '\n';
        if (*p == '"' && !ends) quoted = toggle_quotes(field, &p, quoted);
        if (!next && !ends) continue;
        enum content content = content_of(field, p);
        f.of[content]++;
        if (f.n <= 2) f.is_text[f.n - 1] = is_text_id(field, p);
        if (f.n == 3) f.third_is_word = content == WORD;
        if (f.n == 3) f.third_is_number = content == NUMBER;
        f.last_is_word = content == WORD;
        f.last = field;
        if (ends) return f;
        field = next;
        p = next - 1;
        f.n++;
    }
}

/* Two fields or more of which one is a number, perhaps behind a header; or two lines of as many fields with commas, semicolons or
 * tabs between them; or one such line alone. */
static bool looks_like_table(const char *p, const char *end)
{
    uint64_t before = 0;
    int line = 0;
    bool divided = false;
    p = next_text(p, end);
    for (; line < 2 && p; line++, p = next_text(behind_line(p), end)) {
        char separator = find_separator(p, true);
        struct fields f = look_at_fields(p, separator);
        divided = f.n > 1 && strchr(",;\t", separator);
        if (f.n > 1 && (f.of[NUMBER] > 0 || (f.n == before && divided))) return true;
        before = f.n;
    }
    return line == 1 && divided;
}

/* What has named columns is csv. A file that cannot be read is refused when its head is. */
static int look_like_hdf5(const struct tr_file *file, enum tr_format *format)
{
    struct tr_head head = {0};
    int status = tr_hdf5_look(file, &head);
    *format = status == TR_OK && head.named ? TR_FORMAT_CSV : TR_FORMAT_HDF5;
    return status;
}

/* TR_FORMAT_AUTO for what looks like nothing known, and an empty file. */
static int look_like(const struct tr_files *files, size_t file, enum tr_format *format)
{
    struct first_lines first;
    *format = TR_FORMAT_AUTO;
    if (files->file[file].hdf5) return look_like_hdf5(&files->file[file], format);
    TR_TRY(open_first_lines(files, file, &first));
    const char *p = pass_mark(first.begin, first.end), *end = first.end;
    if (p != end)
        *format = looks_like_docword(p, end)  ? TR_FORMAT_DOCWORD
                  : looks_like_libsvm(p, end) ? TR_FORMAT_LIBSVM
                  : looks_like_table(p, end)  ? TR_FORMAT_CSV
                                              : TR_FORMAT_AUTO;
    free(first.begin);
    return TR_OK;
}

int tr_format_detect(const struct tr_files *files, enum tr_format *format)
{
    *format = TR_FORMAT_AUTO;
    for (size_t file = 0; file < files->n && *format == TR_FORMAT_AUTO; file++)
        TR_TRY(look_like(files, file, format));
    return TR_OK;
}

/* ---- which column has the labels ---- */

bool tr_is_called_label(const char *text, size_t n)
{
    static const char *const names[] = {"label", "labels", "class", "target", "y", "outcome", "response"};
    for (; n > 0 && *text == '#'; n--) text++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], text, n) == 0) return true;
    return false;
}

/* Distinct whole numbers of a column, so far. */
enum { MOST_KINDS = 20 };
struct kinds {
    float value[MOST_KINDS];
    int n; /* more than MOST_KINDS: too many, or not whole */
};

static void add_kind(struct kinds *k, const char *p)
{
    float x;
    while (tr_is_blank(*p) || *p == '"') p++;
    if (k->n > MOST_KINDS) return;
    for (int i = 0; tr_read_float(p, &x) && i < k->n; i++)
        if (k->value[i] == x) return;
    bool whole = tr_read_float(p, &x) && x == rintf(x);
    if (!whole || k->n == MOST_KINDS) k->n = MOST_KINDS + 1;
    else k->value[k->n++] = x;
}

/* p: the first row. */
static int guess_label(const char *p, const char *end, char separator)
{
    struct kinds first = {.n = 0}, last = {.n = 0};
    for (; p; p = next_text(behind_line(p), end)) {
        struct fields f = look_at_fields(p, separator);
        if (f.last_is_word) return TR_LABEL_LAST; /* names of classes stand there, as a rule */
        add_kind(&first, p);
        add_kind(&last, f.last);
    }
    return first.n < last.n ? TR_LABEL_FIRST : TR_LABEL_LAST;
}

int tr_heads_label(const struct tr_head *heads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (heads[i].fields > 0) return heads[i].fields > 1 ? heads[i].label : TR_LABEL_NONE;
    return TR_LABEL_NONE;
}

static void look_at_table(const struct first_lines *first, enum tr_format format, int header,
                          struct tr_head *head)
{
    const char *begin = pass_mark(first->begin, first->end);
    head->begin = first->offset + (uint64_t)(begin - first->begin);
    const char *p = next_text(begin, first->end);
    if (!p || format == TR_FORMAT_LIBSVM) return; /* which has no header */
    bool rates = format == TR_FORMAT_RATINGS;
    head->separator = find_separator(p, rates);
    p = with_blanks(p, begin, head->separator);
    struct fields f = look_at_fields(p, head->separator);
    bool names = rates ? f.third_is_word : f.of[WORD] > 0 && f.of[NUMBER] == 0;
    if (header == TR_HEADER_YES || (header == TR_HEADER_AUTO && names)) {
        head->header = true;
        p = behind_line(p);
        head->begin = first->offset + (uint64_t)(p - first->begin);
        if ((p = with_blanks(next_text(p, first->end), begin, head->separator)))
            f = look_at_fields(p, head->separator);
    }
    head->fields = f.n;
    if (format == TR_FORMAT_CSV) head->label = guess_label(p, first->end, head->separator);
    head->text_rows = rates && f.third_is_number && f.is_text[0];
    head->text_columns = rates && f.third_is_number && f.is_text[1];
}

/* ---- fields of the first lines ---- */

static int take_line(const char *p, char separator, size_t line, tr_field_fn *take, void *state)
{
    char *text = NULL;
    size_t capacity = 0;
    int status = TR_OK;
    if (separator == TR_SEPARATOR_BLANKS) p = skip_blanks(p);
    for (size_t k = 0; p && status == TR_OK; k++) {
        struct tr_field f;
        if (tr_take_field(p, separator, &f)) break; /* who reads the line will say it */
        status = TR_GROW(&text, &capacity, f.n + 1);
        if (status != TR_OK) break;
        if (f.doubled) f.n = tr_undouble(&f, text);
        else memcpy(text, f.text, f.n);
        status = take(state, line, k, text, f.n);
        p = tr_at_line_end(f.end) ? NULL : pass_separator(f.end, separator);
    }
    free(text);
    return status;
}

int tr_head_fields(const struct tr_files *files, size_t file, const struct tr_head *head, tr_field_fn *take,
                   void *state)
{
    struct first_lines first;
    if (files->file[file].hdf5) return tr_hdf5_read_names(&files->file[file], take, state);
    TR_TRY(open_first_lines(files, file, &first));
    int status = TR_OK;
    size_t line = 1;
    const char *begin = next_text(pass_mark(first.begin, first.end), first.end), *p = begin;
    if (p && head->header)
        status = take_line(with_blanks(p, begin, head->separator), head->separator, 0, take, state);
    p = p ? next_text(first.begin + (head->begin - first.offset), first.end) : NULL;
    for (; p && status == TR_OK; p = next_text(behind_line(p), first.end))
        status = take_line(with_blanks(p, begin, head->separator), head->separator, line++, take, state);
    free(first.begin);
    return status;
}

/* ---- heads ---- */

static int look_at_docword(const struct tr_files *files, size_t file, const struct first_lines *first,
                           struct tr_head *head)
{
    const char *records;
    if (!read_docword_header(pass_mark(first->begin, first->end), first->end, head, &records))
        return tr_fail(
            TR_ERR_DATA,
            "%s: expected three lines with the numbers of documents, of words and of records before "
            "the records of data.format: docword",
            files->file[file].path);
    head->begin = first->offset + (uint64_t)(records - first->begin);
    if (head->words >= UINT32_MAX || head->documents >= UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%s: more than 2^32 - 2 documents or words", files->file[file].path);
    return TR_OK;
}

static int look_at_file(const struct tr_files *files, size_t file, enum tr_format format, int header,
                        struct tr_head *head)
{
    struct first_lines first;
    const struct tr_file *f = &files->file[file];
    bool may_be = format == TR_FORMAT_HDF5 || (format == TR_FORMAT_CSV && f->hdf5);
    if (f->hdf5 && may_be) TR_TRY(tr_hdf5_look(f, head));
    if (f->size > 0 && f->hdf5 != (format == TR_FORMAT_HDF5) && !head->named)
        return tr_fail(TR_ERR_DATA, "%s: %s, expected data.format: %s", f->path,
                       f->hdf5 ? "an HDF5 file" : "not an HDF5 file", tr_format_word(format));
    if (f->hdf5) return TR_OK;
    TR_TRY(open_first_lines(files, file, &first));
    int status = TR_OK;
    if (first.begin && format == TR_FORMAT_DOCWORD) status = look_at_docword(files, file, &first, head);
    else if (first.begin) look_at_table(&first, format, header, head);
    free(first.begin);
    return status;
}

size_t tr_heads_first(const struct tr_head *heads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (heads[i].fields > 0) return i;
    return 0;
}

/* Tables of HDF5 that are to be one. */
static int compare_tables(const struct tr_files *files, const struct tr_head *heads, size_t first, size_t i)
{
    const struct tr_head *a = &heads[first], *b = &heads[i];
    const char *path = files->file[i].path, *other = files->file[first].path;
    if (a->named != b->named)
        return tr_fail(TR_ERR_DATA, "%s: its columns have %snames, other than those of %s", path,
                       b->named ? "" : "no ", other);
    if (a->sparse != b->sparse || a->full != b->full)
        return tr_fail(TR_ERR_DATA, "%s: its rows are %s, but not those of %s", path,
                       b->sparse ? "sparse" : "dense", other);
    if (a->labelled != b->labelled)
        return tr_fail(TR_ERR_DATA, "%s: it has %slabels, other than %s", path, b->labelled ? "" : "no ",
                       other);
    if (a->from_one != b->from_one)
        return tr_fail(TR_ERR_DATA, "%s: its first_index is other than that of %s", path, other);
    if (a->fields == b->fields || a->sparse) return TR_OK;
    return tr_fail(TR_ERR_DATA, "%s: %llu columns, but %s has %llu", path, (unsigned long long)b->fields,
                   other, (unsigned long long)a->fields);
}

/* All rows of a csv file have as many columns as its first; all files as many as the first of them. */
static int compare_heads(const struct tr_files *files, enum tr_format format, const struct tr_head *heads)
{
    size_t first = 0;
    uint64_t documents = 0;
    for (size_t i = 0; i < files->n; i++) documents += heads[i].documents;
    if (documents >= UINT32_MAX)
        return tr_fail(TR_ERR_DATA, "%s and the others have more than 2^32 - 2 documents",
                       files->file[0].path);
    while (first < files->n && files->file[first].size == 0) first++;
    for (size_t i = first + 1; i < files->n; i++) {
        const struct tr_head *a = &heads[first], *b = &heads[i];
        const char *path = files->file[i].path, *other = files->file[first].path;
        if (files->file[i].size == 0) continue;
        if (files->file[first].hdf5 != files->file[i].hdf5)
            return tr_fail(TR_ERR_DATA, "%s: %san HDF5 file, other than %s", path,
                           files->file[i].hdf5 ? "" : "not ", other);
        if (format == TR_FORMAT_HDF5)
            TR_TRY(compare_tables(files, heads, tr_heads_first(heads, files->n), i));
        if (format == TR_FORMAT_CSV && b->fields != a->fields && b->fields > 0 && !(a->header && b->header))
            return tr_fail(TR_ERR_DATA, "%s: %llu columns, but %s has %llu", path,
                           (unsigned long long)b->fields, other, (unsigned long long)a->fields);
        if (format == TR_FORMAT_DOCWORD && b->words != a->words)
            return tr_fail(TR_ERR_DATA,
                           "%s: its header says %llu words, but that of %s %llu: expected one vocabulary",
                           path, (unsigned long long)b->words, other, (unsigned long long)a->words);
    }
    return TR_OK;
}

int tr_heads_read(const struct tr_files *files, enum tr_format format, int header, struct tr_head **heads)
{
    struct tr_head *found;
    TR_TRY(TR_NEW(&found, files->n));
    int status = TR_OK;
    for (size_t file = 0; file < files->n && status == TR_OK; file++)
        status = look_at_file(files, file, format, header, &found[file]);
    if (status == TR_OK) status = compare_heads(files, format, found);
    if (status == TR_OK) *heads = found;
    else free(found);
    return status;
}

#define _GNU_SOURCE
#include "data/reader.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/hdf5.h"

/* ---- difficult numbers ---- */

/* Reads digits. The mantissa has room for at least 18 of them; further digits are dropped. A digit adds `step` (0 before the point,
 * -1 after it) to the exponent, and one more if it is dropped. */
static const char *read_mantissa(const char *p, uint64_t *mantissa, long step, long *exponent)
{
    while (*mantissa < 10000000000u) {
        uint64_t word = tr_load8(p);
        unsigned n = tr_leading_digits(word);
        if (n < 8) break;
        *mantissa = *mantissa * 100000000u + tr_digits_value(word, 8);
        *exponent += 8 * step;
        p += 8;
    }
    for (; tr_is_digit(*p); p++) {
        bool room = *mantissa < 1000000000000000000u;
        if (room) *mantissa = *mantissa * 10 + (uint64_t)(*p - '0');
        *exponent += step + !room;
    }
    return p;
}

struct tr_number tr_read_any_float(const char *p)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *start = p;
    bool negative = *p == '-';
    p += negative || *p == '+';
    const char *digits = p;
    uint64_t mantissa = 0, bits;
    long exponent = 0;
    p = read_mantissa(p, &mantissa, 0, &exponent);
    ptrdiff_t n = p - digits;
    if (*p == '.') {
        digits = ++p;
        p = read_mantissa(p, &mantissa, -1, &exponent);
        n += p - digits;
    }
    if (n == 0) return (struct tr_number){NULL, 0};
    digits = (*p | 32) == 'e' ? p + 1 + (p[1] == '-' || p[1] == '+') : p;
    if (digits > p && tr_is_digit(*digits)) { /* an «e» is an exponent only if a digit follows */
        bool below = p[1] == '-';
        long size = 0;
        for (p = digits; tr_is_digit(*p); p++)
            if (size < 1000000000) size = size * 10 + (*p - '0');
        exponent += below ? -size : size;
    }
    if (mantissa == 0) return (struct tr_number){p, negative ? -0.0f : 0.0f};
    /* x = mantissa * 10^exponent, with an error of a few units in the last place: the mantissa and each step round once */
    double x = 0;
    if (exponent >= -80 && exponent <= 60) {
        x = (double)mantissa;
        for (; exponent < -22; exponent += 22) x /= ten[22];
        for (; exponent > 22; exponent -= 22) x *= ten[22];
        x = exponent < 0 ? x / ten[-exponent] : x * ten[exponent];
    }
    /* Every double within 16 units in the last place of x rounds to the same normal float, unless x is near the middle between two
     * floats. At a middle, the 29 bits of the mantissa that a float does not have are 100...0. */
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x1fffffffu) - 0x10000000u + 16 > 32 && x > 1.2e-38 && x < 3.4e38)
        return (struct tr_number){p, (float)(negative ? -x : x)};
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* never fails: the locale "C" takes no memory */
    float value = strtof_l(start, NULL, c);
    freelocale(c);
    return (struct tr_number){p, value};
}

/* ---- malformed lines ---- */

int tr_place_fail(const struct tr_files *files, const struct tr_file_place *place, const char *what)
{
    uint64_t line;
    if (files->file[place->file].hdf5)
        return tr_fail(TR_ERR_DATA, "%s: row %llu, the first being 0: %s", files->file[place->file].path,
                       (unsigned long long)place->offset, what);
    TR_TRY(tr_files_line(files, place->file, place->offset, &line));
    return tr_fail(TR_ERR_DATA, "%s:%llu: %s", files->file[place->file].path, (unsigned long long)line, what);
}

const char *tr_reader_bad(struct tr_reader *r, const char *token, char separator, const char *format, ...)
{
    char quoted[TR_TOKEN_ROOM];
    size_t n = 0;
    if (token) {
        tr_token_quote(token, separator, quoted);
        n = (size_t)snprintf(r->problem, sizeof r->problem, "'%s': ", quoted);
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->problem + n, sizeof r->problem - n, format, arguments);
    va_end(arguments);
    r->status = TR_ERR_DATA;
    return NULL;
}

int tr_reader_reject(struct tr_reader *r)
{
    struct tr_file_place place = {r->file, r->offset};
    if (r->status != TR_ERR_DATA) return r->status;
    if (!r->options->skip_errors) return tr_place_fail(r->files, &place, r->problem);
    if (r->report.skipped++ == 0) r->report.first_skipped = place;
    if (!r->options->every_row) return TR_OK;
    struct tr_matrix *m = &r->matrix;
    float *extra[TR_EXTRAS];
    tr_reader_begin_extras(r, extra);
    r->place[m->rows] = r->offset | TR_PLACE_MALFORMED;
    if (m->begin) m->begin[m->rows + 1] = r->nonzeros = (size_t)m->begin[m->rows];
    else memset(m->value + m->rows * m->columns, 0, m->columns * sizeof *m->value);
    if (r->options->id) TR_TRY(tr_reader_add_id(r, m->rows, "", 0));
    return tr_reader_end_row(r, NAN);
}

int tr_reader_add_id(struct tr_reader *r, size_t row, const char *text, size_t n)
{
    if (row == 0) r->id_length = 0;
    TR_TRY(TR_GROW(&r->id, &r->id_capacity, row + 1));
    TR_TRY(TR_GROW(&r->id_text, &r->id_text_capacity, r->id_length + n + 1));
    r->id[row] = r->id_length;
    memcpy(r->id_text + r->id_length, text, n);
    r->id_length += n;
    r->id_text[r->id_length++] = '\0';
    return TR_OK;
}

/* Makes the numbers of lines the identifiers of the rows from `row` on, which come from these lines. */
static int reader_number_lines(struct tr_reader *r, const struct tr_chunk *lines, size_t row)
{
    const char *p = lines->begin, *next;
    if (r->next != lines->offset || lines->offset == 0)
        TR_TRY(tr_files_line(r->files, r->file, lines->offset, &r->line));
    r->next = lines->offset + (uint64_t)(lines->end - lines->begin);
    for (; p < lines->end; p = next + 1, r->line++) {
        next = memchr(p, '\n', (size_t)(lines->end - p));
        uint64_t offset = lines->offset + (uint64_t)(p - lines->begin);
        if (row == r->matrix.rows || (r->place[row] & ~TR_PLACE_MALFORMED) != offset) continue;
        char number[24];
        int n = snprintf(number, sizeof number, "%llu", (unsigned long long)r->line);
        TR_TRY(tr_reader_add_id(r, row++, number, (size_t)n));
    }
    return TR_OK;
}

void tr_reader_note_long_label(struct tr_reader *r, const char *token, char separator)
{
    struct tr_read_report *report = &r->report;
    struct tr_field f;
    char room[TR_VALUE_ROOM];
    double number;
    if (*report->long_label || tr_read_field(token, separator, &f)) return;
    size_t n = f.n;
    const char *text = tr_value_text(f.text, &n, room);
    if (n > 21 || !tr_value_is_number(text, n, &number) || memchr(text, '.', n)) return;
    char as_float[64]; /* a double has no more digits than a label of 64 bits, either */
    int digits = snprintf(as_float, sizeof as_float, "%.0f", (double)(float)number);
    if ((size_t)digits == n && memcmp(as_float, text, n) == 0) return;
    memcpy(report->long_label, text, n);
    report->long_label[n] = '\0';
    report->long_label_at = (struct tr_file_place){r->file, r->offset};
}

int tr_reader_find_label(const struct tr_reader_options *o, const char *text, size_t n, float *label)
{
    char room[TR_VALUE_ROOM];
    uint32_t place;
    text = tr_value_text(text, &n, room);
    if (!o->label_names) TR_TRY(tr_ids_add_text(o->label_seen, text, n, &place));
    else if ((place = tr_ids_find_text(o->label_names, text, n)) == UINT32_MAX)
        place = (uint32_t)o->label_names->n;
    *label = (float)place;
    return TR_OK;
}

int tr_reader_add_label(struct tr_reader *r, float label)
{
    struct tr_labels *labels = &r->report.labels;
    size_t known = labels->bits.n;
    float value = label + 0.0f; /* adding 0 changes -0 to 0 */
    uint32_t bits, at;
    r->last_label = label;
    if (isnan(label) || known == TR_LABELS_MOST) return TR_OK;
    memcpy(&bits, &value, sizeof bits);
    TR_TRY(tr_ids_number(&labels->bits, bits, &at));
    if (labels->bits.n > known && known < 3)
        labels->place[known] = (struct tr_file_place){r->file, r->offset};
    return TR_OK;
}

/* ---- formats ---- */

static const char *const format_words[] = {TR_FORMAT_WORDS};

#define FORMAT_ADDRESS(NAME, name) &tr_##name##_format,
static const struct tr_text_format *const text_formats[] = {TR_TEXT_FORMATS(FORMAT_ADDRESS)};
enum { TEXT_FORMATS = sizeof text_formats / sizeof *text_formats };

const struct tr_text_format *tr_text_format(enum tr_format format)
{
    return format > TR_FORMAT_AUTO && format < TR_FORMAT_HDF5 ? text_formats[format - 1] : &tr_libsvm_format;
}

const char *tr_format_word(enum tr_format format)
{
    return format_words[format];
}

enum tr_format tr_format_named(const char *word)
{
    for (enum tr_format f = TR_FORMAT_LIBSVM; f <= TR_FORMAT_HDF5; f++)
        if (strcmp(format_words[f], word) == 0) return f;
    return TR_FORMAT_AUTO;
}

/* ---- first lines ---- */

/* Gathers 16 KiB of text. Empty lines before it are dropped, so any number of them takes no memory. A line that is too long ends
 * the text; the reader of the line reports it. */
static int first_lines_gather(const struct tr_files *files, size_t file, struct tr_text *text,
                              struct tr_first_lines *first)
{
    const ptrdiff_t enough = 16 << 10;
    for (bool found = false; !found || first->end - first->begin < enough;) {
        struct tr_chunk chunk;
        TR_TRY(tr_text_next(text, &chunk));
        if (chunk.too_long && !found) return tr_text_fail_too_long(files, file, chunk.offset);
        if (chunk.begin == chunk.end) return TR_OK;
        if (!found) {
            first->end = first->begin;
            first->offset = chunk.offset;
        }
        size_t n = (size_t)(first->end - first->begin), more = (size_t)(chunk.end - chunk.begin);
        TR_TRY(TR_GROW(&first->begin, &first->capacity, n + more + TR_TEXT_SLACK));
        memcpy(first->begin + n, chunk.begin, more);
        first->end = first->begin + n + more;
        memset(first->end, 0, TR_TEXT_SLACK);
        found = found || tr_next_text(first->begin, first->end);
    }
    return TR_OK;
}

static void first_lines_free(struct tr_first_lines *first)
{
    free(first->begin);
}

static int first_lines_read(const struct tr_files *files, size_t file, struct tr_first_lines *first)
{
    struct tr_file_part part;
    TR_CLOSED_BY(tr_text_close) struct tr_text *text = NULL;
    first->path = files->file[file].path;
    if (!tr_files_part(files, file, 0, 1, &part)) return TR_OK;
    TR_TRY(tr_text_open(files, &part, (size_t)64 << 10, &text));
    TR_TRY(first_lines_gather(files, file, text, first));
    size_t n = (size_t)(first->end - first->begin);
    first->text = n > 3 && memcmp(first->begin, "\xef\xbb\xbf", 3) == 0 ? first->begin + 3 : first->begin;
    return TR_OK;
}

int tr_format_detect(const struct tr_files *files, enum tr_format *format)
{
    *format = TR_FORMAT_AUTO;
    for (size_t file = 0; file < files->n && *format == TR_FORMAT_AUTO; file++) {
        TR_CLOSED_BY(first_lines_free) struct tr_first_lines first = {.begin = NULL};
        if (files->file[file].hdf5) { /* a table with named columns is csv */
            struct tr_head head = {0};
            int status = tr_hdf5_look(&files->file[file], &head);
            *format = status == TR_OK && head.named ? TR_FORMAT_CSV : TR_FORMAT_HDF5;
            return status;
        }
        TR_TRY(first_lines_read(files, file, &first));
        for (int k = 0; k < 2 * TEXT_FORMATS && first.begin && *format == TR_FORMAT_AUTO; k++) {
            const struct tr_text_format *f = text_formats[k % TEXT_FORMATS];
            if (f->certain == (k < TEXT_FORMATS) && f->sniff && f->sniff(first.text, first.end))
                *format = (enum tr_format)(k % TEXT_FORMATS + 1);
        }
    }
    return TR_OK;
}

static int head_read_fields(const struct tr_files *files, const struct tr_file_place *place, const char *p,
                            char separator, size_t line, tr_field_fn *read, void *state)
{
    TR_FREED char *text = NULL;
    size_t capacity = 0;
    if (separator == TR_SEPARATOR_BLANKS) p = tr_skip_blanks(p);
    for (size_t k = 0;; k++) {
        struct tr_field f;
        const char *wrong = tr_read_field(p, separator, &f);
        if (wrong && line == 0) {
            char what[256];
            snprintf(what, sizeof what, "the header: column %zu %s%s", k + 1, wrong,
                     strchr(wrong, ':') ? "" : ": data.header=no data.skip_lines=1 leaves it out");
            return tr_place_fail(files, place, what);
        }
        if (wrong) return TR_OK; /* reading the rows will report this field */
        TR_TRY(TR_GROW(&text, &capacity, f.n + 1));
        TR_TRY(read(state, line, k, text, tr_field_copy(&f, text)));
        p = f.end;
        if (!tr_next_any_field(&p, separator)) return TR_OK;
    }
}

int tr_head_fields(const struct tr_files *files, size_t file, const struct tr_head *head, tr_field_fn *read,
                   void *state)
{
    TR_CLOSED_BY(first_lines_free) struct tr_first_lines first = {.begin = NULL};
    if (files->file[file].hdf5) return tr_hdf5_read_names(&files->file[file], read, state);
    TR_TRY(first_lines_read(files, file, &first));
    const char *begin = tr_next_text(first.text, first.end), *p = begin;
    for (size_t line = !head->header; p; line++) {
        if (line == 1) p = tr_next_text(first.begin + (head->begin - first.offset), first.end);
        if (!p) return TR_OK;
        const char *at = p; /* a tab may end an empty first field */
        while (head->separator == '\t' && at > begin && tr_is_blank(at[-1])) at--;
        struct tr_file_place place = {file, first.offset + (uint64_t)(at - first.begin)};
        TR_TRY(head_read_fields(files, &place, at, head->separator, line, read, state));
        if (line > 0) p = tr_next_text(tr_behind_line(p, first.end), first.end);
    }
    return TR_OK;
}

/* ---- heads ---- */

static int head_read(const struct tr_files *files, size_t file, enum tr_format format, int header,
                     struct tr_head *head)
{
    TR_CLOSED_BY(first_lines_free) struct tr_first_lines first = {.begin = NULL};
    const struct tr_file *f = &files->file[file];
    const struct tr_text_format *text = tr_text_format(format);
    bool may_be = format == TR_FORMAT_HDF5 || format == TR_FORMAT_CSV;
    head->dialect = f->dialect;
    if (f->hdf5 && may_be) TR_TRY(tr_hdf5_look(f, head));
    if (f->size > 0 && f->hdf5 != (format == TR_FORMAT_HDF5) && !head->named)
        return tr_fail(TR_ERR_DATA, "%s: %s, expected data.format: %s", f->path,
                       f->hdf5 ? "an HDF5 file" : "not an HDF5 file", tr_format_word(format));
    if (f->hdf5) return TR_OK;
    TR_TRY(first_lines_read(files, file, &first));
    head->begin = first.offset + (uint64_t)(first.text - first.begin);
    first.separator = tr_dialect_separator(&f->dialect);
    if (f->dialect.encoding && f->dialect.header < TR_DIALECT_COUNT)
        header = f->dialect.header > 0 ? TR_HEADER_YES : TR_HEADER_NO;
    return first.begin && text->head ? text->head(&first, header, head) : TR_OK;
}

size_t tr_heads_first(const struct tr_head *heads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (heads[i].fields > 0) return i;
    return 0;
}

/* Checks that two HDF5 files can be parts of one table. */
static int heads_compare_tables(const struct tr_files *files, const struct tr_head *heads, size_t first,
                                size_t i)
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

/* Checks that all files have the same columns: csv files without names equal numbers of columns, docword files one vocabulary. */
static int heads_compare(const struct tr_files *files, enum tr_format format, const struct tr_head *heads)
{
    size_t first = 0;
    uint64_t documents = tr_docword_base(files, heads, files->n);
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
            TR_TRY(heads_compare_tables(files, heads, tr_heads_first(heads, files->n), i));
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
    TR_FREED struct tr_head *found = NULL;
    TR_TRY(TR_NEW(&found, files->n));
    for (size_t file = 0; file < files->n; file++)
        TR_TRY(head_read(files, file, format, header, &found[file]));
    TR_TRY(heads_compare(files, format, found));
    *heads = found;
    found = NULL;
    return TR_OK;
}

/* ---- the share of a reader ---- */

int tr_reader_note_run(struct tr_reader *r, uint64_t begin, uint64_t end, uint64_t rows)
{
    struct tr_read_runs *runs = r->options->runs;
    if (!runs) return TR_OK;
    struct tr_read_run *last = runs->n > 0 ? &runs->run[runs->n - 1] : NULL;
    if (last && last->file == r->file && last->end == begin) {
        last->end = end;
        last->rows += rows;
        return TR_OK;
    }
    TR_TRY(TR_GROW(&runs->run, &runs->room, runs->n + 1));
    runs->run[runs->n++] = (struct tr_read_run){r->file, begin, end, rows};
    return TR_OK;
}

int tr_reader_note_triples(struct tr_reader *r, uint64_t piece)
{
    struct tr_triples *t = &r->triples;
    const struct tr_triple_run *last = t->runs > 0 ? &t->run[t->runs - 1] : NULL;
    if (last && last->file == r->file && last->piece == piece) return TR_OK;
    TR_TRY(TR_GROW(&t->run, &t->run_capacity, t->runs + 1));
    t->run[t->runs++] = (struct tr_triple_run){r->file, piece, t->n};
    return TR_OK;
}

static bool reader_is_triples(const struct tr_reader *r)
{
    return r->options->format == TR_FORMAT_RATINGS || r->options->format == TR_FORMAT_DOCWORD;
}

int tr_reader_start_values(struct tr_reader *r, size_t n)
{
    TR_TRY(TR_GROW(&r->matrix.value, &r->value_capacity, r->column_capacity));
    for (size_t i = 0; i < n; i++) r->matrix.value[i] = 1;
    return TR_OK;
}

int tr_reader_enter(struct tr_reader *r, size_t file)
{
    static const struct tr_head none = {.separator = TR_SEPARATOR_BLANKS};
    const struct tr_reader_options *o = r->options;
    const struct tr_text_format *format = tr_text_format(o->format);
    if (file == r->file && r->head) return TR_OK;
    r->file = file;
    r->head = o->heads ? &o->heads[file] : &none;
    r->empty = 0;
    r->next = UINT64_MAX;
    if (format->enter) TR_TRY(format->enter(r));
    r->blank_rows = o->every_row && !r->head->dialect.comment &&
                    (o->format == TR_FORMAT_CSV ? r->fields == 1 : r->head->bare);
    return TR_OK;
}

int tr_reader_note_mark(struct tr_reader *r)
{
    struct tr_marks *marks = r->options->marks;
    if (!marks) return TR_OK;
    TR_TRY(TR_GROW(&marks->mark, &marks->capacity, marks->n + 1));
    marks->mark[marks->n++] = r->mark;
    return TR_OK;
}

int tr_reader_choose_row(struct tr_reader *r, uint64_t file, uint64_t place, bool *skips)
{
    const struct tr_reader_options *o = r->options;
    *skips = o->marks_only || tr_split_leaves_out(&o->split, o->reads_held_out, r->mark, file, place);
    if (!o->marks_only) return TR_OK;
    if (o->split.by != TR_SPLIT_LABEL) return tr_reader_note_mark(r);
    if (r->mark == 0) return TR_OK; /* the label is missing */
    TR_TRY(tr_reader_note_mark(r));
    r->mark = tr_split_key(&o->split, r->mark, file, place);
    r->enough = o->marks->n / 2 >= TR_SPLIT_MOST_ROWS;
    return tr_reader_note_mark(r);
}

int tr_reader_choose(struct tr_reader *r, const char *p, bool *skips)
{
    const struct tr_reader_options *o = r->options;
    const struct tr_text_format *format = tr_text_format(o->format);
    r->mark = 0;
    r->status = TR_OK;
    *skips = true;
    if (o->split.by >= TR_SPLIT_GROUP && !format->mark(r, p))
        return r->status == TR_OK ? TR_OK : tr_reader_reject(r);
    return tr_reader_choose_row(r, r->file, r->offset, skips);
}

int tr_reader_hand_out(struct tr_reader *r)
{
    if (!r->options->piece || r->matrix.rows == 0) return TR_OK;
    int status = r->options->piece(r->options->piece_state, r);
    r->report.rows += r->matrix.rows;
    r->report.nonzeros += tr_matrix_nonzeros(&r->matrix);
    r->matrix.rows = r->nonzeros = 0;
    return status;
}

/* Parses a chunk of lines. piece: if several readers decompress the file, the number of the piece with these lines; else 0. */
static int reader_parse_chunk(struct tr_reader *r, struct tr_chunk lines, size_t file, uint64_t piece)
{
    const struct tr_text_format *format = tr_text_format(r->options->format);
    size_t bytes = (size_t)(lines.end - lines.begin), rows = r->matrix.rows + r->triples.n;
    TR_TRY(tr_reader_enter(r, file));
    TR_TRY(format->room(r, bytes));
    if (r->options->piece ||
        r->options->places) /* a row takes at least one byte if it may be empty, otherwise two */
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, rows + bytes / (r->blank_rows ? 1 : 2) + 1));
    if (lines.too_long) {
        r->offset = lines.offset;
        tr_reader_bad(r, NULL, ' ', "%s", tr_text_too_long(r->files).text);
        return tr_reader_reject(r);
    }
    r->report.text_bytes += bytes;
    uint64_t header = lines.offset < r->head->begin ? r->head->begin - lines.offset : 0;
    if (header > bytes) header = bytes;
    lines.begin += header;
    lines.offset += header;
    if (reader_is_triples(r)) TR_TRY(tr_reader_note_triples(r, piece));
    TR_TRY(format->lines(r, &lines));
    if (r->options->line_ids) TR_TRY(reader_number_lines(r, &lines, rows));
    TR_TRY(tr_reader_note_run(r, lines.offset, lines.offset + (uint64_t)(lines.end - lines.begin),
                              r->matrix.rows + r->triples.n - rows));
    return tr_reader_hand_out(r);
}

struct reader_progress {
    struct tr_reader *r;
    uint64_t done; /* stored bytes of the parts that were read completely */
};

static int reader_read_part(void *state, const struct tr_file_part *part)
{
    struct reader_progress *p = state;
    struct tr_reader *r = p->r;
    const struct tr_reader_options *o = r->options;
    TR_CLOSED_BY(tr_text_close) struct tr_text *text = NULL;
    if (r->enough) return TR_OK;
    TR_TRY(tr_text_open(r->files, part, o->chunk_bytes ? o->chunk_bytes : TR_TEXT_CHUNK, &text));
    bool divided = tr_file_is_stream(&r->files->file[part->file]) && part->readers > 1;
    while (!r->enough) {
        struct tr_chunk lines;
        TR_TRY(tr_text_next(text, &lines));
        if (o->progress) TR_TRY(o->progress(o->progress_state, p->done + tr_text_done(text)));
        if (lines.begin == lines.end && !lines.too_long) break;
        TR_TRY(reader_parse_chunk(r, lines, part->file, divided ? lines.offset / part->bytes : 0));
    }
    p->done += tr_text_done(text);
    return TR_OK;
}

bool tr_reader_is_hdf5(const struct tr_reader *r)
{
    if (r->options->format == TR_FORMAT_HDF5) return true; /* a table with named columns is csv */
    return r->options->schema && r->files->file[tr_heads_first(r->options->heads, r->files->n)].hdf5;
}

static int reader_read_share(struct tr_reader *r, size_t reader, size_t readers)
{
    const struct tr_reader_options *o = r->options;
    const struct tr_text_format *format = tr_text_format(o->format);
    struct tr_read_report *report = &r->report;
    const struct tr_matrix *m = &r->matrix;
    int status = TR_OK;
    report->lowest = UINT32_MAX;
    r->last_label = NAN;
    if (o->records) memset(o->records, 0, r->files->n * sizeof *o->records);
    if (tr_reader_is_hdf5(r)) {
        status = tr_hdf5_read_share(r, reader, readers);
    } else {
        if (format->open) status = format->open(r);
        if (status == TR_OK) status = format->room(r, 0);
        if (status == TR_OK)
            status = tr_files_each_part(r->files, reader, readers, o->deal, reader_read_part,
                                        &(struct reader_progress){.r = r});
    }
    if (status == TR_OK && o->places) *o->places = r->place;
    else free(r->place);
    for (int e = 0; e < TR_EXTRAS; e++) {
        if (status == TR_OK && o->extra[e]) *o->extra[e] = r->extra[e];
        else free(r->extra[e]);
    }
    void *parts[] = {r->origin, r->bound, r->scratch, r->id_text, r->id, r->at};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    if (status != TR_OK) {
        tr_ids_free(&report->labels.bits);
    } else if (reader_is_triples(r)) {
        report->rows = report->nonzeros = r->triples.n;
    } else {
        report->rows += m->rows;
        report->nonzeros += tr_matrix_nonzeros(m);
        if (m->columns > 0 && report->rows > 0) report->lowest = 0;
        if (m->columns > 0 && report->rows > 0) report->highest = (uint32_t)(m->columns - 1);
    }
    return status;
}

int tr_read_matrix(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_reader_options *options, struct tr_matrix *matrix,
                   struct tr_read_report *report)
{
    struct tr_reader r = {.files = files, .options = options};
    struct tr_matrix *m = &r.matrix;
    int status = reader_read_share(&r, reader, readers);
    if (status != TR_OK) {
        tr_matrix_free(m);
        return status;
    }
    if (m->begin) TR_SHRINK(&m->begin, m->rows + 1);
    if (m->column) TR_SHRINK(&m->column, tr_matrix_nonzeros(m));
    if (m->value) TR_SHRINK(&m->value, tr_matrix_nonzeros(m));
    if (m->label) TR_SHRINK(&m->label, m->rows);
    *matrix = *m;
    *report = r.report;
    return TR_OK;
}

int tr_read_triples(const struct tr_files *files, size_t reader, size_t readers,
                    const struct tr_reader_options *options, struct tr_triples *triples,
                    struct tr_read_report *report)
{
    struct tr_reader r = {.files = files, .options = options};
    r.triples.rows.are_text = options->text_rows;
    r.triples.columns.are_text = options->text_columns;
    int status = reader_read_share(&r, reader, readers);
    if (status != TR_OK) {
        tr_triples_free(&r.triples);
        return status;
    }
    TR_SHRINK(&r.triples.triple, r.triples.n);
    r.triples.triple_capacity = r.triples.n;
    *triples = r.triples;
    *report = r.report;
    return TR_OK;
}

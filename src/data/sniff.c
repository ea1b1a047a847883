/* Finds the dialect of a table from a sample of its text.
 *
 * A few delimiters, quotes and escapes are candidates. Each of them divides the sample into rows of cells, and its score is high if
 * the rows have the same number of cells and if the cells are numbers, dates, quoted text or words, see sniff_score(). The rows of
 * the best candidate show the rest: what differs above the rows that agree is preamble, header and units, and the notation that
 * reads most columns as numbers is that of the file.
 */
#define _GNU_SOURCE
#include "data/dialect.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "data/field.h"

/* ---- text ---- */

/* Pieces of the sample with the same encoding and line ends: ASCII is as in the file, and each line ends with a newline. */
struct sniff_text {
    char *begin;
    size_t n, capacity;
};

/* Returns how many more characters of UTF-8 than other bytes the text has, ASCII apart. */
static ptrdiff_t sniff_utf8(const unsigned char *p, size_t n)
{
    ptrdiff_t sum = 0;
    for (size_t i = 0, k; i < n; i += k) {
        size_t bytes = p[i] < 0x80   ? 1
                       : p[i] < 0xc2 ? 0
                       : p[i] < 0xe0 ? 2
                       : p[i] < 0xf0 ? 3
                       : p[i] < 0xf5 ? 4
                                     : 0;
        for (k = 1; k < bytes && i + k < n && (p[i + k] & 0xc0) == 0x80;) k++;
        bool good = k == bytes || (bytes > 0 && i + k == n);
        sum += bytes == 1 ? 0 : good ? 1 : -1;
    }
    return sum;
}

/* UTF-16 without a byte order mark has zeros in every second byte of the ASCII characters that divide fields. */
static enum tr_encoding sniff_encoding(const struct tr_sample_text *piece, size_t pieces)
{
    const unsigned char *p = (const unsigned char *)piece->text;
    size_t zeros[2] = {0, 0}, n = piece->n;
    if (n >= 2 && p[0] == 0xff && p[1] == 0xfe) return TR_UTF16_LE;
    if (n >= 2 && p[0] == 0xfe && p[1] == 0xff) return TR_UTF16_BE;
    for (size_t i = 0; i < n; i++) zeros[i % 2] += p[i] == 0;
    if (zeros[1] > n / 8 && zeros[0] < zeros[1] / 8) return TR_UTF16_LE;
    if (zeros[0] > n / 8 && zeros[1] < zeros[0] / 8) return TR_UTF16_BE;
    ptrdiff_t sum = 0;
    for (size_t i = 0; i < pieces; i++) {
        p = (const unsigned char *)piece[i].text;
        n = piece[i].n;
        while (!piece[i].from_begin && n > 0 && (*p & 0xc0) == 0x80) p++, n--;
        sum += sniff_utf8(p, n);
    }
    return sum < 0 ? TR_LATIN1 : TR_UTF8;
}

/* Appends the lines of a piece. The parts of lines at its begin and end are dropped, unless the file begins or ends there. */
static int sniff_add_piece(struct sniff_text *text, const struct tr_sample_text *piece, bool whole,
                           enum tr_encoding encoding, bool cr)
{
    const unsigned char *p = (const unsigned char *)piece->text;
    size_t n = piece->n, start = text->n;
    TR_TRY(TR_GROW(&text->begin, &text->capacity, start + n + 64));
    char *to = text->begin + start;
    if (encoding >= TR_UTF16_LE) {
        size_t high = encoding == TR_UTF16_LE, zeros[2] = {0, 0};
        for (size_t i = 0; i < n; i++) zeros[i % 2] += p[i] == 0;
        size_t odd = zeros[high] < zeros[1 - high]; /* the piece begins in the middle of a character */
        for (size_t i = odd; i + 1 < n; i += 2)
            *to++ = p[i + high] == 0 && p[i + 1 - high] < 128 ? (char)p[i + 1 - high] : (char)0xc2;
        if (piece->from_begin && n >= 2 && (p[0] | p[1]) == 0xff && to > text->begin + start)
            memmove(text->begin + start, text->begin + start + 1, (size_t)(--to - text->begin) - start);
    } else {
        size_t mark = piece->from_begin && n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
        memcpy(to, p + mark, n - mark);
        to += n - mark;
    }
    char *begin = text->begin + start, *end = to, *newline;
    for (char *c = begin; cr && c < end; c++)
        if (*c == '\r') *c = '\n';
    if (!piece->from_begin) {
        newline = memchr(begin, '\n', (size_t)(end - begin));
        if (!newline) return TR_OK; /* a part of a line */
        memmove(begin, newline + 1, (size_t)(end - newline - 1));
        end -= newline + 1 - begin;
    }
    newline = end;
    while (!whole && newline > begin && newline[-1] != '\n') newline--;
    if (newline > begin) end = newline;
    if (end > begin && end[-1] != '\n') *end++ = '\n';
    text->n = (size_t)(end - text->begin);
    memset(end, 0, (size_t)(text->begin + text->capacity - end));
    return TR_OK;
}

static bool sniff_ends_with_cr(const struct tr_sample_text *piece, size_t pieces)
{
    size_t lf = 0, cr = 0;
    for (size_t i = 0; i < pieces; i++)
        for (size_t k = 0; k < piece[i].n; k++) {
            lf += piece[i].text[k] == '\n';
            cr += piece[i].text[k] == '\r';
        }
    return cr > 2 * lf;
}

/* ---- cells ---- */

/* NUMBER: in any notation; VALUE: a date, a time, an amount as $5 or 5 %; ODD: text that a delimiter or a quote should have divided or
 * enclosed. */
enum sniff_kind { SNIFF_EMPTY, SNIFF_NUMBER, SNIFF_VALUE, SNIFF_WORD, SNIFF_ODD };

struct sniff_cell {
    const char *text;
    uint32_t n;
    uint8_t kind;
    /* quoted: the cell was in quotes. Of a number: its marks, '\0': none; either: one mark before three digits, which may be a
     * decimal mark, too; large: digits without marks that groups of three would divide */
    bool quoted, either, large;
    char decimal, thousands;
    uint8_t
        mark; /* VALUE: bytes of the currency before the number, or SNIFF_PERCENT: % is behind it; 0: neither */
};
enum { SNIFF_PERCENT = 255 };

static bool sniff_is_missing(const char *p, size_t n)
{
    static const char *const words[] = {"na", "n/a", "nan",  "null", "none", "-",  "--",
                                        "?",  ".",   "#n/a", "inf",  "-inf", "nil"};
    for (size_t i = 0; i < sizeof words / sizeof *words && n <= 4; i++)
        if (strlen(words[i]) == n && strncasecmp(words[i], p, n) == 0) return true;
    return n == 0;
}

/* Reads groups of digits with marks between them, a sign before and an exponent behind. Returns whether this is all of the text. */
static bool sniff_read_number(const char *p, const char *end, struct sniff_cell *cell)
{
    size_t groups = 0, first = 0, last = 0;
    char inner = '\0',
         mark = '\0'; /* the mark between the groups before the last one; the mark before the last one */
    p += p < end && (*p == '-' || *p == '+');
    bool zero = p < end && *p == '0';
    for (;; p++) {
        const char *group = p;
        while (p < end && tr_is_digit(*p)) p++;
        last = (size_t)(p - group);
        if (groups++ == 0) first = last;
        if (p == end || !strchr(".,' ", *p) || *p == '\0') break;
        if (inner && mark != inner) return false;
        if (groups > 1 && last != 3) return false;
        inner = mark;
        mark = *p;
    }
    if (first + last == 0) return false;
    bool grouped = groups > 1 && last == 3 && (!inner || inner == mark) && first >= 1 && first <= 3 && !zero;
    bool divided =
        groups > 1 && (mark == '.' || mark == ',') && inner != mark && (!inner || (first >= 1 && first <= 3));
    if (groups > 1 && !grouped && !divided) return false;
    if (p < end && (*p | 32) == 'e' && p + 1 < end) {
        p += 1 + (p[1] == '-' || p[1] == '+');
        if (p == end) return false;
        while (p < end && tr_is_digit(*p)) p++;
    }
    cell->either = grouped && divided;
    cell->decimal = divided ? mark : '\0';
    cell->thousands = divided ? inner : mark;
    cell->large = groups == 1 && first > 3;
    return p == end;
}

/* Returns whether the text is a number with a currency before it, or a percent sign behind it. */
static bool sniff_is_marked(struct sniff_cell *cell)
{
    struct sniff_cell number;
    const char *mark = cell->text + (*cell->text == '-'), *begin = mark, *end = cell->text + cell->n;
    while (begin < end && (*begin == '$' || (unsigned char)*begin >= 0x80)) begin++;
    cell->mark = begin > mark     ? (uint8_t)tr_min_size((size_t)(begin - mark), 255)
                 : end[-1] == '%' ? SNIFF_PERCENT
                                  : 0;
    if (cell->mark == SNIFF_PERCENT) end--;
    while (begin < end && *begin == ' ') begin++;
    while (end > begin && end[-1] == ' ') end--;
    return cell->mark && begin < end && tr_is_digit(*begin) && sniff_read_number(begin, end, &number);
}

/* Classes of characters: digits; marks inside of dates; others in dates; what divides fields. */
enum { SNIFF_DIGIT = 1, SNIFF_MARK = 2, SNIFF_TIME = 4, SNIFF_STRONG = 8 };

static const uint8_t sniff_class[256] = {
    ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1,  ['5'] = 1, ['6'] = 1, ['7'] = 1,
    ['8'] = 1, ['9'] = 1, ['-'] = 2, ['/'] = 2, ['.'] = 2,  [':'] = 2, [' '] = 4, ['T'] = 4,
    ['Z'] = 4, ['+'] = 4, [','] = 8, [';'] = 8, ['\t'] = 8, ['|'] = 8};

static enum sniff_kind sniff_look(struct sniff_cell *cell)
{
    const char *p = cell->text, *end = p + cell->n;
    if (sniff_is_missing(p, cell->n)) return SNIFF_EMPTY;
    if (strchr("0123456789-+.,", *p) && sniff_read_number(p, end, cell)) return SNIFF_NUMBER;
    if (sniff_is_marked(cell)) return SNIFF_VALUE;
    cell->mark = 0;
    size_t of[SNIFF_STRONG + 1] = {0};
    for (const char *c = p; c < end; c++) of[sniff_class[(unsigned char)*c]]++;
    size_t digits = of[SNIFF_DIGIT], marks = of[SNIFF_MARK];
    bool only = digits + marks + of[SNIFF_TIME] == cell->n;
    if (only && tr_is_digit(*p) && digits >= 3 && marks >= 1 && digits > marks) return SNIFF_VALUE;
    bool quotes = *p == '"' || *p == '\'' || end[-1] == '"' || end[-1] == '\'';
    bool many = digits > 0 && tr_is_digit(*p) && tr_is_digit(end[-1]) && memchr(p, ' ', cell->n); /* 1 2 */
    return of[SNIFF_STRONG] > 0 || quotes || many ? SNIFF_ODD : SNIFF_WORD;
}

/* ---- rows ---- */

struct sniff_row {
    size_t cell;
    uint32_t cells, line; /* line: from 0, of the file */
    bool bad;             /* a quote does not close, or has text behind it */
};

/* The sample, divided by one candidate. */
struct sniff_rows {
    char delimiter, quote, escape;
    struct sniff_row *row;
    struct sniff_cell *cell;
    size_t rows, cells, row_capacity, cell_capacity;
    size_t top;           /* number of rows of the first piece */
    bool newlines;        /* a quoted cell has a line end */
    size_t agree, quoted; /* numbers of rows that agree and of quoted cells */
    uint32_t columns;     /* number of cells that most rows have */
    double score;
    bool perfect; /* all rows agree, and nearly all cells are numbers, dates or quoted text */
};

static bool sniff_at_delimiter(const char *p, char delimiter)
{
    return delimiter && *p != '\n' && tr_token_ends(p, delimiter) && !tr_at_line_end(p);
}

enum { SNIFF_LINES = 8192 }; /* most bytes of the lines of a quoted cell, except the last one */

/* Finds the end of a quoted cell that begins at p, the quote. Returns NULL if no quote closes it before `end` and, after it, the
 * cell ends. */
static const char *sniff_quoted(const struct sniff_rows *r, const char *p, const char *end,
                                struct sniff_cell *cell)
{
    const char *begin = p;
    cell->text = ++p;
    for (; p < end; p++) {
        if (r->escape && *p == r->escape && p + 1 < end) p++;
        else if (*p == r->quote && p[1] == r->quote && !r->escape) p++;
        else if (*p == r->quote || (*p == '\n' && p - begin > SNIFF_LINES)) break;
    }
    if (p >= end || *p == '\n') return NULL;
    cell->n = (uint32_t)(p - cell->text);
    cell->quoted = true;
    for (p++; tr_is_padding(*p, r->delimiter); p++) continue;
    return tr_at_line_end(p) || sniff_at_delimiter(p, r->delimiter) ? p : NULL;
}

/* Reads the line at p, or several lines if a quoted cell has line ends. Returns the newline. */
static const char *sniff_read_row(struct sniff_rows *r, const char *p, const char *end, struct sniff_row *row,
                                  int *status)
{
    bool blanks = r->delimiter == TR_SEPARATOR_BLANKS;
    while (blanks && tr_is_blank(*p)) p++;
    for (;;) {
        if (r->cells == r->cell_capacity) *status = TR_GROW(&r->cell, &r->cell_capacity, r->cells + 1);
        if (*status != TR_OK) return NULL;
        struct sniff_cell *cell = &r->cell[r->cells++];
        while (tr_is_padding(*p, r->delimiter)) p++;
        *cell = (struct sniff_cell){.text = p};
        const char *behind = r->quote && *p == r->quote ? sniff_quoted(r, p, end, cell) : NULL;
        row->bad |= r->quote && *p == r->quote && !behind;
        if (behind) {
            if (memchr(p, '\n', (size_t)(behind - p))) r->newlines = true;
            p = behind;
            r->quoted++;
        } else {
            *cell = (struct sniff_cell){.text = p};
            const char *inner = NULL;
            for (; !tr_at_line_end(p) && !sniff_at_delimiter(p, r->delimiter); p++)
                if (*p == '"' && !inner) inner = p;
            row->bad |= r->quote == '"' && inner > cell->text && tr_quote_is_torn(inner, r->delimiter);
            const char *last = p;
            while (last > cell->text && tr_is_padding(last[-1], r->delimiter)) last--;
            cell->n = (uint32_t)(last - cell->text);
        }
        cell->kind = (uint8_t)sniff_look(cell);
        if (cell->quoted && cell->kind == SNIFF_ODD) cell->kind = SNIFF_WORD;
        row->cells++;
        while (blanks && tr_is_blank(*p)) p++;
        if (tr_at_line_end(p)) return *p == '\r' ? p + 1 : p;
        if (!blanks) p += r->delimiter == TR_SEPARATOR_COLONS ? 2 : 1;
    }
}

/* Divides the text into rows. Empty lines are no rows. */
static int sniff_read_rows(struct sniff_rows *r, const struct sniff_text *text, size_t first)
{
    const char *begin = text->begin, *end = begin + text->n;
    uint32_t line = 0;
    r->rows = r->cells = r->top = r->quoted = 0;
    r->newlines = false;
    for (const char *p = begin; p < end; p++) {
        const char *at = p, *newline;
        while (tr_is_blank(*at)) at++;
        if (tr_at_line_end(at)) {
            newline = at + (*at == '\r');
        } else {
            int status = TR_OK;
            TR_TRY(TR_GROW(&r->row, &r->row_capacity, r->rows + 1));
            struct sniff_row *row = &r->row[r->rows++];
            *row = (struct sniff_row){.cell = r->cells, .line = line};
            newline = sniff_read_row(r, p, end, row, &status);
            if (!newline) return status;
            if (p < begin + first) r->top = r->rows;
        }
        for (; p < newline; p++) line += *p == '\n';
        line++;
    }
    return TR_OK;
}

/* Returns the number of cells that most rows have; of two, the larger one. Rows that are bad do not count. */
static uint32_t sniff_mode(const struct sniff_rows *r, size_t *agree)
{
    enum { KINDS = 64 }; /* rows with further numbers of cells do not count */
    uint32_t cells[KINDS], n = 0, best = 0;
    size_t rows[KINDS];
    for (size_t i = 0; i < r->rows; i++) {
        uint32_t k = 0;
        if (r->row[i].bad) continue;
        while (k < n && cells[k] != r->row[i].cells) k++;
        if (k == n && n < KINDS) cells[n] = r->row[i].cells, rows[n++] = 0;
        if (k < n) rows[k]++;
    }
    *agree = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (rows[k] < *agree || (rows[k] == *agree && cells[k] < best)) continue;
        best = cells[k];
        *agree = rows[k];
    }
    return best;
}

/* The score of a candidate, the product of
 *   agreement  share of the rows with the same number of cells, to the third power
 *   width      1 - 1 / (2 columns); one column: 0.1
 *   sense      mean over the cells of the rows that agree: numbers, dates, quoted text 1; words 0.7; odd text 0.2 */
static void sniff_score(struct sniff_rows *r)
{
    static const double value[] = {
        [SNIFF_EMPTY] = 0, [SNIFF_NUMBER] = 1, [SNIFF_VALUE] = 1, [SNIFF_WORD] = 0.7, [SNIFF_ODD] = 0.2};
    size_t filled = 0, rows = r->rows;
    double sense = 0;
    r->columns = sniff_mode(r, &r->agree);
    for (size_t i = 0; i < r->rows; i++) {
        const struct sniff_row *row = &r->row[i];
        rows -= row->cells != r->columns && *r->cell[row->cell].text == '#'; /* a comment */
        for (uint32_t k = 0; k < row->cells && row->cells == r->columns && !row->bad; k++) {
            const struct sniff_cell *cell = &r->cell[row->cell + k];
            filled += cell->kind != SNIFF_EMPTY;
            sense += cell->quoted && cell->kind != SNIFF_EMPTY ? 1 : value[cell->kind];
        }
    }
    double a = rows > 0 ? (double)r->agree / (double)rows : 0;
    double width = r->columns > 1 ? 1 - 0.5 / r->columns : 0.1;
    sense = filled > 0 ? sense / (double)filled : 0.5;
    r->score = a * a * a * width * sense;
    r->perfect = r->columns > 1 && r->agree == r->rows && sense > 0.95;
}

/* ---- candidates ---- */

/* Returns a setting, or the value for «to be found»; none: the value for TR_DIALECT_NONE. */
static char sniff_chosen(char given, char usual)
{
    return given == '\0' ? usual : given == TR_DIALECT_NONE ? '\0' : given;
}

static void sniff_swap(struct sniff_rows *a, struct sniff_rows *b)
{
    struct sniff_rows c = *a;
    *a = *b;
    *b = c;
}

/* Returns whether the text has a quote at the begin or the end of a cell: behind or before a character that divides cells. */
static bool sniff_has_quotes(const struct sniff_text *text, char quote)
{
    const char *end = text->begin + text->n;
    for (const char *p = text->begin; (p = memchr(p, quote, (size_t)(end - p))); p++)
        if (p == text->begin || strchr(",;\t| :\n^~", p[-1]) || strchr(",;\t| :\n^~", p[1])) return true;
    return false;
}

/* Divides the text by each candidate. best: the rows of the best one; *second: the score of the best one with another delimiter,
 * *rival. The first of the candidates with the same score wins: commas and double quotes. */
static int sniff_candidates(const struct sniff_text *text, size_t first, const struct tr_dialect *given,
                            struct sniff_rows *best, struct sniff_rows *now, double *second, char *rival)
{
    static const char delimiters[] = {',', ';',    '\t',   '|', TR_SEPARATOR_COLONS, ' ', '^',
                                      '~', '\x01', '\x1f', '\0'};
    static const char *const quotes[] = {"\"", "\"\\", "'", "'\\", ""};
    bool has[2] = {sniff_has_quotes(text, '"'), sniff_has_quotes(text, '\'')};
    bool backslash = memchr(text->begin, '\\', text->n);
    best->score = -1;
    *second = 0;
    for (const char *d = delimiters; *d && !(best->score > 0 && best->perfect); d++) {
        char delimiter = given->delimiter ? given->delimiter : *d;
        bool found = delimiter == TR_SEPARATOR_COLONS ? memmem(text->begin, text->n, "::", 2) != NULL
                                                      : memchr(text->begin, delimiter, text->n) != NULL;
        if (given->delimiter && d > delimiters) break;
        if (!given->delimiter && d > delimiters && !found && delimiter != ' ') continue;
        double highest = -1;
        size_t usual = 0;
        for (size_t k = 0; k < sizeof quotes / sizeof *quotes; k++) {
            char quote = quotes[k][0], escape = quote ? quotes[k][1] : '\0';
            bool can_be = quote ? has[quote == '\''] && (!escape || backslash) : has[0] || has[1];
            if (given->quote && quote != sniff_chosen(given->quote, quote)) continue;
            if (given->escape && escape != sniff_chosen(given->escape, escape)) continue;
            if (k > 0 && !can_be && !given->quote && !given->escape) continue;
            now->delimiter = delimiter;
            now->quote = quote;
            now->escape = escape;
            TR_TRY(sniff_read_rows(now, text, first));
            sniff_score(now);
            if (now->score > highest) highest = now->score;
            if (k == 0) usual = now->rows - now->agree;
            /* other quotes and escapes need more evidence than one row, or one in 50 */
            bool few = k > 0 && !given->quote && !given->escape &&
                       (quote == '\'' ? now->quoted < 2 : now->rows - now->agree + 2 > usual);
            if (few || now->score <= (escape ? 1.06 : 1) * best->score) continue;
            if (best->score >= 0 && best->delimiter != delimiter && best->score > *second) {
                *second = best->score;
                *rival = best->delimiter;
            }
            sniff_swap(best, now);
        }
        if (best->delimiter == delimiter || highest <= *second) continue;
        *second = highest;
        *rival = delimiter;
    }
    return TR_OK;
}

/* ---- columns ---- */

/* The kinds of the cells of a column below the first lines, in the rows that agree. */
struct sniff_column {
    size_t filled, of[SNIFF_ODD + 1], points;
    double least, most; /* of plain numbers */
};

static bool sniff_is_value(uint8_t kind)
{
    return kind == SNIFF_NUMBER || kind == SNIFF_VALUE;
}

static const struct sniff_cell *sniff_cell(const struct sniff_rows *r, size_t row, size_t column)
{
    return &r->cell[r->row[row].cell + column];
}

static double sniff_value(const struct sniff_cell *cell)
{
    float value = NAN;
    char text[TR_TOKEN_ROOM + 32];
    if (cell->n >= TR_TOKEN_ROOM) return NAN;
    memcpy(text, cell->text, cell->n);
    memset(text + cell->n, '\n', 32);
    return tr_read_float(text, &value) == text + cell->n ? (double)value : NAN;
}

static void sniff_columns(const struct sniff_rows *r, size_t from, struct sniff_column *column)
{
    for (size_t c = 0; c < r->columns; c++)
        column[c] = (struct sniff_column){.least = INFINITY, .most = -INFINITY};
    for (size_t i = from; i < r->rows; i++) {
        if (r->row[i].bad || r->row[i].cells != r->columns) continue;
        for (size_t c = 0; c < r->columns; c++) {
            const struct sniff_cell *cell = sniff_cell(r, i, c);
            double x = cell->kind == SNIFF_NUMBER ? sniff_value(cell) : NAN;
            column[c].of[cell->kind]++;
            column[c].filled += cell->kind != SNIFF_EMPTY;
            column[c].points += cell->kind == SNIFF_NUMBER && cell->decimal;
            if (x < column[c].least) column[c].least = x;
            if (x > column[c].most) column[c].most = x;
        }
    }
}

/* Returns whether nearly all cells of a column are numbers, or dates. */
static bool sniff_column_is(const struct sniff_column *c, enum sniff_kind kind)
{
    return c->filled > 0 && 10 * c->of[kind] >= 9 * c->filled;
}

/* ---- the first lines ---- */

/* Returns whether the numbers of a row may be names: whole numbers in equal steps, as 0, 1, 2 or 2019, 2020. One number may be the
 * index of its column, or a year. *sure: they are names also if no words are above numbers, because they are years above numbers
 * that are none, or the indices of all columns above numbers that are not whole. */
static bool sniff_numbers_are_names(const struct sniff_rows *r, size_t row, const struct sniff_column *column,
                                    bool *sure)
{
    double before = NAN, step = NAN;
    bool years = true, indices = r->columns > 2;
    size_t n = 0;
    for (size_t c = 0; c < r->columns; c++) {
        const struct sniff_cell *cell = sniff_cell(r, row, c);
        double x = sniff_value(cell);
        indices = indices && x == (double)c && 2 * column[c].points > column[c].filled;
        if (cell->kind != SNIFF_NUMBER) continue;
        if (!(x >= 0) || x != rint(x) || cell->decimal || cell->n > 9) return false;
        if (n == 1) step = x - before;
        if (n > 0 && (x <= before || x - before != step)) return false;
        bool year = x >= 1900 && x <= 2100;
        if (n++ == 0 && (x == (double)c || x == (double)c + 1 || year)) step = 0;
        years = years && year && (column[c].most < 1900 || column[c].least > 2100);
        before = x;
    }
    *sure = n > 1 && (years || indices);
    return !isnan(step) && (n != 2 || step == 1 || before >= 1900);
}

/* Returns whether a row is a header: it has words above numbers or dates, and its numbers may be names; or it has only words. */
static bool sniff_is_header(const struct sniff_rows *r, size_t row, const struct sniff_column *column)
{
    size_t words = 0, contrasts = 0, same = 0, values = 0;
    for (size_t c = 0; c < r->columns; c++) {
        uint8_t kind = sniff_cell(r, row, c)->kind;
        bool numbers = sniff_column_is(&column[c], SNIFF_NUMBER),
             dates = sniff_column_is(&column[c], SNIFF_VALUE);
        bool word = kind == SNIFF_WORD || kind == SNIFF_ODD;
        words += word;
        values += sniff_is_value(kind);
        contrasts += (word && (numbers || dates)) || (kind == SNIFF_VALUE && numbers);
        contrasts += c == 0 && sniff_cell(r, row, c)->n == 0 && (numbers || dates) && r->columns > 2;
        same += (kind == SNIFF_NUMBER && !dates) || (kind == SNIFF_VALUE && !numbers);
    }
    bool sure, names = sniff_numbers_are_names(r, row, column, &sure);
    if (same == 0) return words > 0 && (contrasts > 0 || values == 0);
    return names && (contrasts > 0 || sure);
}

/* Returns whether a row below a header belongs to it: no number or date, and words above all columns of numbers that it fills. */
static bool sniff_continues_header(const struct sniff_rows *r, size_t row, const struct sniff_column *column)
{
    size_t words = 0, equal = 0;
    for (size_t c = 0; c < r->columns; c++) {
        const struct sniff_cell *cell = sniff_cell(r, row, c), *above = sniff_cell(r, row - 1, c);
        equal += cell->n == above->n && memcmp(cell->text, above->text, cell->n) == 0;
        if (sniff_is_value(cell->kind)) return false;
        words += cell->kind != SNIFF_EMPTY &&
                 (sniff_column_is(&column[c], SNIFF_NUMBER) || sniff_column_is(&column[c], SNIFF_VALUE));
    }
    size_t numeric = 0;
    for (size_t c = 0; c < r->columns; c++)
        numeric += sniff_column_is(&column[c], SNIFF_NUMBER) || sniff_column_is(&column[c], SNIFF_VALUE);
    return equal == r->columns || (words > 0 && 2 * words >= numeric);
}

/* Returns whether the cells of a row are units, as m/s, [kg] or %. */
static bool sniff_is_units(const struct sniff_rows *r, size_t row)
{
    static const char words[] = " m s h g kg mg ug t mm cm km um nm ms us ns min d hr yr mol V mV kV A mA W "
                                "kW MW kWh MWh Wh J kJ MJ N kN Hz kHz MHz GHz K C F "
                                "Pa hPa kPa MPa bar mbar psi ppm ppb deg degC degF rad L l ml mL eur usd EUR "
                                "USD GBP CHF units unit count - in ft mi mph kn lb oz "
                                "rpm dB lx lm px sec kcal cal ";
    size_t filled = 0, units = 0;
    for (size_t c = 0; c < r->columns; c++) {
        const struct sniff_cell *cell = sniff_cell(r, row, c);
        char word[16];
        if (cell->n == 0) continue;
        filled++;
        if (cell->n > 12) continue;
        snprintf(word, sizeof word, " %.*s ", (int)cell->n, cell->text);
        bool bracket = strchr("[(<", word[1]) && strchr("])>", word[cell->n]);
        units += bracket || strpbrk(word, "/%^\xc2\xb0\xb5$") || strstr(words, word);
    }
    return filled > 0 && 2 * units > filled;
}

/* Returns whether a row above a header is a title: only its first cell is filled, or none. */
static bool sniff_is_title(const struct sniff_rows *r, size_t row)
{
    for (size_t c = 0; c < r->columns; c++)
        if (sniff_cell(r, row, c)->n > 0 && (c > 0 || sniff_is_value(sniff_cell(r, row, c)->kind)))
            return false;
    return r->columns > 1;
}

static bool sniff_agrees(const struct sniff_rows *r, size_t row)
{
    return r->row[row].cells == r->columns && !r->row[row].bad;
}

/* Drops rows that begin with a comment character. */
static void sniff_drop_comments(struct sniff_rows *r, char comment)
{
    size_t n = 0, top = r->top;
    for (size_t i = 0; i < r->rows; i++) {
        if (*sniff_cell(r, i, 0)->text == comment && !sniff_cell(r, i, 0)->quoted) top -= i < r->top;
        else r->row[n++] = r->row[i];
    }
    r->rows = n;
    r->top = top;
}

/* Returns '#' if lines that begin with it have other numbers of cells than the rows; '\0' if there is none, or if the last of them
 * is the header. */
static char sniff_comment(const struct sniff_rows *r)
{
    size_t comments = 0, last = r->rows;
    for (size_t i = 0; i < r->rows; i++) {
        const struct sniff_cell *cell = sniff_cell(r, i, 0);
        if (*cell->text != '#' || cell->quoted) continue;
        bool single = r->columns == 1 ? memchr(cell->text, ' ', cell->n) != NULL : cell->n == 1;
        if (sniff_agrees(r, i) && !single) last = i;
        else comments++;
    }
    if (comments == 0) return '\0';
    return last == r->rows || (last + 1 < r->rows && *sniff_cell(r, last + 1, 0)->text == '#') ? '#' : '\0';
}

/* Returns whether the row above rows without a header is a malformed header: its quotes are wrong, or it has words in several cells, or
 * one word per column in a single cell. Reading it will be refused. */
static bool sniff_is_bad_header(const struct sniff_rows *r, size_t row)
{
    const struct sniff_row *w = &r->row[row];
    const struct sniff_cell *cell = &r->cell[w->cell];
    if (w->bad) return true;
    for (uint32_t c = 0; c < w->cells; c++)
        if (sniff_is_value(cell[c].kind)) return false;
    uint32_t words = 1;
    for (uint32_t i = 1; i < cell->n; i++)
        words += strchr(",;\t| ", cell->text[i]) && !strchr(",;\t| ", cell->text[i - 1]);
    return w->cells > 1 || (words == r->columns && words > 2);
}

/* Returns whether the first of several rows is a header of R, which lacks the name of the first column: that column has numbers from
 * 1 or, divided by tabs or blanks, quoted names of rows. */
static bool sniff_lacks_name(const struct sniff_rows *r)
{
    bool lacks = r->top > 3 && r->columns > 2 && r->row[0].cells + 1 == r->columns && sniff_agrees(r, 1);
    for (uint32_t c = 0; c < r->row[0].cells && lacks; c++) lacks = sniff_cell(r, 0, c)->kind == SNIFF_WORD;
    for (size_t i = 1; i < r->top && lacks; i++) {
        const struct sniff_cell *cell = sniff_cell(r, i, 0);
        bool quoted = cell->quoted && strchr("\t ", r->delimiter);
        lacks = sniff_agrees(r, i) && (quoted || sniff_value(cell) == (double)i);
    }
    return lacks;
}

/* Finds preamble, header and units. Returns the first row below them. */
static size_t sniff_first_lines(struct sniff_rows *r, const struct tr_dialect *given,
                                struct sniff_column *column, struct tr_dialect *found)
{
    size_t begin = 0, agree = 0;
    bool finds_header = given->header == TR_DIALECT_COUNT;
    found->header = finds_header ? 0 : given->header;
    if (given->skip_lines != TR_DIALECT_COUNT) {
        while (begin < r->top && r->row[begin].line < given->skip_lines) begin++;
        found->skip_lines = given->skip_lines;
    } else if (!sniff_lacks_name(r)) {
        /* rows that are like the row above them are no preamble, but another table */
        size_t alike = 0;
        for (; begin < r->top && (!sniff_agrees(r, begin) || sniff_is_title(r, begin)); begin++) {
            uint32_t cells = r->row[begin].cells, numbers = 0;
            for (uint32_t c = 0; c < cells; c++) numbers += sniff_is_value(sniff_cell(r, begin, c)->kind);
            bool same = begin > 0 && r->row[begin - 1].cells == cells && !sniff_agrees(r, begin);
            alike += same && (cells > 2 || 2 * numbers > cells);
        }
        for (size_t i = begin; i < r->rows; i++) agree += sniff_agrees(r, i);
        bool few = !sniff_agrees(r, 0) && agree < 3;
        if (2 * agree < r->rows - begin || begin == r->top || alike > 2 || few) begin = 0;
        sniff_columns(r, begin + 1, column);
        if (begin > 0 && finds_header && !sniff_is_header(r, begin, column) &&
            sniff_is_bad_header(r, begin - 1))
            begin--;
        found->skip_lines = begin > 0 ? r->row[begin].line : 0;
    }
    if (begin == r->top) return begin;
    if (!sniff_agrees(r, begin)) {
        found->unnamed = finds_header && begin == 0 && sniff_lacks_name(r);
        if (finds_header) found->header = found->unnamed || sniff_is_bad_header(r, begin);
    } else if (finds_header) {
        sniff_columns(r, begin + tr_min_size(4, (r->rows - begin + 1) / 2), column);
        found->header = sniff_is_header(r, begin, column);
        while (found->header > 0 && found->header < 4) {
            size_t next = begin + found->header;
            if (next + 1 >= r->rows || next >= r->top || !sniff_agrees(r, next) ||
                !sniff_continues_header(r, next, column))
                break;
            found->header++;
        }
        found->units = found->header == 2 && sniff_is_units(r, begin + 1);
        found->header -= found->units;
    }
    size_t body = begin + found->header + found->units;
    sniff_columns(r, body, column);
    return body < r->rows ? body : r->rows;
}

/* ---- notation of numbers ---- */

/* Returns the number of columns with marks in which all numbers are in this notation. *either: the marks of all of them are
 * before three digits. */
static size_t sniff_read_as(const struct sniff_rows *r, size_t from, const struct sniff_column *column,
                            char decimal, char thousands, bool *either)
{
    size_t columns = 0, certain = 0;
    for (size_t c = 0; c < r->columns; c++) {
        size_t marked = 0, sure = 0, large = 0;
        bool fits = column[c].filled > 0 && column[c].of[SNIFF_NUMBER] == column[c].filled;
        for (size_t i = from; i < r->rows && fits; i++) {
            if (!sniff_agrees(r, i)) continue;
            const struct sniff_cell *cell = sniff_cell(r, i, c);
            if (cell->kind != SNIFF_NUMBER) continue;
            fits = (!cell->decimal || cell->decimal == decimal) &&
                   (!cell->thousands || cell->thousands == thousands);
            if (cell->either) fits = cell->decimal == decimal || cell->decimal == thousands;
            marked += cell->decimal || cell->thousands;
            sure += (cell->decimal || cell->thousands) && !cell->either;
            large += cell->large;
        }
        if (fits && marked > 0 && sure == 0 && large > 0 && thousands && decimal == '.') continue;
        columns += fits && marked > 1;
        certain += fits && marked > 1 && sure > 0;
    }
    *either = certain == 0;
    return columns;
}

/* Finds the notation in which the numbers of most columns are. */
static void sniff_notation(const struct sniff_rows *r, size_t from, const struct sniff_column *column,
                           const struct tr_dialect *given, struct tr_dialect *found, bool *either)
{
    static const char notations[][2] = {".", ".,", ",", ",.", ". ", ", ", ".'", ",'"};
    static const char with_semicolons[][2] = {".", ",", ".,", ",.", ". ", ", ", ".'", ",'"};
    size_t most = 0;
    *either = false;
    found->decimal = given->decimal ? given->decimal : '.';
    found->thousands = sniff_chosen(given->thousands, '\0');
    for (size_t k = 0; k < sizeof notations / sizeof *notations; k++) {
        const char *n =
            found->delimiter == ',' || found->delimiter == '\t' ? notations[k] : with_semicolons[k];
        bool open;
        if (given->decimal && given->decimal != n[0]) continue;
        if (given->thousands && sniff_chosen(given->thousands, n[1]) != n[1]) continue;
        size_t columns = sniff_read_as(r, from, column, n[0], n[1], &open);
        if (columns <= most) continue;
        most = columns;
        found->decimal = n[0];
        found->thousands = n[1];
        *either = open && (n[0] == ',' || n[1]);
    }
}

/* Returns the first column in which all values are numbers with the same mark, as $5 or 5 %, or r->columns. *cell: one of them. */
static size_t sniff_marked_column(const struct sniff_rows *r, size_t from, const struct sniff_column *column,
                                  const struct sniff_cell **cell)
{
    for (size_t c = 0; c < r->columns; c++) {
        bool same = column[c].filled > 1 && column[c].of[SNIFF_VALUE] == column[c].filled;
        *cell = NULL;
        for (size_t i = from; i < r->rows && same; i++) {
            const struct sniff_cell *now = sniff_agrees(r, i) ? sniff_cell(r, i, c) : NULL;
            if (!now || now->kind == SNIFF_EMPTY) continue;
            same = now->mark && (!*cell || now->mark == (*cell)->mark);
            *cell = now;
        }
        if (same) return c;
    }
    return r->columns;
}

/* ---- the decision ---- */

static const char *sniff_word(char c, char room[8])
{
    if (c == '\t') return "tabs";
    if (c == ' ') return "blanks";
    if (c == TR_SEPARATOR_COLONS) return "'::'";
    snprintf(room, 8, (unsigned char)c < ' ' ? "'\\x%02x'" : "'%c'", c);
    return room;
}

/* Appends a part of the line for the user. */
static __attribute__((format(printf, 2, 3))) void sniff_say(char said[200], const char *format, ...)
{
    size_t n = strlen(said);
    if (n > 0) n += (size_t)snprintf(said + n, 200 - n, ", ");
    if (n >= 199) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said + n, 200 - n, format, arguments);
    va_end(arguments);
}

/* Describes the parts of a dialect that are unusual, with their keys. */
static void sniff_say_all(const struct tr_dialect *d, bool named_by_numbers, bool either, char said[200])
{
    static const char *const encodings[] = {"", "", "Windows-1252", "UTF-16", "UTF-16"};
    char room[8];
    if (d->encoding > TR_UTF8) sniff_say(said, "text in %s (data.encoding)", encodings[d->encoding]);
    if (d->cr) sniff_say(said, "lines end with CR");
    if (!strchr(",;\t :", d->delimiter))
        sniff_say(said, "fields divided by %s (data.delimiter)", sniff_word(d->delimiter, room));
    if (d->quote == '\'') sniff_say(said, "quotes are ' (data.quote)");
    if (!d->quote) sniff_say(said, "\" is text (data.quote)");
    if (d->escape) sniff_say(said, "%c before a quote (data.escape)", d->escape);
    if (d->comment) sniff_say(said, "comments begin with %c (data.comment)", d->comment);
    if (d->skip_lines > 0)
        sniff_say(said, "%u line%s above the header (data.skip_lines)", (unsigned)d->skip_lines,
                  d->skip_lines > 1 ? "s" : "");
    if (d->unnamed) sniff_say(said, "the first column has no name (data.header)");
    else if (d->header > 1) sniff_say(said, "%u lines of names (data.header)", (unsigned)d->header);
    else if (named_by_numbers) sniff_say(said, "the first line has names (data.header)");
    if (d->units) sniff_say(said, "a line of units below the names");
    if (d->decimal == ',') sniff_say(said, "decimal comma%s (data.decimal)", either ? ", or thousands" : "");
    if (d->thousands)
        sniff_say(said, "%s between thousands%s (data.thousands)", sniff_word(d->thousands, room),
                  either ? ", or decimal mark" : "");
}

/* Says how to read a column of words that are numbers with a mark. */
static void sniff_say_marks(const struct sniff_rows *r, size_t body, const struct sniff_column *column,
                            const struct tr_dialect *d, char said[200])
{
    const struct sniff_cell *cell;
    size_t c = sniff_marked_column(r, body, column, &cell), row = body - 1 - d->units;
    char name[48], mark[16] = "%";
    if (c == r->columns) return;
    snprintf(name, sizeof name, "%zu", c + 1);
    bool named = d->header == 1 && sniff_agrees(r, row) && sniff_cell(r, row, c)->n > 0;
    if (named) tr_escape(name, sizeof name, sniff_cell(r, row, c)->text, sniff_cell(r, row, c)->n);
    const char *begin = cell->text + (*cell->text == '-');
    if (cell->mark != SNIFF_PERCENT) tr_escape(mark, sizeof mark, begin, cell->mark);
    sniff_say(said,
              "column %s has numbers with %s, which data.columns='{%s: {type: number, strip: \"%s\"}}' reads",
              name, mark, name, mark);
}

static void sniff_rows_free(struct sniff_rows *r)
{
    free(r->row);
    free(r->cell);
}

static void sniff_text_free(struct sniff_text *text)
{
    free(text->begin);
}

/* Bytes of the sample that are divided, and the pieces into which a single piece with more bytes is cut. */
enum { SNIFF_ENOUGH = 256 << 10, SNIFF_PIECES = 8 };

int tr_dialect_sniff(const struct tr_sample_text *piece, size_t pieces, const struct tr_dialect *given,
                     struct tr_dialect *found, char said[200])
{
    TR_CLOSED_BY(sniff_text_free) struct sniff_text text = {.n = 0};
    TR_CLOSED_BY(sniff_rows_free) struct sniff_rows best = {.score = -1}, now = {.score = -1};
    *said = '\0';
    *found = (struct tr_dialect){.encoding = given->encoding ? given->encoding : TR_UTF8,
                                 .delimiter = given->delimiter ? given->delimiter : ',',
                                 .quote = sniff_chosen(given->quote, '"'),
                                 .escape = sniff_chosen(given->escape, '\0'),
                                 .comment = sniff_chosen(given->comment, '\0'),
                                 .decimal = given->decimal ? given->decimal : '.',
                                 .thousands = sniff_chosen(given->thousands, '\0'),
                                 .skip_lines = given->skip_lines == TR_DIALECT_COUNT ? 0 : given->skip_lines,
                                 .header = given->header == TR_DIALECT_COUNT ? 0 : given->header};
    if (pieces == 0) return TR_OK;
    if (!given->encoding) found->encoding = sniff_encoding(piece, pieces);
    found->cr = sniff_ends_with_cr(piece, pieces);
    struct tr_sample_text part[SNIFF_PIECES];
    size_t first = 0;
    bool whole = pieces == 1 && piece->n < (1 << 20);
    if (pieces == 1 && piece->n > SNIFF_ENOUGH) {
        pieces = SNIFF_PIECES;
        for (size_t i = 0; i < pieces; i++) {
            size_t at = (piece->n - SNIFF_ENOUGH / pieces) / (pieces - 1) * i / 4 * 4;
            part[i] = (struct tr_sample_text){piece->text + at, SNIFF_ENOUGH / pieces, i == 0};
        }
        piece = part;
        whole = false;
    }
    for (size_t i = 0; i < pieces; i++) {
        struct tr_sample_text p = piece[i];
        p.n = tr_min_size(p.n, SNIFF_ENOUGH / pieces);
        TR_TRY(sniff_add_piece(&text, &p, whole, found->encoding, found->cr));
        if (i == 0) first = text.n;
    }
    double second;
    char rival = '\0', a[8], b[8];
    TR_TRY(sniff_candidates(&text, first, given, &best, &now, &second, &rival));
    found->delimiter = best.delimiter;
    found->quote = best.quote;
    found->escape = best.escape;
    found->newlines = best.newlines;
    if (best.rows == 0) { /* only empty lines: the first ones with text decide */
        found->delimiter = given->delimiter;
        found->header = given->header;
        return TR_OK;
    }
    if (!given->comment) found->comment = sniff_comment(&best);
    if (found->comment) sniff_drop_comments(&best, found->comment);
    TR_FREED struct sniff_column *column = NULL;
    TR_TRY(TR_NEW(&column, best.columns + 1));
    size_t body = sniff_first_lines(&best, given, column, found);
    bool either, numbered = false;
    sniff_notation(&best, body, column, given, found, &either);
    const struct sniff_row *names = &best.row[body > 0 ? body - 1 - found->units : 0];
    for (uint32_t c = 0; found->header == 1 && given->header == TR_DIALECT_COUNT && c < names->cells; c++)
        numbered |= sniff_is_value(best.cell[names->cell + c].kind);
    if (memchr(text.begin, '\0', text.n)) return TR_OK; /* no text: reading it will be refused */
    sniff_say_all(found, numbered, either, said);
    if (!given->forms) sniff_say_marks(&best, body, column, found, said);
    bool blanks = best.delimiter == '\t' && rival == TR_SEPARATOR_BLANKS;
    if (best.columns > 1 && best.rows > 3 && second > 0.9 * best.score && !given->delimiter && !blanks)
        sniff_say(said, "%s divide nearly as well as %s (data.delimiter)", sniff_word(rival, a),
                  sniff_word(found->delimiter, b));
    return TR_OK;
}

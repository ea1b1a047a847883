/* Tables: text with fields separated by commas, semicolons, tabs or blanks, with or without a header.
 *
 * Fields may have blanks around them and be in quotes, where separators are text and "" is a quote. Empty lines, CRLF and a last
 * line without newline are accepted. Every row has the same number of fields as the first one of its file. Numbers are decimal and
 * in the range of float.
 */
#include <math.h>
#include <stdlib.h>

#include "data/dialect.h"
#include "data/reader.h"

/* ---- detection and head, also of ratings ---- */

enum content { NOTHING, NUMBER, WORD };

struct table_fields {
    /* n: number of fields; of[c]: number of fields with content c (enum) */
    uint64_t n, of[3];
    bool third_is_word, third_is_number, is_text[2]; /* is_text: field 0, 1 is no whole number */
    bool last_is_word;
    const char *last; /* address of the first byte of the last field */
};

static struct table_fields table_look_at_fields(const char *p, char separator)
{
    struct table_fields f = {.n = 1};
    const char *field = p;
    for (bool quoted = false;; p++) {
        const char *next = p, *begin = field, *end = p;
        bool ends = *p == '\n';
        if (ends || quoted || tr_at_line_end(p) || !tr_token_ends(p, separator) ||
            !tr_next_any_field(&next, separator))
            next = NULL;
        if (*p == '"') { /* a quote begins a quoted field, or ends it unless it is doubled */
            if (quoted && p[1] == '"') p++;
            else quoted = !quoted && tr_skip_blanks(field) == p;
        }
        if (!next && !ends) continue;
        while (begin < end && (tr_is_blank(*begin) || *begin == '"')) begin++;
        while (begin < end && (tr_is_blank(end[-1]) || end[-1] == '"' || end[-1] == '\r')) end--;
        enum content content = begin == end ? NOTHING : NUMBER;
        float value;
        uint64_t number;
        if (begin < end && tr_read_float(begin, &value) != end) {
            const char *word = begin + (*begin == '-' || *begin == '+');
            if (end - word != 3 || !tr_token_is_special(word)) content = WORD;
        }
        f.of[content]++;
        if (f.n <= 2) f.is_text[f.n - 1] = !tr_id_number(begin, (size_t)(end - begin), &number);
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

/* Finds the dialect of the first lines. */
static int table_sniff(const char *p, const char *end, struct tr_dialect *found)
{
    const struct tr_dialect given = {.skip_lines = TR_DIALECT_COUNT, .header = TR_DIALECT_COUNT};
    struct tr_sample_text text = {p, (size_t)(end - p), true};
    char said[200];
    return tr_dialect_sniff(&text, 1, &given, found, said);
}

/* Returns whether the first two lines below a preamble may be a table: one of them has at least two fields, of which one is a number;
 * or both have the same number of fields, not separated by blanks; or there is only one line with such separators. */
static bool csv_sniff(const char *p, const char *end)
{
    uint64_t before = 0;
    int line = 0;
    bool divided = false;
    struct tr_dialect dialect;
    if (table_sniff(p, end, &dialect) != TR_OK) return false;
    for (uint32_t i = 0; i < dialect.skip_lines && p < end; i++) p = tr_behind_line(p, end);
    for (p = tr_next_text(p, end); line < 2 && p; line++, p = tr_next_text(tr_behind_line(p, end), end)) {
        struct table_fields f = table_look_at_fields(p, dialect.delimiter);
        divided = f.n > 1 && dialect.delimiter != TR_SEPARATOR_BLANKS;
        if (f.n > 1 && (f.of[NUMBER] > 0 || (f.n == before && divided))) return true;
        before = f.n;
    }
    return line == 1 && divided;
}

/* The distinct whole numbers of a column, to guess whether it has labels. */
enum { MOST_KINDS = 20 };
struct table_kinds {
    float value[MOST_KINDS];
    int n; /* number of values; MOST_KINDS + 1: there are more, or some are not whole */
};

static void table_add_kind(struct table_kinds *k, const char *p)
{
    float x;
    while (tr_is_blank(*p) || *p == '"') p++;
    bool number = tr_read_float(p, &x);
    for (int i = 0; number && i < k->n && k->n <= MOST_KINDS; i++)
        if (k->value[i] == x) return;
    if (!number || x != rintf(x) || k->n >= MOST_KINDS) k->n = MOST_KINDS + 1;
    else k->value[k->n++] = x;
}

/* Returns the begin of the line in which tr_next_text() has found p. With tabs as separators, leading blanks belong to the line: a
 * tab may end an empty first field. */
static const char *table_line_begin(const char *p, const char *begin, char separator)
{
    while (p && separator == '\t' && p > begin && tr_is_blank(p[-1])) p--;
    return p;
}

int tr_table_head(const struct tr_first_lines *first, bool rates, int header, struct tr_head *head)
{
    const char *begin = first->text, *end = first->end, *p = tr_next_text(begin, end);
    struct tr_dialect dialect = {.delimiter = first->separator};
    if (!p) return TR_OK;
    if (!first->separator) TR_TRY(table_sniff(begin, end, &dialect));
    head->separator = dialect.delimiter;
    p = table_line_begin(p, begin, head->separator);
    struct table_fields f = table_look_at_fields(p, head->separator);
    bool names = dialect.header > 0 && (!rates || f.third_is_word);
    if (header == TR_HEADER_YES || (header == TR_HEADER_AUTO && names)) {
        head->header = true;
        head->fields = f.n;
        p = tr_behind_line(p, end);
        head->begin = first->offset + (uint64_t)(p - first->begin);
        if ((p = table_line_begin(tr_next_text(p, end), begin, head->separator)))
            f = table_look_at_fields(p, head->separator);
    }
    /* a malformed first row does not decide how many fields there are */
    bool agrees = false;
    for (const char *q = p; q && head->header && !agrees; q = tr_next_text(tr_behind_line(q, end), end))
        agrees = table_look_at_fields(q, head->separator).n == head->fields;
    if (!agrees) head->fields = f.n;
    head->text_rows = rates && f.third_is_number && f.is_text[0];
    head->text_columns = rates && f.third_is_number && f.is_text[1];
    if (rates) return TR_OK;
    /* the last column is the label if it has words; otherwise the first or the last, whichever has fewer distinct numbers */
    struct table_kinds of_first = {.n = 0}, of_last = {.n = 0};
    for (; p && !(f = table_look_at_fields(p, head->separator)).last_is_word;
         p = tr_next_text(tr_behind_line(p, end), end)) {
        table_add_kind(&of_first, p);
        table_add_kind(&of_last, f.last);
    }
    head->label = !p && of_first.n < of_last.n ? TR_LABEL_FIRST : TR_LABEL_LAST;
    return TR_OK;
}

static int csv_head(const struct tr_first_lines *first, int header, struct tr_head *head)
{
    return tr_table_head(first, false, header, head);
}

size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label)
{
    uint64_t fields = heads[tr_heads_first(heads, files->n)].fields;
    return fields > 0 ? (size_t)fields - (label != TR_LABEL_NONE) : 0;
}

/* ---- a number that is not in its usual form ---- */

static const char not_a_number[] = "is not a number";

/* Notes the error of a field. problem: NULL if the field is empty. */
static const char *csv_bad_field(struct tr_reader *r, size_t field, const char *token, const char *problem)
{
    const struct tr_schema *s = r->options->schema;
    char quoted[TR_TOKEN_ROOM], name[TR_SHOWN_NAME];
    if (s) tr_schema_column_text(s, r->options->bindings->binding[r->head->binding].column[field], name);
    else snprintf(name, sizeof name, "%zu", field + 1);
    if (!problem) return tr_reader_bad(r, NULL, ' ', "column %s: is empty, expected a number", name);
    tr_token_quote(token, r->head->separator, quoted);
    return tr_reader_bad(r, NULL, ' ', "column %s: '%s' %s", name, quoted, problem);
}

/* Reads a field of a number column that csv_parse_fields() cannot read: a number with blanks or quotes around it, a missing number,
 * or a word. Returns its end, or NULL if it is malformed. */
static __attribute__((noinline)) const char *csv_parse_odd_field(struct tr_reader *r, const char *p,
                                                                 size_t field, float *value)
{
    const struct tr_reader_options *o = r->options;
    const struct tr_schema *s = o->schema;
    char separator = r->head->separator;
    while (tr_is_padding(*p, separator)) p++;
    bool quoted = *p == '"';
    const char *text = quoted ? tr_skip_blanks(p + 1) : p;
    const char *end = tr_read_float(text, value), *behind = end;
    if (behind && quoted) {
        behind = tr_skip_blanks(behind);
        if (*behind++ != '"') behind = NULL;
    }
    while (behind && tr_is_padding(*behind, separator)) behind++;
    if (behind && isfinite(*value) && tr_token_ends(behind, separator)) return behind;

    const char *problem = not_a_number;
    if (quoted && *text == '"') problem = NULL;
    else if (tr_token_is_binary(text, separator))
        problem = "found bytes that are not text, expected a number";
    else if (tr_token_ends(text, separator)) problem = NULL;
    else if (tr_token_is_special(text)) problem = "is not finite, expected an ordinary number";
    else if (end && (tr_token_ends(end, separator) || *end == '"') && !isfinite(*value))
        problem = "is too large for a 32-bit float";
    struct tr_field f;
    const char *wrong = s ? tr_read_field(p, separator, &f) : NULL;
    if (!s || wrong) return csv_bad_field(r, field, p, wrong ? wrong : problem);
    size_t c = o->bindings->binding[r->head->binding].column[field];
    struct tr_column_seen *seen = o->seen ? &o->seen[c] : NULL;
    *value = NAN;
    if (tr_schema_is_missing(s, f.text, f.n, false)) {
        if (seen) seen->missing = true;
        return f.end;
    }
    size_t n;
    const char *column_name = tr_ids_text(&s->names, c, &n);
    if (problem == not_a_number && s->named && n == f.n && memcmp(column_name, f.text, n) == 0)
        problem = "is the name of the column: the line is a second header";
    bool may_be_word = seen && !o->settled && !s->column[c].fixed && !o->skip_errors;
    if (problem != not_a_number || !may_be_word) return csv_bad_field(r, field, p, problem);
    if (!seen->word) {
        seen->word = true;
        seen->place = (struct tr_file_place){r->file, r->offset};
        tr_token_quote(p, separator, seen->text);
    }
    *value = 0;
    return f.end;
}

static const char *csv_bad_count(struct tr_reader *r, size_t found, bool more)
{
    bool blanks = r->head->separator == TR_SEPARATOR_BLANKS;
    return tr_reader_bad(
        r, NULL, ' ', TR_BAD_COUNT "%s", more ? "more than " : "", found, found == 1 ? "" : "s", r->fields,
        blanks ? "; lists of indices need values, as in 1 5:1 7:1 (data.format: libsvm)" : "");
}

/* ---- a line of numbers ---- */

/* Parses the fields of a line. Returns the end of the line. Most time is spent here. */
static inline const char *csv_parse_fields(struct tr_reader *r, const char *p, size_t labelled, float *label,
                                           float *value)
{
    char separator = r->head->separator;
    size_t n = r->fields;
    for (size_t k = 0;; k++) {
        float *to = k == labelled ? label : value;
        const char *end = tr_read_float(p, to);
        if (!end || (*end != separator && *end != '\n') || !isfinite(*to)) {
            end = csv_parse_odd_field(r, p, k, to);
            if (!end) return NULL;
        }
        value += k != labelled;
        p = end;
        bool more = tr_next_field(&p, separator);
        if (more && k + 1 < n) continue;
        if (!more && k + 1 == n) return p;
        return csv_bad_count(r, k + 1, more);
    }
}

const char *tr_csv_end_row(struct tr_reader *r, const char *end, float label)
{
    if (r->matrix.label && isnan(label) && r->options->schema && !r->options->rows_without_label) {
        r->report.unlabelled++;
        return end;
    }
    r->status = tr_reader_end_row(r, label);
    return r->status == TR_OK ? end : NULL;
}

static const char *csv_parse_numbers(struct tr_reader *r, const char *p)
{
    struct tr_matrix *m = &r->matrix;
    float label = NAN;
    const char *end = csv_parse_fields(r, p, r->labelled, &label, m->value + m->rows * m->columns);
    if (end && tr_label_is_long(label) && r->bound && r->options->seen) {
        struct tr_field f;
        for (size_t k = 0; k < r->labelled && !tr_read_field(p, r->head->separator, &f); k++) {
            p = f.end;
            (void)tr_next_field(&p, r->head->separator);
        }
        tr_reader_note_long_label(r, p, r->head->separator);
    }
    return end ? tr_csv_end_row(r, end, label) : NULL;
}

/* ---- a line of any columns ---- */

int tr_csv_find_value(struct tr_reader *r, size_t column, const char *text, size_t n, uint32_t *place)
{
    const struct tr_reader_options *o = r->options;
    const struct tr_schema *s = o->schema;
    char room[TR_VALUE_ROOM];
    bool label = s->column[column].type == TR_COLUMN_NAMED_LABEL;
    text = tr_value_text(text, &n, room);
    *place = TR_NO_VALUE;
    if (label && n == 0) return TR_OK;
    if (label && s->positive) {
        *place = strlen(s->positive) == n && memcmp(s->positive, text, n) == 0;
    } else if (label && (s->labels.n > 0 || !o->seen)) {
        *place = tr_ids_find_text(&s->labels, text, n);
        /* a label that no training row has is an additional class */
        if (*place == TR_NO_VALUE) *place = (uint32_t)s->labels.n;
    } else if (!label && s->hash > 0) {
        *place = (uint32_t)(tr_mix(tr_text_hash(text, n) ^ s->column[column].seed) % s->hash);
    } else if (!label && s->values) {
        *place = tr_ids_find_text(&s->values[column], text, n);
    } else {
        return tr_ids_add_text(&o->seen[column].values, text, n, place);
    }
    return TR_OK;
}

/* Looks up the pending values, and stores their places in the rows. Malformed rows may have left some: the next row, which uses the
 * same memory, comes later in the list and overwrites them. */
static int csv_find_pending(struct tr_reader *r)
{
    uint32_t place;
    for (size_t i = 0; i < r->pendings; i++) {
        const struct tr_pending *p = &r->pending[i];
        TR_TRY(tr_ids_add_hashed(&r->options->seen[p->column].values, p->text, p->length, p->hash, &place));
        *p->to = tr_slot_of_place(place);
    }
    r->pendings = 0;
    return TR_OK;
}

/* Reads a field of a column that is not of numbers. Returns its end, or NULL if it is malformed. */
static const char *csv_parse_value(struct tr_reader *r, const char *p, size_t field, float *to)
{
    const struct tr_bound *b = &r->bound[field];
    const struct tr_schema *s = r->options->schema;
    struct tr_field f;
    char room[TR_VALUE_ROOM];
    uint32_t place;
    const char *wrong = tr_read_field(p, r->head->separator, &f);
    bool label = b->type == TR_COLUMN_NAMED_LABEL;
    if (wrong) return csv_bad_field(r, field, p, wrong);
    if (b->type > TR_COLUMN_NAMED_LABEL) return f.end;
    if (f.n > (label ? (size_t)TR_NAME_LONGEST : (size_t)TR_VALUE_LONGEST)) {
        snprintf(room, sizeof room, "has %zu bytes, expected at most %d", f.n,
                 label ? TR_NAME_LONGEST : TR_VALUE_LONGEST);
        return csv_bad_field(r, field, p, room);
    }
    const char *text = f.text;
    size_t n = f.n;
    if (!label && !f.doubled && s->hash == 0 && !s->values && tr_value_text(text, &n, room) == text) {
        /* hash tables do not fit into the cache: this prefetches a slot, and csv_find_pending() uses it later */
        n = tr_schema_is_missing(s, text, f.n, f.quoted) ? 0 : f.n;
        uint64_t hash = tr_text_hash(text, n);
        if (r->pendings == TR_PENDING && (r->status = csv_find_pending(r)) != TR_OK) return NULL;
        r->pending[r->pendings++] = (struct tr_pending){hash, text, (uint32_t)n, b->column, to};
        tr_ids_fetch(&r->options->seen[b->column].values, hash);
        return f.end;
    }
    r->status = label ? TR_OK : csv_find_pending(r);
    n = f.n;
    if (r->status == TR_OK && f.doubled) {
        r->status = TR_GROW(&r->scratch, &r->scratch_capacity, n);
        if (r->status == TR_OK) n = tr_field_copy(&f, r->scratch);
        text = r->scratch;
    }
    if (r->status != TR_OK) return NULL;
    bool missing = tr_schema_is_missing(s, text, n, f.quoted && !label);
    r->status = tr_csv_find_value(r, b->column, text, missing ? 0 : n, &place);
    if (r->status != TR_OK) return NULL;
    if (!label) *to = tr_slot_of_place(place);
    else if (place != TR_NO_VALUE) *to = (float)place;
    return f.end;
}

const char *tr_csv_cross_values(struct tr_reader *r, size_t column, const struct tr_cross *cross,
                                const struct tr_field *part, float *to)
{
    size_t n = 0;
    uint32_t place;
    for (size_t k = 0; k < cross->n; k++) {
        char room[TR_VALUE_ROOM];
        size_t bytes = part[k].n;
        const char *text = tr_value_text(part[k].text, &bytes, room);
        bool missing = tr_schema_is_missing(r->options->schema, text, bytes, part[k].quoted);
        r->status = TR_GROW(&r->scratch, &r->scratch_capacity, n + 2 * bytes + 2);
        if (r->status != TR_OK) return NULL;
        if (k > 0) r->scratch[n++] = '*';
        for (size_t i = 0; i < bytes && !missing; i++) {
            char c = text[i];
            if (c == '*' || c == '\\') r->scratch[n++] = '\\';
            r->scratch[n++] = c;
            i += part[k].doubled && c == '"';
        }
    }
    if (n > TR_VALUE_LONGEST)
        return tr_reader_bad(r, NULL, ' ', "a crossed value has %zu bytes, expected at most %d", n,
                             TR_VALUE_LONGEST);
    r->status = tr_csv_find_value(r, column, r->scratch, n, &place);
    if (r->status != TR_OK) return NULL;
    *to = tr_slot_of_place(place);
    return r->scratch;
}

/* Completes a row whose fields are parsed: adds its crossed values and the text of its identifier. */
static const char *csv_end_any(struct tr_reader *r, const char *end, float label, float *row)
{
    const struct tr_schema *s = r->options->schema;
    for (size_t i = 0; i < s->crosses; i++) {
        const struct tr_cross *cross = &s->cross[i];
        struct tr_field part[TR_CROSS_MOST];
        size_t column = tr_schema_fields(s) + i;
        for (size_t k = 0; k < cross->n; k++)
            (void)tr_read_field(r->at[cross->column[k]], r->head->separator, &part[k]); /* was read before */
        if (!tr_csv_cross_values(r, column, cross, part, &row[s->column[column].slot])) return NULL;
    }
    if (r->options->id) {
        struct tr_field f;
        (void)tr_read_field(r->at[r->id_column], r->head->separator, &f); /* was read before */
        r->status = TR_GROW(&r->scratch, &r->scratch_capacity, f.n);
        if (r->status == TR_OK)
            r->status = tr_reader_add_id(r, r->matrix.rows, r->scratch, tr_field_copy(&f, r->scratch));
        if (r->status != TR_OK) return NULL;
    }
    return tr_csv_end_row(r, end, label);
}

void tr_csv_miss_number(struct tr_reader *r, size_t column, float *to)
{
    *to = NAN;
    if (r->options->seen) r->options->seen[column].missing = true;
}

static const char *csv_parse_any(struct tr_reader *r, const char *p)
{
    const struct tr_schema *s = r->options->schema;
    struct tr_matrix *m = &r->matrix;
    float label = NAN, *row = m->value + m->rows * m->columns;
    float *extras[TR_EXTRAS];
    char separator = r->head->separator;
    tr_reader_begin_extras(r, extras);
    for (size_t k = 0, n = r->fields;; k++) {
        const struct tr_bound *b = &r->bound[k];
        if (r->at) r->at[b->column] = p;
        bool is_label = b->type == TR_COLUMN_LABEL || b->type == TR_COLUMN_NAMED_LABEL;
        enum tr_extra extra = tr_column_extra(b->type);
        float *to = is_label ? &label : extra < TR_EXTRAS ? extras[extra] : row + b->slot;
        if (b->type == TR_COLUMN_NUMBER || b->type == TR_COLUMN_LABEL || extra < TR_EXTRAS) {
            const char *end = tr_read_float(p, to);
            if (!end || (*end != separator && *end != '\n') || !isfinite(*to))
                end = csv_parse_odd_field(r, p, k, to);
            if (end && is_label && tr_label_is_long(*to)) tr_reader_note_long_label(r, p, separator);
            if (s->missing_numbers > 0 && tr_schema_is_missing_number(s, *to))
                tr_csv_miss_number(r, b->column, to);
            if (end && extra < TR_EXTRAS && !tr_extra_takes(extra, *to))
                end = csv_bad_field(r, k, p, tr_extra_kinds[extra].bad);
            p = end;
        } else {
            p = csv_parse_value(r, p, k, to);
        }
        if (!p) return NULL;
        bool more = tr_next_field(&p, separator);
        if (more && k + 1 < n) continue;
        if (!more && k + 1 == n) return csv_end_any(r, p, label, row);
        return csv_bad_count(r, k + 1, more);
    }
}

/* ---- marks: groups, times and labels ---- */

uint64_t tr_csv_label_mark(const struct tr_schema *s, const char *text, size_t n)
{
    char room[TR_VALUE_ROOM];
    if (tr_schema_is_missing(s, text, n, false)) return 0;
    if (!s->positive) return tr_split_text_mark(text, n);
    text = tr_value_text(text, &n, room);
    return tr_split_number_mark(strlen(s->positive) == n && memcmp(s->positive, text, n) == 0);
}

/* Reads the field of data.group or data.time, or the label. Rows without a group are one group. */
static bool csv_mark(struct tr_reader *r, const char *p)
{
    const struct tr_reader_options *o = r->options;
    char separator = r->head->separator, room[TR_VALUE_ROOM];
    struct tr_field f;
    for (size_t k = 0;; k++) {
        const char *wrong = tr_read_field(p, separator, &f);
        if (wrong) return csv_bad_field(r, k, p, wrong) != NULL;
        if (k == r->mark_field) break;
        p = f.end;
        if (!tr_next_field(&p, separator)) return csv_bad_count(r, k + 1, false) != NULL;
    }
    size_t n = f.n;
    bool missing = tr_schema_is_missing(o->schema, f.text, f.n, false);
    if (o->split.by == TR_SPLIT_TIME) {
        const char *problem = tr_split_read_time(f.text, missing ? 0 : f.n, &r->mark);
        return !problem || csv_bad_field(r, r->mark_field, p, problem) != NULL;
    }
    if (f.doubled) {
        r->status = TR_GROW(&r->scratch, &r->scratch_capacity, n);
        if (r->status != TR_OK) return false;
        n = tr_field_copy(&f, r->scratch);
        f.text = r->scratch;
    }
    const char *text = tr_value_text(f.text, &n, room);
    r->mark = o->split.by == TR_SPLIT_LABEL ? tr_csv_label_mark(o->schema, f.text, n)
                                            : tr_text_hash(text, missing ? 0 : n);
    return true;
}

/* ---- reading ---- */

static int csv_open(struct tr_reader *r)
{
    const struct tr_reader_options *o = r->options;
    r->matrix.columns = o->schema ? o->schema->slots : tr_csv_columns(r->files, o->heads, o->label);
    if (o->schema) return TR_OK;
    r->fields = r->matrix.columns + (o->label != TR_LABEL_NONE);
    r->labelled = o->label == TR_LABEL_FIRST ? 0 : o->label == TR_LABEL_LAST ? r->fields - 1 : r->fields;
    return TR_OK;
}

/* Finds the columns of the fields of a file. A plain file has only numbers, in the order of the schema, and possibly a label. */
static int csv_enter(struct tr_reader *r)
{
    const struct tr_reader_options *o = r->options;
    const struct tr_schema *s = o->schema;
    if (!s || o->bindings->n == 0) return TR_OK;
    const struct tr_binding *binding = &o->bindings->binding[r->head->binding];
    bool plain = s->crosses == 0 && !o->id && s->missing_numbers == 0, has_id = false;
    for (int e = 0; e < TR_EXTRAS; e++) plain = plain && !o->extra[e];
    size_t slot = 0, columns = r->at ? s->n + 1 : 0;
    if (!plain) TR_TRY(TR_GROW(&r->at, &columns, s->n + 1));
    if (o->id) r->id_column = tr_schema_find(s, o->id);
    r->fields = r->labelled = binding->fields;
    TR_TRY(TR_GROW(&r->bound, &r->bound_capacity, r->fields));
    for (size_t k = 0; k < r->fields; k++) {
        uint32_t column = binding->column[k];
        if (column == s->n) { /* the training data do not have this column */
            r->bound[k] = (struct tr_bound){.type = TR_COLUMN_IGNORE, .column = column};
            plain = false;
            continue;
        }
        const struct tr_column *c = &s->column[column];
        r->bound[k] = (struct tr_bound){.type = c->type, .slot = c->slot, .column = column};
        enum tr_extra extra = tr_column_extra(c->type);
        if (extra < TR_EXTRAS && !o->extra[extra]) r->bound[k].type = TR_COLUMN_IGNORE;
        if (c->type == TR_COLUMN_LABEL) r->labelled = k;
        else plain = plain && c->type == TR_COLUMN_NUMBER && c->slot == slot++;
        has_id = has_id || column == r->id_column;
    }
    r->any = !plain;
    r->mark_field = 0;
    while (o->split.by >= TR_SPLIT_GROUP && r->mark_field < r->fields &&
           binding->column[r->mark_field] != o->split.column)
        r->mark_field++;
    if (r->mark_field == r->fields) {
        char name[TR_SHOWN_NAME];
        tr_schema_column_text(s, o->split.column, name);
        return tr_fail(TR_ERR_DATA, "%s: there is no column %s, which %s needs", r->files->file[r->file].path,
                       name, o->split.by == TR_SPLIT_TIME ? "data.time" : "data.group");
    }
    if (!o->id || (has_id && r->id_column < tr_schema_fields(s))) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: the model has no column %s for --id", r->files->file[r->file].path,
                   o->id);
}

int tr_csv_make_room(struct tr_reader *r, size_t more)
{
    const struct tr_reader_options *o = r->options;
    struct tr_matrix *m = &r->matrix;
    size_t rows = m->rows + more;
    bool labels =
        o->schema ? o->bindings->n > 0 && o->bindings->binding[0].labelled : o->label != TR_LABEL_NONE;
    TR_TRY(TR_GROW(&m->value, &r->value_capacity, rows * m->columns));
    for (int e = 0; e < TR_EXTRAS; e++)
        if (o->extra[e]) TR_TRY(TR_GROW(&r->extra[e], &r->extra_capacity[e], (size_t)r->report.rows + rows));
    return labels ? TR_GROW(&m->label, &r->label_capacity, rows) : TR_OK;
}

/* A field takes at least one byte, its separator, since it may be empty. One more row may be unfinished. */
static int csv_room(struct tr_reader *r, size_t bytes)
{
    return tr_csv_make_room(r, bytes / (r->fields ? r->fields : 1) + 2);
}

static int csv_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    TR_TRY(r->any ? tr_each_line(r, lines, csv_parse_any) : tr_each_line(r, lines, csv_parse_numbers));
    return csv_find_pending(r);
}

const struct tr_text_format tr_csv_format = {.sniff = csv_sniff,
                                             .head = csv_head,
                                             .open = csv_open,
                                             .enter = csv_enter,
                                             .room = csv_room,
                                             .lines = csv_lines,
                                             .mark = csv_mark};

/* Tables: text whose fields are separated by commas, semicolons, tabs or blanks, with a header or without. Those of numbers are
 * read at the speed of memory.
 *
 * Fields may have blanks around them and stand in quotes, where separators are text and "" is a quote; empty lines, CRLF and a
 * last line without newline are fine. Every row has as many fields as the first of its file. Numbers are decimal, in the range of
 * float.
 */
#define _GNU_SOURCE
#include <math.h>

#include "data/number.h"
#include "data/reader.h"
#include "data/value.h"

static const char weight_problem[] = "is no weight of a row, expected a number, 0 or more";

/* ---- what is wrong ---- */

static const char *field_problem(const char *p, const char *end, float value, char separator)
{
    if (tr_token_is_binary(p, separator)) return "found bytes that are not text, expected a number";
    if (tr_token_ends(p, separator)) return NULL;
    if (tr_token_is_special(p)) return "is not finite, expected an ordinary number";
    if (end && (tr_token_ends(end, separator) || *end == '"') && !isfinite(value))
        return "is too large for a 32-bit float";
    return "is not a number";
}

static size_t column_of(const struct tr_reader *r, size_t field)
{
    const struct tr_schema *s = r->options->schema;
    return s ? r->options->bindings->binding[r->head->binding].column[field] : field;
}

/* problem: NULL for an empty field. */
static const char *bad_field(struct tr_reader *r, size_t field, const char *token, const char *problem)
{
    char quoted[TR_TOKEN_ROOM], name[TR_SHOWN_NAME];
    if (r->options->schema) tr_schema_column_text(r->options->schema, column_of(r, field), name);
    else snprintf(name, sizeof name, "%zu", field + 1);
    if (!problem) return tr_reader_bad(r, NULL, ' ', "column %s: is empty, expected a number", name);
    tr_token_quote(token, r->head->separator, quoted);
    return tr_reader_bad(r, NULL, ' ', "column %s: '%s' %s", name, quoted, problem);
}

/* A field that is no number of an odd look: nothing, a word, or wrong. */
static const char *parse_other(struct tr_reader *r, const char *p, size_t field, const char *problem,
                               float *value)
{
    const struct tr_schema *s = r->options->schema;
    struct tr_field f;
    const char *wrong = s ? tr_take_field(p, r->head->separator, &f) : NULL;
    if (!s || wrong) return bad_field(r, field, p, wrong ? wrong : problem);
    size_t c = column_of(r, field);
    struct tr_column_seen *seen = r->options->seen ? &r->options->seen[c] : NULL;
    *value = NAN;
    if (tr_schema_is_missing(s, f.text, f.n)) {
        if (seen) seen->missing = true;
        return f.end;
    }
    bool word = problem && strcmp(problem, "is not a number") == 0;
    bool may_be_word = seen && !r->options->settled && !s->column[c].fixed && !r->options->skip_errors;
    if (!word || !may_be_word) return bad_field(r, field, p, problem);
    if (!seen->word) {
        seen->word = true;
        seen->place = (struct tr_file_place){r->file, r->offset};
        tr_token_quote(p, r->head->separator, seen->text);
    }
    *value = 0;
    return f.end;
}

/* A field that has blanks or quotes around it, or is none of numbers. Returns what follows it, NULL if it is wrong. */
static __attribute__((noinline)) const char *parse_odd_field(struct tr_reader *r, const char *p, size_t field,
                                                             float *value)
{
    char separator = r->head->separator;
    while (tr_is_padding(*p, separator)) p++;
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
    bool empty = quoted && *text == '"';
    return parse_other(r, p, field, empty ? NULL : field_problem(text, end, *value, separator), value);
}

static const char *bad_count(struct tr_reader *r, size_t found, bool more)
{
    return tr_reader_bad(r, NULL, ' ', "%s%zu column%s, expected %zu as in the first line",
                         more ? "more than " : "", found, found == 1 ? "" : "s", r->fields);
}

/* ---- one line of numbers ---- */

/* Goes to the next field, where there is one. */
static inline bool pass(const char **at, char separator)
{
    const char *p = *at;
    bool more = *p == separator || (separator == TR_SEPARATOR_BLANKS && *p == '\t');
    if (separator == TR_SEPARATOR_BLANKS &&
        more) { /* of which there may be any number, at the end of the line too */
        while (tr_is_blank(*p)) p++;
        more = !tr_at_line_end(p);
    } else if (more) {
        p++;
    }
    *at = p;
    return more;
}

/* The fields of one line, where there is room for all of them. Returns the end of the line. This is where the time goes. */
static inline const char *parse_fields(struct tr_reader *r, const char *p, size_t labelled, float *label,
                                       float *value)
{
    char separator = r->head->separator;
    size_t n = r->fields;
    for (size_t k = 0;; k++) {
        float *to = k == labelled ? label : value;
        const char *end = tr_read_float(p, to);
        if (!end || (*end != separator && *end != '\n') || !isfinite(*to)) {
            end = parse_odd_field(r, p, k, to);
            if (!end) return NULL;
        }
        value += k != labelled;
        p = end;
        bool more = pass(&p, separator);
        if (more && k + 1 < n) continue;
        if (!more && k + 1 == n) return p;
        return bad_count(r, k + 1, more);
    }
}

/* A row whose label is missing does not count. */
const char *tr_csv_end_row(struct tr_reader *r, const char *end, float label)
{
    struct tr_matrix *m = &r->matrix;
    if (m->label) {
        if (isnan(label) && r->options->schema && !r->options->rows_without_label) {
            r->report.unlabelled++;
            return end;
        }
        r->status = tr_reader_note_label(r, label);
        if (r->status != TR_OK) return NULL;
        m->label[m->rows] = label;
    }
    r->enough = ++m->rows == r->options->most_rows; /* 0 is never reached here */
    return end;
}

static const char *parse_numbers(struct tr_reader *r, const char *p)
{
    struct tr_matrix *m = &r->matrix;
    float label = NAN;
    const char *end = parse_fields(r, p, r->labelled, &label, m->value + m->rows * m->columns);
    if (end && tr_label_is_long(label) && r->bound && r->options->seen) {
        const char *field = p; /* the label's, of fields that are right */
        struct tr_field f;
        for (size_t k = 0; k < r->labelled && !tr_take_field(field, r->head->separator, &f); k++) {
            field = f.end;
            (void)pass(&field, r->head->separator);
        }
        tr_reader_note_long_label(r, field, r->head->separator);
    }
    return end ? tr_csv_end_row(r, end, label) : NULL;
}

/* ---- one line of anything ---- */

/* Whatever the rows that are left for training have not, is one more label where chance has taken it from them. */
static uint32_t find_label(const struct tr_reader *r, const char *text, size_t n)
{
    const struct tr_reader_options *o = r->options;
    uint32_t place = tr_ids_find_text(&o->schema->labels, text, n);
    bool by_chance = o->reads_held_out && o->held_out.to > 0;
    return place == TR_NO_VALUE && by_chance ? (uint32_t)o->schema->labels.n : place;
}

int tr_csv_find_value(struct tr_reader *r, size_t column, const char *text, size_t n, uint32_t *place)
{
    const struct tr_schema *s = r->options->schema;
    char room[TR_VALUE_ROOM];
    bool label = s->column[column].type == TR_COLUMN_NAMED_LABEL;
    text = tr_value_text(text, &n, room);
    *place = TR_NO_VALUE;
    if (label && n == 0) return TR_OK;
    if (label && s->positive) *place = strlen(s->positive) == n && memcmp(s->positive, text, n) == 0;
    else if (label && (s->labels.n > 0 || !r->options->seen)) *place = find_label(r, text, n);
    else if (!label && s->hash > 0)
        *place = (uint32_t)(tr_mix(tr_text_hash(text, n) ^ s->column[column].seed) % s->hash);
    else if (!label && s->values) *place = tr_ids_find_text(&s->values[column], text, n);
    else return tr_ids_add_text(&r->options->seen[column].values, text, n, place);
    return TR_OK;
}

/* A row that is given up afterwards may have some: the next one writes to the same slots, and later. */
static int find_pending(struct tr_reader *r)
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

/* A value that is to be counted waits with others: its slot in the table is far from the last one's. */
static int add_pending(struct tr_reader *r, size_t column, const struct tr_field *f, float *to)
{
    size_t n = tr_schema_is_missing(r->options->schema, f->text, f->n) ? 0 : f->n;
    uint64_t hash = tr_text_hash(f->text, n);
    if (r->pendings == TR_PENDING) TR_TRY(find_pending(r));
    r->pending[r->pendings++] = (struct tr_pending){hash, f->text, (uint32_t)n, (uint32_t)column, to};
    tr_ids_fetch(&r->options->seen[column].values, hash);
    return TR_OK;
}

/* Of a field, without what doubles its quotes. */
static int find_field(struct tr_reader *r, size_t column, const struct tr_field *f, uint32_t *place)
{
    size_t n = f->n;
    const char *text = f->text;
    if (f->doubled) {
        TR_TRY(TR_GROW(&r->scratch, &r->scratch_capacity, n));
        n = tr_undouble(f, r->scratch);
        text = r->scratch;
    }
    if (tr_schema_is_missing(r->options->schema, text, n)) n = 0;
    return tr_csv_find_value(r, column, text, n, place);
}

static const char *parse_value(struct tr_reader *r, const char *p, size_t field, float *to)
{
    const struct tr_bound *b = &r->bound[field];
    struct tr_field f;
    uint32_t place;
    const char *wrong = tr_take_field(p, r->head->separator, &f);
    bool label = b->type == TR_COLUMN_NAMED_LABEL;
    if (wrong) return bad_field(r, field, p, wrong);
    if (b->type > TR_COLUMN_NAMED_LABEL) return f.end;
    if (f.n > (label ? (size_t)TR_NAME_LONGEST : (size_t)TR_VALUE_LONGEST)) {
        char problem[96];
        snprintf(problem, sizeof problem, "has %zu bytes, expected at most %d", f.n,
                 label ? TR_NAME_LONGEST : TR_VALUE_LONGEST);
        return bad_field(r, field, p, problem);
    }
    const struct tr_schema *s = r->options->schema;
    char room[TR_VALUE_ROOM];
    size_t n = f.n;
    bool as_it_stands = !f.doubled && tr_value_text(f.text, &n, room) == f.text;
    if (!label && as_it_stands && s->hash == 0 && !s->values) {
        r->status = add_pending(r, b->column, &f, to);
        return r->status == TR_OK ? f.end : NULL;
    }
    r->status = label ? TR_OK : find_pending(r);
    if (r->status == TR_OK) r->status = find_field(r, b->column, &f, &place);
    if (r->status != TR_OK) return NULL;
    if (!label) *to = tr_slot_of_place(place);
    else if (place != TR_NO_VALUE) *to = (float)place;
    else if (f.n > 0 && !tr_schema_is_missing(r->options->schema, f.text, f.n) &&
             !r->options->rows_without_label)
        return bad_field(r, field, p, "is no label of the training data");
    return f.end;
}

/* ---- crossed categories ---- */

/* A part of a crossed value behind the n bytes of it that are there; nothing where it is missing. */
static int add_part(struct tr_reader *r, const struct tr_field *f, size_t *n)
{
    char room[TR_VALUE_ROOM];
    size_t bytes = f->n;
    const char *text = tr_value_text(f->text, &bytes, room);
    bool missing = tr_schema_is_missing(r->options->schema, text, bytes);
    TR_TRY(TR_GROW(&r->scratch, &r->scratch_capacity, *n + 2 * bytes + 1));
    for (size_t i = 0; i < bytes && !missing; i++) {
        char c = text[i];
        if (c == '*' || c == '\\') r->scratch[(*n)++] = '\\';
        r->scratch[(*n)++] = c;
        i += f->doubled && c == '"';
    }
    return TR_OK;
}

const char *tr_csv_cross_values(struct tr_reader *r, size_t column, const struct tr_cross *cross,
                                const struct tr_field *part, float *to)
{
    size_t n = 0;
    uint32_t place;
    for (size_t k = 0; k < cross->n; k++) {
        if (k > 0) r->scratch[n++] = '*';
        if ((r->status = add_part(r, &part[k], &n)) != TR_OK) return NULL;
    }
    if (n > TR_VALUE_LONGEST)
        return tr_reader_bad(r, NULL, ' ', "a crossed value has %zu bytes, expected at most %d", n,
                             TR_VALUE_LONGEST);
    if ((r->status = tr_csv_find_value(r, column, r->scratch, n, &place)) != TR_OK) return NULL;
    *to = tr_slot_of_place(place);
    return r->scratch;
}

/* The text of the row's identifier, as it stands there, behind those of the rows before in this piece. */
static int keep_id(struct tr_reader *r)
{
    struct tr_field f;
    size_t row = r->matrix.rows;
    if (tr_take_field(r->at[r->id_column], r->head->separator, &f)) f.n = 0; /* never: it was read before */
    if (row == 0) r->id_length = 0;
    TR_TRY(TR_GROW(&r->id, &r->id_capacity, row + 1));
    TR_TRY(TR_GROW(&r->id_text, &r->id_text_capacity, r->id_length + f.n + 1));
    r->id[row] = r->id_length;
    if (f.doubled) f.n = tr_undouble(&f, r->id_text + r->id_length);
    else memcpy(r->id_text + r->id_length, f.text, f.n);
    r->id_length += f.n;
    r->id_text[r->id_length++] = '\0';
    return TR_OK;
}

/* Of a row whose other fields are read. */
static const char *end_any(struct tr_reader *r, const char *end, float label, float *row)
{
    const struct tr_schema *s = r->options->schema;
    for (size_t i = 0; i < s->crosses; i++) {
        const struct tr_cross *cross = &s->cross[i];
        struct tr_field part[TR_CROSS_MOST];
        size_t column = tr_schema_fields(s) + i;
        for (size_t k = 0; k < cross->n; k++)
            if (tr_take_field(r->at[cross->column[k]], r->head->separator, &part[k]))
                part[k].n = 0; /* never: it was read before */
        if (!tr_csv_cross_values(r, column, cross, part, &row[s->column[column].slot])) return NULL;
    }
    if (r->options->id && (r->status = keep_id(r)) != TR_OK) return NULL;
    return tr_csv_end_row(r, end, label);
}

void tr_csv_miss_number(struct tr_reader *r, size_t column, float *to)
{
    *to = NAN;
    if (r->options->seen) r->options->seen[column].missing = true;
}

static const char *parse_any(struct tr_reader *r, const char *p)
{
    const struct tr_schema *s = r->options->schema;
    struct tr_matrix *m = &r->matrix;
    float label = NAN, *row = m->value + m->rows * m->columns;
    float *weight = r->weight ? r->weight + r->report.rows + m->rows : NULL;
    char separator = r->head->separator;
    if (weight) *weight = 1; /* where this file has none */
    for (size_t k = 0, n = r->fields;; k++) {
        const struct tr_bound *b = &r->bound[k];
        if (r->at) r->at[b->column] = p;
        bool is_label = b->type == TR_COLUMN_LABEL || b->type == TR_COLUMN_NAMED_LABEL;
        float *to = is_label ? &label : b->type == TR_COLUMN_WEIGHT ? weight : row + b->slot;
        if (b->type == TR_COLUMN_NUMBER || b->type == TR_COLUMN_LABEL || b->type == TR_COLUMN_WEIGHT) {
            const char *end = tr_read_float(p, to);
            if (!end || (*end != separator && *end != '\n') || !isfinite(*to))
                end = parse_odd_field(r, p, k, to);
            if (end && is_label && tr_label_is_long(*to)) tr_reader_note_long_label(r, p, separator);
            if (s->missing_numbers > 0 && tr_schema_is_missing_number(s, *to))
                tr_csv_miss_number(r, b->column, to);
            if (end && to == weight && !(*to >= 0)) end = bad_field(r, k, p, weight_problem);
            p = end;
        } else {
            p = parse_value(r, p, k, to);
        }
        if (!p) return NULL;
        bool more = pass(&p, separator);
        if (more && k + 1 < n) continue;
        if (!more && k + 1 == n) return end_any(r, p, label, row);
        return bad_count(r, k + 1, more);
    }
}

/* ---- many lines ---- */

static bool has_labels(const struct tr_reader *r)
{
    const struct tr_reader_options *o = r->options;
    return o->schema ? o->bindings->n > 0 && o->bindings->binding[0].labelled : o->label != TR_LABEL_NONE;
}

int tr_csv_make_room(struct tr_reader *r, size_t more)
{
    struct tr_matrix *m = &r->matrix;
    size_t rows = m->rows + more;
    TR_TRY(TR_GROW(&m->value, &r->value_capacity, rows * m->columns));
    if (r->options->weight) TR_TRY(TR_GROW(&r->weight, &r->weight_capacity, (size_t)r->report.rows + rows));
    return has_labels(r) ? TR_GROW(&m->label, &r->label_capacity, rows) : TR_OK;
}

/* And for a row that is left unfinished: a field takes one byte or more, as what is missing may be empty. */
static int make_room(struct tr_reader *r, size_t bytes)
{
    return tr_csv_make_room(r, bytes / (r->fields ? r->fields : 1) + 2);
}

static int parse_lines(struct tr_reader *r, const struct tr_chunk *lines)
{
    int status = r->any ? tr_each_line(r, lines, parse_any) : tr_each_line(r, lines, parse_numbers);
    return status == TR_OK ? find_pending(r) : status;
}

static int open_reader(struct tr_reader *r)
{
    const struct tr_reader_options *o = r->options;
    r->matrix.columns = o->schema ? o->schema->slots : tr_csv_columns(r->files, o->heads, o->label);
    if (o->schema) return TR_OK;
    r->fields = r->matrix.columns + (o->label != TR_LABEL_NONE);
    r->labelled = o->label == TR_LABEL_FIRST ? 0 : o->label == TR_LABEL_LAST ? r->fields - 1 : r->fields;
    return TR_OK;
}

/* The column of identifiers, which this file must have. */
static int find_id(struct tr_reader *r)
{
    const struct tr_schema *s = r->options->schema;
    bool there = false;
    r->id_column = tr_schema_find(s, r->options->id);
    for (size_t k = 0; k < r->fields; k++) there = there || r->bound[k].column == r->id_column;
    if (there && r->id_column < tr_schema_fields(s)) return TR_OK;
    return tr_fail(TR_ERR_USAGE, "%s: there is no column %s, of those that the model knows, for --id",
                   r->files->file[r->file].path, r->options->id);
}

/* What the fields of a file are; plain ones are numbers in their order, and perhaps a label. */
static int enter(struct tr_reader *r)
{
    const struct tr_schema *s = r->options->schema;
    if (!s || r->options->bindings->n == 0) return TR_OK;
    const struct tr_binding *binding = &r->options->bindings->binding[r->head->binding];
    bool plain = s->crosses == 0 && !r->options->id && !r->options->weight && s->missing_numbers == 0;
    size_t slot = 0, columns = r->at ? s->n : 0;
    if (!plain) TR_TRY(TR_GROW(&r->at, &columns, s->n));
    r->fields = r->labelled = binding->fields;
    TR_TRY(TR_GROW(&r->bound, &r->bound_capacity, r->fields));
    for (size_t k = 0; k < r->fields; k++) {
        const struct tr_column *c = &s->column[binding->column[k]];
        r->bound[k] = (struct tr_bound){.type = c->type, .slot = c->slot, .column = binding->column[k]};
        if (c->type == TR_COLUMN_WEIGHT && !r->options->weight) r->bound[k].type = TR_COLUMN_IGNORE;
        if (c->type == TR_COLUMN_LABEL) r->labelled = k;
        else plain = plain && c->type == TR_COLUMN_NUMBER && c->slot == slot++;
    }
    r->any = !plain;
    return r->options->id ? find_id(r) : TR_OK;
}

size_t tr_csv_columns(const struct tr_files *files, const struct tr_head *heads, int label)
{
    uint64_t fields = 0;
    for (size_t i = 0; i < files->n && fields == 0; i++) fields = heads[i].fields;
    return fields > 0 ? (size_t)fields - (label != TR_LABEL_NONE) : 0;
}

const struct tr_format_reader tr_csv_reader = {
    .open = open_reader, .enter = enter, .room = make_room, .lines = parse_lines};

#define _GNU_SOURCE
#include "data/reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/hdf5.h"
#include "data/value.h"

/* ---- lines that are wrong ---- */

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
    return TR_OK;
}

void tr_reader_note_long_label(struct tr_reader *r, const char *token, char separator)
{
    struct tr_read_report *report = &r->report;
    struct tr_field f;
    char room[TR_VALUE_ROOM];
    double number;
    if (*report->long_label || tr_take_field(token, separator, &f)) return;
    size_t n = f.n;
    const char *text = tr_value_text(f.text, &n, room);
    if (n > 21 || !tr_value_is_number(text, n, &number) || memchr(text, '.', n) ||
        (double)(float)number == number)
        return;
    memcpy(report->long_label, text, n);
    report->long_label[n] = '\0';
    report->long_label_at = (struct tr_file_place){r->file, r->offset};
}

int tr_reader_add_label(struct tr_reader *r, float label)
{
    struct tr_labels *labels = &r->report.labels;
    size_t known = labels->bits.n;
    float value = label + 0.0f; /* -0 is 0 */
    uint32_t bits, at;
    r->last_label = label;
    if (isnan(label) || known == TR_LABELS_MOST) return TR_OK;
    memcpy(&bits, &value, sizeof bits);
    TR_TRY(tr_ids_number(&labels->bits, bits, &at));
    if (labels->bits.n > known && known < 3)
        labels->place[known] = (struct tr_file_place){r->file, r->offset};
    return TR_OK;
}

/* ---- chunks ---- */

/* A chunk of lines of one reader's share; of a packed file that several readers unpack, `piece` is the number of the piece of
 * its text, of which they have every so many. */
struct share_chunk {
    struct tr_chunk lines;
    size_t file;
    uint64_t piece;
};

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

static bool is_triples(const struct tr_reader *r)
{
    return r->options->format == TR_FORMAT_RATINGS || r->options->format == TR_FORMAT_DOCWORD;
}

static const struct tr_format_reader *format_of(const struct tr_reader *r)
{
    switch (r->options->format) {
    case TR_FORMAT_CSV: return &tr_csv_reader;
    case TR_FORMAT_RATINGS: return &tr_ratings_reader;
    case TR_FORMAT_DOCWORD: return &tr_docword_reader;
    default: return &tr_libsvm_reader;
    }
}

int tr_reader_enter(struct tr_reader *r, size_t file)
{
    static const struct tr_head none = {.separator = TR_SEPARATOR_BLANKS};
    if (file == r->file && r->head) return TR_OK;
    r->file = file;
    r->head = r->options->heads ? &r->options->heads[file] : &none;
    if (r->options->format == TR_FORMAT_DOCWORD)
        r->documents = tr_docword_base(r->files, r->options->heads, file);
    return format_of(r)->enter ? format_of(r)->enter(r) : TR_OK;
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

static int parse_chunk(struct tr_reader *r, const struct share_chunk *c)
{
    struct tr_chunk lines = c->lines;
    size_t bytes = (size_t)(lines.end - lines.begin), rows = r->matrix.rows + r->triples.n;
    TR_TRY(tr_reader_enter(r, c->file));
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
    if (is_triples(r)) TR_TRY(tr_reader_note_triples(r, c->piece));
    TR_TRY(format_of(r)->room(r, bytes));
    if (r->options->piece || r->options->places)
        TR_TRY(TR_GROW(&r->place, &r->place_capacity, rows + bytes / 2 + 1));
    TR_TRY(format_of(r)->lines(r, &lines));
    TR_TRY(tr_reader_note_run(r, lines.offset, lines.offset + (uint64_t)(lines.end - lines.begin),
                              r->matrix.rows + r->triples.n - rows));
    return tr_reader_hand_out(r);
}

/* ---- the share of a reader ---- */

/* done: stored bytes of the parts before. */
static int each_chunk(struct tr_reader *r, const struct tr_file_part *part, struct tr_text *text,
                      uint64_t *done)
{
    const struct tr_reader_options *o = r->options;
    bool in_turns = r->files->file[part->file].packing && part->readers > 1;
    while (!r->enough) {
        struct share_chunk c = {.file = part->file};
        TR_TRY(tr_text_next(text, &c.lines));
        if (o->progress) TR_TRY(o->progress(o->progress_state, *done + tr_text_done(text)));
        if (c.lines.begin == c.lines.end && !c.lines.too_long) break;
        if (in_turns) c.piece = c.lines.offset / part->bytes;
        TR_TRY(parse_chunk(r, &c));
    }
    *done += tr_text_done(text);
    return TR_OK;
}

/* What a reader has come to. */
struct progress {
    struct tr_reader *r;
    uint64_t done; /* stored bytes of the parts before */
};

static int read_part(void *state, const struct tr_file_part *part)
{
    struct progress *p = state;
    const struct tr_reader_options *o = p->r->options;
    struct tr_text *text;
    if (p->r->enough) return TR_OK;
    TR_TRY(tr_text_open(p->r->files, part, o->chunk_bytes ? o->chunk_bytes : TR_TEXT_CHUNK, &text));
    int status = each_chunk(p->r, part, text, &p->done);
    tr_text_close(text);
    return status;
}

static void finish_report(struct tr_reader *r)
{
    struct tr_read_report *report = &r->report;
    const struct tr_matrix *m = &r->matrix;
    if (is_triples(r)) {
        report->rows = report->nonzeros = r->triples.n;
        return;
    }
    report->rows += m->rows;
    report->nonzeros += tr_matrix_nonzeros(m);
    if (m->columns > 0 && report->rows > 0) {
        report->lowest = 0;
        report->highest = (uint32_t)(m->columns - 1);
    }
}

static int read_text(struct tr_reader *r, size_t reader, size_t readers)
{
    const struct tr_format_reader *format = format_of(r);
    if (format->open) TR_TRY(format->open(r));
    TR_TRY(format->room(r, 0));
    return tr_files_each_part(r->files, reader, readers, r->options->deal, read_part,
                              &(struct progress){.r = r});
}

/* Tables with named columns are of csv, wherever they lie. */
bool tr_reader_is_hdf5(const struct tr_reader *r)
{
    if (r->options->format == TR_FORMAT_HDF5) return true;
    return r->options->schema && r->files->file[tr_heads_first(r->options->heads, r->files->n)].hdf5;
}

static int read_share(struct tr_reader *r, size_t reader, size_t readers)
{
    r->report.lowest = UINT32_MAX;
    r->last_label = NAN;
    if (r->options->records) memset(r->options->records, 0, r->files->n * sizeof *r->options->records);
    int status =
        tr_reader_is_hdf5(r) ? tr_hdf5_read_share(r, reader, readers) : read_text(r, reader, readers);
    if (status == TR_OK && r->options->places) *r->options->places = r->place;
    else free(r->place);
    free(r->origin);
    free(r->bound);
    free(r->scratch);
    free(r->id_text);
    free(r->id);
    free(r->at);
    if (status == TR_OK && r->options->weight) *r->options->weight = r->weight;
    else free(r->weight);
    if (status == TR_OK) finish_report(r);
    else tr_ids_free(&r->report.labels.bits);
    return status;
}

int tr_read_matrix(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_reader_options *options, struct tr_matrix *matrix,
                   struct tr_read_report *report)
{
    struct tr_reader r = {.files = files, .options = options};
    struct tr_matrix *m = &r.matrix;
    int status = read_share(&r, reader, readers);
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
    int status = read_share(&r, reader, readers);
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

/* Fuzzing the readers of ratings and bags of words: they must survive any bytes; accepted records must equal those of a plain
 * reader that reads one record after the other with the C library; and the result must not depend on chunk borders or the
 * number of readers.
 *
 * The first byte of an input chooses the options, the rest is the file.
 */
#define _GNU_SOURCE
#include <math.h>

#include "data/reader.h"
#include "fuzz_files.h"

/* Reads the share of one reader, again as text where ids are no numbers. */
static int read_share(const struct tr_files *files, struct tr_reader_options *options, size_t reader,
                      size_t readers, struct tr_triples *t, struct tr_read_report *report)
{
    for (;;) {
        int status = tr_read_triples(files, reader, readers, options, t, report);
        if (status != TR_OK || !(report->text_rows || report->text_columns)) return status;
        options->text_rows |= report->text_rows;
        options->text_columns |= report->text_columns;
        tr_triples_free(t);
    }
}

static bool id_is(const struct tr_ids *ids, uint32_t place, const char *text, size_t n)
{
    uint64_t number;
    DEMAND(place < ids->n);
    if (!ids->are_text) return tr_id_number(text, n, &number) && ids->number[place] == number;
    return ids->begin[place + 1] - ids->begin[place] == n &&
           memcmp(ids->text + ids->begin[place], text, n) == 0;
}

static bool same_id(const struct tr_ids *a, uint32_t i, const struct tr_ids *b, uint32_t k)
{
    if (!a->are_text) return a->number[i] == b->number[k];
    return id_is(a, i, b->text + b->begin[k], (size_t)(b->begin[k + 1] - b->begin[k]));
}

/* ---- one record after the other ---- */

struct each {
    const struct tr_triples *whole;
    size_t n;
};

static int check_rating(void *state, const struct tr_rating *r)
{
    struct each *e = state;
    DEMAND(e->n < e->whole->n);
    const struct tr_triple *t = &e->whole->triple[e->n++];
    DEMAND(id_is(&e->whole->rows, t->row, r->user, r->user_length));
    DEMAND(id_is(&e->whole->columns, t->column, r->item, r->item_length));
    DEMAND(same_bits(t->value, r->value));
    return TR_OK;
}

static void check_words(const uint8_t *data, size_t n, const struct tr_head *shape,
                        const struct tr_triples *whole)
{
    size_t record = 0, at = (size_t)shape->begin;
    for (char *line; (line = copy_line(data, n, &at)); free(line)) {
        if (line[strspn(line, " \t\r")]) {
            char *rest = line;
            DEMAND(record < whole->n);
            const struct tr_triple *t = &whole->triple[record++];
            DEMAND(strtoull(rest, &rest, 10) == t->row + 1ull &&
                   strtoull(rest, &rest, 10) == t->column + 1ull);
            DEMAND((float)strtoull(rest, &rest, 10) == t->value && rest[strspn(rest, " \t\r")] == 0);
            DEMAND(t->row < shape->documents && t->column < shape->words && t->value >= 1);
        }
    }
    DEMAND(record == whole->n);
}

/* ---- by several readers in tiny chunks ---- */

static void check_division(const struct tr_files *files, struct tr_reader_options options, size_t readers,
                           const struct tr_triples *whole)
{
    size_t n = 0;
    options.chunk_bytes = readers;
    options.records = NULL;
    for (size_t k = 0; k < readers; k++) {
        struct tr_triples t;
        struct tr_read_report report;
        DEMAND(tr_read_triples(files, k, readers, &options, &t, &report) == TR_OK);
        DEMAND(n + t.n <= whole->n);
        for (size_t i = 0; i < t.n; i++, n++) {
            const struct tr_triple *a = &t.triple[i], *b = &whole->triple[n];
            DEMAND(same_bits(a->value, b->value));
            if (options.format == TR_FORMAT_DOCWORD) DEMAND(a->row == b->row && a->column == b->column);
            else
                DEMAND(same_id(&t.rows, a->row, &whole->rows, b->row) &&
                       same_id(&t.columns, a->column, &whole->columns, b->column));
        }
        tr_triples_free(&t);
    }
    DEMAND(n == whole->n);
}

static void check_reading(const struct tr_files *files, const struct tr_head *shape, enum tr_format format,
                          uint8_t choice, const uint8_t *data, size_t n)
{
    uint64_t records;
    struct tr_reader_options options = {.format = format,
                                        .skip_errors = choice & 2,
                                        .text_rows = choice & 4,
                                        .text_columns = choice & 8,
                                        .heads = shape,
                                        .records = &records};
    struct tr_triples t;
    struct tr_read_report report;
    int status = read_share(files, &options, 0, 1, &t, &report);
    if (status != TR_OK) {
        DEMAND(status == TR_ERR_DATA && strlen(tr_error_text()) > 0);
        return;
    }
    bool gzip = files->file[0].packing;
    DEMAND(records == t.n + report.skipped || options.skip_errors);
    struct each each = {.whole = &t};
    if (report.skipped == 0 && format == TR_FORMAT_RATINGS)
        DEMAND(tr_read_ratings(&files->file[0].path, 1, &(tr_read_options){.labelled = true}, check_rating,
                               &each) == TR_OK &&
               each.n == t.n);
    if (report.skipped == 0 && format == TR_FORMAT_DOCWORD && !gzip) check_words(data, n, shape, &t);
    if (!gzip) check_division(files, options, 1 + choice / 32, &t);
    tr_triples_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    int fd;
    enum tr_format format = data[0] & 1 ? TR_FORMAT_DOCWORD : TR_FORMAT_RATINGS;
    struct tr_files files;
    struct tr_head *shape = NULL;
    open_bytes(data + 1, n - 1, &fd, &files);
    struct tr_rating_columns columns = {.job = NULL};
    char said[TR_DIALECT_SAID];
    int status = tr_dialect_settings(NULL, &files);
    if (status == TR_OK) status = tr_dialects_find(&files, format, said);
    if (status == TR_OK) status = tr_heads_read(&files, format, TR_HEADER_AUTO, &shape);
    if (status == TR_OK && format == TR_FORMAT_RATINGS)
        status = tr_ratings_find_columns(&files, &columns, shape);
    if (status == TR_OK) check_reading(&files, shape, format, data[0], data + 1, n - 1);
    else DEMAND(status == TR_ERR_DATA);
    free(shape);
    tr_files_close(&files);
    close(fd);
    return 0;
}

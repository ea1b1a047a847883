/* Fuzzing the reader of dense rows: it must survive any bytes; accepted values must equal those of strtof; and the
 * result must not depend on chunk borders, the number of readers, or whether rows are stored.
 *
 * The first byte of an input chooses the options, the rest is the file.
 */
#define _GNU_SOURCE
#include <math.h>

#include "data/reader.h"
#include "fuzz_files.h"

/* ---- the slow reading of one line, by the C library ---- */

/* Cuts a field off at its end; all separators but blanks stand alone, and in quotes they are text. */
static char *cut_field(char **rest, char separator)
{
    const char separators[] = {separator, separator == ' ' ? '\t' : 0, 0};
    char *field = *rest;
    if (field && separator == ' ') field += strspn(field, separators);
    if (!field || (separator == ' ' && !*field)) return NULL;
    char *quote = field;
    while ((*quote == ' ' || *quote == '\t') && *quote != separator) quote++;
    char *closing = *quote == '"' ? strchr(quote + 1, '"') : NULL,
         *end = strpbrk(closing ? closing : field, separators);
    *rest = end ? end + 1 : NULL;
    if (end) *end = 0;
    return field;
}

static float read_field(char *field)
{
    char *end;
    field += strspn(field, " \t");
    if (*field == '"') field += 1 + strspn(field + 1, " \t");
    float value = strtof(field, &end);
    DEMAND(end > field && end[strspn(end, " \t\"")] == 0);
    return value;
}

static void check_line(char *line, char separator, int label, const struct tr_matrix *d, size_t row)
{
    size_t n = d->columns + (label != TR_LABEL_NONE), at = label == TR_LABEL_FIRST ? 0 : n - 1, column = 0;
    char *rest = line;
    for (size_t k = 0; k < n; k++) {
        char *field = cut_field(&rest, separator);
        DEMAND(field);
        float value = read_field(field);
        if (label != TR_LABEL_NONE && k == at) DEMAND(same_bits(value, d->label[row]));
        else DEMAND(same_bits(value, d->value[row * d->columns + column++]));
    }
    DEMAND(!cut_field(&rest, separator));
}

static void check_against_library(const uint8_t *data, size_t n, const struct tr_head *shape, int label,
                                  const struct tr_matrix *d)
{
    size_t row = 0, at = (size_t)shape->begin;
    for (char *line; (line = copy_line(data, n, &at)); free(line)) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r') line[length - 1] = 0;
        if (line[strspn(line, " \t")]) {
            DEMAND(row < d->rows);
            check_line(line, shape->separator, label, d, row++);
        }
    }
    DEMAND(row == d->rows);
}

/* ---- the same by several readers in tiny chunks, and handed out ---- */

static void check_division(const struct tr_files *files, struct tr_reader_options options, size_t readers,
                           const struct tr_matrix *whole)
{
    size_t rows = 0;
    options.chunk_bytes = readers;
    for (size_t k = 0; k < readers; k++) {
        struct tr_matrix d;
        struct tr_read_report report;
        DEMAND(tr_read_matrix(files, k, readers, &options, &d, &report) == TR_OK);
        tr_ids_free(&report.labels.bits);
        DEMAND(rows + d.rows <= whole->rows);
        for (size_t i = 0; i < d.rows * d.columns; i++)
            DEMAND(same_bits(d.value[i], whole->value[rows * d.columns + i]));
        for (size_t i = 0; i < d.rows && d.label; i++) DEMAND(same_bits(d.label[i], whole->label[rows + i]));
        rows += d.rows;
        tr_matrix_free(&d);
    }
    DEMAND(rows == whole->rows);
}

struct each {
    const struct tr_matrix *whole;
    size_t row;
};

static int check_rows(void *state, struct tr_reader *r)
{
    struct each *e = state;
    const struct tr_matrix *m = &r->matrix;
    DEMAND(e->row + m->rows <= e->whole->rows && m->columns == e->whole->columns);
    for (size_t k = 0; k < m->rows * m->columns; k++)
        DEMAND(same_bits(m->value[k], e->whole->value[e->row * m->columns + k]));
    for (size_t i = 0; m->label && i < m->rows; i++)
        DEMAND(same_bits(m->label[i], e->whole->label[e->row + i]));
    e->row += m->rows;
    return TR_OK;
}

static void check_reading(const struct tr_files *files, const struct tr_head *shape, uint8_t choice,
                          const uint8_t *data, size_t n)
{
    struct tr_reader_options options = {
        .format = TR_FORMAT_CSV, .skip_errors = choice & 1, .label = choice / 2 % 3, .heads = shape};
    struct tr_matrix dense;
    struct tr_read_report report;
    int status = tr_read_matrix(files, 0, 1, &options, &dense, &report);
    if (status != TR_OK) {
        DEMAND(status == TR_ERR_DATA && strlen(tr_error_text()) > 0);
        return;
    }
    bool gzip = files->file[0].packing;
    if (report.skipped == 0 && !gzip) check_against_library(data, n, shape, options.label, &dense);
    if (!gzip) check_division(files, options, 1 + choice / 32, &dense);
    tr_ids_free(&report.labels.bits);
    struct each each = {.whole = &dense};
    struct tr_matrix none;
    options.piece = check_rows;
    options.piece_state = &each;
    DEMAND(tr_read_matrix(files, 0, 1, &options, &none, &report) == TR_OK && each.row == dense.rows);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&none);
    tr_matrix_free(&dense);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    int fd;
    enum tr_format format;
    struct tr_files files;
    struct tr_head *shape = NULL;
    open_bytes(data + 1, n - 1, &fd, &files);
    int status = tr_format_detect(&files, &format);
    if (status == TR_OK) status = tr_heads_read(&files, TR_FORMAT_CSV, data[0] / 6 % 3, &shape);
    if (status == TR_OK) check_reading(&files, shape, data[0], data + 1, n - 1);
    else DEMAND(status == TR_ERR_DATA);
    free(shape);
    tr_files_close(&files);
    close(fd);
    return 0;
}

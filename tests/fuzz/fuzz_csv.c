/* Fuzzing the reader of dense rows: it must survive any bytes; whatever it accepts must be what strtof reads; and the
 * result must depend neither on chunk borders nor on the number of readers, nor on whether rows are kept.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc tests/fuzz/fuzz_csv.c \
 *     src/data/{files,text,share,look,ids,csv}.c src/base/base.c -lz -lm -o /tmp/fuzz_csv && /tmp/fuzz_csv
 *
 * The first byte of an input chooses the options, the rest is the file.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "data/csv.h"

#define DEMAND(what)                                                                                         \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* ---- the slow reading of one line, by the C library ---- */

/* Cuts a field off at its end; all separators but blanks stand alone. */
static char *cut_field(char **rest, char separator)
{
    if (separator == ' ') return strtok_r(NULL, " \t", rest);
    char *field = *rest;
    if (!field) return NULL;
    char *end = strchr(field, separator);
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

static void check_line(char *line, char separator, int label, const struct tr_dense *d, size_t row)
{
    size_t n = d->columns + (label != TR_LABEL_NONE), at = label == TR_LABEL_FIRST ? 0 : n - 1, column = 0;
    char *rest = line;
    if (separator == ' ') rest = line + strspn(line, " \t");
    for (size_t k = 0; k < n; k++) {
        char *field = separator == ' ' && k == 0 ? strtok_r(rest, " \t", &rest) : cut_field(&rest, separator);
        DEMAND(field);
        float value = read_field(field);
        if (label != TR_LABEL_NONE && k == at) DEMAND(same_bits(value, d->label[row]));
        else DEMAND(same_bits(value, d->value[row * d->columns + column++]));
    }
    DEMAND(!cut_field(&rest, separator));
}

static void check_against_library(const uint8_t *data, size_t n, const struct tr_shape *shape, int label,
                                  const struct tr_dense *d)
{
    size_t row = 0;
    for (size_t begin = (size_t)shape->begin; begin < n;) {
        const uint8_t *newline = memchr(data + begin, '\n', n - begin);
        size_t end = newline ? (size_t)(newline - data) : n;
        char *line = strndup((const char *)data + begin, end - begin);
        size_t length = strlen(line);
        if (newline && length > 0 && line[length - 1] == '\r') line[length - 1] = 0;
        if (!newline && length > 0 && line[length - 1] == '\r') line[length - 1] = 0;
        if (line[strspn(line, " \t")]) {
            DEMAND(row < d->rows);
            check_line(line, shape->separator, label, d, row++);
        }
        free(line);
        begin = end + 1;
    }
    DEMAND(row == d->rows);
}

/* ---- the same by several readers in tiny chunks, and one by one ---- */

static void check_division(const struct tr_files *files, struct tr_csv_options options, size_t readers,
                           const struct tr_dense *whole)
{
    size_t rows = 0;
    options.chunk_bytes = readers;
    for (size_t k = 0; k < readers; k++) {
        struct tr_dense d;
        struct tr_read_report report;
        DEMAND(tr_csv_read(files, k, readers, &options, &d, &report) == TR_OK);
        DEMAND(rows + d.rows <= whole->rows);
        for (size_t i = 0; i < d.rows * d.columns; i++)
            DEMAND(same_bits(d.value[i], whole->value[rows * d.columns + i]));
        for (size_t i = 0; i < d.rows && d.label; i++) DEMAND(same_bits(d.label[i], whole->label[rows + i]));
        rows += d.rows;
        tr_dense_free(&d);
    }
    DEMAND(rows == whole->rows);
}

struct each {
    const struct tr_dense *whole;
    size_t row;
};

static int check_row(void *state, const struct tr_csv_row *row)
{
    struct each *e = state;
    DEMAND(e->row < e->whole->rows && row->n == e->whole->columns);
    for (size_t k = 0; k < row->n; k++)
        DEMAND(same_bits(row->value[k], e->whole->value[e->row * row->n + k]));
    if (e->whole->label) DEMAND(same_bits(row->label, e->whole->label[e->row]));
    e->row++;
    return TR_OK;
}

static void check_reading(const struct tr_files *files, const struct tr_shape *shape, uint8_t choice,
                          const uint8_t *data, size_t n)
{
    struct tr_csv_options options = {.skip_errors = choice & 1, .label = choice / 2 % 3, .shape = shape};
    struct tr_dense dense;
    struct tr_read_report report;
    int status = tr_csv_read(files, 0, 1, &options, &dense, &report);
    if (status != TR_OK) {
        DEMAND(status == TR_ERR_DATA && strlen(tr_error_text()) > 0);
        return;
    }
    bool gzip = files->file[0].gzip;
    if (report.skipped == 0 && !gzip) check_against_library(data, n, shape, options.label, &dense);
    if (!gzip) check_division(files, options, 1 + choice / 32, &dense);
    struct each each = {.whole = &dense};
    DEMAND(tr_csv_each(files, &options, check_row, &each) == TR_OK && each.row == dense.rows);
    tr_dense_free(&dense);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    int fd = memfd_create("fuzz", 0), format;
    DEMAND(fd >= 0 && write(fd, data + 1, n - 1) == (ssize_t)(n - 1));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct tr_files files;
    struct tr_shape *shape = NULL;
    DEMAND(tr_files_open((char *[]){path}, 1, &files) == TR_OK);
    int status = tr_look_like(&files, &format);
    if (status == TR_OK) status = tr_look_shapes(&files, TR_FORMAT_CSV, data[0] / 6 % 3, &shape);
    if (status == TR_OK) check_reading(&files, shape, data[0], data + 1, n - 1);
    else DEMAND(status == TR_ERR_DATA);
    free(shape);
    tr_files_close(&files);
    close(fd);
    return 0;
}

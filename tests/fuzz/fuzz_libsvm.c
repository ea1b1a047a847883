/* Fuzzing the LIBSVM reader: it must survive any bytes; accepted values must equal those of strtoul and
 * strtof; and the result must not depend on chunk borders or the number of readers.
 *
 * The first byte of an input chooses the options, the rest is the file.
 */
#define _GNU_SOURCE

#include "data/reader.h"
#include "fuzz_files.h"

/* ---- the slow reading of one line, by the C library ---- */

static void check_pair(char *token, const struct tr_matrix *csr, uint64_t i)
{
    char *end;
    DEMAND(strtoul(token, &end, 10) == csr->column[i] && *end == ':');
    DEMAND(same_bits(strtof(end + 1, &end), csr->value ? csr->value[i] : 1) && *end == 0);
}

/* Returns whether the line is a row. */
static bool check_line(char *line, const struct tr_matrix *csr, size_t row)
{
    char *end, *rest = NULL;
    line[strcspn(line, "#")] = 0;
    size_t n = strlen(line);
    if (n > 0 && line[n - 1] == '\r') line[n - 1] = 0;
    char *token = strtok_r(line, " \t", &rest);
    if (!token) return false;
    DEMAND(row < csr->rows && same_bits(strtof(token, &end), csr->label[row]) && *end == 0);
    uint64_t i = csr->begin[row];
    for (bool first = true; (token = strtok_r(NULL, " \t", &rest)); first = false) {
        if (first && strncmp(token, "qid:", 4) == 0) continue;
        DEMAND(i < csr->begin[row + 1]);
        check_pair(token, csr, i++);
    }
    DEMAND(i == csr->begin[row + 1]);
    return true;
}

static void check_against_library(const uint8_t *data, size_t n, const struct tr_matrix *csr)
{
    size_t row = 0, at = 0;
    for (char *line; (line = copy_line(data, n, &at)); free(line)) row += check_line(line, csr, row);
    DEMAND(row == csr->rows);
}

/* ---- the same by several readers in tiny chunks ---- */

static void check_share(const struct tr_matrix *whole, const struct tr_matrix *share, size_t first_row)
{
    DEMAND(first_row + share->rows <= whole->rows);
    uint64_t first = whole->begin[first_row];
    for (size_t i = 0; i < share->rows; i++) {
        DEMAND(same_bits(share->label[i], whole->label[first_row + i]));
        DEMAND(share->begin[i + 1] == whole->begin[first_row + i + 1] - first);
    }
    for (uint64_t i = 0; i < share->begin[share->rows]; i++) {
        DEMAND(share->column[i] == whole->column[first + i]);
        DEMAND(same_bits(share->value ? share->value[i] : 1, whole->value ? whole->value[first + i] : 1));
    }
}

static void check_division(const struct tr_files *files, struct tr_reader_options options, size_t readers,
                           const struct tr_matrix *whole, const struct tr_read_report *report)
{
    size_t rows = 0;
    uint64_t skipped = 0;
    options.chunk_bytes = readers;
    for (size_t k = 0; k < readers; k++) {
        struct tr_matrix share;
        struct tr_read_report part;
        DEMAND(tr_read_matrix(files, k, readers, &options, &share, &part) == TR_OK);
        tr_ids_free(&part.labels.bits);
        check_share(whole, &share, rows);
        rows += share.rows;
        skipped += part.skipped;
        tr_matrix_free(&share);
    }
    DEMAND(rows == whole->rows && skipped == report->skipped);
}

static void check_reading(const struct tr_files *files, uint8_t choice, const uint8_t *data, size_t n)
{
    struct tr_reader_options options = {
        .format = TR_FORMAT_LIBSVM, .lowest_index = choice & 1, .skip_errors = choice & 2};
    struct tr_matrix csr;
    struct tr_read_report report;
    int status = tr_read_matrix(files, 0, 1, &options, &csr, &report);
    if (status != TR_OK) {
        DEMAND(status == TR_ERR_DATA && strlen(tr_error_text()) > 0);
        return;
    }
    bool gzip = files->file[0].packing;
    if (report.skipped == 0 && !gzip) check_against_library(data, n, &csr);
    if (!gzip) check_division(files, options, 1 + (choice >> 2) % 7, &csr, &report);
    tr_ids_free(&report.labels.bits);
    tr_matrix_free(&csr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    int fd;
    struct tr_files files;
    open_bytes(data + 1, n - 1, &fd, &files);
    check_reading(&files, data[0], data + 1, n - 1);
    tr_files_close(&files);
    close(fd);
    return 0;
}

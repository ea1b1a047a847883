/* Dense rows of numbers: text whose fields are separated by commas, semicolons, tabs or blanks, with a header or
 * without, read at the speed of memory.
 *
 * Fields may have blanks around them and stand in quotes; empty lines, CRLF and a last line without newline are fine.
 * Every row has as many fields as the first of its file; each is a decimal number in the range of float.
 */
#ifndef TR_DATA_CSV_H
#define TR_DATA_CSV_H

#include "data/libsvm.h"
#include "data/look.h"

/* Rows of `columns` numbers, one after the other; the label of each where there are labels. */
struct tr_dense {
    size_t rows, columns;
    float *value;
    float *label; /* NULL: none */
};

void tr_dense_free(struct tr_dense *dense);

struct tr_csv_options {
    bool skip_errors;             /* drop malformed records and count them; otherwise the first is an error */
    int label;                    /* TR_LABEL_…: which field is one */
    const struct tr_shape *shape; /* of each file, from tr_look_shapes() */
    size_t most_rows;             /* to be read of the share; 0: all */
    int (*progress)(void *state, uint64_t bytes); /* as that of tr_text_share */
    void *progress_state;
    uint64_t deal;
    size_t chunk_bytes;
    struct tr_read_runs *runs; /* as that of tr_libsvm_options */
};

/* Numbers in a row, without the label; what the first file that is not empty says. 0: only a label. */
size_t tr_csv_columns(const struct tr_files *files, const struct tr_csv_options *options);

/* Reads the share of one reader. TR_ERR_DATA describes a malformed record as `path:line: column n: what was found, what
 * was expected`. The report's indices are 0 .. columns - 1. */
int tr_csv_read(const struct tr_files *files, size_t reader, size_t readers,
                const struct tr_csv_options *options, struct tr_dense *dense, struct tr_read_report *report);

/* ---- one row after the other, in one process, without keeping them ---- */

struct tr_csv_row {
    size_t n;
    const float *value;           /* n numbers */
    float label;                  /* NaN where options say none */
    const struct tr_files *files; /* where it stands */
    size_t file;
    uint64_t offset;
};

/* Calls row() for each row of all files in their order, until it returns anything but TR_OK. Of the options those of
 * sharing are not used; errors are those of tr_csv_read(). */
int tr_csv_each(const struct tr_files *files, const struct tr_csv_options *options,
                int (*row)(void *state, const struct tr_csv_row *row), void *state);

#endif

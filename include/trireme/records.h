/* Formats of data files, and functions with which one process reads the rows of files in order without storing them, as predict
 * and evaluate do. For training, trireme/data.h reads in parallel and stores the rows.
 *
 * Example: the number of positive labels of a file.
 *
 *     static int count(void *state, const tr_records *records)
 *     {
 *         for (size_t i = 0; i < records->rows.n; i++) *(size_t *)state += records->rows.label[i] > 0;
 *         return TR_OK;
 *     }
 *     ...
 *     size_t positive = 0;
 *     tr_read_options options = {.format = TR_FORMAT_LIBSVM, .labelled = true};
 *     TR_TRY(tr_read_rows(files, n, &options, count, &positive));
 */
#ifndef TRIREME_RECORDS_H
#define TRIREME_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/base.h"
#include "trireme/job.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Formats of files. Text may be compressed (gzip, bzip2, xz, zstd, lz4), which is detected by the first bytes. Lines may
 * end with CRLF, and a file may start with a UTF-8 byte order mark.
 *   libsvm    label index:value index:value ..., indices in ascending order; # starts a comment
 *   csv       fields separated by commas, semicolons, tabs or blanks, the same number in each line, with or without header
 *   ratings   user, item, rating, and further fields, or in the order of a header; separated by tabs, ::, semicolons, commas or
 *             blanks
 *   docword   three lines with the numbers of documents, words and records; then document, word, count, counted from 1
 *   hdf5      a dense array X, or non-zeros as data, indices, indptr; and labels y; d.h5:/train/X selects an object */
#define TR_TEXT_FORMATS(FORMAT)                                                                              \
    FORMAT(LIBSVM, libsvm)                                                                                   \
    FORMAT(CSV, csv)                                                                                         \
    FORMAT(RATINGS, ratings)                                                                                 \
    FORMAT(DOCWORD, docword)

/* Defines TR_FORMAT_AUTO, TR_FORMAT_LIBSVM, ..., TR_FORMAT_HDF5, and the words of data.format in the same order. */
#define TR_FORMAT_CONSTANT(NAME, name) TR_FORMAT_##NAME,
#define TR_FORMAT_WORD(NAME, name)     #name,
enum tr_format { TR_FORMAT_AUTO, TR_TEXT_FORMATS(TR_FORMAT_CONSTANT) TR_FORMAT_HDF5 };
#define TR_FORMAT_WORDS "auto", TR_TEXT_FORMATS(TR_FORMAT_WORD) "hdf5"

/* csv: the label column; TR_LABEL_NAMED: a column that is not the first or the last */
enum { TR_LABEL_NONE, TR_LABEL_FIRST, TR_LABEL_LAST, TR_LABEL_AUTO, TR_LABEL_NAMED };

/* csv, ratings: whether the first line is a header */
enum { TR_HEADER_AUTO, TR_HEADER_YES, TR_HEADER_NO };

/* Some rows, sparse or dense. Row i of sparse rows has the non-zeros column[k] and value[k] with begin[i] <= k < begin[i + 1], in
 * ascending order of columns. In rows from tr_data_open() columns are indices of tr_data.keys, as in a view of these keys. The
 * function that returns a batch owns its memory. */
typedef struct tr_batch {
    size_t n; /* number of rows */
    const uint64_t *begin;
    const uint32_t *column;
    const float *value; /* NULL if all values are 1 */
    const float *label; /* NULL if rows have no labels: ratings, docword, csv without data.label */
    /* For dense rows n × columns values, row by row; begin, column and value are NULL then. For sparse rows NULL. Rows of csv and
     * dense hdf5 are dense; rows of libsvm and sparse hdf5 are dense if this needs less memory. */
    const float *dense;
    const float *weight; /* weights of the rows (data.weight); NULL if all are 1 */
    const float
        *offset; /* numbers that are added to the margins of the rows (data.offset); NULL if all are 0 */
} tr_batch;

enum tr_row_form { TR_ROWS_AS_READ, TR_ROWS_SPARSE, TR_ROWS_DENSE };

struct tr_schema;

/* Counts of tr_read_rows(). */
typedef struct tr_read_counts {
    uint64_t unlabelled; /* rows that were left out because they have no label */
    uint64_t malformed;  /* malformed rows, with skip_errors */
    uint64_t empty;      /* with every_row: empty lines between rows that are no rows */
} tr_read_counts;

/* Options of tr_read_rows(). All members may be zero. */
typedef struct tr_read_options {
    /* Format of the files; TR_FORMAT_AUTO detects hdf5, libsvm, csv or docword from the first file. */
    enum tr_format format;
    /* libsvm and csv: TR_ROWS_SPARSE converts csv to sparse rows without zeros; TR_ROWS_DENSE converts libsvm to dense rows
     * and requires columns. */
    enum tr_row_form form;
    /* Number of columns of the model; 0: any number. Non-zeros in other columns are dropped and counted; csv must have exactly
     * this number. */
    uint64_t columns;
    uint32_t first_index; /* libsvm: index of column 0 in the file, 0 or 1; with 1, index 0 is an error */
    bool labelled; /* libsvm, ratings: a line without a label or rating is an error; otherwise it is NaN */
    int label;     /* csv: TR_LABEL_...; a file with exactly `columns` columns has no labels */
    int header;    /* csv: TR_HEADER_... */
    /* csv: describes the columns of the training data of a model, and maps columns of the files to keys; label and first_index are
     * ignored then. If `labelled` is set, rows without a label are skipped and counted, and rows have the weights in the column of data.weight, or weight 1 in a file without this column. Rows have the offsets in the
     * column of data.offset, which the files must have. */
    const struct tr_schema *schema;
    /* libsvm, hdf5: describes the names of labels, if the model has some: labels are then the numbers of their names; may be NULL */
    const struct tr_schema *names;
    bool
        strict; /* with schema: named columns that the schema does not have are an error; otherwise they are ignored */
    /* What tr_records_id() returns; may be NULL. With schema: a column, by name or number. Other text: `line`, the number of the
     * line. hdf5: `row`, the number of the row from 0, or the path of a dataset with one text or number for each row. */
    const char *id;
    bool skip_errors; /* malformed rows are counted; otherwise the first one is an error */
    /* Each row of the files is passed on: rows without a label, malformed rows with skip_errors (see tr_records_malformed()), and
     * empty lines that are rows. These are the rows of zeros of a libsvm file without labels, and missing values in a csv file of
     * one column. */
    bool every_row;
    tr_read_counts *counts; /* the counts are added to it; may be NULL */
    /* To divide the rows among several processes: the number of this reader, and the number of readers; 0: read all rows. The
     * first reader reads all rows of docword. */
    size_t reader, readers;
    uint64_t max_record; /* maximum size of a line in bytes; 0: 64 MiB */
    const tr_job *
        job; /* its keys such as data.delimiter and data.columns describe the text; NULL: they are found in the files */
} tr_read_options;

/* Some consecutive rows of the files, valid until the callback that receives them returns. */
typedef struct tr_records {
    tr_batch rows;
    uint64_t first;    /* number of the first of these rows, from 0; docword: of the first document */
    uint64_t unknown;  /* number of non-zeros that were dropped, because the model has no such column */
    const void *where; /* position in the files, for tr_records_fail() */
} tr_records;

typedef int tr_records_fn(void *state, const tr_records *records);

/* Reads all rows of files in order. Any process may call it, also outside MPI.
 *
 * @param [in] files    n file names or shell globs
 * @param [in] records  called for consecutive rows until it returns anything but TR_OK. For docword it receives all
 *                      documents, including empty ones; a docword file is stored in memory
 * @return the status of the callback, TR_ERR_NO_INPUT, or TR_ERR_DATA with a text «file:line: found, expected»
 */
int tr_read_rows(char *const files[], size_t n, const tr_read_options *options, tr_records_fn *records,
                 void *state);

/* Fails with TR_ERR_DATA and the text «file:line: what» for row i. Not for docword. */
int tr_records_fail(const tr_records *records, size_t i, const char *what);

/* Returns whether row i was malformed: it has no values then. */
bool tr_records_malformed(const tr_records *records, size_t i);

/* Returns the content of tr_read_options.id in row i. */
const char *tr_records_id(const tr_records *records, size_t i);

/* One rating. */
typedef struct tr_rating {
    const char *user, *item; /* as in the file, without quotes; not terminated */
    size_t user_length, item_length;
    float value; /* NaN if missing */
} tr_rating;

typedef int tr_rating_fn(void *state, const tr_rating *rating);

/* Reads all ratings of files in order, as tr_read_rows() does.
 *
 * @param [in] options  labelled, job and max_record are used
 */
int tr_read_ratings(char *const files[], size_t n, const tr_read_options *options, tr_rating_fn *rating,
                    void *state);

/* ---- names in memory ---- */

/* Names of users or items in the order of their numbers: ascending by value if all names are whole numbers, otherwise by
 * bytes. The arrays are not owned by the list. */
struct tr_name_list {
    size_t n;               /* number of names */
    const uint64_t *number; /* names that are whole numbers; NULL for text */
    const uint64_t *begin;  /* text: name i is text[begin[i]] .. text[begin[i + 1] - 1], n + 1 offsets */
    const char *text;
};

/* Finds the number of a name.
 *
 * @param [in]  id, length  the name, not terminated
 * @param [out] number      its number; unchanged if not found
 * @return whether the name exists
 */
bool tr_name_find(const struct tr_name_list *list, const char *id, size_t length, uint64_t *number);

/* Prints name i. Returns TR_ERR_IO, without an error text, if writing fails. */
int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file);

#ifdef __cplusplus
}
#endif
#endif

/* Records in files of text: which formats there are, and reading rows in order, by one process, without keeping them, as
 * predicting and evaluating do. Training reads in parallel what it keeps: see trireme/data.h.
 */
#ifndef TRIREME_RECORDS_H
#define TRIREME_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Plain text, or packed (gzip, bzip2, xz, zstd, lz4), told apart by the first bytes. Lines may end with CRLF, a file may begin with the mark of UTF-8.
 *   libsvm    label index:value index:value …, indices ascending; # begins a comment
 *   csv       numbers separated by commas, semicolons, tabs or blanks, as many in each line, with a header or without
 *   ratings   user, item, rating, and anything more; separated by tabs, ::, semicolons, commas or blanks
 *   docword   three lines with the numbers of documents, words and records; then document, word, count from 1
 *   hdf5      no text: an array X, dense or as data, indices, indptr, and labels y; d.h5:/train/X chooses */
enum tr_format {
    TR_FORMAT_AUTO,
    TR_FORMAT_LIBSVM,
    TR_FORMAT_CSV,
    TR_FORMAT_RATINGS,
    TR_FORMAT_DOCWORD,
    TR_FORMAT_HDF5
};
/* csv: which column is a label; NAMED: another than the first and the last */
enum { TR_LABEL_NONE, TR_LABEL_FIRST, TR_LABEL_LAST, TR_LABEL_AUTO, TR_LABEL_NAMED };
enum {
    TR_HEADER_AUTO,
    TR_HEADER_YES,
    TR_HEADER_NO
}; /* csv, ratings: whether the first line is none of numbers */

/* Some rows. Row i holds the non-zeros begin[i] .. begin[i + 1] - 1 of column and value; its columns ascend. Where rows
 * come from tr_data_open(), columns number the keys of the data, as a view of these keys does. Owned by who hands them
 * out. */
typedef struct tr_batch {
    size_t n; /* rows */
    const uint64_t *begin;
    const uint32_t *column;
    const float *value; /* NULL when every value is 1 */
    const float *label; /* NULL where rows have none: ratings, docword, and csv without data.label */
    /* n rows of as many numbers as there are columns, one after the other; begin, column and value are NULL then. Rows of csv
     * and of dense hdf5 are dense, those of libsvm and sparse hdf5 where they are better so; NULL for all others */
    const float *dense;
    const float *weight; /* what rows count, with data.weight; NULL: all 1 */
} tr_batch;

enum tr_row_form { TR_ROWS_AS_READ, TR_ROWS_SPARSE, TR_ROWS_DENSE };

struct tr_schema;

/* What is to be read. All zero is a good start. */
typedef struct tr_read_options {
    enum tr_format
        format; /* not ratings; TR_FORMAT_AUTO: hdf5, libsvm, csv or docword, as the first file looks */
    enum tr_row_form
        form; /* libsvm and csv: TR_ROWS_SPARSE makes sparse rows of csv, without the zeros; TR_ROWS_DENSE makes
                            * dense rows of libsvm, and needs `columns` */
    /* Rows have the columns 0 .. columns - 1, those of a model: others are left out and counted, and csv must have as many.
     * 0: any number */
    uint64_t columns;
    uint32_t first_index; /* libsvm: the file's index of column 0: 0 or 1, where an index 0 is an error */
    bool labelled;        /* libsvm: a line without a label is an error; otherwise its label is NaN */
    int label; /* csv: TR_LABEL_…; where `columns` are given and the file has no more, its rows have no labels */
    int header; /* csv: TR_HEADER_… */
    /* csv: the columns of a model's training data, which make keys of those of the files; label and first_index mean nothing
     * then. `labelled`: rows whose label is missing are left out, and counted in *unlabelled (NULL: not asked for) */
    const struct tr_schema *schema;
    uint64_t *unlabelled;
    const char *id; /* … a column of theirs by name, or by number from 1, for tr_records_id(); NULL: none */
    /* Only the rows of one of so many readers (0: there is one), numbered from 0: of docword the first has all. */
    size_t reader, readers;
} tr_read_options;

/* Some neighbouring rows, until the function returns that they are handed to. */
typedef struct tr_records {
    tr_batch rows;
    uint64_t first;    /* rows before them; docword: the number of the first document, from 0 */
    uint64_t unknown;  /* non-zeros of theirs that were left out */
    const void *where; /* they stand, for tr_records_fail() */
} tr_records;

typedef int tr_records_fn(void *state, const tr_records *records);

/* Hands all rows of the files (n names or shell globs) to `records`, in order, until that returns anything but TR_OK. Of docword
 * all documents, without words too; a file of docword is held in memory. One process, which needs not be a rank. Errors:
 * TR_ERR_NO_INPUT, and TR_ERR_DATA as `file:line: what was found, what was expected`. */
int tr_read_rows(char *const files[], size_t n, const tr_read_options *options, tr_records_fn *records,
                 void *state);

/* Fails with TR_ERR_DATA: `file:line: what`, for the i-th of these rows. Not for docword. */
int tr_records_fail(const tr_records *records, size_t i, const char *what);

/* What the column `id` says of the i-th of these rows. */
const char *tr_records_id(const tr_records *records, size_t i);

/* One rating. */
typedef struct tr_rating {
    const char *user, *item; /* as in the file, without quotes; not ended by NUL */
    size_t user_length, item_length;
    float value; /* NaN where there is none */
} tr_rating;

typedef int tr_rating_fn(void *state, const tr_rating *rating);

/* Hands all ratings of the files to `rating`, in order, until that returns anything but TR_OK. third_may_miss: lines of a user
 * and an item alone are fine. Otherwise as tr_read_rows(). */
int tr_read_ratings(char *const files[], size_t n, bool third_may_miss, tr_rating_fn *rating, void *state);

/* ---- names in memory ---- */

/* What users or items are called, in the order of their numbers: ascending, by number if all are whole numbers, by bytes
 * otherwise. Nothing is copied. */
struct tr_name_list {
    size_t n;
    const uint64_t *number; /* NULL: text */
    const uint64_t *begin;  /* text: name i is text[begin[i]] .. text[begin[i + 1] - 1], n + 1 of them */
    const char *text;
};

/* The number of the id that stands there; false if there is none of that name. */
bool tr_name_find(const struct tr_name_list *list, const char *id, size_t length, uint64_t *number);

/* Prints name i. TR_ERR_IO, without a text. */
int tr_name_print(const struct tr_name_list *list, size_t i, FILE *file);

#ifdef __cplusplus
}
#endif
#endif

/* Tables in HDF5 files, as h5py, scipy, AnnData and 10x write them, and as `trireme convert` does.
 *
 * A table is an array of rows and columns (X), or rows as lists of non-zeros (data, indices, indptr: compressed sparse rows,
 * whose columns count from 0), and an array of labels beside it (y). Numbers are of any integer or real type, in one piece
 * or in chunks, compressed or not. Where they are in the file:
 *   - what the path says behind «:/», or what of X, data, features, matrix the file has
 *   - labels: y, label, labels or target beside them; or one group above a group of non-zeros
 *
 * What trireme convert makes of csv has columns with names, and is read as csv is (data.format: csv). Beside X, an array of reals that
 * has NaN where a number is missing, there is the group columns:
 *   strings, string_begin   texts, one after the other, and where each begins (and the last ends): the names of all columns, and then
 *                           what stands in each column of texts; X has the place among those of the column
 *   texts                   how many of these each column has; 0: it is of numbers
 * and attributes of the file:
 *   header                  1: the names come from a file, not from the order of columns
 *   label                   which column has the labels (from 0; as many as there are: none)
 *
 * All that it makes has the array origin: for each row, where its line began in the text (tr_origin()), so that the rows that
 * data.test: 10% holds out are those that it holds out of the text.
 *
 *   hdf5.c          which arrays of a file are the table, and reading some rows of an array
 *   hdf5_rows.c     the rows that are one reader's share of the files
 *   hdf5_columns.c  rows of columns with names
 */
#ifndef TR_DATA_HDF5_H
#define TR_DATA_HDF5_H

#include <hdf5.h>

#include "data/reader.h"
#include "store/checked.h"

#define TR_HDF5_DATA                                                                                         \
    "trireme-data" /* format of the header of files that trireme convert writes: see store/checked.h */
enum { TR_HDF5_DATA_VERSION = 1 };

/* As an origin; file: which of those that were converted. */
static inline uint64_t tr_origin(uint64_t file, uint64_t place)
{
    return file << 48 | place;
}

/* Types of numbers in memory. */
enum tr_hdf5_number {
    TR_HDF5_F32,
    TR_HDF5_F64,
    TR_HDF5_I8,
    TR_HDF5_U8,
    TR_HDF5_I16,
    TR_HDF5_U16,
    TR_HDF5_I32,
    TR_HDF5_U32,
    TR_HDF5_I64,
    TR_HDF5_U64,
    TR_HDF5_NUMBERS
};

struct tr_hdf5_array {
    char name[256];  /* from the root of the file on: /X */
    hid_t set, type; /* the dataset; what its elements are in memory: … */
    enum tr_hdf5_number number;
    size_t size;            /* … bytes of one */
    int dimensions;         /* 1 or 2 */
    uint64_t rows, columns; /* columns: 1 of 1 dimension */
    uint64_t chunk_rows;    /* 0: not in chunks */
    uint64_t at;            /* in the file, if that is checked */
};

struct tr_hdf5 {
    const char *path;
    char why[200];             /* HDF5 could not do something */
    struct tr_checked checked; /* of a file that trireme convert has written; .fd is -1 for others */
    hid_t file;
    bool sparse; /* x are the values of non-zeros, with indices and indptr */
    bool named;  /* columns have names, and there are the next three */
    struct tr_hdf5_array strings, string_begin, texts;
    struct tr_hdf5_array x, indices, indptr, y, origin;
    bool labelled; /* there is y */
    bool full;     /* rows are dense, or are to be made so */
    uint64_t rows, columns, nonzeros;
    uint64_t first_index; /* what files of text call column 0: an attribute of the file, otherwise 0 */
    void *raw;            /* numbers before they are converted */
    size_t raw_capacity;
};

/* Finds the table of a file. TR_ERR_DATA says what is missing or wrong, and what is there. Close it also if this fails. */
int tr_hdf5_table_open(const struct tr_file *file, struct tr_hdf5 *t);
void tr_hdf5_table_close(struct tr_hdf5 *t);

/* The same, for the head of a file. */
int tr_hdf5_look(const struct tr_file *file, struct tr_head *head);

/* Reads the rows first .. first + n - 1 of an array, as single precision or as whole numbers; negative ones become large. */
int tr_hdf5_read_reals(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n, float *to);
int tr_hdf5_read_wholes(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                        uint64_t *to);

/* The same of columns; what is negative or too large becomes a number that is no column. */
int tr_hdf5_read_indices(struct tr_hdf5 *t, const struct tr_hdf5_array *a, uint64_t first, size_t n,
                         uint32_t *to);

/* Names of columns and texts of all columns. */
struct tr_hdf5_strings {
    struct tr_ids all; /* not to be searched */
    uint64_t *first;   /* of each column, its first text in all; those of the last end at all.n */
};

/* Of a table with named columns. To be freed, also if this fails. */
int tr_hdf5_read_strings(struct tr_hdf5 *t, struct tr_hdf5_strings *s);
void tr_hdf5_strings_free(struct tr_hdf5_strings *s);

/* Tells `take` the names of a file's columns, as those of a line 0 (head.h), and which of them are of texts. */
int tr_hdf5_read_names(const struct tr_file *file, tr_field_fn *take, void *state);
int tr_hdf5_read_kinds(const struct tr_file *file, size_t columns, bool *texts);

/* Rows of named columns, as a reader of csv has them. */
struct tr_hdf5_columns;
int tr_hdf5_columns_open(struct tr_hdf5 *t, const struct tr_reader *r, struct tr_hdf5_columns **columns);
void tr_hdf5_columns_close(struct tr_hdf5_columns **columns); /* NULL inside is fine */

/* Before the rows first .. first + n - 1 are taken; then whether one of them is for other readers. */
int tr_hdf5_read_origins(struct tr_hdf5 *t, struct tr_reader *r, uint64_t first, size_t n);
bool tr_hdf5_leaves_out(const struct tr_reader *r, uint64_t row);

/* Where a row stood first: see tr_origin(). */
uint64_t tr_hdf5_origin_of(const struct tr_reader *r, uint64_t row);

/* Adds the rows first .. first + n - 1 of the file to those that the reader has. */
int tr_hdf5_columns_take(struct tr_hdf5_columns *columns, struct tr_hdf5 *t, struct tr_reader *r,
                         uint64_t first, size_t n);

/* Whether no number is infinite or none (NaN). */
bool tr_are_finite(const float *value, size_t n);

/* The files as lists of rows (rows->file is to be freed), which are divided as those of text are by their bytes, in chunks of so many;
 * r->head is that of the first with a table. */
int tr_hdf5_rows(const struct tr_reader *r, size_t readers, struct tr_files *rows, uint64_t *chunk);

/* Adds the rows of a reader's share of the files to what it has read: see tr_read_matrix(). */
int tr_hdf5_read_share(struct tr_reader *r, size_t reader, size_t readers);

#endif

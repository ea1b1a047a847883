/* Tables in HDF5 files, as written by h5py, scipy, AnnData and 10x, and by `trireme convert`.
 *
 * A table is an array of rows and columns (X), or rows as lists of non-zeros (data, indices, indptr: compressed sparse rows, with
 * columns from 0), and an array of labels (y). Numbers are of any integer or real type, contiguous or in chunks, compressed or not.
 * Positions in the file:
 *   - the path after «:/», or the first of X, data, features, matrix
 *   - labels: data.label, a path in the file or a name in the group obs (AnnData: also a group of codes and categories); or y, label,
 *     labels or target beside the array, or beside the group of the non-zeros
 * MATLAB (7.3) stores arrays transposed, which its attribute MATLAB_class shows.
 *
 * `trireme convert` writes csv tables with named columns, which are read as csv (data.format: csv). Beside X, an array of reals
 * with NaN for missing numbers, there is the group columns:
 *   strings, string_begin   texts without separators, and the offset of each text and of the end: first the names of all columns,
 *                           then the values of each column of texts; X contains the index of a value among those of its column
 *   texts                   the number of values of each column; 0: it is a column of numbers
 * and the attributes of the file:
 *   header                  1: the columns have names; 0: their names are their numbers
 *   label                   index of the label column, from 0; the number of columns: there is none
 * The files of `trireme convert` have an array origin: for each row tr_origin(), the file and the offset of its line in the
 * converted text. So data.test: 10% holds out the same rows as of the text.
 */
#ifndef TR_DATA_HDF5_H
#define TR_DATA_HDF5_H

#include <hdf5.h>

#include "data/reader.h"
#include "store/checked.h"

#define TR_HDF5_DATA "trireme-data" /* name of the format of trireme convert, see store/checked.h */
enum { TR_HDF5_DATA_VERSION = 1 };

/* The origin of a row: index of the text file, and offset of the row's line (HDF5: index of the row) there. */
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
    char name[256];  /* path of the array in the file */
    hid_t set, type; /* the HDF5 dataset, and the type of its elements in memory */
    enum tr_hdf5_number number;
    bool texts;             /* the elements are strings; `number` is not valid */
    size_t size;            /* bytes of an element */
    int dimensions;         /* number of dimensions, 1 or 2 */
    uint64_t rows, columns; /* shape of the array; columns is 1 if it has one dimension */
    bool transposed;        /* written by MATLAB: the second dimension has the rows */
    uint64_t chunk_rows;    /* rows of a chunk; 0: the array has no chunks */
    uint64_t at;            /* files of trireme convert: offset of the array in the file */
};

struct tr_hdf5 {
    const char *path;
    char why[200];             /* text of the last error of the HDF5 library */
    struct tr_checked checked; /* files of trireme convert: for checks; otherwise .fd is -1 */
    hid_t file;
    bool sparse; /* rows are lists of non-zeros: x contains their values, indices and indptr are valid */
    bool named;  /* columns have names: strings, string_begin and texts are valid */
    struct tr_hdf5_array strings, string_begin, texts;
    struct tr_hdf5_array x, indices, indptr, y, origin;
    struct tr_hdf5_array id; /* tr_reader_options.id, unless that is «row» */
    bool labelled;           /* there are labels: y is valid */
    bool coded; /* labels are categories (AnnData): y has the indices of their texts in `category` */
    struct tr_hdf5_array categories;
    struct tr_ids category;
    const char *label; /* path of the labels that the job sets; NULL: the default names */
    bool label_may_miss;
    bool full; /* rows are dense in the file, or training should use dense rows */
    uint64_t rows, columns, nonzeros;
    uint64_t first_index; /* index of column 0 in text files: the attribute first_index, 0 without it */
    char *raw;            /* scratch memory: numbers before conversion */
    size_t raw_capacity;
};

/* Opens a file and finds its table. TR_ERR_DATA names an absent or wrong array, and the existing arrays. Close the table also after
 * an error. */
int tr_hdf5_table_open(const struct tr_file *file, struct tr_hdf5 *t);
void tr_hdf5_table_close(struct tr_hdf5 *t);

/* Reads the head of a file. */
int tr_hdf5_look(const struct tr_file *file, struct tr_head *head);

/* tr_hdf5_read_names() passes the names of a file's columns to read(), as fields of line 0; tr_hdf5_read_kinds() sets texts[c] if
 * column c has texts. */
int tr_hdf5_read_names(const struct tr_file *file, tr_field_fn *read, void *state);
int tr_hdf5_read_kinds(const struct tr_file *file, size_t columns, bool *texts);

/* Reads the origins of the rows first .. first + n - 1, if a split needs them. For these rows, tr_hdf5_origin_of() then returns the
 * tr_origin(). */
int tr_hdf5_read_origins(struct tr_hdf5 *t, struct tr_reader *r, uint64_t first, size_t n);
uint64_t tr_hdf5_origin_of(const struct tr_reader *r, uint64_t row);

/* Returns whether all numbers are finite. */
bool tr_are_finite(const float *value, size_t n);

/* Sets *rows (free rows->file) to files whose sizes are numbers of rows, and *chunk to a number of rows: tr_files_each_part() then
 * divides rows among readers as it divides bytes of text. r->head is the head of the first file with a table. */
int tr_hdf5_rows(const struct tr_reader *r, size_t readers, struct tr_files *rows, uint64_t *chunk);

/* Reads a reader's share of the files: see tr_read_matrix(). */
int tr_hdf5_read_share(struct tr_reader *r, size_t reader, size_t readers);

#endif

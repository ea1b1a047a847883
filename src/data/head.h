/* What the first lines of files say: which format they are of, what separates their fields, where their records
 * begin. */
#ifndef TR_DATA_HEAD_H
#define TR_DATA_HEAD_H

#include "data/files.h"
#include "trireme/records.h"

enum { TR_SEPARATOR_BLANKS = ' ', TR_SEPARATOR_COLONS = ':' };

/* Of one file. */
struct tr_head {
    uint64_t begin;                      /* byte of the text at which records begin: behind a header */
    uint64_t fields;                     /* csv, ratings: of the first record; hdf5: columns of rows */
    uint64_t documents, words, nonzeros; /* docword: what its header says; hdf5: nonzeros */
    uint64_t rows, chunk_rows;           /* hdf5; rows of its chunks, 0 if they do not matter */
    bool sparse, full,
        labelled;          /* hdf5: rows are stored as lists of non-zeros; are to be dense; have labels */
    bool from_one;         /* hdf5: files of text call column 0 number 1 */
    bool named;            /* hdf5: columns have names, and this is a file of csv: see hdf5.h */
    uint64_t label_column; /* … and which has the labels; `fields`: none */
    bool text_rows, text_columns; /* ratings: an id of the first record is no number */
    int label;                    /* csv: which column looks like labels, TR_LABEL_… */
    bool header;                  /* csv: names of columns are the file's */
    uint32_t binding;             /* csv: see tr_schema_bind() */
    char separator; /* csv, ratings: , ; tab, or one of the above: any number of blanks and tabs, or :: */
};

/* What a format is called in a job. */
const char *tr_format_word(enum tr_format format);
enum tr_format tr_format_named(const char *word); /* TR_FORMAT_AUTO: none of them */

/* What the first file that is not empty looks like: TR_FORMAT_HDF5, TR_FORMAT_LIBSVM, TR_FORMAT_DOCWORD, TR_FORMAT_CSV for other
 * tables, which may be ratings; TR_FORMAT_AUTO for anything else. */
int tr_format_detect(const struct tr_files *files, enum tr_format *format);

/* Reads the heads of all files of a format, which is not auto. header: TR_HEADER_…. *heads, to be freed, has one a file.
 * TR_ERR_DATA for csv and hdf5 files of different numbers of columns, a docword header that is none, and files of text among
 * those of HDF5. */
int tr_heads_read(const struct tr_files *files, enum tr_format format, int header, struct tr_head **heads);

/* hdf5: the first file that has a table; 0: none has. */
size_t tr_heads_first(const struct tr_head *heads, size_t n);

/* csv: hands all fields of a file's header (line 0) and of some lines behind it (1, 2, …) to take(), without quotes and what is
 * around them, until it returns anything but TR_OK. Of HDF5 the names alone. */
typedef int tr_field_fn(void *state, size_t line, size_t field, const char *text, size_t n);
int tr_head_fields(const struct tr_files *files, size_t file, const struct tr_head *head, tr_field_fn *take,
                   void *state);

/* Whether a column of that name has labels. */
bool tr_is_called_label(const char *text, size_t n);

/* csv, data.label auto: which column has the labels, as the first file that is not empty looks. */
int tr_heads_label(const struct tr_head *heads, size_t n);

#endif

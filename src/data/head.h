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
    uint64_t fields;                     /* csv, ratings: of the first record */
    uint64_t documents, words, nonzeros; /* docword: what its header says */
    bool text_rows, text_columns;        /* ratings: an id of the first record is no number */
    int label;                           /* csv: which column looks like labels, TR_LABEL_… */
    char separator; /* csv, ratings: , ; tab, or one of the above: any number of blanks and tabs, or :: */
};

/* What a format is called in a job. */
const char *tr_format_word(enum tr_format format);
enum tr_format tr_format_named(const char *word); /* TR_FORMAT_AUTO: none of them */

/* What the first file that is not empty looks like: TR_FORMAT_LIBSVM, TR_FORMAT_DOCWORD, TR_FORMAT_CSV for other tables, which
 * may be ratings; TR_FORMAT_AUTO for anything else. */
int tr_format_detect(const struct tr_files *files, enum tr_format *format);

/* Reads the heads of all files of a format, which is not auto. header: TR_HEADER_…. *heads, to be freed, has one a file.
 * TR_ERR_DATA for csv files of different numbers of columns, and a docword header that is none. */
int tr_heads_read(const struct tr_files *files, enum tr_format format, int header, struct tr_head **heads);

/* csv, data.label auto: which column has the labels, as the first file that is not empty looks. */
int tr_heads_label(const struct tr_head *heads, size_t n);

#endif

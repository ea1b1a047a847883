/* What the first lines of files say: which format they are of, what separates their fields, where their records
 * begin. */
#ifndef TR_DATA_LOOK_H
#define TR_DATA_LOOK_H

#include "data/files.h"
#include "job/job.h"

enum { TR_SEPARATOR_BLANKS = ' ', TR_SEPARATOR_COLONS = ':' };

/* Of one file. */
struct tr_shape {
    uint64_t begin;                      /* byte of the text at which records begin: behind a header */
    uint64_t fields;                     /* csv, ratings: of the first record */
    uint64_t documents, words, nonzeros; /* docword: what its header says */
    bool text_rows, text_columns;        /* ratings: an id of the first record is no number */
    char separator; /* csv, ratings: , ; tab, or one of the above: any number of blanks and tabs, or :: */
};

/* Which formats a kind of model understands, when the job leaves it open: by the model, and what the file looks like.
 * TR_ERR_DATA if the first file certainly has another format than the job says: one line that says which. */
int tr_look_format(const tr_job *job, const struct tr_files *files, int *format);

/* What the first file that is not empty looks like, for those who have no job: TR_FORMAT_LIBSVM, TR_FORMAT_DOCWORD, or
 * TR_FORMAT_CSV for anything else, which may be ratings. */
int tr_look_like(const struct tr_files *files, int *format);

/* Looks at all files for a format that is no longer open. header: TR_HEADER_…. *shapes, to be freed, has one a file.
 * TR_ERR_DATA for csv files of different numbers of columns, and a docword header that is none. */
int tr_look_shapes(const struct tr_files *files, int format, int header, struct tr_shape **shapes);

#endif

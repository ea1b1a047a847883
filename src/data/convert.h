/* trireme convert: converts tables of any format to one HDF5 file, which ranks can read in parallel; or text tables to one csv file in
 * the usual form: a line of names, commas, and RFC 4180 quotes.
 *
 * HDF5: rows that are mostly zeros become lists of non-zeros, in a group X as in AnnData and scipy (data, indices, indptr and the attribute
 * shape); other rows an array X. Labels are the array y. All columns of csv are in X, their names and texts in other arrays: see hdf5.h.
 * Attributes of the file:
 *   first_index   the index that column 0 has in the text files: 0 or 1
 *   dense         1: training uses dense rows, even if the file has lists of non-zeros
 * Arrays are contiguous, so that each rank can read its rows. The file has checksums (store/checked.h).
 */
#ifndef TR_DATA_CONVERT_H
#define TR_DATA_CONVERT_H

#include "job/job.h"

struct tr_conversion {
    const tr_job *job;  /* section data: options of reading; data.label is auto by default */
    char *const *files; /* n names or globs, searched in data.folders */
    size_t n;
    const char *out;
    /* Called repeatedly with the progress, from 0 to 1. A result other than TR_OK ends the conversion. May be NULL. */
    int (*progress)(double done);
    /* results: sizes of the table; bytes: size of the file; skipped: malformed records */
    uint64_t rows, columns, nonzeros, bytes, skipped;
    bool sparse;
    bool
        text; /* the result is csv, because its name ends with .csv; then only files of text can be converted */
};

/* Reads the files twice: the first pass finds the sizes. <out>.part is renamed to <out> when it is complete. TR_ERR_NO_INPUT,
 * TR_ERR_DATA, TR_ERR_NO_OUTPUT, TR_ERR_IO; TR_ERR_CONFIG: the format has no tables. */
int tr_convert(struct tr_conversion *c);

#endif

/* Converts tables of any format to one HDF5 file that ranks read in parallel: trireme convert.
 *
 * Rows that are mostly zeros become lists of non-zeros, in a group X as in AnnData and scipy (data, indices, indptr and the attribute
 * shape); other rows an array X. Labels are the array y. All columns of csv are in X, their names and texts in other arrays: see hdf5.h.
 * Attributes of the file:
 *   first_index   the index of column 0 in files of text
 *   dense         1: training has dense rows in memory, though the file has lists
 * Arrays are contiguous, so that each rank can read its rows; the file is a checked one (store/checked.h).
 */
#ifndef TR_DATA_CONVERT_H
#define TR_DATA_CONVERT_H

#include "job/job.h"

struct tr_conversion {
    const tr_job *job;  /* its section data has the options of reading; default of data.label: auto */
    char *const *files; /* names or globs, looked for in data.folders */
    size_t n;
    const char *out;
    /* Called repeatedly with the progress, 0 to 1; a result other than TR_OK ends the conversion. May be NULL. */
    int (*progress)(double done);
    uint64_t rows, columns, nonzeros, bytes, skipped; /* results */
    bool sparse;
};

/* Reads the files twice: the first pass finds the sizes. <out>.part is renamed to <out> when it is complete.
 * TR_ERR_NO_INPUT, TR_ERR_DATA, TR_ERR_CONFIG for formats that are no tables, TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_convert(struct tr_conversion *c);

#endif

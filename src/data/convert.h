/* Tables of any format as one HDF5 file that is read in parallel: trireme convert.
 *
 * Rows that are mostly zeros become lists of non-zeros, in a group X as AnnData and scipy have them (data, indices, indptr and
 * the attribute shape); others an array X. Labels are the array y. Of csv all columns are in X, with their names and texts
 * beside it: see hdf5.h. What else training needs to know are attributes of the file:
 *   first_index   what files of text call column 0
 *   dense         1: rows are to be dense in memory, though they are stored as lists
 * Arrays are in one piece, so that every rank reads its rows by themselves; the file is a checked one (store/checked.h).
 */
#ifndef TR_DATA_CONVERT_H
#define TR_DATA_CONVERT_H

#include "job/job.h"

struct tr_conversion {
    const tr_job *job;  /* of which the section data says how files are read; without data.label it is auto */
    char *const *files; /* names or globs, looked for in data.folders */
    size_t n;
    const char *out;
    /* Called now and then with the part of the work that is done, 0 to 1; anything but TR_OK ends it. May be NULL. */
    int (*progress)(double part);
    uint64_t rows, columns, nonzeros, bytes, skipped; /* what it was */
    bool sparse;
};

/* Reads the files twice: what they are must be known before it is written. <out>.part becomes <out> when it is complete.
 * TR_ERR_NO_INPUT, TR_ERR_DATA, TR_ERR_CONFIG for formats that are no tables, TR_ERR_NO_OUTPUT, TR_ERR_IO. */
int tr_convert(struct tr_conversion *c);

#endif

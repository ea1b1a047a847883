/* Rows of LIBSVM files one after the other, without keeping them: for what reads data once, of any size, in
 * one process. Reads what data/libsvm.h reads, and refuses the same with the same words.
 */
#ifndef TR_DATA_LIBSVM_EACH_H
#define TR_DATA_LIBSVM_EACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/files.h"

struct tr_libsvm_row {
    bool labelled; /* false: the line begins with index:value; label is NaN */
    float label;
    size_t n;
    const uint32_t *index; /* as in the file */
    const float *value;
    const struct tr_files *files; /* where it stands */
    size_t file;
    uint64_t offset;
};

struct tr_libsvm_each_options {
    uint32_t lowest_index; /* 0 or 1 */
    bool unlabelled;       /* lines without a label are fine */
};

/* Calls row() for each row of all files in their order, until it returns anything but TR_OK. */
int tr_libsvm_each(const struct tr_files *files, const struct tr_libsvm_each_options *options,
                   int (*row)(void *state, const struct tr_libsvm_row *row), void *state);

/* Fails with TR_ERR_DATA: `path:line: what`. */
int tr_libsvm_row_fail(const struct tr_libsvm_row *row, const char *what);

#endif

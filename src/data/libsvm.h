/* The LIBSVM text format, `label index:value index:value …` a line, read at the speed of memory.
 *
 * Blanks and tabs separate; # begins a comment; empty lines, CRLF and a last line without newline are fine.
 * Indices must ascend. Values and labels are decimal numbers in the range of float.
 */
#ifndef TR_DATA_LIBSVM_H
#define TR_DATA_LIBSVM_H

#include <stdbool.h>
#include <stdint.h>

#include "data/csr.h"
#include "data/share.h"

#define TR_LIBSVM_MAX_INDEX 4294967294u /* 2^32 - 2: numbers of columns stay below 2^32 */

struct tr_libsvm_options {
    bool skip_errors;      /* drop malformed records and count them; otherwise the first is an error */
    uint32_t lowest_index; /* 0 or 1; 0 accepts both */
    uint32_t max_index;    /* 0: TR_LIBSVM_MAX_INDEX */
    /* Called now and then with the stored bytes that this reader has done; over all readers they sum up to
     * about the files' total. Anything but TR_OK ends the reading with that status. May be NULL. */
    int (*progress)(void *state, uint64_t bytes);
    void *progress_state;
    uint64_t deal;      /* bytes of the chunks of tr_files_deal(); 0: a contiguous share for each reader */
    size_t chunk_bytes; /* parsed at once, for tests of their borders; 0: the usual size */
    size_t most_rows;   /* to be read of the share; 0: all */
    struct tr_read_runs *runs; /* where rows come from is noted there; may be NULL */
};

/* Reads the share of one reader. Columns are stored as in the file, in the order of tr_files_deal(). TR_ERR_DATA
 * describes a malformed record as `path:line: what was found, what was expected`. */
int tr_libsvm_read(const struct tr_files *files, size_t reader, size_t readers,
                   const struct tr_libsvm_options *options, struct tr_csr *csr,
                   struct tr_read_report *report);

#endif

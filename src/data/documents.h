/* Documents one after the other, in one process, without keeping them: for what reads data once. */
#ifndef TR_DATA_DOCUMENTS_H
#define TR_DATA_DOCUMENTS_H

#include "data/look.h"

struct tr_document {
    uint64_t number;      /* from 0; those of the second file follow the first's */
    size_t n;             /* different words, maybe none */
    const uint32_t *word; /* from 0, ascending, each once */
    const float *count;
};

/* Calls document() for each document of docword files in their order, until it returns anything but TR_OK. Records may
 * be in any order, so one file at a time is held: 12 to 24 bytes a record. Errors are those of training. */
int tr_documents_each(const struct tr_files *files, const struct tr_shape *shapes, bool skip_errors,
                      int (*document)(void *state, const struct tr_document *document), void *state);

#endif

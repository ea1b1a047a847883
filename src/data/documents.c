#include "data/documents.h"

#include <stdlib.h>

#include "base/base.h"
#include "data/deal.h"

/* Calls document() for all of one file, those without words too. */
static int each_row(const struct tr_csr *csr, const uint64_t *numbers, uint64_t first, uint64_t documents,
                    int (*document)(void *state, const struct tr_document *document), void *state)
{
    size_t row = 0;
    for (uint64_t i = 0; i < documents; i++) {
        struct tr_document d = {.number = first + i};
        if (row < csr->rows && numbers[row] == i) {
            d.n = (size_t)(csr->begin[row + 1] - csr->begin[row]);
            d.word = csr->column + csr->begin[row];
            d.count = csr->value + csr->begin[row];
            row++;
        }
        TR_TRY(document(state, &d));
    }
    return TR_OK;
}

static int each_of_file(const struct tr_files *file, const struct tr_shape *shape, bool skip_errors,
                        uint64_t first, int (*document)(void *state, const struct tr_document *document),
                        void *state)
{
    struct tr_triples_options options = {
        .format = TR_FORMAT_DOCWORD, .skip_errors = skip_errors, .shape = shape};
    struct tr_triples_report report;
    struct tr_triples triples = {0};
    struct tr_csr csr = {0};
    uint64_t records, *numbers = NULL;
    TR_TRY(tr_triples_read(file, 0, 1, &options, &triples, &records, &report));
    int status = tr_docword_check(file, shape, &records);
    if (status == TR_OK)
        status = tr_triples_to_rows(&triples, shape->documents, (size_t)shape->words, &csr, &numbers);
    if (status == TR_OK) {
        tr_rows_merge(&csr, TR_DUPLICATES_SUM);
        status = each_row(&csr, numbers, first, shape->documents, document, state);
    }
    tr_triples_free(&triples);
    tr_csr_free(&csr);
    free(numbers);
    return status;
}

int tr_documents_each(const struct tr_files *files, const struct tr_shape *shapes, bool skip_errors,
                      int (*document)(void *state, const struct tr_document *document), void *state)
{
    uint64_t first = 0;
    for (size_t i = 0; i < files->n; first += shapes[i++].documents) {
        struct tr_files file = {.file = &files->file[i], .n = 1, .total = files->file[i].size};
        if (file.total > 0) TR_TRY(each_of_file(&file, &shapes[i], skip_errors, first, document, state));
    }
    return TR_OK;
}

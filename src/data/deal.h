/* Records, wherever they were read, as whole rows at the workers that the rows belong to. */
#ifndef TR_DATA_DEAL_H
#define TR_DATA_DEAL_H

#include "data/csr.h"
#include "data/triples.h"
#include "ranks/ranks.h"

/* How rows lie over workers: each belongs to one of some buckets, by its number (data.order: file) or a hash of it
 * (dealt), and each bucket to a worker, so that the non-zeros are balanced. */
struct tr_deal {
    uint64_t rows; /* numbers are 0 .. rows - 1 */
    bool hashed;
    uint64_t buckets;
    uint32_t *worker; /* of each bucket */
};

/* Workers only, together, as are the next. The triples' rows are the numbers of all workers. */
int tr_deal_plan(tr_context *tr, const struct tr_triples *triples, uint64_t rows, bool hashed,
                 struct tr_deal *deal);
void tr_deal_free(struct tr_deal *deal);

/* Sends all triples to the workers of their rows; there they are in the order of the files. gzip pieces that several
 * readers had in turns are put in order where in_turns says so. */
int tr_deal_triples(tr_context *tr, const struct tr_deal *deal, size_t files, bool in_turns,
                    struct tr_triples *triples);

/* Puts the triples, which are freed, together as rows in ascending order of their numbers, listed in *numbers (to be
 * freed). The columns of a row, all less than `columns`, ascend; one that occurs several times has its values in the
 * order of the triples. */
int tr_triples_to_rows(struct tr_triples *triples, uint64_t row_numbers, size_t columns, struct tr_csr *csr,
                       uint64_t **numbers);

/* Makes one non-zero of several in a column: TR_DUPLICATES_…. */
void tr_rows_merge(struct tr_csr *csr, int duplicates);

#endif

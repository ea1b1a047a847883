/* Columns of rows that are spread over the workers: each column is owned by one worker, which sums up what all of them
 * say of it, in the order of workers, so that sums repeat bit by bit.
 */
#ifndef TR_LINEAR_OWNERS_H
#define TR_LINEAR_OWNERS_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/collective.h"

struct tr_owners {
    tr_context *tr;
    size_t n, owned;             /* columns of this worker's rows; columns that it owns … */
    tr_key *key;                 /* … ascending. Those of a worker all come before those of the next one */
    size_t *to_each, *from_each; /* how many columns it says something of to each worker, and each to it … */
    size_t received;             /* … all together */
    uint32_t *slot;              /* whose number each of these has here */
    void *buffer;                /* of them */
};

/* keys: of this worker's rows, ascending, below `all`. All workers. */
int tr_owners_open(tr_context *tr, const tr_key *keys, size_t n, uint64_t all, struct tr_owners *c);
void tr_owners_close(struct tr_owners *c);

/* All workers: a number of each column goes to its owner, who has the sums. */
int tr_owners_sum(struct tr_owners *c, const double *mine, double *sums);

/* All workers: of each column what its owner says. */
int tr_owners_tell(struct tr_owners *c, const unsigned char *owned, unsigned char *mine);

#endif

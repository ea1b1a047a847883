/* Test ratings, brought to the workers that have their users, where the users' factors are.
 */
#ifndef TR_MODEL_MF_MEET_H
#define TR_MODEL_MF_MEET_H

#include "model/mf/mf.h"

struct tr_mf_rating {
    uint64_t user, item; /* numbers, as in the data; those of cold ones are not below m->users, m->items */
    float value;
    uint32_t row; /* which of this worker's training rows the user is; UINT32_MAX: a cold user */
};

/* All workers together. The ratings (to be freed) ascend by user; cold users' are somewhere. */
int tr_mf_meet(const struct tr_mf *m, struct tr_mf_rating **ratings, size_t *n);

#endif

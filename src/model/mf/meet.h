/* Test ratings, brought to the workers that have their users, where the users' factors are.
 */
#ifndef TR_MODEL_MF_MEET_H
#define TR_MODEL_MF_MEET_H

#include "model/mf/mf.h"

struct tr_mf_rating {
    uint32_t row;  /* which of this worker's training rows the user is; UINT32_MAX: a cold user */
    uint32_t item; /* which of the items below; UINT32_MAX: a cold one */
    float value;
};

struct tr_mf_met {
    struct tr_mf_rating *rating; /* by user, and cold users' somewhere */
    size_t n;
    tr_key *item; /* those of the ratings that training has seen, ascending */
    size_t items;
};

/* All workers together. Free with tr_mf_met_free(), also after an error. */
int tr_mf_meet(const struct tr_mf *m, struct tr_mf_met *met);
void tr_mf_met_free(struct tr_mf_met *met);

#endif

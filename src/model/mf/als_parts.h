/* What only the files of alternating least squares share; what they compute on is in als.h.
 *
 *   als       the stage: preparing, computing, evaluating, training
 *   als_open  what a worker holds: ratings both ways, cut into batches, and room for rows that are pulled
 *   als_half  one half of a sweep: rows of the other side as they arrive, and solving for those of the own side
 */
#ifndef TR_MODEL_MF_ALS_PARTS_H
#define TR_MODEL_MF_ALS_PARTS_H

#include "model/mf/als.h"

enum {
    TR_ALS_CHUNK = 1024,    /* ratings that are looked up at a time: room in other, target and next */
    TR_ALS_CODE_SHIFT = 24, /* codes of values stand above places */
    TR_ALS_CODED_PLACES = (1 << TR_ALS_CODE_SHIFT) - 1
};

static inline bool tr_als_implicit(const struct tr_mf *m)
{
    return m->job->model.implicit;
}

/* Of rating k: where the row of the other side stands in side->keys … */
static inline size_t tr_als_place_of(const struct tr_als_side *side, uint64_t k)
{
    return side->code ? side->other[k] & TR_ALS_CODED_PLACES : side->other[k];
}

/* … and what the rating is. */
static inline float tr_als_value_of(const struct tr_als_side *side, uint64_t k)
{
    if (side->code) return side->code[side->other[k] >> TR_ALS_CODE_SHIFT];
    return side->value ? side->value[k] : 1;
}

/* Everything of a worker but test ratings and views: als->m and als->limits are set. tr_mf_als_free() frees it, also
 * after an error. */
int tr_als_open_worker(struct tr_mf_als *als);

/* Slots for what the turns first .. end - 1 need. needed: a byte of scratch for each of side->keys; needs: with room
 * for side->largest keys and a slot for each of side->keys. */
void tr_als_give_slots(const struct tr_als_side *side, size_t first, size_t end, uint8_t *needed,
                       struct tr_als_needs *needs);

void tr_als_needs_free(struct tr_als_needs *needs);

/* Solves all rows of the side als->now: the view's delta has the changes then, which are not pushed yet, and the side
 * has its loss and penalty. first_clock: the other side has its first values, which nobody has pushed. */
int tr_als_solve_side(struct tr_mf_als *als, bool first_clock);

#endif

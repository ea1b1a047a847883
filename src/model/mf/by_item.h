/* Ratings by item: workers hold whole users, and alternating least squares needs whole items as well. */
#ifndef TR_MODEL_MF_BY_ITEM_H
#define TR_MODEL_MF_BY_ITEM_H

#include "trireme/data.h"

/* What one worker has of the ratings, as columns. */
struct tr_by_item {
    uint64_t first; /* its items are first .. first + n - 1 */
    size_t n;
    uint64_t *begin; /* ratings of item i: begin[i] .. begin[i + 1] - 1 */
    uint32_t *user;  /* their users' numbers, in no particular order */
    float *value;    /* NULL: all are 1, on all workers */
};

/* Cuts the items into a range for each worker, with about the same work in each, and hands every worker the ratings of
 * its items. item_work is the work that an item takes besides its ratings, counted in ratings. Workers only, all
 * together; nobody holds anything of all items or users, and messages are of a few megabytes. Users' numbers must be
 * below 2^32. Free with tr_by_item_free(). */
int tr_by_item_open(tr_context *tr, const tr_data *ratings, uint64_t items, double item_work,
                    struct tr_by_item *by_item);
void tr_by_item_free(struct tr_by_item *by_item);

#endif

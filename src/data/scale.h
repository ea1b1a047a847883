/* Columns brought to one size (data.scale): x becomes (x - shift) × factor.
 *
 * Each worker owns an equal range of the columns: it gets what the others have summed up of theirs there, decides what
 * becomes of them, and tells whoever has such columns. So nobody needs more memory than its own columns and its share
 * take. Factors have 12 significant bits and shifts are multiples of the spread / 1024, so that rounding in another order,
 * on another number of ranks, leads to the same.
 */
#ifndef TR_DATA_SCALE_H
#define TR_DATA_SCALE_H

#include "data/dataset.h"

struct tr_scale {
    tr_scaling share; /* what tr_data.scaling shows */
    double *
        shift; /* of this worker's range of columns, as share says; NULL: dense rows are not centred either */
    double *factor; /* … */
    double least,
        most; /* sizes of columns in the files: below the least 1 % of the non-zeros lie; of the largest */
    int how;  /* TR_SCALE_STANDARD … */
};

/* Whether the job and who opened the data want them scaled, if auto finds that good. */
bool tr_scale_is_wanted(const tr_data *data);

/* Before rows are replicated and columns numbered: decides about the training data (like: NULL), or does with test data as
 * was done with those. All ranks; workers have the rows. data->state->scale stays NULL where nothing is scaled. */
int tr_scale_rows(tr_data *data, const tr_data *like);

/* Scales other rows of the same columns: all workers together, perhaps with no rows. */
int tr_scale_matrix(const tr_data *data, const struct tr_scale *scale, struct tr_matrix *m);

/* Whether rows that are still sparse would be scaled, and, if they were dense, centred: all ranks. Changes nothing. */
int tr_scale_would_centre(tr_data *data, bool *would);

/* One line for rank 0 to say. */
void tr_scale_say(const tr_data *data);

void tr_scale_free(struct tr_scale **scale); /* NULL inside is fine */

#endif

/* Training data: sparse rows, read in parallel, each worker its part.
 */
#ifndef TRIREME_DATA_H
#define TRIREME_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Some rows. Row i holds the non-zeros begin[i] .. begin[i + 1] - 1 of column and value; its columns ascend
 * and number the keys of the data, as a view of these keys does. Owned by the data they come from. */
typedef struct tr_batch {
    size_t n; /* rows */
    const uint64_t *begin;
    const uint32_t *column;
    const float *value; /* NULL when every value is 1 */
    const float *label;
} tr_batch;

enum tr_data_part { TR_DATA_TRAIN, TR_DATA_TEST };

/* What one worker holds of a data set. Inside a group the rows are divided as data.partition says:
 *   horizontal  each member has its own rows; all members number the same keys (the union of theirs)
 *   vertical    each member has all rows of the group, but only its own columns of them */
typedef struct tr_data {
    uint64_t total_rows, total_nonzeros; /* over all workers; known on all ranks, as are the next two */
    uint64_t columns;                    /* features: keys are 0..columns-1 */
    uint32_t first_index;                /* the file's index of key 0: 0 or 1 */
    size_t labels;                       /* distinct labels, 3 standing for more than two … */
    float label[3];                      /* … ascending */
    uint64_t skipped;                    /* malformed records left out (data.on_error: skip) */
    tr_batch rows;                       /* of this worker */
    tr_key *keys;                        /* n_keys of them, ascending: what rows.column counts */
    size_t n_keys;
    struct tr_data_state *state;
} tr_data;

/* Reads the files of data.train or data.test. All ranks, outside tr_run(); servers and the scheduler learn
 * the totals only. For test data, `like` is the training data whose columns count: others are dropped.
 * Errors are agreed on. Free with tr_data_close(). */
int tr_data_open(tr_context *tr, enum tr_data_part part, const tr_data *like, tr_data **data);
void tr_data_close(tr_data **data);

/* Where the third kind of label was met, and what it is; for messages, if labels is 3. */
const char *tr_data_third_label(const tr_data *data);

/* x_i · w for a vector w over the keys. */
static inline double tr_row_dot(const tr_batch *b, size_t i, const float *w)
{
    double sum[2] = {0, 0};
    uint64_t k = b->begin[i], end = b->begin[i + 1];
    if (b->value)
        for (; k < end; k++) sum[k & 1] += (double)b->value[k] * (double)w[b->column[k]];
    else
        for (; k < end; k++) sum[k & 1] += (double)w[b->column[k]];
    return sum[0] + sum[1];
}

/* w += a x_i */
static inline void tr_row_add(const tr_batch *b, size_t i, float a, float *w)
{
    for (uint64_t k = b->begin[i]; k < b->begin[i + 1]; k++)
        w[b->column[k]] += b->value ? a * b->value[k] : a;
}

#ifdef __cplusplus
}
#endif
#endif

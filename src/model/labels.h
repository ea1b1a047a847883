/* Labels as classes, the weights of rows that follow from them (model.class_weights), and quantiles of labels. */
#ifndef TR_MODEL_LABELS_H
#define TR_MODEL_LABELS_H

#include "trireme/collective.h"
#include "trireme/trireme.h"

/* Returns whether labels are classes if the job does not say so: there are at most two, or few, which are whole numbers. */
bool tr_labels_are_classes(const tr_data *train);

/* Returns the index of a label among n ascending ones; n if it is not one of them. */
size_t tr_label_place(const float *labels, size_t n, float label);

/* Returns the index of the first label of the test data that the training data do not have; test->labels if they have all. */
size_t tr_label_unknown(const tr_data *train, const tr_data *test);

/* Prints the number of test rows with such a label. For test data that are a share of data.train, where this is chance.
 * All ranks. */
int tr_labels_note_unknown(tr_context *tr, const tr_data *train, const tr_data *test);

/* Checks that the text of the key is «balanced», a list of «label:weight», or empty. TR_ERR_CONFIG. */
int tr_class_weights_check(const tr_job *job, const char *text);

/* Computes the weight of each of n ascending labels; 1 for labels that the text does not contain. count[k] is the
 * weight of the rows with label k by data.weight: «balanced» makes the weights of all labels equal. TR_ERR_CONFIG if no
 * row has a label of the text. */
int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight);

/* Checks model.init: an earlier run in the output folder is moved away before the model is read, so `path` must not be
 * in that folder. TR_ERR_CONFIG. */
int tr_check_initial(const tr_job *job, const char *path);

/* ---- weighted quantiles of numbers that are distributed over ranks: leaves of trees, targets of a regression ---- */

/* Some rows of a rank; row NULL: 0 .. n - 1. */
struct tr_row_set {
    const uint32_t *row;
    size_t n;
};

/* Computes a quantile of each of n sets of rows: the smallest number such that the rows up to it have at least this part of the
 * weight of the set. An empty set has the quantile 0. The result does not depend on the number of ranks. All members of
 * `ranks` call it.
 *
 * @param [in] value, weight  of all rows of this rank; weight NULL: all are 1
 */
int tr_weighted_quantiles(tr_context *tr, enum tr_set ranks, const struct tr_row_set *set, size_t n,
                          const float *value, const float *weight, double part, float *quantile);

/* Maps floats to unsigned integers of the same order; -0 and 0 are equal. */
static inline uint32_t tr_key_of_float(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x + 0.0f};
    return u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
}

static inline float tr_float_of_key(uint32_t key)
{
    union {
        uint32_t bits;
        float value;
    } u = {key & 0x80000000u ? key & 0x7fffffffu : ~key};
    return u.value;
}

#endif

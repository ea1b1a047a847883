/* Functions of labels: whether labels are classes, the weights of their rows (model.class_weights), weighted quantiles, and the
 * scale of the targets of a regression. */
#ifndef TR_MODEL_LABELS_H
#define TR_MODEL_LABELS_H

#include "loss.h"
#include "trireme/collective.h"
#include "trireme/trireme.h"

/* Decides whether labels are classes, for jobs that do not say so: names, at most two labels, at most 20 integers, and up to 100
 * integers that number classes from 0 or 1, none of which is rare. All ranks. */
int tr_labels_decide(tr_context *tr, const tr_data *train, bool *classes);

/* Prints that decision: the chosen value of `key`, the labels, and another value that takes them otherwise. */
void tr_labels_say(tr_context *tr, const tr_data *train, const char *key, const char *chosen,
                   const char *other, bool classes);

/* Checks that a model of classes, or of numbers, can learn the labels. TR_ERR_DATA with another value of `key` that can if it is
 * of numbers and labels are names, or of classes and labels are more than 20 real numbers. */
int tr_labels_check(const tr_job *job, const tr_data *train, const char *key, const char *type,
                    const char *other, bool classes);

/* Returns the index of `label` in an ascending array of n labels; n if the array does not contain it. */
size_t tr_label_place(const float *labels, size_t n, float label);

/* Prints the number of test rows with a label that no training row has. TR_ERR_DATA if all test rows have such labels, because the
 * files then use different labels. All ranks. */
int tr_labels_check_test(tr_context *tr, const tr_data *train, const tr_data *test);

/* Checks that the text of model.class_weights is «balanced», a list of «label:weight», or empty. TR_ERR_CONFIG if not. */
int tr_class_weights_check(const tr_job *job, const char *text);

/* Computes the factor by which model.class_weights (`text`) multiplies the weights of the rows of each of n ascending labels; 1 for
 * labels that the text does not contain. count[k] is the sum of data.weight over the rows with label k. «balanced» makes the
 * weighted sums of all labels equal. TR_ERR_CONFIG if no row has a label of the text. */
int tr_class_weights_find(const tr_job *job, const char *text, const float *label, const double *count,
                          size_t n, double *weight);

/* Checks that `path`, the value of model.init, is not in the output folder: an earlier run in that folder is moved away before the
 * model is read. TR_ERR_CONFIG if it is. */
int tr_check_initial(const tr_job *job, const char *path);

/* ---- weighted quantiles of numbers that are distributed over ranks (leaves of trees, targets of a regression) ---- */

/* Indices of n rows of this rank; row NULL: the rows 0 .. n - 1. */
struct tr_row_set {
    const uint32_t *row;
    size_t n;
};

/* Computes a quantile of each of n sets of rows: the smallest value v such that the rows with values up to v have at least the
 * fraction `part` of the weight of the set. An empty set has the quantile 0. The result does not depend on the number of ranks. All
 * members of `ranks` call it.
 *
 * @param [in] value, weight  one element for each row of this rank; weight NULL: all weights are 1
 */
int tr_weighted_quantiles(tr_context *tr, enum tr_set ranks, const struct tr_row_set *set, size_t n,
                          const float *value, const float *weight, double part, float *quantile);

/* Measures the n targets of this rank, on which defaults depend that have the unit of the targets (model.delta, model.l2).
 *
 * @param [in]  weight  one element for each target; NULL: all weights are 1
 * @param [in]  mean    mean of the targets of all ranks
 * @param [out] median  of the targets of all ranks
 * @param [out] scale   their median absolute deviation; if it is 0, their standard deviation; 1 if all targets are equal
 * @param [out] name    name of the scale, for messages
 */
int tr_targets_measure(tr_context *tr, enum tr_set ranks, const float *target, const float *weight, size_t n,
                       double mean, double *median, double *scale, const char **name);

/* Maps a float to an unsigned integer. The integers compare as their floats do; -0 and 0 have the same integer. */
static inline uint32_t tr_key_of_float(float x)
{
    union {
        float value;
        uint32_t bits;
    } u = {x + 0.0f};
    return u.bits & 0x80000000u ? ~u.bits : u.bits | 0x80000000u;
}

/* Returns the float whose tr_key_of_float() is `key`. */
static inline float tr_float_of_key(uint32_t key)
{
    union {
        uint32_t bits;
        float value;
    } u = {key & 0x80000000u ? key & 0x7fffffffu : ~key};
    return u.value;
}

/* Finds the b with the least Σ weight × φ(b + offset, target) over the rows of a set of ranks: the best constant margin of rows
 * with offsets. All ranks of the set.
 *
 * @param [in] first, end  this rank's rows are first .. end - 1
 * @param [in] target      targets by row: ±1 for classifiers
 * @param [in] weight      weights by row; NULL: all are 1
 */
int tr_constant_beside_offsets(tr_context *tr, enum tr_set ranks, const struct tr_loss *loss, double shape,
                               size_t first, size_t end, const float *target, const float *weight,
                               const float *offset, double *constant);

#endif

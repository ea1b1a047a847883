/* Model files of matrix factorization.
 *
 * model.h5: /users and /items (rows of `rank` factors), /user_bias and /item_bias (where the model has them), /user_ids
 * and /item_ids (what the rows are called in the data: whole numbers, or texts padded with zeros), /job; attributes
 * method, rank, users, items, ratings, mean (what a cold user gets of a cold item), centred and bias (1 or 0), implicit,
 * l2, train_rmse, test_rmse. A rating is row · row, plus the mean where centred, plus user_bias and item_bias where there
 * are biases.
 */
#ifndef TR_MODEL_MF_FILE_H
#define TR_MODEL_MF_FILE_H

#include "data/names.h"
#include "store/h5.h"
#include "model/mf/mf.h"

#define TR_MF_FORMAT         "trireme-mf"
#define TR_MF_FORMAT_VERSION 1

/* Writes <folder>/model.h5 from the tables: all ranks, outside tr_run(). Rank 0 writes, in pieces. The outcome is
 * agreed on. */
int tr_mf_save(struct tr_mf *m, const char *folder);

/* One side of a model in memory. */
struct tr_mf_saved_side {
    uint64_t n;
    float *row, *bias; /* n × rank; n, or NULL */
    struct tr_name_list names;
    void *name_memory[2]; /* what the names are made of */
};

struct tr_mf_saved {
    char *path, *method, *job;
    uint64_t rank, ratings;
    bool centred, bias, implicit;
    double mean, l2, train_rmse, test_rmse; /* NaN: no test data */
    struct tr_mf_saved_side user, item;
};

/* Reads a model.h5, or that of a folder. Errors as tr_h5_open(). Free with tr_mf_saved_free(). */
int tr_mf_load(const char *path, struct tr_mf_saved **model);
void tr_mf_saved_free(struct tr_mf_saved **model);

/* What is predicted; a number not below n is cold. */
double tr_mf_saved_predict(const struct tr_mf_saved *model, uint64_t user, uint64_t item);

/* The best items of a user, best first: at most *n of them, whose numbers and ratings have room for so many; equal ones
 * by their number. */
int tr_mf_saved_best(const struct tr_mf_saved *model, uint64_t user, size_t *n, uint64_t *item,
                     double *rating);

#endif

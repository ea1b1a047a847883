/* model/ — what is learnt. Built on the public headers alone; a folder each:
 *
 *   linear/   logistic and linear regression, support vectors
 *   kmeans/   clusters
 *   mf/       matrix factorization
 *   lda/      topics
 *
 *   classes   the list of these
 *   model     for who trains whatever the job says
 */
#ifndef TR_MODEL_H
#define TR_MODEL_H

#include "job/job.h"
#include "trireme/model.h"
#include "trireme/trireme.h"

/* What is known of a run besides its progress. */
struct tr_result {
    uint64_t rows, columns, nonzeros; /* of the training data */
    double test_auc, test_perplexity; /* NaN: none */
};

/* A kind of model, as training sees it. Outcomes are agreed on: all ranks get the same. */
struct tr_model_kind {
    /* Whether the settings suit each other; before data are read. */
    int (*check)(const tr_job *job);
    /* Reads the data, says how they lie, makes tables. All ranks. Fills the counts of the result. */
    int (*open)(tr_context *tr, struct tr_result *result, void **model);
    /* Runs the stages: all ranks. */
    int (*train)(void *model);
    /* Writes model.h5 into the folder: all ranks. May add to the result. */
    int (*save)(void *model, const char *folder, struct tr_result *result);
    void (*close)(void **model); /* NULL inside is fine */
};

/* That of the job's class. */
extern const struct tr_model_kind tr_class_kind;

#endif

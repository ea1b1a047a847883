/* Tasks that run `average`: how good the mean of several models' predictions is, and each of them alone, on data.test.
 *
 * The models are linear ones, as the tasks in tasks.NAME.after have written them. If all are logistic, the mean is that of
 * probabilities, otherwise that of margins (w · x + bias); a feature that a model does not know counts nothing. Each
 * worker takes its part of the rows, and holds of the models what its rows need.
 */
#ifndef TR_CLI_AVERAGE_H
#define TR_CLI_AVERAGE_H

#include <stdio.h>

#include "job/job.h"
#include "trireme/model.h"

struct tr_average;

/* Whether there can be such a mean, before anything has run; TR_ERR_CONFIG. */
int tr_average_check(const tr_job *job, const struct tr_job_task *task);

/* For tr_train_here(), which closes and frees it. All ranks of the team. */
int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average);
extern const tr_model_class tr_average_class;

/* What summary.json has more: test_log_loss, and models, an object for each with task, model, type and figures. For
 * tr_services_summary(), once it is trained. */
void tr_average_members(FILE *file, void *average);

#endif

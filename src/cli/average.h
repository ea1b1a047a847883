/* Tasks that run `average`: they evaluate the mean of the predictions of several models, and each model alone, on data.test.
 *
 * The models are of one class, which knows what of their predictions has a mean (tr_model_class.mean). Each worker takes its
 * part of the rows, whole ones, and asks all models; rank 0 evaluates. A column that a model does not know counts nothing.
 */
#ifndef TR_CLI_AVERAGE_H
#define TR_CLI_AVERAGE_H

#include <stdio.h>

#include "job/job.h"
#include "trireme/model.h"

struct tr_average;

/* Checks before anything runs that there can be such a mean; TR_ERR_CONFIG. */
int tr_average_check(const tr_job *job, const struct tr_job_task *task);

/* For tr_train_here(), which closes and frees it. All ranks of the team. */
int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average);
extern const tr_model_class tr_average_class;

/* What summary.json has more: models, an object for each with task, model, type and figures. For
 * tr_services_summary(), once it is trained. */
void tr_average_members(FILE *file, void *average);

#endif

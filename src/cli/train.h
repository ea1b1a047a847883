/* Training: one job (train.c), jobs of several tasks (tasks.c, average.c), and the decisions before it (explain.c). */
#ifndef TR_CLI_TRAIN_H
#define TR_CLI_TRAIN_H

#include <stdio.h>

#include "program/program.h"
#include "stage/stage.h"
#include "trireme/model.h"

/* Runs the job of the context: reads the data, trains, and writes the results to its folder; resumes from the checkpoint of a run that
 * stopped there. All ranks; the status is agreed, and rank 0 has printed the error or that the run stopped (TR_ERR_STOPPED: only a
 * checkpoint has been written).
 *
 * @param [in]  class      class of the job's model, or another one that is trained in its place
 * @param [in]  model      NULL, or a model for open() of the class; it is closed and freed
 * @param [out] objective  on rank 0: the last objective, or NaN
 */
int tr_train_here(tr_context *tr, const tr_model_class *class, void *model,
                  const struct tr_run_options *options, double *objective);

/* `trireme train`, for commands that train. Words and settings are those of train. Returns the exit code. */
int tr_train(const struct tr_arguments *arguments, const struct tr_run_options *options);

extern const char *const tr_all_keys[]; /* of struct tr_syntax */

/* ---- jobs of several tasks (tasks.c) ----
 *
 * Rank 0 schedules the tasks (stage/scheduler.h). The ranks of a task form a team: a context of their own, in which the task runs as
 * a plain job runs on all ranks. Rank 0 can be a member of teams as well; it handles reports of other teams while its own team waits.
 *
 * A run that has not ended is resumed: tasks that are done are not run again. A task runs on tasks.NAME.ranks ranks, or on all ranks
 * if there are fewer; 0 means all ranks that are free when it starts. If a task fails, tasks after it are not run; all others are.
 */

/* Runs the tasks of the context's job (tr_context_read()). All ranks; all get the status of the first task that failed, and rank 0 has
 * printed it. */
int tr_tasks_run(tr_context *world, const struct tr_run_options *options);

/* ---- tasks that run `average` (average.c) ----
 *
 * They evaluate the mean of the predictions of several models, and each model alone, on data.test. The models are of one class, which
 * defines the mean of their predictions (tr_model_class.mean). Each worker takes whole rows and asks all models; rank 0 evaluates.
 * Values in columns that a model does not have are ignored.
 */
struct tr_average;
extern const tr_model_class tr_average_class;

/* Checks before anything runs that the mean is defined. TR_ERR_CONFIG. */
int tr_average_check(const tr_job *job, const struct tr_job_task *task);

/* Creates the model for tr_train_here(), which closes and frees it. All ranks of the team. */
int tr_average_new(const tr_job *job, const struct tr_job_task *task, struct tr_average **average);

/* Writes the member `models` of summary.json, for tr_services_summary(): an object for each model, with task, model, type and figures. */
void tr_average_members(FILE *file, void *average);

/* ---- before training (explain.c) ---- */

/* Prints an estimate of the memory that the job needs, and decides whether its rows are stored on disk (tr->storage) if the job leaves
 * that open. All ranks. TR_ERR_CONFIG: there is not enough memory. */
int tr_say_estimate(tr_context *tr);

/* train --explain prints all decisions before training starts: lines «explain: ...» on stderr of rank 0, even with report.progress=no. */

/* Makes the settings of MPI and prints them. Call it before MPI starts, which adds its own. */
void tr_explain_settings(void);

/* Prints the roles of all ranks and their hosts. All ranks. */
int tr_explain_layout(tr_context *tr);

/* Prints the location of tables and the transfer of views, when a stage is ready: for tr_on_ready(). */
int tr_explain_stage(void *tr, const tr_stage *stage);

#endif

/* What trireme train does for a plain job, and for each task of a job that has several. */
#ifndef TR_CLI_TRAIN_H
#define TR_CLI_TRAIN_H

#include "program/program.h"
#include "trireme/model.h"

/* Runs the job of the context: reads, trains, writes and leaves all in its folder; where a run of it has stopped there and
 * has left a checkpoint, goes on with that. All ranks; the outcome is agreed on, and rank 0 has said it if it is an error,
 * or TR_ERR_STOPPED: then nothing but a checkpoint has been written. The class is that of the job's model, or another that is
 * trained as one; model is NULL, or what the class's open() takes as given; it is closed and freed. *objective, on rank 0:
 * the last one, or NaN. */
int tr_train_here(tr_context *tr, const tr_model_class *class, void *model,
                  const struct tr_run_options *options, double *objective);

/* The command, for commands that train: the words and settings are those of `trireme train`. Returns the exit code. */
int tr_train(const struct tr_arguments *arguments, const struct tr_run_options *options);

extern const char *const tr_all_keys[]; /* of struct tr_syntax */

#endif

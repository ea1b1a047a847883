/* The job's settings by name, for models and programs that are not ours.
 *
 * A name is "section.key", as in the job file and on the command line; `trireme help job` lists them all. Every
 * key has a value: what the job says, else the default. "stages.NAME.key" and "tasks.NAME.key" are keys when the
 * job speaks of a stage or a task of that name, "tasks.NAME.section.key" is what counts for that task.
 */
#ifndef TRIREME_JOB_H
#define TRIREME_JOB_H

#include <stdint.h>

#include "trireme/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_job tr_job; /* a job as read; see tr_context_job() */

/* What a key of kind number holds when the job has a word in place of the number. A stage's parallelism is an
 * integer: 0 for all, UINT64_MAX for auto. */
enum { TR_JOB_AUTO = -1 };

/* real takes numbers and integers; integer takes integers, yes/no and choices (their place in the list of help);
 * string takes text and the word of a choice, and belongs to the job. Other kinds, unknown keys: TR_ERR_CONFIG. */
int tr_job_real(const tr_job *job, const char *key, double *value);
int tr_job_integer(const tr_job *job, const char *key, uint64_t *value);
int tr_job_string(const tr_job *job, const char *key, const char **value);

#ifdef __cplusplus
}
#endif
#endif

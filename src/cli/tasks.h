/* Jobs of several tasks. Rank 0 schedules them (stage/scheduler.h). The ranks of a task form a team: a context of their own, in
 * which the task runs as a plain job runs on all ranks. Rank 0 can be a member of teams as well; it handles reports of other
 * teams while its own team waits.
 *
 * If an earlier run of the job has not ended, it is continued: tasks that are done are not run again.
 *
 * A task runs on tasks.NAME.ranks ranks, or on all ranks if there are fewer; 0 means all ranks that are free when it begins.
 * If a task fails, tasks after it are not run; all others are.
 */
#ifndef TR_CLI_TASKS_H
#define TR_CLI_TASKS_H

#include "cli/train.h"
#include "ranks/ranks.h"

/* Runs the tasks of the context's job (tr_context_read()). All ranks; all get the same status, that of the first task that
 * failed, and rank 0 has said it. */
int tr_tasks_run(tr_context *world, const struct tr_run_options *options);

#endif

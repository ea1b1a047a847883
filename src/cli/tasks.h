/* Jobs of several tasks: rank 0 schedules, the others wait to be told which task is theirs; those who get the same make a
 * team, a context of their own, in which the task is what a plain job is on all ranks. Rank 0 is a member of teams as
 * well: while its team waits for something, it looks after the others.
 *
 * Started again, a job whose run has not ended goes on with it: tasks that are done are not run again.
 *
 * A task runs on as many ranks as tasks.NAME.ranks says, or as there are if those are fewer; with 0 on all that are free
 * when it begins. One that fails ends alone: those that come after it are not run, all others are.
 */
#ifndef TR_CLI_TASKS_H
#define TR_CLI_TASKS_H

#include "cli/train.h"
#include "ranks/ranks.h"

/* Runs the tasks of the context's job (tr_context_read()). All ranks; all get the same status, that of the first task that
 * failed, and rank 0 has said it. */
int tr_tasks_run(tr_context *world, const struct tr_run_options *options);

#endif

/* Files that several tasks of a job learn from are read once on each node, by all its ranks, before the first task begins
 * (data/dataset.h), and are freed when the last of these tasks has ended. */
#ifndef TR_CLI_TASK_ROWS_H
#define TR_CLI_TASK_ROWS_H

#include "cli/tasks.h"

struct tr_task_rows;

/* wanted: of each task of the job, whether it will be run, on rank 0; what is wanted once or does not fit, each task reads for itself.
 * All ranks. Free with tr_task_rows_close(), all ranks together, too. */
int tr_task_rows_open(tr_context *world, const bool *wanted, struct tr_task_rows **rows);
void tr_task_rows_close(tr_context *world, struct tr_task_rows **rows);

/* The set of rows of a task: 0 .. n - 1, or -1: it reads its own. */
int tr_task_rows_of(const struct tr_task_rows *rows, size_t task);
int tr_task_rows_count(const struct tr_task_rows *rows);

/* The number of readings of training data for several tasks. */
uint64_t tr_task_rows_readings(const struct tr_task_rows *rows);

/* No task will use these rows any more: the memory is freed when all ranks of the node have called this. Each rank on its own. */
void tr_task_rows_forget(struct tr_task_rows *rows, int which);

#endif

/* Tasks that run `best`: of all that a job has, the one is trained whose tasks in `after` have done best, in the mean over
 * them, and no other. So a sweep trains each of its settings on every fold, and the best one of them on all rows. Tasks with `best: K`
 * are such, too: those K of them go on that come after the best. So a sweep by halving drops the worse half in each round. */
#ifndef TR_CLI_BEST_H
#define TR_CLI_BEST_H

#include "monitor/monitor.h"
#include "stage/schedule.h"

/* Whether there is something to compare them by, before anything has run; TR_ERR_CONFIG. */
int tr_best_check(const tr_job *job, const struct tr_job_task *task);

/* Rank 0, when a task has ended and before others begin: once all others are over, the best ones are free to begin, or done if an
 * earlier part of the run has done them, the others on their turn are dropped, and behind the last turn a table says why. True when
 * that has just happened, and may again: *any is whether there is a best one. */
bool tr_best_choose(const tr_context *world, struct tr_schedule *schedule, struct tr_task_row *row,
                    bool *any);

/* Whether such a task comes after this one: if that fails, the others still have a best one. */
bool tr_best_follows(const tr_job *job, size_t task);

#endif

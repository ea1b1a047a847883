/* The folder of a job of several tasks: job.yaml, status.json and summary.json, as monitor.h has them, of the whole job.
 * Both JSON files have a member `tasks`, an object for each in the order of the job:
 *
 *   name, state       waiting, running, done, failed, stopped, not run (it comes after one that failed)
 *   ranks             that it runs or ran on, null before, and where an earlier part of the run has done it
 *   waited, seconds   from when it could have begun until it did; since then
 *   objective         the last that was evaluated, null where there is none
 *   status, error     exit code and text, null while there is none
 *   output            its own folder
 *
 * summary.json has besides: total_seconds, status (exit code of the first task that failed, or 0), readings (how often training data
 * were read from their files, by a task or for several), ranks, version, host, job.
 */
#ifndef TR_MONITOR_TASKS_H
#define TR_MONITOR_TASKS_H

#include "stage/schedule.h"
#include "stage/stage.h"

struct tr_task_row {
    const char *name, *output;
    const struct tr_scheduled
        *scheduled;    /* state, ranks and times; done without ranks: in an earlier part of the run */
    double objective;  /* NaN: none */
    uint64_t readings; /* of training data by its team */
    int status;        /* once it has ended */
    char error[512];   /* "" where there is none */
};

struct tr_tasks_folder;

/* All of these on rank 0 alone, world being the context of the whole job, and the n rows those of who runs it.
 *
 * Prepares the folder, or takes that of the run that goes on. TR_ERR_NO_OUTPUT: there can be no such folder. */
int tr_tasks_folder_open(tr_context *world, const struct tr_task_row *row, size_t n, bool goes_on,
                         struct tr_tasks_folder **folder);

/* So many readings were for several tasks. */
void tr_tasks_folder_note_readings(struct tr_tasks_folder *folder, uint64_t readings);

/* Writes status.json, at once or if about a second has gone by. */
int tr_tasks_folder_renew(struct tr_tasks_folder *folder, bool at_once);

/* Writes down how the job ended, shows the table of tasks, and forgets the folder (NULL is fine). Returns the status, or,
 * if all was well until here, that of this last write. */
int tr_tasks_folder_close(struct tr_tasks_folder **folder, int status);

#endif

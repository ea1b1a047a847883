/* Tasks: sequences of stages, each with the number of workers that its work is worth (FlexPS, sections 3 and 4).
 *
 * The scheduler selects the next stage, its number of clocks and of workers. The selected workers run it; the others sleep
 * or run another stage. Tables, data and the views of a stage remain in place, so that a transition costs a few messages.
 * A stage sees all updates of the stages before it, and its clocks start at 0.
 */
#ifndef TRIREME_TASK_H
#define TRIREME_TASK_H

#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Special numbers of workers. Every group takes part in a stage unless the stage has one_group set. If the number of
 * workers is no multiple of the number of groups, the workers take turns, that number at a time. */
enum {
    TR_ALL_WORKERS = 0,  /* all; in a stage with one_group all of that group */
    TR_AUTO_WORKERS = -1 /* determined while the stage runs: FlexPS, section 5.4 */
};

/* The stage to run next. */
typedef struct tr_next {
    int stage; /* index in the task; -1: the task is complete */
    int64_t clocks;
    int workers;
    int servers;        /* number of servers of the task's tables from now on; 0: unchanged */
    tr_command command; /* passed to the workers as tr_worker.command */
} tr_next;

/* The stage that ran last. */
typedef struct tr_ran {
    int stage; /* -1: none yet */
    int64_t clocks;
    int workers;              /* number of workers that took part, some of them possibly in turns */
    int first_group;          /* first group whose workers took part */
    double seconds;           /* from the begin of the first clock to the end of the last */
    tr_evaluation evaluation; /* its last evaluation, if the stage has evaluate() */
} tr_ran;

typedef struct tr_task {
    const char *name;
    const tr_stage *stage; /* n stages, equal on all ranks except for their state; next() sets their clocks */
    size_t n;
    tr_table *const *table; /* tables that tr_next.servers applies to; may be NULL */
    size_t tables;          /* number of these tables */
    int64_t evaluations;    /* upper bound of the evaluations of all stages, for progress; 0: unknown */
    void *state;            /* argument of the functions below */

    /* Selects the next stage. Called on the scheduler, before the first stage and after every stage. */
    int (*next)(void *state, const tr_ran *ran, tr_next *next);

    /* Lists the state of the task in checkpoints, above all the state of next(): see trireme/snapshot.h. Called on all
     * ranks that take part. `me` describes a stage of all workers (worker is negative on ranks that do not compute), but
     * before, whole and command belong to the stage that runs next; they are restored when the run resumes. Checkpoints
     * are taken between stages, after next(). For checkpoints during long stages, stages without begin() and evaluate()
     * run in parts of about 0.1 s (tr_worker.before). NULL: no checkpoints; a resumed run repeats the task. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_task;

/* Runs a task to its end. All ranks must call it.
 *
 * @return the agreed outcome; the first stage that fails ends the task
 */
int tr_run_task(tr_context *tr, const tr_task *task);

#ifdef __cplusplus
}
#endif
#endif

/* Tasks: stages that run one after the other, each with as many workers as its work is worth (FlexPS, sections 3 and 4).
 *
 * The scheduler says which stage is next, for how many clocks and on how many workers; those who take part are told, the
 * others rest or do something else. Tables, data and what a stage keeps stay where they are, so that going from one stage
 * to the next costs a few messages. A stage sees all updates of the stages before it, and its clocks begin at 0.
 */
#ifndef TRIREME_TASK_H
#define TRIREME_TASK_H

#include "trireme/stage.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many workers: a number, or one of these. Every group takes part in a stage that is not of one group: where the number
 * is no multiple of theirs, workers take turns, so many at a time. */
enum {
    TR_ALL_WORKERS = 0,  /* of a stage of one group: all of that group */
    TR_AUTO_WORKERS = -1 /* found while it runs: FlexPS, section 5.4 */
};

/* What runs next. */
typedef struct tr_next {
    int stage; /* its number in the task; -1: the task is done */
    int64_t clocks;
    int workers;
    int servers;        /* that the tables of the task lie on from now on; 0: as they do */
    tr_command command; /* for the workers: tr_worker.command */
} tr_next;

/* What has run last. */
typedef struct tr_ran {
    int stage; /* -1: none yet */
    int64_t clocks;
    int workers;              /* that took part, perhaps some of them at a time */
    int first_group;          /* of those whose workers it ran on last */
    double seconds;           /* from the first clock's begin to the last one's end */
    tr_evaluation evaluation; /* of its last evaluation, if it is judged */
} tr_ran;

typedef struct tr_task {
    const char *name;
    /* n of them, the same on all ranks but for their state; clocks are said by next() */
    const tr_stage *stage;
    size_t n;
    tr_table *const *table; /* so many, which tr_next.servers is about; or NULL */
    size_t tables;
    int64_t evaluations; /* of all its stages together, at most: for progress; 0: unknown */
    void *state;
    /* The scheduler, before the first stage and after every one. */
    int (*next)(void *state, const tr_ran *ran, tr_next *next);
    /* All ranks: lists what checkpoints have to keep of the task's owner beside the tables, above all what next() goes by,
     * and what they fill when the run goes on: see trireme/snapshot.h. me: as a stage of all workers sees itself (worker below
     * 0 on ranks that do not work), but before, whole and command are those of what runs next, the same on all ranks, and
     * when the run goes on they are as they were. Checkpoints are taken between runs of stages, when next() has been
     * asked; and so that they can be taken in long runs, too, stages without begin() and evaluate() run in parts of about a
     * tenth of a second: see tr_worker.before. NULL: no checkpoints are taken of this task; going on, it is run again from
     * its beginning. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_task;

/* Runs a task to its end: all ranks. Returns the agreed outcome: the first stage that fails ends it. */
int tr_run_task(tr_context *tr, const tr_task *task);

#ifdef __cplusplus
}
#endif
#endif

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

/* How many workers: a number, or one of these. A stage in which every group takes part has as many workers of each, so
 * the number is rounded down to a multiple of the groups, but there is one of each at least. */
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
    int workers;
    int first_group;    /* of those whose workers it ran on last */
    double seconds;     /* from the first clock's begin to the last one's end */
    tr_verdict verdict; /* of its last evaluation, if it is judged */
} tr_ran;

typedef struct tr_task {
    const char *name;
    const tr_stage
        *stage; /* n of them, the same on all ranks but for their state; clocks are said by next() */
    size_t n;
    tr_table *const *table; /* so many, which tr_next.servers is about; or NULL */
    size_t tables;
    int64_t evaluations; /* of all its stages together, at most: for progress; 0: unknown */
    void *state;
    /* The scheduler, before the first stage and after every one. */
    int (*next)(void *state, const tr_ran *ran, tr_next *next);
} tr_task;

/* Runs a task to its end: all ranks. Returns the agreed outcome: the first stage that fails ends it. */
int tr_run_task(tr_context *tr, const tr_task *task);

#ifdef __cplusplus
}
#endif
#endif

/* The scheduler: which task of a job runs next, and on which ranks (FlexPS, sections 5.1 and 5.2); and of the places
 * where a stage of a task could run, which it takes.
 *
 * It holds no clock and sends no messages: whoever runs tasks says what happened and when, and asks what to do.
 *
 *     tr_schedule_open(ranks, node_of, tasks, &s);
 *     for every task: fill the first part of s->task[i];
 *     while (!tr_schedule_over(s)) {
 *         while (tr_schedule_next(s, tr_now(), &task)) start it, or say why it is not run;
 *         wait until one has ended;
 *         tr_schedule_ended(s, task, failed, tr_now());
 *     }
 *
 * Order: a task that could begin has its priority plus one for each second that it has waited. The highest goes first,
 * and one that does not fit is passed over by those that do. One that has come to TR_STARVED is passed over no more:
 * until it fits, ranks that get free are kept for it (FlexPS's starvation list). As all priorities grow alike, every
 * task is at some time the first.
 *
 * Of two that are equal so far the one goes first whose data the free ranks hold.
 *
 * Place: on a node that has room for all its ranks, of those on the one where a task with the same data ran last,
 * since its files may still lie in memory there; otherwise on as few nodes as can be. Ranks that hold the data of the task
 * are taken first, then those with high numbers: rank 0, which directs the tasks, acts at once while it runs none. */
#ifndef TR_STAGE_SCHEDULE_H
#define TR_STAGE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_STARVED = 10 };

enum tr_task_state {
    TR_TASK_WAITING, /* for tasks that come before it, or for ranks */
    TR_TASK_RUNNING,
    TR_TASK_DONE,
    TR_TASK_FAILED,
    TR_TASK_DROPPED /* a task that comes before it failed, or was dropped; or the caller has done so */
};

struct tr_scheduled {
    /* Set by the caller before the first tr_schedule_next(). */
    double priority;
    int wanted;       /* ranks; 0: all that are free when it begins */
    const int *after; /* tasks that have to be done before; so many; the caller's memory */
    size_t after_count;
    int data;                 /* the same number, below that of tasks, in all tasks on the same files */
    bool held;                /* it does not begin until the caller takes this back */
    enum tr_task_state state; /* TR_TASK_DONE: it need not run, and those that come after it may begin */

    /* Set by the scheduler, as the state is from then on. Times are those that it was told. */
    int ranks;                /* on which it runs or ran; 0 before */
    double since, begin, end; /* when it could begin, began and ended; NaN before */
    int because;              /* dropped: the task that it comes after */
    int home;                 /* node that has its first ranks */
    int64_t turn;             /* it began as the n-th task */
};

struct tr_schedule {
    int ranks, nodes;
    int *node_of;         /* by rank */
    int *owner;           /* by rank: the task that runs on it, or -1 */
    int *holds;           /* by rank: data of the task that ran on it last, or -1 */
    int *held;            /* by data: free ranks that hold them */
    int *free;            /* by node, of ranks */
    int64_t *last, turns; /* last: by node, for tr_choose_place() */
    struct tr_scheduled *task;
    size_t tasks;
};

/* Ranks 0 .. ranks-1 lie on nodes node_of[rank]; none runs a task. Free with tr_schedule_close(), which takes NULL. */
int tr_schedule_open(int ranks, const int *node_of, size_t tasks, struct tr_schedule **schedule);
void tr_schedule_close(struct tr_schedule *schedule);

/* The next task with news at this time (seconds that never go back): it is running now, on the ranks whose owner it
 * is, or it was dropped. False: nothing until a task has ended. */
bool tr_schedule_next(struct tr_schedule *schedule, double now, int *task);

/* A running task has ended: its ranks are free. If it failed, tasks that come after it are dropped; all others go on. */
void tr_schedule_ended(struct tr_schedule *schedule, int task, bool failed, double now);

/* No task waits or runs. */
bool tr_schedule_over(const struct tr_schedule *schedule);

/* Of n places with so many free workers each (free NULL: all have enough), one that has at least `workers`: the one that
 * was used last, or, with longest_unused, longest ago; of equal ones the first. -1: none has so many. */
int tr_choose_place(const int64_t *last, const int *free, int n, int workers, bool longest_unused);

#endif

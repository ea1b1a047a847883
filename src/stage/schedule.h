/* The job's scheduler: which task's stage runs next, and on which workers (FlexPS, sections 5.1 and 5.2).
 *
 * A state machine without clocks, messages or MPI: whoever runs tasks tells it what happened and when, and asks what to do.
 * Decisions depend on nothing else, so that it can be tested, and simulated with thousands of workers.
 *
 *     tr_schedule_open(workers, node_of, &options, &s);
 *     for every task: tr_schedule_add_task(s, &wish, &task);
 *     for every pair: tr_schedule_after(s, task, before);
 *     while (!tr_schedule_over(s)) {
 *         while (tr_schedule_next(s, now, &decision)) act on it:
 *             TR_DECIDE_BEGIN  → tr_schedule_stage(s, task, &first_stage, now)
 *             TR_DECIDE_RUN    → start the stage on decision.worker[0 .. workers-1]
 *             TR_DECIDE_DROP   → say that the task is not run, and why
 *         wait for a stage to end, then
 *             tr_schedule_stage_ended(s, task, now), and tr_schedule_stage(…) for the task's next one,
 *             or tr_schedule_task_ended(s, task, failed, now) after its last
 *     }
 *
 * Order: a waiting stage has the priority of its task plus what it has grown by waiting (options.growth a second). The
 * highest goes first; one that does not fit is passed over by those that do. A stage whose priority reaches
 * options.threshold is starved: it is considered first, and free workers that it can use are kept for it, those that are
 * free and those that get free, until it fits (FlexPS's starvation list). As all grow alike, starved stages are just the
 * first in the order, and workers are kept for the first options.reservations of them: with one, at most one stage's
 * workers idle, and every stage that waits is at some time the first.
 *
 * Place: where a stage fits on one node, it gets one; of the nodes with its data, the one that its task has not used for
 * the longest time, so that all parts of the data are visited alike; stages on all of them do not count. Of tasks that do not say where their data is,
 * small stages are packed on the first node with room. On a node the workers with the lowest numbers are taken.
 *
 * Cost: a few times the logarithm of workers or tasks a decision and an event, and a step for each worker that is taken or
 * given back; choosing the longest unused node looks at the nodes of the data until one was never used. Sets of nodes
 * are kept once each; an event costs in proportion to how many different sets hold its nodes. */
#ifndef TR_STAGE_SCHEDULE_H
#define TR_STAGE_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_schedule;

struct tr_schedule_options {
    double growth;    /* of a waiting stage's priority, a second */
    double threshold; /* priority from which a stage is starved */
    int reservations; /* starved stages that workers are kept for at a time; 0: none ever */
};

/* Growth 1, threshold 10, one reservation: a stage of a task with priority 0 is starved after 10 seconds. */
extern const struct tr_schedule_options tr_schedule_defaults;

/* Workers 0 .. workers-1 on nodes node_of[worker] (0 .., not necessarily in order); all are free. */
int tr_schedule_open(int workers, const int *node_of, const struct tr_schedule_options *options,
                     struct tr_schedule **schedule);
void tr_schedule_close(struct tr_schedule *schedule); /* NULL is fine */

/* ---- tasks ---- */

struct tr_task_wish {
    const char *name; /* for messages; copied */
    double priority;
    int nodes; /* that hold its data, node[0 .. nodes-1]; 0: it does not matter where it runs */
    const int *node;
};

/* Adds a task; they are numbered from 0 in this order. It may begin as soon as all tasks have ended that it comes after. */
int tr_schedule_add_task(struct tr_schedule *schedule, const struct tr_task_wish *wish, int *task);

/* The task begins after another has ended well; said before the first tr_schedule_next() that could begin it. Tasks of
 * a cycle never begin; a job file with one is refused when it is read. */
int tr_schedule_after(struct tr_schedule *schedule, int task, int before);

/* ---- stages ---- */

enum tr_stage_place {
    TR_PLACE_ANYWHERE,  /* on one node where it fits, otherwise on as few as possible at the time */
    TR_PLACE_ONE_NODE,  /* on one node, and it waits until one has room */
    TR_PLACE_EVERY_NODE /* on every node, as evenly as their sizes allow; at least one worker each */
};

struct tr_stage_wish {
    const char *name; /* for messages; not kept */
    int workers;      /* its degree */
    int least; /* not EVERY_NODE: takes fewer, down to this, rather than wait; 0: takes exactly its degree */
    enum tr_stage_place place;
    int nodes; /* of these nodes only, instead of those with the task's data; 0: those */
    const int *node;
};

/* The next stage of a task that has begun and has no stage waiting or running. It waits until tr_schedule_next() says that
 * it runs. Fails with TR_ERR_CONFIG if its nodes never have so many workers; the task can then ask for another one, or
 * be ended. */
int tr_schedule_stage(struct tr_schedule *schedule, int task, const struct tr_stage_wish *wish, double now);

/* The task's stage has ended: its workers are free (those not lost). */
int tr_schedule_stage_ended(struct tr_schedule *schedule, int task, double now);

/* The task has ended, well or not; a stage of it that still runs ends with it, one that waits is withdrawn. If it failed,
 * tasks that come after it are dropped, and those that come after them; all others go on. */
int tr_schedule_task_ended(struct tr_schedule *schedule, int task, bool failed, double now);

/* A worker is gone for good; *task is the one whose stage runs on it, or -1. That stage goes on until it is said to have
 * ended, or failed. Waiting stages that cannot run any more without the worker are named by tr_schedule_next(). */
int tr_schedule_lost(struct tr_schedule *schedule, int worker, int *task, double now);

/* ---- decisions ---- */

enum tr_decide {
    TR_DECIDE_BEGIN,     /* the task may begin: nothing that it comes after is left */
    TR_DECIDE_RUN,       /* its stage runs now, on these workers */
    TR_DECIDE_DROP,      /* it will not run: the task `because`, that it comes after, failed or was dropped */
    TR_DECIDE_IMPOSSIBLE /* too many workers are lost for its waiting stage: the task has failed */
};

struct tr_decision {
    enum tr_decide what;
    int task, because;
    const int
        *worker; /* RUN: in the order of nodes, rising on each; the scheduler's, until the stage has ended */
    int workers, nodes;
    double waited; /* seconds that the stage waited */
    bool starved;  /* it had to be helped: workers were kept for it */
};

/* The next thing to do at this time (seconds that never go back, from any start); false: nothing until something else
 * happens. */
bool tr_schedule_next(struct tr_schedule *schedule, double now, struct tr_decision *decision);

/* All tasks have ended or were dropped. */
bool tr_schedule_over(const struct tr_schedule *schedule);

/* ---- what can be seen ---- */

enum tr_task_state {
    TR_TASK_BLOCKED, /* others have to end first */
    TR_TASK_IDLE,    /* may begin, or is between two stages */
    TR_TASK_WAITING, /* its stage waits for workers */
    TR_TASK_RUNNING,
    TR_TASK_DONE,
    TR_TASK_FAILED,
    TR_TASK_DROPPED
};

struct tr_task_view {
    const char *name;
    enum tr_task_state state;
    int64_t stages;              /* that ran or run */
    double waited, longest_wait; /* seconds of stages that ran */
    double worker_seconds;       /* of stages that have ended */
};

struct tr_schedule_view {
    int workers, nodes;       /* lost ones do not count */
    int free, kept;           /* kept: for starved stages */
    int waiting, running;     /* stages */
    int64_t started, helped;  /* stages so far; helped: by workers that were kept */
    double busy, idle_kept;   /* worker seconds until now: of stages, of workers kept for some */
    double longest_wait;      /* of all stages that ran, and whose that was: */
    int longest_waiting_task; /* -1: none */
};

void tr_schedule_view_task(const struct tr_schedule *schedule, int task, struct tr_task_view *view);
void tr_schedule_view(const struct tr_schedule *schedule, double now, struct tr_schedule_view *view);

#endif

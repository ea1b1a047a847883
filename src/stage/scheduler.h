/* The scheduler: which stage or task runs next, on which ranks, and on how many workers. The stages of a task (trireme/stage.h) and
 * the tasks of a job (src/cli/tasks.c) are scheduled in the same manner. When work can begin, rank 0 sends an order to the ranks
 * that it chooses. They carry out the order, and one of them (the reporter) reports the end to rank 0. */
#ifndef TR_STAGE_SCHEDULER_H
#define TR_STAGE_SCHEDULER_H

#include "ranks/ranks.h"

/* ---- orders ---- */

/* The first members of every order. Members that depend on the kind of work follow. */
struct tr_order {
    int64_t kind;     /* a value >= 0 that the user of the scheduler defines, or TR_ORDER_END */
    int64_t number;   /* number of the stage or task; TR_ORDER_END: the outcome of all work */
    int64_t reporter; /* rank that reports when the order has been carried out; -1: none */
};
enum { TR_ORDER_END = -1 };

struct tr_scheduler {
    tr_context *tr;
    size_t order_bytes, report_bytes; /* maximum size of an order, size of a report */
    void *state;                      /* argument of the functions */
    /* Called on rank 0, at the start and after each report: orders the work that can begin now, by tr_scheduler_order(). */
    int (*next)(void *state);
    /* Called on all ranks that got an order: carries it out. The reporter fills the report. The status must be equal on these
     * ranks. If it is not TR_OK, no report is sent, and tr_scheduler_direct() returns the status on rank 0. */
    int (*run)(void *state, const struct tr_order *order, void *report);
    /* Called on rank 0 with the report of an order. */
    void (*ended)(void *state, const void *report);

    struct tr_order *own; /* order to rank 0 that has not been carried out yet, or NULL */
    struct tr_sent *sent; /* list of orders that are being sent */
    void *report;         /* buffer for the report of this rank */
    void *received;       /* buffer for a received order or, on rank 0, a received report */
    int running;          /* number of orders whose report has not arrived */
};

/* Allocates the buffers; the caller has set the members up to `ended`. Free them with tr_scheduler_close(). */
int tr_scheduler_open(struct tr_scheduler *scheduler);
void tr_scheduler_close(struct tr_scheduler *scheduler);

/* On rank 0: starts to send an order of `bytes` bytes to n ascending ranks, or to all ranks if rank is NULL. Only one order at a
 * time can go to rank 0 itself, which carries it out in tr_scheduler_direct(). */
int tr_scheduler_order(struct tr_scheduler *scheduler, const struct tr_order *order, size_t bytes,
                       const int *rank, int n);

/* On rank 0: orders work until no work runs and none can begin. After that, other ranks wait for tr_scheduler_end(). */
int tr_scheduler_direct(struct tr_scheduler *scheduler);

/* Poll function for rank 0 while it carries out a long order: handles one report of another order. what: the tr_scheduler. */
int tr_scheduler_poll(void *what, int *did);

/* On rank 0: sends the outcome to all other ranks, whose tr_scheduler_follow() then returns. */
int tr_scheduler_end(struct tr_scheduler *scheduler, int outcome);

/* On all other ranks: carries out orders until tr_scheduler_end() is called on rank 0. *outcome: the argument of that call. */
int tr_scheduler_follow(struct tr_scheduler *scheduler, int *outcome);

/* ---- which task is next (FlexPS, sections 5.1 and 5.2) ----
 *
 * A schedule does not read the time or send messages: its caller reports events with their times and asks for the next task.
 *
 *     tr_schedule_open(ranks, node_of, tasks, &s);
 *     for every task: fill the first part of s->task[i];
 *     while (!tr_schedule_over(s)) {
 *         while (tr_schedule_next(s, tr_now(), &task)) start it, or print why it is not run;
 *         wait until one has ended;
 *         tr_schedule_ended(s, task, failed, tr_now());
 *     }
 *
 * Order: the priority of a task that can begin grows by one for each second that it waits. The task with the highest priority
 * begins first. While too few ranks are free for it, tasks of lower priority can begin. This ends when its priority has reached
 * TR_STARVED: then free ranks are reserved until they suffice (FlexPS: starvation list). As all priorities grow equally, every task
 * has the highest priority at some time. Of tasks with equal priority, one whose data are in memory of free ranks begins.
 *
 * Place: if a node has enough free ranks, the task runs on one node, otherwise on as few nodes as possible. Of several such nodes,
 * the one is chosen where a task with the same data ran last, since files may still be in its memory. Of the ranks of a node, those
 * that hold the data of the task are chosen first, then those with high numbers, because rank 0 directs all tasks. */

enum { TR_STARVED = 10 };

enum tr_task_state {
    TR_TASK_WAITING, /* the task waits for tasks before it, or for ranks */
    TR_TASK_RUNNING,
    TR_TASK_DONE,
    TR_TASK_FAILED,
    TR_TASK_DROPPED /* a task before it failed or was dropped, or the caller has dropped it */
};

struct tr_scheduled {
    /* ---- set by the caller before the first tr_schedule_next() ---- */
    double priority;
    int wanted;       /* number of ranks; 0: all ranks that are free when the task begins */
    const int *after; /* the after_count tasks that must be done before; the caller keeps this array */
    size_t after_count;
    int data;  /* number (below the number of tasks) that all tasks on the same files have in common */
    bool held; /* the task does not begin until the caller sets this to false */
    enum tr_task_state state; /* TR_TASK_DONE if the task need not run; later set by the schedule */

    /* ---- set by the schedule ---- */
    int ranks;                /* number of ranks on which the task runs or ran; 0 before */
    double since, begin, end; /* times when the task could begin, began and ended; NaN before */
    int because;              /* TR_TASK_DROPPED: the task before it that failed or was dropped; else -1 */
    int home;                 /* node on which the first of its ranks are */
    int64_t turn;             /* tasks are numbered from 1 in the order in which they begin; 0 before */
};

struct tr_schedule {
    int ranks, nodes;
    int *node_of;  /* by rank: its node, where nodes are numbered in reverse */
    int *owner;    /* by rank: the task that runs on it, or -1 */
    int *holds;    /* by rank: data of the last task on it, or -1 */
    int *held;     /* by data: number of free ranks whose last task had these data */
    int *free;     /* by node: number of free ranks */
    int64_t *last; /* by node: scratch, argument of tr_choose_place() */
    int64_t turns; /* number of tasks that have begun */
    struct tr_scheduled *task;
    size_t tasks;
};

/* Makes a schedule for ranks 0 .. ranks-1 on nodes node_of[rank]. Free it with tr_schedule_close(), which accepts NULL. */
int tr_schedule_open(int ranks, const int *node_of, size_t tasks, struct tr_schedule **schedule);
void tr_schedule_close(struct tr_schedule *schedule);

/* Selects the next task that begins at time `now` (in seconds), and makes it the owner of its ranks; or a task that was dropped.
 * False: no task can begin until another one has ended. */
bool tr_schedule_next(struct tr_schedule *schedule, double now, int *task);

/* Records that a running task has ended, and frees its ranks. If it failed, tasks that must run after it are dropped. */
void tr_schedule_ended(struct tr_schedule *schedule, int task, bool failed, double now);

/* Returns whether no task waits or runs. */
bool tr_schedule_over(const struct tr_schedule *schedule);

/* Chooses one of n places (nodes or groups) with free[i] >= workers (NULL: all places): the place with the highest last[i] or, if
 * longest_unused, with the lowest; of equal places the first. -1: there is none. */
int tr_choose_place(const int64_t *last, const int *free, int n, int workers, bool longest_unused);

/* ---- how many workers are best for a stage, found while it runs (FlexPS, section 5.4) ----
 *
 * A stage is divided into sub-stages. During the search they are short, and their degree (number of workers) grows until clocks
 * take longer than at the previous degree. The rest of the stage runs at the best degree. Clocks of the search are part of the
 * stage's work. The caller runs the stage: it asks for the next sub-stage, and reports the time of each of its clocks:
 *
 *     tr_degree_begin(&degree, &options);                       once
 *     while (left > 0) {                                     in every run of the stage
 *         struct tr_substage sub = tr_degree_next(&degree, left);
 *         run sub.clocks clocks with sub.parallelism workers;
 *         tr_degree_report(&degree, seconds, n);
 *         left -= n;
 *     }
 *
 * Differences from the paper, with reasons; p is the degree:
 *   degrees    are doubled, and then gaps around the best degree are tried; in the paper they are all multiples of the first. If
 *              the time is a/p + b p, doubling alone costs up to 6 % of the time and two fifths of the worker time. With steps
 *              of one unit, most of a stage would run far below its best degree.
 *   clocks     at most ten are measured per degree; their median is its time. Three are enough if a degree takes less than 0.8 of
 *              the least time so far (as long sub-stages cost most at slow degrees) or more than twice that time. Before the
 *              choice, ten are measured of the degrees that take at most 1.25 of the least time, and of the degree below the best.
 *   tolerance  times within 5 % count as equal. The search upward continues after one such degree, and ends after two. The
 *              smallest of the fastest degrees is chosen, because it leaves workers for other tasks.
 *   start      the least degree, if the search then costs a small part of all clocks (about a fifth if time is a/p). Otherwise a
 *              higher degree, at most the geometric mean of least and most. Smaller degrees are tried if larger ones are not
 *              faster. At most a 30th of all clocks is measured per degree.
 *   later      the search continues over repeated runs of a stage; all later runs use the best degree. If the time of its clocks
 *              changes by a factor of 1.5 (median of ten clocks), the search starts again from this degree.
 *
 * Simulated on random curves a/p + b + c p with noise and outliers, whose best degree was between 1 and 16 or 64, a stage of 1000
 * clocks with its search took 3 to 4 % longer on average than at the best degree (19 of 20 at most 11 %), and 7 to 13 % less worker
 * time. */

enum {
    TR_DEGREE_CLOCKS = 10, /* maximum number of clocks measured for one degree (number of workers) */
    TR_DEGREE_POINTS = 72  /* maximum number of degrees in a search: doublings, halvings and gaps */
};

struct tr_degree_options {
    int least, most; /* range of degrees; both are at least one unit */
    int unit;        /* degrees are multiples of this number, for example of the number of nodes; 0: 1 */
    int64_t clocks;  /* number of clocks of all runs of this stage together; 0: that of the first run */
};

/* A degree that was tried, and the times of its last clocks. */
struct tr_degree_point {
    int parallelism;
    int samples;
    double seconds[TR_DEGREE_CLOCKS];
    double median;
};

enum tr_degree_phase { TR_DEGREE_UP, TR_DEGREE_AROUND, TR_DEGREE_FOUND };

/* State of a search, without pointers, so that a copy can be saved. The first five members may be read by the caller. */
struct tr_degree {
    enum tr_degree_phase phase;
    int parallelism; /* degree of the next sub-stage; in phase TR_DEGREE_FOUND the best degree */
    int searches;    /* number of searches that have begun */
    int points;      /* number of degrees tried in this search; point[] is in ascending order of degrees */
    struct tr_degree_point point[TR_DEGREE_POINTS];

    int least, most, unit; /* possible degrees are the multiples of the unit from least to most */
    int64_t clocks;
    int first, full; /* number of clocks in the first measurement of a degree, and in a full one */
    int wanted;      /* number of clocks to be measured of the current degree */
    int level;       /* number of consecutive degrees that were not faster than the previous one */
    int gaps;        /* number of gaps that were tried */
    struct tr_degree_point recent; /* the last clocks at the best degree, in phase TR_DEGREE_FOUND */
};

struct tr_substage {
    int parallelism;
    int64_t clocks; /* 1 .. clocks_left */
    bool searching; /* false: the degree is the best, for all clocks that are left */
};

void tr_degree_begin(struct tr_degree *degree, const struct tr_degree_options *options);

/* Returns the next sub-stage of a run with clocks_left >= 1 clocks left. A second call without a report returns the same. */
struct tr_substage tr_degree_next(struct tr_degree *degree, int64_t clocks_left);

/* Reports the times that the slowest worker took for the n clocks of this sub-stage, which may be fewer than planned. Times that
 * are not finite are ignored. */
void tr_degree_report(struct tr_degree *degree, const double *seconds, size_t n);

/* Writes the times and the best degree, as "auto: 1: 3.1 ms, 2: 1.8 ms, 4: 2.2 ms -> 2", with an ellipsis instead of the degree
 * during the search, and the number of searches if there were several. Truncated to the size of the text. */
void tr_degree_describe(const struct tr_degree *degree, char *text, size_t size);

#endif

/* The scheduler: which stage or task runs next, on which ranks, and on how many workers. The stages of a task (trireme/stage.h) and the tasks
 * of a job (src/cli/tasks.c) are scheduled alike: rank 0 orders what can begin, the ranks that get an order carry it out, one
 * of them reports the end, and rank 0 decides what can begin then. */
#ifndef TR_STAGE_SCHEDULER_H
#define TR_STAGE_SCHEDULER_H

#include "ranks/ranks.h"

/* ---- orders ---- */

/* The start of every order. The rest belongs to the kind of work. */
struct tr_order {
    int64_t kind;     /* 0 or more, of the work's own; or TR_ORDER_END */
    int64_t number;   /* of the work; END: its outcome */
    int64_t reporter; /* the rank that reports when it has been carried out; -1: none */
};
enum { TR_ORDER_END = -1 };

struct tr_scheduler {
    tr_context *tr;
    size_t order_bytes, report_bytes; /* maximum */
    void *state;
    /* Rank 0, at the start and after each report: orders the work that can begin now, with tr_scheduler_order(). */
    int (*next)(void *state);
    /* The ranks that got the order, which carry it out together; the reporter fills the report. Other than TR_OK: it has failed
     * on all of them, nothing is reported, and on rank 0 it is the outcome of tr_scheduler_direct(). */
    int (*run)(void *state, const struct tr_order *order, void *report);
    /* Rank 0: the report of an order. */
    void (*ended)(void *state, const void *report);

    struct tr_order *own; /* an order to rank 0 itself */
    struct tr_sent *sent; /* orders on the way */
    void *report;         /* of this rank */
    void *received;       /* an order, or on rank 0 a report */
    int running;          /* orders whose report is missing */
};

/* Allocates memory; the members above are set. Free with tr_scheduler_close(). */
int tr_scheduler_open(struct tr_scheduler *scheduler);
void tr_scheduler_close(struct tr_scheduler *scheduler);

/* Rank 0: gives an order of that length to n ranks, ascending; rank NULL: to all. Does not wait. Only one order at a time can
 * go to rank 0 itself, which carries it out in tr_scheduler_direct(). */
int tr_scheduler_order(struct tr_scheduler *scheduler, const struct tr_order *order, size_t bytes,
                       const int *rank, int n);

/* Rank 0: orders work until nothing runs and nothing can begin; then the others still wait for tr_scheduler_end(). */
int tr_scheduler_direct(struct tr_scheduler *scheduler);

/* Rank 0, while it carries out an order in which other work can end: handles one report without waiting. what: a struct
 * tr_scheduler; see tr_poll_fn. */
int tr_scheduler_poll(void *what, int *did);

/* Rank 0: tells all others that there is no more work, and its outcome. */
int tr_scheduler_end(struct tr_scheduler *scheduler, int outcome);

/* All other ranks: carry out orders until the end. *outcome: the argument of tr_scheduler_end(). */
int tr_scheduler_follow(struct tr_scheduler *scheduler, int *outcome);

/* ---- which task is next (FlexPS, sections 5.1 and 5.2) ----
 *
 * A schedule reads no clock and sends no messages: its caller reports events with their times and asks for the next step.
 *
 *     tr_schedule_open(ranks, node_of, tasks, &s);
 *     for every task: fill the first part of s->task[i];
 *     while (!tr_schedule_over(s)) {
 *         while (tr_schedule_next(s, tr_now(), &task)) start it, or print why it is not run;
 *         wait until one has ended;
 *         tr_schedule_ended(s, task, failed, tr_now());
 *     }
 *
 * Order: the priority of a task that can begin grows by one for each second that it waits. The highest goes first; a task
 * that does not fit is overtaken by tasks that do. A task whose priority has reached TR_STARVED is not overtaken any more:
 * ranks that become free are kept for it until it fits (FlexPS's starvation list). As all priorities grow equally, every
 * task is the first at some time. Of two equal tasks, the one whose data the free ranks hold goes first.
 *
 * Place: on a node with enough free ranks for the task; of several such nodes on the one where a task with the same data ran
 * last, since its files may still be in memory there; otherwise on as few nodes as possible. Ranks that hold the data of the
 * task are taken first, then those with high numbers: rank 0, which directs the tasks, reacts immediately while it runs none. */

enum { TR_STARVED = 10 };

enum tr_task_state {
    TR_TASK_WAITING, /* for tasks before it, or for ranks */
    TR_TASK_RUNNING,
    TR_TASK_DONE,
    TR_TASK_FAILED,
    TR_TASK_DROPPED /* a task before it failed or was dropped, or the caller has dropped it */
};

struct tr_scheduled {
    /* Set by the caller before the first tr_schedule_next(). */
    double priority;
    int wanted;       /* ranks; 0: all that are free when it begins */
    const int *after; /* after_count tasks that have to be done before; the caller's memory */
    size_t after_count;
    int data;  /* the same number (below the number of tasks) for all tasks on the same files */
    bool held; /* it does not begin until the caller clears this */
    enum tr_task_state state; /* TR_TASK_DONE: it need not run, and tasks after it can begin */

    /* Set by the schedule, as is the state from then on. Times are those of the caller. */
    int ranks;                /* on which it runs or ran; 0 before */
    double since, begin, end; /* when it could begin, began and ended; NaN before */
    int because;              /* dropped: the task before it that failed or was dropped */
    int home;                 /* node of its first ranks */
    int64_t turn;             /* its number in the order of beginning, from 1 */
};

struct tr_schedule {
    int ranks, nodes;
    int *node_of;         /* by rank */
    int *owner;           /* by rank: the task that runs on it, or -1 */
    int *holds;           /* by rank: data of the last task on it, or -1 */
    int *held;            /* by data: number of free ranks that hold them */
    int *free;            /* by node: number of free ranks */
    int64_t *last, turns; /* last: by node, for tr_choose_place() */
    struct tr_scheduled *task;
    size_t tasks;
};

/* Ranks 0 .. ranks-1 are on nodes node_of[rank]; none runs a task. Free with tr_schedule_close(), which accepts NULL. */
int tr_schedule_open(int ranks, const int *node_of, size_t tasks, struct tr_schedule **schedule);
void tr_schedule_close(struct tr_schedule *schedule);

/* The next task that begins at this time (seconds that never decrease), on the ranks whose owner it is now; or that was dropped.
 * False: none until a task has ended. */
bool tr_schedule_next(struct tr_schedule *schedule, double now, int *task);

/* A running task has ended: its ranks are free. If it failed, tasks after it are dropped; all others continue. */
void tr_schedule_ended(struct tr_schedule *schedule, int task, bool failed, double now);

/* Whether no task waits or runs. */
bool tr_schedule_over(const struct tr_schedule *schedule);

/* Of n places with free[i] free workers (NULL: all have enough), the one with at least `workers` that was used last, or, with
 * longest_unused, the longest time ago; of equal ones the first. -1: there is none. */
int tr_choose_place(const int64_t *last, const int *free, int n, int workers, bool longest_unused);

/* ---- how many workers are best for a stage, found while it runs (FlexPS, section 5.4) ----
 *
 * A stage is divided into sub-stages. During the search they are short, and their degree (number of workers) grows until
 * the clocks of one take longer than those of the one before; the rest of the stage runs at the best degree. The clocks of
 * the search are part of the work. The caller runs the stage: it asks for the next sub-stage, and reports how long each of
 * its clocks took:
 *
 *     tr_degree_begin(&degree, &options);                       once
 *     while (left > 0) {                                     in every run of the stage
 *         struct tr_substage sub = tr_degree_next(&degree, left);
 *         run sub.clocks clocks with sub.parallelism workers;
 *         tr_degree_report(&degree, seconds, n);
 *         left -= n;
 *     }
 *
 * Differences from the paper, with reasons:
 *   degrees    double (in the paper they are multiples), and then the gaps around the best are tried. With times like
 *              a/p + b p, doubling alone misses the best by up to 6 % of the time and two fifths of the worker time;
 *              with steps of one unit most of a stage would run far below its best degree.
 *   clocks     ten a degree at most, and their median. Three are enough where a degree is clearly better than those
 *              before it (0.8 of the time), as slow degrees are the ones on which long sub-stages cost most. It takes
 *              all ten to end the search, unless a degree needs more than twice the time; and all ten of the degrees
 *              that may be the best (1.25 of its time) and of the one below it, before the choice.
 *   tolerance  times within 5 % are equal. The search continues after one such degree, not after two. The smallest degree
 *              that is as fast as the fastest is chosen, as it leaves workers for other tasks.
 *   the start  is the least degree as long as the search costs a small part of the clocks (about a fifth where every
 *              worker counts in full). With fewer clocks it starts further up, at most in the geometric middle, and
 *              tries smaller degrees if larger ones do not help; sub-stages are shorter, too (a 30th of all clocks at most).
 *   later      the search continues over repeated runs of a stage, then all use the degree found. If its clocks become
 *              one and a half times slower or faster (median of ten), the search starts again from there.
 *
 * On random curves a/p + b + c p with noise and outliers, the best degree anywhere up to 16 or 64, a stage of 1000 clocks
 * takes 3 to 4 % longer in the mean than at the best degree throughout, the search included (19 of 20 stages at most
 * 11 %), and 7 to 13 % less worker time. */

enum {
    TR_DEGREE_CLOCKS = 10, /* measured at a degree */
    TR_DEGREE_POINTS = 72  /* degrees tried in one search: doublings there and back, and gaps */
};

struct tr_degree_options {
    int least, most; /* workers; below one unit: one unit */
    int unit;        /* degrees are multiples of it (the number of nodes, say); 0: 1 */
    int64_t clocks;  /* of all runs of this stage together, as far as known; 0: those of the first run */
};

/* A degree that was tried: the last of its clocks. */
struct tr_degree_point {
    int parallelism;
    int samples;
    double seconds[TR_DEGREE_CLOCKS];
    double median;
};

enum tr_degree_phase { TR_DEGREE_UP, TR_DEGREE_AROUND, TR_DEGREE_FOUND };

/* The whole state, without pointers: a copy can be saved. Others may read phase, parallelism, searches, points, point. */
struct tr_degree {
    enum tr_degree_phase phase;
    int parallelism; /* of the sub-stage that runs or comes next; once found, the best */
    int searches;    /* how many have begun: 1, and more after drifts */
    int points;      /* tried in this search, by rising degree */
    struct tr_degree_point point[TR_DEGREE_POINTS];

    int least, most, unit; /* the possible degrees: multiples of the unit, at least one */
    int64_t clocks;
    int first, full;               /* clocks of a degree: to begin with, and at most */
    int wanted;                    /* clocks of the degree that is being measured */
    int level;                     /* number of consecutive degrees that were no faster than the one before */
    int gaps;                      /* tried */
    struct tr_degree_point recent; /* the last clocks at the degree that was found */
};

struct tr_substage {
    int parallelism;
    int64_t clocks; /* 1 .. clocks left */
    bool searching; /* false: all that is left, at the degree that was found */
};

void tr_degree_begin(struct tr_degree *degree, const struct tr_degree_options *options);

/* The next sub-stage of a run with clocks_left clocks left (at least 1). Asking again without a report gives the same. */
struct tr_substage tr_degree_next(struct tr_degree *degree, int64_t clocks_left);

/* Reports the times of the slowest worker for the n clocks of that sub-stage. A stage can stop early, with fewer clocks than planned.
 * Times that are not finite are ignored. */
void tr_degree_report(struct tr_degree *degree, const double *seconds, size_t n);

/* Writes "auto: 1: 3.1 ms, 2: 1.8 ms, 4: 2.2 ms -> 2"; an ellipsis after the arrow during the search, and the number of searches if
 * that is more than one. Truncated to the size of the text. */
void tr_degree_describe(const struct tr_degree *degree, char *text, size_t size);

#endif

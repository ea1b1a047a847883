/* Stages: what all workers do together, clock by clock.
 *
 * A stage runs its compute function once a clock on every slave, or, where it has a schedule function, as
 * often as the group's leader says. Between groups the consistency of the job holds (BSP, SSP, ASP); inside
 * a group every round is a barrier (Angel, section 4.2).
 */
#ifndef TRIREME_STAGE_H
#define TRIREME_STAGE_H

#include "trireme/context.h"
#include "trireme/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a leader tells one slave for one round; the meaning is the model's. */
typedef struct tr_command {
    int64_t word[8];
} tr_command;

/* A slave, as its compute function sees itself. */
typedef struct tr_worker {
    tr_context *tr;
    int group, groups;      /* which group of how many that compute in this stage */
    int member, group_size; /* its number in it; 0 is the leader; how many of it compute in this stage */
    int worker, workers;    /* over all groups that do */
    int64_t clock, clocks;  /* clocks it has ended; how many there are to be unless the scheduler says stop */
    /* Tasks: the clocks may be a part of what next() has asked for: so many came before them, and so many are they all
     * together; otherwise 0 and clocks. */
    int64_t before, whole;
    int round; /* of this clock */
    /* The leader's for this round; without a schedule function what next() has said; zeros otherwise. */
    tr_command command;
    void *kept; /* what prepare() has left here for release() */
} tr_worker;

/* Sums over all workers that an evaluation is made of. */
enum { TR_SUMS = 16 };
typedef struct tr_report {
    int64_t clock;
    double sum[TR_SUMS];
} tr_report;

/* What the scheduler makes of a report: numbers to show (NaN where there is none) and whether to go on. */
typedef struct tr_evaluation {
    double objective, gap; /* gap: proven relative distance from the optimum */
    double metric;         /* on test data, named by the stage */
    double epoch;          /* passes over the data so far, if clocks do not say: in tasks */
    bool stop;
} tr_evaluation;

typedef struct tr_stage {
    const char *name;
    void *state; /* handed to the functions below; a rank's own */
    int64_t clocks;
    int64_t evaluate_every;     /* clocks between evaluations; 0: at the end only */
    double epochs_per_clock;    /* for progress */
    double gap_goal;            /* the proven gap at which it ends, for progress; 0: none */
    const char *objective_name; /* "inertia"; NULL: "objective" … */
    bool ascends; /* … and it is to rise, as a likelihood is: a target counts only while it does */
    const char *metric_name; /* on test data: "accuracy", "rmse"; NULL: none … */
    bool metric_ascends;     /* … and the higher it is the better, for solve.patience */

    /* In a task: its workers are of one group, of the one that has not had the stage for longest. */
    bool one_group;

    /* Slaves, once before the first clock: opens views. As a stage of a task, once for every set of workers that it runs
     * on (and again where what was opened cannot be kept): its views go into me->kept, which the other functions find
     * there whenever it runs on these workers. */
    int (*prepare)(tr_worker *me, void *state);
    /* Slaves, when what prepare() has left in me->kept is not needed any more: closes its views and frees it. Not
     * called where that is NULL. */
    void (*release)(void *kept);
    /* All ranks that take part, before the first clock of every run: what servers have to do with their shares, say.
     * Nobody reads or writes tables meanwhile. May be NULL. */
    int (*begin)(tr_context *tr, void *state);
    /* Slaves, once a clock (or a round). Pulls come before pushes. */
    int (*compute)(tr_worker *me, void *state);
    /* Leaders, before every round: fills a command for each member and sets *again, or leaves it false to end
     * the clock. NULL: one round a clock, without commands. */
    int (*schedule)(tr_worker *me, void *state, tr_command *commands, bool *again);
    /* Compute takes and gives the blocks of a rotation (trireme/rotation.h): members of a group wait for each other in it. */
    bool rotates;
    /* Slaves, at the clocks that evaluate_every says and at the end: adds this worker's part to the sums. Under
     * BSP all workers evaluate the same parameters; under SSP and ASP each evaluates what it sees, at the end of
     * its clock when the first of them gets to such a clock (workers in groups: when they get there themselves). */
    int (*evaluate)(tr_worker *me, void *state, tr_report *report);
    /* The scheduler, once all workers have reported for a clock. */
    int (*summarize)(void *state, const tr_report *sums, tr_evaluation *evaluation);
    /* All ranks that take part: lists what checkpoints have to keep beside the tables, and what they fill when the run
     * goes on: see trireme/snapshot.h. On ranks that do not work (dedicated servers, the scheduler) me->worker is below 0.
     * NULL: no checkpoints are taken of this stage; going on, it is run again from its beginning. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_stage;

/* Runs a stage on all workers: all ranks, each with the same stage but its own state. Servers and the scheduler do their
 * duty meanwhile. Returns the agreed outcome. */
int tr_run(tr_context *tr, const tr_stage *stage);

/* A turn of a worker in a stage that the method names (tr_method.stages). Between these two calls are no more workers at a
 * time than stages.NAME.parallelism says; those whose turn it is not sleep. All workers call both, equally often and in the
 * same order, under BSP; in a turn none waits for what another does in its own, as tr_group_sum() does. Ranks that do not
 * work may call them, too, and so may a process that is alone, with tr = NULL. status: what became of the work, which
 * tr_turn_end() returns if that is not TR_OK. A stage that the method does not name is none. */
int tr_turn_begin(tr_context *tr, const char *stage);
int tr_turn_end(tr_context *tr, int status);

/* Sums n numbers over the members of the group, in place; the same on all of them. In a stage that rotates blocks a member that
 * has failed takes no part: the two functions below do not wait for it. */
int tr_group_sum(tr_worker *me, double *numbers, size_t n);

/* The same while the members go on: a sum begins with a copy of n numbers, and ends where it is waited for, which writes
 * what has become of them and sets *sum to NULL. All members begin and end the same sums in the same order. Where a member
 * has failed one may never end: then *sum stays as it is, and there is nothing more to do in this stage. */
typedef struct tr_sum tr_sum;
int tr_group_sum_begin(tr_worker *me, const double *numbers, size_t n, tr_sum **sum);
int tr_group_sum_end(tr_worker *me, tr_sum **sum, double *numbers);

/* The least of what the members of the group have, n times, in place; of equal values the one with the lower place. */
typedef struct tr_least {
    double value;
    int place;
} tr_least;
int tr_group_least(tr_worker *me, tr_least *least, size_t n);

#ifdef __cplusplus
}
#endif
#endif

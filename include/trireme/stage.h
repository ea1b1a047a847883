/* Stages: work that all workers perform clock by clock.
 *
 * A stage calls its compute function once per clock on every worker or, if it has a schedule function, once per round as
 * the leader of each group decides. Between groups the consistency of the job applies (BSP, SSP, ASP). Within a group
 * every round ends with a barrier (Angel, section 4.2).
 *
 * Example: a data-parallel model.
 *
 *     tr_stage stage = {.name = "train", .state = &model, .clocks = 50, .evaluate_every = 5, .epochs_per_clock = 1,
 *                       .prepare = open_views, .release = close_views, .compute = one_clock,
 *                       .evaluate = add_losses, .summarize = mean_loss, .snapshot = list_state};
 *     TR_TRY(tr_run(tr, &stage));
 */
#ifndef TRIREME_STAGE_H
#define TRIREME_STAGE_H

#include "trireme/context.h"
#include "trireme/snapshot.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A message from the leader to one member for one round. The model defines the meaning. */
typedef struct tr_command {
    int64_t word[8];
} tr_command;

/* A worker, as the functions of a stage see it. */
typedef struct tr_worker {
    tr_context *tr;
    int group, groups;      /* index of its group; number of groups that take part in this stage */
    int member, group_size; /* index in the group, 0 is the leader; members that take part */
    int worker, workers;    /* index over all groups; workers that take part */
    int64_t clock, clocks;  /* completed clocks; planned clocks, unless the scheduler stops earlier */
    /* In tasks a stage may run in parts: clocks before this part, and clocks of all parts together. Otherwise 0 and
     * clocks. */
    int64_t before, whole;
    int round; /* index of the round in this clock */
    /* The leader's command for this round; without a schedule function the command of tr_task.next(); otherwise zeros. */
    tr_command command;
    void *kept; /* set by prepare(), freed by release() */
} tr_worker;

/* Sums over all workers, from which an evaluation is computed. */
enum { TR_SUMS = 16 };
typedef struct tr_report {
    int64_t clock;
    double sum[TR_SUMS];
} tr_report;

/* The result of an evaluation. NaN stands for a value that does not exist. */
typedef struct tr_evaluation {
    double objective, gap; /* gap: proven relative distance from the optimum */
    double metric;         /* on test data, named tr_stage.metric_name */
    double epoch;          /* passes over the data so far, if they do not follow from the clock (in tasks) */
    bool stop;             /* end the stage */
    bool estimated;        /* the gap is not proven */
} tr_evaluation;

typedef struct tr_stage {
    const char *name;
    void *state; /* argument of the functions below; each rank has its own */
    int64_t clocks;
    int64_t evaluate_every;     /* clocks between evaluations; 0: at the end only */
    double epochs_per_clock;    /* for progress */
    double gap_goal;            /* proven gap at which the stage ends, for progress; 0: none */
    const char *objective_name; /* for example "inertia"; NULL: "objective" */
    bool ascends;               /* the objective increases, as a likelihood does */
    const char *metric_name;    /* metric on test data, for example "accuracy"; NULL: none */
    bool metric_ascends;        /* a higher metric is better, for solve.patience */

    /* In a task: the workers of one group run the stage, the group that has not run it for the longest time. */
    bool one_group;

    /* Opens views. Called on workers before the first clock. As a stage of a task it is called once for every set of
     * workers (again if the result cannot be kept): the views belong to me->kept, which the other functions receive
     * whenever the stage runs on these workers. */
    int (*prepare)(tr_worker *me, void *state);

    /* Closes the views in `kept` and frees it. Called on workers when it is no longer needed, unless it is NULL. */
    void (*release)(void *kept);

    /* Called on all ranks that take part before the first clock of every run, for example to change server shards. No
     * rank reads or writes tables at that time. May be NULL. */
    int (*begin)(tr_context *tr, void *state);

    /* Computes one clock (or round). Called on workers. Pulls come before pushes. */
    int (*compute)(tr_worker *me, void *state);

    /* Fills one command per member and sets *again to true, or leaves it false to end the clock. Called on leaders before
     * every round. NULL: one round per clock without commands. */
    int (*schedule)(tr_worker *me, void *state, tr_command *commands, bool *again);

    /* compute() takes and passes blocks of a rotation (trireme/rotation.h), in which members wait for each other. */
    bool rotates;

    /* Adds this worker's part to the sums. Called on workers at the clocks of evaluate_every and at the end. Under BSP all
     * workers evaluate the same parameters. Under SSP and ASP each worker evaluates the values that it sees at the end of
     * its current clock when the first worker reaches such a clock (with groups: when it reaches the clock itself). */
    int (*evaluate)(tr_worker *me, void *state, tr_report *report);

    /* Computes the evaluation from the sums of all workers. Called on the scheduler. */
    int (*summarize)(void *state, const tr_report *sums, tr_evaluation *evaluation);

    /* Lists the state that checkpoints contain besides the tables: see trireme/snapshot.h. Called on all ranks that take
     * part; me->worker is negative on ranks that do not compute. NULL: no checkpoints of this stage; a resumed run repeats
     * it from its beginning. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_stage;

/* Runs a stage on all workers, while servers and the scheduler do their part. All ranks must call it with the same stage,
 * each with its own state.
 *
 * @return the agreed outcome
 */
int tr_run(tr_context *tr, const tr_stage *stage);

/* Limits the number of workers that work at the same time to stages.NAME.parallelism, for a stage that the method names
 * (tr_method.stages); other workers sleep between the two calls. All workers must call both functions equally often and in
 * the same order, under BSP. Between the calls a worker must not wait for another worker (no tr_group_sum()). Ranks that do
 * not compute may call them, and a single process may pass tr = NULL. Without effect for stages that the method does not
 * name.
 *
 * @param [in] status  outcome of the work; tr_turn_end() returns it if it is not TR_OK
 */
int tr_turn_begin(tr_context *tr, const char *stage);
int tr_turn_end(tr_context *tr, int status);

/* Sums n numbers over the members of the group, in place, with equal results on all members. In a stage that rotates blocks
 * a failed member takes no part: these calls do not wait for it. */
int tr_group_sum(tr_worker *me, double *numbers, size_t n);

/* The nonblocking form: begin copies n numbers, end waits, writes the sums and sets *sum to NULL. All members must begin
 * and end the same sums in the same order. If a member has failed, *sum may remain set: the stage ends then. */
typedef struct tr_sum tr_sum;
int tr_group_sum_begin(tr_worker *me, const double *numbers, size_t n, tr_sum **sum);
int tr_group_sum_end(tr_worker *me, tr_sum **sum, double *numbers);

/* Computes the minimum over the members of the group, n times, in place; ties go to the lower place. */
typedef struct tr_least {
    double value;
    int place;
} tr_least;
int tr_group_least(tr_worker *me, tr_least *least, size_t n);

#ifdef __cplusplus
}
#endif
#endif

/* Stages: iterations (clocks) of all workers.
 *
 * A stage calls its compute function once per clock on every worker. If it has a schedule function, a clock consists of rounds: the
 * leader of each group decides before each round whether there is another round, and compute() is called once per round. Between
 * groups the consistency of the job applies (BSP, SSP, ASP). Within a group every round ends with a barrier (Angel, section 4.2).
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trireme/context.h"
#include "trireme/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ================ snapshots ================ */

/* State of a stage in checkpoints.
 *
 * Checkpoints are written during stages (and tasks) that have a snapshot function. The engine stores tables, the state of
 * server functions, the clocks and the position in the job. The snapshot function lists all other state. It is called
 *   when a checkpoint is written: all workers are between two clocks, every update has arrived; listed state is copied;
 *   when a run resumes: after prepare() and after the tables are restored, before the first clock; listed state is
 *   overwritten with the stored values.
 * It must list the same names in the same order in both cases, on all ranks that take part in the stage, and must not communicate
 * except through the functions below. State that can be computed from the seed and the clock need not be listed. A run may resume
 * on other numbers of ranks, groups and members: a row is restored to the worker that then has the row of this number.
 *
 * Names consist of letters, digits and _; they are the names that h5dump shows.
 *
 * Example:
 *
 *     static int snapshot(tr_worker *me, void *state, tr_snapshot *s)
 *     {
 *         struct sampler *l = state;
 *         TR_TRY(tr_snapshot_common(s, "alpha", TR_F64, 1, &l->alpha));
 *         return tr_data_keep(l->data, s, "topic", TR_I32, l->topic);
 *     }
 */

typedef struct tr_snapshot tr_snapshot;

/* Returns true if state is being restored, false if it is being copied. */
bool tr_snapshot_restores(const tr_snapshot *snapshot);

/* Lists n elements that are equal on all ranks, or that only rank 0 needs.
 *
 * @param [in,out] values  copied from rank 0; restored on all ranks
 */
int tr_snapshot_common(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, size_t n, void *values);

/* Lists rows of a matrix of total_rows × columns elements that is distributed over the workers.
 *
 * @param [in]     row     numbers of the n rows of this rank in ascending order; NULL: first, first + 1, ...
 * @param [in]     n       number of rows of this rank; 0 on ranks without rows
 * @param [in,out] values  n × columns elements
 * @return TR_ERR_DATA if a row to restore is not in the checkpoint
 *
 * Several workers may have the same row. It is restored from the copy that the rank of the same number stored, if there is one,
 * otherwise from the copy of any other rank.
 */
int tr_snapshot_rows(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                     size_t columns, const uint64_t *row, uint64_t first, size_t n, void *values);

/* As tr_snapshot_rows(), for rows of different lengths.
 *
 * @param [in]     begin   n + 1 offsets: row i has the elements begin[i] - begin[0] .. begin[i + 1] - begin[0] - 1
 * @param [in,out] values  the elements
 * @return TR_ERR_DATA if a row to restore is missing or has another length
 */
int tr_snapshot_lists(tr_snapshot *snapshot, const char *name, enum tr_dtype dtype, uint64_t total_rows,
                      const uint64_t *row, uint64_t first, size_t n, const uint64_t *begin, void *values);

/* Lists bytes that only this rank can use. They are restored if the run resumes with the same number of ranks in the same roles,
 * and the size is equal; otherwise data is unchanged.
 *
 * @param [out] found  whether data was restored
 */
int tr_snapshot_own(tr_snapshot *snapshot, const char *name, void *data, size_t bytes, bool *found);

/* Excludes a table from checkpoints, because its values do not change during the stage or can be computed again. All
 * ranks, before tr_run(). */
void tr_table_leave_out(tr_table *table);

/* ================ stages ================ */

/* A message from the leader to one member for one round. The model defines the meaning. */
typedef struct tr_command {
    int64_t word[8];
} tr_command;

/* A worker, as the functions of a stage see it. */
typedef struct tr_worker {
    tr_context *tr;
    int group, groups;      /* index of this worker's group; number of groups that take part in this stage */
    int member, group_size; /* index in the group, 0 is the leader; number of members that take part */
    int worker, workers;    /* index over all groups; number of workers that take part */
    int64_t clock, clocks;  /* number of completed clocks; number of planned clocks (at most) */
    /* A stage of a task may run in several parts. before: number of clocks of the parts before this one; whole: number of clocks of
     * all parts. With only one part, before is 0 and whole is clocks. */
    int64_t before, whole;
    int round; /* index of the round in this clock */
    /* The leader's command for this round. Without a schedule function: the command of tr_task.next(), or zeros outside tasks. */
    tr_command command;
    void *kept; /* data of the stage for this worker: set by prepare(), freed by release() */
} tr_worker;

/* Sums over all workers, from which summarize() computes an evaluation. */
enum { TR_SUMS = 32 };
typedef struct tr_report {
    int64_t clock;       /* the clock that is evaluated */
    double sum[TR_SUMS]; /* in evaluate() the contribution of this worker, in summarize() the sums */
} tr_report;

/* A metric on test data. */
enum { TR_METRICS = 4 }; /* maximum number of metrics of a stage */
typedef struct tr_stage_metric {
    const char *name; /* for example "accuracy"; NULL: there is no such metric */
    bool ascends;     /* a higher value is better */
} tr_stage_metric;

/* The result of an evaluation. NaN stands for a value that does not exist. */
typedef struct tr_evaluation {
    double objective, gap;     /* gap: upper bound of (objective - optimum) / optimum */
    double metric[TR_METRICS]; /* values of the metrics in tr_stage.metric */
    double epoch;              /* passes over the data so far; NaN: computed from the clock */
    bool stop;                 /* end the stage */
    bool estimated;            /* the gap is an estimate, not proven */
} tr_evaluation;

typedef struct tr_stage {
    const char *name;
    void *state; /* argument of the functions below; each rank has its own */
    int64_t clocks;
    int64_t evaluate_every;             /* clocks between evaluations; 0: at the end only */
    double epochs_per_clock;            /* passes over the data per clock, for progress */
    double gap_goal;                    /* gap at which summarize() ends the stage, for progress; 0: none */
    const char *objective_name;         /* for example "inertia"; NULL: "objective" */
    bool ascends;                       /* the objective increases, as a likelihood does */
    tr_stage_metric metric[TR_METRICS]; /* metrics on test data; solve.patience uses the first */

    /* In a task: only one group runs the stage each time, the group that ran it least recently. */
    bool one_group;

    /* Opens views. Called on workers before the first clock. In a task it is called once for every set of workers on which the
     * stage runs (again if the result was released). It must store the views in me->kept, which the other functions receive
     * whenever the stage runs on these workers. */
    int (*prepare)(tr_worker *me, void *state);

    /* Closes the views in `kept` and frees it. Called on workers when me->kept is no longer needed, unless it is NULL. */
    void (*release)(void *kept);

    /* Called on all ranks that take part before the first clock of every run, for example to change server shards. No
     * rank reads or writes tables at that time. May be NULL. */
    int (*begin)(tr_context *tr, void *state);

    /* Computes one clock (or round). Called on workers. Pulls come before pushes. */
    int (*compute)(tr_worker *me, void *state);

    /* Fills one command per member and sets *again to true, or leaves it false to end the clock. Called on leaders before
     * every round. NULL: one round per clock without commands. */
    int (*schedule)(tr_worker *me, void *state, tr_command *commands, bool *again);

    /* compute() takes and passes blocks of a rotation (below), in which members wait for each other. */
    bool rotates;

    /* Adds this worker's contribution to the sums. Called on workers at the clocks of evaluate_every and at the end. Under BSP all
     * workers evaluate the same parameters. Under SSP and ASP, when the first worker reaches such a clock, each worker evaluates
     * the values that it reads at the end of its current clock; workers in groups evaluate when they reach the clock themselves. */
    int (*evaluate)(tr_worker *me, void *state, tr_report *report);

    /* Computes the evaluation from the sums of all workers. Called on the scheduler. */
    int (*summarize)(void *state, const tr_report *sums, tr_evaluation *evaluation);

    /* Lists the state that checkpoints contain in addition to the tables: see «snapshots» above. Called on all ranks that take
     * part; me->worker is negative on ranks that do not compute. NULL: no checkpoints are written during this stage; a resumed run
     * repeats it from its beginning. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_stage;

/* Runs a stage on all workers, while servers and the scheduler do their part. All ranks must call it with the same stage,
 * each with its own state.
 *
 * @return the agreed outcome
 */
int tr_run(tr_context *tr, const tr_stage *stage);

/* Limit the number of workers that compute at the same time to stages.NAME.parallelism. A worker computes between the two calls;
 * tr_turn_begin() waits until fewer than this number of workers do. They have no effect for names that are not in tr_method.stages.
 * Under BSP all workers must call both functions equally often and in the same order. Between the calls a worker must not wait for
 * another worker (no tr_group_sum()). Ranks that do not compute may call them, and a single process may pass tr = NULL.
 *
 * @param [in] status  outcome of the work; tr_turn_end() returns it if it is not TR_OK
 */
int tr_turn_begin(tr_context *tr, const char *stage);
int tr_turn_end(tr_context *tr, int status);

/* Sums n numbers over the members of the group, in place, with equal results on all members. In a stage that rotates blocks, these
 * functions do not wait for a member that has failed. */
int tr_group_sum(tr_worker *me, double *numbers, size_t n);

/* The nonblocking form of tr_group_sum(). tr_group_sum_begin() copies n numbers. tr_group_sum_end() waits, writes the sums and sets
 * *sum to NULL. All members must begin and end the same sums in the same order. If a member has failed, *sum may remain set: the
 * stage ends then. */
typedef struct tr_sum tr_sum;
int tr_group_sum_begin(tr_worker *me, const double *numbers, size_t n, tr_sum **sum);
int tr_group_sum_end(tr_worker *me, tr_sum **sum, double *numbers);

/* Computes n minima over the members of the group, in place. Of equal values, the one with the lower place is the minimum. */
typedef struct tr_least {
    double value;
    int place; /* identifies the value, for example an index; defined by the caller */
} tr_least;
int tr_group_least(tr_worker *me, tr_least *least, size_t n);

/* ================ tasks ================ */

/* Tasks: sequences of stages, each with its own number of workers (FlexPS, sections 3 and 4).
 *
 * The scheduler selects the next stage, its number of clocks and of workers. The selected workers run it; the others sleep
 * or run another stage. Tables, data and the views of a stage remain in place, so that a transition costs a few messages.
 * A stage sees all updates of the stages before it, and its clocks start at 0.
 */

/* Special values of tr_next.workers. Every group takes part in a stage unless the stage has one_group set. If the number of workers
 * is no multiple of the number of groups, all workers take part, but only this number computes at the same time. */
enum {
    TR_ALL_WORKERS = 0,  /* all workers; in a stage with one_group all workers of the group */
    TR_AUTO_WORKERS = -1 /* the number is determined while the stage runs: FlexPS, section 5.4 */
};

/* The stage to run next. */
typedef struct tr_next {
    int stage; /* index in the task; -1: the task is complete */
    int64_t clocks;
    int workers;
    int servers;        /* number of servers of tr_task.table from now on; 0: unchanged */
    tr_command command; /* passed to the workers as tr_worker.command */
} tr_next;

/* The stage that ran last. */
typedef struct tr_ran {
    int stage; /* index in the task; -1: no stage has run yet */
    int64_t clocks;
    int workers;              /* number of workers that computed at the same time */
    int first_group;          /* first group whose workers took part */
    double seconds;           /* time from the begin of the first clock to the end of the last */
    tr_evaluation evaluation; /* last evaluation, if the stage has evaluate() */
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

    /* Lists the state of the task in checkpoints, above all the state of next(): see «snapshots» above. Called on all ranks that
     * take part. `me` describes a stage of all workers (worker is negative on ranks that do not compute), but before, whole and
     * command belong to the stage that runs next; they are restored when the run resumes. Checkpoints are written between stages,
     * after next(). To permit checkpoints during a long stage, a stage without begin() and evaluate() runs in parts of about 0.1 s
     * (tr_worker.before). NULL: no checkpoints; a resumed run repeats the task. */
    int (*snapshot)(tr_worker *me, void *state, tr_snapshot *snapshot);
} tr_task;

/* Runs a task to its end. All ranks must call it.
 *
 * @return the agreed outcome; the first stage that fails ends the task
 */
int tr_run_task(tr_context *tr, const tr_task *task);

/* ================ rotation ================ */

/* Rotation: blocks move through the K members of a group, so that no two members hold the same block at the same time
 * and each member has had every block after a full rotation (Angel, section 4.2: the schedule of LDA and of matrix
 * factorization).
 *
 * Each member has D blocks: in round r member i holds block (D i + r) mod (D K), and a rotation has D K rounds. D is 1 if
 * the members of a group are on one node. Across nodes D is 2, so that a block is transferred while its receiver works on
 * the previous one (Teflioudi et al., Distributed matrix completion, ICDM 2012: DSGD++). Members wait for their blocks
 * only: a member may be some rounds ahead of another member.
 *
 * A block is memory of a fixed size. The model defines its content: rows of a table, counts, anything. A model fills
 * blocks from its tables before the rounds of a clock and writes changes back to the tables afterwards.
 *
 * Example: one clock of a member.
 *
 *     for (int r = 0; r < tr_rotation_depth(me->tr) * me->group_size; r++) {
 *         tr_block block;
 *         TR_TRY(tr_rotation_take(rotation, &block));
 *         if (!block.memory) break;                          // a member has failed
 *         sample_words(model, block.number, block.memory);
 *         TR_TRY(tr_rotation_give(rotation));
 *     }
 */

typedef struct tr_rotation tr_rotation;

typedef struct tr_block {
    int number;   /* 0 .. D K - 1 */
    void *memory; /* aligned to 64 bytes */
    size_t bytes;
} tr_block;

/* Returns D, equal on all ranks. Between two rotations a member holds D consecutive blocks. */
int tr_rotation_depth(const tr_context *tr);

/* Creates a rotation of D blocks per member. All members of the group must call it with the same sizes, in a stage's
 * prepare function or later.
 *
 * @param [in]  bytes     sizes of the D K blocks, which contain zeros at first
 * @param [in]  parts     maximum number of parts in which tr_rotation_pass() sends a block; 1 if it is not called
 * @param [out] rotation  free it with tr_rotation_close(), on all members
 *
 * table.rotate selects how blocks move: through memory that the members share, if their node has enough, or as messages
 * from each member to the previous one. Memory per member: D blocks, or D + 1 of the largest if blocks are sent.
 */
int tr_rotation_open(tr_worker *me, const size_t *bytes, int parts, tr_rotation **rotation);

/* Frees a rotation after the stage and sets *rotation to NULL. All members must call it. *rotation may be NULL. */
void tr_rotation_close(tr_rotation **rotation);

/* tr_rotation_take() waits for the block of this member's next round; the member has the block until tr_rotation_give(). Compute
 * functions of stages with tr_stage.rotates call both; each clock must take and give a multiple of D K blocks.
 *
 * @param [out] block  block->memory is NULL if a member has failed: the compute function should return
 */
int tr_rotation_take(tr_rotation *rotation, tr_block *block);
int tr_rotation_give(tr_rotation *rotation);

/* Declares, between take and give, that the first `bytes` bytes of the block will not change further. If blocks are sent as
 * messages, these bytes may be sent while the member works on the rest; the member must still give the block. The call is cheap. */
void tr_rotation_pass(tr_rotation *rotation, size_t bytes);

/* Waits for the block that this member will have `rounds` rounds after the next round, 0 <= rounds < D, without taking it. To be
 * called between two clocks or before the first round of a clock. */
int tr_rotation_look(tr_rotation *rotation, int rounds, tr_block *block);

/* Returns how blocks move, for reports: "share", "travel", or "alone" in a group of one. */
const char *tr_rotation_way(const tr_rotation *rotation);

#ifdef __cplusplus
}
#endif
#endif

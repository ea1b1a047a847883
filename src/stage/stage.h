/* stage/: opening a context with all its roles, and running stages and tasks on its ranks.
 *
 *   context    opening a context or a team; observers, and the timeline of the stages
 *   run        one run of a stage: clock limit, evaluations, pauses
 *   worker     a worker: clocks, rounds, turns, sums over a group; workers that are slowed on purpose
 *   scheduler  the order and the ranks of stages of a task and of tasks of a job; the best number of workers of a stage
 *   rotation   blocks that rotate among the members of a group
 */
#ifndef TR_STAGE_H
#define TR_STAGE_H

#include "table/sync.h"
#include "table/view.h"
#include "trireme/stage.h"

/* ---- stragglers on purpose: workers that are slowed, to measure the effect on an algorithm ----
 *
 * The measure is that of DynSGD (equation 1): the heterogeneity level HL is the time of a clock of the slowest worker,
 * computing and transferring without waiting for others, divided by that of the fastest.
 *
 * A slowed worker sleeps before the first push of a clock. Between a pull and a push a worker does not communicate, so for
 * other ranks a sleep there has the effect of a slower processor or network: the update arrives late, and was computed on
 * old parameters. The other roles of the rank (server, scheduler) continue while the worker sleeps.
 *
 * The time of a worker is wall-clock time. On a machine with more ranks than cores it includes waiting for a core, which
 * determines how often one worker pushes while another pushes once. But that time is noisy, and a system favours processes
 * that sleep. With experiment.clock, the least time of a clock of every worker, the cores are mostly idle, and levels are
 * exact. */

/* Return the number of slowed workers (the fraction experiment.slow, rounded, at least one if it is not 0); whether `worker`
 * (0 .. workers-1) is one of them. Drawn from the seed of the job, the same on all ranks. */
int tr_slowed_workers(const struct tr_job *job, int workers);
bool tr_is_slowed(const struct tr_job *job, int workers, int worker);

/* Times of one worker in a stage, in wall-clock seconds, without waiting for other workers and without evaluations. */
struct tr_straggler {
    tr_context *tr;
    bool on;      /* the job slows workers or has a least clock: time is measured */
    bool slowed;  /* this worker is slowed */
    double level; /* experiment.level if slowed, else 1 */
    double least; /* experiment.clock */
    bool network; /* naps are proportional to transfers, and count as transfers */

    bool computing, napped; /* in this clock */
    double begin;           /* start of this clock */
    double waited, moved;   /* seconds of waiting and transfers at the start of this clock */
    double nap, natural;    /* of this clock: sleep, and the time before it */

    double computed, transferred; /* of all clocks, without naps */
    double paid, all;             /* at the last nap: the slow part of both, and the wanted sum of all naps */
    double missed;                /* difference of that sum and the planned naps */
    double owed;                  /* remaining nap; below 0: overslept */
    double late;                  /* delay behind the least clock, subtracted from later naps */
    double seconds;               /* of all clocks, with naps */
};

/* Starts a stage on a worker, which sleeps before pushes until tr_straggler_close(). */
void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *straggler);
void tr_straggler_close(struct tr_straggler *straggler);

/* Call these before and after the computation of a clock (or of a round). The second one sleeps if nothing was pushed in between. */
void tr_straggler_begin(struct tr_straggler *straggler);
int tr_straggler_end(struct tr_straggler *straggler);

/* The requested level and the level reached: the mean time of a clock of the slowed workers, divided by that of the others. NaN if all
 * or none are slowed, or if a worker has ended no clock. */
struct tr_heterogeneity {
    int slowed, workers;
    double asked, reached;
};

/* Prints "heterogeneity: asked 2, reached 1.98: 2 of 8 workers slowed", and advice if the levels differ much. */
void tr_heterogeneity_say(const tr_context *tr, const struct tr_heterogeneity *heterogeneity);

/* ---- progress ---- */

/* One finished evaluation, for the observer of progress. */
struct tr_progress_row {
    int64_t clock;
    double epoch, seconds; /* mean number of passes of the workers; time since the stage began */
    tr_evaluation evaluation;
    bool exact; /* all workers saw the same parameters; otherwise objective and gap are estimates */
    double compute_seconds; /* sum over the workers since the stage began, as the next */
    struct tr_traffic traffic;
    uint64_t updates;                      /* number of pushes of groups */
    double evaluate_seconds;               /* mean of the workers */
    struct tr_heterogeneity heterogeneity; /* zeros if the job slows no workers */
    double peak_rss;                       /* bytes of the largest worker */
};

void tr_traffic_add(struct tr_traffic *sum, const struct tr_traffic *one);

/* Times of a stage so far, in wall-clock seconds. */
struct tr_stage_sum {
    char name[48];
    int runs, fewest,
        most; /* number of runs (sub-stages of a search are runs); fewest and most workers of a run */
    int64_t clocks;
    double seconds, worker_seconds; /* of its clocks; times workers */
    double began, ended;            /* tr_now() when its first clock began, and its last one ended */
    double transition;              /* median, from the end of the stage before to its first clock */
    char degree[256];               /* tr_degree_describe(); "" if the number of workers was given */
};

/* Functions that a context calls; each may be NULL. Set them before tr_run(), on the ranks that they are called on. */
struct tr_observers {
    void *who; /* first argument of progress() and sums() */
    /* Rank 0: shows progress. */
    int (*progress)(void *who, const tr_stage *stage, const struct tr_progress_row *row);
    /* Rank 0, at the end of a task (tr_run_task()) and of training: shows the times of n stages. */
    int (*sums)(void *who, const struct tr_stage_sum *sums, size_t n);
    /* All ranks, together, when a stage is about to begin: its views are open, its tables ready. May use collectives. */
    int (*ready)(void *ready_who, const tr_stage *stage);
    void *ready_who;
    /* All ranks, before a stage or a task runs. */
    int (*before_run)(tr_context *tr);
};
struct tr_observers *tr_observers(tr_context *tr);

/* ---- turns: stages for which the job says how many workers run at a time (stages.NAME.parallelism; FlexPS, section 3) ----
 *
 * Each worker processes its own rows, at any degree, so that the bits of a model do not depend on the degree. At degree p,
 * worker i begins when worker i - p has ended, and sleeps until then; when the last one has ended, all continue. One message is sent from worker to worker, and one along a tree and back at the end, so the degree is exact on
 * any number of hosts.
 *
 * With `auto` the degree is found from the time of the slowest worker in a turn, which all workers know: each decides by
 * itself, and all decide the same (scheduler.h). A stage without a setting is only timed. */

/* Returns whether the stages are shown: the job has settings for them, or they are not those of turns. */
bool tr_turns_are_shown(const tr_context *tr);

/* Shows the sums of the turns to the observer: all ranks, when training is over. */
int tr_turns_show(tr_context *tr);

/* ---- the timeline of a run: which rank worked in which stage, for summary.json ---- */

struct tr_span {
    char stage[40];
    int64_t rank;
    double begin, end; /* seconds since 1970, by the clock of the host */
};

/* Records that this rank was at work, from and until as tr_now(). Each rank keeps its last 256 spans; of thousands of ranks
 * each keeps fewer. */
void tr_timeline_add(tr_context *tr, const char *stage, double from, double until);

/* Gathers the spans of all ranks, rank by rank in the order of time; to be freed. All ranks. */
int tr_timeline_gather(tr_context *tr, struct tr_span **all, size_t *n);

/* ---- contexts and teams ---- */

/* Opens roles, clocks and tables for a job: the second part of tr_open(). Takes ownership of the job. */
int tr_context_assign(tr_context *tr, tr_job *job);

/* Starts MPI and reads the job into tr->job: the first part of tr_open(). own: the class of models of the program, or NULL.
 * Then call tr_context_assign(), tr_context_describe() and tr_services_open(); for a job of several tasks, open a team for
 * each task instead (src/cli/cli.h). */
int tr_context_read(int *argc, char ***argv, const struct tr_model_class *own, tr_context **tr);

/* Frees a context, assigned or not. All ranks; returns as tr_close() does. */
int tr_context_close(tr_context *tr);

/* Prints the layout. */
void tr_context_describe(const tr_context *tr);

/* Opens a context for one task of a job on some ranks; rank, n and number as in tr_ranks_start_team(). Name and job stay
 * the caller's, and outlive the team. Close it with tr_context_close(). All ranks of the team; on failure the first one has
 * printed the reason. */
int tr_team_open(tr_context *of, const int *rank, int n, int number, const char *name, tr_job *job,
                 tr_context **team);

/* Keeps a team whose task succeeded for another task on the same ranks, with its communicators and the data that it has read
 * (FlexPS, section 5.3); tr_team_again() then gives it that task. All ranks of the team. */
void tr_team_rest(tr_context *team);
int tr_team_again(tr_context *team, const char *name, tr_job *job);

#endif

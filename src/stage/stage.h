/* stage/: opening a context with all its roles, and running stages and tasks on its ranks.
 *
 *   context    opening a context or a team; observers, and the timeline of the stages
 *   run        one run of a stage: clock limit, evaluations, pauses
 *   worker     clocks and rounds of a worker, turns, sums over a group; workers that are slowed on purpose
 *   scheduler  which stages of a task and tasks of a job run next, and on which ranks; the best number of workers of a stage
 *   rotation   blocks that rotate among the members of a group
 */
#ifndef TR_STAGE_H
#define TR_STAGE_H

#include "table/sync.h"
#include "table/view.h"
#include "trireme/stage.h"

/* ---- stragglers on purpose: workers that are slowed, to measure the effect on an algorithm ----
 *
 * The effect is measured by the heterogeneity level of DynSGD (equation 1): the time per clock of the slowest worker divided by
 * that of the fastest. The time of a clock includes computing and transfers, but not waiting for other workers.
 *
 * A slowed worker sleeps (naps) before the first push of a clock. Between a pull and a push a worker does not communicate, so for
 * other ranks a nap has the effect of a slower processor or network: the update arrives late, and was computed from old parameters.
 * The other roles of the rank (server, scheduler) continue during the nap.
 *
 * Times are wall-clock times. With more ranks than cores they include waiting for a core, so they are noisy, and operating systems
 * favour processes that sleep. If experiment.clock sets a minimum for the time of a clock that is much longer than computing, cores
 * are mostly idle, and levels are exact. */

/* Returns the number of slowed workers: the fraction experiment.slow of all workers, rounded, and at least 1 if it is not 0. */
int tr_slowed_workers(const struct tr_job *job, int workers);

/* Returns whether `worker` (0 .. workers-1) is slowed. Drawn from the seed of the job, so equal on all ranks. */
bool tr_is_slowed(const struct tr_job *job, int workers, int worker);

/* Times of one worker in a stage, in wall-clock seconds, without waiting for other workers and without evaluations. */
struct tr_straggler {
    tr_context *tr;
    bool on;      /* times are measured: the job sets experiment.slow or experiment.clock */
    bool slowed;  /* this worker is slowed */
    double level; /* experiment.level if slowed, else 1 */
    double least; /* experiment.clock: minimum time of a clock in seconds; 0: none */
    bool network; /* naps are proportional to transfers instead of computing, and count as transfers */

    bool computing, napped; /* this clock is being computed; it had its nap */
    double begin;           /* tr_now() at the start of this clock */
    double waited, moved;   /* wait_seconds and transfer seconds of the rank at the start of this clock */
    double nap, natural;    /* duration of the nap of this clock, and of the clock before the nap */

    double computed, transferred; /* sums over all clocks, without naps */
    double paid;                  /* `computed` (network: `transferred`) at the last nap */
    double all;                   /* required sum of all naps, as computed at the last nap */
    double missed;                /* `all` minus the sum of all planned naps */
    double owed;                  /* planned sleep that has not taken place; below 0: naps were too long */
    double late;                  /* delay beyond the minimum time of a clock, subtracted from later naps */
    double seconds;               /* sum over all clocks, with naps */
};

/* Starts a stage on a worker, which naps before pushes until tr_straggler_close(). */
void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *straggler);
void tr_straggler_close(struct tr_straggler *straggler);

/* Call these before and after the computation of a clock (or of a round). tr_straggler_end() naps if nothing was pushed. */
void tr_straggler_begin(struct tr_straggler *straggler);
int tr_straggler_end(struct tr_straggler *straggler);

struct tr_heterogeneity {
    int slowed, workers; /* number of slowed workers, and of all workers */
    double asked;        /* the requested level */
    /* mean time per clock of the slowed workers, divided by that of the others; NaN: not measured (see run.c) */
    double reached;
};

/* Prints for example "heterogeneity: asked 2, reached 1.98: 2 of 8 workers slowed", and advice if the levels differ much. */
void tr_heterogeneity_say(const tr_context *tr, const struct tr_heterogeneity *heterogeneity);

/* ---- progress ---- */

/* A complete evaluation, an argument of the observer of progress. */
struct tr_progress_row {
    int64_t clock;
    double epoch;   /* mean number of passes over the data of the workers */
    double seconds; /* time since the stage began */
    tr_evaluation evaluation;
    bool exact; /* all workers saw the same parameters; otherwise objective and gap are estimates */
    double compute_seconds;                /* sum over the workers, since the stage began */
    struct tr_traffic traffic;             /* sum over the workers, since the stage began */
    uint64_t updates;                      /* number of pushes, where a group counts as one worker */
    double evaluate_seconds;               /* mean over the workers, since the stage began */
    struct tr_heterogeneity heterogeneity; /* zeros if the job slows no workers */
    double peak_rss;                       /* maximum over the workers, in bytes */
};

/* Adds the counts of `one` to `sum`. */

void tr_traffic_add(struct tr_traffic *sum, const struct tr_traffic *one);

/* Times of a stage over all its runs so far, in wall-clock seconds. */
struct tr_stage_sum {
    char name[48];
    int runs;         /* number of runs (sub-stages of a search are runs) */
    int fewest, most; /* minimum and maximum number of workers of a run */
    int64_t clocks;
    double seconds;        /* duration of all clocks */
    double worker_seconds; /* sum of the durations of runs, each multiplied by its number of workers */
    double began, ended;   /* tr_now() when the first clock began, and when the last clock ended */
    double transition;     /* median time from the end of the previous stage to the first clock; NaN: none */
    char degree[256];      /* result of tr_degree_describe(); "" if the number of workers was given */
};

/* Functions that a context calls; each may be NULL. Set each before tr_run(), on the ranks on which it is called. */
struct tr_observers {
    void *who; /* first argument of progress() and sums() */
    /* Called on rank 0 after each evaluation, to show progress. */
    int (*progress)(void *who, const tr_stage *stage, const struct tr_progress_row *row);
    /* Called on rank 0 at the end of a task (tr_run_task()) and of training, to show the times of n stages. */
    int (*sums)(void *who, const struct tr_stage_sum *sums, size_t n);
    /* Called on all ranks together before the first clock of a stage, when its views and tables are open. May use collectives. */
    int (*ready)(void *ready_who, const tr_stage *stage);
    void *ready_who;
    /* Called on all ranks before a stage or a task runs. */
    int (*before_run)(tr_context *tr);
};

/* Returns the observers of a context, which the caller may set. */
struct tr_observers *tr_observers(tr_context *tr);

/* ---- turns: stages for which the job says how many workers run at a time (stages.NAME.parallelism; FlexPS, section 3) ----
 *
 * The degree is the number of workers that run at a time. Each worker processes its own rows at any degree, so that the model does
 * not depend on the degree, bit by bit. At degree p, worker i sleeps until worker i - p has ended its turn. When the last worker
 * has ended, all continue. Workers use messages: one from worker i - p to worker i, then one up a tree and one down.
 *
 * With `auto` the best degree is searched for (scheduler.h). All workers know the time of the slowest worker in each turn, so all
 * choose the same degree without messages. A stage without a setting is only timed. */

/* Returns whether the times of stages are shown: the job has settings for stages, or the method names no stages with turns. */
bool tr_turns_are_shown(const tr_context *tr);

/* Passes the times of the stages with turns to the observer. On all ranks, when training is over. */
int tr_turns_show(tr_context *tr);

/* ---- the timeline of a run: which rank worked in which stage, for summary.json ---- */

/* A period in which a rank worked in a stage. */
struct tr_span {
    char stage[40];
    int64_t rank;
    double begin, end; /* seconds since 1970, by the clock of the host */
};

/* Records that this rank worked in a stage; from and until are times of tr_now(). Each rank stores its last 256 spans, or fewer if
 * there are more than 256 ranks. */
void tr_timeline_add(tr_context *tr, const char *stage, double from, double until);

/* Gathers the spans of all ranks, sorted by rank and time, in *all, which the caller frees. All ranks. */
int tr_timeline_gather(tr_context *tr, struct tr_span **all, size_t *n);

/* ---- contexts and teams ---- */

/* Opens roles, clocks and tables for a job: the second part of tr_open(). Takes ownership of the job. */
int tr_context_assign(tr_context *tr, tr_job *job);

/* Starts MPI and reads the job into tr->job: the first part of tr_open(). own: the model class of the program, or NULL. Then call
 * tr_context_assign(), tr_context_describe() and tr_services_open() or, for several tasks, open a team for each (src/cli/cli.h). */
int tr_context_read(int *argc, char ***argv, const struct tr_model_class *own, tr_context **tr);

/* Frees a context, for which tr_context_assign() need not have been called. All ranks. Returns the status of tr_close(). */
int tr_context_close(tr_context *tr);

/* Prints the layout. */
void tr_context_describe(const tr_context *tr);

/* Opens a team: a context for one task of a job on some of the ranks; rank, n and number as in tr_ranks_start_team(). The caller
 * keeps name and job until the team is closed by tr_context_close(). All ranks of the team; its first rank prints errors. */
int tr_team_open(tr_context *of, const int *rank, int n, int number, const char *name, tr_job *job,
                 tr_context **team);

/* tr_team_rest() ends a task that succeeded, but keeps the team's communicators and the data that it has read. tr_team_again() then
 * starts another task on the same team (FlexPS, section 5.3). All ranks of the team. */
void tr_team_rest(tr_context *team);
int tr_team_again(tr_context *team, const char *name, tr_job *job);

#endif

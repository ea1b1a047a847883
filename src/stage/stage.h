/* stage/ — who runs what and when: opening a context with all its roles, and running stages and tasks on its ranks.
 *
 *   context    opening a context or a team; observers, and the timeline of the stages
 *   run        one run of a stage on rank 0's side: limits, evaluations, pauses
 *   worker     a worker: clocks, rounds, turns, sums over a group
 *   scheduler  what runs next, on which ranks: stages of a task, and tasks of a job
 *   degree     how many workers are best, found while a stage runs
 *   rotation   blocks that rotate among the members of a group
 *   straggler  workers that are slowed on purpose
 */
#ifndef TR_STAGE_H
#define TR_STAGE_H

#include "table/sync.h"
#include "table/view.h"
#include "trireme/stage.h"
#include "trireme/task.h"

/* ---- stragglers on purpose (M18): workers that are slowed, to measure the effect on an algorithm ----
 *
 * The measure is that of DynSGD (equation 1): the heterogeneity level HL is the time of a clock of the slowest worker,
 * computing and transferring without waiting for others, divided by that of the fastest.
 *
 * A slowed worker sleeps before the first push of a clock. No other rank sees anything of a worker between its pull and its
 * push, so for all others a sleep there has the effect of a slower processor or network: the update comes late, and was
 * computed on old parameters. The other roles of the rank (server, scheduler) continue while it sleeps.
 *
 * The time of a worker is wall-clock time. On a machine with more ranks than cores it includes waiting for a core, which
 * determines how often one worker pushes while another pushes once. But that time is noisy, and a system favours processes
 * that sleep. There experiment.clock helps: it is the least time of a clock of every worker, so that the cores are mostly
 * idle, and levels are exact. */
/* The number of slowed workers (the part experiment.slow, rounded, at least one if that is not 0), and whether `worker`
 * (0 .. workers-1) is one of them: drawn from the job's seed, the same on all ranks. */
int tr_slowed_workers(const struct tr_job *job, int workers);
bool tr_is_slowed(const struct tr_job *job, int workers, int worker);

/* The clocks of one worker in a stage. Wall-clock seconds, without waiting for other workers and without evaluating. */
struct tr_straggler {
    tr_context *tr;
    bool on;      /* the job slows somebody or has a least clock: time is measured */
    bool slowed;  /* this worker is one of those */
    double level; /* experiment.level for them, 1 for the others */
    double least; /* experiment.clock */
    bool network; /* naps are in proportion to transfers, and count as such */

    bool computing, napped; /* in this clock */
    double begin;           /* of this clock, and the counts then: */
    double waited, moved;
    double nap, natural; /* of this clock: slept, and what went before */

    double computed, transferred; /* without naps, all clocks, as the following */
    double paid, all; /* at the last nap: the slow part of those, and what all naps should come to; */
    double missed;    /* how much that is more than they were planned to be */
    double owed;      /* nap still to be taken; below 0: overslept */
    double late;      /* behind the least clock, to be made up for */
    double seconds;   /* with naps */
};

/* Starts a stage on a worker, which sleeps before pushes until tr_straggler_close(). */
void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *straggler);
void tr_straggler_close(struct tr_straggler *straggler);

/* Around the computing of a clock (or of a round). The second one sleeps if nothing was pushed in between. */
void tr_straggler_begin(struct tr_straggler *straggler);
int tr_straggler_end(struct tr_straggler *straggler);

/* The level asked for and the level reached: the mean time of a clock of the slowed workers over that of the others;
 * NaN while there are none of one kind, or some have ended no clock. */
struct tr_heterogeneity {
    int slowed, workers;
    double asked, reached;
};

/* "heterogeneity: asked 2, reached 1.98: 2 of 8 workers slowed", and what helps where they are far apart. */
void tr_heterogeneity_say(const tr_context *tr, const struct tr_heterogeneity *heterogeneity);

/* ---- progress ---- */

/* One finished evaluation, for the observer of progress. */
struct tr_progress_row {
    int64_t clock;
    double epoch, seconds; /* passes of the workers, in the mean; since the stage began */
    tr_evaluation evaluation;
    bool exact; /* all workers saw the same parameters; otherwise objective and gap are estimates */
    double compute_seconds; /* of the workers, summed, since the stage began, as the next */
    struct tr_traffic traffic;
    uint64_t updates;        /* pushes of groups: what their members push together counts once */
    double evaluate_seconds; /* of the workers, their mean */
    struct tr_heterogeneity heterogeneity; /* where the job slows workers; otherwise zeros */
    double peak_rss;                       /* bytes, of the largest worker */
};

void tr_traffic_add(struct tr_traffic *sum, const struct tr_traffic *one);

/* Times of a stage so far, in wall-clock seconds. */
struct tr_stage_sum {
    char name[48];
    int runs, fewest, most; /* runs, and workers of one at a time: sub-stages of a search count as runs */
    int64_t clocks;
    double seconds, worker_seconds; /* of its clocks; times workers */
    double began, ended;            /* tr_now() when its first clock began, and its last one ended */
    double transition;              /* median, from the end of the stage before to its first clock */
    char degree[256];               /* how its number of workers was found; "" if it was given */
};

/* Shows the times of n stages, on rank 0 at the end of a task (tr_run_task()) and of training. Set with tr_on_task(). */
typedef int tr_task_observer(void *who, const struct tr_stage_sum *sums, size_t n);
void tr_on_task(tr_context *tr, tr_task_observer *observer, void *who);

/* Shows progress on rank 0; set with tr_observe() before tr_run(). */
typedef int tr_observer(void *who, const tr_stage *stage, const struct tr_progress_row *row);
void tr_observe(tr_context *tr, tr_observer *observer, void *who);

/* Called on all ranks when a stage is about to begin: its views are open, its tables ready. Set on all ranks with
 * tr_on_ready() before tr_run(); may use collectives, as all ranks call it together. */
typedef int tr_ready_fn(void *who, const tr_stage *stage);
void tr_on_ready(tr_context *tr, tr_ready_fn *ready, void *who);

/* Calls before() on all ranks before a stage or a task runs; NULL: nothing. */
void tr_before_run(tr_context *tr, int (*before)(tr_context *tr));

/* ---- turns: stages for which the job says how many workers run at a time (stages.NAME.parallelism; FlexPS, section 3) ----
 *
 * Each worker does the work on its own rows, at any degree, so that a model does not depend on it bit by bit. Of w
 * workers at degree p, worker i begins when worker i - p has ended, and sleeps until then; when the last one has ended, all
 * continue. One message is sent from worker to worker, and one along a tree and back at the end, so the degree is exact on
 * any number of hosts.
 *
 * With `auto` the degree is found from the time of the slowest worker in a turn, which all workers know: each decides by
 * itself, and all decide the same (scheduler.h). A stage without a setting is only timed. */

/* Whether the stages are worth showing: the job has settings for them, or they are not those of turns. */
bool tr_turns_are_shown(const tr_context *tr);

/* Shows the sums of the turns to tr_on_task()'s observer: all ranks, when training is over. */
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
 * each task instead (src/cli/tasks.h). */
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

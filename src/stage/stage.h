/* stage/ — who runs what when: opening a context with all its roles, and running a stage's clocks on them.
 *
 *   open       a context
 *   run        one run of a stage: evaluate is the scheduler's part, work the workers'
 *   task       stages one after the other, each on workers of its own
 *   degree     how many workers are best, found while a stage runs
 *   schedule   which task's stages get which workers, as a pure function of what has happened
 *   timeline   which rank was in which stage when
 *   turns      stages of which some workers at a time do their part
 *   rotation   blocks that go round in a group
 *   straggler  workers slowed on purpose
 */
#ifndef TR_STAGE_H
#define TR_STAGE_H

#include "stage/straggler.h"
#include "table/sync.h"
#include "table/view.h"
#include "trireme/stage.h"
#include "trireme/task.h"

/* One finished evaluation, as those who show progress get it. */
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

/* What a stage has taken so far. Seconds of the wall. */
struct tr_stage_sum {
    char name[48];
    int runs, fewest, most; /* runs, and workers of one at a time: sub-stages of a search count as runs */
    int64_t clocks;
    double seconds, worker_seconds; /* of its clocks; times workers */
    double began, ended;            /* tr_now() when its first clock began, and its last one ended */
    double transition;              /* median, from the end of what ran before to its first clock */
    char degree[256];               /* how its number of workers was found; "" if it was given */
};

/* Shows what n stages have taken; on rank 0 at the end of a task (tr_run_task()) and of training, set with tr_on_task(). */
typedef int tr_task_observer(void *who, const struct tr_stage_sum *sums, size_t n);
void tr_on_task(tr_context *tr, tr_task_observer *observer, void *who);

/* Shows progress on rank 0; set with tr_observe() before tr_run(). */
typedef int tr_observer(void *who, const tr_stage *stage, const struct tr_progress_row *row);
void tr_observe(tr_context *tr, tr_observer *observer, void *who);

/* Called on all ranks when a stage is about to begin: its views are open, its tables ready. Set on all ranks with
 * tr_on_ready() before tr_run(); may use collectives, as all ranks call it together. */
typedef int tr_ready_fn(void *who, const tr_stage *stage);
void tr_on_ready(tr_context *tr, tr_ready_fn *ready, void *who);

/* Roles, clocks and tables, once the job is known: the part of tr_open() for those who have a job already. Takes it
 * over. */
int tr_context_assign(tr_context *tr, tr_job *job);

/* MPI, and the job, as tr->job: what tr_open() begins with. own: the class that the program brings, or NULL. Then follow tr_context_assign() with it,
 * tr_context_describe() and tr_services_open(); of a job of several tasks, a team for each (trireme train:
 * src/cli/tasks.h). */
int tr_context_read(int *argc, char ***argv, const struct tr_model_class *own, tr_context **tr);

/* Gives back what the three of them have made; a context of ranks alone is fine. All ranks; returns as tr_close()
 * does. */
int tr_context_close(tr_context *tr);

/* Says the layout. */
void tr_context_describe(const tr_context *tr);

/* A context for one task of a job on some of its ranks: see tr_ranks_start_team(), of which rank, n and number are.
 * Name and job stay the caller's, and outlive the team, which is closed by tr_context_close(). The ranks of the team,
 * together; on failure its first has printed why. */
int tr_team_open(tr_context *of, const int *rank, int n, int number, const char *name, tr_job *job,
                 tr_context **team);

/* A team whose task went well stays for another one on the same ranks, with its communicators and with the data that it
 * has read (FlexPS, section 5.3); tr_team_again() gives it that, as tr_team_open() did the first. Its ranks, together. */
void tr_team_rest(tr_context *team);
int tr_team_again(tr_context *team, const char *name, tr_job *job);

#endif

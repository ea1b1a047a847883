/* A running stage: private to this folder. Participants are the ranks that take part in it: workers, servers and rank 0. In a
 * pause, the clocks of all workers have stopped, so that a checkpoint or the best model can be copied, or an evaluation verified
 * (run.c). */
#ifndef TR_STAGE_RUN_H
#define TR_STAGE_RUN_H

#include "store/checkpoint.h"
#include "stage/stage.h"

/* Message of a worker to the scheduler at an evaluation. */
struct tr_stage_report {
    int64_t evaluation; /* number of the evaluation, or TR_AT_END */
    int64_t worker;
    int64_t status;
    double compute_seconds, evaluate_seconds, peak_rss;
    double busy_seconds; /* tr_straggler.seconds: time of its clocks without waiting, if measured */
    bool slowed;         /* the worker is slowed (stage.h) */
    struct tr_traffic traffic;
    tr_report sums;
};
enum { TR_AT_END = -1 };

/* Duration of the last clocks of a worker: that of clock i is seconds[i % TR_TIMED_CLOCKS]. */
enum { TR_TIMED_CLOCKS = 16 };
struct tr_clock_times {
    int64_t clocks; /* number of clocks so far */
    double seconds[TR_TIMED_CLOCKS];
};

/* The best evaluation, and the state of solve.patience. With solve.patience checkpoints contain its bytes. */
struct tr_patience {
    double best;   /* best metric so far, or NaN */
    double epoch;  /* epoch of the evaluation with this metric */
    double kept;   /* metric of the model that was kept by tr_best_keep(), or NaN */
    int64_t since; /* number of evaluations since the best one */
};

/* State of a context that belongs to this folder. */
struct tr_stages {
    double epoch; /* rank 0: epoch of the last evaluation */
    struct tr_observers observers;
    struct tr_timeline *timeline;
    struct tr_turns *turns; /* turns of the stages that the method names; NULL: it names none */
};

struct tr_stage_run {
    tr_context *tr;
    const tr_stage *stage;
    double begin;          /* tr_now() at the start of the stage or of its task */
    double first, last;    /* tr_now() at the start of the first clock and at the end of the last clock */
    const tr_stage *shown; /* argument of the observer of progress; in a task, it has the task's name */
    int64_t evaluated;     /* number of evaluations of the task before this run; -1: there is no task */
    int at_once;           /* number of workers that compute at a time; 0: all */
    int64_t ended;         /* number of clocks of the task's stages before this run; 0 without a task */
    /* ---- on workers ---- */
    tr_worker me;
    int status;     /* first failure of this worker; it then takes part in clocks without computing */
    bool halted;    /* on a leader: a member of the group has failed, and there are no more rounds */
    int64_t base;   /* me.clock when the clock window was last set to 0 */
    int64_t called; /* number of the last pause of this run (TR_CLOCK_CALLED) */
    double compute_seconds, evaluate_seconds;
    struct tr_straggler straggler;
    int64_t reported; /* number of the last evaluation that this worker has reported */
    struct tr_clock_times times;
    struct tr_stage_report outgoing;
    MPI_Request sending;
    /* ---- on rank 0, unless all ranks are mentioned ---- */
    struct tr_collection *collections;
    int64_t evaluations; /* number of complete evaluations */
    int64_t limit;       /* the clock limit: workers run all clocks < limit, and then wait */
    bool stopping;       /* the limit is final: the stage ends there */
    enum tr_due calling; /* reason of the pause that was called; TR_NOT_DUE: none was */
    struct tr_patience patience;
    bool is_best;     /* the last evaluation was the best, so the model must be kept in a pause */
    bool looks_again; /* an evaluation is being repeated in a pause */
    bool seems_over;  /* an estimated evaluation would end the stage; a pause must verify it */
    bool proven;      /* all ranks: an exact evaluation in a pause has ended the stage */
    bool flushed;     /* all ranks: residuals of filters and rounding were pushed after the last evaluation */
    bool is_over;     /* the stage is over, so evaluations do not change `patience` */
    bool end_saved;   /* a checkpoint of the end of the stage has been taken */
    int64_t met;      /* clock of the slowest worker when the clock window was last set to 0 */
    int64_t horizon;  /* under BSP: the clock limit is at most this clock (limit_horizon()) */
    double paced;     /* tr_now() when the slowest worker had reached clock paced_clock */
    int64_t paced_clock; /* `ahead` is computed from its progress since then */
    int64_t ahead;       /* number of clocks by which the limit is ahead of the slowest worker */
    int64_t looked;      /* clock of the slowest worker when it was last checked whether a pause is due */
    unsigned turns;      /* number of polls since then */
    bool final;          /* the evaluation at the end, or in a pause, is complete */
    tr_report sums;      /* sums of the last evaluation */
    tr_evaluation evaluation;              /* result of the last evaluation */
    struct tr_heterogeneity heterogeneity; /* measured at the last evaluation */
};

/* Returns whether the stage has evaluations. */
static inline bool tr_stage_is_evaluated(const struct tr_stage_run *run)
{
    return run->stage->evaluate && run->stage->summarize;
}

/* Records a failure of this rank in run->status, unless a failure was recorded before. */
static inline void tr_stage_note(struct tr_stage_run *run, int status)
{
    if (run->status == TR_OK) run->status = status != TR_OK ? status : run->tr->broken;
}

/* ---- context.c and worker.c ---- */

/* Opens the turns of the stages that the job's method names (tr_method.stages). TR_ERR_CONFIG: the job asks for more workers at a
 * time than there are, or does not run under BSP. All ranks, after the layout is known; the status may differ between ranks. */
int tr_turns_open(tr_context *tr);
void tr_turns_close(tr_context *tr);

/* ---- run.c: one run of a stage, on the active worker set ---- */

/* Initializes a run. */
void tr_stage_open(tr_context *tr, const tr_stage *stage, struct tr_stage_run *run);

/* Calls stage->begin(), and sets the clock window to 0. On all participants. */
int tr_stage_begin(struct tr_stage_run *run);

/* Opens the views of the stage, after tr_stage_begin(). On all ranks, which return the same status. */
int tr_stage_prepare(struct tr_stage_run *run);

/* Runs all clocks and evaluations. On all participants, which return the same status. */
int tr_stage_run(struct tr_stage_run *run);

/* Returns whether this worker must pause before its next clock. */
bool tr_stage_is_called(const struct tr_stage_run *run);

/* Adds a run to the times of its stage, except sum->runs, which the caller counts. begin, end: as tr_now(). */
void tr_stage_sum_add(struct tr_stage_sum *sum, int workers, int64_t clocks, double begin, double end,
                      double seconds);

/* ---- worker.c ---- */

/* Runs clocks until the last clock has ended, or the scheduler stops the stage or calls a pause. */
int tr_stage_work(struct tr_stage_run *run);

/* Evaluates once, and reports the result as the evaluations first .. last, because a slow worker may have missed some of them. */
int tr_stage_send_reports(struct tr_stage_run *run, int64_t first, int64_t last);

#endif

/* A running stage: private to this folder. */
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
    double
        busy_seconds; /* of its clocks, without waiting and evaluations; measured if the job slows workers */
    bool slowed;      /* the worker is slowed */
    struct tr_traffic traffic;
    tr_report sums;
};
enum { TR_AT_END = -1 };

/* Times of the last clocks of worker 0: clock i is in seconds[i % TR_TIMED_CLOCKS]. */
enum { TR_TIMED_CLOCKS = 16 };
struct tr_clock_times {
    int64_t clocks;
    double seconds[TR_TIMED_CLOCKS];
};

/* The best model so far, for solve.patience: its metric, that of the model that is kept (NaN: none is), and the number of
 * evaluations since the best one. Saved byte by byte. */
struct tr_patience {
    double best, kept;
    int64_t since;
};

/* State of a context (context.c). */
struct tr_stages {
    double epoch; /* rank 0: of the last evaluation */
    struct tr_observers observers;
    struct tr_timeline *timeline;
    struct tr_turns *turns; /* of the stages that the method names; NULL: it names none */
};

struct tr_stage_run {
    tr_context *tr;
    const tr_stage *stage;
    double begin;       /* start of the stage or of its task */
    double first, last; /* start of the first clock and end of the last one, on this rank */
    /* In a task: progress is shown under the task's name, and counts evaluations instead of clocks. */
    const tr_stage *shown;
    int64_t evaluated; /* the number of evaluations of the task before this run; -1: no task */
    int at_once;       /* the number of workers that compute at a time; 0: all */
    int64_t ended;     /* clocks of the task's stages before this run; 0 without a task */
    /* worker */
    tr_worker me;
    int status;     /* first failure of this worker's functions: the protocol continues, the work does not */
    bool halted;    /* a member of this leader's group failed: no more rounds */
    int64_t base;   /* clocks of this worker when the clock window started at 0 */
    int64_t called; /* number of the last pause */
    double compute_seconds, evaluate_seconds;
    struct tr_straggler straggler;
    int64_t reported; /* evaluations */
    struct tr_clock_times times;
    struct tr_stage_report outgoing;
    MPI_Request sending;
    /* scheduler */
    struct tr_collection *collections;
    int64_t evaluations, limit;
    bool stopping;       /* the clock limit does not rise any more */
    enum tr_due calling; /* a pause is called, for a checkpoint */
    struct tr_patience patience;
    bool is_best;     /* the last evaluation was the best: the model has to be kept */
    bool looks_again; /* evaluates again in a pause */
    bool seems_over;  /* by an estimate, which a pause has to verify */
    bool proven;      /* a pause has verified it: no more clocks. All ranks */
    bool flushed;    /* updates that filters had held back have been pushed since the evaluation. All ranks */
    bool is_over;    /* evaluations are not compared any more */
    bool end_saved;  /* a checkpoint of the end of the stage has been taken */
    int64_t met;     /* clock of the slowest worker when the clock window started at 0 */
    int64_t horizon; /* maximum of the clock limit */
    double paced;    /* when the slowest worker was seen at clock paced_clock */
    int64_t paced_clock;      /* its clock then */
    int64_t ahead;            /* clocks that the limit is ahead of the slowest worker, from these two */
    int64_t looked;           /* clock of the slowest worker at the last check whether a pause is due */
    unsigned turns;           /* of waiting since then */
    bool final;               /* the last evaluation is complete */
    tr_report sums;           /* of the last evaluation */
    tr_evaluation evaluation; /* the last evaluation */
    struct tr_heterogeneity heterogeneity; /* at the last evaluation */
};

/* Returns whether workers evaluate and the scheduler sums up. */
static inline bool tr_stage_is_evaluated(const struct tr_stage_run *run)
{
    return run->stage->evaluate && run->stage->summarize;
}

/* Records a failure: the first one counts. */
static inline void tr_stage_note(struct tr_stage_run *run, int status)
{
    if (run->status == TR_OK) run->status = status != TR_OK ? status : run->tr->broken;
}

/* ---- context.c and worker.c ---- */

/* The stages of the job's method, if it names them (tr_method.stages); TR_ERR_CONFIG if the job asks for more workers at a time
 * than there are. All ranks, once the layout is known; not agreed on. */
int tr_turns_open(tr_context *tr);
void tr_turns_close(tr_context *tr);

/* ---- run.c: one run of a stage, on the active worker set ---- */

void tr_stage_open(tr_context *tr, const tr_stage *stage, struct tr_stage_run *run);

/* Resets the clocks. Called by the participants, which run no other stage. */
int tr_stage_begin(struct tr_stage_run *run);

/* Opens the views of the stage; clocks are set back. All ranks; agreed on. */
int tr_stage_prepare(struct tr_stage_run *run);

/* Runs the clocks. Called by the participants, which agree on the outcome. */
int tr_stage_run(struct tr_stage_run *run);

/* Returns whether this worker must pause before its next clock. */
bool tr_stage_is_called(const struct tr_stage_run *run);

/* Adds clocks of a run to the times of its stage; the caller counts the runs. */
void tr_stage_sum_add(struct tr_stage_sum *sum, int workers, int64_t clocks, double begin, double end,
                      double seconds);

/* ---- worker.c ---- */

/* Runs clocks until the last one, or until the scheduler stops the stage or calls a pause. */
int tr_stage_work(struct tr_stage_run *run);

/* Evaluates once, and reports the result as the evaluations first .. last: a slow worker may have missed several. */
int tr_stage_send_reports(struct tr_stage_run *run, int64_t first, int64_t last);

#endif

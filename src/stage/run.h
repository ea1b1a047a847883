/* What the files of a running stage share. */
#ifndef TR_STAGE_RUN_H
#define TR_STAGE_RUN_H

#include "store/checkpoint.h"
#include "stage/stage.h"

/* What a worker sends to the scheduler at an evaluation. */
struct tr_stage_report {
    int64_t evaluation; /* number of it, or TR_AT_END */
    int64_t worker;
    int64_t status;
    double compute_seconds, evaluate_seconds, peak_rss;
    double busy_seconds; /* of its clocks, without waiting and evaluating; where the job slows workers */
    bool slowed;         /* it is one of those */
    struct tr_traffic traffic;
    tr_report sums;
};
enum { TR_AT_END = -1 };

/* How long the last clocks of worker 0 took: the i-th in seconds[i % TR_TIMED_CLOCKS]. */
enum { TR_TIMED_CLOCKS = 16 };
struct tr_clock_times {
    int64_t clocks;
    double seconds[TR_TIMED_CLOCKS];
};

/* What is known of the best model, for solve.patience: its metric, that of the one that is kept (NaN: none is), and how many
 * evaluations have come since the best. Saved as it lies here. */
struct tr_patience {
    double best, kept;
    int64_t since;
};

struct tr_stage_run {
    tr_context *tr;
    const tr_stage *stage;
    double begin;       /* when all this began */
    double first, last; /* when the first clock began, and the last one was over, as this rank saw it */
    /* To those who show progress: of a task it has the name, and its clocks are evaluations … */
    const tr_stage *shown;
    int64_t evaluated; /* … of which there were so many before this run; -1: no task */
    int at_once;       /* of its workers compute at a time; 0: all */
    int64_t ended;     /* clocks of the task's stages before this run; otherwise 0 */
    /* worker */
    tr_worker me;
    int status;     /* what this worker's functions returned first; the protocol goes on, the work does not */
    bool halted;    /* a slave of this leader failed: no more rounds */
    int64_t base;   /* clocks that this worker had ended when the clock window began at 0 */
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
    bool stopping;       /* the clock limit rises no more */
    enum tr_due calling; /* a pause is called, for a checkpoint */
    struct tr_patience patience;
    bool is_best;             /* the best model so far has just been evaluated, and is to be kept */
    bool looks_again;         /* … as it is now, while all stand still */
    bool seems_over;          /* by an estimate, and is to be evaluated in a pause … */
    bool proven;              /* … in which it was: no more clocks. All ranks */
    bool flushed;             /* what filters had held back has come since. All ranks */
    bool is_over;             /* what is evaluated now is not compared any more */
    bool end_saved;           /* the stage is over, and a checkpoint says so */
    int64_t met;              /* clock of the slowest worker when the clock window began at 0 */
    int64_t horizon;          /* as far as the clock limit may rise */
    double paced;             /* when the slowest worker was last seen … */
    int64_t paced_clock;      /* … at this clock; so that … */
    int64_t looked;           /* clock of the slowest worker when it was looked what is due */
    unsigned turns;           /* … since then */
    int64_t ahead;            /* … so many clocks the limit is ahead of the slowest worker */
    bool final;               /* the last evaluation is complete */
    tr_report sums;           /* of the last one */
    tr_evaluation evaluation; /* what followed from them */
    struct tr_heterogeneity heterogeneity; /* as of then */
};

/* Whether workers evaluate and the scheduler sums up. */
static inline bool tr_stage_is_evaluated(const struct tr_stage_run *run)
{
    return run->stage->evaluate && run->stage->summarize;
}

/* Takes note of a failure; what follows is done without it. */
static inline void tr_stage_note(struct tr_stage_run *run, int status)
{
    if (run->status == TR_OK) run->status = status != TR_OK ? status : run->tr->broken;
}

/* ---- run.c: one run of a stage, on the worker set that is active ---- */

void tr_stage_open(tr_context *tr, const tr_stage *stage, struct tr_stage_run *run);

/* Sets the clocks back. The participants, who have nothing to do with other stages any more. */
int tr_stage_begin(struct tr_stage_run *run);

/* Opens what the stage needs; clocks are set back. All ranks; the outcome is agreed on. */
int tr_stage_prepare(struct tr_stage_run *run);

/* Runs its clocks. The participants; the outcome is agreed on among them. */
int tr_stage_run(struct tr_stage_run *run);

/* All workers evaluate what is there, exactly, while nothing is under way: all that views hold is pulled again. */
int tr_stage_evaluate_now(struct tr_stage_run *run);

/* ---- evaluate.c: the scheduler ---- */

/* Lets the workers go on up to the next evaluation, or stops them. */
void tr_stage_set_limit(struct tr_stage_run *run, bool stop);

/* Receives reports, and sums them up where all workers have reported. */
int tr_stage_poll_reports(void *run, int *did);
void tr_stage_drop_collections(struct tr_stage_run *run);

/* ---- best.c: early stopping (solve.patience), and estimates that are proven ---- */

/* Without BSP, if a stage seems to be over: evaluates it, and ends it if that is so. All ranks, in a pause; agreed on. */
int tr_stage_prove(struct tr_stage_run *run);

/* The best model is kept, and training ends when none has been better for so many evaluations. */
bool tr_stage_is_patient(const struct tr_stage_run *run);

/* The scheduler, of an evaluation: whether it is the best so far, and whether to stop. */
void tr_stage_judge(struct tr_stage_run *run, tr_evaluation *evaluation);

/* Keeps the model if it is the best: all ranks, in a pause; agreed on. */
int tr_stage_keep_best(struct tr_stage_run *run);

/* Whether another than the last one is the best, which is filled again then: all ranks, when the stage is over. */
int tr_stage_restore_best(struct tr_stage_run *run, bool *restored);

/* Tells which it is, on rank 0: behind its evaluation. */
int tr_stage_tell_best(struct tr_stage_run *run);

/* For the lister of checkpoints. */
int tr_stage_list_best(struct tr_stage_run *run, tr_snapshot *snapshot);

/* ---- pause.c: checkpoints ---- */

/* Checkpoints are taken of this run. */
bool tr_stage_is_checkpointed(const struct tr_stage_run *run);

/* Rank 0 under BSP, where all workers stand at the clock limit: calls a pause there for the best model. */
void tr_stage_call_for_best(struct tr_stage_run *run);

/* What a stage has to keep, and where this worker stands; what: a struct tr_stage_run. */
int tr_stage_list(void *what, tr_snapshot *snapshot);

/* Rank 0 under BSP: how far the clock limit may rise, so that a pause that is called soon is soon. */
int64_t tr_stage_horizon(struct tr_stage_run *run);

/* Rank 0, again and again while clocks run: calls a pause where a checkpoint is due. */
void tr_stage_pace(struct tr_stage_run *run);

/* Whether this worker, between two clocks, is to come to a pause. */
bool tr_stage_is_called(const struct tr_stage_run *run);

/* Where the participants stand still: *again, because a pause was called for a checkpoint, which is taken; otherwise the
 * stage is over. TR_ERR_STOPPED: it is, and the run is to stop. */
int tr_stage_pause(struct tr_stage_run *run, bool *again);

/* Fills everything from the checkpoint that the run goes on from, if that was taken of this stage. All ranks, after the
 * stage is prepared; agreed on. */
int tr_stage_restore(struct tr_stage_run *run);

/* ---- work.c: a worker ---- */

/* All clocks, until there are no more, or the scheduler says stop or calls a pause. */
int tr_stage_work(struct tr_stage_run *run);

/* Evaluates, and reports that as evaluation first .. last: who is slow may have been asked for several at once. */
int tr_stage_send_reports(struct tr_stage_run *run, int64_t first, int64_t last);

#endif

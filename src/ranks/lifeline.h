/* Connection of a rank to the supervisor of its job (trireme run). A separate thread sends heartbeats with the progress of the
 * rank, while the rank computes or waits, and executes commands of the supervisor immediately. The thread does not use MPI.
 * Without a supervisor the lifeline is NULL, which all functions accept.
 *
 * The protocol consists of lines of text over TCP:
 *
 *   rank        hello VERSION TOKEN RANK SIZE PID START HOST    first line; START: start time in /proc, which together with
 *                                                               PID identifies the process
 *               beat PHASE STAGE CLOCK KEPT-STAGE KEPT-CLOCK WAITS      every PERIOD, and when the phase changes;
 *                                                               WAITS: seconds of the current wait; 0 if it is shorter
 *                                                               than ranks.patience and a few seconds
 *               bye STATUS                                      before a regular exit
 *   supervisor  welcome PERIOD LIMIT                            milliseconds between beats; milliseconds of silence after
 *                                                               which the supervisor assumes that a rank hangs
 *               signal NUMBER                                   deliver this signal to the process
 *               die                                             exit immediately: another process has failed
 *
 * A connection that closes without bye means that the other side has died. The environment variable TRIREME_SUPERVISOR has the
 * form ADDRESS[,ADDRESS...]:PORT:TOKEN; the token identifies one start of the job.
 */
#ifndef TR_LIFELINE_H
#define TR_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>

#define TR_LIFELINE_VARIABLE "TRIREME_SUPERVISOR"

/* Environment variable with the number of earlier starts of this job by the supervisor, from 0. */
#define TR_ATTEMPT_VARIABLE "TRIREME_ATTEMPT"

enum { TR_LIFELINE_VERSION = 2, TR_LIFELINE_LINE = 512 };

/* The supervisor waits for the first rank, and ranks wait in MPI_Init, for this multiple of LIMIT (by default 50 s). */
enum { TR_LIFELINE_STARTS = 5 };

enum tr_life_phase { TR_LIFE_STARTING, TR_LIFE_LOADING, TR_LIFE_TRAINING };

/* Progress of a rank. */
struct tr_life_state {
    int phase;                      /* enum tr_life_phase */
    int64_t stage;                  /* number of stages and tasks that have started */
    int64_t clock;                  /* clock of the newest stage; -1: none yet, or the rank is not a worker */
    int64_t kept_stage, kept_clock; /* position of the newest known checkpoint; clock -1: none */
};

#define TR_LIFE_NOWHERE ((struct tr_life_state){.clock = -1, .kept_clock = -1})

/* Returns whether a is more advanced than b. */
static inline bool tr_life_is_beyond(const struct tr_life_state *a, const struct tr_life_state *b)
{
    if (a->stage != b->stage) return a->stage > b->stage;
    return a->clock != b->clock ? a->clock > b->clock : a->phase > b->phase;
}

/* Returns whether the newest checkpoint of a is more advanced than that of b. */
static inline bool tr_life_is_kept_beyond(const struct tr_life_state *a, const struct tr_life_state *b)
{
    return a->kept_stage != b->kept_stage ? a->kept_stage > b->kept_stage : a->kept_clock > b->kept_clock;
}

/* Sets a to the maximum of a and b, separately for progress and newest checkpoint. The progress becomes at least the checkpoint. */
static inline void tr_life_advance(struct tr_life_state *a, const struct tr_life_state *b)
{
    struct tr_life_state old = *a;
    if (tr_life_is_beyond(b, a)) *a = *b;
    bool kept = tr_life_is_kept_beyond(b, &old);
    a->kept_stage = kept ? b->kept_stage : old.kept_stage;
    a->kept_clock = kept ? b->kept_clock : old.kept_clock;
    if (a->stage == a->kept_stage && a->clock < a->kept_clock) a->clock = a->kept_clock;
}

struct tr_lifeline;

/* Starts the thread, before MPI_Init so that MPI_Init is watched. Returns immediately; the thread keeps trying to connect. */
int tr_lifeline_start(struct tr_lifeline **line);

/* Sends bye and stops the thread. After MPI_Finalize. */
void tr_lifeline_stop(struct tr_lifeline **line, int status);

void tr_lifeline_load(struct tr_lifeline *line);                 /* the rank starts to read data */
void tr_lifeline_stage(struct tr_lifeline *line);                /* a stage or a task starts */
void tr_lifeline_clock(struct tr_lifeline *line, int64_t clock); /* this worker has reached a clock */

/* Reports that the checkpoint of a clock of this stage is complete, or that the run resumes from it. */
void tr_lifeline_kept(struct tr_lifeline *line, int64_t clock);

/* Reports a wait that has exceeded ranks.patience. Call it repeatedly during the wait. If all ranks report waits, the supervisor
 * ends the job, because they wait for each other. */
void tr_lifeline_wait(struct tr_lifeline *line, double seconds);

/* Call tr_lifeline_enter() before a blocking MPI function and tr_lifeline_through() after it. The thread reports a call that takes
 * longer than `patience` seconds as a wait. 0: TR_LIFELINE_STARTS times LIMIT. */
void tr_lifeline_enter(struct tr_lifeline *line, double patience);
void tr_lifeline_through(struct tr_lifeline *line);

/* Reports that another thread of this rank starts work (works = true) or ends it. Meanwhile waits of the main thread are not
 * reported, because it may wait for that work. Called by the main thread. */
void tr_lifeline_work(struct tr_lifeline *line, bool works);

#endif

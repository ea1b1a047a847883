/* A rank's line to the supervisor of its job (trireme run): a thread of its own says now and then that the rank is alive
 * and where it stands, whatever the rank computes or waits for, and does at once what the supervisor wants. It never uses
 * MPI. A rank that was not started by a supervisor has none: its lifeline is NULL, which all of these take.
 *
 * Words travel as lines of text over TCP:
 *
 *   rank        hello VERSION TOKEN RANK SIZE PID START HOST    first of all; START as /proc says it, so that no other
 *                                                               process is taken for this one
 *               beat PHASE STAGE CLOCK KEPT-STAGE KEPT-CLOCK WAITS      every period, and when the phase changes;
 *                                                               WAITS: seconds for which it has waited in vain, 0 as long
 *                                                               as it is patient, and in the first seconds
 *               bye STATUS                                      before the rank ends by itself
 *   supervisor  welcome PERIOD LIMIT                            both in milliseconds
 *               signal NUMBER                                   for this process
 *               die                                             now: something else has failed
 *
 * A line that breaks without a bye is a death, of whichever side. Where the supervisor is: TRIREME_SUPERVISOR in the
 * environment, ADDRESS[,ADDRESS …]:PORT:TOKEN, where the token tells ranks of this start of the job from others.
 */
#ifndef TR_LIFELINE_H
#define TR_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>

#define TR_LIFELINE_VARIABLE "TRIREME_SUPERVISOR"

/* How often this job was started before, by a supervisor: 0, 1, … */
#define TR_ATTEMPT_VARIABLE "TRIREME_ATTEMPT"

enum { TR_LIFELINE_VERSION = 2, TR_LIFELINE_LINE = 512 };

/* So many times its limit, by default 50 s, the supervisor waits for the first rank, and ranks for one another in MPI_Init. */
enum { TR_LIFELINE_STARTS = 5 };

enum tr_life_phase { TR_LIFE_STARTING, TR_LIFE_LOADING, TR_LIFE_TRAINING };

/* Where a rank stands. */
struct tr_life_state {
    int phase;
    int64_t stage;                  /* stages and tasks begun, from 1 on; 0 before */
    int64_t clock;                  /* of it; -1: none yet, or a rank that does not work */
    int64_t kept_stage, kept_clock; /* of the newest checkpoint, as far as this rank knows; clock -1: none */
};

#define TR_LIFE_NOWHERE ((struct tr_life_state){.clock = -1, .kept_clock = -1})

/* Whether a stands farther on than b, and whether its checkpoint does. */
static inline bool tr_life_is_beyond(const struct tr_life_state *a, const struct tr_life_state *b)
{
    if (a->stage != b->stage) return a->stage > b->stage;
    return a->clock != b->clock ? a->clock > b->clock : a->phase > b->phase;
}

static inline bool tr_life_is_kept_beyond(const struct tr_life_state *a, const struct tr_life_state *b)
{
    return a->kept_stage != b->kept_stage ? a->kept_stage > b->kept_stage : a->kept_clock > b->kept_clock;
}

/* Moves a forward to where b is farther on. What is kept has been reached, too, though only beats say clocks. */
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

/* Before MPI_Init, so that this is watched as well. Returns at once: the thread goes on trying to get through. */
int tr_lifeline_start(struct tr_lifeline **line);

/* Says good-bye. After MPI_Finalize. */
void tr_lifeline_stop(struct tr_lifeline **line, int status);

void tr_lifeline_load(struct tr_lifeline *line);                 /* reads data now */
void tr_lifeline_stage(struct tr_lifeline *line);                /* a stage or a task begins */
void tr_lifeline_clock(struct tr_lifeline *line, int64_t clock); /* of this worker; costs a store */

/* A checkpoint of this stage is whole, or goes on. */
void tr_lifeline_kept(struct tr_lifeline *line, int64_t clock);

/* Has been waiting for so long that patience has ended, and still is: to be said again and again. If all ranks say so they
 * wait for one another. */
void tr_lifeline_wait(struct tr_lifeline *line, double seconds);

/* Goes into MPI_Init or MPI_Finalize, where it waits for all others and for Open MPI's daemons: for longer than that it has
 * no patience (0: TR_LIFELINE_STARTS times the supervisor's limit). tr_lifeline_through(): it is out again. */
void tr_lifeline_enter(struct tr_lifeline *line, double patience);
void tr_lifeline_through(struct tr_lifeline *line);

/* A thread of this rank is at work (or no more), whatever the rank itself waits for. The rank's own thread says both: once
 * it knows of the end its waiting begins anew. */
void tr_lifeline_work(struct tr_lifeline *line, bool works);

#endif

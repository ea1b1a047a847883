/* Turns: stages of which the job says how many workers do them at a time (stages.NAME.parallelism; FlexPS, section 3).
 *
 * Each worker does the work on the rows that it holds, whatever the degree: so that a model does not depend on it, bit by
 * bit. Of w workers at degree p, worker i begins when worker i - p has ended, and sleeps until then, its core free for
 * others; when the last has ended all go on. As nothing but one message goes from worker to worker, and one to worker 0 and
 * back at the end, the degree is exact on any number of hosts.
 *
 * With `auto` the degree is found from the time that the slowest worker took for a turn, which all workers know: each
 * decides for itself, and all the same (degree.h). A stage of which the job says nothing is only timed. */
#ifndef TR_STAGE_TURNS_H
#define TR_STAGE_TURNS_H

#include "stage/stage.h"

/* The stages of the job's method, as far as it names them (tr_method.stages); TR_ERR_CONFIG where the job wants more workers
 * than there are. All ranks, once the layout is known; not agreed on. */
int tr_turns_open(tr_context *tr);
void tr_turns_close(tr_context *tr);

/* A worker waits until the one so many before it has passed its turn on, and passes its own; 0: all as they come. */
int tr_turns_wait(tr_context *tr, int parallelism);
int tr_turns_pass(tr_context *tr, int parallelism);

/* A worker that has failed takes no more turns: the others need not wait for it. */
void tr_turns_fail(tr_context *tr);

/* Whether stages are for people to see: the job speaks of them, or they are not those of turns. */
bool tr_turns_are_shown(const tr_context *tr);

/* Shows what the turns have taken by tr_on_task()'s observer: all ranks, when training is over. */
int tr_turns_show(tr_context *tr);

#endif

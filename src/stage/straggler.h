/* Stragglers on purpose: some workers are slowed, to see what that does to an algorithm (M18). The measure is that of
 * DynSGD (equation 1): the heterogeneity level HL is the time that a clock takes the slowest worker, computing and
 * transferring but not waiting for others, over the time that it takes the fastest.
 *
 * A slowed worker naps before the first push of a clock. Between its pull and its push nobody sees anything of a
 * worker, so that to all others a nap there is the same as a slower processor or a slower network: the update comes
 * late, and was computed on parameters that are as old as it took. What a worker's rank does besides (serving,
 * scheduling) goes on while it naps: the worker is slow, not the server.
 *
 * A worker's time is that of the wall, not of its processor: on a machine with more ranks than cores all workers wait
 * for a core, and it is the time with that which says how often one of them pushes while another pushes once. But that
 * time is noisy, and a system favours those who sleep. There experiment.clock helps: every clock takes every worker at
 * least so long, so that nearly all the time nobody needs a core, and levels are exact. */
#ifndef TR_STAGE_STRAGGLER_H
#define TR_STAGE_STRAGGLER_H

#include "ranks/ranks.h"

/* How many of the workers are slowed (experiment.slow of them, rounded, but at least one if that is not 0), and
 * whether this one (0 .. workers-1) is: drawn from the job's seed, the same on every rank that asks. */
int tr_slowed_workers(const struct tr_job *job, int workers);
bool tr_is_slowed(const struct tr_job *job, int workers, int worker);

/* One worker's clocks in a stage. Seconds of the wall; all without waiting for other workers and without evaluating. */
struct tr_straggler {
    tr_context *tr;
    bool on;      /* the job slows somebody or has a least clock: time is measured */
    bool slowed;  /* this worker is one of those */
    double level; /* experiment.level for them, 1 for the others */
    double least; /* experiment.clock */
    bool network; /* naps are in proportion to transfers, and count as such */

    bool computing, napped; /* in this clock */
    double begin;           /* of this clock, and what was counted then: */
    double waited, moved;
    double nap, natural; /* of this clock: slept, and what went before */

    double computed, transferred; /* without naps, all clocks, as the following */
    double paid, all; /* at the last nap: the slow part of those, and what all naps should come to; */
    double missed;    /* how much that is more than they were planned to be */
    double owed;      /* nap still to be taken; below 0: overslept */
    double late;      /* behind the least clock, to be made up for */
    double seconds;   /* with naps */
};

/* Begins a stage on a worker; naps in front of pushes until tr_straggler_close(). */
void tr_straggler_open(tr_context *tr, int worker, struct tr_straggler *straggler);
void tr_straggler_close(struct tr_straggler *straggler);

/* Around the computing of a clock (or of a round). The second naps if nothing was pushed in between. */
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

#endif

/* Rounds: who sends what to whom when updates of many ranks are merged. Nothing moves here; merge.c follows the plan.
 *
 * Participants are numbered 0 .. n-1, and some of them are servers. In each round those among whom a rank is are divided into
 * `degree` parts of neighbours. A rank sends what it holds for the servers of another part to one member of that part, and adds
 * up what it gets for its own part, which is whom the next round is among. After the last round each server has the sum of
 * all updates of its share. A rank so sends (degree - 1) log n messages, not n - 1; the price is that values travel
 * more than once. With a degree of n there is one round: everybody sends to each server directly.
 *
 * Which keys a rank has does not change from clock to clock, so keys travel once, when the plan is made, and values without them
 * from then on (H. Zhao and J. Canny 2014, "Kylix: a sparse allreduce for commodity clusters"). The same way back brings each
 * rank the sums of its keys, or whatever the servers make of them.
 *
 * All of it is cut into chunks, ranges of positions that are the same in every share, which are merged independently. */
#ifndef TR_TABLE_ROUNDS_H
#define TR_TABLE_ROUNDS_H

#include <mpi.h>

#include "ranks/ranks.h"
#include "table/keyset.h"

/* What one participant gets from this rank in a round, or this rank from it. A rank also keeps something for itself: then it is
 * its own peer. */
struct tr_flow {
    int peer;
    int first, end;  /* to a peer: the participants whose shares these units belong to */
    uint32_t *units; /* by chunk */
    uint32_t *
        at; /* by chunk: to a peer, the first of them among what is held; from a peer, the first of their places … */
    uint32_t *place; /* … which say where they are added, each by itself; NULL: side by side, from `at` on */
};

struct tr_round {
    int first, end; /* the participants among whom the next round is */
    size_t outs, ins;
    struct tr_flow *out, *in; /* ascending by peer */
    uint32_t *held; /* by chunk: units held after the round; none after the last: they are in the share */
};

struct tr_rounds {
    int me, size, degree;
    int *server;                   /* by participant: which server it is, or -1 */
    const struct tr_segment *keys; /* of this rank, by server, or NULL: what is held before the first round */
    uint32_t chunk, chunks; /* positions of a share in a chunk; how many chunks the longest share has */
    size_t n;
    struct tr_round *round;
};

/* Makes the plan: all ranks of comm. server: which one this rank is, or -1. keys: of this rank by server, or NULL; they must
 * stay. longest: positions of the longest share; chunk: of a chunk. TR_ERR_SYSTEM without memory. */
int tr_rounds_open(tr_context *tr, MPI_Comm comm, int server, const struct tr_segment *keys, uint64_t longest,
                   uint32_t chunk, int degree, struct tr_rounds *rounds);
void tr_rounds_close(struct tr_rounds *rounds);

/* The keys of a chunk that this rank has at a participant: from `first` on in its segment. */
struct tr_own_keys {
    const struct tr_segment *segment;
    uint32_t first, n;
};
struct tr_own_keys tr_rounds_own(const struct tr_rounds *rounds, int participant, uint32_t chunk);

/* The degree that should be fastest for n participants who all together have `held` units of a table of `units`, each of
 * unit_bytes. */
int tr_rounds_choose_degree(int n, double held, double units, size_t unit_bytes);

#endif

/* What training with variance reduction works on. */
#ifndef TR_LINEAR_VARIANCE_H
#define TR_LINEAR_VARIANCE_H

#include "model/linear/linear.h"
#include "solve/variance.h"
#include "table/transfer.h"

enum { TR_FULL, TR_INNER, TR_VARIANCE_STAGES };
extern const char *const tr_variance_stages[TR_VARIANCE_STAGES]; /* their names */

/* Arrays that go from group to group. */
enum { TR_SNAPSHOT, TR_ITERATE, TR_SECOND, TR_CARRIED };

/* Where an inner stage stands. */
struct tr_variance_position {
    int64_t epoch, turn; /* of the groups in it */
    int64_t done;        /* clocks of that turn; all of them are 0 of the next one */
};

/* What the memory of a node holds. */
struct tr_variance_held {
    struct tr_variance_position model;
    int64_t snapshot, slope; /* of epoch snapshot - 1 and slope - 1; 0: none yet */
};

struct tr_linear_variance {
    struct tr_node_memory memory;
    struct tr_variance_held *held; /* in that memory */
    struct tr_transfer transfer;
    size_t moving; /* so many bytes, from the beginning of that memory, go from node to node */
    struct tr_variance_model model; /* in that memory */
    void *carried[TR_CARRIED];      /* its arrays; NULL: the method has no such */
    char *slope;                    /* of each of the node's rows at the snapshot */
    struct tr_race race;
    tr_table *mu;
    /* [TR_SNAPSHOT] is the table w; NULL: stays in the memory of the only node */
    tr_table *table[TR_CARRIED];
    double smoothness;
    double *gradient; /* a worker's: of all coordinates */
    /* the scheduler's */
    int64_t epoch, epochs; /* begun, and how many there will be */
    int turn, turns;       /* of the groups in this epoch's inner stage, and how many it has */
    double passes;         /* over the data, so far */
};

/* What the workers of both stages are told. */
enum { TR_VARIANCE_EPOCH, TR_VARIANCE_TURN, TR_VARIANCE_TURNS, TR_VARIANCE_FROM_GROUP };

/* What runs, or runs next. */
struct tr_variance_position tr_variance_position_of(const tr_worker *me);

static inline bool tr_variance_same_position(struct tr_variance_position a, struct tr_variance_position b)
{
    return a.epoch == b.epoch && a.turn == b.turn && a.done == b.done;
}

/* For checkpoints: as tr_task.keep. */
int tr_linear_variance_keep(tr_worker *me, void *linear, tr_snapshot *snapshot);

static inline size_t tr_variance_element(const struct tr_linear *m)
{
    return m->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
}

#endif

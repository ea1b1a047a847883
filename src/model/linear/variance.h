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

struct tr_linear_variance {
    struct tr_node_memory memory;
    struct tr_transfer transfer;
    size_t moving; /* so many bytes, from the beginning of that memory, go from node to node */
    struct tr_variance_model model; /* in that memory */
    void *carried[TR_CARRIED];      /* its arrays; NULL: the method has no such */
    char *slope;                    /* of each of the node's rows at the snapshot */
    struct tr_race race;
    tr_table *mu,
        *table[TR_CARRIED]; /* [TR_SNAPSHOT] is the table w; NULL: stays in the memory of the only node */
    double smoothness;
    double *gradient; /* a worker's: of all coordinates */
    /* the scheduler's */
    int64_t epoch, epochs; /* begun, and how many there will be */
    int turn;              /* of the groups in this epoch's inner stage */
    double passes;         /* over the data, so far */
};

static inline size_t tr_variance_element(const struct tr_linear *m)
{
    return m->job->model.dtype == TR_DTYPE_F32 ? 4 : 8;
}

#endif

/* Variance reduction in checkpoints: the model of the node that has it, between any two clocks. Snapshot and gradient are in
 * tables; slopes follow from the snapshot; so do, when an epoch begins, all but what goes on from the one before it. */
#include "store/checkpoint.h"
#include "model/linear/parts.h"
#include "model/linear/variance.h"

/* Coordinates from .. to - 1 are this rank's to copy, or to fill: all ranks of the node, whatever they do otherwise, take
 * their part. */
struct part {
    tr_snapshot *snapshot;
    size_t n, from, to;
};

static int keep_array(const struct part *p, const char *name, enum tr_dtype dtype, void *array)
{
    char *at = (char *)array + p->from * tr_dtype_size(dtype);
    return array ? tr_snapshot_rows(p->snapshot, name, dtype, p->n, 1, NULL, p->from, p->to - p->from, at)
                 : TR_OK;
}

/* In the middle of an epoch; between turns all coordinates have seen all steps. */
static int keep_steps(const tr_worker *me, const struct part *p, struct tr_linear_variance *v,
                      struct tr_variance_position at)
{
    int64_t step = (int64_t)atomic_load(v->model.step);
    bool first = me->tr->node_rank == 0, restores = tr_snapshot_restores(p->snapshot);
    TR_TRY(tr_snapshot_rows(p->snapshot, "steps", TR_I64, 1, 1, NULL, 0, first || restores, &step));
    if (first) atomic_store(v->model.step, (uint64_t)step);
    TR_TRY(keep_array(p, "sum", TR_F64, v->model.sum));
    if (at.done > 0) return keep_array(p, "steps_seen", TR_I32, v->model.last);
    for (size_t j = p->from; restores && j < p->to; j++) v->model.last[j] = (uint32_t)step;
    return TR_OK;
}

static int keep_model(const tr_worker *me, struct tr_linear *m, tr_snapshot *snapshot,
                      struct tr_variance_position at)
{
    struct tr_linear_variance *v = m->variance;
    size_t n = v->model.n, rank = (size_t)me->tr->node_rank, ranks = (size_t)me->tr->node_size;
    struct part p = {snapshot, n, n * rank / ranks, n * (rank + 1) / ranks};
    enum tr_dtype dtype = tr_variance_element(m) == 4 ? TR_F32 : TR_F64;
    bool begins = at.turn == 0 && at.done == 0;
    TR_TRY(keep_array(&p, "iterate", dtype, begins ? v->carried[TR_ITERATE] : v->model.w));
    TR_TRY(keep_array(&p, "second", dtype, v->model.z));
    return begins ? TR_OK : keep_steps(me, &p, v, at);
}

static int keep_progress(struct tr_linear *m, tr_snapshot *snapshot)
{
    struct tr_linear_variance *v = m->variance;
    int64_t at[] = {v->epoch, v->turn, v->turns};
    TR_TRY(tr_linear_keep_judged(m, snapshot));
    TR_TRY(tr_snapshot_common(snapshot, "passes", TR_F64, 1, &v->passes));
    TR_TRY(tr_snapshot_common(snapshot, "epoch", TR_I64, sizeof at / sizeof *at, at));
    v->epoch = at[0];
    v->turn = (int)at[1];
    v->turns = (int)at[2];
    return TR_OK;
}

int tr_linear_variance_keep(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_linear *m = state;
    struct tr_linear_variance *v = m->variance;
    struct tr_variance_position at = tr_variance_position_of(me), start = {0, 0, 0};
    TR_TRY(keep_progress(m, snapshot));
    /* the next checkpoint is not one of one group any more */
    for (int i = TR_ITERATE; tr_snapshot_restores(snapshot) && i < TR_CARRIED; i++)
        if (v->table[i]) v->table[i]->left_out = false;
    if (tr_variance_same_position(at, start)) return TR_OK; /* all is still to come */
    if (!tr_snapshot_restores(snapshot))
        return tr_variance_same_position(v->held->model, at) ? keep_model(me, m, snapshot, at) : TR_OK;
    TR_TRY(keep_model(me, m, snapshot, at));
    if (me->tr->node_rank == 0) *v->held = (struct tr_variance_held){.model = at};
    return TR_OK;
}

/* What checkpoints keep of K-means beside its table: where the centres started, since those that never get a row are
 * saved as that; where they are, since one that loses its rows stays there; and to which centre each row was counted,
 * since there it is taken from. Sums, bounds and the order of mini-batches follow from these.
 */
#include <stdio.h>
#include <string.h>

#include "model/kmeans/kmeans.h"
#include "model/model.h"

/* Dense centres are the same in all groups, so those of one are enough. */
static int keep_dense(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *snapshot)
{
    bool lists = me->worker >= 0 && (tr_snapshot_restores(snapshot) || me->group == 0);
    return tr_snapshot_rows(snapshot, "centres", TR_F32, m->k, (size_t)m->columns, NULL, m->first,
                            lists ? m->mine : 0, m->train.centres.value);
}

/* Of sparse ones each worker has the columns that its rows have. Where members of a group have a part of the centres
 * each, and now other parts than then, those without rows go on from where they started. */
static int keep_sparse(const tr_worker *me, struct tr_kmeans *m, struct tr_kmeans_side *side,
                       const char *name, tr_snapshot *snapshot)
{
    char part[64];
    if (me->worker < 0 || !side->data) return TR_OK;
    snprintf(part, sizeof part, "%s_from_%zu", name, m->first);
    return tr_snapshot_rows(snapshot, part, TR_F32, m->columns, side->centres.width, side->keys, 0,
                            side->n_keys, side->centres.value);
}

static int keep_centres(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *snapshot)
{
    int64_t shares = m->replicated ? me->group_size : 1, now = shares;
    bool lists = me->worker >= 0 && (tr_snapshot_restores(snapshot) || me->group == 0);
    if (!m->sparse) return keep_dense(me, m, snapshot);
    TR_TRY(tr_snapshot_common(snapshot, "shares", TR_I64, 1, &shares));
    if (shares != now) return TR_OK;
    TR_TRY(tr_snapshot_rows(snapshot, "norms", TR_F64, m->k, 1, NULL, m->first, lists ? m->mine : 0,
                            m->train.centres.norm));
    TR_TRY(keep_sparse(me, m, &m->train, "centres", snapshot));
    TR_TRY(keep_sparse(me, m, &m->test, "test_centres", snapshot));
    if (tr_snapshot_restores(snapshot) && me->worker >= 0 && m->test.data)
        memcpy(m->test.centres.norm, m->train.centres.norm, m->mine * sizeof *m->test.centres.norm);
    return TR_OK;
}

/* Nobody has looked at the rows yet whose labels these are. */
static void put_labels(struct tr_kmeans *m)
{
    struct tr_kmeans_side *side = &m->train;
    for (size_t i = 0; i < side->rows.n; i++) {
        side->label[i] = m->pushed[i];
        if (!m->replicated) tr_assigned_set(&side->assigned, i, m->pushed[i]);
    }
    if (!m->sparse) tr_kmeans_recount(m);
}

/* Mini-batches add rows for good, whatever label they had before. */
static int keep_labels(const tr_worker *me, struct tr_kmeans *m, tr_snapshot *snapshot)
{
    struct tr_kmeans_side *side = &m->train;
    bool works = me->worker >= 0;
    if (m->batches) return TR_OK;
    if (works && !m->sparse && !m->fresh) memcpy(m->pushed, side->label, side->rows.n * sizeof *m->pushed);
    TR_TRY(tr_data_keep(side->data, snapshot, "labels", TR_I32, m->pushed));
    if (works && tr_snapshot_restores(snapshot)) put_labels(m);
    return TR_OK;
}

int tr_kmeans_keep(tr_worker *me, void *state, tr_snapshot *snapshot)
{
    struct tr_kmeans *m = state;
    TR_TRY(tr_model_keep_evaluation(snapshot, &m->last));
    TR_TRY(tr_snapshot_common(snapshot, "inertia_before", TR_F64, 1, &m->before));
    TR_TRY(tr_start_keep(&m->start, snapshot, m->k, m->columns, m->sparse));
    if (tr_snapshot_restores(snapshot) && me->worker >= 0) {
        tr_kmeans_start_at(m, &m->train);
        if (m->test.data) tr_kmeans_start_at(m, &m->test);
    }
    TR_TRY(keep_centres(me, m, snapshot));
    return keep_labels(me, m, snapshot);
}

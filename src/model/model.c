#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"

const struct tr_model_kind *tr_model_kind_of(const tr_job *job)
{
    switch (job->model.type) {
    case TR_MODEL_KMEANS: return &tr_kmeans_kind;
    case TR_MODEL_MF: return &tr_mf_kind;
    case TR_MODEL_LDA: return &tr_lda_kind;
    default: return &tr_linear_kind;
    }
}

int tr_model_tell_objective(tr_context *tr, double *objective)
{
    MPI_Request request;
    MPI_Ibcast(objective, 1, MPI_DOUBLE, 0, tr->world, &request);
    return tr_wait_request(tr, &request, "the scheduler to tell the objective");
}

int tr_model_keep_evaluation(tr_snapshot *snapshot, tr_evaluation *v)
{
    double number[] = {v->objective, v->gap, v->metric, v->epoch, v->stop};
    TR_TRY(tr_snapshot_common(snapshot, "verdict", TR_F64, sizeof number / sizeof *number, number));
    *v = (tr_evaluation){number[0], number[1], number[2], number[3], number[4] != 0};
    return TR_OK;
}

/* Of those that there were, each worker has every so many-th. */
static int add_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, uint64_t workers, size_t n,
                    double *sums)
{
    double *one;
    TR_TRY(TR_NEW(&one, n));
    memset(sums, 0, n * sizeof *sums);
    int status = TR_OK;
    for (uint64_t w = (uint64_t)me->worker; w < workers && status == TR_OK; w += (uint64_t)me->workers) {
        status = tr_snapshot_rows(snapshot, name, TR_F64, workers, n, NULL, w, 1, one);
        for (size_t i = 0; i < n && status == TR_OK; i++) sums[i] += one[i];
    }
    free(one);
    return status;
}

int tr_model_keep_sums(const tr_worker *me, tr_snapshot *snapshot, const char *name, size_t n, double *sums)
{
    char count[64];
    int64_t workers = me->workers;
    snprintf(count, sizeof count, "%s_workers", name);
    TR_TRY(tr_snapshot_common(snapshot, count, TR_I64, 1, &workers));
    if (me->worker < 0) return TR_OK;
    if (tr_snapshot_restores(snapshot)) return add_sums(me, snapshot, name, (uint64_t)workers, n, sums);
    return tr_snapshot_rows(snapshot, name, TR_F64, (uint64_t)workers, n, NULL, (uint64_t)me->worker, 1,
                            sums);
}

#include "model/model.h"

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

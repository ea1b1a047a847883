#include "model/model.h"

const struct tr_model_kind *tr_model_kind_of(const tr_job *job)
{
    switch (job->model.type) {
    case TR_MODEL_KMEANS: return &tr_kmeans_kind;
    case TR_MODEL_MF: return &tr_mf_kind;
    case TR_MODEL_LDA: return &tr_lda_kind;
    default: return &tr_linear_kind;
    }
}

#include "model/model.h"

const struct tr_model_kind *tr_model_kind_of(const tr_job *job)
{
    switch (job->model.type) {
    case TR_MODEL_KMEANS: return &tr_kmeans_kind;
    default: return &tr_linear_kind;
    }
}

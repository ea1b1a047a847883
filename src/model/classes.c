/* The classes of models that Trireme brings. */
#include "job/job.h"
#include "model/kmeans/kmeans.h"
#include "model/lda/lda.h"
#include "model/linear/linear.h"
#include "model/mf/mf.h"
#include "model/trees/trees.h"

const tr_model_class *const tr_model_classes[] = {&tr_linear_class, &tr_kmeans_class, &tr_mf_class,
                                                  &tr_lda_class, &tr_trees_class};
const size_t tr_model_class_count = sizeof tr_model_classes / sizeof *tr_model_classes;

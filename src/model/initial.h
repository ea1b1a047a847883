/* model.init: training goes on from another model. */
#ifndef TR_MODEL_INITIAL_H
#define TR_MODEL_INITIAL_H

#include "trireme/trireme.h"

/* An earlier run in the output folder is moved away before the model is read: `path` may not be in there. TR_ERR_CONFIG. */
int tr_check_initial(const tr_job *job, const char *path);

#endif

#include "initial.h"

int tr_check_initial(const tr_job *job, const char *path)
{
    if (!tr_job_output_has(job, path)) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.init is in the folder of this run: expected another output",
                   tr_job_where(job, "model.init"));
}

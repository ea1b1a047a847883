#include "initial.h"

#include <string.h>

int tr_check_initial(const tr_job *job, const char *path)
{
    const char *output;
    TR_TRY(tr_job_string(job, "output", &output));
    size_t n = strlen(output);
    if (strncmp(path, output, n) != 0 || (path[n] && path[n] != '/')) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: model.init is in the folder of this run: expected another output",
                   tr_job_where(job, "model.init"));
}

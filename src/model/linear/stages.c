/* What the job says of a stage of a method, and whether there are so many. */
#include <string.h>

#include "model/linear/linear.h"
#include "model/linear/parts.h"
#include "stage/stage.h"

int tr_linear_stage_workers(const struct tr_linear *m, const char *stage, int usual)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, stage);
    char key[96];
    snprintf(key, sizeof key, "stages.%s.parallelism", stage);
    if (!s || strcmp(tr_job_where(m->job, key), "default") == 0) return usual;
    if (s->parallelism == TR_AUTO_DEGREE) return TR_AUTO_WORKERS;
    return s->parallelism == TR_ALL ? TR_ALL_WORKERS : (int)s->parallelism;
}

int tr_linear_stage_servers(const struct tr_linear *m, const char *stage)
{
    const struct tr_job_stage *s = tr_job_stage_of(m->job, stage);
    return s ? (int)s->servers : 0;
}

static int check_servers(const struct tr_linear *m, const char *stage)
{
    char key[96];
    int wished = tr_linear_stage_servers(m, stage), most = m->tr->layout.servers;
    snprintf(key, sizeof key, "stages.%s.servers", stage);
    if (wished <= most) return TR_OK;
    return tr_fail(TR_ERR_CONFIG, "%s: %s is %d, but there are %d servers: see ranks.servers",
                   tr_job_where(m->job, key), key, wished, most);
}

int tr_linear_check_stage(const struct tr_linear *m, const char *stage, bool one_group)
{
    int most = one_group ? m->tr->layout.group_size : tr_workers(m->tr);
    int wished = tr_linear_stage_workers(m, stage, TR_ALL_WORKERS);
    char key[96];
    TR_TRY(tr_agree(m->tr, check_servers(m, stage)));
    snprintf(key, sizeof key, "stages.%s.parallelism", stage);
    if (wished > most)
        tr_say(m->tr, "note:          %s: %s is %d, but there %s %d worker%s%s: %d it is",
               tr_job_where(m->job, key), key, wished, most == 1 ? "is" : "are", most, most == 1 ? "" : "s",
               one_group ? " on a node" : "", most);
    return TR_OK;
}

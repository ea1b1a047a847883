/* What the stages of a task have taken, as a table at its end. */
#ifndef TR_MONITOR_STAGES_H
#define TR_MONITOR_STAGES_H

#include <stdio.h>

#include "stage/stage.h"

/* of: the name of the job's task, in front of each line; NULL in a job that has none. */
void tr_show_stages(FILE *out, const char *of, const tr_task *task, const struct tr_stage_sum *sums);

/* … and as member `stages` of an object. */
void tr_write_stages(FILE *file, const struct tr_stage_sum *sums, size_t n);

#endif

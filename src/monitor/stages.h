/* What the stages of a task have taken, as a table at its end. */
#ifndef TR_MONITOR_STAGES_H
#define TR_MONITOR_STAGES_H

#include <stdio.h>

#include "stage/stage.h"

void tr_show_stages(FILE *out, const tr_task *task, const struct tr_stage_sum *sums);

#endif

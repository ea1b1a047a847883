/* How much memory a job will take, told before anything large is allocated. */
#ifndef TR_CLI_ESTIMATE_H
#define TR_CLI_ESTIMATE_H

#include "ranks/ranks.h"

/* One line, and a second one if it may not fit. Rank 0 looks at the files for all. */
int tr_say_estimate(tr_context *tr);

#endif

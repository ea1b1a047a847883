/* How much memory a job will take, told before anything large is allocated. */
#ifndef TR_CLI_ESTIMATE_H
#define TR_CLI_ESTIMATE_H

#include "ranks/ranks.h"

/* One line on the memory that a job needs, as rank 0 sees by its files; and whether its rows are to lie on a disk (tr->storage),
 * where the job leaves it open. TR_ERR_CONFIG: what it needs is not there. All ranks. */
int tr_say_estimate(tr_context *tr);

#endif

/* train --explain: all that was decided, before training starts. Lines on stderr of rank 0, each beginning
 * with `explain: `, even where report.progress is no. */
#ifndef TR_CLI_EXPLAIN_H
#define TR_CLI_EXPLAIN_H

#include "stage/stage.h"

/* Makes the settings of MPI, and says which: before MPI starts and adds what it needs itself. */
void tr_explain_settings(void);

/* Which rank does what on which host. All ranks. */
int tr_explain_layout(tr_context *tr);

/* How the tables lie and the views move, once a stage is ready: for tr_on_ready(), who being the context. */
int tr_explain_stage(void *tr, const tr_stage *stage);

#endif
